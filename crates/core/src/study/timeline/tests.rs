use super::*;
use crate::check::{Broken, Carried, NewPrimary, Verdict};
use crate::experiment::Experiment;
use crate::measure::{Offered, Station, Way, histogram};
use crate::op::{Failure, OpKind, Outcome, Timing};
use crate::record::{Ends, Phase};
use crate::schedule::{Effect, Injection};
use crate::study::spells::{Spell, spells};
use crate::trial::simulate::{self, Machine};
use std::time::Duration;

const MS: u64 = 1_000_000;
/// The measured phase begins here on the trial clock.
const ZERO: u64 = 5_000 * MS;

fn at(ms: u64) -> Tick {
    Tick(ZERO + ms * MS)
}

/// A record of a trial that was measured for 4 s, with nothing broken.
fn record() -> Record {
    let plan = include_str!("../../../../../experiments/working-set.toml");
    let experiment = Experiment::parse(plan, "quick", &[]).unwrap();
    let trial = experiment.trials().remove(0);
    let mut record = simulate::trial(&experiment.name, &trial, 1, &Machine::default()).0;
    let measured = record.measured.as_mut().unwrap();
    (measured.begin, measured.end) = (at(0), at(4000));
    record
}

/// What is read of a node `ms` after the beginning, its processor and its disk at work all the time.
fn samples(ms: u64, cpu_ms: f64, reads: f64) -> BTreeMap<String, Sample> {
    let sample = |values: &[(&str, f64)]| {
        let values = values.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        Sample { begin: at(ms), end: at(ms), values }
    };
    BTreeMap::from([
        (probe::GROUP.into(), sample(&[("cgroup_cpu_ns", cpu_ms * 1e6)])),
        (probe::DISK.into(), sample(&[(metric::DISK_READ_REQUESTS, reads)])),
        (probe::NETWORK.into(), sample(&[("network_received_bytes", 1e6), ("network_sent_bytes", 2e6)])),
    ])
}

/// Eight intervals of half a second: 100 operations in each, none in the fourth and the fifth, and 200 in the
/// sixth. Node `a` is not read at the end of the fourth; its samples lag behind by 40 ms.
fn intervals() -> Vec<Interval> {
    let interval = |n: u64| {
        let mut books = Books::open();
        let done = [100, 100, 100, 0, 0, 200, 100, 100][n as usize];
        for operation in 0..done {
            let due = Tick(0);
            let ended = Tick((operation + 1) * MS);
            let timing = Timing { due, began: due, ended };
            let refused = n == 5 && operation >= 190;
            let outcome = if refused { Outcome::Refused(Failure::Timeout) } else { Outcome::Done };
            books.record(OpKind::Read, outcome, &timing, 0);
        }
        let backlog = [0, 0, 0, 100, 200, 100, 0, 0][n as usize];
        let end = (n + 1) * 500;
        let nodes = BTreeMap::from([("a".to_string(), samples(end + 40, end as f64, end as f64 / 5.0))]);
        Interval {
            phase: Phase::Measure,
            begin: at(n * 500),
            end: at(end),
            books: books.to_text(),
            offered: Some(Offered {
                due: 100,
                begun: done,
                carried_in: 0,
                backlog,
                in_flight: 0,
                unanswered: 0,
                backlog_most: backlog,
                lateness: crate::measure::encode(&histogram()),
            }),
            samples: BTreeMap::new(),
            disk: None,
            nodes: if n == 3 { BTreeMap::new() } else { nodes },
        }
    };
    let warm_up = Interval { phase: Phase::WarmUp, ..interval(0) };
    std::iter::once(warm_up).chain((0..8).map(interval)).collect()
}

