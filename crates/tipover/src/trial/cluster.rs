//! The cluster of a cell: started once, used by all trials of the cells that differ in their disks' shape
//! alone.

use super::Report;
use super::site::bring_records;
use crate::endpoints::Endpoint;
use crate::generator::{Secret, Servers};
use crate::interrupt::Interrupt;
use crate::probe::NodeProbe;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tipover_core::check::Source;
use tipover_core::device::Counters;
use tipover_core::experiment::recipe::{Replication, SHARDING};
use tipover_core::experiment::{LabSpec, Spec, TargetKind};
use tipover_core::metric::{Metric, Sample, probe as probes};
use tipover_core::target::{Facts, Target};
use tipover_core::units::{Bytes, Tick};
use tipover_disk::{DaemonCommand, Disk};
use tipover_lab::network::Link;
use tipover_lab::recipe::Own;
use tipover_lab::{Binaries, Cluster, ClusterOptions, Node};

/// How long a server that answers may still recover; what it cannot give by then it does not have.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running cluster, and the cell it was made for.
pub struct Running {
    spec: Spec,
    cluster: Cluster,
    /// What its target said when the records of the cell had been written.
    loaded: Option<Facts>,
}

/// The cell without what a running cluster can change.
fn unshaped(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    spec.disk.shape = String::new();
    spec
}

/// Whether a trial can leave other records behind than it found: it inserts some, its scripts may, or a fault
/// may lose them.
fn changes_records(spec: &Spec) -> bool {
    let inserts = match spec.scripts(0) {
        Some(scripts) => scripts.may_change(),
        None => spec.workload.mix().share_of_inserts() > 0.0,
    };
    !spec.checks_alone() && (inserts || spec.breaking.is_some())
}

/// The user's own programs.
pub fn binaries(spec: &Spec) -> Binaries {
    let Some(lab) = &spec.lab else { return Binaries::default() };
    Binaries {
        mongod: lab.mongod.clone().map(Into::into),
        mongos: lab.mongos.clone().map(Into::into),
        polodb: lab.polodb.clone().map(Into::into),
    }
}

fn start(spec: &Spec, work: &Path) -> Result<Cluster> {
    let lab = spec.lab.as_ref().context("a trial of a lab has a [lab] table")?;
    let recipe = spec.cluster()?;
    let root = rustix::process::geteuid().is_root();
    // One node needs no network, unless a link is to be broken.
    let network = root && recipe.layout().nodes.len() > 1;
    let mut cluster = Cluster::start(&ClusterOptions {
        version: lab.version,
        disk_daemon: Some(DaemonCommand::this_program(&[crate::DISK_DAEMON_VERB])),
        folder: work.to_path_buf(),
        network: network.then(|| DaemonCommand::this_program(&[crate::NETWORK_DAEMON_VERB])),
        own: Some(own(spec)?),
        binaries: binaries(spec),
        seed: 1,
        recipe,
    })?;
    if !lab.delay.is_zero() {
        cluster.set_links(Link::delayed(lab.delay))?;
    }
    Ok(cluster)
}

/// This program, serving the embedded engine.
fn own(spec: &Spec) -> Result<Own> {
    let mut served = Spec { lab: None, breaking: None, tenant: None, ..spec.clone() };
    // Settings of the server are those of the target here, because the server is the target.
    if let Some(lab) = &spec.lab {
        served.target.settings.extend(lab.settings.clone());
    }
    let command = DaemonCommand::this_program(&[crate::CHECK_SERVER_VERB, &serde_json::to_string(&served)?]);
    let name = if spec.target.kind == TargetKind::Guilty { "a guilty store" } else { "WiredTiger" };
    Ok(Own { name: name.into(), command })
}

/// The servers that take writes: the primary, or every member that runs.
pub fn writers(cluster: &Cluster) -> Vec<String> {
    // A driver of MongoDB's is given all members and finds the primary itself.
    if let Some(url) = cluster.client_url() {
        // A collection that nobody shards stays on one shard, and the others measure nothing.
        let sharding = cluster.recipe().settings.get(SHARDING);
        return vec![sharding.map_or_else(|| url.clone(), |how| format!("{url}?{SHARDING}={how}"))];
    }
    let primary = vec![cluster.primary().to_string()];
    let names = match cluster.recipe().replication {
        Replication::Galera => cluster.nodes().iter().map(|node| node.name().to_string()).collect(),
        _ => primary,
    };
    names.iter().filter_map(|name| cluster.url(name).ok()).collect()
}

