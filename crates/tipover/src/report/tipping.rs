//! The page of a search: tipping points with their intervals, the trials behind them, and what limits.

use super::experiment::number;
use super::{
    Axis, Block, Callout, CalloutKind, Cell, Chart, Column, Coordinate, Emphasis, Fact, Number, On, Page,
    Point, Provenance, ReferenceLine, Row, Section, Series, SeriesKind, Table, Verdict,
};
use tipover_core::experiment::Experiment;
use tipover_core::measure::{Canary, CanaryVerdict, judge_session, mean_of_trials};
use tipover_core::search::limit::{INTERVENTIONS, Limit};
use tipover_core::search::{
    Capacity, FinishedTrial, Purpose, Rest, Scale, SearchRecord, Searched, Verdict as Found,
};

/// From the searches of all cells to a page. The command is the one that makes it again.
pub fn of_searches(experiment: &Experiment, records: &[SearchRecord], command: &str) -> Page {
    let records = &told_apart(records);
    let mut sections = vec![Section {
        id: "tipping-points".into(),
        title: "Tipping points".into(),
        blocks: overview(records),
    }];
    sections.extend(records.iter().enumerate().map(|(number, record)| of_cell(number, record)));
    sections.push(environment(records));
    Page {
        title: format!("{}: tipping points", experiment.title),
        question: "What is the highest load at which the promise still holds, and what limits it?".into(),
        headline: headline(records),
        sections,
        claims: vec![],
        made_by: Provenance {
            command: command.into(),
            commit: env!("TIPOVER_COMMIT").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            when: "a pure function of the records".into(),
            facts: records.first().map(facts).unwrap_or_default(),
        },
    }
}

/// Searches with labels by which they differ: of cells that are called alike, what they were carried out on.
fn told_apart(records: &[SearchRecord]) -> Vec<SearchRecord> {
    let mut told = records.to_vec();
    for record in &mut told {
        if records.iter().filter(|other| name(other) == name(record)).count() > 1 {
            record.labels.push(match &record.spec.target.address {
                Some(address) => ("at".into(), address.shown().to_string()),
                None => ("cell".into(), record.spec.fingerprint()[..8].to_string()),
            });
        }
    }
    told
}

fn facts(record: &SearchRecord) -> Vec<Fact> {
    let system = record.target.get("system").and_then(|s| s.as_str()).unwrap_or("unknown");
    vec![
        Fact::new("target", system),
        Fact::new("searched by", record.provenance.command.as_str()),
        Fact::new("commit of the searches", record.provenance.commit.as_str()),
    ]
}

/// What the machine and the target should be and are not, and what the target told of itself.
fn environment(records: &[SearchRecord]) -> Section {
    let mut missed: Vec<String> = records.iter().flat_map(|record| record.missed.clone()).collect();
    missed.sort();
    missed.dedup();
    let callout = |text| Block::Callout(Callout { kind: CalloutKind::Warning, text });
    let mut blocks: Vec<Block> = missed.into_iter().map(callout).collect();
    let told = records.first().into_iter().flat_map(|record| &record.target).map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), ToString::to_string);
        Fact::new(&name.replace('_', " "), text)
    });
    let told: Vec<Fact> = told.collect();
    if !told.is_empty() {
        blocks.push(Block::Facts(told));
    }
    Section { id: "environment".into(), title: "Environment".into(), blocks }
}

fn name(record: &SearchRecord) -> String {
    let labels: Vec<String> =
        record.labels.iter().map(|(axis, label)| format!("{} {label}", axis.replace('_', " "))).collect();
    if labels.is_empty() { record.sweep.clone() } else { labels.join(", ") }
}

/// What was found in a cell, for each promise; empty while the search goes on.
fn capacities(record: &SearchRecord) -> Vec<Capacity> {
    record.planned().and_then(Searched::answer).map(|answer| answer.capacities).unwrap_or_default()
}

