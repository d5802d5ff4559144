//! The study of the price of safety: what each level of durability costs in peace, and how often a kill or a
//! power cut loses what it acknowledged.

use super::{BrokenCell, Cells, Figure};
use crate::check::broken::Things;
use crate::op::OpKind;
use serde::Serialize;

/// The study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Every level of every system on every disk, in the plan's order.
    pub levels: Vec<Level>,
}

/// One level of safety of one system on one disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Level {
    /// The sweep: "wiredtiger".
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

impl Study {
    /// From the cells with a level and a fault.
    pub fn of(cells: &Cells<'_>) -> Study {
        let broken: Vec<BrokenCell<'_>> = cells.all.iter().filter_map(BrokenCell::of).collect();
        let place = |cell: &BrokenCell<'_>| {
            let label = |axis: &str| cell.of.cell.label(axis).unwrap_or("–").to_string();
            (cell.of.cell.sweep.clone(), label("level"), label("disk"))
        };
        let with_fault = || broken.iter().filter(|cell| cell.of.cell.label("fault").is_some());
        let mut places: Vec<_> = with_fault().map(place).collect();
        // Faults of one level follow each other: they are the innermost axis.
        places.dedup();
        let level = |(system, level, disk): (String, String, String)| {
            let same: Vec<&BrokenCell<'_>> = with_fault()
                .filter(|cell| place(cell) == (system.clone(), level.clone(), disk.clone()))
                .collect();
            Level::of(system, level, disk, &same)
        };
        Study { levels: places.into_iter().map(level).collect() }
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
