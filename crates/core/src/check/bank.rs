//! The bank: money neither appears nor vanishes, and every acknowledged transfer happened exactly once.
//!
//! During the run every snapshot of all balances must add up. At the end each account is replayed: its
//! balance must be what it began with plus all transfers that are found, every acknowledged transfer must be
//! found once, every unknown one at most once, and no refused one at all. The total alone, which is what the
//! usual bank test looks at, is blind to a lost, doubled or rolled-back transfer, because each adds up to
//! zero; what it would have said is printed beside the verdict.

use super::history::{Entry, History, Returned};
use super::ledger::{AFTER_THE_END, seconds};
use super::loss::{Exposure, Losses};
use super::reading::{last_of_replicas, of_survivors};
use super::{AtRisk, BankScan, Checker, Finding, Observation, TransferRow, Verdict};
use crate::op::{Op, Outcome};
use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is wrong besides losses, as it stands in the summary.
const WRONG: [&str; 11] = [
    "DOUBLED",
    "PHANTOM",
    "CORRUPT",
    "accounts off",
    "wrong total",
    "wrong total at the end",
    "negative",
    "null",
    "missing account",
    "doubled account",
    "unexpected account",
];

/// The bank as it was before the first transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Bank {
    initial: Vec<(u64, i64)>,
    /// Whether an account may owe money.
    pub may_be_negative: bool,
    /// What counts as a test, and what was promised.
    pub exposure: Exposure,
}

/// What the snapshots during the run showed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshots {
    /// How many were read.
    pub read: u64,
    /// How many did not add up.
    pub wrong_total: u64,
    /// The lowest total.
    pub lowest: Option<i128>,
    /// The highest total.
    pub highest: Option<i128>,
}

/// All that the bank's books say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// During the run.
    pub snapshots: Snapshots,
    /// Lost transfers by fault.
    pub losses: Losses,
    /// The total at the end minus the total at the beginning: all that the usual bank test looks at.
    pub total_off: Option<i128>,
    /// Verdict, counts, evidence.
    pub finding: Finding,
}

/// Charges what is lost to the faults, and writes the summary of a book that moves money: what was lost, what
/// else is `wrong`, and what the total says.
pub(super) fn conclude(
    seen: &Observation,
    exposure: &Exposure,
    acknowledged: Vec<Tick>,
    lost: &[&Entry],
    finding: &mut Finding,
    (wrong, total): (&[&str], &str),
) -> Losses {
    let nothing_promised = acknowledged.is_empty();
    let losses = exposure.charge(seen, acknowledged, lost);
    if nothing_promised || (!seen.injections.is_empty() && losses.chance.faults == 0) {
        finding.at_least(Verdict::NoEvidence);
    }
    finding.notes.extend(AtRisk::summary(&losses.at_risk()));
    let wrong = wrong.iter().filter(|kind| finding.counted(kind) > 0);
    let wrong: String = wrong.map(|kind| format!("; {} {kind}", finding.counted(kind))).collect();
    let losses_told = match nothing_promised {
        true => "no transfer was acknowledged, so nothing was promised".into(),
        false => exposure.summary(&losses, "transfers"),
    };
    finding.summary = format!("{losses_told}{wrong}; {total}");
    losses
}

impl Bank {
    /// A bank of accounts with their first balances.
    pub fn new(initial: impl IntoIterator<Item = (u64, i64)>) -> Self {
        let mut initial: Vec<(u64, i64)> = initial.into_iter().collect();
        initial.sort_unstable();
        Bank { initial, may_be_negative: false, exposure: Exposure::default() }
    }

    /// All money.
    pub fn total(&self) -> i128 {
        self.initial.iter().map(|(_, balance)| i128::from(*balance)).sum()
    }

