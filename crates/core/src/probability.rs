//! The distributions that tests and intervals need. `statrs` computes them; here they get the names and the
//! tails that are wanted, and are checked against another implementation.

use statrs::distribution::{
    Beta, Binomial, ChiSquared, Continuous, ContinuousCDF, DiscreteCDF, Normal, StudentsT,
};

/// The z that a standard normal exceeds on either side with 5 % in all: `normal_quantile(0.975)`.
pub const Z_95: f64 = 1.959_963_984_540_054;

/// P(Z ≤ z) of the standard normal distribution.
pub fn normal(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// The z with P(Z ≤ z) = `p`; `p` must lie within 0 and 1.
pub fn normal_quantile(p: f64) -> f64 {
    assert!(p > 0.0 && p < 1.0, "a probability strictly between 0 and 1: {p}");
    Normal::standard().inverse_cdf(p)
}

/// The x with P(X > x) = `above`, from the library's own, which is good to three digits where a shape is
/// about a million: Newton's steps make them all.
fn quantile(of: &(impl Continuous<f64, f64> + ContinuousCDF<f64, f64>), above: f64) -> f64 {
    let mut x = of.inverse_cdf(1.0 - above);
    for _ in 0..20 {
        let step = (of.sf(x) - above) / of.pdf(x);
        x += step;
        if !step.is_finite() || step.abs() <= 1e-14 * x.abs() {
            break;
        }
    }
    x
}

fn student(degrees: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, degrees).expect("degrees of freedom are above 0")
}

/// P(|T| ≥ |t|) of Student's t with `degrees` of freedom.
pub fn student_two_sided(t: f64, degrees: f64) -> f64 {
    2.0 * student(degrees).sf(t.abs())
}

/// The t that is exceeded on either side with probability `p` in all.
pub fn student_quantile(p: f64, degrees: f64) -> f64 {
    quantile(&student(degrees), p / 2.0)
}

/// P(X > x) of chi-square with `degrees` of freedom.
pub fn chi_square_above(x: f64, degrees: f64) -> f64 {
    ChiSquared::new(degrees).expect("degrees of freedom are above 0").sf(x.max(0.0))
}

/// P(X ≤ k) of a binomial with `n` trials of probability `p`.
pub fn binomial(k: u64, n: u64, p: f64) -> f64 {
    Binomial::new(p, n).expect("a probability").cdf(k)
}

/// The highest probability that still gives `k` or fewer of `n` with a chance of 1 − `confidence`: one-sided
/// (Clopper & Pearson 1934). For k = 0 it is 1 − (1 − confidence)^(1/n), which the rule of three rounds to
/// 3/n.
///
/// 1 for n = 0: nothing was tried, so nothing is excluded.
pub fn upper_bound(k: u64, n: u64, confidence: f64) -> f64 {
    assert!(k <= n, "{k} of {n}");
    if k == n {
        return 1.0;
    }
    quantile(&Beta::new(k as f64 + 1.0, (n - k) as f64).expect("shapes are above 0"), 1.0 - confidence)
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

    fn assert_close(got: f64, wanted: f64) {
        assert!((got - wanted).abs() <= 1e-10 * wanted.abs().max(1e-3), "{got} instead of {wanted}");
    }

    /// Computed with scipy 1.17.1.
    #[test]
    fn values_agree_with_scipy() {
        assert_close(normal(-6.0), 9.865876450376946e-10);
        assert_close(normal(-2.5), 0.006209665325776132);
        assert_close(normal(-0.3), 0.3820885778110474);
        assert_close(normal(0.0), 0.5);
        assert_close(normal(1.0), 0.8413447460685429);
        assert_close(normal(1.959963984540054), 0.975);
        assert_close(normal(3.7), 0.9998922002665226);
        assert_close(student_two_sided(0.5, 1.0), 0.7048327646991335);
        assert_close(student_two_sided(2.2, 4.0), 0.09265267017963459);
        assert_close(student_two_sided(3.1, 9.5), 0.011938364092813332);
        assert_close(student_two_sided(1.97, 200.0), 0.05021860451812482);
        assert_close(student_two_sided(6.0, 30.0), 1.3942768767204764e-6);
        assert_close(student_two_sided(f64::INFINITY, 3.0), 0.0);
        assert_close(student_two_sided(-2.2, 4.0), student_two_sided(2.2, 4.0));
        assert_close(chi_square_above(0.1, 1.0), 0.7518296340458492);
        assert_close(chi_square_above(3.84, 1.0), 0.05004352124870519);
        assert_close(chi_square_above(12.0, 5.0), 0.03478778050624185);
        assert_close(chi_square_above(40.0, 23.0), 0.015369082400709319);
        assert_close(chi_square_above(300.0, 250.0), 0.016518273157868715);
        assert_close(chi_square_above(0.0, 3.0), 1.0);
        assert_close(binomial(0, 10, 0.3), 0.028247524900000005);
        assert_close(binomial(3, 10, 0.3), 0.6496107184000002);
        assert_close(binomial(9890, 10000, 0.99), 0.16939377362840238);
        assert_close(binomial(9930, 10000, 0.99), 0.9993722482734844);
        assert_close(binomial(99000, 100000, 0.99), 0.5042686879721225);
        assert_close(binomial(10, 10, 0.3), 1.0);
    }

    /// The 97.5 % points of Abramowitz & Stegun, table 26.10, and what they tend to beyond its last row: at
    /// 31 degrees of freedom it is 2.040 and not yet the normal's 1.960.
    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        let table = [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (31.0, 2.040)];
        for (degrees, wanted) in table.into_iter().chain([(40.0, 2.021), (60.0, 2.000), (120.0, 1.980)]) {
            let got = student_quantile(0.05, degrees);
            assert!((got - wanted).abs() < 6e-4, "{degrees} degrees of freedom: {got} instead of {wanted}");
        }
        assert!((student_quantile(0.05, 1e7) - Z_95).abs() < 1e-6, "{}", student_quantile(0.05, 1e7));
    }

    #[test]
    fn quantiles_invert() {
        for p in [1e-6, 0.01, 0.3, 0.5, 0.975, 0.999] {
            assert_close(normal(normal_quantile(p)), p);
        }
        assert_close(normal_quantile(0.975), Z_95);
        for degrees in [1.0, 2.0, 7.0, 30.0, 31.0, 1000.0, 1e6] {
            for p in [1e-6, 0.001, 0.05, 0.3] {
                assert_close(student_two_sided(student_quantile(p, degrees), degrees), p);
            }
        }
    }

    #[test]
    fn a_binomial_is_the_sum_of_its_terms() {
        for n in [1u64, 5, 40] {
            for p in [0.01f64, 0.5, 0.99] {
                let (mut sum, mut choose) = (0.0, 1.0);
                for k in 0..n {
                    sum += choose * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32);
                    choose *= (n - k) as f64 / (k + 1) as f64;
                    assert!((binomial(k, n, p) - sum).abs() < 1e-10, "{k} of {n} at {p}");
                }
            }
        }
    }

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
        for n in [1u64, 30, 1000, 1_000_000] {
            let exact = 1.0 - 0.05f64.powf(1.0 / n as f64);
            assert!((upper_bound(0, n, 0.95) / exact - 1.0).abs() < 1e-6, "0 of {n}");
        }
        for (k, n) in [(1, 20), (7, 31), (40, 900), (3, 100_000)] {
            let chance = binomial(k, n, upper_bound(k, n, 0.95));
            assert!((chance - 0.05).abs() < 1e-6, "{k} of {n}: {chance}");
        }
    }
}
