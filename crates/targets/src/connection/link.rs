//! A session over a connection that is made anew when it is lost.

use super::{Channel, Flow, Greeted, Protocol, Received, Refusal, Route, Wait, connect, greet};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::{Progress, Remarks, Session, Wire};

/// A session: one protocol on one connection.
pub struct Link<P> {
    protocol: P,
    route: Route,
    channel: Option<Channel>,
    state: State,
    /// The operation at hand.
    op: Op,
    /// Whether the system has taken a byte of its request: from then on a write may have happened.
    sent: bool,
    timeout: Duration,
    connect_timeout: Duration,
    pause: Pause,
    /// Until when the operation at hand pauses by its own will.
    nap: Instant,
    /// Whether an operation was sent on the connection.
    used: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Pausing,
    Connecting,
    Napping,
    Busy,
}

impl<P: Protocol> Link<P> {
    /// Connects. Each operation may take `timeout`, zero being for ever; making a connection
    /// `connect_timeout`.
    pub fn open(
        mut protocol: P,
        route: &Route,
        timeout: Duration,
        connect_timeout: Duration,
    ) -> Result<Self, Refusal> {
        let (channel, way) = connect(route, &mut protocol, connect_timeout)?;
        let mut link = Link {
            protocol,
            route: route.narrowed(way),
            channel: None,
            state: State::Idle,
            op: Op::Flush { data_only: false },
            sent: false,
            timeout,
            connect_timeout: match timeout.is_zero() {
                true => connect_timeout,
                false => connect_timeout.min(timeout),
            },
            pause: Pause::default(),
            nap: Instant::now(),
            used: false,
        };
        link.adopt(channel).map_err(|error| Refusal::unavailable(error.to_string()))?;
        Ok(link)
    }

    fn adopt(&mut self, channel: Channel) -> io::Result<()> {
        channel.set_timeout(self.timeout)?;
        self.channel = Some(channel);
        Ok(())
    }

    /// The operation begins on a connection that stands.
    fn encode(&mut self) -> Option<Outcome> {
        let channel = self.channel.as_mut().expect("a connection stands");
        channel.input.forget();
        self.sent = false;
        self.state = State::Busy;
        if self.protocol.encode(&self.op, &mut channel.output) {
            return None;
        }
        channel.output.clear();
        self.state = State::Idle;
        Some(Outcome::Refused(Failure::Unsupported))
    }

    /// Sends what is to be sent; `Some` if that is as far as it goes.
    fn send(&mut self, wait: Wait) -> Option<Progress> {
        let channel = self.channel.as_mut().expect("an operation has a connection");
        match channel.flush(wait, &mut self.sent) {
            Ok(Flow::Done) if self.protocol.is_answered() => None,
            Ok(Flow::Done) => {
                self.state = State::Idle;
                Some(Progress::Finished(Outcome::Done))
            }
            Ok(Flow::Blocked) => Some(Progress::Sending),
            Err(error) => Some(Progress::Finished(self.lost(&error))),
        }
    }

    /// Receives until the answer is complete.
    fn receive(&mut self, wait: Wait) -> Progress {
        let mut deadline = None;
        loop {
            let channel = self.channel.as_mut().expect("an operation has a connection");
            match channel.fill(wait) {
                Ok(Flow::Done) => {}
                Ok(Flow::Blocked) => return Progress::Receiving,
                Err(error) => return Progress::Finished(self.lost(&error)),
            }
            match self.protocol.answer(&mut channel.input, &mut channel.output) {
                Received::More => {}
                Received::Complete(outcome) => {
                    self.state = State::Idle;
                    self.pause.over();
                    return Progress::Finished(outcome);
                }
                Received::Last(outcome) => {
                    self.drop_connection();
                    return Progress::Finished(outcome);
                }
                Received::Pause(time) => match self.rest(time, wait) {
                    Some(progress) => return progress,
                    None => return self.resume(wait),
                },
            }
            if !channel.is_flushed()
                && let Some(progress) = self.send(wait)
            {
                return progress;
            }
            // A call waits no longer than the time-out; an answer in many pieces must not add these up.
            if wait == Wait::Yes && !self.timeout.is_zero() {
                let now = Instant::now();
                if now > *deadline.get_or_insert(now + self.timeout) {
                    return Progress::Finished(self.lost(&io::ErrorKind::TimedOut.into()));
                }
            }
        }
    }

    /// What was encoded goes out, or there is nothing to send yet.
    fn set_out(&mut self, wait: Wait) -> Progress {
        if self.channel.as_ref().is_some_and(Channel::is_flushed) {
            return self.resume(wait);
        }
        self.send(wait).unwrap_or(Progress::Receiving)
    }

