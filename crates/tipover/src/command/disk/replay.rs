//! `disk trace replay`: the requests of a recorded trace, put onto another disk.

use crate::command::{BadInput, Ending};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::{Advice, Mode as Permissions, OFlags};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tipover_core::device::Kind;
use tipover_core::units::{Bytes, span};
use tipover_disk::{Ending as TraceEnding, Record, Trace};

/// Put the requests of a trace onto another disk
///
/// They go to one file without a name in DIR, which ends with the command however that ends: nothing that is
/// there is touched. As recorded, each request is sent when it was sent then, whether those before it are
/// answered or not, and how late it was sent is told apart from how long it took. With --depth they are sent
/// as fast as that many at once allow.
///
/// Pieces of 1 MiB that the trace never touches are left out, so distances between requests shrink. Requests
/// are rounded out to 4 KiB, past the page cache where the file system can; flushes become fdatasync;
/// discards are left out.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tipover disk trace replay t.trace /mnt/other
  tipover disk trace replay t.trace /mnt/other --speed 2
  tipover disk trace replay t.trace /mnt/other --depth 32")]
pub struct Replay {
    /// A trace that `disk trace` wrote, finished or cut off
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// A folder on the disk that shall serve it
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// As fast as this many requests at once allow, instead of as recorded
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Option<u16>,

    /// How many times as fast as recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, conflicts_with = "depth")]
    speed: f64,

    /// Only this number of requests, from the first on
    #[arg(long, value_name = "COUNT")]
    requests: Option<usize>,
}

const PIECE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A request as it will be sent.
struct Planned {
    kind: Kind,
    /// After the first one.
    due: Duration,
    /// What it took when it was recorded.
    took: Duration,
    offset: u64,
    size: usize,
}

/// All requests and the file that they need.
struct Plan {
    requests: Vec<Planned>,
    file: Bytes,
    discards: u64,
    /// The most that were under way at once when it was recorded.
    most_at_once: usize,
    complete: bool,
}

/// What became of a request.
#[derive(Clone, Copy)]
struct Outcome {
    kind: Kind,
    /// Sent after it was due.
    late: Duration,
    took: Duration,
    ended: Duration,
    failed: bool,
}

