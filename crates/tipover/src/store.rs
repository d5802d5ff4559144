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
//! ```

use anyhow::{Context, Result, bail};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::experiment::{Experiment, Trial};
use tipover_core::measure::Latencies;
use tipover_core::record::{FORMAT, Interval, Record, Verdict};

/// The results of one experiment.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
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
    /// When it holds the results of another plan, unless `replace_plan`.
    pub fn open(results: &Path, experiment: &Experiment, plan: &str, replace_plan: bool) -> Result<Store> {
        let folder = results.join(&experiment.name);
        let path = folder.join("plan.toml");
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
        self.folder.join(trial.cell.id()).join(trial.repeat.to_string())
    }

    /// The record of a trial, if it was carried out.
    pub fn record(&self, trial: &Trial<'_>) -> Result<Option<Record>> {
        let path = self.trial_folder(trial).join("record.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
        };
        let record: Record =
            serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        if record.format != FORMAT {
            bail!("{} has format {}, this program reads {FORMAT}", path.display(), record.format);
        }
        Ok(Some(record))
    }

    /// The records of all trials of `experiment` that were carried out, in the order of its cells.
    pub fn records(&self, experiment: &Experiment) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            for repeat in 0..experiment.repeats {
                records.extend(self.record(&Trial { cell, repeat })?);
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

    /// Keeps a trial. When this returns it is on the disk, whole; if it does not, nothing of it is there.
    pub fn keep(&self, trial: &Trial<'_>, record: &Record, series: &[Interval]) -> Result<()> {
        let folder = self.trial_folder(trial);
        let cell = folder.parent().expect("a trial's folder is in its cell's");
        fs::create_dir_all(cell).with_context(|| format!("creating {}", cell.display()))?;
        let staged_path = cell.join(format!(".staged-{}", trial.repeat));
        let _ = fs::remove_dir_all(&staged_path);
        fs::create_dir(&staged_path).with_context(|| format!("creating {}", staged_path.display()))?;
        let mut staged = Staged(Some(staged_path.clone()));
        write_file(&staged_path.join("record.json"), |file| {
            serde_json::to_writer_pretty(&mut *file, record)?;
            Ok(file.write_all(b"\n")?)
        })?;
        write_file(&staged_path.join("series.jsonl"), |file| {
            for interval in series {
                serde_json::to_writer(&mut *file, interval)?;
                file.write_all(b"\n")?;
            }
            Ok(())
        })?;
        write_file(&staged_path.join("latency.hlog"), |file| write_log(file, record, series))?;
        sync_folder(&staged_path)?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&staged_path, &folder).with_context(|| format!("renaming into {}", folder.display()))?;
        staged.0 = None;
        sync_folder(cell)
    }
}

/// HdrHistogram's interval log: one line per interval, tagged with phase; times in seconds, values in
/// nanoseconds written with a unit of microseconds as its viewers expect for their axis.
fn write_log(file: &mut BufWriter<File>, record: &Record, series: &[Interval]) -> Result<()> {
    let start = std::time::UNIX_EPOCH + Duration::from_secs(record.provenance.started_unix_s);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("tipover {} {}: residence in nanoseconds", record.experiment, record.cell))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(file, &mut serializer)?;
    for interval in series {
        let latencies = Latencies::from_text(&interval.latency).map_err(anyhow::Error::msg)?;
        let tag = Tag::new(&interval.phase).context("a phase's name is a valid tag")?;
        log.write_histogram(
            latencies.residence(),
            Duration::from_nanos(interval.begin.0),
            interval.end.since(interval.begin),
            Some(tag),
        )
        .map_err(|e| anyhow::anyhow!("writing an interval: {e:?}"))?;
    }
    Ok(())
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
