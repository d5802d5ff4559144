//! From statements as servers keep them to a plan that this program reads.

use super::column::tests::column;
use super::*;
use crate::experiment::Experiment;
use crate::workload::Random;
use crate::workload::script::{Quoting, Run, Step};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const INTEGER: ColumnKind = ColumnKind::Integer(i32::MAX as i64);

fn roles(text: &str, dialect: Dialect) -> Vec<String> {
    let statement = Statement::read(text, dialect).unwrap_or_else(|| panic!("{text}"));
    let of = |name: &statement::ColumnName| match statement.table_of(name) {
        Some(table) => format!("{}.{}", table.name, name.column),
        None => name.column.clone(),
    };
    let role = |place: &Placeholder| match &place.role {
        Role::Equal(name) => format!("{}{}", of(name), if place.many { " in" } else { " =" }),
        Role::Low(name) => format!("{} >", of(name)),
        Role::High(name) => format!("{} <", of(name)),
        Role::Set(name) => format!("{} :=", of(name)),
        Role::Inserted(number) => format!("into {number}"),
        Role::Unknown(words) => format!("? {words}"),
        other => format!("{other:?}"),
    };
    statement.placeholders.iter().map(role).collect()
}

#[test]
fn what_a_value_is_for_is_seen_in_the_words_around_it() {
    for (text, wanted) in [
        ("SELECT c FROM t WHERE id=$1", &["t.id ="][..]),
        ("SELECT c FROM s.t AS x, u WHERE x.id = $1 AND $2 < u.k", &["t.id =", "u.k >"]),
        ("SELECT c FROM t WHERE id BETWEEN $1 AND $2 ORDER BY 1 LIMIT $3", &["t.id >", "t.id <", "Limit"]),
        ("select \"C\" from t where a in ($1, $2, -$3) and b >= $4", &["t.a =", "t.a =", "t.a =", "t.b >"]),
        ("UPDATE t SET k=k+$1 WHERE id=$2", &["Added", "t.id ="]),
        ("UPDATE t SET c = $1, d = $2 WHERE id = $3", &["t.c :=", "t.d :=", "t.id ="]),
        (
            "INSERT INTO t (id, k, c) VALUES ($1, $2, lower($3)), ($4, $5::int, $6)",
            &["into 0", "into 1", "? , lower (", "into 0", "into 1", "into 2"],
        ),
        (
            "INSERT INTO t (id, k) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET k = $3",
            &["into 0", "into 1", "t.k :="],
        ),
        (
            "SELECT date_trunc($1, d) FROM t WHERE d > now() - interval $2",
            &["? select date_trunc (", "? ) - interval"],
        ),
        ("SELECT c FROM t FETCH FIRST $1 ROWS ONLY", &["Limit"]),
        ("SELECT c FROM t LIMIT 5 OFFSET $1", &["Limit", "Offset"]),
        ("SELECT c FROM t WHERE k = ANY ($1)", &["? = any ("]),
        (
            "SELECT c::varchar(10), extract(epoch FROM d) FROM a JOIN b ON a.x = b.x WHERE b.y <= $1",
            &["b.y <"],
        ),
    ] {
        assert_eq!(roles(text, Dialect::Postgres), wanted, "{text}");
    }
    for (text, wanted) in [
        ("SELECT `c` FROM `t` WHERE `id` IN (...) LIMIT ?, ?", &["t.id in", "Offset", "Limit"][..]),
        ("INSERT INTO `t` ( `id` , `k` ) VALUES (...) /* , ... */", &["into 0"]),
        ("UPDATE `t` SET `k` = `k` + ? WHERE `t` . `id` = ?", &["Added", "t.id ="]),
    ] {
        assert_eq!(roles(text, Dialect::Mysql), wanted, "{text}");
    }
}

