//! One trial: load → settle → warm up → shape → settle → measure → record.

mod agent_process;
mod neighbour;
mod recording;
mod search;
mod site;
mod verdict;

pub use crate::interrupt::{Interrupt, Interrupted};
pub use neighbour::home;
pub use search::{planned, search};
pub use site::{Site, data_key, mount_options};

use crate::agent::{Answer, Command, Cut};
use crate::clock::Clock;
use crate::history;
use crate::machine;
use crate::probe::{self, Probe};
use crate::store::{self, Kept};
use agent_process::AgentProcess;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::check::{Check, Judgement};
use tipover_core::device::{Counters, Spec as DeviceSpec};
use tipover_core::experiment::{DiskMode, Spec, TargetKind, Trial, redact};
use tipover_core::measure::{Books, CachePoint, Canary, KeptUp, Offered, WarmUp, WarmUpRule, Within};
use tipover_core::metric::{Metric, Sample, name as metric, of_disk, probe as probes};
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
    let alone = spec.trial.cold || spec.workload.kind.is_checked();
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
        // Whatever went wrong may have been the disk.
        series.site.unmount();
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
    let Answer::Started { facts, .. } = agent.begin(spec, PathBuf::new(), 0, Clock::start())? else {
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

/// The end of an interval: what the agent and all probes said.
struct Mark {
    cut: Cut,
    samples: BTreeMap<String, Sample>,
    /// Absent when the target does not live on a disk of ours.
    disk: Option<Counters>,
    disk_cpu: Duration,
}

/// Everything that is read at the end of an interval.
struct Watch {
    agent: AgentProcess,
    probes: Vec<(&'static str, Box<dyn Probe>)>,
}

/// The data of a cell, loaded.
struct Data {
    /// Where they are; empty for a server, and for what lives in the agent's memory.
    folder: PathBuf,
    /// What the target said after loading.
    loaded: Facts,
    /// Whether they live in the agent's memory, and are written when it is there.
    inside: bool,
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
        let Some(Trial { cell, .. }) = left.front() else { return Ok(()) };
        let spec = &cell.spec;
        let mut common = Log::default();
        let begin = self.clock.now();
        let (data, evidence) = self.data(spec)?;
        self.phase(&mut common, "load", begin, evidence);
        if spec.disk.mode != DiskMode::None {
            self.calibrate(left, keep)?;
        }
        let Some(seed) = left.front().map(|trial| trial.seed(self.context.seed)) else { return Ok(()) };
        let (mut watch, generator_cost_ns, limited) = self.start(spec, data, seed)?;
        let mut canary = self.canary();
        let staged = match left.front().filter(|trial| trial.cell.spec.workload.keeps_history()) {
            Some(trial) => Some(store::stage(self.context.results, trial)?),
            None => None,
        };
        let history = staged.as_ref().map(|staged| staged.join(history::HISTORY));
        watch.agent.ask(&Command::Run { load: None, seed: None, history })?;
        let mut first_of_all = true;
        while let Some(trial) = left.front() {
            let spec = &trial.cell.spec;
            let mut log = Log::default();
            let warm_up = self.warm_up(spec, &mut watch, !first_of_all, &mut log)?;
            if std::mem::take(&mut first_of_all) {
                // The first warm-up belongs to all; the others only go back to where it ended.
                common.phases.append(&mut log.phases);
                common.series.append(&mut log.series);
                self.common.phases = common.phases.clone();
                self.common.series = common.series.clone();
            }
            let shape = spec.shape()?;
            self.site.shape(spec)?;
            if spec.trial.drop_caches_every.is_some() {
                // What loading and warming up left there would answer until the first drop.
                self.drop_caches()?;
            }
            let first = self.settle(spec, &mut watch, &mut log)?;
            let recording = self.begin_recording(spec)?;
            let measured = self.measure(spec, &mut watch, first, generator_cost_ns, &mut log)?;
            if let Some(huge) = watch.agent.huge_pages() {
                self.common.target.insert("huge_pages_bytes".into(), huge.0.into());
            }
            let accesses = recording.map(|recording| self.end_recording(recording)).transpose()?;
            // The canary is of the machine, so no session runs beside it; the next warm-up starts them again.
            watch.agent.ask(&Command::Pause)?;
            let before = std::mem::replace(&mut canary, self.canary());
            // Unshaped again, so that nothing waits for a slow disk that is not measured.
            self.site.unshape()?;
            let mut unlike = None;
            if self.site.mounted().is_some() {
                let calibration = self.site.calibrate(&shape)?;
                unlike = verdict::unlike_asked(&calibration);
                self.common.disk = self.disk_facts(&shape, calibration)?;
            }
            let checked = match &staged {
                Some(staged) => Some(self.check(spec, &mut watch, staged, &mut log)?),
                None => None,
            };
            let mut record = self.record(trial);
            record.phases.append(&mut log.phases);
            record.missed.extend(unlike);
            record.verdict = verdict::judge(spec, &measured, &warm_up, limited, checked.as_ref());
            record.checked = checked;
            record.measured = Some(measured);
            record.canaries = vec![before, canary];
            let mut series = self.common.series.clone();
            series.append(&mut log.series);
            keep(trial, Kept { record, series, accesses }).map_err(NotKept)?;
            left.pop_front();
        }
        if staged.is_none() {
            watch.agent.ask(&Command::Halt)?;
        }
        watch.agent.stop()?;
        Ok(())
    }

    /// Ends the sessions, reads everything back, and judges.
    fn check(&self, spec: &Spec, watch: &mut Watch, staged: &Path, log: &mut Log) -> Result<Judgement> {
        self.context.report.doing("checking");
        let begin = self.clock.now();
        watch.agent.ask(&Command::Halt)?;
        let (history, evidence) = (staged.join(history::HISTORY), staged.join(history::EVIDENCE));
        let Answer::Checked(judgement) = watch.agent.ask(&Command::Check { history, evidence })? else {
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
        let nowhere = |loaded, inside| Data { folder: PathBuf::new(), loaded, inside };
        if spec.workload.kind.is_checked() {
            let folder = match spec.disk.mode {
                DiskMode::None => PathBuf::new(),
                _ => self.site.empty(spec, report)?,
            };
            let evidence = "tables of our own, made anew through the process that is measured";
            return Ok((Data { folder, loaded: Facts::new(), inside: true }, evidence.into()));
        }
        Ok(if spec.disk.mode != DiskMode::None {
            let (folder, loaded) = self.site.data(spec, report, interrupt)?;
            let evidence = "all records written, checkpointed, and dropped from the page cache";
            (Data { folder, loaded, inside: false }, evidence.into())
        } else if spec.target.kind.is_server() {
            let (loaded, evidence) = self.site.served(spec, report, interrupt)?;
            (nowhere(loaded, false), evidence)
        } else {
            let evidence = "all records written, into the process that is measured";
            (nowhere(Facts::new(), true), evidence.into())
        })
    }

    /// Starts the target on its data, in its memory group; also what the generator costs per operation, and
    /// whether memory is limited.
    fn start(&mut self, spec: &Spec, data: Data, seed: u64) -> Result<(Watch, f64, bool)> {
        let Data { folder, loaded, inside } = data;
        let group = self.group(spec)?;
        self.context.report.doing("starting the target");
        let mut agent = AgentProcess::start(group.as_ref(), spec.machine.huge_pages)?;
        let answer = agent.begin(spec, folder, seed, self.clock)?;
        let Answer::Started { facts, metrics, generator_cost_ns } = answer else {
            bail!("expected to hear of the start, got {answer:?}");
        };
        self.judge_server(spec, &facts);
        self.common.target = facts;
        if inside {
            agent.load(2, |_| self.context.interrupt.check())?;
        }
        self.common.target.extend(loaded.into_iter().map(|(key, value)| (format!("loaded_{key}"), value)));
        self.common.target.insert("generator_cost_ns_per_operation".into(), generator_cost_ns.into());
        let watch = Watch { probes: self.probes(spec, &agent, group.as_ref()), agent };
        let read = watch.probes.iter().map(|(name, probe)| (name.to_string(), probe.metrics()));
        let disk = self.site.mounted().map(|_| (probes::DISK.to_string(), of_disk()));
        self.common.metrics = read.chain([(probes::TARGET.to_string(), metrics)]).chain(disk).collect();
        Ok((watch, generator_cost_ns, group.is_some()))
    }

    /// What a server tells of itself, and the machine under it if it is ours, against its vendor's advice.
    fn judge_server(&mut self, spec: &Spec, facts: &Facts) {
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

    fn probes(
        &mut self,
        spec: &Spec,
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
        if let Some(address) = spec.target.address.as_ref().filter(|_| spec.target.kind.is_server()) {
            let lacking = |what: &str, reason: String| probe::NotAvailable { what: what.into(), reason };
            let process = neighbour::process(address, spec.target.kind);
            let processes = process.clone().map_err(|reason| lacking("the server's process", reason));
            let processes = processes.and_then(probe::Processes::of_tree);
            add(probes::PROCESS, processes.map(boxed));
            let device =
                process.and_then(neighbour::device).map_err(|why| lacking("the server's device", why));
            add(probes::DEVICE, device.and_then(|name| probe::Device::named(&name)).map(boxed));
        } else {
            let processes = match group {
                Some(group) => probe::Processes::in_group(group),
                None => probe::Processes::given(&[agent.id()]),
            };
            add(probes::PROCESS, processes.map(boxed));
        }
        let mut device = None;
        if let Some(path) = self.site.mounted().and_then(|disk| disk.block_device()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let found = probe::Device::named(&name);
            device = found.as_ref().ok().and_then(|device| device.number());
            add(probes::DEVICE, found.map(boxed));
        }
        if let Some(group) = group {
            add(probes::GROUP, probe::GroupUse::of(group, device).map(boxed));
        }
        // The group's own stalls say more than the machine's, where the kernel keeps them.
        let pressure = match group.and_then(|group| group.unified()) {
            Some(unified) => {
                probe::Pressure::of_group(Some(unified)).or_else(|_| probe::Pressure::of_system())
            }
            None => probe::Pressure::of_system(),
        };
        add(probes::PRESSURE, pressure.map(boxed));
        add(probes::SYSTEM, probe::System::open().map(boxed));
        self.common.missed.extend(missing);
        probes
    }

    /// Reads everything, the witnesses of the read budget first and close together.
    fn mark(&self, watch: &mut Watch) -> Result<Mark> {
        let cut = watch.agent.cut()?;
        let mut samples = BTreeMap::from([(probes::TARGET.to_string(), cut.target.clone())]);
        let mut disk = None;
        for (name, probe) in &mut watch.probes {
            if disk.is_none() && ![probes::PROCESS, probes::DEVICE].contains(name) {
                disk = self.disk_counters()?;
            }
            let sample = probe.sample(&|| self.clock.now()).with_context(|| format!("the {name} probe"))?;
            samples.insert(name.to_string(), sample);
        }
        let disk = disk.map_or_else(|| self.disk_counters(), |disk| Ok(Some(disk)))?;
        let disk_cpu = self.site.mounted().map(|disk| disk.daemon_cpu()).transpose()?.unwrap_or_default();
        Ok(Mark { cut, samples, disk, disk_cpu })
    }

    /// The disk's counters, their moment on the trial clock.
    fn disk_counters(&self) -> Result<Option<Counters>> {
        let Some(disk) = self.site.mounted() else { return Ok(None) };
        let counters = disk.counters()?;
        Ok(Some(Counters { at: Tick(counters.at.0.saturating_sub(self.clock.origin_ns())), ..counters }))
    }

    /// Waits for one interval and closes it.
    fn interval(&self, spec: &Spec, phase: &str, watch: &mut Watch, log: &mut Log) -> Result<Mark> {
        self.context.interrupt.check()?;
        std::thread::sleep(spec.trial.interval);
        let mark = self.mark(watch)?;
        log.series.push(Interval {
            phase: phase.into(),
            begin: mark.cut.begin,
            end: mark.cut.end,
            books: mark.cut.books.clone(),
            offered: mark.cut.offered.clone(),
            samples: mark.samples.clone(),
            disk: mark.disk,
        });
        Ok(mark)
    }

    fn phase(&self, log: &mut Log, name: &str, begin: Tick, evidence: impl Into<String>) {
        log.phases.push(Phase { name: name.into(), begin, end: self.clock.now(), evidence: evidence.into() });
    }

    /// Runs the workload on the unshaped disk until the caches are at rest. `again`: they were at rest before
    /// another shape was measured, so they need not turn over once more, only be flat.
    fn warm_up(&self, spec: &Spec, watch: &mut Watch, again: bool, log: &mut Log) -> Result<WarmUp> {
        let begin = self.clock.now();
        let name = if again { "re-warm" } else { "warm-up" };
        if spec.target.kind.is_server() || spec.workload.kind.is_checked() {
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
        watch.agent.ask(&Command::Pace { think_ns: WARM_UP_PAUSE.as_nanos() as u64, request_path: false })?;
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
        let mut samples: Vec<Sample> = vec![self.mark(watch)?.cut.target];
        while self.clock.now().since(begin) < spec.trial.warm_up_least {
            samples.push(self.interval(spec, "warm-up", watch, log)?.cut.target);
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
    fn load(&self, spec: &Spec, watch: &mut Watch) -> Result<()> {
        let think_ns = spec.load.think.as_nanos() as u64;
        watch.agent.ask(&match spec.load.arrivals {
            Some(_) => Command::Offer,
            None => Command::Pace { think_ns, request_path: true },
        })?;
        Ok(())
    }

    /// Waits until every session has waited for the shaped device, or the device hardly works.
    fn settle(&self, spec: &Spec, watch: &mut Watch, log: &mut Log) -> Result<Mark> {
        self.context.report.doing("settling");
        let begin = self.clock.now();
        // A read that misses makes about eight requests, one after the other.
        let needed = f64::from(spec.load.sessions) * 8.0 * spec.trial.settle_turns;
        let Some(first) = self.disk_counters()? else {
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
    fn drop_caches(&self) -> Result<()> {
        Ok(self.site.mounted().map_or(Ok(()), |disk| disk.drop_caches())?)
    }

    fn measure(
        &self,
        spec: &Spec,
        watch: &mut Watch,
        first: Mark,
        generator_cost_ns: f64,
        log: &mut Log,
    ) -> Result<Measured> {
        self.context.report.doing("measuring");
        let begin = first.cut.end;
        let started = Instant::now();
        let mut books: Option<Books> = None;
        let mut offered: Option<Offered> = None;
        let mut backlog = Vec::new();
        let mut dropped = Instant::now();
        let last = loop {
            if spec.trial.drop_caches_every.is_some_and(|every| dropped.elapsed() >= every) {
                dropped = Instant::now();
                self.drop_caches()?;
            }
            let mark = self.interval(spec, "measure", watch, log)?;
            let interval = Books::from_text(&mark.cut.books).map_err(anyhow::Error::msg)?;
            let books = match &mut books {
                Some(books) => {
                    books.merge(&interval);
                    books
                }
                none => none.insert(interval),
            };
            let at = mark.cut.end.since(begin).as_secs_f64();
            backlog.extend(mark.cut.offered.as_ref().map(|offered| (at, offered.backlog)));
            match (&mut offered, &mark.cut.offered) {
                (Some(offered), Some(next)) => offered.append(next).map_err(anyhow::Error::msg)?,
                (none, next) => *none = next.clone(),
            }
            let operations = books.done();
            let (elapsed, trial) = (started.elapsed(), &spec.trial);
            let share = operations as f64 / trial.measure_operations as f64;
            self.context.report.share(share.min(elapsed.as_secs_f64() / trial.measure_least.as_secs_f64()));
            let enough = elapsed >= trial.measure_least && operations >= trial.measure_operations;
            if enough || elapsed >= trial.measure_most {
                break mark;
            }
        };
        let seconds = last.cut.end.since(begin).as_secs_f64();
        if let Some(offered) = &mut offered
            && let Answer::Paused { unanswered } = watch.agent.ask(&Command::Pause)?
        {
            offered.unanswered = u64::from(unanswered);
        }
        let books = books.unwrap_or_else(Books::closed);
        let operations = books.done();
        let mut evidence = spec.trial.in_words(operations, seconds);
        if let Some(offered) = &offered {
            evidence += &format!("; {}", KeptUp::judge(&backlog, offered.due as f64 / seconds));
        }
        let intervals: Vec<&Interval> = log.series.iter().filter(|i| i.phase == "measure").collect();
        let within = Within::of(&intervals).map_err(anyhow::Error::msg)?;
        self.phase(log, "measure", begin, evidence);
        let path = spec.target.request_path_cpu.as_nanos() as u64;
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
                disk_ns: (last.disk_cpu - first.disk_cpu).as_nanos() as u64,
            },
            first: first.samples,
            last: last.samples,
            disk: first.disk.zip(last.disk),
            nodes: BTreeMap::new(),
            within: Some(within),
        })
    }
}
