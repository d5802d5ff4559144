//! What faults cost: acknowledgements that were lost, charged to the fault that lost them, and what zero
//! losses in n faults exclude. The same for writes of the ledger and transfers of the bank.

use super::history::Entry;
use super::recovery::{Objective, Operations, Recovery, recoveries};
use super::{AtRisk, Observation};
use crate::probability;
use crate::schedule::{Fault, Injection, Schedule, Undo};
use crate::units::{Tick, significant, span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

impl FaultFigures {
    /// How many acknowledgements the fault could have lost.
    pub fn exposed(&self) -> u64 {
        self.acknowledged_in_window + self.acknowledged_apart
    }

    /// Whether it is a test of what was acknowledged: it lost something, or enough was exposed to it. A power
    /// cut that found nothing on its disks and in its page caches that was not durable is none.
    pub fn is_test(&self, least_acknowledged: u64) -> bool {
        let took_nothing = self.at_risk.is_some_and(|at_risk| at_risk.is_nothing());
        self.had_effect && (self.lost > 0 || (self.exposed() >= least_acknowledged && !took_nothing))
    }

    /// The first and the last acknowledgement that was lost, in nanoseconds from the fault on; negative
    /// before it.
    pub fn lost_span(&self) -> Option<(i64, i64)> {
        let from_fault = |at: Tick| at.0 as i64 - self.at.0 as i64;
        self.first_lost.zip(self.last_lost).map(|(first, last)| (from_fault(first), from_fault(last)))
    }
}

/// Whether a fault keeps nodes apart without killing any: whoever dies takes with it what it alone knew until
/// then, but two sides that live can each go on acknowledging what the other will not keep.
fn parts(injection: &Injection) -> bool {
    let schedule: Result<Schedule, _> = injection.rule.parse();
    schedule.is_ok_and(|schedule| {
        let undone = schedule.rules.iter().map(|rule| rule.fault.undo());
        !schedule.rules.is_empty() && undone.into_iter().all(|undo| matches!(undo, Undo::Heal | Undo::Resume))
    })
}

/// How a fault can lose what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Two sides live, and each acknowledges what the other will not keep: what is acknowledged while it
    /// lasts.
    Parts,
    /// Somebody dies, gives up or hands over: what came before, and what a successor that lags takes on.
    Kills,
    /// It makes slow, and loses nothing by itself.
    Hampers,
}

/// How `injection` can lose something; a rule that is no sentence is taken for the worst.
fn harm(injection: &Injection) -> Harm {
    let schedule: Result<Schedule, _> = injection.rule.parse();
    let of = |fault: &Fault| match fault {
        Fault::Cut { .. } | Fault::Flap { .. } | Fault::Pause { .. } => Harm::Parts,
        Fault::Kill { .. }
        | Fault::KillBackend { .. }
        | Fault::PowerCut { .. }
        | Fault::StepDown { .. }
        | Fault::FillDisk { .. }
        | Fault::FailFlush { .. } => Harm::Kills,
        Fault::Delay { .. }
        | Fault::Loss { .. }
        | Fault::SlowDisk { .. }
        | Fault::SqueezeCpu { .. }
        | Fault::SqueezeMemory { .. }
        | Fault::JumpClock { .. } => Harm::Hampers,
    };
    match schedule.as_ref().map(|schedule| &schedule.rules[..]) {
        Ok([rule]) => of(&rule.fault),
        _ => Harm::Kills,
    }
}

/// What counts as a test of durability, and what was promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exposure {
    /// The window before a fault whose acknowledgements are at risk: 100 ms, or what the database documents.
    #[serde(rename = "window_ns", with = "span")]
    pub window: Duration,
    /// How many acknowledgements must lie in the window before a fault, or be given while it keeps living
    /// nodes apart, for it to count as a test.
    pub least_acknowledged: u64,
    /// The loss that the setting documents, to print beside what was found.
    #[serde(rename = "documented_ns", with = "optional_span")]
    pub documented: Option<Duration>,
    /// What "works again" means.
    pub objective: Objective,
    /// Writes are done when they were sent and nobody answers: those of two clients arrive in any order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unanswered: bool,
}

impl Default for Exposure {
    fn default() -> Self {
        Exposure {
            window: Duration::from_millis(100),
            least_acknowledged: 30,
            documented: None,
            objective: Objective::default(),
            unanswered: false,
        }
    }
}

