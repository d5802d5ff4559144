//! The knee: where queues begin, by closed formulas. No SLO is in it, so it is never called a capacity.

use crate::units::significant;
use serde::Serialize;

/// What bounds a closed system: the asymptotes of operational analysis (Denning & Buzen 1978; Lazowska et al.
/// 1984, chapter 5). They hold for any distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Asymptotes {
    /// Think time of a session, seconds.
    pub think_s: f64,
    /// Sum of the demands of one operation on all resources, seconds: its residence when it is alone.
    pub demand_s: f64,
    /// The largest demand on one server, seconds.
    pub largest_demand_s: f64,
}

impl Asymptotes {
    /// Of resources with these demands (seconds per operation) and numbers of servers. `None` without any
    /// demand.
    pub fn of(think_s: f64, resources: &[(f64, u32)]) -> Option<Asymptotes> {
        let demand_s = resources.iter().map(|(demand, _)| demand).sum::<f64>();
        let per_server = |(demand, servers): &(f64, u32)| demand / f64::from((*servers).max(1));
        let largest_demand_s = resources.iter().map(per_server).fold(0.0, f64::max);
        (largest_demand_s > 0.0).then_some(Asymptotes { think_s, demand_s, largest_demand_s })
    }

    /// Sessions at which the asymptotes cross: N* = (Z + Σ D) ÷ largest D. With more, somebody always waits.
    pub fn knee(&self) -> f64 {
        (self.think_s + self.demand_s) / self.largest_demand_s
    }

    /// Throughput that `sessions` cannot exceed, operations per second.
    pub fn most_throughput(&self, sessions: f64) -> f64 {
        (sessions / (self.think_s + self.demand_s)).min(1.0 / self.largest_demand_s)
    }

    /// Residence that `sessions` cannot fall below, seconds.
    pub fn least_residence_s(&self, sessions: f64) -> f64 {
        self.demand_s.max(sessions * self.largest_demand_s - self.think_s)
    }
}

/// Gunther's universal scalability law: X(N) = λ N ÷ (1 + σ (N − 1) + κ N (N − 1)).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scalability {
    /// Throughput of one session, per second.
    pub lambda: f64,
    /// Contention: the share that is serial.
    pub sigma: f64,
    /// Coherency: the cost of agreeing, per pair.
    pub kappa: f64,
    /// Largest relative difference between the law and a point that it was fitted to.
    pub worst: f64,
    /// Largest number of sessions that it was fitted to: beyond lies extrapolation.
    pub fitted_up_to: f64,
}

/// Points that the law cannot be fitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotFit {
    /// Three parameters need as many different numbers of sessions, and one more to be wrong about.
    #[error("a scalability law needs throughput at four different numbers of sessions")]
    TooFew,
    /// Logarithms and shares of nothing.
    #[error("sessions and throughput must be above 0")]
    NotPositive,
}

impl Scalability {
    /// Fits the law to (sessions, throughput per second). N ÷ X is linear in 1, N − 1 and N (N − 1); each
    /// point counts by its relative error. A parameter that would be negative is set to zero and the rest
    /// fitted again.
    pub fn fit(points: &[(f64, f64)]) -> Result<Scalability, CannotFit> {
        if points.iter().any(|(n, x)| !(*n > 0.0 && *x > 0.0 && n.is_finite() && x.is_finite())) {
            return Err(CannotFit::NotPositive);
        }
        let mut sessions: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
        sessions.sort_by(f64::total_cmp);
        sessions.dedup();
        if sessions.len() < 4 {
            return Err(CannotFit::TooFew);
        }
        // With both, with either alone, with neither: the best that has no negative part.
        let best = [[true, true], [true, false], [false, true], [false, false]]
            .into_iter()
            .filter_map(|[sigma, kappa]| linear(points, sigma, kappa))
            .filter(|(c, _)| c[0] > 0.0 && c[1] >= 0.0 && c[2] >= 0.0)
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let (c, _) = best.ok_or(CannotFit::TooFew)?;
        let mut law = Scalability {
            lambda: 1.0 / c[0],
            sigma: c[1] / c[0],
            kappa: c[2] / c[0],
            worst: 0.0,
            fitted_up_to: sessions[sessions.len() - 1],
        };
        law.worst = points.iter().map(|(n, x)| (law.throughput(*n) / x - 1.0).abs()).fold(0.0, f64::max);
        Ok(law)
    }

