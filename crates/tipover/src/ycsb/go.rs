//! What go-ycsb prints (v1.0.1), for those whose scripts read that.

use super::measurements::microseconds;
use std::fmt::Write;
use std::time::Duration;
use tipover_core::measure::Books;
use tipover_core::op::{OpKind, Outcome};

/// go-ycsb's `outputstyle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Table,
    Json,
}

const HEADER: [&str; 13] = [
    "Operation",
    "Takes(s)",
    "Count",
    "OPS",
    "Avg(us)",
    "Min(us)",
    "Max(us)",
    "50th(us)",
    "90th(us)",
    "95th(us)",
    "99th(us)",
    "99.9th(us)",
    "99.99th(us)",
];

fn name_of(kind: OpKind) -> Option<&'static str> {
    match kind {
        OpKind::InsertMany => Some("BATCH_INSERT"),
        OpKind::ReadModifyWrite => Some("READ_MODIFY_WRITE"),
        // It does not measure comparisons.
        OpKind::Verify => None,
        other => Some(other.name()),
    }
}

/// Whether go-ycsb's TOTAL counts it: a read-modify-write is there as its read and its update.
fn is_in_total(kind: OpKind) -> bool {
    kind != OpKind::ReadModifyWrite
}

/// Under which names an operation counts.
pub fn names(kind: OpKind, outcome: Outcome) -> Vec<String> {
    let Some(name) = name_of(kind) else { return vec![] };
    match outcome {
        Outcome::Done if is_in_total(kind) => vec![name.into(), "TOTAL".into()],
        Outcome::Done => vec![name.into()],
        _ => vec![format!("{name}_ERROR")],
    }
}

/// The figures so far, after `elapsed`.
pub fn summary(books: &Books, elapsed: Duration, style: Style) -> String {
    let mut rows: Vec<[String; 13]> = Vec::new();
    let mut total = tipover_core::measure::histogram();
    let mut row = |name: String, nanoseconds: &tipover_core::measure::Histogram| {
        let latencies = microseconds(nanoseconds);
        let seconds = elapsed.as_secs_f64();
        let at = |percentile: f64| latencies.value_at_percentile(percentile).to_string();
        rows.push([
            name,
            format!("{seconds:.1}"),
            latencies.len().to_string(),
            format!("{:.1}", latencies.len() as f64 / seconds.max(1e-9)),
            (latencies.mean() as u64).to_string(),
            latencies.min().to_string(),
            latencies.max().to_string(),
            at(50.0),
            at(90.0),
            at(95.0),
            at(99.0),
            at(99.9),
            at(99.99),
        ]);
    };
    for kind in books.kinds() {
        let (Some(book), Some(name)) = (books.of(kind), name_of(kind)) else { continue };
        if book.done() > 0 {
            row(name.into(), book.latencies().service());
            if is_in_total(kind) {
                total.add(book.latencies().service()).expect("all histograms have the same bounds");
            }
        }
        if let Some(failed) = book.failed_latencies() {
            row(format!("{name}_ERROR"), failed.service());
        }
    }
    if !total.is_empty() {
        row("TOTAL".into(), &total);
    }
    rows.sort_by(|a, b| a[0].cmp(&b[0]));
    match style {
        _ if rows.is_empty() => String::new(),
        Style::Plain => plain(&rows),
        Style::Table => table(&rows),
        Style::Json => json(&rows),
    }
}

fn plain(rows: &[[String; 13]]) -> String {
    let line = |row: &[String; 13]| {
        let figures = HEADER.iter().zip(row).skip(1).map(|(header, value)| format!("{header}: {value}"));
        format!("{:<6} - {}\n", row[0], figures.collect::<Vec<_>>().join(", "))
    };
    rows.iter().map(line).collect()
}

