//! When operations of an open loop are due.

use super::random::Random;
use crate::units::{Rate, span};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// When operations are due, whatever the target does. Printed in the syntax it is parsed from.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// One every 1/rate: `constant 500/s`.
    Constant(Rate),
    /// Independent of each other, with exponential pauses: `poisson 500/s`.
    Poisson(Rate),
    /// One level after the other, evenly spaced: `steps 1000/s, 2000/s, 4000/s each 10 s`. The last level
    /// goes on for as long as the load does.
    Steps {
        /// The offered load of each level.
        levels: Vec<Rate>,
        /// How long each lasts.
        each: Duration,
    },
    /// Growing (or falling) by the same amount every second: `ramp 100/s to 10000/s in 60 s`. What was
    /// reached then goes on.
    Ramp {
        /// At the start.
        from: Rate,
        /// At the end.
        to: Rate,
        /// How long the change takes.
        over: Duration,
    },
    /// As recorded: `trace arrivals.csv`. Nothing is due after its end.
    Trace(Trace),
}

/// Times of arrival that were recorded, by the path of their file. The core reads no files: a parsed trace is
/// empty until [`Arrivals::with_trace`] gives it the file's text, and from then on it is printed with a
/// digest of its times, so that a changed file is another setting.
#[derive(Debug, Clone)]
pub struct Trace {
    path: String,
    digest: Option<String>,
    due_ns: Arc<[u64]>,
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.digest) == (&other.path, &other.digest)
    }
}

impl Trace {
    /// Where the times are.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many operations arrive; 0 until the text was given.
    pub fn operations(&self) -> usize {
        self.due_ns.len()
    }

    /// Reads times in seconds (`12.000125`), one a line, in order; the first is the start, so that wall-clock
    /// times serve too. What stands behind a comma, semicolon or blank, empty lines, lines that begin with
    /// `#` and one line of headings are passed over.
    fn read(&mut self, text: &str) -> Result<(), String> {
        let mut times: Vec<u64> = Vec::new();
        let mut heading = true;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let word = line.split([',', ';', ' ', '\t']).next().unwrap_or_default();
            let wrong = |what: &str| Err(format!("{}, line {}: {what}", self.path, index + 1));
            match seconds_as_ns(word) {
                Some(time) if times.last().is_none_or(|last| time >= *last) => times.push(time),
                Some(_) => return wrong("times must not decrease"),
                None if heading && times.is_empty() => {}
                None => return wrong(&format!("{word:?} is no time in seconds such as 12.000125")),
            }
            heading = false;
        }
        let Some(first) = times.first().copied() else {
            return Err(format!("{}: there is no time in it", self.path));
        };
        times.iter_mut().for_each(|time| *time -= first);
        let mut hasher = blake3::Hasher::new();
        times.iter().for_each(|time| {
            hasher.update(&time.to_le_bytes());
        });
        let digest = hasher.finalize().to_hex()[..16].to_string();
        if self.digest.as_ref().is_some_and(|wanted| *wanted != digest) {
            return Err(format!("{}: it is not the trace that this plan was made with", self.path));
        }
        self.digest = Some(digest);
        self.due_ns = times.into();
        Ok(())
    }
}

/// Exact, because an f64 of seconds since 1970 is only good to a quarter of a microsecond.
pub(super) fn seconds_as_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse().ok()?)
}

impl Arrivals {
    /// The due times of operations 0, 1, 2, ..., from the start of the load.
    pub fn schedule(&self, seed: u64) -> Schedule {
        Schedule {
            arrivals: self.clone(),
            random: Random::new(seed, u64::MAX),
            next: 0,
            at_s: 0.0,
            level: 0,
            level_first: 0.0,
        }
    }

    /// The trace whose text is still to be given, or was.
    pub fn trace(&self) -> Option<&Trace> {
        match self {
            Arrivals::Trace(trace) => Some(trace),
            _ => None,
        }
    }

    /// Gives a trace the text of its file.
    ///
    /// # Errors
    /// A line that is no time, times that decrease, or a file that is not the one whose digest stands in the
    /// plan.
    pub fn with_trace(mut self, text: &str) -> Result<Self, String> {
        if let Arrivals::Trace(trace) = &mut self {
            trace.read(text)?;
        }
        Ok(self)
    }

