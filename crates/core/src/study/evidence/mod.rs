//! What the records of a study say of a system: service times, requests for a page, memory, hit ratios.

mod cost;
mod kept;
pub mod watched;

use super::cells::NO_DISK;
use super::{CellRecords, Cells};
use crate::device::Spec as Disk;
use crate::experiment::{Spec, TargetKind, WorkloadKind};
use crate::metric::{name as metric, probe};
use crate::predict::cache::{Hits, Policy, Popularity};
use crate::predict::plan::modelled;
use crate::predict::queue::{Limits, READ, Writes};
use crate::predict::{
    BEYOND_P99, Draw, Engine, HIT_ERROR, Place, Prediction, Range, Seen, System, hit_error,
};
use crate::record::Measured;
use crate::units::Bytes;
use crate::workload::Values;
use crate::workload::distribution::Requests;
use cost::cost;
use kept::Kept;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Counters of the engine without which nothing can be said.
const COUNTERS: [&str; 4] = [
    metric::ENGINE_PAGE_READS,
    metric::ENGINE_CACHE_READ_BYTES,
    metric::ENGINE_FILE_READS,
    metric::ENGINE_FILE_READ_BYTES,
];
/// Below this many misses for an operation the engine's cache has it all.
pub(super) const IN_CACHE: f64 = 0.002;
/// Above this share of the engine's misses that go to the disk the page cache is full.
const FILLED: f64 = 0.02;
/// Misses for an operation from which on their cost can be told from the rest.
const MISSES: f64 = 0.1;
/// How exactly levels of memory are known that are read now and then, as a share of all of it.
const LEVELS: f64 = 0.03;
/// Up to this share of a full page cache are pages without records.
const STRANGERS: f64 = 0.25;
/// A range that was measured in a few cells is this share wider on both sides than they are.
const WIDER: f64 = 0.03;

/// What was measured in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// In words: "230 %, 600 IOPS + 7 ms".
    pub name: String,
    /// The axis of its working set, if there is one, and its label.
    pub working_set: Option<(&'static str, String)>,
    /// The machine, the disk and the records.
    pub place: Place,
    /// What the caches answered.
    pub hits: Hits,
    /// Operations per second.
    pub throughput: f64,
    /// 99th percentile of the residence in seconds, where enough was measured.
    pub p99: Option<f64>,
    /// What was measured, with every setting.
    pub spec: Spec,
    sessions: u32,
    requests: Requests,
    kept: Kept,
    misses: f64,
    reads: f64,
    cpu: f64,
    cpu_client: f64,
    cpu_daemon: Option<f64>,
    request_bytes: f64,
    writes: Option<Writes>,
    reads_per_miss: Option<f64>,
    file_ratio: Option<f64>,
    other_memory: Option<f64>,
    page_cache: f64,
    /// The page cache was full, and how large it or the engine's was is not known.
    uncounted_caches: bool,
}

/// What the user says of a server's machine, instead of what can be seen or where nothing can.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Its memory.
    pub memory: Option<Bytes>,
    /// Its processors,
    pub cores: Option<f64>,
    /// and how many of them the server keeps busy.
    pub busy: Option<f64>,
    /// What its disk can do.
    pub disk: Option<Disk>,
}

/// Something that was not measured, or not here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assumption {
    /// What is taken to be so.
    pub what: String,
    /// Where that comes from.
    pub because: String,
}

