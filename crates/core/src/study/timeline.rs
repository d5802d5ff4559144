//! One trial over time: what users got, what every node did, and the moments at which something was broken
//! or another node took over. Computed from the record and its intervals, or, of a trial that still goes on,
//! from the last of them.

use crate::check::Carried;
use crate::experiment::Spec;
use crate::measure::{Books, Budget, Histogram, Way};
use crate::metric::{Sample, name as metric, probe};
use crate::record::rate;
use crate::record::{Ends, Interval, Phase, Record};
use crate::units::Tick;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The phase that a timeline shows.
const PHASE: Phase = Phase::Measure;

/// One trial over time. All seconds count from the beginning of its measured phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// The cell, as records name it.
    pub cell: String,
    /// Which of its trials, counted from 0.
    pub repeat: u32,
    /// What users got, step after step.
    pub steps: Vec<Step>,
    /// What each node did meanwhile, by its name; empty where the target runs in no cluster.
    pub nodes: BTreeMap<String, Vec<Flow>>,
    /// What was broken, undone, and who took over, in the order of time.
    pub marks: Vec<Mark>,
}

/// What became of the operations of one interval, or of several merged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// When it began.
    pub begin_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Operations done per second.
    pub done_ops_per_s: f64,
    /// Operations refused or unknown per second.
    pub failed_ops_per_s: f64,
    /// Operations that became due per second; absent in a closed loop.
    pub offered_ops_per_s: Option<f64>,
    /// Operations due and not sent, the most at the end of an interval; absent in a closed loop.
    pub backlog: Option<u64>,
    /// What users waited, failed operations included; absent where nothing ended.
    pub residence: Option<Residence>,
}

/// What users waited, from when an operation was due.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Residence {
    /// Median.
    pub ms_p50: f64,
    /// 99th percentile.
    pub ms_p99: f64,
    /// The longest.
    pub ms_max: f64,
    /// The number of operations that ended.
    pub operations: u64,
}

/// What one node did between two samples. What nobody counted is absent, and so is everything where the node
/// was not read at both ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Flow {
    /// When the step began that it belongs to.
    pub begin_s: f64,
    /// When that step ended.
    pub end_s: f64,
    /// Processors that its processes kept busy.
    pub cores: Option<f64>,
    /// Reads that its disk completed per second.
    pub disk_reads_per_s: Option<f64>,
    /// Writes that its disk completed per second.
    pub disk_writes_per_s: Option<f64>,
    /// Flushes that its disk completed per second.
    pub disk_flushes_per_s: Option<f64>,
    /// Requests in flight at its disk, the mean over time.
    pub disk_queue: Option<f64>,
    /// Megabytes per second that reached it.
    pub network_in_mb_per_s: Option<f64>,
    /// Megabytes per second that it sent.
    pub network_out_mb_per_s: Option<f64>,
}

/// A moment of the trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// When.
    pub at_s: f64,
    /// It is known to be within this number of seconds after that.
    pub within_s: f64,
    /// When it was undone, of a fault that was.
    pub until_s: Option<f64>,
    /// What it is.
    pub kind: MarkKind,
    /// "kill primary, restart after 1 s"; "b takes writes".
    pub words: String,
    /// What shows that it happened; may be empty.
    pub evidence: String,
}

/// What a mark is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Something was broken.
    Fault,
    /// Another node became the primary.
    Primary,
}

impl Timeline {
    /// That of `record`, in no more than `most` steps; `None` for a trial that was not measured.
    pub fn of(record: &Record, intervals: &[Interval], most: usize) -> Option<Timeline> {
        let measured = record.measured.as_ref()?;
        let intervals: Vec<&Interval> = intervals.iter().filter(|i| i.phase == PHASE).collect();
        let zero = measured.begin;
        let together = intervals.len().div_ceil(most.max(1)).max(1);
        let groups = || intervals.chunks(together).enumerate().map(|(n, group)| (n * together, group));
        let names: BTreeSet<&String> = intervals
            .iter()
            .flat_map(|interval| interval.nodes.keys())
            .chain(measured.nodes.keys())
            .collect();
        let course = |name: &&String| {
            let first = measured.nodes.get(*name).map(|ends| &ends.first);
            let flow = |(at, group): (usize, &[&Interval])| {
                let before = match at {
                    0 => first,
                    _ => intervals[at - 1].nodes.get(*name),
                };
                flow(before, group.iter().map(|interval| interval.nodes.get(*name)), group, zero)
            };
            ((*name).clone(), groups().map(flow).collect())
        };
        Some(Timeline {
            cell: record.cell.clone(),
            repeat: record.repeat,
            steps: groups().map(|(_, group)| step(group, merged(group).as_ref(), zero)).collect(),
            nodes: names.iter().map(course).collect(),
            marks: record.broken.as_ref().map_or_else(Vec::new, |broken| marks(&broken.faults, zero)),
        })
    }

