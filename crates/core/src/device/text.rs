//! How a disk is written: one table of keys, for the compact form and for files.

use super::spec::impossible;
use super::{Array, Burst, BusyHours, Cache, Order, Spec, SpecError, Spindle, Spread};
use crate::nearest::did_you_mean;
use crate::units::{Bytes, ParseError, Rate, span};
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Every key, in the order in which they are printed.
pub(super) const KEYS: [&str; 31] = [
    "name",
    "iops",
    "read_iops",
    "write_iops",
    "request_unit",
    "burst_iops",
    "burst_credits",
    "burst_start",
    "bandwidth",
    "read_bandwidth",
    "write_bandwidth",
    "latency",
    "write_latency",
    "flush_latency",
    "parallel",
    "order",
    "depth",
    "spread",
    "cache",
    "cache_drain",
    "rpm",
    "seek_track",
    "seek_full",
    "track",
    "capacity",
    "disks",
    "chunk",
    "busy_times",
    "busy_from",
    "busy_until",
    "busy_period",
];
const UNLIMITED: &str = "unlimited";
const READS_FIRST: &str = "reads-first";

/// A value with the unit that it has in files.
enum Item {
    Text(String),
    Rate(Rate),
    PerSecond(Bytes),
    Size(Bytes),
    Span(Duration),
    Count(u64),
}

/// Finds the key among ours, or says which of ours it resembles.
fn known(key: &str) -> Result<&'static str, SpecError> {
    if let Some(found) = KEYS.iter().find(|k| **k == key) {
        return Ok(found);
    }
    Err(SpecError::Unknown { key: key.into(), hint: did_you_mean(key, KEYS) })
}

/// Keys that only together make something, while they are being read.
#[derive(Default)]
struct Parts {
    burst_iops: Option<Rate>,
    burst_credits: Option<u64>,
    burst_start: Option<u64>,
    cache: Option<Bytes>,
    cache_drain: Option<Bytes>,
    rpm: Option<u32>,
    seek_track: Option<Duration>,
    seek_full: Option<Duration>,
    track: Option<Bytes>,
    capacity: Option<Bytes>,
    disks: Option<NonZeroU32>,
    chunk: Option<Bytes>,
    busy_times: Option<NonZeroU32>,
    busy_from: Option<Duration>,
    busy_until: Option<Duration>,
    busy_period: Option<Duration>,
}

impl Parts {
    fn finish(self, spec: &mut Spec) -> Result<(), SpecError> {
        let needs = |key, needs| SpecError::Needs { key, needs };
        spec.burst = match (self.burst_iops, self.burst_credits) {
            (Some(iops), Some(credits)) => Some(Burst { iops, credits, start: self.burst_start }),
            (Some(_), None) => return Err(needs("burst_iops", "burst_credits")),
            (None, Some(_)) => return Err(needs("burst_credits", "burst_iops")),
            (None, None) if self.burst_start.is_some() => return Err(needs("burst_start", "burst_iops")),
            (None, None) => None,
        };
        spec.cache = match (self.cache, self.cache_drain) {
            (Some(size), Some(drain)) => Some(Cache { size, drain }),
            (Some(_), None) => return Err(needs("cache", "cache_drain")),
            (None, Some(_)) => return Err(needs("cache_drain", "cache")),
            (None, None) => None,
        };
        spec.spindle = match (self.rpm, self.seek_full, self.track) {
            (Some(rpm), Some(seek_full), Some(track)) => {
                let seek_track = self.seek_track.unwrap_or_default();
                Some(Spindle { rpm, seek_track, seek_full, track, capacity: self.capacity })
            }
            (Some(_), None, _) => return Err(needs("rpm", "seek_full")),
            (Some(_), _, None) => return Err(needs("rpm", "track")),
            (None, Some(_), _) => return Err(needs("seek_full", "rpm")),
            (None, _, Some(_)) => return Err(needs("track", "rpm")),
            (None, None, None) if self.seek_track.is_some() => return Err(needs("seek_track", "rpm")),
            (None, None, None) if self.capacity.is_some() => return Err(needs("capacity", "rpm")),
            (None, None, None) => None,
        };
        spec.array = match (self.disks, self.chunk) {
            (Some(disks), chunk) => Some(Array { disks, chunk: chunk.unwrap_or(Array::CHUNK) }),
            (None, Some(_)) => return Err(needs("chunk", "disks")),
            (None, None) => None,
        };
        spec.busy = match (self.busy_times, self.busy_from, self.busy_until) {
            (Some(times), Some(from), Some(until)) => {
                Some(BusyHours { times, from, until, period: self.busy_period.unwrap_or(BusyHours::DAY) })
            }
            (Some(_), None, _) => return Err(needs("busy_times", "busy_from")),
            (Some(_), _, None) => return Err(needs("busy_times", "busy_until")),
            (None, Some(_), _) => return Err(needs("busy_from", "busy_times")),
            (None, _, Some(_)) => return Err(needs("busy_until", "busy_times")),
            (None, None, None) if self.busy_period.is_some() => {
                return Err(needs("busy_period", "busy_times"));
            }
            (None, None, None) => None,
        };
        spec.check()
    }
}

