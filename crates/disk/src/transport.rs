//! What carries a disk's requests between the kernel and its daemon, and which way is open here.

use crate::ring;
use serde::{Deserialize, Serialize};

/// What carries requests between the kernel and the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// The ring where it can be used and the machine's switch for it is on, else classic.
    #[default]
    Auto,
    /// Reads and writes of `/dev/fuse`.
    Classic,
    /// FUSE over io_uring, a queue for each processor: up to about twice as many requests. Asked for by name,
    /// the machine's switch is turned on while mounting, and put back.
    Ring,
}

impl Transport {
    /// What a disk gets whose bytes are in memory, or elsewhere; never [`Transport::Auto`].
    pub(crate) fn resolve(self, in_memory: bool) -> Result<Transport, String> {
        let obstacle = match in_memory {
            true => ring_obstacle(),
            // A queue's thread does what it is asked, one request after the other: it must not wait.
            false => Some("it is for disks in memory".into()),
        };
        match (self, obstacle) {
            (Transport::Ring, Some(reason)) => Err(reason),
            (Transport::Ring, None) => Ok(Transport::Ring),
            (Transport::Auto, None) if ring::is_offered() == Some(true) => Ok(Transport::Ring),
            (Transport::Auto | Transport::Classic, _) => Ok(Transport::Classic),
        }
    }
}

/// Whether the kernel offers FUSE over io_uring now, and what is in the way of using it.
#[must_use]
pub fn ring_state() -> (bool, Option<String>) {
    (ring::is_offered() == Some(true), ring_obstacle())
}

fn ring_obstacle() -> Option<String> {
    if ring::is_offered().is_none() {
        return Some("this kernel does not have it (Linux has since 6.14)".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".into());
    }
    ring::is_allowed().err().map(|e| format!("io_uring is not allowed here: {e}"))
}