impl Replay {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Err(BadInput(format!("--speed {}: give a number above 0", self.speed)).into());
        }
        let plan = self.plan()?;
        let disk = ReplayFile::make(&self.folder, plan.file, interrupt)?;
        let workers = self.depth.map_or_else(|| (2 * plan.most_at_once).clamp(4, 256), usize::from);
        eprintln!(
            "sending {} requests {}",
            plan.requests.len(),
            match self.depth {
                Some(depth) => format!("with {depth} at once"),
                None =>
                    format!("over {}", span::rounded(plan.requests.last().map_or(Duration::ZERO, |r| r.due))),
            }
        );
        let outcomes = send(&plan.requests, &disk, workers, self.depth.is_none(), interrupt);
        interrupt.check()?;
        let answer = self.answer(&plan, &disk, &outcomes);
        match json {
            true => println!("{}", serde_json::to_string_pretty(&answer)?),
            false => print(&answer),
        }
        Ok(if outcomes.iter().any(|o| o.failed) { Ending::NotHeld } else { Ending::Held })
    }

    fn plan(&self) -> Result<Plan> {
        let mut trace = Trace::open(&self.trace).map_err(|e| BadInput(e.to_string()))?;
        let mut records: Vec<Record> = trace.by_ref().collect();
        let complete = trace.ending() == Some(TraceEnding::Complete);
        // A trace has them in the order of their answers.
        records.sort_by_key(|record| record.arrival);
        records.truncate(self.requests.unwrap_or(usize::MAX));
        let Some(first) = records.first().map(|record| record.arrival) else {
            return Err(BadInput(format!("{} has no requests", self.trace.display())).into());
        };
        let discards = records.iter().filter(|record| record.kind == Kind::Discard).count() as u64;
        records.retain(|record| record.kind != Kind::Discard);
        let mut pieces: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for record in records.iter().filter(|record| record.size.0 > 0) {
            let last = (record.offset + record.size.0 - 1) / PIECE;
            pieces.extend((record.offset / PIECE..=last).map(|piece| ((record.file, piece), 0)));
        }
        pieces.values_mut().enumerate().for_each(|(place, piece)| *piece = place as u64);
        let file = Bytes(pieces.len() as u64 * PIECE);
        let planned = |record: &Record| {
            let place = pieces.get(&(record.file, record.offset / PIECE)).copied().unwrap_or(0) * PIECE;
            let begin = record.offset % PIECE / BLOCK * BLOCK;
            let end = (record.offset % PIECE + record.size.0).next_multiple_of(BLOCK);
            Planned {
                kind: record.kind,
                due: record.arrival.since(first).div_f64(self.speed),
                took: record.residence(),
                // Neighbouring pieces of a file have neighbouring places.
                offset: place + begin,
                size: if record.size.0 == 0 { 0 } else { (end - begin) as usize },
            }
        };
        let requests = records.iter().map(planned).collect();
        Ok(Plan { requests, file, discards, most_at_once: most_at_once(&records), complete })
    }

    fn answer(&self, plan: &Plan, disk: &ReplayFile, outcomes: &[Outcome]) -> Value {
        let elapsed = outcomes.iter().map(|o| o.ended).max().unwrap_or_default();
        let kinds = [(Kind::Read, "read"), (Kind::Write, "write"), (Kind::Flush, "flush")];
        let kinds: Vec<Value> = kinds
            .into_iter()
            .filter_map(|(kind, name)| {
                let mut recorded: Vec<_> =
                    plan.requests.iter().filter(|r| r.kind == kind).map(|r| r.took).collect();
                let of_kind = || outcomes.iter().filter(|o| o.kind == kind);
                let mut replayed: Vec<_> = of_kind().map(|o| o.took).collect();
                let failed = of_kind().filter(|o| o.failed).count();
                (!recorded.is_empty()).then(|| {
                    json!({"kind": name, "requests": recorded.len(), "failed": failed,
                        "recorded": spread(&mut recorded), "replayed": spread(&mut replayed)})
                })
            })
            .collect();
        let mut late: Vec<Duration> = outcomes.iter().map(|o| o.late).collect();
        let recorded = plan.requests.iter().map(|r| r.due.mul_f64(self.speed) + r.took).max();
        json!({
            "trace": self.trace, "complete": plan.complete, "folder": self.folder, "file_bytes": plan.file.0,
            "direct": disk.direct, "depth": self.depth, "speed": self.speed, "discards_left_out": plan.discards,
            "recorded_ns": recorded.unwrap_or_default().as_nanos() as u64,
            "replayed_ns": elapsed.as_nanos() as u64,
            "lateness": self.depth.is_none().then(|| spread(&mut late)), "kinds": kinds,
        })
    }
}

/// Ends of requests sorted among begins: the highest number of begun and not ended ones.
fn most_at_once(records: &[Record]) -> usize {
    let mut ends: Vec<_> = records.iter().map(|record| record.end).collect();
    ends.sort_unstable();
    let mut ended = 0;
    let at_once = records.iter().enumerate().map(|(begun, record)| {
        while ends.get(ended).is_some_and(|end| *end <= record.arrival) {
            ended += 1;
        }
        (begun + 1).saturating_sub(ended)
    });
    at_once.max().unwrap_or(0)
}

/// The file that is read and written. It has no name, so that nobody has to remove it.
struct ReplayFile {
    file: OwnedFd,
    /// Whether requests go past the page cache.
    direct: bool,
}

