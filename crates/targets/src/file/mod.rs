//! A file: read with buffered reads of which nothing stays cached, which is what the device does for an
//! engine that reads through the page cache, without the engine; or read, written and flushed as asked, past
//! the page cache or through it.
//! Beside it the [`Engine`]s that send requests to files, for this target and for whoever measures a disk by
//! itself.

mod cached;
mod engine;
mod memory;
mod psync;
mod uring;

pub use cached::{Cached, cached};
pub use engine::{Completion, Engine, Request, engine};

use psync::Psync;
use rustix::fs::{Advice, OFlags, fadvise};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tipover_core::metric::{Kind, Metric};
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::{Facts, Session, Target, TargetError};
use tipover_core::workload::{Dataset, Lengths};

use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;

/// One file whose pages are the records of a data set with one field of 4 KiB.
#[derive(Debug)]
pub struct FileTarget {
    path: PathBuf,
    /// How requests are carried out; `None` for reads of which nothing stays cached.
    requests: Option<Requests>,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Requests as a program makes them: reads, writes and flushes.
#[derive(Debug, Clone, Copy)]
struct Requests {
    /// The largest of them in bytes.
    largest: usize,
    /// Through the page cache.
    buffered: bool,
}

impl FileTarget {
    /// The file `reads.data` in `folder`, read so that nothing of it stays cached.
    pub fn new(folder: &Path) -> Self {
        FileTarget {
            path: folder.join("reads.data"),
            requests: None,
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// The same file, read, written and flushed in requests of at most `largest` bytes: through the page
    /// cache, or past it (`O_DIRECT`).
    pub fn asked(folder: &Path, largest: usize, buffered: bool) -> Self {
        FileTarget { requests: Some(Requests { largest, buffered }), ..FileTarget::new(folder) }
    }

    fn error(&self, doing: &str, reason: impl std::fmt::Display) -> TargetError {
        TargetError::new(format!("{doing} {}", self.path.display()), reason)
    }
}

impl Target for FileTarget {
    fn facts(&self) -> Result<Facts, TargetError> {
        let size = std::fs::metadata(&self.path).map_or(0, |m| m.len());
        Ok(Facts::from([("system".into(), "file".into()), ("file_size_bytes".into(), size.into())]))
    }

    fn accepts(&self, kind: OpKind) -> bool {
        match self.requests {
            None => kind == OpKind::ReadAt,
            Some(_) => matches!(kind, OpKind::ReadAt | OpKind::WriteAt | OpKind::Flush),
        }
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        assert_eq!(
            (dataset.fields, &dataset.field_length),
            (1, &Lengths::Constant(PAGE as u32)),
            "a record is one page of the file"
        );
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)
            .map_err(|e| self.error("creating", e))?;
        // Pages go out in runs of 1 MiB: one write call per page would make loading the slowest part of a
        // trial.
        let (mut run, mut page) = (Vec::with_capacity(1 << 20), Vec::new());
        let mut first = records.start;
        for record in records.clone() {
            dataset.value(record, 0, 0, &mut page);
            run.extend_from_slice(&page);
            if run.len() == 1 << 20 || record + 1 == records.end {
                file.write_all_at(&run, first * PAGE).map_err(|e| self.error("writing", e))?;
                run.clear();
                first = record + 1;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), TargetError> {
        let file = File::open(&self.path).map_err(|e| self.error("opening", e))?;
        file.sync_all().map_err(|e| self.error("flushing", e))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| self.error("dropping the cache of", e))
    }

    fn open<'a>(&'a self, _: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        let Some(Requests { largest, buffered }) = self.requests else {
            let file = File::open(&self.path).map_err(|e| self.error("opening", e))?;
            return Ok(Box::new(FileSession { target: self, file, buffer: Vec::new() }));
        };
        let (flags, doing) = match buffered {
            true => (OFlags::empty(), "opening"),
            false => (OFlags::DIRECT, "opening for direct I/O"),
        };
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(&self.path);
        let file = file.map_err(|e| self.error(doing, e))?;
        let engine = Psync::new(vec![file].into(), largest, 0).map_err(|e| self.error("buffers for", e))?;
        Ok(Box::new(RequestSession { target: self, engine, answers: Vec::new() }))
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric =
            |name: &str, help: &str| Metric { name: name.into(), kind: Kind::Counter, help: help.into() };
        vec![
            metric(
                "engine_file_read_bytes",
                "bytes that sessions of this target read from its file, counted by the target",
            ),
            metric(
                "engine_file_written_bytes",
                "bytes that sessions of this target wrote to its file, counted by the target",
            ),
        ]
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Ok(BTreeMap::from([
            ("engine_file_read_bytes".into(), count(&self.read_bytes)),
            ("engine_file_written_bytes".into(), count(&self.written_bytes)),
        ]))
    }
}

struct FileSession<'a> {
    target: &'a FileTarget,
    file: File,
    buffer: Vec<u8>,
}

impl Session for FileSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let Op::ReadAt { offset, length } = *op else { return Outcome::Refused(Failure::Unsupported) };
        self.buffer.resize(length as usize, 0);
        match self.file.read_exact_at(&mut self.buffer, offset) {
            Ok(()) => {
                self.target.read_bytes.fetch_add(u64::from(length), Ordering::Relaxed);
                // Without this the second read of a page would measure memory.
                match fadvise(&self.file, offset, NonZeroU64::new(u64::from(length)), Advice::DontNeed) {
                    Ok(()) => Outcome::Done,
                    Err(_) => Outcome::Refused(Failure::InputOutput),
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Outcome::Refused(Failure::NotFound),
            Err(_) => Outcome::Refused(Failure::InputOutput),
        }
    }
}

/// One request after the other, on the calling thread.
struct RequestSession<'a> {
    target: &'a FileTarget,
    engine: Psync,
    answers: Vec<Completion>,
}

