//! Documents that people bring: plans, property files, samples.

use crate::text;
use std::sync::Arc;
use tipover_core::experiment::recipe::Recipe;
use tipover_core::experiment::{Experiment, Spec};
use tipover_core::workload::script::{Dialect, Order, Quoting, Run, Step, Value};
use tipover_core::workload::{Bson, CoreWorkload, Documents, JsonText, Properties, Scripts};

pub fn plan(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for scale in Experiment::scales(text).iter().map(String::as_str).chain(["quick"]).take(2) {
        match Experiment::parse(text, scale, &[]) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(experiment) => {
                for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells).take(4) {
                    let json = serde_json::to_string(&cell.spec).expect("a cell is data");
                    let again: Spec = serde_json::from_str(&json).expect(&json);
                    assert_eq!(again, cell.spec, "a record keeps the cell as it was: {json}");
                    assert!(!cell.id().is_empty());
                }
            }
        }
    }
}

pub fn properties(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let (text, histogram) = text.split_once('\0').unwrap_or((text, ""));
    let mut properties = Properties::default();
    properties.read(text, "workloada");
    let histogram = Some(histogram).filter(|histogram| !histogram.is_empty());
    match CoreWorkload::of(&properties, histogram, 1) {
        Ok(read) => assert!(read.dataset.records > 0 && read.dataset.fields > 0),
        Err(error) => assert!(!error.is_empty()),
    }
}

pub fn samples(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(learned) = Documents::learn(text) else { return };
    assert!(!learned.summary().is_empty());
    let json = serde_json::to_string(&learned).expect("what was learned is data");
    let again: Documents = serde_json::from_str(&json).expect(&json);
    assert_eq!(again, learned);
    let (mut bson, mut json) = (Bson::default(), JsonText::default());
    learned.fields(1, 2, 3, &mut bson);
    learned.fields(1, 2, 3, &mut json);
    let _ = (learned.shape(), learned.mean_bytes());
}

pub fn recipe(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Recipe::parse(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(recipe) => {
            let layout = recipe.layout();
            assert!(!layout.nodes.is_empty() && layout.nodes.len() <= 64);
            let json = serde_json::to_string(&recipe).expect("a recipe is data");
            assert_eq!(serde_json::from_str::<Recipe>(&json).expect(&json), recipe);
            for node in &layout.nodes {
                let _ = (recipe.disk_of(node.role), recipe.memory_of(node.role), layout.set_of(&node.name));
            }
        }
    }
}

/// A run that takes longer goes round in circles.
const MOST_STEPS: usize = 100_000;

/// The same bytes as a script of statements and as one of MongoDB's commands.
pub fn script(bytes: &[u8]) {
    statements(bytes);
    commands(bytes);
}

fn read_as(dialect: Dialect, bytes: &[u8]) -> Option<Scripts> {
    let mut scripts = Scripts::new(1, dialect);
    if let Err(mistake) = scripts.add("script", bytes, 1) {
        let words = mistake.to_string();
        assert!(mistake.line > 0 && mistake.column > 0 && !words.contains('\n'), "{words}");
        return None;
    }
    let presets =
        [("scale", Value::Integer(1)), ("default_seed", Value::Integer(7)), ("a", Value::Double(0.5))];
    for (name, value) in presets {
        scripts.preset(name, value).expect("these are names");
    }
    Some(scripts)
}

fn commands(bytes: &[u8]) {
    let Some(scripts) = read_as(Dialect::Commands, bytes).map(Arc::new) else { return };
    let mut run = Run::new(scripts.clone(), 0);
    let mut document = Bson::default();
    run.begin(0, 0);
    for _ in 0..MOST_STEPS {
        match run.step() {
            Ok(Step::Send(command)) => {
                let order = scripts.order((0, 0), command).expect("nothing is recorded");
                let Order::Command(template) = order.as_ref() else { continue };
                match run.put_document(command, template, &mut document) {
                    Ok(()) => {
                        let length = document.bytes[..4].try_into().expect("four bytes");
                        assert_eq!(i32::from_le_bytes(length) as usize, document.bytes.len());
                        assert_eq!(document.bytes.last(), Some(&0));
                    }
                    Err(abort) => return assert!(!abort.reason.is_empty()),
                }
            }
            Ok(Step::Over) => return,
            Ok(_) => {}
            Err(abort) => return assert!(!abort.reason.is_empty()),
        }
        let _ = run.notes().count();
    }
    panic!("a script has no loops, and this one did not end");
}

fn statements(bytes: &[u8]) {
    /// Of what a server brings. One that doubles what it was sent is bounded by how long its messages may be.
    const MOST_BROUGHT: usize = 1 << 10;
    let Some(scripts) = read_as(Dialect::Plan, bytes) else { return };
    let mut run = Run::new(Arc::new(scripts), 0);
    run.begin(0, 0);
    for _ in 0..MOST_STEPS {
        match run.step() {
            Ok(Step::Send(command)) => {
                let mut text = Vec::new();
                run.put_text(command, Quoting::Backslashes, &mut text);
                let _ = (
                    run.with_parameters(command, |n| format!("${n}")),
                    run.statement(command).parameters().count(),
                );
                if run.store(command).is_some() {
                    text.truncate(MOST_BROUGHT);
                    let _ = run.bring(command, "a", std::str::from_utf8(&text).ok());
                }
            }
            Ok(Step::Over) => return,
            Ok(_) => {}
            Err(abort) => return assert!(!abort.reason.is_empty()),
        }
        let _ = run.notes().count();
    }
    panic!("a script has no loops, and this one did not end");
}
