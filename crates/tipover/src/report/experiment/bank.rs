//! The page of the published study of transfers between accounts.

use super::broken::sign;
use super::sections::shown;
use crate::report::{Block, Cell, Column, Columns, Emphasis, Number, Row, Section, Table, Verdict as Sign};
use crate::study::PublishedBank;
use anyhow::Result;
use tipover_core::check::Verdict;
use tipover_core::op::{Failure, OpKind};
use tipover_core::study::BrokenCell;
use tipover_core::study::bank::{Resource, Study, Transfers};
use tipover_core::units::{Bytes, significant};

fn setting(cell: &BrokenCell<'_>) -> Vec<Cell> {
    let spec = &cell.of.cell.spec;
    let accounts = spec.breaking.as_ref().map_or(0, |breaking| breaking.bank.accounts);
    let cores = spec.lab.as_ref().and_then(|lab| lab.cpus);
    vec![
        cell.name().into(),
        Number::exact(accounts as f64, "").into(),
        Number::exact(f64::from(spec.load.sessions), "").into(),
        cores.map_or_else(|| Cell::from("all"), |cores| Number::exact(cores, "").into()),
        spec.machine.memory.map_or_else(|| "all".to_string(), |memory| memory.to_string()).into(),
    ]
}

fn setting_columns() -> Vec<Column> {
    vec![
        Column::words("Cluster"),
        Column::numbers("Accounts", ""),
        Column::numbers("Clients", ""),
        Column::numbers("Cores", "").group("Node"),
        Column::words("Memory").group("Node"),
    ]
}

/// Whether money appeared or vanished, and where the promised latency was kept.
pub fn headline(cells: &[BrokenCell<'_>]) -> Vec<String> {
    let ran: Vec<&BrokenCell<'_>> = cells.iter().filter(|cell| !cell.runs.is_empty()).collect();
    if ran.is_empty() {
        return vec![];
    }
    let names = |cells: &[&BrokenCell<'_>]| {
        let names: Vec<String> =
            cells.iter().map(|cell| format!("{} ({})", cell.name(), cell.verdict().words())).collect();
        names.join("; ")
    };
    let (kept, others): (Vec<_>, Vec<_>) = ran.iter().partition(|cell| cell.verdict() == Verdict::Valid);
    let transfers: u64 = ran.iter().map(|cell| cell.transfers()).sum();
    let mut said = vec![format!(
        "{} of {} cells kept their money: every balance is what the transfers that are found make it, and every \
         acknowledged one of {transfers} is found once",
        kept.len(),
        ran.len()
    )];
    if !others.is_empty() {
        said.push(format!("Not so, or it cannot be said: {}", names(&others)));
    }
    let late: Vec<String> = ran
        .iter()
        .filter_map(|cell| {
            let (_, p99, _) = cell.whole_ms(OpKind::Transfer)?;
            (p99 > limit_ms(cell)).then(|| format!("{} ({} ms)", cell.name(), significant(p99, 2)))
        })
        .collect();
    let limit = limit_ms(ran[0]);
    said.push(match late.is_empty() {
        true => format!("All kept the limit of {limit} ms with the 99th percentile of their transfers"),
        false => format!(
            "{} of {} kept the limit of {limit} ms with the 99th percentile of their transfers; {} did not",
            ran.len() - late.len(),
            ran.len(),
            late.join(", ")
        ),
    });
    said
}

/// The limit of the plan.
fn limit_ms(cell: &BrokenCell<'_>) -> f64 {
    cell.of.cell.spec.breaking.as_ref().map_or(0.0, |breaking| breaking.latency_limit.as_secs_f64() * 1e3)
}

/// The study's three tables: throughput, latency, and the data set on disk; and what limited its rows.
pub fn section(cells: &[BrokenCell<'_>], study: &Study) -> Result<Section> {
    let published = PublishedBank::load()?;
    let tables =
        [throughput(cells, &published), limits(study), latency(cells, &published), data(cells, &published)];
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

/// What was full while transfers were done.
fn limits(study: &Study) -> Table {
    let measured = study.transfers.iter().filter(|of| of.throughput_ops_per_s.get().is_some());
    Columns::new()
        .words("cluster", |of: &Transfers| match of.settings.as_str() {
            "" => of.sweep.clone(),
            settings => format!("{}, {settings}", of.sweep),
        })
        .numbers("clients", "", |of, unit| Number::exact(f64::from(of.clients), unit))
        .figures("files ÷ memory", "×", |of| &of.data_per_memory)
        .group("processors")
        .figures("primary", "cores", |of| &of.primary_cores)
        .figures("another node", "cores", |of| &of.others_cores)
        .figures("machine", "%", |of| &of.machine_busy_percent)
        .group("the primary's disk")
        .figures("busy", "%", |of| &of.disk_busy_percent)
        .figures("reads for a transfer", "", |of| &of.disk_reads_per_transfer)
        .figures("writes for a transfer", "", |of| &of.disk_writes_per_transfer)
        .group("")
        .words("in use all the time", |of| match of.full.as_slice() {
            [] => "nothing: transfers wait for each other, or for a flush".to_string(),
            full => full.iter().map(|resource: &Resource| resource.words()).collect::<Vec<_>>().join(", "),
        })
        .table(
            "What limited it",
            measured,
            "In use all the time: for 90 % of it or more. Processors of a node are of those that it may use; the machine's \
             carry nodes, clients and disks. A disk that always has a request may still serve more of them at once. Nodes \
             has the same of every node, with memory and network.",
        )
        .without_empty_columns()
}

fn latency(cells: &[BrokenCell<'_>], published: &PublishedBank) -> Table {
    let mut rows = Vec::new();
    for cell in cells {
        let mut row = setting(cell);
        match cell.whole_ms(OpKind::Transfer) {
            Some((mean, p99, longest)) => {
                let limit = limit_ms(cell);
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
    let mut name = format!("published: MongoDB, {} shards × {}", test.shards, test.replicas);
    for more in [&test.filesystem, &test.fault].into_iter().flatten() {
        name += ", ";
        name += more;
    }
    vec![
        name.into(),
        number(test.accounts_m * 1e6),
        number(test.clients),
        number(test.cores),
        format!("{} GB", test.memory_gb).into(),
    ]
}
