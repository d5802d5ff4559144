//! Wrong on purpose, so that what ought to notice can be shown to notice; and slow on purpose, with a
//! capacity that is known exactly.
//!
//! A small store in memory with a log in its folder, which is honest until `target.settings` says otherwise.
//! It keeps versions instead of values: what a read brings is made from them.

mod checks;

use checks::{Checks, Vault};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tipover_core::check::Version;
use tipover_core::experiment::{Spec, unknown};
use tipover_core::metric::{Kind, Metric};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{BankRows, Facts, Lists, Session, Target, TargetError};
use tipover_core::units::{Ratio, span};
use tipover_core::workload::{Dataset, Random, Shape};

/// What it does wrong, and how often; all off by default.
#[derive(Debug, Clone, PartialEq)]
struct Guilt {
    /// Share of reads that bring the values before the last update.
    stale_reads: f64,
    /// Share of updates that are acknowledged and not done.
    lost_updates: f64,
    /// Share of reads whose first byte is wrong.
    corrupt_reads: f64,
    /// Share of writes that are done and then reported as a conflict.
    phantom_writes: f64,
    /// Share of snapshots of the bank that show half of a transfer.
    dirty_reads: f64,
    /// Share of transfers that happen twice, as when a retry is not recognised.
    retried_twice: f64,
    /// Share of operations that are refused because of a conflict, as is their right.
    conflicts: f64,
    /// Acknowledges writes and logs them this much later.
    flush_later: Duration,
    /// Share of writes that are acknowledged when their flush is issued, before it is answered.
    unawaited_flushes: f64,
    /// How many of the newest writes it forgets when it is started again, as after a rolled-back failover.
    rolled_back: usize,
    /// Time that an operation takes at one of its servers, constant.
    service: Duration,
    /// Operations that it serves at once; its capacity is servers ÷ service. 0: as many as come.
    servers: u32,
    /// Every `stall_every` it does nothing for `stall`.
    stall: Duration,
    stall_every: Duration,
}

const SETTINGS: [&str; 14] = [
    "stale_reads",
    "lost_updates",
    "corrupt_reads",
    "phantom_writes",
    "dirty_reads",
    "retried_twice",
    "conflicts",
    "flush_later",
    "unawaited_flushes",
    "rolled_back",
    "service",
    "servers",
    "stall",
    "stall_every",
];

impl Guilt {
    fn of(settings: &BTreeMap<String, String>) -> Result<Self, TargetError> {
        let wrong = |reason: String| TargetError::new("reading target.settings of the guilty target", reason);
        if let Some(key) = settings.keys().find(|key| !SETTINGS.contains(&key.as_str())) {
            return Err(wrong(unknown("sin", key, &SETTINGS)));
        }
        let text = |key: &str| settings.get(key).map_or("0", String::as_str);
        let share = |key: &str| {
            let ratio: Ratio = text(key).parse().map_err(|e| wrong(format!("{key}: {e}")))?;
            Ok::<f64, TargetError>(ratio.0)
        };
        let time = |key: &str| match text(key) {
            "0" => Ok(Duration::ZERO),
            text => span::parse(text).map_err(|e| wrong(format!("{key}: {e}"))),
        };
        let count = |key: &str| text(key).parse::<u32>().map_err(|e| wrong(format!("{key}: {e}")));
        Ok(Guilt {
            stale_reads: share("stale_reads")?,
            lost_updates: share("lost_updates")?,
            corrupt_reads: share("corrupt_reads")?,
            phantom_writes: share("phantom_writes")?,
            dirty_reads: share("dirty_reads")?,
            retried_twice: share("retried_twice")?,
            conflicts: share("conflicts")?,
            flush_later: time("flush_later")?,
            unawaited_flushes: share("unawaited_flushes")?,
            rolled_back: count("rolled_back")? as usize,
            service: time("service")?,
            servers: count("servers")?,
            stall: time("stall")?,
            stall_every: time("stall_every")?,
        })
    }
}

/// A record as its fields' versions, and what they were before the last update.
#[derive(Debug, Clone)]
struct Row {
    record: u64,
    versions: Vec<u64>,
    before: Vec<u64>,
}

/// The store.
pub struct Guilty {
    guilt: Guilt,
    path: PathBuf,
    rows: RwLock<BTreeMap<Vec<u8>, Row>>,
    /// What it keeps for checks.
    vault: Mutex<Vault>,
    log: Arc<Mutex<Log>>,
    free_servers: (Mutex<u32>, Condvar),
    started: Instant,
    seed: u64,
    executed: AtomicU64,
    sins: AtomicU64,
}

