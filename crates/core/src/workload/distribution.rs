//! Which record is asked for: request distributions as YCSB defines them (COMPATIBILITY C3).

use super::random::Random;
use super::ycsb::hash;
use serde::{Deserialize, Serialize};

/// The name of a request distribution, as it stands in plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requests {
    /// Every record alike.
    Uniform,
    /// YCSB's scrambled zipfian, bug for bug: milder than its name, see [`ScrambledZipfian`].
    Zipfian,
}

/// A distribution over record numbers 0..n, ready to draw.
#[derive(Debug, Clone)]
pub enum Distribution {
    /// Uniform over 0..records.
    Uniform {
        /// How many records there are.
        records: u64,
    },
    /// Scrambled zipfian.
    ScrambledZipfian(ScrambledZipfian),
}

impl Distribution {
    /// The distribution `requests` over 0..`records`; `records` must not be 0.
    pub fn new(requests: Requests, records: u64) -> Self {
        assert!(records > 0, "a distribution over nothing");
        match requests {
            Requests::Uniform => Distribution::Uniform { records },
            Requests::Zipfian => Distribution::ScrambledZipfian(ScrambledZipfian::new(records)),
        }
    }

    /// Draws a record number.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Distribution::Uniform { records } => random.below(*records),
            Distribution::ScrambledZipfian(zipfian) => zipfian.draw(random),
        }
    }
}

/// YCSB's ScrambledZipfianGenerator: a zipfian rank over 10¹⁰ + 1 items, hashed modulo the record count.
///
/// Because the rank space does not depend on the record count, the hottest record gets 1/26.469 = 3.78 % of
/// the requests at every database size, where a true zipfian with θ = 0.99 gives 12.9 % (10³ records) to 6.5
/// % (10⁶).
#[derive(Debug, Clone)]
pub struct ScrambledZipfian {
    records: u64,
    eta: f64,
}

impl ScrambledZipfian {
    const ITEMS: f64 = 10_000_000_001.0;
    const THETA: f64 = 0.99;
    /// Σ i^−θ over the 10¹⁰ items, a constant in YCSB's source.
    const ZETA: f64 = 26.46902820178302;
    const ZETA_2: f64 = 1.5034777750283594;

    /// Over 0..`records`.
    pub fn new(records: u64) -> Self {
        let eta = (1.0 - (2.0 / Self::ITEMS).powf(1.0 - Self::THETA)) / (1.0 - Self::ZETA_2 / Self::ZETA);
        ScrambledZipfian { records, eta }
    }

    /// Gray et al. 1994, "Quickly generating billion-record synthetic databases", figure 3.
    #[inline]
    fn rank(&self, u: f64) -> u64 {
        let uz = u * Self::ZETA;
        if uz < 1.0 {
            return 0;
        }
        if uz < Self::ZETA_2 {
            return 1;
        }
        // α = 1/(1 − θ) = 100, so x^α is six squarings and two products instead of a call to pow.
        let x = self.eta * u - self.eta + 1.0;
        let x4 = (x * x) * (x * x);
        let x16 = (x4 * x4) * (x4 * x4);
        let x32 = x16 * x16;
        (Self::ITEMS * (x32 * x32 * x32 * x4)) as u64
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        hash(self.rank(random.unit())) % self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(distribution: &Distribution, records: usize, draws: u64) -> Vec<f64> {
        let mut counts = vec![0f64; records];
        for n in 0..draws {
            counts[distribution.draw(&mut Random::new(11, n)) as usize] += 1.0 / draws as f64;
        }
        counts.sort_by(|a, b| b.total_cmp(a));
        counts
    }

    #[test]
    fn the_hottest_scrambled_record_gets_3_8_percent_at_every_size() {
        for records in [1_000usize, 100_000] {
            let top = shares(&Distribution::new(Requests::Zipfian, records as u64), records, 400_000)[0];
            assert!((top - 0.0378).abs() < 0.0025, "{records} records: {top}");
        }
    }

    #[test]
    fn uniform_is_uniform() {
        let counts = shares(&Distribution::new(Requests::Uniform, 100), 100, 200_000);
        let chi: f64 = counts.iter().map(|share| (share * 200_000.0 - 2000.0).powi(2) / 2000.0).sum();
        assert!(chi < 148.2, "chi-square {chi}, 0.1 % point of 99 degrees of freedom is 148.2");
    }

    #[test]
    fn powers_by_squaring_equal_pow() {
        let zipfian = ScrambledZipfian::new(1000);
        for i in 0..1000 {
            let u = (f64::from(i) + 0.5) / 1000.0;
            let by_pow = (ScrambledZipfian::ITEMS * (zipfian.eta * u - zipfian.eta + 1.0).powf(100.0)) as u64;
            let rank = zipfian.rank(u);
            if rank > 1 {
                assert!(rank.abs_diff(by_pow) <= 1 + by_pow / 1_000_000_000, "u = {u}: {rank}, {by_pow}");
            }
        }
    }
}
