//! The server's own counters: `SHOW GLOBAL STATUS`, of which each version and engine has others.

use super::client::Client;
use super::packet::Report;
use crate::connection::sql::Client as _;
use std::collections::BTreeMap;
use tipover_core::metric::Kind::{self, Counter, Gauge};
use tipover_core::metric::{Metric, name};

/// A metric: our name, its kind, the server's names of which the values are added, those of which they are
/// taken off, a factor, what it counts.
struct Statistic {
    name: &'static str,
    kind: Kind,
    sources: &'static [&'static str],
    less: &'static [&'static str],
    page: bool,
    help: &'static str,
}

const fn statistic(
    name: &'static str,
    kind: Kind,
    sources: &'static [&'static str],
    help: &'static str,
) -> Statistic {
    Statistic { name, kind, sources, less: &[], page: false, help }
}

const INNODB: [Statistic; 16] = [
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
        less: &[],
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
    statistic(name::ENGINE_JOURNAL_WRITES, Counter, &["Innodb_log_writes"], "writes of the redo log"),
    Statistic {
        name: name::ENGINE_DOUBLE_WRITE_BYTES,
        kind: Counter,
        sources: &["Innodb_dblwr_pages_written"],
        less: &[],
        page: true,
        help: "bytes of pages written twice, the first time; pages × innodb_page_size",
    },
    Statistic {
        name: name::ENGINE_EVICTION_WRITE_BYTES,
        kind: Counter,
        sources: &["Innodb_buffer_pool_pages_LRU_flushed"],
        less: &[],
        page: true,
        help: "bytes of pages written to make room in the buffer pool; pages × innodb_page_size",
    },
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

/// What MariaDB counts as written since 10.8: data files and double writes, without the redo log.
const WRITTEN: Statistic = statistic(
    name::ENGINE_FILE_WRITE_BYTES,
    Counter,
    &["Innodb_data_written"],
    "bytes written to data files, double writes included",
);

/// What MySQL, and MariaDB before 10.8, counts as written: the redo log is in it too.
const WRITTEN_WITH_LOG: Statistic = Statistic { less: &["Innodb_os_log_written"], ..WRITTEN };

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
    /// What does not change while the server runs, with what it is.
    fixed: Vec<(&'static str, f64, &'static str)>,
}

impl Statistics {
    /// Those that this server has, for its tables' engine.
    pub fn of(client: &mut Client, engine: &str) -> Result<Statistics, Report> {
        let known = status(client)?;
        let rocks = engine.eq_ignore_ascii_case("rocksdb");
        let engine: &[Statistic] = if rocks { &ROCKSDB } else { &INNODB };
        let version = client.value("SELECT VERSION()")?;
        let written = if log_is_apart(&version) { &WRITTEN } else { &WRITTEN_WITH_LOG };
        let has = |statistic: &&Statistic| {
            let all = statistic.sources.iter().chain(statistic.less);
            all.into_iter().all(|source| known.contains_key(*source))
        };
        let list = engine.iter().chain((!rocks).then_some(written)).chain(&SERVER).filter(has).collect();
        let mut variable = |name: &str| client.value(&format!("SELECT @@GLOBAL.{name}")).unwrap_or_default();
        let page_bytes = variable("innodb_page_size").parse().unwrap_or(16_384.0);
        let mut fixed = Vec::new();
        if !rocks {
            let direct = variable("innodb_flush_method").to_uppercase().contains("DIRECT")
                || variable("innodb_data_file_buffering") == "0";
            fixed.push((
                name::ENGINE_DIRECT_IO,
                f64::from(u8::from(direct)),
                "1 where data files are read and written past the page cache; innodb_flush_method, from MariaDB 11 on \
                 innodb_data_file_buffering",
            ));
            // MariaDB writes whole blocks of the device, and says nowhere how large it found them.
            let block = variable("innodb_log_write_ahead_size").parse().unwrap_or(512.0);
            fixed.push((
                name::ENGINE_JOURNAL_BLOCK_BYTES,
                if log_is_apart(&version) { 512.0 } else { block },
                "the block of the redo log: a write that ends inside one writes the whole, and the next writes it \
                 again; 512 in MariaDB from 10.8 on where the device has such, else innodb_log_write_ahead_size",
            ));
        }
        Ok(Statistics { list, page_bytes, fixed })
    }

    /// Every metric that the server has.
    pub fn metrics(&self) -> Vec<Metric> {
        let metric = |statistic: &&Statistic| {
            let less: String = statistic.less.iter().map(|source| format!(" − {source}")).collect();
            Metric {
                name: statistic.name.into(),
                kind: statistic.kind,
                help: format!(
                    "{}; SHOW GLOBAL STATUS {}{less}",
                    statistic.help,
                    statistic.sources.join(" + ")
                ),
            }
        };
        let fixed = |(name, _, help): &(&str, f64, &str)| Metric {
            name: name.to_string(),
            kind: Gauge,
            help: help.to_string(),
        };
        self.list.iter().map(metric).chain(self.fixed.iter().map(fixed)).collect()
    }

    /// Reads all of them at once.
    pub fn sample(&self, client: &mut Client) -> Result<BTreeMap<String, f64>, Report> {
        let known = status(client)?;
        let sum = |sources: &[&str]| sources.iter().filter_map(|source| known.get(*source)).sum::<f64>();
        let value = |statistic: &&Statistic| {
            let value = sum(statistic.sources) - sum(statistic.less);
            (statistic.name.to_string(), if statistic.page { value * self.page_bytes } else { value })
        };
        let fixed = self.fixed.iter().map(|(name, value, _)| (name.to_string(), *value));
        Ok(self.list.iter().map(value).chain(fixed).collect())
    }
}

/// Whether a server of this version leaves its redo log out of what it counts as written: MariaDB from 10.8
/// on.
fn log_is_apart(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version.contains("MariaDB") && number >= (10, 8)
}

fn status(client: &mut Client) -> Result<BTreeMap<String, f64>, Report> {
    let rows = client.query("SHOW GLOBAL STATUS")?;
    let pair = |row: Vec<Option<String>>| match row.as_slice() {
        [Some(name), Some(value)] => Some((name.clone(), value.parse().ok()?)),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::log_is_apart;

    #[test]
    fn who_counts_the_log_as_written_is_known_by_version() {
        assert!(log_is_apart("10.11.19-MariaDB-0+deb12u1") && log_is_apart("11.4.2-MariaDB"));
        for with in ["10.6.22-MariaDB", "8.0.36", "8.4.0-commercial", "5.7.44-log", ""] {
            assert!(!log_is_apart(with), "{with}");
        }
    }
}
