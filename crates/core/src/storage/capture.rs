//! A real disk as a profile: what a shaped disk needs to resemble it.

use crate::device::{Kind, Profile, ServiceHistogram, Spec, Spread};
use crate::measure::Histogram;
use crate::units::{Bytes, Rate};
use serde::Serialize;
use std::time::Duration;

/// What was measured of a disk.
#[derive(Debug, Clone)]
pub struct Captured {
    /// What the profile shall be called.
    pub name: String,
    /// Where and how it was measured, in a sentence.
    pub source: String,
    /// Reads one at a time.
    pub read: Histogram,
    /// Writes one at a time.
    pub write: Option<Histogram>,
    /// Flushes after a write.
    pub flush: Option<Histogram>,
    /// The most small reads per second.
    pub read_iops: Rate,
    /// The most small writes per second.
    pub write_iops: Option<Rate>,
    /// The most of both together, in a mix of halves.
    pub mixed_iops: Option<Rate>,
    /// Bytes per second of large reads.
    pub read_bandwidth: Bytes,
    /// Bytes per second of large writes.
    pub write_bandwidth: Option<Bytes>,
}

/// Steps to a doubling of time: each is 9 % wide, so that a gap between two kinds of latency stays a gap.
const PER_OCTAVE: f64 = 8.0;
/// The slowest in a thousand are left out: a single stall among a few thousand requests is no property of the
/// disk.
const KEPT: f64 = 0.999;

/// Service times as steps; `None` of nothing.
pub fn steps(histogram: &Histogram) -> Option<ServiceHistogram> {
    if histogram.is_empty() {
        return None;
    }
    let most = histogram.value_at_quantile(KEPT);
    let edge = |step: i32| Duration::from_nanos((f64::from(step) / PER_OCTAVE).exp2().round() as u64);
    let step_of = |ns: u64| ((ns.max(1) as f64).log2() * PER_OCTAVE).floor() as i32;
    let (first, last) = (step_of(histogram.min()), step_of(most));
    let mut weights = vec![0; (last - first + 1).max(1) as usize];
    for value in histogram.iter_recorded().take_while(|value| value.value_iterated_to() <= most.max(1)) {
        let at = step_of(value.value_iterated_to()).clamp(first, last) - first;
        weights[at as usize] += value.count_at_value();
    }
    let steps = weights.into_iter().zip(first + 1..).map(|(weight, step)| (edge(step), weight)).collect();
    Some(ServiceHistogram { low: edge(first), steps })
}

impl Captured {
    /// As a profile; `None` if no read was measured.
    pub fn profile(&self) -> Option<Profile> {
        let steps = steps(&self.read)?;
        let mean = |histogram: &Histogram| Duration::from_nanos(histogram.mean() as u64);
        let latency = steps.mean();
        // The gate for both matters only where reads and writes share it.
        let apart = self.read_iops.0.max(self.write_iops.map_or(0.0, |rate| rate.0));
        let shared = self.mixed_iops.filter(|mixed| mixed.0 < 1.5 * apart);
        let spec = Spec {
            name: Some(self.name.clone()),
            iops: shared.map(|mixed| Rate(mixed.0.max(apart)).whole()),
            read_iops: Some(self.read_iops.whole()),
            write_iops: self.write_iops.map(Rate::whole),
            read_bandwidth: Some(self.read_bandwidth),
            write_bandwidth: self.write_bandwidth,
            latency,
            write_latency: self.write.as_ref().map(mean),
            flush_latency: self.flush.as_ref().map(mean).unwrap_or_default(),
            spread: Spread::Measured(steps),
            ..Spec::default()
        };
        let about = format!(
            "captured: {} small reads one at a time, {} at most",
            crate::units::span::rounded(spec.service(Kind::Read)),
            self.read_iops.rounded()
        );
        Some(Profile { name: self.name.clone(), about, spec, source: self.source.clone() })
    }
}

/// A figure of a disk beside that of its copy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Likeness {
    /// What was measured: "read, median".
    pub what: &'static str,
    /// Of the disk that was captured, with its unit.
    pub original: String,
    /// Of the shaped disk with its profile.
    pub copy: String,
    /// Copy divided by original.
    pub ratio: f64,
}

impl Likeness {
    /// By how much the two differ, whichever is greater: at least 1.
    pub fn factor(&self) -> f64 {
        self.ratio.max(self.ratio.recip())
    }
}

