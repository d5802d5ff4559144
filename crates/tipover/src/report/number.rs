//! A number as it is printed: with its interval, its unit, and no more digits than it deserves.

use serde::{Deserialize, Serialize};

/// A quantity with its error and unit. At least one of `value`, `low`, `high` is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// The best estimate; `None` where only a range or a bound is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Lower end of the interval. Which interval (95 %, range over repeats) is said where the table is
    /// explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// "ops/s", "ms", "%", or empty for a pure number.
    pub unit: String,
    /// Significant digits of the value. The interval, if there is one, has the last word: it is printed with
    /// one or two digits, never as "± 0" and never with digits that it makes meaningless. 0: every digit it
    /// has.
    pub digits: u8,
    /// It comes from one trial, without anything that could give it an interval. Tables have a mark for it,
    /// and pages a sentence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single: bool,
}

impl Number {
    /// A number without interval, three significant digits.
    pub fn new(value: f64, unit: &str) -> Self {
        assert!(value.is_finite(), "a printed number is finite, {value} {unit} is not: use Cell::missing");
        Number { value: Some(value), low: None, high: None, unit: unit.into(), digits: 3, single: false }
    }

    /// With every digit it has: what was configured, or printed by others.
    pub fn exact(value: f64, unit: &str) -> Self {
        Number { digits: 0, ..Number::new(value, unit) }
    }

    /// Only a range is known, such as the published "0.40 to 0.44 ms".
    pub fn range(low: f64, high: f64, unit: &str) -> Self {
        Number { value: None, digits: 3, ..Number::new(low, unit).between(low, high) }
    }

    /// With the interval `low..high`.
    pub fn between(mut self, low: f64, high: f64) -> Self {
        assert!(low.is_finite() && high.is_finite() && low <= high, "{low}..{high} is not an interval");
        (self.low, self.high) = (Some(low), Some(high));
        self
    }

    /// From one trial, so that there is no interval.
    pub fn of_one_trial(mut self) -> Self {
        self.single = true;
        self
    }

    /// With another number of significant digits.
    pub fn digits(mut self, digits: u8) -> Self {
        self.digits = digits;
        self
    }

    /// The value and its interval, apart because the page prints the interval fainter: ("1,750", "± 38").
    pub(super) fn parts(&self) -> (String, String) {
        let place = self.last_place();
        let print = |x| grouped(x, place);
        match (self.value, self.low, self.high) {
            (Some(value), Some(low), Some(high)) => {
                let (below, above) = (value - low, high - value);
                if low >= 0.0 && value > 0.0 && high > 20.0 * value {
                    // An interval of factors, and a wide one: its upper end must not round the others away.
                    let own = |x: f64| grouped(x, if x > 0.0 { place.min(place_of(x) - 1) } else { place });
                    return (own(value), format!("[{}, {}]", own(low), own(high)));
                }
                let interval = if below >= 0.0 && above >= 0.0 && (above - below).abs() <= 0.1 * (high - low)
                {
                    format!("± {}", print((high - low) / 2.0))
                } else {
                    format!("[{}, {}]", print(low), print(high))
                };
                (print(value), interval)
            }
            (Some(value), Some(low), None) => (print(value), format!("(at least {})", print(low))),
            (Some(value), None, Some(high)) => (print(value), format!("(at most {})", print(high))),
            (Some(value), None, None) => (print(value), String::new()),
            (None, Some(low), Some(high)) => (format!("{} to {}", print(low), print(high)), String::new()),
            (None, Some(low), None) => (format!("at least {}", print(low)), String::new()),
            (None, None, Some(high)) => (format!("at most {}", print(high)), String::new()),
            (None, None, None) => unreachable!("a Number is made with a value or a bound"),
        }
    }

    /// In one piece and without unit, for a column whose head has it: "1,750 ± 38".
    pub fn bare(&self) -> String {
        let (value, interval) = self.parts();
        if interval.is_empty() { value } else { format!("{value} {interval}") }
    }

