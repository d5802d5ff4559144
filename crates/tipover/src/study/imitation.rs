//! Candidates of a plan that this machine can imitate: which of them to carry out, as a plan of ordinary
//! trials, and what these say.

use super::planned::{Basis, Planned, name_of, too_few};
use super::{Disturbances, disturbed};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use tipover_core::experiment::{CacheSize, Experiment, Spec, TargetKind};
use tipover_core::predict::Place;
use tipover_core::predict::plan::{Judged, Machine, SURE};
use tipover_core::study::{Cells, Foretold, foretold};
use tipover_core::units::Bytes;

/// The only scale of the plan of an imitation.
const SCALE: &str = "asked";

/// Candidates that are to be carried out.
pub struct Imitation {
    /// One sweep for each machine, with its disks as an axis.
    pub experiment: Experiment,
    /// Its plan.
    pub text: String,
    /// Why others are not carried out that matter as much.
    pub passed_over: Vec<PassedOver>,
    /// In the order of the experiment's cells: the candidate's place among all, and where it stands.
    chosen: Vec<Chosen>,
}

/// A candidate that this machine cannot imitate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PassedOver {
    /// Memory and processors in words.
    pub machine: String,
    /// The disk.
    pub disk: String,
    /// Why it is not carried out.
    pub why: String,
}

#[derive(Debug, Clone)]
struct Chosen {
    candidate: usize,
    machine: Machine,
    place: Place,
}

/// A candidate that was carried out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Imitated {
    /// Memory and processors in words.
    pub machine: String,
    /// The disk.
    pub disk: String,
    /// The chance that the promise holds.
    pub chance: f64,
    /// What was predicted beside what was measured.
    pub foretold: Vec<Foretold>,
}

/// What candidates did that were carried out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CarriedOut {
    /// Name of the results.
    pub results: String,
    /// The candidates.
    pub candidates: Vec<Imitated>,
    /// Those that were not carried out.
    pub passed_over: Vec<PassedOver>,
    /// Why machine and results do not fit each other, what disturbed the trials, what is damaged.
    pub remarks: Vec<String>,
}

/// Chooses at most `most` candidates for which the answer matters most. `refused` says in words why a
/// machine, or an experiment, cannot be imitated here.
///
/// # Errors
/// The plan of the imitation cannot be made, or nothing can be imitated.
pub fn imitation(
    planned: &Planned,
    basis: &Basis,
    repeats: u32,
    most: usize,
    refused: &dyn Fn(&Machine, &Experiment) -> Option<String>,
) -> Result<Imitation, String> {
    let (machines, disks) = (&basis.catalogue.machine, &basis.catalogue.disk);
    let order = order(planned, disks.len());
    let name = format!("{}-check", name_of(&planned.source));
    let (mut chosen, mut passed_over): (Vec<Chosen>, _) = (vec![], vec![]);
    let mut made = None;
    for candidate in order {
        if chosen.len() == most {
            break;
        }
        let (machine, disk) = (&machines[candidate / disks.len()], &disks[candidate % disks.len()]);
        let place =
            Place { disk: disk.spec.clone().unwrap_or_default(), ..machine.in_place_of(&basis.today) };
        if chosen.iter().any(|one| one.place == place) {
            continue;
        }
        let mut with = chosen.clone();
        with.push(Chosen { candidate, machine: machine.clone(), place });
        // One sweep for each machine: its disks share data, and cells stand as they are chosen here.
        with.sort_by_key(|one| one.candidate);
        let tried = experiment(&name, planned, basis, repeats, &with);
        match tried.and_then(|(text, experiment)| match refused(machine, &experiment) {
            Some(why) => Err(why),
            None => Ok((text, experiment)),
        }) {
            Ok(one) => (made, chosen) = (Some(one), with),
            Err(why) => {
                passed_over.push(PassedOver { machine: machine.label(), disk: disk.name.clone(), why });
            }
        }
    }
    let Some((text, experiment)) = made else {
        let mut why: Vec<String> = passed_over.into_iter().map(|one: PassedOver| one.why).collect();
        why.sort();
        why.dedup();
        return Err(format!("no candidate can be imitated here: {}", why.join("; ")));
    };
    Ok(Imitation { experiment, text, passed_over, chosen })
}

