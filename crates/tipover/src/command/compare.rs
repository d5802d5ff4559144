//! `tipover compare`: is there a difference, how large, and which one could have been seen?

use super::audit::{files, study_of};
use super::run::command_line;
use super::{BadInput, Ending, located};
use crate::report::{self, Terminal};
use crate::study::comparison::{Side, compare_sides, history};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use tipover_core::learn::Seen;
use tipover_core::record;
use tipover_core::units::Ratio;

/// Compare two results: is there a difference, and which could have been seen
///
/// A result is the name of results that `tipover list` shows, a results folder, a cell's folder in it, a
/// record.json, or a file (or a folder of files, one per trial) that YCSB, go-ycsb, sysbench, fio, pgbench or
/// iostat wrote, or that `tipover learn --json` printed. Cells are matched by their labels; two results of
/// one cell each are compared whatever their settings. Exit codes: 0 no figure is worse, 1 one is, or too few
/// trials cannot tell, 2 nothing could be compared.
#[derive(Debug, Args)]
pub struct Compare {
    /// The results: first the one to compare with
    #[arg(required = true, value_name = "RESULT")]
    sides: Vec<PathBuf>,

    /// The first result measured once more: what differs between the two is the noise floor
    #[arg(long, value_name = "RESULT")]
    again: Option<PathBuf>,

    /// The smallest difference, or change of level, that matters
    #[arg(long, default_value = "2 %")]
    least: Ratio,

    /// The largest p of a difference, or change of level, after correction for all figures
    #[arg(long, default_value_t = 0.01)]
    p: f64,

    /// Find changes of level over any number of results, oldest first
    #[arg(long, conflicts_with = "again")]
    history: bool,

    /// Write the page as HTML too
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Compare {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let sides = self.sides.iter().map(|path| side(path, results)).collect::<Result<Vec<Side>>>()?;
        if !(self.p > 0.0 && self.p < 1.0) {
            return Err(BadInput(format!("--p {}: it lies between 0 and 1", self.p)).into());
        }
        let (page, held) = if self.history {
            let courses = history(&sides, self.least.0, self.p);
            let held = !courses.iter().any(|course| course.got_worse() || course.cannot_tell());
            (report::of_history(&sides, &courses, &command_line()), held)
        } else {
            let [a, b] = sides.as_slice() else {
                let n = sides.len();
                return Err(
                    BadInput(format!("{n} results: give two, or --history for a series of them")).into()
                );
            };
            let again = self.again.as_deref().map(|path| side(path, results)).transpose()?;
            let found = compare_sides(a, b, again.as_ref(), self.least.0, self.p);
            if found.all.is_empty() {
                let why = found.not_compared.join("; ");
                return Err(BadInput(format!("nothing to compare: {why}")).into());
            }
            (report::of_comparison(a, b, &found, &command_line()), found.held())
        };
        if let Some(output) = &self.output {
            std::fs::write(output, report::html(&page))
                .with_context(|| format!("writing {}", output.display()))?;
        }
        if json {
            println!("{}", page.to_json());
        } else {
            print!("{}", report::text(&page, Terminal::detect()));
        }
        Ok(if held { Ending::Held } else { Ending::NotHeld })
    }
}

/// Everything at `path`, or in the results of that name: trials of ours, or of others.
///
/// # Errors
/// There is no result.
pub fn side(path: &Path, results: &Path) -> Result<Side> {
    let located = located(path, results)?;
    let path = located.as_path();
    let mut side = Side::new(&path.display().to_string());
    let mut refused = Vec::new();
    for (number, file) in files(path)?.into_iter().enumerate() {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if file.file_name().is_some_and(|name| name == "record.json") {
            match record::read(&text) {
                Ok(record) => side.add_record(&record, &run_of(&file)),
                Err(error) => refused.push(format!("{}: {error}", file.display())),
            }
            continue;
        }
        if text.contains("\"learned_format\"") {
            match Seen::parse(&text) {
                Ok(seen) => side.add_learned(&seen),
                Err(error) => refused.push(format!("{}: {error}", file.display())),
            }
            continue;
        }
        // What stands beside a record is the same trial again.
        if file.with_file_name("record.json").exists() {
            continue;
        }
        match study_of(&file, !path.is_dir()) {
            Ok(Some(study)) => side.add_study(&study, number as u32),
            Ok(None) => {}
            Err(error) => refused.push(format!("{}: {error}", file.display())),
        }
    }
    if side.cells.is_empty() {
        refused.extend(side.left_out);
        let why = if refused.is_empty() { "there is no result".into() } else { refused.join("; ") };
        return Err(BadInput(format!("{}: {why}", path.display())).into());
    }
    side.left_out.extend(refused);
    Ok(side)
}

/// The results folder of a record: `results/<experiment>/<cell>/<repeat>/record.json`.
fn run_of(record: &Path) -> String {
    let path = record.canonicalize().unwrap_or_else(|_| record.to_path_buf());
    path.ancestors().nth(3).map_or_else(String::new, |folder| folder.display().to_string())
}
