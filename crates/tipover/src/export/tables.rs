//! From records to tidy tables: trials, intervals, percentiles, statements, faults, findings.

use super::{Column, Kind, Table, Value};
use anyhow::{Result, anyhow};
use std::time::Duration;
use tipover_core::check::loss::Losses;
use tipover_core::check::{Broken, Finding};
use tipover_core::measure::{Books, Histogram, percentile};
use tipover_core::op::OpKind;
use tipover_core::record::{Interval, Record, Verdict};
use tipover_core::schedule::Effect;
use tipover_core::units::Tick;

/// A trial as it is kept.
pub struct Source {
    pub record: Record,
    pub intervals: Vec<Interval>,
}

/// Percentiles that are exported; those of which a trial has too few samples are left out.
const QUANTILES: [f64; 8] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// All tables, in the order in which one would look at them.
///
/// # Errors
/// A record whose histograms cannot be read.
pub fn tables(sources: &[Source]) -> Result<Vec<Table>> {
    Ok(vec![
        trials(sources)?,
        intervals(sources)?,
        percentiles(sources)?,
        statements(sources)?,
        faults(sources),
        findings(sources),
    ])
}

/// A table while it is filled: columns that every row has, and how a row makes its values.
struct Filled {
    table: Table,
}

impl Filled {
    fn new(name: &'static str, about: &'static str, columns: Vec<(&str, Kind, &str)>) -> Filled {
        let column =
            |(name, kind, about): (&str, Kind, &str)| Column { name: name.into(), kind, about: about.into() };
        let columns = KEY.into_iter().chain(columns).map(column).collect();
        Filled { table: Table { name, about, columns, rows: vec![] } }
    }

    fn push(&mut self, record: &Record, values: Vec<Value>) {
        self.table.rows.push(key(record).into_iter().chain(values).collect());
    }
}

/// What every row begins with: it names the trial, and joins the tables.
const KEY: [(&str, Kind, &str); 5] = [
    ("experiment", Kind::Text, "The experiment's name."),
    ("sweep", Kind::Text, "The sweep that the cell belongs to."),
    (
        "cell",
        Kind::Text,
        "The cell: readable, and with the hash of all its settings. With repeat and twin it names the trial.",
    ),
    ("repeat", Kind::Count, "Which repetition of the cell, counted from 0."),
    (
        "twin",
        Kind::Flag,
        "Whether it is the cell once more in the same block, for the noise floor: in no figure of the cell.",
    ),
];

fn key(record: &Record) -> [Value; 5] {
    [
        record.experiment.as_str().into(),
        record.sweep.as_str().into(),
        record.cell.as_str().into(),
        u64::from(record.repeat).into(),
        record.twin.into(),
    ]
}

