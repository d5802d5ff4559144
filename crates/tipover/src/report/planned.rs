//! The page of `tipover plan`: candidates with their intervals, the two curves, and what all of it rests on.

use super::experiment::number;
use super::{
    Axis, Block, Callout, CalloutKind, Cell, Chart, Columns, Emphasis, Number, On, Page, Point, Provenance,
    ReferenceLine, Section, Series, SeriesKind, Table, Verdict,
};
use crate::study::imitation::{CarriedOut, Imitated, PassedOver};
use crate::study::planned::{Curve, Planned, predicted};
use tipover_core::predict::Interval;
use tipover_core::predict::plan::{Bottleneck, Judged, Outlook};
use tipover_core::study::evidence::Checked;
use tipover_core::study::{Cells, Figure, Foretold, Quantity};
use tipover_core::units::{significant, span};

/// More candidates than anyone reads: the page has the best, `--json` all of them.
pub(super) const SHOWN: usize = 40;

/// The page.
pub fn of_plan(planned: &Planned, command: &str) -> Page {
    let section = |id: &str, title: &str, blocks| Section { id: id.into(), title: title.into(), blocks };
    let mut sections = vec![
        section("candidates", "Candidates", vec![Block::Table(candidates(planned))]),
        section(
            "curves",
            "Memory is a cliff, requests per second are a slope",
            planned.curves.iter().map(curve).collect(),
        ),
    ];
    if !planned.checked.is_empty() {
        sections.push(section("trust", "How far to trust it", vec![Block::Table(checked(&planned.checked))]));
    }
    sections.extend(planned.carried_out.as_ref().map(carried_out));
    sections.push(basis(&planned.left_out, &planned.known));
    let asked = (planned.source.as_str(), planned.promise.as_str(), planned.load_ops_per_s);
    page(asked, &planned.headline, sections, command)
}

/// What an answer rests on, after what it does not.
pub(super) fn basis(left_out: &[String], known: &[(String, String)]) -> Section {
    let left_out = left_out.iter().map(|what| {
        Block::Callout(Callout { kind: CalloutKind::Warning, text: format!("Left out: {what}") })
    });
    let known = Columns::new()
        .words("what", |row: &(String, String)| row.0.clone())
        .words("from", |row| row.1.clone())
        .table("What all this rests on", known, "");
    let blocks = left_out.chain([Block::Table(known)]).collect();
    Section { id: "basis".into(), title: "What it rests on".into(), blocks }
}

/// The page of an answer to which promise some results keep at which load.
pub(super) fn page(
    (source, promise, load): (&str, &str, f64),
    headline: &[String],
    sections: Vec<Section>,
    command: &str,
) -> Page {
    Page {
        title: format!("What to buy for {source}"),
        question: format!(
            "Which memory and which disk keep {promise} at {} operations/s?",
            significant(load, 4)
        ),
        headline: headline.to_vec(),
        sections,
        claims: vec![],
        made_by: Provenance {
            command: command.into(),
            commit: env!("TIPOVER_COMMIT").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            when: "a pure function of the results".into(),
            facts: vec![],
        },
    }
}

/// An interval in `unit`, `times` its own; none where it has no end.
fn interval(of: &Interval, times: f64, unit: &str) -> Cell {
    let (low, middle, high) = (of.low * times, of.middle * times, of.high * times);
    match (middle.is_finite(), high.is_finite()) {
        (true, true) => Number::new(middle, unit).between(low, high).into(),
        _ if low.is_finite() => Cell::from(format!("from {}, no end", significant(low, 2))),
        _ => Cell::missing("the load overruns a station: waiting has no end"),
    }
}

/// An answer in its colour.
pub(super) fn verdict(answer: Outlook) -> Cell {
    match answer {
        Outlook::Holds => Cell::verdict(Verdict::Held, "holds"),
        Outlook::DoesNotHold => Cell::verdict(Verdict::NotHeld, "does not hold"),
        Outlook::CannotTell => Cell::verdict(Verdict::CannotTell, "cannot tell"),
    }
}

fn limit(limit: Bottleneck) -> &'static str {
    match limit {
        Bottleneck::Processors => "processors",
        Bottleneck::DiskRequests => "the disk's requests per second",
        Bottleneck::DiskLatency => "the disk's latency, several requests after another",
        Bottleneck::Memory => "memory: next to nothing is left for the page cache",
    }
}

