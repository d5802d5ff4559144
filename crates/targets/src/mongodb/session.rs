//! Operations as YCSB's binding sends them: documents `{_id: key, field0: binary, ...}`.

use super::cluster::{Cluster, count, integer};
use super::courier::{Courier, Step};
use super::document::Documents;
use super::message::{LONGEST_MESSAGE, MORE_TO_COME, Writer};
use super::options::{Acknowledgers, Options, ReadPreference, WriteConcern};
use super::reply::{Fault, Reply};
use super::transfer::{Broken, Next, Numbered, Transfer};
use crate::connection::Wait;
use bson::{RawBsonRef, RawDocument};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{Progress, Session, TargetError, Wire};
use tipover_core::workload::Dataset;

/// The operation under way.
struct Current {
    op: Op,
    /// How often it was sent before.
    attempt: u32,
    /// What the first try left behind; a second one must not make it look better than it is.
    first: Option<Outcome>,
    /// A scan whose answer comes in several batches goes on.
    goes_on: bool,
    deadline: Option<std::time::Instant>,
}

/// A session of a MongoDB target.
pub struct MongoSession<'a> {
    cluster: Arc<Cluster>,
    documents: Documents<'a>,
    primary: Courier,
    /// Another connection for reads, where they may go elsewhere.
    reader: Option<(Courier, OwnedFd)>,
    /// The session's name at the server, under which a repeated write is recognised.
    logical: [u8; 16],
    transaction_number: i64,
    current: Option<Current>,
    /// The transfer under way: several requests make one operation.
    transfer: Option<Transfer>,
    replied: u32,
    asked: Fields,
}

/// Appends `writeConcern`, unless the server's default is wanted.
pub fn write_concern(writer: &mut Writer, concern: &WriteConcern) {
    if concern.is_default() {
        return;
    }
    writer.begin_document("writeConcern");
    match &concern.members {
        Some(Acknowledgers::Members(members)) => writer.int32("w", *members),
        Some(Acknowledgers::Named(name)) => writer.string("w", name.as_bytes()),
        None => {}
    }
    if let Some(journal) = concern.journal {
        writer.boolean("j", journal);
    }
    if let Some(timeout) = concern.timeout_ms {
        writer.int64("wtimeout", timeout);
    }
    writer.end();
}

/// Appends the session's name.
pub fn logical_session(writer: &mut Writer, id: &[u8; 16]) {
    writer.begin_document("lsid");
    writer.uuid("id", id);
    writer.end();
}

/// Appends `$db`, and what a read asks for.
pub fn read_options(writer: &mut Writer, options: &Options) {
    writer.string("$db", options.database.as_bytes());
    if let Some(level) = &options.read_concern {
        writer.begin_document("readConcern");
        writer.string("level", level.as_bytes());
        writer.end();
    }
    let mode = match options.read_preference {
        // The one server that was named answers, whatever its role.
        ReadPreference::Primary if options.direct => ReadPreference::PrimaryPreferred,
        preference => preference,
    };
    if mode != ReadPreference::Primary {
        writer.begin_document("$readPreference");
        writer.string("mode", mode.name().as_bytes());
        writer.end();
    }
}

impl<'a> MongoSession<'a> {
    /// A session on `cluster` for the records of `dataset`. It connects with its first operation.
    pub fn new(cluster: &Arc<Cluster>, dataset: &'a Dataset) -> Result<Self, TargetError> {
        let primary = Courier::new(cluster, ReadPreference::Primary)?;
        let preference = cluster.options.read_preference;
        let reader = (preference != ReadPreference::Primary && !cluster.options.direct).then(|| {
            let reader = Courier::new(cluster, preference)?;
            let failed = |error| TargetError::new("preparing a MongoDB session", error);
            let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
            for (number, courier) in [(0, &primary), (1, &reader)] {
                epoll::add(&both, courier.descriptor(), EventData::new_u64(number), EventFlags::IN)
                    .map_err(failed)?;
            }
            Ok((reader, both))
        });
        Ok(MongoSession {
            cluster: cluster.clone(),
            documents: Documents::of(dataset),
            primary,
            reader: reader.transpose()?,
            logical: bson::Uuid::new().bytes(),
            transaction_number: 0,
            current: None,
            transfer: None,
            replied: 0,
            asked: Fields::All,
        })
    }

