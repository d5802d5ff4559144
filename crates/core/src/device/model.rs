//! When does a request complete? Event arithmetic in nanoseconds, the same in real and in virtual time.

use super::gate::{Bucket, Gate, OperationGate, WriteCache};
use super::spindle::Arm;
use super::{Counters, Kind, Order, Spec, Spread};
use crate::units::{Bytes, Tick};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::num::NonZeroU64;

/// What a request asks for, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Read, write, flush or discard.
    pub kind: Kind,
    /// Where on the device it begins; matters to a spinning disk only.
    pub offset: u64,
    /// How many bytes.
    pub size: Bytes,
}

/// When a request will complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// As things stand.
    pub due: Tick,
    /// Set if later requests may overtake this one: then ask [`Model::postponed`] when `due` has come.
    pub number: Option<NonZeroU64>,
}

/// The stations of a device, and what is booked at each.
#[derive(Debug, Clone)]
struct Stations {
    gate: Option<OperationGate>,
    /// Of reads, of writes.
    gates: [Option<Gate>; 2],
    pipe: Option<Gate>,
    pipes: [Option<Gate>; 2],
    /// When each server becomes free; empty = as many servers as requests.
    servers: BinaryHeap<Reverse<Tick>>,
    cache: Option<WriteCache>,
    arm: Option<Arm>,
}

impl Stations {
    fn new(spec: &Spec, device: Bytes) -> Stations {
        let bucket = spec
            .burst
            .zip(spec.iops)
            .map(|(burst, base)| Bucket::new(base.0, burst.credits, burst.start.unwrap_or(burst.credits)));
        let peak = spec.burst.map(|burst| burst.iops).or(spec.iops);
        let pipe = |bandwidth: Option<Bytes>| bandwidth.map(|b| Gate::per_second(b.0 as f64));
        Stations {
            gate: peak.map(|peak| OperationGate::new(peak.0, bucket)),
            gates: [spec.read_iops, spec.write_iops].map(|rate| rate.map(|r| Gate::per_second(r.0))),
            pipe: pipe(spec.bandwidth),
            pipes: [spec.read_bandwidth, spec.write_bandwidth].map(pipe),
            servers: (0..spec.servers().unwrap_or(0)).map(|_| Reverse(Tick(0))).collect(),
            cache: spec.cache.map(|cache| WriteCache::new(cache.size, cache.drain)),
            arm: Arm::new(spec, device),
        }
    }

    /// Takes a request through all stations; returns when its service begins and when it is done.
    fn book(&mut self, at: Tick, request: &Booked) -> (Tick, Tick) {
        let Booked { demand, units, service, in_line } = *request;
        let Demand { kind, size, .. } = demand;
        let moves_data = kind != Kind::Flush;
        let which = usize::from(kind == Kind::Write);
        let mut admitted = at;
        if moves_data {
            // The common gate first: what waits at its own gate must not hold up the other kind.
            if let Some(gate) = &mut self.gate {
                admitted = gate.pass(admitted, units);
            }
            if let Some(gate) = &mut self.gates[which] {
                admitted = gate.pass(admitted, units).0;
            }
        }
        let server = self.servers.pop();
        let start = server.map_or(admitted, |Reverse(free)| free.max(admitted));
        let mut done = Tick(start.0.saturating_add(service));
        match (&mut self.cache, kind) {
            (Some(cache), Kind::Write) => done = done.max(cache.enter(start, size)),
            (cache, _) => {
                if let Some(arm) = self.arm.as_mut().filter(|_| moves_data) {
                    done = done + arm.serve(done, in_line, &demand);
                }
                if let Some(cache) = cache.as_ref().filter(|_| kind == Kind::Flush) {
                    done = done + cache.drained(start).since(start);
                }
            }
        }
        if moves_data {
            for pipe in [&mut self.pipe, &mut self.pipes[which]].into_iter().flatten() {
                done = done.max(pipe.pass(start, size.0).1);
            }
        }
        if server.is_some() {
            self.servers.push(Reverse(done));
        }
        (start, done)
    }
}

/// What a request takes of the stations.
#[derive(Debug, Clone, Copy)]
struct Booked {
    demand: Demand,
    units: u64,
    service: u64,
    /// Another request was under way when it came.
    in_line: bool,
}

/// A write that reads may overtake.
#[derive(Debug, Clone)]
struct Waiting {
    number: NonZeroU64,
    arrival: Tick,
    request: Booked,
}

