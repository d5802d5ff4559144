//! File mode's file system: a folder, shown as it is, its data passing through the shape.
//!
//! Only data requests and flushes are shaped; names and attributes are answered at once. The daemon is the
//! folder's only writer while it is mounted, so the kernel may remember what it was told. Not there:
//! extended attributes, nameless files, reflinks.

use crate::backing::{Backing, File};
use crate::nodes::{Node, Nodes, attributes, give};
use crate::requests::{self, errno};
use crate::shape::{Place, Shape};
use crate::table::Table;
use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tipover_core::units::Bytes;

/// A file that is not in the folder: reading it reads zeros, at the disk's speed.
pub(crate) const CALIBRATION: &str = ".tipover-calibration";
pub(crate) const CALIBRATION_NUMBER: u64 = u64::MAX;
const CALIBRATION_NODE: INodeNo = INodeNo(CALIBRATION_NUMBER);
const CALIBRATION_SIZE: u64 = 4 << 20;
const CALIBRATION_HANDLE: u64 = u64::MAX;
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

struct Entry {
    name: OsString,
    kind: FileType,
    inode: u64,
}

enum Handle {
    File(File),
    Folder(Vec<Entry>),
}

pub(crate) struct Folder {
    shape: Arc<Shape>,
    nodes: Arc<Nodes>,
    handles: Table<Handle>,
    zeros: crate::backing::Memory,
    readahead: Bytes,
}

impl Folder {
    pub fn new(shape: Arc<Shape>, root: &Path, readahead: Bytes) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let nodes = Nodes::new(root).map_err(|e| io::Error::from_raw_os_error(e.code()))?;
        let zeros = crate::backing::Memory::new(CALIBRATION_SIZE)?;
        Ok(Folder { shape, nodes: Arc::new(nodes), handles: Table::new(), zeros, readahead })
    }

    /// For invalidating what the kernel caches of them.
    pub fn nodes(&self) -> Arc<Nodes> {
        self.nodes.clone()
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<Handle>, Errno> {
        self.handles.get(handle.0).ok_or(Errno::EBADF)
    }

    /// Opens a node's data as the flags say, but so that the kernel's write-back can use it: it reads pages
    /// it writes a part of, and decides itself where to append.
    fn open_data(node: &Node, flags: OpenFlags) -> Result<File, Errno> {
        let wanted = OFlags::from_bits_retain(flags.0 as u32);
        let writes = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let keep = wanted & OFlags::TRUNC | OFlags::CLOEXEC;
        let open = |access| rustix::fs::open(node.link(), access | keep, Mode::empty());
        let plain = match writes {
            true => open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY)),
            false => open(OFlags::RDONLY),
        };
        Ok(File::from_open(plain.map_err(errno)?, writes))
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
        act: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) {
        let made = self.nodes.get(parent).and_then(|folder| {
            act(&folder.path).map_err(errno)?;
            give(&folder, name, request);
            self.nodes.look_up(parent, name)
        });
        match made {
            Ok((_, attributes)) => reply.entry(&FOR_GOOD, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn list(&self, number: INodeNo) -> Result<Vec<Entry>, Errno> {
        let node = self.nodes.get(number)?;
        let entry = |name: &str| Entry { name: name.into(), kind: FileType::Directory, inode: number.0 };
        let mut entries = vec![entry("."), entry("..")];
        for found in std::fs::read_dir(node.link()).map_err(errno)? {
            let found = found.map_err(errno)?;
            let kind = found.file_type().ok().and_then(FileType::from_std).unwrap_or(FileType::RegularFile);
            let inode = std::os::unix::fs::DirEntryExt::ino(&found);
            entries.push(Entry { name: found.file_name(), kind, inode });
        }
        Ok(entries)
    }
}

fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn calibration_attributes() -> fuser::FileAttr {
    fuser::FileAttr {
        ino: CALIBRATION_NODE,
        size: CALIBRATION_SIZE,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0o444,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) }
        }
    }
}

