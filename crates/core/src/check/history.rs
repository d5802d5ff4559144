//! What the clients saw: an INTENT before every operation is sent, a RESULT when its answer is complete.
//!
//! The history is written outside the domain of the faults. An intent without a result is an operation whose
//! answer nobody knows: it stays [`Outcome::Unknown`].

use super::reading::LABORATORY;
use crate::op::{Failure, Op, Outcome};
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

/// What the target answered besides the outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Returned {
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Who asks; a client has at most one operation under way.
    pub client: u32,
    /// The client's own count of its operations, ascending.
    pub sequence: u64,
    /// When it should have been sent: in a closed loop, when it was.
    pub due: Tick,
    /// When it is sent, on the trial clock.
    pub at: Tick,
    /// What is asked.
    pub op: Op,
}

/// Written when the answer is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// As in the intent.
    pub client: u32,
    /// As in the intent.
    pub sequence: u64,
    /// On the trial clock.
    pub at: Tick,
    /// How often it was tried again.
    pub retries: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// What was answered.
    pub answer: Returned,
}

/// One record of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An operation is about to be sent.
    Intent(Intent),
    /// Its answer is complete.
    Result(Completion),
}

/// One operation with all that is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who asked.
    pub client: u32,
    /// The client's own count.
    pub sequence: u64,
    /// What was asked.
    pub op: Op,
    /// When it should have been sent: in a closed loop, when it was.
    pub due: Tick,
    /// When it was sent.
    pub began: Tick,
    /// When its answer was complete; `None` where no answer was recorded.
    pub ended: Option<Tick>,
    /// How often it was tried again.
    pub retries: u32,
    /// What became of it; [`Outcome::Unknown`] where no answer was recorded.
    pub outcome: Outcome,
    /// What was answered.
    pub answer: Returned,
}

impl Entry {
    /// An operation that was due when it was sent, and has no answer.
    pub fn sent(client: u32, sequence: u64, op: Op, began: Tick) -> Entry {
        Entry {
            client,
            sequence,
            op,
            due: began,
            began,
            ended: None,
            retries: 0,
            outcome: Outcome::Unknown(Failure::Unavailable),
            answer: Returned::Nothing,
        }
    }

    /// What it writes to a key of the ledger, if it does.
    pub fn written(&self) -> Option<(u64, Version)> {
        self.op.written().map(|(key, sequence)| (key, Version::of(key, sequence)))
    }

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
        let Intent { client, sequence, due, at, op } = intent;
        if last.insert(client, sequence).is_some_and(|before| before >= sequence) {
            self.problems.push(format!("client {client}: operation {sequence} is not after the one before"));
        }
        open.insert((client, sequence), self.entries.len());
        self.entries.push(Entry { due, ..Entry::sent(client, sequence, op, at) });
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
        (entry.ended, entry.retries) = (Some(result.at), result.retries);
        (entry.outcome, entry.answer) = (result.outcome, result.answer);
    }

    /// How many operations were acknowledged.
    pub fn done(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_done()).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::op::{Fields, Step};
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

    fn fields() -> impl Strategy<Value = Fields> {
        prop_oneof![Just(Fields::All), Just(Fields::EachByName), any::<u16>().prop_map(Fields::One)]
    }

    fn op() -> impl Strategy<Value = Op> {
        let numbers = || (any::<u64>(), any::<u32>(), fields());
        prop_oneof![
            (any::<u64>(), fields(), any::<u64>()).prop_map(|(record, fields, version)| Op::Update {
                record,
                fields,
                version
            }),
            any::<u64>().prop_map(|record| Op::Insert { record }),
            (any::<u64>(), fields()).prop_map(|(record, fields)| Op::Read { record, fields }),
            (any::<u64>(), 0..9u64, 0..9u64, any::<i64>()).prop_map(|(id, from, to, amount)| Op::Transfer {
                id,
                from,
                to,
                amount
            }),
            Just(Op::ReadBalances),
            proptest::collection::vec(step(), 0..4).prop_map(|steps| Op::Transaction { steps: steps.into() }),
            numbers().prop_map(|(first, count, _)| Op::InsertMany { first, count }),
            numbers().prop_map(|(first, count, fields)| Op::Scan { first, count, fields }),
            (any::<u64>(), fields(), fields(), any::<u64>()).prop_map(|(record, read, write, version)| {
                Op::ReadModifyWrite { record, read, write, version }
            }),
            numbers().prop_map(|(offset, length, _)| Op::ReadAt { offset, length }),
            numbers().prop_map(|(offset, length, _)| Op::WriteAt { offset, length }),
            any::<bool>().prop_map(|data_only| Op::Flush { data_only }),
        ]
    }

    fn answer() -> impl Strategy<Value = Returned> {
        let version = (any::<u64>(), any::<u64>())
            .prop_map(|(key_sequence, payload)| Version { key_sequence, payload });
        let list = proptest::option::of(proptest::collection::vec(any::<u64>(), 0..5));
        prop_oneof![
            Just(Returned::Nothing),
            proptest::option::of(version).prop_map(Returned::Value),
            proptest::collection::vec((any::<u64>(), proptest::option::of(any::<i64>())), 0..5)
                .prop_map(Returned::Balances),
            proptest::collection::vec(list, 0..4).prop_map(Returned::Lists),
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
            (any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>(), op()).prop_map(
                |(client, sequence, due, at, op)| {
                    Event::Intent(Intent { client, sequence, due: Tick(due), at: Tick(at), op })
                }
            ),
            (any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>(), outcome, answer()).prop_map(
                |(client, sequence, at, retries, outcome, answer)| {
                    Event::Result(Completion { client, sequence, at: Tick(at), retries, outcome, answer })
                }
            ),
        ]
    }

    #[test]
    fn an_intent_without_a_result_stays_unknown_and_misfits_are_problems() {
        let op = Op::Read { record: 1, fields: Fields::All };
        let intent = |sequence, at| {
            Event::Intent(Intent { client: 0, sequence, due: Tick(at), at: Tick(at), op: op.clone() })
        };
        let done = |sequence, at| {
            Event::Result(Completion {
                client: 0,
                sequence,
                at: Tick(at),
                retries: 0,
                outcome: Outcome::Done,
                answer: Returned::Value(None),
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
