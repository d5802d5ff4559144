//! What the server knows of the statements that it carries out: the performance schema's digests, its
//! sessions, and a bounded sample of rows. Only asks.

use super::Mysql;
use super::client::Client;
use super::durability;
use super::packet::Report;
use super::table::{hexadecimal, quoted};
use crate::connection::sql::{Client as _, Report as _, Texts};
use std::collections::{BTreeSet, HashMap};
use tipover_core::learn::{
    About, Column, ColumnKind, Count, Counters, Dialect, Look, MARK, Watch, quantiles,
};
use tipover_core::target::TargetError;

/// A connection that watches.
pub struct Watcher {
    client: Client,
    /// Whether sessions tell which statement they are at.
    tells_statements: bool,
    /// Whether they tell in which transaction.
    tells_transactions: bool,
}

impl Mysql {
    /// Begins to watch.
    ///
    /// # Errors
    /// The performance schema is off, or this user may not read it: with what to do.
    pub(super) fn watcher(&self) -> Result<Watcher, TargetError> {
        let doing = "asking for the performance schema";
        let failed = |report: Report| report.while_doing(doing);
        let mut client = self.server.patient_client().map_err(failed)?;
        let is_on = client.value("SELECT @@performance_schema").map_err(failed)?;
        if is_on != "1" {
            let reason = "it is off, and can only be switched on at the start: put performance_schema = ON below \
                          [mysqld] in the server's file of options and start it anew";
            return Err(TargetError::new(doing, reason));
        }
        let consumers = "SELECT name, enabled FROM performance_schema.setup_consumers UNION ALL \
                         SELECT name, enabled FROM performance_schema.setup_instruments WHERE name = 'transaction'";
        let rows = client.query(consumers).map_err(|report| {
            let advice = "GRANT SELECT ON performance_schema.* TO this user";
            TargetError::new(doing, format!("{}; {advice}", report.explained()))
        })?;
        let on = |wanted: &str| {
            rows.iter().any(|row| match row.as_slice() {
                [Some(name), Some(enabled)] => name == wanted && enabled == "YES",
                _ => false,
            })
        };
        if !on("statements_digest") {
            let reason = "the consumer statements_digest is off: UPDATE performance_schema.setup_consumers SET \
                          enabled = 'YES' WHERE name = 'statements_digest'";
            return Err(TargetError::new(doing, reason));
        }
        let tells_statements = on("events_statements_current");
        let tells_transactions = tells_statements && on("transaction") && on("events_transactions_current");
        Ok(Watcher { client, tells_statements, tells_transactions })
    }
}

fn number(text: Option<&String>) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn whole(text: Option<&String>) -> u64 {
    number(text).max(0.0) as u64
}

/// Rows of a table that are looked at, where the server keeps no statistics of its columns.
const SAMPLE: usize = 1_000;

impl Watcher {
    /// Rows without the mark, which digests keep as the name of a column.
    fn ask(&mut self, doing: &str, query: &str) -> Result<Vec<Texts>, TargetError> {
        let marked = query.replacen("SELECT ", &format!("SELECT 1 AS {MARK}, "), 1);
        let rows = self.client.query(&marked).map_err(|report| report.while_doing(doing))?;
        Ok(rows.into_iter().map(|row| row.into_iter().skip(1).collect()).collect())
    }

    fn status(&mut self, name: &str) -> Result<f64, TargetError> {
        let found = durability::status(&mut self.client, name);
        let value = found.map_err(|report| report.while_doing("reading the server's status"))?;
        Ok(value.parse().unwrap_or(0.0))
    }
}

const CANNOT_GROUP: &str = "which statements belong together: the performance schema's consumer \
                            events_statements_current and its instrument and consumer for transactions are off";

impl Watch for Watcher {
    fn about(&mut self) -> Result<About, TargetError> {
        let doing = "asking what the server is";
        let query = "SELECT VERSION(), @@innodb_buffer_pool_size, (SELECT SUM(data_length + index_length) \
                     FROM information_schema.tables WHERE table_schema = DATABASE()), DATABASE()";
        let row = self.ask(doing, query)?.into_iter().next().unwrap_or_default();
        let at = |place: usize| row.get(place).and_then(Option::as_ref);
        let version = at(0).cloned().unwrap_or_default();
        if at(3).is_none() {
            return Err(TargetError::new(doing, "the address names no database: append /NAME to it"));
        }
        let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
        let number_of = version.split('-').next().unwrap_or_default();
        let mut remarks = vec![
            "statements that clients have prepared on the server: digests count texts only".to_string(),
            "the hit ratio of this database alone: pages are counted for the whole server".into(),
        ];
        if !self.tells_transactions {
            remarks.push(CANNOT_GROUP.into());
        }
        Ok(About {
            system: format!("{name} {number_of}"),
            dialect: Dialect::Mysql,
            data_bytes: number(at(2)),
            cache_bytes: number(at(1)),
            remarks,
        })
    }

