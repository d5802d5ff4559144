//! What limits a disk: tested by changing the disk where that is possible, else inferred from how it answers
//! to other loads, and said to be so.

use crate::device::Spec;
use crate::measure::mean_of_trials;
use crate::search::limit::{
    INTERVENTIONS, Intervention, Judgement, Limit, Measured as Interval, Resource, judge,
};
use crate::units::{Bytes, Rate, significant, span};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// Throughput of a disk under a load that saturates it, from several stretches of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saturated {
    /// Bytes of a request.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests per second, stretch by stretch.
    pub requests_per_s: Vec<f64>,
}

impl Saturated {
    /// Mean throughput with its interval; `None` where nothing was answered.
    pub fn interval(&self) -> Option<Interval> {
        let mean = mean_of_trials(&self.requests_per_s)?;
        // A stretch more or less at its end is a request more or less.
        let (low, high) = if mean.low.is_finite() { (mean.low, mean.high) } else { (mean.value, mean.value) };
        let low = low.max(mean.value / 2.0).min(mean.value * 0.99);
        (mean.value > 0.0).then_some(Interval { low, high: high.max(mean.value * 1.01) })
    }

    /// Mean throughput.
    pub fn rate(&self) -> f64 {
        mean_of_trials(&self.requests_per_s).map_or(0.0, |mean| mean.value)
    }
}

/// What was changed, and how the saturated throughput answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// What was changed.
    pub resource: Resource,
    /// The disk with the change.
    pub spec: String,
    /// Throughput with it.
    pub after: Saturated,
}

/// The evidence about what limits a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Latency of a request that is alone.
    #[serde(with = "span", rename = "alone_ns")]
    pub alone: Duration,
    /// Throughput at the load where more gave no more.
    pub saturated: Saturated,
    /// With twice as many requests in flight.
    pub doubled: Option<Saturated>,
    /// With larger requests.
    pub larger: Option<Saturated>,
    /// Changes of a shaped disk.
    #[serde(default)]
    pub tested: Vec<Tested>,
}

/// What limits, in words, and how it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The resource; `None` where none was reached or none fits.
    pub resource: Option<Resource>,
    /// By changing the disk, rather than by inference.
    pub tested: bool,
    /// The same, as a person reads it.
    pub sentence: String,
}

/// The changes that can be made to a shaped disk, each to one resource and nothing else.
pub fn interventions(spec: &Spec) -> Vec<(&'static Intervention, Spec)> {
    INTERVENTIONS
        .iter()
        .filter_map(|intervention| {
            let mut changed = spec.clone();
            change(&mut changed, intervention)?;
            changed.check().is_ok().then_some((intervention, changed))
        })
        .collect()
}

fn change(spec: &mut Spec, intervention: &Intervention) -> Option<()> {
    let factor = intervention.factor;
    let faster = |rate: &mut Option<Rate>| rate.as_mut().map(|rate| rate.0 *= factor);
    let wider = |pipe: &mut Option<Bytes>| pipe.as_mut().map(|pipe| pipe.0 = (pipe.0 as f64 * factor) as u64);
    match intervention.resource {
        Resource::DiskRequests => {
            let burst = spec.burst.as_mut().map(|burst| burst.iops.0 *= factor);
            let gates = [&mut spec.iops, &mut spec.read_iops, &mut spec.write_iops].map(faster);
            gates.into_iter().flatten().chain(burst).next()
        }
        Resource::DiskBandwidth => {
            let pipes = [&mut spec.bandwidth, &mut spec.read_bandwidth, &mut spec.write_bandwidth].map(wider);
            pipes.into_iter().flatten().next()
        }
        Resource::DiskLatency => {
            if spec.latency.is_zero() && spec.write_latency.is_none_or(|latency| latency.is_zero()) {
                return None;
            }
            spec.latency = spec.latency.mul_f64(factor);
            spec.write_latency = spec.write_latency.map(|latency| latency.mul_f64(factor));
            Some(())
        }
        Resource::DiskParallelism => {
            let servers = spec.servers()?;
            spec.parallel = NonZeroU32::new((f64::from(servers) * factor) as u32);
            Some(())
        }
        Resource::DiskCredits => {
            let burst = spec.burst.as_mut()?;
            burst.start = None;
            Some(())
        }
        _ => None,
    }
}

