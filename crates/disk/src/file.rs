//! File mode's file system: a folder, shown as it is, its data passing through the shape.
//!
//! Only data requests and flushes are shaped; names and attributes are answered at once. The daemon is the
//! folder's only writer while it is mounted, so the kernel may remember what it was told. Not there:
//! nameless files, reflinks.

use crate::backing::{Backing, File, Landing};
use crate::journal;
use crate::nodes::{Node, attributes, give};
use crate::open::{CALIBRATION_HANDLE, CALIBRATION_SIZE, Data, Entry, Handle, Open};
use crate::requests;
use crate::ring::{Hot, Via, errno};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use std::ffi::OsStr;
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
/// How the hidden folder's name begins.
pub(crate) const ATTIC: &str = ".tipover-attic-";
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Folder {
    open: Arc<Open>,
    readahead: Bytes,
    /// Capabilities of the connection that the transport asks for.
    transport: InitFlags,
}

impl Folder {
    pub fn new(open: Arc<Open>, readahead: Bytes, transport: InitFlags) -> Folder {
        Folder { open, readahead, transport }
    }

    fn node(&self, number: INodeNo) -> Result<Arc<Node>, Errno> {
        self.open.powered()?;
        self.open.nodes.get(number)
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        self.open.powered()?;
        if parent == INodeNo::ROOT && is_attic(name) {
            return Err(Errno::ENOENT);
        }
        self.open.nodes.look_up(parent, name).map(|(_, attributes)| attributes)
    }

