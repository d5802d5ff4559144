//! Dates in texts, as ISO 8601 writes them.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

const DAY_US: i64 = 86_400_000_000;

/// How a date was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DateStyle {
    /// What stands between date and time; nothing if there is no time.
    between: Option<char>,
    /// Digits of the seconds' fraction, at most 6.
    fraction: u8,
    /// `Z`, `+00:00` or nothing.
    suffix: String,
}

/// Days since 1970-01-01 of a date in the Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted_month + 2) / 5 + 1)
}

/// Reads `2024-05-17`, `2024-05-17T08:30:00.125Z` and the like: microseconds since 1970, and the style.
pub(super) fn read(text: &str) -> Option<(i64, DateStyle)> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
    };
    let is = |at: usize, byte: u8| text.as_bytes().get(at) == Some(&byte);
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if !(is(4, b'-') && is(7, b'-')) || civil(days(year, month, day)) != (year, month, day) {
        return None;
    }
    let midnight = days(year, month, day) * DAY_US;
    if text.len() == 10 {
        return Some((midnight, DateStyle { between: None, fraction: 0, suffix: String::new() }));
    }
    let between = text.as_bytes()[10] as char;
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !matches!(between, 'T' | ' ')
        || !is(13, b':')
        || !is(16, b':')
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let mut rest = text.get(19..)?;
    let (mut fraction_us, mut fraction) = (0, 0);
    if let Some(digits) = rest.strip_prefix('.') {
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 || length > 6 {
            return None;
        }
        fraction_us = digits[..length].parse::<i64>().ok()? * 10i64.pow(6 - length as u32);
        fraction = length as u8;
        rest = &digits[length..];
    }
    if !matches!(rest, "" | "Z" | "+00:00") {
        return None;
    }
    let time = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction_us;
    Some((midnight + time, DateStyle { between: Some(between), fraction, suffix: rest.into() }))
}

/// The same in milliseconds, which is what BSON keeps.
pub(in crate::workload) fn milliseconds(text: &str) -> Option<i64> {
    read(text).map(|(us, _)| us.div_euclid(1000))
}

impl DateStyle {
    /// Shows the text of `time` (microseconds since 1970) in this style.
    pub(super) fn print(&self, time: i64, then: impl FnOnce(&str)) {
        then(&self.text(time));
    }

    pub(super) fn text(&self, time: i64) -> String {
        let (year, month, day) = civil(time.div_euclid(DAY_US));
        let mut text = format!("{year:04}-{month:02}-{day:02}");
        if let Some(between) = self.between {
            let of_day = time.rem_euclid(DAY_US);
            let seconds = of_day / 1_000_000;
            let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let _ = write!(text, "{between}{hour:02}:{minute:02}:{second:02}");
            if self.fraction > 0 {
                let digits = of_day % 1_000_000 / 10i64.pow(6 - u32::from(self.fraction));
                let _ = write!(text, ".{digits:0width$}", width = usize::from(self.fraction));
            }
            text.push_str(&self.suffix);
        }
        text
    }
}

/// Milliseconds since 1970 as extended JSON writes them.
pub(super) fn iso(ms: i64) -> String {
    let style = DateStyle { between: Some('T'), fraction: 3, suffix: "Z".into() };
    style.text(ms.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, us) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400_000_000),
            ("2026-11-21T06:13:16Z", 1_795_241_596_000_000),
            ("1969-12-31 23:59:59.5", -500_000),
            ("2024-05-17T08:30:00.125+00:00", 1_715_934_600_125_000),
        ] {
            let (time, style) = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(time, us, "{text}");
            assert_eq!(style.text(time), text);
        }
        for text in [
            "",
            "2023-02-29",
            "2024-13-01",
            "2024-5-17",
            "2024-05-17T25:00:00",
            "2024-05-17T08:30",
            "+024-05-17",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_dates_read_back(us in -30_000_000_000_000_000i64..200_000_000_000_000_000) {
            let style = DateStyle { between: Some('T'), fraction: 6, suffix: "Z".into() };
            prop_assert_eq!(read(&style.text(us)), Some((us, style)));
        }

        #[test]
        fn no_text_panics(text in "\\PC*", near in "[0-9TZ:. +-]{8,30}") {
            let _ = (read(&text), read(&near));
        }
    }
}
