//! The search for tipping points in one cell: many short trials at different loads on one warmed-up target.

use super::cluster::primary_disk;
use super::faults::{FOLLOWS, Times};
use super::watch::{Readers, Watch};
use super::world::RealWorld;
use super::{Site, Surroundings};
use crate::generator::{Command, Cut, Reply, Share};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tipover_core::check::Verdict;
use tipover_core::device::Counters;
use tipover_core::experiment::{Cell, Promise, Spec, Trial};
use tipover_core::measure::{Books, Offered};
use tipover_core::record::{FORMAT, Phase};
use tipover_core::search::{
    DeviceUse, FinishedTrial, Goals, Purpose, Request, Rest, Scale, SearchRecord, Searched, Step, count,
    generator_was_late, is_lost, next,
};
use tipover_core::trial::{Draft, World, go_through};

/// Goes on with a search of `cell`, from what `record` holds already, until it is done; `keep` is called
/// after every trial. `spec` are the cell's settings, changed or not. Interrupts are errors; what fails is
/// kept in the record.
pub fn search(
    site: &mut Site,
    cell: &Cell,
    spec: &Spec,
    place: usize,
    record: &mut SearchRecord,
    context: &Surroundings<'_>,
    mut keep: impl FnMut(&SearchRecord) -> Result<()>,
) -> Result<()> {
    let mut world = RealWorld::new(site, context)?;
    // What is seen of loading is judged at once, and kept nowhere.
    let seen = spec.breaks_loading().then(|| {
        std::fs::create_dir_all(context.work)?;
        tempfile::tempdir_in(context.work)
    });
    let seen = seen.transpose().context("a folder for what is seen of loading")?;
    world.staged = seen.as_ref().map(|seen| seen.path().to_path_buf());
    let cell = Cell { spec: spec.clone(), ..cell.clone() };
    match world.search(&cell, place, record, &mut keep) {
        Ok(()) => {
            record.failed = None;
            Ok(())
        }
        Err(error) => {
            // Whatever else went wrong then is only what being in a hurry does.
            context.interrupt.check()?;
            record.failed = Some(world.reason(&error));
            world.clear();
            keep(record)
        }
    }
}

/// A record of a search that has not begun.
pub fn planned(cell: &Cell, promises: &[Promise], goals: Goals, context: &Surroundings<'_>) -> SearchRecord {
    SearchRecord {
        format: FORMAT,
        experiment: context.experiment.into(),
        sweep: cell.sweep.clone(),
        cell: cell.id(),
        labels: cell.labels.clone(),
        spec: cell.spec.clone(),
        promises: promises.to_vec(),
        provenance: super::provenance(context, Duration::ZERO),
        missed: context.missed.to_vec(),
        target: Default::default(),
        cores: None,
        loaded: None,
        searches: vec![Searched { changed: None, goals, trials: vec![] }],
        failed: None,
    }
}

/// How long the target may take to come to rest after a trial that failed, before it is started anew.
const REST: Duration = Duration::from_secs(20);

