//! When requests are answered: the device model's verdicts, kept by one timer thread.
//!
//! A worker thread notes a request's arrival ([`Shape::begin`]), moves its bytes, and hands the answer
//! over ([`Shape::finish`]); nobody sleeps in a worker. The timer thread learns how late the system wakes
//! it and wakes that much earlier, spinning only the rest.

use crate::backing::Landing;
use crate::clock::{midnight, monotonic};
use crate::ring::{Via, errno};
use crate::softirq::Softirqs;
use crate::trace::{Names, Record, Tap};
use crate::volatile::Unanswered;
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tipover_core::device::{Armed, Asked, Counters, Demand, Faults, Kind, Model, Rule, Spec, Verdict};
use tipover_core::units::{Bytes, Tick};

/// The due of what is stalled.
const NEVER: Tick = Tick(u64::MAX);

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    arrival: Tick,
    /// When it is to be answered.
    due: Tick,
    /// Set if later requests may overtake this one.
    number: Option<NonZeroU64>,
    kind: Kind,
    position: Position,
    size: Bytes,
    /// Of when it arrived.
    times: Times,
}

/// How often all requests were answered out of their time. A request from before such a moment that comes to
/// be answered after it does not wait any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Times {
    /// The power was cut.
    cut: u64,
    /// Stalls were ended.
    unstalled: u64,
}

/// Where a request's bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    /// The node of file mode; zero in block mode.
    pub file: u64,
    pub offset: u64,
}

impl Position {
    /// Where a spinning disk's arm goes for it: files of file mode are scattered over the disk, each in one
    /// piece.
    fn on_device(self) -> u64 {
        (self.file.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !4095).wrapping_add(self.offset)
    }
}

/// What the kernel is told, later or at once. What a request brings about when it is answered comes about
/// just before, so that whoever has the answer can rely on it.
pub(crate) enum Reply {
    Data(Via<ReplyData>, Result<Vec<u8>, Errno>),
    Written(Via<ReplyWrite>, Result<(u32, Option<Unanswered>), Errno>),
    Zeroed(Via<ReplyEmpty>, Result<Option<Unanswered>, Errno>),
    Flushed(Via<ReplyEmpty>, Result<Landing, Errno>),
}

impl Reply {
    fn send(self) {
        match self {
            Reply::Data(reply, Ok(data)) => reply.data(&data),
            Reply::Written(reply, Ok((size, unanswered))) => {
                drop(unanswered);
                reply.written(size);
            }
            Reply::Zeroed(reply, Ok(unanswered)) => {
                drop(unanswered);
                reply.ok();
            }
            Reply::Flushed(reply, Ok(landing)) => match landing.land() {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(errno(e)),
            },
            Reply::Data(_, Err(errno))
            | Reply::Written(_, Err(errno))
            | Reply::Zeroed(_, Err(errno))
            | Reply::Flushed(_, Err(errno)) => self.fail(errno),
        }
    }

    /// Whatever it would have been.
    fn fail(self, errno: Errno) {
        match self {
            Reply::Data(reply, _) => reply.error(errno),
            Reply::Written(reply, _) => reply.error(errno),
            Reply::Zeroed(reply, _) | Reply::Flushed(reply, _) => reply.error(errno),
        }
    }
}

