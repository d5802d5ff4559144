//! The search for a tipping point: the highest load at which a promise (an SLO) still holds.
//!
//! [`next`] is a pure function from the trials so far to the next step. It keeps no state, so an interrupted
//! search resumes by reading its records, and the whole search runs in virtual time in the tests.
//!
//! The core is MLRsearch's classification (draft-ietf-bmwg-mlrsearch-15): per load, seconds of trials that
//! held and that did not are weighed until the majority is decided. The loss ratio of the draft is here the
//! share of operations that were late, failed, not sent or not finished. Added for databases: invalid trials,
//! cool-downs, confirmation below and above, sweeps up and down, and interventions that test the limit
//! ([`limit`]).

mod answer;
mod classify;
mod confirm;
pub mod knee;
pub mod limit;
mod narrow;
mod record;

#[cfg(test)]
mod campaign;
#[cfg(test)]
pub(crate) mod targets;

pub use answer::{Answer, Capacity, Hysteresis, Tries, Verdict};
pub use record::{SearchRecord, Searched, count, generator_was_late};

use crate::measure::Canary;
use crate::units::Ratio;
use crate::workload::Random;
use narrow::Narrowed;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the searched load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Offered load of an open loop, operations per second.
    OpsPerSecond,
    /// Sessions of a closed loop: whole numbers.
    Sessions,
}

impl Scale {
    /// The nearest load that can be offered: four significant digits, or a whole number of sessions.
    fn offerable(self, load: f64) -> f64 {
        match self {
            Scale::Sessions => load.round().max(1.0),
            // By way of the decimal digits, so that a printed load is the load.
            Scale::OpsPerSecond => format!("{load:.3e}").parse().expect("a printed number is a number"),
        }
    }

    /// A load as people write it: sessions are whole.
    pub fn print(self, load: f64) -> String {
        match self {
            Scale::Sessions if load.is_finite() => format!("{load:.0}"),
            _ => crate::units::significant(load, 4),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Scale::Sessions => "sessions",
            Scale::OpsPerSecond => "ops/s",
        }
    }

    /// Loads that can be meant: more than one operation in a nanosecond has no schedule, and at less than one
    /// in a quarter of an hour no trial sees any.
    fn limits(self) -> (f64, f64) {
        match self {
            Scale::Sessions => (1.0, 1e6),
            Scale::OpsPerSecond => (1e-3, 1e9),
        }
    }
}

/// A promise: no more than this share of the scheduled operations may be bad.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// In words: "p99 ≤ 20 ms".
    pub name: String,
    /// Largest share of bad operations: 0.01 for a p99, 0.001 for a p99.9.
    pub bad_ratio: f64,
}

/// What is searched, and how thoroughly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goals {
    /// What the load is.
    pub scale: Scale,
    /// The promises; they share the trials.
    pub slos: Vec<Slo>,
    /// Lowest load that is tried.
    pub least: f64,
    /// Highest load that is tried.
    pub most: f64,
    /// Where to begin; from `least` upwards without it.
    pub guess: Option<f64>,
    /// Relative width of the interval to be found, before its confirmation: 0.05.
    pub width: f64,
    /// Share of a load's trial seconds that may exceed the SLO: 0.5 is a majority.
    pub exceed_ratio: f64,
    /// Duration of the first, coarse trials.
    pub short: Duration,
    /// Duration of the trials that decide.
    pub long: Duration,
    /// Seconds of trials that a load is weighed by.
    pub duration_sum: Duration,
    /// The target's checkpoint period: a load is weighed, and confirmed, over at least three of them.
    pub checkpoint_period: Option<Duration>,
    /// Duration of a confirming trial.
    pub confirmation: Duration,
    /// Confirming trials on each side; one of them may disagree.
    pub confirmations: u32,
    /// Whether to sweep up and down in search of hysteresis.
    pub sweeps: bool,
    /// Time of trials and of the rests after them after which the search ends with what it has.
    pub budget: Option<Duration>,
    /// Operations that would be bad in a deciding trial right at the limit: 200 place the bad ratio within
    /// 14 %, 50 within 28 %. A trial lasts until it has room for them, so this sets the time that slow
    /// targets take.
    #[serde(default = "two_hundred")]
    pub bad_samples: u32,
    /// Seed of the order among equals.
    pub seed: u64,
}

