//! The verbs, one file each.

pub mod agent;
pub mod audit;
pub mod breaking;
mod by_fleet;
pub mod compare;
pub mod disk;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod find;
pub mod fleet;
pub mod lab;
pub mod learn;
pub mod list;
pub mod package_files;
pub mod pgbench;
pub mod plan;
pub mod planning;
pub mod report;
pub mod run;
pub mod self_test;
pub mod tour;
pub mod ycsb;

use crate::live::{Live, LiveArgument};
use crate::store::Store;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{Address, Spec};
use tipover_core::nearest::nearest;

/// What the user gave cannot be used; ends the program with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// How a command ended, when nothing stopped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Everything held.
    Held,
    /// Something did not hold, or a trial failed.
    NotHeld,
    /// A drop-in's run was cut short, in which its model ends with 2.
    Aborted,
}

/// A word of a command line as one would type it: in quotes where the shell would else take it for several.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// What a proposed command says of the results folder: nothing of the usual one.
pub fn results_flag(results: &Path) -> String {
    match results.to_str() {
        Some("results") => String::new(),
        _ => format!("--results {} ", quoted(&results.display().to_string())),
    }
}

/// Where a result is: the path that was given, or the results of that name.
///
/// # Errors
/// There is neither.
pub fn located(given: &Path, results: &Path) -> anyhow::Result<PathBuf> {
    let named = results.join(given);
    if given.exists() || !named.exists() {
        let names = Store::names(results);
        let near = nearest(&given.to_string_lossy(), names.iter().map(String::as_str));
        return match (given.exists(), near) {
            (true, _) => Ok(given.to_path_buf()),
            (false, Some(name)) => Err(BadInput(format!(
                "{}: no such file or folder; did you mean the results of `{name}`?",
                given.display()
            ))
            .into()),
            (false, None) => Err(BadInput(format!(
                "{}: no such file or folder, and no results of that name: `tipover list` shows those there are",
                given.display()
            ))
            .into()),
        };
    }
    Ok(named)
}

/// Lets the run `name` be followed in a browser, if that was asked for.
///
/// # Errors
/// Nobody can listen there.
pub fn follow(live: LiveArgument, name: &str, command: &str) -> anyhow::Result<Option<Live>> {
    Ok(live.open(name, command).map_err(|error| BadInput(format!("{error:#}")))?)
}

/// NAME=VALUE, as a flag takes it.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// The settings of a connection.
fn connection(kind: &str, address: &Address) -> anyhow::Result<Spec> {
    let spec = serde_json::json!({
        "target": {"kind": kind},
        "disk": {"size": 0},
        "workload": {"kind": "ycsb"},
        "load": {"sessions": 1},
    });
    let mut spec: Spec = serde_json::from_value(spec).context("the settings of a connection")?;
    spec.target.address = Some(address.clone());
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::{located, pair, quoted};
    use std::path::Path;

    #[test]
    fn words_with_blanks_are_quoted_for_the_shell() {
        assert_eq!(quoted("results/a-1"), "results/a-1");
        assert_eq!(quoted("my disk"), "'my disk'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_result_is_a_path_or_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        std::fs::create_dir_all(results.join("working-set")).unwrap();
        std::fs::write(results.join("working-set/plan.toml"), "").unwrap();
        let of = |given: &str| located(Path::new(given), &results).map_err(|error| error.to_string());
        assert_eq!(of("working-set"), Ok(results.join("working-set")));
        assert_eq!(of(folder.path().to_str().unwrap()), Ok(folder.path().to_path_buf()));
        assert!(of("workingset").unwrap_err().contains("did you mean the results of `working-set`?"));
        assert!(
            of("xyz").unwrap_err().starts_with("xyz: no such file or folder, and no results of that name")
        );
    }

    #[test]
    fn a_pair_is_a_name_and_a_value() {
        assert_eq!(pair("a = b=c"), Ok(("a".into(), "b=c".into())));
        for wrong in ["a", "=b", " =b", ""] {
            assert!(pair(wrong).unwrap_err().contains("is not NAME=VALUE"), "{wrong}");
        }
    }
}