/// The cells that a prediction can rest on, and why the others are none, in sentences. `told` is the machine
/// of a server that was measured at its address.
///
/// # Errors
/// There is none at all.
pub fn observed(cells: &Cells<'_>, told: &Told) -> Result<(Vec<Observed>, Vec<String>), String> {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    let mut sweeps: BTreeMap<&[(String, String)], u32> = BTreeMap::new();
    cells.all.iter().for_each(|cell| *sweeps.entry(&cell.cell.labels).or_default() += 1);
    for cell in &cells.all {
        let spec = &cell.cell.spec;
        // The device's own baseline says nothing of the engine.
        if !spec.workload.kind.has_records() {
            continue;
        }
        // Sweeps of one plan may have the same axes.
        let sweep = (sweeps[cell.cell.labels.as_slice()] > 1).then_some(cell.cell.sweep.as_str());
        let labels = cell.cell.labels.iter().map(|(_, label)| label.as_str());
        let name = sweep.into_iter().chain(labels).collect::<Vec<&str>>().join(", ");
        let name = if name.is_empty() { cell.cell.sweep.clone() } else { name };
        match Observed::of(cell, &name, told) {
            Ok(seen) => found.push((cell, seen)),
            Err(why) => leave_out(&mut left_out, cell, name, why),
        }
    }
    // Who waits for a journal does so in every cell; one that is flushed by the clock looks so where little
    // is done.
    let for_nobody: BTreeSet<_> = found
        .iter()
        .filter(|(_, seen)| seen.writes.is_some_and(|w| w.durable == 0.0))
        .map(|(_, seen)| seen.kept.system)
        .collect();
    for (cell, seen) in found.iter_mut().filter(|(_, seen)| for_nobody.contains(seen.kept.system)) {
        seen.writes = writes(cell, false);
    }
    // A prediction is of one load: what was measured with another one, to see what that changes, says nothing
    // of it. Where no load is that of most cells, whoever asks has to choose.
    let same = |a: &Observed, b: &Observed| a.load() == b.load();
    let like = |seen: &Observed| found.iter().filter(|(_, other)| same(seen, other)).count();
    let usual = found.iter().find(|(_, seen)| 2 * like(seen) > found.len()).map(|(_, seen)| seen.clone());
    let (found, others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, seen)| usual.as_ref().is_none_or(|usual| same(usual, seen)));
    for (cell, seen) in others {
        let why = "its sessions, requests, readahead or documents are not those of most cells";
        leave_out(&mut left_out, cell, seen.name, why.into());
    }
    let found: Vec<Observed> = found.into_iter().map(|(_, seen)| seen).collect();
    if found.is_empty() {
        left_out.dedup_by(|a, b| a.why == b.why);
        let why: Vec<String> = left_out.iter().map(LeftOut::in_words).collect();
        return Err(match why.is_empty() {
            true => "no cell reads records".into(),
            false => format!("no cell can be planned from: {}", why.join("; ")),
        });
    }
    Ok((found, left_out.iter().map(LeftOut::in_words).collect()))
}

/// Cells of a sweep on which no prediction rests, for one reason.
struct LeftOut<'a> {
    sweep: &'a str,
    names: Vec<String>,
    why: String,
}

fn leave_out<'a>(left_out: &mut Vec<LeftOut<'a>>, cell: &'a CellRecords<'_>, name: String, why: String) {
    match left_out.last_mut() {
        // A sweep that was left out has one reason, however many cells it has.
        Some(last) if last.why == why && last.sweep == cell.cell.sweep => last.names.push(name),
        _ => left_out.push(LeftOut { sweep: &cell.cell.sweep, names: vec![name], why }),
    }
}

impl LeftOut<'_> {
    fn in_words(&self) -> String {
        match self.names.as_slice() {
            [name] => format!("{name}: {}", self.why),
            names => format!("{}, {} cells: {}", self.sweep, names.len(), self.why),
        }
    }
}

/// Why more has to be said of a server that is none of the laboratory's.
const AT_ADDRESS: &str = "it was measured at an address";

/// Whether a server was measured that the user named, with a machine of its own.
fn at_address(spec: &Spec) -> bool {
    spec.target.kind.is_server() && spec.lab.is_none()
}

/// Seconds of processor time of an operation: of a server's node or its processes, else of the process that
/// holds generator and engine.
fn processor_time(spec: &Spec, measured: &Measured) -> Option<f64> {
    let of_processes = || {
        let rate = |name| measured.rate_in_place(probe::PROCESS, name);
        Some((rate("process_cpu_user_ns")? + rate("process_cpu_system_ns")?) / 1e9)
    };
    Some(match (&spec.lab, at_address(spec)) {
        (Some(_), _) => measured.only_node()?.busy_cores()? / measured.throughput(),
        (None, true) => of_processes()? / measured.throughput(),
        (None, false) => of_generator(measured),
    })
}

