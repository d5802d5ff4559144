//! Operations whose effects are looked for afterwards: transfers of a bank, and writes of new keys.

use super::bank::Bank;
use super::random::Random;
use super::{Records, Workload};
use crate::op::Op;
use std::sync::Arc;

/// Transfers of a bank.
#[derive(Debug, Clone)]
pub struct Transfers {
    bank: Arc<Bank>,
    /// Transfers of other seeds have other numbers, so that no id is used by two trials.
    above: u64,
}

/// A trial numbers its operations below this.
const TRIAL_BITS: u32 = 42;
/// [`Bank::uuid`] scatters numbers of so many bits.
const ID_BITS: u32 = 60;

impl Transfers {
    /// Those of `bank`; another `seed` gives others.
    pub fn new(bank: Arc<Bank>, seed: u64) -> Self {
        let trial = Random::new(seed, 0).below(1 << (ID_BITS - TRIAL_BITS));
        Transfers { bank, above: trial << TRIAL_BITS }
    }
}

impl Workload for Transfers {
    fn op(&self, n: u64, _: &Records) -> Op {
        let transfer = self.bank.transfer(self.above | n & ((1 << TRIAL_BITS) - 1));
        Op::Transfer { id: transfer.id, from: transfer.from, to: transfer.to, amount: transfer.amount }
    }
}

/// Inserts, each of a key that nobody wrote before.
#[derive(Debug, Clone, Copy)]
pub struct NewKeys;

impl Workload for NewKeys {
    fn op(&self, _: u64, records: &Records) -> Op {
        Op::Insert { record: records.claim() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::bank::BankSpec;
    use std::collections::BTreeSet;

    #[test]
    fn a_number_is_always_the_same_transfer_and_other_seeds_give_others() {
        let bank = Arc::new(Bank::new(BankSpec::default()).unwrap());
        let records = Records::new(0);
        let mut ids = BTreeSet::new();
        for seed in 0..20 {
            let transfers = Transfers::new(bank.clone(), seed);
            for n in [0, 1, 2, 1 << 40] {
                let op = transfers.op(n, &records);
                assert_eq!(op, transfers.op(n, &records));
                let Op::Transfer { id, from, to, .. } = op else { panic!("{op:?}") };
                assert!(ids.insert(id), "{id} was given before");
                assert_eq!(bank.transfer_of(bank.uuid(id)), Some(id));
                assert!(bank.exists(from) && bank.exists(to));
            }
        }
    }

    #[test]
    fn no_key_is_written_twice() {
        let records = Records::new(0);
        let key = |_| match NewKeys.op(7, &records) {
            Op::Insert { record } => record,
            op => panic!("{op:?}"),
        };
        let keys: BTreeSet<u64> = (0..100).map(key).collect();
        assert_eq!(keys.len(), 100);
    }
}
