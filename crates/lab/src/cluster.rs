//! A cluster: nodes from a recipe, joined by a network, with a primary where there is one.

use crate::cluster_recipe::{BadRecipe, ClusterRecipe, Replication, System, Values, fill};
use crate::network::{LABORATORY, Link, LinkCounters, Network, NetworkError, NetworkOptions};
use crate::node::{Node, NodeError, NodeOptions, effect};
use crate::recipe::{
    Ferret, Mariadb, Missing, Own, Postgres, Server, ServerError, ServerOptions, Stop, USER, random_password,
};
use crate::{Limits, Signal};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::schedule::Effect;
use tipover_disk::{DaemonCommand, MountOptions};

/// What cluster to make.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Of which kind.
    pub recipe: ClusterRecipe,
    /// Major version of the server; `None`: the newest that is installed.
    pub version: Option<u32>,
    /// For each node.
    pub limits: Limits,
    /// For each node; `None`: this machine's disk.
    pub disk: Option<MountOptions>,
    /// Settings in the server's own words; they win over the recipe's.
    pub settings: Vec<(String, String)>,
    /// How to start the network's daemon; `None`: no namespaces, each node has an address of the loopback.
    pub network: Option<DaemonCommand>,
    /// How to start the server where it is a program of ours (WiredTiger).
    pub own: Option<Own>,
    /// For the network's chances.
    pub seed: u64,
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
    from: String,
    to: String,
    before: LinkCounters,
}

#[derive(Debug, Clone)]
enum Program {
    Postgres(Postgres),
    Mariadb(Mariadb),
    Ferret(Ferret),
    Own(Own),
}

impl Program {
    fn find(options: &ClusterOptions) -> Result<Program, Missing> {
        let version = options.version;
        Ok(match options.recipe.server {
            System::Postgres => Program::Postgres(Postgres::find(version)?),
            System::Mariadb => Program::Mariadb(Mariadb::find(version)?),
            System::Ferretdb => Program::Ferret(Ferret::find()?),
            System::Wiredtiger => Program::Own(options.own.clone().ok_or_else(|| Missing {
                what: "a program with WiredTiger in it".into(),
                looked: "this one serves none".into(),
                advice: "use `tipover break wiredtiger`".into(),
            })?),
        })
    }

    fn prepare(&self, options: &ServerOptions) -> Result<Server, ServerError> {
        match self {
            Program::Postgres(postgres) => Server::prepare(Arc::new(postgres.clone()), options),
            Program::Mariadb(mariadb) => Server::prepare(Arc::new(mariadb.clone()), options),
            Program::Ferret(ferret) => Server::prepare(Arc::new(ferret.clone()), options),
            Program::Own(own) => Server::prepare(Arc::new(own.clone()), options),
        }
    }
}