fn bandwidth(text: &str) -> Result<Bytes, ParseError> {
    text.strip_suffix("/s").unwrap_or(text).parse()
}

/// Sets one key from text.
fn set(spec: &mut Spec, parts: &mut Parts, key: &'static str, text: &str) -> Result<(), SpecError> {
    let text = text.trim();
    let bad = |reason| SpecError::Value { key, reason };
    let time = |text: &str| span::parse(text).map_err(bad);
    let rate = |text: &str| text.parse::<Rate>().map_err(bad);
    let size = |text: &str| text.parse::<Bytes>().map_err(bad);
    let pipe = |text: &str| bandwidth(text).map_err(bad);
    let count = |text: &str| {
        text.replace('_', "").parse::<u64>().map_err(|_| impossible(key, text, "a whole number is needed"))
    };
    let at_least_one =
        |text: &str| text.parse().map_err(|_| impossible(key, text, "a whole number from 1 is needed"));
    match key {
        "name" => spec.name = Some(text.into()),
        "iops" => spec.iops = Some(rate(text)?),
        "read_iops" => spec.read_iops = Some(rate(text)?),
        "write_iops" => spec.write_iops = Some(rate(text)?),
        "request_unit" => spec.request_unit = Some(size(text)?),
        "burst_iops" => parts.burst_iops = Some(rate(text)?),
        "burst_credits" => parts.burst_credits = Some(count(text)?),
        "burst_start" => parts.burst_start = Some(count(text)?),
        "bandwidth" => spec.bandwidth = Some(pipe(text)?),
        "read_bandwidth" => spec.read_bandwidth = Some(pipe(text)?),
        "write_bandwidth" => spec.write_bandwidth = Some(pipe(text)?),
        "latency" => spec.latency = time(text)?,
        "write_latency" => spec.write_latency = Some(time(text)?),
        "flush_latency" => spec.flush_latency = time(text)?,
        "parallel" => spec.parallel = Some(at_least_one(text)?),
        "depth" => spec.depth = Some(at_least_one(text)?),
        "order" => {
            spec.order = match text {
                "fifo" => Order::Fifo,
                READS_FIRST => Order::ReadsFirst,
                other => return Err(impossible(key, other, "fifo and reads-first are possible")),
            }
        }
        "cache" => parts.cache = Some(size(text)?),
        "cache_drain" => parts.cache_drain = Some(pipe(text)?),
        "rpm" => {
            let rpm = u32::try_from(count(text)?);
            parts.rpm = Some(rpm.map_err(|_| impossible(key, text, "so fast no platter turns"))?);
        }
        "seek_track" => parts.seek_track = Some(time(text)?),
        "seek_full" => parts.seek_full = Some(time(text)?),
        "track" => parts.track = Some(size(text)?),
        "capacity" => parts.capacity = Some(size(text)?),
        "disks" => parts.disks = Some(at_least_one(text)?),
        "chunk" => parts.chunk = Some(size(text)?),
        "busy_times" => parts.busy_times = Some(at_least_one(text)?),
        "busy_from" => parts.busy_from = Some(time(text)?),
        "busy_until" => parts.busy_until = Some(time(text)?),
        "busy_period" => parts.busy_period = Some(time(text)?),
        _ => {
            spec.spread = match text {
                "constant" => Spread::Constant,
                "exponential" => Spread::Exponential,
                steps if steps.contains('/') => Spread::Measured(steps.parse().map_err(bad)?),
                share => Spread::Uniform(share.parse().map_err(bad)?),
            }
        }
    }
    Ok(())
}

