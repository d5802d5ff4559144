//! The clients: they write and transfer while things break, and keep the history.
//!
//! An operation is one entry of the history with all its tries, pauses and new connections. Only what
//! certainly did not happen is tried again; a key whose write got no answer is left alone.

use super::places::Places;
use crate::clock::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{Answer, Completion, Event, Intent, Operation, Step, Version};
use tipover_core::experiment::{Check, LoadSpec, Retries};
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
        if let Some(pause) = self.shared.load.retries().pause(outcome, tries) {
            self.rest(pause);
            // Nobody waits for another try when all is to end.
            if !self.stopped() {
                self.at_hand = Some((operation, tries + 1));
                return;
            }
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
        let away = matches!(
            outcome,
            Outcome::Refused(Failure::Unavailable) | Outcome::Unknown(Failure::Unavailable)
        );
        let rest = match self.role {
            Role::Watch(every) => every,
            Role::Load(_) if away => self.shared.load.think.max(Retries::LEAST_FOR_ABSENT),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive;
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::sync::Mutex;
    use tipover_core::metric::Metric;
    use tipover_core::op::{Op, OpKind};
    use tipover_core::target::{BankRows, Facts, Session, Target, TargetError};
    use tipover_core::workload::bank::BankSpec;
    use tipover_core::workload::{Dataset, Records, Workload};

    /// Gives these outcomes one after the other, then only `Done`, and remembers when it was asked.
    #[derive(Default)]
    struct Scripted {
        script: Mutex<Vec<Outcome>>,
        asked: Mutex<Vec<Instant>>,
    }

    impl Scripted {
        fn saying(script: &[Outcome]) -> Scripted {
            Scripted { script: Mutex::new(script.iter().rev().copied().collect()), ..Scripted::default() }
        }

        fn answer(&self) -> Outcome {
            self.asked.lock().unwrap().push(Instant::now());
            self.script.lock().unwrap().pop().unwrap_or(Outcome::Done)
        }

        /// From each asking to the next.
        fn pauses(&self) -> Vec<Duration> {
            self.asked.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
        }
    }

    impl Session for &Scripted {
        fn execute(&mut self, _: &Op) -> Outcome {
            self.answer()
        }
    }

    impl CheckSession for &Scripted {
        fn prepare(&mut self, _: &[(u64, i64)]) -> Result<(), TargetError> {
            Ok(())
        }
        fn execute(&mut self, _: &Operation) -> (Outcome, Answer) {
            (self.answer(), Answer::Nothing)
        }
        fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
            Ok(vec![])
        }
        fn read_bank(&mut self) -> Result<BankRows, TargetError> {
            Ok((vec![], vec![]))
        }
    }

    impl Target for Scripted {
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
            Ok(Box::new(self))
        }
        fn metrics(&self) -> Vec<Metric> {
            vec![]
        }
        fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
            Ok(BTreeMap::new())
        }
    }

    struct Reads;

    impl Workload for Reads {
        fn op(&self, _: u64, _: &Records) -> Op {
            Op::Read { record: 0, fields: tipover_core::op::Fields::All }
        }
    }

    /// A client under faults carries out one operation; the outcomes of its history.
    fn under_faults(scripted: &Scripted, load: &LoadSpec) -> Vec<Event> {
        let bank = Bank::new(BankSpec { accounts: 2, ..BankSpec::default() }).unwrap();
        let shared = Shared {
            clock: Clock::start(),
            places: &Places::default(),
            stop: AtomicBool::new(false),
            load,
            bank: &bank,
            transferring: 0,
            registers: vec![],
            lists: AtomicU64::new(0),
            seed: 1,
        };
        let mut client = Client::new(&shared, 0, 0, Role::Load(Check::Ledger));
        let mut session = scripted;
        while client.log.events.len() < 2 {
            client.turn(&mut session);
        }
        client.log.events
    }

    /// A session of a run carries out one operation.
    fn in_a_run(scripted: &Scripted, load: &LoadSpec) -> drive::Tally {
        let dataset = Dataset::ycsb(1);
        let records = Records::new(1);
        let plan = drive::Plan::closed(scripted, &dataset, &Reads, &records, 1, Clock::start());
        let plan = drive::Plan { limit: Some(1), ..plan.with(load, 1) };
        drive::run(&plan, |sessions| {
            assert!(sessions.wait(Duration::from_secs(60)), "the plan has an end");
            sessions.cut()
        })
        .unwrap()
    }

    #[test]
    fn a_retry_waits_as_long_under_faults_as_in_a_run() {
        let (conflict, absent) =
            (Outcome::Refused(Failure::Conflict), Outcome::Refused(Failure::Unavailable));
        let script = [conflict, absent, conflict, conflict];
        for pause in [0, 2_000] {
            let load: LoadSpec = serde_json::from_value(serde_json::json!(
                {"sessions": 1, "retries": 10, "retry_pause": format!("{pause} us")}
            ))
            .unwrap();
            let wanted: Vec<Duration> =
                script.iter().zip(0..).filter_map(|(outcome, n)| load.retries().pause(*outcome, n)).collect();
            assert_eq!(wanted.len(), script.len());
            let (faulty, calm) = (Scripted::saying(&script), Scripted::saying(&script));
            let events = under_faults(&faulty, &load);
            assert!(matches!(&events[1], Event::Result(result) if result.outcome == Outcome::Done));
            let tally = in_a_run(&calm, &load);
            assert_eq!((tally.books.done(), tally.books.retries()), (1, script.len() as u64));
            // Neither asks earlier than the rule says; how much later depends on the machine.
            for pauses in [faulty.pauses(), calm.pauses()] {
                assert_eq!(pauses.len(), wanted.len());
                assert!(pauses.iter().zip(&wanted).all(|(took, least)| took >= least), "{pauses:?}");
            }
        }
    }

    #[test]
    fn what_is_not_tried_again_has_its_outcome_in_both_loops() {
        let load: LoadSpec =
            serde_json::from_value(serde_json::json!({"sessions": 1, "retries": 2, "retry_pause": "0 s"}))
                .unwrap();
        let conflict = Outcome::Refused(Failure::Conflict);
        for (script, asked, last) in [
            (vec![conflict; 9], 3, conflict),
            (vec![Outcome::Unknown(Failure::Timeout)], 1, Outcome::Unknown(Failure::Timeout)),
        ] {
            let (faulty, calm) = (Scripted::saying(&script), Scripted::saying(&script));
            let events = under_faults(&faulty, &load);
            assert!(matches!(&events[1], Event::Result(result) if result.outcome == last), "{events:?}");
            assert_eq!(in_a_run(&calm, &load).books.failed(), 1);
            let times = |scripted: &Scripted| scripted.asked.lock().unwrap().len();
            assert_eq!((times(&faulty), times(&calm)), (asked, asked));
        }
    }
}
