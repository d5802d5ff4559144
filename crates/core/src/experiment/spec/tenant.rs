//! Another tenant of the target's disk: file I/O beside the load of the plan.

use super::{
    DiskMode, DiskSpec, FileIoSpec, LoadSpec, Spec, TargetKind, TargetSpec, TrialSpec, WorkloadKind,
    WorkloadSpec,
};
use crate::schedule::Fault;
use crate::units::Bytes;
use crate::workload::Arrivals;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Another tenant of the target's disk, such as a backup or a batch job: a process that reads and writes a
/// file of its own while the load of the plan is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantSpec {
    /// How many requests it has in flight at most. 0: it stays idle.
    pub sessions: u32,
    /// When its requests are due, as `constant 100/s`; see [`Arrivals`]. Absent: each session sends its next
    /// request when the last one was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// What it asks of its file.
    pub io: FileIoSpec,
    /// Size of its file.
    pub file_size: Bytes,
    /// On which of the target's disks its file is.
    pub disk: Side,
    /// In a cluster: the names of the nodes that have such a tenant, or `all`. Absent: the node that is
    /// primary when the cluster has started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// Which of the two disks that a target may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The disk of its data.
    #[default]
    Data,
    /// The second disk, which has the journal alone.
    Journal,
}

impl Side {
    /// As a plan says it.
    pub fn word(self) -> &'static str {
        match self {
            Side::Data => "data",
            Side::Journal => "journal",
        }
    }
}

impl Default for TenantSpec {
    fn default() -> Self {
        TenantSpec {
            sessions: 1,
            arrivals: None,
            io: FileIoSpec::default(),
            file_size: Bytes::mib(64),
            disk: Side::Data,
            nodes: vec![],
        }
    }
}

impl TenantSpec {
    /// Every node that has a disk.
    pub const ALL: &'static str = "all";

    /// A cell of its own, as the process that sends its requests is told it.
    pub fn alone(&self) -> Spec {
        let target = TargetSpec::of(TargetKind::File);
        let disk = DiskSpec { mode: DiskMode::Auto, size: self.file_size, ..DiskSpec::default() };
        let workload = WorkloadSpec {
            kind: WorkloadKind::FileIo,
            file_size: self.file_size,
            io: Some(self.io.clone()),
            ..WorkloadSpec::default()
        };
        // A disk that is slowed down on purpose answers late, and not never.
        let load = LoadSpec {
            arrivals: self.arrivals.clone(),
            timeout: Duration::ZERO,
            ..LoadSpec::closed(self.sessions)
        };
        let (machine, trial) = (Default::default(), TrialSpec::default());
        let (lab, breaking, tenant) = Default::default();
        Spec { target, machine, disk, workload, load, trial, lab, breaking, tenant }
    }
}

impl Spec {
    /// The tenant, if it has anything to do.
    pub fn busy_tenant(&self) -> Option<&TenantSpec> {
        self.tenant.as_ref().filter(|tenant| tenant.sessions > 0)
    }

    /// Bytes that the disk of the data must hold: this cell's data, and the file of another tenant there.
    pub fn disk_bytes(&self) -> Bytes {
        let tenant = self.busy_tenant().filter(|tenant| tenant.disk == Side::Data);
        Bytes(self.data_bytes().0.saturating_add(tenant.map_or(0, |tenant| tenant.file_size.0)))
    }

