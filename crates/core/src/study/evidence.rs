//! What the records of a study say of a system: service times, requests for a page, memory, hit ratios.

use super::{CellRecords, Cells};
use crate::experiment::{Spec, TargetKind, WorkloadKind};
use crate::metric::{name as metric, probe};
use crate::predict::cache::{Hits, Popularity};
use crate::predict::queue::READ;
use crate::predict::{Place, Prediction, Range, Seen, System};
use crate::workload::distribution::Requests;
use serde::Serialize;

/// Counters of the engine without which nothing can be said.
const COUNTERS: [&str; 4] = [
    metric::ENGINE_PAGE_READS,
    metric::ENGINE_CACHE_READ_BYTES,
    metric::ENGINE_FILE_READS,
    metric::ENGINE_FILE_READ_BYTES,
];
/// Below this many requests to the disk for an operation the page cache has it all.
const NO_DISK: f64 = 0.01;
/// Below this many misses for an operation the engine's cache has it all.
pub(super) const IN_CACHE: f64 = 0.002;
/// Above this share of the engine's misses that go to the disk the page cache is full.
const FILLED: f64 = 0.02;
/// Misses for an operation from which on their cost can be told from the rest.
const MISSES: f64 = 0.1;
/// A range that was measured in a few cells is this share wider on both sides than they are.
const WIDER: f64 = 0.03;

/// What was measured in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// In words: "230 %, 600 IOPS + 7 ms".
    pub name: String,
    /// Label of its working set, if that is an axis.
    pub working_set: Option<String>,
    /// Where.
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
    record_bytes: f64,
    misses: f64,
    reads: f64,
    cpu: f64,
    cpu_read: Option<f64>,
    reads_per_miss: Option<f64>,
    file_ratio: Option<f64>,
    other_memory: Option<f64>,
    /// The page cache was full, and how large it or the engine's was is not known.
    uncounted_caches: bool,
}

/// Something that was not measured, or not here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assumption {
    /// What is taken to be so.
    pub what: String,
    /// Where that comes from.
    pub because: String,
}

/// The cells that a prediction can rest on, and why the others are none, in sentences.
///
/// # Errors
/// There is none at all.
pub fn observed(cells: &Cells<'_>) -> Result<(Vec<Observed>, Vec<String>), String> {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for cell in &cells.all {
        let spec = &cell.cell.spec;
        // The device's own baseline says nothing of the engine.
        if !spec.workload.kind.has_records() {
            continue;
        }
        let labels: Vec<&str> = cell.cell.labels.iter().map(|(_, label)| label.as_str()).collect();
        let name = labels.join(", ");
        match Observed::of(cell, &name) {
            Ok(seen) => found.push(seen),
            Err(why) => left_out.push((name, why)),
        }
    }
    let in_words = |(name, why): (String, String)| format!("{name}: {why}");
    if found.is_empty() {
        left_out.dedup_by(|a, b| a.1 == b.1);
        let why: Vec<String> = left_out.into_iter().map(in_words).collect();
        return Err(match why.is_empty() {
            true => "no cell reads records".into(),
            false => format!("no cell can be planned from: {}", why.join("; ")),
        });
    }
    Ok((found, left_out.into_iter().map(in_words).collect()))
}

