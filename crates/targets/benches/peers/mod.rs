//! What the benches of servers share: our side, their programs, and the sums.

pub mod go_ycsb;
pub mod program;

use self::program::{Machine, Ran};
use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};
use tipover_core::measure::{Latencies, Threshold};
use tipover_core::op::{Op, Outcome, Timing};
use tipover_core::target::{Progress, Session, Target};
use tipover_core::units::Tick;
use tipover_core::workload::{Dataset, Records, Workload};
use tipover_lab::recipe::Server;

pub const SESSIONS: usize = 8;
pub const THREADS: usize = 2;

/// Whether it runs in full; otherwise it is tiny and checks counts only.
pub fn in_full() -> bool {
    let asked = |flag: &str| env::args().any(|argument| argument == flag);
    asked("--bench") && !asked("--test")
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Operations per second.
    pub per_s: f64,
    /// Processor time of the client for an operation, in microseconds.
    pub cpu_us: f64,
    /// Processor time of the server for an operation, in microseconds.
    pub server_us: f64,
    /// How many operations there were.
    pub operations: f64,
    /// Processor time that neither client nor its server can have used is unknown here: what is printed is
    /// all that was busy, of all there was.
    pub busy_percent: f64,
}

impl Rate {
    /// Of a program that did this number of operations.
    pub fn of(ran: &Ran, per_s: f64, operations: f64) -> Rate {
        let cpu_us = ran.cpu_s * 1e6 / operations;
        Rate { per_s, cpu_us, server_us: f64::NAN, operations, busy_percent: ran.busy_percent }
    }
}

/// How our side spreads its sessions.
#[derive(Debug, Clone, Copy)]
pub enum Threads {
    /// One for each session, which waits in its own call: so do `tipover` with few sessions, and sysbench.
    Each,
    /// [`THREADS`] of them, each waiting for all of its connections together: so do `tipover` with many
    /// sessions, and pgbench.
    Shared,
}

/// Measures what `run` measures, and what the server spent for it.
fn beside(server: &Server, run: impl FnOnce() -> Result<Rate>) -> Result<Rate> {
    let before = server_s(server)?;
    let mut rate = run()?;
    // A process of the server ends a little after its connection, and then counts with its parent.
    std::thread::sleep(Duration::from_millis(100));
    rate.server_us = (server_s(server)? - before) * 1e6 / rate.operations;
    Ok(rate)
}

/// Processor time of all processes that the server has or had.
fn server_s(server: &Server) -> Result<f64> {
    const UTIME: usize = 11;
    let main = server.pid();
    let mut ticks = 0.0;
    for process in server.processes() {
        // One that ended in between counts with its parent next time.
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        let (_, fields) = text.rsplit_once(')').context("a stat has no name")?;
        // utime and stime; of the main process also those of children that were waited for.
        let count = if process == main { 4 } else { 2 };
        let times = fields.split_whitespace().skip(UTIME).take(count);
        ticks += times.map(|ticks| ticks.parse::<f64>().unwrap_or(0.0)).sum::<f64>();
    }
    Ok(ticks / 100.0)
}

