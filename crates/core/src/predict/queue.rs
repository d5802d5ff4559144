//! Queueing networks of one node: processors, and a disk behind its gate. Means by exact mean value analysis,
//! percentiles under an open load by matching moments, and both by discrete events on the same device model
//! that shapes the laboratory's disks.

use crate::device::{Kind, Model, Spec};
use crate::probability::normal;
use crate::units::{Bytes, Tick};
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

/// A disk's limits for single reads at random places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reads {
    /// Seconds between two that its gates let through; 0 without a gate.
    pub gate: f64,
    /// Seconds of service behind the gate.
    pub service: f64,
    /// How many are served at once; `u32::MAX` without a limit.
    pub servers: u32,
}

impl Reads {
    /// Of `disk`, its burst credits used up, when it is asked for `request` at a time.
    pub fn of(disk: &Spec, request: Bytes) -> Reads {
        let units = disk.units(request) as f64;
        let rates = [disk.iops, disk.read_iops].into_iter().flatten().map(|rate| units / rate.0);
        let pipes = [disk.bandwidth, disk.read_bandwidth].into_iter().flatten();
        let gate = rates.chain(pipes.map(|pipe| request.0 as f64 / pipe.0 as f64)).fold(0.0, f64::max);
        let spindle = disk.spindle.map_or(0.0, |spindle| spindle.mean_service(request).as_secs_f64());
        let service = disk.service(Kind::Read).as_secs_f64() + spindle;
        Reads { gate, service, servers: disk.servers().unwrap_or(u32::MAX) }
    }

    /// The most requests per second.
    pub fn most(&self) -> f64 {
        let served = f64::from(self.servers) / self.service;
        if self.gate > 0.0 { served.min(1.0 / self.gate) } else { served }
    }
}

