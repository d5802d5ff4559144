//! The server's own counters, from where its version keeps them.

use super::client::Client;
use super::message::Report;
use crate::connection::sql::{Client as _, Texts};
use std::collections::BTreeMap;
use tipover_core::metric::{Kind, Metric, name};
use tipover_core::target::Relation;

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

const fn gauge(name: &'static str, source: &'static str, help: &'static str) -> Statistic {
    Statistic { name, kind: Kind::Gauge, source, help }
}

/// What a server can be asked.
pub struct Statistics {
    list: Vec<Statistic>,
    query: String,
}

impl Statistics {
    /// The counters of a server with this `server_version_num`. `timed` is its track_io_timing, `lists`
    /// whether its user may look at the log's files. Pages asked for and missed, commits and rows are those
    /// of the connected database; what went to and came from files is the whole server's, as its processes'
    /// is.
    pub fn of(version: u32, timed: bool, lists: bool) -> Statistics {
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
                "(SELECT sum(blks_read) FROM pg_stat_database)",
                "pages of all databases read from files, from the page cache or the device; pg_stat_database blks_read",
            ),
            gauge(
                name::ENGINE_STATISTICS_AGE_MS,
                "1000",
                "how old these statistics may be: a session reports once a second, when it is not in a statement",
            ),
            gauge(
                name::ENGINE_DIRECT_IO,
                "CASE WHEN current_setting('debug_io_direct', true) LIKE '%data%' THEN 1 ELSE 0 END",
                "1 where data files are read and written past the page cache; debug_io_direct",
            ),
            counter(
                name::ENGINE_CACHE_READ_BYTES,
                "d.blks_read * current_setting('block_size')::int8",
                "bytes read into the shared buffers; pg_stat_database blks_read × block_size",
            ),
            counter(name::ENGINE_COMMITS, "d.xact_commit", "transactions committed; pg_stat_database"),
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
        files(&mut list, version);
        log(&mut list, version, timed);
        if lists {
            list.push(gauge(
                name::ENGINE_JOURNAL_FILES_BYTES,
                "(SELECT sum(size) FROM pg_ls_waldir())",
                "size of the log's files, which are filled with zeros when they are new; pg_ls_waldir",
            ));
        }
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