/// As the Go package `tablewriter` draws it: capital headers in the middle, numbers on the right.
fn table(rows: &[[String; 13]]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].len());
        widths.chain([HEADER[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let rule: String =
        widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
    let headers = HEADER.map(|header| header.to_uppercase().replace('_', " "));
    let head = headers.iter().zip(&widths).map(|(header, width)| format!("| {header:^width$} "));
    let mut text = format!("{rule}{}|\n{rule}", head.collect::<String>());
    for row in rows {
        let _ = write!(text, "| {:<1$} ", row[0], widths[0]);
        for (value, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "| {value:>width$} ");
        }
        text.push_str("|\n");
    }
    text + &rule
}

fn json(rows: &[[String; 13]]) -> String {
    // Go writes the keys of a map in alphabetical order.
    let object = |row: &[String; 13]| {
        let figures: std::collections::BTreeMap<_, _> = HEADER.iter().zip(row).collect();
        serde_json::json!(figures)
    };
    let objects: Vec<_> = rows.iter().map(object).collect();
    format!("{}\n", serde_json::json!(objects))
}

/// A length of time as Go's `time.Duration` prints it: `944.779µs`, `14.07ms`, `1m2.5s`.
pub fn duration(length: Duration) -> String {
    let ns = length.as_nanos() as u64;
    match ns {
        0 => "0s".into(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{}ms", ns as f64 / 1e6),
        _ => {
            let (minutes, seconds) = (ns / 60_000_000_000, (ns % 60_000_000_000) as f64 / 1e9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::op::{Failure, Timing};
    use tipover_core::units::Tick;

    fn books() -> Books {
        let mut books = Books::closed();
        let timing = |us: u64| Timing { due: Tick(0), began: Tick(0), ended: Tick(us * 1000) };
        for us in 1..=100 {
            books.record(OpKind::Read, Outcome::Done, &timing(us), 0);
        }
        books.record_part(OpKind::Read, Outcome::Done, &timing(100), 0);
        books.record_part(OpKind::Update, Outcome::Done, &timing(7), 0);
        books.record(OpKind::ReadModifyWrite, Outcome::Done, &timing(107), 0);
        books.record(OpKind::Scan, Outcome::Refused(Failure::Unavailable), &timing(9), 0);
        books
    }

    #[test]
    fn the_three_styles_are_go_ycsbs() {
        // The shapes are those of the output of go-ycsb v1.0.1 with its target `basic`.
        let of = |style| summary(&books(), Duration::from_millis(2_000), style);
        let plain = of(Style::Plain);
        let lines: Vec<&str> = plain.lines().collect();
        assert_eq!(
            lines[0],
            "READ   - Takes(s): 2.0, Count: 101, OPS: 50.5, Avg(us): 50, Min(us): 1, Max(us): 100, 50th(us): 51, \
             90th(us): 91, 95th(us): 96, 99th(us): 100, 99.9th(us): 100, 99.99th(us): 100"
        );
        let names: Vec<&str> = lines.iter().map(|line| line.split(" - ").next().unwrap()).collect();
        assert_eq!(names, ["READ  ", "READ_MODIFY_WRITE", "SCAN_ERROR", "TOTAL ", "UPDATE"]);
        assert!(lines[3].contains("Count: 102,"), "{}", lines[3]);

        let table = of(Style::Table);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[1],
            "|     OPERATION     | TAKES(S) | COUNT | OPS  | AVG(US) | MIN(US) | MAX(US) | 50TH(US) | 90TH(US) | \
             95TH(US) | 99TH(US) | 99.9TH(US) | 99.99TH(US) |"
        );
        assert!(
            lines[3].starts_with("| READ              |      2.0 |   101 | 50.5 |      50 |"),
            "{}",
            lines[3]
        );
        assert!(
            lines[0] == lines[2] && lines[0] == *lines.last().unwrap() && lines[0].starts_with("+--------")
        );

        let json = of(Style::Json);
        assert!(
            json.starts_with(r#"[{"50th(us)":"51","90th(us)":"91","95th(us)":"96","99.99th(us)":"100","#)
        );
        assert!(json.ends_with("}]\n"));
        assert_eq!(summary(&Books::closed(), Duration::ZERO, Style::Table), "");
    }

    #[test]
    fn lengths_of_time_are_gos() {
        for (ns, text) in [
            (944_779, "944.779µs"),
            (14_078_319, "14.078319ms"),
            (9_000_000_000, "9s"),
            (62_500_000_000, "1m2.5s"),
            (3_723_000_000_000, "1h2m3s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(ns)), text);
        }
    }
}
