//! Faults as rules: a predicate on requests and an effect, printed in the syntax that is parsed.
//!
//! `eio,kind=read,path=base/*,probability=1%,seed=7` fails one read in a hundred below `base`. A rule counts
//! what it matched and how often it fired: a fault that never fired proves nothing.

use super::Kind;
use crate::nearest::did_you_mean;
use crate::units::{Bytes, ParseError, Ratio, Tick, span};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a fault does to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It fails with EIO. Sticky: so does every later request to the same range, as a bad sector does; a
    /// single failure is retried by the kernel and seen by nobody.
    Eio {
        /// Whether the range stays bad.
        sticky: bool,
    },
    /// It fails with ENOSPC.
    Enospc,
    /// It is not answered, for this long or until the rule is cleared.
    Stall(Option<Duration>),
    /// It takes this much longer.
    Slow(Duration),
    /// Only a part of a write is written, in units of this size; all of it is acknowledged.
    Torn(Bytes),
    /// A write is acknowledged and not written.
    Lost,
    /// A bit of what is read is another.
    Corrupt,
    /// A flush is acknowledged, and nothing is flushed.
    LyingSync,
}

impl Effect {
    /// Whether it can happen to requests of this kind.
    pub fn concerns(self, kind: Kind) -> bool {
        match self {
            Effect::Eio { .. } | Effect::Stall(_) | Effect::Slow(_) => kind != Kind::Discard,
            Effect::Enospc | Effect::Torn(_) | Effect::Lost => kind == Kind::Write,
            Effect::Corrupt => kind == Kind::Read,
            Effect::LyingSync => kind == Kind::Flush,
        }
    }
}

/// When a fault happens, and what it does. What is absent does not restrict.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What happens.
    pub effect: Effect,
    /// Only to requests of this kind.
    pub kind: Option<Kind>,
    /// Only to files whose path matches: `*` is any text, `?` any character. File mode only: a block device
    /// knows no files, and the rule then matches nothing.
    pub path: Option<String>,
    /// Only to requests that touch these bytes: from, and up to but without.
    pub range: Option<(Bytes, Bytes)>,
    /// Only to the n-th request that matches so far, from 1.
    pub nth: Option<u64>,
    /// Only to each n-th of them.
    pub every: Option<u64>,
    /// Only with this probability, drawn for each of them from `seed`.
    pub probability: Option<Ratio>,
    /// Not before this time after the rule was added.
    pub from: Option<Duration>,
    /// Not from this time on.
    pub until: Option<Duration>,
    /// At most so often.
    pub times: Option<u64>,
    /// What chance depends on.
    pub seed: u64,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No effect of this name.
    #[error("a fault has no effect {given:?}{hint} (effects: {})", EFFECTS.join(", "))]
    Effect {
        /// The word that was given.
        given: String,
        /// The nearest one.
        hint: String,
    },
    /// No key of this name.
    #[error("a fault has no key {given:?}{hint} (keys: {})", KEYS.join(", "))]
    Key {
        /// The word that was given.
        given: String,
        /// The nearest one.
        hint: String,
    },
    /// A value that cannot be read.
    #[error("{key}: {reason}")]
    Value {
        /// Whose.
        key: &'static str,
        /// Why.
        reason: ParseError,
    },
    /// A value that means nothing.
    #[error("{key}={given}: {wanted}")]
    Impossible {
        /// Whose.
        key: &'static str,
        /// The word that was given.
        given: String,
        /// What would do.
        wanted: &'static str,
    },
}

const EFFECTS: [&str; 9] =
    ["eio", "eio-sticky", "enospc", "stall", "slow", "torn", "lost", "corrupt", "lying-sync"];
const KEYS: [&str; 10] =
    ["kind", "path", "range", "nth", "every", "probability", "from", "until", "times", "seed"];

fn plain(span: Duration) -> String {
    span::print(span).replace(' ', "")
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Eio { sticky: false } => f.write_str("eio"),
            Effect::Eio { sticky: true } => f.write_str("eio-sticky"),
            Effect::Enospc => f.write_str("enospc"),
            Effect::Stall(None) => f.write_str("stall"),
            Effect::Stall(Some(span)) => write!(f, "stall:{}", plain(*span)),
            Effect::Slow(span) => write!(f, "slow:{}", plain(*span)),
            Effect::Torn(unit) => write!(f, "torn:{}", unit.to_string().replace(' ', "")),
            Effect::Lost => f.write_str("lost"),
            Effect::Corrupt => f.write_str("corrupt"),
            Effect::LyingSync => f.write_str("lying-sync"),
        }
    }
}