/// Places of all candidates, those first for which the answer matters most: the best, then those whose chance
/// decides nothing, nearest to even first and of even ones the least known, each machine's first before
/// another one of any: the disks of a machine have its hit ratios in common.
fn order(planned: &Planned, disks: usize) -> Vec<usize> {
    let all = &planned.candidates;
    let uneven = |n: usize| (all[n].chance - 0.5).abs();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| {
        let known = |n: usize| all[n].most_ops_per_s.factor();
        uneven(*a).total_cmp(&uneven(*b)).then(known(*b).total_cmp(&known(*a)))
    });
    let mut of_machine = BTreeMap::<usize, u32>::new();
    let rank = |n: &usize| {
        let before = of_machine.entry(n / disks).or_default();
        *before += 1;
        let best = planned.best.as_ref().is_some_and(|best| *best == all[*n]);
        (!best, uneven(*n) >= SURE - 0.5, *before)
    };
    let mut ranked: Vec<_> = order.iter().map(rank).zip(&order).collect();
    // Stable: of equal ranks the order from before stays.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, n)| *n).collect()
}

/// The spec of the source's largest cell in another place.
fn spec(basis: &Basis, place: &Place) -> Spec {
    let mut spec = basis.spec.clone();
    spec.workload.working_set = None;
    spec.workload.records = Some(place.records as u64);
    spec.machine.memory = Some(Bytes(place.memory as u64));
    spec.disk.trace = false;
    spec
}

/// The settings of a plan that make a node such as `place`.
fn settings(spec: &Spec, place: &Place) -> serde_json::Value {
    let (memory, cache) = (Bytes(place.memory as u64), Bytes(place.engine_cache as u64));
    let server = |name: &str, value: String| json!({ "lab": { "settings": { name: value } } });
    let mut settings = match (&spec.lab, spec.target.kind) {
        (Some(_), TargetKind::Mongodb) => {
            let gib = cache.0 as f64 / Bytes::gib(1).0 as f64;
            server("wiredTigerCacheSizeGB", gib.to_string())
        }
        (Some(_), TargetKind::Postgres) => server("shared_buffers", format!("{}kB", cache.0 / 1024)),
        (Some(_), _) => server("innodb_buffer_pool_size", cache.0.to_string()),
        (None, _) => json!({ "target": { "wiredtiger": { "cache": CacheSize::Bytes(cache) } } }),
    };
    settings["machine"] = json!({ "memory": memory });
    settings
}

/// The plan of `chosen`, and the experiment that it is.
fn experiment(
    name: &str,
    planned: &Planned,
    basis: &Basis,
    repeats: u32,
    chosen: &[Chosen],
) -> Result<(String, Experiment), String> {
    let value = |spec: &Spec| toml::Value::try_from(spec).map_err(|error| error.to_string());
    let mut sweeps = Vec::new();
    for group in chosen.chunk_by(|a, b| a.machine == b.machine) {
        let place = &group[0].place;
        let shapes: Vec<String> = group.iter().map(|one| one.place.disk.to_string()).collect();
        let labels: Vec<&str> =
            group.iter().map(|one| planned.candidates[one.candidate].disk.as_str()).collect();
        sweeps.push(json!({
            "name": group[0].machine.label(),
            "question": format!("What does {} do with each disk?", group[0].machine.label()),
            "settings": settings(&basis.spec, place),
            "axis": [{ "name": "disk", "sets": "disk.shape", "values": shapes, "labels": labels }],
        }));
    }
    let mut plan = value(&spec(basis, &basis.today))?;
    let header = toml::Value::try_from(json!({
        "name": name,
        "title": format!("Candidates of the plan from {}", planned.source),
        "question": "Do the candidates do what was predicted of them?",
        "why": "A prediction is worth what measuring says of it.",
        "how_to_read": "Each cell is a candidate that this machine imitates: memory as the limit of a group, the disk shaped.",
        "repeats": repeats,
        "sweep": sweeps,
        "scale": { SCALE: {} },
    }));
    let header = header.map_err(|error| error.to_string())?;
    for (key, value) in header.as_table().into_iter().flatten() {
        plan.as_table_mut().expect("a spec is a table").insert(key.clone(), value.clone());
    }
    let text = toml::to_string(&plan).map_err(|error| error.to_string())?;
    let experiment = Experiment::parse(&text, SCALE, &[]).map_err(|error| error.to_string())?;
    Ok((text, experiment))
}

