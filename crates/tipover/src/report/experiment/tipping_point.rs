//! The study of a disk's tipping point: ours beside the published one, by requests in flight.

use super::sections::{known_number, number, shown};
use crate::report::{
    Axis, Block, Cell, Chart, Column, Columns, Number, On, Point, ReferenceLine, Row, Section, Series,
    SeriesKind, Table,
};
use crate::study::{PublishedRow, TippingPoint};
use anyhow::Result;
use std::time::Duration;
use tipover_core::storage::array::{self, Curve, Demand, Raid};
use tipover_core::study::tipping_point::{Spot as FigureSpot, Study as Figures, Tip};
use tipover_core::study::{CellRecords, Cells, Figure, Known};
use tipover_core::units::{Ratio, significant, span};

const MIB: f64 = 1024.0 * 1024.0;
/// The number of clients that its readers had in mind.
const CLIENTS: u32 = 50;
/// Requests of a page, one after the other.
const PAGE_REQUESTS: f64 = 200.0;

/// A load as threads of the text, which kept `in_flight_per_thread` requests in flight each.
fn threads(load: &Known, in_flight_per_thread: f64) -> Number {
    let threads = |load: f64| load / in_flight_per_thread;
    let load = Known {
        value: threads(load.value),
        low: load.low.map(threads),
        high: load.high.map(threads),
        ..load.clone()
    };
    known_number(&load, "").digits(2)
}

/// A cell with what this study needs.
struct Spot<'a> {
    cell: &'a CellRecords<'a>,
    disk: &'a str,
    in_flight: u32,
}

impl Spot<'_> {
    fn await_ms(&self) -> Option<f64> {
        self.cell.device(|rates| rates.mean_await.map(|time| time.as_secs_f64() * 1e3)).map(|e| e.value)
    }

    fn rate(&self) -> Option<f64> {
        self.cell.device(|rates| Some(rates.requests().0)).map(|e| e.value)
    }
}

/// The study.
pub struct Study<'a> {
    reads: Vec<Spot<'a>>,
    mixed: Vec<Spot<'a>>,
    turning: Vec<Spot<'a>>,
    figures: &'a Figures,
    published: TippingPoint,
}

/// What happens where it is not the load that differs.
fn beside_loads(caption: &str, setting: &str, spots: Vec<&FigureSpot>, how_to_read: &str) -> Block {
    let table = Columns::new()
        .words("disk", |of: &FigureSpot| of.disk.clone())
        .words(setting, |of| of.setting.clone())
        .group("those who ask")
        .figures("answers", "/s", |of| &of.answers_per_s)
        .figures("wait", "ms", |of| &of.client_ms)
        .figures("reads of the disk for each", "", |of| &of.device_reads_each)
        .group("the disk")
        .figures("requests", "/s", |of| &of.requests_per_s)
        .figures("request", "KiB", |of| &of.request_kib)
        .figures("await", "ms", |of| &of.await_ms)
        .figures("queue", "", |of| &of.queue)
        .figures("busy", "%", |of| &of.busy_percent);
    let any = |column: fn(&FigureSpot) -> &Figure| {
        spots.iter().any(|spot| matches!(column(spot), Figure::Known(_)))
    };
    let table = match any(|of| &of.joined_ms) {
        true => table.figures("await, predicted", "ms", |of| &of.joined_ms),
        false => table,
    };
    let table = match any(|of| &of.log_share) {
        true => table.figures("writes of the log", "of all", |of| &of.log_share),
        false => table,
    };
    Block::Table(table.table(caption, spots, how_to_read))
}

/// The sweeps in which something else than the load differs: name, section, table, what differs, how to
/// read it.
const BESIDE_LOADS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "saturated",
        "The slowest, for longer",
        "Readers of the slowest disk, 4000 requests a trial",
        "load",
        "With five in flight the disk is as busy as with ten, and answers no less: the others only wait.",
    ),
    (
        "joined",
        "Several disks joined",
        "Ten threads that read from several slow disks in RAID 0",
        "load",
        "Predicted: from the curve of one such disk under reads, measured above; equal disks as a closed network. Clients pile up \
         on one disk while another idles, so it takes more disks than clients ÷ the tipping point of one.",
    ),
    (
        "neighbours",
        "Neighbours",
        "One reader and its neighbours",
        "neighbours' requests in flight",
        "Nothing of the reader differs, nor of its disk. Whoever sees only the reader's own requests sees a slow \
         disk. The disk's columns are of everybody's requests.",
    ),
    (
        "jobs",
        "Pages and a log",
        "Eight threads that read and write pages at random, two to one, and one that appends to a log and flushes it",
        "jobs",
        "Those who ask are the eight threads. The log's writes are few bytes and as many requests as any: each commit is a \
         write and the file system's own, and takes its turn in the same queue.",
    ),
    (
        "buffered",
        "Through the page cache",
        "Ten threads that read files of several sizes through the page cache",
        "file",
        "What the disk is not asked for came from memory. Random reads that hit half of the time halve what a disk is \
         asked for, and a mean over them is no latency of the disk's.",
    ),
    (
        "flushes",
        "A log that is flushed",
        "One thread that writes a page of its log and flushes it",
        "log",
        "Answers are writes and flushes, one of each for a commit. Without a write cache a commit waits for the platter to come \
         round.",
    ),
    (
        "database",
        "Under a database",
        "MariaDB on such a disk, its data four times as large as its cache, half reads and half updates",
        "load",
        "Writes of the log: Innodb_log_writes as a share of the writes that the disk carried out. The others are pages, which go \
         to random places, and the doublewrite buffer.",
    ),
];

