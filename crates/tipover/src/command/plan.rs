//! Finds a plan by its name or file, and applies what the command line says about it.

use super::{BadInput, pair, quoted, results_flag};
use crate::store::Store;
use anyhow::Result;
use clap::Args;
use std::path::Path;
use tipover_core::experiment::{Address, Experiment, PlanError, unknown};

/// The plans that come with the program.
pub const PLANS: [(&str, &str); 15] = [
    ("working-set", include_str!("../../../../experiments/working-set.toml")),
    ("large-values", include_str!("../../../../experiments/large-values.toml")),
    ("capacity", include_str!("../../../../experiments/capacity.toml")),
    ("transfers", include_str!("../../../../experiments/transfers.toml")),
    ("tipping-point", include_str!("../../../../experiments/tipping-point.toml")),
    ("write-concern", include_str!("../../../../experiments/write-concern.toml")),
    ("bank", include_str!("../../../../experiments/bank.toml")),
    ("servers", include_str!("../../../../experiments/servers.toml")),
    ("failover", include_str!("../../../../experiments/failover.toml")),
    ("kills", include_str!("../../../../experiments/kills.toml")),
    ("tenant", include_str!("../../../../experiments/tenant.toml")),
    ("tpcb-postgres", include_str!("../../../../experiments/tpcb-postgres.toml")),
    ("tpcb-mariadb", include_str!("../../../../experiments/tpcb-mariadb.toml")),
    ("oltp-postgres", include_str!("../../../../experiments/oltp-postgres.toml")),
    ("oltp-mariadb", include_str!("../../../../experiments/oltp-mariadb.toml")),
];

/// Flags that shape a plan; they mean the same in every verb.
#[derive(Debug, Clone, Args)]
pub struct PlanArguments {
    /// An experiment that comes with tipover (see `tipover list`), or the path of a plan
    pub plan: String,

    /// How large: tiny, quick (the default) or full
    ///
    /// A scale is a table of settings in the plan. "tiny" is for a first look and for tests, "quick" answers
    /// the question in minutes, "full" is as published. Verbs that show results take the scale that has most
    /// of them.
    #[arg(long)]
    pub scale: Option<String>,

    /// Keep only the cells with this value on this axis, as axis=value, or one sweep, as sweep=NAME; may be
    /// given several times
    #[arg(long, value_name = "AXIS=VALUE", value_parser = pair)]
    pub only: Vec<(String, String)>,

    /// Change a setting of the plan, as setting=value; may be given several times
    ///
    /// Any setting of the plan by its path, such as target.wiredtiger.cache="64 MiB". An axis over it is left
    /// out. A changed setting makes other cells: results of the unchanged ones are neither used nor lost.
    #[arg(long, value_name = "SETTING=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,

    /// Measure the server at this address instead of the plan's target, such as postgres://me@host/shop
    ///
    /// Also mysql://, mongodb://. What the plan says about disk, memory and engine is the server's own affair
    /// then, and axes over them are left out. Its records are used if they are there (say how many with
    /// --records), and written into an empty place.
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<Address>,

    /// How many records there are, or are to be
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,

    /// Your own mongod, for the cells on a MongoDB of the laboratory's; by default the one in PATH
    ///
    /// As --set lab.mongod=PATH, which also makes other cells: verbs that show results need it too.
    #[arg(long, value_name = "PATH")]
    pub mongod: Option<String>,

    /// Your own mongos, for sharded clusters; by default the one beside mongod, else the one in PATH
    #[arg(long, value_name = "PATH")]
    pub mongos: Option<String>,

    /// How often each cell is measured, instead of what the plan says
    #[arg(long)]
    pub repeats: Option<u32>,
}

/// The text of a plan.
pub fn text(plan: &str) -> Result<String> {
    if let Some((_, text)) = PLANS.iter().find(|(name, _)| *name == plan) {
        return Ok(text.to_string());
    }
    let path = Path::new(plan);
    if path.extension().is_some() || path.exists() {
        return std::fs::read_to_string(path).map_err(|e| BadInput(format!("{plan}: {e}")).into());
    }
    let names: Vec<&str> = PLANS.iter().map(|(name, _)| *name).collect();
    Err(BadInput(format!("{} (or give the path of a plan)", unknown("experiment", plan, &names))).into())
}

impl PlanArguments {
    /// The plan's text, and the experiment that it and the flags make.
    pub fn experiment(&self) -> Result<(String, Experiment)> {
        let text = text(&self.plan)?;
        let scales = Experiment::scales(&text);
        // A plan of a single scale, as `tipover break` writes them, means that one.
        let usual = if let [only] = scales.as_slice() { only } else { "quick" };
        let experiment = self.of_text(&text, self.scale.as_deref().unwrap_or(usual))?;
        Ok((text, experiment))
    }

