//! Servers that speak MongoDB's wire protocol, driven by our own OP_MSG path: the official driver refuses
//! unacknowledged writes, and costs more processor time per operation than a measurement can afford.
//!
//! Read and write concerns go out with every command, and what the server makes of them is probed when the
//! target starts ([`probe`]), because some servers accept them and do nothing.

mod admin;
mod checks;
mod cluster;
mod courier;
mod document;
mod identify;
mod link;
mod load;
mod message;
mod options;
mod probe;
mod profiler;
mod relations;
mod reply;
mod scram;
mod script;
mod session;
mod sharding;
mod statistics;
#[cfg(test)]
mod tests;
mod transaction;
mod transfer;
pub mod untrusted;

pub use profiler::Profiler;
pub use transaction::Transactor;

use admin::Admin;
use admin::Refusal;
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use checks::Checks;
use cluster::{Cluster, integer};
use link::COMMAND_NOT_FOUND;
use load::Checkpoint;
use options::{Acknowledgers, Options, WriteConcern};
use parking_lot::Mutex;
use probe::Capabilities;
use script::ScriptSession;
use session::MongoSession;
use statistics::{Statistics, at};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tipover_core::check::Version;
use tipover_core::experiment::{Durability, Spec, TargetSpec};
use tipover_core::metric::Metric;
use tipover_core::op::OpKind;
use tipover_core::target::{BankRows, Facts, Lists, Relation, Session, Target, TargetError};
use tipover_core::workload::{Dataset, Shape};

/// What sessions execute; a transfer only where transactions were seen to work.
const ACCEPTED: [OpKind; 6] =
    [OpKind::Read, OpKind::Update, OpKind::Insert, OpKind::InsertMany, OpKind::Scan, OpKind::Transfer];

/// A server, replica set or sharded cluster at an address.
pub struct MongoDb {
    cluster: Arc<Cluster>,
    admin: Mutex<Admin>,
    durability: Durability,
    statistics: Statistics,
    capabilities: Capabilities,
    shown: String,
    /// After the last load.
    checkpoint: Mutex<Option<Checkpoint>>,
}

/// The write concern that gives a durability; `None` leaves it to the address and the server.
///
/// # Errors
/// If MongoDB has no such level.
pub fn write_concern_of(durability: Durability) -> Result<Option<WriteConcern>, TargetError> {
    let concern =
        |members, journal| Ok(Some(WriteConcern { members: Some(members), journal, timeout_ms: None }));
    match durability {
        Durability::Configured => Ok(None),
        Durability::Unacknowledged => concern(Acknowledgers::Members(0), None),
        // A server may journal by itself (writeConcernMajorityJournalDefault), so that it is told not to.
        Durability::Acknowledged => concern(Acknowledgers::Members(1), Some(false)),
        Durability::Journalled => concern(Acknowledgers::Members(1), Some(true)),
        Durability::ReplicatedToOne => concern(Acknowledgers::Members(2), None),
        Durability::ReplicatedToMajority => concern(Acknowledgers::Named("majority".into()), Some(true)),
        Durability::Written => Err(TargetError::new(
            "setting the durability",
            "MongoDB has no level between memory and the journal's flush; \"written\" belongs to WiredTiger and \
             MySQL. Use \"acknowledged\" (w:1) or \"journalled\" (w:1, j:true)",
        )),
    }
}

fn options_of(spec: &TargetSpec) -> Result<(Options, String), TargetError> {
    let doing = "reading the settings of the MongoDB target";
    let address = spec.address.as_ref();
    let address = address.ok_or_else(|| TargetError::new(doing, "target.address is missing"))?;
    let mut options = Options::parse(address.with_secrets())?;
    if let Some(concern) = write_concern_of(spec.durability)? {
        let timeout_ms = options.write_concern.timeout_ms;
        options.write_concern = WriteConcern { timeout_ms, ..concern };
    }
    for (key, value) in &spec.settings {
        let set = options.set(key, value);
        set.map_err(|reason| TargetError::new(doing, format!("target.settings: {reason}")))?;
    }
    options.check().map_err(|reason| TargetError::new(doing, reason))?;
    Ok((options, address.shown().to_string()))
}

impl MongoDb {
    /// Connects to the servers that `spec` names.
    pub fn open(spec: &Spec) -> Result<Self, TargetError> {
        Self::connect(&spec.target, spec.load.timeout)
    }

