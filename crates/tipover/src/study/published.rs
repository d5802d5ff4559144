//! Other people's numbers, as they printed them.

use anyhow::{Context, Result};
use serde_json::Value;

/// The published study of large values.
pub struct LargeValues {
    /// Where it stands.
    pub source: String,
    study: Value,
}

impl LargeValues {
    /// As shipped with the program.
    pub fn load() -> Result<LargeValues> {
        let study: Value = serde_json::from_str(include_str!("../../../../published/large-values.json"))?;
        Ok(LargeValues { source: study["source"].as_str().unwrap_or_default().to_string(), study })
    }

    /// A printed number by its path, such as `/results/zipfian_hit_pct`.
    pub fn number(&self, path: &str) -> Result<f64> {
        let found = self.study.pointer(path).and_then(Value::as_f64);
        found.with_context(|| format!("published/large-values.json has no number at {path}"))
    }
}

/// A row of the published iostat.
pub struct PublishedRow {
    disk: String,
    provisioned_iops: Option<f64>,
    /// Threads of sysbench.
    pub threads: u32,
    /// r/s.
    pub reads_per_s: f64,
    /// avgqu-sz.
    pub queue: f64,
    /// await.
    pub await_ms: f64,
    /// rMB/s, which iostat counts in mebibytes.
    pub read_mib_per_s: f64,
    /// avgrq-sz.
    pub request_kib: f64,
    /// %util.
    pub busy_percent: f64,
}

impl PublishedRow {
    /// The disk's label in our plan.
    pub fn label(&self) -> String {
        match self.provisioned_iops {
            Some(iops) => format!("EBS {iops}"),
            None => self.disk.clone(),
        }
    }
}

/// The published tipping-point study.
pub struct TippingPoint {
    /// Where it stands.
    pub source: String,
    /// iostat under the load.
    pub rows: Vec<PublishedRow>,
    claims: Value,
}

impl TippingPoint {
    /// As shipped with the program.
    pub fn load() -> Result<TippingPoint> {
        const TEXT: &str = include_str!("../../../../published/tipping-point.json");
        let study: Value = serde_json::from_str(TEXT)?;
        let rows = study["iostat_rows"].as_array().context("published rows of iostat")?;
        let row = |row: &Value| {
            Some(PublishedRow {
                disk: row["disk"].as_str()?.to_string(),
                provisioned_iops: row["provisioned_iops"].as_f64(),
                threads: row["threads"].as_u64()? as u32,
                reads_per_s: row["r_s"].as_f64()?,
                queue: row["avgqu_sz"].as_f64()?,
                await_ms: row["await_ms"].as_f64()?,
                read_mib_per_s: row["rMB_s"].as_f64()?,
                // Printed in sectors of 512 bytes.
                request_kib: row["avgrq_sz_sectors"].as_f64()? / 2.0,
                busy_percent: row["util_pct"].as_f64()?,
            })
        };
        Ok(TippingPoint {
            source: study["source"].as_str().unwrap_or_default().to_string(),
            rows: rows.iter().filter_map(row).collect(),
            claims: study["claims"].clone(),
        })
    }

    /// "6 to 7": threads with which await is 50 ms, as printed.
    pub fn threads_at_50_ms(&self, label: &str) -> Option<String> {
        let key = match label {
            "EBS standard" => "ebs_standard_50ms_at_threads",
            "EBS 1000" => "ebs1000_50ms_at_threads",
            "EBS 2000" => "ebs2000_50ms_at_threads",
            _ => return None,
        };
        match &self.claims[key] {
            Value::Array(range) => Some(format!("{} to {}", range.first()?, range.last()?)),
            Value::Number(threads) => Some(threads.to_string()),
            _ => None,
        }
    }

    /// Requests in flight for each thread, by its iostat at the largest number of threads.
    pub fn in_flight_per_thread(&self, label: &str) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.label() == label);
        rows.max_by_key(|row| row.threads).map(|row| row.queue / f64::from(row.threads))
    }
}

/// The published write-concern study.
pub struct PublishedPrices {
    /// Where it stands.
    pub source: String,
    /// The chance of a loss under w:1 that it prints, in per cent.
    pub loss_percent: f64,
    /// The window of a loss that it prints, in milliseconds.
    pub window_ms: f64,
    results: Vec<Value>,
}

impl PublishedPrices {
    /// As shipped with the program.
    pub fn load() -> Result<PublishedPrices> {
        const TEXT: &str = include_str!("../../../../published/write-concern.json");
        let study: Value = serde_json::from_str(TEXT)?;
        let claim = |key: &str| study["claims"][key].as_f64().with_context(|| format!("published {key}"));
        Ok(PublishedPrices {
            source: study["source"].as_str().unwrap_or_default().to_string(),
            loss_percent: claim("w1_loss_probability_pct")?,
            window_ms: claim("journal_window_ms")?,
            results: study["results"].as_array().context("published results")?.clone(),
        })
    }

