//! Data requests, in both modes: note the arrival, move the bytes, answer when the shape says so.

use crate::backing::Backing;
use crate::shape::{Answer, Place, Shape};
use fuser::{Errno, InitFlags, KernelConfig, ReplyData, ReplyEmpty, ReplyWrite};
use std::cell::RefCell;
use std::io;
use tipover_core::device::Kind;

pub(crate) fn read(shape: &Shape, backing: &dyn Backing, place: Place, size: u32, reply: ReplyData) {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    let ticket = shape.begin(Kind::Read, place, u64::from(size));
    if !shape.is_due(&ticket) {
        let mut data = Vec::new();
        let result = backing.read(place.offset, size as usize, &mut data);
        return shape.finish(ticket, Answer::Data(reply, result.map(|()| data).map_err(errno)));
    }
    // On an unshaped disk this thread answers from its own buffer: nothing is allocated or handed over.
    BUFFER.with_borrow_mut(|data| {
        let result = backing.read(place.offset, size as usize, data);
        shape.complete(&ticket);
        match result {
            Ok(()) => reply.data(data),
            Err(e) => reply.error(errno(e)),
        }
    });
}

pub(crate) fn write(shape: &Shape, backing: &dyn Backing, place: Place, data: &[u8], reply: ReplyWrite) {
    let ticket = shape.begin(Kind::Write, place, data.len() as u64);
    let result = backing.write(place.offset, data).map(|()| data.len() as u32);
    shape.finish(ticket, Answer::Written(reply, result.map_err(errno)));
}

pub(crate) fn sync(shape: &Shape, backing: &dyn Backing, file: u64, reply: ReplyEmpty) {
    let ticket = shape.begin(Kind::Flush, Place { file, offset: 0 }, 0);
    let result = backing.sync();
    shape.finish(ticket, Answer::Empty(reply, result.map_err(errno)));
}

pub(crate) fn discard(shape: &Shape, backing: &dyn Backing, place: Place, len: u64, reply: ReplyEmpty) {
    let ticket = shape.begin(Kind::Discard, place, len);
    let result = backing.punch(place.offset, len);
    shape.finish(ticket, Answer::Empty(reply, result.map_err(errno)));
}

/// The error number of a failed call.
pub(crate) fn errno(error: impl Into<io::Error>) -> Errno {
    Errno::from_i32(error.into().raw_os_error().unwrap_or(libc::EIO))
}

/// Settings of the connection that both modes need. `background` bounds how many asynchronous requests the
/// kernel keeps in flight: the queue of the modelled device.
pub(crate) fn connect(config: &mut KernelConfig, wanted: InitFlags, background: u16) {
    let wanted = wanted
        | InitFlags::FUSE_ASYNC_READ
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_ATOMIC_O_TRUNC
        | InitFlags::FUSE_EXPLICIT_INVAL_DATA;
    if let Err(missing) = config.add_capabilities(wanted) {
        // An older kernel: do without what it lacks.
        let _ = config.add_capabilities(wanted & !missing);
    }
    let _ = config.set_max_write(1 << 20);
    let _ = config.set_max_background(background);
    let _ = config.set_congestion_threshold(background);
}
