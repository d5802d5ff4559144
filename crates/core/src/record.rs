//! What a trial leaves behind: raw facts. Every figure and picture is a pure function of records.

use crate::check::{Broken, Judgement};
use crate::device;
use crate::experiment::{Side, Spec};
use crate::learn::ServerTimes;
use crate::machine;
use crate::measure::{
    Account, Books, BooksText, Bound, Budget, Canary, ClockOffset, Generator, Headroom, Histogram, KeptUp,
    Offered, Way, Within, shows,
};
use crate::metric::{Metric, Sample, name as metric, probe};
use crate::op::Failure;
use crate::shared::Shared;
use crate::target::Facts;
use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Changes when an old record can no longer be read as a new one. 2: counts and latencies by class of
/// operation, failed ones apart.
pub const FORMAT: u32 = 2;

/// Why a text cannot be read as a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is no record, or only a part of one.
    #[error("not a record: {0}")]
    Damaged(String),
    /// Another version of this program wrote it.
    #[error("{0}")]
    OtherFormat(String),
}

/// Reads a record.
///
/// # Errors
/// When the text is none, or one of another format; the sentence says which.
pub fn read(text: &str) -> Result<Record, Unreadable> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
    // Records may be 100,000, and almost every one is whole and of this format.
    let read = match serde_json::from_str::<Record>(text) {
        Ok(record) if record.format == FORMAT => return Ok(record),
        read => read,
    };
    let head: Head = serde_json::from_str(text).map_err(damaged)?;
    if head.format != FORMAT {
        return Err(Unreadable::OtherFormat(format!(
            "a record of format {}, and this program reads {FORMAT}: use the version that made it, or measure \
             again into another --results folder",
            head.format
        )));
    }
    read.map_err(damaged)
}

/// Reads records one after the other, and keeps once what they have alike: of 100,000 trials of a cell that
/// is most of what there is.
#[derive(Debug, Default)]
pub struct Reader {
    specs: Vec<Shared<Spec>>,
    metrics: Vec<Shared<BTreeMap<String, Vec<Metric>>>>,
}

impl Reader {
    /// As [`read`].
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(&mut self, text: &str) -> Result<Record, Unreadable> {
        let mut record = read(text)?;
        record.spec.among(&mut self.specs);
        record.metrics.among(&mut self.metrics);
        Ok(record)
    }
}

fn is_nothing(metrics: &Shared<BTreeMap<String, Vec<Metric>>>) -> bool {
    metrics.is_empty()
}

/// One trial, finished or failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this format.
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The sweep that the cell belongs to.
    pub sweep: String,
    /// The cell's name: slug and hash of its spec.
    pub cell: String,
    /// Axis names and labels of the cell.
    pub labels: Vec<(String, String)>,
    /// Which repetition, counted from 0.
    pub repeat: u32,
    /// The cell once more in the same block, for the noise floor; in no figure of the cell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub twin: bool,
    /// Seed of the operations.
    pub seed: u64,
    /// The complete settings.
    pub spec: Shared<Spec>,
    /// Who made it, with what.
    pub provenance: Provenance,
    /// Whether the trial can be believed.
    pub verdict: Verdict,
    /// What was found about the machine.
    pub machine: machine::Facts,
    /// Requirements of the machine that were missed, as sentences.
    pub missed: Vec<String>,
    /// What was read back from the target.
    pub target: Facts,
    /// What was read back from the disk: mode, configured and calibrated device.
    pub disk: Facts,
    /// What probes read, by probe: unit and kind of each value, what it counts and who counted it.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub metrics: Shared<BTreeMap<String, Vec<Metric>>>,
    /// The phases in their order, each with the evidence for its end.
    pub phases: Vec<PhaseSpan>,
    /// What was measured; absent when the trial failed before.
    pub measured: Option<Measured>,
    /// The machine's canary before and after the trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<Canary>,
    /// What the checkers say of everything that the sessions saw; absent where nothing is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Judgement>,
    /// What the checks found under faults; absent where nothing was broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Box<Broken>>,
}

/// Who made a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command line.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Commit that it was built from, if it was built from a repository.
    pub commit: String,
    /// Seconds since 1970 at the trial's start.
    pub started_unix_s: u64,
    /// The machine of a fleet that carried it out; absent: the one at which the command was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// Whether a trial can be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it.
    Valid,
    /// It was measured, but these things speak against it.
    Invalid {
        /// Sentences.
        reasons: Vec<String>,
    },
    /// The laboratory could not carry it out.
    Failed {
        /// A sentence.
        reason: String,
    },
}

