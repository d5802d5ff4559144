//! What an open loop was to send, what it sent, and whether the target kept up.

use super::latency::ours;
use super::{Histogram, encode, histogram};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What an open loop was to send in an interval or phase, and what it sent.
///
/// Nothing is shed: `carried_in + due = ended + backlog + in_flight`, where `ended` is what the books of the
/// same interval hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Operations that became due.
    pub due: u64,
    /// Operations that were sent.
    pub begun: u64,
    /// Operations due before it that were not sent or not answered when it began.
    pub carried_in: u64,
    /// Operations due and not sent at its end.
    pub backlog: u64,
    /// Operations sent and not answered at its end.
    pub in_flight: u64,
    /// Of those in flight at the end of a phase, the ones that were not answered in the time-out after it
    /// either.
    pub unanswered: u64,
    /// The largest backlog at the end of an interval.
    pub backlog_most: u64,
    /// How late the generator was, in nanoseconds, as an HdrHistogram: from the moment at which an operation
    /// was due and a session was free to the moment at which it was sent. Waiting for a session to become
    /// free is not in it.
    pub lateness: String,
}

impl Offered {
    /// Adds the interval that follows.
    ///
    /// # Errors
    /// When a histogram cannot be read.
    pub fn append(&mut self, next: &Offered) -> Result<(), String> {
        let mut lateness = self.lateness()?;
        lateness.add(next.lateness()?).map_err(|error| format!("{error:?}"))?;
        self.lateness = encode(&lateness);
        self.due = self.due.saturating_add(next.due);
        self.begun = self.begun.saturating_add(next.begun);
        self.backlog = next.backlog;
        self.in_flight = next.in_flight;
        self.unanswered = next.unanswered;
        self.backlog_most = self.backlog_most.max(next.backlog_most);
        Ok(())
    }

    /// Adds what another machine was to send of the same load meanwhile.
    ///
    /// # Errors
    /// When a histogram cannot be read.
    pub fn add_beside(&mut self, other: &Offered) -> Result<(), String> {
        let mut lateness = self.lateness()?;
        lateness.add(other.lateness()?).map_err(|error| format!("{error:?}"))?;
        self.lateness = encode(&lateness);
        self.due = self.due.saturating_add(other.due);
        self.begun = self.begun.saturating_add(other.begun);
        self.carried_in = self.carried_in.saturating_add(other.carried_in);
        self.backlog = self.backlog.saturating_add(other.backlog);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.unanswered = self.unanswered.saturating_add(other.unanswered);
        self.backlog_most = self.backlog_most.saturating_add(other.backlog_most);
        Ok(())
    }

    /// How late the generator was, in nanoseconds.
    pub fn lateness(&self) -> Result<Histogram, String> {
        if self.lateness.is_empty() { Ok(histogram()) } else { ours(&self.lateness) }
    }

    /// How late the generator was and how long operations took, both at p99, where it was so late that it
    /// shows in what is measured: by over 100 us and a tenth of the residence.
    ///
    /// # Errors
    /// The lateness cannot be read.
    pub fn late_beside(&self, residence: &Histogram) -> Result<Option<(Duration, Duration)>, String> {
        let p99 = |of: &Histogram| Duration::from_nanos(of.value_at_quantile(0.99));
        let (late, residence) = (p99(&self.lateness()?), p99(residence));
        Ok(shows(late, residence).then_some((late, residence)))
    }

    /// Operations that were due and never sent, or never answered: failed, though no book holds them.
    pub fn lost(&self) -> u64 {
        self.backlog + self.unanswered
    }

    /// How many operations are missing (negative: too many) when `ended` are in the books. Zero but for the
    /// few that were sent or answered while the interval was closed.
    pub fn unaccounted(&self, ended: u64) -> i64 {
        let before = self.carried_in as i64 + self.due as i64;
        before - ended as i64 - self.backlog as i64 - self.in_flight as i64
    }
}

