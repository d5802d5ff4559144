//! The figures of a cell, from the records of its trials.

use super::block_layer::{self, DeviceRates};
use crate::audit;
use crate::device::Rates;
use crate::experiment::{Cell, Experiment};
use crate::measure::{
    Account, Budget, Counts, Estimate, TooFew, Way, Within, mean_of_groups, percentile_of_groups,
};
use crate::metric::{name as metric, probe};
use crate::op::{Failure, OpKind};
use crate::predict::queue::READ;
use crate::record::{Measured, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Below this many requests to the disk for an operation the page cache has it all.
pub(super) const NO_DISK: f64 = 0.01;

/// All cells of an experiment with their records.
pub struct Cells<'a> {
    /// In the plan's order.
    pub all: Vec<CellRecords<'a>>,
    /// How often each should have been measured.
    pub repeats: u32,
}

/// A cell and the records of its trials.
pub struct CellRecords<'a> {
    /// What was measured.
    pub cell: &'a Cell,
    /// Every trial that was carried out, believed or not.
    pub records: Vec<&'a Record>,
    /// It belongs to a sweep that is left out where its server is not installed.
    pub is_optional: bool,
    /// What was counted in its trials together; made when it is first asked for, and asked for often.
    accounts: OnceLock<BTreeMap<String, Account>>,
}

impl<'a> Cells<'a> {
    /// Brings cells and records together.
    pub fn of(experiment: &'a Experiment, records: &'a [Record]) -> Self {
        // Cells and records may be thousands: each record is looked at once.
        let mut by_cell: BTreeMap<&str, Vec<&'a Record>> = BTreeMap::new();
        for record in records.iter().filter(|record| !record.twin) {
            by_cell.entry(&record.cell).or_default().push(record);
        }
        let sweeps = experiment.sweeps.iter();
        let cells = sweeps.flat_map(|sweep| sweep.cells.iter().map(|cell| (cell, sweep.optional)));
        let all = cells
            .map(|(cell, is_optional)| {
                let records = by_cell.get(&*cell.id()).cloned().unwrap_or_default();
                CellRecords { cell, records, is_optional, accounts: OnceLock::new() }
            })
            .collect();
        Cells { all, repeats: experiment.repeats }
    }

    /// How many trials there should be: those of optional sweeps only where one of their cells was measured.
    pub fn planned(&self) -> u32 {
        let begun: BTreeSet<&str> =
            self.all.iter().filter(|c| !c.records.is_empty()).map(|c| &*c.cell.sweep).collect();
        let wanted = self.all.iter().filter(|c| !c.is_optional || begun.contains(&*c.cell.sweep));
        wanted.count() as u32 * self.repeats
    }

    /// The cells of one sweep.
    pub fn sweep(&self, name: &str) -> impl Iterator<Item = &CellRecords<'a>> {
        self.all.iter().filter(move |c| c.cell.sweep == name)
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = &'a Record> {
        self.all.iter().flat_map(|c| c.records.iter().copied())
    }
}

