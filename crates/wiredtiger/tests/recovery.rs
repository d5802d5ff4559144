//! What is left when a process dies without closing: this test starts itself as that process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, abort};
use tipover_wiredtiger::{Connection, Session, Sync};

/// Set in the process that is to die: the folder of the database and the compressor of its journal.
const HOME: &str = "TIPOVER_TEST_HOME";
const COMPRESSOR: &str = "TIPOVER_TEST_COMPRESSOR";

const RECORDS: i64 = 2000;

fn open(home: &Path, compressor: &str) -> (Connection, Session) {
    std::fs::create_dir_all(home.join("journal")).unwrap();
    let config = format!(
        "create,cache_size=64MB,statistics=(fast),log=(enabled=true,remove=true,path=journal,compressor={compressor})"
    );
    let connection = Connection::open(home, &config).unwrap();
    let session = connection.session().unwrap();
    session.create("table:store", "key_format=q,value_format=u,block_compressor=snappy").unwrap();
    (connection, session)
}

fn document(record: i64) -> Vec<u8> {
    format!("record {record} ").repeat(60).into_bytes()
}

/// Not a test of its own: the process that [`die_and_recover`] starts, and that dies.
#[test]
fn victim() {
    let (Ok(home), Ok(compressor)) = (std::env::var(HOME), std::env::var(COMPRESSOR)) else { return };
    let (_connection, session) = open(Path::new(&home), &compressor);
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    for record in 0..RECORDS {
        session.begin().unwrap();
        store.put(&record, &document(record)).unwrap();
        session.commit().unwrap();
    }
    session.log_flush(Sync::On).unwrap();
    session.begin().unwrap();
    store.put(&RECORDS, b"never committed").unwrap();
    abort();
}

fn die_and_recover(compressor: &str) {
    let home = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["victim", "--exact", "--nocapture"])
        .env(HOME, home.path())
        .env(COMPRESSOR, compressor)
        .output()
        .unwrap();
    assert!(!status.status.success(), "the victim must die: {status:?}");

    let (connection, session) = open(home.path(), compressor);
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    for record in 0..RECORDS {
        assert_eq!(
            store.get_copy(&record).unwrap(),
            Some(document(record)),
            "record {record} with {compressor}"
        );
    }
    assert!(!store.next().unwrap(), "what was not committed is not there");
    if compressor == "snappy" {
        // The journal of this connection compresses too; that it does is what makes the test above mean
        // something.
        store.put(&0, &document(0)).unwrap();
        session.log_flush(Sync::Off).unwrap();
        assert!(session.statistics().unwrap()["log: log records compressed"] > 0);
    }
    drop((store, session));
    connection.close().unwrap();
}

#[test]
fn a_plain_journal_is_recovered() {
    die_and_recover("none");
}

#[test]
fn a_compressed_journal_is_recovered() {
    die_and_recover("snappy");
}

#[test]
fn a_copy_of_an_open_database_is_recovered() {
    let home = tempfile::tempdir().unwrap();
    let (_connection, session) = open(home.path(), "snappy");
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    store.put(&1, &document(1)).unwrap();
    session.checkpoint().unwrap();
    store.put(&2, &document(2)).unwrap();
    session.log_flush(Sync::On).unwrap();

    let copy = tempfile::tempdir().unwrap();
    for folder in ["", "journal"] {
        std::fs::create_dir_all(copy.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(home.path().join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), copy.path().join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
    let (_connection, session) = open(copy.path(), "snappy");
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    assert_eq!(store.get_copy(&1).unwrap(), Some(document(1)));
    assert_eq!(store.get_copy(&2).unwrap(), Some(document(2)));
}
