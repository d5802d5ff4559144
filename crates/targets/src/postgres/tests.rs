//! On real servers, of every version that is installed here.

use super::*;
use crate::connection::{sql, testing};
use crate::contract;
use std::time::{Duration, Instant};
use tipover_core::check::Model;
use tipover_core::op::{Failure, Fields, Op, Outcome};
use tipover_lab::recipe::{self, Server, ServerOptions, Stop, Transport};

const ALL: Fields = Fields::All;

fn start(options: &ServerOptions) -> Option<Server> {
    let found = recipe::Postgres::find(None);
    let found = found.map_err(|missing| println!("SKIPPED: {missing}")).ok()?;
    Some(found.start(options).unwrap())
}

fn settings(settings: &[(&str, &str)]) -> ServerOptions {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    ServerOptions { settings, ..ServerOptions::default() }
}

fn open(url: &str) -> Postgres {
    Postgres::open(&testing::spec("postgres", url)).unwrap()
}

fn refusal(spec: &Spec) -> String {
    Postgres::open(spec).err().expect("it must be refused").to_string()
}

fn query(target: &Postgres, text: &str) -> Vec<Vec<Option<String>>> {
    target.server.ask(|client| client.query(text)).unwrap()
}

fn loaded(target: &Postgres, records: u64) -> Dataset {
    let dataset = Dataset::ycsb(records);
    target.load(&dataset, 0..records).unwrap();
    dataset
}

fn over_socket(server: &Server) -> String {
    let folder = server.socket().parent().unwrap().display().to_string();
    let (password, port) = (server.password(), server.address().port());
    format!("postgres://tipover:{password}@/tipover?host={folder}&port={port}")
}

#[test]
fn keeps_the_contract_on_every_version_over_tcp_socket_and_tls() {
    let versions = recipe::Postgres::all();
    if versions.is_empty() {
        println!("SKIPPED: {}", recipe::Postgres::find(None).unwrap_err());
    }
    if !versions.iter().any(|version| version.major >= 18) {
        println!("SKIPPED: {}", recipe::Postgres::find(Some(18)).unwrap_err());
    }
    for version in versions {
        let options = ServerOptions {
            transport: Transport::TlsOffered,
            ..settings(&[("shared_buffers", "16MB"), ("track_io_timing", "on")])
        };
        let server = version.start(&options).unwrap();
        let plain = server.url().replace("sslmode=prefer", "sslmode=disable");
        let authority = server.authority().unwrap().display().to_string();
        let verified = format!("{}&sslrootcert={authority}", server.url().replace("prefer", "verify-full"));
        for (url, encrypted) in [(plain, false), (over_socket(&server), false), (verified, true)] {
            let target = open(&url);
            query(&target, "DROP TABLE IF EXISTS usertable");
            let kinds = [contract::RECORDS_IN_FULL, &contract::scripts()].concat();
            let expect = contract::Expect { keeps_records: true, kinds: &kinds };
            contract::check(&target, &expect);
            let facts = target.facts().unwrap();
            let system = facts["system"].as_str().unwrap();
            assert!(system.contains(&format!("PostgreSQL {}", version.major)), "{system}");
            assert_eq!(facts["encryption"] != "none", encrypted, "{}", facts["encryption"]);
            assert_eq!((&facts["fsync"], &facts["key_is_indexed"]), (&"on".into(), &true.into()));
            assert!(!format!("{facts:?}").contains(server.password()));
        }
    }
}

