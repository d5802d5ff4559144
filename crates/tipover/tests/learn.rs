//! A load that sysbench sends is learned; the plan is carried out; and what the server then sees is the same
//! load: the same statements in the same shares, with the same rows. Ratios only, never times.

mod program;

use program::results::kept;
use program::{Place, Running, skipped};
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tipover_core::learn::log::LogKind;
use tipover_core::learn::{Dialect, Seen, SeenStatement, Statement, Verb};
use tipover_core::op::OpKind;
use tipover_lab::recipe::{Mariadb, Postgres, Server, ServerOptions};

/// sysbench's OLTP load on a server; ends when dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sysbench(server: &Server, driver: &str) -> Command {
    let mut command = Command::new("sysbench");
    let port = server.address().port();
    command.args(["oltp_read_write", &format!("--db-driver={driver}"), "--tables=1", "--table-size=20000"]);
    // What statistics count on MariaDB are texts: statements that a client has prepared are not among them.
    command.args(["--rand-type=uniform", "--threads=3"]);
    command.arg(format!("--{driver}-host=127.0.0.1")).arg(format!("--{driver}-port={port}"));
    command.arg(format!("--{driver}-user=tipover")).arg(format!("--{driver}-db=tipover"));
    command.arg(format!("--{driver}-password={}", server.password()));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn prepare(server: &Server, driver: &str) -> bool {
    match sysbench(server, driver).arg("prepare").status() {
        Ok(status) => {
            assert!(status.success(), "sysbench prepares its table");
            true
        }
        Err(_) => {
            skipped("sysbench is not installed");
            false
        }
    }
}

fn load(server: &Server, driver: &str, more: &[&str]) -> Load {
    let mut command = sysbench(server, driver);
    command.args(["--time=600", "--report-interval=0"]).args(more).arg("run");
    Load(command.spawn().expect("it has prepared the table"))
}

/// Share of all calls and rows of a call, by the shape of the statement.
fn mix(seen: &Seen) -> Vec<(String, f64, f64)> {
    let all: u64 = seen.statements.iter().map(|statement| statement.calls).sum();
    let of = |statement: &SeenStatement| {
        let read = Statement::read(&statement.text, seen.dialect)?;
        let share = statement.calls as f64 / all as f64;
        // PostgreSQL counts BEGIN and COMMIT that were prepared only once.
        let is_load = share > 0.01 && !read.tables.is_empty();
        is_load.then(|| (read.shape, share, statement.rows as f64 / statement.calls as f64))
    };
    let mut mix: Vec<_> = seen.statements.iter().filter_map(of).collect();
    mix.sort_by(|a, b| a.0.cmp(&b.0));
    mix
}

