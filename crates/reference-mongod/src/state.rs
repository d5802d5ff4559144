//! The replica set: nodes with their logs, who is primary, what was replicated, and what a crash or a
//! failover takes away. Everything stands behind one lock, so that each step is atomic and easy to follow.

use crate::journal::Journal;
use crate::profiler::Profiler;
use crate::store::{Place, Store};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Faults that are built in on purpose; each is one that real systems had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bugs {
    /// Acknowledges `w:2` and `w:majority` before any other node has the write.
    pub early_acknowledgement: bool,
    /// A node that rolls back keeps the documents and only forgets the log.
    pub lost_rollback: bool,
    /// A write that is sent again is applied again.
    pub repeated_retry: bool,
    /// Transactions do not notice each other: the last writer wins.
    pub lost_update: bool,
    /// Accepts every write concern, and waits for nobody.
    pub ignored_concern: bool,
}

impl Bugs {
    /// The names under which the program knows them.
    pub const NAMES: [&'static str; 5] =
        ["early-acknowledgement", "lost-rollback", "repeated-retry", "lost-update", "ignored-concern"];

    /// Switches one on; false if there is none of that name.
    pub fn switch_on(&mut self, name: &str) -> bool {
        match name {
            "early-acknowledgement" => self.early_acknowledgement = true,
            "lost-rollback" => self.lost_rollback = true,
            "repeated-retry" => self.repeated_retry = true,
            "lost-update" => self.lost_update = true,
            "ignored-concern" => self.ignored_concern = true,
            _ => return false,
        }
        true
    }
}

/// One change of one document.
pub type Change = (Place, Option<Document>);

/// A write that can be recognised when it comes again: session, number, and what was answered.
pub type Retry = (Vec<u8>, i64, Document);

/// One step of the log; its index is its position, counted from 1.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Of which election.
    pub term: u64,
    /// What it does.
    pub changes: Vec<Change>,
    /// How it is recognised.
    pub retry: Option<Retry>,
}

/// A transaction under way on the primary.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    /// Its number in its session.
    pub number: i64,
    /// What it sees: the log up to here.
    pub snapshot: u64,
    /// What it has written.
    pub writes: BTreeMap<Place, Option<Document>>,
}

/// One member.
#[derive(Debug, Default)]
pub struct Node {
    /// `host:port`, if it is a process of its own; the fields below that belong together with it are only
    /// meaningful then.
    pub name: String,
    /// Its `_id` in the set's configuration.
    pub number: u32,
    /// It votes and holds nothing.
    pub arbiter: bool,
    /// What it says that it has of the primary's log, and has flushed.
    pub matched: (u64, u64),
    /// The entry to send it next, counted from 1.
    pub next: u64,
    /// When it answered last.
    pub heard: Option<Instant>,
    /// What a kill leaves of it.
    pub journal: Option<Journal>,
    /// The process runs.
    pub alive: bool,
    /// Nodes of the same group reach each other.
    pub group: u32,
    /// Takes writes, as it believes.
    pub primary: bool,
    /// The last election that it knows of.
    pub term: u64,
    /// What it has applied.
    pub log: Vec<Entry>,
    /// How much of the log a crash leaves.
    pub journalled: u64,
    /// How much of the log a majority has, as far as it knows.
    pub committed: u64,
    /// Documents.
    pub store: Store,
    /// The last write of each session.
    pub retries: HashMap<Vec<u8>, (i64, Document)>,
    /// Open transactions by session.
    pub transactions: HashMap<Vec<u8>, Transaction>,
    /// Documents that an open transaction has written.
    pub locks: HashMap<Place, Vec<u8>>,
    /// Documents that a cursor has yet to bring.
    pub cursors: HashMap<i64, (String, Vec<Document>)>,
    /// `serverStatus`
    pub counters: BTreeMap<&'static str, i64>,
    /// Since when it has not reached a majority.
    pub alone_since: Option<Instant>,
    /// When its journal was flushed last.
    pub flushed: Option<Instant>,
    /// Counts crashes, so that threads of an earlier life end.
    pub life: u64,
}

impl Node {
    /// Length of the log.
    pub fn position(&self) -> u64 {
        self.log.len() as u64
    }

    /// Counts something.
    pub fn count(&mut self, name: &'static str, by: i64) {
        *self.counters.entry(name).or_default() += by;
    }

    /// Appends to the log and applies.
    pub fn append(&mut self, entry: Entry) -> u64 {
        let index = self.position() + 1;
        for (place, document) in &entry.changes {
            self.store.put(place, index, document.clone());
        }
        if let Some((session, number, answer)) = &entry.retry {
            self.retries.insert(session.clone(), (*number, answer.clone()));
        }
        // Versions that neither a snapshot nor a majority read nor a rollback needs.
        let oldest = self.transactions.values().map(|open| open.snapshot).min().unwrap_or(index);
        let oldest = oldest.min(self.committed).min(self.journalled);
        for (place, _) in &entry.changes {
            self.store.trim(place, oldest);
        }
        self.log.push(entry);
        index
    }

