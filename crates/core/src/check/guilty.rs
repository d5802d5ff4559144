//! Histories of databases that are wrong on purpose, from a seed, in virtual time: what a checker must
//! convict, and honest ones that it must acquit.
//!
//! A database executes every operation at one moment between its beginning and its end, but for some whose
//! answer is lost on the way, which happen then, later or never. At times the power goes. A culprit differs
//! from the honest one in exactly one rule, named in [`Culprit`].

use super::history::{Entry, History, Returned, Version};
use super::{BankScan, KeyScan, ListScan, Observation, Source, TransferRow};
use crate::op::{Failure, Fields, Op, Outcome, Step};
use crate::schedule::{Effect, Injection};
use crate::units::Tick;
use crate::workload::{Loading, Random, Records, Workload};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// What is wrong with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Culprit {
    /// Nothing.
    Honest,
    /// It writes back what it read earlier, over what others wrote since.
    LostUpdate,
    /// It shows what is later refused, and transfers of which only half has happened.
    DirtyRead,
    /// It answers some reads from 20 ms ago.
    StaleRead,
    /// It flushes every 40 ms and acknowledges before.
    AcknowledgedBeforeFlush,
    /// It carries out an operation in ten twice and acknowledges once.
    RetriedTwice,
    /// After a fault it goes on with a replica that was 30 ms behind, and 20 ms later than it should.
    RolledBack,
    /// A power cut leaves half of a transfer.
    Torn,
}

/// All of them, the honest one first.
pub const CULPRITS: [Culprit; 8] = [
    Culprit::Honest,
    Culprit::LostUpdate,
    Culprit::DirtyRead,
    Culprit::StaleRead,
    Culprit::AcknowledgedBeforeFlush,
    Culprit::RetriedTwice,
    Culprit::RolledBack,
    Culprit::Torn,
];

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Writes of own keys and reads of all: for the ledger and the register.
    Keys,
    /// Transfers between ten accounts of [`FIRST_BALANCE`], and snapshots.
    Bank,
    /// Transactions over lists.
    Lists,
    /// Inserts of the records 0..[`Extent::keys`], each until it is there; then the clients stop.
    Loading,
}

/// What every account begins with.
pub const FIRST_BALANCE: i64 = 1000;
/// Accounts 0..10.
pub const ACCOUNTS: u64 = 10;
const MS: u64 = 1_000_000;
const DOWN: u64 = 30 * MS;
/// One operation in this number loses its answer.
const ANSWERS_LOST: u64 = 50;

/// How much is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// How many clients work.
    pub clients: u32,
    /// Keys of each client, lists that are appended to at a time, or records to load.
    pub keys: u64,
    /// When they stop, in milliseconds.
    pub end_ms: u64,
    /// When the power goes, in milliseconds.
    pub faults_ms: Vec<u64>,
}

impl Default for Extent {
    /// Eight clients for 600 ms, and two faults: some 1500 operations.
    fn default() -> Self {
        Extent { clients: 8, keys: 8, end_ms: 600, faults_ms: vec![200, 400] }
    }
}

