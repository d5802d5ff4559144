//! Probes read raw counters and gauges while a trial runs; rates are made of them later, by pure functions.
//!
//! A source that this machine lacks is a [`NotAvailable`] with its reason, never a silent hole in the record.

mod canary;
mod cgroup;
mod device;
mod network;
mod node;
mod pressure;
mod process;
mod system;

pub use canary::canary;
pub use cgroup::GroupUse;
pub use device::Device;
pub use network::Network;
pub use node::NodeProbe;
pub use pressure::Pressure;
pub use process::Processes;
pub use system::{System, steal_share};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;

/// Something that reads values in the background of a trial.
pub trait Probe {
    /// What it reads. Every sample has at most these values, and lacks one only when its source vanished.
    fn metrics(&self) -> Vec<Metric>;

    /// Reads once. `now` is the trial clock, asked just before and just after reading.
    ///
    /// # Errors
    /// The source is gone or says something that is not understood.
    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample>;

    /// Metrics of this kind of probe that cannot be had here, with the reasons.
    fn missing(&self) -> Vec<NotAvailable> {
        Vec::new()
    }
}

/// A source that cannot be read here, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what} not available: {reason}")]
pub struct NotAvailable {
    /// The metric, file or device.
    pub what: String,
    /// The reason in words.
    pub reason: String,
}

impl NotAvailable {
    fn new(what: impl Into<String>, reason: impl ToString) -> NotAvailable {
        NotAvailable { what: what.into(), reason: reason.to_string() }
    }
}

/// Name, kind and help of a metric, as the tables in the probes have them.
type Entry = (&'static str, Kind, &'static str);

type Values = BTreeMap<String, f64>;

fn metric((name, kind, help): &Entry) -> Metric {
    Metric { name: name.to_string(), kind: *kind, help: help.to_string() }
}

/// Reads between two looks at the clock.
fn acquire(now: &dyn Fn() -> Tick, read: impl FnOnce() -> anyhow::Result<Values>) -> anyhow::Result<Sample> {
    let begin = now();
    let values = read()?;
    Ok(Sample { begin, end: now(), values })
}

/// Reads a file once to see whether it can be read at all.
fn readable(path: &std::path::Path) -> Result<String, NotAvailable> {
    std::fs::read_to_string(path).map_err(|error| NotAvailable::new(path.display().to_string(), error))
}

/// Nanoseconds per tick of the kernel's accounting clock (`USER_HZ`), 10 ms on nearly all machines.
fn tick_ns() -> f64 {
    1e9 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod contract {
    //! What every probe must keep to.
    use super::*;
    use std::cell::Cell;

    /// Samples twice and checks names, windows, and that counters only grow. Gives both samples back.
    pub fn keeps(probe: &mut dyn Probe, work: impl FnOnce()) -> (Sample, Sample) {
        let ticks = Cell::new(0);
        let now = || {
            ticks.set(ticks.get() + 1);
            Tick(ticks.get())
        };
        let metrics = probe.metrics();
        assert!(!metrics.is_empty());
        for metric in &metrics {
            assert!(metric.help.len() > 20, "{} is not explained", metric.name);
            let plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
            assert!(metric.name.chars().all(plain), "{}", metric.name);
        }
        let first = probe.sample(&now).unwrap();
        work();
        let second = probe.sample(&now).unwrap();
        assert!(first.begin < first.end && first.end < second.begin && second.begin < second.end);
        for sample in [&first, &second] {
            let said: Vec<&String> = metrics.iter().map(|metric| &metric.name).collect();
            assert!(sample.values.keys().all(|name| said.contains(&name)), "a value without a description");
            assert_eq!(sample.values.len(), metrics.len(), "a described value is missing");
        }
        for metric in metrics.iter().filter(|metric| metric.kind == Kind::Counter) {
            assert!(second.growth(&first, &metric.name).unwrap() >= 0.0, "{} went backwards", metric.name);
        }
        (first, second)
    }
}
