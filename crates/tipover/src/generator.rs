//! The process that sends load, and holds the engine when that is embedded.
//!
//! It is this program again, started with a hidden verb inside the target's limits, and obeys commands, one
//! JSON text a line on its standard input; it answers in the same way on its standard output. When its input
//! ends it ends, so no generator outlives its laboratory.

mod tables;

use crate::checking;
use crate::clock::Clock;
use crate::drive;
use crate::endpoints::{Endpoint, Endpoints, Writers};
use crate::history::HistoryWriter;
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{Judgement, Loaded};
use tipover_core::experiment::{HugePages, LoadSpec, Part, Spec, TargetKind};
use tipover_core::learn::{self, ServerTimes, ServerWatch};
use tipover_core::measure::{BooksText, Offered};
use tipover_core::metric::{Metric, Sample};
use tipover_core::op::{Fields, Op, Outcome};
use tipover_core::peer;
use tipover_core::target::{Facts, Target, TargetError};
use tipover_core::units::Tick;
use tipover_core::workload::{Dataset, Lengths, Loading, Records, Shape};
use tipover_targets::RequestPath;

/// A text that is handed on and never shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Servers of a cluster, by their addresses with all secrets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Servers {
    /// All that may ever take writes; first those that do now.
    pub urls: Vec<Secret>,
    /// How many do now.
    pub writers: usize,
}

/// What a generator is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Command {
    /// Start the target; always the first command.
    Start {
        /// The cell.
        spec: Box<Spec>,
        /// The address in it with its secrets, which the cell does not carry.
        address: Option<Secret>,
        /// Where it runs in a cluster; without any it is the target of the cell.
        servers: Servers,
        /// Where the target keeps its data.
        folder: PathBuf,
        /// Seed of the operations.
        seed: u64,
        /// Which part of the load it sends.
        part: Part,
        /// Zero of the trial clock, in CLOCK_MONOTONIC nanoseconds.
        origin_ns: u64,
    },
    /// Look whether the records are there already.
    Examine,
    /// Write all records, make them durable.
    Load {
        /// Threads that write.
        threads: u32,
    },
    /// Make the tables of checks anew.
    Prepare,
    /// Write all records by the sessions of the load, or make the accounts of the bank, while something may
    /// be broken, and go on until everything is known to be there; to be ended by `Halt`.
    Bring {
        /// Where to write down what the sessions see.
        history: PathBuf,
    },
    /// Say how much of that is there; only meanwhile.
    Brought,
    /// These servers of the cluster take writes from now on; only while sessions run.
    Writers {
        /// Their addresses.
        urls: Vec<Secret>,
    },
    /// Start the sessions: warming up first, with the load of the cell, or at once with a load of its own.
    Run {
        /// The load to begin with at once.
        load: Option<Box<LoadSpec>>,
        /// Seed of its arrivals.
        seed: Option<u64>,
        /// Where to write down what the sessions see.
        history: Option<PathBuf>,
    },
    /// Read back what the operations were to change, and judge the history; only while no sessions run.
    Check {
        /// The history of the last run.
        history: PathBuf,
        /// Where to keep what was read back.
        evidence: PathBuf,
    },
    /// Read the target's statistics; only while no sessions run.
    Sample,
    /// Tell what the server has counted of each statement of scripts since this was asked last; only while
    /// sessions run.
    Statements,
    /// Go on as a closed loop; only while sessions run, which begin as one at full speed.
    Pace {
        /// Pause after each operation in nanoseconds; 0 for full speed.
        think_ns: u64,
        /// Whether the request path is burnt.
        request_path: bool,
    },
    /// Begin the open loop of the plan; only while sessions run.
    Offer,
    /// Send nothing new and wait for what is in flight; only while sessions run.
    Pause,
    /// Close an interval and report it.
    Cut,
    /// Stop the sessions.
    Halt,
    /// Stop the target and end.
    Stop,
    /// Do that at this time, so that several generators do it together; only while sessions run.
    At {
        /// On the trial clock.
        at: Tick,
        /// What.
        command: Box<Command>,
    },
}

