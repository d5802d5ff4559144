//! Is there a difference, and how large? Two results, two commits, two configurations.

use super::estimate::Estimate;
use super::rank::{
    cliffs_delta, holm, least_p, least_p_of_pairs, mann_whitney, median, shift, shift_of_pairs, wilcoxon,
};
use super::repeats::{detectable, detectable_in_pairs};
use super::series::expanded;
use crate::units::significant;
use crate::workload::Random;
use serde::Serialize;

/// One figure per trial, of one side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Samples {
    /// What they are of: "main", "readahead=0".
    pub name: String,
    /// One per trial, all in one unit.
    pub values: Vec<f64>,
}

/// When a difference is declared (METHODS D7).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CompareRule {
    /// Whether value i of both sides comes from one block: same hour, same machine, same data.
    pub paired: bool,
    /// Largest p: 0.01.
    pub p: f64,
    /// Smallest shift that matters, as a share of A's median: 0.02.
    pub least: f64,
    /// Largest shift that comparisons of a thing with itself showed, as a share; see [`noise_floor`].
    pub noise_floor: f64,
    /// Resamples of the bootstrap: 2,000.
    pub resamples: usize,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Default for CompareRule {
    fn default() -> Self {
        CompareRule { paired: false, p: 0.01, least: 0.02, noise_floor: 0.0, resamples: 2000, seed: 1 }
    }
}

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// B lies above A.
    Higher,
    /// B lies below A.
    Lower,
    /// None was seen; `detectable` says which would have been.
    None,
    /// So few repeats can never show one.
    TooFew,
}

/// What comparing B with A gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of A.
    pub a: String,
    /// Name of B.
    pub b: String,
    /// Repeats of A and of B; pairs count on both sides.
    pub repeats: (usize, usize),
    /// Medians of A and of B.
    pub medians: (f64, f64),
    /// By how much B lies above A, as a share of A's median: Hodges and Lehmann's shift with a bootstrap
    /// interval.
    pub shift: Estimate,
    /// Two-sided p of the rank test, corrected if it is one of a family.
    pub p: f64,
    /// How many comparisons p was corrected for.
    pub family: usize,
    /// Cliff's delta: P(B > A) − P(B < A).
    pub cliffs_delta: f64,
    /// Smallest shift that is declared: the larger of what matters and the noise floor.
    pub threshold: f64,
    /// Smallest shift that would have been found four times in five, as a share; infinite with too few
    /// repeats.
    pub detectable: f64,
    /// The rule.
    pub rule: CompareRule,
    /// How it ended.
    pub verdict: Difference,
}

/// Samples that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotCompare {
    /// No values.
    #[error("{0} has no values")]
    Empty(String),
    /// Not a number, or without end.
    #[error("{0} has a value that is no finite number")]
    NotFinite(String),
    /// Shares of zero.
    #[error("the median of {0} is 0, so no shift can be a share of it")]
    ZeroMedian(String),
    /// Pairs without partners.
    #[error("paired comparison of {0} with {1} values")]
    Unpaired(usize, usize),
}

