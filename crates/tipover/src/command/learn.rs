//! `tipover learn`: a plan from what a server is doing.

use super::{BadInput, Ending, connection};
use crate::interrupt::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tipover_core::experiment::{Address, Experiment, TargetKind};
use tipover_core::learn::log::{self, Log, LogKind};
use tipover_core::learn::{self, Learned, Mix, Seen, Watch, Watching, Wishes};
use tipover_core::target::Target as _;
use tipover_core::units::{significant, span};
use tipover_core::workload::recorded::print;
use tipover_targets::{Mysql, Postgres, Profiler};

/// Watch a server and write a plan of its load, or of its log
///
/// Reads the server's own statistics for a while (pg_stat_statements on PostgreSQL, the performance schema on
/// MariaDB and MySQL) and writes a plan that sends statements like those: with their shares and rows, in
/// transactions where sessions showed them, parameters drawn as the columns are spread that they are compared
/// with. Only reads. No value of the data goes into the plan: it asks for the least and the greatest keys
/// when it runs. Statements that change data are left out unless --on-copy says that the target is a copy.
/// What is left out and what had to be assumed stands at the plan's head. With --json it prints what was
/// seen, which `tipover compare` reads. With --replay it makes a plan that sends a server's log again, with
/// --mix one that sends the log's transactions with the values that they had, in any number. MongoDB has no
/// such statistics: there it follows the profiler, and makes a plan as --mix does.
#[derive(Debug, Args)]
pub struct Learn {
    /// The server, such as postgres://me@host/shop
    #[arg(value_name = "ADDRESS")]
    address: Address,

    /// Where to write the plan; without, it is printed
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Instead of watching: send the statements of this log again, each by its session and at its time
    ///
    /// PostgreSQL's csvlog or jsonlog with log_min_duration_statement = 0 (or log_statement, or
    /// auto_explain); the slow log (long_query_time = 0) or the general log of MariaDB and MySQL; MongoDB's
    /// structured log or system.profile as mongoexport writes it. Beside the plan FILE.toml it writes
    /// FILE.record, which has the statements with their values.
    #[arg(long, value_name = "LOG", requires = "output", conflicts_with = "watch")]
    replay: Option<PathBuf>,

    /// Instead of watching: learn the transactions and statements of this log, with the values that they had
    ///
    /// The same logs as --replay. Unlike a record the plan can be searched and changed: it draws from the
    /// log's transactions at the rate that they had. Beside FILE.toml it writes FILE.1.csv and so on, which
    /// have the values. Statistics do not show which keys are asked for how often; a log does.
    #[arg(long, value_name = "LOG", requires = "output", conflicts_with_all = ["watch", "replay"])]
    mix: Option<PathBuf>,

    /// Send a log this many times as fast, from 1 to 100
    #[arg(long, default_value_t = 1.0, value_name = "TIMES", requires = "replay")]
    speed: f64,

    /// How long to watch
    #[arg(long, default_value = "2 min", value_parser = span::parse, value_name = "TIME")]
    watch: Duration,

    /// Let values of the data stand in the plan: ranges of keys, and texts that the server kept
    ///
    /// Of MongoDB: in files beside the plan, which are yours alone to read. Without them there is no plan.
    #[arg(long)]
    keep_values: bool,

    /// The target is a copy: statements that change data are in the plan too
    #[arg(long)]
    on_copy: bool,

    /// How many statements, the most frequent first, have a script of their own
    #[arg(long, default_value_t = 20, value_name = "N")]
    most: usize,
}

/// Parts in which the interval is read: a comparison needs more than one figure.
const PARTS: u32 = 10;
/// Sessions are looked at so often, and no less than a thousand times as long as that lasts.
const LOOKS: u32 = 1000;
const OFTENEST: Duration = Duration::from_millis(10);
const RAREST: Duration = Duration::from_millis(100);
/// No more commands of a profiler are kept: a plan takes 5,000 of each form.
const MOST_COMMANDS: usize = 500_000;

