//! Where records are kept.
//!
//! Problems that shaped it: a run may be killed at any moment, so a trial exists from the moment its folder
//! is renamed into place and not before; a changed setting must not reuse an old result, so a cell's folder
//! carries the hash of its spec; a failed trial is worth knowing but must be tried again.
//!
//! ```text
//! results/<experiment>/plan.toml                     the plan as given
//! results/<experiment>/<cell>/<repeat>/record.json   spec, facts, phases, raw counters
//!                                      latency.hlog  a histogram per interval, for any HdrHistogram viewer
//!                                      series.jsonl  all counters per interval
//!                                      history.bin   what sessions saw, where that is checked or broken
//!                                      evidence.json what was read back for that
//!                                      accesses.trace  every request that reached the disk, if wanted;
//!                                                    in block mode with accesses.trace.map: whose it is
//! ```

use anyhow::{Context, Result, bail};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::check::Event;
use tipover_core::check::binary::Encoder;
use tipover_core::experiment::{Cell, Experiment, Trial, redact};
use tipover_core::measure::{Books, Histogram};
use tipover_core::op::OpKind;
use tipover_core::record::{self, Interval, Record, Verdict};
use tipover_core::search::SearchRecord;
use tipover_core::storage::BenchRecord;
use tipover_core::units::Tick;

/// The results of one experiment.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

fn staged_name(trial: &Trial<'_>) -> String {
    format!(".staged-{}", trial.folder())
}

