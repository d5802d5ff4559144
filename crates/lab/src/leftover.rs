//! Finds and removes the groups of runs that were killed before they could clean up.

use crate::cgroups::Files;
use crate::group::{folders, kill, processes_below, remove_below};
use crate::{Cgroups, LimitError, Name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Deeper than any real tree of groups; a bound against a tree that grows while it is walked.
const DEPTH: usize = 16;

/// A group whose owner no longer lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its name, which says who owned it.
    pub name: String,
    /// Its directories, one per hierarchy.
    pub paths: Vec<PathBuf>,
    /// What still runs in it.
    pub processes: Vec<u32>,
}

/// What [`clean`] did.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Groups that are gone now.
    pub removed: Vec<Leftover>,
    /// Groups that are still there, and why.
    pub failed: Vec<(Leftover, LimitError)>,
}

/// Groups on this machine whose owner no longer lives. Groups of living runs, and of other containers, are
/// not listed.
pub fn leftovers() -> Result<Vec<Leftover>, LimitError> {
    Ok(Cgroups::look()?.leftovers())
}

/// Kills what runs in leftover groups and removes them. Safe while other runs work: theirs are not leftovers.
pub fn clean() -> Result<Cleaned, LimitError> {
    Ok(Cgroups::look()?.clean())
}

impl Cgroups {
    /// See [`leftovers`].
    pub fn leftovers(&self) -> Vec<Leftover> {
        let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for hierarchy in &self.hierarchies {
            walk(&hierarchy.point, DEPTH, &mut |name, path| {
                let paths = found.entry(name.to_string()).or_default();
                if !name.owner_may_live(&self.files.root) && !paths.contains(&path.to_path_buf()) {
                    paths.push(path.to_path_buf());
                }
            });
        }
        let leftover = |(name, paths): (String, Vec<PathBuf>)| {
            let mut processes: Vec<u32> = paths.iter().flat_map(|path| processes_below(path)).collect();
            processes.sort_unstable();
            processes.dedup();
            Leftover { name, paths, processes }
        };
        found.into_iter().filter(|(_, paths)| !paths.is_empty()).map(leftover).collect()
    }

    /// See [`clean`].
    pub fn clean(&self) -> Cleaned {
        let mut cleaned = Cleaned::default();
        for leftover in self.leftovers() {
            match remove(&self.files, &leftover) {
                Ok(()) => cleaned.removed.push(leftover),
                Err(error) => cleaned.failed.push((leftover, error)),
            }
        }
        cleaned
    }
}

fn remove(files: &Files, leftover: &Leftover) -> Result<(), LimitError> {
    let paths: Vec<&Path> = leftover.paths.iter().map(PathBuf::as_path).collect();
    let began = Instant::now();
    loop {
        let processes: Vec<u32> = paths.iter().flat_map(|path| processes_below(path)).collect();
        if processes.is_empty() {
            break;
        }
        if began.elapsed() > Duration::from_secs(5) {
            return Err(LimitError::Stuck {
                name: leftover.name.clone(),
                what: "killing",
                seconds: 5,
                processes,
            });
        }
        kill(files, &paths, &processes);
        std::thread::sleep(Duration::from_millis(5));
    }
    paths.iter().try_for_each(|path| remove_below(files, path))
}

fn walk(path: &Path, depth: usize, visit: &mut dyn FnMut(&Name, &Path)) {
    for below in folders(path) {
        let name =
            below.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<Name>().ok());
        match name {
            // What is below one of ours is removed with it.
            Some(name) => visit(&name, &below),
            None if depth > 0 => walk(&below, depth - 1, visit),
            None => {}
        }
    }
}
