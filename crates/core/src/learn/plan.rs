//! The plan: short, commented, and meant to be edited.

use super::draw::{Draws, Scope, rows_per_call};
use super::log::Replay;
use super::mix::Mix;
use super::statement::{Statement, Verb};
use super::token::Dialect;
use super::transaction::{Known, group, plans_anew};
use super::{Seen, SeenStatement};
use crate::experiment::TargetKind;
use crate::units::{Bytes, significant};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// What whoever learns wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// What the plan is called.
    pub name: String,
    /// Values of the data may stand in the plan.
    pub keep_values: bool,
    /// The target is a copy: statements that change data may be sent to it.
    pub on_copy: bool,
    /// How many statements, the most frequent first, have a script of their own.
    pub most_scripts: usize,
}

/// What was learned.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learned {
    /// The plan's text.
    pub plan: String,
    /// Calls that the plan's statements stand for, as a share of all.
    pub covered: f64,
    /// What is left out, each with its share of all calls.
    pub left_out: Vec<(String, f64)>,
    /// What could not be seen and is assumed.
    pub assumed: Vec<String>,
}

/// Statements in one transaction are repeated so often at most.
const MOST_REPEATED: f64 = 50.0;
/// More than so much of an address of a plan's session would be no plan to read.
const MOST_SESSIONS: u64 = 1_000;

/// A script of the plan.
struct Script {
    name: String,
    weight: u64,
    remark: String,
    text: String,
}

impl Script {
    fn written(&self) -> String {
        format!(
            "# {}\n[[workload.scripts.run]]\nname = {}\nweight = {}\ntext = {}\n",
            self.remark,
            quoted(&self.name),
            self.weight,
            literal(&self.text)
        )
    }
}

/// The load of a plan, and what stands behind it.
fn tail(sessions: u64, rate: &str) -> String {
    let sessions = sessions.clamp(1, MOST_SESSIONS);
    format!(
        "\n[load]\nsessions = {sessions}\n\
         # As many runs a second as were seen, at random moments; without this line a closed loop.\n\
         arrivals = \"poisson {rate}/s\"\nretries = 10\n\n\
         [trial]\nmeasure_least = \"30 s\"\nmeasure_most = \"60 s\"\n\n\
         [[sweep]]\nname = \"as-learned\"\nquestion = \"How long do the application's statements take?\"\naxis = []\n\n\
         [scale.tiny]\nrepeats = 1\ntrial.warm_up_least = \"1 s\"\ntrial.measure_least = \"2 s\"\ntrial.measure_operations = 50\n\n\
         [scale.quick]\n"
    )
}

/// Everything that a plan is made of.
struct Maker<'a> {
    seen: &'a Seen,
    wishes: &'a Wishes,
    known: Vec<Known<'a>>,
    draws: Draws<'a>,
    calls: u64,
    left: BTreeMap<String, u64>,
    covered: u64,
    scripts: Vec<Script>,
    names: HashMap<String, u32>,
}

/// Makes a plan of what was seen.
///
/// # Errors
/// Nothing was seen of which a plan could be made; a sentence that says what to do.
pub fn learn(seen: &Seen, wishes: &Wishes) -> Result<Learned, String> {
    let mut maker = Maker::new(seen, wishes);
    if maker.calls == 0 {
        return Err(format!(
            "no statement was seen in {} s: is the load on, and in this database?",
            significant(seen.seconds, 3)
        ));
    }
    maker.write_scripts();
    let share = |calls: u64| calls as f64 / maker.calls as f64;
    let mut left_out: Vec<(String, f64)> =
        maker.left.iter().map(|(why, calls)| (why.clone(), share(*calls))).collect();
    left_out.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if maker.scripts.is_empty() {
        let why: Vec<String> =
            left_out.iter().take(3).map(|(why, share)| percent(*share) + " " + why).collect();
        return Err(format!("nothing is left for a plan: {}", why.join("; ")));
    }
    Ok(Learned {
        plan: maker.plan(&left_out),
        covered: share(maker.covered),
        assumed: maker.draws.assumed.iter().cloned().collect(),
        left_out,
    })
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share, 3))
}

