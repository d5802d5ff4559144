#[path = "../../benches/echo/mod.rs"]
mod echo;

use super::*;
use echo::{Echo, Server};
use std::collections::BTreeMap;
use std::ops::Range;
use tipover_core::metric::Metric;
use tipover_core::op::{Failure, Fields, OpKind};
use tipover_core::target::{Facts, Session};
use tipover_core::units::Rate;
use tipover_core::workload::{Ycsb, distribution::Requests};

/// Which operations, by their number, and how long.
type Stall = (fn(u64) -> bool, Duration);

/// What a target is besides its sessions, of one that keeps nothing and counts nothing.
macro_rules! keeps_nothing {
    () => {
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
        fn metrics(&self) -> Vec<Metric> {
            vec![]
        }
        fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
            Ok(BTreeMap::new())
        }
    };
}

/// Counts the operations that reach it, refuses some of them, and takes its time.
#[derive(Default)]
struct Counting {
    seen: AtomicU64,
    slow: Duration,
    /// Which operations take longer than the others, and how long if they are not let go before.
    stalls: Option<Stall>,
    lets_go: AtomicBool,
    /// Every n-th operation is refused because of a conflict; 0 for none.
    refuses: u64,
    refuses_to_open: bool,
    brings: Mutex<Vec<u8>>,
}

impl Target for Counting {
    fn open<'a>(&'a self, _: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        if self.refuses_to_open {
            return Err(TargetError::new("opening a session", "there are too many"));
        }
        Ok(Box::new(CountingSession { target: self, brings: self.brings.lock().clone() }))
    }
    keeps_nothing!();
}

struct CountingSession<'a> {
    target: &'a Counting,
    brings: Vec<u8>,
}

impl Session for CountingSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        assert!(op.parts().is_none(), "a target never sees a read-modify-write");
        let seen = self.target.seen.fetch_add(1, Ordering::SeqCst) + 1;
        if !self.target.slow.is_zero() {
            std::thread::sleep(self.target.slow);
        }
        if let Some((_, most)) = self.target.stalls.filter(|(stalls, _)| stalls(seen)) {
            let began = Instant::now();
            while began.elapsed() < most && !self.target.lets_go.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        match self.target.refuses {
            0 => Outcome::Done,
            every if seen.is_multiple_of(every) => Outcome::Refused(Failure::Conflict),
            _ => Outcome::Done,
        }
    }
    fn fetched(&self, _: u16) -> Option<&[u8]> {
        Some(&self.brings)
    }
}

/// The same operation again and again.
struct Always(Op);

impl Workload for Always {
    fn op(&self, _: u64, _: &Records) -> Op {
        self.0.clone()
    }
}

/// Inserts only.
struct Inserts;

impl Workload for Inserts {
    fn op(&self, _: u64, records: &Records) -> Op {
        Op::Insert { record: records.claim() }
    }
}

fn reads() -> (Dataset, Ycsb) {
    let dataset = Dataset::ycsb(1000);
    let workload = Ycsb::reads(&dataset, Requests::Uniform, 1);
    (dataset, workload)
}

/// Carries out `limit` operations of `workload` in a closed loop of two sessions.
fn to_the_end(
    target: &Counting,
    dataset: &Dataset,
    workload: &dyn Workload,
    limit: u64,
    retries: u32,
) -> Tally {
    let records = Records::new(dataset.records);
    let plan = Plan::closed(target, dataset, workload, &records, 2, Clock::start());
    let retries = Retries { most: retries, first_pause: Duration::ZERO };
    let plan = Plan { limit: Some(limit), retries, ..plan };
    run(&plan, |sessions| {
        assert!(sessions.wait(Duration::from_secs(60)), "the plan has an end");
        sessions.cut()
    })
    .unwrap()
}

#[test]
fn every_operation_is_counted_once_and_refusals_apart() {
    let (dataset, workload) = reads();
    let target = Counting { refuses: 10, ..Counting::default() };
    let records = Records::new(dataset.records);
    let plan = Plan::closed(&target, &dataset, &workload, &records, 4, Clock::start());
    let tallies = run(&plan, |sessions| {
        let mut tallies = vec![];
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(10));
            tallies.push(sessions.cut());
        }
        assert!(sessions.drain());
        tallies.push(sessions.cut());
        tallies
    })
    .unwrap();
    for pair in tallies.windows(2) {
        assert_eq!(pair[0].end, pair[1].begin, "intervals leave no gap");
    }
    let count = |of: fn(&Books) -> u64| tallies.iter().map(|t| of(&t.books)).sum::<u64>();
    let (done, failed, answered) = (count(Books::done), count(Books::failed), count(Books::answered));
    assert_eq!(answered, target.seen.load(Ordering::SeqCst), "nothing is lost, also at the end");
    assert_eq!((done + failed, failed), (answered, answered / 10));
    assert_eq!(tallies.last().unwrap().in_flight, 0);
}

