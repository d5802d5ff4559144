//! Mutants of keys: for the ledger, and for the register.

use super::{Change, Mutation, Trial, Truth, pick, pick_two};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tipover_core::check::guilty::{Extent, Work};
use tipover_core::check::{
    Entry, Exposure, KeyScan, Ledger, Observation, Register, Returned, Source, Version,
};
use tipover_core::op::{self, OpKind, Outcome};
use tipover_core::workload::Random;

fn extents() -> Vec<Extent> {
    let of = |keys, end_ms, faults_ms| Extent { clients: 3, keys, end_ms, faults_ms };
    vec![of(2, 30, vec![]), of(2, 70, vec![20]), of(1, 25, vec![]), of(3, 60, vec![15])]
}

pub fn ledger() -> Trial {
    let exposure = Exposure { window: Duration::from_secs(1), least_acknowledged: 1, ..Exposure::default() };
    Trial {
        name: "ledger",
        work: Work::Keys,
        extents: extents(),
        checkers: vec![Box::new(Ledger { exposure, ..Ledger::default() })],
        truth: |_, seen| truth_of_ledger(seen),
        change,
        why: why_the_ledger,
    }
}

pub fn register() -> Trial {
    Trial {
        name: "register",
        work: Work::Keys,
        extents: extents(),
        checkers: vec![Box::new(Register)],
        truth: |_, seen| truth_of_registers(seen),
        change,
        why: why_the_register,
    }
}

fn written(seen: &Observation) -> BTreeMap<u64, Vec<(&Entry, Version)>> {
    let mut written: BTreeMap<u64, Vec<(&Entry, Version)>> = BTreeMap::new();
    for entry in &seen.history.entries {
        if let Some((key, version)) = entry.written() {
            written.entry(key).or_default().push((entry, version));
        }
    }
    written
}

fn last_reading(seen: &Observation) -> &KeyScan {
    let survivors = seen.keys.iter().filter(|scan| scan.source == Source::Survivors);
    survivors.max_by_key(|scan| scan.pass).expect("the survivors were read")
}

/// Each key by itself: which values can be there at the end, if its writes took effect in the order of their
/// client, and those without an answer at any later time or never? Exactly one of these is found.
fn truth_of_ledger(seen: &Observation) -> Truth {
    let last = last_reading(seen);
    let mut found: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
    for (key, version) in &last.rows {
        found.entry(*key).or_default().push(*version);
    }
    let mut open = None;
    let written = written(seen);
    for (key, writes) in &written {
        let in_order = writes.windows(2).all(|pair| {
            let [(a, x), (b, y)] = pair else { return true };
            a.client == b.client && x.key_sequence < y.key_sequence
        });
        if !in_order {
            open = Some(format!("key {key} has no order"));
            continue;
        }
        let (mut possible, mut late) = (BTreeSet::from([None]), BTreeSet::new());
        for (entry, version) in writes {
            match entry.outcome {
                Outcome::Refused(_) => {}
                Outcome::Unknown(_) => {
                    late.insert(Some(*version));
                    possible.insert(Some(*version));
                }
                Outcome::Done => {
                    possible = late.clone();
                    possible.insert(Some(*version));
                }
            }
        }
        let here = found.get(key).map_or(&[][..], Vec::as_slice);
        let one = here.first().copied();
        if here.len() > 1 || !possible.contains(&one) {
            return Truth::Broken(format!("key {key}: {here:?} of {possible:?}"));
        }
    }
    if let Some(key) = found.keys().find(|key| !written.contains_key(key)) {
        return Truth::Broken(format!("nobody wrote key {key}"));
    }
    open.map_or_else(|| other_readings(seen), Truth::Open)
}

/// A second reading of the survivors, and the last one of each replica, must be the same.
fn other_readings(seen: &Observation) -> Truth {
    let sorted = |scan: &KeyScan| {
        let mut rows = scan.rows.clone();
        rows.sort_unstable();
        rows
    };
    let last = last_reading(seen);
    let differs = |scan: &&KeyScan| {
        let counts = scan.source == Source::Survivors || scan.pass == last.pass;
        counts && sorted(scan) != sorted(last)
    };
    match seen.keys.iter().find(differs) {
        Some(scan) => Truth::Open(format!("reading {} of {:?} differs", scan.pass, scan.source)),
        None => Truth::Legal,
    }
}

