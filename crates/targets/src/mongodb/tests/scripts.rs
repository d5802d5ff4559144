//! Scripts of commands, by threads and by wires, on our reference peer.

use super::*;
use std::sync::Arc;
use tipover_core::target::{Progress, Session};
use tipover_core::workload::Scripts;
use tipover_core::workload::script::{Dialect, Value};

const RUN: Op = Op::Script { script: 0, number: 5 };

type Execute = fn(&mut dyn Session, &Op) -> Outcome;
const WAYS: [Execute; 2] = [by_wire, |session, op| session.execute(op)];

fn dataset(text: &str) -> Dataset {
    let mut scripts = Scripts::new(1, Dialect::Commands);
    scripts.preset("nothing", Value::Null).unwrap();
    scripts.times_statements = true;
    scripts.forgets = true;
    scripts.retries = true;
    scripts.add("s", text.as_bytes(), 1).unwrap();
    Dataset::of_scripts(Arc::new(scripts))
}

fn found(target: &MongoDb, id: i32) -> Option<RawDocumentBuf> {
    let body = target.command("tipover", &rawdoc! { "find": "t", "filter": { "_id": id } }).unwrap();
    let batch = body.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.into_iter().flatten().next().and_then(|one| one.as_document().map(|one| one.to_owned()))
}

fn put(target: &MongoDb, document: RawDocumentBuf) {
    let id = document.get_i32("_id").unwrap();
    target
        .command("tipover", &rawdoc! { "delete": "t", "deletes": [{ "q": { "_id": id }, "limit": 1 }] })
        .unwrap();
    target.command("tipover", &rawdoc! { "insert": "t", "documents": [document] }).unwrap();
}

#[test]
fn values_go_into_commands_and_come_back() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::Configured).unwrap();
    let text = r#"\set n 7
        \set x 0.5
        \set yes true
        \set word random_digits(1, 4)
        \set day date(20781)
        -- name: write
        -- expect: 1 row
        {"insert": "t", "documents": [{"_id": :n, "x": :x, "yes": :yes, "word": :word, "said": "n is:n",
            "when": {"$date": :day}, "id": {"$oid": "0123456789abcdef01234567"}, "none": :nothing,
            "long": {"$numberLong": :n}, "list": [1, :n, {"a:n": :n}],
            "like": {"$regularExpression": {"pattern": "^a:n", "options": "i"}}}]};
        -- expect: :value = 0.5
        {"find": "t", "filter": {"_id": :n}, "projection": {"_id": 0, "x": 1, "id": 1, "when": 1, "said": 1}} \gset got_
        \sleep 5 ms
        \if :got_x = 0.5
        {"update": "t", "updates": [{"q": {"_id": :n}, "u": {"$set": {"again": [:got_id, :got_when, :got_said]}}}]};
        \endif
        -- expect: 0 rows
        {"find": "t", "filter": {"_id": 100}};
        {"delete": "t", "deletes": [{"q": {"_id": 8}, "limit": 1}]} \gset
        \set none :n
        "#;
    for execute in WAYS {
        let _ = target.command("tipover", &rawdoc! { "drop": "t" });
        let dataset = dataset(text);
        let mut session = target.open(&dataset).unwrap();
        let outcome = execute(session.as_mut(), &RUN);
        assert_eq!(outcome, Outcome::Done, "{:?}", session.complaint());
        let one = found(&target, 7).unwrap();
        let id = bson::oid::ObjectId::parse_str("0123456789abcdef01234567").unwrap();
        let day = bson::DateTime::from_millis(20_781 * 86_400_000);
        assert_eq!((one.get_f64("x").unwrap(), one.get_bool("yes").unwrap()), (0.5, true));
        assert_eq!((one.get_str("word").unwrap().len(), one.get_str("said").unwrap()), (4, "n is7"));
        assert_eq!((one.get_datetime("when").unwrap(), one.get_object_id("id").unwrap()), (day, id));
        assert_eq!(one.get_i64("long").unwrap(), 7);
        assert!(matches!(one.get("none"), Ok(Some(bson::RawBsonRef::Null))));
        assert_eq!(one.get_regex("like").unwrap().pattern.as_str(), "^a7");
        let list = one.get_array("list").unwrap();
        assert_eq!((list.get_i32(1).unwrap(), list.get_document(2).unwrap().get_i32("a7").unwrap()), (7, 7));
        // What was brought went back as what it was.
        let again = one.get_array("again").unwrap();
        assert_eq!((again.get_object_id(0).unwrap(), again.get_datetime(1).unwrap()), (id, day));
        assert_eq!(again.get_str(2).unwrap(), "n is7");
        let timed: Vec<(Outcome, u64)> = session.timed().iter().map(|one| (one.outcome, one.rows)).collect();
        assert_eq!(timed, [1, 1, 1, 0, 0].map(|rows| (Outcome::Done, rows)));
        // Once more: the key is there, and the server says so.
        assert_eq!(execute(session.as_mut(), &RUN), Outcome::Refused(Failure::Exists));
        assert_eq!(session.complaint().unwrap().code, "11000");
    }
}