#[test]
fn what_changes_data_is_known_by_its_words() {
    let verb = |text: &str| Statement::read(text, Dialect::Postgres).map(|statement| statement.verb);
    for text in [
        "insert into t values ($1)",
        "with x as (delete from t returning id) select * from x",
        "select * from t for update",
        "SELECT * FROM t WHERE id = $1 FOR NO KEY UPDATE",
        "select * into u from t",
        "MERGE INTO t USING u ON true WHEN MATCHED THEN DO NOTHING",
        "/* select */ UPDATE t SET a = $1",
    ] {
        assert_eq!(verb(text), Some(Verb::Change), "{text}");
    }
    assert_eq!(verb("select a.updated_at from t a"), Some(Verb::Read));
    assert_eq!(verb("start transaction isolation level serializable"), Some(Verb::Begin));
    assert_eq!(verb("END"), Some(Verb::Commit));
    assert_eq!(verb("rollback to savepoint a"), Some(Verb::Utility("ROLLBACK".into())));
    assert_eq!(verb("COPY t FROM stdin"), Some(Verb::Utility("COPY".into())));
    for cut in ["SELECT a, b, ...", "select 'abc", "", ";", "select 1; select 2"] {
        assert_eq!(verb(cut), None, "{cut}");
    }
}

#[test]
fn one_shape_for_statements_that_do_the_same() {
    let shape = |text: &str| Statement::read(text, Dialect::Postgres).unwrap().shape;
    let drawn = "UPDATE t SET c=left(repeat(md5($1::text), 4), 119) WHERE id=$2;";
    assert_eq!(shape(drawn), shape("update t set c = $1 where id = 7 -- the seventh"));
    assert_eq!(shape("SELECT a FROM t WHERE b IN ($1,$2)"), shape("select a from t where b in ($1)"));
    assert_ne!(shape("select a from t"), shape("select b from t"));
}

fn statement(text: &str, calls: u64, rows: u64, inside: Option<f64>) -> SeenStatement {
    SeenStatement {
        text: text.into(),
        is_cut_off: false,
        calls,
        rows,
        time_ms: calls as f64 * 0.1,
        pages: calls * 3,
        plans: None,
        samples_inside: if inside.is_some() { 50 } else { 0 },
        samples_outside: if inside.is_some() { 0 } else { 50 },
        after_begin_ms: inside.unwrap_or(0.0),
    }
}

/// As sysbench's oltp_read_write leaves it, with a statement that stands alone beside it.
fn seen() -> Seen {
    let table =
        |name: &str, kind| Column { is_indexed: true, span: Some(1e5), ..column("sbtest1", name, kind) };
    let columns = vec![
        Column { is_unique: true, ..table("id", INTEGER) },
        table("k", INTEGER),
        Column { width: 119.0, ..column("sbtest1", "c", ColumnKind::Text) },
        Column { width: 59.0, ..column("sbtest1", "pad", ColumnKind::Text) },
    ];
    let statements = vec![
        statement("BEGIN", 100, 0, None),
        statement("SELECT c FROM sbtest1 WHERE id=$1", 1000, 1000, Some(1.0)),
        statement("SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2", 100, 10_000, Some(2.0)),
        statement("SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2", 100, 100, Some(3.0)),
        statement("UPDATE sbtest1 SET k=k+$1 WHERE id=$2", 150, 150, Some(5.0)),
        statement("UPDATE sbtest1 SET c=$1 WHERE id=$2", 100, 100, Some(4.0)),
        // The insert was seen earlier, by few samples.
        statement("DELETE FROM sbtest1 WHERE id=$1", 100, 100, Some(7.1)),
        statement("INSERT INTO sbtest1 (id, k, c, pad) VALUES ($1, $2, $3, $4)", 100, 100, Some(7.0)),
        statement("COMMIT", 100, 0, None),
        statement("SELECT count(*) FROM sbtest1 WHERE k > $1", 40, 40, None),
        statement("SELECT c FROM sbtest1 WHERE c = $1", 10, 10, None),
        statement("SELECT c FROM sbtest1 WHERE c = 'left there' AND id = $1", 5, 5, None),
        statement("VACUUM sbtest1", 1, 0, None),
    ];
    let part = SeenPart {
        seconds: 10.0,
        statements: statements.iter().map(|statement| (statement.calls, statement.rows)).collect(),
        pages: 5000.0,
        page_reads: 100.0,
    };
    Seen {
        learned_format: FORMAT,
        system: "PostgreSQL 15.1".into(),
        dialect: Dialect::Postgres,
        address: "postgres://me@here/shop".into(),
        seconds: 10.0,
        statements,
        columns,
        parts: vec![part],
        transactions: None,
        sessions: SeenSessions { samples: 100, open_most: 6, busy_most: 4, busy_mean: 2.5 },
        data_bytes: 2e9,
        cache_bytes: 128e6,
        left: vec![SeenLeft { why: "statements of other users".into(), calls: 20 }],
        remarks: vec!["what nobody tells".into()],
    }
}

