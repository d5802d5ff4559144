//! A workload learned from a server: from what was seen in an interval of watching to a plan. Pure: the
//! server is asked elsewhere, and what it said comes as [`Seen`].

mod column;
mod draw;
pub mod log;
mod mix;
mod plan;
mod statement;
#[cfg(test)]
mod tests;
mod times;
mod token;
mod transaction;
mod watch;

pub use column::{Column, ColumnKind, quantiles};
pub use mix::{Mix, MixScript, mix};
pub use plan::{Learned, Wishes, learn, of_mix, of_record};
pub use statement::{Placeholder, Role, Statement, Verb};
pub use times::{ServerTime, ServerTimes, ServerWatch};
pub use token::{Dialect, Kind, tokens};
pub use watch::{About, Count, Counters, Look, Watch, Watching};

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Stands in every question that learning asks, so that it is not learned itself: as a remark, or as the name
/// of a column where the server keeps no remarks.
pub const MARK: &str = "tipover_learn";

/// What was seen in an interval of watching. Holds no value of the data unless they may be kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Of this description.
    pub learned_format: u32,
    /// What the server calls itself.
    pub system: String,
    /// How it writes statements.
    pub dialect: Dialect,
    /// Its address without secrets.
    pub address: String,
    /// For how long it was watched.
    pub seconds: f64,
    /// The statements that were called, in no order.
    pub statements: Vec<SeenStatement>,
    /// Columns of the tables that they name.
    pub columns: Vec<Column>,
    /// The parts of the interval, one after the other.
    pub parts: Vec<SeenPart>,
    /// Transactions that ended, statements that stand alone among them, where the server counts these.
    pub transactions: Option<u64>,
    /// Sessions, as samples showed them.
    pub sessions: SeenSessions,
    /// Bytes of the database.
    pub data_bytes: f64,
    /// Bytes of the server's cache.
    pub cache_bytes: f64,
    /// Calls that are not among the statements, and why.
    pub left: Vec<SeenLeft>,
    /// What could not be seen, as sentences.
    pub remarks: Vec<String>,
}

/// The description's own number.
pub const FORMAT: u32 = 1;

/// A statement and what became of its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenStatement {
    /// Its text as the server keeps it, with marks where values stood.
    pub text: String,
    /// Whether the server has cut the text off.
    pub is_cut_off: bool,
    /// How often it was called.
    pub calls: u64,
    /// Rows that it brought or changed.
    pub rows: u64,
    /// Milliseconds that the server worked on it.
    pub time_ms: f64,
    /// Pages that it asked for.
    pub pages: u64,
    /// How often it was planned, where the server counts that.
    pub plans: Option<u64>,
    /// Samples in which it was seen in a transaction that somebody had begun.
    pub samples_inside: u64,
    /// Samples in which it was seen outside.
    pub samples_outside: u64,
    /// Milliseconds from the transaction's begin to its own, on average of the samples inside.
    pub after_begin_ms: f64,
}

/// A part of the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenPart {
    /// How long it was.
    pub seconds: f64,
    /// Calls and rows, in the order of [`Seen::statements`].
    pub statements: Vec<(u64, u64)>,
    /// Pages that were asked for in the whole database.
    pub pages: f64,
    /// Of these, those that were not in the cache.
    pub page_reads: f64,
}

/// Sessions, as samples showed them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenSessions {
    /// How often was looked.
    pub samples: u64,
    /// The most that were open at once.
    pub open_most: u64,
    /// The most that were at work, or in a transaction, at once.
    pub busy_most: u64,
    /// How many were on average.
    pub busy_mean: f64,
}

/// Calls that are not among the statements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenLeft {
    /// Why.
    pub why: String,
    /// How many.
    pub calls: u64,
}

impl Seen {
    /// Pages found in the cache, as a share of those asked for; `None` if none were.
    pub fn hit_ratio(&self) -> Option<f64> {
        let sum = |of: fn(&SeenPart) -> f64| self.parts.iter().map(of).sum::<f64>();
        let pages = sum(|part| part.pages);
        (pages > 0.0).then(|| 1.0 - sum(|part| part.page_reads) / pages)
    }

    /// Reads a description.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn parse(text: &str) -> Result<Seen, String> {
        let seen: Seen = serde_json::from_str(text).map_err(|error| format!("damaged: {error}"))?;
        if seen.learned_format != FORMAT {
            return Err(format!("it has format {}, this version reads {FORMAT}", seen.learned_format));
        }
        let whole = seen.parts.iter().all(|part| part.statements.len() == seen.statements.len());
        if whole { Ok(seen) } else { Err("damaged: a part has other statements than the whole".into()) }
    }
}

/// The names of the tables that statements name, without their schemas.
pub fn tables<'a>(texts: impl Iterator<Item = &'a str>, dialect: Dialect) -> BTreeSet<String> {
    let others = texts.filter(|text| !text.contains(MARK));
    let read = others.filter_map(|text| Statement::read(text, dialect));
    read.flat_map(|statement| statement.tables).map(|table| table.name).collect()
}
