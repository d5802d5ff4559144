//! The target on servers that run: FerretDB, where it is built, and our reference peer, which is not MongoDB.

mod scripts;

use super::probe::Capabilities;
use super::{ACCEPTED, MongoDb};
use crate::connection::testing;
use crate::contract::{self, Expect, by_wire};
use bson::{RawDocumentBuf, rawdoc};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tipover_core::check::Version;
use tipover_core::experiment::{Durability, TargetKind, TargetSpec};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{Target, TargetError};
use tipover_core::workload::Dataset;
use tipover_core::workload::{Documents, Shape};
use tipover_lab::recipe::{Ferret, Server, ServerOptions};
use tipover_reference_mongod::{Bugs, Manners, ReplicaSet, Settings};

const PATIENCE: Duration = Duration::from_secs(10);

fn spec(url: &str, durability: Durability) -> TargetSpec {
    TargetSpec {
        kind: TargetKind::Mongodb,
        request_path_cpu: Duration::ZERO,
        wiredtiger: Default::default(),
        address: Some(url.parse().unwrap()),
        durability,
        settings: BTreeMap::new(),
    }
}

fn connect(url: &str, durability: Durability) -> Result<MongoDb, TargetError> {
    MongoDb::connect(&spec(url, durability), PATIENCE)
}

fn refused(url: &str) -> String {
    MongoDb::connect(&spec(url, Durability::Configured), Duration::from_secs(2)).err().unwrap().to_string()
}

fn single() -> ReplicaSet {
    ReplicaSet::start(Settings::default()).unwrap()
}

fn three(bugs: Bugs) -> ReplicaSet {
    let settings = Settings { nodes: 3, set_name: Some("rs0".into()), bugs, ..Settings::default() };
    ReplicaSet::start(settings).unwrap()
}

fn ferret() -> Option<Server> {
    match Ferret::find() {
        Ok(ferret) => Some(ferret.start(&ServerOptions::default()).unwrap()),
        Err(missing) => {
            println!("SKIPPED: {missing}");
            None
        }
    }
}

fn fail(target: &MongoDb, command: &str, times: i32, mut data: RawDocumentBuf) {
    data.append(bson::raw::cstr!("failCommands"), bson::rawbson!([command]));
    let set = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    target.command("admin", &set).unwrap();
}

fn fact(target: &MongoDb, name: &str) -> String {
    target.facts().unwrap()[name].as_str().unwrap_or_default().to_string()
}

const READ: Op = Op::Read { record: 1, fields: Fields::All };

fn update(version: u64) -> Op {
    Op::Update { record: 1, fields: Fields::All, version }
}

/// What a server without transactions executes.
const WITHOUT_TRANSFERS: &[OpKind] = ACCEPTED.split_at(5).0;

/// Commands of one's own go to every server of this wire.
fn with_scripts(kinds: &[OpKind]) -> Vec<OpKind> {
    [kinds, &contract::scripts()].concat()
}

#[test]
fn the_contract_holds_on_ferretdb() {
    let Some(server) = ferret() else { return };
    let target = connect(&server.url(), Durability::Configured).unwrap();
    contract::check(&target, &Expect { keeps_records: true, kinds: &with_scripts(WITHOUT_TRANSFERS) });
    assert!(fact(&target, "system").contains("FerretDB"));
    // What was found by hand, found by the probes.
    assert!(fact(&target, "probed_write_concern").starts_with("ignored"));
    assert!(fact(&target, "probed_read_concern").starts_with("ignored"));
    assert!(fact(&target, "probed_repeated_write").starts_with("not recognised"));
    assert!(fact(&target, "probed_transactions").starts_with("refused"));
    assert!(fact(&target, "probed_unacknowledged").contains("although no answer was asked for"));
    let facts = target.facts().unwrap();
    assert_eq!(facts["retries_writes"], false);
    assert!(facts["statistics_missing"].as_array().unwrap().iter().any(|name| name == "engine_page_reads"));
    let error = connect(&server.url(), Durability::ReplicatedToMajority).err().unwrap().to_string();
    assert!(error.contains("ignores write concerns"), "{error}");
}

