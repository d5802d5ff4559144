//! What is asked of a target: a data set, and operation n as a pure function of (seed, n).

pub mod arrivals;
pub mod bank;
mod checked;
mod dataset;
pub mod distribution;
pub mod documents;
mod file;
pub mod file_io;
mod lengths;
mod loading;
pub mod properties;
mod random;
pub mod recorded;
mod records;
pub mod script;
pub mod sysbench;
pub mod tpcb;
pub mod ycsb;
mod zipf;

pub use arrivals::{Arrivals, Schedule, Trace};
pub use checked::{Ledger, ListTransactions, Registers, Snapshots, Split, Transfers};
pub use dataset::{Dataset, Keys, Shape, Values};
pub use documents::{Bson, DocumentSink, Documents, JsonText};
pub use file::RandomReads;
pub use file_io::FileIo;
pub use lengths::{Histogram, Lengths};
pub use loading::Loading;
pub use properties::{CoreWorkload, Properties};
pub use random::Random;
pub use records::Records;
pub use script::{ScriptRuns, Scripts};
pub use ycsb::{Inserts, Mix, Requested, Ycsb};

use crate::op::{Op, Outcome};

/// A stream of operations that can be repeated, split over machines and checked, because operation `n`
/// depends on nothing but the seed, `n`, and for a stream that inserts on which records exist.
pub trait Workload: Send + Sync {
    /// Operation number `n`. An insert claims its number from `records`; a read asks for a known one.
    fn op(&self, n: u64, records: &Records) -> Op;

    /// The session that operation `n` belongs to, where it was recorded; `None` where any session may take
    /// it.
    fn session(&self, n: u64) -> Option<u32> {
        let _ = n;
        None
    }

    /// Whether later operations depend on what became of earlier ones, which [`Workload::settle`] must be
    /// told.
    fn follows(&self) -> bool {
        false
    }

    /// Tells the last outcome of `op`, which was operation number `n`.
    fn settle(&self, n: u64, op: &Op, outcome: Outcome) {
        let _ = (n, op, outcome);
    }
}
