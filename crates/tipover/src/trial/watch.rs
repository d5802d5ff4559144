//! What is read at the end of every interval: the generator's counts, the probes of the machine and of the
//! target's own place, those of each node of a cluster, and what other tenants of the disks did.

use super::cluster::{NodeWatch, Running};
use super::generator_process::GeneratorProcess;
use super::generators::Generators;
use super::local;
use super::tenants::{TenantCuts, Tenants};
use super::world::RealWorld;
use crate::generator::Cut;
use crate::probe::{self, Probe};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::device::Counters;
use tipover_core::experiment::Spec;
use tipover_core::metric::{Sample, probe as probes};
use tipover_core::record::{Interval, Phase};
use tipover_core::trial::Draft;
use tipover_lab::{Cluster, Group};

/// The end of an interval: what the generator and all probes said.
pub(super) struct Mark {
    pub cut: Cut,
    pub samples: BTreeMap<String, Sample>,
    /// Of the target's disk, in a cluster the primary's; absent when it does not live on one of ours.
    pub disk: Option<Counters>,
    /// Of the daemons of all its disks.
    pub disk_cpu: Duration,
    /// By the name of the node.
    pub nodes: BTreeMap<String, BTreeMap<String, Sample>>,
    /// Whether the servers of all nodes could be asked.
    pub is_whole: bool,
    pub tenants: TenantCuts,
    /// The target's own statistics, in a cluster the primary's.
    pub target: Sample,
}

/// Who reads it.
pub(super) struct Readers {
    pub generators: Generators,
    pub probes: Vec<(&'static str, Box<dyn Probe>)>,
    pub nodes: Vec<NodeWatch>,
    /// Who was primary when the cluster was looked at last.
    pub primary: String,
    pub tenants: Tenants,
}

/// A target at work: everything that is read of it, and the cluster that it may run on.
pub(super) struct Watch {
    pub readers: Readers,
    pub cluster: Option<Running>,
}

/// What can be read of a cluster now.
#[derive(Clone, Copy)]
pub(super) enum Visible<'a> {
    /// The target runs in no cluster.
    NoCluster,
    /// Nodes are being acted on: of what they do only the kernel and their disks are asked.
    Outside,
    /// All nodes; whether servers are asked for their statistics too.
    All(&'a Cluster, bool),
}

impl RealWorld<'_> {
    pub(super) fn probes(
        &mut self,
        spec: &Spec,
        generator: &GeneratorProcess,
        group: Option<&Arc<Group>>,
    ) -> Vec<(&'static str, Box<dyn Probe>)> {
        let mut probes: Vec<(&'static str, Box<dyn Probe>)> = Vec::new();
        let mut missing = Vec::new();
        let mut add = |name, probe: Result<Box<dyn Probe>, probe::NotAvailable>| match probe {
            Ok(probe) => {
                missing.extend(probe.missing().iter().map(ToString::to_string));
                probes.push((name, probe));
            }
            Err(reason) => missing.push(reason.to_string()),
        };
        fn boxed<P: Probe + 'static>(probe: P) -> Box<dyn Probe> {
            Box::new(probe)
        }
        if let Some(address) = spec.target.address.as_ref().filter(|_| spec.target.kind.is_server()) {
            let lacking = |what: &str, reason: String| probe::NotAvailable { what: what.into(), reason };
            let process = local::process(address, spec.target.kind);
            let processes = process.clone().map_err(|reason| lacking("the server's process", reason));
            let processes = processes.and_then(probe::Processes::of_tree);
            add(probes::PROCESS, processes.map(boxed));
            let device = process.and_then(local::device).map_err(|why| lacking("the server's device", why));
            add(probes::DEVICE, device.and_then(|name| probe::Device::named(&name)).map(boxed));
        } else if spec.lab.is_none() {
            let processes = match group {
                Some(group) => probe::Processes::in_group(group),
                None => probe::Processes::given(&[generator.id()]),
            };
            add(probes::PROCESS, processes.map(boxed));
        }
        let mut device = None;
        if let Some(path) = self.site.mounted().and_then(|disk| disk.block_device()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let found = probe::Device::named(&name);
            device = found.as_ref().ok().and_then(|device| device.number());
            add(probes::DEVICE, found.map(boxed));
        }
        if let Some(group) = group {
            add(probes::GROUP, probe::GroupUse::of(group, device).map(boxed));
        }
        // The group's own stalls say more than the machine's, where the kernel keeps them.
        let pressure = match group.and_then(|group| group.unified()) {
            Some(unified) => {
                probe::Pressure::of_group(Some(unified)).or_else(|_| probe::Pressure::of_system())
            }
            None => probe::Pressure::of_system(),
        };
        add(probes::PRESSURE, pressure.map(boxed));
        add(probes::SYSTEM, probe::System::open().map(boxed));
        self.facts.missed.extend(missing);
        probes
    }

