//! Sections that every report has.

use super::one_line;
use crate::report::{
    Block, Callout, CalloutKind, Cell, Column, Columns, Emphasis, Fact, Number, Row, Section, Table, Verdict,
};
use crate::study::comparison::{Compared, Side};
use std::collections::HashSet;
use tipover_core::experiment::{Experiment, TargetKind};
use tipover_core::measure::{Canary, CanaryVerdict, Estimate, Headroom, Way, judge_machines};
use tipover_core::record::{LoadMachine, Phase, Record, Verdict as Belief};
use tipover_core::study::{CellRecords, Cells, Figure, Known, MachineFigures, Spent, machines, time_spent};
use tipover_core::units::{Bytes, span};

/// An estimate as a number with its interval; without repeats there is no interval to show.
pub fn number(estimate: &Estimate, unit: &str) -> Number {
    let number = Number::new(estimate.value, unit);
    // Trials that agree to the last bit of a float are a constant, not a measurement with an error.
    let constant = estimate.high - estimate.low <= estimate.value.abs() * 1e-9;
    match estimate.low.is_finite() && estimate.high.is_finite() {
        true if constant => number,
        true => number.between(estimate.low, estimate.high),
        false => number.of_one_trial(),
    }
}

/// A figure of a study with its interval, or the reason for having none.
pub fn figure(figure: &Figure, unit: &str) -> Cell {
    match figure {
        Figure::Missing { missing, .. } => Cell::missing(missing),
        Figure::Known(known) => known_number(known, unit).into(),
    }
}

/// A figure as a number; without an interval it says why.
pub fn known_number(known: &Known, unit: &str) -> Number {
    number(&known.estimate(), unit)
}

/// A cell with an estimate, or with the reason for having none.
pub fn shown(estimate: Option<&Estimate>, unit: &str, of: &CellRecords<'_>) -> Cell {
    match estimate {
        Some(estimate) => number(estimate, unit).into(),
        None => Cell::missing(&of.why_none()),
    }
}

/// A percentile in milliseconds, or the reason for having none.
pub fn shown_percentile(of: &CellRecords<'_>, quantile: f64) -> Cell {
    if of.measured().is_empty() {
        return Cell::missing(&of.why_none());
    }
    match of.residence_ms(quantile) {
        Ok(estimate) => number(&estimate, "ms").into(),
        Err(few) => Cell::missing(&few.to_string()),
    }
}

/// The first cells in a sentence each, for experiments that no study has an answer for.
pub fn in_short(cells: &Cells<'_>) -> Vec<String> {
    const MOST: usize = 6;
    let measured = cells.all.iter().filter(|c| !c.measured().is_empty());
    let sentence = |c: &CellRecords<'_>| {
        // A number alone says nothing; words do.
        let label = |(axis, label): &(String, String)| match label.contains(char::is_alphabetic) {
            true => label.clone(),
            false => format!("{} {label}", axis.replace('_', " ")),
        };
        let labels: Vec<String> = c.cell.labels.iter().map(label).collect();
        let throughput = c.throughput().map(|estimate| number(&estimate, "operations/s").to_string());
        let p99 = match c.residence_ms(0.99) {
            Ok(estimate) => format!("p99 {}", number(&estimate, "ms")),
            Err(few) => format!("no p99: {few}"),
        };
        format!("{} {}: {}, {p99}", c.cell.sweep, labels.join(", "), throughput.unwrap_or_default())
    };
    measured.take(MOST).map(sentence).collect()
}

/// Whether the read budget closes.
pub fn budget_verdict(c: &CellRecords<'_>) -> Cell {
    match c.read_budget() {
        None if c.measured().is_empty() => Cell::missing(&c.why_none()),
        // Misses may be counted all the same: what is missing is somebody who counts beside the engine.
        None => {
            let budgets = c.budgets(Way::Reads);
            let mut all = budgets.values();
            Cell::missing(match (all.next(), all.next()) {
                (None, _) => "this target counts no reads",
                (Some(only), None) => &only.evidence,
                _ => "each node has its own, in Nodes",
            })
        }
        Some(budget) => super::budgets::verdict(&budget),
    }
}