impl Filesystem for Folder {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // As many write-backs in flight as a real disk's request queue takes.
        requests::connect(config, InitFlags::FUSE_WRITEBACK_CACHE | InitFlags::FUSE_CACHE_SYMLINKS, 128);
        // One byte is rounded down to no page at all; zero is not accepted.
        let readahead = u32::try_from(self.readahead.0).unwrap_or(u32::MAX).max(1);
        if let Err(most) = config.set_max_readahead(readahead) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == CALIBRATION {
            return reply.entry(&FOR_GOOD, &calibration_attributes(), Generation(0));
        }
        match self.nodes.look_up(parent, name) {
            Ok((_, attributes)) => reply.entry(&FOR_GOOD, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.nodes.forget(number, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if number == CALIBRATION_NODE {
            return reply.attr(&FOR_GOOD, &calibration_attributes());
        }
        match self.nodes.get(number).and_then(|node| node.stat()) {
            Ok(stat) => reply.attr(&FOR_GOOD, &attributes(number.0, &stat)),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || {
            let node = self.nodes.get(number)?;
            if let Some(mode) = mode {
                rustix::fs::chmod(node.link(), Mode::from_raw_mode(mode)).map_err(errno)?;
            }
            if user.is_some() || group.is_some() {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                rustix::fs::chownat(&node.path, "", user, group, AtFlags::EMPTY_PATH).map_err(errno)?;
            }
            if let Some(size) = size {
                match handle.map(|h| self.file(h)).transpose()?.as_deref() {
                    Some(Handle::File(file)) => file.set_len(size).map_err(errno)?,
                    _ => Self::open_data(&node, OpenFlags(libc::O_WRONLY))?.set_len(size).map_err(errno)?,
                }
            }
            if accessed.is_some() || modified.is_some() {
                let times =
                    Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) };
                rustix::fs::utimensat(CWD, node.link(), &times, AtFlags::empty()).map_err(errno)?;
            }
            node.stat()
        };
        match change() {
            Ok(stat) => reply.attr(&FOR_GOOD, &attributes(number.0, &stat)),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self
            .nodes
            .get(number)
            .and_then(|node| rustix::fs::readlinkat(&node.path, "", Vec::new()).map_err(errno));
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, parent, name, reply, |folder| {
            let kind = rustix::fs::FileType::from_raw_mode(mode);
            rustix::fs::mknodat(folder, name, kind, Mode::from_raw_mode(mode & !umask), u64::from(device))
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, parent, name, reply, |folder| {
            rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(mode & !umask))
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.make(request, parent, name, reply, |folder| rustix::fs::symlinkat(target, folder, name));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let unlink =
            |folder: Arc<Node>| rustix::fs::unlinkat(&folder.path, name, AtFlags::empty()).map_err(errno);
        empty(reply, self.nodes.get(parent).and_then(unlink));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove =
            |folder: Arc<Node>| rustix::fs::unlinkat(&folder.path, name, AtFlags::REMOVEDIR).map_err(errno);
        empty(reply, self.nodes.get(parent).and_then(remove));
    }

    fn rename(
        &self,
        _: &Request,
        from: INodeNo,
        old: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.nodes.get(from)?, self.nodes.get(to)?);
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(&from.path, old, &to.path, new, flags).map_err(errno)
        };
        empty(reply, rename());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            let (node, folder) = (self.nodes.get(number)?, self.nodes.get(parent)?);
            rustix::fs::linkat(CWD, node.link(), &folder.path, name, AtFlags::SYMLINK_FOLLOW)
                .map_err(errno)?;
            self.nodes.look_up(parent, name)
        };
        match link() {
            Ok((_, attributes)) => reply.entry(&FOR_GOOD, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if number == CALIBRATION_NODE {
            return reply.opened(FileHandle(CALIBRATION_HANDLE), FopenFlags::FOPEN_DIRECT_IO);
        }
        match self.nodes.get(number).and_then(|node| Self::open_data(&node, flags)) {
            Ok(file) => reply
                .opened(FileHandle(self.handles.insert(Handle::File(file))), FopenFlags::FOPEN_KEEP_CACHE),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || {
            let folder = self.nodes.get(parent)?;
            let make = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            match rustix::fs::openat(&folder.path, name, make, Mode::from_raw_mode(mode & !umask)) {
                Ok(_) => give(&folder, name, request),
                // Somebody else was first: fine, unless the caller wants to be.
                Err(rustix::io::Errno::EXIST) if flags & libc::O_EXCL == 0 => {}
                Err(e) => return Err(errno(e)),
            }
            let (node, attributes) = self.nodes.look_up(parent, name)?;
            Ok((Self::open_data(&node, OpenFlags(flags))?, attributes))
        };
        match create() {
            Ok((file, attributes)) => {
                let handle = FileHandle(self.handles.insert(Handle::File(file)));
                reply.created(&FOR_GOOD, &attributes, Generation(0), handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let place = Place { file: number.0, offset };
        if handle.0 == CALIBRATION_HANDLE {
            return requests::read(&self.shape, &self.zeros, place, size, reply);
        }
        match self.file(handle).as_deref() {
            Ok(Handle::File(file)) => requests::read(&self.shape, file, place, size, reply),
            Ok(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            Err(e) => reply.error(*e),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let place = Place { file: number.0, offset };
        match self.file(handle).as_deref() {
            Ok(Handle::File(file)) => requests::write(&self.shape, file, place, data, reply),
            Ok(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            Err(e) => reply.error(*e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The answer "not implemented" spares the kernel from asking again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.remove(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(handle).as_deref() {
            Ok(Handle::File(file)) => requests::sync(&self.shape, file, number.0, reply),
            Ok(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            Err(e) => reply.error(*e),
        }
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(number) {
            Ok(entries) => {
                reply.opened(FileHandle(self.handles.insert(Handle::Folder(entries))), FopenFlags::empty());
            }
            Err(e) => reply.error(e),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.file(handle).as_deref() {
            Ok(Handle::Folder(entries)) => {
                for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
                    if reply.add(INodeNo(entry.inode), at as u64 + 1, entry.kind, &entry.name) {
                        break;
                    }
                }
                reply.ok();
            }
            Ok(Handle::File(_)) => reply.error(Errno::ENOTDIR),
            Err(e) => reply.error(*e),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.handles.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let folder = self.nodes.get(number).and_then(|node| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(node.link(), flags, Mode::empty()).map_err(errno)
        });
        match folder {
            Ok(folder) => requests::sync(&self.shape, &File::from_open(folder, false), number.0, reply),
            Err(e) => reply.error(e),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let root = self.nodes.get(INodeNo::ROOT);
        match root.and_then(|root| rustix::fs::statvfs(root.link()).map_err(errno)) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(e) => reply.error(e),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = || match &*self.file(handle)? {
            Handle::File(file) => {
                let mode = FallocateFlags::from_bits_retain(mode as u32);
                rustix::fs::fallocate(file.descriptor(), mode, offset, length).map_err(errno)
            }
            Handle::Folder(_) => Err(Errno::EISDIR),
        };
        empty(reply, allocate());
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let seek = || match &*self.file(handle)? {
            Handle::File(file) => {
                let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
                let position = match whence {
                    libc::SEEK_DATA => SeekFrom::Data(offset),
                    libc::SEEK_HOLE => SeekFrom::Hole(offset),
                    _ => return Err(Errno::EINVAL),
                };
                rustix::fs::seek(file.descriptor(), position).map_err(errno)
            }
            Handle::Folder(_) => Err(Errno::EINVAL),
        };
        match seek() {
            Ok(position) => reply.offset(position as i64),
            Err(e) => reply.error(e),
        }
    }
}
