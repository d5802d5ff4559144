//! What became of transactions, counted as pgbench counts, and written to its logs while they end.

use super::options::Options;
use crate::drive::Ended;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::Complaint;
use tipover_core::workload::Random;
use tipover_core::workload::script::Scripts;

/// Sum, sum of squares and extremes of microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    pub count: u64,
    pub sum: f64,
    pub squares: f64,
    pub least: f64,
    pub most: f64,
}

impl Sums {
    fn add(&mut self, us: f64) {
        self.least = if self.count == 0 { us } else { self.least.min(us) };
        self.most = self.most.max(us);
        self.count += 1;
        self.sum += us;
        self.squares += us * us;
    }

    fn merge(&mut self, other: &Sums) {
        if other.count > 0 {
            self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
            self.most = self.most.max(other.most);
            self.count += other.count;
            self.sum += other.sum;
            self.squares += other.squares;
        }
    }

    /// In milliseconds.
    pub fn mean_ms(&self) -> f64 {
        0.001 * self.sum / self.count as f64
    }

    /// In milliseconds.
    pub fn deviation_ms(&self) -> f64 {
        let mean = self.sum / self.count as f64;
        0.001 * (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt()
    }
}

/// Counts of transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Of those that were done.
    pub latency: Sums,
    /// How late those were sent, under a rate.
    pub lag: Sums,
    pub skipped: u64,
    pub retried: u64,
    pub retries: u64,
    pub serialization: u64,
    pub deadlock: u64,
    /// Done, and longer than the limit.
    pub late: u64,
}

impl Counts {
    pub fn merge(&mut self, other: &Counts) {
        self.latency.merge(&other.latency);
        self.lag.merge(&other.lag);
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.retries += other.retries;
        self.serialization += other.serialization;
        self.deadlock += other.deadlock;
        self.late += other.late;
    }

    pub fn done(&self) -> u64 {
        self.latency.count
    }

    pub fn failed(&self) -> u64 {
        self.serialization + self.deadlock
    }

    /// Done, failed and skipped ones.
    pub fn all(&self) -> u64 {
        self.done() + self.failed() + self.skipped
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Skipped,
    Serialization,
    Deadlock,
    /// And with it the client.
    Aborted,
}

/// One client's counts, on cache lines of its own.
#[repr(align(128))]
struct Client(Mutex<Own>);

struct Own {
    /// By script.
    counts: Vec<Counts>,
    /// Transactions that ended, skipped ones apart.
    ended: u64,
    /// Which transactions are logged.
    sample: Random,
}

/// A worker's log.
struct Log {
    file: BufWriter<File>,
    /// Under aggregation: the interval's begin, and its counts.
    interval: Option<(u64, Counts)>,
    failure: Option<std::io::Error>,
}

/// All clients' counts.
pub struct Tally<'a> {
    options: &'a Options,
    scripts: &'a Arc<Scripts>,
    clients: Vec<Client>,
    logs: Vec<Mutex<Log>>,
    /// The time of day when the trial's clock began.
    origin: SystemTime,
    pub aborted: AtomicBool,
}

