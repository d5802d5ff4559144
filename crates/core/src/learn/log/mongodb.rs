//! What MongoDB keeps of commands: "Slow query" lines of its structured log (from 4.4 on, as its manual has
//! them under "Log Messages"), and documents of `system.profile` as mongoexport writes them.

use super::super::statement::Verb;
use super::{Log, Logged, moment};
use crate::workload::script::{NUMBERED, Template};
use serde_json::{Map, Value, json};

/// Names of a command that belong to the session that sent it.
const OF_SESSION: [&str; 5] = ["lsid", "txnNumber", "autocommit", "startTransaction", "stmtId"];
/// Commands about data that only read; an aggregation may write at its end.
const READS: [&str; 4] = ["find", "aggregate", "count", "distinct"];

/// Whether a file is one of these, by its first lines.
pub fn is_one(head: &str) -> bool {
    let has = |name: &str| head.contains(&format!("\"{name}\":")) || head.contains(&format!("\"{name}\" :"));
    has("t") && has("ctx") && has("msg") || has("op") && has("ns") && has("ts")
}

/// Reads a log, or documents of the profiler: one a line, or all of them as an array.
pub fn read(bytes: &[u8], log: &mut Log) {
    if bytes.trim_ascii_start().starts_with(b"[") {
        match serde_json::from_slice::<Vec<Value>>(bytes) {
            Ok(all) => all.iter().for_each(|value| entry(value, 1, log)),
            Err(error) => log.pass(error.line(), "a torn array"),
        }
        return;
    }
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(value) => entry(&value, number + 1, log),
            Err(_) => log.pass(number + 1, "torn lines, and what is no JSON"),
        }
    }
}

/// What a command does, as it stands in a record.
pub fn verb(text: &str) -> Verb {
    let Ok(template) = Template::recorded(text) else {
        return Verb::Utility("commands with values that cannot be sent".into());
    };
    match template.name.as_str() {
        name if NUMBERED.contains(&name) => Verb::Change,
        name if READS.contains(&name) && template.changes => Verb::Change,
        name if READS.contains(&name) => Verb::Read,
        other => Verb::Utility(other.into()),
    }
}

/// A line or a document.
fn entry(value: &Value, line: usize, log: &mut Log) {
    match said(value) {
        Ok(Some(logged)) => log.statements.push(logged),
        Ok(None) => {}
        Err(why) => log.pass(line, why),
    }
}

/// The command in it; nothing where there is none.
///
/// # Errors
/// Why it cannot be sent again.
fn said(value: &Value) -> Result<Option<Logged>, &'static str> {
    // A line of the log has its time outside, a document of the profiler has all in one.
    let (body, at, took, session) = match value.get("attr") {
        Some(_) if value["msg"] != "Slow query" => return Ok(None),
        Some(attr) => {
            let Some(session) = value["ctx"].as_str().filter(|name| name.starts_with("conn")) else {
                return Err("what the server does of itself");
            };
            (attr, &value["t"], &attr["durationMillis"], session.to_string())
        }
        None if value.get("op").is_none() => return Ok(None),
        None => {
            let session = value["command"].get("lsid").or_else(|| value.get("client"));
            (value, &value["ts"], &value["millis"], session.map_or(String::new(), Value::to_string))
        }
    };
    let cut_off = |value: &Value| value.get("truncated").is_some() || value.get("$truncated").is_some();
    if [value, body, &body["command"]].into_iter().any(cut_off) {
        return Err("commands that were cut off");
    }
    let at_ns = date(at).ok_or("an entry without its time")?;
    let took_ns = whole(took).unwrap_or(0).saturating_mul(1_000_000);
    let namespace = body["ns"].as_str().ok_or("an entry without its collection")?;
    let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    if collection.starts_with("system.") {
        return Err("commands about the server's own collections");
    }
    let command = body["command"].as_object().ok_or("an entry without its command")?;
    let kind = body.get("type").or_else(|| body.get("op")).and_then(Value::as_str).unwrap_or_default();
    let Some(command) = complete(kind, collection, command)? else { return Ok(None) };
    let text = Value::Object(command).to_string();
    Ok(Some(Logged { at_ns: at_ns.saturating_sub(took_ns), session, database: database.into(), text }))
}

/// The command as it was sent. Statements of an update or a delete have entries of their own, and the command
/// around them has another, which is none.
fn complete(
    kind: &str,
    collection: &str,
    command: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, &'static str> {
    let many = match kind {
        "update" => ["update", "updates"],
        "remove" => ["delete", "deletes"],
        _ => {
            let name = command.keys().next().map_or("", String::as_str);
            match name {
                "update" | "delete" => return Ok(None),
                "getMore" => return Err("fetches from cursors"),
                "insert" if !command.contains_key("documents") => {
                    return Err("inserts: the server keeps no documents of them");
                }
                _ => {}
            }
            return Ok(Some(without_session(command)));
        }
    };
    let statement = |name: &str| command.get(name).cloned().ok_or("an entry without its statement");
    statement("q")?;
    let mut one = without_session(command);
    match kind {
        "update" => drop(statement("u")?),
        // Who deletes must say how many.
        _ => drop(one.entry("limit").or_insert(json!(0))),
    }
    let [name, statements] = many;
    let sent = json!({name: collection, statements: [one]});
    Ok(sent.as_object().cloned())
}

