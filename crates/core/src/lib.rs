//! What Tipover knows: pure and deterministic. No clock, file, thread, socket or environment is touched here
//! (`clippy.toml` of this crate forbids them), so a whole trial can also run in virtual time.

pub mod audit;
pub mod check;
pub mod device;
pub mod experiment;
pub mod explain;
pub mod learn;
pub mod machine;
pub mod measure;
pub mod metric;
pub mod nearest;
pub mod op;
pub mod peer;
pub mod predict;
pub mod probability;
pub mod record;
pub mod schedule;
pub mod search;
pub mod shared;
pub mod storage;
pub mod study;
pub mod target;
pub mod trial;
pub mod units;
pub mod workload;
