//! Where a series changes its level: E-divisive (Matteson & James 2014) with sliding windows and weak points
//! (Fleming et al. 2023, "Hunter"), judged by Student's t as there, or by permutations as in the former.
//! Deterministic.

use super::rank::least_p;
use crate::probability::student_two_sided;
use crate::workload::Random;
use serde::Serialize;

/// How change-points are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChangeRule {
    /// Values looked at together; windows overlap by half.
    pub window: usize,
    /// Largest p of a change-point.
    pub most_p: f64,
    /// Smallest change, as a share of the level before or after, whichever gives more.
    pub least_change: f64,
    /// Where p comes from.
    pub test: ChangeTest,
}

/// Where the p of a change-point comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeTest {
    /// Student's t between both sides of the place, as if the place had been known before: quick, and for
    /// long series. It is the best of many places, so noise is accused more often than p says, and two values
    /// that happen to be equal make the third a change.
    Student,
    /// How often the values in another order give as large a change at their best place: what p says,
    /// whatever their distribution. Few values can never give a small one, see [`values_needed`].
    Permutations,
}

/// Fewest values in which permutations can give a change a p below `p`: of half of them on either level.
pub fn values_needed(p: f64) -> usize {
    (2..1000).find(|n| least_p(n / 2, n - n / 2) < p).unwrap_or(1000)
}

impl Default for ChangeRule {
    /// Hunter's: windows of 50, p below 0.001, any size.
    fn default() -> Self {
        ChangeRule { window: 50, most_p: 0.001, least_change: 0.0, test: ChangeTest::Student }
    }
}

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChangePoint {
    /// First value of the new level.
    pub at: usize,
    /// Mean from the change-point before to this one.
    pub before: f64,
    /// Mean from this one to the next.
    pub after: f64,
    /// Two-sided p of the rule's test.
    pub p: f64,
}

impl ChangePoint {
    /// The change as a share of the level before; infinite where that was 0.
    pub fn change(&self) -> f64 {
        if self.before == self.after { 0.0 } else { (self.after - self.before) / self.before.abs() }
    }

    fn magnitude(&self) -> f64 {
        let off = (self.after - self.before).abs();
        if off == 0.0 { 0.0 } else { (off / self.before.abs()).max(off / self.after.abs()) }
    }
}

/// All change-points of `series`, in order.
///
/// First pass: every window is split as long as the best split has a p ten times as large as allowed ("weak
/// points": the best split of a series with several changes may look poor until the others are found). Second
/// pass: the weakest is dropped, its neighbours are judged anew, until all that remain hold.
pub fn change_points(series: &[f64], rule: &ChangeRule) -> Vec<ChangePoint> {
    assert!(rule.window >= 2, "a window of at least 2 values");
    let weak_p = if rule.most_p < 0.05 { 10.0 * rule.most_p } else { (2.0 * rule.most_p).min(1.0) };
    let mut places: Vec<usize> = Vec::new();
    let mut start = 0;
    while start < series.len() {
        let end = (start + rule.window).min(series.len());
        let found = split(series, start, end, weak_p);
        start = (start + rule.window / 2).max(found.last().copied().unwrap_or(0));
        places.extend(found);
    }
    places.sort_unstable();
    places.dedup();
    keep_the_strong(series, places, rule)
}

fn keep_the_strong(series: &[f64], mut places: Vec<usize>, rule: &ChangeRule) -> Vec<ChangePoint> {
    loop {
        let points = judged(series, &places, rule);
        let weakest = |key: fn(&ChangePoint) -> f64| {
            (0..points.len()).max_by(|a, b| key(&points[*a]).total_cmp(&key(&points[*b])))
        };
        let drop = match weakest(|point| point.p) {
            None => return points,
            Some(i) if points[i].p >= rule.most_p => i,
            Some(_) => match weakest(|point| -point.magnitude()) {
                Some(i) if points[i].magnitude() < rule.least_change => i,
                _ => return points,
            },
        };
        places.remove(drop);
    }
}