    /// The offered load at time `at`: of a trace, what arrives in the second around it.
    pub fn offered(&self, at: Duration) -> Rate {
        match self {
            Arrivals::Constant(rate) | Arrivals::Poisson(rate) => *rate,
            Arrivals::Steps { levels, each } => {
                let level = (at.as_nanos() / each.as_nanos()).min(levels.len() as u128 - 1) as usize;
                levels[level]
            }
            Arrivals::Ramp { from, to, over } => {
                let share = (at.as_secs_f64() / over.as_secs_f64()).min(1.0);
                Rate(from.0 + (to.0 - from.0) * share)
            }
            Arrivals::Trace(trace) => {
                let at = at.as_nanos() as u64;
                let half = 500_000_000;
                let before = |time: u64| trace.due_ns.partition_point(|due| *due < time);
                let (begin, end) = (at.saturating_sub(half), at.saturating_add(half));
                Rate((before(end) - before(begin)) as f64 * 1e9 / (end - begin) as f64)
            }
        }
    }

    /// The highest offered load that occurs; of a trace, in one of its seconds.
    pub fn highest(&self) -> Rate {
        let most = |rates: &mut dyn Iterator<Item = f64>| Rate(rates.fold(0.0, f64::max));
        match self {
            Arrivals::Constant(rate) | Arrivals::Poisson(rate) => *rate,
            Arrivals::Steps { levels, .. } => most(&mut levels.iter().map(|level| level.0)),
            Arrivals::Ramp { from, to, .. } => most(&mut [from.0, to.0].into_iter()),
            Arrivals::Trace(trace) => {
                let last = trace.due_ns.last().map_or(0, |ns| ns / 1_000_000_000);
                most(&mut (0..=last).map(|s| self.offered(Duration::from_millis(s * 1000 + 500)).0))
            }
        }
    }

    /// How many operations are due before time `at`; of Poisson arrivals the expectation.
    pub fn due_by(&self, at: Duration) -> f64 {
        let seconds = at.as_secs_f64();
        match self {
            Arrivals::Constant(rate) | Arrivals::Poisson(rate) => seconds * rate.0,
            Arrivals::Steps { levels, each } => {
                let each_s = each.as_secs_f64();
                let last = levels.len() - 1;
                let level = ((seconds / each_s) as usize).min(last);
                let before: f64 = levels[..level].iter().map(|rate| rate.0 * each_s).sum();
                before + levels[level].0 * (seconds - level as f64 * each_s)
            }
            Arrivals::Ramp { from, to, over } => {
                let over_s = over.as_secs_f64();
                let ramped = seconds.min(over_s);
                let slope = (to.0 - from.0) / over_s;
                from.0 * ramped + slope * ramped * ramped / 2.0 + to.0 * (seconds - ramped)
            }
            Arrivals::Trace(trace) => {
                trace.due_ns.partition_point(|due| u128::from(*due) < at.as_nanos()) as f64
            }
        }
    }
}

/// Due times, in order. Ends where nothing will ever be due again.
#[derive(Debug, Clone)]
pub struct Schedule {
    arrivals: Arrivals,
    random: Random,
    next: u64,
    at_s: f64,
    /// Of steps: the level that the next operation belongs to, and the number of its first.
    level: usize,
    level_first: f64,
}

impl Iterator for Schedule {
    type Item = Duration;

