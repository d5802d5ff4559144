//! The study of transfers between accounts: throughput and latency by cluster, cores, memory, file system and
//! fault.

use super::{BrokenCell, Cells, Figure};
use crate::check::broken::Things;
use crate::op::OpKind;
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
    /// The labels of all axes: "10,000 accounts, 2 cores".
    pub settings: String,
    /// The cluster's recipe.
    pub recipe: String,
    /// Accounts.
    pub accounts: u64,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Transfers done per second over the whole run, faults included.
    pub throughput_ops_per_s: Figure,
    /// Mean residence of a transfer before the first fault, or of all where nothing is broken.
    pub residence_ms_mean: Figure,
    /// 99th percentile of that.
    pub residence_ms_p99: Figure,
    /// Share of faults that lost an acknowledged transfer.
    pub fault_loss_percent: Figure,
}

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
        Transfers {
            sweep: plan.sweep.clone(),
            setting: labels.last().copied().unwrap_or_default().into(),
            settings: labels.join(", "),
            recipe: plan.spec.lab.as_ref().map_or_else(String::new, |lab| lab.recipe.name.clone()),
            accounts: plan.spec.breaking.as_ref().map_or(0, |breaking| breaking.bank.accounts),
            broken_laws: cell.of.broken_laws(),
            throughput_ops_per_s: cell.figure(cell.whole_rate(OpKind::Transfer)),
            residence_ms_mean: cell.figure(cell.calm_mean_ms(OpKind::Transfer)),
            residence_ms_p99: cell.calm_percentile(OpKind::Transfer, 0.99),
            fault_loss_percent: cell.loss_chance_percent(Things::Transfers),
        }
    }
}
