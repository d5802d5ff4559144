//! The study of the price of safety: what each level of durability costs in peace, and how often a kill or a
//! power cut loses what it acknowledged.

use super::{BrokenCell, CellRecords, Cells, Figure};
use crate::check::broken::Things;
use crate::metric::{name as metric, probe};
use crate::op::OpKind;
use crate::record::Measured;
use serde::Serialize;

/// The study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Every level of every system on every disk, in the plan's order.
    pub levels: Vec<Level>,
    /// What is measured without anything that breaks: data beyond memory, writes in batches.
    pub unbroken: Vec<Unbroken>,
}

/// One level of safety of one system on one disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Level {
    /// "wiredtiger".
    pub system: String,
    /// "journalled".
    pub level: String,
    /// "SSD".
    pub disk: String,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Writes done per second before the fault.
    pub throughput_ops_per_s: Figure,
    /// Mean residence of a write before the fault.
    pub residence_ms_mean: Figure,
    /// 99th percentile of the residence of a write before the fault.
    pub residence_ms_p99: Figure,
    /// Share of kills that lost an acknowledged write.
    pub kill_loss_percent: Figure,
    /// Share of power cuts that lost an acknowledged write.
    pub power_cut_loss_percent: Figure,
}

/// Writes of a cell in which nothing breaks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unbroken {
    /// The sweep: "beyond-memory".
    pub sweep: String,
    /// What differs in it: "data beyond memory".
    pub setting: String,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Records written per second.
    pub records_per_s: Figure,
    /// Mean residence of a write, of one record or of a batch.
    pub residence_ms_mean: Figure,
    /// Its p99.
    pub residence_ms_p99: Figure,
    /// The same mean for each record of a batch.
    pub record_ms_mean: Figure,
    /// Reads of the disk for each write.
    pub disk_reads_each: Figure,
}

impl Unbroken {
    fn of(cell: &CellRecords<'_>) -> Unbroken {
        let batch = match cell.cell.spec.workload.mix().share_of_inserts() > 0.0 {
            true => f64::from(cell.cell.spec.workload.insert_batch),
            false => 1.0,
        };
        let mean_ms = |m: &Measured| Some(m.residence().ok()?.mean() / 1e6);
        Unbroken {
            sweep: cell.cell.sweep.clone(),
            setting: cell.cell.labels.first().map(|(_, label)| label.clone()).unwrap_or_default(),
            broken_laws: cell.broken_laws(),
            records_per_s: cell.figure(cell.mean(|m| Some(m.throughput() * batch))).not_negative(),
            residence_ms_mean: cell.figure(cell.mean(mean_ms)).not_negative(),
            residence_ms_p99: cell.percentile_figure(cell.residence_ms(0.99)),
            record_ms_mean: cell.figure(cell.mean(|m| Some(mean_ms(m)? / batch))).not_negative(),
            disk_reads_each: cell
                .figure(cell.per_operation_in_place(probe::DISK, metric::DISK_READ_REQUESTS))
                .not_negative(),
        }
    }
}

impl Study {
    /// From the cells with a level and a fault, and those in which nothing breaks.
    pub fn of(cells: &Cells<'_>) -> Study {
        let broken: Vec<BrokenCell<'_>> = cells.all.iter().filter_map(BrokenCell::of).collect();
        let place = |cell: &BrokenCell<'_>| {
            let label = |axis: &str| cell.of.cell.label(axis).unwrap_or("–").to_string();
            (cell.system().to_string(), label("level"), label("disk"))
        };
        let with_fault = || broken.iter().filter(|cell| cell.of.cell.label("fault").is_some());
        let mut places: Vec<_> = Vec::new();
        for place in with_fault().map(place) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let level = |(system, level, disk): (String, String, String)| {
            let same: Vec<&BrokenCell<'_>> = with_fault()
                .filter(|cell| place(cell) == (system.clone(), level.clone(), disk.clone()))
                .collect();
            Level::of(system, level, disk, &same)
        };
        let unbroken = cells.all.iter().filter(|cell| cell.cell.spec.breaking.is_none()).map(Unbroken::of);
        Study { levels: places.into_iter().map(level).collect(), unbroken: unbroken.collect() }
    }
}

impl Level {
    /// `cells` has one cell for each fault, and at least one.
    fn of(system: String, level: String, disk: String, cells: &[&BrokenCell<'_>]) -> Level {
        // Until the fault all runs are alike, whatever is broken later.
        let runs = cells.iter().flat_map(|cell| cell.runs.iter().copied()).collect();
        let all = BrokenCell { of: cells[0].of, runs };
        let under = |fault: &str| {
            let cell = cells.iter().find(|cell| cell.of.cell.label("fault") == Some(fault));
            cell.map_or_else(
                || Figure::missing("the plan lacks this fault at this level", 0),
                |cell| cell.loss_chance_percent(Things::Writes),
            )
        };
        let mut broken_laws: Vec<String> = cells.iter().flat_map(|cell| cell.of.broken_laws()).collect();
        broken_laws.dedup();
        Level {
            broken_laws,
            throughput_ops_per_s: all.figure(all.calm_rate(Some(OpKind::Update))),
            residence_ms_mean: all.figure(all.calm_mean_ms(OpKind::Update)),
            residence_ms_p99: all.calm_percentile(OpKind::Update, 0.99),
            kill_loss_percent: under("kill"),
            power_cut_loss_percent: under("power cut"),
            system,
            level,
            disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;
    use std::collections::{BTreeMap, BTreeSet};

    /// Kills are sweeps of their own, whose levels are found by the names that power cuts have.
    #[test]
    fn every_level_of_a_single_server_is_killed_and_cut_off() {
        const PLAN: &str = include_str!("../../../../experiments/write-concern.toml");
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let mut faults = BTreeMap::<(&str, &str), BTreeSet<&str>>::new();
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            let system = cell.label("system").unwrap_or(&cell.sweep);
            if matches!(system, "wiredtiger" | "postgres" | "mariadb" | "mongodb") {
                faults
                    .entry((system, cell.label("level").unwrap()))
                    .or_default()
                    .insert(cell.label("fault").unwrap());
            }
        }
        assert_eq!(faults.len(), 4 + 3 + 3 + 3);
        for (level, faults) in faults {
            assert_eq!(faults, BTreeSet::from(["kill", "power cut"]), "{level:?}");
        }
    }

    #[test]
    fn a_sweep_in_which_nothing_breaks_leaves_the_plans_faults_to_the_others() {
        const PLAN: &str = include_str!("../../../../experiments/write-concern.toml");
        let said = [("break.length".to_string(), "7 s".to_string())];
        let experiment = Experiment::parse(PLAN, "quick", &said).unwrap();
        for sweep in &experiment.sweeps {
            let unbroken = ["beyond-memory", "batches", "mongodb-batches"].contains(&sweep.name.as_str());
            for cell in &sweep.cells {
                assert_eq!(cell.spec.breaking.is_none(), unbroken, "{}", cell.id());
            }
        }
    }
}
