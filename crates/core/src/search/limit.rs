//! What limits: tested by an intervention and not guessed.
//!
//! If a resource is the limit, more of it raises the capacity; if it is not, nothing happens. The judge reads
//! the two intervals and nothing else.

use crate::units::significant;
use serde::{Deserialize, Serialize};

/// Something that may be the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Requests per second of the disk.
    DiskRequests,
    /// Bytes per second of the disk.
    DiskBandwidth,
    /// Service time of the disk.
    DiskLatency,
    /// How many requests the disk serves at once.
    DiskParallelism,
    /// Credits for bursts that the disk has left.
    DiskCredits,
    /// The engine's cache.
    EngineCache,
    /// Memory for the page cache.
    PageCache,
    /// Processors.
    Processors,
    /// Too many sessions: they wait for each other.
    Contention,
    /// Too few sessions: the target idles.
    Concurrency,
    /// Waiting for durability: flushes or replicas.
    Durability,
}

/// A change of one setting that tells whether a resource is the limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Intervention {
    /// What is tested.
    pub resource: Resource,
    /// The resource in words: "the disk's IOPS".
    pub name: &'static str,
    /// The change in words: "more IOPS".
    pub change: &'static str,
    /// By what the setting is multiplied.
    pub factor: f64,
    /// What else may answer to the same change.
    pub caution: &'static str,
}

const fn intervention(
    resource: Resource,
    name: &'static str,
    change: &'static str,
    factor: f64,
    caution: &'static str,
) -> Intervention {
    Intervention { resource, name, change, factor, caution }
}

/// The interventions, the ones that can most easily be made first.
pub const INTERVENTIONS: [Intervention; 11] = [
    intervention(Resource::DiskRequests, "the disk's IOPS", "more IOPS", 2.0, "a gate also delays"),
    intervention(
        Resource::DiskBandwidth,
        "the disk's bandwidth",
        "more bandwidth",
        2.0,
        "requests may be small",
    ),
    intervention(
        Resource::DiskLatency,
        "the disk's latency",
        "shorter latency",
        0.5,
        "with a fixed number of sessions latency bounds throughput",
    ),
    intervention(
        Resource::DiskParallelism,
        "how many requests the disk serves at once",
        "more at once",
        2.0,
        "a gate behind it hides it",
    ),
    intervention(
        Resource::DiskCredits,
        "the disk's burst credits",
        "a full bucket",
        2.0,
        "it empties again: what a burst gives is not for long",
    ),
    intervention(
        Resource::EngineCache,
        "the engine's cache",
        "more cache",
        1.5,
        "memory of the group must grow with it, or the page cache shrinks",
    ),
    intervention(
        Resource::PageCache,
        "memory for the page cache",
        "more memory",
        1.5,
        "keep the engine's cache",
    ),
    intervention(
        Resource::Processors,
        "the processors",
        "more processors",
        2.0,
        "generator and target may share them",
    ),
    intervention(
        Resource::Contention,
        "too many sessions",
        "fewer sessions",
        0.5,
        "an open loop has no such setting",
    ),
    intervention(
        Resource::Concurrency,
        "too few sessions",
        "more sessions",
        2.0,
        "queues grow with sessions",
    ),
    intervention(
        Resource::Durability,
        "waiting for durability",
        "no flush on acknowledgement",
        0.5,
        "only as a test: acknowledged writes can then be lost",
    ),
];

/// A capacity with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What an intervention showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The capacity rose with the resource.
    LimitedBy,
    /// It did not.
    NotBy,
    /// The intervals are too wide to say.
    Undecided,
}

/// The judgement with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub limit: Limit,
    /// Capacity after ÷ before: likeliest, least, most.
    pub gain: (f64, f64, f64),
    /// ln(gain) ÷ ln(factor): 1 where the capacity follows the resource in proportion, 0 where it does not
    /// follow at all. Likeliest, least, most.
    pub elasticity: (f64, f64, f64),
    /// The same, as a person reads it.
    pub sentence: String,
}

/// From here on a resource counts as the limit: the capacity follows it at least half-way, in logarithms.
const HALF: f64 = 0.5;

