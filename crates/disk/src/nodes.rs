//! File mode's inodes: numbers that the kernel remembers for files of the backing folder.

use crate::ring::errno;
use fuser::{Errno, FileAttr, FileType, INodeNo};
use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One file, folder or link below the backing folder, held by a descriptor: it may be renamed or unlinked.
pub(crate) struct Node {
    pub path: OwnedFd,
    /// Device and inode number of the backing file: two names of one file are one node.
    key: (u64, u64),
}

impl Node {
    /// A path that always leads to this file, for calls that take no bare descriptor.
    pub fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.path.as_raw_fd())
    }
    /// What tells this file from all others, whatever its names.
    pub fn key(&self) -> (u64, u64) {
        self.key
    }
    pub fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.path).map_err(errno)
    }
}

/// All nodes that the kernel knows, with how often it was told of each.
pub(crate) struct Nodes {
    inner: RwLock<Inner>,
}

struct Inner {
    known: HashMap<u64, (Arc<Node>, u64)>,
    numbers: HashMap<(u64, u64), u64>,
    next: u64,
}

impl Nodes {
    /// With the backing folder as root.
    pub fn new(root: OwnedFd) -> Result<Nodes, Errno> {
        let stat = rustix::fs::fstat(&root).map_err(errno)?;
        let key = (stat.st_dev, stat.st_ino);
        let root = Arc::new(Node { path: root, key });
        let one = INodeNo::ROOT.0;
        // The root is never forgotten.
        let known = HashMap::from([(one, (root, u64::MAX / 2))]);
        Ok(Nodes { inner: RwLock::new(Inner { known, numbers: HashMap::from([(key, one)]), next: one + 1 }) })
    }

    pub fn get(&self, number: INodeNo) -> Result<Arc<Node>, Errno> {
        self.inner.read().known.get(&number.0).map(|(node, _)| node.clone()).ok_or(Errno::ESTALE)
    }

    /// Finds `name` in `parent` and counts that the kernel is told of it.
    pub fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<(Arc<Node>, FileAttr), Errno> {
        let folder = self.get(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = rustix::fs::openat(&folder.path, name, flags, Mode::empty()).map_err(errno)?;
        let stat = rustix::fs::fstat(&path).map_err(errno)?;
        let key = (stat.st_dev, stat.st_ino);
        let mut inner = self.inner.write();
        let number = match inner.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let number = inner.next;
                inner.next += 1;
                inner.numbers.insert(key, number);
                inner.known.insert(number, (Arc::new(Node { path, key }), 0));
                number
            }
        };
        let (node, told) = inner.known.get_mut(&number).ok_or(Errno::ESTALE)?;
        *told += 1;
        Ok((node.clone(), attributes(number, &stat)))
    }

    /// The kernel forgets `times` of the times it was told.
    pub fn forget(&self, number: INodeNo, times: u64) {
        let mut inner = self.inner.write();
        let Some((node, told)) = inner.known.get_mut(&number.0) else { return };
        *told = told.saturating_sub(times);
        if *told == 0 {
            let key = node.key;
            inner.known.remove(&number.0);
            inner.numbers.remove(&key);
        }
    }

    /// Where this node is below the root now, or how it was called last; `None` if the kernel has forgotten
    /// it.
    pub fn path(&self, number: u64) -> Option<PathBuf> {
        let (root, node) = (self.get(INodeNo::ROOT).ok()?, self.get(INodeNo(number)).ok()?);
        let root = std::fs::read_link(root.link()).ok()?;
        let path = std::fs::read_link(node.link()).ok()?;
        Some(path.strip_prefix(&root).map(Path::to_path_buf).unwrap_or(path))
    }

    /// Numbers of all that the kernel may have pages of.
    pub fn numbers(&self) -> Vec<u64> {
        self.inner.read().known.keys().copied().collect()
    }
}

/// Attributes as the kernel wants them.
pub(crate) fn attributes(number: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds);
    match u64::try_from(seconds) {
        Ok(after) => UNIX_EPOCH + Duration::from_secs(after) + fraction,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + fraction,
    }
}

fn kind(mode: u32) -> FileType {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Changes the owner of what `parent` calls `name` to whoever asked; a folder with the set-group bit hands
/// its group on. Without root everything is the daemon's user's already.
pub(crate) fn give(parent: &Node, name: &OsStr, request: &fuser::Request) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let inherits = parent.stat().is_ok_and(|s| s.st_mode & 0o2000 != 0);
    let user = Some(rustix::fs::Uid::from_raw(request.uid()));
    let group = (!inherits).then(|| rustix::fs::Gid::from_raw(request.gid()));
    let _ = rustix::fs::chownat(&parent.path, name, user, group, AtFlags::SYMLINK_NOFOLLOW);
}