/// The sweep that the text is about.
const READS: &str = "reads";

impl<'a> Study<'a> {
    /// Finds the study's cells among all.
    pub fn of(cells: &'a Cells<'a>, figures: &'a Figures) -> Result<Study<'a>> {
        let spots = |sweep: &str| {
            let spot = |cell: &'a CellRecords<'a>| Spot {
                cell,
                disk: cell.cell.label("disk").unwrap_or("a disk"),
                in_flight: cell.cell.spec.load.sessions,
            };
            cells.sweep(sweep).map(spot).collect()
        };
        Ok(Study {
            reads: spots(READS),
            mixed: spots("reads_and_writes"),
            turning: spots("turning"),
            figures,
            published: TippingPoint::load()?,
        })
    }

    fn disks(&self) -> Vec<&'a str> {
        let mut disks: Vec<&str> = Vec::new();
        for spot in self.reads.iter().chain(&self.mixed) {
            if !disks.contains(&spot.disk) {
                disks.push(spot.disk);
            }
        }
        disks
    }

    /// The text's promises, in milliseconds.
    fn promises(&self) -> Vec<u32> {
        let mut promises: Vec<u32> = self.figures.tips.iter().map(|tip| tip.promise_ms).collect();
        promises.sort_unstable_by(|a, b| b.cmp(a));
        promises.dedup();
        promises
    }

    /// The answer.
    pub fn headline(&self) -> Vec<String> {
        let mut said = Vec::new();
        for disk in self.disks() {
            let said_of = |tip: &Tip| {
                let (limit, holds, breaks) = (tip.promise_ms, tip.holds?, tip.breaks?);
                Some(format!("{limit} ms hold with {holds} reads in flight and break with {breaks}"))
            };
            let tips: Vec<String> = self.figures.tips_of(READS, disk).filter_map(said_of).collect();
            if tips.is_empty() {
                continue;
            }
            let theirs = self.published.threads_at_50_ms(disk).map_or(String::new(), |threads| {
                let phi = self.published.in_flight_per_thread(disk).unwrap_or(1.0);
                format!(
                    "; the study printed {threads} threads for 50 ms, with {} requests in flight for each thread",
                    significant(phi, 2)
                )
            });
            said.push(format!("{disk}: {}{theirs}", tips.join(", ")));
        }
        said
    }

    /// The evidence.
    pub fn sections(&self) -> Vec<Section> {
        let section = |id: &str, title: &str, blocks| Section { id: id.into(), title: title.into(), blocks };
        let mut all = vec![
            section(
                "tips",
                "Tipping points",
                vec![
                    Block::Table(self.tips()),
                    Block::Chart(self.chart(
                        "await-reads",
                        "Await against reads in flight",
                        &self.reads,
                        true,
                    )),
                ],
            ),
            section("beside", "Beside the study", vec![Block::Table(self.beside())]),
        ];
        if !self.mixed.is_empty() {
            let title = "Await against reads and writes in flight";
            all.push(section(
                "mixed",
                "Reads and writes",
                vec![
                    Block::Chart(self.chart("await-mixed", title, &self.mixed, false)),
                    Block::Table(self.figures(&self.mixed, "Reads and writes, two to one")),
                ],
            ));
        }
        if !self.turning.is_empty() {
            let caption = "Reads and writes, two to one, on disks that turn";
            all.push(section(
                "turning",
                "Disks that turn",
                vec![Block::Table(self.figures(&self.turning, caption))],
            ));
        }
        for (sweep, title, caption, setting, how_to_read) in BESIDE_LOADS {
            let spots: Vec<&FigureSpot> = self.figures.spots.iter().filter(|s| s.sweep == *sweep).collect();
            if !spots.is_empty() {
                all.push(section(sweep, title, vec![beside_loads(caption, setting, spots, how_to_read)]));
            }
        }
        all.push(section("sizing", "How many disks", vec![Block::Table(self.sizing())]));
        all
    }

