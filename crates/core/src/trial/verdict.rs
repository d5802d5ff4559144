//! Whether a measured trial can be believed.

use super::Draft;
use crate::check::{Broken, Judgement, Verdict as Believed};
use crate::experiment::{BreakSpec, Spec, TargetKind, WorkloadKind};
use crate::measure::{Books, Budget, Offered, WarmUp, little_residual};
use crate::metric::{name as metric, probe};
use crate::op::Failure;
use crate::record::{Measured, Verdict};
use crate::schedule::Fault;
use crate::units::span;
use crate::workload::bank::Generation;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a trial came to that went through all its phases.
pub fn of(spec: &Spec, draft: &Draft, memory_bounded: bool) -> Verdict {
    let Some(measured) = &draft.measured else {
        return Verdict::Failed { reason: "nothing was measured".into() };
    };
    match &draft.broken {
        Some(broken) => judge_broken(spec, measured, broken),
        None => judge(spec, measured, draft.warm_up.as_ref(), memory_bounded, draft.checked.as_ref()),
    }
}

/// Judges a trial: what was not steady, does not add up, or was not as asked is not valid, and says so.
pub fn judge(
    spec: &Spec,
    measured: &Measured,
    warm_up: Option<&WarmUp>,
    memory_bounded: bool,
    checked: Option<&Judgement>,
) -> Verdict {
    let mut reasons = of_memory(spec, measured);
    if let Some(WarmUp::Never(reason) | WarmUp::NotYet(reason)) = warm_up {
        reasons.push(format!("the caches never came to rest: {reason}"));
    }
    match measured.books() {
        Ok(books) => {
            reasons.extend(of_books(spec, measured, &books));
            reasons.extend(of_machines(measured, &books));
        }
        Err(error) => reasons.push(format!("the latencies cannot be read: {error}")),
    }
    for (node, account) in measured.accounts() {
        let budget = Budget::reads(&account);
        if budget.closes == Some(false) {
            let of = if node.is_empty() { String::new() } else { format!(" of {node}") };
            reasons.push(format!("the read budget{of} does not close: {}", budget.evidence));
        }
    }
    let misses = measured.growth(probe::TARGET, metric::ENGINE_PAGE_READS).unwrap_or(0.0);
    let beyond_cache = misses / measured.operations().max(1) as f64 > 0.002;
    if !memory_bounded
        && spec.machine.memory.is_some()
        && spec.target.kind == TargetKind::Wiredtiger
        && beyond_cache
    {
        reasons.push("memory was not bounded, so the page cache held more than the plan says".into());
    }
    // The speed of a database that does not keep what it acknowledged is not worth a figure.
    if let Some(judgement) = checked.filter(|judgement| judgement.verdict != Believed::Valid) {
        reasons.push(format!("what was checked is {}: {}", judgement.verdict.words(), judgement.summary()));
    }
    if reasons.is_empty() { Verdict::Valid } else { Verdict::Invalid { reasons } }
}

/// Judges a trial in which something was broken, which is not whether the database kept its word: operations
/// that fail and sessions that wait are what faults do, but the laboratory must have done and seen what it
/// was to.
pub fn judge_broken(spec: &Spec, measured: &Measured, broken: &Broken) -> Verdict {
    let mut reasons = believable(broken);
    reasons.extend(of_memory(spec, measured));
    match (measured.books(), &measured.offered) {
        (Err(error), _) => reasons.push(format!("the latencies cannot be read: {error}")),
        (Ok(books), Some(offered)) => reasons.extend(of_open_loop(spec, offered, &books)),
        (Ok(_), None) => {}
    }
    if reasons.is_empty() { Verdict::Valid } else { Verdict::Invalid { reasons } }
}

/// What speaks against a trial in which something was broken, which is not whether the database kept its
/// word: the laboratory did not do what it was to do, or did not see it.
fn believable(broken: &Broken) -> Vec<String> {
    let ours =
        broken.problems.iter().filter(|finding| ["history", "faults"].contains(&finding.checker.as_str()));
    ours.map(|finding| format!("{}: {}", finding.summary, finding.evidence.join("; "))).collect()
}

/// Servers that the kernel has killed for want of memory, which nobody asked for unless a fault took it away.
fn of_memory(spec: &Spec, measured: &Measured) -> Vec<String> {
    let squeezes = |breaking: &BreakSpec| {
        breaking.faults.rules.iter().any(|rule| matches!(rule.fault, Fault::SqueezeMemory { .. }))
    };
    if spec.breaking.as_ref().is_some_and(squeezes) {
        return vec![];
    }
    let killed = |(place, kills): (&str, f64)| {
        let limit = spec.machine.memory.map_or(String::new(), |memory| format!(" ({memory})"));
        format!(
            "the kernel killed {kills} {} of node {place} for want of memory: give it more{limit}, or its server a \
             smaller cache",
            if kills > 1.0 { "processes" } else { "process" }
        )
    };
    measured.killed_for_memory().into_iter().map(killed).collect()
}

