//! The embedded WiredTiger, configured as mongod 4.x and later configure it.
//!
//! Storage is mongod's: a record store keyed by a record id without prefix compression, and an `_id` index
//! tree with prefix compression whose entries hold the record id. A read by key is thus two look-ups.
//! Documents are BSON with the key as `_id` and YCSB's fields as binaries.

mod checks;
mod clockwork;
mod document;
mod durable;
mod session;
mod writer;

use checks::Checks;
use clockwork::Clockwork;
use document::Documents;
use durable::Flushes;
use session::WiredTigerSession;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tipover_core::check::Version;
use tipover_core::experiment::{Compressor, Durability, Spec, Trees};
use tipover_core::metric::{Kind, Metric};
use tipover_core::op::OpKind;
use tipover_core::target::{BankRows, Facts, Lists, Session, Target, TargetError};
use tipover_core::workload::{Dataset, Shape};
use tipover_wiredtiger::{Connection, Error, Kind as ErrorKind};
use writer::Writer;

const COLLECTION: &str = "table:collection";
const INDEX: &str = "table:index";

/// Records that are written in one transaction while loading, as drivers batch inserts.
const BATCH: u64 = 64;

/// Our name, WiredTiger's description (which is also its path in MongoDB's serverStatus), and what it counts.
const STATISTICS: [(&str, Kind, &str, &str); 19] = [
    ("engine_searches", Kind::Counter, "cursor: cursor search calls", "look-ups in a tree"),
    (
        "engine_page_requests",
        Kind::Counter,
        "cache: pages requested from the cache",
        "pages asked of the cache, several per look-up",
    ),
    (
        "engine_page_reads",
        Kind::Counter,
        "cache: pages read into cache",
        "pages that were not in the cache: misses",
    ),
    (
        "engine_cache_read_bytes",
        Kind::Counter,
        "cache: bytes read into cache",
        "bytes of those pages in memory, uncompressed",
    ),
    (
        "engine_file_reads",
        Kind::Counter,
        "block-manager: blocks read",
        "blocks read from files, from the page cache or the device",
    ),
    (
        "engine_file_read_bytes",
        Kind::Counter,
        "block-manager: bytes read",
        "bytes of those blocks, compressed as on disk",
    ),
    (
        "engine_clean_evictions",
        Kind::Counter,
        "cache: unmodified pages evicted",
        "pages dropped from the cache",
    ),
    (
        "engine_cache_wait_us",
        Kind::Counter,
        "thread-yield: application thread time waiting for cache (usecs)",
        "time that sessions waited for room in the cache",
    ),
    ("engine_file_write_bytes", Kind::Counter, "block-manager: bytes written", "bytes written to files"),
    (
        "engine_checkpoint_write_bytes",
        Kind::Counter,
        "block-manager: bytes written for checkpoint",
        "of these, for checkpoints",
    ),
    ("engine_journal_bytes", Kind::Counter, "log: log bytes written", "bytes written to the journal"),
    ("engine_transactions", Kind::Counter, "transaction: transactions committed", "committed transactions"),
    (
        "engine_conflicts",
        Kind::Counter,
        "transaction: update conflicts",
        "updates that met another transaction's and were tried again",
    ),
    (
        "engine_checkpoints",
        Kind::Counter,
        "checkpoint: total succeed number of checkpoints",
        "checkpoints that were finished",
    ),
    (
        "engine_session_evictions",
        Kind::Counter,
        "cache: page evict attempts by application threads",
        "pages that a session had to evict itself, because the cache was full or dirty",
    ),
    ("engine_journal_syncs", Kind::Counter, "log: log sync operations", "journal flushes to the device"),
    (
        "engine_cache_bytes",
        Kind::Gauge,
        "cache: bytes currently in the cache",
        "bytes in the cache, with WiredTiger's 8 % allowance for its allocator",
    ),
    ("engine_cache_limit_bytes", Kind::Gauge, "cache: maximum bytes configured", "size of the cache"),
    (
        "engine_dirty_bytes",
        Kind::Gauge,
        "cache: tracked dirty bytes in the cache",
        "bytes in the cache that are not on disk yet",
    ),
];

