//! Logs of servers: what was sent when, by which session. A log is somebody's bytes: what cannot be read is
//! counted, with the first line where it was, and never guessed.

mod mongodb;
mod mysql;
mod postgres;

use super::statement::{Statement, Verb};
use super::token::Dialect;
use crate::experiment::TargetKind;
use crate::workload::recorded::RecordedStatement;
use std::collections::{BTreeMap, HashMap};

/// A statement in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Nanoseconds since 1970, by the log's own clock and zone, at which it was begun.
    pub at_ns: u64,
    /// Who sent it.
    pub session: String,
    /// To which database; empty where the log does not say.
    pub database: String,
    /// What, with its values.
    pub text: String,
}

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// Statements in the order of the log.
    pub statements: Vec<Logged>,
    /// What was passed over: why, how often, and the first line.
    pub passed: BTreeMap<String, (u64, usize)>,
}

impl Log {
    fn pass(&mut self, line: usize, why: &str) {
        self.passed.entry(why.into()).or_insert((0, line)).0 += 1;
    }
}

/// A kind of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// PostgreSQL's `log_destination = 'csvlog'`.
    PostgresCsv,
    /// PostgreSQL's `jsonlog`.
    PostgresJson,
    /// The slow log of MySQL and MariaDB.
    MysqlSlow,
    /// Their general log.
    MysqlGeneral,
    /// MongoDB's structured log, or what its profiler keeps.
    Mongodb,
}

impl LogKind {
    /// Which one a text is, by its first lines.
    pub fn of(bytes: &[u8]) -> Option<LogKind> {
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1 << 16)]);
        let first = head.lines().find(|line| !line.trim().is_empty())?;
        if first.starts_with(['{', '[']) {
            let of_postgres = head.contains("\"session_id\"").then_some(LogKind::PostgresJson);
            return of_postgres.or_else(|| mongodb::is_one(&head).then_some(LogKind::Mongodb));
        }
        if head.lines().any(|line| line.starts_with("# Query_time:")) {
            return Some(LogKind::MysqlSlow);
        }
        if head.lines().any(mysql::is_general) {
            return Some(LogKind::MysqlGeneral);
        }
        postgres::is_csv(first).then_some(LogKind::PostgresCsv)
    }

    /// Which servers write it.
    pub fn target(self) -> TargetKind {
        match self {
            LogKind::PostgresCsv | LogKind::PostgresJson => TargetKind::Postgres,
            LogKind::MysqlSlow | LogKind::MysqlGeneral => TargetKind::Mysql,
            LogKind::Mongodb => TargetKind::Mongodb,
        }
    }

    /// What a statement in it does.
    pub(super) fn verb(self, text: &str) -> Verb {
        let dialect = match self {
            LogKind::PostgresCsv | LogKind::PostgresJson => Dialect::Postgres,
            LogKind::MysqlSlow | LogKind::MysqlGeneral => Dialect::Mysql,
            LogKind::Mongodb => return mongodb::verb(text),
        };
        let several = Verb::Utility("several statements, or none".into());
        Statement::read(text, dialect).map_or(several, |statement| statement.verb)
    }

    /// Reads a log.
    pub fn read(self, bytes: &[u8]) -> Log {
        let mut log = Log::default();
        match self {
            LogKind::PostgresCsv => postgres::csv(bytes, &mut log),
            LogKind::PostgresJson => postgres::json(bytes, &mut log),
            LogKind::MysqlSlow => mysql::slow(bytes, &mut log),
            LogKind::MysqlGeneral => mysql::general(bytes, &mut log),
            LogKind::Mongodb => mongodb::read(bytes, &mut log),
        }
        log
    }
}

/// What becomes of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Replay {
    /// The statements that are sent again.
    pub statements: Vec<RecordedStatement>,
    /// How many sessions send them.
    pub sessions: u32,
    /// What is left out or changed, as sentences.
    pub remarks: Vec<String>,
}

/// A step of the clock that nobody's scheduling explains.
const STEP_NS: u64 = 1_000_000_000;