    /// What no type can say of the tenant.
    pub(super) fn check_tenant(&self) -> Result<(), String> {
        let Some(tenant) = &self.tenant else { return Ok(()) };
        if tenant.sessions > 0 {
            let alone = tenant.alone().check();
            alone.map_err(|error| error.to_string().replace("workload.", "tenant."))?;
        }
        if tenant.arrivals.as_ref().is_some_and(|arrivals| arrivals.trace().is_some()) {
            return Err("tenant.arrivals cannot be a trace: give a rate, as \"constant 100/s\"".into());
        }
        let no_disk = |whose: &str| {
            Err(format!("tenant: {whose} has no disk of ours that it could share: give a [disk] table"))
        };
        let no_journal =
            || Err("tenant.disk = \"journal\" needs a second disk: give disk.journal its shape".to_string());
        if self.lab.is_none() {
            return match (&self.disk.journal, tenant.disk) {
                _ if self.disk.mode == DiskMode::None => no_disk("the target"),
                (None, Side::Journal) => no_journal(),
                (Some(_), _) | (None, Side::Data) => Ok(()),
            };
        }
        // A recipe that was not read yet has no nodes.
        let Ok(recipe) = self.cluster() else { return Ok(()) };
        let nodes = recipe.layout().nodes;
        for name in tenant.nodes.iter().filter(|name| *name != TenantSpec::ALL) {
            if !nodes.iter().any(|node| node.name == *name) {
                let known: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
                return Err(format!("tenant.nodes: {}", super::super::unknown("node", name, &known)));
            }
        }
        let disks = || nodes.iter().filter_map(|node| recipe.disk_of(node.role));
        if disks().next().is_none() {
            return no_disk("no node");
        }
        if tenant.disk == Side::Journal && disks().all(|disk| disk.journal.is_none()) {
            return no_journal();
        }
        let rules = self.breaking.iter().flat_map(|breaking| &breaking.faults.rules);
        let unmounts = |fault: &Fault| matches!(fault, Fault::PowerCut { .. } | Fault::FailFlush { .. });
        match rules.into_iter().find(|rule| unmounts(&rule.fault)) {
            Some(rule) => Err(format!(
                "\"{rule}\" takes the file system away in which the tenant has its file open: kill the nodes \
                 instead, or leave the tenant out"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const PLAN: &str = r#"
        name = "n"
        title = "N"
        question = "q"
        why = "w"
        how_to_read = "h"
        repeats = 1
        [target]
        kind = "postgres"
        [disk]
        size = "1 GiB"
        shape = "iops=600"
        [workload]
        records = 100
        [load]
        sessions = 2
        [lab]
        recipe = "postgres-sync"
        [tenant]
        arrivals = "constant 100/s"
        io = { turns = "writes", block = "64 KiB" }
        [[sweep]]
        name = "s"
        question = "q"
        axis = []
        [scale.quick]
    "#;

    fn read(text: &str) -> Result<Spec, String> {
        let experiment = Experiment::parse(text, "quick", &[]).map_err(|error| error.to_string())?;
        Ok(experiment.sweeps[0].cells[0].spec.clone())
    }

    #[test]
    fn a_tenant_is_a_cell_of_its_own_and_part_of_the_cell_beside_it() {
        let spec = read(PLAN).unwrap();
        let alone = spec.busy_tenant().unwrap().alone();
        alone.check().unwrap();
        let (dataset, _) = alone.load_of(1);
        assert_eq!(dataset.records * 4096, Bytes::mib(64).0);
        assert_eq!((alone.target.kind, alone.load.sessions), (TargetKind::File, 1));
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
        let without = Spec { tenant: None, ..spec.clone() };
        assert_ne!(without.fingerprint(), spec.fingerprint());
        // Cells from before there were tenants keep their names.
        assert!(!serde_json::to_string(&without).unwrap().contains("tenant"));
        let idle = read(&PLAN.replace("[tenant]", "[tenant]\nsessions = 0")).unwrap();
        assert!(idle.busy_tenant().is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        let kill = "[break]\nsessions = 1\nfaults = \"at 1 s: power cut a, restart after 1 s\"\n[[sweep]]";
        for (from, to, words) in [
            ("io =", "nodes = [\"d\"]\n        io =", "tenant.nodes: unknown node"),
            ("io =", "disk = \"journal\"\n        io =", "needs a second disk"),
            ("[disk]\n        size = \"1 GiB\"\n        shape = \"iops=600\"", "", "give a [disk] table"),
            ("constant 100/s", "trace a.txt", "cannot be a trace"),
            ("block = \"64 KiB\"", "block = \"1000 B\"", "tenant.io.block must be a multiple of 512 B"),
            ("[[sweep]]", kill, "takes the file system away"),
        ] {
            let text = PLAN.replacen(from, to, 1);
            assert_ne!(text, PLAN, "{from}");
            let error = read(&text).unwrap_err();
            assert!(error.contains(words), "{to}: {error}");
        }
    }
}
