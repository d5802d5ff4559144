//! How exactly an open loop sends: 100,000 operations a second, due at random, on a target that does nothing;
//! and whether memory stays flat however many operations there are.
//! `cargo bench -p tipover --bench open_loop`
//!
//! Without `--bench`, or with `--test`, it runs tiny: it then checks that nothing is shed, and no time.

#[allow(dead_code, unused_imports)]
#[path = "../src/clock.rs"]
mod clock;
#[allow(dead_code, unused_imports)]
#[path = "../src/drive/mod.rs"]
mod drive;
#[allow(dead_code)]
#[path = "../src/history.rs"]
mod history;
#[allow(dead_code, unused_imports)]
#[path = "../src/processors.rs"]
mod processors;

use anyhow::{Context, Result, ensure};
use clock::Clock;
use drive::Plan;
use std::time::Duration;
use tipover_core::measure::{Offered, Threshold};
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::{Arrivals, Dataset, Records, Ycsb};

/// How late an operation may begin, in microseconds, at the 99th percentile.
const LATE_US: f64 = 100.0;

fn main() -> Result<()> {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let (time, rounds) = if full { (Duration::from_secs(2), 12) } else { (Duration::from_millis(100), 1) };
    println!("load average {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    for (sessions, arrivals) in
        [(1, "poisson 100000/s"), (16, "poisson 100000/s"), (16, "constant 100000/s"), (64, "poisson 1000/s")]
    {
        let mut ratios = Vec::new();
        for round in 1..=rounds {
            let offered = offer(sessions, arrivals, time)?;
            let lateness = offered.lateness().map_err(anyhow::Error::msg)?;
            let us = |quantile| lateness.value_at_quantile(quantile) as f64 / 1e3;
            println!(
                "{sessions} sessions, {arrivals}, round {round}: late p50 {:.2} us, p99 {:.2} us, p99.9 {:.1} us, most \
                 {:.0} us; largest backlog {} of {} due",
                us(0.5),
                us(0.99),
                us(0.999),
                us(1.0),
                offered.backlog_most,
                offered.due
            );
            ratios.push(us(0.99) / LATE_US);
        }
        if full {
            let name =
                format!("null target, {sessions} sessions, {arrivals}: p99 of lateness ÷ {LATE_US} us");
            println!("{}", Threshold::AtMost(1.0).judge(&name, &ratios).lines());
        }
    }
    memory(full)
}

/// Offers as many operations as are due in about `time`, after a quarter as many to get going, and waits
/// until all are answered: then the counts must agree to the operation, however busy the machine is.
fn offer(sessions: u32, arrivals: &str, time: Duration) -> Result<Offered> {
    let dataset = Dataset::ycsb(1_000_000);
    let (workload, records) = (Ycsb::reads(&dataset, Requests::Uniform, 1), Records::new(dataset.records));
    let null = &tipover_targets::Null;
    let plan = Plan::closed(null, &dataset, &workload, &records, sessions, Clock::start());
    let arrivals: Arrivals = arrivals.parse().map_err(anyhow::Error::msg)?;
    let limit = arrivals.schedule(1).take_while(|at| *at < time + time / 4).count() as u64;
    let plan = Plan { arrivals: Some((arrivals, 1)), limit: Some(limit), ..plan };
    let (mut tallies, answered_all) = drive::run(&plan, |sessions| {
        std::thread::sleep(time / 4);
        let mut tallies = vec![sessions.cut()];
        while !sessions.wait(Duration::from_millis(250)) {
            tallies.push(sessions.cut());
        }
        tallies.push(sessions.cut());
        let answered = tallies.iter().map(|tally| tally.books.answered()).sum::<u64>();
        (tallies, answered)
    })?;
    let sum =
        |of: fn(&Offered) -> u64| tallies.iter().filter_map(|t| t.offered.as_ref()).map(of).sum::<u64>();
    let counts = [sum(|offered| offered.due), sum(|offered| offered.begun), answered_all];
    ensure!(counts == [limit; 3], "{limit} operations: due, sent and answered were {counts:?}");
    let mut rest = tallies.drain(1..).filter_map(|tally| tally.offered);
    let mut offered = rest.next().context("an open loop")?;
    rest.try_for_each(|next| offered.append(&next)).map_err(anyhow::Error::msg)?;
    Ok(offered)
}

/// Resident bytes after ten times the operations, against after a tenth.
fn memory(full: bool) -> Result<()> {
    let resident = || -> Result<u64> {
        let text = std::fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = text.split_whitespace().nth(1).context("statm has a second word")?.parse()?;
        Ok(pages * rustix::param::page_size() as u64)
    };
    let dataset = Dataset::ycsb(1_000_000);
    let (workload, records) = (Ycsb::reads(&dataset, Requests::Uniform, 1), Records::new(dataset.records));
    let mut sizes = Vec::new();
    // An hour of 100,000 a second is 360 million operations.
    for limit in if full { [4_000_000, 40_000_000, 360_000_000] } else { [10_000, 100_000, 1_000_000] } {
        let null = &tipover_targets::Null;
        let plan = Plan::closed(null, &dataset, &workload, &records, 16, Clock::start());
        let plan = Plan { limit: Some(limit), ..plan };
        let (done, size) = drive::run(&plan, |sessions| {
            let mut done = 0;
            while !sessions.wait(Duration::from_millis(250)) {
                done += sessions.cut().books.done();
            }
            (done + sessions.cut().books.done(), resident())
        })?;
        ensure!(done == limit, "{done} of {limit} operations were counted");
        sizes.push(size?);
        println!("{limit} operations: {:.1} MB resident", sizes[sizes.len() - 1] as f64 / 1e6);
    }
    let growth = sizes[2] as f64 / sizes[0] as f64;
    println!("resident after the most / after the fewest: {growth:.2}");
    ensure!(growth < 2.0, "memory grows with the number of operations: {sizes:?}");
    Ok(())
}
