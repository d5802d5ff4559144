//! A trial of Tipover as a study: our own numbers are audited like anyone's.

use super::hlog::put_ordered;
use super::quantity::Quantity;
use super::table::{Row, Study, Table, Value};
use crate::measure::Counts;
use crate::record::Record;

/// The client's row and, where there is a shaped disk, the device's.
pub fn of_record(record: &Record) -> Study {
    let name = format!("{} {} repeat {}", record.experiment, record.cell, record.repeat);
    let mut study = Study { name, source: "Tipover".into(), ..Study::default() };
    let Some(measured) = &record.measured else {
        study.left_out.push("the trial failed before anything was measured".into());
        return study;
    };
    let (service, by_kind) = match measured.books.service() {
        Ok(books) => books,
        Err(error) => {
            study.damaged.push(format!("latencies: {error}"));
            return study;
        }
    };
    // Little's law is about everything that a session waited for, failed operations included.
    let load = &record.spec.load;
    let busy = load.arrivals.is_none() && load.think.is_zero();
    // All rows are of one run, under the same conditions: the classes of its operations may share cells with
    // the whole, and do where there is only one class.
    let of_run = |name: &str, operations: u64| {
        let mut row = Row::new(name);
        row.put(Quantity::Samples, operations as f64);
        row.put(Quantity::Duration, measured.seconds());
        row.put(Quantity::Throughput, operations as f64 / measured.seconds());
        if busy {
            row.put(Quantity::Sessions, f64::from(load.sessions));
        }
        row
    };
    let mut row = of_run("operations", measured.books.done() + measured.books.failed());
    // Operations that were counted where they ended, by sessions that began them before, or end them after.
    let mut edge = 0.0;
    if !service.is_empty() {
        if busy {
            // Operations count where they end: each session's account is off by about a long latency at
            // either end of the window, as the verdict on a trial allows for too.
            let long = seconds_of(service.value_at_quantile(0.99));
            edge = 2.0 * (2.0 / f64::from(load.sessions)).sqrt() * long / measured.seconds();
        }
        put_latencies(&mut row, &service, edge);
    }
    let mut rows = vec![row];
    for (kind, service) in by_kind.iter().filter(|(_, service)| !service.is_empty()) {
        let mut row = of_run(kind.name(), service.len());
        put_latencies(&mut row, service, edge);
        rows.push(row);
    }
    study.tables.push(Table { name: "trial".into(), rows });
    study.tables.extend(device(record).map(|row| Table { name: "disk".into(), rows: vec![row] }));
    study.without_idle_rows()
}