impl FromStr for Effect {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (word, argument) = match text.split_once(':') {
            Some((word, argument)) => (word.trim(), Some(argument)),
            None => (text.trim(), None),
        };
        let impossible = |wanted| RuleError::Impossible { key: "effect", given: text.into(), wanted };
        let time =
            |text: &str| span::parse(text).map_err(|reason| RuleError::Value { key: "effect", reason });
        let effect = match word {
            "eio" => Effect::Eio { sticky: false },
            "eio-sticky" => Effect::Eio { sticky: true },
            "enospc" => Effect::Enospc,
            "stall" => return Ok(Effect::Stall(argument.map(time).transpose()?)),
            "slow" => {
                let more = argument.ok_or(impossible("say by how much, such as slow:50ms"))?;
                return Ok(Effect::Slow(time(more)?));
            }
            "torn" => {
                let unit = argument.unwrap_or("512").parse::<Bytes>();
                let unit = unit.map_err(|reason| RuleError::Value { key: "effect", reason })?;
                if unit.0 == 0 {
                    return Err(impossible("a unit of at least one byte is needed"));
                }
                return Ok(Effect::Torn(unit));
            }
            "lost" => Effect::Lost,
            "corrupt" => Effect::Corrupt,
            "lying-sync" => Effect::LyingSync,
            other => {
                return Err(RuleError::Effect { given: other.into(), hint: did_you_mean(other, EFFECTS) });
            }
        };
        match argument {
            None => Ok(effect),
            Some(_) => Err(impossible("this effect takes no argument")),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.effect.to_string();
        let mut part = |key: &str, value: String| {
            text.push_str(&format!(",{key}={value}"));
        };
        if let Some(kind) = self.kind {
            part("kind", word(kind).into());
        }
        if let Some(path) = &self.path {
            part("path", path.clone());
        }
        if let Some((from, to)) = self.range {
            part("range", format!("{from}-{to}").replace(' ', ""));
        }
        for (key, value) in [("nth", self.nth), ("every", self.every)] {
            value.into_iter().for_each(|n| part(key, n.to_string()));
        }
        if let Some(probability) = self.probability {
            part("probability", probability.to_string());
        }
        for (key, value) in [("from", self.from), ("until", self.until)] {
            value.into_iter().for_each(|time| part(key, plain(time)));
        }
        self.times.into_iter().for_each(|n| part("times", n.to_string()));
        if self.seed != 0 {
            part("seed", self.seed.to_string());
        }
        f.write_str(&text)
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Flush => "flush",
        Kind::Discard => "discard",
    }
}

impl FromStr for Rule {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let effect: Effect = parts.next().unwrap_or_default().parse()?;
        let mut rule = Rule::new(effect);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let given = key.trim();
            let key = *KEYS
                .iter()
                .find(|k| **k == given)
                .ok_or_else(|| RuleError::Key { given: given.into(), hint: did_you_mean(given, KEYS) })?;
            rule.set(key, value.trim())?;
        }
        Ok(rule)
    }
}

impl Rule {
    /// Always, to everything that this effect can happen to.
    pub fn new(effect: Effect) -> Rule {
        Rule {
            effect,
            kind: None,
            path: None,
            range: None,
            nth: None,
            every: None,
            probability: None,
            from: None,
            until: None,
            times: None,
            seed: 0,
        }
    }

