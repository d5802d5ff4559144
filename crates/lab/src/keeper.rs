//! A keeper: a process that holds a cluster and listens on a socket, so that it stays until told otherwise.
//!
//! Everything of the laboratory dies with its keeper. One line of JSON asks, one line answers.

use crate::network::LinkCounters;
use crate::{Binaries, Cluster, ClusterError, ClusterOptions};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tipover_core::experiment::recipe::Recipe;
use tipover_core::peer;
use tipover_disk::DaemonCommand;

/// How long a keeper may take to answer; a cluster that comes up has minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a keeper is to make.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// What the laboratory is called.
    pub name: String,
    /// What the recipe is called, and what stands in it.
    pub recipe: (String, Recipe),
    /// Major version of the server; `None`: the newest that is installed.
    pub version: Option<u32>,
    /// Whether nodes have namespaces of their own.
    pub network: bool,
    /// The user's own programs.
    pub binaries: Binaries,
    /// Where disks that are backed by a real one keep their bytes, if the recipe names no folder.
    pub folder: PathBuf,
}

/// What a keeper is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// How the laboratory is.
    Status,
    /// What is counted of every node.
    Counters,
    /// To end it.
    Down,
}

/// A laboratory as its keeper sees it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// What it is called.
    pub name: String,
    /// What its recipe is called.
    pub recipe: String,
    /// The keeper's process.
    pub keeper_pid: u32,
    /// Which program serves, with its version.
    pub server: String,
    /// Who takes writes.
    pub primary: String,
    /// For clients of the whole, where that is more than the primary's address.
    pub url: Option<String>,
    /// Its nodes.
    pub nodes: Vec<NodeStatus>,
    /// The links between them.
    pub links: Vec<LinkStatus>,
    /// What cannot be had on this machine.
    pub lost: Vec<String>,
}

/// A node as its keeper sees it.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// What a client takes.
    pub url: String,
    /// Its server's Unix socket.
    pub socket: PathBuf,
    /// Its server's main process; 0 if it does not run.
    pub pid: u32,
    /// Whether it serves.
    pub running: bool,
    /// What its processes hold.
    pub memory_bytes: Option<u64>,
    /// A file of the keeper by which another process enters the node's network.
    pub namespace: Option<PathBuf>,
}

/// A direction of a link as its keeper sees it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Whose packets.
    pub from: String,
    /// To whom.
    pub to: String,
    /// What became of them.
    pub counters: LinkCounters,
}

/// What a keeper answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The laboratory is up, and how it is.
    Up(Box<Status>),
    /// What is counted of every node, as whoever started the keeper reads it.
    Counters(serde_json::Value),
    /// It was ended.
    Gone,
    /// It could not be made, or the question makes no sense.
    Failed(String),
}

/// Why a keeper gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A name that would leave the folder of sockets.
    #[error("a laboratory's name is letters, digits and hyphens, not {0:?}")]
    Name(String),
    /// None listens.
    #[error("no laboratory called {name:?} is up ({others}); `tipover lab up RECIPE` starts one")]
    NotUp {
        /// The name that was asked for.
        name: String,
        /// Which ones are up.
        others: String,
    },
    /// One of this name listens already.
    #[error("a laboratory of this name is up already")]
    IsUp,
    /// The connection broke, or a socket could not be made.
    #[error(transparent)]
    Lost(#[from] io::Error),
    /// It said something else.
    #[error("the keeper said {0:?}")]
    Nonsense(String),
    /// The cluster could not be made.
    #[error(transparent)]
    Cluster(Box<ClusterError>),
}

/// Reads what is counted of every node, or says in words why it cannot.
pub type Counters<'a> = &'a mut dyn FnMut(&Cluster) -> Result<serde_json::Value, String>;

/// How the laboratory's daemons are started.
#[derive(Debug, Clone)]
pub struct Daemons {
    /// Of the network.
    pub network: DaemonCommand,
    /// Of a shaped disk.
    pub disk: DaemonCommand,
}

/// Whether a name can be a laboratory's.
///
/// # Errors
/// It is not made of letters, digits and hyphens.
pub fn check_name(name: &str) -> Result<(), KeeperError> {
    match name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
        true => Err(KeeperError::Name(name.into())),
        false => Ok(()),
    }
}

/// Where the sockets of this user's keepers are.
fn folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/tipover/lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("tipover/lab"),
        None => std::env::temp_dir().join(format!("tipover-lab-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The socket of the keeper of this name.
fn socket_of(name: &str) -> PathBuf {
    folder().join(format!("{name}.sock"))
}

/// Names of the laboratories that are up; sockets of dead keepers are removed on the way.
fn names() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder()) else { return Vec::new() };
    let mut names = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        match UnixStream::connect(&path) {
            Ok(_) => names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned())),
            Err(_) => drop(std::fs::remove_file(&path)),
        }
    }
    names
}

/// Whether a laboratory of this name is up.
pub fn is_up(name: &str) -> bool {
    UnixStream::connect(socket_of(name)).is_ok()
}

