//! Which isolation was really given? Transactions append to lists and read them; what they read says in which
//! order they must have happened, and a cycle in that order is a proof against every model that forbids it.
//!
//! Adya 1999 names the cycles: G0 (write-write only), G1c (write-write and write-read), G-single (exactly one
//! anti-dependency), G2-item (more). Snapshot isolation forbids cycles without two anti-dependencies in a row
//! (Cerone and Gotsman 2018). Lists make the order of versions visible (Kingsbury and Alvaro 2020, Elle).
//! Whether a model is broken is decided exactly, by strongly connected components; only which cycle is shown
//! as evidence is a choice.

mod fates;
mod graph;
mod infer;

use super::history::{Entry, Returned};
use super::ledger::seconds;
use super::reading::{LABORATORY, reads_of_lists};
use super::{Checker, Finding, Observation, Verdict};
use crate::op::Step;
use graph::{Kind, READ_WRITE, SESSION, Step as Edge, THROUGH, TIME, WRITE_READ, WRITE_WRITE, Walks};
use infer::{Dependencies, Direct, infer, short};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Models of isolation, from none to the strongest. On lists there are no predicates, so repeatable read
/// (PL-2.99) is the same as serializable here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Not even the weakest.
    None,
    /// PL-1: no G0.
    ReadUncommitted,
    /// PL-2: no G1a, G1b, G1c.
    ReadCommitted,
    /// PL-SI: no cycle without two anti-dependencies in a row.
    SnapshotIsolation,
    /// PL-3 for items: no cycle of dependencies.
    Serializable,
    /// And each client's transactions in the client's order.
    StrongSessionSerializable,
    /// And all in the order of real time (PL-SS).
    StrictSerializable,
}

impl Model {
    /// As people write it.
    pub fn words(self) -> &'static str {
        match self {
            Model::None => "none",
            Model::ReadUncommitted => "read uncommitted",
            Model::ReadCommitted => "read committed",
            Model::SnapshotIsolation => "snapshot isolation",
            Model::Serializable => "serializable",
            Model::StrongSessionSerializable => "strong session serializable",
            Model::StrictSerializable => "strict serializable",
        }
    }
}

const DATA: Kind = WRITE_WRITE | WRITE_READ | READ_WRITE | THROUGH;

/// Each model, the walks in which it forbids cycles, and the kind that its own cycles have.
const LEVELS: [(Model, Walks, Kind); 6] = [
    (Model::ReadUncommitted, Walks { kinds: WRITE_WRITE | THROUGH, apart: false }, WRITE_WRITE),
    (Model::ReadCommitted, Walks { kinds: WRITE_WRITE | WRITE_READ | THROUGH, apart: false }, WRITE_READ),
    (Model::SnapshotIsolation, Walks { kinds: DATA, apart: true }, READ_WRITE),
    (Model::Serializable, Walks { kinds: DATA, apart: false }, READ_WRITE),
    (Model::StrongSessionSerializable, Walks { kinds: DATA | SESSION, apart: false }, SESSION),
    (Model::StrictSerializable, Walks { kinds: DATA | SESSION | TIME, apart: false }, TIME),
];

const TRANSACTIONS: &str = "transactions";
const UNSEEN: &str = "appends seen by nobody";
const NOT_UNIQUE: &str = "values appended twice";
/// What is counted, and breaks no model.
const NO_ANOMALY: [&str; 3] = [TRANSACTIONS, UNSEEN, NOT_UNIQUE];

/// How many cycles are compared to show a short one.
const TRIES: usize = 200;
/// Steps of a cycle that are told.
const STEPS_TOLD: usize = 6;

/// Checks transactions over lists against the model that the database claims.
#[derive(Debug, Clone)]
pub struct Isolation {
    /// What is claimed.
    pub claimed: Model,
}

