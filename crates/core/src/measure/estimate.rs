//! A figure and how far it can be trusted.

use super::{Counts, Histogram};
use crate::probability::{Z_95, student_quantile};
use serde::{Deserialize, Serialize};

/// A value with a 95 % interval and the sentence that says where the interval comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Where the interval comes from: "t-interval over 3 trials".
    pub basis: String,
}

impl Estimate {
    /// The same estimate in another unit.
    pub fn scaled(&self, factor: f64) -> Estimate {
        let (a, b) = (self.low * factor, self.high * factor);
        Estimate { value: self.value * factor, low: a.min(b), high: a.max(b), basis: self.basis.clone() }
    }

    /// This estimate as a multiple of `base`, errors of both added as independent relative ones.
    pub fn relative_to(&self, base: &Estimate) -> Estimate {
        let half = |e: &Estimate| (e.high - e.low) / 2.0 / e.value.abs();
        let value = self.value / base.value;
        let error = value.abs() * (half(self).powi(2) + half(base).powi(2)).sqrt();
        Estimate {
            value,
            low: value - error,
            high: value + error,
            basis: format!("{}, errors of both", self.basis),
        }
    }
}

/// Mean of one figure per trial with Student's interval. With a single trial the spread is unknown: the
/// interval is then infinite, because a figure without repeats proves nothing about the next one.
pub fn mean_of_trials(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    match n {
        0 => None,
        1 => Some(Estimate {
            value: mean,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            basis: "one trial: no interval".into(),
        }),
        _ => {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            let t = student_quantile(0.05, (n - 1) as f64);
            let half = t * (variance / n as f64).sqrt();
            let basis = format!("t-interval over {n} trials");
            Some(Estimate { value: mean, low: mean - half, high: mean + half, basis })
        }
    }
}

/// Mean of one figure per trial, of trials that several machines carried out: `groups` has those of each. The
/// machines are fixed: the value is the mean of their means, and the interval is made of how trials of one
/// machine differ, with n − m degrees of freedom for n trials on m machines (a one-way layout). How machines
/// differ is in no interval; it would be taken for noise that repeats could average away.
pub fn mean_of_groups(groups: &[Vec<f64>]) -> Option<Estimate> {
    let groups: Vec<&Vec<f64>> = groups.iter().filter(|group| !group.is_empty()).collect();
    let machines = groups.len();
    if machines <= 1 {
        return mean_of_trials(groups.first()?);
    }
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
    let value = groups.iter().map(|group| mean(group)).sum::<f64>() / machines as f64;
    let trials: usize = groups.iter().map(|group| group.len()).sum();
    let degrees = (trials - machines) as f64;
    if degrees == 0.0 {
        return Some(Estimate {
            value,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            basis: format!("one trial on each of {machines} machines: no interval"),
        });
    }
    let squares = |group: &&Vec<f64>| group.iter().map(|v| (v - mean(group)).powi(2)).sum::<f64>();
    let variance = groups.iter().map(squares).sum::<f64>() / degrees;
    let shares: f64 = groups.iter().map(|group| 1.0 / group.len() as f64).sum();
    let half = student_quantile(0.05, degrees) * (variance * shares).sqrt() / machines as f64;
    let basis = format!("t-interval over {trials} trials, within {machines} machines");
    Some(Estimate { value, low: value - half, high: value + half, basis })
}

/// A percentile was asked of too few samples.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{have} samples are too few: needs {need}")]
pub struct TooFew {
    /// Samples there are.
    pub have: u64,
    /// Samples it takes for ten of them to lie beyond the percentile.
    pub need: u64,
}

/// The `quantile` (0.99) of a histogram with its order-statistics interval: the samples whose ranks are
/// n·q ∓ 1.96·√(n·q·(1 − q)), which needs no assumption on the distribution but that samples are independent.
///
/// Refused where fewer than ten samples lie beyond the quantile: its upper end would be the maximum.
pub fn percentile(histogram: &Histogram, quantile: f64) -> Result<Estimate, TooFew> {
    let n = histogram.len() as f64;
    enough(histogram.len(), quantile)?;
    let half = Z_95 * (n * quantile * (1.0 - quantile)).sqrt();
    let at = |rank: f64| histogram.value_at_quantile((rank / n).clamp(0.0, 1.0)) as f64;
    Ok(Estimate {
        value: histogram.value_at_quantile(quantile) as f64,
        low: at(n * quantile - half),
        high: at(n * quantile + half + 1.0),
        basis: format!("order statistics of {} samples", histogram.len()),
    })
}

