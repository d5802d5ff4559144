//! MariaDB and MySQL, with InnoDB or MyRocks. Set-up and statistics go over the same kind of connection as
//! the measured operations, so that what is read back was read where it counts.

mod client;
mod durability;
mod flavour;
mod greeting;
mod operations;
mod outcome;
mod packet;
mod proof;
mod script;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod transfer;
pub mod untrusted;
mod watch;

use crate::connection::sql::{Client as _, Report as _, Server};
use flavour::Flavour;
use operations::Operations;
use packet::Report;
use statistics::Statistics;
use std::collections::BTreeMap;
use std::ops::Range;
use tipover_core::check::{TpcbRows, Version};
use tipover_core::experiment::{Durability, Spec};
use tipover_core::learn::Watch;
use tipover_core::metric::{Metric, name as metric};
use tipover_core::op::OpKind;
use tipover_core::target::{BankRows, Facts, Lists, Relation, Session, Target, TargetError};
use tipover_core::workload::tpcb::Counts;
use tipover_core::workload::{Dataset, Shape};

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

/// A server that speaks MySQL's protocol.
pub struct Mysql {
    server: Server<Flavour>,
    named: Vec<String>,
    statistics: Statistics,
    /// Statements that put the server's settings back.
    restore: Vec<String>,
}

impl Mysql {
    /// Connects to the server of `spec` and checks that it can give the durability asked for.
    pub fn open(spec: &Spec) -> Result<Self, TargetError> {
        let settings = session_settings(&spec.target.settings);
        let server = Server::connect(spec, Flavour { settings })?;
        let failed = |report: Report| report.while_doing(format!("connecting to {}", server.place));
        let engine = "SELECT @@SESSION.default_storage_engine";
        let engine = server.ask(|client| client.value(engine)).map_err(failed)?;
        let statistics = server.ask(|client| Statistics::of(client, &engine)).map_err(failed)?;
        let named = spec.target.settings.keys().map(|name| name.trim_start_matches(GLOBAL).into()).collect();
        let mut target = Mysql { server, named, statistics, restore: Vec::new() };
        // From here on, whatever fails puts back what was set.
        target.set_globals(&spec.target.settings)?;
        if spec.target.durability != Durability::Configured {
            target.check_durability(spec.target.durability, &engine)?;
        }
        Ok(target)
    }

    fn set_globals(&mut self, settings: &BTreeMap<String, String>) -> Result<(), TargetError> {
        for (name, value) in settings {
            let Some(name) = name.strip_prefix(GLOBAL) else { continue };
            let failed =
                |report: Report| report.while_doing(format!("setting the server's {name} to {value}"));
            let variable = table::quoted(name);
            let get = format!("SELECT @@GLOBAL.{variable}");
            let before = self.server.ask(|client| client.value(&get)).map_err(failed)?;
            let set = format!("SET GLOBAL {variable} = {}", value_of(value));
            self.server.ask(|client| client.query(&set)).map_err(failed)?;
            self.restore.push(format!("SET GLOBAL {variable} = {}", value_of(&before)));
        }
        Ok(())
    }

    fn check_durability(&self, durability: Durability, engine: &str) -> Result<(), TargetError> {
        let failed = |report: Report| report.while_doing("checking what the server promises");
        let mut client = self.server.patient_client().map_err(failed)?;
        durability::check(&mut client, durability, engine)
    }