#[test]
fn latency_is_what_the_target_took() {
    let (dataset, workload) = reads();
    let target = Counting { slow: Duration::from_millis(3), ..Default::default() };
    let records = Records::new(dataset.records);
    let plan = Plan::closed(&target, &dataset, &workload, &records, 8, Clock::start());
    let plan = Plan { limit: Some(160), ..plan };
    let (tally, wall) = run(&plan, |sessions| {
        let began = Instant::now();
        assert!(sessions.wait(Duration::from_secs(60)), "the plan has an end");
        (sessions.cut(), began.elapsed())
    })
    .unwrap();
    let service = tally.books.service();
    assert_eq!(service.len(), 160);
    assert!(service.min() >= 2_990_000);
    // Eight sessions that do one thing after the other cannot have taken more time than there was.
    assert!(service.mean() * 160.0 <= 8.0 * wall.as_nanos() as f64 * 1.001 + 8e6);
}

#[test]
fn a_session_that_cannot_open_ends_the_run_with_its_reason() {
    let (dataset, workload) = reads();
    let target = Counting { refuses_to_open: true, ..Default::default() };
    let records = Records::new(dataset.records);
    let plan = Plan::closed(&target, &dataset, &workload, &records, 3, Clock::start());
    let error = run(&plan, |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "opening a session: there are too many");
}

#[test]
fn a_limit_is_kept_to_the_operation() {
    let (dataset, workload) = reads();
    for limit in [0, 1, 2, 3, 1001] {
        let target = Counting::default();
        let tally = to_the_end(&target, &dataset, &workload, limit, 0);
        assert_eq!((tally.books.done(), target.seen.load(Ordering::SeqCst)), (limit, limit));
    }
}

#[test]
fn retries_are_one_operation_with_one_latency() {
    let (dataset, workload) = reads();
    let target = Counting { refuses: 3, slow: Duration::from_millis(1), ..Default::default() };
    let tally = to_the_end(&target, &dataset, &workload, 40, 5);
    assert_eq!((tally.books.done(), tally.books.failed()), (40, 0));
    let tries = target.seen.load(Ordering::SeqCst);
    assert_eq!(tally.books.retries(), tries - 40);
    assert!(tries > 50, "every third try is refused");
    assert!(tally.books.residence().max() >= 2_000_000, "two tries take twice as long");
}

#[test]
fn a_read_modify_write_is_one_operation_of_two_parts() {
    let dataset = Dataset::ycsb(1000);
    let fields = Fields::All;
    let workload = Always(Op::ReadModifyWrite { record: 1, read: fields, write: fields, version: 7 });
    let target = Counting { slow: Duration::from_millis(1), ..Default::default() };
    let books = to_the_end(&target, &dataset, &workload, 10, 0).books;
    assert_eq!((books.done(), target.seen.load(Ordering::SeqCst)), (10, 20));
    let of = |kind| books.of(kind).unwrap();
    assert_eq!((of(OpKind::Read).done(), of(OpKind::Update).done()), (10, 10));
    let whole = of(OpKind::ReadModifyWrite);
    assert!(whole.latencies().service().min() >= 1_990_000);
    // With every try refused, nothing is written.
    let target = Counting { refuses: 1, ..Default::default() };
    let books = to_the_end(&target, &dataset, &workload, 10, 0).books;
    assert_eq!(books.of(OpKind::ReadModifyWrite).unwrap().refused()[&Failure::Conflict], 10);
    assert!(books.of(OpKind::Update).is_none());
}

