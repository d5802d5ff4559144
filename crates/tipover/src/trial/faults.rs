//! Trials under faults: the schedule while sessions are at work, recovery, and the question whether
//! everything that was acknowledged is still there.
//!
//! (load under faults →) measure under faults → undo → every node follows → read twice from the survivors and
//! from each replica → judge

use super::Report;
use super::cluster::{PATIENCE, writers};
use super::generators::Generators;
use super::loading;
use super::watch::Visible;
use super::world::{AtWork, RealWorld};
use crate::clock::Clock;
use crate::endpoints::Endpoint;
use crate::generator::{Command, Secret};
use crate::history;
use crate::in_words;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::loaded::known_since;
use tipover_core::check::{
    Aftermath, BankScan, Broken, Carried, Evidence, KeyScan, ListScan, Loaded, LoadedScan, Source, TpcbScan,
};
use tipover_core::experiment::{BreakSpec, Check, Spec, Trial};
use tipover_core::schedule::{Schedule, Timed};
use tipover_core::target::{Target, TargetError};
use tipover_core::trial::Draft;
use tipover_core::units::Tick;
use tipover_core::workload::Random;
use tipover_lab::recipe::ServerError;
use tipover_lab::{Agenda, Cluster, Conductor, Policy};

/// A replica that fell behind under load catches up without: one transaction and its flush after the other.
pub(super) const FOLLOWS: Duration = Duration::from_secs(90);
/// How long an open session may fail to give something before it counts as missing: recovery is over by then.
const RECOVERED: Duration = Duration::from_secs(5);
/// How long after the length of the plan undoing may take before the clients stop without it.
const UNDO: Duration = Duration::from_secs(120);

/// A schedule with all that chance had to say in it.
pub(super) struct Times {
    schedule: Schedule,
    timed: Vec<Timed>,
    /// Everything happens later by this.
    jitter: Duration,
    length: Duration,
    policy: Policy,
}

/// What was done to a cluster.
pub(super) struct Conducted {
    pub carried: Vec<Carried>,
    /// Whether all could be undone.
    pub undone: Result<()>,
}

/// A schedule that is being carried out, for whoever measures meanwhile.
pub(super) struct Conducting<'a, 'c> {
    conductor: &'a Mutex<Conductor<'c>>,
    /// Who takes writes, when that has changed.
    writers: Mutex<Option<Vec<String>>>,
    stop: AtomicBool,
    over: AtomicBool,
}

impl Conducting<'_, '_> {
    /// Whether everything was done, and watched afterwards for as long as the plan says.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Tells the clients who takes writes now, if that is news.
    ///
    /// # Errors
    /// The generator cannot be told.
    pub fn tell_writers(&self, generator: &mut Generators) -> Result<()> {
        let Some(urls) = self.writers.lock().take() else { return Ok(()) };
        let urls = urls.into_iter().map(Secret).collect();
        generator.ask(&Command::Writers { urls }).map(drop)
    }

    /// Tells what was done so far, unless something is being done.
    pub fn tell_carried(&self, report: &dyn Report) {
        if let Some(conductor) = self.conductor.try_lock() {
            report.faults(conductor.carried());
        }
    }

