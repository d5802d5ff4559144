//! Which of many candidates keeps a promise under a load, with what chance, and what limits the others.

use super::queue::{self, Limits};
use super::{Draw, Interval, Place, System};
use crate::device::{self, Kind, Spec, profiles};
use crate::experiment::Promise;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// A candidate holds from this chance on, and does not below one minus it.
pub const SURE: f64 = 0.9;
/// Nothing that is sold answers one read after another faster.
const FASTEST_IN_TURN: f64 = 1e6;
/// Nor that many at once.
const FASTEST: f64 = 5e7;

/// What can be had: every machine with every disk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Machines.
    pub machine: Vec<Machine>,
    /// Disks.
    pub disk: Vec<Disk>,
}

/// Memory and processors.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called; its memory and processors without a name.
    pub name: Option<String>,
    /// Of the database, page cache included.
    pub memory: Bytes,
    /// Processors.
    pub cores: f64,
    /// Of the memory, for the engine's cache; the measured share unless given.
    pub engine_cache: Option<Bytes>,
    /// In any currency.
    pub price_per_month: Option<f64>,
}

/// A disk in the language of `disk mount`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// What it is called; that of a profile of `disk profiles` unless `spec` says what it can do.
    pub name: String,
    /// Abilities: "iops=600,latency=7ms".
    pub spec: Option<Spec>,
    /// In the currency of the machines.
    pub price_per_month: Option<f64>,
}

impl Catalogue {
    /// From a file's text.
    ///
    /// # Errors
    /// A sentence with the line, where there is one.
    pub fn parse(text: &str) -> Result<Catalogue, String> {
        let mut catalogue: Catalogue = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
            let line = line.map_or(String::new(), |line| format!("line {line}: "));
            format!("{line}{}", error.message().lines().next().unwrap_or_default())
        })?;
        for disk in &mut catalogue.disk {
            let spec = match disk.spec.take() {
                Some(spec) => spec,
                None => {
                    device::profile(&disk.name).map_err(|e| format!("{e}; or give its spec"))?.spec.clone()
                }
            };
            check_physics(&disk.name, &spec)?;
            disk.spec = Some(spec);
        }
        let prices = catalogue.machine.iter().map(|m| m.price_per_month);
        if prices
            .chain(catalogue.disk.iter().map(|d| d.price_per_month))
            .flatten()
            .any(|price| price < 0.0 || !price.is_finite())
        {
            return Err("a price per month is a number from 0 on".into());
        }
        for machine in &catalogue.machine {
            if machine.memory.0 == 0 || !(machine.cores > 0.0 && machine.cores <= 4096.0) {
                return Err(format!("{}: a machine has memory, and 0.1 to 4096 cores", machine.label()));
            }
            if machine.engine_cache.is_some_and(|cache| cache >= machine.memory) {
                return Err(format!("{}: engine_cache must be less than memory", machine.label()));
            }
        }
        Ok(catalogue)
    }

    /// The disks that `disk profiles` knows, with memory from half to eight times today's `memory` in
    /// bytes and today's processors. No prices.
    pub fn built_in(memory: f64, cores: f64) -> Catalogue {
        let machine = |times: f64| Machine {
            name: None,
            memory: Bytes((memory * times) as u64),
            cores,
            engine_cache: None,
            price_per_month: None,
        };
        let disk = |profile: &device::Profile| Disk {
            name: profile.name.clone(),
            spec: Some(profile.spec.clone()),
            price_per_month: None,
        };
        Catalogue {
            machine: [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0].map(machine).into(),
            disk: profiles().iter().map(disk).collect(),
        }
    }
}

impl Machine {
    /// What it is called.
    pub fn label(&self) -> String {
        let own = || format!("{}, {} cores", self.memory.rounded(), self.cores);
        self.name.clone().unwrap_or_else(own)
    }

    /// Today's place with this machine's memory and processors instead. The engine's cache is today's share
    /// of the memory unless the catalogue gives one.
    pub fn in_place_of(&self, today: &Place) -> Place {
        let memory = self.memory.0 as f64;
        let share = today.engine_cache / today.memory;
        Place {
            memory,
            engine_cache: self.engine_cache.map_or(memory * share, |cache| cache.0 as f64),
            cores: self.cores,
            ..today.clone()
        }
    }
}

