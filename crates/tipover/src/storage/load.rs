//! Threads that send requests to files and keep what became of each.
//!
//! A session of `drive` has one operation at a time; here a thread keeps as many in flight as its engine can,
//! so the loop is another one. What it records is the same: books by class, with due, began and ended.

use crate::clock::Clock;
use crate::drive::{Urgency, Waiter, thread_cpu_ns};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tipover_core::measure::{Books, Histogram, Offered, encode, histogram};
use tipover_core::op::{Op, OpKind, Outcome, Timing};
use tipover_core::storage::array::Raid;
use tipover_core::storage::{EngineKind, Load, Moved};
use tipover_core::units::{Bytes, Tick};
use tipover_core::workload::file_io::FileStream;
use tipover_core::workload::{Arrivals, Schedule};
use tipover_targets::file::{Completion, Engine, Request, engine};

/// The files under a load: one, or several as an array.
#[derive(Debug, Clone)]
pub struct Disks {
    files: Arc<[File]>,
    raid: Raid,
    /// Bytes of a stripe on one disk; no request crosses two.
    stripe: u64,
}

impl Disks {
    /// A single file.
    pub fn one(file: File) -> Disks {
        Disks { files: vec![file].into(), raid: Raid::Zero, stripe: u64::MAX }
    }

    /// An array of files of one size. A stripe is a whole number of blocks, so that no request crosses two.
    pub fn array(files: Vec<File>, raid: Raid, block: Bytes) -> Disks {
        let stripe = 65_536_u64.next_multiple_of(block.0);
        Disks { files: files.into(), raid, stripe }
    }

    /// Requests that one operation becomes at most.
    fn copies(&self) -> u32 {
        if self.raid == Raid::Ten { 2 } else { 1 }
    }

    /// Where an operation goes: a file and the operation on it, and for a write of a mirror another one.
    /// `turn` spreads reads over the halves of a mirror.
    #[inline]
    fn legs(&self, op: Op, turn: u64) -> ((u32, Op), Option<(u32, Op)>) {
        let disks = self.files.len() as u64;
        if disks == 1 {
            return ((0, op), None);
        }
        let groups = disks / u64::from(self.copies());
        let location = |offset: u64| {
            let stripe = offset / self.stripe;
            (stripe % groups, stripe / groups * self.stripe + offset % self.stripe)
        };
        match (op, self.raid) {
            (Op::ReadAt { offset, length }, raid) => {
                let (group, offset) = location(offset);
                let disk = if raid == Raid::Ten { 2 * group + turn % 2 } else { group };
                ((disk as u32, Op::ReadAt { offset, length }), None)
            }
            (Op::WriteAt { offset, length }, raid) => {
                let (group, offset) = location(offset);
                let op = Op::WriteAt { offset, length };
                match raid {
                    Raid::Zero => ((group as u32, op), None),
                    Raid::Ten => ((2 * group as u32, op.clone()), Some((2 * group as u32 + 1, op))),
                }
            }
            // A flush of an array is not measured here.
            (other, _) => ((0, other), None),
        }
    }
}

/// What all threads did since the last cut.
#[derive(Debug, Clone)]
pub struct Cut {
    pub begin: Tick,
    pub end: Tick,
    pub books: Books,
    pub moved: Moved,
    pub offered: Option<Offered>,
    /// Processor time of the threads since they started.
    pub cpu: Duration,
}

/// One thread's books, on cache lines of their own.
#[repr(align(128))]
struct Shelf(Mutex<Kept>);

struct Kept {
    books: Books,
    moved: Moved,
    lateness: Histogram,
}

/// The schedule of an open loop, shared by all threads.
struct Offer {
    schedule: Schedule,
    origin: Tick,
    /// The same schedule, advanced by the clock: counts what is due.
    meter: Schedule,
    meter_next: Option<Tick>,
    due: u64,
    due_before: u64,
}

impl Offer {
    fn new(arrivals: &Arrivals, seed: u64, origin: Tick) -> Offer {
        let mut meter = arrivals.schedule(seed);
        let meter_next = meter.next().map(|at| origin + at);
        Offer { schedule: arrivals.schedule(seed), origin, meter, meter_next, due: 0, due_before: 0 }
    }

    fn take(&mut self) -> Option<Tick> {
        self.schedule.next().map(|at| self.origin + at)
    }

    fn due(&mut self, now: Tick) -> u64 {
        while self.meter_next.is_some_and(|next| next <= now) {
            self.due += 1;
            self.meter_next = self.meter.next().map(|at| self.origin + at);
        }
        self.due
    }
}

/// Threads at work.
pub struct Threads<'a> {
    load: &'a Load,
    disks: &'a Disks,
    clock: Clock,
    shelves: Vec<Shelf>,
    offer: Option<Mutex<Offer>>,
    begun: AtomicU64,
    answered: AtomicU64,
    over: AtomicBool,
    ids: Mutex<Vec<i32>>,
    last: Mutex<(Tick, u64, u64)>,
    failed: Mutex<Option<io::Error>>,
}

