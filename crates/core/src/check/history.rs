//! What the clients saw: an INTENT before every operation is sent, a RESULT when its answer is complete.
//!
//! The history is written outside the domain of the faults. An intent without a result is an operation whose
//! answer nobody knows: it stays [`Outcome::Unknown`].

use super::reading::LABORATORY;
use crate::op::{Failure, Outcome};
use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What is found under a key: which write, and what it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The write's number among the writes of its key, from 1.
    pub key_sequence: u64,
    /// A hash of the bytes that were found.
    pub payload: u64,
}

/// What is asked of the target, as far as a checker needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Insert a key (`key_sequence` 1) or replace its value. All writes of a key come from one client.
    Write {
        /// Which key.
        key: u64,
        /// Number of this write among the writes of the key, from 1.
        key_sequence: u64,
        /// A hash of the bytes.
        payload: u64,
    },
    /// Read one key; answered by [`Answer::Value`].
    Read {
        /// Which key.
        key: u64,
    },
    /// Move money; its id is unique over the run, and stays the same when the transfer is tried again.
    Transfer {
        /// Which transfer.
        id: u64,
        /// The account that pays.
        from: u64,
        /// The account that is paid.
        to: u64,
        /// How much.
        amount: i64,
    },
    /// Read all balances in one snapshot; answered by [`Answer::Balances`].
    ReadBalances,
    /// Several steps that must happen as one; answered by [`Answer::Lists`].
    Transaction {
        /// In the order of the client.
        steps: Vec<Step>,
    },
}

/// One step of a transaction over lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Append a value to the list under a key; values are unique per key.
    Append {
        /// Which list.
        key: u64,
        /// What is appended.
        value: u64,
    },
    /// Read the list under a key.
    Read {
        /// Which list.
        key: u64,
    },
}

/// What the target answered besides the outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing more to say.
    #[default]
    Nothing,
    /// The value of the key that was read; `None` where it does not exist.
    Value(Option<Version>),
    /// Account and balance; a balance of `None` is one that was there and null.
    Balances(Vec<(u64, Option<i64>)>),
    /// One entry per step: the list for a read, `None` for an append.
    Lists(Vec<Option<Vec<u64>>>),
}

/// Written before the operation is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Who asks; a client has at most one operation under way.
    pub client: u32,
    /// The client's own count of its operations, ascending.
    pub sequence: u64,
    /// On the trial clock.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// What is asked.
    #[serde(flatten)]
    pub operation: Operation,
}

/// Written when the answer is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// As in the intent.
    pub client: u32,
    /// As in the intent.
    pub sequence: u64,
    /// On the trial clock.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// What became of it.
    #[serde(with = "OutcomeForm")]
    pub outcome: Outcome,
    /// What was answered.
    #[serde(default)]
    pub answer: Answer,
}

/// `"done"`, `{"refused": "conflict"}`, `{"unknown": "timeout"}`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome", rename_all = "snake_case")]
enum OutcomeForm {
    Done,
    Refused(Failure),
    Unknown(Failure),
}

/// One record of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An operation is about to be sent.
    Intent(Intent),
    /// Its answer is complete.
    Result(Completion),
}

impl Event {
    /// One line of JSON, without the end of line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an event has string keys only")
    }
}

/// A line that is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct JsonError {
    /// Counted from 1.
    pub line: usize,
    /// What the parser says.
    pub reason: String,
}

/// Reads JSON lines; empty lines are skipped.
///
/// # Errors
/// At the first line that is not an event, with its number.
pub fn from_json_lines(text: &str) -> Result<Vec<Event>, JsonError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line)
                .map_err(|error| JsonError { line: index + 1, reason: error.to_string() })
        })
        .collect()
}

/// One operation with all that is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who asked.
    pub client: u32,
    /// The client's own count.
    pub sequence: u64,
    /// What was asked.
    pub operation: Operation,
    /// When it was sent.
    pub began: Tick,
    /// When its answer was complete; `None` where no answer was recorded.
    pub ended: Option<Tick>,
    /// What became of it; [`Outcome::Unknown`] where no answer was recorded.
    pub outcome: Outcome,
    /// What was answered.
    pub answer: Answer,
}