    fn set(&mut self, key: &'static str, value: &str) -> Result<(), RuleError> {
        let bad = |reason| RuleError::Value { key, reason };
        let impossible = |wanted| RuleError::Impossible { key, given: value.into(), wanted };
        let count = || match value.parse::<u64>() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(impossible("a whole number from 1 is needed")),
        };
        let time = || span::parse(value).map(Some).map_err(bad);
        match key {
            "kind" => {
                let kind = match value {
                    "read" => Kind::Read,
                    "write" => Kind::Write,
                    "flush" | "sync" => Kind::Flush,
                    _ => return Err(impossible("read, write and flush are possible")),
                };
                if !self.effect.concerns(kind) {
                    return Err(impossible("this effect cannot happen to that kind"));
                }
                self.kind = Some(kind);
            }
            "path" if value.is_empty() => return Err(impossible("a pattern such as base/* is needed")),
            "path" => self.path = Some(value.into()),
            "range" => {
                let (from, to) = value.split_once('-').ok_or(impossible("write FROM-TO, such as 0-4KiB"))?;
                let (from, to): (Bytes, Bytes) = (from.parse().map_err(bad)?, to.parse().map_err(bad)?);
                if from >= to {
                    return Err(impossible("the end must lie behind the beginning"));
                }
                self.range = Some((from, to));
            }
            "nth" => self.nth = count()?,
            "every" => self.every = count()?,
            "probability" => {
                let share: Ratio = value.parse().map_err(bad)?;
                if !(0.0..=1.0).contains(&share.0) {
                    return Err(impossible("0 % to 100 % are possible"));
                }
                self.probability = Some(share);
            }
            "from" => self.from = time()?,
            "until" => self.until = time()?,
            "times" => self.times = count()?,
            _ => self.seed = value.parse().map_err(|_| impossible("a whole number is needed"))?,
        }
        Ok(())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A request, as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What it asks for.
    pub kind: Kind,
    /// Which file; zero for a device.
    pub file: u64,
    /// Its path, where files have one.
    pub path: Option<&'a str>,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes.
    pub size: Bytes,
}

/// What shall become of a request, all rules taken together; the default is nothing special.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// It fails so.
    pub error: Option<FaultError>,
    /// It takes longer by this.
    pub delay: Duration,
    /// It is not answered until released.
    pub stall: bool,
    /// It is acknowledged and not written.
    pub lost: bool,
    /// Only this many of its first bytes are written.
    pub written: Option<u64>,
    /// This bit of what is read is another.
    pub flipped_bit: Option<u64>,
    /// The flush is acknowledged and not done.
    pub lying: bool,
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
}

/// A rule in force, and what it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Armed {
    /// To be cleared by.
    pub number: u64,
    /// The rule.
    pub rule: Rule,
    /// Requests that met all but `nth`, `every`, `probability` and `times`.
    pub matched: u64,
    /// How often it happened.
    pub fired: u64,
}

/// Where a sticky rule has struck: file, begin, end.
type BadRange = (u64, u64, u64);

/// All rules in force on a disk.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Each with the time since when, and its bad ranges.
    rules: Vec<(Armed, Tick, Vec<BadRange>)>,
    last: u64,
}

impl Faults {
    /// Puts a rule in force at `now`; returns its number.
    pub fn add(&mut self, rule: Rule, now: Tick) -> u64 {
        self.last += 1;
        let armed = Armed { number: self.last, rule, matched: 0, fired: 0 };
        self.rules.push((armed, now, Vec::new()));
        self.last
    }

    /// Takes back the rule of this number, or all; returns how many there were.
    pub fn clear(&mut self, number: Option<u64>) -> usize {
        let before = self.rules.len();
        self.rules.retain(|(armed, _, _)| number.is_some_and(|n| n != armed.number));
        before - self.rules.len()
    }