impl Threads<'_> {
    /// Closes the interval that began at the last cut.
    pub fn cut(&self) -> Cut {
        let mut last = self.last.lock();
        let end = self.clock.now();
        let mut books = Books::new(self.offer.is_some());
        let (mut moved, mut lateness) = (Moved::default(), histogram());
        for shelf in &self.shelves {
            let mut kept = shelf.0.lock();
            books.merge(&kept.books);
            kept.books.clear();
            moved.read.0 += kept.moved.read.0;
            moved.written.0 += kept.moved.written.0;
            kept.moved = Moved::default();
            if !kept.lateness.is_empty() {
                lateness.add(&kept.lateness).expect("all histograms have the same bounds");
                kept.lateness.reset();
            }
        }
        let (begun, answered) = (self.begun.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed));
        let offered = self.offer.as_ref().map(|offer| {
            let mut offer = offer.lock();
            let all = offer.due(end);
            let before = std::mem::replace(&mut offer.due_before, all);
            let backlog = all.saturating_sub(begun);
            Offered {
                due: all - before,
                begun: begun - last.1,
                carried_in: before.saturating_sub(last.2),
                backlog,
                in_flight: begun.saturating_sub(answered),
                unanswered: 0,
                backlog_most: backlog,
                lateness: encode(&lateness),
            }
        });
        let begin = std::mem::replace(&mut *last, (end, begun, answered)).0;
        let cpu_ns = self.ids.lock().iter().map(|id| thread_cpu_ns(*id)).sum();
        Cut { begin, end, books, moved, offered, cpu: Duration::from_nanos(cpu_ns) }
    }

    /// Whether a thread gave up, so that nothing more will come.
    pub fn failed_early(&self) -> bool {
        self.failed.lock().is_some()
    }

    /// Why a thread had to give up.
    fn failure(&self) -> Option<io::Error> {
        self.failed.lock().take()
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Runs a load on `disks` while `body` runs, and waits for everything in flight after it. `drained` gets what
/// was answered after the end.
///
/// # Errors
/// A thread or its engine cannot be started, or the kernel refused the engine.
pub fn run<R>(
    load: &Load,
    disks: &Disks,
    clock: Clock,
    body: impl FnOnce(&Threads<'_>) -> R,
) -> io::Result<(R, Cut)> {
    let open = load.arrivals.is_some();
    let shelf = || {
        Shelf(Mutex::new(Kept { books: Books::new(open), moved: Moved::default(), lateness: histogram() }))
    };
    let threads = Threads {
        load,
        disks,
        clock,
        shelves: (0..load.threads).map(|_| shelf()).collect(),
        offer: load.arrivals.as_ref().map(|a| Mutex::new(Offer::new(a, load.io.seed, clock.now()))),
        begun: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        over: AtomicBool::new(false),
        ids: Mutex::default(),
        last: Mutex::new((clock.now(), 0, 0)),
        failed: Mutex::default(),
    };
    let gate = Barrier::new(load.threads as usize + 1);
    let result = std::thread::scope(|scope| {
        let _end = End(&threads);
        for number in 0..load.threads {
            let (threads, gate) = (&threads, &gate);
            let start = std::thread::Builder::new().name(format!("bench-{number}"));
            let started = start.spawn_scoped(scope, move || {
                if let Err(error) = work(threads, number, gate) {
                    threads.over.store(true, Ordering::Relaxed);
                    threads.failed.lock().get_or_insert(error);
                }
            });
            if let Err(error) = started {
                // The others wait at the gate for those that will never come: let them pass.
                threads.over.store(true, Ordering::Relaxed);
                for _ in number..load.threads {
                    scope.spawn(|| gate.wait());
                }
                gate.wait();
                return Err(error);
            }
        }
        gate.wait();
        Ok(body(&threads))
    })?;
    match threads.failure() {
        Some(error) => Err(error),
        None => Ok((result, threads.cut())),
    }
}

/// Ends the threads when dropped.
struct End<'a>(&'a Threads<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// A request of ours that is in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    kind: OpKind,
    length: u32,
    due: Tick,
    began: Tick,
    /// Answers still to come.
    left: u32,
    outcome: Outcome,
}

/// A moment at which something is due, taken from the schedule.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    due: Tick,
    /// Since when a slot was free for it.
    taken: Tick,
}

struct Worker<'a> {
    threads: &'a Threads<'a>,
    engine: Box<dyn Engine>,
    stream: FileStream<'a>,
    slots: Vec<Option<InFlight>>,
    free: Vec<u32>,
    ticket: Option<Ticket>,
    sent: u64,
    waiter: Waiter,
    urgency: Urgency,
}

/// Waiting for longer than this is worth being woken on time.
const LONG_WAIT: Duration = Duration::from_micros(500);

