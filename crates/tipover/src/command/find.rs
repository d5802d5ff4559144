//! `tipover find`: the highest load at which a promise still holds, with an interval and what limits it.

use super::by_fleet::{ByFleet, Wanted};
use super::plan::PlanArguments;
use super::run::{command_line, prepare, show};
use super::{BadInput, Ending, follow};
use crate::foresight::{self, Estimate};
use crate::live::LiveArgument;
use crate::report;
use crate::runner::{self, Order};
use crate::store::{Store, replace_file};
use crate::trial::Interrupt;
use anyhow::Result;
use clap::Args;
use std::io::Write;
use std::path::Path;
use tipover_core::experiment::{Experiment, Promise, SearchSpec};
use tipover_core::search::{Scale, Verdict};

/// Find the tipping point: the highest load at which a promise still holds
///
/// Searches every cell of an experiment with many short trials on one warmed-up target. The answer is an
/// interval that was confirmed below and above, and what limits, tested by changing it and searching again.
/// Running again goes on where the search was stopped. Exit codes: 0 every search gave an interval, 1 one did
/// not, 2 the input cannot be used.
#[derive(Debug, Args)]
pub struct Find {
    #[command(flatten)]
    plan: PlanArguments,

    /// A promise, such as "p99 <= 20 ms"; may be given several times, all are searched at once
    #[arg(long, value_name = "PROMISE")]
    promise: Vec<Promise>,

    /// Search sessions of a closed loop instead of offered load
    #[arg(long)]
    sessions: bool,

    /// The lowest load to try, in operations per second or sessions
    #[arg(long, value_name = "LOAD")]
    from: Option<f64>,

    /// The highest load to try
    #[arg(long, value_name = "LOAD")]
    to: Option<f64>,

    /// Do not test what limits
    #[arg(long)]
    no_interventions: bool,

    /// Only print the cells that would be searched, and an estimate of time, memory and disk
    ///
    /// What a search would refuse is refused here too, in the same words: exit code 2.
    #[arg(long, conflicts_with = "show")]
    list: bool,

    /// Only print the page of what was found before
    #[arg(long)]
    show: bool,

    /// Print every table of the report, not only the answer
    #[arg(long)]
    full: bool,

    /// Go on in a results folder of another version of the plan
    #[arg(long)]
    replace_plan: bool,

    #[command(flatten)]
    live: LiveArgument,

    #[command(flatten)]
    fleet: ByFleet,
}

impl Find {
    /// Searches what was not searched yet, and prints the page.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let (text, mut experiment) = self.plan.experiment()?;
        let search = self.search(&experiment)?;
        search.goals(experiment.seed).map_err(|e| BadInput(format!("{}: {e}", experiment.name)))?;
        if !search.sweeps.is_empty() {
            experiment.sweeps.retain(|sweep| search.sweeps.contains(&sweep.name));
        }
        if experiment.sweeps.is_empty() {
            let known = search.sweeps.join(", ");
            return Err(BadInput(format!("search.sweeps: the plan has none of {known}")).into());
        }
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            search.check_cell(&cell.spec).map_err(|e| BadInput(format!("{}: {e}", experiment.name)))?;
        }
        if self.list {
            return list(&experiment, &search, results, json);
        }
        let command = command_line();
        if self.fleet.is_asked() && !self.show {
            let (replace_plan, search) = (self.replace_plan, Some(&search));
            let wanted = Wanted { experiment: &experiment, text: &text, replace_plan, search, retry: false };
            let brought = self.fleet.fetch(wanted, results, interrupt)?;
            if brought.here == 0 {
                return Ok(if brought.came.is_bad() { Ending::NotHeld } else { Ending::Held });
            }
        } else if !self.show {
            let prepared = prepare(&experiment, results, &text, self.replace_plan)?;
            let live = follow(self.live, &experiment.name, &command)?;
            let found = runner::find(
                Order {
                    experiment: &experiment,
                    store: &prepared.store,
                    work: &prepared.work,
                    command: &command,
                    interrupt,
                    live: live.as_ref(),
                    fleet: None,
                    page: None,
                },
                &search,
            );
            let _ = std::fs::remove_dir(&prepared.work);
            found?;
        }
        let store = Store::existing(results, &experiment.name).map_err(|e| BadInput(format!("{e:#}")))?;
        let records = store.searches(&experiment, |damaged| eprintln!("{damaged}"))?;
        if records.is_empty() {
            return Err(BadInput(format!("{}: nothing was searched yet", store.folder().display())).into());
        }
        let page = report::of_searches(&experiment, &records, &command);
        // What was searched before with other settings stays on the page.
        let path = store.folder().join(super::report::SEARCHES);
        let all = store.every_search(&experiment, |_| {})?;
        let whole = report::of_searches(&experiment, &all, &command);
        replace_file(&path, |file| Ok(file.write_all(report::html(&whole).as_bytes())?))?;
        super::report::print(&page, self.full, json);
        eprintln!("report: {}", path.canonicalize().unwrap_or(path).display());
        let answered = |record: &tipover_core::search::SearchRecord| {
            let answer = record.planned().and_then(|search| search.answer());
            answer.is_some_and(|answer| answer.capacities.iter().all(|c| c.verdict == Verdict::Found))
        };
        Ok(if records.iter().all(answered) { Ending::Held } else { Ending::NotHeld })
    }

    /// The plan's search with what the flags say.
    fn search(&self, experiment: &Experiment) -> Result<SearchSpec> {
        let mut search = experiment.search.clone().unwrap_or_default();
        if !self.promise.is_empty() {
            search.promises.clone_from(&self.promise);
        }
        if self.sessions && search.scale == Scale::OpsPerSecond {
            search.scale = Scale::Sessions;
            // What was said about operations per second means nothing for sessions.
            (search.least, search.most, search.guess) = (1.0, 1_024.0, None);
        }
        search.least = self.from.unwrap_or(search.least);
        search.most = self.to.unwrap_or(search.most);
        search.interventions &= !self.no_interventions;
        Ok(search)
    }
}

fn list(experiment: &Experiment, search: &SearchSpec, results: &Path, json: bool) -> Result<Ending> {
    foresight::check_plan(experiment, results).map_err(BadInput)?;
    let store = Store::existing(results, &experiment.name).ok();
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
        let known = match &store {
            Some(store) => store.search(cell, |damaged| eprintln!("{damaged}"))?,
            None => None,
        };
        let answered = known
            .as_ref()
            .is_some_and(|record| record.planned().is_some_and(|search| search.answer().is_some()));
        let state = match (known.is_some(), answered) {
            (_, true) => "searched",
            (true, false) => "unfinished",
            (false, _) => "missing",
        };
        if !answered {
            missing.push(cell);
        }
        rows.push((cell.id(), None, state));
    }
    let estimate = Estimate::of_searches(experiment, &missing, search);
    show(rows, "searches", &estimate, foresight::refusal(experiment, results), json)
}
