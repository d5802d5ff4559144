//! A cluster: nodes from a recipe, joined by a network, with a primary where there is one.

mod binlog;
mod failover;
mod program;
mod sets;

use crate::Limits;
use crate::mount_options;
use crate::network::{LABORATORY, Link, LinkCounters, Network, NetworkError, NetworkOptions};
use crate::node::{Node, NodeError, NodeOptions, effect};
use crate::recipe::{
    Authentication, Missing, Own, Server, ServerError, ServerOptions, Transport, USER, random_password,
};
use program::Program;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tipover_core::device;
use tipover_core::experiment::recipe::{BadRecipe, Layout, Recipe, Replication, Role, System, Values};
use tipover_core::experiment::{BackingKind, DiskSpec};
use tipover_core::schedule::Effect;
use tipover_core::units::Bytes;
use tipover_disk::{BackingChoice, DaemonCommand, MountOptions};

/// What cluster to make.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Of which kind, with which limits, disks and settings.
    pub recipe: Recipe,
    /// Major version of the server; `None`: the newest that is installed.
    pub version: Option<u32>,
    /// How to start the daemon of a shaped disk; `None` where no node has one.
    pub disk_daemon: Option<DaemonCommand>,
    /// Where disks that are backed by a real one keep their bytes, if they name no folder.
    pub folder: PathBuf,
    /// How to start the network's daemon; `None`: no namespaces, each node has an address of the loopback.
    pub network: Option<DaemonCommand>,
    /// How to start the server where it is a program of ours (WiredTiger).
    pub own: Option<Own>,
    /// Where the servers are that no package of this machine's brings.
    pub binaries: Binaries,
    /// For the network's chances.
    pub seed: u64,
}

impl ClusterOptions {
    /// The disks of a node, for its data and, if they are apart, for its journal.
    fn disks(&self, role: Role) -> Result<(Option<MountOptions>, Option<MountOptions>), ClusterError> {
        let Some(spec) = self.recipe.disk_of(role) else { return Ok((None, None)) };
        let none = || ClusterError::Senseless("this program has no daemon for shaped disks".into());
        let daemon = self.disk_daemon.clone().ok_or_else(none)?;
        let mount = |spec: &DiskSpec| {
            let backing = match (spec.backing, &spec.folder) {
                (BackingKind::Memory, _) => BackingChoice::Memory,
                (BackingKind::Disk, Some(folder)) => BackingChoice::Directory(folder.into()),
                (BackingKind::Disk, None) => BackingChoice::Directory(self.folder.clone()),
            };
            // The node chooses where.
            let options = mount_options(spec, backing, PathBuf::new(), daemon.clone());
            options.map(|options| MountOptions { power_cuts: true, ..options })
        };
        let small = DiskSpec { size: JOURNAL_DISK.min(spec.size), ..spec.clone() };
        Ok((mount(&spec), spec.journal.as_ref().and_then(|_| mount(&small))))
    }
}

/// The log of any server here, as it is configured by default, with room to spare.
const JOURNAL_DISK: Bytes = Bytes(2 << 30);

/// Whether the program of a recipe is here, and one with transactions of several records if it `transacts`;
/// that of an embedded engine is whoever asks.
///
/// # Errors
/// What is missing, where it was looked for, and how to get it.
pub fn installed(
    recipe: &Recipe,
    version: Option<u32>,
    transacts: bool,
    binaries: &Binaries,
) -> Result<(), Missing> {
    if matches!(recipe.server, System::Wiredtiger | System::Guilty) {
        return Ok(());
    }
    match Program::find(recipe, version, None, binaries)? {
        Program::Mongod(mongod) if transacts => mongod.transacts(recipe.replication == Replication::Sharded),
        _ => Ok(()),
    }
}

/// Programs of the user's own; `None`: looked for in `PATH`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binaries {
    /// MongoDB's server.
    pub mongod: Option<PathBuf>,
    /// MongoDB's router.
    pub mongos: Option<PathBuf>,
    /// PoloDB.
    pub polodb: Option<PathBuf>,
}

/// Why there is no cluster, or why it could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] BadRecipe),
    /// The network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A server that belongs to no node yet, or a question to one.
    #[error("node {node}: {source}")]
    Server {
        /// Which node.
        node: String,
        /// What is wrong.
        source: ServerError,
    },
    /// It did not come to what was waited for.
    #[error("the cluster did not come to this in {waited:.1?}: {wanted}; {found}")]
    NotYet {
        /// What was waited for.
        wanted: String,
        /// How long.
        waited: Duration,
        /// What there was instead.
        found: String,
    },
    /// This cluster cannot do that.
    #[error("{0}")]
    Senseless(String),
}

