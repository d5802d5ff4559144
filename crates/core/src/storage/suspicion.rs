//! What should make a reader doubt a measurement of a disk: loads that never reached it, caches that answer
//! for it, flushes faster than its medium can be, and latencies of two kinds under one mean.

use super::{Measured, Moved};
use crate::measure::Histogram;
use crate::op::OpKind;
use crate::units::{Bytes, Ratio, span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is known about what is under a path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Medium {
    /// It is memory: tmpfs or ramfs.
    pub memory: bool,
    /// It spins (`queue/rotational`); `None` where nobody says.
    pub rotational: Option<bool>,
    /// It says that it has a volatile write cache (`queue/write_cache` is "write back"); otherwise the kernel
    /// sends it no flushes at all.
    pub volatile_cache: Option<bool>,
    /// The flush latency that a shaped disk was given.
    #[serde(default, rename = "flush_latency_ns")]
    pub shaped_flush_ns: Option<u64>,
    /// Requests went past the page cache.
    pub direct: bool,
    /// Bytes of the data that was used.
    #[serde(rename = "data_bytes")]
    pub data: Bytes,
    /// Bytes of memory that the page cache may take.
    #[serde(rename = "memory_bytes")]
    pub memory_size: Bytes,
}

/// Something that should make one doubt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspicion {
    /// A word for programs: "writes-not-at-device".
    pub id: String,
    /// It makes the figures useless as figures of the disk.
    pub serious: bool,
    /// What is the matter and what to do.
    pub text: String,
}

fn suspicion(id: &str, serious: bool, text: String) -> Suspicion {
    Suspicion { id: id.into(), serious, text }
}

/// Of 100 bytes that were asked for, fewer than this at the device mean that something else answered.
const REACHED: f64 = 0.5;

/// All that is suspicious about a measurement.
pub fn suspicions(measured: &Measured, medium: &Medium) -> Vec<Suspicion> {
    let mut found = Vec::new();
    if medium.memory {
        let text = "this path is memory (tmpfs): what was measured is no disk; name a folder on the disk";
        found.push(suspicion("memory", true, text.into()));
    } else {
        found.extend(not_at_the_device(measured, medium));
    }
    found.extend(flush_speed(measured, medium).into_iter().filter_map(|flushing| flushing.suspicion()));
    for (kind, name) in [(OpKind::ReadAt, "reads"), (OpKind::WriteAt, "writes"), (OpKind::Flush, "flushes")] {
        let found_modes = measured.latencies(kind).map(|histogram| modes(&histogram)).unwrap_or_default();
        if let [first, .., last] = found_modes.as_slice() {
            let say = |mode: &Mode| format!("{} around {}", mode.share.rounded(), span::rounded(mode.at));
            let text = format!(
                "{name} are of {} kinds: {}, {}; a mean says nothing about either",
                found_modes.len(),
                say(first),
                say(last)
            );
            found.push(suspicion("bimodal", false, text));
        }
    }
    found
}

fn not_at_the_device(measured: &Measured, medium: &Medium) -> Vec<Suspicion> {
    let mut found = Vec::new();
    let asked: Moved = measured.moved;
    let (reads, writes) = measured.amplification();
    // A handful of requests proves nothing either way.
    let enough = |bytes: Bytes| bytes.0 >= 16 * 4096;
    if let Some(share) = writes.filter(|share| *share < REACHED && enough(asked.written)) {
        let text = format!(
            "only {} of the bytes written reached the device in the window: the others are in a cache and not on \
             the disk; use direct I/O, or flush (--fdatasync), or measure for longer than 30 s",
            Ratio(share).rounded()
        );
        found.push(suspicion("writes-not-at-device", true, text));
    }
    if let Some(share) = reads.filter(|share| *share < REACHED && enough(asked.read)) {
        let text = format!(
            "only {} of the bytes read came from the device: the page cache answered the others; use direct I/O, or \
             more data than memory",
            Ratio(share).rounded()
        );
        found.push(suspicion("reads-not-at-device", true, text));
    }
    if !medium.direct && medium.data <= medium.memory_size && reads.is_none() && enough(asked.read) {
        let text = format!(
            "the data set of {} fits into memory ({}) and nobody counts at the device: reads may all come from \
             the page cache",
            medium.data.rounded(),
            medium.memory_size.rounded()
        );
        found.push(suspicion("fits-into-memory", true, text));
    }
    found
}

