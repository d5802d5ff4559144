//! A disk as arithmetic: given when a request arrives, when it completes.
//!
//! The same [`Model`] shapes a real mount (`tipover-disk` asks it when to answer) and a simulated one
//! (`simulate` runs it in virtual time), so what a plan predicts and what a trial meets are one thing.
//! Order of a request's stations: IOPS gate, earliest of the parallel servers, service time, shared
//! bandwidth pipe. [`Counters`] watch it as the kernel's diskstats do: [`Rates`] are iostat's columns by
//! construction.

mod counters;
mod model;
mod spec;

pub use counters::{Counters, Rates, Totals};
pub use model::Model;
pub use spec::{Spec, SpecError, Spread};

use serde::{Deserialize, Serialize};

/// What a request asks of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes out.
    Read,
    /// Bytes in.
    Write,
    /// What was written must survive a power cut; no bytes of its own.
    Flush,
    /// A range is no longer needed and reads as zeros; costs nothing here.
    Discard,
}
