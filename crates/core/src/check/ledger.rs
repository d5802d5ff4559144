//! The ledger: was every acknowledged write still there after the faults?
//!
//! | result \ found | the write | nothing, or an older one | twice | something else |
//! |---|---|---|---|---|
//! | done | durable | LOST, ROLLED BACK | DUPLICATE | CORRUPT |
//! | unknown | applied | not applied | DUPLICATE | CORRUPT |
//! | refused | PHANTOM | fine | PHANTOM | CORRUPT |
//! | never sent | PHANTOM | | | CORRUPT |
//!
//! A HOLE is a lost write of a client that has a later durable one, sent before the fault that lost it: the
//! order of the log is broken.

use super::history::{Entry, History, Version};
use super::loss::{Exposure, Losses};
use super::reading::of_survivors;
use super::{AtRisk, Checker, Finding, KeyScan, Observation, Source, Verdict};
use crate::op::Outcome;
use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

/// What became of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Acknowledged and found.
    Durable,
    /// Acknowledged, and a later write of the same key is found: nothing more can be known.
    Overwritten,
    /// Unknown and found.
    Applied,
    /// Unknown and not found. Both are legal.
    NotApplied,
    /// Unknown, and a later write of the same key is found: which it was cannot be known.
    Undecided,
    /// Refused and not found.
    Refused,
    /// Acknowledged; an earlier write of the key is found, whose own answer is unknown. It may have been
    /// carried out late, on top of the acknowledged one, which is legal unless writes are guarded.
    Overtaken,
    /// Acknowledged, and nothing is found under the key.
    Lost,
    /// Acknowledged, and an earlier write of the key is found.
    RolledBack,
    /// Found more than once.
    Duplicate,
    /// Found, but refused or never sent.
    Phantom,
    /// Something is found under the key that nobody wrote.
    Corrupt,
}

impl Fate {
    /// As it stands in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Durable => "durable",
            Fate::Overwritten => "overwritten",
            Fate::Applied => "applied",
            Fate::NotApplied => "not applied",
            Fate::Undecided => "undecided",
            Fate::Refused => "refused",
            Fate::Overtaken => "overtaken",
            Fate::Lost => "LOST",
            Fate::RolledBack => "ROLLED BACK",
            Fate::Duplicate => "DUPLICATE",
            Fate::Phantom => "PHANTOM",
            Fate::Corrupt => "CORRUPT",
        }
    }

    /// Whether it is a broken promise.
    pub fn is_guilty(self) -> bool {
        self >= Fate::Lost
    }

    fn is_lost(self) -> bool {
        matches!(self, Fate::Lost | Fate::RolledBack)
    }
}

/// The ledger's settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    /// What counts as a test, and what was promised.
    pub exposure: Exposure,
    /// Whether a write replaces only writes with a lower key sequence. Then an old write cannot arrive late.
    pub guarded: bool,
    /// Keys that exist before the history begins, with key sequence 0 and any payload.
    pub loaded: Range<u64>,
}

/// All that the ledger knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// How many writes met which fate.
    pub fates: BTreeMap<Fate, u64>,
    /// Lost writes of clients that have a later durable one.
    pub holes: u64,
    /// Keys whose two final readings differ.
    pub unstable: u64,
    /// Keys on which some replica differs from the survivors in the last readings.
    pub replicas_differ: u64,
    /// From the last fault until all replicas gave the same as the survivors, and stayed so.
    #[serde(rename = "replicas_agree_ns", with = "super::loss::optional_span")]
    pub replicas_agree: Option<Duration>,
    /// Lost writes by fault, and what all faults together say.
    pub losses: Losses,
    /// Verdict, counts, evidence.
    pub finding: Finding,
}

/// What is found and was never intended, where the history may lack its intent.
pub(super) const AFTER_THE_END: &str = "after the end of the history";

struct Write<'a> {
    key: u64,
    key_sequence: u64,
    payload: u64,
    entry: &'a Entry,
}

fn sorted(scan: &KeyScan) -> Vec<(u64, Version)> {
    let mut rows = scan.rows.clone();
    rows.sort_unstable();
    rows
}

/// The rows of one key in sorted rows.
fn of_key(rows: &[(u64, Version)], key: u64) -> &[(u64, Version)] {
    let from = rows.partition_point(|row| row.0 < key);
    let to = from + rows[from..].partition_point(|row| row.0 == key);
    &rows[from..to]
}

