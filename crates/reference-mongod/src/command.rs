//! What a node answers. Error codes and labels are those of MongoDB's documentation.

use crate::login::Login;
use crate::state::{Change, Entry, Manners, State};
use crate::store::{Key, bounds, matches, updated};
use crate::wait::Concern;
use crate::{Shared, member, wait, whole};
use bson::{Bson, Document, doc};
use parking_lot::MutexGuard;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An error's code, name and text.
pub type Wrong = (i32, &'static str, String);

/// What belongs to one connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// Authentication under way, or done.
    pub login: Login,
}

const TRANSIENT: &str = "TransientTransactionError";
const RETRYABLE: &str = "RetryableWriteError";
/// How long a single write that meets an open transaction waits before it gives up.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// An answer that says no.
pub fn failure(code: i32, name: &str, text: &str) -> Document {
    doc! { "ok": 0.0, "errmsg": text, "code": code, "codeName": name }
}

/// The answer to a command that this server does not have.
pub fn unknown(command: &str) -> Document {
    failure(59, "CommandNotFound", &format!("no such command: '{command}'"))
}

fn labelled(mut answer: Document, label: &str) -> Document {
    answer.insert("errorLabels", vec![label]);
    answer
}

fn refused((code, name, text): &Wrong) -> Document {
    failure(*code, name, text)
}

fn not_primary() -> Document {
    labelled(failure(10107, "NotWritablePrimary", "not primary"), RETRYABLE)
}

/// A session and the number in it, where a command has them.
#[derive(Debug, Clone)]
struct Numbered {
    session: Vec<u8>,
    number: i64,
    in_transaction: bool,
    starts: bool,
}

fn numbered(command: &Document) -> Option<Numbered> {
    let Some(Bson::Binary(session)) = command.get_document("lsid").ok()?.get("id") else { return None };
    Some(Numbered {
        session: session.bytes.clone(),
        number: whole(command.get("txnNumber"))?,
        in_transaction: command.get_bool("autocommit").is_ok_and(|autocommit| !autocommit),
        starts: is_true(command, "startTransaction"),
    })
}

fn is_true(document: &Document, key: &str) -> bool {
    document.get_bool(key).unwrap_or(false)
}

