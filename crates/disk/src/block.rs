//! Block mode's file system: a folder with one image file, which a loop device turns into a disk.

use crate::backing::Backing;
use crate::requests;
use crate::ring::{Hot, Via};
use crate::shape::{Position, Shape};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, UNIX_EPOCH};
use tipover_core::device::Kind;

/// The one file's name.
pub(crate) const IMAGE: &str = "disk.img";
const FOLDER: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
/// Nobody changes the image behind our back, so the kernel may remember what it was told.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

/// The device's content, and who may still use it.
pub(crate) struct Content {
    shape: Arc<Shape>,
    backing: Arc<dyn Backing>,
    len: u64,
    power: Arc<Power>,
}

pub(crate) struct Image {
    content: Arc<Content>,
    /// Capabilities of the connection that the transport asks for.
    transport: InitFlags,
}

/// Which loop device's requests are still obeyed: after a power cut the old one may live on, with a file
/// system that wants to write what it has in memory.
#[derive(Default)]
pub(crate) struct Power {
    /// How often the power came back.
    pub epoch: AtomicU64,
    pub dead: Arc<AtomicBool>,
}

impl Power {
    fn check(&self, handle: FileHandle) -> Result<(), Errno> {
        let current = handle.0 == self.epoch.load(SeqCst) && !self.dead.load(SeqCst);
        if current { Ok(()) } else { Err(Errno::EIO) }
    }
}

impl Content {
    pub fn new(shape: Arc<Shape>, backing: Arc<dyn Backing>, power: Arc<Power>) -> io::Result<Content> {
        let len = backing.len()?;
        Ok(Content { shape, backing, len, power })
    }
}

impl Hot for Content {
    fn is_shaped(&self) -> bool {
        self.shape.is_shaped()
    }

    fn read(&self, _: INodeNo, handle: FileHandle, offset: u64, size: u32, reply: Via<ReplyData>) {
        match self.power.check(handle) {
            Ok(()) => requests::read(&self.shape, &*self.backing, at(offset), size, reply),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        reply: Via<ReplyWrite>,
    ) {
        if let Err(e) = self.power.check(handle) {
            return reply.error(e);
        }
        if offset.saturating_add(data.len() as u64) > self.len {
            return reply.error(Errno::ENOSPC);
        }
        requests::write(&self.shape, &*self.backing, at(offset), data, reply);
    }

    fn fsync(&self, _: INodeNo, handle: FileHandle, reply: Via<ReplyEmpty>) {
        match self.power.check(handle) {
            Ok(()) => requests::sync(&self.shape, 0, reply, || self.backing.begin_flush()),
            Err(e) => reply.error(e),
        }
    }
}

impl Image {
    pub fn new(content: Arc<Content>, transport: InitFlags) -> Image {
        Image { content, transport }
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let folder = inode == FOLDER;
        FileAttr {
            ino: inode,
            size: if folder { 0 } else { self.content.len },
            blocks: if folder { 0 } else { self.content.len / 512 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if folder { FileType::Directory } else { FileType::RegularFile },
            perm: if folder { 0o700 } else { 0o600 },
            nlink: if folder { 2 } else { 1 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// There is but one file, and it is the device.
fn at(offset: u64) -> Position {
    Position { file: 0, offset }
}

impl Filesystem for Image {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The loop device keeps up to 128 requests in flight; the kernel's own limit must not be felt below
        // that.
        requests::connect(config, self.transport, 256);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == FOLDER && name == IMAGE {
            reply.entry(&FOR_GOOD, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_GOOD, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Past the page cache: the pages above the loop device are the only ones that count. No flush at
        // close: a daemon that is killed while it has the image open would ask itself for it, and never die.
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(self.content.power.epoch.load(SeqCst)), flags);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = [
            (FOLDER, FileType::Directory, "."),
            (FOLDER, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, IMAGE),
        ];
        for (at, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(inode, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.content.read(inode, handle, offset, size, Via::Fuser(reply));
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.content.write(inode, handle, offset, data, flags, Via::Fuser(reply));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The answer "not implemented" spares the kernel from asking again.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.content.fsync(inode, handle, Via::Fuser(reply));
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
        if let Err(e) = self.content.power.check(handle) {
            return reply.error(e);
        }
        // The loop driver asks for ZERO_RANGE where zeros must stay allocated, which is writing them. For
        // zeros that may become a hole (those of file systems) and for a discard it asks for PUNCH_HOLE
        // alike: that costs what a discard costs, and is undone at a cut as a write of zeros, which a discard
        // may be.
        let length = length.min(self.content.len.saturating_sub(offset));
        let kind = match mode {
            mode if mode & libc::FALLOC_FL_ZERO_RANGE != 0 => Some(Kind::Write),
            mode if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 => Some(Kind::Discard),
            _ => None,
        };
        if let Some(kind) = kind {
            let Content { shape, backing, .. } = &*self.content;
            requests::zero(shape, &**backing, kind, at(offset), length, Via::Fuser(reply));
        } else {
            // Plain allocation has nothing to do.
            reply.ok();
        }
    }
}