impl Command {
    /// Whether several generators that send a load are told so at one moment.
    pub fn has_a_moment(&self) -> bool {
        matches!(self, Command::Pace { .. } | Command::Offer | Command::Cut)
    }

    /// Whether it is about sessions, which are at work on every machine that sends a load; everything else is
    /// done by one.
    pub fn is_of_sessions(&self) -> bool {
        self.has_a_moment()
            || matches!(self, Command::Run { .. } | Command::Pause | Command::Halt | Command::Stop)
    }
}

/// What a generator answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Reply {
    /// To `Start`.
    Started {
        /// Read back from the target.
        facts: Facts,
        /// What its samples hold.
        metrics: Vec<Metric>,
        /// The generator's own processor time per operation, in nanoseconds.
        generator_cost_ns: f64,
    },
    /// To `Examine`.
    Examined {
        /// What is there, and what the target tells of itself now that its table is known.
        found: Examined,
        facts: Facts,
    },
    /// While loading.
    Loading {
        /// Records written so far.
        records: u64,
    },
    /// To `Load`.
    Loaded {
        /// Read back from the target.
        facts: Facts,
    },
    /// To `Prepare`.
    Prepared,
    /// To `Brought`.
    Brought(Loaded),
    /// To `Run`, `Bring`, `Pace`, `Offer` and `Writers`.
    Running,
    /// To `Pause`.
    Paused {
        /// Operations that were not answered within the time-out either.
        unanswered: u32,
    },
    /// To `Cut`.
    Interval(Box<Cut>),
    /// To `Sample`.
    Sampled(Sample),
    /// To `Statements`.
    Statements(ServerTimes),
    /// To `Check`.
    Checked(Box<Judgement>),
    /// To `Halt` and `Stop`.
    Stopped,
    /// To anything: the target could not do it.
    Failed {
        /// A sentence.
        reason: String,
    },
}

/// What was found in place of the records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Examined {
    /// How many records were asked for: the first, the last, and others spread between.
    pub asked: u32,
    /// How many of them are there.
    pub there: u32,
    /// Of those, the ones with a field of another length than they should have.
    pub other_shape: u32,
    /// Whether there is a record after the last.
    pub beyond: bool,
    /// Why nothing could be asked: most often because there is no such table yet.
    pub reason: Option<String>,
    /// Why what is there cannot be used, where the counts do not say it.
    pub refusal: Option<String>,
    /// How it is known that the records are there, where the counts do not say it.
    pub evidence: Option<String>,
}

impl Examined {
    /// Whether the records are there; an error when something else is.
    ///
    /// # Errors
    /// A sentence that says what is there and what to do.
    pub fn loaded(&self, table: &str) -> Result<bool, String> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let found = if self.other_shape > 0 {
            format!("{} of {} records looked at have fields of another length", self.other_shape, self.asked)
        } else if self.there > 0 && self.there < self.asked {
            format!("{} of {} records looked at are missing", self.asked - self.there, self.asked)
        } else if self.there > 0 && self.beyond {
            "there are more records than the plan has, as after a run that inserted some".into()
        } else {
            return Ok(self.there > 0);
        };
        Err(format!(
            "{table} holds something else than the plan says: {found}. Nothing was changed; say how many records \
             there are with --records, empty or drop it, or name another database in the address"
        ))
    }
}

/// One interval, as seen by the generator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cut {
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// What became of the operations that ended in it, by class.
    pub books: BooksText,
    /// In an open loop, what was to be sent and what was.
    pub offered: Option<Offered>,
    /// Operations that were sent and not answered at its end.
    pub in_flight: u32,
    /// For how long the oldest of them had been in flight, in nanoseconds.
    pub oldest_in_flight_ns: u64,
    /// The target's statistics at its end.
    pub target: Sample,
    /// Processor time of this process so far, in nanoseconds.
    pub process_cpu_ns: u64,
    /// Of that, the session threads'.
    pub sessions_cpu_ns: u64,
    /// What each machine counted, where several send the load: the figures above are theirs together.
    #[serde(skip)]
    pub shares: Vec<Share>,
}

