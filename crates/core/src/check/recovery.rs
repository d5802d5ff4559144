//! How long it was away: the time to the first success, until the objective holds again, and the throughput
//! before, during and after a fault, all from the clients' side. What was acknowledged and lost is no
//! success.

use super::history::Entry;
use super::loss::optional_span;
use crate::op::Op;
use crate::schedule::Injection;
use crate::units::{Rate, Tick, span};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::time::Duration;

/// What "it works again" means: of the operations that are due within `hold`, at least `share` are done
/// within `residence`, and no second passes without one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The limit of the time between when an operation was due and its answer. Records of before name it
    /// `service_ns`: they knew closed loops only, where that is the same.
    #[serde(rename = "residence_ns", alias = "service_ns", with = "span")]
    pub residence: Duration,
    /// The share that must keep it: 0.99.
    pub share: f64,
    /// For how long: 30 s.
    #[serde(rename = "hold_ns", with = "span")]
    pub hold: Duration,
}

impl Default for Objective {
    /// 99 % within 100 ms, for 30 s.
    fn default() -> Self {
        Objective { residence: Duration::from_millis(100), share: 0.99, hold: Duration::from_secs(30) }
    }
}

/// How a fault was lived through. Times count from the fault and carry its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Until the first success of an operation that changes something, sent after the fault. A write that was
    /// lost is none.
    #[serde(rename = "first_success_ns", with = "optional_span")]
    pub first_success: Option<Duration>,
    /// Until the objective holds again, to 100 ms; `None` where the history ends before.
    #[serde(rename = "objective_again_ns", with = "optional_span")]
    pub objective_again: Option<Duration>,
    /// Acknowledged operations per second before the fault, over at most the objective's hold, lost ones too:
    /// what it was worth is seen only afterwards.
    #[serde(rename = "before_ops_per_s")]
    pub before: Option<Rate>,
    /// Acknowledged and not lost, from the fault until the objective holds again (or the next fault, or the
    /// end).
    #[serde(rename = "during_ops_per_s")]
    pub during: Option<Rate>,
    /// Likewise, from then until the next fault or the end.
    #[serde(rename = "after_ops_per_s")]
    pub after: Option<Rate>,
}

/// Operations by client and sequence.
pub type Operations = HashSet<(u32, u64)>;

const BIN: u64 = 100_000_000;
const BINS_PER_SECOND: u64 = 10;

/// Operations by the tenth of a second in which they were due, counted from the first one on: what happened
/// takes memory and not how long it took, because a damaged history may claim centuries.
struct Timeline {
    start: u64,
    /// How many tenths there are.
    bins: u64,
    /// The tenth of each operation, in order.
    all: Vec<u64>,
    /// The same of those that were done in time and kept.
    good: Vec<u64>,
    /// When what was acknowledged was, in order.
    acknowledged: Vec<u64>,
    /// The same without what was lost.
    kept: Vec<u64>,
}

/// When an operation had its acknowledgement, unless it was lost.
fn kept(entry: &Entry, lost: &Operations) -> Option<Tick> {
    entry.acknowledged().filter(|_| !lost.contains(&(entry.client, entry.sequence)))
}

impl Timeline {
    fn new(entries: &[Entry], objective: &Objective, lost: &Operations) -> Option<Self> {
        let start = entries.iter().map(|entry| entry.due.0).min()?;
        let end = entries.iter().map(|entry| entry.due.0).max()?;
        let (mut all, mut good) = (Vec::new(), Vec::new());
        let (mut acknowledged, mut durable) = (Vec::new(), Vec::new());
        // Snapshots are the checker's own; nobody waits for them, and they may succeed where nothing else
        // does.
        for entry in entries.iter().filter(|entry| entry.op != Op::ReadBalances) {
            let bin = (entry.due.0 - start) / BIN;
            all.push(bin);
            acknowledged.extend(entry.acknowledged().map(|ended| ended.0));
            if let Some(ended) = kept(entry, lost) {
                durable.push(ended.0);
                good.extend((ended.since(entry.due) <= objective.residence).then_some(bin));
            }
        }
        for times in [&mut all, &mut good, &mut acknowledged, &mut durable] {
            times.sort_unstable();
        }
        Some(Timeline { start, bins: (end - start) / BIN + 1, all, good, acknowledged, kept: durable })
    }

