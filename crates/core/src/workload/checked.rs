//! Operations whose effects are looked for afterwards: writes of a ledger, registers, transfers of a bank,
//! and transactions over lists.
//!
//! Which kind of operation is number n, and what chance has to say in it, depends on (seed, n) alone. A write
//! of a key that exists also depends on what was acknowledged: it names a key whose last write was, and
//! nobody writes that key until this write has its outcome too. So the writes of a key come one after the
//! other, whoever sends them, and a key whose write got no answer is left alone.

use super::bank::Bank;
use super::random::Random;
use super::{Records, Workload};
use crate::op::{Fields, Op, Outcome, Step};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Transfers of a bank.
#[derive(Debug, Clone)]
pub struct Transfers {
    bank: Arc<Bank>,
    /// Transfers of other seeds have other numbers, so that no id is used by two trials.
    above: u64,
}

/// A trial numbers its operations below this.
const TRIAL_BITS: u32 = 42;
/// [`Bank::uuid`] scatters numbers of this number of bits.
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

/// Readings of all balances in one snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots;

impl Workload for Snapshots {
    fn op(&self, _: u64, _: &Records) -> Op {
        Op::ReadBalances
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One more write of a key, after the one that left `version` there.
fn another(record: u64, version: u64) -> Op {
    Op::Update { record, fields: Fields::All, version: version + 1 }
}

/// Writes of new keys, which show how far a loss reaches, and one in eight that replaces a value which was
/// acknowledged lately, so that a rolled back one is seen too.
#[derive(Debug)]
pub struct Ledger {
    seed: u64,
    /// Keys whose last write was acknowledged, and its version; the latest are at the back.
    settled: Mutex<VecDeque<(u64, u64)>>,
}

const REPLACES_ONE_IN: u64 = 8;
/// More keys than this need not wait to be replaced.
const SETTLED: usize = 256;
/// Streams of chance below this belong to others.
const STREAM: u64 = 1_000 << 48;

impl Ledger {
    /// Which writes replace something is drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Ledger { seed, settled: Mutex::default() }
    }
}

impl Workload for Ledger {
    fn op(&self, n: u64, records: &Records) -> Op {
        let replaces = Random::new(self.seed ^ STREAM, n).below(REPLACES_ONE_IN) == 0;
        let settled = if replaces { locked(&self.settled).pop_back() } else { None };
        match settled {
            Some((record, version)) => another(record, version),
            None => Op::Insert { record: records.claim() },
        }
    }

    fn follows(&self) -> bool {
        true
    }

    fn settle(&self, _: u64, op: &Op, outcome: Outcome) {
        let Some(written) = op.written().filter(|_| outcome == Outcome::Done) else { return };
        let mut settled = locked(&self.settled);
        if settled.len() == SETTLED {
            settled.pop_front();
        }
        settled.push_back(written);
    }
}

/// Registers, each written again and again while others read it: operation n writes register n mod count in
/// even rounds, and in odd ones reads one that is drawn. A register moves to a new key when its last write
/// was not acknowledged, or has no outcome yet.
#[derive(Debug)]
pub struct Registers {
    seed: u64,
    registers: Mutex<Vec<Register>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Register {
    key: u64,
    /// What the last write left there; `None` unless it was acknowledged.
    version: Option<u64>,
}

impl Registers {
    /// `count` of them, at least one.
    pub fn new(count: u64, seed: u64) -> Self {
        Registers { seed, registers: Mutex::new(vec![Register::default(); count.max(1) as usize]) }
    }
}

impl Workload for Registers {
    fn op(&self, n: u64, records: &Records) -> Op {
        let mut registers = locked(&self.registers);
        let count = registers.len() as u64;
        if (n / count).is_multiple_of(2) {
            let register = &mut registers[(n % count) as usize];
            if let Some(version) = register.version.take() {
                return another(register.key, version);
            }
            register.key = records.claim();
            return Op::Insert { record: register.key };
        }
        let drawn = Random::new(self.seed ^ STREAM, n).below(count);
        Op::Read { record: registers[drawn as usize].key, fields: Fields::All }
    }

