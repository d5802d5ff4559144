//! Is a series of intervals at rest? "Never steady" and "slowing down" are answers (Barrett et al. 2017:
//! under half of their pairs of machine and benchmark reach a steady peak).

use super::change::{ChangeRule, change_points};
use super::series::effective_length;
use crate::probability::student_quantile;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Shortest warm-up that a model allows: a cache under random access is within 1 % of its equilibrium after
/// it was filled 4.6 times. `None` without a fill rate.
pub fn least_warm_up(cache_bytes: f64, filled_bytes_per_s: f64) -> Option<Duration> {
    let seconds = 4.6 * cache_bytes / filled_bytes_per_s;
    (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds))
}

/// Least squares: change per step.
pub fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let (x, y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let (mut xy, mut xx) = (0.0, 0.0);
    for (i, value) in values.iter().enumerate() {
        xy += (i as f64 - x) * (value - y);
        xx += (i as f64 - x).powi(2);
    }
    if xx > 0.0 { xy / xx } else { 0.0 }
}

/// Whether a gauge, read every `interval`, is flat: it moves by no more than `most_per_minute` (hit ratio:
/// 0.001).
pub fn gauge_is_flat(readings: &[f64], interval: Duration, most_per_minute: f64) -> bool {
    readings.len() >= 3 && slope(readings).abs() * 60.0 / interval.as_secs_f64() <= most_per_minute
}

/// How many values to leave out at the start so that the rest has the smallest standard error of its mean:
/// MSER-5 (White, Cobb & Spratt 2000), in batches of five. `None` if that is half of the series or more: then
/// nothing says that the transient has ended. Needs 50 values.
pub fn truncation(series: &[f64]) -> Option<usize> {
    const BATCH: usize = 5;
    let batches: Vec<f64> =
        series.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    if batches.len() < 10 {
        return None;
    }
    let error = |left_out: usize| {
        let rest = &batches[left_out..];
        let n = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / n;
        rest.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n * n)
    };
    let best = (0..batches.len() - 5).min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
    (best < batches.len() / 2).then_some(best * BATCH)
}

/// What counts as steady.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SteadyRule {
    /// Drift from start to end, as a share of the mean, that is let pass: 0.02.
    pub drift: f64,
    /// Largest distance between the means of five rounds, as a share of the mean: 0.20 (SNIA).
    pub excursion: f64,
    /// Smallest change of level that counts as a change-point: 0.05.
    pub change: f64,
    /// Fewest values that a judgement rests on: 60.
    pub least: usize,
    /// How far the values lie apart, so that changes of level can be given their time.
    pub interval: Option<Duration>,
}

impl Default for SteadyRule {
    fn default() -> Self {
        SteadyRule { drift: 0.02, excursion: 0.20, change: 0.05, least: 60, interval: None }
    }
}

/// What a series is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Steadiness {
    /// At rest from this value on.
    Steady {
        /// First value that counts.
        from: usize,
    },
    /// It becomes less and less.
    SlowingDown {
        /// Change from start to end of what was judged, as a share of the mean; negative.
        drift: f64,
    },
    /// It becomes more and more: the warm-up is not over.
    StillRising {
        /// Change from start to end of what was judged, as a share of the mean.
        drift: f64,
    },
    /// It jumps between levels, or swings more than the rule allows.
    NeverSteady,
    /// Too few values to say anything.
    TooShort,
}

/// The verdict with its evidence in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SteadyJudgement {
    /// The verdict.
    pub verdict: Steadiness,
    /// What was seen.
    pub evidence: String,
}

impl Steadiness {
    /// In two or three words.
    pub fn words(self) -> &'static str {
        match self {
            Steadiness::Steady { .. } => "steady",
            Steadiness::SlowingDown { .. } => "slowing down",
            Steadiness::StillRising { .. } => "still rising",
            Steadiness::NeverSteady => "never steady",
            Steadiness::TooShort => "too short to say",
        }
    }
}