/// Puts the statements of a log into one order of time, with those that change data only on a copy; times are
/// divided by `speed`.
///
/// # Errors
/// Nothing is left.
pub fn replay(log: &Log, kind: LogKind, on_copy: bool, speed: f64) -> Result<Replay, String> {
    let mut replay = Replay::default();
    for (why, (count, line)) in &log.passed {
        replay.remarks.push(format!("{count} passed over, the first in line {line}: {why}"));
    }
    let mut databases: BTreeMap<&str, u64> = BTreeMap::new();
    log.statements.iter().for_each(|statement| *databases.entry(&statement.database).or_default() += 1);
    let named = databases.iter().filter(|(name, _)| !name.is_empty()).max_by_key(|(_, count)| **count);
    let most = named.map(|(name, _)| *name);
    let spread = spread(&log.statements);
    if spread.is_some() {
        let words =
            "the log has whole seconds only: what began in one is spread evenly over it, in the log's order";
        replay.remarks.push(words.into());
    }
    let (mut others, mut changes, mut utilities, mut steps) = (0u64, 0u64, BTreeMap::new(), 0u64);
    let mut kept: Vec<(u64, &str, bool, &str)> = Vec::new();
    let mut last_of: HashMap<&str, u64> = HashMap::new();
    for (number, logged) in log.statements.iter().enumerate() {
        if most.is_some_and(|most| !logged.database.is_empty() && logged.database != most) {
            others += 1;
            continue;
        }
        let is_change = match kind.verb(&logged.text) {
            Verb::Read | Verb::Begin | Verb::Commit | Verb::Rollback => false,
            Verb::Change if on_copy => true,
            Verb::Change => {
                changes += 1;
                continue;
            }
            Verb::Utility(word) => {
                *utilities.entry(word).or_insert(0u64) += 1;
                continue;
            }
        };
        // What a session sent later was not sent before: a clock that was set back stands still.
        let last = last_of.entry(&logged.session).or_insert(0);
        let at_ns = spread.as_ref().map_or(logged.at_ns, |spread| spread[number]);
        steps += u64::from(last.saturating_sub(at_ns) > STEP_NS);
        *last = at_ns.max(*last);
        kept.push((*last, &logged.session, is_change, &logged.text));
    }
    if let (true, Some(most)) = (others > 0, most) {
        replay.remarks.push(format!("{others} statements of other databases than {most} are left out"));
    }
    if changes > 0 {
        replay.remarks.push(format!(
            "{changes} statements that change data are left out; --on-copy if the target is a copy"
        ));
    }
    for (word, count) in utilities {
        replay
            .remarks
            .push(format!("{count} statements about the server or the session are left out: {word}"));
    }
    if steps > 0 {
        replay
            .remarks
            .push(format!("{steps} times the log's clock stepped back: there a session's time stands still"));
    }
    kept.sort_by_key(|(at, ..)| *at);
    let Some((first, ..)) = kept.first().copied() else {
        return Err(match replay.remarks.is_empty() {
            true => "there is no statement in it: was everything logged (docs/learn.md)?".into(),
            false => format!("no statement is left: {}", replay.remarks.join("; ")),
        });
    };
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    for (at, session, changes, text) in kept {
        let next = numbers.len() as u32;
        let session = *numbers.entry(session).or_insert(next);
        let due_ns = ((at - first) as f64 / speed) as u64;
        replay.statements.push(RecordedStatement { due_ns, session, changes, text: text.into() });
    }
    replay.sessions = numbers.len() as u32;
    Ok(replay)
}

/// Times within their seconds, of a log that has no finer ones.
fn spread(statements: &[Logged]) -> Option<Vec<u64>> {
    const SECOND_NS: u64 = 1_000_000_000;
    if statements.len() < 2 || statements.iter().any(|logged| logged.at_ns % SECOND_NS != 0) {
        return None;
    }
    let of_one = statements.chunk_by(|a, b| a.at_ns == b.at_ns);
    let times = |all: &[Logged]| {
        let (at_ns, count) = (all[0].at_ns, all.len() as u64);
        (0..count).map(move |n| at_ns.saturating_add(SECOND_NS / count.max(1) * n)).collect::<Vec<u64>>()
    };
    Some(of_one.flat_map(times).collect())
}

