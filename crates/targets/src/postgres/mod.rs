//! PostgreSQL. Set-up and statistics go over the same kind of connection as the measured operations, so that
//! what is read back was read where it counts.

mod client;
mod console;
mod flavour;
mod greeting;
#[cfg(test)]
mod hostile;
mod message;
mod operations;
mod outcome;
mod script;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod transfer;
pub mod untrusted;
mod watch;

use crate::connection::Row;
use crate::connection::sql::{Client as _, Report as _, Server, Table, durability_word};
use client::Client;
pub use console::Console;
use flavour::Flavour;
use message::Report;
use operations::Operations;
use parking_lot::Mutex;
use statistics::Statistics;
use std::collections::BTreeMap;
use std::ops::Range;
use table::literal;
use tipover_core::check::{TpcbRows, Version};
use tipover_core::experiment::{Durability, Spec};
use tipover_core::learn::Watch;
use tipover_core::metric::Metric;
use tipover_core::op::OpKind;
use tipover_core::target::{BankRows, Facts, Lists, Relation, Session, Target, TargetError};
use tipover_core::workload::tpcb::Counts;
use tipover_core::workload::{Dataset, Shape};

/// Server settings that decide what a figure means.
const TELLING: &[&str] = &[
    "server_version",
    "fsync",
    "synchronous_commit",
    "synchronous_standby_names",
    "full_page_writes",
    "data_checksums",
    "wal_level",
    "wal_sync_method",
    "wal_compression",
    "wal_buffers",
    "commit_delay",
    "shared_buffers",
    "effective_cache_size",
    "work_mem",
    "huge_pages",
    "max_connections",
    "max_wal_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "bgwriter_delay",
    "autovacuum",
    "track_io_timing",
    "track_wal_io_timing",
    "io_method",
    "jit",
    "default_transaction_isolation",
    "server_encoding",
    "lc_collate",
    "block_size",
];

/// A PostgreSQL server.
pub struct Postgres {
    server: Server<Flavour>,
    statistics: Statistics,
    /// Held by whoever makes the table.
    creation: Mutex<()>,
}

impl Postgres {
    /// Connects to the server of `spec` and checks that it can give the durability asked for.
    pub fn open(spec: &Spec) -> Result<Self, TargetError> {
        let mut settings = BTreeMap::new();
        if let Some(value) = synchronous_commit(spec.target.durability)? {
            settings.insert("synchronous_commit".to_string(), value.to_string());
        }
        settings.extend(spec.target.settings.clone());
        let server = Server::connect(spec, Flavour { settings })?;
        let failed = |report: Report| report.while_doing(format!("connecting to {}", server.place));
        let version = server.ask(|client| client.value("SHOW server_version_num")).map_err(failed)?;
        let timed = server.ask(|client| client.value("SHOW track_io_timing")).map_err(failed)? == "on";
        if spec.target.durability != Durability::Configured {
            check_durability(&server, spec.target.durability)?;
        }
        let lists = "SELECT has_function_privilege('pg_ls_waldir()', 'execute')";
        let lists = server.ask(|client| client.value(lists)).map_err(failed)? == "t";
        let statistics = Statistics::of(version.parse().unwrap_or(0), timed, lists);
        Ok(Postgres { server, statistics, creation: Mutex::new(()) })
    }

    /// The table, made if it does not exist.
    fn made_table(&self, client: &mut Client, dataset: &Dataset) -> Result<Table, String> {
        let _alone = self.creation.lock();
        let explained = |report: Report| report.explained();
        if let Some(found) = table::find(client, dataset).map_err(explained)? {
            return found;
        }
        match client.query(&table::definition(dataset)) {
            Ok(_) => {}
            // Another process was faster: duplicate_table, unique_violation in the catalogue.
            Err(report) if matches!(report.code.as_str(), "42P07" | "23505") => {}
            Err(report) => return Err(explained(report)),
        }
        let found = table::find(client, dataset).map_err(explained)?;
        found.ok_or("it was made and is not there; is its schema in search_path?".to_string())?
    }

