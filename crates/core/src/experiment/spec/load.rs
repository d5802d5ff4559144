//! How it is asked, how long, and what counts as steady.

use crate::op::{Failure, Outcome};
use crate::units::span;
use crate::workload::Arrivals;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How it is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// How many sessions. In a closed loop each sends its next operation when the last one was answered; in
    /// an open loop at most this number of operations is in flight, and what is due meanwhile waits.
    pub sessions: u32,
    /// How many machines of a fleet send the load together, to a server that all of them reach. Machine k of
    /// M has the sessions and operations whose number is k modulo M.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub machines: u32,
    /// Closed loop only: pause of a session after each answer.
    #[serde(default, with = "span")]
    pub think: Duration,
    /// Open loop: when operations are due, as `poisson 500/s`; see [`Arrivals`]. Absent: a closed loop.
    pub arrivals: Option<Arrivals>,
    /// How long an operation may take; then it is given up, and what a write did is unknown. 0: for ever.
    #[serde(default = "ten_seconds", with = "span")]
    pub timeout: Duration,
    /// How often an operation that was certainly not done, because of a conflict or an absent server, is
    /// tried again. All its tries are one operation with one latency, and are counted.
    #[serde(default)]
    pub retries: u32,
    /// Pause before the first retry; it doubles with each, up to a second, and is never shorter than 5 ms
    /// before an absent server is asked again. One of more than a second stays as it is.
    #[serde(default = "one_millisecond", with = "span")]
    pub retry_pause: Duration,
}

impl LoadSpec {
    /// A closed loop of this number of sessions, all else as in a plan that says no more.
    pub fn closed(sessions: u32) -> LoadSpec {
        LoadSpec {
            sessions,
            machines: one(),
            think: Duration::ZERO,
            arrivals: None,
            timeout: ten_seconds(),
            retries: 0,
            retry_pause: one_millisecond(),
        }
    }

    /// What is tried again, and when.
    pub fn retries(&self) -> Retries {
        Retries { most: self.retries, first_pause: self.retry_pause }
    }
}

/// The part of a load that one of its machines sends: the sessions and operations whose number is `number`
/// modulo `of`. All parts together are the load, because what an operation is depends on its number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Counted from 0.
    pub number: u32,
    /// How many there are, 1 or more.
    pub of: u32,
}

impl Part {
    /// Everything.
    pub const ALL: Part = Part { number: 0, of: 1 };

    /// How many of `sessions` are its own.
    pub fn sessions(self, sessions: u32) -> u32 {
        (sessions + self.of - 1 - self.number) / self.of
    }

    /// Which session of the load its session `index` is.
    #[inline]
    pub fn session(self, index: u32) -> u64 {
        u64::from(self.number) + u64::from(index) * u64::from(self.of)
    }
}

/// What is tried again, and after which pause: one rule for every loop that sends operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often an operation is tried again.
    pub most: u32,
    /// Pause before the first retry.
    pub first_pause: Duration,
}

impl Retries {
    /// No pause is longer, unless the first is.
    const LONGEST: Duration = Duration::from_secs(1);
    /// A server that is not there answers at once; asking it without a pause would take its processor.
    const LEAST_FOR_ABSENT: Duration = Duration::from_millis(5);

    /// How long a session rests at least before its next operation, after one that ended so.
    #[inline]
    pub fn rest(outcome: Outcome) -> Duration {
        match outcome {
            Outcome::Refused(Failure::Unavailable) | Outcome::Unknown(Failure::Unavailable) => {
                Self::LEAST_FOR_ABSENT
            }
            _ => Duration::ZERO,
        }
    }

    /// The pause before an operation with this outcome is tried once more, after `retries` retries; `None` if
    /// it is not: only what certainly did not happen is tried again, and only for a reason that may pass.
    #[inline]
    pub fn pause(&self, outcome: Outcome, retries: u32) -> Option<Duration> {
        let least = match outcome {
            Outcome::Refused(Failure::Conflict) => Duration::ZERO,
            Outcome::Refused(Failure::Unavailable) => Self::LEAST_FOR_ABSENT,
            _ => return None,
        };
        let doubled = self.first_pause.saturating_mul(1 << retries.min(20));
        let pause = doubled.min(Self::LONGEST.max(self.first_pause)).max(least);
        (retries < self.most).then_some(pause)
    }
}