/// The mean, uncertain by the share `edge`, and the ordered ones.
fn put_latencies(row: &mut Row, histogram: &Counts, edge: f64) {
    let mean = |share: f64| Value::exact(histogram.mean() * 1e-9 * (1.0 + share).max(0.0));
    if let (Some(low), Some(high)) = (mean(-edge), mean(edge)) {
        row.values.insert(Quantity::Mean, Value::range(low, high));
    }
    let ends = (histogram.len(), histogram.min(), histogram.max());
    put_ordered(row, ends, |quantile| histogram.value_at_quantile(quantile));
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
        // Requests that are under way when the window begins or ends are in the queue, and their wait is not
        // or is in part: of few requests that is much.
        let at_edges = 2.0 * (rates.queue + 1.0) * mean.as_secs_f64() / rates.window.as_secs_f64();
        let ends = [rates.queue - at_edges, rates.queue + at_edges].map(|queue| Value::exact(queue.max(0.0)));
        if let [Some(low), Some(high)] = ends {
            row.values.insert(Quantity::Queue, Value::range(low, high));
        }
    }
    row.put(Quantity::Utilization, rates.utilization.0);
    let shape = record.spec.disk.shape.parse::<crate::device::Spec>().ok();
    if let Some(gate) = shape.and_then(|shape| Some(shape.iops?.0 * f64::from(shape.disks()))) {
        row.put(Quantity::Gate, gate);
    }
    row.span(Quantity::ReadRate).or(row.span(Quantity::WriteRate)).filter(|rate| rate.high > 0.0).map(|_| row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Severity, audit};
    use crate::experiment::{Experiment, Trial};
    use crate::measure::Books;
    use crate::op::{OpKind, Outcome, Timing};
    use crate::trial::simulate::{self, Machine};
    use crate::units::Tick;
    use std::time::Duration;

    const PLAN: &str = include_str!("../../../../experiments/working-set.toml");

    fn records() -> Vec<Record> {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
        let trial = |cell| Trial { cell, repeat: 0, twin: false };
        cells.map(|cell| simulate::trial("t", &trial(cell), 1, &Machine::default()).0).collect()
    }

    /// Loads of nothing but reads: the whole and its only class are one histogram under two names.
    #[test]
    fn our_own_sound_trials_are_not_accused() {
        let mut checked = 0;
        for record in records() {
            let study = of_record(&record);
            let found = audit(&study);
            assert_eq!(study.tables[0].rows.len(), 2, "the whole and its reads");
            assert!(found.findings.is_empty(), "{}: {:?}", record.cell, found.findings);
            checked += found.checks();
        }
        assert!(checked > 100, "{checked}");
    }

    /// Of forty requests one at the window's edge is a fortieth: no fault of the counters. A third is.
    #[test]
    fn a_request_at_the_edge_of_the_window_breaks_no_law_of_the_device() {
        let honest = records().remove(0);
        let with_queue = |more: f64| {
            let mut record = honest.clone();
            let (first, last) = record.measured.as_mut().unwrap().disk.as_mut().unwrap();
            *last = crate::device::Counters { at: first.at + Duration::from_secs(11), ..*first };
            last.read.requests += 40;
            last.read.residence += Duration::from_millis(8 * 40);
            last.queue_time += Duration::from_millis(8 * 40).mul_f64(1.0 + more);
            let study = of_record(&record);
            audit(&study).findings.iter().any(|finding| finding.law == "Little's law at the device")
        };
        assert_eq!([0.0, 0.042, 0.33].map(with_queue), [false, false, true]);
    }

    /// Half the operations that throughput and sessions ask for, a histogram that is not the one counted, and
    /// a trial that measured nothing.
    #[test]
    fn our_own_unsound_trials_are() {
        let honest = records().pop().unwrap();
        let mut halved = honest.clone();
        let measured = halved.measured.as_mut().unwrap();
        measured.end = measured.begin + measured.end.since(measured.begin).mul_f64(0.5);
        let broken = |record: &Record| {
            let found = audit(&of_record(record));
            found
                .findings
                .iter()
                .filter(|f| f.severity == Severity::Broken)
                .map(|f| f.law.clone())
                .collect::<Vec<_>>()
        };
        assert!(broken(&halved).iter().any(|law| law == "Little's bound"), "{:?}", broken(&halved));
        let mut damaged = honest.clone();
        let books = &mut damaged.measured.as_mut().unwrap().books;
        books.operations.values_mut().for_each(|book| book.done += 1);
        assert_eq!(broken(&damaged), ["Whole file"]);
        let mut idle = honest.clone();
        idle.measured.as_mut().unwrap().books = Books::closed().to_text();
        let study = of_record(&idle);
        assert!(study.tables[0].rows.is_empty() && study.left_out[0].contains("0 operations"), "{study:?}");
        let mut few = honest;
        let mut books = Books::closed();
        for n in 1..=20 {
            let timing = Timing { due: Tick(0), began: Tick(0), ended: Tick(n * 1_000_000) };
            books.record(OpKind::Read, Outcome::Done, &timing, 0);
        }
        few.measured.as_mut().unwrap().books = books.to_text();
        let percentiles =
            |row: &Row| row.values.keys().filter(|q| matches!(q, Quantity::Percentile(_))).count();
        let rows = of_record(&few).tables.remove(0).rows;
        assert!(rows.iter().all(|row| percentiles(row) == 1), "of 20 operations only the median is known");
    }
}
