//! Runs the trials of an experiment that are missing: running again is resuming.

mod growing;
mod progress;

use crate::foresight::{AT_A_TIME, Estimate, needs};
use crate::live::Live;
use crate::machine::{self, Requirement};
use crate::store::Store;
use crate::trial::{self, Fellows, Interrupt, Report, Site, Surroundings};
use anyhow::Result;
use growing::Growing;
use progress::Progress;
use std::path::Path;
use tipover_core::experiment::{Cell, Experiment, SearchSpec, Trial, interventions};
use tipover_core::record::{Record, Verdict};
use tipover_core::search::limit::Limit;
use tipover_core::search::{SearchRecord, Searched};

pub use growing::MakePage;

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Trials carried out now.
    pub measured: usize,
    /// Trials that were there already.
    pub present: usize,
    /// Of the ones carried out now, those that cannot be believed.
    pub invalid: usize,
    /// Of the ones carried out now, those that failed.
    pub failed: usize,
}

impl Tally {
    fn count(&mut self, verdict: &Verdict) {
        self.measured += 1;
        match verdict {
            Verdict::Valid => {}
            Verdict::Invalid { .. } => self.invalid += 1,
            Verdict::Failed { .. } => self.failed += 1,
        }
    }
}

/// A trial's result in half a line.
fn outcome(record: &Record) -> String {
    match &record.verdict {
        Verdict::Valid if record.broken.is_some() => {
            record.broken.as_ref().map_or_else(String::new, |broken| {
                let said: Vec<&str> = broken.findings().map(|finding| finding.summary.as_str()).collect();
                format!("{}: {}", broken.verdict.words(), said.join("; "))
            })
        }
        Verdict::Valid => {
            let throughput = record.measured.as_ref().map_or(0.0, |m| m.throughput());
            format!("{} operations/s", tipover_core::units::significant(throughput, 4))
        }
        Verdict::Invalid { reasons } => format!("not valid: {}", reasons.join("; ")),
        Verdict::Failed { reason } => format!("failed: {reason}"),
    }
}

/// What a run and a search are given.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// What is to be done.
    pub experiment: &'a Experiment,
    /// Where results are kept.
    pub store: &'a Store,
    /// The folder for mount points and images.
    pub work: &'a Path,
    /// The command line.
    pub command: &'a str,
    /// Stops it.
    pub interrupt: &'a Interrupt,
    /// Shows it while it goes on.
    pub live: Option<&'a Live>,
    /// The fleet that this machine works for, if it does.
    pub fleet: Option<&'a dyn Fellows>,
    /// Makes the page of the trials that ended so far, if somebody is to see it before the end.
    pub page: Option<&'a MakePage<'a>>,
}

impl<'a> Order<'a> {
    fn surroundings(&self, missed: &'a [String], report: &'a dyn Report) -> Surroundings<'a> {
        Surroundings {
            experiment: &self.experiment.name,
            seed: self.experiment.seed,
            command: self.command,
            work: self.work,
            missed,
            report,
            interrupt: self.interrupt,
            fleet: self.fleet,
            results: self.store.folder(),
        }
    }
}

/// Removes what earlier runs left behind: it would hold memory, mounts and devices that the next one needs.
///
/// # Errors
/// Control groups cannot be looked through.
pub fn clear_away(work: &Path) -> Result<()> {
    for (leftover, removed) in tipover_disk::clean() {
        if let Err(error) = removed {
            eprintln!("left by an earlier run and not removed: {leftover}: {error}");
        }
    }
    tipover_lab::clean()?;
    for (folder, removed) in tipover_lab::clean_folders(work) {
        if let Err(error) = removed {
            eprintln!("left by an earlier run and not removed: {}: {error}", folder.display());
        }
    }
    Ok(())
}

