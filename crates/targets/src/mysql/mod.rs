//! MariaDB and MySQL, with InnoDB or MyRocks. Set-up and statistics go over the same kind of connection as
//! the measured operations, so that what is read back was read where it counts.

mod checks;
mod client;
mod durability;
mod greeting;
mod operations;
mod outcome;
mod packet;
mod proof;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod transfer;

use crate::connection::{Dialect, Link, Place, Protocol, Route};
use checks::Checks;
use client::Client;
use greeting::Hello;
use operations::Operations;
use packet::Report;
use parking_lot::Mutex;
use statistics::Statistics;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use table::Table;
use tipover_core::experiment::{Durability, Spec};
use tipover_core::metric::Metric;
use tipover_core::op::OpKind;
use tipover_core::target::{CheckSession, Facts, Session, Target, TargetError};
use tipover_core::workload::bank::Bank;
use tipover_core::workload::{Dataset, Shape};
use transfer::Vault;

const DIALECT: Dialect = Dialect {
    schemes: &["mysql", "mariadb"],
    port: 3306,
    encryption: "ssl-mode",
    authorities: "ssl-ca",
    password_variable: "MYSQL_PWD",
    user: "root",
    // A socket is named by its whole path: `?socket=/run/mysqld/mysqld.sock`.
    socket_name: |_| None,
};

/// Settings with this prefix are the server's, not the session's; they are put back at the end.
const GLOBAL: &str = "global.";

/// Server variables that decide what a figure means.
const TELLING: &[&str] = &[
    "autocommit",
    "binlog_format",
    "default_storage_engine",
    "innodb_buffer_pool_size",
    "innodb_data_file_path",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_io_capacity",
    "innodb_lock_wait_timeout",
    "innodb_log_buffer_size",
    "innodb_log_file_size",
    "innodb_page_size",
    "log_bin",
    "max_connections",
    "query_cache_type",
    "read_only",
    "rocksdb_block_cache_size",
    "rocksdb_flush_log_at_trx_commit",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_master_wait_point",
    "sql_mode",
    "sync_binlog",
    "thread_handling",
    "tx_isolation",
    "transaction_isolation",
    "version",
    "version_comment",
    "wsrep_on",
    "wsrep_provider_options",
    "wsrep_sync_wait",
];

/// How long a question about the server may take; loading and settling take as long as they need.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that speaks MySQL's protocol.
pub struct Mysql {
    place: Place,
    route: Route,
    /// The statement that makes the settings of a session.
    settings: String,
    named: Vec<String>,
    timeout: Duration,
    /// For statistics and facts; made anew when it is lost.
    client: Mutex<Option<Client>>,
    statistics: Statistics,
    /// What the accounts and transfers of checks are called.
    bank: Arc<Bank>,
    /// What the last session found, for the next one.
    table: Mutex<Option<(Dataset, Arc<Table>)>>,
    /// Statements that put the server's settings back.
    restore: Vec<String>,
}

impl Mysql {
    /// Connects to the server of `spec` and checks that it can give the durability asked for.
    pub fn open(spec: &Spec) -> Result<Self, TargetError> {
        let address = spec
            .target
            .address
            .as_ref()
            .ok_or_else(|| TargetError::new("opening MySQL", "target.address is missing"))?;
        let doing = format!("connecting to {address}");
        let place =
            Place::parse(address, &DIALECT, &[greeting::PUBLIC_KEY]).map_err(|reason| TargetError::new(&doing, reason))?;
        let route = Route::to(&place).map_err(|reason| TargetError::new(&doing, reason))?;
        let settings = session_settings(&spec.target.settings);
        let (mut client, way) = Client::connect(&route, Hello::new(&place, &settings), place.connect_timeout)
            .map_err(|refusal| TargetError::new(&doing, refusal.reason))?;
        client.set_timeout(PATIENCE).map_err(|error| TargetError::new(&doing, error))?;
        let failed = |report: Report| TargetError::new(&doing, explained(&report));
        let engine = client.value("SELECT @@SESSION.default_storage_engine").map_err(failed)?;
        let statistics = Statistics::of(&mut client, &engine).map_err(failed)?;
        let mut target = Mysql {
            route: route.narrowed(way),
            place,
            settings,
            named: spec.target.settings.keys().map(|name| name.trim_start_matches(GLOBAL).into()).collect(),
            timeout: spec.load.timeout,
            client: Mutex::new(None),
            statistics,
            bank: Arc::new(spec.workload.bank().map_err(|error| TargetError::new(&doing, error))?),
            table: Mutex::new(None),
            restore: Vec::new(),
        };
        // From here on, whatever fails puts back what was set.
        target.set_globals(&mut client, &spec.target.settings)?;
        if spec.target.durability != Durability::Configured {
            durability::check(&mut client, spec.target.durability, &engine)?;
        }
        *target.client.lock() = Some(client);
        Ok(target)
    }

