//! How far the clock of another machine is from ours, with a bound that holds however unlike the ways there
//! and back are.
//!
//! Asked at `sent` on our clock, the other answers what its clock shows, and the answer is there at `back`.
//! Its clock showed that between the two, so its offset lies between `shown - back` and `shown - sent`:
//! Cristian,
//! "Probabilistic clock synchronization" (1989). Every further question narrows that, as long as both clocks
//! run alike.

use serde::{Deserialize, Serialize};

/// What another clock shows minus what ours shows, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// The middle of what it can be.
    pub ns: i64,
    /// It is off by no more than this.
    pub bound_ns: u64,
}

/// A question, in nanoseconds: sent and back by our clock, shown by the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glimpse {
    /// When it was asked.
    pub sent: u64,
    /// What the other clock showed.
    pub shown: u64,
    /// When the answer was there.
    pub back: u64,
}

impl ClockOffset {
    /// From questions asked within seconds; `None` without any, and where they contradict each other: a clock
    /// was set meanwhile, or runs at another speed.
    pub fn of(glimpses: &[Glimpse]) -> Option<ClockOffset> {
        let minus = |a: u64, b: u64| i128::from(a) - i128::from(b);
        let least = glimpses.iter().map(|of| minus(of.shown, of.back)).max()?;
        let most = glimpses.iter().map(|of| minus(of.shown, of.sent)).min()?;
        ClockOffset::between(least, most)
    }

    fn between(least: i128, most: i128) -> Option<ClockOffset> {
        let half = u64::try_from((most - least).max(-1)).ok()?.div_ceil(2);
        Some(ClockOffset { ns: i64::try_from(least + i128::from(half)).ok()?, bound_ns: half })
    }

    /// Whatever either of the two allows: what it was at any time between them, if it only ever drifted one
    /// way.
    pub fn or(self, later: ClockOffset) -> ClockOffset {
        let least = |of: ClockOffset| i128::from(of.ns) - i128::from(of.bound_ns);
        let most = |of: ClockOffset| i128::from(of.ns) + i128::from(of.bound_ns);
        let hull = (least(self).min(least(later)), most(self).max(most(later)));
        ClockOffset::between(hull.0, hull.1).unwrap_or(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_truth_is_within_the_bound_however_unlike_the_ways_are(
            truth in -4_000_000_000_000_i64..4_000_000_000_000,
            ways in prop::collection::vec((0_u64..50_000_000, 0_u64..50_000_000), 1..20),
        ) {
            let begin = 5_000_000_000_000_u64;
            let glimpses: Vec<Glimpse> = ways.iter().enumerate().map(|(n, (there, home))| {
                let sent = begin + 100_000_000 * n as u64;
                let shown = sent.checked_add(*there).and_then(|at| at.checked_add_signed(truth)).unwrap();
                Glimpse { sent, shown, back: sent + there + home }
            }).collect();
            let found = ClockOffset::of(&glimpses).unwrap();
            prop_assert!(truth.abs_diff(found.ns) <= found.bound_ns);
            // The best of the questions bounds it alone.
            let best = glimpses.iter().map(|of| of.back - of.sent).min().unwrap();
            prop_assert!(found.bound_ns <= best.div_ceil(2));
            let hull = found.or(ClockOffset { ns: truth + 7_000, bound_ns: 10 });
            prop_assert!(truth.abs_diff(hull.ns) <= hull.bound_ns);
            prop_assert!((truth + 7_000).abs_diff(hull.ns) <= hull.bound_ns);
        }
    }

    #[test]
    fn a_clock_that_was_set_meanwhile_is_found_out() {
        let honest = Glimpse { sent: 1_000, shown: 1_500, back: 1_100 };
        let set = Glimpse { sent: 2_000, shown: 12_000, back: 2_100 };
        assert_eq!(ClockOffset::of(&[honest]), Some(ClockOffset { ns: 450, bound_ns: 50 }));
        assert_eq!((ClockOffset::of(&[honest, set]), ClockOffset::of(&[])), (None, None));
    }
}