fn two_hundred() -> u32 {
    200
}

impl Goals {
    /// The recommended procedure (METHODS C2): width 5 %, 30 s trials, 300 s per load, 5 confirmations of 60
    /// s.
    pub fn new(scale: Scale, slos: Vec<Slo>, least: f64, most: f64) -> Goals {
        Goals {
            scale,
            slos,
            least,
            most,
            guess: None,
            width: 0.05,
            exceed_ratio: 0.5,
            short: Duration::from_secs(10),
            long: Duration::from_secs(30),
            duration_sum: Duration::from_secs(300),
            checkpoint_period: None,
            confirmation: Duration::from_secs(60),
            confirmations: 5,
            sweeps: true,
            budget: None,
            bad_samples: two_hundred(),
            seed: 1,
        }
    }

    /// Half the weight per load and no sweeps: for a first answer.
    pub fn quick(self) -> Goals {
        Goals { duration_sum: self.duration_sum / 2, sweeps: false, ..self }
    }

    /// Says what about the goals cannot be used: the setting, its value and what would do.
    pub fn check(&self) -> Result<(), String> {
        let share = |name: &str, value: f64| {
            let usable = value > 0.0 && value < 1.0;
            usable.then_some(()).ok_or_else(|| format!("{name} of {value} is not between 0 and 1"))
        };
        if self.slos.is_empty() {
            return Err("no SLO: nothing can be searched without a promise".into());
        }
        for slo in &self.slos {
            share(&format!("bad ratio of {}", slo.name), slo.bad_ratio)?;
        }
        share("width", self.width)?;
        if !(0.0..1.0).contains(&self.exceed_ratio) {
            return Err(format!("exceed_ratio of {} is not in 0..1", self.exceed_ratio));
        }
        let (lowest, highest) = self.scale.limits();
        if !(self.least >= lowest && self.most <= highest && self.least < self.most) {
            let (unit, least, most) = (self.scale.unit(), self.least, self.most);
            return Err(format!(
                "loads from {least:?} to {most:?} {unit} are no range: the first must be below the second, and both lie \
                 between {lowest} and {highest}"
            ));
        }
        if let Some(guess) = self.guess.filter(|guess| !(self.least..=self.most).contains(guess)) {
            return Err(format!("guess of {guess} lies outside {} to {}", self.least, self.most));
        }
        if self.short.is_zero() || self.short > self.long || self.long > self.duration_sum {
            return Err("trial durations must rise: 0 < short ≤ long ≤ duration_sum".into());
        }
        if self.bad_samples == 0 {
            return Err("bad_samples of 0: a trial without a bad operation decides nothing".into());
        }
        if self.confirmations == 0 {
            return Err("confirmations of 0: an interval that nothing confirms is a guess".into());
        }
        Ok(())
    }

    fn three_checkpoints(&self) -> Duration {
        self.checkpoint_period.map_or(Duration::ZERO, |period| period * 3)
    }

    /// Seconds that a load is weighed by in the end.
    fn final_sum_s(&self) -> f64 {
        self.duration_sum.max(self.three_checkpoints()).as_secs_f64()
    }
}

/// Why a trial was run. It is stored with the trial, because a confirmation must not change what it confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Purpose {
    /// To find loads on both sides, and to narrow them down.
    Narrow {
        /// For which SLO, by its place in the goals.
        slo: usize,
    },
    /// To see whether the lower end holds again.
    Below {
        /// For which SLO.
        slo: usize,
    },
    /// To see whether the upper end fails again.
    Above {
        /// For which SLO.
        slo: usize,
    },
    /// Up- and down-sweep without pauses.
    Sweep {
        /// For which SLO.
        slo: usize,
        /// Which pair of sweeps.
        pair: usize,
        /// Place in the pair: the first half goes up, the second down.
        place: usize,
    },
}

