//! Comparisons by rank, which assume no distribution.

use crate::probability::normal;

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_in_place(&mut sorted)
}

/// The median, the values shuffled on the way.
pub(super) fn median_in_place(values: &mut [f64]) -> Option<f64> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let (below, middle, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    let middle = *middle;
    if n % 2 == 1 {
        return Some(middle);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, middle))
}

/// Median absolute deviation from the median, times 1.4826: the standard deviation of normal values, but deaf
/// to outliers.
pub fn robust_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let mut off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median_in_place(&mut off).map(|off| 1.4826 * off)
}

/// By how much `b` lies above `a`: the median of all differences (Hodges & Lehmann 1963).
pub fn shift(a: &[f64], b: &[f64]) -> Option<f64> {
    let mut differences: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b - a)).collect();
    median_in_place(&mut differences)
}

/// The same for pairs: the median of all means of two differences, each with itself too (Walsh averages).
pub fn shift_of_pairs(differences: &[f64]) -> Option<f64> {
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (i, a) in differences.iter().enumerate() {
        means.extend(differences[i..].iter().map(|b| f64::midpoint(*a, *b)));
    }
    median_in_place(&mut means)
}

/// P(b > a) − P(b < a), from −1 to 1 (Cliff 1993). Romano et al. 2006 call less than 0.147 negligible, less
/// than 0.33 small, less than 0.474 medium, anything above large.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> f64 {
    let sign = |a: f64, b: f64| f64::from(i8::from(b > a) - i8::from(b < a));
    let sum: f64 = a.iter().map(|a| b.iter().map(|b| sign(*a, *b)).sum::<f64>()).sum();
    sum / (a.len() * b.len()) as f64
}

/// With more values than this, p comes from the normal approximation, which is then good to about 1 %.
const EXACT_UP_TO: usize = 60;

/// Twice the ranks, ties sharing their mean rank: whole numbers. And Σ (t³ − t) over ties of t.
fn doubled_ranks(values: &[f64]) -> (Vec<usize>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let (mut start, mut ties) = (0, 0.0);
    while start < order.len() {
        let end = start + order[start..].iter().take_while(|i| values[**i] == values[order[start]]).count();
        for &i in &order[start..end] {
            ranks[i] = start + end + 1;
        }
        let t = (end - start) as f64;
        ties += t.powi(3) - t;
        start = end;
    }
    (ranks, ties)
}

/// Twice the smaller tail, at most 1.
fn two_sided(below_or_at: f64, above_or_at: f64) -> f64 {
    (2.0 * below_or_at.min(above_or_at)).min(1.0)
}

/// Two-sided p that `a` and `b` come from one distribution (Mann & Whitney 1947): exact, also with ties, up
/// to 60 values in all, by counting all ways to draw the ranks of `a`; else normal with corrections for ties
/// and continuity.
///
/// # Panics
/// If either is empty, which is a fault of the caller.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    assert!(!a.is_empty() && !b.is_empty(), "nothing to compare");
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let (ranks, ties) = doubled_ranks(&all);
    let (n, m) = (a.len(), b.len());
    let seen: usize = ranks[..n].iter().sum();
    if n + m > EXACT_UP_TO {
        let (n, m) = (n as f64, m as f64);
        let whole = n + m;
        let u = seen as f64 / 2.0 - n * (n + 1.0) / 2.0;
        let variance = n * m / 12.0 * (whole + 1.0 - ties / (whole * (whole - 1.0)));
        return normal_p(u - n * m / 2.0, variance);
    }
    // ways[k][s]: subsets of k values whose doubled ranks sum to s.
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0f64; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for k in (1..=n).rev() {
            let (fewer, these) = ways.split_at_mut(k);
            for sum in rank..=most {
                these[0][sum] += fewer[k - 1][sum - rank];
            }
        }
    }
    tails(&ways[n], seen)
}

fn tails(ways: &[f64], seen: usize) -> f64 {
    let all: f64 = ways.iter().sum();
    let below: f64 = ways[..=seen].iter().sum();
    let above: f64 = ways[seen..].iter().sum();
    two_sided(below / all, above / all)
}

/// Two-sided, corrected for continuity by half a step.
fn normal_p(off: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return 1.0;
    }
    (2.0 * normal(-((off.abs() - 0.5).max(0.0)) / variance.sqrt())).min(1.0)
}

