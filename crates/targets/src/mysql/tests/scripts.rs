//! Scripts, with and without prepared statements, by threads and by wires.

use super::*;
use crate::contract::by_wire;
use std::sync::Arc;
use tipover_core::target::Session;
use tipover_core::workload::Scripts;
use tipover_core::workload::script::{Dialect, Protocol, Value};

const TABLE: &str = "CREATE TABLE t (a INT PRIMARY KEY, b DOUBLE, c VARCHAR(20), d BOOLEAN)";
const RUN: Op = Op::Script { script: 0, number: 5 };

fn dataset(protocol: Protocol, text: &str) -> Dataset {
    let mut scripts = Scripts::new(1, Dialect::Plan);
    scripts.preset("word", Value::Text("it is".into())).unwrap();
    scripts.preset("nothing", Value::Null).unwrap();
    scripts.protocol = protocol;
    scripts.add("s", text.as_bytes(), 1).unwrap();
    Dataset::of_scripts(Arc::new(scripts))
}

#[test]
fn values_go_in_and_come_back() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    type Execute = fn(&mut dyn Session, &Op) -> Outcome;
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        for execute in [by_wire as Execute, |session, op| session.execute(op)] {
            query(&target, "DROP TABLE IF EXISTS t");
            query(&target, TABLE);
            let word = if protocol == Protocol::Simple { "':word'" } else { ":word" };
            // Every kind of value, a row that is brought, and a decision by it.
            let text = format!(
                "\\set n 7\n\\set x 0.5\n\\set yes true\nbegin;\n\
                 insert into t values (:n, :x, {word}, :yes), (8, :nothing, NULL, false);\n\
                 select a as found, b * 2 as one, c from t where a = :n \\gset got_\n\
                 \\if :got_found = 7 and :got_one = 1.0\n\
                 update t set a = 9, c = concat(c, ' so') where a = :got_found;\n\\endif\ncommit;\n\
                 select a from t where a > 100;\n"
            );
            let dataset = dataset(protocol, &text);
            let mut session = target.open(&dataset).unwrap();
            let outcome = execute(session.as_mut(), &RUN);
            assert_eq!(outcome, Outcome::Done, "{protocol:?}: {:?}", session.complaint());
            let rows = query(&target, "SELECT a, b, c, d FROM t ORDER BY a");
            let row = |values: [Option<&str>; 4]| values.map(|value| value.map(String::from)).to_vec();
            assert_eq!(rows[0], row([Some("8"), None, None, Some("0")]), "{protocol:?}");
            assert_eq!(rows[1], row([Some("9"), Some("0.5"), Some("it is so"), Some("1")]), "{protocol:?}");
            // Once more on the same connection: the key exists, and nothing stays of the transaction.
            query(&target, "UPDATE t SET a = 7 WHERE a = 9");
            assert_eq!(execute(session.as_mut(), &RUN), Outcome::Refused(Failure::Exists));
            let said = session.complaint().expect("the server said why").clone();
            assert_eq!((said.code.as_str(), said.step), ("1062", 4), "{said:?}");
            query(&target, "DELETE FROM t");
            assert_eq!(execute(session.as_mut(), &RUN), Outcome::Done);
        }
    }
}

#[test]
fn what_fails_leaves_no_transaction_open_and_the_session_goes_on() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    query(&target, TABLE);
    query(&target, "INSERT INTO t (a) VALUES (1), (2)");
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        for (text, said) in [
            ("begin;\nupdate t set b = 1 where a = 1;\nselect nonsense;\n", "nonsense"),
            ("begin;\nselect a from t where a > 0 \\gset\ncommit;\n", "expected one row, got 2"),
            ("begin;\nupdate t set b = 1 where a = 1;\n", "without completing the last transaction"),
            ("begin;\nupdate t set b = 1 where a = 1;\n\\set x 1 / 0\ncommit;\n", "division by zero"),
        ] {
            let dataset = dataset(protocol, text);
            let mut session = target.open(&dataset).unwrap();
            for _ in 0..2 {
                assert_eq!(session.execute(&RUN), Outcome::Refused(Failure::Other), "{text}");
                let complaint = session.complaint().expect("a reason");
                assert!(complaint.words.contains(said), "{text}: {complaint:?}");
                assert!(!session.has_ended());
                // Whoever held the row's lock holds it no more.
                query(&target, "UPDATE t SET c = 'free' WHERE a = 1");
            }
        }
    }
    assert_eq!(query(&target, "SELECT count(*) FROM t WHERE b = 1")[0][0].as_deref(), Some("0"));
}

#[test]
fn joined_statements_are_one_request_with_a_result_each() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    query(&target, TABLE);
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        query(&target, "DELETE FROM t");
        let text = "begin \\; insert into t (a) values (1), (2) \\; commit;\nselect max(a) as most from t \\; select count(*) as \
            many from t \\aset\n\\set sum :most + :many\nupdate t set a = :sum where a = 2;\n";
        let dataset = dataset(protocol, text);
        let mut session = target.open(&dataset).unwrap();
        assert_eq!(session.execute(&RUN), Outcome::Done, "{protocol:?}: {:?}", session.complaint());
        let keys = query(&target, "SELECT a FROM t ORDER BY a");
        assert_eq!(keys, [vec![Some("1".to_string())], vec![Some("4".to_string())]]);
        // What comes behind the one that fails is not done, and it is said which that was.
        let text = "insert into t (a) values (7) \\; insert into t (a) values (1) \\; insert into t (a) values (8);\n";
        let dataset = self::dataset(protocol, text);
        let mut session = target.open(&dataset).unwrap();
        assert_eq!(session.execute(&RUN), Outcome::Refused(Failure::Exists));
        assert_eq!(session.complaint().map(|said| (said.step, said.request)), Some((0, 1)));
        assert_eq!(query(&target, "SELECT a FROM t WHERE a > 6")[0][0].as_deref(), Some("7"));
    }
}

#[test]
fn statements_are_timed_and_expectations_looked_at() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let target = open(&server.url());
    query(&target, TABLE);
    let text = "-- name: begin\nbegin;\n-- expect: 2 rows\ninsert into t (a, c) values (1, 'a\\b'), (2, 'it''s');\n\
        -- expect: :rows = 2 and :value = 1\nselect a from t order by a;\nupdate t set b = 1; -- expect: 0..2 rows\n\
        -- name: none\n-- expect: 1 row\nselect a from t where a > 2;\ncommit;\n";
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        let mut scripts = Scripts::new(1, Dialect::Plan);
        (scripts.protocol, scripts.times_statements) = (protocol, true);
        scripts.add("s", text.as_bytes(), 1).unwrap();
        let dataset = Dataset::of_scripts(Arc::new(scripts));
        let mut session = target.open(&dataset).unwrap();
        for _ in 0..2 {
            assert_eq!(session.execute(&RUN), Outcome::Refused(Failure::Unexpected));
            let timed: Vec<(u64, bool)> =
                session.timed().iter().map(|part| (part.rows, part.outcome == Outcome::Done)).collect();
            assert_eq!(timed, [(0, true), (2, true), (2, true), (2, true), (0, false)]);
            assert!(session.timed().windows(2).all(|pair| pair[0].ended <= pair[1].sent));
            let words = &session.complaint().expect("a reason").words;
            assert_eq!(words, "expected 1 row, and there are 0 rows");
            // Its transaction was rolled back.
            assert_eq!(query(&target, "SELECT count(*) FROM t")[0][0].as_deref(), Some("0"));
        }
    }
}
