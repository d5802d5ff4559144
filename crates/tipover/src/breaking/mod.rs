//! Trials that break something: a cluster of our own under load, faults by schedule, recovery, and the
//! question whether everything that was acknowledged is still there.
//!
//! load → faults → undo → every node follows → read twice from the survivors and from each replica → judge
//!
//! The history is kept by the clients, in this process, which no fault reaches.

mod clients;
mod cluster;
mod places;
mod server;

pub use server::serve;

use crate::clock::Clock;
use crate::in_words;
use crate::machine;
use crate::trial::{Interrupt, Surroundings, provenance};
use anyhow::{Context, Result};
use clients::{Client, Log, Role, Shared};
use cluster::Running;
use places::{Place, Places};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{
    Bank, BankScan, Broken, Carried, Event, History, KeyScan, Ledger, Observation, Source,
};
use tipover_core::experiment::{BreakSpec, Check, Spec, Trial, redact};
use tipover_core::record::{self, FORMAT, Phase, Record};
use tipover_core::schedule::Undo;
use tipover_core::target::{BankRows, TargetError};
use tipover_core::units::{Bytes, Tick};
use tipover_core::workload::Random;
use tipover_core::workload::bank::{Bank as BankData, BankSpec};
use tipover_lab::{Conductor, Policy};

/// A server that answers may still recover; what it cannot give after so long it does not have.
const PATIENCE: Duration = Duration::from_secs(30);
/// What an open session still fails to give after so long, it does not have: recovery is over by then.
const RECOVERED: Duration = Duration::from_secs(5);
/// How long after the length of the plan undoing may take before the clients stop without it.
const UNDO: Duration = Duration::from_secs(120);

/// The cluster of the trials before, kept for the next one of the same cell.
#[derive(Default)]
pub struct Laboratory {
    running: Option<Running>,
}

/// What a trial leaves besides its record.
pub struct Kept {
    /// The record.
    pub record: Record,
    /// What the clients saw.
    pub history: Vec<Event>,
}

/// Carries out one trial. What the laboratory could not do is a record too, with its reason.
///
/// # Errors
/// An interrupt.
pub fn carry_out(laboratory: &mut Laboratory, trial: &Trial<'_>, context: &Surroundings<'_>) -> Result<Kept> {
    let clock = Clock::start();
    let mut record = Record {
        format: FORMAT,
        experiment: context.experiment.into(),
        sweep: trial.cell.sweep.clone(),
        cell: trial.cell.id(),
        labels: trial.cell.labels.clone(),
        repeat: trial.repeat,
        twin: trial.twin,
        seed: trial.seed(context.seed),
        spec: trial.cell.spec.clone(),
        provenance: provenance(context, Duration::ZERO),
        verdict: record::Verdict::Valid,
        machine: serde_json::to_value(machine::Facts::read(context.work))?,
        missed: context.missed.to_vec(),
        target: Default::default(),
        disk: Default::default(),
        phases: vec![],
        measured: None,
        canaries: vec![],
        checked: None,
        broken: None,
    };
    let run = Run { spec: &trial.cell.spec, seed: record.seed, clock, context };
    let mut history = vec![];
    match run.whole(laboratory, &mut record, &mut history) {
        Ok(broken) => {
            record.verdict = believable(&broken);
            record.broken = Some(Box::new(broken));
        }
        Err(error) if error.is::<crate::trial::Interrupted>() => return Err(error),
        Err(error) => {
            // Whatever went wrong may be the cluster's; the next trial gets a new one.
            laboratory.running = None;
            record.verdict = record::Verdict::Failed { reason: redact(&in_words(&error)) };
        }
    }
    Ok(Kept { record, history })
}

/// Whether the trial can be believed, which is not whether the database kept its word.
fn believable(broken: &Broken) -> record::Verdict {
    let reasons: Vec<String> = broken
        .problems
        .iter()
        .filter(|finding| finding.checker == "history" || finding.checker == "faults")
        .map(|finding| format!("{}: {}", finding.summary, finding.evidence.join("; ")))
        .collect();
    if reasons.is_empty() { record::Verdict::Valid } else { record::Verdict::Invalid { reasons } }
}

struct Run<'a> {
    spec: &'a Spec,
    seed: u64,
    clock: Clock,
    context: &'a Surroundings<'a>,
}

/// Everything that was read after recovery, or why it could not be.
#[derive(Default)]
struct Read {
    keys: Vec<KeyScan>,
    bank: Vec<BankScan>,
    failed: Option<String>,
}

