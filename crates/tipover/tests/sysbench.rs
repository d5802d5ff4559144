//! sysbench's OLTP workloads as scripts of plans, beside the sysbench that is installed: the same tables, the
//! same statements in the same shares, and either program runs on what the other has loaded.

mod program;

use program::results::kept;
use program::{Place, skipped};
use std::collections::BTreeMap;
use std::process::Command;
use tipover_lab::recipe::{Mariadb, Postgres, Server, ServerOptions};

const TABLES: usize = 2;
const ROWS: u64 = 3_000;
/// Runs of each workload of sysbench's.
const EVENTS: u64 = 60;
const WORKLOADS: [&str; 8] = [
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_point_select",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_insert",
    "oltp_delete",
];

/// A kind of server.
struct Kind {
    /// As plans call it.
    target: &'static str,
    /// As sysbench calls it.
    driver: &'static str,
    /// What tells how the tables are made, besides rows.
    schema: fn(&Server) -> String,
}

const HEAD: &str = "title = \"T\"\nquestion = \"q\"\nwhy = \"w\"\nhow_to_read = \"h\"\nrepeats = 1\n\
    [[sweep]]\nname = \"s\"\nquestion = \"q\"\naxis = []\n[scale.tiny]\n\
    [trial]\nwarm_up_least = \"100 ms\"\nmeasure_least = \"1500 ms\"\nmeasure_operations = 2000\n\
    measure_most = \"20 s\"\n[load]\nsessions = 1\nretries = 100\n";