/// What is set, in the order of [`KEYS`].
fn items(spec: &Spec) -> Vec<(&'static str, Item)> {
    let span = |span: Duration| (!span.is_zero()).then_some(Item::Span(span));
    let spread = match &spec.spread {
        Spread::Constant => None,
        Spread::Uniform(share) => Some(share.to_string()),
        Spread::Exponential => Some("exponential".into()),
        Spread::Measured(histogram) => Some(histogram.to_string()),
    };
    let (burst, cache, spindle) = (spec.burst, spec.cache, spec.spindle);
    let order = (spec.order == Order::ReadsFirst).then(|| Item::Text(READS_FIRST.into()));
    let values = [
        spec.name.clone().map(Item::Text),
        spec.iops.map(Item::Rate),
        spec.read_iops.map(Item::Rate),
        spec.write_iops.map(Item::Rate),
        spec.request_unit.map(Item::Size),
        burst.map(|b| Item::Rate(b.iops)),
        burst.map(|b| Item::Count(b.credits)),
        burst.and_then(|b| b.start).map(Item::Count),
        spec.bandwidth.map(Item::PerSecond),
        spec.read_bandwidth.map(Item::PerSecond),
        spec.write_bandwidth.map(Item::PerSecond),
        span(spec.latency),
        spec.write_latency.map(Item::Span),
        span(spec.flush_latency),
        spec.parallel.map(|n| Item::Count(n.get().into())),
        order,
        spec.depth.map(|n| Item::Count(n.get().into())),
        spread.map(Item::Text),
        cache.map(|c| Item::Size(c.size)),
        cache.map(|c| Item::PerSecond(c.drain)),
        spindle.map(|s| Item::Count(s.rpm.into())),
        spindle.and_then(|s| span(s.seek_track)),
        spindle.map(|s| Item::Span(s.seek_full)),
        spindle.map(|s| Item::Size(s.track)),
        spindle.and_then(|s| s.capacity).map(Item::Size),
        spec.array.map(|a| Item::Count(a.disks.get().into())),
        spec.array.map(|a| Item::Size(a.chunk)),
        spec.busy.map(|b| Item::Count(b.times.get().into())),
        spec.busy.map(|b| Item::Span(b.from)),
        spec.busy.map(|b| Item::Span(b.until)),
        spec.busy.map(|b| Item::Span(b.period)),
    ];
    KEYS.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?))).collect()
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |item: Item| match item {
            Item::Text(text) => text,
            Item::Rate(rate) => rate.0.to_string(),
            Item::PerSecond(bytes) => format!("{bytes}/s"),
            Item::Size(bytes) => bytes.to_string(),
            Item::Span(time) => span::print(time),
            Item::Count(count) => count.to_string(),
        };
        let part = |(key, item)| format!("{key}={}", text(item).replace(' ', ""));
        let parts: Vec<String> = items(self).into_iter().map(part).collect();
        f.write_str(&if parts.is_empty() { UNLIMITED.into() } else { parts.join(",") })
    }
}

impl Spec {
    /// The spec for people: a measured spread, which can have a hundred steps, by its ends only.
    pub fn brief(&self) -> String {
        let Spread::Measured(histogram) = &self.spread else { return self.to_string() };
        let most = histogram.steps.last().map_or(histogram.low, |(edge, _)| *edge);
        let (low, most) = (span::rounded(histogram.low), span::rounded(most));
        let plain = Spec { spread: Spread::Constant, ..self.clone() };
        format!("{plain}, spread as measured in {} steps from {low} to {most}", histogram.steps.len())
    }

