//! PostgreSQL. Set-up and statistics go over the same kind of connection as the measured operations, so that
//! what is read back was read where it counts.

mod checks;
mod client;
mod greeting;
mod message;
mod operations;
mod outcome;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod transfer;

use crate::connection::{Dialect, Link, Place, Protocol, Route, Row};
use checks::Checks;
use client::Client;
use greeting::Hello;
use message::Report;
use operations::Operations;
use parking_lot::Mutex;
use statistics::Statistics;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use table::{Table, literal};
use tipover_core::experiment::{Durability, Spec};
use tipover_core::metric::Metric;
use tipover_core::op::OpKind;
use tipover_core::target::{CheckSession, Facts, Session, Target, TargetError};
use tipover_core::workload::bank::Bank;
use tipover_core::workload::{Dataset, Shape};
use transfer::Vault;

const DIALECT: Dialect = Dialect {
    schemes: &["postgres", "postgresql"],
    port: 5432,
    encryption: "sslmode",
    authorities: "sslrootcert",
    password_variable: "PGPASSWORD",
    user: "postgres",
    socket_name: |port| Some(format!(".s.PGSQL.{port}")),
};

/// Parameters of a URL that the server takes as they are.
const PASSED_ON: &[&str] = &["application_name", "options"];

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

/// How long a question about the server may take; loading and settling take as long as they need.
const PATIENCE: Duration = Duration::from_secs(10);

/// A PostgreSQL server.
pub struct Postgres {
    place: Place,
    route: Route,
    settings: BTreeMap<String, String>,
    timeout: Duration,
    /// For statistics and facts; made anew when it is lost.
    client: Mutex<Option<Client>>,
    statistics: Statistics,
    /// What the accounts and transfers of checks are called.
    bank: Arc<Bank>,
    /// Held by whoever makes the table.
    creation: Mutex<()>,
    /// What the last session found, for the next one.
    table: Mutex<Option<(Dataset, Arc<Table>)>>,
}

impl Postgres {
    /// Connects to the server of `spec` and checks that it can give the durability asked for.
    pub fn open(spec: &Spec) -> Result<Self, TargetError> {
        let address = spec
            .target
            .address
            .as_ref()
            .ok_or_else(|| TargetError::new("opening PostgreSQL", "target.address is missing"))?;
        let doing = format!("connecting to {address}");
        let place =
            Place::parse(address, &DIALECT, PASSED_ON).map_err(|reason| TargetError::new(&doing, reason))?;
        let route = Route::to(&place).map_err(|reason| TargetError::new(&doing, reason))?;
        let mut settings = BTreeMap::new();
        if let Some(value) = synchronous_commit(spec.target.durability)? {
            settings.insert("synchronous_commit".to_string(), value.to_string());
        }
        settings.extend(spec.target.settings.clone());
        let (mut client, way) = Client::connect(&route, Hello::new(&place, &settings), place.connect_timeout)
            .map_err(|refusal| TargetError::new(&doing, refusal.reason))?;
        client.set_timeout(PATIENCE).map_err(|error| TargetError::new(&doing, error))?;
        let failed = |report: Report| TargetError::new(&doing, report);
        let version = client.value("SHOW server_version_num").map_err(failed)?.parse().unwrap_or(0);
        let timed = client.value("SHOW track_io_timing").map_err(failed)? == "on";
        if spec.target.durability != Durability::Configured {
            check_durability(&mut client, spec.target.durability, &settings)?;
        }
        Ok(Postgres {
            route: route.narrowed(way),
            place,
            settings,
            timeout: spec.load.timeout,
            client: Mutex::new(Some(client)),
            statistics: Statistics::of(version, timed),
            bank: Arc::new(spec.workload.bank().map_err(|error| TargetError::new(&doing, error))?),
            creation: Mutex::new(()),
            table: Mutex::new(None),
        })
    }

    fn hello(&self) -> Hello {
        Hello::new(&self.place, &self.settings)
    }

    /// How well transfers and transactions of lists are kept apart: as in old stroppy, unless the plan says.
    fn isolation(&self) -> &str {
        self.settings.get("default_transaction_isolation").map_or("repeatable read", String::as_str)
    }