/// What one of the machines that send a load counted in an interval.
#[derive(Debug, Clone)]
pub struct Share {
    /// Its name.
    pub machine: String,
    /// Its processors.
    pub processors: u32,
    /// Its own counts.
    pub cut: Cut,
}

/// Obeys commands until its input ends.
pub fn serve() -> Result<()> {
    let mut input = std::io::stdin().lock();
    let mut next =
        || -> Result<Option<Command>> { peer::hear(&mut input).context("a command that is not one") };
    let Some(Command::Start { mut spec, address, servers, folder, seed, part, origin_ns }) = next()? else {
        bail!("a generator must be started first");
    };
    if let Some(Secret(address)) = address {
        spec.target.address = Some(address.parse().map_err(anyhow::Error::msg)?);
    }
    let mut read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    if let Err(error) = spec.attach(&mut read) {
        return answer(&Reply::Failed { reason: error.to_string() });
    }
    if spec.machine.huge_pages == Some(HugePages::Never) {
        rustix::thread::disable_transparent_huge_pages(true).context("doing without huge pages")?;
    }
    let (dataset, workload) = spec.load_of(seed);
    let generator_cost_ns = drive::generator_cost_ns(&dataset, workload.as_ref());
    let (started, writers) = start(&spec, seed, &servers, &folder);
    let target = match started {
        Ok(target) => RequestPath::new(target, spec.target.request_path_cpu),
        Err(error) => return answer(&Reply::Failed { reason: error.to_string() }),
    };
    let facts = match target.facts() {
        Ok(facts) => facts,
        Err(error) => return answer(&Reply::Failed { reason: error.to_string() }),
    };
    answer(&Reply::Started { facts, metrics: target.metrics(), generator_cost_ns })?;
    let (clock, records) = (Clock::at(origin_ns), Records::new(dataset.records));
    let orders = || Orders::new((&spec, &dataset), &target, writers.as_ref(), clock);
    while let Some(command) = next()? {
        match command {
            Command::Examine => answer(&examined(&target, &dataset)?)?,
            Command::Load { threads } => {
                if let Err(error) = fill(&spec, seed, &target, &dataset, threads) {
                    return answer(&Reply::Failed { reason: format!("{error:#}") });
                }
                answer(&Reply::Loaded { facts: target.facts()? })?;
            }
            Command::Prepare => answer(&match checking::prepare(&spec, seed, &target) {
                Ok(()) => Reply::Prepared,
                Err(error) => Reply::Failed { reason: format!("{error:#}") },
            })?,
            Command::Run { load, seed: arrivals, history } => {
                let writer = match history.map(|path| checking::history(&spec, &path)).transpose() {
                    Ok(writer) => writer,
                    Err(error) => return answer(&Reply::Failed { reason: format!("{error:#}") }),
                };
                if let Err(error) = ask(&target, &dataset) {
                    return answer(&Reply::Failed { reason: format!("{error:#}") });
                }
                let plan = drive::Plan::closed(&target, &dataset, workload.as_ref(), &records, 1, clock);
                let plan = loaded(plan, &spec, load.as_deref(), (seed, arrivals.unwrap_or(0))).part(part);
                if load.is_some() {
                    target.burn(true);
                }
                let plan = drive::Plan { history: writer.as_ref().filter(|_| spec.checks_load()), ..plan };
                let orders = orders();
                wait_for(&spec, &target, &dataset);
                match run(&plan, &spec, seed, writer.as_ref(), &orders, &mut next) {
                    Ok(Ok(true)) => match writer.map_or(Ok(()), HistoryWriter::finish) {
                        Ok(()) => answer(&Reply::Stopped)?,
                        Err(error) => return answer(&Reply::Failed { reason: format!("{error:#}") }),
                    },
                    Ok(Ok(false)) => return Ok(()),
                    Ok(Err(error)) => return Err(error),
                    Err(error) => return answer(&Reply::Failed { reason: error.to_string() }),
                }
            }
            Command::Bring { history } => {
                let orders = orders();
                match bring(&spec, seed, &dataset, &history, &orders, &mut next) {
                    Ok(true) => answer(&Reply::Stopped)?,
                    Ok(false) => return Ok(()),
                    Err(error) => return answer(&Reply::Failed { reason: format!("{error:#}") }),
                }
            }
            Command::Check { history, evidence } => {
                answer(&match checking::check(&spec, &target, &clock, &history, &evidence) {
                    Ok(judgement) => Reply::Checked(Box::new(judgement)),
                    Err(error) => Reply::Failed { reason: format!("{error:#}") },
                })?;
            }
            Command::Sample => {
                let begin = clock.now();
                let values = target.sample()?;
                answer(&Reply::Sampled(Sample { begin, end: clock.now(), values }))?;
            }
            Command::Stop => {
                drop(target);
                return answer(&Reply::Stopped);
            }
            other => bail!("{other:?} cannot be done now"),
        }
    }
    Ok(())
}

