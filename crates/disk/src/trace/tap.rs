//! Where records wait to be written: a ring that one thread at a time fills and one empties, without locks.
//!
//! The one that empties it has ordinary priority. Could it hold a lock while a busy machine keeps it waiting,
//! the real-time threads that serve requests would wait with it.

use super::{Record, format};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use tipover_core::units::{Bytes, Tick};

/// Half a second of the fastest transport there is; five megabytes.
pub(crate) const CAPACITY: usize = 1 << 17;

const WORDS: usize = 5;
/// The kind takes the lowest bits of the size, which leaves 62 for it.
const KIND_BITS: u32 = 2;

pub(crate) struct Tap {
    slots: Vec<[AtomicU64; WORDS]>,
    /// How many were ever put in.
    filled: AtomicUsize,
    /// How many were ever taken out.
    emptied: AtomicUsize,
    dropped: AtomicU64,
}

impl Tap {
    /// `capacity` must be a power of two.
    pub fn new(capacity: usize) -> Tap {
        assert!(capacity.is_power_of_two(), "positions are taken modulo the capacity");
        let slots = (0..capacity).map(|_| Default::default()).collect();
        Tap { slots, filled: AtomicUsize::new(0), emptied: AtomicUsize::new(0), dropped: AtomicU64::new(0) }
    }

    /// Puts a record in, or counts it as dropped if there is no room. Only one thread at a time may call
    /// this: the caller holds the device's lock.
    pub fn put(&self, record: &Record) {
        let filled = self.filled.load(Relaxed);
        if filled.wrapping_sub(self.emptied.load(Acquire)) >= self.slots.len() {
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        let words = [
            record.arrival.0,
            record.end.0,
            record.file,
            record.offset,
            record.size.0 << KIND_BITS | u64::from(format::number(record.kind)),
        ];
        let slot = &self.slots[filled & (self.slots.len() - 1)];
        slot.iter().zip(words).for_each(|(slot, word)| slot.store(word, Relaxed));
        self.filled.store(filled.wrapping_add(1), Release);
    }

    /// Takes out up to `most` records, oldest first, behind what is in `into`. Only one thread may call this.
    pub fn take(&self, most: usize, into: &mut Vec<Record>) {
        let emptied = self.emptied.load(Relaxed);
        let waiting = self.filled.load(Acquire).wrapping_sub(emptied).min(most);
        for at in 0..waiting {
            let slot = &self.slots[emptied.wrapping_add(at) & (self.slots.len() - 1)];
            let [arrival, end, file, offset, size] = std::array::from_fn(|word| slot[word].load(Relaxed));
            let kind = format::kind(size as u8);
            let size = Bytes(size >> KIND_BITS);
            into.push(Record { arrival: Tick(arrival), end: Tick(end), kind, file, offset, size });
        }
        self.emptied.store(emptied.wrapping_add(waiting), Release);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::device::Kind;

    fn record(n: u64) -> Record {
        let kind = format::kind(n as u8);
        let (arrival, end) = (Tick(n), Tick(2 * n));
        Record { arrival, end, kind, file: n % 7, offset: n * 512, size: Bytes(n) }
    }

    #[test]
    fn a_full_tap_drops_and_counts() {
        let tap = Tap::new(4);
        (0..6).for_each(|n| tap.put(&record(n)));
        let mut out = Vec::new();
        tap.take(3, &mut out);
        assert_eq!((out.len(), tap.dropped()), (3, 2));
        tap.put(&record(9));
        tap.take(100, &mut out);
        assert_eq!(out, [record(0), record(1), record(2), record(3), record(9)]);
        assert_eq!(out[1].kind, Kind::Write);
    }

    #[test]
    fn what_goes_in_comes_out_in_order_while_both_are_busy() {
        const COUNT: u64 = 200_000;
        let tap = Tap::new(64);
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            let filler = scope.spawn(|| {
                for n in 0..COUNT {
                    tap.put(&record(n));
                    if n % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            while !filler.is_finished() {
                tap.take(32, &mut out);
            }
        });
        tap.take(64, &mut out);
        assert_eq!(out.len() as u64 + tap.dropped(), COUNT);
        assert!(out.iter().all(|r| *r == record(r.arrival.0)), "no record is half of another");
        assert!(out.is_sorted_by_key(|r| r.arrival));
    }
}