/// One session, sixteen times as much offered as it can do: the last operations wait a long time, and so do
/// both parts of them.
#[test]
fn parts_of_an_operation_are_due_when_it_is() {
    let dataset = Dataset::ycsb(1000);
    let fields = Fields::All;
    let workload = Always(Op::ReadModifyWrite { record: 1, read: fields, write: fields, version: 7 });
    let records = Records::new(dataset.records);
    let run_on = |target: &dyn Target, offered: Option<f64>| {
        let plan = Plan::closed(target, &dataset, &workload, &records, 1, Clock::start());
        let arrivals = offered.map(|load| (Arrivals::Constant(Rate(load)), 1));
        let plan = Plan { arrivals, limit: Some(200), few: 0, ..plan };
        run(&plan, |sessions| {
            assert!(sessions.wait(Duration::from_secs(60)), "the plan has an end");
            sessions.cut().books
        })
        .unwrap()
    };
    let check = |books: &Books, waits: bool| {
        let [read, update, whole] = [OpKind::Read, OpKind::Update, OpKind::ReadModifyWrite].map(|kind| {
            let latencies = books.of(kind).unwrap().latencies().clone();
            (latencies.residence().mean(), latencies.service().mean())
        });
        assert!(
            read.1 + update.1 <= 1.01 * whole.1,
            "service is of the part alone: {read:?} {update:?} {whole:?}"
        );
        if waits {
            assert!(read.0 > 2.0 * read.1 && update.0 >= read.0, "{read:?} {update:?} {whole:?}");
            assert!(
                (update.0 / whole.0 - 1.0).abs() < 0.01,
                "the update ends with the whole: {update:?} {whole:?}"
            );
        } else {
            assert_eq!(update.0, update.1, "in a closed loop nothing waits");
        }
    };
    let target = Counting { slow: Duration::from_millis(4), ..Default::default() };
    check(&run_on(&target, Some(2000.0)), true);
    check(&run_on(&target, None), false);
    // The same over a wire, where a round trip is some microseconds.
    let server = Server::start();
    let target = Echo { address: server.address, wires: true };
    check(&run_on(&target, Some(1e6)), true);
    check(&run_on(&target, None), false);
}

#[test]
fn what_is_read_is_compared_when_the_data_can_be() {
    let dataset = Dataset { fields: 1, values: Values::Integrity, ..Dataset::ycsb(1000) };
    let workload = Always(Op::Read { record: 5, fields: Fields::All });
    let target = Counting::default();
    dataset.value(5, 0, 0, &mut target.brings.lock());
    let books = to_the_end(&target, &dataset, &workload, 10, 0).books;
    assert_eq!((books.of(OpKind::Verify).unwrap().done(), books.corrupt()), (10, 0));
    target.brings.lock()[3] ^= 1;
    let books = to_the_end(&target, &dataset, &workload, 10, 0).books;
    assert_eq!(books.corrupt(), 10);
    assert_eq!(books.done(), 10, "the read was answered; what it brought is another matter");
}

#[test]
fn inserts_that_fail_leave_holes() {
    let dataset = Dataset::ycsb(100);
    let target = Counting { refuses: 4, ..Default::default() };
    let records = Records::new(100);
    let plan = Plan::closed(&target, &dataset, &Inserts, &records, 3, Clock::start());
    let plan = Plan { limit: Some(40), ..plan };
    run(&plan, |sessions| assert!(sessions.wait(Duration::from_secs(60)))).unwrap();
    assert_eq!((records.known(), records.holes()), (140, 10));
}

/// An open loop of `rate` on `target`, begun at once; what it did for `time`, stopped and drained.
fn offered(target: &dyn Target, sessions: u32, arrivals: &str, time: Duration) -> (Tally, Tally) {
    let (dataset, workload) = reads();
    let records = Records::new(dataset.records);
    let plan = Plan::closed(target, &dataset, &workload, &records, sessions, Clock::start());
    let plan = Plan { arrivals: Some((arrivals.parse().unwrap(), 1)), ..plan };
    run(&plan, |sessions| {
        std::thread::sleep(time);
        let tally = sessions.cut();
        assert_eq!(sessions.pause(), 0, "everything is answered in time");
        (tally, sessions.cut())
    })
    .unwrap()
}

#[test]
fn an_open_loop_sends_what_is_due_and_accounts_for_all_of_it() {
    for (sessions, arrivals) in [(1, "poisson 2000/s"), (16, "constant 5000/s")] {
        let target = Counting { slow: Duration::from_micros(20), ..Default::default() };
        let (tally, rest) = offered(&target, sessions, arrivals, Duration::from_millis(300));
        let offered = tally.offered.unwrap();
        let expected = arrivals.parse::<Arrivals>().unwrap().due_by(tally.end.since(tally.begin));
        let off = (offered.due as f64 / expected - 1.0).abs();
        assert!(off < 0.2, "{} were due, {expected} expected", offered.due);
        assert_eq!(offered.due, offered.begun + offered.backlog, "nothing is shed");
        assert_eq!(tally.books.answered() + rest.books.answered(), target.seen.load(Ordering::SeqCst));
    }
}

