//! Messages that nobody wrote: real ones with something in them changed, which whoever hears them reads or
//! refuses. A panic would end an agent, or whoever asks, at the word of one other machine.

use super::load::may_be_told;
use super::message::{Allowed, Block, Card, Demands, Given, Here, Reply, Said, Say, State, unfit, version};
use crate::generator::{self, Command};
use crate::machine;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tipover_core::experiment::{Experiment, Part, SearchSpec};
use tipover_core::units::Tick;
use tipover_core::workload::Random;

/// Messages of each kind in which several values are changed.
const SEVERAL: u64 = 4_000;

/// Calls `visit` for every value in `value`, itself first.
fn walk(value: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    visit(value);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, visit)),
        _ => {}
    }
}

/// What a hostile writer would put there.
fn odd() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(u64::from(u32::MAX)),
        json!(i64::MIN),
        json!(1e308),
        json!(5e-324),
        json!(""),
        json!("x".repeat(300)),
        json!("\u{0}../../etc"),
        json!("16777215 TiB"),
        json!("18446744073709551615"),
        json!("1e308/s"),
        json!("0 s"),
        json!("900000000 h"),
        json!([]),
        json!({}),
    ]
}

fn values_in(message: &Value) -> u64 {
    let (mut message, mut values) = (message.clone(), 0);
    walk(&mut message, &mut |_| values += 1);
    values
}

/// The same message with another value at place `n`.
fn with(message: &Value, n: u64, other: &Value) -> Value {
    let (mut message, mut at) = (message.clone(), 0);
    walk(&mut message, &mut |value| {
        if at == n {
            *value = other.clone();
        }
        at += 1;
    });
    message
}

/// The same message with two or three values replaced, taken away or doubled, and now and then a wrong byte.
fn changed(message: &Value, odd: &[Value], random: &mut Random) -> Vec<u8> {
    let mut message = message.clone();
    for _ in 0..2 + random.below(2) {
        let place = random.below(values_in(&message));
        let other = &odd[random.below(odd.len() as u64) as usize];
        let (mut at, manner) = (0, random.below(4));
        walk(&mut message, &mut |value| {
            if at == place {
                match (manner, &mut *value) {
                    (0, Value::Array(items)) if !items.is_empty() => items.push(items[0].clone()),
                    (1, Value::Array(items)) => drop(items.pop()),
                    (1, Value::Object(fields)) => {
                        let name = fields.keys().next().cloned();
                        name.map(|name| fields.remove(&name));
                    }
                    _ => *value = other.clone(),
                }
            }
            at += 1;
        });
    }
    let mut bytes = serde_json::to_vec(&message).unwrap();
    if random.below(10) == 0 {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.below(256) as u8;
    }
    bytes
}

/// Tries `read` with `messages`, in which every value is replaced by every odd one in turn, and with more of
/// which several are changed. `read` says whether it could make sense of one.
///
/// # Panics
/// With the message, where `read` does; and where it could make sense of hardly any, or of all.
fn tried(messages: &[Value], read: &dyn Fn(&[u8]) -> bool) {
    let (mut understood, mut all) = (0u64, 0u64);
    let mut one = |bytes: &[u8]| {
        let is_understood = catch_unwind(AssertUnwindSafe(|| read(bytes)));
        understood +=
            u64::from(is_understood.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(bytes))));
        all += 1;
    };
    let odd = odd();
    for message in messages {
        assert!(read(&serde_json::to_vec(message).unwrap()), "an honest one is refused: {message}");
        for place in 0..values_in(message) {
            odd.iter().for_each(|other| one(&serde_json::to_vec(&with(message, place, other)).unwrap()));
        }
    }
    for n in 0..SEVERAL {
        one(&changed(&messages[n as usize % messages.len()], &odd, &mut Random::new(16, n)));
    }
    println!("{understood} of {all} could be read");
    assert!((all / 100..all).contains(&understood), "{understood} of {all} could be read");
}

/// Reads a message and writes it again.
fn reads<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(bytes).ok()?;
    serde_json::to_vec(&message).unwrap();
    Some(message)
}

fn experiments() -> Vec<Experiment> {
    [
        include_str!("../../../../experiments/working-set.toml"),
        include_str!("../../../../experiments/servers.toml"),
        include_str!("../../../../experiments/bank.toml"),
        include_str!("../../../../experiments/kills.toml"),
        include_str!("../../../../experiments/tpcb-postgres.toml"),
    ]
    .map(|plan| Experiment::parse(plan, "tiny", &[]).unwrap())
    .into()
}

