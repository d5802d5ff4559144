//! The study of the working set: throughput and latency against working set and disk, where reads were
//! answered, and whether the disk does what it was configured to do.

mod published;

use super::{CellRecords, Cells, Figure};
use crate::measure::{Budget, Estimate, Station};
use crate::metric::{name as metric, probe};
use crate::predict::queue::{READ, saturated_latency};
use crate::record::Cpu;
use published::Published;
use serde::Serialize;

const PAGE_BYTES: f64 = READ.0 as f64;
/// Below this many misses per operation a working set counts as being in the engine's cache.
const IN_CACHE: f64 = 0.002;
/// Above this much of the time a disk is busy enough to decide.
const BUSY_PERCENT: f64 = 90.0;

/// Sweeps in which something else differs than working set and disk.
const VARIANTS: [&str; 3] = ["readahead", "documents", "alone"];

/// The study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Where the published numbers stand.
    pub source: String,
    /// Reads of records, by working set and disk.
    pub reads: Vec<Reads>,
    /// The same on a MongoDB, where there was one.
    pub mongodb: Vec<Reads>,
    /// The same where something else differs: readahead, the documents, the sessions.
    pub variants: Vec<Variant>,
    /// Random reads of a file that nothing caches, by disk and sessions.
    pub device: Vec<Device>,
}

/// Reads of records in a sweep of its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// The sweep: "readahead".
    pub sweep: String,
    /// The label of its innermost axis: "256".
    pub setting: String,
    /// The figures.
    #[serde(flatten)]
    pub reads: Reads,
}

/// Reads of records with one working set on one disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reads {
    /// Label of the working set.
    pub working_set: String,
    /// Working set as a share of the effective engine cache.
    pub working_set_ratio: f64,
    /// Label of the disk.
    pub disk: String,
    /// Requests per second that the disk's gate lets through.
    pub gate_ops_per_s: f64,
    /// Records in the data set.
    pub records: u64,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Operations done per second.
    pub throughput_ops_per_s: Figure,
    /// Throughput as a share of that with the smallest working set on the same disk.
    pub throughput_relative_percent: Figure,
    /// 99th percentile of the residence.
    pub residence_ms_p99: Figure,
    /// What arithmetic gives for it where the disk decides: device reads per missed page × sessions ÷ gate.
    pub arithmetic_ms_p99: Option<f64>,
    /// Whether the disk was busy enough to decide.
    pub disk_decides: bool,
    /// Pages that the engine missed, per operation.
    pub misses_per_operation: Figure,
    /// Operations without a miss: an upper bound, because an operation may miss twice.
    pub operations_without_miss_percent: Figure,
    /// Bytes that the page cache had of those that the engine missed.
    pub page_cache_hit_percent: Figure,
    /// Bytes read into the engine's cache.
    pub engine_cache_read_mb_per_s: Figure,
    /// Bytes read from the disk.
    pub device_read_mb_per_s: Figure,
    /// Requests that the disk served.
    pub device_reads_per_s: Figure,
    /// Requests that the disk served for each operation.
    pub device_reads_per_operation: Figure,
    /// Share of the time in which the disk had a request.
    pub device_busy_percent: Figure,
    /// Page cache of the target's memory group at the end.
    pub page_cache_mb: Figure,
    /// Bytes in use of the engine's cache at the end, as a share of its configured size.
    pub engine_cache_used_percent: Figure,
    /// Where bytes that the engine missed came from.
    pub budget: Option<ReadBudget>,
    /// Processor time of the engine for each operation.
    pub engine_us_per_operation: Figure,
    /// Processor time burnt in place of client, wire and server.
    pub request_path_us_per_operation: Figure,
    /// Processor time of the generator.
    pub generator_us_per_operation: Figure,
    /// Processor time of the disk's daemon.
    pub disk_daemon_us_per_operation: Figure,
    /// Processors that the target's process kept busy.
    pub target_cores: Figure,
    /// What the text prints for this cell.
    pub published: PublishedReads,
}

/// What the text prints for one working set on one disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedReads {
    /// Operations per second.
    pub throughput_ops_per_s: Option<f64>,
    /// Throughput as a share of that with the smallest working set on the same disk.
    pub throughput_relative_percent: Option<f64>,
    /// 99th percentile, as a range where one is printed.
    pub residence_ms_p99: Option<(f64, f64)>,
}