#[test]
fn what_waits_for_a_session_is_in_the_residence_and_in_the_backlog() {
    // One session that takes 10 ms is offered 1000/s: it does 100/s.
    let target = Counting { slow: Duration::from_millis(10), ..Default::default() };
    let (tally, _) = offered(&target, 1, "constant 1000/s", Duration::from_millis(500));
    let offered = tally.offered.unwrap();
    assert!(offered.backlog > 300, "{offered:?}");
    let read = tally.books.of(OpKind::Read).unwrap();
    let latencies = read.latencies();
    assert!(latencies.residence().max() > 300_000_000, "the wait for the session is in it");
    assert!(latencies.wait().unwrap().max() > 250_000_000);
    assert!(
        latencies.service().min() >= 9_990_000 && latencies.service().min() < latencies.residence().max()
    );
    // The session was never free when something became due, so waiting for it is no lateness of the
    // generator.
    let lateness = offered.lateness().unwrap();
    assert!(lateness.value_at_quantile(0.5) < latencies.wait().unwrap().value_at_quantile(0.5) / 2);
}

#[test]
fn one_stuck_session_does_not_stop_the_others() {
    let stalls: Stall = (|seen| seen == 100, Duration::from_secs(60));
    let target = Counting { stalls: Some(stalls), ..Default::default() };
    let (dataset, workload) = reads();
    let records = Records::new(dataset.records);
    let plan = Plan::closed(&target, &dataset, &workload, &records, 4, Clock::start());
    let plan = Plan { arrivals: Some(("constant 2000/s".parse().unwrap(), 1)), limit: Some(600), ..plan };
    let others = run(&plan, |sessions| {
        let mut before = 0;
        // The others carry out all the rest while one is stuck in its operation.
        while before < 599 && !sessions.wait(Duration::from_millis(1)) {
            before += sessions.cut().books.done();
        }
        target.lets_go.store(true, Ordering::SeqCst);
        before
    });
    assert_eq!(others.unwrap(), 599, "nobody relieved the session that was stuck");
}

#[test]
fn sessions_that_relieve_each_other_all_come_to_an_end() {
    // Operations so short that one session keeps the watch, and stalls so frequent that others often take it.
    let stalls: Stall = (|seen| seen.is_multiple_of(64), Duration::from_millis(1));
    let (dataset, workload) = reads();
    for seed in 0..3 {
        let target = Counting { stalls: Some(stalls), ..Default::default() };
        let records = Records::new(dataset.records);
        let plan = Plan::closed(&target, &dataset, &workload, &records, 16, Clock::start());
        let arrivals = Some(("poisson 50000/s".parse().unwrap(), seed));
        let plan = Plan { limit: Some(20_000), arrivals, ..plan };
        let done = run(&plan, |sessions| {
            assert!(sessions.wait(Duration::from_secs(60)), "a session waits for a call that never comes");
            sessions.cut().books.done()
        });
        assert_eq!(done.unwrap(), 20_000);
    }
}

#[test]
fn a_plan_with_an_end_ends_also_in_an_open_loop() {
    let (dataset, workload) = reads();
    for sessions in [1, 5] {
        let records = Records::new(dataset.records);
        let target = Counting::default();
        let plan = Plan::closed(&target, &dataset, &workload, &records, sessions, Clock::start());
        let arrivals = Some(("poisson 20000/s".parse().unwrap(), 1));
        let plan = Plan { limit: Some(500), arrivals, ..plan };
        let done = run(&plan, |sessions| {
            assert!(sessions.wait(Duration::from_secs(60)));
            sessions.cut().books.done()
        });
        assert_eq!((done.unwrap(), target.seen.load(Ordering::SeqCst)), (500, 500));
    }
}

/// Asks for the record of its own number.
struct Numbers;

impl Workload for Numbers {
    fn op(&self, number: u64, _: &Records) -> Op {
        Op::Read { record: number, fields: Fields::All }
    }
}

