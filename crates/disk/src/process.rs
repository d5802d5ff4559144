//! Processes, told from those that come to have the same number: later, or in another container.

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The pid namespace that every machine boots into has this number, fixed in the kernel
/// (`PROC_PID_INIT_INO`).
pub const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The pid namespace in which this process's numbers mean something.
pub fn own_namespace() -> u64 {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    *NAMESPACE.get_or_init(|| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self/ns/pid").map_or(FIRST_NAMESPACE, |about| about.ino())
    })
}

fn first_namespace() -> u64 {
    FIRST_NAMESPACE
}

/// The process that a [`Process::mark`] names, and its namespace.
pub(crate) fn of_mark(mark: &str) -> Option<(u32, u64)> {
    let mut parts = mark.split('-');
    let pid = parts.next()?.parse().ok()?;
    parts.next()?.parse::<u64>().ok()?;
    let namespace = match parts.next() {
        Some(namespace) => namespace.strip_prefix("ns")?.parse().ok()?,
        None => FIRST_NAMESPACE,
    };
    parts.next().is_none().then_some((pid, namespace))
}

/// A process, even after its number is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub pid: u32,
    /// Clock ticks after boot, field 22 of `/proc/PID/stat`.
    pub started: u64,
    /// In which pid namespace `pid` means something.
    #[serde(default = "first_namespace")]
    pub namespace: u64,
}

impl Default for Process {
    /// Nobody, here.
    fn default() -> Self {
        Process { pid: 0, started: 0, namespace: own_namespace() }
    }
}

impl Process {
    pub fn this() -> Process {
        let pid = std::process::id();
        Process { pid, started: Process::started(pid).unwrap_or(0), namespace: own_namespace() }
    }
    /// Whatever process has this number now.
    pub fn of(pid: u32) -> Option<Process> {
        Process::started(pid).map(|started| Process { pid, started, namespace: own_namespace() })
    }
    /// Whether it still does anything but die. Dying may take for ever, if it waits for a disk of its own;
    /// then cleaning up is what lets it go. One in another container cannot be seen, so it may live.
    pub fn is_alive(self) -> bool {
        self.namespace != own_namespace() || Process::started(self.pid) == Some(self.started)
    }
    /// A name for what this process makes, with a number that it uses once: `pid-number`, and
    /// `-ns<namespace>` behind it when made inside a container.
    pub fn mark(self, number: u64) -> String {
        let namespace = match self.namespace {
            FIRST_NAMESPACE => String::new(),
            other => format!("-ns{other}"),
        };
        format!("{}-{number}{namespace}", self.pid)
    }
    fn started(pid: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses and may itself contain blanks and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // A zombie has released everything already, and one that is exiting will not do so by itself if it
        // waits for its own disk.
        const EXITING: u64 = 0x4;
        let exiting = fields.get(6)?.parse::<u64>().ok()? & EXITING != 0;
        let dying = fields.first() == Some(&"Z") || exiting || Process::is_killed(pid);
        (!dying).then(|| fields.get(19)?.parse().ok())?
    }
    /// Whether a SIGKILL waits for it to come back from a call, as from one to its own disk, which it serves
    /// no more.
    fn is_killed(pid: u32) -> bool {
        const KILL: u64 = 1 << 8;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let pending = status.lines().filter_map(|line| {
            let (_, mask) = line.split_once(':').filter(|(key, _)| ["SigPnd", "ShdPnd"].contains(key))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        pending.fold(0, |all, mask| all | mask) & KILL != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_its_successor() {
        let this = Process::this();
        assert!(this.is_alive() && this.started > 0);
        assert!(!Process { started: this.started + 1, ..this }.is_alive());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of(child.id()).unwrap_or_default();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn who_cannot_be_seen_may_live() {
        let elsewhere = Process { pid: u32::MAX, started: 1, namespace: 7 };
        assert!(elsewhere.is_alive() && !Process { namespace: own_namespace(), ..elsewhere }.is_alive());
    }

    #[test]
    fn marks_read_back() {
        for namespace in [FIRST_NAMESPACE, 4_026_532_001] {
            let process = Process { pid: 12, started: 3, namespace };
            assert_eq!(of_mark(&process.mark(u64::MAX)), Some((12, namespace)));
            // With `tipover:` before it, it is the name of a loop device, which has up to 63 bytes.
            assert!(Process { pid: u32::MAX, ..process }.mark(u64::MAX).len() <= 55);
        }
        for stranger in ["", "12", "x-1", "1-x", "1-2-3", "1-2-ns3-4", "1-2-ns"] {
            assert_eq!(of_mark(stranger), None, "{stranger}");
        }
    }
}
