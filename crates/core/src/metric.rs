//! What a probe reads: raw counters and gauges, each with the window in which it was acquired. Rates come
//! later.

use crate::device::Counters;
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

/// What the shaped disk counts itself.
const DISK: [(&str, &str); 7] = [
    (name::DISK_READ_BYTES, "Bytes that the shaped disk read, counted by its own daemon for each request."),
    (name::DISK_READ_REQUESTS, "Reads that the shaped disk completed, counted by its own daemon."),
    (name::DISK_WRITE_BYTES, "Bytes that the shaped disk wrote, counted by its own daemon for each request."),
    (name::DISK_WRITE_REQUESTS, "Writes that the shaped disk completed, counted by its own daemon."),
    (name::DISK_FLUSH_REQUESTS, "Flushes that the shaped disk completed, counted by its own daemon."),
    (
        name::DISK_QUEUE_NS,
        "Requests in flight at the shaped disk times the time that they were, counted by its own daemon.",
    ),
    (name::DISK_BUSY_NS, "Time in which the shaped disk had a request in flight, counted by its own daemon."),
];

/// What another tenant of the disk counts itself.
const TENANT: [(&str, &str); 3] = [
    (
        name::TENANT_READ_BYTES,
        "Bytes that another tenant of the disk read from it past the page cache, counted by that tenant.",
    ),
    (
        name::TENANT_WRITE_BYTES,
        "Bytes that another tenant of the disk wrote to it past the page cache, counted by that tenant.",
    ),
    (name::TENANT_REQUESTS, "Requests of another tenant of the disk that were done, counted by that tenant."),
];

fn counters(metrics: &[(&str, &str)]) -> Vec<Metric> {
    let metric = |(name, help): &(&str, &str)| Metric {
        name: (*name).into(),
        kind: Kind::Counter,
        help: (*help).into(),
    };
    metrics.iter().map(metric).collect()
}

/// The metrics in the sample of a shaped disk.
pub fn of_disk() -> Vec<Metric> {
    counters(&DISK)
}

/// The metrics in the sample of another tenant of the disk.
pub fn of_tenant() -> Vec<Metric> {
    counters(&TENANT)
}

