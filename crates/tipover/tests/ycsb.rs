//! `tipover ycsb` as people use it: their files, their scripts' eyes on its output.

mod program;

use program::{Ended, Place, alone, results::below, skipped};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tipover_reference_mongod::{ReplicaSet, Settings};

fn shipped(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/ycsb").join(name).display().to_string()
}

/// The figures of a text output: what a script around YCSB makes of it.
fn figures(text: &str) -> BTreeMap<(String, String), f64> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ", ");
        let (metric, name, value) = (parts.next()?, parts.next()?, parts.next()?);
        let metric = metric.strip_prefix('[')?.strip_suffix(']')?;
        Some(((metric.to_string(), name.to_string()), value.parse().ok()?))
    };
    text.lines().map(|l| line(l).unwrap_or_else(|| panic!("not a line of YCSB's: {l:?}"))).collect()
}

fn figure(ended: &Ended, metric: &str, name: &str) -> f64 {
    let figures = figures(&ended.stdout);
    *figures
        .get(&(metric.into(), name.into()))
        .unwrap_or_else(|| panic!("[{metric}], {name}: {}", ended.stdout))
}

#[test]
fn the_shipped_workloads_run_and_count_every_operation_once() {
    let place = Place::new();
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let file = shipped(&format!("workload{letter}"));
        let load = place.run(&["ycsb", "load", "null", "-P", &file, "-threads", "3"]).with_code(&[0]);
        assert_eq!(figure(&load, "INSERT", "Operations"), 1000.0, "{letter}");
        assert_eq!(figure(&load, "INSERT", "Return=OK"), 1000.0);
        assert_eq!(figure(&load, "CLEANUP", "Operations"), 3.0);
        let run = ["ycsb", "run", "basic", "-P", &file, "-p", "operationcount=5000", "-threads", "4", "-s"];
        let run = place.run(&run).with_code(&[0]);
        let figures = figures(&run.stdout);
        let operations: f64 = figures
            .iter()
            .filter(|((metric, name), _)| name == "Operations" && metric != "CLEANUP")
            .map(|(_, count)| count)
            .sum();
        // A read-modify-write counts as itself, its read and its update.
        let written_back = figures.get(&("READ-MODIFY-WRITE".into(), "Operations".into())).unwrap_or(&0.0);
        assert_eq!(operations - 2.0 * written_back, 5000.0, "{letter}: {}", run.stdout);
        let runtime = figure(&run, "OVERALL", "RunTime(ms)");
        let throughput = figure(&run, "OVERALL", "Throughput(ops/sec)");
        assert!((throughput * runtime / 5_000_000.0 - 1.0).abs() < 0.01, "{throughput} {runtime}");
        assert!(run.stderr.contains(" sec: 5000 operations; "), "{}", run.stderr);
    }
}

#[test]
fn a_target_is_kept_and_time_ends_what_has_no_end() {
    let place = Place::new();
    let file = shipped("large-values");
    let run = ["ycsb", "run", "null", "-P", &file, "-p", "maxexecutiontime=2", "-p", "recordcount=100"];
    let run = place.run(&run).with_code(&[0]);
    let done = figure(&run, "READ", "Operations") + figure(&run, "UPDATE", "Operations");
    // A closed loop would do a million; how many were sent before the end was noticed is the machine's
    // affair.
    let due = 200.0 * figure(&run, "OVERALL", "RunTime(ms)") / 1000.0;
    assert!(done > 0.0 && done <= due + 2.0, "{done} of {due}: {}", run.stdout);
    assert!(run.stdout.contains("[Intended-READ], 99.9PercentileLatency(us), "), "{}", run.stdout);
    let endless = ["ycsb", "run", "null", "-p", "recordcount=9", "-p", "maxexecutiontime=1"];
    let endless = place.run(&endless).with_code(&[0]);
    assert!(figure(&endless, "OVERALL", "RunTime(ms)") >= 1000.0);
}

#[test]
fn files_are_written_where_they_are_asked_for() {
    let place = Place::new();
    place.write("mine", "recordcount = 100\noperationcount : 500\nspin.sleep true\nrecrdcount=1\n");
    let run = place.run(&[
        "ycsb",
        "run",
        "null",
        "-P",
        "mine",
        "-p",
        "exportfile=out.json",
        "-p",
        "hdrhistogram.fileoutput=true",
        "-p",
        "hdrhistogram.output.path=logs-",
        "-p",
        "exporter=site.ycsb.measurements.exporter.JSONArrayMeasurementsExporter",
        "-p",
        "db.passwd=hunter2",
    ]);
    let run = run.with_code(&[0]);
    assert_eq!(run.stdout, "");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.here().join("out.json")).unwrap()).unwrap();
    assert_eq!(json[0]["metric"], "OVERALL");
    let log = fs::read_to_string(place.here().join("logs-READ.hdr")).unwrap();
    assert!(log.starts_with("#[Logging for: READ]") && log.lines().count() > 4, "{log}");
    assert!(
        run.stderr.contains("spin.sleep has no effect") && run.stderr.contains("did you mean `recordcount`?")
    );
    assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
}

