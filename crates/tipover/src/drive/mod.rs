//! Sends operations to a target from sessions and keeps what became of each.
//!
//! In a closed loop session i of S executes operations i, i + S, i + 2S, ..., so that which operations are
//! sent depends on no race, and machines can share a load without a word. Times and outcomes lie in books
//! behind locks that hardly anybody shares: an interval can thus be closed while operations are in flight,
//! and they count where they end.

mod blocking;
mod cost;
mod event_loop;
mod gate;
mod offer;
mod wait;

pub use cost::{generator_cost_ns, thread_cpu_ns};
pub use wait::{SPIN, Urgency, Waiter};

use crate::clock::Clock;
use crate::history::HistoryWriter;
use crate::processors;
use gate::Gate;
use offer::{Counts, Due, Offer};
use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::experiment::{LoadSpec, Part, Retries};
use tipover_core::measure::{Books, Histogram, Offered, encode, histogram};
use tipover_core::op::{Op, Outcome, Timing};
use tipover_core::target::{Session, Target, TargetError};
use tipover_core::units::Tick;
use tipover_core::workload::{Arrivals, Dataset, Records, Values, Workload};

/// What is sent, and how.
#[derive(Clone)]
pub struct Plan<'a> {
    /// Where to.
    pub target: &'a dyn Target,
    /// On which records.
    pub dataset: &'a Dataset,
    /// What.
    pub workload: &'a dyn Workload,
    /// Which records exist; inserts that succeed are added.
    pub records: &'a Records,
    /// How many sessions.
    pub sessions: u32,
    /// Which part of a load they are.
    pub part: Part,
    /// Sessions of the whole load.
    pub all_sessions: u32,
    /// Up to this number of sessions of a closed loop have a thread each even where they could share threads:
    /// see
    /// [`FEW_PER_PROCESSOR`].
    pub few: u32,
    /// Sessions that share threads share at most this many: one for each processor, unless asked otherwise.
    pub threads: u32,
    /// Pause of a session after each operation.
    pub think: Duration,
    /// Open loop: when operations are due, and the seed of that.
    pub arrivals: Option<(Arrivals, u64)>,
    /// Whether the sessions of an open loop first work as a closed one, until [`Sessions::offer`].
    pub warms_up: bool,
    /// How long a session spins at most before an operation is due, because sleeping alone is not exact.
    pub spin: Duration,
    /// Number of the first operation.
    pub first: u64,
    /// How many operations it sends at most; `None`: until it is stopped.
    pub limit: Option<u64>,
    /// How long an operation may take before it is given up, where the session can; zero waits for ever.
    pub timeout: Duration,
    /// What is tried again, and when.
    pub retries: Retries,
    /// The clock of all times.
    pub clock: Clock,
    /// Whether books keep every operation by itself, too: 32 bytes each until the next cut.
    pub keeps_singles: bool,
    /// Where every operation is written down for checkers.
    pub history: Option<&'a HistoryWriter>,
    /// The first session's number in the history.
    pub client: u32,
    /// After each operation of a closed loop a session pauses at least this many times as long as it took, on
    /// top of [`Plan::think`]'s least.
    pub rest: u32,
    /// An operation of an open loop that was due for longer is not sent any more, and one that failed is not
    /// tried again; it is refused as [`tipover_core::op::Failure::Late`], and counts.
    pub latest: Option<Duration>,
    /// Shown every operation that ended, by the thread of its session.
    pub observer: Option<Observer<'a>>,
}