/// By trying everything: is there an order of each key's operations that respects time and explains every
/// read, the laboratory's final ones too?
fn truth_of_registers(seen: &Observation) -> Truth {
    let mut keys: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
    let end = |entry: &Entry| entry.ended.filter(|_| entry.is_done()).map_or(u64::MAX, |at| at.0);
    let mut versions = BTreeSet::new();
    let mut twice = None;
    for entry in &seen.history.entries {
        let (began, ended) = (entry.began.0, end(entry));
        if let Some((key, version)) = entry.written() {
            let ops = keys.entry(key).or_default();
            if !versions.insert((key, version.key_sequence)) {
                twice = Some(key);
            }
            if !matches!(entry.outcome, Outcome::Refused(_)) {
                ops.push(Op { began, ended, must: entry.is_done(), write: Some(version), read: None });
            }
        }
        if let op::Op::Read { record, .. } = entry.op {
            let ops = keys.entry(record).or_default();
            if let (Returned::Value(value), true) = (&entry.answer, entry.is_done()) {
                ops.push(Op { began, ended, must: true, write: None, read: Some(*value) });
            }
        }
    }
    if let Some(key) = twice {
        return Truth::Open(format!("a value of key {key} is written twice"));
    }
    let stopped = seen.history.entries.iter().map(|e| e.ended.unwrap_or(e.began).0).max().unwrap_or(0);
    for scan in seen.keys.iter().filter(|scan| scan.source == Source::Survivors) {
        for (key, ops) in &mut keys {
            let rows: Vec<Version> = scan.rows.iter().filter(|row| row.0 == *key).map(|row| row.1).collect();
            if rows.len() > 1 {
                return Truth::Broken(format!("key {key} is there {} times", rows.len()));
            }
            let (began, ended) = (stopped + 1, scan.at.0);
            ops.push(Op { began, ended, must: true, write: None, read: Some(rows.first().copied()) });
        }
    }
    for (key, ops) in &keys {
        assert!(ops.len() <= 64, "{} operations on key {key} are too many to try", ops.len());
        if !linearizable(ops, 0, None, &mut HashMap::new()) {
            return Truth::Broken(format!("key {key} is no register"));
        }
    }
    Truth::Legal
}

/// An operation on one key.
struct Op {
    began: u64,
    ended: u64,
    must: bool,
    write: Option<Version>,
    read: Option<Option<Version>>,
}

fn linearizable(
    ops: &[Op],
    done: u64,
    value: Option<Version>,
    known: &mut HashMap<(u64, Option<Version>), bool>,
) -> bool {
    if let Some(known) = known.get(&(done, value)) {
        return *known;
    }
    let open = |at: usize| done & (1 << at) == 0;
    let first_end = (0..ops.len()).filter(|at| open(*at)).map(|at| ops[at].ended).min().unwrap_or(u64::MAX);
    let all_done = (0..ops.len()).all(|at| !open(at) || !ops[at].must);
    let result = all_done
        || (0..ops.len()).any(|at| {
            let op = &ops[at];
            let next = op.write.or(value);
            open(at)
                && op.began <= first_end
                && op.read.is_none_or(|read| read == value)
                && linearizable(ops, done | 1 << at, next, known)
        });
    known.insert((done, value), result);
    result
}

/// Changes answers and final readings.
fn change(mutation: Mutation, seen: &mut Observation, random: &mut Random) -> bool {
    match mutation {
        Mutation::Forge => forge_answer(seen, random).is_some(),
        Mutation::RollBack => roll_back(seen, random).is_some(),
        Mutation::OneReading => {
            let Some(one) = pick(random, &seen.keys) else { return false };
            let mut alone = seen.clone();
            let kind = [Mutation::DropRow, Mutation::DoubleRow, Mutation::SwapRows, Mutation::ForgeRow]
                [random.below(4) as usize];
            let changed = rows(kind, &mut alone, random).is_some();
            seen.keys[one] = alone.keys[one].clone();
            changed
        }
        _ => rows(mutation, seen, random).is_some(),
    }
}

fn forge_answer(seen: &mut Observation, random: &mut Random) -> Option<()> {
    let written: Vec<(u64, Version)> = written(seen)
        .into_iter()
        .flat_map(|(key, all)| all.into_iter().map(move |(_, v)| (key, v)))
        .collect();
    let reads: Vec<usize> = (0..seen.history.entries.len())
        .filter(|at| matches!(seen.history.entries[*at].answer, Returned::Value(_)))
        .collect();
    let entry = &mut seen.history.entries[reads[pick(random, &reads)?]];
    let op::Op::Read { record: key, .. } = entry.op else { return None };
    let of_key: Vec<Version> = written.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v).collect();
    entry.answer = Returned::Value(match random.below(4) {
        0 => None,
        1 => Some(written[pick(random, &written)?].1),
        2 => Some(Version { key_sequence: random.below(4), payload: random.bits() }),
        _ => Some(of_key[pick(random, &of_key)?]),
    });
    Some(())
}

