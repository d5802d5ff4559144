//! After narrowing: does it prove true again, below and above; and is the way down the way up?

use super::answer::{Capacity, Hysteresis, Tries, Verdict};
use super::classify::Bound;
use super::narrow::Region;
use super::{FinishedTrial, Known, Purpose, draw, same};
use crate::measure::{Canary, CanaryVerdict, judge_session};
use crate::units::significant;
use std::time::Duration;

/// What confirming says.
pub enum Confirmed {
    /// Run this.
    Measure(f64, Duration, Purpose, String),
    /// Nothing is left to do for this SLO.
    Settled(Box<Capacity>),
}

/// An end that is not confirmed moves out by 1, 2, 4, then 8 widths.
const ROUNDS: u32 = 4;
/// The loads of a sweep, as multiples of the capacity.
const SWEPT: [f64; 5] = [0.7, 0.8, 0.9, 1.0, 1.15];
/// Trials of a pair of sweeps.
pub const SWEEP: usize = 2 * SWEPT.len();
/// Seen once it may be chance: a pair that differs is run again.
const PAIRS: usize = 2;

/// One end of the interval and how often it was confirmed.
struct End {
    load: f64,
    tries: Tries,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Confirmed,
    Open,
    /// All rounds were tried.
    Refuted,
    /// There is no such end: it held, or failed, as far as loads were tried.
    Absent,
}

/// Confirms what was narrowed down, or says what it is.
pub fn confirm(known: &Known<'_>, region: Region) -> Confirmed {
    // With one end only it stands where loads end, and cannot move out.
    let apart = region.lower.is_some() && region.upper.is_some();
    let below = end(known, region.lower, Bound::Lower, apart);
    let above = end(known, region.upper, Bound::Upper, apart);
    if !known.over && region.complete {
        let open: Vec<(&End, Bound)> = [(&below, Bound::Lower), (&above, Bound::Upper)]
            .into_iter()
            .filter(|(end, _)| end.state == State::Open)
            .collect();
        if !open.is_empty() {
            return run(known, &open);
        }
        let both = below.state == State::Confirmed && above.state == State::Confirmed;
        if known.goals.sweeps
            && both
            && let Some(step) = sweep(known, &region)
        {
            return step;
        }
    }
    Confirmed::Settled(Box::new(settle(known, &region, &below, &above)))
}

/// The end where it now stands: the first round whose tries do not refute it.
fn end(known: &Known<'_>, found: Option<f64>, side: Bound, moves: bool) -> End {
    let Some(found) = found else {
        return End { load: f64::NAN, tries: Tries::default(), state: State::Absent };
    };
    let goals = known.goals;
    let mut end = End { load: found, tries: Tries::default(), state: State::Refuted };
    for round in 0..ROUNDS {
        let widths = if moves { f64::from(1 << round) } else { 0.0 };
        let load = match side {
            Bound::Lower => (found * (1.0 - goals.width).powf(widths)).max(goals.least),
            Bound::Upper => (found * (1.0 + goals.width).powf(widths)).min(known.reach.most),
        };
        let load = goals.scale.offerable(load);
        if round > 0 && same(load, end.load) {
            break;
        }
        let tries = tries(known, load, side);
        end = End { load, tries, state: State::Refuted };
        if tries.of - tries.agreed > may_disagree(goals.confirmations) {
            continue;
        }
        end.state = if tries.of < goals.confirmations { State::Open } else { State::Confirmed };
        break;
    }
    end
}

/// One in five.
fn may_disagree(confirmations: u32) -> u32 {
    confirmations / 5
}

fn tries(known: &Known<'_>, load: f64, side: Bound) -> Tries {
    let wanted = match side {
        Bound::Lower => Purpose::Below { slo: known.slo },
        Bound::Upper => Purpose::Above { slo: known.slo },
    };
    let mut tries = Tries::default();
    for trial in known.trials.iter().filter(|trial| same(trial.load, load)) {
        tries.trials += 1;
        // Whatever such a trial says, on either side: keeping those that agree would be choosing.
        tries.discarded += u32::from(trial.generator_late);
        if trial.purpose == wanted && !trial.generator_late {
            tries.of += 1;
            let holds = trial.holds(known.slo, known.goals);
            tries.agreed += u32::from(holds == (side == Bound::Lower));
        }
    }
    tries
}

