//! `tipover break`: load, break, recover and read everything back, as often as asked, and one page of
//! verdict.
//!
//! The flags make a plan like any other, whose cells run in clusters of their own; what is there already is
//! not run again.

use super::by_fleet::{Brought, ByFleet, Wanted};
use super::run::{Manner, carry_out, command_line, list, prepare};
use super::{BadInput, Ending, pair, report};
use crate::live::LiveArgument;
use crate::trial::Interrupt;
use anyhow::Result;
use clap::Args;
use clap::builder::RangedI64ValueParser;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tipover_core::check::{Model, Verdict};
use tipover_core::experiment::recipe::{Recipe, System};
use tipover_core::experiment::{Check, Durability, Experiment, MOST_REPEATS, PowerCuts, unknown};
use tipover_core::schedule::{Fault, Nodes, Schedule, Undo, When};
use tipover_core::study::{BrokenCell, CellRecords, Cells};
use tipover_core::units::{Bytes, span};

/// Break a database on purpose, and say whether it lost what it had acknowledged
///
/// Starts the recipe in a laboratory of its own (every node a process tree with its own shaped disk and
/// address), writes a ledger and transfers money, carries out the faults, waits until every node follows
/// again, and reads everything twice from the survivors and from each replica. Zero lost is printed as an
/// upper bound. Running again adds only the repetitions that are missing. Exit codes: 0 it kept its word, 1
/// it did not, or it cannot be said, 2 the input cannot be used.
#[derive(Debug, Args)]
pub struct Break {
    /// The recipe, such as wiredtiger, postgres-sync or galera, or the path of your own; `tipover lab
    /// recipes` lists all
    target: String,

    /// What is broken and when; a rule without a time begins after 2 s, and "power cut all" is the default
    ///
    /// Rules apart by ";", such as "at 1 s: kill primary, restart after 500 ms; at 4 s: cut a from rest for 2
    /// s". The grammar is in docs/correctness.md.
    #[arg(long, value_name = "RULES")]
    faults: Option<String>,

    /// From when on faults are counted: measuring, or loading, from the first account that is made
    ///
    /// With loading, the accounts of the bank are made on disks that have their shape already while the
    /// faults go on, so it needs --checks bank; a rule without a time then begins after 50 ms.
    #[arg(long, default_value = "measuring", value_name = "WHEN", value_parser = ["measuring", "loading"])]
    from: String,

    /// What is checked: ledger, bank, register, isolation, tpcb; several are told apart by commas
    ///
    /// ledger: is every acknowledged write there? bank: every transfer, once, and do snapshots add up?
    /// register: does every key take effect at one moment (stale reads)? isolation: do transactions over
    /// lists show the model that they claim (lost updates, dirty reads, write skew)? tpcb, alone and on SQL
    /// servers: is every transaction of pgbench's TPC-B in its history once, and do accounts, tellers and
    /// branches add up to it?
    #[arg(long, value_delimiter = ',', default_value = "ledger", value_name = "CHECKS")]
    checks: Vec<String>,

    /// How many runs, each with all the faults
    #[arg(long, default_value_t = 10, value_parser = repeats())]
    times: u32,

    /// A setting of the servers in their own words, such as synchronous_commit=off; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,

    /// What to compare with: settings that differ, as for --set, or durability=journalled
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    against: Vec<(String, String)>,

    /// What an acknowledgement shall promise: unacknowledged, acknowledged, written, journalled, ...
    #[arg(long, value_name = "WORD")]
    durability: Option<String>,

    /// Each node's disk: a profile (see `tipover disk profiles`), a shape such as "latency=1ms", or none
    #[arg(long, default_value = "gp3", value_name = "DISK")]
    disk: String,

    /// Its size
    #[arg(long, default_value = "2 GiB")]
    disk_size: Bytes,

    /// Its file system: ext4 or xfs
    #[arg(long, default_value = "ext4")]
    filesystem: String,

