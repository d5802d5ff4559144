//! The tipping point of a disk: how latency grows with load, up to where a promise breaks, why, and what to
//! buy.

use super::array::{Curve, Demand, Raid, Sizing, size};
use super::limit::{Evidence, Finding, find};
use super::{DiskPromise, Measured};
use crate::measure::median;
use crate::search::knee::Asymptotes;
use crate::search::{Answer, Capacity, FinishedTrial, Goals, Scale, Step, Verdict, next};
use crate::units::{Bytes, Rate, Ratio, significant, span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What one load gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Requests in flight (closed loop) or offered requests per second.
    pub load: f64,
    /// Reads and writes per second.
    #[serde(rename = "requests_per_s")]
    pub rate: f64,
    /// Bytes per second.
    #[serde(rename = "bytes_per_s")]
    pub bandwidth: f64,
    /// Mean latency at the client: from sending, in an open loop from due.
    #[serde(with = "span", rename = "mean_ns")]
    pub mean: Duration,
    /// Its 99th percentile; `None` with too few requests.
    #[serde(rename = "p99_ns")]
    pub p99: Option<u64>,
    /// Mean requests at the device, by its own counters.
    pub device_queue: Option<f64>,
    /// Mean latency there.
    #[serde(rename = "device_await_ns")]
    pub device_await: Option<u64>,
    /// Share of the time with something in flight there.
    pub device_utilization: Option<f64>,
    /// Burst credits left at the end.
    pub credits: Option<u64>,
}

impl Rung {
    /// From a measurement at a load.
    pub fn of(load: f64, measured: &Measured) -> Rung {
        let rates = measured.device.as_ref().and_then(super::DeviceCounts::rates);
        Rung {
            load,
            rate: measured.rate().0,
            bandwidth: measured.bandwidth().0,
            mean: measured.mean_residence().unwrap_or_default(),
            p99: measured.percentile(0.99).ok().map(|p99| p99.value as u64),
            device_queue: rates.map(|rates| rates.queue),
            device_await: rates.and_then(|r| r.mean_await).map(|mean| mean.as_nanos() as u64),
            device_utilization: rates.map(|rates| rates.utilization.0),
            credits: measured.device.as_ref().and_then(|device| device.after.credits),
        }
    }
}

/// What was predicted for an array, and what one that was built did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// How it was put together.
    pub raid: Raid,
    /// Of how many disks.
    pub disks: u32,
    /// Under how many clients.
    pub clients: u32,
    /// Predicted mean latency.
    #[serde(with = "span", rename = "predicted_ns")]
    pub predicted: Duration,
    /// Measured on shaped disks like this one.
    #[serde(with = "span", rename = "measured_ns")]
    pub measured: Duration,
    /// The same at the disks, by their own counters: what the client waited beyond that is this machine's.
    #[serde(rename = "at_the_disks_ns")]
    pub at_the_disks: Option<u64>,
    /// How many times as slow the disks were built, by which all times were divided, so that a small machine
    /// carries them.
    #[serde(default = "as_fast")]
    pub slowed: u32,
    /// What every client was to see at most.
    #[serde(with = "span", rename = "limit_ns")]
    pub limit: Duration,
}

fn as_fast() -> u32 {
    1
}

impl Checked {
    /// Whether this machine could not carry the array, so that what the clients waited says nothing about it.
    pub fn too_busy(&self) -> bool {
        self.at_the_disks.is_some_and(|ns| self.measured.as_nanos() as f64 > 1.5 * ns as f64)
    }

    fn sentence(&self) -> String {
        let built = format!(
            "built{} and measured: {} disks in {} under {} clients answer in {} ({} predicted, {:+.0} %)",
            if self.slowed > 1 { format!(", all {} times as slow,", self.slowed) } else { String::new() },
            self.disks,
            self.raid.name(),
            self.clients,
            span::rounded(self.measured),
            span::rounded(self.predicted),
            100.0 * (self.measured.as_secs_f64() / self.predicted.as_secs_f64() - 1.0)
        );
        match self.at_the_disks {
            Some(ns) if self.too_busy() => format!(
                "{built}, but only {} of it at the disks: this machine was too busy to carry them, so nothing is proved",
                span::rounded(Duration::from_nanos(ns))
            ),
            _ if self.measured <= self.limit => format!("{built}: the promise holds"),
            _ => format!("{built}: the promise does not hold"),
        }
    }
}

