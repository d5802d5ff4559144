//! Where the servers are now: whoever takes writes can change while sessions are at work.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tipover_core::check::{Returned, Version};
use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::learn::Watch;
use tipover_core::metric::Metric;
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::{BankRows, Facts, Lists, Progress, Remarks, Session, Target, TargetError, Wire};
use tipover_core::workload::Dataset;
use tipover_core::workload::tpcb::Counts;

/// One server, and how to speak with it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    spec: Spec,
    url: String,
}

impl Endpoint {
    /// The server at `url`, which is as its recipe gives it; `spec` is the cell's, and `seed` the trial's,
    /// after which the accounts of its bank are called.
    pub fn new(spec: &Spec, seed: u64, url: &str) -> Endpoint {
        let mut spec = spec.clone();
        if let Some(breaking) = &spec.breaking {
            spec.workload.bank = Some(breaking.bank_of(seed));
        }
        // The cell is one of a lab; what is connected to is a server like any other.
        (spec.lab, spec.breaking, spec.tenant) = (None, None, None);
        let own = matches!(spec.target.kind, TargetKind::Wiredtiger | TargetKind::Guilty);
        let url = if own { tipover_targets::served::address(url) } else { url.to_string() };
        Endpoint { spec, url }
    }

    /// Connects to it; an operation is given up after `timeout`.
    ///
    /// # Errors
    /// It does not answer, or cannot keep its promises.
    pub fn target(&self, timeout: Duration) -> Result<Box<dyn Target>, TargetError> {
        let mut spec = self.spec.clone();
        spec.load.timeout = timeout;
        let wrong = |error: String| TargetError::new("reading the server's address", error);
        spec.target.address = Some(self.url.parse().map_err(wrong)?);
        tipover_targets::start(&spec, Path::new(""))
    }
}

/// The servers that take writes now, as one target. Its sessions follow them: one that is refused because
/// nobody is there, or that cannot go on, continues with whoever takes writes then. An operation of it is
/// never carried on elsewhere; what may be tried again is the caller's to try.
pub struct Endpoints {
    known: Vec<Known>,
    timeout: Duration,
    writers: Writers,
    opened: AtomicUsize,
}

/// Says which servers take writes, while sessions are at work.
#[derive(Clone)]
pub struct Writers {
    /// All servers that may ever take writes.
    urls: Arc<[String]>,
    /// Those of them that do now.
    now: Arc<Mutex<Vec<usize>>>,
}

impl Writers {
    /// These take writes from now on; if none of them is known, nothing changes.
    pub fn set(&self, urls: &[&str]) {
        let index = |url: &&str| self.urls.iter().position(|known| known == url);
        let now: Vec<usize> = urls.iter().filter_map(index).collect();
        if !now.is_empty() {
            *self.now.lock() = now;
        }
    }

    /// The `n`-th of those that take writes, counted round and round.
    fn nth(&self, n: usize) -> usize {
        let now = self.now.lock();
        now[n % now.len()]
    }
}

/// A server that may ever take writes. It is connected to once for all sessions, when the first needs it:
/// MongoDB's target tries what the server's promises are worth, which takes longer than a failover.
struct Known {
    endpoint: Endpoint,
    target: OnceLock<Box<dyn Target>>,
    connecting: Mutex<()>,
}

impl Known {
    fn target(&self, timeout: Duration) -> Result<&dyn Target, TargetError> {
        if let Some(target) = self.target.get() {
            return Ok(target.as_ref());
        }
        let _alone = self.connecting.lock();
        if let Some(target) = self.target.get() {
            return Ok(target.as_ref());
        }
        let made = self.endpoint.target(timeout)?;
        Ok(self.target.get_or_init(|| made).as_ref())
    }
}

impl Endpoints {
    /// All servers that may ever take writes; the first `writers` of them do now.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(endpoints: Vec<Endpoint>, writers: usize, timeout: Duration) -> Endpoints {
        assert!((1..=endpoints.len()).contains(&writers), "somebody must be there to take writes");
        let urls = endpoints.iter().map(|endpoint| endpoint.url.clone()).collect();
        let known = |endpoint| Known { endpoint, target: OnceLock::new(), connecting: Mutex::new(()) };
        let known = endpoints.into_iter().map(known).collect();
        let writers = Writers { urls, now: Arc::new(Mutex::new((0..writers).collect())) };
        Endpoints { known, timeout, writers, opened: AtomicUsize::new(0) }
    }

    /// To say who takes writes.
    pub fn writers(&self) -> Writers {
        self.writers.clone()
    }

    fn first(&self) -> Result<&dyn Target, TargetError> {
        self.known[self.writers.nth(0)].target(self.timeout)
    }
}