    fn tips(&self) -> Table {
        let mut rows = Vec::new();
        for disk in self.disks() {
            for tip in self.figures.tips_of(READS, disk) {
                let count = |n: Option<u32>, why: &str| match n {
                    Some(n) => Number::exact(f64::from(n), "").into(),
                    None => Cell::missing(why),
                };
                let phi = self.published.in_flight_per_thread(disk);
                let threads = match (&tip.in_flight, phi) {
                    (Figure::Known(crossing), Some(phi)) => threads(crossing, phi).into(),
                    (Figure::Missing { missing, .. }, _) => Cell::missing(missing),
                    (_, None) => Cell::missing("the study printed no queue of this disk"),
                };
                let printed = match self.published.threads_at_50_ms(disk).filter(|_| tip.promise_ms == 50) {
                    Some(threads) => Cell::Text(threads),
                    None => Cell::missing("not printed in the study"),
                };
                rows.push(Row::new(vec![
                    disk.into(),
                    Number::exact(f64::from(tip.promise_ms), "").into(),
                    count(tip.holds, "it broke at the least load"),
                    count(tip.breaks, "it never broke in what was measured"),
                    threads,
                    printed,
                ]));
            }
        }
        Table {
            caption: "Where await passes the promise".into(),
            columns: vec![
                Column::words("Disk"),
                Column::numbers("await at most", "ms"),
                Column::numbers("holds at", "in flight").group("Ours"),
                Column::numbers("breaks at", "in flight").group("Ours"),
                Column::numbers("as its threads", "").group("Ours"),
                Column::words("threads, as printed").group("Published"),
            ],
            rows,
            how_to_read: "As its threads: where our latency crosses, divided by the requests in flight that the study's iostat shows \
                          for each of its threads (avgqu-sz ÷ threads)."
                .into(),
        }
    }

    fn beside(&self) -> Table {
        let source = &self.published.source;
        let printed = |value: f64, unit: &str| Cell::published(Number::exact(value, unit), source);
        let rows = self.published.rows.iter().map(|row: &PublishedRow| {
            let disk = row.label();
            let nearest = self.reads.iter().filter(|spot| spot.disk == disk).min_by(|a, b| {
                let off = |spot: &Spot<'_>| (f64::from(spot.in_flight) - row.queue).abs();
                off(a).total_cmp(&off(b))
            });
            let ours = |column: fn(&tipover_core::device::Rates) -> Option<f64>, unit| match nearest {
                Some(spot) => shown(spot.cell.device(column).as_ref(), unit, spot.cell),
                None => Cell::missing("this disk was not measured"),
            };
            Row::new(vec![
                disk.as_str().into(),
                Number::exact(f64::from(row.threads), "").into(),
                printed(row.reads_per_s, ""),
                ours(|rates| Some(rates.reads.0), ""),
                printed(row.queue, ""),
                ours(|rates| Some(rates.queue), ""),
                printed(row.await_ms, ""),
                ours(|rates| rates.mean_await.map(|time| time.as_secs_f64() * 1e3), ""),
                printed(row.read_mib_per_s, ""),
                ours(|rates| Some(rates.read_bandwidth.0 / MIB), ""),
                printed(row.request_kib, ""),
                ours(|rates| Some(rates.request_size?.0 as f64 / 1024.0), ""),
                printed(row.busy_percent, ""),
                ours(|rates| Some(rates.utilization.0 * 100.0), ""),
            ])
        });
        Table {
            caption: "iostat's columns, published and ours at the nearest queue".into(),
            columns: vec![
                Column::words("Disk"),
                Column::numbers("its threads", ""),
                Column::numbers("published", "").group("reads, /s"),
                Column::numbers("ours", "").group("reads, /s"),
                Column::numbers("published", "").group("queue"),
                Column::numbers("ours", "").group("queue"),
                Column::numbers("published", "").group("await, ms"),
                Column::numbers("ours", "").group("await, ms"),
                Column::numbers("published", "").group("read, MiB/s"),
                Column::numbers("ours", "").group("read, MiB/s"),
                Column::numbers("published", "").group("request, KiB"),
                Column::numbers("ours", "").group("request, KiB"),
                Column::numbers("published", "").group("busy, %"),
                Column::numbers("ours", "").group("busy, %"),
            ],
            rows: rows.collect(),
            how_to_read: "The profiles were made from these rows, so that reads per second agree says only that the shaped disk does \
                          what it is told. That await follows from the queue is the finding: await = queue ÷ throughput. \
                          Requests there were smaller or larger than a block of 16 KiB, because its kernel merged and split them."
                .into(),
        }
    }