/// How fast flushes were, against what the medium can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flushing {
    /// Median of the flushes.
    #[serde(with = "span", rename = "median_ns")]
    pub median: Duration,
    /// What the medium needs at least.
    #[serde(with = "span", rename = "least_ns")]
    pub least: Duration,
    /// Why it needs that.
    pub because: String,
}

impl Flushing {
    /// Whether it is faster than the medium can be.
    pub fn too_fast(&self) -> bool {
        self.median < self.least
    }

    fn suspicion(&self) -> Option<Suspicion> {
        self.too_fast().then(|| {
            let text = format!(
                "half of the flushes took less than {}, and {}: a cache with a battery or capacitors behind it, or a \
                 cache that lies; only a power cut tells them apart (`tipover disk power-cut` shows what is lost)",
                span::rounded(self.median),
                self.because
            );
            suspicion("flush-too-fast", false, text)
        })
    }
}

/// Half a rotation of the fastest disks, 15,000 a minute: what is written must pass under the head.
const HALF_ROTATION: Duration = Duration::from_millis(2);
/// Programming a flash page takes 200 µs (SLC) to 3 ms (QLC): a flush that had to do that cannot take less.
const PROGRAM_PAGE: Duration = Duration::from_micros(100);

/// Judges flushes after writes; `None` without at least ten of them.
pub fn flush_speed(measured: &Measured, medium: &Medium) -> Option<Flushing> {
    let histogram = measured.latencies(OpKind::Flush).filter(|histogram| histogram.len() >= 10)?;
    let median = Duration::from_nanos(histogram.value_at_quantile(0.5));
    let (least, because) = match (medium.shaped_flush_ns, medium.rotational, medium.volatile_cache) {
        (Some(ns), ..) => {
            // Compensation may make a single flush a little faster than its spec.
            let least = Duration::from_nanos(ns / 2);
            (least, format!("this disk was shaped to flush in {}", span::rounded(Duration::from_nanos(ns))))
        }
        (None, Some(true), _) => (
            HALF_ROTATION,
            "a spinning disk needs half a rotation, 2 ms or more, to put it on the medium".into(),
        ),
        (None, Some(false), Some(false)) => (
            PROGRAM_PAGE,
            "the device says that it has no volatile cache, so the kernel sends it no flushes at all".into(),
        ),
        (None, Some(false), _) => (PROGRAM_PAGE, "flash needs 100 us or more to program a page".into()),
        (None, None, _) => return None,
    };
    Some(Flushing { median, least, because })
}

/// Latencies that gather around one value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Where it is highest.
    #[serde(with = "span", rename = "at_ns")]
    pub at: Duration,
    /// Share of all latencies on this side of the valley.
    pub share: Ratio,
}

/// Buckets of a quarter octave: noise of neighbours is smoothed away, what is twice as slow is not.
const PER_OCTAVE: f64 = 4.0;
/// A mode has at least this share of all,
const LEAST_SHARE: f64 = 0.05;
/// and is at least this many times as high as the valley beside it.
const ABOVE_VALLEY: f64 = 4.0;
/// Fewer latencies than this have the shape that chance gives them.
const LEAST_SAMPLES: u64 = 200;

/// The modes of a histogram, fast ones first; one for most. Peaks of the density over the logarithm of time
/// count as apart when a valley of a quarter of the lower one lies between them.
pub fn modes(histogram: &Histogram) -> Vec<Mode> {
    if histogram.len() < LEAST_SAMPLES {
        return vec![];
    }
    let bucket = |ns: u64| ((ns.max(1) as f64).log2() * PER_OCTAVE) as usize;
    let mut counts = vec![0u64; bucket(histogram.max()) + 2];
    for value in histogram.iter_recorded() {
        counts[bucket(value.value_iterated_to())] += value.count_at_value();
    }
    let mut found = Vec::new();
    split(&counts, 0, histogram.len(), &mut found);
    found
}

