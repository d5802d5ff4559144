//! Queueing networks of one node: processors, and a disk behind its gate. Means by exact mean value analysis,
//! percentiles under an open load by matching moments, and both by discrete events on the same device model
//! that shapes the laboratory's disks.

use crate::device::{Kind, Model, Spec};
use crate::probability::normal;
use crate::units::{Bytes, Rate, Tick};
use crate::workload::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How far [`open_percentile`] is from discrete events at most, in logarithms, up to 80 % of the load that a
/// station can take.
pub const OPEN_ERROR: f64 = 0.2;
/// What the kernel asks of a disk at a time, without readahead.
pub const READ: Bytes = Bytes(4096);

/// A station: its servers, and the seconds that they take for all visits of one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Station {
    /// Seconds of service for an operation.
    pub demand: f64,
    /// How many are served at once.
    pub servers: u32,
}

/// Operations per second of `clients`, each with one operation at a time, that wait `delay` seconds apart
/// from all `stations`: exact mean value analysis with load-dependent stations (Reiser & Lavenberg 1980;
/// Lazowska et al. 1984, ch. 20). Service is memoryless; means depend little on that.
pub fn closed_throughput(clients: u32, delay: f64, stations: &[Station]) -> f64 {
    let n_most = clients as usize;
    let mut at: Vec<Vec<f64>> = stations
        .iter()
        .map(|_| {
            let mut empty = vec![0.0; n_most + 1];
            empty[0] = 1.0;
            empty
        })
        .collect();
    let mut throughput = 0.0;
    for n in 1..=n_most {
        let mut residence = delay;
        for (station, p) in stations.iter().zip(&at) {
            let with =
                |j: usize| j as f64 * station.demand / (j as f64).min(f64::from(station.servers)) * p[j - 1];
            residence += (1..=n).map(with).sum::<f64>();
        }
        throughput = n as f64 / residence;
        for (station, p) in stations.iter().zip(&mut at) {
            let mut others = 0.0;
            for j in (1..=n).rev() {
                let speed = (j as f64).min(f64::from(station.servers)) / station.demand;
                p[j] = if station.demand > 0.0 { throughput / speed * p[j - 1] } else { 0.0 };
                others += p[j];
            }
            p[0] = (1.0 - others).max(0.0);
        }
    }
    throughput
}

/// What one operation asks of a node, in seconds and shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Processor time of every operation.
    pub cpu: f64,
    /// More of one whose page the engine misses: copy, checksum, rebuild, evict.
    pub cpu_miss: f64,
    /// More for each request to the disk.
    pub cpu_read: f64,
    /// Pages missed by the engine for an operation.
    pub misses: f64,
    /// Share of them that the page cache misses too.
    pub to_disk: f64,
    /// Requests, one after another, that a page takes from the disk.
    pub reads_per_miss: f64,
    /// How large each is.
    pub request: Bytes,
    /// What it writes.
    pub writes: Writes,
}

/// What an operation writes. All of it takes its turn at the disk; an operation waits for its journal alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Writes {
    /// Requests for an operation that nobody waits for,
    pub background: f64,
    /// and those of the journal, when operations share none.
    pub journal: f64,
    /// How large each is.
    pub size: Bytes,
    /// Share of operations that end when their journal is durable: after one such request and a flush.
    pub durable: f64,
}

impl Writes {
    /// Nothing is written.
    pub const NONE: Writes = Writes { background: 0.0, journal: 0.0, size: READ, durable: 0.0 };

    /// Of both kinds, when `rate` operations per second are carried out and a flush takes `flush` seconds.
    ///
    /// Who waits for the journal shares the next flush with all who come while one is under way. So a flush
    /// follows the last one when somebody comes, 1 ÷ `rate` of those who wait later on average (a renewal
    /// process), and each of them has 1 ÷ (1 + `rate` × `flush`) of one.
    pub fn requests(&self, rate: f64, flush: f64) -> f64 {
        self.background + self.journal.min(self.durable / (1.0 + rate * self.durable * flush))
    }
}