/// What one fault did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultFigures {
    /// The rule.
    pub rule: String,
    /// When.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// How far `at` may be off: the error of `loss_window`.
    #[serde(rename = "uncertainty_ns", with = "span")]
    pub uncertainty: Duration,
    /// Whether the fault had an effect.
    pub had_effect: bool,
    /// Acknowledged within the window before the fault: how much was at risk.
    pub acknowledged_in_window: u64,
    /// Acknowledged while the fault lasted, if it parted nodes that live: a cut link or a pause. What either
    /// side acknowledged then is at risk when they meet again.
    #[serde(default)]
    pub acknowledged_apart: u64,
    /// Acknowledged, and lost by this fault.
    pub lost: u64,
    /// From the first acknowledgement that was lost to the fault: the data-loss window (RPO).
    #[serde(rename = "loss_window_ns", with = "optional_span")]
    pub loss_window: Option<Duration>,
    /// From the first to the last acknowledgement that was lost.
    #[serde(rename = "loss_width_ns", with = "optional_span")]
    pub loss_width: Option<Duration>,
    /// The first of them.
    #[serde(rename = "first_lost_ns", default)]
    pub first_lost: Option<Tick>,
    /// The last of them.
    #[serde(rename = "last_lost_ns", default)]
    pub last_lost: Option<Tick>,
    /// Of a power cut: what was not durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_risk: Option<AtRisk>,
    /// How long it was away.
    #[serde(flatten)]
    pub recovery: Recovery,
}

/// `#[serde(with)]`: nanoseconds, or null.
pub(super) mod optional_span {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(span: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        span.map(|span| span.as_nanos() as u64).serialize(s)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_nanos))
    }
}

/// The chance to lose something in a fault, from how often it happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossChance {
    /// Faults that lost something acknowledged.
    pub with_loss: u64,
    /// Faults that had an effect, and enough acknowledgements before them.
    pub faults: u64,
    /// The fewest acknowledgements that any of them could have lost.
    pub least_acknowledged: u64,
    /// Lower end, 95 %: 0 where nothing was lost.
    pub low: f64,
    /// Upper end, 95 %: one-sided where nothing was lost (1 − 0.05^(1/faults)), else Clopper and Pearson's.
    pub high: f64,
}

/// All losses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// How many acknowledgements were lost.
    pub lost: u64,
    /// One per fault.
    pub faults: Vec<FaultFigures>,
    /// What all faults together say.
    pub chance: LossChance,
    /// The operations that were acknowledged and are gone; not kept in records.
    #[serde(skip)]
    pub operations: Operations,
}

impl Losses {
    /// Counts success anew, where others have lost operations of this history too: those are none either.
    pub fn recover(&mut self, seen: &Observation, objective: &Objective, lost: &Operations) {
        let anew = recoveries(&seen.history.entries, &seen.injections, objective, lost);
        for (fault, recovery) in self.faults.iter_mut().zip(anew) {
            fault.recovery = recovery;
        }
    }

    /// What its power cuts put at risk.
    pub fn at_risk(&self) -> Vec<AtRisk> {
        self.faults.iter().filter(|fault| fault.had_effect).filter_map(|fault| fault.at_risk).collect()
    }

    /// The fault with the longest window: of those whose moment is known better than their window is long,
    /// or of all if there are none such. A machine that stalls while it breaks something does not know when
    /// it did.
    pub fn widest(&self) -> Option<(&FaultFigures, Duration)> {
        let windows = || self.faults.iter().filter_map(|fault| Some((fault, fault.loss_window?)));
        let sure = windows().filter(|(fault, window)| fault.uncertainty < *window);
        sure.max_by_key(|(_, window)| *window).or_else(|| windows().max_by_key(|(_, window)| *window))
    }
}