fn trials(sources: &[Source]) -> Result<Table> {
    use Kind::{Count, Number, Text};
    let columns = vec![
        ("target", Text, "What load was sent to."),
        (
            "verdict",
            Text,
            "valid, invalid (measured, and something speaks against it) or failed (not carried out).",
        ),
        ("reason", Text, "Why it is not valid."),
        ("started_unix_s", Count, "When it began: seconds since 1970."),
        ("version", Text, "Version of tipover that made it."),
        ("commit", Text, "Commit of tipover that made it."),
        ("seed", Text, "Seed of its operations; a text, because it has 64 bits without a sign."),
        ("sessions", Count, "Sessions that sent operations."),
        ("measured_s", Number, "Length of the measured phase, in seconds."),
        ("operations", Count, "Operations done in the measured phase, each counted once."),
        ("failed_operations", Count, "Operations refused, or with unknown outcome, in the measured phase."),
        ("offered_ops_per_s", Number, "Offered load of an open loop: operations that were due, per second."),
        ("throughput_ops_per_s", Number, "Operations done per second."),
        (
            "residence_ms_mean",
            Number,
            "Mean time from when an operation was due to its end, failed ones included.",
        ),
        ("residence_ms_p50", Number, "Median of the same; nothing where there are too few samples."),
        ("residence_ms_p99", Number, "99th percentile of the same; nothing where there are too few samples."),
        ("residence_ms_max", Number, "The longest of the same."),
        (
            "cpu_process_s",
            Number,
            "Processor time of the generator's process, with an embedded engine in it.",
        ),
        ("cpu_disk_s", Number, "Processor time of the shaped disk's daemon."),
        ("neighbours_ratio", Number, "Share of the machine's processors that other programs took, 0 to 1."),
        ("steal_ratio", Number, "Share of the machine's processors that the host gave to others, 0 to 1."),
        (
            "broken_verdict",
            Text,
            "What the checkers say of a trial under faults: valid, invalid, no_evidence, ...",
        ),
    ];
    let mut filled = Filled::new("trials", "A row for each trial, also for those that failed.", columns);
    let mut axes: Vec<String> = Vec::new();
    for (axis, _) in sources.iter().flat_map(|source| &source.record.labels) {
        if !axes.contains(axis) {
            axes.push(axis.clone());
        }
    }
    filled.table.columns.extend(axes.iter().map(|axis| Column {
        name: format!("axis_{axis}"),
        kind: Kind::Text,
        about: format!("The cell's value on the axis {axis}, as the plan calls it."),
    }));
    for Source { record, .. } in sources {
        let (verdict, reason) = match &record.verdict {
            Verdict::Valid => ("valid", Value::Nothing),
            Verdict::Invalid { reasons } => ("invalid", reasons.join("; ").into()),
            Verdict::Failed { reason } => ("failed", reason.as_str().into()),
        };
        let mut values: Vec<Value> = vec![
            word(&record.spec.target.kind),
            verdict.into(),
            reason,
            record.provenance.started_unix_s.into(),
            record.provenance.version.as_str().into(),
            record.provenance.commit.as_str().into(),
            record.seed.to_string().into(),
            u64::from(record.spec.load.sessions).into(),
        ];
        let measured = record.measured.as_ref();
        let residence = measured.map(|measured| measured.residence()).transpose();
        let residence = residence.map_err(|error| anyhow!("{}: {error}", record.cell))?;
        let residence = residence.filter(|residence| !residence.is_empty());
        let of =
            |quantile| residence.as_ref().and_then(|all| Some(percentile(all, quantile).ok()?.value / 1e6));
        values.extend([
            measured.map(|measured| measured.seconds()).into(),
            measured.map(|measured| measured.operations()).into(),
            measured.map(|measured| measured.failed()).into(),
            measured.and_then(|measured| measured.offered_load()).into(),
            measured.map(|measured| measured.throughput()).into(),
            residence.as_ref().map(|all| all.mean() / 1e6).into(),
            of(0.5).into(),
            of(0.99).into(),
            residence.as_ref().map(|all| all.max() as f64 / 1e6).into(),
            measured.map(|measured| measured.cpu.process_ns as f64 / 1e9).into(),
            measured.map(|measured| measured.cpu.disk_ns as f64 / 1e9).into(),
            record.neighbours().into(),
            record.steal().into(),
            record.broken.as_ref().map_or(Value::Nothing, |broken| word(&broken.verdict)),
        ]);
        values.extend(axes.iter().map(|axis| record.label(axis).into()));
        filled.push(record, values);
    }
    Ok(filled.table)
}

/// How a value is called in files.
fn word(value: &impl serde::Serialize) -> Value {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.into(),
        Ok(other) => other.to_string().into(),
        Err(_) => Value::Nothing,
    }
}

/// Of each class of whole operations: its name and its book, as `books` has them.
fn classes(books: &Books) -> impl Iterator<Item = (Value, &tipover_core::measure::Book)> {
    books.operations().map(|(kind, book)| (kind.name().into(), book))
}

fn read(text: &tipover_core::measure::BooksText, record: &Record) -> Result<Books> {
    Books::from_text(text).map_err(|error| anyhow!("{}: {error}", record.cell))
}

