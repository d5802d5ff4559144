//! Zipfian ranks: by Gray's approximation, as YCSB draws them, and exactly.

use super::random::Random;
use std::sync::LazyLock;

/// Σ i^−θ for i = 1..n in constant time, by the Euler–Maclaurin formula from the 64th term on (relative error
/// below 10⁻¹³).
#[derive(Debug, Clone, Copy)]
pub(super) struct Zeta {
    theta: f64,
    /// What does not depend on n, so that the sum is this plus a function of n.
    constant: f64,
}

impl Zeta {
    const SUMMED: u64 = 64;

    /// For exponent `theta`.
    pub(super) fn new(theta: f64) -> Self {
        let head: f64 = (1..=Self::SUMMED).map(|i| (i as f64).powf(-theta)).sum();
        let zeta = Zeta { theta, constant: 0.0 };
        Zeta { constant: head - zeta.of_n(Self::SUMMED), ..zeta }
    }

    fn of_n(&self, n: u64) -> f64 {
        let (theta, n) = (self.theta, n as f64);
        let term = n.powf(-theta);
        let integral = if (theta - 1.0).abs() < 1e-12 { n.ln() } else { n * term / (1.0 - theta) };
        let third = theta * (theta + 1.0) * (theta + 2.0) / 720.0;
        integral + term / 2.0 - theta * term / (12.0 * n) + third * term / (n * n * n)
    }

    /// The sum of `n` terms.
    pub(super) fn sum(&self, n: u64) -> f64 {
        if n < Self::SUMMED {
            return (1..=n).map(|i| (i as f64).powf(-self.theta)).sum();
        }
        self.constant + self.of_n(n)
    }
}

/// x¹⁰⁰ by six squarings and two products instead of a call to pow: α = 1/(1 − θ) = 100 for YCSB's θ.
#[inline]
pub(super) fn hundredth_power(x: f64) -> f64 {
    let x4 = (x * x) * (x * x);
    let x16 = (x4 * x4) * (x4 * x4);
    let x32 = x16 * x16;
    x32 * x32 * x32 * x4
}

/// Lengths are drawn from zipfians that are made on the spot, so what they share is computed once.
static YCSB_ZETA: LazyLock<Zeta> = LazyLock::new(|| Zeta::new(GrayZipfian::THETA));

/// YCSB's ZipfianGenerator with θ = 0.99: Gray et al. 1994, "Quickly generating billion-record synthetic
/// databases", figure 3. The number of items may change between draws.
#[derive(Debug, Clone)]
pub struct GrayZipfian {
    zeta: Zeta,
    items: u64,
    sum: f64,
    /// 1 − (2/items)^(1 − θ): YCSB keeps the first number of items here when the number grows.
    numerator: f64,
}

impl GrayZipfian {
    const THETA: f64 = 0.99;
    const ZETA_2: f64 = 1.5034777750283594;

    /// At first over `items`.
    pub fn new(items: u64) -> Self {
        let zeta = *YCSB_ZETA;
        let numerator = 1.0 - (2.0 / items as f64).powf(1.0 - Self::THETA);
        GrayZipfian { zeta, items, sum: zeta.sum(items), numerator }
    }

    /// Draws a rank of 0..`items`; 0 is the likeliest.
    #[inline]
    pub fn draw(&self, items: u64, random: &mut Random) -> u64 {
        let sum = if items == self.items { self.sum } else { self.zeta.sum(items) };
        let u = random.unit();
        let uz = u * sum;
        if uz < 1.0 || items < 2 {
            return 0;
        }
        if uz < Self::ZETA_2 {
            return 1;
        }
        let eta = self.numerator / (1.0 - Self::ZETA_2 / sum);
        ((items as f64 * hundredth_power(eta * u - eta + 1.0)) as u64).min(items - 1)
    }

    /// The exact probability of `rank` among `items`: the length of the interval of u that is mapped to it.
    pub fn probability(&self, items: u64, rank: u64) -> f64 {
        let sum = self.zeta.sum(items);
        let eta = self.numerator / (1.0 - Self::ZETA_2 / sum);
        let below = |rank: u64| -> f64 {
            match rank {
                0 => 0.0,
                rank if rank >= items => 1.0,
                1 => 1.0 / sum,
                _ => {
                    let tail = ((rank as f64 / items as f64).powf(1.0 - Self::THETA) - 1.0 + eta) / eta;
                    tail.clamp(Self::ZETA_2 / sum, 1.0)
                }
            }
        };
        // After growth some ranks from 2 on are never drawn: that is YCSB's, too.
        below(rank + 1) - below(rank)
    }
}