    /// What clients have prepared is in no digest of MariaDB 10.11, whose prepared_statements_instances lists
    /// it and counts nothing (tried).
    fn counters(&mut self) -> Result<Counters, TargetError> {
        let query = "SELECT digest, SUM(count_star), SUM(sum_rows_sent + sum_rows_affected), SUM(sum_timer_wait) / 1e9, \
                     digest IS NULL FROM performance_schema.events_statements_summary_by_digest \
                     WHERE schema_name = DATABASE() OR digest IS NULL GROUP BY digest";
        let rows = self.ask("reading digests of statements", query)?;
        let mut counters = Counters::default();
        for row in rows {
            let at = |place: usize| row.get(place).and_then(Option::as_ref);
            let count = Count {
                calls: whole(at(1)),
                rows: whole(at(2)),
                time_ms: number(at(3)),
                pages: 0,
                plans: None,
            };
            match at(0) {
                Some(digest) => drop(counters.statements.insert(digest.clone(), count)),
                None => {
                    let why = "statements of the whole server beyond performance_schema_digests_size, and prepared ones";
                    counters.left.insert(why.into(), count.calls);
                }
            }
        }
        counters.pages = self.status("Innodb_buffer_pool_read_requests")?;
        counters.page_reads = self.status("Innodb_buffer_pool_reads")?;
        Ok(counters)
    }

    fn look(&mut self) -> Result<Vec<Look>, TargetError> {
        let (statement, join) = match self.tells_statements {
            true => (
                "s.digest",
                "LEFT JOIN performance_schema.events_statements_current s ON s.thread_id = t.thread_id \
                 AND s.nesting_event_level = 0",
            ),
            false => ("NULL", ""),
        };
        let (inside, joined) = match self.tells_transactions {
            true => (
                "x.state = 'ACTIVE' AND x.autocommit = 'NO', (s.timer_start - x.timer_start) / 1e9",
                "LEFT JOIN performance_schema.events_transactions_current x ON x.thread_id = t.thread_id",
            ),
            false => ("NULL, NULL", ""),
        };
        let query = format!(
            "SELECT {statement}, t.processlist_command, {inside} FROM performance_schema.threads t {join} {joined} \
             WHERE t.processlist_db = DATABASE() AND t.processlist_id <> CONNECTION_ID()"
        );
        let rows = self.ask("looking at sessions", &query)?;
        let look = |row: Texts| {
            let at = |place: usize| row.get(place).and_then(Option::as_ref);
            let is_inside = self.tells_transactions.then(|| at(2).is_some_and(|inside| inside == "1"));
            let works = at(1).is_some_and(|command| command != "Sleep");
            Look {
                statement: at(0).cloned(),
                is_busy: works || is_inside == Some(true),
                is_inside,
                after_begin_ms: number(at(3)).max(0.0),
            }
        };
        Ok(rows.into_iter().map(look).collect())
    }

    fn texts(&mut self) -> Result<HashMap<String, Option<String>>, TargetError> {
        let query = "SELECT digest, digest_text FROM performance_schema.events_statements_summary_by_digest \
                     WHERE schema_name = DATABASE() AND digest IS NOT NULL";
        let rows = self.ask("reading the texts of statements", query)?;
        let pair = |row: Texts| {
            let mut row = row.into_iter();
            Some((row.next()??, row.next().flatten()))
        };
        Ok(rows.into_iter().filter_map(pair).collect())
    }

    fn columns(&mut self, tables: &BTreeSet<String>, keeps_values: bool) -> Result<Vec<Column>, TargetError> {
        let mut found = Vec::new();
        for table in tables {
            found.extend(self.columns_of(table, keeps_values)?);
        }
        Ok(found)
    }
}

