//! What a fleet rests on, with a real nats-server between the parts: one word counts once, a block has one
//! holder, and nobody does what he may not.

use super::agent::{Agent, Options, consumer_name, end_subject, trial_subject};
use super::coordinator::Coordinator;
use super::hold::{Held, Hold};
use super::keys::{AGENT, ASKER};
use super::link::{Link, Login};
use super::message::{Allowed, Block, Card, Demands, Given, Said, State, trial_name};
use super::server::{self, Server};
use super::{LEASE, RESULTS};
use crate::interrupt::Interrupt;
use crate::machine::Ability;
use crate::store::Store;
use async_nats::jetstream::consumer::PullConsumer;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tipover_core::experiment::{Cell, Experiment, NamedRecipe, SearchSpec, Trial};
use tipover_core::record::{Record, Verdict};
use tipover_core::trial::simulate;

const PLAN: &str = include_str!("../../../../experiments/capacity.toml");

fn experiment() -> Experiment {
    Experiment::parse(PLAN, "tiny", &[]).unwrap()
}

/// A server and links to it in both roles; `None` where there is no server, which is said.
struct Fleet {
    asker: Link,
    agent: Link,
    server: Server,
    folder: tempfile::TempDir,
}

fn fleet() -> Option<Fleet> {
    let Ok(program) = server::find(None) else {
        eprintln!("SKIPPED: nats-server is not installed: `make setup ARGS=--tests` builds it where Go is");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&program, &folder.path().join("nats"), None).unwrap();
    let link = |key: &Path, role| {
        let login = Login {
            servers: server.address.clone(),
            key: Some(key.to_path_buf()),
            authority: None,
            plain: false,
        };
        Link::open(&login, role).unwrap()
    };
    let asker = link(&server.keys.asker, ASKER);
    let agent = link(&server.keys.agent, AGENT);
    Some(Fleet { asker, agent, server, folder })
}

fn options(folder: &Path, machine: &str) -> Options {
    let folder = folder.join(machine);
    Options { machine: machine.into(), labels: Default::default(), allowed: Allowed::default(), folder }
}

#[test]
fn only_who_is_there_is_not_flushed() {
    use async_nats::jetstream::stream::StorageType;
    let Some(fleet) = fleet() else { return };
    let of = |bucket: &async_nats::jetstream::kv::Store| bucket.stream.cached_info().config.storage;
    let asker = &fleet.asker;
    assert_eq!(of(&asker.machines), StorageType::Memory);
    for kept in [&asker.lanes, &asker.holders, &asker.orders] {
        assert_eq!(of(kept), StorageType::File);
    }
    for kept in [&asker.blocks, &asker.results] {
        assert_eq!(kept.cached_info().config.storage, StorageType::File);
    }
}

#[test]
fn one_word_counts_once_and_a_block_has_one_holder() {
    let Some(fleet) = fleet() else { return };
    let subject = format!("{RESULTS}.run.0.trial.0");
    let said = |machine: &str| Said::End { machine: machine.into(), reason: None };
    fleet.agent.say_once(&subject, &said("a")).unwrap();
    fleet.agent.say_once(&subject, &said("b")).unwrap();
    let kept = fleet.asker.wait(fleet.asker.results.get_info()).unwrap();
    assert_eq!(kept.state.messages, 1);
    let first = fleet.asker.wait(fleet.asker.results.get_last_raw_message_by_subject(&subject)).unwrap();
    assert_eq!(serde_json::from_slice::<Said>(&first.payload).unwrap(), said("a"));

    let holders = &fleet.agent.holders;
    fleet.agent.wait(async {
        let mut a = Hold::take(holders, "run.0", "a", "1").await.unwrap();
        assert_eq!(a.renew().await, Held::Ours);
        // An answer that was lost: the entry is newer than we know, and ours.
        let mut unaware = a.clone();
        assert_eq!(a.renew().await, Held::Ours);
        assert_eq!(unaware.renew().await, Held::Ours);
        // The queue gave it to another.
        let mut b = Hold::take(holders, "run.0", "b", "2").await.unwrap();
        assert_eq!((a.renew().await, b.renew().await), (Held::Lost, Held::Ours));
        assert_eq!((a.takers(), b.takers()), (1, 2));
        assert!(!a.insist(|| false).await);
        // Another start of the same machine is another holder.
        let mut again = Hold::take(holders, "run.0", "b", "3").await.unwrap();
        assert_eq!((b.renew().await, again.renew().await), (Held::Lost, Held::Ours));
        assert_eq!(again.takers(), 3);
        // What has ended is nobody's.
        let mut late = again.clone();
        again.drop_it().await;
        assert_eq!(late.renew().await, Held::Lost);
    });
}