/// Everything about a disk's tipping point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tipping {
    /// What was promised.
    pub promise: DiskPromise,
    /// The loads that were climbed before the search.
    pub rungs: Vec<Rung>,
    /// What was searched.
    pub goals: Goals,
    /// The trials of the search.
    pub trials: Vec<FinishedTrial>,
    /// About the limit; `None` if nobody looked.
    pub evidence: Option<Evidence>,
    /// Disks for this number of clients.
    pub sizings: Vec<Sizing>,
    /// Clients to be held, and what they are to see at most.
    pub demand: Option<Demand>,
    /// Arrays that were built and measured.
    pub checked: Vec<Checked>,
    /// Why nothing was checked, if nothing was.
    pub unchecked: Option<String>,
}

/// Requests of a page, one after the other: what the study's readers knew.
const PAGE_REQUESTS: u32 = 200;

impl Tipping {
    /// What was found; `None` while trials are missing.
    pub fn answer(&self) -> Option<Answer> {
        match next(&self.trials, &self.goals) {
            Step::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// The capacity, while the search is over.
    pub fn capacity(&self) -> Option<Capacity> {
        self.answer()?.capacities.into_iter().next()
    }

    /// Whether some load keeps the promise for sure: up to a tipping point, or every load that was tried.
    pub fn holds(&self) -> bool {
        let holds = |verdict| matches!(verdict, Verdict::Found | Verdict::AlwaysPassed);
        self.capacity().is_some_and(|capacity| holds(capacity.verdict))
    }

    /// Throughput of the disk by requests in flight; only of a closed loop.
    pub fn curve(&self) -> Option<Curve> {
        let closed = self.goals.scale == Scale::Sessions;
        closed.then(|| Curve::new(self.rungs.iter().map(|rung| (rung.load as u32, rung.rate)).collect()))?
    }

    /// The loads' asymptotes: latency of a request alone, and the time between two at the highest
    /// throughput.
    pub fn asymptotes(&self) -> Option<Asymptotes> {
        let alone = self.alone()?.as_secs_f64();
        let most = self.rungs.iter().map(|rung| rung.rate).fold(0.0, f64::max);
        (most > 0.0).then(|| Asymptotes { think_s: 0.0, demand_s: alone, largest_demand_s: 1.0 / most })
    }

    fn alone(&self) -> Option<Duration> {
        self.rungs.iter().min_by(|a, b| a.load.total_cmp(&b.load)).map(|rung| rung.mean)
    }

    /// Where queues begin, requests in flight; only of a closed loop.
    pub fn knee(&self) -> Option<f64> {
        (self.goals.scale == Scale::Sessions).then(|| self.asymptotes().map(|a| a.knee()))?
    }

    /// What limits.
    pub fn limit(&self) -> Option<Finding> {
        self.evidence.as_ref().map(find)
    }

    fn unit(&self) -> &'static str {
        match self.goals.scale {
            Scale::Sessions => "requests in flight",
            Scale::OpsPerSecond => "requests per second",
        }
    }

    /// What it takes to keep the promise for twice, four and ten times as many clients as one disk does;
    /// `reads` is the share of requests that read. Empty where one disk was not brought to its tipping point,
    /// and for promises about percentiles, of which the computation knows nothing.
    pub fn purchases(&self, reads: Ratio) -> Vec<(u32, [Sizing; 2])> {
        /// The computation grows with the square of the clients.
        const MOST_CLIENTS: f64 = 2000.0;
        let one = self.capacity().filter(|c| c.verdict == Verdict::Found).and_then(|c| c.low);
        let mean = matches!(self.promise.watched, super::Watched::Await | super::Watched::Residence);
        let (Some(curve), Some(one), true) = (self.curve(), one, mean) else { return vec![] };
        let clients = [2.0, 4.0, 10.0].map(|times| times * one);
        let limit = self.promise.limit;
        clients
            .into_iter()
            .filter(|clients| *clients <= MOST_CLIENTS)
            .map(|clients| {
                let demand = Demand { clients: clients as u32, limit, reads };
                (clients as u32, [Raid::Zero, Raid::Ten].map(|raid| size(&curve, raid, &demand)))
            })
            .collect()
    }

    /// In sentences, the most important one first.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        let unit = self.unit();
        if let Some(capacity) = self.capacity() {
            let load = |load: Option<f64>| load.map_or("?".into(), |load| self.goals.scale.print(load));
            said.push(match capacity.verdict {
                Verdict::Found => format!(
                    "{} holds up to {} {unit} and breaks at {} (confirmed {})",
                    self.promise,
                    load(capacity.low),
                    load(capacity.high),
                    capacity.confirmed()
                ),
                Verdict::AlwaysPassed => format!(
                    "{} held at every load up to {} {unit}, the highest that was tried (confirmed {}): this disk is \
                     enough for them, and --to goes higher",
                    self.promise,
                    load(Some(capacity.tried.1)),
                    capacity.below.in_words("there")
                ),
                Verdict::NeverPassed => format!(
                    "{} never held: {} {unit}, the least that was tried, already break it ({}). More such disks do \
                     not make a single request faster: it takes a faster disk, or another promise",
                    self.promise,
                    load(Some(capacity.tried.0)),
                    capacity.above.in_words("there")
                ),
                _ => capacity.sentence_in(unit),
            });
        }
        if let Some(knee) = self.knee() {
            said.push(format!(
                "queues begin at {} in flight (the knee, not a capacity); a request alone takes {}",
                significant(knee, 2),
                span::rounded(self.alone().unwrap_or_default())
            ));
        }
        said.extend(self.limit().map(|finding| finding.sentence));
        if let Some(last) = self.last_that_held() {
            said.push(format!(
                "a page that makes {PAGE_REQUESTS} dependent requests takes {} on it at this load, {} when it is alone",
                span::rounded(last * PAGE_REQUESTS),
                span::rounded(self.alone().unwrap_or_default() * PAGE_REQUESTS)
            ));
        }
        let who = self.demand.as_ref().map_or_else(String::new, |demand| {
            format!("{} clients that wait {} on average at most", demand.clients, span::print(demand.limit))
        });
        for sizing in &self.sizings {
            said.push(match sizing.disks {
                Some(disks) => format!(
                    "{who} need {disks} such disks in {}: {} predicted, {}",
                    sizing.raid.name(),
                    span::rounded(sizing.predicted),
                    Rate(sizing.requests_per_s).rounded()
                ),
                None => format!("{who} cannot be held by any number of such disks in {}", sizing.raid.name()),
            });
        }
        said.extend(self.checked.iter().map(Checked::sentence));
        if let (false, Some(why)) = (self.sizings.is_empty(), &self.unchecked) {
            said.push(format!("the number of disks was computed and not tried: {why}"));
        }
        said
    }

