//! `tipover run`: an experiment, or what is missing of it.

use super::plan::PlanArguments;
use super::{BadInput, Ending, report};
use crate::machine;
use crate::runner::{self, Order};
use crate::store::Store;
use crate::trial::{self, Interrupt};
use anyhow::Result;
use clap::Args;
use std::fs::File;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{BackingKind, Experiment, redact};
use tipover_disk::BackingChoice;

/// Run an experiment, or what is missing of it
///
/// Carries out the trials that are not in the results folder yet and writes the report. Running again
/// resumes: whatever was finished is kept, also after a kill. A trial that failed is tried again.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    plan: PlanArguments,

    /// Only print the trials that would be carried out, and check the plan
    #[arg(long)]
    list: bool,

    /// Measure again what was measured but cannot be believed
    #[arg(long)]
    retry: bool,

    /// Go on in a results folder of another version of the plan, keeping what still fits
    #[arg(long)]
    replace_plan: bool,
}

impl Run {
    /// Carries it out.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let (text, experiment) = self.plan.experiment()?;
        check(&experiment, results)?;
        if self.list {
            return list(&experiment, results, json);
        }
        let Prepared { store, work, reserved: _reserved } =
            prepare(&experiment, results, &text, self.replace_plan)?;
        let command = command_line();
        let order =
            Order { experiment: &experiment, store: &store, work: &work, command: &command, interrupt };
        let tally = runner::run(order, self.retry);
        // Empty by now, also after an interrupt; whatever is still in there belongs to another run.
        let _ = std::fs::remove_dir(&work);
        let tally = tally?;
        let ending = report::publish(&store, &experiment, &command, json)?;
        if tally.measured > 0 {
            eprintln!(
                "{} trials measured, {} were there already, {} not valid, {} failed",
                tally.measured, tally.present, tally.invalid, tally.failed
            );
        } else {
            eprintln!("all {} trials were there already", tally.present);
        }
        Ok(if tally.failed + tally.invalid > 0 { Ending::NotHeld } else { ending })
    }
}

/// A results folder that is ours alone, on a machine that can do what is asked.
pub struct Prepared {
    /// Where records are kept.
    pub store: Store,
    /// Where disks and their images are.
    pub work: PathBuf,
    /// Keeps other runs out.
    pub reserved: File,
}

/// What can be said against running `experiment` before anything is touched.
fn check(experiment: &Experiment, results: &Path) -> Result<()> {
    if let Some(reason) = runner::too_small_disk(experiment) {
        return Err(BadInput(format!("{}: {reason}", experiment.name)).into());
    }
    for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
        let backing = match cell.spec.disk.backing {
            BackingKind::Memory => BackingChoice::Memory,
            BackingKind::Disk => BackingChoice::Directory(machine::existing(results)),
        };
        let options = trial::mount_options(&cell.spec.disk, backing, PathBuf::new());
        if let Some(Err(error)) = options.map(|options| options.check_size()) {
            return Err(BadInput(format!("{}: disk.size: {error}", experiment.name)).into());
        }
    }
    if results.exists() && !results.is_dir() {
        let reason = format!("{} is a file, not a folder: give another --results", results.display());
        return Err(BadInput(reason).into());
    }
    Ok(())
}

/// Checks the machine, removes what earlier runs left, and opens the results folder.
pub fn prepare(experiment: &Experiment, results: &Path, text: &str, replace_plan: bool) -> Result<Prepared> {
    check(experiment, results)?;
    let facts = machine::Facts::read(results);
    let requirements = machine::check(&facts, &runner::needs(experiment));
    if !machine::can_run(&requirements) {
        let stopping: Vec<String> = requirements
            .iter()
            .filter(|r| !r.met && r.severity == machine::Severity::CannotRun)
            .map(|r| format!("{}: wanted {}, found {}. {}", r.id, r.wanted, r.found, r.next))
            .collect();
        return Err(BadInput(format!("this cannot run here: {}", stopping.join("; "))).into());
    }
    // What an earlier run left behind would hold memory, mounts and devices that this one needs.
    for (leftover, removed) in tipover_disk::clean() {
        if let Err(error) = removed {
            eprintln!("left by an earlier run and not removed: {leftover}: {error}");
        }
    }
    tipover_lab::clean()?;
    let work = results.join(".work");
    for (folder, removed) in tipover_lab::clean_folders(&work) {
        if let Err(error) = removed {
            eprintln!("left by an earlier run and not removed: {}: {error}", folder.display());
        }
    }
    let store =
        Store::open(results, experiment, text, replace_plan).map_err(|e| BadInput(format!("{e:#}")))?;
    let reserved = store.reserve().map_err(|e| BadInput(format!("{e:#}")))?;
    Ok(Prepared { store, work, reserved })
}

/// The command line as one would type it, without passwords.
pub fn command_line() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@".contains(c);
        if word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = std::iter::once("tipover".to_string()).chain(std::env::args().skip(1).map(quoted));
    redact(&words.collect::<Vec<_>>().join(" "))
}

fn list(experiment: &Experiment, results: &Path, json: bool) -> Result<Ending> {
    let store = Store::existing(results, &experiment.name).ok();
    let mut rows = Vec::new();
    for trial in experiment.trials() {
        let state = store.as_ref().map_or(Ok("missing"), |store| store.state(&trial))?;
        rows.push((trial.cell.id(), trial.repeat, state));
    }
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(cell, repeat, state)| serde_json::json!({"cell": cell, "repeat": repeat, "state": state}))
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        for (cell, repeat, state) in &rows {
            println!("{cell} #{} {state}", repeat + 1);
        }
        let missing = rows.iter().filter(|(_, _, state)| ["missing", "damaged"].contains(state)).count();
        eprintln!("{} trials, {missing} missing", rows.len());
    }
    Ok(Ending::Held)
}
