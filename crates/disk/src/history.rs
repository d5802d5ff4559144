//! The versions that a block, or a length, went through since it was last durable: arithmetic without a disk.
//!
//! A flush covers the changes that had been answered when it arrived, and makes them durable when it is
//! answered itself. Between those two moments the same block may be written again, so a version must be kept
//! as long as a flush under way, or one that may still come, covers it and not the one after it.

use std::time::Duration;
use tipover_core::units::Tick;

/// How close together versions are kept that are there for their age alone.
const GRAIN: Duration = Duration::from_millis(100);

/// Which change made a version, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Later changes and flushes have higher numbers.
    pub number: u64,
    pub at: Tick,
}

/// What a flush makes durable: all changes before it, except those that nobody had been told of when it came.
#[derive(Debug, Clone)]
pub(crate) struct Covered {
    pub number: u64,
    pub except: Vec<u64>,
}

impl Covered {
    pub fn has(&self, change: u64) -> bool {
        change < self.number && !self.except.contains(&change)
    }
}

/// A change that cut something off the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shrink {
    pub stamp: Stamp,
    pub len: u64,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    last: u64,
    /// Changes that nobody has been told of yet.
    unanswered: Vec<u64>,
    flushes: Vec<Covered>,
    /// Those that are not durable, in order.
    pub shrinks: Vec<Shrink>,
    /// How often the power was cut.
    pub cuts: u64,
}

impl Traffic {
    /// Numbers a change. One that is answered `later` is covered by no flush that comes before its answer.
    pub fn change(&mut self, later: bool) -> u64 {
        self.last += 1;
        if later {
            self.unanswered.push(self.last);
        }
        self.last
    }

    pub fn answered(&mut self, change: u64) {
        self.unanswered.retain(|other| *other != change);
    }

    /// Whether there is a change other than this one that nobody has been told of.
    pub fn has_unanswered_besides(&self, change: u64) -> bool {
        self.unanswered.iter().any(|other| *other != change)
    }

    pub fn begin_flush(&mut self) -> Covered {
        self.last += 1;
        let covered = Covered { number: self.last, except: self.unanswered.clone() };
        self.flushes.push(covered.clone());
        covered
    }

    pub fn end_flush(&mut self, number: u64) {
        self.flushes.retain(|flush| flush.number != number);
    }

    /// Whether some flush makes `version` durable and not `next`, the one after it.
    fn may_part(&self, version: u64, next: u64) -> bool {
        self.unanswered.contains(&next)
            || self.flushes.iter().any(|flush| flush.has(version) && !flush.has(next))
            || self.shrinks.iter().any(|shrink| shrink.stamp.number == version)
    }
}

/// A version that was the present one until `replaced`.
#[derive(Debug)]
struct Version<T> {
    content: T,
    stamp: Stamp,
    replaced: Tick,
}

/// One thing's versions. The present one's content is not here but where the thing is.
#[derive(Debug)]
pub(crate) struct History<T> {
    durable: T,
    /// When the durable version was replaced.
    since: Tick,
    /// Between the durable one and the present one, oldest first.
    later: Vec<Version<T>>,
    pub present: Stamp,
}

/// What the disk holds after a cut, chance aside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Base<T> {
    Old(T),
    Present,
}

/// What became of a history when a flush was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The present version is durable: there is nothing left to remember.
    Wholly,
    Partly,
}

impl<T> History<T> {
    /// What was durable is replaced.
    pub fn new(durable: T, present: Stamp) -> History<T> {
        History { durable, since: present.at, later: Vec::new(), present }
    }

    /// Another version replaces the present one, whose content `save` brings if it must be kept. Versions
    /// that nothing can lead back to any more go to `dropped`.
    ///
    /// # Errors
    /// As `save`; nothing has changed then.
    pub fn replace<E>(
        &mut self,
        next: Stamp,
        traffic: &Traffic,
        save: impl FnOnce() -> Result<T, E>,
        mut dropped: impl FnMut(T),
    ) -> Result<(), E> {
        let kept_since = self.later.last().map_or(self.since, |newest| newest.replaced);
        let old_enough = next.at.since(kept_since) >= GRAIN;
        if old_enough || traffic.may_part(self.present.number, next.number) {
            let content = save()?;
            self.later.push(Version { content, stamp: self.present, replaced: next.at });
        }
        self.present = next;
        self.thin(traffic, Some(next.at), &mut dropped);
        Ok(())
    }

