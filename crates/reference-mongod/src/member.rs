//! A member that is a process of its own, started as a mongod is: told by `replSetInitiate` who the others
//! are, led by whom they elect, with a journal that a kill leaves.
//!
//! Elections and replication are those of Raft with a trial vote before each election, over OP_MSG commands
//! that no MongoDB knows (`tipoverVote`, `tipoverAppend`). This process is always node 0 of its own state.

use crate::command::failure;
use crate::journal::{Journal, decoded, encoded, keep, kept};
use crate::message;
use crate::state::{Entry, Manners, Node, Settings, State};
use crate::{Shared, TURN, listen_at, whole};
use bson::{Bson, Document, Timestamp, doc};
use parking_lot::MutexGuard;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a member is started.
#[derive(Debug, Clone, Default)]
pub struct Started {
    /// `--replSet`
    pub set: String,
    /// `--dbpath`
    pub folder: PathBuf,
    /// `--bind_ip`: addresses and paths of sockets.
    pub addresses: Vec<String>,
    /// `--port`
    pub port: u16,
    /// `--manners`
    pub manners: Manners,
    /// `--journalCommitInterval`; mongod's 100 ms unless given.
    pub journal: Option<Duration>,
}

/// How long a member may not answer before it is asked over a new connection.
const PATIENCE: Duration = Duration::from_millis(500);
/// A primary says at least so often that it is there.
const HEARTBEAT: Duration = Duration::from_millis(40);
const MOST_ENTRIES: usize = 500;
const CONFIGURATION: &str = "configuration.bson";
const BALLOT: &str = "ballot.bson";

/// Serves until the process is killed.
pub fn serve(started: Started) -> io::Result<()> {
    let address = started.addresses.iter().find(|address| !address.contains('/'));
    let address = address.ok_or_else(|| io::Error::other("--bind_ip names no address"))?;
    let name = format!("{address}:{}", started.port);
    let (set_name, manners) = (Some(started.set.clone()), started.manners);
    let usual = Settings::default();
    let journal = started.journal.unwrap_or(usual.journal);
    let settings = Settings { set_name, manners, journal, ..usual };
    let mut state = State::new(settings, vec![started.port]);
    let (journal, entries) = Journal::open(&started.folder)?;
    let node = &mut state.nodes[0];
    (node.primary, node.name, node.term) = (false, name, 0);
    for entry in entries {
        node.append(entry);
    }
    (node.journalled, node.journal) = (node.position(), Some(journal));
    if let Some(ballot) = kept(&started.folder, BALLOT) {
        node.term = ballot.get_i64("term").unwrap_or(0) as u64;
        state.voted = ballot.get_str("voted").ok().map(Into::into);
    }
    state.folder = Some(started.folder.clone());
    let shared = Arc::new(Shared::of(state));
    if let Some(configuration) = kept(&started.folder, CONFIGURATION) {
        join(&shared, &configuration)?;
    }
    for address in &started.addresses {
        listen_at(&shared, address, started.port)?;
    }
    loop {
        turn(&shared);
        std::thread::sleep(TURN);
    }
}

/// Flushes when it is time, steps down when it is alone, and stands for election when nobody leads.
fn turn(shared: &Arc<Shared>) {
    let mut state = shared.state.lock();
    let now = Instant::now();
    let due = state.nodes[0].flushed.is_none_or(|flushed| now - flushed >= state.settings.journal);
    if due || state.waiting > 0 {
        state.nodes[0].flush();
        state.commit(0);
        shared.changed.notify_all();
    }
    let election = state.settings.election;
    if state.nodes[0].primary {
        let heard = |node: &&Node| node.heard.is_some_and(|heard| now - heard < election * 2);
        if state.nodes[1..].iter().filter(heard).count() + 1 < state.majority() {
            state.depose(0);
        }
        return;
    }
    // Apart from each other by their numbers, so that not all stand at once.
    let patience = election * (4 + state.nodes[0].number) / 4;
    let silent = state.heard_leader.is_none_or(|heard| now - heard > patience);
    let frozen = state.frozen_until.is_some_and(|until| now < until);
    if silent && !frozen && !state.nodes[0].arbiter && state.nodes.len() > 1 {
        state.heard_leader = Some(now);
        drop(state);
        if stand(shared, true) {
            stand(shared, false);
        }
    }
}

