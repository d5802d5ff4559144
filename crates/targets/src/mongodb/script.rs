//! Scripts of commands on one session: which command is due is decided by the core, how it is sent and what
//! came of it here. A transaction is opened by its first command, as drivers do.

use super::cluster::{Cluster, count, integer};
use super::courier::{Courier, Step};
use super::message::LONGEST_MESSAGE;
use super::options::ReadPreference;
use super::reply::{Fault, Level, Reply};
use super::session::{logical_session, read_options, write_concern};
use super::transfer::{
    COMMITS, Numbered, commit_outcome, definite, end_transaction, is_commit_unknown, transaction_options,
    unknown,
};
use crate::connection::{Course, Wait};
use bson::{Bson, RawBsonRef, RawDocument};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::{Progress, Remarks, Session, TargetError, Wire};
use tipover_core::workload::Scripts;
use tipover_core::workload::documents::Bson as Written;
use tipover_core::workload::script::{self, Order, Template, Value};

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing: the script goes on.
    Between,
    /// The script pauses.
    Pause(Instant),
    /// A command.
    Command(Sent),
    /// The next batch of what a command brought.
    Batch,
    /// A commit, sent so often; whether one before may have done it.
    Commit { times: u32, in_doubt: bool },
    /// A rollback that the script asks for.
    Rollback,
    /// A rollback because the operation ended with this.
    Clean(Outcome),
}

/// A command that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    changes: bool,
    /// Whether it may be sent once more.
    repeatable: bool,
    /// What the first try left behind, if this is the second.
    first: Option<Outcome>,
}

/// A transaction of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// The server has not heard of it.
    Begun,
    Open,
}

/// A session that runs scripts of commands.
pub struct ScriptSession {
    cluster: Arc<Cluster>,
    courier: Courier,
    course: Course,
    /// The session's name at the server, and the number of its last transaction or numbered command.
    logical: [u8; 16],
    number: i64,
    transaction: Transaction,
    stage: Stage,
    deadline: Option<Instant>,
    document: Written,
}

/// Commands that take a read concern.
const READS: [&str; 4] = ["find", "aggregate", "count", "distinct"];
/// Commands that take a write concern.
const WRITES: [&str; 9] = [
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "aggregate",
    "create",
    "createIndexes",
    "drop",
];

impl ScriptSession {
    /// A session on the primary. It connects with its first command.
    pub fn new(cluster: &Arc<Cluster>, scripts: &Arc<Scripts>) -> Result<Self, TargetError> {
        let refused = |words: &str| Err(TargetError::new("opening a session for scripts", words));
        let options = &cluster.options;
        if options.read_preference != ReadPreference::Primary && !options.direct {
            return refused(
                "scripts of commands are sent to the primary: leave readPreference out of the address",
            );
        }
        if options.write_concern.is_unacknowledged() {
            return refused(
                "the answers of a script's commands are looked at: a write concern of 0 has none",
            );
        }
        Ok(ScriptSession {
            cluster: cluster.clone(),
            courier: Courier::new(cluster, ReadPreference::Primary)?,
            course: Course::new(scripts.clone()),
            logical: bson::Uuid::new().bytes(),
            number: 0,
            transaction: Transaction::None,
            stage: Stage::Between,
            deadline: None,
            document: Written::default(),
        })
    }

    /// Begins `op`; its outcome if that is known already.
    fn start(&mut self, op: &Op) -> Option<Outcome> {
        (self.stage, self.transaction) = (Stage::Between, Transaction::None);
        self.deadline = self.courier.deadline();
        (!self.course.begin(op)).then_some(Outcome::Refused(Failure::Unsupported))
    }

