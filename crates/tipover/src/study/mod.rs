//! From records to figures with their errors: pure functions, so that any report can be made again from its
//! results.

pub mod accesses;
mod broken;
pub mod comparison;
pub mod large_values;
mod published;
mod surroundings;

pub use broken::{BrokenCell, Calm, Range, Spans};
pub use published::{LargeValues, PublishedBank, PublishedPrices, PublishedRow, PublishedTest, TippingPoint};
pub use surroundings::{Surroundings, disturbed};