impl Captured {
    /// Every figure of this disk beside the same one of its copy, where both were measured.
    pub fn beside(&self, copy: &Captured) -> Vec<Likeness> {
        let mut rows = Vec::new();
        let mut row = |what, original: f64, copied: f64, print: &dyn Fn(f64) -> String| {
            if original > 0.0 && copied > 0.0 {
                let (ratio, original, copy) = (copied / original, print(original), print(copied));
                rows.push(Likeness { what, original, copy, ratio });
            }
        };
        let time = |ns: f64| crate::units::span::rounded(Duration::from_nanos(ns as u64));
        let at = |histogram: &Histogram, quantile| histogram.value_at_quantile(quantile) as f64;
        row("read, median", at(&self.read, 0.5), at(&copy.read, 0.5), &time);
        row("read, p95", at(&self.read, 0.95), at(&copy.read, 0.95), &time);
        let median = |histogram: &Option<Histogram>| histogram.as_ref().map_or(0.0, |h| at(h, 0.5));
        let mean = |histogram: &Option<Histogram>| histogram.as_ref().map_or(0.0, Histogram::mean);
        row("write, median", median(&self.write), median(&copy.write), &time);
        row("write, mean", mean(&self.write), mean(&copy.write), &time);
        row("flush, mean", mean(&self.flush), mean(&copy.flush), &time);
        let rate = |per_second: f64| Rate(per_second).rounded();
        let rate_of = |rate: Option<Rate>| rate.map_or(0.0, |rate| rate.0);
        row("most small reads", self.read_iops.0, copy.read_iops.0, &rate);
        row("most small writes", rate_of(self.write_iops), rate_of(copy.write_iops), &rate);
        row("most of both, half and half", rate_of(self.mixed_iops), rate_of(copy.mixed_iops), &rate);
        let bytes = |per_second: f64| format!("{}/s", Bytes(per_second as u64).rounded());
        let bytes_of = |bytes: Option<Bytes>| bytes.map_or(0.0, |bytes| bytes.0 as f64);
        row("most bytes read", self.read_bandwidth.0 as f64, copy.read_bandwidth.0 as f64, &bytes);
        row("most bytes written", bytes_of(self.write_bandwidth), bytes_of(copy.write_bandwidth), &bytes);
        rows
    }
}

impl Rate {
    /// Without the digits that no measurement has.
    fn whole(self) -> Rate {
        Rate(self.0.round().max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram;
    use crate::workload::Random;

    #[test]
    fn a_captured_disk_has_the_latencies_that_were_measured() {
        let mut read = histogram();
        let mut random = Random::new(1, 0);
        for _ in 0..20_000 {
            let fast = random.unit() < 0.9;
            read.saturating_record(((if fast { 8e4 } else { 9e5 }) * (1.0 + 0.2 * random.unit())) as u64);
        }
        read.saturating_record(3_000_000_000);
        let captured = Captured {
            name: "found".into(),
            source: "a test".into(),
            write: Some(read.clone()),
            flush: None,
            read_iops: Rate(15_000.4),
            write_iops: Some(Rate(9_000.0)),
            mixed_iops: Some(Rate(14_000.0)),
            read_bandwidth: Bytes::mib(500),
            write_bandwidth: Some(Bytes::mib(300)),
            read,
        };
        let profile = captured.profile().unwrap();
        assert!(profile.spec.check().is_ok(), "{}", profile.spec);
        let back: Spec = profile.spec.to_string().parse().unwrap();
        assert_eq!(back, profile.spec);
        let mean = profile.spec.latency.as_secs_f64();
        let wanted = 0.9 * 88e-6 + 0.1 * 990e-6;
        assert!((mean / wanted - 1.0).abs() < 0.05, "{mean}, not {wanted}: the stall of 3 s is left out");
        assert_eq!((profile.spec.read_iops, profile.spec.iops), (Some(Rate(15_000.0)), Some(Rate(15_000.0))));
        let slower = Captured { read_iops: Rate(7500.2), ..captured.clone() };
        let rows = captured.beside(&slower);
        let found = rows.iter().find(|row| row.what == "most small reads").unwrap();
        assert!((found.ratio - 0.5).abs() < 1e-9 && (found.factor() - 2.0).abs() < 1e-9, "{found:?}");
        assert!(rows.iter().all(|row| row.factor() >= 1.0 && row.what != "flush, mean"), "{rows:?}");
        let file = profile.to_toml();
        assert_eq!(Profile::of_toml(&file).unwrap(), profile);
    }

    #[test]
    fn nothing_measured_is_no_disk() {
        assert!(steps(&histogram()).is_none());
    }
}