    #[inline]
    fn next(&mut self) -> Option<Duration> {
        let number = self.next;
        self.next += 1;
        let n = number as f64;
        let seconds = match &self.arrivals {
            Arrivals::Constant(rate) => n / rate.0,
            Arrivals::Poisson(rate) => {
                self.at_s += self.random.exponential(1.0 / rate.0);
                self.at_s
            }
            Arrivals::Steps { levels, each } => {
                let each_s = each.as_secs_f64();
                let last = levels.len() - 1;
                while self.level < last && n >= self.level_first + levels[self.level].0 * each_s {
                    self.level_first += levels[self.level].0 * each_s;
                    self.level += 1;
                }
                let rate = levels[self.level].0;
                if rate <= 0.0 {
                    return None;
                }
                self.level as f64 * each_s + (n - self.level_first) / rate
            }
            Arrivals::Ramp { from, to, over } => {
                let over_s = over.as_secs_f64();
                let ramped = (from.0 + to.0) / 2.0 * over_s;
                if n < ramped {
                    // t solves from·t + slope·t²/2 = n. This form of the root subtracts nothing from its like
                    // and holds for a slope of zero.
                    let slope = (to.0 - from.0) / over_s;
                    2.0 * n
                        / (from.0 + (from.0 * from.0 + 2.0 * slope * n).max(0.0).sqrt())
                            .max(f64::MIN_POSITIVE)
                } else if to.0 > 0.0 {
                    over_s + (n - ramped) / to.0
                } else {
                    return None;
                }
            }
            Arrivals::Trace(trace) => {
                return trace.due_ns.get(number as usize).copied().map(Duration::from_nanos);
            }
        };
        // A saturating conversion: after 292 years of virtual time nothing is due either.
        Some(Duration::from_nanos((seconds * 1e9).round() as u64))
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrivals::Constant(rate) => write!(f, "constant {rate}"),
            Arrivals::Poisson(rate) => write!(f, "poisson {rate}"),
            Arrivals::Steps { levels, each } => {
                let levels: Vec<String> = levels.iter().map(Rate::to_string).collect();
                write!(f, "steps {} each {}", levels.join(", "), span::print(*each))
            }
            Arrivals::Ramp { from, to, over } => write!(f, "ramp {from} to {to} in {}", span::print(*over)),
            Arrivals::Trace(trace) => match &trace.digest {
                Some(digest) => write!(f, "trace {} blake3:{digest}", trace.path),
                None => write!(f, "trace {}", trace.path),
            },
        }
    }
}

const EXAMPLES: &str = "\"constant 500/s\", \"poisson 500/s\", \"steps 1000/s, 2000/s each 10 s\", \
                        \"ramp 100/s to 10000/s in 60 s\" or \"trace arrivals.csv\"";

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (shape, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let known = ["constant", "poisson", "steps", "ramp", "trace"];
        if !known.contains(&shape) {
            return Err(match shape.starts_with(|c: char| c.is_ascii_digit()) || shape.is_empty() {
                true => format!("write arrivals as {EXAMPLES}"),
                false => crate::experiment::unknown("arrivals", shape, &known),
            });
        }
        if rest.is_empty() {
            return Err(format!("`{shape}` alone says too little: write arrivals as {EXAMPLES}"));
        }
        match shape {
            "constant" => Ok(Arrivals::Constant(positive(rest)?)),
            "poisson" => Ok(Arrivals::Poisson(positive(rest)?)),
            "steps" => {
                let (levels, each) = split(rest, "each", "steps 1000/s, 2000/s each 10 s")?;
                let levels = levels.split(',').map(rate).collect::<Result<Vec<_>, _>>()?;
                if levels.iter().all(|level| level.0 <= 0.0) {
                    return Err(NEVER.into());
                }
                Ok(Arrivals::Steps { levels, each: lasting(each)? })
            }
            "ramp" => {
                let (rates, over) = split(rest, "in", "ramp 100/s to 10000/s in 60 s")?;
                let (from, to) = split(rates, "to", "ramp 100/s to 10000/s in 60 s")?;
                let (from, to) = (rate(from)?, rate(to)?);
                if from.0 <= 0.0 && to.0 <= 0.0 {
                    return Err(NEVER.into());
                }
                Ok(Arrivals::Ramp { from, to, over: lasting(over)? })
            }
            _ => {
                let (path, digest) = match rest.rsplit_once(" blake3:") {
                    Some((path, digest)) => (path.trim(), Some(digest.to_string())),
                    None => (rest, None),
                };
                Ok(Arrivals::Trace(Trace { path: path.into(), digest, due_ns: Arc::default() }))
            }
        }
    }
}

const NEVER: &str = "nothing would ever be due";

fn rate(text: &str) -> Result<Rate, String> {
    text.trim().parse().map_err(|e: crate::units::ParseError| e.to_string())
}

