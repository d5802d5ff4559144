//! Watches a server that runs, at its load and only by asking, for a plan of what to buy: its own counters,
//! and what the kernel says of its processes, its device and its memory where it is on this machine.

use crate::clock::Clock;
use crate::interrupt::Interrupt;
use crate::probe::{Device, Probe as _, Processes};
use crate::trial::local;
use anyhow::{Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};
use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::metric::{Sample, name as metric};
use tipover_core::predict::Engine;
use tipover_core::study::evidence::Told;
use tipover_core::study::evidence::watched::{DeviceUse, Part, Watched};
use tipover_core::target::{Facts, Relation, Target};
use tipover_core::units::Bytes;
use tipover_lab::{Around, Cgroups};

/// The interval is read in so many parts.
const PARTS: u32 = 10;
/// Fewer pages that came into the cache do not say how large they are.
const LEAST_PAGES: f64 = 100.0;

/// What cannot be seen of the server's machine, and what the user can say instead.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unseen(pub String);

/// Watches the server of `spec` for `span`; also what could not be seen, in sentences.
///
/// # Errors
/// It cannot be asked, or what the user must say then was not said.
pub fn watch(
    spec: &Spec,
    span: Duration,
    told: &Told,
    interrupt: &Interrupt,
) -> Result<(Watched, Vec<String>)> {
    let target = tipover_targets::start(spec, Path::new("/nowhere"))?;
    let facts = target.facts()?;
    let server = Server::of(spec, &facts)?;
    let mut kernel = Kernel::of(spec);
    let memory = Memory::of(&kernel, told)?;
    let clock = Clock::start();
    let look = |kernel: &mut Kernel| -> Result<Look> { Look::at(target.as_ref(), kernel, &clock) };
    let (before, asked) = (look(&mut kernel)?, target.relations()?);
    let mut looks = vec![before];
    let begun = Instant::now();
    for part in 1..=PARTS {
        let until = begun + span * part / PARTS;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            interrupt.check()?;
            std::thread::sleep(left.min(Duration::from_millis(200)));
        }
        looks.push(look(&mut kernel)?);
    }
    let relations = grown(&asked, target.relations()?);
    let parts = looks.windows(2).map(|pair| pair[1].since(&pair[0], &server, told)).collect();
    let (first, last) = (&looks[0].target, &looks[looks.len() - 1].target);
    let used = memory.used(&kernel, &server, last.get(metric::ENGINE_CACHE_BYTES));
    // Of an engine whose pages are as large as they come.
    let mean = |bytes: &str, count: &str| {
        let count = last.growth(first, count).filter(|count| *count >= LEAST_PAGES && server.has_any_size)?;
        Some(Bytes((last.growth(first, bytes)? / count) as u64)).filter(|bytes| bytes.0 > 0)
    };
    let watched = Watched {
        system: server.system,
        operations: server.operations,
        page: mean(metric::ENGINE_CACHE_READ_BYTES, metric::ENGINE_PAGE_READS).unwrap_or(server.page),
        cache_bytes: server.cache_bytes,
        engine: Engine {
            is_buffered: server.engine.is_buffered && first.get(metric::ENGINE_DIRECT_IO) != Some(1.0),
            ..server.engine
        },
        file_page: mean(metric::ENGINE_FILE_READ_BYTES, metric::ENGINE_FILE_READS).unwrap_or(server.page),
        waits_for_journal: server.waits_for_journal,
        checkpointed: match last.growth(first, metric::ENGINE_CHECKPOINTS) {
            Some(grown) => grown > 0.0,
            // InnoDB writes pages all the time.
            None => true,
        },
        memory: memory.bytes,
        other_and_page_cache: used,
        cores: memory.cores,
        disk: told.disk.clone(),
        relations,
        parts,
    };
    Ok((watched, kernel.unseen))
}

/// What is particular to each kind of server.
struct Server {
    system: String,
    operations: &'static str,
    counted: &'static [&'static str],
    page: Bytes,
    cache_bytes: f64,
    engine: Engine,
    /// Whether a page is as large as what it holds.
    has_any_size: bool,
    waits_for_journal: bool,
    /// Whether its cache counts as shared memory.
    cache_is_shared: bool,
}