/// More requests in flight that give this much less than in proportion give no more.
const NO_MORE: f64 = 1.1;

/// Judges the evidence.
pub fn find(evidence: &Evidence) -> Finding {
    let judged = judgements(evidence);
    // Latency and parallelism are one limit seen from two sides; the one that answers most is named.
    let proved = judged
        .iter()
        .filter(|(_, judgement)| judgement.limit == Limit::LimitedBy)
        .max_by(|a, b| a.1.elasticity.0.total_cmp(&b.1.elasticity.0));
    if let Some((intervention, judgement)) = proved {
        let sentence = format!("{} (tested by changing the disk)", judgement.sentence);
        return Finding { resource: Some(intervention.resource), tested: true, sentence };
    }
    let mut inferred = infer(evidence);
    if !judged.is_empty() {
        let excluded: Vec<&str> = judged
            .iter()
            .filter(|(_, judgement)| judgement.limit == Limit::NotBy)
            .map(|(intervention, _)| intervention.name)
            .collect();
        if !excluded.is_empty() {
            inferred.sentence += &format!("; tested and excluded: {}", excluded.join(", "));
        }
    }
    inferred
}

/// What every change showed.
pub fn judgements(evidence: &Evidence) -> Vec<(&'static Intervention, Judgement)> {
    let Some(before) = evidence.saturated.interval() else { return vec![] };
    evidence
        .tested
        .iter()
        .filter_map(|tested| {
            let intervention = INTERVENTIONS.iter().find(|known| known.resource == tested.resource)?;
            Some((intervention, judge(intervention, before, tested.after.interval()?)))
        })
        .collect()
}

