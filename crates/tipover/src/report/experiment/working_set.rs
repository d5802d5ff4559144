//! The page of the study of the working set: ours beside the published one.

use super::sections::{figure, known_number};
use crate::report::{
    Axis, Block, Cell, Chart, Columns, Number, On, Point, ReferenceLine, Section, Series, SeriesKind, Verdict,
};
use tipover_core::study::working_set::{Device, ReadBudget, Reads, Study, Variant};
use tipover_core::study::{Figure, Known};
use tipover_core::units::{Rate, significant};

/// Above this many requests to the disk for each operation, the disk decides.
const ON_DISK: f64 = 0.01;
const NOT_PRINTED: &str = "not printed in the study";

/// The answer in sentences.
pub fn headline(study: &Study) -> Vec<String> {
    let of_server = of_server(study).map(|server| of_one(&server)).unwrap_or_default();
    let of_server = of_server.into_iter().take(2).map(|sentence| format!("On MongoDB itself: {sentence}"));
    of_one(study).into_iter().chain(of_server).collect()
}

/// The rows of the MongoDB as a study of their own, where there was one.
fn of_server(study: &Study) -> Option<Study> {
    let (source, reads) = (study.source.clone(), study.mongodb.clone());
    reads.iter().any(|row| row.throughput_ops_per_s.value().is_some()).then(|| Study {
        source,
        reads,
        mongodb: vec![],
        variants: vec![],
        device: vec![],
    })
}

fn of_one(study: &Study) -> Vec<String> {
    let (sets, disks) = (study.sets(), study.disks());
    let (Some(&first), Some(&last)) = (sets.first(), sets.last()) else { return vec![] };
    let Some(&(slow, _)) = disks.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return vec![] };
    [cliff(study, first, last, slow), ratios(study, last, slow), arithmetic(study, last, slow)]
        .into_iter()
        .flatten()
        .collect()
}

fn throughput<'a>(study: &'a Study, set: &str, disk: &str) -> Option<&'a Known> {
    study.at(set, disk)?.throughput_ops_per_s.get()
}

fn cliff(study: &Study, first: &str, last: &str, slow: &str) -> Option<String> {
    let is_alike = |set: &&str| {
        study.disks().iter().all(|(disk, _)| {
            let row = study.at(set, disk);
            row.is_some_and(|row| row.device_reads_per_operation.value().is_some_and(|reads| reads < ON_DISK))
        })
    };
    let edge = study.sets().into_iter().take_while(is_alike).last()?;
    let (high, low) = (throughput(study, first, slow)?, throughput(study, last, slow)?);
    let row = study.at(last, slow)?;
    Some(format!(
        "Up to a working set of {edge} of the effective engine cache all disks give about the same, {} reads/s in \
         cache; at {last} the disk \"{slow}\" drops to {} reads/s, 1/{} of that, because a read then takes {} requests \
         of 4 KiB to the disk on average, and the disk serves {} of them per second.",
        known_number(high, ""),
        known_number(low, ""),
        significant(high.value / low.value, 2),
        significant(row.device_reads_per_operation.value().unwrap_or(f64::NAN), 2),
        Number::new(row.gate_ops_per_s, "").bare(),
    ))
}

fn ratios(study: &Study, last: &str, slow: &str) -> Option<String> {
    let disks = study.disks();
    let base = throughput(study, last, slow)?;
    let gate = study.at(last, slow)?.gate_ops_per_s;
    let ratio = |(disk, _): &(&str, f64)| {
        let ratio = throughput(study, last, disk)?.estimate().relative_to(&base.estimate());
        // The slow disk against itself is 1 without an error.
        Some(if *disk == slow { "1".into() } else { super::number(&ratio, "").to_string() })
    };
    let ratios: Vec<String> = disks.iter().map(ratio).collect::<Option<_>>()?;
    // As they are configured: 4, and not 4.00.
    let gates: Vec<String> = disks
        .iter()
        .map(|(_, iops)| significant(iops / gate, 3).trim_end_matches(".00").to_string())
        .collect();
    (disks.len() > 1).then(|| {
        let (ratios, gates) = (ratios.join(" : "), gates.join(" : "));
        format!(
            "At {last} the throughputs on the disks are in the ratio {ratios}; their IOPS limits are in the ratio {gates}."
        )
    })
}

fn arithmetic(study: &Study, last: &str, slow: &str) -> Option<String> {
    let row = study.at(last, slow)?;
    let printed = match row.published.residence_ms_p99 {
        Some((low, high)) if low == high => format!("; the study printed {low} ms"),
        _ => String::new(),
    };
    Some(format!(
        "p99 there is reads per missed page × sessions ÷ IOPS = {} ms by arithmetic, {} ms measured{printed}.",
        significant(row.arithmetic_ms_p99?, 3),
        known_number(row.residence_ms_p99.get()?, ""),
    ))
}

