//! From a file's text to a study, by what the text looks like.

use super::table::{Study, Table};
use super::{Mapping, hlog, record, rows_of_csv, texts};

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A trial of Tipover: `record.json`.
    Record,
    /// iostat -x.
    Iostat,
    /// YCSB's text exporter.
    Ycsb,
    /// go-ycsb's summary.
    GoYcsb,
    /// sysbench.
    Sysbench,
    /// fio's JSON.
    Fio,
    /// pgbench's summary.
    Pgbench,
    /// An HdrHistogram interval log.
    HistogramLog,
}

/// Recognises a text; `None` if only a mapping could say what it is.
pub fn detect(text: &str) -> Option<Format> {
    let begins = |start: &str| text.lines().any(|line| line.trim_start().starts_with(start));
    if text.contains("\"fio version\"") {
        Some(Format::Fio)
    } else if text.contains("\"format\"") && text.contains("\"experiment\"") && text.contains("\"verdict\"") {
        Some(Format::Record)
    } else if begins("[OVERALL],") {
        Some(Format::Ycsb)
    } else if text.contains(" - Takes(s):") {
        Some(Format::GoYcsb)
    } else if begins("sysbench ") || text.contains("total number of events") {
        Some(Format::Sysbench)
    } else if begins("number of transactions actually processed") {
        Some(Format::Pgbench)
    } else if begins("#[Histogram log format") || begins("#[StartTime:") && text.contains(",HISTFAAA") {
        Some(Format::HistogramLog)
    } else if begins("Device") && text.contains("%util") {
        Some(Format::Iostat)
    } else {
        None
    }
}

/// Reads a text, with its mapping if it has one. `name` says where it came from.
///
/// # Errors
/// When the text is of no known format, or does not fit its mapping.
pub fn read(name: &str, text: &str, mapping: Option<&Mapping>) -> Result<Study, String> {
    if let Some(mapping) = mapping {
        let json = if name.ends_with(".csv") {
            rows_of_csv(text)
        } else {
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?
        };
        return mapping.apply(&json);
    }
    let log = name.ends_with(".hlog") || name.ends_with(".hdr");
    let format = detect(text).or(log.then_some(Format::HistogramLog)).ok_or(
        "of no known format (record.json, iostat -x, YCSB, go-ycsb, sysbench, fio JSON, pgbench, HdrHistogram log): \
         a JSON or CSV table needs a NAME.mapping.toml beside it",
    )?;
    let table = match format {
        Format::Record => {
            return Ok(record::of_record(&crate::record::read(text).map_err(|error| error.to_string())?));
        }
        Format::Iostat => texts::iostat(text),
        Format::Ycsb => texts::ycsb(text),
        Format::GoYcsb => texts::go_ycsb(text),
        Format::Sysbench => texts::sysbench(text),
        Format::Pgbench => texts::pgbench(text),
        Format::HistogramLog => {
            let (table, damaged) = hlog::hlog(text);
            let empty = table.rows.is_empty() && damaged.is_empty();
            let left_out = empty.then(|| "holds no histograms".to_string()).into_iter().collect();
            return Ok(Study { damaged, left_out, ..of_table(name, table) }.without_idle_rows());
        }
        Format::Fio => texts::fio(text)?,
    };
    let study = of_table(name, table).without_idle_rows();
    if study.tables.iter().flat_map(|table| &table.rows).all(|row| row.values.is_empty()) {
        return Err("holds no figures".into());
    }
    Ok(study)
}