fn found(rows: &[(u64, Version)]) -> String {
    let each: Vec<String> = rows
        .iter()
        .take(4)
        .map(|(_, v)| format!("write {} (hash {:x})", v.key_sequence, v.payload))
        .collect();
    match (rows.len(), each.join(", ")) {
        (0, _) => "nothing".into(),
        (1, one) => one,
        (n, some) => format!("{n} rows: {some}"),
    }
}

/// "12.345678 s" on the trial clock.
pub(super) fn seconds(at: Tick) -> String {
    format!("{:.6} s", at.0 as f64 / 1e9)
}

impl Ledger {
    /// Settles the accounts: every write gets its fate.
    pub fn settle(&self, seen: &Observation) -> Balance {
        let mut finding = Finding::new(self.name());
        let (writes, written) = writes(&seen.history, &mut finding);
        let survivors = of_survivors(&seen.keys);
        let Some(last) = survivors.last() else {
            if writes.iter().any(|write| write.entry.is_done()) {
                finding.at_least(Verdict::Unknown);
            }
            finding.summary = "the survivors were never read, so nothing is known".into();
            return self.closed(seen, BTreeMap::new(), vec![], 0, 0, finding);
        };
        let rows = sorted(last);
        let cut_short = seen.history.is_cut_short;
        let (fates, lost) = self.fates(&writes, &written, &rows, cut_short, &mut finding);
        let fired = seen.injections.iter().filter(|injection| injection.had_effect());
        let faults: Vec<Tick> = fired.map(|injection| injection.at).collect();
        let holes = holes(&writes, &lost, &fates.1, &faults, &mut finding);
        let unstable = unstable(&survivors, &rows, &mut finding);
        if survivors.len() < 2 {
            finding.notes.push("the survivors were read once: what comes and goes was not looked for".into());
        }
        let lost: Vec<&Entry> = lost.iter().map(|(_, index)| writes[*index].entry).collect();
        self.closed(seen, fates.0, lost, holes, unstable, finding)
    }

    /// Gives every write its fate. Returns the counts and the writes that were found themselves, and the
    /// lost ones with the time of their acknowledgement.
    #[allow(clippy::type_complexity)]
    fn fates(
        &self,
        writes: &[Write],
        written: &BTreeSet<u64>,
        rows: &[(u64, Version)],
        cut_short: bool,
        finding: &mut Finding,
    ) -> ((BTreeMap<Fate, u64>, Vec<usize>), Vec<(Tick, usize)>) {
        let (mut fates, mut durable, mut lost) = (BTreeMap::new(), vec![], vec![]);
        let mut at = 0;
        let mut known = 0usize;
        while at < writes.len() {
            let key = writes[at].key;
            let end = at + writes[at..].partition_point(|write| write.key == key);
            let here = of_key(rows, key);
            known += here.len();
            for (index, fate) in (at..end).zip(self.of_one_key(&writes[at..end], here, cut_short)) {
                *fates.entry(fate).or_default() += 1;
                let write = &writes[index];
                if fate == Fate::Durable {
                    durable.push(index);
                }
                if let Some(acknowledged) = write.entry.acknowledged().filter(|_| fate.is_lost()) {
                    lost.push((acknowledged, index));
                }
                finding.count(fate.name());
                if fate.is_guilty() {
                    finding.at_least(Verdict::Invalid);
                    finding.show(fate.name(), || write.tell(here));
                }
            }
            at = end;
        }
        if known < rows.len() || !self.loaded.is_empty() {
            self.never_sent(written, rows, cut_short, &mut fates, finding);
        }
        ((fates, durable), lost)
    }

    /// Keys that nobody wrote: phantoms, unless they were loaded; and loaded ones that are gone.
    fn never_sent(
        &self,
        written: &BTreeSet<u64>,
        rows: &[(u64, Version)],
        cut_short: bool,
        fates: &mut BTreeMap<Fate, u64>,
        finding: &mut Finding,
    ) {
        for (key, version) in rows.iter().filter(|row| !written.contains(&row.0)) {
            if cut_short && *version == Version::of(*key, version.key_sequence) {
                *fates.entry(Fate::Undecided).or_default() += 1;
                finding.count(AFTER_THE_END);
            } else if !(self.loaded.contains(key) && version.key_sequence == 0) {
                *fates.entry(Fate::Phantom).or_default() += 1;
                finding.accuse(Fate::Phantom.name(), || format!("key {key} is there, and nobody wrote it"));
            }
        }
        for key in self.loaded.clone().filter(|key| !written.contains(key)) {
            let here = of_key(rows, key);
            if here.is_empty() {
                *fates.entry(Fate::Lost).or_default() += 1;
                finding.accuse(Fate::Lost.name(), || format!("key {key} of the load is gone"));
            }
        }
        // Also of a key that was written to: the writes have fates of their own.
        for key in self.loaded.clone() {
            let here = of_key(rows, key);
            if here.iter().filter(|(_, version)| version.key_sequence == 0).count() > 1 {
                *fates.entry(Fate::Duplicate).or_default() += 1;
                finding.accuse(Fate::Duplicate.name(), || {
                    format!("key {key} of the load: found {}", found(here))
                });
            }
        }
    }

