//! PostgreSQL beside its peers, turn by turn on one server over TCP:
//! `cargo bench -p tipover-targets --bench postgres`. Prepared point select with 8 sessions: pgbench and
//! sysbench. YCSB's workload C with 10 fields of 100 bytes: go-ycsb. Ratios only. Without `--bench`, or with
//! `--test`, it runs tiny and checks counts.

mod peers;

use anyhow::{Context, Result, ensure};
use peers::program::Ran;
use peers::{Held, Rate, SESSIONS, Side, THREADS, Threads, in_full, or_skip, ours};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tipover_core::measure::Threshold;
use tipover_core::op::{Fields, Op};
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::ycsb::KeyHash;
use tipover_core::workload::{Dataset, Keys, Records, Workload, Ycsb};
use tipover_lab::recipe::{Postgres, Server, ServerOptions};

const PGBENCH_EACH: &str = "pgbench with a thread for each";

const HELD: [Held<'static>; 3] = [
    Held { peer: "pgbench", throughput: Threshold::AtLeast(1.0), client_cpu: Some(Threshold::AtMost(0.85)) },
    Held { peer: PGBENCH_EACH, throughput: Threshold::AtLeast(1.0), client_cpu: None },
    Held { peer: "sysbench", throughput: Threshold::AtLeast(1.0), client_cpu: None },
];

fn main() -> Result<()> {
    let full = in_full();
    let found = match Postgres::find(None) {
        Ok(found) => found,
        Err(missing) => {
            println!("SKIPPED: {missing}");
            return Ok(());
        }
    };
    let settings = vec![("shared_buffers".to_string(), "256MB".to_string())];
    let server = found.start(&ServerOptions { settings, ..ServerOptions::default() })?;
    println!("{}", server.version());
    let (rounds, time) = if full { (8, Duration::from_secs(3)) } else { (1, Duration::from_millis(100)) };
    point_select(&server, &found.programs, rounds, time)?;
    workload_c(&server, full, rounds, time)
}

/// As many as pgbench has at scale 1.
const ROWS: u64 = 100_000;

/// The peers' rows, which are numbered from 1, in uniform order.
struct PeersRows(Ycsb);

impl Workload for PeersRows {
    fn op(&self, number: u64, records: &Records) -> Op {
        match self.0.op(number, records) {
            Op::Read { record, .. } => Op::Read { record: record + 1, fields: Fields::One(0) },
            other => other,
        }
    }
}

/// Each peer reads its own table, and we read the same rows of it through a view with YCSB's names, which the
/// server's planner resolves when the statement is prepared: the server does the same work for both.
fn point_select(server: &Server, programs: &Path, rounds: usize, time: Duration) -> Result<()> {
    let peers = [
        (
            "pgbench",
            prepare_pgbench(server, programs),
            "SELECT aid AS ycsb_key, abalance AS field0 FROM pgbench_accounts",
        ),
        ("sysbench", prepare_sysbench(server), "SELECT id AS ycsb_key, c AS field0 FROM sbtest1"),
    ];
    for (name, prepared, rows) in peers {
        if or_skip(name, prepared).is_none() {
            continue;
        }
        let dataset = Dataset {
            table: format!("point_{name}"),
            fields: 1,
            keys: Keys { prefix: String::new(), hash: KeyHash::Ordered, digits: 1 },
            ..Dataset::ycsb(ROWS)
        };
        server.query(&format!("CREATE VIEW {} AS {rows}", dataset.table))?;
        let target = tipover_targets::start(&peers::spec("postgres", &server.url())?, Path::new("/"))?;
        let workload = PeersRows(Ycsb::reads(&dataset, Requests::Uniform, 1));
        let side = |threads| {
            let (target, dataset, workload) = (target.as_ref(), &dataset, &workload);
            Box::new(move || ours(target, dataset, workload, threads, time))
        };
        let mut sides: Vec<Side<'_>> =
            vec![("ours", side(Threads::Each)), ("ours on two shared threads", side(Threads::Shared))];
        if name == "pgbench" {
            sides.push((name, Box::new(|| run_pgbench(server, programs, THREADS, time))));
            // Its manual advises few threads; it is asked with one for each session too, as we run and
            // sysbench.
            sides.push((PGBENCH_EACH, Box::new(|| run_pgbench(server, programs, SESSIONS, time))));
        } else {
            sides.push((name, Box::new(|| run_sysbench(server, time))));
        }
        let sides = peers::in_turns(server, rounds, sides)?;
        let what = format!("PostgreSQL, prepared point select on {name}'s table, 8 sessions");
        peers::print(&what, &sides, &HELD);
    }
    Ok(())
}

