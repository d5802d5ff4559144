//! The price list of safety: a row a level, with what it costs in peace, and what a kill and a power cut
//! really lost.

use super::broken::{sign, spread};
use crate::report::{
    Axis, Block, Cell, Chart, Column, Columns, Number, Point, Row, Section, Series, SeriesKind, Table,
};
use crate::study::PublishedPrices;
use anyhow::Result;
use tipover_core::check::Verdict;
use tipover_core::check::broken::Things;
use tipover_core::study::write_concern::{Study, Unbroken};
use tipover_core::study::{BrokenCell, Calm, Range};
use tipover_core::units::{significant, span};

/// One level of safety on one disk, whatever is broken later.
struct Level<'c> {
    system: &'c str,
    level: &'c str,
    disk: &'c str,
    /// The runs of all faults: they are alike until the fault.
    all: BrokenCell<'c>,
    /// One cell a fault.
    faults: Vec<&'c BrokenCell<'c>>,
}

impl<'c> Level<'c> {
    /// Mean of a write's latency in peace.
    fn mean_ms(&self) -> Option<f64> {
        self.all.calm_range(|calm| calm.mean_ms).map(|range| range.mean)
    }

    /// A figure of the runs with its range over them, because so few have no useful interval.
    fn figure(&self, of: impl Fn(&Calm) -> f64, unit: &str) -> Cell {
        match self.all.calm_range(of) {
            None => Cell::missing(&self.all.of.why_none()),
            Some(range) => ranged(range, unit),
        }
    }

    fn p99(&self) -> Cell {
        self.all.calm_p99_ms().map_or_else(|few| Cell::missing(&few.to_string()), |range| ranged(range, "ms"))
    }

    fn place(&self) -> String {
        format!("{}, {}", self.system, self.disk)
    }

    fn under(&self, fault: &str) -> Option<&'c BrokenCell<'c>> {
        self.faults.iter().copied().find(|cell| label(cell, "fault") == fault)
    }
}

fn ranged(range: Range, unit: &str) -> Cell {
    let number = Number::new(range.mean, unit);
    match range.runs {
        0 | 1 => number.of_one_trial().into(),
        _ => number.between(range.least, range.most).into(),
    }
}

fn label<'c>(cell: &'c BrokenCell<'_>, axis: &str) -> &'c str {
    cell.of.cell.label(axis).unwrap_or("–")
}

/// Cells without a fault only ask whether a level can be had.
fn only_asks(cell: &BrokenCell<'_>) -> bool {
    cell.of.cell.label("fault").is_none()
}

fn levels<'c>(cells: &'c [BrokenCell<'c>]) -> Vec<Level<'c>> {
    let mut levels: Vec<Level<'c>> = Vec::new();
    for cell in cells.iter().filter(|cell| !only_asks(cell)) {
        let (system, level, disk) = (cell.system(), label(cell, "level"), label(cell, "disk"));
        let same = |known: &&mut Level<'c>| (known.system, known.level, known.disk) == (system, level, disk);
        match levels.iter_mut().find(same) {
            Some(known) => {
                known.all.runs.extend(&cell.runs);
                known.faults.push(cell);
            }
            None => {
                let all = BrokenCell { of: cell.of, runs: cell.runs.clone() };
                levels.push(Level { system, level, disk, all, faults: vec![cell] });
            }
        }
    }
    // A price list is read downwards, so each disk has its levels in one piece.
    let place = |level: &Level<'_>| {
        let first =
            |same: fn(&Level<'_>, &Level<'_>) -> bool| levels.iter().position(|other| same(other, level));
        (first(|a, b| a.system == b.system), first(|a, b| (a.system, a.disk) == (b.system, b.disk)))
    };
    let places: Vec<_> = levels.iter().map(place).collect();
    let mut placed: Vec<_> = places.into_iter().zip(levels).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, level)| level).collect()
}

/// One sentence for each system on each disk: its levels from the cheapest, and what a power cut took.
pub fn headline(cells: &[BrokenCell<'_>]) -> Vec<String> {
    let levels = levels(cells);
    let mut sentences: Vec<String> = Vec::new();
    for group in levels.chunk_by(|a, b| (a.system, a.disk) == (b.system, b.disk)) {
        let words = |level: &Level<'_>| {
            let ms = significant(level.mean_ms()?, 2);
            let cut = level.under(POWER_CUT).map_or("was not cut off".into(), at_a_power_cut);
            Some(format!("{} takes {ms} ms and {cut}", level.level))
        };
        let each: Vec<String> = group.iter().filter_map(words).collect();
        if !each.is_empty() {
            sentences.push(format!("{}: {}", group[0].place(), each.join("; ")));
        }
    }
    sentences
}