fn one() -> u32 {
    1
}
fn is_one(machines: &u32) -> bool {
    *machines == 1
}
fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}
fn one_millisecond() -> Duration {
    Duration::from_millis(1)
}

/// Phases of a trial and their criteria.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrialSpec {
    /// Length of an interval of the time series.
    #[serde(with = "span")]
    pub interval: Duration,
    /// The disk is unshaped and the workload runs at least this long before anything is judged.
    #[serde(with = "span")]
    pub warm_up_least: Duration,
    /// If the caches are not flat by then, the trial says so and is not valid.
    #[serde(with = "span")]
    pub warm_up_most: Duration,
    /// After shaping: how many times every session must have waited for the device before measuring.
    pub settle_turns: f64,
    /// Settling ends at the latest after this.
    #[serde(with = "span")]
    pub settle_most: Duration,
    /// Measured at least this long, and until [`TrialSpec::measure_operations`] were answered.
    #[serde(with = "span")]
    pub measure_least: Duration,
    /// Measured until this number of operations was answered, but not longer than
    /// [`TrialSpec::measure_most`].
    pub measure_operations: u64,
    /// The measured phase ends at the latest after this.
    #[serde(with = "span")]
    pub measure_most: Duration,
    /// Measure from the start of the target on its unread data, without a warm-up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cold: bool,
    /// How often the kernel's cache of the disk is dropped, written out first: once before the measured phase
    /// settles, then in it.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    pub drop_caches_every: Option<Duration>,
}

mod optional_span {
    use crate::units::span;
    use serde::{Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        span::serialize(&value.unwrap_or_default(), s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        span::deserialize(d).map(|value| Some(value).filter(|value| !value.is_zero()))
    }
}

impl TrialSpec {
    /// What a measured phase came to, for its evidence: also that it ended by `measure_most`, before it had
    /// the operations that the plan wants.
    pub fn in_words(&self, operations: u64, seconds: f64) -> String {
        let came_to = format!("{operations} operations in {seconds:.1} s");
        match operations < self.measure_operations {
            true => format!(
                "{came_to} of the {} that the plan wants: measure_most ended it",
                self.measure_operations
            ),
            false => came_to,
        }
    }
}

impl Default for TrialSpec {
    fn default() -> Self {
        TrialSpec {
            interval: Duration::from_millis(250),
            warm_up_least: Duration::from_secs(2),
            warm_up_most: Duration::from_secs(60),
            settle_turns: 2.0,
            settle_most: Duration::from_secs(10),
            measure_least: Duration::from_secs(5),
            measure_operations: 1_000,
            measure_most: Duration::from_secs(20),
            cold: false,
            drop_caches_every: None,
        }
    }
}

#[cfg(test)]
mod retries {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second_and_only_what_certainly_did_not_happen_is_tried_again() {
        let (conflict, absent) =
            (Outcome::Refused(Failure::Conflict), Outcome::Refused(Failure::Unavailable));
        let retries = Retries { most: 12, first_pause: Duration::from_millis(1) };
        let ms = |outcome, n| retries.pause(outcome, n).map(|pause| pause.as_millis());
        assert_eq!(
            [0, 1, 2, 9, 11, 12].map(|n| ms(conflict, n)),
            [Some(1), Some(2), Some(4), Some(512), Some(1000), None]
        );
        assert_eq!([0, 2, 3, 11].map(|n| ms(absent, n)), [Some(5), Some(5), Some(8), Some(1000)]);
        let long = Retries { most: u32::MAX, first_pause: Duration::from_secs(3) };
        assert_eq!(long.pause(conflict, 77), Some(Duration::from_secs(3)));
        for outcome in [
            Outcome::Done,
            Outcome::Unknown(Failure::Unavailable),
            Outcome::Unknown(Failure::Conflict),
            Outcome::Refused(Failure::Overdraft),
        ] {
            assert_eq!(retries.pause(outcome, 0), None, "{outcome:?}");
        }
    }
}
