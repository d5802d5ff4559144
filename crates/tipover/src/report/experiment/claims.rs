//! The claims of the text that an experiment repeats, each with its verdict: the first thing on its page.

use crate::report::page::CLAIMS;
use crate::report::{Block, Cell, Columns, Number, Section, Verdict as Sign};
use tipover_core::study::{Condition, Judged, JudgedFigure, Studied, Tally, Verdict};

/// A claim, or the second and later figures of one.
struct Line<'a> {
    claim: &'a Judged,
    figure: Option<&'a JudgedFigure>,
    first: bool,
}

/// How many claims have each verdict.
pub fn headline(studied: &Studied) -> String {
    let Tally { confirmed, contradicted, cannot_tell, not_tested } = studied.tally;
    let sentence = format!(
        "Of the text's {} claims {confirmed} are confirmed and {contradicted} contradicted; our trials cannot tell about \
         {cannot_tell}, and {not_tested} are not tested here. {}",
        studied.claims.len(),
        studied.caveat
    );
    sentence.trim_end().into()
}

/// The table of claims.
pub fn section(studied: &Studied) -> Section {
    let lines: Vec<Line<'_>> = studied.claims.iter().flat_map(lines).collect();
    let table = Columns::new()
        .words("no.", |line: &Line<'_>| line.claim.id.rsplit('-').next().unwrap_or_default().to_string())
        .words("claim", |line| if line.first { line.claim.claim.clone() } else { String::new() })
        .words("verdict", |line| match line.first {
            true => verdict(&line.claim.verdict),
            false => "".into(),
        })
        .words("theirs", |line| if line.first { line.claim.theirs.clone() } else { String::new() })
        .group("ours")
        .words("figure", |line| line.figure.map_or("", |figure| &figure.what).to_string())
        .numbers("value", "", |line, _| line.figure.map_or_else(|| "".into(), value))
        .words("must be", |line| line.figure.map_or_else(|| "".into(), must))
        .table("What the text concludes, and whether it is so here", &lines, &how_to_read(studied));
    Section { id: CLAIMS.into(), title: "Claims".into(), blocks: vec![Block::Table(table)] }
}

fn how_to_read(studied: &Studied) -> String {
    let source = studied.claims.first().map_or("", |claim| claim.source.as_str());
    format!(
        "Claims and figures are of: {source}. A claim is confirmed when all its figures are as they must be over their \
         whole 95 % interval, contradicted when one of them is so nowhere in its interval, and otherwise nothing can be \
         told; \"more trials may\": this number more of every cell would decide if the values stayed. Intervals are carried \
         through the arithmetic end by end, and are wider than the errors added as independent ones. Of claims that are \
         judged on the edge one in twenty may be judged wrongly. Only figures that break no law of the audit are used."
    )
}

fn lines(claim: &Judged) -> Vec<Line<'_>> {
    if claim.figures.is_empty() {
        return vec![Line { claim, figure: None, first: true }];
    }
    let line = |(n, figure)| Line { claim, figure: Some(figure), first: n == 0 };
    claim.figures.iter().enumerate().map(line).collect()
}

fn verdict(verdict: &Verdict) -> Cell {
    match verdict {
        Verdict::Confirmed => Cell::verdict(Sign::Confirmed, ""),
        Verdict::Contradicted => Cell::verdict(Sign::Contradicted, ""),
        Verdict::NotTested { why } => Cell::verdict(Sign::NotTested, why),
        Verdict::CannotTell { why, more_trials } => {
            let more = match more_trials {
                None => String::new(),
                Some(1) => "; 1 more trial may".into(),
                Some(more) => format!("; {more} more trials may"),
            };
            Cell::verdict(Sign::CannotTell, &format!("{why}{more}"))
        }
    }
}

fn value(figure: &JudgedFigure) -> Cell {
    match (figure.value, &figure.missing) {
        (Some(value), _) if figure.single => Number::new(value, &figure.unit).of_one_trial().into(),
        (Some(value), _) => {
            // Through a denominator that may be zero one end of an interval becomes infinite.
            Number { low: figure.low, high: figure.high, ..Number::new(value, &figure.unit) }.into()
        }
        (None, Some(why)) => Cell::missing(why),
        (None, None) => Cell::missing("nothing was counted"),
    }
}

/// The condition with its unit, and whether it holds.
fn must(figure: &JudgedFigure) -> Cell {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let number = |x: f64| Number::exact(x, "").bare();
    let words = match figure.must {
        Condition::Below(x) => format!("below {}{unit}", number(x)),
        Condition::AtMost(x) => format!("at most {}{unit}", number(x)),
        Condition::Above(x) => format!("above {}{unit}", number(x)),
        Condition::AtLeast(x) => format!("at least {}{unit}", number(x)),
        Condition::Within(a, b) => format!("{} to {}{unit}", number(a), number(b)),
    };
    let sign = match figure.holds {
        Some(true) => "✓",
        Some(false) => "✗",
        None => "?",
    };
    format!("{words} {sign}").into()
}