    fn set_globals(
        &mut self,
        client: &mut Client,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), TargetError> {
        for (name, value) in settings {
            let Some(name) = name.strip_prefix(GLOBAL) else { continue };
            let failed = |report: Report| {
                TargetError::new(format!("setting the server's {name} to {value}"), explained(&report))
            };
            let variable = table::quoted(name);
            let before = client.value(&format!("SELECT @@GLOBAL.{variable}")).map_err(failed)?;
            client
                .query(format!("SET GLOBAL {variable} = {}", value_of(value)).as_bytes())
                .map_err(failed)?;
            self.restore.push(format!("SET GLOBAL {variable} = {}", value_of(&before)));
        }
        Ok(())
    }

    fn hello(&self) -> Hello {
        Hello::new(&self.place, &self.settings)
    }

    /// A session on the ledger and on the accounts of `bank`.
    fn vault(&self, bank: &Arc<Bank>) -> Result<Link<Vault>, TargetError> {
        self.link(Vault::new(self.hello(), bank.clone()))
    }

    fn link<P: Protocol>(&self, protocol: P) -> Result<Link<P>, TargetError> {
        let link = Link::open(protocol, &self.route, self.timeout, self.place.connect_timeout);
        link.map_err(|refusal| {
            TargetError::new(format!("opening a session at {}", self.place), refusal.reason)
        })
    }

    /// A connection of its own, on which statements may take as long as they need.
    fn patient_client(&self) -> Result<Client, Report> {
        let connected = Client::connect(&self.route, self.hello(), self.place.connect_timeout);
        let (mut client, _) = connected.map_err(|refusal| Report::lost(refusal.reason))?;
        client.set_timeout(Duration::ZERO).map_err(Report::lost)?;
        Ok(client)
    }

    /// Asks on the connection that is kept for that; if it is lost, once more on a new one.
    fn ask<T>(&self, ask: impl Fn(&mut Client) -> Result<T, Report>) -> Result<T, Report> {
        let mut kept = self.client.lock();
        for attempt in 0.. {
            if kept.is_none() {
                let mut client = self.patient_client()?;
                client.set_timeout(PATIENCE).map_err(Report::lost)?;
                *kept = Some(client);
            }
            let client = kept.as_mut().expect("just made");
            match ask(client) {
                Err(report) if outcome::ends_connection(&report) => {
                    *kept = None;
                    if attempt > 0 {
                        return Err(report);
                    }
                }
                answer => return answer,
            }
        }
        unreachable!("it returns at the second attempt")
    }

    fn table(&self, dataset: &Dataset) -> Result<Arc<Table>, TargetError> {
        if let Some((_, table)) = self.table.lock().as_ref().filter(|(known, _)| known == dataset) {
            return Ok(table.clone());
        }
        let doing = format!("looking for the table \"{}\"", dataset.table);
        let found = self
            .ask(|client| Table::find(client, dataset))
            .map_err(|report| TargetError::new(&doing, explained(&report)))?;
        let table = found.ok_or_else(|| {
            TargetError::new(&doing, "it does not exist in this database; load it first, or name another one")
        })?;
        let table = Arc::new(table.map_err(|reason| TargetError::new(&doing, reason))?);
        *self.table.lock() = Some((dataset.clone(), table.clone()));
        Ok(table)
    }

    fn try_load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), Report> {
        /// Bytes of a statement, which is a transaction: well below every max_allowed_packet.
        const STATEMENT: usize = 1 << 20;
        let mut client = self.patient_client()?;
        client.query(Table::definition(dataset).as_bytes())?;
        let table = match Table::find(&mut client, dataset)? {
            Some(table) => table.map_err(Report::lost)?,
            None => return Err(Report::lost("the table was made and is not there")),
        };
        let plain = client.backslash_is_a_letter();
        let mut first = records.start;
        let mut statement = Vec::new();
        while first < records.end {
            statement.clear();
            first = table.put_insert(dataset, first..records.end, STATEMENT, plain, &mut statement);
            // Some of them may exist: then they become what they should be.
            statement.extend_from_slice(table.overwriting().as_bytes());
            client.query(&statement)?;
        }
        Ok(())
    }
}

/// The statement that makes the settings of a session; each operation is a transaction of its own.
fn session_settings(settings: &BTreeMap<String, String>) -> String {
    let mut statement = "SET autocommit = 1".to_string();
    for (name, value) in settings.iter().filter(|(name, _)| !name.starts_with(GLOBAL)) {
        statement.push_str(&format!(", SESSION {} = {}", table::quoted(name), value_of(value)));
    }
    statement
}

/// A value in a SET: a number as it is, anything else as a text.
fn value_of(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(_) => value.to_string(),
        Err(_) => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")),
    }
}

fn explained(report: &Report) -> String {
    format!("{report}{}", outcome::advice(report))
}

