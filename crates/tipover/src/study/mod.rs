//! From records to figures with their errors: pure functions, so that any report can be made again from its
//! results.

mod block_layer;
mod broken;
pub mod comparison;
mod figures;
mod published;

pub use broken::{BrokenCell, Spans};
pub use figures::{CellRecords, Cells};
pub use published::{PublishedBank, PublishedPrices, PublishedTest, WorkingSet};
