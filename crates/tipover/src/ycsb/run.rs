//! A load or a run, from its properties to its figures.

use super::Mistake;
use super::arguments::{Arguments, Phase};
use super::bindings::{Binding, bind};
use super::closing::Closing;
use super::go;
use super::measurements::{self, Totals};
use super::raw::Raw;
use super::settings::{Measurement, Settings};
use super::status::Status;
use crate::clock::Clock;
use crate::drive::{self, Plan, Sessions};
use crate::live::{Live, Pulse};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tipover_core::experiment::{Retries, Spec, TargetKind, redact};
use tipover_core::measure::Books;
use tipover_core::op::{Failure, OpKind};
use tipover_core::target::Target;
use tipover_core::units::{Rate, Tick};
use tipover_core::workload::{Arrivals, CoreWorkload, Mix, Records, Workload, Ycsb, properties};

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// What YCSB prints, for standard output or a file.
    pub text: String,
    /// Why it did not do what it should, if it did not.
    pub failed: Option<String>,
}

fn say(text: &str) {
    eprintln!("tipover: {}", redact(text));
}

/// Carries out `phase` on the target called `name`.
///
/// # Errors
/// Input that cannot be used, as [`Mistake`]; a target that cannot be started.
pub fn run(
    phase: Phase,
    name: &str,
    arguments: &Arguments,
    interrupt: &Interrupt,
    live: Option<&Live>,
) -> Result<Ended> {
    let p = &arguments.properties;
    let bad = |text: String| anyhow::Error::from(Mistake(redact(&text)));
    let settings = Settings::of(p).map_err(bad)?;
    let binding = bind(name, p).map_err(bad)?;
    let histogram = match p.get("fieldlengthdistribution") {
        Some("histogram") => {
            let path = p.get("fieldlengthhistogram").unwrap_or("hist.txt");
            Some(std::fs::read_to_string(path).map_err(|e| bad(format!("{path}: {e}")))?)
        }
        _ => None,
    };
    let mut work = CoreWorkload::of(p, histogram.as_deref(), binding.batch).map_err(bad)?;
    let notices = [&arguments.notices, &settings.notices, &work.notices].into_iter().flatten().cloned();
    notices.chain(properties::notices(p)).for_each(|notice| say(&notice));

    let spec = spec(&binding, &settings, p.get("wiredtiger.cache").unwrap_or("1 GiB")).map_err(bad)?;
    let folder = binding.folder.clone().unwrap_or_default();
    let target = tipover_targets::start(&spec, &folder)?;
    if binding.kind == TargetKind::Mongodb {
        tell_ignored(target.as_ref())?;
    }
    check_accepted(target.as_ref(), phase, &mut work).map_err(bad)?;
    let (first, records) = match phase {
        Phase::Load => (work.inserts.first, Records::new(work.inserts.first)),
        Phase::Run => (0, Records::new(work.dataset.records)),
    };
    if phase == Phase::Load {
        // Nothing is written by this, but the table is made where there is none.
        target.load(&work.dataset, first..first)?;
    }
    let workload: Box<dyn Workload> = match phase {
        Phase::Load => Box::new(work.inserts.clone()),
        Phase::Run => Box::new(Ycsb::new(&work.dataset, &work.requested, work.dataset.seed)),
    };
    let limit = match (phase, work.requested.operations) {
        (Phase::Load, _) => Some(work.inserts.operations()),
        (Phase::Run, 0) => None,
        (Phase::Run, operations) => Some(operations),
    };
    if limit.is_none() && settings.most_time.is_none() {
        say("neither operationcount nor maxexecutiontime is given: this runs until it is interrupted");
    }
    let mut sessions = settings.threads;
    if let Some(limit) = limit
        && u64::from(sessions) > limit
    {
        sessions = limit as u32;
        // YCSB's sentence, word by word and on standard output, where scripts that look for it look.
        println!("Warning: the threadcount is bigger than recordcount, the threadcount will be recordcount!");
    }
    let closing = Closing::new(target.as_ref());
    let arrivals =
        (settings.target > 0.0).then_some((Arrivals::Constant(Rate(settings.target)), work.dataset.seed));
    let loads = phase == Phase::Load;
    let plan = Plan {
        arrivals,
        limit,
        timeout: settings.timeout,
        retries: Retries {
            most: if loads { work.insert_retries } else { 0 },
            first_pause: work.insert_retry_pause,
        },
        keeps_singles: settings.measurement.keeps_singles(),
        ..Plan::closed(&closing, &work.dataset, workload.as_ref(), &records, sessions, Clock::start())
    };
    eprintln!("Starting test.");
    let stops_on_failure = loads && !work.keep_going;
    let watched = drive::run(&plan, |sessions| {
        let mut watch = Watch::new(&plan, &settings, work.inserts.batch, stops_on_failure);
        watch.most = loads.then_some(work.inserts.count);
        let doing = if loads { "loading" } else { "running" };
        watch.pulse = live.map(|live| Pulse::new(live, doing, watch.began));
        watch.until_end(sessions, interrupt);
        watch
    })?;
    if loads && watched.failed.is_none() {
        target.settle()?;
    }
    finish(watched, &closing, &settings)
}