/// Somebody who is shown operations.
pub type Observer<'a> = &'a (dyn Fn(&Ended<'_>) + Sync);

/// An operation that has its last outcome.
pub struct Ended<'a> {
    /// The session's index.
    pub session: u32,
    /// Which operation.
    pub op: &'a Op,
    /// What became of it.
    pub outcome: Outcome,
    /// When; what was not sent began and ended when that was found out.
    pub timing: Timing,
    /// How often it was tried again.
    pub retries: u32,
    /// What it was sent by, to be asked what the target said.
    pub by: &'a dyn Session,
}

impl<'a> Plan<'a> {
    /// A closed loop of `sessions` without think time, without end, without retries.
    pub fn closed(
        target: &'a dyn Target,
        dataset: &'a Dataset,
        workload: &'a dyn Workload,
        records: &'a Records,
        sessions: u32,
        clock: Clock,
    ) -> Plan<'a> {
        Plan {
            target,
            dataset,
            workload,
            records,
            sessions,
            part: Part::ALL,
            all_sessions: sessions,
            few: FEW_PER_PROCESSOR * processors::count() as u32,
            threads: processors::count() as u32,
            think: Duration::ZERO,
            arrivals: None,
            warms_up: false,
            spin: wait::SPIN,
            first: 0,
            limit: None,
            timeout: Duration::from_secs(10),
            retries: Retries { most: 0, first_pause: Duration::from_millis(1) },
            clock,
            keeps_singles: false,
            history: None,
            client: 0,
            rest: 0,
            latest: None,
            observer: None,
        }
    }

    fn books(&self) -> Books {
        let books = Books::new(self.arrivals.is_some());
        if self.keeps_singles { books.with_singles() } else { books }
    }

    /// The same, loaded as `load` says; `seed` is that of the arrivals.
    pub fn with(self, load: &LoadSpec, seed: u64) -> Plan<'a> {
        Plan {
            arrivals: load.arrivals.clone().map(|arrivals| (arrivals, seed)),
            sessions: load.sessions,
            all_sessions: load.sessions,
            think: load.think,
            timeout: load.timeout,
            retries: load.retries(),
            ..self
        }
    }

    /// A part of it, where it is still the whole.
    pub fn part(self, part: Part) -> Plan<'a> {
        Plan { sessions: part.sessions(self.sessions), part, ..self }
    }

    /// Whether sessions that can share threads do so. An open loop's must, to be sent at their time; and a
    /// thread that waits for ever for an answer could not be ended.
    fn shares_threads(&self) -> bool {
        self.sessions > self.few || self.arrivals.is_some() || self.timeout.is_zero()
    }

    /// When a later part of an operation was due that was `due` itself, if it was sent at `began`: with the
    /// whole operation in an open loop, because whoever waits for the update of a read-modify-write has
    /// waited since then, and YCSB counts so too; when it was sent in a closed one.
    fn part_due(&self, due: Tick, began: Tick) -> Tick {
        if self.arrivals.is_some() { due } else { began }
    }

    /// Number of the first operation of session `index` in a closed loop. One that only warms up for an open
    /// loop does not use up the numbers of that, or the open loop would ask for what was asked for just
    /// before.
    fn first_closed(&self, index: u32) -> u64 {
        const WARM_UP: u64 = 1 << 40;
        let first = if self.arrivals.is_some() { self.first + WARM_UP } else { self.first };
        first + self.part.session(index)
    }

    fn ends_at(&self) -> u64 {
        if self.arrivals.is_some() && self.limit.is_none() {
            return u64::MAX;
        }
        self.limit.map_or(u64::MAX, |limit| self.first.saturating_add(limit))
    }

    /// Whether an operation that was due then is past being of use.
    #[inline]
    fn is_late(&self, due: Tick, now: Tick) -> bool {
        self.latest.is_some_and(|latest| now.since(due) > latest)
    }

    /// Shows an operation that ended to whoever looks.
    #[inline]
    fn show(&self, session: u32, op: &Op, outcome: Outcome, timing: Timing, retries: u32, by: &dyn Session) {
        if let Some(observer) = self.observer {
            observer(&Ended { session, op, outcome, timing, retries, by });
        }
    }

    /// How long a session of a closed loop pauses at least after an operation that ended so.
    #[inline]
    fn rest(&self, outcome: Outcome, service: Duration) -> Duration {
        if outcome == Outcome::Done && self.rest == 0 {
            return Duration::ZERO;
        }
        Retries::rest(outcome).max(service * self.rest)
    }

    /// Whether what is read is compared with what should be there.
    fn verifies(&self) -> bool {
        self.dataset.values == Values::Integrity
    }
}

/// What all sessions did in one interval.
#[derive(Debug, Clone)]
pub struct Tally {
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// What became of the operations that ended in it, by class.
    pub books: Books,
    /// In an open loop, what was to be sent and what was.
    pub offered: Option<Offered>,
    /// Operations that were sent and not answered at its end.
    pub in_flight: u32,
    /// For how long the oldest of them had been in flight.
    pub oldest_in_flight: Duration,
    /// Processor time of the session threads since they started, in nanoseconds.
    pub sessions_cpu_ns: u64,
}

/// Books on cache lines of their own: sessions on different processors never wait for each other's lines. Two
/// lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shelf(Mutex<Kept>);

struct Kept {
    books: Books,
    lateness: Histogram,
}

