//! What `list`, `show`, `report` and a run that resumes take of many records: seconds on the clock and
//! memory, beside the time in which the same files are read and looked through as JSON, nothing of them kept.
//! The records are simulated, a few of each cell, and differ as trials of one cell do on a machine that is at
//! work. `cargo bench -p tipover --bench records`
//!
//! `TIPOVER_BENCH_RECORDS` says how many there are (100,000). Without `--bench`, or with `--test`, it runs
//! tiny and checks that every record is counted.

#[allow(dead_code, unused_imports)]
#[path = "../src/processors.rs"]
mod processors;

use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tipover_core::experiment::{Cell, Experiment, Trial};
use tipover_core::measure::Threshold;
use tipover_core::record::{Record, Verdict};
use tipover_core::trial::simulate;
use tipover_core::units::Bytes;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tipover");
const PLAN: &str = include_str!("../../../experiments/working-set.toml");
/// Against reading and looking through the same files on as many processors.
const MOST: f64 = 3.0;
/// Simulated for each cell; its other records are these again, under other numbers.
const DIFFERENT: u32 = 4;

fn main() -> Result<()> {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let wanted = std::env::var("TIPOVER_BENCH_RECORDS").ok().and_then(|text| text.parse().ok());
    let wanted: u32 = wanted.unwrap_or(if full { 100_000 } else { 100 });
    let folder = tempfile::tempdir()?;
    let (repeats, files, bytes) = make(folder.path(), wanted)?;
    let count = files.len();
    println!("{count} records of {:.1} kB each, {repeats} of each cell", bytes as f64 / 1e3 / count as f64);
    let repeats = format!("repeats={repeats}");
    let of = |verb: &'static str, more: &[&'static str]| {
        let mut line = vec![verb.to_string()];
        if verb != "list" {
            line.extend(["working-set", "--scale", "tiny", "--set"].map(String::from));
            line.push(repeats.clone());
        }
        line.extend(more.iter().map(ToString::to_string));
        line
    };
    let all = [of("list", &[]), of("show", &[]), of("report", &[]), of("run", &["--list"])];
    let mut ratios = vec![Vec::new(); all.len()];
    for _ in 0..if full { 6 } else { 1 } {
        let floor = look_through(&files)?;
        for (line, ratios) in all.iter().zip(&mut ratios) {
            let Took { clock, memory_mib, said } = run(folder.path(), line)?;
            let words = line.join(" ");
            println!(
                "  {words}: {:.2} s, {memory_mib} MiB; the files: {:.2} s",
                clock.as_secs_f64(),
                floor.as_secs_f64()
            );
            ratios.push(clock.as_secs_f64() / floor.as_secs_f64());
            if line[0] == "list" {
                ensure!(said.contains(&format!("working-set  ({count} trials")), "{said}");
            }
            if line[0] == "run" {
                ensure!(said.lines().filter(|line| line.contains("missing")).count() == 0, "{said}");
            }
        }
    }
    if full {
        for (line, ratios) in all.iter().zip(&ratios) {
            let name = format!("{} of {count} records ÷ reading them", line[0]);
            println!("{}", Threshold::AtMost(MOST).judge(&name, ratios).lines());
        }
    }
    Ok(())
}

/// Writes `wanted` records of the working-set study. Gives how many each cell has, their files, and the
/// bytes.
fn make(folder: &Path, wanted: u32) -> Result<(u32, Vec<PathBuf>, u64)> {
    let experiment = Experiment::parse(PLAN, "tiny", &[])?;
    let cells: Vec<&Cell> = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells).collect();
    let repeats = wanted.div_ceil(cells.len() as u32);
    let results = folder.join("results/working-set");
    fs::create_dir_all(&results)?;
    fs::write(results.join("plan.toml"), PLAN)?;
    let (mut files, mut bytes) = (Vec::new(), 0);
    for cell in cells {
        let simulated = |repeat: u32| {
            let trial = Trial { cell, repeat, twin: false };
            simulate::trial(&experiment.name, &trial, experiment.seed, &Default::default()).0
        };
        let simulated: Vec<Record> = (0..DIFFERENT.min(repeats)).map(simulated).collect();
        for repeat in 0..repeats {
            let record = &simulated[(repeat % DIFFERENT) as usize];
            let seed = Trial { cell, repeat, twin: false }.seed(experiment.seed);
            let mut record = Record { repeat, seed, verdict: Verdict::Valid, ..record.clone() };
            record.provenance.started_unix_s = 1_700_000_000 + u64::from(repeat) * 60;
            record.machine.memory_available = Bytes(17_000_000_000 + u64::from(repeat) * 4096);
            let folder = results.join(cell.id()).join(repeat.to_string());
            fs::create_dir_all(&folder)?;
            let text = serde_json::to_string_pretty(&record)? + "\n";
            bytes += text.len() as u64;
            files.push(folder.join("record.json"));
            fs::write(files.last().expect("it was pushed"), text)?;
        }
    }
    Ok((repeats, files, bytes))
}

/// How long it takes to read all files and to see that they are JSON.
fn look_through(files: &[PathBuf]) -> Result<Duration> {
    let began = Instant::now();
    let look = |piece: &[PathBuf]| -> Vec<Result<()>> {
        let one = |path: &PathBuf| {
            let text = fs::read(path).with_context(|| path.display().to_string())?;
            let _: serde::de::IgnoredAny = serde_json::from_slice(&text)?;
            Ok(())
        };
        piece.iter().map(one).collect()
    };
    processors::share(files, look).into_iter().collect::<Result<Vec<()>>>()?;
    Ok(began.elapsed())
}

struct Took {
    clock: Duration,
    memory_mib: u64,
    said: String,
}

/// Runs the program to its end, and looks at its memory meanwhile.
fn run(folder: &Path, line: &[String]) -> Result<Took> {
    let began = Instant::now();
    let mut command = Command::new(PROGRAM);
    command.args(line).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut output = child.stdout.take().context("it has an output")?;
    let reading = std::thread::spawn(move || {
        let mut said = String::new();
        output.read_to_string(&mut said).map(|_| said)
    });
    let status = format!("/proc/{}/status", child.id());
    let mut memory_mib = 0;
    let ended = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let most = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let most = most.and_then(|most| most.trim().trim_end_matches(" kB").parse::<u64>().ok());
        memory_mib = memory_mib.max(most.unwrap_or(0) >> 10);
        match child.try_wait()? {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let clock = began.elapsed();
    let said = reading.join().expect("reading does not panic")?;
    ensure!(ended.code().is_some_and(|code| code < 2), "{}: {ended}", line.join(" "));
    Ok(Took { clock, memory_mib, said })
}