fn of_generator(measured: &Measured) -> f64 {
    measured.cpu.process_ns as f64 / 1e9 / measured.operations() as f64
}

/// Which part of what a device read the server's processes asked for.
fn own_share(measured: &Measured) -> f64 {
    let own = measured.growth(probe::PROCESS, metric::PROCESS_DEVICE_READ_BYTES);
    let all = measured.growth(probe::DEVICE, metric::DEVICE_READ_BYTES);
    match own.zip(all) {
        Some((own, all)) if own > 0.0 && all > own => own / all,
        _ => 1.0,
    }
}

/// Why a cell with these settings says nothing of a system that reads, if so.
fn refusal(spec: &Spec) -> Option<String> {
    if spec.target.kind != TargetKind::Wiredtiger && !spec.is_served() {
        return Some("it is no engine that keeps records".into());
    }
    let mix = spec.workload.mix();
    let is_modelled = match spec.workload.kind {
        WorkloadKind::YcsbReads => true,
        WorkloadKind::Ycsb => mix.insert + mix.scan == 0.0,
        _ => false,
    };
    if !is_modelled {
        return Some("it does more than read and update single records, of which there is no model".into());
    }
    let requests = spec.workload.requests.unwrap_or(Requests::Uniform);
    if !matches!(requests, Requests::Uniform | Requests::Zipfian) {
        return Some(format!("how caches answer `{requests}` is not modelled"));
    }
    if spec.load.arrivals.is_some() {
        return Some("an open load was measured: its throughput is not the system's".into());
    }
    if spec.breaking.is_some() || spec.tenant.is_some() {
        return Some("faults or another tenant of its disk were part of what was measured".into());
    }
    None
}

