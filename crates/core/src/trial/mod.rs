//! One trial: its phases as data, and the pipeline that has a world carry them out.
//!
//! A [`World`] is where trials happen. The real one (in the binary) mounts disks, starts clusters and waits;
//! the virtual one ([`simulate`]) only counts. What follows on what, what becomes of an error, and what a
//! record says are the same for both, and are decided here.

pub mod simulate;
pub mod verdict;

#[cfg(test)]
mod tests;

use crate::check::{Broken, Judgement};
use crate::experiment::{DiskMode, Spec, Trial};
use crate::machine;
use crate::measure::{Canary, WarmUp};
use crate::metric::Metric;
use crate::record::{FORMAT, Interval, Measured, Phase, PhaseSpan, Provenance, Record, Verdict};
use crate::target::Facts;
use crate::units::Tick;
use std::collections::{BTreeMap, VecDeque};

/// What trials that share a warm-up with one of `spec` go through together.
pub fn shared_phases(spec: &Spec) -> Vec<Phase> {
    if spec.breaks_loading() {
        return vec![Phase::Start];
    }
    let calibrate = spec.lab.is_none() && spec.disk.mode != DiskMode::None;
    let phases = [
        (Phase::Load, true),
        (Phase::Calibrate, calibrate),
        (Phase::Start, true),
        (Phase::WarmUp, !begins_at_once(spec)),
    ];
    phases.into_iter().filter_map(|(phase, wanted)| wanted.then_some(phase)).collect()
}

/// What each of them goes through by itself; `again`: another went before it on the same target.
pub fn own_phases(spec: &Spec, again: bool) -> Vec<Phase> {
    let broken = spec.breaking.is_some();
    let phases = [
        (Phase::ReWarm, again && !begins_at_once(spec)),
        (Phase::Shape, true),
        (Phase::Load, spec.breaks_loading()),
        (Phase::Settle, !begins_at_once(spec)),
        (Phase::Measure, true),
        (Phase::Recover, broken),
        (Phase::Read, broken),
        (Phase::Judge, broken),
        (Phase::Rest, true),
        (Phase::Check, !broken && spec.workload.keeps_history()),
    ];
    phases.into_iter().filter_map(|(phase, wanted)| wanted.then_some(phase)).collect()
}

/// Whether two trials can share a warmed-up target: they differ in nothing but the disk's shape, and whether
/// it is traced.
pub fn share_warm_up(a: &Trial<'_>, b: &Trial<'_>) -> bool {
    if (a.repeat, a.twin) != (b.repeat, b.twin) {
        return false;
    }
    let unshaped = |trial: &Trial<'_>| {
        let mut spec = trial.cell.spec.clone();
        spec.disk.shape = String::new();
        spec.disk.trace = false;
        spec
    };
    // What is measured cold has no warm-up to share; what is checked afterwards is all that was done since
    // the tables were made.
    let spec = &a.cell.spec;
    let alone = spec.trial.cold || spec.keeps_history() || spec.workload.kind.is_checked();
    a == b || (!alone && unshaped(a) == unshaped(b))
}

/// Checks under faults ask for nothing that was there before, so there is nothing to warm up, and they begin
/// where it counts. So does what follows on loading under faults: nobody waits for rest meanwhile.
fn begins_at_once(spec: &Spec) -> bool {
    spec.breaks_loading() || (spec.breaking.is_some() && spec.checks_alone())
}

/// A trial as far as it has come.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// The phases that ended, the last one perhaps in failure.
    pub phases: Vec<PhaseSpan>,
    /// All intervals so far.
    pub series: Vec<Interval>,
    /// How the warm-up before it ended.
    pub warm_up: Option<WarmUp>,
    /// What was measured.
    pub measured: Option<Measured>,
    /// What was found by reading everything back through the process that was measured.
    pub checked: Option<Judgement>,
    /// What was found after faults.
    pub broken: Option<Broken>,
    /// The machine before and after it.
    pub canaries: Vec<Canary>,
    /// What is to be said against the place of this trial alone, as sentences.
    pub missed: Vec<String>,
}

