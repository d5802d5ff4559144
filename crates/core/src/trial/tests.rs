//! The pipeline in the virtual world: what each kind of trial goes through, and what an error, an interrupt
//! and a crash at each phase leave behind.

use super::simulate::{Machine, VirtualWorld};
use super::*;
use crate::check::guilty::Culprit;
use crate::check::{self, Check};
use crate::experiment::Experiment;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

const DISKS: &str = include_str!("../../../../experiments/working-set.toml");

/// A ledger whose only server loses its power.
const BROKEN: &str = r#"
    name = "b"
    title = "B"
    question = "q"
    why = "w"
    how_to_read = "h"
    repeats = 2
    [target]
    kind = "postgres"
    [disk]
    size = "1 GiB"
    [load]
    sessions = 8
    [lab]
    recipe = "postgres"
    [break]
    checks = ["ledger"]
    faults = "at 200 ms: power cut all, restart after 100 ms"
    length = "600 ms"
    [[sweep]]
    name = "s"
    question = "q"
    axis = []
    [scale.quick]
"#;

/// Records that are loaded while the only server loses its power, and a ledger beside the load that follows,
/// under another cut.
fn loaded() -> String {
    let cuts = "at 100 ms: power cut all, restart after 30 ms; at 400 ms: power cut all, restart after 30 ms";
    BROKEN
        .replace("[load]", "[workload]\nrecords = 500\n[load]")
        .replace("[break]", "[break]\nfrom = \"loading\"\nsessions = 4")
        .replace("at 200 ms: power cut all, restart after 100 ms", cuts)
        .replace("\"600 ms\"", "\"800 ms\"")
}

/// A ledger that is kept while nothing is broken.
const LEDGER: &str = r#"
    name = "l"
    title = "L"
    question = "q"
    why = "w"
    how_to_read = "h"
    repeats = 1
    [target]
    kind = "wiredtiger"
    wiredtiger = { cache = "64 MiB" }
    [machine]
    memory = "256 MiB"
    [disk]
    size = "1 GiB"
    [workload]
    kind = "ledger"
    [load]
    sessions = 8
    [trial]
    measure_least = "600 ms"
    [[sweep]]
    name = "s"
    question = "q"
    axis = []
    [scale.quick]
"#;

/// How a phase ends that does not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Error,
    /// The user asks to stop, and what was under way fails for that.
    Interrupt,
    /// The program ends.
    Crash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wrong {
    Broke(Phase),
    Interrupted,
    Full,
}

/// The virtual world, in which one phase of one trial goes wrong, once.
struct Faulty {
    inner: VirtualWorld,
    at: Option<(Phase, Trial<'static>, How)>,
    interrupted: bool,
    done: Vec<(Phase, String)>,
    cleared: u32,
}

impl Faulty {
    fn new(at: Option<(Phase, Trial<'static>, How)>) -> Faulty {
        let inner = VirtualWorld::new(&Machine::default(), 1);
        Faulty { inner, at, interrupted: false, done: vec![], cleared: 0 }
    }
}

impl World for Faulty {
    type Error = Wrong;

    fn now(&self) -> Tick {
        self.inner.now()
    }

    fn interrupted(&self) -> Result<(), Wrong> {
        if self.interrupted { Err(Wrong::Interrupted) } else { Ok(()) }
    }

    fn carry_out(&mut self, phase: Phase, trial: &Trial<'_>, draft: &mut Draft) -> Result<String, Wrong> {
        match self.at.take_if(|(at, whose, _)| *at == phase && whose.cell.id() == trial.cell.id()) {
            None => {}
            Some((_, _, How::Error)) => return Err(Wrong::Broke(phase)),
            Some((_, _, How::Interrupt)) => {
                self.interrupted = true;
                return Err(Wrong::Broke(phase));
            }
            Some((_, _, How::Crash)) => panic!("the program ends"),
        }
        self.done.push((phase, trial.cell.spec.disk.shape.clone()));
        Ok(self.inner.carry_out(phase, trial, draft).expect("nothing else goes wrong"))
    }

    fn facts(&self) -> WorldFacts {
        self.inner.facts()
    }