    /// Goes through the books.
    pub fn settle(&self, seen: &Observation) -> Books {
        let mut finding = Finding::new(self.name());
        let snapshots = self.snapshots(seen, &mut finding);
        let scans = of_survivors(&seen.bank);
        let acknowledged: Vec<Tick> = seen
            .history
            .entries
            .iter()
            .filter(|entry| matches!(entry.op, Op::Transfer { .. }))
            .filter_map(Entry::acknowledged)
            .collect();
        let nothing_promised = acknowledged.is_empty();
        let (mut lost, mut total_off) = (vec![], None);
        match scans.last() {
            Some(scan) => {
                lost = transfers(&seen.history, scan, &mut finding);
                total_off = self.replay(scan, &seen.history.entries, &mut finding);
                other_books(&seen.bank, scan, &mut finding);
            }
            None => {
                if !nothing_promised {
                    finding.at_least(Verdict::Unknown);
                }
                finding.notes.push("the books were not read after the run".into());
            }
        }
        let total = match total_off {
            Some(0) => "the total at the end is right: a test of the total alone would see nothing".into(),
            Some(off) => format!("the total at the end is off by {off:+}: a test of the total would see it"),
            None => "the total at the end is not known".into(),
        };
        let losses = conclude(seen, &self.exposure, acknowledged, &lost, &mut finding, (&WRONG, &total));
        Books { snapshots, losses, total_off, finding }
    }

    fn snapshots(&self, seen: &Observation, finding: &mut Finding) -> Snapshots {
        let expected = self.total();
        let mut snapshots = Snapshots::default();
        let mut worst: Option<(i128, String)> = None;
        for entry in &seen.history.entries {
            let (Returned::Balances(balances), true) = (&entry.answer, entry.is_done()) else { continue };
            snapshots.read += 1;
            let when = || format!("{} at {}", entry.name(), seconds(entry.began));
            let Some(total) = self.look(balances, &when, finding) else { continue };
            snapshots.lowest = Some(snapshots.lowest.map_or(total, |lowest| lowest.min(total)));
            snapshots.highest = Some(snapshots.highest.map_or(total, |highest| highest.max(total)));
            if total != expected {
                snapshots.wrong_total += 1;
                let text = || format!("{} saw {total} instead of {expected}", when());
                if worst.as_ref().is_none_or(|(off, _)| (total - expected).abs() > *off) {
                    worst = Some(((total - expected).abs(), text()));
                }
                finding.accuse("wrong total", text);
            }
        }
        if let Some((_, text)) = worst {
            finding.show("the worst total", || text);
        }
        finding.count_many("snapshots", snapshots.read);
        snapshots
    }

    /// Looks at balances that were read together: each account must stand there exactly once, and nobody
    /// else. The total of all rows, unless one is null.
    fn look(
        &self,
        balances: &[(u64, Option<i64>)],
        when: &dyn Fn() -> String,
        finding: &mut Finding,
    ) -> Option<i128> {
        let (mut total, mut complete) = (0i128, true);
        let mut rows = vec![0u64; self.initial.len()];
        for (account, balance) in balances {
            match self.place(*account) {
                Some(place) => rows[place] += 1,
                None => finding.accuse("unexpected account", || format!("{}: account {account}", when())),
            }
            match balance {
                Some(balance) if *balance < 0 && !self.may_be_negative => {
                    finding.accuse("negative", || format!("{}: account {account} has {balance}", when()));
                }
                None => {
                    complete = false;
                    finding.accuse("null", || format!("{}: account {account} has no balance", when()));
                }
                _ => {}
            }
            total += i128::from(balance.unwrap_or(0));
        }
        for (rows, (account, _)) in rows.into_iter().zip(&self.initial) {
            match rows {
                0 => finding.accuse("missing account", || format!("{}: account {account}", when())),
                1 => {}
                _ => finding.accuse("doubled account", || format!("{}: {rows} rows of {account}", when())),
            }
        }
        complete.then_some(total)
    }

    /// Where an account stands among all, if it is one.
    fn place(&self, account: u64) -> Option<usize> {
        self.initial.binary_search_by_key(&account, |(a, _)| *a).ok()
    }

    /// Every account's balance from the transfers that are found; returns how far the total is off.
    fn replay(&self, scan: &BankScan, entries: &[Entry], finding: &mut Finding) -> Option<i128> {
        let total = self.look(&scan.balances, &|| "after the run".into(), finding);
        let mut balances: HashMap<u64, i128> =
            self.initial.iter().map(|(account, balance)| (*account, i128::from(*balance))).collect();
        for row in &scan.transfers {
            *balances.entry(row.from).or_default() -= i128::from(row.amount);
            *balances.entry(row.to).or_default() += i128::from(row.amount);
        }
        let mut off: BTreeMap<u64, (i128, i128)> = BTreeMap::new();
        for (account, found) in &scan.balances {
            let (expected, found) = (balances.get(account).copied(), found.map(i128::from));
            if let (Some(expected), Some(found)) = (expected, found)
                && expected != found
            {
                off.insert(*account, (expected, found));
            }
        }
        let explained = Explanations::new(scan, entries);
        let nobody = balances.keys().filter(|account| self.place(**account).is_none());
        for account in nobody.collect::<BTreeSet<_>>() {
            finding
                .accuse("unexpected account", || format!("a transfer is found that names account {account}"));
        }
        for (account, (expected, found)) in &off {
            finding.accuse("accounts off", || {
                let why = explained.of(*account, found - expected, &off);
                format!("account {account} has {found}, and its transfers make {expected}: {why}")
            });
        }
        let off = total.map(|total| total - self.total());
        if let Some(off) = off.filter(|off| *off != 0) {
            finding.accuse("wrong total at the end", || {
                format!("{} instead of {}: off by {off:+}", off + self.total(), self.total())
            });
        }
        off
    }
}

