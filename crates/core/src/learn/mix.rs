//! A mix learned from a log: statements and transactions by their forms, each with the values that it had.
//! Which keys are asked for, how often and together, no statistics of a server show; a log does.

use super::log::{Log, LogKind, replay};
use super::statement::{Statement, Verb};
use super::token::Dialect;
use crate::workload::recorded::RecordedStatement;
use crate::workload::script::{self, SampleSpec, Scripts, Texts};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// What was learned of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mix {
    /// The most frequent forms, the first the most frequent.
    pub scripts: Vec<MixScript>,
    /// Operations in the log: transactions, and statements that stand alone.
    pub operations: u64,
    /// Of these, those that a script stands for.
    pub covered: u64,
    /// Sessions that sent them.
    pub sessions: u32,
    /// From the first to the last.
    pub seconds: f64,
    /// What is left out or changed, as sentences.
    pub remarks: Vec<String>,
}

/// Operations of one form.
#[derive(Debug, Clone, PartialEq)]
pub struct MixScript {
    /// What it is called.
    pub name: String,
    /// How often it was there.
    pub weight: u64,
    /// With variables where its values stood.
    pub text: String,
    /// The values, as a file of samples has them, a line an operation; nothing if it has none.
    pub rows: Option<String>,
    /// How many operations these are.
    pub row_count: usize,
}

/// A file of samples has no more rows, and no more bytes; of more operations some are taken, evenly apart.
const MOST_ROWS: usize = 5_000;
const MOST_BYTES: usize = 900_000;

/// A value in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Literal {
    Number(String),
    Text(String),
}

/// A statement: what stands around its values, and these.
#[derive(Debug, Clone, PartialEq, Default)]
struct Form {
    name: String,
    /// One more than values.
    pieces: Vec<String>,
    values: Vec<Literal>,
}

/// Operations of one form.
struct Group {
    forms: Vec<Form>,
    ending: Option<&'static str>,
    rows: Vec<Vec<Literal>>,
}

/// Its statements, and of a transaction the word that ended it.
type Operation<'a> = (Vec<&'a str>, Option<&'static str>);

/// Learns the mix of a log, with statements that change data only on a copy, in at most `most_scripts`
/// scripts.
///
/// # Errors
/// Nothing is left.
pub fn mix(log: &Log, kind: LogKind, on_copy: bool, most_scripts: usize) -> Result<Mix, String> {
    let replay = replay(log, kind, on_copy, 1.0)?;
    let mut mix = Mix { sessions: replay.sessions, remarks: replay.remarks, ..Mix::default() };
    mix.seconds = replay.statements.last().map_or(0, |last| last.due_ns) as f64 / 1e9;
    let mut groups: HashMap<String, Group> = HashMap::new();
    let mut unread = 0u64;
    let (operations, torn) = operations(&replay.statements, kind);
    for (count, what) in torn.into_iter().zip(["end", "beginning"]).filter(|(count, _)| *count > 0) {
        mix.remarks.push(format!("{count} transactions whose {what} the log does not have are left out"));
    }
    for (statements, ending) in operations {
        mix.operations += 1;
        let forms: Option<Vec<Form>> = statements.iter().map(|text| form(text, kind)).collect();
        let Some(forms) = forms else {
            unread += 1;
            continue;
        };
        let group = groups.entry(key(&forms, ending)).or_insert_with(|| Group {
            forms: forms.iter().map(|form| Form { values: vec![], ..form.clone() }).collect(),
            ending,
            rows: vec![],
        });
        group.rows.push(forms.into_iter().flat_map(|form| form.values).collect());
    }
    let mut groups: Vec<(String, Group)> = groups.into_iter().collect();
    groups.sort_by(|(a, one), (b, other)| other.rows.len().cmp(&one.rows.len()).then_with(|| a.cmp(b)));
    let (forms, left) = (groups.len(), groups.iter().skip(most_scripts));
    let left: usize = left.map(|(_, group)| group.rows.len()).sum();
    if unread > 0 {
        mix.remarks.push(format!("{unread} operations whose values the log does not have are left out"));
    }
    if left > 0 {
        mix.remarks.push(format!(
            "{left} operations of {} less frequent forms are left out; --most has more",
            forms - most_scripts
        ));
    }
    let kept = groups.into_iter().take(most_scripts).enumerate();
    let scripts = kept.map(|(number, (_, group))| script(number + 1, group, kind));
    let (scripts, strange): (Vec<_>, Vec<_>) = scripts.partition(|script| is_readable(script, kind));
    if !strange.is_empty() {
        let operations: u64 = strange.iter().map(|script| script.weight).sum();
        mix.remarks.push(format!("{operations} operations that no script can say are left out"));
    }
    mix.scripts = scripts;
    mix.covered = mix.scripts.iter().map(|script| script.weight).sum();
    match mix.scripts.is_empty() {
        true => Err(format!("no operation is left: {}", mix.remarks.join("; "))),
        false => Ok(mix),
    }
}