impl<'a> Maker<'a> {
    fn new(seen: &'a Seen, wishes: &'a Wishes) -> Self {
        let mut maker = Maker {
            seen,
            wishes,
            known: Vec::new(),
            draws: Draws::new(seen.dialect, &seen.columns, wishes.keep_values),
            calls: seen.left.iter().map(|left| left.calls).sum(),
            left: BTreeMap::new(),
            covered: 0,
            scripts: Vec::new(),
            names: HashMap::new(),
        };
        for left in &seen.left {
            maker.leave(&left.why, left.calls);
        }
        for statement in &seen.statements {
            maker.calls += statement.calls;
            let read = Statement::read(&statement.text, seen.dialect).filter(|_| !statement.is_cut_off);
            let Some(read) = read else {
                maker.leave("the server has cut its text off", statement.calls);
                continue;
            };
            if let Verb::Utility(word) = &read.verb {
                let words = match word.as_str() {
                    "FETCH" | "DECLARE" | "CLOSE" | "MOVE" => "cursors: ",
                    "COPY" | "LOAD" => "copies of many rows: ",
                    _ => "statements about the server or the session: ",
                };
                maker.leave(&format!("{words}{word}"), statement.calls);
                continue;
            }
            maker.draws.learn_widths(&read, statement);
            maker.known.push((statement, read));
        }
        maker
    }

    fn leave(&mut self, why: &str, calls: u64) {
        if calls > 0 {
            *self.left.entry(why.into()).or_default() += calls;
        }
    }

    /// Why a statement may not be in the plan.
    fn refusal(&self, statement: &Statement) -> Option<String> {
        let changes = statement.verb == Verb::Change && !self.wishes.on_copy;
        let word = statement.word.to_uppercase();
        changes.then(|| format!("changes data ({word}); --on-copy if the target is a copy"))
    }

    /// What a script is called after the statement that it runs.
    fn name(&mut self, statement: &Statement) -> String {
        let table = statement.tables.first().map_or("nothing", |table| table.name.as_str());
        let mut columns: Vec<&str> = Vec::new();
        for place in &statement.placeholders {
            use super::statement::Role::{Equal, High, Low};
            if let Equal(name) | Low(name) | High(name) = &place.role
                && !columns.contains(&name.column.as_str())
            {
                columns.push(&name.column);
            }
        }
        let by = if columns.is_empty() { String::new() } else { format!("-by-{}", columns.join("-")) };
        self.numbered(&format!("{}-{table}{by}", statement.word).replace(['.', '/', '@', '\'', '"'], "-"))
    }

    fn numbered(&mut self, name: &str) -> String {
        let used = self.names.entry(name.into()).or_insert(0);
        *used += 1;
        if *used == 1 { name.to_string() } else { format!("{name}-{used}") }
    }

    fn write_scripts(&mut self) {
        let grouping = group(&self.known, self.seen.transactions);
        self.write_transaction(&grouping);
        let mut written = 0;
        for (number, calls) in grouping.alone {
            let (seen, statement) = self.known[number].clone();
            if let Some(why) = self.refusal(&statement) {
                self.leave(&why, calls);
                continue;
            }
            if written == self.wishes.most_scripts {
                self.leave(&format!("rarer than the {written} statements that have a script"), calls);
                continue;
            }
            match self.draws.draw(&statement, seen, &mut Scope::default()) {
                Err(why) => self.leave(&format!("{}: {why}", shortened(&statement.shape)), calls),
                Ok(drawn) => {
                    written += 1;
                    self.covered += calls;
                    let mut text = String::new();
                    drawn.draws.iter().for_each(|draw| text.push_str(&format!("{draw}\n")));
                    let _ = writeln!(text, "{};", drawn.sql);
                    let remark = format!(
                        "{} of all calls, {}",
                        percent(calls as f64 / self.calls as f64),
                        costs(seen)
                    );
                    let name = self.name(&statement);
                    self.scripts.push(Script { name, weight: calls, remark, text });
                }
            }
        }
        if grouping.is_guessed && grouping.transactions > 0 {
            self.draws.assumed.insert(
                "statements whose calls are a whole multiple of the transactions belong to them: too few samples showed it".into(),
            );
        }
    }

