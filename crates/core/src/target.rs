//! What load is sent to. One implementation per system, each with its statistics beside its driver.

use crate::check::{Answer, Operation, TransferRow, Version};
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

    /// Opens a session for checks, for the calling thread, on which it must stay.
    fn open_checks<'a>(&'a self) -> Result<Box<dyn CheckSession + 'a>, TargetError> {
        Err(TargetError::new("opening a session for checks", "this target keeps no ledger and no bank"))
    }

    /// The counters and gauges that [`Target::sample`] reads.
    fn metrics(&self) -> Vec<Metric>;

    /// The target's own statistics, now.
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError>;
}

/// A session for checkers rather than for load: it works on tables of its own, a ledger of keys and a bank,
/// in the way that the target's durability setting promises, and reads everything back after a recovery.
pub trait CheckSession {
    /// Makes the tables of the ledger and the bank, with these accounts and balances and nothing else in
    /// them; what an earlier check left there is removed.
    fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError>;

    /// Executes one operation of a history, once: what may be tried again is the caller's to try. A write
    /// carries
    /// [`payload`](crate::check::payload::payload); a transfer is refused as not found, as an overdraft, or
    /// as existing if its id was used already.
    fn execute(&mut self, operation: &Operation) -> (Outcome, Answer);

    /// Everything in the ledger.
    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError>;

    /// All accounts with their balances, and all transfers, in one snapshot.
    fn read_bank(&mut self) -> Result<BankRows, TargetError>;
}

/// All accounts with their balances (`None` for one that is null), and all transfers.
pub type BankRows = (Vec<(u64, Option<i64>)>, Vec<TransferRow>);

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
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>>;

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
