//! The cluster of a cell: started once, used by all its repeats.

use super::places::Place;
use super::{Laboratory, bytes_below};
use crate::foresight::binaries;
use crate::trial::Report;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;
use tipover_core::check::Source;
use tipover_core::experiment::recipe::Replication;
use tipover_core::experiment::{LabSpec, Spec, TargetKind};
use tipover_core::units::Bytes;
use tipover_disk::DaemonCommand;
use tipover_lab::network::Link;
use tipover_lab::recipe::Own;
use tipover_lab::{Cluster, ClusterOptions, Node};

/// A running cluster, and the cell it was made for.
pub struct Running {
    spec: Spec,
    cluster: Cluster,
}

impl Laboratory {
    /// The cluster of `spec`: the one that is running, if it was made for the same cell and is whole, or a
    /// new one.
    pub(super) fn of(&mut self, spec: &Spec, work: &Path, report: &dyn Report) -> Result<&mut Running> {
        let usable = self.running.take().filter(|running| running.spec == *spec).and_then(|mut running| {
            let names = running.names();
            running.cluster.come_back(&names).ok()?;
            running.settle(super::PATIENCE).ok()?;
            running.cluster.unshape().ok()?;
            Some(running)
        });
        let running = match usable {
            Some(running) => running,
            None => {
                report.doing("starting the cluster");
                Running { spec: spec.clone(), cluster: start(spec, work)? }
            }
        };
        Ok(self.running.insert(running))
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
    let mut served = Spec { lab: None, breaking: None, ..spec.clone() };
    // Settings of the server are those of the target here, because the server is the target.
    if let Some(lab) = &spec.lab {
        served.target.settings.extend(lab.settings.clone());
    }
    let command = DaemonCommand::this_program(&[crate::CHECK_SERVER_VERB, &serde_json::to_string(&served)?]);
    let name = if spec.target.kind == TargetKind::Guilty { "a guilty store" } else { "WiredTiger" };
    Ok(Own { name: name.into(), command })
}

/// The servers that take writes: the primary, or every member that runs.
pub(super) fn writers(cluster: &Cluster, spec: &Spec) -> Vec<Place> {
    // A driver of MongoDB's is given all members and finds the primary itself.
    if let Some(url) = cluster.client_url() {
        return vec![Place::new(spec, &url)];
    }
    let primary = vec![cluster.primary().to_string()];
    let names = match cluster.recipe().replication {
        Replication::Galera => cluster.nodes().iter().map(|node| node.name().to_string()).collect(),
        _ => primary,
    };
    let place = |name: &String| cluster.url(name).ok().map(|url| Place::new(spec, &url));
    names.iter().filter_map(place).collect()
}

impl Running {
    /// The cluster, to be broken.
    pub(super) fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Its nodes.
    pub(super) fn names(&self) -> Vec<String> {
        self.cluster.nodes().iter().map(|node| node.name().to_string()).collect()
    }

    /// What it is, for the record.
    pub(super) fn sentence(&self) -> String {
        let version = self.cluster.nodes().first().and_then(Node::server).map(|s| s.version().to_string());
        let lab = self.spec.lab.as_ref().map(|lab: &LabSpec| lab.recipe.name.as_str()).unwrap_or_default();
        format!("{lab}: {} nodes of {}", self.cluster.nodes().len(), version.unwrap_or_default())
    }

    /// Its nodes and who of them is primary.
    pub(super) fn describe(&self) -> String {
        format!("{}; primary at the end: {}", self.names().join(", "), self.cluster.primary())
    }

    /// See [`writers`].
    pub(super) fn writers(&self, spec: &Spec) -> Vec<Place> {
        writers(&self.cluster, spec)
    }

    /// Every server that may take writes, now or after a failover.
    pub(super) fn may_write(&self, spec: &Spec) -> Vec<Place> {
        if let Some(url) = self.cluster.client_url() {
            return vec![Place::new(spec, &url)];
        }
        let places = self.names().into_iter().filter_map(|name| self.cluster.url(&name).ok());
        places.map(|url| Place::new(spec, &url)).collect()
    }

    /// The survivors and each replica by itself.
    pub(super) fn sources(&self, spec: &Spec) -> Vec<(Source, Place)> {
        if let Some(url) = self.cluster.client_url() {
            let survivors = (Source::Survivors, Place::new(spec, &url));
            return std::iter::once(survivors).chain(self.secondaries(spec)).collect();
        }
        let survivor = self.cluster.survivor();
        let mut sources: Vec<(Source, Place)> = self
            .names()
            .into_iter()
            .filter_map(|name| {
                let place = Place::new(spec, &self.cluster.url(&name).ok()?);
                let survives = survivor == Some(name.as_str());
                let source = if survives { Source::Survivors } else { Source::Replica(name) };
                Some((source, place))
            })
            .collect();
        sources.sort_by(|a, b| a.0.cmp(&b.0));
        sources
    }

    /// The secondaries of a replica set of MongoDB's. A member of a shard has only a part of the data, so in
    /// a sharded cluster nobody is read alone.
    fn secondaries(&self, spec: &Spec) -> Vec<(Source, Place)> {
        let sharded = self.cluster.recipe().replication == Replication::Sharded;
        let set = self.cluster.layout().first_data_set().filter(|_| !sharded);
        let names = set.into_iter().flat_map(|set| set.data_nodes());
        let others = names.filter(|name| *name != self.cluster.primary());
        let place = |name: &String| Some(Place::new(spec, &self.cluster.url(name).ok()?));
        others.filter_map(|name| Some((Source::Replica(name.clone()), place(name)?))).collect()
    }

    /// Whether every node's server runs.
    pub(super) fn all_run(&mut self) -> bool {
        self.names().iter().all(|name| self.cluster.node_mut(name).is_ok_and(Node::is_running))
    }

    /// Waits until every node follows.
    pub(super) fn settle(&mut self, patience: Duration) -> Result<()> {
        Ok(self.cluster.wait_whole(patience)?)
    }

    /// Gives the disks the shapes of the cell.
    pub(super) fn shape(&self) -> Result<()> {
        Ok(self.cluster.shape()?)
    }

    /// Bytes of the primary's files on its disk.
    pub(super) fn data(&self) -> Option<Bytes> {
        let node = self.cluster.node(self.cluster.primary()).ok()?;
        node.disk()?;
        Some(bytes_below(node.server()?.data()))
    }

    /// What cannot be had on this machine.
    pub(super) fn lost(&self) -> Vec<String> {
        let alone = self.cluster.nodes().len() == 1;
        if alone { vec![] } else { self.cluster.lost().to_vec() }
    }
}