    fn courier(&mut self, kind: OpKind) -> &mut Courier {
        match &mut self.reader {
            Some((reader, _)) if !kind.writes() => reader,
            _ => &mut self.primary,
        }
    }

    fn last_courier(&self) -> &Courier {
        match &self.reader {
            Some((reader, _)) if self.current.as_ref().is_some_and(|now| !now.op.kind().writes()) => reader,
            _ => &self.primary,
        }
    }

    /// Begins `op`; its outcome if that is known already.
    fn start(&mut self, op: &Op) -> Option<Outcome> {
        let kind = op.kind();
        self.replied = 0;
        let deadline = self.primary.deadline();
        self.current = Some(Current { op: op.clone(), attempt: 0, first: None, goes_on: false, deadline });
        if !super::ACCEPTED.contains(&kind) {
            return Some(Outcome::Refused(Failure::Unsupported));
        }
        self.transfer = match *op {
            Op::Transfer { id, from, to, amount } => Some(Transfer::new(id, from, to, amount)),
            _ => None,
        };
        if kind.writes() {
            self.transaction_number += 1;
        }
        let expects_answer = self.compose(op);
        let courier = self.courier(kind);
        if courier.request.bytes().len() > LONGEST_MESSAGE {
            return Some(Outcome::Refused(Failure::Unsupported));
        }
        courier.begin(expects_answer);
        None
    }

    /// Writes the request of `op`; false if it asks for no answer.
    fn compose(&mut self, op: &Op) -> bool {
        let cluster = self.cluster.clone();
        let options = &cluster.options;
        let mut writer = std::mem::take(&mut self.courier(op.kind()).request);
        if let Some(transfer) = &self.transfer {
            if transfer.repeats_commit() {
                count(&cluster.counts.retried_commits);
            }
            let numbered = Numbered { logical: &self.logical, number: self.transaction_number };
            transfer.write(&mut writer, options, numbered);
            self.primary.request = writer;
            return true;
        }
        let unacknowledged = op.kind().writes() && options.write_concern.is_unacknowledged();
        writer.begin(0, if unacknowledged { MORE_TO_COME } else { 0 });
        match *op {
            Op::Read { record, fields } => {
                self.asked = fields;
                self.find(&mut writer, record, fields, None);
                read_options(&mut writer, options);
            }
            Op::Scan { first, count, fields } => {
                self.asked = fields;
                self.find(&mut writer, first, fields, Some(count));
                read_options(&mut writer, options);
            }
            Op::Update { record, fields, version } => {
                writer.string("update", self.documents.dataset.table.as_bytes());
                self.write_options(&mut writer, options, unacknowledged);
                writer.begin_sequence("updates");
                writer.begin_item();
                writer.begin_document("q");
                writer.string("_id", self.documents.key(record));
                writer.end();
                self.documents.update(&mut writer, record, fields, version);
                writer.end();
            }
            Op::Insert { record } => self.insert(&mut writer, options, record, 1, unacknowledged),
            Op::InsertMany { first, count } => {
                self.insert(&mut writer, options, first, count, unacknowledged);
            }
            _ => {}
        }
        writer.finish();
        self.courier(op.kind()).request = writer;
        !unacknowledged
    }

    fn find(&mut self, writer: &mut Writer, record: u64, fields: Fields, scanned: Option<u32>) {
        writer.string("find", self.documents.dataset.table.as_bytes());
        writer.begin_document("filter");
        match scanned {
            None => writer.string("_id", self.documents.key(record)),
            Some(_) => {
                writer.begin_document("_id");
                writer.string("$gte", self.documents.key(record));
                writer.end();
            }
        }
        writer.end();
        self.documents.projection(writer, fields);
        match scanned {
            None => {
                writer.int32("limit", 1);
                writer.boolean("singleBatch", true);
            }
            Some(count) => {
                writer.begin_document("sort");
                writer.int32("_id", 1);
                writer.end();
                writer.int64("limit", i64::from(count));
                writer.int64("batchSize", i64::from(count));
            }
        }
    }