    /// This disk with what the text says differently: keys that are not in it stay as they are.
    ///
    /// # Errors
    /// As parsing.
    pub fn with(&self, text: &str) -> Result<Spec, SpecError> {
        let mut parts = Parts {
            burst_iops: self.burst.map(|b| b.iops),
            burst_credits: self.burst.map(|b| b.credits),
            burst_start: self.burst.and_then(|b| b.start),
            cache: self.cache.map(|c| c.size),
            cache_drain: self.cache.map(|c| c.drain),
            rpm: self.spindle.map(|s| s.rpm),
            seek_track: self.spindle.map(|s| s.seek_track),
            seek_full: self.spindle.map(|s| s.seek_full),
            track: self.spindle.map(|s| s.track),
            capacity: self.spindle.and_then(|s| s.capacity),
            disks: self.array.map(|a| a.disks),
            chunk: self.array.map(|a| a.chunk),
            busy_times: self.busy.map(|b| b.times),
            busy_from: self.busy.map(|b| b.from),
            busy_until: self.busy.map(|b| b.until),
            busy_period: self.busy.map(|b| b.period),
        };
        let mut spec = self.clone();
        let mut seen = Vec::new();
        let text = text.trim();
        if text == UNLIMITED {
            return Ok(Spec::default());
        }
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| SpecError::NotAPair(part.into()))?;
            let key = known(key.trim())?;
            if seen.contains(&key) {
                return Err(SpecError::Twice(key));
            }
            seen.push(key);
            set(&mut spec, &mut parts, key, value)?;
        }
        parts.finish(&mut spec)?;
        Ok(spec)
    }
}

impl FromStr for Spec {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Spec::default().with(text)
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        for (key, item) in items(self) {
            match item {
                Item::Text(text) => map.serialize_entry(key, &text)?,
                Item::Rate(rate) => map.serialize_entry(key, &rate)?,
                Item::PerSecond(bytes) => map.serialize_entry(&format!("{key}_bytes_per_s"), &bytes)?,
                Item::Size(bytes) => map.serialize_entry(&format!("{key}_bytes"), &bytes)?,
                Item::Span(time) => {
                    map.serialize_entry(&format!("{key}_ns"), &(time.as_nanos() as u64))?;
                }
                Item::Count(count) => map.serialize_entry(key, &count)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Compact(String),
            Table(serde_json::Map<String, Value>),
        }
        let table = match Either::deserialize(d)? {
            Either::Compact(text) => return text.parse().map_err(D::Error::custom),
            Either::Table(table) => table,
        };
        let (mut spec, mut parts) = (Spec::default(), Parts::default());
        let mut seen = Vec::new();
        for (key, value) in table {
            // `latency_ns = 7000000` is `latency = "7000000 ns"`: one parser, and a bare `latency = 7` is
            // refused.
            let (plain, unit) = match &value {
                Value::Number(_) if key.ends_with("_ns") => (key.trim_end_matches("_ns"), " ns"),
                Value::Number(_) if key.ends_with("_per_s") => (key.trim_end_matches("_bytes_per_s"), ""),
                Value::Number(_) => (key.trim_end_matches("_bytes"), ""),
                _ => (key.as_str(), ""),
            };
            let known = known(plain).map_err(D::Error::custom)?;
            if seen.contains(&known) {
                return Err(D::Error::custom(SpecError::Twice(known)));
            }
            seen.push(known);
            let text = match value {
                Value::String(text) => text,
                Value::Number(number) => format!("{number}{unit}"),
                other => other.to_string(),
            };
            set(&mut spec, &mut parts, known, &text).map_err(D::Error::custom)?;
        }
        parts.finish(&mut spec).map_err(D::Error::custom)?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Kind, ServiceHistogram};
    use crate::units::Ratio;
    use proptest::option::of;
    use proptest::prelude::*;