/// Transactions and statements that stand alone, session by session, in their order; a transaction with the
/// word that ended it. Also how many have no end in the log, and how many no beginning: those are left out.
///
/// A session without autocommit says no BEGIN: its transactions are what lies between two ends.
fn operations(statements: &[RecordedStatement], kind: LogKind) -> (Vec<Operation<'_>>, [usize; 2]) {
    let mut open: HashMap<u32, Vec<&str>> = HashMap::new();
    // Statements of a session since its last BEGIN or end, by their places in what is found, and whether the
    // log has such a one: before, nobody knows what was sent before the log began.
    let mut loose: HashMap<u32, (bool, Vec<usize>)> = HashMap::new();
    let mut found: Vec<Operation<'_>> = Vec::new();
    let mut headless = 0;
    for RecordedStatement { session, text, .. } in statements {
        let ending = match kind.verb(text) {
            Verb::Begin => {
                open.insert(*session, Vec::new());
                loose.insert(*session, (true, Vec::new()));
                continue;
            }
            Verb::Commit => "COMMIT",
            Verb::Rollback => "ROLLBACK",
            _ => {
                match open.get_mut(session) {
                    Some(transaction) => transaction.push(text),
                    None => {
                        loose.entry(*session).or_default().1.push(found.len());
                        found.push((vec![text.as_str()], None));
                    }
                }
                continue;
            }
        };
        let (is_whole, since) = loose.insert(*session, (true, Vec::new())).unwrap_or_default();
        if let Some(transaction) = open.remove(session) {
            found.push((transaction, Some(ending)));
            continue;
        }
        let transaction: Vec<&str> =
            since.iter().flat_map(|place| std::mem::take(&mut found[*place].0)).collect();
        match is_whole {
            true => found.push((transaction, Some(ending))),
            false => headless += usize::from(!transaction.is_empty()),
        }
    }
    found.retain(|(transaction, _)| !transaction.is_empty());
    (found, [open.values().filter(|transaction| !transaction.is_empty()).count(), headless])
}

/// What operations of one form have in common.
fn key(forms: &[Form], ending: Option<&str>) -> String {
    let mut key = String::from(ending.unwrap_or_default());
    for form in forms {
        key.push('\u{1}');
        for (place, piece) in form.pieces.iter().enumerate() {
            key.push_str(piece);
            key.push_str(match form.values.get(place) {
                Some(Literal::Number(_)) => "\u{2}",
                Some(Literal::Text(_)) => "\u{3}",
                None => "",
            });
        }
    }
    key
}

/// A statement taken apart; `None` if it has a value that the log does not have.
fn form(text: &str, kind: LogKind) -> Option<Form> {
    if text.contains('\0') {
        return None;
    }
    let dialect = match kind {
        LogKind::Mongodb => return command(text),
        LogKind::MysqlSlow | LogKind::MysqlGeneral => Dialect::Mysql,
        LogKind::PostgresCsv | LogKind::PostgresJson => Dialect::Postgres,
    };
    let read = Statement::read(text, dialect)?;
    let mut places: Vec<_> = read.placeholders.iter().collect();
    places.sort_by_key(|place| place.begin);
    let table = read.tables.first().map_or("", |table| table.name.as_str());
    let mut form = Form { name: format!("{} {table}", read.word).trim_end().into(), ..Form::default() };
    let (mut piece, mut end) = (String::new(), 0);
    for place in places {
        if !place.is_literal {
            return None;
        }
        let Some(literal) = literal(&read.text[place.begin..place.end], dialect) else { continue };
        piece.push_str(&read.text[end..place.begin]);
        form.pieces.push(std::mem::take(&mut piece));
        form.values.push(literal);
        end = place.end;
    }
    form.pieces.push(read.text[end..].to_string());
    Some(form)
}

