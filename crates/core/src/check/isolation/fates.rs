//! What became of every append, by the laboratory's final reading. Whatever model is claimed: what was
//! acknowledged is there, once; what was refused or never sent is not; and of a transaction without an answer
//! all is there, or nothing.

use crate::check::history::{Entry, History, Returned};
use crate::check::ledger::{AFTER_THE_END, seconds};
use crate::check::reading::{last_of_replicas, of_survivors};
use crate::check::{Finding, ListScan, Verdict};
use crate::op::{Outcome, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How often each value stands in each list of one reading.
type Found = HashMap<u64, HashMap<u64, u64>>;

/// All appends together.
pub struct Fates {
    /// Transactions of clients that appended something and were acknowledged.
    pub acknowledged: u64,
    /// Whether the lists were read after the run.
    was_read: bool,
}

/// What is wrong, as it stands in the summary.
const WRONG: [&str; 4] = ["LOST", "DUPLICATE", "PHANTOM", "TORN"];

impl Fates {
    /// "; 3 LOST", or that nobody knows.
    pub fn summary(&self, finding: &Finding) -> String {
        if !self.was_read {
            return "; the lists were not read after the run, so what was lost is not known".into();
        }
        let wrong = WRONG.iter().filter(|kind| finding.counted(kind) > 0);
        wrong.map(|kind| format!("; {} {kind}", finding.counted(kind))).collect()
    }
}

fn appends(entry: &Entry) -> Vec<(u64, u64)> {
    let append = |step: &Step| match step {
        Step::Append { key, value } => Some((*key, *value)),
        Step::Read { .. } => None,
    };
    entry.op.steps().iter().filter_map(append).collect()
}

fn found_in(scan: &ListScan) -> Found {
    let mut found = Found::new();
    for (key, list) in &scan.lists {
        let here = found.entry(*key).or_default();
        list.iter().for_each(|value| *here.entry(*value).or_default() += 1);
    }
    found
}

/// List and value of everything that any client was told.
fn read_by_clients(history: &History) -> BTreeSet<(u64, u64)> {
    let mut read = BTreeSet::new();
    for entry in &history.entries {
        let Returned::Lists(lists) = &entry.answer else { continue };
        for (step, list) in entry.op.steps().iter().zip(lists).filter(|_| entry.is_done()) {
            if let (Step::Read { key }, Some(list)) = (step, list) {
                read.extend(list.iter().map(|value| (*key, *value)));
            }
        }
    }
    read
}

/// Gives every append its fate by the last reading of the survivors.
pub fn settle(history: &History, scans: &[ListScan], finding: &mut Finding) -> Fates {
    let survivors = of_survivors(scans);
    let transactions: Vec<(&Entry, Vec<(u64, u64)>)> = history
        .entries
        .iter()
        .map(|entry| (entry, appends(entry)))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    let acknowledged = transactions.iter().filter(|(entry, _)| entry.is_done()).count() as u64;
    let fates = Fates { acknowledged, was_read: !survivors.is_empty() };
    let Some((last, before)) = survivors.split_last() else {
        if acknowledged > 0 {
            finding.at_least(Verdict::Unknown);
        }
        return fates;
    };
    let found = [found_in(last), before.last().map_or_else(Found::new, |scan| found_in(scan))];
    let read = read_by_clients(history);
    for (entry, appends) in &transactions {
        of_one(entry, appends, found.each_ref(), &read, finding);
    }
    let known: BTreeSet<(u64, u64)> = transactions.iter().flat_map(|(_, appends)| appends).copied().collect();
    for (key, value) in last.lists.iter().flat_map(|(key, list)| list.iter().map(|value| (*key, *value))) {
        match known.contains(&(key, value)) {
            true => {}
            false if history.is_cut_short => finding.count(AFTER_THE_END),
            false => {
                finding.accuse("PHANTOM", || format!("{value} stands in list {key}, and nobody appended it"))
            }
        }
    }
    let mut twice = BTreeMap::new();
    last.lists.iter().for_each(|(key, _)| *twice.entry(*key).or_insert(0u64) += 1);
    for (key, rows) in twice.into_iter().filter(|(_, rows)| *rows > 1) {
        finding.accuse("DUPLICATE", || format!("list {key} is there {rows} times"));
    }
    others(scans, last, before, finding);
    fates
}

/// The fate of one transaction's appends. One without an answer happened as a whole, if anything of it was
/// seen: by a client that read it, or now.
fn of_one(
    entry: &Entry,
    appends: &[(u64, u64)],
    [found, earlier]: [&Found; 2],
    read: &BTreeSet<(u64, u64)>,
    finding: &mut Finding,
) {
    let times =
        |found: &Found, (key, value): &(u64, u64)| Some(found.get(key)?.get(value).copied().unwrap_or(0));
    let is_there = |found: &Found| appends.iter().any(|append| times(found, append) > Some(0));
    let was_read = appends.iter().any(|append| read.contains(append));
    let is_unknown = matches!(entry.outcome, Outcome::Unknown(_));
    let outcome = match entry.outcome {
        Outcome::Done => "acknowledged".into(),
        Outcome::Refused(failure) => format!("refused ({failure:?})"),
        Outcome::Unknown(failure) if was_read => format!("unanswered ({failure:?}), and read by a client"),
        Outcome::Unknown(failure) => format!("unanswered ({failure:?})"),
    };
    let when = entry.ended.map(|at| format!(" at {}", seconds(at))).unwrap_or_default();
    for append in appends {
        let tell = |is: &str| {
            let (name, (key, value)) = (entry.name(), append);
            format!("{name} appended {value} to list {key}, {outcome}{when}; {is} in the final reading")
        };
        let must = entry.is_done() || (is_unknown && (was_read || is_there(found)));
        match (times(found, append), entry.outcome) {
            (None, _) if must => {
                finding.at_least(Verdict::Unknown);
                finding.count("not read at the end");
                finding.show("not read", || tell("the list is not"));
            }
            (None, _) => {}
            (Some(0), Outcome::Refused(_)) => finding.count("refused"),
            (Some(_), Outcome::Refused(_)) => finding.accuse("PHANTOM", || tell("it is")),
            (Some(2..), _) => finding.accuse("DUPLICATE", || tell("it is more than once")),
            (Some(0), Outcome::Done) => finding.accuse("LOST", || tell("it is not")),
            (Some(_), Outcome::Done) => finding.count("durable"),
            (Some(0), _) if was_read => finding.accuse("LOST", || tell("it is not")),
            // It may just have arrived while the lists were read one after the other.
            (Some(0), _) if must && is_there(earlier) => finding.accuse("TORN", || tell("another part is")),
            (Some(0), _) if must => {
                finding.count("half there in one reading");
                finding.show("half there", || tell("another part is"));
                finding.at_least(Verdict::Unknown);
            }
            (Some(0), _) => finding.count("not applied"),
            (Some(_), _) => finding.count("applied"),
        }
    }
}

/// Readings that differ from the last one: what comes and goes, and replicas that do not follow.
fn others(scans: &[ListScan], last: &ListScan, before: &[&ListScan], finding: &mut Finding) {
    let ordered = |scan: &ListScan| scan.lists.iter().cloned().collect::<BTreeMap<_, _>>();
    let expected = ordered(last);
    let before = before.iter().map(|scan| (*scan, "readings that differ"));
    let replicas = last_of_replicas(scans).into_values().map(|scan| (scan, "replicas that differ"));
    for (scan, kind) in before.chain(replicas).filter(|(scan, _)| ordered(scan) != expected) {
        finding.count(kind);
        finding.at_least(Verdict::Unknown);
        finding.show(kind, || format!("reading {} of {:?}", scan.pass, scan.source));
    }
}