impl Session for RequestSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let (counter, length) = match *op {
            Op::ReadAt { length, .. } => (&self.target.read_bytes, length),
            Op::WriteAt { length, .. } => (&self.target.written_bytes, length),
            Op::Flush { .. } => (&self.target.written_bytes, 0),
            _ => return Outcome::Refused(Failure::Unsupported),
        };
        self.engine.submit(Request { slot: 0, file: 0, op: op.clone() });
        self.answers.clear();
        if self.engine.reap(1, None, &mut self.answers).is_err() {
            return Outcome::Unknown(Failure::Other);
        }
        let outcome = self.answers.first().map_or(Outcome::Unknown(Failure::Other), |answer| answer.outcome);
        if outcome == Outcome::Done {
            counter.fetch_add(u64::from(length), Ordering::Relaxed);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;

    #[test]
    fn past_the_page_cache_and_through_it_it_reads_writes_and_flushes() {
        [false, true].into_iter().for_each(reads_writes_and_flushes);
    }

    fn reads_writes_and_flushes(buffered: bool) {
        let folder = tempfile::tempdir().unwrap();
        let target = FileTarget::asked(folder.path(), 16384, buffered);
        let dataset =
            Dataset { fields: 1, field_length: Lengths::Constant(PAGE as u32), ..Dataset::ycsb(64) };
        target.load(&dataset, 0..64).unwrap();
        target.settle().unwrap();
        let mut session = match target.open(&dataset) {
            Ok(session) => session,
            Err(error) => return println!("SKIPPED: no direct I/O here: {error}"),
        };
        let before = std::fs::read(&target.path).unwrap();
        for op in [
            Op::ReadAt { offset: 4096, length: 16384 },
            Op::WriteAt { offset: 8192, length: 4096 },
            Op::Flush { data_only: true },
        ] {
            assert_eq!(session.execute(&op), Outcome::Done, "{op:?}");
        }
        let beyond = session.execute(&Op::ReadAt { offset: 1 << 30, length: 4096 });
        assert_eq!(beyond, Outcome::Refused(Failure::NotFound));
        let after = std::fs::read(&target.path).unwrap();
        assert_ne!(before[8192..12288], after[8192..12288]);
        assert_eq!((&before[..8192], &before[12288..]), (&after[..8192], &after[12288..]));
        assert_eq!(target.sample().unwrap()["engine_file_written_bytes"], 4096.0);
    }

    #[test]
    fn keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        let target = FileTarget::new(folder.path());
        contract::check(&target, &contract::Expect { keeps_records: true, kinds: &[OpKind::ReadAt] });
    }

    #[test]
    fn what_was_read_does_not_stay_cached() {
        let folder = tempfile::tempdir().unwrap();
        let target = FileTarget::new(folder.path());
        let dataset =
            Dataset { fields: 1, field_length: Lengths::Constant(PAGE as u32), ..Dataset::ycsb(256) };
        target.load(&dataset, 0..256).unwrap();
        target.settle().unwrap();
        let read = || {
            std::fs::read_to_string("/proc/self/io").ok().and_then(|io| {
                io.lines().find_map(|l| l.strip_prefix("read_bytes: ").and_then(|n| n.parse::<u64>().ok()))
            })
        };
        let device = rustix::fs::statfs(folder.path()).unwrap().f_type;
        const TMPFS: i64 = 0x0102_1994;
        let Some(before) = read().filter(|_| device != TMPFS) else {
            println!(
                "SKIPPED: the temporary folder is not on a block device, so nothing shows what was cached"
            );
            return;
        };
        let mut session = target.open(&dataset).unwrap();
        for _ in 0..3 {
            assert_eq!(session.execute(&Op::ReadAt { offset: 0, length: 65536 }), Outcome::Done);
        }
        let after = read().unwrap();
        assert!(after - before >= 3 * 65536, "only {} bytes came from the device", after - before);
    }
}
