//! What every target promises, checked alike on all of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use tipover_core::check::{Entry, Finding, Isolation, Model, Returned, TransferRow, Version};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome, Step};
use tipover_core::target::{Progress, Session, Target};
use tipover_core::units::Tick;
use tipover_core::workload::bank::{Bank, BankSpec};
use tipover_core::workload::{Dataset, Lengths, Random};

/// What a target under test can be held to.
pub struct Expect<'a> {
    /// Whether it keeps what is written: it finds it again, and can tell that a record does not exist.
    pub keeps_records: bool,
    /// The classes it executes; empty means all of them.
    pub kinds: &'a [OpKind],
}

/// What a target that keeps records and a bank executes.
pub const RECORDS_IN_FULL: &[OpKind] = &[
    OpKind::Read,
    OpKind::Update,
    OpKind::Insert,
    OpKind::InsertMany,
    OpKind::Scan,
    OpKind::Transfer,
    OpKind::ReadBalances,
    OpKind::Transaction,
];

/// Runs of scripts of statements.
#[cfg(feature = "connection")]
pub fn scripts() -> Vec<OpKind> {
    OpKind::ALL.into_iter().filter(|kind| matches!(kind, OpKind::Script(_))).collect()
}

const RECORDS: u64 = 600;
const ALL: Fields = Fields::All;

/// Checks `target`, which must be empty and keeps its records in the data set's table.
pub fn check(target: &dyn Target, expect: &Expect<'_>) {
    let blocks = expect.kinds.contains(&OpKind::ReadAt);
    let dataset = if blocks {
        Dataset { fields: 1, field_length: Lengths::Constant(4096), ..Dataset::ycsb(RECORDS) }
    } else {
        Dataset { fields: 4, field_length: Lengths::Uniform(1, 90), ..Dataset::ycsb(RECORDS) }
    };
    let apart = [OpKind::Verify, OpKind::ReadModifyWrite];
    for kind in OpKind::ALL.into_iter().filter(|kind| !apart.contains(kind)) {
        let expected = expect.kinds.is_empty() || expect.kinds.contains(&kind);
        assert_eq!(target.accepts(kind), expected, "{kind:?}");
    }

    // Ranges may be loaded from several threads at once.
    std::thread::scope(|scope| {
        for part in 0..3 {
            let dataset = &dataset;
            scope.spawn(move || {
                target.load(dataset, part * RECORDS / 3..(part + 1) * RECORDS / 3).unwrap();
            });
        }
    });
    target.settle().unwrap();
    assert!(target.facts().unwrap().contains_key("system"));

    let before = target.sample().unwrap();
    let read = |record: u64| match blocks {
        true => Op::ReadAt { offset: record * 4096, length: 4096 },
        false => Op::Read { record, fields: ALL },
    };
    // Every record is there, for every session, at the same time; opening and closing changes nothing.
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for first in 0..4u64 {
                let dataset = &dataset;
                scope.spawn(move || {
                    let mut session = target.open(dataset).unwrap();
                    for record in (first..RECORDS).step_by(4) {
                        assert_eq!(session.execute(&read(record)), Outcome::Done, "record {record}");
                    }
                });
            }
        });
    }
    if expect.keeps_records {
        let mut session = target.open(&dataset).unwrap();
        let missing = session.execute(&read(RECORDS + 7));
        assert_eq!(missing, Outcome::Refused(Failure::NotFound));
        assert_eq!(session.execute(&read(0)), Outcome::Done, "a refusal leaves the session usable");
    }
    if expect.keeps_records && !blocks {
        keeps_records(target, &dataset, &mut |session, op| session.execute(op), RECORDS);
        if target.open(&dataset).unwrap().wire().is_some() {
            keeps_records(target, &dataset, &mut by_wire, RECORDS + 100);
            abandons(target, &dataset);
        }
    }

    // What it declares is what it samples, and counters do not run backwards.
    let after = target.sample().unwrap();
    let declared: BTreeSet<String> = target.metrics().into_iter().map(|m| m.name).collect();
    assert_eq!(declared, after.keys().cloned().collect());
    for metric in target.metrics() {
        if metric.kind == tipover_core::metric::Kind::Counter {
            assert!(after[&metric.name] >= before[&metric.name], "{} ran backwards", metric.name);
        }
    }
}