#[test]
fn what_cannot_be_reached_is_said_in_a_sentence_without_the_password() {
    let options = ServerOptions { transport: Transport::TlsOffered, ..ServerOptions::default() };
    let Some(server) = start(&options) else { return };
    let Some(plain) = start(&ServerOptions::default()) else { return };
    let good = server.url();
    let port = server.address().port().to_string();
    let swap = |from: &str, to: &str| good.replace(from, to);
    let cases = [
        (swap(server.password(), "wr0ng-secret"), "password authentication failed"),
        (swap(&format!(":{}@", server.password()), "@"), "PGPASSWORD"),
        (swap("/tipover?", "/nosuch?"), "create the database"),
        (swap(&port, "1"), "is the server running"),
        (swap("127.0.0.1", "no-such-host.invalid"), "was not found"),
        (swap("sslmode=prefer", "sslmode=verify-full"), "encryption failed"),
        (swap("sslmode", "sslmod"), "did you mean `sslmode`"),
        (plain.url().replace("sslmode=disable", "sslmode=require"), "offers no TLS"),
    ];
    for (url, expected) in cases {
        let said = refusal(&testing::spec("postgres", &url));
        assert!(said.contains(expected), "{said}");
        for secret in [server.password(), plain.password(), "wr0ng-secret"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let target = open(&good);
    let said = target.open(&Dataset::ycsb(1)).err().unwrap().to_string();
    assert!(said.contains("usertable") && said.contains("load it first"), "{said}");
    query(&target, "CREATE TABLE usertable (ycsb_key text, field0 text)");
    let said = target.open(&Dataset::ycsb(1)).err().unwrap().to_string();
    assert!(said.contains("has no column field1"), "{said}");
}

#[test]
fn passwords_are_proved_as_the_server_wants() {
    let Some(mut server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    query(&target, "SET password_encryption = 'md5'; CREATE ROLE old LOGIN PASSWORD 'a b%c'");
    query(&target, "SET password_encryption = 'scram-sha-256'; CREATE ROLE plain LOGIN PASSWORD 'pässwörd'");
    let hba = server.data().join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    let added = format!("host all old all md5\nhost all plain all password\n{rules}");
    std::fs::write(&hba, added).unwrap();
    query(&target, "SELECT pg_reload_conf()");
    let with = |credentials: &str| {
        let all = format!("tipover:{}@", server.password());
        testing::spec("postgres", &server.url().replace(&all, &format!("{credentials}@")))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while Postgres::open(&with("old:a%20b%25c")).is_err() {
        assert!(Instant::now() < deadline, "{}", refusal(&with("old:a%20b%25c")));
        std::thread::sleep(Duration::from_millis(20));
    }
    Postgres::open(&with("plain:p%C3%A4ssw%C3%B6rd")).unwrap();
    assert!(refusal(&with("old:wrong")).contains("password authentication failed"));
    server.stop(Stop::Fast).unwrap();
}

#[test]
fn durability_is_set_read_back_and_refused_where_it_cannot_be_given() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let with = |url: &str, durability| {
        let mut spec = testing::spec("postgres", url);
        spec.target.durability = durability;
        spec
    };
    for (durability, value) in
        [(Durability::Configured, "on"), (Durability::Acknowledged, "off"), (Durability::Journalled, "local")]
    {
        let target = Postgres::open(&with(&server.url(), durability)).unwrap();
        assert_eq!(target.facts().unwrap()["synchronous_commit"], value, "{durability:?}");
    }
    for (durability, expected) in [
        (Durability::Unacknowledged, "weakest"),
        (Durability::Written, "nothing between"),
        (Durability::ReplicatedToOne, "synchronous_standby_names is empty"),
        (Durability::ReplicatedToMajority, "synchronous_standby_names is empty"),
    ] {
        let said = refusal(&with(&server.url(), durability));
        assert!(said.contains(expected), "{said}");
    }
    let mut spec = with(&server.url(), Durability::Configured);
    spec.target.settings = BTreeMap::from([("work_mem".to_string(), "123kB".to_string())]);
    assert_eq!(Postgres::open(&spec).unwrap().facts().unwrap()["work_mem"], "123kB");
    spec.target.settings = BTreeMap::from([("wrok_mem".to_string(), "1".to_string())]);
    let said = refusal(&spec);
    assert!(said.contains("wrok_mem") && said.contains("target.settings"), "{said}");

    let Some(careless) = start(&settings(&[("fsync", "off"), ("synchronous_standby_names", "nobody")]))
    else {
        return;
    };
    let said = refusal(&with(&careless.url(), Durability::Journalled));
    assert!(said.contains("fsync is off"), "{said}");
    let Some(alone) = start(&settings(&[("synchronous_standby_names", "nobody")])) else { return };
    let said = refusal(&with(&alone.url(), Durability::ReplicatedToOne));
    assert!(said.contains("no standby"), "{said}");
}

#[test]
fn a_commit_that_no_standby_confirmed_is_unknown_though_the_server_says_it_succeeded() {
    let Some(server) = start(&settings(&[("synchronous_standby_names", "nobody")])) else { return };
    let mut spec = testing::spec("postgres", &server.url());
    spec.target.settings.insert("synchronous_commit".into(), "local".into());
    let local = Postgres::open(&spec).unwrap();
    let dataset = loaded(&local, 10);
    spec.target.settings.insert("synchronous_commit".into(), "on".into());
    spec.load.timeout = Duration::ZERO;
    let target = Postgres::open(&spec).unwrap();
    let update = Op::Update { record: 3, fields: ALL, version: 7 };
    let waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let outcome = std::thread::scope(|scope| {
        let writer = scope.spawn(|| target.open(&dataset).unwrap().execute(&update));
        while query(&local, waiting).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.join().unwrap()
    });
    assert_eq!(outcome, Outcome::Unknown(Failure::Unreplicated));
    let mut reader = local.open(&dataset).unwrap();
    assert_eq!(reader.execute(&Op::Read { record: 3, fields: ALL }), Outcome::Done);
    assert_eq!(dataset.verify(reader.as_ref(), 3, ALL, 7), Outcome::Done, "it happened all the same");

    // Who gives up waiting leaves no server process behind that waits for ever.
    spec.load.timeout = Duration::from_millis(200);
    let hasty = Postgres::open(&spec).unwrap();
    let mut session = hasty.open(&dataset).unwrap();
    let mut given_up = 0;
    while given_up < 4 {
        match session.execute(&Op::Update { record: 3, fields: ALL, version: 8 + given_up }) {
            Outcome::Unknown(Failure::Timeout) => given_up += 1,
            // On a busy machine the time is over before the connection is made anew.
            Outcome::Refused(Failure::Unavailable) => {}
            other => panic!("{other:?}"),
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !query(&local, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").is_empty() {
        assert!(Instant::now() < deadline, "server processes still wait for a standby");
        std::thread::sleep(Duration::from_millis(20));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while session.execute(&Op::Read { record: 3, fields: ALL }) != Outcome::Done {
        assert!(Instant::now() < deadline, "the session does not go on");
    }
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
    // As go-ycsb makes it, but for another order of columns; then with names that kept their case.
    for (table, column) in [("usertable", "YCSB_KEY"), ("\"UserTable\"", "\"YCSB_KEY\"")] {
        query(&target, "DROP TABLE IF EXISTS usertable");
        query(
            &target,
            &format!(
                "CREATE TABLE {table} (FIELD1 varchar(100), {column} varchar(64) PRIMARY KEY, \"Field0\" text)"
            ),
        );
        query(&target, &format!("INSERT INTO {table} VALUES ('one', '{}', 'nought')", key(5)));
        target.server.forget_table();
        let mut session = target.open(&dataset).unwrap();
        for fields in [ALL, Fields::EachByName] {
            assert_eq!(session.execute(&Op::Read { record: 5, fields }), Outcome::Done);
            let fetched = [0, 1].map(|field| session.fetched(field).map(<[u8]>::to_vec));
            assert_eq!(fetched, [Some(b"nought".to_vec()), Some(b"one".to_vec())]);
        }
        assert_eq!(
            session.execute(&Op::Update { record: 5, fields: Fields::One(1), version: 3 }),
            Outcome::Done
        );
        // Loading writes what is missing, and puts right what is there.
        target.load(&dataset, 0..100).unwrap();
        target.load(&dataset, 0..100).unwrap();
        let rows = query(&target, &format!("SELECT count(*), count(DISTINCT {column}) FROM {table}"));
        assert_eq!(rows, [[Some("100".to_string()), Some("100".to_string())]]);
        let mut value = Vec::new();
        dataset.value(5, 1, 0, &mut value);
        let rows = query(&target, &format!("SELECT field1 FROM {table} WHERE {column} = '{}'", key(5)));
        assert_eq!(rows, [[Some(String::from_utf8(value).unwrap())]]);
    }
}

#[test]
fn conflicts_and_time_outs_are_told_apart_and_leave_the_session_usable() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let holder = open(&server.url());
    let dataset = loaded(&holder, 10);
    let update = Op::Update { record: 2, fields: Fields::One(0), version: 1 };
    for (setting, expected) in [
        ("lock_timeout", Outcome::Refused(Failure::Conflict)),
        ("statement_timeout", Outcome::Unknown(Failure::Timeout)),
    ] {
        let mut spec = testing::spec("postgres", &server.url());
        spec.target.settings.insert(setting.into(), "50ms".into());
        let target = Postgres::open(&spec).unwrap();
        let mut session = target.open(&dataset).unwrap();
        query(&holder, "BEGIN; SELECT * FROM usertable FOR UPDATE");
        // Twice: the statement is prepared by the first and used by the second.
        for _ in 0..2 {
            assert_eq!(session.execute(&update), expected, "{setting}");
        }
        query(&holder, "COMMIT");
        assert_eq!(session.execute(&update), Outcome::Done);
    }
}

#[test]
fn reads_show_in_the_servers_own_counters() {
    let Some(server) = start(&settings(&[("shared_buffers", "16MB")])) else { return };
    let target = open(&server.url());
    let dataset = loaded(&target, 1_000);
    target.settle().unwrap();
    let before = target.sample().unwrap();
    {
        let mut session = target.open(&dataset).unwrap();
        for record in 0..1_000 {
            assert_eq!(session.execute(&Op::Read { record, fields: ALL }), Outcome::Done);
        }
        assert_eq!(session.execute(&Op::Update { record: 1, fields: ALL, version: 1 }), Outcome::Done);
    }
    // A server process hands its counts over when it ends, or once a second.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let after = target.sample().unwrap();
        let grown = |name: &str| after[name] - before[name];
        // Root and leaf of the index, and the table: at least two pages a read.
        if grown("engine_page_requests") >= 2_000.0 && grown("engine_journal_bytes") > 0.0 {
            assert!(grown("engine_page_reads") <= grown("engine_page_requests"));
            assert!(grown("engine_commits") >= 1_001.0);
            break;
        }
        assert!(Instant::now() < deadline, "{before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn documents_are_kept_as_they_are_and_changed_in_place() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    sql::testing::check_documents(&target, |text| query(&target, text));
}

#[test]
fn keeps_a_ledger_and_a_bank_at_every_isolation() {
    for version in recipe::Postgres::all() {
        let server = version.start(&ServerOptions::default()).unwrap();
        for isolation in ["read committed", "repeatable read", "serializable"] {
            let mut spec = testing::spec("postgres", &server.url());
            spec.target.settings.insert("default_transaction_isolation".into(), isolation.into());
            let target = Postgres::open(&spec).unwrap();
            contract::check_ledger_and_bank(&target);
            assert_eq!(target.facts().unwrap()["transfer_isolation"], isolation);
        }
        // A bank whose rows are not ours is shown as what it is.
        let target = open(&server.url());
        let stranger = "00000000-0000-0000-0000-00000000002a";
        query(&target, &format!("INSERT INTO tipover_transfer VALUES ('{stranger}', 'a', 'b', 'c', 'd', 1)"));
        query(&target, "INSERT INTO tipover_account VALUES ('NOBANK', '1', NULL)");
        let (balances, transfers) = target.read_bank().unwrap();
        assert!(balances.contains(&(u64::MAX, None)), "{balances:?}");
        let row = transfers.iter().find(|row| row.id == 42 | 1 << 63).unwrap();
        assert_eq!((row.from, row.to, row.amount), (u64::MAX, u64::MAX, 1));
    }
}

/// Breaks `server` while a transfer waits for a lock or for a standby; gives its outcome.
fn transfer_meets(
    target: &Postgres,
    observer: &Postgres,
    transfer: &Op,
    waits: &str,
    fault: impl FnOnce(),
) -> Outcome {
    let dataset = Dataset::of_bank(target.server.bank.clone());
    std::thread::scope(|scope| {
        let payer = scope.spawn(|| target.open(&dataset).unwrap().execute(transfer));
        let waiting = format!("SELECT pid FROM pg_stat_activity WHERE {waits}");
        let begin = Instant::now();
        while query(observer, &waiting).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the transfer does not wait");
            std::thread::sleep(Duration::from_millis(5));
        }
        fault();
        payer.join().unwrap()
    })
}

#[test]
fn a_transfer_is_refused_before_its_commit_and_unknown_after_and_trying_again_moves_nothing_twice() {
    let Some(server) = start(&settings(&[("synchronous_standby_names", "nobody")])) else { return };
    let mut spec = testing::spec("postgres", &server.url());
    spec.target.settings.insert("synchronous_commit".into(), "local".into());
    let local = Postgres::open(&spec).unwrap();
    spec.target.settings.insert("synchronous_commit".into(), "on".into());
    spec.load.timeout = Duration::ZERO;
    let target = Postgres::open(&spec).unwrap();
    local.prepare(&[(0, 100), (1, 100)]).unwrap();
    let transfer = |id| Op::Transfer { id, from: 0, to: 1, amount: 10 };
    let kill = |how: &str, waits: &str| {
        query(&local, &format!("SELECT {how}(pid) FROM pg_stat_activity WHERE {waits}"));
    };

    // Before the commit: somebody else holds an account, and the server process is killed. Nothing happened.
    query(&local, "BEGIN; SELECT * FROM tipover_account FOR UPDATE");
    let locked = "wait_event_type = 'Lock'";
    let observer = Postgres::open(&testing::spec("postgres", &server.url())).unwrap();
    let outcome = transfer_meets(&target, &observer, &transfer(1), locked, || {
        query(&observer, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {locked}"));
    });
    assert_eq!(outcome, Outcome::Refused(Failure::Unavailable));
    let outcome = transfer_meets(&target, &observer, &transfer(2), locked, || {
        query(&observer, &format!("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {locked}"));
    });
    assert_eq!(outcome, Outcome::Refused(Failure::Timeout), "cancelled before its commit");
    query(&local, "ROLLBACK");

    // At the commit: it waits for a standby that does not exist.
    let standby = "wait_event = 'SyncRep'";
    let outcome = transfer_meets(&target, &observer, &transfer(3), standby, || {
        kill("pg_cancel_backend", standby);
    });
    assert_eq!(outcome, Outcome::Unknown(Failure::Unreplicated), "the server calls it a success");
    let outcome = transfer_meets(&target, &observer, &transfer(4), standby, || {
        kill("pg_terminate_backend", standby);
    });
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");

    // Whatever is tried again moves nothing twice.
    let dataset = Dataset::of_bank(local.server.bank.clone());
    let mut session = local.open(&dataset).unwrap();
    for id in [3, 4] {
        assert_eq!(session.execute(&transfer(id)), Outcome::Refused(Failure::Exists), "transfer {id}");
    }
    let (balances, transfers) = local.read_bank().unwrap();
    assert_eq!(transfers.iter().map(|row| row.id).collect::<std::collections::BTreeSet<_>>(), [3, 4].into());
    assert_eq!(balances.into_iter().collect::<BTreeMap<_, _>>(), [(0, Some(80)), (1, Some(120))].into());
}

#[test]
fn transactions_are_as_isolated_as_the_server_says_and_no_more() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let found = |isolation: &str, expected: Model| {
        let mut spec = testing::spec("postgres", &server.url());
        spec.target.settings.insert("default_transaction_isolation".into(), isolation.into());
        contract::isolation(&Postgres::open(&spec).unwrap(), expected)
    };
    // What decides by what it read, and is not told that it changed meanwhile, loses updates.
    let (model, finding) = found("read committed", Model::ReadCommitted);
    assert_eq!(model, Model::ReadCommitted, "{finding:?}");
    assert!(finding.counts.keys().any(|kind| kind.starts_with("G-single")), "{finding:?}");
    // Snapshots lose none, and let two transactions decide by what the other one changes: write skew.
    let (model, finding) = found("repeatable read", Model::SnapshotIsolation);
    assert_eq!(model, Model::SnapshotIsolation, "{finding:?}");
    assert!(finding.counted("G2-item") > 0, "{finding:?}");
    let (model, finding) = found("serializable", Model::Serializable);
    assert!(model >= Model::Serializable, "{finding:?}");
}