/// A link whose rule was changed, and what it had done until then.
#[derive(Debug, Clone)]
pub struct LinkFault {
    pub(crate) from: String,
    pub(crate) to: String,
    before: LinkCounters,
}

/// A running cluster. Dropping it takes everything away.
#[derive(Debug)]
pub struct Cluster {
    // Nodes before the network that they are in.
    nodes: Vec<Node>,
    network: Option<Network>,
    recipe: Recipe,
    layout: Layout,
    program: Program,
    primary: usize,
    password: String,
    lost: Vec<String>,
    /// What every link between nodes is like while nothing is broken.
    link: Link,
}

impl std::fmt::Display for LinkFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from {} to {}", self.from, self.to)
    }
}

/// How long a step of the whole cluster may take.
const PATIENCE: Duration = Duration::from_secs(90);

impl Cluster {
    /// Makes one and waits until all nodes serve and follow. Removes first what killed laboratories left.
    pub fn start(options: &ClusterOptions) -> Result<Cluster, ClusterError> {
        clean_before();
        let program =
            Program::find(&options.recipe, options.version, options.own.as_ref(), &options.binaries)?;
        let (recipe, layout) = (options.recipe.clone(), options.recipe.layout());
        let names = &layout.names();
        let mut lost = Vec::new();
        let network = match &options.network {
            Some(daemon) => {
                let (nodes, daemon) = (names.clone(), daemon.clone());
                Some(Network::start(&NetworkOptions { nodes, mtu: 1500, seed: options.seed, daemon })?)
            }
            None => {
                let words =
                    "nodes have addresses of the loopback: links between them cannot be shaped or cut";
                lost.push(words.to_string());
                None
            }
        };
        let mut nodes = Vec::new();
        for (i, node) in layout.nodes.iter().enumerate() {
            let member = network.as_ref().map(|network| network.member(&node.name).cloned()).transpose()?;
            let (disk, journal) = options.disks(node.role)?;
            let memory = recipe.memory_of(node.role).map(|memory| memory.0);
            nodes.push(Node::new(NodeOptions {
                name: node.name.clone(),
                limits: Limits { memory, cpus: recipe.cpus_of(node.role), cpu_set: None },
                disk,
                journal,
                member,
                loopback: Some(own_loopback(i)),
            })?);
        }
        let password = random_password()
            .map_err(|error| ClusterError::Senseless(format!("no random numbers here: {error}")))?;
        let link = Link::default();
        let mut cluster =
            Cluster { nodes, network, recipe, layout, program, primary: 0, password, lost, link };
        cluster.prepare()?;
        cluster.bring_up()?;
        Ok(cluster)
    }

    /// Makes the first node's files, and copies them for the others: far quicker than making each, and the
    /// way to a standby without a transfer.
    fn prepare(&mut self) -> Result<(), ClusterError> {
        for i in 0..self.nodes.len() {
            let options = ServerOptions {
                settings: self.settings_of(i)?,
                port: Some(self.recipe.port),
                password: Some(self.password.clone()),
                authentication: match self.recipe.password {
                    true => Authentication::Password,
                    false => Authentication::Trust,
                },
                transport: if self.recipe.tls { Transport::TlsRequired } else { Transport::Plain },
                ..ServerOptions::default()
            };
            let options = self.nodes[i].server_options(&options);
            let failed = self.failed(i);
            if i > 0 {
                copy(&self.nodes[0].folder(), &self.nodes[i].folder()).map_err(self.failed(i))?;
            }
            let server = self.program.prepare(self.role_of(i), &options).map_err(failed)?;
            if i > 0 && self.recipe.replication == Replication::Streaming {
                make_standby(&server).map_err(self.failed(i))?;
            }
            self.nodes[i].place(server);
        }
        Ok(())
    }

