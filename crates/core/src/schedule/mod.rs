//! Faults as sentences: what is broken when, and how it is put right again.
//!
//! A [`Schedule`] is parsed from text and prints itself in the same words. [`Schedule::expand`] makes of it a
//! list of times and actions, a pure function of the seed; every fault has its undo in the list. The grammar
//! stands in `parse.rs` and in `docs/correctness.md`.

mod fault;
mod parse;

pub use fault::{Fault, Link, Nodes, Undo};
pub use parse::ScheduleError;

use crate::device::CutReport;
use crate::nearest::did_you_mean;
use crate::units::{Bytes, Tick, span};
use crate::workload::Random;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When a rule acts, counted from the beginning of the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// Once.
    At(Duration),
    /// Again and again.
    Every {
        /// From one time to the next.
        period: Duration,
        /// The first time; one period in, if the rule does not say.
        from: Option<Duration>,
        /// Not at this time or later.
        until: Option<Duration>,
        /// How often at most.
        times: Option<u32>,
    },
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::At(at) => write!(f, "at {}", span::print(*at)),
            When::Every { period, from, until, times } => {
                write!(f, "every {}", span::print(*period))?;
                if let Some(from) = from {
                    write!(f, " from {}", span::print(*from))?;
                }
                if let Some(until) = until {
                    write!(f, " until {}", span::print(*until))?;
                }
                times.map_or(Ok(()), |times| write!(f, " times {times}"))
            }
        }
    }
}

/// One sentence of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// When.
    pub when: When,
    /// What.
    pub fault: Fault,
    /// When it is undone, counted from the fault; at the end, if the rule does not say.
    pub undo_after: Option<Duration>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.when, self.fault)?;
        match self.undo_after {
            None => Ok(()),
            Some(after) if self.fault.restarts() => write!(f, ", restart after {}", span::print(after)),
            Some(after) => write!(f, " for {}", span::print(after)),
        }
    }
}

/// Rules, as they are written: "every 2 min: kill one of {a, b}, restart after 10 s".
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    /// In the order of the text.
    pub rules: Vec<Rule>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<String> = self.rules.iter().map(Rule::to_string).collect();
        f.write_str(&rules.join("; "))
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;
    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        parse::schedule(text)
    }
}

impl Serialize for Schedule {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What the laboratory does at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Break something. Nodes are names, but for [`Nodes::Primary`] and [`Nodes::Replica`], which the
    /// laboratory finds out, and [`Nodes::Rest`] beside them.
    Inject {
        /// What.
        #[serde(flatten)]
        fault: Fault,
    },
    /// Put it right again.
    Undo {
        /// How.
        undo: Undo,
    },
}

/// One line of an expanded schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// When, counted from the beginning of the faults.
    #[serde(rename = "at_ns", with = "span")]
    pub at: Duration,
    /// Which injection this belongs to: the fault and its undo have the same.
    pub injection: u32,
    /// Which rule it comes from, from 0.
    pub rule: u32,
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
}

/// No schedule has more injections: more are a slip of the pen.
const MOST_INJECTIONS: usize = 100_000;

impl Schedule {
    /// All actions up to `end`, in the order of time, for a cluster of `nodes`. Draws are a function of
    /// (seed, rule, how many times before), so that another rule in the schedule changes nothing. Whatever is
    /// not undone by then is undone at `end`; at equal times undoing goes first.
    ///
    /// # Errors
    /// A node that does not exist, with the nearest that does; a link from a node to itself; a rule that
    /// never acts before `end`, and more than 100 000 injections.
    pub fn expand(&self, nodes: &[String], end: Duration, seed: u64) -> Result<Vec<Timed>, ScheduleError> {
        let mut timed = Vec::new();
        let mut injection = 0;
        for (number, rule) in self.rules.iter().enumerate() {
            let fail = |reason| ScheduleError { rule: number + 1, reason };
            let times = rule.times(end);
            if times.is_empty() {
                return Err(fail(format!("never acts within {}: \"{rule}\"", span::print(end))));
            }
            if injection as usize + times.len() > MOST_INJECTIONS {
                return Err(fail(format!("makes more than {MOST_INJECTIONS} injections: \"{rule}\"")));
            }
            for (again, at) in times.into_iter().enumerate() {
                let mut random = Random::new(seed ^ ((number as u64) << 40), again as u64);
                let fault = resolved(&rule.fault, nodes, &mut random).map_err(fail)?;
                let undo = Action::Undo { undo: fault.undo() };
                let undone = rule.undo_after.map_or(end, |after| (at + after).min(end));
                let line = |at, action| Timed { at, injection, rule: number as u32, action };
                timed.push(line(at, Action::Inject { fault }));
                timed.push(line(undone, undo));
                injection += 1;
            }
        }
        timed.sort_by_key(|line| (line.at, matches!(line.action, Action::Inject { .. }), line.injection));
        Ok(timed)
    }
}