fn wishes(on_copy: bool) -> Wishes {
    Wishes { name: "shop".into(), keep_values: false, on_copy, most_scripts: 20 }
}

/// What a plan's scripts send when the keys lie from 1 to 100,000, over many operations: shapes with counts.
fn sent(plan: &str) -> (HashMap<String, u64>, u64) {
    let experiment = Experiment::parse(plan, "quick", &[]).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    let mut spec = experiment.sweeps[0].cells[0].spec.clone();
    spec.attach(&mut |path| panic!("{path}: a plan has all in it")).unwrap();
    let scripts = Arc::new(spec.scripts(3).unwrap());
    let mut ask = Run::new(scripts.clone(), 0);
    ask.begin(scripts.asked().unwrap(), 0);
    let Step::Send(command) = ask.step().unwrap() else { panic!() };
    for column in ["id", "k"] {
        ask.bring(command, &format!("sbtest1_{column}_least"), Some("1")).unwrap();
        ask.bring(command, &format!("sbtest1_{column}_most"), Some("100000")).unwrap();
    }
    while ask.step().unwrap() != Step::Over {}
    let mut run = Run::new(scripts.clone(), 1);
    let (mut counts, mut all) = (HashMap::new(), 0);
    for n in 0..4_000 {
        run.begin(scripts.chosen(n), n);
        loop {
            match run.step().unwrap_or_else(|abort| panic!("{}\n{plan}", abort.reason)) {
                Step::Send(command) => {
                    let mut text = Vec::new();
                    run.put_text(command, Quoting::Standard, &mut text);
                    let text = String::from_utf8(text).unwrap();
                    assert!(
                        !text.contains(':') || text.contains("::text"),
                        "a variable has no value: {text}"
                    );
                    let statement = Statement::read(&text, Dialect::Postgres).unwrap();
                    *counts.entry(statement.shape).or_insert(0) += 1;
                    all += 1;
                }
                Step::Over => break,
                step => panic!("{step:?}"),
            }
        }
    }
    (counts, all)
}

#[test]
fn the_plan_sends_the_statements_that_were_seen_in_their_shares() {
    let seen = seen();
    let learned = learn(&seen, &wishes(true)).unwrap();
    let (counts, all) = sent(&learned.plan);
    let kept: Vec<&SeenStatement> = seen
        .statements
        .iter()
        .filter(|s| !["c = ", "VACUUM"].iter().any(|word| s.text.contains(word)))
        .collect();
    let total: u64 = kept.iter().map(|statement| statement.calls).sum();
    for statement in kept {
        let shape = Statement::read(&statement.text, Dialect::Postgres).unwrap().shape;
        let share = counts.get(&shape).copied().unwrap_or(0) as f64 / all as f64;
        let wanted = statement.calls as f64 / total as f64;
        assert!(
            (share - wanted).abs() < 0.1 * wanted + 0.003,
            "{shape}: {share} and not {wanted}\n{}",
            learned.plan
        );
    }
    assert!((learned.covered - total as f64 / 1926.0).abs() < 1e-9, "{}", learned.covered);
    // A hundred rows of a dense table are a hundred numbers, also where only their sum comes.
    assert_eq!(learned.plan.matches(" + 99\n").count(), 2, "{}", learned.plan);
    assert!(
        learned.plan.contains("-- 1.50 in a transaction") && learned.plan.contains("<= 500\n"),
        "{}",
        learned.plan
    );
    // What was deleted is inserted again.
    let text = learned.plan.split("DELETE FROM sbtest1 WHERE id=").nth(1).unwrap();
    let deleted = text.split(';').next().unwrap();
    assert!(text.contains(&format!("VALUES ({deleted},")), "{}", learned.plan);
    let order = ["BEGIN;", "id=:id;", "BETWEEN", "SUM(", "SET c=", "k=k+1", "DELETE", "INSERT", "COMMIT;"];
    let places: Vec<usize> = order.iter().map(|word| learned.plan.find(word).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}\n{}", learned.plan);
}

