//! The virtual world: whole trials in virtual time, with the same phases, workload, device model and records
//! as real ones, in milliseconds.
//!
//! The engine is a cache of leaf pages with random replacement above a page cache of the same kind, both fed
//! by the real workload; sessions queue for processors first come first served and for the real
//! [`device::Model`]. Inner pages and the index are taken to be cached, as they are within the first second
//! of a real trial. Under faults there is one database, which loses its power, and whose clients keep a
//! history ([`guilty`]). It serves to test everything that lives on records, the pipeline of phases too, and
//! to say what a plan would give before it is run.

mod tenant;

use super::{Draft, Of, World, WorldFacts, carry_out};
use crate::check::guilty::{self, Culprit, Extent, Work};
use crate::check::loaded::known_since;
use crate::check::{
    Broken, Carried, Check, Evidence, Judgement, KeyScan, Loaded, LoadedScan, Observation, broken,
};
use crate::device::{Kind, Model};
use crate::experiment::{Spec, Trial};
use crate::machine;
use crate::measure::{Books, WarmUp, Within};
use crate::metric::{Sample, name, probe};
use crate::op::{Op, OpKind, Outcome, Timing};
use crate::predict::cache::{Cache, Policy};
use crate::record::{Cpu, Interval, Measured, Phase, Provenance, Record};
use crate::schedule::{Action, Injection};
use crate::units::{Bytes, Tick};
use crate::workload::{Random, Records, Workload};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;
use tenant::Tenant;

/// What a simulated machine costs; the defaults were measured on a 2-core machine with WiredTiger 11.3.1.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Processors.
    pub cores: u32,
    /// Processor time of a read whose pages are in the engine's cache.
    pub hit_cpu: Duration,
    /// Additional processor time of a page that comes from the page cache: copy, checksum, rebuild, evict.
    pub miss_cpu: Duration,
    /// Bytes of a leaf page in the engine's cache.
    pub leaf_resident: Bytes,
    /// Bytes of the same page in the file.
    pub leaf_file: Bytes,
    /// Memory of the target's group that is neither engine cache nor page cache.
    pub other_memory: Bytes,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            cores: 2,
            hit_cpu: Duration::from_nanos(1_500),
            miss_cpu: Duration::from_micros(25),
            leaf_resident: Bytes(36_000),
            leaf_file: Bytes::kib(29),
            other_memory: Bytes::mib(24),
        }
    }
}

const PAGE: u64 = 4096;

/// Totals of the simulated counters.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    operations: u64,
    misses: u64,
    engine_bytes: u64,
    fetched_bytes: u64,
    cpu_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The session got its processor time; `rest` device requests follow.
    Computed(u32),
    /// The device answered one request.
    Fetched(u32),
    /// A request of a session of the tenant is due.
    TenantDue(u32),
    /// The device answered it.
    TenantServed(u32),
}

struct Session {
    began: Tick,
    number: u64,
    kind: OpKind,
    /// Requests still to be sent for the page at hand, one after the other as a read without readahead does.
    requests: u64,
    request_bytes: u64,
    sent: Tick,
    /// Processor time after the last request, if a page was fetched or copied.
    finishing: Duration,
}

/// A machine with a target on it, at work.
struct Running {
    spec: Spec,
    machine: Machine,
    workload: Box<dyn Workload>,
    records: Records,
    records_per_leaf: u64,
    engine: Cache,
    page_cache: Cache,
    model: Model,
    random: Random,
    now: Tick,
    events: BinaryHeap<Reverse<(Tick, u64, Event)>>,
    order: u64,
    idle_cores: u32,
    waiting: VecDeque<(u32, Duration)>,
    sessions: Vec<Session>,
    counts: Counts,
    books: Books,
    tenant: Option<Tenant>,
}