fn intervals(sources: &[Source]) -> Result<Table> {
    use Kind::{Count, Number, Text};
    let columns = vec![
        ("phase", Text, "The phase that it belongs to: warm-up, settle, measure, ..."),
        ("begin_s", Number, "Its beginning, in seconds since the trial began."),
        ("end_s", Number, "Its end, in seconds since the trial began."),
        ("operation", Text, "The class of operations; a row for each that ended in the interval."),
        ("done", Count, "Operations done."),
        ("failed", Count, "Operations refused, or with unknown outcome."),
        ("retries", Count, "How often operations were tried again."),
        ("throughput_ops_per_s", Number, "Operations done per second."),
        ("residence_ms_mean", Number, "Mean time from due to done, of operations done."),
        ("residence_ms_p50", Number, "Median of the same; nothing where there are too few samples."),
        ("residence_ms_p99", Number, "99th percentile of the same; nothing where there are too few samples."),
        ("residence_ms_max", Number, "The longest of the same."),
        ("due", Count, "In an open loop: operations of all classes that became due."),
        (
            "backlog",
            Count,
            "In an open loop: operations of all classes that were due and not sent at its end.",
        ),
    ];
    let about = "A row for each interval of a trial and class of operations.";
    let mut filled = Filled::new("intervals", about, columns);
    for Source { record, intervals } in sources {
        for interval in intervals {
            let books = read(&interval.books, record)?;
            let seconds = interval.end.since(interval.begin).as_secs_f64();
            for (operation, book) in classes(&books) {
                let residence = book.latencies().residence();
                let mut values = vec![
                    interval.phase.name().into(),
                    seconds_of(interval.begin).into(),
                    seconds_of(interval.end).into(),
                    operation,
                    book.done().into(),
                    book.failed().into(),
                    book.retries().into(),
                    (book.done() as f64 / seconds).into(),
                ];
                values.extend(spread(residence));
                values.push(interval.offered.as_ref().map(|offered| offered.due).into());
                values.push(interval.offered.as_ref().map(|offered| offered.backlog).into());
                filled.push(record, values);
            }
        }
    }
    Ok(filled.table)
}

fn statements(sources: &[Source]) -> Result<Table> {
    use Kind::{Count, Number, Text};
    let columns = vec![
        ("statement", Text, "What the script calls it, else its script, line and first words."),
        ("class", Text, "Its class, by which latency.hlog calls it."),
        ("done", Count, "Times that it was done, each try counted."),
        ("failed", Count, "Times that it was refused, or its outcome is unknown."),
        ("rows", Count, "Rows that came, or were changed where none come."),
        ("throughput_per_s", Number, "Times done per second."),
        (
            "residence_ms_mean",
            Number,
            "Mean time of those done; since it was due for what an operation begins with, else since it was sent.",
        ),
        ("residence_ms_p50", Number, "Median of the same; nothing where there are too few samples."),
        ("residence_ms_p99", Number, "99th percentile of the same; nothing where there are too few samples."),
        ("residence_ms_max", Number, "The longest of the same."),
        (
            "server_calls",
            Count,
            "Times that the server counted it, whoever sent it; nothing where it tells none.",
        ),
        ("server_ms_mean", Number, "Mean time that the server counted for it."),
    ];
    let about = "A row for each statement of scripts in the measured phase of a trial.";
    let mut filled = Filled::new("statements", about, columns);
    for Source { record, .. } in sources {
        let Some(measured) = &record.measured else { continue };
        let books = read(&measured.books, record)?;
        for (kind, book) in books.parts().filter(|(kind, _)| matches!(kind, OpKind::Statement(_))) {
            let mut values = vec![
                record.spec.class_name(kind).into(),
                kind.name().into(),
                book.done().into(),
                book.failed().into(),
                book.rows().into(),
                (book.done() as f64 / measured.seconds()).into(),
            ];
            values.extend(spread(book.latencies().residence()));
            let told = measured.server_times.as_ref().and_then(|times| times.of(kind));
            values.push(told.map(|time| time.calls).into());
            values.push(told.map(|time| time.time_ms / time.calls as f64).into());
            filled.push(record, values);
        }
    }
    Ok(filled.table)
}

/// Mean, median, 99th percentile and maximum, in milliseconds.
fn spread(all: &Histogram) -> [Value; 4] {
    if all.is_empty() {
        return [const { Value::Nothing }; 4];
    }
    let of = |quantile| percentile(all, quantile).ok().map(|estimate| estimate.value / 1e6);
    [(all.mean() / 1e6).into(), of(0.5).into(), of(0.99).into(), (all.max() as f64 / 1e6).into()]
}

fn seconds_of(tick: Tick) -> f64 {
    tick.0 as f64 / 1e9
}

