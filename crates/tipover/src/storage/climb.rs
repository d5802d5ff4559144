//! The search for a disk's tipping point: a climb from one request in flight, the search proper, and what
//! limits.

use super::load::Disks;
use super::measure::{Bench, Window};
use anyhow::Result;
use std::time::Duration;
use tipover_core::search::{Goals, Rest, Scale, Step, next};
use tipover_core::storage::limit::{Evidence, Saturated, Tested, interventions};
use tipover_core::storage::tipping::{Rung, Tipping, guess, saturating};
use tipover_core::storage::{DiskPromise, EngineKind, Load, Measured, Stretch};
use tipover_core::units::{Bytes, Rate, significant};
use tipover_core::workload::Arrivals;
use tipover_core::workload::file_io::Blocks;

/// What is climbed.
#[derive(Debug, Clone)]
pub struct Climb {
    /// The load whose threads or rate are varied.
    pub load: Load,
    /// What is to hold.
    pub promise: DiskPromise,
    /// Requests in flight of a closed loop, or offered requests per second.
    pub scale: Scale,
    /// The most that is tried.
    pub most: f64,
    /// Length of a trial.
    pub trial: Duration,
    /// Weigh every load longer, as METHODS recommends.
    pub thorough: bool,
    /// Test what limits by changing a shaped disk.
    pub intervene: bool,
    /// Time under load after which the search ends with what it has.
    pub budget: Duration,
}

impl Climb {
    fn goals(&self, rungs: &[Rung]) -> Goals {
        let least = 1.0;
        let goals = Goals::new(self.scale, vec![self.promise.slo()], least, self.most.max(2.0));
        let weight = if self.thorough { 10 } else { 3 };
        Goals {
            guess: guess(rungs, self.promise).map(|load| load.clamp(goals.least, goals.most)),
            short: self.trial / 2,
            long: self.trial,
            duration_sum: self.trial * weight,
            confirmation: self.trial,
            confirmations: if self.thorough { 5 } else { 3 },
            sweeps: false,
            // A mean needs a few dozen requests, and a percentile its tail.
            bad_samples: if self.thorough { 200 } else { 25 },
            budget: Some(self.budget),
            ..goals
        }
    }

    /// The load with a number of requests in flight, or offered per second.
    fn at(&self, load: f64) -> Load {
        match self.scale {
            Scale::OpsPerSecond => {
                let arrivals = match self.load.arrivals {
                    Some(Arrivals::Constant(_)) => Arrivals::Constant(Rate(load)),
                    _ => Arrivals::Poisson(Rate(load)),
                };
                Load { arrivals: Some(arrivals), ..self.load.clone() }
            }
            Scale::Sessions => in_flight(&self.load, load as u32),
        }
    }
}

/// The same load with another number of requests in flight: threads of one each, or one thread with all.
pub fn in_flight(load: &Load, count: u32) -> Load {
    let count = count.max(1);
    let (threads, depth) = match load.engine {
        EngineKind::Psync => (count, 1),
        EngineKind::Uring => (1, count),
    };
    let mut load = Load { threads, depth, arrivals: None, ..load.clone() };
    load.io.streams = threads;
    load
}

/// Climbs, searches, and looks for the limit.
///
/// # Errors
/// A trial could not be carried out.
pub fn climb(climb: &Climb, disks: &Disks, bench: &mut Bench<'_>) -> Result<(Tipping, Option<Measured>)> {
    let mut rungs = Vec::new();
    let mut last_good = None;
    let settle = climb.trial.min(Duration::from_millis(500)) / 2;
    let window = |time| Window { warm_up: settle, time };
    for load in steps(climb, disks, bench)? {
        let what = format!("climbing: {}", significant(load, 4));
        let (measured, _) = bench.measure(&climb.at(load), disks, window(climb.trial), &what)?;
        bench.rest()?;
        rungs.push(Rung::of(load, &measured));
        let held = climb.promise.held(&measured);
        if held {
            last_good = Some(measured);
        }
        // Far beyond the promise there is nothing to learn.
        if !held && rungs.last().is_some_and(|rung| rung.mean > climb.promise.limit * 3) && rungs.len() > 3 {
            break;
        }
    }
    let goals = climb.goals(&rungs);
    let mut tipping = Tipping {
        promise: climb.promise,
        rungs,
        goals,
        trials: vec![],
        evidence: None,
        sizings: vec![],
        demand: None,
        checked: vec![],
        unchecked: None,
    };
    loop {
        match next(&tipping.trials, &tipping.goals) {
            Step::Done(_) => break,
            Step::CoolDown { .. } => {
                let rest = if bench.rest()? { Rest::Baseline } else { Rest::Restarted };
                if let Some(last) = tipping.trials.last_mut() {
                    last.rest = rest;
                }
            }
            Step::Run(request) => {
                let what = format!("searching: {}", significant(request.load, 4));
                let load = climb.at(request.load);
                let (measured, late) = bench.measure(&load, disks, window(request.duration), &what)?;
                if climb.promise.held(&measured) {
                    last_good = Some(measured.clone());
                }
                tipping.trials.push(climb.promise.trial(&measured, &request, late));
            }
        }
    }
    tipping.evidence = evidence(climb, &tipping, disks, bench)?;
    Ok((tipping, last_good))
}