    /// Goes on with an operation that waits for no answer.
    fn resume(&mut self, wait: Wait) -> Progress {
        loop {
            let channel = self.channel.as_mut().expect("an operation has a connection");
            match self.protocol.resume(&mut channel.output) {
                Received::More => return self.send(wait).unwrap_or(Progress::Receiving),
                Received::Pause(time) => {
                    if let Some(progress) = self.rest(time, wait) {
                        return progress;
                    }
                }
                Received::Complete(outcome) => {
                    self.state = State::Idle;
                    return Progress::Finished(outcome);
                }
                Received::Last(outcome) => {
                    self.drop_connection();
                    return Progress::Finished(outcome);
                }
            }
        }
    }

    /// Lets `time` pass, or makes the descriptor tell when it has: then there is progress to wait for.
    fn rest(&mut self, time: Duration, wait: Wait) -> Option<Progress> {
        if wait == Wait::Yes {
            std::thread::sleep(time);
            return None;
        }
        self.nap = Instant::now() + time;
        match self.pause.arm(time.max(Duration::from_nanos(1))) {
            Ok(()) => {
                self.state = State::Napping;
                Some(Progress::Receiving)
            }
            Err(error) => Some(Progress::Finished(self.lost(&error))),
        }
    }

    /// The connection is lost, and with it the answer to the operation at hand.
    fn lost(&mut self, error: &io::Error) -> Outcome {
        self.protocol.lost(&super::in_words(error));
        let timed_out = error.kind() == io::ErrorKind::TimedOut;
        if timed_out {
            self.cancel();
        }
        let failure = match error.kind() {
            io::ErrorKind::TimedOut => Failure::Timeout,
            io::ErrorKind::InvalidData => Failure::Corrupt,
            _ => Failure::Unavailable,
        };
        let open = self.sent && self.op.kind().writes() && self.protocol.may_have_happened();
        self.drop_connection();
        if open { Outcome::Unknown(failure) } else { Outcome::Refused(failure) }
    }

    /// Where every operation has a connection of its own, the last one's is closed.
    fn forget_connection(&mut self) {
        if self.protocol.reconnects() && self.used {
            self.channel = None;
        }
        self.used = true;
    }

    fn drop_connection(&mut self) {
        self.channel = None;
        self.state = State::Idle;
        self.pause.lost();
    }

    /// Asks the server, on a connection apart, to stop working on what nobody waits for: else it keeps its
    /// place among the server's connections, for ever if it waits for a standby that is gone.
    fn cancel(&self) {
        let Some(message) = self.protocol.cancellation().filter(|_| self.state == State::Busy) else {
            return;
        };
        send_apart(&self.route, message);
    }

    /// A new connection, waiting for it.
    fn reconnect(&mut self) -> Result<(), Failure> {
        let left = self.pause.left();
        if !left.is_zero() {
            let most = if self.timeout.is_zero() { left } else { self.timeout };
            std::thread::sleep(left.min(most));
            if most < left {
                return Err(Failure::Unavailable);
            }
        }
        let made = connect(&self.route, &mut self.protocol, self.connect_timeout);
        let made = made.map_err(|refusal| {
            self.protocol.lost(&refusal.reason);
            refusal.failure
        });
        made.and_then(|(channel, _)| self.adopt(channel).map_err(|_| Failure::Unavailable))
            .inspect_err(|_| self.pause.lost())
    }

    /// Begins to make a new connection, without waiting.
    fn begin_connection(&mut self) -> Progress {
        self.state = State::Connecting;
        match Channel::begin(&self.route, 0, self.connect_timeout) {
            Ok(mut channel) => {
                self.protocol.start(self.route.may_encrypt(), &mut channel.output);
                self.channel = Some(channel);
                self.advance()
            }
            Err(error) => {
                self.protocol.lost(&super::in_words(&error));
                self.not_connected(Failure::Unavailable)
            }
        }
    }

    fn not_connected(&mut self, failure: Failure) -> Progress {
        self.drop_connection();
        Progress::Finished(Outcome::Refused(failure))
    }

    fn advance_connection(&mut self) -> Progress {
        let channel = self.channel.as_mut().expect("a connection is being made");
        match greet(channel, &self.route, &mut self.protocol, Wait::No, None) {
            Ok(Greeted::Waiting(progress)) => progress,
            Ok(Greeted::Refused(refusal)) => {
                self.protocol.lost(&refusal.reason);
                self.not_connected(refusal.failure)
            }
            Err(error) => {
                self.protocol.lost(&super::in_words(&error));
                self.not_connected(Failure::Unavailable)
            }
            Ok(Greeted::Ready) => match channel.set_timeout(self.timeout) {
                Ok(()) => self.begin_on_connection(),
                Err(_) => self.not_connected(Failure::Unavailable),
            },
        }
    }

    fn begin_on_connection(&mut self) -> Progress {
        match self.encode() {
            Some(outcome) => Progress::Finished(outcome),
            None => self.set_out(Wait::No),
        }
    }
}

