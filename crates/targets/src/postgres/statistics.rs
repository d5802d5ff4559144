//! The server's own counters, from where its version keeps them.

use super::client::Client;
use super::message::Report;
use crate::connection::sql::Client as _;
use std::collections::BTreeMap;
use tipover_core::metric::{Kind, Metric, name};

/// A metric: our name, its kind, the SQL expression, and what it counts.
struct Statistic {
    name: &'static str,
    kind: Kind,
    source: &'static str,
    help: &'static str,
}

const fn counter(name: &'static str, source: &'static str, help: &'static str) -> Statistic {
    Statistic { name, kind: Kind::Counter, source, help }
}

/// What a server can be asked.
pub struct Statistics {
    list: Vec<Statistic>,
    query: String,
}

impl Statistics {
    /// The counters of a server with this `server_version_num`. `timed` is its
    /// track_io_timing. What is counted per database is that of the connected one.
    pub fn of(version: u32, timed: bool) -> Statistics {
        let mut list = vec![
            counter(
                name::ENGINE_PAGE_REQUESTS,
                "d.blks_hit + d.blks_read",
                "pages asked of the shared buffers; pg_stat_database blks_hit + blks_read",
            ),
            counter(
                name::ENGINE_PAGE_READS,
                "d.blks_read",
                "pages that were not in the shared buffers; pg_stat_database blks_read",
            ),
            counter(
                name::ENGINE_FILE_READS,
                "d.blks_read",
                "pages read from files, from the page cache or the device; pg_stat_database blks_read",
            ),
            counter(
                name::ENGINE_FILE_READ_BYTES,
                "d.blks_read * current_setting('block_size')::int8",
                "bytes of those pages; pg_stat_database blks_read × block_size",
            ),
            counter(
                name::ENGINE_CACHE_READ_BYTES,
                "d.blks_read * current_setting('block_size')::int8",
                "bytes read into the shared buffers; pg_stat_database blks_read × block_size",
            ),
            counter("engine_commits", "d.xact_commit", "transactions committed; pg_stat_database"),
            counter("engine_rollbacks", "d.xact_rollback", "transactions rolled back; pg_stat_database"),
            counter("engine_rows_fetched", "d.tup_fetched", "rows fetched by index; pg_stat_database"),
            counter("engine_deadlocks", "d.deadlocks", "deadlocks found; pg_stat_database"),
        ];
        if timed {
            list.push(counter(
                "engine_file_read_ms",
                "d.blk_read_time",
                "time that sessions waited for those reads; pg_stat_database blk_read_time, track_io_timing",
            ));
        }
        log(&mut list, version, timed);
        checkpoints(&mut list, version);
        if version >= 160_000 {
            list.push(counter(
                "engine_evictions",
                "(SELECT sum(evictions) FROM pg_stat_io)",
                "pages dropped from the shared buffers to make room; pg_stat_io evictions",
            ));
        }
        let columns: Vec<String> =
            list.iter().map(|statistic| format!("({})::float8", statistic.source)).collect();
        let query = format!(
            "SELECT {} FROM pg_stat_database d WHERE d.datname = current_database()",
            columns.join(", ")
        );
        Statistics { list, query }
    }

    /// What there is.
    pub fn metrics(&self) -> Vec<Metric> {
        let metric = |s: &Statistic| Metric { name: s.name.into(), kind: s.kind, help: s.help.into() };
        self.list.iter().map(metric).collect()
    }

    /// Reads all of them in one query.
    pub fn sample(&self, client: &mut Client) -> Result<BTreeMap<String, f64>, Report> {
        let row = client.query(&self.query)?.into_iter().next().unwrap_or_default();
        let values = row.into_iter().map(|text| text.and_then(|text| text.parse().ok()).unwrap_or(0.0));
        Ok(self.list.iter().map(|statistic| statistic.name.to_string()).zip(values).collect())
    }
}

/// The write-ahead log. In 18, writes and flushes moved to pg_stat_io.
fn log(list: &mut Vec<Statistic>, version: u32, timed: bool) {
    if version < 140_000 {
        list.push(counter(
            name::ENGINE_JOURNAL_BYTES,
            "CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_current_wal_lsn() - '0/0' END",
            "bytes of log; pg_current_wal_lsn",
        ));
        return;
    }
    list.push(counter(
        name::ENGINE_JOURNAL_BYTES,
        "(SELECT wal_bytes FROM pg_stat_wal)",
        "bytes of log; pg_stat_wal wal_bytes",
    ));
    list.push(counter(
        "engine_journal_page_images",
        "(SELECT wal_fpi FROM pg_stat_wal)",
        "whole pages written to the log after a checkpoint; pg_stat_wal wal_fpi",
    ));
    let (syncs, writes) = match version {
        ..180_000 => ("(SELECT wal_sync FROM pg_stat_wal)", "(SELECT wal_write FROM pg_stat_wal)"),
        _ => (
            "(SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal')",
            "(SELECT sum(writes) FROM pg_stat_io WHERE object = 'wal')",
        ),
    };
    list.push(counter(
        name::ENGINE_JOURNAL_SYNCS,
        syncs,
        "flushes of the log to the device; pg_stat_wal wal_sync, from 18 on pg_stat_io (not counted where \
         wal_sync_method is open_sync or open_datasync)",
    ));
    list.push(counter(
        "engine_journal_writes",
        writes,
        "writes of the log; pg_stat_wal wal_write, from 18 on pg_stat_io",
    ));
    // Before 18 track_wal_io_timing decides, and without it this stays zero.
    if version >= 180_000 && timed {
        list.push(counter(
            "engine_journal_sync_ms",
            "(SELECT sum(fsync_time) FROM pg_stat_io WHERE object = 'wal')",
            "time spent in those flushes; pg_stat_io fsync_time, track_wal_io_timing",
        ));
    }
}

/// Checkpoints. In 17 they got a view of their own.
fn checkpoints(list: &mut Vec<Statistic>, version: u32) {
    let [count, pages, write, sync] = match version {
        ..170_000 => [
            "(SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter)",
            "(SELECT buffers_checkpoint FROM pg_stat_bgwriter)",
            "(SELECT checkpoint_write_time FROM pg_stat_bgwriter)",
            "(SELECT checkpoint_sync_time FROM pg_stat_bgwriter)",
        ],
        _ => [
            "(SELECT num_timed + num_requested FROM pg_stat_checkpointer)",
            "(SELECT buffers_written FROM pg_stat_checkpointer)",
            "(SELECT write_time FROM pg_stat_checkpointer)",
            "(SELECT sync_time FROM pg_stat_checkpointer)",
        ],
    };
    list.push(counter(
        name::ENGINE_CHECKPOINTS,
        count,
        "checkpoints, timed and requested; pg_stat_bgwriter, from 17 on pg_stat_checkpointer",
    ));
    list.push(counter(
        "engine_checkpoint_pages",
        pages,
        "pages written by checkpoints; pg_stat_bgwriter, from 17 on pg_stat_checkpointer",
    ));
    list.push(counter(
        "engine_checkpoint_write_ms",
        write,
        "time of checkpoints spent writing; pg_stat_bgwriter, from 17 on pg_stat_checkpointer",
    ));
    list.push(counter(
        "engine_checkpoint_sync_ms",
        sync,
        "time of checkpoints spent flushing; pg_stat_bgwriter, from 17 on pg_stat_checkpointer",
    ));
}
