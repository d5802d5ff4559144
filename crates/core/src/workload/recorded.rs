//! Statements as sessions once sent them, each at its time. One statement is one operation.

use super::arrivals::seconds_as_ns;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Write as _;
use std::sync::Arc;

/// A statement that was sent once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStatement {
    /// Nanoseconds from the first one.
    pub due_ns: u64,
    /// Who sent it, counted from 0.
    pub session: u32,
    /// Whether it may change data.
    pub changes: bool,
    /// Its text, with its values.
    pub text: String,
}

/// Statements by the path of their file: a line each, with time in seconds, number of the session, `r` or
/// `w`, and the text as JSON has it. The times are those of `load.arrivals = "trace FILE"`, which passes over
/// what stands behind them. The core reads no files: it is empty until [`Recorded::read`] gives it the text,
/// and is then written with a digest, so that a changed file is another setting.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Where they are.
    pub path: String,
    digest: Option<String>,
    statements: Arc<[RecordedStatement]>,
    sessions: u32,
}

impl PartialEq for Recorded {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.digest) == (&other.path, &other.digest)
    }
}

impl Recorded {
    /// Whether its file was not read yet.
    pub fn is_unread(&self) -> bool {
        self.statements.is_empty()
    }

    /// How many sessions sent something.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Statement number `n`; `None` behind the last one.
    #[inline]
    pub fn statement(&self, n: u64) -> Option<&RecordedStatement> {
        self.statements.get(usize::try_from(n).ok()?)
    }

    /// Whether one of them may change data.
    pub fn changes(&self) -> bool {
        self.statements.iter().any(|statement| statement.changes)
    }

    /// Takes the text of its file.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        let mut statements: Vec<RecordedStatement> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("{}, line {}: {what}", self.path, number + 1);
            let statement = parsed(line).map_err(|what| wrong(&what))?;
            if statements.last().is_some_and(|last| last.due_ns > statement.due_ns) {
                return Err(wrong("times must not decrease"));
            }
            statements.push(statement);
        }
        if statements.is_empty() {
            return Err(format!("{}: there is no statement in it", self.path));
        }
        let digest = blake3::hash(text.as_bytes()).to_hex()[..16].to_string();
        if self.digest.as_ref().is_some_and(|wanted| *wanted != digest) {
            return Err(format!("{}: it is not the record that this plan was made with", self.path));
        }
        self.digest = Some(digest);
        self.sessions =
            statements.iter().map(|statement| statement.session).max().unwrap_or(0).saturating_add(1);
        if self.sessions > MOST_SESSIONS {
            return Err(format!(
                "{}: it has {} sessions, and {MOST_SESSIONS} is the most",
                self.path, self.sessions
            ));
        }
        self.statements = statements.into();
        Ok(())
    }
}

/// More connections than any server takes.
const MOST_SESSIONS: u32 = 100_000;

fn parsed(line: &str) -> Result<RecordedStatement, String> {
    const FORM: &str = "a statement is a time in seconds, a session's number, r or w, and a text in quotes: \
                        0.000125 3 r \"SELECT 1\"";
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().ok_or_else(|| FORM.to_string());
    let (time, session, kind, text) = (word()?, word()?, word()?, word()?);
    let changes = match kind {
        "r" => false,
        "w" => true,
        _ => return Err(FORM.into()),
    };
    Ok(RecordedStatement {
        due_ns: seconds_as_ns(time).ok_or(FORM)?,
        session: session.parse().map_err(|_| FORM)?,
        changes,
        text: serde_json::from_str(text).map_err(|_| FORM)?,
    })
}

/// Statements as their file has them.
pub fn print(statements: &[RecordedStatement]) -> String {
    let mut text = String::from(
        "# seconds, session, r(eads) or w(rites), statement; learned by `tipover learn --replay`\n",
    );
    for statement in statements {
        let (whole, part) = (statement.due_ns / 1_000_000_000, statement.due_ns % 1_000_000_000);
        let kind = if statement.changes { 'w' } else { 'r' };
        let said = serde_json::to_string(&statement.text).expect("a text is JSON");
        let _ = writeln!(text, "{whole}.{part:09} {} {kind} {said}", statement.session);
    }
    text
}

impl Serialize for Recorded {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.digest {
            Some(digest) => s.collect_str(&format_args!("{} blake3:{digest}", self.path)),
            None => s.serialize_str(&self.path),
        }
    }
}

impl<'de> Deserialize<'de> for Recorded {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let (path, digest) = match text.rsplit_once(" blake3:") {
            Some((path, digest)) => (path.to_string(), Some(digest.to_string())),
            None => (text, None),
        };
        Ok(Recorded { path, digest, statements: Arc::default(), sessions: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Arrivals;

    fn read(text: &str) -> Result<Recorded, String> {
        let mut recorded: Recorded = serde_json::from_str("\"shop.record\"").unwrap();
        recorded.read(text).map(|()| recorded)
    }

    #[test]
    fn a_record_is_read_as_it_was_printed_and_gives_the_times_of_arrival() {
        let statement = |due_ns, session, changes, text: &str| RecordedStatement {
            due_ns,
            session,
            changes,
            text: text.into(),
        };
        let all = [
            statement(0, 0, false, "SELECT 'a\n\"b\"'"),
            statement(1_500_000_000, 2, true, "UPDATE t SET a = 1"),
            statement(1_500_000_001, 0, false, "SELECT 2"),
        ];
        let text = print(&all);
        let recorded = read(&text).unwrap();
        assert_eq!((0..3).map(|n| recorded.statement(n).unwrap().clone()).collect::<Vec<_>>(), all);
        assert_eq!((recorded.sessions(), recorded.changes(), recorded.statement(3)), (3, true, None));
        let arrivals = "trace shop.record".parse::<Arrivals>().unwrap().with_trace(&text).unwrap();
        let due: Vec<u64> = arrivals.schedule(1).map(|due| due.as_nanos() as u64).collect();
        assert_eq!(due, [0, 1_500_000_000, 1_500_000_001]);
        // What was read belongs to the setting.
        let json = serde_json::to_string(&recorded).unwrap();
        let mut again: Recorded = serde_json::from_str(&json).unwrap();
        assert!(again == recorded && again.is_unread());
        assert!(again.read("0 0 r \"SELECT 3\"").unwrap_err().contains("not the record"));
        for (line, words) in [
            ("1 0 r \"x\"\n0.5 0 r \"y\"", "line 2: times must not decrease"),
            ("0 0 x \"y\"", "line 1: a statement is a time"),
            ("0 0 r y", "line 1: a statement is a time"),
            ("0 -1 r \"y\"", "line 1: a statement is a time"),
            ("# nothing", "no statement in it"),
            ("0 4000000000 r \"y\"", "is the most"),
        ] {
            assert!(read(line).unwrap_err().contains(words), "{line}");
        }
    }
}
