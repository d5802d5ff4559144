//! The tables of checks: a ledger, a bank and lists, collections of our own in the target's database.

use super::admin::Refusal;
use super::cluster::{count, integer};
use super::message::MORE_TO_COME;
use super::reply::{Fault, Reply};
use super::session::{read_options, write_concern};
use super::sharding;
use super::transaction::Transactor;
use super::transfer::{ACCOUNTS, TRANSFERS};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use tipover_core::check::payload::payload;
use tipover_core::check::{Returned, TransferRow, Version};
use tipover_core::op::{Failure, Op, OpKind, Outcome, Step};
use tipover_core::target::{BankRows, Lists, Session, TargetError};

const LEDGER: &str = "tipover_ledger";
const LISTS: &str = "tipover_lists";
const BATCH: usize = 1_000;

/// A session on all of them. It blocks, as transactions do here.
pub struct Checks {
    transactor: Transactor,
    /// What the last read of a key brought.
    fetched: Option<Vec<u8>>,
    /// What the last operation read of balances or lists.
    answer: Returned,
    /// Why there are no transactions, where there are none: then everything is read without.
    without: Option<String>,
    /// An update makes the document that it does not find.
    upserts: bool,
    /// Writes were sent since which nothing was answered.
    unanswered: bool,
}

impl Checks {
    /// On `transactor`'s connection; `without` says why its transactions cannot be used, if so.
    pub fn new(transactor: Transactor, without: Option<String>, upserts: bool) -> Checks {
        Checks { transactor, without, upserts, fetched: None, answer: Returned::Nothing, unanswered: false }
    }

    fn insert(
        &mut self,
        collection: &str,
        options: &RawDocument,
        documents: &[RawDocumentBuf],
    ) -> Result<RawDocumentBuf, Refusal> {
        let database = self.transactor.cluster.options.database.clone();
        self.transactor.admin.insert(&database, collection, options, documents)
    }

    fn command(&mut self, command: &RawDocument) -> Result<RawDocumentBuf, Refusal> {
        let database = self.transactor.cluster.options.database.clone();
        self.transactor.admin.command(&database, command)
    }

    /// Drops a collection and makes it anew, empty: a transaction that has to make one conflicts on older
    /// servers.
    fn make(&mut self, collection: &str, keys: &[i64]) -> Result<(), TargetError> {
        let failed = |refusal: Refusal| TargetError::new(format!("preparing {collection}"), refusal);
        self.remove(collection).map_err(failed)?;
        let cluster = self.transactor.cluster.clone();
        if let Some(sharding) = cluster.options.sharding {
            sharding::shard_numbered(&cluster, sharding, collection, keys)?;
        }
        self.make_empty(collection).map_err(failed)
    }

    fn remove(&mut self, collection: &str) -> Result<(), Refusal> {
        let majority = || rawdoc! { "w": "majority" };
        let away = rawdoc! { "drop": collection, "writeConcern": majority() };
        // There may be nothing to drop, and there are servers without the command: what it left is deleted.
        match self.command(&away) {
            Err(refusal @ (Refusal::NotSent(_) | Refusal::Lost(_))) => Err(refusal),
            _ => Ok(()),
        }
    }