/// What a world knows of itself, for records.
#[derive(Debug, Clone)]
pub struct WorldFacts {
    /// Who carries out the trials, with what.
    pub provenance: Provenance,
    /// The machine.
    pub machine: machine::Facts,
    /// Requirements of the machine that are missed, as sentences.
    pub missed: Vec<String>,
    /// What the target says of itself.
    pub target: Facts,
    /// What the disk says of itself.
    pub disk: Facts,
    /// What probes read, by probe.
    pub metrics: BTreeMap<String, Vec<Metric>>,
    /// Whether the target's memory has the bounds that the plan gives it.
    pub memory_bounded: bool,
}

/// Where trials are carried out.
pub trait World {
    /// Why something could not be done.
    type Error;

    /// Now, on the trial clock.
    fn now(&self) -> Tick;

    /// An error where the user asked to stop.
    ///
    /// # Errors
    /// That one.
    fn interrupted(&self) -> Result<(), Self::Error>;

    /// Carries out one phase of `trial`, adds to `draft` what was found, and says why the phase ended when it
    /// did.
    ///
    /// # Errors
    /// It could not be carried out.
    fn carry_out(
        &mut self,
        phase: Phase,
        trial: &Trial<'_>,
        draft: &mut Draft,
    ) -> Result<String, Self::Error>;

    /// What is known of it so far.
    fn facts(&self) -> WorldFacts;

    /// The error, as a record says it.
    fn reason(&self, error: &Self::Error) -> String;

    /// Takes away what stands after an error: whatever went wrong may have been the place itself.
    fn clear(&mut self);
}

/// Goes through `phases` in their order; what ended, well or not, is in `draft`.
///
/// # Errors
/// The first phase that could not be carried out, or an interrupt.
pub fn go_through<W: World>(
    world: &mut W,
    phases: &[Phase],
    trial: &Trial<'_>,
    draft: &mut Draft,
) -> Result<(), W::Error> {
    for &name in phases {
        world.interrupted()?;
        let begin = world.now();
        let ended = world.carry_out(name, trial, draft);
        let (evidence, ended) = match ended {
            Ok(evidence) => (evidence, Ok(())),
            Err(error) => (format!("failed: {}", world.reason(&error)), Err(error)),
        };
        draft.phases.push(PhaseSpan { name, begin, end: world.now(), evidence });
        ended?;
    }
    Ok(())
}

/// The experiment that trials belong to.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    /// Its name.
    pub experiment: &'a str,
    /// Its seed.
    pub seed: u64,
}

/// Where a series of trials could not go on.
enum Stopped<E> {
    /// A phase failed; what had come of its trial.
    Phase(Box<Draft>, E),
    /// A record could not be kept.
    Keeping(E),
}

/// Carries out trials that share a warm-up, one after the other on the same warmed-up target, and gives each
/// record and its intervals to `keep` as soon as it is finished.
///
/// A trial that could not be carried out is a record too, with its reason. It ends the series: the trials
/// after it are returned, to be tried on a new target in a new place.
///
/// # Errors
/// An interrupt, and what `keep` says.
pub fn carry_out<'t, W: World>(
    world: &mut W,
    of: Of<'_>,
    trials: Vec<Trial<'t>>,
    mut keep: impl FnMut(&mut W, &Trial<'_>, Record, Vec<Interval>) -> Result<(), W::Error>,
) -> Result<Vec<Trial<'t>>, W::Error> {
    let shared = trials.windows(2).all(|pair| share_warm_up(&pair[0], &pair[1]));
    assert!(shared, "these trials need a warm-up each");
    let mut left = VecDeque::from(trials);
    match series(world, of, &mut left, &mut keep) {
        Ok(()) => {}
        Err(Stopped::Keeping(error)) => return Err(error),
        Err(Stopped::Phase(draft, error)) => {
            // Whatever else went wrong then is only what being in a hurry does.
            world.interrupted()?;
            // Without a trial left it was the target that would not stop; what was measured is kept.
            if let Some(trial) = left.pop_front() {
                let (record, series) = failed(world, of, &trial, *draft, &error);
                keep(world, &trial, record, series)?;
            }
            world.clear();
        }
    }
    Ok(left.into())
}