    /// The fates of all writes of one key, in their order.
    fn of_one_key(&self, writes: &[Write], rows: &[(u64, Version)], cut_short: bool) -> Vec<Fate> {
        let version = rows.iter().map(|row| row.1).max();
        let is_initial = |v: &Version| v.key_sequence == 0 && self.loaded.contains(&writes[0].key);
        let Some(version) = version.filter(|v| !is_initial(v)) else {
            let gone = if rows.is_empty() { Fate::Lost } else { Fate::RolledBack };
            let fate = |write: &Write| match write.entry.outcome {
                Outcome::Done => gone,
                Outcome::Unknown(_) => Fate::NotApplied,
                Outcome::Refused(_) => Fate::Refused,
            };
            return writes.iter().map(fate).collect();
        };
        let source = writes.iter().position(|w| w.key_sequence == version.key_sequence);
        let last = writes[writes.len() - 1].key_sequence;
        if cut_short
            && version.key_sequence > last
            && version == Version::of(writes[0].key, version.key_sequence)
        {
            // A write of the key after the end of the history: nothing more can be known.
            let fate = |write: &Write| match write.entry.outcome {
                Outcome::Done => Fate::Overwritten,
                Outcome::Unknown(_) => Fate::Undecided,
                Outcome::Refused(_) => Fate::Refused,
            };
            return writes.iter().map(fate).collect();
        }
        // What nobody wrote is charged to the last write that was acknowledged, or else to the last one.
        let culprit = source.unwrap_or_else(|| {
            writes.iter().rposition(|write| write.entry.is_done()).unwrap_or(writes.len() - 1)
        });
        let is_intact = source.is_some_and(|at| writes[at].payload == version.payload);
        let late = !self.guarded && is_intact && matches!(writes[culprit].entry.outcome, Outcome::Unknown(_));
        // It may have been sent first and have arrived last.
        let reordered = |write: &Write| {
            let other = writes[culprit].entry.client != write.entry.client;
            self.exposure.unanswered && !self.guarded && is_intact && other
        };
        let fate = |(at, write): (usize, &Write)| match (at.cmp(&culprit), write.entry.outcome) {
            (std::cmp::Ordering::Equal, _) if !is_intact => Fate::Corrupt,
            (std::cmp::Ordering::Equal, Outcome::Refused(_)) => Fate::Phantom,
            (std::cmp::Ordering::Equal, _) if rows.len() > 1 => Fate::Duplicate,
            (std::cmp::Ordering::Equal, Outcome::Done) => Fate::Durable,
            (std::cmp::Ordering::Equal, Outcome::Unknown(_)) => Fate::Applied,
            (std::cmp::Ordering::Less, Outcome::Done) => Fate::Overwritten,
            (std::cmp::Ordering::Less, Outcome::Unknown(_)) => Fate::Undecided,
            (std::cmp::Ordering::Greater, Outcome::Done) if late => Fate::Overtaken,
            (std::cmp::Ordering::Greater, Outcome::Done) if reordered(write) => Fate::Overwritten,
            (std::cmp::Ordering::Greater, Outcome::Done) => Fate::RolledBack,
            (std::cmp::Ordering::Greater, Outcome::Unknown(_)) => Fate::NotApplied,
            (_, Outcome::Refused(_)) => Fate::Refused,
        };
        writes.iter().enumerate().map(fate).collect()
    }