#[test]
fn unacknowledged_writes_reach_ferretdb_although_it_answers_them() {
    let Some(server) = ferret() else { return };
    unacknowledged_writes_arrive(&server.url());
}

#[test]
fn unacknowledged_writes_reach_the_reference_peer() {
    unacknowledged_writes_arrive(&single().url());
}

fn unacknowledged_writes_arrive(url: &str) {
    let target = connect(url, Durability::Unacknowledged).unwrap();
    let dataset = Dataset::ycsb(300);
    target.load(&dataset, 0..100).unwrap();
    let mut session = target.open(&dataset).unwrap();
    for record in 100..300 {
        assert_eq!(session.execute(&Op::Insert { record }), Outcome::Done, "it was sent");
    }
    // Whether the record was there, nobody hears.
    assert_eq!(session.execute(&Op::Update { record: 999, fields: Fields::All, version: 1 }), Outcome::Done);
    assert_eq!(session.execute(&Op::Read { record: 299, fields: Fields::All }), Outcome::Done);
    assert_eq!(dataset.verify(session.as_ref(), 299, Fields::All, 0), Outcome::Done);
    assert!(target.sample().unwrap()["client_unacknowledged_writes"] >= 201.0);
}

#[test]
fn the_contract_holds_on_a_single_reference_peer() {
    let set = single();
    let target = connect(&set.url(), Durability::Journalled).unwrap();
    contract::check(&target, &Expect { keeps_records: true, kinds: &with_scripts(WITHOUT_TRANSFERS) });
    assert!(fact(&target, "probed_write_concern").starts_with("w:99 is refused"));
    assert!(fact(&target, "probed_repeated_write").contains("no replica set"));
    assert!(fact(&target, "probed_journal").starts_with("honoured"), "{}", fact(&target, "probed_journal"));
    assert_eq!(fact(&target, "write_concern_sent"), "w:1, j:true");
    let facts = target.facts().unwrap();
    assert_eq!(facts["journal_commit_interval_ms"], 100);
    let untold = ["majority_waits_for_journals", "oplog_bytes", "transaction_lifetime_limit_s"];
    assert!(
        untold.iter().all(|fact| !facts.contains_key(*fact)),
        "it has no set, and does not say the others"
    );
    let error = connect(&set.url(), Durability::ReplicatedToOne).err().unwrap().to_string();
    assert!(error.contains("no member of a replica set"), "{error}");
    let error = connect(&set.url(), Durability::Written).err().unwrap().to_string();
    assert!(error.contains("\"journalled\""), "{error}");
}

#[test]
fn the_contract_holds_on_a_replica_set_with_a_majority() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::ReplicatedToMajority).unwrap();
    contract::check(
        &target,
        &Expect { keeps_records: true, kinds: &with_scripts(contract::RECORDS_IN_FULL) },
    );
    assert!(fact(&target, "probed_repeated_write").starts_with("recognised"));
    assert!(fact(&target, "probed_transactions").starts_with("an aborted transaction leaves nothing"));
    let facts = target.facts().unwrap();
    assert_eq!(
        (&facts["retries_writes"], &facts["majority_waits_for_journals"]),
        (&true.into(), &true.into())
    );
    assert_eq!(fact(&target, "write_concern_sent"), "w:majority, j:true");
}

#[test]
fn the_contract_holds_when_secondaries_answer_reads() {
    let set = three(Bugs::default());
    // What all three have, a secondary shows.
    let url = format!("{}&readPreference=secondary&w=3", set.url());
    let target = connect(&url, Durability::Configured).unwrap();
    contract::check(
        &target,
        &Expect { keeps_records: true, kinds: &with_scripts(contract::RECORDS_IN_FULL) },
    );
    // All reads but the probes' went elsewhere.
    let at_the_primary = target.sample().unwrap()["server_queries"];
    assert!(at_the_primary < 20.0, "{at_the_primary}");
}

