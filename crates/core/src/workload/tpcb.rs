//! pgbench's four tables, on which the built-in scripts work: how many rows of each there are, and what their
//! columns are called.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Tellers of a branch. There are as many branches as the scale says.
pub const TELLERS: u64 = 10;
/// Accounts of a branch.
pub const ACCOUNTS: u64 = 100_000;
/// From this scale on account numbers need 64 bits.
pub const LARGE_SCALE: u64 = 20_000;

/// One of the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Without `pgbench_`.
    pub name: &'static str,
    /// What stands between the parentheses of its definition, the key left out.
    pub columns: String,
    /// Its key; the history has none.
    pub key: Option<&'static str>,
}

/// All of them at this scale, in the order in which pgbench makes them.
pub fn tables(scale: u64) -> [Table; 4] {
    let account = if scale >= LARGE_SCALE { "bigint" } else { "int" };
    let table = |name, columns: String, key| Table { name, columns, key };
    [
        table(
            "history",
            format!("tid int,bid int,aid {account},delta int,mtime timestamp,filler char(22)"),
            None,
        ),
        table("tellers", "tid int not null,bid int,tbalance int,filler char(84)".into(), Some("tid")),
        table(
            "accounts",
            format!("aid {account} not null,bid int,abalance int,filler char(84)"),
            Some("aid"),
        ),
        table("branches", "bid int not null,bbalance int,filler char(88)".into(), Some("bid")),
    ]
}

/// How many rows there are of those that no script adds or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Of `pgbench_branches`.
    pub branches: u64,
    /// Of `pgbench_tellers`.
    pub tellers: u64,
    /// Of `pgbench_accounts`.
    pub accounts: u64,
}

impl Counts {
    /// Those at this scale.
    pub fn at(scale: u64) -> Counts {
        Counts { branches: scale, tellers: scale * TELLERS, accounts: scale * ACCOUNTS }
    }
}

/// What a transaction of TPC-B moves: a row of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "[i64; 4]", into = "[i64; 4]")]
pub struct Movement {
    /// On this account,
    pub account: i64,
    /// by this teller,
    pub teller: i64,
    /// in this branch,
    pub branch: i64,
    /// so much.
    pub delta: i64,
}

impl From<[i64; 4]> for Movement {
    fn from([account, teller, branch, delta]: [i64; 4]) -> Self {
        Movement { account, teller, branch, delta }
    }
}

impl From<Movement> for [i64; 4] {
    fn from(row: Movement) -> [i64; 4] {
        [row.account, row.teller, row.branch, row.delta]
    }
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Movement { account, teller, branch, delta } = self;
        write!(f, "{delta:+} on account {account} by teller {teller} of branch {branch}")
    }
}