    /// All transactions as one script: the average of all kinds that there are.
    fn write_transaction(&mut self, grouping: &super::transaction::Grouping) {
        let calls_of = |verb: Verb| -> u64 {
            self.known.iter().filter(|(_, known)| known.verb == verb).map(|(seen, _)| seen.calls).sum()
        };
        let ends = calls_of(Verb::Begin) + calls_of(Verb::Commit) + calls_of(Verb::Rollback);
        let mut scope = Scope::default();
        let (mut text, mut kept) = (String::new(), 0);
        for (number, each) in &grouping.inside {
            let (seen, statement) = self.known[*number].clone();
            let calls = (each * grouping.transactions as f64).round() as u64;
            // The edges of the interval cut transactions in two.
            let whole = each.round();
            let each = &(if (each - whole).abs() <= 5e-3 * whole { whole } else { *each });
            if let Some(why) = self.refusal(&statement) {
                self.leave(&why, calls);
                continue;
            }
            let times = each.floor().min(MOST_REPEATED);
            let part = if each.floor() > MOST_REPEATED { 0.0 } else { each - times };
            let mut repeated = String::new();
            let mut failed = None;
            // A share below a thousandth is an interval's edge.
            let tries = times as usize + usize::from(part >= 1e-3);
            for time in 0..tries {
                match self.draws.draw(&statement, seen, &mut scope) {
                    Err(why) => failed = Some(why),
                    Ok(drawn) => {
                        let lines = format!("{}\n{};\n", drawn.draws.join("\n"), drawn.sql);
                        let lines = lines.trim_start();
                        match time < times as usize {
                            true => repeated.push_str(lines),
                            false => {
                                let _ = write!(
                                    repeated,
                                    "\\if random(1, 1000) <= {}\n{lines}\\endif\n",
                                    (part * 1000.0).round()
                                );
                            }
                        }
                    }
                }
            }
            if let Some(why) = failed {
                self.leave(&format!("{}: {why}", shortened(&statement.shape)), calls);
                continue;
            }
            kept += (calls as f64 * (times + part) / each).round() as u64;
            if each.floor() > MOST_REPEATED {
                self.leave(
                    "repeated in a transaction more often than 50 times",
                    calls - (calls as f64 * times / each) as u64,
                );
            }
            let _ =
                write!(text, "-- {} in a transaction, {}\n{repeated}", significant(*each, 3), costs(seen));
        }
        if text.is_empty() {
            self.leave("begins and ends of transactions of which nothing is in the plan", ends);
            return;
        }
        self.covered += kept + ends;
        let begin = if self.seen.dialect == Dialect::Mysql { "START TRANSACTION" } else { "BEGIN" };
        let name = self.numbered("transaction");
        let mut remark = format!(
            "{} transactions, with {} of all calls; where there are several kinds, this is their average",
            grouping.transactions,
            percent((kept + ends) as f64 / self.calls as f64)
        );
        if grouping.rolled_back >= 1.0 {
            let _ = write!(
                remark,
                "; {} % were rolled back, here all commit",
                significant(grouping.rolled_back, 2)
            );
        }
        let begin = self.spelled(Verb::Begin).unwrap_or_else(|| begin.into());
        let end = self.spelled(Verb::Commit).unwrap_or_else(|| "COMMIT".into());
        let text = format!("{begin};\n{text}{end};\n");
        self.scripts.push(Script { name, weight: grouping.transactions, remark, text });
    }

