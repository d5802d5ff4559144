//! Before and after a run whose effects are checked: empty tables, snapshots meanwhile, final reads, a
//! verdict.

use crate::clock::Clock;
use crate::drive::{self, Plan};
use crate::history::{self, HistoryWriter, Pace};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::check::{BankScan, Check, Evidence, Judgement, KeyScan, ListScan, Source};
use tipover_core::experiment::{LoadSpec, Spec, TargetKind, WorkloadKind};
use tipover_core::target::{Target, TargetError};
use tipover_core::workload::bank::Bank;
use tipover_core::workload::{Dataset, Records, Snapshots};

/// How long the tables of checks are tried to be made: a cluster that has just elected may refuse for a
/// moment.
const PREPARED: Duration = Duration::from_secs(5);

/// Makes the tables anew: every account of the bank, an empty ledger, no lists. `seed` is the trial's.
///
/// # Errors
/// They cannot be made.
pub fn prepare(spec: &Spec, seed: u64, target: &dyn Target) -> Result<()> {
    let began = Instant::now();
    prepare_until(spec, seed, target, || spec.lab.is_none() || began.elapsed() > PREPARED)
}

/// The same, again and again until they are whole, or until it is given up after a failure.
///
/// # Errors
/// The last failure.
pub fn prepare_until(
    spec: &Spec,
    seed: u64,
    target: &dyn Target,
    mut gives_up: impl FnMut() -> bool,
) -> Result<()> {
    let bank = match &spec.breaking {
        // A database without transactions has no bank, and need not be asked for one.
        Some(breaking) if breaking.checks.contains(&Check::Bank) => Some(Bank::new(breaking.bank_of(seed))?),
        None if spec.workload.kind.check() == Some(Check::Bank) => Some(spec.workload.bank()?),
        _ => None,
    };
    let all = |bank: &Bank| (0..bank.spec().accounts).map(|n| bank.account(n)).collect::<Vec<_>>();
    let accounts = bank.as_ref().map_or(vec![], all);
    let accounts: Vec<(u64, i64)> = accounts.into_iter().map(|a| (a.place, a.balance)).collect();
    while let Err(error) = target.prepare(&accounts).and_then(|()| target.settle()) {
        if gives_up() {
            return Err(error.into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// A history in `path` of what sessions on the target of `spec` see.
pub fn history(spec: &Spec, path: &Path) -> Result<HistoryWriter> {
    // Whatever kills an embedded engine kills this process.
    let embedded = matches!(spec.target.kind, TargetKind::Wiredtiger | TargetKind::Guilty);
    HistoryWriter::create(path, if embedded { Pace::Through } else { Pace::Groups })
}

/// From one snapshot of all balances to the next, at least.
const SNAPSHOTS: Duration = Duration::from_secs(1);
/// The pause after a snapshot, as a multiple of its time: snapshots stay below 5 % of one session's time.
const REST: u32 = 20;
/// A bank with more accounts is not looked at as a whole while it works: a snapshot is one record.
const MOST_ACCOUNTS: u64 = 1_000_000;

/// Does `work` while one more session, client `client` of the history, works by the plan `watch`.
///
/// # Errors
/// The session cannot be opened; then nothing was done.
fn while_watching<R>(
    watch: Plan<'_>,
    history: &HistoryWriter,
    client: u32,
    work: impl FnOnce() -> R,
) -> Result<R, TargetError> {
    drive::run(&Plan { history: Some(history), client, ..watch }, |_| work())
}

/// Does `work` while the sessions that check beside the load of `spec` are at work: those that have sessions
/// of their own, and one that takes snapshots of all balances. `seed` is the trial's.
///
/// # Errors
/// A session cannot be opened; then nothing was done.
pub fn beside<R>(
    spec: &Spec,
    seed: u64,
    target: &dyn Target,
    history: &HistoryWriter,
    clock: Clock,
    work: impl FnOnce() -> R,
) -> Result<R, TargetError> {
    let records = Records::new(0);
    let client = spec.load.sessions;
    let Some(breaking) = &spec.breaking else {
        if spec.workload.kind != WorkloadKind::Bank {
            return Ok(work());
        }
        let (tables, limit) = (spec.checks(), (spec.records() > MOST_ACCOUNTS).then_some(1));
        let watch = Plan::closed(target, &tables, &Snapshots, &records, 1, clock);
        return while_watching(Plan { think: SNAPSHOTS, rest: REST, limit, ..watch }, history, client, work);
    };
    let bank = Arc::new(Bank::new(breaking.bank_of(seed)).expect("it was checked"));
    let tables = Dataset::checks(bank);
    let snapshots = Plan::closed(target, &tables, &Snapshots, &records, 1, clock);
    let snapshots = Plan { think: breaking.snapshots, ..snapshots };
    // Nobody looks at a bank that is not there.
    let sees = breaking.checks.contains(&Check::Bank) && !breaking.snapshots.is_zero();
    let snapshots = Plan { limit: (!sees).then_some(0), ..snapshots };
    if breaking.sessions == 0 {
        return while_watching(snapshots, history, client, work);
    }
    let (dataset, split) = breaking.load_of(breaking.sessions, seed).expect("it was checked");
    let load = LoadSpec { sessions: breaking.sessions, arrivals: None, ..spec.load.clone() };
    let own = Records::new(0);
    let plan = Plan::closed(target, &dataset, &split, &own, 1, clock).with(&load, seed);
    let after = client + breaking.sessions;
    while_watching(plan, history, client, || while_watching(snapshots, history, after, work))?
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
            Check::Tpcb => anyhow::bail!("TPC-B is checked by break.checks alone"),
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
        prepare(&spec, 1, target.as_ref()).unwrap();
        let writer = history(&spec, &path).unwrap();
        let plan = Plan::closed(target.as_ref(), &dataset, workload.as_ref(), &records, 4, clock)
            .with(&spec.load, 1);
        let plan = Plan { history: Some(&writer), limit: Some(operations), ..plan };
        drive::run(&plan, |sessions| {
            let ends = || assert!(sessions.wait(Duration::from_secs(60)), "the sessions do not end");
            match kind {
                "bank" => {
                    beside(&spec, 1, target.as_ref(), &writer, clock, ends).unwrap();
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