/// Loads what the workload needs to be there.
fn fill(spec: &Spec, seed: u64, target: &dyn Target, dataset: &Dataset, threads: u32) -> Result<()> {
    if spec.workload.kind.is_checked() {
        return checking::prepare(spec, seed, target);
    }
    load(target, dataset, threads)?;
    make_ready(spec, seed, target)
}

/// With a load of its own to begin with at once, whose arrivals have a seed of their own, or with that of the
/// cell, for which it warms up first.
fn loaded<'a>(
    plan: drive::Plan<'a>,
    spec: &Spec,
    load: Option<&LoadSpec>,
    (seed, arrivals): (u64, u64),
) -> drive::Plan<'a> {
    match load {
        // Other operations than those of the loads before, so that no cache knows them.
        Some(load) => drive::Plan { first: arrivals << 32, ..plan.with(load, seed ^ arrivals) },
        None => drive::Plan { warms_up: true, ..plan.with(&spec.load, seed) },
    }
}

/// The target of `spec`, and of a cluster who says where writes go.
fn start(
    spec: &Spec,
    seed: u64,
    servers: &Servers,
    folder: &Path,
) -> (Result<Box<dyn Target>, TargetError>, Option<Writers>) {
    if servers.urls.is_empty() {
        return (tipover_targets::start(spec, folder), None);
    }
    let endpoints = servers.urls.iter().map(|Secret(url)| Endpoint::new(spec, seed, url)).collect();
    let endpoints = Endpoints::new(endpoints, servers.writers, spec.load.timeout);
    let writers = endpoints.writers();
    (Ok(Box::new(endpoints)), Some(writers))
}

/// Runs the script that makes a new cluster ready for the others, if there is one.
fn make_ready(spec: &Spec, seed: u64, target: &dyn Target) -> Result<()> {
    let Some(dataset) = spec.preparation(seed) else { return Ok(()) };
    let mut session = target.open(&dataset)?;
    let outcome = session.execute(&Op::Script { script: 0, number: 0 });
    if outcome != Outcome::Done {
        let said = session.complaint().map_or(String::new(), |complaint| format!(": {}", complaint.words));
        bail!("workload.scripts.prepare was not carried out ({outcome:?}){said}");
    }
    Ok(target.settle()?)
}

