//! What the generator can send at most: the null target, all reads, by `tipover self-test`, turn by turn with
//! go-ycsb's `basic` binding, which does nothing either. `cargo bench -p tipover --bench generator`
//!
//! Ratios only: to a stated limit, to the peer, of two threads to one. What a processor does for others while
//! a measurement runs is read from the kernel and printed beside it. Without `--bench`, or with `--test`, it
//! runs tiny: it then checks counts and the keys' distribution, and no time.

#[path = "../../targets/benches/peers/go_ycsb.rs"]
mod go_ycsb;
#[path = "../../targets/benches/peers/program.rs"]
mod program;

use self::program::Ran;
use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};
use tipover_core::measure::Threshold;
use tipover_core::op::Op;
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::{Dataset, Records, Workload, Ycsb};

const RECORDS: u64 = 1_000_000;
/// What the generator must reach per second of processor time, whatever the machine.
const LIMIT: f64 = 8e6;
/// The share of the hottest record among YCSB's zipfian requests: 1/26.469.
const HOTTEST: f64 = 0.0378;
const REQUESTS: [Requests; 2] = [Requests::Uniform, Requests::Zipfian];
const THREADS: [usize; 2] = [1, 2];

fn main() -> Result<()> {
    let asked = |flag: &str| env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let peer = match go_ycsb::program(full) {
        Ok(program) => Some(Peer { program }),
        Err(reason) => {
            println!("SKIPPED: go-ycsb is not compared with, because {reason:#}");
            None
        }
    };
    check_keys(peer.as_ref())?;
    if full { measure(peer.as_ref()) } else { check_counts(peer.as_ref()) }
}

/// Both must ask for the same, or a comparison of speed says nothing.
fn check_keys(peer: Option<&Peer>) -> Result<()> {
    const DRAWS: u64 = 100_000;
    let dataset = Dataset::ycsb(RECORDS);
    for requests in REQUESTS {
        let (workload, records) = (Ycsb::reads(&dataset, requests, 1), Records::new(RECORDS));
        let ours = hottest((0..DRAWS).map(|n| match workload.op(n, &records) {
            Op::Read { record, .. } => record,
            other => panic!("{other:?} is not a read"),
        }));
        check_hottest(requests, ours)?;
        print!("{}: the hottest key gets {:.2} % of our requests", name(requests), ours * 100.0);
        if let Some(peer) = peer {
            let theirs = hottest(peer.keys(requests, DRAWS)?.into_iter());
            check_hottest(requests, theirs)?;
            print!(", {:.2} % of go-ycsb's", theirs * 100.0);
        }
        println!();
    }
    Ok(())
}

/// The share of the most frequent key.
fn hottest<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> f64 {
    let mut counts: HashMap<K, u64> = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts.values().max().map_or(0.0, |&most| most as f64 / counts.values().sum::<u64>() as f64)
}

fn check_hottest(requests: Requests, share: f64) -> Result<()> {
    let right = match requests {
        Requests::Uniform => share > 0.0 && share < 0.0002,
        // Six standard deviations of 100,000 draws.
        Requests::Zipfian => (share - HOTTEST).abs() < 0.0036,
        other => unreachable!("{other} is not among those that are compared"),
    };
    ensure!(right, "{} requests give the hottest key a share of {share}", name(requests));
    Ok(())
}

fn check_counts(peer: Option<&Peer>) -> Result<()> {
    for threads in THREADS {
        for rate in ours(threads, "50 ms")? {
            ensure!(rate.wall > 0.0 && rate.core > 0.0, "no operations with {threads} threads");
        }
        if let Some(peer) = peer {
            // It fails unless the peer counts as many as it was asked for.
            peer.rate(threads, Requests::Zipfian, 100_000)?;
        }
    }
    Ok(())
}

/// Operations per second.
#[derive(Debug, Clone, Copy)]
struct Rate {
    /// By the clock on the wall.
    wall: f64,
    /// Per second of processor time.
    core: f64,
    /// Processor time that others had meanwhile, of all there was.
    others_percent: f64,
}

/// A rate by the wall says something about a program only if it had the processors for itself.
fn quiet(one: &Rate, other: &Rate) -> bool {
    one.others_percent < 5.0 && other.others_percent < 5.0
}

/// One column of rounds.
#[derive(Default)]
struct Column {
    ours: Vec<Rate>,
    theirs: Vec<Rate>,
}

