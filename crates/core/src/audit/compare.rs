//! Laws between rows: what is harder cannot be faster, what was measured twice is not the same to the last
//! digit, what depends on the request pattern alone is the same everywhere.

use super::quantity::{Quantity, printed, significant};
use super::table::{Row, Table};
use super::{Audit, Law, Severity};
use std::cmp::Ordering;

/// Those of this file.
pub(super) const LAWS: [Law; 4] = [HARDER, COPIED, AMPLIFICATION, UNIT];

const HARDER: Law = Law {
    name: "Harder is not faster",
    formula: "more data, a slower device, fewer processors or less memory ⇒ no more throughput, no less latency",
    tolerance: 0.10,
    why: "repeats on shared machines differ by as much; percentiles by twice as much, as each row has its own luck",
    severity: Severity::Broken,
    nevertheless: "At least one of the two rows is not what it is called, or the machines differed in something \
                   that is not in the table; neither row can be compared with a third.",
};

const COPIED: Law = Law {
    name: "Measured twice is not the same",
    formula: "rows of different conditions differ in some digit",
    tolerance: 0.0,
    why: "that many digits agree by chance less than once in 100,000 pairs",
    severity: Severity::Broken,
    nevertheless: "One of the two rows was not measured; which one, other laws may say.",
};

const AMPLIFICATION: Law = Law {
    name: "Requests per request",
    formula: "device requests ÷ program's requests is the same for the same pattern",
    tolerance: 0.25,
    why: "merging and readahead depend a little on the device",
    severity: Severity::Broken,
    nevertheless: "The program's own rates stand; the device's figure of this row is no evidence that the gate works.",
};

const UNIT: Law = Law {
    name: "Units along a column",
    formula: "no step of about 1000 where all other steps are small and 1/1000 of it fits as well",
    tolerance: 0.0,
    why: "a step of 300 or more, all others below 30: physics has such steps, but misprinted units have them more often",
    severity: Severity::Doubtful,
    nevertheless: "The order of the rows stands either way; the factor between them does not.",
};

/// Applies them to a table.
pub(super) fn check(table: &Table, audit: &mut Audit) {
    harder(table, audit);
    copied(table, audit);
    amplification(table, audit);
    units(table, audit);
}

/// What more of a condition does: harder, easier, or nobody can say.
fn direction(quantity: Quantity) -> Option<Ordering> {
    match quantity {
        Quantity::DataSize | Quantity::Records | Quantity::AddedLatency => Some(Ordering::Greater),
        Quantity::Gate
        | Quantity::BandwidthGate
        | Quantity::Processors
        | Quantity::Memory
        | Quantity::CacheSize => Some(Ordering::Less),
        _ => None,
    }
}

/// Whether `a` works under harder conditions than `b` (greater), easier ones, the same, or neither.
fn hardness(a: &Row, b: &Row) -> Option<Ordering> {
    if a.words != b.words {
        return None;
    }
    let conditions = a.values.keys().chain(b.values.keys()).filter(|quantity| quantity.is_condition());
    let mut verdict = Ordering::Equal;
    for quantity in conditions {
        let (x, y) = (a.span(*quantity)?.middle(), b.span(*quantity)?.middle());
        let step = match x.total_cmp(&y) {
            Ordering::Equal => continue,
            more if direction(*quantity)? == Ordering::Greater => more,
            more => more.reverse(),
        };
        if verdict != Ordering::Equal && verdict != step {
            return None;
        }
        verdict = step;
    }
    Some(verdict)
}