    /// Mean latency at the highest climbed load that keeps the promise.
    fn last_that_held(&self) -> Option<Duration> {
        let most = self.capacity()?.low?;
        let rung =
            self.rungs.iter().filter(|rung| rung.load <= most).max_by(|a, b| a.load.total_cmp(&b.load));
        rung.map(|rung| rung.mean)
    }
}

/// The load at which more gives no more: the least one with 95 % of the highest throughput.
pub fn saturating(rungs: &[Rung]) -> Option<&Rung> {
    let most = rungs.iter().map(|rung| rung.rate).fold(0.0, f64::max);
    rungs.iter().find(|rung| rung.rate >= 0.95 * most)
}

/// Where the search should begin: between the last climbed load that kept the promise and the next.
pub fn guess(rungs: &[Rung], promise: DiskPromise) -> Option<f64> {
    let held = |rung: &&Rung| match promise.watched {
        super::Watched::Percentile(_) => {
            rung.p99.is_none_or(|p99| u128::from(p99) <= promise.limit.as_nanos())
        }
        _ => rung.mean <= promise.limit,
    };
    let last = rungs.iter().rev().find(held)?;
    let after = rungs.iter().find(|rung| rung.load > last.load && !held(rung));
    match after {
        // Latency grows in proportion once the disk is busy.
        Some(after) => {
            let (a, b) = (last.mean.as_secs_f64(), after.mean.as_secs_f64());
            let share = ((promise.limit.as_secs_f64() - a) / (b - a)).clamp(0.0, 1.0);
            Some(last.load + (after.load - last.load) * if share.is_finite() { share } else { 0.5 })
        }
        None => Some(last.load),
    }
}

/// The 21 × 21 picture: latency of reads under every combination of read and write load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// Most random reads per second, when nothing is written.
    pub most_reads_per_s: f64,
    /// Most bytes per second of sequential writes, when nothing is read.
    pub most_written_bytes_per_s: f64,
    /// Bytes of a read and of a write.
    pub blocks: (Bytes, Bytes),
    /// Steps along each side, 0 included.
    pub steps: u32,
    /// Row by row: write load rises from row to row, read load within it.
    pub cells: Vec<SurfaceCell>,
}

