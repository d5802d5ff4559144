//! The real world: disks are mounted, clusters started, and time passes.

use super::cluster::{NodeWatch, Running};
use super::faults::{Begun, Conducted, Recovered};
use super::generator_process::GeneratorProcess;
use super::generators::Generators;
use super::loading::leaves_time;
use super::site::{Site, bring_records};
use super::tenants::Tenants;
use super::watch::{Mark, Readers, Watch};
use super::{Surroundings, local, provenance};
use crate::clock::Clock;
use crate::generator::{Command, Reply, Servers};
use crate::history;
use crate::machine;
use crate::probe;
use crate::store::Recording;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tipover_core::check::{Check, Loaded};
use tipover_core::device::Spec as DeviceSpec;
use tipover_core::experiment::{DiskMode, Part, Spec, Trial, redact};
use tipover_core::measure::Canary;
use tipover_core::metric::{of_disk, probe as probes};
use tipover_core::record::Phase;
use tipover_core::target::Facts;
use tipover_core::trial::{Draft, World, WorldFacts};
use tipover_core::units::{Tick, span};
use tipover_lab::{Group, Limits};

/// Carries out phases on this machine.
pub(super) struct RealWorld<'a> {
    pub site: &'a mut Site,
    pub context: &'a Surroundings<'a>,
    pub clock: Clock,
    pub facts: WorldFacts,
    /// Where what sessions see is written down, if it is.
    pub staged: Option<PathBuf>,
    /// What reached the disk in the trial that was measured last, if that was recorded.
    pub accesses: Option<Recording>,
    /// Of the target that is to be started.
    data: Option<Data>,
    at_work: Option<AtWork>,
}

/// The data of a cell, loaded.
struct Data {
    /// Where they are; empty for a server, and for what lives in the generator's memory.
    folder: PathBuf,
    /// What the target said after loading.
    loaded: Facts,
    /// Whether they live in the generator's memory, and are written when it is there.
    inside: bool,
    /// The cluster that holds them.
    cluster: Option<Running>,
}

/// A target that trials share, and what one phase leaves to the next.
pub(super) struct AtWork {
    pub watch: Watch,
    pub generator_cost_ns: f64,
    /// The machine's, when it was read last.
    canary: Canary,
    /// The end of settling, where measuring begins.
    pub first: Option<Mark>,
    /// How it was loaded, if something was broken meanwhile.
    pub loaded: Option<Loaded>,
    /// The schedule, if it began before.
    pub begun: Option<Begun>,
    /// What was done to the cluster.
    pub conducted: Option<Conducted>,
    /// How it came back from that.
    pub recovered: Option<Recovered>,
    /// Whether its cluster is whole.
    pub usable: bool,
    /// How often its disks were shaped.
    shaped: u64,
}

