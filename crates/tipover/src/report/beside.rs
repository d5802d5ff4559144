//! Results of others beside ours: what they printed, in one table with our figures.

use super::experiment::{number, shown_percentile};
use super::{Block, Callout, CalloutKind, Cell, Column, Emphasis, Number, Row, Section, Table};
use crate::study::comparison::{Figure, Observation, Side};
use tipover_core::experiment::Experiment;
use tipover_core::record::Record;
use tipover_core::study::{CellRecords, Cells};

const PERCENTILES: [u32; 4] = [50_000, 95_000, 99_000, 99_900];

/// The section that shows `others` beside the cells of `experiment`.
pub fn beside(experiment: &Experiment, records: &[Record], others: &[Side]) -> Section {
    let cells = Cells::of(experiment, records);
    let mut rows: Vec<Row> = cells.all.iter().map(ours).collect();
    let mut blocks = Vec::new();
    for side in others {
        for (cell, figures) in &side.cells {
            let value = |figure: Figure, unit: &str| match figures.get(&figure) {
                Some(all) => Cell::published(printed(all, unit), &side.name),
                None => Cell::missing("not printed by it"),
            };
            let mut row = vec![side.name.as_str().into(), cell.as_str().into()];
            row.push(value(Figure::Throughput, "/s"));
            row.push(value(Figure::Mean, "ms"));
            row.extend(PERCENTILES.map(|percentile| value(Figure::Percentile(percentile), "ms")));
            rows.push(Row::new(row).emphasis(Emphasis::Faint));
        }
        let left_out = side.left_out.iter().map(|what| format!("Left out of {}: {what}", side.name));
        blocks.extend(left_out.map(|text| Block::Callout(Callout { kind: CalloutKind::Warning, text })));
    }
    let mut columns = vec![
        Column::words("from"),
        Column::words("cell"),
        Column::numbers("throughput", "/s"),
        Column::numbers("mean", "ms").group("residence"),
    ];
    let named = PERCENTILES.map(|percentile| Figure::Percentile(percentile).name());
    columns.extend(named.iter().map(|name| Column::numbers(name, "ms").group("residence")));
    blocks.insert(
        0,
        Block::Table(Table {
            caption: "Ours, and what other programs printed".into(),
            columns,
            rows,
            how_to_read: "Theirs are as they were printed, over several files the median with the range; a closed loop of \
                          YCSB or sysbench prints service times, in which waiting for a session is missing. Whether two \
                          of them differ is answered by `tipover compare`, whether they obey the laws by `tipover audit`."
                .into(),
        }),
    );
    Section { id: "beside".into(), title: "Beside others".into(), blocks }
}

fn ours(cell: &CellRecords<'_>) -> Row {
    let labels: Vec<&str> = cell.cell.labels.iter().map(|(_, label)| label.as_str()).collect();
    let estimate = |estimate: Option<tipover_core::measure::Estimate>, unit: &str| match estimate {
        Some(estimate) => number(&estimate, unit).into(),
        None => Cell::missing(&cell.why_none()),
    };
    let mean = cell.mean(|measured| measured.residence().ok().map(|residence| residence.mean() / 1e6));
    let mut row = vec![
        "ours".into(),
        format!("{} {}", cell.cell.sweep, labels.join(", ")).trim().into(),
        estimate(cell.throughput(), "/s"),
        estimate(mean, "ms"),
    ];
    row.extend(PERCENTILES.map(|percentile| shown_percentile(cell, f64::from(percentile) / 100_000.0)));
    Row::new(row)
}

/// One value as it was printed; of several files their median and range.
fn printed(all: &[Observation], unit: &str) -> Number {
    let values: Vec<f64> = all.iter().map(|observation| observation.value).collect();
    match (values.as_slice(), tipover_core::measure::median(&values)) {
        ([only], _) => Number::new(*only, unit).digits(4),
        (_, Some(middle)) => {
            let least = values.iter().copied().fold(middle, f64::min);
            Number::new(middle, unit).between(least, values.iter().copied().fold(middle, f64::max))
        }
        (_, None) => unreachable!("a figure has a value"),
    }
}
