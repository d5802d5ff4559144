//! What is special about MySQL and MariaDB among SQL servers.

use super::client::Client;
use super::greeting::{self, Hello};
use super::packet::Report;
use super::script::Scripted;
use super::table;
use super::transfer::Vault;
use crate::connection::sql::{CONFIRMED_WITHIN, Client as _, FoundTable, Report as _, Sql};
use crate::connection::{Dialect, Refusal, Route, Url};
use std::sync::Arc;
use std::time::Duration;
use tipover_core::workload::bank::Bank;
use tipover_core::workload::sysbench::Numbering;
use tipover_core::workload::{Dataset, Scripts};

/// MySQL or MariaDB, with the statement that makes the settings of a session.
pub struct Flavour {
    pub settings: String,
}

impl Flavour {
    /// The first words of a session.
    pub fn hello(&self, place: &Url) -> Hello {
        Hello::new(place, &self.settings)
    }
}

/// Everything that checks keep. Names with a prefix: they must not meet a user's tables.
const TABLES: [(&str, &str); 6] = [
    ("tipover_account", "bic VARCHAR(8), ban VARCHAR(64), balance DECIMAL(20), PRIMARY KEY (bic, ban)"),
    (
        "tipover_transfer",
        "transfer_id BINARY(16) PRIMARY KEY, src_bic VARCHAR(8), src_ban VARCHAR(64), dst_bic VARCHAR(8), \
         dst_ban VARCHAR(64), amount DECIMAL(20), state VARCHAR(16), client_id BINARY(16), \
         client_timestamp DATETIME",
    ),
    ("tipover_setting", "name VARCHAR(64) PRIMARY KEY, value VARCHAR(64)"),
    ("tipover_checksum", "name VARCHAR(64) PRIMARY KEY, amount DECIMAL(30)"),
    ("tipover_ledger", "ledger_key BIGINT PRIMARY KEY, value VARBINARY(256)"),
    ("tipover_list", "list_key BIGINT PRIMARY KEY, list LONGTEXT NOT NULL"),
];

impl Sql for Flavour {
    type Client = Client;
    type Vault = Vault;
    type Scripted = Scripted;

    const DIALECT: &'static Dialect = &Dialect {
        schemes: &["mysql", "mariadb"],
        port: 3306,
        encryption: "ssl-mode",
        authorities: "ssl-ca",
        password_variable: "MYSQL_PWD",
        user: "root",
        // A socket is named by its whole path: `?socket=/run/mysqld/mysqld.sock`.
        socket_name: |_| None,
    };
    const PARAMETERS: &'static [&'static str] = &[greeting::PUBLIC_KEY];

    fn connect(&self, place: &Url, route: &Route) -> Result<(Client, usize), Refusal> {
        Client::connect(route, self.hello(place), place.connect_timeout)
    }

    fn vault(&self, place: &Url, bank: &Arc<Bank>) -> Vault {
        Vault::new(self.hello(place), bank.clone())
    }

    fn scripted(&self, place: &Url, scripts: &Arc<Scripts>) -> Scripted {
        Scripted::new(self.hello(place), scripts.clone())
    }

    fn find_table(client: &mut Client, dataset: &Dataset) -> FoundTable<Self> {
        table::find(client, dataset)
    }

    const NUMBERING: Numbering = Numbering::AutoIncrement;
    const SNAPSHOT: &'static [&'static str] =
        &["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];

    const TRANSFERS: &'static str =
        "SELECT HEX(transfer_id), src_bic, src_ban, dst_bic, dst_ban, amount FROM tipover_transfer";

    const LEDGER: &'static str = "SELECT ledger_key, HEX(value) FROM tipover_ledger";

    const LISTS: &'static str = "SELECT list_key, list FROM tipover_list";

    fn prepare(client: &mut Client, bank: &Bank, accounts: &[(u64, i64)]) -> Result<(), Report> {
        const ROWS: usize = 1_000;
        // A semi-synchronous primary without a replica waits for ever, unless it may give up waiting.
        client.set_timeout(CONFIRMED_WITHIN).map_err(Report::lost)?;
        let mut define = |text: String| {
            client.query(&text).map(drop).map_err(|report| match report.ends_connection() {
                true => Report::lost(format!(
                    "{}; does a semi-synchronous primary wait for a replica that is not there \
                     (rpl_semi_sync_master_timeout)?",
                    report.message
                )),
                false => report,
            })
        };
        for (table, columns) in TABLES {
            define(format!("DROP TABLE IF EXISTS {table}"))?;
            define(format!("CREATE TABLE {table} ({columns}) CHARACTER SET ascii COLLATE ascii_bin"))?;
        }
        client.set_timeout(Duration::ZERO).map_err(Report::lost)?;
        for part in accounts.chunks(ROWS) {
            let row = |(place, balance): &(u64, i64)| {
                let name = bank.name(*place);
                format!("('{}', '{}', {balance})", name.bic, name.ban)
            };
            let rows: Vec<String> = part.iter().map(row).collect();
            client.query(&format!("INSERT INTO tipover_account VALUES {}", rows.join(", ")))?;
        }
        let total: i64 = accounts.iter().map(|(_, balance)| balance).sum();
        let (count, spec) = (accounts.len(), bank.spec());
        client.query(&format!(
            "INSERT INTO tipover_setting VALUES ('count', '{count}'), ('seed', '{}'), \
             ('ban_range_multiplier', '{}')",
            spec.seed, spec.range_multiplier
        ))?;
        client.query(&format!("INSERT INTO tipover_checksum VALUES ('total', {total})"))?;
        // Set-up must survive the crash that is to come, whatever is promised to transactions.
        match client.query("FLUSH ENGINE LOGS") {
            Err(report) if report.ends_connection() => Err(report),
            _ => Ok(()),
        }
    }
}
