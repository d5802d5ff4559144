//! The binding on a real engine: reading, writing, transactions, threads, refusals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Barrier;
use tempfile::TempDir;
use tipover_wiredtiger::{Connection, Cursor, Kind, Session};

const CACHE: &str = "create,cache_size=64MB,statistics=(fast)";
const BYTES: &str = "key_format=u,value_format=u,block_compressor=snappy,prefix_compression=true";
const STORE: &str = "key_format=q,value_format=u,block_compressor=snappy";
const ACCOUNTS: &str = "key_format=q,value_format=q";

fn open() -> (TempDir, Connection) {
    let home = tempfile::tempdir().unwrap();
    let connection = Connection::open(home.path(), CACHE).unwrap();
    (home, connection)
}

fn accounts(connection: &Connection) -> (Session, Cursor<i64, i64>) {
    let session = connection.session().unwrap();
    session.create("table:accounts", ACCOUNTS).unwrap();
    let cursor = session.cursor("table:accounts").unwrap();
    (session, cursor)
}

#[test]
fn records_survive_a_close() {
    let (home, connection) = open();
    let session = connection.session().unwrap();
    session.create("table:bytes", BYTES).unwrap();
    let mut cursor = session.cursor::<[u8], [u8]>("table:bytes").unwrap();
    for number in 0..5000u32 {
        cursor.put(format!("user{number:08}").as_bytes(), &number.to_le_bytes().repeat(50)).unwrap();
    }
    cursor.put(b"empty", b"").unwrap();
    drop((cursor, session));
    connection.close().unwrap();

    let connection = Connection::open(home.path(), CACHE).unwrap();
    let session = connection.session().unwrap();
    let mut cursor = session.cursor::<[u8], [u8]>("table:bytes").unwrap();
    assert_eq!(cursor.get(b"user00004711", |value| value.len()).unwrap(), Some(200));
    assert_eq!(
        cursor.get(b"user00004711", |value| value[..4].to_vec()).unwrap().unwrap(),
        4711u32.to_le_bytes()
    );
    assert_eq!(cursor.get_copy(b"empty").unwrap(), Some(vec![]));
    assert_eq!(cursor.get_copy(b"nobody").unwrap(), None);
    let mut count = 0;
    while cursor.next().unwrap() {
        count += 1;
    }
    assert_eq!(count, 5001);
}

#[test]
fn blocks_are_compressed() {
    let (home, connection) = open();
    let session = connection.session().unwrap();
    session.create("table:store", STORE).unwrap();
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    for record in 0..2000 {
        store.put(&record, &b"tipping point ".repeat(70)).unwrap();
    }
    session.checkpoint().unwrap();
    assert!(session.table_statistics("table:store").unwrap()["compression: pages written to disk"] > 0);
    let bytes = std::fs::metadata(home.path().join("store.wt")).unwrap().len();
    assert!(bytes < 2000 * 980 / 2, "{bytes} bytes are not compressed");
}

