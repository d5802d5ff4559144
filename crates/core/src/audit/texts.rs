//! What other programs print, read as tables. Every reader is total: what it does not know it passes over.

use super::quantity::{Quantity, unit};
use super::table::{Row, Table, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;

const US: f64 = 1e-6;
const MS: f64 = 1e-3;
const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;

/// iostat -x, with or without -k and -m, of sysstat 9 to 12. iostat's kB is 1024 B, its MB 1024 kB.
pub(super) fn iostat(text: &str) -> Table {
    let mut table = Table { name: "iostat".into(), rows: vec![] };
    let mut head: Vec<&str> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first() {
            Some(first) if first.starts_with("Device") => head = words,
            Some(name) if !head.is_empty() && words.len() == head.len() => {
                let cells: BTreeMap<&str, &str> = head.iter().copied().zip(words.iter().copied()).collect();
                let mut row = iostat_row(&cells);
                row.name = format!("{name}, line {}", number + 1);
                let busy = [Quantity::ReadRate, Quantity::WriteRate]
                    .iter()
                    .any(|q| row.span(*q).is_some_and(|s| s.low > 0.0));
                if busy {
                    table.rows.push(row);
                }
            }
            _ => {}
        }
    }
    table
}

fn iostat_row(cells: &BTreeMap<&str, &str>) -> Row {
    let mut row = Row::default();
    for (column, quantity, factor) in [
        ("r/s", Quantity::ReadRate, 1.0),
        ("w/s", Quantity::WriteRate, 1.0),
        ("rkB/s", Quantity::ReadBandwidth, KIB),
        ("wkB/s", Quantity::WriteBandwidth, KIB),
        ("rMB/s", Quantity::ReadBandwidth, MIB),
        ("wMB/s", Quantity::WriteBandwidth, MIB),
        ("rsec/s", Quantity::ReadBandwidth, 512.0),
        ("wsec/s", Quantity::WriteBandwidth, 512.0),
        ("avgrq-sz", Quantity::RequestSize, 512.0),
        ("areq-sz", Quantity::RequestSize, KIB),
        ("avgqu-sz", Quantity::Queue, 1.0),
        ("aqu-sz", Quantity::Queue, 1.0),
        ("await", Quantity::Await, MS),
        ("svctm", Quantity::ServiceTime, MS),
        ("%util", Quantity::Utilization, 0.01),
    ] {
        if let Some(text) = cells.get(column) {
            row.print(quantity, &text.replace(',', "."), factor);
        }
    }
    let read = |column: &str| {
        Value::printed(&cells.get(column)?.replace(',', "."), 1.0, Quantity::Await).map(|v| v.span)
    };
    let others = ["d/s", "f/s"].iter().filter_map(|column| read(column)).any(|rate| rate.middle() > 0.0);
    // sysstat 11 and later print await by direction; the queue holds both, and discards and flushes too.
    if row.span(Quantity::Await).is_none()
        && !others
        && let (Some(r), Some(w), Some(ra), Some(wa)) =
            (read("r/s"), read("w/s"), read("r_await"), read("w_await"))
        && (r + w).low > 0.0
    {
        let weighted = |r: f64, w: f64, ra: f64, wa: f64| (r * ra + w * wa) / (r + w) * MS;
        let middle = weighted(r.middle(), w.middle(), ra.middle(), wa.middle());
        let half = weighted(r.middle(), w.middle(), ra.high - ra.middle(), wa.high - wa.middle());
        let span = super::table::Span { low: (middle - half).max(0.0), high: middle + half };
        row.values.insert(Quantity::Await, Value { span, digits: 4 });
    }
    row
}

