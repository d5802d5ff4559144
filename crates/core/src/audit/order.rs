//! Laws of a row's latencies: their order, what percentiles allow the mean to be, and how many samples a
//! percentile needs.

use super::quantity::{Quantity, printed, significant};
use super::table::{Row, Span, Table};
use super::{Audit, Law, Severity};

/// Those of this file.
pub(super) const LAWS: [Law; 3] = [ORDER, MEAN, SAMPLES];

const ORDER: Law = Law {
    name: "Order of latencies",
    formula: "min ≤ p50 ≤ p95 ≤ p99 ≤ max, min ≤ mean ≤ max",
    tolerance: 0.002,
    why: "histograms round by up to a bucket",
    severity: Severity::Broken,
    nevertheless: "Throughput does not depend on it; at least one of the two latencies is another quantity.",
};

const MEAN: Law = Law {
    name: "Mean between percentiles",
    formula: "Σ (qᵢ₊₁ − qᵢ)·pᵢ ≤ mean ≤ Σ (qᵢ₊₁ − qᵢ)·pᵢ₊₁",
    tolerance: 0.03,
    why: "histograms round by up to a bucket, and the mean may come from clients ÷ throughput",
    severity: Severity::Broken,
    nevertheless: "Mean and percentiles are of different operations or different windows.",
};

const SAMPLES: Law = Law {
    name: "Samples of a percentile",
    formula: "samples × (1 − q) ≥ 10",
    tolerance: 0.0,
    why: "with fewer than ten samples beyond it a percentile is a matter of luck",
    severity: Severity::Doubtful,
    nevertheless: "Lower percentiles and the mean stand.",
};

/// Applies them to all rows.
pub(super) fn check(table: &Table, audit: &mut Audit) {
    for row in &table.rows {
        let place = format!("{}, {}", table.name, row.name);
        in_order(row, &place, audit);
        mean(row, &place, audit);
        samples(row, &place, audit);
    }
}

/// Percentiles with minimum and maximum, from low to high.
fn quantiles(row: &Row) -> Vec<(f64, Quantity, Span)> {
    let mut found: Vec<(f64, Quantity, Span)> = row
        .values
        .iter()
        .filter_map(|(quantity, value)| {
            let share = match quantity {
                Quantity::Minimum => 0.0,
                Quantity::Maximum => 1.0,
                other => other.share()?,
            };
            Some((share, *quantity, value.span))
        })
        .collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

fn in_order(row: &Row, place: &str, audit: &mut Audit) {
    let quantiles = quantiles(row);
    let mut pairs: Vec<(Quantity, Quantity)> = quantiles.windows(2).map(|w| (w[0].1, w[1].1)).collect();
    if row.span(Quantity::Mean).is_some() {
        for (low, high) in [(Quantity::Minimum, Quantity::Mean), (Quantity::Mean, Quantity::Maximum)] {
            if row.span(low).is_some() && row.span(high).is_some() {
                pairs.push((low, high));
            }
        }
    }
    if pairs.is_empty() {
        audit.not_checked(&ORDER, ["two latencies of one row".to_string()]);
    }
    for (low, high) in pairs {
        let (Some(a), Some(b)) = (row.span(low), row.span(high)) else { continue };
        if a.low <= b.high * (1.0 + ORDER.tolerance) {
            audit.held(&ORDER);
            continue;
        }
        let numbers = format!("{} is more than {}", row.show(low), row.show(high));
        let off = a.middle() / b.middle() - 1.0;
        let cells = vec![row.show(low), row.show(high)];
        let mut finding = ORDER.finding(place.to_string(), cells, numbers, off.is_finite().then_some(off));
        finding.restore = vec![
            format!("{low} at most {}", printed(low, b.middle())),
            format!("{high} at least {}", printed(high, a.middle())),
        ];
        finding.restore.extend(super::laws::unit_slip(a.middle() / b.middle(), 0.02));
        audit.found(finding);
    }
}

/// Every sample between two neighbouring percentiles is at least the lower and at most the higher of them, so
/// that the mean lies between two sums (Markov's inequality, taken step by step).
fn mean(row: &Row, place: &str, audit: &mut Audit) {
    let quantiles = quantiles(row);
    let implied = row
        .span(Quantity::Clients)
        .zip(row.span(Quantity::Throughput))
        .filter(|(_, throughput)| throughput.low > 0.0)
        .map(|(clients, throughput)| clients / throughput);
    let (mean, named) = match (row.span(Quantity::Mean), implied) {
        (Some(mean), _) => (mean, "mean"),
        (None, Some(implied)) => (implied, "clients ÷ throughput"),
        (None, None) => return audit.not_checked(&MEAN, ["mean".to_string()]),
    };
    let percentiles = quantiles.iter().filter(|(_, q, _)| q.share().is_some()).count();
    if percentiles == 0 {
        return audit.not_checked(&MEAN, ["a percentile".to_string()]);
    }
    let steps = quantiles.windows(2).map(|w| (w[1].0 - w[0].0, w[0].2.low, w[1].2.high));
    let (mut low, mut high) = (0.0, 0.0);
    for (share, at_least, at_most) in steps {
        low += share * at_least;
        high += share * at_most;
    }
    if let (Some(first), Some(last)) = (quantiles.first(), quantiles.last()) {
        low += (1.0 - last.0) * last.2.low;
        // Below the lowest percentile nothing is more than it; beyond the highest anything may be.
        high += first.0 * first.2.high;
        if last.0 < 1.0 {
            high = f64::INFINITY;
        }
    }
    if mean.high * (1.0 + MEAN.tolerance) >= low && mean.low * (1.0 - MEAN.tolerance) <= high {
        return audit.held(&MEAN);
    }
    let show = |x: f64| printed(Quantity::Mean, x);
    let numbers = format!("{named} {} is not between {} and {}", show(mean.middle()), show(low), show(high));
    let off = if mean.middle() < low { mean.middle() / low - 1.0 } else { mean.middle() / high - 1.0 };
    let cells = quantiles
        .iter()
        .map(|(_, quantity, _)| row.show(*quantity))
        .chain([format!("{named} {}", show(mean.middle()))]);
    let mut finding = MEAN.finding(place.to_string(), cells.collect(), numbers, Some(off));
    finding.restore = vec![format!("{named} from {} to {}", show(low), show(high))];
    audit.found(finding);
}

fn samples(row: &Row, place: &str, audit: &mut Audit) {
    let percentiles = row.values.keys().filter_map(|quantity| Some((*quantity, quantity.share()?)));
    for (quantity, share) in percentiles {
        let Some(samples) = row.span(Quantity::Samples) else {
            audit.not_checked(&SAMPLES, [Quantity::Samples.name()]);
            continue;
        };
        let beyond = samples.high * (1.0 - share);
        if beyond >= 10.0 * (1.0 - 1e-9) {
            audit.held(&SAMPLES);
            continue;
        }
        let numbers = format!(
            "of {} samples {} lie beyond {quantity}",
            significant(samples.middle()),
            significant(beyond)
        );
        let cells = vec![row.show(quantity), row.show(Quantity::Samples)];
        let mut finding = SAMPLES.finding(place.to_string(), cells, numbers, None);
        finding.restore = vec![format!("at least {} samples", significant((10.0 / (1.0 - share)).ceil()))];
        audit.found(finding);
    }
}
