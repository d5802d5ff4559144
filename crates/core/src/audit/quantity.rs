//! What a column holds: a quantity, and the unit it was printed in.

use std::fmt;

/// What kind of unit a quantity has; its base unit is in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// A span (s).
    Time,
    /// Things per second (1/s).
    Rate,
    /// Bytes (B).
    Size,
    /// Bytes per second (B/s).
    Bandwidth,
    /// A pure number: counts and shares, 1 being the whole.
    Number,
}

/// What is known about one kind of number in someone's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Sessions that have one operation each in flight, without think time.
    Clients,
    /// Sessions of which each has at most one operation in flight and may pause between two.
    Sessions,
    /// Requests per second that the device was provisioned for.
    Gate,
    /// Bytes per second that the device was provisioned for.
    BandwidthGate,
    /// Latency that the device adds to every request.
    AddedLatency,
    /// Operations per second that were asked for.
    OfferedRate,
    /// Processors.
    Processors,
    /// Main memory.
    Memory,
    /// Nodes of a cluster.
    Nodes,
    /// Shards of a cluster.
    Shards,
    /// Bytes of data under test.
    DataSize,
    /// Bytes that the cache can hold.
    CacheSize,
    /// Records under test.
    Records,
    /// Bytes of one record.
    ValueSize,
    /// Declared share of writes among the operations.
    WriteShare,
    /// Declared size of a request.
    DeclaredSize,
    /// Turns per second of a rotating medium.
    Rotation,
    /// Operations answered per second.
    Throughput,
    /// Mean residence of an operation.
    Mean,
    /// Shortest residence.
    Minimum,
    /// Longest residence.
    Maximum,
    /// A percentile of residence, in thousandths of a per cent: 99000 is p99.
    Percentile(u32),
    /// How many operations the statistics are made of.
    Samples,
    /// Length of the measurement.
    Duration,
    /// Requests per second that the program sent to the device.
    RequestRate,
    /// Reads per second at the device.
    ReadRate,
    /// Writes per second at the device.
    WriteRate,
    /// Requests per second at the device.
    DeviceRate,
    /// Mean size of a request at the device.
    RequestSize,
    /// Bytes read per second.
    ReadBandwidth,
    /// Bytes written per second.
    WriteBandwidth,
    /// Bytes moved per second.
    Bandwidth,
    /// Mean number of requests waiting or in service.
    Queue,
    /// Mean time from a request's arrival at the queue to its end.
    Await,
    /// iostat's svctm.
    ServiceTime,
    /// Share of the time in which the device had something to do.
    Utilization,
    /// Share of the look-ups that the cache answered.
    HitRatio,
}

use Dimension::{Bandwidth, Number, Rate, Size, Time};

/// Name in mappings, dimension, whether it is a condition (set by whoever measured) or was measured.
const TABLE: &[(Quantity, &str, Dimension, bool)] = &[
    (Quantity::Clients, "clients", Number, true),
    (Quantity::Sessions, "sessions", Number, true),
    (Quantity::Gate, "gate", Rate, true),
    (Quantity::BandwidthGate, "bandwidth_gate", Bandwidth, true),
    (Quantity::AddedLatency, "added_latency", Time, true),
    (Quantity::OfferedRate, "offered_rate", Rate, true),
    (Quantity::Processors, "processors", Number, true),
    (Quantity::Memory, "memory", Size, true),
    (Quantity::Nodes, "nodes", Number, true),
    (Quantity::Shards, "shards", Number, true),
    (Quantity::DataSize, "data_size", Size, true),
    (Quantity::CacheSize, "cache_size", Size, true),
    (Quantity::Records, "records", Number, true),
    (Quantity::ValueSize, "value_size", Size, true),
    (Quantity::WriteShare, "write_share", Number, true),
    (Quantity::DeclaredSize, "declared_size", Size, true),
    (Quantity::Rotation, "rotation", Rate, true),
    (Quantity::Throughput, "throughput", Rate, false),
    (Quantity::Mean, "mean", Time, false),
    (Quantity::Minimum, "min", Time, false),
    (Quantity::Maximum, "max", Time, false),
    (Quantity::Samples, "samples", Number, false),
    (Quantity::Duration, "duration", Time, false),
    (Quantity::RequestRate, "request_rate", Rate, false),
    (Quantity::ReadRate, "read_rate", Rate, false),
    (Quantity::WriteRate, "write_rate", Rate, false),
    (Quantity::DeviceRate, "device_rate", Rate, false),
    (Quantity::RequestSize, "request_size", Size, false),
    (Quantity::ReadBandwidth, "read_bandwidth", Bandwidth, false),
    (Quantity::WriteBandwidth, "write_bandwidth", Bandwidth, false),
    (Quantity::Bandwidth, "bandwidth", Bandwidth, false),
    (Quantity::Queue, "queue", Number, false),
    (Quantity::Await, "await", Time, false),
    (Quantity::ServiceTime, "service_time", Time, false),
    (Quantity::Utilization, "utilization", Number, false),
    (Quantity::HitRatio, "hit_ratio", Number, false),
];

impl Quantity {
    /// Its name in mappings and findings; `p99`, `p99.9` for percentiles.
    pub fn name(self) -> String {
        match self {
            Quantity::Percentile(p) => format!("p{}", f64::from(p) / 1000.0),
            other => TABLE.iter().find(|(q, ..)| *q == other).map_or("", |(_, name, ..)| name).to_string(),
        }
    }

