//! What a search leaves behind: its trials. The answer is a pure function of them.

use super::limit::{INTERVENTIONS, Intervention, Judgement, Limit, Measured, Resource, judge};
use super::{Answer, FinishedTrial, Goals, Step, next};
use crate::check::Finding;
use crate::experiment::{Promise, SearchSpec, Spec, interventions};
use crate::measure::Books;
use crate::measure::Offered;
use crate::record::Provenance;
use crate::target::Facts;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// All searches of one cell: as planned, and once more for every intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// Version of the format of records.
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The sweep that the cell belongs to.
    pub sweep: String,
    /// The cell's name.
    pub cell: String,
    /// Axis names and labels of the cell.
    pub labels: Vec<(String, String)>,
    /// Its settings as planned.
    pub spec: Spec,
    /// The promises, in the order of the goals.
    pub promises: Vec<Promise>,
    /// Who made it, with what.
    pub provenance: Provenance,
    /// Requirements of the machine that were missed, as sentences.
    pub missed: Vec<String>,
    /// What was read back from the target.
    pub target: Facts,
    /// Processors of the machine; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// How loading went, where faults began with it; of the last time that it was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Finding>,
    /// As planned first; then one for each intervention that was made.
    pub searches: Vec<Searched>,
    /// Why it ended before its time, if it did.
    pub failed: Option<String>,
}

/// One search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// What was changed, `None` for the search as planned.
    pub changed: Option<Resource>,
    /// What was searched.
    pub goals: Goals,
    /// The trials in the order in which they ran.
    pub trials: Vec<FinishedTrial>,
}