impl World for RealWorld<'_> {
    type Error = anyhow::Error;

    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn interrupted(&self) -> Result<()> {
        self.context.interrupt.check()
    }

    fn carry_out(&mut self, phase: Phase, trial: &Trial<'_>, draft: &mut Draft) -> Result<String> {
        let spec = &trial.cell.spec;
        match phase {
            Phase::Load if !spec.breaks_loading() => {
                let (data, evidence) = self.load_data(spec)?;
                self.data = Some(data);
                return Ok(evidence);
            }
            Phase::Calibrate => {
                self.site.calibrate(&spec.shape()?)?;
                return Ok("the disk can take this shape".into());
            }
            Phase::Start => {
                let begin = self.clock.now();
                self.at_work = Some(self.start(spec, trial.seed(self.context.seed))?);
                return Ok(format!("ready after {}", span::rounded(self.clock.now().since(begin))));
            }
            Phase::Stop => return self.stop(),
            _ => {}
        }
        // One that fails is taken down: whatever went wrong may have been the target.
        let mut target = self.take_target()?;
        let evidence = match phase {
            Phase::WarmUp => self.warm_up(spec, &mut target.watch, draft)?,
            Phase::ReWarm => self.warm_up_again(spec, &mut target.watch, draft)?,
            Phase::Shape => {
                target.shaped += 1;
                self.shape(spec, &mut target.watch, target.shaped)?
            }
            Phase::Load => {
                let evidence = self.load_under_faults(trial, &mut target, draft)?;
                leaves_time(spec, target.begun.as_ref())?;
                evidence
            }
            Phase::Settle => {
                let (mark, evidence) = self.settle(spec, &mut target.watch, draft)?;
                target.first = Some(mark);
                evidence
            }
            Phase::Measure => self.measure(trial, &mut target, draft)?,
            Phase::Recover => self.recover(&mut target)?,
            Phase::Read => self.read_everything(trial, &mut target)?,
            Phase::Judge => self.judge(trial, &mut target, draft)?,
            Phase::Rest => self.rest(spec, &mut target, draft)?,
            Phase::Check => self.check(spec, &mut target.watch, draft)?,
            Phase::Calibrate | Phase::Start | Phase::Stop => unreachable!("done above"),
        };
        self.at_work = Some(target);
        Ok(evidence)
    }

    fn facts(&self) -> WorldFacts {
        let provenance = provenance(self.context, self.clock.now().since(Tick(0)));
        WorldFacts { provenance, ..self.facts.clone() }
    }

    fn reason(&self, error: &anyhow::Error) -> String {
        // A target on a dead disk fails in many ways; the cause comes before its symptom.
        let dead = self.site.mounted().is_some_and(|disk| disk.counters().is_err());
        let cause = if dead { "the disk's daemon died; seen as: " } else { "" };
        redact(&format!("{cause}{error:#}"))
    }

    fn clear(&mut self) {
        // Who uses the disk goes before it.
        (self.at_work, self.data) = (None, None);
        self.site.clear();
    }
}

