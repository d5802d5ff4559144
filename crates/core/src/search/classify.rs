//! What the trials at one load say about it: MLRsearch's classification.

use super::{FinishedTrial, Goals, same};

/// Seconds of trials at one load that held or did not, apart by whether they were long enough to decide.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    pub good_long: f64,
    pub bad_long: f64,
    pub good_short: f64,
    pub bad_short: f64,
}

/// On which side of the capacity a load lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The SLO holds here.
    Lower,
    /// It does not.
    Upper,
}

impl Tally {
    /// Decides as soon as nothing that may still be measured within `sum` seconds could change the outcome;
    /// `None` asks for more. draft-ietf-bmwg-mlrsearch-15, appendix "Load classification": long trials
    /// weigh; short bad ones weigh as far as short good ones do not excuse them.
    pub fn classify(&self, exceed_ratio: f64, sum: f64) -> Option<Bound> {
        let excuse = self.good_short * exceed_ratio / (1.0 - exceed_ratio);
        let excess = self.bad_long + (self.bad_short - excuse).max(0.0);
        let whole = (self.good_long + excess).max(sum);
        let limit = whole * exceed_ratio;
        // If all that is missing turned out well, and if it turned out badly.
        let optimistic = excess <= limit;
        let pessimistic = whole - self.good_long <= limit;
        match (optimistic, pessimistic) {
            (true, true) => Some(Bound::Lower),
            (false, false) => Some(Bound::Upper),
            _ => None,
        }
    }
}

/// A load, what was measured there, and the newest stage's view.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub load: f64,
    pub tally: Tally,
}

/// Sums up valid trials per load, loads ascending. Trials of `long` seconds and more decide.
pub fn tally<'a>(
    trials: impl Iterator<Item = &'a FinishedTrial>,
    goals: &Goals,
    slo: usize,
    long: f64,
) -> Vec<Measured> {
    let mut measured: Vec<Measured> = Vec::new();
    for trial in trials.filter(|trial| !trial.generator_late) {
        let at = measured.iter().position(|m| same(m.load, trial.load)).unwrap_or_else(|| {
            measured.push(Measured { load: trial.load, tally: Tally::default() });
            measured.len() - 1
        });
        let tally = &mut measured[at].tally;
        let seconds = trial.duration.as_secs_f64();
        // A trial whose clock stopped a moment early is not a short one.
        let kind = match (trial.holds(slo, goals), seconds >= 0.99 * long) {
            (true, true) => &mut tally.good_long,
            (false, true) => &mut tally.bad_long,
            (true, false) => &mut tally.good_short,
            (false, false) => &mut tally.bad_short,
        };
        *kind += seconds;
    }
    measured.sort_by(|a, b| a.load.total_cmp(&b.load));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn long(good: f64, bad: f64) -> Tally {
        Tally { good_long: good, bad_long: bad, ..Tally::default() }
    }

    #[test]
    fn a_majority_stops_as_soon_as_it_is_decided() {
        assert_eq!(long(120.0, 0.0).classify(0.5, 300.0), None);
        assert_eq!(long(150.0, 0.0).classify(0.5, 300.0), Some(Bound::Lower));
        assert_eq!(long(150.0, 149.0).classify(0.5, 300.0), Some(Bound::Lower));
        assert_eq!(long(0.0, 150.0).classify(0.5, 300.0), None);
        assert_eq!(long(0.0, 151.0).classify(0.5, 300.0), Some(Bound::Upper));
        assert_eq!(long(149.0, 151.0).classify(0.5, 300.0), Some(Bound::Upper));
    }

    #[test]
    fn exceed_ratio_zero_is_rfc_2544() {
        assert_eq!(long(59.0, 0.0).classify(0.0, 60.0), None);
        assert_eq!(long(60.0, 0.0).classify(0.0, 60.0), Some(Bound::Lower));
        assert_eq!(long(500.0, 1.0).classify(0.0, 60.0), Some(Bound::Upper));
    }

    #[test]
    fn short_trials_excuse_each_other_but_never_pass_a_load() {
        let short = |good_short, bad_short| Tally { good_short, bad_short, ..Tally::default() };
        assert_eq!(short(1000.0, 0.0).classify(0.5, 60.0), None);
        assert_eq!(short(0.0, 31.0).classify(0.5, 60.0), Some(Bound::Upper));
        assert_eq!(short(31.0, 31.0).classify(0.5, 60.0), None);
    }

    proptest! {
        /// More good news never turns a lower bound into an upper one, and the other way round.
        #[test]
        fn news_moves_a_load_in_its_own_direction(
            g in 0.0..600.0f64, b in 0.0..600.0f64, gs in 0.0..100.0f64, bs in 0.0..100.0f64,
            more in 0.0..300.0f64, e in 0.0..0.95f64,
        ) {
            let tally = Tally { good_long: g, bad_long: b, good_short: gs, bad_short: bs };
            let better = Tally { good_long: g + more, ..tally };
            let worse = Tally { bad_long: b + more, ..tally };
            if tally.classify(e, 300.0) == Some(Bound::Lower) {
                prop_assert_eq!(better.classify(e, 300.0), Some(Bound::Lower));
            }
            if tally.classify(e, 300.0) == Some(Bound::Upper) {
                prop_assert_eq!(worse.classify(e, 300.0), Some(Bound::Upper));
            }
        }

        /// Whatever was measured, as many seconds as are weighed decide.
        #[test]
        fn enough_seconds_always_decide(share in 0.0..=1.0f64, e in 0.0..0.95f64) {
            prop_assert!(long(300.0 * share, 300.0 * (1.0 - share) + 1e-6).classify(e, 300.0).is_some());
        }
    }
}
