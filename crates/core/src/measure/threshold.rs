//! A threshold that a ratio must keep, judged from paired rounds: met, missed, or not to be told yet.

use super::estimate::{Estimate, TooFew};
use super::repeats::median_of_trials;
use crate::units::significant;
use serde::{Deserialize, Serialize};

/// More rounds than this are no advice: then the median lies on the threshold, as far as anybody can tell.
const MOST_ROUNDS: f64 = 1000.0;

/// What a ratio is held to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// What the rounds say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The whole interval keeps the threshold.
    Met,
    /// The whole interval breaks it.
    Missed,
    /// The interval holds both. How many more rounds would tell, if they spread as these do; `None` if no
    /// sensible number would.
    CannotTell(Option<usize>),
}

/// A threshold, the rounds that were held to it, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptThreshold {
    /// What the ratio is of: "postgres point select, throughput ÷ pgbench's".
    pub name: String,
    /// What it is held to.
    pub threshold: Threshold,
    /// One ratio a round, in the order of the rounds.
    pub ratios: Vec<f64>,
    /// Their median with its order-statistics interval; `None` with fewer than six rounds.
    pub median: Option<Estimate>,
    /// The verdict.
    pub kept: Kept,
}

/// Begins the line that carries a verdict to whoever runs the benches; JSON follows.
pub const THRESHOLD_LINE: &str = "THRESHOLD ";

impl KeptThreshold {
    /// What a bench prints: the line for people, and under it the one that is kept.
    pub fn lines(&self) -> String {
        let mut json = serde_json::to_value(self).expect("numbers and texts are JSON");
        json["sentence"] = self.to_string().into();
        format!("{self}\n{THRESHOLD_LINE}{json}")
    }
}

impl Threshold {
    /// Judges `ratios`, one a round. A round that is no finite number belongs to no ratio and is the caller's
    /// to leave out; here it makes the verdict *cannot tell*.
    pub fn judge(self, name: &str, ratios: &[f64]) -> KeptThreshold {
        let usable = ratios.iter().all(|ratio| ratio.is_finite());
        let median = usable.then(|| median_of_trials(ratios));
        let kept = match &median {
            None => Kept::CannotTell(None),
            Some(Err(TooFew { have, need })) => Kept::CannotTell(Some((need - have) as usize)),
            Some(Ok(median)) => self.verdict(median, ratios.len()),
        };
        let median = median.and_then(Result::ok);
        KeptThreshold { name: name.into(), threshold: self, ratios: ratios.to_vec(), median, kept }
    }

    fn keeps(self, ratio: f64) -> bool {
        match self {
            Threshold::AtLeast(least) => ratio >= least,
            Threshold::AtMost(most) => ratio <= most,
        }
    }

    fn verdict(self, median: &Estimate, rounds: usize) -> Kept {
        match (self.keeps(median.low), self.keeps(median.high)) {
            (true, true) => Kept::Met,
            (false, false) => Kept::Missed,
            _ => {
                let (Threshold::AtLeast(edge) | Threshold::AtMost(edge)) = self;
                let reach =
                    if edge < median.value { median.value - median.low } else { median.high - median.value };
                // The interval narrows with the square root of the rounds.
                let needed = rounds as f64 * (reach / (median.value - edge).abs()).powi(2);
                // Also when the median is the edge, and nothing would do.
                let told = needed <= MOST_ROUNDS;
                Kept::CannotTell(told.then(|| (needed.ceil() as usize).max(rounds + 1) - rounds))
            }
        }
    }
}

impl std::fmt::Display for Threshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Threshold::AtLeast(least) => write!(f, "at least {least}"),
            Threshold::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kept::Met => write!(f, "met"),
            Kept::Missed => write!(f, "missed"),
            Kept::CannotTell(Some(more)) => write!(f, "cannot tell, {more} more rounds"),
            Kept::CannotTell(None) => write!(f, "cannot tell, by any number of rounds like these"),
        }
    }
}

/// One line: what, the median with its interval, the rounds, the threshold, the verdict.
impl std::fmt::Display for KeptThreshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.median {
            Some(Estimate { value, low, high, .. }) => {
                let [value, low, high] = [value, low, high].map(|figure| significant(*figure, 3));
                write!(f, "{value} [{low}, {high}]")?;
            }
            None => write!(f, "no interval")?,
        }
        write!(f, ", {} rounds, {}: {}", self.ratios.len(), self.threshold, self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: [f64; 8] = [0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03];

    fn scaled(by: f64) -> Vec<f64> {
        SPREAD.iter().map(|ratio| ratio * by).collect()
    }

    #[test]
    fn what_is_clear_is_said() {
        let judge = |threshold: Threshold, by: f64| threshold.judge("x", &scaled(by)).kept;
        assert_eq!(judge(Threshold::AtLeast(0.9), 1.0), Kept::Met);
        assert_eq!(judge(Threshold::AtLeast(0.9), 0.8), Kept::Missed);
        assert_eq!(judge(Threshold::AtMost(1.1), 1.0), Kept::Met);
        assert_eq!(judge(Threshold::AtMost(1.1), 1.2), Kept::Missed);
    }

    #[test]
    fn what_is_not_clear_asks_for_the_rounds_that_would_tell() {
        let judged = Threshold::AtLeast(0.99).judge("x", &SPREAD);
        // Eight rounds reach 0.03 around the median, a third of which it takes: nine times as many.
        assert_eq!(judged.kept, Kept::CannotTell(Some(64)));
        assert_eq!(
            judged.to_string(),
            "x: 1.00 [0.970, 1.03], 8 rounds, at least 0.99: cannot tell, 64 more rounds"
        );
        assert_eq!(Threshold::AtMost(1.0).judge("x", &SPREAD).kept, Kept::CannotTell(None));
    }

    #[test]
    fn the_kept_line_is_the_whole_verdict() {
        let judged = Threshold::AtLeast(0.9).judge("x", &SPREAD);
        let lines = judged.lines();
        let json = lines.lines().find_map(|line| line.strip_prefix(THRESHOLD_LINE)).unwrap();
        assert_eq!(serde_json::from_str::<KeptThreshold>(json).unwrap(), judged);
    }

    #[test]
    fn nothing_seen_is_not_met() {
        assert_eq!(Threshold::AtMost(1.0).judge("x", &[]).kept, Kept::CannotTell(Some(6)));
        assert_eq!(Threshold::AtMost(1.0).judge("x", &[0.1; 5]).kept, Kept::CannotTell(Some(1)));
        assert_eq!(Threshold::AtMost(1.0).judge("x", &[0.1; 6]).kept, Kept::Met);
        assert_eq!(Threshold::AtMost(1.0).judge("x", &[f64::NAN; 9]).kept, Kept::CannotTell(None));
    }

    #[test]
    fn seldom_wrong_where_the_truth_is_the_edge() {
        let mut wrong = 0;
        for trial in 0..1000 {
            let mut random = crate::workload::Random::new(7, trial);
            let ratios: Vec<f64> = (0..12).map(|_| random.below(2001) as f64 / 1000.0).collect();
            wrong +=
                u32::from(!matches!(Threshold::AtLeast(1.0).judge("x", &ratios).kept, Kept::CannotTell(_)));
        }
        // The interval misses the true median in at most 5 of 100.
        assert!(wrong <= 70, "{wrong} of 1000 fair coins were called");
    }
}