    fn try_load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), String> {
        /// Records per transaction: what a lost connection costs, and how much is sent again if some of them
        /// exist already.
        const BATCH: u64 = 10_000;
        let explained = |report: Report| report.explained();
        let mut client = self.server.patient_client().map_err(explained)?;
        let table = self.made_table(&mut client, dataset)?;
        let mut first = records.start;
        while first < records.end {
            let batch = first..(first + BATCH).min(records.end);
            first = batch.end;
            match copy(&mut client, table.name(), &table, dataset, batch.clone()) {
                Err(report) if report.code == "23505" => {
                    // Some of them exist: then all of them become what they should be.
                    let staging = "tipover_staging";
                    let name = table.name();
                    let make = format!(
                        "CREATE TEMP TABLE IF NOT EXISTS {staging} (LIKE {name}); TRUNCATE {staging}"
                    );
                    client.query(&make).map_err(explained)?;
                    copy(&mut client, staging, &table, dataset, batch).map_err(explained)?;
                    client.query(&table::merge(&table, staging)).map_err(explained)?;
                }
                copied => copied.map_err(explained)?,
            }
        }
        Ok(())
    }
}

/// Sends `records` as a binary COPY into `into`.
fn copy(
    client: &mut Client,
    into: &str,
    table: &Table,
    dataset: &Dataset,
    records: Range<u64>,
) -> Result<(), Report> {
    const MESSAGE: usize = 64 << 10;
    let text = format!("COPY {into} ({}) FROM STDIN (FORMAT binary)", table.columns());
    let (mut record, mut begun) = (records.start, false);
    let (mut row, columns) = (Row::of(dataset), Row::columns(dataset));
    let is_document = dataset.documents().is_some();
    client.copy(&text, |data| {
        let end = data.len() + MESSAGE;
        if !std::mem::replace(&mut begun, true) {
            // Flags and the length of an extension, both zero.
            data.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        }
        while record < records.end && data.len() < end {
            data.extend_from_slice(&(columns + 1).to_be_bytes());
            message::put_counted(data, row.key(record));
            for column in 0..columns {
                message::put_counting(data, |data| {
                    if is_document {
                        // The version of jsonb's binary form, which is its text.
                        data.push(1);
                    }
                    data.extend_from_slice(row.column(record, column));
                });
            }
            record += 1;
        }
        if record == records.end {
            data.extend_from_slice(&(-1i16).to_be_bytes());
        }
        record < records.end
    })
}

/// The setting that gives a promise; `None` leaves it as the server is configured.
fn synchronous_commit(durability: Durability) -> Result<Option<&'static str>, TargetError> {
    let refuse = |reason: &str| {
        let word = durability_word(durability);
        Err(TargetError::new(format!("setting target.durability = \"{word}\" on PostgreSQL"), reason))
    };
    match durability {
        Durability::Configured => Ok(None),
        Durability::Acknowledged => Ok(Some("off")),
        Durability::Journalled => Ok(Some("local")),
        Durability::ReplicatedToOne => Ok(Some("remote_write")),
        Durability::ReplicatedToMajority => Ok(Some("on")),
        Durability::Unacknowledged => refuse(
            "every statement is acknowledged; \"acknowledged\" (synchronous_commit = off) is the weakest it has",
        ),
        Durability::Written => refuse(
            "a commit is either in the server's memory (acknowledged: synchronous_commit = off) or flushed \
             (journalled); there is nothing between",
        ),
    }
}

/// Whether the server can keep the promise, by its own account.
fn check_durability(server: &Server<Flavour>, durability: Durability) -> Result<(), TargetError> {
    let word = durability_word(durability);
    let doing = format!("checking that the server can give target.durability = \"{word}\"");
    let value = |query: &str| {
        let value = server.ask(|client| client.value(query));
        value.map_err(|report| TargetError::new(&doing, report))
    };
    let set = value("SHOW synchronous_commit")?;
    if server.sql.settings.get("synchronous_commit") != Some(&set) {
        let reason =
            format!("synchronous_commit was set and reads back as {set}; does a pooler drop settings?");
        return Err(TargetError::new(&doing, reason));
    }
    if durability >= Durability::Journalled && value("SHOW fsync")? == "off" {
        return Err(TargetError::new(&doing, "fsync is off there, so nothing is ever flushed"));
    }
    if durability >= Durability::ReplicatedToOne {
        let names = value("SHOW synchronous_standby_names")?;
        if names.is_empty() {
            return Err(TargetError::new(
                &doing,
                "synchronous_standby_names is empty there, so commits wait for no standby",
            ));
        }
        let query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        if value(query)? == "0" {
            let reason = format!(
                "no standby of synchronous_standby_names = {names} is attached, so commits would wait for ever"
            );
            return Err(TargetError::new(&doing, reason));
        }
    }
    Ok(())
}

