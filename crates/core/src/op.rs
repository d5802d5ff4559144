//! The words every room speaks: an operation, its three times, its outcome.

use crate::units::Tick;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;
use std::time::Duration;

/// Which fields of a record an operation touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fields {
    /// The whole record, without a projection.
    All,
    /// Every field, each asked for by its name (YCSB's `readallfieldsbyname`).
    EachByName,
    /// One field by its number.
    One(u16),
}

impl Fields {
    /// The numbers of the fields meant, of a record with `count` of them.
    pub fn numbers(self, count: u16) -> std::ops::Range<u16> {
        match self {
            Fields::All | Fields::EachByName => 0..count,
            Fields::One(field) => field..field + 1,
        }
    }
}

/// One logical operation. Keys and values are functions of the numbers in it, so that a clone copies 40
/// bytes.
///
/// Histories are written in the same words. On the tables of checks an insert writes version 1 of a key, and
/// an update writes the version that it names, whether the key exists or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Read one record by its number.
    Read {
        /// Which record.
        record: u64,
        /// What of it.
        fields: Fields,
    },
    /// Give fields of an existing record new values.
    Update {
        /// Which record.
        record: u64,
        /// What of it.
        fields: Fields,
        /// Which values: those of [`crate::workload::Dataset::value`] under this version. 0 is as loaded.
        version: u64,
    },
    /// Insert a record that does not exist yet.
    Insert {
        /// Which record.
        record: u64,
    },
    /// Insert `count` records that do not exist yet, in one request where the target has one.
    InsertMany {
        /// The first of them.
        first: u64,
        /// How many, one after the other in number.
        count: u32,
    },
    /// Read up to `count` records in key order, from the key of record `first` on.
    Scan {
        /// The record with whose key it begins.
        first: u64,
        /// At most this number.
        count: u32,
        /// What of each.
        fields: Fields,
    },
    /// Read a record, then update it: two operations, one after the other, timed apart and together. The
    /// driver splits it by [`Op::parts`]; a target never sees it.
    ReadModifyWrite {
        /// Which record.
        record: u64,
        /// What is read.
        read: Fields,
        /// What is written.
        write: Fields,
        /// Version of the values written.
        version: u64,
    },
    /// Move money between two accounts in one transaction, once: the id is unique over the run and stays the
    /// same when the transfer is tried again.
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
    /// Read the balances of all accounts in one snapshot.
    ReadBalances,
    /// Several steps over lists that must happen as one.
    Transaction {
        /// In the order of the client.
        steps: Arc<[Step]>,
    },
    /// Run a script of statements once, with the random numbers that belong to `number`
    /// ([`crate::workload::script`]).
    Script {
        /// Which of the workload's scripts.
        script: u32,
        /// Of the operation; the same when it is tried again.
        number: u64,
    },
    /// Read `length` bytes of a file at `offset` (the driver side of file I/O).
    ReadAt {
        /// Byte offset, a multiple of the file's block.
        offset: u64,
        /// Bytes to read.
        length: u32,
    },
    /// Write `length` bytes of a file at `offset`.
    WriteAt {
        /// Byte offset, a multiple of the file's block.
        offset: u64,
        /// Bytes to write.
        length: u32,
    },
    /// Make a file's writes durable.
    Flush {
        /// Data and size only (`fdatasync`), not the other metadata.
        data_only: bool,
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

impl Op {
    /// The class under which its latency is kept.
    #[inline]
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Read { .. } => OpKind::Read,
            Op::Update { .. } => OpKind::Update,
            Op::Insert { .. } => OpKind::Insert,
            Op::InsertMany { .. } => OpKind::InsertMany,
            Op::Scan { .. } => OpKind::Scan,
            Op::ReadModifyWrite { .. } => OpKind::ReadModifyWrite,
            Op::Transfer { .. } => OpKind::Transfer,
            Op::ReadBalances => OpKind::ReadBalances,
            Op::Transaction { .. } => OpKind::Transaction,
            Op::Script { script, .. } => OpKind::script(*script),
            Op::ReadAt { .. } => OpKind::ReadAt,
            Op::WriteAt { .. } => OpKind::WriteAt,
            Op::Flush { .. } => OpKind::Flush,
        }
    }

    /// The two operations that a read-modify-write consists of.
    pub fn parts(&self) -> Option<(Op, Op)> {
        match *self {
            Op::ReadModifyWrite { record, read, write, version } => {
                Some((Op::Read { record, fields: read }, Op::Update { record, fields: write, version }))
            }
            _ => None,
        }
    }

    /// The key that it writes and the version that it leaves there, if it writes one record.
    pub fn written(&self) -> Option<(u64, u64)> {
        match *self {
            Op::Insert { record } => Some((record, 1)),
            Op::Update { record, version, .. } => Some((record, version)),
            _ => None,
        }
    }

    /// The steps of a transaction; none of anything else.
    pub fn steps(&self) -> &[Step] {
        match self {
            Op::Transaction { steps } => steps,
            _ => &[],
        }
    }

    /// Whether it asks for a change: a transaction that only reads does not.
    pub fn changes(&self) -> bool {
        match self {
            Op::Transaction { steps } => steps.iter().any(|step| matches!(step, Step::Append { .. })),
            op => op.kind().writes(),
        }
    }
}

