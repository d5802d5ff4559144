//! What a disk can do, as people write it: `iops=600,latency=7ms`.

use super::Kind;
use crate::units::{Bytes, ParseError, Rate, Ratio, span};
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// A disk's abilities. Whatever is absent does not limit: the default is a disk that answers at once.
///
/// Printed and parsed in one compact form, `parse(print(x)) == x`. In files it is a table with units in
/// the keys (`latency_ns = 7000000`) or in the values (`latency = "7 ms"`), or the compact form as text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    /// What people call it ("gp3"); letters, digits, `-`, `_`, `.` and `+`.
    pub name: Option<String>,
    /// Reads and writes per second that the gate lets through, evenly spaced; a request that comes late
    /// does not make up for the time lost.
    pub iops: Option<Rate>,
    /// Bytes per second over one pipe that reads and writes share.
    pub bandwidth: Option<Bytes>,
    /// Service time of a read, and of a write unless `write_latency` says otherwise.
    pub latency: Duration,
    /// Service time of a write; `None` = as a read.
    pub write_latency: Option<Duration>,
    /// Service time of a flush. A flush passes no gate and no pipe, because it carries no data.
    pub flush_latency: Duration,
    /// How many requests are in service at once; more wait in line. `None` = no limit.
    pub parallel: Option<NonZeroU32>,
    /// How service times scatter around the latency.
    pub spread: Spread,
}

/// How service times scatter around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Spread {
    /// Always the mean.
    #[default]
    Constant,
    /// Anywhere within this share of the mean on either side, each value alike: 0..=1.
    Uniform(Ratio),
    /// Memoryless, as queueing formulas like it.
    Exponential,
}

/// A disk's description that could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A key that no disk has.
    #[error("a disk has no key {key:?}; did you mean {nearest:?}? (keys: {})", KEYS.join(", "))]
    Unknown {
        /// As given.
        key: String,
        /// The key that looks most like it.
        nearest: &'static str,
    },
    /// A part without `=`.
    #[error("{0:?} is not key=value; a disk is written like \"iops=600,latency=7ms\"")]
    NotAPair(String),
    /// The same key again.
    #[error("{0:?} is given twice")]
    Twice(&'static str),
    /// A value without the right unit.
    #[error("{key}: {reason}")]
    Value {
        /// Whose value.
        key: &'static str,
        /// What is wrong with it.
        reason: ParseError,
    },
    /// A value that no disk can have.
    #[error("{key}: {reason}, but it is {value}")]
    Impossible {
        /// Whose value.
        key: &'static str,
        /// As given.
        value: String,
        /// What would do.
        reason: &'static str,
    },
}

const KEYS: [&str; 8] =
    ["name", "iops", "bandwidth", "latency", "write_latency", "flush_latency", "parallel", "spread"];
const UNLIMITED: &str = "unlimited";

/// Finds the key among ours, or says which of ours it resembles.
fn known(key: &str) -> Result<&'static str, SpecError> {
    if let Some(found) = KEYS.iter().find(|k| **k == key) {
        return Ok(found);
    }
    let nearest = KEYS
        .into_iter()
        .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)))
        .unwrap_or("iops");
    Err(SpecError::Unknown { key: key.into(), nearest })
}

fn impossible(key: &'static str, value: &str, reason: &'static str) -> SpecError {
    SpecError::Impossible { key, value: value.into(), reason }
}

impl Spec {
    /// Whether nothing limits this disk, so that requests need not pass the model's stations at all.
    pub fn is_unlimited(&self) -> bool {
        self.iops.is_none()
            && self.bandwidth.is_none()
            && self.latency.is_zero()
            && self.write_latency.is_none_or(|l| l.is_zero())
            && self.flush_latency.is_zero()
    }