impl Rule {
    fn times(&self, end: Duration) -> Vec<Duration> {
        match self.when {
            When::At(at) => Some(at).filter(|at| *at < end).into_iter().collect(),
            When::Every { period, from, until, times } => {
                let end = until.map_or(end, |until| until.min(end));
                let first = from.unwrap_or(period);
                std::iter::successors(Some(first), |at| at.checked_add(period))
                    .take_while(|at| *at < end)
                    .take(times.map_or(MOST_INJECTIONS + 1, |times| times as usize))
                    .collect()
            }
        }
    }
}

/// The fault with names for everything that can be named before it happens.
fn resolved(fault: &Fault, nodes: &[String], random: &mut Random) -> Result<Fault, String> {
    let mut fault = fault.clone();
    let mut sides = fault.sides();
    for side in &mut sides {
        let names = match &**side {
            Nodes::Named(names) | Nodes::OneOf(names) => names,
            _ => continue,
        };
        for name in names {
            if !nodes.contains(name) {
                let near = did_you_mean(name, nodes.iter().map(String::as_str));
                let all = nodes.join(", ");
                return Err(format!("there is no node {name:?} among {all}{near}"));
            }
        }
    }
    for side in &mut sides {
        let drawn = match &**side {
            Nodes::OneOf(names) => vec![names[random.below(names.len() as u64) as usize].clone()],
            Nodes::Any if nodes.is_empty() => return Err("there are no nodes".into()),
            Nodes::Any => vec![nodes[random.below(nodes.len() as u64) as usize].clone()],
            Nodes::All => nodes.to_vec(),
            _ => continue,
        };
        **side = Nodes::Named(drawn);
    }
    if let [from, to] = &mut sides[..] {
        if let (Nodes::Named(here), Nodes::Rest) = (&**from, &**to) {
            let rest: Vec<String> = nodes.iter().filter(|node| !here.contains(node)).cloned().collect();
            if rest.is_empty() {
                return Err("there is no rest: every node is on the first side".into());
            }
            **to = Nodes::Named(rest);
        }
        if let (Nodes::Named(here), Nodes::Named(there)) = (&**from, &**to)
            && let Some(both) = here.iter().find(|name| there.contains(name))
        {
            return Err(format!("node {both:?} is on both sides"));
        }
    }
    Ok(fault)
}

/// What a fault did when it was injected. One that changed nothing proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// How often it hit something: processes killed, packets dropped, writes refused.
    Fired {
        /// How many times.
        count: u64,
    },
    /// It hit nothing: an idle link was cut, a process was already gone.
    Nothing {
        /// Why, as far as the laboratory knows.
        reason: String,
    },
}

/// What the power cut of a node took that nobody had made durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Which node.
    pub node: String,
    /// What had reached its disk and was not flushed.
    #[serde(flatten)]
    pub disk: CutReport,
    /// What its kernel had in memory and had not written to the disk; `None` where nobody counts that.
    #[serde(rename = "page_cache_bytes")]
    pub page_cache: Option<Bytes>,
}

/// A fault as it was injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// The rule that it comes from, as printed.
    pub rule: String,
    /// When, on the trial clock.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// How far `at` may be from the moment that it took effect.
    #[serde(rename = "uncertainty_ns", with = "crate::units::span")]
    pub uncertainty: Duration,
    /// When it was undone.
    #[serde(rename = "undone_ns", default)]
    pub undone: Option<Tick>,
    /// What it did.
    #[serde(flatten)]
    pub effect: Effect,
    /// Of a power cut: what was not durable on each of its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
}

impl Injection {
    /// Whether it did anything.
    pub fn had_effect(&self) -> bool {
        matches!(self.effect, Effect::Fired { count } if count > 0)
    }

    /// Its rule without its time, as [`Rule`] prints it: "kill primary, restart after 1 s".
    pub fn fault(&self) -> &str {
        self.rule.split_once(": ").map_or(&self.rule, |(_, fault)| fault)
    }
}

#[cfg(test)]
mod tests;