fn workload_c(server: &Server, full: bool, rounds: usize, time: Duration) -> Result<()> {
    let records = if full { 100_000 } else { 2_000 };
    let keys = Keys { hash: KeyHash::GoYcsb, ..Keys::default() };
    let dataset = Dataset { keys, ..Dataset::ycsb(records) };
    let target = loaded(server, &dataset)?;
    let workload = Ycsb::reads(&dataset, Requests::Zipfian, 1);
    let peer = or_skip("go-ycsb", peers::go_ycsb::program(full));
    let port = server.address().port().to_string();
    let connection = [
        ("pg.host", "127.0.0.1"),
        ("pg.port", port.as_str()),
        ("pg.user", "tipover"),
        ("pg.password", server.password()),
        ("pg.db", "tipover"),
        ("pg.sslmode", "disable"),
    ];
    let mine = || ours(target.as_ref(), &dataset, &workload, Threads::Each, time);
    let mut sides: Vec<Side<'_>> = vec![("ours", Box::new(mine))];
    if let Some(program) = &peer {
        let operations = if full { 100_000 } else { 1_000 };
        let run = move || peers::run_go_ycsb(program, "pg", &connection, records, operations);
        sides.push(("go-ycsb", Box::new(run)));
    }
    let sides = peers::in_turns(server, rounds, sides)?;
    peers::print("PostgreSQL, workload C, 8 sessions", &sides, &[peers::GO_YCSB]);
    Ok(())
}

fn loaded(server: &Server, dataset: &Dataset) -> Result<Box<dyn tipover_core::target::Target>> {
    let spec = peers::spec("postgres", &server.url())?;
    let target = tipover_targets::start(&spec, Path::new("/"))?;
    target.load(dataset, 0..dataset.records)?;
    target.settle()?;
    Ok(target)
}

/// A program of the server's, or of the system's.
fn program(programs: &Path, server: &Server, name: &str) -> Command {
    let own = programs.join(name);
    let mut command = if own.exists() { Command::new(own) } else { Command::new(name) };
    command.env("PGPASSWORD", server.password()).args(["-h", "127.0.0.1", "-U", "tipover"]);
    command.args(["-p", &server.address().port().to_string()]);
    command
}

fn prepare_pgbench(server: &Server, programs: &Path) -> Result<()> {
    Ran::to_end(program(programs, server, "pgbench").args(["-i", "-q", "-s", "1", "tipover"])).map(|_| ())
}

fn run_pgbench(server: &Server, programs: &Path, threads: usize, time: Duration) -> Result<Rate> {
    let (clients, threads) = (SESSIONS.to_string(), threads.to_string());
    let seconds = time.as_secs().max(1).to_string();
    let mut command = program(programs, server, "pgbench");
    command.args(["-S", "-M", "prepared", "-n", "-c", &clients, "-j", &threads, "-T", &seconds, "tipover"]);
    let ran = Ran::to_end(&mut command)?;
    let count = number_after(&ran.output, "number of transactions actually processed: ")?;
    ensure!(count > 0.0, "pgbench did nothing: {}", ran.output);
    Ok(Rate::of(&ran, number_after(&ran.output, "tps = ")?, count))
}

fn sysbench(server: &Server) -> Command {
    let mut command = Command::new("sysbench");
    let port = server.address().port();
    command.args(["oltp_point_select", "--db-driver=pgsql", "--pgsql-host=127.0.0.1", "--tables=1"]);
    command.args([
        "--table-size=100000",
        "--rand-type=uniform",
        "--pgsql-user=tipover",
        "--pgsql-db=tipover",
    ]);
    command.arg(format!("--pgsql-port={port}")).arg(format!("--pgsql-password={}", server.password()));
    command
}

fn prepare_sysbench(server: &Server) -> Result<()> {
    Ran::to_end(sysbench(server).arg("prepare")).map(|_| ()).context("apt-get install sysbench")
}

fn run_sysbench(server: &Server, time: Duration) -> Result<Rate> {
    let mut command = sysbench(server);
    command.arg(format!("--threads={SESSIONS}")).arg(format!("--time={}", time.as_secs().max(1))).arg("run");
    let ran = Ran::to_end(&mut command)?;
    let count = number_after(&ran.output, "transactions:")?;
    let per_s = number_after(ran.output.split_once("transactions:").context("no transactions")?.1, "(")?;
    Ok(Rate::of(&ran, per_s, count))
}

fn number_after(text: &str, mark: &str) -> Result<f64> {
    let rest = text.split_once(mark).with_context(|| format!("no \"{mark}\" in {text}"))?.1.trim_start();
    let digits: String =
        rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    Ok(digits.parse()?)
}
