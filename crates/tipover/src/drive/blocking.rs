//! A session on a thread of its own.

use super::offer::{Due, Role};
use super::wait::{Urgency, Waiter};
use super::{Phase, Seat, Sessions, Shelf};
use crate::history::Pen;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tipover_core::op::{Failure, Op, OpKind, Outcome, Timing};
use tipover_core::target::Session;
use tipover_core::units::Tick;

/// Lets session `index` work until it is stopped or at the end of the plan.
pub fn run(work: &Sessions<'_>, index: u32, session: &mut dyn Session) {
    let mut hand = Hand {
        work,
        session,
        shelf: &work.shelves[index as usize % work.shelves.len()],
        seat: &work.seats[index as usize],
        verifies: work.plan.verifies(),
        index,
        number: work.plan.first_closed(index),
        waiter: Waiter::new(work.plan.clock, work.plan.spin),
        urgency: Urgency::default(),
        pen: Pen::of(work.plan.history, work.plan.client + index),
        rest: Duration::ZERO,
    };
    loop {
        match work.phase() {
            Phase::Closed => {
                if !hand.closed_loop() {
                    return;
                }
            }
            Phase::Open => {
                let goes_on = hand.open_loop();
                hand.urgency.set(false);
                if !goes_on {
                    return;
                }
            }
            Phase::Paused => std::thread::sleep(Duration::from_millis(1)),
            Phase::Over => return,
        }
    }
}

/// A session with what it needs to work.
struct Hand<'a> {
    work: &'a Sessions<'a>,
    session: &'a mut dyn Session,
    shelf: &'a Shelf,
    seat: &'a Seat,
    verifies: bool,
    index: u32,
    /// Of its next operation in a closed loop.
    number: u64,
    waiter: Waiter,
    /// Held in an open loop except while an operation is carried out.
    urgency: Urgency,
    pen: Pen<'a>,
    /// Least pause after the last operation of a closed loop.
    rest: Duration,
}

