//! What load is sent to. One implementation per system, each with its statistics beside its driver.

use crate::metric::Metric;
use crate::op::{Op, OpKind, Outcome};
use crate::workload::Dataset;
use std::collections::BTreeMap;
use std::ops::Range;

/// The laboratory could not do something with a target: start it, load it, open a session.
/// What the target answers to an operation is an [`Outcome`] instead.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {reason}")]
pub struct TargetError {
    /// What was being done, as a clause: "opening the WiredTiger home".
    pub doing: String,
    /// What the target or system said, and what to do about it where that is known.
    pub reason: String,
}

impl TargetError {
    /// An error while `doing` something, because of `reason`.
    pub fn new(doing: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        TargetError { doing: doing.into(), reason: reason.to_string() }
    }
}

/// Facts read back from a target: versions, effective settings, sizes. Never what was asked for.
pub type Facts = BTreeMap<String, serde_json::Value>;

/// A system under load. Opening and closing sessions never changes its logical state.
pub trait Target: Send + Sync {
    /// What it is and how it is really configured.
    fn facts(&self) -> Result<Facts, TargetError>;

    /// Whether its sessions can execute operations of this class.
    fn accepts(&self, kind: OpKind) -> bool;

    /// Writes `records` of `dataset`, on the calling thread; ranges may be loaded from several threads at
    /// once.
    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError>;

    /// Makes everything loaded durable and lets background work come to rest.
    fn settle(&self) -> Result<(), TargetError>;

    /// Opens a session for the calling thread, on which it must stay.
    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError>;

    /// The counters and gauges that [`Target::sample`] reads.
    fn metrics(&self) -> Vec<Metric>;

    /// The target's own statistics, now.
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError>;
}

/// One sequence of operations on a target, each finished before the next.
pub trait Session {
    /// Executes `op` and says what became of it.
    fn execute(&mut self, op: &Op) -> Outcome;
}
