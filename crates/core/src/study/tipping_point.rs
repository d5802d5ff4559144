//! The study of a disk's tipping point: iostat's columns by requests in flight, and with how many of them
//! requests wait as long as a promise allows.

use super::{CellRecords, Cells, Figure};
use crate::device::{Rates, Spec};
use crate::measure::{Estimate, mean_of_trials};
use crate::metric::{name as metric, probe};
use crate::record::Measured;
use crate::storage::array::{self, Curve, Raid};
use crate::units::Ratio;
use serde::Serialize;

/// The promises of the text, in milliseconds, the one that it is about first.
const PROMISES_MS: [u32; 3] = [50, 20, 10];

/// The axis of a curve of loads. Where a sweep has another one, something else than the load differs.
const LOAD: &str = "in_flight";

/// The study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Every cell with a disk for a label, in the plan's order.
    pub spots: Vec<Spot>,
    /// Where each disk passes each promise, for every sweep of loads.
    pub tips: Vec<Tip>,
}

/// What a disk and those who asked saw of one load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spot {
    /// The sweep: "reads".
    pub sweep: String,
    /// Label of the disk.
    pub disk: String,
    /// What differs besides: the label of another axis than those of the disk and of the load.
    pub setting: String,
    /// Sessions. Each keeps one request in flight, if it asks the disk itself.
    pub in_flight: u32,
    /// Requests that another tenant of the disk keeps in flight besides.
    pub neighbours: u32,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Mean time that a session waits for what it asked.
    pub client_ms: Figure,
    /// What sessions were answered per second.
    pub answers_per_s: Figure,
    /// Reads that the device was asked for, for each answer.
    pub device_reads_each: Figure,
    /// A database's writes of its log as a share of all writes that the device was asked for.
    pub log_share: Figure,
    /// Mean residence of a request in the device (await).
    pub await_ms: Figure,
    /// What await of several disks in RAID 0 was predicted to be from the curve of one.
    pub joined_ms: Figure,
    /// Requests completed per second (r/s + w/s).
    pub requests_per_s: Figure,
    /// Mean number of requests in flight by the device (avgqu-sz).
    pub queue: Figure,
    /// Await ÷ (requests in flight × service time), each of the same trial.
    pub await_to_queue: Figure,
    /// Share of the time with a request in flight (%util).
    pub busy_percent: Figure,
    /// Busy time for each request (svctm).
    pub service_ms: Figure,
    /// Mean size of a request (avgrq-sz).
    pub request_kib: Figure,
    /// Mebibytes read per second (rMB/s).
    pub read_mib_per_s: Figure,
}

/// Where a disk passes a promise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tip {
    /// The sweep.
    pub sweep: String,
    /// Label of the disk.
    pub disk: String,
    /// The longest await promised.
    pub promise_ms: u32,
    /// Laws of the audit that trials of this disk break.
    pub broken_laws: Vec<String>,
    /// The most requests in flight with which the mean await kept the promise, before it was first broken.
    pub holds: Option<u32>,
    /// The fewest with which it did not.
    pub breaks: Option<u32>,
    /// Requests in flight with which await is as long as promised, on the line between the loads beside it.
    pub in_flight: Figure,
}

impl Study {
    /// From the cells with a disk for a label.
    pub fn of(cells: &Cells<'_>) -> Study {
        let labelled: Vec<&CellRecords<'_>> =
            cells.all.iter().filter(|cell| cell.cell.label("disk").is_some()).collect();
        let spots: Vec<Spot> = labelled.iter().map(|cell| Spot::of(cell, &labelled)).collect();
        let loads = labelled.iter().filter(|cell| cell.cell.label(LOAD).is_some());
        let mut curves: Vec<(String, String)> = loads
            .filter_map(|cell| Some((cell.cell.sweep.clone(), cell.cell.label("disk")?.to_string())))
            .collect();
        curves.dedup();
        let tips = curves.iter().flat_map(|(sweep, disk)| {
            let of = |cell: &&&CellRecords<'_>| {
                cell.cell.sweep == *sweep && cell.cell.label("disk") == Some(disk.as_str())
            };
            let curve: Vec<&CellRecords<'_>> = labelled.iter().filter(of).copied().collect();
            PROMISES_MS.map(|promise_ms| Tip::of(sweep, disk, promise_ms, &curve))
        });
        let tips = tips.collect();
        Study { spots, tips }
    }

    /// Where `disk` passes the text's promises in `sweep`, the one that the text is about first.
    pub fn tips_of<'a>(&'a self, sweep: &'a str, disk: &'a str) -> impl Iterator<Item = &'a Tip> {
        self.tips.iter().filter(move |tip| tip.sweep == sweep && tip.disk == disk)
    }
}

