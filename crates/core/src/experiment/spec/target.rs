//! Which system is measured, and how it is configured.

use super::Address;
use crate::units::{Bytes, span};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// Where a server is: `postgres://user@host:5432/database`, `mysql://...`, `mongodb://...`. Its password is
    /// used and never written down.
    pub address: Option<Address>,
    /// What an acknowledgement of a write promises.
    #[serde(default)]
    pub durability: Durability,
    /// Settings of every session, in the server's own words (`synchronous_commit = "remote_apply"`); set
    /// after
    /// [`TargetSpec::durability`], and read back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl TargetSpec {
    /// A system of this kind, all else as in a plan that says no more.
    pub fn of(kind: TargetKind) -> TargetSpec {
        TargetSpec {
            kind,
            request_path_cpu: Duration::ZERO,
            wiredtiger: WiredTigerSpec::default(),
            address: None,
            durability: Durability::default(),
            settings: BTreeMap::new(),
        }
    }
}

/// What an acknowledgement of a write promises, in words that mean the same on every target. A target that
/// cannot give a promise says so when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// As the target is configured; what that is, is read back.
    #[default]
    Configured,
    /// Nothing: the write was sent. MongoDB's w:0.
    Unacknowledged,
    /// It was applied in memory: w:1 without j, synchronous_commit=off, innodb_flush_log_at_trx_commit=0. A
    /// crash of the process may lose it.
    Acknowledged,
    /// It was handed to the operating system: WiredTiger's log written with write(2),
    /// innodb_flush_log_at_trx_commit=2. A crash of the process loses nothing, a power cut may.
    Written,
    /// It was flushed to this node's disk: j:true, synchronous_commit=local,
    /// innodb_flush_log_at_trx_commit=1.
    Journalled,
    /// One more node has received it: w:2, synchronous_commit=remote_write, semisync.
    ReplicatedToOne,
    /// A majority, or as many standbys as the server is configured for, has flushed it: w:majority with j,
    /// synchronous_commit=on.
    ReplicatedToMajority,
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
    /// A PostgreSQL server, at `target.address`.
    Postgres,
    /// A MariaDB or MySQL server, at `target.address`.
    Mysql,
    /// A server that speaks MongoDB's wire protocol, at `target.address`.
    Mongodb,
    /// Wrong on purpose, to test what ought to notice.
    Guilty,
}

impl TargetKind {
    /// Whether it is a server that runs already, at an address; the others keep their data in a folder that
    /// the laboratory gives them.
    pub fn is_server(self) -> bool {
        matches!(self, TargetKind::Postgres | TargetKind::Mysql | TargetKind::Mongodb)
    }

    /// Whether it keeps its data on the disk of the plan.
    pub fn needs_disk(self) -> bool {
        matches!(self, TargetKind::File | TargetKind::Wiredtiger)
    }
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
    /// A fixed size.
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
