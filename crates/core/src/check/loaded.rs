//! A data set that was loaded while something was broken: every record that was acknowledged, or was found
//! to be there when it was sent again, must still be there at the end.
//!
//! The load that follows may change what a record holds, so its values are compared only where nothing does.

use super::history::History;
use super::reading::{Source, last_of_replicas, of_survivors};
use super::{Checker, Finding, Observation, Verdict};
use crate::op::{Failure, Op, Outcome};
use crate::schedule::Injection;
use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was seen of loading, and of the records afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// What there is, as people call it: "records", "accounts".
    pub what: String,
    /// How many there should be.
    pub count: u64,
    /// How many were acknowledged, or found to be there when they were sent again.
    pub known: u64,
    /// Tries of which nobody was told whether they happened.
    pub unknown: u64,
    /// Tries that were refused.
    pub refused: u64,
    /// When the first was sent.
    #[serde(rename = "begin_ns")]
    pub begin: Tick,
    /// When the last was known.
    #[serde(rename = "end_ns")]
    pub end: Tick,
    /// Final reads; none of accounts, which the bank reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scans: Vec<LoadedScan>,
}

/// What one source lacked when all records were read once after recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedScan {
    /// Who was asked.
    pub source: Source,
    /// 1 for the first reading of everything, 2 for the second, ...
    pub pass: u32,
    /// When it was complete.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// Records that are not there, each with the moment at which it was known to be.
    pub missing: Vec<(u64, Option<Tick>)>,
    /// Records with another value than was loaded.
    pub wrong: Vec<u64>,
}

/// Since when each record is known to be there, by the history of loading: it was inserted, or could not be
/// because an earlier try had done it.
pub fn known_since(history: &History) -> BTreeMap<u64, Tick> {
    let mut known: BTreeMap<u64, Tick> = BTreeMap::new();
    for entry in &history.entries {
        let is_there = matches!(entry.outcome, Outcome::Done | Outcome::Refused(Failure::Exists));
        if let (Op::Insert { record }, Some(ended), true) = (&entry.op, entry.ended, is_there) {
            let since = known.entry(*record).or_insert(ended);
            *since = ended.min(*since);
        }
    }
    known
}

impl Loaded {
    /// None of `count` things.
    pub fn nothing(what: &str, count: u64) -> Loaded {
        Loaded { what: what.into(), count, ..Loaded::default() }
    }

    /// What the history of loading `count` records says; nothing was read back yet.
    pub fn of(history: &History, count: u64) -> Loaded {
        let known = known_since(history);
        let inserts = || history.entries.iter().filter(|entry| matches!(entry.op, Op::Insert { .. }));
        let refused = |outcome| matches!(outcome, Outcome::Refused(failure) if failure != Failure::Exists);
        Loaded {
            known: known.len() as u64,
            unknown: inserts().filter(|entry| matches!(entry.outcome, Outcome::Unknown(_))).count() as u64,
            refused: inserts().filter(|entry| refused(entry.outcome)).count() as u64,
            begin: history.entries.iter().map(|entry| entry.began).min().unwrap_or_default(),
            end: known.values().max().copied().unwrap_or_default(),
            ..Loaded::nothing("records", count)
        }
    }

    /// Faults that had an effect and met the loading: not undone before it began, nor begun after its end.
    fn met<'a>(&self, injections: &'a [Injection]) -> impl Iterator<Item = &'a Injection> {
        let (begin, end) = (self.begin, self.end);
        let met = move |injection: &&Injection| {
            injection.at <= end && injection.undone.is_none_or(|undone| undone >= begin)
        };
        injections.iter().filter(|injection| injection.had_effect()).filter(met)
    }

    /// "record 17, known since 1.234 s".
    fn in_words(&self, (record, since): (u64, Option<Tick>)) -> String {
        let since = since.map_or("which was never known to be there".into(), |since| {
            format!("known to be there since {:.3} s", since.0 as f64 / 1e9)
        });
        format!("record {record}, {since}")
    }
}

impl Checker for Loaded {
    fn name(&self) -> &'static str {
        "loading"
    }

    fn check(&self, seen: &Observation) -> Finding {
        let mut finding = Finding::new(self.name());
        let Loaded { what, count, known, unknown, refused, .. } = self;
        let faults = self.met(&seen.injections).count() as u64;
        finding.count_many("known to be there", *known);
        finding.count_many("tries with an unknown outcome", *unknown);
        finding.count_many("tries that were refused", *refused);
        finding.count_many("faults while loading", faults);
        let last = of_survivors(&self.scans).pop();
        for (record, since) in last.iter().flat_map(|scan| &scan.missing).copied() {
            finding.accuse("LOST", || self.in_words((record, since)));
        }
        for record in last.iter().flat_map(|scan| &scan.wrong) {
            finding.accuse("WRONG VALUE", || format!("record {record} holds something else than was loaded"));
        }
        let of_replicas = last_of_replicas(&self.scans);
        let missing = of_replicas.values().map(|scan| scan.missing.len() as u64).sum();
        finding.count_many("missing on a replica", missing);
        if last.is_none() && what == "records" {
            finding.at_least(Verdict::Unknown);
            finding.notes.push("the records were not read after the run".into());
        }
        if known < count {
            finding.at_least(Verdict::Unknown);
            finding.notes.push(format!("loading ended when {} were not known to be there", count - known));
        }
        if faults == 0 {
            finding.at_least(Verdict::NotTested);
            finding.notes.push("no fault took effect while they were loaded".into());
        }
        if what != "records" {
            finding.notes.push("whether each is still there is the bank's to say".into());
        }
        let (lost, wrong) = (finding.counted("LOST"), finding.counted("WRONG VALUE"));
        let lost = match (last.is_some(), lost, wrong) {
            (false, ..) => String::new(),
            (true, 0, 0) => ", and all were there at the end".into(),
            (true, lost, wrong) => format!("; {lost} LOST, {wrong} with a WRONG VALUE at the end"),
        };
        finding.summary = format!(
            "{known} of {count} {what} were known to be there after loading, {unknown} tries had an unknown outcome and \
             {refused} were refused, {faults} faults met it{lost}"
        );
        finding
    }
}
