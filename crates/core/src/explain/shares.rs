//! How much of the traffic the hottest keys get, by distribution. Exact sums, but for YCSB's scrambled
//! zipfian, whose heavy ranks are hashed as YCSB does and whose light ones are added as what they scatter to.

use crate::workload::{Random, ycsb};
use serde::Serialize;

/// One distribution over a number of keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shares {
    /// Its name.
    pub distribution: &'static str,
    /// Where the hot keys lie.
    pub hot_keys: &'static str,
    /// Share of the traffic that the hottest key gets.
    pub hottest: f64,
    /// Of the hottest 1 %.
    pub of_1_percent: f64,
    /// Of the hottest 10 %.
    pub of_10_percent: f64,
    /// Of the hottest 50 %.
    pub of_50_percent: f64,
}

/// More keys than the scrambled zipfian can be computed for, or too few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} keys: between 100 and 10,000,000 can be computed")]
pub struct TooManyKeys(pub u64);

/// The distributions over `keys` keys; `theta` is that of the true zipfian.
///
/// The scrambled zipfian ignores `theta`, as YCSB's does unless one waits for 10¹⁰ terms. Its error is below
/// 1 % of the figure: light ranks (a third of the traffic) are taken as normally scattered over keys, from a
/// fixed seed.
pub fn shares(keys: u64, theta: f64) -> Result<Vec<Shares>, TooManyKeys> {
    if !(100..=10_000_000).contains(&keys) {
        return Err(TooManyKeys(keys));
    }
    let n = keys as f64;
    let table = |distribution, hot_keys, of: &dyn Fn(f64) -> f64| Shares {
        distribution,
        hot_keys,
        hottest: of(1.0),
        of_1_percent: of((0.01 * n).round()),
        of_10_percent: of((0.1 * n).round()),
        of_50_percent: of((0.5 * n).round()),
    };
    let mut scrambled = scrambled_loads(keys);
    scrambled.sort_unstable_by(|a, b| b.total_cmp(a));
    let zipfian = |theta: f64| {
        let all = harmonic(n, theta);
        move |k: f64| harmonic(k, theta) / all
    };
    // YCSB's defaults: hotspotdatafraction and hotspotopnfraction; exponential.percentile and .frac.
    let hotspot = |k: f64| {
        let hot = (0.2 * n).floor();
        if k <= hot { 0.8 * k / hot } else { 0.8 + 0.2 * (k - hot) / (n - hot) }
    };
    let gamma = -(0.05f64.ln()) / (n * 0.857_142_857_1);
    let exponential = |k: f64| (-gamma * k).exp_m1() / (-gamma * n).exp_m1();
    Ok(vec![
        table("uniform", "none", &|k| k / n),
        table("zipfian as YCSB draws it (scrambled)", "scattered", &|k| top(&scrambled, k)),
        table("zipfian, true", "scattered", &zipfian(theta)),
        table("latest", "the newest", &zipfian(0.99)),
        table("hotspot, 80 % to 20 %", "a range of key numbers", &hotspot),
        table("exponential, 95 % to 85.7 %", "the newest", &exponential),
    ])
}

/// Σ i^−θ for i = 1..n: the first thousand terms, then Euler and Maclaurin, whose next term is below 10⁻¹⁴.
fn harmonic(n: f64, theta: f64) -> f64 {
    const TERMS: f64 = 1000.0;
    let first: f64 = (1..=n.min(TERMS) as u64).map(|i| (i as f64).powf(-theta)).sum();
    if n <= TERMS {
        return first;
    }
    let integral = match 1.0 - theta {
        0.0 => (n / TERMS).ln(),
        power => (n.powf(power) - TERMS.powf(power)) / power,
    };
    let ends = (n.powf(-theta) - TERMS.powf(-theta)) / 2.0;
    let bend = theta / 12.0 * (TERMS.powf(-theta - 1.0) - n.powf(-theta - 1.0));
    first + integral + ends + bend
}

/// YCSB's inner zipfian: 10¹⁰ + 1 items, Gray's approximation with its constants (COMPATIBILITY C3).
const ITEMS: f64 = 10_000_000_001.0;
const ZETA: f64 = 26.469_028_201_783_02;
const ZETA_2: f64 = 1.503_477_775_028_359_4;

/// P(rank < r) under Gray's approximation, for r ≥ 0.
fn below_rank(r: f64) -> f64 {
    let eta = (1.0 - (2.0 / ITEMS).powf(0.01)) / (1.0 - ZETA_2 / ZETA);
    let from_formula = |r: f64| ((r / ITEMS).powf(0.01) - 1.0 + eta) / eta;
    match r {
        r if r <= 0.0 => 0.0,
        r if r <= 1.0 => 1.0 / ZETA,
        // The formula takes over where the two special ranks end; what it maps below 2 is there already.
        r => from_formula(r).clamp(ZETA_2 / ZETA, 1.0),
    }
}

