//! The process that sends load, and holds the engine when that is embedded.
//!
//! It is this program again, started with a hidden verb inside the target's limits, and obeys commands, one
//! JSON text a line on its standard input; it answers in the same way on its standard output. When its input
//! ends it ends, so no agent outlives its laboratory.

use crate::clock::Clock;
use crate::drive;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tipover_core::experiment::{Spec, WorkloadKind};
use tipover_core::measure::LatencyText;
use tipover_core::metric::{Metric, Sample};
use tipover_core::op::Failure;
use tipover_core::target::{Facts, Target};
use tipover_core::units::Tick;
use tipover_core::workload::{Dataset, RandomReads, Workload, Ycsb};
use tipover_targets::RequestPath;

/// What an agent is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Command {
    /// Start the target; always the first command.
    Start {
        /// The cell.
        spec: Box<Spec>,
        /// Where the target keeps its data.
        folder: PathBuf,
        /// Seed of the operations.
        seed: u64,
        /// Zero of the trial clock, in CLOCK_MONOTONIC nanoseconds.
        origin_ns: u64,
    },
    /// Write all records, make them durable.
    Load {
        /// Threads that write.
        threads: u32,
    },
    /// Start the sessions.
    Run,
    /// Change how fast sessions go on; only while they run.
    Pace {
        /// Pause after each operation in nanoseconds; 0 for a closed loop at full speed.
        think_ns: u64,
        /// Whether the request path is burnt.
        request_path: bool,
    },
    /// Close an interval and report it.
    Cut,
    /// Stop the sessions.
    Halt,
    /// Stop the target and end.
    Stop,
}

/// What an agent answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Answer {
    /// To `Start`.
    Started {
        /// Read back from the target.
        facts: Facts,
        /// What its samples hold.
        metrics: Vec<Metric>,
        /// The generator's own processor time per operation, in nanoseconds.
        generator_cost_ns: f64,
    },
    /// While loading.
    Loading {
        /// Records written so far.
        records: u64,
    },
    /// To `Load`.
    Loaded {
        /// Read back from the target.
        facts: Facts,
    },
    /// To `Run` and `Pace`.
    Running,
    /// To `Cut`.
    Interval(Box<Cut>),
    /// To `Halt` and `Stop`.
    Stopped,
    /// To anything: the target could not do it.
    Failed {
        /// A sentence.
        reason: String,
    },
}

/// One interval, as seen by the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cut {
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// Operations done.
    pub operations: u64,
    /// Operations refused or unknown.
    pub failures: BTreeMap<Failure, u64>,
    /// Latencies of all answered operations.
    pub latency: LatencyText,
    /// The target's statistics at its end.
    pub target: Sample,
    /// Processor time of this process so far, in nanoseconds.
    pub process_cpu_ns: u64,
    /// Of that, the session threads'.
    pub sessions_cpu_ns: u64,
}

/// The records that exist and the operations on them, for a cell.
pub fn load_of(spec: &Spec, seed: u64) -> (Dataset, Box<dyn Workload>) {
    // The data are the same for all seeds, so that trials of a cell can share them.
    const DATA_SEED: u64 = 1;
    match spec.workload.kind {
        WorkloadKind::YcsbReads => {
            let dataset = spec.dataset(DATA_SEED);
            let workload = Ycsb::reads(&dataset, spec.workload.requests, seed);
            (dataset, Box::new(workload))
        }
        WorkloadKind::FileReads => {
            let w = &spec.workload;
            let dataset = Dataset {
                records: w.file_size.0 / 4096,
                fields: 1,
                field_length: 4096,
                ..spec.dataset(DATA_SEED)
            };
            (dataset, Box::new(RandomReads::new(w.file_size, w.least_read, w.most_read, seed)))
        }
    }
}

