use super::*;
use crate::ycsb::raw::Point;
use std::time::Duration;
use tipover_core::op::{Outcome, Timing};
use tipover_core::units::Tick;
use tipover_core::workload::Properties;

fn settings(given: &[(&str, &str)]) -> Settings {
    let mut properties = Properties::default();
    given.iter().for_each(|(name, value)| properties.set(name, value, "test"));
    Settings::of(&properties).unwrap()
}

fn timing(due_us: u64, began_us: u64, ended_us: u64) -> Timing {
    let tick = |us| Tick(us * 1000);
    Timing { due: tick(due_us), began: tick(began_us), ended: tick(ended_us) }
}

/// 1000 reads of 1 to 1000 µs, of which three find nothing, and ten updates of 40 ms, sent 5 ms late.
fn books() -> Books {
    let mut books = Books::open();
    for us in 1..=1000 {
        let missing = us % 300 == 0;
        let outcome = if missing { Outcome::Refused(Failure::NotFound) } else { Outcome::Done };
        books.record(OpKind::Read, outcome, &timing(5, 5, 5 + us), 0);
    }
    for _ in 0..10 {
        books.record(OpKind::Update, Outcome::Done, &timing(0, 5_000, 45_000), 0);
    }
    books
}

fn printed(given: &[(&str, &str)], exporter: Exporter) -> String {
    let mut cleanup = tipover_core::measure::histogram();
    cleanup.record_n(2_500_000, 4).unwrap();
    let points = BTreeMap::from([("READ".to_string(), vec![(0, 1.5), (1000, 2.25)])]);
    let books = books();
    let mut raw = Raw::default();
    let began = std::time::SystemTime::UNIX_EPOCH;
    let took = [30, 10, 20].map(|us| Point::new(began, Duration::from_micros(us)));
    raw.put("READ", &took);
    raw.put("READ-NOT_FOUND", &took[..1]);
    raw.put("READ-MODIFY-WRITE", &took);
    let totals = Totals {
        runtime_ms: 2000,
        done: books.done(),
        books: &books,
        cleanup: &cleanup,
        points: &points,
        raw: &raw,
    };
    print(&lines(&totals, &settings(given)), exporter)
}

#[test]
fn the_text_is_ycsbs_line_for_line() {
    // The names, their order, and which numbers have a point: TextMeasurementsExporter, Client and
    // OneMeasurementHdrHistogram of YCSB d9faaac.
    let expected = "\
[OVERALL], RunTime(ms), 2000
[OVERALL], Throughput(ops/sec), 503.5
[TOTAL_GCs], Count, 0
[TOTAL_GC_TIME], Time(ms), 0
[TOTAL_GC_TIME_%], Time(%), 0.0
[READ], Operations, 997
[READ], AverageLatency(us), 500.19057171514544
[READ], MinLatency(us), 1
[READ], MaxLatency(us), 1000
[READ], 50thPercentileLatency(us), 500
[READ], 95thPercentileLatency(us), 950
[READ], 99thPercentileLatency(us), 990
[READ], Return=OK, 997
[READ], Return=NOT_FOUND, 3
[CLEANUP], Operations, 4
[CLEANUP], AverageLatency(us), 2501.0
[CLEANUP], MinLatency(us), 2500
[CLEANUP], MaxLatency(us), 2501
[CLEANUP], 50thPercentileLatency(us), 2501
[CLEANUP], 95thPercentileLatency(us), 2501
[CLEANUP], 99thPercentileLatency(us), 2501
[READ-FAILED], Operations, 3
[READ-FAILED], AverageLatency(us), 600.0
[READ-FAILED], MinLatency(us), 300
[READ-FAILED], MaxLatency(us), 900
[READ-FAILED], 50thPercentileLatency(us), 600
[READ-FAILED], 95thPercentileLatency(us), 900
[READ-FAILED], 99thPercentileLatency(us), 900
[UPDATE], Operations, 10
";
    let text = printed(&[], Exporter::Text);
    for (line, wanted) in text.lines().zip(expected.lines()) {
        let numbers = |line: &str| line.rsplit(", ").next().and_then(|n| n.parse::<f64>().ok());
        let name = |line: &str| line.rsplit_once(", ").map(|(name, _)| name.to_string());
        assert_eq!(name(line), name(wanted));
        let (found, expected) = (numbers(line).unwrap(), numbers(wanted).unwrap());
        // Histograms keep three digits.
        assert!((found - expected).abs() <= expected * 2e-3, "{line}, wanted {wanted}");
        assert_eq!(line.contains('.'), wanted.contains('.'), "{line}");
    }
    assert!(!text.contains("[READ-FAILED], Return"), "{text}");
}

#[test]
fn errors_have_their_own_names_where_that_is_asked_for() {
    for given in [("reportlatencyforeacherror", "true"), ("latencytrackederrors", "ERROR,NOT_FOUND")] {
        let text = printed(&[given], Exporter::Text);
        assert!(text.contains("[READ-NOT_FOUND], Operations, 3\n") && !text.contains("FAILED"), "{text}");
    }
    assert!(printed(&[("latencytrackederrors", "ERROR")], Exporter::Text).contains("[READ-FAILED]"));
}