impl Work {
    /// Share of operations that go to the disk.
    pub fn disk_share(&self) -> f64 {
        (self.misses * self.to_disk).min(1.0)
    }

    /// Requests to the disk for an operation.
    pub fn reads(&self) -> f64 {
        self.misses * self.to_disk * self.reads_per_miss
    }

    /// Mean processor time of an operation.
    pub fn cpu_all(&self) -> f64 {
        self.cpu + self.misses * self.cpu_miss + self.reads() * self.cpu_read
    }
}

/// A disk's limits for single requests at random places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Seconds between two reads that its gates let through; 0 without a gate.
    pub gate: f64,
    /// Seconds of a read's service behind the gate.
    pub service: f64,
    /// How many requests are served at once; `u32::MAX` without a limit.
    pub servers: u32,
    /// Seconds of that gate which a write takes,
    pub write_gate: f64,
    /// of one that reads do not pass,
    pub write_alone: f64,
    /// and of service behind them.
    pub write_service: f64,
    /// Seconds from the first write of a journal until it is durable, when nobody else is there.
    pub durable: f64,
}

impl Limits {
    /// Of `disk`, in its busy hours and its burst credits used up, when it is asked for `request` at a time
    /// and written `write`.
    pub fn of(disk: &Spec, request: Bytes, write: Bytes) -> Limits {
        // Whoever buys it has to live with its busy hours.
        let disk = &disk.at_its_busiest();
        let slowest = |rates: [Option<Rate>; 2], pipes: [Option<Bytes>; 2], size: Bytes| {
            let rates = rates.into_iter().flatten().map(|rate| disk.units(size) as f64 / rate.0);
            let pipes = pipes.into_iter().flatten().map(|pipe| size.0 as f64 / pipe.0 as f64);
            rates.chain(pipes).fold(0.0, f64::max)
        };
        let spindle = |size| disk.spindle.map_or(0.0, |spindle| spindle.mean_service(size).as_secs_f64());
        // A cache takes a write at once, and a flush waits until it is on the medium.
        let (seek, drained) = match disk.cache {
            Some(cache) => (0.0, write.0 as f64 / cache.drain.0 as f64),
            None => (spindle(write), 0.0),
        };
        let write_service = disk.service(Kind::Write).as_secs_f64() + seek;
        Limits {
            gate: slowest([disk.iops, disk.read_iops], [disk.bandwidth, disk.read_bandwidth], request),
            service: disk.service(Kind::Read).as_secs_f64() + spindle(request),
            servers: disk.servers().unwrap_or(u32::MAX),
            write_gate: slowest([disk.iops, None], [disk.bandwidth, None], write),
            write_alone: slowest([disk.write_iops, None], [disk.write_bandwidth, None], write).max(drained),
            write_service,
            durable: write_service + drained + disk.service(Kind::Flush).as_secs_f64(),
        }
    }

    /// The most reads per second.
    pub fn most(&self) -> f64 {
        let served = f64::from(self.servers) / self.service;
        if self.gate > 0.0 { served.min(1.0 / self.gate) } else { served }
    }

    /// Seconds of a flush of the journal, one after another.
    pub fn flush(&self) -> f64 {
        self.durable.max(self.write_gate).max(self.write_alone)
    }