impl Entry {
    /// Whether it was acknowledged.
    pub fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }

    /// When it was acknowledged; `None` unless it is done.
    pub fn acknowledged(&self) -> Option<Tick> {
        if self.is_done() { self.ended } else { None }
    }

    /// "client 3, operation 17"; "final reading 2".
    pub fn name(&self) -> String {
        match self.client {
            LABORATORY => format!("final reading {}", self.sequence),
            client => format!("client {client}, operation {}", self.sequence),
        }
    }
}

/// Intents and results, put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// In the order of the intents.
    pub entries: Vec<Entry>,
    /// Where the history contradicts itself; no verdict of Valid can rest on such a one.
    pub problems: Vec<String>,
    /// Whether its writer was killed, so that intents and results may follow that nobody kept. What is found
    /// and was never intended is then no phantom.
    pub is_cut_short: bool,
}

impl History {
    /// Puts results to their intents. What does not fit becomes a problem, never a silent loss.
    pub fn assemble(events: impl IntoIterator<Item = Event>) -> Self {
        let mut history = History::default();
        let mut open: HashMap<(u32, u64), usize> = HashMap::new();
        let mut last: HashMap<u32, u64> = HashMap::new();
        for event in events {
            match event {
                Event::Intent(intent) => history.intend(intent, &mut open, &mut last),
                Event::Result(result) => history.complete(result, &mut open),
            }
        }
        history
    }

    fn intend(
        &mut self,
        intent: Intent,
        open: &mut HashMap<(u32, u64), usize>,
        last: &mut HashMap<u32, u64>,
    ) {
        let Intent { client, sequence, at, operation } = intent;
        if last.insert(client, sequence).is_some_and(|before| before >= sequence) {
            self.problems.push(format!("client {client}: operation {sequence} is not after the one before"));
        }
        open.insert((client, sequence), self.entries.len());
        self.entries.push(Entry {
            client,
            sequence,
            operation,
            began: at,
            ended: None,
            outcome: Outcome::Unknown(Failure::Unavailable),
            answer: Answer::Nothing,
        });
    }

    fn complete(&mut self, result: Completion, open: &mut HashMap<(u32, u64), usize>) {
        let Some(index) = open.remove(&(result.client, result.sequence)) else {
            let Completion { client, sequence, .. } = result;
            self.problems
                .push(format!("client {client}: a result of operation {sequence} without an intent"));
            return;
        };
        let entry = &mut self.entries[index];
        if result.at < entry.began {
            self.problems.push(format!("{}: ended before it began", entry.name()));
        }
        (entry.ended, entry.outcome, entry.answer) = (Some(result.at), result.outcome, result.answer);
    }

