//! How long things are: fields of a record, and scans.

use super::random::Random;
use super::zipf::GrayZipfian;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A distribution of lengths. In plans a number, or `uniform 1..100`, `zipfian 1..100`, `histogram 10: 3 0
/// 5`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lengths {
    /// All alike.
    Constant(u32),
    /// Every length between two bounds alike, both included.
    Uniform(u32, u32),
    /// Zipfian with θ = 0.99 from the lower bound up: the shortest is the likeliest.
    Zipfian(u32, u32),
    /// As counted.
    Histogram(Arc<Histogram>),
}

/// YCSB's histogram of lengths: bucket i stands for length (i + 1) × block, as its comment says. Its code
/// returns i × block for the last bucket, and gives the first one a count too many.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Histogram {
    block: u32,
    buckets: Vec<u64>,
}

impl Histogram {
    /// Of `buckets` that are `block` bytes wide.
    pub fn new(block: u32, buckets: Vec<u64>) -> Result<Self, String> {
        let total = buckets.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
        match total {
            None => Err("the counts of the histogram are too large".into()),
            Some(0) => Err("the histogram counts nothing".into()),
            Some(_) if (buckets.len() as u64) * u64::from(block) > u64::from(u32::MAX) => {
                Err("the histogram has lengths of more than 4 GiB".into())
            }
            Some(_) => Ok(Histogram { block, buckets }),
        }
    }

    /// Reads YCSB's `hist.txt`: a line `BlockSize<TAB>N`, then lines `bucket<TAB>count`, buckets from 0 up.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let first = lines.next().map_or("", |(_, line)| line);
        let block = match first.split_once('\t') {
            Some(("BlockSize", block)) => block.trim().parse().ok(),
            _ => None,
        };
        let block = block.ok_or("line 1: a histogram begins with \"BlockSize\", a tab and a number")?;
        let mut buckets = Vec::new();
        for (index, line) in lines {
            let mut words = line.split('\t').map(|word| word.trim().parse::<u64>().ok());
            match (words.next().flatten(), words.next().flatten()) {
                (Some(bucket), Some(count)) if bucket == buckets.len() as u64 => buckets.push(count),
                (Some(bucket), Some(_)) => {
                    let wanted = buckets.len();
                    return Err(format!("line {}: bucket {bucket} where {wanted} should be", index + 1));
                }
                _ => return Err(format!("line {}: not a bucket, a tab and a count", index + 1)),
            }
        }
        Histogram::new(block, buckets)
    }

    fn lengths(&self) -> impl Iterator<Item = (u32, u64)> {
        (1..).zip(&self.buckets).map(|(number, count)| (number * self.block, *count))
    }
}

impl Lengths {
    /// The longest that occurs.
    pub fn longest(&self) -> u32 {
        match self {
            Lengths::Constant(length) | Lengths::Uniform(_, length) | Lengths::Zipfian(_, length) => *length,
            Lengths::Histogram(histogram) => {
                histogram.lengths().filter(|(_, count)| *count > 0).map(|(l, _)| l).max().unwrap_or(0)
            }
        }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        match self {
            Lengths::Constant(length) => f64::from(*length),
            Lengths::Uniform(least, most) => (f64::from(*least) + f64::from(*most)) / 2.0,
            Lengths::Zipfian(least, most) => {
                let items = u64::from(most - least) + 1;
                let zipfian = GrayZipfian::new(items);
                // Beyond a thousand ranks in steps: a mean to four digits is enough for a size.
                let step = items.div_ceil(1000);
                let mut mean = f64::from(*least);
                for rank in (0..items).step_by(step as usize) {
                    let share: f64 = match step {
                        1 => zipfian.probability(items, rank),
                        _ => (rank..(rank + step).min(items)).map(|r| zipfian.probability(items, r)).sum(),
                    };
                    mean += share * (rank as f64 + (step - 1) as f64 / 2.0);
                }
                mean
            }
            Lengths::Histogram(histogram) => {
                let total: u64 = histogram.buckets.iter().sum();
                let bytes: f64 = histogram.lengths().map(|(l, count)| f64::from(l) * count as f64).sum();
                bytes / total as f64
            }
        }
    }

