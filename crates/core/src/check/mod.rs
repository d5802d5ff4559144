//! Was it right? Histories of what clients saw, and the checkers that judge them.
//!
//! A checker is a pure function from an [`Observation`] to a [`Finding`]. Several are put together by
//! [`judge`]: the worst verdict wins. `docs/correctness.md` says what each can see and what it cannot.

pub mod at_risk;
pub mod bank;
pub mod binary;
pub mod broken;
pub mod evidence;
pub mod guilty;
pub mod history;
pub mod isolation;
pub mod ledger;
pub mod loaded;
pub mod loss;
pub mod payload;
pub mod reading;
pub mod recovery;
pub mod register;
pub mod tpcb;

pub use at_risk::AtRisk;
pub use bank::Bank;
pub use broken::{Broken, Carried, NewPrimary};
pub use evidence::{Aftermath, Evidence};
pub use history::{Completion, Entry, Event, History, Intent, Returned, Version};
pub use isolation::{Isolation, Model};
pub use ledger::Ledger;
pub use loaded::{Loaded, LoadedScan};
pub use loss::Exposure;
pub use reading::{BankScan, KeyScan, ListScan, Source, TpcbRows, TpcbScan, TransferRow};
pub use register::Register;
pub use tpcb::Tpcb;

use crate::schedule::{Effect, Injection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// All that was seen of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// What the clients saw.
    pub history: History,
    /// What was broken, in the order of time.
    pub injections: Vec<Injection>,
    /// Final reads of the ledger's keys.
    pub keys: Vec<KeyScan>,
    /// Final reads of the bank.
    pub bank: Vec<BankScan>,
    /// Final reads of the lists.
    pub lists: Vec<ListScan>,
    /// Final reads of pgbench's tables.
    pub tpcb: Vec<TpcbScan>,
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Keys, each written by one client.
    Ledger,
    /// Transfers between accounts.
    Bank,
    /// Keys that one client writes and others read: each must take effect at one moment.
    Register,
    /// Transactions over lists: their isolation must be what is claimed.
    Isolation,
    /// The transactions of pgbench's TPC-B, which are the load.
    Tpcb,
}

impl Check {
    /// All of them.
    pub const ALL: [Check; 5] = [Check::Ledger, Check::Bank, Check::Register, Check::Isolation, Check::Tpcb];

    /// As plans and people write it.
    pub fn name(self) -> &'static str {
        match self {
            Check::Ledger => "ledger",
            Check::Bank => "bank",
            Check::Register => "register",
            Check::Isolation => "isolation",
            Check::Tpcb => "tpcb",
        }
    }
}

/// How a check ended. The order is from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing wrong, and enough was seen to say so.
    Valid,
    /// Nothing wrong, but too little was seen to say anything.
    NoEvidence,
    /// A fault that was asked for had no effect.
    NotTested,
    /// It cannot be decided.
    Unknown,
    /// It is wrong, and there is evidence.
    Invalid,
}

impl Verdict {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::NoEvidence => "no evidence",
            Verdict::NotTested => "not tested",
            Verdict::Unknown => "unknown",
            Verdict::Invalid => "CONVICTED",
        }
    }
}

/// Pieces of evidence of one kind that are kept; all are counted.
const EVIDENCE_PER_KIND: usize = 3;
/// No piece of evidence is longer, in characters.
const EVIDENCE_LENGTH: usize = 1000;

/// What one checker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which checker.
    pub checker: String,
    /// How it ended.
    pub verdict: Verdict,
    /// One sentence.
    pub summary: String,
    /// How many of which kind: "lost", "durable", "G-single".
    pub counts: BTreeMap<String, u64>,
    /// Sentences that a person can follow, at most three of a kind.
    pub evidence: Vec<String>,
    /// How many pieces of evidence were left out.
    pub evidence_left_out: u64,
    /// What the verdict rests on, and what it cannot see.
    pub notes: Vec<String>,
    #[serde(skip)]
    shown: BTreeMap<String, usize>,
}

