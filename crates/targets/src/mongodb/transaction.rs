//! Multi-document transactions with the retry rules of the drivers' specification, and outcomes that stay
//! unknown when nobody knows.
//!
//! `TransientTransactionError` begins a new transaction; `UnknownTransactionCommitResult` repeats the commit
//! alone, with `w:majority` and a time-out. The server sets the first label and we, as every driver, the
//! second: after a commit whose answer was lost, came late, or was not confirmed.

use super::admin::{Admin, Refusal};
use super::cluster::{Cluster, count, integer};
use super::reply::{Fault, Labels, Level, Reply};
use super::session::read_options;
use super::transfer::{
    Broken, Next, Numbered, Transfer, commit_outcome, definite, end_transaction, is_commit_unknown,
    transaction_options,
};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::op::{Failure, Outcome};
use tipover_core::target::TargetError;

/// Why a step of a transaction was not done. The labels are whole, whoever passes it on.
pub type Step<T> = Result<T, Fault>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Open,
    Committing,
    Ended,
}

/// A session for transactions, one after the other. It blocks.
pub struct Transactor {
    pub(super) admin: Admin,
    pub(super) cluster: Arc<Cluster>,
    logical: [u8; 16],
    number: i64,
    state: State,
    /// A commit was sent that may have done it.
    in_doubt: bool,
    /// What the server said to the transaction or the read that failed last.
    pub(super) last_words: Option<String>,
}

/// The drivers' limit on one `withTransaction`.
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const TIME_LIMIT: i32 = 50;

fn lost(text: &str, labels: Labels) -> Fault {
    Fault { code: 0, message: text.into(), level: Level::Command, labels, unconfirmed: false }
}

fn transient(text: &str) -> Fault {
    lost(text, Labels { transient_transaction: true, ..Labels::default() })
}

impl Transactor {
    /// Begins nothing yet. Its transactions read at `snapshot`, unless the address says otherwise.
    pub(super) fn new(cluster: &Arc<Cluster>) -> Result<Transactor, TargetError> {
        Ok(Transactor {
            admin: Admin::new(cluster)?,
            cluster: cluster.clone(),
            logical: bson::Uuid::new().bytes(),
            number: 0,
            state: State::Ended,
            in_doubt: false,
            last_words: None,
        })
    }

    /// Begins a transaction; the server hears of it with its first operation.
    pub fn start(&mut self) {
        self.abort();
        self.number += 1;
        (self.state, self.in_doubt) = (State::Starting, false);
    }

    /// Executes one command of the transaction.
    ///
    /// # Errors
    /// What the server said, with its labels. A lost connection is a transient error: nothing of a
    /// transaction that was not committed stays.
    pub fn run(&mut self, command: &RawDocument) -> Step<RawDocumentBuf> {
        assert!(matches!(self.state, State::Starting | State::Open), "a transaction begins with start()");
        let numbered = Numbered { logical: &self.logical, number: self.number };
        let writer = &mut self.admin.courier.request;
        writer.begin(0, 0);
        writer.elements(command);
        transaction_options(writer, &self.cluster.options, numbered, self.state == State::Starting);
        writer.finish();
        self.state = State::Open;
        let body = match self.admin.exchange() {
            Ok(body) => body.to_owned(),
            Err(refusal) => return Err(transient(&refusal.to_string())),
        };
        let Some(fault) = Reply::read(&body).fault else { return Ok(body) };
        if fault.is_change_of_primary() {
            self.admin.courier.distrust();
        }
        if fault.labels.transient_transaction {
            self.state = State::Ended;
        }
        Err(fault)
    }

    /// Commits, and repeats the commit once by itself where that is allowed, as drivers do.
    ///
    /// # Errors
    /// With the label `UnknownTransactionCommitResult` if nobody knows whether it was committed: then commit
    /// again. With `TransientTransactionError` if it certainly was not: then begin anew.
    pub fn commit(&mut self) -> Step<()> {
        if self.state == State::Starting {
            // Nothing was asked, so that the server knows nothing of it.
            self.state = State::Ended;
            return Ok(());
        }
        let again = self.state == State::Committing;
        self.state = State::Committing;
        match self.send_commit(again) {
            Err(fault) if !again && fault.is_retryable_write() => {
                count(&self.cluster.counts.retried_commits);
                self.send_commit(true)
            }
            other => other,
        }
    }