/// Loads to climb: doubling from one in flight, or in steps up to what a closed loop can do.
fn steps(climb: &Climb, disks: &Disks, bench: &mut Bench<'_>) -> Result<Vec<f64>> {
    match climb.scale {
        Scale::Sessions => {
            let doubling = std::iter::successors(Some(1.0), |n| Some(n * 2.0));
            Ok(doubling.take_while(|n| *n <= climb.most).collect())
        }
        Scale::OpsPerSecond => {
            // What the disk can do at most, to take shares of it.
            let load = in_flight(&climb.load, climb.load.in_flight().max(16));
            let window = Window { warm_up: climb.trial / 4, time: climb.trial };
            let (measured, _) = bench.measure(&load, disks, window, "finding the most that it can do")?;
            bench.rest()?;
            let most = measured.rate().0.min(climb.most);
            let shares = [0.1, 0.25, 0.5, 0.65, 0.8, 0.9, 0.95, 1.05];
            Ok(shares.iter().map(|share| (share * most).max(1.0)).collect())
        }
    }
}

/// Tries to find out what limits at a load that saturates the disk.
fn evidence(
    climb: &Climb,
    tipping: &Tipping,
    disks: &Disks,
    bench: &mut Bench<'_>,
) -> Result<Option<Evidence>> {
    let Some(first) = tipping.rungs.first() else { return Ok(None) };
    let flights = match climb.scale {
        Scale::Sessions => saturating(&tipping.rungs).map_or(1.0, |rung| rung.load) as u32 * 2,
        Scale::OpsPerSecond => climb.load.in_flight().max(16),
    };
    let flights = flights.clamp(4, (climb.most as u32 * 2).clamp(4, 1024));
    let block = Bytes(climb.load.io.blocks.mean() as u64);
    let saturate = |bench: &mut Bench<'_>, load: &Load, flights: u32, block: Bytes, what: &str| {
        let window = Window { warm_up: climb.trial / 2, time: climb.trial * 2 };
        let (measured, _) = bench.measure(&in_flight(load, flights), disks, window, what)?;
        bench.rest()?;
        Ok::<_, anyhow::Error>(pieces(&measured, flights, block))
    };
    let load = &climb.load;
    let saturated = saturate(bench, load, flights, block, "what limits: as it is")?;
    let doubled = saturate(bench, load, flights * 2, block, "what limits: twice as many in flight")?;
    let larger = match &load.io.blocks {
        Blocks::One(size) if size.0 * 4 <= (1 << 20) && size.0 * 4 <= load.io.size.0 => {
            let large = Bytes(size.0 * 4);
            let mut larger = load.clone();
            larger.io.blocks = Blocks::One(large);
            Some(saturate(bench, &larger, flights, large, "what limits: larger requests")?)
        }
        _ => None,
    };
    let mut evidence =
        Evidence { alone: first.mean, saturated, doubled: Some(doubled), larger, tested: vec![] };
    let Some(shape) = bench.surroundings.shape().filter(|_| climb.intervene) else {
        return Ok(Some(evidence));
    };
    for (intervention, changed) in interventions(&shape) {
        let set = |bench: &Bench<'_>, spec: &tipover_core::device::Spec| {
            bench.surroundings.shaped().map(|disk| disk.set_spec(spec)).transpose()
        };
        // A change beyond what carries the requests cannot be made here, and says nothing.
        if set(bench, &changed).is_err() {
            continue;
        }
        let what = format!("what limits: {}", intervention.change);
        let after = saturate(bench, load, flights, block, &what);
        // Whatever happened, the disk is given back as it was.
        set(bench, &shape)?;
        evidence.tested.push(Tested {
            resource: intervention.resource,
            spec: changed.to_string(),
            after: after?,
        });
    }
    Ok(Some(evidence))
}

/// Throughput in four pieces: enough for an interval, long enough for a slow disk to answer in each.
fn pieces(measured: &Measured, in_flight: u32, block: Bytes) -> Saturated {
    let stretches = &measured.stretches;
    let rate =
        |piece: &[Stretch]| piece.iter().map(|stretch| stretch.requests.0).sum::<f64>() / piece.len() as f64;
    let requests_per_s = stretches.chunks(stretches.len().div_ceil(4).max(1)).map(rate).collect();
    Saturated { block, in_flight, requests_per_s }
}
