//! What a fleet rests on, with a real nats-server between the parts: one word counts once, a block has one
//! holder, and nobody does what he may not.

use super::agent::{Agent, Options};
use super::coordinator::Coordinator;
use super::hold::{Held, Hold};
use super::keys::{AGENT, ASKER};
use super::link::{Link, Login};
use super::message::{Allowed, Block, Card, Demands, Said, State};
use super::server::{self, Server};
use super::{LEASE, RESULTS};
use crate::interrupt::Interrupt;
use crate::store::Store;
use std::path::Path;
use std::time::Duration;
use tipover_core::experiment::{Experiment, NamedRecipe};

const PLAN: &str = include_str!("../../../../experiments/capacity.toml");

fn experiment() -> Experiment {
    Experiment::parse(PLAN, "tiny", &[]).unwrap()
}

/// A server and links to it in both roles; `None` where there is no server, which is said.
struct Fleet {
    asker: Link,
    agent: Link,
    _server: Server,
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
    Some(Fleet { asker, agent, _server: server, folder })
}

fn options(folder: &Path, machine: &str) -> Options {
    let folder = folder.join(machine);
    Options { machine: machine.into(), labels: Default::default(), allowed: Allowed::default(), folder }
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
    let mut coordinator = Coordinator::open(&fleet.asker, &store, &experiment).unwrap();
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
