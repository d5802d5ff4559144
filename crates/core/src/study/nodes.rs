//! What each node of each cell did in the measured phase: processor, memory, disk, network, and whether its
//! budgets close.

use super::{CellRecords, Figure};
use crate::measure::{Budget, Station, Way};
use crate::metric::{name as metric, probe};
use crate::record::Ends;
use serde::Serialize;
use std::collections::BTreeSet;

/// The figures of one node over the trials of its cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeFigures {
    /// Its name.
    pub node: String,
    /// Whether it took writes at the end, by what the last trial says.
    pub is_primary: bool,
    /// Processors that its processes kept busy.
    pub cores: Figure,
    /// Memory of its group at the end: programs, page cache and kernel.
    pub memory_mib: Figure,
    /// Of that, the page cache.
    pub page_cache_mib: Figure,
    /// Megabytes per second that its disk read.
    pub disk_read_mb_per_s: Figure,
    /// Megabytes per second that its disk wrote.
    pub disk_write_mb_per_s: Figure,
    /// Share of the time in which its disk had a request, in per cent.
    pub disk_busy_percent: Figure,
    /// Reads that its disk completed per second.
    pub disk_reads_per_s: Figure,
    /// Writes that its disk completed per second.
    pub disk_writes_per_s: Figure,
    /// Flushes that its disk completed per second.
    pub disk_flushes_per_s: Figure,
    /// Megabytes per second that reached it.
    pub network_in_mb_per_s: Figure,
    /// Megabytes per second that it sent.
    pub network_out_mb_per_s: Figure,
    /// Its budget of reads.
    pub reads: Budget,
    /// Bytes that its disk wrote for each byte of keys and values that users wrote to the cluster.
    pub write_amplification: Option<f64>,
}

/// The node of `cell` that took writes at the end of its last trial; `None` where it runs in no cluster.
pub fn primary<'a>(cell: &CellRecords<'a>) -> Option<&'a str> {
    cell.records.iter().rev().find_map(|record| record.target.get("primary")?.as_str())
}

/// The nodes of `cell`, by name; none where it runs in no cluster.
pub fn figures(cell: &CellRecords<'_>) -> Vec<NodeFigures> {
    let measured = cell.measured();
    let names: BTreeSet<&String> = measured.iter().flat_map(|measured| measured.nodes.keys()).collect();
    let (mut reads, mut writes) = (cell.budgets(Way::Reads), cell.budgets(Way::Writes));
    let primary = primary(cell);
    let mut figures = Vec::new();
    for name in names {
        let Some(reads) = reads.remove(name) else { continue };
        let amplification = writes.remove(name).and_then(|budget| {
            let (users, device) = (budget.bytes(Station::User)?, budget.bytes(Station::Device)?);
            (users > 0.0).then(|| device / users)
        });
        let trials = measured.len() as u32;
        let mean = |of: &dyn Fn(&Ends) -> Option<f64>| {
            let estimate = cell.mean(|measured| of(measured.nodes.get(name)?));
            Figure::of(estimate.ok_or_else(|| "nobody counted it".into()), trials).not_negative()
        };
        let rate = |probe: &str, counters: &[&str], unit: f64| {
            mean(&|ends| Some(ends.rate(probe, counters)? / unit))
        };
        let level = |name: &str| mean(&|ends| Some(ends.last.get(probe::GROUP)?.get(name)? / MIB));
        figures.push(NodeFigures {
            node: name.clone(),
            is_primary: primary == Some(name),
            cores: mean(&Ends::busy_cores),
            memory_mib: level("cgroup_usage_bytes"),
            page_cache_mib: level(metric::GROUP_PAGE_CACHE_BYTES),
            disk_read_mb_per_s: rate(probe::DISK, &[metric::DISK_READ_BYTES], 1e6),
            disk_write_mb_per_s: rate(probe::DISK, &[metric::DISK_WRITE_BYTES], 1e6),
            disk_busy_percent: rate(probe::DISK, &[metric::DISK_BUSY_NS], 1e7),
            disk_reads_per_s: rate(probe::DISK, &[metric::DISK_READ_REQUESTS], 1.0),
            disk_writes_per_s: rate(probe::DISK, &[metric::DISK_WRITE_REQUESTS], 1.0),
            disk_flushes_per_s: rate(probe::DISK, &[metric::DISK_FLUSH_REQUESTS], 1.0),
            network_in_mb_per_s: rate(probe::NETWORK, &["network_received_bytes"], 1e6),
            network_out_mb_per_s: rate(probe::NETWORK, &["network_sent_bytes"], 1e6),
            reads,
            write_amplification: amplification,
        });
    }
    figures
}

const MIB: f64 = 1024.0 * 1024.0;