/// The cell that the targets are started with.
fn spec(binding: &Binding, settings: &Settings, cache: &str) -> Result<Spec, String> {
    let kind = serde_json::to_value(binding.kind).map_err(|e| e.to_string())?;
    let spec = serde_json::json!({
        "target": {"kind": kind},
        "disk": {"size": 0},
        "workload": {"kind": "ycsb"},
        "load": {"sessions": settings.threads},
    });
    let mut spec: Spec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
    spec.target.address = binding.address.clone();
    let cache = serde_json::from_value(cache.into()).map_err(|e| format!("wiredtiger.cache: {e}"));
    spec.target.wiredtiger.cache = cache?;
    spec.load.timeout = settings.timeout;
    Ok(spec)
}

/// Says which promises a server evidently does not keep: figures with `w=majority` would else look like those
/// of a server that waits for one.
fn tell_ignored(target: &dyn Target) -> Result<()> {
    for (fact, found) in target.facts()? {
        let (Some(what), Some(found)) = (fact.strip_prefix("probed_"), found.as_str()) else { continue };
        if found.starts_with("ignored") {
            say(&format!(
                "this server does not keep what is asked of it: {} {found}",
                what.replace('_', " ")
            ));
        }
    }
    Ok(())
}

/// Refuses what the target cannot do before anything is sent; batches that it does not have are sent one by
/// one.
fn check_accepted(target: &dyn Target, phase: Phase, work: &mut CoreWorkload) -> Result<(), String> {
    if work.inserts.batch > 1 && !target.accepts(OpKind::InsertMany) {
        say(&format!("this target has no batches: {} records are inserted one by one", work.inserts.batch));
        work.inserts.batch = 1;
        work.requested.insert_batch = 1;
    }
    let Mix { read, update, insert, scan, read_modify_write } = match phase {
        Phase::Load => Mix { insert: 1.0, ..Mix::default() },
        Phase::Run => work.requested.mix,
    };
    let needed = [
        (OpKind::Read, "readproportion", read + read_modify_write),
        (OpKind::Update, "updateproportion", update + read_modify_write),
        (OpKind::Insert, "insertproportion", insert),
        (OpKind::Scan, "scanproportion", scan),
    ];
    for (kind, property, weight) in needed {
        if weight > 0.0 && !target.accepts(kind) {
            return Err(format!("this target cannot {}: set {property} = 0", kind.name().to_lowercase()));
        }
    }
    Ok(())
}

/// Looks at the sessions while they work.
struct Watch<'a> {
    settings: &'a Settings,
    limit: Option<u64>,
    batch: u64,
    /// Records that there are to load: the last batch may be smaller.
    most: Option<u64>,
    clock: Clock,
    stops_on_failure: bool,
    began: Tick,
    ended: Tick,
    books: Books,
    /// Since the last status line, and since the last point of a time series.
    recent: Books,
    point: Books,
    points: BTreeMap<String, Vec<(u64, f64)>>,
    logs: BTreeMap<String, Vec<(Duration, Duration, hdrhistogram::Histogram<u64>)>>,
    raw: Raw,
    /// When the clock began.
    origin: SystemTime,
    last_status: Tick,
    last_point: Tick,
    unanswered: u64,
    /// Since when nothing is done because the target is away.
    away_since: Option<Tick>,
    failed: Option<String>,
    pulse: Option<Pulse<'a>>,
}

impl<'a> Watch<'a> {
    fn new(plan: &Plan<'_>, settings: &'a Settings, batch: u32, stops_on_failure: bool) -> Self {
        let empty = || Books::new(plan.arrivals.is_some());
        let now = plan.clock.now();
        Watch {
            settings,
            limit: plan.limit,
            batch: u64::from(batch),
            most: None,
            clock: plan.clock,
            stops_on_failure,
            began: now,
            ended: now,
            books: empty(),
            recent: empty(),
            point: empty(),
            points: BTreeMap::new(),
            logs: BTreeMap::new(),
            raw: Raw::default(),
            origin: SystemTime::now() - Duration::from_nanos(now.0),
            last_status: now,
            last_point: now,
            unanswered: 0,
            away_since: None,
            failed: None,
            pulse: None,
        }
    }

