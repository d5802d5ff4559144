//! When does a request complete? Event arithmetic in nanoseconds, the same in real and in virtual time.

use super::{Counters, Kind, Spec, Spread};
use crate::units::{Bytes, Tick};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Sub-nanosecond bits: 600 IOPS are 1 666 666.67 ns apart, and a rounding error per request would
/// otherwise add up to a wrong rate.
const FRACTION: u32 = 32;

/// Lets units through evenly spaced: the generic cell rate algorithm with a burst of one.
#[derive(Debug, Clone)]
struct Gate {
    /// Time per unit, in 2^-32 ns.
    interval: u128,
    /// When the next unit may enter, in 2^-32 ns.
    next: u128,
}

impl Gate {
    fn per_second(units: f64) -> Gate {
        Gate { interval: (1e9 / units * 2f64.powi(FRACTION as i32)).round() as u128, next: 0 }
    }
    /// Takes `units` in one go at or after `at`; returns when they begin to enter and when they are through.
    fn pass(&mut self, at: Tick, units: u64) -> (Tick, Tick) {
        let begin = self.next.max(u128::from(at.0) << FRACTION);
        self.next = begin + self.interval * u128::from(units);
        (up(begin), up(self.next))
    }
}

/// The first whole nanosecond not before `fine`: rounding up, so that a gate is never faster than it says.
fn up(fine: u128) -> Tick {
    Tick(((fine + ((1 << FRACTION) - 1)) >> FRACTION) as u64)
}

/// A device in operation: its [`Spec`], what is queued at each station, and its [`Counters`].
///
/// The completion of a request is fixed when it arrives (first come, first served), so a caller needs
/// only a heap of completions. Arrivals may be a little out of order.
#[derive(Debug, Clone)]
pub struct Model {
    spec: Spec,
    gate: Option<Gate>,
    pipe: Option<Gate>,
    /// When each server becomes free; empty = as many servers as requests.
    servers: BinaryHeap<Reverse<Tick>>,
    random: u64,
    counters: Counters,
}

impl Model {
    /// An idle device. `seed` matters only where service times are drawn.
    pub fn new(spec: Spec, seed: u64) -> Model {
        let mut model = Model {
            spec: Spec::default(),
            gate: None,
            pipe: None,
            servers: BinaryHeap::new(),
            random: seed,
            counters: Counters::default(),
        };
        model.set_spec(spec);
        model
    }

    /// Changes the device under way. Requests already submitted keep their completions; the next one
    /// meets an idle gate, pipe and servers of the new spec. Counters go on.
    pub fn set_spec(&mut self, spec: Spec) {
        self.gate = spec.iops.map(|rate| Gate::per_second(rate.0));
        self.pipe = spec.bandwidth.map(|bandwidth| Gate::per_second(bandwidth.0 as f64));
        let servers = spec.parallel.map_or(0, |p| p.get());
        self.servers = (0..servers).map(|_| Reverse(Tick(0))).collect();
        self.spec = spec;
    }

    /// What this device is meant to be.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A request arrives; returns when it will complete. The caller owes a [`complete`](Self::complete).
    pub fn submit(&mut self, arrival: Tick, kind: Kind, size: Bytes) -> Tick {
        self.counters.arrive(arrival);
        if kind == Kind::Discard || self.spec.is_unlimited() {
            return arrival;
        }
        let moves_data = kind != Kind::Flush;
        let admitted = match &mut self.gate {
            Some(gate) if moves_data => gate.pass(arrival, 1).0,
            _ => arrival,
        };
        let server = self.servers.pop();
        let start = server.map_or(admitted, |Reverse(free)| free.max(admitted));
        let mut done = Tick(start.0 + self.draw(kind));
        if let Some(pipe) = self.pipe.as_mut().filter(|_| moves_data) {
            done = done.max(pipe.pass(start, size.0).1);
        }
        if server.is_some() {
            self.servers.push(Reverse(done));
        }
        done
    }

    /// The request that arrived at `arrival` completed at `at` (in real time a little after what
    /// [`submit`](Self::submit) said; in virtual time exactly then).
    pub fn complete(&mut self, arrival: Tick, at: Tick, kind: Kind, size: Bytes) {
        self.counters.depart(arrival, at, kind, size);
    }