impl Learn {
    /// Watches the server, or reads its log, and writes the plan.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        if let Some(log) = &self.replay {
            return self.replay(log, json);
        }
        if let Some(log) = &self.mix {
            return self.mix(log, json);
        }
        const LEAST: Duration = Duration::from_secs(1);
        if self.watch < LEAST {
            return Err(BadInput("--watch: less than a second shows nothing".into()).into());
        }
        if self.address.scheme().starts_with("mongodb") {
            return self.profiled(json, interrupt);
        }
        let mut watcher = watcher(&self.address)?;
        let seen = self.watched(watcher.as_mut(), interrupt)?;
        let learned = learn::learn(&seen, &self.wishes()).map_err(BadInput)?;
        let plan = checked(&learned.plan)?;
        match &self.output {
            Some(path) => {
                std::fs::write(path, plan).with_context(|| format!("writing {}", path.display()))?;
                tell(&learned, &path.display().to_string());
            }
            None if !json => print!("{plan}"),
            None => {}
        }
        if json {
            println!("{}", serde_json::to_string(&seen)?);
        }
        Ok(Ending::Held)
    }

    /// A log of the kind of server that the address is of.
    fn log(&self, path: &Path) -> Result<(LogKind, Log)> {
        let bad = |words: String| BadInput(format!("{}: {words}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        let kind = LogKind::of(&bytes)
            .ok_or_else(|| bad("line 1: this is none of csvlog, jsonlog, slow log, general log, MongoDB's log or profile".into()))?;
        let target = match self.address.scheme() {
            "mysql" | "mariadb" => TargetKind::Mysql,
            "mongodb" | "mongodb+srv" => TargetKind::Mongodb,
            _ => TargetKind::Postgres,
        };
        if target != kind.target() {
            return Err(bad(format!(
                "this is a log of another kind of server than {}",
                self.address.shown()
            ))
            .into());
        }
        let log = kind.read(&bytes);
        Ok((kind, log))
    }

    /// Makes a plan and a record of a log.
    fn replay(&self, path: &Path, json: bool) -> Result<Ending> {
        let bad = |words: String| BadInput(format!("{}: {words}", path.display()));
        if !(1.0..=100.0).contains(&self.speed) {
            return Err(BadInput(format!("--speed {}: give a number from 1 to 100", self.speed)).into());
        }
        let (kind, log) = self.log(path)?;
        let replay = log::replay(&log, kind, self.on_copy, self.speed).map_err(bad)?;
        let output = self.output.as_deref().expect("clap demands it");
        let record = output.with_extension("record");
        write_private(&record, &print(&replay.statements))?;
        let shown = [path, &record].map(|path| path.display().to_string());
        let plan = learn::of_record(
            &replay,
            kind.target(),
            &self.wishes(),
            self.address.shown(),
            (&shown[0], &shown[1]),
        );
        std::fs::write(output, checked(&plan)?).with_context(|| format!("writing {}", output.display()))?;
        let [statements, sessions] = [replay.statements.len(), replay.sessions as usize];
        if json {
            println!(
                "{}",
                serde_json::json!({"statements": statements, "sessions": sessions, "remarks": replay.remarks})
            );
        }
        eprintln!("{}: {statements} statements of {sessions} sessions", output.display());
        replay.remarks.iter().for_each(|remark| eprintln!("  {remark}"));
        Ok(Ending::Held)
    }

    /// Follows the profiler of a MongoDB, and makes a plan of what it kept as of a log.
    fn profiled(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let missing = |words: &str| Err(BadInput(words.into()).into());
        if self.output.is_none() {
            return missing("mongodb://: give -o FILE.toml; files with the values are written beside it");
        }
        if !self.keep_values {
            return missing(
                "MongoDB keeps no statistics of values, so a plan needs those that were sent: --keep-values writes them \
                 into files beside it, which are yours alone to read",
            );
        }
        let mut profiler = Profiler::open(&connection("mongodb", &self.address)?.target)?;
        eprintln!("watching {} for {}: only reading", self.address.shown(), span::print(self.watch));
        let end = Instant::now() + self.watch;
        let mut commands = Vec::new();
        loop {
            interrupt.check()?;
            commands.extend(profiler.entries()?);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if commands.len() >= MOST_COMMANDS {
                profiler
                    .remarks
                    .push(format!("ended {} early: that many commands are enough", span::print(left)));
                break;
            }
            std::thread::sleep(left.min(RAREST));
        }
        if profiler.gaps > 0 {
            profiler.remarks.push(format!(
                "{} times the profiler may have overwritten commands before they were read: a larger system.profile keeps \
                 them longer",
                profiler.gaps
            ));
        }
        let log = LogKind::Mongodb.read(commands.join("\n").as_bytes());
        let mut mix = learn::mix(&log, LogKind::Mongodb, self.on_copy, self.most.max(1))
            .map_err(|words| BadInput(format!("{}: {words}", self.address.shown())))?;
        mix.remarks.append(&mut profiler.remarks);
        self.write_mix(&mix, LogKind::Mongodb, &format!("{} --keep-values", self.address.shown()), json)
    }

    /// Makes a plan and files of samples of a log.
    fn mix(&self, path: &Path, json: bool) -> Result<Ending> {
        let (kind, log) = self.log(path)?;
        let mix = learn::mix(&log, kind, self.on_copy, self.most.max(1))
            .map_err(|words| BadInput(format!("{}: {words}", path.display())))?;
        self.write_mix(&mix, kind, &format!("--mix {}", path.display()), json)
    }

    /// `source`: the arguments that said where it is from.
    fn write_mix(&self, mix: &Mix, kind: LogKind, source: &str, json: bool) -> Result<Ending> {
        let output = self.output.as_deref().expect("it was demanded");
        let mut files = BTreeMap::new();
        for (number, script) in (1..).zip(&mix.scripts) {
            let Some(rows) = &script.rows else { continue };
            let file = output.with_extension(format!("{number}.csv"));
            write_private(&file, rows)?;
            files.insert(number, file.display().to_string());
        }
        let (wishes, address) = (self.wishes(), self.address.shown());
        let plan = learn::of_mix(mix, kind.target(), &wishes, address, (source, &files));
        std::fs::write(output, checked(&plan)?).with_context(|| format!("writing {}", output.display()))?;
        if json {
            let scripts =
                mix.scripts.iter().map(|s| serde_json::json!({"name": s.name, "operations": s.weight}));
            println!(
                "{}",
                serde_json::json!({"operations": mix.operations, "covered": mix.covered, "sessions": mix.sessions,
                    "scripts": scripts.collect::<Vec<_>>(), "remarks": mix.remarks})
            );
        }
        eprintln!(
            "{}: {} scripts for {} of {} operations of {} sessions",
            output.display(),
            mix.scripts.len(),
            mix.covered,
            mix.operations,
            mix.sessions
        );
        mix.remarks.iter().for_each(|remark| eprintln!("  {remark}"));
        Ok(Ending::Held)
    }

    fn wishes(&self) -> Wishes {
        let name = self.output.as_ref().and_then(|path| path.file_stem());
        Wishes {
            name: name.map_or("learned".into(), |name| name.to_string_lossy().into_owned()),
            keep_values: self.keep_values,
            on_copy: self.on_copy,
            most_scripts: self.most.max(1),
        }
    }

    /// Watches for as long as is wanted.
    fn watched(&self, server: &mut dyn Watch, interrupt: &Interrupt) -> Result<Seen> {
        let about = server.about()?;
        eprintln!("watching {} for {}: only reading", about.system, span::print(self.watch));
        let pause = (self.watch / LOOKS).clamp(OFTENEST, RAREST);
        let mut watching = Watching::begin(server.counters()?);
        let begin = Instant::now();
        let mut part = begin;
        for number in 1..=PARTS {
            let until = begin + self.watch * number / PARTS;
            while Instant::now() < until {
                interrupt.check()?;
                watching.look(&server.look()?);
                std::thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            }
            let counters = server.counters()?;
            let now = Instant::now();
            watching.part(now.duration_since(part).as_secs_f64(), counters);
            part = now;
        }
        let texts = server.texts()?;
        let tables = learn::tables(texts.values().flatten().map(String::as_str), about.dialect);
        let columns = server.columns(&tables, self.keep_values)?;
        Ok(watching.seen(about, self.address.shown(), &texts, columns))
    }
}

/// Values of the data stand in a record: it is its owner's alone.
fn write_private(path: &Path, text: &str) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(path).with_context(doing)?;
    file.write_all(text.as_bytes()).with_context(doing)
}

