//! What iostat prints, made of two samples of a device: requests, bytes, waits, queue and utilization.

use crate::metric::Sample;
use crate::units::{Bytes, Rate, Ratio, Tick};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One direction of a device between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Requests completed per second (iostat's r/s and w/s).
    #[serde(rename = "requests_per_s")]
    pub requests: Rate,
    /// Bytes per second (rMB/s, wMB/s).
    #[serde(rename = "bytes_per_s")]
    pub bytes: Rate,
    /// Mean time from queueing to completion (r_await, w_await); `None` without a completed request.
    #[serde(rename = "await_ns", with = "option_ns")]
    pub r#await: Option<Duration>,
    /// Mean size of a request (rareq-sz, wareq-sz); `None` without a completed request.
    #[serde(rename = "request_bytes")]
    pub request: Option<Bytes>,
}

/// A device between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceRates {
    /// From the middle of the first reading to the middle of the second.
    #[serde(rename = "span_ns", with = "crate::units::span")]
    pub span: Duration,
    /// Reads.
    pub read: Flow,
    /// Writes.
    pub write: Flow,
    /// Mean number of requests in flight (aqu-sz).
    #[serde(rename = "queue_requests")]
    pub queue: f64,
    /// Share of the time with at least one request in flight (%util). May exceed 1 by the kernel's rounding
    /// to milliseconds and by the width of the readings; says nothing about how much more a parallel device
    /// could do.
    pub utilization: Ratio,
}

/// The rates between two samples of the device probe; `None` if no time passed, a value is missing, or a
/// counter went backwards (the device was made anew).
pub fn rates(earlier: &Sample, later: &Sample) -> Option<DeviceRates> {
    let span = middle(later).since(middle(earlier));
    let seconds = span.as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let growth = |name: &str| later.growth(earlier, name).filter(|growth| *growth >= 0.0);
    let flow = |way: &str| {
        let requests = growth(&format!("device_{way}_requests"))?;
        let bytes = growth(&format!("device_{way}_bytes"))?;
        let milliseconds = growth(&format!("device_{way}_time_ms"))?;
        let some = requests > 0.0;
        Some(Flow {
            requests: Rate(requests / seconds),
            bytes: Rate(bytes / seconds),
            r#await: some.then(|| Duration::try_from_secs_f64(milliseconds / 1e3 / requests).ok()).flatten(),
            request: some.then(|| Bytes((bytes / requests).round() as u64)),
        })
    };
    Some(DeviceRates {
        span,
        read: flow("read")?,
        write: flow("write")?,
        queue: growth("device_queue_time_ms")? / 1e3 / seconds,
        utilization: Ratio(growth("device_busy_time_ms")? / 1e3 / seconds),
    })
}

/// The values are from somewhere in the window; its middle is the best guess and halves the worst error.
fn middle(sample: &Sample) -> Tick {
    sample.begin + sample.end.since(sample.begin) / 2
}

mod option_ns {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(span: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => s.serialize_some(&(span.as_nanos() as u64)),
            None => s.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(begin: u64, end: u64, values: &[(&str, f64)]) -> Sample {
        let values = values.iter().map(|(name, value)| (format!("device_{name}"), *value)).collect();
        Sample { begin: Tick(begin), end: Tick(end), values }
    }

    fn by_hand() -> (Sample, Sample) {
        let names = [
            "read_requests",
            "read_bytes",
            "read_time_ms",
            "write_requests",
            "write_bytes",
            "write_time_ms",
            "queue_time_ms",
            "busy_time_ms",
        ];
        let zip = |values: [f64; 8]| names.into_iter().zip(values).collect::<Vec<_>>();
        // Windows of 2 ms around 1 s and 3 s: two seconds apart.
        let earlier =
            sample(999_000_000, 1_001_000_000, &zip([100.0, 4096.0, 50.0, 7.0, 512.0, 3.0, 60.0, 40.0]));
        // 1200 reads of 4 KiB that took 26.4 ms each, no writes: 600 /s with 15.84 in flight, always busy.
        let more =
            [1300.0, 4096.0 + 1200.0 * 4096.0, 50.0 + 31_680.0, 7.0, 512.0, 3.0, 60.0 + 31_680.0, 2040.0];
        (earlier, sample(2_999_000_000, 3_001_000_000, &zip(more)))
    }

    #[test]
    fn rates_are_those_worked_out_by_hand() {
        let (earlier, later) = by_hand();
        let rates = rates(&earlier, &later).unwrap();
        assert_eq!(rates.span, Duration::from_secs(2));
        assert_eq!(rates.read.requests, Rate(600.0));
        assert_eq!(rates.read.bytes, Rate(600.0 * 4096.0));
        assert_eq!(rates.read.r#await, Some(Duration::from_micros(26_400)));
        assert_eq!(rates.read.request, Some(Bytes(4096)));
        assert_eq!((rates.write.requests, rates.write.r#await, rates.write.request), (Rate(0.0), None, None));
        assert_eq!(rates.queue, 15.84);
        assert_eq!(rates.utilization, Ratio(1.0));
        // Little's law ties the three together.
        let little = rates.read.requests.0 * rates.read.r#await.unwrap().as_secs_f64();
        assert!((little - rates.queue).abs() < 1e-9);
        let text = serde_json::to_string(&rates).unwrap();
        assert!(text.contains(r#""await_ns":26400000"#) && text.contains(r#""await_ns":null"#), "{text}");
        assert_eq!(serde_json::from_str::<DeviceRates>(&text).unwrap(), rates);
    }

    #[test]
    fn no_rates_without_time_or_from_a_device_made_anew() {
        let (earlier, later) = by_hand();
        assert_eq!(rates(&earlier, &earlier), None);
        assert_eq!(rates(&later, &earlier), None);
        let fresh = Sample { begin: later.begin, end: later.end, ..sample(0, 0, &[("read_requests", 1.0)]) };
        assert_eq!(rates(&earlier, &fresh), None);
    }

    proptest! {
        #[test]
        fn no_numbers_panic(
            ticks in prop::array::uniform4(0..u64::MAX / 2),
            scale in prop::array::uniform8(-1e18..1e18f64),
        ) {
            let (mut earlier, mut later) = by_hand();
            let ticks = ticks.map(Tick);
            (earlier.begin, earlier.end, later.begin, later.end) = (ticks[0], ticks[1], ticks[2], ticks[3]);
            for (value, by) in later.values.values_mut().zip(scale) {
                *value += by;
            }
            let _ = rates(&earlier, &later);
        }
    }
}
