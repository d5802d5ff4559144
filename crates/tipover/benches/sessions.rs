//! What many sessions cost: 1000 against 64, over wires, on an echo server on the loopback, turn by turn.
//! `cargo bench -p tipover --bench sessions`
//!
//! Server and generator share the machine, in the same way for both counts. Without `--bench`, or with
//! `--test`, it runs tiny: it then checks counts, and no time.

#![allow(clippy::duplicate_mod, reason = "the drive's own tests use the same echo server")]

#[allow(dead_code, unused_imports)]
#[path = "../src/clock.rs"]
mod clock;
#[allow(dead_code, unused_imports)]
#[path = "../src/drive/mod.rs"]
mod drive;
mod echo;
#[allow(dead_code)]
#[path = "../src/history.rs"]
mod history;
#[allow(dead_code, unused_imports)]
#[path = "../src/processors.rs"]
mod processors;

use anyhow::{Result, ensure};
use clock::Clock;
use drive::Plan;
use echo::{Echo, Server};
use std::time::Duration;
use tipover_core::measure::Threshold;
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::{Dataset, Records, Ycsb};

const FEW: u32 = 64;
const MANY: u32 = 1000;

fn main() -> Result<()> {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    if !asked("--bench") || asked("--test") {
        for sessions in [FEW, 200] {
            let (operations, _, _) = measure(sessions, Duration::from_millis(100))?;
            ensure!(operations > 0.0, "{sessions} sessions did nothing");
        }
        return Ok(());
    }
    println!("load average {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    let mut ratios = Vec::new();
    for round in 1..=12 {
        let time = Duration::from_secs(2);
        // Neither always goes first.
        let (first, second) = if round % 2 == 0 { (FEW, MANY) } else { (MANY, FEW) };
        let (first, second) = (measure(first, time)?, measure(second, time)?);
        let (few, many) = if round % 2 == 0 { (first, second) } else { (second, first) };
        let ((few, few_cpu, few_p99), (many, many_cpu, many_p99)) = (few, many);
        println!(
            "round {round}: {FEW} sessions {few:.0}/s ({few_cpu:.1} us each, p99 {few_p99:.2} ms), {MANY} sessions \
             {many:.0}/s ({many_cpu:.1} us each, p99 {many_p99:.2} ms), ratio {:.3}",
            many / few
        );
        ratios.push(many / few);
    }
    let name = format!("echo server, throughput of {MANY} sessions ÷ {FEW}");
    println!("{}", Threshold::AtLeast(0.8).judge(&name, &ratios).lines());
    Ok(())
}

/// Operations a second, processor time of the generator for each in microseconds, p99 in milliseconds.
fn measure(sessions: u32, time: Duration) -> Result<(f64, f64, f64)> {
    let server = Server::start();
    let target = Echo { address: server.address, wires: true };
    let dataset = Dataset::ycsb(1_000_000);
    let (workload, records) = (Ycsb::reads(&dataset, Requests::Uniform, 1), Records::new(dataset.records));
    let plan = Plan::closed(&target, &dataset, &workload, &records, sessions, Clock::start());
    // Both share two threads, also on a machine of many processors.
    let plan = Plan { few: 0, ..plan };
    let (warm, tally) = drive::run(&plan, |sessions| {
        std::thread::sleep(time / 4);
        let warm = sessions.cut();
        std::thread::sleep(time);
        (warm, sessions.cut())
    })?;
    ensure!(tally.books.failed() == 0, "operations failed: {:?}", tally.books.failures());
    let done = tally.books.done() as f64;
    let cpu_ns = tally.sessions_cpu_ns - warm.sessions_cpu_ns;
    let seconds = tally.end.since(tally.begin).as_secs_f64();
    let p99_ms = tally.books.residence().value_at_quantile(0.99) as f64 / 1e6;
    Ok((done / seconds, cpu_ns as f64 / 1e3 / done.max(1.0), p99_ms))
}