impl Finding {
    /// Nothing found yet.
    pub fn new(checker: &str) -> Self {
        Finding {
            checker: checker.into(),
            verdict: Verdict::Valid,
            summary: String::new(),
            counts: BTreeMap::new(),
            evidence: vec![],
            evidence_left_out: 0,
            notes: vec![],
            shown: BTreeMap::new(),
        }
    }

    /// Counts one of a kind.
    pub fn count(&mut self, kind: &str) {
        self.count_many(kind, 1);
    }

    /// Counts several of a kind; none leaves no trace.
    pub fn count_many(&mut self, kind: &str, n: u64) {
        if n > 0 {
            *self.counts.entry(kind.into()).or_default() += n;
        }
    }

    /// How many there are of a kind.
    pub fn counted(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or(0)
    }

    /// Raises the verdict to at least `verdict`.
    pub fn at_least(&mut self, verdict: Verdict) {
        self.verdict = self.verdict.max(verdict);
    }

    /// Keeps a piece of evidence, unless there is enough of its kind; the text is made only when it is kept.
    pub fn show(&mut self, kind: &str, text: impl FnOnce() -> String) {
        let shown = self.shown.entry(kind.into()).or_default();
        if *shown >= EVIDENCE_PER_KIND {
            self.evidence_left_out += 1;
            return;
        }
        *shown += 1;
        let text = format!("{kind}: {}", text());
        let over = text.chars().count().saturating_sub(EVIDENCE_LENGTH);
        if over == 0 {
            return self.evidence.push(text);
        }
        // A program's last words say at their end why it ended.
        let head = EVIDENCE_LENGTH / 3;
        let tail = text.chars().skip(head + over);
        self.evidence.push(text.chars().take(head).chain(" ... ".chars()).chain(tail).collect());
    }

    /// Counts one of a kind, with its evidence, and the verdict is Invalid.
    pub fn accuse(&mut self, kind: &str, text: impl FnOnce() -> String) {
        self.count(kind);
        self.show(kind, text);
        self.at_least(Verdict::Invalid);
    }
}

/// Judges an observation by one rule.
pub trait Checker {
    /// As it stands in reports: "ledger".
    fn name(&self) -> &'static str;
    /// What it finds. A pure function.
    fn check(&self, observation: &Observation) -> Finding;
}

/// What all checkers together say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The worst of all verdicts.
    pub verdict: Verdict,
    /// One per checker; before them what is wrong with the history or the faults, if anything is.
    pub findings: Vec<Finding>,
}

impl Judgement {
    /// "ledger: nothing lost ...; bank: ...".
    pub fn summary(&self) -> String {
        let said: Vec<String> =
            self.findings.iter().map(|finding| format!("{}: {}", finding.checker, finding.summary)).collect();
        said.join("; ")
    }
}

/// Runs all checkers; the worst verdict wins. A history that contradicts itself makes the verdict at least
/// Unknown, a rule whose faults never had an effect makes it at least NotTested, and a checker that panics
/// is a bug of ours, counted as Unknown.
pub fn judge(checkers: &[&dyn Checker], observation: &Observation) -> Judgement {
    let mut findings = vec![history_itself(&observation.history), faults(&observation.injections)];
    findings.retain(|finding| finding.verdict != Verdict::Valid);
    if observation.history.is_cut_short {
        findings.insert(0, cut_short());
    }
    for checker in checkers {
        let run = catch_unwind(AssertUnwindSafe(|| checker.check(observation)));
        findings.push(run.unwrap_or_else(|_| {
            let mut finding = Finding::new(checker.name());
            finding.at_least(Verdict::Unknown);
            finding.summary = "the checker itself failed: a bug of Tipover".into();
            finding
        }));
    }
    let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::NoEvidence);
    Judgement { verdict, findings }
}

fn history_itself(history: &History) -> Finding {
    let mut finding = Finding::new("history");
    for problem in &history.problems {
        finding.count("contradictions");
        finding.show("contradiction", || problem.clone());
        finding.at_least(Verdict::Unknown);
    }
    finding.summary = format!("the history contradicts itself {} times", history.problems.len());
    finding
}

