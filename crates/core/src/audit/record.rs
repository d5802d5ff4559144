//! A trial of Tipover as a study: our own numbers are audited like anyone's.

use super::quantity::Quantity;
use super::table::{Row, Study, Table, Value};
use crate::measure::Histogram;
use crate::record::Record;

/// The client's row and, where there is a shaped disk, the device's.
pub fn of_record(record: &Record) -> Study {
    let name = format!("{} {} repeat {}", record.experiment, record.cell, record.repeat);
    let mut study = Study { name, source: "Tipover".into(), ..Study::default() };
    let Some(measured) = &record.measured else {
        study.left_out.push("the trial failed before anything was measured".into());
        return study;
    };
    let books = match measured.books() {
        Ok(books) => books,
        Err(error) => {
            study.left_out.push(format!("latencies: {error}"));
            return study;
        }
    };
    // Little's law is about everything that a session waited for, failed operations included.
    let mut row = Row::new("operations");
    row.put(Quantity::Samples, books.answered() as f64);
    row.put(Quantity::Duration, measured.seconds());
    row.put(Quantity::Throughput, books.answered() as f64 / measured.seconds());
    let service = books.service();
    if service.is_empty() {
        study.left_out.push("no operation was answered".into());
    } else {
        let load = &record.spec.load;
        let mut edge = 0.0;
        if load.arrivals.is_none() && load.think.is_zero() {
            row.put(Quantity::Sessions, f64::from(load.sessions));
            // Operations count where they end: each session's account is off by about a long latency at
            // either end of the window, as the verdict on a trial allows for too.
            let long = seconds_of(service.value_at_quantile(0.99));
            edge = 2.0 * (2.0 / f64::from(load.sessions)).sqrt() * long / measured.seconds();
        }
        let mean = |share: f64| Value::exact(service.mean() * 1e-9 * (1.0 + share).max(0.0));
        if let (Some(low), Some(high)) = (mean(-edge), mean(edge)) {
            row.values.insert(Quantity::Mean, Value::range(low, high));
        }
        put_percentiles(&mut row, &service);
    }
    let mut rows = vec![row];
    for kind in books.kinds() {
        let Some(book) = books.of(kind).filter(|book| book.done() > 0) else { continue };
        let service = book.latencies().service();
        let mut row = Row::new(kind.name());
        row.put(Quantity::Samples, book.done() as f64);
        row.put(Quantity::Mean, service.mean() * 1e-9);
        put_percentiles(&mut row, service);
        rows.push(row);
    }
    study.tables.push(Table { name: "trial".into(), rows });
    study.tables.extend(device(record).map(|row| Table { name: "disk".into(), rows: vec![row] }));
    study
}

fn put_percentiles(row: &mut Row, histogram: &Histogram) {
    row.put(Quantity::Minimum, seconds_of(histogram.min()));
    row.put(Quantity::Maximum, seconds_of(histogram.max()));
    for thousandths in [50_000, 95_000, 99_000] {
        let share = f64::from(thousandths) / 100_000.0;
        row.put(Quantity::Percentile(thousandths), seconds_of(histogram.value_at_quantile(share)));
    }
}

fn seconds_of(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

fn device(record: &Record) -> Option<Row> {
    let rates = record.measured.as_ref()?.disk_rates()?;
    let mut row = Row::new("device");
    row.put(Quantity::ReadRate, rates.reads.0);
    row.put(Quantity::WriteRate, rates.writes.0);
    row.put(Quantity::ReadBandwidth, rates.read_bandwidth.0);
    row.put(Quantity::WriteBandwidth, rates.write_bandwidth.0);
    if let Some(size) = rates.request_size {
        row.put(Quantity::RequestSize, size.0 as f64);
    }
    // The queue holds flushes and discards too; only without them is it that of reads and writes.
    if let (Some(mean), true) = (rates.mean_await, rates.flushes.0 + rates.discards.0 == 0.0) {
        row.put(Quantity::Await, mean.as_secs_f64());
        row.put(Quantity::Queue, rates.queue);
    }
    row.put(Quantity::Utilization, rates.utilization.0);
    let shape = record.spec.disk.shape.parse::<crate::device::Spec>().ok();
    if let Some(gate) = shape.and_then(|shape| shape.iops) {
        row.put(Quantity::Gate, gate.0);
    }
    row.span(Quantity::ReadRate).or(row.span(Quantity::WriteRate)).filter(|rate| rate.high > 0.0).map(|_| row)
}
