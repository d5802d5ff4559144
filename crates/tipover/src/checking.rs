//! Before and after a run whose effects are checked: empty tables, snapshots meanwhile, final reads, a
//! verdict.

use crate::clock::Clock;
use crate::drive::{self, Plan};
use crate::history::{self, HistoryWriter, Pace};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;
use tipover_core::check::{BankScan, Check, Evidence, Judgement, KeyScan, ListScan, Source};
use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::target::{Target, TargetError};
use tipover_core::workload::{Records, Snapshots};

/// Makes the tables anew: every account of the bank, an empty ledger, no lists.
pub fn prepare(spec: &Spec, target: &dyn Target) -> Result<()> {
    let mut accounts = Vec::new();
    if spec.workload.kind.check() == Some(Check::Bank) {
        let bank = spec.workload.bank()?;
        accounts.extend((0..bank.spec().accounts).map(|n| bank.account(n)).map(|a| (a.place, a.balance)));
    }
    target.prepare(&accounts)?;
    Ok(target.settle()?)
}

/// A history in `path` of what sessions on the target of `spec` see.
pub fn history(spec: &Spec, path: &Path) -> Result<HistoryWriter> {
    // Whatever kills an embedded engine kills this process.
    let embedded = matches!(spec.target.kind, TargetKind::Wiredtiger | TargetKind::Guilty);
    HistoryWriter::create(path, if embedded { Pace::Through } else { Pace::Groups })
}

/// From one snapshot of all balances to the next, at least.
const SNAPSHOTS: Duration = Duration::from_secs(1);
/// So many times as long as a snapshot takes, none is taken: they stay below 5 % of one session's time.
const REST: u32 = 20;
/// A bank with more accounts is not looked at as a whole while it works: a snapshot is one record.
const MOST_ACCOUNTS: u64 = 1_000_000;

/// Does `work` while one more session, client `client` of the history, works by the plan `watch`.
///
/// # Errors
/// The session cannot be opened; then nothing was done.
pub fn while_watching<R>(
    watch: Plan<'_>,
    history: &HistoryWriter,
    client: u32,
    work: impl FnOnce() -> R,
) -> Result<R, TargetError> {
    drive::run(&Plan { history: Some(history), client, ..watch }, |_| work())
}

/// Does `work` while client `client` reads all balances of the bank of `spec` from time to time.
///
/// # Errors
/// Its session cannot be opened; then nothing was done.
pub fn while_reading_balances<R>(
    spec: &Spec,
    target: &dyn Target,
    history: &HistoryWriter,
    client: u32,
    clock: Clock,
    work: impl FnOnce() -> R,
) -> Result<R, TargetError> {
    let (tables, records) = (spec.checks(), Records::new(0));
    let limit = (spec.records() > MOST_ACCOUNTS).then_some(1);
    let watch = Plan::closed(target, &tables, &Snapshots, &records, 1, clock);
    while_watching(Plan { think: SNAPSHOTS, rest: REST, limit, ..watch }, history, client, work)
}

/// Reads back what the operations of the history in `path` were to change, keeps that in `evidence`, and
/// judges.
pub fn check(
    spec: &Spec,
    target: &dyn Target,
    clock: &Clock,
    path: &Path,
    evidence: &Path,
) -> Result<Judgement> {
    let check = spec.workload.kind.check().context("a workload that is checked")?;
    let mut found = Evidence { checks: vec![check], ..Evidence::default() };
    let kept = history::read(path)?;
    for pass in 1..=2 {
        let source = Source::Survivors;
        match check {
            Check::Bank => {
                let (balances, transfers) = target.read_bank()?;
                found.accounts = Some(*spec.workload.bank()?.spec());
                found.bank.push(BankScan { source, pass, at: clock.now(), balances, transfers });
            }
            Check::Isolation => {
                let lists = target.read_lists()?;
                let mut scan = ListScan { source, pass, at: clock.now(), lists };
                scan.complete(&kept.history);
                found.lists.push(scan);
            }
            Check::Ledger | Check::Register => {
                let rows = target.read_keys()?;
                found.keys.push(KeyScan { source, pass, at: clock.now(), rows });
            }
        }
    }
    history::keep_evidence(evidence, &found)?;
    found.judge(kept.history).context("judging the history")
}