    /// What is in force.
    pub fn list(&self) -> Vec<Armed> {
        self.rules.iter().map(|(armed, _, _)| armed.clone()).collect()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule asks for paths.
    pub fn ask_for_paths(&self) -> bool {
        self.rules.iter().any(|(armed, _, _)| armed.rule.path.is_some())
    }

    /// What becomes of this request, at `now`.
    pub fn judge(&mut self, now: Tick, asked: &Asked<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        for (armed, added, bad) in &mut self.rules {
            if fires(armed, now.since(*added), bad, asked) {
                armed.fired += 1;
                apply(armed, asked, &mut verdict);
            }
        }
        verdict
    }
}

fn fires(armed: &mut Armed, age: Duration, bad: &mut Vec<BadRange>, asked: &Asked<'_>) -> bool {
    let rule = &armed.rule;
    let end = asked.offset.saturating_add(asked.size.0);
    let overlaps = |from: u64, to: u64| asked.offset < to && from < end.max(asked.offset + 1);
    let concerned = rule.effect.concerns(asked.kind)
        && rule.kind.is_none_or(|kind| kind == asked.kind)
        && rule.path.as_ref().is_none_or(|path| asked.path.is_some_and(|asked| matches(path, asked)))
        && rule.range.is_none_or(|(from, to)| asked.kind != Kind::Flush && overlaps(from.0, to.0))
        && rule.from.is_none_or(|from| age >= from)
        && rule.until.is_none_or(|until| age < until);
    if !concerned {
        return false;
    }
    if bad.iter().any(|(file, from, to)| *file == asked.file && overlaps(*from, *to)) {
        return true;
    }
    armed.matched += 1;
    let n = armed.matched;
    let fires = rule.times.is_none_or(|times| armed.fired < times)
        && rule.nth.is_none_or(|nth| n == nth)
        && rule.every.is_none_or(|every| n.is_multiple_of(every))
        && rule.probability.is_none_or(|p| chance(rule.seed, n) < p.0);
    if fires && rule.effect == (Effect::Eio { sticky: true }) && asked.kind != Kind::Flush {
        bad.push((asked.file, asked.offset, end));
    }
    fires
}

/// A number in [0, 1) for the n-th match.
fn chance(seed: u64, n: u64) -> f64 {
    super::hash(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(n.wrapping_mul(0xD1B5_4A32_D192_ED03)))
}

fn apply(armed: &Armed, asked: &Asked<'_>, verdict: &mut Verdict) {
    // Another draw than the one that decided whether it happens.
    let draw = chance(armed.rule.seed ^ 0x5851_F42D_4C95_7F2D, armed.matched);
    match armed.rule.effect {
        Effect::Eio { .. } => verdict.error = Some(FaultError::Io),
        Effect::Enospc => verdict.error = Some(FaultError::NoSpace),
        Effect::Stall(None) => verdict.stall = true,
        Effect::Stall(Some(time)) | Effect::Slow(time) => verdict.delay += time,
        Effect::Torn(unit) => {
            let units = asked.size.0.div_ceil(unit.0);
            verdict.written = Some(((draw * units as f64) as u64 * unit.0).min(asked.size.0));
        }
        Effect::Lost => verdict.lost = true,
        Effect::Corrupt => verdict.flipped_bit = Some((draw * (asked.size.0 * 8) as f64) as u64),
        Effect::LyingSync => verdict.lying = true,
    }
}

/// Whether `text` is as `pattern` says: `*` any text, `?` any one character.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option::of;
    use proptest::prelude::*;

    fn any_rule() -> impl Strategy<Value = Rule> {
        let time = || (0u64..3_600_000_000_000).prop_map(Duration::from_nanos);
        let effect = prop_oneof![
            any::<bool>().prop_map(|sticky| Effect::Eio { sticky }),
            Just(Effect::Enospc),
            of(time()).prop_map(Effect::Stall),
            time().prop_map(Effect::Slow),
            (1u64..1 << 20).prop_map(|n| Effect::Torn(Bytes(n))),
            Just(Effect::Lost),
            Just(Effect::Corrupt),
            Just(Effect::LyingSync),
        ];
        let where_ = (any::<bool>(), of("[a-z*?/._-]{1,12}"), of((0u64..1 << 40, 1u64..1 << 30)));
        let when = (of(1u64..1000), of(1u64..1000), of(0.0..=1.0f64), of(time()), of(time()), of(1u64..100));
        (effect, where_, when, any::<u64>()).prop_map(|(effect, (kinds, path, range), when, seed)| {
            let all = [Kind::Read, Kind::Write, Kind::Flush];
            Rule {
                effect,
                kind: all.into_iter().find(|kind| kinds && effect.concerns(*kind)),
                path,
                range: range.map(|(from, len)| (Bytes(from), Bytes(from + len))),
                nth: when.0,
                every: when.1,
                probability: when.2.map(Ratio),
                from: when.3,
                until: when.4,
                times: when.5,
                seed,
            }
        })
    }

    proptest! {
        #[test]
        fn printed_rules_read_back(rule in any_rule()) {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Rule>();
        }
        #[test]
        fn patterns_match_what_they_were_made_of(parts in prop::collection::vec("[a-z/]{0,5}", 1..5)) {
            prop_assert!(matches(&parts.join("*"), &parts.concat()));
            prop_assert!(matches(&parts.join("*"), &parts.join("anything")));
        }
    }

