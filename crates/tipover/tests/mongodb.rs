//! MongoDB itself, with the built program: sets keep what they promise and lose what they do not, sharded
//! collections lie where they should, and the study of the working set runs on it.
//!
//! The server is the user's, or the last one that a distribution has, which `make setup ARGS=--tests`
//! fetches.

mod program;

use program::results::{Kept, kept};
use program::{Place, alone, can_mount, mongod, skipped};
use serde_json::Value;

/// What the only trial of a campaign came to.
fn broken(place: &Place, results: &str) -> Value {
    let path =
        place.content().into_iter().find(|path| path.starts_with(results) && path.ends_with("record.json"));
    let text = std::fs::read_to_string(place.here().join(path.expect("a record"))).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_set_that_is_cut_loses_what_one_member_confirmed_and_nothing_that_a_majority_did() {
    if let Err(why) = tipover_lab::network::possible() {
        return skipped(&why.to_string());
    }
    let Some(mongod) = mongod() else { return };
    let _alone = alone();
    let place = Place::new();
    let campaign = |durability: &str| {
        let head = ["--results", durability, "break", "mongodb-replica-set", "--mongod", &mongod];
        let load =
            ["--disk", "none", "--sessions", "2", "--think", "1 ms", "--length", "16 s", "--times", "1"];
        let rest = ["--durability", durability, "--checks", "ledger"];
        let fault = ["--faults", "at 3 s: cut primary from rest for 8 s"];
        place.run(&[&head[..], &load[..], &rest[..], &fault[..]].concat()).with_code(&[0, 1])
    };
    let lost = campaign("acknowledged");
    let record = broken(&place, "acknowledged");
    assert_eq!(record["broken"]["verdict"], "invalid", "{}", lost.stderr);
    let losses = &record["broken"]["ledger"]["losses"];
    assert!(losses["lost"].as_u64() > Some(0), "{losses}");
    let kept = campaign("replicated_to_majority");
    assert_eq!(broken(&place, "replicated_to_majority")["broken"]["verdict"], "valid", "{}", kept.stderr);
}

/// An honest twin: nobody broke anything, and what was sent first may arrive behind what others sent later.
#[test]
fn writes_that_nobody_answers_are_not_called_lost_where_nothing_was_broken() {
    let Some(mongod) = mongod() else { return };
    let _alone = alone();
    let place = Place::new();
    let head =
        ["break", "mongodb", "--mongod", &mongod, "--durability", "unacknowledged", "--faults", "none"];
    let load = ["--disk", "none", "--sessions", "4", "--think", "500 us", "--length", "4 s", "--times", "1"];
    let ran = place.run(&[&head[..], &load[..]].concat()).with_code(&[0, 1]);
    let record = broken(&place, "results");
    let fates = &record["broken"]["ledger"]["fates"];
    assert!(fates["durable"].as_u64() > Some(1_000), "it was loaded: {}", ran.stderr);
    assert!(fates["lost"].is_null() && fates["rolled_back"].is_null(), "{fates}");
}

const SHARDED: &str = r#"
name = "sharded"
title = "t"
question = "q"
why = "w"
how_to_read = "h"
repeats = 1
[target]
kind = "mongodb"
[disk]
mode = "none"
size = "1 GiB"
[workload]
kind = "ycsb_reads"
records = 4000
[load]
sessions = 2
timeout = "20 s"
[lab]
recipe = "mongodb-sharded"
roles.member.count = 1
roles.config.count = 1
[trial]
interval = "250 ms"
warm_up_least = "500 ms"
measure_least = "1 s"
measure_operations = 100
measure_most = "2 s"
[[sweep]]
name = "shards"
question = "q"
[[sweep.axis]]
name = "sharding"
sets = "lab.settings.sharding"
values = ["hashed", "ranged", "none"]
[scale.quick]
"#;

#[test]
fn records_are_spread_over_shards_as_the_plan_says() {
    let Some(mongod) = mongod() else { return };
    let _alone = alone();
    let place = Place::new();
    place.write("sharded.toml", SHARDED);
    // Generator, servers and router share two processors: a trial may well be disturbed.
    let ran = place.run(&["run", "sharded.toml", "--mongod", &mongod]).with_code(&[0, 1]);
    let trials = kept(&place, "sharded");
    assert_eq!(trials.len(), 3, "{}", ran.stderr);
    let shares = |sharding: &str| {
        let is_it = |trial: &&Kept| trial.label("sharding") == sharding;
        let trial = trials.iter().find(is_it).expect("a trial");
        assert!(trial.failure().is_none(), "{:?}", trial.failure());
        trial.record.target["shards"]["usertable"].clone()
    };
    for sharding in ["hashed", "ranged"] {
        let shares = shares(sharding);
        let of = |shard: &str, what: &str| shares[shard][what].as_u64().unwrap_or(0);
        for shard in ["shard1", "shard2"] {
            assert_eq!(of(shard, "chunks"), 2, "{sharding}: {shares}");
            assert!((1_500..=2_500).contains(&of(shard, "documents")), "{sharding}: {shares}");
        }
        assert_eq!(of("shard1", "documents") + of("shard2", "documents"), 4_000, "{sharding}: {shares}");
    }
    assert_eq!(shares("none"), Value::Null, "nobody sharded it");
}

#[test]
fn the_study_of_the_working_set_runs_on_a_server() {
    if !can_mount("a working set of MongoDB's") {
        return;
    }
    let Some(mongod) = mongod() else { return };
    let _alone = alone();
    let place = Place::new();
    let only = ["--only", "sweep=mongodb", "--only", "working_set=230 %", "--only", "disk=5000 IOPS"];
    let words = [&["run", "working-set", "--scale", "tiny", "--mongod", &mongod][..], &only[..]].concat();
    let ran = place.run(&words).with_code(&[0, 1]);
    let trials = kept(&place, "working-set");
    let [trial] = trials.as_slice() else { panic!("one trial: {}", ran.stderr) };
    let spec = &trial.record.spec;
    assert_eq!(spec.records(), (2.3 * 0.8 * 268_435_456.0 / 1330.0) as u64);
    let measured = trial.record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", trial.failure()));
    let budget = tipover_core::measure::Budget::reads(measured.accounts().values().next().expect("a node"));
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
    let misses = measured.growth_in_place("target", "engine_page_reads").expect("counted");
    assert!(misses / measured.operations() as f64 > 0.2, "beyond its cache");
    assert!(measured.killed_for_memory().is_empty());
}