/// An empty folder for what is written while `trial` runs; [`Store::keep`] keeps it with the rest. One that a
/// killed run left there is removed.
///
/// # Errors
/// When it cannot be made.
pub fn stage(results: &Path, trial: &Trial<'_>) -> Result<PathBuf> {
    let staged = results.join(trial.cell.id()).join(staged_name(trial));
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
pub struct Recording(tempfile::TempDir);

impl Recording {
    /// A place for one, below `folder`.
    pub fn in_folder(folder: &Path) -> Result<Recording> {
        let folder = std::path::absolute(folder)?;
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let own = tempfile::Builder::new().prefix("trace-").tempdir_in(&folder);
        Ok(Recording(own.with_context(|| format!("making a folder in {}", folder.display()))?))
    }

    /// Where the trace lies, and beside it the map of files.
    pub fn path(&self) -> PathBuf {
        self.0.path().join(TRACE)
    }
}

const TRACE: &str = "accesses.trace";

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
    /// When it holds the results of another plan, unless `replace_plan`.
    pub fn open(results: &Path, experiment: &Experiment, plan: &str, replace_plan: bool) -> Result<Store> {
        let folder = results.join(&experiment.name);
        let path = folder.join("plan.toml");
        // What is kept has no password in it.
        let plan = redact(plan);
        let plan = plan.as_str();
        match fs::read_to_string(&path) {
            Ok(present) if present == plan => {}
            Ok(present) if !replace_plan => {
                let line = present.lines().zip(plan.lines()).take_while(|(a, b)| a == b).count() + 1;
                bail!(
                    "{} holds results of another version of this plan (they differ from line {line} on): use another \
                     --results folder, or --replace-plan to keep what still fits and measure the rest",
                    folder.display()
                );
            }
            Ok(_) | Err(_) => {
                if !path.exists() && folder.exists() && fs::read_dir(&folder)?.next().is_some() {
                    bail!(
                        "{} is not a results folder: it has no plan.toml; give another --results",
                        folder.display()
                    );
                }
                fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
                write_file(&path, |file| Ok(file.write_all(plan.as_bytes())?))?;
            }
        }
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
        if !folder.join("plan.toml").exists() {
            let known = Self::names(results);
            if known.is_empty() {
                bail!("there are no results in {}: make some with `tipover run {name}`", results.display());
            }
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            bail!("{}: {}", results.display(), tipover_core::experiment::unknown("results", name, &known));
        }
        Ok(Store { folder })
    }

    /// The plan that the results were made with.
    pub fn plan(&self) -> Result<String> {
        let path = self.folder.join("plan.toml");
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Experiments with results in a folder.
    pub fn names(results: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(results)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().join("plan.toml").exists())
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

    /// The record of a trial, if it was carried out.
    pub fn record(&self, trial: &Trial<'_>) -> Result<Option<Record>> {
        let path = self.trial_folder(trial).join("record.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
        };
        let record =
            record::read(&text).map_err(anyhow::Error::msg).with_context(|| path.display().to_string())?;
        Ok(Some(record))
    }

    /// All intervals of a trial that was carried out.
    pub fn series(&self, trial: &Trial<'_>) -> Result<Vec<Interval>> {
        let path = self.trial_folder(trial).join("series.jsonl");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let parsed =
            |line| serde_json::from_str(line).with_context(|| format!("{} is damaged", path.display()));
        text.lines().map(parsed).collect()
    }

    /// The trace of a trial that was carried out, if it was to be traced.
    pub fn trace(&self, trial: &Trial<'_>) -> Option<PathBuf> {
        Some(self.trial_folder(trial).join(TRACE)).filter(|path| path.exists())
    }

    /// The records of all trials of `experiment` that were carried out, in the order of its cells, twins
    /// beside their trials.
    pub fn records(&self, experiment: &Experiment) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            for repeat in 0..experiment.repeats {
                for twin in [false, true] {
                    records.extend(self.record(&Trial { cell, repeat, twin })?);
                }
            }
        }
        Ok(records)
    }

    /// The trials that are not there yet, or failed; with `retry`, also those that cannot be believed.
    pub fn missing<'a>(&self, trials: Vec<Trial<'a>>, retry: bool) -> Result<Vec<Trial<'a>>> {
        let mut missing = Vec::new();
        for trial in trials {
            let again = match self.record(&trial)?.map(|record| record.verdict) {
                None | Some(Verdict::Failed { .. }) => true,
                Some(Verdict::Invalid { .. }) => retry,
                Some(Verdict::Valid) => false,
            };
            if again {
                missing.push(trial);
            }
        }
        Ok(missing)
    }

    /// How the backlog of a trial's measured phase went: seconds since the phase began, and operations due
    /// and not sent then. Empty for closed loops and for what was not measured.
    pub fn backlog(&self, trial: &Trial<'_>) -> Result<Vec<(f64, u64)>> {
        /// The little that is wanted of a [`Interval`], whose histograms are dear to read.
        #[derive(Deserialize)]
        struct Line {
            phase: String,
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
            if let ("measure", Some(offered)) = (line.phase.as_str(), line.offered) {
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

    /// Keeps a trial under faults with what its clients saw, as whole as [`Store::keep`] does.
    pub fn keep_broken(&self, trial: &Trial<'_>, record: &Record, history: &[Event]) -> Result<()> {
        self.keep_with(trial, record, |folder| {
            write_file(&folder.join("history.bin"), |file| {
                let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
                for event in history {
                    encoder.encode(event, &mut bytes);
                    file.write_all(&bytes)?;
                    bytes.clear();
                }
                Ok(())
            })
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
        let staged_path = match record.checked.is_some() {
            // What was written while the trial ran is there already.
            true => cell.join(staged_name(trial)),
            false => stage(&self.folder, trial)?,
        };
        let mut staged = Staged(Some(staged_path.clone()));
        write_file(&staged_path.join("record.json"), |file| {
            serde_json::to_writer_pretty(&mut *file, record)?;
            Ok(file.write_all(b"\n")?)
        })?;
        write_more(&staged_path)?;
        sync_folder(&staged_path)?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&staged_path, &folder).with_context(|| format!("renaming into {}", folder.display()))?;
        staged.0 = None;
        sync_folder(cell)
    }
}

/// Searches: `results/<experiment>/<cell>/search.json`.
impl Store {
    fn search_path(&self, cell: &Cell) -> PathBuf {
        self.folder.join(cell.id()).join("search.json")
    }

    /// The search of a cell, if one was begun.
    pub fn search(&self, cell: &Cell) -> Result<Option<SearchRecord>> {
        let path = self.search_path(cell);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(
                serde_json::from_str(&text).with_context(|| format!("{} is no search", path.display()))?,
            )),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// The searches of all cells of `experiment` that were begun, in the order of its cells.
    pub fn searches(&self, experiment: &Experiment) -> Result<Vec<SearchRecord>> {
        let mut found = Vec::new();
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            found.extend(self.search(cell)?);
        }
        Ok(found)
    }

    /// Keeps a search as far as it has come, in place of what was kept before.
    pub fn keep_search(&self, cell: &Cell, record: &SearchRecord) -> Result<()> {
        let path = self.search_path(cell);
        let folder = path.parent().expect("a search lies in its cell's folder");
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let staged = folder.join(".staged-search.json");
        write_file(&staged, |file| {
            serde_json::to_writer_pretty(&mut *file, record)?;
            Ok(file.write_all(b"\n")?)
        })?;
        fs::rename(&staged, &path).with_context(|| format!("renaming into {}", path.display()))?;
        sync_folder(folder)
    }
}

/// HdrHistogram's interval log: for each interval and class of operations a line, tagged `measure.READ`, and
/// one for those that failed, `measure.READ-FAILED`. Times in seconds; values in nanoseconds, the maximum
/// divided to milliseconds as viewers expect for their axis.
fn write_log(file: &mut BufWriter<File>, record: &Record, series: &[Interval]) -> Result<()> {
    let pieces = series.iter().map(|interval| {
        let books = Books::from_text(&interval.books).map_err(anyhow::Error::msg)?;
        Ok(Piece { phase: &interval.phase, begin: interval.begin, end: interval.end, books })
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
    let loads = record.measured.iter().map(|measured| ("measure", measured));
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
    let staged_path = parent.join(format!(".staged-{}", std::process::id()));
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

fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(doing)?);
    write(&mut file).with_context(doing)?;
    file.into_inner().map_err(|e| e.into_error()).and_then(|f| f.sync_all()).with_context(doing)
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| format!("flushing {}", folder.display()))
}
