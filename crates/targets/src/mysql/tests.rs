//! On a real MariaDB.

use super::*;
use crate::connection::{sql, testing};
use crate::contract;
use std::time::{Duration, Instant};
use tipover_core::check::Model;
use tipover_core::op::{Failure, Fields, Op, Outcome};
use tipover_lab::recipe::{self, Server, ServerOptions, Transport};

mod hostile;
mod logins;
mod scripts;

const ALL: Fields = Fields::All;

fn start(options: &ServerOptions) -> Option<Server> {
    let found = recipe::Mariadb::find(None);
    let found = found.map_err(|missing| println!("SKIPPED: {missing}")).ok()?;
    Some(found.start(options).unwrap())
}

fn settings(settings: &[(&str, &str)]) -> ServerOptions {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    ServerOptions { settings, ..ServerOptions::default() }
}

fn open(url: &str) -> Mysql {
    Mysql::open(&testing::spec("mysql", url)).unwrap()
}

fn refusal(spec: &Spec) -> String {
    Mysql::open(spec).err().expect("it must be refused").to_string()
}

fn query(target: &Mysql, text: &str) -> Vec<Vec<Option<String>>> {
    target.server.ask(|client| client.query(text)).unwrap()
}

fn loaded(target: &Mysql, records: u64) -> Dataset {
    let dataset = Dataset::ycsb(records);
    target.load(&dataset, 0..records).unwrap();
    dataset
}

#[test]
fn keeps_the_contract_over_tcp_socket_and_tls() {
    let options = ServerOptions { transport: Transport::TlsOffered, ..ServerOptions::default() };
    let Some(server) = start(&options) else { return };
    let base = server.url().split('?').next().unwrap().to_string();
    let authority = server.authority().unwrap().display().to_string();
    let plain = format!("{base}?ssl-mode=disable");
    let socket = format!("{base}?socket={}", server.socket().display());
    let verified = format!("{base}?ssl-mode=verify-full&ssl-ca={authority}");
    for (url, encrypted) in [(plain, false), (socket, false), (verified, true)] {
        let target = open(&url);
        query(&target, "DROP TABLE IF EXISTS usertable");
        let kinds = [contract::RECORDS_IN_FULL, &contract::scripts()].concat();
        let expect = contract::Expect { keeps_records: true, kinds: &kinds };
        contract::check(&target, &expect);
        let facts = target.facts().unwrap();
        assert!(facts["system"].as_str().unwrap().contains("MariaDB"), "{}", facts["system"]);
        assert_eq!(facts["encryption"] != "none", encrypted, "{}", facts["encryption"]);
        assert_eq!((&facts["table_engine"], &facts["key_is_indexed"]), (&"InnoDB".into(), &true.into()));
        assert!(!format!("{facts:?}").contains(server.password()));
    }
}