impl Hand<'_> {
    /// Until another phase begins; false at the end of the plan.
    fn closed_loop(&mut self) -> bool {
        let (step, end) = (u64::from(self.work.plan.all_sessions), self.work.plan.ends_at());
        while self.number < end {
            if self.work.phase() != Phase::Closed {
                return true;
            }
            self.carry_out(self.number, None);
            if self.session.has_ended() {
                return false;
            }
            self.number += step;
            let think = Duration::from_nanos(self.work.think_ns.load(Ordering::Relaxed)).max(self.rest);
            if !think.is_zero() {
                self.sleep(think);
            }
        }
        false
    }

    /// Until another phase begins; false when nothing more will be due.
    fn open_loop(&mut self) -> bool {
        let (work, index) = (self.work, self.index);
        let (offer, clock) = (&work.offer, &work.plan.clock);
        let over = || work.phase() != Phase::Open;
        offer.release(clock.now());
        self.urgency.set(offer.is_sparse());
        while offer.lead(index, clock, &over) == Role::Leader {
            loop {
                if over() {
                    offer.resign(index);
                    return true;
                }
                let Some(due) = offer.next_due() else {
                    if work.plan.warms_up {
                        // A recorded trace is over; another trial may follow.
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    // Nothing is due any more; the others learn it one after the other.
                    offer.resign(index);
                    return over();
                };
                let now = self.waiter.until(due, &over);
                // Seated before it is taken, and until it is booked: who pauses waits for all that was taken.
                self.seat.take(now);
                let Some(due) = offer.take(now) else {
                    self.seat.leave();
                    continue;
                };
                let handed_over = offer.hand_over(index);
                // Waking the next one takes longer than a short operation, which would never be found short.
                let begin = clock.now();
                let ended = self.carry_out(due.number, Some(due));
                if self.session.has_ended() {
                    offer.resign(index);
                    return false;
                }
                offer.release(ended);
                self.urgency.set(offer.is_sparse());
                offer.served(ended.0.saturating_sub(begin.0));
                if handed_over || !offer.leads(index) {
                    break;
                }
            }
        }
        true
    }

    /// Sleeps in pieces, so that nobody waits for a long pause when all is to end.
    fn sleep(&self, time: Duration) {
        const PIECE: Duration = Duration::from_millis(20);
        let end = Instant::now() + time;
        while self.work.phase() != Phase::Over {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(PIECE));
        }
    }

    /// Carries out operation `number`, which in an open loop was due. Returns when it ended.
    #[inline]
    fn carry_out(&mut self, number: u64, due: Option<Due>) -> Tick {
        let op = self.work.plan.workload.op(number, self.work.plan.records);
        let began = self.work.plan.clock.now();
        self.seat.take(began);
        if let Some(due) = &due {
            self.shelf.late(began, due);
            self.urgency.set(false);
        }
        let due = due.map_or(began, |due| due.due);
        self.pen.intend(&op, due, began);
        if self.work.plan.is_late(due, began) {
            let late = Outcome::Refused(Failure::Late);
            self.conclude(number, &op, late, Timing { due, began, ended: began }, 0);
            return began;
        }
        if let Some((read, update)) = op.parts() {
            return self.read_modify_write(number, &op, (&read, &update), due, began);
        }
        let (outcome, retries) = self.attempt(&op, due);
        let ended = self.work.plan.clock.now();
        self.conclude(number, &op, outcome, Timing { due, began, ended }, retries);
        if self.verifies && outcome == Outcome::Done {
            return self.verify(&op, ended);
        }
        ended
    }

    /// Operation `number` has its last outcome.
    #[inline]
    fn conclude(&mut self, number: u64, op: &Op, outcome: Outcome, timing: Timing, retries: u32) {
        self.pen.complete(op, timing.ended, retries, outcome, self.session);
        self.shelf.books().record(op.kind(), outcome, &timing, retries);
        self.work.plan.show(self.index, op, outcome, timing, retries, self.session);
        self.seat.leave();
        self.work.settle(number, op, outcome);
        self.rest = self.work.plan.rest(outcome, timing.service());
    }

    /// Executes a single operation with all its tries; the whole was due at `due`.
    #[inline]
    fn attempt(&mut self, op: &Op, due: Tick) -> (Outcome, u32) {
        let outcome = self.session.execute(op);
        self.work.note(self.index, self.session, Some(due));
        match self.work.plan.retries.pause(outcome, 0) {
            Some(_) => self.try_again(op, due, outcome),
            None => (outcome, 0),
        }
    }

    #[cold]
    fn try_again(&mut self, op: &Op, due: Tick, mut outcome: Outcome) -> (Outcome, u32) {
        let mut retries = 0;
        while let Some(pause) = self.work.plan.retries.pause(outcome, retries) {
            let plan = self.work.plan;
            if self.session.has_ended() || plan.is_late(due, plan.clock.now()) {
                break;
            }
            self.sleep(pause);
            // Nobody waits for another try when all is to end.
            if self.work.phase() == Phase::Over {
                break;
            }
            retries += 1;
            outcome = self.session.execute(op);
            self.work.note(self.index, self.session, None);
        }
        (outcome, retries)
    }

    /// A read, and unless that failed an update: two parts and the whole.
    fn read_modify_write(
        &mut self,
        number: u64,
        op: &Op,
        (read, update): (&Op, &Op),
        due: Tick,
        began: Tick,
    ) -> Tick {
        let clock = self.work.plan.clock;
        let (outcome, read_retries) = self.attempt(read, due);
        let ended = clock.now();
        let timing = Timing { due, began, ended };
        self.shelf.books().record_part(OpKind::Read, outcome, &timing, read_retries);
        if let Outcome::Refused(failure) | Outcome::Unknown(failure) = outcome {
            // Nothing was written.
            let outcome = Outcome::Refused(failure);
            self.conclude(number, op, outcome, timing, read_retries);
            return ended;
        }
        let update_began = if self.verifies { self.verify(read, ended) } else { ended };
        let (outcome, retries) = self.attempt(update, due);
        let ended = clock.now();
        let timing = Timing { due: self.work.plan.part_due(due, update_began), began: update_began, ended };
        self.shelf.books().record_part(OpKind::Update, outcome, &timing, retries);
        self.conclude(number, op, outcome, Timing { due, began, ended }, read_retries + retries);
        ended
    }

    /// Compares what the last read brought with what should be there, from `began` on. Returns when it was
    /// done.
    fn verify(&mut self, op: &Op, began: Tick) -> Tick {
        let outcome = verified(self.work, self.session, op);
        let ended = self.work.plan.clock.now();
        if let Some(outcome) = outcome {
            let timing = Timing { due: began, began, ended };
            self.shelf.books().record_part(OpKind::Verify, outcome, &timing, 0);
        }
        ended
    }
}

/// What comparing the last read with the data set says; `None` for what is no read of a record.
pub fn verified(work: &Sessions<'_>, session: &dyn Session, op: &Op) -> Option<Outcome> {
    let Op::Read { record, fields } = *op else { return None };
    Some(work.plan.dataset.verify(session, record, fields, 0))
}