impl RealWorld<'_> {
    fn search(
        &mut self,
        cell: &Cell,
        place: usize,
        record: &mut SearchRecord,
        keep: &mut impl FnMut(&SearchRecord) -> Result<()>,
    ) -> Result<()> {
        let spec = &cell.spec;
        let mut watch = self.warmed_up(cell, record)?;
        record.target = self.facts.target.clone();
        record.cores = Some(self.facts.machine.cores).filter(|cores| *cores > 0);
        for sentence in &self.facts.missed {
            if !record.missed.contains(sentence) {
                record.missed.push(sentence.clone());
            }
        }
        let quiet = self.gauges(&mut watch)?;
        loop {
            self.context.interrupt.check()?;
            let search = &record.searches[place];
            match next(&search.trials, &search.goals) {
                Step::Done(_) => break,
                Step::CoolDown { why } => {
                    self.context.report.doing("cooling down");
                    self.context.report.note(&why);
                    let begin = Instant::now();
                    let rest = self.cool_down(&mut watch, quiet.or_idle(spec))?;
                    if rest == Rest::Restarted {
                        self.end(watch)?;
                        watch = self.warmed_up(cell, record)?;
                    }
                    if let Some(last) = record.searches[place].trials.last_mut() {
                        (last.rest, last.rested_for) = (rest, begin.elapsed());
                    }
                }
                Step::Run(request) => {
                    self.context.report.doing(&at_load(&request, search.goals.scale));
                    self.context.report.note(&request.why);
                    let number = search.trials.len() as u64;
                    let goals = search.goals.clone();
                    let canary = self.canary();
                    watch.readers.tenants.begin(spec, number + 1)?;
                    let mut trial = self.at(spec, &mut watch, &request, &goals, &record.promises, number)?;
                    watch.readers.tenants.rest()?;
                    trial.canaries = vec![canary, self.canary()];
                    record.searches[place].trials.push(trial);
                }
            }
            keep(record)?;
        }
        self.end(watch)
    }

    /// The target with its data, warm, on the shaped disk, with no session at work. Where faults begin with
    /// the first record that is loaded, it is loaded under the schedule of the plan, and comes back from
    /// that.
    fn warmed_up(&mut self, cell: &Cell, record: &mut SearchRecord) -> Result<Watch> {
        let trial = Trial { cell, repeat: 0, twin: false };
        let draft = &mut Draft::default();
        if cell.spec.breaks_loading() {
            go_through(self, &[Phase::Start, Phase::Shape], &trial, draft)?;
            let finding = self.load_and_come_back(&trial, draft)?;
            let is_guilty = finding.verdict == Verdict::Invalid;
            let summary = record.loaded.insert(finding).summary.clone();
            if is_guilty {
                bail!("nothing is searched on data that were lost: {summary}");
            }
        } else {
            go_through(self, &[Phase::Load, Phase::Start], &trial, draft)?;
        }
        go_through(self, &[Phase::WarmUp, Phase::Shape], &trial, draft)?;
        let mut watch = self.take_target()?.watch;
        watch.readers.tenants.rest()?;
        watch.readers.generators.ask(&Command::Halt)?;
        Ok(watch)
    }

    fn end(&mut self, watch: Watch) -> Result<()> {
        self.site.unshape()?;
        watch.readers.generators.stop()?;
        if let Some(running) = watch.cluster {
            running.unshape()?;
            self.site.give_back(running);
        }
        Ok(())
    }

    /// One trial at one load.
    fn at(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        request: &Request,
        goals: &Goals,
        promises: &[Promise],
        number: u64,
    ) -> Result<FinishedTrial> {
        let load = spec.load.at(request.load, goals.scale);
        // Every trial draws operations of its own, and begins its faults anew.
        let command = Command::Run { load: Some(Box::new(load)), seed: Some(number + 1), history: None };
        let times = match (&spec.breaking, &watch.cluster) {
            (Some(breaking), Some(running)) => {
                let cluster = running.cluster();
                Some(Times::of(spec, breaking, request.duration, (number as u32, number + 1), cluster)?)
            }
            _ => None,
        };
        let primary = primary(watch);
        let before = self.device(watch)?;
        watch.readers.generators.ask(&command)?;
        let mut seen = Seen::now();
        let see = |seen: &mut Seen, readers: &mut Readers| -> Result<bool> {
            self.context.interrupt.check()?;
            self.context.report.share(seen.begin.elapsed().as_secs_f64() / request.duration.as_secs_f64());
            let (cut, report) = (readers.generators.cut()?, self.context.report);
            report.interval(&cut.interval(Phase::Measure, self.disk_counters()?));
            seen.add(cut)?;
            let bad = bad_so_far(seen.books.as_ref(), promises);
            let over = seen.begin.elapsed() >= request.duration;
            if !over && is_lost(&bad, request.load, request.duration, goals) {
                seen.lost_after = Some(seen.begin.elapsed());
            }
            Ok(over || seen.lost_after.is_some())
        };
        let Watch { readers, cluster } = watch;
        match (times, cluster) {
            (Some(times), Some(running)) => {
                let begun = times.begin().conduct(running.cluster_mut(), self.clock, |conducting| {
                    let mut looked = Instant::now();
                    loop {
                        conducting.tell_writers(&mut readers.generators)?;
                        std::thread::sleep(Duration::from_millis(10));
                        conducting.tell_carried(self.context.report);
                        if looked.elapsed() >= LOOK || seen.begin.elapsed() >= request.duration {
                            looked = Instant::now();
                            if see(&mut seen, readers)? {
                                return Ok(());
                            }
                        }
                    }
                })?;
                let conducted = begun.end(running.cluster_mut(), self.clock);
                conducted.undone.context("the cluster did not come back after its faults")?;
                running.settle(FOLLOWS)?;
            }
            _ => loop {
                let left = request.duration.saturating_sub(seen.begin.elapsed());
                std::thread::sleep(left.min(LOOK));
                if see(&mut seen, readers)? {
                    break;
                }
            },
        }
        let Seen { mut books, offered, shares, lost_after, .. } = seen;
        // Another primary has another disk, whose counters have nothing to do with these.
        let after = if self::primary(watch) == primary { self.device(watch)? } else { None };
        let device = after.zip(before).and_then(|(after, before)| after.rates_since(&before));
        let Reply::Paused { unanswered } = watch.readers.generators.ask(&Command::Pause)? else {
            bail!("expected to hear of the pause");
        };
        // What was answered meanwhile counts with its latency.
        add(&mut books, &watch.readers.generators.cut()?.books)?;
        watch.readers.generators.ask(&Command::Halt)?;
        let books = books.unwrap_or_else(|| Books::new(offered.is_some()));
        let (late, late_generators) = who_was_late(offered.as_ref(), shares, promises)?;
        let trial = FinishedTrial {
            load: request.load,
            duration: request.duration,
            lost_after,
            scheduled: 0,
            late: vec![],
            failed: 0,
            not_sent: 0,
            unfinished: 0,
            generator_late: late,
            late_generators,
            purpose: request.purpose,
            rest: Rest::Unknown,
            rested_for: Duration::ZERO,
            device: device.map(|rates| DeviceUse {
                requests_per_s: rates.reads.0 + rates.writes.0,
                utilization: rates.utilization,
            }),
            canaries: vec![],
        };
        Ok(count(&books, offered.as_ref(), u64::from(unanswered), promises, trial))
    }

    /// Waits until nothing is queued at the disk and the engine holds no more dirty bytes than when it is
    /// idle.
    fn cool_down(&mut self, watch: &mut Watch, quiet: Gauges) -> Result<Rest> {
        let begin = Instant::now();
        loop {
            self.context.interrupt.check()?;
            std::thread::sleep(Duration::from_millis(200));
            let now = self.gauges(watch)?;
            if now.queue <= quiet.queue && now.dirty_bytes <= quiet.dirty_bytes * 1.1 {
                return Ok(Rest::Baseline);
            }
            if begin.elapsed() > REST {
                return Ok(Rest::Restarted);
            }
        }
    }

    /// The counters of the target's disk, in a cluster the primary's.
    fn device(&self, watch: &Watch) -> Result<Option<Counters>> {
        match &watch.cluster {
            Some(running) => primary_disk(running.cluster(), self.clock.origin_ns()),
            None => self.disk_counters(),
        }
    }

    fn gauges(&mut self, watch: &mut Watch) -> Result<Gauges> {
        let sample = watch.readers.generators.sample()?;
        let queue = self.device(watch)?;
        Ok(Gauges {
            queue: queue.map_or(0, |counters| counters.in_flight),
            dirty_bytes: sample.get("engine_dirty_bytes").unwrap_or(0.0),
        })
    }
}