impl Isolation {
    /// The strongest model that holds, with everything that breaks the stronger ones.
    pub fn strongest(&self, entries: &[Entry]) -> (Model, Finding) {
        let mut finding = Finding::new(self.name());
        let found = infer(entries);
        let mut strongest = Model::StrictSerializable;
        for (kind, entry, text) in &found.direct {
            let (name, left) = direct(*kind);
            strongest = strongest.min(left);
            finding.count(name);
            finding.show(name, || format!("{} {text}", entry.name()));
        }
        for (at, (model, walks, must)) in LEVELS.into_iter().enumerate() {
            let is_broken = found.graph.components(walks).iter().any(|component| *component != u32::MAX);
            if !is_broken {
                continue;
            }
            let weaker = if at == 0 { Model::None } else { LEVELS[at - 1].0 };
            // Where a weaker model is broken already, a stronger one has only the same to tell again.
            let tells = model < Model::Serializable || strongest >= weaker;
            strongest = strongest.min(weaker);
            let cycle = if tells { found.graph.cycle(walks, must, TRIES) } else { None };
            if let Some(cycle) = cycle {
                let name = name_of(&cycle);
                finding.count(&name);
                finding.show(&name, || tell(&found, &cycle));
            }
        }
        for entry in &found.not_unique {
            finding.at_least(Verdict::Unknown);
            finding.count(NOT_UNIQUE);
            finding.show(NOT_UNIQUE, || entry.name());
        }
        let clients = found.nodes.iter().filter(|entry| entry.client != LABORATORY);
        finding.count_many(TRANSACTIONS, clients.count() as u64);
        finding.count_many(UNSEEN, found.unseen);
        (strongest, finding)
    }
}

/// What a direct anomaly is called, and the strongest model that it leaves.
fn direct(kind: Direct) -> (&'static str, Model) {
    match kind {
        Direct::Garbage => ("value from nowhere", Model::None),
        Direct::DuplicateAppend => ("append applied twice", Model::None),
        Direct::Fork => ("forked list", Model::None),
        Direct::OutOfOrder => ("appends out of order", Model::None),
        Direct::AbortedRead => ("G1a aborted read", Model::ReadUncommitted),
        Direct::IntermediateRead => ("G1b intermediate read", Model::ReadUncommitted),
        Direct::Internal => ("internal inconsistency", Model::ReadCommitted),
        Direct::LostUpdate => ("G-single (lost update)", Model::ReadCommitted),
    }
}

/// The edges that stand for something, each with the value that an edge through a helping node carries.
fn told(cycle: &[Edge]) -> Vec<Edge> {
    let mut told: Vec<Edge> = Vec::new();
    for (node, edge) in cycle {
        match told.last_mut() {
            Some((_, before)) if edge.kind == THROUGH => {
                before.to = edge.to;
                if before.kind != TIME {
                    (before.key, before.value) = (edge.key, edge.value);
                }
            }
            _ => told.push((*node, *edge)),
        }
    }
    told
}

/// Adya's name for a cycle.
fn name_of(cycle: &[Edge]) -> String {
    let steps = told(cycle);
    let kinds: Vec<Kind> = steps.iter().map(|(_, edge)| edge.kind).collect();
    let count = |kind| kinds.iter().filter(|k| **k == kind).count();
    let in_a_row = (0..kinds.len())
        .any(|at| kinds[at] == READ_WRITE && kinds[(at + 1) % kinds.len()] == READ_WRITE && kinds.len() > 1);
    let base = match count(READ_WRITE) {
        0 if count(WRITE_READ) == 0 => "G0",
        0 => "G1c",
        1 => "G-single",
        _ if !in_a_row => "G-nonadjacent",
        _ => "G2-item",
    };
    let lost_update = steps.len() == 2
        && steps[0].1.key == steps[1].1.key
        && count(READ_WRITE) == 1
        && count(WRITE_WRITE) == 1;
    match (count(TIME), count(SESSION), lost_update) {
        (0, 0, true) => format!("{base} (lost update)"),
        (0, 0, false) => base.into(),
        (0, ..) => format!("{base}-session"),
        _ => format!("{base}-realtime"),
    }
}

