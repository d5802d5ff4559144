//! What a process tree may use, and why it could not be held to it.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// How much a process tree may use. `None` = as much as the machine has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory, page cache and kernel memory included. The kernel rounds down to whole pages.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<u64>,
    /// CPU time per second of wall time: 1.5 = one and a half cores, by a quota over periods of 100 ms.
    #[serde(rename = "cpus_cores")]
    pub cpus: Option<f64>,
    /// The only cores that may be used, by number.
    pub cpu_set: Option<Vec<u32>>,
}

impl Limits {
    /// No limit at all; the group still counts what is used.
    pub const NONE: Limits = Limits { memory: None, cpus: None, cpu_set: None };

    /// A limit on memory alone.
    pub fn memory(bytes: u64) -> Limits {
        Limits { memory: Some(bytes), ..Limits::NONE }
    }

    /// The controllers without which these limits cannot be held.
    pub(crate) fn controllers(&self) -> Vec<&'static str> {
        let needed = [
            ("memory", self.memory.is_some()),
            ("cpu", self.cpus.is_some()),
            ("cpuset", self.cpu_set.is_some()),
        ];
        needed.into_iter().filter(|(_, yes)| *yes).map(|(name, _)| name).collect()
    }

    /// Refuses what no kernel can do, before anything is made.
    pub(crate) fn check(&self) -> Result<(), LimitError> {
        // Below a megabyte even the dynamic loader is killed, with a message that explains nothing.
        if let Some(bytes) = self.memory.filter(|&bytes| bytes < 1 << 20) {
            return Err(LimitError::Senseless(format!(
                "a memory limit of {bytes} B cannot hold any program; give at least 1 MiB"
            )));
        }
        // The kernel refuses quotas below 1 ms per period of 100 ms.
        if let Some(cpus) = self.cpus.filter(|&cpus| !(cpus.is_finite() && cpus >= 0.01)) {
            return Err(LimitError::Senseless(format!(
                "a limit of {cpus} cores cannot be held by the kernel; give at least 0.01"
            )));
        }
        if self.cpu_set.as_ref().is_some_and(Vec::is_empty) {
            return Err(LimitError::Senseless(
                "an empty set of cores leaves nothing to run on; name one".into(),
            ));
        }
        Ok(())
    }
}

/// Why a limit could not be set, with what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// A limit that makes no sense on any machine.
    #[error("{0}")]
    Senseless(String),
    /// No hierarchy on this machine offers the controller.
    #[error("no cgroup hierarchy here offers the {controller:?} controller ({found}); {advice}")]
    NoController {
        /// The kernel's name of what is missing.
        controller: String,
        /// What there was instead.
        found: String,
        /// What to do next.
        advice: &'static str,
    },
    /// There is a controller, but not for us.
    #[error("not allowed to make a control group in {path} ({source}); {advice}")]
    NotPermitted {
        /// Where it was tried.
        path: PathBuf,
        /// What to do next.
        advice: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused a value.
    #[error("could not write {value:?} to {path}: {source}")]
    Write {
        /// The control file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A control file could not be read.
    #[error("could not read {path}: {source}")]
    Read {
        /// The control file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A control file says something this program does not understand.
    #[error("{path} says {text:?}, which is not what the kernel documents")]
    Strange {
        /// The control file.
        path: PathBuf,
        /// What it says, shortened.
        text: String,
    },
    /// The group exists but lacks what was asked for.
    #[error("group {name} cannot {what} here: {why}")]
    NotOffered {
        /// The group.
        name: String,
        /// The verb that was asked for.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// Processes did not die or stop in time, usually because they wait for a disk that does not answer.
    #[error(
        "{what} group {name} did not finish in {seconds} s: processes {processes:?} still there; \
         they probably wait for a disk that does not answer, so release or unmount it first"
    )]
    Stuck {
        /// The group.
        name: String,
        /// "killing", "freezing", ...
        what: &'static str,
        /// How long was waited, in seconds.
        seconds: u64,
        /// What is left in the group.
        processes: Vec<u32>,
    },
}

impl LimitError {
    /// Whether more memory is in use than the limit, and the kernel cannot take it away.
    pub fn is_busy(&self) -> bool {
        matches!(self, LimitError::Write { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
    }
}

pub(crate) const ADVICE_V1: &str = "cgroup v1 can only be used as root: run as root, or boot with \
     systemd.unified_cgroup_hierarchy=1 and use `systemd-run --user --scope -p Delegate=yes -- tipover ...`";
pub(crate) const ADVICE_V2: &str = "run as root, or in a delegated scope: \
     `systemd-run --user --scope -p Delegate=yes -- tipover ...`; in a container start it with --privileged --cgroupns=host";
pub(crate) const ADVICE_NONE: &str = "mount one (as root: `mount -t cgroup2 none /sys/fs/cgroup`), \
     or check the kernel's command line for cgroup_disable=memory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_limits_are_refused_before_anything_is_made() {
        for limits in [
            Limits::memory(4096),
            Limits { cpus: Some(0.0), ..Limits::NONE },
            Limits { cpus: Some(f64::NAN), ..Limits::NONE },
            Limits { cpu_set: Some(vec![]), ..Limits::NONE },
        ] {
            assert!(matches!(limits.check(), Err(LimitError::Senseless(_))), "{limits:?}");
        }
        assert!(Limits { memory: Some(1 << 20), cpus: Some(0.5), cpu_set: Some(vec![0]) }.check().is_ok());
    }

    #[test]
    fn in_files_units_are_in_the_names() {
        let text = serde_json::to_string(&Limits::memory(1 << 20)).unwrap();
        assert_eq!(text, r#"{"memory_bytes":1048576,"cpus_cores":null,"cpu_set":null}"#);
        assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), Limits::memory(1 << 20));
    }
}