fn measure(peer: Option<&Peer>) -> Result<()> {
    const ROUNDS: usize = 10;
    const PEER_OPERATIONS: u64 = 5_000_000;
    let cores = std::thread::available_parallelism()?.get();
    println!("{cores} processors, load average {}", fs::read_to_string("/proc/loadavg")?.trim());
    let mut columns: [[Column; 2]; 2] = Default::default();
    let mut key_ns = Vec::new();
    for round in 1..=ROUNDS {
        key_ns.push(key_text_ns());
        for (column, threads) in THREADS.into_iter().enumerate() {
            let mut mine = || -> Result<()> {
                for (row, rate) in ours(threads, "1 s")?.into_iter().enumerate() {
                    columns[row][column].ours.push(rate);
                }
                Ok(())
            };
            // Neither always goes first.
            if round % 2 == 1 {
                mine()?;
            }
            let mut theirs = Vec::new();
            for requests in REQUESTS.into_iter().filter(|_| peer.is_some()) {
                theirs.extend(peer.map(|peer| peer.rate(threads, requests, PEER_OPERATIONS)).transpose()?);
            }
            if round % 2 == 0 {
                mine()?;
            }
            for (row, rate) in theirs.into_iter().enumerate() {
                columns[row][column].theirs.push(rate);
            }
        }
        eprintln!("round {round} of {ROUNDS}: load average {}", fs::read_to_string("/proc/loadavg")?.trim());
    }

    println!(
        "medians of {ROUNDS} rounds, least to greatest in brackets; per core = per second of processor time"
    );
    println!("quiet = rounds in which others took under 5 % of all processors from both sides of the ratio");
    let key_ns = Spread::of(key_ns).map_or(0.0, |spread| spread.median);
    for (requests, [one, two]) in REQUESTS.into_iter().zip(&columns) {
        for (threads, column) in THREADS.into_iter().zip([one, two]) {
            println!("{} keys, {threads} threads", name(requests));
            print_rates("ours", &column.ours);
            let limits = column.ours.iter().map(|rate| rate.core / LIMIT).collect();
            let what = format!("null target, {} keys, {threads} threads", name(requests));
            judge(1.0, &format!("{what}: operations per second of processor ÷ 8 M"), limits);
            if !column.theirs.is_empty() {
                print_rates("go-ycsb", &column.theirs);
                column.print_ratios(key_ns);
                let ratios = column.ours.iter().zip(&column.theirs).map(|(a, b)| a.wall / b.wall).collect();
                judge(3.0, &format!("{what}: throughput ÷ go-ycsb's"), ratios);
            }
        }
        println!("{} keys, 2 threads / 1 thread", name(requests));
        let pairs = || two.ours.iter().zip(&one.ours);
        let scaled = pairs().map(|(two, one)| two.wall / one.wall).collect();
        judge(1.9, &format!("null target, {} keys: throughput of 2 threads ÷ 1", name(requests)), scaled);
        let quiet = pairs().filter(|(two, one)| quiet(two, one));
        print_spread("  wall, quiet", quiet.map(|(two, one)| two.wall / one.wall).collect());
        print_spread("  2 x per core", pairs().map(|(two, one)| 2.0 * two.core / one.core).collect());
    }
    Ok(())
}

fn judge(least: f64, name: &str, ratios: Vec<f64>) {
    println!("{}", Threshold::AtLeast(least).judge(name, &ratios).lines());
}

fn print_rates(who: &str, rates: &[Rate]) {
    let all = |of: fn(&Rate) -> f64| rates.iter().map(of).collect();
    print_spread(&format!("  {who}, M/s, wall"), all(|rate| rate.wall / 1e6));
    print_spread(&format!("  {who}, M/s, per core"), all(|rate| rate.core / 1e6));
    print_spread("    others meanwhile, % of all processors", all(|rate| rate.others_percent));
}

fn print_spread(what: &str, values: Vec<f64>) {
    let count = values.len();
    match Spread::of(values) {
        Some(Spread { median, least, greatest }) => {
            println!("{what}: {median:.2} ({least:.2} to {greatest:.2}, {count} rounds)");
        }
        None => println!("{what}: no such round"),
    }
}