impl ReplayFile {
    fn make(folder: &Path, size: Bytes, interrupt: &Interrupt) -> Result<ReplayFile> {
        let shown = folder.display();
        match std::fs::metadata(folder) {
            Ok(m) if m.is_dir() => {}
            Ok(_) => {
                let text = format!(
                    "{shown} is no folder, and replaying would overwrite it: name a folder on the disk instead"
                );
                return Err(BadInput(text).into());
            }
            Err(e) => return Err(BadInput(format!("{shown}: {e}; name a folder on the disk")).into()),
        }
        let free = rustix::fs::statvfs(folder).with_context(|| format!("looking at {shown}"))?;
        let free = Bytes(free.f_bavail * free.f_frsize);
        if free < size {
            let text = format!(
                "the trace touches {}, and {shown} has {} free: name a larger disk, or --requests fewer",
                size.rounded(),
                free.rounded()
            );
            return Err(BadInput(text).into());
        }
        let path = folder.join(format!(".tipover-replay-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("making a file in {shown}"))?;
        let direct =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Permissions::empty());
        std::fs::remove_file(&path).with_context(|| format!("removing the name {}", path.display()))?;
        eprintln!("writing {} for the trace to read", size.rounded());
        // Not zeros: some devices keep none.
        let mut x = 1u64;
        let mut piece = vec![0; PIECE as usize];
        for number in 0..size.0 / PIECE {
            interrupt.check()?;
            for word in piece.chunks_exact_mut(8) {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                word.copy_from_slice(&x.to_le_bytes());
            }
            file.write_all_at(&piece, number * PIECE)
                .with_context(|| format!("filling the file in {shown}"))?;
        }
        file.sync_all().with_context(|| format!("flushing the file in {shown}"))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).ok();
        let mut place = match direct {
            Ok(file) => ReplayFile { file, direct: true },
            Err(_) => ReplayFile { file: file.into(), direct: false },
        };
        // Some file systems open for it and then refuse.
        let mut memory = Memory::new(BLOCK as usize);
        if place.direct && size.0 > 0 && rustix::io::pread(&place.file, memory.of(BLOCK as usize), 0).is_err()
        {
            let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place.file));
            place = ReplayFile {
                file: File::options().read(true).write(true).open(through)?.into(),
                direct: false,
            };
        }
        Ok(place)
    }

    fn carry_out(&self, request: &Planned, memory: &mut Memory) -> std::io::Result<()> {
        let bytes = memory.of(request.size);
        match request.kind {
            Kind::Read => rustix::io::pread(&self.file, bytes, request.offset).map(|_| ())?,
            Kind::Write => rustix::io::pwrite(&self.file, &*bytes, request.offset).map(|_| ())?,
            Kind::Flush | Kind::Discard => rustix::fs::fdatasync(&self.file)?,
        }
        Ok(())
    }
}

/// Memory that begins where direct I/O wants it.
struct Memory(Vec<u8>);

impl Memory {
    fn new(size: usize) -> Memory {
        Memory(vec![7; size + BLOCK as usize])
    }
    fn of(&mut self, size: usize) -> &mut [u8] {
        if self.0.len() < size + BLOCK as usize {
            *self = Memory::new(size);
        }
        let start = self.0.as_ptr().align_offset(BLOCK as usize);
        &mut self.0[start..start + size]
    }
}

/// Sends all requests, each by the next free worker, `timed` not before it is due; none any more once the
/// user asked to stop.
fn send(
    requests: &[Planned],
    disk: &ReplayFile,
    workers: usize,
    timed: bool,
    interrupt: &Interrupt,
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = || {
        let (mut memory, mut outcomes) = (Memory::new(PIECE as usize), Vec::new());
        while let Some(request) = requests.get(next.fetch_add(1, Relaxed)) {
            let due = if timed { request.due } else { begin.elapsed() };
            if !wait_until(begin + due, interrupt) {
                break;
            }
            let sent = begin.elapsed();
            let failed = disk.carry_out(request, &mut memory).is_err();
            let ended = begin.elapsed();
            let (late, took) = (sent.saturating_sub(due), ended - sent);
            outcomes.push(Outcome { kind: request.kind, late, took, ended, failed });
        }
        outcomes
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    })
}