/// Interleaved in random blocks: the end that was tried less often comes next, at a tie a draw decides.
fn run(known: &Known<'_>, open: &[(&End, Bound)]) -> Confirmed {
    let at = match open {
        [(a, _), (b, _)] if a.tries.of < b.tries.of => 0,
        [(a, _), (b, _)] if a.tries.of > b.tries.of => 1,
        [_, _] => draw(known.goals, known.trials, 2) as usize,
        _ => 0,
    };
    let (end, side) = open[at];
    let goals = known.goals;
    let (purpose, word) = match side {
        Bound::Lower => (Purpose::Below { slo: known.slo }, "hold below"),
        Bound::Upper => (Purpose::Above { slo: known.slo }, "fail above"),
    };
    let why = format!(
        "{}: does it {word}? {} of {} so far agree, {} wanted",
        goals.slos[known.slo].name, end.tries.agreed, end.tries.of, goals.confirmations
    );
    Confirmed::Measure(end.load, goals.confirmation.max(goals.three_checkpoints()), purpose, why)
}

/// The next trial of a sweep; `None` when there is nothing left to see.
fn sweep(known: &Known<'_>, region: &Region) -> Option<Confirmed> {
    let capacity = (region.lower? * region.upper?).sqrt();
    for pair in 0..PAIRS {
        let done = swept(known, pair);
        if done.len() < SWEEP {
            let place = done.len();
            let step = if place < SWEPT.len() { place } else { SWEEP - 1 - place };
            let load = known
                .goals
                .scale
                .offerable((capacity * SWEPT[step]).clamp(known.goals.least, known.reach.most));
            let way = if place < SWEPT.len() { "up" } else { "down" };
            let why = format!(
                "{}: sweep {way} without a pause, to see hysteresis",
                known.goals.slos[known.slo].name
            );
            let purpose = Purpose::Sweep { slo: known.slo, pair, place };
            return Some(Confirmed::Measure(load, known.goals.long, purpose, why));
        }
        if !differs(&ways(known, &done)) {
            return None;
        }
    }
    None
}

/// The valid trials of a pair, by place; a place that is missing ends it.
fn swept<'a>(known: &Known<'a>, pair: usize) -> Vec<&'a FinishedTrial> {
    let at = |place: usize| {
        let wanted = Purpose::Sweep { slo: known.slo, pair, place };
        known.trials.iter().find(|trial| trial.purpose == wanted && !trial.generator_late)
    };
    (0..SWEEP).map_while(at).collect()
}

/// How far it held on the way up, and from where on the way down; 0 is nowhere.
struct Ways {
    up: (usize, f64),
    down: (usize, f64),
}

fn ways(known: &Known<'_>, done: &[&FinishedTrial]) -> Ways {
    let holds = |trial: &&&FinishedTrial| trial.holds(known.slo, known.goals);
    let up = done[..SWEPT.len()].iter().take_while(holds).count();
    let failed_down = done[SWEPT.len()..].iter().take_while(|trial| !holds(trial)).count();
    let down = SWEPT.len() - failed_down;
    let load = |steps: usize| if steps == 0 { 0.0 } else { done[steps - 1].load };
    Ways { up: (up, load(up)), down: (down, load(down)) }
}

/// Two steps and more: one is what noise does at the capacity itself.
fn differs(ways: &Ways) -> bool {
    ways.up.0 >= ways.down.0 + 2
}

fn hysteresis(known: &Known<'_>) -> Option<Hysteresis> {
    let pairs: Vec<Ways> = (0..PAIRS)
        .map(|pair| swept(known, pair))
        .filter(|done| done.len() == SWEEP)
        .map(|done| ways(known, &done))
        .collect();
    let last = pairs.last()?;
    let seen = pairs.len() == PAIRS && pairs.iter().all(differs);
    Some(Hysteresis { seen, held_up_to: last.up.1, recovered_at: last.down.1, sweeps: pairs.len() })
}

