//! The clients: they write and transfer while things break, and keep the history.
//!
//! An operation is one entry of the history with all its tries, pauses and new connections. Only what
//! certainly did not happen is tried again; a key whose write got no answer is left alone.

use super::places::Places;
use crate::clock::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{Answer, Completion, Event, Intent, Operation, Step, Version};
use tipover_core::experiment::{Check, LoadSpec};
use tipover_core::op::{Failure, Outcome};
use tipover_core::target::CheckSession;
use tipover_core::workload::Random;
use tipover_core::workload::bank::Bank;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Does what this check wants to see.
    Load(Check),
    /// Reads all balances from time to time.
    Watch(Duration),
}

/// What all clients of a run share.
pub struct Shared<'a> {
    /// Of the trial.
    pub clock: Clock,
    /// Whom to ask now.
    pub places: &'a Places,
    /// Set when they shall end.
    pub stop: AtomicBool,
    /// Think time, time-out, retries.
    pub load: &'a LoadSpec,
    /// Where transfers come from.
    pub bank: &'a Bank,
    /// Clients that transfer: client i of them sends transfers i, i + n, i + 2n, ...
    pub transferring: u64,
    /// The key that each client of the register's check writes now, for the others to read.
    pub registers: Vec<AtomicU64>,
    /// Transactions over lists that were begun.
    pub lists: AtomicU64,
    /// Of chance.
    pub seed: u64,
}

/// What a client saw.
#[derive(Debug, Default)]
pub struct Log {
    /// In its order.
    pub events: Vec<Event>,
    /// Operations that were tried more than once: client, sequence, and how often again.
    pub retries: Vec<((u32, u64), u32)>,
}

/// Every so many writes a client replaces a value of its own instead of making a new key, so that a rolled
/// back value is seen too; new keys show how far a loss reaches.
const REPLACES_EVERY: u64 = 8;
/// So many transactions share their lists; then come new ones, so that lists stay short.
const SHARING: u64 = 64;
/// Lists that they share: few enough to meet, and more than one, because isolation is between them.
const LISTS: u64 = 3;
/// A target that is not there answers at once; asking it without a pause would take its processor.
const LEAST_PAUSE: Duration = Duration::from_millis(5);

/// One client.
pub struct Client<'a> {
    shared: &'a Shared<'a>,
    number: u32,
    /// Its place among those of its role.
    place: u64,
    role: Role,
    log: Log,
    sequence: u64,
    made: u64,
    /// The last key that was acknowledged, and the number of its last write.
    settled: Option<(u64, u64)>,
    /// The operation at hand, and how often it was tried again.
    at_hand: Option<(Operation, u32)>,
    /// How often it had to look for another place.
    moved: usize,
    random: Random,
}

/// How many lists so many transactions may have appended to.
pub fn lists_after(begun: u64) -> u64 {
    begun.div_ceil(SHARING) * LISTS
}

impl<'a> Client<'a> {
    /// Client `number` of all, the `place`-th of its role.
    pub fn new(shared: &'a Shared<'a>, number: u32, place: u64, role: Role) -> Client<'a> {
        Client {
            shared,
            number,
            place,
            role,
            log: Log::default(),
            sequence: 0,
            made: 0,
            settled: None,
            at_hand: None,
            moved: 0,
            // Numbers below a thousand are drawn from by others.
            random: Random::new(shared.seed, 1_000 + u64::from(number)),
        }
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Works until told to stop.
    pub fn run(mut self) -> Log {
        while !self.stopped() {
            let (load, mut usable) = (self.shared.load, true);
            let place = self.number as usize + self.moved;
            let opened = self.shared.places.with_session(place, load.timeout, &mut |session| {
                while usable && !self.stopped() {
                    usable = self.turn(session);
                }
            });
            if opened.is_err() {
                self.begin();
                self.end(Outcome::Refused(Failure::Unavailable), Answer::Nothing);
            }
            self.moved += 1;
        }
        self.log
    }

    /// One operation, or one more try of it; whether the session can go on.
    fn turn(&mut self, session: &mut dyn CheckSession) -> bool {
        let operation = self.begin();
        let (outcome, answer) = session.execute(&operation);
        self.end(outcome, answer);
        let (Outcome::Refused(failure) | Outcome::Unknown(failure)) = outcome else { return true };
        !matches!(failure, Failure::Unavailable | Failure::Timeout | Failure::InputOutput | Failure::Other)
    }