/// Judges a series of interval means, one per second say, of something that is to be constant, such as
/// throughput.
///
/// Truncation by MSER-5; then drift over what is left, where it is larger than the rule allows *and* than its
/// error (with the autocorrelation counted); then excursion of five rounds; then change-points between batch
/// means.
pub fn steadiness(series: &[f64], rule: &SteadyRule) -> SteadyJudgement {
    let judged = |verdict, evidence| SteadyJudgement { verdict, evidence };
    if series.len() < rule.least {
        let evidence = format!("{} values, at least {} are needed", series.len(), rule.least);
        return judged(Steadiness::TooShort, evidence);
    }
    let from = truncation(series);
    let kept = &series[from.unwrap_or(series.len() / 2)..];
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    if mean == 0.0 {
        return judged(Steadiness::Steady { from: from.unwrap_or(0) }, "nothing but zeros".into());
    }
    let (drift, error) = drift_of(kept, mean);
    if drift.abs() > rule.drift && drift.abs() > error {
        let evidence = format!(
            "drifts by {:.1} % of its mean over the {} values kept, allowed {:.1} % and within ±{:.1} % by chance",
            100.0 * drift,
            kept.len(),
            100.0 * rule.drift,
            100.0 * error
        );
        let verdict =
            if drift < 0.0 { Steadiness::SlowingDown { drift } } else { Steadiness::StillRising { drift } };
        return judged(verdict, evidence);
    }
    if let Some(evidence) = unrest(kept, mean, from.unwrap_or(series.len() / 2), rule) {
        return judged(Steadiness::NeverSteady, evidence);
    }
    match from {
        Some(from) => judged(
            Steadiness::Steady { from },
            format!(
                "the first {from} of {} values left out; drift {:+.1} % (±{:.1} %), five rounds within {:.1} %, no change of \
                 level",
                series.len(),
                100.0 * drift,
                100.0 * error,
                100.0 * excursion(kept, mean)
            ),
        ),
        None => judged(
            Steadiness::NeverSteady,
            "leaving out more than half would make the mean more certain: the transient has not ended".into(),
        ),
    }
}

/// Drift from start to end and the half-width of its 99 % interval, as shares of the mean. The error of the
/// slope grows with the root of how little the values are worth.
fn drift_of(kept: &[f64], mean: f64) -> (f64, f64) {
    let n = kept.len() as f64;
    let slope = slope(kept);
    let rest: Vec<f64> = kept.iter().enumerate().map(|(i, x)| x - slope * i as f64).collect();
    let level = rest.iter().sum::<f64>() / n;
    let variance = rest.iter().map(|x| (x - level).powi(2)).sum::<f64>() / (n - 2.0).max(1.0);
    let worth = effective_length(&rest).max(4.0);
    let error = (12.0 * variance / (n * n * worth)).sqrt();
    let drift = slope * (n - 1.0) / mean.abs();
    (drift, student_quantile(0.01, worth - 2.0) * error * n / mean.abs())
}

fn rounds(kept: &[f64]) -> Vec<f64> {
    kept.chunks(kept.len().div_ceil(5)).map(|round| round.iter().sum::<f64>() / round.len() as f64).collect()
}

fn excursion(kept: &[f64], mean: f64) -> f64 {
    let rounds = rounds(kept);
    let most = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most - rounds.iter().copied().fold(f64::INFINITY, f64::min)) / mean.abs()
}

/// Swings and jumps, in words.
fn unrest(kept: &[f64], mean: f64, from: usize, rule: &SteadyRule) -> Option<String> {
    let excursion = excursion(kept, mean);
    if excursion > rule.excursion {
        return Some(format!(
            "five rounds lie {:.1} % of the mean apart, allowed {:.1} %",
            100.0 * excursion,
            100.0 * rule.excursion
        ));
    }
    // Batches long enough that one hardly knows of the next, or every wave would be a change of level.
    let memory = kept.len() as f64 / effective_length(kept);
    let batch = (3.0 * memory).ceil() as usize;
    let batches: Vec<f64> =
        kept.chunks_exact(batch.max(1)).map(|b| b.iter().sum::<f64>() / b.len() as f64).collect();
    let change = ChangeRule { least_change: rule.change, ..ChangeRule::default() };
    let point = change_points(&batches, &change).into_iter().next()?;
    let at = from + point.at * batch.max(1);
    Some(format!("changes its level by {:+.1} % {}", 100.0 * point.change(), when(at, rule.interval)))
}