/// Where bytes that the engine missed came from, in all trials of a cell together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadBudget {
    /// From the page cache.
    pub page_cache_pages_per_operation: f64,
    /// From the disk.
    pub device_pages_per_operation: f64,
    /// What neither gave, as a share of what was missed.
    pub residual_ratio: f64,
    /// Whether that is within its tolerance; `None` where nothing independent checks it.
    pub closes: Option<bool>,
    /// What was compared.
    pub evidence: String,
}

/// Random reads of a file by some sessions on one disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Device {
    /// Label of the disk.
    pub disk: String,
    /// Concurrent reads.
    pub sessions: u32,
    /// Requests per second that the disk's gate lets through.
    pub gate_ops_per_s: f64,
    /// Requests per second that gate, latency and sessions allow.
    pub ceiling_ops_per_s: f64,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Reads of the file, each of several pages.
    pub throughput_ops_per_s: Figure,
    /// Requests that the disk served.
    pub device_reads_per_s: Figure,
    /// How far those are from the ceiling.
    pub device_error_percent: Figure,
    /// Requests as the kernel's block layer counts them; `None` where there is no block device.
    pub kernel_reads_per_s: Option<Figure>,
    /// Mean time of a request.
    pub await_ms: Figure,
    /// Mean requests in flight.
    pub queue_depth: Figure,
    /// Share of the time in which the disk had a request.
    pub busy_percent: Figure,
    /// fio's operations per second on this disk, as printed.
    pub published_throughput_ops_per_s: Option<f64>,
    /// The device's reads per second under fio, as printed.
    pub published_device_reads_per_s: Option<f64>,
}

impl Study {
    /// From the sweeps `reads`, `mongodb`, `device`, and those of variants.
    ///
    /// # Errors
    /// A cell's disk has no gate.
    pub fn of(cells: &Cells<'_>) -> Result<Study, String> {
        let published = Published::load()?;
        let reads = Reads::of_sweep(cells, "reads", &published)?;
        let mongodb = Reads::of_sweep(cells, "mongodb", &published)?;
        let device =
            cells.sweep("device").map(|cell| Device::of(cell, &published)).collect::<Result<_, _>>()?;
        let mut variants = Vec::new();
        for cell in VARIANTS.iter().flat_map(|sweep| cells.sweep(sweep)) {
            let setting = cell.cell.labels.last().map(|(_, label)| label.clone()).unwrap_or_default();
            let reads = Reads::of(cell, None, &published, 0.0)?;
            variants.push(Variant { sweep: cell.cell.sweep.clone(), setting, reads });
        }
        Ok(Study { source: published.source, reads, mongodb, variants, device })
    }

    /// Labels of the disks in the plan's order, each with its gate.
    pub fn disks(&self) -> Vec<(&str, f64)> {
        let mut disks: Vec<(&str, f64)> = Vec::new();
        for row in &self.reads {
            if !disks.iter().any(|(disk, _)| *disk == row.disk) {
                disks.push((&row.disk, row.gate_ops_per_s));
            }
        }
        disks
    }

    /// Labels of the working sets in the plan's order.
    pub fn sets(&self) -> Vec<&str> {
        let mut sets: Vec<&str> = Vec::new();
        for row in &self.reads {
            if !sets.contains(&row.working_set.as_str()) {
                sets.push(&row.working_set);
            }
        }
        sets
    }

    /// One cell.
    pub fn at(&self, set: &str, disk: &str) -> Option<&Reads> {
        self.reads.iter().find(|row| row.working_set == set && row.disk == disk)
    }
}

fn share(cell: &CellRecords<'_>) -> f64 {
    cell.cell.spec.workload.working_set.map_or(0.0, |share| share.0)
}

fn shape(cell: &CellRecords<'_>) -> Result<crate::device::Spec, String> {
    cell.cell.spec.shape().map_err(|error| error.to_string())
}

fn gate(cell: &CellRecords<'_>) -> Result<f64, String> {
    Ok(shape(cell)?.iops.ok_or("this study needs disks with an IOPS gate")?.0)
}