impl Target for Endpoints {
    fn facts(&self) -> Result<Facts, TargetError> {
        self.first()?.facts()
    }
    fn accepts(&self, kind: OpKind) -> bool {
        self.first().is_ok_and(|target| target.accepts(kind))
    }
    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        self.first()?.load(dataset, records)
    }
    fn settle(&self) -> Result<(), TargetError> {
        self.first()?.settle()
    }
    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        let turn = self.opened.fetch_add(1, Ordering::Relaxed);
        let mut follower = Follower { endpoints: self, dataset, turn, seat: 0, at: None, has_wire: false };
        follower.go()?;
        follower.has_wire = follower.at.as_mut().is_some_and(|(_, session)| session.wire().is_some());
        Ok(Box::new(follower))
    }
    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.first()?.prepare(accounts)
    }
    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        self.first()?.read_keys()
    }
    fn read_bank(&self) -> Result<BankRows, TargetError> {
        self.first()?.read_bank()
    }
    fn read_lists(&self) -> Result<Lists, TargetError> {
        self.first()?.read_lists()
    }
    fn watch(&self) -> Result<Box<dyn Watch>, TargetError> {
        self.first()?.watch()
    }

    fn count_sysbench(&self, tables: u64) -> Result<Vec<Option<u64>>, TargetError> {
        self.first()?.count_sysbench(tables)
    }

    fn count_tpcb(&self) -> Result<Option<Counts>, TargetError> {
        self.first()?.count_tpcb()
    }
    /// None: each server tells its own, to whoever watches its node.
    fn metrics(&self) -> Vec<Metric> {
        vec![]
    }
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        Ok(BTreeMap::new())
    }
}

/// A session that goes to whoever takes writes.
struct Follower<'a> {
    endpoints: &'a Endpoints,
    dataset: &'a Dataset,
    /// Which of those who take writes, counted round and round.
    turn: usize,
    /// Its number among the sessions of the load.
    seat: u32,
    /// Where it is, and the session there.
    at: Option<(usize, Box<dyn Session + 'a>)>,
    has_wire: bool,
}

impl<'a> Follower<'a> {
    /// The session at the place where it is, opened if there is none.
    fn go(&mut self) -> Result<&mut (dyn Session + 'a), TargetError> {
        if self.at.is_none() {
            let endpoint = self.endpoints.writers.nth(self.turn);
            let opened = self.endpoints.known[endpoint].target(self.endpoints.timeout)?.open(self.dataset);
            let mut session = opened.inspect_err(|_| self.turn += 1)?;
            session.take_seat(self.seat);
            self.at = Some((endpoint, session));
        }
        let (_, session) = self.at.as_mut().expect("just opened");
        Ok(session.as_mut())
    }

    /// After an outcome with which a session may be at the wrong place.
    fn follow(&mut self, outcome: Outcome) {
        let (Outcome::Refused(failure) | Outcome::Unknown(failure)) = outcome else { return };
        use Failure::{InputOutput, Other, Timeout, Unavailable};
        if !matches!(failure, Unavailable | Timeout | InputOutput | Other) {
            return;
        }
        self.turn += 1;
        // A session with a wire makes its connection anew by itself, if this is still the place to be.
        let endpoint = self.endpoints.writers.nth(self.turn);
        if self.at.as_ref().is_some_and(|(at, _)| *at != endpoint || !self.has_wire) {
            self.at = None;
        }
    }
}

const ABSENT: Outcome = Outcome::Refused(Failure::Unavailable);

impl Session for Follower<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let outcome = self.go().map_or(ABSENT, |session| session.execute(op));
        self.follow(outcome);
        outcome
    }

    fn fetched(&self, field: u16) -> Option<&[u8]> {
        self.at.as_ref()?.1.fetched(field)
    }

    fn fetched_records(&self) -> u32 {
        self.at.as_ref().map_or(0, |(_, session)| session.fetched_records())
    }

    fn answer(&self) -> Returned {
        self.at.as_ref().map_or(Returned::Nothing, |(_, session)| session.answer())
    }

    fn take_seat(&mut self, number: u32) {
        self.seat = number;
        self.at.iter_mut().for_each(|(_, session)| session.take_seat(number));
    }

    fn remarks(&self) -> Option<&Remarks> {
        self.at.as_ref().and_then(|(_, session)| session.remarks())
    }

    fn wire(&mut self) -> Option<&mut dyn Wire> {
        if self.has_wire { Some(self) } else { None }
    }
}

impl Follower<'_> {
    fn went(&mut self, progress: Progress) -> Progress {
        if let Progress::Finished(outcome) = progress {
            self.follow(outcome);
        }
        progress
    }
}