/// Culprits and honest ones through the whole path: sessions → history → restart → final reads → verdict.
#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::check::Verdict;
    use tipover_core::experiment::Experiment;

    fn spec(kind: &str, settings: &str) -> Spec {
        let plan = format!(
            "name = \"t\"\ntitle = \"\"\nquestion = \"\"\nwhy = \"\"\nhow_to_read = \"\"\nrepeats = 1\n\
             [target]\nkind = \"guilty\"\n[target.settings]\n{settings}\n\
             [workload]\nkind = \"{kind}\"\n[load]\nsessions = 4\nretries = 50\n[[sweep]]\nname = \"s\"\n\
             question = \"\"\n[[sweep.axis]]\nname = \"a\"\nsets = \"load.sessions\"\nvalues = [4]\n[scale.quick]\n"
        );
        Experiment::parse(&plan, "quick", &[]).unwrap().sweeps[0].cells[0].spec.clone()
    }

    /// The verdict on a run of `operations`, with a restart before the final reads.
    fn verdict(kind: &str, settings: &str, operations: u64) -> Judgement {
        let folder = tempfile::tempdir().unwrap();
        let (path, spec) = (folder.path().join(history::HISTORY), spec(kind, settings));
        let (dataset, workload) = spec.load_of(1);
        let (records, clock) = (Records::new(0), Clock::start());
        let target = tipover_targets::start(&spec, folder.path()).unwrap();
        prepare(&spec, target.as_ref()).unwrap();
        let writer = history(&spec, &path).unwrap();
        let plan = Plan::closed(target.as_ref(), &dataset, workload.as_ref(), &records, 4, clock)
            .with(&spec.load, 1);
        let plan = Plan { history: Some(&writer), limit: Some(operations), ..plan };
        drive::run(&plan, |sessions| {
            let ends = || assert!(sessions.wait(Duration::from_secs(60)), "the sessions do not end");
            match kind {
                "bank" => {
                    while_reading_balances(&spec, target.as_ref(), &writer, 4, clock, ends).unwrap();
                }
                _ => ends(),
            }
        })
        .unwrap();
        writer.finish().unwrap();
        drop(target);
        let target = tipover_targets::start(&spec, folder.path()).unwrap();
        let evidence = folder.path().join(history::EVIDENCE);
        let judgement = check(&spec, target.as_ref(), &clock, &path, &evidence).unwrap();
        let history::JudgedAgain { judgement: again, torn, .. } =
            history::judge_again(folder.path()).unwrap();
        assert_eq!((again.verdict, again.summary(), torn), (judgement.verdict, judgement.summary(), 0));
        judgement
    }

    #[track_caller]
    fn convicts(kind: &str, settings: &str, of: &[&str]) {
        let judgement = verdict(kind, settings, 400);
        assert_eq!(judgement.verdict, Verdict::Invalid, "{settings}: {}", judgement.summary());
        for what in of {
            let counted: u64 = judgement.findings.iter().map(|finding| finding.counted(what)).sum();
            assert!(counted > 0, "{settings}: no {what} in {:?}", judgement.findings);
        }
    }

    #[test]
    fn honest_ones_are_acquitted_and_what_they_refuse_is_no_crime() {
        for (kind, settings) in [
            ("ledger", ""),
            ("register", ""),
            ("bank", ""),
            ("isolation", ""),
            ("ledger", "conflicts = \"30 %\""),
            ("register", "conflicts = \"30 %\""),
            ("bank", "conflicts = \"30 %\""),
        ] {
            let judgement = verdict(kind, settings, 400);
            assert_eq!(judgement.verdict, Verdict::Valid, "{kind} {settings}: {judgement:?}");
        }
    }

    #[test]
    fn writes_that_are_lost_late_or_rolled_back_are_missed() {
        convicts("ledger", "lost_updates = \"5 %\"", &["LOST", "HOLE"]);
        convicts("ledger", "flush_later = \"1 h\"", &["LOST"]);
        convicts("ledger", "rolled_back = \"20\"", &["LOST"]);
        convicts("register", "stale_reads = \"20 %\"", &[]);
    }

    #[test]
    fn appends_that_are_lost_doubled_or_rolled_back_are_missed() {
        convicts("isolation", "lost_updates = \"10 %\"", &["LOST"]);
        convicts("isolation", "retried_twice = \"10 %\"", &[]);
        convicts("isolation", "rolled_back = \"20\"", &["LOST"]);
    }

    #[test]
    fn transfers_that_are_lost_torn_doubled_or_rolled_back_are_missed() {
        convicts("bank", "lost_updates = \"5 %\"", &["LOST"]);
        // It happened, was called a conflict, and its second try finds its id used.
        convicts("bank", "phantom_writes = \"5 %\"", &["PHANTOM"]);
        convicts("bank", "retried_twice = \"5 %\"", &["DOUBLED"]);
        convicts("bank", "flush_later = \"1 h\"", &["LOST"]);
        convicts("bank", "rolled_back = \"20\"", &["LOST"]);
        convicts("bank", "dirty_reads = \"100 %\"\nservice = \"15 ms\"", &["wrong total"]);
    }
}