/// Carries out the missing trials of the experiment; `retry` also those that failed.
pub fn run(order: Order<'_>, retry: bool) -> Result<Tally> {
    let all = order.experiment.trials();
    let missing = order.store.missing(all, retry, |damaged| eprintln!("{damaged}"))?;
    carry_out(order, missing, |_, _| Ok(()))
}

/// Carries out these trials of the experiment, keeps each, and tells `kept` of it.
///
/// # Errors
/// An interrupt, a record that cannot be kept, and what `kept` says.
pub fn carry_out(
    order: Order<'_>,
    mut missing: Vec<Trial<'_>>,
    mut kept: impl FnMut(&Trial<'_>, &Record) -> Result<()>,
) -> Result<Tally> {
    let Order { experiment, store, work, interrupt, .. } = order;
    let planned = experiment.trials().len().max(missing.len());
    let _holding = interrupt.hold();
    let mut tally = Tally { present: planned - missing.len(), ..Tally::default() };
    if missing.is_empty() {
        return Ok(tally);
    }
    let unmet: Vec<Requirement> =
        machine::check(&machine::read(work), &needs(experiment)).into_iter().filter(|r| !r.met).collect();
    let missed: Vec<String> = unmet.iter().map(Requirement::sentences).collect();
    let progress = Progress::new(planned, tally.present, order.live);
    progress.say(&format!(
        "{} of {planned} trials are missing, {}",
        missing.len(),
        Estimate::of_trials(experiment, missing.clone()).time()
    ));
    for requirement in &unmet {
        progress.say(&format!("{}: {}. {}", requirement.id, requirement.found, requirement.next));
    }
    let surroundings = order.surroundings(&missed, &progress);
    let mut growing = Growing::new(order.page);
    let mut site = Site::new(work, interrupt);
    // Clusters come first and are gone before a disk is mounted: both take the machine's memory.
    let (in_clusters, others): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|trial| trial.cell.spec.lab.is_some());
    missing = together_by_cell(in_clusters);
    missing.extend(others);
    while !missing.is_empty() {
        interrupt.check()?;
        let (together, others): (Vec<_>, Vec<_>) = {
            let first = missing[0].clone();
            missing.into_iter().partition(|trial| trial::share_warm_up(&first, trial))
        };
        progress.begin(&together);
        missing = trial::carry_out(&mut site, together, &surroundings, |trial, finished| {
            store.keep(trial, &finished)?;
            tally.count(&finished.record.verdict);
            progress.end(trial, &outcome(&finished.record));
            kept(trial, &finished.record)
        })?;
        missing.extend(others);
        // The last page is made by whoever asked for the trials.
        if !missing.is_empty() {
            growing.between_trials(|line| progress.say(line));
        }
    }
    Ok(tally)
}