    fn make_empty(&mut self, collection: &str) -> Result<(), Refusal> {
        self.insert(collection, &rawdoc! {}, &[rawdoc! { "_id": -1_i64 }])?;
        let all = rawdoc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }],
        "writeConcern": { "w": "majority" } };
        self.command(&all).map(drop)
    }

    fn deposit(&mut self, accounts: &[(u64, i64)]) -> Result<(), Refusal> {
        let majority = rawdoc! { "writeConcern": { "w": "majority" } };
        for part in accounts.chunks(BATCH) {
            let row =
                |(account, balance): &(u64, i64)| rawdoc! { "_id": *account as i64, "balance": *balance };
            let rows: Vec<RawDocumentBuf> = part.iter().map(row).collect();
            self.insert(ACCOUNTS, &majority, &rows)?;
        }
        Ok(())
    }

    fn write(&mut self, key: u64, key_sequence: u64) -> Outcome {
        if !self.upserts && key_sequence == 1 {
            return self.write_first(key);
        }
        let options = self.transactor.cluster.options.clone();
        let unacknowledged = options.write_concern.is_unacknowledged();
        let writer = &mut self.transactor.admin.courier.request;
        writer.begin(0, if unacknowledged { MORE_TO_COME } else { 0 });
        writer.string("update", LEDGER.as_bytes());
        writer.string("$db", options.database.as_bytes());
        write_concern(writer, &options.write_concern);
        writer.begin_array("updates");
        writer.begin_document("0");
        writer.begin_document("q");
        writer.int64("_id", key as i64);
        writer.end();
        writer.begin_document("u");
        writer.begin_document("$set");
        writer.binary("value", &payload(key, key_sequence));
        writer.end();
        writer.end();
        writer.boolean("upsert", true);
        writer.end();
        writer.end();
        writer.finish();
        if unacknowledged {
            self.unanswered = true;
            count(&self.transactor.cluster.counts.unacknowledged_writes);
            // Done is what was sent, and that is all that this level promises.
            let posted = self.transactor.admin.post();
            return posted.err().map_or(Outcome::Done, |refusal| not_answered(&refusal));
        }
        let outcome = match self.transactor.admin.exchange() {
            Ok(body) => {
                let outcome = Reply::read(body).outcome(OpKind::Update, 1);
                // PoloDB counts what it changed, and never what it found.
                let changed = integer(body, "nModified").unwrap_or(0) > 0;
                if changed && outcome == Outcome::Refused(Failure::NotFound) {
                    Outcome::Done
                } else {
                    outcome
                }
            }
            Err(refusal) => not_answered(&refusal),
        };
        self.follow(outcome);
        outcome
    }

    /// The first write of a key, where an update makes no document.
    fn write_first(&mut self, key: u64) -> Outcome {
        let value = Binary { subtype: BinarySubtype::Generic, bytes: payload(key, 1).to_vec() };
        let row = rawdoc! { "_id": key as i64, "value": value };
        let outcome = match self.insert(LEDGER, &rawdoc! {}, &[row]) {
            Ok(_) => Outcome::Done,
            Err(Refusal::Server(fault)) => fault.outcome(true),
            Err(refusal) => not_answered(&refusal),
        };
        self.follow(outcome);
        outcome
    }

    /// After a refusal because of a change of primary the connection is to another server.
    fn follow(&mut self, outcome: Outcome) {
        if matches!(outcome, Outcome::Refused(Failure::Unavailable) | Outcome::Unknown(Failure::Unavailable))
        {
            self.transactor.admin.courier.distrust();
        }
    }

    fn read(&mut self, key: u64) -> Outcome {
        let options = self.transactor.cluster.options.clone();
        let writer = &mut self.transactor.admin.courier.request;
        writer.begin(0, 0);
        writer.string("find", LEDGER.as_bytes());
        writer.begin_document("filter");
        writer.int64("_id", key as i64);
        writer.end();
        writer.int32("limit", 1);
        writer.boolean("singleBatch", true);
        read_options(writer, &options);
        writer.finish();
        let body = match self.transactor.admin.exchange() {
            Ok(body) => body,
            Err(_) => return Outcome::Refused(Failure::Unavailable),
        };
        if let Some(fault) = Reply::read(body).fault {
            let outcome = fault.outcome(false);
            self.follow(outcome);
            return outcome;
        }
        let batch = body.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let first = batch.ok().and_then(|batch| batch.get_document(0).ok());
        self.fetched = first.map(|document| value(document).to_vec());
        if self.fetched.is_some() { Outcome::Done } else { Outcome::Refused(Failure::NotFound) }
    }

    fn lists(&mut self, steps: &[Step]) -> Outcome {
        if !self.upserts {
            return Outcome::Refused(Failure::Unsupported);
        }
        let (outcome, answers) = self.transactor.once(|transaction| {
            let mut answers = Vec::new();
            for step in steps {
                answers.push(match *step {
                    Step::Append { key, value } => {
                        let append = rawdoc! { "update": LISTS, "updates": [{ "q": { "_id": key as i64 },
                        "u": { "$push": { "list": value as i64 } }, "upsert": true }] };
                        transaction.run(&append)?;
                        None
                    }
                    Step::Read { key } => {
                        let find = rawdoc! { "find": LISTS, "filter": { "_id": key as i64 } };
                        let found = transaction.find(&find)?;
                        Some(found.first().map(|document| list(document)).unwrap_or_default())
                    }
                });
            }
            Ok(answers)
        });
        self.answer = answers.map_or(Returned::Nothing, Returned::Lists);
        outcome
    }

    fn balances(&mut self) -> Outcome {
        let find = rawdoc! { "find": ACCOUNTS, "filter": {}, "sort": { "_id": 1 } };
        let (outcome, found) = self.transactor.once(|transaction| transaction.find(&find));
        self.answer = found.map_or(Returned::Nothing, |found| Returned::Balances(balances(&found)));
        outcome
    }

    /// Why a final read found nothing, with what the server said where it said something.
    fn unread(&self, doing: &str, outcome: Outcome) -> TargetError {
        let (Outcome::Refused(failure) | Outcome::Unknown(failure)) = outcome else {
            return TargetError::new(doing, "the answer lacks a collection");
        };
        let said = self.transactor.last_words.as_deref().unwrap_or("no answer");
        TargetError::new(doing, format!("{said} ({})", failure.name()))
    }

    fn all(&mut self, collections: &[&str]) -> (Outcome, Option<Vec<Vec<RawDocumentBuf>>>) {
        if self.without.is_some() {
            let read = collections.iter().map(|collection| self.transactor.read_alone(collection)).collect();
            return match read {
                Ok(found) => (Outcome::Done, Some(found)),
                Err(fault) => {
                    let outcome = Fault::outcome(&fault, false);
                    self.transactor.last_words = Some(fault.message);
                    (outcome, None)
                }
            };
        }
        self.transactor.with_transaction(|transaction| {
            let find =
                |collection: &&str| rawdoc! { "find": *collection, "filter": {}, "sort": { "_id": 1 } };
            collections.iter().map(|collection| transaction.find(&find(collection))).collect()
        })
    }
}