impl Server {
    fn of(spec: &Spec, facts: &Facts) -> Result<Server> {
        let text = |name: &str| facts.get(name).and_then(|fact| fact.as_str()).unwrap_or_default();
        let number = |name: &str| {
            let fact = facts.get(name);
            fact.and_then(|fact| fact.as_f64().or_else(|| fact.as_str()?.parse().ok()))
        };
        let system = text("system").split(" on ").next().unwrap_or_default().trim().to_string();
        Ok(match spec.target.kind {
            TargetKind::Postgres => Server {
                system,
                operations: "transactions",
                counted: &[metric::ENGINE_COMMITS, "engine_rollbacks"],
                page: Bytes(8192),
                cache_bytes: number("engine_cache_bytes").unwrap_or_default(),
                engine: Engine::PAGED,
                has_any_size: false,
                waits_for_journal: text("synchronous_commit") != "off" && text("fsync") != "off",
                cache_is_shared: true,
            },
            TargetKind::Mysql => Server {
                system,
                operations: "statements",
                counted: &["engine_queries"],
                page: Bytes(number("innodb_page_size").unwrap_or(16384.0) as u64),
                cache_bytes: number("innodb_buffer_pool_size").unwrap_or_default(),
                engine: Engine {
                    is_buffered: !text("innodb_flush_method").to_uppercase().starts_with("O_DIRECT"),
                    ..Engine::PAGED
                },
                has_any_size: false,
                waits_for_journal: text("innodb_flush_log_at_trx_commit") == "1",
                cache_is_shared: false,
            },
            TargetKind::Mongodb if text("storage_engine") == "wiredTiger" => Server {
                system: system.replace("'s wire protocol, version", ""),
                operations: "operations",
                counted: &["server_queries", "server_inserts", "server_updates", "server_deletes"],
                page: Bytes::kib(32),
                cache_bytes: number("engine_cache_bytes").unwrap_or_default(),
                engine: Engine::WIREDTIGER,
                has_any_size: true,
                // From 5.0 on a majority confirms, which means its journals.
                waits_for_journal: text("default_concerns").contains("majority"),
                cache_is_shared: false,
            },
            _ => bail!("of its server nobody knows how it keeps its pages"),
        })
    }
}

/// The server's process and device, where they can be seen.
struct Kernel {
    process: Option<u32>,
    processes: Option<Processes>,
    device: Option<Device>,
    unseen: Vec<String>,
}

impl Kernel {
    fn of(spec: &Spec) -> Kernel {
        let mut unseen = Vec::new();
        let process = match spec.target.address.as_ref() {
            Some(address) => local::process(address, spec.target.kind),
            None => Err("it has no address".into()),
        };
        let process =
            process.map_err(|why| unseen.push(format!("its processes, device and memory: {why}"))).ok();
        let mut see = |what: &str, why: String| unseen.push(format!("{what}: {why}"));
        let processes = process.and_then(|process| {
            Processes::of_tree(process).map_err(|error| see("its processes", error.to_string())).ok()
        });
        let device = process.and_then(|process| {
            let named =
                local::device(process).and_then(|name| Device::named(&name).map_err(|e| e.to_string()));
            named.map_err(|why| see("its device", why)).ok()
        });
        Kernel { process, processes, device, unseen }
    }
}

/// Everything at one moment.
struct Look {
    at: Instant,
    target: Sample,
    processes: Option<Sample>,
    device: Option<Sample>,
}

impl Look {
    fn at(target: &dyn Target, kernel: &mut Kernel, clock: &Clock) -> Result<Look> {
        let now = || clock.now();
        let at = Instant::now();
        Ok(Look {
            at,
            target: Sample { values: target.sample()?, ..Sample::default() },
            processes: kernel.processes.as_mut().map(|probe| probe.sample(&now)).transpose()?,
            device: kernel.device.as_mut().map(|probe| probe.sample(&now)).transpose()?,
        })
    }