impl Shelf {
    #[inline]
    fn books(&self) -> MappedMutexGuard<'_, Books> {
        MutexGuard::map(self.0.lock(), |kept| &mut kept.books)
    }

    /// Records how late an operation of an open loop was sent, apart from waiting for a free session.
    #[inline]
    fn late(&self, began: Tick, due: &Due) {
        self.0.lock().lateness.saturating_record(began.0.saturating_sub(due.sendable.0));
    }
}

/// Where a session shows since when its operation is in flight: its tick plus one, 0 for none.
#[repr(align(64))]
#[derive(Default)]
struct Seat(AtomicU64);

impl Seat {
    #[inline]
    fn take(&self, began: Tick) {
        self.0.store(began.0 + 1, Ordering::Relaxed);
    }

    #[inline]
    fn leave(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A thread that waits in its own call for its own answer costs client and server less than one that waits
/// for many: the kernel wakes the other side where it stands (docs/measurements/2026-11-22-performance.md,
/// "Servers"). With many more threads than processors, switching between them costs more than that.
const FEW_PER_PROCESSOR: u32 = 8;

/// More books than this many a processor are of no use: only sessions that run contend for one.
const BOOKS_PER_PROCESSOR: usize = 8;

/// What sessions are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Each sends its next operation when the last one was answered.
    Closed,
    /// They send what is due.
    Open,
    /// Nothing new is begun.
    Paused,
    /// They end.
    Over,
}

/// Sessions at work.
pub struct Sessions<'a> {
    plan: &'a Plan<'a>,
    shelves: Vec<Shelf>,
    /// What became of the statements of scripts. Few, because a book for each of many statements takes
    /// megabytes; sessions open one once an operation.
    statements: Vec<Mutex<Books>>,
    seats: Vec<Seat>,
    /// Identify the threads' processor clocks.
    threads: Mutex<Vec<i32>>,
    last_cut: Mutex<LastCut>,
    phase: AtomicU8,
    offer: Offer,
    /// What is in flight is not waited for either.
    abandon: AtomicBool,
    /// Whether the workload must be told what became of its operations.
    follows: bool,
    /// Whether every operation belongs to a session of its own.
    is_recorded: bool,
    /// Pause of a session after each operation of a closed loop, in nanoseconds.
    think_ns: AtomicU64,
    /// Threads that still run.
    running: Mutex<usize>,
    ended: Condvar,
}

/// How things stood at the end of the last interval.
struct LastCut {
    at: Tick,
    counts: Counts,
    in_flight: u32,
}

