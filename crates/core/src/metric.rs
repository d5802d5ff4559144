//! What a probe reads: raw counters and gauges, each with the window in which it was acquired. Rates come later.

use crate::units::Tick;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a metric only grows (rates are differences) or holds a level (rates make no sense).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Grows from an arbitrary start; only differences mean something.
    Counter,
    /// A level at a moment.
    Gauge,
}

/// The name, unit and kind of a quantity that some probe can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Most significant word first, unit last: `device_read_bytes`, `cgroup_page_cache_bytes`.
    pub name: String,
    /// Counter or gauge.
    pub kind: Kind,
    /// What it counts and who counted it, in a sentence a sceptic would accept.
    pub help: String,
}

/// All values that one probe read in one go.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When reading began; the values are from somewhere between `begin` and `end`.
    pub begin: Tick,
    /// When reading ended.
    pub end: Tick,
    /// Values by metric name.
    pub values: BTreeMap<String, f64>,
}

impl Sample {
    /// The value of `name`, if this sample has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }
    /// How much counter `name` grew since `earlier`; `None` if either lacks it.
    pub fn growth(&self, earlier: &Sample, name: &str) -> Option<f64> {
        Some(self.get(name)? - earlier.get(name)?)
    }
}