fn work(threads: &Threads<'_>, number: u32, gate: &Barrier) -> io::Result<()> {
    let load = threads.load;
    let slots = load.depth * threads.disks.copies();
    let seed = load.io.seed.wrapping_add(u64::from(number) << 32);
    let largest = load.io.blocks.most().0 as usize;
    let made = engine(load.engine, threads.disks.files.clone(), slots, largest, seed);
    gate.wait();
    let mut worker = Worker {
        threads,
        engine: made?,
        stream: load.io.stream(number),
        slots: vec![None; load.depth as usize],
        free: (0..load.depth).rev().collect(),
        ticket: None,
        sent: 0,
        waiter: Waiter::new(threads.clock, Duration::from_micros(50)),
        urgency: Urgency::default(),
    };
    threads.ids.lock().push(rustix::thread::gettid().as_raw_nonzero().get());
    worker.run(&threads.shelves[number as usize])
}

impl Worker<'_> {
    fn run(&mut self, shelf: &Shelf) -> io::Result<()> {
        let mut answers = Vec::with_capacity(self.slots.len() * 2);
        let blocking = self.threads.load.engine == EngineKind::Psync;
        loop {
            if !self.threads.over() {
                self.fill(shelf, blocking);
            }
            let idle = self.free.len() == self.slots.len();
            if idle && self.threads.over() {
                return Ok(());
            }
            if idle {
                // Nothing is in flight, so something is to be waited for: the next due time.
                let over = || self.threads.over();
                match self.ticket {
                    Some(ticket) => {
                        self.urgency.set(ticket.due.since(self.threads.clock.now()) > LONG_WAIT);
                        self.waiter.until(ticket.due, &over);
                    }
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
                continue;
            }
            self.engine.reap(1, self.patience(), &mut answers)?;
            self.settle(&mut answers, shelf);
        }
    }

    /// How long answers may be waited for: until something else is due.
    fn patience(&self) -> Option<Duration> {
        let ticket = self.ticket.filter(|_| !self.free.is_empty() && !self.threads.over())?;
        let spin = Duration::from_nanos(self.waiter.spin_ns());
        let left = ticket.due.since(self.threads.clock.now());
        Some(left.saturating_sub(spin).min(Duration::from_millis(20)))
    }

    /// Sends as much as there are slots for, and in an open loop as is due.
    #[inline]
    fn fill(&mut self, shelf: &Shelf, blocking: bool) {
        let mut now = self.threads.clock.now();
        while let Some(&slot) = self.free.last() {
            let mut due = now;
            if let Some(offer) = &self.threads.offer {
                let ticket = match self.ticket {
                    Some(ticket) => ticket,
                    None => match offer.lock().take() {
                        Some(due) => *self.ticket.insert(Ticket { due, taken: now }),
                        None => return,
                    },
                };
                if ticket.due > now {
                    now = self.threads.clock.now();
                    if ticket.due > now {
                        return;
                    }
                }
                self.ticket = None;
                due = ticket.due;
                let sendable = ticket.due.max(ticket.taken);
                shelf.0.lock().lateness.saturating_record(now.0.saturating_sub(sendable.0));
                self.urgency.set(false);
                self.threads.begun.fetch_add(1, Ordering::Relaxed);
            }
            self.free.pop();
            self.send(slot, due, now);
            if blocking {
                return;
            }
        }
    }

    #[inline]
    fn send(&mut self, slot: u32, due: Tick, began: Tick) {
        let op = self.stream.next_op();
        let length = match op {
            Op::ReadAt { length, .. } | Op::WriteAt { length, .. } => length,
            _ => 0,
        };
        let kind = op.kind();
        let ((file, op), second) = self.threads.disks.legs(op, self.sent);
        self.sent += 1;
        let left = 1 + u32::from(second.is_some());
        self.slots[slot as usize] = Some(InFlight { kind, length, due, began, left, outcome: Outcome::Done });
        self.engine.submit(Request { slot, file, op });
        if let Some((file, op)) = second {
            // The second copy of a write has a slot and a buffer of its own.
            self.engine.submit(Request { slot: slot + self.slots.len() as u32, file, op });
        }
    }

    /// Records what was answered.
    #[inline]
    fn settle(&mut self, answers: &mut Vec<Completion>, shelf: &Shelf) {
        if answers.is_empty() {
            return;
        }
        let ended = self.threads.clock.now();
        let depth = self.slots.len() as u32;
        let mut kept = shelf.0.lock();
        for answer in answers.drain(..) {
            let slot = answer.slot % depth;
            let location = &mut self.slots[slot as usize];
            let flight = location.as_mut().expect("an answer belongs to a request in flight");
            flight.left -= 1;
            if answer.outcome != Outcome::Done {
                flight.outcome = answer.outcome;
            }
            if flight.left > 0 {
                continue;
            }
            let InFlight { kind, length, due, began, outcome, .. } = *flight;
            *location = None;
            self.free.push(slot);
            kept.books.record(kind, outcome, &Timing { due, began, ended }, 0);
            if outcome == Outcome::Done {
                match kind {
                    OpKind::ReadAt => kept.moved.read.0 += u64::from(length),
                    OpKind::WriteAt => kept.moved.written.0 += u64::from(length),
                    _ => {}
                }
            }
            if self.threads.offer.is_some() {
                self.threads.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
