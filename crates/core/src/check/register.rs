//! Is every key a register that takes effect at one moment? Linearizability (Herlihy and Wing 1990) of reads
//! and writes, in O(n log n).
//!
//! With values that are written once, no search is needed (Gibbons and Korach 1997). All operations on one
//! value are a cluster: its write and the reads that returned it. Let `f` be the earliest end and `s` the
//! latest beginning in a cluster. Cluster A must come before cluster B exactly if f(A) < s(B), because some
//! operation of A then ends before one of B begins. The register is linearizable exactly if no read returns a
//! value nobody wrote, or one whose write begins after the read has ended, and no two clusters must each come
//! before the other.
//!
//! A write with an unknown outcome may take effect at any time after it was sent, or never: it ends at
//! infinity, and where nobody read it, it is left out. That nothing was there before is a write that ended
//! before everything. The laboratory's final readings are the last reads of all.

use super::history::{Entry, Returned, Version};
use super::ledger::seconds;
use super::reading::{LABORATORY, of_survivors, reads_of_keys};
use super::{Checker, Finding, Observation, Verdict};
use crate::op::{Op, Outcome};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Checks every key by itself, which is enough: linearizability is local.
#[derive(Debug, Clone, Default)]
pub struct Register;

const NEVER: u64 = u64::MAX;

/// The operations on one value of one key.
#[derive(Debug, Clone, Copy)]
struct Cluster {
    /// Earliest end, and whose.
    end: u64,
    ends: usize,
    /// Latest beginning, and whose.
    begin: u64,
    begins: usize,
}

/// What one key did.
struct OneKey<'a> {
    entries: &'a [Entry],
    clusters: HashMap<Option<Version>, Cluster>,
    writes: HashMap<Version, usize>,
    reads: Vec<(Option<Version>, usize)>,
}

/// Stands for the write of what was there before.
const BEFORE: usize = usize::MAX;

fn end_of(entry: &Entry) -> u64 {
    match entry.outcome {
        Outcome::Done => entry.ended.map_or(NEVER, |at| at.0),
        _ => NEVER,
    }
}

impl<'a> OneKey<'a> {
    fn tell(&self, index: usize) -> String {
        if index == BEFORE {
            return "the value before the first write".into();
        }
        let entry = &self.entries[index];
        let until = match end_of(entry) {
            NEVER => "no known end".into(),
            end => seconds(crate::units::Tick(end)),
        };
        let what = match (entry.op.written(), &entry.answer) {
            (Some((_, key_sequence)), _) => format!("wrote {key_sequence}"),
            (_, Returned::Value(Some(version))) => format!("read {}", version.key_sequence),
            _ => "read nothing".into(),
        };
        format!("{} {what} ({} to {until})", entry.name(), seconds(entry.began))
    }

    fn join(&mut self, value: Option<Version>, index: usize) {
        // One later than the clock says: 0 is before everything, where the first value was written.
        let entry = &self.entries[index];
        let (begin, end) = (entry.began.0.saturating_add(1), end_of(entry).saturating_add(1));
        let fresh = Cluster { end, ends: index, begin, begins: index };
        let cluster = self.clusters.entry(value).or_insert(fresh);
        if end < cluster.end {
            (cluster.end, cluster.ends) = (end, index);
        }
        if begin > cluster.begin {
            (cluster.begin, cluster.begins) = (begin, index);
        }
    }

    /// Clusters of all values, with what is wrong with single reads on the way.
    fn gather(&mut self, key: u64, finding: &mut Finding) {
        self.clusters.insert(None, Cluster { end: 0, ends: BEFORE, begin: 0, begins: BEFORE });
        let reads = std::mem::take(&mut self.reads);
        let mut is_read = HashSet::new();
        for (value, index) in &reads {
            let Some(version) = value else {
                self.join(None, *index);
                continue;
            };
            let Some(write) = self.writes.get(version).copied() else {
                finding.accuse("read of nothing written", || {
                    format!("key {key}: {}; nobody wrote that", self.tell(*index))
                });
                continue;
            };
            let (writer, reader) = (&self.entries[write], &self.entries[*index]);
            if matches!(writer.outcome, Outcome::Refused(_)) {
                finding.accuse("read of a refused write", || {
                    format!("key {key}: {}; {} was refused", self.tell(*index), writer.name())
                });
                continue;
            }
            if end_of(reader) < writer.began.0 {
                finding.accuse("read of the future", || {
                    format!("key {key}: {} before {}", self.tell(*index), self.tell(write))
                });
                continue;
            }
            is_read.insert(*version);
            self.join(*value, *index);
        }
        let written: Vec<(Version, usize)> = self.writes.iter().map(|(v, index)| (*v, *index)).collect();
        for (version, index) in written {
            let outcome = self.entries[index].outcome;
            // A refused write is never among them.
            if outcome == Outcome::Done || is_read.contains(&version) {
                self.join(Some(version), index);
            }
        }
    }

    fn accuse(&self, key: u64, a: Cluster, b: Cluster, finding: &mut Finding) {
        // Each must come before the other: the end of one and the beginning of the other prove it.
        finding.accuse("not linearizable", || {
            format!(
                "key {key}: [{}] ends before [{}] begins, yet [{}] ends before [{}] begins",
                self.tell(a.ends),
                self.tell(b.begins),
                self.tell(b.ends),
                self.tell(a.begins)
            )
        });
    }

