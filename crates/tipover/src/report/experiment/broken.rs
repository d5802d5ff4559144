//! The page of cells under faults: the verdict, how long it was away, what safety costs, and the evidence.

use super::sections::{number, shown};
use crate::report::{
    Axis, Block, Callout, CalloutKind, Cell, Chart, Column, Emphasis, Number, Point, Row, Section, Series,
    SeriesKind, Table, Verdict as Sign,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;
use tipover_core::check::broken::Things;
use tipover_core::check::loss::{FaultFigures, Losses};
use tipover_core::check::{AtRisk, Broken, Verdict};
use tipover_core::device::CutReport;
use tipover_core::op::{Failure, OpKind};
use tipover_core::schedule::Effect;
use tipover_core::study::Cells;
use tipover_core::study::{BrokenCell, Spans};
use tipover_core::units::{significant, span};

/// Cells under faults, in the plan's order.
pub fn cells<'a>(cells: &'a Cells<'a>) -> Vec<BrokenCell<'a>> {
    cells.all.iter().filter_map(BrokenCell::of).collect()
}

/// One sentence a cell, and what the first one costs against each other on the same kind of disk. Two cells
/// that share one, as `tipover break --against` makes them, are one sentence.
pub fn headline(cells: &[BrokenCell<'_>]) -> Vec<String> {
    let same_disk =
        |a: &BrokenCell<'_>, b: &BrokenCell<'_>| a.of.cell.spec.disk.mode == b.of.cell.spec.disk.mode;
    if let [asked, other] = cells
        && same_disk(asked, other)
        && !other.runs.is_empty()
        && !asked.runs.is_empty()
    {
        let label = other.of.cell.labels.last().map_or("the other setting", |(_, label)| label.as_str());
        let price = price(asked, other).map(|price| format!("; {price}")).unwrap_or_default();
        return vec![format!("{}; with {label}: {}{price}", sentence(asked), findings(other))];
    }
    // What was asked first is said first; of the ways to mount its disk, the one in which it did worst.
    let mut groups: Vec<Vec<&BrokenCell<'_>>> = Vec::new();
    for cell in cells {
        match groups.last_mut().filter(|group| differ_in_disk_mode(group[0], cell)) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups.iter_mut().for_each(|group| group.sort_by_key(|cell| Reverse(cell.verdict())));
    let mut said: Vec<String> = groups.iter().flatten().map(|cell| sentence(cell)).collect();
    for (number, other) in cells.iter().enumerate() {
        let first = cells[..number].iter().find(|first| same_disk(first, other));
        let price = first.and_then(|first| price(first, other));
        said.extend(price.map(|price| format!("{}: {price}", other.name())));
    }
    said
}

/// Whether two cells are the same setting, with the disk mounted in different ways.
fn differ_in_disk_mode(a: &BrokenCell<'_>, b: &BrokenCell<'_>) -> bool {
    let (a, mut b) = (&a.of.cell.spec, b.of.cell.spec.clone());
    let differ = a.disk.mode != b.disk.mode;
    b.disk.mode = a.disk.mode;
    differ && *a == b
}

fn sentence(cell: &BrokenCell<'_>) -> String {
    if cell.runs.is_empty() {
        return format!("{}: {}", cell.name(), cell.of.why_none());
    }
    format!("{}, {}: {}", cell.name(), cell.faults(), findings(cell))
}

/// "CONVICTED: lost 12 to 640 acknowledged writes per fault in 30 of 30 faults, ...".
fn findings(cell: &BrokenCell<'_>) -> String {
    let mut said: Vec<String> = Vec::new();
    for things in [Things::Writes, Things::Transfers] {
        said.extend(cell.losses(things).map(|(_, summary)| summary));
    }
    if let Some(besides) = cell.besides_losses() {
        // It begins with what it says of losses.
        said.retain(|losses| !besides.starts_with(losses.as_str()));
        said.push(besides.into());
    }
    said.extend(cell.at_risk());
    said.extend(cell.others().iter().map(|finding| finding.summary.clone()));
    // A lost acknowledgement is said above; what else is wrong is said too.
    let others = cell.runs.iter().flat_map(|run| &run.problems).map(|finding| finding.summary.clone());
    let mut others: Vec<String> = others.collect();
    others.sort();
    others.dedup();
    said.extend(others);
    format!("{}: {}", cell.verdict().words(), said.join("; "))
}

/// "costs 2.1 × the latency of a".
fn price(base: &BrokenCell<'_>, other: &BrokenCell<'_>) -> Option<String> {
    let kind = *base.kinds().first()?;
    let (a, b) = (base.calm_mean_ms(kind)?, other.calm_mean_ms(kind)?);
    let ratio = b.relative_to(&a);
    let interval = match ratio.low.is_finite() && ratio.high.is_finite() {
        true => format!(" ({} to {})", significant(ratio.low.max(0.0), 2), significant(ratio.high, 2)),
        false => String::new(),
    };
    let words = significant(ratio.value, 2);
    let labels = base.of.cell.labels.iter().zip(&other.of.cell.labels);
    let differing = labels.rev().find(|(ours, theirs)| ours != theirs);
    let of = differing.map_or("the first", |((_, label), _)| label.as_str());
    Some(format!("costs {words} ×{interval} the latency of {of}, before anything breaks"))
}

/// All sections about faults.
pub fn sections(cells: &[BrokenCell<'_>]) -> Vec<Section> {
    let section = |id: &str, title: &str, blocks| Section { id: id.into(), title: title.into(), blocks };
    let mut verdicts = vec![Block::Table(verdicts(cells))];
    verdicts.extend(evidence(cells));
    verdicts.extend(losses(cells).map(Block::Chart));
    let mut all = vec![
        section("verdict", "Verdict", verdicts),
        section("away", "How long it was away", vec![Block::Table(away(cells))]),
        section("price", "What it costs", vec![Block::Table(prices(cells))]),
    ];
    for (id, title, table) in
        [("exposed", "What power cuts put at risk", exposed(cells)), ("faults", "Faults", faults(cells))]
    {
        if !table.rows.is_empty() {
            all.push(section(id, title, vec![Block::Table(table)]));
        }
    }
    all
}

/// The verdict of a cell as a sign.
pub fn sign(verdict: Verdict) -> Sign {
    match verdict {
        Verdict::Valid => Sign::Held,
        Verdict::Invalid => Sign::NotHeld,
        Verdict::NoEvidence | Verdict::NotTested | Verdict::Unknown => Sign::Unknown,
    }
}

/// "12 to 640": what each fault that lost something lost.
fn lost_per_fault(cell: &BrokenCell<'_>, things: Things) -> Cell {
    let Some((losses, _)) = cell.losses(things) else { return Cell::missing("not checked") };
    let counts = losses.faults.iter().filter(|fault| fault.lost > 0).map(|fault| fault.lost);
    let (least, most) = (counts.clone().min(), counts.max());
    match least.zip(most) {
        Some((least, most)) if least == most => Number::exact(most as f64, "").into(),
        Some((least, most)) => Number::range(least as f64, most as f64, "").digits(0).into(),
        None if losses.chance.faults > 0 => Number::exact(0.0, "").into(),
        None => Cell::missing("no evidence"),
    }
}

/// "12 to 640", in words.
pub fn spread(losses: &Losses) -> String {
    let counts = || losses.faults.iter().filter(|fault| fault.lost > 0).map(|fault| fault.lost);
    match counts().min().zip(counts().max()) {
        Some((least, most)) if least == most => most.to_string(),
        Some((least, most)) => format!("{least} to {most}"),
        None => "0".into(),
    }
}

/// "a loss in less than 10 % of faults": the chance of a loss with 95 %.
fn chance(cell: &BrokenCell<'_>, things: Things) -> Cell {
    let Some((losses, _)) = cell.losses(things) else { return Cell::missing("not checked") };
    if losses.chance.faults == 0 {
        return Cell::missing("no fault with enough acknowledgements before it");
    }
    let percent = |p: f64| significant(100.0 * p, 2);
    match losses.chance.with_loss {
        0 => format!("< {} %", percent(losses.chance.high)).into(),
        _ => format!("{} to {} %", percent(losses.chance.low), percent(losses.chance.high)).into(),
    }
}

fn verdicts(cells: &[BrokenCell<'_>]) -> Table {
    let mut rows = Vec::new();
    for cell in cells {
        let (fired, all) = cell.fired();
        if !cell.runs.is_empty() && cell.runs.iter().all(|run| !run.came_back()) {
            let mut row: Vec<Cell> = vec![
                cell.name().into(),
                "everything".into(),
                Cell::verdict(sign(cell.verdict()), cell.verdict().words()),
                format!("{fired} of {all}").into(),
            ];
            row.extend([0; 5].map(|_| Cell::missing("nothing could be read back")));
            rows.push(Row::new(row));
        }
        for things in [Things::Writes, Things::Transfers] {
            let Some((losses, _)) = cell.losses(things) else { continue };
            let window = match losses.widest() {
                Some((_, Duration::ZERO)) => Cell::missing("all acknowledged after it began"),
                Some((FaultFigures { uncertainty: error, .. }, window)) => Number::new(ms(window), "ms")
                    .between(ms(window.saturating_sub(*error)), ms(window + *error))
                    .into(),
                None => Cell::missing("nothing was lost"),
            };
            rows.push(Row::new(vec![
                cell.name().into(),
                things.name().into(),
                Cell::verdict(sign(cell.verdict()), cell.verdict().words()),
                format!("{fired} of {all}").into(),
                format!("{} of {}", losses.chance.with_loss, losses.chance.faults).into(),
                lost_per_fault(cell, things),
                window,
                chance(cell, things),
                Number::exact(losses.chance.least_acknowledged as f64, "").into(),
            ]));
        }
        for finding in cell.others() {
            let verdict = Cell::verdict(sign(finding.verdict), finding.verdict.words());
            let mut row: Vec<Cell> = vec![
                cell.name().into(),
                finding.checker.as_str().into(),
                verdict,
                format!("{fired} of {all}").into(),
            ];
            row.extend([0; 5].map(|_| Cell::missing("not charged to single faults")));
            rows.push(Row::new(row));
        }
    }
    Table {
        caption: "What was acknowledged and then lost".into(),
        columns: vec![
            Column::words("Cell"),
            Column::words("Checked"),
            Column::words("Verdict"),
            Column::words("With effect").group("Faults"),
            Column::words("With a loss").group("Faults"),
            Column::numbers("Lost per such fault", "").group("Lost"),
            Column::numbers("Window", "ms").group("Lost"),
            Column::words("Chance, 95 %").group("Lost"),
            Column::numbers("At risk, at least", "").group("Lost"),
        ],
        rows,
        how_to_read: "With a loss: of the faults that had an effect and enough acknowledgements before them (or a \
                      loss). Window: from the earliest lost acknowledgement to its fault, the longest of those whose \
                      moment is known better than that. Chance: of a loss in a fault; where none was seen, its upper \
                      bound 1 − 0.05^(1/n). At risk: acknowledgements within the window before a fault, the fewest of \
                      all faults."
            .into(),
    }
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn spans(spans: Option<Spans>, why: &str) -> Cell {
    match spans {
        None => Cell::missing(why),
        Some(Spans { median, longest, known, faults }) => {
            let text = format!("{} (up to {})", span::rounded(median), span::rounded(longest));
            if known < faults { format!("{text}, in {known} of {faults}").into() } else { text.into() }
        }
    }
}

/// "−107 ms", "1.9 s": a time in nanoseconds from a fault on.
fn from_fault(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "−" } else { "+" };
    format!("{sign}{}", span::rounded(Duration::from_nanos(nanoseconds.unsigned_abs())))
}

/// Most rows that a table with several for each cell shows.
fn most_rows(cells: &[BrokenCell<'_>]) -> usize {
    (36 / cells.len().max(1)).clamp(1, 12)
}

fn exposed(cells: &[BrokenCell<'_>]) -> Table {
    let most = most_rows(cells);
    let mut rows = Vec::new();
    for cell in cells {
        let least = cell.of.cell.spec.breaking.as_ref().map_or(0, |breaking| breaking.least_acknowledged);
        for (number, fault, figures) in cell.power_cuts().into_iter().take(most) {
            let Some(at_risk) = AtRisk::of(&fault.injection) else { continue };
            let sum = |of: fn(&CutReport) -> u64| {
                let all: u64 = fault.injection.outages.iter().map(|outage| of(&outage.disk)).sum();
                Cell::from(Number::exact(all as f64, ""))
            };
            let count = |of: fn(&FaultFigures) -> u64| match figures {
                Some(figures) => Number::exact(of(figures) as f64, "").into(),
                None => Cell::missing("neither writes nor transfers are checked"),
            };
            let evidence = match figures {
                Some(figures) if figures.is_test(least) => "yes",
                _ if at_risk.is_nothing() => "no: nothing at risk",
                Some(_) => "no: too little acknowledged",
                None => "of order and isolation only",
            };
            rows.push(Row::new(vec![
                cell.name().into(),
                format!("#{}", number + 1).into(),
                evidence.into(),
                count(|figures| figures.acknowledged_in_window),
                count(|figures| figures.lost),
                at_risk.page_cache.map_or(Cell::missing("not counted"), |size| size.rounded().into()),
                sum(|disk| disk.lost_blocks),
                sum(|disk| disk.torn_blocks),
                sum(|disk| disk.kept_blocks),
                sum(|disk| disk.lost_names),
            ]));
        }
    }
    Table {
        caption: "What was not durable when the power went".into(),
        columns: vec![
            Column::words("Cell"),
            Column::words("Run"),
            Column::words("Evidence"),
            Column::numbers("at risk", "").group("Acknowledged"),
            Column::numbers("lost", "").group("Acknowledged"),
            Column::words("In page caches"),
            Column::numbers("lost", "").group("Blocks on disks, not flushed"),
            Column::numbers("torn", "").group("Blocks on disks, not flushed"),
            Column::numbers("survived", "").group("Blocks on disks, not flushed"),
            Column::numbers("Names undone", ""),
        ],
        rows,
        how_to_read: format!(
            "A cut is evidence if enough was acknowledged in the window before it, or lost, and something was on its \
             way to the disks: without that it is no more than a kill. Page caches: written by programs, not yet sent \
             to a disk, and gone with the kernel. Blocks of 4 KiB had reached a disk that had not flushed them; torn \
             ones are partly old and partly new, as a page may be that was being written. The first {most} of each \
             cell; all are in the records."
        ),
    }
}

fn away(cells: &[BrokenCell<'_>]) -> Table {
    let row = |cell: &BrokenCell<'_>| {
        let rate = |rate: Option<f64>| match rate {
            Some(rate) => Number::new(rate, "/s").into(),
            None => Cell::missing("no fault to count from"),
        };
        Row::new(vec![
            cell.name().into(),
            spans(cell.spans(|fault| fault.recovery.first_success), "no success after a fault, or no fault"),
            spans(cell.spans(|fault| fault.recovery.objective_again), "not within the run, or no fault"),
            spans(cell.replicas_agree(), "there is no replica, or one that differs"),
            match cell.lost_span() {
                Some((first, last)) => format!("{} to {}", from_fault(first), from_fault(last)).into(),
                None => Cell::missing("nothing was lost"),
            },
            rate(cell.throughput(|fault| fault.recovery.before.map(|rate| rate.0))),
            rate(cell.throughput(|fault| fault.recovery.during.map(|rate| rate.0))),
            rate(cell.throughput(|fault| fault.recovery.after.map(|rate| rate.0))),
        ])
    };
    Table {
        caption: "From the fault on, as clients saw it".into(),
        columns: vec![
            Column::words("Cell"),
            Column::words("First success"),
            Column::words("Objective holds again"),
            Column::words("Replicas agree"),
            Column::words("Acknowledged and lost"),
            Column::numbers("before", "/s").group("Done"),
            Column::numbers("during", "/s").group("Done"),
            Column::numbers("after", "/s").group("Done"),
        ],
        rows: cells.iter().map(row).collect(),
        how_to_read: "Medians, and the longest. They include the time for which the fault lasted. The objective: 99 % \
                      of operations within the limit of the plan for its hold, and no second without one. Replicas \
                      agree: at the first of the two readings after the run that showed it, so an upper bound. \
                      During: from the fault until the objective holds again. What was acknowledged and lost is no \
                      success in any of these but in what was done before the fault; when it was acknowledged is \
                      counted from the fault on, from the first to the last of all faults, negative before it."
            .into(),
    }
}

fn words(failures: &BTreeMap<Failure, u64>) -> String {
    let each = failures.iter().map(|(failure, count)| format!("{count} {}", failure.name()));
    let words = each.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "none".into() } else { words }
}

fn kind_name(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Update => "writes",
        OpKind::Transfer => "transfers",
        other => other.name(),
    }
}

fn prices(cells: &[BrokenCell<'_>]) -> Table {
    let mut rows = Vec::new();
    for cell in cells {
        for kind in cell.kinds() {
            let percentile = |quantile| match cell.calm_ms(kind, quantile) {
                Ok(estimate) => number(&estimate, "ms").into(),
                Err(few) => Cell::missing(&few.to_string()),
            };
            let (retries, refused, unknown) = cell.not_done(kind);
            rows.push(Row::new(vec![
                cell.name().into(),
                kind_name(kind).into(),
                shown(cell.calm_rate(Some(kind)).as_ref(), "/s", cell.of),
                shown(cell.calm_mean_ms(kind).as_ref(), "ms", cell.of),
                percentile(0.5),
                percentile(0.99),
                Number::exact(retries as f64, "").into(),
                words(&refused).into(),
                words(&unknown).into(),
            ]));
        }
    }
    Table {
        caption: "Throughput and latency before the first fault".into(),
        columns: vec![
            Column::words("Cell"),
            Column::words("Operations"),
            Column::numbers("Throughput", "/s"),
            Column::numbers("mean", "ms").group("Latency"),
            Column::numbers("median", "ms").group("Latency"),
            Column::numbers("p99", "ms").group("Latency"),
            Column::numbers("Retries", "").group("Whole run"),
            Column::words("Refused").group("Whole run"),
            Column::words("Unknown").group("Whole run"),
        ],
        rows,
        how_to_read: "A closed loop: sessions wait for each other, so these are not latencies of open traffic. They are \
                      of what was done, all tries and pauses included; refused operations and unknown ones are counted \
                      apart and never as throughput."
            .into(),
    }
}

/// What was found, as people can follow it.
fn evidence(cells: &[BrokenCell<'_>]) -> Vec<Block> {
    // A page of many cells has one piece of each, so that it stays a page.
    let most = (12 / cells.len().max(1)).clamp(1, 6);
    let mut blocks = Vec::new();
    let mut left_out = 0;
    for cell in cells {
        let mut texts: Vec<(Verdict, String)> = Vec::new();
        for (number, run) in cell.runs.iter().enumerate() {
            for finding in run.findings().filter(|finding| finding.verdict > Verdict::NoEvidence) {
                for text in &finding.evidence {
                    let text = format!("{} #{}, {}: {text}", cell.name(), number + 1, finding.checker);
                    texts.push((finding.verdict, text));
                }
                // Notes say what stands in the way of a verdict.
                if finding.evidence.is_empty() {
                    let notes = finding.notes.join("; ");
                    let text = format!(
                        "{} #{}, {}: {} {notes}",
                        cell.name(),
                        number + 1,
                        finding.checker,
                        finding.summary
                    );
                    texts.push((finding.verdict, text));
                }
            }
        }
        left_out += texts.len().saturating_sub(most);
        for (verdict, text) in texts.into_iter().take(most) {
            let kind = if verdict == Verdict::Invalid { CalloutKind::Failure } else { CalloutKind::Warning };
            blocks.push(Block::Callout(Callout { kind, text }));
        }
    }
    if left_out > 0 {
        let text = format!("{left_out} more pieces of evidence are in the records");
        blocks.push(Block::Callout(Callout { kind: CalloutKind::Note, text }));
    }
    blocks
}

/// What each fault lost.
fn losses(cells: &[BrokenCell<'_>]) -> Option<Chart> {
    let series: Vec<Series> = cells
        .iter()
        .map(|cell| {
            let points = cell.each_fault().into_iter().enumerate().map(|(number, fault)| {
                let said = fault
                    .loss_window
                    .map_or("nothing lost".to_string(), |window| format!("window {}", span::rounded(window)));
                Point::new(number as f64 + 1.0, fault.lost as f64).label(&said)
            });
            Series::ours(SeriesKind::Points, &cell.name(), &cell.name(), points.collect())
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    // A legend of dozens says nothing.
    if series.is_empty() || series.len() > 8 {
        return None;
    }
    Some(Chart {
        id: "lost".into(),
        title: "Acknowledged and lost, fault by fault".into(),
        x: Axis::linear("fault, in the order of the runs", ""),
        y: Axis::linear("acknowledgements lost", ""),
        series,
        lines: vec![],
        how_to_read: "Each mark is a fault that had an effect. On the line of zero it lost nothing that had been \
                      acknowledged."
            .into(),
        cannot_say: "That a setting never loses anything: a number of faults only bounds the chance, and this fault on this \
                     machine says nothing about another kind."
            .into(),
    })
}

fn faults(cells: &[BrokenCell<'_>]) -> Table {
    let most = most_rows(cells);
    let mut rows = Vec::new();
    for cell in cells {
        let each = cell.runs.iter().enumerate().flat_map(|(number, run)| {
            let run: &Broken = run;
            run.faults.iter().map(move |fault| (number, fault))
        });
        for (number, fault) in each.take(most) {
            let (fired, text) = match &fault.injection.effect {
                Effect::Fired { count } => (Sign::Held, format!("{count}")),
                Effect::Nothing { reason } => (Sign::Unknown, reason.clone()),
            };
            let emphasis = if fired == Sign::Held { Emphasis::Plain } else { Emphasis::Strong };
            let row = Row::new(vec![
                cell.name().into(),
                format!("#{}", number + 1).into(),
                fault.injection.rule.as_str().into(),
                Number::new(fault.injection.at.0 as f64 / 1e9, "s").digits(4).into(),
                Number::new(ms(fault.injection.uncertainty), "ms").digits(2).into(),
                Cell::verdict(fired, &text),
                fault.evidence.join("; ").into(),
            ]);
            rows.push(row.emphasis(emphasis));
        }
    }
    Table {
        caption: "What was broken, and what shows that it was".into(),
        columns: vec![
            Column::words("Cell"),
            Column::words("Run"),
            Column::words("Rule"),
            Column::numbers("At", "s"),
            Column::numbers("Within", "ms"),
            Column::words("Hit"),
            Column::words("Evidence"),
        ],
        rows,
        how_to_read: format!(
            "At: on the run's own clock; the fault took effect at most so much later. The first {most} of each cell; \
             all are in the records."
        ),
    }
}