impl Observed {
    fn of(cell: &CellRecords<'_>, name: &str, told: &Told) -> Result<Observed, String> {
        let spec = &cell.cell.spec;
        if let Some(why) = refusal(spec).or_else(|| cell.conviction()) {
            return Err(why);
        }
        let mean = |estimate: Option<crate::measure::Estimate>| estimate.map(|estimate| estimate.value);
        let throughput = mean(cell.throughput()).ok_or_else(|| cell.why_none())?;
        let of_engine = |name: &'static str| mean(cell.per_operation_of_engine(name));
        let missing: Vec<&str> = COUNTERS.into_iter().filter(|name| of_engine(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(format!("counters are missing: {}", missing.join(", ")));
        }
        let misses = mean(cell.misses_per_operation()).ok_or_else(|| cell.why_none())?;
        let record = cell.records.iter().rev().find(|record| record.is_valid());
        let kept = Kept::of(spec, record.ok_or_else(|| cell.why_none())?, told)?;
        let reads = cell.per_operation_of_disk(metric::DISK_READ_REQUESTS, metric::DEVICE_READ_REQUESTS);
        let reads = mean(reads).ok_or(match at_address(spec) {
            true => "its device was not counted, because its processes could not be seen: run the study on the server's \
                     machine, or plan from the server at work (`tipover plan ADDRESS`)",
            false => "counters are missing: those of the shaped disk",
        })?;
        // Others may read from a server's device too.
        let reads = reads * mean(cell.mean(|m| Some(own_share(m)))).unwrap_or(1.0);
        let reads_per_miss = cell.reads_per_miss();
        let to_disk = match reads_per_miss {
            Some(k) if misses > IN_CACHE => (reads / (misses * k)).clamp(0.0, 1.0),
            _ => 0.0,
        };
        let level =
            |probe: &'static str, name: &'static str| mean(cell.mean(move |m| m.level_in_place(probe, name)));
        let is_direct = level(probe::TARGET, metric::ENGINE_DIRECT_IO) == Some(1.0);
        let kept = Kept { engine: Engine { is_buffered: !is_direct, ..kept.engine }, ..kept };
        let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
        // Whose engine does not say how full its cache is keeps it in shared memory.
        let held = level(probe::TARGET, metric::ENGINE_CACHE_BYTES)
            .or_else(|| level(probe::GROUP, metric::GROUP_SHARED_BYTES));
        let caches = held.zip(level(probe::GROUP, metric::GROUP_PAGE_CACHE_BYTES));
        // Only a full page cache says what else there is.
        let is_full = to_disk > FILLED && kept.engine.is_buffered;
        let other = caches.filter(|_| is_full).map(|(engine, page)| kept.memory_bytes - engine - page);
        let cpu = mean(cell.mean(|m| processor_time(spec, m)));
        let cpu_client = mean(cell.mean(|m| Some(of_generator(m)))).filter(|_| kept.clients_beside);
        let disk = match (at_address(spec), &told.disk) {
            (false, _) => spec.shape().map_err(|error| error.to_string())?,
            (true, Some(disk)) => disk.clone(),
            (true, None) => return Err(format!("{AT_ADDRESS}: say its disk, with --profile or --spec")),
        };
        modelled(&disk)?;
        Ok(Observed {
            name: name.into(),
            working_set: ["working_set", "records"]
                .into_iter()
                .find_map(|axis| Some((axis, cell.cell.label(axis)?.to_string()))),
            place: Place {
                memory: kept.memory_bytes,
                engine_cache: kept.cache_bytes,
                cores: kept.cores,
                records: spec.records() as f64,
                disk,
            },
            hits: Hits {
                engine: (1.0 - misses / kept.engine.pages_per_operation).clamp(0.0, 1.0),
                page_cache: 1.0 - to_disk,
            },
            throughput,
            p99: cell.residence_ms(0.99).ok().map(|p99| p99.value / 1e3),
            spec: spec.clone(),
            sessions: spec.load.sessions,
            requests: spec.workload.requests.unwrap_or(Requests::Uniform),
            misses,
            reads,
            cpu: cpu.ok_or("counters are missing: the processor time")?,
            cpu_client: cpu_client.unwrap_or(0.0),
            cpu_daemon: mean(cell.mean(|m| {
                let of = |name| m.growth_in_place(probe::DISK, name);
                let written = of(metric::DISK_WRITE_REQUESTS).unwrap_or(0.0);
                let asked = of(metric::DISK_READ_REQUESTS)? + written;
                (asked > 0.0).then(|| m.cpu.disk_ns as f64 / 1e9 / asked)
            })),
            request_bytes: cell.request_bytes(),
            writes: writes(cell, true),
            reads_per_miss,
            file_ratio: ratio(
                of_engine(metric::ENGINE_FILE_READ_BYTES),
                of_engine(metric::ENGINE_CACHE_READ_BYTES),
            )
            .filter(|_| misses > IN_CACHE),
            other_memory: other.filter(|bytes| *bytes > 0.0),
            page_cache: caches.map_or(0.0, |(_, page)| page),
            uncounted_caches: caches.is_none() && is_full,
            kept,
        })
    }

    /// What was asked, by how many, and of what.
    fn load(&self) -> (u32, Requests, Bytes, Values) {
        (self.sessions, self.requests, self.spec.disk.readahead, self.spec.workload.values)
    }

    /// Bytes of data that a record stands for, its part of an index included.
    fn record_bytes(&self) -> f64 {
        self.kept.data_bytes() / self.place.records
    }

    /// Whether one in a hundred operations does, for a page or for its journal.
    fn waits_for_disk(&self) -> bool {
        self.waiting() > BEYOND_P99
    }

    /// Whether about one in a hundred does: then p99 is that of those who wait or of those who do not, and
    /// says nothing of either.
    fn is_at_edge(&self) -> bool {
        (0.5..2.0).contains(&(self.waiting() / BEYOND_P99))
    }

    /// The share of operations that wait for the disk.
    fn waiting(&self) -> f64 {
        let durable = self.writes.map_or(0.0, |writes| writes.durable);
        (self.misses * (1.0 - self.hits.page_cache)).max(durable)
    }

    /// Whether its sessions spent a tenth of their time, or more, waiting for a journal.
    fn waits_for_journal(&self) -> bool {
        let Some(writes) = self.writes.filter(|writes| writes.durable > 0.0) else { return false };
        let flush = Limits::of(&self.place.disk, READ, writes.size).flush();
        writes.durable * flush > 0.1 * f64::from(self.sessions) / self.throughput
    }

    /// How requests were spread over pages.
    fn popularity(&self) -> Popularity {
        let page_bytes = self.reads_per_miss.unwrap_or(1.0) * self.request_bytes;
        self.kept.popularity(self.requests, self.place.records, page_bytes)
    }

    /// For [`System::draws`]; `None` where everything was in the engine's cache.
    pub fn seen(&self) -> Option<Seen> {
        (self.misses > IN_CACHE).then(|| Seen { place: self.place.clone(), hits: self.hits })
    }
}

/// What an operation of `cell` wrote to the disk, and whether it waits for its journal if that `may_wait` at
/// all; `None` where nothing changes records.
fn writes(cell: &CellRecords<'_>, may_wait: bool) -> Option<Writes> {
    let spec = &cell.cell.spec;
    let mix = spec.workload.mix();
    let [all, updates] = [mix.weights().iter().sum::<f64>(), mix.update + mix.read_modify_write];
    if spec.workload.kind == WorkloadKind::YcsbReads || updates == 0.0 {
        return None;
    }
    let per = |shaped, kernel| Some(cell.per_operation_of_disk(shaped, kernel)?.value);
    let requests = per(metric::DISK_WRITE_REQUESTS, metric::DEVICE_WRITE_REQUESTS)?;
    let bytes = per(metric::DISK_WRITE_BYTES, metric::DEVICE_WRITE_BYTES)?;
    let flushes = per(metric::DISK_FLUSH_REQUESTS, metric::DEVICE_FLUSH_REQUESTS)?;
    // A flush serves all sessions at the most: with fewer flushes nobody waits for them.
    let waits = may_wait && flushes * f64::from(spec.load.sessions) >= updates / all / 2.0;
    let durable = if waits { updates / all } else { 0.0 };
    Some(Writes {
        background: if waits { (requests - flushes).max(0.0) } else { requests },
        journal: durable,
        size: Bytes((bytes / requests.max(1e-9)).clamp(512.0, 1_048_576.0) as u64),
        durable,
    })
}

/// The system that `cells` were measured on, and what of it they do not say. Others may have had the share
/// `disturbance` of the machine's processors meanwhile.
///
/// # Errors
/// Without a cell that missed the engine's cache, what a miss costs is not known.
pub fn system(cells: &[&Observed], disturbance: f64) -> Result<(System, Vec<Assumption>), String> {
    let first = cells.first().ok_or("no cell was measured")?;
    if let Some(other) = cells.iter().find(|cell| cell.kept.system != first.kept.system) {
        return Err(format!(
            "its cells are of {} and of {}: plan from one of them, with --only sweep=NAME",
            first.kept.system, other.kept.system
        ));
    }
    if cells.iter().any(|cell| (cell.sessions, cell.requests) != (first.sessions, first.requests)) {
        return Err("its cells differ in sessions or in how requests are spread: plan from one load".into());
    }
    let mut assumptions = Vec::new();
    let mut assume =
        |what: String, because: &str| assumptions.push(Assumption { what, because: because.into() });
    let over = |of: &dyn Fn(&Observed) -> Option<f64>| Range::over(cells.iter().filter_map(|c| of(c)), WIDER);
    let missing = |what: &str| format!("no cell missed the engine's cache often enough to say {what}");
    let reads_per_miss = over(&|c| c.reads_per_miss.filter(|_| c.misses > MISSES))
        .ok_or_else(|| missing("how many requests a page takes"))?;
    let request_bytes: f64 = cells.iter().map(|c| c.request_bytes).fold(0.0, f64::max);
    let (reads_per_miss, slowest) = in_file(first, reads_per_miss, request_bytes, &mut assume);
    let cpu = match over(&|c| (c.misses < IN_CACHE).then_some(c.cpu)) {
        Some(cpu) => cpu,
        None => {
            assume(
                "an operation in cache takes between a quarter and all of the processor time of the cheapest one".into(),
                "no cell was all in the engine's cache: measure one, it would narrow the answer",
            );
            let least = cells.iter().map(|c| c.cpu).fold(f64::INFINITY, f64::min);
            Range::new(0.25 * least, least)
        }
    };
    let middle = f64::midpoint(cpu.low, cpu.high);
    let cost = cost(cells, middle).ok_or_else(|| missing("what a miss costs"))?;
    // A processor that waits for the disk is idle; what it could use is seen where the disk does not matter.
    let busy = |c: &Observed| (c.throughput * (c.cpu + c.cpu_client) / c.place.cores).min(1.0);
    let efficiency = over(&|c| (c.reads < NO_DISK && !c.waits_for_journal()).then(|| busy(c)))
        .map(|r| Range::new(r.low, r.high.min(1.0)));
    let efficiency = efficiency.unwrap_or_else(|| {
        assume("between half and all of the processors can be used".into(), "the disk limited every cell");
        Range::new(0.5, 1.0)
    });
    let none = (!first.kept.engine.is_buffered).then_some(NOTHING);
    let other_memory = none.unwrap_or_else(|| other_memory(cells, &mut assume));
    // What is written for what was changed, and not because it had to go.
    let written = |c: &Observed| c.writes.map(|w| w.background);
    let background = over(&|c| written(c).filter(|_| c.misses < MISSES)).unwrap_or_else(|| {
        Range::new(0.0, cells.iter().filter_map(|c| written(c)).reduce(f64::min).unwrap_or(0.0))
    });
    let (engine_share, engine_reserve) = in_cache(cells, first, &mut assume);
    let durable =
        Range::over(cells.iter().filter_map(|c| c.writes).map(|w| w.durable), 0.0).unwrap_or(NOTHING);
    let system = System {
        sessions: first.sessions,
        popularity: vec![first.popularity()],
        engine: first.kept.engine,
        record_bytes: Range::over(cells.iter().map(|c| c.record_bytes()), 0.0)
            .ok_or("its records have no size")?,
        file_ratio: over(&|c| c.file_ratio).ok_or_else(|| missing("how large a page is in its file"))?,
        engine_share,
        engine_reserve,
        other_memory,
        reads_per_miss,
        hit_errors: Hits { engine: 0.0, page_cache: 0.0 },
        known_at: None,
        background,
        background_per_miss: over(&|c| {
            let more = (c.writes?.background - background.low).max(0.0);
            (c.misses > MISSES).then(|| more / c.misses)
        })
        .unwrap_or(NOTHING),
        journal: durable,
        write: cells.iter().filter_map(|c| c.writes).map(|w| w.size).max().unwrap_or(READ),
        durable,
        request: Bytes(request_bytes.round() as u64),
        cpu,
        // A client that waits for a disk is woken for each answer; its time matters where processors are the
        // limit.
        cpu_client: over(&|c| (c.reads < NO_DISK).then_some(c.cpu_client))
            .or_else(|| over(&|c| Some(c.cpu_client)))
            .unwrap_or(NOTHING),
        cpu_miss: cost.miss,
        cpu_read: cost.read,
        cpu_daemon: over(&|c| c.cpu_daemon.filter(|_| c.reads > NO_DISK)).unwrap_or(NOTHING),
        efficiency,
        p99_at_processors: AS_QUEUEING,
        p99_at_disk: AS_QUEUEING,
        disturbance,
    };
    let seen: Vec<Seen> = cells.iter().filter_map(|c| c.seen()).collect();
    let draws = System { disturbance: 0.0, ..system.clone() }.draws(40, &seen, 1);
    let system = system.with_hit_errors(&draws, &seen);
    let (p99_at_processors, p99_at_disk) = p99_against_queueing(&system, cells, &mut assume);
    let p99_at_disk = slowest.map_or(p99_at_disk, |most| p99_at_disk.or(Range::new(most, most)));
    Ok((System { p99_at_processors, p99_at_disk, ..system }, assumptions))
}

/// Bytes that are neither engine's cache nor page cache.
fn other_memory(cells: &[&Observed], assume: &mut impl FnMut(String, &str)) -> Range {
    // What is left of a large number, and the page cache has files without records too: journal, programs,
    // what was read before.
    let seen = Range::over(
        cells.iter().filter_map(|c| c.other_memory.map(|other| (c, other))).flat_map(|(c, other)| {
            [(other - LEVELS * c.place.memory).max(0.0), other + STRANGERS * c.page_cache]
        }),
        0.0,
    );
    seen.unwrap_or_else(|| {
        let uncounted = format!("counters are missing: {} or {}", metric::ENGINE_CACHE_BYTES, metric::GROUP_PAGE_CACHE_BYTES);
        assume(
            "5 % to 25 % of the memory are neither engine's cache nor hold pages with records".into(),
            match cells.iter().any(|c| c.uncounted_caches) {
                true => &uncounted,
                false => "no cell filled its page cache: measure one with a larger working set, it would narrow the answer most",
            },
        );
        Range::new(0.05 * cells[0].place.memory, 0.25 * cells[0].place.memory)
    })
}

/// How many requests a page takes after a load that was not measured, and how many times as long the slowest
/// of a hundred operations wait for it, with `measured` requests in those that were.
fn in_file(
    first: &Observed,
    measured: Range,
    request_bytes: f64,
    assume: &mut impl FnMut(String, &str),
) -> (Range, Option<f64>) {
    let usual = first.kept.pages_in_file().map(|pages| (pages.record.times(1.0 / request_bytes), pages));
    // Pages of some other kind are not spoken of.
    let Some((k, pages)) = usual.filter(|(k, _)| measured.low < k.high && k.low < measured.high) else {
        return (measured, None);
    };
    assume(pages.words.into(), pages.because);
    (measured.or(k), Some(1.0 + pages.index / request_bytes / k.low))
}

/// None of it.
const NOTHING: Range = Range { low: 0.0, high: 0.0 };
/// No factor.
const AS_QUEUEING: Range = Range { low: 1.0, high: 1.0 };

/// What the cells' p99 was of that which queueing gives at their own hit ratios: where they waited for
/// processors, and where for the disk. How a model errs is learnt where it can be seen (Kennedy & O'Hagan
/// 2001), and without what errs for reasons of its own: hit ratios, and how many requests a page takes. Of
/// one working set the factor may be its own, so it only widens what is assumed without any.
fn p99_against_queueing(
    system: &System,
    cells: &[&Observed],
    assume: &mut impl FnMut(String, &str),
) -> (Range, Range) {
    let mut of = |on_disk: bool, assumed: [f64; 2], more: f64, what: &str| {
        let says = |c: &&&Observed| c.p99.is_some() && c.waits_for_disk() == on_disk && !c.is_at_edge();
        let cells: Vec<&&Observed> = cells.iter().filter(says).collect();
        let factor = |c: &&&Observed| {
            let reads_per_miss = c.reads_per_miss.map_or(system.reads_per_miss, |k| Range::new(k, k));
            let own = System { disturbance: 0.0, reads_per_miss, ..system.clone() };
            let given = own.closed_with(&own.draws(12, &[], 1), &c.place, |_| c.hits, 2000);
            Some(c.p99? / given.p99_s.middle)
        };
        let sets: BTreeSet<u64> = cells.iter().map(|c| c.place.records as u64).collect();
        let factors: Vec<f64> = cells.iter().filter_map(factor).collect();
        if sets.len() > 1 {
            return Range::over(factors, more).unwrap_or(AS_QUEUEING);
        }
        assume(
            format!(
                "where operations wait for {what}, p99 is {} to {} times what queueing gives",
                assumed[0], assumed[1]
            ),
            "fewer than two working sets say how often it is",
        );
        Range::over(factors.into_iter().chain(assumed), 0.0).unwrap_or(AS_QUEUEING)
    };
    // How long a slice is depends on who else is ready to run.
    (of(false, [0.5, 3.0], 0.25, "processors"), of(true, [0.9, 1.3], 0.0, "the disk"))
}

/// Which share of the configured cache holds records, and how many bytes of it do not whatever its size.
fn in_cache(cells: &[&Observed], first: &Observed, assume: &mut impl FnMut(String, &str)) -> (Range, Range) {
    let has_reserve = first.kept.has_reserve;
    // Where some pages are asked for more often than others it depends on what is forgotten.
    let of = |c: &&Observed, policy: Policy, off: f64| {
        let hit = (c.hits.engine + off * HIT_ERROR * hit_error(c.hits.engine)).clamp(0.0, 1.0);
        let bytes = c.popularity().share_for(hit, policy) * c.kept.data_bytes();
        match has_reserve {
            true => (c.place.engine_cache - bytes).max(0.0),
            false => bytes / c.place.engine_cache,
        }
    };
    let telling = cells.iter().filter(|c| c.misses > MISSES && c.requests == Requests::Uniform);
    let policies = first.kept.engine.policies;
    let ways = policies.iter().flat_map(|policy| [-1.0, 1.0].map(|off| (*policy, off)));
    let seen =
        Range::over(telling.flat_map(|c| ways.clone().map(move |(policy, off)| of(c, policy, off))), WIDER);
    match (seen, first.kept.usual()) {
        (Some(reserve), _) if has_reserve => (Range::new(1.0, 1.0), reserve),
        (Some(share), _) => (share, NOTHING),
        (None, (usual, words, because)) => {
            assume(words.into(), because);
            if has_reserve { (Range::new(1.0, 1.0), usual) } else { (usual, NOTHING) }
        }
    }
}

/// A cell, and what the others say it should have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// The cell.
    pub name: String,
    /// Predicted from the cells with other working sets.
    pub predicted: Prediction,
    /// Measured, operations per second.
    pub throughput_ops_per_s: f64,
    /// Measured, in seconds.
    pub p99_s: Option<f64>,
}

