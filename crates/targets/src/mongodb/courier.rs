//! Carries one request at a time to a server that can take it and brings its answer back: finds the server,
//! connects, and pauses between tries, all without blocking unless asked to.

use super::cluster::{Cluster, count};
use super::identify::identify;
use super::link::{Link, Trouble};
use super::message::{Incoming, Writer};
use super::options::{Host, ReadPreference};
use crate::connection::{Flow, Wait};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tipover_core::target::TargetError;

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The descriptor must become readable first.
    Waiting,
    /// The answer is there.
    Answered,
    /// It was sent, and asked for no answer.
    Sent,
    /// It was certainly not executed: no server could be found, or it did not leave whole.
    NotSent(Trouble),
    /// It was sent, and then the connection broke.
    Lost(String),
    /// It was sent, and the time is over.
    TimedOut,
}

enum State {
    Idle,
    Searching(Search),
    Sending,
    Receiving,
}

/// The hunt for a server.
struct Search {
    deadline: Instant,
    queue: VecDeque<Host>,
    asked: Vec<Host>,
    /// How many of them will not do it, however often they are asked.
    hopeless: usize,
    opening: Option<(Box<Link>, Instant)>,
    /// When to look what else may be there than what was asked for.
    look_at: Option<Instant>,
    pause_until: Option<Instant>,
    pause: Duration,
    trouble: Option<Trouble>,
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Whoever speaks as he is asked to has done so by then, as a rule.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A server that answers although it was asked not to fills its buffers unless somebody reads.
const SENDS_BETWEEN_LOOKS: u32 = 32;

/// A connection that is found when it is needed.
pub struct Courier {
    cluster: Arc<Cluster>,
    preference: ReadPreference,
    /// The request at hand; it stays, so that it can be sent again.
    pub request: Writer,
    id: i32,
    expects_answer: bool,
    link: Option<Link>,
    state: State,
    epoll: OwnedFd,
    timer: OwnedFd,
    watches_writable: bool,
    unlooked: u32,
    answered: bool,
}

fn failed(error: rustix::io::Errno) -> TargetError {
    TargetError::new("preparing a MongoDB session", error)
}

impl Courier {
    /// A courier to servers that `preference` allows. It connects with its first request.
    pub fn new(cluster: &Arc<Cluster>, preference: ReadPreference) -> Result<Courier, TargetError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        epoll::add(&epoll, &timer, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        Ok(Courier {
            cluster: cluster.clone(),
            preference,
            request: Writer::default(),
            id: 1,
            expects_answer: true,
            link: None,
            state: State::Idle,
            epoll,
            timer,
            watches_writable: false,
            unlooked: 0,
            answered: false,
        })
    }

    /// Becomes readable when [`Courier::go`] can go on. It is the same for the courier's whole life, however
    /// often the connection changes.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The server at the other end, while there is a connection.
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Begins to carry `request`, which is finished. It may be the same one again.
    pub fn begin(&mut self, expects_answer: bool) {
        self.forget_answer();
        self.id = if self.id == i32::MAX { 2 } else { self.id + 1 };
        self.request.renumber(self.id);
        self.expects_answer = expects_answer;
        if self.link.is_some() {
            self.send();
        } else {
            self.search();
        }
    }

    fn send(&mut self) {
        if let Some(link) = &mut self.link {
            link.queue(self.request.bytes());
            self.state = State::Sending;
        }
    }

    fn search(&mut self) {
        self.state = State::Searching(Search {
            deadline: Instant::now() + self.cluster.patience(),
            queue: self.cluster.candidates(self.preference).into(),
            asked: Vec::new(),
            hopeless: 0,
            opening: None,
            look_at: None,
            pause_until: None,
            pause: SHORTEST_PAUSE,
            trouble: None,
        });
    }

    /// Drops the connection; the next request finds another one.
    pub fn disconnect(&mut self) {
        self.link = None;
        self.answered = false;
        self.watches_writable = false;
        self.state = State::Idle;
        self.arm(None);
    }

    /// Drops the connection because its server is not what it was.
    pub fn distrust(&mut self) {
        if let Some(link) = &self.link {
            self.cluster.distrust(&link.host);
        }
        self.disconnect();
    }

