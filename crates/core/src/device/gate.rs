//! Stations that let units through at a rate: gates, the bucket of burst credits, the write cache's drain.

use crate::units::{Bytes, Tick};

/// Sub-nanosecond bits: 600 IOPS are 1 666 666.67 ns apart, and a rounding error per request would
/// otherwise add up to a wrong rate.
const FRACTION: u32 = 32;

fn interval(units_per_second: f64) -> u128 {
    (1e9 / units_per_second * 2f64.powi(FRACTION as i32)).round() as u128
}

fn fine(at: Tick) -> u128 {
    u128::from(at.0) << FRACTION
}

/// The first whole nanosecond not before `fine`: rounding up, so that a gate is never faster than it says.
fn up(fine: u128) -> Tick {
    Tick(u64::try_from((fine + ((1 << FRACTION) - 1)) >> FRACTION).unwrap_or(u64::MAX))
}

/// Lets units through evenly spaced: the generic cell rate algorithm with a burst of one.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    /// Time per unit, in 2^-32 ns.
    interval: u128,
    /// When the next unit may enter, in 2^-32 ns.
    next: u128,
}

impl Gate {
    pub fn per_second(units: f64) -> Gate {
        Gate { interval: interval(units), next: 0 }
    }
    /// Takes `units` in one go at or after `at`; returns when they begin to enter and when they are through.
    pub fn pass(&mut self, at: Tick, units: u64) -> (Tick, Tick) {
        let begin = self.next.max(fine(at));
        self.next = begin + self.interval * u128::from(units);
        (up(begin), up(self.next))
    }
}

/// A bucket that fills at the base rate up to its depth; each unit takes a credit, and with none left units
/// wait for the base rate. Kept as the time at which the bucket will be full (the generic cell rate
/// algorithm with that depth as tolerance), so that it is exact however long it runs.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    interval: u128,
    depth: u128,
    /// What is missing when the first unit comes.
    missing: u128,
    /// When it will be full; `None` before the first unit.
    full: Option<u128>,
}

impl Bucket {
    /// Fills with `base` credits per second up to `depth`, and begins with `start` of them.
    pub fn new(base: f64, depth: u64, start: u64) -> Bucket {
        let interval = interval(base);
        let (depth, start) = (interval * u128::from(depth), interval * u128::from(start));
        Bucket { interval, depth, missing: depth.saturating_sub(start), full: None }
    }
    /// Credits at `at`.
    pub fn credits(&self, at: Tick) -> u64 {
        let missing = match self.full {
            None => self.missing,
            Some(full) => full.saturating_sub(fine(at)),
        };
        u64::try_from(self.depth.saturating_sub(missing) / self.interval).unwrap_or(u64::MAX)
    }
    fn take(&mut self, at: u128, units: u128) -> u128 {
        let cost = self.interval * units;
        let full = self.full.unwrap_or(at + self.missing).max(at);
        let begin = at.max((full + cost).saturating_sub(self.depth));
        self.full = Some(full + cost);
        begin
    }
}

/// The gate for operations: a peak rate, and behind it credits if there are any.
#[derive(Debug, Clone)]
pub(super) struct OperationGate {
    peak: Gate,
    bucket: Option<Bucket>,
}

impl OperationGate {
    pub fn new(peak: f64, bucket: Option<Bucket>) -> OperationGate {
        OperationGate { peak: Gate::per_second(peak), bucket }
    }
    /// When `units` that come at `at` begin to enter.
    pub fn pass(&mut self, at: Tick, units: u64) -> Tick {
        let mut begin = self.peak.next.max(fine(at));
        if let Some(bucket) = &mut self.bucket {
            begin = bucket.take(begin, u128::from(units));
        }
        self.peak.next = begin + self.peak.interval * u128::from(units);
        up(begin)
    }
    pub fn credits(&self, at: Tick) -> Option<u64> {
        self.bucket.as_ref().map(|bucket| bucket.credits(at))
    }
}

/// A write cache: takes bytes at once while it has room, and drains them to the medium at a fixed rate.
#[derive(Debug, Clone)]
pub(super) struct WriteCache {
    drain: Gate,
    /// How long a full cache drains, in 2^-32 ns.
    depth: u128,
}

impl WriteCache {
    pub fn new(size: Bytes, drain: Bytes) -> WriteCache {
        let drain = Gate::per_second(drain.0 as f64);
        WriteCache { depth: drain.interval * u128::from(size.0), drain }
    }
    /// When the last of these bytes, coming at `at`, has found room.
    pub fn enter(&mut self, at: Tick, size: Bytes) -> Tick {
        self.drain.pass(at, size.0);
        up(self.drain.next.saturating_sub(self.depth)).max(at)
    }
    /// When all that is in the cache at `at` is on the medium.
    pub fn drained(&self, at: Tick) -> Tick {
        up(self.drain.next).max(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_drains_in_depth_over_difference_of_rates() {
        // gp2 of 100 GiB: 5.4 million credits, 300 base, 3000 peak: 5.4e6 / 2700 = 2000 s of bursting.
        let mut gate = OperationGate::new(3000.0, Some(Bucket::new(300.0, 5_400_000, 5_400_000)));
        let mut at = Tick(0);
        let mut count = 0u64;
        assert_eq!(gate.credits(at), Some(5_400_000));
        // The burst is over when one wait is longer than the peak's interval.
        loop {
            let next = gate.pass(at, 1);
            if next.since(at).as_secs_f64() > 1.5 / 3000.0 {
                break;
            }
            at = next;
            count += 1;
        }
        assert!((at.since(Tick(0)).as_secs_f64() / 2000.0 - 1.0).abs() < 1e-5, "{at:?}");
        assert!((count as f64 / 6_000_000.0 - 1.0).abs() < 1e-5, "{count}");
        assert_eq!(gate.credits(at), Some(0));
        let begin = at;
        for _ in 0..3000 {
            at = gate.pass(at, 1);
        }
        assert!((at.since(begin).as_secs_f64() - 10.0).abs() < 0.01, "then the base rate");
        let rested = Tick(at.0 + 100_000_000_000);
        assert!(
            gate.credits(rested).is_some_and(|c| (29_990..=30_010).contains(&c)),
            "refills at the base rate"
        );
    }

    #[test]
    fn an_empty_bucket_is_the_base_rate_from_the_start() {
        let mut gate = OperationGate::new(3000.0, Some(Bucket::new(100.0, 1000, 0)));
        let mut last = Tick(0);
        for n in 1..=50u64 {
            last = gate.pass(Tick(0), 1);
            assert_eq!(last, Tick(n * 10_000_000));
        }
        assert_eq!(gate.credits(last), Some(0));
    }

    #[test]
    fn a_cache_takes_what_fits_and_then_what_drains() {
        let mut cache = WriteCache::new(Bytes(1000), Bytes(1_000_000));
        assert_eq!(cache.enter(Tick(0), Bytes(600)), Tick(0));
        assert_eq!(cache.enter(Tick(0), Bytes(400)), Tick(0));
        assert_eq!(cache.enter(Tick(0), Bytes(500)), Tick(500_000), "room after 500 bytes at 1 byte a us");
        assert_eq!(cache.drained(Tick(0)), Tick(1_500_000));
        assert_eq!(cache.drained(Tick(9_000_000)), Tick(9_000_000));
    }
}