    fn bring_up(&mut self) -> Result<(), ClusterError> {
        let replication = self.recipe.replication;
        if replication == Replication::Galera {
            // An empty list of members begins a new cluster; later starts join the others.
            let others = self.fill("gcomm://{addresses}", 0)?;
            let server = self.nodes[0].server_mut()?;
            server.set("wsrep_cluster_address", "gcomm://");
            self.nodes[0].start()?;
            self.nodes[0].server_mut()?.set("wsrep_cluster_address", &others);
        }
        // All begin at once: a primary that waits for its standbys is of no use to anybody until they come. A
        // router of MongoDB's is ready only when its config servers are a set.
        let now: Vec<usize> = (0..self.nodes.len()).filter(|node| !self.is_router(*node)).collect();
        for &i in &now {
            let failed = self.failed(i);
            self.nodes[i].server_mut()?.launch().map_err(failed)?;
        }
        for &i in &now {
            self.nodes[i].start()?;
        }
        for &i in &now {
            let failed = self.failed(i);
            let server = self.nodes[i].server_mut()?;
            server.wait_ready(PATIENCE).and_then(|()| server.flush_new_data()).map_err(failed)?;
        }
        if !self.layout.sets.is_empty() {
            return self.form_sets();
        }
        // A primary's statement waits until its replicas are attached.
        let (last, first): (Vec<_>, Vec<_>) =
            now.into_iter().partition(|&i| self.layout.nodes[i].role == Role::Primary);
        self.say(&first)?;
        self.wait_whole(PATIENCE)?;
        self.say(&last)
    }

    /// Says to these nodes what their roles are to be told.
    fn say(&self, nodes: &[usize]) -> Result<(), ClusterError> {
        for &i in nodes {
            if let Some(text) = self.recipe.statement_of(self.layout.nodes[i].role) {
                self.query(i, &self.fill(text, i)?)?;
            }
        }
        Ok(())
    }

    /// The settings of a node, in the role that is now its own: whoever is not primary is a replica.
    fn settings_of(&self, node: usize) -> Result<Vec<(String, String)>, ClusterError> {
        let role = match self.layout.nodes[node].role {
            Role::Primary | Role::Replica if node != self.primary => Role::Replica,
            role => role,
        };
        Ok(self.recipe.settings_of(role, &self.values(node))?)
    }

    fn fill(&self, text: &str, node: usize) -> Result<String, ClusterError> {
        self.values(node).fill(text).map_err(ClusterError::Senseless)
    }