/// Two-sided p that paired differences lie symmetrically about zero (Wilcoxon 1945): zeros are dropped;
/// exact, also with ties, up to 60 differences by counting all signs; else normal with corrections.
pub fn wilcoxon(differences: &[f64]) -> f64 {
    let moved: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if moved.is_empty() {
        return 1.0;
    }
    let sizes: Vec<f64> = moved.iter().map(|d| d.abs()).collect();
    let (ranks, ties) = doubled_ranks(&sizes);
    let seen: usize = ranks.iter().zip(&moved).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    if moved.len() > EXACT_UP_TO {
        let n = moved.len() as f64;
        let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0;
        return normal_p(seen as f64 / 2.0 - n * (n + 1.0) / 4.0, variance);
    }
    let most: usize = ranks.iter().sum();
    let mut ways = vec![0f64; most + 1];
    ways[0] = 1.0;
    for &rank in &ranks {
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    tails(&ways, seen)
}

/// Smallest p that this number of values can give: with fewer repeats nothing is ever significant.
pub fn least_p(n: usize, m: usize) -> f64 {
    let choose: f64 = (0..n.min(m)).map(|i| (n + m - i) as f64 / (i + 1) as f64).product();
    (2.0 / choose).min(1.0)
}

/// Smallest p that this number of pairs can give.
pub fn least_p_of_pairs(pairs: usize) -> f64 {
    (2.0 / 2f64.powi(pairs as i32)).min(1.0)
}

/// Adjusts p-values of a family of comparisons so that the chance of any false alarm stays below the level
/// (Holm 1979), in the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let (mut adjusted, mut largest) = (vec![0.0; p.len()], 0f64);
    for (place, &i) in order.iter().enumerate() {
        largest = largest.max(((p.len() - place) as f64 * p[i]).min(1.0));
        adjusted[i] = largest;
    }
    adjusted
}