    /// Every metric that the server has.
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

/// Every table and index of the connected database that pages were asked of; those of TOAST are tables too.
pub fn relations(client: &mut Client) -> Result<Vec<Relation>, Report> {
    let query = "SELECT s.name, pg_relation_size(s.id), s.hit + s.read, s.read, s.scans FROM (\
                 SELECT relid, schemaname || '.' || relname, heap_blks_hit, heap_blks_read, 0 \
                 FROM pg_statio_all_tables UNION ALL \
                 SELECT i.indexrelid, i.schemaname || '.' || i.indexrelname, i.idx_blks_hit, i.idx_blks_read, u.idx_scan \
                 FROM pg_statio_all_indexes i JOIN pg_stat_all_indexes u USING (indexrelid)\
                 ) s(id, name, hit, read, scans) WHERE s.hit + s.read > 0";
    let rows = client.query(query)?;
    let relation = |row: Texts| {
        let number = |place: usize| row.get(place)?.as_ref()?.parse().ok();
        Some(Relation {
            name: row.first()?.clone()?,
            // One that was dropped meanwhile has no size.
            bytes: number(1)?,
            requests: number(2)?,
            misses: number(3)?,
            searches: number(4).unwrap_or(0.0),
        })
    };
    Ok(rows.into_iter().filter_map(relation).collect())
}

/// What the whole server reads from and writes to its data files. Sequences of commits and the like (SLRU)
/// have pages of their own since 13; who writes how much is told apart since 16.
fn files(list: &mut Vec<Statistic>, version: u32) {
    list.push(match version {
        ..130_000 => counter(
            name::ENGINE_FILE_READ_BYTES,
            "(SELECT sum(blks_read) FROM pg_stat_database) * current_setting('block_size')::int8",
            "bytes of those pages; pg_stat_database blks_read × block_size",
        ),
        _ => counter(
            name::ENGINE_FILE_READ_BYTES,
            "((SELECT sum(blks_read) FROM pg_stat_database) + (SELECT sum(blks_read) FROM pg_stat_slru)) \
             * current_setting('block_size')::int8",
            "bytes of those pages and of SLRU's; pg_stat_database and pg_stat_slru, blks_read × block_size",
        ),
    });
    // Until 15 a session that makes a page at the end of a file asks for it like any other, and misses it.
    if version < 160_000 {
        list.push(counter(
            name::ENGINE_FILE_MADE_BYTES,
            "pg_database_size(current_database())",
            "size of the database's files: pages made at their ends, which blks_read counts although nobody read them; \
             pg_database_size",
        ));
    }
    let temporary = "(SELECT sum(temp_bytes) FROM pg_stat_database)";
    let [all, checkpoints, evictions] = match version {
        ..130_000 => [
            "(SELECT (buffers_checkpoint + buffers_clean + buffers_backend) * current_setting('block_size')::int8 \
             FROM pg_stat_bgwriter) + (SELECT sum(temp_bytes) FROM pg_stat_database)",
            "(SELECT buffers_checkpoint * current_setting('block_size')::int8 FROM pg_stat_bgwriter)",
            "(SELECT (buffers_clean + buffers_backend) * current_setting('block_size')::int8 FROM pg_stat_bgwriter)",
        ],
        130_000..160_000 => [
            "(SELECT (buffers_checkpoint + buffers_clean + buffers_backend + (SELECT sum(blks_written) FROM \
             pg_stat_slru)) * current_setting('block_size')::int8 FROM pg_stat_bgwriter) \
             + (SELECT sum(temp_bytes) FROM pg_stat_database)",
            "(SELECT buffers_checkpoint * current_setting('block_size')::int8 FROM pg_stat_bgwriter)",
            "(SELECT (buffers_clean + buffers_backend) * current_setting('block_size')::int8 FROM pg_stat_bgwriter)",
        ],
        160_000..180_000 => [
            "(SELECT sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes) FROM pg_stat_io) \
             + (SELECT sum(blks_written) FROM pg_stat_slru) * current_setting('block_size')::int8 \
             + (SELECT sum(temp_bytes) FROM pg_stat_database)",
            "(SELECT sum(writes * op_bytes) FROM pg_stat_io WHERE backend_type = 'checkpointer')",
            "(SELECT sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes) FROM pg_stat_io \
             WHERE backend_type <> 'checkpointer')",
        ],
        _ => [
            "(SELECT sum(coalesce(write_bytes, 0) + coalesce(extend_bytes, 0)) FROM pg_stat_io WHERE object <> 'wal') \
             + (SELECT sum(blks_written) FROM pg_stat_slru) * current_setting('block_size')::int8 \
             + (SELECT sum(temp_bytes) FROM pg_stat_database)",
            "(SELECT sum(write_bytes) FROM pg_stat_io WHERE object <> 'wal' AND backend_type = 'checkpointer')",
            "(SELECT sum(coalesce(write_bytes, 0) + coalesce(extend_bytes, 0)) FROM pg_stat_io \
             WHERE object <> 'wal' AND backend_type <> 'checkpointer')",
        ],
    };
    list.push(counter(
        name::ENGINE_FILE_WRITE_BYTES,
        all,
        "bytes written to data and temporary files; pg_stat_bgwriter buffers_checkpoint, _clean, _backend × \
         block_size, from 16 on pg_stat_io; pg_stat_slru; pg_stat_database temp_bytes",
    ));
    list.push(counter(
        name::ENGINE_CHECKPOINT_WRITE_BYTES,
        checkpoints,
        "of these, by checkpoints; pg_stat_bgwriter buffers_checkpoint × block_size, from 16 on pg_stat_io",
    ));
    list.push(counter(
        name::ENGINE_EVICTION_WRITE_BYTES,
        evictions,
        "of these, by sessions and the background writer, to make room or to make files longer; pg_stat_bgwriter \
         buffers_clean and buffers_backend × block_size, from 16 on pg_stat_io",
    ));
    list.push(counter(
        name::ENGINE_TEMPORARY_WRITE_BYTES,
        temporary,
        "of these, to temporary files of sorts and hashes; pg_stat_database temp_bytes",
    ));
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
        name::ENGINE_PAGE_IMAGE_BYTES,
        "(SELECT wal_fpi FROM pg_stat_wal) * current_setting('block_size')::int8",
        "bytes of whole pages in the log, before the holes in them are left out; pg_stat_wal wal_fpi × block_size",
    ));
    list.push(gauge(
        name::ENGINE_JOURNAL_BLOCK_BYTES,
        "current_setting('wal_block_size')",
        "the page of the log: a commit that ends inside one writes the whole, and the next commit writes it again",
    ));
    if version >= 180_000 {
        list.push(counter(
            name::ENGINE_JOURNAL_FILE_WRITE_BYTES,
            "(SELECT sum(write_bytes) FROM pg_stat_io WHERE object = 'wal')",
            "bytes written to the log's files, pages written again and zeros in new files included; pg_stat_io",
        ));
    }
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
        name::ENGINE_JOURNAL_WRITES,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_version_has_every_name_once() {
        for version in [120_000, 130_000, 150_000, 160_000, 170_000, 180_000] {
            let statistics = Statistics::of(version, true, true);
            let names: BTreeSet<String> =
                statistics.metrics().into_iter().map(|metric| metric.name).collect();
            assert_eq!(names.len(), statistics.list.len(), "{version}");
            for needed in
                [name::ENGINE_FILE_READ_BYTES, name::ENGINE_FILE_WRITE_BYTES, name::ENGINE_JOURNAL_BYTES]
            {
                assert!(names.contains(needed), "{version} lacks {needed}");
            }
        }
    }
}
