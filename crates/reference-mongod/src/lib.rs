//! A small server that speaks MongoDB's wire protocol and behaves as a replica set does: elections, majority
//! acknowledgement, rollback, retryable writes, transactions with snapshots and conflicts.
//!
//! **This is not MongoDB.** It shares no code with it, keeps its documents in memory, and knows a handful of
//! commands. It exists because no MongoDB can be had where Tipover is built, and because a checker must be
//! tried on a culprit: [`Bugs`] switches on faults that real systems had. All nodes are threads of one
//! process behind one lock, so that [`ReplicaSet::kill`] and [`ReplicaSet::cut`] are exact and nothing is
//! left behind.

mod command;
mod journal;
mod login;
pub mod member;
mod message;
mod profiler;
pub mod router;
mod state;
mod store;
mod wait;

pub use state::{Bugs, Manners, Settings};

use command::{Connection, Turn};
use parking_lot::{Condvar, Mutex};
use state::State;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What all threads share.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    urged: Condvar,
    streams: Mutex<Vec<(usize, TcpStream)>>,
    stop: AtomicBool,
}

impl Shared {
    pub(crate) fn of(state: State) -> Shared {
        Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            urged: Condvar::new(),
            streams: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Somebody waits for replication or for a journal: the next turn must not wait.
    pub(crate) fn urge(&self) {
        self.urged.notify_all();
    }
}

/// A running set. Dropping it stops all of it.
pub struct ReplicaSet {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) const TURN: Duration = Duration::from_millis(2);

impl ReplicaSet {
    /// Starts the nodes on the loopback interface.
    pub fn start(settings: Settings) -> io::Result<ReplicaSet> {
        let port = |index: usize| if settings.port == 0 { 0 } else { settings.port + index as u16 };
        let bind = |index| TcpListener::bind(("127.0.0.1", port(index)));
        let listeners: Vec<TcpListener> = (0..settings.nodes).map(bind).collect::<io::Result<_>>()?;
        let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port()));
        let ports: Vec<u16> = ports.collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared::of(State::new(settings, ports)));
        let mut set = ReplicaSet { shared: shared.clone(), threads: Vec::new() };
        for (node, listener) in listeners.into_iter().enumerate() {
            set.listen(node, listener)?;
        }
        let clockwork = move || {
            while !shared.stop.load(Ordering::Relaxed) {
                let mut state = shared.state.lock();
                state.tick();
                shared.changed.notify_all();
                shared.urged.wait_for(&mut state, TURN);
            }
        };
        set.threads.push(std::thread::Builder::new().name("replication".into()).spawn(clockwork)?);
        Ok(set)
    }

    fn listen(&mut self, node: usize, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let shared = self.shared.clone();
        let life = shared.state.lock().nodes[node].life;
        let accept = move || loop {
            let lives = {
                let state = shared.state.lock();
                state.nodes[node].alive && state.nodes[node].life == life
            };
            if !lives || shared.stop.load(Ordering::Relaxed) {
                return;
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    let serving = shared.clone();
                    let name = std::thread::Builder::new().name(format!("client of {node}"));
                    // Without a thread the client sees its connection close.
                    let _ = name.spawn(move || serve(&serving, node, stream));
                }
                Err(_) => std::thread::sleep(TURN),
            }
        };
        self.threads.push(std::thread::Builder::new().name(format!("listener of {node}")).spawn(accept)?);
        Ok(())
    }

    /// A connection string that names all nodes.
    pub fn url(&self) -> String {
        let state = self.shared.state.lock();
        let hosts: Vec<String> = (0..state.nodes.len()).map(|index| state.host(index)).collect();
        let login = state.settings.login.as_ref();
        let login = login.map(|(user, password)| format!("{user}:{password}@")).unwrap_or_default();
        let option = match &state.settings.set_name {
            Some(set) => format!("replicaSet={set}"),
            None => "directConnection=true".into(),
        };
        format!("mongodb://{login}{}/tipover?authSource=admin&{option}", hosts.join(","))
    }

    /// The ports of all nodes.
    pub fn ports(&self) -> Vec<u16> {
        self.shared.state.lock().ports.clone()
    }

    /// The primary that a majority reaches.
    pub fn primary(&self) -> Option<usize> {
        self.shared.state.lock().leader()
    }

    /// Ends a node as `kill -9` does: its connections break, and what its journal lacks is gone.
    pub fn kill(&self, node: usize) {
        self.shared.state.lock().kill(node);
        self.close(node);
        self.shared.changed.notify_all();
    }

    /// Breaks all client connections of a node.
    pub fn close(&self, node: usize) {
        let mut streams = self.shared.streams.lock();
        for (_, stream) in streams.iter().filter(|(of, _)| *of == node) {
            // It may be gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        streams.retain(|(of, _)| *of != node);
    }

    /// Starts a killed node again, as a secondary with what its journal held.
    pub fn restart(&mut self, node: usize) -> io::Result<()> {
        let port = self.shared.state.lock().ports[node];
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", port)) {
                Ok(listener) => break listener,
                // The listener of the earlier life looks every few milliseconds whether it is over.
                Err(_) if tries < 200 => tries += 1,
                Err(error) => return Err(error),
            }
            std::thread::sleep(TURN);
        };
        self.shared.state.lock().nodes[node].alive = true;
        self.listen(node, listener)
    }

    /// Cuts `nodes` off from the others; clients still reach everybody.
    pub fn cut(&self, nodes: &[usize]) {
        let mut state = self.shared.state.lock();
        for node in nodes {
            state.nodes[*node].group = 1;
        }
    }

    /// Everybody reaches everybody again.
    pub fn heal(&self) {
        self.shared.state.lock().nodes.iter_mut().for_each(|node| node.group = 0);
    }

    /// Makes a primary step down, so that another one is elected.
    pub fn step_down(&self, node: usize) {
        self.shared.state.lock().depose(node);
        self.shared.changed.notify_all();
    }

    /// Sets the level of a database's profiler, as `db.setProfilingLevel` does.
    ///
    /// # Panics
    /// There is no such level.
    pub fn profile(&self, database: &str, level: i32) {
        let set = self.shared.state.lock().profiler.set(database, &bson::doc! { "profile": level });
        set.expect("a level of MongoDB's");
    }

    /// Sets the faults on purpose.
    pub fn set_bugs(&self, bugs: Bugs) {
        self.shared.state.lock().settings.bugs = bugs;
    }

    /// How often nodes have rolled back.
    pub fn rollbacks(&self) -> i64 {
        let state = self.shared.state.lock();
        state.nodes.iter().map(|node| node.counters.get("rollbacks").copied().unwrap_or(0)).sum()
    }

    /// Waits until a majority has a primary and all live nodes have the same log; false after `patience`.
    pub fn settle(&self, patience: Duration) -> bool {
        let end = std::time::Instant::now() + patience;
        while std::time::Instant::now() < end {
            let state = self.shared.state.lock();
            let length =
                state.leader().map(|leader| (state.nodes[leader].position(), state.nodes[leader].term));
            let same = |node: &state::Node| !node.alive || Some((node.position(), node.term)) == length;
            if length.is_some() && state.nodes.iter().all(same) {
                return true;
            }
            drop(state);
            std::thread::sleep(TURN);
        }
        false
    }
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let nodes = self.shared.state.lock().nodes.len();
        for node in 0..nodes {
            self.kill(node);
        }
        self.shared.urge();
        for thread in self.threads.drain(..) {
            // A panic in there was already printed.
            let _ = thread.join();
        }
    }
}