impl Running {
    fn schedule(&mut self, at: Tick, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn compute(&mut self, session: u32, time: Duration) {
        if self.idle_cores == 0 {
            self.waiting.push_back((session, time));
        } else {
            self.idle_cores -= 1;
            self.counts.cpu_ns += time.as_nanos() as u64;
            self.schedule(self.now + time, Event::Computed(session));
        }
    }

    fn release_core(&mut self) {
        self.idle_cores += 1;
        if let Some((session, time)) = self.waiting.pop_front() {
            self.compute(session, time);
        }
    }

    /// Looks the operation's page up in both caches; returns the device requests that it takes, their size
    /// and the processor time for a page that was not in the engine's cache.
    fn look_up(&mut self, op: &Op) -> (u64, u64, Duration) {
        match *op {
            Op::Read { record, .. }
            | Op::Update { record, .. }
            | Op::Insert { record }
            | Op::ReadModifyWrite { record, .. }
            | Op::InsertMany { first: record, .. }
            | Op::Scan { first: record, .. } => {
                let leaf = record / self.records_per_leaf;
                if self.engine.touch(leaf, &mut self.random) {
                    return (0, 0, Duration::ZERO);
                }
                self.counts.misses += 1;
                self.counts.engine_bytes += self.machine.leaf_file.0;
                let cached = self.page_cache.touch(leaf, &mut self.random);
                // Without readahead each page of a buffered read is a request; with it one request brings
                // them all.
                let (requests, size) = match (cached, self.spec.disk.readahead.0) {
                    (true, _) => (0, 0),
                    (false, 0) => (self.machine.leaf_file.0.div_ceil(PAGE), PAGE),
                    (false, _) => (1, self.machine.leaf_file.0),
                };
                self.counts.fetched_bytes += requests * size;
                (requests, size, self.machine.miss_cpu)
            }
            Op::ReadAt { length, .. } | Op::WriteAt { length, .. } => {
                self.counts.engine_bytes += u64::from(length);
                self.counts.fetched_bytes += u64::from(length);
                (u64::from(length) / PAGE, PAGE, Duration::from_micros(1))
            }
            Op::Transfer { .. }
            | Op::ReadBalances
            | Op::Transaction { .. }
            | Op::Script { .. }
            | Op::Flush { .. } => (0, 0, Duration::ZERO),
        }
    }

    fn begin(&mut self, session: u32) {
        let op = self.workload.op(self.sessions[session as usize].number, &self.records);
        let (requests, request_bytes, finishing) = self.look_up(&op);
        let state = &mut self.sessions[session as usize];
        (state.began, state.kind) = (self.now, op.kind());
        (state.requests, state.request_bytes, state.finishing) = (requests, request_bytes, finishing);
        self.compute(session, self.spec.target.request_path_cpu + self.machine.hit_cpu);
    }

    fn next_step(&mut self, session: u32) {
        let state = &mut self.sessions[session as usize];
        if state.requests > 0 {
            state.requests -= 1;
            state.sent = self.now;
            let size = Bytes(state.request_bytes);
            let done = self.model.submit(self.now, Kind::Read, size);
            self.schedule(done, Event::Fetched(session));
        } else if state.finishing > Duration::ZERO {
            let time = std::mem::take(&mut state.finishing);
            self.compute(session, time);
        } else {
            let timing = Timing { due: state.began, began: state.began, ended: self.now };
            state.number += self.spec.load.sessions as u64;
            self.books.record(state.kind, Outcome::Done, &timing, 0);
            self.counts.operations += 1;
            self.begin(session);
        }
    }

    fn run_until(&mut self, end: Tick) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            match event {
                Event::Computed(session) => {
                    self.release_core();
                    self.next_step(session);
                }
                Event::Fetched(session) => {
                    let state = &self.sessions[session as usize];
                    let (sent, size) = (state.sent, Bytes(state.request_bytes));
                    self.model.complete(sent, at, Kind::Read, size);
                    self.next_step(session);
                }
                Event::TenantDue(session) => self.send_of_tenant(session),
                Event::TenantServed(session) => self.answer_to_tenant(session),
            }
        }
        self.now = end;
    }

    fn samples(&self) -> BTreeMap<String, Sample> {
        let c = &self.counts;
        let sample = |values: &[(&str, u64)]| Sample {
            begin: self.now,
            end: self.now,
            values: values.iter().map(|(name, value)| (name.to_string(), *value as f64)).collect(),
        };
        let tenant = self.tenant.as_ref().map(|tenant| (probe::TENANT.to_string(), tenant.sample(self.now)));
        let (bytes, requests) = self.tenant.as_ref().map_or((0, 0), Tenant::reads);
        let own = [
            (
                probe::TARGET.into(),
                sample(&[
                    (name::ENGINE_SEARCHES, c.operations * 2),
                    (name::ENGINE_PAGE_READS, c.misses),
                    (name::ENGINE_CACHE_READ_BYTES, c.misses * self.machine.leaf_resident.0),
                    (name::ENGINE_FILE_READS, c.misses),
                    (name::ENGINE_FILE_READ_BYTES, c.engine_bytes),
                    (name::ENGINE_CACHE_BYTES, self.engine.len() as u64 * self.machine.leaf_resident.0),
                ]),
            ),
            (
                probe::PROCESS.into(),
                sample(&[
                    (name::PROCESS_ASKED_READ_BYTES, c.engine_bytes),
                    (name::PROCESS_DEVICE_READ_BYTES, c.fetched_bytes),
                ]),
            ),
            (
                probe::DEVICE.into(),
                sample(&[
                    (name::DEVICE_READ_BYTES, c.fetched_bytes + bytes),
                    (name::DEVICE_READ_REQUESTS, c.fetched_bytes / PAGE + requests),
                ]),
            ),
        ];
        own.into_iter().chain(tenant).collect()
    }
}

