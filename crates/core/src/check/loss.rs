//! What faults cost: acknowledgements that were lost, charged to the fault that lost them, and what zero
//! losses in n faults exclude. The same for writes of the ledger and transfers of the bank.

use super::recovery::{Objective, Recovery, recoveries};
use super::{Observation, probability};
use crate::schedule::{Injection, Schedule, Undo};
use crate::units::{Tick, significant, span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

impl FaultFigures {
    /// How many acknowledgements the fault could have lost.
    pub fn exposed(&self) -> u64 {
        self.acknowledged_in_window + self.acknowledged_apart
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

/// What counts as a test of durability, and what was promised.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposure {
    /// The window before a fault whose acknowledgements are at risk: 100 ms, or what the database documents.
    pub window: Duration,
    /// So many acknowledgements must lie in the window before a fault, or be given while it keeps living
    /// nodes apart, for it to count as a test.
    pub least_acknowledged: u64,
    /// The loss that the setting documents, to print beside what was found.
    pub documented: Option<Duration>,
    /// What "works again" means.
    pub objective: Objective,
}

impl Default for Exposure {
    fn default() -> Self {
        Exposure {
            window: Duration::from_millis(100),
            least_acknowledged: 30,
            documented: None,
            objective: Objective::default(),
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
}

impl Losses {
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
    /// `lost` those of the lost ones, both in any order.
    pub fn charge(&self, seen: &Observation, mut acknowledged: Vec<Tick>, lost: &[Tick]) -> Losses {
        acknowledged.sort_unstable();
        let mut by_fault: BTreeMap<usize, (u64, Tick, Tick)> = BTreeMap::new();
        for at in lost {
            if let Some(fault) = blamed(&seen.injections, *at) {
                let (count, first, last) = by_fault.entry(fault).or_insert((0, *at, *at));
                (*count, *first, *last) = (*count + 1, (*first).min(*at), (*last).max(*at));
            }
        }
        let recoveries = recoveries(&seen.history.entries, &seen.injections, &self.objective);
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
                recovery,
            }
        };
        let faults: Vec<_> = seen.injections.iter().zip(recoveries).enumerate().map(one).collect();
        let chance = self.chance(&faults);
        Losses { lost: lost.len() as u64, faults, chance }
    }

    /// What several faults say together about the chance to lose something.
    pub fn chance(&self, faults: &[FaultFigures]) -> LossChance {
        let tests: Vec<&FaultFigures> = faults
            .iter()
            .filter(|f| f.had_effect && (f.lost > 0 || f.exposed() >= self.least_acknowledged))
            .collect();
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
        let Losses { lost, faults, chance } = losses;
        let percent = |p: f64| format!("{} %", significant(p * 100.0, 2));
        let fired = faults.iter().filter(|fault| fault.had_effect).count() as u64;
        let apart =
            if faults.iter().any(|fault| fault.acknowledged_apart > 0) { " or during it" } else { "" };
        if *lost == 0 {
            return match (faults.is_empty(), chance.faults) {
                (true, _) => format!("no acknowledged {things} lost, and no fault injected"),
                (false, 0) => format!(
                    "no acknowledged {things} lost, but fewer than {} were acknowledged in the {} before{apart}, in \
                     any of {}: no evidence",
                    self.least_acknowledged,
                    span::print(self.window),
                    counted(fired)
                ),
                (false, n) => format!(
                    "0 acknowledged {things} lost in {} with at least {} acknowledged in the {} before each{apart} \
                     (a loss in less than {} of faults, 95 %)",
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
        let documented =
            self.documented.map(|d| format!(" (documented: {})", span::print(d))).unwrap_or_default();
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        format!(
            "lost {range} acknowledged {things} per fault in {} of {}, {reach}{documented} (a loss in {} to {} of \
             faults, 95 %)",
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

/// The fault that a lost acknowledgement is charged to: one that lasts while it is given, else the first
/// after it, else the last before it. Faults without effect lose nothing.
fn blamed(injections: &[Injection], at: Tick) -> Option<usize> {
    let fired = || injections.iter().enumerate().filter(|(_, injection)| injection.had_effect());
    let lasts = |i: &Injection| i.at <= at && i.undone.is_some_and(|undone| at <= undone);
    let during = fired().find(|(_, injection)| lasts(injection));
    let after = || fired().filter(|(_, i)| i.at + i.uncertainty >= at).min_by_key(|(_, i)| i.at);
    during.or_else(after).or_else(|| fired().max_by_key(|(_, i)| i.at)).map(|(number, _)| number)
}