#[test]
fn the_four_writes_differ_as_documented() {
    let (_home, connection) = open();
    let (_session, mut cursor) = accounts(&connection);
    assert_eq!(cursor.update(&1, &10).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(cursor.remove(&1).unwrap_err().kind(), Kind::NotFound);
    cursor.insert(&1, &10).unwrap();
    assert_eq!(cursor.insert(&1, &11).unwrap_err().kind(), Kind::DuplicateKey);
    cursor.update(&1, &12).unwrap();
    cursor.put(&1, &13).unwrap();
    cursor.put(&-2, &i64::MIN).unwrap();
    assert_eq!(cursor.get_copy(&1).unwrap(), Some(13));
    assert_eq!(cursor.get_copy(&-2).unwrap(), Some(i64::MIN));
    cursor.remove(&1).unwrap();
    assert!(!cursor.contains(&1).unwrap());
}

#[test]
fn a_write_leaves_the_cursor_nowhere() {
    let (_home, connection) = open();
    let session = connection.session().unwrap();
    session.create("table:bytes", BYTES).unwrap();
    let mut cursor = session.cursor::<[u8], [u8]>("table:bytes").unwrap();
    // The key and value are temporaries: a cursor that kept pointers to them would show freed memory.
    cursor.put(&[7; 100], &[8; 100]).unwrap();
    assert!(cursor.key_copy().is_err());
    cursor.update(&[7; 100], &[9; 100]).unwrap();
    assert!(cursor.key_copy().is_err());
    assert!(!cursor.contains(&[6; 100]).unwrap());
    assert!(cursor.key_copy().is_err());
    cursor.insert(&[7; 100], &[1; 100]).unwrap_err();
    assert!(cursor.value_copy().is_err());
    cursor.remove(&[7; 100]).unwrap();
    assert!(cursor.key_copy().is_err());
}

#[test]
fn scans_start_at_or_after_a_key() {
    let (_home, connection) = open();
    let (session, mut cursor) = accounts(&connection);
    assert_eq!(cursor.search_near(&5).unwrap(), None);
    assert!(!cursor.seek(&5).unwrap());
    for key in [10, 20, 30] {
        cursor.put(&key, &(key * 2)).unwrap();
    }
    assert!(cursor.seek(&11).unwrap());
    assert_eq!(cursor.record(|key, value| (*key, *value)).unwrap(), (20, 40));
    assert!(cursor.prev().unwrap());
    assert_eq!(cursor.key_copy().unwrap(), 10);
    assert!(!cursor.prev().unwrap());
    assert!(cursor.prev().unwrap());
    assert_eq!(cursor.key_copy().unwrap(), 30);
    assert!(!cursor.seek(&31).unwrap());
    assert_eq!(cursor.search_near(&20).unwrap(), Some(Ordering::Equal));
    session.begin().unwrap();
    session.commit().unwrap();
    assert_eq!(cursor.key_copy().unwrap(), 20, "a commit leaves cursors where they are");
    session.begin().unwrap();
    session.rollback().unwrap();
    assert!(cursor.key_copy().is_err(), "a rollback resets the cursors of its session");
}

#[test]
fn a_cursor_of_another_format_is_refused() {
    let (_home, connection) = open();
    let session = connection.session().unwrap();
    session.create("table:bytes", BYTES).unwrap();
    session.create("table:store", STORE).unwrap();
    session.create("table:text", "key_format=S,value_format=Sq").unwrap();
    let error = session.cursor::<i64, [u8]>("table:bytes").unwrap_err();
    assert_eq!(error.kind(), Kind::Other);
    assert!(error.to_string().contains("table:bytes has key_format=u,value_format=u"), "{error}");
    session.cursor::<i64, i64>("table:store").unwrap_err();
    session.cursor::<[u8], [u8]>("table:store").unwrap_err();
    session.cursor::<[u8], [u8]>("table:text").unwrap_err();
    session.cursor::<i64, i64>("statistics:").unwrap_err();
    session.cursor::<[u8], [u8]>("metadata:").unwrap_err();
    session.cursor::<i64, [u8]>("table:store").unwrap();
}

#[test]
fn two_trees_change_together() {
    let (_home, connection) = open();
    let session = connection.session().unwrap();
    session.create("table:index", "key_format=u,value_format=q,prefix_compression=true").unwrap();
    session.create("table:store", STORE).unwrap();
    let mut index = session.cursor::<[u8], i64>("table:index").unwrap();
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    for (record, commit) in [(1, true), (2, false)] {
        session.begin().unwrap();
        index.insert(format!("user{record}").as_bytes(), &record).unwrap();
        store.insert(&record, b"document").unwrap();
        if commit { session.commit() } else { session.rollback() }.unwrap();
    }
    let record = index.get_copy(b"user1").unwrap().unwrap();
    assert_eq!(store.get(&record, |document| document.len()).unwrap(), Some(8));
    assert_eq!(index.get_copy(b"user2").unwrap(), None);
    assert_eq!(store.get_copy(&2).unwrap(), None);
}

#[test]
fn a_conflict_is_a_rollback() {
    let (_home, connection) = open();
    let (one, mut of_one) = accounts(&connection);
    of_one.put(&1, &100).unwrap();
    let (two, mut of_two) = accounts(&connection);
    one.begin().unwrap();
    two.begin_with(c"isolation=snapshot").unwrap();
    of_one.update(&1, &50).unwrap();
    let error = of_two.update(&1, &60).unwrap_err();
    assert_eq!(error.kind(), Kind::Rollback);
    two.rollback().unwrap();
    one.commit().unwrap();
    assert_eq!(of_two.get_copy(&1).unwrap(), Some(50));
    assert_ne!(two.rollback().unwrap_err().kind(), Kind::Rollback, "nothing is running any more");
}

#[test]
fn threads_have_sessions_of_their_own() {
    const THREADS: i64 = 4;
    const TRANSFERS: i64 = 500;
    let (_home, connection) = open();
    let (_session, mut cursor) = accounts(&connection);
    for account in 0..10 {
        cursor.put(&account, &1000).unwrap();
    }
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (connection, start) = (connection.clone(), &start);
            scope.spawn(move || {
                let (session, mut cursor) = accounts(&connection);
                start.wait();
                for transfer in 0..TRANSFERS {
                    let (from, to) = ((thread + transfer) % 10, (thread * 3 + transfer * 7 + 1) % 10);
                    while !move_money(&session, &mut cursor, from, to) {}
                }
            });
        }
    });
    let mut total = 0;
    while cursor.next().unwrap() {
        total += cursor.value_copy().unwrap();
    }
    assert_eq!(total, 10_000);
}