impl<'a> RealWorld<'a> {
    /// One in which nothing is loaded yet, or what `site` still has.
    pub fn new(site: &'a mut Site, context: &'a Surroundings<'a>) -> Result<RealWorld<'a>> {
        let facts = WorldFacts {
            provenance: provenance(context, Duration::ZERO),
            machine: machine::read(context.work),
            missed: context.missed.to_vec(),
            target: Facts::new(),
            disk: Facts::new(),
            metrics: Default::default(),
            memory_bounded: false,
        };
        let (staged, accesses, data, at_work) = Default::default();
        Ok(RealWorld { site, context, clock: Clock::start(), facts, staged, accesses, data, at_work })
    }

    /// The target at work, for whoever does with it what is no phase of the pipeline.
    pub fn take_target(&mut self) -> Result<AtWork> {
        self.at_work.take().context("no target is at work")
    }

    /// It goes on with its phases.
    pub fn give_back(&mut self, target: AtWork) {
        self.at_work = Some(target);
    }

    /// Where what sessions see is written down.
    pub fn staged(&self) -> Result<&Path> {
        self.staged.as_deref().context("nothing is written down that could be judged")
    }

    /// The file of what sessions see, if it is written.
    pub fn history(&self) -> Option<PathBuf> {
        self.staged.as_ref().map(|staged| staged.join(history::HISTORY))
    }

    /// Gives the disks their shapes, and lets other tenants of theirs begin: in trial `number` of these on
    /// one target they ask for other places than in those before it.
    pub fn shape(&self, spec: &Spec, watch: &mut Watch, number: u64) -> Result<String> {
        match &mut watch.cluster {
            Some(running) => running.shape(spec)?,
            None => self.site.shape(spec)?,
        }
        watch.readers.tenants.begin(spec, number)?;
        if spec.trial.drop_caches_every.is_some() {
            // What loading and warming up left there would answer until the first drop.
            self.drop_caches(watch)?;
        }
        Ok(if spec.disk.shape.is_empty() { "no disk of ours".into() } else { spec.disk.shape.clone() })
    }

    /// Leaves the target in peace, and looks at the machine and the disk while nothing happens.
    fn rest(&mut self, spec: &Spec, target: &mut AtWork, draft: &mut Draft) -> Result<String> {
        if draft.broken.is_none() {
            // The canary is of the machine, so no session runs beside it; the next warm-up starts them again.
            target.watch.readers.generators.ask(&Command::Pause)?;
        }
        let before = std::mem::replace(&mut target.canary, self.canary());
        draft.canaries = vec![before, target.canary];
        // Unshaped again, so that nothing waits for a slow disk that is not measured.
        match target.watch.cluster.as_ref().filter(|_| target.usable) {
            Some(running) => running.unshape()?,
            None => self.site.unshape()?,
        }
        if self.site.mounted().is_some() {
            let shape = spec.shape()?;
            let calibration = self.site.calibrate(&shape)?;
            draft.missed.extend(unlike_asked(&calibration));
            self.facts.disk = self.disk_facts(&shape, calibration)?;
        }
        if let Some(running) = &target.watch.cluster {
            self.facts.target.insert("nodes".into(), running.names().join(", ").into());
            self.facts.target.insert("primary".into(), running.cluster().primary().into());
        }
        Ok("sessions pause, the disk is fast".into())
    }

    fn stop(&mut self) -> Result<String> {
        let AtWork { mut watch, usable, .. } = self.at_work.take().context("no target is at work")?;
        if self.staged.is_none() {
            watch.readers.generators.ask(&Command::Halt)?;
        }
        let took = watch.readers.generators.stop()?;
        if let Some(running) = watch.cluster.filter(|_| usable) {
            self.site.give_back(running);
        }
        Ok(format!("closed in {}", span::rounded(took)))
    }

    /// Ends the sessions, reads everything back, and judges.
    fn check(&self, spec: &Spec, watch: &mut Watch, draft: &mut Draft) -> Result<String> {
        self.context.report.doing("checking");
        let staged = self.staged()?;
        watch.readers.generators.ask(&Command::Halt)?;
        let (history, evidence) = (staged.join(history::HISTORY), staged.join(history::EVIDENCE));
        let Reply::Checked(judgement) =
            watch.readers.generators.ask(&Command::Check { history, evidence })?
        else {
            bail!("expected to hear of a verdict");
        };
        let verdict = judgement.verdict.words();
        let what = match spec.workload.kind.check() {
            Some(Check::Bank) => "the bank",
            Some(Check::Isolation) => "all lists",
            _ => "the ledger",
        };
        draft.checked = Some(*judgement);
        Ok(format!("{what} was read twice: {verdict}"))
    }

    /// Sees to it that the data are there; also the evidence of that.
    fn load_data(&mut self, spec: &Spec) -> Result<(Data, String)> {
        let (report, interrupt) = (self.context.report, self.context.interrupt);
        let nowhere = |loaded, inside| Data { folder: PathBuf::new(), loaded, inside, cluster: None };
        if spec.lab.is_some() {
            let mut running = self.site.cluster(spec, report)?;
            let started = running.sentence();
            let (loaded, evidence) = match (spec.breaks_loading(), spec.checks_alone()) {
                (true, _) => (Facts::new(), "empty".into()),
                (false, true) => (Facts::new(), "empty tables of checks".into()),
                (false, false) => running.load(spec, report, interrupt)?,
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
    fn start(&mut self, spec: &Spec, seed: u64) -> Result<AtWork> {
        // What is to be broken while it is loaded has no phase of loading before this one.
        let data = match self.data.take() {
            None if spec.breaks_loading() => self.load_data(spec)?.0,
            data => data.context("no data were loaded")?,
        };
        let Data { folder, loaded, inside, cluster } = data;
        // The memory of a plan with a cluster is that of its nodes.
        let (group, huge_pages) = match cluster {
            Some(_) => (None, None),
            None => (self.group(spec)?, spec.machine.huge_pages),
        };
        self.context.report.doing("starting the target");
        let mut generator = GeneratorProcess::start(group.as_ref(), huge_pages)?;
        let servers = cluster.as_ref().map(Running::servers).unwrap_or_default();
        let part = Part { number: 0, of: spec.load.machines };
        let answer = generator.begin(spec, folder, &servers, seed, part, self.clock)?;
        let Reply::Started { facts, metrics, generator_cost_ns } = answer else {
            bail!("expected to hear of the start, got {answer:?}");
        };
        self.judge_server(spec, &facts);
        self.facts.target = facts;
        if inside {
            generator.load(2, |_| self.context.interrupt.check())?;
        }
        if let Some(breaking) =
            spec.breaking.as_ref().filter(|_| !(spec.breaks_loading() && spec.checks_alone()))
        {
            self.context.report.doing("preparing the tables of checks");
            generator.prepare(breaking.bank.accounts)?;
        }
        self.facts.target.extend(loaded.into_iter().map(|(key, value)| (format!("loaded_{key}"), value)));
        self.facts.target.insert("generator_cost_ns_per_operation".into(), generator_cost_ns.into());
        let probes = self.probes(spec, &generator, group.as_ref());
        let mut nodes = match &cluster {
            Some(running) => NodeWatch::of_all(running.cluster(), spec, seed),
            None => vec![],
        };
        if let Some(running) = &cluster {
            self.facts.missed.extend(running.lost());
            self.facts.missed.extend(nodes.iter().flat_map(NodeWatch::missing));
        }
        let read = probes.iter().map(|(name, probe)| (name.to_string(), probe.metrics()));
        let disk = self.site.mounted().map(|_| (probes::DISK.to_string(), of_disk()));
        let own = nodes.iter_mut().flat_map(NodeWatch::metrics);
        self.facts.metrics = own.chain([(probes::TARGET.to_string(), metrics)]).collect();
        self.facts.metrics.extend(read.chain(disk));
        let tenants = Tenants::start(spec, self.site, cluster.as_ref(), seed, self.clock)?;
        self.facts.metrics.extend(tenants.metrics().map(|metrics| (probes::TENANT.to_string(), metrics)));
        let generators = self.generators(generator, spec, seed)?;
        self.facts.memory_bounded = group.is_some() || cluster.is_some();
        let primary = cluster.as_ref().map(|running| running.cluster().primary().into()).unwrap_or_default();
        Ok(AtWork {
            watch: Watch { readers: Readers { generators, probes, nodes, primary, tenants }, cluster },
            generator_cost_ns,
            canary: self.canary(),
            first: None,
            loaded: None,
            begun: None,
            conducted: None,
            recovered: None,
            usable: true,
            shaped: 0,
        })
    }

    /// The generator and those of other machines that send the load with it.
    fn generators(&self, generator: GeneratorProcess, spec: &Spec, seed: u64) -> Result<Generators> {
        match (spec.load.machines, self.context.fleet) {
            (1, _) => Ok(Generators::alone(generator, self.clock)),
            (_, Some(fleet)) => {
                self.context.report.doing("starting the other machines of the load");
                let fellows = fleet.start(spec, seed, self.clock)?;
                Generators::together(generator, fleet.machine(), fellows, self.clock)
            }
            (machines, None) => bail!("{machines} machines send this load, and this one is alone"),
        }
    }

    /// What a server tells of itself, and the machine under it if it is ours, against its vendor's advice.
    fn judge_server(&mut self, spec: &Spec, facts: &Facts) {
        // What is to be broken is set up for that.
        if spec.breaking.is_some() {
            return;
        }
        let home = spec.target.address.as_ref().and_then(|at| local::home(at, spec.target.kind).ok());
        let here = home.as_ref().map(|home| (&self.facts.machine, home));
        let all = machine::check_database(spec.target.kind, facts, here);
        for sentence in all.iter().filter(|r| !r.met).map(machine::Requirement::sentences) {
            if !self.facts.missed.contains(&sentence) {
                self.facts.missed.push(sentence);
            }
        }
    }

    /// The machine's canary, while nothing is measured.
    pub fn canary(&self) -> Canary {
        probe::canary(self.context.work)
    }

    pub fn disk(&self) -> Result<&tipover_disk::Disk> {
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
                self.facts.missed.push(format!("memory is not bounded to {}: {error}", memory.rounded()));
                Ok(None)
            }
        }
    }
}

/// What is to be said of a disk whose latency, when it was checked, was not the one asked for.
fn unlike_asked(calibration: &serde_json::Value) -> Option<String> {
    let of = |key: &str| span::rounded(Duration::from_nanos(calibration[key].as_u64().unwrap_or(0)));
    (calibration["held"] == false).then(|| {
        format!(
            "the disk's latency was {} where {} was asked for, when it was checked: the machine was busy, so measure \
             again when it is quiet",
            of("achieved_ns"),
            of("configured_ns")
        )
    })
}
