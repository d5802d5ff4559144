//! YCSB's CoreWorkload.

use super::distribution::Distribution;
use super::random::Random;
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
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    let mut rest = number;
    for _ in 0..8 {
        hash = (hash ^ (rest & 0xff)).wrapping_mul(1_099_511_628_211);
        rest >>= 8;
    }
    (hash as i64).unsigned_abs()
}

/// Reads of whole records under a request distribution.
#[derive(Debug, Clone)]
pub struct Ycsb {
    distribution: Distribution,
    seed: u64,
}

impl Ycsb {
    /// 100 % reads of `dataset`.
    pub fn reads(dataset: &Dataset, distribution: super::distribution::Requests, seed: u64) -> Self {
        Ycsb { distribution: Distribution::new(distribution, dataset.records), seed }
    }
}

impl Workload for Ycsb {
    #[inline]
    fn op(&self, n: u64) -> Op {
        Op::Read { record: self.distribution.draw(&mut Random::new(self.seed, n)) }
    }
}
