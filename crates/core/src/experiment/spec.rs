//! Everything that defines a cell, typed. Defaults are the published studies' where they have one.

use crate::device;
use crate::units::{Bytes, Ratio, span};
use crate::workload::distribution::Requests;
use crate::workload::ycsb::KeyHash;
use crate::workload::{Dataset, Values};
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// All settings of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What is measured.
    pub target: TargetSpec,
    /// What it may use.
    #[serde(default)]
    pub machine: MachineSpec,
    /// What it stores its data on.
    pub disk: DiskSpec,
    /// What it is asked.
    pub workload: WorkloadSpec,
    /// How it is asked.
    pub load: LoadSpec,
    /// How long, and what counts as steady.
    #[serde(default)]
    pub trial: TrialSpec,
}

/// Which system, and how it is configured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Which system.
    pub kind: TargetKind,
    /// CPU time that client, wire and server would spend on a request besides the engine, burnt on the
    /// session's thread after the CPU was given up once, as a server does when it waits for its next request.
    /// An embedded engine has no such path; 0 measures it bare.
    #[serde(default, with = "span")]
    pub request_path_cpu: Duration,
    /// Settings of the embedded WiredTiger.
    #[serde(default)]
    pub wiredtiger: WiredTigerSpec,
}

/// The systems that a plan can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// Answers at once and does nothing: the generator's own ceiling.
    Null,
    /// A file, read with buffered reads that bypass what is cached: what the device does under the same
    /// kernel.
    File,
    /// The embedded WiredTiger.
    Wiredtiger,
}

/// How the embedded engine is configured; everything else is as mongod configures it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WiredTigerSpec {
    /// Size of the engine's cache.
    pub cache: CacheSize,
    /// One tree keyed by the record's key, or mongod's two: `_id` index and record store.
    pub trees: Trees,
    /// Block compressor of the record store.
    pub compressor: Compressor,
    /// Bytes that one record takes in the engine's cache, index entry and overheads included. Turns a working
    /// set given as a share of the cache into a number of records; checked against the engine after loading.
    pub record_resident_bytes: u64,
}

impl Default for WiredTigerSpec {
    fn default() -> Self {
        WiredTigerSpec {
            cache: CacheSize::Auto,
            trees: Trees::Two,
            compressor: Compressor::Snappy,
            record_resident_bytes: 1_500,
        }
    }
}

/// Given, or by mongod's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// Half of (memory − 1 GiB), at least 256 MiB: mongod's default.
    Auto,
    /// As given.
    Bytes(Bytes),
}

impl Serialize for CacheSize {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            CacheSize::Auto => s.serialize_str("auto"),
            CacheSize::Bytes(bytes) => bytes.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for CacheSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(n) => Ok(CacheSize::Bytes(Bytes(n))),
            Either::Text(t) if t == "auto" => Ok(CacheSize::Auto),
            Either::Text(t) => t.parse().map(CacheSize::Bytes).map_err(serde::de::Error::custom),
        }
    }
}

/// How records are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trees {
    /// A single tree keyed by the record's key.
    One,
    /// An `_id` index and a record store, so that a read is two look-ups as in MongoDB.
    Two,
}

/// Block compressors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compressor {
    /// No compression.
    None,
    /// mongod's default.
    Snappy,
}

/// What the target's processes may use.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Memory of the target's group: its own and the page cache of what it reads. Absent: unlimited.
    pub memory: Option<Bytes>,
}

/// What the data live on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// A block device with a file system on it, a shaped folder, or the best that is possible here.
    #[serde(default)]
    pub mode: DiskMode,
    /// File system of the block device.
    #[serde(default)]
    pub filesystem: Filesystem,
    /// Size of the disk.
    pub size: Bytes,
    /// Where the shaped disk keeps its bytes.
    #[serde(default)]
    pub backing: BackingKind,
    /// Readahead of the kernel above the disk.
    #[serde(default = "no_readahead")]
    pub readahead: Bytes,
    /// The device during settling and measuring, as `iops=600,latency=7ms`; see `device::Spec`. Empty:
    /// unshaped.
    #[serde(default)]
    pub shape: String,
}

fn no_readahead() -> Bytes {
    Bytes(0)
}

