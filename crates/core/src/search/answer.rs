//! What a search found, in figures and in words.

use super::Scale;
use serde::Serialize;
use std::time::Duration;

/// How a search for one SLO ended. All are results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The capacity lies in the interval; both ends were confirmed.
    Found,
    /// It failed even at the least load.
    NeverPassed,
    /// It held even at the highest load that was to be tried.
    AlwaysPassed,
    /// It held as far as the generator could go: the capacity of the target is not known.
    GeneratorLimited,
    /// The generator was late again and again even at the least load: this machine cannot say anything.
    GeneratorLate,
    /// At an end of the interval more trials were discarded than count, because the generator was late: what
    /// is left is a selection, and nobody can tell.
    CannotTell,
    /// Repetitions contradict each other, however far the ends are moved apart.
    Irregular,
    /// The trial time was used up; what is given is not confirmed.
    OutOfTime,
}

/// Repetitions at one end of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tries {
    /// How many agreed.
    pub agreed: u32,
    /// Of how many.
    pub of: u32,
    /// Trials at this load, whatever they were run for, that count for nothing because the generator was
    /// late.
    pub discarded: u32,
    /// All trials at this load.
    pub trials: u32,
}

impl Tries {
    /// Whether more was discarded than counts.
    pub fn too_many_discarded(self) -> bool {
        2 * self.discarded > self.trials
    }

    /// "2/2 below", and what was discarded for it.
    pub fn in_words(self, side: &str) -> String {
        let discarded = match self.discarded {
            0 => String::new(),
            n => format!(" ({n} of {} trials there discarded: the generator was late)", self.trials),
        };
        format!("{}/{} {side}{discarded}", self.agreed, self.of)
    }
}

/// Whether the way down is the way up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Hysteresis {
    /// In every pair of sweeps it recovered only far below what it had held on the way up.
    pub seen: bool,
    /// Highest load that held on the way up, 0 for none.
    pub held_up_to: f64,
    /// Highest load that held on the way down, 0 for none.
    pub recovered_at: f64,
    /// Pairs of sweeps.
    pub sweeps: usize,
}

/// The tipping point for one SLO.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capacity {
    /// The promise.
    pub slo: String,
    /// What the loads are.
    pub scale: Scale,
    /// How the search ended.
    pub verdict: Verdict,
    /// Load at which it holds; `below` says how often that was repeated.
    pub low: Option<f64>,
    /// Load at which it fails; `above` says how often that was repeated.
    pub high: Option<f64>,
    /// The likeliest load: the middle of the interval before it was widened by its confirmation.
    pub estimate: Option<f64>,
    /// Good operations per second at `low`: the conditional throughput.
    pub good_per_s: Option<f64>,
    /// Repetitions at `low`.
    pub below: Tries,
    /// Repetitions at `high`.
    pub above: Tries,
    /// What the sweeps showed, if there were any.
    pub hysteresis: Option<Hysteresis>,
    /// Least and highest load that could be tried.
    pub tried: (f64, f64),
    /// What else has to be said.
    pub notes: Vec<String>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// One for each SLO, in the order of the goals.
    pub capacities: Vec<Capacity>,
    /// Trials in all.
    pub trials: usize,
    /// Of these, trials in which the generator was late.
    pub invalid: usize,
    /// Time under load, without set-up and cool-downs.
    pub trial_time: Duration,
}

impl Capacity {
    /// "5/5 below and 4/5 above", and what was discarded for it.
    pub fn confirmed(&self) -> String {
        format!("{} and {}", self.below.in_words("below"), self.above.in_words("above"))
    }

    /// One sentence, then its reservations.
    pub fn sentence(&self) -> String {
        self.sentence_in(self.scale.unit())
    }

    /// The same where loads have another name, as "requests in flight".
    pub fn sentence_in(&self, unit: &str) -> String {
        let load = |load: Option<f64>| load.map_or_else(|| "unknown".into(), |load| self.scale.print(load));
        let (low, high, slo) = (load(self.low), load(self.high), &self.slo);
        let counts = format!("confirmed {}", self.confirmed());
        let mut text = match self.verdict {
            Verdict::Found => format!("capacity in [{low}, {high}] {unit} at {slo}, {counts}"),
            Verdict::NeverPassed => format!(
                "{slo} never held: at {} {unit}, the least load tried, it failed already ({})",
                load(Some(self.tried.0)),
                self.above.in_words(&format!("at {high} {unit}")),
            ),
            Verdict::AlwaysPassed => format!(
                "{slo} always held, up to {} {unit}, the highest load tried ({}): the capacity is higher",
                load(Some(self.tried.1)),
                self.below.in_words(&format!("at {low} {unit}")),
            ),
            Verdict::GeneratorLimited => format!(
                "{slo} held as far as the generator could go, {} {unit} ({}): the capacity is not known",
                load(Some(self.tried.1)),
                self.below.in_words(&format!("at {low} {unit}")),
            ),
            Verdict::GeneratorLate => format!(
                "the generator was late in every trial at {} {unit}, the least load: this machine is too busy or too \
                 small to say anything about {slo}; see `tipover doctor`, or begin lower with --from",
                load(Some(self.tried.0))
            ),
            Verdict::CannotTell => format!(
                "cannot tell up to where {slo} holds: {counts} of [{low}, {high}] {unit}; where more trials are discarded \
                 than count, what is left is a selection. Search again on a quieter machine"
            ),
            Verdict::Irregular => format!(
                "irregular: between {low} and {high} {unit} {slo} now holds and now fails ({counts}); the target \
                 is not stable enough for one figure"
            ),
            Verdict::OutOfTime => match (self.low, self.high) {
                (Some(_), Some(_)) => format!(
                    "out of time: capacity between {low} and {high} {unit} at {slo} by what was measured, {counts}"
                ),
                (Some(_), None) => {
                    format!("out of time: {slo} held at {low} {unit}, no load is known to fail")
                }
                (None, Some(_)) => {
                    format!("out of time: {slo} failed at {high} {unit}, no load is known to hold")
                }
                (None, None) => format!("out of time before anything was known about {slo}"),
            },
        };
        if let Some(hysteresis) = self.hysteresis.filter(|hysteresis| hysteresis.seen) {
            text += &match hysteresis.recovered_at {
                0.0 => format!(
                    "; metastable: it held up to {} {unit} on the way up and did not recover on the way down",
                    self.scale.print(hysteresis.held_up_to)
                ),
                at => format!(
                    "; metastable: it held up to {} {unit} on the way up and recovered only at {} {unit} on the way \
                     down",
                    self.scale.print(hysteresis.held_up_to),
                    self.scale.print(at)
                ),
            };
        }
        for note in &self.notes {
            text += "; ";
            text += note;
        }
        text
    }
}
