//! MongoDB's recipes, started for real as several processes: with this peer in mongod's place, because no
//! mongod can be had here.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers in here are tests too")]

use bson::doc;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tipover_core::experiment::recipe::Recipe;
use tipover_core::schedule::Effect;
use tipover_lab::{Binaries, Cluster, ClusterOptions};
use tipover_reference_mongod::member::Peer;

const PATIENCE: Duration = Duration::from_secs(60);

/// Without namespaces a process has one set of addresses, so one cluster at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const PEER: &str = env!("CARGO_BIN_EXE_tipover-reference-mongod");

/// With today's manners.
fn start(recipe: &str) -> Cluster {
    start_as(recipe, PEER.into(), &[])
}

/// On addresses of the loopback, so that it needs no root.
fn start_as(recipe: &str, program: PathBuf, settings: &[(&str, &str)]) -> Cluster {
    let program = Some(program);
    let mut recipe = Recipe::named(recipe).unwrap();
    // The test shall not wait for seconds until a primary is missed.
    recipe.settings.insert("replSetConfig.settings.electionTimeoutMillis".into(), "700".into());
    recipe.settings.extend(settings.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let options = ClusterOptions {
        recipe,
        version: None,
        disk_daemon: None,
        folder: std::env::temp_dir(),
        network: None,
        own: None,
        binaries: Binaries { mongod: program.clone(), mongos: program, ..Binaries::default() },
        seed: 1,
    };
    Cluster::start(&options).unwrap()
}

/// Waits until somebody else than `old` is primary.
fn next_primary(cluster: &mut Cluster, old: &str) -> String {
    let began = Instant::now();
    loop {
        cluster.find_primary();
        if cluster.primary() != old {
            return cluster.primary().to_string();
        }
        assert!(began.elapsed() < PATIENCE, "{old} is still primary");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_replica_set_elects_steps_down_and_takes_the_dead_back() {
    let _alone = alone();
    let mut cluster = start("mongodb-replica-set");
    let first = cluster.primary().to_string();
    let url = cluster.client_url().unwrap();
    assert!(url.ends_with("/tipover?replicaSet=tipover") && url.matches(":27017").count() == 3, "{url}");

    cluster.node_mut(&first).unwrap().kill().unwrap();
    let second = next_primary(&mut cluster, &first);
    cluster.come_back(std::slice::from_ref(&first)).unwrap();
    assert_eq!(cluster.primary(), second, "who comes back follows");

    let likely = cluster.successor().unwrap();
    assert_ne!(likely, second);
    let mut given_up = 0;
    let effect = cluster.step_down(&likely, &mut || given_up += 1).unwrap();
    assert_eq!((effect, given_up), (Effect::Fired { count: 1 }, 1));
    let third = cluster.primary().to_string();
    assert_ne!(third, second);
    cluster.come_back(std::slice::from_ref(&second)).unwrap();
    cluster.promote(&second).unwrap();
    assert_eq!(cluster.primary(), second, "it may stand again");

    // All at once: nobody is left to ask, and the journals are all there is.
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name().to_string()).collect();
    for name in &names {
        cluster.node_mut(name).unwrap().kill().unwrap();
    }
    cluster.come_back(&names).unwrap();
    cluster.wait_whole(PATIENCE).unwrap();
}

/// All that is asked of a mongod before 4.4.2 must be asked in its words: who leads, and through a router
/// too.
#[test]
fn servers_that_know_no_hello_form_a_cluster_and_elect() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("mongod");
    std::fs::write(&old, format!("#!/bin/sh\nexec '{PEER}' \"$@\" --manners 4.0\n")).unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = start_as("mongodb-sharded", old, &[]);
    let first = cluster.primary().to_string();
    cluster.node_mut(&first).unwrap().kill().unwrap();
    next_primary(&mut cluster, &first);
}

#[test]
fn an_arbiter_votes_and_is_never_elected() {
    let _alone = alone();
    let mut cluster = start("mongodb-arbiter");
    let url = cluster.client_url().unwrap();
    assert_eq!(url.matches(":27017").count(), 2, "an arbiter has no data: {url}");
    let first = cluster.primary().to_string();
    cluster.node_mut(&first).unwrap().kill().unwrap();
    let second = next_primary(&mut cluster, &first);
    assert!(["a", "b"].contains(&second.as_str()), "{second}");
    // With one of two data nodes gone nobody else can be elected.
    assert!(cluster.successor().unwrap_err().to_string().contains("no other member runs"));
}

#[test]
fn a_sharded_cluster_is_put_together_and_survives_a_shards_primary() {
    let _alone = alone();
    let mut cluster = start("mongodb-sharded");
    let router = cluster.client_url().unwrap();
    assert!(router.starts_with("mongodb://127.") && !router.contains("replicaSet"), "{router}");
    let first = cluster.primary().to_string();
    assert!(["a", "b", "c"].contains(&first.as_str()), "{first}");
    cluster.node_mut(&first).unwrap().kill().unwrap();
    next_primary(&mut cluster, &first);
    cluster.node_mut("router").unwrap().kill().unwrap();
    cluster.come_back(&[first, "router".into()]).unwrap();
}

/// Writes for a majority, each acknowledged, then kills all members at once; whether the last one is there
/// afterwards. What the set says of its configuration, and of its journal's interval, is as it was told.
fn survives(waits_for_journals: bool) -> bool {
    let waits = waits_for_journals.to_string();
    let settings = [
        ("replSetConfig.writeConcernMajorityJournalDefault", waits.as_str()),
        ("journalCommitInterval", "500"),
    ];
    let mut cluster = start_as("mongodb-replica-set", PEER.into(), &settings);
    let of_primary = |cluster: &Cluster| {
        let primary = cluster.nodes().iter().find(|node| node.name() == cluster.primary()).unwrap();
        Peer::new(&format!("{}:27017", primary.address()))
    };
    let mut primary = of_primary(&cluster);
    let told = primary.ask(&doc! { "replSetGetConfig": 1 }).unwrap();
    let told = told.get_document("config").unwrap();
    assert_eq!(told.get_bool("writeConcernMajorityJournalDefault").unwrap(), waits_for_journals);
    assert_eq!(told.get_document("settings").unwrap().get_i64("electionTimeoutMillis").unwrap(), 700);
    let told = primary.ask(&doc! { "getParameter": 1, "journalCommitInterval": 1 }).unwrap();
    assert_eq!(told.get_i64("journalCommitInterval").unwrap(), 500);
    for id in 0..20 {
        let insert = doc! { "insert": "records", "documents": [{ "_id": id }], "$db": "tipover",
        "writeConcern": { "w": "majority" } };
        let said = primary.ask(&insert).unwrap();
        assert!(said.get_f64("ok").unwrap() > 0.0 && !said.contains_key("writeConcernError"), "{said}");
    }
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name().to_string()).collect();
    for name in &names {
        cluster.node_mut(name).unwrap().kill().unwrap();
    }
    cluster.come_back(&names).unwrap();
    cluster.wait_whole(PATIENCE).unwrap();
    cluster.find_primary();
    let find = doc! { "find": "records", "filter": { "_id": 19 }, "$db": "tipover" };
    let found = of_primary(&cluster).ask(&find).unwrap();
    !found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty()
}

/// The set's configuration decides what a majority's acknowledgement is worth when all members are killed.
#[test]
fn a_majority_without_journals_loses_what_all_forget() {
    let _alone = alone();
    // A journal may happen to be flushed between the last write and the kill.
    let tries = (1..=5).find(|_| !survives(false));
    let tries = tries.expect("five times nothing was lost");
    for _ in 0..tries {
        assert!(survives(true), "acknowledged by the journals of a majority");
    }
}
