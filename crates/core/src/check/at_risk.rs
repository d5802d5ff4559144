//! What a power cut put at risk: without that it tests no more than a kill does.

use crate::schedule::Injection;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// What was not durable when the power went, of all nodes of one cut together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AtRisk {
    /// Blocks of 4 KiB that had reached a disk and were not flushed.
    pub blocks: u64,
    /// How many of them were left partly old and partly new.
    pub torn: u64,
    /// Names made, removed or changed and not flushed, where the disk is a shaped folder.
    pub names: u64,
    /// What the kernels had in memory and had not written to a disk; `None` where nobody counts that.
    #[serde(rename = "page_cache_bytes")]
    pub page_cache: Option<Bytes>,
}

impl AtRisk {
    /// Of a power cut; `None` for any other fault.
    pub fn of(injection: &Injection) -> Option<AtRisk> {
        let sum = |all: AtRisk, outage: &crate::schedule::Outage| {
            let disk = &outage.disk;
            AtRisk {
                blocks: all.blocks + disk.lost_blocks + disk.kept_blocks + disk.torn_blocks,
                torn: all.torn + disk.torn_blocks,
                names: all.names + disk.lost_names + disk.kept_names,
                page_cache: all.page_cache.zip(outage.page_cache).map(|(a, b)| Bytes(a.0 + b.0)),
            }
        };
        let nothing = AtRisk { page_cache: Some(Bytes(0)), ..AtRisk::default() };
        let some = !injection.outages.is_empty();
        some.then(|| injection.outages.iter().fold(nothing, sum))
    }

    /// Whether a cut took nothing but what processes had in their own memory. What nobody counts is not
    /// nothing.
    pub fn is_nothing(&self) -> bool {
        self.blocks == 0 && self.names == 0 && self.page_cache == Some(Bytes(0))
    }

    /// What several cuts put at risk, in a sentence without its end; `None` without a cut.
    pub fn summary(cuts: &[AtRisk]) -> Option<String> {
        let (least, most) =
            (cuts.iter().map(|cut| cut.blocks).min()?, cuts.iter().map(|cut| cut.blocks).max()?);
        let blocks = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let cached: Option<Vec<u64>> = cuts.iter().map(|cut| Some(cut.page_cache?.0)).collect();
        let cached = cached.and_then(|cached| {
            let (least, most) = (*cached.iter().min()?, *cached.iter().max()?);
            let size = |bytes| Bytes(bytes).rounded();
            Some(if least == most { size(most) } else { format!("{} to {}", size(least), size(most)) })
        });
        let cached = match cached {
            Some(size) => format!("{size} in page caches"),
            None => "page caches not counted".into(),
        };
        let n = cuts.len();
        let times = |k: usize| if k == n { "each".to_string() } else { format!("{k} of {n}") };
        let torn = match cuts.iter().filter(|cut| cut.torn > 0).count() {
            0 => "no block torn, so nothing is known of pages that are half written".to_string(),
            k => format!("blocks torn in {}", times(k)),
        };
        let empty = match cuts.iter().filter(|cut| cut.is_nothing()).count() {
            0 => String::new(),
            k => format!("; nothing at all in {}: no evidence", times(k)),
        };
        let cuts = if n == 1 { "the power cut".to_string() } else { format!("{n} power cuts") };
        Some(format!("at risk in {cuts}: {blocks} blocks on disks, {cached}; {torn}{empty}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::CutReport;
    use crate::schedule::{Effect, Outage};
    use crate::units::Tick;
    use std::time::Duration;

    fn cut(outages: &[(u64, u64, Option<u64>)]) -> Injection {
        let outage = |(lost_blocks, torn_blocks, page_cache): &(u64, u64, Option<u64>)| Outage {
            node: "a".into(),
            disk: CutReport { lost_blocks: *lost_blocks, torn_blocks: *torn_blocks, ..CutReport::default() },
            page_cache: page_cache.map(Bytes),
        };
        Injection {
            rule: "power cut all".into(),
            at: Tick(1),
            uncertainty: Duration::ZERO,
            undone: None,
            effect: Effect::Fired { count: 1 },
            outages: outages.iter().map(outage).collect(),
        }
    }

    #[test]
    fn all_nodes_of_a_cut_count_together_and_what_nobody_counts_is_not_nothing() {
        assert_eq!(AtRisk::of(&cut(&[])), None);
        let both = AtRisk::of(&cut(&[(3, 1, Some(4096)), (2, 0, Some(0))])).unwrap();
        assert_eq!((both.blocks, both.torn, both.page_cache), (6, 1, Some(Bytes(4096))));
        assert_eq!(AtRisk::of(&cut(&[(0, 0, None), (0, 0, Some(1))])).unwrap().page_cache, None);
        let nothing = |outages: &[_]| AtRisk::of(&cut(outages)).unwrap().is_nothing();
        assert!(nothing(&[(0, 0, Some(0)), (0, 0, Some(0))]));
        assert!(!nothing(&[(0, 0, None)]) && !nothing(&[(0, 0, Some(1))]) && !nothing(&[(1, 0, Some(0))]));
    }

    #[test]
    fn the_sentence_names_what_was_exposed_and_what_was_not() {
        let of = |outages: &[_]| AtRisk::of(&cut(outages)).unwrap();
        let one = AtRisk::summary(&[of(&[(3, 0, Some(8192))])]).unwrap();
        assert_eq!(
            one,
            "at risk in the power cut: 3 blocks on disks, 8.00 KiB in page caches; no block torn, so nothing is \
             known of pages that are half written"
        );
        let three =
            AtRisk::summary(&[of(&[(3, 2, Some(0))]), of(&[(0, 0, Some(0))]), of(&[(9, 0, Some(1 << 20))])]);
        assert_eq!(
            three.unwrap(),
            "at risk in 3 power cuts: 0 to 9 blocks on disks, 0 B to 1.00 MiB in page caches; blocks torn in 1 of 3; \
             nothing at all in 1 of 3: no evidence"
        );
        assert!(
            AtRisk::summary(&[of(&[(1, 1, None)])]).unwrap().ends_with("not counted; blocks torn in each")
        );
        assert_eq!(AtRisk::summary(&[]), None);
    }
}