    /// Power of ten of the last digit printed: -2 for hundredths, 3 for thousands.
    fn last_place(&self) -> i32 {
        let all = [self.value, self.low, self.high];
        if self.digits == 0 {
            let decimals = |x: f64| x.to_string().split_once('.').map_or(0, |(_, fraction)| fraction.len());
            return -(all.into_iter().flatten().map(decimals).max().unwrap_or(0) as i32);
        }
        let largest = all.into_iter().flatten().map(f64::abs).fold(0.0, f64::max);
        let of_value = match self.value {
            Some(value) if value != 0.0 => place_of(value.abs()),
            _ if largest > 0.0 => place_of(largest),
            _ => return 0,
        };
        let place = of_value - (i32::from(self.digits) - 1);
        match (self.low, self.high) {
            (Some(low), Some(high)) if high > low => {
                let of_interval = place_of((high - low) / 2.0);
                place.clamp(of_interval - 1, of_interval)
            }
            _ => place,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.bare())?;
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

/// Power of ten of the first digit of a positive number.
fn place_of(x: f64) -> i32 {
    x.log10().floor() as i32
}

/// Rounded at `place`, thousands apart: (36912.0, 2) -> "36,900".
fn grouped(x: f64, place: i32) -> String {
    let rounded = if place > 0 { (x / 10f64.powi(place)).round_ties_even() * 10f64.powi(place) } else { x };
    let text = format!("{:.*}", usize::try_from(-place).unwrap_or(0), rounded);
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |d| ("−", d));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(if digits.contains(|c: char| ('1'..='9').contains(&c)) { sign } else { "" });
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_carries_unit_and_interval() {
        assert_eq!(
            Number::new(1_748_213.0, "ops/s").between(1_709_000.0, 1_787_000.0).to_string(),
            "1,750,000 ± 40,000 ops/s"
        );
        assert_eq!(Number::new(36_912.4, "ops/s").to_string(), "36,900 ops/s");
        assert_eq!(Number::new(36_912.4, "ops/s").of_one_trial().to_string(), "36,900 ops/s");
        assert_eq!(Number::exact(69_579.5, "ops/s").to_string(), "69,579.5 ops/s");
        assert_eq!(Number::new(21.4, "ms").between(20.9, 23.8).to_string(), "21.4 [20.9, 23.8] ms");
        assert_eq!(Number::exact(76_113.0, "ops/s").to_string(), "76,113 ops/s");
        assert_eq!(Number::new(0.0, "").to_string(), "0");
        assert_eq!(Number::new(-3.25, "%").to_string(), "−3.25 %");
        assert_eq!(Number::new(-0.0004, "%").between(-0.3, 0.3).digits(1).to_string(), "0.00 ± 0.30 %");
    }

    #[test]
    fn a_narrow_interval_never_prints_as_zero() {
        assert_eq!(Number::new(149.93, "/s").between(149.91, 149.95).to_string(), "149.93 ± 0.02 /s");
        assert_eq!(Number::new(5000.0, "/s").between(5000.0, 5000.0).to_string(), "5,000 ± 0 /s");
    }

    #[test]
    fn a_wide_interval_does_not_round_the_value_away() {
        let wide = Number::new(36.52, "ms").between(0.00123, 1_120_345.0);
        assert_eq!(wide.to_string(), "37 [0.0012, 1,120,000] ms");
        assert_eq!(Number::new(1.04, "ms").between(0.0, 161.2).to_string(), "1.0 [0, 161] ms");
    }

    #[test]
    fn bounds_and_ranges_say_that_they_are() {
        assert_eq!(Number::range(0.4, 0.44, "ms").digits(2).to_string(), "0.40 to 0.44 ms");
        let at_least =
            Number { value: None, low: Some(30.0), high: None, unit: "s".into(), digits: 2, single: false };
        assert_eq!(at_least.to_string(), "at least 30 s");
    }

    #[test]
    #[should_panic(expected = "finite")]
    fn what_is_not_a_number_is_not_printed() {
        Number::new(f64::NAN, "ms");
    }
}
