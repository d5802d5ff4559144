//! Where the searches of a plan ended, and what each cell was given: the places between which candidates are
//! bracketed.

use crate::experiment::Spec;
use crate::predict::bracket::{Given, Tipped};
use crate::search::{Capacity, Scale, SearchRecord, Verdict};
use crate::units::Bytes;

/// The tipping points of all searches that can be believed, and why the others are none, in sentences.
///
/// # Errors
/// There is none, or they differ in more than what they were given.
pub fn tipped(records: &[SearchRecord]) -> Result<(Vec<Tipped>, Vec<String>), String> {
    let (mut found, mut left_out): (Vec<(String, Vec<Tipped>)>, _) = (vec![], vec![]);
    for record in records {
        let labels: Vec<&str> = record.labels.iter().map(|(_, label)| label.as_str()).collect();
        let name = if labels.is_empty() { record.sweep.clone() } else { labels.join(", ") };
        match of_record(record, &name) {
            Ok((tips, undecided)) => {
                found.push((system(&record.spec), tips));
                left_out.extend(undecided);
            }
            Err(why) => left_out.push(format!("{name}: {why}")),
        }
    }
    found.retain(|(_, tips)| !tips.is_empty());
    let Some((first, _)) = found.first() else {
        return Err(match left_out.is_empty() {
            true => "nothing was searched yet".into(),
            false => format!("no search can be planned from: {}", left_out.join("; ")),
        });
    };
    if let Some((_, other)) = found.iter().find(|(system, _)| system != first) {
        let name = |tips: &[Tipped]| tips.first().map_or(String::new(), |tip| tip.name.clone());
        return Err(format!(
            "the searches of {} and of {} differ in more than memory, processors, disk and records: say with --only \
             which to plan from",
            name(&found[0].1),
            name(other)
        ));
    }
    let tips: Vec<Tipped> = found.into_iter().flat_map(|(_, tips)| tips).collect();
    Ok((told_apart(tips), left_out))
}

/// Cells that are called alike, with what they were given.
fn told_apart(tips: Vec<Tipped>) -> Vec<Tipped> {
    let is_twin = |tip: &Tipped| tips.iter().any(|other| other.name == tip.name && other.given != tip.given);
    let name = |tip: &Tipped| match is_twin(tip) {
        true => format!("{} ({}, {})", tip.name, Bytes(tip.given.memory as u64).rounded(), tip.given.disk),
        false => tip.name.clone(),
    };
    tips.iter().map(|tip| Tipped { name: name(tip), ..tip.clone() }).collect()
}

/// Everything that must be the same for places to be compared.
fn system(spec: &Spec) -> String {
    let mut spec = spec.clone();
    spec.machine.memory = None;
    spec.disk.shape = String::new();
    (spec.workload.records, spec.workload.working_set) = (None, None);
    if let Some(lab) = &mut spec.lab {
        lab.cpus = None;
    }
    spec.fingerprint()
}

/// One for each promise that the search decided, and a sentence for each that it did not.
fn of_record(record: &SearchRecord, name: &str) -> Result<(Vec<Tipped>, Vec<String>), String> {
    if let Some(why) = &record.failed {
        return Err(why.clone());
    }
    let spec = &record.spec;
    let search = record.planned().filter(|search| search.goals.scale == Scale::OpsPerSecond);
    let search = search.ok_or("it searched sessions, and a load is operations per second")?;
    let answer = search.answer().ok_or("it is not finished: ask `tipover find` again")?;
    if spec.is_served() && spec.lab.is_none() {
        return Err("it was measured at an address, so memory, disk and processors are not known".into());
    }
    if spec.lab.as_ref().is_some_and(|lab| !lab.roles.is_empty()) {
        return Err("its nodes have memory, processors or disks of their own".into());
    }
    let cpus = spec.lab.as_ref().and_then(|lab| lab.cpus);
    let given = Given {
        memory: spec.machine.memory.map_or(f64::NAN, |memory| memory.0 as f64),
        cores: cpus.or(record.cores.map(f64::from)).unwrap_or(f64::NAN),
        records: spec.records() as f64,
        disk: spec.shape().map_err(|error| error.to_string())?,
    };
    if given.memory.is_nan() {
        return Err("its memory was not limited, so it can be compared with no other".into());
    }
    if given.cores.is_nan() {
        return Err(
            "an earlier version searched it, which did not keep how many processors there were".into()
        );
    }
    let (mut tips, mut undecided) = (vec![], vec![]);
    for (promise, capacity) in record.promises.iter().zip(&answer.capacities) {
        let Some((holds, fails)) = ends(capacity) else {
            undecided.push(format!("{name}: {}", capacity.sentence()));
            continue;
        };
        tips.push(Tipped {
            name: name.into(),
            given: given.clone(),
            clients_beside: spec.lab.is_some() && cpus.is_none(),
            promise: *promise,
            holds,
            fails,
        });
    }
    Ok((tips, undecided))
}