impl Watcher {
    fn columns_of(&mut self, table: &str, keeps_values: bool) -> Result<Vec<Column>, TargetError> {
        let query = format!(
            "SELECT c.column_name, c.data_type, c.column_type LIKE '%unsigned%', COALESCE(c.character_maximum_length, 8), \
             t.table_rows, MAX(s.cardinality), MAX(s.seq_in_index = 1), \
             MAX(s.seq_in_index = 1 AND s.non_unique = 0 AND (SELECT COUNT(*) FROM information_schema.statistics o \
             WHERE o.table_schema = s.table_schema AND o.table_name = s.table_name AND o.index_name = s.index_name) = 1) \
             FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema \
             AND t.table_name = c.table_name LEFT JOIN information_schema.statistics s ON s.table_schema = c.table_schema \
             AND s.table_name = c.table_name AND s.column_name = c.column_name \
             WHERE c.table_schema = DATABASE() AND c.table_name = {} \
             GROUP BY c.column_name, c.data_type, c.column_type, c.character_maximum_length, t.table_rows, \
             c.ordinal_position ORDER BY c.ordinal_position",
            hexadecimal(table)
        );
        let rows = self.ask("reading the columns of tables", &query)?;
        let mut columns = Vec::new();
        for row in rows {
            let at = |place: usize| row.get(place).and_then(Option::as_ref);
            let kind = kind(at(1).map_or("", String::as_str), at(2).is_some_and(|text| text == "1"));
            let is_unique = at(7).is_some_and(|text| text == "1");
            let rows = number(at(4));
            columns.push(Column {
                table: table.into(),
                name: at(0).cloned().unwrap_or_default(),
                kind,
                width: number(at(3)),
                is_unique,
                is_indexed: at(6).is_some_and(|text| text == "1"),
                distinct: if is_unique { rows } else { number(at(5)) },
                rows,
                span: None,
                quantiles: Vec::new(),
                common: Vec::new(),
                bounds: None,
            });
        }
        let mut key = None;
        for column in &mut columns {
            let has_bounds =
                !matches!(column.kind, ColumnKind::Text | ColumnKind::Boolean | ColumnKind::Other);
            if column.is_indexed && has_bounds {
                let bounds = self.bounds(column, keeps_values)?;
                if column.is_unique && matches!(column.kind, ColumnKind::Integer(_)) {
                    key = bounds.map(|bounds| (column.name.clone(), bounds));
                }
            }
        }
        self.sample(table, key, &mut columns)?;
        Ok(columns)
    }

    /// The least and the greatest value, which an index finds at once.
    fn bounds(&mut self, column: &mut Column, keeps_values: bool) -> Result<Option<(f64, f64)>, TargetError> {
        let name = quoted(&column.name);
        let of = |which: &str| match column.kind {
            ColumnKind::Date | ColumnKind::Moment => format!("UNIX_TIMESTAMP({which}({name}))"),
            _ => format!("{which}({name})"),
        };
        let query = format!("SELECT {}, {} FROM {}", of("MIN"), of("MAX"), quoted(&column.table));
        let row = self.ask("looking for the least and the greatest key", &query)?;
        let Some([Some(least), Some(most)]) = row.first().map(Vec::as_slice) else { return Ok(None) };
        if keeps_values {
            column.bounds = Some((least.clone(), most.clone()));
        }
        let (Ok(least), Ok(most)) = (least.parse::<f64>(), most.parse::<f64>()) else { return Ok(None) };
        if matches!(column.kind, ColumnKind::Integer(_)) {
            column.span = Some(most - least + 1.0);
        }
        Ok(Some((least, most)))
    }

    /// Looks at some rows: those with keys that lie evenly between the least and the greatest, or, without
    /// such a key, the first that come.
    fn sample(
        &mut self,
        table: &str,
        key: Option<(String, (f64, f64))>,
        columns: &mut [Column],
    ) -> Result<(), TargetError> {
        let wanted = |column: &&mut Column| {
            !column.is_unique && !matches!(column.kind, ColumnKind::Other | ColumnKind::Boolean)
        };
        let asked: Vec<String> = columns
            .iter_mut()
            .filter(wanted)
            .map(|column| match column.kind {
                ColumnKind::Text => format!("CHAR_LENGTH({})", quoted(&column.name)),
                ColumnKind::Date | ColumnKind::Moment => format!("UNIX_TIMESTAMP({})", quoted(&column.name)),
                _ => quoted(&column.name),
            })
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let place = match key {
            Some((name, (least, most))) => {
                let step = ((most - least) / SAMPLE as f64).max(1.0);
                let keys =
                    (0..SAMPLE).map(|n| (least + step * n as f64).floor()).take_while(|key| *key <= most);
                let keys: Vec<String> = keys.map(|key| format!("{key}")).collect();
                format!("WHERE {} IN ({})", quoted(&name), keys.join(", "))
            }
            None => String::new(),
        };
        let query = format!("SELECT {} FROM {} {place} LIMIT {SAMPLE}", asked.join(", "), quoted(table));
        let rows = self.ask("looking at a sample of rows", &query)?;
        for (place, column) in columns.iter_mut().filter(wanted).enumerate() {
            let values = rows.iter().filter_map(|row| row.get(place)?.as_ref()?.parse::<f64>().ok());
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            describe(column, &values);
        }
        Ok(())
    }
}