    /// Goes on with the operation at hand until it is finished or would have to wait.
    fn turn(&mut self, wait: Wait) -> Option<Outcome> {
        loop {
            let outcome = match self.stage {
                Stage::Between => self.go_on(),
                Stage::Pause(until) => {
                    let rest = until.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        self.courier.wake(None);
                        self.course.time();
                        self.stage = Stage::Between;
                    } else if wait == Wait::Yes {
                        std::thread::sleep(rest);
                    } else {
                        self.courier.wake(Some(until));
                        return None;
                    }
                    None
                }
                _ => match self.courier.go(wait, self.deadline) {
                    Step::Waiting => return None,
                    Step::Answered => self.answered(),
                    Step::NotSent(trouble) => {
                        self.cluster.say_once(0, trouble.text());
                        self.broken(trouble.text(), Failure::Unavailable, false)
                    }
                    Step::TimedOut => self.broken("no answer in time", Failure::Timeout, true),
                    Step::Lost(text) => self.broken(&text, Failure::Unavailable, true),
                    Step::Sent => {
                        self.broken("it was sent without asking for an answer", Failure::Other, true)
                    }
                },
            };
            if outcome.is_some() {
                self.stage = Stage::Between;
                return outcome;
            }
        }
    }

    /// The next step of the script; the outcome of the operation if it has one.
    fn go_on(&mut self) -> Option<Outcome> {
        match self.course.next_step() {
            Err(abort) => self.abort(abort.command, abort.reason),
            Ok(script::Step::Send(command)) => self.send(command),
            Ok(script::Step::Sleep(time)) => {
                self.stage = Stage::Pause(Instant::now() + time);
                None
            }
            Ok(script::Step::Over) if self.transaction != Transaction::None => {
                let words = "end of script reached without completing the last transaction";
                self.abort(self.course.command, words.into())
            }
            Ok(script::Step::Over) => Some(Outcome::Done),
            Ok(script::Step::StartPipeline | script::Step::SyncPipeline | script::Step::EndPipeline) => {
                self.abort(self.course.command, "this server has no pipelines".into())
            }
        }
    }

    /// The session cannot go on with this operation.
    fn abort(&mut self, command: usize, words: String) -> Option<Outcome> {
        self.course.abort(command, words);
        self.cleaned(Outcome::Refused(Failure::Other))
    }

    /// The operation ends so, once nothing stays of its open transaction.
    fn cleaned(&mut self, outcome: Outcome) -> Option<Outcome> {
        if std::mem::replace(&mut self.transaction, Transaction::None) != Transaction::Open {
            return Some(outcome);
        }
        self.end_transaction("abortTransaction", false);
        self.stage = Stage::Clean(outcome);
        None
    }

    fn end_transaction(&mut self, name: &str, again: bool) {
        let numbered = Numbered { logical: &self.logical, number: self.number };
        end_transaction(&mut self.courier.request, name, &self.cluster.options, numbered, again);
        self.courier.begin(true);
    }

    fn send(&mut self, command: usize) -> Option<Outcome> {
        let scripts = self.course.scripts().clone();
        let order = match scripts.order(self.course.op, command) {
            Ok(order) => order,
            Err(abort) => return self.abort(command, abort.reason),
        };
        let template = match (order.as_ref(), self.transaction) {
            (Order::Begin, Transaction::None) => {
                self.number += 1;
                self.transaction = Transaction::Begun;
                self.course.time();
                return None;
            }
            (Order::Begin, _) => return self.abort(command, "a transaction is open already".into()),
            (Order::Commit | Order::Rollback, Transaction::None) => {
                return self.abort(command, "no transaction is open".into());
            }
            // Nothing was asked, so that the server knows nothing of it.
            (Order::Commit | Order::Rollback, Transaction::Begun) => {
                self.transaction = Transaction::None;
                self.course.time();
                return None;
            }
            (Order::Commit, Transaction::Open) => {
                self.course.sends();
                self.end_transaction("commitTransaction", false);
                self.stage = Stage::Commit { times: 1, in_doubt: false };
                return None;
            }
            (Order::Rollback, Transaction::Open) => {
                self.course.sends();
                self.end_transaction("abortTransaction", false);
                self.stage = Stage::Rollback;
                return None;
            }
            (Order::Command(template), _) => template,
        };
        let written = self.course.run.put_document(command, template, &mut self.document);
        if let Err(abort) = written {
            return self.abort(command, abort.reason);
        }
        self.course.sends();
        self.course.sent = true;
        if let Err(words) = self.compose(template) {
            return self.abort(command, words);
        }
        self.courier.begin(true);
        None
    }

    /// Writes the request of a command whose document is written.
    fn compose(&mut self, template: &Template) -> Result<(), String> {
        let options = &self.cluster.options;
        let has = |name: &str| template.has.iter().any(|known| known == name);
        let body = RawDocument::from_bytes(&self.document.bytes).map_err(|error| error.to_string())?;
        let writer = &mut self.courier.request;
        writer.begin(0, 0);
        writer.elements(body);
        let mut repeatable = false;
        if self.transaction != Transaction::None {
            let given = ["$db", "lsid", "txnNumber", "readConcern", "writeConcern"]
                .into_iter()
                .find(|name| has(name));
            if let Some(name) = given {
                return Err(format!("a command of a transaction gives no {name}: the transaction has it"));
            }
            let numbered = Numbered { logical: &self.logical, number: self.number };
            transaction_options(writer, options, numbered, self.transaction == Transaction::Begun);
            self.transaction = Transaction::Open;
        } else {
            let reads = READS.contains(&template.name.as_str()) && !template.changes;
            match (has("$db"), reads && !has("readConcern")) {
                (false, true) => read_options(writer, options),
                (false, false) => writer.string("$db", options.database.as_bytes()),
                (true, _) => {}
            }
            if template.changes && WRITES.contains(&template.name.as_str()) && !has("writeConcern") {
                write_concern(writer, &options.write_concern);
            }
            let numbered =
                template.is_repeatable && options.retries_writes && !has("lsid") && !has("txnNumber");
            if numbered && self.cluster.deduplicates.load(std::sync::atomic::Ordering::Relaxed) {
                self.number += 1;
                logical_session(writer, &self.logical);
                writer.int64("txnNumber", self.number);
                repeatable = true;
            }
            repeatable |= !template.changes && options.retries_reads;
        }
        writer.finish();
        if writer.bytes().len() > LONGEST_MESSAGE {
            return Err(format!("the command is longer than {LONGEST_MESSAGE} bytes"));
        }
        self.stage = Stage::Command(Sent { changes: template.changes, repeatable, first: None });
        Ok(())
    }

    /// The answer to what is under way has come.
    fn answered(&mut self) -> Option<Outcome> {
        let answer = match self.courier.answer() {
            Ok(incoming) => Reply::read(incoming.body),
            Err(text) => return self.broken(&text, Failure::Other, true),
        };
        match (self.stage, answer.fault.clone()) {
            (Stage::Clean(outcome), _) => Some(outcome),
            (Stage::Commit { times, in_doubt }, Some(fault)) => self.not_committed(&fault, times, in_doubt),
            (Stage::Commit { .. }, None) | (Stage::Rollback, _) => {
                self.transaction = Transaction::None;
                self.over()
            }
            (_, Some(fault)) => self.refused(&answer, &fault),
            (_, None) => self.take(),
        }
    }

    /// The statement at hand was answered whole.
    fn over(&mut self) -> Option<Outcome> {
        if let Err(words) = self.course.complete_result().and_then(|()| self.course.take_results()) {
            return self.abort(self.course.command, words);
        }
        self.course.time();
        self.stage = Stage::Between;
        match self.course.answered() {
            Ok(()) => None,
            Err(outcome) => self.cleaned(outcome),
        }
    }

    /// Takes what a command has brought, and asks for more if there is more.
    fn take(&mut self) -> Option<Outcome> {
        let body = match self.courier.answer() {
            Ok(incoming) => incoming.body,
            Err(text) => return self.broken(&text, Failure::Other, true),
        };
        let course = &mut self.course;
        if let Ok(cursor) = body.get_document("cursor") {
            let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
            let documents = batch.ok().into_iter().flatten().flatten();
            documents.filter_map(RawBsonRef::as_document).for_each(|document| row(course, document));
            let rest = integer(cursor, "id").unwrap_or(0);
            let place = cursor.get_str("ns").ok().and_then(|place| place.split_once('.'));
            if rest != 0
                && let Some((database, collection)) = place
            {
                let (database, collection) = (database.to_string(), collection.to_string());
                self.more(rest, &database, &collection);
                return None;
            }
        } else if let Ok(Some(found)) = body.get("value") {
            // `findAndModify`: the document, or null where there is none.
            if let Some(document) = found.as_document() {
                row(course, document);
            }
        } else if let Ok(values) = body.get_array("values") {
            for value in values.into_iter().flatten() {
                course.row(|| text(value));
                if course.stores() {
                    course.result.names = vec!["value".into()];
                    course.result.last = vec![stored(value)];
                }
            }
        } else {
            let counted = integer(body, "n").map_or(1, |n| n.max(0) as u64);
            course.told(counted, || body.iter().flatten().next().and_then(|(_, value)| text(value)));
            keep(course, body);
        }
        self.over()
    }

    fn more(&mut self, cursor: i64, database: &str, collection: &str) {
        let writer = &mut self.courier.request;
        writer.begin(0, 0);
        writer.int64("getMore", cursor);
        writer.string("collection", collection.as_bytes());
        match self.transaction {
            Transaction::Open => {
                let numbered = Numbered { logical: &self.logical, number: self.number };
                transaction_options(writer, &self.cluster.options, numbered, false);
            }
            _ => writer.string("$db", database.as_bytes()),
        }
        writer.finish();
        self.courier.begin(true);
        self.stage = Stage::Batch;
    }

    /// A command was answered with an error.
    fn refused(&mut self, answer: &Reply, fault: &Fault) -> Option<Outcome> {
        self.cluster.say_once(fault.code, &fault.message);
        if self.transaction == Transaction::Open {
            if fault.is_change_of_primary() {
                self.courier.distrust();
            }
            let outcome = self.ends(fault, definite(fault.outcome(false)));
            if fault.labels.transient_transaction {
                // The server has ended the transaction itself.
                self.transaction = Transaction::None;
            }
            return self.cleaned(outcome);
        }
        let Stage::Command(sent) = self.stage else {
            return Some(self.ends(fault, definite(fault.outcome(false))));
        };
        let (kind, documents) = match sent.changes {
            true => (OpKind::Insert, self.documents()),
            false => (OpKind::Read, 1),
        };
        let outcome = answer.outcome(kind, documents);
        let may = match sent.changes {
            true => fault.is_retryable_write(),
            false => fault.is_change_of_primary(),
        };
        if fault.is_change_of_primary() {
            self.courier.distrust();
        }
        if may && self.again(sent, outcome) {
            return None;
        }
        let outcome = settled(sent, outcome);
        Some(self.ends(fault, outcome))
    }

    /// How many documents the command at hand changes one by one.
    fn documents(&self) -> usize {
        let Ok(body) = RawDocument::from_bytes(&self.document.bytes) else { return 1 };
        let lists = ["documents", "updates", "deletes"].into_iter();
        let length = |name| body.get_array(name).ok().map(|list| list.into_iter().count());
        lists.filter_map(length).next().unwrap_or(1)
    }

    /// Sends the same command once more, if that cannot do it twice.
    fn again(&mut self, sent: Sent, outcome: Outcome) -> bool {
        if !sent.repeatable || sent.first.is_some() {
            return false;
        }
        let counts = &self.cluster.counts;
        count(if sent.changes { &counts.retried_writes } else { &counts.retried_reads });
        self.stage = Stage::Command(Sent { first: Some(outcome), ..sent });
        self.courier.begin(true);
        true
    }

    /// The operation ends with what the server said to a statement.
    fn ends(&mut self, fault: &Fault, outcome: Outcome) -> Outcome {
        let may_retry = matches!(outcome, Outcome::Refused(Failure::Conflict));
        let said = (fault.code.to_string(), fault.message.clone());
        self.course.failed(self.course.result.complete, said, may_retry, |_, _| outcome)
    }

    fn not_committed(&mut self, fault: &Fault, times: u32, in_doubt: bool) -> Option<Outcome> {
        self.cluster.say_once(fault.code, &fault.message);
        let outcome = commit_outcome(fault, in_doubt);
        if fault.is_change_of_primary() {
            self.courier.distrust();
        }
        let known = !is_commit_unknown(fault) && fault.level != Level::Concern;
        if known || matches!(outcome, Outcome::Refused(_)) || times >= COMMITS {
            self.transaction = Transaction::None;
            let outcome =
                if known || matches!(outcome, Outcome::Refused(_)) { outcome } else { unknown(outcome) };
            return Some(self.ends(fault, outcome));
        }
        self.commit_again(times);
        None
    }

    fn commit_again(&mut self, times: u32) {
        count(&self.cluster.counts.retried_commits);
        self.end_transaction("commitTransaction", true);
        self.stage = Stage::Commit { times: times + 1, in_doubt: true };
    }

    /// What is under way has no answer; `sent` says whether it left.
    fn broken(&mut self, words: &str, failure: Failure, sent: bool) -> Option<Outcome> {
        let transaction = std::mem::replace(&mut self.transaction, Transaction::None);
        let outcome = match self.stage {
            Stage::Clean(outcome) => return Some(outcome),
            Stage::Commit { times, in_doubt } => {
                if sent && failure == Failure::Unavailable && times < COMMITS {
                    self.transaction = transaction;
                    self.commit_again(times);
                    return None;
                }
                if sent || in_doubt { Outcome::Unknown(failure) } else { Outcome::Refused(failure) }
            }
            // Nothing of a transaction stays that nobody committed.
            _ if transaction == Transaction::Open => Outcome::Refused(failure),
            Stage::Command(command) => {
                let outcome = match sent && command.changes {
                    true => Outcome::Unknown(failure),
                    false => Outcome::Refused(failure),
                };
                if sent && failure == Failure::Unavailable && self.again(command, outcome) {
                    return None;
                }
                settled(command, outcome)
            }
            _ => Outcome::Refused(failure),
        };
        self.course.lost_with(words, outcome);
        Some(outcome)
    }
}