/// Asks the others for their votes; whether a majority gives them. Who wins leads, unless it was a trial.
fn stand(shared: &Arc<Shared>, trial: bool) -> bool {
    let (request, names, majority, term) = {
        let mut state = shared.state.lock();
        let term = state.nodes[0].term + 1;
        if !trial {
            state.nodes[0].term = term;
            state.voted = Some(state.nodes[0].name.clone());
            remember(&state);
        }
        let node = &state.nodes[0];
        let request = doc! { "tipoverVote": term as i64, "candidate": &node.name, "trial": trial,
        "lastTerm": node.log.last().map_or(0, |entry| entry.term) as i64, "position": node.position() as i64 };
        let names: Vec<String> = state.nodes[1..].iter().map(|node| node.name.clone()).collect();
        (request, names, state.majority(), term)
    };
    let votes = std::thread::scope(|scope| {
        let asked: Vec<_> = names.iter().map(|name| scope.spawn(|| Peer::new(name).ask(&request))).collect();
        let answers = asked.into_iter().filter_map(|asked| asked.join().ok());
        answers.flatten().filter(|answer| answer.get_bool("granted").unwrap_or(false)).count()
    });
    let won = votes + 1 >= majority;
    if won && !trial {
        let mut state = shared.state.lock();
        if state.nodes[0].term != term {
            return false;
        }
        let position = state.nodes[0].position();
        for (number, node) in state.nodes.iter_mut().enumerate() {
            node.primary = number == 0;
            (node.next, node.matched, node.heard) = (position + 1, (0, 0), Some(Instant::now()));
        }
        // Only what is written in one's own term is counted, so something is.
        state.nodes[0].append(Entry { term, changes: vec![], retry: None });
        shared.changed.notify_all();
    }
    won
}

fn remember(state: &State) {
    let Some(folder) = &state.folder else { return };
    let mut ballot = doc! { "term": state.nodes[0].term as i64 };
    if let Some(voted) = &state.voted {
        ballot.insert("voted", voted);
    }
    if let Err(error) = keep(folder, BALLOT, &ballot) {
        // A member that cannot remember its vote must not give one.
        eprintln!("reference-mongod: the ballot cannot be kept: {error}");
        std::process::exit(14);
    }
}

/// Learns of a newer election.
fn follow(state: &mut State, term: u64) {
    if term > state.nodes[0].term {
        state.nodes[0].term = term;
        state.voted = None;
        state.depose(0);
        remember(state);
    }
}

/// The commands of members, and those by which a set is made and led. `None`: it is another command.
pub(crate) fn answer(shared: &Arc<Shared>, name: &str, command: &Document) -> Option<Document> {
    let ok = doc! { "ok": 1.0 };
    Some(match name {
        "replSetInitiate" => initiate(shared, command),
        "tipoverJoin" => {
            let configuration = command.get_document("tipoverJoin").ok()?;
            match join(shared, configuration) {
                Ok(()) => ok,
                Err(error) => failure(93, "InvalidReplicaSetConfig", &error.to_string()),
            }
        }
        "tipoverVote" => vote(&mut shared.state.lock(), command),
        "tipoverAppend" => {
            let answer = append(&mut shared.state.lock(), command);
            shared.changed.notify_all();
            answer
        }
        "replSetGetStatus" => status(&shared.state.lock()),
        "replSetStepDown" => step_down(shared, command),
        "replSetFreeze" => {
            let seconds = whole(command.get("replSetFreeze")).unwrap_or(0).max(0) as u64;
            let until = Instant::now() + Duration::from_secs(seconds);
            shared.state.lock().frozen_until = (seconds > 0).then_some(until);
            ok
        }
        "replSetStepUp" => {
            let leads = shared.state.lock().nodes[0].primary;
            if leads || stand(shared, false) { ok } else { failure(125, "CommandFailed", "Election failed.") }
        }
        _ => return None,
    })
}