    fn read(offset: u64) -> Asked<'static> {
        Asked { kind: Kind::Read, file: 1, path: Some("base/5/123"), offset, size: Bytes(4096) }
    }

    fn fired(rule: &str, count: u64) -> Vec<u64> {
        let mut faults = Faults::default();
        faults.add(rule.parse().unwrap(), Tick(0));
        let hit = |n: &u64| faults.judge(Tick(n * 1_000_000_000), &read(n * 4096)) != Verdict::default();
        (0..count).filter(hit).collect()
    }

    #[test]
    fn a_path_with_a_blank_keeps_it() {
        let text = "eio,path=my files/*,range=4KiB-8KiB,from=1s";
        let rule: Rule = text.parse().unwrap();
        assert_eq!((rule.path.as_deref(), rule.to_string()), (Some("my files/*"), text.to_string()));
    }

    #[test]
    fn rules_fire_when_they_say() {
        assert_eq!(fired("eio", 3), [0, 1, 2]);
        assert_eq!(fired("eio,nth=2", 5), [1]);
        assert_eq!(fired("eio,every=2,times=2", 9), [1, 3]);
        assert_eq!(fired("eio,from=2s,until=4s", 9), [2, 3]);
        assert_eq!(fired("eio,range=8192-12289", 9), [2, 3]);
        assert_eq!(fired("eio,path=base/*", 2), [0, 1]);
        assert_eq!(fired("eio,path=pg_wal/*", 2), Vec::<u64>::new());
        assert_eq!(fired("eio,kind=write", 2), Vec::<u64>::new());
        assert_eq!(fired("lost", 2), Vec::<u64>::new(), "only writes are lost");
        let share = fired("eio,probability=10%,seed=3", 10_000).len();
        assert!((900..1100).contains(&share), "{share}");
        assert_eq!(fired("eio,probability=10%,seed=3", 500), fired("eio,probability=10%,seed=3", 500));
        assert_ne!(fired("eio,probability=10%,seed=3", 500), fired("eio,probability=10%,seed=4", 500));
    }

    #[test]
    fn a_sticky_range_stays_bad_and_everything_is_counted() {
        let mut faults = Faults::default();
        let number = faults.add("eio-sticky,nth=2".parse().unwrap(), Tick(0));
        let mut fails = |offset| faults.judge(Tick(0), &read(offset)).error.is_some();
        assert!(!fails(0) && fails(8192) && !fails(0) && fails(8192) && fails(10_000));
        let armed = faults.list();
        assert_eq!((armed[0].number, armed[0].fired), (number, 3));
        assert_eq!((faults.clear(Some(number + 1)), faults.clear(Some(number))), (0, 1));
        assert!(faults.is_empty());
    }

    #[test]
    fn effects_add_up() {
        let mut faults = Faults::default();
        for rule in ["slow:2ms", "slow:3ms", "torn:512B,seed=1", "stall"] {
            faults.add(rule.parse().unwrap(), Tick(0));
        }
        let asked = Asked { kind: Kind::Write, ..read(0) };
        let verdict = faults.judge(Tick(0), &asked);
        assert_eq!((verdict.delay, verdict.stall), (Duration::from_millis(5), true));
        let written = verdict.written.unwrap();
        assert!(written < 4096 && written % 512 == 0, "{written}");
        assert_eq!(faults.judge(Tick(0), &read(0)).written, None);
    }

    #[test]
    fn mistakes_are_named_with_the_nearest_word() {
        let error = |text: &str| text.parse::<Rule>().unwrap_err().to_string();
        assert!(error("eios").contains("\"eio\""), "{}", error("eios"));
        assert!(error("eio,pth=x").contains("\"path\""));
        assert!(error("slow").contains("slow:50ms"));
        assert!(error("torn,kind=read").contains("cannot happen"));
        assert!(error("eio,range=5").contains("FROM-TO"));
        assert!(error("eio,nth=0").contains("from 1"));
        assert!(error("eio:3").contains("no argument"));
        assert!(error("").contains("effects"));
    }
}