#[test]
fn intended_times_count_from_when_operations_were_due() {
    let p99 = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("[{name}], MaxLatency(us), ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    };
    let op = printed(&[("measurement.interval", "op")], Exporter::Text);
    assert!(p99(&op, "UPDATE").abs_diff(40_000) < 50 && !op.contains("Intended"));
    let intended = printed(&[("measurement.interval", "intended")], Exporter::Text);
    assert!(p99(&intended, "UPDATE").abs_diff(45_000) < 50 && !intended.contains("Intended"));
    let both = printed(&[("measurement.interval", "both")], Exporter::Text);
    assert!(p99(&both, "UPDATE").abs_diff(40_000) < 50);
    assert!(p99(&both, "Intended-UPDATE").abs_diff(45_000) < 50);
    assert!(!both.contains("[Intended-READ], Return"), "{both}");
    assert_eq!(both.matches("CLEANUP], Operations, 4\n").count(), 2);
}

#[test]
fn other_measurements_have_their_lines() {
    let percentiles = printed(&[("hdrhistogram.percentiles", "1,2,3,11,50,99.9")], Exporter::Text);
    for name in ["1st", "2nd", "3rd", "11th", "50th", "99.9"] {
        assert!(percentiles.contains(&format!("[READ], {name}PercentileLatency(us), ")), "{percentiles}");
    }
    let histogram = printed(
        &[
            ("measurementtype", "histogram"),
            ("histogram.buckets", "30"),
            ("measurement.histogram.verbose", "true"),
        ],
        Exporter::Text,
    );
    for line in [
        "[READ], 95thPercentileLatency(us), 0\n",
        "[READ], LatencyVariance(us), ",
        "[READ], 0, 996\n[READ], 1, 1\n",
        "[READ], >30, 0\n",
        "[UPDATE], >30, 10\n",
    ] {
        assert!(histogram.contains(line), "{line:?}: {histogram}");
    }
    assert!(!histogram.contains("[UPDATE], 95th"), "beyond the last bucket YCSB prints no percentile");
    let both = printed(&[("measurementtype", "hdrhistogram+histogram")], Exporter::Text);
    assert!(
        both.contains("[HdrREAD], 99thPercentileLatency(us)")
            && both.contains("[BucketREAD], LatencyVariance")
    );
    let series = printed(&[("measurementtype", "timeseries")], Exporter::Text);
    assert!(series.contains("[READ], 0, 1.5\n[READ], 1000, 2.25\n"), "{series}");
}

#[test]
fn json_is_written_as_jacksons_printer_does() {
    let json = printed(&[], Exporter::Json);
    let first =
        "{\n  \"metric\" : \"OVERALL\",\n  \"measurement\" : \"RunTime(ms)\",\n  \"value\" : 2000\n} {\n";
    assert!(json.starts_with(first) && json.ends_with("\n}"), "{json}");
    let mut objects = serde_json::Deserializer::from_str(&json).into_iter::<serde_json::Value>();
    assert!(objects.all(|o| o.unwrap()["value"].is_number()));
    let array = printed(&[], Exporter::JsonArray);
    assert!(array.starts_with("[ {\n  \"metric\"") && array.ends_with("\n} ]"), "{array}");
    let list: Vec<serde_json::Value> = serde_json::from_str(&array).unwrap();
    assert_eq!(list.len(), printed(&[], Exporter::Text).lines().count());
}

#[test]
fn latencies_beyond_32_bits_are_kept() {
    // YCSB casts to int: 2147 seconds wrap to a negative number.
    let mut books = Books::closed();
    let took = Duration::from_secs(3000).as_micros() as u64;
    books.record(OpKind::Read, Outcome::Done, &timing(0, 0, took), 0);
    let series = series(&books, &settings(&[]));
    assert!(series[0].1.latencies.max() >= took);
}

#[test]
fn raw_operations_are_summed_up_exactly() {
    // OneMeasurementRaw of YCSB d9faaac: the figure at a share is the one at that place of all, sorted.
    let text = printed(&[("measurementtype", "raw")], Exporter::Text);
    let reads: Vec<&str> = text.lines().filter(|line| line.starts_with("[READ]")).collect();
    let expected = "[READ], Total Operations, 3
[READ], Below is a summary of latency in microseconds:, -1
[READ], Average, 20.0
[READ], Min, 10
[READ], Max, 30
[READ], p1, 10
[READ], p5, 10
[READ], p50, 20
[READ], p90, 30
[READ], p95, 30
[READ], p99, 30
[READ], p99.9, 30
[READ], p99.99, 30
[READ], Return=OK, 997
[READ], Return=NOT_FOUND, 3";
    assert_eq!(reads.join("\n"), expected);
    assert!(text.contains("[READ-NOT_FOUND], Total Operations, 1\n") && !text.contains("FAILED"), "{text}");
    let both = [("measurementtype", "hdrhistogram+raw"), ("measurement.raw.no_summary", "true")];
    let text = printed(&both, Exporter::Text);
    assert!(text.contains("[HdrREAD], 99thPercentileLatency(us), 99"), "{text}");
    assert!(text.contains("[RawREAD], Total Operations, 3\n[HdrCLEANUP]"), "{text}");
}
