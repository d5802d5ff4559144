//! One trial, wherever its target runs: load → warm up → shape → settle → measure, while faults are carried
//! out where there are any → recover → read back → judge → record.

mod agent_process;
mod cluster;
mod faults;
mod neighbour;
mod phases;
mod recording;
mod search;
mod site;
mod verdict;
mod watch;

pub use crate::interrupt::{Interrupt, Interrupted};
pub use cluster::binaries;
pub use neighbour::home;
pub use search::{planned, search};
pub use site::{Site, data_key, mount_options};

use crate::agent::{Answer, Command, Servers};
use crate::clock::Clock;
use crate::history;
use crate::machine;
use crate::probe;
use crate::store::{self, Kept};
use agent_process::AgentProcess;
use anyhow::{Context, Result, bail};
use cluster::{NodeWatch, Running};
use faults::Times;
use site::bring_records;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tipover_core::check::{Carried, Check, Judgement};
use tipover_core::device::Spec as DeviceSpec;
use tipover_core::experiment::{DiskMode, Spec, Trial, redact};
use tipover_core::measure::{Canary, WarmUp};
use tipover_core::metric::{Metric, of_disk, probe as probes};
use tipover_core::record::{FORMAT, Interval, Phase, Provenance, Record, Verdict};
use tipover_core::target::Facts;
use tipover_core::units::Tick;
use tipover_lab::{Group, Limits};
use watch::{Readers, Watch};

/// Hears what a trial is doing, for people who wait.
pub trait Report {
    /// A new phase begins.
    fn doing(&self, what: &str);
    /// How much of the phase is done, 0..1.
    fn share(&self, done: f64);
    /// A sentence about how it goes.
    fn note(&self, text: &str);
    /// What was read at the end of an interval.
    fn interval(&self, _interval: &Interval) {}
    /// What was done to the cluster so far.
    fn faults(&self, _carried: &[Carried]) {}
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
    /// The folder of the results; what is written while a trial runs goes to where it is staged.
    pub results: &'a Path,
}

/// Why a link cannot be broken, where there is none to be broken.
pub const NEEDS_NETWORK: &str = "a rule breaks a link, which needs a network of namespaces";

/// Pause of a session between operations while warming up, in place of the request path. A session behind a
/// slow disk waits most of the time, and the engine's eviction has the processors to itself; warmed up at
/// full speed the engine's cache would be fuller than eviction lets it be later, and the page cache would
/// hold what goes with that.
const WARM_UP_PAUSE: Duration = Duration::from_micros(500);

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

/// Carries out trials that share a warm-up, one after the other on the same warmed-up target, and gives each
/// to `keep` as soon as it is finished. Disks are thus compared on the same state of the same caches.
///
/// A trial that the laboratory could not carry out is a record too, with its reason. It ends the series: the
/// trials after it are returned, to be tried on a new target and a new disk. Errors are an interrupt and what
/// `keep` says.
pub fn carry_out<'t>(
    site: &mut Site,
    trials: Vec<Trial<'t>>,
    context: &Surroundings<'_>,
    mut keep: impl FnMut(&Trial<'_>, Kept) -> Result<()>,
) -> Result<Vec<Trial<'t>>> {
    assert!(
        trials.windows(2).all(|pair| share_warm_up(&pair[0], &pair[1])),
        "these trials need a warm-up each"
    );
    let machine = serde_json::to_value(machine::Facts::read(context.work))?;
    let mut left = VecDeque::from(trials);
    let mut series = Series { site, context, clock: Clock::start(), machine, common: Common::default() };
    if let Err(error) = series.run(&mut left, &mut keep) {
        if error.is::<NotKept>() {
            return Err(error);
        }
        // Whatever else went wrong then is only what being in a hurry does.
        context.interrupt.check()?;
        // Without a trial left it was the target that would not stop; what was measured is kept.
        if let Some(failed) = left.pop_front() {
            let (record, series) = (series.failed(&failed, &error), series.common.series.clone());
            keep(&failed, Kept { record, series, accesses: None })?;
        }
        // Whatever went wrong may have been the disk, or the cluster.
        series.site.clear();
    }
    Ok(left.into())
}

/// A record could not be kept, which ends the run.
#[derive(Debug, thiserror::Error)]
#[error("keeping a record: {0:#}")]
struct NotKept(anyhow::Error);