/// Runs the script whose answers all sessions know, if there is one and it was not run yet.
fn ask(target: &dyn Target, dataset: &Dataset) -> Result<()> {
    let Shape::Scripts(scripts) = &dataset.shape else { return Ok(()) };
    let Some(script) = scripts.asked().filter(|_| !scripts.is_answered()) else { return Ok(()) };
    let mut session = target.open(dataset)?;
    let outcome = session.execute(&Op::Script { script, number: 0 });
    if outcome != Outcome::Done {
        let said = session.complaint().map_or(String::new(), |complaint| format!(": {}", complaint.words));
        bail!("workload.scripts.ask was not answered ({outcome:?}){said}");
    }
    Ok(())
}

/// Reads some of the records.
fn examined(target: &dyn Target, dataset: &Dataset) -> Result<Reply> {
    let found = examine(target, dataset);
    Ok(Reply::Examined { found, facts: target.facts()? })
}

fn examine(target: &dyn Target, dataset: &Dataset) -> Examined {
    const ASKED: u32 = 64;
    if let Shape::Scripts(scripts) = &dataset.shape {
        return tables::examine(target, dataset, &scripts.tables);
    }
    let mut found = Examined::default();
    let mut session = match target.open(dataset) {
        Ok(session) => session,
        Err(error) => {
            found.reason = Some(error.to_string());
            return found;
        }
    };
    let mut read = |record| {
        let outcome = session.execute(&Op::Read { record, fields: Fields::All });
        let length = session.fetched(0).map(<[u8]>::len);
        (outcome == Outcome::Done, length)
    };
    let constant = match dataset.field_length {
        Lengths::Constant(length) => Some(length as usize),
        _ => None,
    };
    let last = dataset.records.saturating_sub(1);
    let asked = u64::from(ASKED).min(dataset.records);
    for n in 0..asked {
        let (there, length) = read((u128::from(last) * u128::from(n) / u128::from(asked.max(2) - 1)) as u64);
        found.asked += 1;
        found.there += u32::from(there);
        let differs = length.zip(constant).is_some_and(|(length, right)| length != right);
        found.other_shape += u32::from(there && differs);
    }
    found.beyond = read(dataset.records).0;
    found
}

/// What is obeyed with while sessions run.
struct Orders<'a> {
    spec: &'a Spec,
    dataset: &'a Dataset,
    target: &'a RequestPath,
    /// Who takes writes, in a cluster.
    writers: Option<&'a Writers>,
    clock: Clock,
    /// How much is loaded, while that goes on.
    brought: &'a dyn Fn() -> Option<Loaded>,
}

impl<'a> Orders<'a> {
    /// While nothing is loaded.
    fn new(
        (spec, dataset): (&'a Spec, &'a Dataset),
        target: &'a RequestPath,
        writers: Option<&'a Writers>,
        clock: Clock,
    ) -> Self {
        Orders { spec, dataset, target, writers, clock, brought: &|| None }
    }
}

/// Loads what the cell loads, and obeys meanwhile.
fn bring(
    spec: &Spec,
    seed: u64,
    dataset: &Dataset,
    history: &Path,
    orders: &Orders<'_>,
    next: &mut dyn FnMut() -> Result<Option<Command>>,
) -> Result<bool> {
    match spec.checks_alone() {
        true => bring_accounts(spec, seed, dataset, orders, next),
        false => bring_records(spec, dataset, history, orders, next),
    }
}

/// Inserts all records by the sessions of the load, each until it is known to be there, and obeys meanwhile.
fn bring_records(
    spec: &Spec,
    dataset: &Dataset,
    history: &Path,
    orders: &Orders<'_>,
    next: &mut dyn FnMut() -> Result<Option<Command>>,
) -> Result<bool> {
    orders.target.load(dataset, 0..0)?;
    let (loading, records) = (Loading::new(dataset.records), Records::new(0));
    let brought = || Some(Loaded { known: loading.known(), ..Loaded::nothing("records", dataset.records) });
    let writer = checking::history(spec, history)?;
    let plan =
        drive::Plan::closed(orders.target, dataset, &loading, &records, spec.load.sessions, orders.clock);
    let plan = drive::Plan { history: Some(&writer), timeout: spec.load.timeout, ..plan };
    let orders = Orders { brought: &brought, ..*orders };
    let goes_on = drive::run(&plan, |sessions| obey(sessions, &orders, next))??;
    writer.finish()?;
    Ok(goes_on)
}

