//! The study of transfers between accounts: throughput and latency by cluster, clients, cores, memory, file
//! system and fault, and what its nodes had to do for them.

use super::{BrokenCell, CellRecords, Cells, Figure, nodes};
use crate::check::broken::Things;
use crate::measure::mean_of_trials;
use crate::metric::{name as metric, probe};
use crate::op::OpKind;
use crate::record::Ends;
use serde::Serialize;

/// The study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Every cell, in the plan's order.
    pub transfers: Vec<Transfers>,
}

/// Transfers on one cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transfers {
    /// The sweep: "file-systems".
    pub sweep: String,
    /// The label of its innermost axis, such as "xfs" or "kill a replica"; empty without one.
    pub setting: String,
    /// The labels of all axes: "in memory, ext4".
    pub settings: String,
    /// The cluster's recipe.
    pub recipe: String,
    /// Accounts.
    pub accounts: u64,
    /// Clients, each with one transfer at a time.
    pub clients: u32,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Transfers done per second over the whole run, faults included.
    pub throughput_ops_per_s: Figure,
    /// Of these, before the first fault.
    pub calm_ops_per_s: Figure,
    /// Mean residence of a transfer before the first fault, or of all where nothing is broken.
    pub residence_ms_mean: Figure,
    /// 99th percentile of that.
    pub residence_ms_p99: Figure,
    /// Share of faults that lost an acknowledged transfer.
    pub fault_loss_percent: Figure,
    /// Files of the primary, its log included, ÷ the memory of its node.
    pub data_per_memory: Figure,
    /// Processors that the primary kept busy.
    pub primary_cores: Figure,
    /// Processors that another node kept busy, their mean.
    pub others_cores: Figure,
    /// Share of the time in which the primary's disk had a request.
    pub disk_busy_percent: Figure,
    /// Reads that the primary's disk completed for a transfer.
    pub disk_reads_per_transfer: Figure,
    /// Writes that the primary's disk completed for a transfer.
    pub disk_writes_per_transfer: Figure,
    /// Share of the machine's processors that were busy, clients and disks included.
    pub machine_busy_percent: Figure,
    /// What was in use all the time, by these figures.
    pub full: Vec<Resource>,
}

/// What a transfer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// The processors that the primary's node may use.
    Processors,
    /// The primary's disk.
    Disk,
    /// The processors of the machine that carries nodes, clients and disks.
    Machine,
}

impl Resource {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Resource::Processors => "the primary's processors",
            Resource::Disk => "its disk",
            Resource::Machine => "the machine's processors",
        }
    }
}

/// From this share of the time on something counts as in use all the time.
const FULL_PERCENT: f64 = 90.0;

impl Study {
    /// From all cells that carry out transfers.
    pub fn of(cells: &Cells<'_>) -> Study {
        let transfers = cells.all.iter().filter_map(BrokenCell::of).map(|cell| Transfers::of(&cell));
        Study { transfers: transfers.collect() }
    }
}

impl Transfers {
    fn of(cell: &BrokenCell<'_>) -> Transfers {
        let plan = cell.of.cell;
        let labels: Vec<&str> = plan.labels.iter().map(|(_, label)| label.as_str()).collect();
        let primary = Primary::of(cell.of);
        let cpus = plan.spec.lab.as_ref().and_then(|lab| lab.cpus);
        let transfers = Transfers {
            sweep: plan.sweep.clone(),
            setting: labels.last().copied().unwrap_or_default().into(),
            settings: labels.join(", "),
            recipe: plan.spec.lab.as_ref().map_or_else(String::new, |lab| lab.recipe.name.clone()),
            accounts: plan.spec.breaking.as_ref().map_or(0, |breaking| breaking.bank.accounts),
            clients: plan.spec.load.sessions,
            broken_laws: cell.of.broken_laws(),
            throughput_ops_per_s: cell.figure(cell.whole_rate(OpKind::Transfer)),
            calm_ops_per_s: cell.figure(cell.calm_rate(Some(OpKind::Transfer))),
            residence_ms_mean: cell.figure(cell.calm_mean_ms(OpKind::Transfer)),
            residence_ms_p99: cell.calm_percentile(OpKind::Transfer, 0.99),
            fault_loss_percent: cell.loss_chance_percent(Things::Transfers),
            data_per_memory: data_per_memory(cell),
            primary_cores: primary.figure(Ends::busy_cores),
            others_cores: primary.others_cores(),
            disk_busy_percent: primary
                .figure(|ends| ends.rate(probe::DISK, &[metric::DISK_BUSY_NS]).map(|ns| ns / 1e7)),
            disk_reads_per_transfer: primary.per_operation(metric::DISK_READ_REQUESTS),
            disk_writes_per_transfer: primary.per_operation(metric::DISK_WRITE_REQUESTS),
            machine_busy_percent: machine_busy_percent(cell.of),
            full: vec![],
        };
        Transfers { full: transfers.in_use(cpus), ..transfers }
    }
}