/// Compares B with A.
///
/// Unpaired: median of all differences, Mann–Whitney. Paired: median of Walsh averages, Wilcoxon. A
/// difference is declared if p is below the rule's and the shift larger than both what matters and the noise
/// floor. Meant for repeats
/// (up to some hundreds), not for operations.
pub fn compare(a: &Samples, b: &Samples, rule: &CompareRule) -> Result<Comparison, CannotCompare> {
    for side in [a, b] {
        if side.values.is_empty() {
            return Err(CannotCompare::Empty(side.name.clone()));
        }
        if !side.values.iter().all(|value| value.is_finite()) {
            return Err(CannotCompare::NotFinite(side.name.clone()));
        }
    }
    let (x, y) = (&a.values, &b.values);
    if rule.paired && x.len() != y.len() {
        return Err(CannotCompare::Unpaired(x.len(), y.len()));
    }
    let of = |values: &[f64]| median(values).expect("values were checked to be there");
    let medians = (of(x), of(y));
    let base = medians.0.abs();
    if base == 0.0 {
        return Err(CannotCompare::ZeroMedian(a.name.clone()));
    }
    let shift = if rule.paired { paired_shift(x, y, rule) } else { unpaired_shift(x, y, rule) };
    let threshold = rule.least.max(rule.noise_floor);
    let (p, least, deviation) = if rule.paired {
        let differences = differences(x, y);
        (wilcoxon(&differences), least_p_of_pairs(x.len()), pooled_deviation(&[&differences]))
    } else {
        (mann_whitney(x, y), least_p(x.len(), y.len()), pooled_deviation(&[x, y]))
    };
    let deviation = deviation / base;
    let found = match rule.paired {
        true => detectable_in_pairs(deviation, x.len(), rule.p),
        false => detectable(deviation, x.len(), y.len(), rule.p),
    };
    let mut comparison = Comparison {
        a: a.name.clone(),
        b: b.name.clone(),
        repeats: (x.len(), y.len()),
        medians,
        shift: shift.scaled(1.0 / base),
        p,
        family: 1,
        cliffs_delta: cliffs_delta(x, y),
        threshold,
        detectable: found.max(threshold),
        rule: *rule,
        verdict: Difference::None,
    };
    comparison.judge(least);
    Ok(comparison)
}

/// Standard deviation within sides: not the robust one, because outliers hide differences too.
fn pooled_deviation(sides: &[&[f64]]) -> f64 {
    let (mut squares, mut degrees) = (0.0, 0.0);
    for side in sides {
        let mean = side.iter().sum::<f64>() / side.len() as f64;
        squares += side.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        degrees += side.len() as f64 - 1.0;
    }
    if degrees > 0.0 { (squares / degrees).sqrt() } else { 0.0 }
}

fn differences(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| y - x).collect()
}

/// Resamples for a statistic that costs `cost`: as many as asked for, unless that takes more than a moment.
fn resamples(rule: &CompareRule, cost: usize) -> u64 {
    rule.resamples.min((20_000_000 / cost.max(1)).max(200)) as u64
}

fn unpaired_shift(x: &[f64], y: &[f64], rule: &CompareRule) -> Estimate {
    let value = shift(x, y).expect("values were checked to be there");
    let drawn = (0..resamples(rule, x.len() * y.len()))
        .map(|resample| {
            let mut random = Random::new(rule.seed, resample);
            let mut draw = |from: &[f64]| -> Vec<f64> {
                (0..from.len()).map(|_| from[random.below(from.len() as u64) as usize]).collect()
            };
            let (x, y) = (draw(x), draw(y));
            shift(&x, &y).expect("as many as before")
        })
        .collect();
    // Welch's degrees of freedom lie between those of the smaller side and of both together.
    let many = x.len().min(y.len()) as f64;
    let basis = format!("Hodges–Lehmann shift, bootstrap of {} and {} trials", x.len(), y.len());
    expanded(value, drawn, many, basis)
}

fn paired_shift(x: &[f64], y: &[f64], rule: &CompareRule) -> Estimate {
    let pairs = differences(x, y);
    let value = shift_of_pairs(&pairs).expect("values were checked to be there");
    let drawn = (0..resamples(rule, pairs.len() * pairs.len() / 2))
        .map(|resample| {
            let mut random = Random::new(rule.seed, resample);
            let drawn: Vec<f64> =
                (0..pairs.len()).map(|_| pairs[random.below(pairs.len() as u64) as usize]).collect();
            shift_of_pairs(&drawn).expect("as many as before")
        })
        .collect();
    let basis = format!("Hodges–Lehmann shift of pairs, bootstrap of {} blocks", pairs.len());
    expanded(value, drawn, pairs.len() as f64, basis)
}

impl Comparison {
    fn judge(&mut self, least_p: f64) {
        let large = self.shift.value.abs() > self.threshold;
        self.verdict = match self.p < self.rule.p && large {
            true if self.shift.value > 0.0 => Difference::Higher,
            true => Difference::Lower,
            false if least_p * self.family as f64 >= self.rule.p => Difference::TooFew,
            false => Difference::None,
        };
    }

    fn least_p(&self) -> f64 {
        match self.rule.paired {
            true => least_p_of_pairs(self.repeats.0),
            false => least_p(self.repeats.0, self.repeats.1),
        }
    }

