//! When does a request complete? Event arithmetic in nanoseconds, the same in real and in virtual time.

use super::gate::{Bucket, Gate, OperationGate, WriteCache};
use super::spindle::Arm;
use super::{Array, Counters, Kind, Order, Spec, Spread};
use crate::units::{Bytes, Tick};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

/// What a request asks for, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Read, write, flush or discard.
    pub kind: Kind,
    /// Where on the device it begins; matters to a spinning disk and to an array only.
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

/// The stations of a disk, and what is booked at each.
#[derive(Debug, Clone)]
struct Stations {
    request_unit: Option<Bytes>,
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
            request_unit: spec.request_unit,
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
        let Booked { demand, service, slow, in_line } = *request;
        let Demand { kind, size, .. } = demand;
        let units = super::spec::units(self.request_unit, size) * slow;
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
                    done = done + arm.serve(done, in_line, &demand) * slow as u32;
                }
                if let Some(cache) = cache.as_ref().filter(|_| kind == Kind::Flush) {
                    done = done + cache.drained(start).since(start);
                }
            }
        }
        if moves_data {
            for pipe in [&mut self.pipe, &mut self.pipes[which]].into_iter().flatten() {
                done = done.max(pipe.pass(start, size.0.saturating_mul(slow)).1);
            }
        }
        if server.is_some() {
            self.servers.push(Reverse(done));
        }
        (start, done)
    }
}

/// The disks that make the device.
#[derive(Debug, Clone)]
struct Disks {
    each: Vec<Stations>,
    array: Option<Array>,
}

impl Disks {
    fn new(spec: &Spec, device: Bytes) -> Disks {
        let one = Stations::new(spec, Bytes(device.0 / u64::from(spec.disks())));
        Disks { each: vec![one; spec.disks() as usize], array: spec.array }
    }

    /// Takes a request through the stations of every disk that has a part of it; returns when the first
    /// service begins and when all is done. A flush is for all of them.
    fn book(&mut self, at: Tick, request: &Booked) -> (Tick, Tick) {
        let (Some(array), [_, _, ..]) = (self.array, &self.each[..]) else {
            return self.each[0].book(at, request);
        };
        let mut span: Option<(Tick, Tick)> = None;
        let mut on = |disk: usize, demand: Demand| {
            let (start, done) = self.each[disk].book(at, &Booked { demand, ..*request });
            let (first, last) = span.unwrap_or((start, done));
            span = Some((first.min(start), last.max(done)));
        };
        match request.demand {
            demand @ Demand { kind: Kind::Flush, .. } => {
                (0..array.disks.get() as usize).for_each(|disk| on(disk, demand))
            }
            Demand { kind, offset, size } => array
                .parts(offset, size)
                .for_each(|(disk, offset, size)| on(disk, Demand { kind, offset, size })),
        }
        span.unwrap_or((at, at))
    }

    /// Burst credits of all.
    fn credits(&self, now: Tick) -> Option<u64> {
        self.each.iter().filter_map(|disk| disk.gate.as_ref()?.credits(now)).reduce(|a, b| a + b)
    }
}

