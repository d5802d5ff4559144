//! What every target promises, checked alike on all of them.

use std::collections::BTreeSet;
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::Target;
use tipover_core::workload::Dataset;

/// What a target under test can be held to.
pub struct Expect<'a> {
    /// Whether it can tell that a record does not exist.
    pub finds_missing_records: bool,
    /// The classes it executes; empty means all of them.
    pub kinds: &'a [OpKind],
}

const RECORDS: u64 = 600;

fn read(kinds: &[OpKind], record: u64) -> Op {
    if kinds == [OpKind::ReadAt] {
        Op::ReadAt { offset: record * 4096, length: 4096 }
    } else {
        Op::Read { record }
    }
}

/// Checks `target`, which must be empty.
pub fn check(target: &dyn Target, expect: &Expect<'_>) {
    let dataset = Dataset { fields: 1, field_length: 4096, ..Dataset::ycsb(RECORDS) };
    for kind in [OpKind::Read, OpKind::Insert, OpKind::ReadAt] {
        let expected = expect.kinds.is_empty() || expect.kinds.contains(&kind);
        assert_eq!(target.accepts(kind), expected, "{kind:?}");
    }

    // Ranges may be loaded from several threads at once.
    std::thread::scope(|scope| {
        for part in 0..3 {
            let dataset = &dataset;
            scope.spawn(move || {
                target.load(dataset, part * RECORDS / 3..(part + 1) * RECORDS / 3).unwrap();
            });
        }
    });
    target.settle().unwrap();
    assert!(target.facts().unwrap().contains_key("system"));

    // Every record is there, for every session, at the same time; opening and closing changes nothing.
    let before = target.sample().unwrap();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for first in 0..4u64 {
                let dataset = &dataset;
                scope.spawn(move || {
                    let mut session = target.open(dataset).unwrap();
                    for record in (first..RECORDS).step_by(4) {
                        assert_eq!(
                            session.execute(&read(expect.kinds, record)),
                            Outcome::Done,
                            "record {record}"
                        );
                    }
                });
            }
        });
    }
    if expect.finds_missing_records {
        let mut session = target.open(&dataset).unwrap();
        let missing = session.execute(&read(expect.kinds, RECORDS + 7));
        assert_eq!(missing, Outcome::Refused(Failure::NotFound));
        assert_eq!(
            session.execute(&read(expect.kinds, 0)),
            Outcome::Done,
            "a refusal leaves the session usable"
        );
    }

    // What it declares is what it samples, and counters do not run backwards.
    let after = target.sample().unwrap();
    let declared: BTreeSet<String> = target.metrics().into_iter().map(|m| m.name).collect();
    assert_eq!(declared, after.keys().cloned().collect());
    for metric in target.metrics() {
        if metric.kind == tipover_core::metric::Kind::Counter {
            assert!(after[&metric.name] >= before[&metric.name], "{} ran backwards", metric.name);
        }
    }
}
