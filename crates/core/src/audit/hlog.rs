//! HdrHistogram interval logs (`.hlog`, and the `.hdr` files of YCSB), read as tables.

use super::quantity::Quantity;
use super::table::{Row, Table};
use crate::measure;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use std::collections::BTreeMap;

/// Values are nanoseconds, as HdrHistogram's own tools take them to be.
const NS: f64 = 1e-9;

#[derive(Default)]
struct Tagged {
    all: Option<Histogram<u64>>,
    seconds: f64,
    lines: u32,
    /// Intervals whose printed maximum is not that of their histogram: first line's number, both in the log's
    /// unit.
    differ: Vec<(u32, f64, f64)>,
}

/// A row for each tag, its histograms merged, and one for each interval whose printed maximum is not the
/// maximum of its histogram. Also every line that is damaged, as sentences; the others are read all the same.
pub(super) fn hlog(text: &str) -> (Table, Vec<String>) {
    let mut tags: BTreeMap<String, Tagged> = BTreeMap::new();
    let mut damaged = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Err(why) = of_line(number, line, &mut tags) {
            damaged.push(format!("line {number}: {why}"));
        }
    }
    let rows = tags.iter().flat_map(|(tag, tagged)| rows(tag, tagged)).collect();
    (Table { name: "HdrHistogram log".into(), rows }, damaged)
}

/// Adds one line to its tag, if it is an interval. The library reads whole logs and ends at the first line
/// that it cannot read, so it gets them one by one.
fn of_line(number: u32, line: &str, tags: &mut BTreeMap<String, Tagged>) -> Result<(), String> {
    if line.contains(char::REPLACEMENT_CHARACTER) {
        return Err("bytes that are no text".into());
    }
    let ended = format!("{line}\n");
    let interval = match IntervalLogIterator::new(ended.as_bytes()).next() {
        Some(Ok(LogEntry::Interval(interval))) => interval,
        Some(Ok(_)) => return Ok(()),
        // A comment, or the names of the columns; one that holds a histogram was an entry once.
        None if !line.contains("HISTFAA") => return Ok(()),
        Some(Err(_)) if line.trim().is_empty() => return Ok(()),
        None | Some(Err(_)) => return Err("no entry of a log".into()),
    };
    let histogram = measure::decode(interval.encoded_histogram())?;
    let tagged = tags.entry(interval.tag().map_or("", |tag| tag.as_str()).to_string()).or_default();
    tagged.seconds += interval.duration().as_secs_f64();
    tagged.lines += 1;
    let highest = histogram.max() as f64;
    if differs(interval.max(), highest) {
        tagged.differ.push((number, interval.max(), highest));
    }
    match &mut tagged.all {
        Some(all) => all.add(&histogram).map_err(|error| format!("{error:?}"))?,
        none => *none = Some(histogram),
    }
    Ok(())
}

/// Whether a printed maximum is not the histogram's under any of the divisors that writers use (1, 10³, 10⁶,
/// 10⁹), where a bucket is up to a thousandth wide.
fn differs(printed: f64, highest: f64) -> bool {
    let near = |divisor: f64| (printed * divisor - highest).abs() <= 0.002 * highest + 0.0005 * divisor;
    printed > 0.0 && highest > 0.0 && ![1.0, 1e3, 1e6, 1e9].into_iter().any(near)
}

fn rows(tag: &str, tagged: &Tagged) -> Vec<Row> {
    let Some(all) = tagged.all.as_ref().filter(|all| !all.is_empty()) else { return vec![] };
    let mut row = Row::new(if tag.is_empty() { "all intervals" } else { tag });
    row.put(Quantity::Samples, all.len() as f64);
    if tagged.seconds > 0.0 {
        row.put(Quantity::Duration, tagged.seconds);
    }
    row.put(Quantity::Mean, all.mean() * NS);
    put_ordered(&mut row, (all.len(), all.min(), all.max()), |quantile| all.value_at_quantile(quantile));
    let mut rows = vec![row];
    for (number, printed, highest) in &tagged.differ {
        // As what it claims to be: a maximum below the histogram's own highest value, or a highest value that
        // nothing in the histogram reached.
        let mut row = Row::new(format!("{tag} line {number}: printed maximum and highest value"));
        row.put(Quantity::Maximum, printed.min(*highest) * NS);
        row.put(Quantity::Percentile(99_900), printed.max(*highest) * NS);
        rows.push(row);
    }
    rows
}