/// The class of an operation; latencies of different classes are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// [`Op::Read`]
    Read,
    /// [`Op::Update`]
    Update,
    /// [`Op::Insert`]
    Insert,
    /// [`Op::InsertMany`]
    InsertMany,
    /// [`Op::Scan`]
    Scan,
    /// [`Op::ReadModifyWrite`], from the begin of the read to the end of the update.
    ReadModifyWrite,
    /// The comparison of what was read with what should be there ([`crate::workload::Dataset::verify`]).
    Verify,
    /// [`Op::Transfer`]
    Transfer,
    /// [`Op::ReadBalances`]
    ReadBalances,
    /// [`Op::Transaction`]
    Transaction,
    /// [`Op::Script`] of this number; the last class holds all scripts from there on.
    Script(u8),
    /// [`Op::ReadAt`]
    ReadAt,
    /// [`Op::WriteAt`]
    WriteAt,
    /// [`Op::Flush`]
    Flush,
    /// A statement of a script, by its number in the workload; the last class holds all statements from there
    /// on.
    Statement(u8),
}

impl OpKind {
    /// Scripts that have a class of their own.
    pub const SCRIPTS: usize = 8;
    /// Statements that have a class of their own.
    pub const STATEMENTS: usize = 32;

    /// All classes, in the order in which they are printed.
    pub const ALL: [OpKind; 13 + OpKind::SCRIPTS + OpKind::STATEMENTS] = {
        let mut all = [OpKind::Flush; 13 + OpKind::SCRIPTS + OpKind::STATEMENTS];
        let mut at = 0;
        while at < OpKind::APART.len() {
            all[at] = OpKind::APART[at];
            at += 1;
        }
        while at < all.len() {
            all[at] = OpKind::Statement((at - OpKind::APART.len()) as u8);
            at += 1;
        }
        all
    };

    /// Those that are no statements.
    const APART: [OpKind; 13 + OpKind::SCRIPTS] = [
        OpKind::Read,
        OpKind::Update,
        OpKind::Insert,
        OpKind::InsertMany,
        OpKind::Scan,
        OpKind::ReadModifyWrite,
        OpKind::Verify,
        OpKind::Transfer,
        OpKind::ReadBalances,
        OpKind::Transaction,
        OpKind::Script(0),
        OpKind::Script(1),
        OpKind::Script(2),
        OpKind::Script(3),
        OpKind::Script(4),
        OpKind::Script(5),
        OpKind::Script(6),
        OpKind::Script(7),
        OpKind::ReadAt,
        OpKind::WriteAt,
        OpKind::Flush,
    ];

    /// The class of runs of a script by its number.
    #[inline]
    pub fn script(number: u32) -> OpKind {
        OpKind::Script(number.min(OpKind::SCRIPTS as u32 - 1) as u8)
    }

    /// The class of executions of a statement by its number.
    #[inline]
    pub fn statement(number: usize) -> OpKind {
        OpKind::Statement(number.min(OpKind::STATEMENTS - 1) as u8)
    }

    /// Its place in [`OpKind::ALL`].
    #[inline]
    pub fn index(self) -> usize {
        match self {
            OpKind::Read => 0,
            OpKind::Update => 1,
            OpKind::Insert => 2,
            OpKind::InsertMany => 3,
            OpKind::Scan => 4,
            OpKind::ReadModifyWrite => 5,
            OpKind::Verify => 6,
            OpKind::Transfer => 7,
            OpKind::ReadBalances => 8,
            OpKind::Transaction => 9,
            OpKind::Script(number) => 10 + usize::from(number),
            OpKind::ReadAt => 10 + OpKind::SCRIPTS,
            OpKind::WriteAt => 11 + OpKind::SCRIPTS,
            OpKind::Flush => 12 + OpKind::SCRIPTS,
            OpKind::Statement(number) => 13 + OpKind::SCRIPTS + usize::from(number),
        }
    }