fn infer(evidence: &Evidence) -> Finding {
    let inferred = |resource, text: String| Finding {
        resource,
        tested: false,
        sentence: format!("{text} (inferred from other loads, not tested: this disk cannot be changed)"),
    };
    let rate = evidence.saturated.rate();
    let shown = Rate(rate).rounded();
    if let Some(doubled) = &evidence.doubled
        && doubled.rate() > rate * NO_MORE
    {
        let text = format!(
            "no limit was reached: {} in flight do {shown}, and twice as many do {}",
            evidence.saturated.in_flight,
            Rate(doubled.rate()).rounded()
        );
        return inferred(None, text);
    }
    let elasticity = evidence.larger.as_ref().filter(|larger| larger.rate() > 0.0).map(|larger| {
        let factor = larger.block.0 as f64 / evidence.saturated.block.0 as f64;
        ((rate / larger.rate()).ln() / factor.ln(), factor, larger.rate())
    });
    let busy = rate * evidence.alone.as_secs_f64();
    match elasticity {
        Some((e, factor, larger)) if e > 0.75 => inferred(
            Some(Resource::DiskBandwidth),
            format!(
                "the disk's bandwidth limits: requests {} times as large are {} times fewer, {} either way",
                significant(factor, 2),
                significant(rate / larger, 2),
                Bytes((rate * evidence.saturated.block.0 as f64) as u64).rounded() + "/s"
            ),
        ),
        Some((e, factor, _)) if e < 0.25 && busy > 1.5 => inferred(
            Some(Resource::DiskParallelism),
            format!(
                "requests limit and not bytes: {shown}, also when they are {} times as large. At {} each that is {} at \
                 once: a gate for requests, or a number of them served at once",
                significant(factor, 2),
                span::rounded(evidence.alone),
                significant(busy, 2)
            ),
        ),
        Some((e, factor, _)) if e < 0.25 => inferred(
            Some(Resource::DiskRequests),
            format!(
                "requests limit and not bytes: {shown}, also when they are {} times as large; the disk serves about one at \
                 a time, or a gate lets no more through",
                significant(factor, 2)
            ),
        ),
        Some((_, factor, larger)) => inferred(
            None,
            format!(
                "requests and bytes both count: {shown}, and {} when they are {} times as large",
                Rate(larger).rounded(),
                significant(factor, 2)
            ),
        ),
        None => inferred(None, format!("more in flight give no more than {shown}; why was not looked at")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Kind;

    fn saturated(spec: &Spec, block: Bytes, in_flight: u32) -> Saturated {
        let rate = spec.ceiling(Kind::Read, block, in_flight).unwrap().0;
        Saturated { block, in_flight, requests_per_s: vec![rate * 0.995, rate, rate * 1.005, rate] }
    }

    fn evidence(spec: &str, changes: bool) -> Evidence {
        let spec: Spec = spec.parse().unwrap();
        let block = Bytes::kib(16);
        let tested = interventions(&spec).into_iter().map(|(intervention, changed)| Tested {
            resource: intervention.resource,
            spec: changed.to_string(),
            after: saturated(&changed, block, 64),
        });
        Evidence {
            alone: Duration::from_secs_f64(1.0 / spec.ceiling(Kind::Read, block, 1).unwrap().0),
            saturated: saturated(&spec, block, 64),
            doubled: Some(saturated(&spec, block, 128)),
            larger: Some(saturated(&spec, Bytes::kib(64), 64)),
            tested: if changes { tested.collect() } else { vec![] },
        }
    }

    #[test]
    fn the_planted_limit_is_found_by_changing_the_disk() {
        for (spec, wanted) in [
            ("iops=600,latency=7ms,bandwidth=500MB/s", Resource::DiskRequests),
            ("iops=6000,latency=1ms,bandwidth=10MB/s", Resource::DiskBandwidth),
            ("latency=8ms,parallel=4,iops=9000", Resource::DiskParallelism),
        ] {
            let found = find(&evidence(spec, true));
            let same_side = [Resource::DiskParallelism, Resource::DiskLatency];
            let got = found.resource.unwrap();
            let right = got == wanted || (same_side.contains(&got) && same_side.contains(&wanted));
            assert!(right && found.tested, "{spec}: {found:?}");
        }
    }

    #[test]
    fn without_changes_it_is_inferred_and_said_to_be_so() {
        for (spec, wanted) in [
            ("iops=600,latency=7ms,bandwidth=500MB/s", Some(Resource::DiskParallelism)),
            ("iops=6000,latency=1ms,bandwidth=10MB/s", Some(Resource::DiskBandwidth)),
            ("latency=8ms,parallel=1", Some(Resource::DiskRequests)),
            ("latency=8ms", None),
        ] {
            let found = find(&evidence(spec, false));
            assert_eq!((found.resource, found.tested), (wanted, false), "{spec}: {}", found.sentence);
            assert!(found.sentence.contains("inferred"));
        }
    }

    #[test]
    fn a_change_is_to_one_resource() {
        let spec: Spec =
            "iops=100,burst_iops=3000,burst_credits=50,burst_start=0,bandwidth=1MB/s,latency=1ms,parallel=2"
                .parse()
                .unwrap();
        let changed: Vec<String> =
            interventions(&spec).iter().map(|(_, changed)| changed.to_string()).collect();
        assert_eq!(
            changed,
            [
                "iops=200,burst_iops=6000,burst_credits=50,burst_start=0,bandwidth=1MB/s,latency=1ms,parallel=2",
                "iops=100,burst_iops=3000,burst_credits=50,burst_start=0,bandwidth=2MB/s,latency=1ms,parallel=2",
                "iops=100,burst_iops=3000,burst_credits=50,burst_start=0,bandwidth=1MB/s,latency=500us,parallel=2",
                "iops=100,burst_iops=3000,burst_credits=50,burst_start=0,bandwidth=1MB/s,latency=1ms,parallel=4",
                "iops=100,burst_iops=3000,burst_credits=50,bandwidth=1MB/s,latency=1ms,parallel=2",
            ]
        );
        assert!(interventions(&"iops=5".parse().unwrap()).len() == 1);
    }
}