impl Reads {
    /// The rows of a sweep over working sets and disks.
    fn of_sweep(cells: &Cells<'_>, sweep: &str, published: &Published) -> Result<Vec<Reads>, String> {
        let first = cells.sweep(sweep).next();
        // What "relative to in cache" is relative to: the plan's first working set on the same disk.
        let base = |of: &CellRecords<'_>| {
            let same = |axis: &str, other: &CellRecords<'_>, with: &CellRecords<'_>| {
                other.cell.label(axis) == with.cell.label(axis)
            };
            let is_base = |c: &&CellRecords<'_>| {
                first.is_some_and(|first| same("working_set", c, first)) && same("disk", c, of)
            };
            cells.sweep(sweep).find(is_base).and_then(CellRecords::throughput)
        };
        let smallest = first.map_or(0.0, share);
        cells.sweep(sweep).map(|cell| Reads::of(cell, base(cell), published, smallest)).collect()
    }

    fn of(
        cell: &CellRecords<'_>,
        base: Option<Estimate>,
        published: &Published,
        smallest: f64,
    ) -> Result<Reads, String> {
        let figure = |estimate: Option<Estimate>| cell.figure(estimate).not_negative();
        let us = |ns: fn(&Cpu) -> u64| {
            figure(cell.mean(move |m| Some(ns(&m.cpu) as f64 / 1e3 / m.operations() as f64)))
        };
        let (gate, ratio) = (gate(cell)?, share(cell));
        let throughput = cell.throughput();
        let relative = throughput.as_ref().zip(base).map(|(x, base)| x.relative_to(&base).scaled(100.0));
        let misses = cell.misses_per_operation();
        let in_cache = misses.as_ref().is_some_and(|m| m.value < IN_CACHE);
        let trials = cell.measured().len() as u32;
        let on_disk = |counter, unit: f64| cell.mean(|m| Some(m.rate_in_place(probe::DISK, counter)? / unit));
        let busy = on_disk(metric::DISK_BUSY_NS, 1e7);
        let disk_decides = busy.as_ref().is_some_and(|busy| busy.value > BUSY_PERCENT);
        let theirs = published.throughput(ratio, gate);
        let their_base = published.throughput(smallest, gate);
        let engine_bytes = cell.cell.spec.cache_bytes().0 as f64;
        Ok(Reads {
            working_set: cell.cell.label("working_set").unwrap_or("").into(),
            working_set_ratio: ratio,
            disk: cell.cell.label("disk").unwrap_or("unshaped").into(),
            gate_ops_per_s: gate,
            records: cell.cell.spec.records(),
            broken_laws: cell.broken_laws(),
            throughput_ops_per_s: figure(throughput),
            throughput_relative_percent: figure(relative),
            residence_ms_p99: cell.percentile_figure(cell.residence_ms(0.99)),
            arithmetic_ms_p99: arithmetic_ms_p99(cell, gate),
            disk_decides,
            operations_without_miss_percent: cell.figure(misses.as_ref().map(|m| Estimate {
                value: (1.0 - m.value) * 100.0,
                low: (1.0 - m.high) * 100.0,
                high: (1.0 - m.low) * 100.0,
                basis: m.basis.clone(),
            })),
            misses_per_operation: figure(misses),
            page_cache_hit_percent: match in_cache {
                true => Figure::missing("the engine misses next to nothing", trials),
                false => figure(cell.mean(|m| {
                    let budget = Budget::reads(m.accounts().values().next()?);
                    let missed = budget.bytes(Station::Engine).filter(|missed| *missed > 0.0)?;
                    Some((1.0 - budget.bytes(Station::Device)? / missed) * 100.0)
                })),
            },
            engine_cache_read_mb_per_s: figure(
                cell.mean(|m| Some(m.rate_in_place(probe::TARGET, metric::ENGINE_CACHE_READ_BYTES)? / 1e6)),
            ),
            device_read_mb_per_s: figure(on_disk(metric::DISK_READ_BYTES, 1e6)),
            device_reads_per_s: figure(on_disk(metric::DISK_READ_REQUESTS, 1.0)),
            device_reads_per_operation: figure(
                cell.mean(|m| {
                    Some(m.rate_in_place(probe::DISK, metric::DISK_READ_REQUESTS)? / m.throughput())
                }),
            ),
            device_busy_percent: figure(busy),
            page_cache_mb: figure(
                cell.mean(|m| Some(m.level_in_place(probe::GROUP, metric::GROUP_PAGE_CACHE_BYTES)? / 1e6)),
            ),
            engine_cache_used_percent: figure(cell.mean(|m| {
                Some(m.level_in_place(probe::TARGET, metric::ENGINE_CACHE_BYTES)? / engine_bytes * 100.0)
            })),
            budget: cell.read_budget().map(|budget| ReadBudget::of(&budget, cell.operations())),
            engine_us_per_operation: match &cell.cell.spec.lab {
                Some(_) => figure(cell.mean(|m| Some(m.only_node()?.busy_cores()? * 1e6 / m.throughput()))),
                None => us(Cpu::engine_ns),
            },
            request_path_us_per_operation: us(|cpu| cpu.request_path_ns),
            generator_us_per_operation: us(|cpu| cpu.generator_ns),
            disk_daemon_us_per_operation: us(|cpu| cpu.disk_ns),
            target_cores: figure(cell.mean(|m| Some(m.cpu.process_ns as f64 / 1e9 / m.seconds()))),
            published: PublishedReads {
                throughput_ops_per_s: theirs,
                throughput_relative_percent: theirs
                    .zip(their_base)
                    .map(|(x, base)| (x / base * 1000.0).round() / 10.0),
                residence_ms_p99: published.p99_ms(ratio, gate),
            },
        })
    }
}

