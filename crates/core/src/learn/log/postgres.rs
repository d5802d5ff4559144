//! PostgreSQL's csvlog and jsonlog: statements with their durations (`log_min_duration_statement = 0`), with
//! `log_statement`, or by auto_explain.

use super::super::token::{Dialect, Kind, tokens};
use super::{Log, Logged, in_quotes, moment};
use std::collections::HashMap;

/// What an entry says of a statement.
struct Entry<'a> {
    line: usize,
    time: &'a str,
    session: &'a str,
    database: &'a str,
    message: &'a str,
    detail: &'a str,
}

/// Whether a line begins a csvlog.
pub fn is_csv(line: &str) -> bool {
    line.contains(',') && moment(line).is_some()
}

/// Reads a csvlog.
pub fn csv(bytes: &[u8], log: &mut Log) {
    let (mut at, mut line) = (0, 1);
    let mut fields: Vec<String> = Vec::new();
    while at < bytes.len() {
        let begin = line;
        let end = match row(&bytes[at..], &mut fields) {
            Ok(length) => at + length,
            Err(why) => {
                log.pass(begin, why);
                fields.clear();
                // Whatever follows begins with a time again.
                match resumed(bytes, at) {
                    Some(next) => next,
                    None => return,
                }
            }
        };
        line += bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        at = end;
        let field = |number: usize| fields.get(number).map_or("", String::as_str);
        if fields.is_empty() {
            continue;
        }
        if fields.len() < 15 || moment(field(0)).is_none() {
            log.pass(begin, "this is no entry of a csvlog");
            continue;
        }
        entry(
            &Entry {
                line: begin,
                time: field(0),
                session: field(5),
                database: field(2),
                message: field(13),
                detail: field(14),
            },
            field(11),
            log,
        );
        fields.clear();
    }
}

/// One row and its length. An empty row has no fields.
fn row(bytes: &[u8], fields: &mut Vec<String>) -> Result<usize, &'static str> {
    /// No entry is longer: a quote that is never closed must not take the rest of the log.
    const LONGEST: usize = 16 << 20;
    fields.clear();
    let mut field: Vec<u8> = Vec::new();
    let (mut at, mut quoted, mut was_quoted) = (0, false, false);
    let mut done = |field: &mut Vec<u8>| {
        let text = String::from_utf8(std::mem::take(field)).map_err(|_| "bytes that are no UTF-8")?;
        fields.push(text);
        Ok::<(), &'static str>(())
    };
    loop {
        let Some(&byte) = bytes.get(at).filter(|_| at < LONGEST) else {
            return Err(if quoted {
                "a quote that is never closed: the log is cut off here"
            } else {
                "the log is cut off here"
            });
        };
        at += 1;
        match (byte, quoted) {
            (b'"', true) if bytes.get(at) == Some(&b'"') => {
                field.push(b'"');
                at += 1;
            }
            (b'"', true) => quoted = false,
            (b'"', false) if field.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            (b',', false) => {
                done(&mut field)?;
                was_quoted = false;
            }
            (b'\n', false) => {
                if !(field.is_empty() && at <= 2) {
                    done(&mut field)?;
                }
                return Ok(at);
            }
            (b'\r', false) => {}
            (0, _) => return Err("a byte that is zero: is it a log?"),
            (byte, _) => field.push(byte),
        }
    }
}

/// Where behind `at` a line begins with a time.
fn resumed(bytes: &[u8], at: usize) -> Option<usize> {
    let mut from = at;
    while let Some(newline) = bytes[from..].iter().position(|byte| *byte == b'\n') {
        from += newline + 1;
        let head = &bytes[from..bytes.len().min(from + 40)];
        if std::str::from_utf8(head.get(..19).unwrap_or_default()).is_ok_and(|head| moment(head).is_some()) {
            return Some(from);
        }
    }
    None
}

/// Reads a jsonlog, an object a line.
pub fn json(bytes: &[u8], log: &mut Log) {
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(line) else {
            log.pass(number + 1, "this is no JSON: the line is torn, or the log is cut off here");
            continue;
        };
        let field = |name: &str| value.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        if moment(field("timestamp")).is_none() {
            log.pass(number + 1, "this is no entry of a jsonlog");
            continue;
        }
        entry(
            &Entry {
                line: number + 1,
                time: field("timestamp"),
                session: field("session_id"),
                database: field("dbname"),
                message: field("message"),
                detail: field("detail"),
            },
            field("error_severity"),
            log,
        );
    }
}

