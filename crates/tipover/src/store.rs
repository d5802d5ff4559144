//! Where records are kept.
//!
//! Problems that shaped it: a run may be killed at any moment, so a trial exists from the moment its folder
//! is renamed into place and not before; a changed setting must not reuse an old result, so a cell's folder
//! carries the hash of its spec; a failed trial is worth knowing but must be tried again; and what a disk
//! damaged since must not stand in the way of all that is whole: a damaged trial is a missing one, and is
//! said to be.
//!
//! ```text
//! results/<experiment>/plan.toml                     the plan as given
//! results/<experiment>/<cell>/<repeat>/record.json   spec, facts, phases, raw counters
//!                                      latency.hlog  a histogram per interval, for any HdrHistogram viewer
//!                                      series.jsonl  all counters per interval
//!                                      history.bin   what sessions saw, where that is checked or broken
//!                                      evidence.json what it is judged by besides: final reads, faults
//!                                      accesses.trace  every request that reached the disk, if wanted;
//!                                                    in block mode with accesses.trace.map: whose it is
//! ```

pub use fates::Fate;

use crate::processors;
use anyhow::{Context, Result, bail};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::Deserialize;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::experiment::{Cell, Experiment, Trial, redact};
use tipover_core::measure::{Books, Histogram};
use tipover_core::op::OpKind;
use tipover_core::record::{Interval, Phase, Reader, Record, Unreadable};
use tipover_core::search::SearchRecord;
use tipover_core::storage::BenchRecord;
use tipover_core::units::Tick;
use tipover_lab::Scratch;

/// The records of an experiment.
#[derive(Debug, Default)]
pub struct Records {
    /// Those that can be read.
    pub whole: Vec<Record>,
    /// Of each that cannot, a sentence with what to do.
    pub damaged: Vec<String>,
}

/// The results of one experiment.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

fn staged_name(folder: &str) -> String {
    format!("{STAGED}{folder}")
}

/// An empty folder for what is written while `trial` runs; [`Store::keep`] keeps it with the rest. One that a
/// killed run left there is removed.
///
/// # Errors
/// When it cannot be made.
pub fn stage(results: &Path, trial: &Trial<'_>) -> Result<PathBuf> {
    stage_as(results, trial.cell, &trial.folder())
}

fn stage_as(results: &Path, cell: &Cell, name: &str) -> Result<PathBuf> {
    let staged = results.join(cell.id()).join(staged_name(name));
    let _ = fs::remove_dir_all(&staged);
    fs::create_dir_all(&staged).with_context(|| format!("creating {}", staged.display()))?;
    // The process that writes may have another working folder.
    std::path::absolute(&staged).with_context(|| format!("finding {}", staged.display()))
}

/// What is kept of a trial.
pub struct Kept {
    /// Everything that figures are made from.
    pub record: Record,
    /// All counters per interval.
    pub series: Vec<Interval>,
    /// What reached the disk while measuring, if that was recorded.
    pub accesses: Option<Recording>,
}

/// A trace of a disk, in a folder that is removed with it.
pub struct Recording(Scratch);

impl Recording {
    /// A place for one, below `folder`.
    pub fn in_folder(folder: &Path) -> Result<Recording> {
        let folder = std::path::absolute(folder)?;
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let own = Scratch::create_in(&folder);
        Ok(Recording(own.with_context(|| format!("making a folder in {}", folder.display()))?))
    }

    /// Where the trace lies, and beside it the map of files.
    pub fn path(&self) -> PathBuf {
        self.0.path().join(TRACE)
    }
}

const TRACE: &str = "accesses.trace";
const PLAN: &str = "plan.toml";
/// What is being written has a name that begins so until it is whole.
const STAGED: &str = ".staged-";

/// What there is where a whole thing is looked for.
#[derive(Debug)]
enum Found<T> {
    Nothing,
    /// There was one; a sentence says why it cannot be read, and what to do.
    Damaged(String),
    Whole(T),
}

impl<T> Found<T> {
    fn whole(self) -> Option<T> {
        match self {
            Found::Whole(whole) => Some(whole),
            Found::Nothing | Found::Damaged(_) => None,
        }
    }
}

