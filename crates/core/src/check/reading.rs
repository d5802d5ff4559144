//! Final readings: everything that was written, read once more after recovery, by the laboratory itself.
//!
//! They are no operations of clients: alone they are evidence of nothing. Where reads of clients are judged,
//! they take part as the last of all, under a client's number of their own.

use super::history::{Entry, History, Returned, Version};
use crate::op::{Fields, Op, Outcome, Step};
use crate::units::Tick;
use crate::workload::tpcb::{Counts, Movement};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where final reads come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// What the system as a whole answers after recovery: the primary, or a majority.
    Survivors,
    /// One replica, asked by itself.
    Replica(String),
}

/// Everything that one source holds under the keys of the ledger, read once after recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyScan {
    /// Who was asked.
    pub source: Source,
    /// 1 for the first reading of everything, 2 for the second, ...
    pub pass: u32,
    /// When it was complete.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// All rows in any order; a key that is there twice stands here twice.
    pub rows: Vec<(u64, Version)>,
}

/// A transfer as it is found in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransferRow {
    /// Which transfer.
    pub id: u64,
    /// The account that paid.
    pub from: u64,
    /// The account that was paid.
    pub to: u64,
    /// How much.
    pub amount: i64,
}

/// All accounts and transfers that one source holds, read in one snapshot after recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankScan {
    /// Who was asked.
    pub source: Source,
    /// 1 for the first reading of everything, 2 for the second, ...
    pub pass: u32,
    /// When it was complete.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// Account and balance; `None` for a balance that is null.
    pub balances: Vec<(u64, Option<i64>)>,
    /// All rows in any order; a transfer that is there twice stands here twice.
    pub transfers: Vec<TransferRow>,
}

/// Lists that one source holds, each read once after recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListScan {
    /// Who was asked.
    pub source: Source,
    /// 1 for the first reading of everything, 2 for the second, ...
    pub pass: u32,
    /// When it was complete.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// Every list that was read, also those that are empty: see [`ListScan::complete`].
    pub lists: Vec<(u64, Vec<u64>)>,
}

impl ListScan {
    /// Puts in as empty what the history names and the reading did not find.
    pub fn complete(&mut self, history: &History) {
        let known: BTreeSet<u64> = self.lists.iter().map(|(key, _)| *key).collect();
        let named = history.entries.iter().flat_map(|entry| entry.op.steps()).map(|step| match step {
            Step::Append { key, .. } | Step::Read { key } => *key,
        });
        let missing: BTreeSet<u64> = named.filter(|key| !known.contains(key)).collect();
        self.lists.extend(missing.into_iter().map(|key| (key, vec![])));
    }
}

/// pgbench's tables, as far as transactions change them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TpcbRows {
    /// How many rows there are of what no transaction adds.
    pub counts: Counts,
    /// The history, in any order.
    pub history: Vec<Movement>,
    /// Accounts whose balance is not zero, with it.
    pub accounts: Vec<(i64, i64)>,
    /// Tellers, too.
    pub tellers: Vec<(i64, i64)>,
    /// Branches, too.
    pub branches: Vec<(i64, i64)>,
}

/// What one source holds in pgbench's tables, read in one snapshot after recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TpcbScan {
    /// Who was asked.
    pub source: Source,
    /// 1 for the first reading of everything, 2 for the second, ...
    pub pass: u32,
    /// When it was complete.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// What was found.
    pub rows: TpcbRows,
}

/// A final reading of anything.
pub(super) trait Reading {
    /// Who was asked.
    fn source(&self) -> &Source;
    /// Which reading of everything it belongs to, and when it was complete.
    fn order(&self) -> (u32, Tick);
}

macro_rules! reading {
    ($($scan:ty),*) => {$(
        impl Reading for $scan {
            fn source(&self) -> &Source {
                &self.source
            }
            fn order(&self) -> (u32, Tick) {
                (self.pass, self.at)
            }
        }
    )*};
}
reading!(KeyScan, BankScan, ListScan, TpcbScan, super::LoadedScan);

