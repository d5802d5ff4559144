//! What load is sent to. One implementation per system, each with its statistics beside its driver.

use crate::check::{Returned, TpcbRows, TransferRow, Version};
use crate::learn::Watch;
use crate::metric::Metric;
use crate::op::{Op, OpKind, Outcome};
use crate::workload::Dataset;
use crate::workload::tpcb::Counts;
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

/// A table or an index of a server, and what was asked of it. Counters only grow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Relation {
    /// As the server calls it.
    pub name: String,
    /// Bytes of its pages.
    pub bytes: f64,
    /// Pages of it asked of the engine's cache.
    pub requests: f64,
    /// Of these, those that were not there.
    pub misses: f64,
    /// Look-ups in it, if it is an index and they are counted.
    pub searches: f64,
}

/// A system under load. Opening and closing sessions never changes its logical state.
pub trait Target: Send + Sync {
    /// What it is and how it is really configured.
    fn facts(&self) -> Result<Facts, TargetError>;

    /// Whether its sessions can execute operations of this class.
    fn accepts(&self, kind: OpKind) -> bool;

    /// Writes `records` of `dataset`, on the calling thread: of scripts, these rows of the tables that are
    /// made for them, of pgbench's these accounts.
    /// Ranges may be loaded from several threads at once.
    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError>;

    /// Makes everything loaded durable and lets background work come to rest.
    fn settle(&self) -> Result<(), TargetError>;

    /// Opens a session for the calling thread, on which it must stay.
    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError>;

    /// Makes the tables of checks anew: these accounts with these balances, and neither keys nor transfers
    /// nor lists. What an earlier check left there is removed.
    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let _ = accounts;
        Err(no_checks("preparing the tables of checks"))
    }

    /// Every key of the ledger with what is there.
    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        Err(no_checks("reading the ledger"))
    }

    /// All accounts with their balances, and all transfers, in one snapshot.
    fn read_bank(&self) -> Result<BankRows, TargetError> {
        Err(no_checks("reading the bank"))
    }

    /// Every list that something was appended to.
    fn read_lists(&self) -> Result<Lists, TargetError> {
        Err(no_checks("reading the lists"))
    }

    /// How many rows pgbench's tables have; `None` where one of them is not there.
    fn count_tpcb(&self) -> Result<Option<Counts>, TargetError> {
        Err(TargetError::new("counting the rows of pgbench's tables", "this target has no such tables"))
    }

    /// The largest key in each of sysbench's first `tables` tables; `None` for one that is not there.
    fn count_sysbench(&self, tables: u64) -> Result<Vec<Option<u64>>, TargetError> {
        let _ = tables;
        Err(TargetError::new("looking at sysbench's tables", "this target has no such tables"))
    }

    /// What transactions have changed in pgbench's tables, in one snapshot.
    fn read_tpcb(&self) -> Result<TpcbRows, TargetError> {
        Err(TargetError::new("reading pgbench's tables", "this target has no such tables"))
    }

    /// Asks on a connection of its own what the server counts of its statements.
    fn watch(&self) -> Result<Box<dyn Watch>, TargetError> {
        Err(TargetError::new("asking for statistics of statements", "this target has none"))
    }

    /// Every table and index that pages were asked of, as counted so far.
    fn relations(&self) -> Result<Vec<Relation>, TargetError> {
        let reason = "this target does not count of which tables and indexes pages are asked";
        Err(TargetError::new("asking for its tables and indexes", reason))
    }

    /// The counters and gauges that [`Target::sample`] reads.
    fn metrics(&self) -> Vec<Metric>;

    /// The target's own statistics, now.
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError>;
}

fn no_checks(doing: &str) -> TargetError {
    TargetError::new(doing, "this target keeps no ledger, no bank and no lists")
}

/// All accounts with their balances (`None` for one that is null), and all transfers.
pub type BankRows = (Vec<(u64, Option<i64>)>, Vec<TransferRow>);

/// Lists by their keys.
pub type Lists = Vec<(u64, Vec<u64>)>;