fn initiate(shared: &Arc<Shared>, command: &Document) -> Document {
    let Ok(configuration) = command.get_document("replSetInitiate") else {
        return failure(93, "InvalidReplicaSetConfig", "a configuration is needed here");
    };
    if shared.state.lock().nodes.len() > 1 {
        return failure(23, "AlreadyInitialized", "already initialized");
    }
    if let Err(error) = join(shared, configuration) {
        return failure(93, "InvalidReplicaSetConfig", &error.to_string());
    }
    let names: Vec<String> = shared.state.lock().nodes[1..].iter().map(|node| node.name.clone()).collect();
    for name in names {
        let request = doc! { "tipoverJoin": configuration.clone() };
        if let Err(error) = Peer::new(&name).ask(&request) {
            return failure(74, "NodeNotFound", &format!("{name} could not be told: {error}"));
        }
    }
    // Whoever was asked is the first to stand.
    stand(shared, false);
    doc! { "ok": 1.0 }
}

/// Takes note of the members, this one first, and begins to speak with the others.
fn join(shared: &Arc<Shared>, configuration: &Document) -> io::Result<()> {
    let wrong = |words: &str| io::Error::new(io::ErrorKind::InvalidInput, words.to_string());
    let members = configuration.get_array("members").map_err(|_| wrong("members are missing"))?;
    let mut state = shared.state.lock();
    if state.nodes.len() > 1 {
        return Ok(());
    }
    let set = configuration.get_str("_id").unwrap_or_default();
    if state.settings.set_name.as_deref() != Some(set) {
        return Err(wrong("the set has another name than --replSet"));
    }
    let settings = configuration.get_document("settings").ok();
    let election =
        settings.and_then(|settings| whole(settings.get("electionTimeoutMillis"))).unwrap_or(10_000);
    state.settings.election = Duration::from_millis(election.max(1) as u64);
    state.settings.majority_journals =
        configuration.get_bool("writeConcernMajorityJournalDefault").unwrap_or(true);
    let mut found = false;
    for member in members.iter().filter_map(Bson::as_document) {
        let host = member.get_str("host").map_err(|_| wrong("a member has no host"))?;
        let arbiter = member.get_bool("arbiterOnly").unwrap_or(false);
        let number = whole(member.get("_id")).unwrap_or(0) as u32;
        if host == state.nodes[0].name {
            found = true;
            (state.nodes[0].arbiter, state.nodes[0].number) = (arbiter, number);
        } else {
            let name = host.to_string();
            state.nodes.push(Node { alive: true, name, arbiter, number, next: 1, ..Node::default() });
        }
    }
    if !found {
        let own = state.nodes[0].name.clone();
        state.nodes.truncate(1);
        return Err(wrong(&format!("this member is {own}, and the configuration does not name it")));
    }
    state.heard_leader = Some(Instant::now());
    state.configuration = Some(configuration.clone());
    if let Some(folder) = &state.folder {
        keep(folder, CONFIGURATION, configuration)?;
    }
    for number in 1..state.nodes.len() {
        let (shared, name) = (shared.clone(), state.nodes[number].name.clone());
        std::thread::Builder::new().name(format!("to {name}")).spawn(move || lead(&shared, number, &name))?;
    }
    Ok(())
}

/// While this one is primary: sends member `number` what it lacks, and that it is there.
fn lead(shared: &Shared, number: usize, name: &str) {
    let mut peer = Peer::new(name);
    let mut sent = Instant::now();
    loop {
        let mut state = shared.state.lock();
        let idle = |state: &MutexGuard<'_, State>| {
            let nothing = state.nodes[number].next > state.nodes[0].position() && state.waiting == 0;
            !state.nodes[0].primary || nothing && sent.elapsed() < HEARTBEAT
        };
        if idle(&state) {
            shared.changed.wait_for(&mut state, HEARTBEAT);
        }
        if !state.nodes[0].primary {
            continue;
        }
        let request = batch(&state, number);
        let term = state.nodes[0].term;
        drop(state);
        sent = Instant::now();
        let Ok(answer) = peer.ask(&request) else {
            std::thread::sleep(TURN * 10);
            continue;
        };
        let told = |key: &str| whole(answer.get(key)).unwrap_or(0) as u64;
        let mut state = shared.state.lock();
        follow(&mut state, told("term"));
        if !state.nodes[0].primary || state.nodes[0].term != term {
            continue;
        }
        let node = &mut state.nodes[number];
        node.heard = Some(Instant::now());
        if answer.get_bool("agrees").unwrap_or(false) {
            (node.matched, node.next) = ((told("position"), told("journalled")), told("position") + 1);
        } else {
            node.next = node.next.saturating_sub(1).min(told("position") + 1).max(1);
        }
        state.commit(0);
        shared.changed.notify_all();
    }
}