/// What a disk did, whoever keeps its counters: the trial itself, or the one node that has it.
struct Disk {
    requests_per_s: f64,
    read_bytes_per_s: f64,
    request_bytes: Option<f64>,
    await_ms: Option<f64>,
    queue: f64,
    busy: f64,
}

impl Disk {
    /// Busy time for each request.
    fn service_ms(&self) -> Option<f64> {
        (self.requests_per_s > 0.0 && self.busy > 0.0).then(|| self.busy * 1e3 / self.requests_per_s)
    }

    /// A node's counters keep no time for each kind: there await is that of flushes too.
    fn of(measured: &Measured) -> Option<Disk> {
        if let Some(rates) = measured.disk_rates() {
            return Some(Disk {
                requests_per_s: rates.requests().0,
                read_bytes_per_s: rates.read_bandwidth.0,
                request_bytes: rates.request_size.map(|size| size.0 as f64),
                await_ms: await_ms(&rates),
                queue: rates.queue,
                busy: rates.utilization.0,
            });
        }
        let grown = |counter| measured.growth_in_place(probe::DISK, counter);
        let (read, written) = (grown(metric::DISK_READ_BYTES)?, grown(metric::DISK_WRITE_BYTES)?);
        let requests = grown(metric::DISK_READ_REQUESTS)? + grown(metric::DISK_WRITE_REQUESTS)?;
        let (all, queue_ns) = (requests + grown(metric::DISK_FLUSH_REQUESTS)?, grown(metric::DISK_QUEUE_NS)?);
        let seconds = measured.seconds();
        Some(Disk {
            requests_per_s: requests / seconds,
            read_bytes_per_s: read / seconds,
            request_bytes: (requests > 0.0).then(|| (read + written) / requests),
            await_ms: (all > 0.0).then(|| queue_ns / all / 1e6),
            queue: queue_ns / 1e9 / seconds,
            busy: grown(metric::DISK_BUSY_NS)? / 1e9 / seconds,
        })
    }
}

impl Spot {
    /// `others` are the cells from which await of an array can be predicted.
    fn of(cell: &CellRecords<'_>, others: &[&CellRecords<'_>]) -> Spot {
        let labels = &cell.cell.labels;
        let other = labels.iter().find(|(axis, _)| axis != "disk" && axis != LOAD);
        let log_share = cell.mean(|m| {
            let writes = m.growth_in_place(probe::DISK, metric::DISK_WRITE_REQUESTS)?;
            Some(m.growth_in_place(probe::TARGET, metric::ENGINE_JOURNAL_WRITES)? / writes)
        });
        let positive = |estimate: Option<Estimate>| cell.figure(estimate).not_negative();
        let column = |of: fn(&Disk) -> Option<f64>| positive(cell.mean(|m| of(&Disk::of(m)?)));
        Spot {
            sweep: cell.cell.sweep.clone(),
            disk: cell.cell.label("disk").unwrap_or_default().into(),
            setting: other.map(|(_, label)| label.clone()).unwrap_or_default(),
            in_flight: cell.cell.spec.load.sessions,
            neighbours: cell.cell.spec.busy_tenant().map_or(0, |tenant| tenant.sessions),
            broken_laws: cell.broken_laws(),
            client_ms: positive(cell.mean(|m| Some(m.residence().ok()?.mean() / 1e6))),
            answers_per_s: positive(cell.throughput()),
            device_reads_each: positive(cell.per_operation_in_place(probe::DISK, metric::DISK_READ_REQUESTS)),
            log_share: positive(log_share),
            await_ms: column(|disk| disk.await_ms),
            joined_ms: joined_ms(cell, others),
            requests_per_s: column(|disk| Some(disk.requests_per_s)),
            queue: column(|disk| Some(disk.queue)),
            await_to_queue: column(|disk| Some(disk.await_ms? / (disk.queue * disk.service_ms()?))),
            busy_percent: column(|disk| Some(disk.busy * 100.0)),
            service_ms: column(Disk::service_ms),
            request_kib: column(|disk| Some(disk.request_bytes? / 1024.0)),
            read_mib_per_s: column(|disk| Some(disk.read_bytes_per_s / 1024.0 / 1024.0)),
        }
    }
}