    /// The printed latency beside one of our levels, as a range.
    pub fn latency_ms(&self, level: &str, disk: &str) -> Option<(f64, f64)> {
        let (w, journal) = match level {
            "unacknowledged" => (0, None),
            "acknowledged" => (1, None),
            "journalled" => (1, Some(if disk == "spinning" { "HDD" } else { "SSD" })),
            replicated if replicated.starts_with("replicated") => (3, None),
            _ => return None,
        };
        let fits = |result: &&Value| result["w"].as_i64() == Some(w) && result["disk"].as_str() == journal;
        let found = self.results.iter().find(fits)?;
        let number = |key: &str| found[key].as_f64();
        number("latency_ms_avg").map(|ms| (ms, ms)).or(number("latency_ms_min").zip(number("latency_ms_max")))
    }
}

/// One test of the published bank study.
pub struct PublishedTest {
    /// Shards.
    pub shards: u64,
    /// Nodes per shard; "2+1" has an arbiter.
    pub replicas: String,
    /// Processors of a node.
    pub cores: f64,
    /// Memory of a node.
    pub memory_gb: f64,
    /// Accounts, in millions.
    pub accounts_m: f64,
    /// Clients.
    pub clients: f64,
    /// The file system, where the text compares two.
    pub filesystem: Option<String>,
    /// What was broken every two minutes.
    pub fault: Option<String>,
    /// Transfers per second.
    pub tps: f64,
    /// Mean latency.
    pub mean_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// The published bank study.
pub struct PublishedBank {
    /// Where it stands.
    pub source: String,
    /// Its limit of the latency.
    pub limit_ms: f64,
    /// Its tests on MongoDB.
    pub tests: Vec<PublishedTest>,
    /// Millions of accounts, and gigabytes on disk.
    pub data: Vec<(f64, f64)>,
}

impl PublishedBank {
    /// As shipped with the program.
    pub fn load() -> Result<PublishedBank> {
        const TEXT: &str = include_str!("../../../../published/bank.json");
        let study: Value = serde_json::from_str(TEXT)?;
        let list = |key: &str| study[key].as_array().with_context(|| format!("published {key}"));
        let test = |test: &Value| {
            let number = |key: &str| test[key].as_f64();
            let word = |key: &str| test[key].as_str().map(String::from);
            Some(PublishedTest {
                shards: test["shards"].as_u64()?,
                replicas: test["replicas"].as_str()?.to_string(),
                cores: number("vcpu_per_node")?,
                memory_gb: number("ram_gb_per_node")?,
                accounts_m: number("accounts_m")?,
                clients: number("clients")?,
                filesystem: word("filesystem"),
                fault: word("fault"),
                tps: number("tps")?,
                mean_ms: number("lat_mean_ms")?,
                p99_ms: number("lat_p99_ms")?,
                max_ms: number("lat_max_ms")?,
            })
        };
        let sizes = list("dataset_size")?.iter();
        Ok(PublishedBank {
            source: study["source"].as_str().unwrap_or_default().to_string(),
            limit_ms: study["latency_limit_ms"].as_f64().context("published latency_limit_ms")?,
            tests: list("tests")?.iter().filter_map(test).collect(),
            data: sizes
                .filter_map(|size| Some((size["accounts_m"].as_f64()?, size["mongo_gb"].as_f64()?)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_studys_threads_kept_more_than_one_request_in_flight() {
        let study = TippingPoint::load().unwrap();
        assert_eq!(study.rows.len(), 6);
        assert_eq!(study.threads_at_50_ms("EBS standard").as_deref(), Some("6 to 7"));
        assert_eq!(study.threads_at_50_ms("EBS 1000").as_deref(), Some("20"));
        let phi = |disk| study.in_flight_per_thread(disk).unwrap();
        assert!((phi("EBS standard") - 1.05).abs() < 1e-9 && (phi("EBS 1000") - 2.7695).abs() < 1e-9);
    }

    #[test]
    fn printed_prices_stand_beside_the_levels_they_belong_to() {
        let study = PublishedPrices::load().unwrap();
        assert_eq!(study.latency_ms("acknowledged", "SSD"), Some((0.027, 0.031)));
        assert_eq!(study.latency_ms("journalled", "spinning"), Some((0.251, 0.251)));
        assert_eq!(study.latency_ms("journalled", "SSD"), Some((0.207, 0.207)));
        assert_eq!(study.latency_ms("replicated to 2 of 2", "–"), Some((270.0, 270.0)));
        assert_eq!(study.latency_ms("written", "SSD"), None);
        let bank = PublishedBank::load().unwrap();
        assert_eq!((bank.tests.len(), bank.tests[0].tps, bank.limit_ms), (19, 340.0, 100.0));
        assert_eq!(bank.data.first(), Some(&(10.0, 3.0)));
    }
}
