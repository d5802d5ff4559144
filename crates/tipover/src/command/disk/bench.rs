//! `disk bench`: what a disk does, where it tips, and what to buy.

use super::{absolute, quoted};
use crate::DISK_DAEMON_VERB;
use crate::command::run::command_line;
use crate::command::{BadInput, Ending};
use crate::report::{self, Terminal};
use crate::storage::{
    self, Access, ArrayCheck, Bench, Climb, Company, Location, Sitting, Stopped, Surroundings, Window,
    open_files,
};
use crate::store;
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::search::Scale;
use tipover_core::storage::array::{Demand, Raid, size};
use tipover_core::storage::capture::Likeness;
use tipover_core::storage::tipping::Tipping;
use tipover_core::storage::{
    BenchRecord, Beside, DiskPromise, EngineKind, Load, Measured, Watched, suspicions,
};
use tipover_core::units::{Bytes, Rate, Ratio, span};
use tipover_core::workload::file_io::{Access as Order, Blocks, Flushes, Turns};
use tipover_core::workload::{Arrivals, FileIo};
use tipover_disk::{DaemonCommand, Mode};

/// Measure a disk: throughput, latency, where it tips, and what to buy
///
/// A load on a folder, a file or a block device, past the page cache unless told otherwise, with the device's
/// own counters beside it, so that a load that never reaches the disk is noticed. A folder gets a data file
/// that is used again the next time. Nothing that tipover did not make is overwritten without --overwrite.
///
/// With --until it looks for the highest load that keeps a promise, names what limits, and with --clients
/// computes how many such disks it takes. Exit codes: 0 measured, and some load keeps the promise; 1 requests
/// failed, or no load was found to keep it; 2 the input cannot be used.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tipover disk bench /var/lib/postgresql
  tipover disk bench /data --rw randrw --block 16KiB --threads 16 --fdatasync 10
  tipover disk bench /data --engine io_uring --depth 32 --rate 2000/s
  tipover disk bench /data --until 'await < 50 ms' --clients 100 --promise '20 ms'
  tipover disk bench /dev/sdb --rw randread --threads 8
  tipover disk bench /data --capture ours && tipover disk mount /mnt/copy --profile ours.toml")]
pub struct DiskBench {
    /// A folder on the disk, a file, or a block device
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// What is done, by fio's or sysbench's name
    #[arg(long, value_enum, default_value_t = Pattern::Randread)]
    rw: Pattern,

    /// Reads for each write of a mixed load, by sysbench's rule; 1.5 is 60 % reads
    #[arg(long, value_name = "READS", default_value_t = 1.5)]
    ratio: f64,

    /// Size of a request: "16 KiB", a range "4 KiB-64 KiB", or a split "4 KiB/60:16 KiB/40"
    #[arg(long, visible_alias = "bs", default_value = "4 KiB")]
    block: Blocks,

    /// How much data; by default 1 GiB in a folder if there is room, and all of a file or device
    #[arg(long)]
    size: Option<Bytes>,

    /// fsync after this number of writes of a thread
    #[arg(long, value_name = "WRITES", conflicts_with = "fdatasync")]
    fsync: Option<u32>,

    /// fdatasync after this number of writes of a thread
    #[arg(long, value_name = "WRITES")]
    fdatasync: Option<u32>,

    /// Go through the page cache instead of past it
    #[arg(long)]
    buffered: bool,

    /// Every write returns when it is durable (O_DSYNC)
    #[arg(long)]
    dsync: bool,

    /// How requests are sent
    #[arg(long, value_enum, default_value_t = EngineChoice::Psync)]
    engine: EngineChoice,

    /// Threads that send
    #[arg(long, default_value_t = 1)]
    threads: u32,

    /// Requests that a thread keeps in flight; more than 1 needs --engine io_uring
    #[arg(long, visible_alias = "iodepth", default_value_t = 1)]
    depth: u32,

    /// Open loop: requests per second, whatever the disk does, at random moments; or as "constant
    /// 500/s", "ramp 100/s to 2000/s in 60 s"
    #[arg(long, value_name = "RATE", value_parser = arrivals)]
    rate: Option<Arrivals>,

    /// How long it is measured; of a search, how long one trial is (2 s unless given)
    #[arg(long, value_parser = |t: &str| span::parse(t))]
    time: Option<Duration>,

