//! Why a disk does not do as told.

use std::io;

/// Why a mounted disk did not do as told.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The daemon died. Its mount is dead too.
    #[error(
        "the disk's daemon is gone ({0}); unmount, and run `tipover doctor --clean` if something stays mounted"
    )]
    Gone(io::Error),
    /// The daemon tried and failed.
    #[error("{step}: {reason}")]
    Failed {
        /// What it tried.
        step: String,
        /// What the system said.
        reason: String,
    },
    /// A disk faster than what carries its requests.
    #[error(
        "{asked} is beyond what carries the disk's requests here ({measured}); ask for a slower disk or leave that key out"
    )]
    BeyondTransport {
        /// Key and value.
        asked: String,
        /// The floor.
        measured: String,
    },
    /// Measuring the mount itself failed.
    #[error("calibration: {0}")]
    Calibration(io::Error),
}

impl DiskError {
    pub(crate) fn out_of_step() -> DiskError {
        DiskError::Gone(io::Error::other("it answers out of step"))
    }
}
