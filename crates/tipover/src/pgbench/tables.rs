//! pgbench's four tables: making and filling them, and what is done to them before a run.

use super::options::{Method, Mistake, Options};
use crate::trial::Interrupt;
use anyhow::{Result, anyhow};
use std::time::{Duration, Instant};
use tipover_core::target::Complaint;
use tipover_core::workload::tpcb::{self, ACCOUNTS, TELLERS};
use tipover_targets::Console;

fn failed(complaint: Complaint) -> anyhow::Error {
    anyhow!("{}", complaint.words)
}

fn query(console: &mut Console, text: &str) -> Result<()> {
    console.query(text).map(drop).map_err(failed)
}

/// Carries out the steps of an initialisation.
///
/// # Errors
/// What the server said.
pub fn initialize(console: &mut Console, options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut steps: String = options.steps.clone().unwrap_or_default().replace(' ', "");
    if options.foreign_keys && !steps.contains('f') {
        steps.push('f');
    }
    if options.no_vacuum {
        steps = steps.replace('v', "");
    }
    let (mut done, begun) = (Vec::new(), Instant::now());
    for step in steps.chars() {
        let began = Instant::now();
        let name = match step {
            'd' => {
                eprintln!("dropping old tables...");
                query(
                    console,
                    "drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
                )?;
                "drop tables"
            }
            't' => {
                eprintln!("creating tables...");
                create(console, options)?;
                "create tables"
            }
            'g' => {
                eprintln!("generating data (client-side)...");
                generate_here(console, options, interrupt)?;
                "client-side generate"
            }
            'G' => {
                eprintln!("generating data (server-side)...");
                generate_there(console, options)?;
                "server-side generate"
            }
            'v' => {
                eprintln!("vacuuming...");
                for table in ["branches", "tellers", "accounts", "history"] {
                    query(console, &format!("vacuum analyze pgbench_{table}"))?;
                }
                "vacuum"
            }
            'p' => {
                eprintln!("creating primary keys...");
                let space = options.index_space.as_ref();
                let space =
                    space.map_or(String::new(), |space| format!(" using index tablespace {}", quoted(space)));
                for (table, key) in [("branches", "bid"), ("tellers", "tid"), ("accounts", "aid")] {
                    query(console, &format!("alter table pgbench_{table} add primary key ({key}){space}"))?;
                }
                "primary keys"
            }
            _ => {
                eprintln!("creating foreign keys...");
                for (table, key, other) in [
                    ("tellers", "bid", "branches"),
                    ("accounts", "bid", "branches"),
                    ("history", "bid", "branches"),
                    ("history", "tid", "tellers"),
                    ("history", "aid", "accounts"),
                ] {
                    let text = format!(
                        "alter table pgbench_{table} add constraint pgbench_{table}_{key}_fkey foreign key ({key}) \
                         references pgbench_{other}"
                    );
                    query(console, &text)?;
                }
                "foreign keys"
            }
        };
        done.push(format!("{name} {:.2} s", began.elapsed().as_secs_f64()));
        interrupt.check()?;
    }
    eprintln!("done in {:.2} s ({}).", begun.elapsed().as_secs_f64(), done.join(", "));
    Ok(())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn create(console: &mut Console, options: &Options) -> Result<()> {
    let scale = options.scale.unwrap_or(1);
    let unlogged = if options.unlogged { " unlogged" } else { "" };
    let space = options.table_space.as_ref();
    let space = space.map_or(String::new(), |space| format!(" tablespace {}", quoted(space)));
    let fill = format!(" with (fillfactor={})", options.fill_factor);
    let is_divided = options.partitions > 0;
    let method = options.method.unwrap_or(Method::Range);
    let divided = match method {
        Method::Range => " partition by range (aid)",
        Method::Hash => " partition by hash (aid)",
    };
    for tpcb::Table { name: table, columns, .. } in tpcb::tables(scale) {
        let end = match table {
            "history" => "",
            "accounts" if is_divided => divided,
            _ => fill.as_str(),
        };
        // A table that is divided holds nothing itself; its parts are unlogged.
        let unlogged = if is_divided && table == "accounts" { "" } else { unlogged };
        query(console, &format!("create{unlogged} table pgbench_{table}({columns}){end}{space}"))?;
    }
    if !is_divided {
        return Ok(());
    }
    eprintln!("creating {} partitions...", options.partitions);
    let (parts, rows) = (options.partitions, ACCOUNTS * scale);
    let size = rows.div_ceil(parts);
    for part in 1..=parts {
        let values = match method {
            Method::Range => {
                let from = if part == 1 { "minvalue".into() } else { ((part - 1) * size + 1).to_string() };
                let to = if part == parts { "maxvalue".into() } else { (part * size + 1).to_string() };
                format!("from ({from}) to ({to})")
            }
            Method::Hash => format!("with (modulus {parts}, remainder {})", part - 1),
        };
        let text = format!(
            "create{unlogged} table pgbench_accounts_{part} partition of pgbench_accounts for values {values}{fill}{space}"
        );
        query(console, &text)?;
    }
    Ok(())
}

/// All four tables, emptied together: one alone would be refused where foreign keys are.
const EMPTY: &str = "truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers";

fn generate_here(console: &mut Console, options: &Options, interrupt: &Interrupt) -> Result<()> {
    let scale = options.scale.unwrap_or(1);
    query(console, "begin")?;
    query(console, EMPTY)?;
    for branch in 1..=scale {
        query(console, &format!("insert into pgbench_branches(bid,bbalance) values({branch},0)"))?;
    }
    for teller in 1..=TELLERS * scale {
        let branch = (teller - 1) / TELLERS + 1;
        query(
            console,
            &format!("insert into pgbench_tellers(tid,bid,tbalance) values ({teller},{branch},0)"),
        )?;
    }
    // A frozen copy goes only into a table that was emptied in this transaction, and none into parts.
    let is_divided = console
        .query("select 1 from pg_partitioned_table where partrelid = 'pgbench_accounts'::regclass")
        .map_err(failed)?
        .len()
        == 1;
    let version = console.query("show server_version_num").map_err(failed)?;
    let version: u32 =
        version.into_iter().flatten().flatten().next().and_then(|v| v.parse().ok()).unwrap_or(0);
    let freeze = if version >= 140_000 && !is_divided { " with (freeze on)" } else { "" };
    let rows = ACCOUNTS * scale;
    let (mut next, mut progress, mut stopped) = (1, Progress::new(rows, options.quiet), false);
    let copied = console.copy(&format!("copy pgbench_accounts from stdin{freeze}"), |data| {
        const CHUNK: usize = 64 << 10;
        while next <= rows && data.len() < CHUNK {
            let branch = (next - 1) / ACCOUNTS + 1;
            data.extend_from_slice(format!("{next}\t{branch}\t0\t\n").as_bytes());
            progress.reached(next);
            next += 1;
        }
        stopped = interrupt.is_set();
        next <= rows && !stopped
    });
    copied.map_err(failed)?;
    if stopped {
        query(console, "rollback")?;
        interrupt.check()?;
    }
    query(console, "commit")
}

/// Tells how far the loading is: every 100,000 rows, or every five seconds.
struct Progress {
    rows: u64,
    quiet: bool,
    began: Instant,
    told: Duration,
}

impl Progress {
    fn new(rows: u64, quiet: bool) -> Progress {
        Progress { rows, quiet, began: Instant::now(), told: Duration::ZERO }
    }

    fn reached(&mut self, row: u64) {
        const EVERY: Duration = Duration::from_secs(5);
        if !row.is_multiple_of(if self.quiet { 100 } else { ACCOUNTS }) {
            return;
        }
        let elapsed = self.began.elapsed();
        if self.quiet && row < self.rows && elapsed < self.told + EVERY {
            return;
        }
        self.told = elapsed;
        let (rows, elapsed) = (self.rows, elapsed.as_secs_f64());
        let left = elapsed * (rows - row) as f64 / row as f64;
        let percent = row * 100 / rows;
        eprintln!("{row} of {rows} tuples ({percent}%) done (elapsed {elapsed:.2} s, remaining {left:.2} s)");
    }
}

fn generate_there(console: &mut Console, options: &Options) -> Result<()> {
    let scale = options.scale.unwrap_or(1);
    query(console, "begin")?;
    query(console, EMPTY)?;
    for (table, columns, row, rows) in [
        ("branches", "bid,bbalance", "n, 0".to_string(), 1),
        ("tellers", "tid,bid,tbalance", format!("n, (n - 1) / {TELLERS} + 1, 0"), TELLERS),
        ("accounts", "aid,bid,abalance,filler", format!("n, (n - 1) / {ACCOUNTS} + 1, 0, ''"), ACCOUNTS),
    ] {
        let rows = rows * scale;
        query(
            console,
            &format!(
                "insert into pgbench_{table}({columns}) select {row} from generate_series(1, {rows}) as n"
            ),
        )?;
    }
    query(console, "commit")
}

/// What the tables say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub scale: u64,
    pub partitions: Option<(&'static str, u64)>,
}

/// Looks the tables up, for a run of built-in scripts.
///
/// # Errors
/// If there are none.
pub fn find(console: &mut Console, given: Option<u64>) -> Result<Found> {
    let counted = console.query("select count(*) from pgbench_branches").map_err(|complaint| {
        let words = format!("could not count number of branches: {}", complaint.words);
        let hint = if complaint.code == "42P01" { "; make the tables by `tipover pgbench -i`" } else { "" };
        Mistake(format!("{words}{hint}"))
    })?;
    let count = counted.into_iter().flatten().flatten().next().and_then(|count| count.parse::<u64>().ok());
    let Some(scale) = count.filter(|count| *count > 0) else {
        return Err(
            Mistake("pgbench_branches is empty: fill the tables by `tipover pgbench -i`".into()).into()
        );
    };
    if given.is_some_and(|given| given != scale) {
        eprintln!(
            "tipover: warning: scale option ignored, using count from pgbench_branches table ({scale})"
        );
    }
    let divided = "select p.partstrat, (select count(*) from pg_inherits i where i.inhparent = p.partrelid) \
                   from pg_partitioned_table p where p.partrelid = to_regclass('pgbench_accounts')";
    let rows = console.query(divided).map_err(failed)?;
    let partitions = match rows.first().map(Vec::as_slice) {
        Some([Some(method), Some(count)]) => {
            let method = if method == "h" { "hash" } else { "range" };
            count.parse().ok().map(|count| (method, count))
        }
        _ => None,
    };
    Ok(Found { scale, partitions })
}

/// What is done before a run: what cannot be done is told, and the run goes on.
pub fn vacuum(console: &mut Console, all: bool) {
    let mut try_to = |text: &str| {
        if let Err(complaint) = console.query(text) {
            eprintln!("tipover: {} (ignoring this error and continuing anyway)", complaint.words);
        }
    };
    eprint!("starting vacuum...");
    try_to("vacuum pgbench_branches");
    try_to("vacuum pgbench_tellers");
    try_to("truncate pgbench_history");
    eprintln!("end.");
    if all {
        eprint!("starting vacuum pgbench_accounts...");
        try_to("vacuum analyze pgbench_accounts");
        eprintln!("end.");
    }
}