impl Target for Mysql {
    fn facts(&self) -> Result<Facts, TargetError> {
        let failed = |report: Report| TargetError::new("reading the server's settings", report);
        let variables = self.ask(|client| client.query(b"SHOW SESSION VARIABLES")).map_err(failed)?;
        let mut facts = Facts::new();
        for row in variables {
            let [Some(name), Some(value)] = row.as_slice() else { continue };
            if TELLING.contains(&name.as_str()) || self.named.contains(name) {
                facts.insert(name.clone(), value.as_str().into());
            }
            if matches!(name.as_str(), "tx_isolation" | "transaction_isolation") {
                let isolation = value.to_lowercase().replace('-', " ");
                facts.insert("transfer_isolation".into(), isolation.into());
            }
        }
        let version = "SELECT CONCAT(@@version_comment, ' ', VERSION())";
        let version = self.ask(|client| client.value(version)).map_err(failed)?;
        facts.insert("system".into(), version.into());
        let encryption = self.ask(|client| Ok(client.encryption())).map_err(failed)?;
        facts.insert("encryption".into(), encryption.unwrap_or_else(|| "none".into()).into());
        for (fact, status) in [
            ("galera_cluster_size", "wsrep_cluster_size"),
            ("semisync_replicas", "Rpl_semi_sync_master_clients"),
        ] {
            let count = self.ask(|client| durability::status(client, status)).map_err(failed)?;
            if let Ok(count) = count.parse::<u64>() {
                facts.insert(fact.into(), count.into());
            }
        }
        let table = self.table.lock().as_ref().map(|(dataset, table)| (dataset.clone(), table.clone()));
        if let Some((dataset, table)) = table {
            let name = dataset.table.rsplit('.').next().unwrap_or_default();
            let query = format!(
                "SELECT engine, data_length, index_length FROM information_schema.tables \
                 WHERE lower(table_name) = lower({}) AND table_schema = DATABASE()",
                table::hexadecimal(name)
            );
            let rows = self.ask(|client| client.query(query.as_bytes())).map_err(failed)?;
            if let Some([Some(engine), Some(data), Some(index)]) = rows.first().map(Vec::as_slice) {
                facts.insert("table_engine".into(), engine.as_str().into());
                facts.insert("table_file_bytes".into(), data.parse::<u64>().unwrap_or(0).into());
                facts.insert("index_file_bytes".into(), index.parse::<u64>().unwrap_or(0).into());
            }
            facts.insert("key_is_indexed".into(), table.is_indexed().into());
        }
        Ok(facts)
    }

    fn accepts(&self, kind: OpKind) -> bool {
        use OpKind::{Insert, InsertMany, Read, Scan, Transfer, Update};
        matches!(kind, Read | Update | Insert | InsertMany | Scan | Transfer)
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        let doing = format!("loading records {} to {} into {}", records.start, records.end, dataset.table);
        self.try_load(dataset, records).map_err(|report| TargetError::new(doing, explained(&report)))?;
        // For the facts.
        self.table(dataset).map(|_| ())
    }

    fn settle(&self) -> Result<(), TargetError> {
        let failed = |report: Report| TargetError::new("settling", explained(&report));
        let mut client = self.patient_client().map_err(failed)?;
        let table = self.table.lock().as_ref().map(|(_, table)| table.clone());
        let mut statements = vec!["FLUSH ENGINE LOGS".to_string()];
        if let Some(table) = table {
            statements.push(format!("ANALYZE TABLE {}", table.name()));
            // Writes the table's pages to disk and lets purge finish; InnoDB only.
            statements.push(format!("FLUSH TABLES {} FOR EXPORT", table.name()));
            statements.push("UNLOCK TABLES".into());
        }
        for statement in statements {
            match client.query(statement.as_bytes()) {
                // A right that this user lacks, or an engine that does not know it, changes no result.
                Err(report) if outcome::ends_connection(&report) => return Err(failed(report)),
                _ => {}
            }
        }
        Ok(())
    }

    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        match &dataset.shape {
            Shape::Ledger => return Ok(Box::new(self.vault(&self.bank)?)),
            Shape::Bank(bank) => return Ok(Box::new(self.vault(bank)?)),
            Shape::Fields | Shape::Documents(_) => {}
        }
        let table = self.table(dataset)?;
        Ok(Box::new(self.link(Operations::new(self.hello(), dataset, table))?))
    }

    fn open_checks<'a>(&'a self) -> Result<Box<dyn CheckSession + 'a>, TargetError> {
        Ok(Box::new(Checks::open(self)?))
    }

    fn metrics(&self) -> Vec<Metric> {
        self.statistics.metrics()
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        self.ask(|client| self.statistics.sample(client))
            .map_err(|report| TargetError::new("reading the server's statistics", report))
    }
}

impl Drop for Mysql {
    /// Puts the server's settings back, the last one first.
    fn drop(&mut self) {
        for statement in std::mem::take(&mut self.restore).iter().rev() {
            if let Err(report) = self.ask(|client| client.query(statement.as_bytes())) {
                eprintln!("{}: could not put a setting back: {statement}: {report}", self.place);
            }
        }
    }
}
