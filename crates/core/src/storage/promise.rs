//! What a disk is to promise: `await < 50 ms`, `p99 < 20 ms`, `residence < 30 ms`.

use super::{DeviceCounts, Measured};
use crate::search::{DeviceUse, FinishedTrial, Purpose, Request, Rest, Slo};
use crate::units::span;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Which figure of reads and writes is promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Watched {
    /// The mean from sending to answer, as iostat's column says it, but seen by the client.
    Await,
    /// The mean from the moment at which a request was due.
    Residence,
    /// A percentile of that, in percent.
    Percentile(f64),
}

/// A promise about reads and writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskPromise {
    /// Of what.
    pub watched: Watched,
    /// What it may be at most.
    pub limit: Duration,
}

/// A promise of a mean holds or breaks for a whole trial. This share is only how the search hears of it.
const ALL_OR_NONE: f64 = 0.5;
/// With more than this share of failed requests no mean is kept, however fast the others were.
const MOST_FAILED: f64 = 0.001;

impl DiskPromise {
    /// The same for the search.
    pub fn slo(self) -> Slo {
        let bad_ratio = match self.watched {
            Watched::Percentile(percentile) => {
                // By way of the decimal digits: 1 − 0.99 is not 0.01 in binary.
                format!("{:.9}", 1.0 - percentile / 100.0).parse().expect("a printed number is a number")
            }
            Watched::Await | Watched::Residence => ALL_OR_NONE,
        };
        Slo { name: self.to_string(), bad_ratio }
    }

    /// A trial in the words of the search.
    pub fn trial(self, measured: &Measured, request: &Request, generator_late: bool) -> FinishedTrial {
        let done = measured.requests();
        let failed = measured.books.failed();
        let (unfinished, not_sent, scheduled) = match &measured.offered {
            Some(offered) => (offered.unanswered, offered.backlog, offered.due),
            None => (0, 0, done + failed),
        };
        let late = match self.watched {
            Watched::Percentile(_) => {
                let limit = u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX);
                done - measured.merged(true).count_between(0, limit).min(done)
            }
            Watched::Await | Watched::Residence => {
                let mean = match self.watched {
                    Watched::Await => measured.mean_await(),
                    _ => measured.mean_residence(),
                };
                // Requests that were never answered have no latency, and a backlog has no end.
                let lost = (failed + unfinished + not_sent) as f64 > MOST_FAILED * scheduled as f64 + 8.0;
                if lost || mean.is_none_or(|mean| mean > self.limit) { scheduled.max(1) } else { 0 }
            }
        };
        FinishedTrial {
            load: request.load,
            duration: request.duration,
            lost_after: None,
            scheduled: scheduled.max(1),
            late: vec![late],
            failed,
            not_sent,
            unfinished,
            generator_late,
            late_generators: vec![],
            purpose: request.purpose,
            rest: Rest::Unknown,
            rested_for: Duration::ZERO,
            device: measured.device.as_ref().and_then(DeviceCounts::rates).map(|rates| DeviceUse {
                requests_per_s: rates.requests().0,
                utilization: rates.utilization,
            }),
            canaries: vec![],
        }
    }

    /// Whether it held in a single measurement.
    pub fn held(self, measured: &Measured) -> bool {
        let request = Request {
            load: 1.0,
            duration: measured.window,
            purpose: Purpose::Narrow { slo: 0 },
            why: String::new(),
        };
        self.trial(measured, &request, false).bad_ratio(0) <= self.slo().bad_ratio
    }
}

impl fmt::Display for DiskPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.watched {
            Watched::Await => write!(f, "await")?,
            Watched::Residence => write!(f, "residence")?,
            Watched::Percentile(percentile) => write!(f, "p{percentile}")?,
        }
        write!(f, " <= {}", span::print(self.limit))
    }
}

impl FromStr for DiskPromise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "\"await < 50 ms\", \"p99 < 20 ms\" or \"residence < 30 ms\"";
        let wrong = || format!("{text:?} is no promise about a disk; write for example {example}");
        let (watched, limit) = match ["<=", "≤", "<"].iter().find_map(|sign| text.split_once(sign)) {
            Some(both) => both,
            // A bare time is what people say: "20 ms".
            None => ("await", text),
        };
        let watched = match watched.trim() {
            "await" => Watched::Await,
            "residence" => Watched::Residence,
            percentile => {
                let percentile: f64 =
                    percentile.strip_prefix('p').and_then(|p| p.parse().ok()).ok_or_else(wrong)?;
                if !(percentile > 0.0 && percentile < 100.0) {
                    return Err(format!("{text:?}: a percentile lies between 0 and 100"));
                }
                Watched::Percentile(percentile)
            }
        };
        let limit = span::parse(limit.trim()).map_err(|e| format!("{text:?}: {e}; such as {example}"))?;
        if limit.is_zero() {
            return Err(format!("{text:?}: nothing is answered in no time"));
        }
        Ok(DiskPromise { watched, limit })
    }
}

impl Serialize for DiskPromise {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DiskPromise {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::measured;
    use super::*;

    #[test]
    fn promises_are_printed_as_they_are_parsed() {
        for text in ["await <= 50 ms", "residence <= 30 ms", "p99 <= 20 ms", "p99.9 <= 1 s"] {
            assert_eq!(text.parse::<DiskPromise>().unwrap().to_string(), text);
        }
        assert_eq!("await<50ms".parse::<DiskPromise>().unwrap().to_string(), "await <= 50 ms");
        assert_eq!("20 ms".parse::<DiskPromise>().unwrap().to_string(), "await <= 20 ms");
        for wrong in ["", "fast", "p100 < 1 s", "await < 50", "svctm < 1 ms", "await < 0"] {
            assert!(wrong.parse::<DiskPromise>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mean_holds_or_breaks_as_a_whole_and_a_percentile_counts_the_late() {
        let slow_tail: Vec<u64> = (0..1000).map(|n| if n < 20 { 100_000_000 } else { 1_000_000 }).collect();
        let it = measured(&slow_tail, &[], &[900_000_000]);
        let held = |text: &str| text.parse::<DiskPromise>().unwrap().held(&it);
        assert!(held("await < 3 ms") && !held("await < 2 ms"), "the mean is 2.98 ms, without the flush");
        assert!(held("p97 < 2 ms") && !held("p99 < 2 ms"));
        let nothing = measured(&[], &[], &[]);
        assert!(!"await < 1 h".parse::<DiskPromise>().unwrap().held(&nothing), "nothing was answered");
    }
}