    /// Throughput of `sessions`, per second.
    pub fn throughput(&self, sessions: f64) -> f64 {
        let n = sessions;
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Sessions with the highest throughput: √((1 − σ) ÷ κ); `None` where more always gives more.
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0 && self.sigma < 1.0).then(|| ((1.0 - self.sigma) / self.kappa).sqrt().max(1.0))
    }

    /// In words, with its reservations.
    pub fn sentence(&self) -> String {
        let peak = match self.peak() {
            None => "no peak: more sessions never do less".to_string(),
            Some(peak) if peak > self.fitted_up_to => {
                format!("a peak near {} sessions is beyond what was measured", significant(peak, 2))
            }
            Some(peak) => format!("throughput peaks near {} sessions", significant(peak, 2)),
        };
        format!(
            "contention {} %, coherency {} per million pairs; {peak}; the law is up to {} % off the points; a knee, not a capacity",
            significant(100.0 * self.sigma, 2),
            significant(1e6 * self.kappa, 2),
            significant(100.0 * self.worst, 2)
        )
    }
}

/// Least squares of N ÷ X = c₀ + c₁ (N − 1) + c₂ N (N − 1) with weights X² ÷ N², parts left out where not
/// wanted. Gives the coefficients and the sum of squares.
fn linear(points: &[(f64, f64)], sigma: bool, kappa: bool) -> Option<([f64; 3], f64)> {
    let wanted = [true, sigma, kappa];
    // Sessions in units of the largest, so that the equations are well conditioned.
    let scale = points.iter().map(|(n, _)| *n).fold(0.0, f64::max);
    let row = |n: f64| {
        let full = [1.0, (n - 1.0) / scale, n * (n - 1.0) / (scale * scale)];
        [0, 1, 2].map(|i| if wanted[i] { full[i] } else { 0.0 })
    };
    let mut equations = [[0.0; 4]; 3];
    for (n, x) in points {
        let (row, weight) = (row(*n), (x / n).powi(2));
        for i in 0..3 {
            for j in 0..3 {
                equations[i][j] += weight * row[i] * row[j];
            }
            equations[i][3] += weight * row[i] * n / x;
        }
    }
    for i in (0..3).filter(|i| !wanted[*i]) {
        equations[i][i] = 1.0;
    }
    let c = solve(equations)?;
    let squares = points
        .iter()
        .map(|(n, x)| {
            let fitted: f64 = row(*n).iter().zip(c).map(|(a, c)| a * c).sum();
            (fitted * x / n - 1.0).powi(2)
        })
        .sum();
    Some(([c[0], c[1] / scale, c[2] / (scale * scale)], squares))
}

