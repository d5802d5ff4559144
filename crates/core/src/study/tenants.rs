//! What other tenants of the target's disks did in the measured phase.

use super::{CellRecords, Figure};
use crate::experiment::Side;
use crate::record::{Measured, Tenant};
use serde::Serialize;
use std::collections::BTreeSet;

/// The figures of one tenant over the trials of its cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantFigures {
    /// The node on whose disk it was; empty where the target runs in one place.
    pub node: String,
    /// Which of the disks there.
    pub disk: Side,
    /// Requests that were done per second.
    pub requests_per_s: Figure,
    /// Half of its requests were answered within this many milliseconds of being due.
    pub residence_ms_p50: Figure,
    /// 99 of 100 were.
    pub residence_ms_p99: Figure,
    /// Requests that failed, or that were due and not answered, in all trials.
    pub failed: u64,
}

/// The tenants of `cell`, by node.
pub fn figures(cell: &CellRecords<'_>) -> Vec<TenantFigures> {
    let measured = cell.measured();
    let key = |tenant: &Tenant| (tenant.node.clone(), tenant.disk);
    let keys: BTreeSet<(String, Side)> =
        measured.iter().flat_map(|measured| measured.tenants.iter().map(key)).collect();
    let one = |(node, disk): (String, Side)| {
        let find = |measured: &&Measured| -> Option<Tenant> {
            measured.tenants.iter().find(|tenant| (&tenant.node, tenant.disk) == (&node, disk)).cloned()
        };
        let mean = |of: &dyn Fn(&Measured, &Tenant) -> Option<f64>| {
            let estimate = cell.mean(|measured| of(measured, &find(&measured)?));
            Figure::of(estimate.ok_or_else(|| "it did nothing".into()), measured.len() as u32).not_negative()
        };
        let quantile = |q: f64| {
            let estimate = cell.percentile(q, |measured| find(&measured)?.books.residence().ok());
            Figure::of(estimate.map_err(|few| few.to_string()), measured.len() as u32)
        };
        let lost = |tenant: &Tenant| tenant.offered.as_ref().map_or(0, |offered| offered.lost());
        TenantFigures {
            requests_per_s: mean(&|measured, tenant| Some(tenant.books.done() as f64 / measured.seconds())),
            residence_ms_p50: quantile(0.5),
            residence_ms_p99: quantile(0.99),
            failed: measured
                .iter()
                .filter_map(find)
                .map(|tenant| tenant.books.failed() + lost(&tenant))
                .sum(),
            node: node.clone(),
            disk,
        }
    };
    keys.into_iter().map(one).collect()
}