impl Drop for Checks {
    /// Whoever reads next, on another connection, must find what was sent on this one: a server takes the
    /// messages of a connection one after the other.
    fn drop(&mut self) {
        if self.unanswered {
            let _ = self.command(&rawdoc! { "ping": 1 });
        }
    }
}

/// What became of a write that has no answer.
fn not_answered(refusal: &Refusal) -> Outcome {
    match refusal {
        Refusal::NotSent(_) => Outcome::Refused(Failure::Unavailable),
        _ => Outcome::Unknown(Failure::Unavailable),
    }
}

/// The bytes of a key's document; none of one that is not ours.
fn value(document: &RawDocument) -> &[u8] {
    match document.get("value") {
        Ok(Some(RawBsonRef::Binary(binary))) => binary.bytes,
        _ => &[],
    }
}

fn list(document: &RawDocument) -> Vec<u64> {
    let values = document.get_array("list").ok().into_iter().flatten().flatten();
    values
        .filter_map(|value| value.as_i64().or(value.as_i32().map(i64::from)))
        .map(|value| value as u64)
        .collect()
}

fn balances(documents: &[RawDocumentBuf]) -> Vec<(u64, Option<i64>)> {
    let row =
        |document: &RawDocumentBuf| Some((integer(document, "_id")? as u64, integer(document, "balance")));
    documents.iter().filter_map(row).collect()
}

impl Checks {
    /// See [`Target::prepare`](tipover_core::target::Target::prepare).
    pub fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        if let (Some(why), false) = (&self.without, accounts.is_empty()) {
            return Err(TargetError::new(
                "preparing the bank",
                format!(
                    "a transfer needs transactions, and here they are not to be had: {why}; a ledger can be kept"
                ),
            ));
        }
        let keys: Vec<i64> = accounts.iter().map(|(account, _)| *account as i64).collect();
        for collection in [LEDGER, ACCOUNTS, TRANSFERS, LISTS] {
            // The others' keys are not known before they are written.
            self.make(collection, if collection == ACCOUNTS { &keys } else { &[] })?;
        }
        let deposited = self.deposit(accounts);
        deposited.map_err(|refusal| TargetError::new("preparing the bank", refusal))
    }

    /// All documents of one collection, each as `row` sees it.
    fn rows<T>(
        &mut self,
        doing: &str,
        collection: &str,
        row: impl Fn(&RawDocument) -> T,
    ) -> Result<Vec<(u64, T)>, TargetError> {
        match self.all(&[collection]) {
            (Outcome::Done, Some(found)) => {
                let row = |document: &RawDocumentBuf| Some((integer(document, "_id")? as u64, row(document)));
                Ok(found.iter().flatten().filter_map(row).collect())
            }
            (outcome, _) => Err(self.unread(doing, outcome)),
        }
    }

    /// See [`Target::read_keys`](tipover_core::target::Target::read_keys).
    pub fn read_keys(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        self.rows("reading the ledger", LEDGER, |document| Version::found(value(document)))
    }

    /// See [`Target::read_lists`](tipover_core::target::Target::read_lists).
    pub fn read_lists(&mut self) -> Result<Lists, TargetError> {
        if !self.upserts {
            // Nothing could be appended to any.
            return Ok(vec![]);
        }
        self.rows("reading the lists", LISTS, list)
    }

    /// See [`Target::read_bank`](tipover_core::target::Target::read_bank).
    pub fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        let (outcome, found) = self.all(&[ACCOUNTS, TRANSFERS]);
        let Some([accounts, transfers]) = found.as_deref().and_then(|found| <&[_; 2]>::try_from(found).ok())
        else {
            return Err(self.unread("reading the bank", outcome));
        };
        let row = |document: &RawDocumentBuf| {
            let number = |name: &str| integer(document, name);
            Some(TransferRow {
                id: number("_id")? as u64,
                from: number("from")? as u64,
                to: number("to")? as u64,
                amount: number("amount")?,
            })
        };
        Ok((balances(accounts), transfers.iter().filter_map(row).collect()))
    }
}

impl Session for Checks {
    fn execute(&mut self, op: &Op) -> Outcome {
        (self.fetched, self.answer) = (None, Returned::Nothing);
        match op {
            Op::Insert { record } => self.write(*record, 1),
            Op::Update { record, version, .. } => self.write(*record, *version),
            Op::Read { record, .. } => self.read(*record),
            Op::Transfer { id, from, to, amount } => self.transactor.transfer(*id, *from, *to, *amount),
            Op::ReadBalances => self.balances(),
            Op::Transaction { steps } => self.lists(steps),
            _ => Outcome::Refused(Failure::Unsupported),
        }
    }

    fn fetched(&self, _: u16) -> Option<&[u8]> {
        self.fetched.as_deref()
    }

    fn fetched_records(&self) -> u32 {
        u32::from(self.fetched.is_some())
    }

    fn answer(&self) -> Returned {
        self.answer.clone()
    }
}
