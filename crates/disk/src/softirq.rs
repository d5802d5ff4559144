//! Finishing answers at once in block mode.
//!
//! An answer to the loop device ends in `raise_softirq` outside of any interrupt, for which the kernel wakes
//! `ksoftirqd`: one more thread to be scheduled, of ordinary priority, and on the very processor that the
//! real-time thread which answered may go on using. Any call that leaves a section with softirqs disabled
//! runs what is pending right there instead; setting an option of a socket is such a call, and does nothing
//! else.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// Runs the softirqs that are pending on this processor, here and now.
#[derive(Debug)]
pub(crate) struct Softirqs {
    socket: UnixDatagram,
}

impl Softirqs {
    pub fn new() -> std::io::Result<Softirqs> {
        Ok(Softirqs { socket: UnixDatagram::unbound()? })
    }

    pub fn run(&self) {
        let off: libc::c_int = 0;
        // SAFETY: the descriptor is open as long as `self` is, and the kernel reads one `int` from `off`. The
        // option is off already and means nothing to a Unix socket.
        unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BROADCAST,
                (&raw const off).cast(),
                size_of_val(&off) as libc::socklen_t,
            );
        }
    }
}
