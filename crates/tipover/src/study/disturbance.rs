//! Whether the machine was quiet while trials ran: what other programs and the host took of its processors,
//! and what the canaries say.

use tipover_core::measure::{Canary, CanaryVerdict, judge_machines, unrest_of_machines};
use tipover_core::record::Record;
use tipover_core::storage::{BenchRecord, Beside};
use tipover_core::units::significant;

/// The largest shares of the machine's processors that other programs and the host may take, and by how much
/// the canaries may vary, before trials count as disturbed. Kernel threads that work for the trial are among
/// the neighbours, which is why they may take more.
const NEIGHBOURS: f64 = 0.15;
const STEAL: f64 = 0.01;
const UNREST: f64 = 0.10;

/// What one trial's record says of whatever may have disturbed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Disturbances {
    /// Share of the machine's processors that other programs took; `None` where that is not known.
    neighbours: Option<f64>,
    /// Share that the host took for others; `None` where that is not known.
    steal: Option<f64>,
    /// Before and after the trial.
    canaries: Vec<Canary>,
    /// Of a fleet; `None`: this one.
    machine: Option<String>,
}

impl Disturbances {
    /// Those of `record`; `None` if nothing was carried out.
    pub fn of(record: &Record) -> Option<Disturbances> {
        if record.measured.is_none() && record.broken.is_none() {
            return None;
        }
        let (neighbours, steal) = (record.neighbours(), record.steal());
        let (canaries, machine) = (record.canaries.clone(), record.provenance.machine.clone());
        Some(Disturbances { neighbours, steal, canaries, machine })
    }
}

impl From<&BenchRecord> for Disturbances {
    fn from(record: &BenchRecord) -> Disturbances {
        let Beside { neighbours, steal, canaries } = record.beside.clone();
        Disturbances { neighbours, steal, canaries, machine: None }
    }
}

/// By what the machine was disturbed while trials ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Disturbance {
    /// "The machine was not quiet in 2 of 9 trials (other programs took up to 25 % of the machine's
    /// processors)".
    pub words: String,
    /// Share of the machine's processors that others had at most, as far as it is known.
    pub share: f64,
}

/// The words of what disturbed these trials; `None` when nothing was seen.
pub fn disturbed(trials: &[Disturbances]) -> Option<String> {
    disturbance(trials).map(|disturbance| disturbance.words)
}

/// What disturbed these trials; `None` when nothing was seen.
pub fn disturbance(trials: &[Disturbances]) -> Option<Disturbance> {
    let session: Vec<(Option<&str>, &[Canary])> =
        trials.iter().map(|trial| (trial.machine.as_deref(), trial.canaries.as_slice())).collect();
    let canaries = judge_machines(&session);
    let percent = |share: f64| format!("{} %", significant(100.0 * share, 2));
    let beyond = |of: fn(&Disturbances) -> Option<f64>, limit: f64| -> Vec<Option<f64>> {
        trials.iter().map(|trial| of(trial).filter(|share| *share > limit)).collect()
    };
    let neighbours = beyond(|trial| trial.neighbours, NEIGHBOURS);
    let steal = beyond(|trial| trial.steal, STEAL);
    let differs: Vec<bool> = canaries.iter().map(|v| matches!(v, CanaryVerdict::Disturbed { .. })).collect();
    let most = |shares: &[Option<f64>]| shares.iter().flatten().copied().reduce(f64::max);
    let mut because = Vec::new();
    because
        .extend(most(&neighbours).map(|share| {
            format!("other programs took up to {} of the machine's processors", percent(share))
        }));
    because.extend(
        most(&steal).map(|share| format!("the host gave up to {} of them to others", percent(share))),
    );
    let differing = differs.iter().filter(|differs| **differs).count();
    because.extend((differing > 0).then(|| format!("the canary differed at {differing}")));
    let unrest = unrest_of_machines(&session).filter(|unrest| *unrest > UNREST);
    because.extend(unrest.map(|unrest| format!("the canaries of all trials vary by {}", percent(unrest))));
    let several =
        (0..trials.len()).filter(|n| neighbours[*n].is_some() || steal[*n].is_some() || differs[*n]).count();
    let of = if several > 0 && trials.len() > 1 {
        format!(" in {several} of {} trials", trials.len())
    } else {
        String::new()
    };
    // Canaries that vary by a share take turns with something that has it.
    let shares = [most(&neighbours), most(&steal), unrest.or_else(|| (differing > 0).then_some(UNREST))];
    let share = shares.into_iter().flatten().fold(0.0, f64::max);
    let words = format!("the machine was not quiet{of} ({})", because.join(", "));
    (!because.is_empty()).then_some(Disturbance { words, share })
}
