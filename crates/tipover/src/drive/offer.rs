//! The operations of an open loop: one schedule, from which whatever session is free takes the next.

use crate::clock::Clock;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::iter::{Skip, StepBy};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;
use tipover_core::experiment::Part;
use tipover_core::units::Tick;
use tipover_core::workload::{Arrivals, Schedule};

/// An operation that is due.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// Its number.
    pub number: u64,
    /// When it should be sent.
    pub due: Tick,
    /// Since when it was due and a session was free: what follows is the generator's own delay.
    pub sendable: Tick,
}

/// Shared by all threads that run sessions.
pub struct Offer {
    state: Mutex<State>,
    /// When the next operation is due; `u64::MAX` when there is none. A copy, so that looking costs no lock.
    next_due: AtomicU64,
    /// Estimate of how long an operation keeps its thread, in nanoseconds.
    service_ns: AtomicU64,
    /// Estimate of the time between two due operations, in nanoseconds.
    gap_ns: AtomicU64,
    /// Whether the thread that watches the schedule goes on watching it while its operation is short.
    keeps: AtomicBool,
    /// Number of the very first operation of our part.
    first: u64,
}

/// When the operations of our part are due.
type Times = StepBy<Skip<Schedule>>;

struct State {
    part: Part,
    /// Number of the first operation of our part.
    first: u64,
    schedule: Option<Times>,
    origin: Tick,
    /// The same schedule, advanced by the clock and not by sessions: counts what is due.
    meter: Option<Times>,
    meter_next: Option<Tick>,
    due: u64,
    next: Option<Tick>,
    number: u64,
    end: u64,
    begun: u64,
    /// Sessions that could send something now, and since when there is one.
    free: u32,
    free_since: Tick,
    /// Of a recorded load: what is due and waits for the session that it belongs to.
    lanes: Vec<VecDeque<(u64, Tick)>>,
    watch: Watch,
}

/// Who watches the schedule among threads with a session each.
#[derive(Default)]
struct Watch {
    leader: Option<u32>,
    /// Those who wait, the last to come first to go: its caches are warm. The first is the reserve.
    parked: Vec<(u32, Thread)>,
}

/// Counts of [`Offer`] since it began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Operations that became due.
    pub due: u64,
    /// Operations that were taken.
    pub begun: u64,
}

/// What became of waiting to be the one who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Watch.
    Leader,
    /// There is no open loop any more.
    Over,
}

/// An operation shorter than this is not worth waking another thread for.
const SHORT_NS: u64 = 5_000;
/// Operations further apart than this are worth a thread that is woken on time: sleeping and spinning for one
/// takes at most a tenth of a processor from everybody else.
const SPARSE_NS: u64 = 500_000;
/// A leader that is in an operation for longer than this past the next due time is relieved.
const RELIEF_NS: u64 = 200_000;
/// The reserve looks after the leader at most so often, and at least so often.
const LEAST_WATCH: Duration = Duration::from_nanos(RELIEF_NS);
const LONGEST_WATCH: Duration = Duration::from_millis(20);

impl Offer {
    /// Nothing is offered yet. Operations of the whole load are numbered from `first` and end before `end`.
    pub fn new(first: u64, end: u64, part: Part) -> Offer {
        let first = first + u64::from(part.number);
        Offer {
            state: Mutex::new(State {
                part,
                first,
                schedule: None,
                origin: Tick(0),
                meter: None,
                meter_next: None,
                due: 0,
                next: None,
                number: first,
                end,
                begun: 0,
                free: 0,
                free_since: Tick(0),
                lanes: Vec::new(),
                watch: Watch::default(),
            }),
            next_due: AtomicU64::new(u64::MAX),
            service_ns: AtomicU64::new(1_000_000),
            gap_ns: AtomicU64::new(0),
            keeps: AtomicBool::new(false),
            first,
        }
    }

    /// Offers `arrivals` from `now` on.
    ///
    /// With `restarts` the operations are numbered from the beginning again.
    pub fn start(&self, arrivals: &Arrivals, seed: u64, now: Tick, restarts: bool) {
        let mut state = self.state.lock();
        state.origin = now;
        let Part { number, of } = state.part;
        let times = || arrivals.schedule(seed).skip(number as usize).step_by(of as usize);
        (state.schedule, state.meter) = (Some(times()), Some(times()));
        if restarts {
            state.number = self.first;
            state.lanes.clear();
        }
        // What was begun before keeps its number.
        (state.free, state.due, state.begun, state.first) = (0, 0, 0, state.number);
        state.advance();
        state.meter_next = state.meter.as_mut().and_then(Iterator::next).map(|at| now + at);
        self.publish(&state);
    }