/// A value as it is meant; `None` for forms that stay as they stand, such as `E'...'`.
fn literal(written: &str, dialect: Dialect) -> Option<Literal> {
    let quote = written.chars().next().filter(|quote| *quote == '\'' || *quote == '"');
    let Some(quote) = quote else {
        // What a number of ours cannot hold exactly stays as it stands.
        let exact = written.len() <= 15 && written.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        return (exact && written.parse::<f64>().is_ok()).then(|| Literal::Number(written.into()));
    };
    let inner = written.get(1..written.len().checked_sub(1)?)?;
    if dialect == Dialect::Mysql && inner.contains('\\') {
        return None;
    }
    Some(Literal::Text(inner.replace(&String::from_iter([quote, quote]), &quote.to_string())))
}

/// The same of a command of MongoDB.
fn command(text: &str) -> Option<Form> {
    let command: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let (name, of) = command.iter().next()?;
    let collection = of.as_str().unwrap_or_default();
    let mut form = Form { name: format!("{name} {collection}").trim_end().into(), ..Form::default() };
    let mut piece = format!("{{{}: {of}", Value::from(name.as_str()));
    for (name, value) in command.iter().skip(1) {
        piece += &format!(", {}: ", written_name(name)?);
        take_apart(value, &mut piece, &mut form)?;
    }
    piece.push('}');
    form.pieces.push(piece);
    Some(form)
}

/// A name in a document as JSON has it; in one with a colon a script would see a variable.
fn written_name(name: &str) -> Option<String> {
    (!name.contains(':')).then(|| Value::from(name).to_string())
}

fn take_apart(value: &Value, piece: &mut String, form: &mut Form) -> Option<()> {
    /// Their values have a form of their own, in which no variable may stand.
    const WHOLE: [&str; 6] =
        ["$binary", "$regularExpression", "$timestamp", "$minKey", "$maxKey", "$numberDecimal"];
    let mut put = |piece: &mut String, literal: Literal| {
        form.pieces.push(std::mem::take(piece));
        form.values.push(literal);
    };
    match value {
        Value::Null | Value::Bool(_) => *piece += &value.to_string(),
        Value::Number(number) => put(piece, Literal::Number(number.to_string())),
        Value::String(text) => put(piece, Literal::Text(text.clone())),
        Value::Array(values) => {
            piece.push('[');
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    *piece += ", ";
                }
                take_apart(value, piece, form)?;
            }
            piece.push(']');
        }
        Value::Object(fields) if fields.keys().any(|name| WHOLE.contains(&name.as_str())) => {
            *piece += &value.to_string();
        }
        Value::Object(fields) => {
            piece.push('{');
            for (place, (name, value)) in fields.iter().enumerate() {
                if place > 0 {
                    *piece += ", ";
                }
                *piece += &format!("{}: ", written_name(name)?);
                take_apart(value, piece, form)?;
            }
            piece.push('}');
        }
    }
    Some(())
}

fn script(number: usize, group: Group, kind: LogKind) -> MixScript {
    let Group { forms, ending, rows } = group;
    // A text may be anybody's name, so it never stands in the plan; a number does that is always the same.
    let is_variable = |column: usize| match &rows[0][column] {
        Literal::Text(_) => true,
        first @ Literal::Number(_) => rows.iter().any(|row| row[column] != *first),
    };
    let variable: Vec<bool> = (0..rows[0].len()).map(is_variable).collect();
    let mut text = String::from(if ending.is_some() { "BEGIN;\n" } else { "" });
    let mut column = 0;
    for form in &forms {
        for (place, piece) in form.pieces.iter().enumerate() {
            text.push_str(piece);
            if place + 1 == form.pieces.len() {
                break;
            }
            match &rows[0][column] {
                Literal::Number(number) if !variable[column] => text.push_str(number),
                Literal::Text(_) if kind == LogKind::Mongodb => text += &format!("\":s{number}_v{column}\""),
                _ => {
                    // Directly behind a letter it would be a part of a word.
                    if text.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                        text.push(' ');
                    }
                    text += &format!(":s{number}_v{column}");
                }
            }
            column += 1;
        }
        text.push_str(";\n");
    }
    text.extend(ending.map(|word| format!("{word};\n")));
    let names: BTreeSet<&str> = forms.iter().map(|form| form.name.as_str()).collect();
    let shown: Vec<&str> = names.into_iter().take(3).collect();
    let kind = if ending.is_some() { "transaction: " } else { "" };
    let name = format!("{number} {kind}{}", shown.join(", "));
    let (lines, row_count) = lines(number, &rows, &variable);
    MixScript { name, weight: rows.len() as u64, text, rows: lines, row_count }
}