    fn objective_again(&self, at: Tick, before: u64, objective: &Objective) -> Option<Duration> {
        let hold = (objective.hold.as_nanos() as u64).div_ceil(BIN).max(1);
        let second = BINS_PER_SECOND.min(hold);
        let first = at.0.saturating_sub(self.start).div_ceil(BIN);
        let most = (self.bins + 1).saturating_sub(hold);
        // Good operations between which no second passes: only there can a hold begin, with the first of them
        // in its first second, and end, with one of them in its last.
        self.good.chunk_by(|one, next| next - one <= second).find_map(|lively| {
            let from = first.max((lively[0] + 1).saturating_sub(second));
            let to = most.min((lively[lively.len() - 1] + second + 1).saturating_sub(hold));
            (from..to).find_map(|bin| {
                let time = self.start + bin * BIN;
                let (all, good) = (between(&self.all, bin, bin + hold), between(&self.good, bin, bin + hold));
                let holds = good as f64 >= all as f64 * objective.share;
                (holds && time < before).then(|| Tick(time).since(at))
            })
        })
    }
}

/// How many of these times, which are in order, lie between two others.
fn between(times: &[u64], from: u64, to: u64) -> usize {
    let until = |time: u64| times.partition_point(|end| *end < time);
    until(to) - until(from)
}

/// How many of these times per second lie between two others.
fn throughput(times: &[u64], from: u64, to: u64) -> Option<Rate> {
    (to > from).then(|| Rate(between(times, from, to) as f64 * 1e9 / (to - from) as f64))
}

