//! Keeps what clients saw, for checkers: a file beside the results, outside the domain of the faults.
//!
//! An intent is encoded before its operation is sent, a result when the answer is complete. A thread hands
//! what has come together to the kernel every 20 ms and flushes it every second, so that an operation pays
//! for some 40 bytes of memory and for no system call. What is lost is the last group: 20 ms when this
//! process is killed, a second when the machine dies. A history without its end says so to whoever reads it,
//! and nothing is concluded from what it may lack
//! (docs/decisions/2026-11-22-history-is-flushed-in-groups.md).

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tipover_core::check::binary::{self, Encoder, Tail};
use tipover_core::check::{
    Completion, Event, Evidence, History, Intent, Judgement, Returned, Verdict, Version,
};
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::Session;
use tipover_core::units::Tick;

/// The history's file in the folder of its trial.
pub const HISTORY: &str = "history.bin";
/// The file beside it with the history of loading, if something was broken meanwhile.
pub const LOADING: &str = "loading.bin";
/// The file beside it with the final reads.
pub const EVIDENCE: &str = "evidence.json";

/// How long what was seen stays in this process at most, when nothing goes wrong.
const GROUP: Duration = Duration::from_millis(20);
/// And how long in the kernel. A flush commits the file system's journal and empties the disk's cache: every
/// 20 ms, it makes a database on the same disk wait for ours.
const FLUSH: Duration = Duration::from_secs(1);

/// When what was seen leaves this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// In groups. Right where the faults hit other processes.
    Groups,
    /// Before the operation is sent, and before its answer is acted on; flushed in groups too. Right where
    /// the fault kills this very process, as with an embedded engine.
    Through,
}

/// A history that is being written. Sessions on any thread write to it.
pub struct HistoryWriter {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    pace: Pace,
    path: PathBuf,
    file: File,
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    encoder: Encoder,
    waiting: Vec<u8>,
    over: bool,
    failure: Option<String>,
}

impl HistoryWriter {
    /// A new history in `path`, which is replaced.
    ///
    /// # Errors
    /// When the file cannot be made, or no thread be started.
    pub fn create(path: &Path, pace: Pace) -> Result<Self> {
        let doing = || format!("making the history {}", path.display());
        let file = File::create(path).with_context(doing)?;
        let shared = Arc::new(Shared {
            pace,
            path: path.to_path_buf(),
            file,
            state: Mutex::default(),
            woken: Condvar::new(),
        });
        let writer = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("history".into())
                .spawn(move || shared.write())
                .with_context(doing)?
        };
        Ok(HistoryWriter { shared, writer: Some(writer) })
    }

    /// An operation is about to be sent.
    #[inline]
    fn intend(&self, intent: Intent) {
        self.shared.append(&Event::Intent(intent));
    }

    /// Its answer is complete.
    #[inline]
    fn complete(&self, result: Completion) {
        self.shared.append(&Event::Result(result));
    }

    /// Flushes everything and says that this is the end.
    ///
    /// # Errors
    /// When something could not be written; then nothing may be concluded from the file.
    pub fn finish(mut self) -> Result<()> {
        self.end(true);
        let failure = self.shared.state.lock().failure.take();
        failure.map_or(Ok(()), |failure| {
            Err(anyhow::anyhow!("writing {}: {failure}", self.shared.path.display()))
        })
    }

    fn end(&mut self, whole: bool) {
        let Some(writer) = self.writer.take() else { return };
        {
            let mut state = self.shared.state.lock();
            let State { encoder, waiting, over, .. } = &mut *state;
            if whole {
                encoder.finish(waiting);
            }
            *over = true;
        }
        self.shared.woken.notify_all();
        if writer.join().is_err() {
            self.shared.state.lock().failure.get_or_insert("its thread panicked".into());
        }
    }
}