impl Run<'_> {
    fn whole(
        &self,
        laboratory: &mut Laboratory,
        record: &mut Record,
        history: &mut Vec<Event>,
    ) -> Result<Broken> {
        let (report, interrupt) = (self.context.report, self.context.interrupt);
        let breaking = self.spec.breaking.as_ref().context("a trial of a lab has a [break] table")?;
        let begin = self.clock.now();
        let running = laboratory.of(self.spec, report)?;
        if breaking.faults.rules.iter().any(|rule| rule.fault.undo() == Undo::Heal) {
            running
                .cluster()
                .network()
                .context("a rule breaks a link, which needs a network of namespaces")?;
        }
        let mut phase = |name: &str, begin: Tick, evidence: String| {
            record.phases.push(Phase { name: name.into(), begin, end: self.clock.now(), evidence });
        };
        phase("start", begin, running.sentence());
        interrupt.check()?;

        report.doing("preparing the ledger and the bank");
        let begin = self.clock.now();
        let bank = BankData::new(BankSpec { seed: self.seed, ..breaking.bank })?;
        // A database without transactions has no bank, and need not be asked for one.
        let count = if breaking.checks.contains(&Check::Bank) { breaking.bank.accounts } else { 0 };
        let accounts: Vec<(u64, i64)> =
            (0..count).map(|n| bank.account(n)).map(|account| (account.place, account.balance)).collect();
        let first = running.writers(self.spec).into_iter().next().context("nobody takes writes")?;
        prepare(&first, &accounts)?;
        let facts = first.facts(PATIENCE)?;
        running.shape(self.spec)?;
        phase("prepare", begin, format!("empty tables and {} accounts", accounts.len()));

        report.doing("breaking under load");
        let begin = self.clock.now();
        let (logs, carried, undone) = self.load(running, breaking, &bank, interrupt)?;
        phase(
            "break",
            begin,
            format!("{} clients for {:.1} s", logs.len(), self.clock.now().since(begin).as_secs_f64()),
        );
        let mut retries = HashMap::new();
        for log in logs {
            retries.extend(log.retries);
            history.extend(log.events);
        }
        history.sort_by_key(when);

        report.doing("reading everything back");
        let begin = self.clock.now();
        // A database that does not come back has lost everything; that is a finding and no failure of ours.
        let whole = undone.and_then(|()| running.settle(PATIENCE));
        let read = self.read(running, breaking, whole.is_ok());
        let scans = read.keys.len() + read.bank.len();
        phase("read", begin, format!("{scans} readings of everything"));
        record.target = facts;
        record.target.insert("nodes".into(), running.describe().into());
        record.missed.extend(running.lost());
        let data = running.data();
        let seen = Observation {
            history: History::assemble(history.iter().cloned()),
            injections: carried.iter().map(|carried| carried.injection.clone()).collect(),
            keys: read.keys,
            bank: read.bank,
        };
        let exposure = breaking.exposure();
        let ledger = Ledger { exposure: exposure.clone(), ..Ledger::default() };
        let mut accounts = Bank::new(accounts);
        accounts.exposure = exposure;
        let wanted = |check| breaking.checks.contains(&check);
        let mut broken = Broken::judge(
            &seen,
            carried,
            wanted(Check::Ledger).then_some(&ledger),
            wanted(Check::Bank).then_some(&accounts),
            &retries,
            data,
        );
        match (read.failed, whole) {
            (None, Ok(())) => return Ok(broken),
            (Some(reason), Ok(())) => broken.did_not_come_back(&reason),
            (Some(reason), Err(error)) => {
                broken.did_not_come_back(&format!("{}; {reason}", in_words(&error)))
            }
            (None, Err(error)) => broken.node_stays_away(&in_words(&error)),
        }
        laboratory.running = None;
        Ok(broken)
    }

    /// The load with its faults; what every client saw, what was broken, and whether all could be undone.
    #[allow(clippy::type_complexity)]
    fn load(
        &self,
        running: &mut Running,
        breaking: &BreakSpec,
        bank: &BankData,
        interrupt: &Interrupt,
    ) -> Result<(Vec<Log>, Vec<Carried>, Result<()>)> {
        let names: Vec<String> = running.names();
        let timed = breaking.faults.expand(&names, breaking.length, self.seed)?;
        let last = timed.iter().map(|line| line.at).max().unwrap_or(breaking.length);
        // An empty schedule is a run in peace.
        let later = Random::new(self.seed, 7).unit();
        let jitter = if timed.is_empty() { Duration::ZERO } else { breaking.jitter.mul_f64(later) };
        let policy = Policy {
            power: tipover_core::device::PowerCut { seed: self.seed, ..breaking.power },
            failover: self.spec.lab.as_ref().map_or(Duration::ZERO, |lab| lab.failover),
        };
        let places = Places::default();
        places.set(running.writers(self.spec));
        let roles = roles(breaking, self.spec.load.sessions);
        let transferring = roles.iter().filter(|role| **role == Role::Load(Check::Bank)).count() as u64;
        let shared = Shared {
            clock: self.clock,
            places: &places,
            stop: AtomicBool::new(false),
            load: &self.spec.load,
            bank,
            transferring,
        };
        let spec = self.spec;
        std::thread::scope(|scope| {
            let started: Vec<_> = roles
                .iter()
                .enumerate()
                .map(|(number, role)| {
                    let place = roles[..number].iter().filter(|other| *other == role).count() as u64;
                    let client = Client::new(&shared, number as u32, place, *role);
                    scope.spawn(move || client.run())
                })
                .collect();
            let clock = || self.clock.now();
            let begun = Instant::now();
            let mut conductor = Conductor::new(running.cluster(), &breaking.faults, timed, policy);
            let end = breaking.length + jitter;
            // Bringing a node back can take longer than planned; the time to watch it afterwards stays.
            let (watched, mut acted) = (breaking.length.saturating_sub(last), Duration::ZERO);
            let mut undone = Ok(());
            while begun.elapsed() < end + UNDO {
                let elapsed = begun.elapsed();
                let over = elapsed >= end.max(acted + watched) && conductor.next().is_none();
                if interrupt.check().is_err() || undone.is_err() || over {
                    break;
                }
                if conductor.next().is_some_and(|next| next + jitter <= elapsed) {
                    undone = conductor.act(elapsed.saturating_sub(jitter), &clock);
                    acted = begun.elapsed();
                }
                places.set(cluster::writers(conductor.cluster(), spec));
                let next = conductor.next().map_or(end, |next| next + jitter);
                let pause = next.saturating_sub(begun.elapsed()).min(Duration::from_millis(20));
                std::thread::sleep(pause.max(Duration::from_micros(200)));
                self.context.report.share(begun.elapsed().as_secs_f64() / end.as_secs_f64());
            }
            shared.stop.store(true, Ordering::Relaxed);
            let logs = started
                .into_iter()
                .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            let (carried, finished) = conductor.finish(&clock);
            interrupt.check()?;
            Ok((logs, carried, undone.and(finished).map_err(Into::into)))
        })
    }

    /// Reads everything twice from the survivors and, if all follow, from each replica.
    fn read(&self, running: &Running, breaking: &BreakSpec, whole: bool) -> Read {
        let mut read = Read::default();
        for pass in 1..=2 {
            if pass == 2 {
                std::thread::sleep(breaking.read_again);
            }
            let sources = running.sources(self.spec).into_iter();
            for (source, place) in sources.filter(|(source, _)| whole || *source == Source::Survivors) {
                if let Err(error) = self.read_one(&mut read, breaking, pass, &source, &place) {
                    let who = match &source {
                        Source::Survivors => "the survivors".to_string(),
                        Source::Replica(name) => format!("replica {name}"),
                    };
                    read.failed = Some(format!("{who}: {error}"));
                    return read;
                }
            }
        }
        read
    }

    fn read_one(
        &self,
        read: &mut Read,
        breaking: &BreakSpec,
        pass: u32,
        source: &Source,
        place: &Place,
    ) -> Result<(), TargetError> {
        if breaking.checks.contains(&Check::Ledger) {
            let rows = patiently(place, PATIENCE, |session| session.read_ledger())?;
            read.keys.push(KeyScan { source: source.clone(), pass, at: self.clock.now(), rows });
        }
        if breaking.checks.contains(&Check::Bank) {
            let (balances, transfers): BankRows = patiently(place, PATIENCE, |session| session.read_bank())?;
            let (source, at) = (source.clone(), self.clock.now());
            read.bank.push(BankScan { source, pass, at, balances, transfers });
        }
        Ok(())
    }
}

