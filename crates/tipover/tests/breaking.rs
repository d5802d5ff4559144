//! `tipover break` with the built program: an unsafe setting loses what it acknowledged in a power cut, a
//! safe one does not, and nothing is left behind, however it ends.

mod program;

use program::traces::{self, Suspect};
use program::{Place, alone, can_mount, skipped};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

const SERVER: &str = "check-server";
const DAEMON: &str = "disk-daemon";

const CUT: [&str; 10] = [
    "break",
    "wiredtiger",
    "--disk",
    "latency=1ms",
    "--disk-size",
    "512 MiB",
    "--sessions",
    "2",
    "--think",
    "1 ms",
];

fn suspect(place: &Place, laboratory: u32) -> Suspect {
    Suspect { folder: place.here(), laboratory, daemons: place.processes(DAEMON) }
}

/// Fails unless everything that a run made ends by itself: mounts, devices, processes.
#[track_caller]
fn assert_all_gone(place: &Place, suspect: &Suspect) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let mut left = traces::left(suspect);
        for verb in [SERVER, DAEMON] {
            left.extend(place.processes(verb).iter().map(|id| format!("process {id}: {verb}")));
        }
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < patience, "left behind: {left:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The records of the only campaign below a results folder, by durability.
fn records(place: &Place, results: &str) -> Vec<(String, Value)> {
    let paths =
        place.content().into_iter().filter(|path| path.ends_with("record.json") && path.starts_with(results));
    paths
        .map(|path| {
            let text = std::fs::read_to_string(place.here().join(path)).expect("a record");
            let record: Value = serde_json::from_str(&text).expect("JSON");
            let durability = record["spec"]["target"]["durability"].as_str().expect("a word").to_string();
            (durability, record)
        })
        .collect()
}

/// Fails unless every stored run is judged again as it was judged when it was run.
#[track_caller]
fn assert_judged_again(place: &Place, results: &str) {
    let judged = place.run(&["--json", "audit", "--checks", results]);
    let judged: Value = serde_json::from_str(&judged.stdout).unwrap_or_else(|_| panic!("{}", judged.stderr));
    let all = judged.as_array().expect("a list");
    assert_eq!(all.len(), records(place, results).len());
    for again in all {
        assert!(again["recorded"].is_string(), "a run has a verdict: {again}");
        assert_eq!(again["recorded"], again["judgement"]["verdict"], "{again}");
    }
}

#[test]
fn a_power_cut_tells_a_safe_setting_from_an_unsafe_one() {
    if !can_mount("a power cut") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let traces = || suspect(&place, 0);
    let compared = ["--durability", "acknowledged", "--against", "durability=journalled", "--times", "1"];
    let ended = place.run(&[&["--results", "cut"], &CUT[..], &compared[..]].concat()).with_code(&[1]);
    let records = records(&place, "cut");
    // Each durability on a block device and on files.
    assert_eq!(records.len(), 4, "{}", ended.stderr);
    for (durability, record) in &records {
        let broken = &record["broken"];
        let losses = &broken["ledger"]["losses"];
        let lost = losses["lost"].as_u64().unwrap_or_else(|| panic!("no losses: {record}"));
        let fault = &broken["faults"][0];
        assert_eq!(fault["effect"], "fired", "{fault}");
        assert!(fault["evidence"].to_string().contains("processes killed"), "{fault}");
        assert!(fault["outages"][0]["lost_blocks"].is_u64(), "what was at risk: {fault}");
        match durability.as_str() {
            // Its log is flushed ten times a second; what was acknowledged since is gone.
            "acknowledged" => assert!(lost > 0 && broken["verdict"] == "invalid", "{losses}"),
            _ => assert!(lost == 0 && broken["verdict"] != "invalid", "{losses}"),
        }
        assert!(losses["faults"][0]["first_success_ns"].is_u64(), "it came back: {losses}");
    }
    assert!(ended.stdout.contains("CONVICTED"), "{}", ended.stdout);
    // Running again adds nothing.
    let again = place.run(&[&["--results", "cut"], &CUT[..], &compared[..]].concat()).with_code(&[1]);
    assert!(again.stderr.contains("4 were there already"), "{}", again.stderr);
    assert_judged_again(&place, "cut");
    assert_all_gone(&place, &traces());
}