/// How often a trial is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A trial of a search as far as it has come.
struct Seen {
    begin: Instant,
    books: Option<Books>,
    offered: Option<Offered>,
    /// The same for each machine, where several send the load.
    shares: BTreeMap<String, Offered>,
    /// When it could not hold its promises any more.
    lost_after: Option<Duration>,
}

impl Seen {
    fn now() -> Seen {
        let (books, offered, shares, lost_after) = Default::default();
        Seen { begin: Instant::now(), books, offered, shares, lost_after }
    }

    fn add(&mut self, cut: Cut) -> Result<()> {
        add(&mut self.books, &cut.books)?;
        for Share { machine, cut, .. } in cut.shares {
            match (self.shares.get_mut(&machine), cut.offered) {
                (Some(all), Some(more)) => all.append(&more).map_err(anyhow::Error::msg)?,
                (None, Some(first)) => drop(self.shares.insert(machine, first)),
                (_, None) => {}
            }
        }
        match (&mut self.offered, cut.offered) {
            (Some(all), Some(more)) => all.append(&more).map_err(anyhow::Error::msg)?,
            (all, more) => *all = more,
        }
        Ok(())
    }
}

/// What must be back where it was before the next trial.
#[derive(Debug, Clone, Copy)]
struct Gauges {
    queue: u64,
    dirty_bytes: f64,
}

