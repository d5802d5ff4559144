//! What the intervals of one trial say about its figures: whether it was at rest, and how much they are worth
//! although one operation resembles the next. The only interval that a single trial can have.

use super::book::Books;
use super::estimate::{Estimate, TooFew};
use super::series::{Blocks, block_bootstrap, effective_samples, percentile_of_correlated};
use super::steadiness::{SteadyJudgement, SteadyRule, steadiness};
use crate::record::Interval;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Fewest intervals that a bootstrap of their mean can resample with sense.
const LEAST: usize = 10;
/// The percentiles that a trial is asked for.
const QUANTILES: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

/// What one trial knows about its own figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Within {
    /// Whether its throughput was at rest.
    pub steadiness: SteadyJudgement,
    /// Operations done per second, its interval by the block bootstrap; `None` with too few intervals. It
    /// says nothing about the next trial.
    pub throughput: Option<Estimate>,
    /// Percentiles of residence in nanoseconds.
    pub percentiles: Vec<WithinPercentile>,
}

/// One percentile of residence within a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithinPercentile {
    /// 0.99 for p99.
    pub quantile: f64,
    /// How many independent samples the samples are worth for it; `None` with too few intervals.
    pub effective: Option<f64>,
    /// The percentile with its interval, in nanoseconds; `None` where too few independent samples lie beyond
    /// it.
    pub estimate: Option<Estimate>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Within {
    /// From the intervals of the measured phase.
    ///
    /// # Errors
    /// When their latencies cannot be read.
    pub fn of(intervals: &[&Interval]) -> Result<Within, String> {
        let books = intervals
            .iter()
            .map(|interval| Books::from_text(&interval.books))
            .collect::<Result<Vec<Books>, String>>()?;
        let seconds: Vec<f64> =
            intervals.iter().map(|interval| interval.end.since(interval.begin).as_secs_f64()).collect();
        let rates: Vec<f64> = books
            .iter()
            .zip(&seconds)
            .map(|(books, seconds)| if *seconds > 0.0 { books.done() as f64 / seconds } else { 0.0 })
            .collect();
        let apart = Duration::from_secs_f64(seconds.iter().sum::<f64>() / rates.len().max(1) as f64);
        let rule = SteadyRule { interval: Some(apart), ..SteadyRule::default() };
        let mut judged = steadiness(&rates, &rule);
        judged.evidence += &format!(" (values of {} ms)", apart.as_millis());
        let throughput = (rates.len() >= LEAST).then(|| {
            let mut estimate = block_bootstrap(rates.len(), Blocks::of(&rates, 1), |places| {
                let (done, time) = places.iter().fold((0.0, 0.0), |(done, time), &at| {
                    (done + rates[at] * seconds[at], time + seconds[at])
                });
                if time > 0.0 { done / time } else { 0.0 }
            });
            estimate.basis = format!("within one trial: {}", estimate.basis);
            estimate
        });
        Ok(Within { steadiness: judged, throughput, percentiles: percentiles(&books) })
    }

    /// The percentile in nanoseconds, or how many independent samples there are and would have to be; `None`
    /// where the trial has too few intervals to say, or was not asked for it.
    pub fn of_quantile(&self, quantile: f64) -> Option<Result<Estimate, TooFew>> {
        let found = self.percentiles.iter().find(|p| (p.quantile - quantile).abs() < 1e-9)?;
        let effective = found.effective?;
        let need = (10.0 / (1.0 - quantile) - 1e-9).ceil() as u64;
        Some(found.estimate.clone().ok_or(TooFew { have: effective as u64, need }))
    }
}

