//! `tipover disk`: a disk that is as slow, and as faulty, as one asks for.

mod bench;
mod faults;
mod mount;
mod replay;
mod stats;
mod trace;
mod watch;

use super::run::command_line;
use super::{BadInput, Ending, quoted};
use crate::storage::{Stopped, Unusable};
use crate::trial::{Interrupt, Interrupted};
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use tipover_core::device;
use tipover_core::record::Provenance;
use tipover_disk::{Disk, DiskError, FindError};

/// Measure a disk, or mount one as slow, and as faulty, as you ask for
///
/// `bench` and `watch` measure the disk that there is. `mount` makes another: any program's data can live on
/// it. It stays mounted until `disk umount`, obeys its shape for every request, counts exactly, records what
/// it is asked for, and fails on purpose when told to.
#[derive(Debug, Args)]
pub struct DiskCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(Box<bench::DiskBench>),
    Watch(watch::DiskWatch),
    Mount(mount::Mount),
    Umount(mount::Umount),
    /// List the shaped disks that are mounted
    List,
    Set(mount::Set),
    Stats(stats::Stats),
    Trace(trace::TraceCommand),
    Fault(faults::FaultCommand),
    PowerCut(faults::Cut),
    PowerOn(faults::On),
    /// List the disks that can be had by name
    ///
    /// Each with its abilities, and the source of its figures. Use one with `disk mount --profile NAME`, or
    /// take its spec as a beginning for your own.
    Profiles,
}

/// What the command line makes of an error of measuring a disk: input of the user's, or an interruption.
fn of_measuring(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Unusable>() {
        Ok(unusable) => BadInput(unusable.0).into(),
        Err(error) if error.is::<Stopped>() => Interrupted.into(),
        Err(error) => error,
    }
}

impl DiskCommand {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        match &self.verb {
            Verb::Bench(bench) => bench.execute(results, json, interrupt),
            Verb::Watch(watch) => watch.execute(results, json, interrupt),
            Verb::Mount(mount) => mount.execute(json, interrupt),
            Verb::Umount(umount) => umount.execute(json),
            Verb::List => mount::list(json),
            Verb::Set(set) => set.execute(json),
            Verb::Stats(stats) => stats.execute(json),
            Verb::Trace(trace) => trace.execute(json, interrupt),
            Verb::Fault(fault) => fault.execute(json),
            Verb::PowerCut(cut) => cut.execute(json),
            Verb::PowerOn(on) => on.execute(json),
            Verb::Profiles => profiles(json),
        }
    }
}

/// Which disk is meant: a profile, a spec, or a profile with some keys changed.
#[derive(Debug, Args)]
pub(super) struct Shape {
    /// A disk by name (see `tipover disk profiles`), or the file of one that `disk bench --capture` wrote
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,

    /// A disk by its abilities, such as "iops=600,latency=7ms"; with --profile, what differs from it
    #[arg(long, value_name = "SPEC")]
    spec: Option<String>,
}

impl Shape {
    /// Whether any disk is meant.
    pub(super) fn is_given(&self) -> bool {
        self.profile.is_some() || self.spec.is_some()
    }

    /// What it can do.
    pub(super) fn read(&self) -> Result<device::Spec> {
        spec(self.profile.as_deref(), self.spec.as_deref())
    }
}

/// The spec of a profile with changes.
fn spec(profile: Option<&str>, changes: Option<&str>) -> Result<device::Spec> {
    let bad = |error: &dyn std::fmt::Display| BadInput(error.to_string());
    let base = match profile {
        Some(name) if name.ends_with(".toml") || name.contains('/') => {
            let text = std::fs::read_to_string(name).map_err(|e| {
                BadInput(format!("--profile {name}: {e}; `disk bench --capture` writes such a file"))
            })?;
            device::Profile::of_toml(&text).map_err(|e| BadInput(format!("--profile {name}: {e}")))?.spec
        }
        Some(name) => device::profile(name).map_err(|e| bad(&e))?.spec.clone(),
        None => device::Spec::default(),
    };
    match changes {
        None => Ok(base),
        Some(changes) => Ok(base.with(changes).map_err(|e| bad(&e))?),
    }
}

/// The kept disk at a folder.
fn find(path: &Path) -> Result<Disk> {
    Disk::at(path).map_err(|error| match error {
        FindError::Disk(error) => error.into(),
        other => BadInput(other.to_string()).into(),
    })
}

/// What the user asked for cannot be had; everything else is our failure.
fn refused(error: DiskError) -> anyhow::Error {
    match error {
        DiskError::BeyondTransport { .. } => BadInput(error.to_string()).into(),
        other => other.into(),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

fn profiles(json: bool) -> Result<Ending> {
    let rows: Vec<_> = device::profiles()
        .iter()
        .map(|p| {
            let (spec, shape) = (p.spec.to_string(), &p.spec);
            serde_json::json!({"name": p.name, "about": p.about, "spec": spec, "shape": shape, "source": p.source})
        })
        .collect();
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(Ending::Held);
    }
    for p in device::profiles() {
        println!("{}: {}\n    {}\n    source: {}", p.name, p.about, p.spec, p.source);
    }
    Ok(Ending::Held)
}

/// Of a measurement that begins now.
fn provenance() -> Provenance {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Provenance {
        command: command_line(),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("TIPOVER_COMMIT").into(),
        started_unix_s: since.map_or(0, |since| since.as_secs()),
        machine: None,
    }
}
