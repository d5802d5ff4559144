//! How many repeats, how much noise, and whether the place was quiet.

use super::estimate::{Estimate, TooFew};
use super::rank::{least_p, least_p_of_pairs, median, robust_deviation};
use crate::probability::{binomial, normal_quantile};
use crate::workload::Random;
use serde::Serialize;

/// The median with its order-statistics interval, exact for any distribution: the narrowest symmetric pair of
/// ranks that the true median lies between with 95 %. Needs six values: with five even the extremes hold it
/// only with 94 %.
pub fn median_of_trials(values: &[f64]) -> Result<Estimate, TooFew> {
    let n = values.len();
    let (low, high) = median_ranks(n).ok_or(TooFew { have: n as u64, need: 6 })?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let value = median(&sorted).ok_or(TooFew { have: 0, need: 6 })?;
    let basis = format!("order statistics {} and {} of {n} trials", low + 1, high + 1);
    Ok(Estimate { value, low: sorted[low], high: sorted[high], basis })
}

/// Places of the two order statistics, counted from 0.
fn median_ranks(n: usize) -> Option<(usize, usize)> {
    // P(the median lies below x(r)) = P(fewer than r values below it) = B(r − 1; n, 1/2).
    let low = (0..n / 2).rev().find(|low| binomial(*low as u64, n as u64, 0.5) <= 0.025)?;
    Some((low, n - 1 - low))
}

/// How many repeats it takes until the median's interval is within ± `within` (0.05) of it, judged from a
/// pilot: CONFIRM (Maricq et al., OSDI 2018). Subsets of the pilot are drawn 200 times for each size; the
/// smallest size whose intervals, on average, are narrow enough is the answer. `None`: more than the pilot
/// has.
pub fn repeats_needed(pilot: &[f64], within: f64, seed: u64) -> Option<usize> {
    const DRAWS: usize = 200;
    let middle = median(pilot)?;
    (6..=pilot.len()).find(|size| {
        let Some((low, high)) = median_ranks(*size) else { return false };
        let mut random = Random::new(seed, *size as u64);
        let (mut lows, mut highs) = (0.0, 0.0);
        let mut values = pilot.to_vec();
        for _ in 0..DRAWS {
            random.shuffle(&mut values);
            let mut subset = values[..*size].to_vec();
            subset.sort_by(f64::total_cmp);
            lows += subset[low] / DRAWS as f64;
            highs += subset[high] / DRAWS as f64;
        }
        let off = (middle - lows).max(highs - middle);
        off <= within * middle.abs()
    })
}

/// Smallest difference that a comparison of `n` and `m` repeats with this `deviation` (pooled, same unit as
/// the answer) finds about four times out of five at level `p`. Infinite where so few repeats can never give
/// a p as small as that.
///
/// Normal theory (z of p/2 plus z of 0.8, times the standard error), enlarged by what a rank test loses under
/// normality
/// (its relative efficiency is 3/π), and by Student's t at few repeats.
pub fn detectable(deviation: f64, n: usize, m: usize, p: f64) -> f64 {
    if n == 0 || m == 0 || least_p(n, m) >= p {
        return f64::INFINITY;
    }
    let error = deviation * (1.0 / n as f64 + 1.0 / m as f64).sqrt();
    reach((n + m) as f64 - 2.0, p) * error
}

/// The same for pairs, with the deviation of their differences.
pub fn detectable_in_pairs(deviation: f64, pairs: usize, p: f64) -> f64 {
    if pairs == 0 || least_p_of_pairs(pairs) >= p {
        return f64::INFINITY;
    }
    reach(pairs as f64 - 1.0, p) * deviation / (pairs as f64).sqrt()
}

fn reach(degrees: f64, p: f64) -> f64 {
    let loss = (std::f64::consts::PI / 3.0).sqrt();
    loss * (crate::probability::student_quantile(p, degrees) + normal_quantile(0.8))
}

/// What canaries before and after a trial say of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum CanaryVerdict {
    /// As the rest of the session.
    Quiet,
    /// One of the two differs: the trial is not to be compared.
    Disturbed {
        /// Which, and by how much.
        why: String,
    },
    /// Too few canaries in the session to know what is usual.
    Unknown,
}

/// What is usual of the canaries of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usual {
    middle: f64,
    /// How far a canary may be off.
    allowed: f64,
}

impl Usual {
    /// Of all canaries of a session; `None` with fewer than eight.
    pub fn of(session: &[f64]) -> Option<Usual> {
        let (middle, deviation) = (median(session)?, robust_deviation(session)?);
        let allowed = (3.0 * deviation).max(0.02 * middle.abs());
        (session.len() >= 8).then_some(Usual { middle, allowed })
    }