    fn follows(&self) -> bool {
        true
    }

    fn settle(&self, n: u64, op: &Op, outcome: Outcome) {
        let Some((key, version)) = op.written() else { return };
        let mut registers = locked(&self.registers);
        let register = (n % registers.len() as u64) as usize;
        if registers[register].key == key {
            registers[register].version = (outcome == Outcome::Done).then_some(version);
        }
    }
}

/// Transactions that decide by two lists what to append to one of them. Which three lists are in use depends
/// on how many transactions were begun, so that all that are under way meet on the same ones.
#[derive(Debug)]
pub struct ListTransactions {
    seed: u64,
    begun: AtomicU64,
}

/// Transactions that share their lists; then come new ones, so that lists stay short.
const SHARING: u64 = 64;
/// Lists that they share: few enough to meet, and more than one, because isolation is between them.
const LISTS: u64 = 3;

impl ListTransactions {
    /// Which two of the lists is drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        ListTransactions { seed, begun: AtomicU64::new(0) }
    }
}

impl Workload for ListTransactions {
    fn op(&self, n: u64, _: &Records) -> Op {
        let first = self.begun.fetch_add(1, Ordering::Relaxed) / SHARING * LISTS;
        let mut random = Random::new(self.seed ^ STREAM, n);
        let (a, b) = (first + random.below(LISTS), first + random.below(LISTS));
        let append = Step::Append { key: a, value: n + 1 };
        Op::Transaction { steps: [Step::Read { key: a }, Step::Read { key: b }, append].into() }
    }
}

/// Several workloads at once, each with its share of the sessions: in a closed loop, sessions 0, 1, 2, ... of
/// a round send operations of the workloads that have these seats; in an open loop, operations are due in
/// that order.
pub struct Split {
    parts: Vec<Box<dyn Workload>>,
    /// The part whose session it is, its place among those of the part, and how many the part has.
    seats: Vec<(usize, u64, u64)>,
}

impl Split {
    /// `seats` sessions among `parts`, in turn; a part without a seat is not heard of.
    ///
    /// # Panics
    /// If there is no part, or no seat.
    pub fn in_turn(parts: Vec<Box<dyn Workload>>, seats: u32) -> Self {
        assert!(!parts.is_empty() && seats > 0, "somebody must have something to do");
        let (count, all) = (parts.len(), seats as usize);
        let seat = |seat: usize| {
            let part = seat % count;
            (part, (seat / count) as u64, (all - part).div_ceil(count) as u64)
        };
        Split { seats: (0..all).map(seat).collect(), parts }
    }

    fn part(&self, n: u64) -> (&dyn Workload, u64) {
        let seats = self.seats.len() as u64;
        let (part, place, of) = self.seats[(n % seats) as usize];
        (self.parts[part].as_ref(), n / seats * of + place)
    }
}

impl Workload for Split {
    fn op(&self, n: u64, records: &Records) -> Op {
        let (part, m) = self.part(n);
        part.op(m, records)
    }

    fn follows(&self) -> bool {
        self.parts.iter().any(|part| part.follows())
    }