/// Sentences about what is missing or cannot be believed; none when all is well.
pub fn shortcomings(cells: &Cells<'_>) -> Vec<String> {
    let planned = cells.planned();
    let (mut there, mut failed, mut invalid) = (0, 0, 0);
    for record in cells.records() {
        there += 1;
        match record.verdict {
            Belief::Valid => {}
            Belief::Invalid { .. } => invalid += 1,
            Belief::Failed { .. } => failed += 1,
        }
    }
    let mut sentences = Vec::new();
    if cells.repeats == 1 && cells.records().any(|record| record.is_valid() && record.broken.is_none()) {
        sentences.push(
            "Each cell was measured once: most figures have no interval, and nothing says what another trial would \
             give. `--repeats 5` does."
                .into(),
        );
    }
    if there < planned {
        sentences.push(format!("{} of {planned} trials were not measured yet.", planned - there));
    }
    if failed > 0 {
        let trials = if failed == 1 { "trial" } else { "trials" };
        sentences.push(format!("{failed} {trials} failed; see Trials for the reasons."));
    }
    let short: Vec<(u64, u64)> =
        cells.records().filter(|record| record.is_valid()).filter_map(Record::fell_short).collect();
    if let Some((done, wanted)) = short.iter().min() {
        sentences.push(format!(
            "{} of {there} trials {} ended by measure_most before all the operations were done that the plan wants (the \
             fewest: {done} of {wanted}): such figures rest on less.",
            short.len(),
            if short.len() == 1 { "was" } else { "were" }
        ));
    }
    if invalid > 0 {
        let (trials, are) = if invalid == 1 { ("trial was", "is") } else { ("trials were", "are") };
        sentences.push(format!(
            "{invalid} {trials} measured but cannot be believed, and {are} in no figure; see Trials."
        ));
    }
    sentences
}

/// What became of each trial, and the evidence on which its phases ended.
pub fn trials(cells: &Cells<'_>) -> Section {
    let mut rows = Vec::new();
    let mut callouts: Vec<Block> = Vec::new();
    let session: Vec<(Option<&str>, &[Canary])> = cells
        .records()
        .map(|record| (record.provenance.machine.as_deref(), record.canaries.as_slice()))
        .collect();
    let mut canaries = judge_machines(&session).into_iter();
    for c in &cells.all {
        let labels: Vec<&str> = c.cell.labels.iter().map(|(_, label)| label.as_str()).collect();
        let name = format!("{} {}", c.cell.sweep, labels.join(", "));
        if c.records.is_empty() {
            rows.push(Row::new(vec![
                name.as_str().into(),
                "–".into(),
                Cell::missing("not measured"),
                "".into(),
                "".into(),
                Cell::missing("not measured"),
                "".into(),
                "".into(),
            ]));
        }
        for record in &c.records {
            let (verdict, text) = match &record.verdict {
                Belief::Valid => (Verdict::Held, format!("valid{}", short(record))),
                Belief::Invalid { reasons } => {
                    (Verdict::Unknown, format!("not valid: {}", reasons.join("; ")))
                }
                Belief::Failed { reason } => (Verdict::NotHeld, format!("failed: {reason}")),
            };
            if verdict == Verdict::NotHeld {
                let text = format!("{name} #{}: {text}", record.repeat + 1);
                callouts.push(Block::Callout(Callout { kind: CalloutKind::Failure, text }));
            }
            let evidence = |phase: Phase| {
                record.phases.iter().find(|p| p.name == phase).map_or("", |p| p.evidence.as_str()).to_string()
            };
            let emphasis = if verdict == Verdict::Held { Emphasis::Plain } else { Emphasis::Strong };
            let row = Row::new(vec![
                name.as_str().into(),
                format!("#{}", record.repeat + 1).into(),
                Cell::verdict(verdict, &text),
                evidence(Phase::WarmUp).into(),
                evidence(Phase::Measure).into(),
                own_throughput(record),
                at_rest(record).into(),
                quiet(canaries.next()).into(),
            ]);
            rows.push(row.emphasis(emphasis));
        }
    }
    let table = Table {
        caption: "Every trial".into(),
        columns: vec![
            Column::words("cell"),
            Column::words("trial"),
            Column::words("verdict"),
            Column::words("why the warm-up ended"),
            Column::words("measured"),
            Column::numbers("throughput", "/s").group("the trial by itself"),
            Column::words("at rest").group("the trial by itself"),
            Column::words("canaries").group("the trial by itself"),
        ],
        rows,
        how_to_read: "A trial is valid when its caches were at rest, no operation failed but by conflict or \
                      time-out, Little's law holds (sessions = throughput × mean residence) and the read budget \
                      closes. The trial by itself: throughput with its interval by the block bootstrap over its \
                      intervals, which says nothing about the next trial; whether it was at rest; and whether the \
                      machine's canary before and after it lies within three robust deviations of all its canaries \
                      here."
            .into(),
    };
    // Trials that are broken have no warm-up, and those of a target without caches are never at rest.
    callouts.push(Block::Table(table.without_empty_columns()));
    let machines = machines(cells);
    callouts.extend((!machines.is_empty()).then(|| Block::Table(how_machines_differ(&machines))));
    let together: Vec<Together<'_>> = cells.records().flat_map(Together::of).collect();
    callouts.extend((!together.is_empty()).then(|| Block::Table(machines_of_loads(&together))));
    let spent = time_spent(cells.records());
    callouts.extend((!spent.is_empty()).then(|| Block::Table(where_the_time_went(&spent))));
    Section { id: "trials".into(), title: "Trials".into(), blocks: callouts }
}