/// Reads what lies at `path`, with `parse`.
///
/// # Errors
/// The system refuses: what may be whole must not be taken for damaged, and be replaced.
fn look<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, Unreadable>) -> Result<Found<T>> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    let parsed = match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text),
        Err(error) => Err(Unreadable::Damaged(error.to_string())),
    };
    match parsed {
        Ok(whole) => Ok(Found::Whole(whole)),
        Err(Unreadable::Damaged(error)) => Ok(Found::Damaged(damaged(path, &error))),
        Err(Unreadable::OtherFormat(sentence)) => bail!("{}: {sentence}", path.display()),
    }
}

fn damaged(path: &Path, why: &str) -> String {
    let kept = aside(path.parent().filter(|_| path.ends_with(RECORD)).unwrap_or(path));
    format!(
        "{} is damaged ({why}) and counts as missing: running again measures it anew, and keeps what is left of \
         it as {}",
        path.display(),
        kept.display()
    )
}

/// A name beside `path` that is not taken: `0.damaged`, `0.damaged-2` and so on.
fn aside(path: &Path) -> PathBuf {
    let named = |suffix: String| {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(suffix);
        path.with_file_name(name)
    };
    let others = (2..).map(|n| named(format!(".damaged-{n}")));
    let mut names = std::iter::once(named(".damaged".into())).chain(others);
    names.find(|path| !path.exists()).expect("numbers do not end")
}

const RECORD: &str = "record.json";

const SEARCH: &str = "search.json";

/// The record in a trial's folder.
fn look_for_record(folder: &Path) -> Result<Found<Record>> {
    look_for_record_with(folder, &mut Reader::default())
}

/// The same, of one after the other.
fn look_for_record_with(folder: &Path, reader: &mut Reader) -> Result<Found<Record>> {
    let path = folder.join(RECORD);
    Ok(match look(&path, |text| reader.read(text))? {
        // The folder came into its place with a record in it.
        Found::Nothing if folder.exists() => Found::Damaged(damaged(&path, "it is gone")),
        found => found,
    })
}

/// What lies in `folder`; nothing if it is not there.
fn names_in(folder: &Path) -> Result<HashSet<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(HashSet::new()),
        entries => entries.with_context(|| format!("reading {}", folder.display()))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<std::io::Result<_>>().with_context(|| format!("reading {}", folder.display()))
}

fn look_for_search(path: &Path) -> Result<Found<SearchRecord>> {
    look(path, |text| serde_json::from_str(text).map_err(|error| Unreadable::Damaged(error.to_string())))
}

