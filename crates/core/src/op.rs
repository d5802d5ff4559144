//! The words every room speaks: an operation, its three times, its outcome.

use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One logical operation. Small enough to be copied; keys and values are functions of the numbers in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Read one record by its number.
    Read {
        /// Which record.
        record: u64,
    },
    /// Insert a record that does not exist yet.
    Insert {
        /// Which record.
        record: u64,
    },
    /// Read `length` bytes of a file at `offset` (the driver side of file I/O).
    ReadAt {
        /// Byte offset, a multiple of 4 KiB.
        offset: u64,
        /// Bytes to read, a multiple of 4 KiB.
        length: u32,
    },
}

impl Op {
    /// The class under which its latency is kept.
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Read { .. } => OpKind::Read,
            Op::Insert { .. } => OpKind::Insert,
            Op::ReadAt { .. } => OpKind::ReadAt,
        }
    }
}

/// The class of an operation; latencies of different classes are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// [`Op::Read`]
    Read,
    /// [`Op::Insert`]
    Insert,
    /// [`Op::ReadAt`]
    ReadAt,
}

impl OpKind {
    /// As it is written in logs: upper case, as YCSB does.
    pub fn name(self) -> &'static str {
        match self {
            OpKind::Read => "READ",
            OpKind::Insert => "INSERT",
            OpKind::ReadAt => "READ-AT",
        }
    }
}

/// What became of an operation. *Unknown* is never rounded to one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It happened.
    Done,
    /// It certainly did not happen.
    Refused(Failure),
    /// It may have happened: the answer was lost, or came as an error that leaves it open.
    Unknown(Failure),
}

/// Why an operation was not done; counted by kind, never an `Err`: it is data about the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The record does not exist.
    NotFound,
    /// Another transaction was in the way.
    Conflict,
    /// No answer in time.
    Timeout,
    /// The device or file system reported an error.
    InputOutput,
    /// The answer was not what was written.
    Corrupt,
    /// The target was not there.
    Unavailable,
    /// Anything else; the target's log says what.
    Other,
}

/// The three times of an operation on the trial clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// When it should have been sent. In a closed loop that is when it was sent.
    pub due: Tick,
    /// When it was sent.
    pub began: Tick,
    /// When its answer was complete.
    pub ended: Tick,
}

impl Timing {
    /// Time spent in the generator's own queue: began − due.
    pub fn wait(&self) -> Duration {
        self.began.since(self.due)
    }
    /// Time spent in the target: ended − began.
    pub fn service(&self) -> Duration {
        self.ended.since(self.began)
    }
    /// What a user of the target waits: ended − due.
    pub fn residence(&self) -> Duration {
        self.ended.since(self.due)
    }
}