/// What a power cut took, as half a sentence.
fn at_a_power_cut(cell: &BrokenCell<'_>) -> String {
    if cell.runs.iter().any(|run| !run.came_back()) {
        return "does not come back after a power cut".into();
    }
    let losses = cell.losses(Things::Writes).map(|(losses, _)| losses);
    let most = losses.iter().flat_map(|losses| &losses.faults).map(|fault| fault.lost).max().unwrap_or(0);
    match losses.map_or(0, |losses| losses.chance.faults) {
        0 => "was cut off without evidence".into(),
        _ if most > 0 => format!("loses up to {most} writes in a power cut"),
        1 => "loses nothing in 1 power cut".into(),
        n => format!("loses nothing in {n} power cuts"),
    }
}

const KILL: &str = "kill";
const POWER_CUT: &str = "power cut";

/// What a fault took, as a verdict and in words.
fn lost(cell: &BrokenCell<'_>) -> (Verdict, String) {
    let verdict = cell.verdict();
    let away = cell.runs.iter().filter(|run| !run.came_back()).count();
    if away > 0 {
        return (verdict, format!("everything in {away} of {}", cell.runs.len()));
    }
    let Some((losses, _)) = cell.losses(Things::Writes) else { return (verdict, verdict.words().into()) };
    let chance = &losses.chance;
    let percent = |p: f64| significant(100.0 * p, 2);
    let words = match (chance.with_loss, chance.faults) {
        (_, 0) => "no evidence".into(),
        (0, n) => format!("nothing in {n} (< {} %)", percent(chance.high)),
        (k, n) => {
            let reach = match losses.widest() {
                Some((_, window)) if !window.is_zero() => format!(", {}", span::rounded(window)),
                // What was acknowledged after a fault had begun has no window before it.
                _ => String::new(),
            };
            format!("{} in {k} of {n}{reach}", spread(&losses))
        }
    };
    // Whatever else is wrong is worse than what the count says.
    match verdict {
        Verdict::Valid | Verdict::NoEvidence => (verdict, words),
        Verdict::Invalid if chance.with_loss > 0 => (verdict, words),
        other => (other, format!("{}: {words}", other.words())),
    }
}

fn fault_cell(level: &Level<'_>, fault: &str) -> Cell {
    match level.under(fault) {
        None => Cell::missing("not tried"),
        Some(cell) if cell.runs.is_empty() => Cell::missing(&cell.of.why_none()),
        Some(cell) => {
            let (verdict, words) = lost(cell);
            Cell::verdict(sign(verdict), &words)
        }
    }
}

