//! What a search for tipping points is told: promises, the range of loads, and how thorough to be.

use super::{CacheSize, Durability, LoadSpec, PlanError, Spec};
use crate::search::limit::{INTERVENTIONS, Intervention, Resource};
use crate::search::{Goals, Scale, Slo};
use crate::units::{Bytes, Rate, Ratio, span};
use crate::workload::Arrivals;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A promise about residence: `p99 <= 20 ms`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Percentile, in percent: 99 or 99.9.
    pub percentile: f64,
    /// What it may be at most.
    pub limit: Duration,
}

impl Promise {
    /// The share of operations that may take longer, or fail: 0.01 for a p99.
    pub fn bad_ratio(self) -> f64 {
        // By way of the decimal digits: 1 − 0.99 is not 0.01 in binary.
        format!("{:.9}", 1.0 - self.percentile / 100.0).parse().expect("a printed number is a number")
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} <= {}", self.percentile, span::print(self.limit))
    }
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = || format!("{text:?} is no promise; write for example \"p99 <= 20 ms\"");
        let (percentile, limit) =
            ["<=", "≤", "<"].iter().find_map(|sign| text.split_once(sign)).ok_or_else(example)?;
        let percentile: f64 =
            percentile.trim().strip_prefix('p').and_then(|p| p.parse().ok()).ok_or_else(example)?;
        if !(percentile > 0.0 && percentile < 100.0) {
            return Err(format!(
                "{text:?}: a percentile lies between 0 and 100, and no promise covers the slowest operation of all"
            ));
        }
        let limit = span::parse(limit.trim()).map_err(|e| format!("{text:?}: {e}"))?;
        if limit.is_zero() {
            return Err(format!("{text:?}: no operation takes no time, so this promise fails at every load"));
        }
        Ok(Promise { percentile, limit })
    }
}

