//! A disk measured by itself: a load on a folder, file or device, the counters beside it, the search for its
//! tipping point, and a canary for days. What follows from the numbers is arithmetic in `core::storage`.

mod array;
mod capture;
mod climb;
mod company;
mod load;
mod location;
mod measure;
mod surface;
mod surroundings;
mod watch;

pub use array::{ArrayCheck, check as check_array};
pub use capture::{Sitting, capture, capture_copy};
pub use climb::{Climb, climb};
pub use company::Company;
pub use load::Disks;
pub use location::{Access, Location};
pub use measure::{Bench, Window, open_files};
pub use surface::surface;
pub use surroundings::Surroundings;
pub use watch::{Watch, watch};

/// What the user gave cannot be used: the path, the size, or what would be overwritten.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);

/// Somebody pressed Ctrl-C, or time was given up.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// Whether to stop, asked again and again.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// An error if it is time to stop.
fn check(stop: Stop<'_>) -> Result<(), Stopped> {
    if stop() { Err(Stopped) } else { Ok(()) }
}