impl Observed {
    fn of(cell: &CellRecords<'_>, name: &str) -> Result<Observed, String> {
        let spec = &cell.cell.spec;
        if spec.target.kind != TargetKind::Wiredtiger || spec.lab.is_some() {
            return Err("only results of the embedded WiredTiger can be planned from yet".into());
        }
        if spec.workload.kind != WorkloadKind::YcsbReads {
            return Err("it writes, and writes are not extrapolated past what was measured".into());
        }
        let requests = spec.workload.requests.unwrap_or(Requests::Uniform);
        if !matches!(requests, Requests::Uniform | Requests::Zipfian) {
            return Err(format!("how caches answer `{requests}` is not modelled"));
        }
        if spec.load.arrivals.is_some() {
            return Err("an open load was measured: its throughput is not the system's".into());
        }
        if let Some(conviction) = cell.conviction() {
            return Err(conviction);
        }
        let mean = |estimate: Option<crate::measure::Estimate>| estimate.map(|estimate| estimate.value);
        let throughput = mean(cell.throughput()).ok_or_else(|| cell.why_none())?;
        let growth = |name: &'static str| mean(cell.mean(move |m| m.growth(probe::TARGET, name)));
        let missing: Vec<&str> = COUNTERS.into_iter().filter(|name| growth(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(format!("counters are missing: {}", missing.join(", ")));
        }
        let misses = mean(cell.misses_per_operation()).ok_or_else(|| cell.why_none())?;
        let memory =
            spec.machine.memory.ok_or("its memory was not limited, so the page cache's is not known")?;
        let cores =
            cell.records.iter().find_map(|record| Some(record.machine.cores).filter(|cores| *cores > 0));
        let reads = mean(cell.mean(|m| Some(m.disk_rates()?.reads.0 / m.throughput())));
        let reads = reads.ok_or("counters are missing: those of the shaped disk")?;
        let reads_per_miss = cell.reads_per_miss();
        let to_disk = match reads_per_miss {
            Some(k) if misses > IN_CACHE => (reads / (misses * k)).clamp(0.0, 1.0),
            _ => 0.0,
        };
        let level = |probe: &'static str, name: &'static str| mean(cell.mean(move |m| m.level(probe, name)));
        let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
        let caches = level(probe::TARGET, metric::ENGINE_CACHE_BYTES)
            .zip(level(probe::GROUP, metric::GROUP_PAGE_CACHE_BYTES));
        // Only a full page cache says what else there is.
        let other = caches.filter(|_| to_disk > FILLED).map(|(engine, page)| memory.0 as f64 - engine - page);
        Ok(Observed {
            name: name.into(),
            working_set: cell.cell.label("working_set").map(str::to_string),
            place: Place {
                memory: memory.0 as f64,
                engine_cache: spec.cache_bytes().0 as f64,
                cores: cores.ok_or("the record does not say how many processors there were")? as f64,
                records: spec.records() as f64,
                disk: spec.shape().map_err(|error| error.to_string())?,
            },
            hits: Hits { engine: (1.0 - misses).clamp(0.0, 1.0), page_cache: 1.0 - to_disk },
            throughput,
            p99: cell.residence_ms(0.99).ok().map(|p99| p99.value / 1e3),
            spec: spec.clone(),
            sessions: spec.load.sessions,
            requests,
            record_bytes: spec.target.wiredtiger.record_resident_bytes as f64,
            misses,
            reads,
            cpu: mean(cell.mean(|m| Some(m.cpu.process_ns as f64 / 1e9 / m.operations() as f64)))
                .ok_or("counters are missing: the processor time")?,
            cpu_read: mean(cell.mean(|m| {
                let read = m.disk_rates()?.reads.0 * m.seconds();
                (read > 0.0).then(|| m.cpu.disk_ns as f64 / 1e9 / read)
            })),
            reads_per_miss,
            file_ratio: ratio(
                growth(metric::ENGINE_FILE_READ_BYTES),
                growth(metric::ENGINE_CACHE_READ_BYTES),
            )
            .filter(|_| misses > IN_CACHE),
            other_memory: other.filter(|bytes| *bytes > 0.0),
            uncounted_caches: caches.is_none() && to_disk > FILLED,
        })
    }

    /// For [`System::draws`]; `None` where everything was in the engine's cache.
    pub fn seen(&self) -> Option<Seen> {
        (self.misses > IN_CACHE).then(|| Seen { place: self.place.clone(), hits: self.hits })
    }
}

/// The system that `cells` were measured on, and what of it they do not say. Others may have had the share
/// `disturbance` of the machine's processors meanwhile.
///
/// # Errors
/// Without a cell that missed the engine's cache, what a miss costs is not known.
pub fn system(cells: &[&Observed], disturbance: f64) -> Result<(System, Vec<Assumption>), String> {
    let first = cells.first().ok_or("no cell was measured")?;
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
    let of_miss = |c: &Observed| (c.misses > MISSES).then(|| ((c.cpu - middle) / c.misses).max(0.0));
    let without_disk = over(&|c| of_miss(c).filter(|_| c.reads < NO_DISK));
    let cpu_miss = without_disk.or_else(|| over(&of_miss)).ok_or_else(|| missing("what a miss costs"))?;
    // A processor that waits for the disk is idle; what it could use is seen where the disk does not matter.
    let busy = |c: &Observed| (c.throughput * c.cpu / c.place.cores).min(1.0);
    let efficiency =
        over(&|c| (c.reads < NO_DISK).then(|| busy(c))).map(|r| Range::new(r.low, r.high.min(1.0)));
    let efficiency = efficiency.unwrap_or_else(|| {
        assume("between half and all of the processors can be used".into(), "the disk limited every cell");
        Range::new(0.5, 1.0)
    });
    let other_memory = over(&|c| c.other_memory).unwrap_or_else(|| {
        let uncounted = format!("counters are missing: {} or {}", metric::ENGINE_CACHE_BYTES, metric::GROUP_PAGE_CACHE_BYTES);
        assume(
            "5 % to 15 % of the memory are neither engine's cache nor page cache".into(),
            match cells.iter().any(|c| c.uncounted_caches) {
                true => &uncounted,
                false => "no cell filled its page cache: measure one with a larger working set, it would narrow the answer most",
            },
        );
        Range::new(0.05 * first.place.memory, 0.15 * first.place.memory)
    });
    let share = |c: &Observed| {
        let data = c.place.records * c.record_bytes;
        ((c.misses > MISSES) && c.requests == Requests::Uniform)
            .then(|| c.hits.engine * data / c.place.engine_cache)
    };
    let engine_share = over(&share).unwrap_or_else(|| {
        assume(
            "70 % to 82 % of the engine's configured cache hold records".into(),
            "WiredTiger evicts above 80 %, and counts 8 % of overhead",
        );
        Range::new(0.70, 0.82)
    });
    let per_page = (reads_per_miss.low * READ.0 as f64 / first.record_bytes).round().max(1.0) as u64;
    let system = System {
        sessions: first.sessions,
        popularity: match first.requests {
            Requests::Uniform => Popularity::uniform(),
            _ => Popularity::scrambled_zipfian(first.place.records as u64, per_page),
        },
        record_bytes: Range::new(first.record_bytes, first.record_bytes),
        file_ratio: over(&|c| c.file_ratio).ok_or_else(|| missing("how large a page is in its file"))?,
        engine_share,
        other_memory,
        reads_per_miss,
        misses_per_lookup: Range::new(1.0, 1.0),
        cpu,
        cpu_miss,
        cpu_read: over(&|c| c.cpu_read.filter(|_| c.reads > NO_DISK)).unwrap_or(Range::new(0.0, 0.0)),
        efficiency,
        disturbance,
    };
    Ok((system, assumptions))
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
    for cell in cells {
        let others: Vec<&Observed> = cells.iter().filter(|c| c.place.records != cell.place.records).collect();
        let Ok((system, _)) = system(&others, disturbance) else { continue };
        let seen: Vec<Seen> = others.iter().filter_map(|c| c.seen()).collect();
        let draws = system.draws(draws, &seen, 1);
        checked.push(Checked {
            name: cell.name.clone(),
            predicted: system.closed(&draws, &cell.place, operations),
            throughput_ops_per_s: cell.throughput,
            p99_s: cell.p99,
        });
    }
    checked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Trial};
    use crate::record::Record;
    use crate::trial::simulate::{Machine, trial};

