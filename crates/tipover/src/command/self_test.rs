//! `tipover self-test`: the generator's own ceiling.

use super::Ending;
use crate::clock::Clock;
use crate::drive::{self, Plan};
use anyhow::{Context, Result};
use clap::Args;
use std::time::Duration;
use tipover_core::units::Rate;
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::{Arrivals, Dataset, Records, Ycsb};

/// Measure the generator's own ceiling on a target that does nothing
///
/// Whatever a trial reports cannot exceed this. Each operation has its key drawn, its begin and end read from
/// the clock and its latency recorded, exactly as against a real target.
#[derive(Debug, Args)]
pub struct SelfTest {
    /// Threads to measure with, one after the other
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u32>,

    /// Length of one measurement
    #[arg(long, default_value = "1 s", value_parser = |t: &str| tipover_core::units::span::parse(t))]
    time: Duration,

    /// How often each is measured; the median is printed
    #[arg(long, default_value_t = 5)]
    repeats: u32,

    /// Only the closed loop, for benches
    #[arg(long, hide = true)]
    closed: bool,
}

impl SelfTest {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        let dataset = Dataset::ycsb(1_000_000);
        let mut results = Vec::new();
        for requests in [Requests::Uniform, Requests::Zipfian] {
            let workload = Ycsb::reads(&dataset, requests, 1);
            // Interleaved, so that a slow spell of the machine hits all alike.
            let mut rates = vec![Vec::new(); self.threads.len()];
            for _ in 0..self.repeats {
                for (threads, rates) in self.threads.iter().zip(&mut rates) {
                    let clock = Clock::start();
                    let records = Records::new(dataset.records);
                    let null = &tipover_targets::Null;
                    let plan = Plan::closed(null, &dataset, &workload, &records, *threads, clock);
                    rates.push(drive::run(&plan, |s| {
                        std::thread::sleep(Duration::from_millis(50));
                        let before = s.cut().sessions_cpu_ns;
                        std::thread::sleep(self.time);
                        let tally = s.cut();
                        let operations = tally.books.done() as f64;
                        let seconds = tally.end.since(tally.begin).as_secs_f64();
                        let cpu_s = (tally.sessions_cpu_ns - before) as f64 / 1e9;
                        (operations / seconds, operations / cpu_s)
                    })?);
                }
            }
            for (threads, rates) in self.threads.iter().zip(rates) {
                results.push(serde_json::json!({
                    "requests": requests,
                    "threads": threads,
                    "throughput_ops_per_s": median(rates.iter().map(|r| r.0).collect()),
                    "throughput_ops_per_core_s": median(rates.iter().map(|r| r.1).collect()),
                }));
            }
        }
        if !self.closed {
            results.extend(self.open_loops(&dataset)?);
        }
        if json {
            println!("{}", serde_json::to_string_pretty(&results)?);
        } else {
            for r in results.iter().filter(|r| r["loop"].is_null()) {
                println!(
                    "{} keys, {} threads: {} ({} per core)",
                    r["requests"].as_str().unwrap_or(""),
                    r["threads"],
                    Rate(r["throughput_ops_per_s"].as_f64().unwrap_or(0.0)).rounded(),
                    Rate(r["throughput_ops_per_core_s"].as_f64().unwrap_or(0.0)).rounded()
                );
            }
        }
        if !json {
            print_open_loops(&results);
        }
        Ok(Ending::Held)
    }

    /// Offers more and more, until 1 % of the operations are sent more than 100 µs late, or not all that is
    /// due can be sent.
    fn open_loops(&self, dataset: &Dataset) -> Result<Vec<serde_json::Value>> {
        const SESSIONS: u32 = 16;
        let workload = Ycsb::reads(dataset, Requests::Uniform, 1);
        let mut results = Vec::new();
        for offered_ops_per_s in [1e3, 1e4, 1e5, 2e5, 4e5, 8e5, 1.6e6, 3.2e6] {
            let records = Records::new(dataset.records);
            let plan =
                Plan::closed(&tipover_targets::Null, dataset, &workload, &records, SESSIONS, Clock::start());
            let plan = Plan { arrivals: Some((Arrivals::Poisson(Rate(offered_ops_per_s)), 1)), ..plan };
            let tally = drive::run(&plan, |s| {
                std::thread::sleep(Duration::from_millis(50));
                s.cut();
                std::thread::sleep(self.time);
                s.cut()
            })?;
            let offered = tally.offered.context("an open loop says what it offered")?;
            let lateness = offered.lateness().map_err(anyhow::Error::msg)?;
            let late_ns = |quantile| lateness.value_at_quantile(quantile);
            // What is due within a millisecond is not a backlog.
            let held = late_ns(0.99) <= 100_000 && offered.backlog as f64 <= offered_ops_per_s * 1e-3;
            results.push(serde_json::json!({
                "loop": "open",
                "sessions": SESSIONS,
                "offered_ops_per_s": offered_ops_per_s,
                "lateness_ns_p50": late_ns(0.5),
                "lateness_ns_p99": late_ns(0.99),
                "lateness_ns_most": lateness.max(),
                "backlog": offered.backlog,
                "held": held,
            }));
            if !held {
                break;
            }
        }
        Ok(results)
    }
}

fn print_open_loops(results: &[serde_json::Value]) {
    let mut most = None;
    for r in results.iter().filter(|r| r["loop"] == "open") {
        let us = |key: &str| r[key].as_f64().unwrap_or(0.0) / 1e3;
        let offered = Rate(r["offered_ops_per_s"].as_f64().unwrap_or(0.0));
        println!(
            "open loop, {} offered: sent late by {:.1} us (median), {:.1} us (p99), {:.0} us (most); backlog {}",
            offered.rounded(),
            us("lateness_ns_p50"),
            us("lateness_ns_p99"),
            us("lateness_ns_most"),
            r["backlog"]
        );
        if r["held"] == true {
            most = Some(offered);
        }
    }
    match most {
        Some(most) => println!(
            "this machine can offer at least {} with 99 % of the operations sent within 100 us of being due",
            most.rounded()
        ),
        None if results.iter().any(|r| r["loop"] == "open") => {
            println!(
                "this machine cannot send 99 % of the operations within 100 us of being due, at any load tried"
            );
        }
        None => {}
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