    /// How the disk of a power cut is mounted: block, file, or both, each for all the runs
    ///
    /// As a block device one flush makes the whole disk durable, as on a real one, and data pages are seldom
    /// caught half written. As files a flush covers one file, so a cut meets all pages that no checkpoint has
    /// flushed. Without root there are only files.
    #[arg(long, default_value = "both", value_name = "MODE", value_parser = ["both", "block", "file"])]
    disk_mode: String,

    /// What power cuts leave of what was not flushed, in turns: several are apart by " or "
    #[arg(long, value_name = "CUTS", default_value = "survive=0% or survive=50%,torn=512B")]
    power: PowerCuts,

    /// Sessions, shared out among the checks
    #[arg(long, default_value_t = 4)]
    sessions: u32,

    /// Pause of a session after each answer
    #[arg(long, default_value = "500 us", value_name = "SPAN", value_parser = span::parse)]
    think: Duration,

    /// How long the load of a run lasts; by default enough for the faults, and three seconds more
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    length: Option<Duration>,

    /// The time before a fault whose acknowledgements are at risk; by default what the setting documents
    ///
    /// Where nothing is documented it is 100 ms, and 1 s for a cluster.
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    window: Option<Duration>,

    /// What transactions claim, for the check of isolation; by default what the recipe says
    ///
    /// read_committed, snapshot_isolation, serializable, strong_session_serializable, strict_serializable.
    #[arg(long, value_name = "MODEL")]
    isolation: Option<String>,

    /// Accounts of the bank
    #[arg(long, default_value_t = 1_000)]
    accounts: u64,

    /// Operations should be done within this
    #[arg(long, default_value = "100 ms", value_name = "SPAN", value_parser = span::parse)]
    latency_limit: Duration,

    /// When a dead primary is replaced; "0 s": never
    #[arg(long, default_value = "1 s", value_name = "SPAN", value_parser = span::parse)]
    failover: Duration,

    /// One-way delay between any two nodes
    #[arg(long, default_value = "0 s", value_name = "SPAN", value_parser = span::parse)]
    delay: Duration,

    /// Memory of each node
    #[arg(long)]
    memory: Option<Bytes>,

    /// Processors of each node
    #[arg(long)]
    cpus: Option<f64>,

    /// Major version of the server; by default the newest that is installed
    #[arg(long)]
    version: Option<u32>,

    /// Your own mongod, for MongoDB's recipes; by default the one in PATH
    #[arg(long, value_name = "PATH")]
    mongod: Option<String>,

    /// Your own mongos, for the sharded cluster; by default the one in PATH
    #[arg(long, value_name = "PATH")]
    mongos: Option<String>,

    /// Your own PoloDB; by default a built one, or the one in PATH
    #[arg(long, value_name = "PATH")]
    polodb: Option<String>,

    /// Seed of the faults' moments and of chance
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only print the runs that would be carried out, and an estimate of time, memory and disk
    ///
    /// What would be refused is refused here too, in the same words: exit code 2.
    #[arg(long)]
    list: bool,

    /// Print every table of the report, not only the answer
    #[arg(long)]
    full: bool,

    /// Only print the plan that these flags make
    #[arg(long)]
    plan: bool,

    #[command(flatten)]
    live: LiveArgument,

    #[command(flatten)]
    fleet: ByFleet,
}

fn repeats() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MOST_REPEATS))
}

/// Readahead of the nodes' disks, the kernel's own default: without any, recovery reads its log page by page.
const READAHEAD: &str = "128 KiB";
/// When faults without a time begin: the database is at its usual pace by then.
const BEFORE: Duration = Duration::from_secs(2);
/// And where loading is what they are to meet, which may take no longer than a blink.
const BEFORE_LOADED: Duration = Duration::from_millis(50);
/// How long what is killed stays down, and how long what lasts lasts, unless the rule says otherwise.
const DOWN: Duration = Duration::from_millis(200);
const LASTS: Duration = Duration::from_secs(2);
/// Load after the last fault is undone, so that it can be seen to work again.
const AFTER: Duration = Duration::from_secs(3);