/// A kill 1.6 s after the beginning, undone after 2.2 s; `b` took over meanwhile.
fn broken() -> Broken {
    let injection = Injection {
        rule: "at 1600 ms: kill primary, restart after 600 ms".into(),
        at: at(1600),
        uncertainty: Duration::from_millis(30),
        undone: Some(at(2200)),
        effect: Effect::Fired { count: 7 },
        outages: vec![],
    };
    let never = Injection {
        at: Tick(0),
        undone: None,
        effect: Effect::Nothing { reason: "the run ended before its time".into() },
        ..injection.clone()
    };
    let primary = NewPrimary { node: "b".into(), at: at(1900), uncertainty: Duration::from_millis(80) };
    let carried =
        |injection, primaries| Carried { injection, evidence: vec!["a: 7 killed".into()], primaries };
    Broken {
        verdict: Verdict::Valid,
        problems: vec![],
        ledger: None,
        bank: None,
        others: vec![],
        faults: vec![carried(injection, vec![primary]), carried(never, vec![])],
        calm: Books::closed().to_text(),
        calm_for: Duration::ZERO,
        books: Books::closed().to_text(),
        lasted: Duration::from_secs(4),
        unanswered: 0,
        data: None,
    }
}

fn close(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 1e-6)
}

#[test]
fn a_node_that_was_not_read_leaves_a_gap_and_its_counters_go_on() {
    let mut record = record();
    let first = samples(40, 0.0, 0.0);
    let ends = Ends { first, last: BTreeMap::new() };
    record.measured.as_mut().unwrap().nodes.insert("a".into(), ends);
    let timeline = Timeline::of(&record, &intervals(), 100).unwrap();
    assert_eq!(timeline.steps.len(), 8, "the warm-up is no part of it");
    let flows = &timeline.nodes["a"];
    for (n, flow) in flows.iter().enumerate() {
        // Half a second lies between the samples, whatever the intervals say.
        match n {
            3 | 4 => assert_eq!((flow.cores, flow.disk_reads_per_s), (None, None), "{flow:?}"),
            _ => assert!(close(flow.cores, 1.0) && close(flow.disk_reads_per_s, 200.0), "{n}: {flow:?}"),
        }
        assert_eq!(flow.disk_flushes_per_s, None, "nobody counted flushes");
    }
    assert!(close(flows[0].network_in_mb_per_s, 0.0) && flows[3].network_in_mb_per_s.is_none());
}

#[test]
fn without_a_sample_at_the_beginning_the_first_step_has_no_rate() {
    let timeline = Timeline::of(&record(), &intervals(), 100).unwrap();
    assert_eq!(timeline.nodes["a"][0].cores, None);
    assert!(close(timeline.nodes["a"][1].cores, 1.0));
}

#[test]
fn a_counter_that_begins_anew_has_no_rate() {
    let mut intervals = intervals();
    for interval in &mut intervals[7..] {
        let group = interval.nodes.get_mut("a").unwrap().get_mut(probe::GROUP).unwrap();
        group.values.insert("cgroup_cpu_ns".into(), 1.0);
    }
    let timeline = Timeline::of(&record(), &intervals, 100).unwrap();
    let cores: Vec<bool> = timeline.nodes["a"].iter().map(|flow| flow.cores.is_some()).collect();
    assert_eq!(cores, [false, true, true, false, false, true, false, true]);
}

#[test]
fn users_are_shown_as_they_were_served() {
    let steps = Timeline::of(&record(), &intervals(), 100).unwrap().steps;
    assert_eq!((steps[0].begin_s, steps[0].end_s), (0.0, 0.5));
    assert_eq!((steps[0].done_ops_per_s, steps[0].offered_ops_per_s), (200.0, Some(200.0)));
    assert_eq!((steps[4].done_ops_per_s, steps[4].backlog), (0.0, Some(200)));
    assert_eq!(steps[4].residence, None, "nothing ended");
    assert_eq!((steps[5].done_ops_per_s, steps[5].failed_ops_per_s), (380.0, 20.0));
    let waited = steps[5].residence.as_ref().unwrap();
    assert_eq!(waited.operations, 200);
    // 1 to 200 ms, to the three digits of a histogram.
    assert!(
        (99.5..=100.5).contains(&waited.ms_p50) && (197.0..=199.0).contains(&waited.ms_p99),
        "{waited:?}"
    );
    assert!((199.5..=200.5).contains(&waited.ms_max), "{waited:?}");
}

