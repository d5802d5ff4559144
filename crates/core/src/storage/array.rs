//! How many disks it takes: a stripe of disks as a closed queueing network.
//!
//! One disk under n requests in flight does X(n) requests per second; that was measured. A stripe of k of
//! them under N clients is k stations with these load-dependent rates, each request going to any of them
//! alike: flow-equivalent servers (Chandy, Herzog & Woo 1975), solved by convolution (Buzen 1973). Clients
//! that pile up on one disk while another idles are in the formula; that makes it less than N ÷ k on each.

use crate::units::{Ratio, span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Throughput of one disk by requests in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    points: Vec<(u32, f64)>,
}

impl Curve {
    /// From (requests in flight, requests per second); `None` without a point above 0.
    pub fn new(mut points: Vec<(u32, f64)>) -> Option<Curve> {
        points.retain(|(n, rate)| *n > 0 && *rate > 0.0 && rate.is_finite());
        points.sort_by_key(|(n, _)| *n);
        points.dedup_by_key(|(n, _)| *n);
        (!points.is_empty()).then_some(Curve { points })
    }

    /// Requests per second with `n` in flight: straight between points, in proportion below the first, flat
    /// beyond the last.
    pub fn rate(&self, n: u32) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at < n);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (_, Some((at, rate))) if *at == n => *rate,
            (None, Some((at, rate))) => rate * f64::from(n) / f64::from(*at),
            (Some((a, x)), Some((b, y))) => x + (y - x) * f64::from(n - a) / f64::from(b - a),
            (Some((_, x)), None) => x,
            (None, None) => unreachable!("a curve has a point"),
        }
    }
}

/// How disks are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Raid {
    /// Striped: each request goes to one disk.
    Zero,
    /// Striped mirrors: a read goes to either half of a pair, a write to both.
    Ten,
}

impl Raid {
    /// "RAID 0".
    pub fn name(self) -> &'static str {
        match self {
            Raid::Zero => "RAID 0",
            Raid::Ten => "RAID 10",
        }
    }

    /// The least number of disks, and by how many it grows.
    pub fn step(self) -> u32 {
        match self {
            Raid::Zero => 1,
            Raid::Ten => 2,
        }
    }
}

/// What is to be held, by which disks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Clients, each with one request in flight.
    pub clients: u32,
    /// Mean latency that they are to see at most.
    #[serde(with = "span", rename = "limit_ns")]
    pub limit: Duration,
    /// Share of requests that are reads.
    pub reads: Ratio,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sizing {
    /// How the disks are put together.
    pub raid: Raid,
    /// How many; `None` if even [`MOST_DISKS`] are too few.
    pub disks: Option<u32>,
    /// Predicted mean latency with that number of disks.
    #[serde(with = "span", rename = "predicted_ns")]
    pub predicted: Duration,
    /// Predicted requests per second of all.
    pub requests_per_s: f64,
}

/// Nobody builds a larger stripe of single disks.
pub const MOST_DISKS: u32 = 256;

/// What the formula takes for granted.
pub const ASSUMPTIONS: &str = "every request goes to any of the disks alike and independently of the others (no hot spots, \
    requests smaller than a stripe); the controller costs nothing; in RAID 10 a write is two requests, and waits for the \
    slower of them a little longer than predicted";

/// Mean latency and requests per second of `disks` under `clients`. A write in RAID 10 is two requests.
pub fn predict(curve: &Curve, raid: Raid, disks: u32, clients: u32, reads: Ratio) -> (Duration, f64) {
    let copies = match raid {
        Raid::Zero => 1.0,
        Raid::Ten => 1.0 + (1.0 - reads.0),
    };
    let customers = ((f64::from(clients) * copies).round() as usize).max(1);
    let station = station(curve, customers);
    let mut all = station.clone();
    for _ in 1..disks {
        all = convolve(&all, &station);
    }
    answer(&all, disks, customers, copies)
}