    /// As it is written in logs: upper case, as YCSB does. The first script of several is `SCRIPT`, the
    /// second `SCRIPT-2`, and so on; statements are `STATEMENT-1` to `STATEMENT-32`.
    pub fn name(self) -> &'static str {
        /// Those of scripts after the first.
        const SCRIPTS: [&str; OpKind::SCRIPTS] =
            ["SCRIPT", "SCRIPT-2", "SCRIPT-3", "SCRIPT-4", "SCRIPT-5", "SCRIPT-6", "SCRIPT-7", "SCRIPT-8"];
        /// Those of statements.
        const STATEMENTS: [&str; OpKind::STATEMENTS] = [
            "STATEMENT-1",
            "STATEMENT-2",
            "STATEMENT-3",
            "STATEMENT-4",
            "STATEMENT-5",
            "STATEMENT-6",
            "STATEMENT-7",
            "STATEMENT-8",
            "STATEMENT-9",
            "STATEMENT-10",
            "STATEMENT-11",
            "STATEMENT-12",
            "STATEMENT-13",
            "STATEMENT-14",
            "STATEMENT-15",
            "STATEMENT-16",
            "STATEMENT-17",
            "STATEMENT-18",
            "STATEMENT-19",
            "STATEMENT-20",
            "STATEMENT-21",
            "STATEMENT-22",
            "STATEMENT-23",
            "STATEMENT-24",
            "STATEMENT-25",
            "STATEMENT-26",
            "STATEMENT-27",
            "STATEMENT-28",
            "STATEMENT-29",
            "STATEMENT-30",
            "STATEMENT-31",
            "STATEMENT-32",
        ];
        match self {
            OpKind::Read => "READ",
            OpKind::Update => "UPDATE",
            OpKind::Insert => "INSERT",
            OpKind::InsertMany => "INSERT-MANY",
            OpKind::Scan => "SCAN",
            OpKind::ReadModifyWrite => "READ-MODIFY-WRITE",
            OpKind::Verify => "VERIFY",
            OpKind::Transfer => "TRANSFER",
            OpKind::ReadBalances => "READ-BALANCES",
            OpKind::Transaction => "TRANSACTION",
            OpKind::Script(number) => SCRIPTS[usize::from(number)],
            OpKind::ReadAt => "READ-AT",
            OpKind::WriteAt => "WRITE-AT",
            OpKind::Flush => "FLUSH",
            OpKind::Statement(number) => STATEMENTS[usize::from(number)],
        }
    }

    /// Whether it can change the target's state, so that an answer that was lost leaves the state open.
    pub fn writes(self) -> bool {
        matches!(
            self,
            OpKind::Update
                | OpKind::Insert
                | OpKind::InsertMany
                | OpKind::ReadModifyWrite
                | OpKind::Transfer
                | OpKind::Transaction
                | OpKind::Script(_)
                | OpKind::Statement(_)
                | OpKind::WriteAt
                | OpKind::Flush
        )
    }
}

/// In files a class is its name in small letters: `read_modify_write`.
impl Serialize for OpKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.name().to_lowercase().replace('-', "_"))
    }
}

impl<'de> Deserialize<'de> for OpKind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let word = String::deserialize(d)?;
        let name = word.to_uppercase().replace('_', "-");
        let known = OpKind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| serde::de::Error::custom(format!("`{word}` is no class of operations")))
    }
}

/// What became of an operation. *Unknown* is never rounded to one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The record to insert exists already.
    Exists,
    /// The account cannot pay that much.
    Overdraft,
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
    /// Committed where it was sent, but not confirmed by as many replicas as were asked for.
    Unreplicated,
    /// It had been due for longer than anybody would wait, and was not sent any more.
    Late,
    /// What came is not what the script expects.
    Unexpected,
    /// There was no room left.
    Full,
    /// The target cannot do this.
    Unsupported,
    /// Anything else; the target's log says what.
    Other,
}

impl Failure {
    /// In words: "not found", "timeout".
    pub fn name(self) -> &'static str {
        match self {
            Failure::NotFound => "not found",
            Failure::Exists => "exists already",
            Failure::Overdraft => "overdraft",
            Failure::Conflict => "conflict",
            Failure::Timeout => "timeout",
            Failure::InputOutput => "input/output error",
            Failure::Corrupt => "corrupt",
            Failure::Unavailable => "unavailable",
            Failure::Unreplicated => "not replicated",
            Failure::Late => "too late to be sent",
            Failure::Unexpected => "not as expected",
            Failure::Full => "no room left",
            Failure::Unsupported => "not supported",
            Failure::Other => "other",
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_know_their_places_and_read_back_from_their_names() {
        for (place, kind) in OpKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), place);
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<OpKind>(&text).unwrap(), kind, "{text}");
        }
        assert_eq!(serde_json::to_string(&OpKind::ReadModifyWrite).unwrap(), "\"read_modify_write\"");
        assert_eq!((OpKind::script(0).name(), OpKind::script(100).name()), ("SCRIPT", "SCRIPT-8"));
        assert_eq!(
            (OpKind::statement(0).name(), OpKind::statement(99).name()),
            ("STATEMENT-1", "STATEMENT-32")
        );
        assert!(serde_json::from_str::<OpKind>("\"script_9\"").is_err());
    }
}
