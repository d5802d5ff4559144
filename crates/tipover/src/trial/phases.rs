//! The phases of a trial that measure: warm up, settle, measure.

use super::cluster;
use super::faults::{Conducted, Times};
use super::watch::{Mark, Readers, Watch};
use super::{Log, Series, WARM_UP_PAUSE};
use crate::agent::{Answer, Command};
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::measure::{Books, CachePoint, KeptUp, Offered, WarmUp, WarmUpRule, Within};
use tipover_core::metric::{Sample, name as metric};
use tipover_core::record::{Cpu, Ends, Interval, Measured};
use tipover_core::units::{Tick, span};

impl Series<'_> {
    /// Runs the workload on the unshaped disk until the caches are at rest. `again`: they were at rest before
    /// another shape was measured, so they need not turn over once more, only be flat.
    pub(super) fn warm_up(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        again: bool,
        log: &mut Log,
    ) -> Result<WarmUp> {
        let begin = self.clock.now();
        let name = if again { "re-warm" } else { "warm-up" };
        if spec.is_served() || spec.workload.kind.is_checked() {
            return self.warm_server(spec, watch, begin, log);
        }
        if spec.target.kind != TargetKind::Wiredtiger {
            self.phase(log, name, begin, "this target caches nothing");
            self.load(spec, watch)?;
            return Ok(WarmUp::Steady("this target caches nothing".into()));
        }
        if spec.trial.cold {
            let evidence = "none: the plan wants the target cold";
            self.phase(log, name, begin, evidence);
            self.load(spec, watch)?;
            return Ok(WarmUp::Steady(evidence.into()));
        }
        self.context.report.doing(name);
        let held = |bytes: f64| if again { 0.0 } else { bytes };
        let engine = spec.effective_cache_bytes().0 as f64;
        let rule = WarmUpRule {
            least: spec.trial.warm_up_least,
            most: spec.trial.warm_up_most,
            engine_cache_bytes: held(engine),
            page_cache_bytes: held(spec.machine.memory.map_or(0.0, |memory| memory.0 as f64 - engine)),
        };
        watch
            .readers
            .agent
            .ask(&Command::Pace { think_ns: WARM_UP_PAUSE.as_nanos() as u64, request_path: false })?;
        let origin = self.mark(watch)?;
        let mut operations = 0;
        let mut points = Vec::new();
        loop {
            let mark = self.interval(spec, name, watch, log)?;
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
            let verdict = rule.judge(&points);
            match &verdict {
                WarmUp::NotYet(reason) => self.context.report.note(reason),
                WarmUp::Steady(evidence) | WarmUp::Never(evidence) => {
                    self.phase(log, name, begin, evidence.clone());
                    self.load(spec, watch)?;
                    return Ok(verdict);
                }
            }
        }
    }

    /// Runs the load against a server for as long as the plan says. How full its caches should be is not
    /// known to us, so the hit ratio is shown and nothing is concluded from it.
    fn warm_server(&self, spec: &Spec, watch: &mut Watch, begin: Tick, log: &mut Log) -> Result<WarmUp> {
        self.context.report.doing("warm-up");
        self.load(spec, watch)?;
        let mut samples: Vec<Sample> = vec![self.mark(watch)?.target];
        while self.clock.now().since(begin) < spec.trial.warm_up_least {
            samples.push(self.interval(spec, "warm-up", watch, log)?.target);
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
            None => format!("{time} of the load, as the plan says; the server told no cache hits in it"),
        };
        self.phase(log, "warm-up", begin, evidence.clone());
        Ok(WarmUp::Steady(evidence))
    }

    /// Loads the target as the plan says.
    pub(super) fn load(&self, spec: &Spec, watch: &mut Watch) -> Result<()> {
        let think_ns = spec.load.think.as_nanos() as u64;
        watch.readers.agent.ask(&match spec.load.arrivals {
            Some(_) => Command::Offer,
            None => Command::Pace { think_ns, request_path: true },
        })?;
        Ok(())
    }

    /// Waits until every session has waited for the shaped device, or the device hardly works.
    pub(super) fn settle(&self, spec: &Spec, watch: &mut Watch, log: &mut Log) -> Result<Mark> {
        self.context.report.doing("settling");
        let begin = self.clock.now();
        // A read that misses makes about eight requests, one after the other.
        let needed = f64::from(spec.load.sessions) * 8.0 * spec.trial.settle_turns;
        let first = match &watch.cluster {
            Some(running) => cluster::primary_disk(running.cluster(), self.clock.origin_ns())?,
            None => self.disk_counters()?,
        };
        let Some(first) = first else {
            let mark = self.interval(spec, "settle", watch, log)?;
            self.phase(log, "settle", begin, "there is no disk of ours to settle");
            return Ok(mark);
        };
        let mut before = first;
        let mut easy = 0;
        loop {
            let mark = self.interval(spec, "settle", watch, log)?;
            let Some(disk) = mark.disk else { return Ok(mark) };
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
            self.phase(log, "settle", begin, evidence);
            return Ok(mark);
        }
    }

    /// Empties the kernel's cache of the disk, if the target has one of ours.
    pub(super) fn drop_caches(&self) -> Result<()> {
        Ok(self.site.mounted().map_or(Ok(()), |disk| disk.drop_caches())?)
    }

    /// Measures until the plan has enough, or, where something is broken, until the schedule is over.
    pub(super) fn measure(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        first: Mark,
        generator_cost_ns: f64,
        log: &mut Log,
    ) -> Result<Measured> {
        self.context.report.doing("measuring");
        let mut course = Course::from(first);
        let mut dropped = Instant::now();
        loop {
            if spec.trial.drop_caches_every.is_some_and(|every| dropped.elapsed() >= every) {
                dropped = Instant::now();
                self.drop_caches()?;
            }
            let mark = self.interval(spec, "measure", watch, log)?;
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
        let evidence = spec.trial.in_words(course.operations(), course.seconds());
        self.measured(spec, course, generator_cost_ns, evidence, log)
    }

    /// Begins nothing more of an open loop, and counts what was not answered.
    fn pause(&self, readers: &mut Readers, course: &mut Course) -> Result<()> {
        if let Some(offered) = &mut course.offered
            && let Answer::Paused { unanswered } = readers.agent.ask(&Command::Pause)?
        {
            offered.unanswered = u64::from(unanswered);
        }
        Ok(())
    }

    /// Measures while the schedule of the cell is carried out on its cluster.
    pub(super) fn measure_under_faults(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        first: Mark,
        (times, generator_cost_ns): (&Times, f64),
        log: &mut Log,
    ) -> Result<(Measured, Conducted)> {
        self.context.report.doing("breaking under load");
        let mut course = Course::from(first);
        let Watch { readers, cluster } = watch;
        let running = cluster.as_mut().expect("only a cluster is broken");
        let length = times.length();
        let conducted = times.conduct(running.cluster_mut(), self.clock, |conducting| -> Result<()> {
            let mut closed = Instant::now();
            loop {
                self.context.interrupt.check()?;
                conducting.tell_writers(&mut readers.agent)?;
                let over = conducting.is_over();
                if closed.elapsed() < spec.trial.interval && !over {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                }
                closed = Instant::now();
                let mark = conducting.look(|nodes| self.read(readers, nodes))?;
                self.log(mark.interval("measure", spec), log);
                conducting.tell_carried(self.context.report);
                course.add(mark)?;
                self.context.report.share(course.started.elapsed().as_secs_f64() / length.as_secs_f64());
                if over {
                    break;
                }
            }
            self.pause(readers, &mut course)?;
            // Whoever is sent nothing more can be brought back in peace.
            readers.agent.ask(&Command::Halt).map(drop)
        })?;
        let (sessions, seconds) = (spec.load.sessions, course.seconds());
        let evidence =
            format!("{sessions} sessions for {seconds:.1} s{}", of_offered(course.offered.as_ref()));
        let measured = self.measured(spec, course, generator_cost_ns, evidence, log)?;
        Ok((measured, conducted))
    }

    /// What a course came to.
    fn measured(
        &self,
        spec: &Spec,
        course: Course,
        generator_cost_ns: f64,
        mut evidence: String,
        log: &mut Log,
    ) -> Result<Measured> {
        let (seconds, operations, begin) = (course.seconds(), course.operations(), course.since());
        let Course { first, last, books, offered, backlog, .. } = course;
        let last = last.unwrap_or_else(|| unreachable!("a phase has an interval"));
        let books = books.unwrap_or_else(Books::closed);
        if let Some(offered) = &offered {
            evidence += &format!("; {}", KeptUp::judge(&backlog, offered.due as f64 / seconds));
        }
        let intervals: Vec<&Interval> = log.series.iter().filter(|i| i.phase == "measure").collect();
        let within = Within::of(&intervals).map_err(anyhow::Error::msg)?;
        self.phase(log, "measure", begin, evidence);
        let path = spec.target.request_path_cpu.as_nanos() as u64;
        let ends = |name: &String, samples: &BTreeMap<String, Sample>| {
            let (first, last) = (samples.clone(), last.nodes.get(name)?.clone());
            Some((name.clone(), Ends { first, last }))
        };
        Ok(Measured {
            begin,
            end: last.cut.end,
            books: books.to_text(),
            offered,
            cpu: Cpu {
                process_ns: last.cut.process_cpu_ns - first.cut.process_cpu_ns,
                sessions_ns: last.cut.sessions_cpu_ns - first.cut.sessions_cpu_ns,
                generator_ns: (operations as f64 * generator_cost_ns) as u64,
                request_path_ns: operations * path,
                disk_ns: last.disk_cpu.saturating_sub(first.disk_cpu).as_nanos() as u64,
            },
            nodes: first.nodes.iter().filter_map(|(name, samples)| ends(name, samples)).collect(),
            disk: first.disk.zip(last.disk).filter(|_| spec.lab.is_none()),
            first: first.samples,
            last: last.samples,
            within: Some(within),
        })
    }
}