/// Sleeps, and spins the last bit, because a sleep ends late. False if the user asked to stop.
fn wait_until(moment: Instant, interrupt: &Interrupt) -> bool {
    const SPIN: Duration = Duration::from_micros(80);
    const NAP: Duration = Duration::from_millis(100);
    loop {
        if interrupt.check().is_err() {
            return false;
        }
        let left = moment.saturating_duration_since(Instant::now());
        match left {
            Duration::ZERO => return true,
            left if left > SPIN => std::thread::sleep((left - SPIN).min(NAP)),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Mean, median, p99 and most, in nanoseconds; sorts what it is given.
fn spread(spans: &mut [Duration]) -> Value {
    spans.sort_unstable();
    let at =
        |share: f64| spans.get(((spans.len() as f64 * share) as usize).min(spans.len().saturating_sub(1)));
    let ns = |span: Option<&Duration>| span.map_or(0, |span| span.as_nanos() as u64);
    let mean = spans.iter().sum::<Duration>().as_nanos() as u64 / spans.len().max(1) as u64;
    json!({"mean_ns": mean, "p50_ns": ns(at(0.5)), "p99_ns": ns(at(0.99)), "max_ns": ns(spans.last())})
}

fn print(answer: &Value) {
    let show = |value: &Value| span::rounded(Duration::from_nanos(value.as_u64().unwrap_or(0)));
    println!(
        "recorded over {}, replayed over {}{}",
        show(&answer["recorded_ns"]),
        show(&answer["replayed_ns"]),
        if answer["direct"] == true {
            ""
        } else {
            ", through the page cache: this file system has no direct I/O"
        }
    );
    if answer["complete"] == false {
        println!("the trace breaks off; what is before is replayed");
    }
    println!("{:<7} {:>9}  {:<9} {:>9} {:>9} {:>9} {:>9}", "", "requests", "", "mean", "p50", "p99", "most");
    for kind in answer["kinds"].as_array().into_iter().flatten() {
        for when in ["recorded", "replayed"] {
            let spread = &kind[when];
            let first = when == "recorded";
            println!(
                "{:<7} {:>9}  {when:<9} {:>9} {:>9} {:>9} {:>9}",
                if first { kind["kind"].as_str().unwrap_or_default() } else { "" },
                if first { kind["requests"].to_string() } else { String::new() },
                show(&spread["mean_ns"]),
                show(&spread["p50_ns"]),
                show(&spread["p99_ns"]),
                show(&spread["max_ns"]),
            );
        }
        if kind["failed"] != 0 {
            println!("        {} of them failed", kind["failed"]);
        }
    }
    let late = &answer["lateness"];
    if late.is_object() {
        println!(
            "sent late by {} in the median, {} at p99, {} at most{}",
            show(&late["p50_ns"]),
            show(&late["p99_ns"]),
            show(&late["max_ns"]),
            match late["p99_ns"].as_u64() {
                Some(ns) if ns > 10_000_000 =>
                    ": this disk, or this busy machine, does not keep up with what was recorded",
                _ => "",
            }
        );
    }
    if answer["discards_left_out"] != 0 {
        println!("{} discards left out", answer["discards_left_out"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::units::Tick;

    fn record(arrival: u64, end: u64, offset: u64, size: u64) -> Record {
        let (arrival, end, size) = (Tick(arrival), Tick(end), Bytes(size));
        Record { arrival, end, kind: Kind::Read, file: 0, offset, size }
    }

    #[test]
    fn requests_under_way_at_once_are_counted() {
        let records = [record(0, 10, 0, 1), record(5, 20, 0, 1), record(10, 12, 0, 1), record(30, 31, 0, 1)];
        assert_eq!(most_at_once(&records), 2);
        assert_eq!(most_at_once(&[]), 0);
    }

    #[test]
    fn a_spread_is_told_from_sorted_spans() {
        let mut spans: Vec<Duration> = (1..=100).rev().map(Duration::from_nanos).collect();
        let spread = spread(&mut spans);
        assert_eq!(
            (&spread["p50_ns"], &spread["p99_ns"], &spread["max_ns"]),
            (&json!(51), &json!(100), &json!(100))
        );
    }
}