#[test]
fn what_cannot_be_reached_is_said_in_a_sentence_without_the_password() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let base = server.url().split('?').next().unwrap().to_string();
    let good = format!("{base}?ssl-mode=prefer");
    let port = server.address().port().to_string();
    let swap = |from: &str, to: &str| good.replace(from, to);
    let cases = [
        (swap(server.password(), "wr0ng-secret"), "check user and password"),
        (swap(&format!(":{}@", server.password()), "@"), "no password was given"),
        (swap("/tipover?", "/nosuch?"), "create the database"),
        (swap(&port, "1"), "is the server running"),
        (swap("prefer", "require"), "offers no TLS"),
        (swap("ssl-mode", "sslmode"), "did you mean `ssl-mode`"),
    ];
    for (url, expected) in cases {
        let said = refusal(&testing::spec("mysql", &url));
        assert!(said.contains(expected), "{said}");
        for secret in [server.password(), "wr0ng-secret"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let target = open(&good);
    let said = target.open(&Dataset::ycsb(1)).err().unwrap().to_string();
    assert!(said.contains("usertable") && said.contains("load it first"), "{said}");
}

#[test]
fn durability_is_read_back_and_set_only_where_that_is_allowed() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let with = |durability| {
        let mut spec = testing::spec("mysql", &server.url());
        spec.target.durability = durability;
        spec
    };
    let flush = "innodb_flush_log_at_trx_commit";
    let journalled = Mysql::open(&with(Durability::Journalled)).unwrap();
    assert_eq!(journalled.facts().unwrap()[flush], "1");
    for (durability, expected) in [
        (Durability::Unacknowledged, "weakest"),
        (Durability::Written, "put back at the end"),
        (Durability::ReplicatedToOne, "neither in a Galera cluster"),
        (Durability::ReplicatedToMajority, "majority"),
    ] {
        let said = refusal(&with(durability));
        assert!(said.contains(expected), "{said}");
    }
    let mut spec = with(Durability::Written);
    spec.target.settings.insert(format!("global.{flush}"), "2".into());
    {
        let written = Mysql::open(&spec).unwrap();
        assert_eq!(written.facts().unwrap()[flush], "2");
    }
    assert_eq!(journalled.facts().unwrap()[flush], "1", "it was put back");
    // What was set is put back, too, if the target cannot be opened after all.
    spec.target.durability = Durability::Acknowledged;
    refusal(&spec);
    assert_eq!(journalled.facts().unwrap()[flush], "1", "it was put back");

    let mut spec = with(Durability::Configured);
    spec.target.settings.insert("innodb_lock_wait_timeout".into(), "7".into());
    assert_eq!(Mysql::open(&spec).unwrap().facts().unwrap()["innodb_lock_wait_timeout"], "7");
    spec.target.settings = BTreeMap::from([("inodb_lock_wait_timeout".to_string(), "7".to_string())]);
    let said = refusal(&spec);
    assert!(said.contains("inodb_lock_wait_timeout") && said.contains("target.settings"), "{said}");
}

#[test]
fn a_server_that_dies_neither_hangs_nor_spins_and_is_found_again() {
    let Some(mut server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    sql::testing::check_death(&target, &mut server);
}

#[test]
fn tables_of_other_programs_are_read_and_loading_again_changes_nothing() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    let dataset = Dataset { fields: 2, ..Dataset::ycsb(100) };
    let key = |record: u64| {
        let mut key = Vec::new();
        dataset.key(record, &mut key);
        String::from_utf8(key).unwrap()
    };
    // As go-ycsb makes it, but for another order of columns; then one with a column that is no text.
    for (number, before) in [("", ""), ("n INT NOT NULL DEFAULT 7, ", "1, ")] {
        query(&target, "DROP TABLE IF EXISTS usertable");
        query(
            &target,
            &format!(
                "CREATE TABLE usertable ({number}FIELD1 VARCHAR(100), YCSB_KEY VARCHAR(64) PRIMARY KEY, Field0 TEXT)"
            ),
        );
        query(&target, &format!("INSERT INTO usertable VALUES ({before}'one', '{}', NULL)", key(5)));
        target.server.forget_table();
        let mut session = target.open(&dataset).unwrap();
        for fields in [ALL, Fields::EachByName] {
            assert_eq!(session.execute(&Op::Read { record: 5, fields }), Outcome::Done);
            let fetched = [0, 1].map(|field| session.fetched(field).map(<[u8]>::to_vec));
            assert_eq!(fetched, [None, Some(b"one".to_vec())]);
        }
        // The same values again: found, though nothing changes.
        for _ in 0..2 {
            let update = Op::Update { record: 5, fields: Fields::One(1), version: 3 };
            assert_eq!(session.execute(&update), Outcome::Done);
        }
        target.load(&dataset, 0..100).unwrap();
        target.load(&dataset, 0..100).unwrap();
        assert_eq!(query(&target, "SELECT count(*) FROM usertable"), [[Some("100".to_string())]]);
        let mut value = Vec::new();
        dataset.value(5, 1, 0, &mut value);
        let rows = query(&target, &format!("SELECT FIELD1 FROM usertable WHERE YCSB_KEY = '{}'", key(5)));
        assert_eq!(rows, [[Some(String::from_utf8(value).unwrap())]]);
    }
}