    /// The most operations per second that the disk keeps up with; without end, 1e15, where it is not asked.
    pub fn keeps_up(&self, work: &Work) -> f64 {
        let at = |rate: f64| 1.0 / self.busy(work, rate).max(1e-15);
        let (mut low, mut high) = (at(0.0), at(1e15));
        if work.writes.journal == 0.0 {
            return high;
        }
        while high > low * (1.0 + PRECISION) {
            let middle = (low * high).sqrt();
            if middle < at(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Seconds that an operation takes of what the disk has least of, when `rate` per second are carried out.
    pub fn busy(&self, work: &Work, rate: f64) -> f64 {
        let (reads, writes) = (work.reads(), work.writes.requests(rate, self.flush()));
        let served = (reads * self.service + writes * self.write_service) / f64::from(self.servers);
        let passed = reads * self.gate + writes * self.write_gate;
        served.max(passed).max(writes * self.write_alone)
    }
}

/// Operations per second of `clients` in a closed loop on `cores` processors, who share no flush.
pub fn throughput(clients: u32, work: &Work, cores: f64, disk: &Limits) -> f64 {
    let (reads, durable) = (work.reads(), work.writes.durable);
    let writes = work.writes.requests(0.0, 0.0);
    // Part of a processor is a slower one.
    let servers = cores.ceil().max(1.0);
    let mut stations = vec![Station { demand: work.cpu_all() * servers / cores, servers: servers as u32 }];
    stations.push(Station { demand: reads * disk.gate + writes * disk.write_gate, servers: 1 });
    stations.push(Station { demand: writes * disk.write_alone, servers: 1 });
    let mut delay = durable * disk.durable;
    if disk.servers >= clients {
        delay += reads * disk.service;
    } else {
        let demand = reads * disk.service + writes * disk.write_service;
        stations.push(Station { demand, servers: disk.servers });
    }
    stations.retain(|station| station.demand > 0.0);
    closed_throughput(clients, delay, &stations)
}

/// The latency that a share `quantile` of operations meets when the disk is saturated by closed clients: a
/// missed page is a number of requests, each of which waits for those of all clients.
pub fn saturated_latency(reads_per_miss: f64, clients: u32, iops: f64) -> f64 {
    reads_per_miss * f64::from(clients) / iops
}

/// Mean and variance of a time in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Moments {
    mean: f64,
    variance: f64,
}

impl Moments {
    /// Of the sum with a time that does not depend on it.
    fn plus(self, other: Moments) -> Moments {
        Moments { mean: self.mean + other.mean, variance: self.variance + other.variance }
    }
}

/// Waiting in M/M/c with `servers` of `service` seconds (Erlang C); infinite when overloaded. `scatter` is
/// the squared coefficient of variation of service, by Allen and Cunneen's factor.
fn wait(rate: f64, service: f64, servers: f64, scatter: f64) -> Moments {
    let offered = rate * service;
    if offered >= servers {
        return Moments { mean: f64::INFINITY, variance: f64::INFINITY };
    }
    if offered <= 0.0 || servers > 1e6 {
        return Moments { mean: 0.0, variance: 0.0 };
    }
    let mut blocked = 1.0;
    for k in 1..=servers as u32 {
        blocked = offered * blocked / (f64::from(k) + offered * blocked);
    }
    let busy = offered / servers;
    let waits = blocked / (1.0 - busy * (1.0 - blocked));
    let each = service / (servers - offered) * (1.0 + scatter) / 2.0;
    Moments { mean: waits * each, variance: waits * (2.0 - waits) * each * each }
}

/// Waiting of one of a page's requests before a gate that requests pass at these rates, and that is closed
/// for so many seconds after each. A light load meets M/G/1 (Pollaczek, Khinchine); under a heavy one the
/// requests of pages take turns, which is processor sharing (Kleinrock 1967), and wait twice as long, with a
/// memoryless spread.
fn wait_at_gate(load: [(f64, f64); 2]) -> Moments {
    let moment = |n: i32| load.iter().map(|(rate, gate)| rate * gate.powi(n)).sum::<f64>();
    let busy = moment(1);
    if busy >= 1.0 {
        return Moments { mean: f64::INFINITY, variance: f64::INFINITY };
    }
    let mean = moment(2) * (1.0 + busy) / (2.0 * (1.0 - busy));
    Moments { mean, variance: mean * mean + moment(3) / (3.0 * (1.0 - busy)) }
}

/// P(a gamma variable of these moments exceeds `t`), by Wilson and Hilferty's cube root (1931).
fn exceeds(t: f64, of: Moments) -> f64 {
    if of.mean.is_infinite() {
        return 1.0;
    }
    if t <= 0.0 {
        return 1.0;
    }
    if of.variance <= 1e-6 * of.mean * of.mean {
        return f64::from(u8::from(t < of.mean));
    }
    let shape = of.mean * of.mean / of.variance;
    let spread = 1.0 / (9.0 * shape);
    1.0 - normal(((t / of.mean).cbrt() - 1.0 + spread) / spread.sqrt())
}

/// The residence in seconds that a share `quantile` of operations stays within when `rate` arrive per second;
/// infinite when a station cannot keep up.
///
/// Moments: processors as M/M/c; each of a page's requests waits as in M/D/1 before the gate and as in M/M/c
/// behind it; waits of one page resemble one another as far as the queue remembers (relaxation time of M/M/1,
/// Morse 1955). Their sum is taken for a gamma variable. How far that is from discrete events is in the
/// tests. An operation that waits for its journal waits for the flush under way, if there is one, and for its
/// own: group commit.
pub fn open_percentile(quantile: f64, rate: f64, work: &Work, cores: f64, disk: &Limits) -> f64 {
    let cpu = work.cpu_all();
    let servers = cores.ceil().max(1.0);
    let slow = servers / cores;
    let in_line = wait(rate, cpu * slow, servers, 1.0);
    let computed = |own: f64| {
        let own = own * slow;
        Moments { mean: in_line.mean + own, variance: in_line.variance + own * own }
    };
    let share = work.disk_share();
    let (asked, written) = (rate * work.reads(), rate * work.writes.requests(rate, disk.flush()));
    // Behind the gate requests of pages take turns too, so that constant service waits as a memoryless one.
    let behind = |written: f64| {
        let served = (asked * disk.service + written * disk.write_service) / (asked + written).max(1e-300);
        let busy = ((asked + written) * served / f64::from(disk.servers)).min(1.0);
        wait(asked + written, served, f64::from(disk.servers), busy)
    };
    let gate = |written: f64| wait_at_gate([(asked, disk.gate), (written, disk.write_gate)]);
    let alone = |written: f64| wait_at_gate([(written, disk.write_alone), (0.0, 0.0)]);
    // Of a journal one write is under way at a time: it waits for what others ask.
    let others = rate * work.writes.background;
    let before_journal = gate(others).plus(alone(others)).plus(behind(others));
    let (gate, alone, behind) = (gate(written), alone(written), behind(written));
    if [in_line.mean, gate.mean, behind.mean, alone.mean].iter().any(|mean| mean.is_infinite()) {
        return f64::INFINITY;
    }
    let light = computed(work.cpu + (work.misses - share).max(0.0) * work.cpu_miss);
    // Of an operation that goes there, which may miss more than one page.
    let k = if share > 0.0 { work.reads() / share } else { work.reads_per_miss };
    // A gate lets the first through at once, and the next of the same page when its interval is over.
    let fixed = k * disk.service + (k - 1.0).max(0.0) * (disk.gate - disk.service).max(0.0);
    let visit = gate.mean + behind.mean + disk.gate.max(disk.service);
    let busy = rate * disk.busy(work, rate);
    let remembers = disk.gate.max(disk.service / f64::from(disk.servers)) / (1.0 - busy.sqrt()).powi(2);
    let alike = if remembers > 0.0 { (-visit / remembers).exp() } else { 0.0 };
    let own = computed(work.cpu + work.misses.max(1.0) * work.cpu_miss + k * work.cpu_read);
    let heavy = Moments {
        mean: k * (gate.mean + behind.mean) + own.mean,
        variance: k * (gate.variance + behind.variance) * (1.0 + (k - 1.0).max(0.0) * alike) + own.variance,
    };
    let durable = work.writes.durable;
    // It comes while another flush is under way, or is alone.
    let flush = before_journal.mean + disk.flush();
    let under_way = (rate * durable * flush).min(1.0);
    let journal = before_journal.plus(Moments {
        mean: under_way * (flush / 2.0 + disk.flush() - disk.durable),
        variance: under_way * flush * flush / 12.0,
    });
    // Each way through the node: its share, what it takes at least, and what else.
    let through = [
        ((1.0 - share) * (1.0 - durable), 0.0, light),
        (share * (1.0 - durable), fixed, heavy),
        ((1.0 - share) * durable, disk.durable, light.plus(journal)),
        (share * durable, fixed + disk.durable, heavy.plus(journal)),
    ];
    let taken = through.iter().filter(|(share, ..)| *share > 0.0);
    let above = |t: f64| taken.clone().map(|(share, least, of)| share * exceeds(t - least, *of)).sum::<f64>();
    // No share of more than 1 − q lies further above the mean (Cantelli 1928), of any part and so of all.
    let reach = (quantile / (1.0 - quantile)).sqrt();
    let at_most = |(_, least, of): &(f64, f64, Moments)| least + of.mean + of.variance.sqrt() * reach;
    let furthest = taken.clone().map(at_most).fold(0.0, f64::max);
    let (mut low, mut high) = (1e-7f64, furthest.clamp(1e-6, 1e4));
    while high > low * (1.0 + PRECISION) {
        let middle = (low * high).sqrt();
        if above(middle) > 1.0 - quantile {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

/// How exactly a percentile is computed, as a share of it: its moments are approximations, and far worse.
const PRECISION: f64 = 1e-3;

/// How operations come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// A number of clients, each with its next operation when the last one ended.
    Closed(u32),
    /// Operations per second, memoryless, whatever becomes of the others.
    Open(f64),
}

/// What discrete events gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulated {
    /// Operations ended per second.
    pub throughput: f64,
    /// Mean residence in seconds.
    pub mean: f64,
    /// 99th percentile of the residence in seconds.
    pub p99: f64,
}

impl Simulated {
    /// Of the residences of so many operations in `span`, all in nanoseconds.
    fn of(mut residences: Vec<u64>, operations: u32, span: u64) -> Simulated {
        let mean = residences.iter().sum::<u64>() as f64 / residences.len().max(1) as f64 / 1e9;
        let rank = ((residences.len() as f64 * 0.99) as usize).min(residences.len().saturating_sub(1));
        let p99 = match residences.is_empty() {
            true => f64::NAN,
            false => *residences.select_nth_unstable(rank).1 as f64 / 1e9,
        };
        Simulated { throughput: f64::from(operations) / (span as f64 / 1e9), mean, p99 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    Answered(u32),
    Computed(u32),
    Flushed,
    Ended(u32),
}

struct Operation {
    began: u64,
    reads: u32,
    cpu: u64,
}

impl Operation {
    /// One that begins now: what it misses, and how long it computes.
    fn of(now: u64, work: &Work, random: &mut Random) -> Operation {
        let missed = whole(work.misses, random);
        let from_disk = (0..missed).filter(|_| random.unit() < work.to_disk).count();
        let reads = f64::from(whole(work.reads_per_miss, random)) * from_disk as f64;
        let mut cpu = random.exponential(work.cpu) + reads * work.cpu_read;
        for _ in 0..missed {
            cpu += random.exponential(work.cpu_miss);
        }
        Operation { began: now, reads: reads as u32, cpu: ns(cpu) }
    }
}

/// A whole number whose mean is `of`.
fn whole(of: f64, random: &mut Random) -> u32 {
    of.floor() as u32 + u32::from(random.unit() < of.fract())
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// When a request that arrives then is answered.
fn served(model: &mut Model, arrival: Tick, kind: Kind, size: Bytes) -> Tick {
    let due = model.submit(arrival, kind, size);
    model.complete(arrival, due, kind, size);
    due
}

/// The same node by discrete events: `operations` after a tenth that does not count. Reads come first, one
/// after another through [`Model`]; then processors take memoryless times, first come, first served; then
/// an operation that waits for its journal is flushed with the first flush that begins after it; and when it
/// ends, what else is written goes to the disk.
pub fn simulate(load: Load, work: &Work, cores: u32, disk: &Spec, operations: u32, seed: u64) -> Simulated {
    let mut random = Random::new(seed, 77);
    let mut model = Model::new(Spec { burst: None, ..disk.at_its_busiest() }, seed);
    let clients = match load {
        Load::Closed(clients) => clients,
        Load::Open(_) => 1,
    };
    let mut events: BinaryHeap<_> = (0..clients).map(|n| Reverse((0u64, n, Event::Arrives))).collect();
    let (mut running, mut free): (Vec<Operation>, Vec<u32>) = (Vec::new(), Vec::new());
    let (mut idle, mut line) = (cores, VecDeque::new());
    let (mut order, mut ended, mut began_counting) = (clients, 0u32, 0u64);
    let skipped = operations / 10;
    let mut residences: Vec<u64> = Vec::with_capacity(operations as usize);
    let Writes { background, size, durable, .. } = work.writes;
    // Whom the flush under way is for, and who waits for the next one.
    let (mut flushing, mut waiting): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    while ended < operations + skipped {
        let Some(Reverse((now, _, event))) = events.pop() else { break };
        let mut push = |at: u64, event: Event| {
            order += 1;
            events.push(Reverse((at, order, event)));
        };
        let id = match event {
            Event::Arrives => {
                if let Load::Open(rate) = load {
                    push(now + ns(random.exponential(1.0 / rate)), Event::Arrives);
                }
                let operation = Operation::of(now, work, &mut random);
                match free.pop() {
                    Some(id) => {
                        running[id as usize] = operation;
                        id
                    }
                    None => {
                        running.push(operation);
                        running.len() as u32 - 1
                    }
                }
            }
            Event::Answered(id) => id,
            Event::Computed(id) => {
                idle += 1;
                if let Some(next) = line.pop_front() {
                    idle -= 1;
                    let next: u32 = next;
                    push(now + running[next as usize].cpu, Event::Computed(next));
                }
                if durable > 0.0 && random.unit() < durable {
                    waiting.push(id);
                    if flushing.is_empty() && waiting.len() == 1 {
                        push(now, Event::Flushed);
                    }
                } else {
                    push(now, Event::Ended(id));
                }
                continue;
            }
            Event::Flushed => {
                flushing.drain(..).for_each(|id| push(now, Event::Ended(id)));
                flushing.append(&mut waiting);
                if !flushing.is_empty() {
                    let written = served(&mut model, Tick(now), Kind::Write, size);
                    push(served(&mut model, written, Kind::Flush, Bytes(0)).0, Event::Flushed);
                }
                continue;
            }
            Event::Ended(id) => {
                let written = if background > 0.0 { whole(background, &mut random) } else { 0 };
                for _ in 0..written {
                    served(&mut model, Tick(now), Kind::Write, size);
                }
                ended += 1;
                if ended == skipped {
                    began_counting = now;
                } else if ended > skipped {
                    residences.push(now - running[id as usize].began);
                }
                free.push(id);
                if matches!(load, Load::Closed(_)) {
                    push(now, Event::Arrives);
                }
                if ended == operations + skipped {
                    began_counting = now - began_counting;
                }
                continue;
            }
        };
        let operation = &mut running[id as usize];
        if operation.reads > 0 {
            operation.reads -= 1;
            push(served(&mut model, Tick(now), Kind::Read, work.request).0, Event::Answered(id));
        } else if idle > 0 {
            idle -= 1;
            push(now + operation.cpu, Event::Computed(id));
        } else {
            line.push_back(id);
        }
    }
    Simulated::of(residences, operations, began_counting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, wanted: f64, most: f64) {
        assert!((got / wanted - 1.0).abs() < most, "{got} instead of {wanted}");
    }

    const CPU_ONLY: Work = Work {
        cpu: 1e-3,
        cpu_miss: 0.0,
        cpu_read: 0.0,
        misses: 0.0,
        to_disk: 0.0,
        reads_per_miss: 0.0,
        request: READ,
        writes: Writes::NONE,
    };

    fn none() -> Limits {
        Limits::of(&Spec::default(), READ, READ)
    }

    /// M clients with think time Z and a single server: Erlang's formula with B of the machine repairman
    /// (Lazowska et al. 1984, ch. 6).
    #[test]
    fn mean_values_are_those_of_the_machine_repairman() {
        for (clients, think, service) in [(1u32, 5.0, 1.0), (4, 3.0, 1.0), (20, 10.0, 1.0)] {
            // P(n broken) ∝ M! ÷ (M − n)! (service ÷ think)^n.
            let mut weights = vec![1.0];
            for n in 1..=clients {
                weights.push(weights[n as usize - 1] * f64::from(clients - n + 1) * service / think);
            }
            let busy = 1.0 - weights[0] / weights.iter().sum::<f64>();
            close(
                closed_throughput(clients, think, &[Station { demand: service, servers: 1 }]),
                busy / service,
                1e-9,
            );
        }
        // Balanced stations: X = N ÷ (D (N + K − 1)).
        let station = Station { demand: 2.0, servers: 1 };
        close(closed_throughput(7, 0.0, &[station; 3]), 7.0 / (2.0 * 9.0), 1e-9);
        // As many servers as clients wait for nobody.
        close(closed_throughput(4, 1.0, &[Station { demand: 1.0, servers: 4 }]), 2.0, 1e-9);
    }

    /// M/M/1: residence is memoryless with mean 1 ÷ (μ − λ), so p99 = ln 100 × that.
    #[test]
    fn discrete_events_and_moments_give_m_m_1() {
        let (rate, wanted) = (500.0, 100f64.ln() / 500.0);
        let events = simulate(Load::Open(rate), &CPU_ONLY, 1, &Spec::default(), 400_000, 1);
        close(events.mean, 1.0 / 500.0, 0.03);
        close(events.p99, wanted, 0.05);
        close(open_percentile(0.99, rate, &CPU_ONLY, 1.0, &none()), wanted, 0.12);
        assert!(open_percentile(0.99, 1000.0, &CPU_ONLY, 1.0, &none()).is_infinite());
    }

    /// M/D/1: mean wait ρ D ÷ 2 (1 − ρ). What passes the gate does not wait for its own interval.
    #[test]
    fn a_gate_under_an_open_load_is_m_d_1() {
        let disk: Spec = "iops=1000".parse().unwrap();
        let work = Work { cpu: 1e-9, misses: 1.0, to_disk: 1.0, reads_per_miss: 1.0, ..CPU_ONLY };
        let events = simulate(Load::Open(700.0), &work, 4, &disk, 300_000, 2);
        close(events.mean, 0.7e-3 / (2.0 * 0.3), 0.03);
    }

    /// Both ways on the study's node, from in cache to on the disk.
    #[test]
    fn mean_values_agree_with_discrete_events() {
        for (misses, to_disk) in [(0.0, 0.0), (0.28, 0.0), (0.46, 0.06), (0.57, 0.3)] {
            for shape in ["iops=5000", "iops=600,latency=7ms", "latency=0.2ms,parallel=4"] {
                let disk: Spec = shape.parse().unwrap();
                let work = Work {
                    cpu: 52.55e-6,
                    cpu_miss: 26.7e-6,
                    misses,
                    to_disk,
                    reads_per_miss: 7.25,
                    ..CPU_ONLY
                };
                let events = simulate(Load::Closed(16), &work, 4, &disk, 40_000, 3);
                close(throughput(16, &work, 4.0, &Limits::of(&disk, READ, READ)), events.throughput, 0.06);
            }
        }
    }

    /// A load that writes, some of whose operations wait for their journal: by moments, means and events.
    #[test]
    fn writes_and_commits_agree_with_discrete_events() {
        let mut worst = (0.0f64, 0.0f64);
        for (durable, background, to_disk) in [(1.0, 0.5, 0.0), (0.3, 0.7, 0.2), (0.0, 2.0, 0.3)] {
            for shape in
                ["iops=3000,latency=1ms,flush_latency=2ms", "latency=0.2ms,parallel=8,write_iops=4000"]
            {
                let disk: Spec = shape.parse().unwrap();
                let writes = Writes { background, journal: durable, size: READ, durable };
                let work =
                    Work { cpu: 200e-6, misses: 0.5, to_disk, reads_per_miss: 1.0, writes, ..CPU_ONLY };
                let limits = Limits::of(&disk, READ, READ);
                let most = (4.0 / work.cpu_all()).min(limits.keeps_up(&work));
                for busy in [0.3, 0.6] {
                    let form = open_percentile(0.99, busy * most, &work, 4.0, &limits);
                    let events = simulate(Load::Open(busy * most), &work, 4, &disk, 40_000, 4);
                    close(events.throughput, busy * most, 0.05);
                    worst.0 = worst.0.max((form / events.p99).ln().abs());
                }
                // Events write a journal once for all who wait for it, where means take the writes as given.
                if durable == 0.0 {
                    let events = simulate(Load::Closed(16), &work, 4, &disk, 20_000, 5);
                    let mean = throughput(16, &work, 4.0, &limits);
                    worst.1 = worst.1.max((mean / events.throughput).ln().abs());
                }
            }
        }
        assert!(worst.0 < 1.3 * OPEN_ERROR && worst.1 < 0.02, "{worst:?}");
    }

    /// Half of the operations wait for their journal: they share flushes as discrete events do, so the disk
    /// keeps up with many times what it could if each had its own.
    #[test]
    fn who_waits_for_a_journal_shares_its_flush() {
        for (shape, alone) in [("latency=1ms,parallel=1,flush_latency=6ms", 2000.0), ("iops=150", 300.0)] {
            let disk: Spec = shape.parse().unwrap();
            let writes = Writes { background: 0.001, journal: 0.5, size: READ, durable: 0.5 };
            let work = Work { misses: 0.0, writes, ..CPU_ONLY };
            let limits = Limits::of(&disk, READ, READ);
            let none =
                Work { writes: Writes { durable: 0.0, background: 0.501, journal: 0.0, ..writes }, ..work };
            close(limits.keeps_up(&none), alone, 0.05);
            let most = limits.keeps_up(&work);
            assert!(most > 10.0 * alone, "{most}");
            let rate = 3.0 * alone;
            let events = simulate(Load::Open(rate), &work, 16, &disk, 40_000, 4);
            close(events.throughput, rate, 0.05);
            let form = open_percentile(0.99, rate, &work, 16.0, &limits);
            assert!((form / events.p99).ln().abs() < 2.0 * OPEN_ERROR, "{form} and {}", events.p99);
        }
    }

    /// The bound on the error of [`open_percentile`] that `predict` spreads its answers by.
    #[test]
    fn matched_moments_agree_with_discrete_events() {
        let mut worst = 0.0f64;
        for (misses, to_disk) in [(0.3, 0.0), (0.3, 0.1), (0.5, 0.4)] {
            for shape in ["iops=3000,latency=1ms", "iops=20000,latency=0.2ms", "latency=0.2ms,parallel=4"] {
                let disk: Spec = shape.parse().unwrap();
                let work =
                    Work { cpu: 60e-6, cpu_miss: 25e-6, misses, to_disk, reads_per_miss: 7.0, ..CPU_ONLY };
                let reads = Limits::of(&disk, READ, READ);
                let most = (4.0 / work.cpu_all()).min(if work.reads() > 0.0 {
                    reads.most() / work.reads()
                } else {
                    f64::MAX
                });
                for busy in [0.2, 0.5, 0.8] {
                    let form = open_percentile(0.99, busy * most, &work, 4.0, &reads);
                    let events = simulate(Load::Open(busy * most), &work, 4, &disk, 60_000, 4);
                    let off = (form / events.p99).ln();
                    worst = worst.max(off.abs());
                }
            }
        }
        assert!(worst < OPEN_ERROR, "{worst}");
    }
}
