//! The server's own counters: `SHOW GLOBAL STATUS`, of which each version and engine has others.

use super::client::Client;
use super::packet::Report;
use crate::connection::sql::Client as _;
use std::collections::BTreeMap;
use tipover_core::metric::Kind::{self, Counter, Gauge};
use tipover_core::metric::{Metric, name};

/// A metric: our name, its kind, the server's names of which the values are added, a factor, what it counts.
struct Statistic {
    name: &'static str,
    kind: Kind,
    sources: &'static [&'static str],
    page: bool,
    help: &'static str,
}

const fn statistic(
    name: &'static str,
    kind: Kind,
    sources: &'static [&'static str],
    help: &'static str,
) -> Statistic {
    Statistic { name, kind, sources, page: false, help }
}

const INNODB: [Statistic; 13] = [
    statistic(
        name::ENGINE_PAGE_REQUESTS,
        Counter,
        &["Innodb_buffer_pool_read_requests"],
        "pages asked of the buffer pool",
    ),
    statistic(
        name::ENGINE_PAGE_READS,
        Counter,
        &["Innodb_buffer_pool_reads"],
        "pages that were not in the buffer pool, so that the request waited for them",
    ),
    statistic(name::ENGINE_FILE_READS, Counter, &["Innodb_data_reads"], "reads of data files"),
    statistic(name::ENGINE_FILE_READ_BYTES, Counter, &["Innodb_data_read"], "bytes of those reads"),
    Statistic {
        name: name::ENGINE_CACHE_READ_BYTES,
        kind: Counter,
        sources: &["Innodb_pages_read"],
        page: true,
        help: "bytes of pages read into the buffer pool, read-ahead included: pages × innodb_page_size",
    },
    statistic(name::ENGINE_CACHE_BYTES, Gauge, &["Innodb_buffer_pool_bytes_data"], "data in the buffer pool"),
    statistic(
        "engine_dirty_bytes",
        Gauge,
        &["Innodb_buffer_pool_bytes_dirty"],
        "of it, what is not on disk yet",
    ),
    statistic(name::ENGINE_JOURNAL_BYTES, Counter, &["Innodb_os_log_written"], "bytes of redo log"),
    statistic(
        name::ENGINE_JOURNAL_SYNCS,
        Counter,
        &["Innodb_os_log_fsyncs"],
        "flushes of the redo log; MariaDB 10.11 has no such counter, see engine_file_syncs",
    ),
    statistic(
        "engine_file_syncs",
        Counter,
        &["Innodb_data_fsyncs"],
        "flushes of files, in MariaDB those of the redo log included",
    ),
    statistic("engine_row_lock_waits", Counter, &["Innodb_row_lock_waits"], "waits for a row's lock"),
    statistic(
        "engine_history_length",
        Gauge,
        &["Innodb_history_list_length"],
        "old versions that await purge",
    ),
    statistic(
        "engine_checkpoint_age_bytes",
        Gauge,
        &["Innodb_checkpoint_age"],
        "redo log since the last checkpoint",
    ),
];

const ROCKSDB: [Statistic; 7] = [
    statistic(
        name::ENGINE_PAGE_REQUESTS,
        Counter,
        &["Rocksdb_block_cache_hit", "Rocksdb_block_cache_miss"],
        "blocks asked of the block cache",
    ),
    statistic(
        name::ENGINE_PAGE_READS,
        Counter,
        &["Rocksdb_block_cache_miss"],
        "blocks that were not in the block cache",
    ),
    statistic(
        name::ENGINE_CACHE_READ_BYTES,
        Counter,
        &["Rocksdb_block_cache_bytes_write"],
        "bytes put into the block cache",
    ),
    statistic(name::ENGINE_JOURNAL_BYTES, Counter, &["Rocksdb_wal_bytes"], "bytes of write-ahead log"),
    statistic(name::ENGINE_JOURNAL_SYNCS, Counter, &["Rocksdb_wal_synced"], "flushes of that log"),
    statistic("engine_memtable_hits", Counter, &["Rocksdb_memtable_hit"], "look-ups that memory answered"),
    statistic(
        "engine_compaction_write_bytes",
        Counter,
        &["Rocksdb_compact_write_bytes"],
        "bytes that compactions wrote",
    ),
];

const SERVER: [Statistic; 4] = [
    statistic("engine_queries", Counter, &["Questions"], "statements of clients"),
    statistic("engine_binlog_commits", Counter, &["Binlog_commits"], "commits in the binary log"),
    statistic(
        "engine_unreplicated_commits",
        Counter,
        &["Rpl_semi_sync_master_no_tx"],
        "commits that semi-synchronous replication acknowledged without any replica",
    ),
    statistic(
        "engine_certification_failures",
        Counter,
        &["wsrep_local_cert_failures"],
        "transactions that another Galera node's came before",
    ),
];

/// What a server can be asked.
pub struct Statistics {
    list: Vec<&'static Statistic>,
    page_bytes: f64,
}

impl Statistics {
    /// Those that this server has, for its tables' engine.
    pub fn of(client: &mut Client, engine: &str) -> Result<Statistics, Report> {
        let known = status(client)?;
        let engine: &[Statistic] = if engine.eq_ignore_ascii_case("rocksdb") { &ROCKSDB } else { &INNODB };
        let has = |statistic: &&Statistic| statistic.sources.iter().all(|source| known.contains_key(*source));
        let list = engine.iter().chain(&SERVER).filter(has).collect();
        let page_bytes = client.value("SELECT @@GLOBAL.innodb_page_size").unwrap_or_default();
        Ok(Statistics { list, page_bytes: page_bytes.parse().unwrap_or(16_384.0) })
    }

    /// What there is.
    pub fn metrics(&self) -> Vec<Metric> {
        let metric = |statistic: &&Statistic| Metric {
            name: statistic.name.into(),
            kind: statistic.kind,
            help: format!("{}; SHOW GLOBAL STATUS {}", statistic.help, statistic.sources.join(" + ")),
        };
        self.list.iter().map(metric).collect()
    }

    /// Reads all of them at once.
    pub fn sample(&self, client: &mut Client) -> Result<BTreeMap<String, f64>, Report> {
        let known = status(client)?;
        let value = |statistic: &&Statistic| {
            let sum: f64 = statistic.sources.iter().filter_map(|source| known.get(*source)).sum();
            (statistic.name.to_string(), if statistic.page { sum * self.page_bytes } else { sum })
        };
        Ok(self.list.iter().map(value).collect())
    }
}

fn status(client: &mut Client) -> Result<BTreeMap<String, f64>, Report> {
    let rows = client.query("SHOW GLOBAL STATUS")?;
    let pair = |row: Vec<Option<String>>| match row.as_slice() {
        [Some(name), Some(value)] => Some((name.clone(), value.parse().ok()?)),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(pair).collect())
}