fn cut_short() -> Finding {
    let mut finding = Finding::new("history");
    finding.summary = "the history has no end: its writer was killed, and what came last was not kept".into();
    finding.notes.push("operations that are found and were never intended are no phantoms here".into());
    finding
}

fn faults(injections: &[Injection]) -> Finding {
    let mut finding = Finding::new("faults");
    let mut rules: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
    for injection in injections {
        let (all, fired, reason) = rules.entry(&injection.rule).or_default();
        *all += 1;
        *fired += u64::from(injection.had_effect());
        if let Effect::Nothing { reason: why } = &injection.effect {
            *reason = why;
        }
    }
    for (rule, (all, fired, reason)) in rules {
        if fired == 0 {
            finding.count("rules without effect");
            finding.show("no effect", || format!("\"{rule}\", {all} times: {reason}"));
            finding.at_least(Verdict::NotTested);
        }
    }
    finding.summary = "a fault had no effect, so what it was to test is not tested".into();
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tick;
    use std::time::Duration;

    struct Says(Verdict);
    impl Checker for Says {
        fn name(&self) -> &'static str {
            "says"
        }
        fn check(&self, _: &Observation) -> Finding {
            let mut finding = Finding::new("says");
            finding.at_least(self.0);
            finding
        }
    }
    struct Panics;
    impl Checker for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }
        fn check(&self, observation: &Observation) -> Finding {
            panic!("{} entries", observation.history.entries.len())
        }
    }

    fn injection(rule: &str, count: u64) -> Injection {
        let effect = match count {
            0 => Effect::Nothing { reason: "the link was idle".into() },
            count => Effect::Fired { count },
        };
        let (uncertainty, outages) = (Duration::ZERO, vec![]);
        Injection { rule: rule.into(), at: Tick(1), uncertainty, undone: None, effect, outages }
    }

    #[test]
    fn the_worst_verdict_wins() {
        use Verdict::*;
        let seen = Observation::default();
        let all = [Valid, NoEvidence, NotTested, Unknown, Invalid];
        for a in all {
            for b in all {
                assert_eq!(judge(&[&Says(a), &Says(b)], &seen).verdict, a.max(b));
            }
        }
        assert_eq!(judge(&[], &seen).verdict, NoEvidence);
        assert_eq!(judge(&[&Says(Valid), &Panics], &seen).verdict, Unknown);
        assert_eq!(judge(&[&Says(Invalid), &Panics], &seen).verdict, Invalid);
    }

    #[test]
    fn a_rule_without_effect_is_not_tested_unless_guilt_is_proved() {
        let injections = vec![injection("kill a", 1), injection("kill a", 0)];
        let mut seen = Observation { injections, ..Observation::default() };
        assert_eq!(judge(&[&Says(Verdict::Valid)], &seen).verdict, Verdict::Valid);
        seen.injections.push(injection("cut a from b", 0));
        let judgement = judge(&[&Says(Verdict::Valid)], &seen);
        assert_eq!(judgement.verdict, Verdict::NotTested);
        assert!(judgement.findings[0].evidence[0].contains("the link was idle"));
        assert_eq!(judge(&[&Says(Verdict::Invalid)], &seen).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_history_that_contradicts_itself_decides_nothing() {
        let mut seen = Observation::default();
        seen.history.problems.push("a result without an intent".into());
        assert_eq!(judge(&[&Says(Verdict::Valid)], &seen).verdict, Verdict::Unknown);
    }

    #[test]
    fn evidence_is_sized_for_a_person() {
        let mut finding = Finding::new("x");
        for n in 0..1000 {
            finding.accuse("lost", || format!("write {n} {}", "é".repeat(2000)));
        }
        assert_eq!(finding.counted("lost"), 1000);
        assert_eq!((finding.evidence.len(), finding.evidence_left_out), (3, 997));
        assert!(finding.evidence.iter().all(|text| text.chars().count() <= EVIDENCE_LENGTH + 5));
        finding.show("server", || format!("did not come back; {} page 383 is corrupt", "-".repeat(2000)));
        let last = finding.evidence.last().unwrap();
        assert!(
            last.starts_with("server: did not come back") && last.ends_with("page 383 is corrupt"),
            "{last}"
        );
    }
}
