//! What YCSB prints at the end, line for line, from our books.

use super::java;
use super::raw::Raw;
use super::settings::{Exporter, From, Measurement, Settings};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use tipover_core::measure::{Book, Books, Latencies};
use tipover_core::op::{Failure, OpKind};

/// A figure: `[READ], Operations, 5`.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub metric: String,
    pub name: String,
    pub value: Number,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Whole(i64),
    Double(f64),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Whole(n) => write!(f, "{n}"),
            Number::Double(x) => f.write_str(&java::double(*x)),
        }
    }
}

/// YCSB's word for why something was not done.
pub fn status(failure: Failure) -> &'static str {
    match failure {
        Failure::NotFound => "NOT_FOUND",
        Failure::Corrupt => "UNEXPECTED_STATE",
        Failure::Unsupported => "NOT_IMPLEMENTED",
        Failure::Unavailable => "SERVICE_UNAVAILABLE",
        _ => "ERROR",
    }
}

/// What one of YCSB's measurements holds: latencies in microseconds, and how operations ended.
#[derive(Debug, Clone)]
pub struct Series {
    pub latencies: Histogram<u64>,
    pub returns: Vec<(&'static str, u64)>,
}

/// In microseconds, as YCSB records: a fraction is cut off.
pub fn microseconds(nanoseconds: &Histogram<u64>) -> Histogram<u64> {
    let mut latencies = Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("constant bounds are valid");
    for bucket in nanoseconds.iter_recorded() {
        // Buckets wider than a microsecond count with their middle, or rounding twice would only go upwards.
        let most = bucket.value_iterated_to();
        let wide = nanoseconds.equivalent_range(most) > 1000;
        let value = if wide { nanoseconds.median_equivalent(most) } else { most };
        latencies.saturating_record_n(value / 1000, bucket.count_at_value());
    }
    latencies
}

/// YCSB's word for an operation.
pub fn name_of(kind: OpKind) -> &'static str {
    if kind == OpKind::InsertMany { OpKind::Insert.name() } else { kind.name() }
}

fn returns(book: &Book) -> Vec<(&'static str, u64)> {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (failure, count) in book.refused().iter().chain(book.unknown()) {
        *counts.entry(status(*failure)).or_default() += count;
    }
    let done = Some(("OK", book.done())).filter(|(_, count)| *count > 0);
    done.into_iter().chain(counts).collect()
}

/// The measurements of `books` under YCSB's names, in YCSB's order.
pub fn series(books: &Books, settings: &Settings) -> Vec<(String, Series)> {
    let mut all = Vec::new();
    /// What stands before a name, and which of the three times is under it.
    type Times = (&'static str, fn(&Latencies) -> &Histogram<u64>);
    let from: &[Times] = match settings.from {
        From::Began => &[("", Latencies::service)],
        From::Due => &[("", Latencies::residence)],
        From::Both => &[("", Latencies::service), ("Intended-", Latencies::residence)],
    };
    for (before, of) in from {
        let mut named: Vec<(String, Series)> = Vec::new();
        for kind in books.kinds() {
            let book = books.of(kind).expect("a kind that is there");
            let name = name_of(kind).to_string();
            // YCSB counts ends of what it sends itself, once; a read-modify-write is two of those.
            let counts = before.is_empty() && kind != OpKind::ReadModifyWrite;
            let returns = if counts { returns(&book) } else { vec![] };
            if book.done() > 0 || counts {
                named.push((name.clone(), Series { latencies: microseconds(of(book.latencies())), returns }));
            }
            if let Some(failed) = book.failed_latencies() {
                let latencies = microseconds(of(failed));
                named.push((failed_name(&name, &book, settings), Series { latencies, returns: vec![] }));
            }
        }
        java::map_order(&mut named);
        all.extend(named.into_iter().map(|(name, series)| (format!("{before}{name}"), series)));
    }
    all
}

/// `READ-FAILED`, or `READ-NOT_FOUND` where that was asked for and all failures are of that kind: latencies
/// of different failures are kept together.
fn failed_name(name: &str, book: &Book, settings: &Settings) -> String {
    let mut kinds: Vec<&str> =
        book.refused().keys().chain(book.unknown().keys()).map(|f| status(*f)).collect();
    kinds.dedup();
    match kinds.as_slice() {
        [only] if settings.each_error || settings.tracked_errors.iter().any(|e| e == only) => {
            format!("{name}-{only}")
        }
        _ => format!("{name}-FAILED"),
    }
}

/// What a whole run comes to.
pub struct Totals<'a> {
    /// From the first operation to the last.
    pub runtime_ms: u64,
    /// Operations that were done; records of batches.
    pub done: u64,
    pub books: &'a Books,
    /// Times of the sessions' ends, in nanoseconds.
    pub cleanup: &'a Histogram<u64>,
    /// Of time series: for each measurement, when and the mean there.
    pub points: &'a BTreeMap<String, Vec<(u64, f64)>>,
    /// Single operations, where they were kept.
    pub raw: &'a Raw,
}

