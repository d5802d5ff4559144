//! Many sessions on one thread, whose connections are waited for together.
//!
//! Time-outs are looked for in turns over all sessions, a sixteenth of the time-out apart and at most 20 ms:
//! that costs nothing per operation, and an operation given up is late by one turn at most.

use super::blocking::verified;
use super::offer::Due;
use super::wait::Waiter;
use super::{Phase, Seat, Sessions, Shelf};
use crate::history::Pen;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tipover_core::op::{Failure, Op, Outcome, Timing};
use tipover_core::target::{Progress, Session};
use tipover_core::units::Tick;

/// Lets `opened` sessions, each with its index, work on this thread until they are stopped or at the end of
/// the plan.
pub fn run(
    work: &Sessions<'_>,
    first: u32,
    opened: Vec<(u32, Box<dyn Session + '_>)>,
) -> rustix::io::Result<()> {
    let plan = work.plan;
    let slots = opened.into_iter().map(|(index, session)| Slot {
        session,
        index,
        seat: &work.seats[index as usize],
        number: plan.first_closed(index),
        free_since: Tick(0),
        watched: None,
        doubtful: false,
        job: None,
        pen: Pen::of(plan.history, plan.client + index),
    });
    let slots: Vec<Slot<'_>> = slots.collect();
    let turn = plan.timeout / 16;
    let turn = if plan.timeout.is_zero() { LOOK_AGAIN } else { turn.clamp(LEAST_TURN, LOOK_AGAIN) };
    let mut this = Loop {
        work,
        shelf: &work.shelves[first as usize % work.shelves.len()],
        verifies: plan.verifies(),
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        idle: (0..slots.len()).collect(),
        free: Vec::new(),
        ready: VecDeque::new(),
        naps: BinaryHeap::new(),
        in_flight: 0,
        slots,
        turn,
        next_turn: plan.clock.now() + turn,
        waiter: Waiter::new(plan.clock, plan.spin),
        ends: false,
        lost: 0,
    };
    this.work()
}

const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LEAST_TURN: Duration = Duration::from_millis(1);

struct Loop<'a> {
    work: &'a Sessions<'a>,
    shelf: &'a Shelf,
    verifies: bool,
    epoll: OwnedFd,
    slots: Vec<Slot<'a>>,
    /// Slots that take part in no loop yet, after a change of phase.
    idle: Vec<usize>,
    /// Slots that are free to send what is due in an open loop; the last one goes first.
    free: Vec<usize>,
    /// Slots with a request to send at once.
    ready: VecDeque<usize>,
    /// Slots that pause, until when.
    naps: BinaryHeap<Reverse<(Tick, usize)>>,
    in_flight: usize,
    turn: Duration,
    next_turn: Tick,
    waiter: Waiter,
    /// Whether a session has reached the end of the plan: so will the others.
    ends: bool,
    /// Sessions on which nothing more can be done.
    lost: usize,
}

/// A session and its place.
struct Slot<'a> {
    session: Box<dyn Session + 'a>,
    /// Among all sessions of the plan.
    index: u32,
    seat: &'a Seat,
    /// Of its next operation in a closed loop.
    number: u64,
    /// Since when it is free in an open loop.
    free_since: Tick,
    /// What the poll knows of its connection.
    watched: Option<(i32, epoll::EventFlags)>,
    /// Whether the connection may have been made anew under the same descriptor.
    doubtful: bool,
    job: Option<Job>,
    pen: Pen<'a>,
}

/// An operation at hand.
struct Job {
    /// Of the operation.
    number: u64,
    /// As the workload gave it.
    op: Op,
    /// What is sent now: the same, or a part of it.
    request: Op,
    /// What is sent after it.
    then: Option<Op>,
    due: Tick,
    began: Tick,
    /// When the request at hand was first sent.
    request_began: Tick,
    /// When it was last sent.
    sent: Tick,
    /// Whether it was sent and its answer is awaited.
    sending: bool,
    retries: u32,
    retries_before: u32,
    /// The outcome of the last try, while waiting for the next one.
    last: Outcome,
}