/// Whether ten samples lie beyond the quantile.
fn enough(have: u64, quantile: f64) -> Result<(), TooFew> {
    let need = (10.0 / (1.0 - quantile)).ceil();
    if (have as f64) < need { Err(TooFew { have, need: need as u64 }) } else { Ok(()) }
}

/// A percentile of several trials: of their merged histograms, with an interval that covers both what the
/// samples leave open (order statistics) and how far the trials lie apart (Student's t on the logarithms of
/// their own percentiles, because latencies scale). Samples within a trial are not independent of each other;
/// trials are.
pub fn percentile_of_trials(trials: &[Histogram], quantile: f64) -> Result<Estimate, TooFew> {
    percentile_of_groups([trials.iter().map(Counts::of)], quantile)
}

/// As [`percentile_of_trials`], of trials that several machines carried out, each with its group: how far
/// trials lie apart is asked within machines, as in [`mean_of_groups`]. Each is asked for once, and let go
/// before the next.
pub fn percentile_of_groups(
    groups: impl IntoIterator<Item = impl IntoIterator<Item = Counts>>,
    quantile: f64,
) -> Result<Estimate, TooFew> {
    let (mut merged, mut own, mut all) = (super::histogram(), Vec::new(), 0);
    for group in groups {
        let mut of_group = Vec::new();
        for trial in group {
            trial.add_to(&mut merged);
            all += 1;
            // A trial too short for a percentile of its own says nothing about the spread, and hides nobody
            // else's.
            if enough(trial.len(), quantile).is_ok() {
                of_group.push((trial.value_at_quantile(quantile) as f64).max(1.0).ln());
            }
        }
        own.push(of_group);
    }
    let mut estimate = percentile(&merged, quantile)?;
    let long_enough = own.iter().flatten().count();
    if long_enough > 1
        && let Some(apart) = mean_of_groups(&own)
    {
        estimate.low = estimate.low.min(apart.low.exp());
        estimate.high = estimate.high.max(apart.high.exp());
        let of = match all - long_enough {
            0 => String::new(),
            _ => format!(" of {all}, the others too short"),
        };
        estimate.basis = format!("{} and the spread of {long_enough} trials{of}", estimate.basis);
    }
    Ok(estimate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram;
    use crate::workload::Random;

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_promise() {
        // 1000 seeded experiments of 4 trials around a true mean of 100.
        let mut held = 0;
        for seed in 0..1000 {
            let mut random = Random::new(seed, 0);
            let trial = |random: &mut Random| 100.0 + (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            let values: Vec<f64> = (0..4).map(|_| trial(&mut random)).collect();
            let e = mean_of_trials(&values).unwrap();
            held += u32::from(e.low <= 100.0 && 100.0 <= e.high);
        }
        assert!((930..=970).contains(&held), "{held} of 1000 intervals held the truth");
    }

    #[test]
    fn how_machines_differ_is_in_no_interval() {
        // Two machines, one of which is twice as fast; 1000 seeded experiments of 3 trials on each.
        let mut held = 0;
        for seed in 0..1000 {
            let mut random = Random::new(seed, 2);
            let mut trial = |speed: f64| speed + (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            let groups = vec![(0..3).map(|_| trial(100.0)).collect(), (0..3).map(|_| trial(200.0)).collect()];
            let e = mean_of_groups(&groups).unwrap();
            held += u32::from(e.low <= 150.0 && 150.0 <= e.high);
            assert!(e.high - e.low < 10.0, "{e:?}");
            let mixed = mean_of_trials(&groups.concat()).unwrap();
            assert!(mixed.high - mixed.low > 80.0, "what would be taken for noise: {mixed:?}");
        }
        assert!((930..=970).contains(&held), "{held} of 1000 intervals held the truth");
        // One that was measured less often counts no less.
        let uneven = mean_of_groups(&[vec![100.0, 102.0, 101.0], vec![200.0, 202.0]]).unwrap();
        assert_eq!(uneven.value, 151.0);
        let each_once = mean_of_groups(&[vec![100.0], vec![200.0]]).unwrap();
        assert!(each_once.high.is_infinite() && each_once.basis.contains("each of 2 machines"));
        assert_eq!(mean_of_groups(&[vec![1.0, 3.0], vec![]]), mean_of_trials(&[1.0, 3.0]));
        assert_eq!(mean_of_groups(&[]), None);
    }

    #[test]
    fn percentile_intervals_hold_the_truth() {
        // The p99 of an exponential with mean 1 ms is 4.605 ms.
        let truth = 1e6 * 100f64.ln();
        let mut held = 0;
        for seed in 0..300 {
            let mut random = Random::new(seed, 1);
            let mut h = histogram();
            for _ in 0..3000 {
                h.saturating_record(random.exponential(1e6) as u64);
            }
            let e = percentile(&h, 0.99).unwrap();
            held += u32::from(e.low <= truth && truth <= e.high);
        }
        assert!((275..=298).contains(&held), "{held} of 300 intervals held the truth");
    }

    #[test]
    fn trials_that_lie_apart_widen_a_percentile() {
        let trial = |scale: u64| {
            let mut h = histogram();
            (1..=2000).for_each(|n| h.saturating_record(n * scale));
            h
        };
        let alike = percentile_of_trials(&[trial(100), trial(100), trial(100)], 0.99).unwrap();
        let apart = percentile_of_trials(&[trial(100), trial(200), trial(400)], 0.99).unwrap();
        assert!(alike.high / alike.low < 1.02, "{alike:?}");
        assert!(apart.low < 198_000.0 && apart.high > 792_000.0, "{apart:?}");
    }

    #[test]
    fn one_short_trial_does_not_hide_how_far_the_others_lie_apart() {
        let trial = |n: u64, scale: u64| {
            let mut h = histogram();
            (1..=n).for_each(|n| h.saturating_record(n * scale));
            h
        };
        let long = [trial(2000, 100), trial(2000, 200), trial(2000, 400)];
        let apart = percentile_of_trials(&long, 0.99).unwrap();
        let with_short = [&long[..], &[trial(20, 10_000)]].concat();
        let found = percentile_of_trials(&with_short, 0.99).unwrap();
        assert!(found.low <= 1.01 * apart.low && found.high >= 0.99 * apart.high, "{apart:?} {found:?}");
        assert!(found.basis.ends_with("the spread of 3 trials of 4, the others too short"), "{found:?}");
        // Where only one is long enough there is no spread, and nothing is said of it.
        let alone = percentile_of_trials(&[trial(2000, 100), trial(20, 100)], 0.99).unwrap();
        assert!(!alone.basis.contains("spread"), "{alone:?}");
    }

    #[test]
    fn students_t_is_students_t_beyond_thirty_degrees_of_freedom() {
        let values: Vec<f64> = (0..32).map(|n| f64::from(n % 2)).collect();
        let e = mean_of_trials(&values).unwrap();
        let deviation = (0.25f64 * 32.0 / 31.0 / 32.0).sqrt();
        assert!(((e.high - e.value) / deviation - 2.0395).abs() < 1e-3, "{e:?}");
        assert_eq!(mean_of_trials(&[5.0]).unwrap().low, f64::NEG_INFINITY);
        assert_eq!(mean_of_trials(&[]), None);
    }

    #[test]
    fn too_few_samples_are_refused_and_one_trial_has_no_interval() {
        let mut h = histogram();
        for n in 1..=999 {
            h.saturating_record(n);
        }
        assert_eq!(percentile(&h, 0.99), Err(TooFew { have: 999, need: 1000 }));
        h.saturating_record(1);
        assert!(percentile(&h, 0.99).is_ok());
        assert!(mean_of_trials(&[]).is_none());
        assert!(mean_of_trials(&[5.0]).unwrap().high.is_infinite());
    }
}