impl<P: Protocol> Session for Link<P> {
    fn execute(&mut self, op: &Op) -> Outcome {
        self.op = op.clone();
        self.forget_connection();
        if self.channel.is_none()
            && let Err(failure) = self.reconnect()
        {
            return Outcome::Refused(failure);
        }
        if let Some(outcome) = self.encode() {
            return outcome;
        }
        let mut progress = self.set_out(Wait::Yes);
        loop {
            match progress {
                Progress::Finished(outcome) => return outcome,
                Progress::Receiving | Progress::Sending => progress = self.receive(Wait::Yes),
            }
        }
    }

    fn fetched(&self, field: u16) -> Option<&[u8]> {
        self.protocol.fetched(&self.channel.as_ref()?.input, field)
    }

    fn fetched_records(&self) -> u32 {
        self.protocol.fetched_records()
    }

    fn answer(&self) -> tipover_core::check::Returned {
        self.protocol.brought()
    }

    fn take_seat(&mut self, number: u32) {
        self.protocol.take_seat(number);
    }

    fn remarks(&self) -> Option<&Remarks> {
        self.protocol.remarks()
    }

    fn wire(&mut self) -> Option<&mut dyn Wire> {
        Some(self)
    }
}

impl<P: Protocol> Wire for Link<P> {
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        match self.state {
            State::Pausing | State::Napping => self.pause.timer.as_ref().map(OwnedFd::as_fd),
            _ => self.channel.as_ref().map(Channel::descriptor),
        }
    }

    fn begin(&mut self, op: &Op) -> Progress {
        self.op = op.clone();
        self.forget_connection();
        if self.channel.is_some() {
            return self.begin_on_connection();
        }
        let left = self.pause.left();
        if left.is_zero() {
            return self.begin_connection();
        }
        // Refused when the pause is over, not at once: a closed loop would only spin.
        match self.pause.arm(left) {
            Ok(()) => {
                self.state = State::Pausing;
                Progress::Receiving
            }
            Err(_) => Progress::Finished(Outcome::Refused(Failure::Unavailable)),
        }
    }

    fn advance(&mut self) -> Progress {
        match self.state {
            State::Connecting => self.advance_connection(),
            State::Pausing if self.pause.left().is_zero() => {
                self.state = State::Idle;
                self.pause.disarm();
                Progress::Finished(Outcome::Refused(Failure::Unavailable))
            }
            State::Pausing => Progress::Receiving,
            State::Napping if Instant::now() < self.nap => Progress::Receiving,
            State::Napping => {
                self.state = State::Busy;
                self.pause.disarm();
                self.resume(Wait::No)
            }
            State::Busy => {
                let unsent = self.channel.as_ref().is_some_and(|channel| !channel.is_flushed());
                match if unsent { self.send(Wait::No) } else { None } {
                    Some(progress) => progress,
                    None => self.receive(Wait::No),
                }
            }
            State::Idle => unreachable!("nothing was begun"),
        }
    }

    fn abandon(&mut self) {
        self.cancel();
        match self.state {
            State::Pausing => {
                self.state = State::Idle;
                self.pause.disarm();
            }
            _ => {
                self.pause.disarm();
                self.drop_connection();
            }
        }
    }
}

/// Sends `message` on a connection of its own.
fn send_apart(route: &Route, message: Vec<u8>) {
    let route = route.clone();
    let send = move || -> io::Result<()> {
        let mut channel = Channel::begin(&route, 0, Duration::from_secs(1))?;
        channel.output = message;
        channel.flush(Wait::Yes, &mut false)?;
        // The server closes when it has passed the request on.
        channel.fill(Wait::Yes).map(|_| ())
    };
    // Best effort, and whoever gave up must not wait for it: the session begins anew in any case.
    let _ = std::thread::Builder::new().name("cancel".into()).spawn(send);
}

/// The time until the next attempt to connect: none after the first loss, then ever longer, up to a second,
/// until an operation is answered.
#[derive(Debug, Default)]
struct Pause {
    losses: u32,
    until: Option<Instant>,
    timer: Option<OwnedFd>,
}

impl Pause {
    fn lost(&mut self) {
        self.losses += 1;
        if self.losses > 1 {
            let length = Duration::from_millis(10 << (self.losses - 2).min(7)).min(Duration::from_secs(1));
            self.until = Some(Instant::now() + length);
        }
    }

    #[inline]
    fn over(&mut self) {
        if self.losses > 0 {
            (self.losses, self.until) = (0, None);
        }
    }

    fn left(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// The descriptor becomes readable after `left`.
    fn arm(&mut self, left: Duration) -> io::Result<()> {
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => {
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?
            }
        };
        let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(
            &timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: never, it_value: value },
        )?;
        self.timer = Some(timer);
        Ok(())
    }

    /// A timer that has fired stays readable, and whoever still watches it would wake for ever.
    fn disarm(&mut self) {
        if let Some(timer) = &self.timer {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Itimerspec { it_interval: never, it_value: never };
            // Setting it forgets what has fired; a valid timer cannot refuse.
            let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &value);
        }
    }
}