/// What the database holds; rebuilt from its log after a fault.
#[derive(Debug, Clone, Default)]
struct State {
    log: Vec<(u64, Op)>,
    keys: BTreeMap<u64, Vec<(u64, Version)>>,
    balances: BTreeMap<u64, i64>,
    transfers: Vec<TransferRow>,
    lists: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl State {
    fn new(log: impl IntoIterator<Item = (u64, Op)>) -> Self {
        let mut state = State::default();
        state.balances.extend((0..ACCOUNTS).map(|account| (account, FIRST_BALANCE)));
        log.into_iter().for_each(|(time, op)| state.apply(time, op));
        state
    }

    fn apply(&mut self, time: u64, op: Op) {
        if let Some((key, key_sequence)) = op.written() {
            self.keys.entry(key).or_default().push((time, Version::of(key, key_sequence)));
        }
        match &op {
            Op::Transfer { id, from, to, amount } => {
                *self.balances.entry(*from).or_default() -= amount;
                *self.balances.entry(*to).or_default() += amount;
                self.transfers.push(TransferRow { id: *id, from: *from, to: *to, amount: *amount });
            }
            op => {
                for step in op.steps() {
                    if let Step::Append { key, value } = step {
                        self.lists.entry(*key).or_default().push((time, *value));
                    }
                }
            }
        }
        self.log.push((time, op));
    }

    fn read(&self, key: u64, at: u64) -> Option<Version> {
        let versions = self.keys.get(&key)?;
        versions.iter().rev().find(|(time, _)| *time <= at).map(|(_, version)| *version)
    }

    fn list(&self, key: u64, at: u64) -> Vec<u64> {
        let values = self.lists.get(&key).map_or(&[][..], Vec::as_slice);
        values.iter().filter(|(time, _)| *time <= at).map(|(_, value)| *value).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Fault(usize),
    Switch(usize),
    Begin(u32),
    Take(usize),
    Late(usize),
    End(usize),
    TakeBack(usize),
}

struct Run<'a> {
    culprit: Culprit,
    work: Work,
    extent: &'a Extent,
    random: Random,
    heap: BinaryHeap<Reverse<(u64, Happens)>>,
    state: State,
    entries: Vec<Entry>,
    /// What an operation saw when it began, for culprits that write it back.
    seen: BTreeMap<usize, (i64, i64, BTreeMap<u64, usize>)>,
    under_way: BTreeMap<usize, u64>,
    sequences: BTreeMap<u64, u64>,
    given_up: Vec<u64>,
    down_until: u64,
    values: u64,
    loading: Loading,
}

/// One run: what the clients saw, the faults, and the final reads.
pub fn observe(culprit: Culprit, work: Work, seed: u64) -> Observation {
    observe_for(&Extent::default(), culprit, work, seed)
}

/// One run of this extent.
pub fn observe_for(extent: &Extent, culprit: Culprit, work: Work, seed: u64) -> Observation {
    let mut run = Run {
        culprit,
        work,
        extent,
        random: Random::new(seed, culprit as u64 * 8 + work as u64),
        heap: BinaryHeap::new(),
        state: State::new([]),
        entries: vec![],
        seen: BTreeMap::new(),
        under_way: BTreeMap::new(),
        sequences: BTreeMap::new(),
        given_up: vec![],
        down_until: 0,
        values: 0,
        loading: Loading::new(extent.keys),
    };
    for client in 0..extent.clients {
        let at = run.random.below(2 * MS);
        run.heap.push(Reverse((at, Happens::Begin(client))));
    }
    for (number, at) in extent.faults_ms.iter().enumerate() {
        run.heap.push(Reverse((at * MS, Happens::Fault(number))));
    }
    while let Some(Reverse((now, what))) = run.heap.pop() {
        match what {
            Happens::Begin(client) => run.begin(client, now),
            Happens::Take(index) => run.take(index, now),
            Happens::Late(index) => run.late(index, now),
            Happens::End(index) => run.end(index, now),
            Happens::TakeBack(index) => run.take_back(index, now),
            Happens::Fault(_) => run.fault(now),
            Happens::Switch(_) => run.switch(now),
        }
    }
    run.finish()
}

impl Run<'_> {
    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn begin(&mut self, client: u32, now: u64) {
        let is_loaded = self.work == Work::Loading && self.loading.known() == self.extent.keys;
        if now >= self.extent.end_ms * MS || is_loaded {
            return;
        }
        let op = self.op(client);
        let index = self.entries.len();
        let entry = Entry::sent(client, index as u64, op, Tick(now));
        self.remember(index, &entry.op);
        self.entries.push(entry);
        if now < self.down_until {
            let ended = now + MS / 2;
            self.entries[index].ended = Some(Tick(ended));
            self.entries[index].outcome = Outcome::Refused(Failure::Unavailable);
            self.settle(index);
            self.heap.push(Reverse((ended + MS, Happens::Begin(client))));
            return;
        }
        let taken = now + MS / 4 + self.random.below(2 * MS);
        self.under_way.insert(index, taken);
        self.heap.push(Reverse((taken, Happens::Take(index))));
    }