/// Obeys commands until its input ends.
pub fn serve() -> Result<()> {
    let mut input = std::io::stdin().lock().lines();
    let mut next = || -> Result<Option<Command>> {
        match input.next() {
            None => Ok(None),
            Some(line) => Ok(Some(serde_json::from_str(&line?).context("a command that is not one")?)),
        }
    };
    let Some(Command::Start { spec, folder, seed, origin_ns }) = next()? else {
        bail!("an agent must be started first");
    };
    let (dataset, workload) = load_of(&spec, seed);
    let generator_cost_ns = drive::generator_cost_ns(&dataset, workload.as_ref());
    let target = match tipover_targets::start(&spec, &folder) {
        Ok(target) => RequestPath::new(target, spec.target.request_path_cpu),
        Err(error) => return answer(&Answer::Failed { reason: error.to_string() }),
    };
    let facts = target.facts()?;
    answer(&Answer::Started { facts, metrics: target.metrics(), generator_cost_ns })?;
    let clock = Clock::at(origin_ns);
    while let Some(command) = next()? {
        match command {
            Command::Load { threads } => {
                if let Err(error) = load(&target, &dataset, threads) {
                    return answer(&Answer::Failed { reason: format!("{error:#}") });
                }
                answer(&Answer::Loaded { facts: target.facts()? })?;
            }
            Command::Run => {
                let sessions = spec.load.sessions;
                let run = drive::run(&target, &dataset, workload.as_ref(), sessions, clock, |sessions| {
                    prefer_this_thread();
                    answer(&Answer::Running)?;
                    loop {
                        match next()? {
                            Some(Command::Cut) => answer(&cut(sessions, &target, &clock)?)?,
                            Some(Command::Pace { think_ns, request_path }) => {
                                sessions.think(Duration::from_nanos(think_ns));
                                target.burn(request_path);
                                answer(&Answer::Running)?;
                            }
                            Some(Command::Halt) => return Ok(true),
                            None => return Ok(false),
                            Some(other) => bail!("{other:?} cannot be done while sessions run"),
                        }
                    }
                });
                match run {
                    Ok(Ok(true)) => answer(&Answer::Stopped)?,
                    Ok(Ok(false)) => return Ok(()),
                    Ok(Err(error)) => return Err(error),
                    Err(error) => return answer(&Answer::Failed { reason: error.to_string() }),
                }
            }
            Command::Stop => {
                drop(target);
                return answer(&Answer::Stopped);
            }
            other => bail!("{other:?} cannot be done now"),
        }
    }
    Ok(())
}

fn answer(answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn cut(sessions: &drive::Sessions, target: &dyn Target, clock: &Clock) -> Result<Answer> {
    let tally = sessions.cut();
    let begin = clock.now();
    let values = target.sample()?;
    Ok(Answer::Interval(Box::new(Cut {
        begin: tally.begin,
        end: tally.end,
        operations: tally.operations,
        failures: tally.failures,
        latency: tally.latencies.to_text(),
        target: Sample { begin, end: clock.now(), values },
        process_cpu_ns: process_cpu_ns(),
        sessions_cpu_ns: tally.sessions_cpu_ns,
    })))
}

/// Lets the thread that reads the counters run before the sessions when both want a processor, so that an
/// interval ends when it should. Without the privilege intervals are less sharp; their real ends are recorded
/// either way.
fn prefer_this_thread() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
}

fn process_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Writes all records from `threads` threads in ranges small enough that progress is seen.
fn load(target: &dyn Target, dataset: &Dataset, threads: u32) -> Result<()> {
    let range = (dataset.records / 200).max(256);
    let (next, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let first = next.fetch_add(range, Ordering::Relaxed);
                        if first >= dataset.records {
                            return Ok(());
                        }
                        let last = (first + range).min(dataset.records);
                        target.load(dataset, first..last)?;
                        let records = written.fetch_add(last - first, Ordering::Relaxed) + last - first;
                        answer(&Answer::Loading { records })?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().expect("loading does not panic"))
    })?;
    target.settle()?;
    Ok(())
}