/// Whether it was committed; a conflict is rolled back for the caller to try again.
fn move_money(session: &Session, cursor: &mut Cursor<i64, i64>, from: i64, to: i64) -> bool {
    session.begin().unwrap();
    let mut change = |account: i64, by: i64| {
        let balance = cursor.get_copy(&account)?.expect("every account exists");
        cursor.update(&account, &(balance + by))
    };
    match change(from, -1).and_then(|()| change(to, 1)) {
        Ok(()) => session.commit().is_ok(),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Rollback, "{error}");
            session.rollback().unwrap();
            false
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let (home, connection) = open();
    let error = Connection::open(home.path(), "create,cachesize=1GB").unwrap_err();
    assert_eq!(error.kind(), Kind::Other);
    assert!(error.to_string().contains("cachesize"), "{error}");

    let error = Connection::open(home.path(), CACHE).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");

    let error = Connection::open(home.path().join("absent"), CACHE).unwrap_err();
    assert_eq!(error.kind(), Kind::Io(2), "{error}");

    let session = connection.session().unwrap();
    let error = session.cursor::<i64, i64>("table:absent").unwrap_err();
    assert_eq!(error.kind(), Kind::Io(2), "{error}");
    let error = session.create("table:x", "key_format=q,valueformat=q").unwrap_err();
    assert!(error.detail().unwrap().contains("valueformat"), "{error}");
    assert!(session.create("table:\0", "").is_err());
    assert!(connection.reconfigure("cache_size=100MB").is_ok());
    assert!(connection.reconfigure("nonsense=1").is_err());
    assert!(
        connection.messages().iter().any(|message| message.code != 0 && message.text.contains("nonsense"))
    );
    assert!(connection.messages().is_empty(), "taken messages are gone");

    let error = connection.clone().close().unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    drop(session);
    connection.close().unwrap();
}

#[test]
fn too_many_sessions_are_an_error() {
    let home = tempfile::tempdir().unwrap();
    let connection = Connection::open(home.path(), "create,session_max=20").unwrap();
    let mut sessions = Vec::new();
    let error = loop {
        match connection.session() {
            Ok(session) => sessions.push(session),
            Err(error) => break error,
        }
        assert!(sessions.len() < 1000, "session_max was not enforced");
    };
    assert!(error.to_string().contains("session"), "{error}");
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let (_home, connection) = open();
    let (session, mut cursor) = accounts(&connection);
    session.begin().unwrap();
    cursor.put(&1, &1).unwrap();
    drop(connection);
    drop(session);
    assert_eq!(cursor.get_copy(&1).unwrap(), Some(1));
}

#[test]
fn a_lent_value_locks_its_session() {
    let (_home, connection) = open();
    let (session, mut cursor) = accounts(&connection);
    cursor.put(&1, &1).unwrap();
    let (other_session, mut other) = accounts(&connection);
    assert_eq!(cursor.get(&1, |_| other.get_copy(&1).unwrap()).unwrap(), Some(Some(1)));
    drop((other_session, other));
    let handle = session.clone();
    let attempt =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cursor.get(&1, |_| handle.commit())));
    assert!(attempt.is_err());
    assert_eq!(cursor.get_copy(&1).unwrap(), Some(1), "the lease ends with the panic");
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    Seek(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || proptest::collection::vec(0..4u8, 1..4);
    let step = prop_oneof![
        (key(), proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(key, value)| Step::Put(key, value)),
        key().prop_map(Step::Remove),
        key().prop_map(Step::Get),
        key().prop_map(Step::Seek),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_table_is_an_ordered_map(steps in steps()) {
        let (_home, connection) = open();
        let session = connection.session().unwrap();
        session.create("table:bytes", BYTES).unwrap();
        let mut cursor = session.cursor::<[u8], [u8]>("table:bytes").unwrap();
        let mut map = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    cursor.put(&key, &value).unwrap();
                    map.insert(key, value);
                }
                Step::Remove(key) => prop_assert_eq!(cursor.remove(&key).is_ok(), map.remove(&key).is_some()),
                Step::Get(key) => prop_assert_eq!(cursor.get_copy(&key).unwrap(), map.get(&key).cloned()),
                Step::Seek(key) => {
                    let nearest = map.range(key.clone()..).next();
                    let nearest = nearest.map(|(key, value)| (key.clone(), value.clone()));
                    let found = cursor.seek(&key).unwrap();
                    let found = found.then(|| (cursor.key_copy().unwrap(), cursor.value_copy().unwrap()));
                    prop_assert_eq!(found, nearest);
                }
            }
        }
        cursor.reset().unwrap();
        let mut all = BTreeMap::new();
        while cursor.next().unwrap() {
            all.insert(cursor.key_copy().unwrap(), cursor.value_copy().unwrap());
        }
        prop_assert_eq!(all, map);
    }
}