fn tell(found: &Dependencies, cycle: &[Edge]) -> String {
    let steps = told(cycle);
    let mut text = String::new();
    for (at, (node, _)) in steps.iter().enumerate().take(STEPS_TOLD) {
        text += &format!("T{} = {}. ", at + 1, transaction(found.nodes[*node as usize]));
    }
    let reason = |at: usize| {
        let (a, b) = (at + 1, (at + 1) % steps.len() + 1);
        let (node, edge) = steps[at];
        let (key, value) = (edge.key, edge.value);
        match edge.kind {
            WRITE_WRITE => format!("T{b} appended {value} to {key} after T{a}'s append"),
            WRITE_READ => format!("T{b} read {key} with T{a}'s {value}"),
            READ_WRITE => format!("T{a} read {key} without {value}, which T{b} appended"),
            SESSION => format!("T{b} is a later operation of T{a}'s client"),
            _ => {
                let ended = found.nodes[node as usize].ended.unwrap_or_default();
                let began = found.nodes[edge.to as usize].began;
                format!("T{a} had ended ({}) before T{b} began ({})", seconds(ended), seconds(began))
            }
        }
    };
    let reasons: Vec<String> = (0..steps.len().min(STEPS_TOLD)).map(reason).collect();
    text += &format!("So each comes before the next, round in a circle: {}", reasons.join("; "));
    if steps.len() > STEPS_TOLD {
        text += &format!("; and {} more", steps.len() - STEPS_TOLD);
    }
    text
}

fn transaction(entry: &Entry) -> String {
    let list = |at: usize| match &entry.answer {
        Returned::Lists(lists) => lists.get(at).and_then(|list| list.as_ref()).map(|list| short(list)),
        _ => None,
    };
    let told: Vec<String> = entry
        .op
        .steps()
        .iter()
        .enumerate()
        .map(|(at, step)| match step {
            Step::Append { key, value } => format!("append {value} to {key}"),
            Step::Read { key } => format!("read {key}: {}", list(at).unwrap_or_else(|| "?".into())),
        })
        .collect();
    format!("{} ({})", entry.name(), told.join(", "))
}

impl Checker for Isolation {
    fn name(&self) -> &'static str {
        "isolation"
    }

    fn check(&self, seen: &Observation) -> Finding {
        let mut entries = Cow::from(&seen.history.entries);
        if !seen.lists.is_empty() {
            entries.to_mut().extend(reads_of_lists(&seen.history, &seen.lists));
        }
        let (strongest, mut finding) = self.strongest(&entries);
        let broken: Vec<String> =
            finding.counts.keys().filter(|kind| !NO_ANOMALY.contains(&kind.as_str())).cloned().collect();
        if strongest < self.claimed {
            finding.at_least(Verdict::Invalid);
        }
        // What was acknowledged is promised by every model.
        let fates = fates::settle(&seen.history, &seen.lists, &mut finding);
        if fates.acknowledged == 0 || !has_read(&seen.history.entries) {
            finding.at_least(Verdict::NoEvidence);
        }
        let because =
            if broken.is_empty() { String::new() } else { format!("; broken by {}", broken.join(", ")) };
        finding.summary = match finding.verdict {
            Verdict::NoEvidence => format!(
                "{} transactions, of which {} appended and were acknowledged, say nothing",
                finding.counted(TRANSACTIONS),
                fates.acknowledged
            ),
            _ => format!(
                "strongest model that holds: {} (claimed: {}){because}{}",
                strongest.words(),
                self.claimed.words(),
                fates.summary(&finding)
            ),
        };
        finding
    }
}

/// Whether any client was told what is in a list.
fn has_read(entries: &[Entry]) -> bool {
    let told = |entry: &Entry| match &entry.answer {
        Returned::Lists(lists) => entry.is_done() && lists.iter().any(Option::is_some),
        _ => false,
    };
    entries.iter().any(told)
}

#[cfg(test)]
mod tests;