#[test]
fn the_parts_of_a_load_are_the_load() {
    let (dataset, _) = reads();
    let arrivals: Arrivals = "poisson 5000/s".parse().unwrap();
    for is_open in [false, true] {
        let mut sent: Vec<u64> = Vec::new();
        for part in (0..3).map(|number| Part { number, of: 3 }) {
            let (target, records, seen) =
                (Counting::default(), Records::new(dataset.records), Mutex::new(Vec::new()));
            let observer = |ended: &Ended<'_>| {
                let Op::Read { record, .. } = ended.op else { panic!("{:?}", ended.op) };
                seen.lock().push((*record, ended.timing.due));
            };
            let plan = Plan::closed(&target, &dataset, &Numbers, &records, 7, Clock::start()).part(part);
            let arrivals_of_it = is_open.then(|| (arrivals.clone(), 5));
            let observer: Observer<'_> = &observer;
            let plan = Plan { limit: Some(500), arrivals: arrivals_of_it, observer: Some(observer), ..plan };
            assert_eq!(plan.sessions, if part.number == 0 { 3 } else { 2 }, "of seven sessions");
            run(&plan, |sessions| assert!(sessions.wait(Duration::from_secs(60)))).unwrap();
            let seen = seen.into_inner();
            if is_open {
                // Each at its time in the schedule of the whole.
                let times: Vec<Duration> = arrivals.schedule(5).take(500).collect();
                let began = |(number, due): &(u64, Tick)| due.0 - times[*number as usize].as_nanos() as u64;
                assert!(seen.iter().all(|operation| began(operation) == began(&seen[0])));
            }
            sent.extend(seen.iter().map(|(number, _)| number));
        }
        sent.sort_unstable();
        assert_eq!(sent, (0..500).collect::<Vec<u64>>(), "each operation once, by one of the three");
    }
}

#[test]
fn a_loop_can_be_opened_and_closed_again() {
    let (dataset, workload) = reads();
    let records = Records::new(dataset.records);
    let target = Counting { slow: Duration::from_micros(50), ..Default::default() };
    let plan = Plan::closed(&target, &dataset, &workload, &records, 3, Clock::start());
    let arrivals = Some(("constant 1000/s".parse().unwrap(), 1));
    let plan = Plan { arrivals, warms_up: true, think: Duration::from_micros(100), ..plan };
    run(&plan, |sessions| {
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(50));
            let closed = sessions.cut();
            assert_eq!(closed.offered.unwrap().due, 0);
            assert!(closed.books.done() > 10);
            sessions.offer(plan.clock.now());
            std::thread::sleep(Duration::from_millis(100));
            let offered = sessions.cut();
            let (due, time) = (offered.offered.unwrap().due, offered.end.since(offered.begin));
            assert!(due > 0 && due as f64 <= time.as_secs_f64() * 1000.0 + 2.0, "{due} in {time:?}");
            assert_eq!(sessions.pause(), 0);
            sessions.cut();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(sessions.cut().books.answered(), 0, "paused is paused");
            sessions.close(Duration::ZERO);
        }
    })
    .unwrap();
}

/// Half reads, half updates.
struct Mixed;

impl Workload for Mixed {
    fn op(&self, n: u64, _: &Records) -> Op {
        let (record, fields) = (n % 1000, Fields::All);
        match n % 4 {
            0 | 1 => Op::Read { record, fields },
            2 => Op::Update { record, fields, version: n },
            _ => Op::ReadModifyWrite { record, read: fields, write: fields, version: n },
        }
    }
}

