//! `tipover run`: an experiment, or what is missing of it.

use super::by_fleet::{Brought, ByFleet, Wanted};
use super::plan::PlanArguments;
use super::{BadInput, Ending, follow, quoted, report};
use crate::foresight::{self, Estimate};
use crate::live::LiveArgument;
use crate::runner::{self, Order, Tally};
use crate::store::{Fate, Store};
use crate::trial::Interrupt;
use anyhow::Result;
use clap::Args;
use std::fs::File;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{CellNames, Experiment, redact};

/// Run an experiment, or what is missing of it
///
/// Carries out the trials that are not in the results folder yet and writes the report. Running again
/// resumes: whatever was finished is kept, also after a kill. A trial that failed is tried again.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    plan: PlanArguments,

    /// Only print the trials that would be carried out, and an estimate of time, memory and disk
    ///
    /// What a run would refuse is refused here too, in the same words: exit code 2.
    #[arg(long)]
    list: bool,

    /// Print every table of the report, not only the answer
    #[arg(long)]
    full: bool,

    /// Measure again what was measured but cannot be believed
    #[arg(long)]
    retry: bool,

    /// Go on in a results folder of another version of the plan, keeping what still fits
    #[arg(long)]
    replace_plan: bool,

    #[command(flatten)]
    live: LiveArgument,

    #[command(flatten)]
    fleet: ByFleet,
}

impl Run {
    /// Runs what is missing, or lists it.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let (text, experiment) = self.plan.experiment()?;
        if self.fleet.is_asked() && !self.list {
            return self.by_fleet(&experiment, results, &text, json, interrupt);
        }
        let (carried, left_out) = foresight::leave_out(&experiment);
        left_out.iter().for_each(|sentence| eprintln!("{sentence}"));
        if self.list {
            return list(&carried, results, self.retry, json);
        }
        let prepared = prepare(&carried, results, &text, self.replace_plan)?;
        let manner = Manner { live: self.live, retry: self.retry, shows_growing: true };
        let tally = carry_out(&prepared, &carried, manner, interrupt)?;
        report::publish(&prepared.store, &experiment, &command_line(), self.full, json)?;
        if tally.measured > 0 {
            eprintln!(
                "{} trials measured, {} were there already, {} not valid, {} failed",
                tally.measured, tally.present, tally.invalid, tally.failed
            );
        } else {
            eprintln!("all {} trials were there already", tally.present);
        }
        Ok(if tally.failed + tally.invalid > 0 { Ending::NotHeld } else { Ending::Held })
    }
}

impl Run {
    /// Asks a fleet for what is missing, takes in what has come, and writes the report.
    fn by_fleet(
        &self,
        experiment: &Experiment,
        results: &Path,
        text: &str,
        json: bool,
        interrupt: &Interrupt,
    ) -> Result<Ending> {
        let (retry, replace_plan) = (self.retry, self.replace_plan);
        let wanted = Wanted { experiment, text, replace_plan, search: None, retry };
        let Brought { prepared, came, here } = self.fleet.fetch(wanted, results, interrupt)?;
        if here > 0 {
            report::publish(&prepared.store, experiment, &command_line(), self.full, json)?;
        }
        Ok(if came.is_bad() { Ending::NotHeld } else { Ending::Held })
    }
}

/// A results folder that is ours alone, on a machine that can do what is asked.
pub struct Prepared {
    /// Where records are kept.
    pub store: Store,
    /// Where disks and their images are.
    pub work: PathBuf,
    /// Keeps other runs out.
    pub _reserved: File,
}

/// Checks the machine, removes what earlier runs left, and opens the results folder.
pub fn prepare(experiment: &Experiment, results: &Path, text: &str, replace_plan: bool) -> Result<Prepared> {
    foresight::check_plan(experiment, results).map_err(BadInput)?;
    if let Some(reason) = foresight::refusal(experiment, results) {
        return Err(BadInput(reason).into());
    }
    let work = results.join(".work");
    runner::clear_away(&work)?;
    let store =
        Store::open(results, experiment, text, replace_plan).map_err(|e| BadInput(format!("{e:#}")))?;
    let reserved = store.reserve().map_err(|e| BadInput(format!("{e:#}")))?;
    Ok(Prepared { store, work, _reserved: reserved })
}

