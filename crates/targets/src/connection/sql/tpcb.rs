//! pgbench's tables: made and filled, and looked at.

use super::{Client, Report, ReportOf, Server, Sql, Texts};
use std::fmt::Write;
use std::ops::Range;
use tipover_core::check::TpcbRows;
use tipover_core::target::TargetError;
use tipover_core::workload::script::Tables;
use tipover_core::workload::tpcb::{ACCOUNTS, Counts, Movement, TELLERS, tables};

/// Rows of one INSERT.
const ROWS: usize = 1_000;

const COUNTS: &str = "SELECT (SELECT count(*) FROM pgbench_branches), (SELECT count(*) FROM pgbench_tellers), \
    (SELECT count(*) FROM pgbench_accounts)";

impl<S: Sql> Server<S> {
    /// See [`Target::count_tpcb`](tipover_core::target::Target::count_tpcb).
    pub fn count_tpcb(&self) -> Result<Option<Counts>, TargetError> {
        let counted = self.patient_client().and_then(|mut client| client.query(COUNTS));
        let rows = match counted {
            Err(report) if report.misses_table() => return Ok(None),
            rows => rows.map_err(|report| report.while_doing("counting the rows of pgbench's tables"))?,
        };
        Ok(Some(counts(&rows)))
    }

    /// See [`Target::read_tpcb`](tipover_core::target::Target::read_tpcb).
    pub fn read_tpcb(&self) -> Result<TpcbRows, TargetError> {
        self.snapshot("reading pgbench's tables", |client| {
            let mut balances = |table: &str, key: &str, balance: &str| {
                let text = format!("SELECT {key}, {balance} FROM pgbench_{table} WHERE {balance} <> 0");
                let rows = client.query(&text)?;
                Ok(rows.iter().map(|row| (number(row, 0), number(row, 1))).collect::<Vec<_>>())
            };
            let accounts = balances("accounts", "aid", "abalance")?;
            let tellers = balances("tellers", "tid", "tbalance")?;
            let branches = balances("branches", "bid", "bbalance")?;
            let history = client.query("SELECT aid, tid, bid, delta FROM pgbench_history")?;
            let movement = |row: &Texts| Movement::from([0, 1, 2, 3].map(|at| number(row, at)));
            let history = history.iter().map(movement).collect();
            Ok(TpcbRows { counts: counts(&client.query(COUNTS)?), history, accounts, tellers, branches })
        })
    }

    /// Writes these accounts, counted from 0, with the branches whose first account is among them and the
    /// tellers of those; `all` is how many accounts there will be. Makes the tables if they are not there.
    pub fn load_tpcb(&self, all: u64, accounts: Range<u64>) -> Result<(), ReportOf<S>> {
        let mut client = self.patient_client()?;
        {
            let mut made = self.made.lock();
            if made.tables == Tables::None {
                for table in tables(all / ACCOUNTS) {
                    let key = table.key.map_or(String::new(), |key| format!(", primary key ({key})"));
                    let (name, columns) = (table.name, table.columns);
                    client.query(&format!("create table if not exists pgbench_{name} ({columns}{key})"))?;
                }
                made.tables = Tables::Pgbench { scale: all / ACCOUNTS };
            }
        }
        let branches = accounts.start.div_ceil(ACCOUNTS)..accounts.end.div_ceil(ACCOUNTS);
        let tellers = branches.start * TELLERS..branches.end * TELLERS;
        insert(&mut client, "branches(bid,bbalance)", branches, |n| format!("({},0)", n + 1))?;
        insert(&mut client, "tellers(tid,bid,tbalance)", tellers, |n| {
            format!("({},{},0)", n + 1, n / TELLERS + 1)
        })?;
        insert(&mut client, "accounts(aid,bid,abalance,filler)", accounts, |n| {
            format!("({},{},0,'')", n + 1, n / ACCOUNTS + 1)
        })
    }
}

fn number(row: &Texts, at: usize) -> i64 {
    row.get(at).and_then(|text| text.as_deref()?.parse().ok()).unwrap_or(0)
}

fn counts(rows: &[Texts]) -> Counts {
    let number = |at| rows.first().map_or(0, |row| number(row, at)).unsigned_abs();
    Counts { branches: number(0), tellers: number(1), accounts: number(2) }
}

/// Inserts rows of these numbers.
fn insert<C: Client>(
    client: &mut C,
    into: &str,
    numbers: Range<u64>,
    row: impl Fn(u64) -> String,
) -> Result<(), C::Report> {
    let numbers: Vec<u64> = numbers.collect();
    for part in numbers.chunks(ROWS) {
        let mut text = format!("insert into pgbench_{into} values ");
        for (at, number) in part.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{}", row(*number));
        }
        client.query(&text)?;
    }
    Ok(())
}
