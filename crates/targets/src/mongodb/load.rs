//! Filling a collection before a measurement. Records that exist already are replaced.

use super::admin::{Admin, Refusal};
use super::cluster::Cluster;
use super::document::Documents;
use super::link::COMMAND_NOT_FOUND;
use super::options::{Acknowledgers, WriteConcern};
use super::reply::Reply;
use super::session::write_concern;
use bson::{RawDocumentBuf, rawdoc};
use std::ops::Range;
use std::sync::Arc;
use tipover_core::target::TargetError;
use tipover_core::workload::Dataset;

/// Bytes of a batch: a few megabytes are as fast as the most that fits.
const BATCH_BYTES: usize = 4 << 20;
/// A failover in the middle of a load is no reason to begin again.
const TRIES: usize = 5;

/// Inserts `records`, acknowledged at least by one member.
pub fn load(cluster: &Arc<Cluster>, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
    let mut concern = cluster.options.write_concern.clone();
    if concern.is_unacknowledged() {
        concern = WriteConcern { members: Some(Acknowledgers::Members(1)), ..WriteConcern::default() };
    }
    let mut loader = Loader {
        admin: Admin::new(cluster)?,
        database: cluster.options.database.clone(),
        concern,
        documents: Documents::of(dataset),
    };
    let mut first = records.start;
    while first < records.end {
        let doing = || format!("loading records from {first} on");
        let mut tries = 0;
        first = loop {
            tries += 1;
            match loader.batch(first, records.end) {
                Ok(next) => break next,
                Err(Refusal::Server(fault)) if !fault.is_change_of_primary() || tries == TRIES => {
                    return Err(TargetError::new(doing(), Refusal::Server(fault)));
                }
                Err(refusal) if tries == TRIES => return Err(TargetError::new(doing(), refusal)),
                // What was inserted before is replaced.
                Err(_) => loader.admin.courier.distrust(),
            }
        };
    }
    Ok(())
}

struct Loader<'a> {
    admin: Admin,
    database: String,
    concern: WriteConcern,
    documents: Documents<'a>,
}

impl Loader<'_> {
    /// Inserts one batch and returns the first record after it.
    fn batch(&mut self, first: u64, end: u64) -> Result<u64, Refusal> {
        let most = self.admin.courier.link().map_or(1_000, |link| link.hello.batch) as u64;
        let end = end.min(first + most);
        let writer = &mut self.admin.courier.request;
        writer.begin(0, 0);
        writer.string("insert", self.documents.dataset.table.as_bytes());
        writer.boolean("ordered", false);
        writer.string("$db", self.database.as_bytes());
        write_concern(writer, &self.concern);
        writer.begin_sequence("documents");
        let mut next = first;
        while next < end && (next == first || writer.bytes().len() < BATCH_BYTES) {
            self.documents.item(writer, next);
            next += 1;
        }
        writer.finish();
        let answer = Reply::read(self.admin.exchange()?);
        match answer.fault {
            None => Ok(next),
            Some(fault) if fault.is_duplicate() => self.replace(first..next).map(|()| next),
            Some(fault) => Err(Refusal::Server(fault)),
        }
    }

    /// Puts every document of `records` in its place, whether one is there or not.
    fn replace(&mut self, records: Range<u64>) -> Result<(), Refusal> {
        let writer = &mut self.admin.courier.request;
        writer.begin(0, 0);
        writer.string("update", self.documents.dataset.table.as_bytes());
        writer.boolean("ordered", false);
        writer.string("$db", self.database.as_bytes());
        write_concern(writer, &self.concern);
        writer.begin_sequence("updates");
        for record in records {
            writer.begin_item();
            writer.begin_document("q");
            writer.string("_id", self.documents.key(record));
            writer.end();
            writer.begin_document("u");
            self.documents.fields(writer, record, 0);
            writer.end();
            writer.boolean("upsert", true);
            writer.end();
        }
        writer.finish();
        match Reply::read(self.admin.exchange()?).fault {
            None => Ok(()),
            Some(fault) => Err(Refusal::Server(fault)),
        }
    }
}

/// What became of the checkpoint that shall follow a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// It was made.
    Made,
    /// This server knows none.
    Unknown,
    /// The user may not ask for one; a majority has the data in its journals.
    Forbidden,
}

impl Checkpoint {
    /// For the record.
    pub fn text(self) -> &'static str {
        match self {
            Checkpoint::Made => "made",
            Checkpoint::Unknown => "this server knows no fsync",
            Checkpoint::Forbidden => {
                "not asked for: the user may not fsync (the role hostManager may). The data are in the journals \
                 of a majority, and the server's own checkpoint may fall into the measurement"
            }
        }
    }
}

/// Waits until a majority has everything, and for a checkpoint, as far as the server knows such things and
/// the user may ask for them.
pub fn settle(admin: &mut Admin, cluster: &Cluster) -> Result<Checkpoint, TargetError> {
    const UNAUTHORIZED: i32 = 13;
    let collection = "tipover_settled";
    let mut run = |database: &str, command: RawDocumentBuf| match admin.command(database, &command) {
        Ok(_) => Ok(Checkpoint::Made),
        Err(refusal) if refusal.code() == COMMAND_NOT_FOUND => Ok(Checkpoint::Unknown),
        Err(refusal) if refusal.code() == UNAUTHORIZED && database == "admin" => Ok(Checkpoint::Forbidden),
        Err(refusal) => Err(TargetError::new("settling", refusal)),
    };
    // A write that is journalled has everything before it journalled too.
    let write = |run: &mut dyn FnMut(&str, RawDocumentBuf) -> Result<Checkpoint, TargetError>,
                 concern: RawDocumentBuf| {
        let upsert = rawdoc! { "update": collection, "updates": [{ "q": { "_id": 0 },
        "u": { "$set": { "settled": true } }, "upsert": true }], "writeConcern": concern };
        let drop = rawdoc! { "drop": collection, "writeConcern": { "w": "majority", "wtimeout": 60_000 } };
        run(&cluster.options.database, upsert)?;
        run(&cluster.options.database, drop)
    };
    write(&mut run, rawdoc! { "w": "majority", "wtimeout": 60_000 })?;
    let checkpoint = run("admin", rawdoc! { "fsync": 1 })?;
    if checkpoint == Checkpoint::Forbidden {
        write(&mut run, rawdoc! { "w": "majority", "j": true, "wtimeout": 60_000 })?;
    }
    Ok(checkpoint)
}