    fn insert(&mut self, writer: &mut Writer, options: &Options, first: u64, count: u32, no_answer: bool) {
        writer.string("insert", self.documents.dataset.table.as_bytes());
        writer.boolean("ordered", count == 1);
        self.write_options(writer, options, no_answer);
        writer.begin_sequence("documents");
        for record in first..first + u64::from(count) {
            self.documents.item(writer, record);
        }
    }

    fn write_options(&self, writer: &mut Writer, options: &Options, unacknowledged: bool) {
        writer.string("$db", options.database.as_bytes());
        write_concern(writer, &options.write_concern);
        if !unacknowledged && self.primary.deduplicates() {
            logical_session(writer, &self.logical);
            writer.int64("txnNumber", self.transaction_number);
        }
    }

    /// Goes on with the operation at hand until it is finished or would have to wait.
    fn turn(&mut self, wait: Wait) -> Option<Outcome> {
        loop {
            let (kind, deadline) = match &self.current {
                Some(now) => (now.op.kind(), now.deadline),
                None => return Some(Outcome::Refused(Failure::Other)),
            };
            let step = self.courier(kind).go(wait, deadline);
            if self.transfer.is_some() {
                match self.transfer_on(step) {
                    Some(Progress::Finished(outcome)) => return Some(outcome),
                    Some(_) => return None,
                    None => continue,
                }
            }
            let outcome = match step {
                Step::Waiting => return None,
                Step::Sent => Some(Outcome::Done),
                Step::Answered => self.judge(),
                Step::NotSent(trouble) => {
                    self.cluster.say_once(0, trouble.text());
                    Some(Outcome::Refused(Failure::Unavailable))
                }
                Step::TimedOut => Some(open(kind, Failure::Timeout)),
                Step::Lost(_) => self.again(None, open(kind, Failure::Unavailable)),
            };
            let Some(outcome) = outcome else { continue };
            let first = self.current.as_ref().and_then(|now| now.first);
            return Some(match (first, outcome) {
                // Only what comes of looking at the records says anything about the first try, which the
                // server would have remembered; whatever is refused before that does not.
                (Some(first), Outcome::Refused(failure))
                    if ![Failure::Exists, Failure::NotFound, Failure::Conflict].contains(&failure) =>
                {
                    first
                }
                _ => outcome,
            });
        }
    }

    /// Goes on with a transfer; `None` if its next request is on its way.
    fn transfer_on(&mut self, step: Step) -> Option<Progress> {
        let transfer = self.transfer.as_mut()?;
        let next = match step {
            Step::Waiting => return Some(Progress::Receiving),
            Step::Answered => match self.primary.answer() {
                Ok(incoming) => transfer.answered(incoming.body),
                Err(_) => transfer.broken(Broken::Lost),
            },
            Step::NotSent(_) => transfer.broken(Broken::NotSent),
            Step::TimedOut => transfer.broken(Broken::TimedOut),
            Step::Lost(_) | Step::Sent => transfer.broken(Broken::Lost),
        };
        let elsewhere = match next {
            Next::Finished(outcome) => return Some(Progress::Finished(outcome)),
            Next::Send(elsewhere) => elsewhere,
        };
        if elsewhere {
            self.primary.distrust();
        }
        let op = self.current.as_ref()?.op.clone();
        self.compose(&op);
        self.primary.begin(true);
        None
    }

    /// What the answer means; `None` if another request had to be sent.
    fn judge(&mut self) -> Option<Outcome> {
        let Current { op, .. } = self.current.as_ref()?;
        let (kind, op) = (op.kind(), op.clone());
        let courier = self.last_courier();
        let body = match courier.answer() {
            Ok(incoming) => incoming.body,
            Err(_) => return Some(open(kind, Failure::Other)),
        };
        let answer = Reply::read(body);
        if let Some(fault) = answer.fault.clone() {
            self.cluster.say_once(fault.code, &fault.message);
            let documents = if let Op::InsertMany { count, .. } = op { count as usize } else { 1 };
            let outcome = answer.outcome(kind, documents);
            return self.again(Some(&fault), outcome);
        }
        match op {
            Op::Read { .. } | Op::Scan { .. } => {
                let (batch, rest) = cursor(body);
                self.replied += batch;
                match op {
                    Op::Scan { count, .. } if rest != 0 && self.replied < count => {
                        self.more(rest, count - self.replied);
                        None
                    }
                    _ if self.replied == 0 => Some(Outcome::Refused(Failure::NotFound)),
                    _ => Some(Outcome::Done),
                }
            }
            _ => Some(answer.outcome(kind, 1)),
        }
    }

