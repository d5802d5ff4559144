//! One trial: load → settle → warm up → shape → settle → measure → record.

mod agent_process;
mod site;
mod verdict;

pub use site::{Site, data_key};

use crate::agent::{Answer, Command, Cut};
use crate::clock::Clock;
use crate::machine;
use crate::probe::{self, Probe};
use agent_process::AgentProcess;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tipover_core::device::{Counters, Spec as DeviceSpec};
use tipover_core::experiment::{Spec, TargetKind, Trial};
use tipover_core::measure::{CachePoint, Latencies, WarmUp, WarmUpRule};
use tipover_core::metric::{Sample, name as metric, probe as probes};
use tipover_core::record::{Cpu, FORMAT, Interval, Measured, Phase, Provenance, Record, Verdict};
use tipover_core::target::Facts;
use tipover_core::units::{Tick, span};
use tipover_lab::{Group, Limits};

/// Hears what a trial is doing, for people who wait.
pub trait Report {
    /// A new phase begins.
    fn doing(&self, what: &str);
    /// How much of the phase is done, 0..1.
    fn share(&self, done: f64);
    /// A sentence about how it goes.
    fn note(&self, text: &str);
}

/// Set by signals, asked by everything that waits.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(pub Arc<AtomicBool>);

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    /// An error when the user asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// What is the same for all trials of a run.
pub struct Surroundings<'a> {
    /// The experiment's name and seed.
    pub experiment: &'a str,
    /// Seed of the experiment.
    pub seed: u64,
    /// The command line.
    pub command: &'a str,
    /// The folder for mount points and images.
    pub work: &'a Path,
    /// Requirements of the machine that are missed, as sentences.
    pub missed: &'a [String],
    /// Hears of progress.
    pub report: &'a dyn Report,
    /// Stops it.
    pub interrupt: &'a Interrupt,
}

/// Carries out a trial. A trial that the laboratory could not carry out is a record too, with its reason; only an
/// interrupt is an error.
pub fn carry_out(
    site: &mut Site,
    trial: &Trial<'_>,
    context: &Surroundings<'_>,
) -> Result<(Record, Vec<Interval>)> {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let facts = machine::Facts::read(context.work);
    let mut record = Record {
        format: FORMAT,
        experiment: context.experiment.into(),
        sweep: trial.cell.sweep.clone(),
        cell: trial.cell.id(),
        labels: trial.cell.labels.clone(),
        repeat: trial.repeat,
        seed: trial.seed(context.seed),
        spec: trial.cell.spec.clone(),
        provenance: Provenance {
            command: context.command.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("TIPOVER_COMMIT").into(),
            started_unix_s: started.as_secs(),
        },
        verdict: Verdict::Valid,
        machine: serde_json::to_value(&facts)?,
        missed: context.missed.to_vec(),
        target: Facts::new(),
        disk: Facts::new(),
        phases: vec![],
        measured: None,
    };
    let mut series = Vec::new();
    let result =
        Attempt { site, context, clock: Clock::start(), record: &mut record, series: &mut series }.run();
    if let Err(error) = result {
        if error.is::<Interrupted>() {
            return Err(error);
        }
        record.verdict = Verdict::Failed { reason: format!("{error:#}") };
        record.measured = None;
    }
    Ok((record, series))
}

struct Attempt<'a> {
    site: &'a mut Site,
    context: &'a Surroundings<'a>,
    clock: Clock,
    record: &'a mut Record,
    series: &'a mut Vec<Interval>,
}

/// The end of an interval: what the agent and all probes said.
struct Mark {
    cut: Cut,
    samples: BTreeMap<String, Sample>,
    disk: Counters,
    disk_cpu: Duration,
}

/// Everything that is read at the end of an interval.
struct Watch {
    agent: AgentProcess,
    probes: Vec<(&'static str, Box<dyn Probe>)>,
}

impl Attempt<'_> {
    fn run(&mut self) -> Result<()> {
        let spec = self.record.spec.clone();
        let shape = spec.shape()?;
        let begin = self.clock.now();
        let (folder, loaded) = self.site.data(&spec, self.context.report, self.context.interrupt)?;
        self.phase("load", begin, "all records written, checkpointed, and dropped from the page cache");
        let calibration = self.site.calibrate(&shape)?;
        self.record.disk = self.disk_facts(&shape, calibration)?;

        let group = self.group(&spec)?;
        self.context.report.doing("starting the target");
        let mut agent = AgentProcess::start(group.as_ref())?;
        let seed = self.record.seed;
        let answer = agent.ask(&Command::Start {
            spec: Box::new(spec.clone()),
            folder,
            seed,
            origin_ns: self.clock.origin_ns(),
        })?;
        let Answer::Started { facts, generator_cost_ns, .. } = answer else {
            bail!("expected to hear of the start, got {answer:?}");
        };
        self.record.target = facts;
        self.record.target.extend(loaded.into_iter().map(|(key, value)| (format!("loaded_{key}"), value)));
        self.record.target.insert("generator_cost_ns_per_operation".into(), generator_cost_ns.into());
        let mut watch = Watch { probes: self.probes(&agent, group.as_ref()), agent };
        watch.agent.ask(&Command::Run)?;

        let warm_up = self.warm_up(&spec, &mut watch)?;
        self.disk()?.set_spec(&shape)?;
        let first = self.settle(&spec, &mut watch)?;
        let measured = self.measure(&spec, &mut watch, first, generator_cost_ns)?;
        // Unshaped again, so that the sessions' last operations do not wait for a slow disk.
        self.disk()?.set_spec(&DeviceSpec::default())?;
        watch.agent.ask(&Command::Halt)?;
        watch.agent.stop()?;
        if let Some(group) = &group
            && let Ok(kills @ 1..) = group.oom_kills()
        {
            bail!(
                "the kernel killed {kills} processes of the target for want of memory: give machine.memory more"
            );
        }
        self.record.verdict = verdict::judge(&spec, &measured, &warm_up, group.is_some());
        self.record.measured = Some(measured);
        Ok(())
    }

