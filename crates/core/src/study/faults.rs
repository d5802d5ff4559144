//! Figures of cells under faults, as a study holds them.

use super::{BrokenCell, Figure};
use crate::check::broken::Things;
use crate::measure::Estimate;
use crate::op::OpKind;

impl BrokenCell<'_> {
    /// An estimate over this cell's runs as a figure; without one, the reason.
    pub(super) fn figure(&self, estimate: Option<Estimate>) -> Figure {
        Figure::of(estimate.ok_or_else(|| self.of.why_none()), self.runs.len() as u32).not_negative()
    }

    /// The chance that a fault loses something that was acknowledged, in per cent of the faults that put
    /// enough of it at risk: its trials are those faults.
    pub(super) fn loss_chance_percent(&self, things: Things) -> Figure {
        let Some((losses, _)) = self.losses(things).filter(|_| !self.runs.is_empty()) else {
            return Figure::missing(&self.of.why_none(), 0);
        };
        let chance = losses.chance;
        if chance.faults == 0 {
            return Figure::missing(
                "no fault with enough acknowledgements before it",
                self.runs.len() as u32,
            );
        }
        let estimate = Estimate {
            value: 100.0 * chance.with_loss as f64 / chance.faults as f64,
            low: 100.0 * chance.low,
            high: 100.0 * chance.high,
            basis: format!("binomial, {} faults", chance.faults),
        };
        Figure::of(Ok(estimate), chance.faults as u32)
    }

    /// A percentile of the latency before the first fault, in milliseconds.
    pub(super) fn calm_percentile(&self, kind: OpKind, quantile: f64) -> Figure {
        match self.calm_ms(kind, quantile) {
            Ok(estimate) => self.figure(Some(estimate)),
            Err(_) if self.runs.is_empty() => Figure::missing(&self.of.why_none(), 0),
            Err(few) => Figure::missing(&few.to_string(), self.runs.len() as u32),
        }
    }
}
