//! What a killed daemon left: found and removed. Ours is only what bears our mark: FUSE mounts of type
//! `fuse.tipover`, loop devices that carry a mount's name, and what a state file of this user lists.

use crate::process::{self, own_namespace};
use crate::state::{self, State};
use crate::{loopdev, mounts};
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::path::{Path, PathBuf};

/// Something of a mount whose daemon is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// A file system on a loop device whose disk is gone.
    Filesystem(PathBuf),
    /// A loop device on top of nothing.
    LoopDevice(PathBuf),
    /// A FUSE mount that nobody serves.
    Fuse(PathBuf),
    /// Notes, and empty folders or scratch files they list.
    State(PathBuf),
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Leftover::Filesystem(path) => {
                write!(f, "file system of a dead shaped disk at {}", path.display())
            }
            Leftover::LoopDevice(path) => write!(f, "loop device {} of a dead shaped disk", path.display()),
            Leftover::Fuse(path) => write!(f, "dead FUSE mount at {}", path.display()),
            Leftover::State(path) => write!(f, "notes of a dead shaped disk in {}", path.display()),
        }
    }
}

const KIND: &str = "fuse.tipover";
const SOURCE: &str = "tipover-";

/// What is left of mounts whose daemon is dead, in the order of removal. Touches nothing.
pub fn leftovers() -> Vec<Leftover> {
    let states = state::all();
    let mut found = Vec::new();
    for id in dead_mounts(&states) {
        found.extend(parts(&id));
        if states.iter().any(|s| s.id == id) {
            found.push(Leftover::State(state::directory().join(format!("{id}.json"))));
        }
    }
    found
}

/// Removes the leftovers; returns each with what came of it.
pub fn clean() -> Vec<(Leftover, io::Result<()>)> {
    let states = state::all();
    let mut done = Vec::new();
    for id in dead_mounts(&states) {
        done.extend(parts(&id).into_iter().map(|part| {
            let result = remove_of(&id, &part);
            (part, result)
        }));
        if let Some(state) = states.iter().find(|s| s.id == id) {
            forget(state);
            done.push((Leftover::State(state::directory().join(format!("{id}.json"))), Ok(())));
        }
    }
    done
}

/// Removes what the dead daemon `pid` left, however far it had come.
pub(crate) fn clean_after(pid: u32) -> io::Result<()> {
    let states = state::all();
    let dead = dead_mounts(&states);
    let mut result = Ok(());
    for id in dead.iter().filter(|id| is_of(id, pid)) {
        for part in parts(id) {
            result = result.and(remove_of(id, &part));
        }
        states.iter().filter(|s| s.id == *id).for_each(forget);
    }
    result
}

fn is_of(id: &str, pid: u32) -> bool {
    process::of_mark(id) == Some((pid, own_namespace()))
}

/// Whether there are still notes of a mount by daemon `pid`.
pub(crate) fn is_known(pid: u32) -> bool {
    state::all().iter().any(|s| is_of(&s.id, pid))
}

fn forget(state: &State) {
    if state.switched_on {
        let _ = crate::ring::switch_off();
    }
    state.remove_made();
    state.end();
}

/// Names of the mounts of which something is left but no daemon.
fn dead_mounts(states: &[State]) -> Vec<String> {
    let from_mounts = mounts::all().into_iter().filter(|m| m.filesystem == KIND);
    let mut ids: Vec<String> =
        from_mounts.filter_map(|m| Some(m.source.strip_prefix(SOURCE)?.to_string())).collect();
    ids.extend(loopdev::attached().into_iter().filter_map(loopdev::owner));
    ids.extend(states.iter().map(|s| s.id.clone()));
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| match states.iter().find(|s| s.id == *id) {
        Some(state) => !state.daemon.is_alive(),
        // Without notes (another user's, or a cleared /run) the name still tells the process, and whether it
        // could be seen here.
        None => process::of_mark(id).is_some_and(|(pid, namespace)| {
            namespace == own_namespace() && !Path::new("/proc").join(pid.to_string()).exists()
        }),
    });
    ids
}

/// What of this mount is there, top layer first.
fn parts(id: &str) -> Vec<Leftover> {
    let all = mounts::all();
    let loops: Vec<PathBuf> = loopdev::attached()
        .into_iter()
        .filter(|n| loopdev::owner(*n).as_deref() == Some(id))
        .map(loopdev::device_path)
        .collect();
    let on_loops = all.iter().rev().filter(|m| loops.iter().any(|l| l.as_os_str() == m.source.as_str()));
    let fuse = all.iter().rev().filter(|m| m.filesystem == KIND && m.source.strip_prefix(SOURCE) == Some(id));
    on_loops
        .map(|m| Leftover::Filesystem(m.point.clone()))
        .chain(loops.iter().cloned().map(Leftover::LoopDevice))
        .chain(fuse.map(|m| Leftover::Fuse(m.point.clone())))
        .collect()
}

/// Removes a part of mount `id`. That somebody else was faster, or that the part above took it along, is no
/// failure.
fn remove_of(id: &str, part: &Leftover) -> io::Result<()> {
    remove(part).or_else(|e| if parts(id).contains(part) { Err(e) } else { Ok(()) })
}

fn remove(part: &Leftover) -> io::Result<()> {
    match part {
        Leftover::Filesystem(path) => mounts::detach(path),
        Leftover::LoopDevice(path) => {
            let number = path.to_string_lossy().trim_start_matches("/dev/loop").parse();
            match loopdev::detach(number.map_err(io::Error::other)?) {
                // The unmount before already let go of it.
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(()),
                other => other,
            }
        }
        Leftover::Fuse(path) => match unmount(path, UnmountFlags::FORCE) {
            Ok(()) => Ok(()),
            Err(_) => mounts::detach(path),
        },
        Leftover::State(_) => Ok(()),
    }
}