/// Our side. Keys are drawn, and latencies recorded, as a driver does.
pub fn ours(
    target: &dyn Target,
    dataset: &Dataset,
    workload: &(dyn Workload + Sync),
    threads: Threads,
    time: Duration,
) -> Result<Rate> {
    let machine = Machine::now()?;
    let parts: Vec<Result<(u64, f64, f64)>> = std::thread::scope(|scope| {
        let (count, work): (usize, Work) = match threads {
            Threads::Shared => (THREADS, one_thread),
            Threads::Each => (SESSIONS, one_session),
        };
        let threads: Vec<_> = (0..count)
            .map(|thread| scope.spawn(move || work(target, dataset, workload, thread as u64, time)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a session's thread panicked")).collect()
    });
    let (mut count, mut cpu_s, mut wall_s) = (0, 0.0, 0.0f64);
    for part in parts {
        let (ops, cpu, wall) = part?;
        (count, cpu_s, wall_s) = (count + ops, cpu_s + cpu, wall_s.max(wall));
    }
    let busy_percent = Machine::now()?.since(&machine).busy_percent();
    let operations = count as f64;
    let cpu_us = cpu_s * 1e6 / operations;
    Ok(Rate { per_s: operations / wall_s, cpu_us, server_us: f64::NAN, operations, busy_percent })
}

/// Operations, processor time and time of one thread.
type Work = fn(&dyn Target, &Dataset, &(dyn Workload + Sync), u64, Duration) -> Result<(u64, f64, f64)>;

fn one_session(
    target: &dyn Target,
    dataset: &Dataset,
    workload: &(dyn Workload + Sync),
    thread: u64,
    time: Duration,
) -> Result<(u64, f64, f64)> {
    let records = Records::new(dataset.records);
    let mut session = target.open(dataset).map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(session.execute(&workload.op(thread, &records)) == Outcome::Done, "the first read failed");
    let mut latencies = Latencies::closed();
    let (began, cpu) = (Instant::now(), cpu_s(ClockId::ThreadCPUTime));
    let now = || Tick(0) + began.elapsed();
    let (mut n, mut sent) = (thread, now());
    while began.elapsed() < time {
        let outcome = session.execute(&workload.op(n, &records));
        ensure!(outcome == Outcome::Done, "a read ended as {outcome:?}");
        n += SESSIONS as u64;
        let ended = now();
        latencies.record(&Timing { due: sent, began: sent, ended });
        sent = ended;
    }
    Ok((latencies.count(), cpu_s(ClockId::ThreadCPUTime) - cpu, began.elapsed().as_secs_f64()))
}

fn one_thread(
    target: &dyn Target,
    dataset: &Dataset,
    workload: &(dyn Workload + Sync),
    thread: u64,
    time: Duration,
) -> Result<(u64, f64, f64)> {
    let records = Records::new(dataset.records);
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS / THREADS {
        let mut session = target.open(dataset).map_err(|error| anyhow::anyhow!("{error}"))?;
        // Statements are prepared before anything is timed, as by the others.
        ensure!(session.execute(&workload.op(thread, &records)) == Outcome::Done, "the first read failed");
        sessions.push((session, Tick(0)));
    }
    let mut latencies = Latencies::closed();
    let (began, cpu) = (Instant::now(), cpu_s(ClockId::ThreadCPUTime));
    let now = || Tick(0) + began.elapsed();
    let (mut n, mut count) = (thread, 0);
    let mut send = |session: &mut Box<dyn Session + '_>| -> Result<()> {
        let op: Op = workload.op(n, &records);
        n += THREADS as u64;
        let wire = session.wire().context("the target has no wire")?;
        ensure!(wire.begin(&op) == Progress::Receiving, "a request was not sent at once");
        Ok(())
    };
    for (at, (session, sent)) in sessions.iter_mut().enumerate() {
        *sent = now();
        send(session)?;
        let descriptor = session.wire().and_then(|wire| wire.descriptor()).context("no connection")?;
        epoll::add(&poll, descriptor, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(SESSIONS);
    while began.elapsed() < time {
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let (session, sent) = &mut sessions[event.data.u64() as usize];
            match session.wire().context("the target has no wire")?.advance() {
                Progress::Finished(Outcome::Done) => {}
                Progress::Finished(other) => bail!("a read ended as {other:?}"),
                _ => continue,
            }
            let ended = now();
            latencies.record(&Timing { due: *sent, began: *sent, ended });
            count += 1;
            *sent = ended;
            send(session)?;
        }
    }
    ensure!(latencies.count() == count, "a latency was not recorded");
    Ok((count, cpu_s(ClockId::ThreadCPUTime) - cpu, began.elapsed().as_secs_f64()))
}

fn cpu_s(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs workload C of go-ycsb against `database` with these properties of its connection.
pub fn run_go_ycsb(
    program: &Path,
    database: &str,
    connection: &[(&str, &str)],
    records: u64,
    operations: u64,
) -> Result<Rate> {
    let mut command = Command::new(program);
    command.args(["run", database, "--interval", "1000"]);
    let shared = [
        ("workload", "core".to_string()),
        ("readallfields", "true".into()),
        ("readproportion", "1".into()),
        ("updateproportion", "0".into()),
        ("scanproportion", "0".into()),
        ("insertproportion", "0".into()),
        ("requestdistribution", "zipfian".into()),
        ("recordcount", records.to_string()),
        ("operationcount", operations.to_string()),
        ("threadcount", SESSIONS.to_string()),
    ];
    for (name, value) in shared {
        command.arg("-p").arg(format!("{name}={value}"));
    }
    for (name, value) in connection {
        command.arg("-p").arg(format!("{name}={value}"));
    }
    let ran = Ran::to_end(&mut command)?;
    ensure!(!ran.output.contains("READ_ERROR"), "go-ycsb's reads failed: {}", ran.output);
    Ok(Rate::of(&ran, go_ycsb::reads_per_s(&ran.output, operations)?, operations as f64))
}

/// One side of a comparison: its name, and what measures it once.
pub type Side<'a> = (&'a str, Box<dyn FnMut() -> Result<Rate> + 'a>);

/// What each side gave, round by round; in every second round the sides come in the other order, so that none
/// always goes first.
pub fn in_turns<'a>(
    server: &Server,
    rounds: usize,
    mut sides: Vec<Side<'a>>,
) -> Result<Vec<(&'a str, Vec<Rate>)>> {
    let mut rates: Vec<Vec<Rate>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            rates[side].push(beside(server, &mut sides[side].1)?);
        }
    }
    Ok(sides.into_iter().map(|(name, _)| name).zip(rates).collect())
}