/// What a closed loop sends, and over how many leaf pages it is spread.
fn load_of(spec: &Spec, seed: u64, records_per_leaf: u64) -> (Box<dyn Workload>, u64) {
    let (dataset, workload) = spec.load_of(seed);
    let leaves =
        if spec.workload.kind.has_records() { dataset.records.div_ceil(records_per_leaf) } else { 1 };
    (workload, leaves)
}

impl Running {
    /// The machine of `spec` at its cache equilibrium, all sessions about to begin.
    fn warmed_up(spec: &Spec, machine: &Machine, seed: u64) -> Result<Running, String> {
        let records_per_leaf =
            (machine.leaf_resident.0 / spec.target.wiredtiger.record_resident_bytes).max(1);
        let (workload, leaves) = load_of(spec, seed, records_per_leaf);
        let cache = spec.effective_cache_bytes().0;
        let memory = spec.machine.memory.map_or(u64::MAX / 2, |memory| memory.0);
        let page_cache = memory.saturating_sub(cache + machine.other_memory.0);
        let mut world = Running {
            spec: spec.clone(),
            machine: machine.clone(),
            workload,
            records: Records::new(spec.records()),
            records_per_leaf,
            engine: Cache::new(leaves, cache / machine.leaf_resident.0, Policy::Random),
            page_cache: Cache::new(leaves, page_cache / machine.leaf_file.0, Policy::Random),
            model: Model::new(spec.shape().map_err(|error| error.to_string())?, seed),
            random: Random::new(seed, u64::MAX),
            now: Tick(0),
            events: BinaryHeap::new(),
            order: 0,
            idle_cores: machine.cores,
            waiting: VecDeque::new(),
            sessions: vec![],
            counts: Counts::default(),
            books: Books::closed(),
            tenant: Tenant::of(spec, seed),
        };
        // Warm-up needs no time: operations beyond the measured ones pass through the caches until both
        // turned over.
        const WARM_UP_FROM: u64 = 1 << 60;
        for n in 0..leaves * 40 {
            let op = world.workload.op(WARM_UP_FROM + n, &world.records);
            world.look_up(&op);
        }
        world.counts = Counts::default();
        for index in 0..spec.load.sessions {
            world.sessions.push(Session {
                began: Tick(0),
                number: u64::from(index),
                kind: OpKind::Read,
                requests: 0,
                request_bytes: 0,
                sent: Tick(0),
                finishing: Duration::ZERO,
            });
            world.begin(index);
        }
        world.begin_tenant();
        Ok(world)
    }

    /// Lets the queue fill as in a real trial before anything counts.
    fn settle(&mut self) {
        let spec = &self.spec;
        let settle = self.model.spec().iops.map_or(Duration::from_millis(100), |iops| {
            Duration::from_secs_f64(f64::from(spec.load.sessions) * 8.0 * spec.trial.settle_turns / iops.0)
        });
        self.run_until(Tick(0) + settle);
        self.books.clear();
        self.tenant.iter_mut().for_each(Tenant::forget);
    }