    /// Everything in one sentence.
    pub fn sentence(&self) -> String {
        let percent = |x: f64| format!("{} %", significant(100.0 * x, 2));
        let signed = |x: f64| format!("{}{}", if x > 0.0 { "+" } else { "" }, percent(x));
        let corrected = match self.family {
            1 => String::new(),
            n => format!(" after correction for {n} comparisons"),
        };
        let p = match self.p {
            p if p < 0.0001 => "p < 0.0001".to_string(),
            p => format!("p = {}", significant(p, 2)),
        };
        let evidence = format!(
            "shift {} [{}, {}], {p}{corrected}, Cliff's delta {}",
            signed(self.shift.value),
            signed(self.shift.low),
            signed(self.shift.high),
            significant(self.cliffs_delta, 2)
        );
        let (a, b, n, m) = (&self.a, &self.b, self.repeats.0, self.repeats.1);
        let floor = format!("differences up to {} are not declared", percent(self.threshold));
        match self.verdict {
            Difference::Higher => format!("{b} is higher than {a}: {evidence}; {floor}"),
            Difference::Lower => format!("{b} is lower than {a}: {evidence}; {floor}"),
            Difference::None => format!(
                "no difference between {a} and {b}: {evidence}; with {n} and {m} trials none smaller than {} could have \
                 been seen",
                percent(self.detectable)
            ),
            Difference::TooFew => format!(
                "{n} and {m} trials of {a} and {b} are too few to show any difference at p < {}: {evidence}; {} needed",
                self.rule.p,
                self.needed()
            ),
        }
    }

    /// Fewest trials of each side, or blocks, that can reach the rule's p in this family.
    pub fn trials_needed(&self) -> usize {
        let enough = |n: &usize| {
            let least = if self.rule.paired { least_p_of_pairs(*n) } else { least_p(*n, *n) };
            least * (self.family as f64) < self.rule.p
        };
        (2..1000).find(enough).unwrap_or(1000)
    }

    fn needed(&self) -> String {
        let n = self.trials_needed();
        if self.rule.paired { format!("{n} blocks are") } else { format!("{n} of each are") }
    }
}

/// Corrects a family of comparisons made at once (Holm), and judges each anew.
pub fn correct(family: &mut [Comparison]) {
    let size = family.len();
    let p = holm(&family.iter().map(|comparison| comparison.p).collect::<Vec<_>>());
    for (comparison, p) in family.iter_mut().zip(p) {
        comparison.p = p;
        comparison.family = size;
        let least = comparison.least_p();
        comparison.judge(least);
    }
}

/// What several sessions agree on: a difference only if each of at least two shows it in the same direction.
pub fn agreed(sessions: &[Comparison]) -> Difference {
    let Some(first) = sessions.first() else { return Difference::TooFew };
    if sessions.len() < 2 && matches!(first.verdict, Difference::Higher | Difference::Lower) {
        return Difference::TooFew;
    }
    if sessions.iter().all(|session| session.verdict == first.verdict) {
        return first.verdict;
    }
    Difference::None
}