#[test]
fn operations_are_written_one_by_one_as_ycsb_and_go_ycsb_do() {
    let place = Place::new();
    let common = ["ycsb", "run", "null", "-p", "recordcount=100", "-p", "operationcount=50", "-threads", "2"];
    let with = |more: &[&str]| {
        let more = more.iter().flat_map(|pair| ["-p", pair]);
        place.run(&common.iter().copied().chain(more).collect::<Vec<_>>()).with_code(&[0]).stdout
    };
    let raw = with(&["measurementtype=raw", "updateproportion=0", "measurement.interval=both"]);
    for name in ["READ", "Intended-READ"] {
        assert_eq!(raw.lines().filter(|line| line.starts_with(&format!("{name},"))).count(), 50, "{raw}");
        assert!(raw.contains(&format!("{name} latency raw data: op, timestamp(ms), latency(us)\n")));
        assert!(raw.contains(&format!("[{name}], Total Operations, 50\n")));
    }
    let both = ["measurementtype=hdrhistogram+raw", "measurement.raw.output_file=raw.csv"];
    let printed = with(&both);
    let said = "Raw data measurement: will output to result file: raw.csv\n";
    let figures = figures(printed.strip_prefix(said).unwrap());
    let lines = fs::read_to_string(place.here().join("raw.csv")).unwrap();
    let count = |of: &str| lines.lines().filter(|line| line.starts_with(of)).count() as f64;
    for name in ["READ", "UPDATE", "CLEANUP"] {
        let expected = figures[&(format!("Hdr{name}"), "Operations".to_string())];
        assert_eq!(count(&format!("Raw{name},")), expected, "{name}");
    }
    let csv = with(&["measurementtype=csv"]);
    let lines: Vec<&str> = csv.lines().skip_while(|line| !line.starts_with("operation,")).collect();
    assert_eq!((lines[0], lines.len()), ("operation,timestamp_us,latency_us", 101), "{csv}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("TOTAL,")).count(), 50);
    let plain = with(&["outputstyle=plain", "updateproportion=0"]);
    assert!(plain.contains("\nREAD   - Takes(s): ") && plain.contains("\nTOTAL  - Takes(s): "), "{plain}");
    assert!(plain.contains("Run finished, takes ") && plain.contains(", Count: 50, OPS: "), "{plain}");
    let unknown = common.iter().copied().chain(["-p", "outputstyle=tabel"]).collect::<Vec<_>>();
    assert!(place.run(&unknown).with_code(&[2]).stderr.contains("did you mean `table`?"));
}

#[test]
fn batches_lose_nothing_and_few_operations_need_few_sessions() {
    let place = Place::new();
    let load = ["ycsb", "load", "null", "-p", "recordcount=10", "-p", "batchsize=3", "-threads", "16"];
    let load = place.run(&load).with_code(&[0]);
    let text = load.stdout.strip_prefix(
        "Warning: the threadcount is bigger than recordcount, the threadcount will be recordcount!\n",
    );
    let figures = figures(text.expect("YCSB's warning"));
    assert_eq!(figures[&("INSERT".into(), "Operations".into())], 4.0);
    assert_eq!(figures[&("CLEANUP".into(), "Operations".into())], 4.0);
}

#[test]
fn an_engine_is_loaded_and_checked_field_by_field() {
    let place = Place::new();
    let common = [
        "-p",
        "wiredtiger.dir=data",
        "-p",
        "wiredtiger.cache=32 MiB",
        "-p",
        "recordcount=300",
        "-p",
        "dataintegrity=true",
        "-p",
        "operationcount=2000",
        "-threads",
        "2",
    ];
    let ycsb = |phase: &str| {
        let typed: Vec<&str> = ["ycsb", phase, "wiredtiger"].into_iter().chain(common).collect();
        place.run(&typed).with_code(&[0])
    };
    assert_eq!(figure(&ycsb("load"), "INSERT", "Return=OK"), 300.0);
    let run = ycsb("run");
    let read = figure(&run, "READ", "Return=OK");
    assert_eq!(read + figure(&run, "UPDATE", "Return=OK"), 2000.0, "{}", run.stdout);
    assert_eq!(figure(&run, "VERIFY", "Return=OK"), read, "{}", run.stdout);
}

/// Ends the laboratory also when the test fails.
struct Down<'a>(&'a Place, &'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&["lab", "down", "--name", self.1]);
    }
}

