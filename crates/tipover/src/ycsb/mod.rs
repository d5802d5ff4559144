//! The drop-in for YCSB: its command line, its property files, its output.

mod arguments;
mod bindings;
mod closing;
mod go;
mod java;
mod measurements;
mod raw;
mod run;
mod settings;
mod status;

pub use arguments::{Arguments, Phase};
pub use run::run;

/// What was typed, or stands in a property file, cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Mistake(pub String);