    /// Offers nothing any more; what was due and not taken is forgotten.
    pub fn end(&self) {
        let mut state = self.state.lock();
        (state.schedule, state.next, state.meter, state.meter_next) = (None, None, None, None);
        (state.due, state.begun) = (0, 0);
        state.lanes.clear();
        self.publish(&state);
        state.watch.leader = None;
        state.watch.parked.drain(..).for_each(|(_, thread)| thread.unpark());
    }

    fn publish(&self, state: &State) {
        self.next_due.store(state.next.map_or(u64::MAX, |due| due.0), Ordering::Release);
    }

    /// When the next operation is due.
    #[inline]
    pub fn next_due(&self) -> Option<Tick> {
        match self.next_due.load(Ordering::Acquire) {
            u64::MAX => None,
            due => Some(Tick(due)),
        }
    }

    /// Takes the next operation if it is due; the session that takes it is no longer free.
    pub fn take(&self, now: Tick) -> Option<Due> {
        let mut state = self.state.lock();
        let due = state.next.filter(|due| *due <= now)?;
        let number = state.number;
        state.number += u64::from(state.part.of);
        state.begun += 1;
        state.free = state.free.saturating_sub(1);
        state.advance();
        if let Some(next) = state.next {
            let (before, gap) = (self.gap_ns.load(Ordering::Relaxed), next.since(due).as_nanos() as u64);
            self.gap_ns.store((before * 7 + gap) / 8, Ordering::Relaxed);
        }
        self.publish(&state);
        Some(Due { number, due, sendable: due.max(state.free_since) })
    }

    /// Takes an operation of a recorded load for the first of the `free` sessions for which one is due: its
    /// place among them, its number in the load, and since when it is free. `session_of` says whose an
    /// operation is, of `sessions`.
    pub fn take_for(
        &self,
        now: Tick,
        (sessions, session_of): (u32, &dyn Fn(u64) -> u32),
        mut free: impl Iterator<Item = (usize, u32, Tick)>,
    ) -> Option<(usize, Due)> {
        let mut state = self.state.lock();
        state.lanes.resize_with(sessions as usize, VecDeque::new);
        while let Some(due) = state.next.filter(|due| *due <= now) {
            let number = state.number;
            state.number += u64::from(state.part.of);
            state.lanes[session_of(number) as usize % sessions as usize].push_back((number, due));
            state.advance();
        }
        self.publish(&state);
        let (place, session, since) =
            free.find(|(_, session, _)| !state.lanes[*session as usize].is_empty())?;
        let (number, due) = state.lanes[session as usize].pop_front()?;
        state.begun += 1;
        Some((place, Due { number, due, sendable: due.max(since) }))
    }

    /// Whether an operation of a recorded load is due and waits for one of these sessions.
    pub fn has_waiting(&self, mut sessions: impl Iterator<Item = u32>) -> bool {
        let state = self.state.lock();
        sessions.any(|session| state.lanes.get(session as usize).is_some_and(|lane| !lane.is_empty()))
    }