/// The difference of conditions in words.
fn difference(harder: &Row, easier: &Row) -> String {
    let differs = |q: &&Quantity| q.is_condition() && harder.span(**q) != easier.span(**q);
    let words = harder.values.keys().filter(differs).map(|q| {
        let show = |row: &Row| row.span(*q).map_or_else(String::new, |s| printed(*q, s.middle()));
        format!("{q} {} against {}", show(harder), show(easier))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// How a quantity answers to harder conditions: greater, less, or not lawfully.
fn answers(quantity: Quantity) -> Option<Ordering> {
    match quantity {
        Quantity::Throughput | Quantity::RequestRate => Some(Ordering::Less),
        Quantity::Mean => Some(Ordering::Greater),
        // Beyond p99 a percentile is a matter of single events.
        Quantity::Percentile(p) if p <= 99_000 => Some(Ordering::Greater),
        _ => None,
    }
}

/// By how much `harder` beats `easier` in a quantity, beyond rounding; 0 where it does not.
fn beats(harder: &Row, easier: &Row, quantity: Quantity) -> Option<f64> {
    let (hard, easy) = (harder.span(quantity)?, easier.span(quantity)?);
    let ratio = match answers(quantity)? {
        Ordering::Less => hard.low / easy.high,
        _ => easy.low / hard.high,
    };
    Some((ratio - 1.0).max(0.0))
}

fn harder(table: &Table, audit: &mut Audit) {
    let mut pairs = 0;
    for (i, a) in table.rows.iter().enumerate() {
        for (j, b) in table.rows.iter().enumerate().skip(i + 1) {
            let (hard, easy) = match hardness(a, b) {
                Some(Ordering::Greater) => (i, j),
                Some(Ordering::Less) => (j, i),
                _ => continue,
            };
            pairs += 1;
            beaten(table, hard, easy, audit);
        }
    }
    if pairs == 0 {
        audit.not_checked(
            &HARDER,
            ["two rows of which one is harder in every condition that differs".to_string()],
        );
    }
}

fn beaten(table: &Table, hard: usize, easy: usize, audit: &mut Audit) {
    let (harder, easier) = (&table.rows[hard], &table.rows[easy]);
    let mut worst: Option<(f64, Quantity)> = None;
    let mut cells = Vec::new();
    for quantity in harder.values.keys().copied() {
        let Some(by) = beats(harder, easier, quantity) else { continue };
        let allowed = if quantity.share().is_some() { 2.0 * HARDER.tolerance } else { HARDER.tolerance };
        if by <= allowed {
            audit.held(&HARDER);
            continue;
        }
        let show = |row: &Row| row.span(quantity).map_or_else(String::new, |s| printed(quantity, s.middle()));
        cells.push(format!("{quantity} {} against {}", show(harder), show(easier)));
        if worst.is_none_or(|(most, _)| by > most) {
            worst = Some((by, quantity));
        }
    }
    let Some((by, quantity)) = worst else { return };
    let place = format!("{}, {} against {}", table.name, harder.name, easier.name);
    let numbers = format!("harder ({}), yet better: {}", difference(harder, easier), cells.join(", "));
    let mut finding = HARDER.finding(place, cells, numbers, Some(by));
    if by < 3.0 * HARDER.tolerance {
        finding.severity = Severity::Doubtful;
    }
    if let Some(span) = easier.span(quantity) {
        let bound = if answers(quantity) == Some(Ordering::Less) { "at most" } else { "at least" };
        finding.restore.push(format!(
            "{quantity} of {} {bound} {}",
            harder.name,
            printed(quantity, span.middle())
        ));
    }
    finding.restore.push(format!("exchanging {} and {}", harder.name, easier.name));
    audit.found(finding);
}

/// Cells that were measured and are not at a stop, such as 0 or 100 %.
fn measured(row: &Row) -> impl Iterator<Item = (Quantity, super::table::Value)> + '_ {
    row.values
        .iter()
        .filter(|(quantity, value)| !quantity.is_condition() && value.digits >= 2 && value.span.low > 0.0)
        .map(|(quantity, value)| (*quantity, *value))
}

fn copied(table: &Table, audit: &mut Audit) {
    for (i, a) in table.rows.iter().enumerate() {
        for b in &table.rows[i + 1..] {
            // Two statistics of the same run share cells by right.
            if hardness(a, b) == Some(Ordering::Equal) {
                continue;
            }
            let own: Vec<_> = measured(a).filter(|(quantity, _)| b.values.contains_key(quantity)).collect();
            let same: Vec<_> = own.iter().filter(|(q, value)| b.values.get(q) == Some(value)).collect();
            let digits: u32 = same.iter().map(|(_, value)| value.digits).sum();
            // Operations and duration may be set by the plan, and are then the same in every row.
            let set = |q: Quantity| matches!(q, Quantity::Samples | Quantity::Duration);
            let free = same.iter().filter(|(q, _)| !set(*q)).count();
            let others = own.iter().filter(|(q, _)| !set(*q)).count();
            if others < 2 {
                continue;
            }
            if free < 2 || 2 * free < others || digits < 5 {
                audit.held(&COPIED);
                continue;
            }
            let cells: Vec<String> = same.iter().map(|(quantity, _)| a.show(*quantity)).collect();
            let numbers = format!("{} of {} measured cells are the same: {}", free, others, cells.join(", "));
            let place = format!("{}, {} and {}", table.name, a.name, b.name);
            let mut finding = COPIED.finding(place, cells, numbers, None);
            finding.restore = vec!["measuring one of them again".into()];
            audit.found(finding);
        }
    }
}

fn amplification(table: &Table, audit: &mut Audit) {
    let factor = |row: &Row| {
        let (device, program) = (row.span(Quantity::DeviceRate)?, row.span(Quantity::RequestRate)?);
        (program.low > 0.0).then(|| device / program)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (number, row) in table.rows.iter().enumerate() {
        if factor(row).is_none() {
            audit.not_checked(&AMPLIFICATION, [Quantity::DeviceRate.name(), Quantity::RequestRate.name()]);
            continue;
        }
        match groups.iter_mut().find(|group| table.rows[group[0]].words == row.words) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    for group in groups.iter().filter(|group| group.len() >= 3) {
        let mut factors: Vec<f64> =
            group.iter().filter_map(|n| factor(&table.rows[*n])).map(|s| s.middle()).collect();
        factors.sort_by(f64::total_cmp);
        let usual = factors[factors.len() / 2];
        for number in group {
            let row = &table.rows[*number];
            let Some(own) = factor(row) else { continue };
            let (low, high) =
                (usual * (1.0 - AMPLIFICATION.tolerance), usual * (1.0 + AMPLIFICATION.tolerance));
            if own.high >= low && own.low <= high {
                audit.held(&AMPLIFICATION);
                continue;
            }
            let cells = vec![row.show(Quantity::DeviceRate), row.show(Quantity::RequestRate)];
            let numbers = format!(
                "{}: {} device requests for each of the program's; the other rows have about {}",
                cells.join(", "),
                significant(own.middle()),
                significant(usual)
            );
            let off = own.middle() / usual - 1.0;
            let mut finding =
                AMPLIFICATION.finding(format!("{}, {}", table.name, row.name), cells, numbers, Some(off));
            let Some(rate) = row.span(Quantity::RequestRate) else { continue };
            finding
                .restore
                .push(format!("device rate {}", printed(Quantity::DeviceRate, rate.middle() * usual)));
            let twin = group.iter().map(|n| &table.rows[*n]).find(|other| {
                other.name != row.name && other.span(Quantity::DeviceRate) == row.span(Quantity::DeviceRate)
            });
            if let Some(twin) = twin {
                finding
                    .restore
                    .push(format!("the device rate is that of {}: perhaps copied from there", twin.name));
            }
            audit.found(finding);
        }
    }
}

fn units(table: &Table, audit: &mut Audit) {
    let mut cells: Vec<(f64, &Row, Quantity)> = Vec::new();
    for row in &table.rows {
        for quantity in [Quantity::Mean, Quantity::Await, Quantity::Maximum, Quantity::Throughput] {
            if let Some(span) = row.span(quantity).filter(|span| span.low > 0.0) {
                cells.push((span.middle(), row, quantity));
                break;
            }
        }
    }
    if cells.len() < 3 {
        return audit.not_checked(&UNIT, ["three rows with latencies".to_string()]);
    }
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    let steps: Vec<f64> = cells.windows(2).map(|w| w[1].0 / w[0].0).collect();
    let large: Vec<usize> = (0..steps.len()).filter(|i| steps[*i] >= 30.0).collect();
    // One row alone on its side of a single large step: its neighbour says how large it should be.
    let (alone, next, factor) = match large.as_slice() {
        [last] if last + 2 == cells.len() && steps[*last] >= 300.0 => (cells[last + 1], cells[*last], 1e-3),
        [0] if steps[0] >= 300.0 && cells.len() > 2 => (cells[0], cells[1], 1e3),
        _ => return audit.held(&UNIT),
    };
    let restored = alone.0 * factor;
    if !(1.0 / 3.0..=3.0).contains(&(restored / next.0)) {
        return audit.held(&UNIT);
    }
    let cell = alone.1.show(alone.2);
    let numbers = format!(
        "{cell} is {} times its neighbour ({}, {})",
        significant(alone.0 / next.0),
        next.1.name,
        next.1.show(next.2)
    );
    let mut finding = UNIT.finding(format!("{}, {}", table.name, alone.1.name), vec![cell], numbers, None);
    finding.restore = vec![format!("{} {}", alone.2, printed(alone.2, restored))];
    audit.found(finding);
}