fn watcher(address: &Address) -> Result<Box<dyn Watch>> {
    match address.scheme() {
        "postgres" | "postgresql" => Ok(Postgres::open(&connection("postgres", address)?)?.watch()?),
        "mysql" | "mariadb" => Ok(Mysql::open(&connection("mysql", address)?)?.watch()?),
        other => Err(BadInput(format!(
            "{other}:// is nothing that can be watched: postgres://me@host/shop, mysql://me@host/shop and \
             mongodb://me@host/shop are"
        ))
        .into()),
    }
}

/// A plan that every verb reads: anything else would be our mistake.
fn checked(plan: &str) -> Result<&str> {
    for scale in Experiment::scales(plan) {
        let read = Experiment::parse(plan, &scale, &[]).map_err(|error| error.to_string());
        let attached = read.and_then(|mut experiment| {
            super::plan::attach(&mut experiment).map_err(|error| error.to_string())
        });
        attached.map_err(|error| anyhow::anyhow!("the plan that was learned is none ({error}):\n{plan}"))?;
    }
    Ok(plan)
}

fn tell(learned: &Learned, path: &str) {
    eprintln!("{path}: {} % of all calls", significant(100.0 * learned.covered, 3));
    for (why, share) in &learned.left_out {
        eprintln!("  left out: {} %: {why}", significant(100.0 * share, 3));
    }
    for what in &learned.assumed {
        eprintln!("  assumed: {what}");
    }
}