/// What one page miss waits for at a saturated gate, in milliseconds.
fn arithmetic_ms_p99(cell: &CellRecords<'_>, gate_ops_per_s: f64) -> Option<f64> {
    let sessions = cell.cell.spec.load.sessions;
    Some(saturated_latency(cell.reads_per_miss()?, sessions, gate_ops_per_s) * 1e3)
}

impl ReadBudget {
    fn of(budget: &Budget, operations: u64) -> ReadBudget {
        let pages = |station| budget.bytes(station).unwrap_or(0.0) / operations.max(1) as f64 / PAGE_BYTES;
        ReadBudget {
            page_cache_pages_per_operation: pages(Station::PageCache),
            device_pages_per_operation: pages(Station::Device),
            residual_ratio: budget.checks.first().map_or(0.0, |check| check.residual),
            closes: budget.closes,
            evidence: budget.evidence.clone(),
        }
    }
}

impl Device {
    fn of(cell: &CellRecords<'_>, published: &Published) -> Result<Device, String> {
        let figure = |estimate: Option<Estimate>| cell.figure(estimate).not_negative();
        let gate = gate(cell)?;
        let sessions = cell.cell.spec.load.sessions;
        let latency_s = shape(cell)?.latency.as_secs_f64();
        // One session after the other waits for the latency; the gate is the other limit.
        let ceiling = if latency_s > 0.0 { gate.min(f64::from(sessions) / latency_s) } else { gate };
        let reads = cell.device(|r| Some(r.reads.0));
        let error = reads.as_ref().map(|r| Estimate {
            value: (r.value / ceiling - 1.0) * 100.0,
            low: (r.low / ceiling - 1.0) * 100.0,
            high: (r.high / ceiling - 1.0) * 100.0,
            basis: r.basis.clone(),
        });
        let theirs = published.device(gate);
        Ok(Device {
            disk: cell.cell.label("disk").unwrap_or("unshaped").into(),
            sessions,
            gate_ops_per_s: gate,
            ceiling_ops_per_s: ceiling,
            broken_laws: cell.broken_laws(),
            throughput_ops_per_s: figure(cell.throughput()),
            device_reads_per_s: figure(reads),
            device_error_percent: cell.figure(error),
            kernel_reads_per_s: cell
                .block_layer(|r| Some(r.read.requests.0))
                .map(|kernel| figure(Some(kernel))),
            await_ms: figure(cell.device(|r| r.read_await.map(|a| a.as_secs_f64() * 1e3))),
            queue_depth: figure(cell.device(|r| Some(r.queue))),
            busy_percent: figure(cell.device(|r| Some(r.utilization.0 * 100.0))),
            published_throughput_ops_per_s: theirs.map(|(fio, _)| fio),
            published_device_reads_per_s: theirs.map(|(_, reads)| reads),
        })
    }
}