#[test]
fn postgres_is_loaded_run_and_checked_through_the_bindings_properties() {
    let _alone = alone();
    let place = Place::new();
    let name = format!("ycsb-{}", std::process::id());
    let _down = Down(&place, &name);
    let up = place.run(&["lab", "up", "postgres", "--name", &name, "--loopback"]);
    if up.stderr.contains("is not installed") {
        return skipped(up.stderr.trim());
    }
    up.with_code(&[0]);
    let url = ["lab", "exec", "a", "--name", &name, "--", "sh", "-c", "echo $TIPOVER_URL"];
    let url = place.run(&url).with_code(&[0]).stdout.trim().to_string();
    let password = url.split("://").nth(1).and_then(|rest| rest.split_once(':')?.1.split_once('@'));
    let (password, server) = password.expect("an address with a password");
    let jdbc = format!("db.url=jdbc:postgresql://{}", server.split('?').next().unwrap_or_default());
    let secret = format!("db.passwd={password}");
    let ycsb = |phase: &str, code: i32, more: &[&str]| {
        let common = ["-p", "db.user=tipover", "-p", &jdbc, "-p", &secret, "-p", "recordcount=505"];
        let typed: Vec<&str> = ["ycsb", phase, "jdbc"].iter().chain(&common).chain(more).copied().collect();
        let ended = place.run(&typed).with_code(&[code]);
        assert!(!ended.stderr.contains(password) && !ended.stdout.contains(password), "{}", ended.stderr);
        ended
    };
    let batched = ycsb("load", 0, &["-p", "batchsize=100", "-p", "dataintegrity=true", "-threads", "2"]);
    assert_eq!(figure(&batched, "INSERT", "Operations"), 6.0);
    let runtime = figure(&batched, "OVERALL", "RunTime(ms)");
    let records = figure(&batched, "OVERALL", "Throughput(ops/sec)") * runtime / 1000.0;
    assert!((records - 505.0).abs() < 0.01, "every record counts, also those of the last batch: {records}");
    let run = ycsb("run", 0, &["-p", "operationcount=1000", "-p", "dataintegrity=true", "-threads", "3"]);
    assert_eq!(figure(&run, "VERIFY", "Return=OK"), figure(&run, "READ", "Operations"));
    // Workload D inserts beyond recordcount: a second time those records exist.
    let file = shipped("workloadd");
    let newest = ["-P", &file, "-p", "operationcount=1000", "-p", "target=4000", "-threads", "3"];
    let inserted = figure(&ycsb("run", 0, &newest), "INSERT", "Return=OK");
    assert!(inserted > 20.0, "{inserted}");
    let again = ycsb("run", 0, &newest);
    assert_eq!(figure(&again, "INSERT", "Return=ERROR"), inserted);
    assert!(again.stderr.contains("met a record that exists"), "{}", again.stderr);
    // The same records once more stop the load.
    let twice = ycsb("load", 1, &[]);
    assert!(twice.stderr.contains("the load was stopped as YCSB does"), "{}", twice.stderr);
    no_file_shows(&place, &url, password);
}

/// What a run on the server at `url` leaves behind and says has no `password` in it.
fn no_file_shows(place: &Place, url: &str, password: &str) {
    let plan = format!(
        "name = \"kept\"\ntitle = \"\"\nquestion = \"\"\nwhy = \"\"\nhow_to_read = \"\"\nrepeats = 1\n\
         [target]\nkind = \"postgres\"\naddress = \"{url}\"\n\
         [workload]\nkind = \"ycsb\"\ntable = \"kept\"\nrecords = 100\n[load]\nsessions = 2\n\
         [trial]\nwarm_up_least = \"0 s\"\nmeasure_least = \"1 s\"\nmeasure_most = \"1 s\"\n\
         [[sweep]]\nname = \"s\"\nquestion = \"\"\n[[sweep.axis]]\nname = \"a\"\nsets = \"load.sessions\"\n\
         values = [2]\n[scale.quick]\n"
    );
    place.write("kept.toml", &plan);
    let ran = place.run(&["run", "kept.toml"]).with_code(&[0, 1]);
    let kept = place.here().join("results/kept");
    let mut files = 0;
    for file in below(&kept).into_iter().map(|path| kept.join(path)).filter(|path| path.is_file()) {
        let bytes = fs::read(&file).expect("a file that was listed");
        let shows = bytes.windows(password.len()).any(|window| window == password.as_bytes());
        assert!(!shows, "{} shows the password", file.display());
        files += 1;
    }
    assert!(files >= 4, "record, series, log and report: {}", ran.stderr);
    assert!(!ran.stdout.contains(password) && !ran.stderr.contains(password));
}