    fn closed(
        &self,
        seen: &Observation,
        fates: BTreeMap<Fate, u64>,
        lost: Vec<&Entry>,
        holes: u64,
        unstable: u64,
        mut finding: Finding,
    ) -> Balance {
        let writes = seen.history.entries.iter().filter(|entry| entry.op.written().is_some());
        let acknowledged: Vec<Tick> = writes.filter_map(Entry::acknowledged).collect();
        let nothing_promised = acknowledged.is_empty();
        let losses = self.exposure.charge(seen, acknowledged, &lost);
        let (replicas_differ, agree) = replicas(&seen.keys, &mut finding);
        let last_fault =
            seen.injections.iter().filter(|injection| injection.had_effect()).map(|i| i.at).max();
        let replicas_agree = agree.zip(last_fault).map(|(at, fault)| at.since(fault));
        if fates.get(&Fate::Overtaken).is_some_and(|n| *n > 0) {
            finding.at_least(Verdict::Unknown);
            finding.notes.push(
                "an unknown write may have arrived late, on top of acknowledged ones: let clients leave a key \
                 alone after an unknown answer, or guard writes by their sequence"
                    .into(),
            );
        }
        if nothing_promised || (!seen.injections.is_empty() && losses.chance.faults == 0) {
            finding.at_least(Verdict::NoEvidence);
        }
        finding.notes.extend(AtRisk::summary(&losses.at_risk()));
        if finding.summary.is_empty() {
            let losses_told = match nothing_promised {
                true => "no write was acknowledged, so nothing was promised".into(),
                false => self.exposure.summary(&losses, "writes"),
            };
            finding.summary = losses_told + &others(&fates, &losses);
        }
        Balance { fates, holes, unstable, replicas_differ, replicas_agree, losses, finding }
    }
}

/// What is wrong besides losses: "; 2 DUPLICATE".
fn others(fates: &BTreeMap<Fate, u64>, losses: &Losses) -> String {
    let guilty = fates.iter().filter(|(fate, _)| fate.is_guilty() && !fate.is_lost());
    let mut text: String = guilty.map(|(fate, n)| format!("; {n} {}", fate.name())).collect();
    let lost: u64 = fates.iter().filter(|(fate, _)| fate.is_lost()).map(|(_, n)| n).sum();
    if lost > losses.lost {
        text += &format!("; {} LOST of what was loaded", lost - losses.lost);
    }
    text
}

impl Write<'_> {
    fn tell(&self, rows: &[(u64, Version)]) -> String {
        let outcome = match (self.entry.outcome, self.entry.ended) {
            (Outcome::Done, Some(at)) => format!("acknowledged at {}", seconds(at)),
            (Outcome::Done, None) => "acknowledged".into(),
            (Outcome::Refused(failure), _) => format!("refused ({failure:?})"),
            (Outcome::Unknown(failure), _) => format!("unanswered ({failure:?})"),
        };
        format!(
            "{} wrote key {}, write {} (hash {:x}), {outcome}; found: {}",
            self.entry.name(),
            self.key,
            self.key_sequence,
            self.payload,
            found(rows)
        )
    }
}

/// All writes by key and key sequence. Keys of which a write was sent before the one before it had its
/// answer, or by another client at the same time, have no order to judge by: they are left out, and the
/// verdict is at least Unknown. Also returns all keys that were written to.
fn writes<'a>(history: &'a History, finding: &mut Finding) -> (Vec<Write<'a>>, BTreeSet<u64>) {
    let mut writes: Vec<Write> = history
        .entries
        .iter()
        .filter_map(|entry| {
            let (key, Version { key_sequence, payload }) = entry.written()?;
            Some(Write { key, key_sequence, payload, entry })
        })
        .collect();
    writes.sort_by_key(|write| (write.key, write.key_sequence));
    let mut without_order = BTreeSet::new();
    for pair in writes.windows(2).filter(|pair| pair[0].key == pair[1].key) {
        let (a, b) = (&pair[0], &pair[1]);
        // A client has one operation under way; whoever else writes the key must have waited for the answer.
        let one_after_the_other = match a.entry.client == b.entry.client {
            true => a.entry.sequence < b.entry.sequence,
            false => a.entry.is_done() && a.entry.ended.is_some_and(|ended| ended <= b.entry.began),
        };
        if a.key_sequence == b.key_sequence || !one_after_the_other {
            finding.at_least(Verdict::Unknown);
            without_order.insert(a.key);
            finding.show("no order", || {
                format!("key {}: {} and {} both wrote it", a.key, a.entry.name(), b.entry.name())
            });
        }
    }
    finding.count_many("keys without an order", without_order.len() as u64);
    let written = writes.iter().map(|write| write.key).collect();
    writes.retain(|write| !without_order.contains(&write.key));
    (writes, written)
}

