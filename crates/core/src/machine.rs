//! The machine under the laboratory as records keep it. Whoever can look fills it in.

use crate::units::{Bytes, Ratio};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Whether this process can do something here, with the reason if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// Tried or looked at, and it works.
    Yes,
    /// It does not work.
    No {
        /// Why not, in words.
        why: String,
    },
}

impl Default for Ability {
    /// Nobody has looked.
    fn default() -> Self {
        Ability::No { why: "nobody has looked".into() }
    }
}

impl Ability {
    /// Whether it works.
    pub fn yes(&self) -> bool {
        *self == Ability::Yes
    }

    /// What was found, in words.
    pub fn found(&self) -> String {
        match self {
            Ability::Yes => "usable".into(),
            Ability::No { why } => why.clone(),
        }
    }
}

/// The two designs of control groups in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A folder and the filesystem under it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// The folder asked about.
    pub path: PathBuf,
    /// `ext4`, `xfs`, `overlay`, ...; "unknown" if the mount table does not say.
    pub filesystem: String,
    /// What this user may still write.
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
    /// The whole filesystem.
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
}

/// The version of [`Facts`] that is written. Records from before there was one have 0.
pub const FORMAT: u32 = 1;

/// Where trials run, as found by looking. What could not be found out is `None`, never guessed; what an
/// earlier version did not keep is as by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Version of this format.
    pub format: u32,
    /// Whether time was virtual and there was no machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// Kernel release, such as "6.18.44".
    pub kernel: String,
    /// Instruction set, such as "x86_64".
    pub architecture: String,
    /// The CPU's own name.
    pub cpu_model: Option<String>,
    /// Cores that this process may use; 0 where that was not kept.
    pub cores: u32,
    /// Memory of the machine.
    #[serde(rename = "memory_total_bytes")]
    pub memory_total: Bytes,
    /// What programs can still get without swapping, by the kernel's estimate.
    #[serde(rename = "memory_available_bytes")]
    pub memory_available: Bytes,
    /// Swap space.
    #[serde(rename = "swap_total_bytes")]
    pub swap_total: Bytes,
    /// Swap in use.
    #[serde(rename = "swap_used_bytes")]
    pub swap_used: Bytes,
    /// What the kernel's clock reads: "tsc", "kvm-clock", "hpet", ...
    pub clock_source: Option<String>,
    /// Transparent huge pages: "always", "madvise" or "never".
    pub huge_pages: Option<String>,
    /// CPU frequency governor; `None` = not exposed, as in most virtual machines.
    pub governor: Option<String>,
    /// Mean number of tasks running or waiting for a disk, over 1, 5 and 15 minutes.
    pub load_average: [f64; 3],
    /// Which designs of control groups are mounted.
    pub cgroup_versions: BTreeSet<Version>,
    /// Their controllers, each with the version that holds it.
    pub cgroup_controllers: BTreeMap<String, Version>,
    /// Whether a memory limit can be set, tried with a group that was removed at once.
    pub memory_limit: Ability,
    /// Whether `/dev/fuse` can be opened and this process may mount, itself or through fusermount3.
    pub fuse: Ability,
    /// Whether loop devices can be made.
    pub loop_devices: Ability,
    /// Whether this process is root.
    pub root: bool,
    /// Where results and disks are to lie.
    pub folder: Folder,
    /// What runs under this kernel: "virtual machine (KVM)", "container on ...", or `None` for bare metal.
    pub virtualisation: Option<String>,
    /// Programs that make filesystems, by filesystem; `None` = not installed.
    pub mkfs: BTreeMap<String, Option<PathBuf>>,
    /// Share of CPU time since boot that the hypervisor gave to others.
    pub steal: Option<Ratio>,
    /// What earlier runs of Tipover left behind, by name.
    pub leftovers: Vec<String>,
    /// Settings of the kernel's memory management.
    pub kernel_settings: KernelSettings,
    /// The block device under the folder; `None` where there is none to be seen.
    pub device: Option<BlockDevice>,
}

/// Settings of the memory management.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct KernelSettings {
    /// How readily memory of programs is swapped: vm.swappiness.
    pub swappiness: Option<u32>,
    /// Dirty bytes from which on the kernel writes back in the background.
    #[serde(rename = "dirty_background_bytes")]
    pub dirty_background: Option<Bytes>,
    /// Dirty bytes from which on writers must wait.
    #[serde(rename = "dirty_most_bytes")]
    pub dirty_most: Option<Bytes>,
    /// vm.zone_reclaim_mode.
    pub zone_reclaim: Option<u32>,
    /// Whether FUSE over io_uring is switched on; `None` where it cannot be used anyway.
    pub fuse_ring: Option<bool>,
}

/// The block device under a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockDevice {
    /// The kernel's name: "nvme0n1", "vda".
    pub name: String,
    /// Who orders its requests: "none", "mq-deadline", "bfq".
    pub scheduler: Option<String>,
    /// How far the kernel reads ahead.
    #[serde(rename = "readahead_bytes")]
    pub readahead: Option<Bytes>,
    /// "write back" if it has a cache that must be flushed, "write through" if not.
    pub write_cache: Option<String>,
    /// How the folder's filesystem is mounted: "rw,relatime".
    pub mount_options: String,
}

impl Facts {
    /// Processors of a real machine, where they are known.
    pub fn processors(&self) -> Option<f64> {
        (self.cores > 0 && !self.simulated).then_some(f64::from(self.cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_every_version_are_read() {
        let before: Facts =
            serde_json::from_str(r#"{"kernel": "6.1", "cores": 2, "nobody knows": 1}"#).unwrap();
        assert_eq!((before.format, before.processors(), before.kernel.as_str()), (0, Some(2.0), "6.1"));
        assert!(!before.memory_limit.yes() && before.device.is_none());
        let text = serde_json::to_string(&Facts { format: FORMAT, ..before.clone() }).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), Facts { format: FORMAT, ..before });
        let virtual_time: Facts = serde_json::from_str(r#"{"simulated": true, "cores": 2}"#).unwrap();
        assert_eq!((virtual_time.processors(), virtual_time.cores), (None, 2));
        assert_eq!(serde_json::from_str::<Facts>("{}").unwrap().processors(), None);
    }
}