    fn send_commit(&mut self, again: bool) -> Step<()> {
        let unknown = Labels { unknown_commit: true, retryable_write: true, ..Labels::default() };
        let body = match self.end("commitTransaction", again) {
            Ok(body) => body,
            // It did not leave now; but if it is sent again, one before it may have.
            Err(Refusal::NotSent(text)) if !again => return Err(transient(&text)),
            Err(refusal) => {
                self.in_doubt = true;
                return Err(lost(&refusal.to_string(), unknown));
            }
        };
        let Some(mut fault) = Reply::read(&body).fault else { return Ok(()) };
        if fault.is_change_of_primary() {
            self.admin.courier.distrust();
        }
        fault.labels.unknown_commit = is_commit_unknown(&fault);
        self.in_doubt |= matches!(commit_outcome(&fault, self.in_doubt), Outcome::Unknown(_));
        Err(fault)
    }

    /// Aborts; errors are of no consequence, because the server forgets a transaction that nobody commits.
    pub fn abort(&mut self) {
        if self.state == State::Open {
            let _ = self.end("abortTransaction", false);
        }
        self.state = State::Ended;
    }

    fn end(&mut self, name: &str, again: bool) -> Result<RawDocumentBuf, Refusal> {
        let numbered = Numbered { logical: &self.logical, number: self.number };
        end_transaction(&mut self.admin.courier.request, name, &self.cluster.options, numbered, again);
        self.admin.exchange().map(RawDocument::to_owned)
    }

    /// Does `work` in one transaction, once; only the commit is repeated where nobody knows what it did.
    pub fn once<T>(&mut self, work: impl FnOnce(&mut Self) -> Step<T>) -> (Outcome, Option<T>) {
        let end = Instant::now() + self.patience();
        self.start();
        match work(self) {
            Ok(value) => match self.commit_until(end) {
                Ok(()) => (Outcome::Done, Some(value)),
                Err(fault) => (commit_outcome(&fault, self.in_doubt), None),
            },
            Err(fault) => {
                self.abort();
                (uncommitted(&fault), None)
            }
        }
    }

