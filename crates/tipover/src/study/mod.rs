//! From records to figures with their errors: pure functions, so that any report can be made again from its
//! results.

pub mod accesses;
pub mod bracketed;
pub mod comparison;
mod disturbance;
mod growth;
pub mod imitation;
pub mod planned;
mod published;

pub use disturbance::{Disturbance, Disturbances, disturbance, disturbed};
pub use growth::Growth;
pub use published::{LargeValues, PublishedBank, PublishedPrices, PublishedRow, PublishedTest, TippingPoint};
