//! Loading while something is broken: the sessions of the client loop insert each record until it is known to
//! be there, or the tables of the bank are made until they are whole. Afterwards all records are looked for.

use super::cluster::PATIENCE;
use super::faults::{Begun, Conducted, FOLLOWS, Times, patiently};
use super::world::{AtWork, RealWorld};
use crate::clock::Clock;
use crate::drive::{self, Plan};
use crate::generator::{Command, Reply};
use crate::history;
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tipover_core::check::loaded::known_since;
use tipover_core::check::{Checker, Finding, Loaded, LoadedScan, Observation, Source};
use tipover_core::experiment::{Retries, Spec, Trial};
use tipover_core::op::{Failure, Fields, Op, Outcome};
use tipover_core::record::Phase;
use tipover_core::target::{Target, TargetError};
use tipover_core::trial::Draft;
use tipover_core::units::{Tick, span};
use tipover_core::workload::{Records, Shape, Workload};

/// How often the generator is asked how much is there.
const LOOK: Duration = Duration::from_millis(20);
/// Sessions that look for the records afterwards.
const READERS: u32 = 4;
/// How long they may take for a record, tries included.
const READ: Duration = Duration::from_secs(10);

impl RealWorld<'_> {
    /// Loads the data of the cell while its schedule begins.
    pub(super) fn load_under_faults(
        &mut self,
        trial: &Trial<'_>,
        target: &mut AtWork,
        draft: &mut Draft,
    ) -> Result<String> {
        self.context.report.doing("loading under faults");
        let spec = &trial.cell.spec;
        let breaking = spec.breaking.as_ref().context("a trial that breaks something has a [break] table")?;
        let running = target.watch.cluster.as_mut().context("only a cluster is broken")?;
        let draws = (trial.repeat, trial.seed(self.context.seed));
        let times = Times::of(spec, breaking, breaking.length, draws, running.cluster())?;
        let readers = &mut target.watch.readers;
        let path = self.staged()?.join(history::LOADING);
        readers.generators.ask(&Command::Bring { history: path.clone() })?;
        let (begin, mut loaded) = (self.clock.now(), Loaded::default());
        let begun = times.begin().conduct(running.cluster_mut(), self.clock, |conducting| {
            let mut closed = Instant::now();
            loop {
                self.context.interrupt.check()?;
                conducting.tell_writers(&mut readers.generators)?;
                let is_over = conducting.is_over();
                if closed.elapsed() >= spec.trial.interval {
                    closed = Instant::now();
                    let mark = conducting.look(|nodes| self.read(readers, nodes))?;
                    self.log(mark.interval(Phase::Load, spec), draft);
                    conducting.tell_carried(self.context.report);
                }
                let Reply::Brought(brought) = readers.generators.ask(&Command::Brought)? else {
                    bail!("expected to hear how much is there");
                };
                loaded = brought;
                self.context.report.share(loaded.known as f64 / loaded.count as f64);
                if loaded.known == loaded.count {
                    return Ok(());
                }
                if is_over {
                    bail!(
                        "{} of {} {} were there after {}, when the schedule was over: give a longer break.length, or \
                         load less",
                        loaded.known,
                        loaded.count,
                        loaded.what,
                        span::rounded(self.clock.now().since(begin))
                    );
                }
                std::thread::sleep(LOOK);
            }
        })?;
        readers.generators.ask(&Command::Halt)?;
        if !spec.checks_alone() {
            loaded = Loaded::of(&history::read(&path)?.history, loaded.count);
        }
        loaded.begin = loaded.begin.max(begin);
        let Loaded { known, what, unknown, refused, .. } = &loaded;
        let evidence = format!(
            "all {known} {what} are known to be there; {unknown} tries had an unknown outcome, {refused} were refused"
        );
        (target.begun, target.loaded) = (Some(begun), Some(loaded));
        Ok(evidence)
    }

    /// The same for whoever goes on with a cluster that is whole: what is in force is undone, every node
    /// follows, the disks are as fast as they can be, and all records are looked for.
    pub(super) fn load_and_come_back(&mut self, trial: &Trial<'_>, draft: &mut Draft) -> Result<Finding> {
        let (spec, seed) = (&trial.cell.spec, trial.seed(self.context.seed));
        let mut target = self.take_target()?;
        self.load_under_faults(trial, &mut target, draft)?;
        self.context.report.doing("waiting for every node to follow");
        let running = target.watch.cluster.as_mut().context("only a cluster is broken")?;
        let begun = target.begun.take().context("nothing was broken")?;
        let Conducted { carried, undone } = begun.end(running.cluster_mut(), self.clock);
        undone.context("the cluster did not come back after its faults")?;
        running.settle(FOLLOWS)?;
        running.unshape()?;
        let mut loaded = target.loaded.take().context("nothing was loaded")?;
        if !spec.checks_alone() {
            self.context.report.doing("looking for all records");
            let known = known_since(&history::read(&self.staged()?.join(history::LOADING))?.history);
            let survivors =
                running.sources(spec, seed).into_iter().find(|(who, _)| *who == Source::Survivors);
            let (source, endpoint) = survivors.context("nobody can be asked for the records")?;
            let (missing, wrong) =
                patiently(&endpoint, PATIENCE, |target| scan(spec, target, &known, self.clock))?;
            loaded.scans.push(LoadedScan { source, pass: 1, at: self.clock.now(), missing, wrong });
        }
        let injections = carried.into_iter().map(|carried| carried.injection).collect();
        let finding = loaded.check(&Observation { injections, ..Observation::default() });
        self.give_back(target);
        Ok(finding)
    }
}