type Execute<'a> = &'a mut dyn FnMut(&mut dyn Session, &Op) -> Outcome;

/// Writes, reads back and scans; `free` is the first of 100 record numbers that do not exist yet.
fn keeps_records(target: &dyn Target, dataset: &Dataset, execute: Execute<'_>, free: u64) {
    let mut one = target.open(dataset).unwrap();
    let mut two = target.open(dataset).unwrap();
    let (one, two) = (one.as_mut(), two.as_mut());
    let existing = existing_records(free);
    // A read brings what was loaded, whole or in part.
    for record in [0, 1, RECORDS - 1] {
        for fields in [ALL, Fields::EachByName, Fields::One(2)] {
            assert_eq!(execute(one, &Op::Read { record, fields }), Outcome::Done);
            assert_eq!(one.fetched_records(), 1);
            // An earlier round of this check may have updated these records; 3 and up are fresh.
            if free == RECORDS {
                assert_eq!(dataset.verify(one, record, fields, 0), Outcome::Done, "{record} {fields:?}");
            }
        }
    }
    assert_eq!(execute(one, &Op::Read { record: 0, fields: Fields::One(2) }), Outcome::Done);
    assert_eq!(one.fetched(1), None, "only field 2 was asked for");

    // An update changes the fields that it names, for everybody, and only in that record.
    assert_eq!(execute(one, &Op::Update { record: 5, fields: ALL, version: free }), Outcome::Done);
    let version = free + 1;
    assert_eq!(execute(one, &Op::Update { record: 5, fields: Fields::One(3), version }), Outcome::Done);
    assert_eq!(execute(two, &Op::Read { record: 5, fields: ALL }), Outcome::Done);
    for field in 0..3 {
        assert_eq!(dataset.verify(two, 5, Fields::One(field), free), Outcome::Done, "field {field}");
    }
    assert_eq!(dataset.verify(two, 5, Fields::One(3), version), Outcome::Done);
    let corrupt = Outcome::Refused(Failure::Corrupt);
    assert_eq!(dataset.verify(two, 5, Fields::One(3), version + 1), corrupt, "this check can fail");
    assert_eq!(execute(two, &Op::Read { record: 6, fields: ALL }), Outcome::Done);
    assert_eq!(dataset.verify(two, 6, ALL, 0), Outcome::Done);
    let nothing = Op::Update { record: free + 99, fields: ALL, version: 1 };
    assert_eq!(execute(one, &nothing), Outcome::Refused(Failure::NotFound));

    // What is inserted is there for everybody, and cannot be inserted again.
    assert_eq!(execute(one, &Op::Insert { record: free }), Outcome::Done);
    assert_eq!(execute(two, &Op::Read { record: free, fields: ALL }), Outcome::Done);
    assert_eq!(dataset.verify(two, free, ALL, 0), Outcome::Done);
    assert_eq!(execute(two, &Op::Insert { record: free }), Outcome::Refused(Failure::Exists));
    assert_eq!(execute(two, &Op::InsertMany { first: free + 1, count: 20 }), Outcome::Done);
    for record in free + 1..free + 21 {
        assert_eq!(execute(one, &Op::Read { record, fields: ALL }), Outcome::Done, "record {record}");
        assert_eq!(dataset.verify(one, record, ALL, 0), Outcome::Done);
    }
    assert_eq!(
        execute(one, &Op::Read { record: free + 21, fields: ALL }),
        Outcome::Refused(Failure::NotFound)
    );

    // A scan brings the records from a key on, in the order of keys.
    let keys: BTreeSet<Vec<u8>> =
        existing.chain(free..free + 21).map(|record| key(dataset, record)).collect();
    for first in [0, 17, RECORDS - 1] {
        for count in [1, 10, 400, 2 * RECORDS as u32] {
            for fields in [ALL, Fields::One(1)] {
                assert_eq!(execute(one, &Op::Scan { first, count, fields }), Outcome::Done);
                let there = keys.range(key(dataset, first)..).count() as u32;
                assert_eq!(one.fetched_records(), there.min(count), "{count} from record {first} on");
            }
        }
    }
    let unsupported = execute(one, &Op::Flush { data_only: false });
    assert_eq!(unsupported, Outcome::Refused(Failure::Unsupported));
}