/// Writes in line under [`Order::ReadsFirst`]. Reads are booked as they come; a write is booked when its
/// service begins, so that every read until then is before it.
#[derive(Debug, Clone, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// Completions of all that the device has taken in, where its depth is limited.
    inside: BinaryHeap<Reverse<Tick>>,
    /// Completions of writes that were waiting and are booked now, until they are asked for.
    settled: HashMap<NonZeroU64, Tick>,
    last: u64,
}

impl Line {
    /// Books every write whose service has begun by `now`, or that found a place in the device.
    fn advance(&mut self, stations: &mut Stations, depth: Option<u32>, now: Tick) {
        let mut room_since = Tick(0);
        while let Some(first) = self.waiting.front() {
            let taken_in = match depth {
                Some(depth) if self.inside.len() < depth as usize => true,
                Some(_) => match self.inside.peek() {
                    Some(Reverse(done)) if *done <= now => {
                        room_since = *done;
                        self.inside.pop();
                        continue;
                    }
                    _ => false,
                },
                None => false,
            };
            let at = first.arrival.max(room_since);
            let mut after = if taken_in { None } else { Some(stations.clone()) };
            let (start, done) = after.as_mut().unwrap_or(stations).book(at, &first.request);
            match after {
                Some(_) if start > now => return,
                Some(after) => *stations = after,
                None => {}
            }
            self.settled.insert(first.number, done);
            self.waiting.pop_front();
            self.note(depth, done);
        }
    }

    fn note(&mut self, depth: Option<u32>, done: Tick) {
        if depth.is_some() {
            self.inside.push(Reverse(done));
        }
    }

    /// When the waiting write of this number would be done if no read came any more.
    fn preview(&self, stations: &Stations, number: NonZeroU64) -> Option<Tick> {
        let mut stations = stations.clone();
        self.waiting.iter().find_map(|w| {
            let (_, done) = stations.book(w.arrival, &w.request);
            (w.number == number).then_some(done)
        })
    }
}

/// A device in operation: its [`Spec`], what is queued at each station, and its [`Counters`].
///
/// The completion of a request is fixed when it arrives (first come, first served), so a caller needs
/// only a heap of completions; under [`Order::ReadsFirst`] completions of writes may move back, see
/// [`postponed`](Self::postponed). Arrivals may be a little out of order.
#[derive(Debug, Clone)]
pub struct Model {
    spec: Spec,
    device: Bytes,
    stations: Stations,
    line: Line,
    random: u64,
    counters: Counters,
}

impl Model {
    /// An idle device. `seed` matters only where service times or places are drawn.
    pub fn new(spec: Spec, seed: u64) -> Model {
        let device = Bytes(1_000_000_000_000);
        Model {
            stations: Stations::new(&spec, device),
            line: Line::default(),
            random: seed,
            counters: Counters::default(),
            device,
            spec,
        }
    }

    /// How many bytes the device has, for a spinning disk without a capacity of its own (1 TB else); from
    /// the next [`set_spec`](Self::set_spec) on.
    pub fn set_size(&mut self, size: Bytes) {
        self.device = size;
    }

    /// Changes the device under way. Requests already submitted keep their completions; the next one
    /// meets idle gates, pipes and servers of the new spec, and as many credits as it begins with. Counters
    /// go on.
    pub fn set_spec(&mut self, spec: Spec) {
        // Writes that still wait are served by the old device.
        self.line.advance(&mut self.stations, None, Tick(u64::MAX));
        self.line.inside.clear();
        self.stations = Stations::new(&spec, self.device);
        self.spec = spec;
    }

    /// What this device is meant to be.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A request for a place drawn at random arrives at a device that serves in order of arrival; returns
    /// when it will complete. The caller owes a [`complete`](Self::complete).
    pub fn submit(&mut self, arrival: Tick, kind: Kind, size: Bytes) -> Tick {
        let offset = match self.spec.spindle {
            None => 0,
            Some(_) => (self.uniform() * (1u64 << 50) as f64) as u64 & !4095,
        };
        self.request(arrival, Demand { kind, offset, size }).due
    }

