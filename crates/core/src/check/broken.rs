//! What one run under faults showed, small enough for its record, and what several of them say together.

use super::evidence::Judges;
use super::history::Entry;
use super::ledger::Balance;
use super::loss::{Exposure, FaultFigures, LossChance};
use super::recovery::Operations;
use super::{
    Aftermath, Checker, Evidence, Finding, History, Observation, Verdict, bank::Books as BankBooks, judge,
};
use crate::measure::{Books, BooksText};
use crate::op::{Op, OpKind, Timing};
use crate::schedule::Injection;
use crate::units::{Bytes, Tick, span};
use crate::workload::bank::BankError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A fault as it was carried out, with what can be shown for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// When, and with what effect.
    #[serde(flatten)]
    pub injection: Injection,
    /// Sentences: which processes died, how many bytes were discarded, who took over.
    pub evidence: Vec<String>,
    /// Nodes that became the primary because of it, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub primaries: Vec<NewPrimary>,
}

/// A node that became the primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPrimary {
    /// Its name.
    pub node: String,
    /// Not before this moment of the trial clock.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// And at most so much later.
    #[serde(rename = "uncertainty_ns", with = "span")]
    pub uncertainty: Duration,
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
    /// The bank's books, or those of TPC-B, if they were kept.
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
    /// Judges `history` by the evidence.
    ///
    /// # Errors
    /// Accounts of which no bank can be made.
    pub fn judge(
        history: History,
        evidence: &mut Evidence,
        faults: Vec<Carried>,
        data: Option<Bytes>,
    ) -> Result<Broken, BankError> {
        let judges = evidence.judges(&history)?;
        let aftermath: Vec<Finding> = evidence.of_aftermath().collect();
        let mut broken = evidence.with(history, |seen| Self::seen(seen, &judges, faults, data));
        let verdicts = aftermath.iter().map(|finding| finding.verdict);
        broken.verdict = verdicts.fold(broken.verdict, Verdict::max);
        broken.problems.extend(aftermath);
        Ok(broken)
    }

    fn seen(seen: &Observation, judges: &Judges, faults: Vec<Carried>, data: Option<Bytes>) -> Broken {
        let others: Vec<&dyn Checker> = judges.others.iter().map(Box::as_ref).collect();
        let mut problems = judge(&others, seen).findings;
        // What is wrong with the history or the faults stands first, if anything is.
        let others = problems.split_off(problems.len() - others.len());
        let mut ledger = judges.ledger.as_ref().map(|ledger| ledger.settle(seen));
        let bank = judges.bank.as_ref().map(|bank| bank.settle(seen));
        let mut bank = bank.or_else(|| judges.tpcb.as_ref().map(|tpcb| tpcb.settle(seen)));
        if let (Some(balance), Some(books), Some(judge)) = (&mut ledger, &mut bank, &judges.ledger) {
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
            calm: books(entries, first_fault).to_text(),
            calm_for: first_fault.since(begin),
            books: books(entries, Tick(u64::MAX)).to_text(),
            lasted: end.since(begin),
            unanswered: entries.iter().filter(|entry| entry.ended.is_none()).count() as u64,
            data,
        }
    }

    /// Whether everything could be read back at all.
    pub fn came_back(&self) -> bool {
        self.problems.iter().all(|finding| finding.checker != Aftermath::RECOVERY)
    }

    /// All findings: of the history and the faults, of the ledger, of the bank, of the others.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let ledger = self.ledger.iter().map(|balance| &balance.finding);
        let bank = self.bank.iter().map(|books| &books.finding);
        self.problems.iter().chain(ledger).chain(bank).chain(&self.others)
    }
}

