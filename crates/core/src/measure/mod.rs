//! From raw numbers to figures that carry their error: latencies, estimates, steady state, laws, budgets.

mod book;
mod budget;
mod canary;
mod change;
mod clock_offset;
mod compare;
mod estimate;
mod headroom;
mod latency;
mod offered;
mod rank;
mod repeats;
mod series;
mod steadiness;
mod steady;
mod threshold;
mod within;

pub use book::{Book, BookText, Books, BooksText, Single};
pub use budget::{Account, Agreement, Budget, Part, Station, Step, Way};
pub use canary::{Canary, judge_machines, judge_session, unrest, unrest_of_machines};
pub use change::{ChangePoint, ChangeRule, ChangeTest, change_points, values_needed};
pub use clock_offset::{ClockOffset, Glimpse};
pub use compare::{
    CannotCompare, CompareRule, Comparison, Difference, Samples, agreed, compare, correct, noise_floor,
};
pub use estimate::{
    Estimate, TooFew, mean_of_groups, mean_of_trials, percentile, percentile_of_groups, percentile_of_trials,
};
pub use headroom::{Bound, Generator, Headroom};
pub use latency::{Counts, Histogram, Latencies, LatencyText, decode, encode, histogram};
pub use offered::{KeptUp, Offered, shows};
pub use rank::{
    cliffs_delta, holm, kruskal_wallis, least_p, least_p_of_pairs, mann_whitney, median, robust_deviation,
    shift, shift_of_pairs, wilcoxon,
};
pub use repeats::{CanaryVerdict, Usual, detectable, detectable_in_pairs, median_of_trials, repeats_needed};
pub use series::{Blocks, block_bootstrap, effective_length, effective_samples, percentile_of_correlated};
pub use steadiness::{
    Steadiness, SteadyJudgement, SteadyRule, gauge_is_flat, least_warm_up, slope, steadiness, truncation,
};
pub use steady::{CachePoint, WarmUp, WarmUpRule};
pub use threshold::{Kept, KeptThreshold, THRESHOLD_LINE, Threshold};
pub use within::{Within, WithinPercentile};

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
