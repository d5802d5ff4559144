//! Mutants of transactions over lists.

use super::{Change, Mutation, Trial, Truth, pick, pick_two};
use std::collections::{BTreeMap, BTreeSet};
use tipover_core::check::guilty::{Extent, Work};
use tipover_core::check::{Checker, Entry, Isolation, ListScan, Model, Observation, Returned, Source};
use tipover_core::op::{Outcome, Step};
use tipover_core::workload::Random;

/// What mutants claim, in turn.
const CLAIMS: [Model; 4] =
    [Model::StrictSerializable, Model::Serializable, Model::SnapshotIsolation, Model::ReadCommitted];

pub fn isolation() -> Trial {
    let of = |end_ms, faults_ms| Extent { clients: 3, keys: 2, end_ms, faults_ms };
    Trial {
        name: "isolation",
        work: Work::Lists,
        extents: vec![of(7, vec![]), of(9, vec![]), of(10, vec![5])],
        checkers: CLAIMS
            .iter()
            .map(|claimed| Box::new(Isolation { claimed: *claimed }) as Box<dyn Checker>)
            .collect(),
        truth: |claim, seen| truth(CLAIMS[claim], seen),
        change,
        why,
    }
}

fn last_reading(seen: &Observation) -> &ListScan {
    let survivors = seen.lists.iter().filter(|scan| scan.source == Source::Survivors);
    survivors.max_by_key(|scan| scan.pass).expect("the survivors were read")
}

fn steps(entry: &Entry) -> &[Step] {
    entry.op.steps()
}

/// A transaction that happened, with what it read before its own appends.
#[derive(Debug, Default)]
struct Happened {
    began: u64,
    ended: u64,
    appends: Vec<(u64, u64)>,
    /// List, how many values of it were there, whether its own appends stood behind them.
    reads: Vec<(u64, usize)>,
    /// Whether every read saw the own appends before it, and the same as the reads before.
    is_consistent: bool,
}

/// By trying everything: the final reading shows the lists as they are. Is there an order of the transactions
/// that were acknowledged, and of those without an answer of which something is there, by which the claimed
/// model makes these lists and explains every read?
fn truth(claimed: Model, seen: &Observation) -> Truth {
    let last = last_reading(seen);
    let lists: BTreeMap<u64, &Vec<u64>> = last.lists.iter().map(|(key, list)| (*key, list)).collect();
    if lists.len() != last.lists.len() {
        return Truth::Broken("a list is there twice".into());
    }
    let (mut happened, mut appended) = (Vec::new(), BTreeMap::new());
    let mut open = None;
    for entry in &seen.history.entries {
        for step in steps(entry) {
            if let Step::Append { key, value } = step
                && appended.insert((*key, *value), entry).is_some()
            {
                open = Some(format!("{value} is appended to {key} twice"));
            }
        }
    }
    if let Some(open) = open {
        return Truth::Open(open);
    }
    for (key, list) in &lists {
        let set: BTreeSet<&u64> = list.iter().collect();
        let stranger = list.iter().find(|value| {
            appended.get(&(*key, **value)).is_none_or(|entry| matches!(entry.outcome, Outcome::Refused(_)))
        });
        if set.len() != list.len() || stranger.is_some() {
            return Truth::Broken(format!("list {key} is {list:?}"));
        }
    }
    for entry in &seen.history.entries {
        let appends: Vec<(u64, u64)> = steps(entry).iter().filter_map(append).collect();
        let there = |(key, value): &(u64, u64)| lists.get(key).is_some_and(|list| list.contains(value));
        let found = appends.iter().filter(|append| there(append)).count();
        let must = entry.is_done();
        if (must || found > 0) && appends.iter().any(|(key, _)| !lists.contains_key(key)) {
            return Truth::Open(format!("{} appended to a list that was not read", entry.name()));
        }
        if matches!(entry.outcome, Outcome::Refused(_)) || (!must && found == 0) {
            continue;
        }
        if found < appends.len() {
            return Truth::Broken(format!("{} is there by half, or not at all", entry.name()));
        }
        match transaction(entry, appends, &lists, claimed) {
            Ok(one) => happened.push(one),
            Err(truth) => return truth,
        }
    }
    if !is_possible(claimed, &happened, &lists) {
        return Truth::Broken(format!("no order is {claimed:?}"));
    }
    let sorted = |scan: &ListScan| scan.lists.iter().cloned().collect::<BTreeMap<_, _>>();
    let differs = |scan: &&ListScan| {
        (scan.source == Source::Survivors || scan.pass == last.pass) && sorted(scan) != sorted(last)
    };
    match seen.lists.iter().find(differs) {
        Some(scan) => Truth::Open(format!("reading {} of {:?} differs", scan.pass, scan.source)),
        None => Truth::Legal,
    }
}