impl Running {
    /// The cluster of `spec`: `before`, if it was made for such a cell, holds what a new one would and is
    /// whole, or a new one. Its disks are as fast as they can be.
    ///
    /// # Errors
    /// It does not start.
    pub fn of(before: Option<Running>, spec: &Spec, work: &Path, report: &dyn Report) -> Result<Running> {
        let wanted = unshaped(spec);
        let same = before.filter(|running| running.spec == wanted && !changes_records(spec));
        let usable = same.and_then(|mut running| {
            let names = running.names();
            running.cluster.unshape().ok()?;
            running.cluster.come_back(&names).ok()?;
            running.settle(PATIENCE).ok()?;
            Some(running)
        });
        if let Some(running) = usable {
            return Ok(running);
        }
        report.doing("starting the cluster");
        Ok(Running { cluster: start(spec, work)?, spec: wanted, loaded: None })
    }

    /// Sees to it that the records of `spec` are there, and gives what the target said after loading.
    ///
    /// # Errors
    /// They cannot be written, or an interrupt.
    pub fn load(
        &mut self,
        spec: &Spec,
        report: &dyn Report,
        interrupt: &Interrupt,
    ) -> Result<(Facts, String)> {
        if let Some(facts) = &self.loaded {
            return Ok((facts.clone(), "the records are there, from a trial before".into()));
        }
        let (facts, evidence) = bring_records(spec, &self.servers(), report, interrupt)?;
        self.loaded = Some(facts.clone());
        Ok((facts, evidence))
    }

    /// Every server that may take writes, now or after a failover.
    pub fn servers(&self) -> Servers {
        let mut urls = writers(&self.cluster);
        let writers = urls.len();
        if self.cluster.client_url().is_none() {
            let all = self.names().into_iter().filter_map(|name| self.cluster.url(&name).ok());
            let others: Vec<String> = all.filter(|url| !urls.contains(url)).collect();
            urls.extend(others);
        }
        Servers { urls: urls.into_iter().map(Secret).collect(), writers }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The cluster, to be broken.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Its nodes.
    pub fn names(&self) -> Vec<String> {
        self.cluster.nodes().iter().map(|node| node.name().to_string()).collect()
    }

    /// What it is, for the record.
    pub fn sentence(&self) -> String {
        let version = self.cluster.nodes().first().and_then(Node::server).map(|s| s.version().to_string());
        let lab = self.spec.lab.as_ref().map(|lab: &LabSpec| lab.recipe.name.as_str()).unwrap_or_default();
        format!("{lab}: {} nodes of {}", self.cluster.nodes().len(), version.unwrap_or_default())
    }

    /// The survivors and each replica by itself.
    pub fn sources(&self, spec: &Spec, seed: u64) -> Vec<(Source, Endpoint)> {
        if let Some(url) = self.cluster.client_url() {
            let survivors = (Source::Survivors, Endpoint::new(spec, seed, &url));
            return std::iter::once(survivors).chain(self.secondaries(spec, seed)).collect();
        }
        let survivor = self.cluster.survivor();
        let mut sources: Vec<(Source, Endpoint)> = self
            .names()
            .into_iter()
            .filter_map(|name| {
                let endpoint = Endpoint::new(spec, seed, &self.cluster.url(&name).ok()?);
                let survives = survivor == Some(name.as_str());
                let source = if survives { Source::Survivors } else { Source::Replica(name) };
                Some((source, endpoint))
            })
            .collect();
        sources.sort_by(|a, b| a.0.cmp(&b.0));
        sources
    }

    /// The secondaries of a replica set of MongoDB's. A member of a shard has only a part of the data, so in
    /// a sharded cluster nobody is read alone.
    fn secondaries(&self, spec: &Spec, seed: u64) -> Vec<(Source, Endpoint)> {
        let sharded = self.cluster.recipe().replication == Replication::Sharded;
        let set = self.cluster.layout().first_data_set().filter(|_| !sharded);
        let names = set.into_iter().flat_map(|set| set.data_nodes());
        let others = names.filter(|name| *name != self.cluster.primary());
        let endpoint = |name: &String| Some(Endpoint::new(spec, seed, &self.cluster.url(name).ok()?));
        others.filter_map(|name| Some((Source::Replica(name.clone()), endpoint(name)?))).collect()
    }

    /// Whether every node's server runs.
    pub fn all_run(&mut self) -> bool {
        self.names().iter().all(|name| self.cluster.node_mut(name).is_ok_and(Node::is_running))
    }

    /// Waits until every node follows.
    pub fn settle(&mut self, patience: Duration) -> Result<()> {
        Ok(self.cluster.wait_whole(patience)?)
    }

    /// Gives the disks the shapes of `spec`.
    pub fn shape(&mut self, spec: &Spec) -> Result<()> {
        Ok(self.cluster.shape(&spec.cluster()?)?)
    }

    /// Makes the disks as fast as they can be.
    pub fn unshape(&self) -> Result<()> {
        Ok(self.cluster.unshape()?)
    }

    /// Bytes of the primary's files on its disk.
    pub fn data(&self) -> Option<Bytes> {
        let node = self.cluster.node(self.cluster.primary()).ok()?;
        node.disk()?;
        Some(bytes_below(node.server()?.data()))
    }

    /// What cannot be had on this machine.
    pub fn lost(&self) -> Vec<String> {
        let alone = self.cluster.nodes().len() == 1;
        if alone { vec![] } else { self.cluster.lost().to_vec() }
    }
}

/// Bytes that the files below a folder take.
fn bytes_below(folder: &Path) -> Bytes {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        sum += if about.is_dir() { bytes_below(&entry.path()).0 } else { about.blocks() * 512 };
    }
    Bytes(sum)
}

