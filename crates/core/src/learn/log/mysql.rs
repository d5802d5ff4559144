//! The slow log (with `long_query_time = 0` it has everything) and the general log of MySQL and MariaDB.

use super::{Log, Logged, moment};

/// Lines with their numbers, decoded; what is no text is counted.
fn lines<'a>(bytes: &'a [u8], log: &mut Log) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        match std::str::from_utf8(line) {
            Ok(line) if !line.contains('\0') => found.push((number + 1, line.trim_end_matches('\r'))),
            _ => log.pass(number + 1, "bytes that are no text"),
        }
    }
    found
}

/// Reads a slow log.
pub fn slow(bytes: &[u8], log: &mut Log) {
    let mut entry = Slow::default();
    for (number, line) in lines(bytes, log) {
        if let Some(rest) = line.strip_prefix("# ") {
            if !entry.text.is_empty() {
                std::mem::take(&mut entry).end(log);
            }
            entry.header(number, rest);
        } else if is_banner(line) {
            std::mem::take(&mut entry).end(log);
        } else if entry.line > 0 {
            entry.said(line);
        } else if !line.trim().is_empty() {
            log.pass(number, "what stands before the first entry");
        }
    }
    entry.end(log);
}

/// What the server writes when it opens the log.
fn is_banner(line: &str) -> bool {
    line.starts_with("Tcp port: ")
        || line.starts_with("Time ") && line.contains("Id Command")
        || line.starts_with("Time\t\t")
        || line.contains(", Version: ") && line.contains("started with:")
}

/// An entry of a slow log.
#[derive(Default)]
struct Slow {
    /// Where it begins.
    line: usize,
    session: String,
    database: String,
    at_s: Option<f64>,
    text: String,
}

impl Slow {
    fn header(&mut self, number: usize, rest: &str) {
        self.line = if self.line == 0 { number } else { self.line };
        let word = |name: &str| {
            let (_, after) = rest.split_once(name)?;
            after.split_whitespace().next()
        };
        // MySQL writes `Id:  7`, MariaDB `Thread_id: 7  Schema: shop`.
        if let Some(id) = word("Thread_id:").or_else(|| word(" Id:")) {
            self.session = id.into();
        }
        if let Some(schema) = word("Schema:").filter(|schema| !schema.ends_with(':')) {
            self.database = schema.into();
        }
    }

    fn said(&mut self, line: &str) {
        if self.text.is_empty() {
            if let Some(time) = line.strip_prefix("SET timestamp=") {
                self.at_s = time.trim_end_matches(';').parse().ok();
                return;
            }
            let use_of = line.strip_prefix("use ").or_else(|| line.strip_prefix("USE "));
            if let Some(database) = use_of.filter(|_| line.ends_with(';')) {
                self.database = database.trim_matches(['`', ';']).into();
                return;
            }
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }

    fn end(self, log: &mut Log) {
        let text = self.text.trim().trim_end_matches(';');
        if self.line == 0 {
            return;
        }
        if let Some(command) = text.strip_prefix("# administrator command: ") {
            return log.pass(self.line, &format!("commands that are no statements: {command}"));
        }
        let Some(at) = self.at_s.filter(|at| at.is_finite() && (0.0..1e11).contains(at)) else {
            return log.pass(self.line, "an entry without its time");
        };
        if self.session.is_empty() {
            return log.pass(self.line, "an entry without its session");
        }
        if text.is_empty() {
            return log.pass(self.line, "an entry without a statement: the log is cut off here");
        }
        // SET timestamp has the moment at which the statement began, so its time is not needed.
        log.statements.push(Logged {
            at_ns: (at * 1e9) as u64,
            session: self.session.clone(),
            database: self.database.clone(),
            text: text.into(),
        });
    }
}

/// Whether a line is an entry of a general log: a time, a session, a command.
pub fn is_general(line: &str) -> bool {
    command(line).is_some()
}

/// Session, command and its argument. MySQL: `2026-01-01T00:00:00.000000Z\t    7 Query\tSELECT 1`; MariaDB:
/// `260101  0:00:00\t     7 Query\tSELECT 1`, without the time where it is that of the line before.
fn command(line: &str) -> Option<(&str, &str, &str, &str)> {
    let (time, rest) = line.split_once('\t')?;
    let (head, argument) = rest.trim_start_matches('\t').split_once('\t')?;
    let (session, command) = head.trim().split_once(' ')?;
    let known = [
        "Query",
        "Execute",
        "Prepare",
        "Connect",
        "Quit",
        "Init DB",
        "Close stmt",
        "Reset stmt",
        "Statistics",
    ];
    let is_time = time.is_empty() || moment(time).is_some() || old_moment(time).is_some();
    let is_session = !session.is_empty() && session.bytes().all(|byte| byte.is_ascii_digit());
    (is_time && is_session && known.contains(&command.trim())).then_some((
        time,
        session,
        command.trim(),
        argument,
    ))
}

/// `260101  0:00:00`.
fn old_moment(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(' ')?;
    if date.len() != 6 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let time = time.trim_start();
    let padded = if time.len() == 7 { format!("0{time}") } else { time.to_string() };
    moment(&format!("20{}-{}-{} {padded}", &date[..2], &date[2..4], &date[4..6]))
}

/// Reads a general log.
pub fn general(bytes: &[u8], log: &mut Log) {
    let mut at = None;
    // The statement that further lines belong to, and the database of each session.
    let mut is_open = false;
    let mut databases: std::collections::HashMap<String, String> = std::collections::HashMap::new();
    for (number, line) in lines(bytes, log) {
        let Some((time, session, word, argument)) = command(line) else {
            match log.statements.last_mut().filter(|_| is_open) {
                Some(last) if !is_banner(line) => {
                    last.text.push('\n');
                    last.text.push_str(line);
                }
                _ if is_banner(line) || line.trim().is_empty() => {}
                _ => log.pass(number, "this is no entry of a general log"),
            }
            continue;
        };
        at = moment(time).or_else(|| old_moment(time)).or(at);
        is_open = false;
        match word {
            "Query" | "Execute" => {
                let Some(at_ns) = at else {
                    log.pass(number, "an entry before the first time");
                    continue;
                };
                let database = databases.get(session).cloned().unwrap_or_default();
                is_open = true;
                log.statements.push(Logged {
                    at_ns,
                    session: session.into(),
                    database,
                    text: argument.into(),
                });
            }
            "Init DB" => drop(databases.insert(session.into(), argument.trim().into())),
            "Connect" => {
                // `me@here on shop using TCP/IP`
                let database = argument.split_once(" on ").and_then(|(_, on)| on.split(' ').next());
                drop(databases.insert(session.into(), database.unwrap_or_default().into()));
            }
            _ => {}
        }
    }
    log.statements.iter_mut().for_each(|logged| logged.text.truncate(logged.text.trim_end().len()));
}

#[cfg(test)]
mod tests {
    use super::super::LogKind;
    use super::*;

