//! Quantities with units, parsed and printed here and nowhere else.
//!
//! Printing is exact: `parse(print(x)) == x`, so a printed plan means what it said. Rounded forms for
//! people are `Bytes::rounded` and friends. KiB = 1024, kB = 1000.
//!
//! In files every quantity is a number in its base unit and its field's name says which
//! (`size_bytes`, `latency_ns`); in plans, written by people, a string with a unit is accepted too.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A quantity that could not be read, with what would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct ParseError {
    text: String,
    wanted: &'static str,
}

pub(crate) fn bad(text: &str, wanted: &'static str) -> ParseError {
    ParseError { text: text.to_string(), wanted }
}

/// Splits "12.5 MiB" into 12.5 and "MiB".
fn number_and_unit<'a>(text: &'a str, wanted: &'static str) -> Result<(f64, &'a str), ParseError> {
    let t = text.trim();
    let end = t
        .char_indices()
        .find(|&(i, c)| {
            !(c.is_ascii_digit()
                || c == '.'
                || c == '_'
                || ((c == '-' || c == '+') && i == 0)
                || (c == 'e' && t[i + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-')))
        })
        .map_or(t.len(), |(i, _)| i);
    let number = t[..end].replace('_', "").parse::<f64>().map_err(|_| bad(text, wanted))?;
    if !number.is_finite() {
        return Err(bad(text, wanted));
    }
    Ok((number, t[end..].trim()))
}

/// A whole number as it stands, so that no digit is lost on the way through a float.
fn whole(text: &str) -> Option<u64> {
    text.trim().replace('_', "").parse().ok()
}

macro_rules! from_string_or_number {
    ($type:ty, $number:ty, $from:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Either {
                    Number($number),
                    Text(String),
                }
                match Either::deserialize(d)? {
                    Either::Number(n) => Ok($from(n)),
                    Either::Text(t) => t.parse().map_err(serde::de::Error::custom),
                }
            }
        }
    };
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

const BYTES: &str = "a size such as \"128 MiB\", \"100 kB\" or \"4096\"";
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

impl Bytes {
    /// `n` times 1024.
    pub const fn kib(n: u64) -> Self {
        Bytes(n << 10)
    }
    /// `n` times 1024².
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }
    /// `n` times 1024³.
    pub const fn gib(n: u64) -> Self {
        Bytes(n << 30)
    }
    /// Three significant digits with a binary unit, for people: "1.21 GiB".
    pub fn rounded(self) -> String {
        for (unit, size) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size {
                return format!("{} {unit}", significant(self.0 as f64 / size as f64, 3));
            }
        }
        format!("{} B", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = BYTE_UNITS
            .iter()
            .filter(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size))
            .min_by_key(|(_, size)| self.0 / size);
        match exact {
            Some((unit, size)) => write!(f, "{} {unit}", self.0 / size),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(n) = whole(text) {
            return Ok(Bytes(n));
        }
        let (number, unit) = number_and_unit(text, BYTES)?;
        let size = match unit {
            "" => 1,
            "K" | "k" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            "KB" => 1_000,
            _ => BYTE_UNITS.iter().find(|(u, _)| *u == unit).ok_or_else(|| bad(text, BYTES))?.1,
        };
        let bytes = match whole(text.trim().trim_end_matches(char::is_alphabetic)) {
            Some(n) => n.checked_mul(size).ok_or_else(|| bad(text, BYTES))?,
            None => {
                let b = number * size as f64;
                if !(0.0..=u64::MAX as f64).contains(&b) {
                    return Err(bad(text, BYTES));
                }
                b.round() as u64
            }
        };
        Ok(Bytes(bytes))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}
from_string_or_number!(Bytes, u64, Bytes);

/// Events per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Rate(pub f64);

const RATE: &str = "a rate per second such as \"600 /s\", \"5 k/s\" or \"600\"";

impl Rate {
    /// Three significant digits, for people: "36.9 k/s".
    pub fn rounded(self) -> String {
        let (n, unit) = match self.0.abs() {
            x if x >= 1e6 => (self.0 / 1e6, "M/s"),
            x if x >= 1e3 => (self.0 / 1e3, "k/s"),
            _ => (self.0, "/s"),
        };
        format!("{} {unit}", significant(n, 3))
    }
    /// Mean time between two events; `None` for a rate of zero.
    pub fn interval(self) -> Option<Duration> {
        (self.0 > 0.0).then(|| Duration::from_secs_f64(1.0 / self.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} /s", self.0)
    }
}

impl FromStr for Rate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (number, unit) = number_and_unit(text, RATE)?;
        let scale = match unit.trim_end_matches("/s").trim() {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            _ => return Err(bad(text, RATE)),
        };
        if number < 0.0 {
            return Err(bad(text, RATE));
        }
        Ok(Rate(number * scale))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.0)
    }
}
from_string_or_number!(Rate, f64, Rate);