impl Gauges {
    /// WiredTiger cleans up until 5 % of its cache are dirty and leaves the rest to the next checkpoint, so
    /// that much is no burden of a trial.
    const DIRTY_TARGET: f64 = 0.05;

    /// At least what an engine holds that has nothing to do.
    fn or_idle(self, spec: &Spec) -> Gauges {
        let idle = Self::DIRTY_TARGET * spec.cache_bytes().0 as f64;
        Gauges { dirty_bytes: self.dirty_bytes.max(idle), ..self }
    }
}

/// Whether the generator was late, and which of the machines that share the load. One of many is a few of all
/// operations, and its own are wrong all the same.
fn who_was_late(
    offered: Option<&Offered>,
    shares: BTreeMap<String, Offered>,
    promises: &[Promise],
) -> Result<(bool, Vec<String>)> {
    let is_late = |offered: &Offered| generator_was_late(offered, promises).map_err(anyhow::Error::msg);
    let mut late = offered.map(is_late).transpose()?.unwrap_or(false);
    let mut machines = Vec::new();
    for (machine, offered) in shares {
        if is_late(&offered)? {
            late = true;
            machines.push(machine);
        }
    }
    Ok((late, machines))
}

/// Who is primary of the cluster, if there is one.
fn primary(watch: &Watch) -> Option<String> {
    watch.cluster.as_ref().map(|running| running.cluster().primary().to_string())
}

/// Operations that are bad already, for each promise.
fn bad_so_far(books: Option<&Books>, promises: &[Promise]) -> Vec<u64> {
    let bad = |promise: &Promise| {
        books
            .map_or(0, |books| books.failed() + books.done().saturating_sub(books.done_within(promise.limit)))
    };
    promises.iter().map(bad).collect()
}

fn add(all: &mut Option<Books>, more: &tipover_core::measure::BooksText) -> Result<()> {
    let more = Books::from_text(more).map_err(anyhow::Error::msg)?;
    match all {
        Some(all) => all.merge(&more),
        none => *none = Some(more),
    }
    Ok(())
}

fn at_load(request: &Request, scale: Scale) -> String {
    let load = tipover_core::units::significant(request.load, 4);
    let purpose = match request.purpose {
        Purpose::Narrow { .. } => "narrowing",
        Purpose::Below { .. } => "confirming below",
        Purpose::Above { .. } => "confirming above",
        Purpose::Sweep { .. } => "sweeping",
    };
    match scale {
        Scale::OpsPerSecond => format!("{purpose}: {load} ops/s"),
        Scale::Sessions => format!("{purpose}: {load} sessions"),
    }
}
