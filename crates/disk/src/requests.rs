//! Data requests, in both modes: note the arrival, move the bytes, answer when the shape says so.

use crate::backing::{Backing, Landing};
use crate::ring::{MAX_WRITE, Via, errno};
use crate::shape::{Position, Reply, Shape};
use fuser::{Errno, InitFlags, KernelConfig, ReplyData, ReplyEmpty, ReplyWrite};
use std::cell::RefCell;
use std::io;
use tipover_core::device::{FaultError, Kind, Verdict};

pub(crate) fn read(
    shape: &Shape,
    backing: &dyn Backing,
    position: Position,
    size: u32,
    reply: Via<ReplyData>,
) {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    let (ticket, verdict) = shape.begin(Kind::Read, position, u64::from(size));
    if let Some(e) = refusal(&verdict) {
        return shape.finish(ticket, Reply::Data(reply, Err(e)));
    }
    if !shape.is_due(&ticket) || verdict.flipped_bit.is_some() {
        let mut data = Vec::new();
        let result = backing.read(position.offset, size as usize, &mut data);
        if let Some(bit) = verdict.flipped_bit
            && let Some(byte) = data.get_mut(bit as usize / 8)
        {
            *byte ^= 1 << (bit % 8);
        }
        return shape.finish(ticket, Reply::Data(reply, result.map(|()| data).map_err(errno)));
    }
    // On an unshaped disk this thread answers from its own buffer: nothing is allocated or handed over.
    BUFFER.with_borrow_mut(|data| {
        let result = backing.read(position.offset, size as usize, data);
        shape.complete(&ticket);
        match result {
            Ok(()) => reply.data(data),
            Err(e) => reply.error(errno(e)),
        }
    });
}

pub(crate) fn write(
    shape: &Shape,
    backing: &dyn Backing,
    position: Position,
    data: &[u8],
    reply: Via<ReplyWrite>,
) {
    let (ticket, verdict) = shape.begin(Kind::Write, position, data.len() as u64);
    let written = match verdict.written {
        Some(written) => &data[..data.len().min(written as usize)],
        None => data,
    };
    let later = !shape.is_due(&ticket);
    let result = match refusal(&verdict) {
        Some(e) => Err(e),
        None if verdict.lost => Ok(None),
        None => backing.begin_write(position.offset, written, later).map_err(errno),
    };
    let result = result.map(|unanswered| (data.len() as u32, unanswered));
    shape.finish(ticket, Reply::Written(reply, result));
}

/// A flush, which is whatever `begin` begins: what that covers is durable when the flush is answered.
pub(crate) fn sync(
    shape: &Shape,
    file: u64,
    reply: Via<ReplyEmpty>,
    begin: impl FnOnce() -> io::Result<Landing>,
) {
    let (ticket, verdict) = shape.begin(Kind::Flush, Position { file, offset: 0 }, 0);
    let result = match refusal(&verdict) {
        Some(e) => Err(e),
        None if verdict.lying => Ok(Landing::default()),
        None => begin().map_err(errno),
    };
    shape.finish(ticket, Reply::Flushed(reply, result));
}

/// Makes a range zeros, at the price of `kind`. Whoever writes zeros counts on them, so faults see a write.
pub(crate) fn zero(
    shape: &Shape,
    backing: &dyn Backing,
    kind: Kind,
    position: Position,
    len: u64,
    reply: Via<ReplyEmpty>,
) {
    let (ticket, verdict) = shape.begin_as(Kind::Write, kind, position, len);
    let later = !shape.is_due(&ticket);
    let result = match refusal(&verdict) {
        Some(e) => Err(e),
        None if verdict.lost => Ok(None),
        None => {
            let len = verdict.written.map_or(len, |written| written.min(len));
            backing.begin_punch(position.offset, len, later).map_err(errno)
        }
    };
    shape.finish(ticket, Reply::Zeroed(reply, result));
}

/// How a fault makes a request fail.
fn refusal(verdict: &Verdict) -> Option<Errno> {
    verdict.error.map(|error| match error {
        FaultError::Io => Errno::EIO,
        FaultError::NoSpace => Errno::ENOSPC,
    })
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
    let _ = config.set_max_write(MAX_WRITE as u32);
    let _ = config.set_max_background(background);
    let _ = config.set_congestion_threshold(background);
}