/// Splits where the deepest valley is, as long as both sides are modes.
fn split(counts: &[u64], first: usize, all: u64, found: &mut Vec<Mode>) {
    let share = |part: &[u64]| part.iter().sum::<u64>() as f64 / all as f64;
    let peak = |part: &[u64]| part.iter().copied().max().unwrap_or(0) as f64;
    let valley = (1..counts.len().saturating_sub(1))
        .filter(|&at| {
            let (left, right) = counts.split_at(at);
            let floor = (counts[at] as f64).max(0.5) * ABOVE_VALLEY;
            share(left) >= LEAST_SHARE
                && share(&right[1..]) >= LEAST_SHARE
                && peak(left) >= floor
                && peak(&right[1..]) >= floor
        })
        .min_by_key(|&at| counts[at]);
    match valley {
        Some(at) => {
            split(&counts[..at], first, all, found);
            split(&counts[at..], first + at, all, found);
        }
        None => {
            let highest = (0..counts.len()).max_by_key(|&at| counts[at]).unwrap_or(0);
            let at = Duration::from_nanos((((first + highest) as f64 + 0.5) / PER_OCTAVE).exp2() as u64);
            found.push(Mode { at, share: Ratio(share(counts)) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::measured;
    use super::super::{DeviceCounts, EngineKind};
    use super::*;
    use crate::device::{Counters, Totals};
    use crate::measure::histogram;
    use crate::workload::Random;

    fn ids(measured: &Measured, medium: &Medium) -> Vec<String> {
        suspicions(measured, medium).into_iter().map(|suspicion| suspicion.id).collect()
    }

    fn with_device(mut measured: Measured, read: u64, written: u64) -> Measured {
        let totals =
            |bytes| Totals { requests: bytes / 4096, bytes: Bytes(bytes), residence: Duration::ZERO };
        let after = Counters { read: totals(read), write: totals(written), ..Counters::default() };
        measured.device = Some(DeviceCounts { source: "a test".into(), before: Counters::default(), after });
        assert_eq!(measured.load.engine, EngineKind::Psync);
        measured
    }

    #[test]
    fn loads_that_never_reach_the_device_are_noticed() {
        let asked = measured(&[1000; 100], &[1000; 100], &[]);
        let medium = Medium { direct: false, ..Medium::default() };
        let none = with_device(asked.clone(), 0, 0);
        assert_eq!(ids(&none, &medium), ["writes-not-at-device", "reads-not-at-device"]);
        let all = with_device(asked.clone(), 409_600, 409_600);
        assert_eq!(ids(&all, &medium), Vec::<String>::new());
        let small = Medium { data: Bytes::mib(1), memory_size: Bytes::gib(1), ..medium };
        assert_eq!(ids(&asked, &small), ["fits-into-memory"]);
        assert_eq!(ids(&asked, &Medium { memory: true, ..small }), ["memory"]);
    }

    #[test]
    fn flushes_faster_than_the_medium_are_noticed() {
        let fast = measured(&[], &[100_000; 20], &[30_000; 20]);
        let slow = measured(&[], &[100_000; 20], &[9_000_000; 20]);
        let disk = |rotational| Medium {
            rotational: Some(rotational),
            volatile_cache: Some(true),
            direct: true,
            ..Medium::default()
        };
        assert_eq!(ids(&fast, &disk(true)), ["flush-too-fast"]);
        assert_eq!(ids(&fast, &disk(false)), ["flush-too-fast"]);
        assert!(ids(&slow, &disk(true)).is_empty() && ids(&slow, &disk(false)).is_empty());
        let shaped = Medium { shaped_flush_ns: Some(10_000_000), ..disk(false) };
        assert!(ids(&slow, &shaped).is_empty());
        assert_eq!(ids(&fast, &shaped), ["flush-too-fast"], "a shaped disk whose syncs lie");
        assert!(ids(&fast, &Medium { direct: true, ..Medium::default() }).is_empty(), "nothing is known");
    }

    #[test]
    fn two_kinds_of_latency_are_told_from_one() {
        let (mut one, mut two) = (0, 0);
        for seed in 0..50 {
            let mut random = Random::new(seed, 0);
            let (mut exponential, mut mixed) = (histogram(), histogram());
            for _ in 0..2_000 {
                exponential.saturating_record(random.exponential(1e6) as u64);
                let centre = if random.unit() < 0.8 { 1e5 } else { 8e6 };
                mixed.saturating_record((centre * (0.8 + 0.4 * random.unit())) as u64);
            }
            one += usize::from(modes(&exponential).len() == 1);
            let found = modes(&mixed);
            two += usize::from(found.len() == 2);
            if let [fast, slow] = found.as_slice() {
                assert!((fast.share.0 - 0.8).abs() < 0.05, "{found:?}");
                assert!((slow.at.as_secs_f64() / 8e-3).ln().abs() < 0.3, "{found:?}");
            }
        }
        assert_eq!(two, 50);
        assert!(one >= 48, "{one} of 50 exponential distributions have one mode");
    }

    #[test]
    fn few_samples_have_no_shape() {
        let mut few = histogram();
        few.saturating_record(1);
        few.saturating_record(1_000_000);
        assert!(modes(&few).is_empty());
    }
}
