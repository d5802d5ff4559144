//! What every SQL server must do, on a real one.

use super::Texts;
use crate::contract::by_wire;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::op::{Failure, Fields, Op, Outcome};
use tipover_core::target::{Session, Target};
use tipover_core::workload::{Dataset, Documents, JsonText, Shape};
use tipover_lab::recipe::Server;

const ALL: Fields = Fields::All;

/// Documents are kept as they are and changed in place; `query` asks the server itself.
pub fn check_documents(target: &dyn Target, query: impl Fn(&str) -> Vec<Texts>) {
    let sample =
        r#"{"name": "Anna \\ \"A\" 'x'", "address": {"city": "Bern", "zip": 3000}, "tags": ["a", "b"]}"#;
    let documents = Documents::learn(sample).unwrap();
    let city = documents.paths().iter().position(|path| path.text() == "address.city").unwrap() as u16;
    let dataset = Dataset { shape: Shape::Documents(Arc::new(documents)), ..Dataset::ycsb(50) };
    target.load(&dataset, 0..50).unwrap();
    target.load(&dataset, 0..50).unwrap();
    let mut session = target.open(&dataset).unwrap();
    let text = |record: u64, version: u64| {
        let mut json = JsonText::default();
        dataset.document(record, version, &mut json);
        serde_json::from_slice::<serde_json::Value>(&json.text).unwrap()
    };
    let stored = |record: u64| {
        let mut key = Vec::new();
        dataset.key(record, &mut key);
        let key = String::from_utf8(key).unwrap();
        let rows = query(&format!("SELECT document FROM usertable WHERE YCSB_KEY = '{key}'"));
        serde_json::from_str::<serde_json::Value>(rows[0][0].as_ref().unwrap()).unwrap()
    };
    assert_eq!(stored(7), text(7, 0));
    assert_eq!(session.execute(&Op::Insert { record: 50 }), Outcome::Done);
    assert_eq!(session.execute(&Op::InsertMany { first: 51, count: 30 }), Outcome::Done);
    assert_eq!((stored(50), stored(80)), (text(50, 0), text(80, 0)));
    assert_eq!(session.execute(&Op::Read { record: 7, fields: ALL }), Outcome::Done);
    assert_eq!(session.execute(&Op::Read { record: 7, fields: Fields::One(city) }), Outcome::Done);
    assert_eq!(session.execute(&Op::Update { record: 7, fields: ALL, version: 3 }), Outcome::Done);
    assert_eq!(stored(7), text(7, 3));
    let one = Op::Update { record: 7, fields: Fields::One(city), version: 4 };
    assert_eq!(session.execute(&one), Outcome::Done);
    let mut leaf = JsonText::default();
    dataset.leaf(7, city, 4, &mut leaf);
    let mut expected = text(7, 3);
    expected["address"]["city"] = serde_json::from_slice(&leaf.text).unwrap();
    assert_eq!(stored(7), expected, "nothing else changed");
}

/// A server that dies neither hangs a session nor makes it spin, and is found again.
pub fn check_death(target: &dyn Target, server: &mut Server) {
    let dataset = Dataset::ycsb(10);
    target.load(&dataset, 0..10).unwrap();
    target.settle().unwrap();
    let read = Op::Read { record: 1, fields: ALL };
    let update = Op::Update { record: 1, fields: ALL, version: 1 };
    type Execute = fn(&mut dyn Session, &Op) -> Outcome;
    for execute in [by_wire as Execute, |session, op| session.execute(op)] {
        let (mut writer, mut reader) = (target.open(&dataset).unwrap(), target.open(&dataset).unwrap());
        assert_eq!(execute(writer.as_mut(), &update), Outcome::Done);
        assert_eq!(execute(reader.as_mut(), &read), Outcome::Done);
        server.kill().unwrap();
        // The request is taken by a connection whose other end is gone: nobody knows what became of it.
        let lost = execute(writer.as_mut(), &update);
        assert!(
            matches!(lost, Outcome::Unknown(Failure::Unavailable) | Outcome::Refused(Failure::Unavailable)),
            "{lost:?}"
        );
        assert_eq!(execute(reader.as_mut(), &read), Outcome::Refused(Failure::Unavailable));
        let began = Instant::now();
        for _ in 0..8 {
            assert_eq!(execute(writer.as_mut(), &update), Outcome::Refused(Failure::Unavailable));
        }
        // Pauses of 10, 20, 40 and 80 ms at least.
        assert!(
            began.elapsed() >= Duration::from_millis(140),
            "{:?} for 8 refusals is a spin",
            began.elapsed()
        );
        assert!(target.sample().is_err());
        server.start().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while execute(writer.as_mut(), &update) != Outcome::Done {
            assert!(Instant::now() < deadline, "the server is back and was not found");
        }
        assert_eq!(execute(writer.as_mut(), &read), Outcome::Done);
        assert!(target.sample().unwrap()["engine_page_requests"] > 0.0);
    }
}
