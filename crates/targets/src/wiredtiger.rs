//! The embedded WiredTiger, configured as mongod 4.x and later configure it.
//!
//! Storage is mongod's: a record store keyed by a record id without prefix compression, and an `_id` index
//! tree with prefix compression whose entries hold the record id. A read by key is thus two look-ups.
//! Documents are BSON with the key as `_id` and YCSB's fields as binaries.

use bson::RawDocumentBuf;
use bson::spec::BinarySubtype;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tipover_core::experiment::{Compressor, Spec, Trees};
use tipover_core::metric::{Kind, Metric};
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::{Facts, Session, Target, TargetError};
use tipover_core::workload::Dataset;
use tipover_wiredtiger::{Connection, Cursor, Error, Kind as ErrorKind, Sync};

const COLLECTION: &str = "table:collection";
const INDEX: &str = "table:index";
const JOURNAL_INTERVAL: Duration = Duration::from_millis(100);
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// Our name, WiredTiger's description (which is also its path in MongoDB's serverStatus), and what it counts.
const STATISTICS: [(&str, Kind, &str, &str); 12] = [
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
        Ok(WiredTiger { connection, folder: folder.to_path_buf(), config, trees: settings.trees, clockwork })
    }

    fn writer(&self) -> Result<Writer, Error> {
        let session = self.connection.session()?;
        Ok(Writer {
            trees: match self.trees {
                Trees::Two => {
                    Tables::Two { index: session.cursor(INDEX)?, store: session.cursor(COLLECTION)? }
                }
                Trees::One => Tables::One { store: session.cursor(COLLECTION)? },
            },
            session,
        })
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        // Its threads have sessions, and a connection closes when the last one is gone.
        drop(self.clockwork.take());
    }
}

/// mongod's journal flusher and checkpointer.
struct Clockwork {
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Clockwork {
    fn start(connection: &Connection) -> std::io::Result<Self> {
        let mut clockwork = Clockwork { stop: Default::default(), threads: vec![] };
        clockwork.every(JOURNAL_INTERVAL, "journal", connection, |session| session.log_flush(Sync::On))?;
        clockwork.every(CHECKPOINT_INTERVAL, "checkpoint", connection, |session| session.checkpoint())?;
        Ok(clockwork)
    }

    fn every(
        &mut self,
        interval: Duration,
        name: &str,
        connection: &Connection,
        task: impl Fn(&tipover_wiredtiger::Session) -> Result<(), Error> + Send + 'static,
    ) -> std::io::Result<()> {
        let (connection, stop, task_name) = (connection.clone(), self.stop.clone(), name.to_string());
        let work = move || {
            let session = match connection.session() {
                Ok(session) => session,
                Err(error) => return eprintln!("{task_name}: {error}"),
            };
            let mut stopped = stop.0.lock();
            while !*stopped {
                stop.1.wait_for(&mut stopped, interval);
                if *stopped {
                    return;
                }
                // A checkpoint may take long; stopping must not wait for the lock meanwhile.
                parking_lot::MutexGuard::unlocked(&mut stopped, || {
                    if let Err(error) = task(&session) {
                        eprintln!("{task_name}: {error}");
                    }
                });
            }
        };
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }
}

impl Drop for Clockwork {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in there was already printed.
            let _ = thread.join();
        }
    }
}

enum Tables {
    One { store: Cursor<[u8], [u8]> },
    Two { index: Cursor<[u8], i64>, store: Cursor<i64, [u8]> },
}

struct Writer {
    session: tipover_wiredtiger::Session,
    trees: Tables,
}

/// Builds the documents of a data set; keeps its buffers.
struct Documents<'a> {
    dataset: &'a Dataset,
    names: Vec<bson::raw::CString>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Documents<'a> {
    fn of(dataset: &'a Dataset) -> Self {
        let names = (0..dataset.fields)
            .map(|f| format!("field{f}").try_into().expect("a number has no NUL"))
            .collect();
        Documents { dataset, names, key: Vec::new(), value: Vec::new() }
    }

    fn document(&mut self, record: u64) -> RawDocumentBuf {
        self.dataset.key(record, &mut self.key);
        let mut document = RawDocumentBuf::new();
        document.append(bson::raw::cstr!("_id"), std::str::from_utf8(&self.key).expect("keys are ASCII"));
        for (field, name) in self.names.iter().enumerate() {
            self.dataset.value(record, field as u16, &mut self.value);
            document.append(
                name,
                bson::raw::RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &self.value },
            );
        }
        document
    }
}

/// Records that are written in one transaction while loading, as drivers batch inserts.
const BATCH: u64 = 64;

impl Writer {
    fn write(&mut self, documents: &mut Documents<'_>, records: Range<u64>) -> Result<(), Error> {
        self.session.begin()?;
        for record in records {
            let document = documents.document(record);
            let key = documents.key.as_slice();
            let written = match &mut self.trees {
                Tables::One { store } => store.put(key, document.as_bytes()),
                Tables::Two { index, store } => {
                    let id = record as i64 + 1;
                    store.put(&id, document.as_bytes()).and_then(|()| index.put(key, &id))
                }
            };
            if let Err(error) = written {
                self.session.rollback()?;
                return Err(error);
            }
        }
        self.session.commit()
    }
}

