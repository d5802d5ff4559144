//! TPC-B: every acknowledged transaction is in the history exactly once, and accounts, tellers and branches
//! add up to it.
//!
//! A run of `tpcb-like` moves an amount on an account, on a teller and on a branch and writes a row of the
//! history, in one transaction. What operation n moves where is a function of (seed, n), so every row that is
//! found says which operations it can be of, and one that is lost has a name. At the end each account,
//! teller and branch is replayed from the rows that are found. The specification of TPC-B asks for the sums
//! alone (clause 2.3, consistency), which do not see a lost transaction: it is gone from all four.

use super::bank::{Books, conclude};
use super::history::Entry;
use super::loss::Exposure;
use super::reading::{last_of_replicas, of_survivors};
use super::{Checker, Finding, Observation, TpcbScan, Verdict};
use crate::op::{Op, Outcome};
use crate::units::Tick;
use crate::workload::script::{Run, Scripts, Step};
use crate::workload::tpcb::{Counts, Movement};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is wrong besides losses, as it stands in the summary.
const WRONG: [&str; 6] =
    ["DOUBLED", "PHANTOM", "accounts off", "tellers off", "branches off", "rows missing or too many"];

/// The judge of a run of `tpcb-like`, which began with an empty history.
#[derive(Debug, Clone)]
pub struct Tpcb {
    /// What was run, with its seed.
    pub scripts: Arc<Scripts>,
    /// How many rows there are of what no transaction adds.
    pub counts: Counts,
    /// What counts as a test, and what was promised.
    pub exposure: Exposure,
}

/// Operations that move the same amount at the same places.
#[derive(Default)]
struct Group<'a> {
    done: Vec<&'a Entry>,
    unknown: u64,
    refused: u64,
    found: u64,
}

impl Tpcb {
    /// What the run of a script moves; `None` of one that moves nothing.
    fn movement(run: &mut Run, script: u32, number: u64) -> Option<Movement> {
        run.begin(script, number);
        // Nothing is brought into variables, so the way is the same as before a server.
        while !matches!(run.step().ok()?, Step::Over) {}
        let [account, teller, branch, delta] = ["aid", "tid", "bid", "delta"].map(|name| run.integer(name));
        Some(Movement { account: account?, teller: teller?, branch: branch?, delta: delta? })
    }

    /// Goes through the books.
    pub fn settle(&self, seen: &Observation) -> Books {
        let mut finding = Finding::new(self.name());
        let mut groups: HashMap<Movement, Group<'_>> = HashMap::new();
        let mut run = Run::new(self.scripts.clone(), 0);
        let mut acknowledged: Vec<Tick> = Vec::new();
        for entry in &seen.history.entries {
            let Op::Script { script, number } = entry.op else { continue };
            if script as usize >= self.scripts.scripts().len() {
                continue;
            }
            let Some(movement) = Self::movement(&mut run, script, number) else { continue };
            let group = groups.entry(movement).or_default();
            match entry.outcome {
                Outcome::Done => {
                    acknowledged.extend(entry.acknowledged());
                    group.done.push(entry);
                }
                Outcome::Unknown(_) => group.unknown += 1,
                Outcome::Refused(_) => group.refused += 1,
            }
        }
        let nothing_promised = acknowledged.is_empty();
        let (mut lost, mut total_off) = (vec![], None);
        match of_survivors(&seen.tpcb).last() {
            Some(scan) => {
                lost = fates(groups, scan, seen.history.is_cut_short, &mut finding);
                total_off = Some(self.replay(scan, &mut finding));
                other_books(&seen.tpcb, scan, &mut finding);
            }
            None => {
                if !nothing_promised {
                    finding.at_least(Verdict::Unknown);
                }
                finding.notes.push("the tables were not read after the run".into());
            }
        }
        let total = match total_off {
            Some(0) => "accounts add up to the history: a test of the sums alone would see nothing".into(),
            Some(off) => format!("accounts are off the history by {off:+}: a test of the sums would see it"),
            None => "the sums at the end are not known".into(),
        };
        let losses = conclude(seen, &self.exposure, acknowledged, &lost, &mut finding, (&WRONG, &total));
        Books { snapshots: Default::default(), losses, total_off, finding }
    }

    /// Replays accounts, tellers and branches from the rows of the history. The sum of the accounts minus
    /// that of the history.
    fn replay(&self, scan: &TpcbScan, finding: &mut Finding) -> i128 {
        if scan.rows.counts != self.counts {
            finding.accuse("rows missing or too many", || {
                format!("{:?} instead of {:?}", scan.rows.counts, self.counts)
            });
        }
        let moved = &scan.rows.history;
        type Place = fn(&Movement) -> i64;
        for (what, of, found) in [
            ("accounts off", (|movement| movement.account) as Place, &scan.rows.accounts),
            ("tellers off", |movement| movement.teller, &scan.rows.tellers),
            ("branches off", |movement| movement.branch, &scan.rows.branches),
        ] {
            let mut off: BTreeMap<i64, i128> = BTreeMap::new();
            found.iter().for_each(|(id, balance)| *off.entry(*id).or_default() += i128::from(*balance));
            moved.iter().for_each(|row| *off.entry(of(row)).or_default() -= i128::from(row.delta));
            for (id, off) in off.into_iter().filter(|(_, off)| *off != 0) {
                finding.accuse(what, || format!("number {id} is off by {off:+} from what the history says"));
            }
        }
        let sum = |values: &mut dyn Iterator<Item = i64>| values.map(i128::from).sum::<i128>();
        let accounts = sum(&mut scan.rows.accounts.iter().map(|(_, balance)| *balance));
        accounts - sum(&mut moved.iter().map(|row| row.delta))
    }
}

