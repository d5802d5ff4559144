//! How fast data grow.

use std::fmt;
use std::str::FromStr;

/// "2 x / year": how many times the data are after a year.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth(pub f64);

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x / year", self.0)
    }
}

impl FromStr for Growth {
    type Err = String;

    fn from_str(text: &str) -> Result<Growth, String> {
        let wanted = || format!("{text:?} is not a growth such as \"2 x / year\"");
        let (times, span) = text.split_once('/').ok_or_else(wanted)?;
        let times: f64 = times.trim().trim_end_matches('x').trim().parse().map_err(|_| wanted())?;
        let a_year = match span.trim() {
            "year" => times,
            "month" => times.powi(12),
            _ => return Err(wanted()),
        };
        if !(a_year > 1.0 && a_year <= 1e6) {
            return Err(format!(
                "{text:?}: more than once and at most a million times a year can be planned for"
            ));
        }
        Ok(Growth(a_year))
    }
}
