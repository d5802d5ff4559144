//! What the server really does with the promises that it accepts. An "ok" proves nothing: there are servers
//! that accept a write concern of 99 members, apply it to one, and say ok.

use super::admin::{Admin, Refusal};
use super::cluster::{Cluster, integer};
use super::message::MORE_TO_COME;
use super::statistics::at;
use crate::connection::Wait;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::atomic::Ordering;
use tipover_core::target::Facts;

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// It refuses a write concern that nobody can fulfil; `None` if that could not be tried.
    pub honours_write_concern: Option<bool>,
    /// It recognises a write that is sent again under the same transaction number.
    pub deduplicates: Option<bool>,
    /// An aborted transaction leaves nothing behind.
    pub aborts: Option<bool>,
    /// An update with `upsert` makes the document that it does not find; `None` if that could not be tried.
    pub upserts: Option<bool>,
    /// The server wants to know who asks.
    pub unauthorized: Option<String>,
    /// In words, by what was tried.
    pub findings: Vec<(&'static str, String)>,
}

impl Capabilities {
    /// As facts of a record.
    pub fn facts(&self) -> Facts {
        self.findings.iter().map(|(name, text)| (format!("probed_{name}"), text.clone().into())).collect()
    }
}

const JOURNALLED_WRITES: usize = 8;
/// Codes with which servers refuse a write concern that cannot be fulfilled.
const UNSATISFIABLE: [i32; 5] = [100, 79, 64, 2, 9];
/// "Transaction numbers are only allowed on a replica set member or mongos".
const ILLEGAL_OPERATION: i32 = 20;

const UNAUTHORIZED: i32 = 13;

struct Probe<'a> {
    admin: &'a mut Admin,
    cluster: &'a Cluster,
    collection: String,
    found: Capabilities,
}

/// Tries the server on a collection of its own, which is dropped again.
pub fn probe(admin: &mut Admin, cluster: &Cluster) -> Capabilities {
    let name = bson::Uuid::new().to_string();
    let collection = format!("tipover_probe_{}", &name[..8]);
    let mut probe = Probe { admin, cluster, collection, found: Capabilities::default() };
    let begun = probe.insert(&rawdoc! {}, rawdoc! { "_id": 0, "n": 0 });
    if let Err(refusal) = begun {
        if refusal.code() == UNAUTHORIZED {
            probe.found.unauthorized = Some(refusal.to_string());
        }
        let text = format!("nothing was probed, because the scratch collection was refused: {refusal}");
        probe.found.findings.push(("nothing", text));
        return probe.found;
    }
    probe.upsert();
    probe.write_concern();
    probe.read_concern();
    probe.repeated_write();
    probe.transaction();
    probe.journal();
    probe.unacknowledged();
    let drop = rawdoc! { "drop": probe.collection.as_str() };
    if let Err(refusal) = probe.run(drop) {
        let text = format!("the scratch collection {} could not be dropped: {refusal}", probe.collection);
        probe.found.findings.push(("left_behind", text));
    }
    probe.found
}

fn session() -> Binary {
    Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: bson::Uuid::new().bytes().to_vec() }
}

