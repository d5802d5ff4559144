//! What a load is learned from: statements as servers keep them, and their logs.

use crate::text;
use tipover_core::experiment::Experiment;
use tipover_core::learn::log::{LogKind, replay};
use tipover_core::learn::{
    Column, ColumnKind, Dialect, FORMAT, Seen, SeenPart, SeenSessions, SeenStatement, Wishes, learn, mix,
};
use tipover_core::workload::recorded::{Recorded, print};

/// A log of any kind: what is made of it is read back as the same.
pub fn log(bytes: &[u8]) {
    let _ = LogKind::of(bytes);
    use LogKind::{Mongodb, MysqlGeneral, MysqlSlow, PostgresCsv, PostgresJson};
    for kind in [PostgresCsv, PostgresJson, MysqlSlow, MysqlGeneral, Mongodb] {
        let log = kind.read(bytes);
        if let Ok(mix) = mix(&log, kind, true, 5) {
            assert!(mix.covered <= mix.operations && !mix.scripts.is_empty());
        }
        let Ok(replay) = replay(&log, kind, true, 3.0) else { continue };
        let recorded = recorded(&print(&replay.statements)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(recorded.sessions(), replay.sessions, "every session has sent something");
        for (number, statement) in (0..).zip(&replay.statements) {
            assert_eq!(recorded.statement(number), Some(statement));
        }
    }
    if let Some(text) = text(bytes) {
        let _ = recorded(text);
        let _ = Seen::parse(text);
    }
}

fn recorded(text: &str) -> Result<Recorded, String> {
    let mut recorded: Recorded = serde_json::from_str("\"x.record\"").expect("a path");
    recorded.read(text).map(|()| recorded)
}

/// A statement among others: the plan that is made of it is one.
pub fn statement(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let statement = |text: &str| SeenStatement {
        text: text.into(),
        is_cut_off: false,
        calls: 100,
        rows: 250,
        time_ms: 1.0,
        pages: 3,
        plans: None,
        samples_inside: 10 * (text.len() as u64 % 2),
        samples_outside: 10,
        after_begin_ms: 1.0,
    };
    let column = |name: &str, kind| Column {
        table: "t".into(),
        name: name.into(),
        kind,
        width: 20.0,
        is_unique: name == "id",
        is_indexed: true,
        distinct: 100.0,
        rows: 1e4,
        span: Some(2e4),
        quantiles: vec![0.0, 0.1, 0.9, 1.0],
        common: vec![0.5, 0.2, 0.1],
        bounds: Some(("1".into(), "20000".into())),
    };
    for (dialect, keep_values) in
        [(Dialect::Postgres, false), (Dialect::Mysql, false), (Dialect::Postgres, true)]
    {
        let statements = vec![statement("BEGIN"), statement(text), statement("COMMIT")];
        let part = SeenPart { seconds: 1.0, statements: vec![(100, 250); 3], pages: 1.0, page_reads: 0.0 };
        let seen = Seen {
            learned_format: FORMAT,
            system: "a server".into(),
            dialect,
            address: "postgres://me@here/shop".into(),
            seconds: 1.0,
            statements,
            columns: vec![
                column("id", ColumnKind::Integer(i64::MAX)),
                column("k", ColumnKind::Integer(i64::from(i32::MAX))),
                column("c", ColumnKind::Text),
                column("d", ColumnKind::Moment),
                column("n", ColumnKind::Number),
            ],
            parts: vec![part],
            transactions: Some(200),
            sessions: SeenSessions::default(),
            data_bytes: 1.0,
            cache_bytes: 1.0,
            left: vec![],
            remarks: vec![],
        };
        let wishes = Wishes { name: "x".into(), keep_values, on_copy: true, most_scripts: 5 };
        if let Ok(learned) = learn(&seen, &wishes) {
            let read = Experiment::parse(&learned.plan, "quick", &[]);
            let mut read = read.unwrap_or_else(|error| panic!("{error}\n{}", learned.plan));
            let spec = &mut read.sweeps[0].cells[0].spec;
            if let Err(error) = spec.attach(&mut |path| Err(path.into())) {
                panic!("{error}\n{}", learned.plan);
            }
        }
    }
}
