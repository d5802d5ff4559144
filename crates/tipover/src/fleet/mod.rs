//! Studies over many machines, on NATS with JetStream.
//!
//! ```text
//! who asks   tipover.block.<lane>.<run>.<number> ──a work queue──→ one machine at a time
//! machine    tipover.result.<run>.<number>.<trial> ─────────────→ who asks, whenever it asks
//!            objects by digest (records, histograms, histories, traces)
//!            buckets: machines (who is there), lanes (what blocks demand), holders (of blocks), orders
//! ```
//!
//! The queue delivers a block again when its machine was not heard of for the length of a lease. Who holds it
//! is an entry that only compare-and-set changes, and a trial's result is taken once, by the subject
//! that it is published on; so a machine that comes back from a pause finds that it lost its block, and
//! nothing is counted twice. A load that several machines send together is in `load`.

pub mod agent;
pub mod coordinator;
mod hold;
pub mod keys;
mod link;
mod load;
pub mod message;
pub mod server;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod untrusted;

pub use link::{Link, Login};

use crate::interrupt::Interrupt;
use std::time::{Duration, Instant};

/// First tokens of subjects, and names of streams.
pub const BLOCKS: &str = "tipover.block";
/// Of what came of blocks.
pub const RESULTS: &str = "tipover.result";
/// Of what machines that send a load together say to each other; kept by no stream.
pub const PARTS: &str = "tipover.part";
/// Of what machines say.
pub const LOG: &str = "tipover.log";

/// What was asked for cannot be given to this fleet.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// How long a machine may be silent before its block is given to another, unless a run says otherwise.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long servers that are slow are asked again.
const PATIENCE: Duration = Duration::from_secs(300);

/// SHA-256 of `bytes`, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Seconds since 1970.
fn unix_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Some part of `span`, so that two who wait for each other do not go on doing so.
fn some_of(span: Duration) -> Duration {
    let share = u64::from_str_radix(&fresh(), 16).unwrap_or(0) as f64 / u64::MAX as f64;
    span.mul_f64(share)
}

/// Does `work` again for up to [`PATIENCE`], as long as it is the servers that are slow: a thousand machines
/// that join at once are served one after the other.
///
/// # Errors
/// The last one.
pub fn patiently<T>(interrupt: &Interrupt, mut work: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        match work() {
            Err(error) if link::is_slow(&error) && began.elapsed() < PATIENCE && !interrupt.is_asked() => {
                eprintln!("the fleet is slow ({error:#}); trying again");
                std::thread::sleep(some_of(Duration::from_secs(5)));
            }
            done => return done,
        }
    }
}

/// A name nobody else has: 16 hexadecimal digits.
fn fresh() -> String {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    hexadecimal(&bytes)
}
