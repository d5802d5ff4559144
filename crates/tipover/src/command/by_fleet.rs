//! What every verb that measures can leave to a fleet.

use super::BadInput;
use super::run::{Prepared, command_line};
use crate::fleet::coordinator::{Coordinator, Fetched};
use crate::fleet::keys::ASKER;
use crate::fleet::{Link, Login, Refused};
use crate::foresight;
use crate::store::Store;
use crate::trial::Interrupt;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::experiment::{Experiment, SearchSpec};

/// Where trials and searches are carried out, if not here.
#[derive(Debug, Args)]
pub struct ByFleet {
    /// Let the machines of a fleet carry out what is missing, by way of these NATS servers
    ///
    /// Asks for what is missing and was not asked for before, takes in what has come, and ends; running again
    /// takes in more. Trials of one block stay on one machine, and a search is a block. The fleet goes on
    /// while nobody waits.
    #[arg(long, value_name = "SERVERS", conflicts_with_all = ["list", "live"])]
    fleet: Option<String>,

    /// With --fleet: wait until everything has come
    #[arg(long, requires = "fleet")]
    wait: bool,

    /// With --fleet: the file with the key that lets us in
    #[arg(long, value_name = "FILE", requires = "fleet", env = "TIPOVER_FLEET_KEY", hide_env_values = true)]
    key: Option<PathBuf>,

    /// With --fleet: a file with the certificate of the authority of the servers' certificates
    #[arg(long, value_name = "FILE", requires = "fleet")]
    authority: Option<PathBuf>,

    /// With --fleet: speak without TLS to servers that are not on this machine
    #[arg(long, requires = "fleet")]
    plain: bool,

    /// With --fleet: how long a machine may be silent before it loses its block to another
    #[arg(long, requires = "fleet", default_value = "30 s", value_parser = super::fleet::lease)]
    lease: Duration,
}

/// What is asked for.
pub struct Wanted<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The text of its plan.
    pub text: &'a str,
    /// Whether the results folder may be of another version of the plan.
    pub replace_plan: bool,
    /// Searches in all cells, instead of trials.
    pub search: Option<&'a SearchSpec>,
    /// Whether trials that cannot be believed are asked for once more.
    pub retry: bool,
}

/// What has come.
pub struct Brought {
    /// The results folder, ours alone.
    pub prepared: Prepared,
    /// What became of asking.
    pub came: Fetched,
    /// Trials or searches that are here.
    pub here: usize,
}

impl ByFleet {
    /// Whether a fleet is to do it.
    pub fn is_asked(&self) -> bool {
        self.fleet.is_some()
    }

    /// Asks the fleet for what is missing in `results` and takes in what has come.
    ///
    /// # Errors
    /// What cannot be asked for, and what nobody can carry out; the servers do not answer.
    pub fn fetch(&self, wanted: Wanted<'_>, results: &Path, interrupt: &Interrupt) -> Result<Brought> {
        let Wanted { experiment, text, replace_plan, search, retry } = wanted;
        foresight::check_plan(experiment, results).map_err(BadInput)?;
        let servers = self.fleet.clone().unwrap_or_default();
        let (key, authority) = (self.key.clone(), self.authority.clone());
        let bad = |error: anyhow::Error| BadInput(format!("{error:#}"));
        let login = Login { servers, key, authority, plain: self.plain };
        let link = Link::open(&login, ASKER).map_err(bad)?;
        let store = Store::open(results, experiment, text, replace_plan).map_err(bad)?;
        let reserved = store.reserve().map_err(bad)?;
        let mut coordinator = Coordinator::open(&link, &store, experiment, search)?;
        let mut hear = |line: &str| eprintln!("{line}");
        let mut came = coordinator.fetch(false, interrupt, &mut hear)?;
        let asked = coordinator.ask(retry, &command_line(), self.lease);
        let asked = asked.map_err(|error| match error.downcast::<Refused>() {
            Ok(refused) => BadInput(refused.0).into(),
            Err(error) => error,
        })?;
        let what = if search.is_some() { "searches" } else { "trials" };
        if asked > 0 {
            eprintln!("asked the fleet for {asked} {what}, as run {}", coordinator.run());
        }
        if self.wait {
            came = came.and(coordinator.fetch(true, interrupt, &mut hear)?);
        }
        let (here, planned) = coordinator.here()?;
        eprintln!("{here} of {planned} {what} are here; {came}");
        if came.waiting > 0 && !self.wait {
            eprintln!("the fleet goes on: run this again to take in what has come, or give --wait");
        }
        let work = results.join(".work");
        Ok(Brought { prepared: Prepared { store, work, _reserved: reserved }, came, here })
    }
}