/// Only what comes of looking at the records says anything about the first try, which the server would have
/// remembered; whatever is refused before that does not.
fn settled(sent: Sent, outcome: Outcome) -> Outcome {
    match (sent.first, outcome) {
        (Some(first @ Outcome::Unknown(_)), Outcome::Refused(failure))
            if ![Failure::Exists, Failure::NotFound, Failure::Conflict].contains(&failure) =>
        {
            first
        }
        (_, outcome) => outcome,
    }
}

/// A document came for the statement at hand.
fn row(course: &mut Course, document: &RawDocument) {
    course.row(|| document.iter().flatten().next().and_then(|(_, value)| text(value)));
    keep(course, document);
}

/// Keeps the fields of a document, where somebody wants them.
fn keep(course: &mut Course, document: &RawDocument) {
    if !course.stores() {
        return;
    }
    let fields = document.iter().flatten();
    let (names, values) = fields.map(|(name, value)| (name.as_str().to_string(), stored(value))).unzip();
    (course.result.names, course.result.last) = (names, values);
}

/// A value as a text, for an expectation; nothing is null.
fn text(value: RawBsonRef<'_>) -> Option<String> {
    match stored(value) {
        Value::Null => None,
        value => Some(value.to_string()),
    }
}

/// A value as a variable: what scripts know as that; identities and dates in Extended JSON, so that they go
/// back as what they were; all else as a text that shows it.
fn stored(value: RawBsonRef<'_>) -> Value {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined => Value::Null,
        RawBsonRef::Boolean(value) => Value::Boolean(value),
        RawBsonRef::Int32(value) => Value::Integer(value.into()),
        RawBsonRef::Int64(value) => Value::Integer(value),
        RawBsonRef::Double(value) => Value::Double(value),
        RawBsonRef::String(text) => Value::Quoted(text.into()),
        RawBsonRef::ObjectId(id) => Value::Text(format!("{{\"$oid\":\"{}\"}}", id.to_hex()).into()),
        RawBsonRef::DateTime(time) => {
            let ms = time.timestamp_millis();
            Value::Text(format!("{{\"$date\":{{\"$numberLong\":\"{ms}\"}}}}").into())
        }
        other => Bson::try_from(other).map_or(Value::Null, |value| Value::Quoted(value.to_string().into())),
    }
}

impl Session for ScriptSession {
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

    fn fetched_records(&self) -> u32 {
        self.course.result.rows as u32
    }

    fn take_seat(&mut self, number: u32) {
        self.course.take_seat(number);
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(self.course.remarks())
    }

    fn wire(&mut self) -> Option<&mut dyn Wire> {
        Some(self)
    }
}

impl Wire for ScriptSession {
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.courier.descriptor())
    }

    fn begin(&mut self, op: &Op) -> Progress {
        self.start(op).or_else(|| self.turn(Wait::No)).into()
    }

    fn advance(&mut self) -> Progress {
        self.turn(Wait::No).into()
    }

    fn abandon(&mut self) {
        self.courier.abandon();
        (self.stage, self.transaction) = (Stage::Between, Transaction::None);
    }
}