    fn try_load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), Report> {
        /// Bytes of a statement, which is a transaction: well below every max_allowed_packet.
        const STATEMENT: usize = 1 << 20;
        let mut client = self.server.patient_client()?;
        client.query(&table::definition(dataset))?;
        let table = match table::find(&mut client, dataset)? {
            Some(table) => table.map_err(Report::lost)?,
            None => return Err(Report::lost("the table was made and is not there")),
        };
        let plain = client.backslash_is_a_letter();
        let mut first = records.start;
        let mut statement = Vec::new();
        while first < records.end {
            statement.clear();
            let left = first..records.end;
            first = table::put_insert(&table, dataset, left, STATEMENT, plain, &mut statement);
            // Some of them may exist: then they become what they should be.
            statement.extend_from_slice(table::overwriting(&table).as_bytes());
            client.execute(&statement)?;
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

impl Target for Mysql {
    fn facts(&self) -> Result<Facts, TargetError> {
        let failed = |report: Report| TargetError::new("reading the server's settings", report);
        let variables = self.server.ask(|client| client.query("SHOW SESSION VARIABLES")).map_err(failed)?;
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
        let version = self.server.ask(|client| client.value(version)).map_err(failed)?;
        facts.insert("system".into(), version.into());
        let encryption = self.server.encryption().map_err(failed)?;
        facts.insert("encryption".into(), encryption.into());
        for (fact, status) in [
            ("galera_cluster_size", "wsrep_cluster_size"),
            ("semisync_replicas", "Rpl_semi_sync_master_clients"),
        ] {
            let count = self.server.ask(|client| durability::status(client, status)).map_err(failed)?;
            if let Ok(count) = count.parse::<u64>() {
                facts.insert(fact.into(), count.into());
            }
        }
        if let Some((dataset, table)) = self.server.known_table() {
            let name = dataset.table.rsplit('.').next().unwrap_or_default();
            let query = format!(
                "SELECT engine, data_length, index_length FROM information_schema.tables \
                 WHERE lower(table_name) = lower({}) AND table_schema = DATABASE()",
                table::hexadecimal(name)
            );
            let rows = self.server.ask(|client| client.query(&query)).map_err(failed)?;
            if let Some([Some(engine), Some(data), Some(index)]) = rows.first().map(Vec::as_slice) {
                let cache = match engine.eq_ignore_ascii_case("rocksdb") {
                    true => "rocksdb_block_cache_size",
                    false => "innodb_buffer_pool_size",
                };
                let bytes = facts.get(cache).and_then(|bytes| bytes.as_str()?.parse::<u64>().ok());
                facts.extend(bytes.map(|bytes| ("engine_cache_bytes".into(), bytes.into())));
                facts.insert("table_engine".into(), engine.as_str().into());
                facts.insert("table_file_bytes".into(), data.parse::<u64>().unwrap_or(0).into());
                facts.insert("index_file_bytes".into(), index.parse::<u64>().unwrap_or(0).into());
            }
            facts.insert("key_is_indexed".into(), table.is_indexed().into());
        }
        Ok(facts)
    }

    fn accepts(&self, kind: OpKind) -> bool {
        use OpKind::{Insert, InsertMany, Read, ReadBalances, Scan, Script, Transaction, Transfer, Update};
        matches!(
            kind,
            Read | Update | Insert | InsertMany | Scan | Transfer | ReadBalances | Transaction | Script(_)
        )
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        let doing = format!("loading records {} to {} into {}", records.start, records.end, dataset.table);
        if let Shape::Scripts(scripts) = &dataset.shape {
            let loaded = self.server.load_tables(scripts, dataset.records, records);
            return loaded.map_err(|report| report.while_doing("filling the tables of the scripts"));
        }
        self.try_load(dataset, records).map_err(|report| report.while_doing(doing))?;
        // For the facts.
        self.server.table(dataset).map(|_| ())
    }

    fn settle(&self) -> Result<(), TargetError> {
        let failed = |report: Report| report.while_doing("settling");
        let mut client = self.server.patient_client().map_err(failed)?;
        self.server.finish_sysbench(&mut client).map_err(failed)?;
        let mut statements = vec!["FLUSH ENGINE LOGS".to_string()];
        statements.extend(self.server.loaded_tables().iter().map(|table| format!("ANALYZE TABLE {table}")));
        if let Some((_, table)) = self.server.known_table() {
            statements.push(format!("ANALYZE TABLE {}", table.name()));
            // Writes the table's pages to disk and lets purge finish; InnoDB only.
            statements.push(format!("FLUSH TABLES {} FOR EXPORT", table.name()));
            statements.push("UNLOCK TABLES".into());
        }
        for statement in statements {
            match client.query(&statement) {
                // A right that this user lacks, or an engine that does not know it, changes no result.
                Err(report) if report.ends_connection() => return Err(failed(report)),
                _ => {}
            }
        }
        Ok(())
    }

    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        let server = &self.server;
        server.session(dataset, |table| Operations::new(server.sql.hello(&server.place), dataset, table))
    }

    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.server.prepare(accounts)
    }

    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        self.server.read_keys()
    }

    fn read_bank(&self) -> Result<BankRows, TargetError> {
        self.server.read_bank()
    }

    fn read_lists(&self) -> Result<Lists, TargetError> {
        self.server.read_lists()
    }

    fn count_tpcb(&self) -> Result<Option<Counts>, TargetError> {
        self.server.count_tpcb()
    }

    fn watch(&self) -> Result<Box<dyn Watch>, TargetError> {
        Ok(Box::new(self.watcher()?))
    }

    fn count_sysbench(&self, tables: u64) -> Result<Vec<Option<u64>>, TargetError> {
        self.server.count_sysbench(tables)
    }

    fn read_tpcb(&self) -> Result<TpcbRows, TargetError> {
        self.server.read_tpcb()
    }

    /// The buffer pool counts for all tables of InnoDB together.
    fn relations(&self) -> Result<Vec<Relation>, TargetError> {
        let failed = |report: Report| TargetError::new("reading information_schema.tables", report);
        let query =
            "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE engine = 'InnoDB'";
        let bytes = self.server.ask(|client| client.value(query)).map_err(failed)?;
        let counted = self.sample()?;
        let of = |name: &str| counted.get(name).copied().unwrap_or(0.0);
        Ok(vec![Relation {
            name: "InnoDB".into(),
            bytes: bytes.parse().unwrap_or(0.0),
            requests: of(metric::ENGINE_PAGE_REQUESTS),
            misses: of(metric::ENGINE_PAGE_READS),
            searches: 0.0,
        }])
    }

    fn metrics(&self) -> Vec<Metric> {
        self.statistics.metrics()
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        self.server
            .ask(|client| self.statistics.sample(client))
            .map_err(|report| TargetError::new("reading the server's statistics", report))
    }
}

impl Drop for Mysql {
    /// Puts the server's settings back, the last one first.
    fn drop(&mut self) {
        for statement in std::mem::take(&mut self.restore).iter().rev() {
            if let Err(report) = self.server.ask(|client| client.query(statement)) {
                eprintln!("{}: could not put a setting back: {statement}: {report}", self.server.place);
            }
        }
    }
}