/// Lost writes of clients that have a later durable one, sent before the fault that is to blame. What was
/// written after it, when the database was back, says nothing about the order of its log.
fn holes(
    writes: &[Write],
    lost: &[(Tick, usize)],
    durable: &[usize],
    faults: &[Tick],
    finding: &mut Finding,
) -> u64 {
    let mut by_client: HashMap<u32, Vec<&Entry>> = HashMap::new();
    for entry in durable.iter().map(|index| writes[*index].entry) {
        by_client.entry(entry.client).or_default().push(entry);
    }
    by_client.values_mut().for_each(|entries| entries.sort_unstable_by_key(|entry| entry.sequence));
    let mut holes = 0;
    for (acknowledged, index) in lost {
        let write = &writes[*index];
        let until = faults.iter().copied().filter(|at| at >= acknowledged).min().unwrap_or(Tick(u64::MAX));
        let entries = by_client.get(&write.entry.client).map(Vec::as_slice).unwrap_or_default();
        // A client's operations begin in the order of their sequence.
        let before = &entries[..entries.partition_point(|entry| entry.began < until)];
        let later = before.last().filter(|later| later.sequence > write.entry.sequence);
        if let Some(later) = later {
            holes += 1;
            finding.accuse("HOLE", || {
                format!(
                    "{} is lost, and the later operation {} is durable",
                    write.entry.name(),
                    later.sequence
                )
            });
        }
    }
    holes
}

/// Keys on which the readings of the survivors differ.
fn unstable(survivors: &[&KeyScan], last: &[(u64, Version)], finding: &mut Finding) -> u64 {
    let mut keys = BTreeSet::new();
    for scan in &survivors[..survivors.len() - 1] {
        let rows = sorted(scan);
        let before = keys.len();
        keys.extend(differing(&rows, last));
        if let Some(key) = keys.iter().next().filter(|_| keys.len() > before) {
            finding.show("unstable", || {
                let (first, second) = (of_key(&rows, *key), of_key(last, *key));
                format!("key {key} was {} and then {}", found(first), found(second))
            });
        }
    }
    finding.count_many("unstable", keys.len() as u64);
    if !keys.is_empty() {
        finding.at_least(Verdict::Unknown);
        finding
            .notes
            .push("the survivors gave different answers to two readings without a write between".into());
    }
    keys.len() as u64
}

/// Keys on which two sorted readings differ.
fn differing(a: &[(u64, Version)], b: &[(u64, Version)]) -> BTreeSet<u64> {
    let (mut i, mut j, mut keys) = (0, 0, BTreeSet::new());
    while i < a.len() || j < b.len() {
        match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x == y => (i, j) = (i + 1, j + 1),
            (Some(x), Some(y)) if x < y => {
                keys.insert(x.0);
                i += 1;
            }
            (Some(x), None) => {
                keys.insert(x.0);
                i += 1;
            }
            (_, Some(y)) => {
                keys.insert(y.0);
                j += 1;
            }
            (None, None) => break,
        }
    }
    keys
}

/// On how many keys a replica differs from the survivors in the last readings, and since when none did.
fn replicas(scans: &[KeyScan], finding: &mut Finding) -> (u64, Option<Tick>) {
    let mut passes: BTreeMap<u32, Vec<&KeyScan>> = BTreeMap::new();
    for scan in scans {
        passes.entry(scan.pass).or_default().push(scan);
    }
    let (mut agree, mut differ) = (None, 0);
    for scans in passes.values() {
        let Some(survivors) = scans.iter().find(|scan| scan.source == Source::Survivors) else { continue };
        let rows = sorted(survivors);
        let others = scans.iter().filter(|scan| scan.source != Source::Survivors);
        let mut keys = BTreeSet::new();
        for scan in others.clone() {
            keys.extend(differing(&sorted(scan), &rows));
        }
        differ = keys.len() as u64;
        let at = scans.iter().map(|scan| scan.at).max();
        agree = if differ > 0 || others.count() == 0 { None } else { agree.or(at) };
    }
    finding.count_many("keys that differ on a replica", differ);
    if differ > 0 {
        finding.at_least(Verdict::Unknown);
        finding.notes.push("at the last reading a replica did not hold what the survivors hold".into());
    }
    (differ, agree)
}

impl Checker for Ledger {
    fn name(&self) -> &'static str {
        "ledger"
    }

    fn check(&self, seen: &Observation) -> Finding {
        self.settle(seen).finding
    }
}

#[cfg(test)]
mod tests;