    /// A session on the ledger and on the accounts of `bank`.
    fn vault(&self, bank: &Arc<Bank>) -> Result<Link<Vault>, TargetError> {
        let vault = Vault::new(self.hello(), bank.clone(), self.isolation());
        self.link(vault)
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
                Err(report) if report.ends_connection() => {
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

    /// The table, made if it does not exist.
    fn made_table(&self, client: &mut Client, dataset: &Dataset) -> Result<Table, String> {
        let _alone = self.creation.lock();
        let explained = |report: Report| explained(&report);
        if let Some(found) = Table::find(client, dataset).map_err(explained)? {
            return found;
        }
        match client.query(&Table::definition(dataset)) {
            Ok(_) => {}
            // Another process was faster: duplicate_table, unique_violation in the catalogue.
            Err(report) if matches!(report.code.as_str(), "42P07" | "23505") => {}
            Err(report) => return Err(explained(report)),
        }
        let found = Table::find(client, dataset).map_err(explained)?;
        found.ok_or("it was made and is not there; is its schema in search_path?".to_string())?
    }

    fn try_load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), String> {
        /// Records per transaction: what a lost connection costs, and how much is sent again if some of them
        /// exist already.
        const BATCH: u64 = 10_000;
        let explained = |report: Report| explained(&report);
        let mut client = self.patient_client().map_err(explained)?;
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
                    client.query(&table.merge(staging)).map_err(explained)?;
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

fn explained(report: &Report) -> String {
    format!("{report}{}", outcome::advice(report))
}

/// The setting that gives a promise; `None` leaves it as the server is configured.
fn synchronous_commit(durability: Durability) -> Result<Option<&'static str>, TargetError> {
    let refuse = |reason: &str| {
        Err(TargetError::new(format!("setting target.durability to {durability:?} on PostgreSQL"), reason))
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
fn check_durability(
    client: &mut Client,
    durability: Durability,
    settings: &BTreeMap<String, String>,
) -> Result<(), TargetError> {
    let doing = format!("checking that the server can give target.durability {durability:?}");
    let failed = |report: Report| TargetError::new(&doing, report);
    let set = client.value("SHOW synchronous_commit").map_err(failed)?;
    if settings.get("synchronous_commit") != Some(&set) {
        let reason =
            format!("synchronous_commit was set and reads back as {set}; does a pooler drop settings?");
        return Err(TargetError::new(&doing, reason));
    }
    if durability >= Durability::Journalled && client.value("SHOW fsync").map_err(failed)? == "off" {
        return Err(TargetError::new(&doing, "fsync is off there, so nothing is ever flushed"));
    }
    if durability >= Durability::ReplicatedToOne {
        let names = client.value("SHOW synchronous_standby_names").map_err(failed)?;
        if names.is_empty() {
            return Err(TargetError::new(
                &doing,
                "synchronous_standby_names is empty there, so commits wait for no standby",
            ));
        }
        let query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        if client.value(query).map_err(failed)? == "0" {
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
        let wanted: Vec<String> =
            TELLING.iter().copied().chain(self.settings.keys().map(String::as_str)).map(literal).collect();
        let settings = format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE lower(name) IN (lower({}))",
            wanted.join("), lower(")
        );
        let rows = self.ask(|client| client.query(&settings)).map_err(failed)?;
        let mut facts = Facts::new();
        for row in rows {
            if let [Some(name), Some(value)] = row.as_slice() {
                facts.insert(name.to_lowercase(), value.as_str().into());
            }
        }
        let version = self.ask(|client| client.value("SELECT version()")).map_err(failed)?;
        facts.insert("system".into(), version.into());
        let encryption = self.ask(|client| Ok(client.encryption())).map_err(failed)?;
        facts.insert("encryption".into(), encryption.unwrap_or_else(|| "none".into()).into());
        let standby = self.ask(|client| client.value("SELECT pg_is_in_recovery()")).map_err(failed)?;
        facts.insert("transfer_isolation".into(), self.isolation().into());
        facts.insert("is_standby".into(), (standby == "t").into());
        let standbys = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        if let Ok(Ok(count)) = self.ask(|client| client.value(standbys)).map(|count| count.parse::<u64>()) {
            facts.insert("synchronous_standbys".into(), count.into());
        }
        let table = self.table.lock().as_ref().map(|(_, table)| table.clone());
        if let Some(table) = table {
            let size = |function: &str| format!("SELECT {function}({}::regclass)", literal(table.name()));
            for (fact, function) in
                [("table_file_bytes", "pg_table_size"), ("index_file_bytes", "pg_indexes_size")]
            {
                let bytes = self.ask(|client| client.value(&size(function))).map_err(failed)?;
                facts.insert(fact.into(), bytes.parse::<u64>().unwrap_or(0).into());
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
        self.try_load(dataset, records).map_err(|reason| TargetError::new(doing, reason))?;
        // For the facts.
        self.table(dataset).map(|_| ())
    }

    fn settle(&self) -> Result<(), TargetError> {
        let failed = |report: Report| TargetError::new("settling", report);
        let mut client = self.patient_client().map_err(failed)?;
        let table = self.table.lock().as_ref().map(|(_, table)| table.clone());
        if let Some(table) = table {
            // Hint bits and the visibility map are written now, not by the first readers. A view has none.
            match client.query(&format!("VACUUM (ANALYZE) {}", table.name())) {
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
