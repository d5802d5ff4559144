//! `disk trace`: every request that reached the device, as a file.

use super::{absolute, find, quoted, refused};
use crate::command::{BadInput, Ending};
use crate::report;
use crate::study::accesses::{Accesses, SMALL};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tipover_core::device::Kind;
use tipover_core::units::{Bytes, span};
use tipover_disk::{Ending as TraceEnding, FileMap, Mode, Trace};

/// Record every request that reaches a disk
///
/// With its time, file, offset, size and kind; about ten bytes each. Nothing waits for the writing.
#[derive(Debug, Args)]
pub struct TraceCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Begin to record
    Start {
        /// Where the disk is mounted
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The file to write; it must not exist, nor lie on the disk itself
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Stop recording, and say what was recorded
    ///
    /// In block mode the map of which file lies where is written beside the trace, as FILE.map.
    Stop {
        /// Where the disk is mounted
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    Show(Show),
    Replay(super::replay::Replay),
}

/// Say what is in a trace
///
/// How many requests of each kind, how long they took, which files they were for.
#[derive(Debug, Args)]
struct Show {
    /// A trace that `disk trace` wrote, finished or cut off
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print this many of the first requests too
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    requests: usize,

    /// Write a moving picture of the accesses too, as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// In the picture, the largest read that counts as small, such as a page of an index
    #[arg(long, value_name = "SIZE", default_value_t = SMALL)]
    small: Bytes,
}

impl TraceCommand {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        match &self.verb {
            Verb::Start { folder, output } => {
                find(folder)?.trace_start(&absolute(output)).map_err(refused)?;
                match json {
                    true => println!("{}", json!({"trace": absolute(output)})),
                    false => println!("recording to {}; `tipover disk trace stop` ends it", output.display()),
                }
                Ok(Ending::Held)
            }
            Verb::Stop { folder } => stop(folder, json),
            Verb::Show(show) => show.execute(json),
            Verb::Replay(replay) => replay.execute(json, interrupt),
        }
    }
}

fn stop(folder: &Path, json: bool) -> Result<Ending> {
    let disk = find(folder)?;
    let path = disk.trace_path()?;
    let summary = disk.trace_stop()?;
    if disk.options().mode == Mode::Block
        && let Some(path) = &path
    {
        // After the trace has ended, so that finding out where files lie is not in it.
        let map = disk.file_map().context("asking where the files lie")?;
        map.save_beside(path).with_context(|| format!("writing the map beside {}", path.display()))?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&json!({"trace": path, "summary": summary}))?);
    } else {
        println!(
            "{} requests in {}{}",
            summary.records,
            Bytes(summary.bytes).rounded(),
            if summary.dropped > 0 {
                format!(", {} missing: too fast to write", summary.dropped)
            } else {
                String::new()
            }
        );
        if let Some(path) = path {
            println!("tipover disk trace show {}", quoted(&path.to_string_lossy()));
        }
    }
    Ok(Ending::Held)
}

/// What a trace holds of one kind.
#[derive(Default)]
struct Sum {
    requests: u64,
    bytes: u64,
    residence_ns: u64,
}

impl Sum {
    fn value(&self, name: &str) -> Value {
        let Sum { requests, bytes, residence_ns } = self;
        json!({"name": name, "requests": requests, "bytes": bytes, "residence_ns": residence_ns})
    }
}

