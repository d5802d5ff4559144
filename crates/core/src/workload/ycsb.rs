//! YCSB's CoreWorkload.

use super::distribution::Distribution;
use super::random::Streams;
use super::{Dataset, Workload};
use crate::op::Op;
use serde::{Deserialize, Serialize};

/// How a record number becomes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyHash {
    /// `insertorder=hashed`: neighbours in number are strangers in key order.
    Ycsb,
    /// `insertorder=ordered`.
    Ordered,
}

/// YCSB's `Utils.hash`: FNV-1a over the eight little-endian bytes, made non-negative as Java's `Math.abs`
/// does.
#[inline]
pub fn hash(number: u64) -> u64 {
    const PRIME: u64 = 1_099_511_628_211;
    const PRIME_CUBED: u64 = PRIME.wrapping_mul(PRIME).wrapping_mul(PRIME);
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    for byte in 0..5 {
        hash = (hash ^ (number >> (8 * byte) & 0xff)).wrapping_mul(PRIME);
    }
    // Numbers that fit five bytes, which are all that occur, end with three zero bytes. The products depend
    // on each other, so this is a quarter of the time.
    if number >> 40 == 0 {
        hash = hash.wrapping_mul(PRIME_CUBED);
    } else {
        for byte in 5..8 {
            hash = (hash ^ (number >> (8 * byte) & 0xff)).wrapping_mul(PRIME);
        }
    }
    (hash as i64).unsigned_abs()
}

/// Reads of whole records under a request distribution.
#[derive(Debug, Clone)]
pub struct Ycsb {
    distribution: Distribution,
    streams: Streams,
}

impl Ycsb {
    /// 100 % reads of `dataset`.
    pub fn reads(dataset: &Dataset, distribution: super::distribution::Requests, seed: u64) -> Self {
        Ycsb { distribution: Distribution::new(distribution, dataset.records), streams: Streams::new(seed) }
    }
}

impl Workload for Ycsb {
    #[inline]
    fn op(&self, n: u64) -> Op {
        Op::Read { record: self.distribution.draw(&mut self.streams.number(n)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_hashes_as_the_long_one() {
        let plain = |number: u64| {
            let hash = number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
            });
            (hash as i64).unsigned_abs()
        };
        let edges = [0, 1, (1 << 40) - 1, 1 << 40, (1 << 40) + 1, 1 << 63, u64::MAX];
        let spread = (0..64_000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 64));
        for number in edges.into_iter().chain(spread) {
            assert_eq!(hash(number), plain(number), "{number}");
        }
    }

    #[test]
    fn operation_n_is_drawn_from_the_stream_of_seed_and_n() {
        use crate::workload::{Random, distribution::Requests};
        let dataset = Dataset::ycsb(1000);
        for requests in [Requests::Uniform, Requests::Zipfian] {
            let workload = Ycsb::reads(&dataset, requests, 9);
            let distribution = Distribution::new(requests, 1000);
            for n in [0, 1, 2, 1_000_000, u64::MAX] {
                let record = distribution.draw(&mut Random::new(9, n));
                assert_eq!(workload.op(n), Op::Read { record });
            }
        }
    }
}