    /// Reads everything, the witnesses of the read budget first and close together.
    pub(super) fn mark(&self, watch: &mut Watch) -> Result<Mark> {
        let Watch { readers, cluster } = watch;
        let nodes =
            cluster.as_ref().map_or(Visible::NoCluster, |running| Visible::All(running.cluster(), true));
        self.read(readers, nodes)
    }

    /// As [`RealWorld::mark`], with as much of the cluster as can be read.
    pub(super) fn read(&self, readers: &mut Readers, cluster: Visible<'_>) -> Result<Mark> {
        let cut = readers.generators.cut()?;
        let now = || self.clock.now();
        let mut target = cut.target.clone();
        let Readers { nodes: watched, primary, tenants, .. } = readers;
        let (tenants, of_tenants) = tenants.cut()?;
        let (mut disk, mut nodes, mut disk_cpu) = (None, BTreeMap::new(), Duration::ZERO);
        let (is_whole, seen) = match cluster {
            Visible::All(cluster, asks) => (asks, Some((cluster, asks))),
            Visible::NoCluster | Visible::Outside => (false, None),
        };
        if let Some((cluster, _)) = seen {
            *primary = cluster.primary().into();
        }
        for node in watched {
            nodes.extend([node.sample(seen, &now)?]);
            disk_cpu += node.disks_cpu();
            if node.name() == primary {
                disk = node.disk(self.clock.origin_ns());
            }
        }
        target = nodes.get(primary).and_then(|own| own.get(probes::TARGET)).cloned().unwrap_or(target);
        let mut samples = BTreeMap::from([(probes::TARGET.to_string(), cut.target.clone())]);
        for (node, sample) in of_tenants {
            let own = if node.is_empty() { &mut samples } else { nodes.entry(node).or_default() };
            own.insert(probes::TENANT.into(), sample);
        }
        for (name, probe) in &mut readers.probes {
            if disk.is_none() && ![probes::PROCESS, probes::DEVICE].contains(name) {
                disk = self.disk_counters()?;
            }
            let sample = probe.sample(&now).with_context(|| format!("the {name} probe"))?;
            samples.insert(name.to_string(), sample);
        }
        let disk = disk.map_or_else(|| self.disk_counters(), |disk| Ok(Some(disk)))?;
        if let Some(disk) = self.site.mounted() {
            disk_cpu += disk.daemon_cpu()?;
        }
        Ok(Mark { cut, samples, disk, disk_cpu, nodes, is_whole, tenants, target })
    }

    /// The disk's counters, their moment on the trial clock; of a cluster none.
    pub(super) fn disk_counters(&self) -> Result<Option<Counters>> {
        let Some(disk) = self.site.mounted() else { return Ok(None) };
        Ok(Some(disk.counters()?.from_origin(self.clock.origin_ns())))
    }

    /// Waits for one interval and closes it.
    pub(super) fn interval(
        &self,
        spec: &Spec,
        phase: Phase,
        watch: &mut Watch,
        draft: &mut Draft,
    ) -> Result<Mark> {
        self.context.interrupt.check()?;
        std::thread::sleep(spec.trial.interval);
        let mark = self.mark(watch)?;
        self.log(mark.interval(phase, spec), draft);
        Ok(mark)
    }

    /// Keeps an interval, and shows it to whoever waits.
    pub(super) fn log(&self, interval: Interval, draft: &mut Draft) {
        self.context.report.interval(&interval);
        draft.series.push(interval);
    }
}

impl Mark {
    /// As it is kept.
    pub fn interval(&self, phase: Phase, spec: &Spec) -> Interval {
        Interval {
            samples: self.samples.clone(),
            nodes: self.nodes.clone(),
            // Nodes have their own.
            ..self.cut.interval(phase, self.disk.filter(|_| spec.lab.is_none()))
        }
    }
}

impl Cut {
    /// As an interval of which nothing else was read than the disk.
    pub fn interval(&self, phase: Phase, disk: Option<Counters>) -> Interval {
        Interval {
            phase,
            begin: self.begin,
            end: self.end,
            books: self.books.clone(),
            offered: self.offered.clone(),
            samples: BTreeMap::from([(probes::TARGET.to_string(), self.target.clone())]),
            disk,
            nodes: BTreeMap::new(),
        }
    }
}
