//! The properties of CoreWorkload, typed.

use super::Properties;
use crate::workload::distribution::Requests;
use crate::workload::ycsb::{FieldChoice, Inserts, KeyHash, Mix, Requested};
use crate::workload::{Dataset, Histogram, Keys, Lengths, Values};
use std::sync::Arc;
use std::time::Duration;

/// What the properties of CoreWorkload say.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreWorkload {
    /// The records.
    pub dataset: Dataset,
    /// The operations of the run.
    pub requested: Requested,
    /// The operations of the load.
    pub inserts: Inserts,
    /// How often an insert of the load is tried again,
    pub insert_retries: u32,
    /// after this pause.
    pub insert_retry_pause: Duration,
    /// Whether the load goes on after an insert that failed.
    pub keep_going: bool,
    /// What was taken for granted, in sentences.
    pub notices: Vec<String>,
}

impl CoreWorkload {
    /// Reads them; `histogram` is the text of the file that `fieldlengthhistogram` names, and `batch` the
    /// records of an insert.
    ///
    /// # Errors
    /// What cannot be read, and combinations that are impossible, in a sentence.
    pub fn of(properties: &Properties, histogram: Option<&str>, batch: u32) -> Result<CoreWorkload, String> {
        let p = properties;
        let mut notices = Vec::new();
        check_class(p)?;
        let records = match p.number("recordcount", 0u64)? {
            0 => {
                notices.push("recordcount is not given or 0, which YCSB takes for 2147483647".to_string());
                2_147_483_647
            }
            given => given,
        };
        let first = p.number("insertstart", 0u64)?;
        let count = p.number("insertcount", records.saturating_sub(first))?;
        if first.checked_add(count).is_none_or(|end| end > records) {
            return Err(format!(
                "insertstart {first} and insertcount {count} go beyond recordcount {records}: recordcount must \
                 be at least their sum"
            ));
        }
        if count == 0 {
            return Err(format!("no record is left: recordcount is {records} and insertstart {first}"));
        }
        let fields = p.at_least("fieldcount", 10, 1)?;
        let fields = u16::try_from(fields).map_err(|_| format!("fieldcount {fields} is above 65535"))?;
        let integrity = p.is_true("dataintegrity", false);
        let field_length = field_length(p, histogram)?;
        if integrity && !matches!(field_length, Lengths::Constant(_)) {
            return Err("dataintegrity needs fields of one length: fieldlengthdistribution = constant".into());
        }
        let values = match p.get("compressible") {
            Some(_) if integrity => {
                return Err(
                    "dataintegrity and compressible exclude each other: checkable values are given".into()
                );
            }
            Some(share) => format!("compressible {share}").parse()?,
            None if integrity => Values::Integrity,
            None => Values::Ycsb,
        };
        let dataset = Dataset {
            table: p.get("table").unwrap_or("usertable").to_string(),
            records,
            fields,
            field_prefix: p.get("fieldnameprefix").unwrap_or("field").to_string(),
            field_length,
            keys: keys(p)?,
            values,
            seed: p.number("seed", 1)?,
            ..Dataset::ycsb(records)
        };
        let mix = mix(p)?;
        let read =
            match (p.is_true("readallfields", true), p.is_true("readallfieldsbyname", false) || integrity) {
                (false, _) => FieldChoice::One,
                (true, true) => FieldChoice::EachByName,
                (true, false) => FieldChoice::All,
            };
        let all = p.is_true("writeallfields", false);
        let requested = Requested {
            mix,
            requests: requests(p)?,
            first,
            count,
            operations: p.number("operationcount", 0u64)?,
            read,
            write: if all { FieldChoice::All } else { FieldChoice::One },
            scan_lengths: scan_lengths(p)?,
            insert_batch: batch,
        };
        let retry_limit = p.number("core_workload_insertion_retry_limit", 0u32)?;
        let retry_seconds = p.number("core_workload_insertion_retry_interval", 3u64)?;
        Ok(CoreWorkload {
            dataset,
            requested,
            inserts: Inserts { first, count, batch },
            insert_retries: retry_limit,
            insert_retry_pause: Duration::from_secs(retry_seconds),
            keep_going: p.is_true("core_workload_insertion_keep_going_on_error", false),
            notices,
        })
    }
}