    /// A request arrives. The caller owes a [`complete`](Self::complete).
    pub fn request(&mut self, arrival: Tick, demand: Demand) -> Admission {
        self.counters.arrive(arrival);
        if demand.kind == Kind::Discard || self.spec.is_unlimited() {
            return Admission { due: arrival, number: None };
        }
        let (units, service) = (self.spec.units(demand.size), self.draw(demand.kind));
        let request = Booked { demand, units, service, in_line: self.counters.in_flight > 1 };
        if self.spec.order == Order::Fifo {
            let (_, due) = self.stations.book(arrival, &request);
            return Admission { due, number: None };
        }
        let depth = self.spec.depth.map(|d| d.get());
        self.line.advance(&mut self.stations, depth, arrival);
        if demand.kind != Kind::Write {
            let (_, due) = self.stations.book(arrival, &request);
            self.line.note(depth, due);
            return Admission { due, number: None };
        }
        self.line.last += 1;
        let number = NonZeroU64::MIN.saturating_add(self.line.last - 1);
        self.line.waiting.push_back(Waiting { number, arrival, request });
        self.line.advance(&mut self.stations, depth, arrival);
        let due = match self.line.settled.get(&number) {
            Some(due) => *due,
            None => self.line.preview(&self.stations, number).unwrap_or(arrival),
        };
        Admission { due, number: Some(number) }
    }

    /// The completion of a write that was said to be due at or before `now`: later if reads have overtaken
    /// it; `None` if not. To be asked again when that has come.
    pub fn postponed(&mut self, number: NonZeroU64, now: Tick) -> Option<Tick> {
        let depth = self.spec.depth.map(|d| d.get());
        self.line.advance(&mut self.stations, depth, now);
        let due = match self.line.settled.get(&number) {
            Some(due) => *due,
            None => self.line.preview(&self.stations, number)?,
        };
        if due > now {
            return Some(due);
        }
        self.line.settled.remove(&number);
        None
    }

    /// The request that arrived at `arrival` completed at `at` (in real time a little after what
    /// [`request`](Self::request) said; in virtual time exactly then).
    pub fn complete(&mut self, arrival: Tick, at: Tick, kind: Kind, size: Bytes) {
        self.counters.depart(arrival, at, kind, size);
    }

    /// Everything counted up to `now`.
    pub fn counters(&mut self, now: Tick) -> Counters {
        self.counters.advance(now);
        let credits = self.stations.gate.as_ref().and_then(|gate| gate.credits(now));
        Counters { credits, ..self.counters }
    }

    /// Nanoseconds of service for one request.
    fn draw(&mut self, kind: Kind) -> u64 {
        let mean = self.spec.service(kind).as_nanos() as u64;
        let factor = match &self.spec.spread {
            Spread::Constant => return mean,
            Spread::Uniform(share) => {
                let share = share.0;
                1.0 + share * (self.uniform() * 2.0 - 1.0)
            }
            Spread::Exponential => -(1.0 - self.uniform()).ln(),
            Spread::Measured(_) => {
                let share = self.uniform();
                let Spread::Measured(histogram) = &self.spec.spread else { return mean };
                histogram.quantile(share)
            }
        };
        (mean as f64 * factor).round() as u64
    }

    /// In [0, 1), from SplitMix64: a good generator in four lines, and the same on every machine.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        super::hash(self.random)
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

    /// Poisson arrivals of reads and writes, each kind with its rate per second: mean residences in seconds.
    fn open_loop(model: &mut Model, reads: f64, writes: f64, count: usize) -> [f64; 2] {
        let mut dice = Model::new(Spec::default(), 99);
        let mut due = BinaryHeap::new();
        let (mut sums, mut counts, mut now) = ([0.0; 2], [0u64; 2], 0.0);
        type Pending = Reverse<(Tick, Tick, Option<NonZeroU64>, bool)>;
        let mut settle = |model: &mut Model, due: &mut BinaryHeap<Pending>, now: Tick| {
            while let Some(&Reverse((done, arrival, number, write))) = due.peek() {
                if done > now {
                    break;
                }
                due.pop();
                match number.and_then(|number| model.postponed(number, done)) {
                    Some(later) => due.push(Reverse((later, arrival, number, write))),
                    None => {
                        let kind = if write { Kind::Write } else { Kind::Read };
                        model.complete(arrival, done, kind, PAGE);
                        sums[usize::from(write)] += done.since(arrival).as_secs_f64();
                        counts[usize::from(write)] += 1;
                    }
                }
            }
        };
        for _ in 0..count {
            now += -(1.0 - dice.uniform()).ln() / (reads + writes) * 1e9;
            let at = Tick(now as u64);
            settle(model, &mut due, at);
            let write = dice.uniform() * (reads + writes) >= reads;
            let kind = if write { Kind::Write } else { Kind::Read };
            let admission = model.request(at, Demand { kind, offset: 0, size: PAGE });
            due.push(Reverse((admission.due, at, admission.number, write)));
        }
        settle(model, &mut due, Tick(u64::MAX));
        assert_eq!(model.counters(Tick(u64::MAX / 2)).in_flight, 0);
        [0, 1].map(|kind| sums[kind] / counts[kind].max(1) as f64)
    }

