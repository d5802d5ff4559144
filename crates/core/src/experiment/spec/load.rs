//! How it is asked, how long, and what counts as steady.

use crate::units::span;
use crate::workload::Arrivals;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How it is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// How many sessions. In a closed loop each sends its next operation when the last one was answered; in
    /// an open loop at most so many operations are in flight, and what is due meanwhile waits.
    pub sessions: u32,
    /// Closed loop only: pause of a session after each answer.
    #[serde(default, with = "span")]
    pub think: Duration,
    /// Open loop: when operations are due, as `poisson 500/s`; see [`Arrivals`]. Absent: a closed loop.
    pub arrivals: Option<Arrivals>,
    /// After so long an operation is given up; what a write then did is unknown. 0 waits for ever.
    #[serde(default = "ten_seconds", with = "span")]
    pub timeout: Duration,
    /// How often an operation that was certainly not done, because of a conflict or an absent server, is
    /// tried again. All its tries are one operation with one latency, and are counted.
    #[serde(default)]
    pub retries: u32,
    /// Pause before the first retry; it doubles with each, up to a second.
    #[serde(default = "one_millisecond", with = "span")]
    pub retry_pause: Duration,
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
    /// Measured at least this long,
    #[serde(with = "span")]
    pub measure_least: Duration,
    /// and until so many operations were answered,
    pub measure_operations: u64,
    /// but not longer than this.
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
