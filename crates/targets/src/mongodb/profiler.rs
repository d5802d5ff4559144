//! What the profiler keeps of commands, followed while it is written. Only reads: who owns the server
//! switches it on.

use super::admin::{Admin, Refusal};
use super::cluster::Cluster;
use super::options_of;
use bson::{Bson, DateTime, Document, RawDocumentBuf, rawdoc};
use std::sync::Arc;
use std::time::Duration;
use tipover_core::experiment::TargetSpec;
use tipover_core::target::TargetError;

/// The newest entries of `system.profile` in one database.
pub struct Profiler {
    admin: Admin,
    database: String,
    shown: String,
    /// When the newest entry was made that was read, and how many made at that time were read.
    read: (DateTime, usize),
    /// How often entries may have been overwritten before they were read: the collection is a ring.
    pub gaps: u64,
    /// What of the server's commands it does not keep, as sentences.
    pub remarks: Vec<String>,
}

/// A batch of this many entries is asked for.
const BATCH: i32 = 10_000;

impl Profiler {
    /// Connects, and begins after the newest entry that is there. Nothing is tried out on the server, as a
    /// target does: this writes nothing.
    ///
    /// # Errors
    /// The server cannot be reached, its profiler is off or may not be read; with what to do.
    pub fn open(spec: &TargetSpec) -> Result<Profiler, TargetError> {
        let (options, shown) = options_of(spec)?;
        let database = options.database.clone();
        let cluster = Arc::new(Cluster::new(options, Duration::from_secs(30)));
        let mut profiler = Profiler {
            admin: Admin::new(&cluster)?,
            database,
            shown,
            read: (DateTime::from_millis(0), 0),
            gaps: 0,
            remarks: Vec::new(),
        };
        profiler.look_at_settings()?;
        let last =
            rawdoc! { "find": "system.profile", "sort": { "$natural": -1 }, "limit": 1, "singleBatch": true };
        let last = profiler.command(&last).map_err(|refusal| profiler.wrong(&refusal))?;
        if let Some(last) = batch(&last).first() {
            profiler.read.0 = made_at(last).unwrap_or(profiler.read.0);
        }
        profiler.entries()?;
        Ok(profiler)
    }

    fn look_at_settings(&mut self) -> Result<(), TargetError> {
        let settings = self.command(&rawdoc! { "profile": -1 }).map_err(|refusal| self.wrong(&refusal))?;
        let setting = |name: &str| settings.get(name).and_then(number);
        let (level, slow_ms) = (setting("was").unwrap_or(0.0), setting("slowms").unwrap_or(100.0));
        if level < 1.0 {
            let words = format!(
                "the profiler of {} is off: db.setProfilingLevel(2) in that database keeps every command (and costs a \
                 write for each); with a larger system.profile it is overwritten later (docs/learn.md)",
                self.database
            );
            return Err(TargetError::new(format!("watching {}", self.shown), words));
        }
        if level < 2.0 && slow_ms > 0.0 {
            self.remarks.push(format!(
                "the profiler keeps only commands slower than {slow_ms} ms: db.setProfilingLevel(2) keeps all"
            ));
        }
        if let Some(rate) = setting("sampleRate").filter(|rate| *rate < 1.0) {
            self.remarks.push(format!(
                "the profiler keeps {} % of the commands (sampleRate), and the plan sends as many as it kept",
                tipover_core::units::significant(100.0 * rate, 3)
            ));
        }
        Ok(())
    }

    /// Entries that were made since they were last asked for, each in relaxed Extended JSON.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn entries(&mut self) -> Result<Vec<String>, TargetError> {
        let (newest, seen) = self.read;
        let own = format!("{}.system.profile", self.database);
        let find = rawdoc! {
            "find": "system.profile",
            "filter": { "ts": { "$gte": newest }, "ns": { "$ne": own } },
            "batchSize": BATCH,
        };
        let mut found: Vec<Document> = Vec::new();
        let mut answer = self.command(&find).map_err(|refusal| self.wrong(&refusal))?;
        loop {
            found.extend(batch(&answer));
            let id = answer.get_document("cursor").and_then(|cursor| cursor.get_i64("id")).unwrap_or(0);
            if id == 0 {
                break;
            }
            let more = rawdoc! { "getMore": id, "collection": "system.profile", "batchSize": BATCH };
            answer = match self.command(&more) {
                Ok(answer) => answer,
                // The ring turned under the cursor; what it had not brought yet comes with the next look.
                Err(Refusal::Server(_)) => break,
                Err(refusal) => return Err(self.wrong(&refusal)),
            };
        }
        let at = |entry: &Document| made_at(entry).unwrap_or(newest);
        found.sort_by_key(at);
        let again = found.iter().take_while(|entry| at(entry) == newest).count();
        self.gaps += u64::from(again < seen);
        let made = found.split_off(seen.min(again));
        if let Some(last) = made.last().map(at) {
            let with_it = made.iter().rev().take_while(|entry| at(entry) == last).count();
            self.read = (last, if last == newest { seen + with_it } else { with_it });
        }
        Ok(made.into_iter().map(|entry| Bson::Document(entry).into_relaxed_extjson().to_string()).collect())
    }

    fn command(&mut self, command: &RawDocumentBuf) -> Result<Document, Refusal> {
        let answer = self.admin.command(&self.database, command)?;
        Document::try_from(&answer).map_err(|error| Refusal::Lost(error.to_string()))
    }

    fn wrong(&self, refusal: &Refusal) -> TargetError {
        const UNAUTHORIZED: i32 = 13;
        let hint = match refusal.code() {
            UNAUTHORIZED => {
                "; who reads the profiler needs the role dbAdmin there, or clusterMonitor and read on system.profile"
            }
            _ => "",
        };
        TargetError::new(format!("watching {}", self.shown), format!("{refusal}{hint}"))
    }
}

/// The documents that came with an answer.
fn batch(answer: &Document) -> Vec<Document> {
    let Ok(cursor) = answer.get_document("cursor") else { return Vec::new() };
    let batch = cursor.get_array("firstBatch").or(cursor.get_array("nextBatch"));
    batch.into_iter().flatten().filter_map(Bson::as_document).cloned().collect()
}

fn made_at(entry: &Document) -> Option<DateTime> {
    entry.get_datetime("ts").ok().copied()
}

/// A number of any type.
fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}