    /// Looks for two clusters that must each come before the other. One of them is always a forward zone
    /// (end < begin), and forward zones that pass do not overlap: comparing neighbours is enough.
    fn check(&self, key: u64, finding: &mut Finding) {
        let mut clusters: Vec<Cluster> = self.clusters.values().copied().collect();
        clusters.sort_by_key(|cluster| (cluster.end, cluster.begin));
        let (forward, backward): (Vec<Cluster>, Vec<Cluster>) =
            clusters.into_iter().partition(|cluster| cluster.end < cluster.begin);
        let mut furthest: Option<Cluster> = None;
        let mut apart: Vec<Cluster> = Vec::new();
        for zone in forward {
            match furthest {
                Some(before) if zone.end < before.begin => self.accuse(key, before, zone, finding),
                _ => apart.push(zone),
            }
            if furthest.is_none_or(|before| before.begin < zone.begin) {
                furthest = Some(zone);
            }
        }
        for cluster in backward {
            // The last forward zone that ends before this cluster's last beginning.
            let at = apart.partition_point(|zone| zone.end < cluster.begin);
            if let Some(zone) = apart[..at].last().filter(|zone| cluster.end < zone.begin) {
                self.accuse(key, *zone, cluster, finding);
            }
        }
    }
}

impl Register {
    fn keys<'a>(entries: &'a [Entry], finding: &mut Finding) -> BTreeMap<u64, OneKey<'a>> {
        let mut keys: BTreeMap<u64, OneKey> = BTreeMap::new();
        let new = || OneKey { entries, clusters: HashMap::new(), writes: HashMap::new(), reads: vec![] };
        for (index, entry) in entries.iter().enumerate() {
            if let Some((key, version)) = entry.written() {
                let one = keys.entry(key).or_insert_with(new);
                if one.writes.insert(version, index).is_some() {
                    finding.at_least(Verdict::Unknown);
                    finding.count("values written twice");
                    finding.show("written twice", || format!("key {key}: {}", entry.name()));
                }
            }
            if let (Op::Read { record, .. }, Returned::Value(value)) = (&entry.op, &entry.answer)
                && entry.is_done()
            {
                keys.entry(*record).or_insert_with(new).reads.push((*value, index));
            }
        }
        keys
    }
}

impl OneKey<'_> {
    /// Reads by clients, final readings, and writes that took effect: acknowledged, or seen by somebody.
    fn counted(&self) -> [u64; 3] {
        let last = self.reads.iter().filter(|(_, read)| self.entries[*read].client == LABORATORY).count();
        let seen: HashSet<Version> = self.reads.iter().filter_map(|(value, _)| *value).collect();
        let took_effect =
            |(version, write): &(&Version, &usize)| self.entries[**write].is_done() || seen.contains(version);
        let writes = self.writes.iter().filter(took_effect).count();
        [(self.reads.len() - last) as u64, last as u64, writes as u64]
    }
}

impl Checker for Register {
    fn name(&self) -> &'static str {
        "register"
    }

    fn check(&self, seen: &Observation) -> Finding {
        let mut finding = Finding::new(self.name());
        let mut entries = Cow::from(&seen.history.entries);
        if !seen.keys.is_empty() {
            entries.to_mut().extend(reads_of_keys(&seen.history, &seen.keys));
        }
        let keys = Self::keys(&entries, &mut finding);
        for scan in of_survivors(&seen.keys) {
            let mut here: Vec<u64> = scan.rows.iter().map(|row| row.0).collect();
            here.sort_unstable();
            for twice in here.windows(2).filter(|pair| pair[0] == pair[1] && keys.contains_key(&pair[0])) {
                finding.accuse("found twice", || format!("key {} stands there more than once", twice[0]));
            }
        }
        let (mut reads, mut last, mut writes, mut compared) = (0, 0, 0, 0u64);
        let number = keys.len();
        // With a value written twice, it is open which write a read saw.
        let is_open = finding.counted("values written twice") > 0;
        for (key, mut one) in keys {
            let [by_clients, at_the_end, effects] = one.counted();
            (reads, last, writes) = (reads + by_clients, last + at_the_end, writes + effects);
            compared += u64::from(by_clients > 0 && effects > 0);
            if !is_open {
                one.gather(key, &mut finding);
                one.check(key, &mut finding);
            }
        }
        finding.count_many("reads", reads);
        finding.count_many("final readings", last);
        finding.count_many("writes", writes);
        if compared == 0 {
            finding.at_least(Verdict::NoEvidence);
        }
        if last == 0 {
            finding
                .notes
                .push("nothing was read after the run: what was lost at the end was not looked for".into());
        }
        finding.summary = match finding.verdict {
            Verdict::Valid => format!("{reads} reads and {writes} writes of {number} keys are linearizable"),
            Verdict::NoEvidence => format!("{reads} reads and {writes} writes of {number} keys say nothing"),
            Verdict::Invalid => format!("of {number} keys some are not linearizable"),
            _ => "values are not unique, so it cannot be decided".into(),
        };
        finding
    }
}

#[cfg(test)]
pub(super) mod tests;