struct Log {
    /// None where it lives in memory alone.
    file: Option<File>,
    /// Tells the thread that flushes for those who do not wait.
    flusher: Option<Sender<()>>,
    /// Lines that were acknowledged and not written yet, with the time at which they may be.
    late: Vec<(Instant, String)>,
}

impl Guilty {
    /// The store in `folder`, with what its log holds.
    pub fn open(spec: &Spec, folder: &Path) -> Result<Self, TargetError> {
        let guilt = Guilt::of(&spec.target.settings)?;
        let path = folder.join("guilty.log");
        let doing = format!("opening {}", path.display());
        let failed = |error: std::io::Error| TargetError::new(&doing, error);
        let (mut rows, mut vault) = (BTreeMap::new(), Vault::default());
        if !folder.as_os_str().is_empty()
            && let Ok(file) = File::open(&path)
        {
            let (lines, whole) = whole_lines(file).map_err(failed)?;
            // What comes next must not be glued to half a line.
            let cut = File::options().write(true).open(&path).and_then(|file| {
                file.set_len(whole)?;
                file.sync_data()
            });
            cut.map_err(failed)?;
            let kept = lines.len().saturating_sub(guilt.rolled_back);
            lines[..kept].iter().for_each(|line| {
                if !vault.replay(line) {
                    replay(line, &mut rows);
                }
            });
            if guilt.rolled_back > 0 {
                let text: String = lines[..kept].iter().flat_map(|line| [line.as_str(), "\n"]).collect();
                std::fs::write(&path, text).map_err(failed)?;
            }
        }
        let file = match folder.as_os_str().is_empty() {
            true => None,
            false => Some(OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?),
        };
        let flusher = match &file {
            Some(file) if guilt.unawaited_flushes > 0.0 => Some(flusher(file).map_err(failed)?),
            _ => None,
        };
        Ok(Guilty {
            free_servers: (Mutex::new(guilt.servers), Condvar::new()),
            guilt,
            path,
            rows: RwLock::new(rows),
            vault: Mutex::new(vault),
            log: Arc::new(Mutex::new(Log { file, flusher, late: vec![] })),
            started: Instant::now(),
            seed: 1,
            executed: AtomicU64::new(0),
            sins: AtomicU64::new(0),
        })
    }

    /// Whether it sins this time, with probability `share`.
    fn sins(&self, share: f64, random: &mut Random) -> bool {
        let sins = share > 0.0 && random.unit() < share;
        self.sins.fetch_add(u64::from(sins), Ordering::Relaxed);
        sins
    }

    /// Waits for a server and is served.
    fn serve(&self) {
        let (stall, every) = (self.guilt.stall, self.guilt.stall_every);
        if !every.is_zero() {
            let phase = self.started.elapsed().as_nanos() % every.as_nanos();
            // It stalls at the end of each period, so that it does not begin with a stall.
            let left = every.as_nanos() - phase;
            if left <= stall.as_nanos() {
                std::thread::sleep(Duration::from_nanos(left as u64));
            }
        }
        if self.guilt.service.is_zero() {
            return;
        }
        let bounded = self.guilt.servers > 0;
        if bounded {
            let mut free = self.free_servers.0.lock();
            while *free == 0 {
                self.free_servers.1.wait(&mut free);
            }
            *free -= 1;
        }
        std::thread::sleep(self.guilt.service);
        if bounded {
            *self.free_servers.0.lock() += 1;
            self.free_servers.1.notify_one();
        }
    }

    /// Writes the log, at once or later.
    fn log(&self, line: String, random: &mut Random) -> std::io::Result<()> {
        let unawaited = self.sins(self.guilt.unawaited_flushes, random);
        let mut log = self.log.lock();
        let Log { file: Some(file), flusher, late } = &mut *log else { return Ok(()) };
        if !self.guilt.flush_later.is_zero() {
            late.push((Instant::now() + self.guilt.flush_later, line));
            let now = Instant::now();
            let ready = late.iter().take_while(|(at, _)| *at <= now).count();
            let text: String = late.drain(..ready).map(|(_, line)| line).collect();
            return file.write_all(text.as_bytes());
        }
        if unawaited && let Some(flusher) = flusher {
            file.write_all(line.as_bytes())?;
            // Whoever waited would hear that the disk failed; nobody does.
            let _ = flusher.send(());
            return Ok(());
        }
        drop(log);
        self.append(&line)
    }