/// The readings of the survivors, in their order; the last one is what counts.
pub(super) fn of_survivors<R: Reading>(readings: &[R]) -> Vec<&R> {
    let mut survivors: Vec<&R> = readings.iter().filter(|scan| *scan.source() == Source::Survivors).collect();
    survivors.sort_by_key(|scan| scan.order());
    survivors
}

/// The last reading of each replica.
pub(super) fn last_of_replicas<R: Reading>(readings: &[R]) -> BTreeMap<&Source, &R> {
    let mut last: BTreeMap<&Source, &R> = BTreeMap::new();
    for scan in readings.iter().filter(|scan| *scan.source() != Source::Survivors) {
        let known = last.entry(scan.source()).or_insert(scan);
        if known.order() <= scan.order() {
            *known = scan;
        }
    }
    last
}

/// The number of the client that the laboratory is in its final readings.
pub(super) const LABORATORY: u32 = u32::MAX;

/// Final readings as operations after all others.
struct Last {
    /// When the last client stopped: a reading began after that.
    began: Tick,
    entries: Vec<Entry>,
}

impl Last {
    fn new(history: &History) -> Self {
        let times = history.entries.iter().map(|entry| entry.ended.unwrap_or(entry.began));
        Last { began: Tick(times.max().unwrap_or_default().0 + 1), entries: vec![] }
    }

    fn read(&mut self, at: Tick, op: Op, answer: Returned) {
        let sequence = self.entries.len() as u64 + 1;
        self.entries.push(Entry {
            ended: Some(at),
            outcome: Outcome::Done,
            answer,
            ..Entry::sent(LABORATORY, sequence, op, self.began.min(at))
        });
    }
}

/// The survivors' final readings of all keys that the history names, as reads. What was written after the end
/// of a history that was cut short is left out.
pub(super) fn reads_of_keys(history: &History, scans: &[KeyScan]) -> Vec<Entry> {
    let (mut keys, mut written) = (BTreeSet::new(), BTreeSet::new());
    for entry in &history.entries {
        if let Some((key, key_sequence)) = entry.op.written() {
            written.insert((key, key_sequence));
            keys.insert(key);
        }
        if let Op::Read { record, .. } = entry.op {
            keys.insert(record);
        }
    }
    let mut last = Last::new(history);
    for scan in of_survivors(scans) {
        let mut found: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
        for (key, version) in scan.rows.iter().filter(|(key, _)| keys.contains(key)) {
            found.entry(*key).or_default().push(*version);
        }
        for key in &keys {
            let read = Op::Read { record: *key, fields: Fields::All };
            let versions = found.remove(key).unwrap_or_default();
            let late = |v: &Version| {
                let is_known = written.contains(&(*key, v.key_sequence));
                history.is_cut_short && !is_known && *v == Version::of(*key, v.key_sequence)
            };
            if versions.is_empty() {
                last.read(scan.at, read.clone(), Returned::Value(None));
            }
            for version in versions.into_iter().filter(|version| !late(version)) {
                last.read(scan.at, read.clone(), Returned::Value(Some(version)));
            }
        }
    }
    last.entries
}

/// The survivors' final readings of all lists, one read a list, for they were not read at one moment. What
/// was appended after the end of a history that was cut short is left out.
pub(super) fn reads_of_lists(history: &History, scans: &[ListScan]) -> Vec<Entry> {
    let mut appended = BTreeSet::new();
    for entry in &history.entries {
        appended.extend(entry.op.steps().iter().filter_map(|step| match step {
            Step::Append { key, value } => Some((*key, *value)),
            Step::Read { .. } => None,
        }));
    }
    let mut last = Last::new(history);
    for scan in of_survivors(scans) {
        for (key, list) in &scan.lists {
            let mut list = list.clone();
            if history.is_cut_short {
                list.retain(|value| appended.contains(&(*key, *value)));
            }
            let steps = [Step::Read { key: *key }].into();
            last.read(scan.at, Op::Transaction { steps }, Returned::Lists(vec![Some(list)]));
        }
    }
    last.entries
}
