//! Watching: what is asked of a server, and what its answers add up to.

use super::statement::Statement;
use super::token::Dialect;
use super::{Column, FORMAT, MARK, Seen, SeenLeft, SeenPart, SeenSessions, SeenStatement};
use crate::target::TargetError;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a server can tell about its statements. Only asks; changes nothing.
pub trait Watch {
    /// Who it is, and what of it cannot be seen.
    fn about(&mut self) -> Result<About, TargetError>;

    /// How its counters stand.
    fn counters(&mut self) -> Result<Counters, TargetError>;

    /// What each session is doing.
    fn look(&mut self) -> Result<Vec<Look>, TargetError>;

    /// The texts of statements, by the keys that its counters have; `None` for one that it has lost or cut
    /// off.
    fn texts(&mut self) -> Result<HashMap<String, Option<String>>, TargetError>;

    /// The columns of tables of these names, with their least and greatest values only if they may be kept.
    fn columns(&mut self, tables: &BTreeSet<String>, keeps_values: bool) -> Result<Vec<Column>, TargetError>;
}

/// Who the server is.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// What it calls itself.
    pub system: String,
    /// How it writes statements.
    pub dialect: Dialect,
    /// Bytes of the database.
    pub data_bytes: f64,
    /// Bytes of its cache.
    pub cache_bytes: f64,
    /// What cannot be seen, as sentences.
    pub remarks: Vec<String>,
}

/// Counters, which only grow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counters {
    /// By the server's own key.
    pub statements: HashMap<String, Count>,
    /// Calls that cannot be told apart, and why.
    pub left: BTreeMap<String, u64>,
    /// Pages asked for in the database.
    pub pages: f64,
    /// Of these, those that were not in the cache.
    pub page_reads: f64,
    /// Transactions that ended, statements that stand alone among them, where these are counted.
    pub transactions: Option<u64>,
    /// How often the server threw away what it knew of rare statements.
    pub forgotten: u64,
}

impl Counters {
    /// Of all these statements together.
    fn sum(&self, keys: &[&String]) -> Count {
        let counts = keys.iter().filter_map(|key| self.statements.get(*key));
        counts.fold(Count::default(), |sum, count| Count {
            calls: sum.calls + count.calls,
            rows: sum.rows + count.rows,
            time_ms: sum.time_ms + count.time_ms,
            pages: sum.pages + count.pages,
            plans: sum.plans.or(count.plans).map(|_| sum.plans.unwrap_or(0) + count.plans.unwrap_or(0)),
        })
    }
}

/// Of one statement.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Count {
    /// How often it was called.
    pub calls: u64,
    /// Rows that it brought or changed.
    pub rows: u64,
    /// Milliseconds that the server worked on it.
    pub time_ms: f64,
    /// Pages that it asked for.
    pub pages: u64,
    /// How often it was planned, where that is counted.
    pub plans: Option<u64>,
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// The statement that it is at, or was last.
    pub statement: Option<String>,
    /// Whether it is at work, or in a transaction.
    pub is_busy: bool,
    /// Whether the statement is part of a transaction that somebody has begun; `None` where the server does
    /// not tell.
    pub is_inside: Option<bool>,
    /// Milliseconds from the transaction's begin to the statement's.
    pub after_begin_ms: f64,
}

#[derive(Default)]
struct Samples {
    inside: u64,
    outside: u64,
    after_begin_ms: f64,
}

/// An interval of watching.
pub struct Watching {
    first: Counters,
    last: Counters,
    parts: Vec<(f64, Counters)>,
    samples: HashMap<String, Samples>,
    sessions: SeenSessions,
    busy: u64,
    was_reset: bool,
}

impl Watching {
    /// Begins with counters as they stand.
    pub fn begin(first: Counters) -> Self {
        Watching {
            last: first.clone(),
            first,
            parts: Vec::new(),
            samples: HashMap::new(),
            sessions: SeenSessions::default(),
            busy: 0,
            was_reset: false,
        }
    }

    /// Takes a look at the sessions into account.
    pub fn look(&mut self, looks: &[Look]) {
        let busy = looks.iter().filter(|look| look.is_busy).count() as u64;
        self.busy += busy;
        self.sessions.samples += 1;
        self.sessions.open_most = self.sessions.open_most.max(looks.len() as u64);
        self.sessions.busy_most = self.sessions.busy_most.max(busy);
        for look in looks.iter().filter(|look| look.is_busy) {
            let (Some(statement), Some(inside)) = (&look.statement, look.is_inside) else { continue };
            let samples = self.samples.entry(statement.clone()).or_default();
            if inside {
                samples.inside += 1;
                samples.after_begin_ms += look.after_begin_ms;
            } else {
                samples.outside += 1;
            }
        }
    }

    /// A part of the interval is over, `seconds` long.
    pub fn part(&mut self, seconds: f64, counters: Counters) {
        let delta = difference(&self.last, &counters);
        self.was_reset |= counters
            .statements
            .iter()
            .any(|(key, now)| self.last.statements.get(key).is_some_and(|before| before.calls > now.calls));
        self.last = counters;
        self.parts.push((seconds, delta));
    }