impl Break {
    /// Makes the plan, runs what is missing of it, and prints the verdict.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let text = self.plan_text()?;
        let wrong = |error: tipover_core::experiment::PlanError| BadInput(error.to_string());
        let mut experiment = Experiment::parse(&text, "asked", &[]).map_err(wrong)?;
        super::plan::attach(&mut experiment).map_err(wrong)?;
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            let Some(breaking) = &cell.spec.breaking else { continue };
            let expanded =
                breaking.faults.expand(&self.recipe()?.layout().names(), breaking.length, self.seed);
            expanded.map_err(|error| BadInput(format!("--faults: {error}")))?;
        }
        if self.plan {
            print!("{text}");
            return Ok(Ending::Held);
        }
        if self.list {
            return list(&experiment, results, false, json);
        }
        // The name says what the plan is but for how often, so more repetitions go on in the same place.
        let (prepared, failed) = if self.fleet.is_asked() {
            let (search, retry) = (None, false);
            let wanted = Wanted { experiment: &experiment, text: &text, replace_plan: true, search, retry };
            let Brought { prepared, came, here } = self.fleet.fetch(wanted, results, interrupt)?;
            if here == 0 {
                return Ok(if came.is_bad() { Ending::NotHeld } else { Ending::Held });
            }
            (prepared, came.failed + came.refused)
        } else {
            let prepared = prepare(&experiment, results, &text, true)?;
            let manner = Manner { live: self.live, retry: false, shows_growing: true };
            let tally = carry_out(&prepared, &experiment, manner, interrupt)?;
            eprintln!(
                "{} runs now, {} were there already, {} failed",
                tally.measured, tally.present, tally.failed
            );
            (prepared, tally.failed)
        };
        let store = &prepared.store;
        let records = report::publish(store, &experiment, &command_line(), self.full, json)?;
        // The first cells are those that were asked about, one for each way to mount the disk; the others are
        // only to compare.
        let cells = Cells::of(&experiment, &records);
        let asked = self.disk_modes(&self.schedule()?).len().max(1);
        let valid = |cell: &CellRecords<'_>| {
            BrokenCell::of(cell).is_some_and(|cell| cell.verdict() == Verdict::Valid)
        };
        let held = cells.all.iter().take(asked).all(valid) && failed == 0;
        Ok(if held { Ending::Held } else { Ending::NotHeld })
    }

    fn recipe(&self) -> Result<Recipe> {
        if self.target.contains("://") {
            return Err(BadInput(
                "a server that runs already is not broken: its processes, disk and network are not ours, and a fault \
                 that cannot be caused proves nothing. Name a recipe, or check it under load without faults: \
                 `tipover run transfers --target ADDRESS` (the bank), or a plan with workload.kind = \"ledger\""
                    .into(),
            )
            .into());
        }
        super::lab::recipe(&self.target)
    }

    /// The rules with all that was left open.
    fn schedule(&self) -> Result<Schedule> {
        let default = if self.disk == "none" { "kill all" } else { "power cut all" };
        let given = self.faults.as_deref().unwrap_or(default);
        if given.trim() == "none" {
            return Ok(Schedule::default());
        }
        let before = if self.from == "loading" { BEFORE_LOADED } else { BEFORE };
        let timed = |rule: &str| {
            let rule = rule.trim();
            match rule.starts_with("at ") || rule.starts_with("every ") || rule.is_empty() {
                true => rule.to_string(),
                false => format!("at {}: {rule}", span::print(before)),
            }
        };
        let text: Vec<String> = given.split([';', '\n']).map(timed).collect();
        let mut schedule: Schedule =
            text.join(";").parse().map_err(|error| BadInput(format!("--faults: {error}")))?;
        for rule in &mut schedule.rules {
            let restarts = rule.fault.undo() == Undo::Restart;
            rule.undo_after.get_or_insert(if restarts { DOWN } else { LASTS });
        }
        Ok(schedule)
    }

    fn length(&self, schedule: &Schedule) -> Duration {
        let ends = schedule.rules.iter().map(|rule| {
            let undo = rule.undo_after.unwrap_or_default();
            undo + match rule.when {
                When::At(at) => at,
                When::Every { period, from, until, times } => {
                    let last = times.map(|times| from.unwrap_or(period) + period * times.saturating_sub(1));
                    until.or(last).unwrap_or(Duration::from_secs(30))
                }
            }
        });
        self.length.unwrap_or(ends.max().unwrap_or(BEFORE) + AFTER)
    }

    /// How the disks are mounted, if that is not left to the machine: in both ways where their power is cut.
    fn disk_modes(&self, schedule: &Schedule) -> Vec<&str> {
        // Of a fleet only a machine with root is given what needs it.
        let root = rustix::process::geteuid().is_root() || self.fleet.is_asked();
        match self.disk_mode.as_str() {
            _ if self.disk == "none" => vec![],
            "both" if cuts_power(schedule) && root => vec!["block", "file"],
            "both" => vec![],
            mode => vec![mode],
        }
    }

    /// The shape of the nodes' disks; `None` for this machine's own.
    fn shape(&self) -> Result<Option<String>> {
        if self.disk == "none" {
            return Ok(None);
        }
        super::lab::shape(&self.disk).map(Some)
    }

    /// The plan that the flags make, as TOML.
    fn plan_text(&self) -> Result<String> {
        let recipe = self.recipe()?;
        let schedule = self.schedule()?;
        let mut checks = Vec::new();
        for check in &self.checks {
            let known = Check::ALL.into_iter().find(|known| known.name() == check);
            let known =
                known.ok_or_else(|| BadInput(unknown("check", check, &Check::ALL.map(Check::name))))?;
            if !checks.contains(&known) {
                checks.push(known);
            }
        }
        let kind = recipe.server.target();
        let (settings, durability) = self.settings(&self.set, self.durability.as_deref())?;
        let (mut other, other_durability) = self.settings(&self.against, durability.as_deref())?;
        for (name, value) in &settings {
            other.entry(name.clone()).or_insert(value.clone());
        }
        let cluster = recipe.layout().nodes.len() > 1;
        // An interval between flushes bounds what servers lose that all come back together. What a failover
        // takes back is bounded by nothing that anybody documents.
        let bounded = !cluster || takes_all(&schedule);
        let documented = recipe.documented(&settings, durability.as_deref());
        let documented = if bounded { documented } else { Duration::ZERO };
        let least = Duration::from_millis(if cluster { 1_000 } else { 100 });
        let window = self.window.unwrap_or(documented.max(least));
        let mut target = json!({ "kind": kind });
        if let Some(durability) = &durability {
            target["durability"] = json!(durability);
        }
        if recipe.server == System::Wiredtiger {
            target["wiredtiger"] = json!({ "cache": "64 MiB" });
        }
        let spans = |span: Duration| span::print(span);
        let mut plan = json!({
            "title": format!("{}: {}", what(&self.target, (&settings, &durability)), describe(&schedule)),
            "question": "Does it lose what it acknowledged, how long is it away, and what does safety cost?",
            "why": "An acknowledgement is a promise; what it is worth shows only when something breaks.",
            "how_to_read": "Verdicts: valid, no evidence, not tested, unknown, CONVICTED. Zero lost is an upper bound on the \
                            chance of a loss, for this fault on this machine, and nothing more.",
            "repeats": self.times,
            "seed": self.seed,
            "scale": { "asked": {} },
            "target": target,
            "lab": {
                "recipe": self.target,
                "settings": settings,
                "failover": spans(self.failover),
                "delay": spans(self.delay),
            },
            "load": {
                "sessions": self.sessions,
                "think": spans(self.think),
                "timeout": "2 s",
                "retries": 10,
            },
            "break": {
                "checks": checks,
                "faults": schedule.to_string(),
                "length": spans(self.length(&schedule)),
                "bank": { "accounts": self.accounts },
                "window": spans(window),
                "documented": spans(documented),
                "latency_limit": spans(self.latency_limit),
            },
        });
        if checks.contains(&Check::Isolation) {
            plan["break"]["isolation"] = json!(self.claimed(&recipe)?);
        }
        self.add_what_was_said(&mut plan, &checks)?;
        let mut sweep = sweep(
            &self.target,
            (&settings, &durability),
            (&other, &other_durability),
            !self.against.is_empty(),
        )?;
        if cuts_power(&schedule) {
            plan["break"]["power"] = json!(self.power.to_string());
        }
        match self.disk_modes(&schedule).as_slice() {
            [] => {}
            [mode] => plan["disk"]["mode"] = json!(mode),
            modes => {
                let axis = json!({ "name": "disk", "sets": "disk.mode", "values": modes });
                sweep["axis"].as_array_mut().into_iter().for_each(|axes| axes.push(axis.clone()));
            }
        }
        plan["sweep"] = json!([sweep]);
        let text = |plan: &Value| toml::to_string(plan).map_err(|error| BadInput(error.to_string()));
        plan["name"] = json!("break");
        let wrong = |error: tipover_core::experiment::PlanError| BadInput(error.to_string());
        let mut experiment = Experiment::parse(&text(&plan)?, "asked", &[]).map_err(wrong)?;
        super::plan::attach(&mut experiment).map_err(wrong)?;
        // How often is not part of the name: more repetitions belong to the same question.
        let cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
        let hash: Vec<String> = cells.map(|cell| cell.spec.fingerprint()[..6].to_string()).collect();
        let target = Path::new(&self.target).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        plan["name"] = json!(format!("break-{target}-{}-{}", hash.join("-"), self.seed));
        Ok(text(&plan)?)
    }

    /// Puts into the plan what has no default.
    fn add_what_was_said(&self, plan: &mut Value, checks: &[Check]) -> Result<()> {
        if checks.contains(&Check::Tpcb) {
            plan["workload"] = json!({ "kind": "scripts", "scripts": { "run": ["tpcb-like"] } });
            plan["trial"] = json!({ "warm_up_least": "500 ms" });
        }
        if let Some(shape) = self.shape()? {
            plan["disk"] = json!({
                "size": self.disk_size.to_string(),
                "shape": shape,
                "filesystem": self.filesystem,
                "readahead": READAHEAD,
            });
        }
        if self.from == "loading" {
            plan["break"]["from"] = json!(self.from);
        }
        if let Some(memory) = self.memory {
            plan["machine"] = json!({ "memory": memory.to_string() });
        }
        if let Some(cpus) = self.cpus {
            plan["lab"]["cpus"] = json!(cpus);
        }
        if let Some(version) = self.version {
            plan["lab"]["version"] = json!(version);
        }
        let own = [("mongod", &self.mongod), ("mongos", &self.mongos), ("polodb", &self.polodb)];
        for (name, path) in own {
            if let Some(path) = path {
                plan["lab"][name] = json!(path);
            }
        }
        Ok(())
    }

    /// What transactions claim.
    fn claimed(&self, recipe: &Recipe) -> Result<Model> {
        let Some(word) = &self.isolation else {
            return Ok(recipe.claims.isolation.unwrap_or(Model::ReadCommitted));
        };
        let known: Result<Model, _> = serde_json::from_value(json!(word));
        let words = [
            "read_uncommitted",
            "read_committed",
            "snapshot_isolation",
            "serializable",
            "strong_session_serializable",
            "strict_serializable",
        ];
        Ok(known.map_err(|_| BadInput(unknown("model of isolation", word, &words)))?)
    }

    /// Settings of the servers, and the durability among them.
    fn settings(
        &self,
        given: &[(String, String)],
        durability: Option<&str>,
    ) -> Result<(BTreeMap<String, String>, Option<String>)> {
        let mut settings: BTreeMap<String, String> = given.iter().cloned().collect();
        let durability = settings.remove("durability").or(durability.map(Into::into));
        if let Some(word) = &durability {
            let known: Result<Durability, _> = serde_json::from_value(json!(word));
            let words = [
                "unacknowledged",
                "acknowledged",
                "written",
                "journalled",
                "replicated_to_one",
                "replicated_to_majority",
            ];
            known.map_err(|_| BadInput(unknown("durability", word, &words)))?;
        }
        Ok((settings, durability))
    }
}

