//! What a trial leaves behind: raw facts. Every figure and picture is a pure function of records.

use crate::device;
use crate::experiment::Spec;
use crate::measure::{LatencyText, Witnesses};
use crate::metric::{Sample, name as metric, probe};
use crate::op::Failure;
use crate::target::Facts;
use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Changes when an old record can no longer be read as a new one.
pub const FORMAT: u32 = 1;

/// One trial, finished or failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this format.
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The sweep that the cell belongs to.
    pub sweep: String,
    /// The cell's name: slug and hash of its spec.
    pub cell: String,
    /// Axis names and labels of the cell.
    pub labels: Vec<(String, String)>,
    /// Which repetition, counted from 0.
    pub repeat: u32,
    /// Seed of the operations.
    pub seed: u64,
    /// The complete settings.
    pub spec: Spec,
    /// Who made it, with what.
    pub provenance: Provenance,
    /// Whether the trial can be believed.
    pub verdict: Verdict,
    /// What was found about the machine.
    pub machine: serde_json::Value,
    /// Requirements of the machine that were missed, as sentences.
    pub missed: Vec<String>,
    /// What was read back from the target.
    pub target: Facts,
    /// What was read back from the disk: mode, configured and calibrated device.
    pub disk: Facts,
    /// The phases in their order, each with the evidence for its end.
    pub phases: Vec<Phase>,
    /// What was measured; absent when the trial failed before.
    pub measured: Option<Measured>,
}

/// Who made a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command line.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Commit that it was built from, if it was built from a repository.
    pub commit: String,
    /// Seconds since 1970 at the trial's start.
    pub started_unix_s: u64,
}

/// Whether a trial can be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it.
    Valid,
    /// It was measured, but these things speak against it.
    Invalid {
        /// Sentences.
        reasons: Vec<String>,
    },
    /// The laboratory could not carry it out.
    Failed {
        /// A sentence.
        reason: String,
    },
}

/// A part of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// load, warm-up, settle, measure.
    pub name: String,
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// Why it ended when it did.
    pub evidence: String,
}

/// The measured phase: raw counters at both ends and the merged histogram.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// Operations answered as done.
    pub operations: u64,
    /// Operations refused or unknown, by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// Latencies of the operations that were answered, all sessions merged.
    pub latency: LatencyText,
    /// Probe values at the beginning, by probe.
    pub first: BTreeMap<String, Sample>,
    /// Probe values at the end, by probe.
    pub last: BTreeMap<String, Sample>,
    /// The shaped disk's own counters at both ends, on the trial clock; absent when the target does not live
    /// on one.
    pub disk: Option<(device::Counters, device::Counters)>,
    /// Where the processor time went.
    pub cpu: Cpu,
}

/// Processor time of the measured phase, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// The process that holds the generator and, if it is embedded, the engine.
    pub process_ns: u64,
    /// Of that, the threads that run sessions.
    pub sessions_ns: u64,
    /// Of that, the generator's own work: operations × its cost per operation, measured on the null target.
    pub generator_ns: u64,
    /// Of that, the request path that was burnt on purpose.
    pub request_path_ns: u64,
    /// The shaped disk's daemon.
    pub disk_ns: u64,
}

impl Cpu {
    /// What is left for the engine, its background threads included.
    pub fn engine_ns(&self) -> u64 {
        self.process_ns.saturating_sub(self.generator_ns + self.request_path_ns)
    }
}

/// One interval of the time series, a line of `series.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The phase that it belongs to.
    pub phase: String,
    /// On the trial clock.
    pub begin: Tick,
    /// On the trial clock.
    pub end: Tick,
    /// Operations answered as done.
    pub operations: u64,
    /// Operations refused or unknown, by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// Latencies of this interval.
    pub latency: LatencyText,
    /// Probe values at its end, by probe.
    pub samples: BTreeMap<String, Sample>,
    /// The shaped disk's own counters at its end.
    pub disk: Option<device::Counters>,
}

impl Record {
    /// Label of `axis`.
    pub fn label(&self, axis: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == axis).map(|(_, label)| label.as_str())
    }

    /// Whether its figures may be used.
    pub fn is_valid(&self) -> bool {
        self.verdict == Verdict::Valid && self.measured.is_some()
    }
}

impl Measured {
    /// Length of the phase in seconds.
    pub fn seconds(&self) -> f64 {
        self.end.since(self.begin).as_secs_f64()
    }

    /// Operations per second.
    pub fn throughput(&self) -> f64 {
        self.operations as f64 / self.seconds()
    }

    /// Growth of a counter of a probe over the phase.
    pub fn growth(&self, probe: &str, metric: &str) -> Option<f64> {
        self.last.get(probe)?.growth(self.first.get(probe)?, metric)
    }

    /// iostat's columns for the phase, from the disk's own counters.
    pub fn disk_rates(&self) -> Option<device::Rates> {
        let (first, last) = self.disk.as_ref()?;
        last.rates_since(first)
    }

    /// Who saw how many bytes being read, for the budget; `None` for a target that counts none.
    pub fn witnesses(&self) -> Option<Witnesses> {
        let grown = |probe: &str, metric: &str| self.growth(probe, metric);
        let (first, last) = self.disk.as_ref()?;
        Some(Witnesses {
            engine_read_bytes: grown(probe::TARGET, metric::ENGINE_FILE_READ_BYTES)?,
            process_asked_bytes: grown(probe::PROCESS, metric::PROCESS_ASKED_READ_BYTES),
            // Above FUSE the kernel books nothing as fetched from storage; a zero there is no witness.
            process_device_bytes: grown(probe::DEVICE, metric::DEVICE_READ_BYTES)
                .and_then(|_| grown(probe::PROCESS, metric::PROCESS_DEVICE_READ_BYTES)),
            block_device_bytes: grown(probe::DEVICE, metric::DEVICE_READ_BYTES),
            disk_bytes: (last.read.bytes.0 - first.read.bytes.0) as f64,
            skew_bytes: self.skew_s() / self.seconds()
                * grown(probe::TARGET, metric::ENGINE_FILE_READ_BYTES)?,
        })
    }

    /// Seconds between the first and the last of the budget's witnesses being read, at both ends added.
    fn skew_s(&self) -> f64 {
        let spread = |samples: &BTreeMap<String, Sample>, disk: Option<Tick>| {
            let of_budget = |(name, _): &(&String, &Sample)| {
                [probe::TARGET, probe::PROCESS, probe::DEVICE].contains(&name.as_str())
            };
            let read: Vec<&Sample> = samples.iter().filter(of_budget).map(|(_, sample)| sample).collect();
            let first = read.iter().map(|s| s.begin).chain(disk).min().unwrap_or_default();
            let last = read.iter().map(|s| s.end).chain(disk).max().unwrap_or_default();
            last.since(first).as_secs_f64()
        };
        let (first, last) = self.disk.as_ref().map_or((None, None), |(a, b)| (Some(a.at), Some(b.at)));
        spread(&self.first, first) + spread(&self.last, last)
    }

    /// Level of a gauge of a probe at the end of the phase.
    pub fn level(&self, probe: &str, metric: &str) -> Option<f64> {
        self.last.get(probe)?.get(metric)
    }
}