/// The price list, its picture, and what is answered when more replicas are asked for than exist.
pub fn section(cells: &[BrokenCell<'_>]) -> Result<Section> {
    let published = PublishedPrices::load()?;
    let levels = levels(cells);
    let mut blocks = vec![Block::Table(table(&levels, &published))];
    blocks.extend(chart(&levels).map(Block::Chart));
    let refused = refusals(cells);
    if !refused.rows.is_empty() {
        blocks.push(Block::Table(refused));
    }
    Ok(Section { id: "prices".into(), title: "Price list".into(), blocks })
}

/// What writes take where nothing breaks.
pub fn unbroken(study: &Study) -> Section {
    let table = Columns::new()
        .words("sweep", |of: &Unbroken| of.sweep.clone())
        .words("setting", |of| of.setting.clone())
        .figures("records written", "/s", |of| &of.records_per_s)
        .group("latency of a write")
        .figures("mean", "ms", |of| &of.residence_ms_mean)
        .figures("p99", "ms", |of| &of.residence_ms_p99)
        .figures("mean for each record", "ms", |of| &of.record_ms_mean)
        .group("the disk")
        .figures("reads for each write", "", |of| &of.disk_reads_each);
    let rows: Vec<&Unbroken> = study.unbroken.iter().collect();
    let table = table.table(
        "Data beyond memory, and records in batches",
        rows,
        "Journalled, on the same SSD as above: PostgreSQL, and a MongoDB where there is one. A batch is one statement with many \
         documents and one commit: it waits for the journal once. A write to a record that is not in memory waits \
         for its page to be read first.",
    );
    let blocks = if study.unbroken.is_empty() { vec![] } else { vec![Block::Table(table)] };
    Section { id: "unbroken".into(), title: "Beyond memory, and in batches".into(), blocks }
}

fn table(levels: &[Level<'_>], published: &PublishedPrices) -> Table {
    let mut rows = Vec::new();
    for level in levels {
        let of = level.all.of;
        let same = |other: &&Level<'_>| (other.system, other.disk) == (level.system, level.disk);
        let base = levels.iter().find(same).and_then(Level::mean_ms);
        let ratio = match level.mean_ms().zip(base) {
            Some((mean, base)) => Number::new(mean / base, "").digits(2).into(),
            None => Cell::missing(&of.why_none()),
        };
        let theirs = match published.latency_ms(level.level, level.disk) {
            Some((least, most)) if least == most => {
                Cell::published(Number::exact(least, "ms"), &published.source)
            }
            Some((least, most)) => Cell::published(Number::range(least, most, "ms"), &published.source),
            None => Cell::missing("not printed in the study"),
        };
        rows.push(Row::new(vec![
            level.place().into(),
            level.level.into(),
            fault_cell(level, KILL),
            fault_cell(level, POWER_CUT),
            level.figure(|calm| calm.rate, "/s"),
            level.figure(|calm| calm.mean_ms, "ms"),
            level.p99(),
            ratio,
            theirs,
        ]));
    }
    Table {
        caption: "What each level costs, and what a kill and a power cut really lost".into(),
        columns: vec![
            Column::words("System, disk"),
            Column::words("Level"),
            Column::words("by a kill").group("Acknowledged and lost"),
            Column::words("by a power cut").group("Acknowledged and lost"),
            Column::numbers("Writes", "/s"),
            Column::numbers("mean", "ms").group("Latency"),
            Column::numbers("p99", "ms").group("Latency"),
            Column::numbers("× first", "").group("Latency"),
            Column::numbers("published", "ms").group("Latency"),
        ],
        rows,
        how_to_read: format!(
            "Throughput and latency are from before the fault, in a closed loop of sessions that pause between writes; the \
             intervals are the range over the runs, and × first compares with the first level on the same disk. Lost: \
             \"105 to 639 in 3 of 5, 24 ms\" means 105 to 639 writes for a fault, in 3 of 5 faults, the earliest acknowledged \
             24 ms before its fault; \"nothing in 5 (< 45 %)\" bounds the chance of a loss (95 %). Replicated levels \
             lose their primary, and a replica takes over. Published: {}; MongoDB on real disks, one client. Its w:0 \
             stands beside `unacknowledged`, its w:1 beside `acknowledged`, j:true beside `journalled`, w:3 beside what \
             is replicated. For w:1 it prints a chance of loss of {} % and a window of {} ms, without a test.",
            published.source, published.loss_percent, published.window_ms
        ),
    }
}

/// What is paid against what is lost.
fn chart(levels: &[Level<'_>]) -> Option<Chart> {
    let point = |level: &Level<'_>| {
        let mean = level.mean_ms()?;
        let cell = level.under(POWER_CUT).filter(|cell| cell.runs.iter().all(|run| run.came_back()))?;
        let (losses, _) = cell.losses(Things::Writes)?;
        let most = losses.faults.iter().map(|fault| fault.lost).max()?;
        let words = format!("{}, {}: {}", level.level, level.disk, lost(cell).1);
        Some(Point::new(mean, most as f64).label(&words))
    };
    let series = |group: &[Level<'_>]| {
        let points: Vec<Point> = group.iter().filter_map(point).collect();
        let name = group[0].system;
        (!points.is_empty()).then(|| Series::ours(SeriesKind::Points, name, name, points))
    };
    let series: Vec<Series> = levels.chunk_by(|a, b| a.system == b.system).filter_map(series).collect();
    if series.is_empty() {
        return None;
    }
    Some(Chart {
        id: "price-of-safety".into(),
        title: "What is paid, and what a power cut takes".into(),
        x: Axis::log("mean latency of a write", "ms"),
        y: Axis::linear("most acknowledged writes lost in a power cut", ""),
        series,
        lines: vec![],
        how_to_read: "A mark is a level on a disk; its name is shown under the pointer. Low and to the left is best. Levels \
                      that did not come back at all have no mark."
            .into(),
        cannot_say: "How many would be lost under more load: a window of time is lost, and what was written in it."
            .into(),
    })
}

/// What is answered to a level that cannot be had.
fn refusals(cells: &[BrokenCell<'_>]) -> Table {
    let rows = cells.iter().filter(|cell| only_asks(cell)).map(|cell| {
        let answer = match cell.runs.is_empty() {
            true => Cell::from(cell.of.why_none()),
            false => Cell::verdict(sign(cell.verdict()), "it was granted"),
        };
        let recipe = cell.of.cell.spec.lab.as_ref().map_or("", |lab| lab.recipe.name.as_str());
        Row::new(vec![recipe.into(), label(cell, "level").into(), answer])
    });
    Table {
        caption: "More replicas than exist".into(),
        columns: vec![Column::words("Asked"), Column::words("For"), Column::words("Answer")],
        rows: rows.collect(),
        how_to_read: "A server is asked for confirmations that nobody can give. The answer has to be an error with its \
                      reason, and not silence."
            .into(),
    }
}
