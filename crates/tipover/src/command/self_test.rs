//! `tipover self-test`: the generator's own ceiling.

use super::Ending;
use crate::clock::Clock;
use crate::drive;
use anyhow::Result;
use clap::Args;
use std::time::Duration;
use tipover_core::units::Rate;
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::{Dataset, Ycsb};

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
}

impl SelfTest {
    /// Carries it out.
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
                    let (throughput, cpu) =
                        drive::run(&tipover_targets::Null, &dataset, &workload, *threads, clock, |s| {
                            std::thread::sleep(Duration::from_millis(50));
                            let before = s.cut().sessions_cpu_ns;
                            std::thread::sleep(self.time);
                            let tally = s.cut();
                            let seconds = tally.end.since(tally.begin).as_secs_f64();
                            let cpu_s = (tally.sessions_cpu_ns - before) as f64 / 1e9;
                            (tally.operations as f64 / seconds, tally.operations as f64 / cpu_s)
                        })?;
                    rates.push((throughput, cpu));
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
        if json {
            println!("{}", serde_json::to_string_pretty(&results)?);
        } else {
            for r in &results {
                println!(
                    "{} keys, {} threads: {} ({} per core)",
                    r["requests"].as_str().unwrap_or(""),
                    r["threads"],
                    Rate(r["throughput_ops_per_s"].as_f64().unwrap_or(0.0)).rounded(),
                    Rate(r["throughput_ops_per_core_s"].as_f64().unwrap_or(0.0)).rounded()
                );
            }
        }
        Ok(Ending::Held)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
