//! Sends operations to a target from sessions, each on a thread of its own, and keeps their times.
//!
//! Session i of S executes operations i, i + S, i + 2S, ..., so that which operations are sent depends on no
//! race. A session's latencies lie behind a lock of its own that nobody else touches but once per interval:
//! an interval can thus be closed while operations are in flight, and they count where they end.

use crate::clock::Clock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tipover_core::measure::Latencies;
use tipover_core::op::{Failure, Outcome, Timing};
use tipover_core::target::{Target, TargetError};
use tipover_core::units::Tick;
use tipover_core::workload::{Dataset, Workload};

/// What all sessions did in one interval.
#[derive(Debug, Clone)]
pub struct Tally {
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// Operations that were done.
    pub operations: u64,
    /// Operations refused or unknown.
    pub failures: BTreeMap<Failure, u64>,
    /// Latencies of all answered operations, refused ones included: a refusal is an answer.
    pub latencies: Latencies,
    /// Processor time of the session threads since they started, in nanoseconds.
    pub sessions_cpu_ns: u64,
}

struct Book {
    operations: u64,
    failures: BTreeMap<Failure, u64>,
    latencies: Latencies,
}

impl Book {
    fn new() -> Self {
        Book { operations: 0, failures: BTreeMap::new(), latencies: Latencies::closed() }
    }
}

/// A book on cache lines of its own: sessions on different processors never wait for each other's lines. Two
/// lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shelved(Mutex<Book>);

/// Sessions at work.
pub struct Sessions {
    books: Vec<Shelved>,
    /// Identifies each thread's processor clock; 0 until the thread runs.
    cpu_clocks: Vec<std::sync::atomic::AtomicI32>,
    clock: Clock,
    last_cut: Mutex<Tick>,
    stop: AtomicBool,
    /// Pause of a session after each operation, in nanoseconds.
    think_ns: AtomicU64,
}

impl Sessions {
    /// From now on every session pauses for so long after each operation.
    pub fn think(&self, time: Duration) {
        self.think_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Closes the interval that began at the last cut.
    pub fn cut(&self) -> Tally {
        let mut last_cut = self.last_cut.lock();
        let mut tally = Tally {
            begin: *last_cut,
            end: self.clock.now(),
            operations: 0,
            failures: BTreeMap::new(),
            latencies: Latencies::closed(),
            sessions_cpu_ns: self.cpu_clocks.iter().map(|id| thread_cpu_ns(id.load(Ordering::Relaxed))).sum(),
        };
        for book in &self.books {
            let mut book = book.0.lock();
            tally.operations += std::mem::take(&mut book.operations);
            for (failure, count) in std::mem::take(&mut book.failures) {
                *tally.failures.entry(failure).or_default() += count;
            }
            tally.latencies.merge(&book.latencies);
            book.latencies.clear();
        }
        *last_cut = tally.end;
        tally
    }
}

/// Runs `sessions` closed-loop sessions of `workload` on `target` while `body` runs, and ends them after it.
///
/// `body` is called when every session is open; a session that cannot be opened ends the run with its error.
pub fn run<R>(
    target: &dyn Target,
    dataset: &Dataset,
    workload: &dyn Workload,
    sessions: u32,
    clock: Clock,
    body: impl FnOnce(&Sessions) -> R,
) -> Result<R, TargetError> {
    let state = Sessions {
        books: (0..sessions).map(|_| Shelved(Mutex::new(Book::new()))).collect(),
        cpu_clocks: (0..sessions).map(|_| Default::default()).collect(),
        clock,
        last_cut: Mutex::new(clock.now()),
        stop: AtomicBool::new(false),
        think_ns: AtomicU64::new(0),
    };
    let opened = Barrier::new(sessions as usize + 1);
    let failed: Mutex<Option<TargetError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for index in 0..sessions {
            let (state, opened, failed) = (&state, &opened, &failed);
            let thread = std::thread::Builder::new().name(format!("session-{index}"));
            let work = move || {
                state.cpu_clocks[index as usize]
                    .store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
                let session = target.open(dataset);
                if let Err(error) = &session {
                    *failed.lock() =
                        Some(TargetError { doing: error.doing.clone(), reason: error.reason.clone() });
                }
                opened.wait();
                if failed.lock().is_some() {
                    return;
                }
                if let Ok(mut session) = session {
                    let mut number = u64::from(index);
                    while !state.stop.load(Ordering::Relaxed) {
                        one(state, index, workload, session.as_mut(), number);
                        number += u64::from(sessions);
                        let think = state.think_ns.load(Ordering::Relaxed);
                        if think > 0 {
                            std::thread::sleep(Duration::from_nanos(think));
                        }
                    }
                }
            };
            if let Err(error) = thread.spawn_scoped(scope, work) {
                // The threads that did start wait at the barrier, which can no longer fill: this is the end.
                panic!("cannot start session {index} of {sessions}: {error}");
            }
        }
        opened.wait();
        if let Some(error) = failed.lock().take() {
            return Err(error);
        }
        *state.last_cut.lock() = clock.now();
        let result = body(&state);
        state.stop.store(true, Ordering::Relaxed);
        Ok(result)
    })
}

