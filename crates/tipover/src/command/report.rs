//! `tipover report` and `tipover show`: from records to a page.

use super::compare::side;
use super::plan::PlanArguments;
use super::run::command_line;
use super::{BadInput, Ending, quoted, results_flag};
use crate::report::{self, AccessPicture, Besides, Page, Terminal};
use crate::store::{Records, Store, replace_file};
use crate::study::accesses::{Accesses, SMALL};
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{Experiment, Trial};
use tipover_core::record::{Interval, Record};
use tipover_core::study::{Cells, Studied};
use tipover_disk::FileMap;

/// The name of the file with the figures and verdicts of a page.
pub const STUDY: &str = "study.json";

/// The name of the page of searches.
pub const SEARCHES: &str = "tipping-points.html";

/// Write the report of results that are there
///
/// A pure function of the records: nothing is measured, no database is touched.
#[derive(Debug, Args)]
pub struct Report {
    #[command(flatten)]
    plan: PlanArguments,

    /// Where to write it; default: report.html in the results folder
    #[arg(long, short)]
    output: Option<PathBuf>,

    /// Show what another program printed beside ours; may be given several times
    ///
    /// A file or folder that YCSB, go-ycsb, sysbench, fio, pgbench or iostat wrote, or a table with a
    /// NAME.mapping.toml beside it.
    #[arg(long, value_name = "RESULT")]
    beside: Vec<PathBuf>,
}

impl Report {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let (store, experiment) = self.plan.experiment_of(results)?;
        let Made { mut page, records, studied } = make(&store, &experiment, &command_line())?;
        if !self.beside.is_empty() {
            let others = self.beside.iter().map(|path| side(path, results)).collect::<Result<Vec<_>>>()?;
            // After the answer, before the evidence.
            let place = page.sections.len().min(1);
            page.sections.insert(place, report::beside(&experiment, &records, &others));
        }
        if json {
            println!("{}", page.to_json());
            return Ok(Ending::Held);
        }
        // Who wants the page elsewhere may have results that cannot be written to.
        if self.output.is_none() {
            keep_study(&store, studied.as_ref())?;
        }
        let path = self.output.clone().unwrap_or_else(|| store.folder().join("report.html"));
        replace_file(&path, |file| Ok(file.write_all(report::html(&page).as_bytes())?))?;
        println!("{}", path.display());
        Ok(Ending::Held)
    }
}

/// Show results in the terminal
///
/// The answer and its table; with --full the same facts as in the report.
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    plan: PlanArguments,

    /// Print every table of the report, not only the answer
    #[arg(long)]
    full: bool,
}

impl Show {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let (store, experiment) = self.plan.experiment_of(results)?;
        let made = make(&store, &experiment, &command_line())?;
        print(&made.page, self.full, json);
        Ok(Ending::Held)
    }
}

/// A page, and what it was made of.
pub struct Made {
    /// The page.
    pub page: Page,
    /// The records that could be read.
    pub records: Vec<Record>,
    /// The figures of the text that the plan repeats, if it repeats one.
    studied: Option<Studied>,
}

/// The page of all results of `experiment`. What is damaged is left out, and said first.
///
/// # Errors
/// There are no results.
pub fn make(store: &Store, experiment: &Experiment, command: &str) -> Result<Made> {
    let Records { whole: records, mut damaged } = store.records(experiment)?;
    let searches = store.every_search(experiment, |sentence| damaged.push(sentence.to_string()))?;
    if records.is_empty() && !searches.is_empty() {
        let mut page = report::of_searches(experiment, &searches, command);
        page.headline.splice(0..0, damaged);
        return Ok(Made { page, studied: report::studied(experiment, &records)?, records });
    }
    if records.is_empty() && damaged.is_empty() {
        return Err(BadInput(format!(
            "{} has no results at scale {} with these settings: run `tipover {}run {} --scale {}` first; what was \
             measured with --set is shown with the same --set",
            store.folder().display(),
            experiment.scale,
            results_flag(store.folder().parent().unwrap_or(store.folder())),
            quoted(&experiment.name),
            quoted(&experiment.scale)
        ))
        .into());
    }
    let besides = Besides {
        pictures: pictures(store, experiment, &mut damaged),
        series: cold_series(store, experiment, &mut damaged)?,
        courses: report::Courses::of(&Cells::of(experiment, &records), |record| {
            unless_damaged(series_of(store, experiment, record)?, &mut damaged)
        }),
    };
    let studied = report::studied(experiment, &records)?;
    let mut page = report::of_experiment(experiment, &records, studied.as_ref(), besides, command)?;
    let open = experiment.trials().into_iter().filter(|trial| trial.cell.spec.load.arrivals.is_some());
    let courses = open.filter_map(|trial| {
        let backlog = unless_damaged(store.backlog(&trial), &mut damaged)?;
        Some(report::Course { backlog, trial })
    });
    if let Some(section) = report::backlogs(&courses.collect::<Vec<_>>()) {
        // Behind the figures that it explains.
        page.sections.insert(page.sections.len().min(1), section);
    }
    if !searches.is_empty() {
        let mut found = report::of_searches(experiment, &searches, command);
        page.headline.append(&mut found.headline);
        // The page says itself where it was made.
        page.sections.extend(found.sections.into_iter().filter(|section| section.id != "environment"));
    }
    page.headline.splice(0..0, damaged);
    Ok(Made { page, records, studied })
}

