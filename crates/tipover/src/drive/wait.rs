//! Waiting until a moment, to the microsecond.
//!
//! The kernel wakes a sleeper late, by the timer's slack, the way out of idle and whoever has the processor.
//! So a waiter sleeps until a little before, and spins for the rest: twice what it was woken late on average,
//! up to a bound. On a machine where others want the processors too, that takes real-time priority.

use crate::clock::Clock;
use rustix::thread::{ClockId, Timespec};
use std::time::Duration;
use tipover_core::units::Tick;
use tipover_disk::{run_on_time, run_ordinarily};

/// The bound on spinning that [`super::Plan`] has unless told otherwise.
pub const SPIN: Duration = Duration::from_micros(50);
const LEAST_SPIN_NS: u64 = 3_000;

/// That of the shaped disk's timer, and above its workers: those may copy for milliseconds, this takes
/// microseconds.
const PRIORITY: i32 = 10;

/// A thread's claim to be woken on time: real-time priority while it waits for something to become due, its
/// own while it carries that out, so that the target competes for the processor as it would without us.
#[derive(Debug, Default)]
pub struct Urgency {
    urgent: bool,
    refused: bool,
}

impl Urgency {
    /// From now on the calling thread is woken on time, or not. Nothing changes without the privilege.
    #[inline]
    pub fn set(&mut self, urgent: bool) {
        if urgent == self.urgent || self.refused {
            return;
        }
        if !urgent {
            run_ordinarily();
        } else if !run_on_time(PRIORITY) {
            self.refused = true;
            return;
        }
        self.urgent = urgent;
    }
}

/// One thread's waiting, and what it learnt of how late it is woken.
pub struct Waiter {
    clock: Clock,
    longest_spin_ns: u64,
    late_ns: u64,
}

impl Waiter {
    /// A waiter for the calling thread, whose timers become as exact as the kernel can make them.
    pub fn new(clock: Clock, longest_spin: Duration) -> Waiter {
        // Without it the kernel may let 50 µs pass to wake several sleepers at once.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let longest_spin_ns = longest_spin.as_nanos() as u64;
        Waiter { clock, longest_spin_ns, late_ns: longest_spin_ns / 2 }
    }

    /// How long before a moment sleeping should end and spinning begin.
    pub fn spin_ns(&self) -> u64 {
        (2 * self.late_ns).max(LEAST_SPIN_NS).min(self.longest_spin_ns)
    }

    /// Learns that a sleep that should have ended at `wanted` ended at `woken`.
    pub fn woken(&mut self, wanted: Tick, woken: Tick) {
        let late = woken.0.saturating_sub(wanted.0).min(1_000_000);
        self.late_ns = (self.late_ns * 7 + late) / 8;
    }

    /// Waits until `due`, or until `stops` says so, which is asked every 20 ms. Returns the time.
    pub fn until(&mut self, due: Tick, stops: &dyn Fn() -> bool) -> Tick {
        const PIECE_NS: u64 = 20_000_000;
        loop {
            let now = self.clock.now();
            if now >= due || stops() {
                return now;
            }
            let left = due.0 - now.0;
            let spin = self.spin_ns();
            if left <= spin {
                break;
            }
            let wanted = Tick(now.0 + (left - spin).min(PIECE_NS));
            let at = self.clock.origin_ns() + wanted.0;
            let at = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
            // An interrupted sleep is as good as a short one.
            let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
            self.woken(wanted, self.clock.now());
        }
        loop {
            let now = self.clock.now();
            if now >= due {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 41st field of `/proc/PID/stat`; 0 is ordinary, 2 is real time in turns.
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        after_name.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn urgency_comes_and_goes() {
        std::thread::spawn(|| {
            let mut urgency = Urgency::default();
            urgency.set(true);
            if urgency.refused {
                println!("SKIPPED: this user may not have real-time priority");
                assert_eq!(policy(), 0);
                return;
            }
            assert_eq!(policy(), 2);
            urgency.set(false);
            assert_eq!(policy(), 0);
            urgency.set(true);
            assert_eq!(policy(), 2, "a second time, too");
        })
        .join()
        .unwrap();
    }
}