    const PLAN: &str = include_str!("../../../../experiments/working-set.toml");

    fn simulated(overrides: &[(&str, &str)]) -> (Experiment, Vec<Record>) {
        let overrides: Vec<_> = overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let experiment = Experiment::parse(PLAN, "quick", &overrides).unwrap();
        let cells = experiment.sweeps.iter().filter(|s| s.name == "reads").flat_map(|s| &s.cells);
        let records = cells
            .map(|cell| trial("t", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default()).0)
            .collect();
        (experiment, records)
    }

    /// Whole trials in virtual time, whose caches and whose machine the prediction is not told: each working
    /// set is predicted from the others.
    #[test]
    fn simulated_cells_lie_in_the_intervals_that_others_give() {
        let (experiment, records) = simulated(&[]);
        let (observed, left_out) = observed(&Cells::of(&experiment, &records)).unwrap();
        // Cells of the sweep `accesses` were not simulated.
        assert_eq!((observed.len(), left_out.len()), (12, 1), "{left_out:?}");
        let checked = leave_one_out(&observed, 0.0, 60, 1500);
        let (mut of, mut inside) = (0, 0);
        for one in &checked {
            let (n, held) = one.inside();
            (of, inside) = (of + n, inside + held);
        }
        assert!(of >= 18 && inside * 10 >= of * 9, "{inside} of {of}");
    }

    #[test]
    fn what_cannot_be_planned_from_is_refused_in_words() {
        let (experiment, mut records) = simulated(&[]);
        let why = |records: &[Record]| observed(&Cells::of(&experiment, records)).unwrap_err();
        assert!(why(&[]).contains("not measured"), "{}", why(&[]));
        let mut convicted = records.clone();
        for measured in convicted.iter_mut().filter_map(|record| record.measured.as_mut()) {
            // Three times as many operations per second as so many sessions can have.
            measured.end.0 = measured.begin.0 + (measured.end.0 - measured.begin.0) / 3;
        }
        assert!(why(&convicted).contains("the audit convicts it: Little"), "{}", why(&convicted));
        // One culprit alone is left out, and the others are planned from.
        convicted.truncate(1);
        convicted.extend_from_slice(&records[1..]);
        let (honest, left_out) = super::observed(&Cells::of(&experiment, &convicted)).unwrap();
        assert_eq!(honest.len(), 11);
        assert!(left_out[0].contains("the audit convicts it"), "{left_out:?}");
        let mut uncounted = records.clone();
        for measured in uncounted.iter_mut().filter_map(|record| record.measured.as_mut()) {
            for samples in [&mut measured.first, &mut measured.last] {
                samples.get_mut(probe::TARGET).unwrap().values.remove(metric::ENGINE_FILE_READS);
            }
        }
        assert!(why(&uncounted).contains("counters are missing: engine_file_reads"), "{}", why(&uncounted));
        for record in &mut records {
            record.measured.as_mut().unwrap().last.clear();
        }
        assert!(why(&records).contains("counters are missing: engine_page_reads, "), "{}", why(&records));
        let (experiment, records) = simulated(&[("workload.requests", "latest")]);
        let why = observed(&Cells::of(&experiment, &records)).unwrap_err();
        assert!(why.contains("how caches answer `latest` is not modelled"), "{why}");
        let (experiment, records) = simulated(&[("repeats", "1")]);
        let (mut seen, _) = observed(&Cells::of(&experiment, &records)).unwrap();
        seen.retain(|cell| cell.misses < IN_CACHE);
        let why = system(&seen.iter().collect::<Vec<_>>(), 0.0).unwrap_err();
        assert!(why.contains("no cell missed the engine's cache"), "{why}");
    }
}