#[test]
fn a_lock_that_is_not_given_is_a_conflict_and_leaves_the_session_usable() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let holder = open(&server.url());
    let dataset = loaded(&holder, 10);
    let update = Op::Update { record: 2, fields: Fields::One(0), version: 1 };
    let mut spec = testing::spec("mysql", &server.url());
    spec.target.settings.insert("innodb_lock_wait_timeout".into(), "1".into());
    let target = Mysql::open(&spec).unwrap();
    let mut session = target.open(&dataset).unwrap();
    query(&holder, "BEGIN");
    query(&holder, "SELECT * FROM usertable FOR UPDATE");
    for _ in 0..2 {
        assert_eq!(session.execute(&update), Outcome::Refused(Failure::Conflict));
    }
    query(&holder, "COMMIT");
    assert_eq!(session.execute(&update), Outcome::Done);
}

#[test]
fn reads_show_in_the_servers_own_counters() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    let dataset = loaded(&target, 1_000);
    target.settle().unwrap();
    let before = target.sample().unwrap();
    let mut session = target.open(&dataset).unwrap();
    for record in 0..1_000 {
        assert_eq!(session.execute(&Op::Read { record, fields: ALL }), Outcome::Done);
    }
    assert_eq!(session.execute(&Op::Update { record: 1, fields: ALL, version: 1 }), Outcome::Done);
    let after = target.sample().unwrap();
    let grown = |name: &str| after[name] - before[name];
    assert!(grown("engine_page_requests") >= 1_000.0, "{before:?} {after:?}");
    assert!(grown("engine_page_reads") <= grown("engine_page_requests"));
    assert!(grown("engine_journal_bytes") > 0.0);
    assert!(grown("engine_queries") >= 1_001.0);
}

#[test]
fn a_table_may_be_of_myrocks() {
    let Some(server) = start(&settings(&[("plugin-load-add", "ha_rocksdb.so")])) else { return };
    let plain = open(&server.url());
    if query(&plain, "SELECT 1 FROM information_schema.engines WHERE engine = 'ROCKSDB'").is_empty() {
        return println!("SKIPPED: MyRocks is not installed; apt-get install mariadb-plugin-rocksdb");
    }
    let mut spec = testing::spec("mysql", &server.url());
    spec.target.settings.insert("default_storage_engine".into(), "ROCKSDB".into());
    spec.target.durability = Durability::Journalled;
    let target = Mysql::open(&spec).unwrap();
    let kinds = [contract::RECORDS_IN_FULL, &contract::scripts()].concat();
    contract::check(&target, &contract::Expect { keeps_records: true, kinds: &kinds });
    let facts = target.facts().unwrap();
    assert_eq!(facts["table_engine"], "ROCKSDB");
    assert!(target.sample().unwrap().contains_key("engine_page_requests"));
}

#[test]
fn documents_are_kept_as_they_are_and_changed_in_place() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    sql::testing::check_documents(&target, |text| query(&target, text));
}

#[test]
fn keeps_a_ledger_and_a_bank_at_every_isolation() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    for isolation in ["READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"] {
        let mut spec = testing::spec("mysql", &server.url());
        spec.target.settings.insert("tx_isolation".into(), isolation.into());
        let target = Mysql::open(&spec).unwrap();
        contract::check_ledger_and_bank(&target);
        let expected = isolation.to_lowercase().replace('-', " ");
        assert_eq!(target.facts().unwrap()["transfer_isolation"], expected);
    }
    let target = open(&server.url());
    query(&target, "INSERT INTO tipover_transfer VALUES (x'2a', 'a', 'b', 'c', 'd', 1, 'new', NULL, NULL)");
    query(&target, "INSERT INTO tipover_account VALUES ('NOBANK', '1', NULL)");
    let (balances, transfers) = target.read_bank().unwrap();
    assert!(balances.contains(&(u64::MAX, None)), "{balances:?}");
    assert_eq!(transfers.iter().filter(|row| row.id >> 63 == 1 && row.from == u64::MAX).count(), 1);
}

