//! File mode's open files: what carries their data, whichever way a request came.

use crate::backing::{Backing, File, Memory};
use crate::journal::{self, Journal, Logged};
use crate::nodes::Nodes;
use crate::requests;
use crate::ring::{Hot, Via};
use crate::shape::{Position, Shape};
use crate::table::Table;
use fuser::{Errno, FileHandle, FileType, INodeNo, ReplyData, ReplyEmpty, ReplyWrite, WriteFlags};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub(crate) const CALIBRATION_SIZE: u64 = 4 << 20;
pub(crate) const CALIBRATION_HANDLE: u64 = u64::MAX;

/// What an open folder holds.
pub(crate) struct Entry {
    pub name: OsString,
    pub kind: FileType,
    pub inode: u64,
}

pub(crate) enum Handle {
    File(Data),
    Folder(Vec<Entry>),
}

/// An open file: plain, or with what a power cut would undo.
pub(crate) enum Data {
    Plain(File),
    Logged(Arc<Logged>),
}

impl Data {
    pub fn backing(&self) -> &dyn Backing {
        match self {
            Data::Plain(file) => file,
            Data::Logged(file) => &**file,
        }
    }
    pub fn descriptor(&self) -> &OwnedFd {
        match self {
            Data::Plain(file) => file.descriptor(),
            Data::Logged(file) => file.inner().descriptor(),
        }
    }
}

/// All files and folders that are open, and what they have in common.
pub(crate) struct Open {
    pub shape: Arc<Shape>,
    pub nodes: Arc<Nodes>,
    pub handles: Table<Handle>,
    /// The calibration file's content.
    zeros: Memory,
    /// What a power cut would undo, where that is wanted.
    pub journal: Option<Arc<Journal>>,
}

impl Open {
    pub fn new(shape: Arc<Shape>, root: &Path, journal: Option<Arc<Journal>>) -> io::Result<Open> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let nodes = Nodes::new(root).map_err(|e| io::Error::from_raw_os_error(e.code()))?;
        let zeros = Memory::new(CALIBRATION_SIZE)?;
        Ok(Open { shape, nodes: Arc::new(nodes), handles: Table::new(), zeros, journal })
    }

    /// Whether there is power.
    pub fn powered(&self) -> Result<(), Errno> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.powered())
    }

    pub fn get(&self, handle: FileHandle) -> Result<Arc<Handle>, Errno> {
        self.powered()?;
        self.handles.get(handle.0).ok_or(Errno::EBADF)
    }
}

/// The kernel marks writes after which the set-user and set-group bits must be gone.
const KILL_SET_IDS: u32 = 1 << 2;

fn drop_set_ids(file: &OwnedFd) {
    if let Ok(stat) = rustix::fs::fstat(file)
        && stat.st_mode & 0o6000 != 0
    {
        let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o1777));
    }
}

impl Hot for Open {
    fn is_shaped(&self) -> bool {
        self.shape.is_shaped()
    }

    fn read(&self, node: INodeNo, handle: FileHandle, offset: u64, size: u32, reply: Via<ReplyData>) {
        let position = Position { file: node.0, offset };
        if handle.0 == CALIBRATION_HANDLE && self.powered().is_ok() {
            return requests::read(&self.shape, &self.zeros, position, size, reply);
        }
        match self.get(handle).as_deref() {
            Ok(Handle::File(data)) => requests::read(&self.shape, data.backing(), position, size, reply),
            Ok(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            Err(e) => reply.error(*e),
        }
    }

    fn write(
        &self,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        reply: Via<ReplyWrite>,
    ) {
        let position = Position { file: node.0, offset };
        match self.get(handle).as_deref() {
            Ok(Handle::File(file)) => {
                if flags.bits() & KILL_SET_IDS != 0 {
                    drop_set_ids(file.descriptor());
                }
                requests::write(&self.shape, file.backing(), position, data, reply);
            }
            Ok(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            Err(e) => reply.error(*e),
        }
    }

    fn fsync(&self, node: INodeNo, handle: FileHandle, reply: Via<ReplyEmpty>) {
        let handle = self.get(handle);
        let file = match handle.as_deref() {
            Ok(Handle::File(file)) => file,
            Ok(Handle::Folder(_)) => return reply.error(Errno::EISDIR),
            Err(e) => return reply.error(*e),
        };
        requests::sync(&self.shape, node.0, reply, || match (&self.journal, file) {
            (None, file) => file.backing().begin_flush(),
            (Some(journal), Data::Logged(file)) => journal::begin_flush(journal, Some(file)),
            // Opened for reading: whoever writes to it has it flushed nevertheless.
            (Some(journal), Data::Plain(_)) => {
                let node = self.nodes.get(node).map_err(|e| io::Error::from_raw_os_error(e.code()))?;
                journal::begin_flush(journal, journal.known(&node).as_deref())
            }
        });
        if let Some(journal) = &self.journal {
            journal.sweep();
        }
    }
}