    fn forget_answer(&mut self) {
        if std::mem::take(&mut self.answered)
            && let Some(link) = &mut self.link
        {
            link.consume();
        }
    }

    /// The answer, until the next request begins.
    pub fn answer(&self) -> Result<Incoming<'_>, String> {
        match &self.link {
            Some(link) if self.answered => link.incoming(),
            _ => Err("there is no answer".into()),
        }
    }

    /// Goes on with the request at hand; waits until `deadline`, if waiting is wanted at all.
    pub fn go(&mut self, wait: Wait, deadline: Option<Instant>) -> Step {
        loop {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A call that blocks does so for the whole time-out; what began late must not.
            let late = rest.is_some_and(|rest| rest < self.cluster.timeout * 9 / 10);
            let blocks = if late { Wait::No } else { wait };
            let step = match &self.state {
                State::Idle => Step::NotSent(Trouble::Network("nothing was asked".into())),
                State::Searching(_) => match self.seek(wait) {
                    Ok(true) => {
                        self.send();
                        continue;
                    }
                    Ok(false) => Step::Waiting,
                    Err(trouble) => {
                        self.disconnect();
                        Step::NotSent(trouble)
                    }
                },
                State::Sending => self.deliver(blocks),
                State::Receiving => self.collect(blocks),
            };
            if step != Step::Waiting || wait == Wait::No {
                return step;
            }
            if rest.is_some_and(|rest| rest.is_zero()) {
                return self.abandon();
            }
            if blocks == Wait::No || matches!(self.state, State::Searching(_)) {
                self.pause(rest);
            }
        }
    }

    /// Makes the descriptor tell at a moment, or no longer, while no request is under way. What happens to
    /// the connection until then is not told: one that the server has closed would stay readable, and
    /// whoever waits would wake all the time.
    pub fn wake(&mut self, at: Option<Instant>) {
        self.arm(at);
        let Some(link) = &self.link else { return };
        // It is no mistake to say the same twice.
        let _ = match at {
            Some(_) => epoll::delete(&self.epoll, link.socket()),
            None => epoll::add(&self.epoll, link.socket(), EventData::new_u64(1), EventFlags::IN),
        };
        self.watches_writable = false;
    }

