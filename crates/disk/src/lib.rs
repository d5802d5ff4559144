//! The shaped disk: `tipover_core::device` behind FUSE, in a process of its own.
//!
//! [`Disk::mount`] starts a daemon (which runs [`serve`]) and gives a guard. In **block mode** the daemon
//! shows one image file, a loop device with direct I/O stands on it and a real file system on that, so that
//! diskstats, PSI, readahead and journal replay are the kernel's own. In **file mode** it shows a folder.
//! Layers, from the user down: page cache, file system and loop device (block mode), FUSE, [`shape`], and a
//! `Backing` that keeps the bytes.
//!
//! Whoever dies, nothing stays: the daemon ends with its client, and what a killed daemon leaves is found by
//! [`leftovers`] and removed by [`clean`].

mod backing;
mod block;
mod calibrate;
mod clock;
mod control;
mod daemon;
mod error;
mod extents;
mod faults;
mod file;
mod history;
mod journal;
mod kept;
mod leftovers;
mod loopdev;
mod mkfs;
mod mount;
mod mounts;
mod nodes;
mod open;
mod power;
mod privilege;
mod process;
mod protocol;
mod requests;
mod ring;
mod shape;
mod softirq;
mod stack;
mod state;
mod table;
mod trace;
mod transport;
mod volatile;

/// Bytes of other processes and of the kernel, read without them, one function for each way: they are tried
/// with bytes that nobody wrote (`crates/fuzz`).
pub mod untrusted {
    pub use crate::protocol::{request, response};
    pub use crate::ring::untrusted::ring;
}

pub use calibrate::{Calibration, Check};
pub use clock::monotonic;
pub use control::DiskReader;
pub use daemon::{connect as control_socket, serve};
pub use error::DiskError;
pub use extents::{Extent, FileMap};
pub use kept::{FindError, Mounted, mounted};
pub use leftovers::{Leftover, clean, leftovers};
pub use mount::{DaemonCommand, Disk, MountError, MountOptions, open_fuse};
pub use mounts::{Mount, parse_mountinfo};
pub use privilege::{Privileges, run_on_time, run_ordinarily};
pub use process::{FIRST_NAMESPACE, own_namespace};
pub use protocol::{BackingChoice, Filesystem, Mode};
pub use trace::{Ending, Record, Trace, TraceError, TraceSummary};
pub use transport::{Transport, ring_state};