    fn until_end(&mut self, sessions: &Sessions<'_>, interrupt: &Interrupt) {
        const GLANCE: Duration = Duration::from_millis(100);
        loop {
            let all_done = sessions.wait(GLANCE);
            self.ended = self.clock.now();
            let elapsed = self.ended.since(self.began);
            let time_is_over = self.settings.most_time.is_some_and(|most| elapsed >= most);
            let interrupted = interrupt.is_set();
            let stops = time_is_over || interrupted || self.look(sessions);
            if all_done || stops {
                // What is in flight is waited for, and counts.
                sessions.drain();
                self.look(sessions);
                self.status(true);
                self.close_point();
                if interrupted {
                    self.failed = Some("interrupted".into());
                }
                return;
            }
            if self.settings.status.is_some_and(|every| self.ended.since(self.last_status) >= every) {
                self.status(false);
            }
            if self.ended.since(self.last_point) >= self.settings.granularity {
                self.close_point();
            }
        }
    }

    /// Takes what was done since the last look; whether to stop because of it.
    fn look(&mut self, sessions: &Sessions<'_>) -> bool {
        let tally = sessions.cut();
        self.raw.add(tally.books.singles(), self.origin, self.settings);
        self.books.merge(&tally.books);
        self.recent.merge(&tally.books);
        self.point.merge(&tally.books);
        self.pulse.iter_mut().for_each(|pulse| pulse.add(&tally));
        if tally.books.done() > 0 {
            self.away_since = None;
        } else if tally.books.failures().contains_key(&Failure::Unavailable) {
            self.away_since.get_or_insert(tally.begin);
        }
        self.unanswered = u64::from(tally.in_flight) + tally.offered.map_or(0, |offered| offered.unanswered);
        if self.stops_on_failure && tally.books.failed() > 0 {
            let why: Vec<String> = tally
                .books
                .failures()
                .iter()
                .map(|(failure, count)| format!("{count} {failure:?}"))
                .collect();
            self.failed = Some(format!(
                "inserts failed ({}), so the load was stopped as YCSB does; \
                 core_workload_insertion_retry_limit tries them again, \
                 core_workload_insertion_keep_going_on_error = true goes on",
                why.join(", ")
            ));
            return true;
        }
        false
    }

    /// Prints a status line if that was asked for, and closes an interval of the logs.
    fn status(&mut self, last: bool) {
        let series = measurements::series(&self.recent, self.settings);
        let (begin, length) = (self.last_status.since(self.began), self.ended.since(self.last_status));
        if self.settings.hdr.is_some() {
            for (name, series) in &series {
                self.logs.entry(name.clone()).or_default().push((begin, length, series.latencies.clone()));
            }
        }
        if let Some(style) = self.settings.style {
            if !last && self.settings.measurement != Measurement::Csv {
                print!("{}", go::summary(&self.books, self.ended.since(self.began), style));
            }
        } else if self.settings.status.is_some() && (!last || !length.is_zero()) {
            let operations = self.books.answered();
            let status = Status {
                label: &self.settings.label,
                now: time::OffsetDateTime::now_utc(),
                elapsed_ms: self.ended.since(self.began).as_millis() as u64,
                operations,
                since: self.recent.answered(),
                since_ms: length.as_millis() as u64,
                left: self.limit.unwrap_or(0).saturating_sub(operations),
                series: &series,
                measurement: self.settings.measurement,
            };
            eprintln!("{}", status.line());
        }
        self.recent.clear();
        self.last_status = self.ended;
    }

    /// Closes a point of the time series.
    fn close_point(&mut self) {
        let at = self.last_point.since(self.began).as_millis() as u64;
        for (name, series) in measurements::series(&self.point, self.settings) {
            if !series.latencies.is_empty() {
                self.points.entry(name).or_default().push((at, series.latencies.mean()));
            }
        }
        self.point.clear();
        self.last_point = self.ended;
    }

    /// Operations done; of batches their records.
    fn done(&self) -> u64 {
        let batches = self.books.of(OpKind::InsertMany).map_or(0, |book| book.done());
        let records = self.books.done() + batches * (self.batch - 1);
        self.most.map_or(records, |most| records.min(most))
    }
}