impl Imitation {
    /// What is carried out, a candidate a line.
    pub fn lines(&self, planned: &Planned) -> Vec<String> {
        let line = |one: &Judged| {
            format!("{} with {}, chance {} %", one.machine, one.disk, (one.chance * 100.0).round())
        };
        self.chosen.iter().map(|one| line(&planned.candidates[one.candidate])).collect()
    }

    /// What the trials of the candidates say, beside what is predicted of them.
    pub fn carried_out(
        self,
        planned: &Planned,
        basis: &Basis,
        cells: &Cells<'_>,
        mut remarks: Vec<String>,
    ) -> CarriedOut {
        let (mut candidates, mut passed_over) = (vec![], self.passed_over);
        for (one, cell) in self.chosen.iter().zip(&cells.all) {
            let Judged { machine, disk, chance, .. } = planned.candidates[one.candidate].clone();
            if cell.measured().is_empty() {
                passed_over.push(PassedOver { machine, disk, why: cell.why_none() });
                continue;
            }
            let foretold = foretold(cell, &basis.closed(&one.place), basis.pages_per_operation());
            candidates.push(Imitated { machine, disk, chance, foretold });
        }
        let trials: Vec<Disturbances> = cells.records().filter_map(Disturbances::of).collect();
        remarks.extend(disturbed(&trials).map(|how| format!("Disturbed while the candidates ran: {how}.")));
        CarriedOut { results: self.experiment.name.clone(), candidates, passed_over, remarks }
    }
}

impl CarriedOut {
    /// How many figures were measured, and how many of them lie where they were predicted.
    pub fn figures(&self) -> (u32, u32) {
        let inside = self.candidates.iter().flat_map(|one| &one.foretold).filter_map(|one| one.inside);
        inside.fold((0, 0), |(all, held), inside| (all + 1, held + u32::from(inside)))
    }

    /// Whether fewer than nine in ten lie there.
    pub fn contradicts(&self) -> bool {
        let (all, inside) = self.figures();
        too_few(inside, all)
    }