#[test]
fn a_machine_may_not_give_work_nor_hear_others_nor_remove_anything() {
    let Some(fleet) = fleet() else { return };
    let quick = Duration::from_millis(500);
    let intruder = &fleet.agent;
    intruder.wait(async {
        // What is not allowed is not answered.
        let block = intruder.context.publish("tipover.block.lane.run.0", "{}".into()).await.unwrap();
        assert!(tokio::time::timeout(quick, block).await.is_err(), "a block was taken from a machine");
        let order = intruder.orders.put("other", "drain".into());
        assert!(tokio::time::timeout(quick, order).await.is_err(), "an order was taken from a machine");
        let removed = intruder.context.delete_stream("tipover-results");
        assert!(tokio::time::timeout(quick, removed).await.is_err(), "a machine removed a stream");
        let purged = intruder.results.purge();
        assert!(
            tokio::time::timeout(quick, async { purged.await }).await.is_err(),
            "a machine purged a stream"
        );
        use futures_util::StreamExt;
        let mut answers = intruder.client.subscribe("_INBOX.ask.>").await.unwrap();
        fleet.asker.client.publish("_INBOX.ask.x", "secret".into()).await.unwrap();
        fleet.asker.client.flush().await.unwrap();
        let heard = tokio::time::timeout(quick, answers.next()).await;
        assert!(!matches!(heard, Ok(Some(_))), "a machine heard what another was answered");
    });
    let info = fleet.asker.wait(fleet.asker.blocks.get_info()).unwrap();
    assert_eq!(info.state.messages, 0);
    // What is allowed goes on.
    assert!(intruder.wait(intruder.holders.put("x", "y".into())).is_ok());
}

#[test]
fn a_block_is_believed_by_what_is_in_it() {
    let Some(fleet) = fleet() else { return };
    let experiment = experiment();
    let interrupt = Interrupt::default();
    let agent = Agent::join(&fleet.agent, options(fleet.folder.path(), "m"), &interrupt).unwrap();
    let trials = experiment.blocks().remove(0);
    let honest = Block { run: "run".into(), ..Block::of(&experiment, &trials, "tipover run") };
    let judged = |block: &Block| agent.accept(block, &block.experiment(), &block.subject());
    // On a machine without FUSE the disk is missed, and nothing else.
    let sound = judged(&honest);
    assert!(
        sound.as_ref().err().is_none_or(|reason| reason.contains("fuse") || reason.contains("root")),
        "{sound:?}"
    );
    // A recipe of its own would start any program, whatever the block says that it demands.
    let mut lying = honest.clone();
    lying.cells[0].spec.target.address = Some("postgres://anna@db/shop".parse().unwrap());
    assert!(judged(&lying).unwrap_err().contains("something else than it says"));
    let mut outright = lying.clone();
    outright.demands = Demands::of(&outright.experiment());
    assert!(judged(&outright).unwrap_err().contains("does not allow the server"));
    let mut program =
        Experiment::parse(include_str!("../../../../experiments/bank.toml"), "tiny", &[]).unwrap();
    let spec = &mut program.sweeps[0].cells[0].spec;
    let lab = spec.lab.as_mut().unwrap();
    lab.recipe = NamedRecipe { name: "postgres".into(), own: None };
    lab.mongod = Some("/bin/sh".into());
    let trials = program.blocks().remove(0);
    let block = Block { run: "run".into(), ..Block::of(&program, &trials, "tipover run") };
    let refused = judged(&block).unwrap_err();
    assert!(refused.contains("does not allow the program /bin/sh"), "{refused}");
    assert!(refused.contains("does not allow the recipe"), "{refused}");
    // Names that would leave the agent's folder, and cells that are not there.
    let outside = Block { run: "../../etc".into(), ..honest.clone() };
    assert!(judged(&outside).unwrap_err().contains("no names"));
    let mut nowhere = honest.clone();
    nowhere.trials[0].cell = 99;
    assert!(judged(&nowhere).is_err());
    let elsewhere = agent.accept(&honest, &honest.experiment(), "tipover.block.x.y.0");
    assert!(elsewhere.unwrap_err().contains("it came as"));
}