#[test]
fn passwords_open_and_wrong_ones_are_refused_without_being_told() {
    let login = Some(("anna".to_string(), "p4ss".to_string()));
    let set = ReplicaSet::start(Settings { login, ..Settings::default() }).unwrap();
    for mechanism in ["", "&authMechanism=SCRAM-SHA-1", "&authMechanism=SCRAM-SHA-256"] {
        let target = connect(&format!("{}{mechanism}", set.url()), Durability::Configured).unwrap();
        assert_eq!(target.capabilities().honours_write_concern, Some(true), "{mechanism}");
        let facts = serde_json::to_string(&target.facts().unwrap()).unwrap();
        assert!(!facts.contains("p4ss"), "{facts}");
    }
    let wrong = set.url().replace("p4ss", "hunter2");
    let error = refused(&wrong);
    assert!(error.contains("refused the user \"anna\"") && error.contains("authSource"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = refused(&set.url().replace("anna:p4ss@", ""));
    assert!(error.contains("requires authentication"), "{error}");
}

#[test]
fn a_server_that_knows_no_hello_is_met_with_its_own_word() {
    let set_name = Some("rs0".to_string());
    let login = Some(("anna".to_string(), "p4ss".to_string()));
    let old = Settings { manners: Manners::V4_0, login, nodes: 3, set_name, ..Settings::default() };
    let set = ReplicaSet::start(old).unwrap();
    let target = connect(&set.url(), Durability::ReplicatedToMajority).unwrap();
    contract::check(
        &target,
        &Expect { keeps_records: true, kinds: &with_scripts(contract::RECORDS_IN_FULL) },
    );
    assert_eq!(target.facts().unwrap()["wire_version"], 7);
    assert!(fact(&target, "default_concerns").starts_with("write { \"w\": 1, \"wtimeout\": 0 }, read"));
    let alone = ReplicaSet::start(Settings { manners: Manners::V4_0, ..Settings::default() }).unwrap();
    let target = connect(&alone.url(), Durability::Configured).unwrap();
    assert!(fact(&target, "default_concerns").starts_with("write { \"w\": 1 }, read"));
}

#[test]
fn a_user_who_may_not_flush_loads_all_the_same() {
    let login = Some(("anna".to_string(), "p4ss".to_string()));
    for (reads_and_writes_only, said) in [(true, "not asked for"), (false, "made")] {
        let settings = Settings { login: login.clone(), reads_and_writes_only, ..Settings::default() };
        let set = ReplicaSet::start(settings).unwrap();
        let target = connect(&set.url(), Durability::Configured).unwrap();
        assert!(!target.facts().unwrap().contains_key("checkpoint_after_load"), "nothing was loaded");
        target.settle().unwrap();
        assert!(fact(&target, "checkpoint_after_load").starts_with(said));
    }
}

#[test]
fn what_is_no_mongodb_is_said_in_words() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let error = refused(&format!("mongodb://127.0.0.1:{port}/"));
    assert!(error.contains("nothing listens there"), "{error}");
    let talker = |words: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // The thread ends with the test's process; it holds nothing else.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(words);
            }
        });
        format!("mongodb://127.0.0.1:{port}/")
    };
    let error = refused(&talker(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    assert!(error.contains("not MongoDB's wire protocol"), "{error}");
    let error = refused(&talker(b""));
    assert!(error.contains("does it want TLS"), "{error}");
    let error = refused(&format!("mongodb://127.0.0.1:{}/?connectTimeoutMS=500", testing::stranger(true)));
    assert!(error.contains("not MongoDB's wire protocol (it begins \"HTTP/1.1"), "{error}");
    assert!(error.contains("an HTTP server answers there; is the port right?"), "{error}");
    let error = refused(&format!("mongodb://127.0.0.1:{}/?connectTimeoutMS=500", testing::stranger(false)));
    assert!(error.contains("did not answer in time"), "{error}");
    let plain = single();
    // As the address has it, and where there are several to ask: nobody waits until the search is over.
    let tls = format!("{}&tls=true&tlsInsecure=true", plain.url());
    let port = plain.url().rsplit_once(':').unwrap().1.split('/').next().unwrap().to_string();
    let several = format!("mongodb://127.0.0.1:{port},localhost:{port}/?tls=true&tlsInsecure=true");
    for url in [tls, several] {
        let patient = MongoDb::connect(&spec(&url, Durability::Configured), Duration::from_secs(600));
        let error = patient.err().unwrap().to_string();
        assert!(error.contains("without TLS: leave tls=true out"), "{error}");
    }
    let error = refused(&format!("{}&replicaSet=other", plain.url().replace("directConnection=true", "")));
    assert!(error.contains("no replica set"), "{error}");
}

#[test]
fn a_server_that_dies_is_counted_and_nobody_spins() {
    let mut set = single();
    let url = format!("{}&serverSelectionTimeoutMS=150", set.url());
    let target = MongoDb::connect(&spec(&url, Durability::Journalled), PATIENCE).unwrap();
    let dataset = Dataset::ycsb(10);
    target.load(&dataset, 0..10).unwrap();
    let mut blocking = target.open(&dataset).unwrap();
    let mut wired = target.open(&dataset).unwrap();
    assert_eq!((blocking.execute(&READ), by_wire(wired.as_mut(), &READ)), (Outcome::Done, Outcome::Done));
    set.kill(0);
    assert_eq!(blocking.execute(&update(1)), Outcome::Unknown(Failure::Unavailable), "its answer was lost");
    assert_eq!(by_wire(wired.as_mut(), &READ), Outcome::Refused(Failure::Unavailable));
    let began = Instant::now();
    let mut refusals = 0;
    while began.elapsed() < Duration::from_millis(600) {
        assert_eq!(blocking.execute(&update(2)), Outcome::Refused(Failure::Unavailable));
        refusals += 1;
    }
    assert!(refusals <= 10, "{refusals} refusals in 600 ms are a spin");
    set.restart(0).unwrap();
    // A single server elects itself after a moment.
    assert!(set.settle(PATIENCE));
    for session in [&mut blocking, &mut wired] {
        assert_eq!(by_wire(session.as_mut(), &READ), Outcome::Done);
        assert_eq!(session.execute(&update(3)), Outcome::Done);
    }
}

#[test]
fn errors_become_outcomes_and_repeated_writes_are_counted() {
    let set = three(Bugs::default());
    let dataset = Dataset::ycsb(10);
    let plain =
        connect(&format!("{}&retryWrites=false&retryReads=false", set.url()), Durability::Acknowledged);
    let plain = plain.unwrap();
    plain.load(&dataset, 0..10).unwrap();
    let retrying = connect(&set.url(), Durability::Acknowledged).unwrap();
    let label = || rawdoc! { "errorCode": 189, "errorLabels": ["RetryableWriteError"] };
    let concern = || rawdoc! { "writeConcernError": { "code": 64, "errmsg": "waiting timed out" } };
    let unavailable = Failure::Unavailable;
    for (data, without, with) in [
        (rawdoc! { "errorCode": 10107 }, Outcome::Refused(unavailable), Outcome::Done),
        (label(), Outcome::Unknown(unavailable), Outcome::Done),
        (rawdoc! { "closeConnection": true }, Outcome::Unknown(unavailable), Outcome::Done),
        (rawdoc! { "closeConnectionAfter": true }, Outcome::Unknown(unavailable), Outcome::Done),
        (concern(), Outcome::Unknown(Failure::Unreplicated), Outcome::Unknown(Failure::Unreplicated)),
        (
            rawdoc! { "errorCode": 112 },
            Outcome::Refused(Failure::Conflict),
            Outcome::Refused(Failure::Conflict),
        ),
    ] {
        for (target, expected) in [(&plain, without), (&retrying, with)] {
            let mut session = target.open(&dataset).unwrap();
            assert_eq!(session.execute(&READ), Outcome::Done);
            fail(target, "update", 1, data.clone());
            assert_eq!(session.execute(&update(7)), expected, "{data:?}");
            assert_eq!(session.execute(&update(8)), Outcome::Done, "the session goes on");
            fail(target, "update", 1, data.clone());
            assert_eq!(by_wire(session.as_mut(), &update(9)), expected, "by wire: {data:?}");
        }
    }
    assert_eq!(plain.sample().unwrap()["client_retried_writes"], 0.0);
    assert_eq!(retrying.sample().unwrap()["client_retried_writes"], 8.0);
    // Twice in a row is once too often, and what the first try left open stays open.
    let mut session = retrying.open(&dataset).unwrap();
    assert_eq!(session.execute(&READ), Outcome::Done);
    fail(&retrying, "update", 2, rawdoc! { "closeConnection": true });
    assert_eq!(session.execute(&update(10)), Outcome::Unknown(unavailable));
    fail(&retrying, "find", 1, rawdoc! { "closeConnection": true });
    assert_eq!(session.execute(&READ), Outcome::Done);
    fail(&plain, "find", 1, rawdoc! { "closeConnection": true });
    let mut session = plain.open(&dataset).unwrap();
    assert_eq!(session.execute(&READ), Outcome::Refused(unavailable), "a read changes nothing");
}

#[test]
fn no_answer_in_time_leaves_a_write_open() {
    let set = three(Bugs::default());
    let target =
        MongoDb::connect(&spec(&set.url(), Durability::ReplicatedToMajority), Duration::from_millis(700));
    let target = target.unwrap();
    let dataset = Dataset::ycsb(10);
    target.load(&dataset, 0..10).unwrap();
    let primary = set.primary().unwrap();
    let mut session = target.open(&dataset).unwrap();
    assert_eq!(session.execute(&update(1)), Outcome::Done);
    for node in (0..3).filter(|node| *node != primary) {
        set.kill(node);
    }
    let outcome = session.execute(&update(2));
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
}

#[test]
fn the_primary_is_followed_and_nothing_acknowledged_is_lost() {
    assert_eq!(lost_in_a_failover(Bugs::default()), 0);
}

#[test]
fn a_set_that_acknowledges_too_early_is_caught() {
    let bugs = Bugs { early_acknowledgement: true, ..Bugs::default() };
    assert!(lost_in_a_failover(bugs) > 0, "this check can fail");
}

/// Inserts with w:majority while the primary is cut off and killed; how many acknowledged ones are gone.
fn lost_in_a_failover(bugs: Bugs) -> usize {
    // Replication takes a while, so that an early acknowledgement is early.
    let replication = Duration::from_millis(30);
    let settings =
        Settings { nodes: 3, set_name: Some("rs0".into()), bugs, replication, ..Settings::default() };
    let set = ReplicaSet::start(settings).unwrap();
    let url = format!("{}&w=majority", set.url());
    let target = connect(&url, Durability::Configured).unwrap();
    let dataset = Dataset::ycsb(0);
    let mut session = target.open(&dataset).unwrap();
    let mut acknowledged = Vec::new();
    for record in 0..60 {
        if record == 30 {
            let primary = set.primary().unwrap();
            set.cut(&[primary]);
            set.kill(primary);
        }
        if session.execute(&Op::Insert { record }) == Outcome::Done {
            acknowledged.push(record);
        }
    }
    assert!(acknowledged.iter().any(|record| *record > 35), "the new primary was found");
    set.heal();
    let is_there = |record: &u64| Op::Read { record: *record, fields: Fields::All };
    let mut reader = target.open(&dataset).unwrap();
    acknowledged.iter().filter(|record| reader.execute(&is_there(record)) != Outcome::Done).count()
}

#[test]
fn a_server_that_forgets_repeated_writes_is_not_trusted_with_them() {
    let set = three(Bugs { repeated_retry: true, ..Bugs::default() });
    let target = connect(&set.url(), Durability::Configured).unwrap();
    assert!(matches!(target.capabilities(), Capabilities { deduplicates: Some(false), .. }));
    assert!(fact(&target, "probed_repeated_write").contains("applied 2 times"));
    let set = three(Bugs { ignored_concern: true, ..Bugs::default() });
    let error = connect(&set.url(), Durability::ReplicatedToMajority).err().unwrap().to_string();
    assert!(error.contains("ignores write concerns"), "{error}");
}

/// Transfers from four sessions at once, three of them by wire; the total of all balances afterwards, and how
/// many were done.
fn total_after_transfers(bugs: Bugs) -> (i64, usize) {
    let set = three(bugs);
    let target = connect(&set.url(), Durability::ReplicatedToMajority).unwrap();
    let accounts: Vec<(u64, i64)> = (0..5).map(|account| (account, 100)).collect();
    target.prepare(&accounts).unwrap();
    let dataset = Dataset::ycsb(1);
    let done: usize = std::thread::scope(|scope| {
        let work = |worker: u64| {
            let (target, dataset) = (&target, &dataset);
            move || {
                let mut session = target.open(dataset).unwrap();
                let transfer = |n: u64| {
                    let (from, to) = ((n * 7 + worker) % 5, (n * 3 + worker + 1) % 5);
                    let op = Op::Transfer { id: worker * 1000 + n, from, to, amount: 1 + n as i64 % 3 };
                    if worker == 0 { session.execute(&op) } else { by_wire(session.as_mut(), &op) }
                };
                (0..40).map(transfer).filter(|outcome| *outcome == Outcome::Done).count()
            }
        };
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(work(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let (balances, transfers) = target.read_bank().unwrap();
    assert_eq!((balances.len(), transfers.len()), (5, done), "the ledger has what was done");
    (balances.iter().map(|(_, balance)| balance.unwrap()).sum(), done)
}

#[test]
fn transfers_keep_the_total_and_a_lost_update_does_not() {
    let (total, done) = total_after_transfers(Bugs::default());
    assert_eq!(total, 500);
    assert!(done > 40, "{done} transfers were done");
    let culprit = Bugs { lost_update: true, ..Bugs::default() };
    let wrong = (0..10).any(|_| total_after_transfers(culprit).0 != 500);
    assert!(wrong, "this check can fail");
}

#[test]
fn checkers_find_their_ledger_and_bank() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::ReplicatedToMajority).unwrap();
    contract::check_ledger_and_bank(&target);
    let single = single();
    let target = connect(&single.url(), Durability::Journalled).unwrap();
    // Without transactions a ledger can be kept and read, and a bank is refused in words.
    let error = target.prepare(&[(0, 100)]).err().unwrap().to_string();
    assert!(error.contains("replica set"), "{error}");
    target.prepare(&[]).unwrap();
    let dataset = contract::tables();
    let mut session = target.open(&dataset).unwrap();
    assert_eq!(session.execute(&Op::Insert { record: 7 }), Outcome::Done);
    assert_eq!(target.read_keys().unwrap(), [(7, Version::of(7, 1))]);
}

/// The level must cost what it costs: an answer that is waited for would be w:1 under another name.
#[test]
fn a_ledger_of_unacknowledged_writes_waits_for_no_answer_and_is_read_whole() {
    let single = single();
    let target = connect(&single.url(), Durability::Unacknowledged).unwrap();
    target.prepare(&[]).unwrap();
    let dataset = contract::tables();
    let mut session = target.open(&dataset).unwrap();
    for record in 0..200 {
        assert_eq!(session.execute(&Op::Insert { record }), Outcome::Done);
    }
    drop(session);
    let expected: Vec<_> = (0..200).map(|record| (record, Version::of(record, 1))).collect();
    assert_eq!(target.read_keys().unwrap(), expected, "all that was sent had arrived when the session ended");
    assert!(target.sample().unwrap()["client_unacknowledged_writes"] >= 200.0);
}

#[test]
fn a_commit_in_doubt_is_asked_again_and_nothing_else_is() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::ReplicatedToMajority).unwrap();
    target.prepare(&[(0, 100), (1, 100)]).unwrap();
    let dataset = Dataset::ycsb(1);
    let mut session = target.open(&dataset).unwrap();
    let transfer = |id| Op::Transfer { id, from: 0, to: 1, amount: 10 };
    assert_eq!(session.execute(&transfer(1)), Outcome::Done);
    fail(&target, "commitTransaction", 1, rawdoc! { "closeConnectionAfter": true });
    assert_eq!(session.execute(&transfer(2)), Outcome::Done);
    fail(&target, "commitTransaction", 2, rawdoc! { "errorCode": 91 });
    assert_eq!(by_wire(session.as_mut(), &transfer(3)), Outcome::Done);
    // A conflict did nothing, and is the caller's to try again.
    fail(&target, "update", 1, rawdoc! { "errorCode": 112, "errorLabels": ["TransientTransactionError"] });
    assert_eq!(session.execute(&transfer(4)), Outcome::Refused(Failure::Conflict));
    fail(&target, "find", 1, rawdoc! { "closeConnection": true });
    assert_eq!(session.execute(&transfer(5)), Outcome::Refused(Failure::Unavailable));
    // When nobody ever answers the commit, nobody knows.
    fail(&target, "commitTransaction", 3, rawdoc! { "closeConnection": true });
    assert_eq!(session.execute(&transfer(6)), Outcome::Unknown(Failure::Unavailable));
    fail(&target, "commitTransaction", 3, rawdoc! { "writeConcernError": { "code": 64, "errmsg": "late" } });
    assert_eq!(session.execute(&transfer(7)), Outcome::Unknown(Failure::Unreplicated));
    let (balances, _) = target.read_bank().unwrap();
    assert_eq!(balances, [(0, Some(60)), (1, Some(140))], "1, 2, 3, and 7, which was committed");
    assert!(target.sample().unwrap()["client_retried_commits"] >= 7.0);
}

#[test]
fn a_transaction_is_begun_anew_as_the_specification_says() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::ReplicatedToMajority).unwrap();
    target.prepare(&[]).unwrap();
    let mut transactor = target.transactor().unwrap();
    fail(&target, "insert", 2, rawdoc! { "errorCode": 112, "errorLabels": ["TransientTransactionError"] });
    let mut labels = Vec::new();
    let (outcome, tries) = transactor.with_transaction(|transaction| {
        let insert = rawdoc! { "insert": "tipover_lists", "documents": [{ "_id": 1 }] };
        let result = transaction.run(&insert);
        labels.push(result.as_ref().err().map(|fault| fault.labels.transient_transaction));
        result.map(drop)
    });
    assert_eq!((outcome, tries), (Outcome::Done, Some(())));
    assert_eq!(labels, [Some(true), Some(true), None], "labels survive, and each begins a new transaction");
    assert!(target.sample().unwrap()["client_retried_transactions"] >= 2.0);
    let short = MongoDb::connect(&spec(&set.url(), Durability::ReplicatedToMajority), Duration::from_secs(1));
    let mut short = short.unwrap().transactor().unwrap();
    fail(&target, "commitTransaction", 10_000, rawdoc! { "closeConnection": true });
    let (outcome, _) = short.with_transaction(|transaction| {
        transaction.run(&rawdoc! { "insert": "tipover_lists", "documents": [{ "_id": 2 }] }).map(drop)
    });
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
}