    fn figures(&self, spots: &[Spot<'_>], caption: &str) -> Table {
        let rows = spots.iter().map(|spot| {
            let cell = spot.cell;
            let column = |of: fn(&tipover_core::device::Rates) -> Option<f64>| {
                shown(cell.device(of).as_ref(), "", cell)
            };
            Row::new(vec![
                spot.disk.into(),
                Number::exact(f64::from(spot.in_flight), "").into(),
                column(|rates| Some(rates.reads.0)),
                column(|rates| Some(rates.writes.0)),
                column(|rates| Some(rates.queue)),
                column(|rates| rates.mean_await.map(|time| time.as_secs_f64() * 1e3)),
                match cell.residence_ms(0.95) {
                    Ok(estimate) => number(&estimate, "").into(),
                    Err(few) => Cell::missing(&few.to_string()),
                },
            ])
        });
        Table {
            caption: caption.into(),
            columns: vec![
                Column::words("Disk"),
                Column::numbers("in flight", ""),
                Column::numbers("reads", "/s"),
                Column::numbers("writes", "/s"),
                Column::numbers("queue", ""),
                Column::numbers("await", "ms"),
                Column::numbers("p95 at the client", "ms"),
            ],
            rows: rows.collect(),
            how_to_read: "By the device's own counters; the last column is what the thread waited.".into(),
        }
    }

    fn chart(&self, id: &str, title: &str, spots: &[Spot<'_>], published: bool) -> Chart {
        let mut series = Vec::new();
        for disk in self.disks() {
            let points: Vec<Point> = spots
                .iter()
                .filter(|spot| spot.disk == disk)
                .filter_map(|spot| Some(Point::new(f64::from(spot.in_flight), spot.await_ms()?)))
                .collect();
            if !points.is_empty() {
                series.push(Series::ours(SeriesKind::Line, disk, disk, points));
            }
            if !published {
                continue;
            }
            let theirs = self.published.rows.iter().filter(|row| row.label() == disk);
            let points: Vec<Point> = theirs
                .map(|row| Point::new(row.queue, row.await_ms).label(&format!("{} threads", row.threads)))
                .collect();
            series.extend(Series::published_points(disk, &self.published.source, points));
        }
        let line = |limit: &u32| ReferenceLine {
            on: On::Y,
            value: f64::from(*limit),
            label: format!("{limit} ms"),
            subject: String::new(),
        };
        Chart {
            id: id.into(),
            title: title.into(),
            x: Axis::linear("requests in flight", ""),
            y: Axis::linear("await", "ms"),
            series,
            lines: self.promises().iter().map(line).collect(),
            how_to_read: "Straight from the origin means that the disk is busy: await = in flight ÷ throughput. Where a line crosses \
                          20 or 50 ms is the tipping point."
                .into(),
            cannot_say: "Whether the volume is as fast at night: the study saw 0.5 to 1 ms then. `tipover disk watch` looks for days."
                .into(),
        }
    }

    fn sizing(&self) -> Table {
        let mut rows = Vec::new();
        for disk in self.disks() {
            let of = self.reads.iter().filter(|spot| spot.disk == disk);
            let points = of.filter_map(|spot| Some((spot.in_flight, spot.rate()?))).collect();
            let Some(curve) = Curve::new(points) else { continue };
            let alone = 1.0 / curve.rate(1);
            for limit in self.promises() {
                let limit = Duration::from_millis(limit.into());
                let demand = Demand { clients: CLIENTS, limit, reads: Ratio(1.0) };
                let sizing = array::size(&curve, Raid::Zero, &demand);
                let page = |seconds: f64| span::rounded(Duration::from_secs_f64(seconds * PAGE_REQUESTS));
                rows.push(Row::new(vec![
                    disk.into(),
                    Number::exact(limit.as_secs_f64() * 1e3, "").into(),
                    match sizing.disks {
                        Some(disks) => Number::exact(f64::from(disks), "").into(),
                        None => Cell::missing("no number of them is enough"),
                    },
                    Number::new(sizing.predicted.as_secs_f64() * 1e3, "").into(),
                    page(alone).into(),
                    page(f64::from(CLIENTS) / curve.rate(CLIENTS)).into(),
                ]));
            }
        }
        Table {
            caption: format!(
                "Disks in RAID 0 for {CLIENTS} clients that read, and what a page of 200 requests takes on one"
            ),
            columns: vec![
                Column::words("Disk"),
                Column::numbers("await at most", "ms"),
                Column::numbers("disks", ""),
                Column::numbers("predicted await", "ms"),
                Column::numbers("alone", "").group("A page of 200 requests on one disk"),
                Column::numbers("beside the clients", "").group("A page of 200 requests on one disk"),
            ],
            rows,
            how_to_read: format!(
                "Computed from the measured curve, with what that takes for granted: {}. `tipover disk bench DIR --until \"await < 20 ms\" \
                 --clients {CLIENTS}` on a shaped disk builds the array and measures it.",
                array::ASSUMPTIONS
            ),
        }
    }
}
