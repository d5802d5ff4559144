//! Load on the ledger and the bank of a target whose check sessions can carry it out one by one.

use tipover_core::check::{Operation, Version};
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::{CheckSession, Session};

/// A session of load over a session for checks.
pub struct Checked<'a>(pub Box<dyn CheckSession + 'a>);

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
        self.0.execute(&operation).0
    }
}