/// A measured phase as far as it has come.
struct Course {
    started: Instant,
    first: Mark,
    last: Option<Mark>,
    books: Option<Books>,
    offered: Option<Offered>,
    /// Seconds since its beginning, and operations that were due and not sent then.
    backlog: Vec<(f64, u64)>,
}

impl Course {
    /// One that begins at the end of `first`.
    fn from(first: Mark) -> Course {
        let (books, offered, backlog) = Default::default();
        Course { started: Instant::now(), first, last: None, books, offered, backlog }
    }

    fn add(&mut self, mark: Mark) -> Result<()> {
        let interval = Books::from_text(&mark.cut.books).map_err(anyhow::Error::msg)?;
        match &mut self.books {
            Some(books) => books.merge(&interval),
            none => *none = Some(interval),
        }
        let at = mark.cut.end.since(self.since()).as_secs_f64();
        self.backlog.extend(mark.cut.offered.as_ref().map(|offered| (at, offered.backlog)));
        match (&mut self.offered, &mark.cut.offered) {
            (Some(offered), Some(next)) => offered.append(next).map_err(anyhow::Error::msg)?,
            (none, next) => *none = next.clone(),
        }
        // Nodes that could not be read at the end were last seen before.
        self.last = Some(match self.last.take().filter(|_| mark.nodes.is_empty()) {
            Some(Mark { nodes, disk_cpu, .. }) => Mark { nodes, disk_cpu, ..mark },
            None => mark,
        });
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
