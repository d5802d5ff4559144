//! Load on the ledger and the bank of a target whose check sessions can carry it out one by one.

use tipover_core::check::payload::payload;
use tipover_core::check::{Answer, Operation, Version};
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::{CheckSession, Session};

/// A session of load over a session for checks.
pub struct Checked<'a> {
    checks: Box<dyn CheckSession + 'a>,
    /// What the last read brought.
    fetched: Option<Vec<u8>>,
}

impl<'a> Checked<'a> {
    /// Over `checks`.
    pub fn new(checks: Box<dyn CheckSession + 'a>) -> Self {
        Checked { checks, fetched: None }
    }
}

impl Session for Checked<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let write = |key, key_sequence| {
            let payload = Version::of(key, key_sequence).payload;
            Operation::Write { key, key_sequence, payload }
        };
        let operation = match *op {
            Op::Insert { record } => write(record, 1),
            Op::Update { record, version, .. } => write(record, version),
            Op::Read { record, .. } => Operation::Read { key: record },
            Op::Transfer { id, from, to, amount } => Operation::Transfer { id, from, to, amount },
            _ => return Outcome::Refused(Failure::Unsupported),
        };
        let (outcome, answer) = self.checks.execute(&operation);
        self.fetched = None;
        match (op, answer) {
            (Op::Read { record, .. }, Answer::Value(Some(version))) => {
                // A check session says which write it found; its bytes follow from that.
                let bytes = payload(*record, version.key_sequence);
                let whole = Version::found(&bytes) == version;
                self.fetched = Some(if whole { bytes.to_vec() } else { Vec::new() });
                outcome
            }
            (Op::Read { .. }, Answer::Value(None)) => Outcome::Refused(Failure::NotFound),
            _ => outcome,
        }
    }

    fn fetched(&self, _: u16) -> Option<&[u8]> {
        self.fetched.as_deref()
    }

    fn fetched_records(&self) -> u32 {
        u32::from(self.fetched.is_some())
    }
}