    /// What chance says of the next operation.
    fn draw(&self) -> Random {
        Random::new(self.seed, self.executed.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes to the log at once, and flushes it.
    fn append(&self, lines: &str) -> std::io::Result<()> {
        let mut log = self.log.lock();
        let Log { file: Some(file), .. } = &mut *log else { return Ok(()) };
        file.write_all(lines.as_bytes())?;
        file.sync_data()
    }

    /// What a write is answered with whose lines are to be logged.
    fn written(&self, lines: String, random: &mut Random) -> Outcome {
        match self.log(lines, random) {
            Ok(()) if self.sins(self.guilt.phantom_writes, random) => Outcome::Refused(Failure::Conflict),
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Unknown(Failure::InputOutput),
        }
    }

    fn write(&self, dataset: &Dataset, op: &Op, random: &mut Random) -> Outcome {
        if self.sins(self.guilt.conflicts, random) {
            return Outcome::Refused(Failure::Conflict);
        }
        let mut lines = String::new();
        {
            let mut rows = self.rows.write();
            let outcome = match *op {
                Op::Update { record, fields, version } => {
                    let Some(row) = rows.get_mut(&key(dataset, record)) else {
                        return Outcome::Refused(Failure::NotFound);
                    };
                    if self.sins(self.guilt.lost_updates, random) {
                        return Outcome::Done;
                    }
                    row.before.clone_from(&row.versions);
                    fields.numbers(dataset.fields).for_each(|f| row.versions[usize::from(f)] = version);
                    lines.push_str(&line(dataset, row));
                    Outcome::Done
                }
                Op::Insert { record } => insert(dataset, &mut rows, record..record + 1, &mut lines),
                Op::InsertMany { first, count } => {
                    insert(dataset, &mut rows, first..first + u64::from(count), &mut lines)
                }
                _ => Outcome::Refused(Failure::Unsupported),
            };
            if outcome != Outcome::Done {
                return outcome;
            }
        }
        self.written(lines, random)
    }
}

/// Starts a thread that flushes when told, once for all that it was told meanwhile; until nobody can tell it.
fn flusher(file: &File) -> std::io::Result<Sender<()>> {
    let (sender, told) = channel();
    let file = file.try_clone()?;
    let flush = move || {
        while told.recv().is_ok() {
            told.try_iter().for_each(drop);
            let _ = file.sync_data();
        }
    };
    std::thread::Builder::new().name("flusher".into()).spawn(flush)?;
    Ok(sender)
}

fn key(dataset: &Dataset, record: u64) -> Vec<u8> {
    let mut key = Vec::new();
    dataset.key(record, &mut key);
    key
}

fn insert(
    dataset: &Dataset,
    rows: &mut BTreeMap<Vec<u8>, Row>,
    records: Range<u64>,
    lines: &mut String,
) -> Outcome {
    if records.clone().any(|record| rows.contains_key(&key(dataset, record))) {
        return Outcome::Refused(Failure::Exists);
    }
    for record in records {
        let versions = vec![0; usize::from(dataset.fields)];
        let row = Row { record, before: versions.clone(), versions };
        lines.push_str(&line(dataset, &row));
        rows.insert(key(dataset, record), row);
    }
    Outcome::Done
}

/// A row as a line of the log: key, record, versions.
fn line(dataset: &Dataset, row: &Row) -> String {
    let versions: Vec<String> = row.versions.iter().map(u64::to_string).collect();
    format!("{} {} {}\n", String::from_utf8_lossy(&key(dataset, row.record)), row.record, versions.join(","))
}

/// The lines of a log that have an end, and where the last of them ends: what was torn by a crash was never
/// acknowledged.
fn whole_lines(file: File) -> std::io::Result<(Vec<String>, u64)> {
    let (mut reader, mut lines, mut end) = (BufReader::new(file), vec![], 0);
    loop {
        let mut line = Vec::new();
        let length = reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok((lines, end));
        }
        end += length as u64;
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }
}

/// A line that is none, because a crash tore it, is as if it had never been written.
fn replay(line: &str, rows: &mut BTreeMap<Vec<u8>, Row>) {
    let mut words = line.split(' ');
    let (Some(key), Some(record), Some(versions)) = (words.next(), words.next(), words.next()) else {
        return;
    };
    let versions: Result<Vec<u64>, _> = versions.split(',').map(str::parse).collect();
    if let (Ok(record), Ok(versions)) = (record.parse(), versions) {
        rows.insert(key.into(), Row { record, before: versions.clone(), versions });
    }
}

impl Target for Guilty {
    fn facts(&self) -> Result<Facts, TargetError> {
        Ok(Facts::from([
            ("system".into(), "guilty".into()),
            ("guilt".into(), format!("{:?}", self.guilt).into()),
            ("records".into(), self.rows.read().len().into()),
        ]))
    }

