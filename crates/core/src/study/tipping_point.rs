//! The study of a disk's tipping point: iostat's columns by requests in flight, and with how many of them
//! requests wait as long as a promise allows.

use super::{CellRecords, Cells, Figure};
use crate::device::Rates;
use crate::measure::mean_of_trials;
use serde::Serialize;

/// The promises of the text, in milliseconds, the one that it is about first.
const PROMISES_MS: [u32; 3] = [50, 20, 10];

/// The sweep in which others use the disk too.
const NEIGHBOURS: &str = "neighbours";

/// The study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Every load on every disk, in the plan's order.
    pub spots: Vec<Spot>,
    /// Where each disk passes each promise, for every sweep.
    pub tips: Vec<Tip>,
}

/// Random requests to a disk with a number in flight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spot {
    /// The sweep: "reads".
    pub sweep: String,
    /// Label of the disk.
    pub disk: String,
    /// Sessions, each of which keeps one request in flight.
    pub in_flight: u32,
    /// Requests that another tenant of the disk keeps in flight besides.
    pub neighbours: u32,
    /// Laws of the audit that its trials break.
    pub broken_laws: Vec<String>,
    /// Mean time that a session waits for its read or write.
    pub client_ms: Figure,
    /// Mean residence of a request in the device (await).
    pub await_ms: Figure,
    /// Requests completed per second (r/s + w/s).
    pub requests_per_s: Figure,
    /// Mean number of requests in flight by the device (avgqu-sz).
    pub queue: Figure,
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
        let spots: Vec<Spot> = labelled.iter().map(|cell| Spot::of(cell)).collect();
        // Where somebody else's requests are in flight too, ours are no load of the disk.
        let alone = spots.iter().filter(|spot| spot.sweep != NEIGHBOURS);
        let mut curves: Vec<(&str, &str)> = alone.map(|s| (s.sweep.as_str(), s.disk.as_str())).collect();
        curves.dedup();
        let tips = curves.iter().flat_map(|(sweep, disk)| {
            let of = |cell: &&&CellRecords<'_>| {
                cell.cell.sweep == *sweep && cell.cell.label("disk") == Some(*disk)
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

impl Spot {
    fn of(cell: &CellRecords<'_>) -> Spot {
        let column = |of: fn(&Rates) -> Option<f64>| cell.figure(cell.device(of)).not_negative();
        Spot {
            sweep: cell.cell.sweep.clone(),
            disk: cell.cell.label("disk").unwrap_or_default().into(),
            in_flight: cell.cell.spec.load.sessions,
            neighbours: cell.cell.spec.busy_tenant().map_or(0, |tenant| tenant.sessions),
            broken_laws: cell.broken_laws(),
            client_ms: cell.figure(cell.mean(|m| Some(m.residence().ok()?.mean() / 1e6))).not_negative(),
            await_ms: column(await_ms),
            requests_per_s: column(|rates| Some(rates.requests().0)),
            queue: column(|rates| Some(rates.queue)),
            busy_percent: column(|rates| Some(rates.utilization.0 * 100.0)),
            service_ms: column(|rates| {
                let requests = rates.requests().0;
                (requests > 0.0).then(|| rates.utilization.0 * 1e3 / requests)
            }),
            request_kib: column(|rates| Some(rates.request_size?.0 as f64 / 1024.0)),
            read_mib_per_s: column(|rates| Some(rates.read_bandwidth.0 / 1024.0 / 1024.0)),
        }
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
            let point = |(n, of): &(u32, Vec<&crate::record::Measured>)| {
                Some((*n, await_ms(&of[trial].disk_rates()?)?))
            };
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
        let spot = |sweep: &str, disk: &str, neighbours, (service, ms): (f64, f64), in_flight| Spot {
            sweep: sweep.into(),
            disk: disk.into(),
            in_flight,
            neighbours,
            broken_laws: vec![],
            client_ms: figure(ms),
            await_ms: figure(ms),
            requests_per_s: figure(1e3 / service),
            queue: figure(f64::from(in_flight)),
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