fn batch(state: &State, number: usize) -> Document {
    let (node, other) = (&state.nodes[0], &state.nodes[number]);
    let after = if other.arbiter { 0 } else { (other.next.max(1) - 1).min(node.position()) };
    let term_after = after.checked_sub(1).map_or(0, |index| node.log[index as usize].term);
    let entries = node.log[after as usize..].iter().take(if other.arbiter { 0 } else { MOST_ENTRIES });
    let entries: Vec<Document> = entries.map(encoded).collect();
    doc! { "tipoverAppend": node.term as i64, "leader": &node.name, "after": after as i64,
    "afterTerm": term_after as i64, "entries": entries, "committed": node.committed as i64,
    "flush": state.waiting > 0 }
}

fn append(state: &mut State, command: &Document) -> Document {
    let number = |key: &str| whole(command.get(key)).unwrap_or(0) as u64;
    let (term, after) = (number("tipoverAppend"), number("after"));
    let answer = |state: &State, agrees: bool| {
        let node = &state.nodes[0];
        doc! { "ok": 1.0, "term": node.term as i64, "agrees": agrees, "position": node.position() as i64,
        "journalled": node.journalled as i64 }
    };
    if term < state.nodes[0].term {
        return answer(state, false);
    }
    follow(state, term);
    state.heard_leader = Some(Instant::now());
    let leader = command.get_str("leader").unwrap_or_default().to_string();
    for node in &mut state.nodes {
        node.primary = node.name == leader;
    }
    let node = &mut state.nodes[0];
    if node.arbiter {
        return answer(state, true);
    }
    let known = after.checked_sub(1).map_or(Some(0), |at| node.log.get(at as usize).map(|entry| entry.term));
    if known != Some(number("afterTerm")) {
        return answer(state, false);
    }
    let entries = command.get_array("entries").ok().into_iter().flatten();
    let entries = entries.filter_map(Bson::as_document).filter_map(decoded);
    for (index, entry) in (after..).zip(entries) {
        match node.log.get(index as usize) {
            Some(mine) if mine.term == entry.term => continue,
            Some(_) => {
                node.count("rollbacks", 1);
                node.roll_back(index);
            }
            None => {}
        }
        node.append(entry);
    }
    node.committed = node.committed.max(number("committed").min(node.position()));
    if command.get_bool("flush").unwrap_or(false) {
        node.flush();
    }
    answer(state, true)
}

fn vote(state: &mut State, command: &Document) -> Document {
    let number = |key: &str| whole(command.get(key)).unwrap_or(0) as u64;
    let term = number("tipoverVote");
    let candidate = command.get_str("candidate").unwrap_or_default();
    let node = &state.nodes[0];
    let newest = (node.log.last().map_or(0, |entry| entry.term), node.position());
    let knows_all = node.arbiter || (number("lastTerm"), number("position")) >= newest;
    let mut granted = knows_all && term > node.term;
    if command.get_bool("trial").unwrap_or(false) {
        // Nobody is helped against a primary that is there.
        let election = state.settings.election;
        granted &= !node.primary && state.heard_leader.is_none_or(|heard| heard.elapsed() > election * 3 / 4);
    } else {
        follow(state, term);
        let free = state.voted.as_deref().is_none_or(|voted| voted == candidate);
        granted = knows_all && term == state.nodes[0].term && free;
        if granted {
            state.voted = Some(candidate.to_string());
            state.heard_leader = Some(Instant::now());
            remember(state);
        }
    }
    doc! { "ok": 1.0, "term": state.nodes[0].term as i64, "granted": granted }
}