fn how_machines_differ(machines: &[MachineFigures]) -> Table {
    Columns::new()
        .words("machine", |of: &MachineFigures| of.machine.clone())
        .numbers("trials", "", |of, unit| Number::exact(of.trials as f64, unit))
        .numbers("cells compared", "", |of, unit| Number::exact(of.cells as f64, unit))
        .figures("throughput against all", "%", |of| &of.throughput_percent)
        .table(
            "How the machines differ",
            machines,
            "Against the mean of all machines, over the cells that several measured. Intervals of cells are made of \
             how trials of one machine differ, and have none of this in them.",
        )
}

/// One of the machines that sent the load of a trial.
struct Together<'a> {
    record: &'a Record,
    machine: &'a LoadMachine,
    seconds: f64,
    headroom: Headroom,
}

impl<'a> Together<'a> {
    fn of(record: &'a Record) -> Vec<Together<'a>> {
        let Some(measured) = &record.measured else { return vec![] };
        let seconds = measured.seconds();
        let both = measured.machines.iter().zip(record.headroom_of_machines());
        both.map(|(machine, (_, headroom))| Together { record, machine, seconds, headroom }).collect()
    }
}

fn machines_of_loads(together: &[Together<'_>]) -> Table {
    let us = |ns: f64, unit: &str| Number::new(ns / 1e3, unit);
    Columns::new()
        .words("trial", |of: &Together<'_>| {
            let labels: Vec<&str> = of.record.labels.iter().map(|(_, label)| label.as_str()).collect();
            format!("{} {} #{}", of.record.sweep, labels.join(", "), of.record.repeat + 1)
        })
        .words("machine", |of| of.machine.machine.clone())
        .numbers("sessions", "", |of, unit| Number::exact(f64::from(of.machine.sessions), unit))
        .numbers("throughput", "/s", |of, unit| Number::new(of.machine.operations as f64 / of.seconds, unit))
        .numbers("processors taken", "", |of, unit| {
            Number::new(of.machine.process_ns as f64 / 1e9 / of.seconds, unit)
        })
        .words("limit", |of| of.headroom.to_string())
        .numbers("clock ahead of the first", "us", move |of, unit| {
            us(of.machine.clock.map_or(0.0, |clock| clock.ns as f64), unit)
        })
        .numbers("off by at most", "us", move |of, unit| {
            us(of.machine.clock.map_or(0.0, |clock| clock.bound_ns as f64), unit)
        })
        .numbers("intervals apart", "us", move |of, unit| us(of.machine.apart_ns as f64, unit))
        .table(
            "Machines that sent a load together",
            together,
            "The clock is that since the machine's start, so far apart clocks are no fault: how well their difference is \
             known matters. Intervals apart: by how much a machine counted until another moment than the first.",
        )
}

fn where_the_time_went(spent: &[Spent]) -> Table {
    let all_s: f64 = spent.iter().map(|phase| phase.total_s).sum();
    let seconds = |seconds: f64, unit: &str| Number::new(seconds, unit);
    Columns::new()
        .words("phase", |of: &Spent| of.phase.name())
        .numbers("times", "", |of, unit| Number::exact(of.times as f64, unit))
        .numbers("all of them", "s", move |of, unit| seconds(of.total_s, unit))
        .numbers("share", "%", move |of, unit| Number::new(100.0 * of.total_s / all_s.max(1e-9), unit))
        .numbers("longest", "s", move |of, unit| seconds(of.longest_s, unit))
        .table(
            "Where the time went",
            spent,
            "All trials together. Trials that differ in the disk's shape alone share what comes before it.",
        )
}

/// That a trial has fewer operations than the plan wants; empty where it has them.
fn short(record: &Record) -> String {
    record
        .fell_short()
        .map_or_else(String::new, |(done, wanted)| format!(", with {done} of {wanted} operations"))
}

/// The throughput of one trial with the interval that its own intervals give it.
fn own_throughput(record: &Record) -> Cell {
    let Some(measured) = &record.measured else { return Cell::missing("not measured") };
    let within = measured.within.as_ref().and_then(|within| within.throughput.as_ref());
    match within {
        Some(estimate) => number(estimate, "/s").into(),
        None => Number::new(measured.throughput(), "/s").of_one_trial().into(),
    }
}

fn at_rest(record: &Record) -> String {
    let judged = record.measured.as_ref().and_then(|measured| measured.within.as_ref());
    judged.map_or_else(String::new, |within| {
        format!("{}: {}", within.steadiness.verdict.words(), within.steadiness.evidence)
    })
}

fn quiet(verdict: Option<CanaryVerdict>) -> String {
    match verdict {
        Some(CanaryVerdict::Quiet) => "quiet".into(),
        Some(CanaryVerdict::Disturbed { why }) => format!("disturbed: {why}"),
        Some(CanaryVerdict::Unknown) | None => "too few to judge".into(),
    }
}

/// What trials and their twins in the same blocks differ by: the noise floor. Empty without twins.
pub fn noise(records: &[Record]) -> Section {
    let mut side = Side::new("first");
    let twice: HashSet<&str> = records.iter().filter(|r| r.twin).map(|r| r.cell.as_str()).collect();
    records.iter().filter(|r| twice.contains(&*r.cell)).for_each(|record| side.add_record(record, ""));
    let row = |compared: Compared| {
        let shift = compared.comparison.shift.scaled(100.0);
        Row::new(vec![
            compared.cell.into(),
            compared.figure.name().into(),
            Number::new(compared.comparison.medians.0, compared.figure.unit()).to_string().into(),
            Number::new(compared.comparison.medians.1, compared.figure.unit()).to_string().into(),
            number(&shift, "%").into(),
        ])
    };
    let rows: Vec<Row> = side.with_its_twins().into_iter().map(row).collect();
    let table = Block::Table(Table {
        caption: "The same measured twice".into(),
        columns: vec![
            Column::words("cell"),
            Column::words("figure"),
            Column::words("first").group("median over the blocks"),
            Column::words("again").group("median over the blocks"),
            Column::numbers("shift", "%"),
        ],
        how_to_read: "Nothing differs between the two but chance, so a difference of that size between two cells or two \
                      results may be chance too. `tipover compare` declares none that is smaller."
            .into(),
        rows,
    });
    let blocks = match &table {
        Block::Table(table) if table.rows.is_empty() => vec![],
        _ => vec![table],
    };
    Section { id: "noise".into(), title: "Noise floor".into(), blocks }
}

/// How to read the page, from the plan.
pub fn reading(experiment: &Experiment) -> Section {
    let text = format!("{}\n\n{}", one_line(&experiment.why), one_line(&experiment.how_to_read));
    Section { id: "how-to-read".into(), title: "How to read".into(), blocks: vec![Block::Prose(text)] }
}

/// Machine, target, disk, and what was missed.
pub fn environment(cells: &Cells<'_>) -> Section {
    let mut blocks = Vec::new();
    let Some(record) = cells.records().find(|r| r.measured.is_some()).or(cells.records().next()) else {
        return Section { id: "environment".into(), title: "Environment".into(), blocks };
    };
    let mut missed: Vec<String> = cells.records().flat_map(|r| r.missed.clone()).collect();
    missed.sort();
    missed.dedup();
    for text in missed {
        blocks.push(Block::Callout(Callout { kind: CalloutKind::Warning, text }));
    }
    let machine = &record.machine;
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>, note: &str| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.push(Fact::new(name, value).note(note));
        }
    };
    fact("processor", machine.cpu_model.clone(), "");
    fact(
        "cores",
        Some(machine.cores).filter(|cores| *cores > 0).map(|n| n.to_string()),
        "for engine, generator and disk together",
    );
    fact("memory", Some(machine.memory_total).filter(|bytes| bytes.0 > 0).map(|bytes| bytes.rounded()), "");
    fact("kernel", Some(machine.kernel.clone()), "");
    fact("runs under", machine.virtualisation.clone(), "");
    fact("clock", machine.clock_source.clone(), "");
    fact(
        "load average before",
        machine.processors().map(|_| format!("{:.2}", machine.load_average[0])),
        "over one minute",
    );
    let spec = &record.spec;
    fact(
        "memory of the target",
        spec.machine.memory.map(|m| m.rounded()),
        "engine, its cache and its page cache",
    );
    // What a server says of its own.
    for setting in ["shared_buffers", "innodb_buffer_pool_size", "rocksdb_block_cache_size"] {
        let value = record.target.get(setting).and_then(|value| value.as_str());
        let bytes = value.and_then(|value| value.parse::<u64>().ok()).map(|bytes| Bytes(bytes).rounded());
        fact("engine cache", bytes.or(value.map(String::from)), setting);
    }
    if spec.target.kind == TargetKind::Wiredtiger {
        fact("engine cache", Some(spec.cache_bytes().rounded()), "as configured");
        fact(
            "effective engine cache",
            Some(spec.effective_cache_bytes().rounded()),
            "80 %: beyond that WiredTiger evicts",
        );
    }
    let path = spec.target.request_path_cpu;
    if !path.is_zero() {
        let note =
            "processor time burnt per operation for client, wire and server, which an embedded engine lacks";
        fact("request path", Some(span::print(path)), note);
    }
    for (prefix, facts_of) in [("target", &record.target), ("disk", &record.disk)] {
        for (key, value) in facts_of {
            // A fact made of facts is a line for each.
            let parts = match value.as_object() {
                Some(parts) => parts.iter().map(|(part, value)| (format!("{key} {part}"), value)).collect(),
                None => vec![(key.clone(), value)],
            };
            for (name, value) in parts {
                let text = value.as_str().map_or_else(|| value.to_string(), ToString::to_string);
                fact(&format!("{prefix}: {}", name.replace('_', " ")), Some(text), "");
            }
        }
    }
    blocks.push(Block::Facts(facts));
    Section { id: "environment".into(), title: "Environment".into(), blocks }
}
