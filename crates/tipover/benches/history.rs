//! What it costs to write down everything that sessions see: throughput with a history and without, turn by
//! turn, for transfers on the null target and new keys and transfers on a PostgreSQL of our own.
//! `cargo bench -p tipover --bench history`
//!
//! The limit is 5 % on PostgreSQL. On the null target, where an operation takes less time than writing it
//! down can, the cost is said in nanoseconds instead. Without `--bench`, or with `--test`, it runs tiny, and
//! checks that everything was written down and can be judged; it then asserts no time.

#[allow(dead_code)]
#[path = "../src/clock.rs"]
mod clock;
#[allow(dead_code, unused_imports)]
#[path = "../src/drive/mod.rs"]
mod drive;
#[allow(dead_code)]
#[path = "../src/history.rs"]
mod history;

use anyhow::{Context, Result, ensure};
use clock::Clock;
use drive::Plan;
use history::{HistoryWriter, Pace};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::check::{Evidence, KeyScan, Source, Verdict};
use tipover_core::experiment::Spec;
use tipover_core::target::Target;
use tipover_core::units::Tick;
use tipover_core::workload::bank::{Bank, BankSpec};
use tipover_core::workload::{Dataset, NewKeys, Records, Transfers, Workload};
use tipover_lab::recipe::{self, ServerOptions};

const LIMIT: f64 = 0.05;

fn main() -> Result<()> {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(history::HISTORY);
    let bank = Arc::new(Bank::new(BankSpec { accounts: 1_000, ..BankSpec::default() })?);
    let dataset = Dataset::of_bank(bank.clone());
    println!("load average {}", std::fs::read_to_string("/proc/loadavg")?.trim());

    let transfers = Transfers::new(bank.clone(), 1);
    let null = Case { target: &tipover_targets::Null, dataset: &dataset, workload: &transfers, sessions: 2 };
    let (with, without) = turns(&null, &path, full)?;
    println!(
        "null target: {:.0} ns and {:.0} ns an operation with and without a history",
        1e9 * f64::from(null.sessions) / with,
        1e9 * f64::from(null.sessions) / without
    );

    let found = match recipe::Postgres::find(None) {
        Ok(found) => found,
        Err(missing) => {
            println!("SKIPPED: {missing}");
            return Ok(());
        }
    };
    let server = found.start(&ServerOptions::default())?;
    let spec: Spec = serde_json::from_value(serde_json::json!({
        "target": {"kind": "postgres", "address": server.url()},
        "disk": {"size": 0},
        "workload": {"kind": "bank", "bank": {"accounts": 1000}},
        "load": {"sessions": 8},
    }))?;
    let target = tipover_targets::start(&spec, Path::new(""))?;
    let ledger = Dataset::ledger();
    let keys = Case { target: target.as_ref(), dataset: &ledger, workload: &NewKeys, sessions: 8 };
    let moves = Case { target: target.as_ref(), dataset: &dataset, workload: &transfers, sessions: 8 };
    for (name, case) in [("new keys", &keys), ("transfers", &moves)] {
        let accounts: Vec<(u64, i64)> =
            (0..1_000).map(|n| bank.account(n)).map(|account| (account.place, account.balance)).collect();
        target.open_checks()?.prepare(&accounts)?;
        let (with, without) = turns(case, &path, full)?;
        println!("PostgreSQL, {name}: {with:.0}/s with a history, {without:.0}/s without");
        if full {
            let cost = 1.0 - with / without;
            println!("  costs {:.1} %, limit {:.0} %", 100.0 * cost, 100.0 * LIMIT);
        }
    }
    drop(server);
    Ok(())
}

struct Case<'a> {
    target: &'a dyn Target,
    dataset: &'a Dataset,
    workload: &'a dyn Workload,
    sessions: u32,
}

/// Operations per second with a history and without: medians of turns.
fn turns(case: &Case<'_>, path: &Path, full: bool) -> Result<(f64, f64)> {
    let (time, rounds) = if full { (Duration::from_secs(2), 9) } else { (Duration::from_millis(200), 1) };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut first = 0;
    // Keys and transfers are used once, over all turns.
    let records = Records::new(0);
    for round in 0..rounds {
        let mut run = |history: bool| {
            first += 1 << 32;
            rate(case, &records, first, time, history.then_some(path))
        };
        // Neither always goes first.
        let (a, b) = (run(round % 2 == 0)?, run(round % 2 == 1)?);
        let (kept, plain) = if round % 2 == 0 { (a, b) } else { (b, a) };
        with.push(kept);
        without.push(plain);
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    Ok((median(with), median(without)))
}

fn rate(case: &Case<'_>, records: &Records, first: u64, time: Duration, path: Option<&Path>) -> Result<f64> {
    let writer = path.map(|path| HistoryWriter::create(path, Pace::Groups)).transpose()?;
    let Case { target, dataset, workload, sessions } = *case;
    let plan = Plan::closed(target, dataset, workload, records, sessions, Clock::start());
    let plan = Plan { first, retries: 1_000, history: writer.as_ref(), ..plan };
    let mut begun = Tick(0);
    let tally = drive::run(&plan, |sessions| {
        begun = plan.clock.now();
        std::thread::sleep(time);
        let tally = sessions.cut();
        ensure!(sessions.drain(), "sessions did not end");
        Ok(tally)
    })??;
    let (done, seconds) = (tally.books.done(), tally.end.since(begun).as_secs_f64());
    ensure!(done > 0, "nothing was done: {:?}", tally.books.failures());
    if let (Some(writer), Some(path)) = (writer, path) {
        writer.finish()?;
        let kept = history::read(path)?;
        ensure!(
            !kept.history.is_cut_short && kept.history.problems.is_empty(),
            "{:?}",
            kept.history.problems
        );
        ensure!(kept.history.done() as u64 >= done, "{} of {done} were written down", kept.history.done());
        if let tipover_core::workload::Shape::Ledger = dataset.shape {
            let rows = target.open_checks()?.read_ledger().context("reading back")?;
            let written: std::collections::HashSet<u64> = kept
                .history
                .entries
                .iter()
                .filter_map(|entry| match entry.operation {
                    tipover_core::check::Operation::Write { key, .. } => Some(key),
                    _ => None,
                })
                .collect();
            let rows = rows.into_iter().filter(|row| written.contains(&row.0)).collect();
            let keys = vec![KeyScan { source: Source::Survivors, pass: 1, at: Tick(u64::MAX), rows }];
            let judgement = Evidence { keys, ..Evidence::default() }.judge(kept.history)?;
            ensure!(judgement.verdict == Verdict::Valid, "{}", judgement.summary());
        }
    }
    Ok(done as f64 / seconds)
}