/// What a sample of a column's values shows: lengths of its texts, or where its numbers lie.
fn describe(column: &mut Column, values: &[f64]) {
    if values.is_empty() {
        return;
    }
    let count = values.len() as f64;
    if column.kind == ColumnKind::Text {
        column.width = values.iter().sum::<f64>() / count;
        return;
    }
    let mut common: Vec<f64> = values.chunk_by(|a, b| a == b).map(|same| same.len() as f64).collect();
    let (different, once) =
        (common.len() as f64, common.iter().filter(|count| **count == 1.0).count() as f64);
    if column.distinct <= 0.0 {
        // As PostgreSQL estimates it of a sample (Haas and Stokes, 1998).
        let left = (count - once + once * count / column.rows.max(count)).max(1.0);
        column.distinct = (count * different / left).min(column.rows.max(different));
    }
    common.sort_by(|a, b| b.total_cmp(a));
    // A value that was met twice or thrice may be as common as any other.
    common.retain(|met| *met >= 4.0 && *met > 1.5 * count / different);
    common.truncate(100);
    column.common = common.into_iter().map(|met| met / count).collect();
    let last = values.len() - 1;
    let hundredth = |n: usize| values[n * last / 100];
    column.quantiles = quantiles(&(0..=100).map(hundredth).collect::<Vec<f64>>());
    if column.span.is_none() && matches!(column.kind, ColumnKind::Integer(_)) {
        column.span = Some(values[last] - values[0] + 1.0);
    }
}

fn kind(name: &str, is_unsigned: bool) -> ColumnKind {
    let largest = |bits: u32| ColumnKind::Integer((1i64 << (bits - u32::from(!is_unsigned))) - 1);
    match name {
        "tinyint" => largest(8),
        "smallint" => largest(16),
        "mediumint" => largest(24),
        "int" => largest(32),
        "bigint" => ColumnKind::Integer(i64::MAX),
        "decimal" | "float" | "double" => ColumnKind::Number,
        "char" | "varchar" | "text" | "tinytext" | "mediumtext" | "longtext" => ColumnKind::Text,
        "date" => ColumnKind::Date,
        "datetime" | "timestamp" => ColumnKind::Moment,
        _ => ColumnKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_says_how_a_column_is_spread() {
        let mut column = Column {
            table: "t".into(),
            name: "c".into(),
            kind: kind("int", false),
            width: 8.0,
            is_unique: false,
            is_indexed: false,
            distinct: 0.0,
            rows: 1e6,
            span: None,
            quantiles: vec![],
            common: vec![],
            bounds: None,
        };
        assert_eq!(column.kind, ColumnKind::Integer(i64::from(i32::MAX)));
        let values: Vec<f64> = (0..1000).map(|n| if n < 300 { 7.0 } else { f64::from(n) }).collect();
        describe(&mut column, &values);
        assert_eq!((column.common.as_slice(), column.span), (&[0.3][..], Some(993.0)));
        // 1000 · 701 ÷ (1000 − 700 + 700 · 1000 ÷ 1,000,000): low, as it is where one value is common.
        assert_eq!(column.distinct.round(), 2331.0);
        let mut key = Column { distinct: 0.0, ..column.clone() };
        describe(&mut key, &(0..1000).map(f64::from).collect::<Vec<f64>>());
        assert_eq!(key.distinct, 1e6, "all were met once: as many as there are rows");
        assert_eq!((column.quantiles.len(), column.quantiles[0], column.quantiles[100]), (101, 0.0, 1.0));
        describe(&mut Column { kind: ColumnKind::Text, ..column.clone() }, &[]);
    }
}