/// The traffic of each key, in the order of keys.
pub(crate) fn scrambled_loads(keys: u64) -> Vec<f64> {
    // Three ranks per key, and a million at least: the rest is so light that only its sum matters.
    let heavy = (3 * keys).max(1_000_000);
    let mut loads = vec![0.0; keys as usize];
    let mut before = 0.0;
    let mut squares = 0.0;
    for rank in 0..heavy {
        let up_to = below_rank(rank as f64 + 1.0);
        loads[(ycsb::hash(rank) % keys) as usize] += up_to - before;
        before = up_to;
    }
    // Σ p² of the light ranks, in pieces that double.
    let mut from = heavy as f64;
    while from < ITEMS {
        let to = (2.0 * from).min(ITEMS);
        let mass = below_rank(to) - below_rank(from);
        squares += mass * mass / (to - from);
        from = to;
    }
    let n = keys as f64;
    let (mean, deviation) = ((1.0 - before) / n, (squares / n).sqrt());
    for (key, load) in loads.iter_mut().enumerate() {
        let mut random = Random::new(20, key as u64);
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        *load += (mean + deviation * normal).max(0.0);
    }
    let all: f64 = loads.iter().sum();
    loads.iter_mut().for_each(|load| *load /= all);
    loads
}

fn top(loads: &[f64], k: f64) -> f64 {
    loads[..(k as usize).min(loads.len())].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::distribution::{Distribution, Requests, Span};

    fn of(keys: u64, distribution: &str) -> Shares {
        shares(keys, 0.99).unwrap().into_iter().find(|s| s.distribution.starts_with(distribution)).unwrap()
    }

    #[test]
    fn sums_are_right_to_the_last_digit() {
        for (n, theta) in [(10.0, 0.99), (1000.0, 1.0), (123_456.0, 0.5), (1e6, 1.3), (50_000.0, 1.0)] {
            let direct: f64 = (1..=n as u64).map(|i| (i as f64).powf(-theta)).sum();
            assert!((harmonic(n, theta) / direct - 1.0).abs() < 1e-11, "{n} {theta}");
        }
        // The constant in YCSB's source, which was summed by brute force over 10¹⁰ items.
        assert!((harmonic(1e10, 0.99) - ZETA).abs() < 1e-5, "{}", harmonic(1e10, 0.99));
    }

    /// COMPATIBILITY C3: the hottest key of a true zipfian, and of YCSB's.
    #[test]
    fn the_hottest_key_is_as_published() {
        for (keys, hottest) in [(1_000, 0.129), (100_000, 0.078), (1_000_000, 0.065)] {
            assert!((of(keys, "zipfian, true").hottest - hottest).abs() < 0.0006, "{keys}");
            let scrambled = of(keys, "zipfian as").hottest;
            assert!((0.0377..0.0395).contains(&scrambled), "{keys}: {scrambled}");
        }
    }

    /// Against the generator itself: the shares of the hottest keys by count, which are known to a few parts
    /// in a thousand with that many draws on that few keys.
    #[test]
    fn the_scrambled_table_is_what_the_generator_draws() {
        const KEYS: u64 = 2000;
        const DRAWS: u64 = 3_000_000;
        // As in YCSB the generator draws from one number more than there are records.
        let span = Span { first: 0, count: KEYS - 1, total: KEYS - 1, guessed_inserts: 0 };
        let generator = Distribution::new(Requests::Zipfian, span);
        let mut counts = vec![0f64; KEYS as usize];
        for n in 0..DRAWS {
            counts[generator.draw(n, &mut Random::new(5, n), KEYS) as usize] += 1.0 / DRAWS as f64;
        }
        counts.sort_unstable_by(|a, b| b.total_cmp(a));
        let table = of(KEYS, "zipfian as");
        for (k, share) in [
            (1.0, table.hottest),
            (20.0, table.of_1_percent),
            (200.0, table.of_10_percent),
            (1000.0, table.of_50_percent),
        ] {
            let drawn = top(&counts, k);
            assert!((share / drawn - 1.0).abs() < 0.01, "hottest {k}: {share} computed, {drawn} drawn");
        }
    }

    #[test]
    fn simple_distributions_are_arithmetic() {
        let hotspot = of(1000, "hotspot");
        assert!((hotspot.of_10_percent - 0.4).abs() < 1e-12 && (hotspot.of_50_percent - 0.875).abs() < 1e-12);
        let uniform = of(1000, "uniform");
        assert_eq!((uniform.hottest, uniform.of_50_percent), (0.001, 0.5));
        // 95 % lie within 85.7 %, of what lies within 100 %: 96.97 %.
        let gamma = -(0.05f64.ln()) / 0.857_142_857_1;
        let exponential = of(1000, "exponential");
        let wanted = (1.0 - (-gamma * 0.5f64).exp()) / (1.0 - (-gamma).exp());
        assert!((exponential.of_50_percent - wanted).abs() < 1e-12);
    }

    #[test]
    fn more_keys_never_get_less_and_nothing_exceeds_the_whole() {
        for keys in [100, 12_345, 500_000] {
            for theta in [0.0, 0.5, 0.99, 1.0, 2.0] {
                for row in shares(keys, theta).unwrap() {
                    let row_of = [row.hottest, row.of_1_percent, row.of_10_percent, row.of_50_percent, 1.0];
                    assert!(row_of.is_sorted() && row.hottest > 0.0, "{keys} {theta}: {row:?}");
                    assert!(row.of_50_percent >= 0.5 - 1e-9, "{keys} {theta}: {row:?}");
                }
            }
        }
        assert!(shares(99, 0.99).is_err() && shares(10_000_001, 0.99).is_err());
    }
}
