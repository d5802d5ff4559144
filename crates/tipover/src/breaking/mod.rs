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
use crate::foresight::NEEDS_NETWORK;
use crate::in_words;
use crate::machine;
use crate::trial::{Interrupt, Surroundings, provenance};
use anyhow::{Context, Result};
use clients::{Client, Log, Role, Shared, lists_after};
use cluster::Running;
use places::{Place, Places};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{
    Aftermath, Answer, BankScan, Broken, Carried, Event, Evidence, History, KeyScan, ListScan, Operation,
    Source, Step,
};
use tipover_core::experiment::{BreakSpec, Check, Spec, Trial, redact};
use tipover_core::op::{Failure, Outcome};
use tipover_core::record::{self, FORMAT, Phase, Record};
use tipover_core::schedule::Undo;
use tipover_core::target::{BankRows, TargetError};
use tipover_core::units::{Bytes, Tick};
use tipover_core::workload::Random;
use tipover_core::workload::bank::{Bank as BankData, BankSpec};
use tipover_lab::recipe::ServerError;
use tipover_lab::{Conductor, Policy};

/// A server that answers may still recover; what it cannot give after so long it does not have.
const PATIENCE: Duration = Duration::from_secs(30);
/// A replica that fell behind under load catches up without: one transaction and its flush after the other.
const FOLLOWS: Duration = Duration::from_secs(90);
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
    /// What it was judged by besides; absent where it could not be carried out.
    pub evidence: Option<Evidence>,
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
    let run = Run { spec: &trial.cell.spec, repeat: trial.repeat, seed: record.seed, clock, context };
    let (mut history, mut evidence) = (vec![], None);
    match run.whole(laboratory, &mut record, &mut history) {
        Ok((broken, judged_by)) => {
            record.verdict = believable(&broken);
            record.broken = Some(Box::new(broken));
            evidence = Some(judged_by);
        }
        Err(error) => {
            // Whatever else went wrong then is only what being in a hurry does.
            context.interrupt.check()?;
            // Whatever went wrong may be the cluster's; the next trial gets a new one.
            laboratory.running = None;
            record.verdict = record::Verdict::Failed { reason: redact(&in_words(&error)) };
        }
    }
    Ok(Kept { record, history, evidence })
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
    repeat: u32,
    seed: u64,
    clock: Clock,
    context: &'a Surroundings<'a>,
}

/// What the load with its faults brought.
struct Loaded {
    /// What every client saw.
    logs: Vec<Log>,
    /// What was broken.
    carried: Vec<Carried>,
    /// Whether all could be undone.
    undone: Result<()>,
    /// So many lists were appended to, from 0 on.
    lists: u64,
}

/// Everything that was read after recovery, or why it could not be.
#[derive(Default)]
struct Read {
    keys: Vec<KeyScan>,
    bank: Vec<BankScan>,
    lists: Vec<ListScan>,
    failed: Option<String>,
}