/// Other workload classes have other properties; to run the wrong one would be worse than to refuse.
fn check_class(p: &Properties) -> Result<(), String> {
    match p.get("workload") {
        Some(class) if class != "core" && !class.ends_with(".CoreWorkload") && class != "CoreWorkload" => {
            Err(format!("workload = {class}: only CoreWorkload (\"core\" in go-ycsb) is known here"))
        }
        _ => Ok(()),
    }
}

fn keys(p: &Properties) -> Result<Keys, String> {
    let digits: u64 = p.number("zeropadding", 1)?;
    // A key of a thousand zeros would be somebody's typing error.
    let digits = u8::try_from(digits).map_err(|_| format!("zeropadding {digits} is above 255"))?;
    let go = p.choice("keyhash", &["ycsb", "go-ycsb"])? == "go-ycsb";
    let hash = match p.get("insertorder").unwrap_or("hashed") {
        "hashed" if go => KeyHash::GoYcsb,
        "hashed" => KeyHash::Ycsb,
        _ => KeyHash::Ordered,
    };
    Ok(Keys { prefix: p.get("keyprefix").unwrap_or("user").to_string(), hash, digits })
}

fn mix(p: &Properties) -> Result<Mix, String> {
    let mix = Mix {
        read: p.number("readproportion", 0.95)?,
        update: p.number("updateproportion", 0.05)?,
        insert: p.number("insertproportion", 0.0)?,
        scan: p.number("scanproportion", 0.0)?,
        read_modify_write: p.number("readmodifywriteproportion", 0.0)?,
    };
    mix.check().map(|()| mix)
}

fn field_length(p: &Properties, histogram: Option<&str>) -> Result<Lengths, String> {
    let most: u32 = p.number("fieldlength", 100)?;
    let least: u32 = p.number("minfieldlength", 1)?;
    let between = |lengths: fn(u32, u32) -> Lengths| match least <= most {
        true => Ok(lengths(least, most)),
        false => Err(format!("minfieldlength {least} is above fieldlength {most}")),
    };
    match p.choice("fieldlengthdistribution", &["constant", "uniform", "zipfian", "histogram"])? {
        "constant" => Ok(Lengths::Constant(most)),
        "uniform" => between(Lengths::Uniform),
        "zipfian" => between(Lengths::Zipfian),
        _ => {
            let path = p.get("fieldlengthhistogram").unwrap_or("hist.txt");
            let text = histogram.ok_or_else(|| format!("{path}: the histogram was not read"))?;
            let histogram = Histogram::read(text).map_err(|e| format!("{path}, {e}"))?;
            Ok(Lengths::Histogram(Arc::new(histogram)))
        }
    }
}

fn requests(p: &Properties) -> Result<Requests, String> {
    let names = ["uniform", "zipfian", "latest", "hotspot", "sequential", "exponential", "zipfian-true"];
    match p.choice("requestdistribution", &names)? {
        "hotspot" => {
            let records = p.number("hotspotdatafraction", 0.2)?;
            let requests = p.number("hotspotopnfraction", 0.8)?;
            format!("hotspot {records} {requests}").parse()
        }
        "exponential" => {
            let percentile = p.number("exponential.percentile", 95.0)?;
            let fraction = p.number("exponential.frac", 0.857_142_857_1)?;
            format!("exponential {percentile} {fraction}").parse()
        }
        "zipfian-true" => format!("zipfian-true {}", p.number("zipfian.theta", Requests::THETA)?).parse(),
        name => name.parse(),
    }
}

fn scan_lengths(p: &Properties) -> Result<Lengths, String> {
    let least: u32 = p.number("minscanlength", 1)?;
    let most: u32 = p.number("maxscanlength", 1000)?;
    if least == 0 || least > most {
        return Err(format!("minscanlength {least} must be from 1 to maxscanlength, which is {most}"));
    }
    match p.choice("scanlengthdistribution", &["uniform", "zipfian"])? {
        "uniform" => Ok(Lengths::Uniform(least, most)),
        _ => Ok(Lengths::Zipfian(least, most)),
    }
}