type Settings<'a> = (&'a BTreeMap<String, String>, &'a Option<String>);

/// "postgres, synchronous_commit=off".
fn what(recipe: &str, (settings, durability): Settings<'_>) -> String {
    let settings = settings.iter().map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> =
        std::iter::once(recipe.to_string()).chain(settings).chain(durability.clone()).collect();
    words.join(", ")
}

/// One cell, or two that differ in settings or in durability.
fn sweep(recipe: &str, asked: Settings<'_>, other: Settings<'_>, compared: bool) -> Result<Value> {
    let mut sweep = json!({ "name": recipe, "question": "What was asked for.", "axis": [] });
    if !compared {
        sweep["name"] = json!(what(recipe, asked));
        return Ok(sweep);
    }
    let label = |(settings, durability): Settings<'_>, beside: Settings<'_>| {
        let differing = settings.iter().filter(|(name, value)| beside.0.get(*name) != Some(*value));
        let mut words: Vec<String> = differing.map(|(name, value)| format!("{name}={value}")).collect();
        if durability != beside.1 {
            words.extend(durability.iter().cloned());
        }
        if words.is_empty() { "as the recipe has it".to_string() } else { words.join(" ") }
    };
    let labels = [label(asked, other), label(other, asked)];
    let axis = match (asked.0 == other.0, asked.1 == other.1) {
        (true, true) => return Err(BadInput("--against names what --set has already".into()).into()),
        (true, false) => {
            let word = |durability: &Option<String>| durability.clone().unwrap_or("configured".into());
            json!({ "name": "setting", "sets": "target.durability", "labels": labels,
                    "values": [word(asked.1), word(other.1)] })
        }
        (false, true) => {
            json!({ "name": "setting", "sets": "lab.settings", "labels": labels, "values": [asked.0, other.0] })
        }
        (false, false) => {
            let text = "--against can change settings of the servers or durability, not both at once";
            return Err(BadInput(text.into()).into());
        }
    };
    sweep["axis"] = json!([axis]);
    Ok(sweep)
}