/// Which value it was, by its time where that is known.
fn when(at: usize, interval: Option<Duration>) -> String {
    interval.map_or_else(
        || format!("at value {at}"),
        |interval| format!("after {:.1} s", interval.as_secs_f64() * at as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    /// A level per second with noise of 5 % that remembers itself (φ).
    fn series(n: usize, phi: f64, seed: u64, level: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut random = Random::new(seed, 0);
        let mut x = 0.0;
        (0..n)
            .map(|i| {
                let step = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
                x = phi * x + (1.0 - phi * phi).sqrt() * step;
                level(i as f64) * (1.0 + 0.05 * x)
            })
            .collect()
    }

    fn share(of: u64, verdict: impl Fn(u64) -> bool) -> f64 {
        (0..of).filter(|seed| verdict(*seed)).count() as f64 / of as f64
    }

    fn verdict(series: &[f64]) -> Steadiness {
        steadiness(series, &SteadyRule::default()).verdict
    }

    #[test]
    fn a_series_at_rest_is_acquitted() {
        for phi in [0.0, 0.6] {
            let steady = share(200, |seed| {
                matches!(verdict(&series(300, phi, seed, |_| 1000.0)), Steadiness::Steady { .. })
            });
            println!("at rest, φ = {phi}: {steady}");
            assert!(steady >= 0.9, "φ = {phi}: {steady}");
        }
    }

    #[test]
    fn a_transient_is_left_out() {
        let good = share(100, |seed| {
            let warm = series(400, 0.3, seed, |i| 1000.0 * (1.0 - 0.7 * (-i / 15.0).exp()));
            matches!(verdict(&warm), Steadiness::Steady { from } if (25..=150).contains(&from))
        });
        println!("transient left out: {good}");
        assert!(good >= 0.85, "{good}");
    }

    #[test]
    fn drifts_and_jumps_are_called_what_they_are() {
        let slowing = |seed| series(300, 0.3, seed, |i| 1000.0 * (1.0 - 0.001 * i));
        let rising = |seed| series(300, 0.3, seed, |i| 1000.0 * (1.0 + 0.001 * i));
        let jumping =
            |seed| series(300, 0.3, seed, |i| if (100.0..200.0).contains(&i) { 860.0 } else { 1000.0 });
        let slow = share(
            100,
            |seed| matches!(verdict(&slowing(seed)), Steadiness::SlowingDown { drift } if drift < -0.05),
        );
        let rise = share(100, |seed| matches!(verdict(&rising(seed)), Steadiness::StillRising { .. }));
        let jump =
            share(100, |seed| !matches!(verdict(&jumping(seed)), Steadiness::Steady { from } if from < 100));
        println!("slowing {slow}, rising {rise}, jumping {jump}");
        assert!(slow >= 0.95 && rise >= 0.95 && jump >= 0.95, "{slow} {rise} {jump}");
        let evidence = steadiness(&slowing(1), &SteadyRule::default()).evidence;
        assert!(evidence.contains("drifts by -"), "{evidence}");
    }

    #[test]
    fn a_change_of_level_has_its_time() {
        assert_eq!(when(155, None), "at value 155");
        assert_eq!(when(155, Some(Duration::from_millis(250))), "after 38.8 s");
    }

    #[test]
    fn short_and_empty_series_are_said_to_be() {
        assert_eq!(verdict(&[]), Steadiness::TooShort);
        assert_eq!(verdict(&[1.0; 59]), Steadiness::TooShort);
        assert_eq!(verdict(&[0.0; 60]), Steadiness::Steady { from: 0 });
        assert_eq!(verdict(&[5.0; 60]), Steadiness::Steady { from: 0 });
    }

    #[test]
    fn slopes_and_models_are_arithmetic() {
        assert!((slope(&[1.0, 3.0, 5.0]) - 2.0).abs() < 1e-12);
        assert_eq!(slope(&[7.0]), 0.0);
        assert_eq!(least_warm_up(1e9, 1e8), Some(Duration::from_secs(46)));
        assert_eq!(least_warm_up(1e9, 0.0), None);
        // A hit ratio that gains a tenth of a point per minute is at the limit of flat.
        let readings: Vec<f64> = (0..120).map(|s| 0.90 + f64::from(s) * 0.001 / 60.0).collect();
        assert!(gauge_is_flat(&readings, Duration::from_secs(1), 0.001_01));
        assert!(!gauge_is_flat(&readings, Duration::from_secs(1), 0.000_99));
    }
}