    /// How the application says it.
    fn spelled(&self, verb: Verb) -> Option<String> {
        let said = self.known.iter().filter(|(_, known)| known.verb == verb);
        said.max_by_key(|(seen, _)| seen.calls).map(|(_, known)| known.text.clone())
    }

    fn plan(&self, left_out: &[(String, f64)]) -> String {
        let mut plan = self.remarks(left_out);
        let seen = self.seen;
        let is_mysql = seen.dialect == Dialect::Mysql;
        let runs: u64 = self.scripts.iter().map(|script| script.weight).sum();
        let rate = significant((runs as f64 / seen.seconds).max(0.01), 3);
        let _ = write!(
            plan,
            "name = {name}\ntitle = \"The load of {server}, learned\"\n\
             question = \"How does the server bear the load that it was seen under?\"\n\
             why = \"The statements, their shares and their rows are the application's own.\"\n\
             how_to_read = \"\"\"\nClass by class: each script has latencies of its own. \
             What is assumed stands at the head of the plan.\n\"\"\"\n\
             repeats = 3\n\n[target]\nkind = \"{kind}\"\n\
             # Without its password: that comes from --target or from {variable}.\naddress = {address}\n",
            name = quoted(&self.wishes.name),
            server = seen.system.replace(['"', '\\'], " "),
            kind = if is_mysql { "mysql" } else { "postgres" },
            variable = if is_mysql { "MYSQL_PWD" } else { "PGPASSWORD" },
            address = quoted(&seen.address),
        );
        if !self.wishes.on_copy {
            plan.push_str(&read_only(match (is_mysql, seen.system.contains("MariaDB")) {
                (false, _) => "default_transaction_read_only = \"on\"",
                (true, true) => "tx_read_only = \"1\"",
                (true, false) => "transaction_read_only = \"1\"",
            }));
        }
        let protocol = match plans_anew(seen) {
            _ if is_mysql => "\"simple\" # as texts: those are what the server counts",
            Some(true) => "\"extended\" # each call was planned anew",
            Some(false) => "\"prepared\" # plans were used again",
            _ => "\"prepared\" # whether the application does is not seen",
        };
        let _ = write!(plan, "\n[workload]\nkind = \"scripts\"\n[workload.scripts]\nprotocol = {protocol}\n");
        if !self.draws.known.is_empty() {
            let pairs = self.draws.known.iter().map(|(name, value)| format!("{name} = {}", quoted(value)));
            let _ = writeln!(plan, "define = {{ {} }}", pairs.collect::<Vec<_>>().join(", "));
        }
        if !self.draws.bounds.is_empty() {
            let questions =
                self.draws.bounds.iter().map(|(table, columns)| self.draws.question(table, columns));
            let text = questions.map(|question| question + "\n").collect::<String>();
            let _ = write!(
                plan,
                "# Asked once before the load begins: so no value of the data stands in this plan.\n\
                 [workload.scripts.ask]\nname = \"bounds\"\ntext = {}\n",
                literal(&text)
            );
        }
        self.scripts.iter().for_each(|script| plan.push_str(&script.written()));
        plan + &tail(seen.sessions.open_most.max(seen.sessions.busy_most), &rate)
    }