    fn op(&mut self, client: u32) -> Op {
        match self.work {
            Work::Keys if self.random.below(2) == 0 => {
                let whose = self.random.below(u64::from(self.extent.clients));
                let record = whose * 100 + self.random.below(self.extent.keys + 2);
                Op::Read { record, fields: Fields::All }
            }
            Work::Keys => {
                // After an unknown answer a client leaves the key alone and takes the next ten.
                let decade =
                    self.given_up.iter().filter(|key| **key / 100 == u64::from(client)).count() as u64;
                let own = u64::from(client) * 100;
                let free =
                    (0..).map(|n| own + (decade / 5) * 10 + n).filter(|key| !self.given_up.contains(key));
                let nth = self.random.below(self.extent.keys) as usize;
                let key = free.take(nth + 1).last().unwrap_or(own);
                let sequence = self.sequences.entry(key).or_default();
                *sequence += 1;
                Op::Update { record: key, fields: Fields::All, version: *sequence }
            }
            Work::Bank if self.random.below(10) == 0 => Op::ReadBalances,
            Work::Bank => {
                self.values += 1;
                let from = self.random.below(ACCOUNTS);
                let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
                Op::Transfer { id: self.values, from, to, amount: 1 + self.random.below(50) as i64 }
            }
            Work::Lists => {
                let steps = 1 + self.random.below(3);
                let step = |run: &mut Self| {
                    // Keys change in time, so that lists stay short.
                    let key = run.values / 40 + run.random.below(run.extent.keys.min(4));
                    if run.random.below(2) == 0 {
                        return Step::Read { key };
                    }
                    run.values += 1;
                    Step::Append { key, value: run.values }
                };
                Op::Transaction { steps: (0..steps).map(|_| step(self)).collect() }
            }
            Work::Loading => self.loading.op(self.entries.len() as u64, &Records::new(0)),
        }
    }

    /// Tells whoever loads what became of an operation.
    fn settle(&mut self, index: usize) {
        let Entry { op, outcome, .. } = &self.entries[index];
        self.loading.settle(index as u64, op, *outcome);
    }

    fn remember(&mut self, index: usize, op: &Op) {
        if self.culprit != Culprit::LostUpdate {
            return;
        }
        let balance = |account: &u64| self.state.balances.get(account).copied().unwrap_or(0);
        let (from, to) = match op {
            Op::Transfer { from, to, .. } => (balance(from), balance(to)),
            _ => (0, 0),
        };
        let lengths = self.state.lists.iter().map(|(key, list)| (*key, list.len())).collect();
        self.seen.insert(index, (from, to, lengths));
    }

    /// The moment at which an operation is carried out.
    fn take(&mut self, index: usize, now: u64) {
        if self.under_way.remove(&index).is_none() {
            return;
        }
        let op = self.entries[index].op.clone();
        let lost = self.one_in(ANSWERS_LOST).then(|| self.random.below(3));
        let outcome = match lost {
            Some(1) => {
                let late = now + MS + self.random.below(20 * MS);
                self.heap.push(Reverse((late, Happens::Late(index))));
                Outcome::Unknown(Failure::Timeout)
            }
            Some(2) => Outcome::Unknown(Failure::Timeout),
            _ => self.carry_out(index, &op, now),
        };
        let entry = &mut self.entries[index];
        entry.outcome = outcome;
        if lost.is_some() {
            (entry.outcome, entry.answer) = (Outcome::Unknown(Failure::Timeout), Returned::Nothing);
            self.given_up.extend(op.written().map(|(key, _)| key));
        }
        let ended = now + MS / 8 + self.random.below(MS);
        self.under_way.insert(index, ended);
        self.heap.push(Reverse((ended, Happens::End(index))));
    }

    /// An operation whose client has given it up arrives after all, unless the database is away.
    fn late(&mut self, index: usize, now: u64) {
        if now >= self.down_until {
            let op = self.entries[index].op.clone();
            self.carry_out(index, &op, now);
            self.entries[index].answer = Returned::Nothing;
        }
    }

    fn carry_out(&mut self, index: usize, op: &Op, now: u64) -> Outcome {
        let stale = self.culprit == Culprit::StaleRead && self.one_in(10);
        let at = if stale { now.saturating_sub(20 * MS) } else { now };
        let dirty = self.culprit == Culprit::DirtyRead && self.one_in(8);
        let answer = match op {
            Op::Read { record, .. } => Returned::Value(self.state.read(*record, at)),
            Op::Insert { record } if self.state.read(*record, now).is_some() => {
                return Outcome::Refused(Failure::Exists);
            }
            Op::ReadBalances => self.snapshot(),
            Op::Transfer { from, amount, .. } => {
                if self.state.balances.get(from).copied().unwrap_or(0) < *amount {
                    return Outcome::Refused(Failure::Conflict);
                }
                Returned::Nothing
            }
            Op::Transaction { steps } => self.lists(steps, at),
            _ => Returned::Nothing,
        };
        self.entries[index].answer = answer;
        if !op.changes() {
            return Outcome::Done;
        }
        self.forget_others(index, op);
        self.state.apply(now, op.clone());
        if self.culprit == Culprit::RetriedTwice && self.one_in(10) {
            self.state.apply(now, op.clone());
        }
        if let Some((from, to, _)) = self.seen.get(&index)
            && let Op::Transfer { from: a, to: b, amount, .. } = op
        {
            self.state.balances.insert(*a, from - amount);
            self.state.balances.insert(*b, to + amount);
        }
        let takes_back = dirty || (self.culprit == Culprit::LostUpdate && self.one_in(5));
        if takes_back && self.work != Work::Bank {
            self.heap.push(Reverse((now + 5 * MS, Happens::TakeBack(index))));
        }
        if dirty && self.work != Work::Bank { Outcome::Refused(Failure::Conflict) } else { Outcome::Done }
    }