impl<'a> CellRecords<'a> {
    /// The measured phases of the trials that can be believed.
    pub fn measured(&self) -> Vec<&'a Measured> {
        self.records.iter().filter(|r| r.is_valid()).filter_map(|r| r.measured.as_ref()).collect()
    }

    /// Laws of the audit that one of its believable trials breaks: its figures cannot all be true.
    pub fn broken_laws(&self) -> Vec<String> {
        self.broken().map(|finding| finding.law).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Why its figures cannot all be true, in words, if the audit finds that.
    pub fn conviction(&self) -> Option<String> {
        let finding = self.broken().next()?;
        Some(format!("the audit convicts it: {}, {}", finding.law, finding.numbers))
    }

    fn broken(&self) -> impl Iterator<Item = audit::Finding> {
        let believed = self.records.iter().filter(|record| record.is_valid());
        let findings = believed.flat_map(|record| audit::audit(&audit::of_record(record)).findings);
        findings.filter(|finding| finding.severity == audit::Severity::Broken)
    }

    /// Why there is no figure.
    pub fn why_none(&self) -> String {
        use crate::record::Verdict;
        match self.records.first().map(|r| &r.verdict) {
            None if self.is_optional => {
                let recipe = self.cell.spec.lab.as_ref().map_or(&*self.cell.sweep, |lab| &lab.recipe.name);
                format!("not measured: left out, since it needs a server that you bring ({recipe})")
            }
            None => "not measured".into(),
            Some(Verdict::Failed { reason }) => format!("not measured: {reason}"),
            Some(Verdict::Invalid { reasons }) => format!("no verdict: {}", reasons.join("; ")),
            Some(Verdict::Valid) => "nothing was counted".into(),
        }
    }

    /// As [`measured`](Self::measured), by the machine that carried them out.
    pub fn by_machine(&self) -> Vec<Vec<&'a Measured>> {
        let mut groups: BTreeMap<Option<&str>, Vec<&'a Measured>> = BTreeMap::new();
        for record in self.records.iter().filter(|record| record.is_valid()) {
            groups.entry(record.provenance.machine.as_deref()).or_default().extend(&record.measured);
        }
        groups.into_values().collect()
    }

    /// Mean over the trials of a figure of each; machines of a fleet stand beside each other.
    pub fn mean(&self, figure: impl Fn(&Measured) -> Option<f64>) -> Option<Estimate> {
        let of = |group: Vec<&'a Measured>| group.into_iter().map(&figure).collect::<Option<Vec<f64>>>();
        let values: Option<Vec<Vec<f64>>> = self.by_machine().into_iter().map(of).collect();
        mean_of_groups(&values?)
    }

    /// A percentile of counts that each trial may give, over all of them.
    pub(super) fn percentile(
        &self,
        quantile: f64,
        counts: impl Fn(&Measured) -> Option<Counts>,
    ) -> Result<Estimate, TooFew> {
        let of = |group: Vec<&'a Measured>| group.into_iter().filter_map(&counts);
        percentile_of_groups(self.by_machine().into_iter().map(of), quantile).map(|e| e.scaled(1e-6))
    }

    /// Operations per second. A single trial has the interval that its own intervals give it.
    pub fn throughput(&self) -> Option<Estimate> {
        let across = self.mean(|m| Some(m.throughput()))?;
        let alone = self.alone().and_then(|within| within.throughput.clone());
        // The value stays that of the whole phase; the bootstrap gives its interval.
        Some(alone.map_or(across.clone(), |within| Estimate {
            value: across.value,
            low: within.low.min(across.value),
            high: within.high.max(across.value),
            basis: within.basis,
        }))
    }

    /// What the only believable trial says about itself; `None` if there are more, or none.
    fn alone(&self) -> Option<&'a Within> {
        match self.measured().as_slice() {
            [only] => only.within.as_ref(),
            _ => None,
        }
    }

    /// A percentile of the residence in milliseconds, of all operations that ended, failed ones included, and
    /// of all trials merged. A single trial is asked how many independent samples its own are worth.
    pub fn residence_ms(&self, quantile: f64) -> Result<Estimate, TooFew> {
        if let Some(within) = self.alone().and_then(|within| within.of_quantile(quantile)) {
            return within.map(|e| e.scaled(1e-6));
        }
        self.percentile(quantile, |m| m.books.residence().ok())
    }

    /// Classes of operations that occurred, parts of others included.
    pub fn kinds(&self) -> Vec<OpKind> {
        let kinds: BTreeSet<OpKind> = self.measured().into_iter().flat_map(|m| m.books.kinds()).collect();
        kinds.into_iter().collect()
    }

    /// A percentile of the residence of operations of one class that were done, in milliseconds, of all
    /// trials merged.
    pub fn class_ms(&self, kind: OpKind, quantile: f64) -> Result<Estimate, TooFew> {
        self.percentile(quantile, |m| m.books.residence_of(kind).ok().filter(|counts| !counts.is_empty()))
    }

    /// "3 conflict, 1 timeout (unknown)": failed operations of one class in all trials.
    pub fn failures_in_words(&self, kind: OpKind) -> String {
        let mut counts: BTreeMap<(Failure, bool), u64> = BTreeMap::new();
        for book in self.measured().into_iter().flat_map(|m| m.books.of(kind)) {
            for (failures, unknown) in [(&book.refused, false), (&book.unknown, true)] {
                for (failure, count) in failures {
                    *counts.entry((*failure, unknown)).or_default() += count;
                }
            }
        }
        let words = |((failure, unknown), count): ((Failure, bool), u64)| {
            format!("{count} {}{}", failure.name(), if unknown { " (unknown)" } else { "" })
        };
        let words: Vec<String> = counts.into_iter().map(words).collect();
        if words.is_empty() { "none".into() } else { words.join(", ") }
    }

    /// Retries of operations of one class in all trials.
    pub fn retries(&self, kind: OpKind) -> u64 {
        self.measured().into_iter().flat_map(|m| m.books.of(kind)).map(|book| book.retries).sum()
    }

    /// Growth of a counter per operation.
    pub fn per_operation(&self, probe: &str, metric: &str) -> Option<Estimate> {
        self.mean(|m| Some(m.growth(probe, metric)? / m.operations() as f64))
    }

    /// Growth per operation of a counter of the kernel or the disk in the one place where the target runs.
    pub fn per_operation_in_place(&self, probe: &str, metric: &str) -> Option<Estimate> {
        self.mean(|m| Some(m.growth_in_place(probe, metric)? / m.operations() as f64))
    }

    /// Growth per operation of what the disk there was asked for, by the account of `shaped` and else by that
    /// of the `kernel`: a server at an address has a disk of its own.
    pub fn per_operation_of_disk(&self, shaped: &str, kernel: &str) -> Option<Estimate> {
        self.per_operation_in_place(probe::DISK, shaped)
            .or_else(|| self.per_operation_in_place(probe::DEVICE, kernel))
    }

    /// The same of a counter of the engine: per operation that its statistics had seen.
    pub fn per_operation_of_engine(&self, metric: &str) -> Option<Estimate> {
        self.mean(|m| Some(m.growth_in_place(probe::TARGET, metric)? / m.operations_seen()))
    }

    /// Pages that the engine missed, per operation.
    pub fn misses_per_operation(&self) -> Option<Estimate> {
        self.per_operation_of_engine(metric::ENGINE_PAGE_READS)
    }

    /// Bytes that the disk is asked for at a time: what was counted, or what the kernel asks for without
    /// readahead where the disk was hardly asked.
    pub fn request_bytes(&self) -> f64 {
        let counted = |shaped, kernel| Some(self.per_operation_of_disk(shaped, kernel)?.value);
        let reads = counted(metric::DISK_READ_REQUESTS, metric::DEVICE_READ_REQUESTS);
        let reads = reads.filter(|reads| *reads > NO_DISK);
        let bytes = counted(metric::DISK_READ_BYTES, metric::DEVICE_READ_BYTES);
        bytes.zip(reads).map_or(READ.0 as f64, |(bytes, reads)| bytes / reads)
    }

    /// Requests that a page takes from the disk, one after another; `None` where no page was read.
    pub fn reads_per_miss(&self) -> Option<f64> {
        let bytes = self.per_operation_of_engine(metric::ENGINE_FILE_READ_BYTES)?.value;
        let reads = self.per_operation_of_engine(metric::ENGINE_FILE_READS)?.value;
        (reads > 0.0).then(|| (bytes / reads / self.request_bytes()).max(1.0))
    }

    /// The trials that budgets are of: all believable ones, or all that were measured if none can be
    /// believed: that is where one looks for the reason.
    fn accounted(&self) -> Vec<&'a Record> {
        let measured = self.records.iter().copied().filter(|r| r.measured.is_some());
        let (valid, invalid): (Vec<&Record>, Vec<&Record>) = measured.partition(|r| r.is_valid());
        if valid.is_empty() { invalid } else { valid }
    }

    /// What was counted in these trials together, of each node.
    fn accounts(&self) -> &BTreeMap<String, Account> {
        self.accounts.get_or_init(|| {
            let trials = self.accounted();
            let mut accounts: BTreeMap<String, Account> = BTreeMap::new();
            for (node, account) in
                trials.iter().filter_map(|r| r.measured.as_ref()).flat_map(Measured::accounts)
            {
                let sum = match accounts.remove(&node) {
                    Some(before) => before.plus(&account),
                    None => account,
                };
                accounts.insert(node, sum);
            }
            accounts
        })
    }

    /// What went `way` in all believable trials together, or in all that were measured if none can be
    /// believed. For each node; under "" where the target runs in one place.
    pub fn budgets(&self, way: Way) -> BTreeMap<String, Budget> {
        let user: Option<f64> = match way {
            Way::Reads => None,
            Way::Writes => self.accounted().iter().map(|record| record.user_bytes()).sum(),
        };
        let budget = |account: &Account| match way {
            Way::Reads => Budget::reads(account),
            Way::Writes => Budget::writes(account, user),
        };
        self.accounts().iter().map(|(node, account)| (node.clone(), budget(account))).collect()
    }

    /// The read budget of the one place where the target runs, if need be a cluster's only node; `None` for
    /// several nodes, where nothing was measured, and where nobody counted what the target read.
    pub fn read_budget(&self) -> Option<Budget> {
        let mut budgets = self.budgets(Way::Reads).into_values();
        let only = budgets.next().filter(|_| budgets.next().is_none());
        only.filter(|budget| !self.measured().is_empty() && budget.is_accounted())
    }

    /// Operations of all trials together.
    pub fn operations(&self) -> u64 {
        self.measured().iter().map(|m| m.operations()).sum()
    }

    /// A column of iostat, from the kernel's block layer; `None` where there is no block device.
    pub fn block_layer(&self, column: impl Fn(&DeviceRates) -> Option<f64>) -> Option<Estimate> {
        self.mean(|m| column(&block_layer::rates(m.first.get(probe::DEVICE)?, m.last.get(probe::DEVICE)?)?))
    }

    /// A column of iostat, from the disk's own counters.
    pub fn device(&self, column: impl Fn(&Rates) -> Option<f64>) -> Option<Estimate> {
        self.mean(|m| column(&m.disk_rates()?))
    }
}
