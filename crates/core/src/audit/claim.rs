//! Claims against the cells that they speak of.

use super::quantity::{Quantity, printed, significant};
use super::table::{CellName, Claim, Row, Says, Span, Study};
use super::{Audit, Finding, Law, Severity};

pub(super) const CLAIM: Law = Law {
    name: "Claim against its cells",
    formula: "what the text says = what its cells say",
    tolerance: 0.01,
    why: "a percentage may have been computed before its cells were rounded",
    severity: Severity::Broken,
    nevertheless: "The cells stand, the sentence does not: use the value that the cells give.",
};

/// Applies the law to all claims of a study.
pub(super) fn check(study: &Study, audit: &mut Audit) {
    for claim in &study.claims {
        match &claim.says {
            Says::Unchecked => {
                audit.not_checked(&CLAIM, ["a cell that it could be held against".to_string()])
            }
            Says::Ratio(said) => ratio(study, claim, *said, audit),
            Says::Is(said) => is(study, claim, *said, audit),
            Says::Reaches { along, level, at } => reaches(study, claim, *along, *level, *at, audit),
        }
    }
}

fn cell(study: &Study, place: Option<&CellName>) -> Option<Span> {
    study.row(place?)?.span(place?.quantity)
}

fn lacking(study: &Study, places: [Option<&CellName>; 2]) -> Vec<String> {
    let empty = |place: &&CellName| cell(study, Some(place)).is_none();
    places.into_iter().flatten().filter(empty).map(|p| format!("{} of {}", p.quantity, p.row)).collect()
}

fn agree(actual: Span, said: Span) -> bool {
    actual.widened(CLAIM.tolerance).meets(said)
}

fn finding(claim: &Claim, cells: Vec<String>, numbers: String, off: f64) -> Finding {
    CLAIM.finding(format!("claim: {}", claim.text), cells, numbers, off.is_finite().then_some(off))
}

/// A ratio as people say it: "+18.5 %" up to a doubling, "× 2.79" beyond.
fn change(ratio: f64) -> String {
    if (0.5..2.0).contains(&ratio) {
        format!("{:+.1} %", (ratio - 1.0) * 100.0)
    } else {
        format!("× {}", significant(ratio))
    }
}

fn said_as(said: Span) -> String {
    if said.high.is_infinite() {
        format!("more than × {}", significant(said.low))
    } else if said.low <= 0.0 {
        format!("at most × {}", significant(said.high))
    } else {
        change(said.middle())
    }
}

fn ratio(study: &Study, claim: &Claim, said: Span, audit: &mut Audit) {
    let (Some(of), Some(to)) = (&claim.of, &claim.to) else {
        return audit.not_checked(&CLAIM, ["two cells".to_string()]);
    };
    let (Some(first), Some(second)) = (cell(study, Some(of)), cell(study, Some(to))) else {
        return audit.not_checked(&CLAIM, lacking(study, [Some(of), Some(to)]));
    };
    let actual = first / second;
    if agree(actual, said) {
        return audit.held(&CLAIM);
    }
    let ratio = first.middle() / second.middle();
    let show = |place: &CellName, span: Span| {
        format!("{} {} {}", place.row, place.quantity, printed(place.quantity, span.middle()))
    };
    let cells = vec![show(of, first), show(to, second)];
    let numbers = format!(
        "said {}, the cells give {} ({} against {})",
        said_as(said),
        change(ratio),
        cells[0],
        cells[1]
    );
    // "More than three times" has no middle: it is missed by what lacks to three times.
    let bound = if ratio < said.low { said.low } else { said.high };
    let wanted = if said.middle().is_finite() { said.middle() } else { bound };
    let mut finding = finding(claim, cells, numbers, ratio / wanted - 1.0);
    finding.restore.push(format!("saying {}", change(ratio)));
    finding.restore.extend(explained(study, of, to, actual, said));
    audit.found(finding);
}