    /// Connects, probes what the servers can do, and reads how they are configured. An operation is given up
    /// after `timeout`; zero is for ever.
    ///
    /// # Errors
    /// If no server can be reached, the password is wrong, what answers is not MongoDB, or the servers
    /// evidently cannot give the durability that was asked for.
    pub fn connect(spec: &TargetSpec, timeout: Duration) -> Result<Self, TargetError> {
        let (options, shown) = options_of(spec)?;
        let doing = format!("connecting to {shown}");
        for ignored in &options.ignored {
            eprintln!("mongodb: ignored in the address: {ignored}");
        }
        let cluster = Arc::new(Cluster::new(options, timeout));
        let mut admin = Admin::new(&cluster)?;
        admin
            .command("admin", &rawdoc! { "ping": 1 })
            .map_err(|refusal| TargetError::new(&doing, refusal.to_string()))?;
        let capabilities = probe::probe(&mut admin, &cluster);
        if cluster.options.login.is_none()
            && let Some(reason) = &capabilities.unauthorized
        {
            return Err(TargetError::new(&doing, format!("{reason}; write user:password@ before the host")));
        }
        cluster.deduplicates.store(capabilities.deduplicates == Some(true), Ordering::Relaxed);
        let status = admin.command("admin", &rawdoc! { "serverStatus": 1 }).ok();
        let target = MongoDb {
            statistics: Statistics::of(status.as_deref()),
            cluster,
            admin: Mutex::new(admin),
            durability: spec.durability,
            capabilities,
            shown,
            checkpoint: Mutex::new(None),
        };
        target.check_durability().map_err(|reason| TargetError::new(doing, reason))?;
        Ok(target)
    }

    /// What was found out about the server's promises.
    #[cfg(test)]
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// A session for transactions, as the bank's transfers are.
    ///
    /// # Errors
    /// If the server was seen not to keep its word on transactions.
    pub fn transactor(&self) -> Result<Transactor, TargetError> {
        match self.without_transactions() {
            Some(why) => Err(TargetError::new("opening a session for transactions", why)),
            None => Transactor::new(&self.cluster),
        }
    }

    /// Why transactions cannot be relied on, if they cannot.
    fn without_transactions(&self) -> Option<String> {
        if self.capabilities.aborts == Some(true) {
            return None;
        }
        let tried = |(name, _): &&(&str, String)| ["transactions", "nothing"].contains(name);
        let seen = self.capabilities.findings.iter().find(tried);
        Some(seen.map_or("they were not tried".into(), |(_, text)| text.clone()))
    }

    /// A session on the tables of checks.
    fn checks(&self) -> Result<Checks, TargetError> {
        // What could not be tried is as MongoDB has it.
        let upserts = self.capabilities.upserts != Some(false);
        Ok(Checks::new(Transactor::new(&self.cluster)?, self.without_transactions(), upserts))
    }

    fn check_durability(&self) -> Result<(), String> {
        let name = serde_json::to_value(self.durability).unwrap_or_default();
        let replicated =
            matches!(self.durability, Durability::ReplicatedToOne | Durability::ReplicatedToMajority);
        if replicated && self.capabilities.honours_write_concern == Some(false) {
            return Err(format!(
                "target.durability = {name}: this server acknowledged a write that 99 members should have \
                 acknowledged, so it ignores write concerns and cannot promise this"
            ));
        }
        let admin = self.admin.lock();
        let alone =
            admin.courier.link().is_some_and(|link| link.hello.set_name.is_none() && !link.hello.router);
        if self.durability == Durability::ReplicatedToOne && alone {
            return Err(format!("target.durability = {name}: this server is no member of a replica set"));
        }
        Ok(())
    }

    fn command(&self, database: &str, command: &RawDocumentBuf) -> Result<RawDocumentBuf, Refusal> {
        self.admin.lock().command(database, command)
    }

    fn default_concerns(&self) -> String {
        match self.command("admin", &rawdoc! { "getDefaultRWConcern": 1 }) {
            Ok(body) => {
                let part = |key| match body.get_document(key) {
                    Ok(concern) => shown(concern),
                    Err(_) => "none".to_string(),
                };
                format!("write {}, read {}", part("defaultWriteConcern"), part("defaultReadConcern"))
            }
            Err(refusal) if refusal.code() == COMMAND_NOT_FOUND => self.oldest_concerns(),
            Err(refusal) => format!("not told: {refusal}"),
        }
    }