impl Target for Postgres {
    fn facts(&self) -> Result<Facts, TargetError> {
        let failed = |report: Report| TargetError::new("reading the server's settings", report);
        let wanted: Vec<String> = TELLING
            .iter()
            .copied()
            .chain(self.server.sql.settings.keys().map(String::as_str))
            .map(literal)
            .collect();
        let settings = format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE lower(name) IN (lower({}))",
            wanted.join("), lower(")
        );
        let rows = self.server.ask(|client| client.query(&settings)).map_err(failed)?;
        let mut facts = Facts::new();
        for row in rows {
            if let [Some(name), Some(value)] = row.as_slice() {
                facts.insert(name.to_lowercase(), value.as_str().into());
            }
        }
        let version = self.server.ask(|client| client.value("SELECT version()")).map_err(failed)?;
        facts.insert("system".into(), version.into());
        let encryption = self.server.encryption().map_err(failed)?;
        facts.insert("encryption".into(), encryption.into());
        let cache = "SELECT pg_size_bytes(current_setting('shared_buffers'))";
        if let Ok(Ok(bytes)) = self.server.ask(|client| client.value(cache)).map(|bytes| bytes.parse::<u64>())
        {
            facts.insert("engine_cache_bytes".into(), bytes.into());
        }
        let standby = self.server.ask(|client| client.value("SELECT pg_is_in_recovery()")).map_err(failed)?;
        facts.insert("transfer_isolation".into(), self.server.sql.isolation().into());
        facts.insert("is_standby".into(), (standby == "t").into());
        let standbys = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        if let Ok(Ok(count)) =
            self.server.ask(|client| client.value(standbys)).map(|count| count.parse::<u64>())
        {
            facts.insert("synchronous_standbys".into(), count.into());
        }
        if let Some((_, table)) = self.server.known_table() {
            let size = |function: &str| format!("SELECT {function}({}::regclass)", literal(table.name()));
            for (fact, function) in
                [("table_file_bytes", "pg_table_size"), ("index_file_bytes", "pg_indexes_size")]
            {
                let bytes = self.server.ask(|client| client.value(&size(function))).map_err(failed)?;
                facts.insert(fact.into(), bytes.parse::<u64>().unwrap_or(0).into());
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
        self.try_load(dataset, records).map_err(|reason| TargetError::new(doing, reason))?;
        // For the facts.
        self.server.table(dataset).map(|_| ())
    }

    fn settle(&self) -> Result<(), TargetError> {
        let failed = |report: Report| TargetError::new("settling", report);
        let mut client = self.server.patient_client().map_err(failed)?;
        self.server.finish_sysbench(&mut client).map_err(failed)?;
        let known = self.server.known_table().map(|(_, table)| table.name().to_string());
        for table in known.into_iter().chain(self.server.loaded_tables()) {
            // Hint bits and the visibility map are written now, not by the first readers. A view has none.
            match client.query(&format!("VACUUM (ANALYZE) {table}")) {
                Err(report) if report.ends_connection() => return Err(failed(report)),
                _ => {}
            }
        }
        match client.query("CHECKPOINT") {
            // Only a superuser may; the log is flushed with the next commit in any case.
            Err(report) if report.code != "42501" => Err(failed(report)),
            _ => Ok(()),
        }
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

    fn relations(&self) -> Result<Vec<Relation>, TargetError> {
        let failed = |report: Report| report.while_doing("reading pg_statio_all_tables");
        self.server.ask(statistics::relations).map_err(failed)
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
