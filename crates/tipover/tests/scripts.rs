//! A user's own statements as the workload of a plan: on a cluster of the laboratory's own, and on a server
//! at an address, whose tables are made once and then used.

mod program;

use program::results::{Kept, kept};
use program::{Place, skipped};
use std::path::PathBuf;
use tipover_core::learn::ServerTimes;
use tipover_core::op::{Failure, OpKind};
use tipover_core::record::Record;
use tipover_lab::recipe::{Mariadb, Postgres, Server, ServerOptions};
use tipover_reference_mongod::{ReplicaSet, Settings};

const HEAD: &str = "title = \"T\"\nquestion = \"q\"\nwhy = \"w\"\nhow_to_read = \"h\"\nrepeats = 1\n\
    [[sweep]]\nname = \"s\"\nquestion = \"q\"\naxis = []\n[scale.tiny]\n\
    [trial]\nwarm_up_least = \"300 ms\"\nmeasure_least = \"500 ms\"\nmeasure_operations = 50\n\
    measure_most = \"30 s\"\n[load]\nsessions = 3\nretries = 100\n";

/// Rows of its own, a decision by what a statement brought, and conflicts.
const SCHEMA: &str = "create table item (id int primary key, stock int not null);\n\\set id 0\n\
    insert into item select n, 3 from generate_series(1, :items) n;\n";
const BUY: &str = "\\set id random_zipfian(1, :items, 1.2)\nbegin;\n-- name: take\n-- expect: 1 row\n\
    update item set stock = stock - 1 where id = :id returning stock as rest \\gset\n\
    \\if :rest < 1\nupdate item set stock = 3 where id = :id;\n\\endif\ncommit;\n";
const LOOK: &str = "select stock from item where id = :pick; -- name: look\n";

