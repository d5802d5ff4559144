//! The phases in which time passes: warm up, settle, measure.

use super::cluster;
use super::faults::{Begun, Conducted, Conducting, Times};
use super::generators::Shares;
use super::tenants::TenantCounts;
use super::watch::{Mark, Readers, Watch};
use super::world::{AtWork, RealWorld};
use crate::generator::{Command, Reply};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tipover_core::experiment::{Spec, TargetKind, Trial};
use tipover_core::measure::{Books, CachePoint, KeptUp, Offered, WarmUp, WarmUpRule, Within};
use tipover_core::metric::{Sample, name as metric};
use tipover_core::record::{Cpu, Ends, Interval, Measured, Phase};
use tipover_core::trial::Draft;
use tipover_core::units::{Tick, span};
use tipover_disk::Disk;
use tipover_lab::Node;

/// Pause of a session between operations while warming up, in place of the request path. A session behind a
/// slow disk waits most of the time, and the engine's eviction has the processors to itself; warmed up at
/// full speed the engine's cache would be fuller than eviction lets it be later, and the page cache would
/// hold what goes with that.
const WARM_UP_PAUSE: Duration = Duration::from_micros(500);

/// Whether the load is a record: it begins with what is measured, and once, because it has one beginning.
fn is_recorded(spec: &Spec) -> bool {
    spec.workload.scripts.as_ref().is_some_and(|scripts| scripts.recorded.is_some())
}

/// Whether the server may count what the load sends, statement by statement.
fn asks_for_statements(spec: &Spec) -> bool {
    let counts = matches!(spec.target.kind, TargetKind::Postgres | TargetKind::Mysql);
    counts && spec.workload.scripts.is_some() && !is_recorded(spec)
}

