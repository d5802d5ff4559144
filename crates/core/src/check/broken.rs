//! What one run under faults showed, small enough for its record, and what several of them say together.

use super::history::{Entry, Operation};
use super::ledger::Balance;
use super::loss::{Exposure, FaultFigures, LossChance};
use super::recovery::Operations;
use super::{Bank, Checker, Finding, Ledger, Observation, Verdict, bank::Books as BankBooks, judge};
use crate::measure::{Books, BooksText};
use crate::op::{OpKind, Timing};
use crate::schedule::Injection;
use crate::units::{Bytes, Tick, span};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// The checker that finds that nothing can be read back.
const RECOVERY: &str = "recovery";

/// A fault as it was carried out, with what can be shown for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// When, and with what effect.
    #[serde(flatten)]
    pub injection: Injection,
    /// Sentences: which processes died, how many bytes were discarded, who took over.
    pub evidence: Vec<String>,
}

/// Who judges a run under faults.
#[derive(Default)]
pub struct Judges<'a> {
    /// Of writes, if the ledger was kept.
    pub ledger: Option<&'a Ledger>,
    /// Of transfers, if the bank was.
    pub bank: Option<&'a Bank>,
    /// Of what nothing is lost by: order and isolation.
    pub others: Vec<&'a dyn Checker>,
}

/// What one run under faults showed: a pure function of what was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// The worst of all verdicts.
    pub verdict: Verdict,
    /// What is wrong with the history or the faults, if anything is.
    pub problems: Vec<Finding>,
    /// The ledger's balance, if it was kept.
    pub ledger: Option<Balance>,
    /// The bank's books, if they were kept.
    pub bank: Option<BankBooks>,
    /// What the other checkers found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Finding>,
    /// What was broken.
    pub faults: Vec<Carried>,
    /// Operations that ended before the first fault: what the setting costs in peace. Writes of the ledger
    /// stand under UPDATE.
    pub calm: BooksText,
    /// How long that was.
    #[serde(rename = "calm_ns", with = "span")]
    pub calm_for: Duration,
    /// All operations that ended.
    pub books: BooksText,
    /// How long the load lasted.
    #[serde(rename = "lasted_ns", with = "span")]
    pub lasted: Duration,
    /// Operations that have no result at all: the load ended before they did.
    pub unanswered: u64,
    /// Bytes of the data on the primary's disk after the run, if the disk is one of ours.
    #[serde(rename = "data_bytes")]
    pub data: Option<Bytes>,
}

impl Broken {
    /// Judges what was seen. `retries` says for a client's operation how often it was tried again.
    pub fn judge(
        seen: &Observation,
        faults: Vec<Carried>,
        judges: &Judges<'_>,
        retries: &HashMap<(u32, u64), u32>,
        data: Option<Bytes>,
    ) -> Broken {
        let mut problems = judge(&judges.others, seen).findings;
        // What is wrong with the history or the faults stands first, if anything is.
        let others = problems.split_off(problems.len() - judges.others.len());
        let mut ledger = judges.ledger.map(|ledger| ledger.settle(seen));
        let mut bank = judges.bank.map(|bank| bank.settle(seen));
        if let (Some(balance), Some(books), Some(judge)) = (&mut ledger, &mut bank, judges.ledger) {
            // Neither counts as a success what the other found to be lost.
            let lost: Operations =
                balance.losses.operations.union(&books.losses.operations).copied().collect();
            balance.losses.recover(seen, &judge.exposure.objective, &lost);
            books.losses.recover(seen, &judge.exposure.objective, &lost);
        }
        let verdicts = problems.iter().chain(&others).map(|finding| finding.verdict);
        let verdicts = verdicts.chain(ledger.iter().map(|balance| balance.finding.verdict));
        let verdicts = verdicts.chain(bank.iter().map(|books| books.finding.verdict));
        let verdict = verdicts.max().unwrap_or(Verdict::NoEvidence);
        let entries = &seen.history.entries;
        let begin = entries.iter().map(|entry| entry.began).min().unwrap_or_default();
        let end = entries.iter().filter_map(|entry| entry.ended).max().unwrap_or_default();
        let first_fault = seen.injections.iter().map(|injection| injection.at).min().unwrap_or(end);
        Broken {
            verdict,
            problems,
            ledger,
            bank,
            others,
            faults,
            calm: books(entries, retries, first_fault).to_text(),
            calm_for: first_fault.since(begin),
            books: books(entries, retries, Tick(u64::MAX)).to_text(),
            lasted: end.since(begin),
            unanswered: entries.iter().filter(|entry| entry.ended.is_none()).count() as u64,
            data,
        }
    }