    /// Shows as much of the cluster as can be seen now: only what needs no server's word while a fault is in
    /// force, and of that only what is read from outside while nodes are being acted on.
    pub fn look<R>(&self, see: impl FnOnce(Visible<'_>) -> R) -> R {
        match self.conductor.try_lock() {
            Some(conductor) => see(Visible::All(conductor.cluster(), conductor.is_quiet())),
            None => see(Visible::Outside),
        }
    }
}

/// Ends the conducting also where whoever measures fails.
struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Times {
    /// Those of the `repeat`-th trial, with its seed, of a cell on `cluster`.
    ///
    /// # Errors
    /// A rule names what is not there, or breaks a link where there is no network.
    pub fn of(
        spec: &Spec,
        breaking: &BreakSpec,
        length: Duration,
        (repeat, seed): (u32, u64),
        cluster: &Cluster,
    ) -> Result<Times> {
        use tipover_core::schedule::Undo;
        if breaking.faults.rules.iter().any(|rule| rule.fault.undo() == Undo::Heal) {
            cluster.network().context(super::NEEDS_NETWORK)?;
        }
        let names: Vec<String> = cluster.nodes().iter().map(|node| node.name().to_string()).collect();
        let timed = breaking.faults.expand(&names, length, seed)?;
        // An empty schedule is a run in peace.
        let later = Random::new(seed, 7).unit();
        let jitter = if timed.is_empty() { Duration::ZERO } else { breaking.jitter.mul_f64(later) };
        let policy = Policy {
            power: breaking.power.seeded(seed),
            turn: repeat,
            failover: spec.lab.as_ref().map_or(Duration::ZERO, |lab| lab.failover),
        };
        Ok(Times { schedule: breaking.faults.clone(), timed, jitter, length, policy })
    }

    /// How long it takes at least.
    pub fn length(&self) -> Duration {
        self.length + self.jitter
    }

    /// The schedule begins now.
    pub fn begin(self) -> Begun {
        let agenda = Agenda::new(&self.schedule, self.timed.clone(), self.policy.clone());
        Begun { times: self, agenda, begun: Instant::now(), acted: Duration::ZERO, undone: Ok(()) }
    }
}

/// A schedule whose time runs, between two phases in which it is carried out.
pub(super) struct Begun {
    times: Times,
    agenda: Agenda,
    begun: Instant,
    /// When something was done last, after the beginning.
    acted: Duration,
    /// Whether all that was to be undone so far could be.
    undone: Result<()>,
}

impl Begun {
    /// How long it still lasts at least.
    pub fn left(&self) -> Duration {
        self.times.length().saturating_sub(self.begun.elapsed())
    }

    /// How long ago it began.
    pub fn lasted(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Carries it out on `cluster` while `work` is done. What is in force then stays so.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn conduct(
        self,
        cluster: &mut Cluster,
        clock: Clock,
        work: impl FnOnce(&Conducting<'_, '_>) -> Result<()>,
    ) -> Result<Begun> {
        let Begun { times, agenda, begun, mut acted, mut undone } = self;
        let conductor = Mutex::new(Conductor::new(cluster, agenda));
        let conducting = Conducting {
            conductor: &conductor,
            writers: Mutex::default(),
            stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
        };
        let worked = std::thread::scope(|scope| {
            let acting = scope.spawn(|| {
                if undone.is_ok() {
                    undone = times.act(&conducting, clock, begun, &mut acted);
                }
                conducting.over.store(true, Ordering::Release);
            });
            let stops = StopsAtEnd(&conducting.stop);
            let worked = work(&conducting);
            drop(stops);
            acting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            worked
        });
        worked?;
        Ok(Begun { times, agenda: conductor.into_inner().pause(), begun, acted, undone })
    }

    /// Undoes what is still in force.
    pub fn end(self, cluster: &mut Cluster, clock: Clock) -> Conducted {
        let (carried, finished) = Conductor::new(cluster, self.agenda).finish(&|| clock.now());
        Conducted { carried, undone: self.undone.and(finished.map_err(Into::into)) }
    }
}

impl Times {
    /// Does what is due until all is done, or until it is stopped.
    fn act(
        &self,
        conducting: &Conducting<'_, '_>,
        clock: Clock,
        begun: Instant,
        acted: &mut Duration,
    ) -> Result<()> {
        let Conducting { conductor, writers: news, stop, .. } = conducting;
        let last = self.timed.iter().map(|line| line.at).max().unwrap_or(self.length);
        // Bringing a node back can take longer than planned; the time to watch it afterwards stays.
        let watched = self.length.saturating_sub(last);
        let mut undone = Ok(());
        let mut known = writers(conductor.lock().cluster());
        while !stop.load(Ordering::Acquire) && begun.elapsed() < self.length() + UNDO && undone.is_ok() {
            let elapsed = begun.elapsed();
            let next = conductor.lock().next().map(|next| next + self.jitter);
            if next.is_none() && elapsed >= self.length().max(*acted + watched) {
                break;
            }
            if next.is_some_and(|next| next <= elapsed) {
                let mut conductor = conductor.lock();
                undone =
                    conductor.act(elapsed.saturating_sub(self.jitter), &|| clock.now()).map_err(Into::into);
                *acted = begun.elapsed();
                let now = writers(conductor.cluster());
                if now != known {
                    known.clone_from(&now);
                    *news.lock() = Some(now);
                }
                continue;
            }
            conductor.lock().watch_elections(&|| clock.now());
            let pause = next.unwrap_or(self.length()).saturating_sub(begun.elapsed());
            std::thread::sleep(pause.clamp(Duration::from_micros(200), Duration::from_millis(20)));
        }
        undone
    }
}

/// Everything that was read after recovery, or why it could not be.
#[derive(Default)]
struct Read {
    keys: Vec<KeyScan>,
    bank: Vec<BankScan>,
    lists: Vec<ListScan>,
    tpcb: Vec<TpcbScan>,
    loaded: Vec<LoadedScan>,
    failed: Option<String>,
}

/// A cluster after its faults.
pub(super) struct Recovered {
    carried: Vec<Carried>,
    /// Whether every node follows.
    whole: Result<()>,
    /// Why one followed only when the load was over.
    late: Option<String>,
    read: Read,
}

impl RealWorld<'_> {
    /// Waits until every node follows. A database that does not come back has lost everything; that is a
    /// finding and no failure of ours.
    pub(super) fn recover(&self, target: &mut AtWork) -> Result<String> {
        self.context.report.doing("waiting for every node to follow");
        let running = target.watch.cluster.as_mut().context("only a cluster is broken")?;
        let Conducted { carried, undone } = target.conducted.take().context("nothing was broken")?;
        // A node that did not catch up under load is waited for once more without.
        let (whole, late) = match undone {
            Ok(()) => (running.settle(FOLLOWS), None),
            Err(error) if running.all_run() && running.settle(FOLLOWS).is_ok() => {
                (Ok(()), Some(in_words(&error)))
            }
            Err(error) => (Err(error), None),
        };
        let evidence = match (&whole, &late) {
            (Err(error), _) => in_words(error),
            (Ok(()), Some(_)) => "every node follows, one of them late".into(),
            (Ok(()), None) => "every node follows".into(),
        };
        target.recovered = Some(Recovered { carried, whole, late, read: Read::default() });
        Ok(evidence)
    }