#[test]
fn documents_like_those_of_a_sample_are_stored_and_changed() {
    let sample =
        r#"{"name": "Anna", "address": {"city": "Bern", "zip": 3000}, "tags": ["a", "b"], "vip": true}"#;
    let documents = Documents::learn(&format!("{sample}\n{}\n", sample.replace("Anna", "Berta"))).unwrap();
    let city = documents.paths().iter().position(|path| path.text() == "address.city").unwrap() as u16;
    let dataset = Dataset { shape: Shape::Documents(documents.into()), ..Dataset::ycsb(50) };
    let set = single();
    let target = connect(&set.url(), Durability::Acknowledged).unwrap();
    target.load(&dataset, 0..50).unwrap();
    let mut session = target.open(&dataset).unwrap();
    assert_eq!(session.execute(&Op::InsertMany { first: 50, count: 20 }), Outcome::Done);
    for fields in [Fields::All, Fields::One(city)] {
        assert_eq!(session.execute(&Op::Update { record: 3, fields, version: 9 }), Outcome::Done);
        assert_eq!(session.execute(&Op::Read { record: 3, fields }), Outcome::Done);
    }
    assert_eq!(session.execute(&Op::Scan { first: 0, count: 200, fields: Fields::All }), Outcome::Done);
    let all = rawdoc! { "find": "usertable", "filter": {}, "batchSize": 100 };
    let found = target.command("tipover", &all).unwrap();
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let found: Vec<_> = found.into_iter().map(|one| one.unwrap().as_document().unwrap()).collect();
    assert_eq!(found.len(), 70);
    for document in found {
        assert!(document.get_str("name").is_ok() && document.get_array("tags").is_ok(), "{document:?}");
        assert!(document.get_document("address").unwrap().get_str("city").is_ok(), "{document:?}");
        assert!(document.get("address.city").unwrap().is_none(), "a path is no name");
    }
}