/// Removes a staged folder unless it was renamed into place.
struct Staged(Option<PathBuf>);

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(folder) = self.0.take() {
            // What cannot be removed is found by name when the trial is staged again.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Store {
    /// The folder of `experiment` under `results`; created, with the plan in it, when absent.
    ///
    /// # Errors
    /// When it holds the results of another plan or a damaged one, unless `replace_plan`; and when nothing
    /// can be written there: better now than when the first trial is to be kept.
    pub fn open(results: &Path, experiment: &Experiment, plan: &str, replace_plan: bool) -> Result<Store> {
        let folder = results.join(&experiment.name);
        let path = folder.join(PLAN);
        // What is kept has no password in it.
        let plan = redact(plan);
        let present = match fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            read => Some(read.with_context(|| format!("reading {}", path.display()))?),
        };
        match present {
            Some(present) if present == plan.as_bytes() => {}
            Some(present) if !replace_plan => bail!("{}", not_this_plan(&path, &present, &plan)),
            None if !replace_plan && holds_anything(&folder)? => bail!(
                "{} is not a results folder: it has no plan.toml; give another --results, or --replace-plan if \
                 it had one and lost it",
                folder.display()
            ),
            _ => {
                fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
                replace_file(&path, |file| Ok(file.write_all(plan.as_bytes())?))?;
            }
        }
        tempfile::tempfile_in(&folder).with_context(|| {
            format!("nothing can be kept in {}: give another --results", folder.display())
        })?;
        Ok(Store { folder })
    }

    /// Keeps other runs out as long as what is returned lives: two at once would be in each other's numbers,
    /// and write the same trials.
    ///
    /// # Errors
    /// When another run is at work.
    pub fn reserve(&self) -> Result<File> {
        let folder =
            File::open(&self.folder).with_context(|| format!("opening {}", self.folder.display()))?;
        match folder.try_lock() {
            Ok(()) => Ok(folder),
            Err(fs::TryLockError::WouldBlock) => bail!(
                "another run is at work in {}: wait for its end, or use another --results folder",
                self.folder.display()
            ),
            // A file system without locks is no reason not to measure.
            Err(fs::TryLockError::Error(_)) => Ok(folder),
        }
    }

    /// Results that are already there.
    pub fn existing(results: &Path, name: &str) -> Result<Store> {
        let folder = results.join(name);
        if !folder.join(PLAN).exists() {
            let known = Self::names(results);
            if known.is_empty() {
                bail!("there are no results in {}", results.display());
            }
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            bail!("{}: {}", results.display(), tipover_core::experiment::unknown("results", name, &known));
        }
        Ok(Store { folder })
    }

    /// The plan that the results were made with.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn plan(&self) -> Result<String> {
        let path = self.plan_path();
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Where the plan lies that the results were made with.
    pub fn plan_path(&self) -> PathBuf {
        self.folder.join(PLAN)
    }

    /// Experiments with results in a folder.
    pub fn names(results: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(results)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().join(PLAN).exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn trial_folder(&self, trial: &Trial<'_>) -> PathBuf {
        self.folder.join(trial.cell.id()).join(trial.folder())
    }

    fn look(&self, trial: &Trial<'_>) -> Result<Found<Record>> {
        look_for_record(&self.trial_folder(trial))
    }

    /// The record of a trial, if it was carried out and the record is whole.
    ///
    /// # Errors
    /// The system refuses to read it, or it is of another version of this program.
    pub fn record(&self, trial: &Trial<'_>) -> Result<Option<Record>> {
        Ok(self.look(trial)?.whole())
    }

    /// All intervals of a trial that was carried out.
    pub fn series(&self, trial: &Trial<'_>) -> Result<Vec<Interval>> {
        intervals(&self.trial_folder(trial).join("series.jsonl"))
    }

    /// The trace of a trial that was carried out, if it was to be traced.
    pub fn trace(&self, trial: &Trial<'_>) -> Option<PathBuf> {
        Some(self.trial_folder(trial).join(TRACE)).filter(|path| path.exists())
    }

    /// The folders of the trials of `experiment` that are there, in the order of its cells, twins beside
    /// their trials.
    fn there(&self, experiment: &Experiment) -> Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            // A cell's name is a digest, and its trials may be 100,000: both are looked up once.
            let folder = self.folder.join(cell.id());
            let there = names_in(&folder)?;
            for repeat in 0..experiment.repeats {
                let names = [false, true].map(|twin| Trial { cell, repeat, twin }.folder());
                folders
                    .extend(names.iter().filter(|name| there.contains(*name)).map(|name| folder.join(name)));
            }
        }
        Ok(folders)
    }

    /// How many trials of `experiment` are there, whole or damaged.
    ///
    /// # Errors
    /// The system refuses to say.
    pub fn count(&self, experiment: &Experiment) -> Result<usize> {
        self.there(experiment).map(|folders| folders.len())
    }

    /// The records of all trials of `experiment` that were carried out, in the order of its cells, twins
    /// beside their trials.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn records(&self, experiment: &Experiment) -> Result<Records> {
        let mut records = Records::default();
        let look = |part: &[PathBuf]| {
            let mut reader = Reader::default();
            part.iter().map(|folder| look_for_record_with(folder, &mut reader)).collect()
        };
        for found in processors::share(&self.there(experiment)?, look) {
            match found? {
                Found::Nothing => {}
                Found::Damaged(sentence) => records.damaged.push(sentence),
                Found::Whole(record) => records.whole.push(record),
            }
        }
        Ok(records)
    }

    /// How the backlog of a trial's measured phase went: seconds since the phase began, and operations due
    /// and not sent then. Empty for closed loops and for what was not measured.
    pub fn backlog(&self, trial: &Trial<'_>) -> Result<Vec<(f64, u64)>> {
        /// The little that is wanted of a [`Interval`], whose histograms are dear to read.
        #[derive(Deserialize)]
        struct Line {
            phase: Phase,
            begin: Tick,
            end: Tick,
            offered: Option<Waiting>,
        }
        #[derive(Deserialize)]
        struct Waiting {
            backlog: u64,
        }
        let path = self.trial_folder(trial).join("series.jsonl");
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
            read => read.with_context(|| format!("reading {}", path.display()))?,
        };
        let mut began = None;
        let mut course = Vec::new();
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).with_context(|| path.display().to_string())?;
            if let (Phase::Measure, Some(offered)) = (line.phase, line.offered) {
                let began: Tick = *began.get_or_insert(line.begin);
                course.push((line.end.since(began).as_secs_f64(), offered.backlog));
            }
        }
        Ok(course)
    }

    /// Keeps a trial. When this returns it is on the disk, whole; if it does not, nothing of it is there.
    pub fn keep(&self, trial: &Trial<'_>, kept: &Kept) -> Result<()> {
        let Kept { record, series, accesses } = kept;
        self.keep_with(trial, record, |folder| {
            write_file(&folder.join("series.jsonl"), |file| {
                for interval in series {
                    serde_json::to_writer(&mut *file, interval)?;
                    file.write_all(b"\n")?;
                }
                Ok(())
            })?;
            write_file(&folder.join("latency.hlog"), |file| write_log(file, record, series))?;
            for file in accesses.iter().flat_map(|r| fs::read_dir(r.0.path())).flatten() {
                let file = file.context("looking for the trace")?;
                let to = folder.join(file.file_name());
                let copied = fs::copy(file.path(), &to).and_then(|_| File::open(&to)?.sync_all());
                copied.with_context(|| format!("writing {}", to.display()))?;
            }
            Ok(())
        })
    }

    fn keep_with(
        &self,
        trial: &Trial<'_>,
        record: &Record,
        write_more: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let folder = self.trial_folder(trial);
        let cell = folder.parent().expect("a trial's folder is in its cell's");
        fs::create_dir_all(cell).with_context(|| format!("creating {}", cell.display()))?;
        let staged_path = match record.checked.is_some() || record.spec.breaking.is_some() {
            // What was written while the trial ran is there already.
            true => cell.join(staged_name(&trial.folder())),
            false => stage(&self.folder, trial)?,
        };
        let staged = Staged(Some(staged_path.clone()));
        write_file(&staged_path.join(RECORD), |file| {
            serde_json::to_writer_pretty(&mut *file, record)?;
            Ok(file.write_all(b"\n")?)
        })?;
        write_more(&staged_path)?;
        self.put_in_place(trial, staged)
    }

    /// Renames what is staged, whole, to where the trial belongs.
    fn put_in_place(&self, trial: &Trial<'_>, mut staged: Staged) -> Result<()> {
        let folder = self.trial_folder(trial);
        let cell = folder.parent().expect("a trial's folder is in its cell's");
        let path = staged.0.clone().expect("it was staged just now");
        sync_folder(&path)?;
        if let Found::Damaged(_) = self.look(trial)? {
            let aside = aside(&folder);
            fs::rename(&folder, &aside).with_context(|| format!("renaming into {}", aside.display()))?;
        }
        if exchange(&path, &folder)? {
            // What was there before has the staged name now, and goes with it.
            drop(staged);
        } else {
            staged.0 = None;
        }
        sync_folder(cell)
    }
}