/// Judges an intervention by the capacity before and after it. Limited: the intervals do not overlap, in the
/// right direction, and the middle of the gain is at least half of what proportion would give. Not limited:
/// even the largest gain that the intervals allow is less than half.
///
/// # Panics
/// If an interval is empty or not above 0, which is a fault of the caller.
pub fn judge(intervention: &Intervention, before: Measured, after: Measured) -> Judgement {
    for interval in [before, after] {
        assert!(interval.low > 0.0 && interval.low <= interval.high, "an interval above 0: {interval:?}");
    }
    let middle = |interval: Measured| (interval.low * interval.high).sqrt();
    let gain = (middle(after) / middle(before), after.low / before.high, after.high / before.low);
    // Halving a latency and doubling a rate are both "more".
    let full = intervention.factor.ln().abs();
    let elasticity = (gain.0.ln() / full, gain.1.ln() / full, gain.2.ln() / full);
    let limit = if elasticity.1 > 0.0 && elasticity.0 >= HALF {
        Limit::LimitedBy
    } else if elasticity.2 < HALF {
        Limit::NotBy
    } else {
        Limit::Undecided
    };
    let name = intervention.name;
    let evidence = format!(
        "{} ({} times) changed the capacity {} times, between {} and {}",
        intervention.change,
        significant(intervention.factor, 2),
        significant(gain.0, 3),
        significant(gain.1, 3),
        significant(gain.2, 3)
    );
    let sentence = match limit {
        Limit::LimitedBy => format!("limited by {name}: {evidence}"),
        Limit::NotBy if elasticity.1 > 0.0 => format!("{name} matters but is not the limit: {evidence}"),
        Limit::NotBy => format!("not {name}: {evidence}"),
        Limit::Undecided => {
            format!("undecided whether it is {name}: {evidence}; a narrower search would tell")
        }
    };
    Judgement { limit, gain, elasticity, sentence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IOPS: &Intervention = &INTERVENTIONS[0];

    fn interval(middle: f64, half: f64) -> Measured {
        Measured { low: middle * (1.0 - half), high: middle * (1.0 + half) }
    }

    #[test]
    fn the_three_verdicts_have_their_words() {
        let before = interval(1000.0, 0.08);
        for (after, limit, words) in [
            (interval(1950.0, 0.08), Limit::LimitedBy, "limited by the disk's IOPS: more IOPS"),
            (interval(1010.0, 0.08), Limit::NotBy, "not the disk's IOPS"),
            (interval(1190.0, 0.005), Limit::NotBy, "matters but is not the limit"),
            (interval(1350.0, 0.3), Limit::Undecided, "undecided"),
            (interval(700.0, 0.05), Limit::NotBy, "not the disk's IOPS"),
        ] {
            let judgement = judge(IOPS, before, after);
            assert_eq!(judgement.limit, limit, "{}", judgement.sentence);
            let certain = limit != Limit::NotBy || !words.starts_with("matters");
            assert!(!certain || judgement.sentence.contains(words), "{}", judgement.sentence);
        }
        let sharp = judge(IOPS, interval(1000.0, 0.01), interval(1190.0, 0.01));
        assert!(sharp.sentence.contains("matters but is not the limit"), "{}", sharp.sentence);
    }

    #[test]
    fn fewer_sessions_and_shorter_latencies_count_as_more() {
        for intervention in INTERVENTIONS {
            let judgement = judge(&intervention, interval(100.0, 0.05), interval(200.0, 0.05));
            assert_eq!(judgement.limit, Limit::LimitedBy, "{}", intervention.change);
        }
    }

    proptest! {
        /// Narrowing both intervals around their middles never turns one certain verdict into the other.
        #[test]
        fn precision_never_reverses_a_verdict(
            gain in 0.3..4.0f64, wide in 0.0..0.4f64, share in 0.0..1.0f64,
        ) {
            let judged = |half| {
                let around = |m: f64| Measured { low: m / (1.0 + half), high: m * (1.0 + half) };
                judge(IOPS, around(1000.0), around(1000.0 * gain)).limit
            };
            let (rough, fine) = (judged(wide), judged(wide * share));
            prop_assert!(rough == Limit::Undecided || rough == fine, "{:?} then {:?}", rough, fine);
        }

        /// Calling the same truth limited or not depends on the gain, not on the unit.
        #[test]
        fn units_do_not_matter(gain in 0.3..4.0f64, half in 0.0..0.4f64, unit in 1e-3..1e6f64) {
            let judged = |u: f64| judge(IOPS, interval(7.0 * u, half), interval(7.0 * gain * u, half));
            prop_assert_eq!(judged(1.0).limit, judged(unit).limit);
        }
    }
}