    /// Judges the canaries that bracket a trial: disturbed if either differs from the session's median by
    /// more than three robust standard deviations (METHODS C3), and by more than 2 %, because a session that
    /// is very quiet must not make trifles suspicious.
    pub fn judge(&self, before: f64, after: f64) -> CanaryVerdict {
        let Usual { middle, allowed } = *self;
        for (name, value) in [("before", before), ("after", after)] {
            if (value - middle).abs() > allowed {
                let off = 100.0 * (value / middle - 1.0);
                let limit = 100.0 * allowed / middle.abs();
                let why = format!(
                    "the canary {name} is {off:+.1} % off the session's median, usual is ±{limit:.1} %"
                );
                return CanaryVerdict::Disturbed { why };
            }
        }
        CanaryVerdict::Quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::mann_whitney;

    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
    }

    #[test]
    fn median_ranks_are_those_of_the_tables() {
        // Conover 1999, table A3 and others: n = 6: 1 and 6; 10: 2 and 9; 20: 6 and 15; 50: 18 and 33.
        assert_eq!(median_ranks(5), None);
        for (n, low, high) in [(6, 1, 6), (10, 2, 9), (20, 6, 15), (50, 18, 33)] {
            assert_eq!(median_ranks(n), Some((low - 1, high - 1)), "n = {n}");
        }
    }

    #[test]
    fn median_intervals_hold_the_truth_whatever_the_distribution() {
        for n in [6, 10, 25] {
            let held = (0..1000)
                .filter(|seed| {
                    let mut random = Random::new(*seed, 0);
                    let values: Vec<f64> = (0..n).map(|_| random.exponential(1.0)).collect();
                    let e = median_of_trials(&values).unwrap();
                    e.low <= 2f64.ln() && 2f64.ln() <= e.high
                })
                .count();
            assert!(held >= 930, "n = {n}: {held} of 1000");
        }
        assert!(median_of_trials(&[1.0; 5]).is_err());
    }

    #[test]
    fn noisier_pilots_need_more_repeats() {
        let pilot = |noise: f64| {
            let mut random = Random::new(4, 0);
            (0..100).map(|_| 100.0 * (1.0 + noise * normal(&mut random))).collect::<Vec<_>>()
        };
        let [quiet, middling, wild] = [0.01, 0.05, 0.5].map(|noise| repeats_needed(&pilot(noise), 0.02, 1));
        assert_eq!(quiet, Some(6));
        assert!(middling.is_some_and(|n| (20..90).contains(&n)), "{middling:?}");
        assert_eq!(wild, None);
        // The interval of this number is as narrow as promised, for another draw of the same noise.
        let mut random = Random::new(5, 0);
        let widths: Vec<f64> = (0..200)
            .map(|_| {
                let values: Vec<f64> =
                    (0..middling.unwrap()).map(|_| 100.0 * (1.0 + 0.05 * normal(&mut random))).collect();
                let e = median_of_trials(&values).unwrap();
                (e.high - e.low) / 2.0 / e.value
            })
            .collect();
        let mean = widths.iter().sum::<f64>() / 200.0;
        assert!(mean < 0.025, "{mean}");
    }

    #[test]
    fn what_is_called_detectable_is_detected_four_times_in_five() {
        for (n, m) in [(6, 6), (10, 10), (20, 12)] {
            let difference = detectable(1.0, n, m, 0.01);
            let found = (0..1000)
                .filter(|seed| {
                    let mut random = Random::new(*seed, 7);
                    let a: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
                    let b: Vec<f64> = (0..m).map(|_| normal(&mut random) + difference).collect();
                    mann_whitney(&a, &b) < 0.01
                })
                .count();
            println!("detectable with {n} and {m}: {difference:.2} deviations, found {found} of 1000");
            assert!((700..=920).contains(&found), "{n} and {m}: {found} of 1000");
        }
        assert_eq!(detectable(1.0, 4, 4, 0.01), f64::INFINITY);
        assert_eq!(detectable_in_pairs(1.0, 7, 0.01), f64::INFINITY);
        assert!(detectable_in_pairs(1.0, 8, 0.01).is_finite());
    }

    #[test]
    fn canaries_accuse_what_is_unusual_and_nothing_else() {
        let judged = |session: &[f64], before, after| Some(Usual::of(session)?.judge(before, after));
        let session: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 5)).collect();
        assert_eq!(judged(&session, 101.0, 104.0), Some(CanaryVerdict::Quiet));
        let disturbed = judged(&session, 101.0, 130.0).unwrap();
        assert!(
            matches!(&disturbed, CanaryVerdict::Disturbed { why } if why.contains("after is +27.5 %")),
            "{disturbed:?}"
        );
        assert_eq!(judged(&session[..7], 1.0, 1.0), None);
        // A session without any noise does not make a difference of one per cent suspicious.
        assert_eq!(judged(&[100.0; 10], 101.0, 99.0), Some(CanaryVerdict::Quiet));
    }
}
