//! A disk as arithmetic: given when a request arrives, when it completes.
//!
//! The same [`Model`] shapes a real mount (`tipover-disk` asks it when to answer) and a simulated one
//! (`simulate` runs it in virtual time), so what a plan predicts and what a trial meets are one thing.
//! A request to several disks in RAID 0 is divided among them.
//! Order of its stations on a disk: gates for operations (of all, of its kind; with burst credits), earliest
//! of the parallel servers, service time, seek and rotation or write cache, pipes for bytes. [`Counters`]
//! watch it as the kernel's diskstats do: [`Rates`] are iostat's columns by construction.

mod counters;
mod fault;
mod gate;
mod histogram;
mod model;
mod power;
mod profile;
mod spec;
mod spindle;
mod text;

pub use counters::{Counters, Rates, Totals};
pub use fault::{Armed, Asked, Effect, FaultError, Faults, Rule, RuleError, Verdict};
pub use histogram::ServiceHistogram;
pub use model::{Admission, Demand, Model};
pub use power::{CutReport, Fate, PowerCut};
pub use profile::{Profile, UnknownProfile, profile, profiles};
pub use spec::{Array, Burst, BusyHours, Cache, Order, Spec, SpecError, Spread};
pub use spindle::Spindle;

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

/// In [0, 1), well mixed: the last step of SplitMix64.
fn hash(mut z: u64) -> f64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