impl Searched {
    /// What was found; `None` while trials are missing.
    pub fn answer(&self) -> Option<Answer> {
        match next(&self.trials, &self.goals) {
            Step::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// The interval of the first promise, where both ends are known.
    fn measured(&self) -> Option<Measured> {
        let answer = self.answer()?;
        let capacity = answer.capacities.first()?;
        Some(Measured { low: capacity.low?, high: capacity.high? })
    }
}

impl SearchRecord {
    /// The search as planned.
    pub fn planned(&self) -> Option<&Searched> {
        self.searches.iter().find(|search| search.changed.is_none())
    }

    /// Whether it was made for these promises and this range: others make another search.
    pub fn is_of(&self, promises: &[Promise], goals: &Goals) -> bool {
        self.promises == promises && self.planned().is_some_and(|planned| planned.goals == *goals)
    }

    /// Whether nothing of it is left to do: it has its answer, and what limits was tested, where it is to be
    /// and the answer has both ends, until a limit was found or nothing was left to change.
    pub fn is_complete(&self, search: &SearchSpec) -> bool {
        let Some(planned) = self.planned() else { return false };
        if planned.answer().is_none() || self.failed.is_some() {
            return false;
        }
        let is_found = || self.limits().iter().any(|(_, judgement)| judgement.limit == Limit::LimitedBy);
        let is_tested = |resource| {
            let tested = self.searches.iter().find(|tested| tested.changed == Some(resource));
            tested.is_some_and(|tested| tested.answer().is_some())
        };
        !search.interventions
            || planned.measured().is_none()
            || is_found()
            || interventions(&self.spec, search.scale).iter().all(|(change, _)| is_tested(change.resource))
    }

    /// What the interventions showed about the limit of the first promise, in the order in which they were
    /// made.
    pub fn limits(&self) -> Vec<(&'static Intervention, Judgement)> {
        let Some(before) = self.planned().and_then(Searched::measured) else { return vec![] };
        self.searches
            .iter()
            .filter_map(|search| {
                let resource = search.changed?;
                let intervention = INTERVENTIONS.iter().find(|i| i.resource == resource)?;
                Some((intervention, judge(intervention, before, search.measured()?)))
            })
            .collect()
    }
}

/// Counts a trial's operations for the search.
///
/// `books` hold what ended from the begin of the load until everything in flight was answered or given up, so
/// that what was sent is what was answered or not. In an open loop `offered` says what was due in the trial's
/// duration, and what of that was not sent, then or while the load was ended, never was. In a closed loop
/// what was sent is what was scheduled.
pub fn count(
    books: &Books,
    offered: Option<&Offered>,
    unanswered: u64,
    promises: &[Promise],
    trial: FinishedTrial,
) -> FinishedTrial {
    let late = |promise: &Promise| books.done() - books.done_within(promise.limit).min(books.done());
    let sent = books.answered() + unanswered;
    let due = offered.map_or(sent, |offered| offered.due);
    FinishedTrial {
        scheduled: due.max(sent),
        late: promises.iter().map(late).collect(),
        failed: books.failed(),
        not_sent: due.saturating_sub(sent),
        unfinished: unanswered,
        ..trial
    }
}

/// Whether the generator was so late that the trial says nothing about the target: of its sends, more were
/// late by a tenth of a promise's limit than that promise bears. A p99 is decided by a hundredth of the
/// operations, and a hundredth may be late; a median by half of them, so a twentieth shifts it no further
/// than from p45 to p55.
///
/// # Errors
/// When the histogram cannot be read.
pub fn generator_was_late(offered: &Offered, promises: &[Promise]) -> Result<bool, String> {
    let lateness = offered.lateness()?;
    let is_late = |promise: &Promise| {
        let bears = (promise.bad_ratio() / 10.0).max(0.01);
        Duration::from_nanos(lateness.value_at_quantile(1.0 - bears)) > promise.limit / 10
    };
    Ok(!lateness.is_empty() && promises.iter().any(is_late))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{encode, histogram};
    use crate::op::{Failure, OpKind, Outcome, Timing};
    use crate::search::{Purpose, Rest};
    use crate::units::Tick;

    fn trial() -> FinishedTrial {
        FinishedTrial {
            load: 100.0,
            duration: Duration::from_secs(1),
            lost_after: None,
            scheduled: 0,
            late: vec![],
            failed: 0,
            not_sent: 0,
            unfinished: 0,
            generator_late: false,
            late_generators: vec![],
            purpose: Purpose::Narrow { slo: 0 },
            rest: Rest::Unknown,
            rested_for: Duration::ZERO,
            device: None,
            canaries: vec![],
        }
    }

    fn offered(backlog: u64, late_ns: u64) -> Offered {
        let mut lateness = histogram();
        lateness.saturating_record_n(late_ns, 100);
        Offered {
            due: 100,
            begun: 100 - backlog,
            carried_in: 0,
            backlog,
            in_flight: 0,
            unanswered: 0,
            backlog_most: backlog,
            lateness: encode(&lateness),
        }
    }

    #[test]
    fn late_failed_unsent_and_unfinished_operations_are_all_bad() {
        let mut books = Books::open();
        for n in 0..90u64 {
            // Ten take longer than 20 ms from when they were due, five are refused.
            let ended = if n < 10 { 30_000_000 } else { 1_000_000 };
            let outcome = if n >= 85 { Outcome::Refused(Failure::Conflict) } else { Outcome::Done };
            books.record(
                OpKind::Read,
                outcome,
                &Timing { due: Tick(0), began: Tick(0), ended: Tick(ended) },
                0,
            );
        }
        let promises: Vec<Promise> = vec!["p99 <= 20 ms".parse().unwrap(), "p99 <= 1 s".parse().unwrap()];
        let counted = count(&books, Some(&offered(7, 1)), 3, &promises, trial());
        assert_eq!((counted.scheduled, counted.failed, counted.not_sent, counted.unfinished), (100, 5, 7, 3));
        assert_eq!(counted.late, [10, 0]);
        assert_eq!(counted.bad_ratio(0), 0.25);
        let closed = count(&books, None, 0, &promises, trial());
        assert_eq!((closed.scheduled, closed.not_sent), (90, 0));
    }

    /// Operations of the backlog are sent while the load is being ended: they are late, and not "not sent" as
    /// well. Together they were once 161.6 % of what was due.
    #[test]
    fn no_operation_is_bad_twice() {
        let mut books = Books::open();
        for _ in 0..80u64 {
            let timing = Timing { due: Tick(0), began: Tick(0), ended: Tick(30_000_000) };
            books.record(OpKind::Read, Outcome::Done, &timing, 0);
        }
        let promises: Vec<Promise> = vec!["p99 <= 20 ms".parse().unwrap()];
        let overloaded = count(&books, Some(&offered(90, 1)), 5, &promises, trial());
        assert_eq!((overloaded.scheduled, overloaded.not_sent, overloaded.bad(0)), (100, 15, 100));
        assert_eq!(overloaded.bad_ratio(0), 1.0);
        // What became due while the load was ended, and was sent, was scheduled too.
        let more = count(&books, Some(&Offered { due: 60, ..offered(0, 1) }), 5, &promises, trial());
        assert_eq!((more.scheduled, more.not_sent, more.bad(0)), (85, 0, 85));
    }

    #[test]
    fn a_late_generator_says_nothing_about_the_target() {
        let promises: Vec<Promise> = vec!["p99 <= 20 ms".parse().unwrap(), "p99.9 <= 1 s".parse().unwrap()];
        assert!(!generator_was_late(&offered(0, 1_900_000), &promises).unwrap());
        assert!(generator_was_late(&offered(0, 2_100_000), &promises).unwrap());
    }

    #[test]
    fn a_median_bears_more_late_operations_than_a_p99() {
        let with_late = |late: u64| {
            let mut lateness = histogram();
            lateness.saturating_record_n(1_000, 100 - late);
            lateness.saturating_record_n(9_000_000, late);
            Offered { lateness: encode(&lateness), ..offered(0, 0) }
        };
        let late = |promise: &str, share: u64| {
            generator_was_late(&with_late(share), &[promise.parse().unwrap()]).unwrap()
        };
        assert_eq!([1, 2].map(|share| late("p99 <= 20 ms", share)), [false, true]);
        assert_eq!([1, 2].map(|share| late("p95 <= 20 ms", share)), [false, true]);
        assert_eq!([5, 6].map(|share| late("p50 <= 20 ms", share)), [false, true]);
    }
}
