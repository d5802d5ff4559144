//! Where bytes went: both budgets of every cell, step by step, and what was read to draw them up.

use super::load::name;
use crate::report::{Block, Cell, Column, Number, Row, Section, Table, Verdict};
use std::collections::BTreeMap;
use tipover_core::measure::{Budget, Part, Step, Way};
use tipover_core::metric::{Kind, Metric};
use tipover_core::study::timeline::{BudgetsSoFar, Recent};
use tipover_core::study::{CellRecords, Cells};

/// Whether a budget closes, and by how much or why it does not.
pub fn verdict(budget: &Budget) -> Cell {
    let verdict = match budget.closes {
        Some(true) => Verdict::Held,
        Some(false) => Verdict::NotHeld,
        None => Verdict::Unknown,
    };
    let text = match budget.residual_in_words() {
        None => budget.evidence.clone(),
        Some(residual) if verdict == Verdict::Held => residual,
        Some(residual) => format!("{residual}: {}", budget.evidence),
    };
    Cell::verdict(verdict, &text)
}

/// Both budgets of every cell and node.
pub fn section(cells: &Cells<'_>) -> Section {
    let mut blocks = Vec::new();
    for way in [Way::Reads, Way::Writes] {
        let rows: Vec<Row> = cells.all.iter().flat_map(|c| rows(c, way)).collect();
        if !rows.is_empty() {
            blocks.push(Block::Table(table(way, rows)));
        }
    }
    Section { id: "budgets".into(), title: "Budgets".into(), blocks }
}

/// The steps of one cell's budgets; none where nobody counted.
fn rows(c: &CellRecords<'_>, way: Way) -> Vec<Row> {
    let believed = !c.measured().is_empty();
    let all = c.records.iter().filter_map(|record| record.measured.as_ref()).map(|m| m.operations());
    let operations = if believed { c.operations() } else { all.sum() }.max(1) as f64;
    let budgets = c.budgets(way).into_iter().filter(|(_, budget)| budget.is_accounted());
    let mut rows = Vec::new();
    for (node, budget) in budgets {
        let mut place = if node.is_empty() { name(c) } else { format!("{}, {node}", name(c)) };
        place.push_str(if believed { "" } else { " (no trial can be believed)" });
        rows.extend(steps(&place, &budget, operations));
    }
    rows
}

/// A budget, step by step.
fn steps(place: &str, budget: &Budget, operations: f64) -> Vec<Row> {
    let row = |(i, step): (usize, &Step)| {
        Row::new(vec![
            place.into(),
            step.what.as_str().into(),
            counted(step.bytes.map(|bytes| bytes / operations), "B"),
            match budget.amplification(i) {
                Some(factor) => Number::new(factor, "").into(),
                None if i == 0 => Cell::missing("where it begins"),
                None => Cell::missing("nothing to compare with"),
            },
            counted(step.requests.map(|requests| requests / operations), ""),
            counted(step.flushes.map(|flushes| flushes / operations), ""),
            parts(step, operations).into(),
            if i + 1 == budget.steps.len() { verdict(budget) } else { Cell::from("") },
        ])
    };
    budget.steps.iter().enumerate().map(row).collect()
}

/// The budgets of a trial that goes on, as far as it has come.
pub fn so_far(recent: &Recent) -> Section {
    let mut blocks = Vec::new();
    for way in [Way::Reads, Way::Writes] {
        let Some(BudgetsSoFar { since_s, operations, nodes }) = recent.budgets(way) else { continue };
        let rows = nodes.iter().flat_map(|(node, budget)| steps(node, budget, operations as f64)).collect();
        let mut table = table(way, rows);
        table.caption = format!("{}, since second {since_s:.0}", table.caption);
        table.columns[0] = Column::words("node");
        blocks.push(Block::Table(table));
    }
    if blocks.is_empty() {
        blocks.push(Block::Prose("Nothing is accounted for yet, or nobody counts.".into()));
    }
    Section { id: "budgets".into(), title: "Budgets".into(), blocks }
}

fn counted(per_operation: Option<f64>, unit: &str) -> Cell {
    per_operation.map_or_else(|| Cell::missing("nobody counted it"), |value| Number::new(value, unit).into())
}

/// "journal 12.4 kB, data files 11 kB": what is told apart, per operation.
fn parts(step: &Step, operations: f64) -> String {
    let part = |part: &Part| {
        let bytes = part.bytes / operations;
        let rounded =
            if bytes.abs() < 1e3 { format!("{bytes:.0} B") } else { format!("{:.1} kB", bytes / 1e3) };
        format!("{} {rounded}", part.what)
    };
    step.parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn table(way: Way, rows: Vec<Row>) -> Table {
    let how_to_read = match way {
        Way::Reads => {
            "What the engine missed is what the page cache had and the device served. Three witnesses count apart: the \
             engine, the kernel for the node's processes (bytes that read calls brought, less bytes fetched from \
             storage), and the disk itself. A budget that does not close within 2 % says what may be the matter."
        }
        Way::Writes => {
            "From the user's keys and values to the device. × is the amplification against the step before. Parts are \
             told apart as far as the server counts them, and some are parts of others: checkpoints are of the data \
             files, page images of the journal. More at the device than was given is the file system's own journal and \
             metadata, and pages of which only a part was new; less is what was written again before it was sent. It \
             closes if engine, kernel and disk agree within 2 %."
        }
    };
    Table {
        caption: match way {
            Way::Reads => "Reads, per operation, from the engine to the device".into(),
            Way::Writes => "Writes, per operation, from the user to the device".into(),
        },
        columns: vec![
            Column::words("cell"),
            Column::words("step"),
            Column::numbers("bytes", "B").group("per operation"),
            Column::numbers("×", ""),
            Column::numbers("requests", "").group("per operation"),
            Column::numbers("flushes", "").group("per operation"),
            Column::words("of which"),
            Column::words("closes within 2 %"),
        ],
        rows,
        how_to_read: how_to_read.into(),
    }
}

/// Every value that probes read, its kind, and who counted what.
pub fn metrics(cells: &Cells<'_>) -> Section {
    let mut all: BTreeMap<(&str, &str), &Metric> = BTreeMap::new();
    for (probe, metrics) in cells.records().flat_map(|record| record.metrics.iter()) {
        all.extend(metrics.iter().map(|metric| ((probe.as_str(), metric.name.as_str()), metric)));
    }
    let row = |((probe, name), metric): ((&str, &str), &Metric)| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        Row::new(vec![probe.into(), name.into(), kind.into(), metric.help.as_str().into()])
    };
    let rows: Vec<Row> = all.into_iter().map(row).collect();
    if rows.is_empty() {
        return Section { id: "metrics".into(), title: "Metrics".into(), blocks: vec![] };
    }
    let table = Table {
        caption: "What probes read, and who counts it".into(),
        columns: vec![
            Column::words("probe"),
            Column::words("metric"),
            Column::words("kind"),
            Column::words("what it counts"),
        ],
        rows,
        how_to_read: "A counter grows from an arbitrary start, so only differences mean something; a gauge is a level. \
                      Records hold their raw values at both ends of the measured phase, series.jsonl at the end of \
                      every interval."
            .into(),
    };
    Section { id: "metrics".into(), title: "Metrics".into(), blocks: vec![Block::Table(table)] }
}
