//! What a daemon under a file system must ask of the kernel: never to be swapped, never to wait for its own
//! file system when memory is short, and to run on time. Each is a wish: without the privilege the disk
//! works, less exactly.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, geteuid, getrlimit, setrlimit};
use std::num::NonZeroU64;

/// Which wishes were granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Privileges {
    /// Allocations never wait for write-back through this daemon (`PR_SET_IO_FLUSHER`).
    pub io_flusher: bool,
    /// Pages stay in memory once touched (`mlockall`).
    pub locked: bool,
    /// Killed last when memory is short.
    pub spared: bool,
    /// Real-time priority: the timer wakes on time on a busy machine.
    pub realtime: bool,
}

/// Real-time priorities of a daemon: the timer above the workers, both above ordinary programs.
pub(crate) const TIMER_PRIORITY: i32 = 10;
pub(crate) const WORKER_PRIORITY: i32 = 9;

/// Not yet in the `libc` crate; the kernel has it since 5.6.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// For the whole process; before any thread starts.
pub(crate) fn claim() -> Privileges {
    // SAFETY: prctl with plain numbers; it changes only how this process is treated.
    let io_flusher = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } == 0;
    // On fault: locking everything now would also touch the receive buffers, 16 MiB for each thread. Under a
    // limit, later allocations would fail instead.
    let limited = !geteuid().is_root() && getrlimit(Resource::Memlock).current.is_some();
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let locked = !limited && mlockall(flags).is_ok();
    // File mode holds a descriptor for every file that the kernel remembers.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    let _ = setrlimit(Resource::Nofile, files);
    let spared = std::fs::write("/proc/self/oom_score_adj", "-900").is_ok();
    Privileges { io_flusher, locked, spared, realtime: false }
}

/// Real-time priority and no timer slack, for the calling thread and those it starts. Returns whether it was
/// granted: it takes root or CAP_SYS_NICE.
pub fn run_on_time(priority: i32) -> bool {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    schedule(libc::SCHED_RR, priority)
}

/// Ordinary priority again, for the calling thread.
pub fn run_ordinarily() {
    schedule(libc::SCHED_OTHER, 0);
}

fn schedule(policy: libc::c_int, priority: i32) -> bool {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the struct lives through the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) == 0 }
}

/// Puts the calling thread before all others of ordinary priority, if that is allowed.
pub(crate) fn run_first() {
    run_ordinarily();
    let _ = rustix::process::setpriority_process(None, -20);
}

/// Keeps the calling thread on one processor, where that is allowed; elsewhere it runs where it is put.
pub(crate) fn stay_on(processor: u16) {
    let mut set = rustix::thread::CpuSet::new();
    if usize::from(processor) < rustix::thread::CpuSet::MAX_CPU {
        set.set(usize::from(processor));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
