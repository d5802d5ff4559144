//! The trial clock: CLOCK_MONOTONIC counted from the trial's start, so that all processes of a trial share
//! it.

use rustix::time::{ClockId, clock_gettime};
use tipover_core::units::Tick;

/// The clock of one trial.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin_ns: u64,
}

#[inline]
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock { origin_ns: monotonic_ns() }
    }

    /// The clock that another process started at `origin_ns` of CLOCK_MONOTONIC.
    pub fn at(origin_ns: u64) -> Self {
        Clock { origin_ns }
    }

    /// What another process needs to share this clock.
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    /// The moment that is at `ns` of CLOCK_MONOTONIC.
    #[inline]
    pub fn tick(&self, ns: u64) -> Tick {
        Tick(ns.saturating_sub(self.origin_ns))
    }

    /// Now.
    #[inline]
    pub fn now(&self) -> Tick {
        // An origin that another machine gave may lie ahead.
        Tick(monotonic_ns().saturating_sub(self.origin_ns))
    }
}