/// Slips that explain a wrong ratio: the other cell as base, or another row of the same table.
fn explained(study: &Study, of: &CellName, to: &CellName, actual: Span, said: Span) -> Vec<String> {
    let mut found = Vec::new();
    // A change of −8 % of the first is one of +8 % of the second: the same difference with the other base.
    let other_base = Span { low: 2.0 - 1.0 / actual.low, high: 2.0 - 1.0 / actual.high };
    if said.high.is_finite() && agree(other_base, said) {
        found.push(format!("the percentage is of {} and not of {}: the base was exchanged", of.row, to.row));
    }
    for (place, name, other) in [(of, "first", to), (to, "second", of)] {
        let Some(table) = study.tables.iter().find(|table| table.name == place.table) else { continue };
        let fits = |row: &&Row| {
            let (Some(own), Some(fixed)) = (row.span(place.quantity), cell(study, Some(other))) else {
                return false;
            };
            let ratio = if name == "first" { own / fixed } else { fixed / own };
            row.name != of.row && row.name != to.row && agree(ratio, said) && said.high.is_finite()
        };
        let rows: Vec<&str> = table.rows.iter().filter(fits).map(|row| row.name.as_str()).take(3).collect();
        if !rows.is_empty() {
            found.push(format!("it is true of {} instead of {}", rows.join(", "), place.row));
        }
    }
    found
}

fn is(study: &Study, claim: &Claim, said: Span, audit: &mut Audit) {
    let Some((of, actual)) = claim.of.as_ref().zip(cell(study, claim.of.as_ref())) else {
        return audit.not_checked(&CLAIM, lacking(study, [claim.of.as_ref(), None]));
    };
    if agree(actual, said) {
        return audit.held(&CLAIM);
    }
    let show = |x: f64| printed(of.quantity, x);
    let range = if said.low == said.high {
        show(said.low)
    } else {
        format!("{} to {}", show(said.low), show(said.high))
    };
    let cells = vec![format!("{} {} {}", of.row, of.quantity, show(actual.middle()))];
    let numbers = format!("said {range}, the cell is {}", show(actual.middle()));
    let mut finding = finding(claim, cells, numbers, actual.middle() / said.middle() - 1.0);
    finding.restore.push(format!("saying {}", show(actual.middle())));
    audit.found(finding);
}

/// Interpolates between the rows that are like the named one in everything but the condition.
fn reaches(study: &Study, claim: &Claim, along: Quantity, level: f64, at: Span, audit: &mut Audit) {
    let Some((of, row)) = claim.of.as_ref().and_then(|of| Some((of, study.row(of)?))) else {
        return audit.not_checked(&CLAIM, ["the row".to_string()]);
    };
    let table = study.tables.iter().find(|table| table.name == of.table);
    let alike = |other: &&Row| {
        let same = |q: &Quantity| *q == along || other.span(*q) == row.span(*q);
        other.words == row.words && row.values.keys().filter(|q| q.is_condition()).all(same)
    };
    let mut points: Vec<(f64, f64)> = table
        .into_iter()
        .flat_map(|table| table.rows.iter().filter(alike))
        .filter_map(|row| Some((row.span(along)?.middle(), row.span(of.quantity)?.middle())))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let crossing = points.windows(2).find(|w| w[0].1 <= level && level <= w[1].1 && w[0].1 < w[1].1);
    let Some([(x0, y0), (x1, y1)]) = crossing.and_then(|w| <[(f64, f64); 2]>::try_from(w).ok()) else {
        return audit
            .not_checked(&CLAIM, [format!("two rows with {} on both sides of the level", of.quantity)]);
    };
    let found = x0 + (x1 - x0) * (level - y0) / (y1 - y0);
    // A straight line through two points: a tenth is what its bend and the rows' noise leave open.
    if Span::exact(found).widened(0.10).meets(at) {
        return audit.held(&CLAIM);
    }
    let show = |y: f64| printed(of.quantity, y);
    let cells = vec![format!("{along} {x0}: {}", show(y0)), format!("{along} {x1}: {}", show(y1))];
    let numbers = format!(
        "said {} at {along} {}, the rows ({}) cross it at {}",
        show(level),
        significant(at.middle()),
        cells.join(", "),
        significant(found)
    );
    let mut finding = finding(claim, cells, numbers, found / at.middle() - 1.0);
    finding.severity = Severity::Doubtful;
    finding.tolerance = "10 %: the line between two measured points is straight, the truth may bend".into();
    finding.restore.push(format!("saying {}", significant(found)));
    audit.found(finding);
}
