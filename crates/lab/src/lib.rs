//! Where a trial runs: process trees with memory and CPU limits that leave nothing behind.
//!
//! * [`Cgroups`] looks at what the machine offers (cgroup v1, v2 or both at once), [`Group`] is one limited
//!   place.
//! * [`Launch`] starts a command inside a group before its first instruction; [`Child`] guards the tree it
//!   becomes.
//! * [`recipe`] starts single servers; a [`Node`] is one with limits, a disk and an address of its own, and
//!   can be broken; a [`Cluster`] is several, joined by a shaped [`network`]; a [`Conductor`] breaks them
//!   by a schedule. A [`keeper`] holds one until it is told otherwise.
//! * [`Name`] marks everything made here with its owner, so that [`leftovers`] finds what a killed run left.
//!
//! Linux only. `unsafe` appears once, in `child`, for the few system calls between fork and exec.

mod cgroups;
mod child;
mod cluster;
mod conductor;
mod group;
pub mod keeper;
mod leftover;
mod limits;
mod mongodb;
mod name;
pub mod network;
mod node;
mod own_group;
pub mod recipe;
mod scratch;
mod shaped;
mod usage;

/// Bytes of other processes, read without them, one function for each way: they are tried with bytes that
/// nobody wrote (`crates/fuzz`).
pub mod untrusted {
    pub use crate::keeper::untrusted as keeper;
    pub use crate::mongodb::answer;
    pub use crate::network::daemon::{request, response};
}

pub use cgroups::{Around, Cgroups};
pub use child::{Cause, Child, Ending, Exit, Launch, LaunchError};
pub use cluster::{Binaries, Cluster, ClusterError, ClusterOptions, LinkFault, installed};
pub use conductor::{Agenda, Conductor, NO_CLOCK, Policy};
pub use group::Group;
pub use leftover::{Cleaned, Leftover, clean, leftovers};
pub use limits::{LimitError, Limits};
pub use name::Name;
pub use node::{Node, NodeError, NodeOptions};
pub use recipe::find_built;
pub use rustix::process::Signal;
pub use scratch::{Scratch, clean_folders, leftover_folders};
pub use shaped::mount_options;
pub use tipover_core::machine::Version;
pub use usage::{CpuTime, DeviceUse, MemoryUse};