/// How the shaped disk is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskMode {
    /// Block where root allows it, else file.
    #[default]
    Auto,
    /// One image behind FUSE, a loop device on it, a file system on that: iostat, PSI and readahead are real.
    Block,
    /// A shaped folder; needs no root.
    File,
}

/// File systems for block mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filesystem {
    /// ext4
    #[default]
    Ext4,
    /// XFS
    Xfs,
}

/// Where a shaped disk keeps its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackingKind {
    /// In the daemon's memory.
    #[default]
    Memory,
    /// In a file of the machine's real disk, which must be faster than the shape.
    Disk,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// YCSB records or reads of a file.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Bytes of the records in the engine's cache, as a share of the effective cache (80 % of it). Gives the
    /// number of records unless that is given.
    pub working_set: Option<Ratio>,
    /// Number of records.
    pub records: Option<u64>,
    /// Which records are asked for.
    #[serde(default = "uniform")]
    pub requests: Requests,
    /// Fields per record.
    #[serde(default = "ten")]
    pub fields: u16,
    /// Bytes per field.
    #[serde(default = "hundred")]
    pub field_length: u32,
    /// What the bytes look like.
    #[serde(default = "ycsb_values")]
    pub values: Values,
    /// For file reads: the file's size.
    #[serde(default = "file_size")]
    pub file_size: Bytes,
    /// For file reads: the smallest read.
    #[serde(default = "least_read")]
    pub least_read: Bytes,
    /// For file reads: the largest read.
    #[serde(default = "most_read")]
    pub most_read: Bytes,
}

fn uniform() -> Requests {
    Requests::Uniform
}
fn ten() -> u16 {
    10
}
fn hundred() -> u32 {
    100
}
fn ycsb_values() -> Values {
    Values::Ycsb
}
fn file_size() -> Bytes {
    Bytes::mib(64)
}
fn least_read() -> Bytes {
    Bytes::kib(4)
}
fn most_read() -> Bytes {
    Bytes::kib(32)
}

/// The workloads that a plan can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// YCSB, 100 % reads.
    #[default]
    YcsbReads,
    /// Random reads of one file, as fio's randread.
    FileReads,
}

/// How it is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Closed loop: so many sessions, each sends its next operation when the last one was answered.
    pub sessions: u32,
}

/// Phases of a trial and their criteria.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrialSpec {
    /// Length of an interval of the time series.
    #[serde(with = "span")]
    pub interval: Duration,
    /// The disk is unshaped and the workload runs at least this long before anything is judged.
    #[serde(with = "span")]
    pub warm_up_least: Duration,
    /// If the caches are not flat by then, the trial says so and is not valid.
    #[serde(with = "span")]
    pub warm_up_most: Duration,
    /// After shaping: how many times every session must have waited for the device before measuring.
    pub settle_turns: f64,
    /// Settling ends at the latest after this.
    #[serde(with = "span")]
    pub settle_most: Duration,
    /// Measured at least this long,
    #[serde(with = "span")]
    pub measure_least: Duration,
    /// and until so many operations were answered,
    pub measure_operations: u64,
    /// but not longer than this.
    #[serde(with = "span")]
    pub measure_most: Duration,
}

impl Default for TrialSpec {
    fn default() -> Self {
        TrialSpec {
            interval: Duration::from_millis(250),
            warm_up_least: Duration::from_secs(2),
            warm_up_most: Duration::from_secs(60),
            settle_turns: 2.0,
            settle_most: Duration::from_secs(10),
            measure_least: Duration::from_secs(5),
            measure_operations: 1_000,
            measure_most: Duration::from_secs(20),
        }
    }
}

/// WiredTiger, like mongod, writes its journal in files of 100 MB of which two or three exist at a time.
const JOURNAL_BYTES: u64 = 300_000_000;