/// The record numbers that exist when `free` is the first free one of this round.
fn existing_records(free: u64) -> impl Iterator<Item = u64> {
    let earlier = if free > RECORDS { RECORDS..RECORDS + 21 } else { 0..0 };
    (0..RECORDS).chain(earlier)
}

fn key(dataset: &Dataset, record: u64) -> Vec<u8> {
    let mut key = Vec::new();
    dataset.key(record, &mut key);
    key
}

/// Executes `op` on the session's wire, waiting for its descriptor as an event loop does.
pub fn by_wire(session: &mut dyn Session, op: &Op) -> Outcome {
    use rustix::event::{PollFd, PollFlags, poll};
    let wire = session.wire().expect("this session has a wire");
    let mut progress = wire.begin(op);
    loop {
        let flags = match progress {
            Progress::Finished(outcome) => return outcome,
            Progress::Receiving => PollFlags::IN,
            Progress::Sending => PollFlags::OUT,
        };
        let descriptor = wire.descriptor().expect("an operation in flight has a connection");
        let time = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&descriptor, flags)], Some(&time)).unwrap();
        assert_eq!(ready, 1, "no answer to {op:?} in ten seconds");
        progress = wire.advance();
    }
}

/// An operation that was given up does not answer the next one.
fn abandons(target: &dyn Target, dataset: &Dataset) {
    let mut session = target.open(dataset).unwrap();
    for _ in 0..3 {
        let wire = session.wire().expect("this session has a wire");
        let begun = wire.begin(&Op::Read { record: 8, fields: ALL });
        assert!(begun != Progress::Finished(Outcome::Done), "a wire does not wait for its answer");
        wire.abandon();
        assert_eq!(by_wire(session.as_mut(), &Op::Read { record: 9, fields: ALL }), Outcome::Done);
        assert_eq!(dataset.verify(session.as_ref(), 9, ALL, 0), Outcome::Done);
    }
}

/// The tables of checks.
pub fn tables() -> Dataset {
    Dataset::checks(Arc::new(Bank::new(BankSpec::default()).unwrap()))
}

/// Checks what checkers and the bank workload rest on, on a target that has nothing but its own tables: by
/// sessions that block, and by wires where there are any.
pub fn check_ledger_and_bank(target: &dyn Target) {
    const ACCOUNTS: u64 = 8;
    let accounts: Vec<(u64, i64)> = (0..ACCOUNTS).map(|account| (account, 100)).collect();
    let tables = tables();
    // What an earlier check left is gone.
    for round in 0..3 {
        let mut session = target.open(&tables).unwrap();
        let has_wire = session.wire().is_some();
        let execute: Execute<'_> =
            if round == 2 && has_wire { &mut by_wire } else { &mut |session, op| session.execute(op) };
        target.prepare(&accounts).unwrap();
        assert_eq!(target.read_keys().unwrap(), vec![]);
        let (balances, transfers) = target.read_bank().unwrap();
        assert_eq!(sorted(balances), accounts.iter().map(|(a, b)| (*a, Some(*b))).collect::<Vec<_>>());
        assert_eq!(transfers, vec![]);
        assert_eq!(target.read_lists().unwrap(), vec![]);
        ledger(target, session.as_mut(), execute);
        bank(target, session.as_mut(), execute);
        lists(target, session.as_mut(), execute);
    }
    target.prepare(&accounts).unwrap();
    concurrent_transfers(target, ACCOUNTS);
    let (balances, transfers) = target.read_bank().unwrap();
    let total: i64 = balances.iter().map(|(_, balance)| balance.unwrap()).sum();
    assert_eq!(total, 100 * ACCOUNTS as i64, "money neither appears nor vanishes");
    for (account, balance) in balances {
        let moved: i64 = transfers
            .iter()
            .map(|t| i64::from(t.to == account) * t.amount - i64::from(t.from == account) * t.amount)
            .sum();
        assert_eq!(balance, Some(100 + moved), "account {account}");
    }
    // The same transfers, by sessions for nothing else.
    let dataset = Dataset::of_bank(Arc::new(Bank::new(BankSpec::default()).unwrap()));
    let mut session = target.open(&dataset).unwrap();
    let transfer = Op::Transfer { id: 900_000, from: 0, to: 0, amount: 0 };
    assert_eq!(session.execute(&transfer), Outcome::Done);
    assert_eq!(session.execute(&transfer), Outcome::Refused(Failure::Exists), "an id is used once");
    if session.wire().is_some() {
        let transfer = |id, from, to, amount| Op::Transfer { id, from, to, amount };
        for (transfer, expected) in [
            (transfer(900_001, 1, 2, 1), Outcome::Done),
            (transfer(900_001, 1, 2, 1), Outcome::Refused(Failure::Exists)),
            (transfer(900_002, 1, 2, i64::from(i32::MAX)), Outcome::Refused(Failure::Overdraft)),
            (transfer(900_003, 1, 77, 1), Outcome::Refused(Failure::NotFound)),
            (transfer(900_004, 2, 1, 1), Outcome::Done),
        ] {
            assert_eq!(by_wire(session.as_mut(), &transfer), expected, "{transfer:?}");
        }
    }
}

fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort();
    rows
}

fn ledger(target: &dyn Target, session: &mut dyn Session, execute: Execute<'_>) {
    let read = |record| Op::Read { record, fields: ALL };
    let update = |record, version| Op::Update { record, fields: ALL, version };
    let found = |session: &dyn Session| session.fetched(0).map(Version::found);
    assert_eq!(execute(session, &read(3)), Outcome::Refused(Failure::NotFound));
    let last = u64::from(u32::MAX);
    // A first write and another one, and first writes as an update makes them.
    for write in [Op::Insert { record: 3 }, update(3, 2), update(5, 1), update(last, 1)] {
        assert_eq!(execute(session, &write), Outcome::Done, "{write:?}");
    }
    assert_eq!(execute(session, &read(3)), Outcome::Done);
    assert_eq!((found(session), session.fetched_records()), (Some(Version::of(3, 2)), 1));
    assert_eq!(execute(session, &read(4)), Outcome::Refused(Failure::NotFound));
    let rows = sorted(target.read_keys().unwrap());
    assert_eq!(rows, [(3, Version::of(3, 2)), (5, Version::of(5, 1)), (last, Version::of(last, 1))]);
}

fn bank(target: &dyn Target, session: &mut dyn Session, execute: Execute<'_>) {
    let mut transfer = |session: &mut dyn Session, id, from, to, amount| {
        execute(session, &Op::Transfer { id, from, to, amount })
    };
    assert_eq!(transfer(session, 1, 0, 1, 30), Outcome::Done);
    assert_eq!(transfer(session, 1, 0, 1, 30), Outcome::Refused(Failure::Exists));
    assert_eq!(transfer(session, 2, 2, 3, 101), Outcome::Refused(Failure::Overdraft));
    assert_eq!(transfer(session, 3, 2, 99, 1), Outcome::Refused(Failure::NotFound));
    assert_eq!(transfer(session, 4, 99, 2, 1), Outcome::Refused(Failure::NotFound));
    assert_eq!(transfer(session, 5, 1, 0, 130), Outcome::Done, "all that is there can be paid");
    let right = [(0, Some(200)), (1, Some(0)), (2, Some(100)), (3, Some(100))];
    assert_eq!(execute(session, &Op::ReadBalances), Outcome::Done);
    let Returned::Balances(balances) = session.answer() else { panic!("{:?}", session.answer()) };
    assert_eq!(&sorted(balances.clone())[..4], &right[..]);
    let (found, transfers) = target.read_bank().unwrap();
    assert_eq!(sorted(found), sorted(balances), "what is refused changes nothing");
    let ids: Vec<u64> = sorted(transfers.iter().map(|row| row.id).collect());
    assert_eq!(ids, [1, 5]);
    assert!(transfers.contains(&TransferRow { id: 1, from: 0, to: 1, amount: 30 }), "{transfers:?}");
}