#[test]
fn transactions_of_several_commands_keep_our_rules() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::Configured).unwrap();
    let text = r#"begin;
        {"update": "t", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"stock": -1}}}]};
        -- expect: :value >= 0
        {"find": "t", "filter": {"_id": 1}, "projection": {"_id": 0, "stock": 1}} \gset
        {"insert": "t", "documents": [{"_id": 2}]};
        \if :stock = 1
        rollback;
        \else
        commit;
        \endif
        "#;
    let stock = || found(&target, 1).unwrap().get_i32("stock").unwrap();
    let dataset = dataset(text);
    for execute in WAYS {
        let mut session = target.open(&dataset).unwrap();
        let mut go = || {
            let outcome = execute(session.as_mut(), &RUN);
            (outcome, session.complaint().map(|complaint| complaint.words.clone()).unwrap_or_default())
        };
        let begin = |stock: i32| {
            put(&target, rawdoc! { "_id": 1, "stock": stock });
            let _ = target.command(
                "tipover",
                &rawdoc! { "delete": "t", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] },
            );
        };
        begin(5);
        assert_eq!(go().0, Outcome::Done);
        assert!((stock(), found(&target, 2).is_some()) == (4, true));
        // Nothing stays of what is rolled back, by the script or because the answer is not as expected.
        begin(2);
        assert_eq!(go().0, Outcome::Done);
        assert!((stock(), found(&target, 2).is_some()) == (2, false));
        begin(0);
        let (outcome, words) = go();
        assert_eq!(outcome, Outcome::Refused(Failure::Unexpected));
        assert!(words.contains("expected :value >= 0") && words.contains("-1"), "{words}");
        assert!((stock(), found(&target, 2).is_some()) == (0, false));
        // A conflict ends the operation, and the next try is another transaction.
        begin(5);
        fail(&target, "find", 1, rawdoc! { "errorCode": 112, "errorLabels": ["TransientTransactionError"] });
        assert_eq!(go().0, Outcome::Refused(Failure::Conflict));
        assert_eq!(go().0, Outcome::Done);
        assert!((stock(), found(&target, 2).is_some()) == (4, true));
        // A commit whose answer is lost is sent again, and done once.
        begin(5);
        fail(&target, "commitTransaction", 1, rawdoc! { "closeConnectionAfter": true });
        assert_eq!(go().0, Outcome::Done);
        assert!((stock(), found(&target, 2).is_some()) == (4, true));
        // A connection that is lost before the commit has done nothing.
        begin(5);
        fail(&target, "insert", 1, rawdoc! { "closeConnectionAfter": true });
        assert_eq!(go().0, Outcome::Refused(Failure::Unavailable));
        assert!((stock(), found(&target, 2).is_some()) == (5, false));
        assert_eq!(go().0, Outcome::Done);
    }
}