#[inline]
fn one(
    state: &Sessions,
    index: u32,
    workload: &dyn Workload,
    session: &mut dyn tipover_core::target::Session,
    number: u64,
) {
    let op = workload.op(number);
    let began = state.clock.now();
    let outcome = session.execute(&op);
    let ended = state.clock.now();
    let mut book = state.books[index as usize].0.lock();
    book.latencies.record(&Timing { due: began, began, ended });
    match outcome {
        Outcome::Done => book.operations += 1,
        Outcome::Refused(failure) | Outcome::Unknown(failure) => {
            *book.failures.entry(failure).or_default() += 1
        }
    }
}

/// Processor time of thread `id` of this process, in nanoseconds; 0 once it has ended.
fn thread_cpu_ns(id: i32) -> u64 {
    if id == 0 {
        return 0;
    }
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// What the generator itself costs per operation, in nanoseconds of processor time: the same loop on the null
/// target, best of five runs of 20 ms, because only interference makes it slower.
pub fn generator_cost_ns(dataset: &Dataset, workload: &dyn Workload) -> f64 {
    let clock = Clock::start();
    let cost = || {
        let tally = run(&tipover_targets::Null, dataset, workload, 1, clock, |sessions| {
            let before = sessions.cut().sessions_cpu_ns;
            std::thread::sleep(std::time::Duration::from_millis(20));
            let mut tally = sessions.cut();
            tally.sessions_cpu_ns -= before;
            tally
        });
        tally.map_or(f64::INFINITY, |t| t.sessions_cpu_ns as f64 / t.operations.max(1) as f64)
    };
    (0..5).map(|_| cost()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use tipover_core::metric::Metric;
    use tipover_core::op::{Op, OpKind};
    use tipover_core::target::{Facts, Session};
    use tipover_core::workload::{Ycsb, distribution::Requests};

    /// Counts the operations that reach it, refuses every tenth, and takes its time.
    #[derive(Default)]
    struct Counting {
        seen: AtomicU64,
        slow: Duration,
        refuses_to_open: bool,
    }

    impl Target for Counting {
        fn facts(&self) -> Result<Facts, TargetError> {
            Ok(Facts::new())
        }
        fn accepts(&self, _: OpKind) -> bool {
            true
        }
        fn load(&self, _: &Dataset, _: Range<u64>) -> Result<(), TargetError> {
            Ok(())
        }
        fn settle(&self) -> Result<(), TargetError> {
            Ok(())
        }
        fn open<'a>(&'a self, _: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
            if self.refuses_to_open {
                return Err(TargetError::new("opening a session", "there are too many"));
            }
            Ok(Box::new(CountingSession(self)))
        }
        fn metrics(&self) -> Vec<Metric> {
            vec![]
        }
        fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
            Ok(BTreeMap::new())
        }
    }

    struct CountingSession<'a>(&'a Counting);

    impl Session for CountingSession<'_> {
        fn execute(&mut self, _: &Op) -> Outcome {
            std::thread::sleep(self.0.slow);
            match self.0.seen.fetch_add(1, Ordering::SeqCst) % 10 {
                9 => Outcome::Refused(Failure::Conflict),
                _ => Outcome::Done,
            }
        }
    }

    fn reads() -> (Dataset, Ycsb) {
        let dataset = Dataset::ycsb(1000);
        let workload = Ycsb::reads(&dataset, Requests::Uniform, 1);
        (dataset, workload)
    }

    #[test]
    fn every_operation_is_counted_once_and_refusals_apart() {
        let (dataset, workload) = reads();
        let target = Counting::default();
        let mut tallies = run(&target, &dataset, &workload, 4, Clock::start(), |sessions| {
            let mut tallies = vec![];
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(10));
                tallies.push(sessions.cut());
            }
            tallies
        })
        .unwrap();
        for pair in tallies.windows(2) {
            assert_eq!(pair[0].end, pair[1].begin, "intervals leave no gap");
        }
        let last = tallies.pop().unwrap();
        let counted: u64 = tallies.iter().chain([&last]).map(|t| t.latencies.count()).sum();
        let seen = target.seen.load(Ordering::SeqCst);
        // Operations that ended after the last cut are not in any tally: at most what 4 sessions did since.
        assert!(counted <= seen && counted > 0, "{counted} of {seen}");
        let done: u64 = tallies.iter().chain([&last]).map(|t| t.operations).sum();
        let refused: u64 = tallies.iter().chain([&last]).flat_map(|t| t.failures.values()).sum();
        assert_eq!(done + refused, counted);
        assert!((refused as f64 / counted as f64 - 0.1).abs() < 0.02, "{refused} of {counted}");
    }

    #[test]
    fn latency_is_what_the_target_took() {
        let (dataset, workload) = reads();
        let target = Counting { slow: Duration::from_millis(3), ..Default::default() };
        let tally = run(&target, &dataset, &workload, 8, Clock::start(), |sessions| {
            std::thread::sleep(Duration::from_millis(100));
            sessions.cut()
        })
        .unwrap();
        assert!(tally.latencies.service().min() >= 2_990_000);
        let seconds = tally.end.since(tally.begin).as_secs_f64();
        let throughput = tally.latencies.count() as f64 / seconds;
        let residual =
            tipover_core::measure::little_residual(8.0, throughput, tally.latencies.service().mean() / 1e9);
        assert!(residual.abs() < 0.15, "Little's law is off by {residual}");
    }

    #[test]
    fn a_session_that_cannot_open_ends_the_run_with_its_reason() {
        let (dataset, workload) = reads();
        let target = Counting { refuses_to_open: true, ..Default::default() };
        let error = run(&target, &dataset, &workload, 3, Clock::start(), |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "opening a session: there are too many");
    }
}