    fn disk(&self) -> Result<&tipover_disk::Disk> {
        self.site.mounted().context("no disk is mounted")
    }

    fn disk_facts(&self, shape: &DeviceSpec, calibration: serde_json::Value) -> Result<Facts> {
        let disk = self.disk()?;
        let (latency, iops) = disk.transport_floor();
        let mut facts = Facts::from([
            ("configured".into(), shape.to_string().into()),
            ("mode".into(), serde_json::to_value(disk.options().mode)?),
            ("calibration".into(), calibration),
            ("transport_latency_ns".into(), (latency.as_nanos() as u64).into()),
            ("transport_iops".into(), iops.0.into()),
        ]);
        if let Some(device) = disk.block_device() {
            facts.insert("block_device".into(), device.display().to_string().into());
        }
        Ok(facts)
    }

    /// The memory group of the target; `None`, with the reason kept, where this machine cannot have one.
    fn group(&mut self, spec: &Spec) -> Result<Option<Arc<Group>>> {
        let Some(memory) = spec.machine.memory else { return Ok(None) };
        match Group::create("target", &Limits::memory(memory.0)) {
            Ok(group) => Ok(Some(Arc::new(group))),
            Err(error) => {
                self.record.missed.push(format!("memory is not bounded to {}: {error}", memory.rounded()));
                Ok(None)
            }
        }
    }

    fn probes(
        &mut self,
        agent: &AgentProcess,
        group: Option<&Arc<Group>>,
    ) -> Vec<(&'static str, Box<dyn Probe>)> {
        let mut probes: Vec<(&'static str, Box<dyn Probe>)> = Vec::new();
        let mut missing = Vec::new();
        let mut add = |name, probe: Result<Box<dyn Probe>, probe::NotAvailable>| match probe {
            Ok(probe) => {
                missing.extend(probe.missing().iter().map(ToString::to_string));
                probes.push((name, probe));
            }
            Err(reason) => missing.push(reason.to_string()),
        };
        fn boxed<P: Probe + 'static>(probe: P) -> Box<dyn Probe> {
            Box::new(probe)
        }
        add(probes::PROCESS, probe::Processes::given(&[agent.id()]).map(boxed));
        if let Some(device) = self.site.mounted().and_then(|disk| disk.block_device()) {
            let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
            add(probes::DEVICE, probe::Device::named(&name).map(boxed));
        }
        if let Some(group) = group {
            add(probes::GROUP, probe::GroupUse::of(group).map(boxed));
        }
        add(probes::PRESSURE, probe::Pressure::of_system().map(boxed));
        add(probes::SYSTEM, probe::System::open().map(boxed));
        self.record.missed.extend(missing);
        probes
    }

    /// Reads everything, the witnesses of the read budget first and close together.
    fn mark(&self, watch: &mut Watch) -> Result<Mark> {
        let cut = watch.agent.cut()?;
        let mut samples = BTreeMap::from([(probes::TARGET.to_string(), cut.target.clone())]);
        let mut disk = None;
        for (name, probe) in &mut watch.probes {
            if disk.is_none() && ![probes::PROCESS, probes::DEVICE].contains(name) {
                disk = Some(self.disk_counters()?);
            }
            let sample = probe.sample(&|| self.clock.now()).with_context(|| format!("the {name} probe"))?;
            samples.insert(name.to_string(), sample);
        }
        let disk = disk.map_or_else(|| self.disk_counters(), Ok)?;
        Ok(Mark { cut, samples, disk, disk_cpu: self.disk()?.daemon_cpu()? })
    }

    /// The disk's counters, their moment on the trial clock.
    fn disk_counters(&self) -> Result<Counters> {
        let counters = self.disk()?.counters()?;
        Ok(Counters { at: Tick(counters.at.0.saturating_sub(self.clock.origin_ns())), ..counters })
    }

    /// Waits for one interval and closes it.
    fn interval(&mut self, phase: &str, watch: &mut Watch) -> Result<Mark> {
        self.context.interrupt.check()?;
        std::thread::sleep(self.record.spec.trial.interval);
        let mark = self.mark(watch)?;
        self.series.push(Interval {
            phase: phase.into(),
            begin: mark.cut.begin,
            end: mark.cut.end,
            operations: mark.cut.operations,
            failures: mark.cut.failures.clone(),
            latency: mark.cut.latency.clone(),
            samples: mark.samples.clone(),
            disk: Some(mark.disk),
        });
        Ok(mark)
    }