/// What a target said about an operation that was not done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complaint {
    /// The step of the operation that failed, where it has several.
    pub step: usize,
    /// Which of several requests of that step.
    pub request: usize,
    /// The target's code of the error; empty if the words are not its own.
    pub code: String,
    /// What the server said.
    pub words: String,
}

/// A part of an operation that the session timed by itself: a statement of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Its class.
    pub kind: OpKind,
    /// What became of it.
    pub outcome: Outcome,
    /// When it was sent, in nanoseconds of CLOCK_MONOTONIC.
    pub sent: u64,
    /// When its answer was complete.
    pub ended: u64,
    /// Rows that came or were changed.
    pub rows: u64,
}

/// What a session tells of its last operation beside the outcome.
#[derive(Debug, Clone, Default)]
pub struct Remarks {
    /// The parts of it that were timed by themselves, in their order.
    pub timed: Vec<Timed>,
    /// What the target said, if it was not done and words came.
    pub complaint: Option<Complaint>,
    /// Whether nothing more can be done on the session: it is given no further operation, and no other takes
    /// its place.
    pub ended: bool,
}

/// One sequence of operations on a target, each finished before the next.
pub trait Session {
    /// Executes `op`, never a read-modify-write, and says what became of it. Blocks, but not for longer than
    /// the load's time-out where the target can be given one.
    fn execute(&mut self, op: &Op) -> Outcome;

    /// The value of `field` that the last read of one record brought; `None` if it was not asked for, does
    /// not exist, or this target keeps nothing of what it reads. [`Dataset::verify`] compares it with what
    /// should be there.
    fn fetched(&self, field: u16) -> Option<&[u8]> {
        let _ = field;
        None
    }

    /// How many records the last read or scan brought.
    fn fetched_records(&self) -> u32 {
        0
    }

    /// What the last operation was answered with if it read balances or lists, and was done; made when it is
    /// asked for, or while the answer is read.
    fn answer(&self) -> Returned {
        Returned::Nothing
    }

    /// Tells the session its number among those of the load, before its first operation.
    fn take_seat(&mut self, number: u32) {
        let _ = number;
    }

    /// What it tells of its last operation, if it ever tells anything.
    fn remarks(&self) -> Option<&Remarks> {
        None
    }

    /// See [`Remarks::timed`].
    fn timed(&self) -> &[Timed] {
        self.remarks().map_or(&[], |remarks| &remarks.timed)
    }

    /// See [`Remarks::complaint`].
    fn complaint(&self) -> Option<&Complaint> {
        self.remarks()?.complaint.as_ref()
    }

    /// See [`Remarks::ended`].
    fn has_ended(&self) -> bool {
        self.remarks().is_some_and(|remarks| remarks.ended)
    }

    /// The session's connection, if sending an operation and receiving its answer can be done apart, so that
    /// one thread can serve many sessions. Such a session is driven either by [`Session::execute`] or by its
    /// wire, never by both at once.
    fn wire(&mut self) -> Option<&mut dyn Wire> {
        None
    }
}

/// A session's connection that never blocks.
pub trait Wire {
    /// What to wait on; `None` while there is no connection. It changes when the connection is made anew,
    /// which only [`Wire::begin`] does, and when it is lost.
    fn descriptor(&mut self) -> Option<std::os::fd::BorrowedFd<'_>>;

    /// Sends `op`, making the connection anew first if it is gone.
    fn begin(&mut self, op: &Op) -> Progress;

    /// Goes on with the operation at hand after the descriptor became ready.
    fn advance(&mut self) -> Progress;

    /// Gives up the operation at hand because its time is over, and with it the connection: an answer that
    /// comes later must not be taken for the next operation's.
    fn abandon(&mut self);
}

/// How far an operation on a [`Wire`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Waiting for the descriptor to become readable.
    Receiving,
    /// Waiting for the descriptor to become writable.
    Sending,
    /// The answer is complete.
    Finished(Outcome),
}

/// How far one has come that always waits for its descriptor to become readable, until it has an outcome.
impl From<Option<Outcome>> for Progress {
    fn from(outcome: Option<Outcome>) -> Self {
        outcome.map_or(Progress::Receiving, Progress::Finished)
    }
}