fn positive(text: &str) -> Result<Rate, String> {
    let rate = rate(text)?;
    if rate.0 > 0.0 { Ok(rate) } else { Err(NEVER.into()) }
}

fn lasting(text: &str) -> Result<Duration, String> {
    let span = span::parse(text).map_err(|e| e.to_string())?;
    if span.is_zero() { Err("a step or ramp must last longer than nothing".into()) } else { Ok(span) }
}

/// Splits at the last whole word `word`.
fn split<'a>(text: &'a str, word: &str, example: &str) -> Result<(&'a str, &'a str), String> {
    text.rsplit_once(&format!(" {word} "))
        .ok_or_else(|| format!("{text:?} lacks the word `{word}`: write for example \"{example}\""))
}

impl Serialize for Arrivals {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Arrivals {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrivals(text: &str) -> Arrivals {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn due(text: &str, count: usize) -> Vec<f64> {
        arrivals(text).schedule(1).take(count).map(|due| due.as_secs_f64()).collect()
    }

    #[test]
    fn steps_hold_each_level_and_the_last_goes_on() {
        let times = due("steps 10/s, 0/s, 40/s each 1 s", 70);
        let count = |from: f64, to: f64| times.iter().filter(|t| (from..to).contains(*t)).count();
        assert_eq!((count(0.0, 1.0), count(1.0, 2.0), count(2.0, 3.0), count(3.0, 3.5)), (10, 0, 40, 20));
        assert_eq!(times[10], 2.0, "what the pause holds back is due when it ends");
        assert_eq!(arrivals("steps 10/s, 0/s each 1 s").schedule(1).count(), 10);
        assert_eq!(arrivals("steps 0/s, 5/s each 3 s").schedule(1).next(), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_ramps_operations_are_due_where_the_integral_of_its_load_says() {
        for text in [
            "ramp 100/s to 10000/s in 60 s",
            "ramp 0/s to 50/s in 9 s",
            "ramp 90/s to 3/s in 5 s",
            "ramp 7/s to 7/s in 2 s",
        ] {
            let ramp = arrivals(text);
            for (n, due) in ramp.schedule(1).take(5_000).enumerate() {
                assert!((ramp.due_by(due) - n as f64).abs() < 1e-3, "{text}: {n} is due at {due:?}");
            }
        }
        assert_eq!(arrivals("ramp 10/s to 0/s in 4 s").schedule(1).count(), 20);
        // 50/s² from nothing: operation 100 at 2 s.
        assert_eq!(due("ramp 0/s to 500/s in 10 s", 101)[100], 2.0);
    }

    #[test]
    fn offered_load_is_the_slope_of_what_is_due() {
        for text in ["constant 70/s", "poisson 70/s", "steps 5/s, 90/s each 2 s", "ramp 5/s to 90/s in 3 s"] {
            let arrivals = arrivals(text);
            for ms in (10..5_000).step_by(130) {
                let [before, at, after] = [ms - 1, ms, ms + 1].map(Duration::from_millis);
                let slope = (arrivals.due_by(after) - arrivals.due_by(before)) / 0.002;
                assert!((slope - arrivals.offered(at).0).abs() < 0.1, "{text} at {ms} ms: {slope}");
            }
        }
        assert_eq!(arrivals("steps 5/s, 90/s, 7/s each 2 s").highest(), Rate(90.0));
    }

    #[test]
    fn poisson_arrivals_have_their_mean_and_are_spread_as_widely() {
        // Counts of 1000 windows with an expectation of 20 each: index of dispersion 1, its 99.9 % interval
        // 0.86 to 1.15.
        let mut counts = [0f64; 1000];
        for due in arrivals("poisson 2000/s").schedule(5) {
            match counts.get_mut((due.as_secs_f64() * 100.0) as usize) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        let mean = counts.iter().sum::<f64>() / 1000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 999.0;
        assert!((mean - 20.0).abs() < 0.5, "{mean}");
        assert!((0.86..1.15).contains(&(variance / mean)), "{}", variance / mean);
    }

    #[test]
    fn a_trace_is_what_its_file_says_and_a_changed_file_is_noticed() {
        let parsed = arrivals("trace my arrivals.csv");
        assert_eq!(parsed.trace().map(Trace::path), Some("my arrivals.csv"));
        assert_eq!(parsed.schedule(1).next(), None, "nothing is due before the file was read");
        let text = "# recorded in Oslo\ntime,key\n1700000000.5,a\n\n1700000000.500000125,b\n1700000002.5;c\n";
        let trace = parsed.clone().with_trace(text).unwrap();
        let due: Vec<u64> = trace.schedule(1).map(|due| due.as_nanos() as u64).collect();
        assert_eq!(due, [0, 125, 2_000_000_000]);
        assert_eq!(trace.trace().unwrap().operations(), 3);
        assert_eq!(
            (trace.offered(Duration::ZERO), trace.offered(Duration::from_secs(2))),
            (Rate(4.0), Rate(1.0))
        );
        let again = arrivals(&trace.to_string());
        assert_eq!(again, trace);
        assert!(again.clone().with_trace(text).is_ok());
        assert!(again.with_trace("1\n2\n").unwrap_err().contains("not the trace"));
        for (wrong, answer) in [
            ("1\n0.5\n", "line 2: times must not decrease"),
            ("1\nsoon\n", "line 2: \"soon\""),
            ("# nothing\n", "no time in it"),
            ("time\nmore\n", "line 2"),
        ] {
            let error = parsed.clone().with_trace(wrong).unwrap_err();
            assert!(error.contains(answer) && error.starts_with("my arrivals.csv"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_answered_with_the_nearest_word() {
        for (text, answer) in [
            ("", "write arrivals as"),
            ("500/s", "write arrivals as"),
            ("poison 5/s", "did you mean `poisson`?"),
            ("step 5/s each 3 s", "did you mean `steps`?"),
            ("constant", "says too little"),
            ("constant 0/s", "nothing would ever be due"),
            ("constant quick", "\"quick\" is not a rate"),
            ("steps 5/s, 6/s", "lacks the word `each`"),
            ("steps 5/s, x each 1 s", "\"x\" is not a rate"),
            ("steps 0/s, 0/s each 1 s", "nothing would ever be due"),
            ("steps 5/s each 0 s", "longer than nothing"),
            ("steps 5/s each 7", "\"7\" is not a span"),
            ("ramp 1/s in 5 s", "lacks the word `to`"),
            ("ramp 1/s to 5/s", "lacks the word `in`"),
            ("trace", "says too little"),
        ] {
            let error = text.parse::<Arrivals>().unwrap_err();
            assert!(error.contains(answer), "{text:?}: {error}");
        }
    }

    fn any_arrivals() -> impl Strategy<Value = Arrivals> {
        let rate = || (1u32..2_000_000_000).prop_map(|r| Rate(f64::from(r) / 1000.0));
        let time = || (1u64..1 << 45).prop_map(Duration::from_nanos);
        prop_oneof![
            rate().prop_map(Arrivals::Constant),
            rate().prop_map(Arrivals::Poisson),
            (proptest::collection::vec(rate(), 1..5), time())
                .prop_map(|(levels, each)| Arrivals::Steps { levels, each }),
            (rate(), rate(), time()).prop_map(|(from, to, over)| Arrivals::Ramp { from, to, over }),
            "[a-z./][a-z ./]{0,12}[a-z]".prop_map(|path| arrivals(&format!("trace {path}"))),
        ]
    }

    proptest! {
        #[test]
        fn printed_arrivals_read_back(arrivals in any_arrivals()) {
            prop_assert_eq!(arrivals.to_string().parse::<Arrivals>(), Ok(arrivals));
        }

        #[test]
        fn due_times_never_decrease(arrivals in any_arrivals(), seed in any::<u64>()) {
            let times: Vec<Duration> = arrivals.schedule(seed).take(300).collect();
            prop_assert!(times.is_sorted());
        }

        #[test]
        fn no_text_panics(text in "\\PC*", shape in "(constant|poisson|steps|ramp|trace) \\PC*") {
            let _ = text.parse::<Arrivals>();
            let _ = shape.parse::<Arrivals>();
            let _ = arrivals("trace x").with_trace(&text);
        }
    }
}