    /// How the servers are configured where that decides what an acknowledgement is worth and what their
    /// cache holds. What nobody tells is absent: a router has neither journal nor set.
    fn configured(&self, status: Option<&RawDocumentBuf>) -> Facts {
        let parameters = [
            (cstr!("journalCommitInterval"), "journal_commit_interval_ms"),
            (cstr!("transactionLifetimeLimitSeconds"), "transaction_lifetime_limit_s"),
            (cstr!("syncdelay"), "checkpoint_interval_s"),
        ];
        let mut facts = Facts::new();
        for (name, fact) in parameters {
            // One by one: a server that lacks one of several may refuse them all.
            let mut ask = rawdoc! { "getParameter": 1 };
            ask.append(name, 1);
            let told = self.command("admin", &ask);
            if let Some(number) = told.ok().and_then(|body| integer(&body, name.as_str())) {
                facts.insert(fact.into(), number.into());
            }
        }
        let cache =
            status.and_then(|status| at(status, &["wiredTiger", "cache", "maximum bytes configured"]));
        facts.extend(cache.map(|bytes| ("engine_cache_bytes".into(), (bytes as u64).into())));
        let log = self.command("local", &rawdoc! { "collStats": "oplog.rs" });
        let most = log.ok().and_then(|body| integer(&body, "maxSize"));
        facts.extend(most.map(|bytes| ("oplog_bytes".into(), bytes.into())));
        if let Ok(body) = self.command("admin", &rawdoc! { "replSetGetConfig": 1 })
            && let Ok(set) = body.get_document("config")
        {
            // A configuration that says nothing of it means true.
            let journals = set.get_bool("writeConcernMajorityJournalDefault").unwrap_or(true);
            facts.insert("majority_waits_for_journals".into(), journals.into());
            let settings = set.get_document("settings").ok();
            let timeout = settings.and_then(|settings| integer(settings, "electionTimeoutMillis"));
            facts.extend(timeout.map(|ms| ("election_timeout_ms".into(), ms.into())));
        }
        facts
    }

    /// Before 4.4 the default is w:1 and `local`, unless the set's configuration says otherwise.
    fn oldest_concerns(&self) -> String {
        let configuration = self.command("admin", &rawdoc! { "replSetGetConfig": 1 });
        let defaults = configuration.as_ref().ok().and_then(|body| {
            let settings = body.get_document("config").ok()?.get_document("settings").ok()?;
            settings.get_document("getLastErrorDefaults").ok()
        });
        let write = defaults.map_or_else(|| "{ \"w\": 1 }".to_string(), shown);
        format!(
            "write {write}, read {{ \"level\": \"local\" }}: fixed before 4.4, but for getLastErrorDefaults"
        )
    }
}

/// A concern in words. Nothing in it is followed: a hostile server's could be nested without end.
fn shown(concern: &RawDocument) -> String {
    let part = |(name, value): (&bson::raw::CStr, RawBsonRef<'_>)| match value {
        RawBsonRef::String(text) => format!("\"{name}\": {text:?}"),
        RawBsonRef::Int32(number) => format!("\"{name}\": {number}"),
        RawBsonRef::Int64(number) => format!("\"{name}\": {number}"),
        RawBsonRef::Double(number) => format!("\"{name}\": {number}"),
        RawBsonRef::Boolean(truth) => format!("\"{name}\": {truth}"),
        _ => format!("\"{name}\": ..."),
    };
    format!("{{ {} }}", concern.iter().flatten().map(part).collect::<Vec<_>>().join(", "))
}

