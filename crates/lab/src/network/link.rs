//! What a link does to packets, as data, and as arithmetic on one packet at a time.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tipover_core::units::{Bytes, Ratio, span};

/// What happens to packets in one direction between two members. The default lets all through at once.
///
/// Delay, jitter and loss are each packet's own; jitter never changes the order, as in a queue, only
/// `reorder` does. Packets that are under way when a rule changes still arrive as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// Held back by this much.
    #[serde(rename = "delay_ns", with = "span")]
    pub delay: Duration,
    /// And by up to this much more, evenly spread.
    #[serde(rename = "jitter_ns", with = "span")]
    pub jitter: Duration,
    /// Lost with this probability.
    pub loss: Ratio,
    /// Delivered twice with this probability.
    pub duplicate: Ratio,
    /// Sent ahead of what is held back with this probability; without delay there is nothing to overtake.
    pub reorder: Ratio,
    /// Bytes per second; `None`: as fast as the machine. What would wait in its queue longer than `queue` is
    /// lost.
    #[serde(rename = "bandwidth_bytes_per_s")]
    pub bandwidth: Option<Bytes>,
    /// Nothing passes.
    pub cut: bool,
    /// Through a cut, TCP's resets pass all the same: how a machine that was without power tells its peers
    /// that it knows no connection of theirs any more.
    pub resets: bool,
}

/// How long a queue before a limited bandwidth may become: a tenth of a second is what routers of this size
/// have.
pub(crate) const QUEUE: Duration = Duration::from_millis(100);

/// A link that no network can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Senseless(pub String);

impl Link {
    /// Lets nothing through.
    pub fn cut() -> Link {
        Link { cut: true, ..Link::default() }
    }

    /// Holds every packet back.
    pub fn delayed(delay: Duration) -> Link {
        Link { delay, ..Link::default() }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), Senseless> {
        for (name, ratio) in [("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)] {
            if !(0.0..=1.0).contains(&ratio.0) {
                return Err(Senseless(format!(
                    "{name} is a probability, 0 to 100 %, not {}",
                    ratio.rounded()
                )));
            }
        }
        const LONGEST: Duration = Duration::from_secs(60);
        if self.delay > LONGEST || self.jitter > LONGEST {
            return Err(Senseless("a delay of more than a minute is a cut link: use cut".into()));
        }
        match self.bandwidth {
            Some(Bytes(..1500)) => Err(Senseless(
                "a bandwidth below 1500 bytes per second cannot carry one packet in time".into(),
            )),
            _ => Ok(()),
        }
    }
}

/// What a link did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Packets that its sender sent.
    pub sent: u64,
    /// Bytes of these.
    #[serde(rename = "sent_bytes")]
    pub bytes: u64,
    /// Copies handed to the receiver.
    pub delivered: u64,
    /// Dropped because the link was cut.
    pub cut: u64,
    /// Dropped by chance.
    pub lost: u64,
    /// Dropped because the queue before the bandwidth was full.
    pub overflowed: u64,
    /// Held back.
    pub delayed: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Sent ahead of others.
    pub reordered: u64,
    /// Not taken by the receiver's device: its own queue was full.
    pub refused: u64,
}

impl LinkCounters {
    /// How many packets its rules touched: none means that no fault on it had an effect.
    pub fn touched(&self) -> u64 {
        self.cut + self.lost + self.overflowed + self.delayed + self.duplicated + self.reordered
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &LinkCounters) -> LinkCounters {
        LinkCounters {
            sent: self.sent - earlier.sent,
            bytes: self.bytes - earlier.bytes,
            delivered: self.delivered - earlier.delivered,
            cut: self.cut - earlier.cut,
            lost: self.lost - earlier.lost,
            overflowed: self.overflowed - earlier.overflowed,
            delayed: self.delayed - earlier.delayed,
            duplicated: self.duplicated - earlier.duplicated,
            reordered: self.reordered - earlier.reordered,
            refused: self.refused - earlier.refused,
        }
    }
}

/// One direction between two members: its rule and what it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
    /// What happens between them.
    pub link: Link,
    /// What happened so far.
    pub counters: LinkCounters,
}

/// What to do with a packet: nothing, or hand it over after these waits (one each for the copies).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped,
    Deliver { first: Duration, copy: Option<Duration> },
}

/// A link at work. Time is in nanoseconds since the switch began.
#[derive(Debug)]
pub(crate) struct Direction {
    pub link: Link,
    pub counters: LinkCounters,
    chance: u64,
    /// When the bandwidth has sent all before.
    free: u64,
    /// When the last packet that keeps the order arrives.
    last: u64,
}

impl Direction {
    pub fn new(seed: u64) -> Direction {
        Direction { link: Link::default(), counters: LinkCounters::default(), chance: seed, free: 0, last: 0 }
    }