/// Who makes a record that was begun so long ago.
pub fn provenance(context: &Surroundings<'_>, ago: Duration) -> Provenance {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Provenance {
        command: redact(context.command),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("TIPOVER_COMMIT").into(),
        started_unix_s: now.as_secs() - ago.as_secs(),
    }
}

/// What the server at the address of `spec` tells about itself.
///
/// # Errors
/// It cannot be reached, or does not let us in.
pub fn ask_server(spec: &Spec) -> Result<Facts> {
    let mut agent = AgentProcess::start(None, None)?;
    let Answer::Started { facts, .. } =
        agent.begin(spec, PathBuf::new(), &Servers::default(), 0, Clock::start())?
    else {
        bail!("expected to hear of the start");
    };
    agent.stop()?;
    Ok(facts)
}

/// Trials that share a warm-up.
struct Series<'a> {
    site: &'a mut Site,
    context: &'a Surroundings<'a>,
    clock: Clock,
    machine: serde_json::Value,
    common: Common,
}

/// What the records of a series have in common.
#[derive(Default)]
struct Common {
    missed: Vec<String>,
    target: Facts,
    disk: Facts,
    metrics: BTreeMap<String, Vec<Metric>>,
    phases: Vec<Phase>,
    series: Vec<Interval>,
}

/// The data of a cell, loaded.
struct Data {
    /// Where they are; empty for a server, and for what lives in the agent's memory.
    folder: PathBuf,
    /// What the target said after loading.
    loaded: Facts,
    /// Whether they live in the agent's memory, and are written when it is there.
    inside: bool,
    /// The cluster that holds them.
    cluster: Option<Running>,
}

/// A target that trials share, and what is known of it.
struct Sitting {
    watch: Watch,
    generator_cost_ns: f64,
    /// Whether its memory is.
    limited: bool,
    /// Where the trial is staged, if what its sessions see is written down.
    staged: Option<PathBuf>,
    /// The machine's, when it was read last.
    canary: Canary,
    /// Checks under faults ask for nothing that was there before, so there is nothing to warm up, and they
    /// begin where it counts.
    at_once: bool,
    /// Whether its cluster is whole.
    usable: bool,
}

impl Sitting {
    fn history(&self) -> Option<PathBuf> {
        self.staged.as_ref().map(|staged| staged.join(history::HISTORY))
    }
}

/// Phases and intervals of the trial at hand.
#[derive(Default)]
struct Log {
    phases: Vec<Phase>,
    series: Vec<Interval>,
}

