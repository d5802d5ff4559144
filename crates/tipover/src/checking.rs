//! Before and after a run whose effects are checked: empty tables, snapshots meanwhile, final reads, a
//! verdict.

use crate::clock::Clock;
use crate::history::{self, HistoryWriter, Pace};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{BankScan, Evidence, Judgement, KeyScan, Operation, Source};
use tipover_core::experiment::{Spec, TargetKind, WorkloadKind};
use tipover_core::target::Target;

/// Makes the tables anew: every account of the bank, and an empty ledger.
pub fn prepare(spec: &Spec, target: &dyn Target) -> Result<()> {
    let mut accounts = Vec::new();
    if spec.workload.kind == WorkloadKind::Bank {
        let bank = spec.workload.bank()?;
        accounts.extend((0..bank.spec().accounts).map(|n| bank.account(n)).map(|a| (a.place, a.balance)));
    }
    target.open_checks()?.prepare(&accounts)?;
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
const MOST_ACCOUNTS: usize = 1_000_000;

/// Does `work` while client `client` reads all balances from time to time.
pub fn while_watching<R>(
    target: &dyn Target,
    history: &HistoryWriter,
    client: u32,
    clock: &Clock,
    work: impl FnOnce() -> R,
) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(target, history, client, clock, &over));
        // Also when the work panics, or the scope would wait for ever.
        let _over = Over(&over);
        work()
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn watch(target: &dyn Target, history: &HistoryWriter, client: u32, clock: &Clock, over: &AtomicBool) {
    let Ok(mut checks) = target.open_checks() else { return };
    for sequence in 1.. {
        let begin = clock.now();
        history.intend(client, sequence, begin, Operation::ReadBalances);
        let (outcome, answer) = checks.execute(&Operation::ReadBalances);
        let end = clock.now();
        let accounts = if let tipover_core::check::Answer::Balances(all) = &answer { all.len() } else { 0 };
        history.complete(client, sequence, end, outcome, answer);
        let next = Instant::now() + SNAPSHOTS.max(end.since(begin) * REST);
        while accounts > MOST_ACCOUNTS || Instant::now() < next {
            if over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
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
    let mut checks = target.open_checks()?;
    let mut found = Evidence::default();
    for pass in 1..=2 {
        match spec.workload.kind {
            WorkloadKind::Bank => {
                let (balances, transfers) = checks.read_bank()?;
                let at = clock.now();
                found.accounts = Some(*spec.workload.bank()?.spec());
                found.bank.push(BankScan { source: Source::Survivors, pass, at, balances, transfers });
            }
            _ => {
                let rows = checks.read_ledger()?;
                found.keys.push(KeyScan { source: Source::Survivors, pass, at: clock.now(), rows });
            }
        }
    }
    history::keep_evidence(evidence, &found)?;
    let kept = history::read(path)?;
    found.judge(kept.history).context("judging the history")
}

/// Culprits and honest ones through the whole path: sessions → history → restart → final reads → verdict.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{self, Plan};
    use tipover_core::check::Verdict;
    use tipover_core::experiment::Experiment;
    use tipover_core::op::{Fields, Op};
    use tipover_core::workload::{Records, Workload};

    fn spec(kind: &str, settings: &str) -> Spec {
        let plan = format!(
            "name = \"t\"\ntitle = \"\"\nquestion = \"\"\nwhy = \"\"\nhow_to_read = \"\"\nrepeats = 1\n\
             [target]\nkind = \"guilty\"\n[target.settings]\n{settings}\n\
             [workload]\nkind = \"{kind}\"\n[load]\nsessions = 4\nretries = 50\n[[sweep]]\nname = \"s\"\n\
             question = \"\"\n[[sweep.axis]]\nname = \"a\"\nsets = \"load.sessions\"\nvalues = [4]\n[scale.quick]\n"
        );
        Experiment::parse(&plan, "quick", &[]).unwrap().sweeps[0].cells[0].spec.clone()
    }

    /// Each client writes versions of a key of its own, and reads another one's.
    struct Registers;

    impl Workload for Registers {
        fn op(&self, n: u64, _: &Records) -> Op {
            let (client, turn) = (n % 4, n / 4);
            match turn % 2 {
                0 => Op::Update { record: client, fields: Fields::All, version: turn / 2 + 1 },
                _ => Op::Read { record: (client + 1) % 4, fields: Fields::All },
            }
        }
    }

    /// The verdict on a run of `operations`, with a restart before the final reads.
    fn verdict(kind: &str, settings: &str, operations: u64, registers: bool) -> Judgement {
        let folder = tempfile::tempdir().unwrap();
        let (path, spec) = (folder.path().join(history::HISTORY), spec(kind, settings));
        let (dataset, workload) = spec.load_of(1);
        let workload = if registers { &Registers as &dyn Workload } else { workload.as_ref() };
        let (records, clock) = (Records::new(0), Clock::start());
        let target = tipover_targets::start(&spec, folder.path()).unwrap();
        prepare(&spec, target.as_ref()).unwrap();
        let writer = history(&spec, &path).unwrap();
        let plan = Plan::closed(target.as_ref(), &dataset, workload, &records, 4, clock).with(&spec.load, 1);
        let plan = Plan { history: Some(&writer), limit: Some(operations), ..plan };
        drive::run(&plan, |sessions| {
            let ends = || assert!(sessions.wait(Duration::from_secs(60)), "the sessions do not end");
            match kind {
                "bank" => while_watching(target.as_ref(), &writer, 4, &clock, ends),
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
    fn convicts(kind: &str, settings: &str, registers: bool, of: &[&str]) {
        let judgement = verdict(kind, settings, 400, registers);
        assert_eq!(judgement.verdict, Verdict::Invalid, "{settings}: {}", judgement.summary());
        for what in of {
            let counted: u64 = judgement.findings.iter().map(|finding| finding.counted(what)).sum();
            assert!(counted > 0, "{settings}: no {what} in {:?}", judgement.findings);
        }
    }

    #[test]
    fn honest_ones_are_acquitted_and_what_they_refuse_is_no_crime() {
        for (kind, settings, registers) in [
            ("ledger", "", false),
            ("ledger", "", true),
            ("bank", "", false),
            ("ledger", "conflicts = \"30 %\"", false),
            ("bank", "conflicts = \"30 %\"", false),
        ] {
            let judgement = verdict(kind, settings, 400, registers);
            assert_eq!(judgement.verdict, Verdict::Valid, "{kind} {settings}: {judgement:?}");
        }
    }

    #[test]
    fn writes_that_are_lost_late_or_rolled_back_are_missed() {
        convicts("ledger", "lost_updates = \"5 %\"", false, &["LOST", "HOLE"]);
        convicts("ledger", "flush_later = \"1 h\"", false, &["LOST"]);
        convicts("ledger", "rolled_back = \"20\"", false, &["LOST"]);
        convicts("ledger", "stale_reads = \"20 %\"", true, &[]);
    }

    #[test]
    fn transfers_that_are_lost_torn_doubled_or_rolled_back_are_missed() {
        convicts("bank", "lost_updates = \"5 %\"", false, &["LOST"]);
        // It happened, was called a conflict, and its second try finds its id used.
        convicts("bank", "phantom_writes = \"5 %\"", false, &["PHANTOM"]);
        convicts("bank", "retried_twice = \"5 %\"", false, &["DOUBLED"]);
        convicts("bank", "flush_later = \"1 h\"", false, &["LOST"]);
        convicts("bank", "rolled_back = \"20\"", false, &["LOST"]);
        convicts("bank", "dirty_reads = \"100 %\"\nservice = \"15 ms\"", false, &["wrong total"]);
    }
}