#[test]
fn another_version_is_refused_with_both_and_a_message_reads_back() {
    let Some(fleet) = fleet() else { return };
    let experiment = experiment();
    let interrupt = Interrupt::default();
    let agent = Agent::join(&fleet.agent, options(fleet.folder.path(), "old"), &interrupt).unwrap();
    drop(agent);
    let text = fleet.asker.wait(fleet.asker.machines.get("old")).unwrap().unwrap();
    let mut card: Card = serde_json::from_slice(&text).unwrap();
    assert_eq!(card.state, State::Idle);
    card.version = "0.0.9 (abc)".into();
    // Joined, it says nothing more until its next heartbeat.
    let text = serde_json::to_vec(&card).unwrap();
    fleet.asker.wait(fleet.asker.machines.put("older", text.into())).unwrap();
    fleet.asker.wait(fleet.asker.machines.purge("old")).unwrap();
    let store = Store::open(&fleet.folder.path().join("results"), &experiment, PLAN, false).unwrap();
    let mut coordinator = Coordinator::open(&fleet.asker, &store, &experiment, None).unwrap();
    let refused = coordinator.ask(false, "tipover run", LEASE).unwrap_err().to_string();
    let own = super::message::version();
    assert!(refused.contains("old runs tipover 0.0.9 (abc), this is") && refused.contains(&own), "{refused}");
    // Nothing was asked for, so nothing is waited for.
    let came = coordinator.fetch(false, &interrupt, &mut |_| {}).unwrap();
    assert_eq!((came.waiting, came.fetched), (0, 0));

    let trials = experiment.blocks().remove(0);
    let block = Block::of(&experiment, &trials, "tipover run");
    let back: Block = serde_json::from_slice(&serde_json::to_vec(&block).unwrap()).unwrap();
    assert_eq!(back, block);
    let made = back.experiment();
    assert_eq!(back.trials(&made).unwrap(), trials, "the cells are the same, hash and all");
    assert_eq!(Demands::of(&made), block.demands);
}

/// A machine that gives back, for every trial, what was simulated once for its cell.
fn pretend(link: &Link, records: &BTreeMap<String, Record>, seed: u64, folder: &Path) {
    loop {
        let mut found = 0;
        let lanes = link.wait(async { link.lanes.keys().await.unwrap().collect::<Vec<_>>().await });
        for lane in lanes.into_iter().flatten() {
            let messages = link.wait(async {
                let consumer: PullConsumer = link.blocks.get_consumer(&consumer_name(&lane)).await.unwrap();
                let messages = consumer.fetch().max_messages(100).messages().await.unwrap();
                messages.collect::<Vec<_>>().await
            });
            for message in messages.into_iter().flatten() {
                found += 1;
                let block: Block = serde_json::from_slice(&message.payload).unwrap();
                let experiment = block.experiment();
                for (place, trial) in block.trials(&experiment).unwrap().iter().enumerate() {
                    let cell = trial.cell.id();
                    let (repeat, twin, seed) = (trial.repeat, trial.twin, trial.seed(seed));
                    let record = Record { repeat, twin, seed, ..records[&cell].clone() };
                    let path = folder.join("record.json");
                    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
                    let (digest, size_bytes) = link.put_file(&path).unwrap();
                    let files = vec![Given { name: "record.json".into(), digest, size_bytes }];
                    let said = Said::Done { what: trial_name(trial), machine: "m".into(), files };
                    link.say_once(&trial_subject(&block.key(), place), &said).unwrap();
                }
                let end = Said::End { machine: "m".into(), reason: None };
                link.say_once(&end_subject(&block.key()), &end).unwrap();
                link.wait(message.ack()).unwrap();
            }
        }
        if found == 0 {
            return;
        }
    }
}

