//! What users saw before, during and after faults, from the books of the intervals.

use super::timeline::merged;
use super::{CellRecords, Figure};
use crate::measure::{Books, Histogram, TooFew, mean_of_trials, percentile_of_trials};
use crate::record::{Interval, Phase, Record};
use crate::units::Tick;
use serde::Serialize;
use std::collections::BTreeMap;

/// A part of the measured phase, as faults divide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spell {
    /// Until the first fault.
    Before,
    /// While a fault is in force: every interval that it touches.
    During,
    /// After the first fault, while none is in force.
    After,
    /// All of it.
    Whole,
}

impl Spell {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Spell::Before => "before",
            Spell::During => "while broken",
            Spell::After => "after",
            Spell::Whole => "the whole trial",
        }
    }
}

/// What became of the operations of one spell of one trial.
#[derive(Debug, Clone)]
pub struct Served {
    seconds: f64,
    books: Books,
    due: Option<u64>,
    backlog_most: Option<u64>,
}

/// The spells of one trial; those without an interval are absent.
pub type Spells = BTreeMap<Spell, Served>;

/// The spells of `record`: only [`Spell::Whole`] where nothing was broken.
pub fn spells(record: &Record, intervals: &[Interval]) -> Spells {
    let faults = record.broken.iter().flat_map(|broken| &broken.faults);
    let times: Vec<(Tick, Tick)> = faults
        .map(|carried| &carried.injection)
        .filter(|injection| injection.at > Tick(0))
        .map(|injection| (injection.at, injection.undone.unwrap_or(Tick(u64::MAX))))
        .collect();
    let first = times.iter().map(|(at, _)| *at).min();
    let of = |interval: &Interval| {
        let touches = |(at, undone): &(Tick, Tick)| *at < interval.end && interval.begin < *undone;
        Some(match first? {
            _ if times.iter().any(touches) => Spell::During,
            first if interval.begin < first => Spell::Before,
            _ => Spell::After,
        })
    };
    let mut groups: BTreeMap<Spell, Vec<&Interval>> = BTreeMap::new();
    for interval in intervals.iter().filter(|interval| interval.phase == Phase::Measure) {
        groups.entry(Spell::Whole).or_default().push(interval);
        if let Some(spell) = of(interval) {
            groups.entry(spell).or_default().push(interval);
        }
    }
    groups.into_iter().filter_map(|(spell, group)| Some((spell, Served::of(&group)?))).collect()
}

impl Served {
    /// Operations that were done.
    pub fn done(&self) -> u64 {
        self.books.done()
    }

    /// How long it lasted.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    fn of(group: &[&Interval]) -> Option<Served> {
        let offered = || group.iter().filter_map(|interval| interval.offered.as_ref());
        let is_open = offered().next().is_some();
        Some(Served {
            seconds: group.iter().map(|interval| interval.end.since(interval.begin).as_secs_f64()).sum(),
            books: merged(group)?,
            due: is_open.then(|| offered().map(|offered| offered.due).sum()),
            backlog_most: offered().map(|offered| offered.backlog).max(),
        })
    }
}

/// The figures of one spell over the trials of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpellFigures {
    /// Which.
    pub spell: Spell,
    /// How long it lasted.
    pub lasted_s: Figure,
    /// Operations that became due per second; missing in a closed loop.
    pub offered_ops_per_s: Figure,
    /// Operations done per second.
    pub throughput_ops_per_s: Figure,
    /// Operations done within the time-out of being due, per second.
    pub goodput_ops_per_s: Figure,
    /// What users waited: the median.
    pub residence_ms_p50: Figure,
    /// The 99th percentile.
    pub residence_ms_p99: Figure,
    /// The 99.9th percentile.
    pub residence_ms_p999: Figure,
    /// Operations that failed in all trials, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Operations due and not sent at the end of an interval, the most of all trials; absent in a closed
    /// loop.
    pub backlog_most: Option<u64>,
    /// Operations that were due and never sent, or never answered, in all trials: known of the whole only.
    pub never_served: Option<u64>,
}

/// The figures of `cell` from the spells of its trials that can be believed, in the order of time.
pub fn figures(cell: &CellRecords<'_>, trials: &[Spells]) -> Vec<SpellFigures> {
    let longest = cell.cell.spec.load.timeout;
    let of = |spell: Spell| {
        let served: Vec<&Served> = trials.iter().filter_map(|spells| spells.get(&spell)).collect();
        if served.is_empty() {
            return None;
        }
        let count = served.len() as u32;
        let mean = |of: &dyn Fn(&Served) -> Option<f64>, why: &str| {
            let values: Option<Vec<f64>> = served.iter().map(|served| of(served)).collect();
            let estimate = values.and_then(|values| mean_of_trials(&values)).ok_or_else(|| why.to_string());
            Figure::of(estimate, count).not_negative()
        };
        let per_s =
            |count: u64, served: &Served| (served.seconds > 0.0).then(|| count as f64 / served.seconds);
        let waited: Vec<Histogram> = served.iter().map(|served| served.books.residence()).collect();
        let percentile = |quantile| {
            let estimate = percentile_of_trials(&waited, quantile).map(|estimate| estimate.scaled(1e-6));
            let why = |few: TooFew| format!("too few operations: it takes {}", few.need);
            Figure::of(estimate.map_err(why), count)
        };
        let mut failed: BTreeMap<String, u64> = BTreeMap::new();
        for (failure, count) in served.iter().flat_map(|served| served.books.failures()) {
            *failed.entry(failure.name().to_string()).or_default() += count;
        }
        let goodput = |served: &Served| {
            let timely = (!longest.is_zero()).then(|| served.books.done_within(longest))?;
            per_s(timely, served)
        };
        let lost = cell.measured().into_iter().filter_map(|measured| Some(measured.offered.as_ref()?.lost()));
        let lost: Vec<u64> = lost.collect();
        Some(SpellFigures {
            spell,
            lasted_s: mean(&|served| Some(served.seconds), "it did not last"),
            offered_ops_per_s: mean(&|served| per_s(served.due?, served), "closed loop: the target decides"),
            throughput_ops_per_s: mean(&|served| per_s(served.books.done(), served), "it did not last"),
            goodput_ops_per_s: mean(&goodput, "without a time-out nothing is too late"),
            residence_ms_p50: percentile(0.5),
            residence_ms_p99: percentile(0.99),
            residence_ms_p999: percentile(0.999),
            failed,
            backlog_most: served.iter().filter_map(|served| served.backlog_most).max(),
            never_served: (spell == Spell::Whole && !lost.is_empty()).then(|| lost.iter().sum()),
        })
    };
    [Spell::Before, Spell::During, Spell::After, Spell::Whole].into_iter().filter_map(of).collect()
}