/// A part of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The place is made ready and holds the data. Where faults begin with the first record, it comes after
    /// [`Phase::Shape`].
    Load,
    /// The disk is given each trial's shape once, while it is idle, to learn what the shape costs.
    Calibrate,
    /// The target runs on its data, in its memory.
    Start,
    /// The load runs on an unshaped disk until the caches are at rest.
    WarmUp,
    /// The same after another trial, whose caches are there already.
    ReWarm,
    /// Disks become as slow as the trial wants them.
    Shape,
    /// Sessions wait for the shaped disk, until its queue is what it will be.
    Settle,
    /// What the trial is for; faults happen while it lasts.
    Measure,
    /// Faults are undone, and every node follows again.
    Recover,
    /// Everything is read from the survivors and from each replica.
    Read,
    /// What was acknowledged is compared with what was read.
    Judge,
    /// The sessions pause, the disk is fast again, and the machine is looked at.
    Rest,
    /// Everything is read through the process that was measured, and judged.
    Check,
    /// The target ends; the place stays.
    Stop,
}

impl Phase {
    /// All of them, in the order in which they can happen.
    pub const ALL: [Phase; 14] = [
        Phase::Load,
        Phase::Calibrate,
        Phase::Start,
        Phase::WarmUp,
        Phase::ReWarm,
        Phase::Shape,
        Phase::Settle,
        Phase::Measure,
        Phase::Recover,
        Phase::Read,
        Phase::Judge,
        Phase::Rest,
        Phase::Check,
        Phase::Stop,
    ];

    /// As it stands in records: "warm-up".
    pub fn name(self) -> &'static str {
        match self {
            Phase::Load => "load",
            Phase::Calibrate => "calibrate",
            Phase::Start => "start",
            Phase::WarmUp => "warm-up",
            Phase::ReWarm => "re-warm",
            Phase::Shape => "shape",
            Phase::Settle => "settle",
            Phase::Measure => "measure",
            Phase::Recover => "recover",
            Phase::Read => "read",
            Phase::Judge => "judge",
            Phase::Rest => "rest",
            Phase::Check => "check",
            Phase::Stop => "stop",
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A phase of a trial that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// Which.
    pub name: Phase,
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// Why it ended when it did.
    pub evidence: String,
}

/// The measured phase: raw counters at both ends and the merged histograms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// What became of the operations that ended, by class, all sessions merged.
    pub books: BooksText,
    /// In an open loop, what was to be sent and what was; absent in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Offered>,
    /// Whether the target kept up with an open loop; absent in a closed one, and in records from before it
    /// was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_up: Option<KeptUp>,
    /// Probe values at the beginning, by probe.
    pub first: BTreeMap<String, Sample>,
    /// Probe values at the end, by probe.
    pub last: BTreeMap<String, Sample>,
    /// The shaped disk's own counters at both ends, on the trial clock; absent when the target does not live
    /// on one.
    pub disk: Option<(device::Counters, device::Counters)>,
    /// Probe values of each node of a cluster, by its name; empty where the target runs in one place, whose
    /// values are `first`, `last` and `disk`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Ends>,
    /// What other tenants of the target's disks did meanwhile; empty where the plan has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    /// Where the processor time went; of all machines that sent the load.
    pub cpu: Cpu,
    /// The machines that sent it together, first the one that kept this record; empty where it was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<LoadMachine>,
    /// What the server counted of each statement of scripts; absent of other loads, under faults, and in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_times: Option<ServerTimes>,
    /// What its intervals say about its figures; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

/// What another tenant of a disk did in the measured phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// The node on whose disk it is; empty where the target runs in one place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Which of the disks there.
    pub disk: Side,
    /// What became of its requests.
    pub books: BooksText,
    /// With arrivals, what it was to send and what it sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Offered>,
    /// Processor time of its process, in nanoseconds.
    pub cpu_ns: u64,
}

/// One of the machines that sent a load together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadMachine {
    /// Its name in the fleet.
    pub machine: String,
    /// Its processors.
    pub processors: u32,
    /// Its sessions.
    pub sessions: u32,
    /// Operations that were done.
    pub operations: u64,
    /// Processor time of the process that sent, in nanoseconds.
    pub process_ns: u64,
    /// Of that, the threads that run sessions.
    pub sessions_ns: u64,
    /// Open loop: how late it was, at p99, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<u64>,
    /// Its clock against that of the first; none of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// By how much its intervals ended before or after those of the first, at most, in nanoseconds.
    pub apart_ns: u64,
}