/// Each place against its neighbours.
fn judged(series: &[f64], places: &[usize], rule: &ChangeRule) -> Vec<ChangePoint> {
    (0..places.len())
        .map(|i| {
            let from = if i == 0 { 0 } else { places[i - 1] };
            let to = places.get(i + 1).copied().unwrap_or(series.len());
            let point = compare(series, from, places[i], to);
            match rule.test {
                ChangeTest::Student => point,
                ChangeTest::Permutations => {
                    let p = permuted_p(&series[from..to], places[i] - from, rule.most_p);
                    ChangePoint { p, ..point }
                }
            }
        })
        .collect()
}

fn compare(series: &[f64], from: usize, at: usize, to: usize) -> ChangePoint {
    let (left, right) = (&series[from..at], &series[at..to]);
    let moments = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        (mean, part.iter().map(|x| (x - mean).powi(2)).sum::<f64>())
    };
    let ((before, squares_left), (after, squares_right)) = (moments(left), moments(right));
    let degrees = (left.len() + right.len()) as f64 - 2.0;
    // Two values that differ may be anything.
    let p = if degrees <= 0.0 || before == after {
        1.0
    } else {
        let variance = (squares_left + squares_right) / degrees;
        let error = (variance * (1.0 / left.len() as f64 + 1.0 / right.len() as f64)).sqrt();
        student_two_sided((after - before) / error, degrees)
    };
    ChangePoint { at, before, after, p }
}

/// p of a change of `values` at `at`: the share of their orders in which some place separates them as well,
/// by the sum of squares between both sides. The sum of all squares is the same in every order, so this
/// orders them as the largest t would, and needs no division by a spread that may be 0.
fn permuted_p(values: &[f64], at: usize, most_p: f64) -> f64 {
    /// A p right at its limit is then known within a tenth of itself, and orders are countable.
    const ORDERS: f64 = 100.0;
    const MOST_ORDERS: f64 = 200_000.0;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let mut centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let between = |sum: f64, left: f64| sum * sum * n / (left * (n - left));
    let seen = between(centred[..at].iter().sum(), at as f64);
    let most = |values: &[f64]| {
        let (mut sum, mut most) = (0.0, 0f64);
        for (place, value) in values[..values.len() - 1].iter().enumerate() {
            sum += value;
            most = most.max(between(sum, place as f64 + 1.0));
        }
        most
    };
    let orders = (ORDERS / most_p).min(MOST_ORDERS) as u32;
    let mut random = Random::new(1, values.len() as u64);
    let mut as_large = 0u32;
    for _ in 0..orders {
        random.shuffle(&mut centred);
        // Sums of the same values in another order differ in their last digits.
        as_large += u32::from(most(&centred) >= seen * (1.0 - 1e-9));
    }
    f64::from(as_large + 1) / f64::from(orders + 1)
}

/// Splits series[start..end] at its best place, then the parts, as long as the best of all is significant.
fn split(series: &[f64], start: usize, end: usize, most_p: f64) -> Vec<usize> {
    let mut places: Vec<usize> = Vec::new();
    loop {
        let edges: Vec<usize> =
            std::iter::once(start).chain(places.iter().copied()).chain(std::iter::once(end)).collect();
        let best = edges
            .windows(2)
            .filter_map(|part| best_split(&series[part[0]..part[1]]).map(|(at, q)| (part, part[0] + at, q)))
            .max_by(|a, b| a.2.total_cmp(&b.2));
        let Some((part, at, _)) = best else { return places };
        if compare(series, part[0], at, part[1]).p > most_p {
            return places;
        }
        let place = places.partition_point(|p| *p < at);
        places.insert(place, at);
    }
}

/// The place and size of the largest divergence Q between x[..t] and x[t..k] over all t < k (Matteson & James
/// 2014, equation 5 and 7): nm/(n + m) × (2 × mean distance across − mean distance within each).
///
/// Sums are carried from k to k + 1 and from t to t + 1, so it takes O(n²) and not O(n⁴).
fn best_split(x: &[f64]) -> Option<(usize, f64)> {
    let n = x.len();
    // earlier[j]: distances from x[j] to all before it; left[j]: to x[..t].
    let earlier: Vec<f64> = (0..n).map(|j| x[..j].iter().map(|y| (x[j] - y).abs()).sum()).collect();
    let mut left = vec![0.0; n];
    let mut within_left = 0.0;
    let mut best: Option<(usize, f64)> = None;
    for t in 1..n {
        for j in t..n {
            left[j] += (x[j] - x[t - 1]).abs();
        }
        within_left += earlier[t - 1];
        let (mut across, mut within_right) = (0.0, 0.0);
        for k in t + 1..=n {
            across += left[k - 1];
            within_right += earlier[k - 1] - left[k - 1];
            let q = divergence(t as f64, (k - t) as f64, across, within_left, within_right);
            if q > best.map_or(0.0, |(_, q)| q) {
                best = Some((t, q));
            }
        }
    }
    best
}

