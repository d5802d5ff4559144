//! Which record is asked for: request distributions as YCSB defines them (COMPATIBILITY C3), and a zipfian
//! that is one.

use super::random::Random;
use super::ycsb::hash;
use super::zipf::{GrayZipfian, Permutation, Zipf};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The name of a request distribution and its parameters, as they stand in plans. Printed in the syntax that
/// it is parsed from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Requests {
    /// `uniform`: every record alike.
    Uniform,
    /// `zipfian`: YCSB's scrambled zipfian, bug for bug: milder than its name, see [`ScrambledZipfian`].
    Zipfian,
    /// `zipfian-true 0.8`: the record of rank k gets a share proportional to k^−θ, whatever θ ≥ 0 and however
    /// many records there are. Which record has which rank is scrambled.
    ZipfianTrue(f64),
    /// `latest`: zipfian with θ = 0.99 from the newest record backwards.
    Latest,
    /// `hotspot 0.2 0.8`: the first 20 % of the record numbers get 80 % of the requests.
    Hotspot {
        /// Share of the records that are hot.
        records: f64,
        /// Share of the requests that go to them.
        requests: f64,
    },
    /// `sequential`: one record after the other, then again from the first.
    Sequential,
    /// `exponential 95 0.857`: the newest 85.7 % of the records get 95 % of the requests, and newer ones more
    /// than older ones.
    Exponential {
        /// Per cent of the requests,
        percentile: f64,
        /// that go to this share of the records.
        fraction: f64,
    },
}

impl Requests {
    /// YCSB's default θ.
    pub const THETA: f64 = 0.99;
    /// YCSB's default hotspot.
    pub const HOTSPOT: Requests = Requests::Hotspot { records: 0.2, requests: 0.8 };
    /// YCSB's default exponential; its comment says 1/7, its code 6/7.
    pub const EXPONENTIAL: Requests = Requests::Exponential { percentile: 95.0, fraction: 0.857_142_857_1 };
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requests::Uniform => f.write_str("uniform"),
            Requests::Zipfian => f.write_str("zipfian"),
            Requests::ZipfianTrue(theta) => write!(f, "zipfian-true {theta}"),
            Requests::Latest => f.write_str("latest"),
            Requests::Hotspot { records, requests } => write!(f, "hotspot {records} {requests}"),
            Requests::Sequential => f.write_str("sequential"),
            Requests::Exponential { percentile, fraction } => {
                write!(f, "exponential {percentile} {fraction}")
            }
        }
    }
}

impl FromStr for Requests {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default().to_ascii_lowercase().replace('_', "-");
        let mut numbers = Vec::new();
        for word in words {
            let number: f64 = word.parse().map_err(|_| format!("{text:?}: {word:?} is not a number"))?;
            if !number.is_finite() || number < 0.0 {
                return Err(format!("{text:?}: {word} is out of range"));
            }
            numbers.push(number);
        }
        let share = |x: f64| {
            if x <= 1.0 { Ok(x) } else { Err(format!("{text:?}: {x} is no share between 0 and 1")) }
        };
        match (name.as_str(), numbers.as_slice()) {
            ("uniform", []) => Ok(Requests::Uniform),
            ("zipfian", []) => Ok(Requests::Zipfian),
            ("zipfian", [_]) => {
                Err(format!("{text:?}: YCSB's zipfian has no parameter; \"zipfian-true\" takes one"))
            }
            ("zipfian-true", []) => Ok(Requests::ZipfianTrue(Self::THETA)),
            ("zipfian-true", [theta]) if *theta <= 20.0 => Ok(Requests::ZipfianTrue(*theta)),
            ("latest", []) => Ok(Requests::Latest),
            ("hotspot", []) => Ok(Self::HOTSPOT),
            ("hotspot", [records, requests]) => {
                Ok(Requests::Hotspot { records: share(*records)?, requests: share(*requests)? })
            }
            ("sequential", []) => Ok(Requests::Sequential),
            ("exponential", []) => Ok(Self::EXPONENTIAL),
            ("exponential", [percentile, fraction])
                if (0.0..100.0).contains(percentile) && *percentile > 0.0 && *fraction > 0.0 =>
            {
                Ok(Requests::Exponential { percentile: *percentile, fraction: *fraction })
            }
            ("uniform" | "zipfian-true" | "latest" | "hotspot" | "sequential" | "exponential", _) => {
                Err(format!("{text:?} has the wrong parameters: {}", Self::EXAMPLES))
            }
            _ => Err(crate::experiment::unknown(
                "request distribution",
                &name,
                &["uniform", "zipfian", "zipfian-true", "latest", "hotspot", "sequential", "exponential"],
            )),
        }
    }
}

