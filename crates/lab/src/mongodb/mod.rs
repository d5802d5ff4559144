//! MongoDB's clusters: making sets and shards, who is primary, and when everybody follows.
//!
//! What is asked of the servers is made here as documents and what they answer is read here, both without a
//! server, so that they can be tested. They follow MongoDB's manual, and run against mongod 3.6.8 and
//! `crates/reference-mongod`.

mod ask;
mod commands;
mod standing;

pub use ask::answer;
pub(crate) use ask::{Refused, ask, hello};
pub(crate) use commands::{add_shard, initiation, set_address, step_down};
pub(crate) use standing::{Applied, Hello, members, unfinished};
