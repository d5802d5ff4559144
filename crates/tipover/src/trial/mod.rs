//! One trial, wherever its target runs: the pipeline of phases is [`tipover_core::trial`]'s, and carried out
//! here in the real world.

mod cluster;
mod faults;
mod generator_process;
mod generators;
mod loading;
pub mod local;
mod phases;
mod recording;
mod search;
mod site;
mod tenants;
mod watch;
mod world;

pub use crate::interrupt::{Interrupt, Interrupted};
pub use cluster::binaries;
pub use generator_process::GeneratorProcess;
pub use generators::{Fellow, Fellows};
pub use local::home;
pub use search::{planned, search};
pub use site::{Site, data_key, mount_options};
pub use tipover_core::trial::share_warm_up;

use crate::clock::Clock;
use crate::generator::{Reply, Servers};
use crate::store::{self, Kept};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::check::Carried;
use tipover_core::experiment::{Part, Spec, Trial, redact};
use tipover_core::record::{Interval, Provenance};
use tipover_core::target::Facts;
use tipover_core::trial::{self, Of};
use world::RealWorld;

/// Hears what a trial is doing, for people who wait.
pub trait Report {
    /// A new phase begins.
    fn doing(&self, what: &str);
    /// How much of the phase is done, 0..1.
    fn share(&self, done: f64);
    /// A sentence about how it goes.
    fn note(&self, text: &str);
    /// What was read at the end of an interval.
    fn interval(&self, _interval: &Interval) {}
    /// What was done to the cluster so far.
    fn faults(&self, _carried: &[Carried]) {}
}

/// What is the same for all trials of a run.
pub struct Surroundings<'a> {
    /// The experiment's name and seed.
    pub experiment: &'a str,
    /// Seed of the experiment.
    pub seed: u64,
    /// The command line.
    pub command: &'a str,
    /// The folder for mount points and images.
    pub work: &'a Path,
    /// Requirements of the machine that are missed, as sentences.
    pub missed: &'a [String],
    /// Hears of progress.
    pub report: &'a dyn Report,
    /// Stops it.
    pub interrupt: &'a Interrupt,
    /// The fleet that they are carried out for, if they are.
    pub fleet: Option<&'a dyn Fellows>,
    /// The folder of the results; what is written while a trial runs goes to where it is staged.
    pub results: &'a Path,
}

/// Why a link cannot be broken, where there is none to be broken.
pub const NEEDS_NETWORK: &str = "a rule breaks a link, which needs a network of namespaces";

/// Carries out trials that share a warm-up in the real world, and gives each to `keep` as soon as it is
/// finished; see [`trial::carry_out`]. Disks are thus compared on the same state of the same caches.
///
/// # Errors
/// An interrupt, no place for what is written down meanwhile, and what `keep` says.
pub fn carry_out<'t>(
    site: &mut Site,
    trials: Vec<Trial<'t>>,
    context: &Surroundings<'_>,
    mut keep: impl FnMut(&Trial<'_>, Kept) -> Result<()>,
) -> Result<Vec<Trial<'t>>> {
    let mut world = RealWorld::new(site, context)?;
    // What is checked shares its warm-up with nobody, so there is one trial.
    if let Some(trial) = trials.first().filter(|trial| trial.cell.spec.keeps_history()) {
        world.staged = Some(store::stage(context.results, trial)?);
    }
    let of = Of { experiment: context.experiment, seed: context.seed };
    trial::carry_out(&mut world, of, trials, |world, trial, record, series| {
        keep(trial, Kept { record, series, accesses: world.accesses.take() })
    })
}

/// Who makes a record that was begun this long ago.
pub fn provenance(context: &Surroundings<'_>, ago: Duration) -> Provenance {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Provenance {
        command: redact(context.command),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("TIPOVER_COMMIT").into(),
        started_unix_s: now.as_secs() - ago.as_secs(),
        machine: context.fleet.map(|fleet| fleet.machine().into()),
    }
}

/// What the server at the address of `spec` tells about itself.
///
/// # Errors
/// It cannot be reached, or does not let us in.
pub fn ask_server(spec: &Spec) -> Result<Facts> {
    let mut generator = GeneratorProcess::start(None, None)?;
    let Reply::Started { facts, .. } =
        generator.begin(spec, PathBuf::new(), &Servers::default(), 0, Part::ALL, Clock::start())?
    else {
        bail!("expected to hear of the start");
    };
    generator.stop()?;
    Ok(facts)
}