    fn phase(&mut self, name: &str, begin: Tick, evidence: impl Into<String>) {
        let phase = Phase { name: name.into(), begin, end: self.clock.now(), evidence: evidence.into() };
        self.record.phases.push(phase);
    }

    /// Runs the workload on the unshaped disk until the caches are at rest.
    fn warm_up(&mut self, spec: &Spec, watch: &mut Watch) -> Result<WarmUp> {
        let begin = self.clock.now();
        if spec.target.kind != TargetKind::Wiredtiger {
            let verdict = WarmUp::Steady("this target caches nothing".into());
            self.phase("warm-up", begin, "this target caches nothing");
            return Ok(verdict);
        }
        self.context.report.doing("warming up");
        let rule = WarmUpRule {
            least: spec.trial.warm_up_least,
            most: spec.trial.warm_up_most,
            cache_bytes: spec.effective_cache_bytes().0 as f64,
        };
        let origin = self.mark(watch)?;
        let mut operations = 0;
        let mut points = Vec::new();
        loop {
            let mark = self.interval("warm-up", watch)?;
            operations += mark.cut.operations;
            let grown = |name: &str| mark.cut.target.growth(&origin.cut.target, name).unwrap_or(0.0);
            points.push(CachePoint {
                at: self.clock.now().since(begin),
                operations,
                engine_misses: grown(metric::ENGINE_PAGE_READS),
                engine_read_bytes: grown(metric::ENGINE_FILE_READ_BYTES),
                device_read_bytes: (mark.disk.read.bytes.0 - origin.disk.read.bytes.0) as f64,
            });
            let verdict = rule.judge(&points);
            match &verdict {
                WarmUp::NotYet(reason) => self.context.report.note(reason),
                WarmUp::Steady(evidence) | WarmUp::Never(evidence) => {
                    self.phase("warm-up", begin, evidence.clone());
                    return Ok(verdict);
                }
            }
        }
    }

    /// Waits until every session has waited for the shaped device, or the device hardly works.
    fn settle(&mut self, spec: &Spec, watch: &mut Watch) -> Result<Mark> {
        self.context.report.doing("settling");
        let begin = self.clock.now();
        // A read that misses makes about eight requests, one after the other.
        let needed = f64::from(spec.load.sessions) * 8.0 * spec.trial.settle_turns;
        let first = self.disk_counters()?;
        let mut before = first;
        let mut easy = 0;
        loop {
            let mark = self.interval("settle", watch)?;
            let served = (mark.disk.read.requests - first.read.requests) as f64;
            let busy = mark.disk.rates_since(&before).map_or(0.0, |rates| rates.utilization.0);
            easy = if busy < 0.5 { easy + 1 } else { 0 };
            before = mark.disk;
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
            self.phase("settle", begin, evidence);
            return Ok(mark);
        }
    }

    fn measure(
        &mut self,
        spec: &Spec,
        watch: &mut Watch,
        first: Mark,
        generator_cost_ns: f64,
    ) -> Result<Measured> {
        self.context.report.doing("measuring");
        let begin = first.cut.end;
        let started = Instant::now();
        let (mut operations, mut failures) = (0, BTreeMap::new());
        let mut latencies = Latencies::closed();
        let last = loop {
            let mark = self.interval("measure", watch)?;
            operations += mark.cut.operations;
            for (failure, count) in &mark.cut.failures {
                *failures.entry(*failure).or_default() += count;
            }
            let interval = Latencies::from_text(&mark.cut.latency).map_err(anyhow::Error::msg)?;
            latencies.merge(&interval);
            let (elapsed, trial) = (started.elapsed(), &spec.trial);
            let share = operations as f64 / trial.measure_operations as f64;
            self.context.report.share(share.min(elapsed.as_secs_f64() / trial.measure_least.as_secs_f64()));
            let enough = elapsed >= trial.measure_least && operations >= trial.measure_operations;
            if enough || elapsed >= trial.measure_most {
                break mark;
            }
        };
        let seconds = last.cut.end.since(begin).as_secs_f64();
        self.phase("measure", begin, format!("{operations} operations in {seconds:.1} s"));
        let path = spec.target.request_path_cpu.as_nanos() as u64;
        Ok(Measured {
            begin,
            end: last.cut.end,
            operations,
            failures,
            latency: latencies.to_text(),
            cpu: Cpu {
                process_ns: last.cut.process_cpu_ns - first.cut.process_cpu_ns,
                sessions_ns: last.cut.sessions_cpu_ns - first.cut.sessions_cpu_ns,
                generator_ns: (operations as f64 * generator_cost_ns) as u64,
                request_path_ns: operations * path,
                disk_ns: (last.disk_cpu - first.disk_cpu).as_nanos() as u64,
            },
            first: first.samples,
            last: last.samples,
            disk: Some((first.disk, last.disk)),
        })
    }
}
