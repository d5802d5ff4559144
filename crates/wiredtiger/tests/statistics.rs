//! The statistics that the laboratory explains results with are there, by the names that mongod's
//! serverStatus uses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tipover_wiredtiger::{Connection, version};

/// As in the table of WIREDTIGER.md, for 11.3.1.
const NAMES: [&str; 35] = [
    "cache: pages requested from the cache",
    "cache: pages read into cache",
    "cache: bytes read into cache",
    "cache: bytes written from cache",
    "cache: bytes currently in the cache",
    "cache: maximum bytes configured",
    "cache: tracked dirty bytes in the cache",
    "cache: application threads page read from disk to cache count",
    "cache: application threads page read from disk to cache time (usecs)",
    "cache: page evict attempts by application threads",
    "cache: page evict failures by application threads",
    "cache: application thread time evicting (usecs)",
    "thread-yield: application thread time waiting for cache (usecs)",
    "cache: modified pages evicted",
    "cache: unmodified pages evicted",
    "block-manager: blocks read",
    "block-manager: bytes read",
    "block-manager: bytes written",
    "block-manager: bytes written for checkpoint",
    "log: log sync operations",
    "log: log sync time duration (usecs)",
    "log: log bytes written",
    "log: log bytes of payload data",
    "log: log write operations",
    "log: log flush operations",
    "checkpoint: most recent time (msecs)",
    "checkpoint: max time (msecs)",
    "checkpoint: total time (msecs)",
    "checkpoint: total succeed number of checkpoints",
    "connection: total read I/Os",
    "connection: total write I/Os",
    "connection: total fsync I/Os",
    "transaction: transactions committed",
    "transaction: transactions rolled back",
    "transaction: update conflicts",
];

fn open() -> (tempfile::TempDir, Connection) {
    let home = tempfile::tempdir().unwrap();
    let connection = Connection::open(home.path(), "create,cache_size=64MB,statistics=(fast)").unwrap();
    (home, connection)
}

#[test]
fn every_name_is_there() {
    let (_home, connection) = open();
    let all = connection.session().unwrap().statistics().unwrap();
    let absent: Vec<_> = NAMES.iter().filter(|&&name| !all.contains_key(name)).collect();
    assert!(absent.is_empty(), "{} lacks {absent:#?}", version());
}

#[test]
fn chosen_ones_are_read_afresh() {
    let (_home, connection) = open();
    let session = connection.session().unwrap();
    session.create("table:store", "key_format=q,value_format=u").unwrap();
    let mut store = session.cursor::<i64, [u8]>("table:store").unwrap();
    let mut of_database = session.statistics_reader(None, &NAMES).unwrap();
    let mut of_table = session.statistics_reader(Some("table:store"), &["cursor: insert calls"]).unwrap();
    let place = NAMES.iter().position(|name| name.ends_with("transactions committed")).unwrap();
    let limit = NAMES.iter().position(|name| name.ends_with("maximum bytes configured")).unwrap();

    let before = of_database.read().unwrap()[place];
    let inserts = of_table.read().unwrap()[0];
    for record in 0..10 {
        session.begin().unwrap();
        store.put(&record, b"document").unwrap();
        session.commit().unwrap();
    }
    assert_eq!(of_database.read().unwrap()[place] - before, 10);
    assert_eq!(of_database.read().unwrap()[limit], 64 << 20);
    assert_eq!(of_table.read().unwrap()[0] - inserts, 10);
    assert_eq!(session.table_statistics("table:store").unwrap()["cursor: insert calls"], inserts + 10);
}

#[test]
fn an_unknown_name_is_refused() {
    let (_home, connection) = open();
    let session = connection.session().unwrap();
    let error = session.statistics_reader(None, &["cache: pages red into cache"]).unwrap_err();
    assert!(error.to_string().contains("pages red into cache"), "{error}");
    assert!(error.to_string().contains(&version()), "{error}");
    assert!(session.statistics_reader(Some("table:absent"), &["cursor: insert calls"]).is_err());
}

#[test]
fn without_statistics_there_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let connection = Connection::open(home.path(), "create,statistics=(none)").unwrap();
    assert!(connection.session().unwrap().statistics().is_err());
}