/// Transactions over lists, where the target has them.
fn lists(target: &dyn Target, session: &mut dyn Session, execute: Execute<'_>) {
    let (append, read) = (|key, value| Step::Append { key, value }, |key| Step::Read { key });
    let mut run = |steps: &[Step]| {
        let outcome = execute(session, &Op::Transaction { steps: steps.into() });
        (outcome, session.answer())
    };
    let (outcome, answer) = run(&[append(1, 10), append(2, 20), read(1)]);
    if outcome == Outcome::Refused(Failure::Unsupported) {
        return;
    }
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(
        answer,
        Returned::Lists(vec![None, None, Some(vec![10])]),
        "a transaction sees its own writes"
    );
    let (_, answer) = run(&[append(1, 11), read(1), read(2), read(3)]);
    let seen = vec![None, Some(vec![10, 11]), Some(vec![20]), Some(vec![])];
    assert_eq!(answer, Returned::Lists(seen));
    assert_eq!(sorted(target.read_lists().unwrap()), [(1, vec![10, 11]), (2, vec![20])]);
}

fn concurrent_transfers(target: &dyn Target, accounts: u64) {
    std::thread::scope(|scope| {
        for client in 0..4u64 {
            scope.spawn(move || {
                let tables = tables();
                let mut session = target.open(&tables).unwrap();
                for n in 0..50u64 {
                    let (from, to) = ((client + n) % accounts, (3 * client + 5 * n + 1) % accounts);
                    let op = Op::Transfer { id: 1_000 * (client + 1) + n, from, to, amount: 3 };
                    // A conflict is the target's right; it certainly did nothing and may be tried again.
                    let begin = std::time::Instant::now();
                    loop {
                        match session.execute(&op) {
                            Outcome::Refused(Failure::Conflict) if begin.elapsed().as_secs() < 20 => {
                                // The other one may wait for its flush, or for the processor.
                                std::thread::sleep(std::time::Duration::from_micros(200));
                            }
                            Outcome::Done | Outcome::Refused(Failure::Overdraft) => break,
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
    });
}

/// The weakest isolation that concurrent transactions over lists show. They go on until it is as weak as
/// `expected`, four rounds at least, and for at most 30 s.
pub fn isolation(target: &dyn Target, expected: Model) -> (Model, Finding) {
    const CLIENTS: u32 = 6;
    const KEYS: u64 = 3;
    let begin = std::time::Instant::now();
    let now = || Tick(begin.elapsed().as_nanos() as u64);
    target.prepare(&[]).unwrap();
    let tables = tables();
    let mut weakest = None;
    for round in 0.. {
        // Lists of its own, so that they stay short.
        let first = round * KEYS;
        let entries = std::sync::Mutex::new(Vec::new());
        let run = |session: &mut dyn Session, client: u32, sequence: u64, steps: Vec<Step>| {
            let sent = Entry::sent(client, sequence, Op::Transaction { steps: steps.into() }, now());
            let outcome = session.execute(&sent.op);
            let answer = if outcome == Outcome::Done { session.answer() } else { Returned::Nothing };
            entries.lock().unwrap().push(Entry { ended: Some(now()), outcome, answer, ..sent });
        };
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (run, tables) = (&run, &tables);
                scope.spawn(move || {
                    let mut session = target.open(tables).unwrap();
                    for sequence in 0..30u64 {
                        let mut random = Random::new(round << 8 | u64::from(client), sequence);
                        let mut key = || first + random.below(KEYS);
                        let (a, b) = (key(), key());
                        // It decides by two lists what to do to one of them.
                        let value = (u64::from(client) << 32) + sequence + 1;
                        let append = Step::Append { key: a, value };
                        run(
                            session.as_mut(),
                            client,
                            sequence,
                            vec![Step::Read { key: a }, Step::Read { key: b }, append],
                        );
                    }
                });
            }
        });
        let all = (first..first + KEYS).map(|key| Step::Read { key }).collect();
        run(target.open(&tables).unwrap().as_mut(), CLIENTS, 0, all);
        let entries = entries.into_inner().unwrap();
        let done = entries.iter().filter(|entry| entry.is_done()).count();
        assert!(done > 1, "nothing was done: {:?}", entries[0]);
        let found = Isolation { claimed: expected }.strongest(&entries);
        if weakest.as_ref().is_none_or(|(model, _)| found.0 < *model) {
            weakest = Some(found);
        }
        let reached = weakest.as_ref().is_some_and(|(model, _)| *model <= expected);
        if round >= 3 && (reached || expected >= Model::Serializable || begin.elapsed().as_secs() >= 30) {
            break;
        }
    }
    weakest.unwrap()
}