    /// Reads a name; `None` if nobody knows it.
    pub fn parse(name: &str) -> Option<Quantity> {
        if let Some(percent) = name.strip_prefix('p').and_then(|digits| digits.parse::<f64>().ok()) {
            let inside = percent > 0.0 && percent < 100.0;
            return inside.then(|| Quantity::Percentile((percent * 1000.0).round() as u32));
        }
        TABLE.iter().find(|(_, known, ..)| *known == name).map(|(quantity, ..)| *quantity)
    }

    /// All names that are not percentiles.
    pub fn names() -> Vec<&'static str> {
        TABLE.iter().map(|(_, name, ..)| *name).collect()
    }

    /// The kind of its unit.
    pub fn dimension(self) -> Dimension {
        match self {
            Quantity::Percentile(_) => Time,
            other => TABLE.iter().find(|(q, ..)| *q == other).map_or(Number, |(_, _, d, _)| *d),
        }
    }

    /// Whether it was set by whoever measured, and so is exact, and tells rows apart.
    pub fn is_condition(self) -> bool {
        TABLE.iter().any(|(q, _, _, condition)| *q == self && *condition)
    }

    /// A percentile as a share: 0.99.
    pub fn share(self) -> Option<f64> {
        match self {
            Quantity::Percentile(p) => Some(f64::from(p) / 100_000.0),
            _ => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().replace('_', " "))
    }
}

/// Units by dimension, with their size in the base unit. "KB" is 1000 here; where a program means 1024 by it,
/// the law tells, and says so.
const UNITS: &[(Dimension, &str, f64)] = &[
    (Time, "ns", 1e-9),
    (Time, "us", 1e-6),
    (Time, "µs", 1e-6),
    (Time, "ms", 1e-3),
    (Time, "s", 1.0),
    (Time, "min", 60.0),
    (Rate, "/s", 1.0),
    (Rate, "k/s", 1e3),
    (Rate, "rpm", 1.0 / 60.0),
    (Size, "B", 1.0),
    (Size, "sectors", 512.0),
    (Size, "kB", 1e3),
    (Size, "KB", 1e3),
    (Size, "MB", 1e6),
    (Size, "GB", 1e9),
    (Size, "KiB", 1024.0),
    (Size, "MiB", 1_048_576.0),
    (Size, "GiB", 1_073_741_824.0),
    (Bandwidth, "B/s", 1.0),
    (Bandwidth, "kB/s", 1e3),
    (Bandwidth, "MB/s", 1e6),
    (Bandwidth, "KiB/s", 1024.0),
    (Bandwidth, "MiB/s", 1_048_576.0),
    (Bandwidth, "Mbit/s", 125_000.0),
    (Number, "1", 1.0),
    (Number, "", 1.0),
    (Number, "%", 0.01),
    (Number, "k", 1e3),
    (Number, "M", 1e6),
];

/// How many base units one `unit` of `quantity` is.
///
/// # Errors
/// Names the units that would do.
pub fn unit(quantity: Quantity, unit: &str) -> Result<f64, String> {
    let dimension = quantity.dimension();
    UNITS.iter().find(|(d, name, _)| *d == dimension && *name == unit).map(|(.., size)| *size).ok_or_else(
        || {
            let known: Vec<&str> = UNITS
                .iter()
                .filter(|(d, name, _)| *d == dimension && !name.is_empty())
                .map(|(_, n, _)| *n)
                .collect();
            format!("{quantity} cannot be in {unit:?}: units are {}", known.join(", "))
        },
    )
}

/// A value in the base unit, printed in a unit that people read.
pub fn printed(quantity: Quantity, base: f64) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let (size, name) =
            steps.iter().find(|(s, _)| base.abs() >= *s).or(steps.last()).copied().unwrap_or((1.0, ""));
        format!("{} {name}", significant(base / size)).trim_end().to_string()
    };
    match quantity.dimension() {
        Time => scaled(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]),
        Rate => format!("{} /s", significant(base)),
        Size => scaled(&[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")]),
        Bandwidth => scaled(&[(1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]),
        Number if matches!(quantity, Quantity::HitRatio | Quantity::Utilization | Quantity::WriteShare) => {
            format!("{} %", significant(base * 100.0))
        }
        Number => significant(base),
    }
}

/// Four significant digits, and no point after a whole number that has more.
pub fn significant(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    let places = (3 - x.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{x:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_units_read_back() {
        for name in Quantity::names() {
            assert_eq!(Quantity::parse(name).map(Quantity::name).as_deref(), Some(name));
        }
        assert_eq!(Quantity::parse("p99.9"), Some(Quantity::Percentile(99_900)));
        assert_eq!(Quantity::Percentile(99_900).name(), "p99.9");
        assert!(Quantity::parse("p0").is_none() && Quantity::parse("pace").is_none());
        assert_eq!(unit(Quantity::Mean, "ms"), Ok(1e-3));
        assert!(unit(Quantity::Mean, "MB").is_err_and(|e| e.contains("ms")));
        assert_eq!(printed(Quantity::Mean, 0.047), "47 ms");
        assert_eq!(printed(Quantity::Queue, 33.84), "33.84");
    }
}
