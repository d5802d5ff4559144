//! What a device has done, counted as the kernel's diskstats count, and the rates that follow.

use super::Kind;
use crate::units::{Bytes, Rate, Ratio, Tick, span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Completed requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// How many completed.
    pub requests: u64,
    /// Bytes they moved (or discarded).
    pub bytes: Bytes,
    /// Sum over them of completion minus arrival.
    #[serde(with = "span", rename = "residence_ns")]
    pub residence: Duration,
}

impl Totals {
    fn since(self, earlier: Totals) -> Totals {
        Totals {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: Bytes(self.bytes.0.saturating_sub(earlier.bytes.0)),
            residence: self.residence.saturating_sub(earlier.residence),
        }
    }
    fn plus(self, other: Totals) -> Totals {
        Totals {
            requests: self.requests + other.requests,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
            residence: self.residence + other.residence,
        }
    }
    fn mean(self) -> Option<Duration> {
        (self.requests > 0).then(|| self.residence.div_f64(self.requests as f64))
    }
}

/// Everything counted since the device was made. Only differences between two readings mean something,
/// except `in_flight` and `credits`, which are levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// When this was true.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// Completed reads.
    pub read: Totals,
    /// Completed writes.
    pub write: Totals,
    /// Completed flushes.
    pub flush: Totals,
    /// Completed discards.
    pub discard: Totals,
    /// Requests that have arrived and not completed.
    pub in_flight: u64,
    /// Time during which at least one request was in flight.
    #[serde(with = "span", rename = "busy_ns")]
    pub busy: Duration,
    /// In-flight requests integrated over time.
    #[serde(with = "span", rename = "queue_time_ns")]
    pub queue_time: Duration,
    /// Burst credits left, where the device has any: a level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<u64>,
}

impl Counters {
    /// The same, their moment counted from `origin_ns` on.
    pub fn from_origin(self, origin_ns: u64) -> Counters {
        Counters { at: Tick(self.at.0.saturating_sub(origin_ns)), ..self }
    }

    /// Brings the two integrals up to `now`.
    pub(super) fn advance(&mut self, now: Tick) {
        let step = now.since(self.at);
        if self.in_flight > 0 {
            self.busy += step;
            self.queue_time += step * u32::try_from(self.in_flight).unwrap_or(u32::MAX);
        }
        self.at = self.at.max(now);
    }

    /// A request arrived. `at` may lie a little in the past (the transport took that long to bring it):
    /// its share of the queue is then added belatedly, so that Little's law keeps holding exactly.
    pub(super) fn arrive(&mut self, at: Tick) {
        let late = self.at.since(at);
        self.advance(at);
        self.in_flight += 1;
        self.queue_time += late;
    }

    /// A request that arrived at `arrival` completed.
    pub(super) fn depart(&mut self, arrival: Tick, at: Tick, kind: Kind, size: Bytes) {
        self.advance(at);
        assert!(self.in_flight > 0, "a request completes that never arrived");
        self.in_flight -= 1;
        let totals = match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Flush => &mut self.flush,
            Kind::Discard => &mut self.discard,
        };
        totals.requests += 1;
        totals.bytes.0 += size.0;
        totals.residence += self.at.since(arrival);
    }

    /// The columns of iostat for the window between two readings; `None` if no time passed.
    pub fn rates_since(&self, earlier: &Counters) -> Option<Rates> {
        let window = self.at.since(earlier.at);
        let seconds = window.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let per_second = |n: u64| Rate(n as f64 / seconds);
        let (read, write) = (self.read.since(earlier.read), self.write.since(earlier.write));
        let flush = self.flush.since(earlier.flush);
        let both = read.plus(write);
        Some(Rates {
            window,
            reads: per_second(read.requests),
            writes: per_second(write.requests),
            flushes: per_second(flush.requests),
            discards: per_second(self.discard.since(earlier.discard).requests),
            read_bandwidth: per_second(read.bytes.0),
            write_bandwidth: per_second(write.bytes.0),
            request_size: both.bytes.0.checked_div(both.requests).map(Bytes),
            read_await: read.mean(),
            write_await: write.mean(),
            flush_await: flush.mean(),
            mean_await: both.mean(),
            queue: self.queue_time.saturating_sub(earlier.queue_time).as_secs_f64() / seconds,
            utilization: Ratio(self.busy.saturating_sub(earlier.busy).as_secs_f64() / seconds),
        })
    }
}

/// iostat's columns over a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// How long the window was.
    #[serde(with = "span", rename = "window_ns")]
    pub window: Duration,
    /// r/s.
    #[serde(rename = "reads_per_s")]
    pub reads: Rate,
    /// w/s.
    #[serde(rename = "writes_per_s")]
    pub writes: Rate,
    /// f/s.
    #[serde(rename = "flushes_per_s")]
    pub flushes: Rate,
    /// d/s.
    #[serde(rename = "discards_per_s")]
    pub discards: Rate,
    /// Bytes read per second.
    #[serde(rename = "read_bytes_per_s")]
    pub read_bandwidth: Rate,
    /// Bytes written per second.
    #[serde(rename = "write_bytes_per_s")]
    pub write_bandwidth: Rate,
    /// Mean size of a read or write; `None` without any.
    #[serde(rename = "request_size_bytes")]
    pub request_size: Option<Bytes>,
    /// Mean residence of the reads that completed (r_await).
    #[serde(with = "maybe_span", rename = "read_await_ns")]
    pub read_await: Option<Duration>,
    /// Mean residence of the writes that completed (w_await).
    #[serde(with = "maybe_span", rename = "write_await_ns")]
    pub write_await: Option<Duration>,
    /// Mean residence of the flushes that completed (f_await).
    #[serde(with = "maybe_span", rename = "flush_await_ns")]
    pub flush_await: Option<Duration>,
    /// Mean residence of reads and writes together (await).
    #[serde(with = "maybe_span", rename = "await_ns")]
    pub mean_await: Option<Duration>,
    /// Mean number of requests in flight, of any kind (aqu-sz).
    pub queue: f64,
    /// Share of the time with at least one request in flight (%util). On a device that serves several at
    /// once, 100 % is not saturation.
    pub utilization: Ratio,
}

impl Rates {
    /// Reads and writes per second.
    pub fn requests(&self) -> Rate {
        Rate(self.reads.0 + self.writes.0)
    }
}

/// `Option<Duration>` as nanoseconds or null.
mod maybe_span {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(span: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        span.map(|span| span.as_nanos() as u64).serialize(s)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_nanos))
    }
}