/// The fewest disks that keep the limit.
pub fn size(curve: &Curve, raid: Raid, demand: &Demand) -> Sizing {
    let copies = if raid == Raid::Ten { 2.0 - demand.reads.0 } else { 1.0 };
    let customers = ((f64::from(demand.clients) * copies).round() as usize).max(1);
    let station = station(curve, customers);
    let mut all = station.clone();
    let mut last = (Duration::MAX, 0.0);
    for disks in 1..=MOST_DISKS {
        if disks > 1 {
            all = convolve(&all, &station);
        }
        if disks % raid.step() != 0 {
            continue;
        }
        last = answer(&all, disks, customers, copies);
        if last.0 <= demand.limit {
            return Sizing { raid, disks: Some(disks), predicted: last.0, requests_per_s: last.1 };
        }
    }
    Sizing { raid, disks: None, predicted: last.0, requests_per_s: last.1 }
}

fn answer(all: &[f64], disks: u32, customers: usize, copies: f64) -> (Duration, f64) {
    // Throughput of one station with relative visits of 1 is G(N − 1) ÷ G(N), in logarithms.
    let each = (all[customers - 1] - all[customers]).exp();
    let requests = each * f64::from(disks);
    (Duration::from_secs_f64(customers as f64 / requests), requests / copies)
}

/// ln of Π 1 ÷ X(i) for 0..=N requests at one disk.
fn station(curve: &Curve, customers: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let rest = (1..=customers).map(|n| {
        sum -= curve.rate(n as u32).ln();
        sum
    });
    std::iter::once(0.0).chain(rest.collect::<Vec<_>>()).collect()
}

/// Σ over j of a(j) b(n − j), of logarithms.
fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    (0..a.len())
        .map(|n| {
            let largest = (0..=n).map(|j| a[j] + b[n - j]).fold(f64::NEG_INFINITY, f64::max);
            largest + (0..=n).map(|j| (a[j] + b[n - j] - largest).exp()).sum::<f64>().ln()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// k exponential stations of one server each, balanced: R = S (N + k − 1) ÷ k (Lazowska et al. 1984, ch.
    /// 6).
    #[test]
    fn single_servers_agree_with_the_closed_form() {
        let curve = Curve::new(vec![(1, 100.0)]).unwrap();
        for (disks, clients) in [(1, 1), (1, 20), (4, 16), (8, 50)] {
            let (residence, rate) = predict(&curve, Raid::Zero, disks, clients, Ratio(1.0));
            let wanted = 0.01 * f64::from(clients + disks - 1) / f64::from(disks);
            assert!(
                (residence.as_secs_f64() / wanted - 1.0).abs() < 1e-6,
                "{disks} {clients}: {residence:?}"
            );
            assert!((rate * residence.as_secs_f64() / f64::from(clients) - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn a_disk_without_queue_stays_without_queue() {
        // 7 ms, however many are in flight: latency stays 7 ms on any stripe.
        let curve = Curve::new((1..=64).map(|n| (n, f64::from(n) / 0.007)).collect()).unwrap();
        let (residence, _) = predict(&curve, Raid::Zero, 4, 64, Ratio(1.0));
        assert!((residence.as_secs_f64() - 0.007).abs() < 1e-5);
    }

    #[test]
    fn more_disks_are_faster_and_mirrors_pay_for_writes() {
        let curve = Curve::new(vec![(1, 130.0), (5, 127.5), (10, 125.0)]).unwrap();
        let demand = Demand { clients: 50, limit: Duration::from_millis(20), reads: Ratio(1.0) };
        let reads = size(&curve, Raid::Zero, &demand);
        let mixed = size(&curve, Raid::Ten, &Demand { reads: Ratio(0.6), ..demand.clone() });
        let (disks, twice) = (reads.disks.unwrap(), mixed.disks.unwrap());
        assert!(reads.predicted <= demand.limit && twice > disks && twice % 2 == 0, "{disks} and {twice}");
        let (fewer, _) = predict(&curve, Raid::Zero, disks - 1, 50, Ratio(1.0));
        assert!(fewer > demand.limit);
        let never = Demand { limit: Duration::from_millis(5), ..demand };
        assert_eq!(size(&curve, Raid::Zero, &never).disks, None, "a single request takes 7.7 ms");
    }

    #[test]
    fn curves_are_straight_between_points() {
        let curve = Curve::new(vec![(10, 1000.0), (2, 200.0)]).unwrap();
        assert_eq!(
            (curve.rate(1), curve.rate(2), curve.rate(6), curve.rate(99)),
            (100.0, 200.0, 600.0, 1000.0)
        );
        assert!(Curve::new(vec![(0, 5.0), (3, 0.0)]).is_none());
    }
}