fn sysbench(kind: &Kind, server: &Server, workload: &str, verb: &str) {
    let driver = kind.driver;
    let option = |name: &str, value: &dyn std::fmt::Display| format!("--{driver}-{name}={value}");
    let mut command = Command::new("sysbench");
    command.arg(workload).arg(format!("--db-driver={driver}"));
    command.args([format!("--tables={TABLES}"), format!("--table-size={ROWS}"), "--time=0".into()]);
    command.arg(format!("--events={EVENTS}"));
    command.arg(option("host", &server.address().ip())).arg(option("port", &server.address().port()));
    command.arg(option("user", &"tipover")).arg(option("password", &server.password()));
    command.arg(option("db", &"tipover")).arg(verb);
    let ended = command.output().expect("sysbench starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "sysbench {workload} {verb}: {said}");
    assert!(
        verb != "run" || said.contains(&format!("total number of events:              {EVENTS}")),
        "{said}"
    );
}

/// Runs these workloads, all with the same weight; what the record says.
fn ours(kind: &Kind, server: &Server, protocol: &str, workloads: &[&str]) -> String {
    let place = Place::new();
    let names: Vec<String> = workloads.iter().map(|name| format!("{:?}", name.replace('_', "-"))).collect();
    let plan = format!(
        "name = \"oltp\"\n{HEAD}[target]\nkind = \"{}\"\naddress = \"{}\"\n[workload]\nkind = \"scripts\"\n\
         [workload.scripts]\nrun = [{}]\nprotocol = \"{protocol}\"\n\
         sysbench = {{ tables = {TABLES}, table_size = {ROWS} }}\n",
        kind.target,
        server.url(),
        names.join(", ")
    );
    place.write("oltp.toml", &plan);
    let ended = place.run(&["run", "oltp.toml", "--scale", "tiny"]).with_code(&[0, 1]);
    let trial = kept(&place, "oltp").pop().unwrap_or_else(|| panic!("{}{}", ended.stdout, ended.stderr));
    let measured = trial.record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", trial.record.verdict));
    let books = measured.books().expect("books");
    assert_eq!(books.failures().len(), 0, "{:?} {}", books.failures(), ended.stderr);
    let done: Vec<u64> = books.operations().map(|(_, book)| book.done()).collect();
    assert!(done.len() == workloads.len() && done.iter().all(|count| *count > 10), "each was run: {done:?}");
    std::fs::read_to_string(trial.folder.join("record.json")).expect("it was just read")
}

/// Counts of rows, and what the texts and numbers in them look like.
fn rows(server: &Server, number: usize) -> Vec<u64> {
    let digits = |column: &str, groups: usize| {
        let group = "[0-9]".repeat(11);
        let pattern = vec![group; groups].join("-");
        // PostgreSQL writes it as a function since version 15, MariaDB as an operator.
        match server.version().contains("PostgreSQL") {
            true => format!("sum(case when {column} ~ '^{pattern} *$' then 1 else 0 end)"),
            false => format!("sum({column} REGEXP '^{pattern} *$')"),
        }
    };
    let text = format!(
        "select count(*), min(id), max(id), {}, {}, min(k), max(k), \
         sum(case when k between {} and {} then 1 else 0 end) from sbtest{number}",
        digits("c", 10),
        digits("pad", 5),
        ROWS / 2 - ROWS / 200,
        ROWS / 2 + ROWS / 200 + 2,
    );
    let answer = server.query(&text).expect("the tables are there");
    let numbers = answer.split(['|', '\t', '\n']).filter_map(|word| word.trim().parse().ok());
    numbers.collect()
}

#[track_caller]
fn assert_same_rows(ours: &[u64], theirs: &[u64]) {
    // Rows, keys and texts are the same exactly; k is drawn, three quarters of it from a hundredth.
    assert_eq!(ours[..5], theirs[..5]);
    assert_eq!(ours[..5], [ROWS, 1, ROWS, ROWS, ROWS]);
    for rows in [ours, theirs] {
        let middle = rows[7] as f64 / ROWS as f64;
        assert!((0.72..0.80).contains(&middle) && rows[5] >= 1 && rows[6] <= ROWS, "{ours:?} {theirs:?}");
    }
}

/// How often each statement was executed, with `?` for what changes in it.
type Counts = BTreeMap<String, u64>;

/// The server's log of statements since it was cut last, and the keys that were asked for.
struct Log {
    path: std::path::PathBuf,
    at: usize,
}

impl Log {
    fn of(path: std::path::PathBuf) -> Log {
        Log { path, at: 0 }
    }

    fn cut(&mut self) -> (Counts, Vec<u64>) {
        let bytes = std::fs::read(&self.path).expect("the server writes a log");
        let text = String::from_utf8_lossy(&bytes[self.at..]).into_owned();
        self.at = bytes.len();
        let (mut counts, mut keys) = (Counts::new(), Vec::new());
        for line in text.lines() {
            // MariaDB tells values in the statement, PostgreSQL in the line behind it.
            let statement =
                ["Execute\t", "Query\t", "statement: "].iter().find_map(|mark| line.split_once(mark));
            let executed = line.split_once("execute ").and_then(|(_, rest)| rest.split_once(": "));
            let detail = line.split_once("arameters: $1 = '").map(|(_, rest)| rest);
            if let Some((value, _)) = detail.and_then(|rest| rest.split_once('\''))
                && let Ok(key) = value.parse()
            {
                keys.push(key);
            }
            let Some((_, statement)) = statement.or(executed) else { continue };
            let is_theirs = statement.contains("sbtest")
                || ["BEGIN", "COMMIT"].contains(&statement.trim().trim_end_matches(';'));
            let is_work = ["max(id)", "ANALYZE", "ANY_VALUE", "CREATE", "setval", "EXPORT"];
            if !is_theirs || is_work.iter().any(|word| statement.contains(word)) {
                continue;
            }
            let normal = normalised(statement);
            if normal.starts_with("SELECT c FROM sbtest? WHERE id=?")
                && let Some((_, key)) = statement.rsplit_once('=')
                && let Ok(key) = key.trim().parse()
            {
                keys.push(key);
            }
            *counts.entry(normal).or_default() += 1;
        }
        (counts, keys)
    }
}

/// With one `?` for each number, text and parameter, and one blank for many; which of the tables it is does
/// not count either.
fn normalised(statement: &str) -> String {
    let mut out = String::new();
    let mut rest = statement.trim().trim_end_matches(';').chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' => {
                while rest.next().is_some_and(|c| c != '\'') {}
                out.push('?');
            }
            '$' | '?' | '0'..='9' | '-' => {
                while rest.next_if(|c| c.is_ascii_digit()).is_some() {}
                out.push('?');
            }
            ' ' if out.ends_with([' ', '(', ',']) => {}
            c => out.push(c),
        }
    }
    out
}

/// The share of `keys` in the middle hundredth, and their mean as a share of all rows.
fn spread(keys: &[u64]) -> (f64, f64) {
    let near = keys.iter().filter(|key| key.abs_diff(ROWS / 2) <= ROWS / 200 + 1).count();
    let sum: u64 = keys.iter().sum();
    let count = keys.len().max(1) as f64;
    (near as f64 / count, sum as f64 / count / ROWS as f64)
}