/// Searches: `results/<experiment>/<cell>/search.json`.
impl Store {
    fn search_path(&self, cell: &Cell) -> PathBuf {
        self.folder.join(cell.id()).join(SEARCH)
    }

    fn look_for_search(&self, cell: &Cell) -> Result<Found<SearchRecord>> {
        look_for_search(&self.search_path(cell))
    }

    /// The search of a cell, if one was begun and is whole; `note` hears of a damaged one.
    ///
    /// # Errors
    /// The system refuses to read it.
    pub fn search(&self, cell: &Cell, note: impl FnOnce(&str)) -> Result<Option<SearchRecord>> {
        let found = self.look_for_search(cell)?;
        if let Found::Damaged(sentence) = &found {
            note(sentence);
        }
        Ok(found.whole())
    }

    /// The searches of all cells of `experiment` that were begun, in the order of its cells; `note` hears of
    /// damaged ones.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn searches(&self, experiment: &Experiment, mut note: impl FnMut(&str)) -> Result<Vec<SearchRecord>> {
        let mut found = Vec::new();
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            found.extend(self.search(cell, &mut note)?);
        }
        Ok(found)
    }

    /// Every search in this folder: those of `experiment` first, then those that were made with other
    /// settings.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn every_search(
        &self,
        experiment: &Experiment,
        mut note: impl FnMut(&str),
    ) -> Result<Vec<SearchRecord>> {
        let mut found = self.searches(experiment, &mut note)?;
        let cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
        let known: Vec<PathBuf> = cells.map(|cell| self.search_path(cell)).collect();
        let entries =
            fs::read_dir(&self.folder).with_context(|| format!("reading {}", self.folder.display()))?;
        let mut others: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join(SEARCH)).collect();
        others.retain(|path| !known.contains(path) && path.exists());
        others.sort();
        for path in others {
            match look_for_search(&path)? {
                Found::Damaged(sentence) => note(&sentence),
                other => found.extend(other.whole()),
            }
        }
        Ok(found)
    }

    /// How many trials and searches are kept here, whatever became of them.
    pub fn counts(&self) -> (usize, usize) {
        let within =
            |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let cells: Vec<PathBuf> = within(&self.folder).collect();
        let trials = cells.iter().flat_map(|cell| within(cell)).filter(|trial| trial.join(RECORD).exists());
        (trials.count(), cells.iter().filter(|cell| cell.join(SEARCH).exists()).count())
    }

    /// Keeps a search as far as it has come, in place of what was kept before.
    ///
    /// # Errors
    /// It cannot be written; what was kept before is there still.
    pub fn keep_search(&self, cell: &Cell, record: &SearchRecord) -> Result<()> {
        let path = self.search_path(cell);
        let folder = path.parent().expect("a search lies in its cell's folder");
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        if let Found::Damaged(_) = self.look_for_search(cell)? {
            let aside = aside(&path);
            fs::rename(&path, &aside).with_context(|| format!("renaming into {}", aside.display()))?;
        }
        replace_file(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, record)?;
            Ok(file.write_all(b"\n")?)
        })
    }
}

