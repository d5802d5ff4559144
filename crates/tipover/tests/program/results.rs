//! A results folder, read as any other program would read it.

use super::Place;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tipover_core::record::{Interval, Record, Verdict};

/// A trial's folder.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Where it is.
    pub folder: PathBuf,
    /// When its record was written.
    pub written: SystemTime,
    /// What it says.
    pub record: Record,
}

impl Kept {
    /// The lines of its series.
    pub fn series(&self) -> Vec<Interval> {
        let path = self.folder.join("series.jsonl");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
            .collect()
    }

    /// Its label on an axis; empty if it lacks that axis.
    pub fn label(&self, axis: &str) -> &str {
        self.record.label(axis).unwrap_or_default()
    }

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match &self.record.verdict {
            Verdict::Failed { reason } => Some(reason),
            _ => None,
        }
    }

    /// Operations per second.
    pub fn throughput(&self) -> f64 {
        self.record.measured.as_ref().map_or(0.0, |m| m.throughput())
    }
}

/// All trials of an experiment that were kept. Every record must be whole.
pub fn kept(place: &Place, experiment: &str) -> Vec<Kept> {
    let root = place.here().join("results").join(experiment);
    let records = below(&root).into_iter().filter(|path| {
        // What is staged does not exist yet.
        path.ends_with("record.json") && !path.to_string_lossy().contains(".staged")
    });
    records
        .map(|path| {
            let path = root.join(path);
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let record = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let written = fs::metadata(&path).and_then(|m| m.modified()).expect("it was just read");
            Kept { folder: path.parent().expect("a file is in a folder").into(), written, record }
        })
        .collect()
}

/// When each record was written, by its folder.
pub fn times(kept: &[Kept]) -> BTreeMap<PathBuf, SystemTime> {
    kept.iter().map(|k| (k.folder.clone(), k.written)).collect()
}

/// Fails unless every trial of `before` is there unchanged among `after`.
#[track_caller]
pub fn assert_untouched(before: &[Kept], after: &[Kept]) {
    let after = times(after);
    for (folder, written) in times(before) {
        assert_eq!(after.get(&folder), Some(&written), "{} was written again", folder.display());
    }
}

/// Everything below a folder, by relative path, folders before what they hold.
pub fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let Ok(entries) = fs::read_dir(folder.join(&relative)) else { continue };
        for entry in entries.flatten() {
            let path = relative.join(entry.file_name());
            // A link or a dead mount is listed, never entered.
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                left.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}
