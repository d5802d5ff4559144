//! File mode's power cut: names as well as bytes go back to what was made durable.
//!
//! Operations on names are remembered in order, as a journalling file system does: an fsync of anything makes
//! all earlier ones durable when it is answered, and so does time; a cut undoes the rest from the last one
//! back. What is removed waits in a hidden folder until it can be forgotten. Owners, modes and times are not
//! undone.

use crate::backing::{Backing, File, Landing};
use crate::clock::monotonic;
use crate::nodes::Node;
use crate::ring::errno;
use crate::volatile::{MOST, Volatile};
use fuser::Errno;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tipover_core::device::{CutReport, PowerCut};
use tipover_core::units::Tick;

/// A file whose unflushed bytes are known.
pub(crate) type Logged = Volatile<File>;

/// Journalling file systems commit by themselves: ext4 every 5 s, XFS and Btrfs every 30 s.
const COMMITTED_AFTER: Duration = Duration::from_secs(30);
/// With more operations than these, or more than [`MOST`] bytes in the attic, the oldest count as committed.
const MOST_OPERATIONS: usize = 1 << 16;

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
    committed_after: Duration,
    names: Mutex<Names>,
    files: Mutex<HashMap<(u64, u64), Arc<Logged>>>,
}

#[derive(Default)]
struct Names {
    /// Those that are not committed, with when they were done and how many bytes they keep in the attic.
    operations: VecDeque<(Tick, u64, Operation)>,
    /// How many were committed before those.
    committed: u64,
    /// How many things ever went into the attic.
    removed: u64,
    /// How many bytes the attic keeps for what is not committed.
    waiting: u64,
    /// What nobody will take out of the attic any more.
    gone: Vec<String>,
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

impl Journal {
    /// `attic` is an empty folder on the same file system.
    pub fn new(attic: &Path) -> io::Result<Journal> {
        let attic = open_folder(attic)?;
        let (names, files) = (Mutex::default(), Mutex::default());
        Ok(Journal { dead: Arc::default(), attic, committed_after: COMMITTED_AFTER, names, files })
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
        self.log(&mut names, 0, Operation::Made { parent: parent.clone(), name: name.into(), folder });
        drop(names);
        self.sweep();
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
        let operation = Operation::Removed { parent: parent.clone(), name: name.into(), waits_as };
        self.log(&mut names, kept_bytes(&stat), operation);
        drop(names);
        self.sweep();
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
            self.log(&mut names, 0, Operation::Exchanged { from: from_node, old, to: to_node, new });
            return Ok(());
        }
        let replaced = rustix::fs::statat(&to.path, new, AtFlags::SYMLINK_NOFOLLOW).ok();
        let same = |s: &Stat| {
            rustix::fs::statat(&from.path, old, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|o| (o.st_dev, o.st_ino) == (s.st_dev, s.st_ino))
        };
        let replaced = replaced.filter(|s| !same(s) && !flags.contains(RenameFlags::NOREPLACE));
        let (mut waits_as, mut bytes) = (None, 0);
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
            (waits_as, bytes) = (Some(attic), kept_bytes(&stat));
        } else {
            rename(flags)?;
        }
        let (old, new) = (old.into(), new.into());
        let operation = Operation::Renamed { from: from_node, old, to: to_node, new, replaced: waits_as };
        self.log(&mut names, bytes, operation);
        drop(names);
        self.sweep();
        Ok(())
    }

    /// Takes note of an operation that keeps this number of bytes in the attic. What is old, and what is too
    /// much, is committed.
    fn log(&self, names: &mut Names, bytes: u64, operation: Operation) {
        let now = monotonic();
        names.operations.push_back((now, bytes, operation));
        names.waiting += bytes;
        names.commit_aged(now, self.committed_after);
        while names.operations.len() > MOST_OPERATIONS || names.waiting > MOST {
            names.commit_oldest();
        }
    }

    /// Makes the first `count` names that there ever were durable. Quick: what is gone for good by that is
    /// removed by [`sweep`](Self::sweep).
    fn commit(&self, count: u64) -> io::Result<()> {
        let mut names = self.names.lock();
        if self.dead.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        while names.committed < count && !names.operations.is_empty() {
            names.commit_oldest();
        }
        Ok(())
    }

    /// Gives the space back of what is gone for good. Takes its time, so it is not for the timer.
    pub fn sweep(&self) {
        let gone = std::mem::take(&mut self.names.lock().gone);
        if gone.is_empty() {
            return;
        }
        for name in gone {
            let removed = rustix::fs::unlinkat(&self.attic, &*name, AtFlags::empty());
            if removed == Err(rustix::io::Errno::ISDIR) {
                let _ = rustix::fs::unlinkat(&self.attic, &*name, AtFlags::REMOVEDIR);
            }
        }
        // What has no name any more and nobody open gives its space back.
        let named =
            |file: &Logged| rustix::fs::fstat(file.inner().descriptor()).is_ok_and(|stat| stat.st_nlink > 0);
        self.files.lock().retain(|_, file| Arc::strong_count(file) > 1 || named(file));
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
        let now = monotonic();
        names.commit_aged(now, self.committed_after);
        let at_risk = names.operations.len() as u64;
        if let Some(after) = cut.drained_after {
            names.commit_aged(now, after);
        }
        report.lost_names = names.operations.len() as u64 - cut.surviving(names.operations.len() as u64, 0);
        report.kept_names = at_risk - report.lost_names;
        let lost = names.operations.len() - report.lost_names as usize;
        for (_, _, operation) in names.operations.drain(lost..).rev() {
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
    fn commit_oldest(&mut self) {
        let Some((_, bytes, operation)) = self.operations.pop_front() else { return };
        self.committed += 1;
        self.waiting -= bytes;
        if let Operation::Removed { waits_as, .. } | Operation::Renamed { replaced: Some(waits_as), .. } =
            operation
        {
            self.gone.push(waits_as);
        }
    }

    fn commit_aged(&mut self, now: Tick, age: Duration) {
        while self.operations.front().is_some_and(|(at, _, _)| now.since(*at) >= age) {
            self.commit_oldest();
        }
    }

    fn next(&mut self) -> String {
        self.removed += 1;
        self.removed.to_string()
    }
}

/// What the attic keeps of something that is removed, unless it has another name.
fn kept_bytes(stat: &Stat) -> u64 {
    if stat.st_nlink > 1 { 0 } else { stat.st_blocks as u64 * 512 }
}

/// A file is flushed, together with all names.
pub(crate) fn begin_flush(journal: &Arc<Journal>, file: Option<&Logged>) -> io::Result<Landing> {
    journal.powered().map_err(|e| io::Error::from_raw_os_error(e.code()))?;
    let count = {
        let names = journal.names.lock();
        names.committed + names.operations.len() as u64
    };
    let bytes = file.map_or_else(|| Ok(Landing::default()), Backing::begin_flush)?;
    let journal = journal.clone();
    Ok(bytes.and(Landing::of(move || journal.commit(count))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Nodes;
    use fuser::INodeNo;

    /// A folder with an attic of its own, whose names are committed after the time `after`.
    fn journal(after: Duration) -> (tempfile::TempDir, tempfile::TempDir, Arc<Journal>, Arc<Node>) {
        let (folder, attic) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let nodes = Nodes::new(open_folder(folder.path()).unwrap()).unwrap();
        let root = nodes.get(INodeNo::ROOT).unwrap();
        let journal = Journal { committed_after: after, ..Journal::new(attic.path()).unwrap() };
        (folder, attic, Arc::new(journal), root)
    }

    fn make_and_remove(folder: &Path, journal: &Journal, root: &Arc<Node>, n: u64) {
        let name = OsString::from(format!("file-{n}"));
        let write = || std::fs::write(folder.join(&name), vec![1; 10_000]).map_err(errno);
        journal.make(root, &name, false, write).unwrap();
        journal.remove(root, &name, false).unwrap();
    }

    #[test]
    fn time_commits_names_so_that_nothing_grows_without_a_flush() {
        let (folder, attic, journal, root) = journal(Duration::ZERO);
        for n in 0..50 {
            make_and_remove(folder.path(), &journal, &root, n);
            assert_eq!(std::fs::read_dir(attic.path()).unwrap().count(), 0);
            assert!(journal.names.lock().operations.is_empty());
        }
        let report = journal.cut(&PowerCut::default()).unwrap();
        assert_eq!((report.lost_names, report.kept_names), (0, 0), "none was at risk");
    }

    #[test]
    fn what_had_drained_at_a_cut_is_kept() {
        let (folder, attic, journal, root) = journal(COMMITTED_AFTER);
        make_and_remove(folder.path(), &journal, &root, 0);
        std::fs::write(folder.path().join("old"), "x").unwrap();
        journal.make(&root, OsStr::new("old"), false, || Ok(())).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        make_and_remove(folder.path(), &journal, &root, 1);
        assert_eq!(std::fs::read_dir(attic.path()).unwrap().count(), 2);
        let cut = PowerCut { drained_after: Some(Duration::from_millis(300)), ..PowerCut::default() };
        let report = journal.cut(&cut).unwrap();
        assert_eq!((report.lost_names, report.kept_names), (2, 3));
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["old"]);
    }

    #[test]
    fn a_flush_commits_what_was_there_when_it_came_once_it_lands() {
        let (folder, _attic, journal, root) = journal(COMMITTED_AFTER);
        let make = |name: &str| {
            std::fs::write(folder.path().join(name), "x").unwrap();
            journal.make(&root, OsStr::new(name), false, || Ok(())).unwrap();
        };
        make("before");
        let landing = begin_flush(&journal, None).unwrap();
        make("after");
        assert_eq!(journal.names.lock().operations.len(), 2, "it is under way");
        landing.land().unwrap();
        let late = begin_flush(&journal, None).unwrap();
        let report = journal.cut(&PowerCut::default()).unwrap();
        assert_eq!((report.lost_names, report.kept_names), (1, 0));
        assert!(late.land().is_err() && begin_flush(&journal, None).is_err());
        assert!(folder.path().join("before").exists() && !folder.path().join("after").exists());
    }
}