/// The noise floor that comparisons of a thing with itself showed: the largest shift, as a share. 0 without
/// any.
pub fn noise_floor(same_with_same: &[Comparison]) -> f64 {
    same_with_same.iter().map(|comparison| comparison.shift.value.abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fewer resamples, so that campaigns stay quick.
    const QUICK: CompareRule =
        CompareRule { paired: false, p: 0.01, least: 0.02, noise_floor: 0.0, resamples: 300, seed: 1 };

    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
    }

    fn samples(name: &str, values: Vec<f64>) -> Samples {
        Samples { name: name.into(), values }
    }

    /// `n` trials around a mean of 1000 with noise of 5 %, drawn from a distribution with a long right tail.
    fn trials(n: usize, mean: f64, seed: u64, stream: u64) -> Vec<f64> {
        let mut random = Random::new(seed, stream);
        (0..n).map(|_| mean * (0.05 * normal(&mut random)).exp()).collect()
    }

    #[test]
    fn intervals_hold_the_true_shift() {
        for (n, m) in [(5, 5), (10, 10), (6, 20)] {
            let held = (0..400)
                .filter(|seed| {
                    let a = samples("a", trials(n, 1000.0, *seed, 0));
                    let b = samples("b", trials(m, 1000.0, *seed, 1).iter().map(|x| x + 70.0).collect());
                    let found = compare(&a, &b, &QUICK).unwrap();
                    let truth = 70.0 / found.medians.0.abs();
                    found.shift.low <= truth && truth <= found.shift.high
                })
                .count();
            println!("shift of {n} and {m}: {held} of 400 intervals held the truth");
            assert!(held * 100 >= 93 * 400, "{n} and {m}: {held} of 400");
        }
    }

    #[test]
    fn intervals_of_pairs_hold_the_true_shift_and_blocks_cancel() {
        let (mut held, mut found) = (0, 0);
        for seed in 0..400 {
            let mut random = Random::new(seed, 2);
            // The hour moves both by 20 %, the trial by 1 %.
            let hours: Vec<f64> = (0..10).map(|_| (0.2 * normal(&mut random)).exp() * 1000.0).collect();
            let mut trial = |hour: &f64, by: f64| hour + by + 10.0 * normal(&mut random);
            let a = samples("a", hours.iter().map(|hour| trial(hour, 0.0)).collect());
            let b = samples("b", hours.iter().map(|hour| trial(hour, 50.0)).collect());
            let rule = CompareRule { paired: true, ..QUICK };
            let pairs = compare(&a, &b, &rule).unwrap();
            let truth = 50.0 / pairs.medians.0;
            held += usize::from(pairs.shift.low <= truth && truth <= pairs.shift.high);
            found += usize::from(pairs.verdict == Difference::Higher);
            let loose = compare(&a, &b, &QUICK).unwrap();
            assert_ne!(loose.verdict, Difference::Higher, "unpaired, the hours drown it");
        }
        println!("pairs: {held} of 400 held, {found} found");
        assert!(held * 100 >= 93 * 400 && found >= 380, "{held} held, {found} found");
    }

    #[test]
    fn a_thing_compared_with_itself_shows_no_difference() {
        let mut none = 0;
        let mut floors = Vec::new();
        for seed in 0..1000 {
            let rule = CompareRule { paired: seed % 2 == 0, ..QUICK };
            let side = |stream| samples("same", trials(10, 1000.0, seed, stream));
            let found = compare(&side(0), &side(1), &rule).unwrap();
            none += u32::from(found.verdict == Difference::None);
            floors.push(found);
        }
        println!("A/A: {none} of 1000 say no difference");
        assert!(none >= 970, "{none} of 1000");
        let floor = noise_floor(&floors);
        assert!((0.03..0.15).contains(&floor), "{floor}");
        assert_eq!(noise_floor(&[]), 0.0);
    }

    #[test]
    fn what_could_have_been_seen_is_seen_and_what_lies_below_the_floor_is_not_declared() {
        let (mut seen, mut declared) = (0, 0);
        for seed in 0..300 {
            let a = samples("a", trials(10, 1000.0, seed, 0));
            let own = compare(&a, &samples("b", trials(10, 1000.0, seed, 1)), &QUICK).unwrap();
            // The robust deviation of so few is itself uncertain; what is promised holds on the average.
            let b = samples("b", trials(10, 1000.0 * (1.0 + own.detectable), seed, 1));
            let found = compare(&a, &b, &QUICK).unwrap();
            seen += u32::from(found.verdict == Difference::Higher);
            let floor = CompareRule { noise_floor: 0.5, ..QUICK };
            declared += u32::from(compare(&a, &b, &floor).unwrap().verdict == Difference::Higher);
        }
        println!("of the detectable size: {seen} of 300 seen");
        assert!(seen >= 195, "{seen} of 300");
        assert_eq!(declared, 0);
    }

    #[test]
    fn sentences_say_it_all() {
        let ten = |mean| samples(if mean > 1000.0 { "new" } else { "old" }, trials(10, mean, 1, mean as u64));
        let rule = CompareRule::default();
        let higher = compare(&ten(1000.0), &ten(1300.0), &rule).unwrap().sentence();
        assert!(higher.starts_with("new is higher than old: shift +"), "{higher}");
        assert!(higher.ends_with("differences up to 2.0 % are not declared"), "{higher}");
        let none = compare(&ten(1000.0), &ten(1001.0), &rule).unwrap().sentence();
        assert!(none.starts_with("no difference between old and new: shift"), "{none}");
        assert!(none.contains("with 10 and 10 trials none smaller than"), "{none}");
        let three = |mean| samples("x", trials(3, mean, 1, mean as u64));
        let few = compare(&three(1000.0), &three(2000.0), &rule).unwrap();
        assert_eq!(few.verdict, Difference::TooFew);
        assert!(few.sentence().ends_with("5 of each are needed"), "{}", few.sentence());
        let few = compare(&three(1000.0), &three(2000.0), &CompareRule { paired: true, ..rule }).unwrap();
        assert!(few.sentence().ends_with("8 blocks are needed"), "{}", few.sentence());
    }

    #[test]
    fn families_are_corrected_and_sessions_must_agree() {
        let pair = |seed| {
            let (a, b) = (trials(10, 1000.0, seed, 0), trials(10, 1000.0, seed, 1));
            compare(&samples("a", a), &samples("b", b), &QUICK).unwrap()
        };
        // Forty comparisons of equals at once: without correction one in three such families would show
        // something.
        let alarms = (0..25)
            .filter(|family| {
                let mut family: Vec<Comparison> = (0..40).map(|i| pair(family * 40 + i + 5000)).collect();
                correct(&mut family);
                assert!(family.iter().all(|comparison| comparison.family == 40));
                family.iter().any(|comparison| comparison.verdict != Difference::None)
            })
            .count();
        assert!(alarms <= 1, "{alarms} of 25 families");
        let of = |mean| {
            let (a, b) = (samples("a", trials(10, 1000.0, 3, 0)), samples("b", trials(10, mean, 3, 1)));
            compare(&a, &b, &QUICK).unwrap()
        };
        assert_eq!(agreed(&[of(1500.0), of(1400.0)]), Difference::Higher);
        assert_eq!(agreed(&[of(1500.0), of(600.0)]), Difference::None);
        assert_eq!(agreed(&[of(1500.0)]), Difference::TooFew);
        assert_eq!(agreed(&[of(1000.0)]), Difference::None);
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let rule = QUICK;
        let of = |values: &[f64]| samples("x", values.to_vec());
        let error = |a, b, rule| compare(&a, &b, rule).unwrap_err().to_string();
        assert_eq!(error(of(&[]), of(&[1.0]), &rule), "x has no values");
        assert_eq!(error(of(&[1.0]), of(&[f64::NAN]), &rule), "x has a value that is no finite number");
        assert!(error(of(&[0.0]), of(&[1.0]), &rule).contains("median of x is 0"));
        let paired = CompareRule { paired: true, ..rule };
        assert!(error(of(&[1.0]), of(&[1.0, 2.0]), &paired).contains("1 with 2 values"));
    }

    proptest! {
        /// Units do not matter; swapping turns the verdict, as far as the base of the share allows.
        #[test]
        fn units_and_sides_do_not_matter(
            a in prop::collection::vec(100.0..200.0f64, 3..12),
            b in prop::collection::vec(100.0..200.0f64, 3..12),
            unit in 1e-6..1e6f64,
        ) {
            let rule = QUICK;
            let of = |values: &[f64], unit: f64| samples("x", values.iter().map(|v| v * unit).collect());
            let plain = compare(&of(&a, 1.0), &of(&b, 1.0), &rule).unwrap();
            let scaled = compare(&of(&a, unit), &of(&b, unit), &rule).unwrap();
            prop_assert_eq!(plain.verdict, scaled.verdict);
            prop_assert!((plain.shift.value - scaled.shift.value).abs() < 1e-9);
            let back = compare(&of(&b, 1.0), &of(&a, 1.0), &rule).unwrap();
            prop_assert!((plain.p - back.p).abs() < 1e-12);
            let absolute = plain.shift.value * plain.medians.0 + back.shift.value * back.medians.0;
            prop_assert!(absolute.abs() < 1e-6);
            prop_assert!(plain.shift.low <= plain.shift.value && plain.shift.value <= plain.shift.high);
        }
    }
}