/// Gives every operation its fate; those that were acknowledged and are gone.
fn fates<'a>(
    mut groups: HashMap<Movement, Group<'a>>,
    scan: &TpcbScan,
    cut_short: bool,
    finding: &mut Finding,
) -> Vec<&'a Entry> {
    for row in &scan.rows.history {
        groups.entry(*row).or_default().found += 1;
    }
    let mut groups: Vec<(Movement, Group<'a>)> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|(movement, _)| *movement);
    let mut all_lost = Vec::new();
    for (movement, mut group) in groups {
        let (done, found) = (group.done.len() as u64, group.found);
        // Of operations that look alike, the last ones are taken to be gone.
        group.done.sort_unstable_by_key(|entry| entry.ended);
        let lost = group.done.split_off(done.min(found) as usize);
        finding.count_many("durable", group.done.len() as u64);
        let applied = found.saturating_sub(done).min(group.unknown);
        finding.count_many("applied", applied);
        finding.count_many("not applied", group.unknown - applied);
        finding.count_many("refused", group.refused);
        for entry in &lost {
            finding.accuse("LOST", || {
                let at =
                    entry.ended.map_or(String::new(), |at| format!(" at {}", super::ledger::seconds(at)));
                format!("{movement} ({}), acknowledged{at}, is not in the history", entry.name())
            });
        }
        let beyond = found.saturating_sub(done + group.unknown);
        if beyond > 0 {
            let sent = done + group.unknown;
            let (kind, words) = match (sent, group.refused) {
                (0, 0) if cut_short => {
                    finding.count_many(super::ledger::AFTER_THE_END, beyond);
                    continue;
                }
                (0, 0) => ("PHANTOM", "nobody sent it"),
                (0, _) => ("PHANTOM", "it was refused"),
                _ => ("DOUBLED", "it was sent less often"),
            };
            (0..beyond).for_each(|_| finding.accuse(kind, || format!("{movement} is there, and {words}")));
        }
        all_lost.extend(lost);
    }
    all_lost
}

/// Readings that differ from the last one of the survivors.
fn other_books(scans: &[TpcbScan], survivors: &TpcbScan, finding: &mut Finding) {
    let ordered = |scan: &TpcbScan| {
        let mut rows = scan.rows.clone();
        rows.history.sort_unstable();
        for balances in [&mut rows.accounts, &mut rows.tellers, &mut rows.branches] {
            balances.sort_unstable();
        }
        rows
    };
    let expected = ordered(survivors);
    let before = of_survivors(scans).into_iter().map(|scan| (scan, "unstable", "readings that differ"));
    let replicas = last_of_replicas(scans).into_values();
    let replicas = replicas.map(|scan| (scan, "replica", "replicas that differ"));
    for (scan, kind, count) in before.chain(replicas).filter(|(scan, ..)| ordered(scan) != expected) {
        finding.count(count);
        finding.at_least(Verdict::Unknown);
        finding.show(kind, || {
            let (mine, theirs) = (survivors.rows.history.len(), scan.rows.history.len());
            format!(
                "reading {} of {:?} holds other books: {theirs} rows of history beside the last {mine}",
                scan.pass, scan.source
            )
        });
    }
}

impl Checker for Tpcb {
    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn check(&self, seen: &Observation) -> Finding {
        self.settle(seen).finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Evidence, History, Source, TpcbRows};
    use crate::op::Failure;
    use crate::workload::script::{BuiltIn, Dialect, Value};

    fn judge() -> Tpcb {
        let mut scripts = Scripts::new(7, Dialect::Pgbench);
        for name in ["tpcb-like", "select-only"] {
            let script = BuiltIn::find(name).unwrap();
            scripts.add(name, script.portable().as_bytes(), 1).unwrap();
        }
        scripts.preset("scale", Value::Integer(1)).unwrap();
        scripts.forgets = true;
        Tpcb { scripts: Arc::new(scripts), counts: Counts::at(1), exposure: Exposure::default() }
    }

    /// Operations 0 to 5, all acknowledged but the last two: one refused, one unknown. The fifth reads.
    fn history() -> Vec<Entry> {
        (0..6u64)
            .map(|n| {
                let op = Op::Script { script: u32::from(n == 4), number: n };
                let outcome = match n {
                    2 => Outcome::Refused(Failure::Conflict),
                    5 => Outcome::Unknown(Failure::Timeout),
                    _ => Outcome::Done,
                };
                Entry { ended: Some(Tick(n * 100 + 50)), outcome, ..Entry::sent(0, n, op, Tick(n * 100)) }
            })
            .collect()
    }