/// One [`Recovery`] per injection, in their order; those without effect are left out of everybody's windows
/// but get figures as well. `lost` are the operations that were acknowledged and are gone.
pub fn recoveries(
    entries: &[Entry],
    injections: &[Injection],
    objective: &Objective,
    lost: &Operations,
) -> Vec<Recovery> {
    let nothing =
        Recovery { first_success: None, objective_again: None, before: None, during: None, after: None };
    let Some(timeline) = Timeline::new(entries, objective, lost) else {
        return vec![nothing; injections.len()];
    };
    let mut successes: Vec<(Tick, Tick)> = entries
        .iter()
        .filter(|entry| entry.op.changes())
        .filter_map(|entry| Some((entry.began, kept(entry, lost)?)))
        .collect();
    successes.sort_unstable();
    // earliest[i]: the first acknowledgement among the operations from i on.
    let mut earliest = vec![Tick(u64::MAX); successes.len() + 1];
    for i in (0..successes.len()).rev() {
        earliest[i] = earliest[i + 1].min(successes[i].1);
    }
    let fired: Vec<u64> = injections
        .iter()
        .filter(|injection| injection.had_effect())
        .map(|injection| injection.at.0)
        .collect();
    let end = entries.iter().filter_map(|entry| entry.ended).max().unwrap_or_default().0;
    let one = |injection: &Injection| {
        let at = injection.at;
        let surely_after = at + injection.uncertainty;
        let first = earliest[successes.partition_point(|(began, _)| *began < surely_after)];
        let next = fired.iter().copied().filter(|time| *time > at.0).min().unwrap_or(end);
        let previous = fired.iter().copied().filter(|time| *time < at.0).max().unwrap_or(timeline.start);
        let first_success = (first.0 < u64::MAX).then(|| first.since(at));
        // Few clients that all wait make few bad operations, so a share of operations may hold while they
        // wait.
        let objective_again = timeline
            .objective_again(at, next.max(at.0 + 1), objective)
            .map(|again| first_success.map_or(again, |first| again.max(first)));
        let back = objective_again.map_or(next, |span| (at + span).0);
        let hold = objective.hold.as_nanos() as u64;
        Recovery {
            first_success,
            objective_again,
            before: throughput(&timeline.acknowledged, previous.max(at.0.saturating_sub(hold)), at.0),
            during: throughput(&timeline.kept, at.0, back),
            after: throughput(&timeline.kept, back, next),
        }
    };
    injections.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Failure, Outcome};
    use crate::schedule::Effect;

    const MS: u64 = 1_000_000;

    /// One write every 10 ms, answered after 1 ms; from `from` to `to` refused, then slow until `slow`.
    fn run(from: u64, to: u64, slow: u64, end: u64) -> Vec<Entry> {
        (0..end / 10)
            .map(|n| {
                let began = n * 10;
                let refused = (from..to).contains(&began);
                let took = if (to..slow).contains(&began) { 200 } else { 1 };
                Entry {
                    ended: Some(Tick((began + took) * MS)),
                    outcome: if refused { Outcome::Refused(Failure::Unavailable) } else { Outcome::Done },
                    ..Entry::sent(0, n, Op::Insert { record: n }, Tick(began * MS))
                }
            })
            .collect()
    }

    fn fault(at: u64) -> Injection {
        let (uncertainty, effect) = (Duration::from_millis(1), Effect::Fired { count: 1 });
        let outages = vec![];
        Injection { rule: "kill a".into(), at: Tick(at * MS), uncertainty, undone: None, effect, outages }
    }

    fn objective() -> Objective {
        Objective { residence: Duration::from_millis(100), share: 0.99, hold: Duration::from_secs(3) }
    }

    /// Of one fault, with nothing lost.
    fn recovery(entries: &[Entry], at: u64) -> Recovery {
        recoveries(entries, &[fault(at)], &objective(), &Operations::default())[0]
    }

    #[test]
    fn an_outage_is_measured_from_the_fault() {
        let recovery = recovery(&run(10_000, 11_500, 13_000, 30_000), 10_000);
        // Back at 11.5 s, but the answer takes 200 ms; good again from 13 s.
        assert_eq!(recovery.first_success, Some(Duration::from_millis(1_700)));
        let again = recovery.objective_again.unwrap();
        assert!((2_900..=3_000).contains(&again.as_millis()), "{again:?}");
        assert!((recovery.before.unwrap().0 - 100.0).abs() < 1.0);
        assert!((recovery.after.unwrap().0 - 100.0).abs() < 2.0);
        assert!(recovery.during.unwrap().0 < 60.0);
    }

    #[test]
    fn what_waited_for_a_session_was_away_for_as_long() {
        // An open loop: all that was due in an outage of 1.5 s is sent and answered at once when it is over,
        // the last of it late by the queue that had formed.
        let mut entries = run(0, 0, 0, 30_000);
        for entry in &mut entries {
            let due = entry.due.0 / MS;
            if (10_000..13_000).contains(&due) {
                let began = 11_500 + (due - 10_000) / 2;
                (entry.began, entry.ended) = (Tick(began * MS), Some(Tick((began + 1) * MS)));
            }
        }
        let found = recovery(&entries, 10_000);
        assert_eq!(found.first_success, Some(Duration::from_millis(1_501)));
        let again = found.objective_again.unwrap().as_millis();
        assert!((2_700..=2_900).contains(&again), "due by then, it is done within 100 ms: {again}");
        // By the moment of sending, it would have been in order all the time.
        entries.iter_mut().for_each(|entry| entry.due = entry.began);
        assert_eq!(recovery(&entries, 10_000).objective_again, Some(Duration::from_millis(1_501)));
    }

    #[test]
    fn what_the_history_did_not_live_to_see_is_not_claimed() {
        assert_eq!(recovery(&run(10_000, 11_500, 13_000, 15_000), 10_000).objective_again, None);
        assert_eq!(recovery(&run(10_000, 99_000, 99_000, 30_000), 10_000).first_success, None);
        assert_eq!(recovery(&[], 1).before, None);
    }

    #[test]
    fn silence_is_not_health() {
        // One operation hangs from the fault on: nothing fails, and nothing is done for two seconds.
        let mut entries = run(0, 0, 0, 30_000);
        entries.retain(|entry| !(10_000 * MS..12_000 * MS).contains(&entry.began.0));
        let recovery = recovery(&entries, 10_000);
        assert!(recovery.first_success.unwrap() >= Duration::from_secs(2));
        assert_eq!(recovery.objective_again, recovery.first_success);
    }

    #[test]
    fn what_was_acknowledged_and_lost_is_no_success() {
        // A primary that is cut off goes on acknowledging for two seconds what is rolled back when it is
        // back; then nothing succeeds for a second.
        let entries = run(12_000, 13_000, 13_000, 30_000);
        let of_the_cut_off = |entry: &&Entry| (10_000 * MS..12_000 * MS).contains(&entry.began.0);
        let lost: Operations =
            entries.iter().filter(of_the_cut_off).map(|entry| (entry.client, entry.sequence)).collect();
        let honest = recovery(&entries, 10_000);
        assert_eq!(honest.first_success, Some(Duration::from_millis(11)), "what a page would have said");
        let recovery = recoveries(&entries, &[fault(10_000)], &objective(), &lost)[0];
        assert_eq!(recovery.first_success, Some(Duration::from_millis(3_001)));
        assert_eq!(recovery.objective_again, recovery.first_success);
        assert_eq!(recovery.during.unwrap().0, 0.0, "nothing that was done meanwhile is there");
        assert!((recovery.before.unwrap().0 - 100.0).abs() < 1.0);
        assert!((recovery.after.unwrap().0 - 100.0).abs() < 1.0);
        // What was lost before the fault was acknowledged before it.
        let lost: Operations =
            entries.iter().take(1000).map(|entry| (entry.client, entry.sequence)).collect();
        let recovery = recoveries(&entries, &[fault(10_000)], &objective(), &lost)[0];
        assert!((recovery.before.unwrap().0 - 100.0).abs() < 1.0);
    }

    #[test]
    fn a_history_of_centuries_takes_no_more_memory_than_its_operations() {
        let mut entries = run(0, 100, 10, 200);
        entries.push(Entry { due: Tick(u64::MAX / 2), ..entries[0].clone() });
        let recovery = recovery(&entries, 50 * BIN);
        assert_eq!(recovery.objective_again, None);
    }

    proptest::proptest! {
        /// Against the definition, looked up in every tenth of a second.
        #[test]
        fn a_hold_begins_where_the_definition_says(
            bins in proptest::collection::vec((0_u64..150, proptest::prelude::any::<bool>()), 1..200),
            hold in 1_u64..40,
            first in 0_u64..100,
            share in 0.1_f64..=1.0,
        ) {
            let (mut all, mut good): (Vec<u64>, Vec<u64>) = (vec![], vec![]);
            for (bin, is_good) in bins {
                all.push(bin);
                good.extend(is_good.then_some(bin));
            }
            all.sort_unstable();
            good.sort_unstable();
            let last = *all.last().unwrap();
            let (acknowledged, kept) = (vec![], vec![]);
            let timeline = Timeline { start: 0, bins: last + 1, all, good, acknowledged, kept };
            let objective = Objective { hold: Duration::from_nanos(hold * BIN), share, ..objective() };
            let second = hold.min(BINS_PER_SECOND);
            let holds = |bin: &u64| {
                let lively = (*bin..=bin + hold - second).all(|j| between(&timeline.good, j, j + second) > 0);
                let (from, to) = (*bin, bin + hold);
                let (all, good) = (between(&timeline.all, from, to), between(&timeline.good, from, to));
                lively && good as f64 >= all as f64 * share
            };
            let expected = (first..(last + 2).saturating_sub(hold)).find(holds);
            let expected = expected.map(|bin| Duration::from_nanos((bin - first) * BIN));
            let found = timeline.objective_again(Tick(first * BIN), u64::MAX, &objective);
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