    fn assert_near(got: f64, theory: f64, share: f64) {
        assert!((got / theory - 1.0).abs() < share, "{got} against {theory}");
    }

    /// Pollaczek and Khinchine: W = lambda E[s^2] / 2 (1 - rho), and s on top.
    #[test]
    fn queues_obey_the_formulas() {
        for rho in [0.3, 0.7, 0.9] {
            let s = 0.001;
            let fixed = open_loop(&mut model("latency=1ms,parallel=1"), rho / s, 0.0, 400_000)[0];
            assert_near(fixed, s + rho * s / (2.0 * (1.0 - rho)), 0.03);
            let drawn =
                open_loop(&mut model("latency=1ms,parallel=1,spread=exponential"), rho / s, 0.0, 400_000);
            assert_near(drawn[0], s / (1.0 - rho), 0.05);
        }
        // M/M/2: Erlang C gives W = s rho^2 / (1 - rho^2) with rho the load of each server.
        let rho: f64 = 0.8;
        let spec = "latency=1ms,parallel=2,spread=exponential";
        let got = open_loop(&mut model(spec), 2.0 * rho / 0.001, 0.0, 400_000)[0];
        assert_near(got, 0.001 / (1.0 - rho * rho), 0.05);
    }

    /// Cobham's formulas for two classes without pre-emption: R = sum of lambda s^2 / 2, reads wait
    /// R / (1 - rho_r), writes R / ((1 - rho_r) (1 - rho)).
    #[test]
    fn reads_first_obeys_the_formulas_of_priority() {
        let (s, reads, writes) = (0.001, 400.0, 450.0);
        let spec = "latency=1ms,parallel=1,order=reads-first";
        let [read, write] = open_loop(&mut model(spec), reads, writes, 400_000);
        let rest = (reads + writes) * s * s / 2.0;
        let (rho_r, rho) = (reads * s, (reads + writes) * s);
        assert_near(read, s + rest / (1.0 - rho_r), 0.03);
        assert_near(write, s + rest / ((1.0 - rho_r) * (1.0 - rho)), 0.06);
        let [read, write] = open_loop(&mut model("latency=1ms,parallel=1"), reads, writes, 400_000);
        assert_near(read / write, 1.0, 0.02);
        // A deep device hides the line from the scheduler: then it is nearly first come, first served.
        let deep = "latency=1ms,parallel=1,order=reads-first,depth=64";
        let [read, write] = open_loop(&mut model(deep), reads, writes, 400_000);
        assert!(read / write > 0.9, "{read} {write}");
    }

    #[test]
    fn each_kind_has_its_own_gate_and_none_holds_up_the_other() {
        let mut model = model("read_iops=100,write_iops=1000,iops=1100");
        let ask =
            |model: &mut Model, kind| model.request(Tick(0), Demand { kind, offset: 0, size: PAGE }).due;
        let reads: Vec<Tick> = (0..10).map(|_| ask(&mut model, Kind::Read)).collect();
        assert!(reads[9].0 >= 90_000_000);
        let write = ask(&mut model, Kind::Write);
        assert!(write.0 < 11_000_000, "{write:?} does not wait for reads");
        assert!(ask(&mut model, Kind::Write).since(write) <= Duration::from_millis(1));
    }

    #[test]
    fn large_requests_count_as_several() {
        let mut model = model("iops=100,request_unit=256KiB");
        let at = |model: &mut Model, size| model.submit(Tick(0), Kind::Read, Bytes::kib(size));
        assert_eq!(at(&mut model, 256), Tick(0));
        assert_eq!(at(&mut model, 1024), Tick(10_000_000));
        assert_eq!(at(&mut model, 4), Tick(50_000_000));
    }

    #[test]
    fn a_cache_takes_writes_and_a_flush_pays() {
        let mut model =
            model("latency=5ms,write_latency=100us,flush_latency=1ms,cache=40kB,cache_drain=4MB/s");
        let write = |model: &mut Model| model.submit(Tick(0), Kind::Write, Bytes(4000));
        for _ in 0..10 {
            assert_eq!(write(&mut model), Tick(100_000));
        }
        assert_eq!(write(&mut model), Tick(1_000_000), "room when 4000 bytes are drained");
        assert_eq!(
            model.submit(Tick(0), Kind::Flush, Bytes(0)),
            Tick(12_000_000),
            "11 writes drain, then 1 ms"
        );
    }

    #[test]
    fn measured_service_times_keep_their_mean() {
        let mut model = model("latency=1ms,spread=50us/100us:90/2ms:9/4ms:1");
        let count = 200_000;
        let sum: u64 = (0..count).map(|_| model.submit(Tick(0), Kind::Read, PAGE).0).sum();
        assert_near(sum as f64 / f64::from(count), 1e6, 0.02);
    }

