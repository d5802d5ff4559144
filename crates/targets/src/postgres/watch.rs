//! What the server knows of the statements that it carries out: pg_stat_statements, pg_stat_activity and
//! pg_stats. Only asks.

use super::Postgres;
use super::client::Client;
use super::message::Report;
use super::table::literal;
use crate::connection::sql::{Client as _, Report as _, Texts};
use std::collections::{BTreeSet, HashMap};
use tipover_core::learn::{
    About, Column, ColumnKind, Count, Counters, Dialect, Look, MARK, Watch, quantiles,
};
use tipover_core::target::TargetError;

/// A connection that watches.
pub struct Watcher {
    client: Client,
    version: u32,
    /// The extension's view, with its schema.
    view: String,
    /// The columns that this version of it has.
    has: BTreeSet<String>,
}

/// From the begin of a transaction to that of its first statement; what is sent alone takes less, because it
/// begins its own transaction.
const ALONE_MS: f64 = 0.05;

impl Postgres {
    /// Begins to watch.
    ///
    /// # Errors
    /// The extension is missing, or this user may not read it: with what to do.
    pub(super) fn watcher(&self) -> Result<Watcher, TargetError> {
        let doing = "asking for pg_stat_statements";
        let failed = |report: Report| report.while_doing(doing);
        let mut client = self.server.patient_client().map_err(failed)?;
        let version = client.value("SHOW server_version_num").map_err(failed)?.parse().unwrap_or(0);
        let schema = format!(
            "SELECT /* {MARK} */ quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
             WHERE e.extname = 'pg_stat_statements'"
        );
        let schema = client.value(&schema).map_err(failed)?;
        if schema.is_empty() {
            let loaded = client.value("SHOW shared_preload_libraries").unwrap_or_default();
            let mut steps = "run CREATE EXTENSION pg_stat_statements in this database".to_string();
            if !loaded.contains("pg_stat_statements") {
                let all = if loaded.is_empty() { String::new() } else { format!("{loaded},") };
                steps = format!(
                    "set shared_preload_libraries = '{all}pg_stat_statements' in postgresql.conf, start the server anew, \
                     and {steps}"
                );
            }
            let reason = format!("the extension is not in this database: {steps}");
            return Err(TargetError::new(doing, reason));
        }
        let view = format!("{schema}.pg_stat_statements");
        let names = format!(
            "SELECT /* {MARK} */ attname FROM pg_attribute WHERE attrelid = {}::regclass AND attnum > 0",
            literal(&view)
        );
        let names = client.query(&names).map_err(failed)?;
        let has = names.into_iter().flatten().flatten().collect();
        let mut watcher = Watcher { client, version, view, has };
        // In the library's own words: that it was not loaded when the server started.
        watcher.counters()?;
        Ok(watcher)
    }
}

impl Watcher {
    fn ask(&mut self, doing: &str, query: &str) -> Result<Vec<Texts>, TargetError> {
        let marked = query.replacen("SELECT ", &format!("SELECT /* {MARK} */ "), 1);
        self.client.query(&marked).map_err(|report| report.while_doing(doing))
    }

    fn setting(&mut self, name: &str) -> String {
        self.client.value(&format!("SELECT /* {MARK} */ current_setting('{name}', true)")).unwrap_or_default()
    }
}

fn number(text: Option<&String>) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn whole(text: Option<&String>) -> u64 {
    number(text).max(0.0) as u64
}

/// `{1,2.5}`.
fn array(text: Option<&String>) -> Vec<f64> {
    let inner = text.map_or("", |text| text.trim_matches(['{', '}']));
    inner.split(',').filter_map(|number| number.parse().ok()).collect()
}

impl Watch for Watcher {
    fn about(&mut self) -> Result<About, TargetError> {
        let doing = "asking what the server is";
        let query = "SELECT version(), pg_database_size(current_database()), \
                     current_setting('shared_buffers'), (SELECT setting::float8 * 8192 FROM pg_settings \
                     WHERE name = 'shared_buffers'), pg_has_role('pg_read_all_stats', 'usage')";
        let row = self.ask(doing, query)?.into_iter().next().unwrap_or_default();
        let at = |place: usize| row.get(place).and_then(Option::as_ref);
        let version = at(0).map_or("PostgreSQL", String::as_str);
        let system = version.split(" on ").next().unwrap_or(version);
        let system: Vec<&str> = system.split(' ').take(2).collect();
        let mut remarks = Vec::new();
        if at(4).is_none_or(|may| may != "t") {
            remarks.push(
                "statements of other users: this one may not read them; GRANT pg_read_all_stats TO it".into(),
            );
        }
        if self.setting("pg_stat_statements.track_utility") == "off" {
            remarks.push(
                "transactions: pg_stat_statements.track_utility is off, so BEGIN and COMMIT are not counted"
                    .into(),
            );
        }
        if self.setting("pg_stat_statements.track") == "none" {
            remarks.push("statements: pg_stat_statements.track is none".into());
        }
        if self.version < 140_000 {
            remarks.push(
                "which statements belong together: sessions tell their statement's number from version 14 on"
                    .into(),
            );
        }
        Ok(About {
            system: system.join(" "),
            dialect: Dialect::Postgres,
            data_bytes: number(at(1)),
            cache_bytes: number(at(3)),
            remarks,
        })
    }