/// Exact zipfian ranks 1..=n with any θ ≥ 0, without a table: rejection-inversion, Hörmann and Derflinger
/// 1996, "Rejection-inversion to generate variates from monotone discrete distributions".
#[derive(Debug, Clone)]
pub struct Zipf {
    items: u64,
    theta: f64,
    lowest: f64,
    highest: f64,
    surely: f64,
}

impl Zipf {
    /// Over ranks 1..=`items`.
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0 && theta >= 0.0, "ranks need items and an exponent");
        let mut zipf = Zipf { items, theta, lowest: 0.0, highest: 0.0, surely: 0.0 };
        zipf.lowest = zipf.integral(1.5) - 1.0;
        zipf.highest = zipf.integral(items as f64 + 0.5);
        zipf.surely = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-theta));
        zipf
    }

    /// ∫ x^−θ from 1.
    #[inline]
    fn integral(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        if exponent.abs() < 1e-9 { x.ln() } else { (exponent * x.ln()).exp_m1() / exponent }
    }

    #[inline]
    fn inverse(&self, area: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        if exponent.abs() < 1e-9 {
            area.exp()
        } else {
            ((area * exponent).max(-1.0).ln_1p() / exponent).exp()
        }
    }

    /// Draws a rank; 1 is the likeliest.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.highest + random.unit() * (self.lowest - self.highest);
            let x = self.inverse(area);
            let rank = ((x + 0.5) as u64).clamp(1, self.items);
            let k = rank as f64;
            if k - x <= self.surely || area >= self.integral(k + 0.5) - (-self.theta * k.ln()).exp() {
                return rank;
            }
        }
    }
}

/// A fixed permutation of 0..n: a generalised Feistel network (Black and Rogaway 2002, "Ciphers with
/// arbitrary finite domains") over a × b ≥ n, walked until it falls into the domain. The same for all seeds:
/// which records are hot belongs to the data.
#[derive(Debug, Clone)]
pub struct Permutation {
    items: u64,
    left: u64,
    right: u64,
}

impl Permutation {
    /// Of 0..`items`.
    pub fn new(items: u64) -> Self {
        assert!(items > 0, "a permutation of nothing");
        let left = (items as f64).sqrt().ceil().max(1.0) as u64;
        Permutation { items, left, right: items.div_ceil(left) }
    }

    /// Where `item` goes.
    #[inline]
    pub fn apply(&self, item: u64) -> u64 {
        let mut item = item;
        loop {
            let (mut l, mut r) = (item % self.left, item / self.left);
            for round in 0..2 {
                l += Random::new(0x5EED_0F5C_4A3B_1E00 + round, r).below(self.left);
                l -= if l >= self.left { self.left } else { 0 };
                r += Random::new(0xFE15_7E15_0000_0000 + round, l).below(self.right);
                r -= if r >= self.right { self.right } else { 0 };
            }
            item = r * self.left + l;
            if item < self.items {
                return item;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sums_are_those_of_the_terms() {
        for theta in [0.0, 0.3, 0.99, 1.0, 2.5] {
            let zeta = Zeta::new(theta);
            let mut sum = 0.0;
            for n in 1..=20_000u64 {
                sum += (n as f64).powf(-theta);
                if n % 997 == 0 || n < 70 {
                    assert!((zeta.sum(n) / sum - 1.0).abs() < 1e-12, "θ {theta}, {n}: {}", zeta.sum(n));
                }
            }
        }
        // The constant in YCSB's source is the sum over 10^10 items.
        assert!((Zeta::new(0.99).sum(10_000_000_000) - 26.46902820178302).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn a_permutation_hits_everything_once(items in 1..3000u64) {
            let permutation = Permutation::new(items);
            let mut hit = vec![false; items as usize];
            for item in 0..items {
                prop_assert!(!std::mem::replace(&mut hit[permutation.apply(item) as usize], true));
            }
        }
    }

    #[test]
    fn a_permutation_scatters_neighbours() {
        // The thousand hottest of a million: how many fall into each of ten parts. χ², 9 degrees of freedom,
        // 0.1 % point 27.9.
        let permutation = Permutation::new(1_000_000);
        let mut parts = [0f64; 10];
        (0..1000).for_each(|rank| parts[(permutation.apply(rank) / 100_000) as usize] += 1.0);
        let chi: f64 = parts.iter().map(|count| (count - 100.0).powi(2) / 100.0).sum();
        assert!(chi < 27.9, "{chi}: {parts:?}");
    }
}