/// Up to where a promise held and from where on it failed, as far as that was confirmed.
fn ends(capacity: &Capacity) -> Option<(Option<f64>, Option<f64>)> {
    match capacity.verdict {
        Verdict::Found => Some((capacity.low, capacity.high)),
        Verdict::AlwaysPassed | Verdict::GeneratorLimited => Some((capacity.low, None)),
        Verdict::NeverPassed => Some((None, capacity.high)),
        Verdict::GeneratorLate | Verdict::CannotTell | Verdict::Irregular | Verdict::OutOfTime => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Promise};
    use crate::predict::bracket::{Bracket, contradictions};
    use crate::record::{FORMAT, Provenance};
    use crate::search::{FinishedTrial, Goals, Rest, Searched, Slo, Step, next, targets};

    const PLAN: &str = include_str!("../../../../experiments/capacity.toml");

    /// A search of a place whose p99 exceeds the promise from `capacity` on.
    fn searched(spec: &Spec, label: &str, capacity: f64) -> SearchRecord {
        let promise: Promise = "p99 <= 20 ms".parse().unwrap();
        let slo = Slo { name: promise.to_string(), bad_ratio: 0.01 };
        let goals = Goals::new(Scale::OpsPerSecond, vec![slo], 10.0, 1e5);
        let mut trials: Vec<FinishedTrial> = vec![];
        loop {
            match next(&trials, &goals) {
                Step::Run(request) => {
                    let scheduled = (request.load * request.duration.as_secs_f64()) as u64;
                    let bad = (0.01 * (request.load / capacity).powi(8)).min(1.0);
                    trials.push(targets::trial(&request, scheduled, &[bad]));
                }
                Step::CoolDown { .. } => trials.last_mut().unwrap().rest = Rest::Baseline,
                Step::Done(_) => break,
            }
        }
        SearchRecord {
            format: FORMAT,
            experiment: "capacity".into(),
            sweep: "mixed".into(),
            cell: label.into(),
            labels: vec![("disk".into(), label.into())],
            spec: spec.clone(),
            promises: vec![promise],
            provenance: Provenance {
                command: String::new(),
                version: String::new(),
                commit: String::new(),
                started_unix_s: 0,
                machine: None,
            },
            missed: vec![],
            target: Default::default(),
            cores: Some(2),
            loaded: None,
            searches: vec![Searched { changed: None, goals, trials }],
            failed: None,
        }
    }

    fn spec(change: impl Fn(&mut Spec)) -> Spec {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let mut spec = experiment.sweeps[0].cells[0].spec.clone();
        change(&mut spec);
        spec
    }

    #[test]
    fn a_candidate_between_two_searches_lies_between_their_ends() {
        let with = |mib: u64, disk: &str, capacity: f64| {
            let of = |spec: &mut Spec| {
                spec.machine.memory = Some(Bytes::mib(mib));
                spec.disk.shape = disk.into();
            };
            searched(&spec(of), disk, capacity)
        };
        let records =
            [with(192, "iops=600", 900.0), with(192, "iops=3000", 2500.0), with(400, "iops=3000", 6000.0)];
        let (tips, left_out) = tipped(&records).unwrap();
        assert_eq!((tips.len(), left_out.len()), (3, 0), "{left_out:?}");
        // Two cells are called alike.
        assert_eq!(tips[1].name, "iops=3000 (192 MiB, iops=3000)");
        for (tip, capacity) in tips.iter().zip([900.0, 2500.0, 6000.0]) {
            let (holds, fails) = (tip.holds.unwrap(), tip.fails.unwrap());
            assert!(holds <= capacity * 1.02 && capacity <= fails * 1.02, "{tip:?}");
        }
        assert!(contradictions(&tips).is_empty());
        let given = Given { memory: Bytes::mib(300).0 as f64, ..tips[1].given.clone() };
        let bracket = Bracket::of(&given, tips[0].promise, &tips);
        assert!((2300.0..2600.0).contains(&bracket.holds.unwrap().0));
        assert!((5800.0..6700.0).contains(&bracket.fails.unwrap().0));
    }

    #[test]
    fn searches_that_say_nothing_are_left_out_with_a_reason() {
        let honest = searched(&spec(|_| ()), "honest", 900.0);
        let of = |change: &dyn Fn(&mut SearchRecord)| {
            let mut record = honest.clone();
            change(&mut record);
            (tipped(&[record.clone()]).unwrap_err(), tipped(&[honest.clone(), record]))
        };
        for (change, wanted) in [
            (
                (&|r: &mut SearchRecord| r.failed = Some("no disk".into())) as &dyn Fn(&mut SearchRecord),
                "no disk",
            ),
            (&|r| r.searches[0].trials.truncate(3), "is not finished"),
            (&|r| r.spec.machine.memory = None, "memory was not limited"),
            (&|r| r.cores = None, "how many processors"),
            (&|r| r.spec.target.kind = crate::experiment::TargetKind::Postgres, "at an address"),
            (&|r| r.searches[0].goals.scale = Scale::Sessions, "searched sessions"),
        ] {
            let (alone, beside) = of(change);
            assert!(alone.contains(wanted), "{alone}");
            let (tips, left_out) = beside.unwrap();
            assert!(tips.len() == 1 && left_out[0].contains(wanted), "{left_out:?}");
        }
        assert_eq!(tipped(&[]).unwrap_err(), "nothing was searched yet");
        let other = searched(&spec(|spec| spec.load.sessions = 7), "other", 900.0);
        let why = tipped(&[honest, other]).unwrap_err();
        assert!(why.contains("honest and of other differ in more than"), "{why}");
    }
}
