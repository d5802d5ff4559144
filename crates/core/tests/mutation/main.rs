//! A campaign against the checkers: honest histories, each changed in one place, and an independent judge
//! that says from the definition of the promise whether the change broke it.
//!
//! A mutant that breaks a promise is convicted or undecided, never valid; one that breaks none is never
//! convicted. What each checker says is counted by mutation, and the table stands in docs/correctness.md.

#![allow(missing_docs, reason = "nobody calls a test")]

mod bank;
mod keys;
mod lists;

use std::collections::BTreeMap;
use std::fmt::Write;
use tipover_core::check::guilty::{Culprit, Extent, Work, observe_for};
use tipover_core::check::{Checker, Entry, Observation, Verdict, judge};
use tipover_core::op::{Failure, Outcome};
use tipover_core::workload::Random;

/// Mutants for each checker.
const MUTANTS: u64 = 10_000;
/// Honest histories, of each of which mutants are made.
const HONEST: u64 = 100;

/// How a history, or what was read after it, is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    Drop,
    Double,
    Swap,
    Reorder,
    Forge,
    DropRow,
    DoubleRow,
    SwapRows,
    ForgeRow,
    RollBack,
    OneReading,
}

use Mutation::*;

const MUTATIONS: [Mutation; 11] =
    [Drop, Double, Swap, Reorder, Forge, DropRow, DoubleRow, SwapRows, ForgeRow, RollBack, OneReading];

impl Mutation {
    fn words(self) -> &'static str {
        match self {
            Drop => "an operation dropped",
            Double => "an operation doubled",
            Swap => "two results swapped",
            Reorder => "two operations of a client reordered",
            Forge => "a result forged",
            DropRow => "a row dropped from the final readings",
            DoubleRow => "a row doubled there",
            SwapRows => "two rows swapped there",
            ForgeRow => "a row forged there",
            RollBack => "the last 1 to 5 acknowledgements rolled back there",
            OneReading => "one final reading changed, the others not",
        }
    }
}

/// What the definition of the promise says of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Truth {
    /// No execution that keeps the promise looks like this.
    Broken(String),
    /// It contradicts itself, or nobody knows what is there: no verdict of valid may rest on it.
    Open(String),
    /// An execution that keeps the promise looks like this.
    Legal,
}

/// One checker under trial.
pub struct Trial {
    pub name: &'static str,
    pub work: Work,
    /// Honest histories in turn.
    pub extents: Vec<Extent>,
    /// The checkers of the claims that mutants are judged by, in turn.
    pub checkers: Vec<Box<dyn Checker>>,
    /// The independent judge of the claim with this number.
    pub truth: fn(usize, &Observation) -> Truth,
    /// Changes what the common mutations do not; whether anything was changed.
    pub change: fn(Mutation, &mut Observation, &mut Random) -> bool,
    /// Why a mutant that was acquitted is legal, from what was changed.
    pub why: fn(Mutation, &Change) -> &'static str,
}

/// What a mutation of the history changed; nothing for one of the readings.
#[derive(Debug, Default)]
pub struct Change {
    pub before: Option<Entry>,
    pub after: Option<Entry>,
    /// What was changed, before and after.
    pub seen: [Observation; 2],
}

/// How often what was said.
#[derive(Debug, Default)]
pub struct Tally {
    convicted: u64,
    undecided: u64,
    acquitted: u64,
    left_open: u64,
}

pub fn pick<T>(random: &mut Random, of: &[T]) -> Option<usize> {
    (!of.is_empty()).then(|| random.below(of.len() as u64) as usize)
}

/// Two different places.
pub fn pick_two<T>(random: &mut Random, of: &[T]) -> Option<(usize, usize)> {
    let (a, b) = (pick(random, of)?, pick(random, of)?);
    (a != b).then_some((a, b))
}

/// Mutations that are the same for all operations; the others are the trial's.
fn mutate(trial: &Trial, mutation: Mutation, seen: &mut Observation, random: &mut Random) -> Option<Change> {
    let before = seen.clone();
    let entries = &mut seen.history.entries;
    let mut change = Change::default();
    match mutation {
        Drop => change.before = Some(entries.remove(pick(random, entries)?)),
        Double => {
            let mut again = entries[pick(random, entries)?].clone();
            change.before = Some(again.clone());
            let last =
                entries.iter().filter(|e| e.client == again.client).map(|e| (e.sequence, e.ended)).max()?;
            again.sequence = last.0 + 1;
            let until = last.1.or(entries.last().map(|e| e.began))?;
            let took = again.ended.map(|ended| ended.since(again.began)).unwrap_or_default();
            again.began = until + std::time::Duration::from_micros(100);
            again.due = again.began;
            again.ended = again.ended.map(|_| again.began + took);
            entries.push(again);
        }
        Swap => {
            let (a, b) = pick_two(random, entries)?;
            if entries[a].op.kind() != entries[b].op.kind() {
                return None;
            }
            let [first, second] = [entries[a].clone(), entries[b].clone()];
            change.before = Some(first.clone());
            (entries[a].outcome, entries[a].answer) = (second.outcome, second.answer);
            (entries[b].outcome, entries[b].answer) = (first.outcome, first.answer);
            change.after = Some(entries[a].clone());
        }
        Reorder => {
            let (a, b) = pick_two(random, entries)?;
            if entries[a].client != entries[b].client {
                return None;
            }
            let [first, second] = [entries[a].clone(), entries[b].clone()];
            change.before = Some(first.clone());
            for (at, other) in [(a, second), (b, first)] {
                let entry = &mut entries[at];
                (entry.op, entry.outcome, entry.answer) = (other.op, other.outcome, other.answer);
            }
            change.after = Some(entries[a].clone());
        }
        Forge if random.below(2) == 0 => {
            let at = pick(random, entries)?;
            let entry = &mut entries[at];
            change.before = Some(entry.clone());
            entry.outcome = match random.below(3) {
                0 => Outcome::Done,
                1 => Outcome::Refused(Failure::Conflict),
                _ => Outcome::Unknown(Failure::Timeout),
            };
            // An answer that somebody got stays with an acknowledgement only.
            if entry.outcome != Outcome::Done {
                entry.answer = Default::default();
            }
            change.after = Some(entry.clone());
        }
        _ => {
            if !(trial.change)(mutation, seen, random) {
                return None;
            }
            let pairs = before.history.entries.iter().zip(&seen.history.entries);
            if let Some((old, new)) = pairs.clone().find(|(old, new)| old != new) {
                (change.before, change.after) = (Some(old.clone()), Some(new.clone()));
            }
        }
    }
    change.seen = [before, seen.clone()];
    (change.seen[0] != change.seen[1]).then_some(change)
}