fn append(step: &Step) -> Option<(u64, u64)> {
    match step {
        Step::Append { key, value } => Some((*key, *value)),
        Step::Read { .. } => None,
    }
}

fn transaction(
    entry: &Entry,
    appends: Vec<(u64, u64)>,
    lists: &BTreeMap<u64, &Vec<u64>>,
    claimed: Model,
) -> Result<Happened, Truth> {
    let broken = |wrong: String| Truth::Broken(format!("{}: {wrong}", entry.name()));
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    for (key, value) in &appends {
        let at = lists[key].iter().position(|known| known == value);
        if at.is_some_and(|at| last.insert(*key, at).is_some_and(|before| before > at)) {
            return Err(broken(format!("it appended {value} last, and that stands before its others")));
        }
    }
    let mut one = Happened { began: entry.began.0, ended: u64::MAX, appends, ..Happened::default() };
    one.is_consistent = true;
    let answers: &[Option<Vec<u64>>] = match &entry.answer {
        Returned::Lists(answers) if entry.is_done() => answers,
        _ => &[],
    };
    if entry.is_done() {
        one.ended = entry.ended.map_or(u64::MAX, |at| at.0);
    }
    let mut own: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut before: BTreeMap<u64, usize> = BTreeMap::new();
    for (step, answer) in steps(entry).iter().zip(answers) {
        let key = match step {
            Step::Append { key, value } => {
                own.entry(*key).or_default().push(*value);
                continue;
            }
            Step::Read { key } => *key,
        };
        let Some(list) = answer else { continue };
        let mine = own.get(&key).map_or(&[][..], Vec::as_slice);
        let others = match list.strip_suffix(mine) {
            Some(others) => others,
            None => {
                one.is_consistent = false;
                list
            }
        };
        let Some(whole) = lists.get(&key) else {
            // Of a list that nobody read at the end, only that it was empty is no matter.
            match list.is_empty() {
                true => continue,
                false => return Err(Truth::Open(format!("list {key} was read by clients only"))),
            }
        };
        if !whole.starts_with(others) {
            return Err(broken(format!("it read {others:?} of {whole:?}")));
        }
        if list.iter().collect::<BTreeSet<_>>().len() < list.len() {
            return Err(broken(format!("it read {list:?}")));
        }
        one.is_consistent &= before.insert(key, others.len()).is_none_or(|known| known == others.len());
        one.reads.push((key, others.len()));
    }
    // Read committed allows to see two states, and not the own appends; nothing above it does.
    if !one.is_consistent && claimed > Model::ReadCommitted {
        return Err(broken("it contradicts itself".into()));
    }
    Ok(one)
}

/// Who appended the values of each list, in its order.
fn writers(happened: &[Happened], lists: &BTreeMap<u64, &Vec<u64>>) -> BTreeMap<u64, Vec<usize>> {
    let whose = |key: u64, value: u64| happened.iter().position(|one| one.appends.contains(&(key, value)));
    let of = |(key, list): (&u64, &&Vec<u64>)| {
        (*key, list.iter().filter_map(|value| whose(*key, *value)).collect())
    };
    lists.iter().map(of).collect()
}

fn is_possible(claimed: Model, happened: &[Happened], lists: &BTreeMap<u64, &Vec<u64>>) -> bool {
    assert!(happened.len() <= 30, "{} transactions are too many to try", happened.len());
    let writers = writers(happened, lists);
    match claimed {
        Model::ReadCommitted => {
            half_way(happened, &writers).is_none() && committed(happened, &writers, 0, &mut BTreeSet::new())
        }
        Model::SnapshotIsolation => {
            let update: Vec<usize> =
                (0..happened.len()).filter(|at| !happened[*at].appends.is_empty()).collect();
            snapshots(happened, &writers, &update, &mut Vec::new())
        }
        _ => serial(claimed, happened, &writers, 0, &mut BTreeSet::new()),
    }
}

/// A read that ends between two appends of one transaction.
fn half_way(happened: &[Happened], writers: &BTreeMap<u64, Vec<usize>>) -> Option<usize> {
    (0..happened.len()).find(|reader| {
        happened[*reader].reads.iter().any(|(key, length)| {
            let all = &writers[key];
            let last = length.checked_sub(1).map(|at| all[at]).filter(|writer| writer != reader);
            last.is_some_and(|writer| all[*length..].contains(&writer))
        })
    })
}

