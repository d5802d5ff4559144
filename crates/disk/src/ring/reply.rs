//! How a data request is answered, whichever way it came.

use super::queue::Slot;
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use std::io;

/// A reply of `fuser`, or an entry of the ring that takes the same kind of answer.
pub(crate) enum Via<R> {
    Fuser(R),
    Ring(Slot),
}

impl Via<ReplyData> {
    pub fn data(self, bytes: &[u8]) {
        match self {
            Via::Fuser(reply) => reply.data(bytes),
            Via::Ring(slot) => slot.data(bytes),
        }
    }
    pub fn error(self, errno: Errno) {
        match self {
            Via::Fuser(reply) => reply.error(errno),
            Via::Ring(slot) => slot.error(errno.code()),
        }
    }
}

impl Via<ReplyWrite> {
    pub fn written(self, size: u32) {
        match self {
            Via::Fuser(reply) => reply.written(size),
            Via::Ring(slot) => slot.written(size),
        }
    }
    pub fn error(self, errno: Errno) {
        match self {
            Via::Fuser(reply) => reply.error(errno),
            Via::Ring(slot) => slot.error(errno.code()),
        }
    }
}

impl Via<ReplyEmpty> {
    pub fn ok(self) {
        match self {
            Via::Fuser(reply) => reply.ok(),
            Via::Ring(slot) => slot.ok(),
        }
    }
    pub fn error(self, errno: Errno) {
        match self {
            Via::Fuser(reply) => reply.error(errno),
            Via::Ring(slot) => slot.error(errno.code()),
        }
    }
}

/// The error number of a failed call.
pub(crate) fn errno(error: impl Into<io::Error>) -> Errno {
    Errno::from_i32(error.into().raw_os_error().unwrap_or(libc::EIO))
}