/// Counts and latencies of what ended before `until`; snapshots are not counted, nobody waits for them.
pub(crate) fn books(entries: &[Entry], until: Tick) -> Books {
    let is_open = entries.iter().any(|entry| entry.due < entry.began);
    let mut books = Books::new(is_open);
    for entry in entries {
        let kind = match &entry.op {
            Op::Insert { .. } => OpKind::Update,
            Op::ReadBalances | Op::Transaction { .. } => continue,
            op => op.kind(),
        };
        let Some(ended) = entry.ended.filter(|ended| *ended < until) else { continue };
        let timing = Timing { due: entry.due, began: entry.began, ended };
        books.record(kind, entry.outcome, &timing, entry.retries);
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
    use crate::check::{Check, KeyScan, Source, Version};
    use crate::op::{Failure, Outcome};
    use crate::schedule::Effect;

    const MS: u64 = 1_000_000;

    /// A write every millisecond, a cut at 500 ms after which the last 20 before it are gone.
    fn cut(lost: u64) -> (History, Evidence) {
        let write = |n: u64| Entry {
            ended: Some(Tick(n * MS + MS / 2)),
            retries: if n == 7 { 2 } else { 0 },
            outcome: if n == 3 { Outcome::Refused(Failure::Conflict) } else { Outcome::Done },
            ..Entry::sent(0, n, Op::Insert { record: n }, Tick(n * MS))
        };
        let rows: Vec<(u64, Version)> =
            (0..500 - lost).filter(|n| *n != 3).map(|n| (n, Version::of(n, 1))).collect();
        let scan = |pass| KeyScan { source: Source::Survivors, pass, at: Tick(900 * MS), rows: rows.clone() };
        let evidence = Evidence {
            checks: vec![Check::Ledger],
            injections: vec![Injection {
                rule: "at 500 ms: power cut all".into(),
                at: Tick(500 * MS),
                uncertainty: Duration::from_millis(1),
                undone: Some(Tick(700 * MS)),
                effect: Effect::Fired { count: 3 },
                outages: vec![],
            }],
            keys: vec![scan(1), scan(2)],
            ..Evidence::default()
        };
        (History { entries: (0..500).map(write).collect(), ..History::default() }, evidence)
    }

    fn judged_after(lost: u64, aftermath: &[Aftermath]) -> Broken {
        let (history, mut evidence) = cut(lost);
        evidence.aftermath = aftermath.to_vec();
        let before = evidence.clone();
        let carried = evidence.injections.iter().cloned();
        let carried = carried.map(|injection| Carried {
            injection,
            evidence: vec!["a: 3 killed".into()],
            primaries: vec![],
        });
        let carried: Vec<Carried> = carried.collect();
        let broken = Broken::judge(history.clone(), &mut evidence, carried, None).unwrap();
        assert_eq!(evidence, before, "what it was judged by is there to be kept");
        assert_eq!(evidence.judge(history).unwrap().verdict, broken.verdict);
        broken
    }

    fn judged(lost: u64) -> Broken {
        judged_after(lost, &[])
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
        let (history, mut evidence) = cut(0);
        evidence.checks = vec![Check::Register];
        evidence.injections[0].effect = Effect::Nothing { reason: "nobody was there".into() };
        let broken = Broken::judge(history, &mut evidence, vec![], None).unwrap();
        let names = |findings: &[Finding]| findings.iter().map(|f| f.checker.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&broken.problems), names(&broken.others)),
            (vec!["faults".into()], vec!["register".into()])
        );
        assert_eq!(broken.others[0].verdict, Verdict::NoEvidence, "nobody read anything");
    }

    #[test]
    fn what_cannot_be_read_back_is_no_evidence_of_safety() {
        let gone = judged_after(0, &[Aftermath::DidNotComeBack("the table does not exist".into())]);
        assert_eq!(gone.verdict, Verdict::Invalid);
        // Whoever is slow has lost nothing yet.
        let slow = judged_after(0, &[Aftermath::NotBackInTime("replays its log".into())]);
        assert_eq!((slow.verdict, slow.came_back()), (Verdict::Unknown, false));
        assert!(all_losses(&[&gone], Things::Writes, &Exposure::default()).is_none());
        let both = [&gone, &judged(0)];
        assert_eq!(all_losses(&both, Things::Writes, &Exposure::default()).unwrap().0.chance.faults, 1);
        // What the survivors hold is known, but not whether a node that stays away would agree.
        let away = judged_after(0, &[Aftermath::NodeStaysAway("diverged".into())]);
        assert_eq!((away.verdict, away.came_back()), (Verdict::Unknown, true));
        assert_eq!(judged_after(0, &[Aftermath::NodeCameLate("a copy".into())]).verdict, Verdict::Valid);
    }
}