/// What counts and latencies of operations say against a trial.
fn of_books(spec: &Spec, measured: &Measured, books: &Books) -> Vec<String> {
    let mut reasons = Vec::new();
    // Conflicts and time-outs are what load does to a target: results. Anything else was not meant to happen.
    let mut results = vec![Failure::Conflict, Failure::Timeout];
    if spec.workload.kind == WorkloadKind::Bank {
        // An account that cannot pay is how banks are; one that does not exist is one of old stroppy's traps.
        results.push(Failure::Overdraft);
        let generation = spec.workload.bank.unwrap_or_default().generation;
        results.extend((generation == Generation::Stroppy).then_some(Failure::NotFound));
    }
    let faults: BTreeMap<_, _> =
        books.failures().into_iter().filter(|(failure, _)| !results.contains(failure)).collect();
    if !faults.is_empty() {
        reasons.push(format!(
            "{} operations failed: {}",
            faults.values().sum::<u64>(),
            failures_in_words(&faults)
        ));
    }
    if books.corrupt() > 0 {
        reasons.push(format!("{} reads brought something else than was written", books.corrupt()));
    }
    if books.answered() == 0 {
        reasons.push("no operation was answered".into());
        return reasons;
    }
    if let Some(offered) = &measured.offered {
        reasons.extend(of_open_loop(spec, offered, books));
        return reasons;
    }
    // Operations that were in flight at the ends were counted where they ended: each session's account may
    // be off by about a long latency at either end, which widens what Little's law allows.
    let residence = books.residence();
    let sessions = f64::from(spec.load.sessions);
    let long_s = residence.value_at_quantile(0.99) as f64 / 1e9;
    let allowed = 0.05 + 2.0 * (2.0 / sessions).sqrt() * long_s / measured.seconds();
    let throughput = books.answered() as f64 / measured.seconds();
    let turn_s = residence.mean() / 1e9 + spec.load.think.as_secs_f64();
    let residual = little_residual(sessions, throughput, turn_s);
    if residual.abs() > allowed {
        reasons.push(format!(
            "Little's law is off by {:.1} %, allowed {:.1} %: sessions were not always busy",
            residual * 100.0,
            allowed * 100.0
        ));
    }
    reasons
}

/// What speaks against a load that several machines sent: one that was late hides among the others, and
/// figures of intervals that are not the same ones cannot be added.
fn of_machines(measured: &Measured, books: &Books) -> Vec<String> {
    let residence = Duration::from_nanos(books.residence().value_at_quantile(0.99));
    let mut reasons = Vec::new();
    for machine in &measured.machines {
        if machine.is_late(residence) {
            reasons.push(format!(
                "the machine {} was late: 1 % of its operations were sent over {} after they were due, and the p99 of \
                 the residence is {}",
                machine.machine,
                span::rounded(Duration::from_nanos(machine.late_ns.unwrap_or(0))),
                span::rounded(residence)
            ));
        }
        // An end that is off makes its time another one's; a clock that is off only moves that.
        if machine.apart_ns as f64 / 1e9 > measured.seconds() / 200.0 {
            reasons.push(format!(
                "the machine {} counted from or to another moment than the first, by up to {}",
                machine.machine,
                span::rounded(Duration::from_nanos(machine.apart_ns))
            ));
        }
        if let Some(clock) =
            machine.clock.filter(|clock| clock.bound_ns as f64 / 1e9 > measured.seconds() / 20.0)
        {
            reasons.push(format!(
                "the clock of the machine {} is known only to {}",
                machine.machine,
                span::rounded(Duration::from_nanos(clock.bound_ns))
            ));
        }
    }
    reasons
}

/// What speaks against an open loop: operations that nobody accounts for, and a generator that was late. A
/// backlog does not: that is the target's.
fn of_open_loop(spec: &Spec, offered: &Offered, books: &Books) -> Vec<String> {
    let mut reasons = Vec::new();
    let missing = offered.unaccounted(books.answered());
    // Each session may be caught between two counts at either end, and what ends while an interval is closed
    // stands in its neighbour: at most some milliseconds of the load.
    let allowed = i64::from(spec.load.sessions) * 2 + offered.due as i64 / 200;
    if missing.abs() > allowed {
        reasons.push(format!(
            "{missing} operations that were due are neither answered, nor in flight, nor waiting"
        ));
    }
    match offered.late_beside(&books.residence()) {
        Ok(Some((late, residence))) => reasons.push(format!(
            "the generator was late: 1 % of the operations were sent over {} after they were due and a session was \
             free, and the p99 of the residence is {}",
            span::rounded(late),
            span::rounded(residence)
        )),
        Ok(None) => {}
        Err(error) => reasons.push(format!("the generator's lateness cannot be read: {error}")),
    }
    reasons
}