    fn settle(&self, n: u64, op: &Op, outcome: Outcome) {
        let (part, m) = self.part(n);
        part.settle(m, op, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Failure, OpKind};
    use crate::workload::bank::BankSpec;
    use std::collections::{BTreeMap, BTreeSet};

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

    /// Carries out `count` operations, `at_once` of them under way, the outcome of each being drawn; checks
    /// that the writes of a key come one after the other, each after an acknowledged one. How many of each
    /// kind.
    fn life(workload: &dyn Workload, count: u64, at_once: usize) -> BTreeMap<OpKind, u64> {
        let (records, mut random) = (Records::new(0), Random::new(7, 7));
        let (mut under_way, mut kinds) = (Vec::<(u64, Op)>::new(), BTreeMap::new());
        let mut acknowledged = BTreeMap::new();
        for n in 0..count {
            let op = workload.op(n, &records);
            *kinds.entry(op.kind()).or_default() += 1;
            if let Some((key, version)) = op.written() {
                assert!(!under_way.iter().any(|(_, other)| other.written().is_some_and(|(k, _)| k == key)));
                assert_eq!(acknowledged.get(&key).copied().unwrap_or(0) + 1, version, "key {key}");
            }
            under_way.push((n, op));
            if under_way.len() < at_once {
                continue;
            }
            let (n, op) = under_way.swap_remove(random.below(at_once as u64) as usize);
            let outcome = match random.below(10) {
                0 => Outcome::Unknown(Failure::Timeout),
                1 => Outcome::Refused(Failure::Conflict),
                _ => Outcome::Done,
            };
            if let Some((key, version)) = op.written() {
                // Whatever comes after another outcome would be no version that follows.
                acknowledged.insert(key, if outcome == Outcome::Done { version } else { u64::MAX - 1 });
            }
            workload.settle(n, &op, outcome);
        }
        kinds
    }

    #[test]
    fn writes_of_a_key_wait_for_the_one_before_and_for_its_acknowledgement() {
        for at_once in [1, 2, 16] {
            let kinds = life(&Ledger::new(3), 8_000, at_once);
            assert!((800..1_200).contains(&kinds[&OpKind::Update]), "one in eight: {kinds:?}");
            let kinds = life(&Registers::new(4, 3), 8_000, at_once);
            assert_eq!(kinds[&OpKind::Read], 4_000);
            // With 16 under way the four registers are often busy, and new keys are made.
            assert!(kinds[&OpKind::Update] > if at_once < 16 { 3_000 } else { 500 }, "{kinds:?}");
        }
    }

    #[test]
    fn which_kind_an_operation_is_depends_on_its_number_alone() {
        let kinds = |workload: &dyn Workload| {
            let records = Records::new(0);
            (0..100).map(|n| workload.op(n, &records).kind()).collect::<Vec<_>>()
        };
        let all: [fn() -> Box<dyn Workload>; 3] = [
            || Box::new(Ledger::new(1)),
            || Box::new(Registers::new(3, 1)),
            || Box::new(ListTransactions::new(1)),
        ];
        for make in all {
            assert_eq!(kinds(make().as_ref()), kinds(make().as_ref()));
        }
    }

    #[test]
    fn transactions_meet_on_few_lists_and_append_what_nobody_else_does() {
        let (lists, records) = (ListTransactions::new(1), Records::new(0));
        let (mut values, mut used) = (BTreeSet::new(), BTreeSet::new());
        for n in 0..640 {
            let op = lists.op(n, &records);
            let [Step::Read { key: a }, Step::Read { key: b }, Step::Append { key, value }] = *op.steps()
            else {
                panic!("{op:?}");
            };
            assert!(a == key && a / LISTS == n / SHARING && b / LISTS == n / SHARING);
            assert!(values.insert(value));
            used.extend([a, b]);
        }
        assert_eq!(used.len(), 30);
    }

    #[test]
    fn sessions_are_shared_out_and_every_part_counts_its_own() {
        struct Counts(u64);
        impl Workload for Counts {
            fn op(&self, n: u64, _: &Records) -> Op {
                Op::ReadAt { offset: n, length: self.0 as u32 }
            }
        }
        let parts = || (0..3).map(|part| Box::new(Counts(part)) as Box<dyn Workload>).collect::<Vec<_>>();
        for seats in 1..9 {
            let (split, records) = (Split::in_turn(parts(), seats), Records::new(0));
            let mut seen: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            for n in 0..u64::from(seats) * 5 {
                let Op::ReadAt { offset, length } = split.op(n, &records) else { panic!() };
                assert_eq!(u64::from(length), n % u64::from(seats) % 3, "session {} keeps its part", n);
                seen.entry(length).or_default().push(offset);
            }
            assert_eq!(seen.len(), seats.min(3) as usize);
            for numbers in seen.values() {
                assert_eq!(*numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "{seats} seats");
            }
        }
    }
}