    fn accepts(&self, kind: OpKind) -> bool {
        use OpKind::{Insert, InsertMany, Read, ReadBalances, Scan, Transaction, Transfer, Update};
        matches!(kind, Read | Update | Insert | InsertMany | Scan | Transfer | ReadBalances | Transaction)
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        let mut lines = String::new();
        insert(dataset, &mut self.rows.write(), records, &mut lines);
        let mut log = self.log.lock();
        let Some(file) = &mut log.file else { return Ok(()) };
        file.write_all(lines.as_bytes()).map_err(|e| TargetError::new("loading", e))
    }

    fn settle(&self) -> Result<(), TargetError> {
        let log = self.log.lock();
        let Some(file) = &log.file else { return Ok(()) };
        file.sync_data().map_err(|e| TargetError::new(format!("flushing {}", self.path.display()), e))
    }

    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        if matches!(dataset.shape, Shape::Checks(_) | Shape::Bank(_)) {
            return Ok(Box::new(Checks::new(self)));
        }
        Ok(Box::new(GuiltySession { target: self, dataset, fetched: BTreeMap::new(), records: 0 }))
    }

    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.begin_honestly(accounts)
    }

    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        Ok(self.vault.lock().keys())
    }

    fn read_bank(&self) -> Result<BankRows, TargetError> {
        Ok(self.vault.lock().bank())
    }

    fn read_lists(&self) -> Result<Lists, TargetError> {
        Ok(self.vault.lock().lists())
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric {
            name: "engine_sins".into(),
            kind: Kind::Counter,
            help: "operations that were answered wrongly on purpose, counted by the culprit".into(),
        }]
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        Ok(BTreeMap::from([("engine_sins".into(), self.sins.load(Ordering::Relaxed) as f64)]))
    }
}

struct GuiltySession<'a> {
    target: &'a Guilty,
    dataset: &'a Dataset,
    fetched: BTreeMap<u16, Vec<u8>>,
    records: u32,
}

impl GuiltySession<'_> {
    fn read(&mut self, record: u64, fields: Fields, random: &mut Random) -> Outcome {
        self.fetched.clear();
        self.records = 0;
        let rows = self.target.rows.read();
        let Some(row) = rows.get(&key(self.dataset, record)) else {
            return Outcome::Refused(Failure::NotFound);
        };
        let stale = self.target.sins(self.target.guilt.stale_reads, random);
        let versions = if stale { &row.before } else { &row.versions };
        for field in fields.numbers(self.dataset.fields) {
            let value = self.fetched.entry(field).or_default();
            self.dataset.value(record, field, versions[usize::from(field)], value);
        }
        if self.target.sins(self.target.guilt.corrupt_reads, random)
            && let Some(byte) = self.fetched.values_mut().next().and_then(|value| value.first_mut())
        {
            *byte ^= 1;
        }
        self.records = 1;
        Outcome::Done
    }

    fn scan(&mut self, first: u64, count: u32) -> Outcome {
        let rows = self.target.rows.read();
        self.records = rows.range(key(self.dataset, first)..).take(count as usize).count() as u32;
        Outcome::Done
    }
}