/// One command at one node.
pub struct Turn<'a> {
    /// All nodes.
    pub shared: &'a Arc<Shared>,
    /// Which of them.
    pub node: usize,
    /// `database.`
    pub database: String,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Turn<'_> {
    /// The answer to `command`; `None` closes the connection.
    pub fn answer(&self, command: &Document, connection: &mut Connection) -> Option<Document> {
        let name = command.keys().next().map(String::as_str).unwrap_or_default();
        let mut state = self.shared.state.lock();
        if !state.nodes[self.node].alive {
            return None;
        }
        if let Some(login) = &state.settings.login
            && !connection.login.allows(name)
        {
            let _ = login;
            return Some(failure(13, "Unauthorized", &format!("command {name} requires authentication")));
        }
        match self.fail_point(&mut state, name) {
            Some(FailPoint::Close) => return None,
            Some(FailPoint::Answer(answer)) => return Some(answer),
            Some(FailPoint::Concern(error)) => {
                drop(state);
                let mut answer = self.dispatch(name, command, connection)?;
                answer.insert("writeConcernError", error);
                return Some(answer);
            }
            Some(FailPoint::CloseAfter) => {
                drop(state);
                self.dispatch(name, command, connection);
                return None;
            }
            None => drop(state),
        }
        let begun = Instant::now();
        let answer = self.dispatch(name, command, connection);
        self.shared.state.lock().profiler.keep(&self.database, command, begun.elapsed());
        answer
    }

    fn dispatch(&self, name: &str, command: &Document, connection: &mut Connection) -> Option<Document> {
        let lock = || self.shared.state.lock();
        let (manners, may_not_flush) = {
            let settings = &lock().settings;
            (settings.manners, settings.reads_and_writes_only)
        };
        if !manners.knows(name) {
            return Some(unknown(name));
        }
        if may_not_flush && name == "fsync" {
            return Some(failure(
                13,
                "Unauthorized",
                "not authorized on admin to execute command { fsync: 1 }",
            ));
        }
        if lock().is_apart()
            && let Some(answer) = member::answer(self.shared, name, command)
        {
            return Some(answer);
        }
        Some(match name {
            "hello" | "isMaster" | "ismaster" => self.hello(&lock(), command),
            "ping" | "endSessions" | "fsync" | "killCursors" => doc! { "ok": 1.0 },
            "buildInfo" | "buildinfo" => doc! { "ok": 1.0, "version": "0.0.0-tipover-reference",
            "versionArray": [0, 0, 0, 0], "gitVersion": "this is not MongoDB" },
            "serverStatus" => {
                let mut status = lock().status(self.node);
                status.insert("ok", 1.0);
                status
            }
            "saslStart" | "saslContinue" => {
                let login = lock().settings.login.clone();
                connection.login.step(command, login.as_ref())
            }
            "profile" => lock()
                .profiler
                .set(&self.database, command)
                .unwrap_or_else(|wrong| failure(2, "BadValue", wrong)),
            "configureFailPoint" => self.configure_fail_point(&mut lock(), command),
            "replSetStepDown" => {
                lock().depose(self.node);
                self.shared.changed.notify_all();
                doc! { "ok": 1.0 }
            }
            "getDefaultRWConcern" => doc! { "ok": 1.0, "defaultReadConcern": { "level": "local" },
            "defaultWriteConcern": { "w": "majority", "wtimeout": 0 } },
            "getParameter" => match command.get("journalCommitInterval") {
                Some(_) => {
                    doc! { "ok": 1.0, "journalCommitInterval": lock().settings.journal.as_millis() as i64 }
                }
                None => failure(72, "InvalidOptions", "no option found to get"),
            },
            "replSetGetConfig" => {
                let state = lock();
                match (&state.configuration, &state.settings.set_name) {
                    (Some(configuration), _) => doc! { "ok": 1.0, "config": configuration },
                    (None, Some(set)) => doc! { "ok": 1.0, "config": { "_id": set, "settings":
                    { "getLastErrorDefaults": { "w": 1, "wtimeout": 0 } } } },
                    (None, None) => failure(76, "NoReplicationEnabled", "not running with --replSet"),
                }
            }
            "find" => self.find(command),
            "getMore" => self.get_more(command),
            "insert" | "update" | "delete" | "drop" => self.write(name, command),
            "commitTransaction" | "abortTransaction" => self.end_transaction(name, command),
            _ => unknown(name),
        })
    }

    fn hello(&self, state: &State, command: &Document) -> Document {
        let node = &state.nodes[self.node];
        let (knows_hello, wire) = match state.settings.manners {
            Manners::Current => (true, 21),
            Manners::V4_0 => (false, 7),
        };
        let mut answer = doc! {
            "ok": 1.0, "secondary": !node.primary,
            "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
            "minWireVersion": 0, "maxWireVersion": wire, "readOnly": false,
            "logicalSessionTimeoutMinutes": 30, "msgFromTipover": "this is not MongoDB",
        };
        let asked_anew = command.contains_key("hello");
        answer.insert(if asked_anew { "isWritablePrimary" } else { "ismaster" }, node.primary);
        if knows_hello {
            answer.insert("helloOk", true);
        }
        if state.is_apart() && state.nodes.len() == 1 {
            answer.insert("secondary", false);
            answer.insert("isreplicaset", true);
        } else if let Some(set) = &state.settings.set_name {
            let named = |arbiters: bool| -> Vec<String> {
                let members = (0..state.nodes.len()).filter(|index| state.nodes[*index].arbiter == arbiters);
                members.map(|index| state.host(index)).collect()
            };
            let hosts = named(false);
            if state.is_apart() && !named(true).is_empty() {
                answer.insert("arbiters", named(true));
            }
            if node.arbiter {
                answer.extend(doc! { "arbiterOnly": true, "secondary": false });
            }
            answer.extend(
                doc! { "setName": set, "setVersion": 1, "hosts": hosts, "me": state.host(self.node) },
            );
            if node.primary {
                answer.insert("electionId", State::election_id(node.term));
                answer.insert("primary", state.host(self.node));
            } else if let Some(leader) = state.leader() {
                answer.insert("primary", state.host(leader));
            }
        }
        if command.contains_key("saslSupportedMechs") {
            answer.insert("saslSupportedMechs", vec!["SCRAM-SHA-1", "SCRAM-SHA-256"]);
        }
        answer
    }

    fn place(&self, collection: &str, key: Key) -> (String, Key) {
        (format!("{}.{collection}", self.database), key)
    }

    /// How far a read may see, or why it may not.
    fn view(&self, state: &mut Guard<'_>, command: &Document) -> Result<u64, Document> {
        let level = command.get_document("readConcern").and_then(|concern| concern.get_str("level"));
        let level = level.unwrap_or("local");
        let node = &state.nodes[self.node];
        let preference = command.get_document("$readPreference").and_then(|mode| mode.get_str("mode"));
        if !node.primary && preference.unwrap_or("primary") == "primary" {
            return Err(failure(13435, "NotPrimaryNoSecondaryOk", "not primary and secondaryOk=false"));
        }
        match level {
            "local" | "available" => Ok(node.position()),
            "majority" | "snapshot" => Ok(node.committed),
            "linearizable" if node.primary => {
                let (index, term) = (node.position(), node.term);
                let concern = Concern { members: state.majority(), journal: true, timeout: LOCK_PATIENCE };
                match wait::replicated(self.shared, state, self.node, index, term, &concern) {
                    Ok(()) => Ok(index),
                    Err(_) => Err(failure(50, "MaxTimeMSExpired", "no majority confirmed the read in time")),
                }
            }
            "linearizable" => Err(not_primary()),
            other => Err(failure(9, "FailedToParse", &format!("'{other}' is no read concern level"))),
        }
    }

    fn find(&self, command: &Document) -> Document {
        let mut state = self.shared.state.lock();
        let numbered = numbered(command).filter(|numbered| numbered.in_transaction);
        let index = match &numbered {
            Some(numbered) => self.enter(&mut state, numbered),
            None => self.view(&mut state, command),
        };
        let index = match index {
            Ok(index) => index,
            Err(answer) => return answer,
        };
        let collection = command.get_str("find").unwrap_or_default();
        let found = match collection {
            "system.profile" => self.profiled(&state, command),
            _ => self.matching(&state, command, collection, index, numbered.as_ref()),
        };
        let mut found = match found {
            Ok(found) => found,
            Err(text) => return failure(2, "BadValue", &text),
        };
        if let Ok(projection) = command.get_document("projection") {
            for document in &mut found {
                *document = projected(document, projection);
            }
        }
        let node = &mut state.nodes[self.node];
        node.count("query", 1);
        node.count("looked up", found.len() as i64 + 1);
        let batch = whole(command.get("batchSize")).unwrap_or(101).max(0) as usize;
        let single = is_true(command, "singleBatch");
        let rest = found.split_off(batch.min(found.len()));
        let collection = format!("{}.{collection}", self.database);
        let mut id = 0;
        if !rest.is_empty() && !single {
            id = node.cursors.len() as i64 + 1;
            while node.cursors.contains_key(&id) {
                id += 1;
            }
            node.cursors.insert(id, (collection.clone(), rest));
        }
        node.count("returned", found.len() as i64);
        doc! { "ok": 1.0, "cursor": { "firstBatch": found, "id": id, "ns": collection } }
    }

    /// What a find in the profiler's collection brings, in the order in which it was written or against it.
    fn profiled(&self, state: &State, command: &Document) -> Result<Vec<Document>, String> {
        let filter = command.get_document("filter").cloned().unwrap_or_default();
        let limit = whole(command.get("limit")).filter(|limit| *limit > 0).unwrap_or(i64::MAX) as usize;
        let mut found = Vec::new();
        for entry in state.profiler.entries(&self.database) {
            if matches(entry, &filter)? {
                found.push(entry.clone());
            }
        }
        let sort = command.get_document("sort").ok();
        if sort.and_then(|sort| whole(sort.get("$natural"))) == Some(-1) {
            found.reverse();
        }
        found.truncate(limit);
        Ok(found)
    }

    fn matching(
        &self,
        state: &State,
        command: &Document,
        collection: &str,
        index: u64,
        numbered: Option<&Numbered>,
    ) -> Result<Vec<Document>, String> {
        let empty = Document::new();
        let filter = command.get_document("filter").or(command.get_document("q")).unwrap_or(&empty);
        let limit = whole(command.get("limit")).unwrap_or(0).unsigned_abs() as usize;
        let limit = if limit == 0 { usize::MAX } else { limit };
        let node = &state.nodes[self.node];
        let writes = numbered.and_then(|numbered| node.transactions.get(&numbered.session));
        let (one, from) = bounds(filter);
        let name = format!("{}.{collection}", self.database);
        let from = one.clone().map_or(from, Bound::Included);
        let is_beyond = |key: &Key| one.as_ref().is_some_and(|one| key > one);
        let reverse = command.get_document("sort").ok().and_then(|sort| whole(sort.get("_id"))) == Some(-1);
        // What the transaction has written itself lies over what its snapshot shows.
        let mut merged: std::collections::BTreeMap<&Key, &Document> = Default::default();
        let plain = writes.is_none() && !reverse;
        let mut found = Vec::new();
        for (key, document) in node.store.range(&name, from, index) {
            if is_beyond(key) || plain && found.len() >= limit {
                break;
            }
            if plain {
                if matches(document, filter)? {
                    found.push(document.clone());
                }
            } else {
                merged.insert(key, document);
            }
        }
        if plain {
            return Ok(found);
        }
        for ((written, key), document) in writes.into_iter().flat_map(|open| &open.writes) {
            if *written == name {
                match document {
                    Some(document) => drop(merged.insert(key, document)),
                    None => drop(merged.remove(key)),
                }
            }
        }
        let in_order: Box<dyn Iterator<Item = &&Document>> =
            if reverse { Box::new(merged.values().rev()) } else { Box::new(merged.values()) };
        for document in in_order {
            if found.len() < limit && matches(document, filter)? {
                found.push((*document).clone());
            }
        }
        Ok(found)
    }

    fn get_more(&self, command: &Document) -> Document {
        let mut state = self.shared.state.lock();
        let node = &mut state.nodes[self.node];
        let id = whole(command.get("getMore")).unwrap_or(0);
        let Some((collection, mut found)) = node.cursors.remove(&id) else {
            return failure(43, "CursorNotFound", &format!("cursor id {id} not found"));
        };
        let batch = whole(command.get("batchSize")).unwrap_or(101).max(1) as usize;
        let rest = found.split_off(batch.min(found.len()));
        let left = if rest.is_empty() { 0 } else { id };
        if left != 0 {
            node.cursors.insert(id, (collection.clone(), rest));
        }
        node.count("getmore", 1);
        doc! { "ok": 1.0, "cursor": { "nextBatch": found, "id": left, "ns": collection } }
    }

    /// Enters a transaction and returns what it sees.
    fn enter(&self, state: &mut Guard<'_>, numbered: &Numbered) -> Result<u64, Document> {
        if state.settings.set_name.is_none() {
            let text = "Transaction numbers are only allowed on a replica set member or mongos";
            return Err(failure(20, "IllegalOperation", text));
        }
        let node = &mut state.nodes[self.node];
        if !node.primary {
            return Err(labelled(failure(10107, "NotWritablePrimary", "not primary"), TRANSIENT));
        }
        if numbered.starts {
            node.end_transaction(&numbered.session);
            let snapshot = node.position();
            let open = crate::state::Transaction { number: numbered.number, snapshot, ..Default::default() };
            node.transactions.insert(numbered.session.clone(), open);
        }
        match node.transactions.get(&numbered.session) {
            Some(open) if open.number == numbered.number => Ok(open.snapshot),
            _ => {
                let text = format!("transaction {} has been aborted, or was never here", numbered.number);
                Err(labelled(failure(251, "NoSuchTransaction", &text), TRANSIENT))
            }
        }
    }

    fn write(&self, name: &str, command: &Document) -> Document {
        let mut state = self.shared.state.lock();
        let concern = match wait::concern(&state, command) {
            Ok(concern) => concern,
            Err(wrong) => return refused(&wrong),
        };
        let numbered = numbered(command);
        if !state.nodes[self.node].primary {
            return not_primary();
        }
        if let Some(numbered) = numbered.as_ref().filter(|numbered| numbered.in_transaction) {
            return self.write_in_transaction(&mut state, name, command, numbered);
        }
        if let Some(numbered) = &numbered {
            if state.settings.set_name.is_none() {
                let text = "Transaction numbers are only allowed on a replica set member or mongos";
                return failure(20, "IllegalOperation", text);
            }
            let seen = state.nodes[self.node].retries.get(&numbered.session);
            if let Some((number, answer)) = seen
                && *number == numbered.number
                && !state.settings.bugs.repeated_retry
            {
                let mut answer = answer.clone();
                let (index, term) = (state.nodes[self.node].position(), state.nodes[self.node].term);
                wait::confirm(self.shared, &mut state, self.node, index, term, &concern, &mut answer);
                return answer;
            }
        }
        let deadline = Instant::now() + LOCK_PATIENCE;
        let (changes, mut answer) = loop {
            let made = self.changes(&state, name, command, state.nodes[self.node].position(), None);
            let (changes, answer) = match made {
                Ok(made) => made,
                Err(text) => return failure(9, "FailedToParse", &text),
            };
            let node = &state.nodes[self.node];
            if !changes.iter().any(|(place, _)| node.locks.contains_key(place)) {
                break (changes, answer);
            }
            // A single write waits for the transaction that is in its way.
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return failure(112, "WriteConflict", "an open transaction holds the document");
            }
            if !state.nodes[self.node].primary || !state.nodes[self.node].alive {
                return not_primary();
            }
        };
        let node = &mut state.nodes[self.node];
        let counted = ["insert", "update", "delete", "command"];
        let kind = counted.into_iter().find(|kind| *kind == name).unwrap_or("command");
        node.count(kind, (changes.len() as i64).max(1));
        node.count("looked up", changes.len() as i64);
        let term = node.term;
        let retry = numbered.map(|numbered| (numbered.session, numbered.number, answer.clone()));
        let index = node.append(Entry { term, changes, retry });
        self.shared.changed.notify_all();
        wait::confirm(self.shared, &mut state, self.node, index, term, &concern, &mut answer);
        answer
    }

    fn write_in_transaction(
        &self,
        state: &mut Guard<'_>,
        name: &str,
        command: &Document,
        numbered: &Numbered,
    ) -> Document {
        let snapshot = match self.enter(state, numbered) {
            Ok(snapshot) => snapshot,
            Err(answer) => return answer,
        };
        let lost_update = state.settings.bugs.lost_update;
        let made = self.changes(state, name, command, snapshot, Some(numbered));
        let (changes, answer) = match made {
            Ok(made) => made,
            Err(text) => return failure(9, "FailedToParse", &text),
        };
        let node = &mut state.nodes[self.node];
        let meets = |(place, _): &Change| {
            node.store.newest(place) > snapshot
                || node.locks.get(place).is_some_and(|owner| *owner != numbered.session)
        };
        if !lost_update && changes.iter().any(meets) {
            node.end_transaction(&numbered.session);
            node.count("conflicts", 1);
            node.count("aborted", 1);
            self.shared.changed.notify_all();
            let text = "Caused by :: Write conflict during plan execution and yielding is disabled.";
            return labelled(failure(112, "WriteConflict", text), TRANSIENT);
        }
        // An error inside a transaction ends it.
        if answer.contains_key("writeErrors") {
            node.end_transaction(&numbered.session);
            node.count("aborted", 1);
            self.shared.changed.notify_all();
            return answer;
        }
        for (place, document) in changes {
            if !lost_update {
                node.locks.insert(place.clone(), numbered.session.clone());
            }
            if let Some(open) = node.transactions.get_mut(&numbered.session) {
                open.writes.insert(place, document);
            }
        }
        answer
    }

    fn end_transaction(&self, name: &str, command: &Document) -> Document {
        let mut state = self.shared.state.lock();
        let concern = match wait::concern(&state, command) {
            Ok(concern) => concern,
            Err(wrong) => return refused(&wrong),
        };
        let Some(numbered) = numbered(command) else {
            return failure(72, "InvalidOptions", "a transaction needs lsid and txnNumber");
        };
        if !state.nodes[self.node].primary {
            return not_primary();
        }
        let commits = name == "commitTransaction";
        let seen = state.nodes[self.node].retries.get(&numbered.session).map(|(number, _)| *number);
        if seen == Some(numbered.number) {
            if !commits {
                return failure(256, "TransactionCommitted", "the transaction has been committed");
            }
            // The commit is known; it is only confirmed once more.
            let (index, term) = (state.nodes[self.node].position(), state.nodes[self.node].term);
            let mut answer = doc! { "ok": 1.0 };
            wait::confirm(self.shared, &mut state, self.node, index, term, &concern, &mut answer);
            return answer;
        }
        if let Err(answer) = self.enter(&mut state, &Numbered { starts: false, ..numbered.clone() }) {
            return answer;
        }
        let node = &mut state.nodes[self.node];
        let Some(open) = node.end_transaction(&numbered.session) else {
            return labelled(failure(251, "NoSuchTransaction", "no such transaction"), TRANSIENT);
        };
        self.shared.changed.notify_all();
        if !commits {
            node.count("aborted", 1);
            return doc! { "ok": 1.0 };
        }
        node.count("committed", 1);
        let term = node.term;
        let mut answer = doc! { "ok": 1.0 };
        let retry = Some((numbered.session, numbered.number, answer.clone()));
        let index = node.append(Entry { term, changes: open.writes.into_iter().collect(), retry });
        wait::confirm(self.shared, &mut state, self.node, index, term, &concern, &mut answer);
        answer
    }

    /// What a write command changes, and its answer.
    fn changes(
        &self,
        state: &State,
        name: &str,
        command: &Document,
        index: u64,
        numbered: Option<&Numbered>,
    ) -> Result<(Vec<Change>, Document), String> {
        let collection = command.get_str(name).map_err(|_| "a collection is missing")?;
        let mut batch =
            Batch { turn: self, state, collection, index, numbered, changes: vec![], errors: vec![] };
        let documents = |key: &str| -> Vec<Document> {
            let list = command.get_array(key).cloned().unwrap_or_default();
            list.into_iter().filter_map(|one| one.as_document().cloned()).collect()
        };
        let ordered = command.get_bool("ordered").unwrap_or(true);
        let (mut n, mut modified, mut upserted) = (0, 0, Vec::new());
        match name {
            "insert" => {
                for (number, document) in documents("documents").into_iter().enumerate() {
                    n += batch.insert(number, document);
                    if ordered && !batch.errors.is_empty() {
                        break;
                    }
                }
            }
            "update" => {
                for (number, update) in documents("updates").into_iter().enumerate() {
                    let (matched, id) = batch.update(&update)?;
                    n += matched;
                    modified += matched - i32::from(id.is_some());
                    upserted.extend(id.map(|id| doc! { "index": number as i32, "_id": id }));
                }
            }
            "delete" => {
                for delete in documents("deletes") {
                    n += batch.delete(&delete)?;
                }
            }
            _ => {
                let collection = format!("{}.{collection}", self.database);
                let keys = state.nodes[self.node].store.keys(&collection);
                batch.changes = keys.into_iter().map(|key| ((collection.clone(), key), None)).collect();
            }
        }
        let mut answer = doc! { "ok": 1.0, "n": n };
        if name == "update" {
            answer.insert("nModified", modified);
        }
        if !upserted.is_empty() {
            answer.insert("upserted", upserted);
        }
        if !batch.errors.is_empty() {
            answer.insert("writeErrors", batch.errors);
        }
        Ok((batch.changes, answer))
    }
}

