//! The drop-in for pgbench: its command line, its tables, its output and logs.

mod address;
mod options;
mod report;
mod run;
mod tables;
mod tally;

pub use run::{Ended, run};