impl Target for MongoDb {
    fn facts(&self) -> Result<Facts, TargetError> {
        let doing = "reading the facts of MongoDB";
        let build = self.command("admin", &rawdoc! { "buildInfo": 1 });
        let version = build.as_ref().ok().and_then(|body| body.get_str("version").ok()).unwrap_or("unknown");
        let status = self.command("admin", &rawdoc! { "serverStatus": 1 }).ok();
        let engine = status.as_ref().and_then(|status| status.get_document("storageEngine").ok());
        let engine = engine.and_then(|engine| engine.get_str("name").ok()).unwrap_or("not told");
        let options = &self.cluster.options;
        let mut facts = self.capabilities.facts();
        let defaults = self.default_concerns();
        facts.extend(self.configured(status.as_ref()));
        let mut admin = self.admin.lock();
        // A user who may not look at the configuration is told nothing of it.
        let routed = admin.courier.link().is_some_and(|link| link.hello.router);
        let shares = routed.then(|| sharding::shares(&mut admin, &options.database).ok()).flatten();
        let link = admin.courier.link();
        let link = link.ok_or_else(|| TargetError::new(doing, "the connection is gone"))?;
        let members: Vec<String> = link.hello.members.iter().map(ToString::to_string).collect();
        let ferret = [build.as_ref().ok(), status.as_ref()].into_iter().flatten();
        let ferret = ferret.filter_map(|body| body.get_str("ferretdbVersion").ok()).next();
        let system = match ferret {
            Some(ferret) => format!("FerretDB {ferret}, which calls itself MongoDB {version}"),
            None => format!("MongoDB's wire protocol, version {version}"),
        };
        let mut fact = |name: &str, value: serde_json::Value| facts.insert(name.into(), value);
        fact("system", system.into());
        fact("address", self.shown.clone().into());
        fact("storage_engine", engine.into());
        fact("wire_version", link.hello.wire.into());
        fact("replica_set", link.hello.set_name.clone().into());
        fact("members", members.into());
        fact("primary", link.host.to_string().into());
        fact("encryption", link.encryption().unwrap_or_else(|| "none".into()).into());
        fact("durability", serde_json::to_value(self.durability).unwrap_or_default());
        fact("write_concern_sent", options.write_concern.to_string().into());
        fact("read_concern_sent", options.read_concern.as_deref().unwrap_or("the server's default").into());
        fact("read_preference", options.read_preference.name().into());
        fact("default_concerns", defaults.into());
        if let Some(shares) = shares {
            fact("shards", serde_json::to_value(shares).unwrap_or_default());
        }
        if let Some(checkpoint) = *self.checkpoint.lock() {
            fact("checkpoint_after_load", checkpoint.text().into());
        }
        let retries = options.retries_writes && self.cluster.deduplicates.load(Ordering::Relaxed);
        fact("retries_writes", retries.into());
        fact("statistics_missing", self.statistics.missing.clone().into());
        fact("ignored_options", options.ignored.clone().into());
        let errors: BTreeMap<String, u64> =
            self.cluster.errors().into_iter().map(|(code, times)| (code.to_string(), times)).collect();
        fact("errors_answered", serde_json::to_value(errors).unwrap_or_default());
        Ok(facts)
    }

    fn accepts(&self, kind: OpKind) -> bool {
        let transacts = matches!(kind, OpKind::Transfer | OpKind::ReadBalances | OpKind::Transaction);
        let known = ACCEPTED.contains(&kind) || transacts || matches!(kind, OpKind::Script(_));
        known && (!transacts || self.capabilities.aborts == Some(true))
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        if let Some(sharding) = self.cluster.options.sharding {
            // Several load at once, and the first one shards.
            let mut admin = self.admin.lock();
            let sharded = sharding::shares(&mut admin, &self.cluster.options.database).unwrap_or_default();
            if !sharded.contains_key(&dataset.table) {
                sharding::shard_for(&self.cluster, sharding, dataset)?;
            }
        }
        load::load(&self.cluster, dataset, records)
    }

    fn settle(&self) -> Result<(), TargetError> {
        if self.cluster.options.sharding.is_some() {
            sharding::wait_balanced(&self.cluster)?;
        }
        *self.checkpoint.lock() = Some(load::settle(&mut self.admin.lock(), &self.cluster)?);
        Ok(())
    }

    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        match &dataset.shape {
            Shape::Checks(_) => Ok(Box::new(self.checks()?)),
            Shape::Scripts(scripts) => {
                let why = scripts.has_transactions().then(|| self.without_transactions()).flatten();
                match why {
                    Some(why) => {
                        Err(TargetError::new("opening a session for scripts with transactions", why))
                    }
                    None => Ok(Box::new(ScriptSession::new(&self.cluster, scripts)?)),
                }
            }
            _ => Ok(Box::new(MongoSession::new(&self.cluster, dataset)?)),
        }
    }

    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.checks()?.prepare(accounts)?;
        match self.cluster.options.sharding {
            Some(_) => sharding::wait_balanced(&self.cluster),
            None => Ok(()),
        }
    }

    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        self.checks()?.read_keys()
    }

    fn read_bank(&self) -> Result<BankRows, TargetError> {
        self.checks()?.read_bank()
    }

    fn read_lists(&self) -> Result<Lists, TargetError> {
        self.checks()?.read_lists()
    }

    fn relations(&self) -> Result<Vec<Relation>, TargetError> {
        let found = relations::relations(&mut self.admin.lock(), &self.cluster.options.database);
        found.map_err(|refusal| TargetError::new("reading the counters of collections", refusal))
    }

    fn metrics(&self) -> Vec<Metric> {
        self.statistics.metrics()
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        let mut values = BTreeMap::new();
        if !self.statistics.is_empty() {
            let status = self.command("admin", &rawdoc! { "serverStatus": 1 });
            let status =
                status.map_err(|refusal| TargetError::new("reading serverStatus", refusal.to_string()))?;
            values = self.statistics.values(Some(&status));
        }
        let client = statistics::client(&self.cluster.counts).into_iter();
        values.extend(client.map(|(name, value, _)| (name.to_string(), value)));
        Ok(values)
    }
}