/// Honest histories that are judged valid; none may be worse than too small.
fn honest(trial: &Trial) -> Vec<Observation> {
    let mut valid = Vec::new();
    for seed in 0.. {
        let extent = &trial.extents[seed as usize % trial.extents.len()];
        let seen = observe_for(extent, Culprit::Honest, trial.work, seed);
        let verdicts = trial.checkers.iter().enumerate().map(|(claim, checker)| {
            assert_eq!((trial.truth)(claim, &seen), Truth::Legal, "{} seed {seed}", trial.name);
            let judgement = judge(&[checker.as_ref()], &seen);
            assert!(judgement.verdict <= Verdict::NoEvidence, "{} seed {seed}: {judgement:#?}", trial.name);
            judgement.verdict
        });
        if verdicts.max() == Some(Verdict::Valid) {
            valid.push(seen);
        }
        if valid.len() as u64 == HONEST {
            break;
        }
    }
    valid
}

/// All mutants of one checker; what it says of each is counted, and what it may not say fails.
fn campaign(trial: &Trial, page: &mut String) {
    let honest = honest(trial);
    let mut tallies: BTreeMap<Mutation, Tally> = BTreeMap::new();
    let mut survivors: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut made, mut wrong) = (0, Vec::new());
    for number in 0.. {
        let mut random = Random::new(number, 77);
        let mutation = MUTATIONS[number as usize % MUTATIONS.len()];
        let mut seen = honest[random.below(HONEST) as usize].clone();
        let Some(change) = mutate(trial, mutation, &mut seen, &mut random) else { continue };
        let claim = random.below(trial.checkers.len() as u64) as usize;
        let truth = (trial.truth)(claim, &seen);
        let judgement = judge(&[trial.checkers[claim].as_ref()], &seen);
        let tally = tallies.entry(mutation).or_default();
        match (&truth, judgement.verdict) {
            (Truth::Broken(_), Verdict::Invalid) => tally.convicted += 1,
            (Truth::Broken(_), Verdict::Unknown) => tally.undecided += 1,
            (Truth::Open(_), Verdict::Invalid) => tally.convicted += 1,
            (Truth::Open(_), Verdict::Unknown) => tally.undecided += 1,
            (Truth::Legal, Verdict::Valid) => {
                tally.acquitted += 1;
                *survivors.entry((trial.why)(mutation, &change)).or_default() += 1;
            }
            (Truth::Legal, Verdict::NoEvidence | Verdict::NotTested | Verdict::Unknown) => {
                tally.left_open += 1
            }
            (truth, verdict) => wrong.push(format!(
                "{} mutant {number}, {}, claim {claim}: {truth:?}, and it says {verdict:?}: {} / {:?}",
                trial.name,
                mutation.words(),
                judgement.summary(),
                [&change.before, &change.after],
            )),
        }
        made += 1;
        if made == MUTANTS {
            break;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong verdicts, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(6)].join("\n")
    );
    let _ = writeln!(
        page,
        "\n| {} | broken: convicted | broken: undecided | legal: valid | legal: undecided |",
        trial.name
    );
    page.push_str("|---|---|---|---|---|\n");
    for (mutation, Tally { convicted, undecided, acquitted, left_open }) in &tallies {
        let _ = writeln!(
            page,
            "| {} | {convicted} | {undecided} | {acquitted} | {left_open} |",
            mutation.words()
        );
    }
    page.push('\n');
    for (why, count) in survivors {
        let _ = writeln!(page, "- {count} valid: {why}");
    }
}

/// Deterministic, so the documented figures are these to the last digit.
#[test]
fn no_broken_promise_survives_and_no_kept_one_is_convicted() {
    let mut page = String::new();
    for trial in [keys::ledger(), keys::register(), bank::bank(), lists::isolation()] {
        campaign(&trial, &mut page);
    }
    println!("{page}");
    let documented = include_str!("../../../../docs/correctness.md");
    let missing: Vec<&str> =
        page.lines().filter(|line| !documented.lines().any(|known| known == *line)).collect();
    assert!(missing.is_empty(), "docs/correctness.md has other figures; these are right:\n{page}");
}