    /// Runs intervals until the plan has enough.
    fn measure(&mut self) -> (Measured, Vec<Interval>) {
        let spec = self.spec.clone();
        let begin = self.now;
        let before = self.counts;
        let (first, first_disk) = (self.samples(), self.model.counters(begin));
        let mut series = Vec::new();
        let mut merged = Books::closed();
        loop {
            let interval_begin = self.now;
            self.run_until(interval_begin + spec.trial.interval);
            merged.merge(&self.books);
            series.push(Interval {
                phase: Phase::Measure,
                begin: interval_begin,
                end: self.now,
                books: self.books.to_text(),
                offered: None,
                samples: self.samples(),
                disk: Some(self.model.counters(self.now)),
                nodes: BTreeMap::new(),
            });
            self.books.clear();
            let elapsed = self.now.since(begin);
            let enough = self.counts.operations - before.operations >= spec.trial.measure_operations;
            if elapsed >= spec.trial.measure_most || (enough && elapsed >= spec.trial.measure_least) {
                break;
            }
        }
        let operations = self.counts.operations - before.operations;
        let cpu_ns = self.counts.cpu_ns - before.cpu_ns;
        let path_ns = spec.target.request_path_cpu.as_nanos() as u64 * operations;
        let intervals: Vec<&Interval> =
            series.iter().filter(|interval| interval.phase == Phase::Measure).collect();
        let within = Within::of(&intervals).expect("books that were just written");
        let measured = Measured {
            begin,
            end: self.now,
            books: merged.to_text(),
            offered: None,
            kept_up: None,
            first,
            last: self.samples(),
            disk: Some((first_disk, self.model.counters(self.now))),
            nodes: BTreeMap::new(),
            machines: vec![],
            tenants: self.tenant.iter().map(Tenant::record).collect(),
            cpu: Cpu {
                process_ns: cpu_ns,
                sessions_ns: cpu_ns,
                generator_ns: 0,
                request_path_ns: path_ns.min(cpu_ns),
                disk_ns: 0,
            },
            server_times: None,
            within: Some(within),
        };
        (measured, series)
    }
}

/// Checks of the virtual world's one database.
struct Checked {
    evidence: Evidence,
    seen: Observation,
}

/// Where trials only count, and need no time.
pub struct VirtualWorld {
    /// Of every trial.
    pub machine: Machine,
    /// What the database does wrong that is checked.
    pub culprit: Culprit,
    seed: u64,
    now: Tick,
    at_work: Option<Running>,
    loaded: Option<(Loaded, Vec<Injection>)>,
    checked: Option<Checked>,
}

impl VirtualWorld {
    /// One for the trials of an experiment with this seed.
    pub fn new(machine: &Machine, seed: u64) -> VirtualWorld {
        VirtualWorld {
            machine: machine.clone(),
            culprit: Culprit::Honest,
            seed,
            now: Tick(0),
            at_work: None,
            loaded: None,
            checked: None,
        }
    }

    fn at_work(&mut self) -> Result<&mut Running, String> {
        self.at_work.as_mut().ok_or_else(|| "no target is at work".into())
    }