    fn counters(&mut self) -> Result<Counters, TargetError> {
        let doing = "reading pg_stat_statements";
        let time = if self.has.contains("total_exec_time") { "total_exec_time" } else { "total_time" };
        let plans = if self.has.contains("plans") { "sum(plans)" } else { "NULL" };
        let top = if self.has.contains("toplevel") { "toplevel" } else { "true" };
        // The function with `false` does not read the texts from their file.
        let query = format!(
            "SELECT queryid::text, dbid = (SELECT oid FROM pg_database WHERE datname = current_database()), \
             sum(calls), sum(rows), sum({time}), sum(shared_blks_hit + shared_blks_read), {plans} \
             FROM {}(false) WHERE {top} GROUP BY 1, 2",
            self.view
        );
        let rows = self.ask(doing, &query)?;
        let mut counters = Counters::default();
        for row in rows {
            let at = |place: usize| row.get(place).and_then(Option::as_ref);
            let calls = whole(at(2));
            match (at(0), at(1).map(String::as_str)) {
                (Some(key), Some("t")) => {
                    let count = Count {
                        calls,
                        rows: whole(at(3)),
                        time_ms: number(at(4)),
                        pages: whole(at(5)),
                        plans: at(6).map(|plans| whole(Some(plans))),
                    };
                    counters.statements.insert(key.clone(), count);
                }
                (None, Some("t")) => {
                    let why = "statements of other users, which this one may not read: GRANT pg_read_all_stats TO it";
                    *counters.left.entry(why.into()).or_default() += calls;
                }
                _ => {}
            }
        }
        let query = "SELECT blks_hit + blks_read, blks_read, xact_commit + xact_rollback \
                     FROM pg_stat_database WHERE datname = current_database()";
        let row = self.ask("reading pg_stat_database", query)?.into_iter().next().unwrap_or_default();
        counters.pages = number(row.first().and_then(Option::as_ref));
        counters.page_reads = number(row.get(1).and_then(Option::as_ref));
        counters.transactions = row.get(2).and_then(Option::as_ref).map(|count| whole(Some(count)));
        if self.version >= 140_000 {
            let info = format!("SELECT dealloc FROM {}_info", self.view);
            // Older versions of the extension have no such view.
            if let Ok(rows) = self.ask("reading pg_stat_statements_info", &info) {
                counters.forgotten = whole(rows.first().and_then(|row| row.first()?.as_ref()));
            }
        }
        Ok(counters)
    }

    fn look(&mut self) -> Result<Vec<Look>, TargetError> {
        let id = if self.version >= 140_000 { "query_id::text" } else { "NULL" };
        let query = format!(
            "SELECT {id}, state, 1000 * extract(epoch FROM query_start - xact_start) FROM pg_stat_activity \
             WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
             AND query NOT LIKE '%{MARK}%'"
        );
        let rows = self.ask("looking at sessions", &query)?;
        let look = |row: Texts| {
            let at = |place: usize| row.get(place).and_then(Option::as_ref);
            let state = at(1).map_or("", String::as_str);
            let waits = state.starts_with("idle in transaction");
            let after_begin_ms = number(at(2));
            Look {
                statement: at(0).cloned(),
                is_busy: waits || state == "active",
                is_inside: at(2).is_some().then_some(waits || after_begin_ms > ALONE_MS),
                after_begin_ms,
            }
        };
        Ok(rows.into_iter().map(look).collect())
    }

    fn texts(&mut self) -> Result<HashMap<String, Option<String>>, TargetError> {
        let query = format!(
            "SELECT queryid::text, query FROM {} WHERE queryid IS NOT NULL AND dbid = (SELECT oid FROM pg_database \
             WHERE datname = current_database())",
            self.view
        );
        let rows = self.ask("reading the texts of statements", &query)?;
        let mut texts: HashMap<String, Option<String>> = HashMap::new();
        for row in rows {
            let mut row = row.into_iter();
            let (Some(Some(key)), text) = (row.next(), row.next().flatten()) else { continue };
            let kept = texts.entry(key).or_default();
            *kept = kept.take().or(text);
        }
        Ok(texts)
    }