/// Everything that is printed, in its order.
pub fn lines(totals: &Totals<'_>, settings: &Settings) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |metric: &str, name: &str, value| {
        lines.push(Line { metric: metric.into(), name: name.into(), value });
    };
    let (whole, double) = (|n: u64| Number::Whole(n as i64), Number::Double);
    line("OVERALL", "RunTime(ms)", whole(totals.runtime_ms));
    let throughput = totals.done as f64 * 1000.0 / totals.runtime_ms.max(1) as f64;
    line("OVERALL", "Throughput(ops/sec)", double(throughput));
    // No garbage is collected here. People's parsers expect the lines.
    line("TOTAL_GCs", "Count", whole(0));
    line("TOTAL_GC_TIME", "Time(ms)", whole(0));
    line("TOTAL_GC_TIME_%", "Time(%)", double(0.0));
    let mut all = series(totals.books, settings);
    let cleanup = Series { latencies: microseconds(totals.cleanup), returns: vec![] };
    let plain = all.iter().take_while(|(name, _)| !name.starts_with("Intended-")).count();
    all.insert(plain, ("CLEANUP".into(), cleanup.clone()));
    java::map_order(&mut all[..=plain]);
    if settings.from == From::Both {
        all.push(("Intended-CLEANUP".into(), cleanup));
        // YCSB's second map holds the plain names.
        for (name, _) in &mut all[plain + 1..] {
            *name = name.trim_start_matches("Intended-").to_string();
        }
        java::map_order(&mut all[plain + 1..]);
        for (name, _) in &mut all[plain + 1..] {
            *name = format!("Intended-{name}");
        }
    }
    for (name, series) in &all {
        match settings.measurement {
            Measurement::Hdr => hdr(name, series, settings, &mut line),
            Measurement::Histogram => histogram(name, series, settings, &mut line),
            Measurement::HdrAndHistogram => {
                // The ends are counted by the measurement around both, which exports nothing itself.
                hdr(&format!("Hdr{name}"), series, settings, &mut line);
                let silent = Series { returns: vec![], ..series.clone() };
                histogram(&format!("Bucket{name}"), &silent, settings, &mut line);
            }
            Measurement::HdrAndRaw => {
                hdr(&format!("Hdr{name}"), series, settings, &mut line);
                for name in totals.raw.apart(name) {
                    totals.raw.lines(&name, &format!("Raw{name}"), settings.raw_summary, &mut line);
                }
            }
            // go-ycsb's have no figures beside them.
            Measurement::Raw | Measurement::Csv => {
                for name in totals.raw.apart(name) {
                    totals.raw.lines(&name, &name, settings.raw_summary, &mut line);
                }
                series.returns.iter().for_each(|(s, n)| line(name, &format!("Return={s}"), whole(*n)));
            }
            Measurement::TimeSeries => {
                summary(name, series, &mut line);
                series.returns.iter().for_each(|(s, n)| line(name, &format!("Return={s}"), whole(*n)));
                for (ms, mean) in totals.points.get(name).into_iter().flatten() {
                    line(name, &ms.to_string(), double(*mean));
                }
            }
        }
    }
    lines
}

type Print<'a> = &'a mut dyn FnMut(&str, &str, Number);