struct Pending {
    due: Tick,
    /// Equal dues are answered in the order of arrival.
    order: u64,
    ticket: Ticket,
    answer: Reply,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Pending {}
impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pending {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

#[derive(Default)]
struct Queue {
    pending: BinaryHeap<Reverse<Pending>>,
    order: u64,
    closed: bool,
    /// There is no power: nothing waits, everything fails.
    dark: bool,
}

/// What all requests share: the lock is held for a microsecond at most.
struct Device {
    model: Model,
    /// Where completed requests are recorded while a trace is being made.
    tap: Option<Arc<Tap>>,
}

/// The device between transport and backing.
pub(crate) struct Shape {
    device: Mutex<Device>,
    /// What the transport takes off every residence, in nanoseconds: arrivals are dated back by it, so that
    /// the *client* sees the configured latency, and servers and gates are not held for less time.
    compensation: AtomicU64,
    unlimited: AtomicBool,
    /// See [`at_once`](Shape::at_once).
    unhindered: AtomicBool,
    queue: Mutex<Queue>,
    /// [`Times`], changed under the queue's lock.
    cut: AtomicU64,
    unstalled: AtomicU64,
    wake: Condvar,
    /// The earliest due in the queue, for the timer while it spins.
    next: AtomicU64,
    /// Block mode: how answers are finished at once.
    softirqs: OnceLock<Softirqs>,
    /// Whether any rule is in force: without, nobody asks.
    faulty: AtomicBool,
    faults: Mutex<Faults>,
    /// File mode: how files are called, for rules that ask.
    names: Mutex<Option<Names>>,
}

impl Shape {
    pub fn new(spec: Spec) -> Shape {
        let unlimited = AtomicBool::new(spec.is_unlimited());
        let mut model = Model::new(spec, 0x7170_6f76_6572);
        model.set_midnight(midnight());
        let shape = Shape {
            unlimited,
            device: Mutex::new(Device { model, tap: None }),
            compensation: AtomicU64::new(0),
            unhindered: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
            cut: AtomicU64::new(0),
            unstalled: AtomicU64::new(0),
            wake: Condvar::new(),
            next: AtomicU64::new(u64::MAX),
            softirqs: OnceLock::new(),
            faulty: AtomicBool::new(false),
            faults: Mutex::default(),
            names: Mutex::default(),
        };
        // Counters begin now, not at the machine's boot.
        shape.counters();
        shape
    }

    /// For requests that arrive from now on; those under way keep their times.
    pub fn set(&self, spec: Spec, compensation: Duration) {
        let mut device = self.device.lock();
        self.unlimited.store(spec.is_unlimited(), Relaxed);
        let compensation = if spec.is_unlimited() { Duration::ZERO } else { compensation };
        self.compensation.store(compensation.as_nanos() as u64, Relaxed);
        device.model.set_spec(spec);
    }

    /// Whether anything limits the disk.
    pub fn is_shaped(&self) -> bool {
        !self.unlimited.load(Relaxed)
    }

    /// Block mode: answers end in a softirq, see [`Softirqs`]. Without it the disk works, only slower.
    pub fn answers_end_in_softirqs(&self) {
        if let Ok(softirqs) = Softirqs::new() {
            let _ = self.softirqs.set(softirqs);
        }
    }

    /// The timer thread has sent answers, which shall arrive at once, though it may go on spinning here. A
    /// worker that answers sleeps right after, which costs as little: it was measured there, and did not pay.
    fn sent(&self) {
        if let Some(softirqs) = self.softirqs.get() {
            softirqs.run();
        }
    }

    /// Nothing holds up what is asked for while `act` lasts. The loop driver flushes a file that it is given,
    /// and no loop device of the whole machine can be opened until that is answered.
    pub fn at_once<R>(&self, act: impl FnOnce() -> R) -> R {
        self.unhindered.store(true, SeqCst);
        let done = act();
        self.unhindered.store(false, SeqCst);
        done
    }

    /// How large the device is, for its arm.
    pub fn set_size(&self, size: Bytes) {
        self.device.lock().model.set_size(size);
    }

    pub fn counters(&self) -> Counters {
        let mut device = self.device.lock();
        device.model.counters(monotonic())
    }

    /// Records what completes from now on in `tap`, or nowhere. Nobody uses the former tap any more when this
    /// returns.
    pub fn record(&self, tap: Option<Arc<Tap>>) {
        self.device.lock().tap = tap;
    }

    /// How files are called from now on.
    pub fn set_names(&self, names: Option<Names>) {
        *self.names.lock() = names;
    }

    /// Puts a rule in force; returns its number.
    pub fn add_fault(&self, rule: Rule) -> u64 {
        let mut faults = self.faults.lock();
        self.faulty.store(true, Relaxed);
        faults.add(rule, monotonic())
    }

    /// Takes back one rule, or all; what they stalled is answered now. Returns how many there were.
    pub fn clear_faults(&self, number: Option<u64>) -> usize {
        let mut faults = self.faults.lock();
        let cleared = faults.clear(number);
        self.faulty.store(!faults.is_empty(), Relaxed);
        drop(faults);
        self.release_stalled();
        cleared
    }

    /// The rules in force.
    pub fn faults(&self) -> Vec<Armed> {
        self.faults.lock().list()
    }

    fn judge(&self, arrival: Tick, kind: Kind, position: Position, size: Bytes) -> Verdict {
        let mut faults = self.faults.lock();
        let names = if faults.ask_for_paths() { self.names.lock().clone() } else { None };
        let path = names.and_then(|names| names(position.file));
        let path = path.as_deref().map(|path| path.to_string_lossy());
        let Position { file, offset } = position;
        faults.judge(arrival, &Asked { kind, file, path: path.as_deref(), offset, size })
    }

    fn times(&self) -> Times {
        Times { cut: self.cut.load(SeqCst), unstalled: self.unstalled.load(SeqCst) }
    }

    /// A request has arrived; what shall become of it is for the caller to do, but for its delay.
    pub fn begin(&self, kind: Kind, position: Position, size: u64) -> (Ticket, Verdict) {
        self.begin_as(kind, kind, position, size)
    }

    /// The same for what is of one kind to faults, and takes as long as another.
    pub fn begin_as(&self, judged: Kind, kind: Kind, position: Position, size: u64) -> (Ticket, Verdict) {
        let times = self.times();
        if self.unhindered.load(SeqCst) {
            let ticket = self.admit(Kind::Discard, position, size, times);
            return (Ticket { kind, due: ticket.arrival, number: None, ..ticket }, Verdict::default());
        }
        if !self.faulty.load(Relaxed) {
            return (self.admit(kind, position, size, times), Verdict::default());
        }
        let verdict = self.judge(monotonic(), judged, position, Bytes(size));
        // A cache that lies answers at once; that is why it does.
        let admitted = if verdict.lying { Kind::Discard } else { kind };
        let mut ticket = Ticket { kind, ..self.admit(admitted, position, size, times) };
        ticket.due = ticket.due + verdict.delay;
        if verdict.stall {
            ticket.due = NEVER;
        }
        (ticket, verdict)
    }

    fn admit(&self, kind: Kind, position: Position, size: u64, times: Times) -> Ticket {
        let size = Bytes(size);
        let mut device = self.device.lock();
        let arrival = Tick(monotonic().0.saturating_sub(self.compensation.load(Relaxed)));
        let admission = device.model.request(arrival, Demand { kind, offset: position.on_device(), size });
        Ticket { arrival, due: admission.due, number: admission.number, kind, position, size, times }
    }

    /// Whether this request may be answered at once, so that its bytes need no buffer of their own.
    pub fn is_due(&self, ticket: &Ticket) -> bool {
        if ticket.number.is_some() {
            return false;
        }
        self.unlimited.load(Relaxed) && ticket.due <= ticket.arrival || ticket.due <= monotonic()
    }

    /// Counts the request as completed. Counted before it is answered, so that whoever has its answer also
    /// finds it in the counters.
    pub fn complete(&self, ticket: &Ticket) {
        let Ticket { arrival, kind, position, size, .. } = *ticket;
        let mut device = self.device.lock();
        let end = monotonic();
        device.model.complete(arrival, end, kind, size);
        if let Some(tap) = &device.tap {
            tap.put(&Record { arrival, end, kind, file: position.file, offset: position.offset, size });
        }
    }

    /// Answers when due.
    pub fn finish(&self, ticket: Ticket, answer: Reply) {
        if self.is_due(&ticket) && self.cut.load(SeqCst) == ticket.times.cut {
            self.complete(&ticket);
            return answer.send();
        }
        let mut queue = self.queue.lock();
        let now = self.times();
        let fails = queue.dark || now.cut != ticket.times.cut;
        if fails || queue.closed || ticket.due == NEVER && now != ticket.times {
            drop(queue);
            self.complete(&ticket);
            return if fails { answer.fail(Errno::EIO) } else { answer.send() };
        }
        let order = queue.order;
        queue.order += 1;
        queue.pending.push(Reverse(Pending { due: ticket.due, order, ticket, answer }));
        if ticket.due.0 < self.next.load(Relaxed) {
            self.next.store(ticket.due.0, Relaxed);
            self.wake.notify_one();
        }
    }

    /// Answers everything that waits, whenever it was due: nobody may hang on a disk that goes away.
    pub fn release(&self) {
        for pending in self.take_pending(|_| true) {
            self.complete(&pending.ticket);
            pending.answer.send();
        }
    }

    /// Answers what is stalled.
    fn release_stalled(&self) {
        for pending in self.take_pending(|pending| pending.due == NEVER) {
            self.complete(&pending.ticket);
            pending.answer.send();
        }
    }

    /// Takes out what waits, in order; what is stalled and comes to wait only now waits no more.
    fn take_pending(&self, wanted: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let mut queue = self.queue.lock();
        self.unstalled.fetch_add(1, SeqCst);
        let all = std::mem::take(&mut queue.pending).into_iter().map(|Reverse(pending)| pending);
        let (mut taken, left): (Vec<_>, Vec<_>) = all.partition(wanted);
        queue.pending = left.into_iter().map(Reverse).collect();
        taken.sort_unstable();
        taken
    }

    /// The power is gone: everything under way fails, and everything that comes until there is
    /// [`light`](Self::light) again. Returns how many writes and flushes were under way.
    pub fn darken(&self) -> (u64, u64) {
        let mut queue = self.queue.lock();
        queue.dark = true;
        self.cut.fetch_add(1, SeqCst);
        let pending = std::mem::take(&mut queue.pending);
        drop(queue);
        let count = |kind| pending.iter().filter(|Reverse(p)| p.ticket.kind == kind).count() as u64;
        let under_way = (count(Kind::Write), count(Kind::Flush));
        for Reverse(pending) in pending {
            self.complete(&pending.ticket);
            pending.answer.fail(Errno::EIO);
        }
        under_way
    }

    /// There is power again.
    pub fn light(&self) {
        self.queue.lock().dark = false;
    }

    /// Ends the timer thread.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_one();
        self.release();
    }

    /// The timer thread's life.
    pub fn keep_time(&self) {
        let mut lateness = Lateness::default();
        let mut due = Vec::new();
        let mut queue = self.queue.lock();
        while !queue.closed {
            let now = monotonic();
            while queue.pending.peek().is_some_and(|Reverse(first)| first.due <= now) {
                let Some(Reverse(mut first)) = queue.pending.pop() else { break };
                match first.ticket.number.and_then(|number| self.device.lock().model.postponed(number, now)) {
                    Some(later) => {
                        first.due = later;
                        queue.pending.push(Reverse(first));
                    }
                    None => due.push(first),
                }
            }
            let next = queue.pending.peek().map_or(u64::MAX, |Reverse(first)| first.due.0);
            self.next.store(next, Relaxed);
            if !due.is_empty() {
                MutexGuard::unlocked(&mut queue, || {
                    for pending in due.drain(..) {
                        self.complete(&pending.ticket);
                        pending.answer.send();
                    }
                    self.sent();
                });
            } else if next == u64::MAX {
                self.wake.wait(&mut queue);
            } else if let Some(nap) = lateness.nap(Tick(next).since(now)) {
                if self.wake.wait_for(&mut queue, nap).timed_out() {
                    lateness.learn(monotonic().since(now).saturating_sub(nap));
                }
            } else {
                // Nearer than the usual lateness: spin, without the lock, until due or until something is
                // sooner.
                MutexGuard::unlocked(&mut queue, || {
                    while monotonic().0 < next && self.next.load(Relaxed) >= next {
                        std::hint::spin_loop();
                    }
                });
            }
        }
    }
}

/// How late this machine wakes the timer thread, learnt as it goes.
struct Lateness {
    mean_ns: f64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { mean_ns: 30_000.0 }
    }
}