    fn since(&self, earlier: &Look, server: &Server, told: &Told) -> Part {
        let grown = |name: &str| self.target.growth(&earlier.target, name);
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        let cpu = self.processes.as_ref().zip(earlier.processes.as_ref()).and_then(|(now, then)| {
            Some(
                (now.growth(then, "process_cpu_user_ns")? + now.growth(then, "process_cpu_system_ns")?) / 1e9,
            )
        });
        let read = self.processes.as_ref().zip(earlier.processes.as_ref());
        let read = read.and_then(|(now, then)| now.growth(then, metric::PROCESS_DEVICE_READ_BYTES));
        let device = self.device.as_ref().zip(earlier.device.as_ref()).map(|(now, then)| {
            let of = |name: &str| now.growth(then, name).unwrap_or(0.0);
            // Others may read from it too.
            let own = match (read, of(metric::DEVICE_READ_BYTES)) {
                (Some(own), all) if own > 0.0 && all > 0.0 => (own / all).min(1.0),
                _ => 1.0,
            };
            DeviceUse {
                reads: own * of(metric::DEVICE_READ_REQUESTS),
                read_bytes: own * of(metric::DEVICE_READ_BYTES),
                read_s: own * of("device_read_time_ms") / 1e3,
                writes: of(metric::DEVICE_WRITE_REQUESTS),
                write_bytes: of(metric::DEVICE_WRITE_BYTES),
                write_s: of("device_write_time_ms") / 1e3,
                flushes: of(metric::DEVICE_FLUSH_REQUESTS),
                flush_s: of("device_flush_time_ms") / 1e3,
            }
        });
        Part {
            seconds,
            operations: server.counted.iter().filter_map(|name| grown(name)).sum(),
            pages: grown(metric::ENGINE_PAGE_REQUESTS).unwrap_or(0.0),
            misses: grown(metric::ENGINE_PAGE_READS).unwrap_or(0.0),
            journal_bytes: grown(metric::ENGINE_JOURNAL_BYTES).unwrap_or(0.0),
            // MariaDB counts the flushes of all its files together.
            journal_syncs: grown(metric::ENGINE_JOURNAL_SYNCS)
                .or_else(|| grown("engine_file_syncs"))
                .unwrap_or(0.0),
            cpu: told.busy.map(|busy| busy * seconds).or(cpu),
            device,
        }
    }
}

/// The machine, or what the server may use of it.
struct Memory {
    bytes: f64,
    cores: f64,
    around: Option<Around>,
    is_told: bool,
}

impl Memory {
    fn of(kernel: &Kernel, told: &Told) -> Result<Memory> {
        let around = kernel.process.and_then(|process| Cgroups::around(process, Path::new("/")).ok());
        let here = kernel.process.and_then(|_| meminfo("MemTotal"));
        let limit =
            around.as_ref().and_then(|around| around.memory.as_ref()?.limit).map(|bytes| bytes as f64);
        let seen = here.map(|here| limit.map_or(here, |limit| limit.min(here)));
        let processors = std::thread::available_parallelism().map(|n| n.get() as f64).ok();
        let quota = around.as_ref().and_then(|around| around.cpus);
        let processors = kernel.process.and(processors).map(|all| quota.map_or(all, |quota| quota.min(all)));
        let (bytes, cores) = (told.memory.map(|bytes| bytes.0 as f64).or(seen), told.cores.or(processors));
        // Said before anybody waits for minutes.
        let has_cpu = told.busy.is_some() || kernel.processes.is_some();
        match (bytes, cores) {
            (Some(bytes), Some(cores)) if has_cpu => {
                Ok(Memory { bytes, cores, around, is_told: told.memory.is_some() })
            }
            _ => Err(Unseen(format!(
                "{}: say what its machine is: --memory, --cores, --busy (processors that the server keeps busy), and its \
                 disk, --profile or --spec",
                kernel.unseen.first().map_or("the server's machine cannot be seen", String::as_str)
            ))
            .into()),
        }
    }

    /// Bytes that are neither engine's cache, nor page cache, nor free; and the page cache.
    fn used(&self, kernel: &Kernel, server: &Server, held: Option<f64>) -> Option<(f64, f64)> {
        kernel.process.filter(|_| !self.is_told)?;
        let cache =
            |shared: f64| if server.cache_is_shared { shared } else { held.unwrap_or(server.cache_bytes) };
        let around = Cgroups::around(kernel.process?, Path::new("/")).ok().or(self.around.clone());
        if let Some(group) = around.and_then(|around| around.memory) {
            let page_cache = group.page_cache as f64;
            return Some((
                (group.usage as f64 - page_cache - cache(group.shared as f64)).max(0.0),
                page_cache,
            ));
        }
        let shared = meminfo("Shmem")?;
        let page_cache = meminfo("Cached")? + meminfo("Buffers")? - shared;
        let used = meminfo("MemTotal")? - meminfo("MemFree")? - page_cache - cache(shared);
        Some((used.max(0.0), page_cache))
    }
}

/// Bytes of a line of `/proc/meminfo`.
fn meminfo(name: &str) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

/// What was asked of tables and indexes between two looks.
fn grown(before: &[Relation], after: Vec<Relation>) -> Vec<Relation> {
    let since = |now: Relation| {
        let then = before.iter().find(|then| then.name == now.name).cloned().unwrap_or_default();
        Relation {
            requests: now.requests - then.requests,
            misses: now.misses - then.misses,
            searches: now.searches - then.searches,
            ..now
        }
    };
    after.into_iter().map(since).collect()
}