/// The power goes again and again while clients write: whoever flushes before it acknowledges loses nothing
/// in any cut, whichever way its disk is mounted and whatever tears; whoever does not is convicted.
#[test]
fn many_cuts_convict_no_honest_store_and_let_no_guilty_one_escape() {
    const CUTS: usize = 4;
    if !can_mount("power cuts in a loop") {
        return;
    }
    let _alone = alone();
    // One sinner acknowledges long before it flushes, the other as soon as it has asked for the flush. What
    // they acknowledged less than a window before a cut, which is half of what a flush takes, is lost for
    // certain; a cut that comes before they are back from the last one meets nothing of that. As files the
    // kernel locks a file while it is flushed, so that the second one waits for flushes against its will.
    let slow = "latency=500us,flush_latency=40ms";
    let sins = [("", slow), ("flush_later=300 ms", "latency=500us"), ("unawaited_flushes=100 %", slow)];
    for (sin, disk) in sins {
        let guilty = !sin.is_empty();
        let place = Place::new();
        let faults = format!("every 2 s times {CUTS}: power cut all, restart after 100 ms");
        let mut words = vec!["break", "guilty", "--disk", disk, "--disk-size", "256 MiB"];
        words.extend(["--times", "1", "--think", "1 ms", "--window", "20 ms", "--faults", &faults]);
        if guilty {
            // Half of what a torn cut meets survives it, which may be all that a sinner had at risk.
            words.extend(["--set", sin, "--power", "survive=0%"]);
        }
        let ended = place.run(&words);
        let records = records(&place, "results");
        assert_eq!(records.len(), 2, "{}", ended.stderr);
        for (_, record) in &records {
            let broken = &record["broken"];
            let faults = broken["ledger"]["losses"]["faults"].as_array().expect("faults");
            assert_eq!(faults.len(), CUTS, "{broken}");
            let lost: Vec<u64> = faults.iter().filter_map(|fault| fault["lost"].as_u64()).collect();
            match guilty {
                true => {
                    let convicted = |fault: &Value| fault["lost"].as_u64() > Some(0);
                    let met_none = |fault: &Value| fault["acknowledged_in_window"] == 0;
                    let waits = sin.starts_with("unawaited") && record["spec"]["disk"]["mode"] == "file";
                    assert!(waits || faults.iter().any(convicted), "{sin}: {faults:#?}");
                    let all = faults.iter().all(|fault| convicted(fault) || met_none(fault));
                    assert!(waits || all, "{sin}: {faults:#?}");
                }
                false => {
                    assert_ne!(broken["verdict"], "invalid", "{broken}");
                    assert!(lost.iter().all(|lost| *lost == 0), "{lost:?}: {faults:#?}");
                }
            }
        }
    }
}

/// What is planted, what is broken, who is asked, and what is said of it.
const CULPRITS: [(&str, &str, &str, &str); 11] = [
    ("lost_updates=20%", "none", "ledger", "LOST"),
    ("lost_updates=20%", "none", "bank", "LOST"),
    ("lost_updates=20%", "none", "isolation", "broken by"),
    // What is lost at the end was acknowledged, whatever isolation was claimed.
    ("flush_later=1 s", "at 1 s: kill all, restart after 100 ms", "isolation", "LOST"),
    ("rolled_back=20", "at 1 s: kill all, restart after 100 ms", "register", "not linearizable"),
    ("dirty_reads=100%", "none", "bank", "wrong total"),
    ("stale_reads=20%", "none", "register", "not linearizable"),
    ("flush_later=1 s", "at 1 s: kill all, restart after 100 ms", "ledger", "LOST"),
    ("retried_twice=20%", "none", "bank", "DOUBLED"),
    ("retried_twice=20%", "none", "isolation", "append applied twice"),
    ("rolled_back=20", "at 1 s: kill all, restart after 100 ms", "ledger", "LOST"),
];