    /// Whether everything could be read back at all.
    pub fn came_back(&self) -> bool {
        self.problems.iter().all(|finding| finding.checker != RECOVERY)
    }

    /// Notes that after the faults the database did not come back with what was in it, and why: whatever was
    /// acknowledged is out of reach, which a fault of ours has brought about.
    pub fn did_not_come_back(&mut self, reason: &str) {
        let mut finding = Finding::new(RECOVERY);
        let at_risk = self.faults.iter().any(|fault| fault.injection.had_effect());
        finding.count("did not come back");
        finding.show("did not come back", || reason.to_string());
        finding.at_least(if at_risk { Verdict::Invalid } else { Verdict::Unknown });
        finding.summary = "after the faults the database did not come back with what was in it".into();
        self.verdict = self.verdict.max(finding.verdict);
        self.problems.push(finding);
    }

    /// Notes that a node does not follow again after the faults, and why; what the survivors hold is known.
    pub fn node_stays_away(&mut self, reason: &str) {
        let mut finding = Finding::new("return");
        finding.count("does not follow");
        finding.show("does not follow", || reason.to_string());
        finding.at_least(Verdict::Unknown);
        finding.summary = "after the faults a node did not come back to the others by itself".into();
        self.verdict = self.verdict.max(finding.verdict);
        self.problems.push(finding);
    }

    /// Notes that a node followed again only when the load was over, and what kept it; nothing is wrong with
    /// what was acknowledged.
    pub fn node_came_late(&mut self, reason: &str) {
        let mut finding = Finding::new("return");
        finding.count("followed late");
        finding.show("followed late", || reason.to_string());
        finding.summary = "a node followed again only when the load was over".into();
        self.problems.push(finding);
    }

    /// Figures of the faults, of writes and of transfers.
    pub fn fault_figures(&self) -> impl Iterator<Item = &FaultFigures> {
        let ledger = self.ledger.iter().flat_map(|balance| &balance.losses.faults);
        ledger.chain(self.bank.iter().flat_map(|books| &books.losses.faults))
    }

    /// All findings: of the history and the faults, of the ledger, of the bank, of the others.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let ledger = self.ledger.iter().map(|balance| &balance.finding);
        let bank = self.bank.iter().map(|books| &books.finding);
        self.problems.iter().chain(ledger).chain(bank).chain(&self.others)
    }
}

/// Counts and latencies of what ended before `until`; snapshots are not counted, nobody waits for them.
fn books(entries: &[Entry], retries: &HashMap<(u32, u64), u32>, until: Tick) -> Books {
    let mut books = Books::closed();
    for entry in entries {
        let kind = match entry.operation {
            Operation::Write { .. } => OpKind::Update,
            Operation::Transfer { .. } => OpKind::Transfer,
            Operation::Read { .. } => OpKind::Read,
            Operation::ReadBalances | Operation::Transaction { .. } => continue,
        };
        let Some(ended) = entry.ended.filter(|ended| *ended < until) else { continue };
        let timing = Timing { due: entry.began, began: entry.began, ended };
        let tries = retries.get(&(entry.client, entry.sequence)).copied().unwrap_or(0);
        books.record(kind, entry.outcome, &timing, tries);
    }
    books
}

/// What is lost: writes of the ledger or transfers of the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Things {
    /// Of the ledger.
    Writes,
    /// Of the bank.
    Transfers,
}

impl Things {
    /// As it stands in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Things::Writes => "writes",
            Things::Transfers => "transfers",
        }
    }
}

