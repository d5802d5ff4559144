//! From records to tidy tables: trials, intervals, percentiles, statements, faults, findings.

use super::{Column, Table, Typed, Value};
use anyhow::{Result, anyhow};
use std::time::Duration;
use tipover_core::check::loss::{FaultFigures, Losses};
use tipover_core::check::{Broken, Carried, Finding};
use tipover_core::learn::ServerTime;
use tipover_core::measure::{Book, Books, BooksText, Budget, Estimate, Histogram, Way, percentile};
use tipover_core::op::OpKind;
use tipover_core::record::{Interval, Measured, Record, Verdict};
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

/// A row: the trial that it belongs to, and what else it is of.
struct Row<'a, T> {
    record: &'a Record,
    of: T,
}

/// How a row makes the value of a column.
type Make<T> = Box<dyn Fn(&Row<'_, T>) -> Value>;

/// Columns with their values in each row, so that headings and values cannot part.
struct Columns<T>(Vec<(Column, Make<T>)>);

impl<T> Columns<T> {
    /// What every row begins with: it names the trial, and joins the tables.
    fn new() -> Columns<T> {
        Columns(Vec::new())
            .with("experiment", "The experiment's name.", |r| r.record.experiment.clone())
            .with("sweep", "The sweep that the cell belongs to.", |r| r.record.sweep.clone())
            .with(
                "cell",
                "The cell: readable, and with the hash of all its settings. With repeat and twin it names the trial.",
                |r| r.record.cell.clone(),
            )
            .with("repeat", "Which repetition of the cell, counted from 0.", |r| u64::from(r.record.repeat))
            .with(
                "twin",
                "Whether it is the cell once more in the same block, for the noise floor: in no figure of the cell.",
                |r| r.record.twin,
            )
    }

    fn with<V: Typed>(
        mut self,
        name: &str,
        about: &str,
        value: impl Fn(&Row<'_, T>) -> V + 'static,
    ) -> Columns<T> {
        let column = Column { name: name.into(), kind: V::KIND, about: about.into() };
        self.0.push((column, Box::new(move |row| value(row).into())));
        self
    }

    /// Those of a [`Spread`]; `about` says what the mean is of.
    fn with_spread(self, about: &str, of: fn(&T) -> &Spread) -> Columns<T>
    where
        T: 'static,
    {
        let few = "nothing where there are too few samples.";
        self.with("residence_ms_mean", about, move |r| of(&r.of).mean)
            .with("residence_ms_p50", &format!("Median of the same; {few}"), move |r| of(&r.of).p50)
            .with("residence_ms_p99", &format!("99th percentile of the same; {few}"), move |r| of(&r.of).p99)
            .with("residence_ms_max", "The longest of the same.", move |r| of(&r.of).max)
    }

    fn table<'a>(
        self,
        name: &'static str,
        about: &'static str,
        rows: impl IntoIterator<Item = Row<'a, T>>,
    ) -> Table {
        let values = |row: Row<'a, T>| self.0.iter().map(|(_, value)| value(&row)).collect();
        let rows = rows.into_iter().map(values).collect();
        Table { name, about, columns: self.0.into_iter().map(|(column, _)| column).collect(), rows }
    }
}

/// Mean, median, 99th percentile and maximum, in milliseconds.
#[derive(Default)]
struct Spread {
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

impl Spread {
    fn of(all: &Histogram) -> Spread {
        if all.is_empty() {
            return Spread::default();
        }
        let at = |quantile| percentile(all, quantile).ok().map(|estimate| estimate.value / 1e6);
        Spread {
            mean: Some(all.mean() / 1e6),
            p50: at(0.5),
            p99: at(0.99),
            max: Some(all.max() as f64 / 1e6),
        }
    }
}

fn trials(sources: &[Source]) -> Result<Table> {
    let mut columns = of_trials();
    let mut axes: Vec<&str> = Vec::new();
    for (axis, _) in sources.iter().flat_map(|source| &source.record.labels) {
        if !axes.contains(&axis.as_str()) {
            axes.push(axis);
        }
    }
    for axis in axes {
        let about = format!("The cell's value on the axis {axis}, as the plan calls it.");
        let label = axis.to_string();
        columns = columns
            .with(&format!("axis_{axis}"), &about, move |r| r.record.label(&label).map(str::to_string));
    }
    fn row(record: &Record) -> Result<Row<'_, Spread>> {
        let residence = record.measured.as_ref().map(Measured::residence).transpose();
        let residence = residence.map_err(|error| anyhow!("{}: {error}", record.cell))?;
        Ok(Row { record, of: residence.as_ref().map(Spread::of).unwrap_or_default() })
    }
    let rows: Result<Vec<_>> = sources.iter().map(|source| row(&source.record)).collect();
    Ok(columns.table("trials", "A row for each trial, also for those that failed.", rows?))
}

fn of_trials() -> Columns<Spread> {
    fn measured<V>(of: impl Fn(&Measured) -> V) -> impl Fn(&Row<'_, Spread>) -> Option<V> {
        move |row| row.record.measured.as_ref().map(&of)
    }
    Columns::new()
        .with("target", "What load was sent to.", |r| word(&r.record.spec.target.kind))
        .with(
            "verdict",
            "valid, invalid (measured, and something speaks against it) or failed (not carried out).",
            |r| {
                let word = match &r.record.verdict {
                    Verdict::Valid => "valid",
                    Verdict::Invalid { .. } => "invalid",
                    Verdict::Failed { .. } => "failed",
                };
                word.to_string()
            },
        )
        .with("reason", "Why it is not valid.", |r| match &r.record.verdict {
            Verdict::Valid => None,
            Verdict::Invalid { reasons } => Some(reasons.join("; ")),
            Verdict::Failed { reason } => Some(reason.clone()),
        })
        .with("started_unix_s", "When it began: seconds since 1970.", |r| {
            r.record.provenance.started_unix_s
        })
        .with("version", "Version of tipover that made it.", |r| r.record.provenance.version.clone())
        .with("commit", "Commit of tipover that made it.", |r| r.record.provenance.commit.clone())
        .with("seed", "Seed of its operations; a text, because it has 64 bits without a sign.", |r| {
            r.record.seed.to_string()
        })
        .with("sessions", "Sessions that sent operations.", |r| u64::from(r.record.spec.load.sessions))
        .with("measured_s", "Length of the measured phase, in seconds.", measured(Measured::seconds))
        .with(
            "operations",
            "Operations done in the measured phase, each counted once.",
            measured(Measured::operations),
        )
        .with(
            "failed_operations",
            "Operations refused, or with unknown outcome, in the measured phase.",
            measured(Measured::failed),
        )
        .with(
            "offered_ops_per_s",
            "Offered load of an open loop: operations that were due, per second.",
            |r| r.record.measured.as_ref().and_then(Measured::offered_load),
        )
        .with("throughput_ops_per_s", "Operations done per second.", measured(Measured::throughput))
        .with_spread("Mean time from when an operation was due to its end, failed ones included.", |spread| spread)
        .with(
            "cpu_process_s",
            "Processor time of the generator's process, with an embedded engine in it.",
            measured(|measured| measured.cpu.process_ns as f64 / 1e9),
        )
        .with(
            "cpu_disk_s",
            "Processor time of the shaped disk's daemon.",
            measured(|measured| measured.cpu.disk_ns as f64 / 1e9),
        )
        .with(
            "neighbours_ratio",
            "Share of the machine's processors that other programs took, 0 to 1.",
            |r| r.record.neighbours(),
        )
        .with(
            "steal_ratio",
            "Share of the machine's processors that the host gave to others, 0 to 1.",
            |r| r.record.steal(),
        )
        .with(
            "read_budget_closes",
            "Whether all that the engine missed is accounted for, wherever the target runs; nothing where nobody can tell.",
            |r| {
                let closes: Vec<_> = read_budgets(r.record).iter().map(|budget| budget.closes).collect();
                match closes.contains(&Some(false)) {
                    true => Some(false),
                    false => (!closes.is_empty() && !closes.contains(&None)).then_some(true),
                }
            },
        )
        .with(
            "read_budget_residual_ratio",
            "What of those bytes is not accounted for, the largest of several; negative where more came than was missed.",
            |r| {
                let residuals = read_budgets(r.record).into_iter().filter_map(|budget| budget.residual());
                residuals.max_by(|a, b| a.abs().total_cmp(&b.abs()))
            },
        )
        .with(
            "broken_verdict",
            "What the checkers say of a trial under faults: valid, invalid, no_evidence, ...",
            |r| r.record.broken.as_ref().map(|broken| word(&broken.verdict)),
        )
}

/// Those of a trial that anybody counted.
fn read_budgets(record: &Record) -> Vec<Budget> {
    record.budgets(Way::Reads).into_values().filter(Budget::is_accounted).collect()
}

/// How a value is called in files.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

fn read(text: &BooksText, record: &Record) -> Result<Books> {
    Books::from_text(text).map_err(|error| anyhow!("{}: {error}", record.cell))
}

/// What a book counted, without its histograms.
struct Counted {
    kind: OpKind,
    done: u64,
    failed: u64,
    retries: u64,
    rows: u64,
    spread: Spread,
}

impl Counted {
    fn of((kind, book): (OpKind, &Book)) -> Counted {
        Counted {
            kind,
            done: book.done(),
            failed: book.failed(),
            retries: book.retries(),
            rows: book.rows(),
            spread: Spread::of(book.latencies().residence()),
        }
    }
}

/// A class of operations in an interval.
struct Part {
    phase: String,
    begin: Tick,
    end: Tick,
    offered: Option<(u64, u64)>,
    counted: Counted,
}

fn intervals(sources: &[Source]) -> Result<Table> {
    let mut rows = Vec::new();
    for Source { record, intervals } in sources {
        for interval in intervals {
            let books = read(&interval.books, record)?;
            let part = |operation| Part {
                phase: interval.phase.name().into(),
                begin: interval.begin,
                end: interval.end,
                offered: interval.offered.as_ref().map(|offered| (offered.due, offered.backlog)),
                counted: Counted::of(operation),
            };
            rows.extend(books.operations().map(|operation| Row { record, of: part(operation) }));
        }
    }
    let columns = Columns::new()
        .with("phase", "The phase that it belongs to: warm-up, settle, measure, ...", |r: &Row<'_, Part>| {
            r.of.phase.clone()
        })
        .with("begin_s", "Its beginning, in seconds since the trial began.", |r| seconds_of(r.of.begin))
        .with("end_s", "Its end, in seconds since the trial began.", |r| seconds_of(r.of.end))
        .with("operation", "The class of operations; a row for each that ended in the interval.", |r| {
            r.of.counted.kind.name().to_string()
        })
        .with("done", "Operations done.", |r| r.of.counted.done)
        .with("failed", "Operations refused, or with unknown outcome.", |r| r.of.counted.failed)
        .with("retries", "How often operations were tried again.", |r| r.of.counted.retries)
        .with("throughput_ops_per_s", "Operations done per second.", |r| {
            r.of.counted.done as f64 / r.of.end.since(r.of.begin).as_secs_f64()
        })
        .with_spread("Mean time from due to done, of operations done.", |part: &Part| &part.counted.spread)
        .with("due", "In an open loop: operations of all classes that became due.", |r: &Row<'_, Part>| {
            r.of.offered.map(|(due, _)| due)
        })
        .with(
            "backlog",
            "In an open loop: operations of all classes that were due and not sent at its end.",
            |r| r.of.offered.map(|(_, backlog)| backlog),
        );
    let about = "A row for each interval of a trial and class of operations.";
    Ok(columns.table("intervals", about, rows))
}