/// Whether queue, dirty bytes, lag and memory were back at their baseline after a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// Not looked at yet.
    #[default]
    Unknown,
    /// They came back.
    Baseline,
    /// They did not come back in the time given, and the target was restarted.
    Restarted,
}

/// A trial that was carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedTrial {
    /// Load that was offered: operations per second or sessions.
    pub load: f64,
    /// How long it was to be offered. A trial weighs by this.
    pub duration: Duration,
    /// When it was broken off, because nothing that was still due could have saved it; `None` for a trial
    /// that ran to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<Duration>,
    /// Operations that were due.
    pub scheduled: u64,
    /// Operations done, but later than the SLO allows; one number per SLO, in the order of the goals.
    pub late: Vec<u64>,
    /// Operations refused or with unknown outcome.
    pub failed: u64,
    /// Operations due and never sent.
    pub not_sent: u64,
    /// Operations sent and not answered when the trial ended.
    pub unfinished: u64,
    /// The generator itself was late or out of processor time: says nothing about the target.
    pub generator_late: bool,
    /// Of several machines that sent the load together, those whose own sends were that late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_generators: Vec<String>,
    /// Why it was run.
    pub purpose: Purpose,
    /// Whether the target came to rest afterwards.
    pub rest: Rest,
    /// How long that took, or took until the target was started anew.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub rested_for: Duration,
    /// What the shaped disk did meanwhile; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceUse>,
    /// The machine's canary before and after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<Canary>,
}

/// What a shaped disk did in a trial: the witness for "limited by the disk".
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Reads and writes completed per second.
    pub requests_per_s: f64,
    /// Share of the time in which at least one request was in flight.
    pub utilization: Ratio,
}

impl FinishedTrial {
    /// Operations that were bad for the SLO at this place: late, failed, not sent or not finished.
    pub fn bad(&self, slo: usize) -> u64 {
        self.late[slo] + self.failed + self.not_sent + self.unfinished
    }

    /// [`FinishedTrial::bad`] ÷ scheduled, at most 1: records of earlier versions counted some operations as
    /// not sent and as late.
    pub fn bad_ratio(&self, slo: usize) -> f64 {
        if self.scheduled == 0 { 1.0 } else { (self.bad(slo) as f64 / self.scheduled as f64).min(1.0) }
    }

    /// The 95 % interval of [`FinishedTrial::bad_ratio`] by Wilson's score (1927), as if operations were
    /// independent of each other. They are not: late ones come together, so the truth may lie further off.
    pub fn bad_ratio_interval(&self, slo: usize) -> (f64, f64) {
        const Z: f64 = crate::probability::Z_95;
        let n = self.scheduled as f64;
        if n == 0.0 {
            return (0.0, 1.0);
        }
        let share = self.bad_ratio(slo);
        let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((middle - half).clamp(0.0, share), (middle + half).clamp(share, 1.0))
    }

    fn holds(&self, slo: usize, goals: &Goals) -> bool {
        self.bad_ratio(slo) <= goals.slos[slo].bad_ratio
    }

    /// Operations that were good for the SLO at this place, per second.
    pub fn good_per_s(&self, slo: usize) -> f64 {
        self.scheduled as f64 * (1.0 - self.bad_ratio(slo)) / self.offered_for().as_secs_f64()
    }

    /// How long the load was offered.
    pub fn offered_for(&self) -> Duration {
        self.lost_after.unwrap_or(self.duration)
    }
}