    /// Forgets the log after `index`, and unless `keeps_documents` what it did.
    fn truncate(&mut self, index: u64, keeps_documents: bool) {
        self.log.truncate(index as usize);
        self.journalled = self.journalled.min(index);
        self.drop_sessions();
        if !keeps_documents {
            self.store.roll_back(index);
        }
        // Which writes were seen follows from the log that is left.
        self.retries.clear();
        for (session, number, answer) in self.log.iter().filter_map(|entry| entry.retry.clone()) {
            self.retries.insert(session, (number, answer));
        }
    }

    /// Forgets the log after `index` and what it did, also in the journal.
    pub fn roll_back(&mut self, index: u64) {
        self.truncate(index, false);
        let left = &self.log[..self.journalled as usize];
        if let Some(Err(error)) = self.journal.as_mut().map(|journal| journal.replace(left)) {
            stop_for(&error);
        }
    }

    fn drop_sessions(&mut self) {
        self.transactions.clear();
        self.locks.clear();
        self.cursors.clear();
    }

    /// Ends a transaction; its locks go with it.
    pub fn end_transaction(&mut self, session: &[u8]) -> Option<Transaction> {
        self.locks.retain(|_, owner| owner != session);
        self.transactions.remove(session)
    }

    /// Makes everything in the log survive a crash.
    pub fn flush(&mut self) {
        if self.journalled < self.position() {
            let new = &self.log[self.journalled as usize..];
            if let Some(Err(error)) = self.journal.as_mut().map(|journal| journal.append(new)) {
                stop_for(&error);
            }
            self.journalled = self.position();
            self.count("journal flushes", 1);
        }
        self.flushed = Some(Instant::now());
    }
}

/// As a server must when its journal fails: whatever it acknowledged after that would be a lie.
fn stop_for(error: &std::io::Error) -> ! {
    eprintln!("reference-mongod: the journal cannot be written: {error}");
    std::process::exit(14)
}

/// Which server's manners the peer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manners {
    /// Those of today's mongod.
    #[default]
    Current,
    /// As observed of mongod 4.0.3: `isMaster` instead of `hello`, and nothing about default concerns but in
    /// the set's configuration.
    V4_0,
}

impl Manners {
    /// `current` or `4.0`.
    pub fn named(name: &str) -> Option<Manners> {
        match name {
            "current" => Some(Manners::Current),
            "4.0" => Some(Manners::V4_0),
            _ => None,
        }
    }

    /// Whether a server of this age knows a command that others know.
    pub fn knows(self, command: &str) -> bool {
        self == Manners::Current || !["hello", "getDefaultRWConcern"].contains(&command)
    }
}

/// How the set is made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Members; one without a set name stands alone.
    pub nodes: usize,
    /// The replica set's name; `None` is a single server that knows no transactions.
    pub set_name: Option<String>,
    /// Faults on purpose.
    pub bugs: Bugs,
    /// Which server's they are.
    pub manners: Manners,
    /// User and password that clients must show.
    pub login: Option<(String, String)>,
    /// Whether the user may only read and write, as with the role `readWrite`: `fsync` is refused.
    pub reads_and_writes_only: bool,
    /// How long a majority goes without a primary, and a primary without a majority.
    pub election: Duration,
    /// How long an entry takes from the primary to another node.
    pub replication: Duration,
    /// How often journals are flushed unless somebody waits for it; mongod's 100 ms.
    pub journal: Duration,
    /// Whether `w: "majority"` waits for journals unless told: `writeConcernMajorityJournalDefault`.
    pub majority_journals: bool,
    /// On which port the first node listens, the others after it; 0 takes free ones.
    pub port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            nodes: 1,
            set_name: None,
            bugs: Bugs::default(),
            manners: Manners::Current,
            login: None,
            reads_and_writes_only: false,
            election: Duration::from_millis(300),
            replication: Duration::ZERO,
            journal: Duration::from_millis(100),
            majority_journals: true,
            port: 0,
        }
    }
}

