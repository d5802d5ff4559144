//! Every request that reached the device, as a file: when it arrived, when it was answered, what it was.
//!
//! Threads that serve requests put records into a [`tap`] and never wait; a thread of its own takes them out
//! and writes them in the compact [`format`]; [`Trace`] reads them again, also what a killed daemon left.

mod format;
mod reader;
mod tap;
mod writer;

pub use reader::{Ending, Trace, TraceError};
pub(crate) use tap::Tap;
pub(crate) use writer::{Names, Writer};

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tipover_core::device::Kind;
use tipover_core::units::{Bytes, Tick};

/// One request, as the device saw it. Over all of a trace, counts, bytes and residences of each kind are
/// those of [`Counters`](tipover_core::device::Counters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// When it arrived, on [`crate::monotonic`]'s clock; dated back by what the transport costs.
    pub arrival: Tick,
    /// When it was answered.
    pub end: Tick,
    /// What it asked for.
    pub kind: Kind,
    /// Which file in file mode, to be looked up in [`Trace::files`]; zero in block mode.
    pub file: u64,
    /// Where it begins: in its file, or in block mode on the device. A flush has none.
    pub offset: u64,
    /// How many bytes; a flush has none.
    pub size: Bytes,
}

impl Record {
    /// From arrival to answer.
    pub fn residence(&self) -> Duration {
        self.end.since(self.arrival)
    }
}

/// What a finished trace holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceSummary {
    /// Requests written.
    pub records: u64,
    /// Requests that came faster than they could be written, and are missing.
    pub dropped: u64,
    /// Size of the file.
    #[serde(rename = "size_bytes")]
    pub bytes: u64,
}