    fn any_span() -> impl Strategy<Value = Duration> {
        (0u64..3_600_000_000_000).prop_map(Duration::from_nanos)
    }

    fn any_rate() -> impl Strategy<Value = Rate> {
        (0.001..1e9f64).prop_map(Rate)
    }

    fn any_size() -> impl Strategy<Value = Bytes> {
        (1u64..u64::MAX / 2).prop_map(Bytes)
    }

    fn any_spread() -> impl Strategy<Value = Spread> {
        let steps = prop::collection::vec((1u64..1_000_000_000, 1u64..1000), 1..5);
        let measured = (0u64..1_000_000, steps).prop_map(|(low, steps)| {
            let mut edge = low;
            let step = |(wide, weight)| {
                edge += wide;
                (Duration::from_nanos(edge), weight)
            };
            let steps = steps.into_iter().map(step).collect();
            Spread::Measured(ServiceHistogram { low: Duration::from_nanos(low), steps })
        });
        prop_oneof![
            Just(Spread::Constant),
            Just(Spread::Exponential),
            (0.0..=1.0f64).prop_map(|x| Spread::Uniform(Ratio(x))),
            measured,
        ]
    }

    fn any_spindle() -> impl Strategy<Value = Spindle> {
        (1u32..1_000_000, any_span(), any_span(), any_size(), of(any_size())).prop_map(
            |(rpm, a, b, track, capacity)| Spindle {
                rpm,
                seek_track: a.min(b),
                seek_full: a.max(b),
                track,
                capacity,
            },
        )
    }

    fn any_spec() -> impl Strategy<Value = Spec> {
        let name = of("[a-z0-9][a-z0-9_.+-]{0,10}");
        let rates = (of(any_rate()), of(any_rate()), of(any_rate()), of(any_size()));
        let burst = of((any_rate(), 1u64..1 << 40, of(0.0..=1.0f64)));
        let pipes = (of(any_size()), of(any_size()), of(any_size()));
        let times = (any_span(), of(any_span()), any_span());
        let line = (of(1u32..100_000), any::<bool>(), of(1u32..100_000), any_spread());
        let cache = of((any_size(), any_size()).prop_map(|(size, drain)| Cache { size, drain }));
        let array = of((1u32..=256, any_size())).prop_map(|array| {
            let (disks, chunk) = array?;
            Some(Array { disks: NonZeroU32::new(disks)?, chunk })
        });
        let busy = of((1u32..=10_000, 1_000_000u64..86_400_000_000_000, 0.0..1.0f64, 0.0..1.0f64));
        let busy = busy.prop_map(|busy| {
            let (times, period, from, until) = busy?;
            let [from, until] =
                [from, until].map(|share| Duration::from_nanos((period as f64 * share) as u64));
            let (times, period) = (NonZeroU32::new(times)?, Duration::from_nanos(period));
            (from != until).then_some(BusyHours { times, from, until, period })
        });
        let several = (array, busy);
        (name, rates, burst, pipes, times, line, cache, of(any_spindle()), several).prop_map(
            |(name, rates, burst, pipes, times, line, cache, spindle, (array, busy))| Spec {
                name,
                iops: rates.0,
                read_iops: rates.1,
                write_iops: rates.2,
                request_unit: rates.3,
                burst: burst.filter(|_| rates.0.is_some()).map(|(rate, credits, start)| Burst {
                    iops: Rate(rate.0.max(rates.0.unwrap().0)),
                    credits,
                    start: start.map(|share| (credits as f64 * share) as u64),
                }),
                bandwidth: pipes.0,
                read_bandwidth: pipes.1,
                write_bandwidth: pipes.2,
                latency: times.0,
                write_latency: times.1,
                flush_latency: times.2,
                parallel: line.0.and_then(NonZeroU32::new),
                order: if line.1 { Order::ReadsFirst } else { Order::Fifo },
                depth: line.2.and_then(NonZeroU32::new),
                spread: line.3,
                cache,
                spindle,
                array,
                busy,
            },
        )
    }