fn candidates(planned: &Planned) -> Table {
    let rank = |one: &Judged| match one.answer {
        Outlook::Holds => 0,
        Outlook::CannotTell => 1,
        Outlook::DoesNotHold => 2,
    };
    let mut rows: Vec<&Judged> = planned.candidates.iter().collect();
    let cost = |one: &Judged| one.price_per_month.unwrap_or(one.memory_bytes);
    rows.sort_by(|a, b| rank(a).cmp(&rank(b)).then(cost(a).total_cmp(&cost(b))));
    let of = rows.len();
    rows.truncate(SHOWN);
    let is_best = |one: &Judged| {
        planned.best.as_ref().is_some_and(|best| best.machine == one.machine && best.disk == one.disk)
    };
    Columns::new()
        .words("machine", |one: &Judged| one.machine.clone())
        .words("disk", |one| one.disk.clone())
        .words("promise", |one| verdict(one.answer))
        .numbers("chance", "%", |one, unit| match planned.contradicted {
            true => Cell::missing("what was measured contradicts the prediction"),
            false => Number::new((one.chance * 100.0).round(), unit).into(),
        })
        .numbers("latency promised", "ms", |one, unit| interval(&one.percentile_s, 1e3, unit))
        .numbers("most it can do", "/s", |one, unit| interval(&one.most_ops_per_s, 1.0, unit))
        .group("hits")
        .numbers("engine", "%", |one, unit| interval(&one.engine_hit, 100.0, unit))
        .numbers("page cache", "%", |one, unit| interval(&one.page_cache_hit, 100.0, unit))
        .group("disk")
        .numbers("load", "%", |one, unit| interval(&one.device_load, 100.0, unit))
        .words("warm-up", |one| span::rounded(std::time::Duration::from_secs_f64(one.warm_up_s.min(1e9))))
        .group("")
        .words("what limits", |one| limit(one.limit))
        .numbers("price a month", "", |one, unit| match one.price_per_month {
            Some(price) => Number::exact(price, unit).into(),
            None => Cell::missing("the catalogue gives no price"),
        })
        .emphasised(
            &format!("{} of {of} candidates, those that hold first", rows.len()),
            rows.iter().copied(),
            "Intervals hold the truth with 90 %, if what they rest on is so. The chance is the share of the ways this \
             system may be in which the promise holds; \"cannot tell\" lies between 10 % and 90 %. Warm-up is the time \
             to read a full page cache through the disk once; random reads take 4.6 times that to fill it to 1 %. The \
             most it can do is where processors or disk are full, whatever the latency.",
            |one| if is_best(one) { Emphasis::Strong } else { Emphasis::Plain },
        )
        .without_empty_columns()
}

fn curve(curve: &Curve) -> Block {
    let points = curve.points.iter().filter(|(_, y)| y.high.is_finite());
    let points = points.map(|(x, y)| Point::new(*x, y.middle).between(y.low, y.high)).collect();
    let line = |on, value: f64, label: &str| ReferenceLine {
        on,
        value,
        label: label.into(),
        subject: String::new(),
    };
    let mut lines = vec![line(On::X, curve.today, "today"), line(On::Y, curve.load, "the load")];
    lines.extend(curve.edge.map(|x| line(On::X, x, "what it will be worth in a year")));
    let memory = curve.of_memory;
    Block::Chart(Chart {
        id: if memory { "chart-memory".into() } else { "chart-iops".into() },
        title: format!("The most it can do against {}", if memory { "memory" } else { "the disk's IOPS" }),
        x: if memory { Axis::log("memory", "MiB") } else { Axis::log("disk", "IOPS") },
        y: Axis::log("the most it can do", "operations/s"),
        series: vec![Series::ours(SeriesKind::Line, "predicted", "predicted, 90 %", points)],
        lines,
        how_to_read: match memory {
            true => "Where the data come to fit into both caches the line jumps: that is the cliff. Wide error bars are \
                     the tipping region, in which a few megabytes decide."
                .into(),
            false => "Twice the requests per second are twice the operations, up to where processors limit.".into(),
        },
        cannot_say: "Whether a percentile holds: that is in the table.".into(),
    })
}

/// What the other cells of a study say of each; nothing where no cell can be predicted.
pub fn of_study(cells: &Cells<'_>) -> Section {
    let blocks = predicted(cells).map_or_else(Vec::new, |(rows, words)| {
        let table = (!rows.is_empty()).then(|| Block::Table(checked(&rows)));
        [Block::Prose(words)].into_iter().chain(table).collect()
    });
    Section { id: "predicted".into(), title: "Predicted from the other cells".into(), blocks }
}