impl Transfers {
    /// What was in use all the time, where a node may use `cpus` processors.
    fn in_use(&self, cpus: Option<f64>) -> Vec<Resource> {
        let share =
            |figure: &Figure, of: f64| figure.value().is_some_and(|value| value / of * 100.0 >= FULL_PERCENT);
        let all = [
            (cpus.is_some_and(|cpus| share(&self.primary_cores, cpus)), Resource::Processors),
            (share(&self.disk_busy_percent, 100.0), Resource::Disk),
            (share(&self.machine_busy_percent, 100.0), Resource::Machine),
        ];
        all.into_iter().filter(|(is_full, _)| *is_full).map(|(_, resource)| resource).collect()
    }
}

fn machine_busy_percent(cell: &CellRecords<'_>) -> Figure {
    let cores = f64::from(cell.records.first().map_or(0, |record| record.machine.cores));
    let busy = cell.mean(|measured| {
        let idle = measured.growth(probe::SYSTEM, "system_cpu_idle_ns")? / 1e9 / measured.seconds();
        (cores > 0.0).then(|| 100.0 * (1.0 - idle / cores))
    });
    cell.figure(busy).not_negative()
}

fn data_per_memory(cell: &BrokenCell<'_>) -> Figure {
    let Some(memory) = cell.of.cell.spec.machine.memory else {
        return Figure::missing("the memory of its nodes has no limit", cell.runs.len() as u32);
    };
    let of_runs = cell.runs.iter().filter_map(|run| Some(run.data?.0 as f64 / memory.0 as f64));
    cell.figure(mean_of_trials(&of_runs.collect::<Vec<f64>>()))
}

/// The node of a cell that took writes.
struct Primary<'a> {
    cell: &'a CellRecords<'a>,
    name: Option<&'a str>,
}