#[test]
fn a_command_whose_answer_is_lost_is_done_once_or_nobody_knows() {
    let set = three(Bugs::default());
    let target = connect(&set.url(), Durability::Configured).unwrap();
    let add = |more: &str| {
        let text = format!(
            "{{\"update\": \"t\", \"updates\": [{{\"q\": {{\"_id\": 1}}, \"u\": {{\"$inc\": {{\"n\": 1}}}}{more}}}]}};"
        );
        dataset(&text)
    };
    let n = || found(&target, 1).unwrap().get_i32("n").unwrap();
    for execute in WAYS {
        put(&target, rawdoc! { "_id": 1, "n": 0 });
        let (one, many) = (add(""), add(", \"multi\": true"));
        let mut session = target.open(&one).unwrap();
        fail(&target, "update", 1, rawdoc! { "closeConnectionAfter": true });
        assert_eq!((execute(session.as_mut(), &RUN), n()), (Outcome::Done, 1), "the server knows it again");
        let mut session = target.open(&many).unwrap();
        fail(&target, "update", 1, rawdoc! { "closeConnectionAfter": true });
        let outcome = execute(session.as_mut(), &RUN);
        assert_eq!((outcome, n()), (Outcome::Unknown(Failure::Unavailable), 2));
        assert_eq!(session.timed()[0].outcome, outcome);
    }
}

#[test]
fn all_batches_of_a_command_are_its_rows() {
    let set = single();
    let target = connect(&set.url(), Durability::Configured).unwrap();
    let five = [1, 2, 3, 4, 5].map(|id| rawdoc! { "_id": id });
    five.into_iter().for_each(|document| put(&target, document));
    let text = "-- expect: 5 rows\n{\"find\": \"t\", \"filter\": {}, \"batchSize\": 2};\n{\"find\": \"t\", \"limit\": 3};";
    for execute in WAYS {
        let dataset = dataset(text);
        let mut session = target.open(&dataset).unwrap();
        assert_eq!(execute(session.as_mut(), &RUN), Outcome::Done, "{:?}", session.complaint());
        assert_eq!(session.timed().iter().map(|one| one.rows).collect::<Vec<_>>(), [5, 3]);
    }
}

#[test]
fn what_cannot_be_sent_is_said() {
    let set = single();
    let target = connect(&set.url(), Durability::Configured).unwrap();
    let alone = dataset("begin; {\"find\": \"t\"}; commit;");
    let error = target.open(&alone).err().expect("a server without transactions").to_string();
    assert!(error.starts_with("opening a session for scripts with transactions: "), "{error}");
    for (text, words) in [
        ("{\"find\": \"t\", \"filter\": {\"_id\": :none}};", "undefined variable \"none\""),
        ("{\"find\": \"t\"};\ncommit;", "no transaction is open"),
        ("{\"find\": \"t\"} \\gset", "expected one row, got 0"),
        ("{\"nonsense\": 1};", "no such command: 'nonsense'"),
        (
            "{\"find\": \"t\"};\n\\startpipeline\n{\"find\": \"t\"};\n\\endpipeline\n",
            "this server has no pipelines",
        ),
    ] {
        let dataset = dataset(text);
        let mut session = target.open(&dataset).unwrap();
        let outcome = session.execute(&RUN);
        assert!(
            matches!(outcome, Outcome::Refused(Failure::Other | Failure::Unsupported)),
            "{text}: {outcome:?}"
        );
        let said = session.complaint().expect("words").words.clone();
        assert!(said.contains(words), "{text}: {said}");
    }
}

/// A server that closes a connection while the script pauses wakes nobody: the pause is one turn, and the
/// next command finds another connection.
#[test]
fn a_connection_that_is_closed_during_a_pause_wakes_nobody() {
    use rustix::event::{PollFd, PollFlags, poll};
    let set = single();
    let target = connect(&set.url(), Durability::Configured).unwrap();
    let dataset = dataset("{\"find\": \"t\"};\n\\sleep 400 ms\n{\"find\": \"t\"};");
    let mut session = target.open(&dataset).unwrap();
    let wire = session.wire().expect("it has a wire");
    let mut turns = 0;
    let mut progress = wire.begin(&RUN);
    let outcome = loop {
        if let Progress::Finished(outcome) = progress {
            break outcome;
        }
        let descriptor = wire.descriptor().expect("it has one for its whole life");
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)).unwrap() == 0 {
            // Nothing to do for a while: the script pauses.
            set.close(0);
            continue;
        }
        turns += 1;
        progress = wire.advance();
    };
    assert_eq!(outcome, Outcome::Done, "{:?}", session.complaint());
    assert_eq!(session.timed().len(), 2);
    assert!(turns < 30, "{turns} turns for two answers, two connections and a pause");
}