    /// Thrown away before that
    #[arg(long, default_value = "500 ms", value_parser = |t: &str| span::parse(t))]
    warm_up: Duration,

    /// Another seed, other places
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Write over a file or device that tipover did not make: what is on it is lost
    #[arg(long)]
    overwrite: bool,

    /// Remove the data file from the folder afterwards
    #[arg(long)]
    remove: bool,

    /// Look for the highest load that keeps a promise: "await < 50 ms", "p99 < 20 ms", "residence < 30 ms"
    ///
    /// await is the mean from sending to answer, searched over requests in flight. With --rate, and for
    /// residence (the mean from due to answer), the search goes over offered requests per second.
    #[arg(long, value_name = "PROMISE")]
    until: Option<DiskPromise>,

    /// The highest load that a search tries: requests in flight, or per second
    #[arg(long, value_name = "LOAD")]
    to: Option<f64>,

    /// Weigh every load of a search longer and confirm more often
    #[arg(long)]
    thorough: bool,

    /// Time under load after which a search ends with what it has
    #[arg(long, default_value = "5 min", value_parser = |t: &str| span::parse(t))]
    budget: Duration,

    /// Do not test what limits a shaped disk by changing it
    #[arg(long)]
    no_interventions: bool,

    /// Compute how many such disks hold this number of clients, in RAID 0 and RAID 10
    #[arg(long, value_name = "N")]
    clients: Option<u32>,

    /// What those clients are to see; the promise of --until unless given
    #[arg(long, value_name = "PROMISE", requires = "clients")]
    promise: Option<DiskPromise>,

    /// Do not build the array out of shaped disks to see whether it holds
    #[arg(long)]
    no_array: bool,

    /// Measure flushes: writes with a flush after each, and writes with O_DSYNC
    #[arg(long)]
    safety: bool,

    /// Write what the disk is like to NAME.toml, for `disk mount --profile NAME.toml`
    #[arg(long, value_name = "NAME")]
    capture: Option<String>,

    /// With --capture: mount a shaped disk with that profile, measure it too, and say how alike they are
    #[arg(long, requires = "capture")]
    verify: bool,

    /// Draw read latency under every combination of read and write load, with this number of steps a side
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "21")]
    surface: Option<u32>,
}

/// fio's names; sysbench's are accepted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Random reads
    #[value(alias = "rndrd")]
    Randread,
    /// Random writes
    #[value(alias = "rndwr")]
    Randwrite,
    /// Random reads and writes
    #[value(alias = "rndrw")]
    Randrw,
    /// Sequential reads
    #[value(alias = "seqrd")]
    Read,
    /// Sequential writes
    #[value(aliases = ["seqwr", "seqrewr"])]
    Write,
    /// Sequential reads and writes
    Rw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineChoice {
    /// pread, pwrite, fsync: one request per thread
    Psync,
    /// Many requests in flight per thread
    #[value(name = "io_uring", alias = "uring")]
    Uring,
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text.parse::<Rate>() {
        Ok(rate) if rate.0 > 0.0 => Ok(Arrivals::Poisson(rate)),
        Ok(_) => Err("a load of nothing per second is none".into()),
        Err(_) => text.parse::<Arrivals>().map_err(|error| error.to_string()),
    }
}