impl Exposure {
    /// Charges every lost acknowledgement to a fault. `acknowledged` are the times of all acknowledgements,
    /// `lost` the operations that were acknowledged and are gone, both in any order.
    pub fn charge(&self, seen: &Observation, mut acknowledged: Vec<Tick>, lost: &[&Entry]) -> Losses {
        acknowledged.sort_unstable();
        let mut by_fault: BTreeMap<usize, (u64, Tick, Tick)> = BTreeMap::new();
        let suspects = suspects(&seen.injections);
        for at in lost.iter().filter_map(|entry| entry.acknowledged()) {
            if let Some(fault) = self.blamed(&suspects, at) {
                let (count, first, last) = by_fault.entry(fault).or_insert((0, at, at));
                (*count, *first, *last) = (*count + 1, (*first).min(at), (*last).max(at));
            }
        }
        let operations: Operations = lost.iter().map(|entry| (entry.client, entry.sequence)).collect();
        let recoveries = recoveries(&seen.history.entries, &seen.injections, &self.objective, &operations);
        let one = |(number, (injection, recovery)): (usize, (&Injection, Recovery))| {
            let from = Tick(injection.at.0.saturating_sub(self.window.as_nanos() as u64));
            let count = |to: Tick| acknowledged.partition_point(|at| *at < to) as u64;
            let lost = by_fault.get(&number).copied();
            let apart = injection.undone.filter(|_| injection.had_effect() && parts(injection));
            FaultFigures {
                rule: injection.rule.clone(),
                at: injection.at,
                uncertainty: injection.uncertainty,
                had_effect: injection.had_effect(),
                acknowledged_in_window: count(injection.at) - count(from),
                acknowledged_apart: apart
                    .map_or(0, |undone| count(undone).saturating_sub(count(injection.at))),
                lost: lost.map_or(0, |(count, _, _)| count),
                loss_window: lost.map(|(_, first, _)| injection.at.since(first)),
                loss_width: lost.map(|(_, first, last)| last.since(first)),
                first_lost: lost.map(|(_, first, _)| first),
                last_lost: lost.map(|(_, _, last)| last),
                at_risk: AtRisk::of(injection),
                recovery,
            }
        };
        let faults: Vec<_> = seen.injections.iter().zip(recoveries).enumerate().map(one).collect();
        let chance = self.chance(&faults);
        Losses { lost: lost.len() as u64, faults, chance, operations }
    }

    /// What several faults say together about the chance to lose something.
    pub fn chance(&self, faults: &[FaultFigures]) -> LossChance {
        let tests: Vec<&FaultFigures> =
            faults.iter().filter(|fault| fault.is_test(self.least_acknowledged)).collect();
        let (n, k) = (tests.len() as u64, tests.iter().filter(|fault| fault.lost > 0).count() as u64);
        let (low, high) = match k {
            0 => (0.0, probability::upper_bound(0, n, 0.95)),
            _ => probability::interval(k, n, 0.95),
        };
        let least_acknowledged = tests.iter().map(|fault| fault.exposed()).min().unwrap_or(0);
        LossChance { with_loss: k, faults: n, least_acknowledged, low, high }
    }

    /// One sentence about acknowledged `things`: "writes", "transfers".
    pub fn summary(&self, losses: &Losses, things: &str) -> String {
        let Losses { lost, faults, chance, .. } = losses;
        let percent = |p: f64| format!("{} %", significant(p * 100.0, 2));
        let fired = faults.iter().filter(|fault| fault.had_effect).count() as u64;
        let apart =
            if faults.iter().any(|fault| fault.acknowledged_apart > 0) { " or during it" } else { "" };
        // A fault that is not counted is told: who made three and reads of two looks for the third.
        let besides = match fired - chance.faults {
            0 => String::new(),
            n => format!("; {} tested nothing: too little was at risk", counted_more(n)),
        };
        if *lost == 0 {
            return match (faults.is_empty(), chance.faults) {
                (true, _) => format!("no acknowledged {things} lost, and no fault injected"),
                (false, 0)
                    if faults.iter().any(|f| f.exposed() >= self.least_acknowledged && f.had_effect) =>
                {
                    format!("no acknowledged {things} lost, but nothing else was at risk either: no evidence")
                }
                (false, 0) => format!(
                    "no acknowledged {things} lost, but fewer than {} were acknowledged in the {} before{apart}, in \
                     any of {}: no evidence",
                    self.least_acknowledged,
                    span::print(self.window),
                    counted(fired)
                ),
                (false, n) => format!(
                    "0 acknowledged {things} lost in {} with at least {} acknowledged in the {} before each{apart} \
                     (a loss in less than {} of faults, 95 %){besides}",
                    counted(n),
                    chance.least_acknowledged,
                    span::print(self.window),
                    percent(chance.high)
                ),
            };
        }
        let with: Vec<&FaultFigures> = faults.iter().filter(|fault| fault.lost > 0).collect();
        let counts = || with.iter().map(|fault| fault.lost);
        let (Some(most), Some(least)) = (counts().max(), counts().min()) else {
            return format!("{lost} acknowledged {things} lost, and no fault to blame");
        };
        let (error, window) =
            losses.widest().map_or_else(Default::default, |(fault, window)| (fault.uncertainty, window));
        let reach = match window.is_zero() {
            // Of two sides that both live, one goes on acknowledging what the other never hears of.
            true => {
                let width = with.iter().filter_map(|fault| fault.loss_width).max().unwrap_or_default();
                format!("all acknowledged after it began, over up to {}", span::rounded(width))
            }
            false => format!("window up to {} ± {}", span::rounded(window), span::rounded(error)),
        };
        // What was acknowledged after the fault, by whom it had cut off, is in no window before it.
        let late = with.iter().filter_map(|fault| {
            let (_, last) = fault.lost_span().filter(|_| !window.is_zero())?;
            let last = Duration::from_nanos(u64::try_from(last).ok()?);
            (last > fault.uncertainty).then_some(last)
        });
        let late = late.max().map(|last| format!(" and until {} after it", span::rounded(last)));
        let reach = reach + &late.unwrap_or_default();
        let documented =
            self.documented.map(|d| format!(" (documented: {})", span::print(d))).unwrap_or_default();
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        format!(
            "lost {range} acknowledged {things} per fault in {} of {}, {reach}{documented} (a loss in {} to {} of \
             faults, 95 %){besides}",
            chance.with_loss,
            counted(chance.faults),
            percent(chance.low),
            percent(chance.high)
        )
    }
}