impl<'a> Primary<'a> {
    fn of(cell: &'a CellRecords<'a>) -> Primary<'a> {
        Primary { cell, name: nodes::primary(cell) }
    }

    /// Over the trials of its cell.
    fn figure(&self, of: impl Fn(&Ends) -> Option<f64>) -> Figure {
        let mean = self.cell.mean(|measured| of(measured.nodes.get(self.name?)?));
        self.cell.figure(mean).not_negative()
    }

    /// Growth of a counter of its disk for each transfer.
    fn per_operation(&self, counter: &str) -> Figure {
        let mean = self.cell.mean(|measured| {
            Some(measured.nodes.get(self.name?)?.rate(probe::DISK, &[counter])? / measured.throughput())
        });
        self.cell.figure(mean).not_negative()
    }

    fn others_cores(&self) -> Figure {
        let alone = self.cell.measured().iter().all(|measured| measured.nodes.len() < 2);
        if alone && !self.cell.measured().is_empty() {
            return Figure::missing("it has one node", self.cell.measured().len() as u32);
        }
        let mean = self.cell.mean(|measured| {
            let others = measured.nodes.iter().filter(|(name, _)| Some(name.as_str()) != self.name);
            let cores: Option<Vec<f64>> = others.map(|(_, ends)| ends.busy_cores()).collect();
            let cores = cores.filter(|cores| !cores.is_empty())?;
            Some(cores.iter().sum::<f64>() / cores.len() as f64)
        });
        self.cell.figure(mean).not_negative()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Claims, Known, REGISTRY, Verdict};

    fn figure(value: f64) -> Figure {
        let (low, high, basis) = (Some(value * 0.9995), Some(value * 1.0005), "planted".into());
        Figure::Known(Known { value, low, high, trials: 3, basis })
    }

    fn none() -> Figure {
        Figure::missing("nobody counted it", 3)
    }

    fn row(sweep: &str, settings: &str, per_s: f64) -> Transfers {
        Transfers {
            sweep: sweep.into(),
            setting: settings.rsplit(", ").next().unwrap_or_default().into(),
            settings: settings.into(),
            recipe: "planted".into(),
            accounts: 10_000,
            clients: 8,
            broken_laws: vec![],
            throughput_ops_per_s: figure(per_s),
            calm_ops_per_s: figure(per_s),
            residence_ms_mean: figure(50.0),
            residence_ms_p99: figure(500.0),
            fault_loss_percent: figure(0.0),
            data_per_memory: figure(1.7),
            primary_cores: figure(1.9),
            others_cores: figure(0.5),
            disk_busy_percent: figure(95.0),
            disk_reads_per_transfer: figure(4.0),
            disk_writes_per_transfer: figure(3.0),
            machine_busy_percent: figure(80.0),
            full: vec![],
        }
    }

    /// Throughputs as the text printed them, or of a cluster that does the opposite.
    fn planted(as_published: bool) -> serde_json::Value {
        let mut rows: Vec<Transfers> = [
            ("engines", "1 core", 340.0),
            ("engines", "2 cores", 720.0),
            ("memory", "in memory, ext4", 445.0),
            ("memory", "in memory, xfs", 575.0),
            ("memory", "at its edge, ext4", 300.0),
            ("memory", "at its edge, xfs", 290.0),
            ("memory", "beyond it, ext4", 300.0),
            ("memory", "beyond it, xfs", 280.0),
            ("replicas", "a quarter less memory", 2551.0),
            ("replicas", "all the memory", 2761.0),
            ("galera", "", 534.0),
            ("faults-postgres", "kill a replica", 653.0),
            ("faults-galera", "kill a replica", 534.0),
            ("faults-galera", "cut between replicas", 534.0),
            ("mongodb", "a quarter of a core", 1000.0),
            ("mongodb", "half a core", 1843.0),
            ("mongodb-arbiter", "", 1843.0 * 1.015),
            ("mongodb-sharded", "two shards", 443.0),
            ("mongodb-sharded", "four shards", 718.0),
        ]
        .map(|(sweep, settings, per_s)| row(sweep, settings, per_s))
        .into();
        let clients = [(1, 100.0), (16, 720.0), (64, 1843.0), (128, 2661.0), (256, 2600.0)];
        rows.extend(
            clients.map(|(n, per_s)| Transfers { clients: n, ..row("clients", &n.to_string(), per_s) }),
        );
        for row in &mut rows {
            match (row.sweep.as_str(), row.settings.as_str()) {
                ("memory", "in memory, ext4") => row.primary_cores = figure(1.0),
                ("memory", "beyond it, xfs") => {
                    (row.disk_reads_per_transfer, row.disk_writes_per_transfer) = (figure(5.0), figure(2.5));
                }
                ("mongodb-sharded", _) => row.primary_cores = figure(0.24),
                _ => {}
            }
        }
        if !as_published {
            for row in &mut rows {
                let of = |figure: &Figure| figure.value().unwrap_or(1.0);
                row.throughput_ops_per_s = figure(1e6 / of(&row.throughput_ops_per_s));
                (row.residence_ms_p99, row.primary_cores) = (figure(9.0), figure(0.1));
                (row.disk_busy_percent, row.data_per_memory) = (figure(20.0), figure(0.1));
                row.disk_reads_per_transfer = figure(1.0 / of(&row.disk_reads_per_transfer));
            }
        }
        serde_json::to_value(Study { transfers: rows }).unwrap()
    }

    fn verdicts(study: &serde_json::Value) -> Vec<(String, Verdict)> {
        let row = REGISTRY.iter().find(|row| row.name == "bank").unwrap();
        let judged = Claims::parse(row.claims).unwrap().judge(study);
        let tested = judged.into_iter().filter(|claim| !matches!(claim.verdict, Verdict::NotTested { .. }));
        tested.map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn clusters_as_published_confirm_every_claim() {
        let found = verdicts(&planted(true));
        assert_eq!(found.len(), 30);
        for (id, verdict) in found {
            assert_eq!(verdict, Verdict::Confirmed, "{id}");
        }
    }

    #[test]
    fn clusters_that_do_the_opposite_contradict_what_is_about_them() {
        // That something is done under faults, that clusters are alike, and that the best of several is the
        // best is so of these too; and less memory costs nothing where it helps.
        let of_any = ["bank-06", "bank-14", "bank-16", "bank-35", "bank-39", "bank-40", "bank-41"];
        for (id, verdict) in verdicts(&planted(false)) {
            let expected =
                if of_any.contains(&id.as_str()) { Verdict::Confirmed } else { Verdict::Contradicted };
            assert_eq!(verdict, expected, "{id}");
        }
    }

    #[test]
    fn what_was_in_use_all_the_time_is_named_and_an_idle_cluster_names_nothing() {
        let busy = |cores: Figure, disk: Figure, machine: Figure, cpus| {
            let of = row("engines", "", 1.0);
            let (primary_cores, disk_busy_percent, machine_busy_percent) = (cores, disk, machine);
            Transfers { primary_cores, disk_busy_percent, machine_busy_percent, ..of }.in_use(cpus)
        };
        let all = vec![Resource::Processors, Resource::Disk, Resource::Machine];
        assert_eq!(busy(figure(0.95), figure(99.0), figure(91.0), Some(1.0)), all);
        assert_eq!(busy(figure(0.95), figure(50.0), figure(50.0), Some(2.0)), []);
        assert_eq!(busy(figure(0.95), figure(50.0), figure(50.0), None), [], "nobody said what it may use");
        assert_eq!(busy(none(), none(), none(), Some(1.0)), [], "nobody counted");
    }
}