    #[test]
    fn slow_motion_stretches_every_time_and_nothing_else() {
        let disk = "iops=600,burst_iops=3000,burst_credits=900,bandwidth=40MB/s,latency=7ms,write_latency=2ms,\
                    flush_latency=9ms,parallel=8,spread=exponential,cache=64MiB,cache_drain=20MB/s,rpm=7200,\
                    seek_track=1ms,seek_full=15ms,track=1MiB";
        let slowed = "iops=150,burst_iops=750,burst_credits=900,bandwidth=10MB/s,latency=28ms,write_latency=8ms,\
                      flush_latency=36ms,parallel=8,spread=exponential,cache=64MiB,cache_drain=5MB/s,rpm=1800,\
                      seek_track=4ms,seek_full=60ms,track=1MiB";
        let (disk, slowed): (Spec, Spec) = (disk.parse().unwrap(), slowed.parse().unwrap());
        assert_eq!(disk.slowed(4), slowed);
        assert_eq!(disk.slowed(1), disk);
    }

    #[test]
    fn a_measured_spread_is_brief_for_people() {
        let disk: Spec = "iops=600,latency=1ms,spread=50us/100us:90/2ms:10".parse().unwrap();
        assert_eq!(
            disk.brief(),
            "iops=600,latency=1ms, spread as measured in 2 steps from 50.0 us to 2.00 ms"
        );
        let plain: Spec = "iops=600".parse().unwrap();
        assert_eq!(plain.brief(), "iops=600");
    }

    #[test]
    fn the_studies_disks_read_as_written() {
        let spec: Spec = "iops=600, latency=7 ms".parse().unwrap();
        assert_eq!(spec.iops, Some(Rate(600.0)));
        assert_eq!(spec.latency, Duration::from_millis(7));
        assert_eq!(spec.to_string(), "iops=600,latency=7ms");
        assert_eq!("".parse::<Spec>().unwrap(), Spec::default());
        assert_eq!(Spec::default().to_string(), "unlimited");
        assert!(Spec::default().is_unlimited());
        let full = "name=hdd,iops=150,bandwidth=200MB/s,latency=7ms,write_latency=8ms,flush_latency=12ms,\
                    parallel=2,spread=20%";
        assert_eq!(full.parse::<Spec>().unwrap().to_string(), full);
    }

    #[test]
    fn what_belongs_together_comes_together() {
        let error = |text: &str| text.parse::<Spec>().unwrap_err().to_string();
        assert_eq!(error("burst_iops=3000,burst_credits=5"), "burst_iops is nothing without iops");
        assert_eq!(error("iops=100,burst_iops=3000"), "burst_iops is nothing without burst_credits");
        assert_eq!(error("cache=1MiB"), "cache is nothing without cache_drain");
        assert_eq!(error("seek_track=1ms"), "seek_track is nothing without rpm");
        assert_eq!(error("rpm=7200,seek_full=16ms"), "rpm is nothing without track");
        assert!(error("iops=100,burst_iops=50,burst_credits=5").contains("less than iops"));
        assert!(error("rpm=7200,seek_full=1ms,seek_track=2ms,track=1MiB").contains("less than seek_track"));
        assert!(error("order=lifo").contains("reads-first"));
        assert_eq!(error("iops=100,chunk=64KiB"), "chunk is nothing without disks");
        assert_eq!(error("busy_times=2,busy_from=9h"), "busy_times is nothing without busy_until");
        assert!(error("busy_times=2,busy_from=9h,busy_until=25h").contains("beyond busy_period"));
        assert!(error("iops=100,disks=257").contains("256 are the most"));
        let full = "iops=300,request_unit=256KiB,burst_iops=3000,burst_credits=5400000,burst_start=0,\
                    write_bandwidth=90MB/s,order=reads-first,depth=4,spread=0s/1ms:3/5ms:1,cache=64MiB,\
                    cache_drain=40MB/s,rpm=7200,seek_track=1ms,seek_full=16ms,track=1MiB,capacity=1TB,disks=4,chunk=64KiB,\
                    busy_times=20,busy_from=9h,busy_until=18h,busy_period=24h";
        assert_eq!(full.parse::<Spec>().unwrap().to_string(), full);
    }

