//! What is asked of a target: a data set, and operation n as a pure function of (seed, n).

mod dataset;
pub mod distribution;
mod file;
mod random;
pub mod ycsb;

pub use dataset::{Dataset, Values};
pub use file::RandomReads;
pub use random::Random;
pub use ycsb::Ycsb;

use crate::op::Op;

/// A stream of operations that can be repeated, split over machines and checked, because operation `n`
/// depends on nothing but the seed and `n`.
pub trait Workload: Send + Sync {
    /// Operation number `n`.
    fn op(&self, n: u64) -> Op;
}