/// YCSB's text exporter: `[READ], AverageLatency(us), 123.4`.
pub(super) fn ycsb(text: &str) -> Table {
    let mut by_operation: BTreeMap<&str, Row> = BTreeMap::new();
    let mut sessions = None;
    let mut throttled = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("Command line:") {
            let words: Vec<&str> = command.split_whitespace().collect();
            throttled |= words.contains(&"-target");
            sessions = words.windows(2).find(|w| w[0] == "-threads").map(|w| w[1].to_string()).or(sessions);
        }
        let parts: Vec<&str> = line.splitn(3, ',').map(str::trim).collect();
        let [operation, name, value] = parts.as_slice() else { continue };
        let Some(operation) = operation.strip_prefix('[').and_then(|o| o.strip_suffix(']')) else { continue };
        let row = by_operation.entry(operation).or_insert_with(|| Row::new(operation));
        match *name {
            "RunTime(ms)" => row.print(Quantity::Duration, value, MS),
            "Throughput(ops/sec)" => row.print(Quantity::Throughput, value, 1.0),
            "Operations" => row.put(Quantity::Samples, value.parse().unwrap_or(f64::NAN)),
            "AverageLatency(us)" => row.print(Quantity::Mean, value, US),
            "MinLatency(us)" => row.print(Quantity::Minimum, value, US),
            "MaxLatency(us)" => row.print(Quantity::Maximum, value, US),
            other => {
                let percentile =
                    other.strip_suffix("PercentileLatency(us)").map(|p| p.trim_end_matches("th"));
                if let Some(quantity) = percentile.and_then(|p| Quantity::parse(&format!("p{p}"))) {
                    row.print(quantity, value, US);
                }
            }
        }
    }
    by_operation.remove("CLEANUP");
    let throttled = throttled || text.lines().any(|line| line.trim_start().starts_with("target="));
    // In a read-modify-write its read and its update are counted again under their own names.
    let nested = by_operation.contains_key("READ-MODIFY-WRITE");
    let whole = overall(&by_operation);
    if let Some(row) = by_operation.get_mut("OVERALL") {
        if let (Some((samples, mean)), false) = (whole, nested) {
            row.put(Quantity::Samples, samples);
            row.put(Quantity::Mean, mean);
        }
        if let (Some(threads), false) = (sessions, throttled) {
            row.print(Quantity::Sessions, &threads, 1.0);
        }
    }
    Table {
        name: "YCSB".into(),
        rows: by_operation.into_values().filter(|row| !row.values.is_empty()).collect(),
    }
}

/// Operations of all kinds and their mean.
fn overall(rows: &BTreeMap<&str, Row>) -> Option<(f64, f64)> {
    let (mut samples, mut total) = (0.0, 0.0);
    for (_, row) in rows.iter().filter(|(name, _)| **name != "OVERALL" && !name.starts_with("TOTAL_GC")) {
        let Some(count) = row.span(Quantity::Samples).filter(|s| s.middle() > 0.0) else { continue };
        samples += count.middle();
        total += count.middle() * row.span(Quantity::Mean)?.middle();
    }
    (samples > 0.0).then(|| (samples, total / samples))
}

/// go-ycsb: `READ   - Takes(s): 9.9, Count: 98, OPS: 9.9, Avg(us): 98, ..., 99.9th(us): 456`.
pub(super) fn go_ycsb(text: &str) -> Table {
    let mut table = Table { name: "go-ycsb".into(), rows: vec![] };
    for (number, line) in text.lines().enumerate() {
        let Some((operation, figures)) = line.split_once(" - Takes(s):") else { continue };
        let mut row = Row::new(format!("{}, line {}", operation.trim(), number + 1));
        for part in format!("Takes(s):{figures}").split(',') {
            let Some((name, value)) = part.split_once(':') else { continue };
            match name.trim() {
                "Takes(s)" => row.print(Quantity::Duration, value, 1.0),
                "Count" => row.put(Quantity::Samples, value.trim().parse().unwrap_or(f64::NAN)),
                "OPS" => row.print(Quantity::Throughput, value, 1.0),
                "Avg(us)" => row.print(Quantity::Mean, value, US),
                "Min(us)" => row.print(Quantity::Minimum, value, US),
                "Max(us)" => row.print(Quantity::Maximum, value, US),
                other => {
                    let percentile =
                        other.strip_suffix("th(us)").and_then(|p| Quantity::parse(&format!("p{p}")));
                    if let Some(quantity) = percentile {
                        row.print(quantity, value, US);
                    }
                }
            }
        }
        table.rows.push(row);
    }
    table
}

/// The number after `label` at the start of some line, up to its unit.
fn after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let line =
        text.lines().find_map(|line| line.trim().strip_prefix(label))?.trim_start_matches([':', '=', ' ']);
    let end = line.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(line.len());
    (end > 0).then(|| &line[..end])
}

