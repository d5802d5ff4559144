//! `serverStatus` under the names that studies know. What a server does not count is named as missing.

use super::cluster::Counts;
use bson::{RawBsonRef, RawDocument};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use tipover_core::metric::{Kind, Metric};

type Row = (&'static str, Kind, &'static [&'static str], &'static str);

const C: Kind = Kind::Counter;
const G: Kind = Kind::Gauge;

/// Our name, kind, path in `serverStatus`, and what it counts. The first part is WiredTiger's own counters,
/// under the names that the embedded engine's have.
const ROWS: [Row; 43] = [
    ("engine_searches", C, &["wiredTiger", "cursor", "cursor search calls"], "look-ups in a tree"),
    (
        "engine_page_requests",
        C,
        &["wiredTiger", "cache", "pages requested from the cache"],
        "pages asked of the cache, several per look-up",
    ),
    (
        "engine_page_reads",
        C,
        &["wiredTiger", "cache", "pages read into cache"],
        "pages that were not in the cache: misses",
    ),
    (
        "engine_cache_read_bytes",
        C,
        &["wiredTiger", "cache", "bytes read into cache"],
        "bytes of those pages in memory, uncompressed",
    ),
    (
        "engine_cache_write_bytes",
        C,
        &["wiredTiger", "cache", "bytes written from cache"],
        "bytes written out of the cache, uncompressed",
    ),
    ("engine_file_reads", C, &["wiredTiger", "block-manager", "blocks read"], "blocks read from files"),
    (
        "engine_file_read_bytes",
        C,
        &["wiredTiger", "block-manager", "bytes read"],
        "bytes of those blocks, compressed as on disk",
    ),
    (
        "engine_file_write_bytes",
        C,
        &["wiredTiger", "block-manager", "bytes written"],
        "bytes written to files",
    ),
    (
        "engine_checkpoint_write_bytes",
        C,
        &["wiredTiger", "block-manager", "bytes written for checkpoint"],
        "of these, for checkpoints",
    ),
    (
        "engine_checkpoints",
        C,
        &["wiredTiger", "transaction", "transaction checkpoints"],
        "checkpoints of all data files",
    ),
    (
        "engine_clean_evictions",
        C,
        &["wiredTiger", "cache", "unmodified pages evicted"],
        "pages dropped from the cache",
    ),
    (
        "engine_dirty_evictions",
        C,
        &["wiredTiger", "cache", "modified pages evicted"],
        "pages written out and dropped from the cache",
    ),
    (
        "engine_cache_wait_us",
        C,
        &["wiredTiger", "thread-yield", "application thread time waiting for cache (usecs)"],
        "time that the server's threads waited for room in the cache",
    ),
    (
        "engine_session_evictions",
        C,
        &["wiredTiger", "cache", "pages evicted by application threads"],
        "pages that a client's thread had to evict itself",
    ),
    ("engine_journal_bytes", C, &["wiredTiger", "log", "log bytes written"], "bytes written to the journal"),
    (
        "engine_journal_syncs",
        C,
        &["wiredTiger", "log", "log sync operations"],
        "journal flushes to the device",
    ),
    (
        "engine_transactions",
        C,
        &["wiredTiger", "transaction", "transactions committed"],
        "committed transactions of the engine",
    ),
    (
        "engine_conflicts",
        C,
        &["wiredTiger", "transaction", "update conflicts"],
        "updates that met another transaction's",
    ),
    (
        "engine_cache_bytes",
        G,
        &["wiredTiger", "cache", "bytes currently in the cache"],
        "bytes in the engine's cache, with WiredTiger's 8 % allowance for its allocator",
    ),
    (
        "engine_cache_limit_bytes",
        G,
        &["wiredTiger", "cache", "maximum bytes configured"],
        "size of the engine's cache",
    ),
    (
        "engine_dirty_bytes",
        G,
        &["wiredTiger", "cache", "tracked dirty bytes in the cache"],
        "bytes in the cache that are not on disk yet",
    ),
    ("server_inserts", C, &["opcounters", "insert"], "documents inserted by clients"),
    ("server_queries", C, &["opcounters", "query"], "queries"),
    ("server_updates", C, &["opcounters", "update"], "updates"),
    ("server_deletes", C, &["opcounters", "delete"], "deletes"),
    ("server_get_mores", C, &["opcounters", "getmore"], "further batches of cursors"),
    ("server_commands", C, &["opcounters", "command"], "other commands"),
    ("server_received_bytes", C, &["network", "bytesIn"], "bytes received, after decompression"),
    ("server_sent_bytes", C, &["network", "bytesOut"], "bytes sent, before compression"),
    ("server_requests", C, &["network", "numRequests"], "requests received"),
    ("server_connections", G, &["connections", "current"], "connections open now"),
    ("server_active_connections", G, &["connections", "active"], "connections with an operation under way"),
    ("server_resident_mebibytes", G, &["mem", "resident"], "memory of the server's process, in MiB"),
    ("server_page_faults", C, &["extra_info", "page_faults"], "page faults that needed the device"),
    ("server_documents_inserted", C, &["metrics", "document", "inserted"], "documents inserted"),
    ("server_documents_returned", C, &["metrics", "document", "returned"], "documents returned"),
    ("server_documents_updated", C, &["metrics", "document", "updated"], "documents updated"),
    (
        "server_write_conflicts",
        C,
        &["metrics", "operation", "writeConflicts"],
        "write conflicts, tried again",
    ),
    (
        "server_replication_wait_ms",
        C,
        &["metrics", "getLastError", "wtime", "totalMillis"],
        "time that writes waited for other members",
    ),
    (
        "server_replication_time_outs",
        C,
        &["metrics", "getLastError", "wtimeouts"],
        "writes that other members did not confirm in time",
    ),
    ("server_transactions_committed", C, &["transactions", "totalCommitted"], "transactions committed"),
    ("server_transactions_aborted", C, &["transactions", "totalAborted"], "transactions aborted"),
    (
        "server_flow_control_waits_us",
        C,
        &["flowControl", "timeAcquiringMicros"],
        "time that writes were held back",
    ),
];

/// The number at `path` of a status document.
pub fn at(status: &RawDocument, path: &[&str]) -> Option<f64> {
    let (last, before) = path.split_last()?;
    let mut document = status;
    for part in before {
        document = document.get_document(part).ok()?;
    }
    match document.get(last).ok()?? {
        RawBsonRef::Int32(number) => Some(f64::from(number)),
        RawBsonRef::Int64(number) => Some(number as f64),
        RawBsonRef::Double(number) => Some(number),
        _ => None,
    }
}

/// The statistics that one server has.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    rows: Vec<&'static Row>,
    /// Names of those that it has not.
    pub missing: Vec<&'static str>,
}