    fn values(&self, number: usize) -> Values<'_> {
        Values {
            nodes: self.nodes.iter().map(|n| (n.name().to_string(), n.address().to_string())).collect(),
            number,
            primary: self.primary,
            port: self.recipe.port,
            user: USER,
            password: if self.recipe.password { &self.password } else { "" },
            tls: self.recipe.tls,
        }
    }

    fn failed(&self, node: usize) -> impl FnOnce(ServerError) -> ClusterError + use<> {
        let node = self.nodes[node].name().to_string();
        move |source| ClusterError::Server { node, source }
    }

    fn query(&self, node: usize, statement: &str) -> Result<String, ClusterError> {
        let Some(server) = self.nodes[node].server() else {
            return Err(ClusterError::Senseless(format!("node {} has no server", self.nodes[node].name())));
        };
        server.query(statement).map_err(self.failed(node))
    }

    /// Waits until every running node that is not paused follows, or is a full member.
    ///
    /// # Errors
    /// [`ClusterError::NotYet`] with what is missing.
    pub fn wait_whole(&mut self, patience: Duration) -> Result<(), ClusterError> {
        let began = Instant::now();
        let (written, mut goals) = (self.written(), BTreeMap::new());
        loop {
            let missing = match self.layout.sets.as_slice() {
                [] => self.missing(&written),
                _ => self.missing_in_sets(&mut goals),
            };
            if missing.is_empty() {
                self.find_primary();
                return Ok(());
            }
            if began.elapsed() > patience || !self.any_runs() {
                return Err(ClusterError::NotYet {
                    wanted: "every node follows".into(),
                    waited: began.elapsed(),
                    found: missing.join("; "),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether there is anybody to wait for.
    fn any_runs(&mut self) -> bool {
        self.nodes.iter_mut().any(Node::is_running)
    }

    /// A node that has everything that was acknowledged: the primary, or a member of Galera that neither
    /// gives nor takes a copy now, because a donor falls behind meanwhile. `None` if no member is like that.
    pub fn survivor(&self) -> Option<&str> {
        if self.recipe.replication != Replication::Galera {
            return Some(self.primary());
        }
        let question = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = \
                        'WSREP_LOCAL_STATE_COMMENT'";
        let synced = |i: &usize| self.query(*i, question).is_ok_and(|answer| answer == "Synced");
        (0..self.nodes.len()).find(synced).map(|i| self.nodes[i].name())
    }

    /// What keeps the cluster from being whole, a sentence for each node. `written` is where the primary's
    /// binary log was.
    fn missing(&mut self, written: &str) -> Vec<String> {
        let running: Vec<usize> = (0..self.nodes.len()).filter(|i| self.nodes[*i].is_running()).collect();
        let mut missing = Vec::new();
        for &i in &running {
            let name = self.nodes[i].name();
            let (question, wanted) = match self.recipe.replication {
                Replication::None => continue,
                Replication::Streaming if i == self.primary => {
                    ("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", running.len() - 1)
                }
                Replication::Binlog if i != self.primary => {
                    missing.extend(self.lagging(i, written).map(|words| format!("{name}: {words}")));
                    continue;
                }
                Replication::Galera => {
                    missing.extend(self.not_synced(i, running.len()).map(|words| format!("{name}: {words}")));
                    continue;
                }
                _ => continue,
            };
            match self.query(i, question) {
                Ok(answer) if answer.parse() == Ok(wanted) => {}
                Ok(answer) => missing.push(format!("{name} says {answer:?} where {wanted} is wanted")),
                Err(error) => missing.push(error.to_string()),
            }
        }
        missing
    }

    /// What keeps a member of Galera from being a full one of `members`, in its own words.
    fn not_synced(&self, node: usize, members: usize) -> Option<String> {
        let question = "SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) FROM \
                        information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('WSREP_CLUSTER_SIZE', \
                        'WSREP_LOCAL_RECV_QUEUE', 'WSREP_LOCAL_STATE_COMMENT')";
        let answer = match self.query(node, question) {
            Ok(answer) => answer,
            Err(error) => return Some(error.to_string()),
        };
        let mut words = answer.splitn(3, ',');
        let mut word = || words.next().unwrap_or("?");
        let (size, queue, state) = (word(), word(), word());
        let full = size.parse() == Ok(members) && state == "Synced";
        (!full).then(|| {
            format!(
                "it is {state} in a cluster of {size} of {members}, with {queue} transactions still to apply"
            )
        })
    }

    /// All nodes, in the recipe's order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Result<&Node, ClusterError> {
        Ok(&self.nodes[self.index(name)?])
    }

    /// A node by name, to break it.
    pub fn node_mut(&mut self, name: &str) -> Result<&mut Node, ClusterError> {
        let index = self.index(name)?;
        Ok(&mut self.nodes[index])
    }

    /// Does something with several nodes at the same time.
    ///
    /// # Errors
    /// An unknown name before anything is done; else the first failure, when all are through.
    pub(crate) fn each<R: Send>(
        &mut self,
        names: &[String],
        act: impl Fn(&mut Node) -> Result<R, NodeError> + Sync,
    ) -> Result<Vec<(String, R)>, ClusterError> {
        for name in names {
            self.index(name)?;
        }
        let chosen = self.nodes.iter_mut().filter(|node| names.iter().any(|name| name == node.name()));
        let all: Vec<(String, Result<R, NodeError>)> = std::thread::scope(|scope| {
            let act = &act;
            let started: Vec<_> =
                chosen.map(|node| (node.name().to_string(), scope.spawn(move || act(node)))).collect();
            let ended = started.into_iter().map(|(name, thread)| {
                (name, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            ended.collect()
        });
        all.into_iter().map(|(name, result)| Ok((name, result?))).collect()
    }

    fn index(&self, name: &str) -> Result<usize, ClusterError> {
        self.nodes.iter().position(|node| node.name() == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(Node::name).collect();
            ClusterError::Senseless(format!("there is no node {name:?}; there are {}", known.join(", ")))
        })
    }

    /// Who takes writes. In Galera all do; this is then the one that began. Of MongoDB's it is who was found
    /// last by [`Cluster::find_primary`], in a sharded cluster the first shard's.
    pub fn primary(&self) -> &str {
        self.nodes[self.primary].name()
    }

    /// What a client of this node takes.
    pub fn url(&self, name: &str) -> Result<String, ClusterError> {
        let node = self.node(name)?;
        node.server()
            .map(Server::url)
            .ok_or_else(|| ClusterError::Senseless(format!("node {name} has no server")))
    }

    /// What cannot be had on this machine, a sentence each.
    pub fn lost(&self) -> &[String] {
        &self.lost
    }

    /// The recipe it was made from.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Its nodes' roles, and MongoDB's sets.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Gives every disk the shape that `recipe` says, which differs from the cluster's own in nothing else.
    /// Until then they are as fast as they can be: making a database on a spinning disk takes minutes.
    ///
    /// # Errors
    /// A disk does not obey.
    pub fn shape(&mut self, recipe: &Recipe) -> Result<(), ClusterError> {
        self.recipe = recipe.clone();
        self.each_disk(&|shape| {
            shape
                .parse()
                .map_err(|error| ClusterError::Senseless(format!("{shape:?} is no shape of a disk: {error}")))
        })
    }

    /// Makes every disk as fast as it can be.
    ///
    /// # Errors
    /// A disk does not obey.
    pub fn unshape(&self) -> Result<(), ClusterError> {
        self.each_disk(&|_| Ok(device::Spec::default()))
    }

    fn each_disk(
        &self,
        shape: &dyn Fn(&str) -> Result<device::Spec, ClusterError>,
    ) -> Result<(), ClusterError> {
        for (node, placed) in self.nodes.iter().zip(&self.layout.nodes) {
            let Some(spec) = self.recipe.disk_of(placed.role) else { continue };
            let shapes = [(node.disk(), Some(&spec.shape)), (node.journal(), spec.journal.as_ref())];
            for (disk, text) in shapes.into_iter().filter_map(|(disk, text)| Some((disk?, text?))) {
                let failed = |source| NodeError::Disk { node: node.name().into(), source };
                disk.set_spec(&shape(text)?).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The network, if it has one.
    pub fn network(&self) -> Result<&Network, ClusterError> {
        self.network.as_ref().ok_or_else(|| ClusterError::Senseless(self.lost.join("; ")))
    }

    /// Changes what happens from one member to another until [`Cluster::heal_link`]. The laboratory is a
    /// member too: [`crate::network::LABORATORY`].
    pub fn break_link(&self, from: &str, to: &str, link: Link) -> Result<LinkFault, ClusterError> {
        let network = self.network()?;
        let before = network.pair(from, to)?.counters;
        network.set(from, to, link)?;
        Ok(LinkFault { from: from.into(), to: to.into(), before })
    }

    /// Lets everything through again; the effect is how many packets the rule touched.
    pub fn heal_link(&self, fault: &LinkFault) -> Result<Effect, ClusterError> {
        let network = self.network()?;
        network.set(&fault.from, &fault.to, self.usual_link(&fault.from, &fault.to))?;
        let touched = network.pair(&fault.from, &fault.to)?.counters.since(&fault.before).touched();
        let reason = format!("no packet went from {} to {} meanwhile", fault.from, fault.to);
        Ok(effect(touched as usize, &reason))
    }

    /// Makes every link between two nodes like this from now on, also after a fault on it is healed. The
    /// laboratory's own links stay as they are.
    pub fn set_links(&mut self, link: Link) -> Result<(), ClusterError> {
        self.link = link;
        let names: Vec<String> = self.nodes.iter().map(|node| node.name().to_string()).collect();
        for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))) {
            if from != to {
                self.network()?.set(from, to, link)?;
            }
        }
        Ok(())
    }

    pub(crate) fn usual_link(&self, from: &str, to: &str) -> Link {
        if from == LABORATORY || to == LABORATORY { Link::default() } else { self.link }
    }

    /// Undoes what was done to nodes and links: resumes, releases, heals, and starts what does not run.
    ///
    /// # Errors
    /// The first that failed; the others are undone all the same.
    pub fn undo_all(&mut self) -> Result<(), ClusterError> {
        let mut result = self.network.as_ref().map_or(Ok(()), |network| network.heal().map_err(Into::into));
        for node in &mut self.nodes {
            let undone = node.resume().and_then(|_| node.release()).and_then(|_| node.start());
            result = result.and(undone.map_err(Into::into));
        }
        result
    }
}

/// What killed laboratories left costs memory and processors, which a measurement would blame on its own.
fn clean_before() {
    // What cannot be removed now is shown by `tipover doctor`; it is no reason not to begin.
    let _ = crate::clean();
    crate::clean_folders(&std::env::temp_dir());
}

/// An address of the loopback that differs between laboratories: 127.0.0.0/8 is all this machine's own.
fn own_loopback(node: usize) -> Ipv4Addr {
    let [high, low] = ((std::process::id() % 60_000) as u16).to_be_bytes();
    Ipv4Addr::new(127, 1 + high, low, 10 + node as u8)
}

fn copy(from: &Path, to: &Path) -> Result<(), ServerError> {
    let mut command = Command::new("/bin/cp");
    command.arg("-a").arg(from).arg(to);
    let file = |source| ServerError::File { path: to.into(), source };
    let output = command.output().map_err(file)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(ServerError::Step {
            step: "copying the first node's files".into(),
            ending: String::from_utf8_lossy(&output.stderr).trim().into(),
        }),
    }
}

fn make_standby(server: &Server) -> Result<(), ServerError> {
    let path = server.data().join("standby.signal");
    std::fs::write(&path, "").map_err(|source| ServerError::File { path, source })
}
