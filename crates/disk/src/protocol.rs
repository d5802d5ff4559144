//! What client and daemon say to each other: one JSON object a line, each request with one response.

use crate::calibrate::{Floor, Overhead};
use crate::privilege::Privileges;
use crate::trace::TraceSummary;
use crate::transport::Transport;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tipover_core::device::{Armed, Counters, CutReport, PowerCut, Rule, Spec};
use tipover_core::units::Bytes;
use tipover_core::units::span;

/// Reads a line as what a client says; prints it again.
///
/// # Errors
/// It is no request.
pub fn request(line: &str) -> serde_json::Result<String> {
    tipover_core::peer::again::<Request>(line)
}

/// Reads a line as what a daemon answers; prints it again.
///
/// # Errors
/// It is no response.
pub fn response(line: &str) -> serde_json::Result<String> {
    tipover_core::peer::again::<Response>(line)
}

/// What stands between the disk's users and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A real block device with a real file system on it: faithful in everything, needs root.
    Block,
    /// A folder shown through FUSE: needs no root, and knows files by name.
    File,
}

/// The file system that block mode puts on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filesystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

/// The shape that requests meet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct InForce {
    pub spec: Spec,
    /// What is taken off its latency for the transport.
    #[serde(with = "span", rename = "compensation_ns")]
    pub compensation: Duration,
}

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
        spec: Box<Spec>,
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
    TracePath,
    /// Stay when this client goes, and listen for others.
    Keep(Box<Notes>),
    /// What the next client shall know.
    Remember(Box<Notes>),
    /// What the last client knew.
    Recall,
    AddFault(Box<Rule>),
    Faults,
    /// One by number, or all.
    ClearFaults(Option<u64>),
    PowerCut(PowerCut),
    /// With what was mounted before.
    PowerOn(Mounted),
    /// Take everything down and end.
    Unmount,
}

/// What a client knows about its disk, for the client after it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Notes {
    pub request: MountRequest,
    pub mounted: Mounted,
    pub in_force: InForce,
    pub floor: Floor,
    /// As far as measured.
    pub overheads: Vec<Overhead>,
    /// When the disk was handed over.
    pub began: Counters,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MountRequest {
    pub mode: Mode,
    pub filesystem: Filesystem,
    pub size: Bytes,
    pub backing: BackingChoice,
    pub mountpoint: PathBuf,
    pub readahead: Bytes,
    pub power_cuts: bool,
    pub transport: Transport,
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
    Path(Option<PathBuf>),
    Number(u64),
    Faults(Vec<Armed>),
    Cut(CutReport),
    Notes(Box<Notes>),
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
    /// Never [`Transport::Auto`].
    pub transport: Transport,
}