/// The evidence.
pub fn sections(study: &Study) -> Vec<Section> {
    let answer = |study: &Study, id: &str| {
        vec![beside_published(study), throughput_chart(study, id), p99_chart(study, id)]
    };
    let mut sections = vec![section("answer", "Ours and published", answer(study, ""))];
    if let Some(server) = of_server(study) {
        let blocks = answer(&server, "-mongodb").into_iter().chain([budget_table(&server)]).collect();
        sections.push(section("mongodb", "MongoDB itself and published", blocks));
    }
    sections.extend((!study.variants.is_empty()).then(|| {
        section("variants", "Readahead, documents, and one query alone", vec![variants_table(study)])
    }));
    sections.extend([
        section("budget", "Where reads were answered", vec![budget_chart(study), budget_table(study)]),
        section("device", "The disk against its configuration", vec![device_table(study), gate_chart(study)]),
        section("processor", "Where processor time went", vec![processor_table(study)]),
    ]);
    sections
}

fn cell_columns<'a>() -> Columns<'a, Reads> {
    Columns::new()
        .words("working set", |row: &Reads| row.working_set.clone())
        .words("disk", |row| row.disk.clone())
}

/// A published number, or that there is none.
fn printed(value: Option<f64>, unit: &str, source: &str) -> Cell {
    value.map_or_else(
        || Cell::missing(NOT_PRINTED),
        |value| Cell::published(Number::exact(value, unit), source),
    )
}

fn variants_table(study: &Study) -> Block {
    let table = Columns::new()
        .words("what differs", |of: &Variant| format!("{}: {}", of.sweep, of.setting))
        .words("working set", |of| format!("{} %", significant(of.reads.working_set_ratio * 100.0, 3)))
        .numbers("IOPS", "/s", |of, unit| Number::exact(of.reads.gate_ops_per_s, unit))
        .figures("throughput", "/s", |of| &of.reads.throughput_ops_per_s)
        .figures("p99", "ms", |of| &of.reads.residence_ms_p99)
        .figures("engine", "us", |of| &of.reads.engine_us_per_operation)
        .group("for an operation")
        .figures("misses", "", |of| &of.reads.misses_per_operation)
        .figures("reads of the disk", "", |of| &of.reads.device_reads_per_operation)
        .group("disk")
        .figures("read", "MB/s", |of| &of.reads.device_read_mb_per_s)
        .figures("busy", "%", |of| &of.reads.device_busy_percent)
        .table(
            "What else changes it",
            &study.variants,
            "Readahead in sectors of 512 bytes. Documents: a share of their bytes compresses. Alone: one session, which waits \
             for the reads of a page one after the other. Engine: processor time of an operation.",
        );
    Block::Table(table)
}

fn beside_published(study: &Study) -> Block {
    let source = study.source.as_str();
    let records: Vec<String> = study
        .sets()
        .iter()
        .filter_map(|set| study.reads.iter().find(|row| row.working_set == *set))
        .map(|row| Number::exact(row.records as f64, "").bare())
        .collect();
    let table = cell_columns()
        .group("throughput")
        .figures("ours", "/s", |row| &row.throughput_ops_per_s)
        .numbers("published", "/s", |row, unit| printed(row.published.throughput_ops_per_s, unit, source))
        .group("relative to in cache")
        .figures("ours", "%", |row| &row.throughput_relative_percent)
        .numbers("published", "%", |row, unit| {
            printed(row.published.throughput_relative_percent, unit, source)
        })
        .group("p99")
        .figures("ours", "ms", |row| &row.residence_ms_p99)
        .numbers("published", "ms", |row, unit| match row.published.residence_ms_p99 {
            Some((low, high)) if low < high => Cell::published(Number::range(low, high, unit), source),
            other => printed(other.map(|(ms, _)| ms), unit, source),
        })
        .numbers("k·N/IOPS", "ms", |row, unit| match row.arithmetic_ms_p99 {
            Some(ms) if row.disk_decides => Number::new(ms, unit).into(),
            _ => Cell::missing("the disk does not decide here"),
        })
        .table(
            "The study's table, ours beside the published one",
            &study.reads,
            &format!(
                "Working sets are in shares of the effective engine cache: {} records. Compare shapes, not absolute \
                 figures: the study ran a server on four cores of another machine. Intervals are 95 %: for throughput \
                 over trials, for p99 order statistics and the spread of trials. k·N/IOPS is arithmetic: device reads \
                 per missed page × sessions ÷ configured IOPS.",
                records.join("; ")
            ),
        );
    Block::Table(table)
}