impl LoadMachine {
    /// Whether the target or this machine set its limit, in a phase of `seconds` seconds with this p99 of the
    /// residence.
    pub fn headroom(&self, seconds: f64, residence: Duration) -> Headroom {
        Headroom::of(&Generator {
            busy: self.sessions_ns as f64 / 1e9 / seconds,
            processors: f64::from(self.processors.min(self.sessions)),
            idle: None,
            steal: None,
            late: self.is_late(residence),
        })
    }

    /// Whether it was so late that it shows in a residence with this p99.
    pub fn is_late(&self, residence: Duration) -> bool {
        self.late_ns.is_some_and(|late| shows(Duration::from_nanos(late), residence))
    }
}

/// Probe values of one node at both ends of a phase, by probe.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ends {
    /// At the beginning.
    pub first: BTreeMap<String, Sample>,
    /// At the end.
    pub last: BTreeMap<String, Sample>,
}

/// How fast `counters` grew together between two samples, per second of the time between them; `None` if one
/// of them was not counted or began anew.
pub fn rate(first: &Sample, last: &Sample, counters: &[&str]) -> Option<f64> {
    let grown: Option<f64> = counters.iter().map(|counter| last.growth(first, counter)).sum();
    let lasted = last.end.since(first.end).as_secs_f64();
    grown.filter(|grown| *grown >= 0.0 && lasted > 0.0).map(|grown| grown / lasted)
}

impl Ends {
    /// How fast `counters` of a probe grew together, as [`rate`].
    pub fn rate(&self, probe: &str, counters: &[&str]) -> Option<f64> {
        rate(self.first.get(probe)?, self.last.get(probe)?, counters)
    }

    /// Processors that its group kept busy, or, where it has none, the processes of its server.
    pub fn busy_cores(&self) -> Option<f64> {
        let of_processes = || self.rate(probe::PROCESS, &["process_cpu_user_ns", "process_cpu_system_ns"]);
        Some(self.rate(probe::GROUP, &["cgroup_cpu_ns"]).or_else(of_processes)? / 1e9)
    }

    /// What grew meanwhile.
    pub fn account(&self) -> Account {
        grown(&by_probe(&self.first), &by_probe(&self.last))
    }
}

fn by_probe(samples: &BTreeMap<String, Sample>) -> BTreeMap<&str, &Sample> {
    samples.iter().map(|(probe, sample)| (probe.as_str(), sample)).collect()
}

/// What grew between the samples of all probes. The moments of budgets' witnesses are kept, those of other
/// probes do not matter.
fn grown<'a>(first: &BTreeMap<&'a str, &'a Sample>, last: &BTreeMap<&'a str, &'a Sample>) -> Account {
    let (witnesses, others): (Vec<&str>, Vec<&str>) = last.keys().copied().partition(|probe| {
        [probe::TARGET, probe::PROCESS, probe::DEVICE, probe::DISK, probe::TENANT].contains(probe)
    });
    let of = |samples: &BTreeMap<&'a str, &'a Sample>, probes: &[&str]| -> Vec<&'a Sample> {
        probes.iter().filter_map(|probe| samples.get(probe).copied()).collect()
    };
    Account::of(of(first, &witnesses), of(last, &witnesses)).beside(of(first, &others), of(last, &others))
}

/// Processor time of the measured phase, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// The process that holds the generator and, if it is embedded, the engine.
    pub process_ns: u64,
    /// Of that, the threads that run sessions.
    pub sessions_ns: u64,
    /// Of that, the generator's own work: operations × its cost per operation, measured on the null target.
    pub generator_ns: u64,
    /// Of that, the request path that was burnt on purpose.
    pub request_path_ns: u64,
    /// The shaped disk's daemon.
    pub disk_ns: u64,
}

impl Cpu {
    /// What is left for the engine, its background threads included.
    pub fn engine_ns(&self) -> u64 {
        self.process_ns.saturating_sub(self.generator_ns + self.request_path_ns)
    }
}

/// One interval of the time series, a line of `series.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The phase that it belongs to.
    pub phase: Phase,
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// What became of the operations that ended in it, by class.
    pub books: BooksText,
    /// In an open loop, what was to be sent and what was; absent in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Offered>,
    /// Probe values at its end, by probe.
    pub samples: BTreeMap<String, Sample>,
    /// The shaped disk's own counters at its end.
    pub disk: Option<device::Counters>,
    /// Probe values of each node of a cluster at its end, by its name; empty where the target runs in one
    /// place, and while nodes were acted on and could not be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, BTreeMap<String, Sample>>,
}

