//! The properties of YCSB's client: how it is driven, and how its figures are printed.

use super::go;
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
    HdrAndRaw,
    TimeSeries,
    Raw,
    /// go-ycsb's way to write operations one by one.
    Csv,
}

impl Measurement {
    /// Whether operations are kept one by one.
    pub fn keeps_singles(self) -> bool {
        matches!(self, Measurement::HdrAndRaw | Measurement::Raw | Measurement::Csv)
    }
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
    /// Where single operations go that YCSB would write; standard output if it is not given.
    pub raw_file: Option<PathBuf>,
    /// Whether they are summed up, too.
    pub raw_summary: bool,
    /// Figures as go-ycsb prints them.
    pub style: Option<go::Style>,
    /// Where go-ycsb's figures go; standard output if it is not given.
    pub output_file: Option<PathBuf>,
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
        let go_file = p.get("measurement.output_file").filter(|path| !path.is_empty()).map(PathBuf::from);
        let measurement = match p.choice("measurementtype", &types)? {
            "histogram" => Measurement::Histogram,
            "hdrhistogram+histogram" => Measurement::HdrAndHistogram,
            "hdrhistogram+raw" => Measurement::HdrAndRaw,
            "timeseries" => Measurement::TimeSeries,
            // Both have this word. The file that only go-ycsb knows tells whose files these are.
            "raw" if go_file.is_none() => Measurement::Raw,
            "raw" | "csv" => Measurement::Csv,
            _ => Measurement::Hdr,
        };
        let style = match p.get("outputstyle") {
            None if go_file.is_none() && measurement != Measurement::Csv => None,
            _ => Some(match p.choice("outputstyle", &["plain", "table", "json"])? {
                "plain" => go::Style::Plain,
                "table" => go::Style::Table,
                _ => go::Style::Json,
            }),
        };
        // In go-ycsb, seconds from one summary to the next.
        let go_interval = p.get("measurement.interval").and_then(|text| text.parse::<u64>().ok());
        let from = match go_interval {
            Some(_) => From::Began,
            None => match p.choice("measurement.interval", &["op", "intended", "both"])? {
                "op" => From::Began,
                "intended" => From::Due,
                _ => From::Both,
            },
        };
        if style.is_some() && p.get("exporter").is_some() {
            notices.push("exporter has no effect: outputstyle says how figures are printed".into());
        }
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
            status: match p.is_true("status", false) || style.is_some() || go_interval.is_some() {
                true => {
                    let seconds = p.at_least("status.interval", go_interval.unwrap_or(10), 1)?;
                    Some(Duration::from_secs(seconds.max(1)))
                }
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
            raw_file: p.get("measurement.raw.output_file").filter(|path| !path.is_empty()).map(PathBuf::from),
            raw_summary: !p.is_true("measurement.raw.no_summary", false),
            style,
            output_file: go_file,
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