    /// What a reader must know.
    pub fn words(&self) -> String {
        let (all, inside) = self.figures();
        let candidates = match self.candidates.len() {
            1 => "one candidate".into(),
            n => format!("{n} candidates"),
        };
        match (all, self.contradicts()) {
            (0, _) => "Nothing of the candidates was measured here that can be believed.".into(),
            (_, false) => {
                format!("Measured here: {inside} of {all} figures of {candidates} lie where the plan predicts them.")
            }
            (_, true) => format!(
                "Measuring contradicts the prediction: only {inside} of {all} figures of {candidates} that this machine \
                 imitated lie in the 90 % intervals of the plan, so nothing is concluded. {}",
                self.remarks.join(" ")
            )
            .trim()
            .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::planned::{Wanted, planned};
    use tipover_core::experiment::Trial;
    use tipover_core::predict::plan::{Catalogue, Question};
    use tipover_core::record::Record;
    use tipover_core::study::evidence::Told;
    use tipover_core::trial::simulate;

    const STUDY: &str = include_str!("../../../../experiments/working-set.toml");
    const SHOP: &str = r#"
machine = [{ memory = "200 MiB", cores = 2 }, { memory = "420 MiB", cores = 2 }, { memory = "1 GiB", cores = 16 }]
disk = [{ name = "slow", spec = "iops=300,latency=5ms" }, { name = "fast", spec = "iops=9000,latency=0.5ms" }]
"#;

    /// Trials in virtual time: the prediction is told nothing of their caches and of their machine.
    fn measured(experiment: &Experiment, sweep: Option<&str>) -> Vec<Record> {
        let cells = experiment.sweeps.iter().filter(|s| sweep.is_none_or(|sweep| s.name == sweep));
        let trial = |cell| {
            let trial = Trial { cell, repeat: 0, twin: false };
            simulate::trial(&experiment.name, &trial, 1, &simulate::Machine::default()).0
        };
        cells.flat_map(|sweep| &sweep.cells).map(trial).collect()
    }

    fn plan() -> (Planned, Basis) {
        let experiment = Experiment::parse(STUDY, "quick", &[]).unwrap();
        let records = measured(&experiment, Some("reads"));
        let wanted = Wanted {
            question: Question { promise: "p99 <= 20 ms".parse().unwrap(), load: 5000.0 },
            growth: None,
            catalogue: Some(Catalogue::parse(SHOP).unwrap()),
            records: None,
        };
        planned("results/working-set", &Cells::of(&experiment, &records), &Told::default(), &wanted).unwrap()
    }

    fn two_processors(machine: &Machine, _: &Experiment) -> Option<String> {
        (machine.cores != 2.0).then(|| format!("it has {} processors", machine.cores))
    }

    #[test]
    fn candidates_that_do_what_was_predicted_lie_inside_and_culprits_outside() {
        let (planned, basis) = plan();
        let imitation = |most| imitation(&planned, &basis, 1, most, &two_processors).unwrap();
        let all = imitation(100);
        assert_eq!((all.chosen.len(), all.passed_over.len()), (4, 2), "{:?}", all.lines(&planned));
        assert!(all.passed_over.iter().all(|one| one.why == "it has 16 processors"));
        let records = measured(&all.experiment, None);
        let experiment = all.experiment.clone();
        let honest = all.carried_out(&planned, &basis, &Cells::of(&experiment, &records), vec![]);
        assert!(honest.candidates.len() == 4 && !honest.contradicts(), "{:#?}", honest.candidates);
        assert!(honest.figures().0 >= 16, "{:?}", honest.figures());
        let mut answer = planned.clone();
        answer.carried_out(honest);
        assert_eq!(answer.best, planned.best);
        assert!(answer.headline.last().unwrap().starts_with("Measured here: "), "{:?}", answer.headline);

        // The same trials on a machine that takes four times as long: nobody told the plan.
        let mut slow = records.clone();
        for measured in slow.iter_mut().filter_map(|record| record.measured.as_mut()) {
            measured.end.0 += (measured.end.0 - measured.begin.0) * 3;
        }
        let culprit = imitation(100).carried_out(&planned, &basis, &Cells::of(&experiment, &slow), vec![]);
        assert!(culprit.contradicts(), "{:#?}", culprit.candidates);
        let mut answer = planned.clone();
        answer.carried_out(culprit);
        assert!(answer.contradicted && answer.best.is_none());
        assert!(
            answer.headline[0].starts_with("Measuring contradicts the prediction"),
            "{:?}",
            answer.headline
        );

        // What was not measured is no figure, and says why.
        let none = imitation(1).carried_out(&planned, &basis, &Cells::of(&experiment, &[]), vec![]);
        assert_eq!((none.figures(), none.passed_over[0].why.as_str()), ((0, 0), "not measured"));
    }

    #[test]
    fn the_best_comes_first_and_the_plan_is_the_same_each_time() {
        let (planned, basis) = plan();
        let of = |most| imitation(&planned, &basis, 1, most, &two_processors);
        let (one, again) = (of(1).unwrap(), of(1).unwrap());
        assert_eq!(one.text, again.text, "a plan that differs would not go on where it stopped");
        let best = planned.best.as_ref().unwrap();
        assert_eq!(order(&planned, 2).len(), planned.candidates.len());
        assert!(one.lines(&planned)[0].starts_with(&format!("{} with {}", best.machine, best.disk)));
        let (cell, today) = (&one.experiment.sweeps[0].cells[0].spec, &basis.today);
        assert_eq!(cell.records() as f64, today.records);
        assert_eq!(cell.load, basis.spec.load);
        assert_eq!((one.experiment.name.as_str(), one.experiment.repeats), ("working-set-check", 1));
        let nothing = |_: &Machine, _: &Experiment| Some("there is no FUSE".to_string());
        let why = imitation(&planned, &basis, 1, 3, &nothing).err().unwrap();
        assert_eq!(why, "no candidate can be imitated here: there is no FUSE");
    }
}
