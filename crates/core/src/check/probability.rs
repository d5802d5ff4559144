//! How much k of n says: exact intervals for a share (Clopper and Pearson 1934).

/// ln(n!) for 0..=n.
fn ln_factorials(n: u64) -> Vec<f64> {
    let mut sums = vec![0.0];
    let mut sum = 0.0;
    for i in 1..=n {
        sum += (i as f64).ln();
        sums.push(sum);
    }
    sums
}

/// P(X ≤ k) for X binomial over n trials of probability p.
fn cumulative(k: u64, n: u64, p: f64, ln: &[f64]) -> f64 {
    if p <= 0.0 || k >= n {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let term = |i: u64| {
        let ways = ln[n as usize] - ln[i as usize] - ln[(n - i) as usize];
        (ways + i as f64 * p.ln() + (n - i) as f64 * (-p).ln_1p()).exp()
    };
    (0..=k).map(term).sum::<f64>().min(1.0)
}

/// The p where `below(p)` turns false, to 2⁻⁶⁰.
fn bisect(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if below(middle) { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The highest probability that still gives `k` or fewer of `n` with a chance of 1 − `confidence`: one-sided.
/// For k = 0 it is 1 − (1 − confidence)^(1/n), which the rule of three rounds to 3/n.
///
/// 1 for n = 0: nothing was tried, so nothing is excluded.
pub fn upper_bound(k: u64, n: u64, confidence: f64) -> f64 {
    assert!(k <= n, "{k} of {n}");
    if k == n {
        return 1.0;
    }
    if k == 0 {
        return 1.0 - (1.0 - confidence).powf(1.0 / n as f64);
    }
    let ln = ln_factorials(n);
    bisect(|p| cumulative(k, n, p, &ln) > 1.0 - confidence)
}

/// The lowest probability that still gives `k` or more of `n` with a chance of 1 − `confidence`: one-sided.
pub fn lower_bound(k: u64, n: u64, confidence: f64) -> f64 {
    assert!(k <= n, "{k} of {n}");
    1.0 - upper_bound(n - k, n, confidence)
}

/// Both ends of the two-sided interval of a share of `k` in `n`: Clopper and Pearson's.
pub fn interval(k: u64, n: u64, confidence: f64) -> (f64, f64) {
    let each = 1.0 - (1.0 - confidence) / 2.0;
    (lower_bound(k, n, each), upper_bound(k, n, each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_tables() {
        // 0 of 30: 1 − 0.05^(1/30); 60 crashes exclude 5 % and 30 exclude 10 %.
        assert!((upper_bound(0, 30, 0.95) - 0.0950).abs() < 1e-4);
        assert!(upper_bound(0, 60, 0.95) < 0.05 && upper_bound(0, 58, 0.95) > 0.05);
        // Clopper and Pearson for 3 of 10: 0.0667 to 0.6525; 5 of 5: 0.4782 to 1.
        let (low, high) = interval(3, 10, 0.95);
        assert!((low - 0.0667).abs() < 1e-4 && (high - 0.6525).abs() < 1e-4, "{low} {high}");
        let (low, high) = interval(5, 5, 0.95);
        assert!((low - 0.4782).abs() < 1e-4 && high == 1.0, "{low} {high}");
        assert_eq!(upper_bound(0, 0, 0.95), 1.0);
    }

    #[test]
    fn the_bound_is_where_the_chance_is_five_percent() {
        for (k, n) in [(1, 20), (7, 31), (40, 900)] {
            let p = upper_bound(k, n, 0.95);
            let chance = cumulative(k, n, p, &ln_factorials(n));
            assert!((chance - 0.05).abs() < 1e-9, "{k} of {n}: {chance}");
        }
    }
}