/// A statement of a script.
struct Statement {
    counted: Counted,
    seconds: f64,
    told: Option<ServerTime>,
}

fn statements(sources: &[Source]) -> Result<Table> {
    let mut rows = Vec::new();
    for Source { record, .. } in sources {
        let Some(measured) = &record.measured else { continue };
        let books = read(&measured.books, record)?;
        let statement = |(kind, book)| Statement {
            counted: Counted::of((kind, book)),
            seconds: measured.seconds(),
            told: measured.server_times.as_ref().and_then(|times| times.of(kind)).cloned(),
        };
        let parts = books.parts().filter(|(kind, _)| matches!(kind, OpKind::Statement(_)));
        rows.extend(parts.map(|part| Row { record, of: statement(part) }));
    }
    let columns = Columns::new()
        .with(
            "statement",
            "What the script calls it, else its script, line and first words.",
            |r: &Row<'_, Statement>| r.record.spec.class_name(r.of.counted.kind),
        )
        .with("class", "Its class, by which latency.hlog calls it.", |r| {
            r.of.counted.kind.name().to_string()
        })
        .with("done", "Times that it was done, each try counted.", |r| r.of.counted.done)
        .with("failed", "Times that it was refused, or its outcome is unknown.", |r| r.of.counted.failed)
        .with("rows", "Rows that came, or were changed where none come.", |r| r.of.counted.rows)
        .with("throughput_per_s", "Times done per second.", |r| r.of.counted.done as f64 / r.of.seconds)
        .with_spread(
            "Mean time of those done; since it was due for what an operation begins with, else since it was sent.",
            |statement: &Statement| &statement.counted.spread,
        )
        .with(
            "server_calls",
            "Times that the server counted it, whoever sent it; nothing where it tells none.",
            |r: &Row<'_, Statement>| r.of.told.as_ref().map(|time| time.calls),
        )
        .with("server_ms_mean", "Mean time that the server counted for it.", |r| {
            r.of.told.as_ref().map(|time| time.time_ms / time.calls as f64)
        })
    ;
    let about = "A row for each statement of scripts in the measured phase of a trial.";
    Ok(columns.table("statements", about, rows))
}