    /// The operation at hand; a new one begins with its INTENT.
    fn begin(&mut self) -> Operation {
        if let Some((operation, _)) = &self.at_hand {
            return operation.clone();
        }
        let operation = self.invent();
        self.sequence += 1;
        self.log.events.push(Event::Intent(Intent {
            client: self.number,
            sequence: self.sequence,
            at: self.shared.clock.now(),
            operation: operation.clone(),
        }));
        self.at_hand = Some((operation.clone(), 0));
        operation
    }

    /// Writes the key that was settled last once more, or a new one if there is none.
    fn write(&mut self, again: Option<(u64, u64)>) -> Operation {
        let (key, key_sequence) = match again {
            Some((key, last)) => (key, last + 1),
            None => {
                self.made += 1;
                (u64::from(self.number) << 32 | self.made, 1)
            }
        };
        Operation::Write { key, key_sequence, payload: Version::of(key, key_sequence).payload }
    }

    fn invent(&mut self) -> Operation {
        match self.role {
            Role::Load(Check::Ledger) => {
                let replaces = self.sequence % REPLACES_EVERY == REPLACES_EVERY - 1;
                self.write(self.settled.filter(|_| replaces))
            }
            // One writer a key, so that the ledger can judge it too; whoever reads it may be anybody.
            Role::Load(Check::Register) if self.sequence.is_multiple_of(2) => {
                let write = self.write(self.settled);
                if let Operation::Write { key, .. } = write {
                    self.shared.registers[self.place as usize].store(key, Ordering::Relaxed);
                }
                write
            }
            Role::Load(Check::Register) => {
                let whose = self.random.below(self.shared.registers.len() as u64);
                Operation::Read { key: self.shared.registers[whose as usize].load(Ordering::Relaxed) }
            }
            // It decides by two lists what to do to one of them.
            Role::Load(Check::Isolation) => {
                let first = self.shared.lists.fetch_add(1, Ordering::Relaxed) / SHARING * LISTS;
                let (a, b) = (first + self.random.below(LISTS), first + self.random.below(LISTS));
                let value = u64::from(self.number) << 32 | (self.sequence + 1);
                let steps =
                    vec![Step::Read { key: a }, Step::Read { key: b }, Step::Append { key: a, value }];
                Operation::Transaction { steps }
            }
            Role::Load(Check::Bank) => {
                let n = self.made * self.shared.transferring + self.place;
                self.made += 1;
                let transfer = self.shared.bank.transfer(n);
                let (id, from, to, amount) = (transfer.id, transfer.from, transfer.to, transfer.amount);
                Operation::Transfer { id, from, to, amount }
            }
            Role::Watch(_) => Operation::ReadBalances,
        }
    }

    /// After a try: another one, or the RESULT.
    fn end(&mut self, outcome: Outcome, answer: Answer) {
        let Some((operation, tries)) = self.at_hand.take() else { return };
        let again = matches!(outcome, Outcome::Refused(Failure::Conflict | Failure::Unavailable));
        let pause = self.shared.load.retry_pause * 2u32.saturating_pow(tries.min(10));
        let pause = pause.min(Duration::from_secs(1));
        let away = matches!(
            outcome,
            Outcome::Refused(Failure::Unavailable) | Outcome::Unknown(Failure::Unavailable)
        );
        if again && tries < self.shared.load.retries && !self.stopped() {
            self.at_hand = Some((operation, tries + 1));
            std::thread::sleep(if away { pause.max(LEAST_PAUSE) } else { pause });
            return;
        }
        if let Operation::Write { key, key_sequence, .. } = &operation {
            self.settled = (outcome == Outcome::Done).then_some((*key, *key_sequence));
        }
        if tries > 0 {
            self.log.retries.push(((self.number, self.sequence), tries));
        }
        let at = self.shared.clock.now();
        let (client, sequence) = (self.number, self.sequence);
        self.log.events.push(Event::Result(Completion { client, sequence, at, outcome, answer }));
        let rest = match self.role {
            Role::Watch(every) => every,
            Role::Load(_) if away => self.shared.load.think.max(LEAST_PAUSE),
            Role::Load(_) => self.shared.load.think,
        };
        self.rest(rest);
    }

    /// Sleeps, but not beyond the end.
    fn rest(&self, span: Duration) {
        let until = Instant::now() + span;
        while !span.is_zero() && !self.stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