/// What a request takes of the stations.
#[derive(Debug, Clone, Copy)]
struct Booked {
    demand: Demand,
    /// Of each part of it.
    service: u64,
    /// How many times as long it takes at this hour.
    slow: u64,
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
    fn advance(&mut self, disks: &mut Disks, depth: Option<u32>, now: Tick) {
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
            let mut after = if taken_in { None } else { Some(disks.clone()) };
            let (start, done) = after.as_mut().unwrap_or(disks).book(at, &first.request);
            match after {
                Some(_) if start > now => return,
                Some(after) => *disks = after,
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
    fn preview(&self, disks: &Disks, number: NonZeroU64) -> Option<Tick> {
        let mut disks = disks.clone();
        self.waiting.iter().find_map(|w| {
            let (_, done) = disks.book(w.arrival, &w.request);
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
    /// Nanoseconds from a midnight UTC to the beginning of ticks.
    midnight: u64,
    disks: Disks,
    line: Line,
    random: u64,
    counters: Counters,
}

impl Model {
    /// An idle device. `seed` matters only where service times or places are drawn.
    pub fn new(spec: Spec, seed: u64) -> Model {
        let device = Bytes(1_000_000_000_000);
        Model {
            disks: Disks::new(&spec, device),
            line: Line::default(),
            random: seed,
            counters: Counters::default(),
            midnight: 0,
            device,
            spec,
        }
    }

    /// How many bytes the device has, for a spinning disk without a capacity of its own (1 TB else); from
    /// the next [`set_spec`](Self::set_spec) on.
    pub fn set_size(&mut self, size: Bytes) {
        self.device = size;
    }

    /// How long before the beginning of ticks it was midnight UTC, for hours of the day; 0 unless told.
    pub fn set_midnight(&mut self, before: Duration) {
        self.midnight = before.as_nanos() as u64;
    }

    /// Changes the device under way. Requests already submitted keep their completions; the next one
    /// meets idle gates, pipes and servers of the new spec, and as many credits as it begins with. Counters
    /// go on.
    pub fn set_spec(&mut self, spec: Spec) {
        // Writes that still wait are served by the old device.
        self.line.advance(&mut self.disks, None, Tick(u64::MAX));
        self.line.inside.clear();
        self.disks = Disks::new(&spec, self.device);
        self.spec = spec;
    }

    /// What this device is meant to be.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A request for a place drawn at random arrives at a device that serves in order of arrival; returns
    /// when it will complete. The caller owes a [`complete`](Self::complete).
    pub fn submit(&mut self, arrival: Tick, kind: Kind, size: Bytes) -> Tick {
        let offset = match (self.spec.spindle, self.spec.array) {
            (None, None) => 0,
            _ => (self.uniform() * (1u64 << 50) as f64) as u64 & !4095,
        };
        self.request(arrival, Demand { kind, offset, size }).due
    }

    /// A request arrives. The caller owes a [`complete`](Self::complete).
    pub fn request(&mut self, arrival: Tick, demand: Demand) -> Admission {
        self.counters.arrive(arrival);
        if demand.kind == Kind::Discard || self.spec.is_unlimited() {
            return Admission { due: arrival, number: None };
        }
        let slow = self.spec.busy.map_or(1, |busy| busy.times_at(self.midnight.wrapping_add(arrival.0)));
        let service = self.draw(demand.kind).saturating_mul(slow);
        let request = Booked { demand, service, slow, in_line: self.counters.in_flight > 1 };
        if self.spec.order == Order::Fifo {
            let (_, due) = self.disks.book(arrival, &request);
            return Admission { due, number: None };
        }
        let depth = self.spec.depth.map(|d| d.get());
        self.line.advance(&mut self.disks, depth, arrival);
        if demand.kind != Kind::Write {
            let (_, due) = self.disks.book(arrival, &request);
            self.line.note(depth, due);
            return Admission { due, number: None };
        }
        self.line.last += 1;
        let number = NonZeroU64::MIN.saturating_add(self.line.last - 1);
        self.line.waiting.push_back(Waiting { number, arrival, request });
        self.line.advance(&mut self.disks, depth, arrival);
        let due = match self.line.settled.get(&number) {
            Some(due) => *due,
            None => self.line.preview(&self.disks, number).unwrap_or(arrival),
        };
        Admission { due, number: Some(number) }
    }

    /// The completion of a write that was said to be due at or before `now`: later if reads have overtaken
    /// it; `None` if not. To be asked again when that has come.
    pub fn postponed(&mut self, number: NonZeroU64, now: Tick) -> Option<Tick> {
        let depth = self.spec.depth.map(|d| d.get());
        self.line.advance(&mut self.disks, depth, now);
        let due = match self.line.settled.get(&number) {
            Some(due) => *due,
            None => self.line.preview(&self.disks, number)?,
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
        let credits = self.disks.credits(now);
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
mod tests;