    /// Everything counted up to `now`.
    pub fn counters(&mut self, now: Tick) -> Counters {
        self.counters.advance(now);
        self.counters
    }

    /// Nanoseconds of service for one request.
    fn draw(&mut self, kind: Kind) -> u64 {
        let mean = self.spec.service(kind).as_nanos() as u64;
        match self.spec.spread {
            Spread::Constant => mean,
            Spread::Uniform(share) => {
                let side = self.uniform() * 2.0 - 1.0;
                (mean as f64 * (1.0 + share.0 * side)).round() as u64
            }
            Spread::Exponential => (mean as f64 * -(1.0 - self.uniform()).ln()).round() as u64,
        }
    }

    /// In [0, 1), from SplitMix64: a good generator in four lines, and the same on every machine.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const PAGE: Bytes = Bytes(4096);

    /// `clients` that each send their next read when the last one completes, until `end`. Returns
    /// completions.
    fn closed_loop(model: &mut Model, clients: usize, end: Duration) -> Vec<Tick> {
        let mut due: BinaryHeap<Reverse<(Tick, Tick)>> = BinaryHeap::new();
        for _ in 0..clients {
            due.push(Reverse((model.submit(Tick(0), Kind::Read, PAGE), Tick(0))));
        }
        let mut completions = Vec::new();
        while let Some(Reverse((done, arrival))) = due.pop() {
            model.complete(arrival, done, Kind::Read, PAGE);
            completions.push(done);
            if done.since(Tick(0)) < end {
                due.push(Reverse((model.submit(done, Kind::Read, PAGE), done)));
            }
        }
        completions
    }

    fn model(spec: &str) -> Model {
        Model::new(spec.parse().unwrap(), 1)
    }

    fn rate(completions: &[Tick]) -> f64 {
        let span = completions[completions.len() - 1].since(completions[0]);
        (completions.len() - 1) as f64 / span.as_secs_f64()
    }

    #[test]
    fn at_saturation_the_gate_alone_decides() {
        for (spec, expected) in
            [("iops=5000", 5000.0), ("iops=600,latency=7ms", 600.0), ("iops=150,latency=7ms", 150.0)]
        {
            let got = rate(&closed_loop(&mut model(spec), 16, Duration::from_secs(100)));
            assert!((got / expected - 1.0).abs() < 1e-5, "{spec}: {got}");
        }
    }

    #[test]
    fn one_client_gets_one_over_latency() {
        let got = rate(&closed_loop(&mut model("iops=600,latency=7ms"), 1, Duration::from_secs(100)));
        assert!((got * 0.007 - 1.0).abs() < 1e-9, "{got}");
    }

    #[test]
    fn servers_and_pipe_bound_the_rate() {
        let got = rate(&closed_loop(&mut model("latency=7ms,parallel=2"), 16, Duration::from_secs(50)));
        assert!((got * 0.0035 - 1.0).abs() < 1e-3, "{got}");
        let got = rate(&closed_loop(&mut model("bandwidth=4096000/s"), 4, Duration::from_secs(50)));
        assert!((got / 1000.0 - 1.0).abs() < 1e-5, "{got}");
    }

    #[test]
    fn drawn_service_times_keep_their_mean_and_their_seed() {
        for spec in ["latency=1ms,spread=exponential", "latency=1ms,spread=50%"] {
            let first = closed_loop(&mut model(spec), 1, Duration::from_secs(20));
            assert!((rate(&first) / 1000.0 - 1.0).abs() < 0.03, "{spec}: {}", rate(&first));
            assert_eq!(first, closed_loop(&mut model(spec), 1, Duration::from_secs(20)), "{spec}");
        }
    }

    #[test]
    fn flushes_pass_the_gate_and_discards_cost_nothing() {
        let mut model = model("iops=10,flush_latency=3ms,latency=1ms");
        assert_eq!(model.submit(Tick(0), Kind::Read, PAGE), Tick(1_000_000));
        assert_eq!(model.submit(Tick(0), Kind::Flush, Bytes(0)), Tick(3_000_000));
        assert_eq!(model.submit(Tick(0), Kind::Discard, PAGE), Tick(0));
        assert_eq!(model.submit(Tick(0), Kind::Read, PAGE), Tick(101_000_000));
    }

