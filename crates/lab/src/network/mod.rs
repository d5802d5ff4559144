//! The shaped network: one process that is the switch between nodes, each of which has a namespace of its
//! own.
//!
//! The kernel gives every member a TUN device; what it sends is read by the daemon ([`serve`]), held back,
//! lost, doubled or let through as the [`Link`] of its pair says, and written to the receiver's device. So
//! one process knows of every packet, for every protocol, and nothing is left when it ends: devices and
//! namespaces go with their last user.
//!
//! Without root there are no namespaces: [`Proxy`] then delays and cuts TCP connections on the loopback, and
//! cannot lose, double or reorder packets, because TCP hides them.

mod client;
pub(crate) mod daemon;
mod device;
mod link;
mod proxy;
mod switch;

pub use client::{LABORATORY, Member, Network, NetworkError, NetworkOptions, enter, possible};
pub use daemon::serve;
pub use link::{Link, LinkCounters, Pair, Senseless};
pub use proxy::Proxy;
pub use switch::Timing;