/// A running cluster. Dropping it takes everything away.
#[derive(Debug)]
pub struct Cluster {
    // Nodes before the network that they are in.
    nodes: Vec<Node>,
    network: Option<Network>,
    recipe: ClusterRecipe,
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
        let program = Program::find(options)?;
        let names = &options.recipe.nodes;
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
        for (i, name) in names.iter().enumerate() {
            let member = network.as_ref().map(|network| network.member(name).cloned()).transpose()?;
            nodes.push(Node::new(NodeOptions {
                name: name.clone(),
                limits: options.limits.clone(),
                disk: options.disk.clone(),
                member,
                loopback: Some(own_loopback(i)),
            })?);
        }
        let password = random_password()
            .map_err(|error| ClusterError::Senseless(format!("no random numbers here: {error}")))?;
        let recipe = options.recipe.clone();
        let link = Link::default();
        let mut cluster = Cluster { nodes, network, recipe, program, primary: 0, password, lost, link };
        cluster.prepare(&options.settings)?;
        cluster.bring_up()?;
        Ok(cluster)
    }

    /// Makes the first node's files, and copies them for the others: far quicker than making each, and the
    /// way to a standby without a transfer.
    fn prepare(&mut self, settings: &[(String, String)]) -> Result<(), ClusterError> {
        for i in 0..self.nodes.len() {
            let mut all = self.recipe.settings_of(&self.values(i))?;
            // A setting of the user's may name nodes, as the recipe's do.
            for (name, value) in settings {
                all.push((name.clone(), fill(value, &self.values(i))?));
            }
            let options = ServerOptions {
                settings: all,
                port: Some(self.recipe.port),
                password: Some(self.password.clone()),
                ..ServerOptions::default()
            };
            let options = self.nodes[i].server_options(&options);
            let failed = self.failed(i);
            if i > 0 {
                copy(&self.nodes[0].folder(), &self.nodes[i].folder()).map_err(self.failed(i))?;
            }
            let server = self.program.prepare(&options).map_err(failed)?;
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
            let others = fill("gcomm://{addresses}", &self.values(0))?;
            let server = self.nodes[0].server_mut()?;
            server.set("wsrep_cluster_address", "gcomm://");
            self.nodes[0].start()?;
            self.nodes[0].server_mut()?.set("wsrep_cluster_address", &others);
        }
        // All begin at once: a primary that waits for its standbys is of no use to anybody until they come.
        for i in 0..self.nodes.len() {
            let failed = self.failed(i);
            self.nodes[i].server_mut()?.launch().map_err(failed)?;
        }
        for node in &mut self.nodes {
            node.start()?;
        }
        for i in 0..self.nodes.len() {
            let failed = self.failed(i);
            let server = self.nodes[i].server_mut()?;
            server.wait_ready(PATIENCE).and_then(|()| server.flush_new_data()).map_err(failed)?;
        }
        if let Some(text) = self.recipe.statements.replicas.clone() {
            for i in (0..self.nodes.len()).filter(|i| *i != self.primary) {
                self.query(i, &fill(&text, &self.values(i))?)?;
            }
        }
        self.wait_whole(PATIENCE)?;
        if let Some(text) = self.recipe.statements.primary.clone() {
            self.query(self.primary, &fill(&text, &self.values(self.primary))?)?;
        }
        Ok(())
    }

    fn values(&self, number: usize) -> Values<'_> {
        Values {
            nodes: self.nodes.iter().map(|n| (n.name().to_string(), n.address().to_string())).collect(),
            number,
            primary: self.primary,
            port: self.recipe.port,
            user: USER,
            password: &self.password,
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
        loop {
            let missing = self.missing();
            if missing.is_empty() {
                return Ok(());
            }
            if began.elapsed() > patience {
                return Err(ClusterError::NotYet {
                    wanted: "every node follows".into(),
                    waited: began.elapsed(),
                    found: missing.join("; "),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
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

    /// What keeps the cluster from being whole, a sentence for each node.
    fn missing(&mut self) -> Vec<String> {
        let running: Vec<usize> = (0..self.nodes.len()).filter(|i| self.nodes[*i].is_running()).collect();
        let mut missing = Vec::new();
        for &i in &running {
            let name = self.nodes[i].name();
            let (question, wanted) = match self.recipe.replication {
                Replication::None => continue,
                Replication::Streaming if i == self.primary => {
                    ("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", running.len() - 1)
                }
                Replication::Binlog if i != self.primary => (
                    "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE \
                     'Slave has read all relay log%' OR STATE LIKE 'Waiting for master to send event%'",
                    2,
                ),
                Replication::Galera => (
                    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = \
                     'WSREP_CLUSTER_SIZE' AND EXISTS (SELECT 1 FROM information_schema.GLOBAL_STATUS WHERE \
                     VARIABLE_NAME = 'WSREP_LOCAL_STATE_COMMENT' AND VARIABLE_VALUE = 'Synced')",
                    running.len(),
                ),
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

    /// Starts those of these nodes that do not run, each in the role that is now its own.
    ///
    /// # Errors
    /// One does not come back.
    pub fn come_back(&mut self, names: &[String]) -> Result<(), ClusterError> {
        let galera = self.recipe.replication == Replication::Galera;
        if galera && !(0..self.nodes.len()).any(|i| self.nodes[i].is_running()) {
            self.begin_anew(names)?;
        }
        // A standby can be asked for nothing before its primary is there.
        let mut names: Vec<&String> = names.iter().collect();
        names.sort_by_key(|name| *name != self.primary());
        for name in names {
            let node = self.index(name)?;
            if self.nodes[node].is_running() {
                continue;
            }
            if node == self.primary && !galera { self.nodes[node].start()? } else { self.rejoin(name)? }
        }
        Ok(())
    }

    /// Makes a Galera cluster of which nobody is left: whoever has seen most begins, as an administrator
    /// finds out with `--wsrep-recover`.
    fn begin_anew(&mut self, names: &[String]) -> Result<(), ClusterError> {
        let mut best: Option<(i64, usize)> = None;
        for name in names {
            let node = self.index(name)?;
            let failed = self.failed(node);
            let said = self.nodes[node].server_mut()?.run_once(&["--wsrep-recover"]).map_err(failed)?;
            let position = said.iter().rev().find_map(|line| line.split("Recovered position:").nth(1));
            let seen = position.and_then(|position| position.rsplit(':').next()?.trim().parse().ok());
            let seen: i64 = seen.unwrap_or(-1);
            if best.is_none_or(|(most, _)| seen > most) {
                best = Some((seen, node));
            }
        }
        let Some((_, node)) = best else { return Ok(()) };
        let others = fill("gcomm://{addresses}", &self.values(node))?;
        let server = self.nodes[node].server_mut()?;
        let path = server.data().join("grastate.dat");
        if let Ok(text) = std::fs::read_to_string(&path) {
            let text = text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
            let name = self.nodes[node].name().to_string();
            std::fs::write(&path, text).map_err(|source| NodeError::Kernel {
                node: name,
                what: "writing grastate.dat",
                source,
            })?;
        }
        let server = self.nodes[node].server_mut()?;
        server.set("wsrep_cluster_address", "gcomm://");
        self.nodes[node].start()?;
        self.nodes[node].server_mut()?.set("wsrep_cluster_address", &others);
        self.wait_whole(PATIENCE)
    }

    fn index(&self, name: &str) -> Result<usize, ClusterError> {
        self.nodes.iter().position(|node| node.name() == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(Node::name).collect();
            ClusterError::Senseless(format!("there is no node {name:?}; there are {}", known.join(", ")))
        })
    }

    /// Who takes writes. In Galera all do; this is then the one that began.
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
    pub fn recipe(&self) -> &ClusterRecipe {
        &self.recipe
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

    /// The running replica that has received most: the only one that may be promoted without losing what was
    /// acknowledged when not every replica has to confirm.
    pub fn successor(&mut self) -> Result<String, ClusterError> {
        let mut best: Option<(u64, usize)> = None;
        for i in (0..self.nodes.len()).filter(|i| *i != self.primary) {
            if !self.nodes[i].is_running() {
                continue;
            }
            let received = match self.recipe.replication {
                Replication::Streaming => {
                    let question = "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint";
                    self.query(i, question)?.parse().unwrap_or(0)
                }
                _ => 0,
            };
            // Of equals the first.
            if best.is_none_or(|(most, _)| received > most) {
                best = Some((received, i));
            }
        }
        match best {
            Some((_, i)) => Ok(self.nodes[i].name().to_string()),
            None => Err(ClusterError::Senseless("no replica runs that could be promoted".into())),
        }
    }

    /// Makes a replica the primary; see [`Cluster::successor`] for which one. The old one is not asked: it
    /// may be dead, and if it lives, whoever promotes has to stop it first. Other replicas that run follow
    /// the new one.
    ///
    /// # Errors
    /// It does not run, does not follow, or did not become one in time.
    pub fn promote(&mut self, name: &str) -> Result<(), ClusterError> {
        let chosen = self.index(name)?;
        if chosen == self.primary {
            return Err(ClusterError::Senseless(format!("{name} is the primary already")));
        }
        match self.recipe.replication {
            Replication::Streaming => self.promote_standby(chosen)?,
            Replication::Binlog => self.promote_replica(chosen)?,
            Replication::Galera => {}
            Replication::None => {
                return Err(ClusterError::Senseless("a single server has nobody to promote".into()));
            }
        }
        self.primary = chosen;
        for i in (0..self.nodes.len()).filter(|i| *i != chosen) {
            let settings = self.recipe.settings_of(&self.values(i))?;
            let running = self.nodes[i].is_running();
            if self.recipe.replication == Replication::Streaming {
                let server = self.nodes[i].server_mut()?;
                settings.iter().for_each(|(name, value)| server.set(name, value));
                if running {
                    self.nodes[i].restart()?;
                }
            }
        }
        Ok(())
    }

    fn promote_standby(&mut self, chosen: usize) -> Result<(), ClusterError> {
        let failed = self.failed(chosen);
        let server = self.nodes[chosen].server_mut()?;
        // What `pg_ctl promote` does.
        let file = |path: PathBuf| move |source| ServerError::File { path, source };
        let flag = server.data().join("promote");
        std::fs::write(&flag, "")
            .map_err(file(flag))
            .and_then(|()| server.signal(Signal::USR1).map_err(file(server.data().into())))
            .map_err(failed)?;
        self.until("the standby leaves recovery", |cluster| {
            Ok(cluster.query(chosen, "SELECT pg_is_in_recovery()")? == "f")
        })
    }

    /// What has been received must be applied before anything is stopped: in GTID mode what lies in the relay
    /// log is thrown away once both threads are stopped, and acknowledged transactions would be lost by us,
    /// not by the database.
    fn promote_replica(&mut self, chosen: usize) -> Result<(), ClusterError> {
        self.until("the replica applies what it received", |cluster| {
            let question = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE \
                            'Slave has read all relay log%'";
            Ok(cluster.query(chosen, question)? == "1")
        })?;
        self.query(chosen, "STOP SLAVE; RESET SLAVE ALL").map(drop)
    }

    fn until(
        &mut self,
        wanted: &str,
        done: impl Fn(&Cluster) -> Result<bool, ClusterError>,
    ) -> Result<(), ClusterError> {
        let began = Instant::now();
        loop {
            let found = match done(self) {
                Ok(true) => return Ok(()),
                Ok(false) => "it did not happen".to_string(),
                Err(error) => error.to_string(),
            };
            if began.elapsed() > PATIENCE {
                return Err(ClusterError::NotYet { wanted: wanted.into(), waited: began.elapsed(), found });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes a node that was away back in, behind the primary of now. A former primary of PostgreSQL gets a
    /// new copy of the data, because it may have what nobody else has.
    pub fn rejoin(&mut self, name: &str) -> Result<(), ClusterError> {
        let node = self.index(name)?;
        if node != self.primary && self.recipe.replication == Replication::Streaming {
            let server = self.nodes[node].server_mut()?;
            if !server.data().join("standby.signal").exists() {
                self.copy_anew(node)?;
            }
        }
        self.nodes[node].start()?;
        if node != self.primary
            && self.recipe.replication == Replication::Binlog
            && let Some(text) = &self.recipe.statements.replicas
        {
            let text = fill(text, &self.values(node))?;
            let begin = "STOP SLAVE; SET GLOBAL rpl_semi_sync_master_enabled=OFF; \
                         SET GLOBAL gtid_slave_pos=@@GLOBAL.gtid_binlog_pos";
            self.query(node, &format!("{begin}; {text}"))?;
        }
        self.wait_whole(PATIENCE)?;
        // Who was promoted asks for confirmations again as soon as somebody can give them.
        if node != self.primary
            && self.recipe.replication == Replication::Binlog
            && let Some(text) = self.recipe.statements.primary.clone()
        {
            self.query(self.primary, &fill(&text, &self.values(self.primary))?)?;
        }
        Ok(())
    }

    fn copy_anew(&mut self, node: usize) -> Result<(), ClusterError> {
        let Program::Postgres(postgres) = &self.program else { return Ok(()) };
        let from = self.nodes[self.primary].address().to_string();
        let namespace = self.nodes[node].member().and_then(|member| member.namespace.clone());
        let failed = self.failed(node);
        let server = self.nodes[node].server().ok_or_else(|| {
            ClusterError::Senseless(format!("node {} has no server", self.nodes[node].name()))
        })?;
        postgres.copy_from(server, &from, self.recipe.port, namespace.as_ref()).map_err(failed)
    }

    /// Stops the primary in good order and promotes another: what an administrator does before maintenance.
    pub fn step_down(&mut self, successor: &str) -> Result<Effect, ClusterError> {
        let stopped = self.nodes[self.primary].stop(Stop::Fast)?;
        self.promote(successor)?;
        Ok(stopped)
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
    crate::clean_folders();
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
