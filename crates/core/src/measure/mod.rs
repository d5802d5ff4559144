//! From raw numbers to figures that carry their error: latencies, estimates, steady state, laws.

mod budget;
mod estimate;
mod latency;
mod steady;

pub use budget::{Budget, Witnesses};
pub use estimate::{Estimate, TooFew, mean_of_trials, percentile, percentile_of_trials};
pub use latency::{Histogram, Latencies, LatencyText, decode, encode, histogram};
pub use steady::{CachePoint, WarmUp, WarmUpRule};

/// Little's law as a residual: how far sessions = throughput × residence is from holding, as a share of
/// `sessions`. Holds in any closed system without think time, whatever its distributions, so a large residual
/// is a fault in the measurement (Little 1961; METHODS F1 asks for 3 %).
pub fn little_residual(sessions: f64, throughput_per_s: f64, mean_residence_s: f64) -> f64 {
    throughput_per_s * mean_residence_s / sessions - 1.0
}

#[cfg(test)]
mod tests {
    #[test]
    fn little_holds_and_fails() {
        assert!(super::little_residual(16.0, 1000.0, 0.016).abs() < 1e-12);
        assert!((super::little_residual(16.0, 1000.0, 0.008) + 0.5).abs() < 1e-12);
    }
}
