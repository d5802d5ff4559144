//! What is special about PostgreSQL among SQL servers.

use super::client::Client;
use super::greeting::Hello;
use super::message::Report;
use super::script::Scripted;
use super::table::{self, literal};
use super::transfer::Vault;
use crate::connection::sql::{CONFIRMED_WITHIN, Client as _, FoundTable, Report as _, Sql};
use crate::connection::{Dialect, Refusal, Route, Url};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::workload::bank::Bank;
use tipover_core::workload::sysbench::Numbering;
use tipover_core::workload::{Dataset, Scripts};

/// PostgreSQL, with these settings of a session.
pub struct Flavour {
    pub settings: BTreeMap<String, String>,
}

impl Flavour {
    /// The first words of a session.
    pub fn hello(&self, place: &Url) -> Hello {
        Hello::new(place, &self.settings)
    }

    /// How well transfers and transactions of lists are kept apart: as in old stroppy, unless the plan says.
    pub fn isolation(&self) -> &str {
        self.settings.get("default_transaction_isolation").map_or("repeatable read", String::as_str)
    }
}

/// Everything that checks keep. Old stroppy's names, with a prefix: they must not meet a user's tables.
const DEFINITIONS: &str = "\
    DROP TABLE IF EXISTS tipover_account, tipover_transfer, tipover_setting, tipover_checksum, tipover_ledger, \
        tipover_list; \
    CREATE TABLE tipover_account (bic TEXT, ban TEXT, balance DECIMAL, PRIMARY KEY (bic, ban)); \
    CREATE TABLE tipover_transfer (transfer_id UUID PRIMARY KEY, src_bic TEXT, src_ban TEXT, dst_bic TEXT, \
        dst_ban TEXT, amount DECIMAL, state TEXT, client_id UUID, client_timestamp TIMESTAMP); \
    CREATE TABLE tipover_setting (key TEXT PRIMARY KEY, value TEXT); \
    CREATE TABLE tipover_checksum (name TEXT PRIMARY KEY, amount DECIMAL); \
    CREATE TABLE tipover_ledger (key BIGINT PRIMARY KEY, value BYTEA); \
    CREATE TABLE tipover_list (key BIGINT PRIMARY KEY, list BIGINT[] NOT NULL)";

/// Set-up must survive the crash that is to come, whatever is promised to transactions.
const FLUSHED: &str = "SELECT set_config('synchronous_commit', 'local', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

impl Sql for Flavour {
    type Client = Client;
    type Vault = Vault;
    type Scripted = Scripted;

    const DIALECT: &'static Dialect = &Dialect {
        schemes: &["postgres", "postgresql"],
        port: 5432,
        encryption: "sslmode",
        authorities: "sslrootcert",
        password_variable: "PGPASSWORD",
        user: "postgres",
        socket_name: |port| Some(format!(".s.PGSQL.{port}")),
    };
    /// The server takes them as they are.
    const PARAMETERS: &'static [&'static str] = &["application_name", "options"];

    fn connect(&self, place: &Url, route: &Route) -> Result<(Client, usize), Refusal> {
        Client::connect(route, self.hello(place), place.connect_timeout)
    }

    fn vault(&self, place: &Url, bank: &Arc<Bank>) -> Vault {
        Vault::new(self.hello(place), bank.clone(), self.isolation())
    }

    fn scripted(&self, place: &Url, scripts: &Arc<Scripts>) -> Scripted {
        Scripted::new(self.hello(place), scripts.clone())
    }

    fn find_table(client: &mut Client, dataset: &Dataset) -> FoundTable<Self> {
        table::find(client, dataset)
    }

    const NUMBERING: Numbering = Numbering::Serial;
    const SNAPSHOT: &'static [&'static str] = &["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"];

    const TRANSFERS: &'static str = "SELECT translate(transfer_id::text, '-', ''), src_bic, src_ban, dst_bic, \
         dst_ban, amount FROM tipover_transfer";

    const LEDGER: &'static str = "SELECT key, encode(value, 'hex') FROM tipover_ledger";

    const LISTS: &'static str = "SELECT key, array_to_string(list, ',') FROM tipover_list";

    fn prepare(client: &mut Client, bank: &Bank, accounts: &[(u64, i64)]) -> Result<(), Report> {
        client.query(FLUSHED)?;
        // A commit that more standbys must confirm than exist waits for ever; no statement_timeout ends it.
        client.set_timeout(CONFIRMED_WITHIN).map_err(Report::lost)?;
        client.query(DEFINITIONS).map_err(|report| match report.code.is_empty() {
            true => Report::lost(format!(
                "{}; does synchronous_standby_names ask for more standbys than there are?",
                report.message
            )),
            false => report,
        })?;
        client.set_timeout(Duration::ZERO).map_err(Report::lost)?;
        let mut left = accounts.iter();
        client.copy("COPY tipover_account FROM STDIN", |data| {
            for (place, balance) in left.by_ref().take(1_000) {
                let name = bank.name(*place);
                data.extend_from_slice(format!("{}\t{}\t{balance}\n", name.bic, name.ban).as_bytes());
            }
            left.len() > 0
        })?;
        let total: i64 = accounts.iter().map(|(_, balance)| balance).sum();
        let spec = bank.spec();
        let settings = [
            ("count", accounts.len().to_string()),
            ("seed", spec.seed.to_string()),
            ("ban_range_multiplier", spec.range_multiplier.to_string()),
        ];
        let settings = settings.map(|(key, value)| format!("({}, {})", literal(key), literal(&value)));
        client.query(&format!(
            "INSERT INTO tipover_setting VALUES {}; INSERT INTO tipover_checksum VALUES ('total', {total}); \
             ANALYZE tipover_account",
            settings.join(", ")
        ))?;
        Ok(())
    }
}