/// Whether a trial of an open loop is lost for every SLO whatever is still to come: more operations are bad
/// already, `bad` for each SLO, than the whole trial may have (curtailed sampling). It ends early with the
/// verdict that it would have had at its end, so overloads cost seconds and leave short queues.
///
/// Arrivals may be random: four standard deviations more of them than are expected are allowed for.
pub fn is_lost(bad: &[u64], load: f64, duration: Duration, goals: &Goals) -> bool {
    let due = load * duration.as_secs_f64();
    let most = due + 4.0 * due.sqrt();
    goals.scale == Scale::OpsPerSecond
        && bad.iter().zip(&goals.slos).all(|(&bad, slo)| bad as f64 > slo.bad_ratio * most)
}

/// A trial to be run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// Load to offer.
    pub load: f64,
    /// For how long.
    pub duration: Duration,
    /// To be copied into the finished trial.
    pub purpose: Purpose,
    /// Why, in words.
    pub why: String,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Run this trial.
    Run(Request),
    /// Send nothing until the gauges are back at their baseline, then set the last trial's [`Rest`].
    CoolDown {
        /// Why, in words.
        why: String,
    },
    /// The search is over.
    Done(Answer),
}

/// Trials in a row that the generator could not keep up with, after which a load is out of reach.
const INVALID_IN_A_ROW: usize = 3;
/// The same at the least load: a machine may be busy for a moment, and this is more than that.
const HOPELESS_IN_A_ROW: usize = 8;
/// Whatever the noise, the search ends after this number of trials per SLO.
const MOST_TRIALS_PER_SLO: usize = 250;

/// The step that follows from `trials`, in the order in which they ran. The goals must pass [`Goals::check`],
/// and each trial must have one late count per SLO.
pub fn next(trials: &[FinishedTrial], goals: &Goals) -> Step {
    assert!(
        trials.iter().all(|trial| trial.late.len() == goals.slos.len()),
        "one count of late operations per SLO"
    );
    if let Some(why) = must_rest(trials, goals) {
        return Step::CoolDown { why };
    }
    let reach = Reach::of(trials, goals);
    let spent: Duration = trials.iter().map(FinishedTrial::offered_for).sum();
    let rested: Duration = trials.iter().map(|trial| trial.rested_for).sum();
    let over = goals.budget.is_some_and(|budget| spent + rested >= budget)
        || reach.hopeless
        || trials.len() >= MOST_TRIALS_PER_SLO * goals.slos.len();
    let mut capacities = Vec::new();
    // All are narrowed down before any is confirmed, so that the confirmations stand close together.
    let mut narrowed = Vec::new();
    for slo in 0..goals.slos.len() {
        match narrow::narrow(trials, goals, slo, reach.most) {
            Narrowed::Measure(load, duration, why) if !over => {
                return run(trials, goals, load, duration, Purpose::Narrow { slo }, why);
            }
            Narrowed::Measure(..) => narrowed.push(narrow::best_known(trials, goals, slo)),
            Narrowed::Found(region) => narrowed.push(region),
        }
    }
    for (slo, region) in narrowed.into_iter().enumerate() {
        let state = Known { trials, goals, slo, reach: &reach, over };
        match confirm::confirm(&state, region) {
            confirm::Confirmed::Measure(load, duration, purpose, why) => {
                return run(trials, goals, load, duration, purpose, why);
            }
            confirm::Confirmed::Settled(capacity) => capacities.push(*capacity),
        }
    }
    Step::Done(Answer {
        capacities,
        trials: trials.len(),
        invalid: trials.iter().filter(|trial| trial.generator_late).count(),
        trial_time: spent,
    })
}

/// What a confirmation knows.
struct Known<'a> {
    trials: &'a [FinishedTrial],
    goals: &'a Goals,
    slo: usize,
    reach: &'a Reach,
    /// No more trials may be run.
    over: bool,
}

/// How far the generator can go.
struct Reach {
    most: f64,
    /// The load that it could not offer.
    unreachable: Option<f64>,
    /// It was late again and again even at the least load, so nothing can be found out here.
    hopeless: bool,
}