fn seconds_of(tick: Tick) -> f64 {
    tick.0 as f64 / 1e9
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// A percentile of a class.
struct Known {
    kind: OpKind,
    outcome: &'static str,
    quantile: f64,
    estimate: Estimate,
    samples: u64,
}

fn percentiles(sources: &[Source]) -> Result<Table> {
    let mut rows = Vec::new();
    for Source { record, .. } in sources {
        let Some(measured) = &record.measured else { continue };
        let books = read(&measured.books, record)?;
        for (kind, book) in books.operations() {
            let done = Some(("done", book.latencies()));
            let failed = book.failed_latencies().map(|latencies| ("failed", latencies));
            for (outcome, latencies) in done.into_iter().chain(failed) {
                let all = latencies.residence();
                let known = QUANTILES.iter().filter_map(|quantile| {
                    let estimate = percentile(all, *quantile).ok()?;
                    Some(Known { kind, outcome, quantile: *quantile, estimate, samples: all.len() })
                });
                rows.extend(known.map(|of| Row { record, of }));
            }
        }
    }
    let columns = Columns::new()
        .with("operation", "The class of operations.", |r: &Row<'_, Known>| r.of.kind.name().to_string())
        .with("outcome", "done, or failed (refused, or with unknown outcome).", |r| r.of.outcome.to_string())
        .with("percentile", "Which one: 99 is the latency that 99 % of operations did not exceed.", |r| {
            // 0.9999 × 100 is not 99.99 in binary.
            (r.of.quantile * 1e6).round() / 1e4
        })
        .with("residence_ms", "Time from due to end, in milliseconds.", |r| r.of.estimate.value / 1e6)
        .with("residence_ms_low", "Lower end of its 95 % interval, by order statistics.", |r| {
            r.of.estimate.low / 1e6
        })
        .with("residence_ms_high", "Upper end of the same.", |r| r.of.estimate.high / 1e6)
        .with("samples", "Operations that it is of.", |r| r.of.samples);
    let about = "A row for each percentile of the measured phase of which there are enough samples. Never average \
                 percentiles: those of several trials are made from merged histograms (latency.hlog).";
    Ok(columns.table("percentiles", about, rows))
}

/// A fault, and what it took of something that was checked.
struct Fault {
    number: u64,
    carried: Carried,
    checked: Option<(&'static str, FaultFigures)>,
}

fn faults(sources: &[Source]) -> Table {
    let mut rows = Vec::new();
    for Source { record, .. } in sources {
        let Some(broken) = &record.broken else { continue };
        let losses = losses(broken);
        for (number, carried) in broken.faults.iter().enumerate() {
            let of = |checked| Row {
                record,
                of: Fault { number: number as u64 + 1, carried: carried.clone(), checked },
            };
            let taken = |(name, losses): &(_, &Losses)| Some((*name, losses.faults.get(number)?.clone()));
            let before = rows.len();
            rows.extend(losses.iter().filter_map(taken).map(|checked| of(Some(checked))));
            if rows.len() == before {
                rows.push(of(None));
            }
        }
    }
    fn taken<V>(of: impl Fn(&FaultFigures) -> V) -> impl Fn(&Row<'_, Fault>) -> Option<V> {
        move |row| row.of.checked.as_ref().map(|(_, losses)| of(losses))
    }
    fn then<V>(of: impl Fn(&FaultFigures) -> Option<V>) -> impl Fn(&Row<'_, Fault>) -> Option<V> {
        move |row| row.of.checked.as_ref().and_then(|(_, losses)| of(losses))
    }
    let columns = Columns::new()
        .with("fault", "Which fault of the trial, counted from 1.", |r: &Row<'_, Fault>| r.of.number)
        .with("rule", "The rule that it comes from, as it is written.", |r| {
            r.of.carried.injection.rule.clone()
        })
        .with("at_s", "When, in seconds since the trial began.", |r| seconds_of(r.of.carried.injection.at))
        .with("uncertainty_ms", "How far that may be off, in milliseconds.", |r| {
            ms(r.of.carried.injection.uncertainty)
        })
        .with("undone_s", "When it was undone, in seconds since the trial began.", |r| {
            r.of.carried.injection.undone.map(seconds_of)
        })
        .with("had_effect", "Whether it hit anything: one that did not proves nothing.", |r| {
            r.of.carried.injection.had_effect()
        })
        .with("hits", "How often it hit something: processes killed, packets dropped, writes refused.", |r| {
            match &r.of.carried.injection.effect {
                Effect::Fired { count } => *count,
                Effect::Nothing { .. } => 0,
            }
        })
        .with("why_nothing", "Why it hit nothing, as far as is known.", |r| {
            match &r.of.carried.injection.effect {
                Effect::Fired { .. } => None,
                Effect::Nothing { reason } => Some(reason.clone()),
            }
        })
        .with(
            "checked",
            "What was checked: writes of the ledger or transfers of the bank; nothing where neither was.",
            |r| r.of.checked.as_ref().map(|(name, _)| name.to_string()),
        )
        .with(
            "at_risk",
            "Acknowledgements within the window before it: those that it could have taken.",
            taken(|losses| losses.acknowledged_in_window),
        )
        .with("lost", "Acknowledgements that it took.", taken(|losses| losses.lost))
        .with(
            "loss_window_ms",
            "From the first acknowledgement that was lost to the fault, in milliseconds.",
            then(|losses| losses.loss_window.map(ms)),
        )
        .with(
            "first_success_ms",
            "From the fault to the first success after it, in milliseconds.",
            then(|losses| losses.recovery.first_success.map(ms)),
        )
        .with(
            "objective_again_ms",
            "From the fault until the objective held again, in milliseconds.",
            then(|losses| losses.recovery.objective_again.map(ms)),
        )
        .with(
            "before_ops_per_s",
            "Acknowledged operations per second before it.",
            then(|losses| losses.recovery.before.map(|rate| rate.0)),
        )
        .with(
            "during_ops_per_s",
            "The same from the fault until the objective held again.",
            then(|losses| losses.recovery.during.map(|rate| rate.0)),
        )
        .with(
            "after_ops_per_s",
            "The same from then until the next fault or the end.",
            then(|losses| losses.recovery.after.map(|rate| rate.0)),
        );
    columns.table("faults", "A row for each fault and for what was checked of it.", rows)
}

/// What was checked for losses, by its name.
fn losses(broken: &Broken) -> Vec<(&'static str, &Losses)> {
    let writes = broken.ledger.iter().map(|balance| ("writes", &balance.losses));
    writes.chain(broken.bank.iter().map(|books| ("transfers", &books.losses))).collect()
}

/// A finding, and one kind of event that it counted.
struct Found {
    finding: Finding,
    counted: Option<(String, u64)>,
}

fn findings(sources: &[Source]) -> Table {
    let mut rows = Vec::new();
    for Source { record, .. } in sources {
        let broken = record.broken.iter().flat_map(|broken| broken.findings());
        let checked = record.checked.iter().flat_map(|checked| &checked.findings);
        for finding in broken.chain(checked) {
            let of = |counted| Row { record, of: Found { finding: finding.clone(), counted } };
            if finding.counts.is_empty() {
                rows.push(of(None));
            }
            rows.extend(finding.counts.iter().map(|(kind, count)| of(Some((kind.clone(), *count)))));
        }
    }
    let columns = Columns::new()
        .with(
            "checker",
            "Who found it: ledger, bank, register, isolation, tpcb, history, faults.",
            |r: &Row<'_, Found>| r.of.finding.checker.to_string(),
        )
        .with("verdict", "valid, no_evidence, not_tested, unknown or invalid.", |r| {
            word(&r.of.finding.verdict)
        })
        .with("summary", "One sentence.", |r| r.of.finding.summary.clone())
        .with(
            "kind",
            "A kind of event that was counted: lost, durable, G-single; nothing where none was.",
            |r| r.of.counted.as_ref().map(|(kind, _)| kind.clone()),
        )
        .with("count", "How many of that kind.", |r| r.of.counted.as_ref().map(|(_, count)| *count))
        .with("evidence", "The first piece of evidence, as a person can follow it.", |r| {
            r.of.finding.evidence.first().cloned()
        });
    let about = "A row for each finding of a checker and each kind of event that it counted.";
    columns.table("findings", about, rows)
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
        assert_eq!(
            trials.rows[0][at("axis_disk")],
            sources[0].record.label("disk").map(str::to_string).into()
        );
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
