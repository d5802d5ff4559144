//! Waiting for other nodes, as a write concern asks.

use crate::Shared;
use crate::command::Wrong;
use crate::state::State;
use bson::{Bson, Document, doc};
use parking_lot::MutexGuard;
use std::time::{Duration, Instant};

/// A write concern, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concern {
    /// How many nodes.
    pub members: usize,
    /// In their journals.
    pub journal: bool,
    /// For how long; zero is for ever.
    pub timeout: Duration,
}

/// More members than any set may have.
const TOO_MANY: i64 = 50;

/// The write concern of a command.
pub fn concern(state: &State, command: &Document) -> Result<Concern, Wrong> {
    let empty = Document::new();
    let given = command.get_document("writeConcern").unwrap_or(&empty);
    if state.settings.bugs.ignored_concern {
        return Ok(Concern { members: 1, journal: false, timeout: Duration::ZERO });
    }
    let number = |value: &Bson| value.as_i64().or(value.as_i32().map(i64::from));
    let mut journal = given.get_bool("j").unwrap_or(false);
    let members = match given.get("w") {
        None if state.settings.set_name.is_some() => {
            journal = given.get_bool("j").unwrap_or(state.settings.majority_journals);
            state.majority()
        }
        None => 1,
        Some(Bson::String(name)) if name == "majority" => {
            journal = given.get_bool("j").unwrap_or(state.settings.majority_journals);
            state.majority()
        }
        Some(Bson::String(name)) => {
            return Err((
                79,
                "UnknownReplWriteConcern",
                format!("No write concern mode named '{name}' found"),
            ));
        }
        Some(value) => match number(value) {
            Some(members @ 0..=TOO_MANY) => members as usize,
            _ => {
                let text = "w has to be a non-negative number and not greater than 50";
                return Err((9, "FailedToParse", text.into()));
            }
        },
    };
    if members > 1 && state.settings.set_name.is_none() {
        return Err((2, "BadValue", "cannot use 'w' > 1 when a host is not replicated".into()));
    }
    let timeout = given.get("wtimeout").and_then(number).unwrap_or(0).max(0) as u64;
    Ok(Concern { members, journal, timeout: Duration::from_millis(timeout) })
}

/// Waits until the nodes that `concern` asks for have entry `index` of `term`.
pub fn replicated(
    shared: &Shared,
    state: &mut MutexGuard<'_, State>,
    node: usize,
    index: u64,
    term: u64,
    concern: &Concern,
) -> Result<(), Document> {
    if concern.members > state.nodes.len() {
        return Err(doc! { "code": 100, "codeName": "UnsatisfiableWriteConcern",
        "errmsg": "Not enough data-bearing nodes" });
    }
    let alone = state.settings.bugs.early_acknowledgement;
    let members = if alone { concern.members.min(1) } else { concern.members };
    if members == 0 || members == 1 && !concern.journal {
        return Ok(());
    }
    let deadline = (!concern.timeout.is_zero()).then(|| Instant::now() + concern.timeout);
    let life = state.nodes[node].life;
    if concern.journal {
        state.waiting += 1;
    }
    let result = loop {
        let here = &state.nodes[node];
        let flushed = !concern.journal || here.journalled >= index;
        if here.life == life
            && here.primary
            && flushed
            && state.holders(index, term, concern.journal) >= members
        {
            break Ok(());
        }
        if here.life != life || !here.primary || here.term != term && members > 1 {
            break Err(doc! { "code": 11602, "codeName": "InterruptedDueToReplStateChange",
            "errmsg": "operation was interrupted" });
        }
        shared.urge();
        let next = Instant::now() + Duration::from_millis(20);
        shared.changed.wait_until(state, deadline.map_or(next, |deadline| deadline.min(next)));
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break Err(doc! { "code": 64, "codeName": "WriteConcernFailed",
            "errmsg": "waiting for replication timed out", "errInfo": { "wtimeout": true } });
        }
    };
    if concern.journal {
        state.waiting -= 1;
    }
    result
}

/// As [`replicated`]; what went wrong goes into the answer.
pub fn confirm(
    shared: &Shared,
    state: &mut MutexGuard<'_, State>,
    node: usize,
    index: u64,
    term: u64,
    concern: &Concern,
    answer: &mut Document,
) {
    if let Err(error) = replicated(shared, state, node, index, term, concern) {
        answer.insert("writeConcernError", error);
    }
}