impl Probe<'_> {
    fn run(&mut self, command: RawDocumentBuf) -> Result<RawDocumentBuf, Refusal> {
        let database = self.cluster.options.database.clone();
        self.admin.command(&database, &command)
    }

    fn insert(&mut self, options: &RawDocument, document: RawDocumentBuf) -> Result<RawDocumentBuf, Refusal> {
        let (database, collection) = (self.cluster.options.database.clone(), self.collection.clone());
        self.admin.insert(&database, &collection, options, &[document])
    }

    /// Documents under this `_id`.
    fn found(&mut self, id: &str) -> Result<bool, Refusal> {
        let find = rawdoc! { "find": self.collection.as_str(), "filter": { "_id": id } };
        let body = self.run(find)?;
        let batch = body.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        Ok(batch.is_ok_and(|batch| !batch.is_empty()))
    }

    fn upsert(&mut self) {
        let update = rawdoc! { "update": self.collection.as_str(),
        "updates": [{ "q": { "_id": "upsert" }, "u": { "$set": { "n": 1 } }, "upsert": true }] };
        let made = self.run(update).and_then(|_| self.found("upsert"));
        self.found.upserts = made.as_ref().ok().copied();
        let text = match made {
            Ok(true) => "an update makes the document that it does not find".to_string(),
            Ok(false) => {
                "ignored: an update that should make its document was accepted and made none, so documents \
                          are inserted first"
                    .to_string()
            }
            Err(refusal) => format!("could not be tried: {refusal}"),
        };
        self.note("upsert", text);
    }

    fn note(&mut self, name: &'static str, text: impl Into<String>) {
        self.found.findings.push((name, text.into()));
    }

    fn write_concern(&mut self) {
        let concern = rawdoc! { "writeConcern": { "w": 99, "wtimeout": 1000 } };
        match self.insert(&concern, rawdoc! { "_id": 99 }) {
            Ok(_) => {
                self.found.honours_write_concern = Some(false);
                self.note(
                    "write_concern",
                    "ignored: a write that 99 members should acknowledge was acknowledged",
                );
            }
            Err(refusal) if UNSATISFIABLE.contains(&refusal.code()) => {
                self.found.honours_write_concern = Some(true);
                self.note("write_concern", format!("w:99 is refused: {refusal}"));
            }
            Err(refusal) => self.note("write_concern", format!("could not be tried: {refusal}")),
        }
    }

    fn read_concern(&mut self) {
        let find = rawdoc! { "find": self.collection.as_str(), "filter": { "_id": 0 },
        "readConcern": { "level": "tipover-nonsense" } };
        let text = match self.run(find) {
            Ok(_) => "ignored: a level that does not exist was accepted".to_string(),
            Err(refusal @ Refusal::Server(_)) => format!("a level that does not exist is refused: {refusal}"),
            Err(refusal) => format!("could not be tried: {refusal}"),
        };
        self.note("read_concern", text);
    }

    fn repeated_write(&mut self) {
        if !self.admin.courier.link().is_some_and(|link| link.hello.sessions) {
            self.found.deduplicates = Some(false);
            return self
                .note("repeated_write", "the server knows no logical sessions, so writes are not retried");
        }
        let update = rawdoc! { "update": self.collection.as_str(), "ordered": true,
        "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }],
        "lsid": { "id": session() }, "txnNumber": 1_i64 };
        for _ in 0..2 {
            if let Err(refusal) = self.run(update.clone()) {
                self.found.deduplicates = Some(false);
                let why = if refusal.code() == ILLEGAL_OPERATION { "it is no replica set: " } else { "" };
                return self
                    .note("repeated_write", format!("refused, so writes are not retried: {why}{refusal}"));
            }
        }
        let counted = self.read_number();
        self.found.deduplicates = Some(counted == Some(1));
        self.note(
            "repeated_write",
            match counted {
                Some(1) => "recognised: the same transaction number twice was applied once".to_string(),
                Some(n) => format!(
                    "not recognised: the same transaction number twice was applied {n} times, so writes are not \
                     retried"
                ),
                None => "the result could not be read, so writes are not retried".to_string(),
            },
        );
    }

    fn read_number(&mut self) -> Option<i64> {
        let find = rawdoc! { "find": self.collection.as_str(), "filter": { "_id": 0 }, "limit": 1 };
        let body = self.run(find).ok()?;
        let batch = body.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
        integer(batch.get_document(0).ok()?, "n")
    }

    fn transaction(&mut self) {
        let lsid = session();
        let begins = rawdoc! { "lsid": { "id": lsid.clone() }, "txnNumber": 1_i64, "startTransaction": true,
        "autocommit": false };
        if let Err(refusal) = self.insert(&begins, rawdoc! { "_id": "in a transaction" }) {
            self.found.aborts = Some(false);
            return self.note("transactions", format!("refused: {refusal}"));
        }
        let before = self.read_number();
        let update = rawdoc! { "update": self.collection.as_str(),
        "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1000 } } }],
        "lsid": { "id": lsid.clone() }, "txnNumber": 1_i64, "autocommit": false };
        // What it says is of no consequence: what stays of it counts.
        let _ = self.run(update);
        let abort = rawdoc! { "abortTransaction": 1_i64, "lsid": { "id": lsid }, "txnNumber": 1_i64,
        "autocommit": false };
        let aborted = self.admin.command("admin", &abort);
        let left = self.found("in a transaction");
        self.found.aborts = left.as_ref().ok().map(|left| !left);
        if self.read_number() != before {
            // Transfers are tried all the same: that they go wrong is for the bank's checker to show.
            self.note(
                "updates_in_transactions",
                "carried out outside of it: an aborted transaction's update stayed",
            );
        }
        self.note(
            "transactions",
            match (left, aborted) {
                (Ok(true), _) => {
                    "accepted and not kept: the insert of an aborted transaction stayed".to_string()
                }
                (Ok(false), Ok(_)) => "an aborted transaction leaves nothing behind".to_string(),
                (Ok(false), Err(refusal)) => format!("nothing stayed, but abort was refused: {refusal}"),
                (Err(refusal), _) => format!("could not be tried: {refusal}"),
            },
        );
    }

    fn journal_flushes(&mut self) -> Option<f64> {
        let status = self.admin.command("admin", &rawdoc! { "serverStatus": 1 }).ok()?;
        at(&status, &["wiredTiger", "log", "log sync operations"])
    }

    fn journal(&mut self) {
        let mut grown = Vec::new();
        for journal in [false, true] {
            let before = self.journal_flushes();
            for number in 0..JOURNALLED_WRITES {
                let id = format!("journal {journal} {number}");
                let concern = rawdoc! { "writeConcern": { "w": 1, "j": journal } };
                if let Err(refusal) = self.insert(&concern, rawdoc! { "_id": id }) {
                    return self.note("journal", format!("a write with j:{journal} was refused: {refusal}"));
                }
            }
            let after = self.journal_flushes();
            grown.extend(before.zip(after).map(|(before, after)| after - before));
        }
        let text = match grown.as_slice() {
            [without, with] => {
                let judged = if *with >= JOURNALLED_WRITES as f64 { "honoured" } else { "not seen" };
                format!(
                    "{judged}: {JOURNALLED_WRITES} writes one after the other with j:true went with {with} journal \
                     flushes, with j:false with {without}"
                )
            }
            _ => "the server counts no journal flushes, so that j:true cannot be seen to work".to_string(),
        };
        self.note("journal", text);
    }

    /// A write that asks for no answer, then one that does: an unasked answer would come before it.
    fn unacknowledged(&mut self) {
        let unasked = |probe: &Self| probe.cluster.counts.unasked_answers.load(Ordering::Relaxed);
        let before = unasked(self);
        let insert = rawdoc! { "insert": self.collection.as_str(), "documents": [{ "_id": "unacknowledged" }],
        "writeConcern": { "w": 0 } };
        let database = self.cluster.options.database.clone();
        self.admin.write(&database, &insert, MORE_TO_COME);
        self.admin.courier.begin(false);
        let deadline = self.admin.courier.deadline();
        let _ = self.admin.courier.go(Wait::Yes, deadline);
        let alive = self.run(rawdoc! { "ping": 1 });
        let text = match (alive, unasked(self) - before) {
            (Err(refusal), _) => format!("the connection did not survive it: {refusal}"),
            (Ok(_), 0) => "is not answered, as asked".to_string(),
            (Ok(_), _) => {
                "is answered although no answer was asked for; such answers are thrown away".to_string()
            }
        };
        self.note("unacknowledged", text);
    }
}