/// Whether a generator that is this late shows in a residence this long, both at p99.
pub fn shows(late: Duration, residence: Duration) -> bool {
    late > Duration::from_micros(100) && late > residence / 10
}

/// Whether a target kept up with an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kept_up", rename_all = "snake_case")]
pub enum KeptUp {
    /// The backlog was worked off again and again.
    Yes {
        /// The largest backlog at the end of an interval.
        most: u64,
    },
    /// From this second on the backlog never went away.
    Until {
        /// Seconds since the phase began.
        #[serde(rename = "second_s")]
        second: f64,
        /// Operations due and not sent at its end.
        backlog: u64,
    },
}

impl KeptUp {
    /// From the backlog at the ends of intervals, in seconds since the phase began. What 10 ms
    /// bring, and eight operations, are no backlog: they wait for a session, as some always do.
    pub fn judge(backlog: &[(f64, u64)], offered_per_s: f64) -> KeptUp {
        let tolerated = (offered_per_s * 0.01).max(8.0) as u64;
        let last = backlog.last().map_or(0, |(_, backlog)| *backlog);
        if last <= tolerated {
            return KeptUp::Yes { most: backlog.iter().map(|(_, backlog)| *backlog).max().unwrap_or(0) };
        }
        let kept = backlog.iter().rposition(|(_, backlog)| *backlog <= tolerated);
        KeptUp::Until { second: kept.map_or(0.0, |index| backlog[index].0), backlog: last }
    }
}

impl std::fmt::Display for KeptUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeptUp::Yes { most: 0 } => write!(f, "the target kept up"),
            KeptUp::Yes { most } => {
                write!(f, "the target kept up, with a backlog of up to {most} operations")
            }
            KeptUp::Until { second, backlog } if *second <= 0.0 => {
                write!(f, "the target never kept up: {backlog} operations were due and not sent at the end")
            }
            KeptUp::Until { second, backlog } => write!(
                f,
                "the target stopped keeping up at {second:.0} s: {backlog} operations were due and not sent at \
                 the end"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(due: u64, begun: u64, backlog: u64, late: u64) -> Offered {
        let mut lateness = histogram();
        lateness.saturating_record(late);
        Offered {
            due,
            begun,
            carried_in: 0,
            backlog,
            in_flight: 0,
            unanswered: 0,
            backlog_most: backlog,
            lateness: encode(&lateness),
        }
    }

    #[test]
    fn intervals_add_up_and_nothing_is_shed() {
        let mut all = interval(100, 90, 10, 50);
        all.append(&interval(100, 80, 30, 70)).unwrap();
        all.append(&interval(0, 25, 5, 90)).unwrap();
        assert_eq!((all.due, all.begun, all.backlog, all.backlog_most), (200, 195, 5, 30));
        assert_eq!(all.lateness().unwrap().len(), 3);
        assert_eq!((all.unaccounted(195), all.lost()), (0, 5));
        assert_eq!(all.unaccounted(190), 5);
    }

    #[test]
    fn the_moment_is_named_at_which_a_target_stops_keeping_up() {
        let series =
            |backlog: fn(f64) -> u64| (1..=60).map(|s| (f64::from(s), backlog(f64::from(s)))).collect();
        let kept: Vec<_> = series(|s| if s == 10.0 { 500 } else { 3 });
        assert_eq!(KeptUp::judge(&kept, 1000.0), KeptUp::Yes { most: 500 });
        let fell: Vec<_> = series(|s| ((s - 41.0).max(0.0) * 200.0) as u64);
        let verdict = KeptUp::judge(&fell, 1000.0);
        assert!(verdict.to_string().starts_with("the target stopped keeping up at 41 s: 3800"), "{verdict}");
        let never: Vec<_> = series(|s| (s * 100.0) as u64);
        assert!(KeptUp::judge(&never, 1000.0).to_string().contains("never kept up"));
    }
}
