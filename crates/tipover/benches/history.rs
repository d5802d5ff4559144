//! What it costs to write down everything that sessions see: throughput with a history and without, turn by
//! turn, for transfers on the null target and new keys and transfers on a PostgreSQL of our own.
//! `cargo bench -p tipover --bench history`
//!
//! On PostgreSQL at least 0.95 of the throughput must stay. On the null target, where an operation takes less
//! time than writing it down can, the cost is said in nanoseconds instead. Without `--bench`, or with
//! `--test`, it runs tiny, and checks that everything was written down and can be judged; it then asserts no
//! time.

#[allow(dead_code)]
#[path = "../src/clock.rs"]
mod clock;
#[allow(dead_code, unused_imports)]
#[path = "../src/drive/mod.rs"]
mod drive;
#[allow(dead_code)]
#[path = "../src/history.rs"]
mod history;
#[allow(dead_code, unused_imports)]
#[path = "../src/processors.rs"]
mod processors;

use anyhow::{Context, Result, ensure};
use clock::Clock;
use drive::Plan;
use history::{HistoryWriter, Pace};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::check::{Evidence, KeyScan, Source, Verdict};
use tipover_core::experiment::{Retries, Spec};
use tipover_core::measure::{Threshold, median};
use tipover_core::target::Target;
use tipover_core::units::Tick;
use tipover_core::workload::bank::{Bank, BankSpec};
use tipover_core::workload::{Dataset, Ledger, Records, Shape, Transfers, Workload};
use tipover_lab::recipe::{self, ServerOptions};

/// Of the throughput without a history.
const KEPT: f64 = 0.95;

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
    let pairs = turns(&null, &path, full)?;
    let ns = |rate: f64| 1e9 * f64::from(null.sessions) / rate;
    println!(
        "null target: {:.0} ns and {:.0} ns an operation with and without a history",
        ns(middle(&pairs, |pair| pair.0)),
        ns(middle(&pairs, |pair| pair.1))
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
    let (tables, ledger) = (Dataset::checks(bank.clone()), Ledger::new(1));
    let keys = Case { target: target.as_ref(), dataset: &tables, workload: &ledger, sessions: 8 };
    let moves = Case { target: target.as_ref(), dataset: &dataset, workload: &transfers, sessions: 8 };
    for (name, case) in [("the ledger", &keys), ("transfers", &moves)] {
        let accounts: Vec<(u64, i64)> =
            (0..1_000).map(|n| bank.account(n)).map(|account| (account.place, account.balance)).collect();
        target.prepare(&accounts)?;
        let pairs = turns(case, &path, full)?;
        println!(
            "PostgreSQL, {name}: {:.0}/s with a history, {:.0}/s without",
            middle(&pairs, |pair| pair.0),
            middle(&pairs, |pair| pair.1)
        );
        if full {
            let ratios: Vec<f64> = pairs.iter().map(|(with, without)| with / without).collect();
            let name = format!("PostgreSQL, {name}: throughput with a history ÷ without");
            println!("{}", Threshold::AtLeast(KEPT).judge(&name, &ratios).lines());
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

/// The middle one of a figure of every pair.
fn middle(pairs: &[(f64, f64)], of: fn(&(f64, f64)) -> f64) -> f64 {
    median(&pairs.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// Operations per second with a history and without, a pair a round. In a round each has two turns, the outer
/// and the inner ones of four, so that a drift of the machine meets both.
fn turns(case: &Case<'_>, path: &Path, full: bool) -> Result<Vec<(f64, f64)>> {
    let (time, rounds) = if full { (Duration::from_secs(1), 12) } else { (Duration::from_millis(100), 1) };
    let mut first = 0;
    // Keys and transfers are used once, over all turns.
    let records = Records::new(0);
    let mut run = |history: bool| {
        first += 1 << 32;
        rate(case, &records, first, time, history.then_some(path))
    };
    let round = |outer: bool| {
        let (begin, inner) = (run(outer)?, run(!outer)? + run(!outer)?);
        let outer_both = begin + run(outer)?;
        let (with, without) = if outer { (outer_both, inner) } else { (inner, outer_both) };
        Ok((with / 2.0, without / 2.0))
    };
    (0..rounds).map(|number| number % 2 == 0).map(round).collect()
}

fn rate(case: &Case<'_>, records: &Records, first: u64, time: Duration, path: Option<&Path>) -> Result<f64> {
    let writer = path.map(|path| HistoryWriter::create(path, Pace::Groups)).transpose()?;
    let Case { target, dataset, workload, sessions } = *case;
    let plan = Plan::closed(target, dataset, workload, records, sessions, Clock::start());
    let retries = Retries { most: 1_000, ..plan.retries };
    let plan = Plan { first, retries, history: writer.as_ref(), ..plan };
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
        if let Shape::Checks(_) = dataset.shape {
            let rows = target.read_keys().context("reading back")?;
            let entries = kept.history.entries.iter();
            let written: HashSet<u64> = entries.filter_map(|entry| Some(entry.op.written()?.0)).collect();
            let rows = rows.into_iter().filter(|row| written.contains(&row.0)).collect();
            let keys = vec![KeyScan { source: Source::Survivors, pass: 1, at: Tick(u64::MAX), rows }];
            let judgement = Evidence { keys, ..Evidence::default() }.judge(kept.history)?;
            ensure!(judgement.verdict == Verdict::Valid, "{}", judgement.summary());
        }
    }
    Ok(done as f64 / seconds)
}