/// The sentence about the limit: what an intervention proved, or what was excluded.
fn limit(record: &SearchRecord) -> Option<String> {
    let limits = record.limits();
    let proved = limits.iter().find(|(_, judgement)| judgement.limit == Limit::LimitedBy);
    match proved {
        Some((_, judgement)) => Some(judgement.sentence.clone()),
        None if limits.is_empty() => None,
        None => {
            let excluded = limits.iter().filter(|(_, j)| j.limit == Limit::NotBy).map(|(i, _)| i.name);
            Some(format!(
                "the limit was not found; tested and excluded: {}",
                excluded.collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

fn headline(records: &[SearchRecord]) -> Vec<String> {
    let said = |record: &SearchRecord| {
        let mut sentences: Vec<String> = capacities(record).iter().map(Capacity::sentence).collect();
        if sentences.is_empty() {
            sentences.push(record.failed.clone().unwrap_or_else(|| "the search has not ended".into()));
        }
        sentences.extend(limit(record));
        format!("{}: {}", name(record), sentences.join("; "))
    };
    records.iter().map(said).collect()
}

fn overview(records: &[SearchRecord]) -> Vec<Block> {
    let mut rows = Vec::new();
    for record in records {
        let found = capacities(record);
        if found.is_empty() {
            let why = record.failed.clone().unwrap_or_else(|| "the search has not ended".into());
            let missing = || Cell::missing(&why);
            rows.push(Row::new(vec![
                name(record).into(),
                "all promises".into(),
                missing(),
                missing(),
                missing(),
                Cell::verdict(Verdict::Unknown, &why),
                missing(),
            ]));
        }
        for capacity in found {
            rows.push(row(record, &capacity));
        }
    }
    let columns = vec![
        Column::words("Cell"),
        Column::words("Promise"),
        Column::numbers("holds at", "").group("Tipping point"),
        Column::numbers("fails at", "").group("Tipping point"),
        Column::numbers("Goodput there", "ops/s"),
        Column::words("Confirmed"),
        Column::words("Limited by"),
    ];
    let unit = records.first().and_then(|r| r.planned()).map_or("ops/s", |s| unit(s.goals.scale));
    let mut blocks = vec![Block::Table(Table {
        caption: format!("Tipping point of each cell, in {unit}"),
        columns,
        rows,
        how_to_read: "The tipping point lies between the load at which the promise held and the one at which it failed, each \
                      confirmed by further trials. The limit was tested by changing one resource and searching again."
            .into(),
    })];
    blocks.extend(surface(records).map(Block::Chart));
    blocks
}

fn unit(scale: Scale) -> &'static str {
    match scale {
        Scale::OpsPerSecond => "ops/s",
        Scale::Sessions => "sessions",
    }
}

fn row(record: &SearchRecord, capacity: &Capacity) -> Row {
    let load = |load: Option<f64>, why: &str| match load {
        Some(load) => Number::new(load, "").digits(4).into(),
        None => Cell::missing(why),
    };
    let verdict = match capacity.verdict {
        Found::Found => Verdict::Held,
        Found::Irregular | Found::NeverPassed => Verdict::NotHeld,
        Found::AlwaysPassed
        | Found::GeneratorLimited
        | Found::GeneratorLate
        | Found::CannotTell
        | Found::OutOfTime => Verdict::Unknown,
    };
    let missing = "no intervention was made";
    Row::new(vec![
        name(record).into(),
        capacity.slo.as_str().into(),
        load(capacity.low, "it held nowhere"),
        load(capacity.high, "it failed nowhere"),
        goodput(record, capacity),
        Cell::verdict(verdict, &capacity.confirmed()),
        limit(record).map_or_else(|| Cell::missing(missing), Cell::from),
    ])
    .note(&capacity.notes.join(" "))
}

/// Good operations per second at the lower end: the mean of the trials there, with their interval.
fn goodput(record: &SearchRecord, capacity: &Capacity) -> Cell {
    let Some((planned, low)) = record.planned().zip(capacity.low) else {
        return Cell::missing("it held nowhere");
    };
    let slo = planned.goals.slos.iter().position(|slo| slo.name == capacity.slo).unwrap_or(0);
    let there = planned.trials.iter().filter(|trial| trial.load == low && !trial.generator_late);
    let values: Vec<f64> = there.map(|trial| trial.good_per_s(slo)).collect();
    match mean_of_trials(&values) {
        Some(estimate) => number(&estimate, "").into(),
        None => Cell::missing("no valid trial ran there"),
    }
}

/// Tipping points over the first axis, a line for each value of the second; none where there is but one.
fn surface(records: &[SearchRecord]) -> Option<Chart> {
    let axis = |record: &SearchRecord, place: usize| record.labels.get(place).cloned();
    let (first, _) = axis(records.first()?, 0)?;
    let mut lines: Vec<(String, Vec<Point>)> = Vec::new();
    for record in records {
        let Some((_, x)) = axis(record, 0) else { continue };
        let line = axis(record, 1).map_or_else(|| "tipping point".to_string(), |(_, label)| label);
        for capacity in capacities(record).iter().take(1) {
            let (Some(low), Some(high)) = (capacity.low, capacity.high) else { continue };
            let y = capacity.estimate.unwrap_or((low * high).sqrt());
            let (low, high) = (Some(low.min(y)), Some(high.max(y)));
            let point = Point {
                x: Coordinate::Name(x.clone()),
                y,
                low,
                high,
                label: capacity.sentence(),
                apart: false,
                weight: None,
            };
            match lines.iter_mut().find(|(name, _)| *name == line) {
                Some((_, points)) => points.push(point),
                None => lines.push((line.clone(), vec![point])),
            }
        }
    }
    let scale = records.first()?.planned()?.goals.scale;
    (lines.iter().map(|(_, points)| points.len()).sum::<usize>() > 1).then(|| Chart {
        id: "tipping-surface".into(),
        title: format!("Tipping point over {}", first.replace('_', " ")),
        x: Axis::category(&first.replace('_', " ")),
        y: Axis::log("tipping point", unit(scale)),
        series: lines
            .into_iter()
            .map(|(name, points)| Series::ours(SeriesKind::Line, &name, &name, points))
            .collect(),
        lines: vec![],
        how_to_read: "Bars: the confirmed interval. Where a line falls steeply, a little less of the resource costs much \
                      load."
            .into(),
        cannot_say: "Between two values nothing was measured; a cliff may stand anywhere between them.".into(),
    })
}

fn of_cell(number: usize, record: &SearchRecord) -> Section {
    let mut blocks = Vec::new();
    if let Some(reason) = &record.failed {
        let text = format!("The search ended before its time: {reason}");
        blocks.push(Block::Callout(Callout { kind: CalloutKind::Failure, text }));
    }
    if let Some(loaded) = &record.loaded {
        let text = format!("Loaded under faults before the first trial: {}.", loaded.summary);
        blocks.push(Block::Callout(Callout { kind: CalloutKind::Note, text }));
    }
    for (place, search) in record.searches.iter().enumerate() {
        if !search.trials.is_empty() {
            blocks.push(Block::Chart(trials(number, place, record, search)));
            blocks.push(Block::Table(every_trial(record, search)));
        }
    }
    let limits = record.limits();
    if !limits.is_empty() {
        let row = |(intervention, judgement): &(
            &tipover_core::search::limit::Intervention,
            tipover_core::search::limit::Judgement,
        )| {
            let (verdict, word) = match judgement.limit {
                Limit::LimitedBy => (Verdict::Held, "the limit"),
                Limit::NotBy => (Verdict::NotHeld, "not the limit"),
                Limit::Undecided => (Verdict::Unknown, "undecided"),
            };
            let gain = Number::new(judgement.gain.0, "").between(judgement.gain.1, judgement.gain.2);
            Row::new(vec![
                intervention.change.into(),
                Number::exact(intervention.factor, "").into(),
                gain.into(),
                Cell::verdict(verdict, word),
                intervention.caution.into(),
            ])
        };
        blocks.push(Block::Table(Table {
            caption: "What limits, tested by changing it".into(),
            columns: vec![
                Column::words("Change"),
                Column::numbers("Factor", ""),
                Column::numbers("Capacity, after ÷ before", ""),
                Column::words("Verdict"),
                Column::words("Mind"),
            ],
            rows: limits.iter().map(row).collect(),
            how_to_read: "A resource is the limit if the capacity follows it at least half-way.".into(),
        }));
    }
    Section { id: format!("search-{number}"), title: name(record), blocks }
}

/// What was changed for a search, in words.
fn variant(search: &Searched) -> String {
    let Some(resource) = search.changed else { return "as planned".into() };
    let intervention = INTERVENTIONS.iter().find(|i| i.resource == resource);
    intervention.map_or_else(|| format!("{resource:?}"), |i| format!("with {}", i.change))
}

/// All trials of a search in the order in which they ran, with what the disk and the machine did meanwhile.
fn every_trial(record: &SearchRecord, search: &Searched) -> Table {
    let session: Vec<&[Canary]> = search.trials.iter().map(|trial| trial.canaries.as_slice()).collect();
    let canaries = judge_session(&session);
    let row = |((n, trial), canary): ((usize, &FinishedTrial), CanaryVerdict)| {
        let goal = |slo: usize| search.goals.slos.get(slo).map_or("", |goal| goal.name.as_str());
        let purpose = match trial.purpose {
            Purpose::Narrow { slo } => format!("narrow down {}", goal(slo)),
            Purpose::Below { slo } => format!("does {} hold below", goal(slo)),
            Purpose::Above { slo } => format!("does {} fail above", goal(slo)),
            Purpose::Sweep { slo, .. } => format!("sweep for {}", goal(slo)),
        };
        let mut said = Vec::new();
        said.extend(
            trial.lost_after.map(|_| "stopped early: the promise could no longer be met".to_string()),
        );
        said.extend(trial.generator_late.then(|| match trial.late_generators.join(", ") {
            of if of.is_empty() => "not valid: the generator was late".to_string(),
            of => format!("not valid: the generator was late on {of}"),
        }));
        said.extend((trial.rest == Rest::Restarted).then(|| "the target was restarted after it".to_string()));
        if let CanaryVerdict::Disturbed { why } = canary {
            said.push(format!("disturbed: {why}"));
        }
        let device = |value: Option<f64>, unit: &str| match value {
            Some(value) => Number::new(value, unit).into(),
            None => Cell::missing("the target does not live on a disk of ours"),
        };
        let mut cells: Vec<Cell> = vec![
            format!("{}", n + 1).into(),
            purpose.into(),
            Number::new(trial.load, "").digits(4).into(),
            Number::new(trial.offered_for().as_secs_f64(), "s").into(),
        ];
        cells.extend((0..search.goals.slos.len()).map(|slo| bad_share(trial, slo).into()));
        cells.push(device(trial.device.map(|device| device.requests_per_s), "/s"));
        cells.push(device(trial.device.map(|device| 100.0 * device.utilization.0), "%"));
        cells.push(said.join("; ").into());
        let emphasis = if trial.generator_late { Emphasis::Faint } else { Emphasis::Plain };
        Row::new(cells).emphasis(emphasis)
    };
    let mut columns = vec![
        Column::words("trial"),
        Column::words("why"),
        Column::numbers("load", unit(search.goals.scale)),
        Column::numbers("offered for", "s"),
    ];
    columns.extend(
        search.goals.slos.iter().map(|goal| Column::numbers(&goal.name, "%").group("bad operations")),
    );
    columns.extend([
        Column::numbers("requests", "/s").group("the disk"),
        Column::numbers("busy", "%").group("the disk"),
        Column::words("mind"),
    ]);
    Table {
        caption: format!("Every trial of {}, {}", name(record), variant(search)),
        columns,
        rows: search.trials.iter().enumerate().zip(canaries).map(row).collect(),
        how_to_read: "Intervals of bad operations are Wilson's, as if operations were independent; late ones come together, so \
                      they are too narrow. Requests and busy time are the disk's own counts over the one trial, exact and \
                      without an interval. A canary is a fixed piece of work beside the trial; one that differs tells of \
                      neighbours."
            .into(),
    }
}

fn bad_share(trial: &FinishedTrial, slo: usize) -> Number {
    let (low, high) = trial.bad_ratio_interval(slo);
    Number::new(100.0 * trial.bad_ratio(slo), "%").between(100.0 * low, 100.0 * high)
}

/// Every trial of a search: load and share of bad operations.
fn trials(number: usize, place: usize, record: &SearchRecord, search: &Searched) -> Chart {
    let answer = search.answer();
    let mut lines = Vec::new();
    for (slo, goal) in search.goals.slos.iter().enumerate() {
        lines.push(ReferenceLine {
            on: On::Y,
            value: 100.0 * goal.bad_ratio,
            label: format!("most that {} allows", goal.name),
            subject: goal.name.clone(),
        });
        let found = answer.as_ref().and_then(|answer| answer.capacities.get(slo));
        for (end, load) in found.map(|c| [("holds", c.low), ("fails", c.high)]).into_iter().flatten() {
            let label = format!("{} {end}", goal.name);
            lines.extend(load.map(|value| ReferenceLine {
                on: On::X,
                value,
                label,
                subject: goal.name.clone(),
            }));
        }
    }
    let series = search.goals.slos.iter().enumerate().map(|(slo, goal)| {
        let valid = search.trials.iter().enumerate().filter(|(_, trial)| !trial.generator_late);
        let points = valid.map(|(n, trial)| point(n, trial, slo)).collect();
        Series::ours(SeriesKind::Points, &goal.name, &goal.name, points)
    });
    Chart {
        id: format!("trials-{number}-{place}"),
        title: format!("Trials of {}, {}", name(record), variant(search)),
        x: Axis::linear("load", unit(search.goals.scale)),
        y: Axis::linear("bad operations", "%"),
        series: series.collect(),
        lines,
        how_to_read: "Each point is a valid trial: the share of operations that were late, failed, not sent or not finished, \
                      with Wilson's interval. Below the line the promise held. The table below has all trials."
            .into(),
        cannot_say: "A single trial near the tipping point proves nothing: both ends of the interval were tried again and again."
            .into(),
    }
}

fn point(number: usize, trial: &FinishedTrial, slo: usize) -> Point {
    let (low, high) = trial.bad_ratio_interval(slo);
    Point {
        x: Coordinate::Number(trial.load),
        y: 100.0 * trial.bad_ratio(slo),
        low: Some(100.0 * low),
        high: Some(100.0 * high),
        label: format!(
            "trial {}, {} s: {} of {} bad",
            number + 1,
            trial.offered_for().as_secs_f64(),
            trial.bad(slo),
            trial.scheduled
        ),
        apart: false,
        weight: None,
    }
}