/// Takes back what the last writes did that were acknowledged, in all readings.
fn roll_back(seen: &mut Observation, random: &mut Random) -> Option<()> {
    let mut done: Vec<(u64, u64, Version)> = written(seen)
        .into_iter()
        .flat_map(|(key, all)| all.into_iter().map(move |(entry, version)| (entry, key, version)))
        .filter_map(|(entry, key, version)| Some((entry.acknowledged()?.0, key, version)))
        .collect();
    done.sort_unstable();
    let last = done.split_off(done.len().checked_sub(1 + random.below(5) as usize)?);
    for scan in &mut seen.keys {
        for (_, key, version) in last.iter().rev() {
            let before = done.iter().rev().find(|(_, k, _)| k == key).map(|(.., version)| *version);
            match before {
                Some(before) => {
                    scan.rows
                        .iter_mut()
                        .filter(|row| **row == (*key, *version))
                        .for_each(|row| row.1 = before);
                }
                None => scan.rows.retain(|row| *row != (*key, *version)),
            }
        }
    }
    Some(())
}

/// Changes rows of all readings in the same way.
fn rows(mutation: Mutation, seen: &mut Observation, random: &mut Random) -> Option<()> {
    let here = last_reading(seen).rows.clone();
    let (key, version) = here[pick(random, &here)?];
    let other = pick_two(random, &here).map(|(a, b)| [here[a], here[b]]);
    let [kind, bits] = [random.below(4), random.bits()];
    let older = Version::of(key, version.key_sequence.saturating_sub(1));
    let older = written(seen)
        .remove(&key)
        .and_then(|all| all.into_iter().map(|(_, v)| v).find(|v| v.key_sequence + 1 == version.key_sequence))
        .unwrap_or(older);
    for scan in &mut seen.keys {
        match mutation {
            Mutation::DropRow => scan.rows.retain(|row| row.0 != key),
            Mutation::DoubleRow => scan.rows.push((key, version)),
            Mutation::SwapRows => {
                let [a, b] = other?;
                for row in &mut scan.rows {
                    *row = if row.0 == a.0 {
                        (a.0, b.1)
                    } else if row.0 == b.0 {
                        (b.0, a.1)
                    } else {
                        *row
                    };
                }
            }
            _ => {
                let forged = match kind {
                    0 => (key, Version { payload: bits, ..version }),
                    1 => (key, Version { key_sequence: version.key_sequence + 1, ..version }),
                    2 => (key, older),
                    _ => (bits, version),
                };
                if kind < 3 {
                    scan.rows.retain(|row| row.0 != key);
                }
                scan.rows.push(forged);
            }
        }
    }
    Some(())
}

fn why_the_ledger(mutation: Mutation, change: &Change) -> &'static str {
    let Some(before) = &change.before else {
        return match mutation {
            Mutation::OneReading => "a replica's first reading: it may catch up until the last one",
            _ => "what is found now was sent too and never answered, so either may be there",
        };
    };
    match (before.op.kind(), mutation) {
        (OpKind::Read, _) => "reads are the register's matter, not the ledger's",
        (_, Mutation::Reorder) => "writes of different keys: no order between keys is promised",
        (_, Mutation::Swap)
            if change.seen[0].history.done() == change.seen[1].history.done()
                && Some(before.outcome) == change.after.as_ref().map(|after| after.outcome) =>
        {
            "both had the same result"
        }
        _ if !before.is_done() => {
            "it was refused or never answered, and not found: it may as well be another result"
        }
        _ if change.after.as_ref().is_some_and(|after| matches!(after.outcome, Outcome::Unknown(_))) => {
            "it says less: without an answer, either may be found"
        }
        _ => "a later write of the same key is found, which hides it",
    }
}

fn why_the_register(mutation: Mutation, change: &Change) -> &'static str {
    let Some(before) = &change.before else {
        return match mutation {
            Mutation::OneReading => "a replica is no part of the register: the ledger compares replicas",
            _ => "a key that no client named, or one whose writes were never answered",
        };
    };
    let after = change.after.as_ref();
    match (before.op.kind(), mutation) {
        (_, Mutation::Reorder | Mutation::Swap) => {
            "the operations overlap others, or had the same result: another order explains them"
        }
        (OpKind::Read, Mutation::Double) => "nothing was written in between, so it is read again",
        (OpKind::Read, _) if after.is_none_or(|after| !matches!(after.answer, Returned::Value(_))) => {
            "a read less says less"
        }
        (OpKind::Read, _) => "it overlaps the write of what it reads now",
        _ if after.is_some_and(|after| matches!(after.outcome, Outcome::Unknown(_))) => {
            "it says less: without an answer, it may have happened"
        }
        _ => "a write that nobody read and that another one hides, or that overlaps who read before it",
    }
}