/// One entry per transfer: of several attempts with one id, the one that says most. An acknowledgement beats
/// an unknown answer, which beats a refusal.
fn attempts(entries: &[Entry]) -> Vec<&Entry> {
    let weight = |entry: &Entry| match entry.outcome {
        Outcome::Done => 2,
        Outcome::Unknown(_) => 1,
        Outcome::Refused(_) => 0,
    };
    let (mut kept, mut known): (Vec<&Entry>, HashMap<u64, usize>) = (Vec::new(), HashMap::new());
    for entry in entries {
        let Op::Transfer { id, .. } = entry.op else { continue };
        match known.get(&id) {
            Some(at) if weight(kept[*at]) < weight(entry) => kept[*at] = entry,
            Some(_) => {}
            None => {
                known.insert(id, kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}

/// Which transfers were acknowledged and are gone, found twice, found but refused, found changed. Returns the
/// operations that were acknowledged and lost.
fn transfers<'a>(history: &'a History, scan: &BankScan, finding: &mut Finding) -> Vec<&'a Entry> {
    let mut found: HashMap<u64, Vec<&TransferRow>> = HashMap::new();
    for row in &scan.transfers {
        found.entry(row.id).or_default().push(row);
    }
    let mut lost = Vec::new();
    for entry in attempts(&history.entries) {
        let Op::Transfer { id, from, to, amount } = entry.op else { continue };
        let rows = found.remove(&id).unwrap_or_default();
        let tell = || {
            let outcome = match entry.outcome {
                Outcome::Done => "acknowledged".into(),
                Outcome::Refused(failure) => format!("refused ({failure:?})"),
                Outcome::Unknown(failure) => format!("unanswered ({failure:?})"),
            };
            let when = entry.ended.map(|at| format!(" at {}", seconds(at))).unwrap_or_default();
            let rows: Vec<String> = rows
                .iter()
                .take(3)
                .map(|row| format!("{} from {} to {}", row.amount, row.from, row.to))
                .collect();
            let rows = if rows.is_empty() { "nothing".into() } else { rows.join(", ") };
            format!(
                "transfer {id} of {amount} from {from} to {to} ({}), {outcome}{when}; found: {rows}",
                entry.name()
            )
        };
        let asked = TransferRow { id, from, to, amount };
        match (entry.outcome, rows.len()) {
            (_, n) if n > 0 && rows.iter().any(|row| **row != asked) => finding.accuse("CORRUPT", tell),
            (Outcome::Refused(_), n) if n > 0 => finding.accuse("PHANTOM", tell),
            (_, n) if n > 1 => finding.accuse("DOUBLED", tell),
            (Outcome::Done, 1) => finding.count("durable"),
            (Outcome::Done, _) => {
                lost.push(entry);
                finding.accuse("LOST", tell);
            }
            (Outcome::Unknown(_), 1) => finding.count("applied"),
            (Outcome::Unknown(_), _) => finding.count("not applied"),
            (Outcome::Refused(_), _) => finding.count("refused"),
        }
    }
    if history.is_cut_short {
        finding.count_many(AFTER_THE_END, found.len() as u64);
        return lost;
    }
    let mut never_sent: Vec<u64> = found.into_keys().collect();
    never_sent.sort_unstable();
    for id in never_sent {
        finding.accuse("PHANTOM", || format!("transfer {id} is there, and nobody sent it"));
    }
    lost
}

/// Readings that hold other books than the last one of the survivors: what comes and goes, and replicas that
/// do not follow.
fn other_books(scans: &[BankScan], survivors: &BankScan, finding: &mut Finding) {
    let ordered = |scan: &BankScan| {
        let (mut balances, mut transfers) = (scan.balances.clone(), scan.transfers.clone());
        balances.sort_unstable();
        transfers.sort_unstable();
        (balances, transfers)
    };
    let expected = ordered(survivors);
    let before = of_survivors(scans).into_iter().map(|scan| (scan, "unstable", "readings that differ"));
    let replicas = last_of_replicas(scans).into_values();
    let replicas = replicas.map(|scan| (scan, "replica", "replicas that differ"));
    for (scan, kind, count) in before.chain(replicas).filter(|(scan, ..)| ordered(scan) != expected) {
        finding.count(count);
        finding.at_least(Verdict::Unknown);
        finding.show(kind, || {
            let (mine, theirs) = (survivors.transfers.len(), scan.transfers.len());
            let BankScan { source, pass, .. } = scan;
            format!(
                "reading {pass} of {source:?} holds other books: {theirs} transfers beside the last {mine}"
            )
        });
    }
}

/// Which single transfer would explain that an account is off.
struct Explanations {
    by_effect: HashMap<(u64, i128), (u64, bool)>,
    other: HashMap<u64, (u64, u64)>,
}

impl Explanations {
    fn new(scan: &BankScan, entries: &[Entry]) -> Self {
        let found: HashMap<u64, &TransferRow> = scan.transfers.iter().map(|row| (row.id, row)).collect();
        let mut explanations = Explanations { by_effect: HashMap::new(), other: HashMap::new() };
        for entry in entries {
            if let Op::Transfer { id, from, to, amount } = entry.op
                && !found.contains_key(&id)
            {
                explanations.add(TransferRow { id, from, to, amount }, false);
            }
        }
        for row in &scan.transfers {
            explanations.add(*row, true);
        }
        explanations
    }

    fn add(&mut self, row: TransferRow, is_found: bool) {
        let amount = i128::from(row.amount);
        self.by_effect.insert((row.from, -amount), (row.id, is_found));
        self.by_effect.insert((row.to, amount), (row.id, is_found));
        self.other.insert(row.id, (row.from, row.to));
    }

    fn of(&self, account: u64, off: i128, all: &BTreeMap<u64, (i128, i128)>) -> String {
        let torn = |id: u64| {
            let (from, to) = self.other[&id];
            let other = if account == from { to } else { from };
            if all.contains_key(&other) { "" } else { ", and the other half is right: TORN" }
        };
        // What is missing would have moved the balance the other way.
        if let Some((id, true)) = self.by_effect.get(&(account, -off)) {
            return format!("as if transfer {id}, which is found, had not moved it{}", torn(*id));
        }
        match self.by_effect.get(&(account, off)) {
            Some((id, true)) => format!("as if transfer {id} had moved it twice{}", torn(*id)),
            Some((id, false)) => {
                format!("as if transfer {id}, which is not found, had moved it{}", torn(*id))
            }
            None => format!("off by {off:+}, which no single transfer explains"),
        }
    }
}

impl Checker for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn check(&self, seen: &Observation) -> Finding {
        self.settle(seen).finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Source;
    use crate::op::Failure;

    /// Four accounts of 100; transfers as words: "1 1>2:30 ok".
    fn entry(sequence: u64, word: &str) -> Entry {
        let parts: Vec<&str> = word.split(' ').collect();
        let (from, rest) = parts[1].split_once('>').unwrap();
        let (to, amount) = rest.split_once(':').unwrap();
        let (id, from, to) = (parts[0].parse().unwrap(), from.parse().unwrap(), to.parse().unwrap());
        let outcome = match parts[2] {
            "ok" => Outcome::Done,
            "no" => Outcome::Refused(Failure::Conflict),
            _ => Outcome::Unknown(Failure::Timeout),
        };
        let op = Op::Transfer { id, from, to, amount: amount.parse().unwrap() };
        let ended = Some(Tick(sequence * 1000 + 500));
        Entry { ended, outcome, ..Entry::sent(0, sequence, op, Tick(sequence * 1000)) }
    }

    fn rows(words: &[&str]) -> Vec<TransferRow> {
        let row = |word: &&str| match entry(0, &format!("{word} ok")).op {
            Op::Transfer { id, from, to, amount } => TransferRow { id, from, to, amount },
            _ => unreachable!(),
        };
        words.iter().map(row).collect()
    }

    fn bank() -> Bank {
        Bank::new([(1, 100), (2, 100), (3, 100), (4, 100)])
    }

    fn settle(sent: &[&str], found: &[&str], balances: [i64; 4]) -> Books {
        let mut seen = Observation::default();
        seen.history.entries = sent.iter().enumerate().map(|(n, word)| entry(n as u64, word)).collect();
        let balances = (1..).zip(balances.map(Some)).collect();
        let (source, at) = (Source::Survivors, Tick(9));
        seen.bank = vec![BankScan { source, pass: 1, at, balances, transfers: rows(found) }];
        bank().settle(&seen)
    }

    #[test]
    fn honest_books_balance() {
        let books = settle(
            &["1 1>2:30 ok", "2 2>3:10 ??", "3 4>1:5 ??", "4 1>4:9 no"],
            &["1 1>2:30", "2 2>3:10"],
            [70, 120, 110, 100],
        );
        assert_eq!(books.finding.verdict, Verdict::Valid, "{:?}", books.finding);
        let counts: Vec<_> = books.finding.counts.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(counts, [("applied", 1), ("durable", 1), ("not applied", 1), ("refused", 1)]);
    }

    #[test]
    fn attempts_of_one_transfer_are_one_transfer() {
        let sent = ["1 1>2:30 ??", "1 1>2:30 ok", "2 1>2:1 no", "2 1>2:1 ??"];
        let books = settle(&sent, &["1 1>2:30"], [70, 130, 100, 100]);
        assert_eq!(books.finding.verdict, Verdict::Valid, "{:?}", books.finding);
        assert_eq!((books.finding.counted("durable"), books.finding.counted("not applied")), (1, 1));
    }

    #[test]
    fn what_the_total_cannot_see_is_convicted() {
        for (what, sent, found, balances, kind) in [
            ("lost", &["1 1>2:30 ok"][..], &[][..], [100, 100, 100, 100], "LOST"),
            ("doubled", &["1 1>2:30 ok"], &["1 1>2:30", "1 1>2:30"], [40, 160, 100, 100], "DOUBLED"),
            ("unknown doubled", &["1 1>2:30 ??"], &["1 1>2:30", "1 1>2:30"], [40, 160, 100, 100], "DOUBLED"),
            ("moved twice, one row", &["1 1>2:30 ok"], &["1 1>2:30"], [40, 160, 100, 100], "accounts off"),
            ("row without money", &["1 1>2:30 ok"], &["1 1>2:30"], [100, 100, 100, 100], "accounts off"),
            ("money without row", &["1 1>2:30 ??"], &[], [70, 130, 100, 100], "accounts off"),
            ("refused, there", &["1 1>2:30 no"], &["1 1>2:30"], [70, 130, 100, 100], "PHANTOM"),
            ("never sent", &[], &["7 1>2:30"], [70, 130, 100, 100], "PHANTOM"),
            ("changed", &["1 1>2:30 ok"], &["1 1>2:31"], [69, 131, 100, 100], "CORRUPT"),
        ] {
            let books = settle(sent, found, balances);
            assert_eq!(books.finding.verdict, Verdict::Invalid, "{what}");
            assert!(books.finding.counted(kind) > 0, "{what}: {:?}", books.finding);
            assert_eq!(books.total_off, Some(0), "{what}");
            assert!(books.finding.summary.contains("alone would see nothing"), "{what}");
        }
    }

    #[test]
    fn a_torn_transfer_is_seen_by_both_and_explained() {
        let books = settle(&["1 1>2:30 ok"], &["1 1>2:30"], [70, 100, 100, 100]);
        assert_eq!((books.finding.verdict, books.total_off), (Verdict::Invalid, Some(-30)));
        let evidence = books.finding.evidence.join("\n");
        assert!(
            evidence.contains("transfer 1, which is found, had not moved it, and the other"),
            "{evidence}"
        );
        let books = settle(&["1 1>2:30 ok"], &["1 1>2:30"], [40, 130, 100, 100]);
        assert!(books.finding.evidence[0].contains("transfer 1 had moved it twice"), "{:?}", books.finding);
    }

    #[test]
    fn snapshots_are_looked_at_while_the_bank_is_open() {
        let snapshot = |sequence, balances: Vec<(u64, Option<i64>)>| Entry {
            op: Op::ReadBalances,
            answer: Returned::Balances(balances),
            ..entry(sequence, "0 1>2:1 ok")
        };
        let all = |a, b, c, d| vec![(1, Some(a)), (2, Some(b)), (3, Some(c)), (4, Some(d))];
        let mut seen = Observation::default();
        seen.history.entries = vec![snapshot(1, all(70, 130, 100, 100)), snapshot(2, all(70, 100, 100, 100))];
        seen.history.entries.push(snapshot(3, all(0, 0, 0, 99)));
        seen.history.entries.push(snapshot(4, all(-1, 201, 100, 100)));
        seen.history.entries.push(snapshot(5, vec![(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3))]));
        seen.history.entries.push(snapshot(6, vec![(1, Some(1)), (9, Some(399))]));
        let books = bank().settle(&seen);
        assert_eq!((books.snapshots.read, books.snapshots.wrong_total), (6, 2));
        assert_eq!((books.snapshots.lowest, books.snapshots.highest), (Some(99), Some(400)));
        let kinds = [("negative", 1), ("null", 1), ("unexpected account", 1), ("missing account", 3)];
        for (kind, count) in kinds {
            assert_eq!(books.finding.counted(kind), count, "{kind}");
        }
        let worst = books.finding.evidence.iter().find(|text| text.starts_with("the worst")).unwrap();
        assert!(worst.contains("saw 99 instead of 400"), "{worst}");
        assert_eq!(books.finding.verdict, Verdict::Invalid);
        // Without the books at the end nothing is known of a transfer, and without one nothing was promised.
        seen.history.entries.truncate(1);
        assert_eq!(bank().settle(&seen).finding.verdict, Verdict::NoEvidence);
        seen.history.entries.push(entry(2, "1 1>2:30 ok"));
        assert_eq!(bank().settle(&seen).finding.verdict, Verdict::Unknown);
    }

    #[test]
    fn accounts_are_compared_as_sets_and_named() {
        let all = |rows: &[(u64, i64)]| rows.iter().map(|(a, b)| (*a, Some(*b))).collect::<Vec<_>>();
        let honest = [(1, 70), (2, 130), (3, 100), (4, 100)];
        for (rows, kinds) in [
            // One is missing and another doubled: the number of rows, and even the total, are right.
            (
                &[(1, 70), (2, 130), (3, 100), (3, 100)][..],
                &[("missing account", "account 4"), ("doubled account", "2 rows of 3")][..],
            ),
            (&honest[..3], &[("missing account", "account 4"), ("wrong total at the end", "off by -100")]),
            (&[(1, 70), (2, 130), (3, 100), (4, 100), (9, 0)], &[("unexpected account", "account 9")]),
            (
                &[(1, 70), (2, 130), (3, 100), (9, 100)],
                &[("missing account", "account 4"), ("unexpected account", "account 9")],
            ),
        ] {
            let mut seen = Observation::default();
            seen.history.entries = vec![entry(1, "1 1>2:30 ok")];
            let (source, at) = (Source::Survivors, Tick(9));
            let (balances, transfers) = (all(rows), super::tests::rows(&["1 1>2:30"]));
            seen.bank = vec![BankScan { source, pass: 1, at, balances, transfers }];
            let finding = bank().settle(&seen).finding;
            assert_eq!(finding.verdict, Verdict::Invalid, "{rows:?}");
            for (kind, words) in kinds {
                assert!(finding.counted(kind) > 0, "{rows:?}: no {kind} in {finding:?}");
                assert!(finding.evidence.iter().any(|text| text.contains(words)), "{rows:?}: {finding:?}");
            }
        }
    }

    #[test]
    fn a_second_reading_that_differs_is_not_passed_over() {
        let honest = settle(&["1 1>2:30 ok"], &["1 1>2:30"], [70, 130, 100, 100]);
        assert_eq!(honest.finding.verdict, Verdict::Valid);
        let mut seen = Observation::default();
        seen.history.entries = vec![entry(1, "1 1>2:30 ok")];
        let books = |pass, balances: [i64; 4]| BankScan {
            source: Source::Survivors,
            pass,
            at: Tick(9),
            balances: (1..).zip(balances.map(Some)).collect(),
            transfers: rows(&["1 1>2:30"]),
        };
        seen.bank = vec![books(1, [100, 100, 100, 100]), books(2, [70, 130, 100, 100])];
        let finding = bank().settle(&seen).finding;
        assert_eq!((finding.verdict, finding.counted("readings that differ")), (Verdict::Unknown, 1));
    }
}