fn cuts_power(schedule: &Schedule) -> bool {
    schedule.rules.iter().any(|rule| matches!(rule.fault, Fault::PowerCut { .. }))
}

/// Whether every fault takes all nodes at once, so that nobody can take over.
fn takes_all(schedule: &Schedule) -> bool {
    let all = |fault: &Fault| match fault {
        Fault::PowerCut { nodes } | Fault::Kill { nodes } => *nodes == Nodes::All,
        _ => false,
    };
    schedule.rules.iter().all(|rule| all(&rule.fault))
}

fn describe(schedule: &Schedule) -> String {
    let faults: Vec<String> = schedule.rules.iter().map(|rule| rule.fault.to_string()).collect();
    if faults.is_empty() { "nothing broken".into() } else { faults.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use tipover_core::experiment::DiskMode;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        breaking: Break,
    }

    fn plan(arguments: &str) -> Result<(String, Experiment)> {
        let words = std::iter::once("break").chain(arguments.split('|'));
        let text = Line::try_parse_from(words).unwrap().breaking.plan_text()?;
        let experiment = Experiment::parse(&text, "asked", &[]).unwrap();
        Ok((text, experiment))
    }

    #[test]
    fn flags_make_a_plan_that_can_be_read_back() {
        let (text, experiment) =
            plan("postgres|--set|synchronous_commit=off|--against|synchronous_commit=on|--times|30|--disk-mode|block")
                .unwrap();
        assert!(text.contains("power cut all, restart after 200 ms"), "{text}");
        let cells = &experiment.sweeps[0].cells;
        assert_eq!((experiment.repeats, cells.len()), (30, 2));
        assert_eq!(cells[1].spec.disk.mode, DiskMode::Block);
        assert_eq!(cells[0].labels[0].1, "synchronous_commit=off");
        let spec = cells[0].spec.breaking.as_ref().unwrap();
        assert_eq!(spec.documented, Duration::from_millis(600));
        assert_eq!(spec.window, Duration::from_millis(600));
        // How often is no other question; another setting is.
        let name = |arguments: &str| plan(arguments).unwrap().1.name;
        assert_eq!(name("postgres|--times|3"), name("postgres|--times|4"));
        assert_ne!(name("postgres|--times|3"), name("postgres|--sessions|3"));
    }

    #[test]
    fn a_flush_bounds_what_servers_lose_and_not_what_a_failover_takes_back() {
        let documented = |arguments: &str| {
            let cell =
                plan(&format!("{arguments}|--durability|acknowledged")).unwrap().1.sweeps.remove(0).cells;
            cell[0].spec.breaking.as_ref().unwrap().documented
        };
        let bound = Duration::from_millis(600);
        assert_eq!(documented("postgres|--faults|kill primary"), bound, "one server comes back as it was");
        assert_eq!(documented("postgres-sync|--faults|power cut all"), bound);
        assert_eq!(documented("postgres-sync|--faults|kill primary"), Duration::ZERO);
        assert_eq!(documented("postgres-sync|--faults|power cut all; kill primary"), Duration::ZERO);
    }

    #[test]
    fn a_power_cut_meets_the_disk_in_both_ways_and_other_faults_in_one() {
        let modes = |arguments: &str| -> Vec<(String, DiskMode, String)> {
            let cells = plan(arguments).unwrap().1.sweeps.remove(0).cells;
            let cell = |cell: tipover_core::experiment::Cell| {
                let label = cell.labels.first().map(|(_, label)| label.clone()).unwrap_or_default();
                (label, cell.spec.disk.mode, cell.spec.breaking.unwrap().power.to_string())
            };
            cells.into_iter().map(cell).collect()
        };
        let turns = "survive=0% or survive=50%,torn=512B".to_string();
        if rustix::process::geteuid().is_root() {
            let both = modes("postgres");
            assert_eq!(both[0], ("block".into(), DiskMode::Block, turns.clone()));
            assert_eq!(both[1], ("file".into(), DiskMode::File, turns.clone()));
            // The asked setting comes first, in both ways.
            let compared = modes("postgres|--set|fsync=off|--against|fsync=on");
            let labels: Vec<&str> = compared.iter().map(|(label, ..)| label.as_str()).collect();
            assert_eq!(labels, ["fsync=off", "fsync=off", "fsync=on", "fsync=on"]);
        }
        assert_eq!(modes("postgres|--disk-mode|file")[0].1, DiskMode::File);
        assert_eq!(modes("postgres|--power|survive=20%")[0].2, "survive=20%");
        for other in ["postgres|--faults|kill all", "postgres|--disk|none"] {
            let cells = modes(other);
            assert_eq!((cells.len(), cells[0].2.as_str()), (1, "survive=0%"), "{other}");
        }
    }

    #[test]
    fn wrong_words_are_answered_with_right_ones() {
        for (arguments, words) in [
            ("postgers", "did you mean `postgres`"),
            ("postgres://me@host/shop", "tipover run transfers --target"),
            ("postgres|--faults|kil all", "did you mean \"kill\""),
            ("postgres|--checks|legder", "did you mean `ledger`"),
            ("postgres|--disk|sata-sdd", "did you mean \"sata-ssd\""),
            ("wiredtiger|--durability|journaled", "did you mean `journalled`"),
            ("postgres|--set|a=1|--against|a=1", "already"),
        ] {
            let error = plan(arguments).unwrap_err();
            assert!(error.is::<BadInput>(), "{error}");
            assert!(error.to_string().contains(words), "{arguments}: {error}");
        }
    }
}