    /// Lets the clients of a checked database work, and its power go at the times of the schedule.
    fn measure_checked(&mut self, trial: &Trial<'_>) -> Result<(Measured, Checked), String> {
        let spec = &trial.cell.spec;
        let seed = trial.seed(self.seed);
        let breaking = spec.breaking.as_ref();
        let checks = match (breaking, spec.workload.kind.check()) {
            (Some(breaking), _) => breaking.checks.clone(),
            (None, check) => check.into_iter().collect(),
        };
        let work = match checks.as_slice() {
            [Check::Ledger] | [Check::Register] | [Check::Ledger, Check::Register] => Work::Keys,
            [Check::Isolation] => Work::Lists,
            other => return Err(format!("no database of the virtual world is checked by {other:?}")),
        };
        let length = breaking.map_or(spec.trial.measure_least, |breaking| breaking.length);
        // What came before it took its part of the time and of the faults.
        let before_ms = self.loaded.as_ref().map_or(0, |(loaded, _)| loaded.end.0.div_ceil(1_000_000));
        let faults_ms = faults_ms(spec, seed)?.into_iter().filter_map(|at| at.checked_sub(before_ms));
        let extent = Extent {
            clients: spec.load.sessions,
            end_ms: (length.as_millis() as u64).saturating_sub(before_ms),
            faults_ms: faults_ms.collect(),
            ..Extent::default()
        };
        let mut seen = guilty::observe_for(&extent, self.culprit, work, seed);
        shift(&mut seen, Duration::from_millis(before_ms));
        let (loaded, while_loading) = self.loaded.take().unzip();
        seen.injections.splice(0..0, while_loading.into_iter().flatten());
        let books = broken::books(&seen.history.entries, Tick(u64::MAX));
        let ended = seen.history.entries.iter().filter_map(|entry| entry.ended).max();
        self.now = ended.unwrap_or_default();
        let measured = Measured {
            begin: Tick(before_ms * 1_000_000),
            end: self.now,
            books: books.to_text(),
            offered: None,
            kept_up: None,
            first: BTreeMap::new(),
            last: BTreeMap::new(),
            disk: None,
            nodes: BTreeMap::new(),
            machines: vec![],
            tenants: vec![],
            cpu: Cpu::default(),
            server_times: None,
            within: None,
        };
        let evidence = Evidence {
            checks,
            exposure: breaking.map(|breaking| breaking.exposure(spec.target.durability)),
            injections: seen.injections.clone(),
            keys: seen.keys.clone(),
            lists: seen.lists.clone(),
            loaded,
            ..Evidence::default()
        };
        Ok((measured, Checked { evidence, seen }))
    }

    /// Loads the records of the cell while the power of the database goes at the times of the schedule.
    fn load_under_faults(&mut self, trial: &Trial<'_>) -> Result<String, String> {
        let (spec, seed) = (&trial.cell.spec, trial.seed(self.seed));
        let length = spec.breaking.as_ref().map_or(Duration::ZERO, |breaking| breaking.length);
        let extent = Extent {
            clients: spec.load.sessions,
            keys: spec.records(),
            end_ms: length.as_millis() as u64,
            faults_ms: faults_ms(spec, seed)?,
        };
        let mut seen = guilty::observe_for(&extent, self.culprit, Work::Loading, seed);
        let mut loaded = Loaded::of(&seen.history, extent.keys);
        let known = known_since(&seen.history);
        let scan = |scan: &KeyScan| {
            let there: BTreeSet<u64> = scan.rows.iter().map(|(key, _)| *key).collect();
            let missing = (0..extent.keys).filter(|record| !there.contains(record));
            LoadedScan {
                source: scan.source.clone(),
                pass: scan.pass,
                at: scan.at,
                missing: missing.map(|record| (record, known.get(&record).copied())).collect(),
                wrong: vec![],
            }
        };
        loaded.scans = seen.keys.iter().map(scan).collect();
        seen.injections.retain(|injection| injection.at <= loaded.end);
        let evidence = format!("{} of {} records, in virtual time", loaded.known, loaded.count);
        (self.now, self.loaded) = (loaded.end, Some((loaded, seen.injections)));
        Ok(evidence)
    }

    fn checked(&mut self) -> Result<Checked, String> {
        self.checked.take().ok_or_else(|| "nothing was seen that could be judged".into())
    }

    /// What is found after faults.
    fn judge(&mut self) -> Result<Broken, String> {
        let Checked { mut evidence, seen } = self.checked()?;
        let carried = seen.injections.iter().map(|injection| Carried {
            injection: injection.clone(),
            evidence: vec!["the only node lost its power".into()],
            primaries: vec![],
        });
        let carried = carried.collect();
        Broken::judge(seen.history, &mut evidence, carried, None).map_err(|error| error.to_string())
    }

    /// What is found by reading everything through what was measured.
    fn check(&mut self) -> Result<Judgement, String> {
        let Checked { evidence, seen } = self.checked()?;
        evidence.judge(seen.history).map_err(|error| error.to_string())
    }
}

/// When the schedule of `spec` injects its faults, in milliseconds.
fn faults_ms(spec: &Spec, seed: u64) -> Result<Vec<u64>, String> {
    let Some(breaking) = &spec.breaking else { return Ok(vec![]) };
    let names = spec.cluster().map_err(|error| error.to_string())?.layout().names();
    let faults = breaking.faults.expand(&names, breaking.length, seed).map_err(|error| error.to_string())?;
    let injected = faults.iter().filter(|line| matches!(line.action, Action::Inject { .. }));
    Ok(injected.map(|line| line.at.as_millis() as u64).collect())
}