impl Reach {
    fn of(trials: &[FinishedTrial], goals: &Goals) -> Reach {
        let late_in_a_row = |load: f64, times: usize| {
            let mut here = trials.iter().filter(|trial| same(trial.load, load)).rev();
            here.by_ref().take(times).filter(|trial| trial.generator_late).count() == times
        };
        // A load that was offered in time once can be offered; being late below it was a busy moment.
        let in_time = trials.iter().filter(|trial| !trial.generator_late).map(|trial| trial.load);
        let in_time = in_time.fold(goals.least, f64::max);
        let unreachable = trials
            .iter()
            .map(|trial| trial.load)
            .filter(|&load| load > in_time || same(load, goals.least))
            .filter(|&load| late_in_a_row(load, INVALID_IN_A_ROW))
            .min_by(f64::total_cmp);
        let most = unreachable.map_or(goals.most, |load| load / (1.0 + goals.width)).max(in_time);
        let hopeless = late_in_a_row(goals.scale.offerable(goals.least), HOPELESS_IN_A_ROW);
        Reach { most: goals.scale.offerable(most), unreachable, hopeless }
    }
}

/// A failed trial leaves queues, dirty pages and lag behind; what runs next must not pay for them. Within a
/// sweep that is what is looked for.
fn must_rest(trials: &[FinishedTrial], goals: &Goals) -> Option<String> {
    let last = trials.last()?;
    if last.rest != Rest::Unknown
        || matches!(last.purpose, Purpose::Sweep { place, .. } if place + 1 < confirm::SWEEP)
    {
        return None;
    }
    let broken = (0..goals.slos.len()).find(|&slo| !last.holds(slo, goals))?;
    Some(format!(
        "{} {} broke {}: wait until queue, dirty bytes, lag and memory are back at their baseline",
        crate::units::significant(last.load, 4),
        goals.scale.unit(),
        goals.slos[broken].name
    ))
}

/// A request whose duration suffices for the SLO, said to be a repetition if the last try was invalid.
fn run(
    trials: &[FinishedTrial],
    goals: &Goals,
    load: f64,
    duration: Duration,
    purpose: Purpose,
    why: String,
) -> Step {
    let again = trials.last().is_some_and(|last| last.generator_late && same(last.load, load));
    let why = if again { format!("again, because the generator was late: {why}") } else { why };
    Step::Run(Request {
        load,
        duration: duration.max(least_duration(trials, goals, load, duration)),
        purpose,
        why,
    })
}

/// Long enough for the number of bad operations that the goals name, at the limit of the strictest SLO: bad
/// samples ÷
/// (bad ratio × load); a tenth of that in a short trial, which decides nothing. With sessions the rate is
/// that of the nearest finished trial.
fn least_duration(trials: &[FinishedTrial], goals: &Goals, load: f64, asked: Duration) -> Duration {
    let bad = f64::from(goals.bad_samples) * if asked < goals.long { 0.1 } else { 1.0 };
    let strictest = goals.slos.iter().map(|slo| slo.bad_ratio).fold(f64::INFINITY, f64::min);
    let rate = match goals.scale {
        Scale::OpsPerSecond => Some(load),
        Scale::Sessions => trials
            .iter()
            .min_by(|a, b| (a.load - load).abs().total_cmp(&(b.load - load).abs()))
            .map(|trial| trial.scheduled as f64 / trial.duration.as_secs_f64()),
    };
    // An hour is where patience ends, whatever the SLO.
    rate.filter(|rate| *rate > 0.0)
        .map_or(Duration::ZERO, |rate| Duration::from_secs_f64((bad / (strictest * rate)).ceil().min(3600.0)))
}

/// Loads are equal when rounding explains their difference.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

/// A draw among equals that depends on the seed and on how many trials there are, and on nothing else.
fn draw(goals: &Goals, trials: &[FinishedTrial], of: u64) -> u64 {
    Random::new(goals.seed, trials.len() as u64).below(of)
}