fn percentiles(sources: &[Source]) -> Result<Table> {
    use Kind::{Count, Number, Text};
    let columns = vec![
        ("operation", Text, "The class of operations."),
        ("outcome", Text, "done, or failed (refused, or with unknown outcome)."),
        ("percentile", Number, "Which one: 99 is the latency that 99 % of operations did not exceed."),
        ("residence_ms", Number, "Time from due to end, in milliseconds."),
        ("residence_ms_low", Number, "Lower end of its 95 % interval, by order statistics."),
        ("residence_ms_high", Number, "Upper end of the same."),
        ("samples", Count, "Operations that it is of."),
    ];
    let about = "A row for each percentile of the measured phase of which there are enough samples. Never average \
                 percentiles: those of several trials are made from merged histograms (latency.hlog).";
    let mut filled = Filled::new("percentiles", about, columns);
    for Source { record, .. } in sources {
        let Some(measured) = &record.measured else { continue };
        let books = read(&measured.books, record)?;
        for (operation, book) in classes(&books) {
            let done = Some(("done", book.latencies()));
            let failed = book.failed_latencies().map(|latencies| ("failed", latencies));
            for (outcome, latencies) in done.into_iter().chain(failed) {
                let all = latencies.residence();
                let known = QUANTILES.iter().filter_map(|q| Some((q, percentile(all, *q).ok()?)));
                for (quantile, estimate) in known {
                    let ms = |ns: f64| Value::from(ns / 1e6);
                    // 0.9999 × 100 is not 99.99 in binary.
                    let percent = (quantile * 1e6).round() / 1e4;
                    let values = vec![
                        operation.clone(),
                        outcome.into(),
                        percent.into(),
                        ms(estimate.value),
                        ms(estimate.low),
                        ms(estimate.high),
                        all.len().into(),
                    ];
                    filled.push(record, values);
                }
            }
        }
    }
    Ok(filled.table)
}