/// A command without what the session around it added.
fn without_session(command: &Map<String, Value>) -> Map<String, Value> {
    let mut sent = command.clone();
    sent.retain(|name, _| !OF_SESSION.contains(&name.as_str()) && !name.starts_with('$'));
    sent
}

/// A number in either form of Extended JSON.
fn whole(value: &Value) -> Option<u64> {
    let wrapped = || value.get("$numberInt").or_else(|| value.get("$numberLong"))?.as_str()?.parse().ok();
    value.as_u64().or_else(|| value.as_f64().map(|number| number.max(0.0) as u64)).or_else(wrapped)
}

/// Nanoseconds since 1970, in whatever zone that was.
fn date(value: &Value) -> Option<u64> {
    match value.get("$date")? {
        Value::String(text) => moment(text),
        other => whole(other)?.checked_mul(1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogKind, replay};

    /// Lines as servers of 4.4 to 8.0 write them, shortened where nothing is read.
    const LOG: &str = include_str!("../../../testdata/mongodb/log.jsonl");

    #[test]
    fn commands_in_a_log_are_sent_as_they_were() {
        let kind = LogKind::of(LOG.as_bytes());
        assert_eq!(kind, Some(LogKind::Mongodb));
        let log = LogKind::Mongodb.read(LOG.as_bytes());
        let replayed = replay(&log, LogKind::Mongodb, true, 1.0).unwrap();
        let sent: Vec<(u64, u32, bool, &str)> = replayed
            .statements
            .iter()
            .map(|s| (s.due_ns / 1_000_000, s.session, s.changes, s.text.as_str()))
            .collect();
        let find = "{\"find\":\"item\",\"filter\":{\"price\":{\"$nin\":[1,2.0]},\"_id\":{\"$oid\":\"64894824fd36d9b6032697e2\"}},\
                    \"sort\":{\"_id\":-1},\"limit\":25}";
        let update = "{\"update\":\"item\",\"updates\":[{\"q\":{\"_id\":7},\"u\":{\"$set\":{\"stock\":5}},\"multi\":false,\
                      \"upsert\":true}]}";
        let delete = "{\"delete\":\"item\",\"deletes\":[{\"q\":{\"type\":\"pineapple\"},\"limit\":1}]}";
        let out = "{\"aggregate\":\"item\",\"pipeline\":[{\"$match\":{\"a\":1}},{\"$out\":\"copy\"}],\"cursor\":{}}";
        // Each begins so long before its line as it took.
        let all = [(0, 0, false, find), (100, 1, true, update), (198, 0, true, delete), (301, 0, true, out)];
        assert_eq!(sent, all);
        let said = replayed.remarks.join("\n");
        for words in [
            "1 passed over, the first in line 6: inserts: the server keeps no documents",
            "the first in line 7: fetches from cursors",
            "the first in line 9: what the server does of itself",
            "the first in line 10: commands that were cut off",
            "the first in line 12: torn lines",
            "1 statements about the server or the session are left out: ping",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let reads = replay(&log, LogKind::Mongodb, false, 1.0).unwrap();
        assert_eq!(reads.statements.len(), 1);
    }

    #[test]
    fn documents_of_the_profiler_are_read_in_both_forms() {
        let relaxed = include_str!("../../../testdata/mongodb/profile.jsonl");
        let canonical = include_str!("../../../testdata/mongodb/profile.json");
        for (text, count, first, remark) in [
            (relaxed, 2, "{\"find\":\"report\",\"filter\":{\"a\":{\"$lte\":500}}}", "own collections"),
            (canonical, 1, "{\"count\":\"report\",\"query\":{\"a\":{\"$numberInt\":\"5\"}}}", ""),
        ] {
            assert_eq!(LogKind::of(text.as_bytes()), Some(LogKind::Mongodb));
            let log = LogKind::Mongodb.read(text.as_bytes());
            assert_eq!(log.statements[0].at_ns, 1_543_226_400_100_000_000);
            let replayed = replay(&log, LogKind::Mongodb, true, 1.0).unwrap();
            assert_eq!((replayed.statements.len(), replayed.statements[0].text.as_str()), (count, first));
            assert!(replayed.remarks.join("\n").contains(remark), "{:?}", replayed.remarks);
        }
    }
}
