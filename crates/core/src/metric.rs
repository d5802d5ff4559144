//! What a probe reads: raw counters and gauges, each with the window in which it was acquired. Rates come
//! later.

use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a metric only grows (rates are differences) or holds a level (rates make no sense).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Grows from an arbitrary start; only differences mean something.
    Counter,
    /// A level at a moment.
    Gauge,
}

/// The name, unit and kind of a quantity that some probe can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Most significant word first, unit last: `device_read_bytes`, `cgroup_page_cache_bytes`.
    pub name: String,
    /// Counter or gauge.
    pub kind: Kind,
    /// What it counts and who counted it, in a sentence a sceptic would accept.
    pub help: String,
}

/// All values that one probe read in one go.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When reading began; the values are from somewhere between `begin` and `end`.
    pub begin: Tick,
    /// When reading ended.
    pub end: Tick,
    /// Values by metric name.
    pub values: BTreeMap<String, f64>,
}

impl Sample {
    /// The value of `name`, if this sample has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }
    /// How much counter `name` grew since `earlier`; `None` if either lacks it.
    pub fn growth(&self, earlier: &Sample, name: &str) -> Option<f64> {
        Some(self.get(name)? - earlier.get(name)?)
    }
}

/// The probes of a trial: under these names their samples stand in records.
pub mod probe {
    /// The target's own statistics.
    pub const TARGET: &str = "target";
    /// The kernel's account of the process that holds generator and embedded engine.
    pub const PROCESS: &str = "process";
    /// The kernel's account of the block device, where there is one.
    pub const DEVICE: &str = "device";
    /// The memory group of the target.
    pub const GROUP: &str = "group";
    /// Stalled time for want of memory, processor and input/output.
    pub const PRESSURE: &str = "pressure";
    /// The whole machine.
    pub const SYSTEM: &str = "system";
}

/// Names of metrics that studies rely on, so that a probe, a simulated trial and a study cannot disagree on
/// them.
pub mod name {
    /// Look-ups in a tree of the engine.
    pub const ENGINE_SEARCHES: &str = "engine_searches";
    /// Pages asked of the engine's cache.
    pub const ENGINE_PAGE_REQUESTS: &str = "engine_page_requests";
    /// Pages that were not in the engine's cache.
    pub const ENGINE_PAGE_READS: &str = "engine_page_reads";
    /// Bytes of those pages in memory.
    pub const ENGINE_CACHE_READ_BYTES: &str = "engine_cache_read_bytes";
    /// Bytes that the engine read from its files, from the page cache or the device.
    pub const ENGINE_FILE_READ_BYTES: &str = "engine_file_read_bytes";
    /// Reads of those files.
    pub const ENGINE_FILE_READS: &str = "engine_file_reads";
    /// Bytes in the engine's cache.
    pub const ENGINE_CACHE_BYTES: &str = "engine_cache_bytes";
    /// Bytes written to the engine's journal (write-ahead log, redo log).
    pub const ENGINE_JOURNAL_BYTES: &str = "engine_journal_bytes";
    /// Flushes of the journal to the device.
    pub const ENGINE_JOURNAL_SYNCS: &str = "engine_journal_syncs";
    /// Checkpoints that began.
    pub const ENGINE_CHECKPOINTS: &str = "engine_checkpoints";
    /// Bytes that the process asked for in read calls (`rchar`).
    pub const PROCESS_ASKED_READ_BYTES: &str = "process_asked_read_bytes";
    /// Bytes that the kernel fetched from storage for it (`read_bytes`).
    pub const PROCESS_DEVICE_READ_BYTES: &str = "process_device_read_bytes";
    /// Bytes read from the block device (`diskstats`).
    pub const DEVICE_READ_BYTES: &str = "device_read_bytes";
    /// Reads completed by the block device (`diskstats`).
    pub const DEVICE_READ_REQUESTS: &str = "device_read_requests";
    /// Page cache charged to the target's group.
    pub const GROUP_PAGE_CACHE_BYTES: &str = "cgroup_page_cache_bytes";
}
