//! Operations on the embedded engine.

use super::checks::Checks;
use super::document::Documents;
use super::durable::Flushes;
use super::writer::Writer;
use super::{WiredTiger, failed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use tipover_core::experiment::{Durability, Trees};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{Session, TargetError};
use tipover_core::workload::Dataset;
use tipover_wiredtiger::{Connection, Error, Kind};

/// A session; stays on its thread.
pub struct WiredTigerSession<'a> {
    writer: Writer,
    flushes: &'a Flushes,
    documents: Documents<'a>,
    /// The documents as a server would put them into its reply.
    reply: Vec<u8>,
    replied: u32,
    asked: Fields,
    /// The bank, from the first transfer on.
    bank: Option<Checks<'a>>,
    connection: &'a Connection,
    /// Does the writes that nobody waits for.
    unacknowledged: Option<Worker>,
}

impl<'a> WiredTigerSession<'a> {
    /// A session on `target`.
    pub fn open(target: &'a WiredTiger, dataset: &'a Dataset) -> Result<Self, TargetError> {
        let doing = "opening a session";
        let unacknowledged = match target.durability {
            Durability::Unacknowledged => Some(
                Worker::start(&target.connection, target.trees, dataset)
                    .map_err(|error| TargetError::new(doing, error))?,
            ),
            _ => None,
        };
        Ok(WiredTigerSession {
            writer: target.writer().map_err(failed(doing))?,
            flushes: &target.flushes,
            documents: Documents::of(dataset),
            reply: Vec::new(),
            replied: 0,
            asked: Fields::All,
            bank: None,
            connection: &target.connection,
            unacknowledged,
        })
    }

    fn read(&mut self, record: u64, fields: Fields) -> Result<Outcome, Error> {
        self.asked = fields;
        self.reply.clear();
        let (reply, key) = (&mut self.reply, self.documents.key(record));
        let outcome = self.writer.read(key, |document| reply.extend_from_slice(document))?;
        self.replied = u32::from(outcome == Outcome::Done);
        Ok(outcome)
    }

    fn scan(&mut self, first: u64, count: u32) -> Result<Outcome, Error> {
        self.reply.clear();
        self.replied = 0;
        let (reply, replied, key) = (&mut self.reply, &mut self.replied, self.documents.key(first));
        self.writer.scan(key, count, |document| {
            reply.extend_from_slice(document);
            *replied += 1;
        })
    }

    fn transfer(&mut self, op: &Op) -> Outcome {
        let bank = match &mut self.bank {
            Some(bank) => bank,
            none => match Checks::open(self.connection, self.flushes) {
                Ok(bank) => none.insert(bank),
                Err(_) => return Outcome::Refused(Failure::Other),
            },
        };
        bank.execute(op)
    }

    fn write(&mut self, op: &Op) -> Result<Outcome, Error> {
        if let Some(worker) = &self.unacknowledged {
            return Ok(worker.send(op.clone()));
        }
        let outcome = write(&mut self.writer, &mut self.documents, op)?;
        if outcome == Outcome::Done {
            self.flushes.wait(&self.writer.session)?;
        }
        Ok(outcome)
    }
}

fn write(writer: &mut Writer, documents: &mut Documents<'_>, op: &Op) -> Result<Outcome, Error> {
    match *op {
        Op::Insert { record } => writer.insert(documents, record..record + 1)?,
        Op::InsertMany { first, count } => writer.insert(documents, first..first + u64::from(count))?,
        Op::Update { record, fields, version } => return writer.update(documents, record, fields, version),
        _ => return Ok(Outcome::Refused(Failure::Unsupported)),
    }
    Ok(Outcome::Done)
}

impl Session for WiredTigerSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let result = match *op {
            Op::Read { record, fields } => self.read(record, fields),
            Op::Scan { first, count, .. } => self.scan(first, count),
            Op::Transfer { .. } => return self.transfer(op),
            _ => self.write(op),
        };
        result.unwrap_or_else(|error| outcome_of(&error, op.kind()))
    }

    fn fetched(&self, field: u16) -> Option<&[u8]> {
        if !self.asked.numbers(self.documents.dataset.fields).contains(&field) {
            return None;
        }
        self.documents.field(&self.reply, field)
    }

    fn fetched_records(&self) -> u32 {
        self.replied
    }
}

/// What an error leaves of an operation.
pub fn outcome_of(error: &Error, operation: OpKind) -> Outcome {
    match error.kind() {
        Kind::Rollback => Outcome::Refused(Failure::Conflict),
        Kind::NotFound => Outcome::Refused(Failure::NotFound),
        Kind::DuplicateKey => Outcome::Refused(Failure::Exists),
        // A write that could not be flushed was committed and may yet reach the disk.
        kind if operation.writes() => Outcome::Unknown(failure(kind)),
        kind => Outcome::Refused(failure(kind)),
    }
}

fn failure(kind: Kind) -> Failure {
    const NO_SPACE: i32 = 28;
    match kind {
        Kind::Io(NO_SPACE) => Failure::Full,
        Kind::Io(_) => Failure::InputOutput,
        Kind::Panic => Failure::Unavailable,
        _ => Failure::Other,
    }
}

/// Writes that nobody waits for, as w:0: they are done once they are in the queue, and what becomes of them
/// is never heard.
struct Worker {
    queue: Option<SyncSender<Op>>,
    thread: Option<JoinHandle<()>>,
}

/// A sender that is further ahead than this waits, as it would for a full socket buffer.
const QUEUE: usize = 1_000;

impl Worker {
    fn start(connection: &Connection, trees: Trees, dataset: &Dataset) -> std::io::Result<Self> {
        let (queue, operations) = sync_channel::<Op>(QUEUE);
        let (connection, dataset) = (connection.clone(), dataset.clone());
        let work = move || {
            let Ok(mut writer) = Writer::open(&connection, trees) else { return };
            let mut documents = Documents::of(&dataset);
            for op in operations {
                // Nobody is there to be told.
                let _ = write(&mut writer, &mut documents, &op);
            }
        };
        let thread = std::thread::Builder::new().name("unacknowledged".into()).spawn(work)?;
        Ok(Worker { queue: Some(queue), thread: Some(thread) })
    }

    fn send(&self, op: Op) -> Outcome {
        match self.queue.as_ref().map(|queue| queue.send(op)) {
            Some(Ok(())) => Outcome::Done,
            _ => Outcome::Unknown(Failure::Unavailable),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there was already printed.
            let _ = thread.join();
        }
    }
}