fn check_physics(name: &str, spec: &Spec) -> Result<(), String> {
    spec.check().map_err(|error| format!("disk {name}: {error}"))?;
    modelled(spec).map_err(|error| format!("disk {name}: {error}"))?;
    let most = |clients| spec.ceiling(Kind::Read, queue::READ, clients).map_or(f64::INFINITY, |rate| rate.0);
    if most(1) > FASTEST_IN_TURN || most(4096) > FASTEST {
        return Err(format!(
            "disk {name} (`{spec}`) is faster than physics: no disk answers a read in less than a microsecond, or more \
             than {FASTEST:.0} of them per second; give it a latency and a limit"
        ));
    }
    Ok(())
}

/// Whether this module can say what a disk does under a load. Several in RAID 0 it cannot: a page's requests
/// go to different ones, and closed forms were off by half.
pub fn modelled(spec: &Spec) -> Result<(), String> {
    match spec.disks() {
        1 => Ok(()),
        _ => Err("several disks in RAID 0 have no model here; `tipover disk bench --clients` says how many it takes".into()),
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// What must hold.
    pub promise: Promise,
    /// Operations per second.
    pub load: f64,
}

/// Whether a promise holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// With a chance of [`SURE`] at least.
    Holds,
    /// With a chance of 1 − [`SURE`] at most.
    DoesNotHold,
    /// Something between: what is not known decides.
    CannotTell,
}

/// What sets the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Processors.
    Processors,
    /// Requests per second of the disk.
    DiskRequests,
    /// A page takes several requests, one after another, or a commit a flush: their latency alone.
    DiskLatency,
    /// Memory: next to nothing is left for the page cache, which programs are read through too.
    Memory,
}

/// As they are counted.
const BOTTLENECKS: [Bottleneck; 4] =
    [Bottleneck::Processors, Bottleneck::DiskRequests, Bottleneck::DiskLatency, Bottleneck::Memory];

/// A candidate, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Memory and processors in words.
    pub machine: String,
    /// The disk.
    pub disk: String,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// Of machine and disk together; absent where one has none.
    pub price_per_month: Option<f64>,
    /// Whether the promise holds.
    pub answer: Outlook,
    /// The chance that it does.
    pub chance: f64,
    /// Operations per second at which a station is full.
    pub most_ops_per_s: Interval,
    /// The promised percentile under the load, in seconds; infinite where the load overruns a station.
    pub percentile_s: Interval,
    /// Share of look-ups that the engine's cache answers.
    pub engine_hit: Interval,
    /// Share of the rest that the page cache answers.
    pub page_cache_hit: Interval,
    /// Share of what the disk can do that the load takes.
    pub device_load: Interval,
    /// What is used up first.
    pub limit: Bottleneck,
    /// Seconds until the page cache, or of an engine that reads past it the engine's, is filled through
    /// this disk, and 4.6 times that until random reads have filled it to 1 % (coupon collector).
    pub warm_up_s: f64,
}

/// Judges every machine with every disk, with `records` in it. Hit ratios are computed once for a machine.
pub fn judge(
    system: &System,
    draws: &[Draw],
    today: &Place,
    catalogue: &Catalogue,
    question: &Question,
) -> Vec<Judged> {
    let mut judged = Vec::with_capacity(catalogue.machine.len() * catalogue.disk.len());
    for machine in &catalogue.machine {
        let memory = machine.memory.0 as f64;
        let place = machine.in_place_of(today);
        let hits: Vec<_> = draws.iter().map(|draw| system.hits(draw, &place)).collect();
        let engine_hit = Interval::of(hits.iter().map(|h| h.engine).collect());
        let page_cache_hit = Interval::of(hits.iter().map(|h| h.page_cache).collect());
        let filled = match system.engine.is_buffered {
            true => (memory - place.engine_cache).max(0.0),
            false => place.engine_cache,
        };
        for disk in &catalogue.disk {
            let spec = disk.spec.clone().unwrap_or_default();
            let disk_limits = Limits::of(&spec, system.request, system.write);
            let (mut held, mut parts): (u32, [Vec<f64>; 3]) = (0, Default::default());
            let mut limits = [0u32; BOTTLENECKS.len()];
            for (draw, hits) in draws.iter().zip(&hits) {
                let work = system.work(draw, *hits, draw.daemon_share);
                let cores = place.cores * draw.efficiency;
                let processors = cores / work.cpu_all();
                let device = disk_limits.keeps_up(&work);
                let rate = question.load / draw.throughput_error;
                let beyond = question.promise.bad_ratio();
                let percentile = queue::open_percentile(1.0 - beyond, rate, &work, cores, &disk_limits)
                    * draw.open_error
                    * draw.p99_against_queueing(&work, beyond);
                let starved = system.is_starved(draw, &place);
                held += u32::from(!starved && percentile <= question.promise.limit.as_secs_f64());
                let limit = question.promise.limit.as_secs_f64();
                let bound = (work.reads_per_miss * disk_limits.service > limit && work.disk_share() > beyond)
                    || (disk_limits.durable > limit && work.writes.durable > beyond);
                limits[match (processors < device, bound) {
                    _ if starved => 3,
                    (_, true) => 2,
                    (true, _) => 0,
                    _ => 1,
                }] += 1;
                let device_load = rate * disk_limits.busy(&work, rate);
                let found = [processors.min(device) * draw.throughput_error, percentile, device_load];
                parts.iter_mut().zip(found).for_each(|(part, x)| part.push(x));
            }
            let chance = f64::from(held) / draws.len() as f64;
            let [most, percentile, device_load] = parts.map(Interval::of);
            let most_often = (0..limits.len()).max_by_key(|n| limits[*n]).unwrap_or(0);
            judged.push(Judged {
                machine: machine.label(),
                disk: disk.name.clone(),
                memory_bytes: memory,
                price_per_month: machine.price_per_month.zip(disk.price_per_month).map(|(m, d)| m + d),
                answer: match chance {
                    c if c >= SURE => Outlook::Holds,
                    c if c <= 1.0 - SURE => Outlook::DoesNotHold,
                    _ => Outlook::CannotTell,
                },
                chance,
                most_ops_per_s: most,
                percentile_s: percentile,
                engine_hit,
                page_cache_hit,
                device_load,
                limit: BOTTLENECKS[most_often],
                warm_up_s: filled / system.request.0 as f64 / disk_limits.most(),
            });
        }
    }
    judged
}