/// A connection over TCP or a Unix socket.
pub(crate) trait Served: Read + Write + Send {}

impl<T: Read + Write + Send> Served for T {}

/// Listens at an address, or at a path, and hands each connection to a thread of its own.
pub(crate) fn listen_with(
    address: &str,
    port: u16,
    serve: impl Fn(Box<dyn Served>) + Send + Sync + 'static,
) -> io::Result<()> {
    let serve = Arc::new(serve);
    let hand_over = move |stream: Box<dyn Served>| {
        let serve = serve.clone();
        // Without a thread the client sees its connection close.
        let _ = std::thread::Builder::new().spawn(move || serve(stream));
    };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let listener = std::thread::Builder::new().name(format!("listener at {address}"));
    if address.contains('/') {
        let socket = UnixListener::bind(address).map_err(named)?;
        listener.spawn(move || socket.incoming().flatten().for_each(|stream| hand_over(Box::new(stream))))?;
        return Ok(());
    }
    let socket = TcpListener::bind((address, port)).map_err(named)?;
    let accept = move || {
        for stream in socket.incoming().flatten() {
            if stream.set_nodelay(true).is_ok() {
                hand_over(Box::new(stream));
            }
        }
    };
    listener.spawn(accept)?;
    Ok(())
}

/// As [`listen_with`], for a member that is a process of its own.
pub(crate) fn listen_at(shared: &Arc<Shared>, address: &str, port: u16) -> io::Result<()> {
    let shared = shared.clone();
    listen_with(address, port, move |mut stream| {
        let mut connection = Connection::default();
        while let Ok(request) = message::read(&mut stream) {
            let database = request.command.get_str("$db").unwrap_or("test").to_string();
            let turn = Turn { shared: &shared, node: 0, database };
            let Some(answer) = turn.answer(&request.command, &mut connection) else { return };
            if request.expects_answer && message::write(&mut stream, request.id, &answer).is_err() {
                return;
            }
        }
    })
}

/// A whole number in whichever type the client chose.
pub(crate) fn whole(value: Option<&bson::Bson>) -> Option<i64> {
    let value = value?;
    value.as_i64().or(value.as_i32().map(i64::from)).or(value.as_f64().map(|number| number as i64))
}

fn serve(shared: &Arc<Shared>, node: usize, mut stream: TcpStream) {
    // Listeners do not block, and their children would inherit that on some systems.
    let prepared = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
    let Ok(()) = prepared else { return };
    let Ok(copy) = stream.try_clone() else { return };
    shared.streams.lock().push((node, copy));
    let life = {
        let mut state = shared.state.lock();
        state.nodes[node].count("connections", 1);
        (state.nodes[node].alive, state.nodes[node].life)
    };
    let mut connection = Connection::default();
    while let Ok(request) = message::read(&mut stream) {
        let database = request.command.get_str("$db").unwrap_or("test").to_string();
        let answer = Turn { shared, node, database }.answer(&request.command, &mut connection);
        let Some(answer) = answer else { break };
        let sent =
            if request.expects_answer { message::write(&mut stream, request.id, &answer) } else { Ok(0) };
        let mut state = shared.state.lock();
        let here = &mut state.nodes[node];
        if (here.alive, here.life) != life {
            break;
        }
        here.count("requests", 1);
        here.count("bytes in", request.bytes as i64);
        here.count("bytes out", sent.as_ref().map_or(0, |bytes| *bytes as i64));
        if sent.is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    shared.state.lock().nodes[node].count("connections", -1);
}