    /// Does `work` in a transaction, as often as the specification allows, until two minutes or the load's
    /// time-out are over. All tries are one operation, and are counted.
    pub fn with_transaction<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Step<T>,
    ) -> (Outcome, Option<T>) {
        let end = Instant::now() + self.patience();
        let mut pause = FIRST_PAUSE;
        loop {
            self.start();
            let (failed, outcome) = match work(self) {
                Ok(value) => match self.commit_until(end) {
                    Ok(()) => return (Outcome::Done, Some(value)),
                    Err(fault) => (fault.clone(), commit_outcome(&fault, self.in_doubt)),
                },
                Err(fault) => {
                    self.abort();
                    (fault.clone(), uncommitted(&fault))
                }
            };
            let again = failed.labels.transient_transaction && matches!(outcome, Outcome::Refused(_));
            self.last_words = Some(failed.message);
            if !again || Instant::now() >= end {
                return (outcome, None);
            }
            count(&self.cluster.counts.retried_transactions);
            rest(&mut pause, end);
        }
    }

    fn patience(&self) -> Duration {
        let timeout = self.cluster.timeout;
        if timeout.is_zero() { PATIENCE } else { timeout.min(PATIENCE) }
    }

    /// The last error; whether the transaction may have been committed all the same is `in_doubt`.
    fn commit_until(&mut self, end: Instant) -> Step<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let Err(fault) = self.commit() else { return Ok(()) };
            let over = matches!(commit_outcome(&fault, self.in_doubt), Outcome::Refused(_));
            if over || !fault.labels.unknown_commit || fault.code == TIME_LIMIT || Instant::now() >= end {
                return Err(fault);
            }
            count(&self.cluster.counts.retried_commits);
            rest(&mut pause, end);
        }
    }

    /// Everything that a `find` inside the transaction brings.
    pub fn find(&mut self, command: &RawDocument) -> Step<Vec<RawDocumentBuf>> {
        let mut documents = Vec::new();
        let mut body = self.run(command)?;
        loop {
            let id = next_batch(&body, &mut documents)?;
            if id == 0 {
                return Ok(documents);
            }
            let collection = command.get_str("find").unwrap_or_default();
            body = self.run(&rawdoc! { "getMore": id, "collection": collection })?;
        }
    }

    /// Everything in a collection, read outside of any transaction: where there are none, or from a
    /// secondary, which allows none.
    pub(super) fn read_alone(&mut self, collection: &str) -> Step<Vec<RawDocumentBuf>> {
        let options = self.cluster.options.clone();
        let mut documents = Vec::new();
        let mut command = rawdoc! { "find": collection, "filter": {}, "sort": { "_id": 1 } };
        let mut begun = false;
        loop {
            let writer = &mut self.admin.courier.request;
            writer.begin(0, 0);
            writer.elements(&command);
            // What a cursor shows was decided when it was opened.
            match begun {
                false => read_options(writer, &options),
                true => writer.string("$db", options.database.as_bytes()),
            }
            begun = true;
            writer.finish();
            let body = self.admin.exchange().map_err(|refusal| transient(&refusal.to_string()))?;
            if let Some(fault) = Reply::read(body).fault {
                return Err(fault);
            }
            match next_batch(body, &mut documents)? {
                0 => return Ok(documents),
                id => command = rawdoc! { "getMore": id, "collection": collection },
            }
        }
    }

    /// Moves `amount` between two accounts of the bank, once. Refused as existing if `id` was used already,
    /// as not found, as an overdraft, or as a conflict with another transaction.
    pub fn transfer(&mut self, id: u64, from: u64, to: u64, amount: i64) -> Outcome {
        let mut transfer = Transfer::new(id, from, to, amount);
        self.number += 1;
        loop {
            if transfer.repeats_commit() {
                count(&self.cluster.counts.retried_commits);
            }
            let numbered = Numbered { logical: &self.logical, number: self.number };
            transfer.write(&mut self.admin.courier.request, &self.cluster.options, numbered);
            let next = match self.admin.exchange() {
                Ok(body) => transfer.answered(body),
                Err(Refusal::NotSent(_)) => transfer.broken(Broken::NotSent),
                Err(_) => transfer.broken(Broken::Lost),
            };
            match next {
                Next::Finished(outcome) => return outcome,
                Next::Send(true) => self.admin.courier.distrust(),
                Next::Send(false) => {}
            }
        }
    }
}

/// Takes the documents of an answer with a cursor, and gives the cursor's number: 0 at its end.
fn next_batch(body: &RawDocument, documents: &mut Vec<RawDocumentBuf>) -> Step<i64> {
    let malformed = |_| lost("an answer without a cursor", Labels::default());
    let cursor = body.get_document("cursor").map_err(malformed)?;
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
    let batch = batch.map_err(malformed)?.into_iter().flatten();
    documents.extend(batch.filter_map(|one| one.as_document().map(RawDocument::to_owned)));
    Ok(integer(cursor, "id").unwrap_or(0))
}

/// What became of a transaction whose commit was never sent: nothing, because of `fault`.
fn uncommitted(fault: &Fault) -> Outcome {
    match definite(fault.outcome(false)) {
        Outcome::Refused(Failure::Other) if fault.code == 0 => Outcome::Refused(Failure::Unavailable),
        outcome => outcome,
    }
}

/// Sleeps between half of `pause` and all of it, so that those who collided do not collide again, and makes
/// the next one longer.
fn rest(pause: &mut Duration, end: Instant) {
    let byte = bson::Uuid::new().bytes()[0];
    let jittered = *pause / 2 + *pause * u32::from(byte) / 512;
    std::thread::sleep(jittered.min(end.saturating_duration_since(Instant::now())));
    *pause = (*pause * 3 / 2).min(LONGEST_PAUSE);
}