/// Trials of one cell after each other, a few at a time: they share a cluster, and cells still take turns.
fn together_by_cell(trials: Vec<Trial<'_>>) -> Vec<Trial<'_>> {
    let mut groups: Vec<Vec<Trial<'_>>> = Vec::new();
    let mut open: Vec<(&Cell, usize)> = Vec::new();
    for trial in trials {
        let known = open.iter_mut().find(|(cell, _)| std::ptr::eq(*cell, trial.cell));
        match known {
            Some((_, group)) if groups[*group].len() < AT_A_TIME => groups[*group].push(trial),
            _ => {
                match known {
                    Some((_, group)) => *group = groups.len(),
                    None => open.push((trial.cell, groups.len())),
                }
                groups.push(vec![trial]);
            }
        }
    }
    groups.into_iter().flatten().collect()
}

/// Searches the tipping points of all cells, and in each what limits it. Goes on where an earlier search
/// stopped.
pub fn find(order: Order<'_>, search: &SearchSpec) -> Result<()> {
    let Order { experiment, store, work, .. } = order;
    let _holding = order.interrupt.hold();
    let missed = missed_requirements(experiment, work);
    let cells: Vec<&Cell> = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells).collect();
    let progress = Progress::new(cells.len(), 0, order.live);
    progress.say(&format!(
        "{} searches, {}",
        cells.len(),
        Estimate::of_searches(experiment, &cells, search).time()
    ));
    missed.iter().for_each(|requirement| progress.say(requirement));
    let context = order.surroundings(&missed, &progress);
    let goals = search.goals(experiment.seed)?;
    let mut site = Site::new(work, order.interrupt);
    for cell in cells {
        let trial = Trial { cell, repeat: 0, twin: false };
        progress.begin(std::slice::from_ref(&trial));
        let known = store.search(cell, |damaged| progress.say(damaged))?;
        // Other promises or another range make another search, and half of one another machine's whole.
        let machine = context.fleet.map(Fellows::machine);
        let is_ours = |r: &SearchRecord| r.provenance.machine.as_deref() == machine || r.is_complete(search);
        let mut record = known
            .filter(|record| record.is_of(&search.promises, &goals) && is_ours(record))
            .unwrap_or_else(|| trial::planned(cell, &search.promises, goals.clone(), &context));
        record.failed = None;
        let mut keep = |record: &SearchRecord| store.keep_search(cell, record);
        let unfinished = |record: &SearchRecord, place: usize| record.searches[place].answer().is_none();
        if unfinished(&record, 0) {
            trial::search(&mut site, cell, &cell.spec, 0, &mut record, &context, &mut keep)?;
        }
        if search.interventions && record.failed.is_none() {
            intervene(&mut site, cell, search, &mut record, &context, &mut keep)?;
        }
        let said =
            record.planned().and_then(|s| s.answer()).and_then(|a| Some(a.capacities.first()?.sentence()));
        progress.end(&trial, &said.or(record.failed).unwrap_or_default());
    }
    Ok(())
}

/// Changes one thing after the other that may be the limit, and searches again, until one is found that is.
fn intervene(
    site: &mut Site,
    cell: &Cell,
    search: &SearchSpec,
    record: &mut SearchRecord,
    context: &Surroundings<'_>,
    keep: &mut dyn FnMut(&SearchRecord) -> Result<()>,
) -> Result<()> {
    let Some(planned) = record.planned() else { return Ok(()) };
    let estimate = planned.answer().and_then(|a| a.capacities.first().and_then(|c| c.low.zip(c.high)));
    // Without both ends there is nothing that could move.
    let Some((low, high)) = estimate else { return Ok(()) };
    let mut goals = planned.goals.clone();
    goals.slos.truncate(1);
    let promises = record.promises.clone();
    goals.guess = Some(f64::midpoint(low, high));
    goals.confirmations = goals.confirmations.min(2);
    goals.sweeps = false;
    for (intervention, spec) in interventions(&cell.spec, search.scale) {
        if record.limits().iter().any(|(_, judgement)| judgement.limit == Limit::LimitedBy) {
            break;
        }
        let place = match record.searches.iter().position(|s| s.changed == Some(intervention.resource)) {
            Some(place) => place,
            None => {
                let goals = goals.clone();
                record.searches.push(Searched {
                    changed: Some(intervention.resource),
                    goals,
                    trials: vec![],
                });
                record.searches.len() - 1
            }
        };
        if record.searches[place].answer().is_none() {
            context.report.note(&format!("testing the limit: {}", intervention.change));
            // Only the first promise is searched again.
            record.promises.truncate(1);
            let searched = trial::search(site, cell, &spec, place, record, context, |record| {
                keep(&SearchRecord { promises: promises.clone(), ..record.clone() })
            });
            record.promises.clone_from(&promises);
            searched?;
            keep(record)?;
            if record.failed.is_some() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Requirements that this machine misses, as sentences.
fn missed_requirements(experiment: &Experiment, work: &Path) -> Vec<String> {
    machine::check(&machine::read(work), &needs(experiment))
        .iter()
        .filter(|r| !r.met)
        .map(Requirement::sentences)
        .collect()
}