/// How trials are carried out.
pub struct Manner {
    /// Whether somebody follows in a browser.
    pub live: LiveArgument,
    /// Whether those that cannot be believed are measured again.
    pub retry: bool,
    /// Whether the report is made between them too, and not only when all are there.
    pub shows_growing: bool,
}

/// Carries out the trials of `experiment` that are missing.
pub fn carry_out(
    prepared: &Prepared,
    experiment: &Experiment,
    manner: Manner,
    interrupt: &Interrupt,
) -> Result<Tally> {
    let Manner { live, retry, shows_growing } = manner;
    let command = command_line();
    let live = follow(live, &experiment.name, &command)?;
    let Prepared { store, work, .. } = prepared;
    let make = || {
        let page = report::make(store, experiment, &command)?.page;
        let path = report::keep(store, &page)?;
        Ok(page.charts().next().map(|_| path))
    };
    let order = Order {
        experiment,
        store,
        work,
        command: &command,
        interrupt,
        live: live.as_ref(),
        fleet: None,
        page: shows_growing.then_some(&make),
    };
    let tally = runner::run(order, retry);
    // Empty by now, also after an interrupt; whatever is still in there belongs to another run.
    let _ = std::fs::remove_dir(work);
    tally
}

/// The command line as one would type it, without passwords.
pub fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| quoted(&word));
    let words = std::iter::once("tipover".to_string()).chain(words);
    redact(&words.collect::<Vec<_>>().join(" "))
}

/// Shows the trials of a run and what those that are missing will take.
///
/// # Errors
/// Whatever the run would refuse, in the same words.
pub fn list(experiment: &Experiment, results: &Path, retry: bool, json: bool) -> Result<Ending> {
    foresight::check_plan(experiment, results).map_err(BadInput)?;
    let store = Store::existing(results, &experiment.name).ok();
    let trials = experiment.trials();
    let fates = match &store {
        Some(store) => store.fates(&trials)?,
        None => vec![Fate::Missing; trials.len()],
    };
    let (mut names, mut rows, mut missing) = (CellNames::default(), Vec::new(), Vec::new());
    for (trial, fate) in trials.into_iter().zip(&fates) {
        rows.push((names.of(trial.cell).to_string(), Some(trial.repeat), fate.word()));
        missing.extend(fate.is_missing(retry).then_some(trial));
    }
    let estimate = Estimate::of_trials(experiment, missing);
    show(rows, "trials", &estimate, foresight::refusal(experiment, results), json)
}

/// Prints what would be carried out, an estimate, and why it would be refused, if it would.
///
/// # Errors
/// The refusal.
pub fn show(
    rows: Vec<(String, Option<u32>, &'static str)>,
    what: &str,
    estimate: &Estimate,
    refusal: Option<String>,
    json: bool,
) -> Result<Ending> {
    if json {
        let row = |(cell, repeat, state): &(String, Option<u32>, &str)| match repeat {
            Some(repeat) => serde_json::json!({"cell": cell, "repeat": repeat, "state": state}),
            None => serde_json::json!({"cell": cell, "state": state}),
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        let all = serde_json::json!({what: rows, "estimate": estimate, "refused": refusal});
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        for (cell, repeat, state) in &rows {
            let repeat = repeat.map_or(String::new(), |repeat| format!(" #{}", repeat + 1));
            println!("{cell}{repeat} {state}");
        }
        eprintln!("{} {what}, {} missing", rows.len(), estimate.missing());
        eprintln!("{estimate}");
    }
    match refusal {
        Some(reason) => Err(BadInput(reason).into()),
        None => Ok(Ending::Held),
    }
}