impl Requests {
    const EXAMPLES: &str =
        "write for example \"zipfian-true 0.8\", \"hotspot 0.2 0.8\" or \"exponential 95 0.857\"";
}

impl Serialize for Requests {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Requests {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The records that a distribution is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first that is asked for (`insertstart`).
    pub first: u64,
    /// How many from there on (`insertcount`).
    pub count: u64,
    /// How many records there are in all (`recordcount`); inserts go on from here.
    pub total: u64,
    /// How many more may be inserted, as YCSB guesses: operations × share of inserts × 2.
    pub guessed_inserts: u64,
}

impl Span {
    /// All of `records`, and none will be inserted.
    pub fn all(records: u64) -> Self {
        Span { first: 0, count: records, total: records, guessed_inserts: 0 }
    }
}

/// A distribution over record numbers, ready to draw.
#[derive(Debug, Clone)]
pub enum Distribution {
    /// Uniform over `count` records from `first` on.
    Uniform {
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Scrambled zipfian.
    ScrambledZipfian(ScrambledZipfian),
    /// True zipfian.
    ZipfianTrue {
        /// The first record.
        first: u64,
        /// Over ranks.
        ranks: Zipf,
        /// From ranks to records.
        scramble: Permutation,
    },
    /// Zipfian from the newest record backwards.
    Latest(GrayZipfian),
    /// Two uniform parts.
    Hotspot {
        /// The first record.
        first: u64,
        /// How many are hot,
        hot: u64,
        /// and how many are not.
        cold: u64,
        /// Share of the requests that go to the hot ones.
        share: f64,
    },
    /// One after the other.
    Sequential {
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Exponential from the newest record backwards, with this mean distance.
    Exponential(f64),
}

impl Distribution {
    /// The distribution `requests` over `span`, which must not be empty.
    pub fn new(requests: Requests, span: Span) -> Self {
        assert!(span.count > 0, "a distribution over nothing");
        let Span { first, count, total, guessed_inserts } = span;
        match requests {
            Requests::Uniform => Distribution::Uniform { first, count },
            Requests::Zipfian => {
                // One more than there are, as in YCSB, where the last number is included; see `Ycsb` for
                // what becomes of numbers that do not exist.
                let items = count.saturating_add(guessed_inserts).saturating_add(1);
                Distribution::ScrambledZipfian(ScrambledZipfian::new(first, items))
            }
            Requests::ZipfianTrue(theta) => {
                let items = count.saturating_add(guessed_inserts);
                Distribution::ZipfianTrue {
                    first,
                    ranks: Zipf::new(items, theta),
                    scramble: Permutation::new(items),
                }
            }
            Requests::Latest => Distribution::Latest(GrayZipfian::new(total.saturating_sub(1).max(1))),
            Requests::Hotspot { records, requests } => {
                let hot = (count as f64 * records) as u64;
                let share = match hot {
                    0 => 0.0,
                    hot if hot == count => 1.0,
                    _ => requests,
                };
                Distribution::Hotspot { first, hot, cold: count - hot, share }
            }
            Requests::Sequential => Distribution::Sequential { first, count },
            Requests::Exponential { percentile, fraction } => {
                Distribution::Exponential(total as f64 * fraction / -(1.0 - percentile / 100.0).ln())
            }
        }
    }

    /// Draws a record number for operation `n`, when the records below `known` exist. It may be one that does
    /// not exist yet; then draw again.
    #[inline]
    pub fn draw(&self, n: u64, random: &mut Random, known: u64) -> u64 {
        match self {
            Distribution::Uniform { first, count } => first + random.below(*count),
            Distribution::ScrambledZipfian(zipfian) => zipfian.draw(random),
            Distribution::ZipfianTrue { first, ranks, scramble } => {
                first + scramble.apply(ranks.draw(random) - 1)
            }
            Distribution::Latest(zipfian) => {
                let newest = known.saturating_sub(1);
                newest - zipfian.draw(newest.max(1), random).min(newest)
            }
            Distribution::Hotspot { first, hot, cold, share } => {
                if random.unit() < *share {
                    first + random.below(*hot)
                } else {
                    first + hot + random.below((*cold).max(1))
                }
            }
            Distribution::Sequential { first, count } => first + n % count,
            Distribution::Exponential(mean) => {
                let newest = known.saturating_sub(1);
                loop {
                    let back = random.exponential(*mean);
                    if back < newest as f64 + 1.0 {
                        return newest - (back as u64).min(newest);
                    }
                }
            }
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
    first: u64,
    items: u64,
    eta: f64,
}

impl ScrambledZipfian {
    const RANKS: f64 = 10_000_000_001.0;
    const THETA: f64 = 0.99;
    /// Σ i^−θ over the 10¹⁰ ranks, a constant in YCSB's source.
    const ZETA: f64 = 26.46902820178302;
    const ZETA_2: f64 = 1.5034777750283594;

    /// Over `items` numbers from `first` on.
    pub fn new(first: u64, items: u64) -> Self {
        let eta = (1.0 - (2.0 / Self::RANKS).powf(1.0 - Self::THETA)) / (1.0 - Self::ZETA_2 / Self::ZETA);
        ScrambledZipfian { first, items, eta }
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
        (Self::RANKS * super::zipf::hundredth_power(self.eta * u - self.eta + 1.0)) as u64
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        self.first + hash(self.rank(random.unit())) % self.items
    }

    /// The exact probability of rank `rank`, for tests and explanations: the length of the interval of u that
    /// [`Self::rank`] maps to it.
    pub fn probability(&self, rank: u64) -> f64 {
        self.below(rank + 1) - self.below(rank)
    }

    /// The probability of all ranks below `rank`.
    pub fn below(&self, rank: u64) -> f64 {
        let head = |rank: u64| match rank {
            0 => 0.0,
            1 => 1.0 / Self::ZETA,
            _ => Self::ZETA_2 / Self::ZETA,
        };
        let tail = ((rank as f64 / Self::RANKS).powf(1.0 - Self::THETA) - 1.0 + self.eta) / self.eta;
        head(rank).max(if rank > 2 { tail } else { 0.0 }).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRAWS: u64 = 400_000;

    fn counts(requests: Requests, span: Span, known: u64, numbers: usize) -> Vec<f64> {
        let distribution = Distribution::new(requests, span);
        let mut counts = vec![0f64; numbers];
        for n in 0..DRAWS {
            counts[distribution.draw(n, &mut Random::new(11, n), known) as usize] += 1.0;
        }
        counts
    }

    /// Pearson's χ² against exact probabilities, as a normal deviate (Wilson and Hilferty 1931): bins of less
    /// than ten expected draws are taken together.
    fn deviate(counts: &[f64], probability: impl Fn(usize) -> f64) -> f64 {
        let (mut chi, mut bins) = (0.0, 0.0);
        let (mut seen, mut expected, mut total) = (0.0, 0.0, 0.0);
        for (record, count) in counts.iter().enumerate() {
            let p = probability(record);
            total += p;
            seen += count;
            expected += p * DRAWS as f64;
            if expected >= 10.0 {
                chi += (seen - expected).powi(2) / expected;
                bins += 1.0;
                (seen, expected) = (0.0, 0.0);
            }
        }
        assert!((total - 1.0).abs() < 1e-6, "the probabilities add up to {total}");
        let freedom: f64 = bins - 1.0;
        let spread = 2.0 / (9.0 * freedom);
        ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
    }

    #[track_caller]
    fn assert_fits(counts: &[f64], probability: impl Fn(usize) -> f64) {
        let deviate = deviate(counts, probability);
        // 3.7: one in ten thousand. The draws are fixed, so a test that passes once always does.
        assert!(deviate < 3.7, "the draws deviate by {deviate} standard deviations");
    }

    #[test]
    fn uniform_hotspot_and_sequential_have_their_probabilities() {
        let span = Span { first: 100, count: 300, total: 1000, guessed_inserts: 50 };
        let inside = |record: usize| (100..400).contains(&record);
        let uniform = counts(Requests::Uniform, span, 1000, 1000);
        assert_fits(&uniform, |record| f64::from(u8::from(inside(record))) / 300.0);
        let hotspot = counts(Requests::Hotspot { records: 0.1, requests: 0.75 }, span, 1000, 1000);
        assert_fits(&hotspot, |record| match record {
            100..130 => 0.75 / 30.0,
            130..400 => 0.25 / 270.0,
            _ => 0.0,
        });
        let sequential = counts(Requests::Sequential, Span::all(40), 40, 40);
        assert!(sequential.iter().all(|count| *count == DRAWS as f64 / 40.0));
        // The edges: no hot record, and no cold one.
        let all_cold = counts(Requests::Hotspot { records: 0.001, requests: 0.9 }, Span::all(9), 9, 9);
        assert_fits(&all_cold, |_| 1.0 / 9.0);
        let all_hot = counts(Requests::Hotspot { records: 1.0, requests: 0.1 }, Span::all(9), 9, 9);
        assert_fits(&all_hot, |_| 1.0 / 9.0);
    }

    #[test]
    fn exponential_gives_its_share_to_its_fraction() {
        let span = Span::all(500);
        let counts = counts(Requests::EXPONENTIAL, span, 600, 600);
        let mean = 500.0 * 0.857_142_857_1 / 20f64.ln();
        let below = |back: f64| 1.0 - (-back / mean).exp();
        // Redrawn while it falls off the oldest record.
        assert_fits(&counts, |record| {
            let back = (599 - record) as f64;
            (below(back + 1.0) - below(back)) / below(600.0)
        });
        // Without that loss, the newest 6/7 get 95 %.
        assert!((below(500.0 * 6.0 / 7.0) - 0.95).abs() < 1e-6);
    }

    #[test]
    fn scrambled_zipfian_is_ycsbs_curve() {
        for items in [10u64, 61, 2000] {
            let zipfian = ScrambledZipfian::new(0, items);
            // The exact probability of each number: ranks one by one while they matter, and the tail of 10^10
            // ranks, whose hashes are spread evenly.
            let ranks = 2_000_000;
            let mut exact = vec![(1.0 - zipfian.below(ranks)) / items as f64; items as usize];
            for rank in 0..ranks {
                exact[(hash(rank) % items) as usize] += zipfian.probability(rank);
            }
            // The distribution's own space is one larger than the records.
            let counts = counts(Requests::Zipfian, Span::all(items - 1), items - 1, items as usize);
            assert_fits(&counts, |record| exact[record]);
        }
    }

    #[test]
    fn the_hottest_scrambled_record_gets_3_8_percent_at_every_size() {
        for records in [1_000u64, 100_000] {
            let counts = counts(Requests::Zipfian, Span::all(records), records, records as usize + 1);
            let top = counts.iter().copied().fold(0.0, f64::max) / DRAWS as f64;
            assert!((top - 0.0378).abs() < 0.0025, "{records} records: {top}");
        }
    }

    #[test]
    fn true_zipfian_has_the_shares_of_its_formula() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.4, 3.0] {
            let records = 700u64;
            let sum: f64 = (1..=records).map(|rank| (rank as f64).powf(-theta)).sum();
            let scramble = Permutation::new(records);
            let mut exact = vec![0.0; records as usize];
            for rank in 0..records {
                exact[scramble.apply(rank) as usize] = ((rank + 1) as f64).powf(-theta) / sum;
            }
            let counts = counts(Requests::ZipfianTrue(theta), Span::all(records), records, records as usize);
            assert_fits(&counts, |record| exact[record]);
        }
        // What the hottest of 1000 gets, by contrast to YCSB's 3.8 %.
        let counts = counts(Requests::ZipfianTrue(0.99), Span::all(1000), 1000, 1000);
        let top = counts.iter().copied().fold(0.0, f64::max) / DRAWS as f64;
        assert!((top - 0.129).abs() < 0.003, "{top}");
    }

    #[test]
    fn latest_is_zipfian_from_the_newest_backwards_and_follows_inserts() {
        for (total, known) in [(300u64, 300u64), (300, 1000)] {
            let zipfian = GrayZipfian::new(total - 1);
            let counts = counts(Requests::Latest, Span::all(total), known, known as usize);
            assert_fits(&counts, |record| zipfian.probability(known - 1, known - 1 - record as u64));
            assert_eq!(counts[0], 0.0, "YCSB never draws key 0");
        }
        assert_eq!(Distribution::new(Requests::Latest, Span::all(1)).draw(0, &mut Random::new(1, 1), 1), 0);
    }

    #[test]
    fn powers_by_squaring_equal_pow() {
        let zipfian = ScrambledZipfian::new(0, 1000);
        for i in 0..1000 {
            let u = (f64::from(i) + 0.5) / 1000.0;
            let by_pow = (ScrambledZipfian::RANKS * (zipfian.eta * u - zipfian.eta + 1.0).powf(100.0)) as u64;
            let rank = zipfian.rank(u);
            if rank > 1 {
                assert!(rank.abs_diff(by_pow) <= 1 + by_pow / 1_000_000_000, "u = {u}: {rank}, {by_pow}");
            }
        }
    }

    #[test]
    fn what_is_no_distribution_is_answered_with_the_nearest() {
        for (text, answer) in [
            ("zipfan", "did you mean `zipfian`?"),
            ("zipfian 0.8", "zipfian-true"),
            ("hotspot 0.2", "wrong parameters"),
            ("hotspot 2 0.8", "no share"),
            ("exponential 100 0.5", "wrong parameters"),
            ("zipfian-true steep", "\"steep\" is not a number"),
            ("zipfian-true -1", "out of range"),
            ("", "unknown request distribution"),
        ] {
            let error = text.parse::<Requests>().unwrap_err();
            assert!(error.contains(answer), "{text:?}: {error}");
        }
        assert_eq!("Zipfian_true".parse(), Ok(Requests::ZipfianTrue(0.99)));
    }

    proptest! {
        #[test]
        fn printed_distributions_read_back(kind in 0..7, a in 0.0001..1.0f64, b in 0.0001..1.0f64) {
            let requests = match kind {
                0 => Requests::Uniform,
                1 => Requests::Zipfian,
                2 => Requests::ZipfianTrue(a * 20.0),
                3 => Requests::Latest,
                4 => Requests::Hotspot { records: a, requests: b },
                5 => Requests::Sequential,
                _ => Requests::Exponential { percentile: a * 100.0, fraction: b },
            };
            prop_assert_eq!(requests.to_string().parse::<Requests>(), Ok(requests));
        }

        #[test]
        fn draws_stay_where_records_can_be(
            kind in "(uniform|zipfian|zipfian-true|latest|hotspot|sequential|exponential)",
            first in 0..1u64 << 40, count in 1..1u64 << 40, inserted in 0..1000u64, n in any::<u64>(),
        ) {
            let span = Span { first, count, total: first + count, guessed_inserts: 2 * inserted };
            let distribution = Distribution::new(kind.parse().unwrap(), span);
            let known = span.total + inserted;
            let record = distribution.draw(n, &mut Random::new(1, n), known);
            let most = match distribution {
                Distribution::ScrambledZipfian(_) => known + inserted + 1,
                Distribution::ZipfianTrue { .. } => known + inserted,
                _ => known,
            };
            prop_assert!(record < most, "{record} of {most}");
            let follows = matches!(distribution, Distribution::Latest(_) | Distribution::Exponential(_));
            prop_assert!(record >= first || follows);
        }
    }
}