/// p that several groups come from one distribution (Kruskal & Wallis 1952), by chi-square with ties
/// corrected: is the hour of the day in the canaries? `None` with fewer than two groups or without any
/// difference.
pub fn kruskal_wallis(groups: &[Vec<f64>]) -> Option<f64> {
    let groups: Vec<&Vec<f64>> = groups.iter().filter(|group| !group.is_empty()).collect();
    let all: Vec<f64> = groups.iter().flat_map(|group| group.iter().copied()).collect();
    let (ranks, ties) = doubled_ranks(&all);
    let n = all.len() as f64;
    let correction = 1.0 - ties / (n.powi(3) - n);
    if groups.len() < 2 || correction <= 0.0 {
        return None;
    }
    let (mut start, mut sum) = (0, 0.0);
    for group in &groups {
        let own: usize = ranks[start..start + group.len()].iter().sum();
        sum += (own as f64 / 2.0).powi(2) / group.len() as f64;
        start += group.len();
    }
    let h = (12.0 / (n * (n + 1.0)) * sum - 3.0 * (n + 1.0)) / correction;
    Some(crate::probability::chi_square_above(h, groups.len() as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;
    use proptest::prelude::*;

    fn assert_close(got: f64, wanted: f64) {
        assert!((got - wanted).abs() <= 1e-9 * wanted.abs().max(1e-6), "{got} instead of {wanted}");
    }

    /// Computed with scipy 1.17.1: mannwhitneyu and wilcoxon, exact and asymptotic, kruskal.
    #[test]
    fn values_agree_with_scipy() {
        let (a, b) = (&[12.1, 11.8, 12.6, 12.0, 12.9, 11.5], &[12.8, 13.1, 12.7, 13.4, 12.2]);
        assert_close(mann_whitney(a, b), 0.05194805194805195);
        assert_close(wilcoxon(&[0.4, -0.1, 0.7, 0.9, -0.3, 1.2, 0.2, 0.55]), 0.0546875);
        // Above 60 values, with ties: the normal approximation.
        let long = |n: i32, factor: i32, modulus: i32| {
            (0..n).map(|i| f64::from(i * factor % modulus)).collect::<Vec<_>>()
        };
        let (c, d) = (long(40, 7, 23), long(45, 11, 29));
        assert_close(mann_whitney(&c, &d), 0.13765051629309466);
        let e: Vec<f64> = long(70, 7, 23).into_iter().map(|x| x - 9.0).collect();
        assert_close(wilcoxon(&e), 0.03224862950945143);
        let groups = [a.to_vec(), b.to_vec(), vec![12.3, 12.6, 13.0, 11.9]];
        assert_close(kruskal_wallis(&groups).unwrap(), 0.10160245941715873);
        assert_eq!(kruskal_wallis(&[vec![1.0], vec![1.0]]), None);
    }

    /// Every way to choose which of the values are called a.
    fn mann_whitney_by_enumeration(a: &[f64], b: &[f64]) -> f64 {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let u = |chosen: u32| -> f64 {
            let (mut x, mut y) = (vec![], vec![]);
            for (i, value) in all.iter().enumerate() {
                if chosen >> i & 1 == 1 { x.push(*value) } else { y.push(*value) }
            }
            cliffs_delta(&x, &y)
        };
        let seen = u((1 << a.len()) - 1);
        let (mut below, mut above, mut ways) = (0.0, 0.0, 0.0);
        for chosen in (0..1u32 << all.len()).filter(|chosen| chosen.count_ones() as usize == a.len()) {
            let this = u(chosen);
            ways += 1.0;
            below += f64::from(u8::from(this <= seen + 1e-12));
            above += f64::from(u8::from(this >= seen - 1e-12));
        }
        two_sided(below / ways, above / ways)
    }

    fn wilcoxon_by_enumeration(differences: &[f64]) -> f64 {
        let moved: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
        let (ranks, _) = doubled_ranks(&moved.iter().map(|d| d.abs()).collect::<Vec<_>>());
        let sum = |signs: u32| -> usize {
            (0..moved.len()).filter(|i| signs >> i & 1 == 1).map(|i| ranks[i]).sum()
        };
        let own = (0..moved.len()).filter(|i| moved[*i] > 0.0).fold(0u32, |signs, i| signs | 1 << i);
        let (seen, all) = (sum(own), 1u32 << moved.len());
        let share = |keep: &dyn Fn(usize) -> bool| {
            (0..all).filter(|signs| keep(sum(*signs))).count() as f64 / f64::from(all)
        };
        two_sided(share(&|s| s <= seen), share(&|s| s >= seen))
    }

    proptest! {
        /// Few different values, so that ties are the rule.
        #[test]
        fn exact_p_is_what_enumeration_gives(
            a in prop::collection::vec(0..6i32, 1..6), b in prop::collection::vec(0..6i32, 1..6),
        ) {
            let real = |v: &[i32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let (a, b) = (real(&a), real(&b));
            let difference = (mann_whitney(&a, &b) - mann_whitney_by_enumeration(&a, &b)).abs();
            prop_assert!(difference < 1e-12, "{}", difference);
        }

        #[test]
        fn exact_p_of_pairs_is_what_enumeration_gives(d in prop::collection::vec(-4..5i32, 1..11)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let moved = d.iter().any(|d| *d != 0.0);
            let wanted = if moved { wilcoxon_by_enumeration(&d) } else { 1.0 };
            prop_assert!((wilcoxon(&d) - wanted).abs() < 1e-12);
        }

        /// Swapping sides turns signs and leaves p; shifting and scaling do what they say.
        #[test]
        fn symmetries_hold(
            a in prop::collection::vec(-100.0..100.0f64, 2..12),
            b in prop::collection::vec(-100.0..100.0f64, 2..12),
            by in -50.0..50.0f64,
        ) {
            prop_assert!((shift(&a, &b).unwrap() + shift(&b, &a).unwrap()).abs() < 1e-9);
            prop_assert!((cliffs_delta(&a, &b) + cliffs_delta(&b, &a)).abs() < 1e-12);
            prop_assert!((mann_whitney(&a, &b) - mann_whitney(&b, &a)).abs() < 1e-12);
            let moved: Vec<f64> = b.iter().map(|b| b + by).collect();
            prop_assert!((shift(&a, &moved).unwrap() - shift(&a, &b).unwrap() - by).abs() < 1e-9);
            prop_assert!((-1.0..=1.0).contains(&cliffs_delta(&a, &b)));
        }

        /// Holm never lowers a p, keeps the order, and is at least as mild as Bonferroni.
        #[test]
        fn holm_lies_between_nothing_and_bonferroni(p in prop::collection::vec(0.0..1.0f64, 1..20)) {
            let adjusted = holm(&p);
            for (i, (p_i, adjusted_i)) in p.iter().zip(&adjusted).enumerate() {
                prop_assert!(*adjusted_i >= *p_i && *adjusted_i <= (p.len() as f64 * p_i).min(1.0) + 1e-12);
                for (p_j, adjusted_j) in p[i..].iter().zip(&adjusted[i..]) {
                    prop_assert!((p_i <= p_j) == (adjusted_i <= adjusted_j) || adjusted_i == adjusted_j);
                }
            }
        }
    }

    #[test]
    fn exact_and_normal_agree_where_they_meet() {
        for seed in 0..20 {
            let mut random = Random::new(seed, 0);
            let mut values = |n: usize, by: f64| (0..n).map(|_| random.unit() + by).collect::<Vec<f64>>();
            let (a, b) = (values(30, 0.0), values(30, 0.15));
            let exact = mann_whitney(&a, &b);
            let (n, u) = (30.0, 450.0 * (1.0 - cliffs_delta(&a, &b)));
            let approximate = normal_p(u - 450.0, n * n / 12.0 * (2.0 * n + 1.0));
            assert!((exact - approximate).abs() < 0.01 + 0.1 * exact, "{exact} and {approximate}");
        }
    }

    #[test]
    fn few_repeats_can_prove_nothing() {
        assert_close(least_p(3, 3), 0.1);
        assert_close(least_p(5, 5), 2.0 / 252.0);
        assert_close(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), least_p(3, 3));
        assert_close(wilcoxon(&[1.0, 2.0, 3.0, 4.0, 5.0]), least_p_of_pairs(5));
        assert_close(mann_whitney(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
    }

    /// Holm's own example has p = 0.01, 0.04, 0.03, 0.005 (Holm 1979 as in R's p.adjust).
    #[test]
    fn holm_agrees_with_r() {
        for (got, wanted) in holm(&[0.01, 0.04, 0.03, 0.005]).into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert_close(got, wanted);
        }
    }

    #[test]
    fn medians_and_deviations() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(robust_deviation(&[1.0, 2.0, 3.0, 4.0, 1000.0]), Some(1.4826));
    }
}