impl Series<'_> {
    /// Carries out what is in `left`, from the front, and removes what it has given to `keep`.
    fn run(
        &mut self,
        left: &mut VecDeque<Trial<'_>>,
        keep: &mut impl FnMut(&Trial<'_>, Kept) -> Result<()>,
    ) -> Result<()> {
        let Some(first) = left.front() else { return Ok(()) };
        let spec = &first.cell.spec;
        let staged = match spec.keeps_history() {
            true => Some(store::stage(self.context.results, first)?),
            false => None,
        };
        let mut common = Log::default();
        let begin = self.clock.now();
        let (data, evidence) = self.data(spec)?;
        self.phase(&mut common, "load", begin, evidence);
        if data.cluster.is_none() && spec.disk.mode != DiskMode::None {
            self.calibrate(left, keep)?;
        }
        let Some(seed) = left.front().map(|trial| trial.seed(self.context.seed)) else { return Ok(()) };
        let mut sitting = self.start(spec, data, seed)?;
        sitting.staged = staged;
        if !sitting.at_once {
            let history = sitting.history();
            sitting.watch.readers.agent.ask(&Command::Run { load: None, seed: None, history })?;
        }
        let mut first_of_all = true;
        while let Some(trial) = left.front() {
            let mut log = Log::default();
            let warm_up = match sitting.at_once {
                true => WarmUp::Steady("the checks warm nothing up".into()),
                false => self.warm_up(&trial.cell.spec, &mut sitting.watch, !first_of_all, &mut log)?,
            };
            if std::mem::take(&mut first_of_all) {
                // The first warm-up belongs to all; the others only go back to where it ended.
                common.phases.append(&mut log.phases);
                common.series.append(&mut log.series);
                self.common.phases = common.phases.clone();
                self.common.series = common.series.clone();
            }
            let kept = self.one(trial, &mut sitting, &warm_up, log)?;
            keep(trial, kept).map_err(NotKept)?;
            left.pop_front();
        }
        let Sitting { mut watch, staged, usable, .. } = sitting;
        if staged.is_none() {
            watch.readers.agent.ask(&Command::Halt)?;
        }
        watch.readers.agent.stop()?;
        if let Some(running) = watch.cluster.filter(|_| usable) {
            self.site.give_back(running);
        }
        Ok(())
    }

    /// One trial on a target that is warm: shape → settle → measure → judge.
    fn one(
        &mut self,
        trial: &Trial<'_>,
        sitting: &mut Sitting,
        warm_up: &WarmUp,
        mut log: Log,
    ) -> Result<Kept> {
        let spec = &trial.cell.spec;
        let history = sitting.history();
        let Sitting { watch, generator_cost_ns, limited, staged, canary, at_once, usable } = sitting;
        let seed = trial.seed(self.context.seed);
        let shape = spec.shape()?;
        match &mut watch.cluster {
            Some(running) => running.shape(spec)?,
            None => self.site.shape(spec)?,
        }
        if spec.trial.drop_caches_every.is_some() {
            // What loading and warming up left there would answer until the first drop.
            self.drop_caches()?;
        }
        let first = if *at_once {
            let load = Some(Box::new(spec.load.clone()));
            watch.readers.agent.ask(&Command::Run { load, seed: None, history })?;
            self.mark(watch)?
        } else {
            self.settle(spec, watch, &mut log)?
        };
        let recording = self.begin_recording(spec)?;
        let (measured, conducted) = match (&spec.breaking, &watch.cluster) {
            (Some(breaking), Some(running)) => {
                let draws = (trial.repeat, seed);
                let times = Times::of(spec, breaking, breaking.length, draws, running.cluster())?;
                let how = (&times, *generator_cost_ns);
                let (measured, conducted) = self.measure_under_faults(spec, watch, first, how, &mut log)?;
                (measured, Some(conducted))
            }
            _ => (self.measure(spec, watch, first, *generator_cost_ns, &mut log)?, None),
        };
        if let Some(huge) = watch.readers.agent.huge_pages() {
            self.common.target.insert("huge_pages_bytes".into(), huge.0.into());
        }
        let accesses = recording.map(|recording| self.end_recording(recording)).transpose()?;
        let broken = match (conducted, &mut watch.cluster, &*staged) {
            (Some(conducted), Some(running), Some(staged)) => {
                let (broken, whole) =
                    self.judge_broken(spec, running, conducted, (seed, staged), &mut log)?;
                *usable = whole;
                Some(broken)
            }
            // The canary is of the machine, so no session runs beside it; the next warm-up starts them again.
            _ => watch.readers.agent.ask(&Command::Pause).map(|_| None)?,
        };
        let before = std::mem::replace(canary, self.canary());
        // Unshaped again, so that nothing waits for a slow disk that is not measured.
        match watch.cluster.as_ref().filter(|_| *usable) {
            Some(running) => running.unshape()?,
            None => self.site.unshape()?,
        }
        let mut unlike = None;
        if self.site.mounted().is_some() {
            let calibration = self.site.calibrate(&shape)?;
            unlike = verdict::unlike_asked(&calibration);
            self.common.disk = self.disk_facts(&shape, calibration)?;
        }
        let checked = match staged.as_ref().filter(|_| broken.is_none()) {
            Some(staged) => Some(self.check(spec, watch, staged, &mut log)?),
            None => None,
        };
        if let Some(running) = &watch.cluster {
            self.common.target.insert("nodes".into(), running.describe().into());
        }
        let mut record = self.record(trial);
        record.phases.append(&mut log.phases);
        record.missed.extend(unlike);
        record.verdict = match &broken {
            Some(broken) => verdict::judge_broken(spec, &measured, broken),
            None => verdict::judge(spec, &measured, warm_up, *limited, checked.as_ref()),
        };
        record.checked = checked;
        record.broken = broken.map(Box::new);
        record.measured = Some(measured);
        record.canaries = vec![before, *canary];
        let mut series = self.common.series.clone();
        series.append(&mut log.series);
        Ok(Kept { record, series, accesses })
    }

    /// Ends the sessions, reads everything back, and judges.
    fn check(&self, spec: &Spec, watch: &mut Watch, staged: &Path, log: &mut Log) -> Result<Judgement> {
        self.context.report.doing("checking");
        let begin = self.clock.now();
        watch.readers.agent.ask(&Command::Halt)?;
        let (history, evidence) = (staged.join(history::HISTORY), staged.join(history::EVIDENCE));
        let Answer::Checked(judgement) = watch.readers.agent.ask(&Command::Check { history, evidence })?
        else {
            bail!("expected to hear of a verdict");
        };
        let verdict = judgement.verdict.words();
        let what = match spec.workload.kind.check() {
            Some(Check::Bank) => "the bank",
            Some(Check::Isolation) => "all lists",
            _ => "the ledger",
        };
        self.phase(log, "check", begin, format!("{what} was read twice: {verdict}"));
        Ok(*judgement)
    }

    /// Sees to it that the data are there; also the evidence of that.
    fn data(&mut self, spec: &Spec) -> Result<(Data, String)> {
        let (report, interrupt) = (self.context.report, self.context.interrupt);
        let nowhere = |loaded, inside| Data { folder: PathBuf::new(), loaded, inside, cluster: None };
        if spec.lab.is_some() {
            let mut running = self.site.cluster(spec, report)?;
            let started = running.sentence();
            let (loaded, evidence) = match spec.checks_alone() {
                true => (Facts::new(), "empty tables of checks".into()),
                false => running.load(spec, report, interrupt)?,
            };
            let evidence = format!("{started}; {evidence}");
            return Ok((Data { cluster: Some(running), ..nowhere(loaded, false) }, evidence));
        }
        if spec.workload.kind.is_checked() {
            let folder = match spec.disk.mode {
                DiskMode::None => PathBuf::new(),
                _ => self.site.empty(spec, report)?,
            };
            let evidence = "tables of our own, made anew through the process that is measured";
            return Ok((Data { folder, ..nowhere(Facts::new(), true) }, evidence.into()));
        }
        Ok(if spec.disk.mode != DiskMode::None {
            let (folder, loaded) = self.site.data(spec, report, interrupt)?;
            let evidence = "all records written, checkpointed, and dropped from the page cache";
            (Data { folder, ..nowhere(loaded, false) }, evidence.into())
        } else if spec.target.kind.is_server() {
            let (loaded, evidence) = bring_records(spec, &Servers::default(), report, interrupt)?;
            (nowhere(loaded, false), evidence)
        } else {
            let evidence = "all records written, into the process that is measured";
            (nowhere(Facts::new(), true), evidence.into())
        })
    }

    /// Starts the target on its data, in its memory group.
    fn start(&mut self, spec: &Spec, data: Data, seed: u64) -> Result<Sitting> {
        let Data { folder, loaded, inside, cluster } = data;
        // The memory of a plan with a cluster is that of its nodes.
        let (group, huge_pages) = match cluster {
            Some(_) => (None, None),
            None => (self.group(spec)?, spec.machine.huge_pages),
        };
        self.context.report.doing("starting the target");
        let mut agent = AgentProcess::start(group.as_ref(), huge_pages)?;
        let servers = cluster.as_ref().map(Running::servers).unwrap_or_default();
        let answer = agent.begin(spec, folder, &servers, seed, self.clock)?;
        let Answer::Started { facts, metrics, generator_cost_ns } = answer else {
            bail!("expected to hear of the start, got {answer:?}");
        };
        self.judge_server(spec, &facts);
        self.common.target = facts;
        if inside {
            agent.load(2, |_| self.context.interrupt.check())?;
        }
        if spec.breaking.is_some() {
            self.context.report.doing("preparing the tables of checks");
            agent.ask(&Command::Prepare)?;
        }
        self.common.target.extend(loaded.into_iter().map(|(key, value)| (format!("loaded_{key}"), value)));
        self.common.target.insert("generator_cost_ns_per_operation".into(), generator_cost_ns.into());
        let probes = self.probes(spec, &agent, group.as_ref());
        let mut nodes = match &cluster {
            Some(running) => NodeWatch::of_all(running.cluster(), spec, seed),
            None => vec![],
        };
        if let Some(running) = &cluster {
            self.common.missed.extend(running.lost());
            self.common.missed.extend(nodes.iter().flat_map(NodeWatch::missing));
        }
        let read = probes.iter().map(|(name, probe)| (name.to_string(), probe.metrics()));
        let disk = self.site.mounted().map(|_| (probes::DISK.to_string(), of_disk()));
        let own = nodes.iter_mut().flat_map(NodeWatch::metrics);
        self.common.metrics = own.chain([(probes::TARGET.to_string(), metrics)]).collect();
        self.common.metrics.extend(read.chain(disk));
        Ok(Sitting {
            limited: group.is_some() || cluster.is_some(),
            watch: Watch { readers: Readers { agent, probes, nodes }, cluster },
            generator_cost_ns,
            staged: None,
            canary: self.canary(),
            at_once: spec.breaking.is_some() && spec.checks_alone(),
            usable: true,
        })
    }

    /// What a server tells of itself, and the machine under it if it is ours, against its vendor's advice.
    fn judge_server(&mut self, spec: &Spec, facts: &Facts) {
        // What is to be broken is set up for that.
        if spec.breaking.is_some() {
            return;
        }
        let home = spec.target.address.as_ref().and_then(|at| neighbour::home(at, spec.target.kind).ok());
        let machine = serde_json::from_value::<machine::Facts>(self.machine.clone()).ok();
        let here = machine.as_ref().zip(home.as_ref());
        let all = machine::check_database(spec.target.kind, facts, here);
        for sentence in all.iter().filter(|r| !r.met).map(machine::Requirement::sentences) {
            if !self.common.missed.contains(&sentence) {
                self.common.missed.push(sentence);
            }
        }
    }

    /// Calibrates the disk for all shapes while it is idle; a trial whose shape this disk cannot take has
    /// failed.
    fn calibrate(
        &mut self,
        left: &mut VecDeque<Trial<'_>>,
        keep: &mut impl FnMut(&Trial<'_>, Kept) -> Result<()>,
    ) -> Result<()> {
        for trial in std::mem::take(left) {
            match trial.cell.spec.shape().map_err(Into::into).and_then(|shape| self.site.calibrate(&shape)) {
                Ok(_) => left.push_back(trial),
                Err(error) => {
                    self.context.interrupt.check()?;
                    let record = self.failed(&trial, &error);
                    keep(&trial, Kept { record, series: vec![], accesses: None }).map_err(NotKept)?;
                }
            }
        }
        Ok(())
    }

    /// The record of a trial that could not be carried out.
    fn failed(&self, trial: &Trial<'_>, error: &anyhow::Error) -> Record {
        Record { verdict: Verdict::Failed { reason: self.reason(error) }, ..self.record(trial) }
    }

    /// Why something could not be carried out, as it is written down.
    fn reason(&self, error: &anyhow::Error) -> String {
        // A target on a dead disk fails in many ways; the cause comes before its symptom.
        let dead = self.site.mounted().is_some_and(|disk| disk.counters().is_err());
        let cause = if dead { "the disk's daemon died; seen as: " } else { "" };
        redact(&format!("{cause}{error:#}"))
    }

    /// A record of what is known so far.
    fn record(&self, trial: &Trial<'_>) -> Record {
        let mut missed = self.context.missed.to_vec();
        missed.extend(self.common.missed.iter().cloned());
        Record {
            format: FORMAT,
            experiment: self.context.experiment.into(),
            sweep: trial.cell.sweep.clone(),
            cell: trial.cell.id(),
            labels: trial.cell.labels.clone(),
            repeat: trial.repeat,
            twin: trial.twin,
            seed: trial.seed(self.context.seed),
            spec: trial.cell.spec.clone(),
            provenance: provenance(self.context, self.clock.now().since(Tick(0))),
            verdict: Verdict::Valid,
            machine: self.machine.clone(),
            missed,
            target: self.common.target.clone(),
            disk: self.common.disk.clone(),
            metrics: self.common.metrics.clone(),
            phases: self.common.phases.clone(),
            measured: None,
            canaries: vec![],
            checked: None,
            broken: None,
        }
    }

    /// The machine's canary, while nothing is measured.
    fn canary(&self) -> Canary {
        probe::canary(self.context.work)
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
                self.common.missed.push(format!("memory is not bounded to {}: {error}", memory.rounded()));
                Ok(None)
            }
        }
    }

    fn phase(&self, log: &mut Log, name: &str, begin: Tick, evidence: impl Into<String>) {
        log.phases.push(Phase { name: name.into(), begin, end: self.clock.now(), evidence: evidence.into() });
    }
}