    /// What stands at the head.
    fn remarks(&self, left_out: &[(String, f64)]) -> String {
        let seen = self.seen;
        let per_second = |count: u64| significant(count as f64 / seen.seconds, 3);
        let mut text = format!(
            "# Learned by `tipover learn {}`, which watched {} for {} s. Meant to be edited.\n#\n\
             # Seen: {} statements/s; at most {} sessions open, at most {} at work at once, {} on average.\n",
            seen.address,
            seen.system,
            significant(seen.seconds, 3),
            per_second(self.calls),
            seen.sessions.open_most,
            seen.sessions.busy_most,
            significant(seen.sessions.busy_mean, 2),
        );
        let _ = write!(
            text,
            "# Data: {} in the database, {} of cache",
            Bytes(seen.data_bytes as u64).rounded(),
            Bytes(seen.cache_bytes as u64).rounded()
        );
        match seen.hit_ratio() {
            Some(ratio) => {
                let _ = writeln!(text, "; {} of the pages asked for were in it.", percent(ratio));
            }
            None => text.push_str("; no pages were asked for.\n"),
        }
        let covered = self.covered as f64 / self.calls as f64;
        let _ = writeln!(text, "# In this plan: {} of all calls.", percent(covered));
        let mut list = |title: &str, lines: &mut dyn Iterator<Item = String>| {
            let lines: Vec<String> = lines.collect();
            if !lines.is_empty() {
                let _ = writeln!(text, "# {title}");
                lines.iter().for_each(|line| {
                    let _ = writeln!(text, "# - {}", line.replace(['\n', '\r'], " "));
                });
            }
        };
        list("Left out:", &mut left_out.iter().map(|(why, share)| format!("{}: {why}", percent(*share))));
        let skew = "skew that is assumed away matters: under a zipfian distribution of 0.99 over a million keys the hottest 1 % \
                    get about 66 % of the requests, here 1 %; random_zipfian in a script brings it back";
        let assumed = self.draws.assumed.iter().cloned();
        let has_skew = self.draws.assumed.iter().any(|line| line.contains("equally often"));
        list("Not seen, and assumed:", &mut assumed.chain(has_skew.then(|| skew.to_string())));
        list("Not seen at all:", &mut seen.remarks.iter().cloned());
        text + "\n"
    }
}

/// A function that a statement calls may write, and its words do not show it.
fn read_only(setting: &str) -> String {
    format!("[target.settings]\n# The server itself refuses whatever would change data.\n{setting}\n")
}

/// The plan that sends what was recorded in the file `record`; `log` says where that came from.
pub fn of_record(
    replay: &Replay,
    target: TargetKind,
    wishes: &Wishes,
    address: &str,
    (log, record): (&str, &str),
) -> String {
    let mut plan = format!(
        "# Statements of {log}, each by its session and at its time; made by `tipover learn --replay`.\n\
         # {} statements of {} sessions stand in {record}, with their values.\n",
        replay.statements.len(),
        replay.sessions
    );
    for remark in &replay.remarks {
        let _ = writeln!(plan, "# - {}", remark.replace(['\n', '\r'], " "));
    }
    let length_s = replay.statements.last().map_or(0, |last| last.due_ns / 1_000_000_000) + 1;
    let (kind, where_from) = named(target);
    let _ = write!(
        plan,
        "\nname = {}\ntitle = \"A recorded load, sent again\"\n\
         question = \"How does the server bear the load of the log?\"\n\
         why = \"The statements, their sessions and their times are the application's own.\"\n\
         how_to_read = \"\"\"\nLatencies count from when a statement was due. Where a session is still busy with the one before, it waits, \
         and that wait counts.\n\"\"\"\nrepeats = 1\n\n[target]\nkind = \"{kind}\"\n\
         # Without its password: that comes from --target{where_from}.\naddress = {}\n",
        quoted(&wishes.name),
        quoted(address)
    );
    if !wishes.on_copy && target == TargetKind::Postgres {
        plan.push_str(&read_only("default_transaction_read_only = \"on\""));
    }
    let _ = write!(
        plan,
        "\n[workload]\nkind = \"scripts\"\n[workload.scripts]\nrecorded = {}\n\n\
         [load]\n# At least as many as the log has.\nsessions = {}\narrivals = {}\n\n\
         # As long as the log; warming up sends no statement of it.\n\
         [trial]\nwarm_up_least = \"500 ms\"\nmeasure_least = \"{length_s} s\"\nmeasure_operations = {}\nmeasure_most = \"{} s\"\n\n\
         [[sweep]]\nname = \"as-recorded\"\nquestion = \"How long do the statements take?\"\naxis = []\n\n[scale.quick]\n",
        quoted(record),
        replay.sessions,
        quoted(&format!("trace {record}")),
        replay.statements.len(),
        2 * length_s + 30
    );
    plan
}