/// What was read; what could not be read is noted, and the page goes without it.
pub fn unless_damaged<T>(read: Result<T>, damaged: &mut Vec<String>) -> Option<T> {
    let note = |error: anyhow::Error| damaged.push(format!("{error:#}: the page goes without it."));
    read.map_err(note).ok()
}

/// The intervals of the trial that `record` is of.
fn series_of(store: &Store, experiment: &Experiment, record: &Record) -> Option<Result<Vec<Interval>>> {
    let mut cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
    let cell = cells.find(|cell| cell.id() == record.cell)?;
    Some(store.series(&Trial { cell, repeat: record.repeat, twin: record.twin }))
}

/// The intervals of the first trial of each cell that was measured from cold.
fn cold_series(
    store: &Store,
    experiment: &Experiment,
    damaged: &mut Vec<String>,
) -> Result<BTreeMap<String, Vec<Interval>>> {
    let cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells).filter(|c| c.spec.trial.cold);
    let mut series = BTreeMap::new();
    for cell in cells {
        let trial = Trial { cell, repeat: 0, twin: false };
        if store.record(&trial)?.is_some_and(|record| record.is_valid())
            && let Some(intervals) = unless_damaged(store.series(&trial), damaged)
        {
            series.insert(cell.id(), intervals);
        }
    }
    Ok(series)
}

/// More would make a page of tens of megabytes.
const MOST_PICTURES: usize = 8;

/// The moving pictures of cells that were traced, of each cell its first trial with a trace.
fn pictures(store: &Store, experiment: &Experiment, damaged: &mut Vec<String>) -> Vec<AccessPicture> {
    let mut pictures = Vec::new();
    for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells).filter(|c| c.spec.disk.trace) {
        let mut traces =
            (0..experiment.repeats).filter_map(|repeat| store.trace(&Trial { cell, repeat, twin: false }));
        let Some(path) = traces.next().filter(|_| pictures.len() < MOST_PICTURES) else { continue };
        let Some(accesses) = unless_damaged(accesses_of(&path), damaged) else { continue };
        let labels: Vec<&str> = cell.labels.iter().map(|(_, label)| label.as_str()).collect();
        let id = format!("picture-{}", pictures.len() + 1);
        let title = format!("{}: {}", cell.sweep, labels.join(", "));
        pictures.push(AccessPicture { id, title, accesses });
    }
    pictures
}

fn accesses_of(trace: &Path) -> Result<Accesses> {
    let map = FileMap::load_beside(trace).context("reading which file lies where")?;
    Accesses::of_trace(trace, map.as_ref(), SMALL).with_context(|| format!("reading {}", trace.display()))
}

/// Writes the figures of the page, and the verdicts on the claims of its text, as `study.json` into the
/// results folder. A plan that repeats no text has none.
fn keep_study(store: &Store, studied: Option<&Studied>) -> Result<()> {
    let Some(studied) = studied else { return Ok(()) };
    let text = serde_json::to_string_pretty(studied)?;
    replace_file(&store.folder().join(STUDY), |file| Ok(file.write_all(text.as_bytes())?))
}

/// Prints a page: as JSON, in full, or in short.
pub fn print(page: &Page, full: bool, json: bool) {
    match (json, full) {
        (true, _) => println!("{}", page.to_json()),
        (false, true) => print!("{}", report::text(page, Terminal::detect())),
        (false, false) => print!("{}", report::summary(page, Terminal::detect())),
    }
}

/// Writes a page as the report of the results folder, and says where that is.
pub fn keep(store: &Store, page: &Page) -> Result<PathBuf> {
    let path = store.folder().join("report.html");
    replace_file(&path, |file| Ok(file.write_all(report::html(page).as_bytes())?))?;
    Ok(path.canonicalize().unwrap_or(path))
}

/// Writes the report into the results folder and prints its answer, or all of it; gives the records.
pub fn publish(
    store: &Store,
    experiment: &Experiment,
    command: &str,
    full: bool,
    json: bool,
) -> Result<Vec<Record>> {
    let Made { page, records, studied } = make(store, experiment, command)?;
    let path = keep(store, &page)?;
    keep_study(store, studied.as_ref())?;
    print(&page, full, json);
    eprintln!("report: {}", path.display());
    Ok(records)
}
