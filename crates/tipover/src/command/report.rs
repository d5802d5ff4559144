//! `tipover report` and `tipover show`: from records to a page.

use super::compare::side;
use super::plan::PlanArguments;
use super::run::command_line;
use super::{BadInput, Ending};
use crate::report::{self, Page, Terminal};
use crate::store::Store;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use tipover_core::experiment::Experiment;

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
    /// Carries it out.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let (store, experiment) = self.plan.experiment_of(results)?;
        let mut page = page(&store, &experiment, &command_line())?;
        if !self.beside.is_empty() {
            let others = self.beside.iter().map(|path| side(path)).collect::<Result<Vec<_>>>()?;
            // After the answer, before the evidence.
            let place = page.sections.len().min(1);
            page.sections.insert(place, report::beside(&experiment, &store.records(&experiment)?, &others));
        }
        if json {
            println!("{}", page.to_json());
            return Ok(Ending::Held);
        }
        let path = self.output.clone().unwrap_or_else(|| store.folder().join("report.html"));
        std::fs::write(&path, report::html(&page)).with_context(|| format!("writing {}", path.display()))?;
        println!("{}", path.display());
        Ok(Ending::Held)
    }
}

/// Show results in the terminal
///
/// The same facts as in the report.
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    plan: PlanArguments,
}

impl Show {
    /// Carries it out.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let (store, experiment) = self.plan.experiment_of(results)?;
        let page = page(&store, &experiment, &command_line())?;
        if json {
            println!("{}", page.to_json());
        } else {
            print!("{}", report::text(&page, Terminal::detect()));
        }
        Ok(Ending::Held)
    }
}

fn page(store: &Store, experiment: &Experiment, command: &str) -> Result<Page> {
    let records = store.records(experiment)?;
    if records.is_empty() {
        return Err(BadInput(format!(
            "{} has no results at scale {}: run `tipover run {} --scale {}` first",
            store.folder().display(),
            experiment.scale,
            experiment.name,
            experiment.scale
        ))
        .into());
    }
    let mut page = report::of_experiment(experiment, &records, command)?;
    let open = experiment.trials().into_iter().filter(|trial| trial.cell.spec.load.arrivals.is_some());
    let course = |trial| Ok(report::Course { backlog: store.backlog(&trial)?, trial });
    if let Some(section) = report::backlogs(&open.map(course).collect::<Result<Vec<_>>>()?) {
        // Behind the figures that it explains.
        page.sections.insert(page.sections.len().min(1), section);
    }
    Ok(page)
}

/// Writes the report into the results folder and prints its facts.
pub fn publish(store: &Store, experiment: &Experiment, command: &str, json: bool) -> Result<Ending> {
    let page = page(store, experiment, command)?;
    let path = store.folder().join("report.html");
    std::fs::write(&path, report::html(&page)).with_context(|| format!("writing {}", path.display()))?;
    if json {
        println!("{}", page.to_json());
    } else {
        print!("{}", report::text(&page, Terminal::detect()));
    }
    let path = path.canonicalize().unwrap_or(path);
    eprintln!("report: {}", path.display());
    Ok(Ending::Held)
}
