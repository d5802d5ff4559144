//! Operations one by one, as `measurementtype = raw` of YCSB and `csv` of go-ycsb write them.

use super::go;
use super::measurements::{Line, Number, name_of, status};
use super::settings::{From, Measurement, Settings};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tipover_core::measure::Single;
use tipover_core::op::{OpKind, Outcome};
use tipover_core::units::Tick;

/// One operation: when it began and how long it took, in microseconds; the first since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub began_us: u64,
    pub took_us: u64,
}

impl Point {
    /// From `began`, for `took`; a fraction is cut off.
    pub fn new(began: SystemTime, took: Duration) -> Point {
        let since = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        Point { began_us: since.as_micros() as u64, took_us: took.as_micros() as u64 }
    }
}

/// All operations by YCSB's names. They are kept until the end, as YCSB keeps them: 16 bytes each.
#[derive(Debug, Default)]
pub struct Raw {
    points: BTreeMap<String, Vec<Point>>,
}

impl Raw {
    /// Adds `singles`, whose clock began at `origin`.
    pub fn add(&mut self, singles: &[Single], origin: SystemTime, settings: &Settings) {
        for Single { kind, outcome, timing } in singles {
            let point =
                |from: Tick| Point::new(origin + Duration::from_nanos(from.0), timing.ended.since(from));
            let (service, residence) = (point(timing.began), point(timing.due));
            let mut of_name = |name: String, point| self.points.entry(name).or_default().push(point);
            if settings.measurement == Measurement::Csv {
                go::names(*kind, *outcome).into_iter().for_each(|name| of_name(name, service));
                continue;
            }
            let name = name(*kind, *outcome, settings);
            match settings.from {
                From::Began => of_name(name, service),
                From::Due => of_name(name, residence),
                From::Both => {
                    of_name(format!("Intended-{name}"), residence);
                    of_name(name, service);
                }
            }
        }
    }

    /// Adds `points` under `name`.
    pub fn put(&mut self, name: &str, points: &[Point]) {
        self.points.entry(name.to_string()).or_default().extend_from_slice(points);
    }

    /// Those of `name`.
    pub fn of(&self, name: &str) -> &[Point] {
        self.points.get(name).map_or(&[], Vec::as_slice)
    }

    /// Under which names those are that other measurements keep together as `name`: `READ-NOT_FOUND` and
    /// `READ-ERROR` for `READ-FAILED`.
    pub fn apart(&self, name: &str) -> Vec<String> {
        let Some(operation) = name.strip_suffix("FAILED") else { return vec![name.into()] };
        let status =
            |known: &String| known.strip_prefix(operation).is_some_and(|status| !status.contains('-'));
        self.points.keys().filter(|known| status(known)).cloned().collect()
    }

    /// The figures that YCSB prints under `shown` for those of `name`, but for how they ended.
    pub fn lines(&self, name: &str, shown: &str, summarized: bool, line: &mut dyn FnMut(&str, &str, Number)) {
        let mut took: Vec<u64> = self.of(name).iter().map(|point| point.took_us).collect();
        took.sort_unstable();
        let whole = |n: u64| Number::Whole(n as i64);
        line(shown, "Total Operations", whole(took.len() as u64));
        let (true, Some(most)) = (summarized, took.last()) else { return };
        line(shown, "Below is a summary of latency in microseconds:", Number::Whole(-1));
        let mean = took.iter().sum::<u64>() as f64 / took.len() as f64;
        line(shown, "Average", Number::Double(mean));
        line(shown, "Min", whole(took[0]));
        line(shown, "Max", whole(*most));
        for (share, percentile) in PERCENTILES {
            let at = (took.len() as f64 * share) as usize;
            line(shown, percentile, whole(took[at.min(took.len() - 1)]));
        }
    }

    /// The operations of the measurements that `lines` are about, in their order, as YCSB writes them.
    pub fn ycsb(&self, lines: &[Line], before: &str) -> String {
        let mut text = String::new();
        let summaries = lines.iter().filter(|line| line.name == "Total Operations");
        for shown in summaries.map(|line| line.metric.as_str()) {
            let _ = writeln!(text, "{shown} latency raw data: op, timestamp(ms), latency(us)");
            for point in self.of(shown.strip_prefix(before).unwrap_or(shown)) {
                // YCSB looks at the clock when the operation has ended.
                let ended_ms = (point.began_us + point.took_us) / 1000;
                let _ = writeln!(text, "{shown},{ended_ms},{}", point.took_us);
            }
        }
        text
    }

    /// All operations as go-ycsb writes them.
    pub fn go(&self) -> String {
        let mut text = "operation,timestamp_us,latency_us\n".to_string();
        for (name, points) in &self.points {
            for Point { began_us, took_us } in points {
                let _ = writeln!(text, "{name},{began_us},{took_us}");
            }
        }
        text
    }
}

const PERCENTILES: [(f64, &str); 8] = [
    (0.01, "p1"),
    (0.05, "p5"),
    (0.5, "p50"),
    (0.9, "p90"),
    (0.95, "p95"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
];

/// `READ`, `READ-FAILED`, or `READ-NOT_FOUND` where that was asked for.
fn name(kind: OpKind, outcome: Outcome, settings: &Settings) -> String {
    let name = name_of(kind);
    match outcome {
        Outcome::Done => name.to_string(),
        Outcome::Refused(failure) | Outcome::Unknown(failure) => {
            let status = status(failure);
            let tracked = settings.each_error || settings.tracked_errors.iter().any(|error| error == status);
            format!("{name}-{}", if tracked { status } else { "FAILED" })
        }
    }
}