    /// Asks for the next batch of a scan.
    fn more(&mut self, cursor: i64, count: u32) {
        let cluster = self.cluster.clone();
        let courier = self.courier(OpKind::Scan);
        let mut writer = std::mem::take(&mut courier.request);
        writer.begin(0, 0);
        writer.int64("getMore", cursor);
        writer.string("collection", self.documents.dataset.table.as_bytes());
        writer.int64("batchSize", i64::from(count));
        writer.string("$db", cluster.options.database.as_bytes());
        writer.finish();
        let courier = self.courier(OpKind::Scan);
        courier.request = writer;
        courier.begin(true);
        if let Some(now) = &mut self.current {
            now.goes_on = true;
        }
    }

    /// Tries once more if that cannot do the operation twice; otherwise it became `outcome`.
    fn again(&mut self, fault: Option<&Fault>, outcome: Outcome) -> Option<Outcome> {
        let now = self.current.as_ref()?;
        let kind = now.op.kind();
        let options = &self.cluster.options;
        let is_change = fault.is_none_or(Fault::is_change_of_primary);
        let may = if kind.writes() {
            options.retries_writes
                && self.primary.deduplicates()
                && !options.write_concern.is_unacknowledged()
                && fault.is_none_or(Fault::is_retryable_write)
        } else {
            options.retries_reads && is_change && !now.goes_on
        };
        let is_first = now.attempt == 0;
        let outcome = match now.first {
            Some(first) if fault.is_some_and(|fault| fault.labels.no_writes_performed) => first,
            _ => outcome,
        };
        if is_change {
            self.courier(kind).distrust();
        }
        if !may || !is_first {
            return Some(outcome);
        }
        let counts = &self.cluster.counts;
        count(if kind.writes() { &counts.retried_writes } else { &counts.retried_reads });
        if let Some(now) = &mut self.current {
            now.attempt += 1;
            now.first = matches!(outcome, Outcome::Unknown(_)).then_some(outcome);
        }
        self.replied = 0;
        self.courier(kind).begin(true);
        None
    }
}

/// An operation whose answer was lost: a write may have happened.
fn open(kind: OpKind, failure: Failure) -> Outcome {
    if kind.writes() { Outcome::Unknown(failure) } else { Outcome::Refused(failure) }
}

/// Documents in the batch at hand, and the cursor's number if there are more.
pub fn cursor(body: &RawDocument) -> (u32, i64) {
    let Ok(cursor) = body.get_document("cursor") else { return (0, 0) };
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
    let documents = batch.map_or(0, |batch| batch.into_iter().count());
    (documents as u32, integer(cursor, "id").unwrap_or(0))
}

impl Session for MongoSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        if let Some(outcome) = self.start(op) {
            return outcome;
        }
        loop {
            if let Some(outcome) = self.turn(Wait::Yes) {
                return outcome;
            }
        }
    }

    fn fetched(&self, field: u16) -> Option<&[u8]> {
        if !self.asked.numbers(self.documents.dataset.fields).contains(&field) {
            return None;
        }
        let body = self.last_courier().answer().ok()?.body;
        let batch = body.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
        let document = batch.get(0).ok()??.as_document()?;
        match document.get(self.documents.name(field)?).ok()?? {
            RawBsonRef::Binary(binary) => Some(binary.bytes),
            _ => None,
        }
    }

    fn fetched_records(&self) -> u32 {
        self.replied
    }

    fn wire(&mut self) -> Option<&mut dyn Wire> {
        Some(self)
    }
}

impl Wire for MongoSession<'_> {
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        Some(match &self.reader {
            Some((_, both)) => both.as_fd(),
            None => self.primary.descriptor(),
        })
    }

    fn begin(&mut self, op: &Op) -> Progress {
        self.start(op).or_else(|| self.turn(Wait::No)).into()
    }

    fn advance(&mut self) -> Progress {
        self.turn(Wait::No).into()
    }

    fn abandon(&mut self) {
        if let Some(now) = &self.current {
            let kind = now.op.kind();
            self.courier(kind).abandon();
        }
    }
}
