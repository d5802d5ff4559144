//! pgbench's four tables, on which the built-in scripts work: how many rows of each there are, and what their
//! columns are called.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