/// The thresholds against one peer: ours ÷ the peer's.
pub struct Held<'a> {
    /// The peer's name among the sides.
    pub peer: &'a str,
    /// Of throughput.
    pub throughput: Threshold,
    /// Of the client's processor time for an operation.
    pub client_cpu: Option<Threshold>,
}

/// What ours is held to beside go-ycsb.
pub const GO_YCSB: Held<'static> =
    Held { peer: "go-ycsb", throughput: Threshold::AtLeast(1.5), client_cpu: Some(Threshold::AtMost(0.4)) };

/// Prints rates and the ratios of the first side to each other, and judges those that are held to something.
pub fn print(what: &str, sides: &[(&str, Vec<Rate>)], held: &[Held<'_>]) {
    let Some(((_, ours), peers)) = sides.split_first() else { return };
    println!("{what}: medians of {} rounds, least to greatest in brackets", ours.len());
    print_rates("ours", ours);
    for (name, theirs) in peers {
        print_rates(name, theirs);
        let ratios = |of: fn(&Rate) -> f64| -> Vec<f64> {
            ours.iter().zip(theirs).map(|(a, b)| of(a) / of(b)).collect()
        };
        print_spread(&format!("  ours / {name}, throughput"), ratios(|rate| rate.per_s));
        print_spread(&format!("  ours / {name}, client CPU per operation"), ratios(|rate| rate.cpu_us));
        print_spread(&format!("  ours / {name}, server CPU per operation"), ratios(|rate| rate.server_us));
        if !in_full() {
            continue;
        }
        for held in held.iter().filter(|held| held.peer == *name) {
            let of_throughput = format!("{what}: throughput ÷ {name}'s");
            println!("{}", held.throughput.judge(&of_throughput, &ratios(|rate| rate.per_s)).lines());
            if let Some(threshold) = held.client_cpu {
                let of_cpu = format!("{what}: client's processor time ÷ {name}'s");
                println!("{}", threshold.judge(&of_cpu, &ratios(|rate| rate.cpu_us)).lines());
            }
        }
    }
}

fn print_rates(who: &str, rates: &[Rate]) {
    let all = |of: fn(&Rate) -> f64| rates.iter().map(of).collect();
    print_spread(&format!("  {who}, k/s"), all(|rate| rate.per_s / 1e3));
    print_spread(&format!("  {who}, client CPU us per operation"), all(|rate| rate.cpu_us));
    print_spread(&format!("  {who}, server CPU us per operation"), all(|rate| rate.server_us));
    print_spread(&format!("  {who}, all processors busy, %"), all(|rate| rate.busy_percent));
}

fn print_spread(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    if let (Some(least), Some(greatest)) = (values.first(), values.last()) {
        println!("{what}: {:.2} ({least:.2} to {greatest:.2})", values[values.len() / 2]);
    }
}

/// A peer that cannot be had is skipped loudly.
pub fn or_skip<T>(name: &str, found: Result<T>) -> Option<T> {
    found.inspect_err(|reason| println!("SKIPPED: {name} is not compared with, because {reason:#}")).ok()
}

/// A target of `kind` at `url`.
pub fn spec(kind: &str, url: &str) -> Result<tipover_core::experiment::Spec> {
    Ok(serde_json::from_value(serde_json::json!({
        "target": {"kind": kind, "address": url},
        "disk": {"size": 0},
        "workload": {"records": 1},
        "load": {"sessions": 1},
    }))?)
}