/// An open WiredTiger home with mongod's two background threads.
pub struct WiredTiger {
    connection: Connection,
    folder: PathBuf,
    config: String,
    trees: Trees,
    durability: Durability,
    flushes: Flushes,
    clockwork: Option<Clockwork>,
}

fn failed(doing: &str) -> impl FnOnce(Error) -> TargetError + '_ {
    move |error| TargetError::new(doing, error)
}

impl WiredTiger {
    /// Opens the home in `folder`, creating it when empty, recovering it when it was not closed.
    pub fn open(spec: &Spec, folder: &Path) -> Result<Self, TargetError> {
        let doing = format!("opening the WiredTiger home {}", folder.display());
        std::fs::create_dir_all(folder.join("journal")).map_err(|e| TargetError::new(&doing, e))?;
        let settings = &spec.target.wiredtiger;
        let durability = spec.target.durability;
        let flushes = Flushes::of(durability)?;
        let config = format!(
            "create,cache_size={},session_max=1000,eviction=(threads_min=4,threads_max=4),eviction_target=80,\
             eviction_trigger=95,eviction_dirty_target=5,eviction_dirty_trigger=20,config_base=false,\
             statistics=(fast),file_manager=(close_idle_time=600,close_scan_interval=10,close_handle_minimum=2000),\
             log=(enabled=true,remove=true,path=journal,compressor=snappy)",
            spec.cache_bytes().0
        );
        let connection = Connection::open(folder, &config).map_err(failed(&doing))?;
        let session = connection.session().map_err(failed(&doing))?;
        let compressor = match settings.compressor {
            Compressor::Snappy => "snappy",
            Compressor::None => "none",
        };
        let store = format!(
            "type=file,memory_page_max=10m,split_pct=90,leaf_value_max=64MB,checksum=on,value_format=u,\
             block_compressor={compressor}"
        );
        match settings.trees {
            Trees::Two => {
                session.create(COLLECTION, &format!("{store},key_format=q")).map_err(failed(&doing))?;
                session
                    .create(
                        INDEX,
                        "type=file,internal_page_max=16k,leaf_page_max=16k,checksum=on,prefix_compression=true,\
                         block_compressor=none,key_format=u,value_format=q",
                    )
                    .map_err(failed(&doing))?;
            }
            Trees::One => session
                .create(COLLECTION, &format!("{store},key_format=u,prefix_compression=true"))
                .map_err(failed(&doing))?,
        }
        drop(session);
        let clockwork = Some(Clockwork::start(&connection).map_err(|e| TargetError::new(&doing, e))?);
        let (folder, trees) = (folder.to_path_buf(), settings.trees);
        Ok(WiredTiger { connection, folder, config, trees, durability, flushes, clockwork })
    }

    fn checks(&self) -> Result<Checks<'_>, TargetError> {
        Checks::open(&self.connection, &self.flushes)
    }

    fn writer(&self) -> Result<Writer, Error> {
        Writer::open(&self.connection, self.trees)
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        // Its threads have sessions, and a connection closes when the last one is gone.
        drop(self.clockwork.take());
    }
}

