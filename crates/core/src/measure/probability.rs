//! Distribution functions that the tests need, to about 12 digits.

use std::f64::consts::{PI, SQRT_2};

/// P(Z ≤ z) of the standard normal distribution.
pub fn normal(z: f64) -> f64 {
    // By the incomplete gamma function: erf(x) = P(1/2, x²).
    let half = 0.5 * lower_gamma(0.5, z * z / 2.0);
    if z < 0.0 { 0.5 - half } else { 0.5 + half }
}

/// The z with P(Z ≤ z) = `p`, by bisection on [`normal`]; `p` must lie within 0 and 1.
pub fn normal_quantile(p: f64) -> f64 {
    assert!(p > 0.0 && p < 1.0, "a probability strictly between 0 and 1: {p}");
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if normal(middle) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Two-sided p of Student's t with `degrees` of freedom.
pub fn student_two_sided(t: f64, degrees: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// The t that is exceeded on either side with probability `p` in all, by bisection on [`student_two_sided`].
pub fn student_quantile(p: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_two_sided(high, degrees) > p {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if student_two_sided(middle, degrees) > p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// P(X > x) of chi-square with `degrees` of freedom.
pub fn chi_square_above(x: f64, degrees: f64) -> f64 {
    1.0 - lower_gamma(degrees / 2.0, x.max(0.0) / 2.0)
}

/// P(X ≤ k) of a binomial with `n` trials of probability `p`.
pub fn binomial(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    incomplete_beta((n - k) as f64, k as f64 + 1.0, 1.0 - p)
}

/// ln Γ(x) for x > 0: Lanczos' approximation with g = 7 and 9 terms (Godfrey's coefficients), 15 digits.
pub fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return (PI / (PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum = C.iter().enumerate().skip(1).fold(C[0], |sum, (i, c)| sum + c / (x + i as f64));
    let t = x + 7.5;
    (SQRT_2 * PI.sqrt()).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// P(a, x), the regularised lower incomplete gamma function: series below a + 1, continued fraction above
/// (Abramowitz & Stegun 6.5.29, 6.5.31).
fn lower_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return front * sum;
    }
    // Γ(a, x) = e^−x x^a · 1/(x + 1 − a − 1(1 − a)/(x + 3 − a − 2(2 − a)/(x + 5 − a − ...))).
    let fraction = (1..2000).rev().fold(0.0, |tail, n| {
        let n = f64::from(n);
        n * (n - a) / (x + 2.0 * n + 1.0 - a - tail)
    });
    1.0 - front / (x + 1.0 - a - fraction)
}

/// I_x(a, b), the regularised incomplete beta function, by its continued fraction (Abramowitz & Stegun
/// 26.5.8), evaluated from the far end.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges quickly below the mean; the other side is its mirror.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    // Enough terms for parameters as large as sample sizes: convergence takes about the root of the larger
    // one.
    let terms = 200 + 10 * (a.max(b).sqrt() as u32);
    let fraction = (1..=2 * terms).rev().fold(1.0, |tail, n| {
        let m = f64::from(n / 2);
        let d = if n % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        1.0 + d / tail
    });
    front / fraction
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
        assert_close(chi_square_above(0.1, 1.0), 0.7518296340458492);
        assert_close(chi_square_above(3.84, 1.0), 0.05004352124870519);
        assert_close(chi_square_above(12.0, 5.0), 0.03478778050624185);
        assert_close(chi_square_above(40.0, 23.0), 0.015369082400709319);
        assert_close(chi_square_above(300.0, 250.0), 0.016518273157868715);
        assert_close(binomial(0, 10, 0.3), 0.028247524900000005);
        assert_close(binomial(3, 10, 0.3), 0.6496107184000002);
        assert_close(binomial(9890, 10000, 0.99), 0.16939377362840238);
        assert_close(binomial(9930, 10000, 0.99), 0.9993722482734844);
        assert_close(binomial(99000, 100000, 0.99), 0.5042686879721225);
        assert_close(ln_gamma(0.1), 2.252712651734206);
        assert_close(ln_gamma(0.5), 0.5723649429247);
        assert_close(ln_gamma(1.0), 0.0);
        assert_close(ln_gamma(7.5), 7.534364236758734);
        assert_close(ln_gamma(100.0), 359.1342053695754);
        assert_close(ln_gamma(12345.6), 103959.18506616844);
    }

    #[test]
    fn quantiles_invert() {
        for p in [1e-6, 0.01, 0.3, 0.5, 0.975, 0.999] {
            assert_close(normal(normal_quantile(p)), p);
        }
        for degrees in [1.0, 2.0, 7.0, 30.0, 1000.0] {
            assert_close(student_two_sided(student_quantile(0.05, degrees), degrees), 0.05);
        }
    }

    #[test]
    fn a_binomial_is_the_sum_of_its_terms() {
        for n in [1u64, 5, 40] {
            for p in [0.01, 0.5, 0.99] {
                let mut sum = 0.0;
                for k in 0..n {
                    let choose =
                        ln_gamma(n as f64 + 1.0) - ln_gamma(k as f64 + 1.0) - ln_gamma((n - k) as f64 + 1.0);
                    sum += (choose + k as f64 * f64::ln(p) + (n - k) as f64 * f64::ln(1.0 - p)).exp();
                    assert!((binomial(k, n, p) - sum).abs() < 1e-10, "{k} of {n} at {p}");
                }
            }
        }
    }
}
