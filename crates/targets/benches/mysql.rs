//! MariaDB beside go-ycsb, turn by turn on one server over TCP:
//! `cargo bench -p tipover-targets --bench mysql`. YCSB's workload C with 10 fields of 100 bytes, 8 sessions.
//! Ratios only. Without `--bench`, or with `--test`, it runs tiny and checks counts.

mod peers;

use anyhow::Result;
use peers::{Side, Threads, in_full, or_skip, ours};
use std::path::Path;
use std::time::Duration;
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::ycsb::KeyHash;
use tipover_core::workload::{Dataset, Keys, Ycsb};
use tipover_lab::recipe::{Mariadb, ServerOptions};

fn main() -> Result<()> {
    let full = in_full();
    let records = if full { 100_000 } else { 2_000 };
    let found = match Mariadb::find(None) {
        Ok(found) => found,
        Err(missing) => {
            println!("SKIPPED: {missing}");
            return Ok(());
        }
    };
    let settings = vec![("innodb_buffer_pool_size".to_string(), "512M".to_string())];
    let server = found.start(&ServerOptions { settings, ..ServerOptions::default() })?;
    println!("{}", server.version());
    let (rounds, time) = if full { (8, Duration::from_secs(3)) } else { (1, Duration::from_millis(100)) };

    let keys = Keys { hash: KeyHash::GoYcsb, ..Keys::default() };
    let dataset = Dataset { keys, ..Dataset::ycsb(records) };
    let target = tipover_targets::start(&peers::spec("mysql", &server.url())?, Path::new("/"))?;
    target.load(&dataset, 0..records)?;
    target.settle()?;
    let workload = Ycsb::reads(&dataset, Requests::Zipfian, 1);
    let peer = or_skip("go-ycsb", peers::go_ycsb::program(full));
    let port = server.address().port().to_string();
    let connection = [
        ("mysql.host", "127.0.0.1"),
        ("mysql.port", port.as_str()),
        ("mysql.user", "tipover"),
        ("mysql.password", server.password()),
        ("mysql.db", "tipover"),
    ];
    let side = |threads| {
        let (target, dataset, workload) = (target.as_ref(), &dataset, &workload);
        Box::new(move || ours(target, dataset, workload, threads, time))
    };
    let mut sides: Vec<Side<'_>> =
        vec![("ours", side(Threads::Each)), ("ours on two shared threads", side(Threads::Shared))];
    if let Some(program) = &peer {
        let operations = if full { 80_000 } else { 1_000 };
        let run = move || peers::run_go_ycsb(program, "mysql", &connection, records, operations);
        sides.push(("go-ycsb", Box::new(run)));
    }
    let sides = peers::in_turns(&server, rounds, sides)?;
    peers::print("MariaDB, workload C, 8 sessions", &sides, &[peers::GO_YCSB]);
    Ok(())
}