impl DiskBench {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        self.carry_out(results, json, interrupt).map_err(super::of_measuring)
    }

    fn carry_out(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let location = Location::find(&self.path)?;
        let mut load = self.load()?;
        let stop = || interrupt.check().is_err();
        let mut shown = Progress::default();
        let writes = self.writes();
        let size = {
            let mut filling = |share| shown.say("writing the data", share);
            location.prepare(self.size, writes, self.overwrite, &stop, &mut filling)?
        };
        load.io.size = Bytes(size.0 / load.io.blocks.least().0 * load.io.blocks.least().0);
        load.io.check().map_err(BadInput)?;
        let access = Access { writes, direct: !self.buffered, dsync: self.dsync };
        let disks = open_files(&location, access)?;
        let mut surroundings = Surroundings::of(&location);
        let medium = surroundings.medium(&location, access.direct, load.io.size);
        let (shape, missing) = (surroundings.shape(), surroundings.missing.clone());
        let on = surroundings.device().map_or(String::new(), |device| format!(" on {device}"));
        let mut record = BenchRecord {
            format: tipover_core::record::FORMAT,
            path: location.path.display().to_string(),
            place: format!("{}{on}", location.what()),
            shape: shape.as_ref().map(ToString::to_string),
            medium,
            measured: None,
            durable: vec![],
            suspicions: vec![],
            tipping: None,
            surface: None,
            missing,
            beside: Beside::default(),
            provenance: super::provenance(),
        };
        let company = Company::begin(surroundings.shaped().is_some());
        let mut say = |what: &str, share: f64| shown.say(what, share);
        let mut bench =
            Bench { location: &location, surroundings: &mut surroundings, stop: &stop, progress: &mut say };
        if let Some(name) = &self.capture {
            return self.capture(name, &load, &disks, &mut bench, json);
        }
        if let Some(climb) = self.climb(&load)? {
            let (mut tipping, good) = storage::climb(&climb, &disks, &mut bench)?;
            self.size_up(&mut tipping, &load, &mut bench)?;
            (record.tipping, record.measured) = (Some(tipping), good);
        } else {
            let time = self.time.unwrap_or(Duration::from_secs(10));
            let window = Window { warm_up: self.warm_up, time };
            let (measured, late) = bench.measure(&load, &disks, window, "measuring")?;
            if late {
                record
                    .missing
                    .push("the generator was late: it has too little processor time for this rate".into());
            }
            record.measured = Some(measured);
        }
        if self.safety {
            record.durable = self.durable(&load, &location, &mut bench)?;
        }
        if let Some(steps) = self.surface {
            let time = self.time.unwrap_or(Duration::from_millis(200));
            record.surface = Some(storage::surface(&load, &disks, steps, time, &mut bench)?);
        }
        for measured in record.measured.iter().chain(&record.durable) {
            for found in suspicions(measured, &record.medium) {
                if !record.suspicions.iter().any(|known| known.id == found.id) {
                    record.suspicions.push(found);
                }
            }
        }
        record.beside = company.end();
        drop(disks);
        if self.remove {
            location.remove();
        }
        shown.end();
        publish(&record, results, json)
    }

    /// Whether anything of this command writes.
    fn writes(&self) -> bool {
        !matches!(self.rw, Pattern::Randread | Pattern::Read)
            || self.safety
            || self.surface.is_some()
            || (self.capture.is_some() && (self.overwrite || self.path.is_dir()))
    }

    fn load(&self) -> Result<Load> {
        let bad = |text: String| Err(BadInput(text).into());
        if self.threads == 0 || self.depth == 0 || self.threads > 4096 || self.depth > 4096 {
            return bad("--threads and --depth lie between 1 and 4096".into());
        }
        let engine = match self.engine {
            EngineChoice::Psync => EngineKind::Psync,
            EngineChoice::Uring => EngineKind::Uring,
        };
        if engine == EngineKind::Psync && self.depth > 1 {
            return bad(format!(
                "--depth {} needs --engine io_uring: psync has one request in flight per thread (or use --threads {})",
                self.depth,
                self.threads * self.depth
            ));
        }
        let (access, turns) = match self.rw {
            Pattern::Randread => (Order::Random, Turns::Reads),
            Pattern::Randwrite => (Order::Random, Turns::Writes),
            Pattern::Randrw => (Order::Random, Turns::ReadsPerWrite(self.ratio)),
            Pattern::Read => (Order::Sequential, Turns::Reads),
            Pattern::Write => (Order::Sequential, Turns::Writes),
            Pattern::Rw => (Order::Sequential, Turns::ReadsPerWrite(self.ratio)),
        };
        let every = self.fsync.or(self.fdatasync);
        if every == Some(0) {
            return bad("--fsync and --fdatasync count writes, from 1".into());
        }
        if every.is_some() && turns == Turns::Reads {
            return bad("this load writes nothing that could be flushed; use --rw randwrite or randrw".into());
        }
        if !self.buffered && !self.block.least().0.is_multiple_of(512) {
            let least = self.block.least();
            return bad(format!(
                "--block {least}: direct I/O needs multiples of 512 B; change it, or use --buffered"
            ));
        }
        if let Some(steps) = self.surface.filter(|steps| !(2..=101).contains(steps)) {
            return bad(format!("--surface {steps}: between 2 and 101 steps are possible"));
        }
        if self.clients.is_some() && self.until.is_none() && self.promise.is_none() {
            return bad("--clients needs to know what they are to see: --promise \"20 ms\"".into());
        }
        let io = FileIo {
            access,
            turns,
            blocks: self.block.clone(),
            size: Bytes(0),
            flushes: every.map(|every_writes| Flushes { every_writes, data_only: self.fdatasync.is_some() }),
            streams: self.threads,
            seed: self.seed,
        };
        Ok(Load { io, engine, threads: self.threads, depth: self.depth, arrivals: self.rate.clone() })
    }

    /// The search, if one was asked for.
    fn climb(&self, load: &Load) -> Result<Option<Climb>> {
        let Some(promise) = self.until.or(self.promise) else { return Ok(None) };
        let open = self.rate.is_some() || promise.watched == Watched::Residence;
        let scale = if open { Scale::OpsPerSecond } else { Scale::Sessions };
        let most = self.to.unwrap_or(if open { 1e6 } else { 256.0 });
        if !(2.0..=1e7).contains(&most) || (!open && most > 4096.0) {
            let reason = "between 2 and 4096 requests in flight, or up to 10000000 per second, are possible";
            return Err(BadInput(format!("--to {most}: {reason}")).into());
        }
        let mut load = load.clone();
        if open && load.in_flight() == 1 {
            // An open loop with one slot would measure its own queue.
            load = match load.engine {
                EngineKind::Psync => Load { threads: 64, ..load },
                EngineKind::Uring => Load { depth: 256, ..load },
            };
            load.io.streams = load.threads;
        }
        Ok(Some(Climb {
            load,
            promise,
            scale,
            most,
            trial: self.time.unwrap_or(Duration::from_secs(2)),
            thorough: self.thorough,
            intervene: !self.no_interventions,
            budget: self.budget,
        }))
    }

    /// How many such disks, and whether they hold.
    fn size_up(&self, tipping: &mut Tipping, load: &Load, bench: &mut Bench<'_>) -> Result<()> {
        let Some(clients) = self.clients else { return Ok(()) };
        let Some(curve) = tipping.curve() else {
            tipping.unchecked =
                Some("sizing needs a search over requests in flight: leave out --rate".into());
            return Ok(());
        };
        let promise = self.promise.unwrap_or(tipping.promise);
        let limit = promise.limit;
        let demand = Demand { clients, limit, reads: Ratio(load.io.turns.read_share()) };
        tipping.sizings = [Raid::Zero, Raid::Ten].iter().map(|raid| size(&curve, *raid, &demand)).collect();
        tipping.demand = Some(demand);
        let shaped = bench.surroundings.shaped().map(|disk| (disk.spec(), disk.options().mode));
        let Some((spec, mode)) = shaped.filter(|_| !self.no_array) else {
            let why = if self.no_array { "--no-array" } else { "this disk is not a shaped one" };
            tipping.unchecked = Some(why.into());
            return Ok(());
        };
        for sizing in tipping.sizings.iter().filter(|sizing| sizing.disks.is_some()) {
            let check = ArrayCheck {
                clients,
                limit,
                load: load.clone(),
                spec: spec.clone(),
                // A file system between would merge and delay requests of its own.
                mode: if mode == Mode::Block { Mode::Block } else { Mode::File },
                daemon: DaemonCommand::this_program(&[DISK_DAEMON_VERB]),
                window: Window {
                    warm_up: Duration::from_secs(1),
                    time: self.time.unwrap_or(Duration::from_secs(3)),
                },
            };
            match storage::check_array(sizing, &check, bench.stop, bench.progress) {
                Ok(checked) => tipping.checked.push(checked),
                Err(error) if error.is::<Stopped>() => return Err(error),
                Err(error) => tipping.unchecked = Some(format!("{error:#}")),
            }
        }
        Ok(())
    }

    /// Writes that must be durable, in the two ways that databases use.
    fn durable(&self, load: &Load, location: &Location, bench: &mut Bench<'_>) -> Result<Vec<Measured>> {
        let window = Window { warm_up: self.warm_up, time: self.time.unwrap_or(Duration::from_secs(3)) };
        let mut one = load.clone();
        (one.engine, one.threads, one.depth, one.arrivals) = (EngineKind::Psync, 1, 1, None);
        (one.io.turns, one.io.access, one.io.streams) = (Turns::Writes, Order::Random, 1);
        one.io.flushes = Some(Flushes { every_writes: 1, data_only: true });
        let access = Access { writes: true, direct: !self.buffered, dsync: false };
        let flushed =
            bench.measure(&one, &open_files(location, access)?, window, "writes, each with a flush")?.0;
        one.io.flushes = None;
        let access = Access { dsync: true, ..access };
        let dsync = bench.measure(&one, &open_files(location, access)?, window, "writes with O_DSYNC")?.0;
        Ok(vec![flushed, dsync])
    }

    fn capture(
        &self,
        name: &str,
        load: &Load,
        disks: &storage::Disks,
        bench: &mut Bench<'_>,
        json: bool,
    ) -> Result<Ending> {
        let path = PathBuf::from(format!("{name}.toml"));
        let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(
                BadInput(format!("--capture {name:?}: letters, digits, -, _ and . are possible")).into()
            );
        }
        if path.exists() && !self.overwrite {
            return Err(
                BadInput(format!("{} is there; give another name, or --overwrite", path.display())).into()
            );
        }
        let source = format!("measured by `{}` on {}", command_line(), bench.location.path.display());
        let time = self.time.unwrap_or(Duration::from_secs(3));
        let sitting = Sitting { name, source: &source, load, writes: self.writes(), time };
        let original = storage::capture(&sitting, disks, bench)?;
        let profile = original.profile().context("no read was answered")?;
        std::fs::write(&path, profile.to_toml()).with_context(|| format!("writing {}", path.display()))?;
        let likeness = if self.verify {
            let daemon = DaemonCommand::this_program(&[DISK_DAEMON_VERB]);
            let spec = &profile.spec;
            let copy = storage::capture_copy(spec, &sitting, daemon, bench.stop, bench.progress)?;
            Some(original.beside(&copy))
        } else {
            None
        };
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if json {
            let facts = serde_json::json!({
                "profile": absolute(&path), "spec": profile.spec.to_string(), "shape": profile.spec,
                "likeness": likeness,
            });
            println!("{}", serde_json::to_string_pretty(&facts)?);
        } else {
            println!("{}: {}\n    {}", profile.name, profile.about, profile.spec.brief());
            println!(
                "mount one like it with: tipover disk mount DIR --profile {}",
                quoted(&path.to_string_lossy())
            );
            print!("{}", likeness.as_deref().map(alike).unwrap_or_default());
        }
        Ok(Ending::Held)
    }
}

