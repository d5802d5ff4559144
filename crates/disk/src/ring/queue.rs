//! A queue of the ring, one for each processor: the kernel hands over a request on the processor from which
//! it came, and a thread that stays there answers it.

use super::relay::{self, Relay};
use super::uring::{Entry, Mapping, Uring};
use super::wire::{self, InHeader};
use super::{Hot, MAX_WRITE, Via};
use crate::privilege;
use crate::softirq::Softirqs;
use fuser::{Errno, FileHandle, INodeNo, WriteFlags};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Requests that reach us at once from one processor; more wait in the kernel. The loop device keeps up to
/// 128 in flight.
const DEPTH: usize = 128;
const HEADER_STRIDE: usize = 512;
const PAYLOAD_STRIDE: usize = MAX_WRITE;
/// What completes when an answer was given on another thread.
const WOKEN: u64 = DEPTH as u64;

/// What a queue's thread shares with those who answer its requests.
struct Shared {
    /// An entry's part belongs to whoever has its [`Slot`], and else to the kernel or to the queue's thread.
    payloads: Mapping,
    given: Mutex<Vec<Given>>,
    /// Whether the thread waits, or is about to look at `given` for the last time before it waits.
    asleep: AtomicBool,
    wake: OwnedFd,
}

/// An answer on its way back to its queue.
struct Given {
    entry: u16,
    /// Length of the payload, or minus an error number.
    result: Result<usize, i32>,
    /// `struct fuse_write_out` instead of a payload that is there already.
    written: Option<u32>,
}

/// Real-time where answers have their time. Where they are due at once this thread is only the first of the
/// ordinary ones: what clients or the loop device ask for then gathers while they have the processor, and is
/// answered in one go, which carries half as much again at depth 32.
fn run(shaped: bool) {
    match shaped {
        true => drop(privilege::run_on_time(super::PRIORITY)),
        false => privilege::run_first(),
    }
}

/// A request to be answered, on whichever thread. Dropped without an answer it fails: nobody may hang on it.
pub(crate) struct Slot {
    queue: Arc<Shared>,
    entry: u16,
    answered: bool,
}

impl Slot {
    fn give(mut self, result: Result<usize, i32>, written: Option<u32>) {
        self.hand_back(result, written);
    }

    fn hand_back(&mut self, result: Result<usize, i32>, written: Option<u32>) {
        self.answered = true;
        self.queue.given.lock().push(Given { entry: self.entry, result, written });
        if self.queue.asleep.swap(false, SeqCst) {
            // It can only fail if 2^64 wake-ups are outstanding.
            let _ = rustix::io::write(&self.queue.wake, &1_u64.to_ne_bytes());
        }
    }

    pub fn data(self, bytes: &[u8]) {
        if bytes.len() > PAYLOAD_STRIDE {
            return self.error(Errno::EIO.code());
        }
        let place = self.queue.payloads.part(usize::from(self.entry) * PAYLOAD_STRIDE, bytes.len());
        // SAFETY: inside the mapping. This entry's part is nobody else's while we are its slot, and `bytes`
        // is not in it: no slice of it is given out together with a slot that is answered with data.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let length = bytes.len();
        self.give(Ok(length), None);
    }

    pub fn written(self, size: u32) {
        self.give(Ok(0), Some(size));
    }

    pub fn ok(self) {
        self.give(Ok(0), None);
    }

    /// With a positive error number.
    pub fn error(self, number: i32) {
        self.give(Err(-number), None);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.answered {
            self.hand_back(Err(-libc::EIO), None);
        }
    }
}

pub(super) struct Queue {
    number: u16,
    device: i32,
    uring: Uring,
    shared: Arc<Shared>,
    headers: Mapping,
    /// What each entry was registered with: the kernel reads it then, and may read it again.
    pieces: Box<[[libc::iovec; 2]]>,
    /// Of the request in each entry: how it is named when it is committed, and its own number.
    requests: Vec<(u64, u64)>,
    /// What was last said to the kernel about each entry.
    said: Vec<Entry>,
    /// Block mode: how answers are finished at once.
    softirqs: Option<Softirqs>,
    /// Where the kernel puts how often we were woken.
    woken: Mapping,
    /// Entries that the kernel will not use again.
    dead: usize,
}

impl Queue {
    /// Makes the queue for a processor, and registers its entries. To be called on the thread that will serve
    /// it.
    pub fn new(number: u16, device: i32, softirqs: Option<Softirqs>) -> io::Result<Queue> {
        let uring = Uring::new(2 * DEPTH as u32)?;
        let payloads = Mapping::anonymous(DEPTH * PAYLOAD_STRIDE)?;
        let headers = Mapping::anonymous(DEPTH * HEADER_STRIDE)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let pieces = (0..DEPTH).map(|entry| {
            let piece = |start: *mut u8, iov_len| libc::iovec { iov_base: start.cast(), iov_len };
            [
                piece(headers.part(entry * HEADER_STRIDE, wire::ENTRY_HEADER), wire::ENTRY_HEADER),
                piece(payloads.part(entry * PAYLOAD_STRIDE, PAYLOAD_STRIDE), PAYLOAD_STRIDE),
            ]
        });
        let pieces = pieces.collect();
        let shared =
            Arc::new(Shared { payloads, given: Mutex::default(), asleep: AtomicBool::new(false), wake });
        let woken = Mapping::anonymous(size_of::<u64>())?;
        let register = |entry: usize| Entry::fuse(device, wire::REGISTER, number, entry as u64);
        let requests = vec![(0, 0); DEPTH];
        let said = (0..DEPTH).map(register).collect();
        let dead = 0;
        let mut queue =
            Queue { number, device, uring, shared, headers, pieces, requests, said, softirqs, woken, dead };
        for entry in 0..DEPTH {
            let command = queue.said[entry].with_memory(&queue.pieces[entry]);
            queue.say(entry, command);
        }
        queue.await_waking();
        queue.uring.enter(0)?;
        // What the kernel refuses, it refuses at once.
        let mut refused = Vec::new();
        queue.uring.take(&mut refused);
        match refused.first() {
            Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
            None => Ok(queue),
        }
    }