/// Carries out `limit` operations of [`Mixed`] over wires, by threads that share the sessions.
fn over_wires(
    server: &Server,
    sessions: u32,
    limit: u64,
    change: impl FnOnce(Plan<'_>) -> Plan<'_>,
) -> Books {
    let dataset = Dataset::ycsb(1000);
    let records = Records::new(dataset.records);
    let target = Echo { address: server.address, wires: true };
    let plan = Plan::closed(&target, &dataset, &Mixed, &records, sessions, Clock::start());
    let plan = change(Plan { limit: Some(limit), few: 0, ..plan });
    run(&plan, |sessions| {
        assert!(sessions.wait(Duration::from_secs(120)), "the plan has an end");
        sessions.cut().books
    })
    .unwrap()
}

#[test]
fn sessions_with_wires_share_threads_and_do_the_same() {
    for (sessions, few) in [(1, 0), (2, 0), (7, 0), (200, 0), (7, 7)] {
        let server = Server::start();
        let books = over_wires(&server, sessions, 4000, |plan| Plan { few, ..plan });
        assert_eq!((books.done(), books.failed()), (4000, 0), "{sessions} sessions");
        assert_eq!(server.manners.seen.load(Ordering::Relaxed), 5000, "a read-modify-write is two requests");
        let of = |kind| books.of(kind).unwrap().done();
        assert_eq!((of(OpKind::Read), of(OpKind::Update), of(OpKind::ReadModifyWrite)), (3000, 2000, 1000));
    }
}

#[test]
fn an_operation_without_an_answer_is_given_up_and_the_session_goes_on() {
    let server = Server::start();
    server.manners.silent_every.store(100, Ordering::Relaxed);
    let timeout = Duration::from_millis(50);
    let books = over_wires(&server, 20, 2000, |plan| Plan { timeout, ..plan });
    assert_eq!(books.answered(), 2000);
    let failures = books.failures();
    assert_eq!(failures.keys().collect::<Vec<_>>(), [&Failure::Timeout]);
    assert!((20..=25).contains(&books.failed()), "every hundredth request: {}", books.failed());
    assert!(books.of(OpKind::Read).unwrap().unknown().is_empty(), "a read changes nothing");
    assert!(books.of(OpKind::Update).unwrap().refused().is_empty(), "an update may have happened");
    assert!(books.residence().max() >= timeout.as_nanos() as u64, "a time-out is in the distribution");
}

#[test]
fn a_connection_that_is_closed_is_made_anew() {
    let server = Server::start();
    server.manners.hangs_up_every.store(50, Ordering::Relaxed);
    let books = over_wires(&server, 8, 2000, |plan| Plan { timeout: Duration::from_secs(30), ..plan });
    assert_eq!((books.answered(), books.failures().len()), (2000, 1));
    assert!(books.failed() >= 40 && books.failures().contains_key(&Failure::Unavailable));
    let pause = Duration::from_micros(100);
    let retries = Retries { most: 5, first_pause: pause };
    let books = over_wires(&server, 8, 2000, |plan| Plan { retries, think: pause, ..plan });
    assert!(books.retries() > 0);
    assert!(books.of(OpKind::Read).unwrap().failed() == 0, "what did not happen is tried again");
}

#[test]
fn wires_are_offered_what_is_due() {
    let server = Server::start();
    let target = Echo { address: server.address, wires: true };
    let (tally, rest) = offered(&target, 50, "poisson 3000/s", Duration::from_millis(400));
    let offered = tally.offered.unwrap();
    let expected = "poisson 3000/s".parse::<Arrivals>().unwrap().due_by(tally.end.since(tally.begin));
    assert!((offered.due as f64 / expected - 1.0).abs() < 0.25, "{expected} expected: {offered:?}");
    assert_eq!(offered.due, offered.begun + offered.backlog);
    assert_eq!(tally.books.done() + rest.books.done(), server.manners.seen.load(Ordering::Relaxed));
}

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

    /// From each asking to the next.
    fn pauses(&self) -> Vec<Duration> {
        self.asked.lock().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

impl Session for &Scripted {
    fn execute(&mut self, _: &Op) -> Outcome {
        self.asked.lock().push(Instant::now());
        self.script.lock().pop().unwrap_or(Outcome::Done)
    }
}

impl Target for Scripted {
    fn open<'a>(&'a self, _: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        Ok(Box::new(self))
    }
    keeps_nothing!();
}

const CONFLICT: Outcome = Outcome::Refused(Failure::Conflict);
const ABSENT: Outcome = Outcome::Refused(Failure::Unavailable);

/// One session carries out one operation by this rule; what it did, and what its history says.
fn one_operation(scripted: &Scripted, retries: Retries) -> (Tally, tipover_core::check::History) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.bin");
    let history = HistoryWriter::create(&path, crate::history::Pace::Groups).unwrap();
    let (dataset, records) = (Dataset::ycsb(1), Records::new(1));
    let workload = Always(Op::Read { record: 0, fields: Fields::All });
    let plan = Plan::closed(scripted, &dataset, &workload, &records, 1, Clock::start());
    let plan = Plan { limit: Some(1), retries, history: Some(&history), client: 7, ..plan };
    let tally = run(&plan, |sessions| {
        assert!(sessions.wait(Duration::from_secs(60)), "the plan has an end");
        sessions.cut()
    });
    history.finish().unwrap();
    (tally.unwrap(), crate::history::read(&path).unwrap().history)
}