fn percentiles(books: &[Books]) -> Vec<WithinPercentile> {
    let histograms: Vec<_> = books.iter().map(Books::residence).collect();
    let mut merged = super::histogram();
    for histogram in &histograms {
        merged.add(histogram).expect("all histograms have the same bounds");
    }
    let of = |quantile: f64| {
        let at = merged.value_at_quantile(quantile);
        let above: Vec<u64> = histograms.iter().map(|h| h.len() - h.count_between(0, at)).collect();
        let all: Vec<u64> = histograms.iter().map(|h| h.len()).collect();
        let effective = effective_samples(&above, &all);
        let (estimate, refused) = match effective {
            None => (
                None,
                Some(format!("{} intervals say nothing about how samples depend on each other", all.len())),
            ),
            Some(effective) => match percentile_of_correlated(&merged, quantile, effective) {
                Ok(estimate) => (Some(estimate), None),
                Err(few) => {
                    (None, Some(format!("worth only {} independent samples: {few}", effective as u64)))
                }
            },
        };
        WithinPercentile { quantile, effective, estimate, refused }
    };
    if merged.is_empty() { vec![] } else { QUANTILES.map(of).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Steadiness;
    use crate::op::{OpKind, Outcome, Timing};
    use crate::record::Phase;
    use crate::units::Tick;
    use crate::workload::Random;

    /// Intervals of 100 ms with these numbers of operations, latencies exponential with a mean of 2 ms.
    fn intervals(counts: impl Iterator<Item = u64>) -> Vec<Interval> {
        let mut random = Random::new(1, 0);
        let ms = |n: usize| Tick(n as u64 * 100_000_000);
        let interval = |(n, count): (usize, u64)| {
            let mut books = Books::closed();
            for _ in 0..count {
                let took = Tick((random.exponential(2e6)) as u64 + 1);
                let timing = Timing { due: Tick(0), began: Tick(0), ended: took };
                books.record(OpKind::Read, Outcome::Done, &timing, 0);
            }
            Interval {
                phase: Phase::Measure,
                begin: ms(n),
                end: ms(n + 1),
                books: books.to_text(),
                offered: None,
                samples: Default::default(),
                disk: None,
                nodes: Default::default(),
            }
        };
        counts.enumerate().map(interval).collect()
    }

    fn within(counts: impl Iterator<Item = u64>) -> Within {
        let intervals = intervals(counts);
        Within::of(&intervals.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn one_trial_has_intervals_that_hold_the_truth() {
        let it = within((0..100).map(|n| 95 + n * 7 % 11));
        let throughput = it.throughput.as_ref().unwrap();
        assert!(throughput.low < 1000.0 && 1000.0 < throughput.high, "{throughput:?}");
        assert!(throughput.high - throughput.low < 50.0, "{throughput:?}");
        assert!(matches!(it.steadiness.verdict, Steadiness::Steady { .. }), "{:?}", it.steadiness);
        // The p99 of an exponential is its mean times ln 100.
        let p99 = it.of_quantile(0.99).unwrap().unwrap();
        assert!(p99.low < 2e6 * 100f64.ln() && 2e6 * 100f64.ln() < p99.high, "{p99:?}");
        let rare = it.percentiles.iter().find(|p| p.quantile == 0.999).unwrap();
        assert!(rare.estimate.is_some() || rare.refused.as_ref().unwrap().contains("independent"));
    }

    #[test]
    fn a_trial_that_slows_down_says_so_and_a_short_one_says_nothing() {
        let slowing = within((0..100).map(|n| 150 - n));
        assert!(
            matches!(slowing.steadiness.verdict, Steadiness::SlowingDown { .. }),
            "{:?}",
            slowing.steadiness
        );
        assert!(slowing.steadiness.evidence.contains("values of 100 ms"), "{}", slowing.steadiness.evidence);
        let short = within([5u64; 4].into_iter());
        assert_eq!(short.steadiness.verdict, Steadiness::TooShort);
        assert!(short.throughput.is_none() && short.of_quantile(0.5).is_none());
        assert!(short.percentiles[0].refused.as_ref().unwrap().contains("4 intervals"));
        assert!(within(std::iter::empty()).percentiles.is_empty());
    }
}
