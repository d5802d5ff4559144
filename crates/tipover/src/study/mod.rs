//! From records to figures with their errors: pure functions, so that any report can be made again from its
//! results.

pub mod accesses;
mod block_layer;
mod broken;
pub mod comparison;
mod figures;
pub mod large_values;
mod published;
mod surroundings;

pub use broken::{BrokenCell, Calm, Range, Spans};
pub use figures::{CellRecords, Cells};
pub use published::{
    LargeValues, PublishedBank, PublishedPrices, PublishedRow, PublishedTest, TippingPoint, WorkingSet,
};
pub use surroundings::{Surroundings, disturbed};