/// Least and greatest latency of a number of operations, and the percentiles between them.
pub(super) fn put_ordered(row: &mut Row, (len, least, greatest): (u64, u64, u64), at: impl Fn(f64) -> u64) {
    row.put(Quantity::Minimum, least as f64 * NS);
    row.put(Quantity::Maximum, greatest as f64 * NS);
    for thousandths in [50_000, 90_000, 95_000, 99_000, 99_900] {
        let quantile = f64::from(thousandths) / 100_000.0;
        // We choose what to read here, and choose nothing that would be a matter of luck.
        if len as f64 * (1.0 - quantile) >= 10.0 {
            row.put(Quantity::Percentile(thousandths), at(quantile) as f64 * NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{audit, read};
    use std::fmt::Write;

    fn log(scale: f64) -> String {
        let mut text = String::from("#[Histogram log format version 1.3]\n");
        for second in 0..3u32 {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
            for n in 1..=2_000u64 {
                histogram.record(n * 1_000 * u64::from(second + 1)).unwrap();
            }
            let max = histogram.max() as f64 / 1e6 * scale;
            writeln!(text, "Tag=READ,{second}.000,1.000,{max:.3},{}", measure::encode(&histogram)).unwrap();
        }
        text
    }

    #[test]
    fn intervals_are_merged_and_a_sound_log_is_acquitted() {
        let study = read("latency.hlog", &log(1.0), None).unwrap();
        let row = &study.tables[0].rows[0];
        assert_eq!((row.name.as_str(), study.tables[0].rows.len()), ("READ", 1));
        assert_eq!(row.span(Quantity::Samples).unwrap().middle(), 6_000.0);
        assert_eq!(row.span(Quantity::Duration).unwrap().middle(), 3.0);
        let max = row.span(Quantity::Maximum).unwrap().middle();
        assert!((max - 6e-3).abs() < 1e-5, "{max}");
        assert_eq!(audit(&study).findings, vec![]);
    }

    #[test]
    fn a_printed_maximum_that_is_not_the_histograms_is_found() {
        let study = read("latency.hlog", &log(0.5), None).unwrap();
        let findings = audit(&study).findings;
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.law == "Order of latencies"), "{findings:?}");
    }

    #[test]
    fn a_torn_log_keeps_what_is_whole() {
        let whole = log(1.0);
        let study = read("latency.hlog", &whole[..whole.len() - 40], None).unwrap();
        assert_eq!(study.tables[0].rows[0].span(Quantity::Samples).unwrap().middle(), 4_000.0);
        assert_eq!(study.damaged.len(), 1, "{:?}", study.damaged);
        assert!(audit(&study).findings.iter().any(|f| f.law == "Whole file" && f.numbers.contains("line 4")));
    }

    /// Every byte of a sound log is changed in three ways: what was read from the line that it stands in is
    /// then the same as before, is called damaged, or is read under another tag, time or maximum and shown as
    /// that. No histogram is lost or changed in silence.
    #[test]
    fn no_damaged_byte_loses_a_histogram_in_silence() {
        let whole = log(1.0);
        let (sound, none) = hlog(&whole);
        assert_eq!((sound.rows.len(), none.len()), (1, 0));
        let samples = |table: &Table| -> f64 {
            table.rows.iter().filter_map(|row| row.span(Quantity::Samples)).map(|s| s.middle()).sum()
        };
        let mut silent = 0;
        for at in 0..whole.len() {
            for damage in [|byte: u8| byte ^ 1, |byte: u8| byte ^ 0x80, |_: u8| b'#'] {
                let mut bytes = whole.clone().into_bytes();
                bytes[at] = damage(bytes[at]);
                if bytes[at] == whole.as_bytes()[at] {
                    continue;
                }
                let (table, damaged) = hlog(&String::from_utf8_lossy(&bytes));
                silent += u32::from(damaged.is_empty());
                let context =
                    String::from_utf8_lossy(&bytes[at.saturating_sub(10)..(at + 10).min(bytes.len())])
                        .into_owned();
                assert!(!damaged.is_empty() || samples(&table) == samples(&sound), "byte {at}: {context:?}");
                let kept =
                    |q: Quantity| table.rows.iter().find_map(|row| row.span(q)) == sound.rows[0].span(q);
                let same = [Quantity::Mean, Quantity::Percentile(99_000), Quantity::Minimum].map(kept);
                assert!(
                    !damaged.is_empty() || table.rows.len() > 1 || same == [true; 3],
                    "byte {at}: {context:?}"
                );
            }
        }
        // Comments and times can be changed into others that are as good.
        assert!(silent < whole.len() as u32 / 4, "{silent} of {}", 3 * whole.len());
        assert_eq!(
            hlog("#[Histogram log format version 1.3]\n\n").1,
            Vec::<String>::new(),
            "nothing is no damage"
        );
    }
}
