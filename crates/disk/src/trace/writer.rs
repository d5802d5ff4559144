//! The thread that writes a trace. Requests never wait for it.

use super::tap::CAPACITY;
use super::{Record, Tap, TraceSummary, format};
use crate::protocol::Mode;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a file of file mode is called now; `None` if it is gone already.
pub(crate) type Names = Arc<dyn Fn(u64) -> Option<PathBuf> + Send + Sync>;

/// How often waiting records are written: what a killed daemon loses of its trace at most.
const PERIOD: Duration = Duration::from_millis(20);

/// A trace being written.
pub(crate) struct Writer {
    tap: Arc<Tap>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<TraceSummary>>,
}

impl Writer {
    /// Begins the file at `path`, which must not exist.
    pub fn start(path: &Path, mode: Mode, names: Names) -> io::Result<Writer> {
        let mut file = File::options().write(true).create_new(true).open(path)?;
        let header = header(mode, crate::clock::monotonic().0);
        file.write_all(&header)?;
        let (tap, stop) = (Arc::new(Tap::new(CAPACITY)), Arc::new(AtomicBool::new(false)));
        let mut pen = Pen::new(file, names, header.len() as u64);
        let (its_tap, its_stop) = (tap.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("trace".into()).spawn(move || {
            loop {
                // Asked before the tap is emptied, so that nothing put in before the end is missed.
                let last = its_stop.load(Relaxed);
                pen.empty(&its_tap)?;
                if last {
                    return pen.end(&its_tap);
                }
                std::thread::park_timeout(PERIOD);
            }
        })?;
        Ok(Writer { tap, stop, thread })
    }

    /// Where records are put in.
    pub fn tap(&self) -> Arc<Tap> {
        self.tap.clone()
    }

    /// Writes what is left; nobody may put in more.
    pub fn finish(self) -> io::Result<TraceSummary> {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}

fn header(mode: Mode, begin: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(format::HEADER);
    header.extend_from_slice(format::MAGIC);
    header.extend_from_slice(&format::VERSION.to_le_bytes());
    header.extend_from_slice(&[u8::from(mode == Mode::File), 0, 0, 0, 0, 0]);
    header.extend_from_slice(&begin.to_le_bytes());
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    header.extend_from_slice(&(date.as_nanos() as u64).to_le_bytes());
    header
}

struct Pen<W: Write> {
    out: W,
    names: Names,
    named: HashSet<u64>,
    summary: TraceSummary,
    batch: Vec<Record>,
    payload: Vec<u8>,
    frames: Vec<u8>,
}

impl<W: Write> Pen<W> {
    fn new(out: W, names: Names, written: u64) -> Pen<W> {
        let summary = TraceSummary { bytes: written, ..TraceSummary::default() };
        let (batch, payload, frames) = (Vec::new(), Vec::new(), Vec::new());
        Pen { out, names, named: HashSet::new(), summary, batch, payload, frames }
    }

    /// Writes everything that waits now.
    fn empty(&mut self, tap: &Tap) -> io::Result<()> {
        loop {
            self.batch.clear();
            tap.take(format::MOST_RECORDS, &mut self.batch);
            if self.batch.is_empty() {
                return Ok(());
            }
            self.name_files();
            self.payload.clear();
            format::encode(&self.batch, tap.dropped(), &mut self.payload);
            format::frame(format::RECORDS, &self.payload, &mut self.frames);
            self.summary.records += self.batch.len() as u64;
            self.write()?;
        }
    }

    /// Names go before the first record that needs them. A file that is gone by now stays nameless.
    fn name_files(&mut self) {
        for record in self.batch.iter().filter(|record| record.file != 0) {
            if !self.named.insert(record.file) {
                continue;
            }
            let Some(path) = (self.names)(record.file) else { continue };
            self.payload.clear();
            format::put(record.file, &mut self.payload);
            self.payload.extend_from_slice(path.as_os_str().as_bytes());
            format::frame(format::NAME, &self.payload, &mut self.frames);
        }
    }

    fn end(mut self, tap: &Tap) -> io::Result<TraceSummary> {
        self.summary.dropped = tap.dropped();
        self.payload.clear();
        format::put(self.summary.records, &mut self.payload);
        format::put(self.summary.dropped, &mut self.payload);
        format::frame(format::END, &self.payload, &mut self.frames);
        self.write()?;
        Ok(self.summary)
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.frames)?;
        self.summary.bytes += self.frames.len() as u64;
        self.frames.clear();
        Ok(())
    }
}

/// A trace in memory, as the writer would write it; for the reader's tests.
#[cfg(test)]
pub(super) fn written(records: &[Record], mode: Mode, names: Names) -> (Vec<u8>, TraceSummary) {
    let mut bytes = header(mode, 77);
    let tap = Tap::new(1 << 10);
    let mut body = Vec::new();
    let mut pen = Pen::new(&mut body, names, bytes.len() as u64);
    for piece in records.chunks(100) {
        piece.iter().for_each(|record| tap.put(record));
        pen.empty(&tap).unwrap();
    }
    let summary = pen.end(&tap).unwrap();
    bytes.extend_from_slice(&body);
    (bytes, summary)
}