/// The intervals in a `series.jsonl`.
///
/// # Errors
/// It cannot be read.
pub fn intervals(path: &Path) -> Result<Vec<Interval>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let parsed = |line| serde_json::from_str(line).with_context(|| format!("{} is damaged", path.display()));
    text.lines().map(parsed).collect()
}

/// HdrHistogram's interval log: for each interval and class of operations a line, tagged `measure.READ`, and
/// one for those that failed, `measure.READ-FAILED`. Times in seconds; values in nanoseconds, the maximum
/// divided to milliseconds as viewers expect for their axis.
fn write_log(file: &mut BufWriter<File>, record: &Record, series: &[Interval]) -> Result<()> {
    let pieces = series.iter().map(|interval| {
        let books = Books::from_text(&interval.books).map_err(anyhow::Error::msg)?;
        Ok(Piece { phase: interval.phase.name(), begin: interval.begin, end: interval.end, books })
    });
    write_pieces(
        file,
        &format!("{} {}", record.experiment, record.cell),
        record.provenance.started_unix_s,
        pieces,
    )
}

/// One stretch of a log, with what was done in it.
struct Piece<'a> {
    phase: &'a str,
    begin: Tick,
    end: Tick,
    books: Books,
}

fn write_pieces<'a>(
    file: &mut impl Write,
    what: &str,
    started_unix_s: u64,
    pieces: impl Iterator<Item = Result<Piece<'a>>>,
) -> Result<()> {
    let start = std::time::UNIX_EPOCH + Duration::from_secs(started_unix_s);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("tipover {what}: residence in nanoseconds"))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(file, &mut serializer)?;
    for piece in pieces {
        let Piece { phase, begin, end, books } = piece?;
        let (at, length) = (Duration::from_nanos(begin.0), end.since(begin));
        for (tag, histogram) in books.kinds().into_iter().flat_map(|kind| tagged(phase, kind, &books)) {
            let tag = Tag::new(&tag).context("a phase's and a class's name are a valid tag")?;
            log.write_histogram(&histogram, at, length, Some(tag))
                .map_err(|e| anyhow::anyhow!("writing an interval: {e:?}"))?;
        }
    }
    Ok(())
}

/// The HdrHistogram log of a bench of a disk: reads, writes and flushes of each load that was measured, one
/// histogram each for the whole window.
pub fn bench_log(record: &BenchRecord) -> Result<String> {
    let mut at = Tick(0);
    let loads = record.measured.iter().map(|measured| (Phase::Measure.name(), measured));
    let durable = record.durable.iter().map(|measured| match measured.load.io.flushes {
        Some(_) => ("write-and-flush", measured),
        None => ("o-dsync", measured),
    });
    let pieces = loads.chain(durable).map(|(phase, measured)| {
        let begin = at;
        at = at + measured.window;
        Ok(Piece { phase, begin, end: at, books: measured.books().map_err(anyhow::Error::msg)? })
    });
    let mut log = Vec::new();
    let what = format!("disk bench {}", record.path.replace(char::is_control, "?"));
    write_pieces(&mut log, &what, record.provenance.started_unix_s, pieces)?;
    Ok(String::from_utf8(log)?)
}