#[test]
fn every_planted_culprit_is_convicted_and_the_honest_one_is_not() {
    let run = |sin: &str, faults: &str, checks: &str| {
        let place = Place::new();
        let mut words = vec!["break", "guilty", "--disk", "none", "--times", "1", "--length", "1500 ms"];
        words.extend(["--window", "1 s", "--faults", faults, "--checks", checks]);
        if !sin.is_empty() {
            words.extend(["--set", sin]);
        }
        let ended = place.run(&words);
        let records = records(&place, "results");
        let (_, record) = records.first().unwrap_or_else(|| panic!("{sin}: no record: {}", ended.stderr));
        assert_judged_again(&place, "results");
        (record["broken"].clone(), ended)
    };
    std::thread::scope(|scope| {
        for (sin, faults, checks, evidence) in CULPRITS {
            scope.spawn(move || {
                let (broken, ended) = run(sin, faults, checks);
                assert_eq!(broken["verdict"], "invalid", "{sin}, {checks}: {broken}");
                assert!(broken.to_string().contains(evidence), "{sin}, {checks}: {broken}");
                assert!(ended.stdout.contains("CONVICTED"), "{sin}, {checks}: {}", ended.stdout);
                ended.with_code(&[1]);
            });
        }
        scope.spawn(move || {
            let (broken, _) = run("", CULPRITS[5].1, "ledger,bank,register,isolation");
            assert_ne!(broken["verdict"], "invalid", "{broken}");
            for (finding, checker) in
                broken["others"].as_array().expect("findings").iter().zip(["register", "isolation"])
            {
                assert_eq!(
                    (&finding["checker"], &finding["verdict"]),
                    (&checker.into(), &"valid".into()),
                    "{finding}"
                );
            }
        });
    });
}

/// What happened when, on the page: the kill stands where the record says, and what users got falls there.
#[test]
fn the_page_of_a_kill_shows_it_on_a_timeline() {
    let place = Place::new();
    let words =
        ["break", "guilty", "--disk", "none", "--times", "1", "--length", "4 s", "--checks", "ledger"];
    let ended = place.run(&[&words[..], &["--faults", "at 1 s: kill all, restart after 1 s"]].concat());
    let (_, record) = records(&place, "results").remove(0);
    let (fault, begin) =
        (&record["broken"]["faults"][0], record["measured"]["begin"].as_u64().expect("a tick"));
    let second = |tick: &Value| (tick.as_f64().expect("a tick") - begin as f64) / 1e9;
    let name = record["experiment"].as_str().expect("a name");
    let page = place.run(&["--json", "report", name]);
    let page: Value = serde_json::from_str(&page.stdout).unwrap_or_else(|_| panic!("{}", page.stderr));
    let sections = page["sections"].as_array().expect("sections");
    let timeline = sections.iter().find(|section| section["id"] == "timeline").expect("a timeline");
    let panels = &timeline["blocks"][0]["panels"];
    let mark = &panels["marks"][0];
    assert!((mark["from"].as_f64().expect("seconds") - second(&fault["at_ns"])).abs() < 1e-9, "{mark}");
    assert!((mark["to"].as_f64().expect("seconds") - second(&fault["undone_ns"])).abs() < 1e-9, "{mark}");
    assert!(mark["text"].as_str().expect("words").starts_with("kill all, restart after 1 s"), "{mark}");
    let done = panels["charts"][0]["series"][0]["points"].as_array().expect("points");
    let (from, to) = (second(&fault["at_ns"]), second(&fault["undone_ns"]));
    let rates = |during: bool| {
        let within = move |at: f64| from + 0.3 < at && at < to - 0.3;
        let points = done.iter().filter(move |point| within(point["x"].as_f64().expect("seconds")) == during);
        points.map(|point| point["y"].as_f64().expect("a rate")).collect::<Vec<f64>>()
    };
    assert!(rates(true).iter().all(|rate| *rate == 0.0) && !rates(true).is_empty(), "{done:?}");
    assert!(rates(false)[0] > 0.0, "{done:?}");
    assert!(sections.iter().any(|section| section["id"] == "nodes"), "its node is in a table");
    let said = record["broken"]["verdict"].as_str().expect("a word").replace('_', " ");
    assert!(ended.stdout.contains(&said), "the terminal says {said}: {}", ended.stdout);
}