/// A share, 1.0 = all. May exceed 1 where the base is something else than the whole ("138 % of the cache").
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Ratio(pub f64);

const RATIO: &str = "a share such as \"92 %\" or \"0.92\"";

impl Ratio {
    /// One decimal of a per cent, for people: "92.3 %".
    pub fn rounded(self) -> String {
        format!("{} %", significant(self.0 * 100.0, 3))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As a per cent where that is exact, else as the plain number: printing must not lose a digit.
        let percent = (self.0 * 100.0 * 1e9).round() / 1e9;
        if percent / 100.0 == self.0 { write!(f, "{percent} %") } else { write!(f, "{}", self.0) }
    }
}

impl FromStr for Ratio {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match number_and_unit(text, RATIO)? {
            (n, "") => Ok(Ratio(n)),
            (n, "%") => Ok(Ratio(n / 100.0)),
            _ => Err(bad(text, RATIO)),
        }
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.0)
    }
}
from_string_or_number!(Ratio, f64, Ratio);

/// A point on the trial clock: nanoseconds since the clock's zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tick(pub u64);

impl Tick {
    /// The span from `earlier` to this point; zero if `earlier` is later.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Tick {
    type Output = Tick;
    fn add(self, span: Duration) -> Tick {
        Tick(self.0 + span.as_nanos() as u64)
    }
}

/// Spans of time: `Duration` in types, nanoseconds in files, "7 ms" in plans and for people.
pub mod span {
    use super::*;

    const SPAN: &str = "a span of time such as \"7 ms\", \"100 us\" or \"1.5 s\"";
    const UNITS: [(&str, u64); 6] = [
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];

    /// Reads "7 ms"; a bare number is refused except 0, because its unit would be a guess.
    pub fn parse(text: &str) -> Result<Duration, ParseError> {
        let (number, unit) = number_and_unit(text, SPAN)?;
        let ns = match unit {
            "" if number == 0.0 => 1,
            "µs" => 1_000,
            "m" => 60_000_000_000,
            _ => UNITS.iter().find(|(u, _)| *u == unit).ok_or_else(|| bad(text, SPAN))?.1,
        };
        let total = number * ns as f64;
        if !(0.0..=u64::MAX as f64).contains(&total) {
            return Err(bad(text, SPAN));
        }
        Ok(Duration::from_nanos(total.round() as u64))
    }

    /// Exact, in the largest unit that divides it.
    pub fn print(span: Duration) -> String {
        let ns = span.as_nanos() as u64;
        if ns == 0 {
            return "0 s".into();
        }
        UNITS
            .iter()
            .find(|(_, size)| ns.is_multiple_of(*size))
            .map(|(unit, size)| format!("{} {unit}", ns / size))
            .expect("one nanosecond divides every span")
    }