fn blocks() -> Vec<Block> {
    let named = |block| Block { run: "run".into(), ..block };
    let of = |experiment: &Experiment| {
        let trials = experiment.blocks().remove(0);
        let one = &trials[..1];
        let cell = one[0].cell;
        let search = experiment.search.clone().unwrap_or_default();
        let searched = Block::of_search(experiment, cell, &search, "tipover find");
        let can_be_searched = search.check_cell(&cell.spec).is_ok();
        let block = named(Block::of(experiment, one, "tipover run"));
        [Some(block), can_be_searched.then(|| named(searched))]
    };
    experiments().iter().flat_map(of).flatten().collect()
}

fn card() -> Card {
    Card {
        machine: "m".into(),
        instance: "i".into(),
        version: version(),
        labels: Default::default(),
        facts: machine::read(&std::env::temp_dir()),
        allowed: Allowed::default(),
        installed: Default::default(),
        state: State::Idle,
        said_unix_s: 1,
    }
}

fn values<T: Serialize>(messages: impl IntoIterator<Item = T>) -> Vec<Value> {
    messages.into_iter().map(|message| serde_json::to_value(message).unwrap()).collect()
}

#[test]
fn a_block_that_nobody_wrote_is_read_or_refused() {
    let card = card();
    tried(&values(blocks()), &|bytes| {
        let Some(mut block) = reads::<Block>(bytes) else { return false };
        let experiment = block.experiment();
        let mut judged = block.check(&experiment, &block.subject());
        if judged.as_ref().is_err_and(|reason| reason.contains("demands something else")) {
            // Whoever changes a cell changes its demands too.
            block.demands = Demands::of(&experiment);
            judged = block.check(&experiment, &block.subject());
        }
        if judged.is_err() {
            return true;
        }
        let _ = unfit(&card, &block.demands);
        let _ = (block.machines(), block.key(), block.parts().take(2).count());
        for trial in block.trials(&experiment).unwrap() {
            let _ = (super::message::trial_name(&trial), trial.seed(block.seed));
        }
        true
    });
}

#[test]
fn what_machines_say_that_nobody_wrote_is_read_or_refused() {
    let files = vec![Given { name: "record.json".into(), digest: "0f".repeat(32), size_bytes: 7 }];
    let said = [
        Said::Done { what: "cell/0".into(), machine: "m".into(), files },
        Said::End { machine: "m".into(), reason: Some("no room".into()) },
    ];
    tried(&values(said), &|bytes| reads::<Said>(bytes).is_some());

    let demands = Demands::of(&experiments()[0]);
    let working =
        State::Working { experiment: "e".into(), block: "run.0".into(), done: 1, of: 2, since_unix_s: 1 };
    let cards = values([card(), Card { state: working, ..card() }]);
    tried(&cards, &|bytes| {
        let Some(card) = reads::<Card>(bytes) else { return false };
        let _ = (unfit(&card, &demands), card.state.words());
        true
    });
}

#[test]
fn what_is_said_about_a_shared_load_that_nobody_wrote_is_obeyed_or_refused() {
    let experiment = &experiments()[0];
    let load = experiment.sweeps[0].cells[0].spec.load.clone();
    let search = SearchSpec::default();
    let run = Command::Run { load: Some(Box::new(load.clone())), seed: Some(1), history: None };
    let pace = Box::new(Command::Pace { think_ns: 5, request_path: true });
    let says = [
        Say::Clock,
        Say::Start {
            cell: "c".into(),
            changed: None,
            seed: 1,
            part: Part { number: 0, of: 2 },
            origin_ns: 5,
        },
        Say::Do { command: run },
        Say::Do { command: Command::At { at: Tick(9), command: pace } },
    ];
    tried(&values(says), &|bytes| {
        let Some(say) = reads::<Say>(bytes) else { return false };
        if let Say::Do { command } = &say {
            for search in [None, Some(&search)] {
                let _ = may_be_told(command, &load, search, Tick(u64::MAX / 2));
            }
        }
        true
    });

    let here = Here { machine: "m".into(), instance: "i".into(), part: 1, processors: 2 };
    tried(&values([here]), &|bytes| reads::<Here>(bytes).is_some());
    let replies = [
        Reply::Clock { shown_ns: 5 },
        Reply::Did { answer: Box::new(generator::Reply::Running) },
        Reply::Refused { reason: "no".into() },
    ];
    tried(&values(replies), &|bytes| reads::<Reply>(bytes).is_some());
}

/// A reader that believes a number is found out.
#[test]
fn a_reader_that_panics_is_convicted() {
    let believes = |bytes: &[u8]| {
        let Some(block) = reads::<Block>(bytes) else { return false };
        block.seed.checked_add(1).is_some() || panic!("attempt to add with overflow")
    };
    let convicted = catch_unwind(|| tried(&values(blocks()), &believes)).expect_err("it panics");
    let message = convicted.downcast_ref::<String>().expect("the message is shown");
    assert!(message.contains("\"seed\":18446744073709551615"), "{message}");
}
