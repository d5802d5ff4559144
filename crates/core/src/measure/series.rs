//! Series of intervals: how much they really say, because one interval resembles the next.

use super::Histogram;
use super::estimate::{Estimate, TooFew};
use crate::probability::{normal_quantile, student_quantile};
use crate::workload::Random;

/// How many independent values a series is worth for its mean: n ÷ (1 + 2 Σ ρ), the autocorrelations ρ summed
/// in pairs as long as the pairs are positive and falling (Geyer 1992, initial monotone sequence). At most n.
pub fn effective_length(series: &[f64]) -> f64 {
    let n = series.len();
    if n < 4 {
        return n as f64;
    }
    let mean = series.iter().sum::<f64>() / n as f64;
    let covariance = |lag: usize| -> f64 {
        series.iter().zip(&series[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / n as f64
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return n as f64;
    }
    let (mut sum, mut least) = (-1.0, f64::INFINITY);
    for lag in (0..n / 2).step_by(2) {
        let pair = (covariance(lag) + covariance(lag + 1)) / variance;
        if pair <= 0.0 {
            break;
        }
        least = least.min(pair);
        sum += 2.0 * least;
    }
    (n as f64 / sum.max(1.0)).max(1.0)
}

/// How many independent samples the samples of a series of intervals are worth for a share, such as that
/// above a percentile: `above[i]` of `of[i]` samples lie above it in interval i.
///
/// Batch means: intervals are gathered into about 20 batches, and the scatter of their shares is compared
/// with what independent samples would show. Never more than the samples there are. With fewer than 10
/// intervals nothing can be said, and the answer is `None`.
pub fn effective_samples(above: &[u64], of: &[u64]) -> Option<f64> {
    assert_eq!(above.len(), of.len(), "one count above for each count");
    const BATCHES: usize = 20;
    let (all_above, all) = (above.iter().sum::<u64>() as f64, of.iter().sum::<u64>() as f64);
    let share = all_above / all;
    if above.len() < 10 || all == 0.0 {
        return None;
    }
    if share <= 0.0 || share >= 1.0 {
        return Some(all);
    }
    let batch = above.len().div_ceil(BATCHES);
    let batches: Vec<(f64, f64)> = above
        .chunks(batch)
        .zip(of.chunks(batch))
        .map(|(above, of)| (above.iter().sum::<u64>() as f64, of.iter().sum::<u64>() as f64))
        .collect();
    // The variance of a ratio of sums (Cochran 1977, 6.13), over that of a share of independent samples.
    let k = batches.len() as f64;
    let squares: f64 = batches.iter().map(|(above, of)| (above - share * of).powi(2)).sum();
    let variance = squares * k / (k - 1.0) / (all * all);
    let independent = share * (1.0 - share) / all;
    Some((all * independent / variance.max(independent)).max(1.0))
}

/// The `quantile` of a histogram whose samples are worth `effective` independent ones, with its
/// order-statistics interval.
///
/// Refused where fewer than ten independent samples lie beyond the quantile. Widened from 95 % to 99 % where
/// fewer than a hundred do (p99: fewer than 10,000), because the tail is then known by so few events that it
/// takes only one more stall to move it; the basis says so.
pub fn percentile_of_correlated(
    histogram: &Histogram,
    quantile: f64,
    effective: f64,
) -> Result<Estimate, TooFew> {
    let (have, n) = (histogram.len(), effective.min(histogram.len() as f64));
    let beyond = n * (1.0 - quantile);
    // Rounding of 1 − 0.99 must not refuse the last sample that is needed.
    if beyond < 10.0 - 1e-9 {
        return Err(TooFew { have: n as u64, need: (10.0 / (1.0 - quantile) - 1e-9).ceil() as u64 });
    }
    let widened = beyond < 100.0 - 1e-9;
    let level = if widened { 0.99 } else { 0.95 };
    let half = normal_quantile(0.5 + level / 2.0) * (quantile * (1.0 - quantile) / n).sqrt();
    let at = |share: f64| histogram.value_at_quantile(share.clamp(0.0, 1.0)) as f64;
    let mut basis = format!("order statistics of {have} samples, worth {n:.0} independent ones");
    if widened {
        let wanted = (100.0 / (1.0 - quantile) - 1e-9).ceil();
        basis += &format!("; widened to 99 %, because that is fewer than {wanted:.0}");
    }
    Ok(Estimate { value: at(quantile), low: at(quantile - half), high: at(quantile + half + 1.0 / n), basis })
}

/// How a bootstrap resamples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocks {
    /// Intervals that stay together; 1 for independent values, 10 s and more for a series.
    pub length: usize,
    /// Resamples: 2,000 give the ends of a 95 % interval to a few per cent of its width.
    pub resamples: usize,
    /// Seed.
    pub seed: u64,
}

impl Blocks {
    /// Blocks for `series`: six times as long as its values remember each other, so that hardly any of the
    /// dependence is cut, but at least six blocks.
    pub fn of(series: &[f64], seed: u64) -> Blocks {
        let memory = series.len() as f64 / effective_length(series).max(1.0);
        let length = if memory < 1.2 { 1 } else { (6.0 * memory).ceil() as usize };
        Blocks { length: length.min(series.len() / 6).max(1), resamples: 2000, seed }
    }
}

/// A statistic of a series of `n` intervals with its 95 % interval by the circular block bootstrap (Politis &
/// Romano 1992). The statistic sees the places that were drawn, so that it can merge histograms and need not
/// average percentiles.
///
/// The percentile interval is too narrow by what Student's t exceeds the normal at so few blocks; it is
/// expanded by that factor (Hesterberg 2015, "expanded percentile").
///
/// # Panics
/// If there is nothing to resample, or no resample is asked for: faults of the caller.
pub fn block_bootstrap(n: usize, blocks: Blocks, statistic: impl Fn(&[usize]) -> f64) -> Estimate {
    assert!(n > 0 && blocks.length > 0 && blocks.resamples > 0, "something to resample");
    let length = blocks.length.min(n);
    let all: Vec<usize> = (0..n).collect();
    let value = statistic(&all);
    let mut places = Vec::with_capacity(n + length);
    let drawn = (0..blocks.resamples)
        .map(|resample| {
            let mut random = Random::new(blocks.seed, resample as u64);
            places.clear();
            while places.len() < n {
                let start = random.below(n as u64) as usize;
                places.extend((start..start + length).map(|place| place % n));
            }
            places.truncate(n);
            statistic(&places)
        })
        .collect();
    let many = n as f64 / length as f64;
    let basis = match length {
        1 => format!("bootstrap of {n} values"),
        _ => format!("bootstrap of {n} intervals in blocks of {length}"),
    };
    expanded(value, drawn, many, basis)
}

/// The expanded percentile interval of resampled statistics that rest on `many` independent pieces.
pub(super) fn expanded(value: f64, mut drawn: Vec<f64>, many: f64, basis: String) -> Estimate {
    if many < 2.0 {
        return Estimate {
            value,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            basis: format!("{basis}: no interval"),
        };
    }
    drawn.sort_by(f64::total_cmp);
    // The tail that a normal would need to reach as far as t does, with the n ÷ (n − 1) that resampling
    // loses.
    let reach = student_quantile(0.05, many - 1.0) * (many / (many - 1.0)).sqrt();
    let tail = crate::probability::normal(-reach);
    let last = drawn.len() - 1;
    let low = drawn[((tail * drawn.len() as f64) as usize).min(last)];
    let high = drawn[last - ((tail * drawn.len() as f64) as usize).min(last)];
    Estimate { value, low: low.min(value), high: high.max(value), basis }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram;

    /// x_t = φ x_{t−1} + noise: worth n (1 − φ)/(1 + φ) independent values.
    fn autoregressive(n: usize, phi: f64, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed, 0);
        let mut normal = || (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let mut x = normal() / (1.0 - phi * phi).sqrt();
        (0..n)
            .map(|_| {
                x = phi * x + normal();
                x
            })
            .collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn an_autocorrelated_series_is_worth_what_theory_says() {
        for phi in [0.0, 0.3, 0.7, 0.9] {
            let worth: Vec<f64> =
                (0..40).map(|seed| effective_length(&autoregressive(4000, phi, seed)) / 4000.0).collect();
            let theory = (1.0 - phi) / (1.0 + phi);
            assert!((mean(&worth) / theory - 1.0).abs() < 0.15, "φ = {phi}: {} and {theory}", mean(&worth));
        }
        assert_eq!(effective_length(&[5.0; 100]), 100.0);
    }

    #[test]
    fn bootstrap_intervals_hold_the_truth_of_correlated_series() {
        for phi in [0.0, 0.5, 0.8] {
            let held = (0..400)
                .filter(|seed| {
                    let series = autoregressive(400, phi, *seed);
                    let blocks = Blocks { resamples: 400, ..Blocks::of(&series, *seed) };
                    let e = block_bootstrap(series.len(), blocks, |places| {
                        places.iter().map(|place| series[*place]).sum::<f64>() / places.len() as f64
                    });
                    e.low <= 0.0 && 0.0 <= e.high
                })
                .count();
            println!("block bootstrap, φ = {phi}: {held} of 400");
            assert!(held * 100 >= 93 * 400, "φ = {phi}: {held} of 400");
        }
    }

    /// Latencies whose scale changes slowly: exponential within an interval. The truth is that of a very long
    /// run.
    fn slow_latencies(intervals: usize, seed: u64) -> Vec<Vec<f64>> {
        autoregressive(intervals, 0.8, seed)
            .into_iter()
            .enumerate()
            .map(|(i, x)| {
                let mut random = Random::new(seed + 1_000_000, i as u64);
                (0..400).map(|_| random.exponential(1e6 * (0.15 * x).exp())).collect()
            })
            .collect()
    }

    #[test]
    fn percentiles_of_correlated_samples_hold_the_truth_only_by_their_effective_number() {
        let truth = {
            let mut all: Vec<f64> = slow_latencies(20_000, 99).into_iter().flatten().collect();
            all.sort_by(f64::total_cmp);
            all[(0.99 * all.len() as f64) as usize]
        };
        let (mut held, mut naive_held, mut refused) = (0, 0, 0);
        const RUNS: usize = 300;
        for seed in 0..RUNS as u64 {
            let series = slow_latencies(300, seed);
            let mut all = histogram();
            series.iter().flatten().for_each(|x| all.saturating_record(*x as u64));
            let p99 = all.value_at_quantile(0.99) as f64;
            let above: Vec<u64> =
                series.iter().map(|i| i.iter().filter(|x| **x > p99).count() as u64).collect();
            let worth = effective_samples(&above, &vec![400; 300]).unwrap();
            let holds = |e: &Estimate| e.low <= truth && truth <= e.high;
            match percentile_of_correlated(&all, 0.99, worth) {
                Ok(e) => held += usize::from(holds(&e)),
                Err(_) => refused += 1,
            }
            naive_held += usize::from(holds(&super::super::percentile(&all, 0.99).unwrap()));
        }
        println!("p99 of correlated samples: {held} of {RUNS}, refused {refused}, naive {naive_held}");
        assert!(held * 100 >= 93 * (RUNS - refused) && refused < RUNS / 10, "{held} held, {refused} refused");
        assert!(naive_held * 100 < 80 * RUNS, "the naive interval holds {naive_held} of {RUNS}");
    }

    #[test]
    fn independent_samples_are_worth_themselves() {
        let worth: Vec<f64> = (0..50)
            .map(|seed| {
                let mut random = Random::new(seed, 3);
                let above: Vec<u64> =
                    (0..100).map(|_| (0..1000).filter(|_| random.unit() < 0.01).count() as u64).collect();
                effective_samples(&above, &[1000; 100]).unwrap() / 100_000.0
            })
            .collect();
        assert!(mean(&worth) > 0.8 && worth.iter().all(|w| *w <= 1.0 + 1e-9), "{}", mean(&worth));
        assert_eq!(effective_samples(&[0; 20], &[5; 20]), Some(100.0));
        assert_eq!(effective_samples(&[1; 9], &[5; 9]), None);
    }

    #[test]
    fn tails_of_few_samples_are_refused_or_widened_in_words() {
        let mut h = histogram();
        (1..=20_000u64).for_each(|n| h.saturating_record(n * 1000));
        let refused = percentile_of_correlated(&h, 0.99, 900.0).unwrap_err();
        assert_eq!(refused, TooFew { have: 900, need: 1000 });
        let widened = percentile_of_correlated(&h, 0.99, 9_999.0).unwrap();
        assert!(widened.basis.contains("fewer than 10000"), "{}", widened.basis);
        let plain = percentile_of_correlated(&h, 0.99, 10_000.0).unwrap();
        assert!(!plain.basis.contains("widened"), "{}", plain.basis);
        let half = percentile_of_correlated(&h, 0.99, 5_000.0).unwrap();
        assert!(half.low < plain.low && plain.high < half.high);
        assert!(percentile_of_correlated(&h, 0.99, 1e9).unwrap().basis.contains("worth 20000"));
        assert!(percentile_of_correlated(&h, 0.999, 20_000.0).is_ok());
        assert!(percentile_of_correlated(&h, 0.9999, 20_000.0).is_err());
    }
}
