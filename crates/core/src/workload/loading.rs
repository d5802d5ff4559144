//! Loading a data set by the sessions of a load, while whoever takes the records may be broken.

use super::{Records, Workload};
use crate::op::{Failure, Fields, Op, Outcome};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Inserts of the records 0..count, each until it is known to be there. One that was refused, or of which
/// nobody knows what became, is sent again: a key is there once, so a record that exists already was put
/// there by an earlier try.
///
/// When all are known, whoever still asks for work reads the first record.
#[derive(Debug)]
pub struct Loading {
    records: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Never sent from here on.
    next: u64,
    /// To be sent again.
    again: VecDeque<u64>,
    known: u64,
}

impl Loading {
    /// Of `records` records, of which none is there.
    pub fn new(records: u64) -> Self {
        Loading { records, state: Mutex::default() }
    }

    /// How many records are known to be there.
    pub fn known(&self) -> u64 {
        self.state().known
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workload for Loading {
    fn op(&self, _: u64, _: &Records) -> Op {
        let mut state = self.state();
        if let Some(record) = state.again.pop_front() {
            return Op::Insert { record };
        }
        if state.next < self.records {
            state.next += 1;
            return Op::Insert { record: state.next - 1 };
        }
        Op::Read { record: 0, fields: Fields::All }
    }

    fn follows(&self) -> bool {
        true
    }

    fn settle(&self, _: u64, op: &Op, outcome: Outcome) {
        let Op::Insert { record } = op else { return };
        let mut state = self.state();
        match outcome {
            Outcome::Done | Outcome::Refused(Failure::Exists) => state.known += 1,
            Outcome::Refused(_) | Outcome::Unknown(_) => state.again.push_back(*record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;
    use std::collections::BTreeSet;

    /// A store that loses answers, refuses, and lets what nobody was answered about arrive late.
    #[test]
    fn every_record_is_there_once_and_known_to_be_whatever_became_of_its_tries() {
        for seed in 0..20 {
            let (loading, records, mut random) = (Loading::new(500), Records::new(0), Random::new(seed, 1));
            let (mut there, mut late) = (BTreeSet::new(), Vec::new());
            let mut under_way: Vec<Op> = Vec::new();
            let mut inserted = 0;
            for n in 0..20_000 {
                if loading.known() == 500 {
                    break;
                }
                under_way.push(loading.op(n, &records));
                if under_way.len() < 8 {
                    continue;
                }
                let op = under_way.swap_remove(random.below(8) as usize);
                if random.below(3) == 0 {
                    there.extend(late.pop());
                }
                let outcome = match (&op, random.below(10)) {
                    (_, 0) => Outcome::Refused(Failure::Unavailable),
                    (Op::Insert { record }, 1) => {
                        late.push(*record);
                        Outcome::Unknown(Failure::Timeout)
                    }
                    (Op::Insert { record }, 2) => {
                        there.insert(*record);
                        Outcome::Unknown(Failure::Unavailable)
                    }
                    (Op::Insert { record }, _) => match there.insert(*record) {
                        true => Outcome::Done,
                        false => Outcome::Refused(Failure::Exists),
                    },
                    (Op::Read { record: 0, .. }, _) => Outcome::Done,
                    (op, _) => panic!("{op:?}"),
                };
                inserted += u64::from(outcome == Outcome::Done && matches!(op, Op::Insert { .. }));
                loading.settle(n, &op, outcome);
                assert!(loading.known() <= there.len() as u64, "nothing is known that is not so");
            }
            assert_eq!((loading.known(), there.len()), (500, 500), "seed {seed}");
            assert!(inserted < 500, "some were there already when they were sent again");
        }
    }
}