fn faults(sources: &[Source]) -> Table {
    use Kind::{Count, Flag, Number, Text};
    let columns = vec![
        ("fault", Count, "Which fault of the trial, counted from 1."),
        ("rule", Text, "The rule that it comes from, as it is written."),
        ("at_s", Number, "When, in seconds since the trial began."),
        ("uncertainty_ms", Number, "How far that may be off, in milliseconds."),
        ("undone_s", Number, "When it was undone, in seconds since the trial began."),
        ("had_effect", Flag, "Whether it hit anything: one that did not proves nothing."),
        ("hits", Count, "How often it hit something: processes killed, packets dropped, writes refused."),
        ("why_nothing", Text, "Why it hit nothing, as far as is known."),
        (
            "checked",
            Text,
            "What was checked: writes of the ledger or transfers of the bank; nothing where neither was.",
        ),
        ("at_risk", Count, "Acknowledgements within the window before it: those that it could have taken."),
        ("lost", Count, "Acknowledgements that it took."),
        (
            "loss_window_ms",
            Number,
            "From the first acknowledgement that was lost to the fault, in milliseconds.",
        ),
        ("first_success_ms", Number, "From the fault to the first success after it, in milliseconds."),
        ("objective_again_ms", Number, "From the fault until the objective held again, in milliseconds."),
        ("before_ops_per_s", Number, "Acknowledged operations per second before it."),
        ("during_ops_per_s", Number, "The same from the fault until the objective held again."),
        ("after_ops_per_s", Number, "The same from then until the next fault or the end."),
    ];
    let about = "A row for each fault and for what was checked of it.";
    let mut filled = Filled::new("faults", about, columns);
    for Source { record, .. } in sources {
        let Some(broken) = &record.broken else { continue };
        let losses = losses(broken);
        for (number, carried) in broken.faults.iter().enumerate() {
            let injection = &carried.injection;
            let (hits, why) = match &injection.effect {
                Effect::Fired { count } => (*count, None),
                Effect::Nothing { reason } => (0, Some(reason.as_str())),
            };
            let first: Vec<Value> = vec![
                (number as u64 + 1).into(),
                injection.rule.as_str().into(),
                seconds_of(injection.at).into(),
                ms(injection.uncertainty).into(),
                injection.undone.map(seconds_of).into(),
                injection.had_effect().into(),
                hits.into(),
                why.into(),
            ];
            let mut figures =
                losses.iter().filter_map(|(name, losses)| Some((name, losses.faults.get(number)?)));
            let mut any = false;
            for (name, of) in figures.by_ref() {
                any = true;
                let recovery = &of.recovery;
                let rest: Vec<Value> = vec![
                    (*name).into(),
                    of.acknowledged_in_window.into(),
                    of.lost.into(),
                    of.loss_window.map(ms).into(),
                    recovery.first_success.map(ms).into(),
                    recovery.objective_again.map(ms).into(),
                    recovery.before.map(|rate| rate.0).into(),
                    recovery.during.map(|rate| rate.0).into(),
                    recovery.after.map(|rate| rate.0).into(),
                ];
                filled.push(record, first.iter().cloned().chain(rest).collect());
            }
            if !any {
                let nothing = std::iter::repeat_n(Value::Nothing, 9);
                filled.push(record, first.into_iter().chain(nothing).collect());
            }
        }
    }
    filled.table
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// What was checked for losses, by its name.
fn losses(broken: &Broken) -> Vec<(&'static str, &Losses)> {
    let writes = broken.ledger.iter().map(|balance| ("writes", &balance.losses));
    writes.chain(broken.bank.iter().map(|books| ("transfers", &books.losses))).collect()
}

fn findings(sources: &[Source]) -> Table {
    use Kind::{Count, Text};
    let columns = vec![
        ("checker", Text, "Who found it: ledger, bank, register, isolation, tpcb, history, faults."),
        ("verdict", Text, "valid, no_evidence, not_tested, unknown or invalid."),
        ("summary", Text, "One sentence."),
        ("kind", Text, "A kind of event that was counted: lost, durable, G-single; nothing where none was."),
        ("count", Count, "How many of that kind."),
        ("evidence", Text, "The first piece of evidence, as a person can follow it."),
    ];
    let about = "A row for each finding of a checker and each kind of event that it counted.";
    let mut filled = Filled::new("findings", about, columns);
    for Source { record, .. } in sources {
        let broken = record.broken.iter().flat_map(|broken| broken.findings());
        let checked = record.checked.iter().flat_map(|checked| &checked.findings);
        for finding in broken.chain(checked) {
            let row = |kind: Value, count: Value| row_of(finding, kind, count);
            if finding.counts.is_empty() {
                filled.push(record, row(Value::Nothing, Value::Nothing));
            }
            for (kind, count) in &finding.counts {
                filled.push(record, row(kind.as_str().into(), (*count).into()));
            }
        }
    }
    filled.table
}

fn row_of(finding: &Finding, kind: Value, count: Value) -> Vec<Value> {
    vec![
        finding.checker.as_str().into(),
        word(&finding.verdict),
        finding.summary.as_str().into(),
        kind,
        count,
        finding.evidence.first().map(String::as_str).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{csv, parquet};
    use tipover_core::experiment::Experiment;
    use tipover_core::trial::simulate::{self, Machine};

    #[test]
    fn a_whole_study_becomes_tables_that_agree_with_its_records() {
        let plan = include_str!("../../../../experiments/working-set.toml");
        let experiment = Experiment::parse(plan, "tiny", &[]).unwrap();
        let machine = Machine::default();
        let sources: Vec<Source> = experiment
            .trials()
            .iter()
            .take(6)
            .map(|trial| simulate::trial(&experiment.name, trial, experiment.seed, &machine))
            .map(|(record, intervals)| Source { record, intervals })
            .collect();
        let all = tables(&sources).unwrap();
        let of = |name: &str| all.iter().find(|table| table.name == name).unwrap();
        let trials = of("trials");
        assert_eq!(trials.rows.len(), 6);
        let at = |name: &str| trials.columns.iter().position(|column| column.name == name).unwrap();
        let measured = sources[0].record.measured.as_ref().unwrap();
        assert_eq!(trials.rows[0][at("operations")], measured.operations().into());
        assert_eq!(trials.rows[0][at("throughput_ops_per_s")], measured.throughput().into());
        assert_eq!(trials.rows[0][at("axis_disk")], sources[0].record.label("disk").into());
        let done: u64 = of("percentiles").rows.iter().map(|_| 1).sum();
        assert!(done >= 6, "each trial has a median at least");
        for table in &all {
            assert!(csv(table).lines().count() > table.rows.len(), "{}", table.name);
            let mut file = Vec::new();
            parquet(table, &mut file).unwrap();
            assert_eq!((&file[..4], &file[file.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]), "{}", table.name);
            for column in &table.columns {
                assert!(
                    column.about.ends_with(['.', '…']),
                    "{}.{}: {}",
                    table.name,
                    column.name,
                    column.about
                );
            }
        }
    }
}
