//! The study of large values: ours beside the published one.

use super::sections::{number, shown};
use crate::report::{
    Axis, Block, Cell, Chart, Column, Number, On, Point, ReferenceLine, Role, Row, Section, Series,
    SeriesKind, Table,
};
use crate::study::LargeValues;
use crate::study::large_values::{self, CurvePoint};
use anyhow::Result;
use std::collections::BTreeMap;
use tipover_core::measure::{Estimate, TooFew};
use tipover_core::metric::{name as metric, probe};
use tipover_core::op::OpKind;
use tipover_core::record::Interval;
use tipover_core::study::{CellRecords, Cells};
use tipover_core::units::significant;

/// Points of a curve: enough to see its shape, few enough for each to have operations.
const PIECES: usize = 20;

/// The study.
pub struct Study<'a> {
    cells: &'a Cells<'a>,
    published: LargeValues,
    /// Of cells measured from cold, by requests: measured and expected.
    curves: BTreeMap<String, (Vec<CurvePoint>, Vec<CurvePoint>)>,
}

impl<'a> Study<'a> {
    /// `series` are the intervals of the first trial of each cell that was measured from cold.
    pub fn of(cells: &'a Cells<'a>, series: &BTreeMap<String, Vec<Interval>>) -> Result<Study<'a>> {
        let mut curves = BTreeMap::new();
        for cell in cells.sweep("cold") {
            let Some(intervals) = series.get(&cell.cell.id()) else { continue };
            let Some(seed) = cell.records.first().map(|record| record.seed) else { continue };
            let measured = large_values::measured_curve(&cell.cell.spec, intervals, PIECES);
            let operations = measured.last().map_or(0.0, |point| point.operations * 1.05) as u64;
            let piece = operations / PIECES as u64;
            let expected = large_values::expected_curve(&cell.cell.spec, seed, operations, piece);
            curves.insert(cell.cell.label("requests").unwrap_or("").to_string(), (measured, expected));
        }
        Ok(Study { cells, published: LargeValues::load()?, curves })
    }

    fn hits<'b>(&self, cell: &'b CellRecords<'a>) -> Option<Estimate> {
        cell.mean(|m| Some(large_values::hit_ratio(&cell.cell.spec, m)? * 100.0))
    }

    /// The answer in sentences.
    pub fn headline(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for cell in self.cells.sweep("hits") {
            let (Some(hits), Some(requests)) = (self.hits(cell), cell.cell.label("requests")) else {
                continue;
            };
            let spec = &cell.cell.spec;
            sentences.push(match requests {
                "uniform" => format!(
                    "Uniform requests hit the engine's cache in {} % of operations. 80 % of the cache is {} % of the data; \
                     less the engine's 8 % allowance for its allocator, {} %. The study expected {} % and measured {} %: \
                     the same allowance.",
                    significant(hits.value, 3),
                    significant(large_values::plain_theory(spec) * 100.0, 3),
                    significant(large_values::theory(spec) * 100.0, 3),
                    self.print("/results/uniform_hit_theory_pct"),
                    self.print("/results/uniform_hit_measured_pct"),
                ),
                _ => format!(
                    "Zipfian ones hit it in {} %, and the least recently used values of the same operations would in \
                     {} %.",
                    significant(hits.value, 3),
                    significant(self.at_rest(cell) * 100.0, 3),
                ),
            });
        }
        sentences.extend(self.slope());
        sentences
    }

    /// The climb of the zipfian hit ratio, and what it means for the published figure.
    fn slope(&self) -> Vec<String> {
        let operations = self.number("/config/operationcount");
        let Some(study) = large_values::studys_cache(operations as u64) else { return vec![] };
        let per_place = operations / study.places as f64;
        let percent = |share: f64| significant(share * 100.0, 3);
        let mut said = Vec::new();
        if let Some((measured, expected)) = self.curves.get("zipfian")
            && let Some(cell) = self.cells.sweep("cold").find(|c| c.cell.label("requests") == Some("zipfian"))
            && let Some(last) = measured.last()
            && let Some(early) =
                large_values::up_to(measured, per_place * large_values::capacity(&cell.cell.spec) as f64)
        {
            let places = large_values::capacity(&cell.cell.spec) as f64;
            let late = measured.len() / 2;
            let of_late = |curve: &[CurvePoint]| {
                let late = curve.get(late..).unwrap_or_default();
                late.iter().map(|point| point.hit_ratio).sum::<f64>() / late.len().max(1) as f64
            };
            said.push(format!(
                "From an empty cache zipfian requests hit in {} % of the first {} operations per place in the cache and in \
                 {} % of the second half of {} per place (least recently used: {} % and {} %).",
                percent(early),
                significant(per_place, 2),
                percent(of_late(measured)),
                significant(last.operations / places, 2),
                percent(large_values::up_to(expected, per_place * places).unwrap_or(f64::NAN)),
                percent(of_late(expected)),
            ));
        }
        said.push(format!(
            "The study's {} % is of {} operations for {} places, {} for each, so its cache was still filling if it began \
             empty: the least recently used values of such requests would hit in {} % of all of them, {} % of the last \
             tenth, and {} % after ten operations per place. It is no steady state, and depends on what ran before.",
            self.print("/results/zipfian_hit_pct"),
            Number::exact(operations, "").bare(),
            Number::new(study.places as f64, "").bare(),
            significant(per_place, 2),
            percent(study.whole),
            percent(study.end),
            percent(study.later),
        ));
        said
    }

    fn number(&self, path: &str) -> f64 {
        self.published.number(path).unwrap_or(f64::NAN)
    }

    fn print(&self, path: &str) -> String {
        Number::exact(self.number(path), "").bare()
    }

    /// The hit ratio to expect at rest, as a mean over the seeds of the trials.
    fn at_rest(&self, cell: &CellRecords<'a>) -> f64 {
        let seeds: Vec<u64> = cell.records.iter().map(|record| record.seed).collect();
        let expected = seeds.iter().map(|seed| large_values::expected_at_rest(&cell.cell.spec, *seed));
        expected.sum::<f64>() / seeds.len().max(1) as f64
    }

    /// The evidence.
    pub fn sections(&self) -> Vec<Section> {
        let section = |id: &str, title: &str, blocks: Vec<Block>| Section {
            id: id.into(),
            title: title.into(),
            blocks,
        };
        let mut cold = Vec::new();
        if !self.curves.is_empty() {
            cold.push(self.curve_chart());
        }
        vec![
            section("hits", "Hit ratio", vec![self.hit_table()]),
            section("cold", "From an empty cache", cold),
            section("readahead", "Readahead", vec![self.readahead_chart(), self.load_table(
                "readahead",
                "sectors",
                "sectors of 512 B",
                "What the disk had to do, by readahead",
                &format!(
                    "Published: stable from {} sectors on, best at {}; their charts have no numbers. Without readahead a \
                     value is read page by page. With any, a kernel since 4.10 fetches a request larger than its readahead in one \
                     piece, so the steps between differ less than on the study's 2.6.32.",
                    self.print("/results/readahead_stable_at"),
                    self.print("/results/readahead_best_at")
                ),
            )]),
            section("huge-pages", "Huge pages", vec![self.load_table(
                "huge-pages",
                "huge_pages",
                "huge pages",
                "The same with and without huge pages",
                "Published: almost no effect. \"In huge pages\" is what the kernel gave the process in the end; where it is 0 \
                 for \"always\", the machine has them switched off, and the rows do not differ.",
            )]),
            section("journal", "A disk for the journal", vec![self.load_table(
                "journal",
                "journal",
                "journal",
                "The same with the journal on a disk of its own",
                &format!(
                    "The disk's figures are those of the data's disk. Published: a journal of {} MB/s.",
                    self.print("/config/journal_write_mb_s")
                ),
            )]),
        ]
    }

    fn hit_table(&self) -> Block {
        let source = &self.published.source;
        let rows = (self.cells.sweep("hits")).map(|cell| {
            let requests = cell.cell.label("requests").unwrap_or("");
            let spec = &cell.cell.spec;
            let percent = |share: f64| Cell::from(Number::new(share * 100.0, "%"));
            let uniform = requests == "uniform";
            let only_uniform = |share: f64| match uniform {
                true => percent(share),
                false => Cell::missing("holds for uniform requests only"),
            };
            let printed = |path: &str| Cell::published(Number::exact(self.number(path), "%"), source);
            Row::new(vec![
                requests.into(),
                shown(self.hits(cell).as_ref(), "%", cell),
                only_uniform(large_values::plain_theory(spec)),
                only_uniform(large_values::theory(spec)),
                percent(self.at_rest(cell)),
                match uniform {
                    true => printed("/results/uniform_hit_measured_pct"),
                    false => printed("/results/zipfian_hit_pct"),
                },
                match uniform {
                    true => printed("/results/uniform_hit_theory_pct"),
                    false => Cell::missing("the study gives none"),
                },
            ])
        });
        Block::Table(Table {
            caption: "Share of operations whose value was in the engine's cache".into(),
            columns: vec![
                Column::words("requests"),
                Column::numbers("measured", "%").group("ours"),
                Column::numbers("80 % of the cache ÷ data", "%").group("theory"),
                Column::numbers("less 8 %", "%").group("theory"),
                Column::numbers("least recently used", "%").group("theory"),
                Column::numbers("measured", "%").group("published"),
                Column::numbers("theory", "%").group("published"),
            ],
            rows: rows.collect(),
            how_to_read: "Misses are bytes read into the cache, divided by the size of a value and by the operations; an \
                          update reads the value's page too. \"Least recently used\" sends the trial's own operations through such a \
                          cache of that size until it is at rest. Zipfian is YCSB's, which is milder than its name. Fewer values \
                          fit than theory says where the cache is small: an update holds the old and the new value until it is \
                          written."
                .into(),
        })
    }

    fn curve_chart(&self) -> Block {
        let mut series = Vec::new();
        let points = |curve: &[CurvePoint]| {
            curve.iter().map(|p| Point::new(p.operations, p.hit_ratio * 100.0)).collect::<Vec<Point>>()
        };
        for (requests, (measured, expected)) in &self.curves {
            series.push(Series::ours(SeriesKind::Line, requests, requests, points(measured)));
            series.push(Series {
                role: Role::Reference,
                ..Series::ours(
                    SeriesKind::Line,
                    requests,
                    &format!("{requests}, least recently used"),
                    points(expected),
                )
            });
        }
        Block::Chart(Chart {
            id: "chart-cold".into(),
            title: "Hit ratio from an empty cache".into(),
            x: Axis::linear("operations", ""),
            y: Axis::linear("hit ratio", "%"),
            series,
            lines: vec![ReferenceLine {
                on: On::Y,
                value: self.number("/results/zipfian_hit_pct"),
                label: "published for zipfian".into(),
                subject: "zipfian".into(),
            }],
            how_to_read: "As long as a line climbs, its height says how long one has waited and not how good the cache is. \
                          Dashed: what the least recently used values of the same operations would give."
                .into(),
            cannot_say: "How long the climb takes on another cache: it goes with operations per place in the cache.".into(),
        })
    }

    fn readahead_chart(&self) -> Block {
        let line = |name: &str, quantile: f64| {
            let points = self.cells.sweep("readahead").filter_map(|cell| {
                let sectors = cell.cell.label("sectors")?;
                let e = cell.class_ms(OpKind::Read, quantile).ok()?;
                let point = Point::new(sectors, e.value);
                Some(if e.low.is_finite() && e.high.is_finite() {
                    // On a log axis an interval that reaches zero has no lower end to draw.
                    point.between(e.low.max(e.value / 100.0), e.high)
                } else {
                    point
                })
            });
            Series::ours(SeriesKind::Points, name, name, points.collect())
        };
        Block::Chart(Chart {
            id: "chart-readahead".into(),
            title: "Latency of reads against readahead".into(),
            x: Axis::category("readahead, sectors of 512 B"),
            y: Axis::log("residence of reads", "ms"),
            series: vec![line("median", 0.5), line("p99", 0.99)],
            lines: vec![],
            how_to_read: "A read that misses fetches 100 KB. The further the kernel reads ahead, the fewer requests that takes, \
                          and the more of them are under way at once."
                .into(),
            cannot_say: "What readahead does to small values: there it only reads what nobody wants.".into(),
        })
    }

    /// Latencies and the disk's work in the cells of a sweep.
    fn load_table(&self, sweep: &str, axis: &str, heading: &str, caption: &str, how_to_read: &str) -> Block {
        let rows = self.cells.sweep(sweep).map(|c| {
            let latency = |kind: OpKind, quantile: f64| match c.class_ms(kind, quantile) {
                _ if c.measured().is_empty() => Cell::missing(&c.why_none()),
                Ok(estimate) => number(&estimate, "ms").into(),
                Err(few) => missing(&few),
            };
            let device = |column: fn(&tipover_core::device::Rates) -> Option<f64>, unit: &str| {
                shown(c.device(column).as_ref(), unit, c)
            };
            let cores = c.records.first().and_then(|r| r.machine["cores"].as_u64()).unwrap_or(1) as f64;
            let waiting = c
                .mean(|m| Some(m.growth(probe::SYSTEM, "system_cpu_iowait_ns")? / 1e7 / cores / m.seconds()));
            let huge = c.records.first().and_then(|r| r.target.get("huge_pages_bytes")?.as_f64());
            let journal =
                c.mean(|m| Some(m.growth(probe::TARGET, metric::ENGINE_JOURNAL_BYTES)? / 1e6 / m.seconds()));
            Row::new(vec![
                c.cell.label(axis).unwrap_or("").into(),
                shown(self.hits(c).as_ref(), "%", c),
                latency(OpKind::Read, 0.5),
                latency(OpKind::Read, 0.99),
                latency(OpKind::Update, 0.99),
                device(|r| Some(r.reads.0), "/s"),
                device(|r| Some(r.writes.0), "/s"),
                device(|r| Some(r.read_bandwidth.0 / 1e6), "MB/s"),
                device(|r| Some(r.write_bandwidth.0 / 1e6), "MB/s"),
                device(|r| Some(r.utilization.0 * 100.0), "%"),
                shown(waiting.as_ref(), "%", c),
                shown(journal.as_ref(), "MB/s", c),
                match huge {
                    Some(bytes) => Number::new(bytes / 1e6, "MB").into(),
                    None => Cell::missing("not read"),
                },
            ])
        });
        Block::Table(Table {
            caption: caption.into(),
            columns: vec![
                Column::words(heading),
                Column::numbers("hits", "%"),
                Column::numbers("read median", "ms").group("latency"),
                Column::numbers("read p99", "ms").group("latency"),
                Column::numbers("update p99", "ms").group("latency"),
                Column::numbers("reads", "/s").group("disk"),
                Column::numbers("writes", "/s").group("disk"),
                Column::numbers("read", "MB/s").group("disk"),
                Column::numbers("written", "MB/s").group("disk"),
                Column::numbers("busy", "%").group("disk"),
                Column::numbers("iowait", "%").group("processor"),
                Column::numbers("journal", "MB/s"),
                Column::numbers("in huge pages", "MB"),
            ],
            rows: rows.collect(),
            how_to_read: how_to_read.into(),
        })
    }
}

fn missing(few: &TooFew) -> Cell {
    Cell::missing(&few.to_string())
}
