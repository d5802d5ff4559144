//! The Rust packages of the program as it is built for a machine: `cargo tree`, which knows the features in
//! use and the platform, where `cargo metadata` lists what any of them might need.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use super::portable::Machine;
use crate::process::cargo_program;
use crate::workspace::Workspace;

/// The kinds of needs whose code is in the program.
pub const LINKED: &str = "normal,no-proc-macro";
/// Also macros, which write parts of that code.
pub const LINKED_OR_WRITTEN_BY: &str = "normal";

/// One package.
#[derive(Default)]
pub struct Part {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub licence: String,
    /// From this repository, and not from a registry.
    pub ours: bool,
    /// What it needs itself, as keys of the tree.
    pub needs: BTreeSet<String>,
}

/// All of them, by name and version ("clap 4.6.7"). `edges` are kinds of needs in cargo's words.
pub fn tree(workspace: &Workspace, edges: &str, machine: Machine) -> Result<BTreeMap<String, Part>> {
    let mut command = workspace.command(cargo_program());
    command.args(["tree", "-p", "tipover", "-e", edges, "--prefix", "depth", "--locked"]);
    command.args(["--target", machine.triple]);
    let told = command.args(["--format", "{p}\t{l}\t"]).output().context("cannot start cargo")?;
    if !told.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&told.stderr));
    }
    read(&String::from_utf8_lossy(&told.stdout))
}

/// Each line is a depth, a package with where it comes from if that is no registry, its licence, and a mark
/// when its needs have been listed above.
fn read(told: &str) -> Result<BTreeMap<String, Part>> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let mut above: Vec<String> = Vec::new();
    for line in told.lines().filter(|line| !line.is_empty()) {
        let (package, licence) =
            line.split_once('\t').with_context(|| format!("cargo tree says `{line}`"))?;
        let start = package.find(|letter: char| !letter.is_ascii_digit()).unwrap_or_default();
        let (depth, package) = package.split_at(start);
        let depth: usize = depth.parse().with_context(|| format!("cargo tree says `{line}`"))?;
        let mut words = package.splitn(3, ' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree says `{line}`");
        };
        let version = version.trim_start_matches('v');
        let called = format!("{name} {version}");
        above.truncate(depth);
        if let Some(needed_by) = above.last().and_then(|needed_by| parts.get_mut(needed_by)) {
            needed_by.needs.insert(called.clone());
        }
        let part = parts.entry(called.clone()).or_default();
        (part.name, part.version) = (name.to_string(), version.to_string());
        // Cargo's older way of saying "or".
        part.licence = licence.split('\t').next().unwrap_or_default().replace('/', " OR ");
        part.ours = words.next().is_some_and(|origin| origin.contains("(/"));
        above.push(called);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_below_the_one_that_needs_it() {
        let told = "0tipover v0.1.0 (/src/crates/tipover)\tApache-2.0\t\n1a v1.0.0+b\tMIT/Apache-2.0\t\n\
                    2c v3.0.0 (proc-macro)\tMIT\t\n1d v2.0.0\tISC\t\n2a v1.0.0+b\tMIT/Apache-2.0\t (*)\n";
        let parts = read(told).unwrap();
        let needs = |called: &str| parts[called].needs.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(needs("tipover 0.1.0"), ["a 1.0.0+b", "d 2.0.0"]);
        assert_eq!((needs("a 1.0.0+b"), needs("d 2.0.0")), (vec!["c 3.0.0"], vec!["a 1.0.0+b"]));
        assert_eq!(parts["a 1.0.0+b"].licence, "MIT OR Apache-2.0");
        let ours: Vec<_> = parts.values().filter(|part| part.ours).map(|part| part.name.as_str()).collect();
        assert_eq!(ours, ["tipover"]);
        assert!(read("tipover v0.1.0").is_err() && read("0tipover\t\t").is_err());
    }
}