    fn reason(&self, error: &Wrong) -> String {
        format!("{error:?}")
    }

    fn clear(&mut self) {
        self.cleared += 1;
        self.inner.clear();
    }
}

/// Three disks under the same caches, which share a warm-up; leaked, so that worlds can name them.
fn three() -> Vec<Trial<'static>> {
    let experiment = Box::leak(Box::new(Experiment::parse(DISKS, "tiny", &[]).unwrap()));
    let cells = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
    let all: Vec<Trial<'static>> = cells.map(|cell| Trial { cell, repeat: 0, twin: false }).collect();
    let together =
        all.iter().filter(|trial| share_warm_up(&all[0], trial)).take(3).cloned().collect::<Vec<_>>();
    assert_eq!(together.len(), 3);
    together
}

fn only(plan: &str) -> Trial<'static> {
    let experiment = Box::leak(Box::new(Experiment::parse(plan, "quick", &[]).unwrap()));
    Trial { cell: &experiment.sweeps[0].cells[0], repeat: 0, twin: false }
}

fn broken() -> Trial<'static> {
    only(BROKEN)
}

const OF: Of<'static> = Of { experiment: "t", seed: 1 };

/// As a run does it: what is left is tried again in the same world.
fn run(world: &mut Faulty, mut left: Vec<Trial<'static>>, kept: &mut Vec<Record>) -> Result<(), Wrong> {
    while !left.is_empty() {
        left = carry_out(world, OF, left, |_, _, record, series| {
            assert!(record.measured.is_none() || record.spec.keeps_history() || !series.is_empty());
            kept.push(record);
            Ok(())
        })?;
    }
    Ok(())
}

fn shapes(kept: &[Record]) -> BTreeSet<String> {
    kept.iter().map(|record| record.spec.disk.shape.clone()).collect()
}

