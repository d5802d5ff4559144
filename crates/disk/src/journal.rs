//! File mode's power cut: names as well as bytes go back to what was made durable.
//!
//! Operations on names are remembered in order, as a journalling file system does: an fsync of anything makes
//! all earlier ones durable, a cut undoes the rest from the last one back. What is removed waits in a hidden
//! folder until it can be forgotten. Owners, modes and times are not undone.

use crate::backing::{Backing, File};
use crate::nodes::Node;
use crate::requests::errno;
use crate::volatile::Volatile;
use fuser::Errno;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tipover_core::device::{CutReport, PowerCut};

/// A file whose unflushed bytes are known.
pub(crate) type Logged = Volatile<File>;

enum Operation {
    Made { parent: Arc<Node>, name: OsString, folder: bool },
    Removed { parent: Arc<Node>, name: OsString, waits_as: String },
    Renamed { from: Arc<Node>, old: OsString, to: Arc<Node>, new: OsString, replaced: Option<String> },
    Exchanged { from: Arc<Node>, old: OsString, to: Arc<Node>, new: OsString },
}

/// Everything of a folder that a power cut would undo.
pub(crate) struct Journal {
    dead: Arc<AtomicBool>,
    /// The hidden folder.
    attic: OwnedFd,
    names: Mutex<Names>,
    files: Mutex<HashMap<(u64, u64), Arc<Logged>>>,
}

#[derive(Default)]
struct Names {
    operations: Vec<Operation>,
    /// How many things ever went into the attic.
    removed: u64,
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

impl Journal {
    /// `attic` is an empty folder on the same file system.
    pub fn new(attic: &Path) -> io::Result<Journal> {
        let attic = open_folder(attic)?;
        Ok(Journal { dead: Arc::default(), attic, names: Mutex::default(), files: Mutex::default() })
    }