/// A disk and its copy in a table, and the greatest difference in words.
fn alike(rows: &[Likeness]) -> String {
    let mut text = format!("\n{:<28} {:>12} {:>12}  copy ÷ original\n", "", "original", "copy");
    for row in rows {
        let Likeness { what, original, copy, ratio } = row;
        let _ = writeln!(text, "{what:<28} {original:>12} {copy:>12}  {ratio:.2}");
    }
    if let Some(worst) = rows.iter().max_by(|a, b| a.factor().total_cmp(&b.factor())) {
        let _ = writeln!(text, "alike within a factor of {:.2} ({})", worst.factor(), worst.what);
    }
    text
}

/// Keeps the record and its page, and prints.
fn publish(record: &BenchRecord, results: &Path, json: bool) -> Result<Ending> {
    let page = report::of_bench(record);
    let text = serde_json::to_string_pretty(record)?;
    let files = [
        ("record.json", text.clone() + "\n"),
        ("latency.hlog", store::bench_log(record)?),
        ("report.html", report::html(&page)),
    ];
    let folder = store::keep_numbered(&results.join("disk-bench"), &files)?;
    if json {
        println!("{text}");
    } else {
        print!("{}", report::text(&page, Terminal::detect()));
    }
    eprintln!("report: {}", absolute(&folder.join("report.html")).display());
    let failed = record.measured.iter().any(|measured| measured.books.failed() > 0);
    let found = record.tipping.as_ref().is_none_or(Tipping::holds);
    Ok(if failed || !found { Ending::NotHeld } else { Ending::Held })
}

/// What is going on, on stderr: a line that changes on a terminal, one for each step elsewhere.
#[derive(Default)]
struct Progress {
    last: String,
    shown: bool,
}

impl Progress {
    fn say(&mut self, what: &str, share: f64) {
        let terminal = std::io::stderr().is_terminal();
        if terminal {
            eprint!("\r\x1b[K{what} {:.0} %", share * 100.0);
            self.shown = true;
        } else if self.last != what {
            eprintln!("{what}");
        }
        self.last = what.to_string();
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }
}