    /// Whether so little is due that the processor is hardly taken by watching for it.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.gap_ns.load(Ordering::Relaxed) > SPARSE_NS
    }

    /// A session has become free.
    pub fn release(&self, now: Tick) {
        let mut state = self.state.lock();
        if state.free == 0 {
            state.free_since = now;
        }
        state.free += 1;
    }

    /// What became due and was taken since the start, with the time that belongs to it. `release` and `take`
    /// wait meanwhile.
    pub fn counts(&self, clock: &Clock) -> (Tick, Counts) {
        let mut state = self.state.lock();
        let now = clock.now();
        while let Some(due) = state.meter_next.filter(|due| *due <= now) {
            state.due += 1;
            let origin = state.origin;
            let more = state.first + state.due * u64::from(state.part.of) < state.end;
            state.meter_next =
                state.meter.as_mut().filter(|_| more).and_then(Iterator::next).map(|at| origin + at);
            debug_assert!(state.meter_next.is_none_or(|next| next >= due));
        }
        (now, Counts { due: state.due.max(state.begun), begun: state.begun })
    }

    /// Waits until session `index` is to watch the schedule. `over` is asked whenever the thread wakes.
    pub fn lead(&self, index: u32, clock: &Clock, over: &dyn Fn() -> bool) -> Role {
        loop {
            let look_again = {
                let mut state = self.state.lock();
                if over() || state.schedule.is_none() {
                    state.watch.parked.retain(|(parked, _)| *parked != index);
                    return Role::Over;
                }
                let now = clock.now();
                let relief = state.next.map(|due| due + Duration::from_nanos(RELIEF_NS));
                let keeps = self.keeps.load(Ordering::Relaxed);
                let watch = &mut state.watch;
                let reserve = watch.parked.first().is_some_and(|(first, _)| *first == index);
                // A leader that keeps the watch while in an operation may get stuck in it.
                let relieves = reserve && keeps && relief.is_some_and(|at| now > at);
                if watch.leader.is_none() || relieves {
                    watch.leader = Some(index);
                }
                if watch.leader == Some(index) {
                    watch.parked.retain(|(parked, _)| *parked != index);
                    // Who is the reserve now may sleep as one who was not.
                    if let Some((_, next)) = watch.parked.first().filter(|_| reserve) {
                        next.unpark();
                    }
                    return Role::Leader;
                }
                // Whoever was called to lead stands on the list no more, and may find that the reserve was
                // faster: it must get back on, or nobody would ever wake it again.
                if !watch.parked.iter().any(|(parked, _)| *parked == index) {
                    watch.parked.push((index, std::thread::current()));
                }
                let reserve = watch.parked.first().is_some_and(|(first, _)| *first == index);
                // Until the next operation is due there is nothing to be late with.
                let wait = relief.map_or(LONGEST_WATCH, |at| at.since(now).max(LEAST_WATCH));
                (reserve && keeps).then_some(wait.min(LONGEST_WATCH))
            };
            match look_again {
                Some(time) => std::thread::park_timeout(time),
                None => std::thread::park(),
            }
        }
    }

    /// Whether `index` still watches; it may have been relieved.
    pub fn leads(&self, index: u32) -> bool {
        self.state.lock().watch.leader == Some(index)
    }

    /// Before the leader executes: lets another one watch, unless operations are so short that it will be
    /// back sooner than anybody could be woken. Whether the watch is another's now.
    pub fn hand_over(&self, index: u32) -> bool {
        let short = self.service_ns.load(Ordering::Relaxed) < SHORT_NS;
        let kept = self.keeps.swap(short, Ordering::Relaxed);
        if short {
            if !kept && let Some((_, reserve)) = self.state.lock().watch.parked.first() {
                // From now on it looks after the leader.
                reserve.unpark();
            }
            return false;
        }
        let next = {
            let mut state = self.state.lock();
            if state.watch.leader != Some(index) {
                // The reserve has relieved it already.
                return true;
            }
            let next = state.watch.parked.pop();
            state.watch.leader = next.as_ref().map(|(index, _)| *index);
            next
        };
        if let Some((_, thread)) = next {
            thread.unpark();
        }
        true
    }

    /// Lets another one watch because this one ends.
    pub fn resign(&self, index: u32) {
        let mut state = self.state.lock();
        if state.watch.leader == Some(index) {
            let next = state.watch.parked.pop();
            state.watch.leader = next.as_ref().map(|(index, _)| *index);
            if let Some((_, thread)) = next {
                thread.unpark();
            }
        }
    }

    /// Learns how long an operation kept its thread; shorter ones sooner, because whoever was woken takes the
    /// processor from some of them.
    pub fn served(&self, ns: u64) {
        let before = self.service_ns.load(Ordering::Relaxed);
        let weight = if ns < before { 2 } else { 8 };
        self.service_ns.store((before * (weight - 1) + ns) / weight, Ordering::Relaxed);
    }
}

impl State {
    fn advance(&mut self) {
        let more = self.number < self.end;
        let origin = self.origin;
        self.next = self.schedule.as_mut().filter(|_| more).and_then(Iterator::next).map(|at| origin + at);
    }
}
