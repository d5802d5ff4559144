//! `tipover pgbench` beside pgbench, turn by turn on one server over TCP with 8 clients: transactions per
//! second, and the client's processor time for each. Select-only with prepared statements is all client;
//! TPC-B spends most of its time in the server. Without `--bench`, or with `--test`, it runs tiny and checks
//! counts.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use tipover_core::measure::Threshold;
use tipover_lab::recipe::{Postgres, Server, ServerOptions};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tipover");
const CLIENTS: &str = "8";
const THREADS: &str = "2";

struct Case {
    name: &'static str,
    options: &'static [&'static str],
}

const CASES: [Case; 2] = [
    Case { name: "select-only, prepared", options: &["-S", "-M", "prepared"] },
    Case { name: "tpcb-like, prepared", options: &["-b", "tpcb-like", "-M", "prepared"] },
];

/// Transactions per second, and microseconds of the client's processor time for each.
#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    cpu_us: f64,
}

fn main() -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let found = Postgres::all().into_iter().find(|found| found.programs.join("pgbench").exists());
    let Some(found) = found else {
        println!("SKIPPED: no PostgreSQL with its pgbench is installed (apt-get install postgresql)");
        return ExitCode::SUCCESS;
    };
    let settings = vec![("shared_buffers".to_string(), "256MB".to_string())];
    let server = found.start(&ServerOptions { settings, ..ServerOptions::default() });
    let server = server.expect("a throw-away server starts");
    let pgbench = found.programs.join("pgbench");
    // As many branches as clients, or they would wait for each other and not for the generator.
    run(&server, Path::new(PROGRAM), &["-i", "-q", "-s", CLIENTS]);
    let (rounds, length) = if full { (10, ["-T", "3"]) } else { (1, ["-t", "50"]) };
    println!("{}; {CLIENTS} clients, {rounds} rounds; ours ÷ pgbench", server.version());
    for case in &CASES {
        compare(&server, &pgbench, case, rounds, length);
    }
    ExitCode::SUCCESS
}

/// Runs pairs, the first of a round being now the one and now the other, and judges their ratios.
fn compare(server: &Server, pgbench: &Path, case: &Case, rounds: u32, length: [&str; 2]) {
    let line = [&["-n", "-c", CLIENTS, "-j", THREADS], case.options, &length].concat();
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (ours, theirs) = if round % 2 == 0 {
            let ours = run(server, Path::new(PROGRAM), &line);
            (ours, run(server, pgbench, &line))
        } else {
            let theirs = run(server, pgbench, &line);
            (run(server, Path::new(PROGRAM), &line), theirs)
        };
        rates.push(ours.rate / theirs.rate);
        costs.push(ours.cpu_us / theirs.cpu_us);
        println!(
            "  {}: {:.0}/s and {:.0}/s (ours and pgbench), {:.2} and {:.2} us each",
            case.name, ours.rate, theirs.rate, ours.cpu_us, theirs.cpu_us
        );
    }
    if rounds > 1 {
        let rate = Threshold::AtLeast(1.0).judge(&format!("{}: throughput ÷ pgbench's", case.name), &rates);
        let name = format!("{}: client's processor time ÷ pgbench's", case.name);
        println!("{}\n{}", rate.lines(), Threshold::AtMost(0.8).judge(&name, &costs).lines());
    }
}

/// Runs one of the two to its end.
fn run(server: &Server, program: &Path, line: &[&str]) -> Figures {
    let mut command = Command::new(program);
    if program == Path::new(PROGRAM) {
        command.arg("pgbench");
    }
    let address = server.address();
    command.args(line).stdin(Stdio::null());
    command.env("PGHOST", address.ip().to_string()).env("PGPORT", address.port().to_string());
    command.env("PGUSER", "tipover").env("PGPASSWORD", server.password()).env("PGDATABASE", "tipover");
    let before = children_s();
    let output = command.output().expect("the program starts");
    let cpu_s = (children_s() - before).max(0.01);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {err}", program.display());
    let number = |mark: &str| -> Option<f64> {
        let rest = out.split_once(mark)?.1;
        rest.split(['/', ' ', '\n']).next()?.parse().ok()
    };
    let (count, rate) = (number("actually processed: "), number("tps = "));
    let (count, rate) = (count.unwrap_or(1.0), rate.unwrap_or(1.0));
    assert!(line.contains(&"-i") || count >= 400.0, "too little was done: {out}");
    Figures { rate, cpu_us: cpu_s * 1e6 / count }
}

/// Processor time of all children that were waited for, in seconds.
fn children_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("a process has one");
    // Fields 16 and 17; the program's name, field 2, may hold blanks and ends with the last bracket.
    let (_, fields) = text.rsplit_once(')').expect("it has a name");
    let ticks = fields.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0));
    ticks.sum::<f64>() / 100.0
}