/// How many values of each list are there when these have happened; `None` if the final order forbids it.
fn state(writers: &BTreeMap<u64, Vec<usize>>, done: u32) -> Option<BTreeMap<u64, usize>> {
    let length = |(key, all): (&u64, &Vec<usize>)| {
        let here = all.iter().take_while(|writer| done & (1 << **writer) != 0).count();
        let any = all.iter().filter(|writer| done & (1 << **writer) != 0).count();
        (here == any).then_some((*key, here))
    };
    writers.iter().map(length).collect()
}

/// One after the other, each on the state that those before it left; strictly: none before one that had ended
/// when it began.
fn serial(
    claimed: Model,
    happened: &[Happened],
    writers: &BTreeMap<u64, Vec<usize>>,
    done: u32,
    failed: &mut BTreeSet<u32>,
) -> bool {
    if done.count_ones() as usize == happened.len() {
        return true;
    }
    if failed.contains(&done) {
        return false;
    }
    let now = state(writers, done);
    let open = |at: &usize| done & (1 << at) == 0;
    let first_end = (0..happened.len()).filter(open).map(|at| happened[at].ended).min().unwrap_or(u64::MAX);
    let goes_on = now.is_some_and(|now| {
        (0..happened.len()).filter(open).any(|at| {
            let one = &happened[at];
            (claimed != Model::StrictSerializable || one.began <= first_end)
                && one.reads.iter().all(|(key, length)| now.get(key) == Some(length))
                && serial(claimed, happened, writers, done | 1 << at, failed)
        })
    });
    if !goes_on {
        failed.insert(done);
    }
    goes_on
}

/// Those that append commit in some order, each on lists that nobody changed since its snapshot, and what it
/// read is in that; those that only read find theirs anywhere.
fn snapshots(
    happened: &[Happened],
    writers: &BTreeMap<u64, Vec<usize>>,
    update: &[usize],
    order: &mut Vec<usize>,
) -> bool {
    let mask = |order: &[usize]| order.iter().fold(0u32, |mask, at| mask | 1 << at);
    let states: Option<Vec<BTreeMap<u64, usize>>> =
        (0..=order.len()).map(|n| state(writers, mask(&order[..n]))).collect();
    let Some(states) = states else { return false };
    let sees = |at: usize, state: &BTreeMap<u64, usize>| {
        happened[at].reads.iter().all(|(key, length)| state.get(key) == Some(length))
    };
    if order.len() == update.len() {
        let readers = (0..happened.len()).filter(|at| happened[*at].appends.is_empty());
        return readers.into_iter().all(|at| states.iter().any(|state| sees(at, state)));
    }
    let now = &states[states.len() - 1];
    for at in update {
        let untouched = |state: &BTreeMap<u64, usize>| {
            happened[*at].appends.iter().all(|(key, _)| state.get(key) == now.get(key))
        };
        if order.contains(at) || !states.iter().any(|state| sees(*at, state) && untouched(state)) {
            continue;
        }
        order.push(*at);
        let goes_on = snapshots(happened, writers, update, order);
        order.pop();
        if goes_on {
            return true;
        }
    }
    false
}

/// One after the other, each after all of which it read something, and after all whose values stand before
/// its own.
fn committed(
    happened: &[Happened],
    writers: &BTreeMap<u64, Vec<usize>>,
    done: u32,
    failed: &mut BTreeSet<u32>,
) -> bool {
    if done.count_ones() as usize == happened.len() {
        return true;
    }
    if !failed.insert(done) {
        return false;
    }
    let is_done = |at: usize| done & (1 << at) != 0;
    (0..happened.len()).filter(|at| !is_done(*at)).any(|at| {
        let read = happened[at].reads.iter().all(|(key, length)| {
            writers[key][..*length].iter().all(|writer| *writer == at || is_done(*writer))
        });
        let wrote = writers.values().all(|all| {
            let last = all.iter().rposition(|writer| *writer == at);
            last.is_none_or(|last| all[..last].iter().all(|writer| *writer == at || is_done(*writer)))
        });
        read && wrote && committed(happened, writers, done | 1 << at, failed)
    })
}

fn change(mutation: Mutation, seen: &mut Observation, random: &mut Random) -> bool {
    match mutation {
        Mutation::Forge => forge_answer(seen, random).is_some(),
        Mutation::RollBack => roll_back(seen, random).is_some(),
        Mutation::OneReading => {
            let Some(one) = pick(random, &seen.lists) else { return false };
            let mut alone = seen.clone();
            let kind = [Mutation::DropRow, Mutation::DoubleRow, Mutation::SwapRows, Mutation::ForgeRow]
                [random.below(4) as usize];
            let changed = rows(kind, &mut alone, random).is_some();
            seen.lists[one] = alone.lists[one].clone();
            changed
        }
        _ => rows(mutation, seen, random).is_some(),
    }
}

