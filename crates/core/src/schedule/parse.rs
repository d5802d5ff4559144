//! The grammar of schedules.
//!
//! ```text
//! schedule = rule ((";" | end of line) rule)*              "#" begins a comment
//! rule     = when ":" fault [("for" span) | ("," "restart" "after" span)]
//! when     = "at" span | "every" span ["from" span] ["until" span] ["times" n]
//! fault    = "kill" nodes | "kill backend of" nodes | "power cut" nodes | "pause" nodes | "step down" nodes
//!          | "cut" link | "flap" link "every" span | "delay" pair "by" span ["jitter" span]
//!          | "lose" share ("from" nodes "to" nodes | "between" nodes "and" nodes)
//!          | "slow disk of" nodes "by" span | "fill disk of" nodes | "fail flush of" nodes [n "times"]
//!          | "squeeze cpu of" nodes "to" share | "squeeze memory of" nodes "to" size
//!          | "jump clock of" nodes ("forward" | "back") span
//! link     = nodes ("from" | "to") nodes                    "to" is one way
//! pair     = nodes ("and" | "to") nodes                     "to" is one way
//! nodes    = name | "{" name ("," name)* "}" | "one of" "{" name ("," name)* "}"
//!          | "any" | "all" | "rest" | "primary" | "replica"
//! ```

use super::fault::{Fault, Link, Nodes};
use super::{Rule, Schedule, When};
use crate::nearest::did_you_mean;
use crate::units::{Bytes, Ratio, span};
use std::time::Duration;

/// Words that mean something and so name no node.
const RESERVED: &[&str] = &[
    "after", "all", "and", "any", "at", "back", "between", "by", "every", "for", "forward", "from", "jitter",
    "of", "one", "primary", "replica", "rest", "restart", "times", "to", "until",
];
const FAULTS: &[&str] = &[
    "kill", "power", "pause", "step", "cut", "flap", "delay", "lose", "slow", "fill", "fail", "squeeze",
    "jump",
];

/// A schedule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule}: {reason}")]
pub struct ScheduleError {
    /// Which rule, from 1.
    pub rule: usize,
    /// What was found, what would be right, and the nearest right word.
    pub reason: String,
}

pub(super) fn schedule(text: &str) -> Result<Schedule, ScheduleError> {
    let mut rules = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for rule in line.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let mut words = Words::new(rule);
            let parsed = words.rule().and_then(|parsed| words.end().map(|()| parsed));
            rules.push(parsed.map_err(|reason| ScheduleError { rule: rules.len() + 1, reason })?);
        }
    }
    Ok(Schedule { rules })
}