    /// Counters as they stood at the end of the last part.
    pub fn last(&self) -> &Counters {
        &self.last
    }

    /// What was seen. `texts` are those of the statements; what is asked by whoever learns is left out.
    pub fn seen(
        mut self,
        about: About,
        address: &str,
        texts: &HashMap<String, Option<String>>,
        columns: Vec<Column>,
    ) -> Seen {
        let whole = difference(&self.first, &self.last);
        let mut remarks = about.remarks;
        if self.last.forgotten > self.first.forgotten {
            remarks.push(format!(
                "{} times the server threw away what it knew of rare statements: they are missing here",
                self.last.forgotten - self.first.forgotten
            ));
        }
        if self.was_reset {
            remarks.push(
                "the server's counters were set back meanwhile: the part in which that was counts from there"
                    .into(),
            );
        }
        let is_own = |key: &str| matches!(texts.get(key), Some(Some(text)) if text.contains(MARK));
        // Statements of one shape are one: servers tell apart users, and texts with and without blanks.
        let mut shapes: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for (key, count) in &whole.statements {
            if count.calls > 0 && !is_own(key) {
                let text = texts.get(key).and_then(Option::as_deref);
                let read = text.and_then(|text| Statement::read(text, about.dialect));
                shapes.entry(read.map_or_else(|| key.clone(), |read| read.shape)).or_default().push(key);
            }
        }
        let groups: Vec<Vec<&String>> = shapes.into_values().collect();
        let statement = |keys: &Vec<&String>| {
            let count = whole.sum(keys);
            let text = keys.iter().find_map(|key| texts.get(*key).cloned().flatten());
            let samples = keys.iter().filter_map(|key| self.samples.get(*key));
            let (inside, outside, after) = samples.fold((0, 0, 0.0), |(inside, outside, after), samples| {
                (inside + samples.inside, outside + samples.outside, after + samples.after_begin_ms)
            });
            SeenStatement {
                is_cut_off: text.is_none(),
                text: text.unwrap_or_default(),
                calls: count.calls,
                rows: count.rows,
                time_ms: count.time_ms,
                pages: count.pages,
                plans: count.plans,
                samples_inside: inside,
                samples_outside: outside,
                after_begin_ms: after / inside.max(1) as f64,
            }
        };
        let statements = groups.iter().map(statement).collect();
        let part = |(seconds, delta): &(f64, Counters)| SeenPart {
            seconds: *seconds,
            statements: groups
                .iter()
                .map(|keys| delta.sum(keys))
                .map(|count| (count.calls, count.rows))
                .collect(),
            pages: delta.pages,
            page_reads: delta.page_reads,
        };
        let parts: Vec<SeenPart> = self.parts.iter().map(part).collect();
        self.sessions.busy_mean = self.busy as f64 / self.sessions.samples.max(1) as f64;
        let own: u64 =
            whole.statements.iter().filter(|(key, _)| is_own(key)).map(|(_, count)| count.calls).sum();
        let transactions = whole.transactions.map(|transactions| transactions.saturating_sub(own));
        let left = whole.left.into_iter().filter(|(_, calls)| *calls > 0);
        Seen {
            learned_format: FORMAT,
            system: about.system,
            dialect: about.dialect,
            address: address.into(),
            seconds: parts.iter().map(|part| part.seconds).sum(),
            statements,
            columns,
            parts,
            transactions,
            sessions: self.sessions,
            data_bytes: about.data_bytes,
            cache_bytes: about.cache_bytes,
            left: left.map(|(why, calls)| SeenLeft { why, calls }).collect(),
            remarks,
        }
    }
}

/// What was added between two readings; of counters that were set back, what they show now.
pub(super) fn difference(before: &Counters, after: &Counters) -> Counters {
    let count = |(key, now): (&String, &Count)| {
        let before = before.statements.get(key).copied().filter(|before| before.calls <= now.calls);
        let before = before.unwrap_or_default();
        let delta = Count {
            calls: now.calls - before.calls,
            rows: now.rows.saturating_sub(before.rows),
            time_ms: (now.time_ms - before.time_ms).max(0.0),
            pages: now.pages.saturating_sub(before.pages),
            plans: now.plans.map(|plans| plans.saturating_sub(before.plans.unwrap_or(0))),
        };
        (key.clone(), delta)
    };
    let left = |(why, now): (&String, &u64)| {
        (why.clone(), now.saturating_sub(before.left.get(why).copied().unwrap_or(0)))
    };
    Counters {
        statements: after.statements.iter().map(count).collect(),
        left: after.left.iter().map(left).collect(),
        pages: (after.pages - before.pages).max(0.0),
        page_reads: (after.page_reads - before.page_reads).max(0.0),
        transactions: after
            .transactions
            .map(|transactions| transactions.saturating_sub(before.transactions.unwrap_or(0))),
        forgotten: after.forgotten.saturating_sub(before.forgotten),
    }
}