#[test]
fn fewer_steps_are_intervals_merged_and_never_averaged() {
    let mut record = record();
    let ends = Ends { first: samples(40, 0.0, 0.0), last: BTreeMap::new() };
    record.measured.as_mut().unwrap().nodes.insert("a".into(), ends);
    let timeline = Timeline::of(&record, &intervals(), 3).unwrap();
    let lengths: Vec<(f64, f64)> = timeline.steps.iter().map(|step| (step.begin_s, step.end_s)).collect();
    assert_eq!(lengths, [(0.0, 1.5), (1.5, 3.0), (3.0, 4.0)]);
    let middle = timeline.steps[1].residence.as_ref().unwrap();
    assert_eq!((middle.operations, timeline.steps[1].backlog), (200, Some(200)));
    // The step with the gap in it has the rate between the samples that are there.
    assert!(timeline.nodes["a"].iter().all(|flow| close(flow.cores, 1.0)), "{:?}", timeline.nodes);
}

#[test]
fn marks_stand_where_something_happened_and_an_honest_trial_has_none() {
    let mut record = record();
    assert_eq!(Timeline::of(&record, &intervals(), 100).unwrap().marks, []);
    assert_eq!(spells(&record, &intervals()).keys().collect::<Vec<_>>(), [&Spell::Whole]);
    record.broken = Some(Box::new(broken()));
    let marks = Timeline::of(&record, &intervals(), 100).unwrap().marks;
    let told: Vec<(f64, MarkKind, &str)> =
        marks.iter().map(|mark| (mark.at_s, mark.kind, mark.words.as_str())).collect();
    let kill = (1.6, MarkKind::Fault, "kill primary, restart after 600 ms");
    assert_eq!(told, [kill, (1.9, MarkKind::Primary, "b takes writes")], "what never happened has no mark");
    assert_eq!((marks[0].until_s, marks[0].within_s), (Some(2.2), 0.03));
    assert_eq!(marks[0].evidence, "a: 7 killed");
}

#[test]
fn spells_hold_every_interval_that_a_fault_touches() {
    let mut record = record();
    record.broken = Some(Box::new(broken()));
    let intervals = intervals();
    let spells = spells(&record, &intervals);
    let done = |spell| {
        let figures: Vec<&Interval> = match spell {
            Spell::Before => intervals[1..4].iter().collect(),
            Spell::During => intervals[4..6].iter().collect(),
            Spell::After => intervals[6..].iter().collect(),
            Spell::Whole => intervals[1..].iter().collect(),
        };
        (merged(&figures).unwrap().done(), figures.len() as f64 * 0.5)
    };
    assert_eq!(spells.len(), 4);
    for (spell, served) in &spells {
        assert_eq!((served.done(), served.seconds()), done(*spell), "{spell:?}");
    }
}

#[test]
fn the_trial_that_lost_most_is_shown_and_without_a_loss_the_first() {
    let lossless = [record(), record()];
    let all: Vec<&Record> = lossless.iter().collect();
    let (chosen, why) = shown(&all).unwrap();
    assert!(std::ptr::eq(chosen, all[0]) && why == Why::First);
    let mut failed = record();
    failed.measured = None;
    assert!(shown(&[&failed]).is_none(), "nothing was measured");
    let (chosen, _) = shown(&[&failed, all[1]]).unwrap();
    assert!(std::ptr::eq(chosen, all[1]));
}