fn forge_answer(seen: &mut Observation, random: &mut Random) -> Option<()> {
    let all: Vec<u64> =
        seen.history.entries.iter().flat_map(steps).filter_map(append).map(|(_, value)| value).collect();
    let reads: Vec<(usize, usize)> = (0..seen.history.entries.len())
        .flat_map(|at| match &seen.history.entries[at].answer {
            Returned::Lists(lists) => {
                (0..lists.len()).filter(|n| lists[*n].is_some()).map(|n| (at, n)).collect()
            }
            _ => vec![],
        })
        .collect();
    let (at, n) = reads[pick(random, &reads)?];
    let Returned::Lists(lists) = &mut seen.history.entries[at].answer else { return None };
    let list = lists[n].as_mut()?;
    forge(list, random.below(7), random, &all)
}

/// Changes one list.
fn forge(list: &mut Vec<u64>, kind: u64, random: &mut Random, all: &[u64]) -> Option<()> {
    match kind {
        0 => drop(list.pop()?),
        1 => list.clear(),
        2 => list.push(all[pick(random, all)?]),
        3 => list.push(1_000_000 + random.below(1_000)),
        4 => {
            let (a, b) = pick_two(random, list)?;
            list.swap(a, b);
        }
        5 => {
            let again = list[pick(random, list)?];
            list.push(again);
        }
        _ => drop(list.remove(pick(random, list)?)),
    }
    Some(())
}

/// Takes back what the last transactions appended that were acknowledged, in all readings.
fn roll_back(seen: &mut Observation, random: &mut Random) -> Option<()> {
    let of = |entry: &Entry| {
        let appends: Vec<(u64, u64)> = steps(entry).iter().filter_map(append).collect();
        Some((entry.acknowledged()?, appends)).filter(|(_, appends)| !appends.is_empty())
    };
    let mut done: Vec<_> = seen.history.entries.iter().filter_map(of).collect();
    done.sort_unstable();
    let last = done.split_off(done.len().checked_sub(1 + random.below(5) as usize)?);
    for (key, value) in last.into_iter().flat_map(|(_, appends)| appends) {
        for (_, list) in seen.lists.iter_mut().flat_map(|scan| &mut scan.lists).filter(|(k, _)| *k == key) {
            list.retain(|known| *known != value);
        }
    }
    Some(())
}

/// Changes lists of all readings in the same way.
fn rows(mutation: Mutation, seen: &mut Observation, random: &mut Random) -> Option<()> {
    let all: Vec<u64> =
        seen.history.entries.iter().flat_map(steps).filter_map(append).map(|(_, value)| value).collect();
    let mut lists = last_reading(seen).lists.clone();
    let whole = random.below(3) == 0;
    let at = pick(random, &lists)?;
    match (mutation, whole) {
        (Mutation::DropRow, true) => drop(lists.remove(at)),
        (Mutation::DropRow, false) => forge(&mut lists[at].1, 6, random, &all)?,
        (Mutation::DoubleRow, true) => lists.push(lists[at].clone()),
        (Mutation::DoubleRow, false) => forge(&mut lists[at].1, 5, random, &all)?,
        (Mutation::SwapRows, true) => {
            let (a, b) = pick_two(random, &lists)?;
            let (first, second) = (lists[a].1.clone(), lists[b].1.clone());
            (lists[a].1, lists[b].1) = (second, first);
        }
        (Mutation::SwapRows, false) => forge(&mut lists[at].1, 4, random, &all)?,
        _ => forge(&mut lists[at].1, 2 + u64::from(whole), random, &all)?,
    }
    seen.lists.iter_mut().for_each(|scan| scan.lists.clone_from(&lists));
    Some(())
}

fn why(mutation: Mutation, change: &Change) -> &'static str {
    let Some(before) = &change.before else {
        return match mutation {
            Mutation::OneReading => "a replica's first reading: it may catch up until the last one",
            _ => "appends without an answer that nobody saw, or that may stand in either order",
        };
    };
    let appends = steps(before).iter().any(|step| append(step).is_some());
    match mutation {
        Mutation::Drop if !appends => "a read less says less",
        _ if !before.is_done() && mutation != Mutation::Reorder => {
            "it was refused or never answered, and not found: it may as well be another result"
        }
        _ if change.after.as_ref().is_some_and(|after| !after.is_done()) => "it says less",
        Mutation::Double => "it only read, and reads the same again",
        Mutation::Reorder => "another order explains it, which the claimed model allows",
        Mutation::Swap => "both had the same result, or another order explains it",
        Mutation::Forge => "an older or another state that the claimed model allows to be read",
        _ => "another result that fits what is found",
    }
}