impl Run<'_> {
    fn whole(
        &self,
        laboratory: &mut Laboratory,
        record: &mut Record,
        history: &mut Vec<Event>,
    ) -> Result<(Broken, Evidence)> {
        let (report, interrupt) = (self.context.report, self.context.interrupt);
        let breaking = self.spec.breaking.as_ref().context("a trial of a lab has a [break] table")?;
        let begin = self.clock.now();
        let running = laboratory.of(self.spec, self.context.work, report)?;
        if breaking.faults.rules.iter().any(|rule| rule.fault.undo() == Undo::Heal) {
            running.cluster().network().context(NEEDS_NETWORK)?;
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
        running.shape()?;
        phase("prepare", begin, format!("empty tables and {} accounts", accounts.len()));

        report.doing("breaking under load");
        let begin = self.clock.now();
        let Loaded { logs, carried, undone, lists } = self.load(running, breaking, &bank, interrupt)?;
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
        // A node that did not catch up under load is waited for once more without.
        let (whole, late) = match undone {
            Ok(()) => (running.settle(FOLLOWS), None),
            Err(error) if running.all_run() && running.settle(FOLLOWS).is_ok() => {
                (Ok(()), Some(in_words(&error)))
            }
            Err(error) => (Err(error), None),
        };
        let read = self.read(running, breaking, lists, whole.is_ok());
        let scans = read.keys.len() + read.bank.len() + read.lists.len();
        phase("read", begin, format!("{scans} readings of everything"));
        record.target = facts;
        record.target.insert("nodes".into(), running.describe().into());
        record.missed.extend(running.lost());
        let data = running.data();
        let away = match (read.failed, whole) {
            (None, Ok(())) => None,
            (Some(reason), Ok(())) => Some(Aftermath::DidNotComeBack(reason)),
            (Some(reason), Err(error)) => {
                let reason = format!("{}; {reason}", in_words(&error));
                Some(match is_late(&error) {
                    true => Aftermath::NotBackInTime(reason),
                    false => Aftermath::DidNotComeBack(reason),
                })
            }
            (None, Err(error)) => Some(Aftermath::NodeStaysAway(in_words(&error))),
        };
        if away.is_some() {
            laboratory.running = None;
        }
        let mut evidence = Evidence {
            checks: breaking.checks.clone(),
            exposure: Some(breaking.exposure()),
            claimed: breaking.isolation,
            injections: carried.iter().map(|carried| carried.injection.clone()).collect(),
            aftermath: late.map(Aftermath::NodeCameLate).into_iter().chain(away).collect(),
            keys: read.keys,
            accounts: breaking.checks.contains(&Check::Bank).then_some(*bank.spec()),
            bank: read.bank,
            lists: read.lists,
        };
        let history = History::assemble(history.iter().cloned());
        let broken = Broken::judge(history, &mut evidence, carried, &retries, data)?;
        Ok((broken, evidence))
    }

    /// The load with its faults.
    fn load(
        &self,
        running: &mut Running,
        breaking: &BreakSpec,
        bank: &BankData,
        interrupt: &Interrupt,
    ) -> Result<Loaded> {
        let names: Vec<String> = running.names();
        let timed = breaking.faults.expand(&names, breaking.length, self.seed)?;
        let last = timed.iter().map(|line| line.at).max().unwrap_or(breaking.length);
        // An empty schedule is a run in peace.
        let later = Random::new(self.seed, 7).unit();
        let jitter = if timed.is_empty() { Duration::ZERO } else { breaking.jitter.mul_f64(later) };
        let policy = Policy {
            power: breaking.power.seeded(self.seed),
            turn: self.repeat,
            failover: self.spec.lab.as_ref().map_or(Duration::ZERO, |lab| lab.failover),
        };
        let places = Places::default();
        places.set(running.writers(self.spec));
        let roles = roles(breaking, self.spec.load.sessions);
        let number = |check| roles.iter().filter(|role| **role == Role::Load(check)).count();
        let shared = Shared {
            clock: self.clock,
            places: &places,
            stop: AtomicBool::new(false),
            load: &self.spec.load,
            bank,
            transferring: number(Check::Bank) as u64,
            registers: (0..number(Check::Register)).map(|_| AtomicU64::new(0)).collect(),
            lists: AtomicU64::new(0),
            seed: self.seed,
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
            let lists = lists_after(shared.lists.load(Ordering::Relaxed));
            Ok(Loaded { logs, carried, undone: undone.and(finished).map_err(Into::into), lists })
        })
    }

    /// Reads all lists; none where the target has no lists, for then nobody appended anything either.
    fn read_lists(&self, lists: u64, pass: u32, place: &Place) -> Result<Option<ListScan>, TargetError> {
        const AT_ONCE: usize = 100;
        let keys: Vec<u64> = (0..lists).collect();
        let mut found: Vec<(u64, Vec<u64>)> = Vec::new();
        for keys in keys.chunks(AT_ONCE) {
            let operation =
                Operation::Transaction { steps: keys.iter().map(|&key| Step::Read { key }).collect() };
            let answer = patiently(place, PATIENCE, |session| match session.execute(&operation) {
                (Outcome::Done, Answer::Lists(lists)) => Ok(Some(lists)),
                (Outcome::Refused(Failure::Unsupported), _) => Ok(None),
                (outcome, _) => Err(TargetError::new("reading the lists", format!("{outcome:?}"))),
            })?;
            let Some(lists) = answer else { return Ok(None) };
            let read = keys.iter().zip(lists).filter_map(|(key, list)| Some((*key, list?)));
            found.extend(read);
        }
        let (source, at) = (Source::Survivors, self.clock.now());
        Ok(Some(ListScan { source, pass, at, lists: found }))
    }

    /// Reads everything twice from the survivors and, if all follow, from each replica.
    fn read(&self, running: &Running, breaking: &BreakSpec, lists: u64, whole: bool) -> Read {
        let mut read = Read::default();
        for pass in 1..=2 {
            if pass == 2 {
                std::thread::sleep(breaking.read_again);
            }
            let sources = running.sources(self.spec).into_iter();
            for (source, place) in sources.filter(|(source, _)| whole || *source == Source::Survivors) {
                if let Err(error) = self.read_one(&mut read, breaking, lists, (pass, &source), &place) {
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
        lists: u64,
        (pass, source): (u32, &Source),
        place: &Place,
    ) -> Result<(), TargetError> {
        if breaking.checks.contains(&Check::Ledger) || breaking.checks.contains(&Check::Register) {
            let rows = patiently(place, PATIENCE, |session| session.read_ledger())?;
            read.keys.push(KeyScan { source: source.clone(), pass, at: self.clock.now(), rows });
        }
        if breaking.checks.contains(&Check::Bank) {
            let (balances, transfers): BankRows = patiently(place, PATIENCE, |session| session.read_bank())?;
            let (source, at) = (source.clone(), self.clock.now());
            read.bank.push(BankScan { source, pass, at, balances, transfers });
        }
        // Of a replica, no session is asked for transactions.
        if breaking.checks.contains(&Check::Isolation) && *source == Source::Survivors {
            read.lists.extend(self.read_lists(lists, pass, place)?);
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

/// Whether a server was still on its way when nobody waited any longer, and had not given up itself.
fn is_late(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(ServerError::NotReady { .. })))
}
