//! One WiredTiger session with its cursors: records in mongod's two trees, or in one.

use super::document::{Documents, ID_AT};
use super::{COLLECTION, INDEX};
use std::ops::Range;
use tipover_core::experiment::Trees;
use tipover_core::op::{Failure, Fields, Outcome};
use tipover_wiredtiger::{Connection, Cursor, Error, Kind, Session};

/// The cursors of a session.
pub enum Tables {
    /// Documents by key.
    One {
        /// Key to document.
        store: Cursor<[u8], [u8]>,
    },
    /// Documents by record id, and record ids by key.
    Two {
        /// Key to record id.
        index: Cursor<[u8], i64>,
        /// Record id to document.
        store: Cursor<i64, [u8]>,
    },
}

/// Reads and writes records; stays on its thread.
pub struct Writer {
    /// For transactions and flushes.
    pub session: Session,
    tables: Tables,
}

impl Writer {
    /// A new session of `connection`.
    pub fn open(connection: &Connection, trees: Trees) -> Result<Self, Error> {
        let session = connection.session()?;
        let tables = match trees {
            Trees::Two => Tables::Two { index: session.cursor(INDEX)?, store: session.cursor(COLLECTION)? },
            Trees::One => Tables::One { store: session.cursor(COLLECTION)? },
        };
        Ok(Writer { session, tables })
    }

    /// Writes `records` in one transaction, whether or not they exist: for loading.
    pub fn put(&mut self, documents: &mut Documents<'_>, records: Range<u64>) -> Result<(), Error> {
        self.transaction(|tables| {
            for record in records.clone() {
                let document = documents.document(record);
                let key = documents.last_key();
                match tables {
                    Tables::One { store } => store.put(key, document.as_bytes())?,
                    Tables::Two { index, store } => {
                        let id = record as i64 + 1;
                        store.put(&id, document.as_bytes())?;
                        index.put(key, &id)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Writes `records` in one transaction; an error of kind [`Kind::DuplicateKey`] if one of them exists.
    pub fn insert(&mut self, documents: &mut Documents<'_>, records: Range<u64>) -> Result<(), Error> {
        self.transaction(|tables| {
            for record in records.clone() {
                let document = documents.document(record);
                let key = documents.last_key();
                match tables {
                    Tables::One { store } => store.insert(key, document.as_bytes())?,
                    Tables::Two { index, store } => {
                        let id = record as i64 + 1;
                        index.insert(key, &id)?;
                        store.insert(&id, document.as_bytes())?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Gives `fields` of `record` the values of `version`.
    pub fn update(
        &mut self,
        documents: &mut Documents<'_>,
        record: u64,
        fields: Fields,
        version: u64,
    ) -> Result<Outcome, Error> {
        documents.key(record);
        self.transaction(|tables| {
            let missing = Outcome::Refused(Failure::NotFound);
            match tables {
                Tables::One { store } => {
                    let key = documents.last_key().to_vec();
                    let stored = store.get_copy(key.as_slice())?;
                    let Some(stored) = stored else { return Ok(missing) };
                    match documents.updated(&stored, record, fields, version) {
                        Some(document) => store.put(key.as_slice(), document.as_bytes())?,
                        None => return Ok(Outcome::Refused(Failure::Corrupt)),
                    }
                }
                Tables::Two { index, store } => {
                    let Some(id) = index.get(documents.last_key(), |id| *id)? else { return Ok(missing) };
                    let stored = store.get_copy(&id)?;
                    // The index says that it exists.
                    match stored.and_then(|stored| documents.updated(&stored, record, fields, version)) {
                        Some(document) => store.put(&id, document.as_bytes())?,
                        None => return Ok(Outcome::Refused(Failure::Corrupt)),
                    }
                }
            }
            Ok(Outcome::Done)
        })
    }

    /// Shows the document of the key asked for last to `see`, as mongod copies it into its reply.
    pub fn read(&mut self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<Outcome, Error> {
        let mut right = false;
        let mut check = |document: &[u8]| {
            right = document.get(ID_AT..ID_AT + key.len()) == Some(key);
            see(document);
        };
        let found = match &mut self.tables {
            Tables::One { store } => {
                let found = store.get(key, &mut check)?;
                store.reset()?;
                found
            }
            Tables::Two { index, store } => {
                let id = index.get(key, |id| *id)?;
                index.reset()?;
                let Some(id) = id else { return Ok(Outcome::Refused(Failure::NotFound)) };
                let found = store.get(&id, &mut check)?;
                store.reset()?;
                match found {
                    // The index says that it exists.
                    None => return Ok(Outcome::Refused(Failure::Corrupt)),
                    found => found,
                }
            }
        };
        Ok(match found {
            None => Outcome::Refused(Failure::NotFound),
            Some(()) if right => Outcome::Done,
            Some(()) => Outcome::Refused(Failure::Corrupt),
        })
    }

    /// Shows up to `count` documents to `see`, in the order of keys, from `key` on.
    pub fn scan(&mut self, key: &[u8], count: u32, mut see: impl FnMut(&[u8])) -> Result<Outcome, Error> {
        let mut outcome = Outcome::Done;
        match &mut self.tables {
            Tables::One { store } => {
                let mut there = store.seek(key)?;
                for _ in 0..count {
                    if !there {
                        break;
                    }
                    store.record(|_, document| see(document))?;
                    there = store.next()?;
                }
                store.reset()?;
            }
            Tables::Two { index, store } => {
                let mut there = index.seek(key)?;
                for _ in 0..count {
                    if !there {
                        break;
                    }
                    let id = index.record(|_, id| *id)?;
                    if store.get(&id, &mut see)?.is_none() {
                        outcome = Outcome::Refused(Failure::Corrupt);
                    }
                    there = index.next()?;
                }
                index.reset()?;
                store.reset()?;
            }
        }
        Ok(outcome)
    }

    /// Commits what `work` did, or rolls it back if that failed. What another transaction stood in the way of
    /// is tried again, as mongod does with writes of single documents.
    fn transaction<R>(&mut self, mut work: impl FnMut(&mut Tables) -> Result<R, Error>) -> Result<R, Error> {
        const TRIES: u32 = 1_000;
        let mut tried = 0;
        loop {
            self.session.begin()?;
            let result = match work(&mut self.tables) {
                // A failed commit has rolled back already.
                Ok(result) => self.session.commit().map(|()| result),
                Err(error) => {
                    self.session.rollback()?;
                    Err(error)
                }
            };
            match result {
                Err(error) if error.kind() == Kind::Rollback && tried < TRIES => {
                    tried += 1;
                    std::thread::yield_now();
                }
                result => return result,
            }
        }
    }
}