/// "3 conflict, 1 timeout".
fn failures_in_words(failures: &BTreeMap<Failure, u64>) -> String {
    let words = |(failure, count): (&Failure, &u64)| format!("{count} {}", failure.name());
    failures.iter().map(words).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Trial};
    use crate::measure::ClockOffset;
    use crate::metric::Sample;
    use crate::op::{OpKind, Outcome, Timing};
    use crate::record::{Ends, LoadMachine};
    use crate::trial::simulate::{self, Machine};

    const PLAN: &str = include_str!("../../../../experiments/working-set.toml");

    fn slowest() -> (Spec, Measured) {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let cell = experiment.sweeps.last().unwrap().cells.last().unwrap();
        let (record, _) =
            simulate::trial("t", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default());
        ((*record.spec).clone(), record.measured.unwrap())
    }

    fn reasons(verdict: Verdict) -> String {
        match verdict {
            Verdict::Invalid { reasons } => reasons.join("; "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_honest_trial_is_valid() {
        let (spec, measured) = slowest();
        assert_eq!(judge(&spec, &measured, Some(&WarmUp::Steady(String::new())), true, None), Verdict::Valid);
    }

    #[test]
    fn a_machine_that_spoils_a_load_of_several_is_named() {
        let (spec, mut measured) = slowest();
        let honest = LoadMachine {
            machine: "a".into(),
            processors: 2,
            sessions: 4,
            operations: 1,
            process_ns: 1,
            sessions_ns: 1,
            late_ns: Some(1_000),
            clock: None,
            apart_ns: 50_000,
        };
        let clock = |bound_ns| Some(ClockOffset { ns: -7, bound_ns });
        let b = LoadMachine { machine: "b".into(), clock: clock(1_000_000), ..honest.clone() };
        measured.machines = vec![honest, b.clone()];
        let steady = Some(&WarmUp::Steady(String::new()));
        assert_eq!(judge(&spec, &measured, steady, true, None), Verdict::Valid);
        let mut said = |spoilt: LoadMachine| {
            measured.machines[1] = spoilt;
            reasons(judge(&spec, &measured, steady, true, None))
        };
        let whole_ns = 3_600_000_000_000;
        assert!(
            said(LoadMachine { late_ns: Some(whole_ns), ..b.clone() }).contains("the machine b was late")
        );
        assert!(
            said(LoadMachine { apart_ns: whole_ns, ..b.clone() })
                .contains("the machine b counted from or to")
        );
        assert!(said(LoadMachine { clock: clock(whole_ns), ..b }).contains("the clock of the machine b"));
    }

    #[test]
    fn a_server_that_was_killed_for_want_of_memory_is_named_and_one_of_an_earlier_trial_is_not() {
        let (spec, mut measured) = slowest();
        let said = |before: f64, after: f64, measured: &mut Measured| {
            let sample = |kills| {
                let group =
                    Sample { values: [(metric::GROUP_OOM_KILLS.into(), kills)].into(), ..Sample::default() };
                BTreeMap::from([(probe::GROUP.to_string(), group)])
            };
            let ends = Ends { first: sample(before), last: sample(after) };
            measured.nodes = [("b".to_string(), ends)].into();
            of_memory(&spec, measured)
        };
        assert_eq!(said(0.0, 0.0, &mut measured), [""; 0]);
        assert_eq!(said(1.0, 1.0, &mut measured), [""; 0], "it was started again since");
        assert!(said(1.0, 2.0, &mut measured)[0].contains("killed 1 process of node b"));
        measured.books = Books::closed().to_text();
        assert!(said(1.0, 1.0, &mut measured)[0].contains("killed 1 process of node b"), "nobody answered");
        let faults = "at 1 s: squeeze memory of all to 100 MiB for 1 s".parse().unwrap();
        let squeezed = Spec { breaking: Some(BreakSpec { faults, ..BreakSpec::default() }), ..spec.clone() };
        assert_eq!(of_memory(&squeezed, &measured), [""; 0], "a fault took it away");
    }

    #[test]
    fn each_fault_is_convicted() {
        let (spec, honest) = slowest();
        let steady = Some(&WarmUp::Steady(String::new()));
        assert!(
            reasons(judge(&spec, &honest, Some(&WarmUp::Never("m".into())), true, None))
                .contains("never came to rest")
        );
        assert!(reasons(judge(&spec, &honest, steady, false, None)).contains("not bounded"));
        let mut failing = honest.clone();
        let mut books = failing.books().unwrap();
        let long = Timing { due: honest.begin, began: honest.begin, ended: honest.begin };
        for _ in 0..3 {
            books.record(OpKind::Read, Outcome::Refused(Failure::NotFound), &long, 0);
        }
        failing.books = books.to_text();
        assert!(
            reasons(judge(&spec, &failing, steady, true, None)).contains("3 operations failed: 3 not found")
        );
        let mut leaking = honest.clone();
        let sample = leaking.last.get_mut(probe::TARGET).unwrap();
        *sample.values.get_mut(metric::ENGINE_FILE_READ_BYTES).unwrap() *= 1.5;
        assert!(reasons(judge(&spec, &leaking, steady, true, None)).contains("does not close"));
        let mut idle = honest;
        idle.end = idle.end + std::time::Duration::from_secs(10);
        assert!(reasons(judge(&spec, &idle, steady, true, None)).contains("Little's law"));
    }
}