#[test]
fn a_mongodb_uri_is_loaded_run_and_checked() {
    let login = Some(("anna".to_string(), "p4ss".to_string()));
    let settings = Settings { nodes: 3, set_name: Some("rs0".into()), login, ..Settings::default() };
    let set = ReplicaSet::start(settings).expect("ports are free");
    let place = Place::new();
    let url = format!("mongodb.url={}", set.url());
    let ycsb = |phase: &str, more: &[&str]| {
        let common = ["-p", &url, "-p", "recordcount=305", "-p", "dataintegrity=true", "-threads", "3"];
        let typed: Vec<&str> =
            ["ycsb", phase, "mongodb"].iter().chain(&common).chain(more).copied().collect();
        let ended = place.run(&typed).with_code(&[0]);
        assert!(!ended.stderr.contains("p4ss") && !ended.stdout.contains("p4ss"), "{}", ended.stderr);
        ended
    };
    let load = ycsb("load", &["-p", "batchsize=100", "-p", "mongodb.writeConcern=majority"]);
    assert_eq!(figure(&load, "INSERT", "Operations"), 4.0);
    let run = ycsb("run", &["-p", "operationcount=600", "-p", "mongodb.writeConcern=journaled"]);
    assert_eq!(figure(&run, "VERIFY", "Return=OK"), figure(&run, "READ", "Operations"));
    let updated = figure(&run, "UPDATE", "Return=OK");
    assert_eq!(figure(&run, "READ", "Return=OK") + updated, 600.0, "{}", run.stdout);
    // Scans and inserts, on the address alone.
    let file = shipped("workloade");
    let (address, [records, operations]) = (set.url(), ["recordcount=305", "operationcount=200"]);
    let typed = ["ycsb", "run", &address, "-P", &file, "-p", records, "-p", operations, "-threads", "2"];
    let scans = place.run(&typed).with_code(&[0]);
    assert_eq!(figure(&scans, "SCAN", "Return=OK") + figure(&scans, "INSERT", "Return=OK"), 200.0);
    let wrong = set.url().replace("p4ss", "hunter2");
    let refused = place.run(&["ycsb", "run", &wrong, "-p", records, "-p", operations]).with_code(&[1]);
    assert!(refused.stderr.to_lowercase().contains("auth"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
}

#[test]
fn mistakes_end_with_a_sentence_and_two() {
    let place = Place::new();
    for (typed, answer) in [
        (&["run", "postgress"][..], "did you mean `postgres`?"),
        (&["run", "jdbc"], "jdbc needs db.url"),
        (&["run", "null", "-P", "nowhere"], "nowhere: No such file"),
        (&["run", "null", "-thread", "5"], "did you mean `threads`?"),
        (&["run", "null", "-p", "recordcount=many"], "recordcount = \"many\" is not a number"),
        (&["run", "null", "-p", "requestdistribution=zipfain"], "did you mean `zipfian`?"),
        (&["load", "null", "-p", "recordcount=5", "-p", "insertcount=9"], "go beyond recordcount 5"),
        (&["run", "null", "-p", "exportfile=no/such/folder"], "no/such/folder: No such file"),
    ] {
        let typed: Vec<&str> = std::iter::once("ycsb").chain(typed.iter().copied()).collect();
        let ended = place.run(&typed).with_code(&[2]);
        assert!(ended.stderr.contains(answer) && ended.stdout.is_empty(), "{typed:?}: {}", ended.stderr);
    }
    // A server that is not there is no mistake of the user's.
    let absent = [
        "ycsb",
        "run",
        "postgres://anna:secret@127.0.0.1:1/x",
        "-p",
        "recordcount=5",
        "-p",
        "operationcount=5",
    ];
    let ended = place.run(&absent).with_code(&[1]);
    assert!(ended.stderr.contains("127.0.0.1") && !ended.stderr.contains("secret"), "{}", ended.stderr);
}