/// Moves all that was seen to a later time.
fn shift(seen: &mut Observation, by: Duration) {
    for entry in &mut seen.history.entries {
        (entry.due, entry.began) = (entry.due + by, entry.began + by);
        entry.ended = entry.ended.map(|ended| ended + by);
    }
    for injection in &mut seen.injections {
        injection.at = injection.at + by;
        injection.undone = injection.undone.map(|undone| undone + by);
    }
    seen.keys.iter_mut().for_each(|scan| scan.at = scan.at + by);
    seen.lists.iter_mut().for_each(|scan| scan.at = scan.at + by);
}

impl World for VirtualWorld {
    type Error = String;

    fn now(&self) -> Tick {
        self.at_work.as_ref().map_or(self.now, |running| running.now)
    }

    fn interrupted(&self) -> Result<(), String> {
        Ok(())
    }

    fn carry_out(&mut self, phase: Phase, trial: &Trial<'_>, draft: &mut Draft) -> Result<String, String> {
        let spec = &trial.cell.spec;
        Ok(match phase {
            Phase::Load if spec.breaks_loading() => self.load_under_faults(trial)?,
            Phase::Load => "records are numbers here, and need no place".into(),
            Phase::Calibrate => {
                spec.shape().map_err(|error| error.to_string())?;
                "the model is exact".into()
            }
            Phase::Start => format!("{} processors in virtual time", self.machine.cores),
            Phase::WarmUp | Phase::ReWarm => {
                let evidence = "both caches turned over, in no time";
                draft.warm_up = Some(WarmUp::Steady(evidence.into()));
                evidence.into()
            }
            Phase::Shape => {
                if !spec.keeps_history() {
                    // Caches at rest are the same whatever the disk's shape, so each shape gets its own.
                    let running = Running::warmed_up(spec, &self.machine, trial.seed(self.seed))?;
                    self.at_work = Some(running);
                }
                spec.disk.shape.clone()
            }
            Phase::Settle => {
                if let Some(running) = &mut self.at_work {
                    running.settle();
                }
                "rounds of device waits in virtual time, as the plan says".into()
            }
            Phase::Measure if spec.keeps_history() => {
                let (measured, checked) = self.measure_checked(trial)?;
                (draft.measured, self.checked) = (Some(measured), Some(checked));
                "until the schedule was over, in virtual time".into()
            }
            Phase::Measure => {
                let (measured, series) = self.at_work()?.measure();
                draft.measured = Some(measured);
                draft.series.extend(series);
                "as the plan says, in virtual time".into()
            }
            Phase::Recover => "the only node is back".into(),
            Phase::Read => "everything is known".into(),
            Phase::Judge => {
                let broken = self.judge()?;
                let verdict = broken.verdict.words().into();
                draft.broken = Some(broken);
                verdict
            }
            Phase::Rest => {
                self.now = self.now();
                self.at_work = None;
                "nobody is tired".into()
            }
            Phase::Check => {
                let judgement = self.check()?;
                let verdict = judgement.verdict.words().into();
                draft.checked = Some(judgement);
                verdict
            }
            Phase::Stop => "there is nothing to stop".into(),
        })
    }

    fn facts(&self) -> WorldFacts {
        WorldFacts {
            provenance: Provenance {
                command: "simulated".into(),
                version: String::new(),
                commit: String::new(),
                started_unix_s: 0,
                machine: None,
            },
            machine: machine::Facts {
                format: machine::FORMAT,
                simulated: true,
                cores: self.machine.cores,
                ..machine::Facts::default()
            },
            missed: vec![],
            target: BTreeMap::from([("system".into(), "simulated".into())]),
            disk: BTreeMap::from([("mode".into(), "simulated".into())]),
            metrics: BTreeMap::new(),
            memory_bounded: true,
        }
    }

    fn reason(&self, error: &String) -> String {
        error.clone()
    }

    fn clear(&mut self) {
        (self.at_work, self.checked) = (None, None);
    }
}