#[test]
fn a_trial_that_goes_on_shows_its_last_intervals_as_it_will_show_them_all() {
    let (mut recent, intervals) = (Recent::new(5, at(0)), intervals());
    for interval in &intervals {
        recent.push(interval).unwrap();
    }
    let mut record = record();
    let first = samples(0, 0.0, 0.0);
    record.measured.as_mut().unwrap().nodes =
        BTreeMap::from([("a".to_string(), Ends { first: first.clone(), last: first })]);
    let whole = Timeline::of(&record, &intervals, 100).unwrap();
    assert_eq!(recent.timeline.steps, whole.steps[3..], "the last five of eight, computed alike");
    let flows = &recent.timeline.nodes["a"];
    assert_eq!(flows.len(), 5);
    assert_eq!(flows[3..], whole.nodes["a"][6..]);
    assert_eq!(flows[0].cores, None, "nobody could read the node then, and that is no zero");
    let ended: Vec<u64> =
        recent.waited.iter().map(|classes| classes.iter().map(|c| c.operations).sum()).collect();
    assert_eq!(ended, [0, 0, 200, 100, 100], "every operation is in one class");
    let slowest = recent.waited[2].last().unwrap().from_ms;
    assert!(slowest <= 200.0 && slowest * Class::RATIO >= 199.0, "{slowest}: 200 ms were the longest");
}

#[test]
fn a_target_that_runs_alone_is_a_node_of_its_own() {
    let mut recent = Recent::new(9, at(0));
    for mut interval in intervals() {
        let end_ms = (interval.end.0 - ZERO) / MS;
        interval.nodes.clear();
        interval.samples = samples(end_ms, end_ms as f64 / 2.0, 0.0);
        interval.samples.remove(probe::DISK);
        interval.disk = Some(crate::device::Counters {
            at: interval.end,
            queue_time: Duration::from_millis(end_ms * 3),
            ..Default::default()
        });
        recent.push(&interval).unwrap();
    }
    let flow = recent.timeline.nodes[ALONE].last().unwrap();
    assert_eq!((flow.cores, flow.disk_queue), (Some(0.5), Some(3.0)));
    let mut damaged = intervals().remove(0);
    damaged.books.open = false;
    assert!(recent.push(&damaged).is_err(), "damaged books are no empty ones");
}

#[test]
fn bytes_are_accounted_for_while_a_trial_goes_on_and_anew_where_a_node_was_not_read() {
    let mut recent = Recent::new(5, at(0));
    // The engine misses 1 MB an interval more than it asks for; page cache and device share it evenly.
    let counted = |end: u64| {
        let bytes = end as f64 * 2e4;
        let values = [
            (metric::ENGINE_FILE_READ_BYTES, bytes),
            (metric::PROCESS_ASKED_READ_BYTES, bytes),
            (metric::PROCESS_DEVICE_READ_BYTES, bytes / 2.0),
            (metric::DEVICE_READ_BYTES, bytes / 2.0),
            (metric::DISK_READ_BYTES, bytes / 2.0),
        ];
        let values = values.map(|(name, value)| (name.to_string(), value)).into();
        BTreeMap::from([(probe::TARGET.to_string(), Sample { begin: at(end), end: at(end), values })])
    };
    let mut since = Vec::new();
    for mut interval in intervals() {
        let end = (interval.end.0 - ZERO) / MS;
        if !interval.nodes.is_empty() {
            interval.nodes = BTreeMap::from([("a".to_string(), counted(end))]);
        }
        recent.push(&interval).unwrap();
        let budgets = recent.budgets(Way::Reads);
        since.push(budgets.as_ref().map(|so_far| (so_far.since_s, so_far.operations)));
        if let Some(budget) = budgets.map(|mut so_far| so_far.nodes.remove("a").unwrap()) {
            assert_eq!(budget.closes, Some(true), "{budget:?}");
            assert_eq!(budget.bytes(Station::PageCache), budget.bytes(Station::Device));
        }
    }
    // The warm-up's, the first three; the fourth could not be read; from the fifth on anew.
    let expected = [None, None, Some((0.5, 100)), Some((0.5, 200)), None];
    assert_eq!(since[..5], expected);
    assert_eq!(since[5..], [None, Some((2.5, 200)), Some((2.5, 300)), Some((2.5, 400))]);
    assert!(recent.budgets(Way::Writes).is_none(), "nobody counts what is written");
}