#[test]
fn transactions_are_counted_where_begin_and_commit_are_not() {
    let mut seen = seen();
    // Prepared ones are counted once; those that ended are counted a little late.
    for statement in seen.statements.iter_mut().filter(|s| matches!(s.text.as_str(), "BEGIN" | "COMMIT")) {
        statement.calls = 3;
    }
    let alone: u64 =
        seen.statements.iter().filter(|s| s.samples_outside > 0 && s.calls > 3).map(|s| s.calls).sum();
    seen.transactions = Some(93 + alone);
    let learned = learn(&seen, &wishes(true)).unwrap();
    assert!(learned.plan.contains("# 100 transactions, with"), "{}", learned.plan);
    assert!(learned.plan.contains("-- 10.0 in a transaction"), "{}", learned.plan);
}

#[test]
fn no_value_and_nothing_that_changes_data_unless_it_is_wanted() {
    let mut seen = seen();
    seen.statements[1].text = "SELECT c FROM sbtest1 WHERE id=4711 /* of 'Ann' */".into();
    seen.columns[0].bounds = Some(("17".into(), "99017".into()));
    let reads = learn(&seen, &wishes(false)).unwrap();
    for word in ["UPDATE sb", "DELETE FROM", "INSERT INTO", "left there", "4711", "Ann", "99017"] {
        assert!(!reads.plan.contains(word), "{word}: {}", reads.plan);
    }
    assert!(reads.plan.contains("default_transaction_read_only = \"on\""));
    assert!(
        reads
            .left_out
            .iter()
            .any(|(why, share)| why.contains("(UPDATE); --on-copy") && (share - 250.0 / 1926.0).abs() < 1e-9)
    );
    for (words, share) in [
        ("values of c that are there cannot be drawn", 10.0),
        ("VACUUM", 1.0),
        ("statements of other users", 20.0),
    ] {
        let found = reads.left_out.iter().find(|(why, _)| why.contains(words));
        assert!(
            found.is_some_and(|(_, of)| (of - share / 1926.0).abs() < 1e-9),
            "{words}: {:?}",
            reads.left_out
        );
        assert!(reads.plan.contains(words), "{words}: {}", reads.plan);
    }
    let all: f64 = reads.left_out.iter().map(|(_, share)| share).sum();
    assert!((all + reads.covered - 1.0).abs() < 1e-9, "{all} and {}", reads.covered);
    sent(&reads.plan);
    let kept = learn(&seen, &Wishes { keep_values: true, ..wishes(false) }).unwrap();
    assert!(kept.plan.contains("sbtest1_id_most = \"99017\""), "{}", kept.plan);
}

#[test]
fn nothing_seen_is_said_and_guesses_are_too() {
    let mut none = seen();
    none.statements.iter_mut().for_each(|statement| statement.calls = 0);
    none.left.clear();
    assert!(learn(&none, &wishes(true)).unwrap_err().contains("no statement was seen in 10.0 s"));
    let mut only = seen();
    only.statements.retain(|statement| statement.text.starts_with("UPDATE"));
    let error = learn(&only, &wishes(false)).unwrap_err();
    assert!(error.starts_with("nothing is left for a plan: ") && error.contains("--on-copy"), "{error}");
    let mut guessed = seen();
    guessed.statements.iter_mut().for_each(|statement| statement.samples_inside = 0);
    guessed.statements.iter_mut().for_each(|statement| statement.samples_outside = 0);
    let learned = learn(&guessed, &wishes(true)).unwrap();
    assert!(learned.assumed.iter().any(|line| line.contains("too few samples")), "{:?}", learned.assumed);
    // One and a half times a transaction is no sign of belonging to it.
    assert!(learned.plan.contains("name = \"update-sbtest1-by-id\"\nweight = 150"), "{}", learned.plan);
}