/// Takes what an entry says of a statement, if it says anything of one.
fn entry(entry: &Entry<'_>, severity: &str, log: &mut Log) {
    if severity == "ERROR" {
        return log.pass(entry.line, "statements that failed, which the log has without their times");
    }
    if severity != "LOG" || entry.session.is_empty() {
        return;
    }
    let (duration_ms, said) = match entry.message.strip_prefix("duration: ") {
        Some(rest) => match rest.split_once(" ms") {
            Some((number, said)) => (number.trim().parse().unwrap_or(0.0_f64), said.trim_start()),
            None => return,
        },
        None => (0.0_f64, entry.message),
    };
    let (text, parameters) = if let Some(text) = said.strip_prefix("statement: ") {
        (text.to_string(), "")
    } else if let Some(plan) = said.strip_prefix("plan:") {
        match explained(plan) {
            Some((text, parameters)) => (text, parameters),
            None => return log.pass(entry.line, "a plan without its statement"),
        }
    } else if let Some(rest) = said.strip_prefix("execute ") {
        if rest.starts_with("fetch from ") {
            return log.pass(entry.line, "rows fetched from a cursor");
        }
        let Some((_, text)) = rest.split_once(": ") else { return };
        (text.to_string(), entry.detail)
    } else {
        // Parse and bind of what is executed; a duration alone; anything else that a server says.
        return;
    };
    let Some(text) = filled(&text, parameters) else {
        return log.pass(entry.line, "statements whose parameters the log has not, or not whole");
    };
    let end = moment(entry.time).unwrap_or(0);
    let took = (duration_ms.clamp(0.0, 1e12) * 1e6) as u64;
    log.statements.push(Logged {
        at_ns: end.saturating_sub(took),
        session: entry.session.into(),
        database: entry.database.into(),
        text,
    });
}

/// The statement in auto_explain's words, and its parameters.
fn explained(plan: &str) -> Option<(String, &str)> {
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(plan) {
        let text = value.get("Query Text")?.as_str()?;
        return Some((text.to_string(), ""));
    }
    let rest = plan.trim_start().strip_prefix("Query Text: ")?;
    // The plan itself begins with the first line that has a cost; parameters stand between.
    let mut end = 0;
    let mut parameters = "";
    for line in rest.split_inclusive('\n') {
        if let Some(values) = line.strip_prefix("Query Parameters: ") {
            parameters = values.trim_end();
            break;
        }
        if line.contains("  (cost=") {
            break;
        }
        end += line.len();
    }
    let text = rest[..end].trim_end();
    (!text.is_empty()).then(|| (text.to_string(), parameters))
}

/// A statement with the values of its parameters in it.
fn filled(text: &str, detail: &str) -> Option<String> {
    let words = tokens(text, Dialect::Postgres)?;
    let is_parameter = |kind: Kind| kind == Kind::Parameter;
    if !words.iter().any(|word| is_parameter(word.kind)) {
        return Some(text.into());
    }
    let values = parameters(detail)?;
    let (mut whole, mut end) = (String::new(), 0);
    for word in words.iter().filter(|word| is_parameter(word.kind)) {
        whole.push_str(&text[end..word.begin]);
        whole.push_str(values.get(&word.text)?);
        end = word.end;
    }
    whole.push_str(&text[end..]);
    Some(whole)
}