/// Gauss with pivots; `None` if the equations leave something open.
fn solve(mut m: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|a, b| m[*a][column].abs().total_cmp(&m[*b][column].abs()))?;
        m.swap(column, pivot);
        if m[column][column].abs() < 1e-12 {
            return None;
        }
        let pivot_row = m[column];
        for (_, row) in m.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = row[column] / pivot_row[column];
            row.iter_mut().zip(pivot_row).for_each(|(cell, pivot)| *cell -= factor * pivot);
        }
    }
    Some([m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Exact mean value analysis of single servers and think time (Reiser & Lavenberg 1980).
    fn throughput(think: f64, demands: &[f64], sessions: u32) -> f64 {
        let mut queues = vec![0.0; demands.len()];
        let mut x = 0.0;
        for n in 1..=sessions {
            let residences: Vec<f64> = demands.iter().zip(&queues).map(|(d, q)| d * (1.0 + q)).collect();
            x = f64::from(n) / (think + residences.iter().sum::<f64>());
            queues = residences.iter().map(|r| x * r).collect();
        }
        x
    }

    proptest! {
        /// The asymptotes bound the exact solution on both sides of the knee, and are reached far from it.
        #[test]
        fn asymptotes_bound_exact_solutions(
            think in 0.0..0.1f64, demands in prop::collection::vec(0.0001..0.01f64, 1..5), n in 1u32..60,
        ) {
            let resources: Vec<(f64, u32)> = demands.iter().map(|d| (*d, 1)).collect();
            let bounds = Asymptotes::of(think, &resources).unwrap();
            let x = throughput(think, &demands, n);
            prop_assert!(x <= bounds.most_throughput(f64::from(n)) * (1.0 + 1e-12));
            let residence = f64::from(n) / x - think;
            prop_assert!(residence >= bounds.least_residence_s(f64::from(n)) * (1.0 - 1e-9));
            let knee = bounds.knee();
            let crossing = bounds.most_throughput(knee) * bounds.largest_demand_s;
            prop_assert!((crossing - 1.0).abs() < 1e-9);
        }

        /// A law gives its own parameters back, whatever they are.
        #[test]
        fn points_of_a_law_give_the_law(
            lambda in 1.0..1e5f64, sigma in 0.0..0.5f64, kappa in 0.0..0.01f64,
        ) {
            let truth = Scalability { lambda, sigma, kappa, worst: 0.0, fitted_up_to: 64.0 };
            let points: Vec<(f64, f64)> =
                [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].map(|n| (n, truth.throughput(n))).to_vec();
            let law = Scalability::fit(&points).unwrap();
            prop_assert!((law.lambda / lambda - 1.0).abs() < 1e-6);
            prop_assert!((law.sigma - sigma).abs() < 1e-6 && (law.kappa - kappa).abs() < 1e-7);
            prop_assert!(law.worst < 1e-6);
        }
    }

    /// The shape of Gunther's ray-tracing benchmark on 64 processors (2007), numbers rounded; fitted with
    /// scipy 1.17.1 (lsq_linear with bounds at zero, relative errors).
    #[test]
    fn a_published_curve_has_its_published_shape() {
        let points = [
            (1.0, 20.0),
            (4.0, 78.0),
            (8.0, 130.0),
            (12.0, 170.0),
            (16.0, 190.0),
            (20.0, 200.0),
            (24.0, 210.0),
            (28.0, 230.0),
            (32.0, 260.0),
            (48.0, 280.0),
            (64.0, 310.0),
        ];
        let law = Scalability::fit(&points).unwrap();
        assert!(
            (law.lambda - 21.746_235_1).abs() < 1e-5 && (law.sigma - 0.056_856_528).abs() < 1e-7,
            "{law:?}"
        );
        assert!((law.kappa - 3.454_758e-6).abs() < 1e-10, "{law:?}");
        assert!(law.worst < 0.12 && law.peak().is_some_and(|peak| peak > 500.0), "{law:?}");
    }

    #[test]
    fn knees_are_arithmetic_and_called_knees() {
        let bounds = Asymptotes::of(0.09, &[(0.006, 1), (0.008, 2)]).unwrap();
        assert!((bounds.knee() - 0.104 / 0.006).abs() < 1e-12);
        assert_eq!(Asymptotes::of(1.0, &[(0.0, 1)]), None);
        let words = |kappa| {
            Scalability { lambda: 1.0, sigma: 0.1, kappa, worst: 0.02, fitted_up_to: 50.0 }.sentence()
        };
        assert!(words(0.001).contains("peaks near 30 sessions") && words(0.001).contains("not a capacity"));
        assert!(words(0.000_1).contains("beyond what was measured"));
        assert!(words(0.0).contains("no peak"));
        assert_eq!(Scalability::fit(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]), Err(CannotFit::TooFew));
        assert_eq!(Scalability::fit(&[(0.0, 1.0); 5]), Err(CannotFit::NotPositive));
    }
}