    /// Its last `most` steps.
    pub fn last(&self, most: usize) -> Timeline {
        let mut last = self.clone();
        last.forget(self.steps.len().saturating_sub(most));
        last
    }

    /// Without its first `count` steps.
    fn forget(&mut self, count: usize) {
        self.steps.drain(..count);
        self.nodes.values_mut().for_each(|flows| drop(flows.drain(..count)));
    }

    /// How long it lasted.
    pub fn seconds(&self) -> f64 {
        self.steps.last().map_or(0.0, |step| step.end_s)
    }
}

/// Seconds from `zero` to `tick`, negative before.
fn seconds(tick: Tick, zero: Tick) -> f64 {
    (tick.0 as f64 - zero.0 as f64) / 1e9
}

/// Intervals that follow each other as one, with their books together; damaged ones count as none.
fn step(group: &[&Interval], books: Option<&Books>, zero: Tick) -> Step {
    let (first, last) = (group[0], group[group.len() - 1]);
    let (begin_s, end_s) = (seconds(first.begin, zero), seconds(last.end, zero));
    let per_s = |count: u64| if end_s > begin_s { count as f64 / (end_s - begin_s) } else { 0.0 };
    let offered = || group.iter().filter_map(|interval| interval.offered.as_ref());
    let is_open = offered().next().is_some();
    let residence = books.map(Books::residence).filter(|waited| !waited.is_empty());
    Step {
        begin_s,
        end_s,
        done_ops_per_s: per_s(group.iter().map(|interval| interval.books.done()).sum()),
        failed_ops_per_s: per_s(group.iter().map(|interval| interval.books.failed()).sum()),
        offered_ops_per_s: is_open.then(|| per_s(offered().map(|offered| offered.due).sum())),
        backlog: offered().map(|offered| offered.backlog).max(),
        residence: residence.map(|waited| Residence::of(&waited)),
    }
}

/// The books of several intervals together.
pub(super) fn merged(group: &[&Interval]) -> Option<Books> {
    let mut books = group.iter().filter_map(|interval| Books::from_text(&interval.books).ok());
    let mut all = books.next()?;
    books.for_each(|next| all.merge(&next));
    Some(all)
}

impl Residence {
    fn of(waited: &Histogram) -> Residence {
        let ms = |quantile| waited.value_at_quantile(quantile) as f64 / 1e6;
        Residence {
            ms_p50: ms(0.5),
            ms_p99: ms(0.99),
            ms_max: waited.max() as f64 / 1e6,
            operations: waited.len(),
        }
    }
}

/// What was counted of a node, by probe.
type Samples = BTreeMap<String, Sample>;

/// What a node did in a group of intervals: from the sample that ended the interval before it to the last one
/// in it. Where there is no such sample, because the node was being acted on, from the first one in it.
fn flow<'a>(
    before: Option<&'a Samples>,
    within: impl Iterator<Item = Option<&'a Samples>>,
    group: &[&Interval],
    zero: Tick,
) -> Flow {
    let all: Vec<&Samples> = before.into_iter().chain(within.flatten()).collect();
    let rate_of = |probe: &str, counters: &[&str]| {
        let mut samples = all.iter().filter_map(|samples| samples.get(probe));
        let first = samples.next()?;
        rate(first, samples.next_back()?, counters)
    };
    let of_group = rate_of(probe::GROUP, &["cgroup_cpu_ns"]);
    let of_processes = || rate_of(probe::PROCESS, &["process_cpu_user_ns", "process_cpu_system_ns"]);
    let mega = |bytes: f64| bytes / 1e6;
    Flow {
        begin_s: seconds(group[0].begin, zero),
        end_s: seconds(group[group.len() - 1].end, zero),
        cores: of_group.or_else(of_processes).map(|ns| ns / 1e9),
        disk_reads_per_s: rate_of(probe::DISK, &[metric::DISK_READ_REQUESTS]),
        disk_writes_per_s: rate_of(probe::DISK, &[metric::DISK_WRITE_REQUESTS]),
        disk_flushes_per_s: rate_of(probe::DISK, &[metric::DISK_FLUSH_REQUESTS]),
        disk_queue: rate_of(probe::DISK, &[metric::DISK_QUEUE_NS]).map(|ns| ns / 1e9),
        network_in_mb_per_s: rate_of(probe::NETWORK, &["network_received_bytes"]).map(mega),
        network_out_mb_per_s: rate_of(probe::NETWORK, &["network_sent_bytes"]).map(mega),
    }
}