/// All phases that the trials go through, the one of which is `of`.
fn phases_of(trials: &[Trial<'static>], of: usize) -> Vec<Phase> {
    let spec = &trials[of].cell.spec;
    let first = if of == 0 { shared_phases(spec) } else { vec![] };
    let last = (of + 1 == trials.len()).then_some(Phase::Stop);
    first.into_iter().chain(own_phases(spec, of > 0)).chain(last).collect()
}

#[test]
fn trials_that_share_a_warm_up_go_through_it_once_and_through_the_rest_one_after_the_other() {
    use Phase::*;
    let (mut world, mut kept) = (Faulty::new(None), vec![]);
    run(&mut world, three(), &mut kept).unwrap();
    let done: Vec<Phase> = world.done.iter().map(|(phase, _)| *phase).collect();
    let own = [Shape, Settle, Measure, Rest];
    let mut expected = vec![Load, Calibrate, Calibrate, Calibrate, Start, WarmUp];
    expected.extend(own);
    for _ in 1..3 {
        expected.push(ReWarm);
        expected.extend(own);
    }
    expected.push(Stop);
    assert_eq!(done, expected);
    assert!(kept.iter().all(|record| record.verdict == Verdict::Valid), "{kept:#?}");
    let names: Vec<Phase> = kept[2].phases.iter().map(|span| span.name).collect();
    assert_eq!(names, [Load, Start, WarmUp, ReWarm, Shape, Settle, Measure, Rest]);
    assert!(kept[2].phases.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    assert_eq!(world.cleared, 0);
}

#[test]
fn faults_and_checks_have_phases_of_their_own() {
    use Phase::*;
    let names = |kept: &[Record]| kept[0].phases.iter().map(|span| span.name).collect::<Vec<_>>();
    let (mut world, mut kept) = (Faulty::new(None), vec![]);
    run(&mut world, vec![broken()], &mut kept).unwrap();
    assert_eq!(names(&kept), [Load, Start, Shape, Measure, Recover, Read, Judge, Rest]);
    let (mut world, mut kept) = (Faulty::new(None), vec![]);
    run(&mut world, vec![only(&loaded())], &mut kept).unwrap();
    assert_eq!(names(&kept), [Start, Shape, Load, Measure, Recover, Read, Judge, Rest]);
    let (mut world, mut kept) = (Faulty::new(None), vec![]);
    run(&mut world, vec![only(LEDGER)], &mut kept).unwrap();
    assert_eq!(names(&kept), [Load, Start, WarmUp, Shape, Settle, Measure, Rest, Check]);
    assert_eq!(kept[0].checked.as_ref().unwrap().verdict, check::Verdict::Valid);
}

#[test]
fn under_faults_the_honest_is_believed_and_the_culprit_convicted() {
    for (culprit, verdict) in [
        (Culprit::Honest, check::Verdict::Valid),
        (Culprit::AcknowledgedBeforeFlush, check::Verdict::Invalid),
    ] {
        let (mut world, mut kept) = (Faulty::new(None), vec![]);
        world.inner.culprit = culprit;
        run(&mut world, vec![broken()], &mut kept).unwrap();
        let found = kept[0].broken.as_ref().unwrap();
        assert_eq!(found.verdict, verdict, "{culprit:?}: {found:#?}");
        // What a database does is no fault of the trial's.
        assert_eq!(kept[0].verdict, Verdict::Valid);
        assert!(found.ledger.is_some() && kept[0].spec.breaking.as_ref().unwrap().checks == [Check::Ledger]);
    }
}

#[test]
fn faults_meet_loading_and_what_was_known_to_be_there_is_missed() {
    let judged = |culprit, plan: &str| {
        let (mut world, mut kept) = (Faulty::new(None), vec![]);
        world.inner.culprit = culprit;
        run(&mut world, vec![only(plan)], &mut kept).unwrap();
        assert_eq!(kept[0].verdict, Verdict::Valid);
        let span = kept[0].phases.iter().find(|span| span.name == Phase::Measure).unwrap();
        assert!(kept[0].measured.as_ref().unwrap().begin.0 > 0 && span.end > span.begin, "time goes on");
        let found = kept[0].broken.clone().unwrap();
        let loading = found.others.iter().find(|finding| finding.checker == "loading").unwrap().clone();
        (found, loading)
    };
    let (found, loading) = judged(Culprit::Honest, &loaded());
    assert_eq!(found.verdict, check::Verdict::Valid, "{found:#?}");
    assert_eq!((loading.counted("known to be there"), loading.counted("faults while loading")), (500, 1));
    assert!(loading.counted("tries with an unknown outcome") > 0, "{loading:?}");
    assert_eq!(found.faults.len(), 2, "the second one meets the load that follows");
    assert!(found.faults[1].injection.at > found.faults[0].injection.at);
    let (found, loading) = judged(Culprit::AcknowledgedBeforeFlush, &loaded());
    assert_eq!(found.verdict, check::Verdict::Invalid);
    assert!(loading.counted("LOST") > 10, "{loading:?}");
    assert!(loading.evidence[0].contains("known to be there since 0.0"), "{loading:?}");
    // What comes after loading is no test of it.
    let late = loaded().replace("at 100 ms", "at 600 ms");
    let (found, loading) = judged(Culprit::Honest, &late);
    assert_eq!((loading.verdict, found.verdict), (check::Verdict::NotTested, check::Verdict::NotTested));
}

#[test]
fn an_error_fails_one_trial_and_the_others_are_measured_all_the_same() {
    for trials in [three(), vec![broken()], vec![only(&loaded())]] {
        for of in 0..trials.len() {
            for phase in phases_of(&trials, of) {
                let mut world = Faulty::new(Some((phase, trials[of].clone(), How::Error)));
                let mut kept = vec![];
                run(&mut world, trials.clone(), &mut kept).unwrap();
                assert_eq!(kept.len(), trials.len(), "{phase} of {of}");
                assert_eq!(shapes(&kept).len(), trials.len(), "{phase} of {of}: each once");
                let failed: Vec<&Record> =
                    kept.iter().filter(|record| matches!(record.verdict, Verdict::Failed { .. })).collect();
                // What was measured before the target would not stop is kept, and calibrating touches no
                // target.
                let (failures, cleared) = match phase {
                    Phase::Stop => (0, 1),
                    Phase::Calibrate => (1, 0),
                    _ => (1, 1),
                };
                assert_eq!((failed.len(), world.cleared), (failures, cleared), "{phase} of {of}");
                let Some(failed) = failed.first() else { continue };
                assert_eq!(failed.spec.disk.shape, trials[of].cell.spec.disk.shape);
                let last = failed.phases.last().unwrap();
                assert_eq!(last.name, phase);
                assert_eq!(last.evidence, format!("failed: Broke({phase:?})"));
                assert_eq!(failed.verdict, Verdict::Failed { reason: format!("Broke({phase:?})") });
                assert_eq!(
                    failed.measured.is_some(),
                    phase > Phase::Measure,
                    "{phase}: what there is, is kept"
                );
            }
        }
    }
}

#[test]
fn an_interrupt_ends_the_run_and_makes_no_record_of_what_it_broke_off() {
    let trials = three();
    for of in 0..trials.len() {
        for phase in phases_of(&trials, of) {
            let mut world = Faulty::new(Some((phase, trials[of].clone(), How::Interrupt)));
            let mut kept = vec![];
            let ended = run(&mut world, trials.clone(), &mut kept);
            assert_eq!(ended, Err(Wrong::Interrupted), "{phase} of {of}");
            assert_eq!(kept.len(), if phase == Phase::Stop { 3 } else { of }, "{phase} of {of}");
            assert!(kept.iter().all(|record| record.verdict == Verdict::Valid), "{phase} of {of}");
            // Nothing is carried out any more after it.
            let last = world.done.last().map(|(phase, _)| *phase);
            let all: Vec<Phase> = (0..=of).flat_map(|of| phases_of(&trials, of)).collect();
            let before = all.len() - phases_of(&trials, of).len()
                + phases_of(&trials, of).iter().position(|own| *own == phase).unwrap();
            let expected = match phase {
                // It is each trial's own, before any target starts.
                Phase::Calibrate => Some(Phase::Load),
                _ => before.checked_sub(1).map(|before| all[before]),
            };
            assert_eq!(last, expected, "{phase} of {of}");
            resumes(&trials, kept);
        }
    }
}

#[test]
fn after_a_crash_every_trial_is_carried_out_once_in_all() {
    let trials = three();
    for of in 0..trials.len() {
        for phase in phases_of(&trials, of) {
            let mut world = Faulty::new(Some((phase, trials[of].clone(), How::Crash)));
            let mut kept = vec![];
            let crashed = catch_unwind(AssertUnwindSafe(|| run(&mut world, trials.clone(), &mut kept)));
            assert!(crashed.is_err(), "{phase} of {of}");
            assert_eq!(world.cleared, 0, "nobody is left to put anything away");
            resumes(&trials, kept);
        }
    }
}

/// A new world carries out what is missing, and nothing else.
fn resumes(trials: &[Trial<'static>], mut kept: Vec<Record>) {
    let before = kept.len();
    let there = shapes(&kept);
    let missing: Vec<Trial<'static>> =
        trials.iter().filter(|trial| !there.contains(&trial.cell.spec.disk.shape)).cloned().collect();
    run(&mut Faulty::new(None), missing.clone(), &mut kept).unwrap();
    assert_eq!(kept.len() - before, missing.len());
    assert_eq!(shapes(&kept).len(), trials.len());
    assert!(kept.iter().all(|record| record.verdict == Verdict::Valid));
}

#[test]
fn a_record_that_cannot_be_kept_ends_the_run_and_is_no_failure_of_the_trial() {
    let (mut world, mut tries) = (Faulty::new(None), 0);
    let ended = carry_out(&mut world, OF, three(), |_, _, record, _| {
        assert_eq!(record.verdict, Verdict::Valid);
        tries += 1;
        if tries == 2 { Err(Wrong::Full) } else { Ok(()) }
    });
    assert_eq!((ended.map(|left| left.len()), tries), (Err(Wrong::Full), 2));
}

#[test]
fn names_of_phases_are_what_records_hold() {
    for phase in Phase::ALL {
        assert_eq!(serde_json::to_string(&phase).unwrap(), format!("\"{phase}\""));
    }
}