impl<'a> Sessions<'a> {
    fn new(plan: &'a Plan<'a>) -> Self {
        let sessions = plan.sessions as usize;
        let shelves = sessions.min((processors::count() * BOOKS_PER_PROCESSOR).max(16));
        let shelf = || Shelf(Mutex::new(Kept { books: plan.books(), lateness: histogram() }));
        Sessions {
            plan,
            shelves: (0..shelves).map(|_| shelf()).collect(),
            statements: (0..sessions.min(processors::count())).map(|_| Mutex::new(plan.books())).collect(),
            seats: (0..sessions).map(|_| Seat::default()).collect(),
            threads: Mutex::default(),
            last_cut: Mutex::new(LastCut { at: plan.clock.now(), counts: Counts::default(), in_flight: 0 }),
            phase: AtomicU8::new(Phase::Closed as u8),
            offer: Offer::new(plan.first, plan.ends_at(), plan.part),
            abandon: AtomicBool::new(false),
            follows: plan.workload.follows(),
            is_recorded: plan.arrivals.is_some() && plan.workload.session(plan.first).is_some(),
            think_ns: AtomicU64::new(plan.think.as_nanos() as u64),
            running: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    #[inline]
    fn phase(&self) -> Phase {
        const PHASES: [Phase; 4] = [Phase::Closed, Phase::Open, Phase::Paused, Phase::Over];
        PHASES[usize::from(self.phase.load(Ordering::Relaxed)) & 3]
    }

    /// Begins the open loop of the plan, whose time counts from `origin`.
    pub fn offer(&self, origin: Tick) {
        let Some((arrivals, seed)) = &self.plan.arrivals else { return };
        let mut last = self.last_cut.lock();
        self.offer.start(arrivals, *seed, origin, self.is_recorded);
        last.counts = Counts::default();
        self.phase.store(Phase::Open as u8, Ordering::Relaxed);
    }

    /// Goes on as a closed loop, with or without a pause.
    pub fn close(&self, think: Duration) {
        self.think_ns.store(think.as_nanos() as u64, Ordering::Relaxed);
        self.phase.store(Phase::Closed as u8, Ordering::Relaxed);
        self.offer.end();
    }

    /// Begins nothing new, and waits for what is in flight as long as an operation may take. Returns how many
    /// were not answered even then.
    pub fn pause(&self) -> u32 {
        self.phase.store(Phase::Paused as u8, Ordering::Relaxed);
        self.offer.end();
        let deadline = Instant::now() + self.patience();
        loop {
            let left = self.seats.iter().filter(|seat| seat.0.load(Ordering::Relaxed) > 0).count() as u32;
            if left == 0 || Instant::now() >= deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn patience(&self) -> Duration {
        let timeout = self.plan.timeout;
        // A little more, so that what is given up at its time-out is counted as that.
        if timeout.is_zero() { Duration::from_secs(10) } else { timeout + Duration::from_millis(100) }
    }

    /// Begins nothing new. What is in flight goes on; [`Sessions::wait`] for it.
    pub fn stop(&self) {
        self.phase.store(Phase::Over as u8, Ordering::Relaxed);
        self.offer.end();
    }

    /// Waits until all sessions have ended, after the last operation of the plan or when stopped, but not for
    /// longer than `most`. Tells whether they have.
    pub fn wait(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut running = self.running.lock();
        while *running > 0 && !self.ended.wait_until(&mut running, deadline).timed_out() {}
        *running == 0
    }

    /// Stops, and waits as long as an operation may take; whether all that was in flight was answered.
    pub fn drain(&self) -> bool {
        self.stop();
        self.wait(self.patience())
    }

    /// Closes the interval that began at the last cut.
    pub fn cut(&self) -> Tally {
        let mut last = self.last_cut.lock();
        let (end, counts) = self.offer.counts(&self.plan.clock);
        let mut books = self.plan.books();
        let mut lateness = histogram();
        for shelf in &self.shelves {
            let mut kept = shelf.0.lock();
            books.merge(&kept.books);
            kept.books.clear();
            if !kept.lateness.is_empty() {
                lateness.add(&kept.lateness).expect("all histograms have the same bounds");
                kept.lateness.reset();
            }
        }
        // A moment later, while sessions go on: an interval may have a few statements more or less than
        // operations, which the next one makes up for.
        for statements in &self.statements {
            let mut kept = statements.lock();
            books.merge(&kept);
            kept.clear();
        }
        let began = self.seats.iter().map(|seat| seat.0.load(Ordering::Relaxed)).filter(|&began| began > 0);
        let (in_flight, oldest) = began.fold((0, end.0), |(n, oldest), began| (n + 1, oldest.min(began - 1)));
        let backlog = counts.due - counts.begun;
        let offered = self.plan.arrivals.as_ref().map(|_| Offered {
            due: counts.due.saturating_sub(last.counts.due),
            begun: counts.begun.saturating_sub(last.counts.begun),
            carried_in: last.counts.due - last.counts.begun + u64::from(last.in_flight),
            backlog,
            in_flight: u64::from(in_flight),
            unanswered: 0,
            backlog_most: backlog,
            lateness: encode(&lateness),
        });
        let begin = std::mem::replace(&mut *last, LastCut { at: end, counts, in_flight }).at;
        Tally {
            begin,
            end,
            books,
            offered,
            in_flight,
            oldest_in_flight: end.since(Tick(oldest)),
            sessions_cpu_ns: self.threads.lock().iter().map(|id| cost::thread_cpu_ns(*id)).sum(),
        }
    }

    /// Tells whoever depends on it what became of operation `number`.
    #[inline]
    fn settle(&self, number: u64, op: &Op, outcome: Outcome) {
        let records = self.plan.records;
        match *op {
            Op::Insert { record } => records.settle(record, outcome),
            Op::InsertMany { first, count } => {
                (first..first + u64::from(count)).for_each(|record| records.settle(record, outcome));
            }
            _ => {}
        }
        if self.follows {
            self.plan.workload.settle(number, op, outcome);
        }
    }

    /// Books what `session`, number `index`, has timed by itself in its last execution of an operation. What
    /// it began with was due with the whole, unless it is tried again; the others when they were sent.
    #[inline]
    fn note(&self, index: u32, session: &dyn Session, due: Option<Tick>) {
        let timed = session.timed();
        if timed.is_empty() {
            return;
        }
        let mut books = self.statements[index as usize % self.statements.len()].lock();
        for (at, part) in timed.iter().enumerate() {
            let (began, ended) = (self.plan.clock.tick(part.sent), self.plan.clock.tick(part.ended));
            let due = due.filter(|_| at == 0).map_or(began, |due| due.min(began));
            books.record_statement(part.kind, part.outcome, &Timing { due, began, ended }, part.rows);
        }
    }

    fn joins(&self) {
        self.threads.lock().push(rustix::thread::gettid().as_raw_nonzero().get());
    }
}

/// Counts a thread as running as long as it lives, also when it panics.
struct Running<'a>(&'a Sessions<'a>);

impl<'a> Running<'a> {
    fn begin(sessions: &'a Sessions<'a>) -> Self {
        *sessions.running.lock() += 1;
        Running(sessions)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut running = self.0.running.lock();
        *running -= 1;
        if *running == 0 {
            self.0.ended.notify_all();
        }
    }
}

/// Runs the sessions of `plan` while `body` runs, and ends them after it.
///
/// `body` is called when every session is open and sends. Many sessions that can be waited for apart from
/// sending share a few threads; the others have a thread each.
///
/// # Errors
/// When a session cannot be opened, or its thread not be started.
pub fn run<R>(plan: &Plan<'_>, body: impl FnOnce(&Sessions<'_>) -> R) -> Result<R, TargetError> {
    let sessions = Sessions::new(plan);
    let gate = Gate::default();
    std::thread::scope(|scope| {
        // Whatever happens to this thread, the sessions' threads are let go.
        let _end = End(&sessions);
        // The first session shows which kind they are.
        let start = |first: u32, threads: u32, name: &str| -> Result<(), TargetError> {
            let (sessions, gate) = (&sessions, &gate);
            let running = Running::begin(sessions);
            let thread = std::thread::Builder::new().name(format!("{name}-{first}"));
            let started = thread.spawn_scoped(scope, move || {
                let _running = running;
                work(sessions, gate, first, threads);
            });
            let doing = || format!("starting a thread for session {first} of {}", plan.sessions);
            started.map(|_| ()).map_err(|error| TargetError::new(doing(), error)).inspect_err(|_| gate.shut())
        };
        let threads = plan.sessions.min(plan.threads).max(1);
        if plan.sessions > 0 {
            start(0, threads, "session")?;
        }
        let multiplexed = gate.kind(plan.sessions)?;
        for index in 1..if multiplexed { threads } else { plan.sessions } {
            start(index, threads, if multiplexed { "sessions" } else { "session" })?;
        }
        gate.wait_for(plan.sessions)?;
        sessions.last_cut.lock().at = plan.clock.now();
        if !plan.warms_up {
            sessions.offer(plan.clock.now());
        }
        gate.open();
        Ok(body(&sessions))
    })
}

/// What a thread does: opens session `first`, and if it can be multiplexed every one that is a multiple of
/// `threads` further on, and lets them work.
fn work(sessions: &Sessions<'_>, gate: &Gate, first: u32, threads: u32) {
    sessions.joins();
    let plan = sessions.plan;
    let open = || plan.target.open(plan.dataset);
    let mut session = match open() {
        Ok(session) => session,
        Err(error) => return gate.fail(error),
    };
    let seat = |index| plan.part.session(index) as u32;
    session.take_seat(seat(first));
    if session.wire().is_none() || !plan.shares_threads() {
        if sessions.is_recorded {
            let reason = "its sessions cannot be waited for together, which sessions of a record must be";
            return gate.fail(TargetError::new("sending a recorded load", reason));
        }
        gate.tell(false);
        if gate.pass(1) {
            blocking::run(sessions, first, session.as_mut());
        }
        return;
    }
    gate.tell(true);
    let mut opened = vec![(first, session)];
    for index in (first + threads..plan.sessions).step_by(threads as usize) {
        match open() {
            Ok(mut session) => {
                session.take_seat(seat(index));
                opened.push((index, session));
            }
            Err(error) => return gate.fail(error),
        }
    }
    if gate.pass(opened.len() as u32)
        && let Err(error) = event_loop::run(sessions, first, opened)
    {
        // Only the lack of descriptors or memory comes here: nothing that a target does.
        panic!("an event loop cannot go on: {error}");
    }
}

/// Ends the sessions when dropped.
struct End<'a>(&'a Sessions<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.abandon.store(true, Ordering::Relaxed);
        self.0.stop();
    }
}

#[cfg(test)]
mod tests;