    /// Three significant digits, for people: "7.04 ms".
    pub fn rounded(span: Duration) -> String {
        let ns = span.as_nanos() as f64;
        let (n, unit) = match ns {
            x if x >= 7200e9 => (ns / 3600e9, "h"),
            x if x >= 60e9 => (ns / 60e9, "min"),
            x if x >= 1e9 => (ns / 1e9, "s"),
            x if x >= 1e6 => (ns / 1e6, "ms"),
            x if x >= 1e3 => (ns / 1e3, "us"),
            _ => (ns, "ns"),
        };
        format!("{} {unit}", significant(n, 3))
    }

    /// `#[serde(with = "span")]`: nanoseconds out; nanoseconds or text in.
    pub fn serialize<S: Serializer>(span: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(span.as_nanos() as u64)
    }

    /// See [`serialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Nanoseconds(u64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Nanoseconds(n) => Ok(Duration::from_nanos(n)),
            Either::Text(t) => parse(&t).map_err(serde::de::Error::custom),
        }
    }
}

/// `digits` significant digits without an exponent: 36912 -> "36900", 0.01234 -> "0.0123".
pub fn significant(x: f64, digits: i32) -> String {
    if x == 0.0 || !x.is_finite() {
        return format!("{x}");
    }
    let magnitude = x.abs().log10().floor() as i32;
    let decimals = (digits - 1 - magnitude).max(0) as usize;
    let scale = 10f64.powi((magnitude - digits + 1).max(0));
    format!(
        "{:.decimals$}",
        (x / scale)
            .round_ties_even()
            .mul_add(if decimals == 0 { scale } else { 0.0 }, if decimals == 0 { 0.0 } else { x })
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_mean_what_they_say() {
        for (text, bytes) in [
            ("3305 MiB", 3305 << 20),
            ("100kB", 100_000),
            ("4K", 4096),
            ("1.5 GiB", 3 << 29),
            ("4096", 4096),
            ("3.5 MB", 3_500_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1 Mib", "12 parsecs", "nan", "99999999999 TiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_need_a_unit() {
        assert_eq!(span::parse("7 ms").unwrap(), Duration::from_millis(7));
        assert_eq!(span::parse("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(span::parse("0").unwrap(), Duration::ZERO);
        assert!(span::parse("7").is_err());
        assert!(span::parse("7 Ms").is_err());
    }

    #[test]
    fn people_get_three_digits() {
        assert_eq!(significant(36912.4, 3), "36900");
        assert_eq!(significant(0.012345, 3), "0.0123");
        assert_eq!(significant(7.0401, 3), "7.04");
        assert_eq!(significant(-149.9, 3), "-150");
        assert_eq!(Rate(36912.0).rounded(), "36.9 k/s");
        assert_eq!(Bytes(1_300_000_000).rounded(), "1.21 GiB");
        assert_eq!(span::rounded(Duration::from_micros(7040)), "7.04 ms");
        assert_eq!(Ratio(0.923).rounded(), "92.3 %");
    }

    proptest! {
        #[test]
        fn printed_sizes_read_back(n in any::<u64>()) {
            prop_assert_eq!(Bytes(n).to_string().parse::<Bytes>().unwrap(), Bytes(n));
        }
        #[test]
        fn printed_spans_read_back(n in 0..(1u64 << 53)) {
            let d = Duration::from_nanos(n);
            prop_assert_eq!(span::parse(&span::print(d)).unwrap(), d);
        }
        #[test]
        fn printed_rates_and_shares_read_back(x in 0.0..1e9f64) {
            prop_assert_eq!(Rate(x).to_string().parse::<Rate>().unwrap(), Rate(x));
            prop_assert_eq!(Ratio(x).to_string().parse::<Ratio>().unwrap(), Ratio(x));
        }
        #[test]
        fn no_text_panics(t in "\\PC*") {
            let _ = t.parse::<Bytes>();
            let _ = t.parse::<Rate>();
            let _ = t.parse::<Ratio>();
            let _ = span::parse(&t);
        }
    }
}