    #[test]
    fn a_change_under_way_keeps_counts_and_completions() {
        let mut model = model("iops=100,latency=7ms");
        let dues: Vec<Tick> = (0..5).map(|_| model.submit(Tick(0), Kind::Write, PAGE)).collect();
        model.set_spec("iops=5000".parse().unwrap());
        assert_eq!(model.counters(Tick(1)).in_flight, 5);
        assert_eq!(model.submit(Tick(10), Kind::Read, PAGE), Tick(10), "the new gate is idle");
        model.complete(Tick(10), Tick(10), Kind::Read, PAGE);
        for due in dues {
            model.complete(Tick(0), due, Kind::Write, PAGE);
        }
        let counters = model.counters(Tick(1_000_000_000));
        assert_eq!((counters.in_flight, counters.write.requests, counters.read.requests), (0, 5, 1));
        assert_eq!(counters.write.bytes, Bytes(5 * 4096));
    }

    #[test]
    fn littles_law_holds_on_the_counters() {
        let mut model = model("iops=600,latency=7ms");
        let before = model.counters(Tick(0));
        let last = *closed_loop(&mut model, 16, Duration::from_secs(10)).last().unwrap();
        let rates = model.counters(last).rates_since(&before).unwrap();
        let expected = rates.requests().0 * rates.mean_await.unwrap().as_secs_f64();
        assert!((rates.queue / expected - 1.0).abs() < 1e-6, "{} against {expected}", rates.queue);
        assert!((rates.utilization.0 - 1.0).abs() < 1e-9);
        assert!((rates.queue - 16.0).abs() < 0.05);
        assert_eq!(rates.request_size, Some(PAGE));
    }

    proptest! {
        #[test]
        fn never_faster_than_the_gate_and_never_before_service(
            gaps in prop::collection::vec(0u64..5_000_000, 2..200),
            iops in 50.0..20_000f64,
            latency in 0u64..10_000_000,
            parallel in 0u32..8,
        ) {
            let mut spec: crate::device::Spec = "".parse().unwrap();
            spec.iops = Some(crate::units::Rate(iops));
            spec.latency = Duration::from_nanos(latency);
            spec.parallel = std::num::NonZeroU32::new(parallel);
            let mut model = Model::new(spec, 0);
            let mut now = 0;
            let mut done = Vec::new();
            for gap in gaps {
                now += gap;
                let at = model.submit(Tick(now), Kind::Read, PAGE);
                prop_assert!(at.0 >= now + latency);
                done.push(at.0);
            }
            done.sort_unstable();
            for (i, first) in done.iter().enumerate() {
                for (j, last) in done.iter().enumerate().skip(i) {
                    let passed = (j - i) as f64;
                    // One nanosecond of rounding, no more: a burst of one is the `j - i` itself.
                    prop_assert!(passed <= (last - first + 1) as f64 * iops / 1e9 + 1e-6);
                }
            }
        }

        #[test]
        fn queue_time_is_the_sum_of_residences_even_when_arrivals_come_late(
            requests in prop::collection::vec((0u64..1_000_000, 0u64..50_000), 1..100),
        ) {
            let mut model = model("iops=3000,latency=200us,parallel=4");
            let mut events = BinaryHeap::new();
            let mut now = 0;
            for (gap, late) in requests {
                now += gap;
                while let Some(&Reverse((done, arrival))) = events.peek() {
                    if done > Tick(now) { break }
                    events.pop();
                    model.complete(arrival, done, Kind::Read, PAGE);
                }
                let arrival = Tick(now.saturating_sub(late));
                let done = model.submit(arrival, Kind::Read, PAGE).max(Tick(now));
                events.push(Reverse((done, arrival)));
            }
            while let Some(Reverse((done, arrival))) = events.pop() {
                model.complete(arrival, done, Kind::Read, PAGE);
                now = now.max(done.0);
            }
            let counters = model.counters(Tick(now));
            prop_assert_eq!(counters.queue_time, counters.read.residence);
            prop_assert!(counters.busy <= Duration::from_nanos(now));
        }
    }
}