impl Target for WiredTiger {
    fn facts(&self) -> Result<Facts, TargetError> {
        let size = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |m| m.len());
        Ok(Facts::from([
            ("system".into(), tipover_wiredtiger::version().into()),
            ("configuration".into(), self.config.clone().into()),
            ("collection_file_bytes".into(), size("collection.wt").into()),
            ("index_file_bytes".into(), size("index.wt").into()),
        ]))
    }

    fn accepts(&self, kind: OpKind) -> bool {
        matches!(kind, OpKind::Read | OpKind::Insert)
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        let mut writer = self.writer().map_err(failed("opening a session to load"))?;
        let mut documents = Documents::of(dataset);
        let mut first = records.start;
        while first < records.end {
            let last = (first + BATCH).min(records.end);
            match writer.write(&mut documents, first..last) {
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
        let writer = self.writer().map_err(failed("opening a session"))?;
        Ok(Box::new(WiredTigerSession { writer, documents: Documents::of(dataset), reply: Vec::new() }))
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

struct WiredTigerSession<'a> {
    writer: Writer,
    documents: Documents<'a>,
    /// The document as a server would put it into its reply.
    reply: Vec<u8>,
}

/// Where the `_id` stands in a document: after the length, the type and the name.
const ID_AT: usize = 4 + 1 + 4 + 4;

impl WiredTigerSession<'_> {
    fn read(&mut self, record: u64) -> Result<Outcome, Error> {
        let Documents { dataset, key, .. } = &mut self.documents;
        dataset.key(record, key);
        let reply = &mut self.reply;
        reply.clear();
        let copy = |document: &[u8]| reply.extend_from_slice(document);
        let found = match &mut self.writer.trees {
            Tables::One { store } => {
                let found = store.get(key.as_slice(), copy)?;
                store.reset()?;
                found
            }
            Tables::Two { index, store } => {
                let id = index.get(key.as_slice(), |id| *id)?;
                index.reset()?;
                let Some(id) = id else { return Ok(Outcome::Refused(Failure::NotFound)) };
                let found = store.get(&id, copy)?;
                store.reset()?;
                match found {
                    // The index says that it exists.
                    None => return Ok(Outcome::Refused(Failure::Corrupt)),
                    found => found,
                }
            }
        };
        Ok(match found {
            None => Outcome::Refused(Failure::NotFound),
            Some(()) if reply.get(ID_AT..ID_AT + key.len()) == Some(key.as_slice()) => Outcome::Done,
            Some(()) => Outcome::Refused(Failure::Corrupt),
        })
    }

    fn insert(&mut self, record: u64) -> Result<Outcome, Error> {
        self.writer.write(&mut self.documents, record..record + 1)?;
        Ok(Outcome::Done)
    }
}

impl Session for WiredTigerSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let result = match *op {
            Op::Read { record } => self.read(record),
            Op::Insert { record } => self.insert(record),
            Op::ReadAt { .. } => return Outcome::Refused(Failure::Other),
        };
        result.unwrap_or_else(|error| {
            Outcome::Refused(match error.kind() {
                ErrorKind::Rollback => Failure::Conflict,
                ErrorKind::NotFound => Failure::NotFound,
                ErrorKind::Io(_) => Failure::InputOutput,
                _ => Failure::Other,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;
    use tipover_core::experiment::{Experiment, TargetKind};

    fn spec(trees: &str) -> Spec {
        let plan = format!(
            r#"
            name = "t"
            title = ""
            question = ""
            why = ""
            how_to_read = ""
            repeats = 1
            [target]
            kind = "wiredtiger"
            [target.wiredtiger]
            cache = "16 MiB"
            trees = "{trees}"
            [disk]
            size = "1 GiB"
            [workload]
            records = 600
            [load]
            sessions = 1
            [[sweep]]
            name = "s"
            question = ""
            [[sweep.axis]]
            name = "a"
            sets = "load.sessions"
            values = [1]
            [scale.quick]
            "#
        );
        Experiment::parse(&plan, "quick", &[]).unwrap().sweeps[0].cells[0].spec.clone()
    }

    #[test]
    fn keeps_the_contract_with_one_tree_and_with_two() {
        for trees in ["one", "two"] {
            let spec = spec(trees);
            assert_eq!(spec.target.kind, TargetKind::Wiredtiger);
            let folder = tempfile::tempdir().unwrap();
            let target = WiredTiger::open(&spec, folder.path()).unwrap();
            let expect =
                contract::Expect { finds_missing_records: true, kinds: &[OpKind::Read, OpKind::Insert] };
            contract::check(&target, &expect);
        }
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
                assert_eq!(session.execute(&Op::Read { record }), Outcome::Done);
            }
            assert_eq!(target.sample().unwrap()["engine_searches"] - before, 100.0);
        }
        let target = WiredTiger::open(&spec, folder.path()).unwrap();
        let mut session = target.open(&dataset).unwrap();
        for record in 0..=100 {
            assert_eq!(session.execute(&Op::Read { record }), Outcome::Done, "record {record}");
        }
    }

    #[test]
    fn documents_are_bson_with_ycsbs_fields() {
        let dataset = Dataset::ycsb(10);
        let document = Documents::of(&dataset).document(3);
        assert_eq!(document.get_str("_id").unwrap(), "user4052466453699787802");
        assert_eq!(document.get_binary("field9").unwrap().bytes.len(), 100);
        assert_eq!(document.iter().count(), 11);
        assert_eq!(&document.as_bytes()[ID_AT..ID_AT + 4], b"user");
    }
}
