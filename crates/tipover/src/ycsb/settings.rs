//! The properties of YCSB's client: how it is driven, and how its figures are printed.

use std::path::PathBuf;
use std::time::Duration;
use tipover_core::workload::Properties;

/// How the figures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exporter {
    Text,
    Json,
    JsonArray,
}

/// Which figures there are for each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurement {
    Hdr,
    Histogram,
    HdrAndHistogram,
    TimeSeries,
}

/// From when latencies count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// When it was sent.
    Began,
    /// When it was due.
    Due,
    Both,
}

/// What the client's properties say.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub threads: u32,
    /// Operations per second; 0 for a closed loop.
    pub target: f64,
    pub most_time: Option<Duration>,
    pub status: Option<Duration>,
    pub label: String,
    pub exporter: Exporter,
    pub export_file: Option<PathBuf>,
    pub measurement: Measurement,
    pub from: From,
    pub percentiles: Vec<f64>,
    pub buckets: usize,
    pub verbose: bool,
    pub granularity: Duration,
    /// Where `.hdr` files go: what stands before an operation's name.
    pub hdr: Option<String>,
    pub each_error: bool,
    pub tracked_errors: Vec<String>,
    pub timeout: Duration,
    pub notices: Vec<String>,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// What cannot be read, with its place.
    pub fn of(p: &Properties) -> Result<Settings, String> {
        let mut notices = Vec::new();
        let types = [
            "hdrhistogram",
            "histogram",
            "hdrhistogram+histogram",
            "hdrhistogram+raw",
            "timeseries",
            "raw",
            "csv",
        ];
        let measurement = match p.choice("measurementtype", &types)? {
            "histogram" => Measurement::Histogram,
            "hdrhistogram+histogram" => Measurement::HdrAndHistogram,
            "timeseries" => Measurement::TimeSeries,
            "hdrhistogram" => Measurement::Hdr,
            other => {
                notices.push(format!(
                    "measurementtype = {other}: single operations are not kept, their histogram is printed; \
                     hdrhistogram.fileoutput = true writes it to a file"
                ));
                Measurement::Hdr
            }
        };
        let from = match p.choice("measurement.interval", &["op", "intended", "both"])? {
            "op" => From::Began,
            "intended" => From::Due,
            _ => From::Both,
        };
        let exporter = match p.get("exporter").and_then(|class| class.rsplit('.').next()) {
            None | Some("TextMeasurementsExporter") => Exporter::Text,
            Some("JSONMeasurementsExporter") => Exporter::Json,
            Some("JSONArrayMeasurementsExporter") => Exporter::JsonArray,
            Some(other) => {
                notices.push(format!("Could not find exporter {other}, will use default text reporter."));
                Exporter::Text
            }
        };
        let percentiles = p.get("hdrhistogram.percentiles").unwrap_or("50,95,99");
        let percentiles = percentiles
            .split(',')
            .map(|text| text.trim().parse().ok().filter(|p| (0.0..=100.0).contains(p)))
            .collect::<Option<Vec<f64>>>()
            .ok_or_else(|| format!("hdrhistogram.percentiles = {percentiles:?} must be like 50,95,99.9"))?;
        let target: f64 = p.number("target", 0.0)?;
        if !target.is_finite() {
            return Err(format!("target = {target} is no number of operations per second"));
        }
        let seconds = |name: &str, default: u64| p.number(name, default).map(Duration::from_secs);
        let tracked = p.get("latencytrackederrors").unwrap_or("");
        Ok(Settings {
            threads: p.at_least("threadcount", 1, 1)?.try_into().map_err(|_| "threadcount is too large")?,
            target: target.max(0.0),
            most_time: Some(seconds("maxexecutiontime", 0)?).filter(|time| !time.is_zero()),
            status: match p.is_true("status", false) {
                true => Some(Duration::from_secs(p.at_least("status.interval", 10, 1)?)),
                false => None,
            },
            label: p.get("label").unwrap_or("").to_string(),
            exporter,
            export_file: p.get("exportfile").map(PathBuf::from),
            measurement,
            from,
            percentiles,
            buckets: p.at_least("histogram.buckets", 1000, 1)?.min(1 << 24) as usize,
            verbose: p.is_true("measurement.histogram.verbose", false),
            granularity: Duration::from_millis(p.at_least("timeseries.granularity", 1000, 1)?),
            hdr: p
                .is_true("hdrhistogram.fileoutput", false)
                .then(|| p.get("hdrhistogram.output.path").unwrap_or("").to_string()),
            each_error: p.is_true("reportlatencyforeacherror", false),
            tracked_errors: tracked.split(',').filter(|e| !e.is_empty()).map(String::from).collect(),
            timeout: seconds("timeout", 10)?,
            notices,
        })
    }
}
