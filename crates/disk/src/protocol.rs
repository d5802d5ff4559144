//! What client and daemon say to each other: one JSON object a line, each request with one response.

use crate::mount::{Filesystem, Mode};
use crate::privilege::Privileges;
use crate::trace::TraceSummary;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tipover_core::device::{Counters, Spec};
use tipover_core::units::Bytes;
use tipover_core::units::span;

/// Where the bytes are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackingChoice {
    /// In memory: sparse, charged to the daemon, gone at unmount.
    Memory,
    /// Block mode: in a nameless file in this folder, gone at unmount. File mode: the folder itself, shown
    /// through the disk; what is written stays.
    Directory(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// First and once.
    Mount(MountRequest),
    /// The shape of requests that arrive from now on.
    Set {
        spec: Spec,
        #[serde(with = "span")]
        compensation: Duration,
    },
    Counters,
    /// Forget clean pages of the files below the mount.
    DropCaches,
    Readahead(Bytes),
    /// Begin to write every request to a new file.
    TraceStart(PathBuf),
    TraceStop,
    /// Take everything down and end.
    Unmount,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MountRequest {
    pub mode: Mode,
    pub filesystem: Filesystem,
    pub size: Bytes,
    pub backing: BackingChoice,
    pub mountpoint: PathBuf,
    pub readahead: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    Done,
    Mounted(Mounted),
    Counters {
        counters: Counters,
        /// CPU time the daemon has used so far.
        #[serde(with = "span")]
        cpu: Duration,
    },
    Traced(TraceSummary),
    /// What was tried, and what the system said.
    Failed {
        step: String,
        reason: String,
    },
}

/// What the daemon has put up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Mounted {
    pub loop_number: Option<u32>,
    /// What calibration reads: the block device, or a file of the daemon's own.
    pub calibration_file: PathBuf,
    pub privileges: Privileges,
}
