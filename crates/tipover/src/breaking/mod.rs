//! Trials that break something: a cluster of our own under load, faults by schedule, recovery, and the
//! question whether everything that was acknowledged is still there.
//!
//! load → faults → undo → every node follows → read twice from the survivors and from each replica → judge
//!
//! Sessions and their history are in this process, which no fault reaches.

mod cluster;
mod places;
mod server;

pub use server::serve;

use crate::checking;
use crate::clock::Clock;
use crate::drive::{self, Plan};
use crate::foresight::NEEDS_NETWORK;
use crate::history::{self, HistoryWriter, Pace};
use crate::in_words;
use crate::machine;
use crate::store;
use crate::trial::{Interrupt, Surroundings, provenance};
use anyhow::{Context, Result};
use cluster::Running;
use places::{Place, Places};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::check::{Aftermath, BankScan, Broken, Carried, Evidence, KeyScan, ListScan, Source};
use tipover_core::experiment::{BreakSpec, Check, Spec, Trial, redact};
use tipover_core::measure::Offered;
use tipover_core::record::{self, FORMAT, Phase, Record};
use tipover_core::schedule::Undo;
use tipover_core::target::{Target, TargetError};
use tipover_core::units::{Bytes, Tick};
use tipover_core::workload::bank::Bank as BankData;
use tipover_core::workload::{Dataset, Random, Records, Snapshots};
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

/// Carries out one trial. What the laboratory could not do is a record too, with its reason. The history and
/// what it was judged by lie where the trial is staged.
///
/// # Errors
/// An interrupt, or no place for the results.
pub fn carry_out(
    laboratory: &mut Laboratory,
    trial: &Trial<'_>,
    context: &Surroundings<'_>,
) -> Result<Record> {
    let clock = Clock::start();
    let staged = store::stage(context.results, trial)?;
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
        metrics: Default::default(),
        phases: vec![],
        measured: None,
        canaries: vec![],
        checked: None,
        broken: None,
    };
    let mut asked = trial.cell.spec.clone();
    // Accounts are called as the bank of this trial calls them.
    asked.workload.bank = asked.breaking.as_ref().map(|breaking| breaking.bank_of(record.seed));
    let run = Run {
        spec: &trial.cell.spec,
        asked: &asked,
        repeat: trial.repeat,
        seed: record.seed,
        clock,
        context,
        staged: &staged,
    };
    match run.whole(laboratory, &mut record) {
        Ok(broken) => {
            record.verdict = believable(&broken);
            record.broken = Some(Box::new(broken));
        }
        Err(error) => {
            // Whatever else went wrong then is only what being in a hurry does.
            context.interrupt.check()?;
            // Whatever went wrong may be the cluster's; the next trial gets a new one.
            laboratory.running = None;
            record.verdict = record::Verdict::Failed { reason: redact(&in_words(&error)) };
        }
    }
    Ok(record)
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
    /// The cell as its servers' targets are to know it.
    asked: &'a Spec,
    repeat: u32,
    seed: u64,
    clock: Clock,
    context: &'a Surroundings<'a>,
    /// Where the history and the evidence are written.
    staged: &'a Path,
}

/// What the load with its faults brought.
struct Loaded {
    /// What was broken.
    carried: Vec<Carried>,
    /// Whether all could be undone.
    undone: Result<()>,
    /// Of an open loop, what was to be sent and what was.
    offered: Option<Offered>,
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
    fn whole(&self, laboratory: &mut Laboratory, record: &mut Record) -> Result<Broken> {
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

        report.doing("preparing the tables of checks");
        let begin = self.clock.now();
        let bank = BankData::new(breaking.bank_of(self.seed))?;
        // A database without transactions has no bank, and need not be asked for one.
        let count = if breaking.checks.contains(&Check::Bank) { breaking.bank.accounts } else { 0 };
        let accounts: Vec<(u64, i64)> =
            (0..count).map(|n| bank.account(n)).map(|account| (account.place, account.balance)).collect();
        let first = running.writers(self.asked).into_iter().next().context("nobody takes writes")?;
        // Nothing is broken yet: what is refused now is refused for good.
        patiently(&first, RECOVERED, |target| target.prepare(&accounts))?;
        let facts = first.target(PATIENCE)?.facts()?;
        running.shape()?;
        phase("prepare", begin, format!("empty tables and {} accounts", accounts.len()));

        report.doing("breaking under load");
        let begin = self.clock.now();
        let history = self.staged.join(history::HISTORY);
        let Loaded { carried, undone, offered } = self.load(running, breaking, &history, interrupt)?;
        let (sessions, seconds) = (self.spec.load.sessions, self.clock.now().since(begin).as_secs_f64());
        phase(
            "break",
            begin,
            format!("{sessions} sessions for {seconds:.1} s{}", of_offered(offered.as_ref())),
        );

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
        let mut read = self.read(running, breaking, whole.is_ok());
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
        let history = history::read(&history)?.history;
        read.lists.iter_mut().for_each(|scan| scan.complete(&history));
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
        history::keep_evidence(&self.staged.join(history::EVIDENCE), &evidence)?;
        Ok(Broken::judge(history, &mut evidence, carried, data)?)
    }