/// Our figure against the working set, a line for each disk, and the published points where there are any.
fn chart(
    study: &Study,
    ours: impl Fn(&Reads) -> &Figure,
    theirs: impl Fn(&Reads) -> Option<f64>,
) -> Vec<Series> {
    let of_disk = |disk: &str| study.reads.iter().filter(move |row| row.disk == disk).collect::<Vec<_>>();
    let point = |row: &&Reads| {
        let known = ours(row).get()?;
        let point = Point::new(percent(row.working_set_ratio), known.value);
        Some(match known.low.zip(known.high) {
            // On a log axis an interval that reaches zero has no lower end to draw.
            Some((low, high)) => point.between(low.max(known.value / 100.0), high),
            None => point,
        })
    };
    let mut series = Vec::new();
    for (disk, _) in study.disks() {
        let points = of_disk(disk).iter().filter_map(point).collect();
        series.push(Series::ours(SeriesKind::Line, disk, disk, points));
    }
    for (disk, _) in study.disks() {
        let rows = of_disk(disk);
        let point = |row: &&Reads| Some(Point::new(percent(row.working_set_ratio), theirs(row)?));
        let points: Vec<Point> = rows.iter().filter_map(point).collect();
        series.extend(Series::published_points(disk, &study.source, points));
    }
    series
}

fn throughput_chart(study: &Study, of: &str) -> Block {
    let series = chart(study, |row| &row.throughput_ops_per_s, |row| row.published.throughput_ops_per_s);
    against_working_set(
        &format!("throughput{of}"),
        "Throughput",
        Axis::log("throughput", "operations/s"),
        series,
    )
}

fn p99_chart(study: &Study, of: &str) -> Block {
    let middle =
        |row: &Reads| row.published.residence_ms_p99.map(|(low, high)| rounded(f64::midpoint(low, high)));
    let series = chart(study, |row| &row.residence_ms_p99, middle);
    against_working_set(&format!("p99{of}"), "p99 latency", Axis::log("p99", "ms"), series)
}

fn against_working_set(id: &str, what: &str, y: Axis, series: Vec<Series>) -> Block {
    Block::Chart(Chart {
        id: format!("chart-{id}"),
        title: format!("{what} against working set"),
        x: Axis::log("working set, % of the effective engine cache", "%"),
        y,
        series,
        lines: vec![ReferenceLine {
            on: On::X,
            value: 100.0,
            label: "engine cache full".into(),
            subject: String::new(),
        }],
        how_to_read:
            "Left of the line everything is in the engine's cache. The lines stay together while the page \
                      cache answers what the engine misses, and part where the disk has to."
                .into(),
        cannot_say:
            "Where exactly the second cliff lies on your machine: near it the hit ratio depends on every \
                     megabyte of memory that something else takes."
                .into(),
    })
}

fn budget_chart(study: &Study) -> Block {
    let points = |pages: fn(&ReadBudget) -> f64| {
        let point = |row: &Reads| {
            let x = (row.working_set.as_str(), row.disk.as_str());
            row.budget.as_ref().map(|budget| Point::new(x, pages(budget)))
        };
        study.reads.iter().filter_map(point).collect::<Vec<Point>>()
    };
    let page_cache = points(|budget| budget.page_cache_pages_per_operation);
    let device = points(|budget| budget.device_pages_per_operation);
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
        how_to_read: "A bar is what the engine did not find in its own cache, per operation: the part that the page \
                      cache had, and the part that the disk had to read. No bar: everything was in the engine's cache."
            .into(),
        cannot_say: "How long a read took: a page from the disk costs a thousand times one from the page cache."
            .into(),
    })
}

/// Whether the read budget closes.
fn closes(row: &Reads) -> Cell {
    let Some(budget) = &row.budget else {
        return match &row.throughput_ops_per_s {
            Figure::Missing { missing, .. } => Cell::missing(missing),
            Figure::Known(_) => Cell::missing("nobody counted reads beside the target"),
        };
    };
    let residual = format!("residual {:+.1} %", budget.residual_ratio * 100.0);
    let verdict = match budget.closes {
        Some(true) => return Cell::verdict(Verdict::Held, &residual),
        Some(false) => Verdict::NotHeld,
        None => Verdict::Unknown,
    };
    Cell::verdict(verdict, &format!("{residual}: {}", budget.evidence))
}