    /// Decides on a packet that arrives at `now`.
    pub fn decide(&mut self, now: u64, bytes: u64) -> Fate {
        self.counters.sent += 1;
        self.counters.bytes += bytes;
        let link = self.link;
        if link == Link::default() && self.last <= now {
            return Fate::Deliver { first: Duration::ZERO, copy: None };
        }
        if link.cut {
            self.counters.cut += 1;
            return Fate::Dropped;
        }
        if self.happens(link.loss) {
            self.counters.lost += 1;
            return Fate::Dropped;
        }
        let mut leaves = now;
        if let Some(Bytes(speed)) = link.bandwidth {
            let begins = self.free.max(now);
            if begins - now > QUEUE.as_nanos() as u64 {
                self.counters.overflowed += 1;
                return Fate::Dropped;
            }
            // 2^64 nanoseconds of sending would be centuries; the cast is safe for any packet.
            leaves = begins + (u128::from(bytes) * 1_000_000_000 / u128::from(speed)) as u64;
            self.free = leaves;
        }
        if link.delay + link.jitter > Duration::ZERO && self.happens(link.reorder) {
            self.counters.reordered += 1;
            return Fate::Deliver { first: Duration::from_nanos(leaves - now), copy: None };
        }
        let jitter = (link.jitter.as_nanos() as f64 * self.even()) as u64;
        let arrives = (leaves + link.delay.as_nanos() as u64 + jitter).max(self.last);
        self.last = arrives;
        let first = Duration::from_nanos(arrives - now);
        if !first.is_zero() {
            self.counters.delayed += 1;
        }
        let copy = self.happens(link.duplicate).then(|| {
            self.counters.duplicated += 1;
            first
        });
        Fate::Deliver { first, copy }
    }

    fn happens(&mut self, probability: Ratio) -> bool {
        // Nothing is drawn for what cannot happen, so that rules do not disturb each other's luck.
        probability.0 > 0.0 && self.even() < probability.0
    }

    /// An even draw in [0, 1): SplitMix64 (Steele, Lea, Flood 2014), seeded per link.
    fn even(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn direction(link: Link) -> Direction {
        Direction { link, ..Direction::new(7) }
    }

    fn first(fate: Fate) -> Option<u64> {
        match fate {
            Fate::Dropped => None,
            Fate::Deliver { first, .. } => Some(first.as_nanos() as u64),
        }
    }

    #[test]
    fn nothing_happens_on_an_open_link_and_nothing_passes_a_cut_one() {
        let mut open = direction(Link::default());
        assert_eq!(first(open.decide(5, 100)), Some(0));
        assert_eq!((open.counters.sent, open.counters.bytes, open.counters.touched()), (1, 100, 0));
        let mut cut = direction(Link::cut());
        assert_eq!(first(cut.decide(5, 100)), None);
        assert_eq!((cut.counters.cut, cut.counters.touched()), (1, 1));
    }

    #[test]
    fn probabilities_are_kept_to() {
        let rare = Ratio(0.1);
        let delay = Duration::from_millis(1);
        let mut link =
            direction(Link { loss: rare, duplicate: rare, reorder: rare, delay, ..Link::default() });
        let sent = 100_000;
        for n in 0..sent {
            link.decide(n * MS, 100);
        }
        // Six standard deviations of a binomial of 0.1 on what each rule sees.
        let about = |count: u64, of: u64| {
            let (mean, deviation) = (of as f64 * 0.1, (of as f64 * 0.09).sqrt());
            assert!((count as f64 - mean).abs() < 6.0 * deviation, "{count} of {of}");
        };
        let c = link.counters;
        about(c.lost, sent);
        about(c.reordered, sent - c.lost);
        about(c.duplicated, sent - c.lost - c.reordered);
    }

    #[test]
    fn bandwidth_spaces_packets_and_its_queue_is_bounded() {
        let mut link = direction(Link { bandwidth: Some(Bytes(1_000_000)), ..Link::default() });
        // A thousand bytes take a millisecond; all are sent at once.
        let waits: Vec<Option<u64>> = (0..200).map(|_| first(link.decide(0, 1000))).collect();
        assert_eq!(waits[..3], [Some(MS), Some(2 * MS), Some(3 * MS)]);
        let (passed, dropped) = (waits.iter().flatten().count() as u64, link.counters.overflowed);
        assert_eq!(passed + dropped, 200);
        assert_eq!(passed, QUEUE.as_millis() as u64 + 1);
    }

    #[test]
    fn senseless_links_are_refused() {
        for link in [
            Link { loss: Ratio(1.5), ..Link::default() },
            Link { duplicate: Ratio(f64::NAN), ..Link::default() },
            Link::delayed(Duration::from_secs(61)),
            Link { bandwidth: Some(Bytes(1)), ..Link::default() },
        ] {
            assert!(link.check().is_err(), "{link:?}");
        }
        assert!(Link { loss: Ratio(1.0), ..Link::delayed(Duration::from_secs(1)) }.check().is_ok());
    }

    proptest! {
        #[test]
        fn jitter_keeps_the_order_and_its_bounds(
            jitter in 0u64..5_000_000,
            gaps in prop::collection::vec(0u64..2_000_000, 1..200),
        ) {
            let delay = Duration::from_millis(1);
            let mut link = direction(Link { delay, jitter: Duration::from_nanos(jitter), ..Link::default() });
            let (mut now, mut last) = (0, 0);
            for gap in gaps {
                now += gap;
                let arrives = now + first(link.decide(now, 100)).unwrap();
                prop_assert!(arrives >= last, "overtaken");
                // What waits for the one before it never waits longer than that one's own bound.
                prop_assert!(arrives >= now + MS && arrives <= now + MS + jitter);
                last = arrives;
            }
        }
        #[test]
        fn every_packet_is_accounted_for(loss in 0.0..1.0, duplicate in 0.0..1.0, n in 1u64..500) {
            let rule = Link { loss: Ratio(loss), duplicate: Ratio(duplicate), ..Link::default() };
            let mut link = direction(rule);
            let mut copies = 0;
            for i in 0..n {
                if let Fate::Deliver { copy, .. } = link.decide(i, 60) {
                    copies += 1 + u64::from(copy.is_some());
                }
            }
            prop_assert_eq!(copies, n - link.counters.lost + link.counters.duplicated);
        }
    }
}