#[test]
fn what_is_watched_adds_up_and_forgets_itself() {
    let count = |calls, rows| Count { calls, rows, time_ms: calls as f64, pages: calls, plans: None };
    let counters = |a: u64, b: u64, own: u64| Counters {
        statements: [("1", count(a, 2 * a)), ("2", count(b, 0)), ("3", count(own, own))]
            .map(|(key, count)| (key.to_string(), count))
            .into(),
        pages: a as f64,
        page_reads: 0.25 * a as f64,
        transactions: Some(3 * a + own),
        ..Counters::default()
    };
    let mut watching = Watching::begin(counters(100, 10, 7));
    let look = |inside| Look {
        statement: Some("1".into()),
        is_busy: true,
        is_inside: Some(inside),
        after_begin_ms: 4.0,
    };
    watching.look(&[look(true), look(false)]);
    watching.look(&[look(true)]);
    watching.part(1.0, counters(150, 10, 9));
    // The counters were set back.
    watching.part(1.0, counters(30, 2, 10));
    let texts =
        [("1", Some("SELECT a FROM t WHERE b = $1")), ("2", None), ("3", Some("SELECT 1 AS tipover_learn"))];
    let texts = texts.map(|(key, text)| (key.to_string(), text.map(String::from))).into();
    let about = About {
        system: "s".into(),
        dialect: Dialect::Postgres,
        data_bytes: 0.0,
        cache_bytes: 0.0,
        remarks: vec![],
    };
    let seen = watching.seen(about, "postgres://x/y", &texts, vec![]);
    assert!(seen.remarks.iter().any(|remark| remark.contains("set back")), "{:?}", seen.remarks);
    assert_eq!(seen.parts.iter().map(|part| part.pages).collect::<Vec<_>>(), [50.0, 0.0]);
    let first = seen.statements.iter().position(|statement| !statement.is_cut_off).unwrap();
    let [before, after] = [0, 1].map(|part| seen.parts[part].statements[first]);
    assert_eq!((before, after), ((50, 100), (30, 60)));
    assert_eq!((seen.statements[first].samples_inside, seen.statements[first].after_begin_ms), (2, 4.0));
    assert_eq!((seen.sessions.open_most, seen.sessions.busy_mean), (2, 1.5));
    assert_eq!((seen.hit_ratio(), seen.transactions), (Some(0.75), Some(0)));
    let text = serde_json::to_string(&seen).unwrap();
    assert_eq!(Seen::parse(&text), Ok(seen));
    assert!(Seen::parse("{\"learned_format\": 1}").unwrap_err().starts_with("damaged"));
}

/// Pieces of statements, in any order.
const PIECES: [&str; 24] = [
    "SELECT",
    "c",
    "FROM",
    "t",
    "WHERE",
    "id",
    "=",
    "$1",
    "BETWEEN",
    "AND",
    "IN",
    "(",
    ")",
    ",",
    "LIMIT",
    "UPDATE",
    "SET",
    "INSERT INTO",
    "VALUES",
    "'x'",
    "::int",
    "-",
    ".",
    "...",
];

proptest! {
    #[test]
    fn no_statement_is_too_strange(seed in 0u64..1 << 60, length in 1usize..40) {
        let mut random = Random::new(seed, 0);
        let text: Vec<&str> = (0..length).map(|_| PIECES[random.below(24) as usize]).collect();
        for dialect in [Dialect::Postgres, Dialect::Mysql] {
            let mut seen = seen();
            seen.dialect = dialect;
            seen.statements.push(statement(&text.join(" "), 5, 5, None));
            seen.parts[0].statements.push((5, 5));
            if let Ok(learned) = learn(&seen, &wishes(true)) {
                let experiment = Experiment::parse(&learned.plan, "quick", &[]);
                prop_assert!(experiment.is_ok(), "{:?}\n{}", experiment.err(), learned.plan);
                let mut spec = experiment.unwrap().sweeps[0].cells[0].spec.clone();
                let attached = spec.attach(&mut |path| Err(path.into()));
                prop_assert!(attached.is_ok(), "{:?}\n{}", attached.err(), learned.plan);
            }
        }
    }
}
