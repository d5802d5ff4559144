//! The study of large values: ours beside the published one.

use crate::report::{
    Axis, Block, Cell, Chart, Columns, Number, On, Point, ReferenceLine, Role, Section, Series, SeriesKind,
};
use crate::study::LargeValues;
use anyhow::Result;
use std::collections::BTreeMap;
use tipover_core::record::Interval;
use tipover_core::study::large_values::{self, CurvePoint, Hits, Load};
use tipover_core::study::{Cells, Figure};
use tipover_core::units::significant;

/// Points of a curve: enough to see its shape, few enough for each to have operations.
const PIECES: usize = 20;

/// The study.
pub struct Study<'a> {
    cells: &'a Cells<'a>,
    figures: &'a large_values::Study,
    published: LargeValues,
    /// Of cells measured from cold, by requests: measured and expected.
    curves: BTreeMap<String, (Vec<CurvePoint>, Vec<CurvePoint>)>,
}

impl<'a> Study<'a> {
    /// `series` are the intervals of the first trial of each cell that was measured from cold.
    pub fn of(
        cells: &'a Cells<'a>,
        figures: &'a large_values::Study,
        series: &BTreeMap<String, Vec<Interval>>,
    ) -> Result<Study<'a>> {
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
        Ok(Study { cells, figures, published: LargeValues::load()?, curves })
    }

    /// The answer in sentences.
    pub fn headline(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for of in &self.figures.hits {
            let Some(hits) = of.hit_percent.value() else { continue };
            let percent = |figure: &Figure| significant(figure.value().unwrap_or(f64::NAN), 3);
            sentences.push(match of.requests.as_str() {
                "uniform" => format!(
                    "Uniform requests hit the engine's cache in {} % of operations. 80 % of the cache is {} % of the data; \
                     less the engine's 8 % allowance for its allocator, {} %. The study expected {} % and measured {} %: \
                     the same allowance.",
                    significant(hits, 3),
                    percent(&of.theory_percent),
                    percent(&of.allowed_percent),
                    self.print("/results/uniform_hit_theory_pct"),
                    self.print("/results/uniform_hit_measured_pct"),
                ),
                _ => format!(
                    "Zipfian ones hit it in {} %, and the least recently used values of the same operations would in \
                     {} %.",
                    significant(hits, 3),
                    percent(&of.least_recent_percent),
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
            section("readahead", "Readahead", self.readahead()),
            section(
                "huge-pages",
                "Huge pages",
                vec![self.load_table(
                    "huge-pages",
                    "huge pages",
                    "The same with and without huge pages",
                    "Published: almost no effect. \"In huge pages\" is what the kernel gave the process in the end.",
                )],
            ),
            section(
                "journal",
                "A disk for the journal",
                vec![self.load_table(
                    "journal",
                    "journal",
                    "The same with the journal on a disk of its own",
                    &format!(
                        "The disk's figures are those of the data's disk. Published: a journal of {} MB/s.",
                        self.print("/config/journal_write_mb_s")
                    ),
                )],
            ),
            section(
                "page-cache",
                "The kernel's cache",
                vec![self.load_table(
                    "page-cache",
                    "page cache",
                    "The same with the kernel's cache of the disk kept",
                    "To be compared with 256 sectors of readahead, where it is emptied again and again. Memory is not bounded \
                     here, as in the study: whatever was read once, the kernel keeps.",
                )],
            ),
            section(
                "variants",
                "xfs, and many small fields",
                vec![
                    self.load_table(
                        "filesystem",
                        "file system",
                        "The same on xfs",
                        "To be compared with 256 sectors of readahead, where it is ext4. The study had xfs.",
                    ),
                    self.load_table(
                        "fields",
                        "fields",
                        "The same total in many fields",
                        "To be compared with 256 sectors of readahead, where a value is one field. An update changes \
                         one field of a hundred; the engine reads and writes the whole value.",
                    ),
                ],
            ),
        ]
    }

    fn readahead(&self) -> Vec<Block> {
        let latency: [Line<'_>; 4] = [
            ("reads, median", |of| &of.read_ms_median),
            ("reads, p99", |of| &of.read_ms_p99),
            ("updates, median", |of| &of.update_ms_median),
            ("updates, p99", |of| &of.update_ms_p99),
        ];
        let table = self.load_table(
            "readahead",
            "sectors of 512 B",
            "What the disk had to do, by readahead",
            &format!(
                "Published: stable from {} sectors on, best at {}; their charts have no numbers. Without readahead a value is \
                 read page by page. With any, a kernel since 4.10 fetches a request larger than its readahead in one piece, so \
                 the steps between differ less than on the study's 2.6.32.",
                self.print("/results/readahead_stable_at"),
                self.print("/results/readahead_best_at")
            ),
        );
        vec![
            self.by_readahead(
                "chart-readahead",
                "Latency against readahead",
                Axis::log("residence", "ms"),
                &latency,
            ),
            self.by_readahead(
                "chart-readahead-disk",
                "The disk's reads against readahead",
                Axis::log("reads of the disk for a value that was not cached", ""),
                &[("reads of the disk", |of| &of.disk_reads_per_miss)],
            ),
            self.by_readahead(
                "chart-readahead-rate",
                "Throughput against readahead",
                Axis::linear("operations", "/s"),
                &[("operations", |of| &of.throughput_ops_per_s)],
            ),
            table,
        ]
    }

    fn hit_table(&self) -> Block {
        let source = self.published.source.as_str();
        let printed = move |path: &str| Cell::published(Number::exact(self.number(path), "%"), source);
        let table = Columns::new()
            .words("requests", |of: &Hits| match of.sweep.as_str() {
                "mongodb" => format!("{}, on MongoDB", of.requests),
                _ => of.requests.clone(),
            })
            .group("ours")
            .figures("by bytes", "%", |of| &of.hit_percent)
            .figures("by pages", "%", |of| &of.counted_hit_percent)
            .group("theory")
            .figures("80 % of the cache ÷ data", "%", |of| &of.theory_percent)
            .figures("less 8 %", "%", |of| &of.allowed_percent)
            .figures("least recently used", "%", |of| &of.least_recent_percent)
            .group("published")
            .numbers("measured", "%", move |of, _| match of.requests.as_str() {
                "uniform" => printed("/results/uniform_hit_measured_pct"),
                _ => printed("/results/zipfian_hit_pct"),
            })
            .numbers("theory", "%", move |of, _| match of.requests.as_str() {
                "uniform" => printed("/results/uniform_hit_theory_pct"),
                _ => Cell::missing("the study gives none"),
            })
            .table(
                "Share of operations whose value was in the engine's cache",
                self.figures.hits.iter().chain(&self.figures.mongodb),
                "By bytes: misses are bytes read into the cache, divided by the size of a value and by the operations; by \
                 pages: pages read into it; an update reads the value's page too. \"Least recently used\" sends the trial's \
                 own operations through such a cache of that size until it is at rest. Zipfian is YCSB's, which is milder than \
                 its name. Fewer values fit than theory says where the cache is small: an update holds the old and the new \
                 value until it is written.",
            );
        Block::Table(table)
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

    /// Figures of the cells of the sweep of readahead.
    fn by_readahead(&self, id: &str, title: &str, y: Axis, lines: &[Line<'_>]) -> Block {
        let line = |(name, field): &Line<'_>| {
            let points = self.figures.sweep("readahead").filter_map(|load| {
                let known = field(load).get()?;
                let point = Point::new(load.setting.as_str(), known.value);
                Some(match (known.low, known.high) {
                    // On a log axis an interval that reaches zero has no lower end to draw.
                    (Some(low), Some(high)) => point.between(low.max(known.value / 100.0), high),
                    _ => point,
                })
            });
            Series::ours(SeriesKind::Points, name, name, points.collect())
        };
        Block::Chart(Chart {
            id: id.into(),
            title: title.into(),
            x: Axis::category("readahead, sectors of 512 B"),
            y,
            series: lines.iter().map(line).collect(),
            lines: vec![],
            how_to_read: "A read that misses fetches 100 KB. The further the kernel reads ahead, the fewer requests that takes, \
                          and the more of them are under way at once. The load is fixed, so throughput falls only where \
                          operations are not answered in time."
                .into(),
            cannot_say: "What readahead does to small values: there it only reads what nobody wants.".into(),
        })
    }

    /// Latencies and the disk's work in the cells of a sweep.
    fn load_table(&self, sweep: &str, heading: &str, caption: &str, how_to_read: &str) -> Block {
        let table = Columns::new()
            .words(heading, |of: &Load| of.setting.clone())
            .figures("throughput", "/s", |of| &of.throughput_ops_per_s)
            .figures("hits", "%", |of| &of.hit_percent)
            .group("latency")
            .figures("read median", "ms", |of| &of.read_ms_median)
            .figures("read p99", "ms", |of| &of.read_ms_p99)
            .figures("update median", "ms", |of| &of.update_ms_median)
            .figures("update p99", "ms", |of| &of.update_ms_p99)
            .group("disk")
            .figures("reads", "/s", |of| &of.disk_reads_per_s)
            .figures("for each miss", "", |of| &of.disk_reads_per_miss)
            .figures("writes", "/s", |of| &of.disk_writes_per_s)
            .figures("read", "MB/s", |of| &of.disk_read_mb_per_s)
            .figures("written", "MB/s", |of| &of.disk_written_mb_per_s)
            .figures("busy", "%", |of| &of.disk_busy_percent)
            .group("")
            .figures("iowait", "%", |of| &of.iowait_percent)
            .figures("journal", "MB/s", |of| &of.journal_mb_per_s)
            .figures("in huge pages", "MB", |of| &of.in_huge_pages_mb)
            .table(caption, self.figures.sweep(sweep), how_to_read);
        Block::Table(table)
    }
}

/// What is drawn, and the figure that it is.
type Line<'l> = (&'l str, fn(&Load) -> &Figure);
