//! The pages of two published studies: the price of safety, and transfers between accounts.

use super::broken::{chance, lost_per_fault, sign};
use super::sections::{number, shown};
use crate::report::{Block, Cell, Column, Emphasis, Number, Row, Section, Table, Verdict as Sign};
use crate::study::{BrokenCell, PublishedBank, PublishedPrices};
use anyhow::Result;
use tipover_core::check::broken::Things;
use tipover_core::op::{Failure, OpKind};
use tipover_core::units::Bytes;

/// One row a cell: what it costs, and what a fault really lost.
pub fn price_list(cells: &[BrokenCell<'_>]) -> Result<Section> {
    let published = PublishedPrices::load()?;
    let mut rows = Vec::new();
    for cell in cells {
        let label = |axis: &str| cell.of.cell.label(axis).unwrap_or("–").to_string();
        let percentile = match cell.calm_ms(OpKind::Update, 0.99) {
            Ok(estimate) => number(&estimate, "ms").into(),
            Err(few) => Cell::missing(&few.to_string()),
        };
        let window = cell
            .losses(Things::Writes)
            .and_then(|(losses, _)| losses.faults.iter().filter_map(|fault| fault.loss_window).max());
        let window = match window {
            Some(window) => Number::new(window.as_secs_f64() * 1e3, "ms").into(),
            None => Cell::missing("nothing was lost"),
        };
        let theirs = match published.latency_ms(&label("level"), &label("disk")) {
            Some((least, most)) if least == most => {
                Cell::published(Number::exact(least, "ms"), &published.source)
            }
            Some((least, most)) => Cell::published(Number::range(least, most, "ms"), &published.source),
            None => Cell::missing("not printed in the study"),
        };
        rows.push(Row::new(vec![
            cell.of.cell.sweep.as_str().into(),
            label("level").into(),
            label("disk").into(),
            label("fault").into(),
            shown(cell.calm_rate(Some(OpKind::Update)).as_ref(), "/s", cell.of),
            shown(cell.calm_mean_ms(OpKind::Update).as_ref(), "ms", cell.of),
            percentile,
            theirs,
            Cell::verdict(sign(cell.verdict()), cell.verdict().words()),
            lost_per_fault(cell, Things::Writes),
            window,
            chance(cell, Things::Writes),
        ]));
    }
    let table = Table {
        caption: "What each level costs, and what a fault really lost".into(),
        columns: vec![
            Column::words("System"),
            Column::words("Level"),
            Column::words("Disk"),
            Column::words("Fault"),
            Column::numbers("Throughput", "/s"),
            Column::numbers("mean", "ms").group("Latency"),
            Column::numbers("p99", "ms").group("Latency"),
            Column::numbers("published", "ms").group("Latency"),
            Column::words("Verdict"),
            Column::numbers("Lost per fault", ""),
            Column::numbers("Window", "ms"),
            Column::words("Chance of a loss, 95 %"),
        ],
        rows,
        how_to_read: format!(
            "Latency before the fault, in a closed loop. Published: {}; MongoDB on real disks, one client. Its w:1 stands \
             beside `acknowledged`, j:true beside `journalled`, w:3 beside the replicated ones. It prints a chance of \
             loss of {} % for w:1 and a window of {} ms, without a test.",
            published.source, published.loss_percent, published.window_ms
        ),
    };
    Ok(Section { id: "prices".into(), title: "Price list".into(), blocks: vec![Block::Table(table)] })
}

fn setting(cell: &BrokenCell<'_>) -> Vec<Cell> {
    let spec = &cell.of.cell.spec;
    let accounts = spec.breaking.as_ref().map_or(0, |breaking| breaking.bank.accounts);
    let cores = spec.lab.as_ref().and_then(|lab| lab.cpus);
    vec![
        cell.name().into(),
        Number::exact(accounts as f64, "").into(),
        cores.map_or_else(|| Cell::from("all"), |cores| Number::exact(cores, "").into()),
        spec.machine.memory.map_or_else(|| "all".to_string(), |memory| memory.to_string()).into(),
    ]
}

fn setting_columns() -> Vec<Column> {
    vec![
        Column::words("Cluster"),
        Column::numbers("Accounts", ""),
        Column::numbers("Cores", "").group("Node"),
        Column::words("Memory").group("Node"),
    ]
}

/// The study's three tables: throughput, latency, and the data set on disk.
pub fn bank(cells: &[BrokenCell<'_>]) -> Result<Section> {
    let published = PublishedBank::load()?;
    let tables = [throughput(cells, &published), latency(cells, &published), data(cells, &published)];
    let blocks = tables.into_iter().map(Block::Table).collect();
    Ok(Section { id: "transfers".into(), title: "Transfers".into(), blocks })
}

fn throughput(cells: &[BrokenCell<'_>], published: &PublishedBank) -> Table {
    let mut rows = Vec::new();
    for cell in cells {
        let (retries, refused, unknown) = cell.not_done(OpKind::Transfer);
        let overdrafts = refused.get(&Failure::Overdraft).copied().unwrap_or(0);
        let others: u64 = refused.values().sum::<u64>() - overdrafts;
        let whole = |n: u64| Cell::from(Number::exact(n as f64, ""));
        let mut row = setting(cell);
        row.extend([
            shown(cell.whole_rate(OpKind::Transfer).as_ref(), "/s", cell.of),
            whole(retries),
            whole(overdrafts),
            whole(others),
            whole(unknown.values().sum()),
            Cell::verdict(sign(cell.verdict()), cell.verdict().words()),
        ]);
        rows.push(Row::new(row));
    }
    for test in &published.tests {
        let none = || Cell::missing("not printed in the study");
        let mut row = published_setting(test, published);
        row.push(Cell::published(Number::exact(test.tps, "/s"), &published.source));
        row.extend([none(), none(), none(), none(), none()]);
        rows.push(Row::new(row).emphasis(Emphasis::Faint));
    }
    let mut columns = setting_columns();
    columns.extend([
        Column::numbers("Throughput", "/s"),
        Column::numbers("Retries", "").group("Not throughput"),
        Column::numbers("Overdrafts", "").group("Not throughput"),
        Column::numbers("Refused otherwise", "").group("Not throughput"),
        Column::numbers("Unknown", "").group("Not throughput"),
        Column::words("Verdict"),
    ]);
    let how_to_read =
        "Transfers done per second over the whole run, faults included. Counts are of all runs together.";
    Table { caption: "Throughput".into(), columns, rows, how_to_read: how_to_read.into() }
}

fn latency(cells: &[BrokenCell<'_>], published: &PublishedBank) -> Table {
    let mut rows = Vec::new();
    for cell in cells {
        let mut row = setting(cell);
        match cell.whole_ms(OpKind::Transfer) {
            Some((mean, p99, longest)) => {
                let limit =
                    cell.of.cell.spec.breaking.as_ref().map_or(0.0, |b| b.latency_limit.as_secs_f64() * 1e3);
                let meets = if p99 <= limit { Sign::Held } else { Sign::NotHeld };
                row.extend([mean, p99, longest].map(|ms| Cell::from(Number::new(ms, "ms"))));
                row.push(Cell::verdict(meets, &format!("{limit} ms")));
            }
            None => row.extend([0; 4].map(|_| Cell::missing(&cell.of.why_none()))),
        }
        rows.push(Row::new(row));
    }
    for test in &published.tests {
        let mut row = published_setting(test, published);
        let ms = [test.mean_ms, test.p99_ms, test.max_ms];
        row.extend(ms.map(|ms| Cell::published(Number::exact(ms, "ms"), &published.source)));
        let meets = if test.p99_ms <= published.limit_ms { Sign::Held } else { Sign::NotHeld };
        row.push(Cell::verdict(meets, &format!("{} ms", published.limit_ms)));
        rows.push(Row::new(row).emphasis(Emphasis::Faint));
    }
    let mut columns = setting_columns();
    columns.extend([
        Column::numbers("mean", "ms").group("Latency of transfers"),
        Column::numbers("p99", "ms").group("Latency of transfers"),
        Column::numbers("maximum", "ms").group("Latency of transfers"),
        Column::words("Limit, by the p99"),
    ]);
    let how_to_read =
        "Of transfers that were done, all tries and pauses included, faults included. In a closed loop.";
    Table { caption: "Latency".into(), columns, rows, how_to_read: how_to_read.into() }
}

fn data(cells: &[BrokenCell<'_>], published: &PublishedBank) -> Table {
    let mut rows = Vec::new();
    for cell in cells {
        let mut row = setting(cell);
        let largest = cell.runs.iter().filter_map(|run| run.data).max();
        row.push(largest.map_or_else(
            || Cell::missing("no disk of ours"),
            |Bytes(bytes)| Number::new(bytes as f64 / 1e6, "MB").into(),
        ));
        rows.push(Row::new(row));
    }
    for (accounts, gigabytes) in &published.data {
        let row = vec![
            "published: MongoDB".into(),
            Number::exact(accounts * 1e6, "").into(),
            Cell::missing("not printed in the study"),
            Cell::missing("not printed in the study"),
            Cell::published(Number::exact(gigabytes * 1e3, "MB"), &published.source),
        ];
        rows.push(Row::new(row).emphasis(Emphasis::Faint));
    }
    let mut columns = setting_columns();
    columns.push(Column::numbers("On disk", "MB"));
    let how_to_read = "Files of one node after the run, with its log and its system tables: tens of megabytes of a small \
                       database are those.";
    Table { caption: "Data set on disk".into(), columns, rows, how_to_read: how_to_read.into() }
}

fn published_setting(test: &crate::study::PublishedTest, published: &PublishedBank) -> Vec<Cell> {
    let number = |n: f64| Cell::published(Number::exact(n, ""), &published.source);
    vec![
        format!("published: MongoDB, {} shards × {}", test.shards, test.replicas).into(),
        number(test.accounts_m * 1e6),
        number(test.cores),
        format!("{} GB", test.memory_gb).into(),
    ]
}