    fn moves(judge: &Tpcb, n: u64) -> Movement {
        Tpcb::movement(&mut Run::new(judge.scripts.clone(), 0), 0, n).unwrap()
    }

    /// The tables after these operations.
    fn after(judge: &Tpcb, numbers: &[u64]) -> TpcbRows {
        let history: Vec<Movement> = numbers.iter().map(|n| moves(judge, *n)).collect();
        let sums = |of: fn(&Movement) -> i64| {
            let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
            history.iter().for_each(|row| *sums.entry(of(row)).or_default() += row.delta);
            sums.into_iter().filter(|(_, sum)| *sum != 0).collect::<Vec<_>>()
        };
        let (accounts, tellers, branches) = (sums(|m| m.account), sums(|m| m.teller), sums(|m| m.branch));
        TpcbRows { counts: judge.counts, history, accounts, tellers, branches }
    }

    fn settle(entries: Vec<Entry>, rows: Option<TpcbRows>) -> Books {
        let mut seen = Observation::default();
        seen.history.entries = entries;
        let scan = |rows| TpcbScan { source: Source::Survivors, pass: 1, at: Tick(9), rows };
        seen.tpcb = rows.into_iter().map(scan).collect();
        judge().settle(&seen)
    }

    #[test]
    fn honest_tables_are_believed_with_and_without_what_was_not_answered() {
        let judge = judge();
        for (numbers, applied) in [(&[0, 1, 3][..], 0), (&[3, 5, 0, 1], 1)] {
            let finding = settle(history(), Some(after(&judge, numbers))).finding;
            assert_eq!(finding.verdict, Verdict::Valid, "{finding:?}");
            assert_eq!((finding.counted("durable"), finding.counted("applied")), (3, applied));
        }
    }

    #[test]
    fn culprits_are_convicted_by_name() {
        let judge = judge();
        let honest = after(&judge, &[0, 1, 3]);
        let mut torn = honest.clone();
        torn.tellers[0].1 += 1;
        let mut fewer = honest.clone();
        fewer.counts.accounts -= 1;
        for (what, rows, kind) in [
            // The sums of all four tables agree.
            ("lost", after(&judge, &[0, 1]), "LOST"),
            ("doubled", after(&judge, &[0, 1, 3, 3]), "DOUBLED"),
            ("refused and there", after(&judge, &[0, 1, 3, 2]), "PHANTOM"),
            ("never sent", after(&judge, &[0, 1, 3, 77]), "PHANTOM"),
            ("torn", torn, "tellers off"),
            ("row without money", TpcbRows { accounts: vec![], ..honest.clone() }, "accounts off"),
            ("money without row", TpcbRows { history: vec![], ..honest.clone() }, "branches off"),
            ("an account is gone", fewer, "rows missing or too many"),
        ] {
            let books = settle(history(), Some(rows));
            assert_eq!(books.finding.verdict, Verdict::Invalid, "{what}: {:?}", books.finding);
            assert!(books.finding.counted(kind) > 0, "{what}: {:?}", books.finding);
        }
        let lost = settle(history(), Some(after(&judge, &[0, 1])));
        assert_eq!((lost.losses.lost, lost.total_off), (1, Some(0)));
        assert!(lost.finding.evidence[0].contains("client 0, operation 3"), "{:?}", lost.finding);
    }

    #[test]
    fn nothing_done_and_nothing_read_acquit_nobody() {
        let judge = judge();
        let nothing = settle(vec![], Some(after(&judge, &[]))).finding;
        assert_eq!(nothing.verdict, Verdict::NoEvidence);
        assert_eq!(settle(vec![], None).finding.verdict, Verdict::NoEvidence);
        assert_eq!(settle(history(), None).finding.verdict, Verdict::Unknown);
    }

    #[test]
    fn it_is_judged_again_from_what_was_kept() {
        let judge = judge();
        let scan =
            |pass| TpcbScan { source: Source::Survivors, pass, at: Tick(9), rows: after(&judge, &[0, 1]) };
        let evidence = Evidence {
            checks: vec![crate::check::Check::Tpcb],
            scripts: Some(judge.scripts.as_ref().clone()),
            tpcb: vec![scan(1), scan(2)],
            ..Evidence::default()
        };
        let text = serde_json::to_string(&evidence).unwrap();
        let kept: Evidence = serde_json::from_str(&text).unwrap();
        let history = History { entries: history(), ..History::default() };
        let judged = kept.judge(history.clone()).unwrap();
        assert_eq!(judged.verdict, Verdict::Invalid, "{judged:?}");
        let without = Evidence { scripts: None, ..evidence };
        assert_eq!(without.judge(history).unwrap().verdict, Verdict::Unknown);
    }
}