/// sysbench 1.0 and 1.1: the summary, and for fileio a row for reads and one for writes.
pub(super) fn sysbench(text: &str) -> Table {
    let mut row = Row::new("summary");
    let labels = [
        ("Number of threads", Quantity::Sessions, 1.0),
        ("total time", Quantity::Duration, 1.0),
        ("time elapsed", Quantity::Duration, 1.0),
        ("total number of events", Quantity::Samples, 1.0),
        ("events/s (eps)", Quantity::Throughput, 1.0),
        ("min", Quantity::Minimum, MS),
        ("avg", Quantity::Mean, MS),
        ("max", Quantity::Maximum, MS),
        ("95th percentile", Quantity::Percentile(95_000), MS),
        ("99th percentile", Quantity::Percentile(99_000), MS),
    ];
    for (label, quantity, factor) in labels {
        if let Some(value) = after(text, label) {
            row.print(quantity, value, factor);
        }
    }
    let mut rows = vec![row];
    let block = text.lines().find_map(|line| line.trim().strip_prefix("Block size ")).and_then(|size| {
        let end = size.find(|c: char| !c.is_ascii_digit())?;
        let size_unit = size[end..].replace("Kb", "KiB").replace("Mb", "MiB");
        Some(size[..end].parse::<f64>().ok()? * unit(Quantity::RequestSize, size_unit.trim()).ok()?)
    });
    for (name, old_rate, old_bandwidth) in
        [("read", "reads/s", "read, MiB/s"), ("write", "writes/s", "written, MiB/s")]
    {
        let mut row = Row::new(name);
        let new = text.lines().find_map(|line| {
            line.trim().strip_prefix(name)?.trim_start_matches(':').trim().strip_prefix("IOPS=")
        });
        if let Some(line) = new {
            let mut words = line.split_whitespace();
            row.print(Quantity::DeviceRate, words.next().unwrap_or_default(), 1.0);
            row.print(Quantity::Bandwidth, words.next().unwrap_or_default(), MIB);
        } else if let (Some(rate), Some(bandwidth)) = (after(text, old_rate), after(text, old_bandwidth)) {
            row.print(Quantity::DeviceRate, rate, 1.0);
            row.print(Quantity::Bandwidth, bandwidth, MIB);
        }
        if row.values.is_empty() {
            continue;
        }
        if let Some(block) = block {
            row.put(Quantity::RequestSize, block);
        }
        rows.push(row);
    }
    Table { name: "sysbench".into(), rows }
}

/// pgbench's summary.
pub(super) fn pgbench(text: &str) -> Table {
    let mut row = Row::new("summary");
    let limited = text.lines().any(|line| line.starts_with("rate limit"));
    for (label, quantity, factor) in [
        ("number of clients", Quantity::Sessions, 1.0),
        ("duration", Quantity::Duration, 1.0),
        ("number of transactions actually processed", Quantity::Samples, 1.0),
        ("latency average", Quantity::Mean, MS),
        ("tps", Quantity::Throughput, 1.0),
    ] {
        if let (Some(value), false) = (after(text, label), limited && quantity == Quantity::Sessions) {
            row.print(quantity, value, factor);
        }
    }
    Table { name: "pgbench".into(), rows: vec![row] }
}

/// fio's JSON: a row for each direction of each job, and one for its completion latencies, whose percentiles
/// leave the wait for submission out. Text may stand before the JSON.
///
/// # Errors
/// When the JSON is damaged, or holds no jobs.
pub(super) fn fio(text: &str) -> Result<Table, String> {
    let json = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to));
    let file: Json =
        serde_json::from_str(json.unwrap_or(text)).map_err(|error| format!("damaged JSON: {error}"))?;
    let mut table = Table { name: "fio".into(), rows: vec![] };
    for job in file.get("jobs").and_then(Json::as_array).ok_or("holds no fio jobs")? {
        let name = job.get("jobname").and_then(Json::as_str).unwrap_or("job");
        for direction in ["read", "write"] {
            let Some(side) = job.get(direction) else { continue };
            let number = |path: &str| side.pointer(path).and_then(Json::as_f64).unwrap_or(f64::NAN);
            if number("/total_ios").is_nan() || number("/total_ios") <= 0.0 {
                continue;
            }
            let mut row = Row::new(format!("{name} {direction}"));
            for (path, quantity, factor) in [
                ("/iops", Quantity::DeviceRate, 1.0),
                ("/iops", Quantity::Throughput, 1.0),
                ("/bw_bytes", Quantity::Bandwidth, 1.0),
                ("/total_ios", Quantity::Samples, 1.0),
                ("/runtime", Quantity::Duration, MS),
            ] {
                row.put(quantity, number(path) * factor);
            }
            row.put(Quantity::RequestSize, number("/io_bytes") / number("/total_ios"));
            latencies(&mut row, side, "lat_ns");
            let mut completion = Row::new(format!("{name} {direction}, completion"));
            latencies(&mut completion, side, "clat_ns");
            completion.put(Quantity::Samples, number("/clat_ns/N"));
            table.rows.extend([row, completion]);
        }
    }
    Ok(table)
}

fn latencies(row: &mut Row, side: &Json, kind: &str) {
    let Some(statistics) = side.get(kind) else { return };
    for (name, quantity) in [("min", Quantity::Minimum), ("max", Quantity::Maximum), ("mean", Quantity::Mean)]
    {
        row.put(quantity, statistics.get(name).and_then(Json::as_f64).unwrap_or(f64::NAN) * 1e-9);
    }
    for (share, value) in statistics.get("percentile").and_then(Json::as_object).into_iter().flatten() {
        let percent = share.parse::<f64>().unwrap_or(f64::NAN);
        if let Some(quantity) = Quantity::parse(&format!("p{percent}")) {
            row.put(quantity, value.as_f64().unwrap_or(f64::NAN) * 1e-9);
        }
    }
}