struct Words<'a> {
    rule: &'a str,
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    /// Words, and punctuation as words of its own.
    fn new(rule: &'a str) -> Self {
        let mut words = Vec::new();
        for part in rule.split_whitespace() {
            let mut rest = part;
            while let Some(at) = rest.find(|c| "{},:".contains(c)) {
                if at > 0 {
                    words.push(&rest[..at]);
                }
                words.push(&rest[at..=at]);
                rest = &rest[at + 1..];
            }
            if !rest.is_empty() {
                words.push(rest);
            }
        }
        Words { rule, words, at: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    fn unexpected(&self, wanted: &[&str]) -> String {
        let list = wanted.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ");
        match self.peek() {
            None => format!("ends where {list} should follow: {:?}", self.rule),
            Some(found) => {
                format!("{found:?} where {list} should stand{}", did_you_mean(found, wanted.iter().copied()))
            }
        }
    }

    fn expect(&mut self, words: &[&str]) -> Result<(), String> {
        for word in words {
            if !self.take(word) {
                return Err(self.unexpected(&[word]));
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(word) => {
                let wanted = ["for", ",", "restart", "from", "until", "times", "jitter"];
                Err(format!("{word:?} is too much: nothing more was expected{}", did_you_mean(word, wanted)))
            }
        }
    }

    /// A number and its unit, which may stand apart: "10 s", "10s".
    fn quantity<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let Some(first) = self.peek() else {
            return Err(format!("ends where {what} should follow: {:?}", self.rule));
        };
        let both = self.words.get(self.at + 1).map(|unit| format!("{first} {unit}"));
        if let Some(value) = both.as_deref().and_then(&parse) {
            self.at += 2;
            return Ok(value);
        }
        match parse(first) {
            Some(value) => {
                self.at += 1;
                Ok(value)
            }
            None => Err(format!("{:?} is not {what}", both.as_deref().unwrap_or(first))),
        }
    }

    fn span(&mut self) -> Result<Duration, String> {
        self.quantity("a span of time such as \"10 s\"", |text| span::parse(text).ok())
    }

    fn positive_span(&mut self) -> Result<Duration, String> {
        let span = self.span()?;
        if span.is_zero() { Err("a time of 0 s makes no sense here".into()) } else { Ok(span) }
    }

    fn share(&mut self) -> Result<Ratio, String> {
        let wanted = "a share of more than 0 % and up to 100 %, such as \"10 %\"";
        self.quantity(wanted, |text| text.parse::<Ratio>().ok().filter(|r| r.0 > 0.0 && r.0 <= 1.0))
    }

    fn number(&mut self) -> Result<u32, String> {
        self.quantity("a number from 1", |text| text.parse().ok().filter(|n| *n > 0))
    }

    fn rule(&mut self) -> Result<Rule, String> {
        let when = self.when()?;
        self.expect(&[":"])?;
        let fault = self.fault()?;
        let undo_after = if fault.restarts() {
            // The comma may be left out.
            if self.take(",") || self.peek() == Some("restart") {
                self.expect(&["restart", "after"])?;
                Some(self.span()?)
            } else {
                None
            }
        } else if self.take("for") {
            Some(self.positive_span()?)
        } else {
            None
        };
        Ok(Rule { when, fault, undo_after })
    }

    fn when(&mut self) -> Result<When, String> {
        if self.take("at") {
            return Ok(When::At(self.span()?));
        }
        if !self.take("every") {
            return Err(self.unexpected(&["at", "every"]));
        }
        let period = self.positive_span()?;
        let from = if self.take("from") { Some(self.span()?) } else { None };
        let until = if self.take("until") { Some(self.span()?) } else { None };
        let times = if self.take("times") { Some(self.number()?) } else { None };
        Ok(When::Every { period, from, until, times })
    }

    fn fault(&mut self) -> Result<Fault, String> {
        let Some(word) = self.peek().filter(|word| FAULTS.contains(word)) else {
            return Err(self.unexpected(FAULTS));
        };
        self.at += 1;
        Ok(match word {
            "kill" if self.take("backend") => {
                self.expect(&["of"])?;
                Fault::KillBackend { nodes: self.nodes(false)? }
            }
            "kill" => Fault::Kill { nodes: self.nodes(false)? },
            "power" => {
                self.expect(&["cut"])?;
                Fault::PowerCut { nodes: self.nodes(false)? }
            }
            "pause" => Fault::Pause { nodes: self.nodes(false)? },
            "step" => {
                self.expect(&["down"])?;
                Fault::StepDown { nodes: self.nodes(false)? }
            }
            "cut" => Fault::Cut { link: self.link("from")? },
            "flap" => {
                let link = self.link("from")?;
                self.expect(&["every"])?;
                Fault::Flap { link, period: self.positive_span()? }
            }
            "delay" => {
                let link = self.link("and")?;
                self.expect(&["by"])?;
                let by = self.positive_span()?;
                let jitter = if self.take("jitter") { self.span()? } else { Duration::ZERO };
                Fault::Delay { link, by, jitter }
            }
            "lose" => {
                let share = self.share()?;
                let both = self.take("between");
                if !both && !self.take("from") {
                    return Err(self.unexpected(&["from", "between"]));
                }
                let from = self.nodes(false)?;
                self.expect(&[if both { "and" } else { "to" }])?;
                let to = self.nodes(true)?;
                Fault::Loss { link: Link { from, to, one_way: !both }, share }
            }
            _ => self.of_a_node(word)?,
        })
    }

    /// Faults of the form "verb thing of nodes ...".
    fn of_a_node(&mut self, verb: &str) -> Result<Fault, String> {
        let things: &[&str] = match verb {
            "slow" | "fill" => &["disk"],
            "fail" => &["flush"],
            "squeeze" => &["cpu", "memory"],
            _ => &["clock"],
        };
        let Some(thing) = self.peek().filter(|word| things.contains(word)) else {
            return Err(self.unexpected(things));
        };
        self.at += 1;
        self.expect(&["of"])?;
        let nodes = self.nodes(false)?;
        Ok(match (verb, thing) {
            ("slow", _) => {
                self.expect(&["by"])?;
                Fault::SlowDisk { nodes, by: self.positive_span()? }
            }
            ("fill", _) => Fault::FillDisk { nodes },
            ("fail", _) => {
                let is_counted =
                    self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()));
                let count = if is_counted { self.number()? } else { 1 };
                if is_counted {
                    self.expect(&["times"])?;
                }
                Fault::FailFlush { nodes, count }
            }
            ("squeeze", "cpu") => {
                self.expect(&["to"])?;
                Fault::SqueezeCpu { nodes, to: self.share()? }
            }
            ("squeeze", _) => {
                self.expect(&["to"])?;
                let wanted = "a size such as \"128 MiB\"";
                let to = self.quantity(wanted, |text| text.parse::<Bytes>().ok().filter(|b| b.0 > 0))?;
                Fault::SqueezeMemory { nodes, to }
            }
            _ => {
                let back = self.take("back");
                if !back && !self.take("forward") {
                    return Err(self.unexpected(&["forward", "back"]));
                }
                Fault::JumpClock { nodes, by: self.positive_span()?, back }
            }
        })
    }

    fn link(&mut self, both: &str) -> Result<Link, String> {
        let from = self.nodes(false)?;
        let one_way = self.take("to");
        if !one_way && !self.take(both) {
            return Err(self.unexpected(&[both, "to"]));
        }
        Ok(Link { from, to: self.nodes(true)?, one_way })
    }

    fn nodes(&mut self, may_be_rest: bool) -> Result<Nodes, String> {
        let Some(word) = self.peek() else {
            return Err(format!("ends where a node should follow: {:?}", self.rule));
        };
        match word {
            "any" | "all" | "primary" | "replica" | "rest" => {
                self.at += 1;
                match word {
                    "any" => Ok(Nodes::Any),
                    "all" => Ok(Nodes::All),
                    "primary" => Ok(Nodes::Primary),
                    "replica" => Ok(Nodes::Replica),
                    _ if may_be_rest => Ok(Nodes::Rest),
                    _ => Err("\"rest\" can only be the second side of a link".into()),
                }
            }
            "one" => {
                self.at += 1;
                self.expect(&["of"])?;
                Ok(Nodes::OneOf(self.set()?))
            }
            "{" => Ok(Nodes::Named(self.set()?)),
            _ => Ok(Nodes::Named(vec![self.name()?])),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        self.expect(&["{"])?;
        let mut names = vec![self.name()?];
        while self.take(",") {
            names.push(self.name()?);
        }
        if !self.take("}") {
            return Err(self.unexpected(&[",", "}"]));
        }
        Ok(names)
    }

    fn name(&mut self) -> Result<String, String> {
        let is_name = |word: &str| {
            !RESERVED.contains(&word)
                && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
                && word.starts_with(|c: char| c.is_ascii_alphabetic())
        };
        match self.peek() {
            Some(word) if is_name(word) => {
                self.at += 1;
                Ok(word.into())
            }
            Some(word) => Err(format!("{word:?} is not the name of a node")),
            None => Err(format!("ends where a node should follow: {:?}", self.rule)),
        }
    }
}