impl RealWorld<'_> {
    /// Starts the sessions and runs the workload on the unshaped disk until the caches are at rest.
    pub(super) fn warm_up(&self, spec: &Spec, watch: &mut Watch, draft: &mut Draft) -> Result<String> {
        let history = self.history();
        watch.readers.generators.ask(&Command::Run { load: None, seed: None, history })?;
        self.warm(spec, watch, Phase::WarmUp, draft)
    }

    /// The same with sessions that paused. The caches were at rest before another shape was measured, so they
    /// need not turn over once more, only be flat.
    pub(super) fn warm_up_again(&self, spec: &Spec, watch: &mut Watch, draft: &mut Draft) -> Result<String> {
        self.warm(spec, watch, Phase::ReWarm, draft)
    }

    fn warm(&self, spec: &Spec, watch: &mut Watch, phase: Phase, draft: &mut Draft) -> Result<String> {
        let warm_up = if spec.is_warmed_for_a_time() {
            self.warm_for_a_time(spec, watch, phase, draft)?
        } else if spec.target.kind != TargetKind::Wiredtiger {
            WarmUp::Steady("this target caches nothing".into())
        } else if spec.trial.cold {
            WarmUp::Steady("none: the plan wants the target cold".into())
        } else {
            self.warm_caches(spec, watch, phase, draft)?
        };
        if !is_recorded(spec) {
            self.load(spec, watch)?;
        }
        let evidence = match &warm_up {
            WarmUp::Steady(evidence) | WarmUp::Never(evidence) | WarmUp::NotYet(evidence) => evidence.clone(),
        };
        draft.warm_up = Some(warm_up);
        Ok(evidence)
    }

    /// Runs the workload until the caches of the engine and of the kernel are at rest.
    fn warm_caches(&self, spec: &Spec, watch: &mut Watch, phase: Phase, draft: &mut Draft) -> Result<WarmUp> {
        let begin = self.clock.now();
        self.context.report.doing(phase.name());
        let held = |bytes: f64| if phase == Phase::ReWarm { 0.0 } else { bytes };
        let engine = spec.effective_cache_bytes().0 as f64;
        let rule = WarmUpRule {
            least: spec.trial.warm_up_least,
            most: spec.trial.warm_up_most,
            engine_cache_bytes: held(engine),
            page_cache_bytes: held(spec.machine.memory.map_or(0.0, |memory| memory.0 as f64 - engine)),
        };
        watch
            .readers
            .generators
            .ask(&Command::Pace { think_ns: WARM_UP_PAUSE.as_nanos() as u64, request_path: false })?;
        let origin = self.mark(watch)?;
        let mut operations = 0;
        let mut points = Vec::new();
        loop {
            let mark = self.interval(spec, phase, watch, draft)?;
            operations += mark.cut.books.done();
            let grown = |name: &str| mark.cut.target.growth(&origin.cut.target, name).unwrap_or(0.0);
            points.push(CachePoint {
                at: self.clock.now().since(begin),
                operations,
                engine_misses: grown(metric::ENGINE_PAGE_READS),
                engine_read_bytes: grown(metric::ENGINE_FILE_READ_BYTES),
                // Where the kernel's cache is dropped before it is measured, how full it was is of no matter.
                device_read_bytes: mark
                    .disk
                    .zip(origin.disk)
                    .filter(|_| spec.trial.drop_caches_every.is_none())
                    .map_or(0.0, |(now, then)| (now.read.bytes.0 - then.read.bytes.0) as f64),
            });
            match rule.judge(&points) {
                WarmUp::NotYet(reason) => self.context.report.note(&reason),
                verdict => return Ok(verdict),
            }
        }
    }

    /// Runs the load for as long as the plan says: against a server, or through the page cache. How full
    /// caches should be is not known to us there, so a hit ratio is shown and nothing is concluded from it.
    fn warm_for_a_time(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        phase: Phase,
        draft: &mut Draft,
    ) -> Result<WarmUp> {
        self.context.report.doing(phase.name());
        let begin = self.clock.now();
        if !is_recorded(spec) {
            self.load(spec, watch)?;
        }
        let mut samples: Vec<Sample> = vec![self.mark(watch)?.target];
        while self.clock.now().since(begin) < spec.trial.warm_up_least {
            samples.push(self.interval(spec, phase, watch, draft)?.target);
        }
        let hits = |from: &Sample, to: &Sample| {
            let requests =
                to.growth(from, metric::ENGINE_PAGE_REQUESTS).filter(|requests| *requests > 0.0)?;
            Some(100.0 * (1.0 - to.growth(from, metric::ENGINE_PAGE_READS)? / requests))
        };
        let middle = &samples[samples.len() / 2];
        let halves = hits(&samples[0], middle).zip(hits(middle, &samples[samples.len() - 1]));
        let time = span::rounded(self.clock.now().since(begin));
        let evidence = match halves {
            Some((first, second)) => format!(
                "{time} of the load, as the plan says; the engine's cache served {first:.2} % of the pages in the \
                 first half and {second:.2} % in the second"
            ),
            None => format!("{time} of the load, as the plan says; nobody told cache hits in it"),
        };
        Ok(WarmUp::Steady(evidence))
    }

    /// Loads the target as the plan says.
    pub(super) fn load(&self, spec: &Spec, watch: &mut Watch) -> Result<()> {
        let think_ns = spec.load.think.as_nanos() as u64;
        watch.readers.generators.ask(&match spec.load.arrivals {
            Some(_) => Command::Offer,
            None => Command::Pace { think_ns, request_path: true },
        })?;
        Ok(())
    }

    /// Waits until every session has waited for the shaped device, or the device hardly works.
    pub(super) fn settle(&self, spec: &Spec, watch: &mut Watch, draft: &mut Draft) -> Result<(Mark, String)> {
        self.context.report.doing("settling");
        let begin = self.clock.now();
        // A read that misses makes about eight requests, one after the other.
        let needed = f64::from(spec.load.sessions) * 8.0 * spec.trial.settle_turns;
        let first = match &watch.cluster {
            Some(running) => cluster::primary_disk(running.cluster(), self.clock.origin_ns())?,
            None => self.disk_counters()?,
        };
        let Some(first) = first else {
            let mark = self.interval(spec, Phase::Settle, watch, draft)?;
            return Ok((mark, "there is no disk of ours to settle".into()));
        };
        let mut before = first;
        let mut easy = 0;
        loop {
            let mark = self.interval(spec, Phase::Settle, watch, draft)?;
            let Some(disk) = mark.disk else { return Ok((mark, "the disk is gone".into())) };
            let served = (disk.read.requests - first.read.requests) as f64;
            let busy = disk.rates_since(&before).map_or(0.0, |rates| rates.utilization.0);
            easy = if busy < 0.5 { easy + 1 } else { 0 };
            before = disk;
            self.context.report.share(served / needed);
            let waited = self.clock.now().since(begin);
            let evidence = if served >= needed {
                format!("the shaped device answered {served:.0} requests, {needed:.0} were needed")
            } else if easy >= 2 {
                format!(
                    "the shaped device was busy {:.0} % of the time: there is no queue to settle",
                    busy * 100.0
                )
            } else if waited >= spec.trial.settle_most {
                format!(
                    "{served:.0} of {needed:.0} requests after {}: not waited longer",
                    span::rounded(waited)
                )
            } else {
                continue;
            };
            return Ok((mark, evidence));
        }
    }

    /// Empties the kernel's cache of the target's disks that are ours.
    pub(super) fn drop_caches(&self, watch: &Watch) -> Result<()> {
        let nodes = watch.cluster.iter().flat_map(|running| running.cluster().nodes());
        let mut disks = self.site.mounted().into_iter().chain(nodes.filter_map(Node::disk));
        Ok(disks.try_for_each(Disk::drop_caches)?)
    }

    /// What the trial is for, with its recording and its faults.
    pub(super) fn measure(
        &mut self,
        trial: &Trial<'_>,
        target: &mut AtWork,
        draft: &mut Draft,
    ) -> Result<String> {
        let spec = &trial.cell.spec;
        let recording = self.begin_recording(spec)?;
        let first = match (target.first.take(), &target.begun) {
            // What sessions sent to warm up belongs to no record, and so to no figure.
            (Some(_), _) if is_recorded(spec) => {
                target.watch.readers.generators.ask(&Command::Pause)?;
                let first = self.mark(&mut target.watch)?;
                self.load(spec, &mut target.watch)?;
                Some(first)
            }
            (Some(first), _) => Some(first),
            // Nothing was warm to begin with, so the sessions begin here.
            (None, None) => {
                target.watch.readers.generators.ask(&self.at_once(spec))?;
                Some(self.mark(&mut target.watch)?)
            }
            // And under faults that have begun already.
            (None, Some(_)) => None,
        };
        let cost_ns = target.generator_cost_ns;
        let (measured, evidence) = match (&spec.breaking, &target.watch.cluster) {
            (Some(breaking), Some(running)) => {
                let draws = (trial.repeat, trial.seed(self.context.seed));
                let begun = match target.begun.take() {
                    Some(begun) => begun,
                    None => Times::of(spec, breaking, breaking.length, draws, running.cluster())?.begin(),
                };
                let course = self.under_faults(spec, &mut target.watch, first, begun, draft)?;
                target.conducted = Some(course.1);
                let mut evidence = format!("{} sessions for {:.1} s", spec.load.sessions, course.0.seconds());
                evidence += &of_offered(course.0.offered.as_ref());
                measured(spec, course.0, cost_ns, &mut target.watch.readers, evidence, draft)?
            }
            _ => {
                let first = first.context("the sessions began before")?;
                let readers = &mut target.watch.readers;
                let asks = asks_for_statements(spec);
                // From here on the server's counts are those of this phase.
                asks.then(|| readers.generators.ask(&Command::Statements)).transpose()?;
                let course = self.in_peace(spec, &mut target.watch, first, draft)?;
                let readers = &mut target.watch.readers;
                let told = asks.then(|| readers.generators.ask(&Command::Statements)).transpose()?;
                let evidence = spec.trial.in_words(course.operations(), course.seconds());
                let mut measured = measured(spec, course, cost_ns, readers, evidence, draft)?;
                if let Some(Reply::Statements(times)) = told {
                    measured.0.server_times = Some(times);
                }
                measured
            }
        };
        if let Some(huge) = target.watch.readers.generators.huge_pages() {
            self.facts.target.insert("huge_pages_bytes".into(), huge.0.into());
        }
        self.accesses = recording.map(|recording| self.end_recording(recording)).transpose()?;
        draft.measured = Some(measured);
        Ok(evidence)
    }

    /// Measures until the plan has enough.
    fn in_peace(&self, spec: &Spec, watch: &mut Watch, first: Mark, draft: &mut Draft) -> Result<Course> {
        self.context.report.doing("measuring");
        let mut course = Course::from(first, spec.load.sessions);
        let mut dropped = Instant::now();
        loop {
            if spec.trial.drop_caches_every.is_some_and(|every| dropped.elapsed() >= every) {
                dropped = Instant::now();
                self.drop_caches(watch)?;
            }
            let mark = self.interval(spec, Phase::Measure, watch, draft)?;
            course.add(mark)?;
            let (elapsed, trial) = (course.started.elapsed(), &spec.trial);
            let operations = course.operations();
            let share = operations as f64 / trial.measure_operations as f64;
            self.context.report.share(share.min(elapsed.as_secs_f64() / trial.measure_least.as_secs_f64()));
            let enough = elapsed >= trial.measure_least && operations >= trial.measure_operations;
            if enough || elapsed >= trial.measure_most {
                break;
            }
        }
        self.pause(&mut watch.readers, &mut course)?;
        Ok(course)
    }

    /// Begins nothing more of an open loop, and counts what was not answered.
    fn pause(&self, readers: &mut Readers, course: &mut Course) -> Result<()> {
        if let Some(offered) = &mut course.offered
            && let Reply::Paused { unanswered } = readers.generators.ask(&Command::Pause)?
        {
            offered.unanswered = u64::from(unanswered);
        }
        Ok(())
    }

    /// Starts the sessions with the load of the cell, on a target that is not warmed up.
    fn at_once(&self, spec: &Spec) -> Command {
        Command::Run { load: Some(Box::new(spec.load.clone())), seed: None, history: self.history() }
    }

    /// Measures while the schedule of the cell is carried out on its cluster; without `first` the sessions
    /// begin then.
    fn under_faults(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        first: Option<Mark>,
        begun: Begun,
        draft: &mut Draft,
    ) -> Result<(Course, Conducted)> {
        self.context.report.doing("breaking under load");
        let mut course = first.map(|first| Course::from(first, spec.load.sessions));
        let Watch { readers, cluster } = watch;
        let cluster = cluster.as_mut().context("only a cluster is broken")?.cluster_mut();
        let length = begun.left();
        let begun = begun.conduct(cluster, self.clock, |conducting| -> Result<()> {
            if course.is_none() {
                readers.generators.ask(&self.at_once(spec))?;
                course = Some(Course::from(self.seen_first(readers, conducting)?, spec.load.sessions));
            }
            let course = course.as_mut().context("the sessions have begun")?;
            let mut closed = Instant::now();
            loop {
                self.context.interrupt.check()?;
                conducting.tell_writers(&mut readers.generators)?;
                let over = conducting.is_over();
                if closed.elapsed() < spec.trial.interval && !over {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                }
                closed = Instant::now();
                let mark = conducting.look(|nodes| self.read(readers, nodes))?;
                self.log(mark.interval(Phase::Measure, spec), draft);
                conducting.tell_carried(self.context.report);
                course.add(mark)?;
                self.context.report.share(course.started.elapsed().as_secs_f64() / length.as_secs_f64());
                if over {
                    break;
                }
            }
            self.pause(readers, course)?;
            // Whoever is sent nothing more can be brought back in peace.
            readers.generators.ask(&Command::Halt).map(drop)
        })?;
        let conducted = begun.end(cluster, self.clock);
        Ok((course.context("the sessions have begun")?, conducted))
    }

    /// The first look at everything, for which no fault may be in force.
    fn seen_first(&self, readers: &mut Readers, conducting: &Conducting<'_, '_>) -> Result<Mark> {
        loop {
            conducting.tell_writers(&mut readers.generators)?;
            let mark = conducting.look(|nodes| self.read(readers, nodes))?;
            if mark.is_whole || conducting.is_over() {
                return Ok(mark);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What a course came to, and its evidence.
fn measured(
    spec: &Spec,
    course: Course,
    generator_cost_ns: f64,
    readers: &mut Readers,
    mut evidence: String,
    draft: &Draft,
) -> Result<(Measured, String)> {
    let (seconds, operations, begin) = (course.seconds(), course.operations(), course.since());
    let clocks = readers.generators.offsets()?;
    readers.tenants.rest()?;
    let Course { first, last, books, offered, shares, tenants, backlog, .. } = course;
    let last = last.unwrap_or_else(|| unreachable!("a phase has an interval"));
    let books = books.unwrap_or_else(Books::closed);
    let kept_up = offered.as_ref().map(|offered| KeptUp::judge(&backlog, offered.due as f64 / seconds));
    if let Some(kept_up) = kept_up {
        evidence += &format!("; {kept_up}");
    }
    let intervals: Vec<&Interval> = draft.series.iter().filter(|i| i.phase == Phase::Measure).collect();
    let within = Within::of(&intervals).map_err(anyhow::Error::msg)?;
    let path = spec.target.request_path_cpu.as_nanos() as u64;
    let ends = |name: &String, samples: &BTreeMap<String, Sample>| {
        let (first, last) = (samples.clone(), last.nodes.get(name)?.clone());
        Some((name.clone(), Ends { first, last }))
    };
    let measured = Measured {
        begin,
        end: last.cut.end,
        books: books.to_text(),
        offered,
        kept_up,
        cpu: Cpu {
            process_ns: last.cut.process_cpu_ns - first.cut.process_cpu_ns,
            sessions_ns: last.cut.sessions_cpu_ns - first.cut.sessions_cpu_ns,
            generator_ns: (operations as f64 * generator_cost_ns) as u64,
            request_path_ns: operations * path,
            disk_ns: last.disk_cpu.saturating_sub(first.disk_cpu).as_nanos() as u64,
        },
        machines: shares.into_machines(&clocks)?,
        tenants: readers.tenants.record(tenants),
        nodes: first.nodes.iter().filter_map(|(name, samples)| ends(name, samples)).collect(),
        disk: first.disk.zip(last.disk).filter(|_| spec.lab.is_none()),
        first: first.samples,
        last: last.samples,
        server_times: None,
        within: Some(within),
    };
    Ok((measured, evidence))
}

/// A measured phase as far as it has come.
struct Course {
    started: Instant,
    first: Mark,
    last: Option<Mark>,
    books: Option<Books>,
    offered: Option<Offered>,
    shares: Shares,
    tenants: TenantCounts,
    /// Seconds since its beginning, and operations that were due and not sent then.
    backlog: Vec<(f64, u64)>,
}

impl Course {
    /// One that begins at the end of `first`, of a load with this number of sessions.
    fn from(first: Mark, sessions: u32) -> Course {
        let (books, offered, backlog, tenants) = Default::default();
        let shares = Shares::from(&first.cut, sessions);
        Course { started: Instant::now(), first, last: None, books, offered, shares, tenants, backlog }
    }

    fn add(&mut self, mut mark: Mark) -> Result<()> {
        let interval = Books::from_text(&mark.cut.books).map_err(anyhow::Error::msg)?;
        match &mut self.books {
            Some(books) => books.merge(&interval),
            none => *none = Some(interval),
        }
        self.shares.add(&mark.cut)?;
        let at = mark.cut.end.since(self.since()).as_secs_f64();
        self.backlog.extend(mark.cut.offered.as_ref().map(|offered| (at, offered.backlog)));
        match (&mut self.offered, &mark.cut.offered) {
            (Some(offered), Some(next)) => offered.append(next).map_err(anyhow::Error::msg)?,
            (none, next) => *none = next.clone(),
        }
        self.tenants.add(&self.first.tenants, std::mem::take(&mut mark.tenants))?;
        // What could not be read at the end was last seen before.
        for (name, before) in self.last.iter_mut().flat_map(|last| std::mem::take(&mut last.nodes)) {
            let now = mark.nodes.entry(name).or_default();
            for (probe, sample) in before {
                now.entry(probe).or_insert(sample);
            }
        }
        self.last = Some(mark);
        Ok(())
    }

    /// Where it begins: at the end of what was read first.
    fn since(&self) -> Tick {
        self.first.cut.end
    }

    fn operations(&self) -> u64 {
        self.books.as_ref().map_or(0, Books::done)
    }

    fn seconds(&self) -> f64 {
        self.last.as_ref().map_or(0.0, |last| last.cut.end.since(self.since()).as_secs_f64())
    }
}

/// What an open loop was to send and did not, for its evidence.
fn of_offered(offered: Option<&Offered>) -> String {
    offered.map_or_else(String::new, |offered| {
        let late = offered.lateness().map_or(0, |lateness| lateness.value_at_quantile(0.99));
        format!(
            "; {} operations were due, {} were sent, {} waited for a session at the end, {} had no answer; the \
             generator was late by {:.3} ms at p99",
            offered.due,
            offered.begun,
            offered.backlog,
            offered.unanswered,
            late as f64 / 1e6
        )
    })
}