/// Asks the keeper of this name, and waits for its answer.
///
/// # Errors
/// There is none, or it does not answer.
pub fn ask(name: &str, request: &Request) -> Result<Reply, KeeperError> {
    check_name(name)?;
    let mut stream = UnixStream::connect(socket_of(name)).map_err(|_| {
        let up = names();
        let others = if up.is_empty() { "none is".into() } else { format!("there are {}", up.join(", ")) };
        KeeperError::NotUp { name: name.into(), others }
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    peer::say(&mut stream, request)?;
    let mut said = String::new();
    BufReader::new(stream).read_line(&mut said)?;
    serde_json::from_str(&said).map_err(|_| KeeperError::Nonsense(said))
}

/// Makes what is ordered, says through `say` how that went, and holds it until it is told to end, or until
/// `ended` is set.
///
/// # Errors
/// Only what [`say`](Fn) could not say.
pub fn keep(
    order: &Order,
    daemons: &Daemons,
    ended: &AtomicBool,
    counters: Counters<'_>,
    say: &mut dyn FnMut(&Reply) -> io::Result<()>,
) -> io::Result<()> {
    let path = socket_of(&order.name);
    let failed = |error| KeeperError::Cluster(Box::new(error));
    let up = listen(&path).and_then(|listener| Ok((listener, start(order, daemons).map_err(failed)?)));
    let (listener, mut cluster) = match up {
        Ok(up) => up,
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            return say(&Reply::Failed(error.to_string()));
        }
    };
    let first = describe(order, &mut cluster);
    say(&Reply::Up(Box::new(first)))?;
    let served = serve(&listener, order, cluster, ended, counters);
    let _ = std::fs::remove_file(&path);
    served
}

fn listen(path: &Path) -> Result<UnixListener, KeeperError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Only for us: whoever can talk to a keeper can end it.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if UnixStream::connect(path).is_ok() {
        return Err(KeeperError::IsUp);
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn start(order: &Order, daemons: &Daemons) -> Result<Cluster, ClusterError> {
    let mut cluster = Cluster::start(&ClusterOptions {
        recipe: order.recipe.1.clone(),
        version: order.version,
        disk_daemon: Some(daemons.disk.clone()),
        folder: order.folder.clone(),
        network: order.network.then(|| daemons.network.clone()),
        own: None,
        binaries: order.binaries.clone(),
        seed: 1,
    })?;
    let recipe = cluster.recipe().clone();
    cluster.shape(&recipe)?;
    Ok(cluster)
}

fn serve(
    listener: &UnixListener,
    order: &Order,
    mut cluster: Cluster,
    ended: &AtomicBool,
    counters: Counters<'_>,
) -> io::Result<()> {
    while !ended.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // One client at a time, and none may hold us up: each says one line.
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut asked = String::new();
        if BufReader::new(&stream).read_line(&mut asked).is_err() {
            continue;
        }
        let answer = match serde_json::from_str(&asked) {
            Ok(Request::Status) => Reply::Up(Box::new(describe(order, &mut cluster))),
            Ok(Request::Counters) => counters(&cluster).map_or_else(Reply::Failed, Reply::Counters),
            Ok(Request::Down) => {
                drop(cluster);
                // A client that is gone already is no reason to stay.
                let _ = peer::say(&mut stream, &Reply::Gone);
                return Ok(());
            }
            // Somebody only looked whether we live.
            Err(_) if asked.is_empty() => continue,
            Err(error) => Reply::Failed(error.to_string()),
        };
        let _ = peer::say(&mut stream, &answer);
    }
    Ok(())
}

fn describe(order: &Order, cluster: &mut Cluster) -> Status {
    cluster.find_primary();
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name().to_string()).collect();
    let mut nodes = Vec::new();
    let keeper_pid = std::process::id();
    for name in names {
        let url = cluster.url(&name).unwrap_or_default();
        let Ok(node) = cluster.node_mut(&name) else { continue };
        let running = node.is_running();
        let namespace = node
            .member()
            .and_then(|member| member.namespace.as_ref())
            .map(|file| PathBuf::from(format!("/proc/{keeper_pid}/fd/{}", file.as_raw_fd())));
        nodes.push(NodeStatus {
            address: node.address().to_string(),
            socket: node.server().map(|server| server.socket()).unwrap_or_default(),
            pid: node.server().map_or(0, |server| server.pid()),
            memory_bytes: node.group().and_then(|group| group.memory().ok()).map(|memory| memory.usage),
            name,
            url,
            running,
            namespace,
        });
    }
    let pairs = cluster.network().ok().and_then(|network| network.pairs().ok()).unwrap_or_default();
    let links = pairs.into_iter();
    let links = links.map(|pair| LinkStatus { from: pair.from, to: pair.to, counters: pair.counters });
    let server = cluster.nodes().first().and_then(|node| node.server());
    Status {
        name: order.name.clone(),
        recipe: order.recipe.0.clone(),
        keeper_pid,
        server: server.map(|server| server.version().to_string()).unwrap_or_default(),
        primary: cluster.primary().into(),
        url: cluster.client_url(),
        nodes,
        links: links.collect(),
        lost: cluster.lost().to_vec(),
    }
}

/// Lines to and from a keeper, read and written again.
pub mod untrusted {
    use super::{Order, Reply, Request};
    use tipover_core::peer::again;

    /// What it is to make.
    pub fn order(said: &str) -> serde_json::Result<String> {
        again::<Order>(said)
    }
    /// What it is asked.
    pub fn request(said: &str) -> serde_json::Result<String> {
        again::<Request>(said)
    }
    /// What it answers.
    pub fn answer(said: &str) -> serde_json::Result<String> {
        again::<Reply>(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_folder() {
        assert!(check_name("lab-2").is_ok());
        for wrong in ["", "../x", "a b", "a/b"] {
            assert!(matches!(check_name(wrong), Err(KeeperError::Name(name)) if name == wrong), "{wrong}");
        }
    }
}