/// Whether a script is one: a log may hold statements that mean something else there, such as a backslash.
fn is_readable(script: &MixScript, kind: LogKind) -> bool {
    let dialect = match kind {
        LogKind::Mongodb => script::Dialect::Commands,
        _ => script::Dialect::Plan,
    };
    let mut scripts = Scripts::new(0, dialect);
    let added = scripts.add(&script.name, script.text.as_bytes(), script.weight);
    let samples = script.rows.clone().map(|text| SampleSpec {
        file: script.name.clone(),
        draw: "1".into(),
        prefix: String::new(),
        texts: Texts::Taken,
        text: Some(text),
    });
    added.is_ok() && samples.is_none_or(|samples| scripts.add_samples(samples).is_ok())
}

/// The values of variables as comma-separated lines, some of them where there are too many.
fn lines(number: usize, rows: &[Vec<Literal>], variable: &[bool]) -> (Option<String>, usize) {
    let columns: Vec<usize> = (0..variable.len()).filter(|column| variable[*column]).collect();
    if columns.is_empty() {
        return (None, 0);
    }
    let cell = |literal: &Literal| match literal {
        Literal::Number(number) => number.clone(),
        Literal::Text(text) => format!("\"{}\"", text.replace('"', "\"\"")),
    };
    let line = |row: &Vec<Literal>| {
        columns.iter().map(|column| cell(&row[*column])).collect::<Vec<_>>().join(",") + "\n"
    };
    let bytes: usize = rows.iter().map(|row| line(row).len()).sum();
    let count = rows.len().min(MOST_ROWS).min((rows.len() * MOST_BYTES / bytes.max(1)).max(1));
    let header: Vec<String> = columns.iter().map(|column| format!("s{number}_v{column}")).collect();
    let chosen = (0..count).map(|n| line(&rows[n * rows.len() / count]));
    (Some(header.join(",") + "\n" + &chosen.collect::<String>()), count)
}

#[cfg(test)]
mod tests {
    use super::super::log::Logged;
    use super::*;

    fn log(statements: &[(&str, &str)]) -> Log {
        let logged = |(n, (session, text)): (u64, &(&str, &str))| Logged {
            at_ns: n * 10_000_000,
            session: (*session).into(),
            database: String::new(),
            text: (*text).into(),
        };
        Log { statements: (0..).zip(statements).map(logged).collect(), ..Log::default() }
    }

    /// Two sessions of MySQL without autocommit: the one was in a transaction when the log began.
    #[test]
    fn without_begin_a_transaction_is_what_lies_between_two_ends() {
        let look = "SELECT a FROM t WHERE id = 1";
        let change = "UPDATE t SET a = 2 WHERE id = 1";
        let sent = [
            ("a", change),
            ("a", "COMMIT"), // cut off
            ("a", look),
            ("b", "COMMIT"),
            ("a", change),
            ("b", look),
            ("a", "COMMIT"),
            ("b", "ROLLBACK"),
            ("a", look),
        ];
        let learned = mix(&log(&sent), LogKind::MysqlSlow, true, 20).unwrap();
        assert_eq!(learned.remarks, ["1 transactions whose beginning the log does not have are left out"]);
        let texts: Vec<&str> = learned.scripts.iter().map(|script| script.text.as_str()).collect();
        let alone = "SELECT a FROM t WHERE id = 1;\n";
        let both = "BEGIN;\nSELECT a FROM t WHERE id = 1;\nUPDATE t SET a = 2 WHERE id = 1;\nCOMMIT;\n";
        let undone = "BEGIN;\nSELECT a FROM t WHERE id = 1;\nROLLBACK;\n";
        assert_eq!((learned.operations, texts.len()), (3, 3), "{texts:?}");
        for text in [alone, both, undone] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
    }