    fn say(&mut self, entry: usize, command: Entry) {
        self.said[entry] = command;
        self.uring.push(command);
    }

    fn await_waking(&mut self) {
        let place = self.woken.part(0, size_of::<u64>());
        self.uring.push(Entry::read(self.shared.wake.as_raw_fd(), place, size_of::<u64>() as u32, WOKEN));
    }

    /// Serves until the connection ends: then the kernel gives back every entry.
    pub fn serve(mut self, hot: &dyn Hot, relay: &Relay) -> io::Result<()> {
        let mut urgent = None;
        let mut completions = Vec::with_capacity(2 * DEPTH);
        let mut given = Vec::with_capacity(DEPTH);
        while self.dead < DEPTH {
            self.shared.asleep.store(true, SeqCst);
            std::mem::swap(&mut *self.shared.given.lock(), &mut given);
            let answers = !given.is_empty();
            for answer in given.drain(..) {
                self.commit(&answer);
            }
            if answers && let Some(softirqs) = &self.softirqs {
                // Otherwise `ksoftirqd` ends them, when it gets the processor.
                self.uring.enter(0)?;
                softirqs.run();
            }
            // Answers are handed over, and requests awaited, in one call.
            self.uring.enter(1)?;
            self.shared.asleep.store(false, SeqCst);
            if urgent != Some(hot.is_shaped()) {
                urgent = Some(hot.is_shaped());
                run(hot.is_shaped());
            }
            self.uring.take(&mut completions);
            for (what, result) in completions.drain(..) {
                match (what, result) {
                    (WOKEN, _) => self.await_waking(),
                    (entry, 0) => self.dispatch(entry as u16, hot, relay),
                    (entry, result) if result == -libc::EAGAIN || result == -libc::EINTR => {
                        self.say(entry as usize, self.said[entry as usize]);
                    }
                    _ => self.dead += 1,
                }
            }
        }
        Ok(())
    }

    fn header(&self, entry: u16) -> *mut u8 {
        self.headers.part(usize::from(entry) * HEADER_STRIDE, wire::ENTRY_HEADER)
    }

    fn commit(&mut self, answer: &Given) {
        let entry = usize::from(answer.entry);
        let (commit, unique) = self.requests[entry];
        // SAFETY: the entry is ours until it is committed, and nobody else has a slice of its header.
        let header = unsafe { std::slice::from_raw_parts_mut(self.header(answer.entry), wire::ENTRY_HEADER) };
        let (error, mut length) = match answer.result {
            Ok(length) => (0, length),
            Err(error) => (error, 0),
        };
        if let Some(size) = answer.written {
            let place = self.shared.payloads.part(entry * PAYLOAD_STRIDE, 8);
            // SAFETY: as above; the slot that owned the payload is gone.
            length = wire::written(unsafe { std::slice::from_raw_parts_mut(place, 8) }, size);
        }
        wire::answer(header, unique, error, length);
        let command = Entry::fuse(self.device, wire::COMMIT_AND_FETCH, self.number, entry as u64);
        self.say(entry, command.committing(commit));
    }

    /// Does what a request asks for, or hands it on.
    fn dispatch(&mut self, entry: u16, hot: &dyn Hot, relay: &Relay) {
        // SAFETY: the kernel has handed this entry over and does not touch it until it is committed, which
        // happens on this thread, after this function.
        let header = unsafe { std::slice::from_raw_parts(self.header(entry), wire::ENTRY_HEADER) };
        let request = InHeader::read(header);
        let (commit, payload) = wire::commit_and_payload(header);
        self.requests[usize::from(entry)] = (commit, request.unique);
        let slot = Slot { queue: self.shared.clone(), entry, answered: false };
        let place =
            self.shared.payloads.part(usize::from(entry) * PAYLOAD_STRIDE, payload.min(PAYLOAD_STRIDE));
        // SAFETY: as above. Only a slot that is answered with data writes there while it is read, and those
        // are reads, which have no payload, and relayed requests, which have been copied by then.
        let payload = unsafe { std::slice::from_raw_parts(place, payload.min(PAYLOAD_STRIDE)) };
        let arguments = &header[wire::OPERATION..2 * wire::OPERATION];
        let node = INodeNo(request.node);
        let handle = FileHandle(wire::u64_at(arguments, 0));
        match request.opcode {
            wire::READ => {
                let (offset, size) = (wire::u64_at(arguments, 8), wire::u32_at(arguments, 16));
                hot.read(node, handle, offset, size, Via::Ring(slot));
            }
            wire::WRITE => {
                let offset = wire::u64_at(arguments, 8);
                let length = (wire::u32_at(arguments, 16) as usize).min(payload.len());
                let flags = WriteFlags::from_bits_retain(wire::u32_at(arguments, 20));
                hot.write(node, handle, offset, &payload[..length], flags, Via::Ring(slot));
            }
            wire::FSYNC => hot.fsync(node, handle, Via::Ring(slot)),
            _ => relay.forward(slot, relay::message(&request, header, arguments, payload)),
        }
    }
}