impl Session for GuiltySession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let target = self.target;
        target.serve();
        let mut random = target.draw();
        match *op {
            Op::Read { record, fields } => self.read(record, fields, &mut random),
            Op::Scan { first, count, .. } => self.scan(first, count),
            _ => target.write(self.dataset, op, &mut random),
        }
    }

    fn fetched(&self, field: u16) -> Option<&[u8]> {
        self.fetched.get(&field).map(Vec::as_slice)
    }

    fn fetched_records(&self) -> u32 {
        self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;

    fn spec(settings: &[(&str, &str)]) -> Spec {
        let settings: BTreeMap<&str, &str> = settings.iter().copied().collect();
        let spec = serde_json::json!({
            "target": {"kind": "guilty", "settings": settings},
            "disk": {"size": "1 GiB"},
            "workload": {"records": 100},
            "load": {"sessions": 1},
        });
        serde_json::from_value(spec).unwrap()
    }

    /// What 400 updates and reads after them are answered with: done, and verified.
    fn lives(settings: &[(&str, &str)]) -> (u32, u32) {
        let folder = tempfile::tempdir().unwrap();
        let target = Guilty::open(&spec(settings), folder.path()).unwrap();
        let dataset = Dataset::ycsb(100);
        target.load(&dataset, 0..100).unwrap();
        let mut session = target.open(&dataset).unwrap();
        let (mut done, mut right) = (0, 0);
        for n in 0..400u64 {
            let (record, fields, version) = (n % 100, Fields::All, n + 1);
            done += u32::from(session.execute(&Op::Update { record, fields, version }) == Outcome::Done);
            assert_eq!(session.execute(&Op::Read { record, fields }), Outcome::Done);
            right += u32::from(dataset.verify(session.as_ref(), record, fields, version) == Outcome::Done);
        }
        (done, right)
    }

    #[test]
    fn is_honest_until_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let target = Guilty::open(&spec(&[]), folder.path()).unwrap();
        let expect = contract::Expect { keeps_records: true, kinds: contract::RECORDS_IN_FULL };
        contract::check(&target, &expect);
        contract::check_ledger_and_bank(&target);
        let books = |target: &Guilty| {
            let (balances, mut transfers) = target.read_bank().unwrap();
            transfers.sort();
            (balances, transfers)
        };
        let before = books(&target);
        drop(target);
        let target = Guilty::open(&spec(&[]), folder.path()).unwrap();
        assert_eq!(books(&target), before, "after a restart");
        assert_eq!(target.sample().unwrap()["engine_sins"], 0.0);
        drop(target);
        assert_eq!(lives(&[]), (400, 400));
    }

    #[test]
    fn each_sin_shows_as_often_as_it_was_ordered() {
        let about = |found: u32, share: f64| (f64::from(found) / 400.0 - share).abs() < 0.1;
        for sin in ["stale_reads", "lost_updates", "corrupt_reads"] {
            let (done, right) = lives(&[(sin, "25 %")]);
            assert!(done == 400 && about(right, 0.75), "{sin}: {done} done, {right} right");
        }
        let (done, right) = lives(&[("phantom_writes", "25 %")]);
        assert!(about(done, 0.75) && right == 400, "{done} done, {right} right");
        assert_eq!(lives(&[("unawaited_flushes", "100 %")]), (400, 400), "only a power cut shows it");
        let (done, right) = lives(&[("conflicts", "25 %")]);
        assert!(about(done, 0.75) && right == done, "{done} done, {right} right");
    }

    #[test]
    fn what_is_rolled_back_or_not_flushed_is_gone_after_a_restart() {
        let lost = |settings: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            let dataset = Dataset::ycsb(100);
            {
                let target = Guilty::open(&spec(settings), folder.path()).unwrap();
                target.load(&dataset, 0..100).unwrap();
                let mut session = target.open(&dataset).unwrap();
                for record in 0..100 {
                    let op = Op::Update { record, fields: Fields::All, version: 7 };
                    assert_eq!(session.execute(&op), Outcome::Done);
                }
            }
            let target = Guilty::open(&spec(settings), folder.path()).unwrap();
            let mut session = target.open(&dataset).unwrap();
            (0..100u64)
                .filter(|&record| {
                    assert_eq!(session.execute(&Op::Read { record, fields: Fields::All }), Outcome::Done);
                    dataset.verify(session.as_ref(), record, Fields::All, 7) != Outcome::Done
                })
                .count()
        };
        assert_eq!(lost(&[]), 0);
        assert_eq!(lost(&[("rolled_back", "30")]), 30);
        assert_eq!(lost(&[("flush_later", "1 h")]), 100);
    }

    #[test]
    fn its_capacity_is_servers_by_service() {
        let folder = tempfile::tempdir().unwrap();
        let target = Guilty::open(&spec(&[("service", "2 ms"), ("servers", "2")]), folder.path()).unwrap();
        let dataset = Dataset::ycsb(100);
        target.load(&dataset, 0..100).unwrap();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut session = target.open(&dataset).unwrap();
                    for record in 0..25 {
                        session.execute(&Op::Read { record, fields: Fields::All });
                    }
                });
            }
        });
        // 200 operations of 2 ms at 2 servers take at least 200 ms, whatever else runs on this machine.
        assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
    }

    #[test]
    fn unknown_sins_are_answered_with_the_nearest() {
        let folder = tempfile::tempdir().unwrap();
        let Err(error) = Guilty::open(&spec(&[("stale_read", "1 %")]), folder.path()) else {
            panic!("there is no such sin");
        };
        assert!(error.to_string().contains("`stale_reads`"), "{error}");
    }
}