/// Operations per second of `clients` in a closed loop on `cores` processors.
pub fn throughput(clients: u32, work: &Work, cores: f64, disk: &Reads) -> f64 {
    let reads = work.reads();
    // Part of a processor is a slower one.
    let servers = cores.ceil().max(1.0);
    let mut stations = vec![Station { demand: work.cpu_all() * servers / cores, servers: servers as u32 }];
    if disk.gate > 0.0 {
        stations.push(Station { demand: reads * disk.gate, servers: 1 });
    }
    let mut delay = 0.0;
    if disk.servers >= clients {
        delay = reads * disk.service;
    } else {
        stations.push(Station { demand: reads * disk.service, servers: disk.servers });
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

/// Waiting of one of a page's requests before a gate that lets one through every `gate` seconds. A light load
/// meets M/D/1 (Pollaczek, Khinchine); under a heavy one the requests of pages take turns, which is processor
/// sharing (Kleinrock 1967), and wait twice as long, with a memoryless spread.
fn wait_at_gate(rate: f64, gate: f64) -> Moments {
    let busy = rate * gate;
    if busy >= 1.0 {
        return Moments { mean: f64::INFINITY, variance: f64::INFINITY };
    }
    let mean = busy * gate * (1.0 + busy) / (2.0 * (1.0 - busy));
    Moments { mean, variance: mean * mean + rate * gate.powi(3) / (3.0 * (1.0 - busy)) }
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
/// tests.
pub fn open_percentile(quantile: f64, rate: f64, work: &Work, cores: f64, disk: &Reads) -> f64 {
    let cpu = work.cpu_all();
    let servers = cores.ceil().max(1.0);
    let slow = servers / cores;
    let in_line = wait(rate, cpu * slow, servers, 1.0);
    let computed = |own: f64| {
        let own = own * slow;
        Moments { mean: in_line.mean + own, variance: in_line.variance + own * own }
    };
    let share = work.disk_share();
    let asked = rate * work.reads();
    // Behind the gate requests of pages take turns too, so that constant service waits as a memoryless one.
    let behind_busy = (asked * disk.service / f64::from(disk.servers)).min(1.0);
    let behind = wait(asked, disk.service, f64::from(disk.servers), behind_busy);
    let gate = wait_at_gate(asked, disk.gate);
    if [in_line.mean, gate.mean, behind.mean].iter().any(|mean| mean.is_infinite()) {
        return f64::INFINITY;
    }
    let light = computed(work.cpu + (work.misses - share).max(0.0) * work.cpu_miss);
    // Of an operation that goes there, which may miss more than one page.
    let k = if share > 0.0 { work.reads() / share } else { work.reads_per_miss };
    // A gate lets the first through at once, and the next of the same page when its interval is over.
    let fixed = k * disk.service + (k - 1.0).max(0.0) * (disk.gate - disk.service).max(0.0);
    let visit = gate.mean + behind.mean + disk.gate.max(disk.service);
    let busy = asked * disk.gate.max(disk.service / f64::from(disk.servers));
    let remembers = disk.gate.max(disk.service / f64::from(disk.servers)) / (1.0 - busy.sqrt()).powi(2);
    let alike = if remembers > 0.0 { (-visit / remembers).exp() } else { 0.0 };
    let own = computed(work.cpu + work.misses.max(1.0) * work.cpu_miss + k * work.cpu_read);
    let heavy = Moments {
        mean: k * (gate.mean + behind.mean) + own.mean,
        variance: k * (gate.variance + behind.variance) * (1.0 + (k - 1.0).max(0.0) * alike) + own.variance,
    };
    let above = |t: f64| {
        let of_disk = if share > 0.0 { share * exceeds(t - fixed, heavy) } else { 0.0 };
        (1.0 - share) * exceeds(t, light) + of_disk
    };
    // No share of more than 1 − q lies further above the mean (Cantelli 1928), of either part and so of both.
    let reach = (quantile / (1.0 - quantile)).sqrt();
    let at_most = |of: Moments| of.mean + of.variance.sqrt() * reach;
    let (mut low, mut high) = (1e-7f64, at_most(light).max(fixed + at_most(heavy)).clamp(1e-6, 1e4));
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    Answered(u32),
    Computed(u32),
}

struct Operation {
    began: u64,
    reads: u32,
    cpu: u64,
}

/// The same node by discrete events: `operations` after a tenth that does not count. Reads come first, one
/// after another through [`Model`]; then processors take memoryless times, first come, first served.
pub fn simulate(load: Load, work: &Work, cores: u32, disk: &Spec, operations: u32, seed: u64) -> Simulated {
    let mut random = Random::new(seed, 77);
    let mut model = Model::new(Spec { burst: None, ..disk.clone() }, seed);
    let mut events: BinaryHeap<Reverse<(u64, u32, Event)>> = BinaryHeap::new();
    let mut running: Vec<Operation> = Vec::new();
    let mut free: Vec<u32> = Vec::new();
    let (mut idle, mut line) = (cores, VecDeque::new());
    let (mut order, mut ended, mut began_counting) = (0u32, 0u32, 0u64);
    let skipped = operations / 10;
    let mut residences: Vec<u64> = Vec::with_capacity(operations as usize);
    let ns = |seconds: f64| (seconds * 1e9).round() as u64;
    let clients = match load {
        Load::Closed(clients) => clients,
        Load::Open(_) => 1,
    };
    for _ in 0..clients {
        events.push(Reverse((0, order, Event::Arrives)));
        order += 1;
    }
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
                let whole =
                    |of: f64, random: &mut Random| of.floor() as u32 + u32::from(random.unit() < of.fract());
                let missed = whole(work.misses, &mut random);
                let from_disk = (0..missed).filter(|_| random.unit() < work.to_disk).count();
                let reads = f64::from(whole(work.reads_per_miss, &mut random)) * from_disk as f64;
                let mut cpu = random.exponential(work.cpu) + reads * work.cpu_read;
                for _ in 0..missed {
                    cpu += random.exponential(work.cpu_miss);
                }
                let operation = Operation { began: now, reads: reads as u32, cpu: ns(cpu) };
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
            let due = model.submit(Tick(now), Kind::Read, work.request);
            model.complete(Tick(now), due, Kind::Read, work.request);
            push(due.0, Event::Answered(id));
        } else if idle > 0 {
            idle -= 1;
            push(now + operation.cpu, Event::Computed(id));
        } else {
            line.push_back(id);
        }
    }
    let mean = residences.iter().sum::<u64>() as f64 / residences.len().max(1) as f64 / 1e9;
    let rank = ((residences.len() as f64 * 0.99) as usize).min(residences.len().saturating_sub(1));
    let p99 =
        if residences.is_empty() { f64::NAN } else { *residences.select_nth_unstable(rank).1 as f64 / 1e9 };
    Simulated { throughput: f64::from(operations) / (began_counting as f64 / 1e9), mean, p99 }
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
    };

    fn none() -> Reads {
        Reads::of(&Spec::default(), READ)
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
                close(throughput(16, &work, 4.0, &Reads::of(&disk, READ)), events.throughput, 0.06);
            }
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
                let reads = Reads::of(&disk, READ);
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