/// `parameters: $1 = '42', $2 = NULL`. `None` if one was cut off.
fn parameters(detail: &str) -> Option<HashMap<String, String>> {
    let mut rest = detail.trim();
    if let Some((word, values)) = rest.split_once(": ")
        && word.eq_ignore_ascii_case("parameters")
    {
        rest = values;
    }
    let mut values = HashMap::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once(" = ")?;
        if !name.starts_with('$') {
            return None;
        }
        let (value, after) = match after.strip_prefix('\'') {
            None => ("NULL".to_string(), after.strip_prefix("NULL")?),
            Some(inner) => {
                let (mut value, mut letters) = (String::new(), inner.char_indices().peekable());
                let end = loop {
                    let (at, letter) = letters.next()?;
                    if letter != '\'' {
                        value.push(letter);
                    } else if letters.next_if(|(_, next)| *next == '\'').is_some() {
                        value.push('\'');
                    } else {
                        break at + 1;
                    }
                };
                (in_quotes(&value), &inner[end..])
            }
        };
        // Behind a value that was cut off stand three dots.
        values.insert(name.to_string(), value);
        rest = match after.strip_prefix(", ") {
            Some(rest) => rest,
            None if after.is_empty() => "",
            None => return None,
        };
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::super::LogKind;
    use super::*;

    fn line(time: &str, session: &str, message: &str, detail: &str) -> String {
        let quoted = |text: &str| match text.is_empty() {
            true => String::new(),
            false => format!("\"{}\"", text.replace('"', "\"\"")),
        };
        format!(
            "{time} UTC,\"me\",\"shop\",42,\"here:1\",{session},1,\"SELECT\",{time} UTC,3/4,0,LOG,00000,{},{},\
             ,,,,,,,\"app\",\"client backend\",,7\n",
            quoted(message),
            quoted(detail)
        )
    }

    fn texts(log: &Log) -> Vec<&str> {
        log.statements.iter().map(|logged| logged.text.as_str()).collect()
    }

    #[test]
    fn both_formats_say_when_a_statement_began_and_with_which_values() {
        let csv = [
            line("2026-01-01 00:00:01.500", "a.1", "duration: 500.000 ms  statement: SELECT\n  \"x\", ';'", ""),
            line("2026-01-01 00:00:01.600", "a.1", "duration: 0.1 ms  parse <unnamed>: SELECT $1", ""),
            line(
                "2026-01-01 00:00:02.000",
                "b.2",
                "duration: 1.0 ms  execute p_1: SELECT * FROM t WHERE a = $1 AND b = $12 AND c = '$1'",
                "parameters: $1 = 'it''s', $12 = NULL",
            ),
            line("2026-01-01 00:00:03.000", "b.2", "statement: BEGIN", ""),
            line("2026-01-01 00:00:03.000", "b.2", "duration: 7 ms", ""),
            line("2026-01-01 00:00:04.000", "b.2", "execute <unnamed>: SELECT $1", "parameters: $1 = 'abc...'x"),
            line(
                "2026-01-01 00:00:05.000",
                "b.2",
                "duration: 2 ms  plan:\nQuery Text: SELECT 1\n  FROM t;\nSeq Scan on t  (cost=0.00..1 rows=1 width=4)",
                "",
            ),
        ]
        .concat();
        let kind = LogKind::of(csv.as_bytes()).unwrap();
        assert_eq!(kind, LogKind::PostgresCsv);
        let log = kind.read(csv.as_bytes());
        assert_eq!(
            texts(&log),
            [
                "SELECT\n  \"x\", ';'",
                "SELECT * FROM t WHERE a = 'it''s' AND b = NULL AND c = '$1'",
                "BEGIN",
                "SELECT 1\n  FROM t;",
            ]
        );
        assert_eq!(log.statements[0].at_ns, moment("2026-01-01 00:00:01").unwrap());
        assert_eq!(
            (log.statements[1].session.as_str(), log.statements[1].database.as_str()),
            ("b.2", "shop")
        );
        let not_whole = "statements whose parameters the log has not, or not whole";
        // Entries of several lines count as such.
        assert_eq!(log.passed.get(not_whole), Some(&(1, 7)), "{:?}", log.passed);

        let json = "{\"timestamp\":\"2026-01-01 00:00:01.500 UTC\",\"dbname\":\"shop\",\"session_id\":\"a.1\",\
            \"error_severity\":\"LOG\",\"message\":\"duration: 500 ms  execute <unnamed>: SELECT $1\",\
            \"detail\":\"Parameters: $1 = '7'\"}\n{\"timestamp\": \"20";
        let kind = LogKind::of(json.as_bytes()).unwrap();
        let log = kind.read(json.as_bytes());
        assert_eq!((kind, texts(&log)), (LogKind::PostgresJson, vec!["SELECT '7'"]));
        assert!(
            log.passed.iter().all(|(why, at)| why.contains("cut off") && *at == (1, 2)),
            "{:?}",
            log.passed
        );
    }

    #[test]
    fn what_is_torn_is_counted_and_the_rest_is_read() {
        let good = |n: u32| {
            line(&format!("2026-01-01 00:00:0{n}.000"), "a.1", &format!("statement: SELECT {n}"), "")
        };
        let torn = &good(2)[..80];
        let text = [
            good(1).as_bytes(),
            torn.as_bytes(),
            b"\n",
            good(3).as_bytes(),
            b"2026-01-01 00:00:04.000 UTC,\"\xff\n",
            good(5).as_bytes(),
        ]
        .concat();
        let log = LogKind::PostgresCsv.read(&text);
        assert_eq!(texts(&log), ["SELECT 1", "SELECT 3", "SELECT 5"], "{:?}", log.passed);
        assert_eq!(log.passed.values().map(|(count, _)| count).sum::<u64>(), 2, "{:?}", log.passed);
        for bytes in [&b"\0\x01\x02"[..], b"", b"\"", b"hello\nworld\n"] {
            assert_eq!(LogKind::of(bytes), None);
            assert!(LogKind::PostgresCsv.read(bytes).statements.is_empty());
            assert!(LogKind::PostgresJson.read(bytes).statements.is_empty());
        }
    }
}