    #[test]
    fn a_spinning_disk_serves_one_at_a_time_at_its_theory() {
        let spec = "rpm=7200,seek_track=1ms,seek_full=16ms,track=1MiB,capacity=100GiB";
        for clients in [1, 16] {
            let got = rate(&closed_loop(&mut model(spec), clients, Duration::from_secs(200)));
            let theory = spec.parse::<Spec>().unwrap().ceiling(Kind::Read, PAGE, clients as u32).unwrap().0;
            assert_near(got, theory, 0.01);
        }
    }

    /// A page after another, `ahead` of them in flight; what each took, in rotations. Arrivals are dated back
    /// as the way to the disk is: nothing may depend on some microseconds.
    fn rotations_of_a_log(ahead: usize) -> f64 {
        let mut model = model("rpm=7200,seek_track=1ms,seek_full=16ms,track=1MiB,latency=100us");
        let (mut flying, mut now) = (VecDeque::new(), Tick(1_000_000));
        for n in 1..=500u64 {
            if flying.len() == ahead {
                let (arrival, due) = flying.pop_front().unwrap();
                model.complete(arrival, due, Kind::Write, PAGE);
                now = due;
            }
            let arrival = Tick(now.0 - 60_000);
            let demand = Demand { kind: Kind::Write, offset: n * 4096, size: PAGE };
            flying.push_back((arrival, model.request(arrival, demand).due));
        }
        now.0 as f64 / 500.0 / (60e9 / 7200.0)
    }

    #[test]
    fn a_log_that_waits_for_each_page_gets_one_a_rotation() {
        let (alone, queued) = (rotations_of_a_log(1), rotations_of_a_log(4));
        assert!((alone - 1.0).abs() < 0.02 && queued < 0.05, "{alone} and {queued} rotations a page");
    }

    #[test]
    fn credits_can_be_read() {
        let mut model = model("iops=100,burst_iops=1000,burst_credits=500,burst_start=200");
        assert_eq!(model.counters(Tick(0)).credits, Some(200));
        let last = (0..100).map(|_| model.submit(Tick(0), Kind::Read, PAGE)).last().unwrap();
        assert!(model.counters(last).credits.is_some_and(|c| (108..=111).contains(&c)));
    }

    proptest! {
        #[test]
        fn reads_first_loses_nothing_and_never_serves_early(
            requests in prop::collection::vec((0u64..2_000_000, any::<bool>()), 1..120),
            parallel in 1u32..4,
            depth in 0u32..6,
        ) {
            let mut spec: Spec = "latency=1ms,order=reads-first".parse().unwrap();
            spec.parallel = std::num::NonZeroU32::new(parallel);
            spec.depth = std::num::NonZeroU32::new(depth);
            let mut model = Model::new(spec, 1);
            let (mut now, mut pending, mut done) = (0, BinaryHeap::new(), Vec::new());
            let mut settle = |model: &mut Model, pending: &mut BinaryHeap<_>, now: u64| {
                while let Some(&Reverse((due, arrival, number))) = pending.peek() {
                    let due: Tick = due;
                    if due.0 > now {
                        break;
                    }
                    pending.pop();
                    match Option::and_then(number, |number| model.postponed(number, due)) {
                        Some(later) => pending.push(Reverse((later, arrival, number))),
                        None => done.push((due.0, arrival)),
                    }
                }
            };
            let count = requests.len();
            for (gap, write) in requests {
                now += gap;
                settle(&mut model, &mut pending, now);
                let kind = if write { Kind::Write } else { Kind::Read };
                let admission = model.request(Tick(now), Demand { kind, offset: 0, size: PAGE });
                pending.push(Reverse((admission.due, now, admission.number)));
            }
            settle(&mut model, &mut pending, u64::MAX);
            prop_assert_eq!(done.len(), count);
            done.sort_unstable();
            for (due, arrival) in &done {
                prop_assert!(*due >= arrival + 1_000_000);
            }
            // No more than `parallel` complete within one service time.
            for window in done.windows(parallel as usize + 1) {
                prop_assert!(window[parallel as usize].0 - window[0].0 >= 1_000_000);
            }
        }

        #[test]
        fn never_faster_than_the_gate_and_never_before_service(
            gaps in prop::collection::vec(0u64..5_000_000, 2..200),
            iops in 50.0..20_000f64,
            latency in 0u64..10_000_000,
            parallel in 0u32..8,
        ) {
            let mut spec: Spec = "".parse().unwrap();
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