/// YCSB in an open loop, with the ledger beside it: its sessions must hear of the new primary.
#[test]
fn a_load_goes_on_with_the_new_primary_and_every_due_operation_is_accounted_for() {
    let place = Place::new();
    let small = ["workload.records=2000", "trial.warm_up_least=1 s"];
    let faults = ["break.faults=at 1 s: kill primary, restart after 4 s", "break.length=9 s"];
    let set = small.iter().chain(&faults).flat_map(|setting| ["--set", setting]);
    let words = ["run", "failover", "--scale", "tiny", "--only", "disk=600 IOPS + 1 ms"];
    let ended = place.run(&words.into_iter().chain(set).collect::<Vec<_>>());
    let (_, record) = records(&place, "results").remove(0);
    let broken = &record["broken"];
    // A machine that is busy enough acknowledges too little just before the kill for a verdict, and says so.
    let verdict = broken["verdict"].as_str().expect("a word");
    assert!(
        ["valid", "no_evidence"].contains(&verdict),
        "{verdict}: {:#}\n{}",
        broken["problems"],
        ended.stderr
    );
    assert_eq!(broken["ledger"]["losses"]["faults"][0]["lost"], 0, "{}", broken["ledger"]);
    assert!(!record["verdict"].to_string().contains("neither answered"), "{}", record["verdict"]);
    let primaries = record["broken"]["faults"][0]["primaries"].as_array().expect("who took over");
    assert_eq!(primaries.len(), 1, "{}", ended.stderr);
    let kept = place.content().into_iter().find(|path| path.ends_with("series.jsonl")).expect("a series");
    let series = std::fs::read_to_string(place.here().join(kept)).expect("a text");
    let lines = series.lines().map(|line| serde_json::from_str::<Value>(line).expect("an interval"));
    let took_over = primaries[0]["at_ns"].as_u64().expect("a tick");
    let undone = record["broken"]["faults"][0]["undone_ns"].as_u64().expect("a tick");
    let after = lines.filter(|line| {
        let (begin, end) = (line["begin"].as_u64().expect("a tick"), line["end"].as_u64().expect("a tick"));
        took_over < begin && end < undone
    });
    let begun: u64 = after.map(|line| line["offered"]["begun"].as_u64().unwrap_or(0)).sum();
    assert!(begun > 100, "{begun} operations were sent between the new primary and the old one's return");
}

/// Nobody planted this one: its transactions read, decide and write, and never hear of each other.
#[test]
fn polodb_is_convicted_of_the_updates_that_it_loses() {
    let polodb = match tipover_lab::recipe::Polodb::find(None) {
        Ok(polodb) => polodb,
        Err(missing) => return skipped(&missing.to_string()),
    };
    let place = Place::new();
    let path = polodb.path().display().to_string();
    let words = ["break", "polodb", "--polodb", &path, "--disk", "none", "--faults", "none", "--times", "1"];
    let load = ["--checks", "bank", "--accounts", "10", "--sessions", "8", "--length", "6 s"];
    let ended = place.run(&[&words[..], &load[..]].concat()).with_code(&[1]);
    let records = records(&place, "results");
    let broken = &records[0].1["broken"];
    assert_eq!(broken["verdict"], "invalid", "{}", ended.stderr);
    assert!(broken["bank"]["finding"]["counts"]["accounts off"].as_u64() > Some(0), "{broken}");
}

#[test]
fn a_killed_campaign_leaves_nothing_and_goes_on() {
    if !can_mount("a campaign that is killed") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let once = ["--durability", "written", "--times", "1", "--disk-mode", "block"];
    let arguments = [&["--results", "kept"], &CUT[..], &once].concat();
    let mut running = place.start(&arguments);
    running.until("the engine serves", |place| (!place.processes(SERVER).is_empty()).then_some(()));
    let traces = suspect(&place, running.id());
    assert!(!traces::left(&traces).is_empty(), "the test sees what is mounted");
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, None);
    assert_all_gone(&place, &traces);
    assert!(records(&place, "kept").is_empty(), "an unfinished run is no run");
    place.run(&arguments).with_code(&[0, 1]);
    assert_eq!(records(&place, "kept").len(), 1);
}

