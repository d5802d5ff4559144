//! Disks that stay when the program that mounted them ends, and how to find them again.

use crate::calibrate::Overhead;
use crate::control::Control;
use crate::error::DiskError;
use crate::leftovers::{Leftover, leftovers};
use crate::mount::{DaemonCommand, Disk, MountOptions};
use crate::protocol::{MountRequest, Notes, Request, Response};
use crate::state::{self, State};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::device::{Counters, Spec};

/// A disk whose daemon lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Where its data is.
    pub mountpoint: PathBuf,
    /// The daemon's process number.
    pub daemon: u32,
    /// Whether it stays until somebody unmounts it; else it belongs to a running program and ends with it.
    pub kept: bool,
}

/// Why no disk could be found at a path.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// None is mounted there.
    #[error("no shaped disk is mounted at {}; {}", path.display(), hint(others))]
    NotADisk {
        /// The path that was asked for.
        path: PathBuf,
        /// Where there are some.
        others: Vec<PathBuf>,
    },
    /// One is, and nobody serves it any more.
    #[error("the daemon of the shaped disk at {} is dead; `tipover doctor --clean` takes away what it left", path.display())]
    Dead {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// It belongs to another program.
    #[error("the shaped disk at {} belongs to a running program (its daemon is process {daemon}) and ends with it", path.display())]
    NotKept {
        /// The path that was asked for.
        path: PathBuf,
        /// The daemon.
        daemon: u32,
    },
    /// Its daemon does not answer.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

fn hint(others: &[PathBuf]) -> String {
    match others {
        [] => "none is mounted anywhere; `tipover disk mount DIR --profile NAME` mounts one".into(),
        some => {
            let list: Vec<String> = some.iter().map(|path| path.display().to_string()).collect();
            format!("there is one at {}", list.join(", "))
        }
    }
}

/// All shaped disks of this user whose daemons live, by mount point.
pub fn mounted() -> Vec<Mounted> {
    let mut found: Vec<Mounted> = alive().iter().filter_map(describe).collect();
    found.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    found
}

fn alive() -> Vec<State> {
    state::all().into_iter().filter(|state| state.daemon.is_alive()).collect()
}

fn describe(state: &State) -> Option<Mounted> {
    let mountpoint = state.place()?.to_path_buf();
    Some(Mounted { mountpoint, daemon: state.daemon.pid, kept: state.socket.is_some() })
}

/// The path without `.`, `..` and links, without asking the mount itself, which may not answer.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let name = absolute.components().next_back().map(|c| c.as_os_str().to_owned());
    match (absolute.parent().map(std::fs::canonicalize), name) {
        (Some(Ok(parent)), Some(name)) if name != ".." => parent.join(name),
        _ => absolute,
    }
}

impl Disk {
    /// Lets the disk stay when this program ends: its daemon then listens to whoever finds it with
    /// [`at`](Self::at), and dropping this guard leaves it alone.
    ///
    /// # Errors
    /// [`DiskError`]; then the disk is as it was.
    pub fn keep(&mut self) -> Result<(), DiskError> {
        let notes = self.notes(self.counters()?);
        self.ask(&Request::Keep(Box::new(notes)))?;
        self.owned = false;
        Ok(())
    }

    /// The kept disk that is mounted at `path`. Dropping what is returned leaves it mounted;
    /// [`unmount`](Self::unmount) does not.
    ///
    /// # Errors
    /// There is none, it belongs to a running program, or its daemon does not answer.
    pub fn at(path: &Path) -> Result<Disk, FindError> {
        let wanted = plain(path);
        let states = alive();
        // Exactly this path first, then whatever it leads to.
        let resolved = std::fs::canonicalize(&wanted).unwrap_or_else(|_| wanted.clone());
        let found = states.iter().find(|s| s.place() == Some(&wanted) || s.place() == Some(&resolved));
        let Some(state) = found else {
            let is_left = |left: &Leftover| match left {
                Leftover::Filesystem(at) | Leftover::Fuse(at) => *at == wanted || *at == resolved,
                _ => false,
            };
            if leftovers().iter().any(is_left) {
                return Err(FindError::Dead { path: wanted });
            }
            let others = states.iter().filter_map(|s| s.place().map(Path::to_path_buf)).collect();
            return Err(FindError::NotADisk { path: wanted, others });
        };
        let Some(socket) = &state.socket else {
            return Err(FindError::NotKept { path: wanted, daemon: state.daemon.pid });
        };
        let stream = UnixStream::connect(socket).map_err(DiskError::Gone)?;
        let mut control = Control::new(stream, state.daemon).map_err(DiskError::Gone)?;
        match control.ask(&Request::Recall)? {
            Response::Notes(notes) => Ok(Disk::recalled(control, *notes)),
            _ => Err(DiskError::Gone(io::Error::other("it answers out of step")).into()),
        }
    }

    /// Tells the daemon what the next client shall know.
    pub(crate) fn remember(&self) -> Result<(), DiskError> {
        if self.owned {
            return Ok(());
        }
        let notes = self.notes(self.began);
        self.ask(&Request::Remember(Box::new(notes))).map(|_| ())
    }

    /// What the device had counted when the disk was handed over to its daemon; all zeros before.
    pub fn began(&self) -> Counters {
        self.began
    }

    fn notes(&self, began: Counters) -> Notes {
        Notes {
            request: self.options().request(),
            mounted: self.mounted.clone(),
            in_force: self.in_force.lock().clone(),
            floor: *self.floor.lock(),
            overheads: self.overheads.lock().values().copied().collect(),
            began,
        }
    }

    fn recalled(control: Control, notes: Notes) -> Disk {
        let Notes { request, mounted, in_force, floor, overheads, began } = notes;
        let overheads: BTreeMap<Duration, Overhead> =
            overheads.into_iter().map(|overhead| (overhead.latency, overhead)).collect();
        let options = MountOptions::of(request, in_force.spec.clone());
        Disk {
            control: std::sync::Arc::new(control.into()),
            daemon: None,
            owned: false,
            options,
            mounted,
            floor: floor.into(),
            overheads: overheads.into(),
            in_force: in_force.into(),
            began,
        }
    }
}

impl MountOptions {
    pub(crate) fn request(&self) -> MountRequest {
        MountRequest {
            mode: self.mode,
            filesystem: self.filesystem,
            size: self.size,
            backing: self.backing.clone(),
            mountpoint: self.mountpoint.clone(),
            readahead: self.readahead,
            power_cuts: self.power_cuts,
            transport: self.transport,
        }
    }

    fn of(request: MountRequest, spec: Spec) -> MountOptions {
        let MountRequest { mode, filesystem, size, backing, mountpoint, readahead, power_cuts, transport } =
            request;
        let daemon = DaemonCommand::this_program(&[]);
        MountOptions {
            mode,
            filesystem,
            size,
            backing,
            mountpoint,
            spec,
            readahead,
            power_cuts,
            transport,
            daemon,
        }
    }
}