    /// Drops what nothing can lead back to. With `now`, what a device that drains its cache may have drained
    /// stays, ever farther apart with age: at the time that was asked for, or up to half as long ago.
    pub fn thin(&mut self, traffic: &Traffic, now: Option<Tick>, mut dropped: impl FnMut(T)) {
        let mut n = 0;
        while n < self.later.len() {
            let next = self.later.get(n + 1).map_or(self.present, |version| version.stamp);
            let before = if n == 0 { self.since } else { self.later[n - 1].replaced };
            let aged = now.is_some_and(|now| now.since(next.at) * 2 < now.since(before));
            if aged || traffic.may_part(self.later[n].stamp.number, next.number) {
                n += 1;
            } else {
                dropped(self.later.remove(n).content);
            }
        }
    }

    /// A flush is answered: the newest version that it covers is durable.
    pub fn settle(&mut self, covered: &Covered, mut dropped: impl FnMut(T)) -> Settled {
        if covered.has(self.present.number) {
            return Settled::Wholly;
        }
        if let Some(newest) = self.later.iter().rposition(|version| covered.has(version.stamp.number)) {
            for version in self.later.drain(..=newest) {
                self.since = version.replaced;
                dropped(std::mem::replace(&mut self.durable, version.content));
            }
        }
        Settled::Partly
    }

    /// What is there after a cut if no version survives by chance: the durable one, or the one that had
    /// drained by `cutoff`; not a version from `lost` on, but at least the version `made`.
    pub fn base(mut self, cutoff: Option<Tick>, made: Option<u64>, lost: Option<u64>) -> Base<T> {
        let is_lost = |stamp: &Stamp| lost.is_some_and(|lost| stamp.number >= lost);
        // Each version stands for the time until the next: what stood at the cutoff has drained.
        let mut newest = None;
        let mut since = self.since;
        let stamps: Vec<(Stamp, Tick)> = self
            .later
            .iter()
            .map(|version| (version.stamp, version.replaced))
            .chain([(self.present, Tick(u64::MAX))])
            .collect();
        for (n, (stamp, replaced)) in stamps.iter().enumerate() {
            if is_lost(stamp) {
                break;
            }
            let drained = cutoff.is_some_and(|cutoff| since <= cutoff);
            if drained || made.is_some_and(|made| stamp.number <= made) {
                newest = Some(n);
            }
            since = *replaced;
        }
        match newest {
            None => Base::Old(self.durable),
            Some(n) if n == self.later.len() => Base::Present,
            Some(n) => Base::Old(self.later.swap_remove(n).content),
        }
    }