/// All nodes.
#[derive(Debug)]
pub struct State {
    /// The set's nodes.
    pub nodes: Vec<Node>,
    /// How the set is made.
    pub settings: Settings,
    /// Their ports.
    pub ports: Vec<u16>,
    /// How many requests wait for journals.
    pub waiting: u32,
    /// `failCommand`
    pub fail_point: Option<(Document, i64)>,
    /// What `replSetInitiate` said.
    pub configuration: Option<Document>,
    /// What was sent, of databases whose profiler is on.
    pub profiler: Profiler,
    /// Where a member that is a process of its own keeps its files.
    pub folder: Option<PathBuf>,
    /// For whom it has voted in this election.
    pub voted: Option<String>,
    /// When it heard of a primary last.
    pub heard_leader: Option<Instant>,
    /// Before that it does not stand for election.
    pub frozen_until: Option<Instant>,
    leaderless_since: Option<Instant>,
    last_replication: Option<Instant>,
}

impl State {
    /// A new, empty set whose first node is primary.
    pub fn new(settings: Settings, ports: Vec<u16>) -> State {
        let node = |index| Node { alive: true, primary: index == 0, term: 1, ..Node::default() };
        State {
            nodes: (0..settings.nodes).map(node).collect(),
            settings,
            ports,
            waiting: 0,
            fail_point: None,
            configuration: None,
            profiler: Profiler::default(),
            folder: None,
            voted: None,
            heard_leader: None,
            frozen_until: None,
            leaderless_since: None,
            last_replication: None,
        }
    }

    /// How many nodes are more than half.
    pub fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// The name of a node among the others.
    pub fn host(&self, index: usize) -> String {
        match self.nodes[index].name.as_str() {
            "" => format!("127.0.0.1:{}", self.ports[index]),
            name => name.into(),
        }
    }

    fn reach(&self, a: usize, b: usize) -> bool {
        self.nodes[a].alive && self.nodes[b].alive && self.nodes[a].group == self.nodes[b].group
    }

    fn reached_by(&self, node: usize) -> usize {
        (0..self.nodes.len()).filter(|other| self.reach(node, *other)).count()
    }

    /// The primary that a majority reaches.
    pub fn leader(&self) -> Option<usize> {
        if self.is_apart() {
            return self.nodes.iter().position(|node| node.primary);
        }
        let leads = |index: &usize| {
            self.nodes[*index].primary
                && self.nodes[*index].alive
                && self.reached_by(*index) >= self.majority()
        };
        (0..self.nodes.len()).filter(leads).max_by_key(|index| self.nodes[*index].term)
    }

    /// Whether the members are processes of their own, of which this is the first.
    pub fn is_apart(&self) -> bool {
        !self.nodes[0].name.is_empty()
    }

