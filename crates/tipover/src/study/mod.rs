//! From records to figures with their errors: pure functions, so that any report can be made again from its
//! results.

pub mod accesses;
pub mod comparison;
pub mod large_values;
mod published;
mod surroundings;

pub use published::{LargeValues, PublishedBank, PublishedPrices, PublishedRow, PublishedTest, TippingPoint};
pub use surroundings::{Surroundings, disturbed};