    #[test]
    fn operations_of_one_form_are_a_script_with_the_values_that_they_had() {
        let mut sent: Vec<(&str, String)> = Vec::new();
        for n in 0..90 {
            sent.push((
                "a",
                format!("SELECT c FROM t WHERE id = {} LIMIT 10", if n % 9 == 0 { n } else { 1 }),
            ));
            if n % 9 == 0 {
                sent.push(("b", "BEGIN".into()));
                sent.push(("b", format!("UPDATE t SET c = 'it''s \"{n}\"', d=3 WHERE id = {n}")));
                sent.push(("b", format!("INSERT INTO h (id, at) VALUES ({n}, DATE'2026-01-01')")));
                sent.push(("b", "COMMIT".into()));
            }
        }
        sent.push(("c", "COMMIT".into()));
        sent.push(("c", "BEGIN".into()));
        sent.push(("c", "DELETE FROM t".into()));
        let sent: Vec<(&str, &str)> = sent.iter().map(|(session, text)| (*session, text.as_str())).collect();
        let learned = mix(&log(&sent), LogKind::PostgresCsv, true, 20).unwrap();
        assert_eq!((learned.operations, learned.covered, learned.scripts.len()), (100, 100, 2));
        assert_eq!(learned.remarks, ["1 transactions whose end the log does not have are left out"]);
        let [look, change] = learned.scripts.as_slice() else { panic!("{learned:?}") };
        assert_eq!((look.weight, look.text.as_str()), (90, "SELECT c FROM t WHERE id = :s1_v0 LIMIT 10;\n"));
        let rows = look.rows.as_ref().unwrap();
        assert_eq!(rows.lines().filter(|line| *line == "1").count(), 80, "as skewed as the log: {rows}");
        let text = "BEGIN;\nUPDATE t SET c = :s2_v0, d=3 WHERE id = :s2_v2;\n\
                    INSERT INTO h (id, at) VALUES (:s2_v3, DATE :s2_v4);\nCOMMIT;\n";
        assert_eq!((change.name.as_str(), change.text.as_str()), ("2 transaction: insert h, update t", text));
        let rows = change.rows.as_ref().unwrap();
        assert!(
            rows.starts_with("s2_v0,s2_v2,s2_v3,s2_v4\n\"it's \"\"0\"\"\",0,0,\"2026-01-01\"\n"),
            "{rows}"
        );
        let few = mix(&log(&sent), LogKind::PostgresCsv, true, 1).unwrap();
        assert!(
            few.remarks.iter().any(|r| r.starts_with("10 operations of 1 less frequent forms")),
            "{few:?}"
        );
        assert!(mix(&log(&[("a", "BEGIN")]), LogKind::PostgresCsv, true, 20).is_err());
        let strange =
            mix(&log(&[("a", "SELECT 1"), ("a", "SELECT a \\ b FROM t")]), LogKind::PostgresCsv, true, 20);
        assert_eq!(strange.unwrap().remarks, ["1 operations that no script can say are left out"]);
        let unknown = mix(&log(&[("a", "SELECT $1")]), LogKind::PostgresCsv, true, 20).unwrap_err();
        assert!(unknown.contains("whose values the log does not have"), "{unknown}");
    }

    #[test]
    fn commands_of_mongodb_are_too() {
        let find = |id: u32, name: &str| {
            format!(
                "{{\"find\":\"item\",\"filter\":{{\"_id\":{id},\"n\":\"{name}\",\"o\":{{\"$oid\":\"64894824fd36d9b6032697e{id}\"}}}},\
                 \"limit\":1}}"
            )
        };
        let sent = [find(1, "7"), find(2, "b"), find(1, "7")];
        let sent: Vec<(&str, &str)> = sent.iter().map(|text| ("a", text.as_str())).collect();
        let learned = mix(&log(&sent), LogKind::Mongodb, false, 20).unwrap();
        let script = &learned.scripts[0];
        let text = "{\"find\": \"item\", \"filter\": {\"_id\": :s1_v0, \"n\": \":s1_v1\", \"o\": {\"$oid\": \":s1_v2\"}}, \
                    \"limit\": 1};\n";
        assert_eq!(
            (learned.scripts.len(), script.name.as_str(), script.text.as_str()),
            (1, "1 find item", text)
        );
        let rows = script.rows.as_ref().unwrap();
        assert_eq!(rows.lines().nth(1), Some("1,\"7\",\"64894824fd36d9b6032697e1\""), "{rows}");
    }

    #[test]
    fn of_many_operations_some_are_taken_evenly() {
        let rows: Vec<Vec<Literal>> = (0..20_000).map(|n| vec![Literal::Number(n.to_string())]).collect();
        let (lines, count) = lines(1, &rows, &[true]);
        let lines = lines.unwrap();
        assert_eq!((count, lines.lines().count(), lines.lines().nth(2)), (5_000, 5_001, Some("4")));
        let long: Vec<Vec<Literal>> = (0..100).map(|_| vec![Literal::Text("x".repeat(100_000))]).collect();
        assert!(super::lines(1, &long, &[true]).0.unwrap().len() < 1 << 20);
    }
}
