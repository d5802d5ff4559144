//! An initialisation or a run, from the command line to the report.

use super::address::address;
use super::options::{self, Mistake, Options, Seed, Source};
use super::report::{self, Facts};
use super::tables::{self, Found};
use super::tally::{Counts, Tally};
use crate::clock::Clock;
use crate::drive::{self, Plan, Sessions};
use crate::live::{Live, LiveArgument, Pulse};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tipover_core::experiment::{Retries, Spec, redact};
use tipover_core::measure::Books;
use tipover_core::units::{Rate, Tick};
use tipover_core::workload::script::{BUILT_IN, BuiltIn, Dialect, ScriptRuns, Scripts, Value};
use tipover_core::workload::{Arrivals, Dataset, Records, Workload};
use tipover_targets::Postgres;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Well,
    /// A client was aborted; pgbench ends with 2.
    Aborted,
}

/// So long an answer may take: pgbench would wait for ever, and could then not be stopped.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Does what the command line asks for.
///
/// # Errors
/// Input that cannot be used, as [`Mistake`]; a server that cannot be reached.
pub fn run(line: &[String], interrupt: &Interrupt) -> Result<Ended> {
    let mut options = Options::parse(line)?;
    if options.lists {
        eprintln!("Available builtin scripts:");
        BUILT_IN.iter().for_each(|script| eprintln!("  {:>13}: {}", script.name, script.description));
        return Ok(Ended::Well);
    }
    if let Some(name) = &options.shows {
        let script = BuiltIn::find(name).map_err(Mistake)?;
        eprintln!("-- {}: {}\n{}", script.name, script.description, script.text);
        return Ok(Ended::Well);
    }
    if options.seed.is_none()
        && let Ok(text) = std::env::var("PGBENCH_RANDOM_SEED")
    {
        options.seed = Some(options::seed(&text)?);
    }
    let seed = match options.seed {
        Some(Seed::Given(seed)) => {
            eprintln!("tipover: setting random seed to {seed}");
            seed
        }
        _ => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64,
    };
    // Mistakes in scripts come before anything is asked of a server.
    let scripts = if options.steps.is_none() { Some(scripts(&options, seed)?) } else { None };
    let target = Postgres::open(&spec(&options)?)?;
    let mut console = target.console()?;
    let Some(scripts) = scripts else {
        tables::initialize(&mut console, &options, interrupt)?;
        return Ok(Ended::Well);
    };
    let version = console.query("show server_version").ok();
    let version = version.into_iter().flatten().flatten().flatten().next().unwrap_or_default();
    println!("pgbench (tipover {}, server {version})", env!("CARGO_PKG_VERSION"));
    let has_built_in = options.scripts.iter().any(|(source, _)| matches!(source, Source::BuiltIn(_)));
    let found = match has_built_in {
        true => tables::find(&mut console, options.scale)?,
        false => Found { scale: options.scale.unwrap_or(1), partitions: None },
    };
    if !options.no_vacuum {
        tables::vacuum(&mut console, options.vacuum_all);
    }
    drop(console);
    let command = redact(&format!("tipover pgbench {}", line.join(" ")));
    let live = LiveArgument::from(options.live).open("pgbench", &command);
    let live = live.map_err(|error| Mistake(format!("{error:#}")))?;
    measure(&options, scripts, &found, &target, (interrupt, live.as_ref()))
}

/// The cell that the target is started with.
fn spec(options: &Options) -> Result<Spec> {
    let spec = serde_json::json!({
        "target": {"kind": "postgres"},
        "disk": {"size": 0},
        "workload": {"kind": "ycsb"},
        "load": {"sessions": options.clients},
    });
    let mut spec: Spec = serde_json::from_value(spec).context("the settings of a session")?;
    spec.target.address = Some(address(options, &|name| std::env::var(name).ok())?);
    spec.load.timeout = PATIENCE;
    Ok(spec)
}

