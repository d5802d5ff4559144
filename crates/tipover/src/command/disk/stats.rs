//! `disk stats`: iostat's columns, from the device's own counters.

use super::find;
use crate::command::{BadInput, Ending};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tipover_core::device::{Counters, Rates};
use tipover_core::units::span;

/// What people should know before they read svctm.
const SVCTM_WARNING: &str = "svctm is utilization over throughput: on a device that serves several requests at \
                             once it falls with concurrency and is no service time; iostat dropped it for that";

/// Show a disk's iostat columns, exact by construction
///
/// The first row is since the mount, then one for each interval. Counts, await and queue come from the
/// device's own counters, so that arrival, completion and time in queue agree exactly (Little's law holds in
/// every row). The queue counts flushes too.
#[derive(Debug, Args)]
pub struct Stats {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Length of an interval
    #[arg(long, default_value = "1 s", value_parser = |t: &str| span::parse(t))]
    interval: Duration,

    /// How many intervals; 0 shows only what was since the mount
    #[arg(long, default_value_t = 1)]
    count: u32,

    /// Show svctm too, with its warning
    #[arg(long)]
    svctm: bool,
}

impl Stats {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        if self.interval.is_zero() {
            return Err(BadInput("--interval must be longer than nothing".into()).into());
        }
        let disk = find(&self.folder)?;
        let mut before = disk.began();
        let mut rows = Vec::new();
        if !json {
            println!("{}", header(self.svctm));
        }
        for n in 0..=self.count {
            if n > 0 {
                std::thread::sleep(self.interval);
            }
            let now = disk.counters()?;
            if let Some(rates) = now.rates_since(&before) {
                match json {
                    true => rows.push(self.value(&now, &rates, n == 0)),
                    false => println!("{}", self.row(&now, &rates)),
                }
            }
            before = now;
        }
        if json {
            let warning = self.svctm.then_some(SVCTM_WARNING);
            let answer = json!({"spec": disk.spec().to_string(), "rows": rows, "warning": warning});
            println!("{}", serde_json::to_string_pretty(&answer)?);
        } else if self.svctm {
            println!("{SVCTM_WARNING}");
        }
        Ok(Ending::Held)
    }

    fn value(&self, counters: &Counters, rates: &Rates, since_mount: bool) -> Value {
        let mut value = json!({"since_mount": since_mount, "rates": rates, "counters": counters});
        if self.svctm {
            value["svctm_ns"] = svctm(rates).map(|s| (s * 1e9) as u64).into();
        }
        value
    }

    fn row(&self, counters: &Counters, rates: &Rates) -> String {
        let milliseconds =
            |time: Option<Duration>| time.map_or("-".into(), |t| format!("{:.2}", t.as_secs_f64() * 1e3));
        let mut row = format!(
            "{:>9} {:>9.1} {:>9.1} {:>8.1} {:>8.2} {:>8.2} {:>9} {:>8} {:>8} {:>8} {:>7.2} {:>6.1}",
            span::rounded(rates.window),
            rates.reads.0,
            rates.writes.0,
            rates.flushes.0,
            rates.read_bandwidth.0 / 1e6,
            rates.write_bandwidth.0 / 1e6,
            rates.request_size.map_or("-".into(), |size| format!("{:.1}", size.0 as f64 / 1024.0)),
            milliseconds(rates.read_await),
            milliseconds(rates.write_await),
            milliseconds(rates.flush_await),
            rates.queue,
            rates.utilization.0 * 100.0,
        );
        if self.svctm {
            row += &format!(" {:>7}", svctm(rates).map_or("-".into(), |s| format!("{:.2}", s * 1e3)));
        }
        if let Some(credits) = counters.credits {
            row += &format!("  {credits} credits");
        }
        row
    }
}

/// As iostat reckoned it: time busy for each read or write, in seconds.
fn svctm(rates: &Rates) -> Option<f64> {
    let requests = rates.requests().0;
    (requests > 0.0).then(|| rates.utilization.0 / requests)
}

fn header(svctm: bool) -> String {
    let last = if svctm { "   svctm" } else { "" };
    format!(
        "{:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7} {:>6}{last}",
        "window",
        "r/s",
        "w/s",
        "f/s",
        "rMB/s",
        "wMB/s",
        "KiB/req",
        "r_await",
        "w_await",
        "f_await",
        "aqu-sz",
        "%util"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_under_their_headings() {
        let stats = Stats { folder: "/x".into(), interval: Duration::from_secs(1), count: 1, svctm: true };
        let counters: Counters = serde_json::from_value(json!({
            "at_ns": 1_000_000_000u64,
            "read": {"requests": 100, "bytes": 409_600, "residence_ns": 700_000_000u64},
            "write": {"requests": 0, "bytes": 0, "residence_ns": 0},
            "flush": {"requests": 0, "bytes": 0, "residence_ns": 0},
            "discard": {"requests": 0, "bytes": 0, "residence_ns": 0},
            "in_flight": 0, "busy_ns": 500_000_000u64, "queue_time_ns": 700_000_000u64, "credits": 7,
        }))
        .unwrap();
        let rates = counters.rates_since(&Counters::default()).unwrap();
        let row = stats.row(&counters, &rates);
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            fields,
            "1.00 s 100.0 0.0 0.0 0.41 0.00 4.0 7.00 - - 0.70 50.0 5.00 7 credits"
                .split(' ')
                .collect::<Vec<_>>()
        );
        assert_eq!(header(true).len(), row.split("  7 credits").next().unwrap().len());
        assert!(SVCTM_WARNING.contains("no service time"));
    }
}
