//! Everything that defines a cell, typed. Defaults are the published studies' where they have one.

mod address;
mod disk;
mod lab;
mod load;
mod scripts;
mod target;
mod tenant;
mod workload;

pub use crate::check::Check;
pub use address::{Address, redact};
pub use disk::{BackingKind, DiskMode, DiskSpec, Filesystem, HugePages, MachineSpec};
pub use lab::{BreakSpec, LabSpec, NamedRecipe, Onset, PowerCuts};
pub use load::{LoadSpec, Part, Retries, TrialSpec};
pub use scripts::{NamedScript, ScriptsSpec};
pub use target::{CacheSize, Compressor, Durability, TargetKind, TargetSpec, Trees, WiredTigerSpec};
pub use tenant::{Side, TenantSpec};
pub use workload::{FileIoSpec, MixSpec, Sample, WorkloadKind, WorkloadSpec};

use super::recipe::System;
use crate::device;
use crate::op::OpKind;
use crate::schedule::Fault;
use crate::units::Bytes;
use crate::workload::script::{RECORDED, Tables};
use crate::workload::{
    Dataset, Ledger, Lengths, ListTransactions, RandomReads, Registers, ScriptRuns, Scripts, Transfers,
    Workload, Ycsb,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// All settings of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What is measured.
    pub target: TargetSpec,
    /// What it may use.
    #[serde(default)]
    pub machine: MachineSpec,
    /// What it stores its data on. A server has a disk of its own.
    #[serde(default)]
    pub disk: DiskSpec,
    /// What it is asked. Checks ask for their own keys and accounts.
    #[serde(default)]
    pub workload: WorkloadSpec,
    /// How it is asked.
    pub load: LoadSpec,
    /// How long, and what counts as steady.
    #[serde(default)]
    pub trial: TrialSpec,
    /// A cluster of our own that it runs on; absent: the target is embedded, or at its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<LabSpec>,
    /// What is broken, and how it is checked. Needs a lab.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "break")]
    pub breaking: Option<BreakSpec>,
    /// Who else uses its disk meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantSpec>,
}

/// WiredTiger, like mongod, writes its journal in files of 100 MB of which two or three exist at a time.
const JOURNAL_BYTES: u64 = 300_000_000;
/// A row of an account or of the ledger takes about a hundred bytes; transfers are added.
const ACCOUNT_BYTES: u64 = 200;
/// With more, sizes that are made of their number would not fit their types.
const MOST_RECORDS: u64 = 1 << 48;