impl Statistics {
    /// Those that `status` has; `None` if the server has no such command.
    pub fn of(status: Option<&RawDocument>) -> Statistics {
        let has = |row: &Row| status.is_some_and(|status| at(status, row.2).is_some());
        let (rows, missing): (Vec<&Row>, Vec<&Row>) = ROWS.iter().partition(|row| has(row));
        Statistics { rows, missing: missing.iter().map(|row| row.0).collect() }
    }

    /// Whether there is anything to ask the server for.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What is sampled.
    pub fn metrics(&self) -> Vec<Metric> {
        let server = self.rows.iter().map(|(name, kind, path, help)| Metric {
            name: (*name).into(),
            kind: *kind,
            help: format!("{help}; the primary's serverStatus.{}", path.join(".")),
        });
        let client = client(&Counts::default()).into_iter().map(|(name, _, help)| Metric {
            name: name.into(),
            kind: Kind::Counter,
            help: format!("{help}; counted by our sessions"),
        });
        server.chain(client).collect()
    }

    /// The values in `status`.
    pub fn values(&self, status: Option<&RawDocument>) -> BTreeMap<String, f64> {
        let value = |row: &&Row| Some((row.0.to_string(), at(status?, row.2)?));
        self.rows.iter().filter_map(value).collect()
    }
}

/// What sessions counted themselves.
pub fn client(counts: &Counts) -> Vec<(&'static str, f64, &'static str)> {
    let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    vec![
        ("client_connections", value(&counts.connections), "connections made"),
        (
            "client_retried_writes",
            value(&counts.retried_writes),
            "writes sent again under the same transaction number",
        ),
        ("client_retried_reads", value(&counts.retried_reads), "reads sent again"),
        (
            "client_retried_transactions",
            value(&counts.retried_transactions),
            "transactions begun anew after a transient error",
        ),
        ("client_retried_commits", value(&counts.retried_commits), "commits sent again"),
        (
            "client_unacknowledged_writes",
            value(&counts.unacknowledged_writes),
            "writes that asked for no answer: sent, and nothing more is known",
        ),
        ("client_unasked_answers", value(&counts.unasked_answers), "answers that nobody had asked for"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;
    use tipover_core::metric::name;

    #[test]
    fn numbers_are_read_in_every_type_and_what_is_missing_is_named() {
        let status = rawdoc! { "opcounters": { "insert": 7_i64, "query": 3, "update": 2.0, "delete": "x" },
        "wiredTiger": { "cache": { "pages read into cache": 9 } } };
        let statistics = Statistics::of(Some(&status));
        let values = statistics.values(Some(&status));
        assert_eq!(values["server_inserts"], 7.0);
        assert_eq!((values["server_queries"], values["server_updates"]), (3.0, 2.0));
        assert_eq!(values[name::ENGINE_PAGE_READS], 9.0);
        assert!(statistics.missing.contains(&"server_deletes"));
        assert_eq!(values.len() + statistics.missing.len(), ROWS.len());
        assert!(Statistics::of(None).is_empty());
    }

    #[test]
    fn studies_find_their_metrics() {
        for name in [
            name::ENGINE_SEARCHES,
            name::ENGINE_PAGE_READS,
            name::ENGINE_CACHE_READ_BYTES,
            name::ENGINE_FILE_READ_BYTES,
            name::ENGINE_FILE_READS,
            name::ENGINE_CACHE_BYTES,
        ] {
            assert!(ROWS.iter().any(|row| row.0 == name), "{name}");
        }
    }
}