/// The plan of a log's mix; `files` are where its samples lie, by the numbers of its scripts.
pub fn of_mix(
    mix: &Mix,
    target: TargetKind,
    wishes: &Wishes,
    address: &str,
    (source, files): (&str, &BTreeMap<usize, String>),
) -> String {
    let rate = significant(mix.operations as f64 / mix.seconds.max(1e-3), 4);
    let covered = percent(mix.covered as f64 / mix.operations.max(1) as f64);
    let mut plan = format!(
        "# Learned by `tipover learn {source}`. Meant to be edited.\n#\n\
         # In the log: {} transactions and single statements of {} sessions in {} s. In this plan: {covered} of them.\n\
         # Values are drawn from those that were there, whole rows at a time, so what is asked for often there is here.\n",
        mix.operations,
        mix.sessions,
        significant(mix.seconds, 4)
    );
    for remark in &mix.remarks {
        let _ = writeln!(plan, "# - {}", remark.replace(['\n', '\r'], " "));
    }
    let (kind, where_from) = named(target);
    let _ = write!(
        plan,
        "\nname = {}\ntitle = \"A load learned from a log\"\n\
         question = \"How does the server bear the application's load?\"\n\
         why = \"The statements, their shares and their values are the application's own.\"\n\
         how_to_read = \"\"\"\nScripts are transactions, or statements that stand alone; each has a row of its own.\n\"\"\"\n\
         repeats = 3\n\n\
         [target]\nkind = \"{kind}\"\n# Without its password: that comes from --target{where_from}.\naddress = {}\n",
        quoted(&wishes.name),
        quoted(address)
    );
    if !wishes.on_copy && target == TargetKind::Postgres {
        plan.push_str(&read_only("default_transaction_read_only = \"on\""));
    }
    plan.push_str("\n[workload]\nkind = \"scripts\"\n[workload.scripts]\n");
    if target != TargetKind::Mongodb {
        plan.push_str(
            "protocol = \"simple\" # as texts with their values; \"prepared\" sends values apart\n",
        );
    }
    plan.push_str("# The values, which are somebody's: these files are yours alone to read.\nsamples = [\n");
    for file in files.values() {
        let _ = writeln!(plan, "    {{ file = {} }},", quoted(file));
    }
    plan.push_str("]\n");
    for script in &mix.scripts {
        let remark = match script.rows.is_some() {
            true => format!("{} in the log; values of {} of them", script.weight, script.row_count),
            false => format!("{} in the log", script.weight),
        };
        let (name, text) = (script.name.clone(), script.text.clone());
        plan.push_str(&Script { name, weight: script.weight, remark, text }.written());
    }
    plan + &tail(mix.sessions.into(), &rate)
}

/// What plans call a kind of server, and where its password may come from.
fn named(target: TargetKind) -> (&'static str, &'static str) {
    match target {
        TargetKind::Mysql => ("mysql", " or from MYSQL_PWD"),
        TargetKind::Mongodb => ("mongodb", ""),
        _ => ("postgres", " or from PGPASSWORD"),
    }
}

/// Rows and time of a call.
fn costs(seen: &SeenStatement) -> String {
    let time = seen.time_ms / seen.calls.max(1) as f64;
    format!("{} rows and {} ms each", significant(rows_per_call(seen), 3), significant(time, 2))
}

fn shortened(shape: &str) -> String {
    const MOST: usize = 100;
    match shape.char_indices().nth(MOST) {
        Some((end, _)) => format!("`{}...`", &shape[..end]),
        None => format!("`{shape}`"),
    }
}

/// A text of one line as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// A text of several lines as TOML has it: as it stands, wherever that can be.
fn literal(text: &str) -> String {
    let plain = !text.contains("'''") && !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
    if plain { format!("'''\n{text}'''") } else { quoted(text) }
}