/// Reads all scripts.
fn scripts(options: &Options, seed: u64) -> Result<Scripts, Mistake> {
    let mut scripts = Scripts::new(seed, Dialect::Pgbench);
    for (source, weight) in &options.scripts {
        let added = match source {
            Source::BuiltIn(name) => {
                let script = BuiltIn::find(name).map_err(Mistake)?;
                scripts.add(script.description, script.text.as_bytes(), *weight)
            }
            Source::File(path) => {
                let bytes = match path.as_str() {
                    "-" => {
                        let mut bytes = Vec::new();
                        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes).map(|_| bytes)
                    }
                    path => std::fs::read(path),
                };
                let bytes =
                    bytes.map_err(|error| Mistake(format!("could not open file \"{path}\": {error}")))?;
                scripts.add(path, &bytes, *weight)
            }
        };
        added.map_err(|mistake| Mistake(mistake.to_string()))?;
    }
    if scripts.total_weight() == 0 {
        return Err(Mistake("total script weight must not be zero".into()));
    }
    for (name, value) in &options.defines {
        scripts.preset(name, Value::Text(value.as_str().into())).map_err(Mistake)?;
    }
    scripts.protocol = options.protocol;
    scripts.reconnects = options.reconnects;
    scripts.times_commands = options.per_command;
    scripts.retries = options.max_tries != 1;
    scripts.ends_on_error = true;
    Ok(scripts)
}

fn measure(
    options: &Options,
    mut scripts: Scripts,
    found: &Found,
    target: &Postgres,
    (interrupt, live): (&Interrupt, Option<&Live>),
) -> Result<Ended> {
    let seed = scripts.seed;
    let default_seed = tipover_core::workload::Random::new(seed, u64::MAX).bits() as i64;
    for (name, value) in
        [("scale", found.scale as i64), ("random_seed", seed as i64), ("default_seed", default_seed)]
    {
        scripts.preset(name, Value::Integer(value)).map_err(Mistake)?;
    }
    let scripts = Arc::new(scripts);
    let (dataset, records) = (Dataset::of_scripts(scripts.clone()), Records::new(0));
    let workload = ScriptRuns(scripts.clone());
    let (clock, origin) = (Clock::start(), SystemTime::now());
    let origin = origin - Duration::from_nanos(clock.now().0);
    let tally = Tally::new(options, &scripts, origin)?;
    let observer = |ended: &drive::Ended<'_>| tally.take(ended);
    let limit = match options.duration {
        Some(_) => None,
        None => Some(options.transactions.unwrap_or(10) * u64::from(options.clients)),
    };
    let plan = Plan {
        arrivals: options.rate.map(|rate| (Arrivals::Poisson(Rate(rate)), seed)),
        limit,
        timeout: PATIENCE,
        retries: Retries { most: options.max_tries.wrapping_sub(1), first_pause: Duration::ZERO },
        latest: options.latency_limit,
        // As `-j` says: clients share threads unless there is one for each.
        few: if options.threads == options.clients { options.clients } else { 0 },
        threads: options.threads,
        observer: Some(&observer),
        ..Plan::closed(target, &dataset, &workload as &dyn Workload, &records, options.clients, clock)
    };
    let opening = Instant::now();
    let watched = drive::run(&plan, |sessions| {
        let connecting = opening.elapsed();
        let mut watch = Watch {
            options,
            tally: &tally,
            clock,
            origin,
            began: clock.now(),
            told: Counts::default(),
            told_at: clock.now(),
            books: Books::new(plan.arrivals.is_some()),
            pulse: live.map(|live| Pulse::new(live, "running", clock.now())),
        };
        watch.until_end(sessions, interrupt);
        (connecting, clock.now().since(watch.began), watch.books)
    });
    let (connecting, elapsed, books) = watched?;
    tally.close()?;
    interrupt.check()?;
    let facts = Facts {
        options,
        scripts: &scripts,
        scale: found.scale,
        partitions: found.partitions,
        elapsed,
        connecting,
        books: &books,
    };
    print!("{}", report::lines(&facts, &tally.by_script()));
    std::io::Write::flush(&mut std::io::stdout())?;
    match tally.aborted.load(Ordering::Relaxed) {
        true => Ok(Ended::Aborted),
        false => Ok(Ended::Well),
    }
}