impl Column {
    fn print_ratios(&self, key_ns: f64) {
        let pairs = || self.ours.iter().zip(&self.theirs);
        let quiet = pairs().filter(|(a, b)| quiet(a, b));
        print_spread("  ours / go-ycsb, wall, quiet", quiet.map(|(a, b)| a.wall / b.wall).collect());
        print_spread("  ours / go-ycsb, per core", pairs().map(|(a, b)| a.core / b.core).collect());
        // go-ycsb hands a key's text to its binding; here targets make it from the record's number.
        let with_key = |ours: &Rate| 1e9 / (1e9 / ours.core + key_ns);
        print_spread(
            &format!("  ours / go-ycsb, per core, with {key_ns:.1} ns for the key's text on our side too"),
            pairs().map(|(a, b)| with_key(a) / b.core).collect(),
        );
    }
}

/// A median with its range.
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (&least, &greatest) = (values.first()?, values.last()?);
        Some(Spread { median: values[values.len() / 2], least, greatest })
    }
}

/// The name of a distribution, which both programs share.
fn name(requests: Requests) -> String {
    requests.to_string()
}

/// Our rates for each of [`REQUESTS`].
fn ours(threads: usize, time: &str) -> Result<[Rate; 2]> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tipover"));
    command.args(["self-test", "--closed", "--json", "--repeats", "1", "--time", time]);
    let ran = Ran::to_end(command.args(["--threads", &threads.to_string()]))?;
    let results: Vec<serde_json::Value> = serde_json::from_str(&ran.output)?;
    let rate = |requests| -> Result<Rate> {
        let result = results
            .iter()
            .find(|result| result["requests"] == name(requests) && result["threads"] == threads)
            .with_context(|| format!("self-test reports no {requests:?} requests"))?;
        let number = |key: &str| result[key].as_f64().with_context(|| format!("self-test reports no {key}"));
        Ok(Rate {
            wall: number("throughput_ops_per_s")?,
            core: number("throughput_ops_per_core_s")?,
            others_percent: ran.others_percent,
        })
    };
    Ok([rate(REQUESTS[0])?, rate(REQUESTS[1])?])
}

/// Processor time for making a key's text from its record's number, best of five: only interference makes it
/// longer.
fn key_text_ns() -> f64 {
    const KEYS: u64 = 200_000;
    let dataset = Dataset::ycsb(RECORDS);
    let mut key = Vec::new();
    let mut once = || {
        let began = clock_gettime(ClockId::ThreadCPUTime);
        for record in 0..KEYS {
            dataset.key(black_box(record), &mut key);
            black_box(&key);
        }
        let ended = clock_gettime(ClockId::ThreadCPUTime);
        let ns = (ended.tv_sec - began.tv_sec) * 1_000_000_000 + (ended.tv_nsec - began.tv_nsec);
        ns as f64 / KEYS as f64
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// go-ycsb.
struct Peer {
    program: PathBuf,
}

impl Peer {
    fn rate(&self, threads: usize, requests: Requests, operations: u64) -> Result<Rate> {
        let ran = self.run(threads, requests, operations, false)?;
        let wall = go_ycsb::reads_per_s(&ran.output, operations)?;
        Ok(Rate { wall, core: operations as f64 / ran.cpu_s, others_percent: ran.others_percent })
    }

    /// The keys that it asks for.
    fn keys(&self, requests: Requests, operations: u64) -> Result<Vec<String>> {
        let ran = self.run(1, requests, operations, true)?;
        let keys = |line: &str| Some(line.strip_prefix("READ usertable ")?.split_once(' ')?.0.to_string());
        Ok(ran.output.lines().filter_map(keys).collect())
    }

    fn run(&self, threads: usize, requests: Requests, operations: u64, verbose: bool) -> Result<Ran> {
        let mut command = Command::new(&self.program);
        command.args(["run", "basic", "--interval", "1000"]);
        // Workload C, which is in a file of their repository, and the bench's own sizes.
        for property in [
            "workload=core",
            "readallfields=true",
            "readproportion=1",
            "updateproportion=0",
            "scanproportion=0",
            "insertproportion=0",
            &format!("requestdistribution={}", name(requests)),
            &format!("recordcount={RECORDS}"),
            &format!("operationcount={operations}"),
            &format!("threadcount={threads}"),
            &format!("verbose={verbose}"),
        ] {
            command.args(["-p", property]);
        }
        Ran::to_end(&mut command)
    }
}