fn budget_table(study: &Study) -> Block {
    let table = cell_columns()
        .group("engine cache")
        .figures("misses per operation", "", |row| &row.misses_per_operation)
        .figures("operations without a miss", "%", |row| &row.operations_without_miss_percent)
        .group("page cache")
        .figures("bytes hit", "%", |row| &row.page_cache_hit_percent)
        .group("read")
        .figures("into engine cache", "MB/s", |row| &row.engine_cache_read_mb_per_s)
        .figures("from the disk", "MB/s", |row| &row.device_read_mb_per_s)
        .group("memory")
        .figures("page cache", "MB", |row| &row.page_cache_mb)
        .group("")
        .words("budget closes", closes)
        .table(
            "The read budget of each cell",
            &study.reads,
            "The budget compares counters that do not know each other: WiredTiger's block manager (what was missed), \
             the kernel's account of the process (what was asked for and what was fetched), the block layer and the \
             disk's own daemon (what was served). Misses are counted per operation: pages read ÷ pages requested is \
             not a hit ratio of look-ups, because each look-up asks for several pages of the tree. Operations without \
             a miss are an upper bound: an operation may miss twice.",
        );
    Block::Table(table)
}

fn device_table(study: &Study) -> Block {
    let source = study.source.as_str();
    // The study's fio ran one job.
    let of_one = move |row: &Device, value: Option<f64>, unit: &str| match row.sessions {
        1 => printed(value, unit, source),
        _ => Cell::missing("the study's fio ran one job"),
    };
    let table = Columns::new()
        .words("disk", |row: &Device| row.disk.clone())
        .words("sessions", |row| row.sessions.to_string())
        .group("device reads")
        .numbers("theory", "/s", |row, unit| Number::new(row.ceiling_ops_per_s, unit))
        .figures("achieved", "/s", |row| &row.device_reads_per_s)
        .figures("error", "%", |row| &row.device_error_percent)
        .numbers("by the kernel", "/s", |row, unit| match &row.kernel_reads_per_s {
            Some(reads) => figure(reads, unit),
            None => Cell::missing("there is no block device: the disk is a folder behind FUSE"),
        })
        .numbers("published", "/s", move |row, unit| of_one(row, row.published_device_reads_per_s, unit))
        .group("file reads")
        .figures("ours", "/s", |row| &row.throughput_ops_per_s)
        .numbers("published fio", "/s", move |row, unit| of_one(row, row.published_throughput_ops_per_s, unit))
        .group("queue")
        .figures("await", "ms", |row| &row.await_ms)
        .figures("depth", "", |row| &row.queue_depth)
        .figures("busy", "%", |row| &row.busy_percent)
        .table(
            "Device baseline: random reads of 4 to 32 KiB through the page cache, nothing cached",
            &study.device,
            "Without readahead a read of 32 KiB is eight requests of 4 KiB, one after the other: 4.5 on average. With \
             one session a disk with a latency is limited by that, not by its gate.",
        );
    Block::Table(table)
}

fn gate_chart(study: &Study) -> Block {
    let series = study.disks().into_iter().map(|(disk, _)| {
        let points = study.reads.iter().filter(|row| row.disk == disk).filter_map(|row| {
            let known = row.device_reads_per_s.get()?;
            let point = Point::new(percent(row.working_set_ratio), known.value);
            Some(match known.low.zip(known.high) {
                Some((low, high)) => point.between(low, high),
                None => point,
            })
        });
        Series::ours(SeriesKind::Line, disk, disk, points.collect())
    });
    let lines = study.disks().into_iter().map(|(disk, iops)| ReferenceLine {
        on: On::Y,
        value: iops,
        label: format!("configured {}", Rate(iops).rounded()),
        subject: disk.into(),
    });
    Block::Chart(Chart {
        id: "chart-gate".into(),
        title: "Device reads against working set".into(),
        x: Axis::log("working set, % of the effective engine cache", "%"),
        y: Axis::log("device reads", "/s"),
        series: series.collect(),
        lines: lines.collect(),
        how_to_read: "Where a line meets its gate the disk is what limits; below it something else does."
            .into(),
        cannot_say: "Whether a faster disk would help: below its gate a disk costs its latency all the same."
            .into(),
    })
}

fn processor_table(study: &Study) -> Block {
    let table = cell_columns()
        .figures("engine", "us", |row| &row.engine_us_per_operation)
        .figures("request path", "us", |row| &row.request_path_us_per_operation)
        .figures("generator", "us", |row| &row.generator_us_per_operation)
        .figures("disk's daemon", "us", |row| &row.disk_daemon_us_per_operation)
        .figures("target's process", "cores", |row| &row.target_cores)
        .table(
            "Processor time per operation",
            &study.reads,
            "The request path is burnt on purpose. The generator's share is its cost per operation on a target that \
             does nothing. The engine's share is what remains of the process, its background threads and page-cache \
             copies included. The daemon is a process of its own that shares the machine's cores.",
        );
    Block::Table(table)
}

/// A share in per cent, without the noise of its binary fraction.
fn percent(share: f64) -> f64 {
    rounded(share * 100.0)
}

fn rounded(x: f64) -> f64 {
    (x * 1e9).round() / 1e9
}

fn section(id: &str, title: &str, blocks: Vec<Block>) -> Section {
    Section { id: id.into(), title: title.into(), blocks }
}