impl<'a> Tally<'a> {
    /// Nothing counted yet; logs are made.
    ///
    /// # Errors
    /// A log that cannot be written.
    pub fn new(options: &'a Options, scripts: &'a Arc<Scripts>, origin: SystemTime) -> Result<Tally<'a>> {
        let own = |client: u32| Own {
            counts: vec![Counts::default(); scripts.scripts().len()],
            ended: 0,
            sample: Random::new(scripts.seed ^ 0x5A3B_1E06, client.into()),
        };
        let prefix = options.log_prefix.as_deref().unwrap_or("pgbench_log");
        let log = |worker: u32| -> Result<Mutex<Log>> {
            let pid = std::process::id();
            let path =
                if worker == 0 { format!("{prefix}.{pid}") } else { format!("{prefix}.{pid}.{worker}") };
            let file = File::create(&path).with_context(|| format!("could not open logfile \"{path}\""))?;
            Ok(Mutex::new(Log { file: BufWriter::new(file), interval: None, failure: None }))
        };
        let workers = if options.log { options.threads } else { 0 };
        Ok(Tally {
            options,
            scripts,
            clients: (0..options.clients).map(|client| Client(Mutex::new(own(client)))).collect(),
            logs: (0..workers).map(log).collect::<Result<_>>()?,
            origin,
            aborted: AtomicBool::new(false),
        })
    }

    /// Which worker's log a client's lines go to: as many clients for each as can be, in their order.
    fn worker(&self, client: u32) -> usize {
        let (clients, workers) = (self.options.clients, self.options.threads);
        let mut first = 0;
        for worker in 0..workers {
            first += (clients - first).div_ceil(workers - worker).max(1) * u32::from(first < clients);
            if client < first {
                return worker as usize;
            }
        }
        workers as usize - 1
    }

    /// Takes note of a transaction.
    pub fn take(&self, ended: &Ended<'_>) {
        let Op::Script { script, .. } = *ended.op else { return };
        let how = self.how(ended);
        let complaint = ended.by.complaint();
        if how == End::Aborted {
            self.aborted.store(true, Ordering::Relaxed);
            self.tell("aborted in", ended.session, script, complaint);
        } else if how != End::Done && how != End::Skipped {
            if let Some(figures) = complaint.and_then(|said| self.scripts.figures(script, said.step)) {
                figures.failures.fetch_add(1, Ordering::Relaxed);
            }
            if self.options.verbose_errors {
                self.tell("got an error in", ended.session, script, complaint);
            }
        }
        let timing = &ended.timing;
        let lag = timing.wait().as_nanos() as f64 / 1000.0;
        let latency = timing.residence().as_nanos() as f64 / 1000.0;
        let mut own = self.clients[ended.session as usize].0.lock();
        let counts = &mut own.counts[script as usize];
        self.count(counts, how, latency, lag, ended.retries);
        if how != End::Skipped {
            own.ended += 1;
        }
        let logged = !self.logs.is_empty()
            && how != End::Aborted
            && self.options.sampling.is_none_or(|share| own.sample.unit() < share);
        let number = own.ended;
        drop(own);
        if logged {
            self.log(ended, script, how, number, latency, lag);
        }
    }

    fn how(&self, ended: &Ended<'_>) -> End {
        match ended.outcome {
            Outcome::Done => End::Done,
            Outcome::Refused(Failure::Late) => End::Skipped,
            _ => match ended.by.complaint().map(|complaint| complaint.code.as_str()) {
                Some("40001") => End::Serialization,
                Some("40P01") => End::Deadlock,
                _ => End::Aborted,
            },
        }
    }

    fn count(&self, counts: &mut Counts, how: End, latency: f64, lag: f64, retries: u32) {
        match how {
            End::Done => {
                counts.latency.add(latency);
                if self.options.rate.is_some() {
                    counts.lag.add(lag);
                }
                let limit = self.options.latency_limit;
                counts.late +=
                    u64::from(limit.is_some_and(|limit| latency > limit.as_nanos() as f64 / 1000.0));
            }
            End::Skipped => counts.skipped += 1,
            End::Serialization => counts.serialization += 1,
            End::Deadlock => counts.deadlock += 1,
            End::Aborted => {}
        }
        counts.retried += u64::from(retries > 0);
        counts.retries += u64::from(retries);
    }

    /// Says what the server said, and where in the script.
    fn tell(&self, what: &str, client: u32, script: u32, complaint: Option<&Complaint>) {
        let Some(said) = complaint else {
            return eprintln!("tipover: client {client} aborted: no reason is known");
        };
        let running = &self.scripts.scripts()[script as usize];
        let place = running.commands.get(said.step).map_or(String::new(), |command| {
            format!("({}:{}:{}) ", running.name, command.line, command.column)
        });
        let Complaint { step, request, words, .. } = said;
        let name = running.commands.get(*step).map_or("SQL", |command| command.action.name());
        eprintln!(
            "tipover: client {client} script {script} {what} command {step} ({name}) query {request}: {place}{words}"
        );
    }

    fn log(&self, ended: &Ended<'_>, script: u32, how: End, number: u64, latency: f64, lag: f64) {
        let worker = self.worker(ended.session);
        let at = self.origin + Duration::from_nanos(ended.timing.ended.0);
        let epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut log = self.logs[worker].lock();
        let log = &mut *log;
        if let Some(every) = self.options.aggregate {
            let (mut begin, mut counts) = log.interval.take().unwrap_or((epoch.as_secs(), Counts::default()));
            while begin + every <= epoch.as_secs() {
                let written = writeln!(log.file, "{}", self.interval(begin, &counts));
                log.failure = log.failure.take().or(written.err());
                (begin, counts) = (begin + every, Counts::default());
            }
            self.count(&mut counts, how, latency, lag, ended.retries);
            log.interval = Some((begin, counts));
            return;
        }
        let time = match how {
            End::Done => format!("{latency:.0}"),
            End::Skipped => "skipped".into(),
            End::Serialization if self.options.failures_detailed => "serialization".into(),
            End::Deadlock if self.options.failures_detailed => "deadlock".into(),
            _ => "failed".into(),
        };
        let (client, seconds, us) = (ended.session, epoch.as_secs(), epoch.subsec_micros());
        let mut line = format!("{client} {number} {time} {script} {seconds} {us}");
        if self.options.rate.is_some() {
            line.push_str(&format!(" {lag:.0}"));
        }
        if self.options.max_tries != 1 {
            line.push_str(&format!(" {}", ended.retries));
        }
        let written = writeln!(log.file, "{line}");
        log.failure = log.failure.take().or(written.err());
    }

    /// The line of an interval.
    fn interval(&self, begin: u64, counts: &Counts) -> String {
        let sums =
            |sums: &Sums| format!("{:.0} {:.0} {:.0} {:.0}", sums.sum, sums.squares, sums.least, sums.most);
        let Counts { skipped, retried, retries, .. } = counts;
        let (serialization, deadlock) = match self.options.failures_detailed {
            true => (counts.serialization, counts.deadlock),
            false => (0, 0),
        };
        format!(
            "{begin} {} {} {} {skipped} {retried} {retries} {serialization} {deadlock}",
            counts.done(),
            sums(&counts.latency),
            sums(&counts.lag)
        )
    }

    /// Counts by script so far.
    pub fn by_script(&self) -> Vec<Counts> {
        let mut all = vec![Counts::default(); self.scripts.scripts().len()];
        for client in &self.clients {
            for (sum, own) in all.iter_mut().zip(&client.0.lock().counts) {
                sum.merge(own);
            }
        }
        all
    }

    /// Counts so far.
    pub fn total(&self) -> Counts {
        self.by_script().iter().fold(Counts::default(), |mut sum, counts| {
            sum.merge(counts);
            sum
        })
    }

    /// Writes what logs still hold.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&self) -> Result<()> {
        for log in &self.logs {
            let mut log = log.lock();
            if let Some((begin, counts)) = log.interval.take() {
                let line = self.interval(begin, &counts);
                writeln!(log.file, "{line}").context("writing the log")?;
            }
            log.file.flush().context("writing the log")?;
            if let Some(error) = log.failure.take() {
                return Err(error).context("writing the log");
            }
        }
        Ok(())
    }
}