    fn columns(&mut self, tables: &BTreeSet<String>, keeps_values: bool) -> Result<Vec<Column>, TargetError> {
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = tables.iter().map(|table| literal(table)).collect();
        let query = format!(
            "SELECT c.relname, a.attname, t.typname, coalesce(s.avg_width::text, greatest(a.atttypmod - 4, 8)::text), \
             coalesce(CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * r.rows ELSE s.n_distinct END, 0), r.rows, \
             array_to_string(s.most_common_freqs, ','), \
             CASE WHEN t.typname IN ('int2', 'int4', 'int8', 'numeric', 'float4', 'float8') \
                  THEN (s.histogram_bounds::text::float8[])::text \
                  WHEN t.typname IN ('date', 'timestamp', 'timestamptz') \
                  THEN (SELECT array_agg(extract(epoch FROM u.b)::float8 ORDER BY u.o)::text \
                        FROM unnest(s.histogram_bounds::text::timestamptz[]) WITH ORDINALITY u(b, o)) END, \
             EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL \
                     AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum), \
             EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum), \
             quote_ident(n.nspname) || '.' || quote_ident(c.relname), quote_ident(a.attname), s.avg_width IS NOT NULL \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid \
             JOIN pg_type t ON t.oid = a.atttypid \
             CROSS JOIN LATERAL (SELECT greatest(c.reltuples, pg_stat_get_live_tuples(c.oid), 0)::float8 AS rows) r \
             LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname \
                  AND NOT s.inherited \
             WHERE c.relname IN ({}) AND c.relkind IN ('r', 'p', 'm', 'v') AND a.attnum > 0 AND NOT a.attisdropped \
             AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
             ORDER BY pg_table_is_visible(c.oid) DESC, n.nspname, c.relname, a.attnum",
            names.join(", ")
        );
        let rows = self.ask("reading pg_stats", &query)?;
        let mut columns: Vec<Column> = Vec::new();
        for row in rows {
            let at = |place: usize| row.get(place).and_then(Option::as_ref);
            let text = |place: usize| at(place).cloned().unwrap_or_default();
            let (table, name) = (text(0), text(1));
            if columns.iter().any(|known| known.table == table && known.name == name) {
                continue;
            }
            let kind = kind(&text(2));
            let bounds = array(at(7));
            let (is_unique, is_indexed) = (text(8) == "t", text(9) == "t");
            let rows = number(at(5));
            let mut column = Column {
                table,
                name,
                kind,
                width: width(kind, number(at(3)), text(12) == "t"),
                is_unique,
                is_indexed,
                distinct: if is_unique { rows } else { number(at(4)) },
                rows,
                span: None,
                quantiles: quantiles(&bounds),
                common: at(6).map_or(Vec::new(), |text| array(Some(text))),
                bounds: None,
            };
            if let (Some(least), Some(most)) = (bounds.first(), bounds.last()) {
                column.span = matches!(kind, ColumnKind::Integer(_)).then_some(most - least + 1.0);
            }
            let has_bounds = !matches!(kind, ColumnKind::Text | ColumnKind::Boolean | ColumnKind::Other);
            if is_indexed && has_bounds {
                self.true_bounds(&mut column, &text(10), &text(11), keeps_values)?;
            }
            columns.push(column);
        }
        Ok(columns)
    }
}

impl Watcher {
    /// The least and the greatest value, which an index finds at once.
    fn true_bounds(
        &mut self,
        column: &mut Column,
        table: &str,
        name: &str,
        keeps_values: bool,
    ) -> Result<(), TargetError> {
        let is_moment = matches!(column.kind, ColumnKind::Date | ColumnKind::Moment);
        let of = |which: &str| match is_moment {
            true => format!("extract(epoch FROM {which}({name}))"),
            false => format!("{which}({name})"),
        };
        let query = format!("SELECT {}, {} FROM {table}", of("min"), of("max"));
        let row = self.ask("looking for the least and the greatest key", &query)?;
        let Some([Some(least), Some(most)]) = row.first().map(Vec::as_slice) else { return Ok(()) };
        if matches!(column.kind, ColumnKind::Integer(_)) {
            let (Ok(least), Ok(most)) = (least.parse::<f64>(), most.parse::<f64>()) else { return Ok(()) };
            column.span = Some(most - least + 1.0);
        }
        if keeps_values {
            column.bounds = Some((least.clone(), most.clone()));
        }
        Ok(())
    }
}

fn kind(name: &str) -> ColumnKind {
    match name {
        "int2" => ColumnKind::Integer(i16::MAX.into()),
        "int4" => ColumnKind::Integer(i32::MAX.into()),
        "int8" => ColumnKind::Integer(i64::MAX),
        "numeric" | "float4" | "float8" => ColumnKind::Number,
        "text" | "varchar" | "bpchar" => ColumnKind::Text,
        "date" => ColumnKind::Date,
        "timestamp" | "timestamptz" => ColumnKind::Moment,
        "bool" => ColumnKind::Boolean,
        _ => ColumnKind::Other,
    }
}

/// Letters of a text on average; what statistics call its width counts the bytes of its length too.
fn width(kind: ColumnKind, width: f64, is_average: bool) -> f64 {
    match kind {
        ColumnKind::Text if is_average => (width - if width <= 127.0 { 1.0 } else { 4.0 }).max(0.0),
        _ => width,
    }
}