/// The losses of all faults of several runs together.
pub fn all_losses(
    runs: &[&Broken],
    things: Things,
    exposure: &Exposure,
) -> Option<(super::loss::Losses, String)> {
    // Nothing was read where nothing came back, so nothing can be said to be there.
    let read = runs.iter().filter(|run| run.came_back());
    let losses = |run: &&Broken| match things {
        Things::Writes => run.ledger.as_ref().map(|balance| balance.losses.clone()),
        Things::Transfers => run.bank.as_ref().map(|books| books.losses.clone()),
    };
    let each: Vec<super::loss::Losses> = read.copied().filter_map(|run| losses(&run)).collect();
    if each.is_empty() {
        return None;
    }
    let faults: Vec<FaultFigures> = each.iter().flat_map(|losses| losses.faults.clone()).collect();
    let chance: LossChance = exposure.chance(&faults);
    let lost = each.iter().map(|losses| losses.lost).sum();
    let all = super::loss::Losses { lost, faults, chance, operations: Operations::default() };
    let summary = exposure.summary(&all, things.name());
    Some((all, summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Answer, History, KeyScan, Register, Source, Version};
    use crate::op::{Failure, Outcome};
    use crate::schedule::Effect;

    const MS: u64 = 1_000_000;

    /// A write every millisecond, a cut at 500 ms after which the last 20 before it are gone.
    fn cut(lost: u64) -> Observation {
        let write = |n: u64| Entry {
            client: 0,
            sequence: n,
            operation: Operation::Write { key: n, key_sequence: 1, payload: Version::of(n, 1).payload },
            began: Tick(n * MS),
            ended: Some(Tick(n * MS + MS / 2)),
            outcome: if n == 3 { Outcome::Refused(Failure::Conflict) } else { Outcome::Done },
            answer: Answer::Nothing,
        };
        let rows: Vec<(u64, Version)> =
            (0..500 - lost).filter(|n| *n != 3).map(|n| (n, Version::of(n, 1))).collect();
        let scan = |pass| KeyScan { source: Source::Survivors, pass, at: Tick(900 * MS), rows: rows.clone() };
        Observation {
            history: History {
                entries: (0..500).map(write).collect(),
                problems: vec![],
                is_cut_short: false,
            },
            injections: vec![Injection {
                rule: "at 500 ms: power cut all".into(),
                at: Tick(500 * MS),
                uncertainty: Duration::from_millis(1),
                undone: Some(Tick(700 * MS)),
                effect: Effect::Fired { count: 3 },
                outages: vec![],
            }],
            keys: vec![scan(1), scan(2)],
            bank: vec![],
        }
    }

    fn judged(lost: u64) -> Broken {
        let seen = cut(lost);
        let carried = seen.injections.iter().cloned();
        let carried = carried.map(|injection| Carried { injection, evidence: vec!["a: 3 killed".into()] });
        let retries = HashMap::from([((0, 7), 2)]);
        let ledger = Ledger::default();
        let judges = Judges { ledger: Some(&ledger), ..Judges::default() };
        Broken::judge(&seen, carried.collect(), &judges, &retries, None)
    }

    #[test]
    fn a_judgement_reads_back_from_its_record_and_counts_only_what_was_done() {
        let broken = judged(20);
        assert_eq!(broken.verdict, Verdict::Invalid);
        let text = serde_json::to_string(&broken).unwrap();
        let read: Broken = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!((broken.calm.done(), broken.calm.failed()), (499, 1));
        let books = Books::from_text(&broken.books).unwrap();
        assert_eq!(books.of(OpKind::Update).unwrap().retries(), 2);
        assert_eq!(broken.calm_for, Duration::from_millis(500));
    }

    #[test]
    fn runs_together_bound_the_chance_of_a_loss_more_closely_than_one() {
        let (one, none) = (judged(20), judged(0));
        assert_eq!(none.verdict, Verdict::Valid);
        let clean: Vec<&Broken> = std::iter::repeat_n(&none, 30).collect();
        let (losses, said) = all_losses(&clean, Things::Writes, &Exposure::default()).unwrap();
        assert_eq!((losses.chance.faults, losses.lost), (30, 0));
        assert!(losses.chance.high < 0.1 && said.contains("0 acknowledged writes lost in 30"), "{said}");
        let (losses, said) = all_losses(&[&one, &none], Things::Writes, &Exposure::default()).unwrap();
        assert_eq!((losses.chance.with_loss, losses.lost), (1, 20));
        assert!(said.contains("per fault in 1 of 2 faults"), "{said}");
        assert!(all_losses(&[&one], Things::Transfers, &Exposure::default()).is_none());
    }

    #[test]
    fn what_is_wrong_with_the_faults_is_told_apart_from_what_other_checkers_find() {
        let mut seen = cut(0);
        seen.injections[0].effect = Effect::Nothing { reason: "nobody was there".into() };
        let judges = Judges { others: vec![&Register], ..Judges::default() };
        let broken = Broken::judge(&seen, vec![], &judges, &HashMap::new(), None);
        let names = |findings: &[Finding]| findings.iter().map(|f| f.checker.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&broken.problems), names(&broken.others)),
            (vec!["faults".into()], vec!["register".into()])
        );
        assert_eq!(broken.others[0].verdict, Verdict::NoEvidence, "nobody read anything");
    }

    #[test]
    fn what_cannot_be_read_back_is_no_evidence_of_safety() {
        let mut gone = judged(0);
        gone.did_not_come_back("the table does not exist");
        assert_eq!(gone.verdict, Verdict::Invalid);
        assert!(all_losses(&[&gone], Things::Writes, &Exposure::default()).is_none());
        let both = [&gone, &judged(0)];
        assert_eq!(all_losses(&both, Things::Writes, &Exposure::default()).unwrap().0.chance.faults, 1);
    }
}
