//! The socket to a disk's daemon, and what may be asked through it while somebody else has the disk.

use crate::error::DiskError;
use crate::process::Process;
use crate::protocol::{Request, Response};
use parking_lot::Mutex;
use std::io::{self, BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::device::Counters;

/// Nothing that the daemon is asked for takes longer.
const LONGEST_STEP: Duration = Duration::from_secs(300);
/// How often a daemon that does not answer is looked at.
const GLANCE: Duration = Duration::from_millis(200);

/// The socket to the daemon.
#[derive(Debug)]
pub(crate) struct Control {
    out: UnixStream,
    lines: BufReader<UnixStream>,
    pub daemon: Process,
}

impl Control {
    pub fn new(stream: UnixStream, daemon: Process) -> io::Result<Control> {
        stream.set_read_timeout(Some(GLANCE))?;
        let lines = BufReader::new(stream.try_clone()?);
        Ok(Control { out: stream, lines, daemon })
    }
    pub fn ask(&mut self, request: &Request) -> Result<Response, DiskError> {
        self.ask_unless(request, &|| false)
    }
    /// The same, unless the answer is `unwanted` before it comes: then the daemon is left, and ends.
    pub fn ask_unless(
        &mut self,
        request: &Request,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Response, DiskError> {
        let response = self.exchange(request, unwanted).map_err(DiskError::Gone)?;
        match response {
            Response::Failed { step, reason } => Err(DiskError::Failed { step, reason }),
            other => Ok(other),
        }
    }
    fn exchange(&mut self, request: &Request, unwanted: &dyn Fn() -> bool) -> io::Result<Response> {
        tipover_core::peer::say(&mut self.out, request)?;
        let mut line = Vec::new();
        let begin = Instant::now();
        loop {
            match self.lines.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(serde_json::from_slice(&line)?),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // A daemon that cannot die because its own disk holds it does not close its socket either.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.daemon.is_alive() => {
                    if unwanted() {
                        let _ = self.out.shutdown(Shutdown::Both);
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    if begin.elapsed() > LONGEST_STEP {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// What the device has done so far, and the processor time of its daemon.
    pub fn counters(&mut self) -> Result<(Counters, Duration), DiskError> {
        match self.ask(&Request::Counters)? {
            Response::Counters { counters, cpu } => Ok((counters, cpu)),
            _ => Err(DiskError::out_of_step()),
        }
    }
}

/// Reads what a [`Disk`](crate::Disk) has counted, and keeps nobody from using it.
#[derive(Debug, Clone)]
pub struct DiskReader(Arc<Mutex<Control>>);

/// A daemon that is busy for longer, as when the power of its disk comes back, is asked another time.
const PATIENCE: Duration = Duration::from_millis(20);

impl DiskReader {
    pub(crate) fn new(control: &Arc<Mutex<Control>>) -> DiskReader {
        DiskReader(control.clone())
    }

    /// What the device has done so far, exact at `Counters::at` on [`crate::monotonic`]'s clock, and the
    /// processor time of its daemon; `None` while the daemon does something else.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn read(&self) -> Result<Option<(Counters, Duration)>, DiskError> {
        self.0.try_lock_for(PATIENCE).map(|mut control| control.counters()).transpose()
    }
}