/// The sessions' roles: shared out in turn among the checks, and one that watches the bank.
fn roles(breaking: &BreakSpec, sessions: u32) -> Vec<Role> {
    let mut roles: Vec<Role> =
        (0..sessions as usize).map(|n| Role::Load(breaking.checks[n % breaking.checks.len()])).collect();
    if breaking.checks.contains(&Check::Bank) && !breaking.snapshots.is_zero() {
        roles.push(Role::Watch(breaking.snapshots));
    }
    roles
}

fn when(event: &Event) -> Tick {
    match event {
        Event::Intent(intent) => intent.at,
        Event::Result(result) => result.at,
    }
}

fn prepare(place: &Place, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
    // Nothing is broken yet: what is refused now is refused for good.
    patiently(place, RECOVERED, |session| session.prepare(accounts))
}

/// Asks until it is answered: a server that has just come back may refuse for a while.
fn patiently<R>(
    place: &Place,
    patience: Duration,
    mut ask: impl FnMut(&mut dyn tipover_core::target::CheckSession) -> Result<R, TargetError>,
) -> Result<R, TargetError> {
    let began = Instant::now();
    loop {
        let mut answer = None;
        let opened = place.with_session(PATIENCE, &mut |session| answer = Some(ask(session)));
        let patience = if answer.is_some() { RECOVERED.min(patience) } else { patience };
        match opened.and(answer.unwrap_or_else(|| Err(TargetError::new("opening a session", "no session")))) {
            Ok(answer) => return Ok(answer),
            Err(error) if began.elapsed() > patience => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Bytes that the files below a folder take.
fn bytes_below(folder: &std::path::Path) -> Bytes {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        sum += if about.is_dir() { bytes_below(&entry.path()).0 } else { about.blocks() * 512 };
    }
    Bytes(sum)
}