impl Show {
    fn execute(&self, json: bool) -> Result<Ending> {
        let mut trace = Trace::open(&self.file).map_err(|e| BadInput(e.to_string()))?;
        let map = FileMap::load_beside(&self.file).map_err(|e| BadInput(e.to_string()))?;
        let map = map.filter(|_| trace.mode() == Mode::Block);
        if let Some(html) = &self.html {
            self.draw(html, map.as_ref())?;
        }
        let mut kinds: BTreeMap<&str, Sum> = BTreeMap::new();
        let mut files: BTreeMap<PathBuf, Sum> = BTreeMap::new();
        let (mut first, mut last, mut shown) = (u64::MAX, 0, Vec::new());
        while let Some(record) = trace.next() {
            let name = match &map {
                Some(map) => map.locate(record.offset).map(|(path, _)| path.to_path_buf()),
                None => trace.files().get(&record.file).cloned(),
            };
            let name = name.unwrap_or_else(|| PathBuf::from("(the file system's own, or gone)"));
            for sum in [kinds.entry(word(record.kind)).or_default(), files.entry(name.clone()).or_default()] {
                sum.requests += 1;
                sum.bytes += record.size.0;
                sum.residence_ns += record.residence().as_nanos() as u64;
            }
            first = first.min(record.arrival.0);
            last = last.max(record.end.0);
            if shown.len() < self.requests {
                shown.push(json!({
                    "at_ns": record.arrival.since(trace.begin()).as_nanos() as u64,
                    "residence_ns": record.residence().as_nanos() as u64,
                    "kind": record.kind, "file": name, "offset": record.offset, "size_bytes": record.size,
                }));
            }
        }
        let window = last.saturating_sub(first);
        let ending = match trace.ending() {
            Some(TraceEnding::Complete) => "complete",
            Some(TraceEnding::Damaged) => "damaged from some point on; what is before is whole",
            _ => "cut off, as a killed daemon leaves it; what is before is whole",
        };
        let mode = trace.mode();
        let answer = json!({
            "trace": self.file, "mode": mode, "ending": ending, "window_ns": window, "dropped": trace.dropped(),
            "kinds": kinds.iter().map(|(k, s)| s.value(k)).collect::<Vec<_>>(),
            "files": files.iter().map(|(f, s)| s.value(&f.to_string_lossy())).collect::<Vec<_>>(),
            "requests": shown,
        });
        match json {
            true => println!("{}", serde_json::to_string_pretty(&answer)?),
            false => print_trace(&answer),
        }
        Ok(Ending::Held)
    }

    /// Writes the moving picture.
    fn draw(&self, html: &Path, map: Option<&FileMap>) -> Result<()> {
        let accesses = Accesses::of_trace(&self.file, map, self.small)?;
        let name = self.file.display().to_string();
        let page = report::of_trace(&name, accesses, &crate::command::run::command_line());
        std::fs::write(html, report::html(&page)).with_context(|| format!("writing {}", html.display()))?;
        eprintln!("moving picture: {}", html.display());
        Ok(())
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Flush => "flush",
        Kind::Discard => "discard",
    }
}

fn print_trace(answer: &Value) {
    let nanoseconds = |value: &Value| std::time::Duration::from_nanos(value.as_u64().unwrap_or(0));
    println!(
        "{} over {}, {}{}",
        answer["trace"].as_str().unwrap_or_default(),
        span::rounded(nanoseconds(&answer["window_ns"])),
        answer["ending"].as_str().unwrap_or_default(),
        match answer["dropped"].as_u64() {
            Some(n) if n > 0 => format!(", {n} requests missing"),
            _ => String::new(),
        }
    );
    for group in ["kinds", "files"] {
        println!("{group}:");
        for row in answer[group].as_array().into_iter().flatten() {
            let requests = row["requests"].as_u64().unwrap_or(0).max(1);
            println!(
                "  {:>9}  {:>10}  mean {:>8}  {}",
                row["requests"],
                Bytes(row["bytes"].as_u64().unwrap_or(0)).rounded(),
                span::rounded(
                    nanoseconds(&row["residence_ns"]) / u32::try_from(requests).unwrap_or(u32::MAX)
                ),
                row["name"].as_str().unwrap_or_default()
            );
        }
    }
    for row in answer["requests"].as_array().into_iter().flatten() {
        println!(
            "{:>12.6} s  {:>8}  {:<7} {:>12} +{:<8} {}",
            nanoseconds(&row["at_ns"]).as_secs_f64(),
            span::rounded(nanoseconds(&row["residence_ns"])),
            row["kind"].as_str().unwrap_or_default(),
            row["offset"],
            row["size_bytes"],
            row["file"].as_str().unwrap_or_default()
        );
    }
}