    pub fn powered(&self) -> Result<(), Errno> {
        if self.dead.load(SeqCst) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The log of this file, which lives as long as there is anything in it.
    pub fn file(&self, node: &Node) -> Result<Arc<Logged>, Errno> {
        self.powered()?;
        let mut files = self.files.lock();
        if let Some(file) = files.get(&node.key()) {
            return Ok(file.clone());
        }
        // Now and then, forget those of which nobody has anything to fear.
        if files.len() >= 256 && files.len().is_power_of_two() {
            files.retain(|_, file| Arc::strong_count(file) > 1 || !file.is_clean());
        }
        let open = rustix::fs::open(node.link(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let file = File::from_open(open.map_err(errno)?, true);
        let file = Arc::new(Volatile::new(file, self.dead.clone()));
        files.insert(node.key(), file.clone());
        Ok(file)
    }

    /// The log of this file, if there is one.
    pub fn known(&self, node: &Node) -> Option<Arc<Logged>> {
        self.files.lock().get(&node.key()).cloned()
    }

    /// Does `act`, which gives `name` to something new.
    pub fn make<R>(
        &self,
        parent: &Arc<Node>,
        name: &OsStr,
        folder: bool,
        act: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut names = self.names.lock();
        self.powered()?;
        let done = act()?;
        names.operations.push(Operation::Made { parent: parent.clone(), name: name.into(), folder });
        Ok(done)
    }

    /// Removes a name; what it named waits in the attic.
    pub fn remove(&self, parent: &Arc<Node>, name: &OsStr, folder: bool) -> Result<(), Errno> {
        let mut names = self.names.lock();
        self.powered()?;
        let stat = rustix::fs::statat(&parent.path, name, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        let is_folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        match (folder, is_folder) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        let path = parent.link();
        if folder && std::fs::read_dir(Path::new(&path).join(name)).map_err(errno)?.next().is_some() {
            return Err(Errno::ENOTEMPTY);
        }
        let waits_as = names.next();
        rustix::fs::renameat(&parent.path, name, &self.attic, &*waits_as).map_err(errno)?;
        names.operations.push(Operation::Removed { parent: parent.clone(), name: name.into(), waits_as });
        Ok(())
    }

    /// Renames; what is replaced waits in the attic.
    pub fn rename(
        &self,
        (from, old): (&Arc<Node>, &OsStr),
        (to, new): (&Arc<Node>, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let mut names = self.names.lock();
        self.powered()?;
        let rename = |flags| rustix::fs::renameat_with(&from.path, old, &to.path, new, flags).map_err(errno);
        let (from_node, to_node) = (from.clone(), to.clone());
        if flags.contains(RenameFlags::EXCHANGE) {
            rename(flags)?;
            let (old, new) = (old.into(), new.into());
            names.operations.push(Operation::Exchanged { from: from_node, old, to: to_node, new });
            return Ok(());
        }
        let replaced = rustix::fs::statat(&to.path, new, AtFlags::SYMLINK_NOFOLLOW).ok();
        let same = |s: &rustix::fs::Stat| {
            rustix::fs::statat(&from.path, old, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|o| (o.st_dev, o.st_ino) == (s.st_dev, s.st_ino))
        };
        let replaced = replaced.filter(|s| !same(s) && !flags.contains(RenameFlags::NOREPLACE));
        let mut waits_as = None;
        if let Some(stat) = replaced {
            let attic = names.next();
            let folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
            match folder {
                // A second name keeps it; folders cannot have one.
                false => rustix::fs::linkat(&to.path, new, &self.attic, &*attic, AtFlags::empty()),
                true => Ok(()),
            }
            .map_err(errno)?;
            if folder {
                // The kernel's own checks (empty, a folder too) are made by trying.
                rename(flags)?;
                rustix::fs::mkdirat(&self.attic, &*attic, Mode::from_raw_mode(stat.st_mode & 0o7777))
                    .map_err(errno)?;
            } else if let Err(e) = rename(flags) {
                let _ = rustix::fs::unlinkat(&self.attic, &*attic, AtFlags::empty());
                return Err(e);
            }
            waits_as = Some(attic);
        } else {
            rename(flags)?;
        }
        let (old, new) = (old.into(), new.into());
        names.operations.push(Operation::Renamed {
            from: from_node,
            old,
            to: to_node,
            new,
            replaced: waits_as,
        });
        Ok(())
    }

    /// Makes all names durable, as they are now.
    pub fn commit(&self) -> io::Result<()> {
        let mut names = self.names.lock();
        if self.dead.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let mut gone = false;
        for operation in names.operations.drain(..) {
            if let Operation::Removed { waits_as, .. } | Operation::Renamed { replaced: Some(waits_as), .. } =
                operation
            {
                gone = true;
                let removed = rustix::fs::unlinkat(&self.attic, &*waits_as, AtFlags::empty());
                if removed == Err(rustix::io::Errno::ISDIR) {
                    let _ = rustix::fs::unlinkat(&self.attic, &*waits_as, AtFlags::REMOVEDIR);
                }
            }
        }
        if gone {
            // What has no name any more and nobody open gives its space back.
            let named = |file: &Logged| {
                rustix::fs::fstat(file.inner().descriptor()).is_ok_and(|stat| stat.st_nlink > 0)
            };
            self.files.lock().retain(|_, file| Arc::strong_count(file) > 1 || named(file));
        }
        Ok(())
    }

    /// From now on everything fails.
    pub fn darken(&self) {
        self.dead.store(true, SeqCst);
    }

    /// Puts everything back that was not made durable.
    pub fn cut(&self, cut: &PowerCut) -> io::Result<CutReport> {
        self.darken();
        let mut report = CutReport::default();
        let mut files: Vec<_> = std::mem::take(&mut *self.files.lock()).into_iter().collect();
        files.sort_unstable_by_key(|(key, _)| *key);
        for ((_, inode), file) in files {
            file.cut(cut, inode, &mut report)?;
        }
        let mut names = self.names.lock();
        let survivors = cut.surviving_names(names.operations.len() as u64);
        (report.kept_names, report.lost_names) = (survivors, names.operations.len() as u64 - survivors);
        for operation in names.operations.drain(survivors as usize..).rev() {
            self.undo(operation)?;
        }
        Ok(report)
    }

    fn undo(&self, operation: Operation) -> io::Result<()> {
        match operation {
            Operation::Made { parent, name, folder } => {
                let flags = if folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(&parent.path, &name, flags)?;
            }
            Operation::Removed { parent, name, waits_as } => {
                rustix::fs::renameat(&self.attic, &*waits_as, &parent.path, &name)?;
            }
            Operation::Renamed { from, old, to, new, replaced } => {
                rustix::fs::renameat(&to.path, &new, &from.path, &old)?;
                if let Some(waits_as) = replaced {
                    rustix::fs::renameat(&self.attic, &*waits_as, &to.path, &new)?;
                }
            }
            Operation::Exchanged { from, old, to, new } => {
                rustix::fs::renameat_with(&to.path, &new, &from.path, &old, RenameFlags::EXCHANGE)?;
            }
        }
        Ok(())
    }
}

impl Names {
    fn next(&mut self) -> String {
        self.removed += 1;
        self.removed.to_string()
    }
}

/// A file that is flushed together with all names.
pub(crate) fn sync(journal: &Journal, file: Option<&Logged>) -> io::Result<()> {
    if let Some(file) = file {
        file.sync()?;
    }
    journal.commit()
}
