use super::*;
use crate::experiment::Experiment;
use crate::record::Record;
use crate::trial::simulate::{self, Machine};

const WORKING_SET: &str = include_str!("../../../../experiments/working-set.toml");
const SCALES: [&str; 3] = ["tiny", "quick", "full"];

/// Plans whose studies are registered.
const PLANS: &[&str] = &[
    WORKING_SET,
    include_str!("../../../../experiments/large-values.toml"),
    include_str!("../../../../experiments/tipping-point.toml"),
    include_str!("../../../../experiments/write-concern.toml"),
    include_str!("../../../../experiments/bank.toml"),
];

fn simulated() -> (Experiment, Vec<Record>) {
    let experiment = Experiment::parse(WORKING_SET, "quick", &[]).unwrap();
    let machine = Machine::default();
    let record = |trial| simulate::trial(&experiment.name, &trial, experiment.seed, &machine).0;
    // Of servers there is no simulation.
    let embedded = experiment.trials().into_iter().filter(|trial| trial.cell.spec.lab.is_none());
    let records = embedded.map(record).collect();
    (experiment, records)
}

fn studied(experiment: &Experiment, records: &[Record]) -> Studied {
    let cells = Cells::of(experiment, records);
    Studied::of(experiment.published.as_deref().unwrap(), &cells).unwrap().unwrap()
}

fn verdict<'a>(studied: &'a Studied, id: &str) -> &'a Judged {
    studied.claims.iter().find(|claim| claim.id == id).unwrap()
}

#[test]
fn every_claims_paths_lead_to_figures_at_every_scale() {
    assert_eq!(PLANS.len(), REGISTRY.len(), "each study has a plan here");
    for plan in PLANS {
        for scale in SCALES {
            let experiment = Experiment::parse(plan, scale, &[]).unwrap();
            let name = experiment.published.clone().unwrap();
            let row = REGISTRY.iter().find(|row| row.name == name).unwrap();
            let claims = Claims::parse(row.claims).unwrap();
            assert_eq!(claims.study, name);
            let study = (row.compute)(&Cells::of(&experiment, &[])).unwrap().to_json();
            assert_eq!(claims.astray(&study), Vec::<String>::new(), "{name} at {scale}");
            for (n, claim) in claims.all.iter().enumerate() {
                assert_eq!(claim.id, format!("{name}-{:02}", n + 1), "none is left out");
            }
        }
    }
}

#[test]
fn without_trials_nothing_is_confirmed_or_contradicted() {
    for plan in PLANS {
        let experiment = Experiment::parse(plan, "quick", &[]).unwrap();
        let studied = studied(&experiment, &[]);
        assert!(!studied.claims.is_empty());
        let tally = Tally { not_tested: studied.claims.len(), ..Tally::default() };
        assert_eq!(studied.tally, tally);
    }
}

#[test]
fn figures_are_those_of_the_records() {
    let (experiment, records) = simulated();
    let studied = studied(&experiment, &records);
    let Study::WorkingSet(study) = &studied.study else { panic!("another study") };
    assert_eq!((study.reads.len(), study.device.len()), (12, 6));
    let row = study.at("182 %", "600 IOPS + 7 ms").unwrap();
    let of_cell = |r: &&Record| {
        r.sweep == "reads"
            && r.label("working_set") == Some("182 %")
            && r.label("disk") == Some(row.disk.as_str())
    };
    let measured: Vec<_> = records.iter().filter(of_cell).filter_map(|r| r.measured.as_ref()).collect();
    let rates: Vec<f64> = measured.iter().map(|m| m.operations() as f64 / m.seconds()).collect();
    let mean = rates.iter().sum::<f64>() / 3.0;
    let known = row.throughput_ops_per_s.get().unwrap();
    assert!((known.value / mean - 1.0).abs() < 1e-12 && known.trials == 3, "{known:?}");
    // The factor of Student's t for three trials is 4.3027.
    let deviation = (rates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let half = 4.302_65 * deviation / 3f64.sqrt();
    assert!((known.high.unwrap() - mean - half).abs() < 1e-3 * half, "{known:?}");
    let json = study_json(&studied);
    assert_eq!(json["study"]["name"], "working-set");
    assert!(json["study"]["reads"][0]["throughput_ops_per_s"]["value"].is_number());
}

fn study_json(studied: &Studied) -> serde_json::Value {
    serde_json::to_value(studied).unwrap()
}

#[test]
fn a_simulated_study_confirms_what_arithmetic_demands() {
    let (experiment, records) = simulated();
    let studied = studied(&experiment, &records);
    for id in ["working-set-06", "working-set-08", "working-set-13", "working-set-26", "working-set-27"] {
        let claim = verdict(&studied, id);
        assert_eq!(claim.verdict, Verdict::Confirmed, "{claim:#?}");
    }
    assert!(matches!(verdict(&studied, "working-set-05").verdict, Verdict::NotTested { .. }));
    let counted = Tally::of(&studied.claims);
    let all = counted.confirmed + counted.contradicted + counted.cannot_tell + counted.not_tested;
    assert_eq!((studied.tally, all), (counted, 29));
}

#[test]
fn a_slow_disk_in_cache_is_convicted_and_a_law_breaker_is_not_believed() {
    let (experiment, mut records) = simulated();
    let in_cache = |r: &Record| {
        r.sweep == "reads"
            && r.label("working_set") == Some("92 %")
            && r.label("disk") == Some("150 IOPS + 7 ms")
    };
    // More operations than the sessions have time for break Little's law: the figure is not used.
    let mut unlawful = records.clone();
    let stretch = |record: &mut Record, factor: f64| {
        let measured = record.measured.as_mut().unwrap();
        measured.end = measured.begin + measured.end.since(measured.begin).mul_f64(factor);
    };
    unlawful.iter_mut().filter(|r| in_cache(r)).for_each(|record| stretch(record, 0.5));
    let studied_unlawful = studied(&experiment, &unlawful);
    let claim = verdict(&studied_unlawful, "working-set-26");
    assert!(matches!(&claim.verdict, Verdict::CannotTell { why, .. } if why.contains("law")), "{claim:#?}");
    // Fewer are lawful, and refute the claim.
    records.iter_mut().filter(|r| in_cache(r)).for_each(|record| stretch(record, 2.0));
    let studied = studied(&experiment, &records);
    let claim = verdict(&studied, "working-set-08");
    assert_eq!(claim.verdict, Verdict::Contradicted, "{claim:#?}");
    assert_eq!(verdict(&studied, "working-set-26").verdict, Verdict::Contradicted);
}