impl Drop for HistoryWriter {
    /// Whatever ends a run early leaves a history without an end.
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Shared {
    #[inline]
    fn append(&self, event: &Event) {
        let mut state = self.state.lock();
        let State { encoder, waiting, failure, .. } = &mut *state;
        encoder.encode(event, waiting);
        if self.pace == Pace::Through {
            let written = (&self.file).write_all(waiting);
            waiting.clear();
            if let Err(error) = written {
                failure.get_or_insert(error.to_string());
            }
        }
    }

    fn write(&self) {
        let mut group = Vec::new();
        let (mut flushed, mut behind) = (Instant::now(), false);
        loop {
            let over = {
                let mut state = self.state.lock();
                if !state.over {
                    self.woken.wait_for(&mut state, GROUP);
                }
                std::mem::swap(&mut group, &mut state.waiting);
                state.over
            };
            let mut file = &self.file;
            let mut written = file.write_all(&group);
            // What sessions wrote through is not in the group.
            behind |= !group.is_empty() || self.pace == Pace::Through;
            if written.is_ok() && behind && (over || flushed.elapsed() >= FLUSH) {
                written = file.sync_data();
                (flushed, behind) = (Instant::now(), false);
            }
            group.clear();
            if let Err(error) = written {
                self.state.lock().failure.get_or_insert(error.to_string());
                return;
            }
            if over {
                return;
            }
        }
    }
}

/// A history that was read back.
#[derive(Debug)]
pub struct Kept {
    /// Intents and results, put together.
    pub history: History,
    /// Bytes at its end that are no whole record.
    pub torn: u64,
}

/// Reads the history in `path`, up to a torn tail.
///
/// # Errors
/// When the file cannot be read, or is no history.
pub fn read(path: &Path) -> Result<Kept> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let begins = |magic: &[u8; 8]| bytes.starts_with(&magic[..bytes.len().min(magic.len())]);
    if !begins(binary::MAGIC) && !begins(binary::MAGIC_BEFORE) {
        anyhow::bail!("{} is not a history: it does not begin with TIPHIST", path.display());
    }
    let (events, tail) = binary::decode(&bytes);
    let mut history = History::assemble(events);
    history.is_cut_short = tail != Tail::End;
    let torn = if let Tail::Torn { bytes, .. } = tail { bytes } else { 0 };
    Ok(Kept { history, torn })
}

/// Keeps everything that a judgement rests on besides the history.
///
/// # Errors
/// When it cannot be written.
pub fn keep_evidence(path: &Path, evidence: &Evidence) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(doing)?);
    serde_json::to_writer(&mut file, evidence).with_context(doing)?;
    file.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all()).with_context(doing)
}

/// What a folder with a history says.
#[derive(Debug)]
pub struct JudgedAgain {
    /// Now.
    pub judgement: Judgement,
    /// When it was run, as far as a record says so.
    pub recorded: Option<Verdict>,
    /// Bytes at the history's end that are no whole record.
    pub torn: u64,
}

/// Judges what stands in a folder again.
///
/// # Errors
/// When there is no history, or what stands beside it cannot be read.
pub fn judge_again(folder: &Path) -> Result<JudgedAgain> {
    let kept = read(&folder.join(HISTORY))?;
    let path = folder.join(EVIDENCE);
    let evidence = match std::fs::read_to_string(&path) {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("{} is no evidence", path.display()))?
        }
        // Whoever was killed before the final reads leaves none; the checkers say that they need them.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Evidence::default(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    // Whatever is wrong with a record is no matter of its history.
    let record = std::fs::read_to_string(folder.join("record.json")).ok();
    let record = record.and_then(|text| tipover_core::record::read(&text).ok());
    let recorded = record.and_then(|record| {
        let checked = record.checked.map(|judgement| judgement.verdict);
        checked.or_else(|| record.broken.map(|broken| broken.verdict))
    });
    Ok(JudgedAgain { judgement: evidence.judge(kept.history)?, recorded, torn: kept.torn })
}

/// One session's hand in a history. A session that writes none costs nothing.
#[derive(Clone, Copy)]
pub struct Pen<'a> {
    writer: Option<&'a HistoryWriter>,
    client: u32,
    sequence: u64,
}

