//! The one clock of daemon and client: `CLOCK_MONOTONIC`, the same in every process of the machine.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tipover_core::units::Tick;

/// Nanoseconds on the machine's monotonic clock. A trial's own clock starts elsewhere: read both once and
/// keep the difference.
pub fn monotonic() -> Tick {
    since_zero(ClockId::Monotonic)
}

/// How long before the monotonic clock's zero it was midnight UTC, some day.
pub(crate) fn midnight() -> Duration {
    let since_1970 = since_zero(ClockId::Realtime).0;
    Duration::from_nanos(since_1970.saturating_sub(monotonic().0))
}

/// CPU time this process has used, user and system, all threads.
pub(crate) fn process_cpu() -> Duration {
    Duration::from_nanos(since_zero(ClockId::ProcessCPUTime).0)
}

fn since_zero(clock: ClockId) -> Tick {
    let now = clock_gettime(clock);
    Tick(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
