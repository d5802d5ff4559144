//! Everything that is not data goes to `fuser` by a pair of sockets: to it, its end looks like /dev/fuse. The
//! messages are the same, and sockets of this kind keep them apart as the device does.

use super::MAX_WRITE;
use super::queue::Slot;
use super::wire::{self, InHeader};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Larger than the longest name, attribute or part of a folder, and small enough for any socket.
const LONGEST: usize = 96 << 10;
/// The most of a folder at once: the kernel may ask for more, and is content with less.
const LISTING: u32 = 64 << 10;

pub(super) struct Relay {
    device: Arc<OwnedFd>,
    ours: OwnedFd,
    /// Requests of the ring that `fuser` has not answered yet, by their numbers.
    waiting: Mutex<HashMap<u64, Slot>>,
}

impl Relay {
    /// With `fuser`'s end.
    pub fn new(device: Arc<OwnedFd>) -> io::Result<(Relay, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Relay { device, ours, waiting: Mutex::default() }, theirs))
    }

    /// Passes INIT on. The answer waits until [`agree`](Self::agree).
    pub fn begin(&self) -> io::Result<()> {
        let mut message = vec![0; LARGEST];
        let length = self.receive_from_kernel(&mut message)?.ok_or(io::ErrorKind::NotConnected)?;
        rustix::io::write(&self.ours, &message[..length])?;
        Ok(())
    }

    /// Gives the kernel the answer to INIT. Returns whether it agrees to the ring.
    pub fn agree(&self) -> io::Result<bool> {
        let mut answer = vec![0; LONGEST];
        let length = rustix::io::read(&self.ours, &mut answer)?;
        rustix::io::write(&*self.device, &answer[..length])?;
        Ok(wire::agreed(&answer[..length]) & wire::OVER_IO_URING != 0)
    }

    /// Hands a request of the ring to `fuser`.
    pub fn forward(&self, slot: Slot, message: Vec<u8>) {
        let unique = InHeader::read(&message).unique;
        self.waiting.lock().insert(unique, slot);
        if rustix::io::write(&self.ours, &message).is_err() {
            // Dropped, and so answered with an error: `fuser` is gone, or this is larger than it can be.
            self.waiting.lock().remove(&unique);
        }
    }

    /// Passes on what the kernel does not send through the ring: what is forgotten, and interrupts. Until the
    /// connection ends.
    pub fn pass_on(&self) -> io::Result<()> {
        let mut message = vec![0; LARGEST];
        let result = loop {
            let length = match self.receive_from_kernel(&mut message) {
                Ok(Some(length)) => length,
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            };
            let message = &message[..length];
            let parts = match InHeader::read(message).opcode {
                wire::BATCH_FORGET if length > LONGEST => wire::split_forgets(message, LONGEST),
                _ => vec![message.to_vec()],
            };
            if let Err(e) = parts.iter().try_for_each(|part| rustix::io::write(&self.ours, part).map(drop)) {
                break Err(e.into());
            }
        };
        // `fuser`'s threads end, and so does the one below.
        let _ = rustix::net::shutdown(&self.ours, rustix::net::Shutdown::Both);
        result
    }

    /// Gives `fuser`'s answers to who waits for them. Until [`pass_on`](Self::pass_on) ends.
    pub fn give_back(&self) -> io::Result<()> {
        let mut answer = vec![0; LONGEST];
        loop {
            let length = match rustix::io::read(&self.ours, &mut answer) {
                Ok(length) if length >= wire::OUT_HEADER => length,
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let answer = &answer[..length];
            let slot = self.waiting.lock().remove(&wire::u64_at(answer, 8));
            match (slot, wire::u32_at(answer, 4) as i32) {
                (Some(slot), 0) => slot.data(&answer[wire::OUT_HEADER..]),
                (Some(slot), error) => slot.error(-error),
                // What came through the device is answered there. Who asked may be gone by now.
                (None, _) => drop(rustix::io::write(&*self.device, answer)),
            }
        }
    }

    /// A message's length, or `None` at the end of the connection.
    fn receive_from_kernel(&self, message: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&*self.device, &mut *message) {
                Ok(length) => return Ok(Some(length)),
                // Somebody interrupted a request before it was read.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// The kernel hands nothing to a buffer that might be too small.
const LARGEST: usize = MAX_WRITE + 4096;

/// A request of the ring in the form that it has on the device.
pub(super) fn message(request: &InHeader, header: &[u8], arguments: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = request.length.saturating_sub(wire::IN_HEADER + payload.len()).min(arguments.len());
    let mut message = [&header[..wire::IN_HEADER], &arguments[..length], payload].concat();
    if matches!(request.opcode, wire::READDIR | wire::READDIRPLUS) && length >= 20 {
        let size = wire::u32_at(&message, wire::IN_HEADER + 16).min(LISTING);
        wire::put_u32(&mut message, wire::IN_HEADER + 16, size);
    }
    message
}
