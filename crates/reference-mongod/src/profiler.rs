//! The profiler: what was sent to a database, in a ring of entries as MongoDB's manual has them under
//! "Database Profiler Output".

use crate::whole;
use bson::{DateTime, Document, doc};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What is kept of each database.
#[derive(Debug, Default)]
pub struct Profiler {
    databases: BTreeMap<String, Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    level: i64,
    entries: VecDeque<Document>,
}

/// How many entries the ring has: about what a mongod's 1 MB holds.
const MOST: usize = 1_000;

impl Profiler {
    /// The answer to `{ profile: LEVEL }`; a level below 0 only asks.
    ///
    /// # Errors
    /// There is no such level.
    pub fn set(&mut self, database: &str, command: &Document) -> Result<Document, &'static str> {
        let kept = self.databases.entry(database.into()).or_default();
        let was = kept.level;
        match whole(command.get("profile")) {
            Some(level @ 0..=2) => kept.level = level,
            Some(..0) => {}
            _ => return Err("the profiling level is 0, 1 or 2"),
        }
        Ok(doc! { "was": was as i32, "slowms": 100, "sampleRate": 1.0, "ok": 1.0 })
    }

    /// Keeps a command that took so long.
    pub fn keep(&mut self, database: &str, command: &Document, took: Duration) {
        let Some(kept) = self.databases.get_mut(database).filter(|kept| kept.level == 2) else { return };
        for (op, collection, statement) in statements(command) {
            let mut entry = doc! {
                "op": op, "ns": format!("{database}.{collection}"), "command": statement,
                "millis": took.as_millis() as i32, "ts": DateTime::now(), "client": "127.0.0.1", "appName": "",
            };
            if let Some(session) = command.get("lsid") {
                let command = entry.get_document_mut("command").expect("it was just made");
                command.insert("lsid", session.clone());
            }
            kept.entries.push_back(entry);
            if kept.entries.len() > MOST {
                kept.entries.pop_front();
            }
        }
    }

    /// What is there of a database, the oldest first.
    pub fn entries(&self, database: &str) -> impl DoubleEndedIterator<Item = &Document> {
        self.databases.get(database).into_iter().flat_map(|kept| &kept.entries)
    }
}

/// The entries of a command: a write has one for each of its statements, and of an insert no documents.
fn statements(command: &Document) -> Vec<(&'static str, String, Document)> {
    let name = command.keys().next().map_or("", String::as_str);
    let collection = command.get_str(name).unwrap_or_default().to_string();
    let each = |op, list| {
        let list = command.get_array(list).into_iter().flatten();
        let documents = list.filter_map(|statement| statement.as_document().cloned());
        documents.map(|statement| (op, collection.clone(), statement)).collect()
    };
    match name {
        "update" => each("update", "updates"),
        "delete" => each("remove", "deletes"),
        "insert" => {
            let mut without = command.clone();
            without.remove("documents");
            vec![("insert", collection, without)]
        }
        "find" => vec![("query", collection, command.clone())],
        "ping" | "commitTransaction" | "abortTransaction" => {
            vec![("command", "$cmd".into(), command.clone())]
        }
        _ => Vec::new(),
    }
}