impl Record {
    /// Label of `axis`.
    pub fn label(&self, axis: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == axis).map(|(_, label)| label.as_str())
    }

    /// Whether target or generator set the limit, from the processor time that the generator took; `None` for
    /// a trial that was not measured or not carried out on a machine.
    ///
    /// The generator's own work is its cost per operation on a target that does nothing, and for a server the
    /// whole of its threads, whose driver is the generator's too.
    pub fn headroom(&self) -> Option<Headroom> {
        let measured = self.measured.as_ref()?;
        let cores = self.machine.processors()?;
        let cpu = &measured.cpu;
        let own_ns = match measured.machines.first() {
            Some(first) => first.sessions_ns,
            None if self.spec.is_served() => cpu.sessions_ns,
            None => cpu.generator_ns,
        };
        let system = |name: &str| measured.growth(probe::SYSTEM, name);
        let machine_ns = cores * measured.seconds() * 1e9;
        let idle = system("system_cpu_idle_ns").map(|ns| ns + system("system_cpu_iowait_ns").unwrap_or(0.0));
        let late = measured
            .offered
            .as_ref()
            .and_then(|offered| Some((offered, measured.residence().ok()?)))
            .is_some_and(|(offered, residence)| matches!(offered.late_beside(&residence), Ok(Some(_))));
        let own = Headroom::of(&Generator {
            busy: own_ns as f64 / 1e9 / measured.seconds(),
            processors: cores.min(f64::from(
                measured.machines.first().map_or(self.spec.load.sessions, |first| first.sessions),
            )),
            idle: idle.map(|ns| ns / machine_ns),
            steal: self.steal(),
            late,
        });
        // One that is at its limit keeps the whole load from being the target's.
        let rank = |headroom: &Headroom| match headroom.bound {
            Bound::Generator => 0,
            Bound::Unknown => 1,
            Bound::Target => 2,
        };
        let of_machine = |machine: &str, headroom: Headroom| Headroom {
            because: format!("{machine}: {}", headroom.because),
            ..headroom
        };
        let others = self.headroom_of_machines().into_iter().skip(1);
        let own = match measured.machines.first() {
            Some(first) => of_machine(&first.machine, own),
            None => own,
        };
        let all = others.map(|(machine, headroom)| of_machine(machine, headroom)).chain([own]);
        all.min_by(|a, b| rank(a).cmp(&rank(b)).then(a.times.total_cmp(&b.times)))
    }

    /// Whether the target or the generator set the limit on each machine that sent the load together.
    pub fn headroom_of_machines(&self) -> Vec<(&str, Headroom)> {
        let Some(measured) = self.measured.as_ref().filter(|measured| !measured.machines.is_empty()) else {
            return vec![];
        };
        let residence =
            measured.books.residence().map(|residence| residence.value_at_quantile(0.99)).unwrap_or(0);
        let of =
            |machine: &'_ LoadMachine| machine.headroom(measured.seconds(), Duration::from_nanos(residence));
        measured.machines.iter().map(|machine| (machine.machine.as_str(), of(machine))).collect()
    }

    /// Whether the target kept up with an open loop.
    pub fn kept_up(&self) -> Option<KeptUp> {
        self.measured.as_ref()?.kept_up
    }

    /// Operations that were done and that the plan wants, where `measure_most` ended the trial before it had
    /// them: its figures rest on less than was asked for.
    pub fn fell_short(&self) -> Option<(u64, u64)> {
        let (done, wanted) = (self.measured.as_ref()?.operations(), self.spec.trial.measure_operations);
        (done < wanted).then_some((done, wanted))
    }

    /// Share of the machine's processor time in the measured phase that was taken by programs that are no
    /// part of the trial. `None` for a server at an address, whose own time is not known apart, and where the
    /// machine's was not read.
    pub fn neighbours(&self) -> Option<f64> {
        let measured =
            self.measured.as_ref().filter(|_| self.spec.lab.is_some() || !self.spec.is_served())?;
        let cores = self.machine.processors()?;
        let system = |name: &str| measured.growth(probe::SYSTEM, name);
        let (first, last) = (measured.first.get(probe::SYSTEM)?, measured.last.get(probe::SYSTEM)?);
        let machine_ns = cores * last.end.since(first.end).as_nanos() as f64;
        let waiting = ["system_cpu_iowait_ns", "system_cpu_steal_ns"];
        // The kernel sends a server's packets in interrupts, which are charged to no process.
        let of_network = ["system_cpu_irq_ns", "system_cpu_softirq_ns"];
        let of_network = of_network.iter().filter(|_| self.spec.is_served());
        let others: f64 = waiting.iter().chain(of_network).filter_map(|name| system(name)).sum();
        let free_ns = system("system_cpu_idle_ns")? + others;
        // Of several machines that sent the load only the first one's processors are these.
        let process_ns = measured.machines.first().map_or(measured.cpu.process_ns, |first| first.process_ns);
        let tenants_ns: u64 = measured.tenants.iter().map(|tenant| tenant.cpu_ns).sum();
        let nodes: Option<f64> = measured.nodes.values().map(Ends::busy_cores).sum();
        let nodes_ns = nodes? * last.end.since(first.end).as_nanos() as f64;
        let own_ns = (process_ns + measured.cpu.disk_ns + tenants_ns) as f64 + nodes_ns;
        (machine_ns > 0.0).then(|| ((machine_ns - free_ns - own_ns) / machine_ns).clamp(0.0, 1.0))
    }

    /// Share of the machine's processor time in the measured phase that its host gave to others.
    pub fn steal(&self) -> Option<f64> {
        let cores = self.machine.processors()?;
        let measured = self.measured.as_ref()?;
        Some(measured.growth(probe::SYSTEM, "system_cpu_steal_ns")? / (cores * measured.seconds() * 1e9))
    }

    /// Where the bytes that `way` went came from and went to, for each node; under "" where the target runs
    /// in one place. Empty for a trial that was not measured.
    pub fn budgets(&self, way: Way) -> BTreeMap<String, Budget> {
        let Some(measured) = &self.measured else { return BTreeMap::new() };
        let user = self.user_bytes();
        let budget = |account: &Account| match way {
            Way::Reads => Budget::reads(account),
            Way::Writes => Budget::writes(account, user),
        };
        measured.accounts().iter().map(|(node, account)| (node.clone(), budget(account))).collect()
    }

    /// Bytes of keys and values that operations wrote in the measured phase; `None` where the workload does
    /// not say how large its writes are.
    pub fn user_bytes(&self) -> Option<f64> {
        let measured = self.measured.as_ref().filter(|_| !self.spec.checks_alone())?;
        self.spec.workload.written_bytes(&measured.books)
    }

    /// Whether its figures may be used.
    pub fn is_valid(&self) -> bool {
        self.verdict == Verdict::Valid && self.measured.is_some()
    }
}