    /// Draws one.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Lengths::Constant(length) => *length,
            Lengths::Uniform(least, most) => least + random.below(u64::from(most - least) + 1) as u32,
            Lengths::Zipfian(least, most) => {
                let items = u64::from(most - least) + 1;
                least + GrayZipfian::new(items).draw(items, random) as u32
            }
            Lengths::Histogram(histogram) => {
                let total: u64 = histogram.buckets.iter().sum();
                let mut left = random.below(total);
                for (length, count) in histogram.lengths() {
                    if left < count {
                        return length;
                    }
                    left -= count;
                }
                unreachable!("a draw below the total lies in a bucket")
            }
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::Constant(length) => write!(f, "{length}"),
            Lengths::Uniform(least, most) => write!(f, "uniform {least}..{most}"),
            Lengths::Zipfian(least, most) => write!(f, "zipfian {least}..{most}"),
            Lengths::Histogram(histogram) => {
                write!(f, "histogram {}:", histogram.block)?;
                histogram.buckets.iter().try_for_each(|count| write!(f, " {count}"))
            }
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = || {
            format!("{text:?} is no length such as \"100\", \"uniform 1..100\" or \"histogram 10: 3 0 5\"")
        };
        if let Ok(length) = text.parse() {
            return Ok(Lengths::Constant(length));
        }
        let (name, rest) = text.split_once(' ').ok_or_else(wrong)?;
        if name == "histogram" {
            let (block, counts) = rest.split_once(':').ok_or_else(wrong)?;
            let buckets = counts.split_whitespace().map(str::parse).collect::<Result<_, _>>();
            let block = block.trim().parse().map_err(|_| wrong())?;
            return Ok(Lengths::Histogram(Arc::new(Histogram::new(block, buckets.map_err(|_| wrong())?)?)));
        }
        let (least, most) = rest.split_once("..").ok_or_else(wrong)?;
        let least: u32 = least.trim().parse().map_err(|_| wrong())?;
        let most: u32 = most.trim().parse().map_err(|_| wrong())?;
        if least > most {
            return Err(format!("{text:?}: the least length is above the most"));
        }
        match name {
            "uniform" => Ok(Lengths::Uniform(least, most)),
            "zipfian" => Ok(Lengths::Zipfian(least, most)),
            _ => {
                let known = ["uniform", "zipfian", "histogram"];
                Err(crate::experiment::unknown("distribution of lengths", name, &known))
            }
        }
    }
}

impl Serialize for Lengths {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Lengths::Constant(length) => s.serialize_u32(*length),
            other => s.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u32),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(length) => Ok(Lengths::Constant(length)),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn draws(lengths: &Lengths) -> BTreeMap<u32, f64> {
        let mut counts = BTreeMap::new();
        for n in 0..100_000 {
            *counts.entry(lengths.draw(&mut Random::new(2, n))).or_default() += 1e-5;
        }
        counts
    }

    #[test]
    fn lengths_have_their_shares_and_their_mean() {
        let histogram = "BlockSize\t10\n0\t1\n1\t0\n2\t7\n3\t2\n";
        let histogram = Lengths::Histogram(Arc::new(Histogram::read(histogram).unwrap()));
        assert_eq!(histogram.longest(), 40);
        let shares = draws(&histogram);
        assert_eq!(shares.keys().copied().collect::<Vec<_>>(), [10, 30, 40]);
        assert!((shares[&10] - 0.1).abs() < 0.005, "{shares:?}");
        for text in ["uniform 5..14", "zipfian 1..100", "zipfian 7..7", "histogram 3: 1 1 1 4", "9"] {
            let lengths: Lengths = text.parse().unwrap();
            let shares = draws(&lengths);
            let mean: f64 = shares.iter().map(|(length, share)| f64::from(*length) * share).sum();
            assert!((mean / lengths.mean() - 1.0).abs() < 0.02, "{text}: {mean}, {}", lengths.mean());
            assert_eq!(shares.keys().copied().max(), Some(lengths.longest()), "{text}");
        }
        let zipfian = GrayZipfian::new(50);
        for (length, share) in draws(&Lengths::Zipfian(1, 50)) {
            let exact = zipfian.probability(50, u64::from(length) - 1);
            assert!((share - exact).abs() < 0.006, "{length}: {share}, {exact}");
        }
    }

    #[test]
    fn what_is_no_length_or_histogram_says_so() {
        for (text, answer) in [
            ("long", "is no length"),
            ("unifrom 1..5", "did you mean `uniform`?"),
            ("uniform 5..1", "above the most"),
            ("uniform 1-5", "is no length"),
            ("histogram 10: 0 0", "counts nothing"),
        ] {
            let error = text.parse::<Lengths>().unwrap_err();
            assert!(error.contains(answer), "{text:?}: {error}");
        }
        for (text, answer) in [
            ("", "line 1"),
            ("Block\t10\n", "line 1"),
            ("BlockSize\t10\n1\t5\n", "bucket 1 where 0"),
            ("BlockSize\t10\n0\tmany\n", "line 2"),
            ("BlockSize\t10\n0\t0\n", "counts nothing"),
        ] {
            let error = Histogram::read(text).unwrap_err();
            assert!(error.contains(answer), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_lengths_read_back(
            a in 0..1000u32, b in 0..1000u32, counts in proptest::collection::vec(0..9u64, 1..5),
        ) {
            let (least, most) = (a.min(b), a.max(b));
            let mut all =
                vec![Lengths::Constant(a), Lengths::Uniform(least, most), Lengths::Zipfian(least, most)];
            all.extend(Histogram::new(a, counts).map(|h| Lengths::Histogram(Arc::new(h))));
            for lengths in all {
                prop_assert_eq!(lengths.to_string().parse::<Lengths>(), Ok(lengths.clone()));
                let json = serde_json::to_string(&lengths).unwrap();
                prop_assert_eq!(serde_json::from_str::<Lengths>(&json).unwrap(), lengths);
            }
        }
    }
}
