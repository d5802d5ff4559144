//! Results that were damaged, at every byte, and what is kept in their place.

use super::*;
use tipover_core::record::{self, Verdict};
use tipover_core::trial::simulate::{self, Machine};

const PLAN_TEXT: &str = include_str!("../../../../experiments/working-set.toml");

struct Kit {
    folder: tempfile::TempDir,
    experiment: Experiment,
    record: Record,
    series: Vec<Interval>,
}

fn kit() -> Kit {
    let mut experiment = Experiment::parse(PLAN_TEXT, "tiny", &[]).unwrap();
    experiment.repeats = 2;
    experiment.sweeps.truncate(1);
    experiment.sweeps[0].cells.truncate(1);
    let cell = &experiment.sweeps[0].cells[0];
    let trial = Trial { cell, repeat: 0, twin: false };
    let (record, series) = simulate::trial(&experiment.name, &trial, experiment.seed, &Machine::default());
    Kit { folder: tempfile::tempdir().unwrap(), experiment, record, series }
}

impl Kit {
    fn open(&self, replace_plan: bool) -> Result<Store> {
        Store::open(self.folder.path(), &self.experiment, PLAN_TEXT, replace_plan)
    }

    fn trial(&self, repeat: u32) -> Trial<'_> {
        Trial { cell: &self.experiment.sweeps[0].cells[0], repeat, twin: false }
    }

    fn keep(&self, store: &Store, repeat: u32) {
        let record = Record { repeat, ..self.record.clone() };
        store
            .keep(&self.trial(repeat), &Kept { record, series: self.series.clone(), accesses: None })
            .unwrap();
    }

    /// All names in the cell's folder.
    fn names(&self, store: &Store) -> Vec<String> {
        let entries = fs::read_dir(store.trial_folder(&self.trial(0)).parent().unwrap()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn missing(store: &Store, kit: &Kit) -> (Vec<u32>, Vec<String>) {
    let mut notes = Vec::new();
    let trials = (0..2).map(|repeat| kit.trial(repeat)).collect();
    let missing = store.missing(trials, false, |note| notes.push(note.to_string())).unwrap();
    (missing.iter().map(|trial| trial.repeat).collect(), notes)
}

#[test]
fn a_record_torn_at_any_byte_is_a_missing_trial_and_the_others_stay() {
    let kit = kit();
    let store = kit.open(false).unwrap();
    kit.keep(&store, 0);
    kit.keep(&store, 1);
    let whole = store.record(&kit.trial(1)).unwrap().unwrap();
    let path = store.trial_folder(&kit.trial(0)).join(RECORD);
    let text = fs::read(&path).unwrap();
    // Without the line's end it is whole still.
    for length in 0..text.len() - 1 {
        fs::write(&path, &text[..length]).unwrap();
        let (again, notes) = missing(&store, &kit);
        assert_eq!(again, [0], "torn after {length} bytes");
        assert!(notes.len() == 1 && notes[0].contains("record.json is damaged"), "{notes:?}");
        if length % 64 == 0 {
            let records = store.records(&kit.experiment).unwrap();
            assert_eq!((&records.whole, &records.damaged), (&vec![whole.clone()], &notes));
            assert_eq!(store.fates(&[kit.trial(0)]).unwrap()[0].word(), "damaged");
        }
    }
    // What a bad block leaves: no text, or nothing.
    fs::write(&path, vec![0xff; text.len()]).unwrap();
    assert_eq!(missing(&store, &kit).0, [0]);
    fs::remove_file(&path).unwrap();
    let (again, notes) = missing(&store, &kit);
    assert_eq!(again, [0]);
    assert!(notes[0].contains("it is gone"), "{notes:?}");

    // Measured anew, it is there, and what was left of the damaged one too.
    kit.keep(&store, 0);
    assert_eq!(missing(&store, &kit), (vec![], vec![]));
    assert_eq!(kit.names(&store), ["0", "0.damaged", "1"]);
    assert!(store.trial_folder(&kit.trial(0)).with_file_name("0.damaged").join("series.jsonl").exists());
    fs::write(&path, "{").unwrap();
    kit.keep(&store, 0);
    assert_eq!(kit.names(&store), ["0", "0.damaged", "0.damaged-2", "1"]);
}

#[test]
fn a_record_of_another_version_is_not_taken_for_damaged() {
    let kit = kit();
    let store = kit.open(false).unwrap();
    kit.keep(&store, 0);
    let path = store.trial_folder(&kit.trial(0)).join(RECORD);
    let text = fs::read_to_string(&path).unwrap();
    let now = format!("\"format\": {}", record::FORMAT);
    assert!(text.contains(&now));
    fs::write(&path, text.replacen(&now, "\"format\": 1", 1)).unwrap();
    let error = store.missing(vec![kit.trial(0)], false, |_| {}).unwrap_err();
    assert!(error.to_string().contains("use the version that made it"), "{error}");
}

#[test]
fn a_kept_trial_takes_the_place_of_one_that_failed() {
    let kit = kit();
    let store = kit.open(false).unwrap();
    let failed = Verdict::Failed { reason: "because".into() };
    let record = Record { verdict: failed, ..kit.record.clone() };
    store.keep(&kit.trial(0), &Kept { record, series: vec![], accesses: None }).unwrap();
    assert_eq!(missing(&store, &kit).0, [0, 1]);
    kit.keep(&store, 0);
    assert_eq!(missing(&store, &kit).0, [1]);
    assert_eq!(kit.names(&store), ["0"]);
}

#[test]
fn a_plan_torn_at_any_byte_is_said_and_replaced_without_losing_a_trial() {
    let kit = kit();
    let store = kit.open(false).unwrap();
    kit.keep(&store, 0);
    let path = store.plan_path();
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole, redact(PLAN_TEXT).as_bytes());
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = kit.open(false).unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains("--replace-plan"), "{length}: {error}");
    }
    kit.open(true).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(missing(&store, &kit).0, [1]);
    fs::remove_file(&path).unwrap();
    assert!(kit.open(false).unwrap_err().to_string().contains("no plan.toml"));
    kit.open(true).unwrap();
    assert_eq!(missing(&store, &kit).0, [1]);
    // Another plan's results are neither taken nor lost without being asked.
    fs::write(&path, "name = \"other\"\n").unwrap();
    assert!(kit.open(false).unwrap_err().to_string().contains("another version of this plan"));
}

#[test]
fn a_run_killed_before_its_plan_was_in_place_can_begin_again() {
    let kit = kit();
    let folder = kit.folder.path().join(&kit.experiment.name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(".staged-plan.toml"), "na").unwrap();
    kit.open(false).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "only the plan is there");
}

#[test]
fn a_file_that_cannot_be_replaced_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    replace_file(&path, |file| Ok(file.write_all(b"first")?)).unwrap();
    let error = replace_file(&path, |file| {
        file.write_all(b"sec")?;
        bail!("no more")
    });
    assert!(error.unwrap_err().to_string().contains("writing"));
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_torn_search_is_begun_anew_and_put_aside() {
    let kit = kit();
    let store = kit.open(false).unwrap();
    let cell = &kit.experiment.sweeps[0].cells[0];
    let path = store.search_path(cell);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{\"promises\":").unwrap();
    let mut notes = Vec::new();
    assert!(store.search(cell, |note| notes.push(note.to_string())).unwrap().is_none());
    assert!(
        notes[0].contains("search.json is damaged") && notes[0].contains("search.json.damaged"),
        "{notes:?}"
    );
}