/// Q from sums of distances: across, and over pairs within either side.
fn divergence(n: f64, m: f64, across: f64, within_left: f64, within_right: f64) -> f64 {
    let pairs = |size: f64, sum: f64| if size > 1.0 { sum / (size - 1.0) / size } else { 0.0 };
    2.0 * n * m / (n + m) * (across / (n * m) - pairs(n, within_left) - pairs(m, within_right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;
    use proptest::prelude::*;

    fn places(series: &[f64], rule: &ChangeRule) -> Vec<usize> {
        change_points(series, rule).iter().map(|point| point.at).collect()
    }

    /// The series of Apache Otava's own tests (tests/change_point_divisive_test.py, tests/series_test.py) and
    /// where it finds their change-points.
    #[test]
    fn change_points_are_where_otava_finds_them() {
        let hunter = ChangeRule::default();
        let steps = [0.3, 2.4, 1.5, -0.9, -0.5, 99.7, 98.3, 99.1, 149.0, 149.7, 149.5, 149.1, 148.8, 150.0];
        assert_eq!(split(&steps, 0, steps.len(), 0.01), [5, 8]);
        let one = [1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55];
        let two = [2.02, 2.03, 2.01, 2.04, 1.82, 1.85, 1.79, 1.81, 1.80, 1.76, 1.78];
        assert_eq!((places(&one, &hunter), places(&two, &hunter)), (vec![6], vec![4]));
        let large = ChangeRule { least_change: 0.2, ..hunter };
        assert_eq!((places(&one, &large), places(&two, &large)), (vec![6], vec![]));
        let longer: Vec<f64> = two.into_iter().chain([1.97]).collect();
        assert_eq!(places(&longer, &hunter), [4]);
        assert_eq!(split(&longer, 0, longer.len(), 0.01), [4, 11]);
        let constant: Vec<f64> = [(1.0, 5), (5.0, 8), (9.0, 8), (3.0, 9)]
            .into_iter()
            .flat_map(|(value, times)| std::iter::repeat_n(value, times))
            .collect();
        assert_eq!(places(&constant, &ChangeRule { most_p: 0.05, ..hunter }), [5, 13, 21]);
        let zero = [0.0, 0.0, 0.0, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55];
        let found = places(&zero, &hunter);
        assert_eq!((found.len(), found[0]), (2, 3));
    }

    /// The culprit: two values that happen to be the same, and a third one. A hundred honest series of noise,
    /// and nothing at all.
    #[test]
    fn permutations_accuse_no_more_than_they_say() {
        let strict =
            |p: f64| ChangeRule { most_p: p, test: ChangeTest::Permutations, ..ChangeRule::default() };
        let three = [100.0, 100.0, 189.0];
        assert_eq!(places(&three, &ChangeRule::default()), [2], "what Student's t says of it");
        assert!(places(&three, &strict(0.05)).is_empty());
        assert_eq!((places(&[], &strict(0.05)), places(&[1.0], &strict(0.05))), (vec![], vec![]));
        let p = permuted_p(&three, 2, 0.01);
        assert!((p - 2.0 / 3.0).abs() < 0.02, "the odd one stands at an end in two orders of three: {p}");
        // 20 orders of three and three, and in two of them the sides are apart.
        let p = permuted_p(&[1.0, 1.1, 0.9, 5.0, 5.1, 4.9], 3, 0.01);
        assert!((p - 0.1).abs() < 0.01, "{p}");
        let noise = |seed: u64, n: usize| -> Vec<f64> {
            let mut random = Random::new(seed, 3);
            (0..n).map(|_| random.exponential(1.0)).collect()
        };
        let accused =
            |n: usize| (0..100).filter(|seed| !places(&noise(*seed, n), &strict(0.05)).is_empty()).count();
        let (few, many) = (accused(12), accused(60));
        println!(
            "at p < 0.05 permutations accuse {few} and {many} of 100 series of 12 and 60 values of noise"
        );
        assert!(few <= 10 && many <= 10, "{few} and {many} of 100");
        let mut found = 0;
        for seed in 0..50 {
            let change: Vec<f64> = noise(seed, 40)
                .iter()
                .enumerate()
                .map(|(i, x)| 20.0 + x + if i < 20 { 0.0 } else { 3.0 })
                .collect();
            found += usize::from(places(&change, &strict(0.01)).iter().any(|at| at.abs_diff(20) <= 3));
        }
        assert!(found >= 47, "{found} of 50 changes of three deviations");
    }

    #[test]
    fn so_few_values_can_never_show_a_change() {
        // 2 ÷ (12 over 6) = 0.0022, 2 ÷ (14 over 7) = 0.00058.
        assert_eq!((values_needed(0.01), values_needed(0.001)), (10, 14));
        let apart = |n: usize| -> Vec<f64> {
            (0..n).map(|i| if i < n / 2 { 1.0 } else { 2.0 } + i as f64 * 1e-6).collect()
        };
        let rule = ChangeRule { most_p: 0.01, test: ChangeTest::Permutations, ..ChangeRule::default() };
        assert!(places(&apart(8), &rule).is_empty());
        assert_eq!(places(&apart(12), &rule), [6]);
    }

    fn by_definition(x: &[f64]) -> f64 {
        let mut most = 0f64;
        for t in 1..x.len() {
            for k in t + 1..=x.len() {
                let (a, b) = (&x[..t], &x[t..k]);
                let mean = |a: &[f64], b: &[f64], pairs: f64| {
                    let sum: f64 = a.iter().map(|x| b.iter().map(|y| (x - y).abs()).sum::<f64>()).sum();
                    if pairs > 0.0 { sum / pairs } else { 0.0 }
                };
                let (n, m) = (a.len() as f64, b.len() as f64);
                let energy = 2.0 * mean(a, b, n * m) - mean(a, a, n * (n - 1.0)) - mean(b, b, m * (m - 1.0));
                most = most.max(n * m / (n + m) * energy);
            }
        }
        most
    }

    proptest! {
        #[test]
        fn the_recurrence_is_the_definition(x in prop::collection::vec(-10.0..10.0f64, 2..14)) {
            let (got, wanted) = (best_split(&x).map_or(0.0, |(_, q)| q), by_definition(&x));
            prop_assert!((got - wanted).abs() < 1e-9, "{} and {}", got, wanted);
        }

        /// Level and scale of a series do not move its change-points.
        #[test]
        fn units_do_not_matter(seed in 0u64..50, scale in 0.1..1000.0f64) {
            let mut random = Random::new(seed, 0);
            let series: Vec<f64> = (0..60).map(|i| random.unit() + f64::from(u8::from(i >= 30))).collect();
            let scaled: Vec<f64> = series.iter().map(|x| x * scale).collect();
            let rule = ChangeRule::default();
            prop_assert_eq!(places(&series, &rule), places(&scaled, &rule));
        }
    }

    #[test]
    fn real_changes_are_found_and_noise_is_acquitted() {
        let (mut found, mut accused) = (0, 0);
        for seed in 0..200 {
            let mut random = Random::new(seed, 0);
            let mut normal = |mean: f64| mean + (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            let noise: Vec<f64> = (0..100).map(|_| normal(100.0)).collect();
            let change: Vec<f64> = (0..100).map(|i| normal(if i < 60 { 100.0 } else { 102.0 })).collect();
            accused += u32::from(!places(&noise, &ChangeRule::default()).is_empty());
            let places = places(&change, &ChangeRule::default());
            found += u32::from(places.len() == 1 && places[0].abs_diff(60) <= 3);
        }
        println!(
            "found {found} of 200 changes of two standard deviations, accused {accused} of 200 of noise"
        );
        assert!(found >= 180, "{found} of 200");
        assert!(accused <= 20, "{accused} of 200");
    }
}