fn summary(name: &str, series: &Series, line: Print<'_>) {
    let latencies = &series.latencies;
    line(name, "Operations", Number::Whole(latencies.len() as i64));
    line(name, "AverageLatency(us)", Number::Double(latencies.mean()));
    line(
        name,
        "MinLatency(us)",
        Number::Whole(if latencies.is_empty() { 0 } else { latencies.min() } as i64),
    );
    line(name, "MaxLatency(us)", Number::Whole(latencies.max() as i64));
}

fn hdr(name: &str, series: &Series, settings: &Settings, line: Print<'_>) {
    summary(name, series, line);
    for percentile in &settings.percentiles {
        let value = series.latencies.value_at_percentile(*percentile);
        line(name, &format!("{}PercentileLatency(us)", ordinal(*percentile)), Number::Whole(value as i64));
    }
    for (status, count) in &series.returns {
        line(name, &format!("Return={status}"), Number::Whole(*count as i64));
    }
    if settings.verbose {
        for bucket in series.latencies.iter_recorded() {
            let count = bucket.count_at_value() as f64;
            line(name, &bucket.value_iterated_to().to_string(), Number::Double(count));
        }
    }
}

/// YCSB's own histogram, of buckets of a millisecond.
fn histogram(name: &str, series: &Series, settings: &Settings, line: Print<'_>) {
    let latencies = &series.latencies;
    let operations = latencies.len();
    let mut buckets = vec![0u64; settings.buckets];
    let mut beyond = 0;
    for bucket in latencies.iter_recorded() {
        let ms = (bucket.value_iterated_to() / 1000) as usize;
        *buckets.get_mut(ms).unwrap_or(&mut beyond) += bucket.count_at_value();
    }
    line(name, "Operations", Number::Whole(operations as i64));
    line(name, "AverageLatency(us)", Number::Double(latencies.mean()));
    line(name, "LatencyVariance(us)", Number::Double(latencies.stdev().powi(2)));
    line(
        name,
        "MinLatency(us)",
        Number::Whole(if latencies.is_empty() { 0 } else { latencies.min() } as i64),
    );
    line(name, "MaxLatency(us)", Number::Whole(latencies.max() as i64));
    let mut below = 0;
    let mut wanted = [(0.95, "95th"), (0.99, "99th")].into_iter().peekable();
    for (ms, count) in buckets.iter().enumerate() {
        below += count;
        while let Some((_, percentile)) =
            wanted.next_if(|(share, _)| operations > 0 && below as f64 / operations as f64 >= *share)
        {
            line(name, &format!("{percentile}PercentileLatency(us)"), Number::Whole(ms as i64 * 1000));
        }
    }
    for (status, count) in &series.returns {
        line(name, &format!("Return={status}"), Number::Whole(*count as i64));
    }
    if settings.verbose {
        for (ms, count) in buckets.iter().enumerate() {
            line(name, &ms.to_string(), Number::Whole(*count as i64));
        }
        line(name, &format!(">{}", settings.buckets), Number::Whole(beyond as i64));
    }
}

/// `95th`, `1st`, and `99.9` as it is.
fn ordinal(percentile: f64) -> String {
    if percentile.fract() != 0.0 {
        return java::double(percentile);
    }
    let whole = percentile as u32;
    let suffix = match (whole % 100, whole % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{whole}{suffix}")
}

/// The lines as `exporter` writes them.
pub fn print(lines: &[Line], exporter: Exporter) -> String {
    if exporter == Exporter::Text {
        return lines.iter().map(|l| format!("[{}], {}, {}\n", l.metric, l.name, l.value)).collect();
    }
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let value = |number: &Number| match number {
        Number::Double(x) if !x.is_finite() => quoted(&number.to_string()),
        number => number.to_string(),
    };
    let objects = lines.iter().map(|l| {
        let (metric, name) = (quoted(&l.metric), quoted(&l.name));
        format!(
            "{{\n  \"metric\" : {metric},\n  \"measurement\" : {name},\n  \"value\" : {}\n}}",
            value(&l.value)
        )
    });
    let objects: Vec<String> = objects.collect();
    match exporter {
        Exporter::JsonArray => format!("[ {} ]", objects.join(", ")),
        // Objects one after the other, not a list: that is what YCSB writes.
        _ => objects.join(" "),
    }
}

#[cfg(test)]
mod tests;