/// The cheapest that holds; without prices the one with the least memory, and of those the disk that the load
/// fills most.
pub fn best(judged: &[Judged]) -> Option<&Judged> {
    let priced = are_priced(judged.iter().map(|one| one.price_per_month));
    let holds = judged.iter().filter(|one| one.answer == Outlook::Holds);
    holds.min_by(|a, b| {
        if priced {
            return a.price_per_month.partial_cmp(&b.price_per_month).unwrap_or(std::cmp::Ordering::Equal);
        }
        a.memory_bytes.total_cmp(&b.memory_bytes).then(b.device_load.middle.total_cmp(&a.device_load.middle))
    })
}

/// Whether candidates can be compared by price: each has one.
pub fn are_priced(prices: impl IntoIterator<Item = Option<f64>>) -> bool {
    prices.into_iter().all(|price| price.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::cache::Hits;
    use crate::predict::cache::Popularity;
    use crate::predict::{Engine, HIT_ERROR, Range};

    const MIB: f64 = 1_048_576.0;

    fn system() -> System {
        System {
            sessions: 16,
            popularity: vec![Popularity::uniform()],
            engine: Engine::WIREDTIGER,
            record_bytes: Range::new(1330.0, 1330.0),
            file_ratio: Range::new(0.98, 1.04),
            engine_share: Range::new(0.72, 0.8),
            engine_reserve: Range::new(0.0, 0.0),
            other_memory: Range::new(400.0 * MIB, 500.0 * MIB),
            hit_errors: Hits { engine: HIT_ERROR, page_cache: HIT_ERROR },
            request: queue::READ,
            reads_per_miss: Range::new(7.0, 8.0),
            cpu_client: Range::new(0.0, 0.0),
            cpu: Range::new(52e-6, 58e-6),
            cpu_miss: Range::new(22e-6, 30e-6),
            cpu_read: Range::new(0.0, 0.0),
            cpu_daemon: Range::new(0.0, 5e-6),
            p99_at_processors: Range::new(1.0, 1.0),
            p99_at_disk: Range::new(1.0, 1.0),
            efficiency: Range::new(0.9, 1.0),
            known_at: None,
            background: Range::new(0.0, 0.0),
            background_per_miss: Range::new(0.0, 0.0),
            journal: Range::new(0.0, 0.0),
            write: queue::READ,
            durable: Range::new(0.0, 0.0),
            disturbance: 0.0,
        }
    }

    fn today() -> Place {
        Place {
            memory: 8192.0 * MIB,
            engine_cache: 3584.0 * MIB,
            cores: 4.0,
            records: 5e6,
            disk: "iops=600,latency=7ms".parse().unwrap(),
        }
    }

    fn question(load: f64) -> Question {
        Question { promise: "p99 <= 20 ms".parse().unwrap(), load }
    }

    const CATALOGUE: &str = r#"
machine = [
    { memory = "4 GiB", cores = 4, price_per_month = 40 },
    { memory = "32 GiB", cores = 4, price_per_month = 200 },
]
[[disk]]
name = "slow"
spec = "iops=150,latency=7ms"
price_per_month = 5
[[disk]]
name = "fast"
spec = "iops=100000,latency=0.1ms,parallel=64"
price_per_month = 100
"#;

    #[test]
    fn memory_or_a_fast_disk_keep_the_promise_and_the_cheaper_one_wins() {
        let (system, catalogue) = (system(), Catalogue::parse(CATALOGUE).unwrap());
        let draws = system.draws(120, &[], 1);
        let judged = judge(&system, &draws, &today(), &catalogue, &question(8000.0));
        let at = |memory: &str, disk: &str| {
            judged.iter().find(|j| j.machine.starts_with(memory) && j.disk == disk).unwrap()
        };
        assert_eq!(at("4.00 GiB", "slow").answer, Outlook::DoesNotHold, "{:?}", at("4.00 GiB", "slow"));
        assert_ne!(at("4.00 GiB", "slow").limit, Bottleneck::Processors);
        assert_eq!(at("4.00 GiB", "fast").answer, Outlook::Holds, "{:?}", at("4.00 GiB", "fast"));
        assert_eq!(at("32.0 GiB", "slow").answer, Outlook::Holds, "all in memory");
        let best = best(&judged).unwrap();
        assert_eq!((best.disk.as_str(), best.price_per_month), ("fast", Some(140.0)));
        // More than four processors can do.
        let judged = super::judge(&system, &draws, &today(), &catalogue, &question(200_000.0));
        assert!(judged.iter().all(|j| j.answer == Outlook::DoesNotHold) && super::best(&judged).is_none());
    }

    /// A machine whose memory the server itself takes up: on the fastest disk it would read its own program
    /// again and again, or be killed.
    #[test]
    fn a_machine_without_room_for_the_page_cache_holds_nothing() {
        let system = System { other_memory: Range::new(900.0 * MIB, 1000.0 * MIB), ..system() };
        let catalogue = Catalogue::parse(CATALOGUE).unwrap();
        let draws = system.draws(60, &[], 1);
        let with = |engine_cache: f64| {
            let machine =
                Machine { engine_cache: Some(Bytes(engine_cache as u64)), ..catalogue.machine[0].clone() };
            let one = Catalogue { machine: vec![machine], disk: catalogue.disk.clone() };
            judge(&system, &draws, &today(), &one, &question(800.0)).remove(1)
        };
        let (fits, starved) = (with(1792.0 * MIB), with(3900.0 * MIB));
        assert_eq!((fits.answer, starved.answer), (Outlook::Holds, Outlook::DoesNotHold), "{starved:?}");
        assert_eq!((fits.limit == Bottleneck::Memory, starved.limit), (false, Bottleneck::Memory));
    }

    #[test]
    fn a_catalogue_is_refused_in_words() {
        let wrong = |from: &str, to: &str| Catalogue::parse(&CATALOGUE.replace(from, to)).unwrap_err();
        assert!(
            wrong("iops=100000,latency=0.1ms,parallel=64", "latency=1ns").contains("faster than physics")
        );
        assert!(wrong("name = \"slow\"", "nam = \"slow\"").starts_with("line 7: unknown field `nam`"));
        assert!(wrong("spec = \"iops=150,latency=7ms\"", "").contains("there is no disk profile \"slow\""));
        assert!(
            wrong("iops=150,latency=7ms", "iops=150,latency=7ms,disks=4").contains("RAID 0 have no model")
        );
        assert!(wrong("price_per_month = 5", "price_per_month = -5").contains("from 0 on"));
        assert!(wrong("cores = 4", "cores = 0").contains("0.1 to 4096"));
        assert!(wrong("cores = 4", "cores = 4, engine_cache = \"9 GiB\"").contains("less than memory"));
    }

    #[test]
    fn the_built_in_catalogue_obeys_its_own_rules_and_invents_no_price() {
        let catalogue = Catalogue::built_in(today().memory, today().cores);
        for disk in &catalogue.disk {
            check_physics(&disk.name, disk.spec.as_ref().unwrap()).unwrap();
            assert_eq!(disk.price_per_month, None);
        }
        let system = system();
        let judged = judge(&system, &system.draws(60, &[], 1), &today(), &catalogue, &question(2000.0));
        assert_eq!(judged.len(), catalogue.machine.len() * catalogue.disk.len());
        // More memory on the same disk never lowers the chance by more than a draw or two.
        for disk in &catalogue.disk {
            let chances: Vec<f64> = judged.iter().filter(|j| j.disk == disk.name).map(|j| j.chance).collect();
            assert!(chances.windows(2).all(|w| w[1] >= w[0] - 0.05), "{}: {chances:?}", disk.name);
        }
    }
}