/// What is logged of a class: residence of what was done, and of what failed.
fn tagged(phase: &str, kind: OpKind, books: &Books) -> Vec<(String, Histogram)> {
    let Some(book) = books.of(kind) else { return vec![] };
    let name = kind.name();
    let done = (book.done() > 0).then(|| (format!("{phase}.{name}"), book.latencies().residence().clone()));
    let failed = book.failed_latencies();
    let failed = failed.map(|failed| (format!("{phase}.{name}-FAILED"), failed.residence().clone()));
    done.into_iter().chain(failed).collect()
}

/// Keeps files together in a new folder below `parent`, numbered from 1; gives its path. When this returns
/// they are on the disk, all of them.
pub fn keep_numbered(parent: &Path, files: &[(&str, String)]) -> Result<PathBuf> {
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    let staged_path = parent.join(format!("{STAGED}{}", std::process::id()));
    let _ = fs::remove_dir_all(&staged_path);
    fs::create_dir(&staged_path).with_context(|| format!("creating {}", staged_path.display()))?;
    let mut staged = Staged(Some(staged_path.clone()));
    for (name, text) in files {
        write_file(&staged_path.join(name), |file| Ok(file.write_all(text.as_bytes())?))?;
    }
    sync_folder(&staged_path)?;
    let mut number = 1;
    loop {
        let folder = parent.join(number.to_string());
        // Renaming onto a folder with something in it is refused, so two runs never share one.
        match fs::rename(&staged_path, &folder) {
            Ok(()) => {
                staged.0 = None;
                sync_folder(parent)?;
                return Ok(folder);
            }
            Err(_) if folder.exists() => number += 1,
            Err(e) => return Err(e).with_context(|| format!("renaming into {}", folder.display())),
        }
    }
}

/// Why the plan at `path` does not fit, and what to do.
fn not_this_plan(path: &Path, present: &[u8], plan: &str) -> String {
    let folder = path.parent().unwrap_or(path).display();
    if plan.as_bytes().starts_with(present) || std::str::from_utf8(present).is_err() {
        let next = "--replace-plan writes it anew and keeps every trial that fits";
        return format!("{} is damaged (only its beginning is left, or no text): {next}", path.display());
    }
    let present = String::from_utf8_lossy(present);
    let line = present.lines().zip(plan.lines()).take_while(|(a, b)| a == b).count() + 1;
    format!(
        "{folder} holds results of another version of this plan (they differ from line {line} on): use another \
         --results folder, or --replace-plan to keep what still fits and measure the rest"
    )
}

/// Whether there is something in `folder` but what a run that was killed at its very beginning left.
fn holds_anything(folder: &Path) -> Result<bool> {
    match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        read => {
            let entries = read.with_context(|| format!("reading {}", folder.display()))?;
            let staged = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(STAGED);
            Ok(entries.flatten().any(|entry| !staged(&entry)))
        }
    }
}

/// Renames `staged` to `folder` in one step; says whether there was one of that name, which has the staged
/// name then.
fn exchange(staged: &Path, folder: &Path) -> Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let there = folder.exists();
    if there && renameat_with(CWD, staged, CWD, folder, RenameFlags::EXCHANGE).is_ok() {
        return Ok(true);
    }
    // A file system that cannot exchange: between these two steps neither has the name.
    let _ = fs::remove_dir_all(folder);
    fs::rename(staged, folder).with_context(|| format!("renaming into {}", folder.display()))?;
    Ok(false)
}

/// Writes a file in place of what may be there: when this returns it is on the disk, and whoever reads it
/// meanwhile finds the old one or the new one, whole.
///
/// # Errors
/// It cannot be written; then what was there is there still.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let staged = path.with_file_name(format!("{STAGED}{name}"));
    let written = write_file(&staged, write).and_then(|()| {
        fs::rename(&staged, path).with_context(|| format!("renaming into {}", path.display()))
    });
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written?;
    sync_folder(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(doing)?);
    write(&mut file).with_context(doing)?;
    file.into_inner().map_err(|e| e.into_error()).and_then(|f| f.sync_all()).with_context(doing)
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| format!("flushing {}", folder.display()))
}

mod brought;
mod fates;
#[cfg(test)]
mod tests;
