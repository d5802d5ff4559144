//! A figure of a study: a value with its interval and what it rests on, or the reason for having none.

use super::CellRecords;
use crate::measure::{Estimate, TooFew};
use serde::{Deserialize, Serialize};

/// A figure as it stands in `study.json`; the field that holds it names its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// It is known.
    Known(Known),
    /// It is not known.
    Missing {
        /// Why: "not measured", or what became of the trials.
        missing: String,
        /// Believable trials that were there and did not give it.
        trials: u32,
    },
}

/// A figure that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The best estimate.
    pub value: f64,
    /// Lower end of the 95 % interval; absent where nothing gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the 95 % interval; absent where nothing gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Believable trials that it was computed from.
    pub trials: u32,
    /// Where the interval comes from: "t-interval over 3 trials".
    pub basis: String,
}

impl Figure {
    /// No figure, because of `reason`, though there were `trials`.
    pub fn missing(reason: &str, trials: u32) -> Figure {
        Figure::Missing { missing: reason.into(), trials }
    }

    /// An estimate over `trials`; without one, the reason.
    pub fn of(estimate: Result<Estimate, String>, trials: u32) -> Figure {
        estimate.map_or_else(|why| Figure::missing(&why, trials), |estimate| Figure::known(estimate, trials))
    }

    /// What `trials` gave. An estimate without finite ends has no interval.
    fn known(estimate: Estimate, trials: u32) -> Figure {
        let Estimate { value, low, high, basis } = estimate;
        if !value.is_finite() {
            return Figure::missing("nothing to divide by", trials);
        }
        let (low, high) =
            if low.is_finite() && high.is_finite() { (Some(low), Some(high)) } else { (None, None) };
        Figure::Known(Known { value, low, high, trials, basis })
    }

    /// With an interval that ends at zero, for quantities that cannot be negative.
    pub fn not_negative(mut self) -> Figure {
        if let Figure::Known(Known { value, low: Some(low), .. }) = &mut self {
            *low = low.max(0.0).min(*value);
        }
        self
    }

    /// The figure, if it is known.
    pub fn get(&self) -> Option<&Known> {
        match self {
            Figure::Known(known) => Some(known),
            Figure::Missing { .. } => None,
        }
    }

    /// Its value, if it is known.
    pub fn value(&self) -> Option<f64> {
        self.get().map(|known| known.value)
    }
}

impl Known {
    /// As an estimate, whose ends are infinite where it has none.
    pub fn estimate(&self) -> Estimate {
        Estimate {
            value: self.value,
            low: self.low.unwrap_or(f64::NEG_INFINITY),
            high: self.high.unwrap_or(f64::INFINITY),
            basis: self.basis.clone(),
        }
    }
}

impl CellRecords<'_> {
    /// An estimate over this cell's trials as a figure; without one, the reason.
    pub fn figure(&self, estimate: Option<Estimate>) -> Figure {
        let trials = self.measured().len() as u32;
        Figure::of(estimate.ok_or_else(|| self.why_none()), trials)
    }

    /// What was computed, of a cell that was measured.
    pub fn computed(&self, value: f64, basis: &str) -> Figure {
        let trials = self.measured().len() as u32;
        match trials {
            0 => Figure::missing(&self.why_none(), 0),
            _ => {
                let (low, high, basis) = (Some(value), Some(value), basis.into());
                Figure::Known(Known { value, low, high, trials, basis })
            }
        }
    }

    /// A percentile over this cell's trials as a figure; without one, the reason.
    pub fn percentile_figure(&self, estimate: Result<Estimate, TooFew>) -> Figure {
        let trials = self.measured().len() as u32;
        match estimate {
            Ok(estimate) => Figure::known(estimate, trials),
            Err(_) if trials == 0 => Figure::missing(&self.why_none(), 0),
            Err(few) => Figure::missing(&few.to_string(), trials),
        }
    }
}