/// A shaped disk's counters as a sample, beside those of probes.
impl From<&Counters> for Sample {
    fn from(disk: &Counters) -> Sample {
        let counts = [
            disk.read.bytes.0,
            disk.read.requests,
            disk.write.bytes.0,
            disk.write.requests,
            disk.flush.requests,
            disk.queue_time.as_nanos() as u64,
            disk.busy.as_nanos() as u64,
        ];
        let values = DISK.iter().zip(counts).map(|((name, _), count)| (name.to_string(), count as f64));
        Sample { begin: disk.at, end: disk.at, values: values.collect() }
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
    /// The shaped disk's own account.
    pub const DISK: &str = "disk";
    /// The control group of the target.
    pub const GROUP: &str = "group";
    /// What came over the network of a node.
    pub const NETWORK: &str = "network";
    /// Another tenant of the disk, by its own count.
    pub const TENANT: &str = "tenant";
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
    /// Transactions that the server committed.
    pub const ENGINE_COMMITS: &str = "engine_commits";
    /// Pages asked of the engine's cache.
    pub const ENGINE_PAGE_REQUESTS: &str = "engine_page_requests";
    /// Pages that were not in the engine's cache.
    pub const ENGINE_PAGE_READS: &str = "engine_page_reads";
    /// Bytes of those pages in memory.
    pub const ENGINE_CACHE_READ_BYTES: &str = "engine_cache_read_bytes";
    /// Bytes that the engine read from its files, from the page cache or the device.
    pub const ENGINE_FILE_READ_BYTES: &str = "engine_file_read_bytes";
    /// Bytes by which data files grew, where the server counts the pages that it makes there as read.
    pub const ENGINE_FILE_MADE_BYTES: &str = "engine_file_made_bytes";
    /// Reads of those files.
    pub const ENGINE_FILE_READS: &str = "engine_file_reads";
    /// Bytes in the engine's cache.
    pub const ENGINE_CACHE_BYTES: &str = "engine_cache_bytes";
    /// Bytes written to the engine's journal (write-ahead log, redo log).
    pub const ENGINE_JOURNAL_BYTES: &str = "engine_journal_bytes";
    /// Flushes of the journal to the device.
    pub const ENGINE_JOURNAL_SYNCS: &str = "engine_journal_syncs";
    /// Writes of the journal's files.
    pub const ENGINE_JOURNAL_WRITES: &str = "engine_journal_writes";
    /// The block in which the journal is written: a write that begins inside a block writes that block again.
    pub const ENGINE_JOURNAL_BLOCK_BYTES: &str = "engine_journal_block_bytes";
    /// Bytes written to the journal's files, blocks that were written again and zeros in new files included.
    pub const ENGINE_JOURNAL_FILE_WRITE_BYTES: &str = "engine_journal_file_write_bytes";
    /// Size of all files of the journal.
    pub const ENGINE_JOURNAL_FILES_BYTES: &str = "engine_journal_files_bytes";
    /// Bytes of whole pages in the journal, which protect against torn writes.
    pub const ENGINE_PAGE_IMAGE_BYTES: &str = "engine_page_image_bytes";
    /// Bytes that the engine wrote to its data files, all reasons together, the journal apart.
    pub const ENGINE_FILE_WRITE_BYTES: &str = "engine_file_write_bytes";
    /// Of these, for checkpoints.
    pub const ENGINE_CHECKPOINT_WRITE_BYTES: &str = "engine_checkpoint_write_bytes";
    /// Of these, to make room in the cache.
    pub const ENGINE_EVICTION_WRITE_BYTES: &str = "engine_eviction_write_bytes";
    /// Of these, the first of two writes of the same page, which protects against torn writes.
    pub const ENGINE_DOUBLE_WRITE_BYTES: &str = "engine_double_write_bytes";
    /// Of these, temporary files.
    pub const ENGINE_TEMPORARY_WRITE_BYTES: &str = "engine_temporary_write_bytes";
    /// 1 where data files are read and written past the page cache, else 0.
    pub const ENGINE_DIRECT_IO: &str = "engine_direct_io";
    /// How old the server's statistics may be when they are read.
    pub const ENGINE_STATISTICS_AGE_MS: &str = "engine_statistics_age_ms";
    /// Checkpoints that began.
    pub const ENGINE_CHECKPOINTS: &str = "engine_checkpoints";
    /// Bytes that another tenant of the disk read from it.
    pub const TENANT_READ_BYTES: &str = "tenant_read_bytes";
    /// Bytes that it wrote.
    pub const TENANT_WRITE_BYTES: &str = "tenant_write_bytes";
    /// Requests of it that were done.
    pub const TENANT_REQUESTS: &str = "tenant_requests";
    /// Bytes of a node's data files that were copied to make another node anew.
    pub const PROCESS_COPIED_BYTES: &str = "process_copied_bytes";
    /// How often the node's server was started since the node was first looked at.
    pub const PROCESS_SERVER_STARTS: &str = "process_server_starts";
    /// Bytes that the process asked for in read calls (`rchar`).
    pub const PROCESS_ASKED_READ_BYTES: &str = "process_asked_read_bytes";
    /// Bytes that the kernel fetched from storage for it (`read_bytes`).
    pub const PROCESS_DEVICE_READ_BYTES: &str = "process_device_read_bytes";
    /// Bytes that the process gave to write calls (`wchar`).
    pub const PROCESS_ASKED_WRITE_BYTES: &str = "process_asked_write_bytes";
    /// Bytes of pages that the process made dirty, or sent to storage past the page cache (`write_bytes`).
    pub const PROCESS_DEVICE_WRITE_BYTES: &str = "process_device_write_bytes";
    /// Bytes of dirty pages that were dropped before they were written (`cancelled_write_bytes`).
    pub const PROCESS_CANCELLED_WRITE_BYTES: &str = "process_cancelled_write_bytes";
    /// Bytes read from the block device (`diskstats`).
    pub const DEVICE_READ_BYTES: &str = "device_read_bytes";
    /// Reads completed by the block device (`diskstats`).
    pub const DEVICE_READ_REQUESTS: &str = "device_read_requests";
    /// Bytes written to the block device (`diskstats`).
    pub const DEVICE_WRITE_BYTES: &str = "device_write_bytes";
    /// Writes that the block device completed.
    pub const DEVICE_WRITE_REQUESTS: &str = "device_write_requests";
    /// Flushes that the block device completed.
    pub const DEVICE_FLUSH_REQUESTS: &str = "device_flush_requests";
    /// How often the file system on the device committed its own journal (ext4).
    pub const FILESYSTEM_COMMITS: &str = "filesystem_commits";
    /// Bytes that the shaped disk read.
    pub const DISK_READ_BYTES: &str = "disk_read_bytes";
    /// Reads that it completed.
    pub const DISK_READ_REQUESTS: &str = "disk_read_requests";
    /// Bytes that it wrote.
    pub const DISK_WRITE_BYTES: &str = "disk_write_bytes";
    /// Writes that it completed.
    pub const DISK_WRITE_REQUESTS: &str = "disk_write_requests";
    /// Flushes that it completed.
    pub const DISK_FLUSH_REQUESTS: &str = "disk_flush_requests";
    /// By the shaped disk: requests in flight, integrated over time; its rate is the mean queue.
    pub const DISK_QUEUE_NS: &str = "disk_queue_ns";
    /// Processes of the group that the kernel killed for want of memory.
    pub const GROUP_OOM_KILLS: &str = "cgroup_oom_kills";
    /// By the shaped disk: time in which it had a request.
    pub const DISK_BUSY_NS: &str = "disk_busy_ns";
    /// Page cache charged to the target's group.
    pub const GROUP_PAGE_CACHE_BYTES: &str = "cgroup_page_cache_bytes";
    /// Shared memory and tmpfs of the group.
    pub const GROUP_SHARED_BYTES: &str = "cgroup_shared_bytes";
    /// Pages of the group that are not yet on their way to the disk.
    pub const GROUP_DIRTY_BYTES: &str = "cgroup_dirty_bytes";
    /// Pages of the group that are on their way to the disk.
    pub const GROUP_WRITEBACK_BYTES: &str = "cgroup_writeback_bytes";
    /// Bytes that processes of the group read from the node's block device.
    pub const GROUP_DEVICE_READ_BYTES: &str = "cgroup_device_read_bytes";
}
