//! From records to figures with their errors: pure functions, so that any report can be made again from its
//! results.

mod block_layer;
pub mod comparison;
mod figures;
mod published;

pub use figures::{CellRecords, Cells};
pub use published::{PublishedRow, TippingPoint, WorkingSet};
