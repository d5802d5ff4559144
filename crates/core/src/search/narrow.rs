//! Bracketing and narrowing: coarse and short first, then fine and long.

use super::classify::{Bound, Measured, tally};
use super::{FinishedTrial, Goals, Purpose, Scale, draw, same};
use std::time::Duration;

/// What narrowing says.
pub enum Narrowed {
    /// Measure this load for this long, because.
    Measure(f64, Duration, String),
    /// Nothing is left to narrow.
    Found(Region),
}

/// What is known of where the capacity lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    /// Highest load known to hold below every load known to fail.
    pub lower: Option<f64>,
    /// Lowest load known to fail.
    pub upper: Option<f64>,
    /// A load that holds above one that does not, if that was seen.
    pub inverted: Option<f64>,
    /// Narrowed down as far as was asked.
    pub complete: bool,
}

/// One step from coarse to fine.
#[derive(Debug, Clone, Copy)]
struct Stage {
    trial: f64,
    sum: f64,
    width: f64,
}

/// A ramp overshoots by at most this factor.
const RAMP: f64 = 2.0;

/// In the first stage one good trial passes a load, and two bad ones fail it: a ramp that believes its first
/// hiccup ends in the wrong place.
///
/// Widths shrink by halves of the logarithm, durations grow geometrically, as MLRsearch's preceding targets
/// do.
fn stages(goals: &Goals) -> [Stage; 3] {
    let (short, long) = (goals.short.as_secs_f64(), goals.long.as_secs_f64());
    let sum = goals.final_sum_s();
    let wide = |times: f64| (1.0 + goals.width).powf(times);
    [
        Stage { trial: short, sum: 2.0 * short, width: wide(4.0) },
        Stage { trial: (short * long).sqrt().ceil(), sum: (short * sum).sqrt(), width: wide(2.0) },
        Stage { trial: long, sum, width: wide(1.0) },
    ]
}

/// The trials that narrowing for this SLO may look at: those of its own and of the SLOs before it. Later ones
/// must not move an interval that was confirmed.
fn seen(trials: &[FinishedTrial], slo: usize) -> impl Iterator<Item = &FinishedTrial> {
    trials.iter().filter(move |trial| matches!(trial.purpose, Purpose::Narrow { slo: of } if of <= slo))
}

/// The stage's view of every load.
struct View {
    loads: Vec<(Measured, Option<Bound>)>,
    lower: Option<f64>,
    upper: Option<f64>,
}

impl View {
    fn of(trials: &[FinishedTrial], goals: &Goals, slo: usize, stage: Stage) -> View {
        let loads: Vec<_> = tally(seen(trials, slo), goals, slo, stage.trial)
            .into_iter()
            .map(|measured| (measured, measured.tally.classify(goals.exceed_ratio, stage.sum)))
            .collect();
        let upper = loads.iter().find(|(_, bound)| *bound == Some(Bound::Upper)).map(|(m, _)| m.load);
        // A load that holds above one that fails proves nothing: the lower bound lies below every upper one.
        let below = |load: f64| upper.is_none_or(|upper| load < upper);
        let lower = loads
            .iter()
            .rev()
            .find(|(m, bound)| *bound == Some(Bound::Lower) && below(m.load))
            .map(|(m, _)| m.load);
        View { loads, lower, upper }
    }

    fn inverted(&self) -> Option<f64> {
        let upper = self.upper?;
        let holds = |(m, bound): &&(Measured, Option<Bound>)| *bound == Some(Bound::Lower) && m.load > upper;
        self.loads.iter().rev().find(holds).map(|(m, _)| m.load)
    }

    /// A load between `low` and `high` that was begun with trials of this stage and is not decided.
    fn begun(&self, low: f64, high: f64) -> Option<f64> {
        let begun =
            |m: &Measured| m.tally.good_long + m.tally.bad_long > 0.0 && (low..=high).contains(&m.load);
        self.loads.iter().find(|(m, bound)| bound.is_none() && begun(m)).map(|(m, _)| m.load)
    }

    /// How many loads of the stage lie on this side from `load` on: expanding goes on twice as far each time.
    fn steps_beyond(&self, load: f64, side: Bound) -> i32 {
        let beyond = |m: &Measured| match side {
            Bound::Lower => m.load >= load,
            Bound::Upper => m.load <= load,
        };
        self.loads.iter().filter(|(m, bound)| *bound == Some(side) && beyond(m)).count() as i32
    }
}

fn fine(goals: &Goals, lower: f64, upper: f64, width: f64) -> bool {
    let neighbours = goals.scale == Scale::Sessions && upper - lower <= 1.0;
    neighbours || upper / lower <= width * 1.000_5
}