#[test]
fn wrong_words_are_refused_before_anything_starts() {
    let place = Place::new();
    for (arguments, words) in [
        (vec!["break", "postgers"], "did you mean `postgres`"),
        (vec!["break", "postgres", "--checks", "registre"], "did you mean `register`"),
        (vec!["break", "postgres", "--checks", "isolation", "--isolation", "serialisable"], "`serializable`"),
        (vec!["break", "polodb", "--faults", "kil all"], "did you mean \"kill\""),
        (vec!["break", "postgres", "--faults", "kil all"], "did you mean \"kill\""),
        (vec!["break", "postgres", "--faults", "jump clock of a back 5 s"], "wall clock"),
        (vec!["break", "postgres", "--faults", "kill z"], "no node \"z\""),
        (vec!["break", "postgres", "--disk", "none", "--faults", "power cut all"], "[disk]"),
        (vec!["break", "postgres", "--disk", "floppy"], "no disk profile"),
    ] {
        let ended = place.run(&arguments).with_code(&[2]);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
    assert!(place.content().is_empty(), "{:?}", place.content());
}

/// TPC-B while the power is cut: a server that acknowledges before it flushes is convicted of the
/// transactions that are gone, by name; its honest twin is not; and where no transaction was acknowledged
/// there is no evidence.
#[test]
fn lost_transactions_of_tpcb_are_seen_where_all_sums_agree() {
    if !can_mount("a power cut under TPC-B") {
        return;
    }
    let _alone = alone();
    for (recipe, sin, honest) in [
        ("postgres", "synchronous_commit=off", "synchronous_commit=on"),
        ("mariadb", "innodb_flush_log_at_trx_commit=0", "innodb_flush_log_at_trx_commit=1"),
    ] {
        let place = Place::new();
        // So that it does not flush by itself just before the cut.
        let late = match recipe {
            "postgres" => "wal_writer_delay=10s",
            _ => "innodb_flush_log_at_timeout=20",
        };
        let mut words = vec!["break", recipe, "--checks", "tpcb", "--times", "1", "--disk-mode", "file"];
        words.extend(["--disk", "latency=500us", "--power", "survive=0%"]);
        words.extend(["--set", late, "--set", sin, "--against", honest]);
        if recipe == "mariadb" {
            // Its checkpoint may pass pages that it never flushed (docs/correctness.md): it gets less
            // reason to write any.
            words.extend(["--set", "innodb_adaptive_flushing=OFF"]);
            words.extend(["--set", "innodb_adaptive_flushing_lwm=70"]);
        }
        let ended = place.run(&words);
        if ended.stderr.contains("is not installed") {
            skipped(ended.stderr.trim());
            continue;
        }
        let ended = ended.with_code(&[1]);
        let paths = place.content().into_iter().filter(|path| path.ends_with("record.json"));
        let records: Vec<Value> = paths
            .map(|path| std::fs::read_to_string(place.here().join(path)).expect("a record"))
            .map(|text| serde_json::from_str(&text).expect("JSON"))
            .collect();
        assert_eq!(records.len(), 2, "{}", ended.stderr);
        let (name, value) = sin.split_once('=').expect("a setting");
        for record in &records {
            let guilty = record["spec"]["lab"]["settings"][name] == value;
            let broken = &record["broken"];
            let (books, finding) = (&broken["bank"], &broken["bank"]["finding"]);
            assert_eq!(finding["checker"], "tpcb", "{record}");
            let lost = books["losses"]["lost"].as_u64().expect("a number");
            if guilty {
                assert!(lost > 0 && finding["verdict"] == "invalid", "{recipe}: {finding}");
                assert!(finding["evidence"][0].to_string().contains("is not in the history"), "{finding}");
                assert_eq!(books["total_off"], 0, "the sums see nothing: {books}");
            } else {
                assert!(lost == 0 && broken["verdict"] != "invalid", "{recipe}: {broken}");
                assert!(finding["counts"]["durable"].as_u64() > Some(0), "{finding}");
            }
        }
        assert!(ended.stdout.contains("CONVICTED"), "{}", ended.stdout);
        let judged = place.run(&["--json", "audit", "--checks", "results"]);
        let judged: Value = serde_json::from_str(&judged.stdout).expect("JSON");
        for again in judged.as_array().expect("a list") {
            assert_eq!(again["recorded"], again["judgement"]["verdict"], "{again}");
        }
    }
}

/// A server is killed while its data are loaded: what was unknown is made known, all is there at the end, and
/// somebody says so.
#[test]
fn what_is_loaded_while_its_server_is_killed_is_complete_and_judged() {
    let _alone = alone();
    let place = Place::new();
    let plan = |workload: &str, breaking: &str| {
        format!(
            "name = \"p\"\ntitle = \"\"\nquestion = \"\"\nwhy = \"\"\nhow_to_read = \"\"\nrepeats = 1\n\
             [target]\nkind = \"postgres\"\n{workload}[load]\nsessions = 4\ntimeout = \"2 s\"\n[lab]\n\
             recipe = \"postgres\"\n[break]\nfrom = \"loading\"\nfaults = \"at 100 ms: kill all, restart after 200 ms\"\n\
             jitter = \"0 s\"\n{breaking}[[sweep]]\nname = \"s\"\nquestion = \"\"\naxis = []\n[scale.quick]\n"
        )
    };
    let ycsb = "[workload]\nkind = \"ycsb\"\nmix = \"c\"\nrecords = 6000\n";
    place.write("records.toml", &plan(ycsb, "checks = [\"ledger\"]\nsessions = 2\nlength = \"12 s\"\n"));
    let bank = "checks = [\"bank\"]\nbank = { accounts = 100000 }\nlength = \"10 s\"\n";
    place.write("accounts.toml", &plan("", bank));
    for (name, what, count) in [("records", "records", 6_000), ("accounts", "accounts", 100_000)] {
        let ended = place.run(&["run", &format!("{name}.toml"), "--results", name]);
        if ended.stderr.contains("is not installed") {
            return skipped(ended.stderr.trim());
        }
        let ended = ended.with_code(&[0]);
        let (_, record) = &records(&place, name)[0];
        assert_eq!(record["verdict"]["verdict"], "valid", "{name}: {record}{}", ended.stderr);
        let phases = record["phases"].as_array().expect("a list");
        let names: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
        assert_eq!(names[..4], ["start", "shape", "load", "measure"], "{name}");
        assert!(phases[2]["evidence"].as_str().expect("words").contains(&format!("all {count} {what}")));
        let others = record["broken"]["others"].as_array().expect("a list");
        let loading =
            others.iter().find(|finding| finding["checker"] == "loading").expect("a judge of loading");
        assert_eq!(loading["verdict"], "valid", "{name}: {loading}");
        let counted = |kind: &str| loading["counts"][kind].as_u64().unwrap_or(0);
        assert_eq!((counted("known to be there"), counted("faults while loading")), (count, 1));
        let tries = counted("tries with an unknown outcome") + counted("tries that were refused");
        assert!(tries > 0, "the kill met nothing: {name}: {loading}");
        assert_ne!(record["broken"]["verdict"], "invalid", "{name}: {}", record["broken"]);
        assert_judged_again(&place, name);
    }
    assert!(place.content().iter().any(|path| path.ends_with("loading.bin")));
}

/// A search whose cluster is loaded while its server is killed begins only when all that was acknowledged is
/// there, and says how that went.
#[test]
fn a_search_begins_on_what_was_loaded_under_faults() {
    let _alone = alone();
    let place = Place::new();
    let plan = "name = \"p\"\ntitle = \"\"\nquestion = \"\"\nwhy = \"\"\nhow_to_read = \"\"\nrepeats = 1\n\
                [target]\nkind = \"postgres\"\n[workload]\nkind = \"ycsb\"\nmix = \"b\"\nrecords = 6000\n\
                [load]\nsessions = 4\ntimeout = \"2 s\"\n[trial]\nwarm_up_least = \"1 s\"\n[lab]\nrecipe = \"postgres\"\n\
                [break]\nfrom = \"loading\"\nsessions = 1\nlength = \"12 s\"\njitter = \"0 s\"\n\
                faults = \"at 100 ms: kill all, restart after 200 ms\"\n\
                [search]\npromises = [\"p50 <= 1 s\"]\nleast = 20\nmost = 40\nshort = \"1 s\"\nlong = \"1 s\"\n\
                duration_sum = \"2 s\"\nconfirmation = \"1 s\"\nconfirmations = 1\nbad_samples = 5\nbudget = \"20 s\"\n\
                interventions = false\n[[sweep]]\nname = \"s\"\nquestion = \"\"\naxis = []\n[scale.quick]\n";
    place.write("plan.toml", plan);
    let ended = place.run(&["find", "plan.toml"]);
    if ended.stderr.contains("is not installed") {
        return skipped(ended.stderr.trim());
    }
    let path = place.content().into_iter().find(|path| path.ends_with("search.json"));
    let path = path.unwrap_or_else(|| panic!("no record of a search: {}", ended.stderr));
    let text = std::fs::read_to_string(place.here().join(path)).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(record["failed"], Value::Null, "{}", ended.stderr);
    let (loaded, trials) = (&record["loaded"], &record["searches"][0]["trials"]);
    assert_eq!(loaded["verdict"], "valid", "{loaded}");
    assert_eq!(loaded["counts"]["known to be there"], 6_000);
    assert_eq!(loaded["counts"]["faults while loading"], 1, "{loaded}");
    assert!(trials.as_array().is_some_and(|trials| !trials.is_empty()), "{record}");
    let mut pages =
        place.content().into_iter().filter(|path| path.extension().is_some_and(|end| end == "html"));
    let says = |path: std::path::PathBuf| {
        let page = std::fs::read_to_string(place.here().join(path)).expect("a page");
        page.contains("Loaded under faults before the first trial")
    };
    assert!(pages.any(says), "no page says how it was loaded: {}", ended.stderr);
}