/// Carries out `trial` in virtual time on `machine`; always gives the same record for the same arguments.
///
/// # Panics
/// On a trial that no plan can have: a checked spec has a shape.
pub fn trial(
    experiment: &str,
    trial: &Trial<'_>,
    experiment_seed: u64,
    machine: &Machine,
) -> (Record, Vec<Interval>) {
    let mut world = VirtualWorld::new(machine, experiment_seed);
    let of = Of { experiment, seed: experiment_seed };
    let mut kept = None;
    let ended = carry_out(&mut world, of, vec![trial.clone()], |_, _, record, series| {
        kept = Some((record, series));
        Ok(())
    });
    ended.expect("nothing interrupts the virtual world, and nothing keeps it from keeping");
    kept.expect("one trial gives one record")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::measure::{Way, little_residual};

    const PLAN: &str = include_str!("../../../../experiments/working-set.toml");

    fn matrix() -> Vec<(Record, Vec<Interval>)> {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let cells = experiment.sweeps.iter().filter(|s| s.name == "reads").flat_map(|s| &s.cells);
        cells
            .map(|cell| trial("t", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default()))
            .collect()
    }

    #[test]
    fn the_published_physics_comes_out() {
        let records: Vec<Record> = matrix().into_iter().map(|(record, _)| record).collect();
        let measured = |set: &str, disk: &str| {
            let wanted = |r: &&Record| r.label("working_set") == Some(set) && r.label("disk") == Some(disk);
            records.iter().find(wanted).unwrap().measured.clone().unwrap()
        };
        let (fast, middle, slow) = ("5000 IOPS", "600 IOPS + 7 ms", "150 IOPS + 7 ms");
        let x = |set: &str, disk: &str| measured(set, disk).throughput();
        for set in ["92 %", "138 %"] {
            let alike = x(set, slow) / x(set, fast);
            assert!((alike - 1.0).abs() < 0.02, "{set}: the disk does not matter, but slow / fast = {alike}");
        }
        let drop = 1.0 - x("138 %", fast) / x("92 %", fast);
        assert!((0.03..0.25).contains(&drop), "beyond the engine's cache {drop} is lost");
        let (a, b) = (x("230 %", fast) / x("230 %", slow), x("230 %", middle) / x("230 %", slow));
        assert!(
            (a / 33.3 - 1.0).abs() < 0.2 && (b / 4.0 - 1.0).abs() < 0.2,
            "33 : 4 : 1 came out as {a} : {b} : 1"
        );
        let p99 = measured("230 %", slow).residence().unwrap().value_at_quantile(0.99) as f64 / 1e9;
        let expected = 7.25 * 16.0 / 150.0;
        assert!(
            (p99 / expected - 1.0).abs() < 0.25,
            "p99 {p99} s, reads per miss × sessions / IOPS = {expected} s"
        );
    }

    #[test]
    fn laws_hold_and_budgets_close() {
        for (record, series) in matrix() {
            let budget = record.budgets(Way::Reads).remove("").unwrap();
            let m = record.measured.unwrap();
            let mean = m.residence().unwrap().mean() / 1e9;
            let residual = little_residual(16.0, m.throughput(), mean);
            assert!(residual.abs() < 0.06, "{}: Little's law is off by {residual}", record.cell);
            assert_eq!(budget.closes, Some(true), "{}: {}", record.cell, budget.evidence);
            assert_eq!(series.iter().map(|i| i.books.done()).sum::<u64>(), m.operations());
            let rates = m.disk_rates().unwrap();
            if rates.utilization.0 > 0.99 {
                let wait = rates.read_await.unwrap().as_secs_f64();
                let queue = wait * rates.reads.0;
                assert!(
                    (queue / rates.queue - 1.0).abs() < 0.05,
                    "queue {} but r/s × await = {queue}",
                    rates.queue
                );
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_trial() {
        let experiment = Experiment::parse(PLAN, "tiny", &[]).unwrap();
        let cell = experiment.sweeps.last().unwrap().cells.last().unwrap();
        let run = |repeat| trial("t", &Trial { cell, repeat, twin: false }, 1, &Machine::default());
        assert_eq!(run(0), run(0));
        assert_ne!(run(0).0.measured, run(1).0.measured);
    }
}