    /// When an operation that begins now is given up.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.cluster.timeout.is_zero()).then(|| Instant::now() + self.cluster.timeout)
    }

    fn pause(&self, longest: Option<Duration>) {
        let longest = longest
            .map(|rest| Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() });
        // A signal only makes the loop turn once more.
        let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], longest.as_ref());
    }

    /// Gives the request up, and with it the connection.
    pub fn abandon(&mut self) -> Step {
        let sent = matches!(self.state, State::Sending | State::Receiving);
        self.disconnect();
        if sent {
            return Step::TimedOut;
        }
        Step::NotSent(Trouble::Network("no server was found in time".into()))
    }

    fn deliver(&mut self, wait: Wait) -> Step {
        let Some(link) = &mut self.link else {
            return Step::NotSent(Trouble::Network("no connection".into()));
        };
        let mut sent = false;
        match link.flush(wait, &mut sent) {
            Ok(Flow::Blocked) => {
                self.watch();
                Step::Waiting
            }
            Ok(Flow::Done) => {
                self.watch();
                if self.expects_answer {
                    self.state = State::Receiving;
                    // An answer cannot be there yet, so that looking would only cost a system call.
                    return Step::Waiting;
                }
                self.state = State::Idle;
                count(&self.cluster.counts.unacknowledged_writes);
                self.look_for_unasked();
                Step::Sent
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => self.abandon(),
            Err(error) => {
                let text = format!("{}: {error}", link.host);
                self.distrust();
                // Nobody knows how much of it the other side has received.
                Step::Lost(text)
            }
        }
    }

    fn collect(&mut self, wait: Wait) -> Step {
        loop {
            let Some(link) = &mut self.link else { return Step::Lost("no connection".into()) };
            match link.receive(wait) {
                Ok(true) => {}
                Ok(false) => return Step::Waiting,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return self.abandon(),
                Err(error) => {
                    let text = format!("{}: {error}", link.host);
                    self.distrust();
                    return Step::Lost(text);
                }
            }
            match link.incoming() {
                // 0 names no request of ours: PoloDB answers a find so. One request at a time is under way.
                Ok(incoming) if incoming.response_to == self.id || incoming.response_to == 0 => {
                    self.answered = true;
                    self.state = State::Idle;
                    return Step::Answered;
                }
                Ok(_) => {
                    count(&self.cluster.counts.unasked_answers);
                    link.consume();
                }
                Err(text) => {
                    self.distrust();
                    return Step::Lost(text);
                }
            }
        }
    }

    fn look_for_unasked(&mut self) {
        self.unlooked += 1;
        if self.unlooked < SENDS_BETWEEN_LOOKS {
            return;
        }
        self.unlooked = 0;
        let Some(link) = &mut self.link else { return };
        loop {
            match link.receive(Wait::No) {
                Ok(true) => {
                    count(&self.cluster.counts.unasked_answers);
                    link.consume();
                }
                Ok(false) => return,
                // What was sent was sent; the next request finds another connection.
                Err(_) => return self.distrust(),
            }
        }
    }

    /// Keeps the descriptor in step with what the connection waits for.
    fn watch(&mut self) {
        let Some(link) = &self.link else { return };
        let writable = link.wants_to_send();
        if writable != self.watches_writable {
            let flags = if writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            if epoll::modify(&self.epoll, link.socket(), EventData::new_u64(1), flags).is_ok() {
                self.watches_writable = writable;
            }
        }
    }

    fn arm(&self, at: Option<Instant>) {
        let rest = at.map(|at| at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)));
        let rest = rest.unwrap_or_default();
        let value = Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value: value };
        // Setting a timer of our own to a valid time cannot fail.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Whether nobody was ever reached there.
    fn is_strange(&self) -> bool {
        !self.cluster.reached.load(Ordering::Relaxed)
    }

    /// What is wrong with `host`, of which only `trouble` is known: who may wait, and has never met anybody
    /// there, asks.
    fn identified(&self, host: &Host, trouble: Trouble, wait: Wait) -> Trouble {
        let found = if wait == Wait::Yes && self.is_strange() { identify(&self.cluster, host) } else { None };
        found.unwrap_or(trouble)
    }

    /// One turn of the search; true when `link` is a connection to a suitable server.
    fn seek(&mut self, wait: Wait) -> Result<bool, Trouble> {
        let State::Searching(mut search) = std::mem::replace(&mut self.state, State::Idle) else {
            return Ok(self.link.is_some());
        };
        loop {
            let now = Instant::now();
            if let Some(until) = search.pause_until {
                if now < until {
                    break;
                }
                search.pause_until = None;
                search.queue = self.cluster.candidates(self.preference).into();
                search.asked.clear();
                search.hopeless = 0;
            }
            if let Some((link, limit)) = &mut search.opening {
                match link.establish(&self.cluster) {
                    Ok(false) if search.look_at.is_some_and(|at| now >= at) => {
                        search.look_at = None;
                        if let Some(trouble) = identify(&self.cluster, &link.host) {
                            search.hopeless += 1;
                            search.trouble = Some(trouble);
                            search.opening = None;
                        }
                    }
                    Ok(false) if now < *limit => {
                        let flags = EventFlags::IN
                            | if link.wants_to_send() { EventFlags::OUT } else { EventFlags::empty() };
                        // It fails if the link has just taken another way, whose socket is new.
                        if epoll::modify(&self.epoll, link.socket(), EventData::new_u64(1), flags).is_err() {
                            let _ = epoll::add(&self.epoll, link.socket(), EventData::new_u64(1), flags);
                        }
                        break;
                    }
                    Ok(false) => {
                        let text = format!("{} did not answer in time", link.host);
                        let trouble = self.identified(&link.host, Trouble::Network(text), wait);
                        search.hopeless += usize::from(matches!(trouble, Trouble::Hopeless(_)));
                        search.trouble = Some(trouble);
                        search.opening = None;
                    }
                    Ok(true) => {
                        let suits = self.cluster.learn(&link.host, &link.hello, self.preference);
                        let primary = link.hello.primary.clone();
                        let (link, _) = search.opening.take().expect("a link was being opened");
                        match suits {
                            Ok(()) => {
                                self.settle_on(*link);
                                return Ok(true);
                            }
                            Err(text) => {
                                search.trouble = Some(Trouble::Network(text));
                                search.hear_of(self.cluster.candidates(self.preference), primary);
                            }
                        }
                    }
                    Err(trouble) => {
                        self.cluster.distrust(&link.host);
                        let trouble = match self.cluster.options.encryption.is_some() && link.is_greeting() {
                            true => self.identified(&link.host, trouble, wait),
                            false => trouble,
                        };
                        search.hopeless += usize::from(matches!(trouble, Trouble::Hopeless(_)));
                        search.trouble = Some(trouble);
                        search.opening = None;
                    }
                }
                continue;
            }
            if now >= search.deadline {
                return Err(self.give_up(search.trouble));
            }
            if let Some(trouble) = search.is_hopeless() {
                return Err(trouble);
            }
            let Some(host) = search.queue.pop_front() else {
                // Everybody was asked: nobody spins on a set that has no primary.
                search.pause_until = Some((now + search.pause).min(search.deadline));
                search.pause = (search.pause * 2).min(LONGEST_PAUSE);
                continue;
            };
            search.asked.push(host.clone());
            match Link::open(&self.cluster, &host) {
                Ok(link) => {
                    let flags = EventFlags::IN | EventFlags::OUT;
                    let _ = epoll::add(&self.epoll, link.socket(), EventData::new_u64(1), flags);
                    let limit = (now + self.cluster.options.connect_timeout).min(search.deadline);
                    search.opening = Some((Box::new(link), limit));
                    search.look_at = (wait == Wait::Yes && self.is_strange()).then(|| now + FIRST_LOOK);
                }
                Err(trouble) => search.trouble = Some(trouble),
            }
        }
        let opening = search.opening.as_ref();
        let limit = opening.map(|(_, limit)| search.look_at.map_or(*limit, |at| at.min(*limit)));
        let wake = search.pause_until.or(limit);
        self.arm(wake);
        self.state = State::Searching(search);
        Ok(false)
    }

    fn settle_on(&mut self, link: Link) {
        self.arm(None);
        let watched = epoll::modify(&self.epoll, link.socket(), EventData::new_u64(1), EventFlags::IN)
            .or_else(|_| epoll::add(&self.epoll, link.socket(), EventData::new_u64(1), EventFlags::IN));
        debug_assert!(watched.is_ok(), "{watched:?}");
        self.watches_writable = false;
        self.link = Some(link);
    }

    fn give_up(&self, trouble: Option<Trouble>) -> Trouble {
        let members = self.cluster.members();
        let last = trouble.as_ref().map_or("nobody answered", |trouble| trouble.text());
        let named = &self.cluster.options.hosts;
        let mut text = format!("no {} in {:?}: {last}", self.preference.name(), self.cluster.patience());
        if members.iter().all(|member| !named.contains(member)) {
            let names: Vec<String> = members.iter().map(ToString::to_string).collect();
            text.push_str(&format!(
                "; the servers call themselves {}, which may be unreachable from here: add directConnection=true \
                 to talk to the one in the address",
                names.join(", ")
            ));
        }
        match trouble {
            Some(Trouble::Hopeless(_)) => Trouble::Hopeless(text),
            _ => Trouble::Network(text),
        }
    }

    /// Whether a repeated write is recognised by the server at the other end.
    pub fn deduplicates(&self) -> bool {
        self.cluster.deduplicates.load(Ordering::Relaxed)
    }
}

impl Search {
    /// The trouble, if everybody was asked and none will ever do.
    fn is_hopeless(&self) -> Option<Trouble> {
        let all = self.queue.is_empty() && !self.asked.is_empty() && self.hopeless == self.asked.len();
        self.trouble.clone().filter(|_| all)
    }

    /// Members that were not known when the round began, the primary first.
    fn hear_of(&mut self, members: Vec<Host>, primary: Option<Host>) {
        for member in members {
            if !self.asked.contains(&member) && !self.queue.contains(&member) {
                self.queue.push_back(member);
            }
        }
        if let Some(primary) = primary
            && let Some(at) = self.queue.iter().position(|host| *host == primary)
        {
            self.queue.swap(0, at);
        }
    }
}
