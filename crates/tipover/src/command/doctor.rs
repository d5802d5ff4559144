//! `tipover doctor`: what this machine can and cannot measure.

use super::{BadInput, Ending};
use crate::machine::{self, Needs, Requirement, Severity};
use crate::report::{Terminal, wrap};
use crate::trial;
use anyhow::{Context, Result};
use clap::Args;
use std::path::Path;
use tipover_core::experiment::{Address, Experiment};

/// Say what this machine can and cannot measure
///
/// Checks privileges, kernel facilities, room and quiet, and says what to do about what is missing. With
/// --target it asks a server for its settings too, and holds them against its vendor's notes for production.
/// With --clean it first removes what killed runs of tipover left behind: mounts, loop devices, memory
/// groups, and folders, also those in the results folder. It touches nothing that tipover did not make.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Remove what killed runs left behind
    #[arg(long)]
    clean: bool,

    /// A server to be judged too, such as postgres://me@host/shop
    #[arg(long, value_name = "ADDRESS")]
    target: Option<Address>,
}

impl Doctor {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let places = [std::env::temp_dir(), results.join(".work")];
        let mut cleaned = Vec::new();
        if self.clean {
            for (leftover, removed) in tipover_disk::clean() {
                cleaned.push(match removed {
                    Ok(()) => format!("removed {leftover}"),
                    Err(error) => format!("not removed: {leftover}: {error}"),
                });
            }
            let groups = tipover_lab::clean()?;
            // After the groups: what still ran in one could write into its folder.
            for (folder, removed) in places.iter().flat_map(|place| tipover_lab::clean_folders(place)) {
                cleaned.push(match removed {
                    Ok(()) => format!("removed folder {}", folder.display()),
                    Err(error) => format!("not removed: folder {}: {error}", folder.display()),
                });
            }
            // Empty now, unless another run is at work there.
            let _ = std::fs::remove_dir(results.join(".work"));
            cleaned.extend(groups.removed.iter().map(|g| format!("removed memory group {}", g.name)));
            cleaned.extend(
                groups
                    .failed
                    .iter()
                    .map(|(g, error)| format!("not removed: memory group {}: {error}", g.name)),
            );
        }
        let mut facts = machine::read(results);
        facts.leftovers.extend(tipover_disk::leftovers().iter().map(ToString::to_string));
        let folders = places.iter().flat_map(|place| tipover_lab::leftover_folders(place));
        facts.leftovers.extend(folders.map(|folder| format!("folder {}", folder.display())));
        let here = machine::check(&facts, &Needs::default());
        let server = match &self.target {
            Some(address) => of_server(address, &facts)?,
            None => vec![],
        };
        let requirements: Vec<&Requirement> = here.iter().chain(&server).collect();
        let held = machine::can_run(&here) && machine::can_run(&server);
        if json {
            println!(
                "{}",
                serde_json::to_string_pretty(
                    &serde_json::json!({"machine": facts, "requirements": requirements, "cleaned": cleaned})
                )?
            );
        } else {
            for line in &cleaned {
                println!("{line}");
            }
            if let Some(address) = &self.target {
                println!("The server {}", address.shown());
                server.iter().for_each(print);
                println!("\nThis machine, from which it is measured");
            }
            println!(
                "{} on {} cores, {} of memory, kernel {}",
                facts.cpu_model.as_deref().unwrap_or("unknown processor"),
                facts.cores,
                facts.memory_total.rounded(),
                facts.kernel
            );
            // Who asks about a server wants to know of the client only what is wrong with it.
            let asked = |r: &&Requirement| !r.met || self.target.is_none();
            here.iter().filter(asked).for_each(print);
            if self.target.is_some() {
                let met = here.iter().filter(|r| r.met).count();
                println!("ok      {met} more requirements, which `tipover doctor` lists");
            }
        }
        Ok(if held { Ending::Held } else { Ending::NotHeld })
    }
}

/// What stands before advice, so that it stands under the words and not under the sign.
const INDENT: usize = 8;

/// A line; for what is not met, what was wanted, why, and what to do.
fn print(r: &Requirement) {
    let sign = match (r.met, r.severity) {
        (true, _) => "ok     ",
        (false, Severity::CannotRun) => "MISSING",
        (false, Severity::Degrades) => "worse  ",
        (false, Severity::Note) => "note   ",
    };
    println!("{sign} {}: {}", r.id, r.found);
    if !r.met {
        let width = Terminal::detect().width - INDENT;
        let say = |text: &str| {
            wrap(text, width).iter().for_each(|line| println!("{:INDENT$}{line}", ""));
        };
        say(&format!("wanted: {}. {}", r.wanted, r.why));
        say(&r.next);
        if !r.source.is_empty() {
            say(&format!("({})", r.source));
        }
    }
}

/// What the vendor of the server at `address` asks of it, judged by what it tells.
fn of_server(address: &Address, facts: &machine::Facts) -> Result<Vec<Requirement>> {
    let plan = super::plan::text("capacity")?;
    let experiment = Experiment::parse_for(&plan, "tiny", &[], Some(address))
        .map_err(|error| BadInput(format!("--target: {error}")))?;
    let cell = experiment.sweeps.iter().find_map(|sweep| sweep.cells.first());
    let spec = &cell.context("the plan has no cell")?.spec;
    let told = trial::ask_server(spec).map_err(|error| BadInput(format!("--target {address}: {error:#}")))?;
    let home = trial::home(address, spec.target.kind);
    if let Err(reason) = &home {
        eprintln!("what is under the server cannot be judged from here: {reason}");
    }
    Ok(machine::check_database(spec.target.kind, &told, home.as_ref().ok().map(|home| (facts, home))))
}