/// Candidates that this machine imitated, predicted and measured.
fn carried_out(carried_out: &CarriedOut) -> Section {
    let (all, inside) = carried_out.figures();
    let rows: Vec<(&Imitated, &Foretold)> =
        carried_out.candidates.iter().flat_map(|one| one.foretold.iter().map(move |f| (one, f))).collect();
    let in_words = |quantity| match quantity {
        Quantity::Throughput => ("throughput", 1.0, "/s"),
        Quantity::P99 => ("p99", 1e3, "ms"),
        Quantity::EngineHit => ("engine's hits", 100.0, "%"),
        Quantity::PageCacheHit => ("page cache's hits", 100.0, "%"),
        Quantity::DeviceLoad => ("load of the disk", 100.0, "%"),
    };
    let measured = Columns::new()
        .words("candidate", |(one, _): &(&Imitated, &Foretold)| format!("{}, {}", one.machine, one.disk))
        .words("figure", move |(_, f)| in_words(f.quantity).0)
        .words("predicted", move |(_, f)| {
            let (_, times, unit) = in_words(f.quantity);
            interval(&f.predicted, times, unit)
        })
        .words("measured", move |(_, f)| {
            let (_, times, unit) = in_words(f.quantity);
            match &f.measured {
                Figure::Known(known) => Cell::from(number(&known.estimate().scaled(times), unit)),
                Figure::Missing { missing, .. } => Cell::missing(missing),
            }
        })
        .words("inside", |(_, f)| match (&f.measured, f.inside) {
            (_, Some(inside)) => sign(inside),
            (Figure::Missing { missing, .. }, None) => Cell::missing(missing),
            (Figure::Known(_), None) => Cell::from(""),
        })
        .table(
            &format!("Candidates carried out on this machine: {inside} of {all} figures inside"),
            &rows,
            "The closed loop of the study with the candidate's memory and disk; the intervals are for that load and not \
             for the one that the promise is about. Predicted with 90 %, hit ratios with 1.5 points and the disk's load \
             with 1 point more, by which formulas and file systems err. Inside: the measured value lies in the \
             predicted interval.",
        );
    let warning = |text: &String| Block::Callout(Callout { kind: CalloutKind::Warning, text: text.clone() });
    let not = Columns::new()
        .words("machine", |one: &PassedOver| one.machine.clone())
        .words("disk", |one| one.disk.clone())
        .words("why", |one| one.why.clone())
        .table("Not carried out here", carried_out.passed_over.iter().take(SHOWN), "");
    let not = (!carried_out.passed_over.is_empty()).then_some(Block::Table(not));
    let kept = format!("The trials are the results of `{}`.", carried_out.results);
    let remarks = carried_out.remarks.iter().map(warning);
    let blocks = remarks.chain([Block::Table(measured), Block::Prose(kept)]).chain(not).collect();
    Section { id: "carried-out".into(), title: "Measured here".into(), blocks }
}

fn sign(inside: bool) -> Cell {
    match inside {
        true => Cell::verdict(Verdict::Held, "inside"),
        false => Cell::verdict(Verdict::NotHeld, "outside"),
    }
}

/// Leave-one-out predictions beside what was measured.
fn checked(rows: &[Checked]) -> Table {
    let of = rows.iter().map(Checked::inside).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Columns::new()
        .words("cell", |row: &Checked| row.name.clone())
        .group("throughput")
        .numbers("predicted", "/s", |row, unit| interval(&row.predicted.throughput_ops_per_s, 1.0, unit))
        .numbers("measured", "/s", |row, unit| Number::new(row.throughput_ops_per_s, unit))
        .words("inside", move |row| sign(row.predicted.throughput_ops_per_s.contains(row.throughput_ops_per_s)))
        .group("p99")
        .numbers("predicted", "ms", |row, unit| interval(&row.predicted.p99_s, 1e3, unit))
        .numbers("measured", "ms", |row, unit| match row.p99_s {
            Some(p99) => Number::new(p99 * 1e3, unit).into(),
            None => Cell::missing("too few operations"),
        })
        .words("inside", move |row| match row.p99_s {
            Some(p99) => sign(row.predicted.p99_s.contains(p99)),
            None => Cell::missing("too few operations"),
        })
        .table(
            &format!("Each cell predicted from the other working sets: {} of {} figures inside", of.1, of.0),
            rows,
            "Nothing measured with the cell's own working set, on any disk, was used. 90 % of the figures should be \
             inside; where fewer are, do not trust the plan that far either.",
        )
}
