//! What Tipover knows: pure and deterministic. No clock, file, thread, socket or environment is touched here
//! (`clippy.toml` of this crate forbids them), so a whole trial can also run in virtual time.

pub mod units;
pub mod device;
pub mod metric;