    /// The load with its faults, whose history is written to `path`.
    fn load(
        &self,
        running: &mut Running,
        breaking: &BreakSpec,
        path: &Path,
        interrupt: &Interrupt,
    ) -> Result<Loaded> {
        let spec = self.spec;
        let (dataset, workload) = breaking.load_of(spec.load.sessions, self.seed)?;
        let history = HistoryWriter::create(path, Pace::Groups)?;
        let places = Places::new(running.may_write(self.asked), spec.load.timeout);
        places.set(&running.writers(self.asked));
        let records = Records::new(0);
        let plan = Plan::closed(&places, &dataset, &workload, &records, spec.load.sessions, self.clock);
        let plan = Plan { history: Some(&history), ..plan.with(&spec.load, self.seed) };
        let mut conduct =
            || drive::run(&plan, |sessions| self.conduct(running, breaking, &places, sessions, interrupt));
        let loaded = match breaking.snapshots {
            every if breaking.checks.contains(&Check::Bank) && !every.is_zero() => {
                let tables = Dataset::checks(Arc::new(BankData::new(breaking.bank_of(self.seed))?));
                let watch = Plan {
                    think: every,
                    ..Plan::closed(&places, &tables, &Snapshots, &records, 1, self.clock)
                };
                checking::while_watching(watch, &history, spec.load.sessions, conduct)?
            }
            _ => conduct(),
        }??;
        history.finish()?;
        Ok(loaded)
    }

    /// Carries out the schedule while `sessions` work, and lets them come to their end.
    fn conduct(
        &self,
        running: &mut Running,
        breaking: &BreakSpec,
        places: &Places,
        sessions: &drive::Sessions<'_>,
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
            places.set(&cluster::writers(conductor.cluster(), self.asked));
            let next = conductor.next().map_or(end, |next| next + jitter);
            let pause = next.saturating_sub(begun.elapsed()).min(Duration::from_millis(20));
            std::thread::sleep(pause.max(Duration::from_micros(200)));
            self.context.report.share(begun.elapsed().as_secs_f64() / end.as_secs_f64());
        }
        let mut offered = sessions.cut().offered;
        // What is due and not sent by now is told; what is in flight has as long as an operation may take.
        if !sessions.drain()
            && let Some(offered) = &mut offered
        {
            offered.unanswered = u64::from(sessions.cut().in_flight);
        }
        let (carried, finished) = conductor.finish(&clock);
        interrupt.check()?;
        Ok(Loaded { carried, undone: undone.and(finished).map_err(Into::into), offered })
    }

    /// Reads everything twice from the survivors and, if all follow, from each replica.
    fn read(&self, running: &Running, breaking: &BreakSpec, whole: bool) -> Read {
        let mut read = Read::default();
        for pass in 1..=2 {
            if pass == 2 {
                std::thread::sleep(breaking.read_again);
            }
            let sources = running.sources(self.asked).into_iter();
            for (source, place) in sources.filter(|(source, _)| whole || *source == Source::Survivors) {
                if let Err(error) = self.read_one(&mut read, breaking, (pass, &source), &place) {
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
        (pass, source): (u32, &Source),
        place: &Place,
    ) -> Result<(), TargetError> {
        let (source, now) = (|| source.clone(), || self.clock.now());
        if breaking.checks.contains(&Check::Ledger) || breaking.checks.contains(&Check::Register) {
            let rows = patiently(place, PATIENCE, |target| target.read_keys())?;
            read.keys.push(KeyScan { source: source(), pass, at: now(), rows });
        }
        if breaking.checks.contains(&Check::Bank) {
            let (balances, transfers) = patiently(place, PATIENCE, |target| target.read_bank())?;
            read.bank.push(BankScan { source: source(), pass, at: now(), balances, transfers });
        }
        // Of a replica, nobody is asked for lists: their fates are those among the survivors.
        if breaking.checks.contains(&Check::Isolation) && source() == Source::Survivors {
            let lists = patiently(place, PATIENCE, |target| target.read_lists())?;
            read.lists.push(ListScan { source: source(), pass, at: now(), lists });
        }
        Ok(())
    }
}

/// What an open loop was to send and did not, for its evidence.
fn of_offered(offered: Option<&Offered>) -> String {
    offered.map_or_else(String::new, |offered| {
        let late = offered.lateness().map_or(0, |lateness| lateness.value_at_quantile(0.99));
        format!(
            "; {} operations were due, {} were sent, {} waited for a session at the end, {} had no answer; the \
             generator was late by {:.3} ms at p99",
            offered.due,
            offered.begun,
            offered.backlog,
            offered.unanswered,
            late as f64 / 1e6
        )
    })
}

/// Asks until it is answered: a server that has just come back may refuse for a while.
fn patiently<R>(
    place: &Place,
    patience: Duration,
    ask: impl Fn(&dyn Target) -> Result<R, TargetError>,
) -> Result<R, TargetError> {
    let began = Instant::now();
    loop {
        let connected = place.target(PATIENCE);
        let patience = if connected.is_ok() { RECOVERED.min(patience) } else { patience };
        match connected.and_then(|target| ask(target.as_ref())) {
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
