//! Where the time of an experiment went: its phases, over all trials.

use crate::record::{Phase, Record};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What one phase took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Which.
    pub phase: Phase,
    /// How often it was gone through; trials that share a warm-up share its phases.
    pub times: u64,
    /// All of them together.
    pub total_s: f64,
    /// The longest.
    pub longest_s: f64,
}

/// What the phases of all `records` took, in the order in which they happen.
pub fn time_spent<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Spent> {
    let mut counted = BTreeSet::new();
    let mut spent: BTreeMap<Phase, Spent> = BTreeMap::new();
    for record in records {
        // Clocks count from the beginning of a series of trials; two series cannot begin on one machine and
        // take the same time to the nanosecond.
        for span in record.phases.iter().filter(|span| counted.insert((span.name, span.begin, span.end))) {
            let took_s = span.end.since(span.begin).as_secs_f64();
            let none = Spent { phase: span.name, times: 0, total_s: 0.0, longest_s: 0.0 };
            let phase = spent.entry(span.name).or_insert(none);
            phase.times += 1;
            phase.total_s += took_s;
            phase.longest_s = phase.longest_s.max(took_s);
        }
    }
    spent.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Trial};
    use crate::record::PhaseSpan;
    use crate::trial::simulate::{Machine, trial};
    use crate::units::Tick;

    #[test]
    fn what_trials_share_is_counted_once() {
        let plan = include_str!("../../../../experiments/working-set.toml");
        let experiment = Experiment::parse(plan, "tiny", &[]).unwrap();
        let cell = &experiment.sweeps[0].cells[0];
        let mut record = trial("t", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default()).0;
        let span = |name, begin: u64, end: u64| PhaseSpan {
            name,
            begin: Tick(begin * 1_000_000_000),
            end: Tick(end * 1_000_000_000),
            evidence: String::new(),
        };
        record.phases = vec![span(Phase::WarmUp, 0, 20), span(Phase::Measure, 20, 30)];
        let mut second = record.clone();
        second.phases = vec![span(Phase::WarmUp, 0, 20), span(Phase::Measure, 32, 47)];
        let spent = time_spent([&record, &second].into_iter());
        let of = |phase, times, total_s, longest_s| Spent { phase, times, total_s, longest_s };
        assert_eq!(spent, [of(Phase::WarmUp, 1, 20.0, 20.0), of(Phase::Measure, 2, 25.0, 15.0)]);
        assert_eq!(time_spent([].into_iter()), []);
    }
}