/// Reads a node: what the kernel and its disk count of it, and what its server tells.
pub struct NodeWatch {
    name: String,
    probe: NodeProbe,
    endpoint: Option<Endpoint>,
    server: Option<Box<dyn Target>>,
}

/// A server that needs longer for its statistics holds up the interval of all nodes.
const STATISTICS: Duration = Duration::from_secs(1);

impl NodeWatch {
    /// One for each node of `cluster`, whose servers run, in the trial with this seed.
    pub fn of_all(cluster: &Cluster, spec: &Spec, seed: u64) -> Vec<NodeWatch> {
        let watch = |node: &Node| NodeWatch {
            name: node.name().into(),
            probe: NodeProbe::of(node),
            endpoint: cluster.url(node.name()).ok().map(|url| Endpoint::new(spec, seed, &url)),
            server: None,
        };
        cluster.nodes().iter().map(watch).collect()
    }

    /// What it reads, by probe.
    pub fn metrics(&mut self) -> BTreeMap<String, Vec<Metric>> {
        let own = self.server().map(|server| (probes::TARGET.to_string(), server.metrics()));
        self.probe.metrics().into_iter().chain(own).collect()
    }

    /// What cannot be read, a sentence each.
    pub fn missing(&self) -> Vec<String> {
        self.probe.missing().iter().map(|lacking| format!("{}: {lacking}", self.name)).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The counters of its disk as they were read last, their moment on the trial clock, if it has one of
    /// ours.
    pub fn disk(&self, origin_ns: u64) -> Option<Counters> {
        self.probe.disk().map(|counters| counters.from_origin(origin_ns))
    }

    /// Processor time of the daemons of its disks, as it was read last.
    pub fn disks_cpu(&self) -> Duration {
        self.probe.disks_cpu()
    }

    fn server(&mut self) -> Option<&dyn Target> {
        if self.server.is_none() {
            self.server = self.endpoint.as_ref()?.target(STATISTICS).ok();
        }
        self.server.as_deref()
    }

    /// Its name, and everything that can be read of it now. In `cluster` it can be looked at, unless somebody
    /// acts on it; with true its server is asked too, which one that is being broken may not answer.
    ///
    /// # Errors
    /// The kernel or the disk says something that is not understood.
    pub fn sample(
        &mut self,
        cluster: Option<(&Cluster, bool)>,
        now: &dyn Fn() -> Tick,
    ) -> Result<(String, BTreeMap<String, Sample>)> {
        let node = match cluster {
            Some((cluster, _)) => Some(cluster.node(&self.name)?),
            None => None,
        };
        let asks = cluster.is_some_and(|(_, asks)| asks);
        let begin = now();
        let server = if asks { self.server() } else { None };
        let told = match server.map(Target::sample) {
            Some(Ok(values)) => Some((probes::TARGET.to_string(), Sample { begin, end: now(), values })),
            Some(Err(_)) => {
                self.server = None;
                None
            }
            None => None,
        };
        let counted = self.probe.sample(node, now).with_context(|| format!("reading {}", self.name))?;
        Ok((self.name.clone(), counted.into_iter().chain(told).collect()))
    }
}

/// The counters of the primary's disk, their moment on the trial clock, if it has one of ours.
pub fn primary_disk(cluster: &Cluster, origin_ns: u64) -> Result<Option<Counters>> {
    let disk = cluster.node(cluster.primary())?.disk();
    Ok(disk.map(Disk::counters).transpose()?.map(|counters| counters.from_origin(origin_ns)))
}
