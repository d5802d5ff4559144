//! MariaDB beside go-ycsb, turn by turn on one server over TCP:
//! `cargo bench -p tipover-targets --bench mysql`. YCSB's workload C with 10 fields of 100 bytes, 8 sessions.
//! Ratios only. Without `--bench`, or with `--test`, it runs tiny and checks counts.

mod peers;

use anyhow::Result;
use peers::{Threads, in_full, or_skip, ours};
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
    let (rounds, time) = if full { (5, Duration::from_secs(4)) } else { (1, Duration::from_millis(100)) };

    let keys = Keys { hash: KeyHash::GoYcsb, ..Keys::default() };
    let dataset = Dataset { keys, ..Dataset::ycsb(records) };
    let target = tipover_targets::start(&peers::spec("mysql", &server.url())?, Path::new("/"))?;
    target.load(&dataset, 0..records)?;
    target.settle()?;
    let workload = Ycsb::reads(&dataset, Requests::Zipfian, 1);
    let peer = or_skip("go-ycsb", peers::go_ycsb::program(full));
    let [mut each, mut shared, mut theirs] = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (rates, threads) in [(&mut each, Threads::Each), (&mut shared, Threads::Shared)] {
            let run = || ours(target.as_ref(), &dataset, &workload, threads, time);
            rates.push(peers::beside(&server, run)?);
        }
        if let Some(program) = &peer {
            let operations = if full { 80_000 } else { 1_000 };
            let port = server.address().port().to_string();
            let connection = [
                ("mysql.host", "127.0.0.1"),
                ("mysql.port", port.as_str()),
                ("mysql.user", "tipover"),
                ("mysql.password", server.password()),
                ("mysql.db", "tipover"),
            ];
            let run = || peers::run_go_ycsb(program, "mysql", &connection, records, operations);
            theirs.push(peers::beside(&server, run)?);
        }
    }
    let beside = [("go-ycsb", theirs), ("ours on two shared threads", shared)];
    peers::print("workload C, 8 sessions", &each, &beside);
    Ok(())
}