/// Of a cell of readers on an array: from the cells of `others` that read one such disk.
fn joined_ms(cell: &CellRecords<'_>, others: &[&CellRecords<'_>]) -> Figure {
    let shape = |cell: &CellRecords<'_>| cell.cell.spec.shape().ok();
    let Some((disks, one)) =
        shape(cell).and_then(|all| Some((all.array?.disks, Spec { array: None, ..all })))
    else {
        return Figure::missing("is one disk", 0);
    };
    let load = |of: &CellRecords<'_>| of.cell.spec.load.sessions;
    let asks = |of: &CellRecords<'_>| (of.cell.spec.workload.clone(), of.cell.spec.tenant.clone());
    let alike = others.iter().filter(|of| shape(of).as_ref() == Some(&one) && asks(of) == asks(cell));
    let points = alike.filter_map(|of| Some((load(of), of.device(|rates| Some(rates.requests().0))?.value)));
    match Curve::new(points.collect()) {
        Some(curve) => {
            let (wait, _) = array::predict(&curve, Raid::Zero, disks.get(), load(cell), Ratio(1.0));
            cell.computed(wait.as_secs_f64() * 1e3, "computed from the curve of one disk")
        }
        None => Figure::missing("no cell reads one such disk", 0),
    }
}

fn await_ms(rates: &Rates) -> Option<f64> {
    Some(rates.mean_await?.as_secs_f64() * 1e3)
}