/// One combination of loads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SurfaceCell {
    /// Offered reads, as a share of the most.
    pub reads: f64,
    /// Offered writes, as a share of the most.
    pub writes: f64,
    /// Median residence of reads, nanoseconds; `None` without reads.
    pub p50_ns: Option<u64>,
    /// The 95th percentile.
    pub p95_ns: Option<u64>,
    /// Share of the offered requests that were answered in time to count.
    pub achieved: f64,
}

impl Surface {
    /// Median of the 95th percentiles of a row, nanoseconds.
    pub fn typical(&self, writes: f64) -> Option<f64> {
        let row: Vec<f64> = self
            .cells
            .iter()
            .filter(|cell| (cell.writes - writes).abs() < 1e-9)
            .filter_map(|cell| cell.p95_ns.map(|ns| ns as f64))
            .collect();
        median(&row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Rest;

    fn rung(load: f64, rate: f64) -> Rung {
        Rung {
            load,
            rate,
            bandwidth: rate * 16384.0,
            mean: Duration::from_secs_f64(load / rate),
            p99: None,
            device_queue: Some(load),
            device_await: None,
            device_utilization: Some(1.0),
            credits: None,
        }
    }

    /// The study's standard EBS volume: one server of 8 ms.
    fn climbed() -> Vec<Rung> {
        [(1.0, 124.0), (2.0, 124.0), (4.0, 124.0), (8.0, 124.0), (16.0, 124.0)]
            .map(|(n, x)| rung(n, x))
            .to_vec()
    }

    fn tipping() -> Tipping {
        let promise: DiskPromise = "await < 50 ms".parse().unwrap();
        let goals = Goals {
            guess: guess(&climbed(), promise),
            confirmations: 2,
            sweeps: false,
            short: Duration::from_secs(1),
            long: Duration::from_secs(1),
            duration_sum: Duration::from_secs(2),
            confirmation: Duration::from_secs(1),
            ..Goals::new(Scale::Sessions, vec![promise.slo()], 1.0, 64.0)
        };
        let mut tipping = Tipping {
            promise,
            rungs: climbed(),
            goals,
            trials: vec![],
            evidence: None,
            sizings: vec![],
            demand: None,
            checked: vec![],
            unchecked: None,
        };
        while let Step::Run(request) = next(&tipping.trials, &tipping.goals) {
            let scheduled = (124.0 * request.duration.as_secs_f64()) as u64;
            let late = if request.load / 124.0 > 0.05 { scheduled } else { 0 };
            tipping.trials.push(FinishedTrial {
                load: request.load,
                duration: request.duration,
                lost_after: None,
                device: None,
                canaries: vec![],
                scheduled,
                late: vec![late],
                failed: 0,
                not_sent: 0,
                unfinished: 0,
                generator_late: false,
                late_generators: vec![],
                purpose: request.purpose,
                rest: Rest::Baseline,
                rested_for: Duration::ZERO,
            });
        }
        tipping
    }

    #[test]
    fn the_studys_volume_tips_between_six_and_seven() {
        let tipping = tipping();
        let capacity = tipping.capacity().unwrap();
        assert_eq!((capacity.low, capacity.high), (Some(6.0), Some(7.0)), "{}", capacity.sentence());
        let said = tipping.sentences().join("\n");
        assert!(said.contains("holds up to 6") && said.contains("200 dependent requests"), "{said}");
        assert!((tipping.knee().unwrap() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_to_buy_follows_from_the_tipping_point() {
        let tipping = tipping();
        let bought = tipping.purchases(Ratio(1.0));
        let clients: Vec<u32> = bought.iter().map(|(clients, _)| *clients).collect();
        assert_eq!(clients, [12, 24, 60]);
        for (clients, [striped, mirrored]) in &bought {
            assert!(striped.predicted <= tipping.promise.limit && mirrored.disks >= striped.disks);
            // One disk holds 6 clients; requests that meet on a disk while another idles take more than a
            // share.
            assert!(striped.disks.unwrap() >= clients / 6, "{clients}: {striped:?}");
        }
        let percentile = Tipping { promise: "p99 < 50 ms".parse().unwrap(), ..tipping };
        assert!(percentile.purchases(Ratio(1.0)).is_empty(), "a mean says nothing about it");
    }

    #[test]
    fn a_guess_lies_where_the_line_crosses() {
        let promise: DiskPromise = "await < 50 ms".parse().unwrap();
        let guess = guess(&climbed(), promise).unwrap();
        assert!((guess - 6.2).abs() < 0.1, "{guess}");
        assert_eq!(super::guess(&[rung(1.0, 1.0)], promise), None, "it held nowhere");
        assert_eq!(saturating(&climbed()).unwrap().load, 1.0);
    }
}