/// Faults and changes of the primary, in the order of time.
fn marks(faults: &[Carried], zero: Tick) -> Vec<Mark> {
    let mut marks = Vec::new();
    for carried in faults {
        let injection = &carried.injection;
        // One that the run ended before, or whose time has not come yet, never happened.
        if injection.at == Tick(0) {
            continue;
        }
        let effect = if injection.had_effect() { "" } else { " (no effect)" };
        marks.push(Mark {
            at_s: seconds(injection.at, zero),
            within_s: injection.uncertainty.as_secs_f64(),
            until_s: injection.undone.map(|undone| seconds(undone, zero)),
            kind: MarkKind::Fault,
            words: format!("{}{effect}", injection.fault()),
            evidence: carried.evidence.join("; "),
        });
        marks.extend(carried.primaries.iter().map(|primary| Mark {
            at_s: seconds(primary.at, zero),
            within_s: primary.uncertainty.as_secs_f64(),
            until_s: None,
            kind: MarkKind::Primary,
            words: format!("{} takes writes", primary.node),
            evidence: String::new(),
        }));
    }
    marks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    marks
}

/// Where a trial that runs in no cluster has its figures among [`Timeline::nodes`] of [`Recent`].
pub const ALONE: &str = "target";

/// A trial that still goes on, over time: the last intervals of it, whatever their phase.
#[derive(Debug, Clone)]
pub struct Recent {
    most: usize,
    zero: Tick,
    before: BTreeMap<String, Samples>,
    /// Its steps are intervals; its seconds count from the first.
    pub timeline: Timeline,
    /// Of each step, how many of its operations waited how long.
    pub waited: VecDeque<Vec<Class>>,
    /// Marks of all of it, also those that the steps have left behind.
    all_marks: Vec<Mark>,
    accounted: Option<Accounted>,
}

/// Since when bytes are accounted for: since the phase began, or all its nodes could be read again.
#[derive(Debug, Clone)]
struct Accounted {
    phase: Phase,
    since: Tick,
    first: BTreeMap<String, Samples>,
    operations: u64,
}

/// The budgets of a trial that still goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetsSoFar {
    /// Since when, in the timeline's seconds.
    pub since_s: f64,
    /// Operations that ended meanwhile.
    pub operations: u64,
    /// By node.
    pub nodes: BTreeMap<String, Budget>,
}

/// Operations that waited about as long as each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// The least that they waited, in milliseconds; the most is [`Class::RATIO`] times that.
    pub from_ms: f64,
    /// How many.
    pub operations: u64,
}

impl Class {
    /// Eight classes to a decade: a step of a third, finer than a screen needs.
    pub const RATIO: f64 = 1.333_521_432_163_324;

    /// The classes of a histogram in nanoseconds, the empty ones left out, the fastest first.
    fn of(waited: &Histogram) -> Vec<Class> {
        let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
        for value in waited.iter_recorded() {
            let ms = value.value_iterated_to().max(1) as f64 / 1e6;
            *counts.entry((ms.log10() * 8.0).floor() as i32).or_default() += value.count_at_value();
        }
        let class = |(place, operations)| Class { from_ms: 10f64.powf(f64::from(place) / 8.0), operations };
        counts.into_iter().map(class).collect()
    }
}

impl Recent {
    /// Of a trial that begins now on the trial clock, its last `most` intervals.
    pub fn new(most: usize, zero: Tick) -> Recent {
        let timeline =
            Timeline { cell: String::new(), repeat: 0, steps: vec![], nodes: BTreeMap::new(), marks: vec![] };
        Recent {
            most: most.max(1),
            zero,
            before: BTreeMap::new(),
            timeline,
            waited: VecDeque::new(),
            all_marks: vec![],
            accounted: None,
        }
    }

    /// Takes in the interval that ended now, and forgets the oldest when there are too many.
    ///
    /// # Errors
    /// Its books are damaged.
    pub fn push(&mut self, interval: &Interval) -> Result<Books, String> {
        let books = Books::from_text(&interval.books)?;
        let (group, Timeline { steps, nodes, .. }) = ([interval], &mut self.timeline);
        steps.push(step(&group, Some(&books), self.zero));
        self.waited.push_back(Class::of(&books.residence()));
        let mut now = interval.nodes.clone();
        if now.is_empty() && !interval.samples.is_empty() {
            let disk = interval.disk.as_ref().map(|disk| (probe::DISK.to_string(), disk.into()));
            now.insert(ALONE.into(), interval.samples.clone().into_iter().chain(disk).collect());
        }
        let names: BTreeSet<&String> = now.keys().chain(nodes.keys()).collect();
        for name in names.into_iter().cloned().collect::<Vec<_>>() {
            let flow = flow(self.before.get(&name), [now.get(&name)].into_iter(), &group, self.zero);
            // Of the steps before it was seen for the first time nothing is known.
            let unknown = |step: &Step| Flow { begin_s: step.begin_s, end_s: step.end_s, ..Flow::default() };
            let earlier = &steps[..steps.len() - 1];
            nodes.entry(name).or_insert_with(|| earlier.iter().map(unknown).collect()).push(flow);
        }
        if steps.len() > self.most {
            let excess = steps.len() - self.most;
            self.timeline.forget(excess);
            self.waited.pop_front();
        }
        self.account(interval, &now, books.done() + books.failed());
        self.before = now;
        self.forget_marks();
        Ok(books)
    }