/// Makes the tables of checks, anew after each failure until they are whole, and obeys meanwhile.
fn bring_accounts(
    spec: &Spec,
    seed: u64,
    dataset: &Dataset,
    orders: &Orders<'_>,
    next: &mut dyn FnMut() -> Result<Option<Command>>,
) -> Result<bool> {
    let accounts = spec.breaking.as_ref().map_or(0, |breaking| breaking.bank.accounts);
    let loaded = Mutex::new(Loaded::nothing("accounts", accounts));
    let over = AtomicBool::new(false);
    let (target, clock) = (orders.target, orders.clock);
    let gives_up = || {
        loaded.lock().unknown += 1;
        over.load(Ordering::Relaxed)
    };
    let brought = || Some(loaded.lock().clone());
    // No session works; they are there to be obeyed with.
    let (none, records) = (Loading::new(0), Records::new(0));
    let plan = drive::Plan::closed(target, dataset, &none, &records, 0, clock);
    let orders = Orders { brought: &brought, ..*orders };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if checking::prepare_until(spec, seed, target, gives_up).is_ok() {
                let mut loaded = loaded.lock();
                (loaded.known, loaded.end) = (accounts, clock.now());
            }
        });
        let goes_on = drive::run(&plan, |sessions| obey(sessions, &orders, next));
        over.store(true, Ordering::Relaxed);
        goes_on?
    })
}

/// Waits until a session can be opened where something may be broken already, as long as one would wait for
/// whoever takes over.
fn wait_for(spec: &Spec, target: &dyn Target, dataset: &Dataset) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    while spec.breaks_loading() && target.open(dataset).is_err() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs sessions, and those of checks beside them, and obeys until they are to halt: true, or the input ends:
/// false.
fn run(
    plan: &drive::Plan<'_>,
    spec: &Spec,
    seed: u64,
    history: Option<&HistoryWriter>,
    orders: &Orders<'_>,
    next: &mut dyn FnMut() -> Result<Option<Command>>,
) -> Result<Result<bool>, TargetError> {
    drive::run(plan, |sessions| match history {
        Some(history) => checking::beside(spec, seed, orders.target, history, orders.clock, || {
            obey(sessions, orders, next)
        }),
        None => Ok(obey(sessions, orders, next)),
    })?
}

/// Obeys until the sessions are to halt: true, or the input ends: false.
fn obey(
    sessions: &drive::Sessions<'_>,
    orders: &Orders<'_>,
    next: &mut dyn FnMut() -> Result<Option<Command>>,
) -> Result<bool> {
    let Orders { target, writers, clock, brought, .. } = orders;
    prefer_this_thread();
    answer(&Reply::Running)?;
    let mut watch = None;
    loop {
        let (command, moment) = match next()? {
            Some(Command::At { at, command }) => {
                drive::Waiter::new(*clock, drive::SPIN).until(at, &|| false);
                (Some(*command), at)
            }
            command => (command, clock.now()),
        };
        match command {
            Some(Command::Cut) => match cut(sessions, *target, clock) {
                Ok(interval) => answer(&interval)?,
                Err(error) => {
                    // A server that is gone tells no statistics either.
                    answer(&Reply::Failed { reason: format!("{error:#}") })?;
                    return Ok(false);
                }
            },
            Some(Command::Pace { think_ns, request_path }) => {
                sessions.close(Duration::from_nanos(think_ns));
                target.burn(request_path);
                answer(&Reply::Running)?;
            }
            Some(Command::Offer) => {
                target.burn(true);
                sessions.offer(moment);
                answer(&Reply::Running)?;
            }
            Some(Command::Writers { urls }) => {
                let urls: Vec<&str> = urls.iter().map(|Secret(url)| url.as_str()).collect();
                writers.iter().for_each(|writers| writers.set(&urls));
                answer(&Reply::Running)?;
            }
            Some(Command::Statements) => answer(&Reply::Statements(counted(&mut watch, orders)))?,
            Some(Command::Brought) => {
                let Some(loaded) = brought() else { bail!("nothing is being loaded") };
                answer(&Reply::Brought(loaded))?;
            }
            Some(Command::Pause) => {
                answer(&Reply::Paused { unanswered: sessions.pause() })?;
            }
            Some(Command::Halt) => {
                sessions.drain();
                return Ok(true);
            }
            None => return Ok(false),
            Some(other) => bail!("{other:?} cannot be done while sessions run"),
        }
    }
}