/// Looks at the sessions while they work.
struct Watch<'a> {
    options: &'a Options,
    tally: &'a Tally<'a>,
    clock: Clock,
    origin: SystemTime,
    began: Tick,
    told: Counts,
    told_at: Tick,
    books: Books,
    pulse: Option<Pulse<'a>>,
}

impl Watch<'_> {
    fn until_end(&mut self, sessions: &Sessions<'_>, interrupt: &Interrupt) {
        const GLANCE: Duration = Duration::from_millis(100);
        let mut stopped = false;
        loop {
            let now = self.clock.now().since(self.began);
            let left = self.options.duration.map_or(GLANCE, |duration| duration.saturating_sub(now));
            let until_told = self
                .options
                .progress
                .map_or(GLANCE, |every| every.saturating_sub(self.clock.now().since(self.told_at)));
            let time = if stopped { GLANCE } else { left.min(until_told).min(GLANCE) };
            let all_ended = sessions.wait(time.max(Duration::from_millis(1)));
            let ends = all_ended || interrupt.is_set();
            if ends || self.pulse.as_ref().is_some_and(|pulse| pulse.is_due(self.clock.now())) {
                let tally = sessions.cut();
                self.books.merge(&tally.books);
                self.pulse.iter_mut().for_each(|pulse| pulse.add(&tally));
            }
            if ends {
                return;
            }
            let aborts = self.options.exit_on_abort && self.tally.aborted.load(Ordering::Relaxed);
            let is_over =
                self.options.duration.is_some_and(|most| self.clock.now().since(self.began) >= most);
            if (is_over || aborts) && !stopped {
                // What is in flight is waited for, and counts.
                sessions.stop();
                stopped = true;
            }
            if self.options.progress.is_some_and(|every| self.clock.now().since(self.told_at) >= every) {
                self.tell();
            }
        }
    }

    /// A line of progress.
    fn tell(&mut self) {
        let now = self.clock.now();
        let total = self.tally.total();
        let (since, before) = (now.since(self.told_at).as_secs_f64(), &self.told);
        let done = total.done() - before.done();
        let count = done as f64;
        let sum = total.latency.sum - before.latency.sum;
        let squares = total.latency.squares - before.latency.squares;
        let mean = 0.001 * sum / count;
        let deviation = 0.001 * (squares / count - (sum / count) * (sum / count)).max(0.0).sqrt();
        let (mean, deviation) = if done > 0 { (mean, deviation) } else { (0.0, 0.0) };
        let at = if self.options.progress_timestamp {
            let at = self.origin + Duration::from_nanos(now.0);
            at.duration_since(UNIX_EPOCH).map_or(String::new(), |at| format!("{:.3} s", at.as_secs_f64()))
        } else {
            format!("{:.1} s", now.since(self.began).as_secs_f64())
        };
        let failed = total.failed() - before.failed();
        let mut line = format!(
            "progress: {at}, {:.1} tps, lat {mean:.3} ms stddev {deviation:.3}, {failed} failed",
            count / since
        );
        if self.options.rate.is_some() {
            let lag = if done > 0 { 0.001 * (total.lag.sum - before.lag.sum) / count } else { 0.0 };
            line.push_str(&format!(", lag {lag:.3} ms"));
            if self.options.latency_limit.is_some() {
                line.push_str(&format!(", {} skipped", total.skipped - before.skipped));
            }
        }
        if self.options.max_tries != 1 {
            let (retried, retries) = (total.retried - before.retried, total.retries - before.retries);
            line.push_str(&format!(", {retried} retried, {retries} retries"));
        }
        eprintln!("{line}");
        (self.told, self.told_at) = (total, now);
    }
}