fn finish(mut watch: Watch<'_>, closing: &Closing<'_>, settings: &Settings) -> Result<Ended> {
    let text = figures(&mut watch, closing, settings)?;
    if let Some(before) = &settings.hdr {
        for (name, intervals) in &watch.logs {
            let path = format!("{before}{name}.hdr");
            write_log(Path::new(&path), name, intervals).with_context(|| format!("writing {path}"))?;
        }
    }
    let corrupt = watch.books.corrupt();
    let mut failed = watch.failed;
    if corrupt > 0 {
        failed = Some(format!("{corrupt} reads brought something else than was written"));
    } else if watch.unanswered > 0 {
        failed = Some(format!("{} operations were never answered", watch.unanswered));
    } else if watch.books.done() == 0 && failed.is_none() {
        failed = Some("no operation was done".into());
    } else if let (Some(since), None) = (watch.away_since, &failed) {
        let seconds = since.since(watch.began).as_secs();
        failed = Some(format!("the target was away from second {seconds} to the end"));
    }
    let failures: Vec<String> =
        watch.books.failures().iter().map(|(f, n)| format!("{n} {}", f.name())).collect();
    if !failures.is_empty() {
        let (failed, of) = (watch.books.failed(), watch.books.answered());
        say(&format!("{failed} of {of} operations were not done: {}", failures.join(", ")));
    }
    if let Some(count) = watch.books.failures().get(&Failure::Exists) {
        say(&format!(
            "{count} inserts met a record that exists: an earlier run inserted beyond recordcount; load anew, or \
             raise recordcount by what it inserted"
        ));
    }
    if watch.books.is_open() {
        tell_waiting(&watch.books, settings);
    }
    Ok(Ended { text, failed })
}

/// What is printed of `watch`; what belongs into other files goes there.
fn figures(watch: &mut Watch<'_>, closing: &Closing<'_>, settings: &Settings) -> Result<String> {
    let runtime = watch.ended.since(watch.began);
    if let Some(style) = settings.style {
        let finished = format!("{}\nRun finished, takes {}\n", "*".repeat(46), go::duration(runtime));
        let figures = match settings.measurement {
            Measurement::Csv => watch.raw.go(),
            _ => go::summary(&watch.books, runtime, style),
        };
        let Some(path) = &settings.output_file else { return Ok(finished + &figures) };
        std::fs::write(path, figures).with_context(|| format!("writing {}", path.display()))?;
        return Ok(finished);
    }
    let cleanup = closing.times();
    for before in ["", "Intended-"] {
        watch.raw.put(&format!("{before}CLEANUP"), &closing.ends());
    }
    let totals = Totals {
        runtime_ms: (runtime.as_millis() as u64).max(1),
        done: watch.done(),
        books: &watch.books,
        cleanup: &cleanup,
        points: &watch.points,
        raw: &watch.raw,
    };
    let lines = measurements::lines(&totals, settings);
    let text = measurements::print(&lines, settings.exporter);
    if !settings.measurement.keeps_singles() {
        return Ok(text);
    }
    let before = if settings.measurement == Measurement::HdrAndRaw { "Raw" } else { "" };
    let single = watch.raw.ycsb(&lines, before);
    match &settings.raw_file {
        None => print!("Raw data measurement: will output to stdout.\n{single}"),
        Some(path) => {
            println!("Raw data measurement: will output to result file: {}", path.display());
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let written = file.and_then(|mut file| file.write_all(single.as_bytes()));
            written.with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(text)
}

/// Says it when latencies from sending hide what waiting for the target's turn cost.
fn tell_waiting(books: &Books, settings: &Settings) {
    let (service, residence) = (books.service(), books.residence());
    let [sent, due] = [&service, &residence].map(|h| h.value_at_quantile(0.99) / 1000);
    if settings.from == super::settings::From::Began && due > 2 * sent.max(50) {
        say(&format!(
            "counted from when operations were due, 99 % took up to {due} us; the {sent} us counted from when they \
             were sent leave out what waited: measurement.interval = intended prints the former"
        ));
    }
}

/// A log as YCSB writes it: microseconds, an interval a line.
fn write_log(
    path: &Path,
    name: &str,
    intervals: &[(Duration, Duration, hdrhistogram::Histogram<u64>)],
) -> Result<()> {
    use hdrhistogram::serialization::{V2DeflateSerializer, interval_log::IntervalLogWriterBuilder};
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut serializer = V2DeflateSerializer::new();
    let now = std::time::SystemTime::now();
    let length = intervals.last().map_or(Duration::ZERO, |(begin, length, _)| *begin + *length);
    let start = now - length;
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("[Logging for: {name}]"))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut file, &mut serializer)?;
    for (begin, length, histogram) in intervals {
        log.write_histogram(histogram, *begin, *length, None)
            .map_err(|e| anyhow::anyhow!("writing an interval: {e:?}"))?;
    }
    Ok(())
}