/// Whether loading left anything of the schedule to be measured.
///
/// # Errors
/// A sentence that says how long it took.
pub(super) fn leaves_time(spec: &Spec, begun: Option<&Begun>) -> Result<()> {
    let (Some(begun), Some(breaking)) = (begun, &spec.breaking) else { return Ok(()) };
    if begun.left() < spec.trial.interval {
        bail!(
            "loading took {}, which leaves nothing of break.length = {} to measure: give a longer one",
            span::rounded(begun.lasted()),
            span::print(breaking.length)
        );
    }
    Ok(())
}

/// Reads of all records of a data set, one after the other.
struct Each;

impl Workload for Each {
    fn op(&self, n: u64, _: &Records) -> Op {
        Op::Read { record: n, fields: Fields::All }
    }
}

/// Records that are missing, each with the moment since which it was known to be there.
type Missing = Vec<(u64, Option<Tick>)>;

/// Looks for every record of `spec`: those that are missing, and those with another value than was loaded,
/// where the load that followed changed none.
///
/// # Errors
/// A record cannot be read.
pub(super) fn scan(
    spec: &Spec,
    target: &dyn Target,
    known: &BTreeMap<u64, Tick>,
    clock: Clock,
) -> Result<(Missing, Vec<u64>), TargetError> {
    let (dataset, _) = spec.load_of(0);
    let mix = spec.workload.mix();
    let is_as_loaded = matches!(dataset.shape, Shape::Fields) && !mix.changes_records();
    let (missing, wrong, failed) = (Mutex::new(vec![]), Mutex::new(vec![]), Mutex::new(None));
    let records = Records::new(dataset.records);
    let observer = |ended: &drive::Ended<'_>| {
        let Op::Read { record, fields } = *ended.op else { return };
        match ended.outcome {
            Outcome::Refused(Failure::NotFound) => {
                missing.lock().push((record, known.get(&record).copied()));
            }
            Outcome::Done if is_as_loaded => {
                if dataset.verify(ended.by, record, fields, 0) != Outcome::Done {
                    wrong.lock().push(record);
                }
            }
            Outcome::Done => {}
            Outcome::Refused(failure) | Outcome::Unknown(failure) => {
                failed.lock().get_or_insert((record, failure));
            }
        }
    };
    let plan = Plan {
        limit: Some(dataset.records),
        timeout: READ,
        retries: Retries { most: 20, first_pause: Duration::from_millis(10) },
        observer: Some(&observer),
        ..Plan::closed(target, &dataset, &Each, &records, READERS, clock)
    };
    drive::run(&plan, |sessions| while !sessions.wait(READ) && failed.lock().is_none() {})?;
    if let Some((record, failure)) = failed.into_inner() {
        return Err(TargetError::new(format!("reading record {record}"), failure.name()));
    }
    let (mut missing, mut wrong) = (missing.into_inner(), wrong.into_inner());
    missing.sort_unstable();
    wrong.sort_unstable();
    Ok((missing, wrong))
}