impl<'a> Pen<'a> {
    /// That of session `client`.
    pub fn of(writer: Option<&'a HistoryWriter>, client: u32) -> Self {
        Pen { writer, client, sequence: 0 }
    }

    /// `op`, which was `due`, is about to be sent for the first time.
    #[inline]
    pub fn intend(&mut self, op: &Op, due: Tick, at: Tick) {
        let Some(writer) = self.writer else { return };
        self.sequence += 1;
        let (client, sequence) = (self.client, self.sequence);
        writer.intend(Intent { client, sequence, due, at, op: op.clone() });
    }

    /// It has its last outcome; `session` still has what it brought.
    #[inline]
    pub fn complete(&mut self, op: &Op, at: Tick, retries: u32, outcome: Outcome, session: &dyn Session) {
        let Some(writer) = self.writer else { return };
        let (outcome, answer) = match (op, outcome) {
            (Op::Read { .. }, Outcome::Done) => {
                (outcome, Returned::Value(session.fetched(0).map(Version::found)))
            }
            // To read that nothing is there is an answer.
            (Op::Read { .. }, Outcome::Refused(Failure::NotFound)) => (Outcome::Done, Returned::Value(None)),
            (Op::ReadBalances | Op::Transaction { .. }, Outcome::Done) => (outcome, session.answer()),
            _ => (outcome, Returned::Nothing),
        };
        let (client, sequence) = (self.client, self.sequence);
        writer.complete(Completion { client, sequence, at, retries, outcome, answer });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::target::Target;
    use tipover_core::workload::Dataset;

    fn write(writer: &HistoryWriter, client: u32, count: u64) {
        let mut pen = Pen::of(Some(writer), client);
        for n in 0..count {
            let op = Op::Insert { record: n * 8 + u64::from(client) };
            pen.intend(&op, Tick(n), Tick(n));
            let mut session = tipover_targets::Null.open(&DATASET).unwrap();
            pen.complete(&op, Tick(n + 1), 0, Outcome::Done, session.as_mut());
        }
    }

    static DATASET: std::sync::LazyLock<Dataset> = std::sync::LazyLock::new(|| Dataset::ycsb(1));

    #[test]
    fn what_many_sessions_saw_reads_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        for pace in [Pace::Groups, Pace::Through] {
            let writer = HistoryWriter::create(&path, pace).unwrap();
            std::thread::scope(|scope| {
                (0..4).for_each(|client| {
                    drop(scope.spawn({
                        let writer = &writer;
                        move || write(writer, client, 500)
                    }))
                });
            });
            writer.finish().unwrap();
            let kept = read(&path).unwrap();
            assert_eq!((kept.torn, kept.history.is_cut_short), (0, false));
            assert_eq!(kept.history.problems, Vec::<String>::new());
            assert_eq!((kept.history.entries.len(), kept.history.done()), (2_000, 2_000));
        }
    }

    #[test]
    fn a_history_whose_writer_vanished_says_so_and_keeps_what_was_flushed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let writer = HistoryWriter::create(&path, Pace::Through).unwrap();
        write(&writer, 0, 10);
        // Written through, so nothing of it is in this process any more; as after a kill.
        let bytes = std::fs::read(&path).unwrap();
        drop(writer);
        assert!(read(&path).unwrap().history.is_cut_short, "an end is written by whoever finishes");
        for cut in [bytes.len(), bytes.len() - 1, bytes.len() / 2, 3, 0] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let kept = read(&path).unwrap();
            assert!(kept.history.is_cut_short);
            assert!(kept.history.entries.len() <= 10);
        }
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("is not a history"));
        assert!(read(&folder.path().join("nothing")).is_err());
    }

    #[test]
    fn a_history_that_cannot_be_written_ends_in_an_error() {
        let Ok(writer) = HistoryWriter::create(Path::new("/dev/full"), Pace::Groups) else {
            println!("SKIPPED: there is no /dev/full");
            return;
        };
        write(&writer, 0, 10);
        assert!(writer.finish().unwrap_err().to_string().contains("/dev/full"));
    }
}
