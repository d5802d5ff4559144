//! The read budget: where the bytes that the engine missed came from, by witnesses that do not know each
//! other.

use serde::{Deserialize, Serialize};

/// What independent counters saw in the same window, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Witnesses {
    /// The engine: read from its files (WiredTiger's block manager).
    pub engine_read_bytes: f64,
    /// The kernel's system-call account of the engine's process (`rchar`), if it can be read.
    pub process_asked_bytes: Option<f64>,
    /// The kernel's storage account of the engine's process (`read_bytes`); `None` where it does not see the
    /// disk, as above FUSE.
    pub process_device_bytes: Option<f64>,
    /// The kernel's block layer (`diskstats`), if there is a block device.
    pub block_device_bytes: Option<f64>,
    /// The shaped disk's daemon: what it served.
    pub disk_bytes: f64,
    /// What may have been read between the first and the last witness's reading, at both ends of the window.
    pub skew_bytes: f64,
}

/// The budget: engine misses = page-cache hits + device reads, with what does not fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Bytes that the engine missed and read from its files: the engine's word.
    pub engine_missed_bytes: f64,
    /// Of these, served from the page cache: bytes asked for less bytes fetched, both the kernel's word.
    /// Where the kernel cannot say, the difference of the two other figures, which then proves nothing.
    pub page_cache_bytes: f64,
    /// Of these, served by the device: the disk's own word.
    pub device_bytes: f64,
    /// engine_missed − page_cache − device.
    pub residual_bytes: f64,
    /// The residual as a share of what was missed.
    pub residual: f64,
    /// Whether the residual is within its tolerance, or `None` where no independent witness could check it.
    pub closes: Option<bool>,
    /// In words: what was compared, or why it could not be.
    pub evidence: String,
}

impl Budget {
    /// Largest residual of a budget that closes, besides what the witnesses' different moments explain.
    pub const TOLERANCE: f64 = 0.02;
    /// If their different moments explain more than this share, nothing is proved.
    const MOST_SKEW: f64 = 0.10;
    /// Below this a share of nothing is noise: a few pages of bookkeeping.
    const SLACK_BYTES: f64 = 1_048_576.0;

    /// Draws up the budget.
    pub fn of(w: &Witnesses) -> Budget {
        let missed = w.engine_read_bytes;
        let tolerance = |of: f64| (of * Self::TOLERANCE).max(Self::SLACK_BYTES) + w.skew_bytes;
        let (page_cache, independent) = match (w.process_asked_bytes, w.process_device_bytes) {
            (Some(asked), Some(fetched)) => ((asked - fetched).max(0.0), true),
            _ => ((missed - w.disk_bytes).max(0.0), false),
        };
        let blurred = w.skew_bytes > Self::MOST_SKEW * missed.max(10.0 * Self::SLACK_BYTES);
        let residual = missed - page_cache - w.disk_bytes;
        let mut faults = Vec::new();
        if independent && residual.abs() > tolerance(missed) {
            faults.push(format!(
                "the engine missed {missed:.0} B, but page cache ({page_cache:.0} B) and device ({:.0} B) gave {:.0} B",
                w.disk_bytes,
                page_cache + w.disk_bytes
            ));
        }
        if let Some(block) = w.block_device_bytes
            && (block - w.disk_bytes).abs() > tolerance(w.disk_bytes)
        {
            faults.push(format!("the block layer saw {block:.0} B, the disk served {:.0} B", w.disk_bytes));
        }
        let closes = (independent && !blurred).then_some(faults.is_empty());
        let evidence = match (independent, faults.is_empty()) {
            (_, false) => faults.join("; "),
            (true, true) if blurred => format!(
                "the counters were read so far apart that {:.0} B may lie between them: nothing is proved",
                w.skew_bytes
            ),
            (true, true) => "the engine's, the kernel's and the disk's counters agree".into(),
            (false, true) => "page-cache hits are the difference of the engine's and the disk's counters: \
                              the kernel's own are not available, so nothing checks them"
                .into(),
        };
        Budget {
            engine_missed_bytes: missed,
            page_cache_bytes: page_cache,
            device_bytes: w.disk_bytes,
            residual_bytes: residual,
            residual: if missed > 0.0 { residual / missed } else { 0.0 },
            closes,
            evidence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn honest() -> Witnesses {
        Witnesses {
            engine_read_bytes: 1e9,
            process_asked_bytes: Some(1.001e9),
            process_device_bytes: Some(3e8),
            block_device_bytes: Some(3e8),
            disk_bytes: 3e8,
            skew_bytes: 0.0,
        }
    }

    #[test]
    fn an_honest_budget_closes() {
        let budget = Budget::of(&honest());
        assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
        assert!((budget.page_cache_bytes - 7.01e8).abs() < 1.0);
    }

    #[test]
    fn each_lying_witness_is_noticed() {
        for (name, liar) in [
            ("engine", Witnesses { engine_read_bytes: 8e8, ..honest() }),
            ("asked", Witnesses { process_asked_bytes: Some(1.2e9), ..honest() }),
            ("fetched", Witnesses { process_device_bytes: Some(1e8), ..honest() }),
            ("block layer", Witnesses { block_device_bytes: Some(4e8), ..honest() }),
            ("disk", Witnesses { disk_bytes: 5e8, block_device_bytes: None, ..honest() }),
        ] {
            assert_eq!(Budget::of(&liar).closes, Some(false), "{name}");
        }
    }

    #[test]
    fn readings_that_lie_apart_excuse_a_little_and_prove_nothing_when_far_apart() {
        let off = Witnesses { engine_read_bytes: 9.5e8, ..honest() };
        assert_eq!(Budget::of(&off).closes, Some(false));
        assert_eq!(Budget::of(&Witnesses { skew_bytes: 5e7, ..off }).closes, Some(true));
        assert_eq!(Budget::of(&Witnesses { skew_bytes: 2e8, ..off }).closes, None);
    }

    #[test]
    fn without_an_independent_witness_nothing_is_claimed() {
        let budget = Budget::of(&Witnesses { process_device_bytes: None, ..honest() });
        assert_eq!(budget.closes, None);
        assert!((budget.page_cache_bytes - 7e8).abs() < 1.0);
    }
}