impl Measured {
    /// Length of the phase in seconds.
    pub fn seconds(&self) -> f64 {
        self.end.since(self.begin).as_secs_f64()
    }

    /// Operations that were done, each counted once: a read-modify-write is one.
    pub fn operations(&self) -> u64 {
        self.books.done()
    }

    /// Operations refused or unknown, by reason.
    pub fn failures(&self) -> BTreeMap<Failure, u64> {
        self.books.failures()
    }

    /// Operations that were not done: refused, unknown, due and never sent, or never answered.
    pub fn failed(&self) -> u64 {
        self.books.failed() + self.offered.as_ref().map_or(0, Offered::lost)
    }

    /// Operations due per second in an open loop; `None` in a closed one, where the target decides.
    pub fn offered_load(&self) -> Option<f64> {
        self.offered.as_ref().map(|offered| offered.due as f64 / self.seconds())
    }

    /// Operations done per second.
    pub fn throughput(&self) -> f64 {
        self.operations() as f64 / self.seconds()
    }

    /// Counts and latencies by class.
    ///
    /// # Errors
    /// When the record was tampered with.
    pub fn books(&self) -> Result<Books, String> {
        Books::from_text(&self.books)
    }

    /// Operations per second that were done within `longest` of being due.
    pub fn goodput(&self, longest: Duration) -> Result<f64, String> {
        Ok(self.books.done_within(longest)? as f64 / self.seconds())
    }

    /// What users waited for all operations that ended, failed ones included.
    pub fn residence(&self) -> Result<Histogram, String> {
        Ok(self.books()?.residence())
    }

    /// Growth of a counter of a probe over the phase.
    pub fn growth(&self, probe: &str, metric: &str) -> Option<f64> {
        self.last.get(probe)?.growth(self.first.get(probe)?, metric)
    }

    /// iostat's columns for the phase, from the disk's own counters.
    pub fn disk_rates(&self) -> Option<device::Rates> {
        let (first, last) = self.disk.as_ref()?;
        last.rates_since(first)
    }