fn status(state: &State) -> Document {
    if state.nodes.len() == 1 {
        return failure(94, "NotYetInitialized", "no replset config has been received");
    }
    let leads = state.nodes[0].primary;
    let now = Instant::now();
    let mut members: Vec<(u32, Document)> = state
        .nodes
        .iter()
        .enumerate()
        .map(|(place, node)| {
            let heard = node.heard.is_some_and(|heard| now - heard < state.settings.election);
            let healthy = place == 0 || node.primary || !leads || heard;
            let shown = match (node.arbiter, node.primary) {
                _ if !healthy => "(not reachable/healthy)",
                (true, _) => "ARBITER",
                (_, true) => "PRIMARY",
                _ => "SECONDARY",
            };
            let position = if place == 0 { node.position() } else { node.matched.0 };
            let term = state.nodes[0].term as i64;
            let optime = doc! { "ts": Timestamp { time: 1, increment: position as u32 }, "t": term };
            let health = if healthy { 1.0 } else { 0.0 };
            let member = doc! { "_id": node.number, "name": &node.name, "health": health, "stateStr": shown,
            "optime": optime };
            (node.number, member)
        })
        .collect();
    members.sort_by_key(|(number, _)| *number);
    let members: Vec<Document> = members.into_iter().map(|(_, member)| member).collect();
    doc! { "ok": 1.0, "set": state.settings.set_name.clone(), "members": members }
}

/// Waits until somebody has everything, steps down, and lets that one stand.
fn step_down(shared: &Shared, command: &Document) -> Document {
    let seconds = |key: &str, otherwise: i64| {
        Duration::from_secs(whole(command.get(key)).unwrap_or(otherwise).max(0) as u64)
    };
    let deadline = Instant::now() + seconds("secondaryCatchUpPeriodSecs", 10);
    let mut state = shared.state.lock();
    if !state.nodes[0].primary {
        return failure(10107, "NotWritablePrimary", "not primary so can't step down");
    }
    let successor = loop {
        let all = state.nodes[0].position();
        let ready = state.nodes[1..].iter().find(|node| !node.arbiter && node.matched.0 >= all);
        if let Some(ready) = ready {
            break ready.name.clone();
        }
        if shared.changed.wait_until(&mut state, deadline).timed_out() {
            return failure(262, "ExceededTimeLimit", "No electable secondaries caught up");
        }
    };
    state.depose(0);
    state.frozen_until = Some(Instant::now() + seconds("replSetStepDown", 60));
    drop(state);
    shared.changed.notify_all();
    // It stands by itself after a while if this does not reach it.
    std::thread::spawn(move || Peer::new(&successor).ask(&doc! { "replSetStepUp": 1 }));
    doc! { "ok": 1.0 }
}

/// A connection to another member, made when it is needed.
pub struct Peer {
    name: String,
    stream: Option<TcpStream>,
}

impl Peer {
    /// Of the member `host:port`.
    pub fn new(name: &str) -> Peer {
        Peer { name: name.into(), stream: None }
    }

    /// Asks, in the database `admin` if the command names none, and waits half a second.
    pub fn ask(&mut self, command: &Document) -> io::Result<Document> {
        self.within(PATIENCE, command)
    }

    /// Asks, and waits as long as it takes.
    pub fn forward(&mut self, command: &Document) -> io::Result<Document> {
        self.within(Duration::from_secs(60), command)
    }

    fn within(&mut self, patience: Duration, command: &Document) -> io::Result<Document> {
        let answered = self.exchange(patience, command);
        if answered.is_err() {
            self.stream = None;
        }
        answered
    }

    fn exchange(&mut self, patience: Duration, command: &Document) -> io::Result<Document> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let address = self.name.to_socket_addrs()?.next();
                let address = address.ok_or_else(|| io::Error::other("no such host"))?;
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                self.stream.insert(stream)
            }
        };
        stream.set_read_timeout(Some(patience))?;
        let mut command = command.clone();
        if !command.contains_key("$db") {
            command.insert("$db", "admin");
        }
        message::write(stream, 0, &command)?;
        Ok(message::read(stream)?.command)
    }
}
