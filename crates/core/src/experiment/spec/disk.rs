//! What the target may use, and what its data live on.

use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the target's processes may use.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Memory of the target's group: its own and the page cache of what it reads. Absent: unlimited.
    pub memory: Option<Bytes>,
    /// Whether the target's memory may be in huge pages; absent: as the system does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<HugePages>,
    /// Labels that a machine of a fleet must have to carry this out, such as disk = "nvme".
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Whether memory may be in huge pages (transparent ones, of 2 MiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugePages {
    /// The allocator asks for them wherever they fit.
    Always,
    /// None, whatever the system does.
    Never,
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
    /// The folder of a real disk that keeps the bytes, with `backing = "disk"`. Absent: one in the results
    /// folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Readahead of the kernel above the disk.
    #[serde(default = "no_readahead")]
    pub readahead: Bytes,
    /// Readahead from settling on, set while the target runs and has its files open. Absent: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readahead_later: Option<Bytes>,
    /// The device during settling and measuring, as `iops=600,latency=7ms`; see `device::Spec`. Empty:
    /// unshaped.
    #[serde(default)]
    pub shape: String,
    /// Whether every request that reaches the disk while measuring is recorded; the report then shows them
    /// as a moving picture. About ten bytes each. Absent when not, so that older results keep their names.
    #[serde(default, skip_serializing_if = "is_false")]
    pub trace: bool,
    /// The shape of a second disk that has the engine's journal alone; "with-data", or absent: the journal
    /// lies with the data.
    #[serde(default, with = "journal", skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
}

mod journal {
    use serde::{Deserialize, Deserializer, Serializer};

    const WITH_DATA: &str = "with-data";

    pub fn serialize<S: Serializer>(shape: &Option<String>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(shape.as_deref().unwrap_or(WITH_DATA))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
        Ok(Some(String::deserialize(d)?).filter(|shape| shape != WITH_DATA))
    }
}

impl DiskSpec {
    /// The disk without what can be changed while it is mounted: two cells for which this is the same share a
    /// disk.
    pub fn as_mounted(&self) -> DiskSpec {
        DiskSpec {
            shape: String::new(),
            trace: false,
            readahead: no_readahead(),
            readahead_later: None,
            journal: None,
            ..self.clone()
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Default for DiskSpec {
    fn default() -> Self {
        DiskSpec {
            mode: DiskMode::None,
            filesystem: Filesystem::default(),
            size: Bytes(0),
            backing: BackingKind::default(),
            folder: None,
            readahead: no_readahead(),
            readahead_later: None,
            shape: String::new(),
            trace: false,
            journal: None,
        }
    }
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
    /// No disk of ours: a server keeps its data where it keeps them. What a plan without a `disk` table gets.
    None,
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
