//! A power cut: what becomes of everything that was written and not flushed.

use crate::units::{Bytes, ParseError, Ratio, bad, span};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How the power goes: `survive=50%,torn=512B,seed=7`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PowerCut {
    /// With which probability each 4 KiB block that was not flushed is on the medium nevertheless.
    pub survive: Ratio,
    /// Survivors may be torn: each piece of this size is old or new by itself. `None` = whole blocks.
    pub torn: Option<Bytes>,
    /// What was written longer ago than this has reached the medium even without a flush: devices drain
    /// their caches. `None` = never.
    pub drained_after: Option<Duration>,
    /// What chance depends on.
    pub seed: u64,
}

/// What a block that was not flushed looks like after the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// As it was when it was last durable.
    Lost,
    /// As it was written.
    Kept,
    /// Bit n tells of the n-th piece whether it is as it was written.
    Torn(u64),
}

/// What a power cut did to a disk. What programs and the kernel still had in memory never reached the disk
/// and is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CutReport {
    /// Blocks back to what they were when they were last durable.
    pub lost_blocks: u64,
    /// Bytes of those that are other than before the cut, at most.
    pub lost_bytes: u64,
    /// Blocks that survived without a flush.
    pub kept_blocks: u64,
    /// Blocks that are partly old.
    pub torn_blocks: u64,
    /// File mode: names made, removed or changed that are undone.
    pub lost_names: u64,
    /// File mode: those that survived without a flush; always the oldest.
    pub kept_names: u64,
    /// Writes under way that failed: nobody was told that they were done.
    #[serde(default)]
    pub failed_writes: u64,
    /// Flushes under way that failed, and made nothing durable.
    #[serde(default)]
    pub failed_flushes: u64,
}

impl CutReport {
    /// Both together, where a machine has two disks.
    pub fn and(self, other: CutReport) -> CutReport {
        CutReport {
            lost_blocks: self.lost_blocks + other.lost_blocks,
            lost_bytes: self.lost_bytes + other.lost_bytes,
            kept_blocks: self.kept_blocks + other.kept_blocks,
            torn_blocks: self.torn_blocks + other.torn_blocks,
            lost_names: self.lost_names + other.lost_names,
            kept_names: self.kept_names + other.kept_names,
            failed_writes: self.failed_writes + other.failed_writes,
            failed_flushes: self.failed_flushes + other.failed_flushes,
        }
    }

    /// Blocks that were written and not durable when the power went: lost, torn and kept ones.
    pub fn blocks_at_risk(&self) -> u64 {
        self.lost_blocks + self.torn_blocks + self.kept_blocks
    }
}

impl PowerCut {
    /// What becomes of a block; `number` tells blocks apart.
    pub fn fate(&self, number: u64) -> Fate {
        let mixed =
            self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03);
        if super::hash(mixed) >= self.survive.0 {
            return Fate::Lost;
        }
        match self.torn {
            None => Fate::Kept,
            Some(unit) => {
                let pieces = (4096 / unit.0.max(1)).clamp(1, 64) as u32;
                let all = u64::MAX >> (64 - pieces);
                // Half of the survivors are torn.
                let torn = super::hash(mixed ^ 1) < 0.5;
                let mask = (super::hash(mixed ^ 2) * (1u64 << 53) as f64) as u64 & all;
                if torn { Fate::Torn(mask) } else { Fate::Kept }
            }
        }
    }

    /// How many of `count` operations on names or lengths survive: the first ones, as a journal keeps their
    /// order. `salt` tells one sequence from others.
    pub fn surviving(&self, count: u64, salt: u64) -> u64 {
        let seed = self.seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let survives = |n: &u64| super::hash(seed ^ n.wrapping_mul(0xA24B_AED4_963E_E407)) < self.survive.0;
        (1..=count).take_while(survives).count() as u64
    }
}

impl fmt::Display for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "survive={}", self.survive.to_string().replace(' ', ""))?;
        if let Some(torn) = self.torn {
            write!(f, ",torn={}", torn.to_string().replace(' ', ""))?;
        }
        if let Some(after) = self.drained_after {
            write!(f, ",drained_after={}", span::print(after).replace(' ', ""))?;
        }
        if self.seed != 0 {
            write!(f, ",seed={}", self.seed)?;
        }
        Ok(())
    }
}

impl FromStr for PowerCut {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut cut = PowerCut::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key.trim() {
                "survive" => {
                    cut.survive = value.parse()?;
                    if !(0.0..=1.0).contains(&cut.survive.0) {
                        return Err(bad(part, "survive=0% to survive=100%"));
                    }
                }
                "torn" => {
                    let unit: Bytes = value.parse()?;
                    if ![512, 1024, 2048, 4096].contains(&unit.0) {
                        return Err(bad(part, "torn=512B, torn=1KiB, torn=2KiB or torn=4KiB"));
                    }
                    cut.torn = Some(unit);
                }
                "drained_after" => cut.drained_after = Some(span::parse(value)?),
                "seed" => cut.seed = value.trim().parse().map_err(|_| bad(part, "seed=NUMBER"))?,
                _ => return Err(bad(part, "survive=, torn=, drained_after= or seed=")),
            }
        }
        Ok(cut)
    }
}

impl Serialize for PowerCut {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PowerCut {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option::of;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_cuts_read_back(
            survive in 0.0..=1.0f64,
            torn in of(prop::sample::select(vec![512u64, 1024, 2048, 4096])),
            after in of(0u64..3_600_000_000_000),
            seed in any::<u64>(),
        ) {
            let (torn, drained_after) = (torn.map(Bytes), after.map(Duration::from_nanos));
            let cut = PowerCut { survive: Ratio(survive), torn, drained_after, seed };
            prop_assert_eq!(cut.to_string().parse::<PowerCut>().unwrap(), cut);
        }
    }

    #[test]
    fn fates_come_as_often_as_they_should_and_from_the_seed() {
        let cut: PowerCut = "survive=50%,torn=512B,seed=7".parse().unwrap();
        let fates: Vec<Fate> = (0..10_000).map(|n| cut.fate(n)).collect();
        let lost = fates.iter().filter(|f| **f == Fate::Lost).count();
        let kept = fates.iter().filter(|f| **f == Fate::Kept).count();
        assert!((4800..5200).contains(&lost) && (2300..2700).contains(&kept), "{lost} {kept}");
        assert!(fates.iter().all(|f| !matches!(f, Fate::Torn(mask) if *mask > 255)));
        assert_ne!(fates, (0..10_000).map(|n| PowerCut { seed: 8, ..cut }.fate(n)).collect::<Vec<_>>());
        assert!((0..100).all(|n| PowerCut::default().fate(n) == Fate::Lost));
        assert_eq!(PowerCut::default().surviving(9, 0), 0);
        assert_eq!(PowerCut { survive: Ratio(1.0), ..cut }.surviving(9, 0), 9);
        for wrong in ["survive=2", "torn=3B", "sed=1", "survive"] {
            assert!(wrong.parse::<PowerCut>().is_err(), "{wrong}");
        }
    }
}
