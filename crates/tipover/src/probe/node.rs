//! Everything that is counted of one node of the laboratory, from outside: processes, control group, block
//! device, shaped disk and network.
//!
//! Each source is a probe of its own and may be missing. Counters do not go backwards when a node is
//! restarted or gets its power back, although its processes and its block device are then others.

use super::{Device, GroupUse, Network, NotAvailable, Probe, Processes, Values};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::Duration;
use tipover_core::device::Counters;
use tipover_core::metric::{Kind, Metric, Sample, name as metric, of_disk, probe as probes};
use tipover_core::units::Tick;
use tipover_disk::{Disk, DiskReader};
use tipover_lab::Node;

/// Reads one node.
#[derive(Default)]
pub struct NodeProbe {
    processes: Option<Processes>,
    group: Option<GroupUse>,
    device: Option<Device>,
    network: Option<Network>,
    disk: Option<DiskReader>,
    journal: Option<DiskReader>,
    /// The counters of its disk when they were read last, and the processor time of its disks' daemons.
    counted: (Option<Counters>, Duration),
    copied: u64,
    /// The process of its server when it was last looked at, and how often that was another one.
    server: (u32, u32),
    missing: Vec<NotAvailable>,
    /// What was counted before a source began anew, and its last values, by probe.
    before: BTreeMap<&'static str, (Values, Values)>,
}

impl NodeProbe {
    /// Looks at `node`, whose server runs.
    pub fn of(node: &Node) -> NodeProbe {
        let mut probe = NodeProbe {
            disk: node.disk().map(Disk::reader),
            journal: node.journal().map(Disk::reader),
            ..NodeProbe::default()
        };
        let mut keep = |what: Result<(), NotAvailable>| probe.missing.extend(what.err());
        let root = node.server().map_or(0, |server| server.pid());
        probe.server.0 = root;
        // A group knows its processes whoever their parents are.
        let processes = match node.group() {
            Some(group) => Processes::in_group(group),
            None => Processes::of_tree(root),
        };
        keep(processes.map(|processes| probe.processes = Some(processes)));
        if let Some(name) = block_device(node) {
            keep(Device::named(&name).map(|device| probe.device = Some(device)));
        }
        if let Some(group) = node.group() {
            let device = probe.device.as_ref().and_then(Device::number);
            keep(GroupUse::of(group, device).map(|group| probe.group = Some(group)));
        }
        // Without a namespace of its own its network is the whole machine's.
        if node.member().is_some_and(|member| member.namespace.is_some()) {
            keep(Network::of(root).map(|network| probe.network = Some(network)));
        }
        let lacks: Vec<NotAvailable> =
            probe.sources().iter().flat_map(|(_, probe)| probe.missing()).collect();
        probe.missing.extend(lacks);
        probe
    }