/// A write command being worked out; nothing is changed before it is complete.
struct Batch<'a> {
    turn: &'a Turn<'a>,
    state: &'a State,
    collection: &'a str,
    index: u64,
    numbered: Option<&'a Numbered>,
    changes: Vec<Change>,
    errors: Vec<Document>,
}

impl Batch<'_> {
    fn current(&self, place: &(String, Key)) -> Option<Document> {
        if let Some((_, document)) = self.changes.iter().rev().find(|(changed, _)| changed == place) {
            return document.clone();
        }
        let node = &self.state.nodes[self.turn.node];
        let open = self.numbered.and_then(|numbered| node.transactions.get(&numbered.session));
        match open.and_then(|open| open.writes.get(place)) {
            Some(written) => written.clone(),
            None => node.store.get(place, self.index).cloned(),
        }
    }

    fn insert(&mut self, number: usize, mut document: Document) -> i32 {
        if !document.contains_key("_id") {
            document.insert("_id", bson::oid::ObjectId::new());
        }
        let key = document.get("_id").map(Key::of).unwrap_or(Key::Number(0));
        let place = self.turn.place(self.collection, key);
        if self.current(&place).is_some() {
            let text = format!("E11000 duplicate key error collection: {} index: _id_", place.0);
            self.errors.push(doc! { "index": number as i32, "code": 11000, "errmsg": text });
            return 0;
        }
        self.changes.push((place, Some(document)));
        1
    }

    fn matching(&self, statement: &Document, many: bool) -> Result<Vec<Document>, String> {
        let q = statement.get_document("q").map_err(|_| "q is missing")?;
        // A document written earlier in the same command is seen by its key.
        if let (Some(key), _) = bounds(q) {
            let current = self.current(&self.turn.place(self.collection, key));
            return current
                .into_iter()
                .filter_map(|d| matches(&d, q).map(|m| m.then_some(d)).transpose())
                .collect();
        }
        let mut wanted = doc! { "q": q.clone() };
        if !many {
            wanted.insert("limit", 1);
        }
        self.turn.matching(self.state, &wanted, self.collection, self.index, self.numbered)
    }

    fn update(&mut self, statement: &Document) -> Result<(i32, Option<Bson>), String> {
        let u = statement.get_document("u").map_err(|_| "u must be a document")?;
        let found = self.matching(statement, is_true(statement, "multi"))?;
        for document in &found {
            let after = updated(document, u)?;
            let key = after.get("_id").map(Key::of).ok_or("a document without an _id")?;
            self.changes.push((self.turn.place(self.collection, key), Some(after)));
        }
        if found.is_empty() && is_true(statement, "upsert") {
            let id = statement.get_document("q").ok().and_then(|q| q.get("_id").cloned());
            let id = id.unwrap_or_else(|| Bson::ObjectId(bson::oid::ObjectId::new()));
            let after = updated(&doc! { "_id": id.clone() }, u)?;
            self.changes.push((self.turn.place(self.collection, Key::of(&id)), Some(after)));
            return Ok((1, Some(id)));
        }
        Ok((found.len() as i32, None))
    }

    fn delete(&mut self, statement: &Document) -> Result<i32, String> {
        let found = self.matching(statement, whole(statement.get("limit")) == Some(0))?;
        for document in &found {
            let key = document.get("_id").map(Key::of).ok_or("a document without an _id")?;
            self.changes.push((self.turn.place(self.collection, key), None));
        }
        Ok(found.len() as i32)
    }
}

