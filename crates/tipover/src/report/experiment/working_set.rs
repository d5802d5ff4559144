//! The study of the working set: ours beside the published one.

use super::sections::{budget_verdict, number, shown, shown_percentile};
use crate::report::{
    Axis, Block, Cell, Chart, Column, Number, On, Point, ReferenceLine, Row, Section, Series, SeriesKind,
    Table,
};
use crate::study::{CellRecords, Cells, WorkingSet};
use anyhow::{Context, Result};
use tipover_core::measure::Estimate;
use tipover_core::metric::{name as metric, probe};
use tipover_core::units::{Rate, Ratio, significant};

const PAGE_BYTES: f64 = 4096.0;
/// Below this many misses per operation a working set counts as being in the engine's cache.
const IN_CACHE: f64 = 0.002;
/// Above this much of the page reads from the device, the disk decides.
const ON_DISK: f64 = 0.01;

/// A cell with the coordinates that this study needs.
struct Spot<'a> {
    cell: &'a CellRecords<'a>,
    working_set: f64,
    set_label: &'a str,
    disk_label: &'a str,
    iops: f64,
}

/// The study.
pub struct Study<'a> {
    points: Vec<Spot<'a>>,
    device: Vec<Spot<'a>>,
    published: WorkingSet,
}

impl<'a> Study<'a> {
    /// Finds the study's cells among all.
    pub fn of(cells: &'a Cells<'a>) -> Result<Study<'a>> {
        let point = |cell: &'a CellRecords<'a>| {
            Ok(Spot {
                cell,
                working_set: cell.cell.spec.workload.working_set.map_or(0.0, |share| share.0),
                set_label: cell.cell.label("working_set").unwrap_or(""),
                disk_label: cell.cell.label("disk").unwrap_or("unshaped"),
                iops: cell.cell.spec.shape()?.iops.context("this study needs disks with an IOPS gate")?.0,
            })
        };
        Ok(Study {
            points: cells.sweep("reads").map(point).collect::<Result<_>>()?,
            device: cells.sweep("device").map(point).collect::<Result<_>>()?,
            published: WorkingSet::load()?,
        })
    }

    fn disks(&self) -> Vec<(&'a str, f64)> {
        let mut disks: Vec<(&str, f64)> = Vec::new();
        for p in &self.points {
            if !disks.iter().any(|(label, _)| *label == p.disk_label) {
                disks.push((p.disk_label, p.iops));
            }
        }
        disks
    }

    fn sets(&self) -> Vec<(&'a str, f64)> {
        let mut sets: Vec<(&str, f64)> = Vec::new();
        for p in &self.points {
            if !sets.iter().any(|(label, _)| *label == p.set_label) {
                sets.push((p.set_label, p.working_set));
            }
        }
        sets
    }

    fn at(&self, set: &str, disk: &str) -> Option<&Spot<'a>> {
        self.points.iter().find(|p| p.set_label == set && p.disk_label == disk)
    }

    /// Throughput of the same disk with the smallest working set.
    fn in_cache(&self, disk: &str) -> Option<Estimate> {
        self.at(self.sets().first()?.0, disk)?.cell.throughput()
    }

    /// The answer in sentences.
    pub fn headline(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let (sets, disks) = (self.sets(), self.disks());
        let (Some(&(first_set, _)), Some(&(last_set, _))) = (sets.first(), sets.last()) else {
            return sentences;
        };
        let Some(&(slow, slow_iops)) = disks.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return sentences;
        };
        let throughput = |set: &str, disk: &str| self.at(set, disk).and_then(|p| p.cell.throughput());

        // Working sets of which all disks give the same, as far as the intervals can tell.
        let alike: Vec<&str> = sets
            .iter()
            .map(|(set, _)| *set)
            .take_while(|set| {
                disks.iter().all(|(disk, _)| {
                    self.at(set, disk)
                        .is_some_and(|p| p.device_reads_per_operation().is_some_and(|r| r < ON_DISK))
                })
            })
            .collect();
        if let (Some(&edge), Some(high), Some(low)) =
            (alike.last(), throughput(first_set, slow), throughput(last_set, slow))
        {
            let factor = high.value / low.value;
            let reads =
                self.at(last_set, slow).and_then(|p| p.device_reads_per_operation()).unwrap_or(f64::NAN);
            sentences.push(format!(
                "Up to a working set of {edge} of the effective engine cache every disk gives about the same, {} \
                 reads/s in cache; at {last_set} the disk \"{slow}\" gives {}, 1/{} of it, because a read then takes \
                 {} requests of 4 KiB to the disk on average, and the disk serves {} of them per second.",
                number(&high, ""),
                number(&low, ""),
                significant(factor, 2),
                significant(reads, 2),
                thousands(slow_iops),
            ));
        }
        let ratios: Vec<String> = disks
            .iter()
            .filter_map(|(disk, _)| {
                let ratio = throughput(last_set, disk)?.relative_to(&throughput(last_set, slow)?);
                // The slow disk against itself is 1 without an error.
                Some(if *disk == slow { "1".to_string() } else { number(&ratio, "").to_string() })
            })
            .collect();
        if ratios.len() == disks.len() && disks.len() > 1 {
            let gates: Vec<String> = disks.iter().map(|(_, iops)| significant(iops / slow_iops, 3)).collect();
            sentences.push(format!(
                "At {last_set} the disks' throughputs are as {}; their gates are as {}.",
                ratios.join(" : "),
                gates.join(" : ")
            ));
        }
        if let Some(p) = self.at(last_set, slow)
            && let (Some(predicted), Ok(measured)) = (p.predicted_p99_ms(), p.cell.residence_ms(0.99))
        {
            let printed = match self.published.p99_ms(p.working_set, p.iops) {
                Some((low, high)) if low == high => format!("; the study printed {low} ms"),
                _ => String::new(),
            };
            sentences.push(format!(
                "p99 there is reads per missed page × sessions ÷ IOPS = {} ms by arithmetic, {} ms measured{printed}.",
                significant(predicted, 3),
                number(&measured, ""),
            ));
        }
        sentences
    }

    /// The evidence.
    pub fn sections(&self) -> Vec<Section> {
        vec![
            section(
                "answer",
                "Ours and published",
                vec![
                    self.beside_published(),
                    self.chart(
                        "throughput",
                        "Throughput against working set",
                        "throughput",
                        "operations/s",
                        |p| p.cell.throughput(),
                        |p| self.published.throughput(p.working_set, p.iops),
                    ),
                    self.chart(
                        "p99",
                        "p99 latency against working set",
                        "p99",
                        "ms",
                        |p| p.cell.residence_ms(0.99).ok(),
                        |p| {
                            self.published
                                .p99_ms(p.working_set, p.iops)
                                .map(|(low, high)| rounded((low + high) / 2.0))
                        },
                    ),
                ],
            ),
            section("budget", "Where reads were answered", vec![self.budget_chart(), self.budget_table()]),
            section(
                "device",
                "The disk against its configuration",
                vec![self.device_table(), self.gate_chart()],
            ),
            section("processor", "Where processor time went", vec![self.processor_table()]),
        ]
    }

    fn beside_published(&self) -> Block {
        let records: Vec<String> = (self.sets().iter())
            .filter_map(|(set, _)| self.points.iter().find(|p| p.set_label == *set))
            .map(|p| Number::exact(p.cell.cell.spec.records() as f64, "").bare())
            .collect();
        let records = records.join("; ");
        let mut rows = Vec::new();
        for (set, working_set) in self.sets() {
            for (disk, iops) in self.disks() {
                let Some(p) = self.at(set, disk) else { continue };
                let ours = p.cell.throughput();
                let relative = match (&ours, self.in_cache(disk)) {
                    (Some(x), Some(base)) => number(&x.relative_to(&base).scaled(100.0), "%").into(),
                    _ => Cell::missing(&p.cell.why_none()),
                };
                let source = &self.published.source;
                let printed = |value: Option<f64>, unit: &str| match value {
                    Some(value) => Cell::published(Number::exact(value, unit), source),
                    None => Cell::missing("not printed in the study"),
                };
                let smallest = self.sets().first().map_or(0.0, |s| s.1);
                let theirs = self.published.throughput(working_set, iops);
                let their_share = theirs
                    .zip(self.published.throughput(smallest, iops))
                    .map(|(x, base)| (x / base * 1000.0).round() / 10.0);
                let their_p99 = match self.published.p99_ms(working_set, iops) {
                    Some((low, high)) if low < high => {
                        Cell::published(Number::range(low, high, "ms"), source)
                    }
                    Some((ms, _)) => Cell::published(Number::exact(ms, "ms"), source),
                    None => Cell::missing("not printed in the study"),
                };
                let predicted = match p.predicted_p99_ms() {
                    Some(ms) if p.device_decides() => Number::new(ms, "ms").into(),
                    _ => Cell::missing("the disk does not decide here"),
                };
                rows.push(Row::new(vec![
                    set.into(),
                    disk.into(),
                    shown(ours.as_ref(), "/s", p.cell),
                    printed(theirs, "/s"),
                    relative,
                    printed(their_share, "%"),
                    shown_percentile(p.cell, 0.99),
                    their_p99,
                    predicted,
                ]));
            }
        }
        Block::Table(Table {
            caption: "The study's table, ours beside the published one".into(),
            columns: vec![
                Column::words("working set"),
                Column::words("disk"),
                Column::numbers("ours", "/s").group("throughput"),
                Column::numbers("published", "/s").group("throughput"),
                Column::numbers("ours", "%").group("relative to in cache"),
                Column::numbers("published", "%").group("relative to in cache"),
                Column::numbers("ours", "ms").group("p99"),
                Column::numbers("published", "ms").group("p99"),
                Column::numbers("k·N/IOPS", "ms").group("p99"),
            ],
            rows,
            how_to_read: format!(
                "Working sets are in shares of the effective engine cache: {records} records. Compare shapes, not \
                 absolute figures: the study ran a server on four cores of another machine. Intervals are 95 %: for \
                 throughput over trials, for p99 order statistics and the spread of trials. k·N/IOPS is arithmetic: \
                 device reads per missed page × sessions ÷ configured IOPS."
            ),
        })
    }

    fn chart(
        &self,
        id: &str,
        title: &str,
        quantity: &str,
        unit: &str,
        ours: impl Fn(&Spot<'_>) -> Option<Estimate>,
        theirs: impl Fn(&Spot<'_>) -> Option<f64>,
    ) -> Block {
        let mut series = Vec::new();
        for (disk, _) in self.disks() {
            let of_disk = || self.points.iter().filter(|p| p.disk_label == disk);
            let points = of_disk()
                .filter_map(|p| {
                    let e = ours(p)?;
                    let point = Point::new(percent(p.working_set), e.value);
                    Some(if e.low.is_finite() && e.high.is_finite() {
                        // On a log axis an interval that reaches zero has no lower end to draw.
                        point.between(e.low.max(e.value / 100.0), e.high)
                    } else {
                        point
                    })
                })
                .collect();
            series.push(Series::ours(SeriesKind::Line, disk, disk, points));
        }
        for (disk, _) in self.disks() {
            let of_disk = self.points.iter().filter(|p| p.disk_label == disk);
            let points: Vec<Point> =
                of_disk.filter_map(|p| Some(Point::new(percent(p.working_set), theirs(p)?))).collect();
            series.extend(Series::published_points(disk, &self.published.source, points));
        }
        Block::Chart(Chart {
            id: format!("chart-{id}"),
            title: title.into(),
            x: Axis::log("working set, % of the effective engine cache", "%"),
            y: Axis::log(quantity, unit),
            series,
            lines: vec![ReferenceLine {
                on: On::X,
                value: 100.0,
                label: "engine cache full".into(),
                subject: String::new(),
            }],
            how_to_read: "Left of the line everything is in the engine's cache. The lines stay together while the page \
                          cache answers what the engine misses, and part where the disk has to."
                .into(),
            cannot_say: "Where exactly the second cliff lies on your machine: near it the hit ratio depends on every \
                         megabyte of memory that something else takes."
                .into(),
        })
    }

    fn budget_chart(&self) -> Block {
        let per_page = |p: &Spot<'_>, bytes: f64| bytes / p.cell.operations().max(1) as f64 / PAGE_BYTES;
        let mut page_cache = Vec::new();
        let mut device = Vec::new();
        for p in &self.points {
            if let Some(budget) = p.cell.budget() {
                let x = (p.set_label, p.disk_label);
                page_cache.push(Point::new(x, per_page(p, budget.page_cache_bytes)));
                device.push(Point::new(x, per_page(p, budget.device_bytes)));
            }
        }
        Block::Chart(Chart {
            id: "chart-budget".into(),
            title: "What the engine missed, and who answered".into(),
            x: Axis::category("working set, disk"),
            y: Axis::linear("4 KiB pages per operation", "pages"),
            series: vec![
                Series::ours(SeriesKind::StackedBars, "page cache", "from the page cache", page_cache),
                Series::ours(SeriesKind::StackedBars, "device", "from the disk", device),
            ],
            lines: vec![],
            how_to_read: "A bar is what the engine did not find in its own cache, per operation: the part that the \
                          page cache had, and the part that the disk had to read. No bar: everything was in the \
                          engine's cache."
                .into(),
            cannot_say: "How long a read took: a page from the disk costs a thousand times one from the page cache."
                .into(),
        })
    }

    fn budget_table(&self) -> Block {
        let rows = self
            .points
            .iter()
            .map(|p| {
                let c = p.cell;
                let per_second = |probe: &'static str, name: &'static str| {
                    c.mean(move |m| Some(m.growth(probe, name)? / m.seconds() / 1e6))
                };
                let page_hits = c.mean(|m| {
                    let b = tipover_core::measure::Budget::of(&m.witnesses()?);
                    (b.engine_missed_bytes > 0.0)
                        .then(|| (1.0 - b.device_bytes / b.engine_missed_bytes) * 100.0)
                });
                let hits = c.misses_per_operation().map(|m| Estimate {
                    value: (1.0 - m.value) * 100.0,
                    low: (1.0 - m.high) * 100.0,
                    high: (1.0 - m.low) * 100.0,
                    basis: m.basis,
                });
                let in_cache = c.misses_per_operation().is_some_and(|m| m.value < IN_CACHE);
                Row::new(vec![
                    p.set_label.into(),
                    p.disk_label.into(),
                    shown(c.misses_per_operation().as_ref(), "", c),
                    shown(hits.as_ref(), "%", c),
                    if in_cache {
                        Cell::missing("the engine misses next to nothing")
                    } else {
                        shown(page_hits.as_ref(), "%", c)
                    },
                    shown(per_second(probe::TARGET, metric::ENGINE_CACHE_READ_BYTES).as_ref(), "MB/s", c),
                    shown(c.device(|r| Some(r.read_bandwidth.0 / 1e6)).as_ref(), "MB/s", c),
                    shown(
                        c.mean(|m| m.level(probe::GROUP, metric::GROUP_PAGE_CACHE_BYTES).map(|b| b / 1e6))
                            .as_ref(),
                        "MB",
                        c,
                    ),
                    budget_verdict(c),
                ])
            })
            .collect();
        Block::Table(Table {
            caption: "The read budget of each cell".into(),
            columns: vec![
                Column::words("working set"),
                Column::words("disk"),
                Column::numbers("misses per operation", "").group("engine cache"),
                Column::numbers("operations without a miss", "%").group("engine cache"),
                Column::numbers("bytes hit", "%").group("page cache"),
                Column::numbers("into engine cache", "MB/s").group("read"),
                Column::numbers("from the disk", "MB/s").group("read"),
                Column::numbers("page cache", "MB").group("memory"),
                Column::words("budget closes"),
            ],
            rows,
            how_to_read: "The budget compares counters that do not know each other: WiredTiger's block manager (what \
                          was missed), the kernel's account of the process (what was asked for and what was fetched), \
                          the block layer and the disk's own daemon (what was served). Misses are counted per \
                          operation: pages read ÷ pages requested is not a hit ratio of look-ups, because each look-up \
                          asks for several pages of the tree. Operations without a miss are an upper bound: an \
                          operation may miss twice."
                .into(),
        })
    }

    fn device_table(&self) -> Block {
        let rows = self
            .device
            .iter()
            .map(|p| {
                let c = p.cell;
                let sessions = f64::from(c.cell.spec.load.sessions);
                let latency_s = c.cell.spec.shape().map_or(0.0, |s| s.latency.as_secs_f64());
                // One session after the other waits for the latency; the gate is the other limit.
                let ceiling = if latency_s > 0.0 { p.iops.min(sessions / latency_s) } else { p.iops };
                let reads = c.device(|r| Some(r.reads.0));
                let error = reads.as_ref().map(|r| Estimate {
                    value: (r.value / ceiling - 1.0) * 100.0,
                    low: (r.low / ceiling - 1.0) * 100.0,
                    high: (r.high / ceiling - 1.0) * 100.0,
                    basis: r.basis.clone(),
                });
                let printed = |value: Option<f64>| match (sessions as u32, value) {
                    (1, Some(value)) => Cell::published(Number::exact(value, "/s"), &self.published.source),
                    (1, None) => Cell::missing("not printed in the study"),
                    _ => Cell::missing("the study's fio ran one job"),
                };
                let theirs = self.published.device(p.iops);
                Row::new(vec![
                    p.disk_label.into(),
                    format!("{sessions}").into(),
                    Number::new(ceiling, "/s").into(),
                    shown(reads.as_ref(), "/s", c),
                    shown(error.as_ref(), "%", c),
                    match c.block_layer(|r| Some(r.read.requests.0)) {
                        Some(kernel) => number(&kernel, "/s").into(),
                        None => Cell::missing("there is no block device: the disk is a folder behind FUSE"),
                    },
                    printed(theirs.map(|t| t.1)),
                    shown(c.throughput().as_ref(), "/s", c),
                    printed(theirs.map(|t| t.0)),
                    shown(c.device(|r| r.read_await.map(|a| a.as_secs_f64() * 1e3)).as_ref(), "ms", c),
                    shown(c.device(|r| Some(r.queue)).as_ref(), "", c),
                    shown(c.device(|r| Some(r.utilization.0 * 100.0)).as_ref(), "%", c),
                ])
            })
            .collect();
        Block::Table(Table {
            caption: "Device baseline: random reads of 4 to 32 KiB through the page cache, nothing cached".into(),
            columns: vec![
                Column::words("disk"),
                Column::words("sessions"),
                Column::numbers("theory", "/s").group("device reads"),
                Column::numbers("achieved", "/s").group("device reads"),
                Column::numbers("error", "%").group("device reads"),
                Column::numbers("by the kernel", "/s").group("device reads"),
                Column::numbers("published", "/s").group("device reads"),
                Column::numbers("ours", "/s").group("file reads"),
                Column::numbers("published fio", "/s").group("file reads"),
                Column::numbers("await", "ms").group("queue"),
                Column::numbers("depth", "").group("queue"),
                Column::numbers("busy", "%").group("queue"),
            ],
            rows,
            how_to_read: "Without readahead a read of 32 KiB is eight requests of 4 KiB, one after the other: 4.5 on \
                          average. With one session a disk with a latency is limited by that, not by its gate."
                .into(),
        })
    }

    fn gate_chart(&self) -> Block {
        let mut series = Vec::new();
        for (disk, _) in self.disks() {
            let points = self
                .points
                .iter()
                .filter(|p| p.disk_label == disk)
                .filter_map(|p| {
                    let e = p.cell.device(|r| Some(r.reads.0))?;
                    let point = Point::new(percent(p.working_set), e.value);
                    Some(if e.low.is_finite() { point.between(e.low.min(e.value), e.high) } else { point })
                })
                .collect();
            series.push(Series::ours(SeriesKind::Line, disk, disk, points));
        }
        let lines = self
            .disks()
            .into_iter()
            .map(|(disk, iops)| ReferenceLine {
                on: On::Y,
                value: iops,
                label: format!("configured {}", Rate(iops).rounded()),
                subject: disk.into(),
            })
            .collect();
        Block::Chart(Chart {
            id: "chart-gate".into(),
            title: "Device reads against working set".into(),
            x: Axis::log("working set, % of the effective engine cache", "%"),
            y: Axis::log("device reads", "/s"),
            series,
            lines,
            how_to_read: "Where a line meets its gate the disk is what limits; below it something else does."
                .into(),
            cannot_say:
                "Whether a faster disk would help: below its gate a disk costs its latency all the same."
                    .into(),
        })
    }

    fn processor_table(&self) -> Block {
        let rows = self
            .points
            .iter()
            .map(|p| {
                let c = p.cell;
                let us = |ns: fn(&tipover_core::record::Cpu) -> u64| {
                    c.mean(move |m| Some(ns(&m.cpu) as f64 / 1e3 / m.operations() as f64))
                };
                let busy = c.mean(|m| Some(m.cpu.process_ns as f64 / 1e9 / m.seconds()));
                Row::new(vec![
                    p.set_label.into(),
                    p.disk_label.into(),
                    shown(us(|cpu| cpu.engine_ns()).as_ref(), "us", c),
                    shown(us(|cpu| cpu.request_path_ns).as_ref(), "us", c),
                    shown(us(|cpu| cpu.generator_ns).as_ref(), "us", c),
                    shown(us(|cpu| cpu.disk_ns).as_ref(), "us", c),
                    shown(busy.as_ref(), "cores", c),
                ])
            })
            .collect();
        Block::Table(Table {
            caption: "Processor time per operation".into(),
            columns: vec![
                Column::words("working set"),
                Column::words("disk"),
                Column::numbers("engine", "us"),
                Column::numbers("request path", "us"),
                Column::numbers("generator", "us"),
                Column::numbers("disk's daemon", "us"),
                Column::numbers("target's process", "cores"),
            ],
            rows,
            how_to_read: "The request path is burnt on purpose. The generator's share is its cost per operation on a \
                          target that does nothing. The engine's share is what remains of the process, its background \
                          threads and page-cache copies included. The daemon is a process of its own that shares the \
                          machine's cores."
                .into(),
        })
    }
}

impl Spot<'_> {
    fn device_reads_per_operation(&self) -> Option<f64> {
        self.cell.device(|_| Some(0.0))?;
        self.cell.mean(|m| Some(m.disk_rates()?.reads.0 / m.throughput())).map(|e| e.value)
    }

    fn device_decides(&self) -> bool {
        self.cell.device(|r| Some(r.utilization.0)).is_some_and(|u| Ratio(u.value).0 > 0.9)
    }

    /// Reads per missed page × sessions ÷ IOPS, in milliseconds: what one page miss waits for at a saturated
    /// gate.
    fn predicted_p99_ms(&self) -> Option<f64> {
        let file_bytes = self.cell.per_operation(probe::TARGET, metric::ENGINE_FILE_READ_BYTES)?.value;
        let file_reads = self.cell.per_operation(probe::TARGET, metric::ENGINE_FILE_READS)?.value;
        let pages_per_read = file_bytes / file_reads / PAGE_BYTES;
        let sessions = f64::from(self.cell.cell.spec.load.sessions);
        (file_reads > 0.0).then(|| pages_per_read * sessions / self.iops * 1e3)
    }
}

/// A share in per cent, without the noise of its binary fraction.
fn percent(share: f64) -> f64 {
    rounded(share * 100.0)
}

fn rounded(x: f64) -> f64 {
    (x * 1e9).round() / 1e9
}

/// Three significant digits with separators: "35,000".
fn thousands(x: f64) -> String {
    Number::new(x, "").bare()
}

fn section(id: &str, title: &str, blocks: Vec<Block>) -> Section {
    Section { id: id.into(), title: title.into(), blocks }
}