/// Where the capacity is, or which load to measure next. Loads above `most` are not tried.
pub fn narrow(trials: &[FinishedTrial], goals: &Goals, slo: usize, most: f64) -> Narrowed {
    let stages = stages(goals);
    let least = goals.scale.offerable(goals.least);
    let mut before: Option<View> = None;
    for (index, stage) in stages.into_iter().enumerate() {
        let view = View::of(trials, goals, slo, stage);
        let at_top = view.lower.is_some_and(|lower| lower >= most || same(lower, most));
        let at_bottom = view.upper.is_some_and(|upper| upper <= least || same(upper, least));
        let done = match (view.lower, view.upper) {
            (Some(lower), Some(upper)) => fine(goals, lower, upper, stage.width),
            _ => at_top || at_bottom,
        };
        if !done {
            let (load, why) = match &before {
                None => ramp(&view, goals, least, most, stage),
                Some(before) => refine(&view, before, trials, goals, (least, most), stage),
            };
            let load = goals.scale.offerable(load).clamp(least, most);
            let why = format!("{}, stage {} of {}: {why}", goals.slos[slo].name, index + 1, stages.len());
            return Narrowed::Measure(load, Duration::from_secs_f64(stage.trial), why);
        }
        before = Some(view);
    }
    let last = before.expect("there are stages");
    let inverted = last.inverted();
    Narrowed::Found(Region { lower: last.lower, upper: last.upper, inverted, complete: true })
}

/// What is known when the search must end early: by the finest stage that knows both sides.
pub fn best_known(trials: &[FinishedTrial], goals: &Goals, slo: usize) -> Region {
    let views = stages(goals).map(|stage| View::of(trials, goals, slo, stage));
    let best = views.iter().rev().find(|v| v.lower.is_some() && v.upper.is_some()).unwrap_or(&views[0]);
    Region { lower: best.lower, upper: best.upper, inverted: best.inverted(), complete: false }
}

/// The first stage: from the guess or from the least load, doubling until something fails; then halving.
fn ramp(view: &View, goals: &Goals, least: f64, most: f64, stage: Stage) -> (f64, String) {
    if let Some(load) = view.begun(0.0, f64::INFINITY) {
        return (load, "not decided yet".into());
    }
    match (view.lower, view.upper) {
        (None, None) => (goals.guess.unwrap_or(least), "to begin with".into()),
        (Some(lower), None) => ((lower * RAMP).min(most), "nothing failed yet".into()),
        (None, Some(upper)) => ((upper / RAMP).max(least), "nothing held yet".into()),
        (Some(lower), Some(upper)) => {
            (middle(goals, lower, upper), format!("between, until they are {:.0} % apart", percent(stage)))
        }
    }
}

fn percent(stage: Stage) -> f64 {
    100.0 * (stage.width - 1.0)
}

/// The middle in logarithms; for whole numbers one that is neither end.
fn middle(goals: &Goals, lower: f64, upper: f64) -> f64 {
    let middle = goals.scale.offerable((lower * upper).sqrt());
    match goals.scale {
        Scale::Sessions => middle.clamp(lower + 1.0, (upper - 1.0).max(lower + 1.0)),
        Scale::OpsPerSecond => middle,
    }
}

/// A later stage: verify what the stage before found, with longer trials, and go beyond it where it was
/// wrong.
fn refine(
    view: &View,
    before: &View,
    trials: &[FinishedTrial],
    goals: &Goals,
    (least, most): (f64, f64),
    stage: Stage,
) -> (f64, String) {
    let inside = |load: &f64| {
        view.lower.is_none_or(|lower| *load > lower) && view.upper.is_none_or(|upper| *load < upper)
    };
    // What this stage has not verified is still the best guess, unless this stage knows better.
    let (low_guess, high_guess) = (before.lower.filter(inside), before.upper.filter(inside));
    let (low, high) = (low_guess.or(view.lower), high_guess.or(view.upper));
    if let Some(load) = view.begun(low.unwrap_or(0.0), high.unwrap_or(f64::INFINITY)) {
        return (load, "not decided yet".into());
    }
    let verify = |load: f64| (load, format!("does it prove true when weighed by {:.0} s?", stage.sum));
    match (low, high) {
        (Some(low), Some(high)) if !fine(goals, low, high, stage.width) => {
            (middle(goals, low, high), format!("between, until they are {:.0} % apart", percent(stage)))
        }
        (Some(low), Some(high)) => match (low_guess, high_guess) {
            (Some(_), Some(_)) => verify(if draw(goals, trials, 2) == 0 { low } else { high }),
            (Some(low), None) => verify(low),
            _ => verify(high),
        },
        (Some(only), None) if low_guess.is_some() => verify(only),
        (None, Some(only)) if high_guess.is_some() => verify(only),
        (Some(low), None) => {
            let steps = view.steps_beyond(before.upper.unwrap_or(low), Bound::Lower);
            let up = goals.scale.offerable(low * expansion(stage, steps));
            (up.max(above(goals, low)).min(most), "it holds where it seemed to fail: higher".into())
        }
        (None, Some(high)) => {
            let steps = view.steps_beyond(before.lower.unwrap_or(high), Bound::Upper);
            let down = goals.scale.offerable(high / expansion(stage, steps));
            (down.min(below(goals, high)).max(least), "it fails where it seemed to hold: lower".into())
        }
        (None, None) => (least, "to begin with".into()),
    }
}

/// One width, then two, four, ...
fn expansion(stage: Stage, steps: i32) -> f64 {
    stage.width.powi(1 << (steps - 1).clamp(0, 5))
}

fn above(goals: &Goals, load: f64) -> f64 {
    match goals.scale {
        Scale::Sessions => load + 1.0,
        Scale::OpsPerSecond => load * (1.0 + goals.width),
    }
}

fn below(goals: &Goals, load: f64) -> f64 {
    match goals.scale {
        Scale::Sessions => load - 1.0,
        Scale::OpsPerSecond => load / (1.0 + goals.width),
    }
}
