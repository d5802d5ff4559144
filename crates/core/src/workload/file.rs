//! The driver side of file I/O: random reads of a file, as fio's `randread` with `bsrange`.

use super::random::Random;
use super::{Records, Workload};
use crate::op::Op;
use crate::units::Bytes;

const PAGE: u64 = 4096;

/// Random reads, 4 KiB-aligned, of a size drawn uniformly between two bounds in steps of 4 KiB.
#[derive(Debug, Clone)]
pub struct RandomReads {
    file_pages: u64,
    least_pages: u64,
    most_pages: u64,
    seed: u64,
}

impl RandomReads {
    /// Reads of `least` to `most` bytes from a file of `file` bytes; all are rounded to 4 KiB.
    pub fn new(file: Bytes, least: Bytes, most: Bytes, seed: u64) -> Self {
        let (file_pages, least_pages, most_pages) =
            (file.0 / PAGE, (least.0 / PAGE).max(1), (most.0 / PAGE).max(1));
        assert!(least_pages <= most_pages && most_pages <= file_pages, "reads must fit into the file");
        RandomReads { file_pages, least_pages, most_pages, seed }
    }
}

impl Workload for RandomReads {
    fn op(&self, n: u64, _: &Records) -> Op {
        let mut random = Random::new(self.seed, n);
        let pages = self.least_pages + random.below(self.most_pages - self.least_pages + 1);
        let first = random.below(self.file_pages - pages + 1);
        Op::ReadAt { offset: first * PAGE, length: (pages * PAGE) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stay_inside_and_have_the_mean_size() {
        let reads = RandomReads::new(Bytes::mib(1), Bytes::kib(4), Bytes::kib(32), 5);
        let mut total = 0u64;
        for n in 0..20_000 {
            let Op::ReadAt { offset, length } = reads.op(n, &Records::new(0)) else {
                panic!("not a file read")
            };
            assert!(offset % PAGE == 0 && offset + u64::from(length) <= 1 << 20);
            total += u64::from(length);
        }
        let mean = total as f64 / 20_000.0 / PAGE as f64;
        assert!((mean - 4.5).abs() < 0.05, "{mean}");
    }
}
