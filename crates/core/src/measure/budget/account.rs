//! What was counted of one node in a window, by everybody who counted.

use super::Budget;
use crate::metric::{Sample, name as metric};
use std::collections::BTreeMap;

/// Raw counters of one node over a window: its server's, its processes', its group's, its disk's. Whoever did
/// not count is absent, and never zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    grown: BTreeMap<String, f64>,
    levels: BTreeMap<String, f64>,
    seconds: f64,
    apart_s: f64,
    /// How old the engine's statistics may have been, of windows that were added up the sum.
    old_s: f64,
    /// Operations that were done in the window, and transactions that the engine's statistics had seen.
    operations: Option<(f64, f64)>,
}

impl Account {
    /// What grew between the samples of the `first` and those of the `last` readings.
    pub fn of<'a>(
        first: impl IntoIterator<Item = &'a Sample>,
        last: impl IntoIterator<Item = &'a Sample>,
    ) -> Account {
        let (first, last): (Vec<&Sample>, Vec<&Sample>) =
            (first.into_iter().collect(), last.into_iter().collect());
        let end = |samples: &[&Sample]| samples.iter().map(|sample| sample.end).max().unwrap_or_default();
        let spread = |samples: &[&Sample]| {
            let begin = samples.iter().map(|sample| sample.begin).min().unwrap_or_default();
            end(samples).since(begin).as_secs_f64()
        };
        let mut account = Account {
            seconds: end(&last).since(end(&first)).as_secs_f64(),
            apart_s: spread(&first) + spread(&last),
            ..Account::default()
        };
        account.put(&first, &last);
        account
    }

    /// With other samples of the same window, whose moments do not matter.
    pub fn beside<'a>(
        mut self,
        first: impl IntoIterator<Item = &'a Sample>,
        last: impl IntoIterator<Item = &'a Sample>,
    ) -> Account {
        let (first, last): (Vec<&Sample>, Vec<&Sample>) =
            (first.into_iter().collect(), last.into_iter().collect());
        self.put(&first, &last);
        self
    }

    fn put(&mut self, first: &[&Sample], last: &[&Sample]) {
        for (name, value) in last.iter().flat_map(|sample| &sample.values) {
            if let Some(before) = first.iter().find_map(|sample| sample.get(name)) {
                self.grown.insert(name.clone(), value - before);
            }
            self.levels.insert(name.clone(), *value);
        }
        self.old_s = self.level(metric::ENGINE_STATISTICS_AGE_MS).unwrap_or(0.0) / 1e3;
        if self.restarts() > 0.0 {
            // A server that is started again counts anew, or not even that: what it said before is no
            // beginning.
            self.grown.retain(|name, _| !name.starts_with("engine_"));
        }
    }

    /// How often the server was started again in the window, as far as that is known.
    pub(super) fn restarts(&self) -> f64 {
        self.grown(metric::PROCESS_SERVER_STARTS).unwrap_or(0.0)
    }

    /// With how many operations were `done` in the window, and how many transactions the engine's statistics
    /// had `seen`.
    pub fn with_operations(mut self, done: f64, seen: f64) -> Account {
        self.operations = (done > 0.0 && seen > 0.0).then_some((done, seen));
        self
    }

    /// Both together, such as two trials of a cell or two nodes of a cluster. What only one of them counted
    /// is in neither sum.
    pub fn plus(self, other: &Account) -> Account {
        let sum = |(name, value): (String, f64)| {
            let both = value + other.grown.get(&name)?;
            Some((name, both))
        };
        let most = |(name, value): (String, f64)| {
            let both = value.max(*other.levels.get(&name)?);
            Some((name, both))
        };
        Account {
            grown: self.grown.into_iter().filter_map(sum).collect(),
            levels: self.levels.into_iter().filter_map(most).collect(),
            seconds: self.seconds + other.seconds,
            apart_s: self.apart_s + other.apart_s,
            old_s: self.old_s + other.old_s,
            operations: self.operations.zip(other.operations).map(|(a, b)| (a.0 + b.0, a.1 + b.1)),
        }
    }

    /// How much `name` grew, or by how much it changed; `None` if nobody counted it.
    pub fn grown(&self, name: &str) -> Option<f64> {
        self.grown.get(name).copied()
    }

    /// The level of `name` at the end of the window.
    pub fn level(&self, name: &str) -> Option<f64> {
        self.levels.get(name).copied()
    }

    /// Length of the window in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether data files are read and written past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.level(metric::ENGINE_DIRECT_IO) == Some(1.0)
    }

    /// The share of a steady flow that may lie between the readings of kernel and disk.
    pub(super) fn apart(&self) -> f64 {
        if self.seconds > 0.0 { self.apart_s / self.seconds } else { 0.0 }
    }

    /// The same where one of them is the engine, whose statistics may be old at either end.
    pub(super) fn apart_from_engine(&self) -> f64 {
        if self.seconds > 0.0 { (self.apart_s + self.old_s) / self.seconds } else { 0.0 }
    }

    /// By what old statistics of reads must be multiplied to be of the operations done in the window, and
    /// what share of them that may be off. `None` where they are not old, and where what they saw cannot be
    /// those operations.
    ///
    /// A session reports transactions and misses together, so both are old alike. Up to `old_s` seconds of
    /// operations at both ends together are in one window and not in the other; as far as they miss by
    /// chance, the number of their misses scatters at most like Poisson's, and twice its deviation is
    /// allowed.
    pub(super) fn by_operations(&self) -> Option<(f64, f64)> {
        let (done, seen) = self.operations.filter(|_| self.old_s > 0.0 && self.seconds > 0.0)?;
        let misses = self.grown(metric::ENGINE_FILE_READS).filter(|misses| *misses > 0.0)?;
        let old = self.old_s / self.seconds;
        ((seen / done - 1.0).abs() <= old + Budget::TOLERANCE)
            .then(|| (done / seen, 2.0 * (old / misses).sqrt()))
    }
}