/// What the server has counted since it was asked last; of the first time nothing.
fn counted(watch: &mut Option<ServerWatch>, orders: &Orders<'_>) -> ServerTimes {
    let dialect = match orders.spec.target.kind {
        TargetKind::Mysql => learn::Dialect::Mysql,
        _ => learn::Dialect::Postgres,
    };
    let Shape::Scripts(scripts) = &orders.dataset.shape else { return ServerTimes::Told(vec![]) };
    let asked = match watch {
        Some(watch) => watch.since(),
        None => orders.target.watch().and_then(|server| ServerWatch::begin(scripts, server, dialect)).map(
            |begun| {
                *watch = Some(begun);
                vec![]
            },
        ),
    };
    asked.map_or_else(|error| ServerTimes::Untold(error.to_string()), ServerTimes::Told)
}

fn answer(answer: &Reply) -> Result<()> {
    Ok(peer::say(&mut std::io::stdout().lock(), answer)?)
}

fn cut(sessions: &drive::Sessions<'_>, target: &dyn Target, clock: &Clock) -> Result<Reply> {
    let tally = sessions.cut();
    let begin = clock.now();
    let values = target.sample()?;
    Ok(Reply::Interval(Box::new(Cut {
        begin: tally.begin,
        end: tally.end,
        books: tally.books.to_text(),
        offered: tally.offered,
        in_flight: tally.in_flight,
        oldest_in_flight_ns: tally.oldest_in_flight.as_nanos() as u64,
        target: Sample { begin, end: clock.now(), values },
        process_cpu_ns: process_cpu_ns(),
        sessions_cpu_ns: tally.sessions_cpu_ns,
        shares: vec![],
    })))
}

/// Lets the thread that reads the counters run before the sessions when both want a processor, so that an
/// interval ends when it should. Without the privilege intervals are less sharp; their real ends are recorded
/// either way.
fn prefer_this_thread() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
}

fn process_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Writes all records from `threads` threads in ranges small enough that progress is seen.
fn load(target: &dyn Target, dataset: &Dataset, threads: u32) -> Result<()> {
    let range = (dataset.records / 200).max(256);
    let (next, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let first = next.fetch_add(range, Ordering::Relaxed);
                        if first >= dataset.records {
                            return Ok(());
                        }
                        let last = (first + range).min(dataset.records);
                        target.load(dataset, first..last)?;
                        let records = written.fetch_add(last - first, Ordering::Relaxed) + last - first;
                        answer(&Reply::Loading { records })?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().expect("loading does not panic"))
    })?;
    target.settle()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_writes_arrives_as_it_was_told() {
        let urls = vec![Secret("postgres://a".into()), Secret("postgres://b".into())];
        let told = serde_json::to_string(&Command::Writers { urls }).unwrap();
        let Command::Writers { urls } = serde_json::from_str(&told).unwrap() else { panic!("{told}") };
        assert_eq!(
            urls.iter().map(|Secret(url)| url.as_str()).collect::<Vec<_>>(),
            ["postgres://a", "postgres://b"]
        );
    }
}