impl Target for WiredTiger {
    fn facts(&self) -> Result<Facts, TargetError> {
        let size = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |m| m.len());
        Ok(Facts::from([
            ("system".into(), tipover_wiredtiger::version().into()),
            ("configuration".into(), self.config.clone().into()),
            ("durability".into(), serde_json::to_value(self.durability).unwrap_or_default()),
            ("collection_file_bytes".into(), size("collection.wt").into()),
            ("index_file_bytes".into(), size("index.wt").into()),
        ]))
    }

    fn accepts(&self, kind: OpKind) -> bool {
        matches!(
            kind,
            OpKind::Read
                | OpKind::Update
                | OpKind::Insert
                | OpKind::InsertMany
                | OpKind::Scan
                | OpKind::Transfer
                | OpKind::ReadBalances
                | OpKind::Transaction
        )
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        let mut writer = self.writer().map_err(failed("opening a session to load"))?;
        let mut documents = Documents::of(dataset);
        let mut first = records.start;
        while first < records.end {
            let last = (first + BATCH).min(records.end);
            match writer.put(&mut documents, first..last) {
                Ok(()) => first = last,
                // The cache was too full for the transaction; it was rolled back and can be repeated.
                Err(error) if error.kind() == ErrorKind::Rollback => {}
                Err(error) => {
                    return Err(TargetError::new(format!("loading records {first} to {last}"), error));
                }
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), TargetError> {
        let session = self.connection.session().map_err(failed("settling"))?;
        session.checkpoint().map_err(failed("writing a checkpoint"))
    }

    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        match dataset.shape {
            Shape::Checks(_) | Shape::Bank(_) => Ok(Box::new(self.checks()?)),
            Shape::Fields | Shape::Documents(_) => Ok(Box::new(WiredTigerSession::open(self, dataset)?)),
            Shape::Scripts(_) => Err(crate::no_scripts()),
        }
    }

    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.checks()?.prepare(accounts)
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

    fn metrics(&self) -> Vec<Metric> {
        STATISTICS
            .iter()
            .map(|(name, kind, source, help)| Metric {
                name: name.to_string(),
                kind: *kind,
                help: format!("{help}; WiredTiger's \"{source}\""),
            })
            .collect()
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        let doing = "reading WiredTiger's statistics";
        let session = self.connection.session().map_err(failed(doing))?;
        let names = STATISTICS.map(|(_, _, description, _)| description);
        let mut reader = session.statistics_reader(None, &names).map_err(failed(doing))?;
        let values = reader.read().map_err(failed(doing))?;
        Ok(STATISTICS
            .iter()
            .zip(values)
            .map(|((name, ..), value)| (name.to_string(), *value as f64))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;
    use tipover_core::experiment::TargetKind;
    use tipover_core::op::{Failure, Fields, Op, Outcome};

    fn spec(trees: &str) -> Spec {
        let spec = serde_json::json!({
            "target": {"kind": "wiredtiger", "wiredtiger": {"cache": "16 MiB", "trees": trees}},
            "disk": {"size": "1 GiB"},
            "workload": {"records": 600},
            "load": {"sessions": 1},
        });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn keeps_the_contract_with_one_tree_and_with_two() {
        for trees in ["one", "two"] {
            let spec = spec(trees);
            assert_eq!(spec.target.kind, TargetKind::Wiredtiger);
            let folder = tempfile::tempdir().unwrap();
            let target = WiredTiger::open(&spec, folder.path()).unwrap();
            let expect = contract::Expect { keeps_records: true, kinds: contract::RECORDS_IN_FULL };
            contract::check(&target, &expect);
        }
    }

    fn with(durability: Durability) -> Spec {
        let mut spec = spec("two");
        spec.target.durability = durability;
        spec
    }

    #[test]
    fn keeps_the_contract_whatever_an_acknowledgement_promises() {
        for durability in [Durability::Acknowledged, Durability::Written, Durability::Journalled] {
            let folder = tempfile::tempdir().unwrap();
            let target = WiredTiger::open(&with(durability), folder.path()).unwrap();
            let expect = contract::Expect { keeps_records: true, kinds: contract::RECORDS_IN_FULL };
            contract::check(&target, &expect);
            contract::check_ledger_and_bank(&target);
        }
    }

    #[test]
    fn an_acknowledgement_flushes_what_it_promises_and_sessions_share_flushes() {
        let syncs = |durability: Durability, sessions: u64| {
            let folder = tempfile::tempdir().unwrap();
            let target = WiredTiger::open(&with(durability), folder.path()).unwrap();
            let dataset = Dataset::ycsb(100);
            target.load(&dataset, 0..100).unwrap();
            let before = target.sample().unwrap()["engine_journal_syncs"];
            std::thread::scope(|scope| {
                for session in 0..sessions {
                    let (target, dataset) = (&target, &dataset);
                    scope.spawn(move || {
                        let mut opened = target.open(dataset).unwrap();
                        for n in 0..200 {
                            let op = Op::Update {
                                record: (session * 7 + n) % 100,
                                fields: Fields::All,
                                version: n,
                            };
                            assert_eq!(opened.execute(&op), Outcome::Done);
                        }
                    });
                }
            });
            target.sample().unwrap()["engine_journal_syncs"] - before
        };
        assert!(syncs(Durability::Journalled, 1) >= 200.0, "each waits for a flush of its own");
        let shared = syncs(Durability::Journalled, 8);
        assert!((20.0..1_600.0).contains(&shared), "{shared} flushes for 1,600 updates by 8 sessions");
        // The background flusher alone: one in 100 ms.
        assert!(syncs(Durability::Acknowledged, 1) < 100.0);
    }

    #[test]
    fn nobody_waits_for_an_unacknowledged_write_which_is_done_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let target = WiredTiger::open(&with(Durability::Unacknowledged), folder.path()).unwrap();
        let dataset = Dataset::ycsb(10);
        target.load(&dataset, 0..10).unwrap();
        {
            let mut session = target.open(&dataset).unwrap();
            let missing = Op::Update { record: 99, fields: Fields::All, version: 1 };
            assert_eq!(session.execute(&missing), Outcome::Done, "nobody hears that there is no such record");
            for record in 10..3_000 {
                assert_eq!(session.execute(&Op::Insert { record }), Outcome::Done);
            }
        }
        let mut session = target.open(&dataset).unwrap();
        for record in [10, 1_500, 2_999] {
            assert_eq!(session.execute(&Op::Read { record, fields: Fields::All }), Outcome::Done);
        }
        let missing = session.execute(&Op::Read { record: 99_999, fields: Fields::All });
        assert_eq!(missing, Outcome::Refused(Failure::NotFound));
    }

    #[test]
    fn replicas_that_an_embedded_engine_does_not_have_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let Err(error) = WiredTiger::open(&with(Durability::ReplicatedToMajority), folder.path()) else {
            panic!("one process is no majority");
        };
        assert!(error.to_string().contains("no replicas"), "{error}");
    }

    #[test]
    fn a_read_is_two_searches_and_what_is_inserted_is_read_after_a_restart() {
        let (spec, folder) = (spec("two"), tempfile::tempdir().unwrap());
        let dataset = Dataset::ycsb(100);
        {
            let target = WiredTiger::open(&spec, folder.path()).unwrap();
            target.load(&dataset, 0..100).unwrap();
            let mut session = target.open(&dataset).unwrap();
            assert_eq!(session.execute(&Op::Insert { record: 100 }), Outcome::Done);
            let before = target.sample().unwrap()["engine_searches"];
            for record in 0..50 {
                assert_eq!(session.execute(&Op::Read { record, fields: Fields::All }), Outcome::Done);
            }
            assert_eq!(target.sample().unwrap()["engine_searches"] - before, 100.0);
        }
        let target = WiredTiger::open(&spec, folder.path()).unwrap();
        let mut session = target.open(&dataset).unwrap();
        for record in 0..=100 {
            assert_eq!(
                session.execute(&Op::Read { record, fields: Fields::All }),
                Outcome::Done,
                "record {record}"
            );
        }
    }

    #[test]
    fn documents_are_bson_with_ycsbs_fields() {
        let dataset = Dataset::ycsb(10);
        let document = Documents::of(&dataset).document(3);
        assert_eq!(document.get_str("_id").unwrap(), "user4052466453699787802");
        assert_eq!(document.get_binary("field9").unwrap().bytes.len(), 100);
        assert_eq!(document.iter().count(), 11);
        assert_eq!(&document.as_bytes()[document::ID_AT..document::ID_AT + 4], b"user");
    }
}
