//! `tipover disk bench` beside fio on one file: requests per second, and processor time for each. Turn by
//! turn, because the machine changes as well; `--test` runs it tiny.

use std::path::Path;
use std::process::{Command, ExitCode};

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
    let tiny = std::env::args().any(|a| a == "--test");
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: fio is not installed (apt-get install fio): there is nobody to compare with");
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on the real disk");
    let (rounds, seconds, size) = if tiny { (1, 1, "16 MiB") } else { (7, 3, "1 GiB") };
    let made = Command::new(PROGRAM)
        .current_dir(folder.path())
        .args(["disk", "bench", ".", "--size", size, "--time", "100 ms", "--json"])
        .output()
        .expect("the program runs");
    if !made.status.success() {
        println!("SKIPPED: no direct I/O here: {}", String::from_utf8_lossy(&made.stderr));
        return ExitCode::SUCCESS;
    }
    println!(
        "4 KiB random direct reads of one file of {size}; medians of {rounds} rounds, ours and fio in turns"
    );
    for case in CASES {
        let (mut rates, mut costs, mut last) = (Vec::new(), Vec::new(), None);
        for _ in 0..rounds {
            let (Some(ours), Some(theirs)) =
                (ours(folder.path(), &case, seconds), fio(folder.path(), &case, seconds))
            else {
                println!("SKIPPED: {} does not run here", case.engine);
                break;
            };
            rates.push(ours.rate / theirs.rate);
            costs.push(ours.cpu_us / theirs.cpu_us);
            last = Some((ours, theirs));
        }
        let Some((ours, theirs)) = last else { continue };
        println!(
            "  {:>8} {} x {:>2}: {:>7.0}/s and {:>7.0}/s (ours and fio, last round), {:.2} and {:.2} us each; \
             ratio of rates {}, of processor time {}",
            case.engine,
            case.threads,
            case.depth,
            ours.rate,
            theirs.rate,
            ours.cpu_us,
            theirs.cpu_us,
            spread(&mut rates),
            spread(&mut costs)
        );
    }
    ExitCode::SUCCESS
}

fn spread(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3}-{:.3})", values[values.len() / 2], values[0], values[values.len() - 1])
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