impl Spec {
    /// The tables of a plan that are settings; everything else in it is about the experiment.
    pub const PARTS: [&'static str; 6] = ["target", "machine", "disk", "workload", "load", "trial"];

    /// WiredTiger starts to evict above this share of its cache, so a working set beyond it never rests.
    pub const EVICTION_TARGET: f64 = 0.80;

    /// 64 hexadecimal digits that differ when any setting does: a hash of the settings as canonical text.
    pub fn fingerprint(&self) -> String {
        let canonical = serde_json::to_string(self).expect("a spec is plain data");
        blake3::hash(canonical.as_bytes()).to_hex().to_string()
    }

    /// What no type can say.
    pub fn check(&self) -> Result<(), super::PlanError> {
        let wrong = |text: String| Err(super::PlanError(text));
        if self.load.sessions == 0 {
            return wrong("load.sessions must be at least 1".into());
        }
        self.shape()?;
        if self.target.kind == TargetKind::File && self.workload.kind != WorkloadKind::FileReads {
            return wrong("target.kind = \"file\" needs workload.kind = \"file_reads\"".into());
        }
        if self.target.kind == TargetKind::Wiredtiger {
            if self.workload.kind != WorkloadKind::YcsbReads {
                return wrong("target.kind = \"wiredtiger\" needs workload.kind = \"ycsb_reads\"".into());
            }
            if self.target.wiredtiger.cache == CacheSize::Auto && self.machine.memory.is_none() {
                return wrong(
                    "cache = \"auto\" is mongod's rule (memory − 1 GiB)/2 and needs machine.memory".into(),
                );
            }
            let cache = self.cache_bytes();
            if cache < Bytes::mib(4) {
                return wrong(format!(
                    "a WiredTiger cache of {cache} is too small to run; give at least 4 MiB"
                ));
            }
            if let Some(memory) = self.machine.memory
                && memory.0 < cache.0 + Bytes::mib(16).0
            {
                return wrong(format!(
                    "machine.memory of {memory} cannot hold a cache of {cache} and its process"
                ));
            }
        }
        if self.workload.kind == WorkloadKind::YcsbReads {
            if self.workload.working_set.is_none() && self.workload.records.is_none() {
                return wrong("give workload.working_set or workload.records".into());
            }
            if self.records() == 0 {
                return wrong("the working set has no records".into());
            }
            let needed = self.data_bytes().0;
            if self.target.kind == TargetKind::Wiredtiger && needed > self.disk.size.0 {
                return wrong(format!(
                    "disk.size of {} is too small for {} records of {} (about {} with journal and checkpoints)",
                    self.disk.size,
                    self.records(),
                    Bytes(self.dataset(0).logical_bytes() / self.records()),
                    Bytes(needed).rounded()
                ));
            }
        }
        if self.workload.kind == WorkloadKind::FileReads
            && (self.workload.least_read > self.workload.most_read
                || self.workload.most_read > self.workload.file_size
                || self.workload.file_size > self.disk.size)
        {
            return wrong("workload: least_read ≤ most_read ≤ file_size ≤ disk.size must hold".into());
        }
        Ok(())
    }

    /// The device that the cell is measured on.
    pub fn shape(&self) -> Result<device::Spec, super::PlanError> {
        self.disk.shape.parse().map_err(|e| super::PlanError(format!("disk.shape: {e}")))
    }

    /// Size of the engine's cache, by mongod's rule where it is not given.
    pub fn cache_bytes(&self) -> Bytes {
        match self.target.wiredtiger.cache {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Auto => {
                let memory = self.machine.memory.unwrap_or_default();
                Bytes((memory.0.saturating_sub(Bytes::gib(1).0) / 2).max(Bytes::mib(256).0))
            }
        }
    }

    /// The part of the engine's cache that can stay filled: up to where eviction starts.
    pub fn effective_cache_bytes(&self) -> Bytes {
        Bytes((self.cache_bytes().0 as f64 * Self::EVICTION_TARGET) as u64)
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        match (self.workload.records, self.workload.working_set) {
            (Some(records), _) => records,
            (None, Some(share)) => {
                let bytes = share.0 * self.effective_cache_bytes().0 as f64;
                (bytes / self.target.wiredtiger.record_resident_bytes as f64) as u64
            }
            (None, None) => 0,
        }
    }

    /// Bytes on the disk of this cell's data, journal and checkpoints included.
    pub fn data_bytes(&self) -> Bytes {
        match self.workload.kind {
            WorkloadKind::YcsbReads => Bytes(self.dataset(0).logical_bytes() * 3 / 2 + JOURNAL_BYTES),
            WorkloadKind::FileReads => self.workload.file_size,
        }
    }

    /// The records of this cell.
    pub fn dataset(&self, seed: u64) -> Dataset {
        Dataset {
            records: self.records(),
            fields: self.workload.fields,
            field_length: self.workload.field_length,
            key_hash: KeyHash::Ycsb,
            values: self.workload.values,
            seed,
        }
    }
}
