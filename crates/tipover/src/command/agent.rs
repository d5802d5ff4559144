//! `tipover agent`: this machine, for a fleet.

use super::{BadInput, Ending, pair};
use crate::fleet::agent::{Agent, Options, name_of};
use crate::fleet::keys::AGENT;
use crate::fleet::message::Allowed;
use crate::fleet::{Link, Login, patiently};
use crate::interrupt::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};

/// Let this machine carry out trials for a fleet
///
/// Tells the fleet what `tipover doctor` finds here, takes one block of trials at a time, and gives back what
/// it measured. Ends when it is interrupted; a block under way goes to another machine.
///
/// A block starts programs, as root if the agent is root. Without --allow, an agent carries out nothing but
/// engines of its own on disks of its own.
#[derive(Debug, Args)]
pub struct AgentCommand {
    #[command(flatten)]
    login: Login,

    /// Name of this machine in the fleet; by default the host's
    #[arg(long)]
    name: Option<String>,

    /// Labels that plans can demand, such as rack=2,disk=nvme
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = pair)]
    labels: Vec<(String, String)>,

    /// A file that says what else this machine carries out (docs/fleet.md)
    #[arg(long, value_name = "FILE")]
    allow: Option<PathBuf>,

    /// The folder in which it works, and keeps what it has not given back yet
    #[arg(long, value_name = "DIR", default_value = "tipover-agent")]
    work: PathBuf,
}

/// What a file allows.
///
/// # Errors
/// The file and the line that is wrong.
fn allowed(path: &Path) -> Result<Allowed> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| BadInput(format!("--allow {}: {error}", path.display())))?;
    Ok(toml::from_str(&text).map_err(|error| BadInput(format!("--allow {}: {error}", path.display())))?)
}

impl AgentCommand {
    /// Works until it is interrupted.
    pub fn execute(&self, interrupt: &Interrupt) -> Result<Ending> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let machine = name_of(self.name.as_deref().unwrap_or(&host));
        let allowed = self.allow.as_deref().map(allowed).transpose()?.unwrap_or_default();
        let folder = std::path::absolute(&self.work).context("finding --work")?;
        let options = Options { machine, labels: self.labels.iter().cloned().collect(), allowed, folder };
        let wrong = |error: anyhow::Error| BadInput(format!("{error:#}"));
        let link = patiently(interrupt, || Link::open(&self.login, AGENT)).map_err(wrong)?;
        let agent = patiently(interrupt, || Agent::join(&link, options.clone(), interrupt));
        agent.map_err(wrong)?.serve()?;
        Ok(Ending::Held)
    }
}
