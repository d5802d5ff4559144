//! Which records exist while a run inserts some: a claim on the next number, and what is known to be there.

use crate::op::Outcome;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The records 0..[`Records::known`] exist, but for holes that failed inserts left.
///
/// YCSB's AcknowledgedCounter without its faults: an insert that failed leaves a hole that no reader is sent
/// to, any number of inserts may be in flight, and numbers are 64 bits wide.
#[derive(Debug)]
pub struct Records {
    next: AtomicU64,
    known: AtomicU64,
    hole_count: AtomicU64,
    settled: Mutex<Settled>,
}

#[derive(Debug, Default)]
struct Settled {
    /// Answered out of order: number, and whether the record is certainly there.
    ahead: BTreeMap<u64, bool>,
    /// Numbers below `known` that do not exist, or may not.
    holes: std::collections::BTreeSet<u64>,
}

impl Records {
    /// The records 0..`loaded` exist.
    pub fn new(loaded: u64) -> Self {
        Records {
            next: AtomicU64::new(loaded),
            known: AtomicU64::new(loaded),
            hole_count: AtomicU64::new(0),
            settled: Mutex::default(),
        }
    }

    /// The number of a record to insert, given to nobody else.
    pub fn claim(&self) -> u64 {
        self.claim_many(1)
    }

    /// The first of `count` consecutive numbers of records to insert.
    pub fn claim_many(&self, count: u32) -> u64 {
        self.next.fetch_add(u64::from(count), Ordering::Relaxed)
    }

    /// Every record below this number has been inserted or has become a hole.
    #[inline]
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// Tells what became of the insert of `record`, which was claimed. What is refused or unknown is a hole:
    /// no reader can count on it.
    pub fn settle(&self, record: u64, outcome: Outcome) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.ahead.insert(record, outcome == Outcome::Done);
        let mut known = self.known.load(Ordering::Relaxed);
        while let Some(exists) = settled.ahead.remove(&known) {
            if !exists {
                settled.holes.insert(known);
                self.hole_count.fetch_add(1, Ordering::Relaxed);
            }
            known += 1;
        }
        self.known.store(known, Ordering::Release);
    }

    /// Whether `record`, below [`Records::known`], is one that a reader cannot count on.
    #[inline]
    pub fn is_hole(&self, record: u64) -> bool {
        self.hole_count.load(Ordering::Relaxed) > 0
            && self.settled.lock().unwrap_or_else(PoisonError::into_inner).holes.contains(&record)
    }

    /// How many inserts below [`Records::known`] were refused or are unknown.
    pub fn holes(&self) -> u64 {
        self.hole_count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Failure;

    #[test]
    fn what_is_known_grows_without_gaps_whatever_the_order() {
        let records = Records::new(100);
        let claims: Vec<u64> = (0..50).map(|_| records.claim()).collect();
        assert_eq!(claims, (100..150).collect::<Vec<_>>());
        for record in claims.iter().rev().take(49) {
            records.settle(*record, Outcome::Done);
            assert_eq!(records.known(), 100, "{record} must wait for 100");
        }
        records.settle(100, Outcome::Done);
        assert_eq!((records.known(), records.holes()), (150, 0));
    }

    #[test]
    fn a_failed_insert_is_a_hole_and_holds_nobody_up() {
        let records = Records::new(0);
        let first = records.claim_many(3);
        records.settle(first + 2, Outcome::Done);
        records.settle(first, Outcome::Refused(Failure::Conflict));
        records.settle(first + 1, Outcome::Unknown(Failure::Timeout));
        assert_eq!(records.known(), 3);
        assert_eq!((0..3).map(|r| records.is_hole(r)).collect::<Vec<_>>(), [true, true, false]);
    }
}