/// `2026-11-24 22:50:34.123`, or with a T: nanoseconds since 1970 in whatever zone that was.
fn moment(text: &str) -> Option<u64> {
    let part = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let bytes = text.as_bytes();
    let signs = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if signs.iter().any(|(at, sign)| bytes.get(*at) != Some(sign))
        || !matches!(bytes.get(10), Some(b' ' | b'T'))
    {
        return None;
    }
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
    let sane = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !sane || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let fraction = match text.get(19..)?.strip_prefix('.') {
        None => 0,
        Some(rest) => {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).take(9).collect();
            digits.parse::<u64>().ok()? * 10u64.pow(9 - digits.len() as u32)
        }
    };
    // Days since 1970 by the civil calendar, with years that begin in March.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = u64::try_from(days * 86_400 + hour * 3_600 + minute * 60 + second).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// A value in a log as a statement can have it.
fn in_quotes(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(at_ms: u64, session: &str, database: &str, text: &str) -> Logged {
        Logged {
            at_ns: at_ms * 1_000_000,
            session: session.into(),
            database: database.into(),
            text: text.into(),
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment("1970-01-01 00:00:00.5 UTC"), Some(500_000_000));
        assert_eq!(moment("2000-02-29T12:00:00"), Some(951_825_600_000_000_000));
        assert_eq!(moment("2026-11-24 22:50:34.123456789123"), Some(1_795_560_634_123_456_789));
        for wrong in
            ["2026-13-01 00:00:00", "2026-01-01 00:00", "", "2026-01-01 25:00:00", "ü26-01-01 00:00:00"]
        {
            assert_eq!(moment(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sessions_stay_apart_and_in_order_and_times_are_divided() {
        let log = Log {
            statements: vec![
                logged(1_000, "b", "shop", "BEGIN"),
                logged(900, "a", "shop", "SELECT 1"),
                logged(1_100, "b", "shop", "UPDATE t SET a = 1"),
                // The clock was set back by two seconds.
                logged(3_000, "a", "shop", "SELECT 2"),
                logged(1_000, "a", "shop", "SELECT 3"),
                logged(1_150, "c", "other", "SELECT 4"),
                logged(1_200, "b", "shop", "COMMIT"),
                logged(1_300, "b", "shop", "SET x = 1"),
            ],
            passed: [("torn".to_string(), (2, 7))].into(),
        };
        let replayed = replay(&log, LogKind::PostgresCsv, true, 10.0).unwrap();
        let seen: Vec<(u64, u32, bool, &str)> = replayed
            .statements
            .iter()
            .map(|s| (s.due_ns / 1_000_000, s.session, s.changes, s.text.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 0, false, "SELECT 1"),
                (10, 1, false, "BEGIN"),
                (20, 1, true, "UPDATE t SET a = 1"),
                (30, 1, false, "COMMIT"),
                (210, 0, false, "SELECT 2"),
                (210, 0, false, "SELECT 3"),
            ]
        );
        let said = replayed.remarks.join("\n");
        for words in [
            "2 passed over, the first in line 7: torn",
            "1 statements of other databases than shop",
            "left out: SET",
            "1 times the log's clock stepped back",
        ] {
            assert!(said.contains(words), "{said}");
        }
        let reads = replay(&log, LogKind::PostgresCsv, false, 1.0).unwrap();
        assert!(reads.statements.iter().all(|statement| !statement.changes));
        assert!(reads.remarks.iter().any(|remark| remark.contains("1 statements that change data")));
        let whole = Log {
            statements: (0..4).map(|n| logged(1_000 + n / 3 * 1_000, "a", "", "SELECT 1")).collect(),
            ..Log::default()
        };
        let spread = replay(&whole, LogKind::MysqlSlow, false, 1.0).unwrap();
        let due: Vec<u64> = spread.statements.iter().map(|statement| statement.due_ns / 1_000_000).collect();
        assert_eq!((due.as_slice(), spread.remarks.len()), (&[0, 333, 666, 1_000][..], 1));
        let only = Log { statements: vec![logged(1, "a", "", "DELETE FROM t")], ..Log::default() };
        assert!(replay(&only, LogKind::PostgresCsv, false, 1.0).unwrap_err().contains("--on-copy"));
        assert!(
            replay(&Log::default(), LogKind::PostgresCsv, false, 1.0)
                .unwrap_err()
                .contains("no statement in it")
        );
    }
}