#[track_caller]
fn beside_sysbench(kind: &Kind, server: &Server, log: &mut Log, protocol: &str) {
    sysbench(kind, server, "oltp_read_write", "prepare");
    let (schema, their_rows) = ((kind.schema)(server), rows(server, 1));
    log.cut();
    for workload in WORKLOADS {
        sysbench(kind, server, workload, "run");
    }
    let (theirs, their_keys) = log.cut();
    // On the tables that sysbench has made.
    let record = ours(kind, server, protocol, &WORKLOADS);
    assert!(record.contains("the tables were there"), "{record}");
    let (mine, keys) = log.cut();
    let words = |counts: &Counts| counts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(words(&mine), words(&theirs), "the same statements");
    let all = |counts: &Counts| counts.values().sum::<u64>() as f64;
    for (statement, count) in &theirs {
        let (theirs, mine) = (*count as f64 / all(&theirs), mine[statement] as f64 / all(&mine));
        // Theirs are exact; which of ours is run is drawn, each 250 times at least.
        assert!((mine / theirs - 1.0).abs() < 0.25, "{statement}: {mine} and {theirs}");
    }
    let (mine, theirs) = (spread(&keys), spread(&their_keys));
    assert!(keys.len() > 1000 && their_keys.len() > 500, "{} {}", keys.len(), their_keys.len());
    assert!((mine.0 - theirs.0).abs() < 0.05, "shares in the middle {mine:?} {theirs:?}");
    assert!((mine.1 - theirs.1).abs() < 0.02, "means {mine:?} {theirs:?}");
    // And the other way round.
    sysbench(kind, server, "oltp_read_write", "cleanup");
    let record = ours(kind, server, protocol, &["oltp_point_select"]);
    assert!(record.contains(&format!("so all {} were written", ROWS * TABLES as u64)), "{record}");
    assert_eq!((kind.schema)(server), schema);
    assert_same_rows(&rows(server, TABLES), &their_rows);
    for workload in WORKLOADS {
        sysbench(kind, server, workload, "run");
    }
}

fn is_installed() -> bool {
    Command::new("sysbench").arg("--version").output().is_ok()
}

#[test]
fn sysbenchs_workloads_are_its_own_on_postgres() {
    let found = match Postgres::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    if !is_installed() {
        return skipped("sysbench is not installed (apt-get install sysbench)");
    }
    let settings = [
        ("log_statement", "all"),
        ("logging_collector", "on"),
        ("log_filename", "statements.log"),
        ("log_line_prefix", ""),
    ];
    let settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let server = found.start(&ServerOptions { settings, ..ServerOptions::default() }).expect("it starts");
    let kind = Kind {
        target: "postgres",
        driver: "pgsql",
        schema: |server| {
            let columns = "select column_name, data_type, character_maximum_length, column_default, is_nullable \
                from information_schema.columns where table_name like 'sbtest%' order by table_name, ordinal_position";
            let indexes = "select indexdef from pg_indexes where tablename like 'sbtest%' order by indexname";
            [columns, indexes].map(|text| server.query(text).expect("a catalogue")).join("\n")
        },
    };
    let mut log = Log::of(server.data().join("log/statements.log"));
    beside_sysbench(&kind, &server, &mut log, "prepared");
}

#[test]
fn sysbenchs_workloads_are_its_own_on_mariadb() {
    let found = match Mariadb::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    if !is_installed() {
        return skipped("sysbench is not installed (apt-get install sysbench)");
    }
    let settings = [("general_log", "1"), ("general_log_file", "statements.log")];
    let settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let server = found.start(&ServerOptions { settings, ..ServerOptions::default() }).expect("it starts");
    let kind = Kind {
        target: "mysql",
        driver: "mysql",
        schema: |server| {
            let tables = (1..=TABLES).map(|number| {
                let made = server.query(&format!("show create table sbtest{number}")).expect("it is there");
                // Where numbering goes on is no part of how a table is made.
                made.split(' ')
                    .filter(|word| !word.starts_with("AUTO_INCREMENT="))
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            tables.collect()
        },
    };
    let mut log = Log::of(server.data().join("statements.log"));
    beside_sysbench(&kind, &server, &mut log, "prepared");
}