impl Serialize for Promise {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Promise {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The `[search]` table of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSpec {
    /// The promises; all are searched with the same trials.
    pub promises: Vec<Promise>,
    /// The sweeps whose cells are searched; empty for all.
    pub sweeps: Vec<String>,
    /// Offered load of an open loop, or sessions of a closed one.
    pub scale: Scale,
    /// Lowest load that is tried, in operations per second or sessions.
    pub least: f64,
    /// Highest load that is tried. The generator's own ceiling ends the search anyway.
    pub most: f64,
    /// Where to begin; from the lowest load upwards without it. Trials at low loads last longest, so a guess
    /// saves minutes.
    pub guess: Option<f64>,
    /// Relative width of the interval before its confirmation.
    pub width: Ratio,
    /// Length of the coarse trials.
    #[serde(with = "span")]
    pub short: Duration,
    /// Length of the trials that decide.
    #[serde(with = "span")]
    pub long: Duration,
    /// Time that one load is weighed by.
    #[serde(with = "span")]
    pub duration_sum: Duration,
    /// Length of a confirming trial.
    #[serde(with = "span")]
    pub confirmation: Duration,
    /// Confirming trials on each side.
    pub confirmations: u32,
    /// How many operations would be bad in a deciding trial right at the limit; a trial lasts until it has
    /// room for them.
    pub bad_samples: u32,
    /// Whether to sweep up and down in search of hysteresis.
    pub hysteresis: bool,
    /// Time of trials and of the rests after them, per cell, after which the search ends with what it has; 0
    /// for none.
    #[serde(with = "span")]
    pub budget: Duration,
    /// Whether the limit is tested by changing what may be it and searching again.
    pub interventions: bool,
}

impl Default for SearchSpec {
    fn default() -> Self {
        SearchSpec {
            promises: vec![],
            sweeps: vec![],
            scale: Scale::OpsPerSecond,
            least: 1.0,
            most: 1e6,
            guess: None,
            width: Ratio(0.05),
            short: Duration::from_secs(2),
            long: Duration::from_secs(5),
            duration_sum: Duration::from_secs(25),
            confirmation: Duration::from_secs(5),
            confirmations: 5,
            bad_samples: 200,
            hysteresis: false,
            budget: Duration::from_secs(600),
            interventions: true,
        }
    }
}

impl SearchSpec {
    /// The same for [`crate::search::next`].
    ///
    /// # Errors
    /// A sentence about what cannot be used.
    pub fn goals(&self, seed: u64) -> Result<Goals, PlanError> {
        let slos = self
            .promises
            .iter()
            .map(|promise| Slo { name: promise.to_string(), bad_ratio: promise.bad_ratio() })
            .collect();
        let goals = Goals {
            width: self.width.0,
            short: self.short,
            long: self.long,
            duration_sum: self.duration_sum,
            confirmation: self.confirmation,
            confirmations: self.confirmations,
            bad_samples: self.bad_samples,
            sweeps: self.hysteresis,
            budget: (!self.budget.is_zero()).then_some(self.budget),
            seed,
            // A range that was narrowed down on the command line may leave the plan's guess outside.
            guess: self.guess.map(|guess| guess.min(self.most).max(self.least)),
            ..Goals::new(self.scale, slos, self.least, self.most)
        };
        match goals.check() {
            Ok(()) => Ok(goals),
            Err(_) if self.promises.is_empty() => Err(PlanError(
                "a search needs a promise, for example search.promises = [\"p99 <= 20 ms\"]".into(),
            )),
            Err(reason) => Err(PlanError(format!("search: {reason}"))),
        }
    }
}

impl SearchSpec {
    /// Whether every trial of the search can be made of `spec`: its faults, if it has any, happen in each,
    /// for each begins their schedule anew; and each of its machines has a session.
    ///
    /// # Errors
    /// The rule that never acts in the shortest trial, or the range that leaves a machine out, and what to
    /// change.
    pub fn check_cell(&self, spec: &Spec) -> Result<(), PlanError> {
        let machines = spec.load.machines;
        if self.scale == Scale::Sessions && self.least < f64::from(machines) {
            return Err(PlanError(format!(
                "search.least of {} sessions cannot be shared by load.machines = {machines}: begin with {machines}",
                self.least
            )));
        }
        if spec.workload.scripts.as_ref().is_some_and(|scripts| scripts.recorded.is_some()) {
            return Err(PlanError(
                "a record has one load, its own, and a search wants many: learn a plan from it".into(),
            ));
        }
        let Some(breaking) = &spec.breaking else { return Ok(()) };
        let shortest = self.short.min(self.long).min(self.confirmation);
        let names = spec.cluster()?.layout().names();
        breaking.faults.expand(&names, shortest, 1).map(drop).map_err(|error| {
            PlanError(format!(
                "break.faults in a search: {error}; make search.short, search.long and search.confirmation longer"
            ))
        })
    }
}

impl SearchSpec {
    /// Whether a trial of the search may send `load`, of a cell with the load `planned`.
    pub fn may_send(&self, load: &LoadSpec, planned: &LoadSpec) -> bool {
        let wanted = match (self.scale, &load.arrivals) {
            (Scale::Sessions, _) => f64::from(load.sessions),
            (Scale::OpsPerSecond, Some(Arrivals::Constant(rate) | Arrivals::Poisson(rate))) => rate.0,
            (Scale::OpsPerSecond, _) => return false,
        };
        wanted <= self.most && *load == planned.at(wanted, self.scale)
    }
}

impl LoadSpec {
    /// This load with another number of sessions, or of operations offered per second: arrivals as the plan
    /// shapes them.
    pub fn at(&self, load: f64, scale: Scale) -> LoadSpec {
        match scale {
            Scale::Sessions => LoadSpec { sessions: load as u32, arrivals: None, ..self.clone() },
            Scale::OpsPerSecond => {
                let arrivals = match self.arrivals {
                    Some(Arrivals::Constant(_)) => Arrivals::Constant(Rate(load)),
                    // Independent users: the default.
                    _ => Arrivals::Poisson(Rate(load)),
                };
                LoadSpec { arrivals: Some(arrivals), think: Duration::ZERO, ..self.clone() }
            }
        }
    }
}

/// The interventions that can be made on `spec`, each with the changed settings.
pub fn interventions(spec: &Spec, scale: Scale) -> Vec<(&'static Intervention, Spec)> {
    INTERVENTIONS
        .iter()
        .filter_map(|intervention| {
            let mut changed = spec.clone();
            change(&mut changed, intervention, scale).filter(|()| changed.check().is_ok())?;
            Some((intervention, changed))
        })
        .collect()
}

/// Makes the change; `None` where the settings have nothing to change.
fn change(spec: &mut Spec, intervention: &Intervention, scale: Scale) -> Option<()> {
    let factor = intervention.factor;
    let times = |bytes: Bytes| Bytes((bytes.0 as f64 * factor) as u64);
    let embedded = spec.target.kind == super::TargetKind::Wiredtiger;
    match intervention.resource {
        Resource::DiskRequests => {
            let mut shape = spec.shape().ok()?;
            shape.iops = Some(crate::units::Rate(shape.iops?.0 * factor));
            spec.disk.shape = shape.to_string();
        }
        Resource::DiskLatency => {
            let mut shape = spec.shape().ok()?;
            if shape.latency.is_zero() {
                return None;
            }
            shape.latency = shape.latency.mul_f64(factor);
            spec.disk.shape = shape.to_string();
        }
        Resource::EngineCache if embedded => {
            let (cache, memory) = (spec.cache_bytes(), spec.machine.memory);
            let grown = times(cache);
            // The records stay as many as they are, and the page cache as large as it is.
            spec.workload.records = Some(spec.records());
            spec.machine.memory = memory.map(|memory| Bytes(memory.0 + grown.0 - cache.0));
            spec.target.wiredtiger.cache = CacheSize::Bytes(grown);
        }
        Resource::PageCache if embedded => {
            spec.target.wiredtiger.cache = CacheSize::Bytes(spec.cache_bytes());
            spec.workload.records = Some(spec.records());
            spec.machine.memory = Some(times(spec.machine.memory?));
        }
        Resource::Contention | Resource::Concurrency if scale == Scale::OpsPerSecond => {
            let sessions = (f64::from(spec.load.sessions) * factor) as u32;
            if sessions == 0 || sessions == spec.load.sessions {
                return None;
            }
            spec.load.sessions = sessions;
        }
        Resource::Durability if embedded => {
            let waits = matches!(spec.target.durability, Durability::Written | Durability::Journalled);
            waits.then(|| spec.target.durability = Durability::Acknowledged)?;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_printed_as_they_are_parsed() {
        for text in ["p99 <= 20 ms", "p99.9 <= 1 s", "p50 <= 300 us"] {
            let promise: Promise = text.parse().unwrap();
            assert_eq!(promise.to_string().parse::<Promise>().unwrap(), promise);
        }
        assert_eq!("p99<20ms".parse::<Promise>(), "p99 ≤ 20 ms".parse());
        assert_eq!("p99 <= 1 s".parse::<Promise>().unwrap().bad_ratio(), 0.01);
        assert_eq!("p99.9 <= 1 s".parse::<Promise>().unwrap().bad_ratio(), 0.001);
        for wrong in [
            "",
            "p99",
            "99 <= 1 s",
            "p100 <= 1 s",
            "p0 <= 1 s",
            "p99 <= soon",
            "p99 <= 0 ms",
            "p99 <= -1 s",
            "pNaN <= 1 s",
        ] {
            assert!(wrong.parse::<Promise>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_search_without_a_promise_says_what_is_missing() {
        let error = SearchSpec::default().goals(1).unwrap_err();
        assert!(error.to_string().contains("p99 <= 20 ms"), "{error}");
        let promises = vec!["p99 <= 5 ms".parse().unwrap()];
        let backwards = SearchSpec { promises, least: 10.0, most: 5.0, ..SearchSpec::default() };
        assert!(backwards.goals(1).unwrap_err().to_string().contains("10.0 to 5.0"));
    }

    fn spec() -> Spec {
        let plan = include_str!("../../../../experiments/working-set.toml");
        let experiment = super::super::Experiment::parse(plan, "quick", &[]).unwrap();
        let cells = &experiment.sweeps[1].cells;
        cells.iter().find(|cell| cell.label("disk") == Some("600 IOPS + 7 ms")).unwrap().spec.clone()
    }

    #[test]
    fn an_intervention_changes_its_resource_and_nothing_else() {
        let spec = spec();
        let made = interventions(&spec, Scale::OpsPerSecond);
        let names: Vec<&str> = made.iter().map(|(intervention, _)| intervention.change).collect();
        let wanted =
            ["more IOPS", "shorter latency", "more cache", "more memory", "fewer sessions", "more sessions"];
        assert_eq!(names, wanted);
        for (intervention, changed) in made {
            assert_eq!(changed.records(), spec.records(), "{}", intervention.change);
            let page_cache = |spec: &Spec| spec.machine.memory.unwrap().0 - spec.cache_bytes().0;
            match intervention.resource {
                Resource::DiskRequests => assert_eq!(changed.shape().unwrap().iops.unwrap().0, 1200.0),
                Resource::DiskLatency => {
                    assert_eq!(changed.shape().unwrap().latency, Duration::from_micros(3_500));
                }
                Resource::EngineCache => assert_eq!(page_cache(&changed), page_cache(&spec)),
                Resource::PageCache => assert_eq!(changed.cache_bytes(), spec.cache_bytes()),
                _ => assert_ne!(changed.load.sessions, spec.load.sessions),
            }
        }
    }
}
