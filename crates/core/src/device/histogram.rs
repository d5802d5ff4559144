//! Service times as measured somewhere: a few steps of a histogram.

use super::SpecError;
use super::spec::impossible;
use crate::units::{ParseError, bad, span};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How often which service time was met. Within a step each value is alike.
///
/// Written as the lower edge and then each step's upper edge with its weight: `50us/100us:90/2ms:10` is 90
/// parts between 50 and 100 us, 10 parts between 100 us and 2 ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHistogram {
    /// Nothing is faster.
    pub low: Duration,
    /// Upper edges, ascending, and weights.
    pub steps: Vec<(Duration, u64)>,
}

impl ServiceHistogram {
    fn edges(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let lows = std::iter::once(self.low).chain(self.steps.iter().map(|step| step.0));
        let nanoseconds = |span: Duration| span.as_nanos() as f64;
        lows.zip(&self.steps)
            .map(move |(low, (high, weight))| (nanoseconds(low), nanoseconds(*high), *weight as f64))
    }

    /// Mean service time.
    pub fn mean(&self) -> Duration {
        let (sum, weights) = self
            .edges()
            .fold((0.0, 0.0), |(sum, weights), (low, high, w)| (sum + w * (low + high) / 2.0, weights + w));
        Duration::from_nanos((sum / weights) as u64)
    }

    /// The service time that this share of all do not exceed, as a multiple of the mean.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let total: f64 = self.edges().map(|(_, _, weight)| weight).sum();
        let mut left = share * total;
        let mut value = 0.0;
        for (low, high, weight) in self.edges() {
            value = high;
            if left < weight {
                value = low + (high - low) * left / weight;
                break;
            }
            left -= weight;
        }
        value / (self.mean().as_nanos() as f64)
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let ascending = std::iter::once(self.low).chain(self.steps.iter().map(|s| s.0)).is_sorted();
        let weights = self.steps.iter().try_fold(0u64, |sum, step| sum.checked_add(step.1));
        if self.steps.is_empty() || !ascending || weights.is_none_or(|w| w == 0) || self.mean().is_zero() {
            return Err(impossible("spread", self, "steps ascend, and some weigh more than nothing"));
        }
        Ok(())
    }
}

impl fmt::Display for ServiceHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |span| span::print(span).replace(' ', "");
        f.write_str(&plain(self.low))?;
        self.steps.iter().try_for_each(|(edge, weight)| write!(f, "/{}:{weight}", plain(*edge)))
    }
}

impl FromStr for ServiceHistogram {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wanted = "a histogram such as \"50us/100us:90/2ms:10\"";
        let wrong = || bad(text, wanted);
        let mut parts = text.split('/');
        let low = span::parse(parts.next().unwrap_or_default())?;
        let step = |part: &str| {
            let (edge, weight) = part.split_once(':').ok_or_else(wrong)?;
            Ok((span::parse(edge)?, weight.trim().parse().map_err(|_| wrong())?))
        };
        Ok(ServiceHistogram { low, steps: parts.map(step).collect::<Result<_, ParseError>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_average_to_the_mean() {
        let histogram: ServiceHistogram = "50us/100us:90/2ms:10".parse().unwrap();
        assert_eq!(histogram.to_string(), "50us/100us:90/2ms:10");
        assert_eq!(histogram.mean(), Duration::from_nanos(172_500));
        let count = 100_000;
        let sum: f64 = (0..count).map(|n| histogram.quantile((f64::from(n) + 0.5) / f64::from(count))).sum();
        assert!((sum / f64::from(count) - 1.0).abs() < 1e-3, "{sum}");
        assert!((histogram.quantile(0.9) * 172.5 - 100.0).abs() < 1e-6);
        assert!((histogram.quantile(1.0) * 172.5 - 2000.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        for text in ["", "1ms", "1ms/2ms", "1ms/2ms:x", "2ms/1ms:1", "0/0:1", "1ms/2ms:0"] {
            let histogram = text.parse::<ServiceHistogram>();
            assert!(histogram.is_err() || histogram.unwrap().check().is_err(), "{text}");
        }
    }
}