    /// Accounts for the bytes of one interval more. A server that was killed begins to count anew, so where a
    /// node could not be read the account begins anew too.
    fn account(&mut self, interval: &Interval, now: &BTreeMap<String, Samples>, operations: u64) {
        let goes_on = |accounted: &Accounted| {
            accounted.phase == interval.phase && accounted.first.keys().all(|name| now.contains_key(name))
        };
        match &mut self.accounted {
            Some(accounted) if goes_on(accounted) => accounted.operations += operations,
            accounted => {
                *accounted = (!now.is_empty()).then(|| Accounted {
                    phase: interval.phase,
                    since: interval.end,
                    first: now.clone(),
                    operations: 0,
                });
            }
        }
    }

    /// The budgets of its nodes, as far as anybody counted; `None` before there are two readings.
    pub fn budgets(&self, way: Way) -> Option<BudgetsSoFar> {
        let Accounted { since, first, operations, .. } = self.accounted.as_ref()?;
        let budget = |(name, first): (&String, &Samples)| {
            let account = Ends { first: first.clone(), last: self.before.get(name)?.clone() }.account();
            let budget = match way {
                Way::Reads => Budget::reads(&account),
                // What users wrote is known of whole trials.
                Way::Writes => Budget::writes(&account, None),
            };
            budget.is_accounted().then(|| (name.clone(), budget))
        };
        let nodes: BTreeMap<String, Budget> = first.iter().filter_map(budget).collect();
        let since_s = seconds(*since, self.zero);
        let so_far = BudgetsSoFar { since_s, operations: *operations, nodes };
        Some(so_far).filter(|so_far| so_far.operations > 0 && !so_far.nodes.is_empty())
    }

    /// What was done to the cluster so far, all of it.
    pub fn break_with(&mut self, faults: &[Carried]) {
        self.all_marks = marks(faults, self.zero);
        self.forget_marks();
    }

    /// Faults that took effect, also those that the steps have left behind.
    pub fn faults(&self) -> usize {
        self.all_marks.iter().filter(|mark| mark.kind == MarkKind::Fault).count()
    }

    /// Hours of faults are not drawn over minutes of steps.
    fn forget_marks(&mut self) {
        let from = self.timeline.steps.first().map_or(f64::NEG_INFINITY, |step| step.begin_s);
        let is_seen = |mark: &&Mark| match mark.kind {
            MarkKind::Fault => mark.until_s.is_none_or(|until| until >= from),
            MarkKind::Primary => mark.at_s >= from,
        };
        self.timeline.marks = self.all_marks.iter().filter(is_seen).cloned().collect();
    }
}

/// Whether a trial of `spec` has a timeline: it runs on a cluster of nodes that are read one by one.
pub fn is_shown(spec: &Spec) -> bool {
    spec.lab.is_some()
}

/// The trials of a cell that are worth a picture: the one in which most was lost, or the first that was
/// measured.
pub fn shown<'a>(records: &[&'a Record]) -> Option<(&'a Record, Why)> {
    let measured = || records.iter().copied().filter(|record| record.measured.is_some() && !record.twin);
    let lost = |record: &Record| {
        let broken = record.broken.as_ref()?;
        let of_ledger = broken.ledger.as_ref().map_or(0, |ledger| ledger.losses.lost);
        let of_bank = broken.bank.as_ref().map_or(0, |bank| bank.losses.lost);
        Some(of_ledger + of_bank).filter(|lost| *lost > 0)
    };
    // Of equals the first, so from the back.
    let worst =
        measured().rev().filter_map(|record| Some((lost(record)?, record))).max_by_key(|(lost, _)| *lost);
    match worst {
        Some((lost, record)) => Some((record, Why::LostMost { lost })),
        None => measured().next().map(|record| (record, Why::First)),
    }
}

/// Why a trial is shown and not another of its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Why {
    /// It was the first that was measured.
    First,
    /// How many acknowledged operations it lost; none of the cell lost more.
    LostMost {
        /// How many.
        lost: u64,
    },
}

#[cfg(test)]
mod tests;
