//! Everything but the history that a judgement rests on, so that a stored run can be judged again.

use super::{
    Bank, BankScan, Check, Checker, Exposure, Finding, History, Isolation, Judgement, KeyScan, Ledger,
    ListScan, Loaded, Model, Observation, Register, Returned, Tpcb, TpcbScan, Verdict, judge,
};
use crate::op::Op;
use crate::schedule::Injection;
use crate::workload::Scripts;
use crate::workload::bank::{Bank as BankData, BankError, BankSpec};
use crate::workload::script::Run;
use crate::workload::tpcb::Counts;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Stands beside the history, as `evidence.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Who judges. Nobody is named where no evidence was kept, as by early versions: then whoever
    /// understands what is in the history.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What counts as a test of durability; absent: the default.
    #[serde(default)]
    pub exposure: Option<Exposure>,
    /// The isolation that was claimed; absent: read committed, the least that is ever claimed.
    #[serde(default)]
    pub claimed: Option<Model>,
    /// What was broken, in the order of time.
    #[serde(default)]
    pub injections: Vec<Injection>,
    /// How it came back from that, where not as it should.
    #[serde(default)]
    pub aftermath: Vec<Aftermath>,
    /// Final reads of the ledger's keys; none if no ledger was kept.
    #[serde(default)]
    pub keys: Vec<KeyScan>,
    /// The accounts as they were before the first transfer, if a bank was kept.
    pub accounts: Option<BankSpec>,
    /// Final reads of the bank.
    #[serde(default)]
    pub bank: Vec<BankScan>,
    /// Final reads of the lists.
    #[serde(default)]
    pub lists: Vec<ListScan>,
    /// What was run, if that was TPC-B.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts: Option<Scripts>,
    /// Final reads of pgbench's tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tpcb: Vec<TpcbScan>,
    /// How the data were loaded, if something was broken meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Loaded>,
}

/// What went wrong on the way back from the faults, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", content = "reason", rename_all = "snake_case")]
pub enum Aftermath {
    /// The database did not come back with what was in it: whatever was acknowledged is out of reach, which a
    /// fault of ours has brought about.
    DidNotComeBack(String),
    /// It was still coming back when nobody waited any longer. That convicts nobody, and acquits nobody.
    NotBackInTime(String),
    /// A node does not follow the others again; what the survivors hold is known.
    NodeStaysAway(String),
    /// A node followed again only when the load was over; nothing is wrong with what was acknowledged.
    NodeCameLate(String),
}

impl Aftermath {
    /// The checker that finds that nothing can be read back.
    pub(super) const RECOVERY: &str = "recovery";

    /// What it says against the database.
    fn finding(&self, injections: &[Injection]) -> Finding {
        let at_risk = injections.iter().any(Injection::had_effect);
        let (checker, kind, reason, verdict, summary) = match self {
            Aftermath::DidNotComeBack(reason) => (
                Self::RECOVERY,
                "did not come back",
                reason,
                if at_risk { Verdict::Invalid } else { Verdict::Unknown },
                "after the faults the database did not come back with what was in it",
            ),
            Aftermath::NotBackInTime(reason) => (
                Self::RECOVERY,
                "not back in time",
                reason,
                Verdict::Unknown,
                "after the faults the database was not back within the time that it is given, so nothing could be read",
            ),
            Aftermath::NodeStaysAway(reason) => (
                "return",
                "does not follow",
                reason,
                Verdict::Unknown,
                "after the faults a node did not come back to the others by itself",
            ),
            Aftermath::NodeCameLate(reason) => (
                "return",
                "followed late",
                reason,
                Verdict::Valid,
                "a node followed again only when the load was over",
            ),
        };
        let mut finding = Finding::new(checker);
        finding.count(kind);
        finding.show(kind, || reason.clone());
        finding.at_least(verdict);
        finding.summary = summary.into();
        finding
    }
}

/// All who judge a run.
pub(super) struct Judges {
    /// Of writes, if the ledger was kept.
    pub ledger: Option<Ledger>,
    /// Of transfers, if the bank was, and its accounts are known.
    pub bank: Option<Bank>,
    /// Of the transactions of TPC-B, if these were the load.
    pub tpcb: Option<Tpcb>,
    /// Of what nothing is lost by: order and isolation.
    pub others: Vec<Box<dyn Checker>>,
}

/// In the place of a checker that lacks what it judges by, with the reason.
struct Without(&'static str, String);

impl Checker for Without {
    fn name(&self) -> &'static str {
        self.0
    }

    fn check(&self, _: &Observation) -> Finding {
        let mut finding = Finding::new(self.name());
        finding.at_least(Verdict::Unknown);
        finding.summary.clone_from(&self.1);
        finding
    }
}

/// Accounts that are believed in without a balance read from any of them: about 100 MB for a judge.
const UNREAD: u64 = 1_000_000;
/// For each balance that was read, that many accounts are believed in besides.
const FOR_EACH_READ: u64 = 4;

impl Evidence {
    /// The checks that were asked for, or those that the history is for. The ledger judges where nothing else
    /// does.
    fn checks(&self, history: &History) -> Vec<Check> {
        if !self.checks.is_empty() {
            return self.checks.clone();
        }
        let has = |of: &dyn Fn(&Op) -> bool| history.entries.iter().any(|entry| of(&entry.op));
        let bank = self.accounts.is_some() || has(&|op| matches!(op, Op::Transfer { .. } | Op::ReadBalances));
        let isolation = has(&|op| matches!(op, Op::Transaction { .. }));
        let keys = !self.keys.is_empty() || has(&|op| op.written().is_some());
        let register = has(&|op| matches!(op, Op::Read { .. }));
        let all = [
            (keys || !(bank || isolation || register), Check::Ledger),
            (bank, Check::Bank),
            (register, Check::Register),
            (isolation, Check::Isolation),
        ];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, check)| check).collect()
    }

    /// Why `accounts` are not believed in: a judge makes each of them in memory before it compares anything,
    /// and a damaged file can claim any number.
    fn too_many(&self, accounts: u64, history: &History) -> Option<String> {
        let snapshots = history.entries.iter().map(|entry| match &entry.answer {
            Returned::Balances(balances) => balances.len(),
            _ => 0,
        });
        let read =
            self.bank.iter().map(|scan| scan.balances.len()).chain(snapshots).max().unwrap_or(0) as u64;
        (accounts > UNREAD.saturating_add(read.saturating_mul(FOR_EACH_READ))).then(|| {
            format!("{accounts} accounts are claimed and {read} were read: too few to judge the others by")
        })
    }

    pub(super) fn judges(&self, history: &History) -> Result<Judges, BankError> {
        let checks = self.checks(history);
        let exposure = self.exposure.clone().unwrap_or_default();
        let mut judges = Judges { ledger: None, bank: None, tpcb: None, others: vec![] };
        if let Some(loaded) = &self.loaded {
            judges.others.push(Box::new(loaded.clone()));
        }
        for check in checks {
            match (check, self.accounts) {
                (Check::Ledger, _) => {
                    judges.ledger = Some(Ledger { exposure: exposure.clone(), ..Ledger::default() });
                }
                (Check::Bank, Some(accounts)) => {
                    let data = BankData::new(accounts)?;
                    if let Some(reason) = self.too_many(accounts.accounts, history) {
                        judges.others.push(Box::new(Without("bank", reason)));
                        continue;
                    }
                    let accounts = (0..data.spec().accounts).map(|n| data.account(n));
                    let mut bank = Bank::new(accounts.map(|account| (account.place, account.balance)));
                    bank.exposure = exposure.clone();
                    judges.bank = Some(bank);
                }
                (Check::Bank, None) => {
                    let reason = "the accounts were not kept, nor read after the run, so nothing is known";
                    judges.others.push(Box::new(Without("bank", reason.into())));
                }
                (Check::Tpcb, _) => match &self.scripts {
                    Some(scripts) => judges.tpcb = Some(self.tpcb(scripts, exposure.clone())),
                    None => {
                        let reason = "what was run was not kept, so nothing is known";
                        judges.others.push(Box::new(Without("tpcb", reason.into())));
                    }
                },
                (Check::Register, _) => judges.others.push(Box::new(Register)),
                (Check::Isolation, _) => {
                    let claimed = self.claimed.unwrap_or(Model::ReadCommitted);
                    judges.others.push(Box::new(Isolation { claimed }));
                }
            }
        }
        Ok(judges)
    }

    /// The judge of what these scripts did.
    fn tpcb(&self, scripts: &Scripts, exposure: Exposure) -> Tpcb {
        let scripts = Arc::new(scripts.clone());
        let scale = Run::new(scripts.clone(), 0).integer("scale").unwrap_or(1);
        let counts = Counts::at(u64::try_from(scale).unwrap_or(1));
        Tpcb { scripts, counts, exposure }
    }

    /// Does something with all that was seen, which is this and `history`.
    pub(super) fn with<R>(&mut self, history: History, act: impl FnOnce(&Observation) -> R) -> R {
        let seen = Observation {
            history,
            injections: std::mem::take(&mut self.injections),
            keys: std::mem::take(&mut self.keys),
            bank: std::mem::take(&mut self.bank),
            lists: std::mem::take(&mut self.lists),
            tpcb: std::mem::take(&mut self.tpcb),
        };
        let result = act(&seen);
        let Observation { injections, keys, bank, lists, tpcb, .. } = seen;
        (self.injections, self.keys, self.bank, self.lists) = (injections, keys, bank, lists);
        self.tpcb = tpcb;
        result
    }

    /// What the way back from the faults says.
    pub(super) fn of_aftermath(&self) -> impl Iterator<Item = Finding> {
        self.aftermath.iter().map(|aftermath| aftermath.finding(&self.injections))
    }

    /// Judges `history` by this.
    ///
    /// # Errors
    /// Accounts of which no bank can be made.
    pub fn judge(mut self, history: History) -> Result<Judgement, BankError> {
        let judges = self.judges(&history)?;
        let mut checkers: Vec<&dyn Checker> = Vec::new();
        checkers.extend(judges.ledger.iter().map(|ledger| ledger as &dyn Checker));
        checkers.extend(judges.bank.iter().map(|bank| bank as &dyn Checker));
        checkers.extend(judges.tpcb.iter().map(|tpcb| tpcb as &dyn Checker));
        checkers.extend(judges.others.iter().map(Box::as_ref));
        let mut judgement = self.with(history, |seen| judge(&checkers, seen));
        for finding in self.of_aftermath() {
            judgement.verdict = judgement.verdict.max(finding.verdict);
            judgement.findings.push(finding);
        }
        Ok(judgement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Source;
    use crate::units::Tick;

    #[test]
    fn accounts_that_nobody_could_have_read_are_not_made() {
        let judged = |accounts: u64, read: u64| {
            let spec = BankSpec { accounts, ..BankSpec::default() };
            let balances = (0..read).map(|place| (place, Some(1))).collect();
            let (source, at) = (Source::Survivors, Tick(9));
            let scan = BankScan { source, pass: 1, at, balances, transfers: vec![] };
            let evidence = Evidence { accounts: Some(spec), bank: vec![scan], ..Evidence::default() };
            let findings = evidence.judge(History::assemble([])).unwrap().findings;
            findings.into_iter().find(|finding| finding.checker == "bank").unwrap()
        };
        let damaged = judged(1_000_000_000_000, 3);
        assert_eq!(damaged.verdict, Verdict::Unknown);
        assert!(
            damaged.summary.contains("1000000000000 accounts are claimed and 3 were read"),
            "{damaged:?}"
        );
        // A database that lost most of its accounts is convicted all the same.
        let lost = judged(2_000, 3);
        assert!(lost.verdict == Verdict::Invalid && lost.counted("missing account") > 1_000, "{lost:?}");
    }
}