    /// All balances; a dirty reader sees a transfer that is under way half done.
    fn snapshot(&mut self) -> Returned {
        let mut balances = self.state.balances.clone();
        if self.culprit == Culprit::DirtyRead {
            let half = self.under_way.keys().find_map(|index| match self.entries[*index].op {
                Op::Transfer { from, amount, .. } => Some((from, amount)),
                _ => None,
            });
            if let Some((from, amount)) = half {
                *balances.entry(from).or_default() -= amount;
            }
        }
        Returned::Balances(balances.into_iter().map(|(account, balance)| (account, Some(balance))).collect())
    }

    fn lists(&self, steps: &[Step], at: u64) -> Returned {
        let mut own: Vec<(u64, u64)> = Vec::new();
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::Append { key, value } => {
                    own.push((*key, *value));
                    answers.push(None);
                }
                Step::Read { key } => {
                    let mut list = self.state.list(*key, at);
                    list.extend(own.iter().filter(|(k, _)| k == key).map(|(_, value)| *value));
                    answers.push(Some(list));
                }
            }
        }
        Returned::Lists(answers)
    }

    /// A writer that writes its old list back makes everything disappear that was appended since it began.
    fn forget_others(&mut self, index: usize, op: &Op) {
        let Some((_, _, lengths)) = self.seen.get(&index) else { return };
        for step in op.steps() {
            if let Step::Append { key, .. } = step
                && let Some(list) = self.state.lists.get_mut(key)
            {
                list.truncate(lengths.get(key).copied().unwrap_or(0).max(list.len().saturating_sub(1)));
            }
        }
    }

    fn take_back(&mut self, index: usize, _now: u64) {
        let op = &self.entries[index].op;
        if let Some((key, key_sequence)) = op.written()
            && let Some(versions) = self.state.keys.get_mut(&key)
        {
            versions.retain(|(_, version)| version.key_sequence != key_sequence);
        }
        if self.culprit == Culprit::DirtyRead {
            for step in op.steps() {
                if let Step::Append { key, value } = step
                    && let Some(list) = self.state.lists.get_mut(key)
                {
                    list.retain(|(_, known)| known != value);
                }
            }
        }
    }

    fn end(&mut self, index: usize, now: u64) {
        if self.under_way.remove(&index).is_none() {
            return;
        }
        self.entries[index].ended = Some(Tick(now));
        self.settle(index);
        let client = self.entries[index].client;
        let pause = self.random.below(MS);
        self.heap.push(Reverse((now + pause, Happens::Begin(client))));
    }

    /// Nobody who waits for an answer gets one.
    fn hang_up(&mut self, now: u64) {
        for (index, _) in std::mem::take(&mut self.under_way) {
            let entry = &mut self.entries[index];
            entry.ended = Some(Tick(now + MS));
            entry.outcome = Outcome::Unknown(Failure::Unavailable);
            entry.answer = Returned::Nothing;
            self.given_up.extend(entry.op.written().map(|(key, _)| key));
            let client = entry.client;
            self.settle(index);
            self.heap.push(Reverse((now + 2 * MS, Happens::Begin(client))));
        }
    }

    fn fault(&mut self, now: u64) {
        if self.culprit == Culprit::RolledBack {
            self.heap.push(Reverse((now + 20 * MS, Happens::Switch(0))));
            return;
        }
        let torn = self.under_way.keys().find_map(|index| match self.entries[*index].op {
            Op::Transfer { id, from, to, amount } => Some(TransferRow { id, from, to, amount }),
            _ => None,
        });
        self.hang_up(now);
        self.down_until = now + DOWN;
        match self.culprit {
            Culprit::AcknowledgedBeforeFlush => self.go_back_to((now - MS) / (40 * MS) * (40 * MS)),
            Culprit::Torn => {
                // One that was under way: paid and not received, whether it had just begun or was just done.
                if let Some(row) = torn {
                    let is_there = self.state.transfers.iter().any(|known| known.id == row.id);
                    let account = if is_there { row.to } else { row.from };
                    *self.state.balances.entry(account).or_default() -= row.amount;
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, now: u64) {
        self.hang_up(now);
        self.go_back_to(now - 50 * MS);
    }

    fn go_back_to(&mut self, time: u64) {
        let log = std::mem::take(&mut self.state.log);
        self.state = State::new(log.into_iter().filter(|(at, _)| *at <= time));
    }

    fn finish(self) -> Observation {
        let at = Tick((self.extent.end_ms + 1000) * MS);
        let rows: Vec<(u64, Version)> = self
            .state
            .keys
            .iter()
            .flat_map(|(key, versions)| {
                let last = versions.iter().map(|(_, version)| *version).max();
                let same = versions.iter().filter(move |(_, version)| Some(*version) == last);
                same.map(|(_, version)| (*key, *version))
            })
            .collect();
        let (mut keys, mut bank, mut lists) = (vec![], vec![], vec![]);
        let all_lists = self.lists_at_the_end();
        for pass in [1, 2] {
            for source in [Source::Survivors, Source::Replica("b".into())] {
                keys.push(KeyScan { source: source.clone(), pass, at, rows: rows.clone() });
                let balances = self.state.balances.iter().map(|(a, b)| (*a, Some(*b))).collect();
                let transfers = self.state.transfers.clone();
                bank.push(BankScan { source: source.clone(), pass, at, balances, transfers });
                lists.push(ListScan { source, pass, at, lists: all_lists.clone() });
            }
        }
        let injection = |at: &u64| Injection {
            rule: "power cut all".into(),
            at: Tick(at * MS),
            uncertainty: Duration::from_micros(100),
            undone: Some(Tick(at * MS + DOWN)),
            effect: Effect::Fired { count: 1 },
            outages: vec![],
        };
        let injections = self.extent.faults_ms.iter().map(injection).collect();
        Observation {
            history: History { entries: self.entries, ..History::default() },
            injections,
            keys,
            bank,
            lists,
            tpcb: vec![],
        }
    }

    /// Every list that anybody named, also one of which nothing is left.
    fn lists_at_the_end(&self) -> Vec<(u64, Vec<u64>)> {
        let mut keys = BTreeSet::new();
        for entry in &self.entries {
            keys.extend(entry.op.steps().iter().map(|step| match step {
                Step::Append { key, .. } | Step::Read { key } => *key,
            }));
        }
        keys.into_iter().map(|key| (key, self.state.list(key, u64::MAX))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Bank, Checker, Exposure, Isolation, Ledger, Model, Register, Verdict, judge};

    fn checkers(work: Work) -> Vec<Box<dyn Checker>> {
        let exposure = Exposure { least_acknowledged: 20, ..Exposure::default() };
        match work {
            Work::Keys => vec![Box::new(Ledger { exposure, ..Ledger::default() }), Box::new(Register)],
            Work::Bank => {
                let mut bank = Bank::new((0..ACCOUNTS).map(|account| (account, FIRST_BALANCE)));
                bank.exposure = exposure;
                vec![Box::new(bank)]
            }
            Work::Lists => vec![Box::new(Isolation { claimed: Model::StrictSerializable })],
            // Whole trials of it are judged in `trial::tests`.
            Work::Loading => vec![],
        }
    }

    /// Who convicts whom: seeds out of all on which the checker said Invalid.
    fn convictions(culprit: Culprit, work: Work, seeds: u64) -> BTreeMap<String, u64> {
        let mut convictions = BTreeMap::new();
        for seed in 0..seeds {
            let seen = observe(culprit, work, seed);
            let checkers = checkers(work);
            let checkers: Vec<&dyn Checker> = checkers.iter().map(Box::as_ref).collect();
            for finding in judge(&checkers, &seen).findings {
                let guilty = finding.verdict == Verdict::Invalid;
                if culprit == Culprit::Honest {
                    assert_eq!(finding.verdict, Verdict::Valid, "{work:?} seed {seed}: {finding:#?}");
                }
                *convictions.entry(finding.checker).or_insert(0) += u64::from(guilty);
            }
        }
        convictions
    }

    const SEEDS: u64 = 100;
    /// For each of 18 pairs of culprit and work.
    const SEEDS_PER_CULPRIT: u64 = 20;

    #[test]
    fn the_honest_are_acquitted() {
        for work in [Work::Keys, Work::Bank, Work::Lists] {
            assert!(convictions(Culprit::Honest, work, SEEDS).values().all(|guilty| *guilty == 0));
        }
    }

    #[test]
    fn every_culprit_is_convicted_by_whom_it_concerns() {
        use Culprit::*;
        for (culprit, work, checker) in [
            (LostUpdate, Work::Keys, "ledger"),
            (LostUpdate, Work::Bank, "bank"),
            (LostUpdate, Work::Lists, "isolation"),
            (DirtyRead, Work::Keys, "register"),
            (DirtyRead, Work::Bank, "bank"),
            (DirtyRead, Work::Lists, "isolation"),
            (StaleRead, Work::Keys, "register"),
            (StaleRead, Work::Lists, "isolation"),
            (AcknowledgedBeforeFlush, Work::Keys, "ledger"),
            (AcknowledgedBeforeFlush, Work::Bank, "bank"),
            (AcknowledgedBeforeFlush, Work::Lists, "isolation"),
            (RetriedTwice, Work::Keys, "ledger"),
            (RetriedTwice, Work::Bank, "bank"),
            (RetriedTwice, Work::Lists, "isolation"),
            (RolledBack, Work::Keys, "ledger"),
            (RolledBack, Work::Bank, "bank"),
            (RolledBack, Work::Lists, "isolation"),
            (Torn, Work::Bank, "bank"),
        ] {
            let guilty = convictions(culprit, work, SEEDS_PER_CULPRIT)[checker];
            assert_eq!(guilty, SEEDS_PER_CULPRIT, "{culprit:?} by the {checker}");
        }
    }

    #[test]
    fn what_a_checker_cannot_see_is_documented_here() {
        // A snapshot of the past adds up, and a stale read takes nothing away.
        assert_eq!(convictions(Culprit::StaleRead, Work::Bank, 20)["bank"], 0);
        assert_eq!(convictions(Culprit::StaleRead, Work::Keys, 20)["ledger"], 0);
        // What was visible and then refused is gone at the end, as it should be.
        assert_eq!(convictions(Culprit::DirtyRead, Work::Keys, 20)["ledger"], 0);
    }

    #[test]
    fn the_total_alone_misses_what_the_replay_sees() {
        for (culprit, blind) in [
            (Culprit::AcknowledgedBeforeFlush, true),
            (Culprit::RetriedTwice, true),
            (Culprit::RolledBack, true),
        ] {
            for seed in 0..50 {
                let seen = observe(culprit, Work::Bank, seed);
                let bank = Bank::new((0..ACCOUNTS).map(|account| (account, FIRST_BALANCE)));
                let books = bank.settle(&seen);
                assert_eq!(books.total_off == Some(0), blind, "{culprit:?} seed {seed}");
                assert_eq!(books.finding.verdict, Verdict::Invalid, "{culprit:?} seed {seed}");
            }
        }
    }

    #[test]
    fn losses_are_as_large_as_the_culprit_makes_them() {
        for seed in 0..50 {
            // It flushed at 160 ms and the power went at 200 ms: the window is 40 ms.
            let bank = Bank::new((0..ACCOUNTS).map(|account| (account, FIRST_BALANCE)));
            let losses = bank.settle(&observe(Culprit::AcknowledgedBeforeFlush, Work::Bank, seed)).losses;
            for fault in &losses.faults {
                let window = fault.loss_window.expect("something is lost each time");
                assert!((35..=40).contains(&window.as_millis()), "seed {seed}: {window:?}");
            }
            // Keys that are written again after the fault hide what they lost: the window can only shrink.
            let seen = observe(Culprit::AcknowledgedBeforeFlush, Work::Keys, seed);
            for fault in Ledger::default().settle(&seen).losses.faults {
                assert!(fault.loss_window.is_none_or(|window| window.as_millis() <= 40), "seed {seed}");
            }
            assert_eq!(observe(Culprit::AcknowledgedBeforeFlush, Work::Keys, seed), seen, "a seed is a run");
        }
    }
}