#[test]
fn an_operation_is_tried_again_as_the_rule_says_and_is_one_entry_of_the_history() {
    let script = [CONFLICT, ABSENT, CONFLICT, CONFLICT];
    for pause in [0, 2_000] {
        let retries = Retries { most: 10, first_pause: Duration::from_micros(pause) };
        let wanted: Vec<Duration> =
            script.iter().zip(0..).filter_map(|(outcome, n)| retries.pause(*outcome, n)).collect();
        assert_eq!(wanted.len(), script.len());
        let scripted = Scripted::saying(&script);
        let (tally, history) = one_operation(&scripted, retries);
        assert_eq!((tally.books.done(), tally.books.retries()), (1, script.len() as u64));
        // It asks no earlier than the rule says; how much later depends on the machine.
        let pauses = scripted.pauses();
        assert_eq!(pauses.len(), wanted.len());
        assert!(pauses.iter().zip(&wanted).all(|(took, least)| took >= least), "{pauses:?}");
        let [entry] = &history.entries[..] else { panic!("{history:?}") };
        assert_eq!((entry.client, entry.sequence, entry.retries), (7, 1, script.len() as u32));
        assert_eq!((entry.outcome, entry.due), (Outcome::Done, entry.began));
    }
}

#[test]
fn what_is_not_tried_again_has_its_outcome_in_the_history() {
    let retries = Retries { most: 2, first_pause: Duration::ZERO };
    let unknown = Outcome::Unknown(Failure::Timeout);
    for (script, asked, last) in [(vec![CONFLICT; 9], 3, CONFLICT), (vec![unknown], 1, unknown)] {
        let scripted = Scripted::saying(&script);
        let (tally, history) = one_operation(&scripted, retries);
        assert_eq!((tally.books.failed(), scripted.asked.lock().len()), (1, asked));
        assert_eq!(history.entries[0].outcome, last);
    }
}

#[test]
fn a_session_rests_before_it_asks_an_absent_server_again() {
    let script = vec![ABSENT; 20];
    let scripted = Scripted::saying(&script);
    let (dataset, records) = (Dataset::ycsb(1), Records::new(1));
    let workload = Always(Op::Read { record: 0, fields: Fields::All });
    let plan = Plan::closed(&scripted, &dataset, &workload, &records, 1, Clock::start());
    let plan = Plan { limit: Some(20), ..plan };
    run(&plan, |sessions| assert!(sessions.wait(Duration::from_secs(60)))).unwrap();
    assert!(scripted.pauses().iter().all(|pause| *pause >= Duration::from_millis(5)));
}

#[test]
fn a_history_knows_when_an_operation_of_an_open_loop_was_due() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.bin");
    let server = Server::start();
    let slow = Counting { slow: Duration::from_millis(4), ..Default::default() };
    let wired = Echo { address: server.address, wires: true };
    let dataset = Dataset::ycsb(1000);
    for (target, few) in [(&slow as &dyn Target, 1), (&wired, 0)] {
        let history = HistoryWriter::create(&path, crate::history::Pace::Groups).unwrap();
        let records = Records::new(1000);
        let plan = Plan::closed(target, &dataset, &Mixed, &records, 1, Clock::start());
        // Far more than one session can do: whoever comes last has waited longest.
        let arrivals = Some((Arrivals::Constant(Rate(1e6)), 1));
        let plan = Plan { arrivals, limit: Some(100), few, history: Some(&history), ..plan };
        let books = run(&plan, |sessions| {
            assert!(sessions.wait(Duration::from_secs(60)), "the plan has an end");
            sessions.cut().books
        });
        history.finish().unwrap();
        let entries = crate::history::read(&path).unwrap().history.entries;
        assert_eq!(
            (entries.len() as u64, books.unwrap().done()),
            (100, 100),
            "also what consists of two parts"
        );
        let mut waits: Vec<u64> = entries.iter().map(|entry| entry.began.0 - entry.due.0).collect();
        assert!(waits[99] > 0 && entries.iter().all(|entry| entry.due <= entry.began));
        assert!(waits.is_sorted(), "{waits:?}");
        waits.dedup();
        assert!(waits.len() > 50, "each was due at its own time");
    }
}