fn only(place: &Place, experiment: &str) -> Kept {
    let mut all = kept(place, experiment);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Runs of each class that were done; none may have failed.
#[track_caller]
fn done(trial: &Kept, kinds: &[OpKind]) -> Vec<u64> {
    let measured = trial.record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", trial.record.verdict));
    let books = measured.books().expect("books");
    let operations: Vec<OpKind> = books.operations().map(|(kind, _)| kind).collect();
    assert_eq!((books.failures().len(), operations.as_slice()), (0, kinds), "{:?}", books.failures());
    kinds.iter().map(|kind| books.of(*kind).map_or(0, |book| book.done())).collect()
}

#[test]
fn scripts_of_ones_own_run_on_a_cluster_that_one_of_them_prepares() {
    let place = Place::new();
    for (name, text) in [("schema.sql", SCHEMA), ("buy.sql", BUY), ("look.sql", LOOK)] {
        place.write(name, text);
    }
    let picks: String = (1..=100).map(|id| format!("{id},row {id}\n")).collect();
    place.write("picks.csv", &format!("pick,words\n{picks}"));
    let plan = format!(
        "name = \"own\"\n{HEAD}[target]\nkind = \"postgres\"\n[lab]\nrecipe = \"postgres\"\n[workload]\n\
         kind = \"scripts\"\n[workload.scripts]\nrun = [\"look.sql@3\", \"buy.sql\"]\nprepare = \"schema.sql\"\n\
         samples = [{{ file = \"picks.csv\", draw = \"random_zipf(1, :count, 0.5)\" }}]\n\
         define = {{ items = 100 }}\nprotocol = \"prepared\"\n"
    );
    place.write("own.toml", &plan);
    let ended = place.run(&["run", "own.toml", "--scale", "tiny", "--full"]);
    if ended.stderr.contains("is not installed") {
        return skipped(ended.stderr.trim());
    }
    // A machine that is busy with other things may make a trial that cannot be believed.
    let ended = ended.with_code(&[0, 1]);
    let trial = only(&place, "own");
    let both = done(&trial, &[OpKind::Script(0), OpKind::Script(1)]);
    assert!(both[0] > both[1] && both[1] > 0, "look has thrice the weight of buy: {both:?}");
    let log = place.content().into_iter().find(|path| path.ends_with("latency.hlog")).expect("histograms");
    let log = std::fs::read_to_string(place.here().join(log)).expect("text");
    assert!(log.contains("measure.SCRIPT,") && log.contains("measure.SCRIPT-2,"), "a histogram for each");
    assert!(ended.stdout.contains("By class of operation"), "{}", ended.stdout);
    statements_have_figures(&place, &trial, both, &ended.stdout);
    expectations_that_do_not_hold_are_failures(&place);
    statements_of_pipelines_have_figures(&place, &plan);
    the_server_tells_what_it_took(&place, &plan, &trial);
    // What is wrong in a script stops everything before it starts.
    place.write("buy.sql", &BUY.replace("\\endif", "\\endfi"));
    let wrong = place.run(&["run", "own.toml", "--scale", "tiny"]).with_code(&[2]).stderr;
    assert!(wrong.contains("buy.sql:8:2: invalid command \\endfi; did you mean"), "{wrong}");
}

/// In the record, the terminal and what is exported.
#[track_caller]
fn statements_have_figures(place: &Place, trial: &Kept, both: Vec<u64>, shown: &str) {
    let books = trial.record.measured.as_ref().expect("it was measured").books().expect("books");
    let of = |name: &str| {
        let mut parts = books.parts();
        let found = parts.find(|(kind, _)| trial.record.spec.class_name(*kind) == name);
        found.unwrap_or_else(|| panic!("no {name}")).1
    };
    let (look, take) = (of("look"), of("take"));
    // Each of the three sessions may be between a statement and the end of its operation when an interval
    // ends; and statements are counted a moment after operations, while sessions go on.
    for (statement, operations) in [(look, both[0]), (take, both[1])] {
        let apart = statement.done().abs_diff(operations);
        assert!(apart <= 3 + operations / 20, "{} of {operations}", statement.done());
        assert_eq!(statement.rows(), statement.done(), "each finds its row");
    }
    // Medians: a statement may count here and its operation, which ends later, not; where the machine stood
    // still meanwhile, that one makes the mean.
    let whole = books.of(OpKind::Script(0)).expect("it was run").latencies().service().value_at_quantile(0.5);
    let part = look.latencies().service().value_at_quantile(0.5);
    assert!(part > whole / 5 && part <= whole, "a statement is a part of its operation: {part} of {whole}");
    assert!(shown.contains("By statement"), "{shown}");
    // Where figures need much room a table breaks a name into its words.
    for name in ["look", "take", "buy.sql:2", "begin;", "buy.sql:9", "commit;"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    place.run(&["export", "own", "-o", "tables", "--form", "csv"]).with_code(&[0]);
    let table = std::fs::read_to_string(place.here().join("tables/statements.csv")).expect("it was written");
    assert!(table.lines().count() >= 5 && table.contains(",look,STATEMENT-1,"), "{table}");
}

/// A wrong answer is a failure with a name, its transaction is rolled back, and others go on.
#[track_caller]
fn expectations_that_do_not_hold_are_failures(place: &Place) {
    let low = "\\set id random(1, :items)\n-- expect: :value >= 2 and :rows = 1\nselect stock from item where id = :id;\n";
    place.write("look.sql", low);
    place.run(&["--results", "wrong", "run", "own.toml", "--scale", "tiny"]).with_code(&[0, 1]);
    let record = record_below(place, "wrong");
    let books =
        record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", record.verdict)).books().expect("books");
    let look = books.of(OpKind::Script(0)).expect("it was run");
    let unexpected = look.refused().get(&Failure::Unexpected).copied().unwrap_or(0);
    assert!(unexpected > 0 && look.done() > 0, "stock is 1 or 0 in some rows: {:?}", look.refused());
    assert_eq!(books.of(OpKind::Script(1)).expect("it was run").failed(), 0, "what was bought is there");
    place.write("look.sql", LOOK);
}

/// The one record in a folder of results.
#[track_caller]
fn record_below(place: &Place, folder: &str) -> Record {
    let is_record = |path: &PathBuf| path.starts_with(folder) && path.ends_with("record.json");
    let path = place.content().into_iter().find(is_record).expect("a record");
    let text = std::fs::read_to_string(place.here().join(path)).expect("text");
    serde_json::from_str(&text).expect("json")
}

/// Answers of a pipeline belong to its statements in their order: an answer that is not as expected fails the
/// operation and not the statements behind it, those behind an error are passed over by the server, and those
/// behind the next point of synchronisation are not.
#[track_caller]
fn statements_of_pipelines_have_figures(place: &Place, plan: &str) {
    let fine = "\\set id random(1, :items)\n\\startpipeline\n\\syncpipeline\n-- name: first\n-- expect: 1 row\n\
        select stock from item where id = :id;\n\\syncpipeline\n-- name: second\n\
        update item set stock = stock where id = :id;\n\\endpipeline\n";
    let wrong = "\\startpipeline\n-- name: low\n-- expect: :value >= 100\nselect stock from item where id = 1;\n\
        -- name: behind low\n-- expect: :value = 7\nselect 7;\n\\endpipeline\n";
    let torn = "\\startpipeline\nselect 1 / (stock - stock) from item where id = 1; -- name: torn\n\
        select 2; -- name: passed over\n\\syncpipeline\nselect 3; -- name: still done\n\\endpipeline\n";
    for (name, text) in [("fine.sql", fine), ("wrong.sql", wrong), ("torn.sql", torn)] {
        place.write(name, text);
    }
    let run = "run = [\"look.sql@3\", \"buy.sql\"]";
    assert!(plan.contains(run));
    let plan = plan.replace(run, "run = [\"fine.sql\", \"wrong.sql\", \"torn.sql\"]");
    place.write("piped.toml", &plan.replace("\"own\"", "\"piped\""));
    place.run(&["--results", "pipes", "run", "piped.toml", "--scale", "tiny"]).with_code(&[0, 1]);
    let record = record_below(place, "pipes");
    let books = record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", record.verdict)).books();
    let books = books.expect("books");
    let of =
        |name: &str| books.parts().find(|(kind, _)| record.spec.class_name(*kind) == name).map(|(_, b)| b);
    let known = |name: &str| of(name).unwrap_or_else(|| panic!("no {name}"));
    for name in ["first", "second"] {
        let (operations, statement) = (books.of(OpKind::Script(0)).expect("it was run"), known(name));
        let apart = statement.done().abs_diff(operations.done());
        assert!(apart <= 3 + operations.done() / 20, "{} of {}", statement.done(), operations.done());
        assert_eq!((statement.rows(), statement.failed()), (statement.done(), 0), "{name}");
    }
    let (low, torn) = (known("low"), known("torn"));
    assert!(low.done() == 0 && low.refused()[&Failure::Unexpected] > 0, "{:?}", low.refused());
    let whole = books.of(OpKind::Script(1)).expect("it was run");
    assert!(whole.done() == 0 && whole.refused()[&Failure::Unexpected] > 0, "{:?}", whole.refused());
    assert!(torn.done() == 0 && torn.failed() > 0, "{:?}", torn.refused());
    assert_eq!(books.of(OpKind::Script(2)).expect("it was run").done(), 0, "a pipeline with an error fails");
    assert!(of("passed over").is_none(), "it was never carried out");
    for name in ["behind low", "still done"] {
        assert!(known(name).done() > 0 && known(name).failed() == 0, "{name}");
    }
}

/// A server that counts its statements is asked for them; one that does not says what it lacks.
#[track_caller]
fn the_server_tells_what_it_took(place: &Place, plan: &str, without: &Kept) {
    let untold = without.record.measured.as_ref().expect("it was measured").server_times.as_ref();
    let Some(ServerTimes::Untold(reason)) = untold else { panic!("{untold:?}") };
    assert!(reason.contains("CREATE EXTENSION pg_stat_statements"), "{reason}");
    let lab = "[lab]\nrecipe = \"postgres\"\n";
    assert!(plan.contains(lab));
    let preloaded = format!("{lab}settings = {{ shared_preload_libraries = \"pg_stat_statements\" }}\n");
    place.write("told.toml", &plan.replace(lab, &preloaded).replace("\"own\"", "\"told\""));
    place.write("schema.sql", &format!("create extension pg_stat_statements;\n{SCHEMA}"));
    let ended = place.run(&["--results", "told", "run", "told.toml", "--scale", "tiny", "--full"]);
    if ended.stderr.contains(r#"could not access file "pg_stat_statements""#) {
        return skipped("a PostgreSQL without its contrib modules");
    }
    let ended = ended.with_code(&[0, 1]);
    let record = record_below(place, "told");
    let measured = record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", record.verdict));
    let times = measured.server_times.as_ref().expect("it was asked");
    let books = measured.books().expect("books");
    // PostgreSQL 18 counts no BEGIN and COMMIT that were prepared.
    for name in ["look", "take"] {
        let (kind, book) =
            books.parts().find(|(kind, _)| record.spec.class_name(*kind) == name).expect("it was done");
        let told = times.of(kind).unwrap_or_else(|| panic!("{name}: {times:?}"));
        // The server is asked a moment before the phase and a moment after it, while sessions go on.
        let apart = told.calls.abs_diff(book.done() + book.failed());
        assert!(apart <= 20 + book.done() / 2, "{name}: {} of {}", told.calls, book.done());
        let (server, whole) = (told.time_ms / told.calls as f64, book.latencies().service().mean() / 1e6);
        assert!(server > 0.0 && server < 1.5 * whole, "{name}: {server} ms of {whole} ms");
    }
    // What cannot be believed, because the machine is busy, is in no table.
    let is_believed = ended.stdout.contains("By statement");
    assert!(!is_believed || ended.stdout.contains("performance schema counts"), "{}", ended.stdout);
}

/// And of MariaDB, where a digest has other words than the script: of tables that are one statement here and
/// several there.
#[test]
fn a_mariadb_tells_what_it_took() {
    let place = Place::new();
    let tables = ["item1", "item2"].map(|table| {
        format!("create table {table} (id int primary key, stock int);\ninsert into {table} values (1, 1), (2, 2);\n")
    });
    place.write("schema.sql", &tables.concat());
    let look = "\\set table random(1, 2)\n\\set id random(1, 2)\n-- name: look\nselect stock from item:table where id = :id;\n";
    place.write("look.sql", look);
    let plan = format!(
        "name = \"told\"\n{HEAD}[target]\nkind = \"mysql\"\n[lab]\nrecipe = \"mariadb\"\n\
         settings = {{ performance_schema = \"ON\" }}\n[workload]\nkind = \"scripts\"\n[workload.scripts]\n\
         run = [\"look.sql\"]\nprepare = \"schema.sql\"\n"
    );
    place.write("told.toml", &plan);
    let ended = place.run(&["run", "told.toml", "--scale", "tiny"]);
    if ended.stderr.contains("is not installed") {
        return skipped(ended.stderr.trim());
    }
    ended.with_code(&[0, 1]);
    let trial = only(&place, "told");
    let measured = trial.record.measured.as_ref().unwrap_or_else(|| panic!("{:?}", trial.record.verdict));
    let done = measured.books().expect("books").of(OpKind::Script(0)).expect("it was run").done();
    let times = measured.server_times.as_ref().expect("it was asked");
    let Some(told) = times.of(OpKind::statement(0)) else { panic!("{times:?}") };
    assert!(told.calls.abs_diff(done) <= 20 + done / 2, "{} of {done}", told.calls);
    assert!(told.time_ms > 0.0);
}

/// Commands of one's own on our reference peer, which is not MongoDB: with rows of a sample, a transaction
/// that conflicts, figures for each command, and mistakes with their places.
#[test]
fn commands_of_ones_own_run_on_mongodbs_wire() {
    let settings = Settings { nodes: 3, set_name: Some("rs0".into()), ..Settings::default() };
    let set = ReplicaSet::start(settings).expect("it starts");
    let place = Place::new();
    let count = "-- name: count\n-- expect: 1 row\n{\"update\": \"seen\", \"updates\": [{\"q\": {\"_id\": :pick}, \
        \"u\": {\"$inc\": {\"n\": 1}}, \"upsert\": true}]};\n";
    let buy = "\\set id random_zipfian(1, :items, 1.2)\nbegin;\n-- name: take\n\
        {\"update\": \"item\", \"updates\": [{\"q\": {\"_id\": :id}, \"u\": {\"$inc\": {\"sold\": 1}}, \"upsert\": true}]};\n\
        -- name: look\n-- expect: :rows = 1 and :value >= 1\n\
        {\"find\": \"item\", \"filter\": {\"_id\": :id}, \"projection\": {\"_id\": 0, \"sold\": 1}} \\gset\n\
        \\if :sold % 10 = 0\nrollback;\n\\else\ncommit;\n\\endif\n";
    place.write("count.json", count);
    place.write("buy.json", buy);
    let picks: String = (1..=100).map(|id| format!("{id}\n")).collect();
    place.write("picks.csv", &format!("pick\n{picks}"));
    let plan = format!(
        "name = \"commands\"\n{HEAD}[target]\nkind = \"mongodb\"\naddress = \"{}\"\n[workload]\nkind = \"scripts\"\n\
         [workload.scripts]\nrun = [\"count.json@3\", \"buy.json\"]\ndefine = {{ items = 100 }}\n\
         samples = [{{ file = \"picks.csv\" }}]\n",
        set.url()
    );
    place.write("commands.toml", &plan);
    let ended = place.run(&["run", "commands.toml", "--scale", "tiny", "--full"]).with_code(&[0, 1]);
    let trial = only(&place, "commands");
    let both = done(&trial, &[OpKind::Script(0), OpKind::Script(1)]);
    assert!(both[0] > both[1] && both[1] > 0, "count has thrice the weight of buy: {both:?}");
    assert!(ended.stdout.contains("By statement"), "{}", ended.stdout);
    for name in ["count", "take", "look", "buy.json:11", "commit;"] {
        assert!(ended.stdout.contains(name), "{name}: {}", ended.stdout);
    }
    let books = trial.record.measured.as_ref().expect("it was measured").books().expect("books");
    let rows =
        books.parts().map(|(kind, book)| (trial.record.spec.class_name(kind), book.rows(), book.done()));
    for (name, rows, done) in rows.filter(|(name, ..)| ["count", "take", "look"].contains(&name.as_str())) {
        assert_eq!(rows, done, "each {name} finds its document");
    }
    place.write("buy.json", &buy.replace("\"$inc\"", "$inc"));
    let wrong = place.run(&["run", "commands.toml", "--scale", "tiny"]).with_code(&[2]).stderr;
    assert!(wrong.contains("buy.json:4:58: here stands '$' where a name"), "{wrong}");
    let sql = place.run(&["run", "commands.toml", "--set", "workload.scripts.run=[\"tpcb-like\"]"]);
    assert!(sql.with_code(&[2]).stderr.contains("\"tpcb-like\" is SQL"));
}

/// A log as MongoDB 4.4 and later write it, sent again by two sessions: what is counted afterwards is what
/// its updates add up to. The reference peer is not MongoDB.
#[test]
fn a_log_of_mongodb_is_sent_again_session_by_session() {
    let set = ReplicaSet::start(Settings::default()).expect("it starts");
    let place = Place::new();
    let mut log = String::new();
    for n in 0..60 {
        let time = format!("2026-11-25T10:00:{:02}.{:03}+00:00", n / 20, n % 20 * 50);
        let entry = |attr: &str| {
            let context = format!(
                "\"c\":\"COMMAND\",\"id\":51803,\"ctx\":\"conn{}\",\"msg\":\"Slow query\"",
                n % 2 + 7
            );
            format!(
                "{{\"t\":{{\"$date\":\"{time}\"}},\"s\":\"I\",{context},\"attr\":{{{attr},\"durationMillis\":1}}}}\n"
            )
        };
        let update = "\"type\":\"update\",\"ns\":\"shop.item\",\"command\":{\"q\":{\"_id\":1},\
                      \"u\":{\"$inc\":{\"n\":2}},\"multi\":false,\"upsert\":true}";
        let around =
            "\"type\":\"command\",\"ns\":\"shop.$cmd\",\"command\":{\"update\":\"item\",\"$db\":\"shop\"}";
        let find = "\"type\":\"command\",\"ns\":\"shop.item\",\"command\":{\"find\":\"item\",\"filter\":{\"_id\":1},\
                    \"lsid\":{\"id\":{\"$uuid\":\"b42ea8ce-2a0d-4822-b35b-d05a745ea4e3\"}},\"$db\":\"shop\"}";
        match n % 3 {
            0 => log += &(entry(update) + &entry(around)),
            _ => log += &entry(find),
        }
    }
    place.write("mongod.log", &log);
    let url = set.url();
    let learn = ["learn", &url, "--replay", "mongod.log", "-o", "again.toml", "--speed", "3"];
    let reads = place.run(&learn).with_code(&[0]).stderr;
    assert!(
        reads.contains("40 statements of 2 sessions") && reads.contains("20 statements that change"),
        "{reads}"
    );
    let all = place.run(&[&learn[..], &["--on-copy"]].concat()).with_code(&[0]).stderr;
    assert!(all.contains("60 statements of 2 sessions"), "{all}");
    place.run(&["run", "again.toml"]).with_code(&[0, 1]);
    let trial = only(&place, "again");
    assert_eq!(done(&trial, &[OpKind::Script(0), OpKind::Script(1)]), [40, 20]);
    let count = "-- expect: :value = 40\n{\"find\": \"item\", \"projection\": {\"_id\": 0, \"n\": 1}};\n";
    place.write("count.json", count);
    let plan = format!(
        "name = \"counted\"\n{HEAD}[target]\nkind = \"mongodb\"\naddress = \"{url}\"\n[workload]\nkind = \"scripts\"\n\
         [workload.scripts]\nrun = [\"count.json\"]\n"
    );
    place.write("counted.toml", &plan);
    place.run(&["run", "counted.toml", "--scale", "tiny"]).with_code(&[0, 1]);
    assert!(done(&only(&place, "counted"), &[OpKind::Script(0)])[0] > 0);
    // As a mix the same commands are a plan that can be searched.
    let mix =
        place.run(&["learn", &url, "--mix", "mongod.log", "-o", "mix.toml", "--on-copy"]).with_code(&[0]);
    assert!(mix.stderr.contains("2 scripts for 60 of 60 operations of 2 sessions"), "{}", mix.stderr);
    place.run(&["run", "mix.toml", "--scale", "tiny", "--set", "repeats=1"]).with_code(&[0, 1]);
    let both = done(&only(&place, "mix"), &[OpKind::Script(0), OpKind::Script(1)]);
    assert!(both[0] > both[1] && both[1] > 0, "finds are twice the updates: {both:?}");
    let other =
        place.run(&["learn", "postgres://me@127.0.0.1:1/x", "--replay", "mongod.log", "-o", "x.toml"]);
    assert!(other.with_code(&[2]).stderr.contains("a log of another kind of server"));
}

/// The profiler of our reference peer, which is not MongoDB, is followed while a load runs; the plan sends
/// the same commands in the same shares.
#[test]
fn what_mongodbs_profiler_keeps_is_learned_while_it_is_written() {
    let set = ReplicaSet::start(Settings::default()).expect("it starts");
    let (place, url) = (Place::new(), set.url());
    let learn = ["learn", &url, "--watch", "2 s", "-o", "shop.toml"];
    let refused =
        |more: &[&str], code: i32| place.run(&[&learn[..], more].concat()).with_code(&[code]).stderr;
    let unwritten = refused(&[], 2);
    assert!(unwritten.contains("--keep-values writes them"), "{unwritten}");
    let off = refused(&["--keep-values"], 1);
    assert!(off.contains("the profiler of tipover is off: db.setProfilingLevel(2)"), "{off}");

    let count = "{\"update\": \"seen\", \"updates\": [{\"q\": {\"_id\": :pick}, \
        \"u\": {\"$inc\": {\"n\": 1}}, \"upsert\": true}]};\n";
    place.write("count.json", &format!("\\set pick random_zipfian(1, 100, 1.5)\n{count}"));
    place.write("look.json", "\\set id random(1, 100)\n{\"find\": \"seen\", \"filter\": {\"_id\": :id}};\n");
    place.write(
        "load.toml",
        &format!(
            "name = \"load\"\n{HEAD}think = \"20 ms\"\n[target]\nkind = \"mongodb\"\naddress = \"{url}\"\n\
             [workload]\nkind = \"scripts\"\n[workload.scripts]\nrun = [\"count.json@3\", \"look.json\"]\n"
        ),
    );
    let long = ["--set", "trial.measure_least=10 s", "--set", "trial.measure_operations=1000000"];
    let load = [&["run", "load.toml", "--scale", "tiny"][..], &long].concat();
    set.profile("tipover", 2);
    let mut running = place.start(&load);
    let learned = running.until("commands that the profiler kept", |_| {
        let ended = place.run(&[&learn[..], &["--keep-values", "--on-copy"]].concat());
        // Before the load begins nothing is kept, and the preparations are another mix.
        (ended.code == Some(0) && ended.stderr.contains("2 scripts for")).then_some(ended.stderr)
    });
    set.profile("tipover", 0);
    running.wait().with_code(&[0, 1]);
    let plan = std::fs::read_to_string(place.here().join("shop.toml")).expect("a plan");
    assert!(plan.contains(&format!("# Learned by `tipover learn {url} --keep-values`")), "{plan}");
    let weights: Vec<f64> = plan
        .lines()
        .filter_map(|line| line.strip_prefix("weight = ").and_then(|weight| weight.parse().ok()))
        .collect();
    let share = weights.iter().cloned().fold(0.0, f64::max) / weights.iter().sum::<f64>();
    assert!((0.6..0.9).contains(&share), "three of four commands count: {share} in\n{plan}{learned}");
    // Those of an earlier look, with more forms, may be there still.
    let is_named = |path: &PathBuf| plan.contains(&format!("\"{}\"", path.display()));
    let values: Vec<PathBuf> = place.content().into_iter().filter(is_named).collect();
    assert_eq!(values.len(), 2, "{values:?}");
    for file in &values {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(place.here().join(file)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o77, 0, "{} is its owner's alone", file.display());
    }
    place.run(&["run", "shop.toml", "--scale", "tiny", "--set", "repeats=1"]).with_code(&[0, 1]);
    let both = done(&only(&place, "shop"), &[OpKind::Script(0), OpKind::Script(1)]);
    assert!(both[0] > both[1] && both[1] > 0, "{both:?}");
}

/// TPC-B at an address: an empty database gets its tables, the next run finds them, and another scale is
/// refused.
#[track_caller]
fn tpcb_at_an_address(kind: &str, server: &Server) {
    let place = Place::new();
    let plan = format!(
        "name = \"tpcb\"\n{HEAD}[target]\nkind = \"{kind}\"\naddress = \"{}\"\n[workload]\nkind = \"scripts\"\n\
         [workload.scripts]\nrun = [\"tpcb-like\", \"select-only\"]\n",
        server.url()
    );
    place.write("tpcb.toml", &plan);
    let run = |results: &str, more: &[&str]| {
        let all = [&["--results", results, "run", "tpcb.toml", "--scale", "tiny"], more].concat();
        place.run(&all)
    };
    for (results, said) in [("results", "so all 100000 were written"), ("again", "the records were there")] {
        run(results, &[]).with_code(&[0, 1]);
        let record = place
            .content()
            .into_iter()
            .find(|path| path.starts_with(results) && path.ends_with("record.json"));
        let record = std::fs::read_to_string(place.here().join(record.expect("a record"))).expect("text");
        assert!(record.contains(said), "{results}: {record}");
    }
    let trial = only(&place, "tpcb");
    let both = done(&trial, &[OpKind::Script(0), OpKind::Script(1)]);
    assert!(both.iter().all(|count| *count > 0), "{both:?}");
    let other = run("other", &["--set", "workload.scripts.scale=2"]).with_code(&[1]);
    let said = [other.stdout, other.stderr].concat();
    assert!(said.contains("at scale 1: say workload.scripts.scale = 1"), "{said}");
}

#[test]
fn tpcb_runs_on_a_mariadb_at_an_address() {
    let found = match Mariadb::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let server = found.start(&ServerOptions::default()).expect("a throw-away server starts");
    tpcb_at_an_address("mysql", &server);
}

#[test]
fn tpcb_runs_on_a_postgres_at_an_address() {
    let found = match Postgres::find(None) {
        Ok(found) => found,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let server = found.start(&ServerOptions::default()).expect("a throw-away server starts");
    tpcb_at_an_address("postgres", &server);
}