impl Checked {
    /// How many figures were measured, and how many of them lie in their intervals.
    pub fn inside(&self) -> (u32, u32) {
        let of = [
            Some((self.predicted.throughput_ops_per_s, self.throughput_ops_per_s)),
            self.p99_s.map(|p99| (self.predicted.p99_s, p99)),
        ];
        let measured: Vec<bool> =
            of.into_iter().flatten().map(|(interval, x)| interval.contains(x)).collect();
        (measured.len() as u32, measured.iter().filter(|inside| **inside).count() as u32)
    }
}

/// Each cell predicted from the cells with other working sets: not even its own hit ratio on another disk is
/// known. Cells that too few others are left for are left out. `disturbance` as for [`system`].
pub fn leave_one_out(cells: &[Observed], disturbance: f64, draws: usize, operations: u32) -> Vec<Checked> {
    let mut checked = Vec::new();
    // Cells of one working set are predicted from the same others.
    let mut known: BTreeMap<_, Option<(System, Vec<Draw>)>> = BTreeMap::new();
    for cell in cells {
        let from_others = || {
            let is_other =
                |c: &&Observed| c.place.records != cell.place.records && c.kept.system == cell.kept.system;
            let others: Vec<&Observed> = cells.iter().filter(is_other).collect();
            let (system, _) = system(&others, disturbance).ok()?;
            let seen: Vec<Seen> = others.iter().filter_map(|c| c.seen()).collect();
            let draws = system.draws(draws, &seen, 1);
            Some((system, draws))
        };
        let of = known.entry((cell.kept.system, cell.place.records as u64)).or_insert_with(from_others);
        let Some((system, draws)) = of else { continue };
        checked.push(Checked {
            name: cell.name.clone(),
            predicted: system.closed(draws, &cell.place, operations),
            throughput_ops_per_s: cell.throughput,
            p99_s: cell.p99,
        });
    }
    checked
}

#[cfg(test)]
mod tests;
