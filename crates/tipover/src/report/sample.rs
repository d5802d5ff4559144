//! A page for whoever works on the looks of pages: a study as large as one likes, in the virtual world.

use super::Page;
use super::experiment::{Besides, of_experiment};
use tipover_core::experiment::Experiment;
use tipover_core::trial::simulate;

/// Disks of the plan for each working set.
const DISKS: usize = 3;

/// The page of the working-set study with at least this number of cells, twice each, in the virtual world.
pub fn sample_of_cells(cells: usize) -> anyhow::Result<Page> {
    let plan = include_str!("../../../../experiments/working-set.toml");
    let values: Vec<String> = (0..cells.div_ceil(DISKS)).map(|n| format!("\"{} %\"", 50 + 5 * n)).collect();
    let own = r#"values = ["92 %", "138 %", "182 %", "230 %"]"#;
    anyhow::ensure!(plan.contains(own), "the plan has other working sets now");
    let plan = plan.replacen(own, &format!("values = [{}]", values.join(", ")), 1);
    let experiment = Experiment::parse(&plan, "tiny", &[("repeats".into(), "2".into())])?;
    let machine = simulate::Machine::default();
    let trials = experiment.trials();
    let record = |trial| simulate::trial(&experiment.name, trial, experiment.seed, &machine).0;
    let records: Vec<_> = trials.iter().map(record).collect();
    let studied = super::studied(&experiment, &records)?;
    of_experiment(&experiment, &records, studied.as_ref(), Besides::default(), "tipover sample-report")
}