/// What this process holds of the machine's memory, at the most until now, in bytes.
fn held() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
fn a_file_that_servers_cannot_give_now_is_asked_for_again_and_one_that_is_not_there_is_not() {
    let Some(fleet) = fleet() else { return };
    let path = fleet.folder.path().join("given");
    std::fs::write(&path, vec![7; 300_000]).unwrap();
    let (digest, _) = fleet.asker.put_file(&path).unwrap();
    let back = fleet.folder.path().join("back");
    fleet.asker.get_file(&digest, &back).unwrap();
    assert_eq!(std::fs::read(&back).unwrap(), vec![7; 300_000]);
    let missing = fleet.asker.get_file(&super::digest(b"nobody gave it"), &back).unwrap_err();
    assert!(!super::link::is_slow(&missing), "{missing:#}");
    let nowhere = fleet.asker.get_file(&digest, &fleet.folder.path().join("no/folder")).unwrap_err();
    assert!(!super::link::is_slow(&nowhere), "{nowhere:#}");
    drop(fleet.server);
    let away = fleet.asker.get_file(&digest, &back).unwrap_err();
    assert!(super::link::is_slow(&away), "{away:#}");
}

/// With `TIPOVER_FLEET_TRIALS=100000` it says what that many cost, and `TIPOVER_FLEET_RESULTS=FOLDER` keeps
/// them.
#[test]
fn what_was_asked_for_comes_whole_however_much_it_is() {
    let Some(fleet) = fleet() else { return };
    let wanted: u32 =
        std::env::var("TIPOVER_FLEET_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let interrupt = Interrupt::default();
    let mut experiment = experiment();
    experiment.sweeps.truncate(1);
    experiment.sweeps[0].cells.truncate(4);
    let cells = experiment.sweeps[0].cells.len() as u32;
    experiment.repeats = wanted.div_ceil(cells);
    let simulated = |cell: &Cell| {
        let trial = Trial { cell, repeat: 0, twin: false };
        let (record, _) = simulate::trial(&experiment.name, &trial, experiment.seed, &Default::default());
        (cell.id(), Record { verdict: Verdict::Valid, ..record })
    };
    let records: BTreeMap<String, Record> = experiment.sweeps[0].cells.iter().map(simulated).collect();
    drop(Agent::join(&fleet.agent, options(fleet.folder.path(), "m"), &interrupt).unwrap());
    // Disks are missed where there is no FUSE; it carries out nothing.
    let card = fleet.asker.wait(fleet.asker.machines.get("m")).unwrap().unwrap();
    let mut card: Card = serde_json::from_slice(&card).unwrap();
    let facts = &mut card.facts;
    facts.root = true;
    (facts.fuse, facts.loop_devices, facts.memory_limit) = (Ability::Yes, Ability::Yes, Ability::Yes);
    let card = serde_json::to_vec(&card).unwrap();
    fleet.asker.wait(fleet.asker.machines.put("m", card.into())).unwrap();

    let results = std::env::var("TIPOVER_FLEET_RESULTS").map(Into::into);
    let results = results.unwrap_or_else(|_| fleet.folder.path().join("results"));
    let store = Store::open(&results, &experiment, PLAN, true).unwrap();
    let mut coordinator = Coordinator::open(&fleet.asker, &store, &experiment, None).unwrap();
    let before = held();
    let began = Instant::now();
    let all = experiment.trials().len();
    assert_eq!(coordinator.ask(false, "tipover run", LEASE).unwrap(), all);
    let asked = began.elapsed();
    let folder = fleet.folder.path().join("machine");
    std::fs::create_dir_all(&folder).unwrap();
    pretend(&fleet.agent, &records, experiment.seed, &folder);
    let worked = began.elapsed() - asked;
    // Whoever asks for searches in the same folder waits for none of it, and takes nothing of it away.
    let search = SearchSpec::default();
    let mut searches = Coordinator::open(&fleet.asker, &store, &experiment, Some(&search)).unwrap();
    let came = searches.fetch(true, &interrupt, &mut |_| {}).unwrap();
    assert_eq!((came.fetched, came.waiting), (0, 0));
    let came = coordinator.fetch(true, &interrupt, &mut |_| {}).unwrap();
    let fetched = began.elapsed() - asked - worked;
    assert_eq!((came.fetched, came.waiting, came.failed), (all, 0, 0));
    assert!(store.missing(experiment.trials(), false, |_| {}).unwrap().is_empty());
    // Once more: it resumes, and has nothing to do.
    let began = Instant::now();
    let mut again = Coordinator::open(&fleet.asker, &store, &experiment, None).unwrap();
    assert_eq!(again.ask(false, "tipover run", LEASE).unwrap(), 0);
    println!(
        "{all} trials: asked in {asked:?}, given in {worked:?}, fetched in {fetched:?}, resumed in {:?}; {} MiB more",
        began.elapsed(),
        (held() - before) >> 20
    );
}