    /// The experiment that results were made with: the plan as it was then, at the scale that has most of
    /// them unless one is given.
    pub fn experiment_of(&self, results: &Path) -> Result<(Store, Experiment)> {
        let name = match Path::new(&self.plan).extension() {
            // A plan given by its path has its name inside.
            Some(_) => self.experiment()?.1.name,
            None => self.plan.clone(),
        };
        let store =
            Store::existing(results, &name).map_err(|e| BadInput(self.none_yet(results, &name, &e)))?;
        let damaged = |error: &dyn std::fmt::Display| {
            let next = format!(
                "`tipover run {} --replace-plan` writes it anew and keeps every trial that fits",
                quoted(&self.plan)
            );
            BadInput(format!("{} is damaged ({error}): {next}", store.plan_path().display()))
        };
        let text = store.plan().map_err(|error| damaged(&format!("{error:#}")))?;
        let scales = match &self.scale {
            Some(scale) => vec![scale.clone()],
            None => Experiment::scales(&text),
        };
        // Without flags of the user's the plan was read before it was kept.
        if let Some(scale) = Experiment::scales(&text).first()
            && let Err(error) = Experiment::parse_for(&text, scale, &[], self.target.as_ref())
        {
            return Err(damaged(&error).into());
        }
        let mut most: Option<(usize, Experiment)> = None;
        for scale in scales {
            let experiment = self.of_text(&text, &scale)?;
            let trials = store.count(&experiment)?;
            if most.as_ref().is_none_or(|(most, _)| trials > *most) {
                most = Some((trials, experiment));
            }
        }
        let (_, experiment) = most.ok_or_else(|| damaged(&"no scale is left in it"))?;
        Ok((store, experiment))
    }

    /// Why there are no results, and, of a plan that we have, what makes some.
    fn none_yet(&self, results: &Path, name: &str, error: &anyhow::Error) -> String {
        let Ok((_, experiment)) = self.experiment() else { return format!("{error:#}") };
        let verb = if experiment.search.is_some() { "find" } else { "run" };
        let (flag, plan) = (results_flag(results), quoted(&self.plan));
        format!(
            "there are no results of `{name}` in {} yet: `tipover {flag}{verb} {plan}` makes some",
            quoted(&results.display().to_string())
        )
    }

    fn of_text(&self, text: &str, scale: &str) -> Result<Experiment> {
        let mut overrides = self.set.clone();
        if let Some(repeats) = self.repeats {
            overrides.push(("repeats".into(), repeats.to_string()));
        }
        if let Some(records) = self.records {
            overrides.push(("workload.records".into(), records.to_string()));
        }
        for (name, path) in [("lab.mongod", &self.mongod), ("lab.mongos", &self.mongos)] {
            overrides.extend(path.iter().map(|path| (name.to_string(), path.clone())));
        }
        let wrong = |e: PlanError| BadInput(format!("{}: {e}", self.plan));
        let mut experiment =
            Experiment::parse_for(text, scale, &overrides, self.target.as_ref()).map_err(wrong)?;
        experiment.only(&self.only).map_err(wrong)?;
        attach(&mut experiment).map_err(wrong)?;
        Ok(experiment)
    }
}

/// Reads the files that the cells of a plan name.
///
/// # Errors
/// The file, and what is wrong with it.
pub fn attach(experiment: &mut Experiment) -> Result<(), PlanError> {
    let mut read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let mut cells = experiment.sweeps.iter_mut().flat_map(|sweep| &mut sweep.cells);
    cells.try_for_each(|cell| cell.spec.attach(&mut read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foresight::{check_plan, needs};
    use tipover_core::experiment::{BackingKind, DiskMode, Spec};
    use tipover_core::units::Bytes;

    /// What one cell takes, from its settings alone: memory, disk.
    fn least_of(spec: &Spec) -> [u64; 2] {
        let mut least = [0, 0];
        let mut add = |backing, bytes: u64| match backing {
            BackingKind::Memory => least[0] += bytes,
            BackingKind::Disk => least[1] += bytes,
        };
        match spec.cluster() {
            Ok(recipe) if spec.lab.is_some() => {
                for node in recipe.layout().nodes {
                    add(BackingKind::Memory, recipe.memory_of(node.role).map_or(0, |memory| memory.0));
                    if let Some(disk) = recipe.disk_of(node.role) {
                        add(disk.backing, spec.data_bytes().0.min(disk.size.0));
                    }
                }
            }
            _ if spec.disk.mode != DiskMode::None => {
                add(BackingKind::Memory, spec.machine.memory.unwrap_or_default().0);
                add(spec.disk.backing, spec.data_bytes().0);
            }
            _ => {}
        }
        least
    }

    /// Each plan that comes with the program, at each of its scales, asks for as much as each of its cells
    /// takes, and for no more than a machine has; and its disks hold what it writes.
    #[test]
    fn every_plan_asks_for_what_it_needs_at_every_scale() {
        let mut seen = 0;
        for (name, text) in PLANS {
            for scale in Experiment::scales(text) {
                let mut experiment = Experiment::parse(text, &scale, &[]).unwrap();
                attach(&mut experiment).unwrap();
                check_plan(&experiment, Path::new("/tmp")).unwrap_or_else(|error| panic!("{scale}: {error}"));
                let asked = needs(&experiment);
                for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
                    let [memory, disk] = least_of(&cell.spec);
                    let what =
                        format!("{name} at {scale}, {}: {memory} and {disk}, asked {asked:?}", cell.id());
                    assert!(asked.memory.0 >= memory && asked.disk.0 >= disk, "{what}");
                    let on_disk = cell.spec.disk.mode != DiskMode::None && !cell.spec.disk.shape.is_empty();
                    assert!(
                        !on_disk || cell.spec.target.address.is_some() || asked.shaped_disk.is_some(),
                        "{what}"
                    );
                    seen += 1;
                }
                let most = if scale == "full" { 512 } else { 20 };
                assert!(asked.memory <= Bytes::gib(most), "{name} at {scale}: {asked:?}");
            }
        }
        assert!(seen > 500, "{seen} cells");
    }
}