    /// Growth of a counter in the one place where the target runs, the shaped disk's too: that of a cluster's
    /// only node is it. `None` for several nodes, and if nobody counted it.
    pub fn growth_in_place(&self, probe: &str, metric: &str) -> Option<f64> {
        match (self.only_node(), &self.disk) {
            (Some(node), _) => node.last.get(probe)?.growth(node.first.get(probe)?, metric),
            (None, Some((first, last))) if probe == probe::DISK => {
                Sample::from(last).growth(&Sample::from(first), metric)
            }
            _ if self.nodes.is_empty() => self.growth(probe, metric),
            _ => None,
        }
    }

    /// How fast a counter there grew, per second between its two samples.
    pub fn rate_in_place(&self, probe: &str, metric: &str) -> Option<f64> {
        let disk = self.disk.as_ref().filter(|_| probe == probe::DISK);
        match (self.only_node(), disk) {
            (Some(node), _) => node.rate(probe, &[metric]),
            (None, Some((first, last))) => rate(&Sample::from(first), &Sample::from(last), &[metric]),
            _ if self.nodes.is_empty() => rate(self.first.get(probe)?, self.last.get(probe)?, &[metric]),
            _ => None,
        }
    }

    /// Level of a gauge there at the end of the phase.
    pub fn level_in_place(&self, probe: &str, metric: &str) -> Option<f64> {
        match self.only_node() {
            Some(node) => node.last.get(probe)?.get(metric),
            None if self.nodes.is_empty() => self.level(probe, metric),
            None => None,
        }
    }

    /// Operations that the target's statistics had seen. Of a server whose statistics are old at either
    /// end these are the transactions that stand in them, unless those are no operations.
    pub fn operations_seen(&self) -> f64 {
        let done = self.operations() as f64;
        let is_old = self.level_in_place(probe::TARGET, metric::ENGINE_STATISTICS_AGE_MS) > Some(0.0);
        let committed = || self.growth_in_place(probe::TARGET, metric::ENGINE_COMMITS);
        let seen = is_old.then(committed).flatten().filter(|seen| (0.5..2.0).contains(&(seen / done)));
        seen.unwrap_or(done)
    }

    /// The node of a cluster of one.
    pub fn only_node(&self) -> Option<&Ends> {
        self.nodes.values().next().filter(|_| self.nodes.len() == 1)
    }

    /// Nodes with processes that the kernel killed for want of memory, and how many: in this phase, or before
    /// it where nothing was answered since. A group outlives its servers, so an older kill may be another
    /// trial's.
    pub fn killed_for_memory(&self) -> BTreeMap<&str, f64> {
        let silent = self.operations() == 0;
        let kills = self.nodes.iter().filter_map(|(name, ends)| {
            let (first, last) = (ends.first.get(probe::GROUP)?, ends.last.get(probe::GROUP)?);
            let now = last.growth(first, metric::GROUP_OOM_KILLS)?;
            let kills = if silent { last.get(metric::GROUP_OOM_KILLS)? } else { now };
            (kills > 0.0).then_some((name.as_str(), kills))
        });
        kills.collect()
    }

    /// What was counted of each place where the target runs: under "" of the one that holds it, or of each
    /// node of a cluster under its name.
    pub fn accounts(&self) -> BTreeMap<String, Account> {
        // Which node of a cluster an operation went to is not known.
        let committed = self.growth_in_place(probe::TARGET, metric::ENGINE_COMMITS);
        let operations = |account: Account| match committed {
            Some(committed) => account.with_operations(self.operations() as f64, committed),
            None => account,
        };
        if self.nodes.is_empty() {
            let disk = self.disk.as_ref().map(|(first, last)| (Sample::from(first), Sample::from(last)));
            let (mut first, mut last) = (by_probe(&self.first), by_probe(&self.last));
            if let Some((at_first, at_last)) = &disk {
                first.insert(probe::DISK, at_first);
                last.insert(probe::DISK, at_last);
            }
            return BTreeMap::from([(String::new(), operations(grown(&first, &last)))]);
        }
        let account = |ends: &Ends| match self.nodes.len() {
            1 => operations(ends.account()),
            _ => ends.account(),
        };
        self.nodes.iter().map(|(node, ends)| (node.clone(), account(ends))).collect()
    }

    /// Level of a gauge of a probe at the end of the phase.
    pub fn level(&self, probe: &str, metric: &str) -> Option<f64> {
        self.last.get(probe)?.get(metric)
    }
}