impl Spec {
    /// The tables of a plan that are settings; everything else in it is about the experiment.
    pub const PARTS: [&'static str; 9] =
        ["target", "machine", "disk", "workload", "load", "trial", "lab", "break", "tenant"];

    /// WiredTiger starts to evict above this share of its cache, so a working set beyond it never rests.
    pub const EVICTION_TARGET: f64 = 0.80;

    /// 64 hexadecimal digits that differ when any setting does: a hash of the settings as canonical text.
    pub fn fingerprint(&self) -> String {
        let canonical = serde_json::to_string(self).expect("a spec is plain data");
        blake3::hash(canonical.as_bytes()).to_hex().to_string()
    }

    /// Reads the files that settings name and that are not read yet, a trace of arrivals, a sample of
    /// documents, scripts and a recipe, with `read`, and checks again what then can be checked.
    ///
    /// # Errors
    /// The file with what is wrong with it.
    pub fn attach(
        &mut self,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(), super::PlanError> {
        if let Some(arrivals) = self.load.arrivals.take() {
            let text = match arrivals.trace() {
                Some(trace) if trace.operations() == 0 => Some(read(trace.path()).map_err(super::PlanError)?),
                _ => None,
            };
            self.load.arrivals = Some(match text {
                Some(text) => arrivals.with_trace(&text).map_err(super::PlanError)?,
                None => arrivals,
            });
        }
        if let Some(sample) = &mut self.workload.documents
            && sample.learned.is_none()
        {
            let text = read(&sample.path).map_err(super::PlanError)?;
            sample.learn(&text).map_err(super::PlanError)?;
        }
        if let Some(scripts) = &mut self.workload.scripts {
            scripts.attach(read).map_err(super::PlanError)?;
        }
        if let Some(lab) = &mut self.lab
            && lab.recipe.is_unread()
        {
            let text = read(&lab.recipe.name).map_err(super::PlanError)?;
            lab.recipe.read(&text).map_err(super::PlanError)?;
        }
        self.check()
    }

    /// What no type can say.
    pub fn check(&self) -> Result<(), super::PlanError> {
        let wrong = |text: String| Err(super::PlanError(text));
        if self.load.sessions == 0 {
            return wrong("load.sessions must be at least 1".into());
        }
        if self.records() > MOST_RECORDS {
            return wrong(format!("{} records cannot be meant: no disk holds them", self.records()));
        }
        if self.load.machines != 1 {
            self.check_machines()?;
        }
        if let Some(scripts) = &self.workload.scripts {
            scripts.check_load(&self.load).map_err(super::PlanError)?;
        }
        self.shape()?;
        self.check_tenant().map_err(super::PlanError)?;
        match (&self.lab, &self.breaking) {
            (None, None) => self.check_without_lab(),
            _ => self.check_lab(),
        }
    }

    /// What no type can say of a cell whose target is embedded, or at an address.
    fn check_without_lab(&self) -> Result<(), super::PlanError> {
        let wrong = |text: String| Err(super::PlanError(text));
        self.journal_shape()?;
        if self.disk.journal.is_some() && self.target.kind != TargetKind::Wiredtiger {
            return wrong(
                "disk.journal needs target.kind = \"wiredtiger\": others have no journal of ours".into(),
            );
        }
        if self.target.kind.is_server() && self.target.address.is_none() {
            return wrong(format!(
                "a server needs target.address, for example \"{}://user@127.0.0.1/database\"",
                match self.target.kind {
                    TargetKind::Mysql => "mysql",
                    TargetKind::Mongodb => "mongodb",
                    _ => "postgres",
                }
            ));
        }
        if self.target.kind.needs_disk() && self.disk.mode == DiskMode::None {
            return wrong("this target keeps its data on the shaped disk: give a [disk] table".into());
        }
        if self.target.kind.is_server() && self.disk.mode != DiskMode::None {
            return wrong(
                "a server at an address keeps its data where it keeps them: leave the disk table out".into(),
            );
        }
        if self.load.arrivals.is_some() && !self.load.think.is_zero() {
            return wrong("load.think belongs to a closed loop; load.arrivals makes it an open one".into());
        }
        if (self.target.kind == TargetKind::File) != self.workload.kind.is_file()
            && self.target.kind != TargetKind::Null
        {
            return wrong(
                "target.kind = \"file\" and workload.kind = \"file_reads\" or \"file_io\" need each other"
                    .into(),
            );
        }
        if self.target.kind == TargetKind::Wiredtiger {
            self.check_wiredtiger()?;
        }
        self.workload.check(self.target.kind, self.lab.is_some()).map_err(super::PlanError)?;
        if self.workload.kind.has_records() {
            if self.workload.working_set.is_none() && self.workload.records.is_none() {
                return wrong("give workload.working_set or workload.records".into());
            }
            if self.records() == 0 {
                return wrong("the working set has no records".into());
            }
            let needed = self.disk_bytes().0;
            if self.target.kind == TargetKind::Wiredtiger && needed > self.disk.size.0 {
                return wrong(format!(
                    "disk.size of {} is too small for {} records of {} (about {} with journal and checkpoints)",
                    self.disk.size,
                    self.records(),
                    Bytes(self.dataset(0).logical_bytes() / self.records()),
                    Bytes(needed).rounded()
                ));
            }
        }
        if self.workload.kind == WorkloadKind::FileReads
            && (self.workload.least_read > self.workload.most_read
                || self.workload.most_read > self.workload.file_size
                || (self.target.kind.needs_disk() && self.workload.file_size > self.disk.size))
        {
            return wrong("workload: least_read ≤ most_read ≤ file_size ≤ disk.size must hold".into());
        }
        Ok(())
    }

    /// What no type can say of a load that several machines send.
    fn check_machines(&self) -> Result<(), super::PlanError> {
        let wrong = |text: String| Err(super::PlanError(text));
        let LoadSpec { machines, sessions, .. } = self.load;
        if machines == 0 || machines > sessions {
            return wrong(format!(
                "load.machines must be from 1 to load.sessions: {sessions} sessions cannot be shared by {machines}"
            ));
        }
        if self.target.address.is_none() && self.target.kind != TargetKind::Null {
            return wrong(
                "load.machines needs a server that all of them reach: give target.address. An engine of one machine's \
                 own, or a cluster on it, is out of the others' reach"
                    .into(),
            );
        }
        if self.breaking.is_some() || self.workload.kind.is_checked() {
            return wrong(
                "load.machines: what is checked is written down by one machine, so leave it out".into(),
            );
        }
        if self.workload.mix().share_of_inserts() > 0.0 {
            return wrong(
                "load.machines: which records exist is known to one machine, so the load cannot insert"
                    .into(),
            );
        }
        Ok(())
    }

    /// What no type can say of the embedded engine.
    fn check_wiredtiger(&self) -> Result<(), super::PlanError> {
        let wrong = |text: String| Err(super::PlanError(text));
        if matches!(
            self.workload.kind,
            WorkloadKind::Documents | WorkloadKind::FileReads | WorkloadKind::FileIo
        ) {
            return wrong(
                "target.kind = \"wiredtiger\" needs workload.kind = \"ycsb\", \"ycsb_reads\", or one that is \
                 checked: \"bank\", \"ledger\", \"register\", \"isolation\""
                    .into(),
            );
        }
        if self.target.wiredtiger.cache == CacheSize::Auto && self.machine.memory.is_none() {
            return wrong(
                "cache = \"auto\" is mongod's rule (memory − 1 GiB)/2 and needs machine.memory".into(),
            );
        }
        let cache = self.cache_bytes();
        if cache < Bytes::mib(4) {
            return wrong(format!("a WiredTiger cache of {cache} is too small to run; give at least 4 MiB"));
        }
        if let Some(memory) = self.machine.memory
            && memory.0 < cache.0 + Bytes::mib(16).0
        {
            return wrong(format!(
                "machine.memory of {memory} cannot hold a cache of {cache} and its process"
            ));
        }
        Ok(())
    }

    /// What no type can say of a cell with a cluster of its own.
    fn check_lab(&self) -> Result<(), super::PlanError> {
        let wrong = |text: &str| Err(super::PlanError(text.into()));
        let Some(lab) = &self.lab else {
            return wrong(
                "[break] needs [lab]: only what runs in a cluster of the laboratory's own can be broken",
            );
        };
        if self.target.address.is_some() {
            return wrong("a lab's servers have addresses of their own: leave target.address out");
        }
        if self.disk.trace || self.disk.readahead_later.is_some() || self.trial.cold {
            return wrong(
                "disk.trace, disk.readahead_later and trial.cold are for an embedded engine: leave them out of a plan with \
                 [lab]",
            );
        }
        if self.trial.drop_caches_every.is_some() && self.breaking.is_some() {
            return wrong(
                "trial.drop_caches_every is for what is measured in peace: leave it out of a plan with [break]",
            );
        }
        if lab.recipe.is_unread() {
            return Ok(());
        }
        let recipe = self.cluster()?;
        let kind = recipe.server.target();
        if self.target.kind != kind {
            let word = serde_json::to_value(kind).unwrap_or_default();
            return wrong(&format!(
                "target.kind must be {word}: that is what speaks with {}",
                lab.recipe.name
            ));
        }
        if self.cache_of_lab().is_some_and(|cache| cache < Bytes::mib(256)) {
            return wrong("wiredTigerCacheSizeGB: a mongod takes no cache smaller than 0.25");
        }
        let nodes = recipe.layout().nodes;
        let has_disk = nodes.iter().any(|node| recipe.disk_of(node.role).is_some());
        if self.trial.drop_caches_every.is_some() && !has_disk {
            return wrong(
                "trial.drop_caches_every empties the kernel's cache of disks of ours, and no node has one: give a [disk] \
                 table",
            );
        }
        if self.load.arrivals.is_some() && !self.load.think.is_zero() {
            return wrong("load.think belongs to a closed loop; load.arrivals makes it an open one");
        }
        if self.checks_alone() {
            if self.workload.kind == WorkloadKind::Scripts {
                return wrong(
                    "nobody would run the scripts of [workload]: the checks are the load unless break.sessions gives \
                     them sessions beside it",
                );
            }
            if self.workload.records.is_some() || self.workload.working_set.is_some() {
                return wrong(
                    "nobody would ask for the records of [workload]: the checks are the load unless \
                     break.sessions gives them sessions beside it",
                );
            }
        } else {
            self.check_workload_of_lab()?;
        }
        let Some(breaking) = &self.breaking else { return Ok(()) };
        for rule in &breaking.faults.rules {
            match rule.fault {
                Fault::PowerCut { .. }
                | Fault::SlowDisk { .. }
                | Fault::FillDisk { .. }
                | Fault::FailFlush { .. }
                    if !has_disk =>
                {
                    return wrong(&format!(
                        "\"{rule}\" needs nodes with disks of their own: give a [disk] table"
                    ));
                }
                Fault::JumpClock { .. } => {
                    return wrong(&format!(
                        "\"{rule}\" cannot be done: the nodes share this machine's kernel, which has one wall clock"
                    ));
                }
                _ => {}
            }
        }
        if breaking.checks.contains(&Check::Tpcb) {
            let scripts = self.workload.scripts.as_ref().filter(|scripts| scripts.are_tpcb());
            if self.workload.kind != WorkloadKind::Scripts || scripts.is_none() {
                return wrong(
                    "break.checks = [\"tpcb\"] knows what pgbench's transactions do: give workload.kind = \"scripts\" \
                     with workload.scripts.run = [\"tpcb-like\"], select-only beside it if you like, and nothing else",
                );
            }
        }
        if self.breaks_loading() {
            self.check_loading(breaking)?;
        }
        breaking.check(self.load.sessions).map_err(super::PlanError)
    }

    /// What no type can say of a cell whose faults begin while it is loaded.
    fn check_loading(&self, breaking: &BreakSpec) -> Result<(), super::PlanError> {
        let wrong = |text: &str| Err(super::PlanError(format!("break.from = \"loading\": {text}")));
        if breaking.faults.rules.is_empty() {
            return wrong("break.faults names no fault that could begin then");
        }
        if self.workload.kind == WorkloadKind::Scripts {
            return wrong(
                "scripts find tables that are made in one piece, of which nobody could say what became of it: count \
                 the faults from \"measuring\"",
            );
        }
        if self.checks_alone() && !breaking.checks.contains(&Check::Bank) {
            return wrong(
                "nothing is loaded here: ledger, register and isolation begin with empty tables. Check the bank, whose \
                 accounts are loaded, or give workload.records with break.sessions beside them",
            );
        }
        Ok(())
    }

    /// What no type can say of a workload that is sent to a cluster.
    fn check_workload_of_lab(&self) -> Result<(), super::PlanError> {
        let wrong = |text: &str| Err(super::PlanError(text.into()));
        if self.workload.kind.is_file() {
            return wrong(
                "files are read by target.kind = \"file\", which runs in no cluster: give a [tenant] table, which does \
                 the same on the disk of a node while its server is asked",
            );
        }
        if self.workload.kind.is_checked() {
            return wrong("in a lab, what is checked is named by break.checks: leave workload.kind out");
        }
        if self.workload.working_set.is_some() && self.cache_of_lab().is_none() {
            return wrong(
                "workload.working_set is a share of WiredTiger's cache, embedded or as a mongod's \
                 wiredTigerCacheSizeGB says: give workload.records",
            );
        }
        self.workload.check(self.target.kind, self.lab.is_some()).map_err(super::PlanError)?;
        if self.records() == 0 && self.workload.kind != WorkloadKind::Scripts {
            return wrong("give workload.records: how many records the servers hold");
        }
        Ok(())
    }

    /// Whether the checks are the whole load, on tables that every trial makes anew.
    pub fn checks_alone(&self) -> bool {
        let alone = |breaking: &BreakSpec| breaking.sessions == 0 && !breaking.checks.contains(&Check::Tpcb);
        self.workload.kind.is_checked() || self.breaking.as_ref().is_some_and(alone)
    }

    /// Whether it moves money between accounts, which takes transactions of several records.
    pub fn transfers(&self) -> bool {
        let checks = self.breaking.iter().flat_map(|breaking| &breaking.checks);
        self.workload.kind == WorkloadKind::Bank || checks.into_iter().any(|check| *check == Check::Bank)
    }

    /// Whether faults begin with the first record that is loaded.
    pub fn breaks_loading(&self) -> bool {
        self.breaking.as_ref().is_some_and(|breaking| breaking.from == Onset::Loading)
    }

    /// Whether the load itself is checked, so that all that its sessions see is written down.
    pub fn checks_load(&self) -> bool {
        let tpcb = |breaking: &BreakSpec| breaking.checks.contains(&Check::Tpcb);
        self.checks_alone() || self.breaking.as_ref().is_some_and(tpcb)
    }

    /// Whether what sessions see is written down, and checked afterwards.
    pub fn keeps_history(&self) -> bool {
        self.breaking.is_some() || self.workload.keeps_history()
    }

    /// Whether the target is a server, whatever is behind it.
    pub fn is_served(&self) -> bool {
        self.lab.is_some() || self.target.kind.is_server()
    }

    /// Whether it is warmed up for as long as the plan says, because nobody knows when its caches are full:
    /// a server's, or the kernel's for a file.
    pub fn is_warmed_for_a_time(&self) -> bool {
        let buffered = self.workload.io.as_ref().is_some_and(|io| io.buffered);
        self.is_served() || self.workload.kind.is_checked() || buffered
    }

    /// The device that the cell is measured on.
    pub fn shape(&self) -> Result<device::Spec, super::PlanError> {
        self.disk.shape.parse().map_err(|e| super::PlanError(format!("disk.shape: {e}")))
    }

    /// The shape of the journal's own disk, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn journal_shape(&self) -> Result<Option<device::Spec>, super::PlanError> {
        let wrong = |e| super::PlanError(format!("disk.journal: {e}"));
        self.disk.journal.as_deref().map(|shape| shape.parse().map_err(wrong)).transpose()
    }

    /// Size of the engine's cache of a mongod in the laboratory, as its settings give it.
    fn cache_of_lab(&self) -> Option<Bytes> {
        let recipe = self.cluster().ok().filter(|recipe| recipe.server == System::Mongod)?;
        let gib: f64 = recipe.settings.get("wiredTigerCacheSizeGB")?.parse().ok()?;
        Some(Bytes((gib * Bytes::gib(1).0 as f64) as u64))
    }

    /// Size of the engine's cache, by mongod's rule where it is not given.
    pub fn cache_bytes(&self) -> Bytes {
        if let Some(bytes) = self.lab.as_ref().and_then(|_| self.cache_of_lab()) {
            return bytes;
        }
        match self.target.wiredtiger.cache {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Auto => {
                let memory = self.machine.memory.unwrap_or_default();
                Bytes((memory.0.saturating_sub(Bytes::gib(1).0) / 2).max(Bytes::mib(256).0))
            }
        }
    }

    /// The part of the engine's cache that can stay filled: up to where eviction starts.
    pub fn effective_cache_bytes(&self) -> Bytes {
        Bytes((self.cache_bytes().0 as f64 * Self::EVICTION_TARGET) as u64)
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        match self.workload.kind {
            WorkloadKind::Bank => return self.workload.bank.unwrap_or_default().accounts,
            WorkloadKind::Scripts => {
                return self.workload.scripts.as_ref().map_or(0, ScriptsSpec::rows);
            }
            kind if kind.is_checked() => return 0,
            _ => {}
        }
        match (self.workload.records, self.workload.working_set) {
            (Some(records), _) => records,
            (None, Some(share)) => {
                let bytes = share.0 * self.effective_cache_bytes().0 as f64;
                (bytes / self.target.wiredtiger.record_resident_bytes as f64) as u64
            }
            (None, None) => 0,
        }
    }

    /// Bytes on the disk of this cell's data, those of its checks, journal and checkpoints included.
    pub fn data_bytes(&self) -> Bytes {
        let is_file = matches!(self.workload.kind, WorkloadKind::FileReads | WorkloadKind::FileIo);
        let journal = if is_file { 0 } else { JOURNAL_BYTES };
        Bytes(self.loaded_bytes().0.saturating_add(journal))
    }

    /// Bytes of what is loaded before anything is measured, as they lie on the disk.
    pub fn loaded_bytes(&self) -> Bytes {
        let rows = |bytes: u64| self.records().saturating_mul(bytes);
        let bytes = match self.workload.kind {
            WorkloadKind::YcsbReads | WorkloadKind::Ycsb | WorkloadKind::Documents => {
                let logical = self.dataset(0).logical_bytes();
                logical.saturating_add(logical / 2)
            }
            WorkloadKind::FileReads | WorkloadKind::FileIo => return self.workload.file_size,
            // A row of an account takes 130 bytes, and its key 20 more; one of sysbench's 220, and its keys
            // 40.
            WorkloadKind::Scripts => match self.workload.scripts.as_ref().map(ScriptsSpec::tables) {
                Some(Tables::Sysbench(_)) => rows(260),
                _ => rows(150),
            },
            WorkloadKind::Bank | WorkloadKind::Ledger | WorkloadKind::Register | WorkloadKind::Isolation => {
                rows(ACCOUNT_BYTES)
            }
        };
        let bank = self.breaking.as_ref().filter(|_| self.transfers());
        let of_bank = bank.map_or(0, |breaking| breaking.bank.accounts.saturating_mul(ACCOUNT_BYTES));
        Bytes(bytes.saturating_add(of_bank))
    }

    /// The records of this cell.
    pub fn dataset(&self, seed: u64) -> Dataset {
        Dataset {
            table: self.workload.table.clone(),
            records: self.records(),
            fields: self.workload.fields,
            field_prefix: "field".into(),
            field_length: self.workload.field_length.clone(),
            keys: self.workload.keys.clone(),
            values: self.workload.values,
            seed,
            shape: self.workload.shape(),
        }
    }

    /// The scripts of this cell; `None` if it runs none, or their files were not read yet.
    pub fn scripts(&self, seed: u64) -> Option<Scripts> {
        let kind = self.target.kind;
        self.workload.scripts.as_ref().and_then(|scripts| scripts.scripts(kind, seed).ok().flatten())
    }

    /// What is done once on a new cluster before the first operation, if that is anything: a run of the only
    /// script of this data set.
    pub fn preparation(&self, seed: u64) -> Option<Dataset> {
        let scripts = self.workload.scripts.as_ref()?.preparation(self.target.kind, seed).ok().flatten()?;
        Some(Dataset::of_scripts(Arc::new(scripts)))
    }

    /// What people call a class of operations: its name, and that of the script where there are several; of a
    /// statement what its script calls it.
    pub fn class_name(&self, kind: OpKind) -> String {
        if let OpKind::Statement(number) = kind {
            let scripts = self.scripts(0);
            let name = scripts.as_ref().and_then(|scripts| scripts.class(number.into()));
            return name.unwrap_or(kind.name()).into();
        }
        let scripts = self.workload.scripts.as_ref().map_or(&[][..], |scripts| &scripts.run);
        let is_recorded = self.workload.scripts.as_ref().is_some_and(|scripts| scripts.recorded.is_some());
        match (kind, scripts) {
            (OpKind::Script(number), []) if is_recorded => {
                format!("{} ({})", kind.name(), RECORDED[usize::from(number).min(1)])
            }
            (OpKind::Script(number), [_, _, ..]) if usize::from(number) < scripts.len() => {
                format!("{} ({})", kind.name(), scripts[usize::from(number)].name)
            }
            _ => kind.name().into(),
        }
    }

    /// The tables of all checks.
    pub fn checks(&self) -> Dataset {
        Dataset::checks(Arc::new(self.workload.bank().expect("it was checked")))
    }

    /// The records that exist and the operations on them. The data are the same for all seeds, so that trials
    /// of a cell can share them.
    pub fn load_of(&self, seed: u64) -> (Dataset, Box<dyn Workload>) {
        const DATA_SEED: u64 = 1;
        let w = &self.workload;
        if let Some(breaking) = self.breaking.as_ref().filter(|_| self.checks_alone()) {
            let (dataset, split) = breaking.load_of(self.load.sessions, seed).expect("it was checked");
            return (dataset, Box::new(split));
        }
        match w.kind {
            WorkloadKind::YcsbReads | WorkloadKind::Ycsb | WorkloadKind::Documents => {
                let dataset = self.dataset(DATA_SEED);
                let workload = Ycsb::new(&dataset, &w.requested(&dataset), seed);
                (dataset, Box::new(workload))
            }
            WorkloadKind::FileReads | WorkloadKind::FileIo => {
                let dataset = Dataset {
                    records: w.file_size.0 / 4096,
                    fields: 1,
                    field_length: Lengths::Constant(4096),
                    ..self.dataset(DATA_SEED)
                };
                let workload: Box<dyn Workload> = match w.kind {
                    WorkloadKind::FileIo => Box::new(w.file_io(self.load.sessions, seed)),
                    _ => Box::new(RandomReads::new(w.file_size, w.least_read, w.most_read, seed)),
                };
                (dataset, workload)
            }
            WorkloadKind::Bank => {
                let bank = Arc::new(w.bank().expect("it was checked"));
                (Dataset::of_bank(bank.clone()), Box::new(Transfers::new(bank, seed)))
            }
            WorkloadKind::Scripts => {
                let scripts = Arc::new(self.scripts(seed).expect("its files were read"));
                let dataset = Dataset { records: self.records(), ..Dataset::of_scripts(scripts.clone()) };
                (dataset, Box::new(ScriptRuns(scripts)))
            }
            WorkloadKind::Ledger => (self.checks(), Box::new(Ledger::new(seed))),
            WorkloadKind::Register => {
                (self.checks(), Box::new(Registers::new(u64::from(self.load.sessions), seed)))
            }
            WorkloadKind::Isolation => (self.checks(), Box::new(ListTransactions::new(seed))),
        }
    }
}