impl Lateness {
    /// How long to sleep so as to wake `left` from now, or `None` when only spinning is exact enough.
    fn nap(&self, left: Duration) -> Option<Duration> {
        let nap = left.as_nanos() as f64 - self.mean_ns * 1.2;
        (nap > 3_000.0).then(|| Duration::from_nanos(nap as u64))
    }
    /// One more wake-up. A stall of the whole machine says nothing about the next wake-up.
    fn learn(&mut self, late: Duration) {
        let late = late.as_nanos() as f64;
        if late < 300_000.0 {
            self.mean_ns += (late - self.mean_ns) * 0.05;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Position = Position { file: 0, offset: 0 };

    #[test]
    fn unlimited_requests_are_due_at_once_and_counted() {
        let shape = Shape::new(Spec::default());
        let before = shape.counters();
        let ticket = shape.begin(Kind::Read, START, 4096).0;
        assert!(shape.is_due(&ticket));
        assert_eq!(shape.counters().in_flight, 1);
        shape.complete(&ticket);
        let after = shape.counters();
        assert_eq!((after.in_flight, after.read.requests, after.read.bytes), (0, 1, Bytes(4096)));
        assert!(after.at > before.at);
    }

    #[test]
    fn a_tap_gets_what_completes_while_it_is_there() {
        let shape = Shape::new(Spec::default());
        let tap = Arc::new(Tap::new(4));
        let early = shape.begin(Kind::Read, START, 4096).0;
        shape.complete(&shape.begin(Kind::Read, START, 4096).0);
        let before = shape.counters();
        shape.record(Some(tap.clone()));
        shape.complete(&early);
        shape.complete(&shape.begin(Kind::Write, Position { file: 3, offset: 8192 }, 512).0);
        shape.record(None);
        let after = shape.counters();
        shape.complete(&shape.begin(Kind::Read, START, 4096).0);
        let mut records = Vec::new();
        tap.take(4, &mut records);
        assert_eq!(records.len(), 2);
        assert_eq!((records[1].file, records[1].offset, records[1].size), (3, 8192, Bytes(512)));
        assert_eq!(records[0].residence(), after.read.residence - before.read.residence);
        assert_eq!(records[1].residence(), after.write.residence);
    }

    #[test]
    fn compensation_dates_arrivals_back() {
        let shape = Shape::new(Spec::default());
        shape.set("latency=1s".parse().unwrap(), Duration::from_micros(300));
        let before = monotonic();
        let ticket = shape.begin(Kind::Write, START, 512).0;
        let after = monotonic();
        let (longest, shortest) = (ticket.due.since(before), ticket.due.since(after));
        let wanted = Duration::from_secs(1) - Duration::from_micros(300);
        assert!(longest >= wanted && shortest <= wanted, "{longest:?} {shortest:?}");
        shape.set(Spec::default(), Duration::from_micros(300));
        assert!(shape.is_due(&shape.begin(Kind::Write, START, 512).0));
    }

    #[test]
    fn faults_are_judged_counted_and_cleared() {
        let shape = Shape::new(Spec::default());
        let number = shape.add_fault("stall,kind=read,path=base/*".parse().unwrap());
        let (_, verdict) = shape.begin(Kind::Read, START, 4096);
        assert!(!verdict.stall, "it has no path");
        shape.set_names(Some(Arc::new(|file| Some(format!("base/{file}").into()))));
        let (ticket, verdict) = shape.begin(Kind::Read, START, 4096);
        assert!(verdict.stall && !shape.is_due(&ticket));
        shape.add_fault("slow:1h".parse().unwrap());
        let (ticket, _) = shape.begin(Kind::Write, START, 4096);
        assert!(!shape.is_due(&ticket));
        let fired: Vec<u64> = shape.faults().iter().map(|armed| armed.fired).collect();
        assert_eq!((fired, shape.clear_faults(Some(number)), shape.clear_faults(None)), (vec![1, 1], 1, 1));
        let (ticket, verdict) = shape.begin(Kind::Read, START, 4096);
        assert!(verdict == Verdict::default() && shape.is_due(&ticket));
    }

    #[test]
    fn at_once_nothing_is_slow_or_fails() {
        let shape = Shape::new("flush_latency=1h".parse().unwrap());
        shape.add_fault("stall,kind=flush".parse().unwrap());
        let (ticket, verdict) = shape.at_once(|| shape.begin(Kind::Flush, START, 0));
        assert!(verdict == Verdict::default() && shape.is_due(&ticket));
        assert_eq!(shape.faults()[0].matched, 0);
        let (ticket, verdict) = shape.begin(Kind::Flush, START, 0);
        assert!(verdict.stall && !shape.is_due(&ticket));
    }

    #[test]
    fn the_timer_naps_less_when_it_wakes_late() {
        let mut lateness = Lateness::default();
        let long = Duration::from_millis(7);
        let before = lateness.nap(long).unwrap();
        for _ in 0..100 {
            lateness.learn(Duration::from_micros(90));
        }
        lateness.learn(Duration::from_secs(1));
        let after = lateness.nap(long).unwrap();
        assert!(after < before && after > Duration::from_millis(6));
        assert_eq!(lateness.nap(Duration::from_micros(50)), None, "spin");
    }
}