    /// How many operations were acknowledged.
    pub fn done(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_done()).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure() -> impl Strategy<Value = Failure> {
        prop_oneof![Just(Failure::Conflict), Just(Failure::Timeout), Just(Failure::Other)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..9u64, any::<u64>()).prop_map(|(key, value)| Step::Append { key, value }),
            any::<u64>().prop_map(|key| Step::Read { key }),
        ]
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), any::<u64>())
                .prop_map(|(key, key_sequence, payload)| { Operation::Write { key, key_sequence, payload } }),
            any::<u64>().prop_map(|key| Operation::Read { key }),
            (any::<u64>(), 0..9u64, 0..9u64, any::<i64>())
                .prop_map(|(id, from, to, amount)| Operation::Transfer { id, from, to, amount }),
            Just(Operation::ReadBalances),
            proptest::collection::vec(step(), 0..4).prop_map(|steps| Operation::Transaction { steps }),
        ]
    }

    fn answer() -> impl Strategy<Value = Answer> {
        let version = (any::<u64>(), any::<u64>())
            .prop_map(|(key_sequence, payload)| Version { key_sequence, payload });
        let list = proptest::option::of(proptest::collection::vec(any::<u64>(), 0..5));
        prop_oneof![
            Just(Answer::Nothing),
            proptest::option::of(version).prop_map(Answer::Value),
            proptest::collection::vec((any::<u64>(), proptest::option::of(any::<i64>())), 0..5)
                .prop_map(Answer::Balances),
            proptest::collection::vec(list, 0..4).prop_map(Answer::Lists),
        ]
    }

    /// Any event at all.
    pub(crate) fn event() -> impl Strategy<Value = Event> {
        let outcome = prop_oneof![
            Just(Outcome::Done),
            failure().prop_map(Outcome::Refused),
            failure().prop_map(Outcome::Unknown)
        ];
        prop_oneof![
            (any::<u32>(), any::<u64>(), any::<u64>(), operation()).prop_map(
                |(client, sequence, at, operation)| {
                    Event::Intent(Intent { client, sequence, at: Tick(at), operation })
                }
            ),
            (any::<u32>(), any::<u64>(), any::<u64>(), outcome, answer()).prop_map(
                |(client, sequence, at, outcome, answer)| {
                    Event::Result(Completion { client, sequence, at: Tick(at), outcome, answer })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn lines_of_json_read_back(events in proptest::collection::vec(event(), 0..20)) {
            let text: String = events.iter().map(|event| event.to_json() + "\n").collect();
            prop_assert_eq!(from_json_lines(&text).unwrap(), events);
        }

        #[test]
        fn no_line_panics(text in "\\PC*") {
            let _ = from_json_lines(&text);
        }
    }

    #[test]
    fn a_line_reads_like_a_sentence() {
        let intent = Event::Intent(Intent {
            client: 3,
            sequence: 17,
            at: Tick(5_000_000),
            operation: Operation::Transfer { id: 9, from: 1, to: 2, amount: 50 },
        });
        let line = r#"{"event":"intent","client":3,"sequence":17,"at_ns":5000000,"op":"transfer","id":9,"from":1,"to":2,"amount":50}"#;
        assert_eq!(intent.to_json(), line);
        let result =
            r#"{"event":"result","client":3,"sequence":17,"at_ns":6,"outcome":{"unknown":"timeout"}}"#;
        let events = from_json_lines(&format!("{line}\n\n{result}\n")).unwrap();
        assert_eq!(events.len(), 2);
        let error = from_json_lines(&format!("{line}\n{{\"event\":\"intend\"}}")).unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.reason.contains("intend"), "{error}");
    }

    #[test]
    fn an_intent_without_a_result_stays_unknown_and_misfits_are_problems() {
        let read = Operation::Read { key: 1 };
        let intent = |sequence, at| {
            Event::Intent(Intent { client: 0, sequence, at: Tick(at), operation: read.clone() })
        };
        let done = |sequence, at| {
            Event::Result(Completion {
                client: 0,
                sequence,
                at: Tick(at),
                outcome: Outcome::Done,
                answer: Answer::Value(None),
            })
        };
        let history = History::assemble([intent(1, 10), done(1, 20), intent(2, 30)]);
        assert_eq!(history.problems, Vec::<String>::new());
        assert_eq!(history.entries[0].acknowledged(), Some(Tick(20)));
        assert_eq!(history.entries[1].outcome, Outcome::Unknown(Failure::Unavailable));
        assert_eq!(history.entries[1].ended, None);
        // A result twice, a result of nothing, a number again, an end before the beginning.
        assert_eq!(History::assemble([intent(1, 10), done(1, 20), done(1, 21)]).problems.len(), 1);
        assert_eq!(History::assemble([done(4, 20)]).problems.len(), 1);
        assert_eq!(History::assemble([intent(2, 1), intent(2, 2)]).problems.len(), 1);
        assert_eq!(History::assemble([intent(1, 10), done(1, 9)]).problems.len(), 1);
    }
}