    #[test]
    fn a_slow_log_of_either_server_is_read() {
        let text = "/usr/sbin/mysqld, Version: 8.0.30 (MySQL). started with:\nTcp port: 3306  Unix socket: x\n\
            Time                 Id Command    Argument\n\
            # Time: 2026-01-01T00:00:01.250000Z\n# User@Host: me[me] @ here [127.0.0.1]  Id:     8\n\
            # Query_time: 0.25  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\nuse shop;\nSET timestamp=1767225601;\n\
            SELECT a\nFROM t;\n\
            # User@Host: me[me] @ here [127.0.0.1]\n# Thread_id: 9  Schema: shop  QC_hit: No\n\
            # Query_time: 0.000100  Lock_time: 0.0  Rows_sent: 0  Rows_examined: 0\n\
            SET timestamp=1767225602.5;\nUPDATE t SET a = 1;\n\
            # Thread_id: 9  Schema: shop  QC_hit: No\n# Query_time: 0.1\nSET timestamp=1767225603;\n# administrator command: Quit;\n\
            # Thread_id: 9  Schema: shop\n# Query_time: 0.1\n";
        let kind = LogKind::of(text.as_bytes()).unwrap();
        assert_eq!(kind, LogKind::MysqlSlow);
        let log = kind.read(text.as_bytes());
        let seen: Vec<(&str, &str, &str)> = log
            .statements
            .iter()
            .map(|l| (l.session.as_str(), l.database.as_str(), l.text.as_str()))
            .collect();
        assert_eq!(seen, [("8", "shop", "SELECT a\nFROM t"), ("9", "shop", "UPDATE t SET a = 1")]);
        assert_eq!(log.statements[1].at_ns, 1_767_225_602_500_000_000);
    }

    #[test]
    fn a_general_log_of_either_server_is_read() {
        let text = "mysqld, Version: 8.0 (x). started with:\nTcp port: 0  Unix socket: (null)\n\
            Time                 Id Command    Argument\n\
            2026-01-01T00:00:00.000000Z\t    7 Connect\tme@here on shop using TCP/IP\n\
            2026-01-01T00:00:00.500000Z\t    7 Query\tSELECT a\nFROM t\n\
            2026-01-01T00:00:01.000000Z\t    7 Quit\t\n\
            260101  0:00:02\t     8 Connect\tme@here on other using TCP/IP\n\t\t     8 Query\tSELECT 2\n\t\t     8 Init DB\tshop\n\
            \t\t     8 Execute\tSELECT 3\n";
        let kind = LogKind::of(text.as_bytes()).unwrap();
        assert_eq!(kind, LogKind::MysqlGeneral);
        let log = kind.read(text.as_bytes());
        let seen: Vec<(&str, &str, &str)> = log
            .statements
            .iter()
            .map(|l| (l.session.as_str(), l.database.as_str(), l.text.as_str()))
            .collect();
        assert_eq!(
            seen,
            [("7", "shop", "SELECT a\nFROM t"), ("8", "other", "SELECT 2"), ("8", "shop", "SELECT 3")]
        );
        let at = |n: usize| log.statements[n].at_ns - moment("2026-01-01 00:00:00").unwrap();
        assert_eq!((at(0), at(1)), (500_000_000, 2_000_000_000));
        assert!(log.passed.is_empty(), "{:?}", log.passed);
    }
}
