//! How the machines of a fleet differ: a factor of the experiment, which no interval of a cell has in it.

use super::{Cells, Figure};
use crate::measure::{Estimate, mean_of_trials};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One machine against all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineFigures {
    /// Its name in the fleet.
    pub machine: String,
    /// Trials that it carried out, believed or not.
    pub trials: usize,
    /// Cells in which it can be compared.
    pub cells: usize,
    /// Its throughput against the mean of all machines, in per cent of that: geometric mean over those cells,
    /// with Student's interval on the logarithms. Cells that a shaped disk limits pull it towards 0.
    pub throughput_percent: Figure,
}

/// Every machine that carried out trials of an experiment; none where fewer than two did.
pub fn machines(cells: &Cells<'_>) -> Vec<MachineFigures> {
    let mut trials: BTreeMap<&str, usize> = BTreeMap::new();
    for machine in cells.records().filter_map(|record| record.provenance.machine.as_deref()) {
        *trials.entry(machine).or_default() += 1;
    }
    if trials.len() < 2 {
        return vec![];
    }
    let mut logarithms: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for cell in &cells.all {
        let mut of_machine: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for record in cell.records.iter().filter(|record| record.is_valid()) {
            let throughput = record.measured.as_ref().map(|measured| measured.throughput());
            if let (Some(machine), Some(throughput)) = (record.provenance.machine.as_deref(), throughput) {
                of_machine
                    .entry(machine)
                    .or_default()
                    .extend(Some(throughput.ln()).filter(|ln| ln.is_finite()));
            }
        }
        let means: BTreeMap<&str, f64> = of_machine
            .into_iter()
            .filter_map(|(machine, all)| Some((machine, mean_of_trials(&all)?.value)))
            .collect();
        if means.len() < 2 {
            continue;
        }
        let all = means.values().sum::<f64>() / means.len() as f64;
        for (machine, mean) in means {
            logarithms.entry(machine).or_default().push(mean - all);
        }
    }
    let figures = trials.into_iter().map(|(machine, trials)| {
        let own = logarithms.remove(machine).unwrap_or_default();
        let percent = |ln: f64| 100.0 * (ln.exp() - 1.0);
        let estimate = mean_of_trials(&own).map(|e| Estimate {
            value: percent(e.value),
            low: percent(e.low),
            high: percent(e.high),
            basis: match own.len() {
                1 => "one cell: no interval".into(),
                cells => format!("t-interval over {cells} cells"),
            },
        });
        let why = || "no cell was measured by another machine too".to_string();
        let throughput_percent = Figure::of(estimate.ok_or_else(why), trials as u32);
        MachineFigures { machine: machine.into(), trials, cells: own.len(), throughput_percent }
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Trial};
    use crate::record::Record;
    use crate::trial::simulate::{self, Machine};

    #[test]
    fn a_faster_machine_is_found_and_is_in_no_interval() {
        let plan = include_str!("../../../../experiments/working-set.toml");
        let repeats = [("repeats".to_string(), "4".to_string())];
        let experiment = Experiment::parse(plan, "tiny", &repeats).unwrap();
        let cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
        let of = |repeat: u32, machine: &Option<&str>| {
            let seed = u64::from(repeat) + 1;
            let records = cells.clone().map(move |cell| {
                let trial = Trial { cell, repeat, twin: false };
                simulate::trial("t", &trial, seed, &Machine::default()).0
            });
            let machine = machine.map(String::from);
            let named = move |mut record: Record| {
                record.provenance.machine.clone_from(&machine);
                if machine.as_deref() == Some("slow")
                    && let Some(measured) = &mut record.measured
                {
                    // Half as fast: the same in twice the time.
                    measured.end = measured.begin + measured.end.since(measured.begin) * 2;
                }
                record
            };
            records.map(named).collect::<Vec<Record>>()
        };
        let names = [Some("fast"), Some("slow"), Some("fast"), Some("slow")];
        let records: Vec<Record> =
            names.iter().enumerate().flat_map(|(repeat, name)| of(repeat as u32, name)).collect();
        let studied = Cells::of(&experiment, &records);
        let figures = machines(&studied);
        assert_eq!(figures.iter().map(|of| of.machine.as_str()).collect::<Vec<_>>(), ["fast", "slow"]);
        // Against their mean, which is geometric: the root of 2 above and below.
        let fast = figures[0].throughput_percent.value().unwrap();
        assert!((fast - 41.4).abs() < 2.0, "{figures:?}");
        for cell in &studied.all {
            let Some(throughput) = cell.throughput() else { continue };
            let all: Vec<f64> = cell.measured().iter().map(|measured| measured.throughput()).collect();
            let mixed = mean_of_trials(&all).unwrap();
            let widths = [throughput.high - throughput.low, mixed.high - mixed.low];
            assert!(widths[0] < widths[1], "{} {throughput:?} {mixed:?}", cell.cell.id());
        }
        // One machine is no factor.
        let alone: Vec<Record> = of(0, &Some("fast"));
        assert!(machines(&Cells::of(&experiment, &alone)).is_empty());
    }
}