fn projected(document: &Document, projection: &Document) -> Document {
    let wanted = |field: &str| projection.get(field).and_then(|value| whole(Some(value)));
    let includes = projection.iter().any(|(field, _)| field != "_id" && wanted(field) == Some(1));
    let keep = |field: &str| match (wanted(field), field) {
        (Some(0), _) => false,
        (None, "_id") => true,
        (None, _) => !includes,
        _ => true,
    };
    document.iter().filter(|(field, _)| keep(field)).map(|(f, v)| (f.clone(), v.clone())).collect()
}

/// What `failCommand` makes of a command.
enum FailPoint {
    Close,
    CloseAfter,
    Answer(Document),
    Concern(Document),
}

impl Turn<'_> {
    /// As the drivers' tests set it: `{configureFailPoint: "failCommand", mode: {times: n}, data: {...}}`.
    /// One word is ours: `closeConnectionAfter` executes the command and then closes.
    fn configure_fail_point(&self, state: &mut State, command: &Document) -> Document {
        let times = match command.get("mode") {
            Some(Bson::String(mode)) if mode == "off" => 0,
            Some(Bson::Document(mode)) => whole(mode.get("times")).unwrap_or(1),
            _ => i64::MAX,
        };
        let data = command.get_document("data").cloned().unwrap_or_default();
        state.fail_point = (times > 0).then_some((data, times));
        doc! { "ok": 1.0 }
    }

    fn fail_point(&self, state: &mut State, name: &str) -> Option<FailPoint> {
        let (data, times) = state.fail_point.as_mut()?;
        let commands = data.get_array("failCommands").ok()?;
        if !commands.iter().any(|command| command.as_str() == Some(name)) {
            return None;
        }
        let data = data.clone();
        *times -= 1;
        if *times == 0 {
            state.fail_point = None;
        }
        if is_true(&data, "closeConnection") {
            return Some(FailPoint::Close);
        }
        if is_true(&data, "closeConnectionAfter") {
            return Some(FailPoint::CloseAfter);
        }
        if let Ok(error) = data.get_document("writeConcernError") {
            return Some(FailPoint::Concern(error.clone()));
        }
        let code = whole(data.get("errorCode"))? as i32;
        let mut answer = failure(code, "FailCommand", "Failing command via 'failCommand' failpoint");
        if let Ok(labels) = data.get_array("errorLabels") {
            answer.insert("errorLabels", labels.clone());
        }
        Some(FailPoint::Answer(answer))
    }
}