    /// Mean service time of a request of this kind.
    pub fn service(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Read => self.latency,
            Kind::Write => self.write_latency.unwrap_or(self.latency),
            Kind::Flush => self.flush_latency,
            Kind::Discard => Duration::ZERO,
        }
    }

    /// The most requests per second of this kind and size that the disk can complete when `clients` each
    /// keep one request in flight: the least of the latency bound, the servers, the gate and the pipe.
    /// `None` when nothing limits.
    pub fn ceiling(&self, kind: Kind, size: Bytes, clients: u32) -> Option<Rate> {
        let busy = self.parallel.map_or(clients, |p| p.get().min(clients));
        let service = self.service(kind).as_secs_f64();
        let served = (service > 0.0).then(|| f64::from(busy) / service);
        let moves_data = matches!(kind, Kind::Read | Kind::Write);
        let gate = self.iops.filter(|_| moves_data).map(|r| r.0);
        let pipe = self.bandwidth.filter(|_| moves_data).map(|b| b.0 as f64 / size.0 as f64);
        [served, gate, pipe].into_iter().flatten().reduce(f64::min).map(Rate)
    }

    /// Checks the values that types alone do not bound; parsing does this by itself.
    ///
    /// # Errors
    /// [`SpecError::Impossible`] with the key at fault.
    pub fn check(&self) -> Result<(), SpecError> {
        if let Some(name) = &self.name {
            let plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                return Err(impossible("name", name, "letters, digits and -_.+ are possible"));
            }
        }
        if let Some(iops) = self.iops
            && !(iops.0.is_finite() && (1e-3..=1e9).contains(&iops.0))
        {
            return Err(impossible("iops", &iops.to_string(), "between 0.001 and 1000000000 are possible"));
        }
        if self.bandwidth == Some(Bytes(0)) {
            return Err(impossible("bandwidth", "0", "at least one byte per second is needed"));
        }
        if let Spread::Uniform(share) = self.spread
            && !(0.0..=1.0).contains(&share.0)
        {
            return Err(impossible("spread", &share.to_string(), "0 % to 100 % are possible"));
        }
        let longest = Duration::from_secs(3600);
        for (key, span) in [
            ("latency", self.latency),
            ("write_latency", self.write_latency.unwrap_or_default()),
            ("flush_latency", self.flush_latency),
        ] {
            if span > longest {
                return Err(impossible(key, &span::print(span), "an hour is the longest"));
            }
        }
        Ok(())
    }

    /// Sets one key from text.
    fn set(&mut self, key: &'static str, text: &str) -> Result<(), SpecError> {
        let text = text.trim();
        let bad = |reason| SpecError::Value { key, reason };
        let time = |text: &str| span::parse(text).map_err(bad);
        match key {
            "name" => self.name = Some(text.into()),
            "iops" => self.iops = Some(text.parse().map_err(bad)?),
            "bandwidth" => {
                let per_second = text.strip_suffix("/s").unwrap_or(text);
                self.bandwidth = Some(per_second.parse().map_err(bad)?);
            }
            "latency" => self.latency = time(text)?,
            "write_latency" => self.write_latency = Some(time(text)?),
            "flush_latency" => self.flush_latency = time(text)?,
            "parallel" => {
                let at_least_one = |_| impossible("parallel", text, "a whole number from 1 is needed");
                self.parallel = Some(text.parse().map_err(at_least_one)?);
            }
            _ => {
                self.spread = match text {
                    "constant" => Spread::Constant,
                    "exponential" => Spread::Exponential,
                    share => Spread::Uniform(share.parse().map_err(bad)?),
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut part = |key: &str, value: String| parts.push(format!("{key}={}", value.replace(' ', "")));
        if let Some(name) = &self.name {
            part("name", name.clone());
        }
        if let Some(iops) = self.iops {
            part("iops", iops.0.to_string());
        }
        if let Some(bandwidth) = self.bandwidth {
            part("bandwidth", format!("{bandwidth}/s"));
        }
        if !self.latency.is_zero() {
            part("latency", span::print(self.latency));
        }
        if let Some(latency) = self.write_latency {
            part("write_latency", span::print(latency));
        }
        if !self.flush_latency.is_zero() {
            part("flush_latency", span::print(self.flush_latency));
        }
        if let Some(parallel) = self.parallel {
            part("parallel", parallel.to_string());
        }
        match self.spread {
            Spread::Constant => {}
            Spread::Uniform(share) => part("spread", share.to_string()),
            Spread::Exponential => part("spread", "exponential".into()),
        }
        f.write_str(&if parts.is_empty() { UNLIMITED.into() } else { parts.join(",") })
    }
}

impl FromStr for Spec {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut spec = Spec::default();
        let mut seen = Vec::new();
        let text = text.trim();
        if text == UNLIMITED {
            return Ok(spec);
        }
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| SpecError::NotAPair(part.into()))?;
            let key = known(key.trim())?;
            if seen.contains(&key) {
                return Err(SpecError::Twice(key));
            }
            seen.push(key);
            spec.set(key, value)?;
        }
        spec.check()?;
        Ok(spec)
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let nanoseconds = |span: Duration| span.as_nanos() as u64;
        let mut map = s.serialize_map(None)?;
        if let Some(name) = &self.name {
            map.serialize_entry("name", name)?;
        }
        if let Some(iops) = &self.iops {
            map.serialize_entry("iops", iops)?;
        }
        if let Some(bandwidth) = &self.bandwidth {
            map.serialize_entry("bandwidth_bytes_per_s", bandwidth)?;
        }
        map.serialize_entry("latency_ns", &nanoseconds(self.latency))?;
        if let Some(latency) = self.write_latency {
            map.serialize_entry("write_latency_ns", &nanoseconds(latency))?;
        }
        map.serialize_entry("flush_latency_ns", &nanoseconds(self.flush_latency))?;
        if let Some(parallel) = &self.parallel {
            map.serialize_entry("parallel", parallel)?;
        }
        match self.spread {
            Spread::Constant => {}
            Spread::Uniform(share) => map.serialize_entry("spread", &share)?,
            Spread::Exponential => map.serialize_entry("spread", "exponential")?,
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
        let mut spec = Spec::default();
        let mut seen = Vec::new();
        for (key, value) in table {
            // `latency_ns = 7000000` is `latency = "7000000 ns"`: one parser, and a bare `latency = 7` is
            // refused.
            let (plain, unit) = match &value {
                Value::Number(_) if key.ends_with("_ns") => (key.trim_end_matches("_ns"), " ns"),
                Value::Number(_) => (key.trim_end_matches("_bytes_per_s"), ""),
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
            spec.set(known, &text).map_err(D::Error::custom)?;
        }
        spec.check().map_err(D::Error::custom)?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option::of;
    use proptest::prelude::*;

    fn any_span() -> impl Strategy<Value = Duration> {
        (0u64..3_600_000_000_000).prop_map(Duration::from_nanos)
    }

    fn any_spec() -> impl Strategy<Value = Spec> {
        let spread = prop_oneof![
            Just(Spread::Constant),
            Just(Spread::Exponential),
            (0.0..=1.0f64).prop_map(|x| Spread::Uniform(Ratio(x))),
        ];
        (
            of("[a-z0-9][a-z0-9_.+-]{0,10}"),
            of(0.001..1e9f64),
            of(1u64..u64::MAX / 2),
            any_span(),
            of(any_span()),
            any_span(),
            of(1u32..100_000),
            spread,
        )
            .prop_map(
                |(name, iops, bandwidth, latency, write_latency, flush_latency, parallel, spread)| Spec {
                    name,
                    iops: iops.map(Rate),
                    bandwidth: bandwidth.map(Bytes),
                    latency,
                    write_latency,
                    flush_latency,
                    parallel: parallel.and_then(NonZeroU32::new),
                    spread,
                },
            )
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
    }

    proptest! {
        #[test]
        fn printed_specs_read_back(spec in any_spec()) {
            prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
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