/// How many of the trials at the ends ran on a disturbed machine, by the canaries around them.
fn disturbed(known: &Known<'_>, ends: [f64; 2]) -> Option<String> {
    let canaries: Vec<&[Canary]> = known.trials.iter().map(|trial| trial.canaries.as_slice()).collect();
    let judged = judge_session(&canaries);
    let at_the_ends = known
        .trials
        .iter()
        .zip(&judged)
        .filter(|(trial, _)| ends.iter().any(|end| same(trial.load, *end)) && !trial.generator_late);
    let (of, disturbed) = at_the_ends.fold((0, 0), |(of, disturbed), (_, verdict)| {
        (of + 1, disturbed + u32::from(matches!(verdict, CanaryVerdict::Disturbed { .. })))
    });
    (disturbed > 0)
        .then(|| format!("the machine was disturbed in {disturbed} of the {of} trials at its ends"))
}

fn settle(known: &Known<'_>, region: &Region, below: &End, above: &End) -> Capacity {
    let goals = known.goals;
    let slo = known.slo;
    let mut notes = Vec::new();
    if let Some(load) = region.inverted {
        notes.push(format!(
            "it held at {} although it failed at {}; the lower one counts",
            significant(load, 4),
            significant(region.upper.unwrap_or(load), 4)
        ));
    }
    let restarts = known.trials.iter().filter(|trial| trial.rest == super::Rest::Restarted).count();
    if restarts > 0 {
        notes.push(format!("after {restarts} trials the target did not come to rest and was restarted"));
    }
    notes.extend(disturbed(known, [below.load, above.load]));
    let hysteresis = hysteresis(known);
    let stopped = region.upper.is_none() && known.reach.unreachable.is_some();
    let verdict = match (below.state, above.state) {
        _ if known.reach.hopeless => Verdict::GeneratorLate,
        _ if !region.complete => Verdict::OutOfTime,
        (State::Absent, State::Absent) => Verdict::OutOfTime,
        _ if [below, above].iter().any(|end| end.tries.too_many_discarded()) => Verdict::CannotTell,
        (State::Refuted, _) | (_, State::Refuted) => Verdict::Irregular,
        (State::Open, _) | (_, State::Open) => Verdict::OutOfTime,
        (State::Absent, State::Confirmed) => Verdict::NeverPassed,
        (State::Confirmed, State::Absent) if stopped => Verdict::GeneratorLimited,
        (State::Confirmed, State::Absent) => Verdict::AlwaysPassed,
        (State::Confirmed, State::Confirmed) => Verdict::Found,
    };
    // What was not confirmed is still known from narrowing, and says so by its count.
    let low = region.lower.map(|_| below.load);
    let high = region.upper.map(|_| above.load);
    let estimate = match (region.lower, region.upper) {
        (Some(lower), Some(upper)) => Some((lower * upper).sqrt()),
        _ => None,
    };
    Capacity {
        slo: goals.slos[slo].name.clone(),
        scale: goals.scale,
        verdict,
        low,
        high,
        estimate,
        good_per_s: low.and_then(|low| good_at(known, low)),
        below: below.tries,
        above: above.tries,
        hysteresis,
        tried: (goals.scale.offerable(goals.least), known.reach.most),
        notes,
    }
}

/// Good operations per second at the lower end, over all valid trials there: the conditional throughput.
fn good_at(known: &Known<'_>, load: f64) -> Option<f64> {
    let (mut good, mut seconds) = (0.0, 0.0);
    for trial in known.trials.iter().filter(|trial| !trial.generator_late && same(trial.load, load)) {
        let offered_s = trial.offered_for().as_secs_f64();
        good += trial.good_per_s(known.slo) * offered_s;
        seconds += offered_s;
    }
    (seconds > 0.0).then(|| good / seconds)
}