    #[test]
    fn mistakes_are_named_with_the_nearest_key() {
        let error = |text: &str| text.parse::<Spec>().unwrap_err().to_string();
        assert!(error("latncy=7ms").contains("did you mean \"latency\""), "{}", error("latncy=7ms"));
        assert!(error("ipos=600").contains("did you mean \"iops\""));
        assert!(error("iops").contains("key=value"));
        assert!(error("iops=600,iops=700").contains("twice"));
        assert!(error("latency=7").contains("\"7 ms\""));
        assert!(error("iops=0").contains("iops"));
        assert!(error("parallel=0").contains("from 1"));
        assert!(error("spread=2").contains("100 %"));
        assert!(error("bandwidth=fast").contains("bandwidth"));
    }

    #[test]
    fn plans_and_files_say_it_their_way() {
        let wanted: Spec = "iops=600,latency=7ms,bandwidth=1MB/s".parse().unwrap();
        for text in [
            r#""iops=600,latency=7ms,bandwidth=1MB/s""#,
            r#"{"iops": 600, "latency": "7 ms", "bandwidth": "1 MB/s"}"#,
            r#"{"iops": 600.0, "latency_ns": 7000000, "bandwidth_bytes_per_s": 1000000}"#,
        ] {
            assert_eq!(serde_json::from_str::<Spec>(text).unwrap(), wanted, "{text}");
        }
        assert!(serde_json::from_str::<Spec>(r#"{"latency": 7}"#).is_err());
        let error = serde_json::from_str::<Spec>(r#"{"latncy": "7 ms"}"#).unwrap_err().to_string();
        assert!(error.contains("\"latency\""), "{error}");
        let toml: Spec = toml::from_str("iops = 600\nlatency = \"7 ms\"\nbandwidth = \"1 MB/s\"").unwrap();
        assert_eq!(toml, wanted);
    }

    #[test]
    fn the_ceiling_is_the_least_of_the_stations() {
        let spec: Spec = "iops=600,latency=7ms".parse().unwrap();
        let rate = |clients| spec.ceiling(Kind::Read, Bytes::kib(4), clients).unwrap().0;
        assert!((rate(1) - 1000.0 / 7.0).abs() < 1e-9);
        assert_eq!(rate(16), 600.0);
        assert_eq!(Spec::default().ceiling(Kind::Read, Bytes::kib(4), 1), None);
        let four = spec.with("disks=4").unwrap().ceiling(Kind::Read, Bytes::kib(4), 64).unwrap();
        assert_eq!(four.0, 2400.0, "four such disks");
        let spec: Spec =
            "iops=600,write_iops=200,request_unit=16KiB,cache=1MiB,cache_drain=4MB/s".parse().unwrap();
        let rate = |kind, size| spec.ceiling(kind, Bytes(size), 16).unwrap().0;
        assert_eq!(rate(Kind::Read, 4096), 600.0);
        assert_eq!(rate(Kind::Read, 65536), 150.0);
        assert_eq!(rate(Kind::Write, 4000), 200.0);
        assert_eq!(rate(Kind::Write, 40_000), 200.0 / 3.0);
    }

    proptest! {
        #[test]
        fn printed_specs_read_back(spec in any_spec()) {
            prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        }
        #[test]
        fn a_spec_with_all_of_another_is_that_other(spec in any_spec()) {
            prop_assert_eq!(spec.with("").unwrap(), spec.clone());
            let printed = spec.to_string();
            let wanted = if printed == UNLIMITED { Spec::default() } else { spec.clone() };
            prop_assert_eq!(spec.with(&printed).unwrap(), wanted);
        }
        #[test]
        fn stored_specs_read_back(spec in any_spec()) {
            let json = serde_json::to_string(&spec).unwrap();
            prop_assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
        }
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Spec>();
        }
    }
}