/// "1 fault", "30 faults".
fn counted(faults: u64) -> String {
    format!("{faults} fault{}", if faults == 1 { "" } else { "s" })
}

/// "1 more fault", "30 more faults".
fn counted_more(faults: u64) -> String {
    counted(faults).replacen(' ', " more ", 1)
}

/// The faults that had an effect, with their numbers and the harm that they can do.
fn suspects(injections: &[Injection]) -> Vec<(usize, &Injection, Harm)> {
    let fired = injections.iter().enumerate().filter(|(_, injection)| injection.had_effect());
    fired.map(|(number, injection)| (number, injection, harm(injection))).collect()
}

impl Exposure {
    /// The fault that an acknowledgement at `at` is charged to, if it is lost. Of several, the one that can
    /// explain it: one that parts nodes while it is given; one that kills within the window after it, or is
    /// under way; the next one that kills or parts; then one that only hampers, under way or next; or else
    /// the last of all.
    fn blamed(&self, suspects: &[(usize, &Injection, Harm)], at: Tick) -> Option<usize> {
        let reach = self.window.max(self.documented.unwrap_or_default());
        let lasts = |i: &Injection| i.at <= at && i.undone.is_some_and(|undone| at <= undone);
        let follows = |i: &Injection| i.at + i.uncertainty >= at;
        let soon = |i: &Injection| follows(i) && i.at <= at + reach;
        let first = |harms: &[Harm], when: &dyn Fn(&Injection) -> bool| {
            let these = suspects.iter().filter(|(_, i, harm)| harms.contains(harm) && when(i));
            these.min_by_key(|(_, i, _)| i.at).map(|(number, ..)| *number)
        };
        let any = [Harm::Parts, Harm::Kills, Harm::Hampers];
        first(&[Harm::Parts], &lasts)
            .or_else(|| first(&[Harm::Kills], &soon))
            .or_else(|| first(&[Harm::Kills], &lasts))
            .or_else(|| first(&[Harm::Parts, Harm::Kills], &follows))
            .or_else(|| first(&any, &lasts))
            .or_else(|| first(&any, &follows))
            .or_else(|| suspects.iter().max_by_key(|(_, i, _)| i.at).map(|(number, ..)| *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::History;
    use crate::device::CutReport;
    use crate::op::{Op, Outcome};
    use crate::schedule::{Effect, Outage};
    use crate::units::Bytes;

    const MS: u64 = 1_000_000;

    /// A write every millisecond for two seconds, and a fault at the end of the first.
    fn seen(rule: &str, outages: Vec<Outage>) -> Observation {
        let write = |n: u64| Entry {
            ended: Some(Tick(n * MS + MS / 2)),
            outcome: Outcome::Done,
            ..Entry::sent(0, n, Op::Insert { record: n }, Tick(n * MS))
        };
        let fault = Injection {
            rule: rule.into(),
            at: Tick(1000 * MS),
            uncertainty: Duration::from_millis(1),
            undone: Some(Tick(1900 * MS)),
            effect: Effect::Fired { count: 1 },
            outages,
        };
        Observation {
            history: History { entries: (0..2000).map(write).collect(), ..History::default() },
            injections: vec![fault],
            ..Observation::default()
        }
    }

    fn charged(seen: &Observation, lost: std::ops::Range<usize>) -> Losses {
        let entries = &seen.history.entries;
        let lost: Vec<&Entry> = entries[lost].iter().collect();
        Exposure::default().charge(seen, entries.iter().filter_map(Entry::acknowledged).collect(), &lost)
    }

    fn outage(lost_blocks: u64, page_cache: Option<u64>) -> Vec<Outage> {
        let disk = CutReport { lost_blocks, ..CutReport::default() };
        vec![Outage { node: "a".into(), disk, page_cache: page_cache.map(Bytes) }]
    }

    #[test]
    fn a_cut_that_put_nothing_at_risk_is_no_evidence_unless_something_was_lost() {
        let rule = "at 1 s: power cut all";
        for (outages, tests) in [
            (outage(0, Some(0)), 0),
            (outage(1, Some(0)), 1),
            (outage(0, Some(4096)), 1),
            // Nobody counted, so nobody knows.
            (outage(0, None), 1),
            (vec![], 1),
        ] {
            let seen = seen(rule, outages);
            let clean = charged(&seen, 0..0);
            assert_eq!(clean.chance.faults, tests, "{clean:?}");
            let said = Exposure::default().summary(&clean, "writes");
            assert_eq!(said.contains("no evidence"), tests == 0, "{said}");
            assert_eq!(said.contains("nothing else was at risk"), tests == 0, "{said}");
            assert_eq!(charged(&seen, 990..1000).chance.with_loss, 1, "what is lost was at risk");
        }
    }

    #[test]
    fn a_fault_that_tested_nothing_is_told_beside_those_that_did() {
        let mut seen = seen("at 1 s: kill a", vec![]);
        let said = |seen: &Observation, lost| Exposure::default().summary(&charged(seen, lost), "writes");
        assert!(!said(&seen, 0..0).contains("more fault"), "{}", said(&seen, 0..0));
        // Nobody has written for seconds.
        let late =
            Injection { at: Tick(5000 * MS), undone: Some(Tick(5100 * MS)), ..seen.injections[0].clone() };
        seen.injections.push(late);
        for lost in [0..0, 990..1000] {
            let said = said(&seen, lost);
            assert!(said.ends_with("; 1 more fault tested nothing: too little was at risk"), "{said}");
            assert!(
                said.contains("lost in 1 fault with") || said.contains("per fault in 1 of 1 fault"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_was_lost_has_its_span_from_before_the_fault_to_after_it() {
        let seen = seen("at 1 s: cut a from b for 900 ms", vec![]);
        let losses = charged(&seen, 1000..1800);
        let fault = &losses.faults[0];
        // The first lost one was acknowledged half a millisecond after the fault.
        assert_eq!(fault.lost_span(), Some((MS as i64 / 2, 799 * MS as i64 + MS as i64 / 2)));
        assert_eq!(fault.recovery.first_success, Some(Duration::from_micros(800_500)));
        let said = Exposure::default().summary(&losses, "writes");
        assert!(said.contains("all acknowledged after it began"), "{said}");
        let losses = charged(&seen, 990..1800);
        assert_eq!(losses.faults[0].lost, 810);
        let said = Exposure::default().summary(&losses, "writes");
        assert!(said.contains("window up to 9.50 ms ± 1.00 ms and until 800 ms after it"), "{said}");
        assert_eq!(charged(&seen, 0..0).faults[0].lost_span(), None);
    }

    #[test]
    fn what_others_lost_is_no_success_either() {
        let seen = seen("at 1 s: kill a", vec![]);
        let mut losses = charged(&seen, 0..0);
        assert_eq!(losses.faults[0].recovery.first_success, Some(Duration::from_micros(1_500)));
        let lost = seen.history.entries[1000..1500].iter().map(|entry| (entry.client, entry.sequence));
        losses.recover(&seen, &Exposure::default().objective, &lost.collect());
        assert_eq!(losses.faults[0].recovery.first_success, Some(Duration::from_micros(500_500)));
    }
}