fn of_table(name: &str, table: Table) -> Study {
    Study { name: name.into(), source: table.name.clone(), tables: vec![table], ..Study::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Quantity, audit};
    use proptest::prelude::*;

    const IOSTAT: &str = "\
Device:         rrqm/s   wrqm/s     r/s     w/s    rMB/s    wMB/s avgrq-sz avgqu-sz   await  svctm  %util
xvdk              0.00     0.00 1084.50    0.00    27.33     0.00    51.61     3.72    3.43   0.91  99.20
xvdl              0.00     0.00 1542.50    0.00    36.29     0.00    48.18    33.20   91.29   0.65 100.00
xvdm              0.00     0.00    0.00    0.00     0.00     0.00     0.00     0.00    0.00   0.00   0.00
";
    const YCSB: &str = "\
Command line: -db x -threads 16 -t
[OVERALL], RunTime(ms), 10110
[OVERALL], Throughput(ops/sec), 98911.96834817013
[READ], Operations, 500000
[READ], AverageLatency(us), 150.5
[READ], MinLatency(us), 40
[READ], MaxLatency(us), 90000
[READ], 95thPercentileLatency(us), 300
[READ], 99thPercentileLatency(us), 450
[READ], Return=OK, 500000
[UPDATE], Operations, 500000
[UPDATE], AverageLatency(us), 160.5
[UPDATE], MinLatency(us), 45
[UPDATE], MaxLatency(us), 430
[UPDATE], 95thPercentileLatency(us), 310
[UPDATE], 99thPercentileLatency(us), 460
[CLEANUP], Operations, 16
";
    const GO_YCSB: &str = "READ   - Takes(s): 10.0, Count: 98989, OPS: 9898.9, Avg(us): 98, Min(us): 12, Max(us): 1234, \
                           50th(us): 90, 90th(us): 120, 95th(us): 150, 99th(us): 1900, 99.9th(us): 1000\n";
    const SYSBENCH: &str = "\
sysbench 1.0.20 (using system LuaJIT 2.1.0)
Number of threads: 4
Block size 16KiB
File operations:
    reads/s:                      1000.00
    writes/s:                     500.00
Throughput:
    read, MiB/s:                  15.63
    written, MiB/s:               78.10
General statistics:
    total time:                          10.0012s
    total number of events:              15003
Latency (ms):
         min:                                    0.00
         avg:                                    2.66
         max:                                   20.53
         95th percentile:                        8.43
";
    const SYSBENCH_11: &str = "\
sysbench 1.1.0
Number of threads: 4
Block size 16KiB
Throughput:
         read:  IOPS=1000.00 15.63 MiB/s (16.38 MB/s)
         write: IOPS=500.00 7.81 MiB/s (8.19 MB/s)
    time elapsed:                        10.0s
    total number of events:              15003
";
    const PGBENCH: &str = "\
number of clients: 10
duration: 30 s
number of transactions actually processed: 243000
latency average = 1.234 ms
tps = 81000.5 (without initial connection time)
";
    const FIO: &str = r#"warning { {"fio version":"fio-3.33","jobs":[{"jobname":"a","read":{"io_bytes":40960000,"bw_bytes":4096000,
        "iops":1000.0,"runtime":10000,"total_ios":10000,"lat_ns":{"min":1000,"max":9000000,"mean":1000000.0},
        "clat_ns":{"min":1000,"max":9000000,"mean":990000.0,"N":10000,"percentile":{"50.000000":900000,"99.000000":800000}}},
        "write":{"total_ios":0}}]}"#;

    fn broken(name: &str, text: &str) -> Vec<(String, String)> {
        let study = read(name, text, None).unwrap();
        audit(&study).findings.into_iter().map(|finding| (finding.place, finding.law)).collect()
    }

    #[test]
    fn one_lie_in_each_format_is_the_only_finding() {
        let only = |text: &str| {
            let found = broken("x", text);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].1.clone()
        };
        assert_eq!(only(IOSTAT), "Little's law at the device");
        assert_eq!(only(GO_YCSB), "Order of latencies");
        assert_eq!(only(SYSBENCH), "Bandwidth law");
        // A p99 below the median also pulls the mean out of its bounds.
        let fio = broken("x", &FIO[FIO.find("{ {").unwrap() + 2..]);
        assert_eq!(fio.len(), 2, "{fio:?}");
        assert!(fio.iter().all(|(place, _)| place == "fio, a read, completion"), "{fio:?}");
        assert_eq!(only(YCSB), "Order of latencies");
        assert!(broken("x", SYSBENCH_11).is_empty());
        let tenfold = broken("x", PGBENCH);
        assert!(tenfold.iter().any(|(_, law)| law == "Little's bound"), "{tenfold:?}");
        assert!(tenfold.iter().any(|(_, law)| law == "Counting"), "{tenfold:?}");
    }

    #[test]
    fn what_is_read_is_what_was_printed() {
        let study = read("y", YCSB, None).unwrap();
        let overall = study.tables[0].rows.iter().find(|row| row.name == "OVERALL").unwrap();
        assert_eq!(overall.span(Quantity::Samples).unwrap().middle(), 1e6);
        assert!((overall.span(Quantity::Mean).unwrap().middle() - 155.5e-6).abs() < 1e-9);
        assert_eq!(read("i", IOSTAT, None).unwrap().tables[0].rows.len(), 2, "an idle disk says nothing");
        assert!(read("nothing", "hello", None).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(noise in ".{0,80}", cut in 0usize..900, at in 0usize..900, which in 0usize..7) {
            let text = [IOSTAT, YCSB, GO_YCSB, SYSBENCH, SYSBENCH_11, PGBENCH, FIO][which];
            let (cut, at) = (cut.min(text.len()), at.min(text.len()));
            let torn = format!("{}{noise}{}", &text[..cut], &text[at..]);
            if let Ok(study) = read("x", &torn, None) {
                let _ = audit(&study);
            }
            for reader in [texts::iostat, texts::ycsb, texts::go_ycsb, texts::sysbench, texts::pgbench] {
                let _ = reader(&torn);
            }
            let _ = texts::fio(&torn);
            let _ = rows_of_csv(&torn);
            let _ = Mapping::parse(&torn);
        }
    }
}
