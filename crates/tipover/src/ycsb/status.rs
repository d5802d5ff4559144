//! The line that YCSB prints every ten seconds.

use super::java::two_decimals;
use super::measurements::Series;
use super::settings::Measurement;
use std::fmt::Write;
use time::OffsetDateTime;

/// What a status line tells.
pub struct Status<'a> {
    pub label: &'a str,
    pub now: OffsetDateTime,
    pub elapsed_ms: u64,
    /// Operations so far, and since the last line.
    pub operations: u64,
    pub since: u64,
    pub since_ms: u64,
    /// Operations that are still to come; 0 if nobody knows.
    pub left: u64,
    /// Since the last line.
    pub series: &'a [(String, Series)],
    pub measurement: Measurement,
}

impl Status<'_> {
    /// The line, without its end.
    pub fn line(&self) -> String {
        let now = self.now;
        let mut line = format!(
            "{}{:04}-{:02}-{:02} {:02}:{:02}:{:02}:{:03} {} sec: {} operations; ",
            self.label,
            now.year(),
            u8::from(now.month()),
            now.day(),
            now.hour(),
            now.minute(),
            now.second(),
            now.millisecond(),
            self.elapsed_ms / 1000,
            self.operations
        );
        if self.operations > 0 {
            let current = self.since as f64 * 1000.0 / self.since_ms.max(1) as f64;
            let _ = write!(line, "{} current ops/sec; ", two_decimals(current));
        }
        if self.left > 0 && self.operations > 0 {
            let rate = self.operations as f64 * 1000.0 / self.elapsed_ms.max(1) as f64;
            let _ = write!(line, "est completion in {}", remaining((self.left as f64 / rate).ceil() as u64));
        }
        for (name, series) in self.series {
            let latencies = &series.latencies;
            let counts = latencies.len();
            if matches!(self.measurement, Measurement::Raw | Measurement::Csv) {
                if counts > 0 {
                    let mean = latencies.mean();
                    let _ = write!(line, "{name} count: {counts}, average latency(us): {mean:.2} ");
                }
            } else if !matches!(self.measurement, Measurement::Histogram | Measurement::TimeSeries) {
                let at = |p: f64| latencies.value_at_percentile(p);
                let _ = write!(
                    line,
                    "[{name}: Count={}, Max={}, Min={}, Avg={}, 50={}, 90={}, 99={}, 99.9={}, 99.99={}] ",
                    counts,
                    latencies.max(),
                    if latencies.is_empty() { 0 } else { latencies.min() },
                    two_decimals(latencies.mean()),
                    at(50.0),
                    at(90.0),
                    at(99.0),
                    at(99.9),
                    at(99.99)
                );
            } else if !latencies.is_empty() {
                let _ = write!(line, "[{name} AverageLatency(us)={}] ", two_decimals(latencies.mean()));
            }
        }
        line
    }
}

/// `1 day 2 hours `, `3 minutes `, `40 seconds `. YCSB writes `1 seconds`, so it is written here.
fn remaining(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let mut text = String::new();
    let mut part = |n: u64, unit: &str| {
        if n > 0 {
            let _ = write!(text, "{n} {unit}{} ", if n == 1 { "" } else { "s" });
        }
    };
    part(days, "day");
    part(hours, "hour");
    if days < 1 {
        part(minutes, "minute");
    }
    if text.is_empty() { format!("{seconds} seconds ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_ycsbs() {
        // Values that HdrHistogram keeps exactly.
        let mut latencies = hdrhistogram::Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        for us in 1..=100u64 {
            latencies.record(us * 10).unwrap();
        }
        let series = [("READ".to_string(), Series { latencies, returns: vec![] })];
        let mut status = Status {
            label: "mine ",
            now: OffsetDateTime::from_unix_timestamp(1_795_241_596).unwrap(),
            elapsed_ms: 10_002,
            operations: 12_345,
            since: 100,
            since_ms: 81,
            left: 300_000,
            series: &series,
            measurement: Measurement::Hdr,
        };
        assert_eq!(
            status.line(),
            "mine 2026-11-21 06:13:16:000 10 sec: 12345 operations; 1234.57 current ops/sec; est completion in \
             4 minutes [READ: Count=100, Max=1000, Min=10, Avg=505, 50=500, 90=900, 99=990, 99.9=1000, \
             99.99=1000] "
        );
        (status.operations, status.left, status.series) = (0, 0, &[]);
        assert!(status.line().ends_with("10 sec: 0 operations; "));
    }

    #[test]
    fn what_remains_is_said_as_ycsb_says_it() {
        for (seconds, text) in
            [(1, "1 seconds "), (61, "1 minute "), (7260, "2 hours 1 minute "), (90_060, "1 day 1 hour ")]
        {
            assert_eq!(remaining(seconds), text);
        }
    }
}