    /// Gives up all contents that it keeps.
    pub fn clear(&mut self, mut dropped: impl FnMut(T))
    where
        T: Default,
    {
        dropped(std::mem::take(&mut self.durable));
        self.later.drain(..).for_each(|version| dropped(version.content));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        /// Written after this number of milliseconds, and answered later or not.
        Write(u64, bool),
        Answer(usize),
        Flush,
        /// One of the flushes under way is answered.
        Land(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..400u64, any::<bool>()).prop_map(|(wait, later)| Step::Write(wait, later)),
            2 => any::<usize>().prop_map(Step::Answer),
            2 => Just(Step::Flush),
            2 => any::<usize>().prop_map(Step::Land),
        ]
    }

    /// Everything that ever was, beside what the history keeps of it.
    #[derive(Default)]
    struct Model {
        traffic: Traffic,
        history: Option<History<u64>>,
        /// Number and time of each version, and whether it had been answered.
        versions: Vec<(u64, Tick, bool)>,
        flushes: Vec<(Covered, u64)>,
        durable: u64,
        now: Tick,
    }

    impl Model {
        fn go(&mut self, step: &Step) {
            match step {
                Step::Write(wait, later) => {
                    self.now = self.now + Duration::from_millis(*wait);
                    let stamp = Stamp { number: self.traffic.change(*later), at: self.now };
                    let was = self.versions.last().map_or(0, |(number, _, _)| *number);
                    match &mut self.history {
                        None => self.history = Some(History::new(was, stamp)),
                        Some(history) => {
                            history.replace(stamp, &self.traffic, || Ok::<_, ()>(was), drop).unwrap();
                        }
                    }
                    self.versions.push((stamp.number, self.now, !later));
                }
                Step::Answer(which) => {
                    let mut open: Vec<_> = self.versions.iter_mut().filter(|(_, _, done)| !done).collect();
                    if !open.is_empty() {
                        let which = which % open.len();
                        open[which].2 = true;
                        self.traffic.answered(open[which].0);
                    }
                }
                Step::Flush => {
                    let newest = self.versions.iter().rev().find(|(_, _, done)| *done);
                    let newest = newest.map_or(0, |(number, _, _)| *number);
                    self.flushes.push((self.traffic.begin_flush(), newest));
                }
                Step::Land(which) if !self.flushes.is_empty() => {
                    let (covered, newest) = self.flushes.remove(which % self.flushes.len());
                    self.durable = self.durable.max(newest);
                    let settled = self.history.as_mut().map(|history| history.settle(&covered, drop));
                    if settled == Some(Settled::Wholly) {
                        self.history = None;
                    }
                    self.traffic.end_flush(covered.number);
                }
                Step::Land(_) => {}
            }
        }
    }

    proptest! {
        /// Whatever comes in whatever order: durable is the newest version that had been answered when a
        /// flush came which has been answered since; neither an older one nor a newer one.
        #[test]
        fn durable_is_what_an_answered_flush_covered(steps in prop::collection::vec(step(), 0..60)) {
            let mut model = Model::default();
            for step in &steps {
                model.go(step);
                let present = model.versions.last().map_or(0, |(number, _, _)| *number);
                let durable = model.history.as_ref().map_or(present, |history| history.durable);
                prop_assert_eq!(durable, model.durable);
            }
        }

        /// What had drained by a cutoff is the version that stood then, or one at least half as old.
        #[test]
        fn what_drained_stood_then_or_half_as_long_ago(
            waits in prop::collection::vec(0..500u64, 1..80),
            age in 0..20_000u64,
        ) {
            let mut model = Model::default();
            waits.iter().for_each(|wait| model.go(&Step::Write(*wait, false)));
            let age = Duration::from_millis(age);
            let cutoff = Tick(model.now.0.saturating_sub(age.as_nanos() as u64));
            // Nothing is older than the beginning.
            let age = model.now.since(cutoff);
            let stood = model.versions.iter().rev().find(|(_, at, _)| *at <= cutoff);
            let stood = stood.map_or(0, |(number, _, _)| *number);
            let (present, at, _) = *model.versions.last().unwrap();
            let kept = model.history.as_ref().unwrap().later.len();
            let found = match model.history.unwrap().base(Some(cutoff), None, None) {
                Base::Old(number) => number,
                Base::Present => present,
            };
            prop_assert!(found >= stood, "{} is older than {}", found, stood);
            let made = model.versions.iter().find(|(number, _, _)| *number == found).map_or(Tick(0), |v| v.1);
            prop_assert!(
                found == stood || at.since(made) * 2 + 2 * GRAIN >= age,
                "{} made {:?} before the end instead of {}", found, at.since(made), stood
            );
            prop_assert!(kept <= 16, "{} versions", kept);
        }
    }

    #[test]
    fn a_truncation_that_survives_is_the_least_and_one_that_does_not_the_most() {
        let at = Tick(0);
        let history = || {
            let mut traffic = Traffic::default();
            let shrink = Stamp { number: 2, at };
            traffic.shrinks.push(Shrink { stamp: shrink, len: 0 });
            let mut history = History::new("durable", Stamp { number: 1, at });
            for (number, was) in [(2, "written"), (3, "cut off")] {
                history.replace(Stamp { number, at }, &traffic, || Ok::<_, ()>(was), drop).unwrap();
            }
            history
        };
        assert_eq!(history().base(None, Some(2), None), Base::Old("cut off"));
        assert_eq!(history().base(None, None, Some(2)), Base::Old("durable"));
        assert_eq!(history().base(Some(at), None, None), Base::Present, "all of it had drained");
        assert_eq!(history().base(Some(at), None, Some(2)), Base::Old("durable"));
        let mut kept = Vec::new();
        history().clear(|content| kept.push(content));
        assert_eq!(kept, ["durable", "cut off"], "what was written before leads nowhere");
    }
}