impl Loop<'_> {
    fn now(&self) -> Tick {
        self.work.plan.clock.now()
    }

    fn work(&mut self) -> rustix::io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            if self.work.abandon.load(Ordering::Relaxed) {
                return Ok(());
            }
            let phase = self.work.phase();
            self.follow(phase);
            for _ in 0..self.ready.len() {
                let Some(slot) = self.ready.pop_front() else { break };
                self.send(slot)?;
            }
            self.send_due()?;
            let now = self.now();
            self.wake(now, phase)?;
            if now >= self.next_turn {
                self.look_for_timeouts(now)?;
            }
            // Who has just woken from a pause still goes on, though another one may have reached the end.
            let goes_on = phase == Phase::Closed && !self.idle.is_empty();
            let waits = self.in_flight > 0 || !self.ready.is_empty() || !self.naps.is_empty() || goes_on;
            let all_lost = self.lost == self.slots.len();
            if !waits && (phase == Phase::Over || all_lost || (self.ends && self.free.is_empty())) {
                return Ok(());
            }
            self.wait(&mut events)?;
            for event in &events {
                self.advance(*event)?;
                self.send_due()?;
            }
        }
    }

    /// Puts idle slots to work as the phase wants it.
    fn follow(&mut self, phase: Phase) {
        if phase != Phase::Open && !self.free.is_empty() {
            self.idle.append(&mut self.free);
        }
        match phase {
            Phase::Closed => {
                while let Some(slot) = self.idle.pop() {
                    self.begin_closed(slot);
                }
            }
            Phase::Open => {
                let now = self.now();
                for slot in self.idle.drain(..) {
                    self.free.push(slot);
                    self.slots[slot].free_since = now;
                    self.work.offer.release(now);
                }
                let offer = &self.work.offer;
                let mine = self.slots.iter().map(|slot| slot.index);
                let is_over = offer.next_due().is_none() && !self.work.plan.warms_up;
                if is_over && !offer.has_waiting(mine) {
                    self.ends = true;
                    self.free.clear();
                }
            }
            Phase::Paused | Phase::Over => {}
        }
    }

    fn begin_closed(&mut self, slot: usize) {
        let plan = self.work.plan;
        let number = self.slots[slot].number;
        if number >= plan.ends_at() {
            self.ends = true;
            return;
        }
        self.slots[slot].number += u64::from(plan.all_sessions);
        self.begin(slot, number, None);
        self.ready.push_back(slot);
    }

    /// Sends what is due, as long as there are free sessions.
    fn send_due(&mut self) -> rustix::io::Result<()> {
        while !self.free.is_empty() && self.work.phase() == Phase::Open {
            let now = self.now();
            let Some((slot, due)) = self.take(now) else { return Ok(()) };
            self.begin(slot, due.number, Some(due));
            if self.work.plan.is_late(due.due, now) {
                let now = self.now();
                self.end_request(slot, Outcome::Refused(Failure::Late), now);
                continue;
            }
            self.send(slot)?;
        }
        Ok(())
    }

    /// What is due and a free session for it: of a recorded load its own.
    fn take(&mut self, now: Tick) -> Option<(usize, Due)> {
        let (plan, offer) = (self.work.plan, &self.work.offer);
        if self.work.is_recorded {
            let session_of = |number| plan.workload.session(number).unwrap_or(0);
            let seat = |(place, slot): (usize, &usize)| {
                let slot = &self.slots[*slot];
                (place, slot.index, slot.free_since)
            };
            let free = self.free.iter().enumerate().map(seat);
            let (place, due) = offer.take_for(now, (plan.sessions, &session_of), free)?;
            return Some((self.free.swap_remove(place), due));
        }
        if offer.next_due().is_none_or(|due| due > now) {
            return None;
        }
        let due = offer.take(now)?;
        self.free.pop().map(|slot| (slot, due))
    }

    fn begin(&mut self, slot: usize, number: u64, due: Option<Due>) {
        let op = self.work.plan.workload.op(number, self.work.plan.records);
        let (request, then) = match op.parts() {
            Some((read, update)) => (read, Some(update)),
            None => (op.clone(), None),
        };
        let began = self.now();
        let due_at = due.map_or(began, |due| due.due);
        let slot = &mut self.slots[slot];
        slot.pen.intend(&op, due_at, began);
        slot.seat.take(began);
        if let Some(due) = &due {
            self.shelf.late(began, due);
        }
        slot.job = Some(Job {
            number,
            op,
            request,
            then,
            due: due_at,
            began,
            request_began: began,
            sent: began,
            sending: false,
            retries: 0,
            retries_before: 0,
            last: Outcome::Done,
        });
    }

    /// Sends the request at hand.
    fn send(&mut self, slot: usize) -> rustix::io::Result<()> {
        let now = self.work.plan.clock.now();
        let Slot { session, job, .. } = &mut self.slots[slot];
        let Some(job) = job else { return Ok(()) };
        // Before the first request no time has passed that is not the generator's.
        if job.retries + job.retries_before > 0 || job.request != job.op {
            job.sent = now;
        } else {
            job.sent = job.began;
        }
        job.sending = true;
        self.in_flight += 1;
        let wire = session.wire().expect("it had one when it was opened");
        let progress = wire.begin(&job.request);
        self.went(slot, progress)
    }

    /// Takes note of how far a request has come.
    fn went(&mut self, slot: usize, progress: Progress) -> rustix::io::Result<()> {
        const READ: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);
        match progress {
            Progress::Receiving => self.watch(slot, READ),
            Progress::Sending => self.watch(slot, READ.union(epoll::EventFlags::OUT)),
            Progress::Finished(outcome) => {
                self.finish(slot, outcome);
                Ok(())
            }
        }
    }

    /// Makes the poll know what to wait for.
    fn watch(&mut self, index: usize, wanted: epoll::EventFlags) -> rustix::io::Result<()> {
        let Slot { session, watched, doubtful, .. } = &mut self.slots[index];
        let wire = session.wire().expect("it had one when it was opened");
        let Some(descriptor) = wire.descriptor() else { return Ok(()) };
        let data = epoll::EventData::new_u64(index as u64);
        let now = (descriptor.as_raw_fd(), wanted);
        if *watched == Some(now) && !*doubtful {
            return Ok(());
        }
        let known = watched.is_some_and(|(raw, _)| raw == now.0);
        let changed = if known {
            epoll::modify(&self.epoll, descriptor, data, wanted)
        } else {
            epoll::add(&self.epoll, descriptor, data, wanted)
        };
        match changed {
            Err(Errno::NOENT) => epoll::add(&self.epoll, descriptor, data, wanted)?,
            Err(Errno::EXIST) => epoll::modify(&self.epoll, descriptor, data, wanted)?,
            other => other?,
        }
        (*watched, *doubtful) = (Some(now), false);
        Ok(())
    }

    /// Goes on with what became ready.
    fn advance(&mut self, event: epoll::Event) -> rustix::io::Result<()> {
        let index = event.data.u64() as usize;
        let slot = &mut self.slots[index];
        if slot.job.as_ref().is_some_and(|job| job.sending) {
            let progress = slot.session.wire().expect("it had one when it was opened").advance();
            return self.went(index, progress);
        }
        // Something came unasked, the end of the connection most often: the next request will see it.
        if let Some(descriptor) = slot.session.wire().and_then(|wire| wire.descriptor()) {
            let _ = epoll::delete(&self.epoll, descriptor);
        }
        slot.watched = None;
        Ok(())
    }

    /// The request at hand was answered, or given up.
    fn finish(&mut self, index: usize, outcome: Outcome) {
        let now = self.now();
        let plan = self.work.plan;
        self.in_flight -= 1;
        let slot = &mut self.slots[index];
        slot.doubtful |= outcome != Outcome::Done;
        let Some(job) = &mut slot.job else { return };
        job.sending = false;
        let due = (job.retries + job.retries_before == 0).then_some(job.due);
        self.work.note(slot.index, slot.session.as_ref(), due);
        if let Some(pause) = plan.retries.pause(outcome, job.retries)
            && self.work.phase() != Phase::Over
            && !slot.session.has_ended()
            && !plan.is_late(job.due, now)
        {
            job.last = outcome;
            self.naps.push(Reverse((now + pause, index)));
            job.retries += 1;
            return;
        }
        self.end_request(index, outcome, now);
    }

    /// Records a request that has its last outcome, and goes on with the next part or the next operation.
    fn end_request(&mut self, index: usize, outcome: Outcome, ended: Tick) {
        let work = self.work;
        let slot = &mut self.slots[index];
        let Some(mut job) = slot.job.take() else { return };
        let compares = self.verifies && outcome == Outcome::Done;
        let verified = if compares { verified(work, slot.session.as_ref(), &job.request) } else { None };
        let part = job.request != job.op;
        let goes_on = job.then.is_some() && outcome == Outcome::Done;
        let mut books = self.shelf.books();
        if part {
            let due = work.plan.part_due(job.due, job.request_began);
            let timing = Timing { due, began: job.request_began, ended };
            books.record_part(job.request.kind(), outcome, &timing, job.retries);
        }
        let mut next_began = ended;
        if let Some(outcome) = verified {
            next_began = work.plan.clock.now();
            let timing = Timing { due: ended, began: ended, ended: next_began };
            books.record_part(tipover_core::op::OpKind::Verify, outcome, &timing, 0);
        }
        if goes_on && let Some(update) = job.then.take() {
            job.retries_before = job.retries;
            (job.retries, job.request, job.request_began) = (0, update, next_began);
            drop(books);
            slot.job = Some(job);
            return self.ready.push_back(index);
        }
        let whole = match outcome {
            // A read-modify-write that failed to read has written nothing.
            Outcome::Unknown(failure) if job.then.is_some() => Outcome::Refused(failure),
            outcome => outcome,
        };
        let timing = Timing { due: job.due, began: job.began, ended };
        let retries = job.retries_before + job.retries;
        books.record(job.op.kind(), whole, &timing, retries);
        drop(books);
        slot.pen.complete(&job.op, ended, retries, whole, slot.session.as_ref());
        work.plan.show(slot.index, &job.op, whole, timing, retries, slot.session.as_ref());
        slot.seat.leave();
        work.settle(job.number, &job.op, whole);
        self.go_on(index, next_began, work.plan.rest(whole, timing.service()));
    }

    /// A session has ended its operation, and rests at least this long in a closed loop.
    fn go_on(&mut self, index: usize, now: Tick, rest: Duration) {
        if self.slots[index].session.has_ended() {
            self.lost += 1;
            return;
        }
        match self.work.phase() {
            Phase::Closed => {
                let think = Duration::from_nanos(self.work.think_ns.load(Ordering::Relaxed)).max(rest);
                if !think.is_zero() {
                    self.naps.push(Reverse((now + think, index)));
                } else {
                    self.begin_closed(index);
                }
            }
            Phase::Open => {
                self.work.offer.release(now);
                self.slots[index].free_since = now;
                self.free.push(index);
            }
            Phase::Paused | Phase::Over => self.idle.push(index),
        }
    }

    /// Ends pauses that are over.
    fn wake(&mut self, now: Tick, phase: Phase) -> rustix::io::Result<()> {
        while let Some(&Reverse((at, index))) = self.naps.peek() {
            if at > now && phase != Phase::Over {
                break;
            }
            self.naps.pop();
            match &mut self.slots[index].job {
                // Nobody waits for another try when all is to end.
                Some(job) if phase == Phase::Over => {
                    job.retries -= 1;
                    let last = job.last;
                    self.end_request(index, last, now);
                }
                Some(_) => self.send(index)?,
                None => self.idle.push(index),
            }
        }
        Ok(())
    }

    /// Gives up what takes too long, and looks after connections of which nothing was heard for a while.
    fn look_for_timeouts(&mut self, now: Tick) -> rustix::io::Result<()> {
        self.next_turn = now + self.turn;
        let timeout = self.work.plan.timeout;
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let Some(job) = slot.job.as_ref().filter(|job| job.sending) else { continue };
            let waited = now.since(job.sent);
            if !timeout.is_zero() && waited >= timeout {
                // A lost answer to a read leaves nothing open: certainly nothing was changed.
                let outcome = if job.request.kind().writes() {
                    Outcome::Unknown(Failure::Timeout)
                } else {
                    Outcome::Refused(Failure::Timeout)
                };
                slot.session.wire().expect("it had one when it was opened").abandon();
                self.finish(index, outcome);
            } else if waited >= LOOK_AGAIN
                && let Some((_, wanted)) = slot.watched
            {
                // A connection made anew may have got the number of the old one, which the poll forgot.
                slot.doubtful = true;
                self.watch(index, wanted)?;
            }
        }
        Ok(())
    }

    /// Waits for events, not longer than until something else is to be done.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> rustix::io::Result<()> {
        let now = self.now();
        let mut until = now + LOOK_AGAIN;
        if self.in_flight > 0 {
            until = until.min(self.next_turn);
        }
        if let Some(Reverse((at, _))) = self.naps.peek() {
            until = until.min(*at);
        }
        let mut exact = false;
        if !self.free.is_empty()
            && let Some(due) = self.work.offer.next_due()
            && due < until
        {
            (until, exact) = (due, true);
        }
        // Another thread may have found what is due for a session of this one: looked for after the next due
        // time was read, or what is handed over in between would be slept through.
        let free = self.free.iter().map(|slot| self.slots[*slot].index);
        if self.work.is_recorded && self.work.offer.has_waiting(free) {
            (until, exact) = (now, false);
        }
        let left = if self.ready.is_empty() { until.0.saturating_sub(now.0) } else { 0 };
        events.clear();
        const MILLISECOND_NS: u64 = 1_000_000;
        if !exact && left >= MILLISECOND_NS {
            // Whole milliseconds take one call.
            let milliseconds = (left / MILLISECOND_NS * MILLISECOND_NS) as _;
            let time = Timespec { tv_sec: 0, tv_nsec: milliseconds };
            return self.poll(events, &time);
        }
        let spin = if exact { self.waiter.spin_ns() } else { 0 };
        if left > spin {
            let sleep = left - spin;
            let time = Timespec { tv_sec: 0, tv_nsec: sleep as _ };
            let mut polled = [PollFd::new(&self.epoll, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&time)) {
                Ok(0) if exact => self.waiter.woken(now + Duration::from_nanos(sleep), self.now()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        const NOTHING: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.poll(events, &NOTHING)
    }

    fn poll(&self, events: &mut Vec<epoll::Event>, time: &Timespec) -> rustix::io::Result<()> {
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