    /// Reads everything back.
    pub(super) fn read_everything(&self, trial: &Trial<'_>, target: &mut AtWork) -> Result<String> {
        self.context.report.doing("reading everything back");
        let spec = &trial.cell.spec;
        let running = target.watch.cluster.as_ref().context("only a cluster is broken")?;
        let recovered = target.recovered.as_mut().context("nobody waited for the nodes")?;
        if recovered.whole.is_ok() {
            // Nothing is measured any more, so a slow disk would only be waited for; one that is gone shows
            // itself when it is read.
            running.unshape().ok();
        }
        let sources = running.sources(spec, trial.seed(self.context.seed));
        let known = match spec.breaks_loading() && !spec.checks_alone() {
            true => known_since(&history::read(&self.staged()?.join(history::LOADING))?.history),
            false => BTreeMap::new(),
        };
        recovered.read = self.read_back(&sources, spec, &known, recovered.whole.is_ok())?;
        let Read { keys, bank, lists, tpcb, loaded, .. } = &recovered.read;
        let all = keys.len() + bank.len() + lists.len() + tpcb.len() + loaded.len();
        Ok(format!("{all} readings of everything"))
    }

    /// Judges what was read by the history, and whether the cluster can be used again.
    pub(super) fn judge(&self, trial: &Trial<'_>, target: &mut AtWork, draft: &mut Draft) -> Result<String> {
        let (spec, seed, staged) = (&trial.cell.spec, trial.seed(self.context.seed), self.staged()?);
        let breaking = spec.breaking.as_ref().context("a trial that breaks something has a [break] table")?;
        let running = target.watch.cluster.as_ref().context("only a cluster is broken")?;
        let recovered = target.recovered.take().context("nobody waited for the nodes")?;
        let Recovered { carried, whole, late, mut read } = recovered;
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
        target.usable = away.is_none();
        let history = history::read(&staged.join(history::HISTORY))?.history;
        read.lists.iter_mut().for_each(|scan| scan.complete(&history));
        let mut evidence = Evidence {
            checks: breaking.checks.clone(),
            exposure: Some(breaking.exposure(spec.target.durability)),
            claimed: breaking.isolation,
            injections: carried.iter().map(|carried| carried.injection.clone()).collect(),
            aftermath: late.map(Aftermath::NodeCameLate).into_iter().chain(away).collect(),
            keys: read.keys,
            accounts: breaking.checks.contains(&Check::Bank).then_some(breaking.bank_of(seed)),
            bank: read.bank,
            lists: read.lists,
            scripts: breaking.checks.contains(&Check::Tpcb).then(|| spec.scripts(seed)).flatten(),
            tpcb: read.tpcb,
            loaded: target.loaded.take().map(|loaded| Loaded { scans: read.loaded, ..loaded }),
        };
        history::keep_evidence(&staged.join(history::EVIDENCE), &evidence)?;
        let broken = Broken::judge(history, &mut evidence, carried, running.data())?;
        let verdict = broken.verdict.words().into();
        draft.broken = Some(broken);
        Ok(verdict)
    }