/// Takes from the front of `left` what was carried out and kept.
fn series<W: World>(
    world: &mut W,
    of: Of<'_>,
    left: &mut VecDeque<Trial<'_>>,
    keep: &mut impl FnMut(&mut W, &Trial<'_>, Record, Vec<Interval>) -> Result<(), W::Error>,
) -> Result<(), Stopped<W::Error>> {
    let mut shared = Draft::default();
    let Some(first) = left.front().cloned() else { return Ok(()) };
    for phase in shared_phases(&first.cell.spec) {
        // A shape that this disk cannot take fails its own trial and no other.
        let whom: Vec<Trial<'_>> = match phase {
            Phase::Calibrate => std::mem::take(left).into(),
            _ => left.front().cloned().into_iter().collect(),
        };
        for trial in whom {
            let mut draft = shared.clone();
            let ended = go_through(world, &[phase], &trial, &mut draft);
            match (phase, ended) {
                (Phase::Calibrate, Ok(())) => left.push_back(trial),
                (Phase::Calibrate, Err(error)) => {
                    world.interrupted().map_err(Stopped::Keeping)?;
                    let (record, series) = failed(world, of, &trial, draft, &error);
                    keep(world, &trial, record, series).map_err(Stopped::Keeping)?;
                }
                (_, Ok(())) => shared = draft,
                (_, Err(error)) => return Err(Stopped::Phase(Box::new(draft), error)),
            }
        }
    }
    let (mut again, mut last) = (false, None);
    while let Some(trial) = left.front() {
        let mut draft = shared.clone();
        let phases = own_phases(&trial.cell.spec, std::mem::replace(&mut again, true));
        if let Err(error) = go_through(world, &phases, trial, &mut draft) {
            return Err(Stopped::Phase(Box::new(draft), error));
        }
        let facts = world.facts();
        let verdict = verdict::of(&trial.cell.spec, &draft, facts.memory_bounded);
        let (record, series) = record(facts, of, trial, draft, verdict);
        keep(world, trial, record, series).map_err(Stopped::Keeping)?;
        last = left.pop_front();
    }
    let Some(last) = last else { return Ok(()) };
    let mut draft = Draft::default();
    go_through(world, &[Phase::Stop], &last, &mut draft)
        .map_err(|error| Stopped::Phase(Box::new(draft), error))
}

/// The record of a trial that could not be carried out.
fn failed<W: World>(
    world: &W,
    of: Of<'_>,
    trial: &Trial<'_>,
    draft: Draft,
    error: &W::Error,
) -> (Record, Vec<Interval>) {
    let verdict = Verdict::Failed { reason: world.reason(error) };
    record(world.facts(), of, trial, draft, verdict)
}

fn record(
    facts: WorldFacts,
    of: Of<'_>,
    trial: &Trial<'_>,
    draft: Draft,
    verdict: Verdict,
) -> (Record, Vec<Interval>) {
    let mut missed = facts.missed;
    missed.extend(draft.missed);
    let record = Record {
        format: FORMAT,
        experiment: of.experiment.into(),
        sweep: trial.cell.sweep.clone(),
        cell: trial.cell.id(),
        labels: trial.cell.labels.clone(),
        repeat: trial.repeat,
        twin: trial.twin,
        seed: trial.seed(of.seed),
        spec: trial.cell.spec.clone().into(),
        provenance: facts.provenance,
        verdict,
        machine: facts.machine,
        missed,
        target: facts.target,
        disk: facts.disk,
        metrics: facts.metrics.into(),
        phases: draft.phases,
        measured: draft.measured,
        canaries: draft.canaries,
        checked: draft.checked,
        broken: draft.broken.map(Box::new),
    };
    (record, draft.series)
}