impl Wire for Follower<'_> {
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.at.as_mut()?.1.wire()?.descriptor()
    }

    fn begin(&mut self, op: &Op) -> Progress {
        let session = self.go().ok().and_then(|session| session.wire());
        let progress = session.map_or(Progress::Finished(ABSENT), |wire| wire.begin(op));
        self.went(progress)
    }

    fn advance(&mut self) -> Progress {
        let wire = self.at.as_mut().and_then(|(_, session)| session.wire());
        let progress = wire.map_or(Progress::Finished(ABSENT), |wire| wire.advance());
        self.went(progress)
    }

    fn abandon(&mut self) {
        if let Some(wire) = self.at.as_mut().and_then(|(_, session)| session.wire()) {
            wire.abandon();
        }
        self.follow(Outcome::Unknown(Failure::Timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::drive::{self, Plan};
    use crate::history::{self, HistoryWriter, Pace};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use tipover_core::check::{Evidence, KeyScan, Source, Verdict};
    use tipover_core::experiment::Retries;
    use tipover_core::workload::bank::{Bank, BankSpec};
    use tipover_core::workload::{Arrivals, Ledger, Records};
    use tipover_targets::{Guilty, served};

    fn spec() -> Spec {
        serde_json::from_value(serde_json::json!({
            "target": {"kind": "guilty"},
            "disk": {"size": 0},
            "load": {"sessions": 4},
        }))
        .unwrap()
    }

    /// Two ways to one store, of which either can be cut off.
    struct Way {
        address: String,
        streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
    }

    impl Way {
        fn to(store: &'static Guilty) -> Way {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let streams = Arc::new(Mutex::new(Some(vec![])));
            let open = streams.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let Some(open) = &mut *open.lock() else { continue };
                    open.push(stream.try_clone().unwrap());
                    std::thread::spawn(move || served::serve(stream, store, &|_| ()));
                }
            });
            Way { address, streams }
        }

        /// As a killed server: connections end, and new ones do too.
        fn cut(&self) {
            for stream in self.streams.lock().take().unwrap_or_default() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Sessions of both loops, by threads and by wires, write a ledger while the place that takes writes
    /// moves.
    #[test]
    fn sessions_follow_whoever_takes_writes_and_nothing_is_lost_or_done_twice_on_the_way() {
        for (few, open) in [(4, false), (0, false), (0, true)] {
            let store: &'static Guilty = Box::leak(Box::new(Guilty::open(&spec(), Path::new("")).unwrap()));
            let (first, second) = (Way::to(store), Way::to(store));
            let spec = spec();
            let both = [&first, &second].map(|way| Endpoint::new(&spec, 1, &way.address));
            let endpoints = Endpoints::new(both.to_vec(), 1, Duration::from_secs(10));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(history::HISTORY);
            let history = HistoryWriter::create(&path, Pace::Groups).unwrap();
            let dataset = Dataset::checks(Arc::new(Bank::new(BankSpec::default()).unwrap()));
            let (workload, records, clock) = (Ledger::new(1), Records::new(0), Clock::start());
            let plan = Plan::closed(&endpoints, &dataset, &workload, &records, 4, clock);
            let retries = Retries { most: 1_000, first_pause: Duration::from_millis(1) };
            let arrivals = open.then(|| ("constant 2000/s".parse::<Arrivals>().unwrap(), 1));
            let plan = Plan { history: Some(&history), retries, few, arrivals, ..plan };
            let (before, after) = drive::run(&plan, |sessions| {
                std::thread::sleep(Duration::from_millis(100));
                let before = sessions.cut().books.done();
                first.cut();
                std::thread::sleep(Duration::from_millis(50));
                endpoints.writers().set(&[&both[1].url]);
                sessions.cut();
                let (begin, mut after) = (std::time::Instant::now(), 0);
                while after < before && begin.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(10));
                    after += sessions.cut().books.done();
                }
                assert!(sessions.drain());
                (before, after)
            })
            .unwrap();
            assert!(before > 10 && after > 0, "{before} before and {after} after the move");
            history.finish().unwrap();
            let history = history::read(&path).unwrap().history;
            let scan = |pass| KeyScan {
                source: Source::Survivors,
                pass,
                at: clock.now(),
                rows: endpoints.read_keys().unwrap(),
            };
            let evidence = Evidence { keys: vec![scan(1), scan(2)], ..Evidence::default() };
            let judgement = evidence.judge(history).unwrap();
            assert_eq!(judgement.verdict, Verdict::Valid, "{few} {open}: {judgement:#?}");
        }
    }
}