#[test]
fn a_transfer_that_is_cut_off_is_refused_before_its_commit_and_trying_again_moves_nothing_twice() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let (target, holder, observer) = (open(&server.url()), open(&server.url()), open(&server.url()));
    target.prepare(&[(0, 100), (1, 100)]).unwrap();
    let dataset = Dataset::of_bank(target.server.bank.clone());
    let transfer = |id| Op::Transfer { id, from: 0, to: 1, amount: 10 };
    let waiting = "SELECT id FROM information_schema.processlist WHERE info LIKE 'UPDATE tipover_account%'";
    query(&holder, "START TRANSACTION");
    query(&holder, "SELECT * FROM tipover_account FOR UPDATE");
    let mut killed = None;
    for (id, kill, expected) in [
        (1, "KILL CONNECTION", Outcome::Refused(Failure::Unavailable)),
        (2, "KILL QUERY", Outcome::Refused(Failure::Timeout)),
    ] {
        let outcome = std::thread::scope(|scope| {
            let payer = scope.spawn(|| target.open(&dataset).unwrap().execute(&transfer(id)));
            let begin = Instant::now();
            let waiter = loop {
                // One that was killed is listed for a while.
                let ids = query(&observer, waiting).into_iter().map(|row| row[0].clone());
                if let Some(id) = ids.flatten().find(|id| killed.as_ref() != Some(id)) {
                    break id;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "the transfer does not wait");
                std::thread::sleep(Duration::from_millis(5));
            };
            query(&observer, &format!("{kill} {waiter}"));
            killed = Some(waiter);
            payer.join().unwrap()
        });
        assert_eq!(outcome, expected, "{kill}");
    }
    query(&holder, "ROLLBACK");
    let mut session = target.open(&dataset).unwrap();
    for id in [1, 2] {
        assert_eq!(session.execute(&transfer(id)), Outcome::Done, "it was not done before");
        assert_eq!(session.execute(&transfer(id)), Outcome::Refused(Failure::Exists));
    }
    // Two transfers in opposite directions wait for each other's end, not for each other.
    let balances = || target.read_bank().unwrap().0.into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(balances(), [(0, Some(80)), (1, Some(120))].into());
    std::thread::scope(|scope| {
        for client in 0..4u64 {
            let (target, dataset) = (&target, &dataset);
            scope.spawn(move || {
                let mut session = target.open(dataset).unwrap();
                for n in 0..25 {
                    let (from, to) = (client % 2, 1 - client % 2);
                    let op = Op::Transfer { id: 100 + 100 * client + n, from, to, amount: 1 };
                    assert_eq!(session.execute(&op), Outcome::Done);
                }
            });
        }
    });
    assert_eq!(balances(), [(0, Some(80)), (1, Some(120))].into());
}

#[test]
fn repeatable_reads_lose_updates_and_serializable_ones_do_not() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let found = |isolation: &str, expected: Model| {
        let mut spec = testing::spec("mysql", &server.url());
        spec.target.settings.insert("tx_isolation".into(), isolation.into());
        spec.target.settings.insert("innodb_lock_wait_timeout".into(), "5".into());
        contract::isolation(&Mysql::open(&spec).unwrap(), expected)
    };
    // InnoDB reads a snapshot and writes on top of what is newer: its repeatable read is no snapshot
    // isolation.
    let (model, finding) = found("REPEATABLE-READ", Model::ReadCommitted);
    assert_eq!(model, Model::ReadCommitted, "{finding:?}");
    let (model, finding) = found("SERIALIZABLE", Model::Serializable);
    assert!(model >= Model::Serializable, "{finding:?}");
}
