//! What was predicted of a cell beside what its trials measured.

use super::evidence::IN_CACHE;
use super::{CellRecords, Figure};
use crate::metric::{name as metric, probe};
use crate::predict::queue::Limits;
use crate::predict::{HIT_ERROR, Interval, Prediction};
use crate::record::Measured;
use crate::units::Bytes;
use serde::Serialize;

/// Share of what a disk can do that its load may differ by: file systems read a little of their own.
const DISK_ERROR: f64 = 0.01;

/// Something that is predicted and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Quantity {
    /// Operations per second.
    #[serde(rename = "throughput_ops_per_s")]
    Throughput,
    /// 99th percentile of the residence, in seconds.
    #[serde(rename = "p99_s")]
    P99,
    /// Share of look-ups that the engine's cache answers.
    #[serde(rename = "engine_hit_ratio")]
    EngineHit,
    /// Share of the rest that the page cache answers.
    #[serde(rename = "page_cache_hit_ratio")]
    PageCacheHit,
    /// Share of the disk's requests per second that it is asked for.
    #[serde(rename = "device_load_ratio")]
    DeviceLoad,
}

/// One quantity of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Foretold {
    /// Which.
    pub quantity: Quantity,
    /// Holds the truth with 90 %; that of hit ratios and of the device's load with how far their formulas
    /// err.
    pub predicted: Interval,
    /// What was measured, or why it was not.
    pub measured: Figure,
    /// Whether it lies where it was predicted; `None` where it was not measured.
    pub inside: Option<bool>,
}

/// What was `predicted` beside what was measured in `cell`, whose operations ask for `pages` each. Figures
/// that the audit convicts are none.
pub fn foretold(cell: &CellRecords<'_>, predicted: &Prediction, pages: f64) -> Vec<Foretold> {
    let convicted = cell.conviction();
    let trials = cell.measured().len() as u32;
    let request = Bytes(cell.request_bytes().round() as u64);
    let most =
        cell.cell.spec.shape().map_or(f64::INFINITY, |shape| Limits::of(&shape, request, request).most());
    let missing = |why: &str| Figure::missing(why, trials);
    let grown = |m: &Measured, probe, name| m.growth_in_place(probe, name);
    let misses =
        |m: &Measured| Some(grown(m, probe::TARGET, metric::ENGINE_PAGE_READS)? / m.operations_seen());
    let reads = |m: &Measured| Some(grown(m, probe::DISK, metric::DISK_READ_REQUESTS)? / m.seconds());
    let share = |figure: Option<crate::measure::Estimate>, counter: &str| match figure {
        None if trials > 0 => missing(&format!("{counter} were not counted")),
        figure => cell.figure(figure),
    };
    let to_disk = |k: f64| move |m: &Measured| Some(reads(m)? / m.throughput() / (misses(m)? * k));
    let missed = cell.misses_per_operation().map(|misses| misses.value);
    let page_cache = match (missed, cell.reads_per_miss()) {
        (Some(missed), _) if missed <= IN_CACHE => missing("the engine's cache answered everything"),
        (_, Some(k)) => {
            share(cell.mean(|m| Some((1.0 - to_disk(k)(m)?).clamp(0.0, 1.0))), "the disk's requests")
        }
        _ => share(None, "the engine's reads"),
    };
    let device = match most.is_finite() {
        true => share(cell.mean(|m| Some(reads(m)? / most)), "the disk's requests"),
        false => missing("a disk without a limit has no load"),
    };
    let of_disk = |reads: f64| if most.is_finite() { reads / most } else { 0.0 };
    let asked = predicted.device_reads_per_s;
    let load = Interval {
        low: (of_disk(asked.low) - DISK_ERROR).max(0.0),
        middle: of_disk(asked.middle),
        high: of_disk(asked.high) + DISK_ERROR,
    };
    let p99 = cell.residence_ms(0.99).map(|p99| p99.scaled(1e-3));
    let all = [
        (Quantity::Throughput, predicted.throughput_ops_per_s, cell.figure(cell.throughput())),
        (Quantity::P99, predicted.p99_s, cell.percentile_figure(p99)),
        (
            Quantity::EngineHit,
            predicted.engine_hit.wider(HIT_ERROR),
            share(cell.mean(|m| Some((1.0 - misses(m)? / pages).clamp(0.0, 1.0))), "the engine's misses"),
        ),
        (Quantity::PageCacheHit, predicted.page_cache_hit.wider(HIT_ERROR), page_cache),
        (Quantity::DeviceLoad, load, device),
    ];
    let beside = |(quantity, predicted, measured): (Quantity, Interval, Figure)| {
        let measured = convicted.as_deref().map_or(measured, missing);
        let inside = measured.value().map(|value| predicted.contains(value));
        Foretold { quantity, predicted, measured, inside }
    };
    all.into_iter().map(beside).collect()
}
