//! Targets in virtual time whose capacity is known exactly.

use super::{FinishedTrial, Goals, Request, Rest};
use crate::workload::Random;
use std::time::Duration;

/// Something that answers a request for a trial.
pub trait VirtualTarget {
    /// Carries the trial out.
    fn run(&mut self, request: &Request, goals: &Goals) -> FinishedTrial;

    /// Nothing is sent until everything is as it was in the beginning.
    fn cool_down(&mut self) {}
}

/// How noisy a place is (METHODS C1, the table of simulated searches).
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    pub name: &'static str,
    /// Spread between trials, of the logarithm of the bad ratio.
    pub between: f64,
    /// Spread within a trial, over the root of its seconds.
    pub within: f64,
    /// Stalls per second, each of 3 s on average, during which all operations are bad.
    pub stalls: f64,
}

pub const QUIET: Noise = Noise { name: "quiet", between: 0.10, within: 0.5, stalls: 1.0 / 3600.0 };
pub const CLOUD: Noise = Noise { name: "cloud", between: 0.35, within: 1.0, stalls: 1.0 / 600.0 };
pub const NOISY: Noise = Noise { name: "noisy", between: 0.7, within: 2.0, stalls: 1.0 / 200.0 };

/// Bad ratio = 1 % × (load ÷ capacity)⁸, times noise, plus stalls.
pub struct Noisy {
    pub noise: Noise,
    /// Where the bad ratio is 1 %.
    pub capacity: f64,
    pub random: Random,
    /// Trial seconds, each trial with 5 s of set-up.
    pub clock_s: f64,
}

impl Noisy {
    pub fn new(noise: Noise, capacity: f64, seed: u64) -> Noisy {
        Noisy { noise, capacity, random: Random::new(seed, 0), clock_s: 0.0 }
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.random.unit()).cos()
    }

    /// The bad ratio of a trial.
    pub fn bad(&mut self, load: f64, seconds: f64) -> f64 {
        self.clock_s += seconds + 5.0;
        let spread = self.noise.between * self.normal() + self.noise.within / seconds.sqrt() * self.normal();
        let mut bad = 0.01 * (load / self.capacity).powi(8) * spread.exp();
        let mut at = self.random.exponential(1.0 / self.noise.stalls);
        while at < seconds {
            bad += (self.random.exponential(3.0) / seconds).min(1.0);
            at += self.random.exponential(1.0 / self.noise.stalls);
        }
        bad.min(1.0)
    }
}

/// A trial with this share of bad operations for each SLO.
pub fn trial(request: &Request, scheduled: u64, bad: &[f64]) -> FinishedTrial {
    FinishedTrial {
        load: request.load,
        duration: request.duration,
        lost_after: None,
        scheduled,
        late: bad.iter().map(|bad| (bad * scheduled as f64).round() as u64).collect(),
        failed: 0,
        not_sent: 0,
        unfinished: 0,
        generator_late: false,
        late_generators: vec![],
        purpose: request.purpose,
        rest: Rest::Unknown,
        rested_for: Duration::ZERO,
        device: None,
        canaries: vec![],
    }
}

impl VirtualTarget for Noisy {
    fn run(&mut self, request: &Request, goals: &Goals) -> FinishedTrial {
        let seconds = request.duration.as_secs_f64();
        let scheduled = (request.load * seconds) as u64;
        let bad = self.bad(request.load, seconds);
        trial(request, scheduled, &vec![bad; goals.slos.len()])
    }
}

/// A server with a first-come-first-served queue, exponential service and arrivals (M/M/1), operation by
/// operation. Residence is exponential with rate (service rate − load), so that p99 ≤ T holds exactly up to
/// load = service rate − ln(100) ÷ T.
pub struct Queue {
    pub service_per_s: f64,
    /// One limit per SLO, seconds.
    pub limits_s: Vec<f64>,
    pub random: Random,
}

impl Queue {
    pub fn capacity(&self, slo: usize) -> f64 {
        self.service_per_s - 100f64.ln() / self.limits_s[slo]
    }
}

impl VirtualTarget for Queue {
    fn run(&mut self, request: &Request, goals: &Goals) -> FinishedTrial {
        let end = request.duration.as_secs_f64();
        let (mut due, mut free, mut scheduled) = (0.0, 0.0f64, 0u64);
        let mut late = vec![0u64; goals.slos.len()];
        let mut unfinished = 0;
        loop {
            due += self.random.exponential(1.0 / request.load);
            if due > end {
                break;
            }
            scheduled += 1;
            free = free.max(due) + self.random.exponential(1.0 / self.service_per_s);
            // Answers are waited for as long as the longest promise, then they count as unfinished.
            if free > end + self.limits_s.iter().copied().fold(0.0, f64::max) {
                unfinished += 1;
                continue;
            }
            for (late, limit) in late.iter_mut().zip(&self.limits_s) {
                *late += u64::from(free - due > *limit);
            }
        }
        FinishedTrial { late, unfinished, ..trial(request, scheduled, &vec![0.0; goals.slos.len()]) }
    }
}

/// Any law: shares of bad operations, one per SLO, as a function of the load.
pub struct Law<F: Fn(f64) -> Vec<f64>>(pub F);

impl<F: Fn(f64) -> Vec<f64>> VirtualTarget for Law<F> {
    fn run(&mut self, request: &Request, _: &Goals) -> FinishedTrial {
        let scheduled = (request.load * request.duration.as_secs_f64()) as u64;
        trial(request, scheduled, &(self.0)(request.load))
    }
}

/// Holds up to `capacity`; once it has failed it goes on failing until the load is below `recovers`, or until
/// it is left alone.
pub struct Metastable {
    pub capacity: f64,
    pub recovers: f64,
    pub broken: bool,
}

impl VirtualTarget for Metastable {
    fn run(&mut self, request: &Request, goals: &Goals) -> FinishedTrial {
        self.broken = request.load > if self.broken { self.recovers } else { self.capacity };
        let bad = if self.broken { 0.5 } else { 0.0 };
        trial(request, (request.load * request.duration.as_secs_f64()) as u64, &vec![bad; goals.slos.len()])
    }

    fn cool_down(&mut self) {
        self.broken = false;
    }
}

/// A generator that cannot offer more than `most` to a target that would hold.
pub struct WeakGenerator {
    pub most: f64,
}

impl VirtualTarget for WeakGenerator {
    fn run(&mut self, request: &Request, _: &Goals) -> FinishedTrial {
        let late = request.load > self.most;
        let mut trial = trial(request, 100_000, &[0.0]);
        // As in life: what the generator did not send looks like a failure of the target.
        trial.not_sent = if late { 50_000 } else { 0 };
        trial.generator_late = late;
        trial
    }
}