impl Tip {
    /// `curve` are the cells of one disk. The first trials of all cells make one curve, the second ones
    /// another: so the crossing has an interval of its own.
    fn of(sweep: &str, disk: &str, promise_ms: u32, curve: &[&CellRecords<'_>]) -> Tip {
        let measured: Vec<_> =
            curve.iter().map(|cell| (cell.cell.spec.load.sessions, cell.measured())).collect();
        let trials = measured.iter().map(|(_, measured)| measured.len()).min().unwrap_or(0);
        let crossing_of = |trial: usize| {
            let point = |(n, of): &(u32, Vec<&Measured>)| Some((*n, await_ms(&of[trial].disk_rates()?)?));
            let points: Option<Vec<(u32, f64)>> = measured.iter().map(point).collect();
            crossing(points?, f64::from(promise_ms))
        };
        let crossings: Option<Vec<f64>> = (0..trials).map(crossing_of).collect();
        let why = match curve.iter().find(|cell| cell.measured().is_empty()) {
            Some(cell) => cell.why_none(),
            None => "await did not pass the promise within the loads that were measured".into(),
        };
        let mean =
            |cell: &&CellRecords<'_>| Some((cell.cell.spec.load.sessions, cell.device(await_ms)?.value));
        let mut means: Vec<(u32, f64)> = curve.iter().filter_map(mean).collect();
        means.sort_by_key(|(n, _)| *n);
        let breaks = means.iter().position(|(_, ms)| *ms > f64::from(promise_ms));
        let holds = breaks.unwrap_or(means.len()).checked_sub(1);
        let load = |at: Option<usize>| at.map(|at| means[at].0);
        let mut broken_laws: Vec<String> = curve.iter().flat_map(|cell| cell.broken_laws()).collect();
        broken_laws.sort();
        broken_laws.dedup();
        Tip {
            sweep: sweep.into(),
            disk: disk.into(),
            promise_ms,
            broken_laws,
            holds: load(holds),
            breaks: load(breaks),
            in_flight: Figure::of(crossings.and_then(|all| mean_of_trials(&all)).ok_or(why), trials as u32)
                .not_negative(),
        }
    }
}

/// Where a line through points of load and await first rises above `limit`; `None` where it begins above or
/// never does.
fn crossing(mut points: Vec<(u32, f64)>, limit: f64) -> Option<f64> {
    points.sort_by_key(|(n, _)| *n);
    let breaks = points.iter().position(|(_, ms)| *ms > limit)?;
    let ((low, x), (high, y)) = (points[breaks.checked_sub(1)?], points[breaks]);
    Some(f64::from(low) + f64::from(high - low) * (limit - x) / (y - x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Claims, Known, REGISTRY, Verdict};

    /// A study in which a request waits `service` milliseconds for each in flight, the slowest disk first.
    fn planted(services: [f64; 3], trials: u32) -> serde_json::Value {
        let figure = |value: f64| {
            Figure::Known(Known {
                value,
                low: Some(value * 0.999),
                high: Some(value * 1.001),
                trials,
                basis: "planted".into(),
            })
        };
        let (mut spots, mut tips) = (Vec::new(), Vec::new());
        let spot = |sweep: &str, disk: &str, neighbours: u32, (service, ms): (f64, f64), in_flight| Spot {
            sweep: sweep.into(),
            disk: disk.into(),
            setting: String::new(),
            in_flight,
            neighbours,
            broken_laws: vec![],
            client_ms: figure(ms),
            answers_per_s: figure(1e3 / service),
            device_reads_each: figure(1.0),
            log_share: figure(0.0),
            await_ms: figure(ms),
            joined_ms: figure(ms),
            requests_per_s: figure(1e3 / service),
            queue: figure(f64::from(in_flight)),
            await_to_queue: figure(ms / (f64::from(in_flight) * service)),
            busy_percent: figure(100.0),
            service_ms: figure(service),
            request_kib: figure(16.0),
            read_mib_per_s: figure(1e3 / service / 64.0),
        };
        let [slow, middle, _] = services;
        spots.extend([
            spot("turning", "SATA, 7200 rpm", 0, (slow / 0.76, 10.0), 10),
            spot("turning", "SAS, 15,000 rpm", 0, (slow / 1.6, 10.0), 10),
            spot("reads_and_writes", "EBS 1000", 0, (middle, 10.0), 10),
            spot("neighbours", "EBS standard", 0, (slow, 1.0), 1),
            spot("neighbours", "EBS standard", 20, (slow, 170.0 / slow), 1),
        ]);
        for in_flight in [5, 10] {
            spots.push(spot("saturated", "EBS standard", 0, (slow, f64::from(in_flight) * slow), in_flight));
        }
        let joined = |disks: f64| {
            let disk = format!("{disks} of EBS standard");
            spot("joined", &disk, 0, (slow / disks, 10.0 * slow / disks), 10)
        };
        spots.extend([joined(5.0), joined(9.0)]);
        // The slower the slow disk, the better caches and flushes do what the text says.
        let beside = |sweep: &str, disk: &str, setting: &str, each: f64| Spot {
            setting: setting.into(),
            device_reads_each: figure(each),
            answers_per_s: figure(each),
            log_share: figure(slow * 0.08),
            queue: figure(each),
            ..spot(sweep, disk, 0, (middle, 10.0), 10)
        };
        let flushed = "flushed at every commit";
        spots.extend([
            beside("buffered", "EBS 2000", "half the memory", 0.8 / slow),
            beside("buffered", "EBS 2000", "twice the memory", slow / 14.0),
            beside("flushes", "SATA, 7200 rpm", flushed, 1e3 / slow),
            beside("flushes", "the same with a battery-backed cache", flushed, 2e3),
            beside("database", "EBS 1000", "MariaDB, 1 session", 0.1),
            beside("database", "EBS 1000", "MariaDB, 20 sessions", 0.1 * slow),
        ]);
        for (disk, service) in ["EBS standard", "EBS 1000", "EBS 2000"].into_iter().zip(services) {
            for in_flight in [1, 2, 3, 5, 6, 7, 10, 20, 33, 50, 55, 78, 86] {
                spots.push(spot("reads", disk, 0, (service, f64::from(in_flight) * service), in_flight));
            }
            tips.extend(PROMISES_MS.map(|promise_ms| Tip {
                sweep: "reads".into(),
                disk: disk.into(),
                promise_ms,
                broken_laws: vec![],
                holds: None,
                breaks: None,
                in_flight: figure(f64::from(promise_ms) / service),
            }));
        }
        serde_json::to_value(Study { spots, tips }).unwrap()
    }

    fn verdicts(study: &serde_json::Value) -> Vec<(String, Verdict)> {
        let row = REGISTRY.iter().find(|row| row.name == "tipping-point").unwrap();
        let judged = Claims::parse(row.claims).unwrap().judge(study);
        judged.into_iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn disks_as_published_confirm_what_their_rows_say_and_contradict_the_guess() {
        for (id, verdict) in verdicts(&planted([8.07, 0.933, 0.658], 3)) {
            match verdict {
                Verdict::NotTested { .. } => {}
                Verdict::Contradicted => assert_eq!(id, "tipping-point-19", "124 IOPS are not 200 to 300"),
                other => assert_eq!(other, Verdict::Confirmed, "{id}"),
            }
        }
    }

    #[test]
    fn other_disks_contradict_every_claim_of_their_speed() {
        // Whatever the disk, a closed loop keeps it busy and its waits are its queue times its service.
        let of_any_disk = ["tipping-point-04", "tipping-point-06", "tipping-point-20", "tipping-point-25"];
        for (id, verdict) in verdicts(&planted([0.2, 9.0, 0.3], 3)) {
            let expected = of_any_disk.contains(&id.as_str());
            match verdict {
                Verdict::NotTested { .. } => {}
                Verdict::Confirmed if expected => {}
                other => assert_eq!(other, Verdict::Contradicted, "{id}"),
            }
        }
    }

    #[test]
    fn the_crossing_lies_on_the_line_between_the_loads_beside_it() {
        let line = vec![(10, 80.0), (1, 8.0), (5, 40.0)];
        assert_eq!(crossing(line.clone(), 50.0), Some(6.25));
        assert_eq!(crossing(line.clone(), 5.0), None, "begins above");
        assert_eq!(crossing(line, 80.0), None, "never above");
    }
}