    /// Reads everything twice from the survivors and, if all follow, from each replica.
    fn read_back(
        &self,
        sources: &[(Source, Endpoint)],
        spec: &Spec,
        known: &BTreeMap<u64, Tick>,
        whole: bool,
    ) -> Result<Read> {
        let breaking = spec.breaking.as_ref().context("a trial that breaks something has a [break] table")?;
        let mut read = Read::default();
        for pass in 1..=2 {
            if pass == 2 {
                std::thread::sleep(breaking.read_again);
            }
            let readable = |source: &Source| whole || *source == Source::Survivors;
            for (source, endpoint) in sources.iter().filter(|(source, _)| readable(source)) {
                let mut done = self.read_one(&mut read, breaking, (pass, source), endpoint);
                if done.is_ok() && !known.is_empty() {
                    let scan = patiently(endpoint, PATIENCE, |target| {
                        loading::scan(spec, target, known, self.clock)
                    });
                    done = scan.map(|(missing, wrong)| {
                        let (source, at) = (source.clone(), self.clock.now());
                        read.loaded.push(LoadedScan { source, pass, at, missing, wrong });
                    });
                }
                if let Err(error) = done {
                    let who = match source {
                        Source::Survivors => "the survivors".to_string(),
                        Source::Replica(name) => format!("replica {name}"),
                    };
                    read.failed = Some(format!("{who}: {error}"));
                    return Ok(read);
                }
            }
        }
        Ok(read)
    }

    fn read_one(
        &self,
        read: &mut Read,
        breaking: &BreakSpec,
        (pass, source): (u32, &Source),
        endpoint: &Endpoint,
    ) -> Result<(), TargetError> {
        let (source, now) = (|| source.clone(), || self.clock.now());
        if breaking.checks.contains(&Check::Ledger) || breaking.checks.contains(&Check::Register) {
            let rows = patiently(endpoint, PATIENCE, |target| target.read_keys())?;
            read.keys.push(KeyScan { source: source(), pass, at: now(), rows });
        }
        if breaking.checks.contains(&Check::Bank) {
            let (balances, transfers) = patiently(endpoint, PATIENCE, |target| target.read_bank())?;
            read.bank.push(BankScan { source: source(), pass, at: now(), balances, transfers });
        }
        if breaking.checks.contains(&Check::Tpcb) {
            let rows = patiently(endpoint, PATIENCE, |target| target.read_tpcb())?;
            read.tpcb.push(TpcbScan { source: source(), pass, at: now(), rows });
        }
        // Of a replica, nobody is asked for lists: their fates are those among the survivors.
        if breaking.checks.contains(&Check::Isolation) && source() == Source::Survivors {
            let lists = patiently(endpoint, PATIENCE, |target| target.read_lists())?;
            read.lists.push(ListScan { source: source(), pass, at: now(), lists });
        }
        Ok(())
    }
}

/// Asks until it is answered: a server that has just come back may refuse for a while.
pub(super) fn patiently<R>(
    endpoint: &Endpoint,
    patience: Duration,
    ask: impl Fn(&dyn Target) -> Result<R, TargetError>,
) -> Result<R, TargetError> {
    let began = Instant::now();
    loop {
        let connected = endpoint.target(PATIENCE);
        let patience = if connected.is_ok() { RECOVERED.min(patience) } else { patience };
        match connected.and_then(|target| ask(target.as_ref())) {
            Ok(answer) => return Ok(answer),
            Err(error) if began.elapsed() > patience => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Whether a server was still on its way when nobody waited any longer, and had not given up itself.
fn is_late(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(ServerError::NotReady { .. })))
}