    /// Opens a node's data as the flags say, but so that the kernel's write-back can use it: it reads pages
    /// it writes a part of, and decides itself where to append.
    fn open_data(&self, node: &Node, flags: OpenFlags) -> Result<Data, Errno> {
        let wanted = OFlags::from_bits_retain(flags.0 as u32);
        let writes = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let truncates = wanted.contains(OFlags::TRUNC);
        if let Some(journal) = self.open.journal.as_ref().filter(|_| writes || truncates) {
            match journal.file(node) {
                Ok(file) => {
                    if truncates {
                        file.set_len(0).map_err(errno)?;
                    }
                    return Ok(Data::Logged(file));
                }
                // Its owner may have closed it to others but for this descriptor: then it is not undone.
                Err(Errno::EACCES) => {}
                Err(e) => return Err(e),
            }
        }
        let keep = wanted & OFlags::TRUNC | OFlags::CLOEXEC;
        let open = |access| rustix::fs::open(node.link(), access | keep, Mode::empty());
        let plain = match writes {
            true => open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY)),
            false => open(OFlags::RDONLY),
        };
        Ok(Data::Plain(File::from_open(plain.map_err(errno)?, writes)))
    }

    fn set_len(&self, node: &Node, handle: Option<FileHandle>, size: u64) -> Result<(), Errno> {
        match handle.map(|h| self.open.get(h)).transpose()?.as_deref() {
            Some(Handle::File(data)) => data.backing().set_len(size).map_err(errno),
            _ => self.open_data(node, OpenFlags(libc::O_WRONLY))?.backing().set_len(size).map_err(errno),
        }
    }

    /// Does `act` in a folder, which makes something of that name.
    fn making<R>(
        &self,
        folder: &Arc<Node>,
        name: &OsStr,
        is_folder: bool,
        act: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match &self.open.journal {
            Some(journal) => journal.make(folder, name, is_folder, act),
            None => act(),
        }
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
        is_folder: bool,
        act: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) {
        let made = self.node(parent).and_then(|folder| {
            self.making(&folder, name, is_folder, || act(&folder.path).map_err(errno))?;
            give(&folder, name, request);
            self.look_up(parent, name)
        });
        match made {
            Ok(attributes) => reply.entry(&FOR_GOOD, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn list(&self, number: INodeNo) -> Result<Vec<Entry>, Errno> {
        let node = self.node(number)?;
        let entry = |name: &str| Entry { name: name.into(), kind: FileType::Directory, inode: number.0 };
        let mut entries = vec![entry("."), entry("..")];
        for found in std::fs::read_dir(node.link()).map_err(errno)? {
            let found = found.map_err(errno)?;
            if number == INodeNo::ROOT && is_attic(&found.file_name()) {
                continue;
            }
            let kind = found.file_type().ok().and_then(FileType::from_std).unwrap_or(FileType::RegularFile);
            let inode = std::os::unix::fs::DirEntryExt::ino(&found);
            entries.push(Entry { name: found.file_name(), kind, inode });
        }
        Ok(entries)
    }
}

/// Whether this is the folder in which removed things wait.
fn is_attic(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(ATTIC.as_bytes())
}

/// A size of zero asks for the size.
fn attribute_answer(reply: ReplyXattr, size: u32, result: Result<usize, Errno>, value: &[u8]) {
    match result {
        Ok(length) if size == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&value[..length]),
        Err(e) => reply.error(e),
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
        // The kernel clears set-user bits through us (FUSE_HANDLE_KILLPRIV_V2, which fuser does not name),
        // and in return does not ask for `security.capability` at every write.
        const KILLPRIV_V2: InitFlags = InitFlags::from_bits_retain(1 << 28);
        let wanted =
            InitFlags::FUSE_WRITEBACK_CACHE | InitFlags::FUSE_CACHE_SYMLINKS | KILLPRIV_V2 | self.transport;
        requests::connect(config, wanted, 128);
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
        match self.look_up(parent, name) {
            Ok(attributes) => reply.entry(&FOR_GOOD, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.open.nodes.forget(number, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if number == CALIBRATION_NODE {
            return reply.attr(&FOR_GOOD, &calibration_attributes());
        }
        match self.node(number).and_then(|node| node.stat()) {
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
            let node = self.node(number)?;
            if let Some(mode) = mode {
                rustix::fs::chmod(node.link(), Mode::from_raw_mode(mode)).map_err(errno)?;
            }
            if user.is_some() || group.is_some() {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                rustix::fs::chownat(&node.path, "", user, group, AtFlags::EMPTY_PATH).map_err(errno)?;
            }
            if let Some(size) = size {
                self.set_len(&node, handle, size)?;
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
            .node(number)
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
        self.make(request, parent, name, reply, false, |folder| {
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
        self.make(request, parent, name, reply, true, |folder| {
            rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(mode & !umask))
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.make(request, parent, name, reply, false, |folder| rustix::fs::symlinkat(target, folder, name));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let unlink = |folder: Arc<Node>| match &self.open.journal {
            Some(journal) => journal.remove(&folder, name, false),
            None => rustix::fs::unlinkat(&folder.path, name, AtFlags::empty()).map_err(errno),
        };
        empty(reply, self.node(parent).and_then(unlink));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |folder: Arc<Node>| match &self.open.journal {
            Some(journal) => journal.remove(&folder, name, true),
            None => rustix::fs::unlinkat(&folder.path, name, AtFlags::REMOVEDIR).map_err(errno),
        };
        empty(reply, self.node(parent).and_then(remove));
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
            let (from, to) = (self.node(from)?, self.node(to)?);
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            match &self.open.journal {
                Some(journal) => journal.rename((&from, old), (&to, new), flags),
                None => rustix::fs::renameat_with(&from.path, old, &to.path, new, flags).map_err(errno),
            }
        };
        empty(reply, rename());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            let (node, folder) = (self.node(number)?, self.node(parent)?);
            self.making(&folder, name, false, || {
                rustix::fs::linkat(CWD, node.link(), &folder.path, name, AtFlags::SYMLINK_FOLLOW)
                    .map_err(errno)
            })?;
            self.look_up(parent, name)
        };
        match link() {
            Ok(attributes) => reply.entry(&FOR_GOOD, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if number == CALIBRATION_NODE {
            return reply.opened(FileHandle(CALIBRATION_HANDLE), FopenFlags::FOPEN_DIRECT_IO);
        }
        match self.node(number).and_then(|node| self.open_data(&node, flags)) {
            Ok(file) => reply.opened(
                FileHandle(self.open.handles.insert(Handle::File(file))),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
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
            let folder = self.node(parent)?;
            let make = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode & !umask);
            match self.making(&folder, name, false, || {
                rustix::fs::openat(&folder.path, name, make, mode).map_err(errno)
            }) {
                Ok(_) => give(&folder, name, request),
                // Somebody else was first: fine, unless the caller wants to be.
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => {}
                Err(e) => return Err(e),
            }
            let (node, attributes) = self.open.nodes.look_up(parent, name)?;
            Ok((self.open_data(&node, OpenFlags(flags))?, attributes))
        };
        match create() {
            Ok((file, attributes)) => {
                let handle = FileHandle(self.open.handles.insert(Handle::File(file)));
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
        self.open.read(number, handle, offset, size, Via::Fuser(reply));
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.open.write(number, handle, offset, data, flags, Via::Fuser(reply));
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
        self.open.handles.remove(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.open.fsync(number, handle, Via::Fuser(reply));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(number) {
            Ok(entries) => {
                reply.opened(
                    FileHandle(self.open.handles.insert(Handle::Folder(entries))),
                    FopenFlags::empty(),
                );
            }
            Err(e) => reply.error(e),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.open.get(handle).as_deref() {
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
        self.open.handles.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let folder = self.node(number).and_then(|node| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(node.link(), flags, Mode::empty()).map_err(errno)
        });
        match folder {
            Ok(folder) => requests::sync(&self.open.shape, number.0, Via::Fuser(reply), || {
                rustix::fs::fdatasync(&folder)?;
                let begin = |journal| journal::begin_flush(journal, None);
                self.open.journal.as_ref().map_or_else(|| Ok(Landing::default()), begin)
            }),
            Err(e) => reply.error(e),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let root = self.node(INodeNo::ROOT);
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
        let allocate = || match &*self.open.get(handle)? {
            Handle::File(Data::Plain(file)) => {
                let mode = FallocateFlags::from_bits_retain(mode as u32);
                rustix::fs::fallocate(file.descriptor(), mode, offset, length).map_err(errno)
            }
            Handle::File(Data::Logged(file)) => {
                let mode = FallocateFlags::from_bits_retain(mode as u32);
                if mode.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
                    return Err(Errno::EOPNOTSUPP);
                }
                file.allocate(mode, offset, length).map_err(errno)
            }
            Handle::Folder(_) => Err(Errno::EISDIR),
        };
        empty(reply, allocate());
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::XattrFlags::from_bits_retain(flags as u32);
        let set = |node: Arc<Node>| rustix::fs::setxattr(node.link(), name, value, flags).map_err(errno);
        empty(reply, self.node(number).and_then(set));
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut value = vec![0; size as usize];
        let get = |node: Arc<Node>| rustix::fs::getxattr(node.link(), name, &mut value).map_err(errno);
        attribute_answer(reply, size, self.node(number).and_then(get), &value);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let mut names = vec![0; size as usize];
        let list = |node: Arc<Node>| rustix::fs::listxattr(node.link(), &mut names).map_err(errno);
        attribute_answer(reply, size, self.node(number).and_then(list), &names);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |node: Arc<Node>| rustix::fs::removexattr(node.link(), name).map_err(errno);
        empty(reply, self.node(number).and_then(remove));
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
        let seek = || match &*self.open.get(handle)? {
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