fn seen(json: &str) -> Seen {
    Seen::parse(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Watches while the plan is carried out: parts of more than a second, because PostgreSQL counts pages once a
/// second.
fn learn_while_it_runs(place: &Place, url: &str, running: &mut Running<'_>) -> String {
    running.until("the load of the plan", |_| {
        // The first trial has warmed up when its sessions have been at it for a while.
        let ended = place.run(&["--json", "learn", url, "--watch", "1 s", "--on-copy"]);
        let busy = ended.code == Some(0) && seen(&ended.stdout).sessions.busy_mean > 0.3;
        busy.then_some(())
    });
    place.run(&["--json", "learn", url, "--watch", "12 s", "--on-copy"]).with_code(&[0]).stdout
}

#[track_caller]
fn near(what: &str, one: f64, other: f64) {
    let ratio = (one / other).max(other / one);
    assert!(one == other || ratio <= 1.05, "{what}: {one} and {other}");
}

/// The original's load and that of the plan made from it.
#[track_caller]
fn learned_twice(place: &Place, server: &Server, driver: &str, more: &[&str]) -> (Seen, Seen) {
    let url = server.url();
    let load = load(server, driver, more);
    std::thread::sleep(Duration::from_secs(1));
    let refused = place.run(&["learn", &url, "--watch", "3 s", "-o", "reads.toml"]).with_code(&[0]);
    assert!(
        refused.stderr.contains("changes data (UPDATE); --on-copy if the target is a copy"),
        "{}",
        refused.stderr
    );
    let reads = std::fs::read_to_string(place.here().join("reads.toml")).expect("a plan");
    assert!(!reads.contains("UPDATE sbtest1") && reads.contains("read_only"), "{reads}");
    let first = ["--json", "learn", &url, "--watch", "12 s", "--on-copy", "-o", "copy.toml"];
    let original = place.run(&first).with_code(&[0]).stdout;
    drop(load);
    place.write("original.json", &original);
    let plan = std::fs::read_to_string(place.here().join("copy.toml")).expect("a plan");
    assert!(!plan.contains(server.password()), "{plan}");
    let set = ["--set", "trial.measure_least=25 s", "--set", "trial.measure_most=40 s"];
    let all = [&["run", "copy.toml", "--scale", "tiny", "--target", &url][..], &set].concat();
    let began = Instant::now();
    let mut running = place.start(&all);
    let copy = learn_while_it_runs(place, &url, &mut running);
    place.write("copy.json", &copy);
    let ended = running.wait().with_code(&[0, 1]);
    assert!(!ended.stderr.contains("was not answered"), "{}", ended.stderr);
    eprintln!("the plan took {:?}:\n{plan}", began.elapsed());
    (seen(&original), seen(&copy))
}

#[test]
fn what_is_learned_from_a_postgres_is_the_same_load() {
    let found = match Postgres::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let place = Place::new();
    let bare = found.start(&ServerOptions::default()).expect("a throw-away server starts");
    let refused = place.run(&["learn", &bare.url(), "--watch", "1 s"]).with_code(&[1]).stderr;
    assert!(
        refused.contains("set shared_preload_libraries = 'pg_stat_statements' in postgresql.conf"),
        "{refused}"
    );
    assert!(refused.contains("CREATE EXTENSION pg_stat_statements"), "{refused}");
    drop(bare);
    let settings = vec![("shared_preload_libraries".into(), "pg_stat_statements".into())];
    let server = match found.start(&ServerOptions { settings, ..Default::default() }) {
        Ok(server) => server,
        // Whatever else keeps it from starting is a failure.
        Err(error) if error.to_string().contains(r#"could not access file "pg_stat_statements""#) => {
            return skipped("a PostgreSQL without its contrib modules");
        }
        Err(error) => panic!("{error}"),
    };
    server.query("CREATE EXTENSION pg_stat_statements").expect("its library is there");
    if !prepare(&server, "pgsql") {
        return;
    }
    server.query("VACUUM ANALYZE").expect("statistics");
    let (original, copy) = learned_twice(&place, &server, "pgsql", &[]);
    let (a, b) = (mix(&original), mix(&copy));
    // A point select, four ranges, two updates, a delete, an insert.
    assert_eq!(a.len(), 9, "{a:?}");
    for (shape, share, rows) in &a {
        let other = b.iter().find(|(other, ..)| other == shape);
        let (_, other_share, other_rows) = other.unwrap_or_else(|| panic!("{shape} is not in {b:?}"));
        near(&format!("share of {shape}"), *share, *other_share);
        near(&format!("rows of {shape}"), *rows, *other_rows);
    }
    near("hit ratio", original.hit_ratio().expect("pages"), copy.hit_ratio().expect("pages"));
    // Nine kinds of statements, eighteen in a transaction: a statement alone would be one each.
    for seen in [&original, &copy] {
        let calls: u64 = seen.statements.iter().map(|statement| statement.calls).sum();
        let each = calls as f64 / seen.transactions.expect("PostgreSQL counts them") as f64;
        assert!((14.0..26.0).contains(&each), "{each} statements in a transaction");
    }
    let compared = ["compare", "original.json", "copy.json", "--least", "5 %"];
    let said = place.run(&compared).with_code(&[0]).stdout;
    assert!(said.contains("No difference in"), "{said}");
    // The culprit: one update of the mix, called twice as often.
    let mut culprit = copy.clone();
    let is_update = |statement: &SeenStatement| statement.text.starts_with("UPDATE");
    let wrong = culprit.statements.iter().position(is_update).expect("the mix has updates");
    culprit.statements[wrong].calls *= 2;
    for part in &mut culprit.parts {
        part.statements[wrong].0 *= 2;
    }
    place.write("culprit.json", &serde_json::to_string(&culprit).expect("it is JSON"));
    let compared = ["compare", "original.json", "culprit.json", "--least", "5 %"];
    let said = place.run(&compared).with_code(&[1]).stdout;
    assert!(!said.contains("No difference in") && said.contains("▶ update"), "{said}");
    // No range of keys stands in the plan, unless it may.
    let plan = std::fs::read_to_string(place.here().join("copy.toml")).expect("a plan");
    assert!(plan.contains("min(id)") && !plan.contains("20000"), "{plan}");
}

#[test]
fn what_is_learned_from_a_mariadb_is_the_same_mix() {
    let found = match Mariadb::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let place = Place::new();
    let bare = found.start(&ServerOptions::default()).expect("a throw-away server starts");
    let refused = place.run(&["learn", &bare.url(), "--watch", "1 s"]).with_code(&[1]).stderr;
    assert!(refused.contains("performance_schema = ON"), "{refused}");
    drop(bare);
    let settings = vec![("performance_schema".into(), "ON".into())];
    let server = found.start(&ServerOptions { settings, ..Default::default() }).expect("it starts");
    if !prepare(&server, "mysql") {
        return;
    }
    let (original, copy) = learned_twice(&place, &server, "mysql", &["--db-ps-mode=disable"]);
    let (a, b) = (mix(&original), mix(&copy));
    assert_eq!(a.len(), 9, "{a:?}");
    for (shape, share, _) in &a {
        let other = b.iter().find(|(other, ..)| other == shape);
        let (_, other_share, _) = other.unwrap_or_else(|| panic!("{shape} is not in {b:?}"));
        near(&format!("share of {shape}"), *share, *other_share);
    }
}

/// What each session of a log sent, in its order; sessions in no order.
fn sessions_of(log: &[u8]) -> Vec<Vec<String>> {
    let kind = LogKind::of(log).expect("a log of a known kind");
    let dialect = match kind {
        LogKind::MysqlSlow | LogKind::MysqlGeneral => Dialect::Mysql,
        _ => Dialect::Postgres,
    };
    let mut sessions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for logged in kind.read(log).statements {
        let read = Statement::read(&logged.text, dialect);
        // What warms up, and what a client says of its session, is nobody's load.
        let is_load =
            read.is_some_and(|read| !matches!(read.verb, Verb::Utility(_)) && !read.tables.is_empty());
        let is_load = is_load && (logged.text.contains("sbtest1") && !logged.text.contains("max("));
        if is_load {
            sessions.entry(logged.session).or_default().push(logged.text);
        }
    }
    let mut sessions: Vec<Vec<String>> = sessions.into_values().collect();
    sessions.sort();
    sessions
}

/// The log's transactions, of which sysbench has one form, with the values that they had: no statement is
/// refused.
fn the_mix_of_a_log_is_carried_out(place: &Place, url: &str) {
    let learned = place.run(&["learn", url, "--mix", "server.log", "-o", "mix.toml", "--on-copy"]);
    let learned = learned.with_code(&[0]).stderr;
    assert!(learned.contains("mix.toml: 1 scripts for 40 of 40 operations of 3 sessions"), "{learned}");
    let plan = std::fs::read_to_string(place.here().join("mix.toml")).expect("a plan");
    assert!(
        plan.contains("name = \"1 transaction: delete sbtest1, insert sbtest1, select sbtest1\""),
        "{plan}"
    );
    let rows = std::fs::read_to_string(place.here().join("mix.1.csv")).expect("values");
    let ended = place.run(&["run", "mix.toml", "--scale", "tiny", "--target", url]).with_code(&[0, 1]);
    let trial = &kept(place, "mix")[0];
    let measured = trial.record.measured.as_ref().unwrap_or_else(|| panic!("{}", ended.stderr));
    let books = measured.books().expect("books");
    assert!(books.of(OpKind::Script(0)).expect("transactions").done() >= 20, "{} rows", rows.lines().count());
    let strange = books.failures().into_iter().filter(|failure| !format!("{failure:?}").contains("Conflict"));
    assert_eq!(strange.count(), 0, "{:?}", books.failures());
}

/// A log is sent again; `log` finds what the server has logged so far.
#[track_caller]
fn replayed(place: &Place, server: &Server, driver: &str, log: &dyn Fn() -> Vec<u8>) {
    // The table is made by then.
    let before = log().len();
    let mut command = sysbench(server, driver);
    command.args(["--events=40", "--rate=20", "--time=60", "--db-ps-mode=disable", "run"]);
    assert!(command.status().expect("it has prepared the table").success());
    // Servers write their logs a little later.
    std::thread::sleep(Duration::from_secs(2));
    let original = log()[before..].to_vec();
    std::fs::write(place.here().join("server.log"), &original).expect("the test's own folder");
    let url = server.url();
    let learn = ["learn", &url, "--replay", "server.log", "-o", "again.toml"];
    let reads = place.run(&learn).with_code(&[0]).stderr;
    assert!(reads.contains("statements that change data are left out"), "{reads}");
    place.run(&[&learn[..], &["--on-copy", "--speed", "2"]].concat()).with_code(&[0]);
    let record = std::fs::read_to_string(place.here().join("again.record")).expect("a record");
    let [changes, all] = [" w \"", " "].map(|kind| {
        let lines = record.lines().filter(|line| !line.starts_with('#'));
        lines.filter(|line| line.contains(kind)).count() as u64
    });
    assert!(changes >= 40 * 4 && all - changes >= 40 * 14, "{changes} of {all}");
    the_mix_of_a_log_is_carried_out(place, &url);
    let before = log().len();
    place.run(&["run", "again.toml", "--target", &url]).with_code(&[0, 1]);
    std::thread::sleep(Duration::from_secs(2));
    let trial = &kept(place, "again")[0];
    let measured = trial.record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", trial.record.verdict));
    let books = measured.books().expect("books");
    let done = |kind| books.of(kind).map_or(0, |book| book.done());
    let (reads, changed) = (done(OpKind::Script(0)), done(OpKind::Script(1)));
    // Another order between sessions may give a deadlock that was not there.
    assert!(
        reads + changed + 20 >= all && reads + changed <= all && changed <= changes,
        "{reads} and {changed} of {all}: {:?}",
        books.failures()
    );
    let (sent, again) = (sessions_of(&original), sessions_of(&log()[before..]));
    assert_eq!(sent.len(), again.len(), "sessions are kept apart");
    if books.failures().is_empty() {
        assert!(sent == again, "{sent:?}\n{again:?}");
    }
}

#[test]
fn a_log_of_a_postgres_is_sent_again_session_by_session() {
    let found = match Postgres::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let settings = [
        ("logging_collector", "on"),
        ("log_destination", "csvlog"),
        ("log_filename", "all.log"),
        ("log_min_duration_statement", "0"),
    ];
    let settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    let server = found.start(&ServerOptions { settings, ..Default::default() }).expect("it starts");
    if prepare(&server, "pgsql") {
        let path = server.data().join("log/all.csv");
        replayed(&Place::new(), &server, "pgsql", &|| std::fs::read(&path).expect("a log"));
    }
}

#[test]
fn a_slow_log_of_a_mariadb_is_sent_again_session_by_session() {
    let found = match Mariadb::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let settings = [
        ("slow_query_log", "ON"),
        ("long_query_time", "0"),
        ("log_output", "FILE"),
        ("slow_query_log_file", "all.log"),
    ];
    let settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    let server = found.start(&ServerOptions { settings, ..Default::default() }).expect("it starts");
    if prepare(&server, "mysql") {
        let path = server.data().join("all.log");
        replayed(&Place::new(), &server, "mysql", &|| std::fs::read(&path).expect("a log"));
    }
}