    fn sources(&self) -> Vec<(&'static str, &dyn Probe)> {
        let all: [(&'static str, Option<&dyn Probe>); 4] = [
            (probes::PROCESS, self.processes.as_ref().map(|probe| probe as &dyn Probe)),
            (probes::DEVICE, self.device.as_ref().map(|probe| probe as &dyn Probe)),
            (probes::GROUP, self.group.as_ref().map(|probe| probe as &dyn Probe)),
            (probes::NETWORK, self.network.as_ref().map(|probe| probe as &dyn Probe)),
        ];
        all.into_iter().filter_map(|(name, probe)| Some((name, probe?))).collect()
    }

    /// What it reads, by probe.
    pub fn metrics(&self) -> BTreeMap<String, Vec<Metric>> {
        let disk = self.disk.as_ref().map(|_| (probes::DISK.to_string(), of_disk()));
        let sources = self.sources().into_iter().map(|(name, probe)| (name.to_string(), probe.metrics()));
        let mut all: BTreeMap<String, Vec<Metric>> = sources.chain(disk).collect();
        if let Some(processes) = all.get_mut(probes::PROCESS) {
            let help = "Starts of the node's server since the node was first looked at. One that is started again counts \
                        anew, so what it counts itself is then no evidence for a budget.";
            let name = metric::PROCESS_SERVER_STARTS.into();
            processes.push(Metric { name, kind: Kind::Gauge, help: help.into() });
            let help = "Bytes of the node's data files that were copied from it to make another node anew, by the size of \
                        the copy. Its server reads them, and no counter of its engine knows of it.";
            let name = metric::PROCESS_COPIED_BYTES.into();
            processes.push(Metric { name, kind: Kind::Gauge, help: help.into() });
        }
        all
    }

    /// What cannot be read of it here, with the reasons.
    pub fn missing(&self) -> &[NotAvailable] {
        &self.missing
    }

    /// Reads everything, the witnesses of its budgets first and close together. `node` is the one that it was
    /// made of, whatever has happened to it since; while somebody acts on it there is none to look at, and
    /// what can be read from outside is.
    ///
    /// # Errors
    /// A source is gone or says something that is not understood, with nobody acting on the node.
    pub fn sample(
        &mut self,
        node: Option<&Node>,
        now: &dyn Fn() -> Tick,
    ) -> Result<BTreeMap<String, Sample>> {
        node.into_iter().for_each(|node| self.find_again(node));
        let mut samples = BTreeMap::new();
        let mut keep = |name, sample: Result<Sample>| -> Result<()> {
            match sample {
                Ok(sample) => {
                    samples.insert(name, sample);
                    Ok(())
                }
                // Whoever is just being killed cannot be read.
                Err(_) if node.is_none() => Ok(()),
                Err(error) => Err(error),
            }
        };
        if let Some(processes) = &mut self.processes {
            keep(probes::PROCESS, processes.sample(now))?;
        }
        let mut cpu = Duration::ZERO;
        if let Some(reader) = &self.disk {
            let begin = now();
            if let Some((counters, spent)) = reader.read().context("the disk's counters")? {
                let values = Sample::from(&counters).values;
                keep(probes::DISK, Ok(Sample { begin, end: now(), values }))?;
                (self.counted.0, cpu) = (Some(counters), spent);
            }
        }
        if let Some((_, spent)) = self.journal.as_ref().map(DiskReader::read).transpose()?.flatten() {
            cpu += spent;
        }
        self.counted.1 = cpu.max(self.counted.1);
        // A node without power has no device until it gets it back.
        if let Some(sample) = self.device.as_mut().and_then(|device| device.sample(now).ok()) {
            keep(probes::DEVICE, Ok(sample))?;
        }
        if let Some(group) = &mut self.group {
            keep(probes::GROUP, group.sample(now))?;
        }
        if let Some(network) = &mut self.network {
            keep(probes::NETWORK, network.sample(now))?;
        }
        if let Some(sample) = samples.get_mut(probes::PROCESS) {
            sample.values.insert(metric::PROCESS_SERVER_STARTS.into(), f64::from(self.server.1));
            sample.values.insert(metric::PROCESS_COPIED_BYTES.into(), self.copied as f64);
        }
        let metrics = self.metrics();
        for (name, sample) in &mut samples {
            let counters =
                metrics.get(*name).into_iter().flatten().filter(|metric| metric.kind == Kind::Counter);
            go_on(self.before.entry(name).or_default(), sample, counters);
        }
        Ok(samples.into_iter().map(|(name, sample)| (name.to_string(), sample)).collect())
    }

    /// The counters of its disk as they were read last, if it has one of ours.
    pub fn disk(&self) -> Option<Counters> {
        self.counted.0
    }

    /// Processor time of the daemons of its disks, as it was read last.
    pub fn disks_cpu(&self) -> Duration {
        self.counted.1
    }

    /// A restart makes other processes, and a power cut another block device.
    fn find_again(&mut self, node: &Node) {
        let root = node.server().map_or(0, |server| server.pid());
        if root != 0 {
            let (known, starts) = &mut self.server;
            *starts += u32::from(*known != 0 && *known != root);
            *known = root;
            self.copied = node.copied().0;
            self.processes.iter_mut().for_each(|processes| processes.set_root(root));
            self.network.iter_mut().for_each(|network| network.set_process(root));
        }
        let name = block_device(node);
        if let (Some(name), Some(device)) = (&name, &mut self.device)
            && name != device.name()
            && let Ok(other) = Device::named(name)
        {
            *device = other;
            if let (Some(group), Some(probe)) = (node.group(), &mut self.group)
                && let Ok(other) = GroupUse::of(group, device.number())
            {
                *probe = other;
            }
        }
    }
}

/// Adds to counters that began anew what they had before.
fn go_on<'a>(
    (before, last): &mut (Values, Values),
    sample: &mut Sample,
    counters: impl Iterator<Item = &'a Metric>,
) {
    for Metric { name, .. } in counters {
        let Some(value) = sample.values.get_mut(name) else { continue };
        let ended = last.insert(name.clone(), *value).filter(|last| *value < *last).unwrap_or(0.0);
        let sum = before.entry(name.clone()).or_default();
        *sum += ended;
        *value += *sum;
    }
}

/// The name under `/sys/class/block` of the node's disk; `None` where it has none, or one without a device.
fn block_device(node: &Node) -> Option<String> {
    Some(node.disk()?.block_device()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_anew_go_on_and_gauges_do_not() {
        let metric = |name: &str, kind| Metric { name: name.into(), kind, help: String::new() };
        let metrics = [metric("device_read_bytes", Kind::Counter), metric("device_in_flight", Kind::Gauge)];
        let mut state = Default::default();
        let mut read = |bytes: f64, in_flight: f64| {
            let values = [("device_read_bytes", bytes), ("device_in_flight", in_flight)];
            let values = values.map(|(name, value)| (name.to_string(), value)).into();
            let mut sample = Sample { values, ..Sample::default() };
            let counters = metrics.iter().filter(|metric| metric.kind == Kind::Counter);
            go_on(&mut state, &mut sample, counters);
            (sample.values["device_read_bytes"], sample.values["device_in_flight"])
        };
        assert_eq!(read(100.0, 3.0), (100.0, 3.0));
        assert_eq!(read(150.0, 0.0), (150.0, 0.0));
        assert_eq!(read(20.0, 1.0), (170.0, 1.0), "another device, from 0");
        assert_eq!(read(25.0, 1.0), (175.0, 1.0));
        assert_eq!(read(5.0, 1.0), (180.0, 1.0));
    }
}