    /// The election of a term, as clients see it.
    pub fn election_id(term: u64) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&0x7FFF_FFFFu32.to_be_bytes());
        bytes[4..].copy_from_slice(&term.to_be_bytes());
        ObjectId::from_bytes(bytes)
    }

    /// How many nodes have entry `index` of `term`; flushed to their journals if that counts.
    pub fn holders(&self, index: u64, term: u64, journalled: bool) -> usize {
        if self.is_apart() {
            let of = |node: &Node| match node.journal {
                Some(_) => (node.position(), node.journalled),
                None => node.matched,
            };
            let holds = |node: &&Node| {
                let (position, flushed) = of(node);
                !node.arbiter && index <= if journalled { flushed } else { position }
            };
            return self.nodes.iter().filter(holds).count();
        }
        let holds = |node: &&Node| {
            let position = if journalled { node.journalled } else { node.position() };
            position >= index && node.log.get(index as usize - 1).is_some_and(|entry| entry.term == term)
        };
        self.nodes.iter().filter(holds).count()
    }

    /// One turn of replication, flushing and elections.
    pub fn tick(&mut self) {
        let now = Instant::now();
        self.step_down(now);
        self.elect(now);
        for node in self.nodes.iter_mut().filter(|node| node.alive) {
            let due = node.flushed.is_none_or(|flushed| now - flushed >= self.settings.journal);
            if due || self.waiting > 0 {
                node.flush();
            }
        }
        let due = self.last_replication.is_none_or(|last| now - last >= self.settings.replication);
        if let Some(leader) = self.leader().filter(|_| due) {
            self.last_replication = Some(now);
            for index in 0..self.nodes.len() {
                if index != leader && self.reach(leader, index) {
                    self.replicate(leader, index);
                }
            }
            self.commit(leader);
        }
    }

    fn step_down(&mut self, now: Instant) {
        for index in 0..self.nodes.len() {
            let alone = self.reached_by(index) < self.majority();
            let patience = self.settings.election * 2;
            let leader = self.leader();
            let node = &mut self.nodes[index];
            if !node.alive || !node.primary {
                node.alone_since = None;
                continue;
            }
            let since = if alone { Some(*node.alone_since.get_or_insert(now)) } else { None };
            node.alone_since = since;
            // It learns of a newer election when it meets the winner, and of its loneliness after a while.
            let beaten = leader.is_some_and(|leader| leader != index) && !alone;
            if beaten || since.is_some_and(|since| now - since >= patience) {
                self.depose(index);
            }
        }
    }

    /// Makes a primary a secondary; its open transactions are gone.
    pub fn depose(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.primary = false;
        node.drop_sessions();
        self.leaderless_since = None;
    }

    fn elect(&mut self, now: Instant) {
        if self.leader().is_some() {
            self.leaderless_since = None;
            return;
        }
        let since = *self.leaderless_since.get_or_insert(now);
        if now - since < self.settings.election {
            return;
        }
        let able = |index: &usize| self.nodes[*index].alive && self.reached_by(*index) >= self.majority();
        let fitness = |index: &usize| {
            let node = &self.nodes[*index];
            (node.log.last().map_or(0, |entry| entry.term), node.position(), usize::MAX - *index)
        };
        let Some(winner) = (0..self.nodes.len()).filter(able).max_by_key(fitness) else { return };
        let term = self.nodes.iter().map(|node| node.term).max().unwrap_or(0) + 1;
        for index in 0..self.nodes.len() {
            if self.reach(winner, index) {
                self.nodes[index].term = term;
                self.nodes[index].primary = index == winner;
            }
        }
        self.leaderless_since = None;
    }

    fn replicate(&mut self, leader: usize, follower: usize) {
        let agree = |index: usize| {
            let (a, b) = (self.nodes[leader].log.get(index), self.nodes[follower].log.get(index));
            matches!((a, b), (Some(a), Some(b)) if a.term == b.term)
        };
        // Logs that agree at an index agree before it.
        let mut common = self.nodes[leader].log.len().min(self.nodes[follower].log.len());
        while common > 0 && !agree(common - 1) {
            common -= 1;
        }
        let missing = self.nodes[leader].log[common..].to_vec();
        let (term, committed) = (self.nodes[leader].term, self.nodes[leader].committed);
        let keeps_documents = self.settings.bugs.lost_rollback;
        let node = &mut self.nodes[follower];
        (node.term, node.primary) = (term, false);
        if node.log.len() > common {
            node.count("rollbacks", 1);
            node.truncate(common as u64, keeps_documents);
        }
        for entry in missing {
            node.append(entry);
        }
        if self.waiting > 0 {
            node.flush();
        }
        node.committed = committed.min(node.position());
    }

    /// Counts who has what, and moves on what a majority has.
    pub fn commit(&mut self, leader: usize) {
        if !self.nodes[leader].primary {
            return;
        }
        let term = self.nodes[leader].term;
        let mut index = self.nodes[leader].position();
        while index > self.nodes[leader].committed {
            let entry = self.nodes[leader].log[index as usize - 1].term;
            // As Raft: only entries of one's own election are counted; those before follow from them.
            if entry == term && self.holders(index, term, true) >= self.majority() {
                self.nodes[leader].committed = index;
            }
            index -= 1;
        }
    }

    /// The process dies: what was not in its journal is gone.
    pub fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let journalled = node.journalled;
        (node.alive, node.primary) = (false, false);
        node.life += 1;
        node.truncate(journalled, false);
        node.committed = node.committed.min(journalled);
        self.leaderless_since = None;
    }

    /// `serverStatus` of a node.
    pub fn status(&self, index: usize) -> Document {
        let node = &self.nodes[index];
        let count = |name: &str| Bson::Int64(node.counters.get(name).copied().unwrap_or(0));
        doc! {
            "host": self.host(index), "version": "0.0.0-tipover-reference", "process": "reference-mongod",
            "pid": i64::from(std::process::id()), "uptime": 1.0,
            "storageEngine": { "name": "tipover-reference" },
            "connections": { "current": count("connections") },
            "network": { "bytesIn": count("bytes in"), "bytesOut": count("bytes out"),
                "numRequests": count("requests") },
            "opcounters": { "insert": count("insert"), "query": count("query"), "update": count("update"),
                "delete": count("delete"), "getmore": count("getmore"), "command": count("command") },
            "transactions": { "totalCommitted": count("committed"), "totalAborted": count("aborted") },
            "metrics": { "operation": { "writeConflicts": count("conflicts") },
                "document": { "inserted": count("insert"), "returned": count("returned"),
                    "updated": count("updated") } },
            // The counts are of what really happened here; there is no WiredTiger behind them.
            "wiredTiger": {
                "cache": { "bytes currently in the cache": node.store.bytes as i64,
                    "maximum bytes configured": i64::MAX, "pages requested from the cache": count("looked up"),
                    "pages read into cache": 0_i64 },
                "log": { "log sync operations": count("journal flushes") },
            },
            "tipover": { "rollbacks": count("rollbacks"), "log": node.position() as i64,
                "journalled": node.journalled as i64, "committed": node.committed as i64 },
        }
    }
}
