//! `tipover disk bench` beside fio on one file: requests per second, and processor time for each. Turn by
//! turn, the first of a round being now the one and now the other, because the machine changes as well, and
//! on two places: the machine's own disk, where the device decides, and memory, where only the generator's
//! own cost is left. Without `--bench`, or with `--test`, it runs tiny; `--memory` leaves the disk out.

use std::path::Path;
use std::process::{Command, ExitCode};

use tipover_core::measure::Threshold;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tipover");

struct Case {
    engine: &'static str,
    threads: u32,
    depth: u32,
}

const CASES: [Case; 4] = [
    Case { engine: "psync", threads: 1, depth: 1 },
    Case { engine: "psync", threads: 32, depth: 1 },
    Case { engine: "io_uring", threads: 1, depth: 1 },
    Case { engine: "io_uring", threads: 1, depth: 32 },
];

/// Requests per second, and microseconds of processor time for each.
#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    cpu_us: f64,
}

fn main() -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|a| a == flag);
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: fio is not installed (apt-get install fio): there is nobody to compare with");
        return ExitCode::SUCCESS;
    }
    let (rounds, seconds, size) =
        if asked("--bench") && !asked("--test") { (15, 1, "1 GiB") } else { (1, 1, "16 MiB") };
    println!("4 KiB random direct reads of one file of {size}; ours ÷ fio, {rounds} rounds");
    let places = [("the machine's disk", env!("CARGO_TARGET_TMPDIR")), ("memory", "/dev/shm")];
    for (place, folder) in places.into_iter().skip(usize::from(asked("--memory"))) {
        let folder = match tempfile::tempdir_in(folder) {
            Ok(folder) => folder,
            Err(error) => {
                println!("SKIPPED: {place}: {folder}: {error}");
                continue;
            }
        };
        let made = Command::new(PROGRAM)
            .current_dir(folder.path())
            .args(["disk", "bench", ".", "--size", size, "--time", "100 ms", "--json"])
            .output()
            .expect("the program runs");
        if !made.status.success() {
            println!("SKIPPED: {place}: no direct I/O: {}", String::from_utf8_lossy(&made.stderr));
            continue;
        }
        println!("{place}:");
        for case in &CASES {
            compare(place, folder.path(), case, rounds, seconds);
        }
    }
    ExitCode::SUCCESS
}

/// Runs `rounds` pairs of `seconds` each and prints their ratios.
fn compare(place: &str, folder: &Path, case: &Case, rounds: u32, seconds: u32) {
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let pair = if round % 2 == 0 {
            let ours = ours(folder, case, seconds);
            (ours, fio(folder, case, seconds))
        } else {
            let theirs = fio(folder, case, seconds);
            (ours(folder, case, seconds), theirs)
        };
        let (Some(ours), Some(theirs)) = pair else {
            println!("  SKIPPED: {} does not run here", case.engine);
            return;
        };
        rates.push(ours.rate / theirs.rate);
        costs.push(ours.cpu_us / theirs.cpu_us);
        if round + 1 == rounds {
            println!(
                "  {:>8} {} x {:>2}: {:>7.0}/s and {:>7.0}/s (ours and fio, last round), {:.2} and {:.2} us each",
                case.engine, case.threads, case.depth, ours.rate, theirs.rate, ours.cpu_us, theirs.cpu_us,
            );
        }
    }
    if rounds > 1 {
        let name = format!("{place}, {} {} × {}", case.engine, case.threads, case.depth);
        let rate = Threshold::AtLeast(0.98).judge(&format!("{name}: requests/s ÷ fio's"), &rates);
        let cost = Threshold::AtMost(1.0).judge(&format!("{name}: processor time ÷ fio's"), &costs);
        println!("{}\n{}", rate.lines(), cost.lines());
    }
}

fn ours(folder: &Path, case: &Case, seconds: u32) -> Option<Figures> {
    let output = Command::new(PROGRAM)
        .current_dir(folder)
        .args(["disk", "bench", ".", "--json", "--warm-up", "500 ms", "--engine", case.engine])
        .args(["--threads", &case.threads.to_string(), "--depth", &case.depth.to_string()])
        .args(["--time", &format!("{seconds} s")])
        .output()
        .ok()?;
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let measured = &record["measured"];
    let done = measured["books"]["operations"]["read_at"]["done"].as_f64()?;
    Some(Figures {
        rate: done / (measured["window_ns"].as_f64()? / 1e9),
        cpu_us: measured["cpu_ns"].as_f64()? / 1e3 / done,
    })
}

fn fio(folder: &Path, case: &Case, seconds: u32) -> Option<Figures> {
    let output = Command::new("fio")
        .current_dir(folder)
        .args(["--name=peer", "--filename=tipover-bench.data", "--readonly", "--rw=randread", "--bs=4k"])
        .args(["--direct=1", "--thread", "--time_based", "--ramp_time=0.5", "--group_reporting"])
        .args(["--norandommap", "--output-format=json", &format!("--ioengine={}", case.engine)])
        .args([format!("--numjobs={}", case.threads), format!("--iodepth={}", case.depth)])
        .arg(format!("--runtime={seconds}"))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &report["jobs"][0];
    let rate = job["read"]["iops"].as_f64()?;
    // Of one processor, summed over jobs by group_reporting as a mean: shares of the jobs' own time.
    let busy = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0 * f64::from(case.threads);
    (rate > 0.0).then_some(Figures { rate, cpu_us: busy / rate * 1e6 })
}
