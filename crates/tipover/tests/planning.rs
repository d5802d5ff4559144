//! `tipover plan` as people meet it, from trials in virtual time that lie in a results folder like real ones.

mod program;

use program::results::kept;
use program::{Ended, Place, alone, can_mount, mongod, skipped};
use serde_json::Value;
use std::fs;
use tipover_core::experiment::{Experiment, Trial};
use tipover_core::record::Record;
use tipover_core::search::{FinishedTrial, Rest, Step, next};
use tipover_core::trial::simulate::{Machine, trial};
use tipover_lab::recipe::{Mariadb, Mongod, Postgres, Server, ServerOptions};

const PLAN: &str = include_str!("../../../experiments/working-set.toml");

/// A folder with results of `working-set`, whose records were measured on a machine that was busy for some.
fn with_results(busy: fn(&mut Record)) -> Place {
    let place = Place::new();
    let folder = place.here().join("results/working-set");
    let experiment = Experiment::parse(PLAN, "quick", &[]).expect("the plan that comes with tipover");
    for cell in experiment.sweeps.iter().filter(|s| s.name == "reads").flat_map(|s| &s.cells) {
        let (mut record, _) =
            trial("working-set", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default());
        busy(&mut record);
        let trial = folder.join(cell.id()).join("0");
        fs::create_dir_all(&trial).expect("a folder");
        let record = serde_json::to_string(&record).expect("a record is data");
        fs::write(trial.join("record.json"), record).expect("a file");
    }
    fs::write(folder.join("plan.toml"), PLAN).expect("a file");
    place
}

const ASK: [&str; 6] = ["plan", "working-set", "--promise", "p99 <= 20 ms", "--load", "5000/s"];

#[test]
fn candidates_are_judged_and_the_studys_own_cells_predicted() {
    let place = with_results(|_| ());
    fs::write(
        place.here().join("shop.toml"),
        "[[machine]]\nmemory = \"70 MiB\"\ncores = 2\nprice_per_month = 10\n\
         [[machine]]\nmemory = \"1 GiB\"\ncores = 2\nprice_per_month = 30\n\
         [[disk]]\nname = \"slow\"\nspec = \"iops=100,latency=7ms\"\nprice_per_month = 1\n",
    )
    .unwrap();
    let with = |more: &[&str]| place.run(&ASK.iter().chain(more).copied().collect::<Vec<_>>());
    let more = ["--catalogue", "shop.toml", "--growth", "2 x / year", "-o", "plan.html", "--json"];
    let said = with(&more).with_code(&[0]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(answer["candidates"].as_array().unwrap().len(), 2);
    assert_eq!(answer["best"]["price_per_month"], 31.0, "all in memory: {answer}");
    let poor =
        answer["candidates"].as_array().unwrap().iter().find(|c| c["price_per_month"] == 11.0).unwrap();
    assert_eq!(poor["answer"], "does_not_hold", "{poor}");
    assert_eq!(answer["checked"].as_array().unwrap().len(), 12);
    assert!(
        answer["headline"].to_string().contains("months")
            || answer["headline"].to_string().contains("five years")
    );
    assert!(answer["headline"][0].as_str().unwrap().contains("is the cheapest of 2"), "{answer}");
    // Where one has no price nothing is cheapest.
    let unpriced = "[[machine]]\nmemory = \"70 MiB\"\ncores = 2\n[[machine]]\nmemory = \"1 GiB\"\ncores = 2\n\
                    price_per_month = 30\n[[disk]]\nname = \"slow\"\nspec = \"iops=100,latency=7ms\"\nprice_per_month = 1\n";
    place.write("unpriced.toml", unpriced);
    let said = with(&["--catalogue", "unpriced.toml", "--json"]).with_code(&[0]).stdout;
    let partly: Value = serde_json::from_str(&said).unwrap();
    assert!(partly["headline"][0].as_str().unwrap().contains("is the smallest of 2"), "{partly}");
    let page = fs::read_to_string(place.here().join("plan.html")).unwrap();
    for words in ["How far to trust it", "Memory is a cliff", "assumed"] {
        assert!(page.contains(words), "{words}");
    }
    // Nothing can do a million operations per second on two processors.
    let said = place
        .run(&["plan", "working-set", "--promise", "p99 <= 20 ms", "--load", "1000000/s"])
        .with_code(&[1]);
    assert!(said.stdout.contains("None of "), "{}", said.stdout);
}

/// Cells in cache that a neighbour made three times slower: the others say what they should have been, so the
/// plan knows that it knows nothing.
#[test]
fn a_study_that_contradicts_itself_plans_nothing() {
    let place = with_results(|record| {
        let in_cache = ["92 %", "138 %"].map(Some).contains(&record.label("working_set"));
        if let Some(measured) = record.measured.as_mut().filter(|_| in_cache) {
            measured.end.0 += (measured.end.0 - measured.begin.0) * 2;
        }
    });
    let said = place.run(&ASK.iter().chain(&["--json"]).copied().collect::<Vec<_>>()).with_code(&[1]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(answer["contradicted"], true, "{:#}", answer["checked"]);
    assert!(answer["best"].is_null());
    assert!(
        answer["candidates"].as_array().unwrap().iter().all(|one| one["answer"] == "cannot_tell"),
        "{answer}"
    );
    let page = place.run(&ASK).with_code(&[1]).stdout;
    assert!(page.contains("contradicts the prediction") && !page.contains("✓ holds"), "{page}");
}

/// Real trials of one candidate: what they say is a matter of the machine, that they are there is not.
#[test]
fn a_candidate_is_carried_out_and_asking_again_measures_nothing() {
    if !can_mount("a candidate of a plan") {
        return;
    }
    let _alone = alone();
    let place = with_results(|_| ());
    let plan = place.here().join("results/working-set/plan.toml");
    fs::write(&plan, PLAN.replace("repeats = 3", "repeats = 1")).unwrap();
    let cores = std::thread::available_parallelism().unwrap();
    let shop = |cores: usize| {
        format!(
            "[[machine]]\nmemory = \"96 MiB\"\ncores = {cores}\nengine_cache = \"48 MiB\"\n\
             [[disk]]\nname = \"slow\"\nspec = \"iops=2000,latency=1ms\"\n"
        )
    };
    let ask = |cores: usize| {
        fs::write(place.here().join("shop.toml"), shop(cores)).unwrap();
        let more = ["--catalogue", "shop.toml", "--records", "20000", "--check", "--json", "-o", "plan.html"];
        place.run(&ASK.iter().chain(&more).copied().collect::<Vec<_>>())
    };
    let first = ask(cores.get()).with_code(&[0, 1]);
    assert!(first.stderr.contains("carried out on this machine") && first.stderr.contains("estimate"));
    let answer: Value = serde_json::from_str(&first.stdout).unwrap();
    let check = &answer["carried_out"];
    assert_eq!(check["results"], "working-set-check");
    // A trial that cannot be believed says so, and there is no figure of it.
    let (measured, not) = (check["candidates"].as_array().unwrap(), check["passed_over"].as_array().unwrap());
    assert_eq!(measured.len() + not.len(), 1, "{check:#}");
    assert!(not.iter().all(|one| !one["why"].as_str().unwrap().is_empty()), "{check:#}");
    for one in measured {
        let foretold = one["foretold"].as_array().unwrap();
        assert_eq!((foretold.len(), foretold[0]["quantity"].as_str()), (5, Some("throughput_ops_per_s")));
        assert!(foretold[0]["measured"]["value"].as_f64().is_some_and(|x| x > 0.0), "{check:#}");
    }
    assert!(fs::read_to_string(place.here().join("plan.html")).unwrap().contains("Measured here"));
    let second = ask(cores.get()).with_code(&[0, 1]);
    assert!(!second.stderr.contains("estimate"), "nothing is missing: {}", second.stderr);
    let again: Value = serde_json::from_str(&second.stdout).unwrap();
    assert_eq!(again["carried_out"], answer["carried_out"]);
    // Processors are not limited, so other ones cannot be imitated.
    let refused = ask(cores.get() + 1).with_code(&[2]);
    assert!(refused.stderr.contains("no candidate can be imitated here"), "{}", refused.stderr);
}

const SEARCHED: &str = include_str!("../../../experiments/capacity.toml");

/// A folder with searches of `capacity`: places of this memory and this disk, whose promise holds up to
/// this load.
fn with_searches(places: &[(&str, &str, f64)]) -> Place {
    let place = Place::new();
    let folder = place.here().join("results/capacity");
    for (memory, disk, capacity) in places {
        let set =
            [("machine.memory".to_string(), memory.to_string()), ("disk.shape".into(), disk.to_string())];
        let experiment =
            Experiment::parse(SEARCHED, "quick", &set).expect("the plan that comes with tipover");
        let cell = &experiment.sweeps[0].cells[0];
        let search = experiment.search.as_ref().expect("a search");
        let goals = search.goals(1).expect("goals");
        let mut trials: Vec<FinishedTrial> = vec![];
        loop {
            match next(&trials, &goals) {
                Step::Run(request) => {
                    let scheduled = (request.load * request.duration.as_secs_f64()) as u64;
                    let bad = (0.01 * (request.load / capacity).powi(8)).min(1.0) * scheduled as f64;
                    let trial = serde_json::json!({
                        "load": request.load, "duration": request.duration, "lost_after": null, "scheduled": scheduled,
                        "late": [bad as u64, bad as u64], "failed": 0, "not_sent": 0, "unfinished": 0,
                        "generator_late": false, "late_generators": [], "purpose": request.purpose,
                        "rest": "baseline", "rested_for": { "secs": 0, "nanos": 0 }, "device": null, "canaries": [],
                    });
                    trials.push(serde_json::from_value(trial).expect("a trial"));
                }
                Step::CoolDown { .. } => trials.last_mut().expect("a trial").rest = Rest::Baseline,
                Step::Done(_) => break,
            }
        }
        let record = serde_json::json!({
            "format": tipover_core::record::FORMAT, "experiment": "capacity", "sweep": "mixed", "cell": cell.id(),
            "labels": cell.labels, "spec": cell.spec, "promises": search.promises, "missed": [], "target": {}, "cores": 2,
            "provenance": { "command": "", "version": "", "commit": "", "started_unix_s": 0 },
            "searches": [{ "changed": null, "goals": goals, "trials": trials }], "failed": null,
        });
        fs::create_dir_all(folder.join(cell.id())).expect("a folder");
        fs::write(folder.join(cell.id()).join("search.json"), record.to_string()).expect("a file");
    }
    fs::write(folder.join("plan.toml"), SEARCHED).expect("a file");
    place
}

/// A load that writes, of which there is no model: only places with no more, or no less, of everything
/// decide.
#[test]
fn candidates_between_searches_are_told_from_those_beyond_them() {
    let measured = [
        ("192 MiB", "iops=3000,latency=500us", 2400.0),
        ("192 MiB", "iops=600,latency=2ms", 500.0),
        ("512 MiB", "iops=3000,latency=500us", 5000.0),
    ];
    let place = with_searches(&measured);
    place.write(
        "shop.toml",
        "[[machine]]\nmemory = \"192 MiB\"\ncores = 2\nprice_per_month = 10\n\
         [[machine]]\nmemory = \"400 MiB\"\ncores = 2\nprice_per_month = 15\n\
         [[machine]]\nmemory = \"1 GiB\"\ncores = 2\nprice_per_month = 30\n\
         [[disk]]\nname = \"slow\"\nspec = \"iops=300,latency=2ms\"\nprice_per_month = 1\n\
         [[disk]]\nname = \"fast\"\nspec = \"iops=4000,latency=400us\"\nprice_per_month = 20\n",
    );
    let ask = |load: &str, more: &[&str]| {
        let ask =
            ["plan", "capacity", "--promise", "p99 <= 20 ms", "--load", load, "--catalogue", "shop.toml"];
        place.run(&ask.iter().chain(more).copied().collect::<Vec<_>>())
    };
    let json = |load: &str, codes: &[i32]| -> Value {
        let said = ask(load, &["--json", "--growth", "2 x / year", "-o", "plan.html"]).with_code(codes);
        serde_json::from_str(&said.stdout).unwrap()
    };
    let answer = json("2000/s", &[0]);
    let of = |answer: &Value, memory: &str, disk: &str| {
        let all = answer["candidates"].as_array().unwrap();
        let one = all
            .iter()
            .find(|one| one["machine"].as_str().unwrap().starts_with(memory) && one["disk"] == disk);
        one.unwrap_or_else(|| panic!("{answer:#}"))["answer"].as_str().unwrap().to_string()
    };
    assert_eq!(answer["best"]["price_per_month"], 30.0, "{answer:#}");
    assert_eq!(answer["best"]["in_a_year"], "cannot_tell", "nobody searched so many records");
    assert_eq!(of(&answer, "192 MiB", "slow"), "does_not_hold");
    // More memory on a slower disk is comparable with no search that failed this load.
    assert_eq!(of(&answer, "400 MiB", "slow"), "cannot_tell");
    assert_eq!(of(&answer, "1.00 GiB", "slow"), "cannot_tell");
    let next = answer["measure_next"].as_str().unwrap();
    let settings = "--set 'disk.shape=iops=300,latency=2ms' --set 'machine.memory=400 MiB'";
    assert!(next.ends_with(settings), "{next}");
    let page = fs::read_to_string(place.here().join("plan.html")).unwrap();
    for words in ["What was searched", "no more of anything", "Between the two nothing is computed"] {
        assert!(page.contains(words), "{words}");
    }
    // Beyond what was searched nothing is known.
    let answer = json("20000/s", &[1]);
    assert!(answer["best"].is_null() && of(&answer, "1.00 GiB", "fast") == "cannot_tell");
    assert!(ask("2000/s", &["--check"]).with_code(&[2]).stderr.contains("is searched itself"));

    // Twice the memory and a quarter of the load: a search that contradicts the others, and no answer.
    let mut culprit = measured.to_vec();
    culprit.push(("1 GiB", "iops=3000,latency=500us", 900.0));
    let place = with_searches(&culprit);
    let ask = ["plan", "capacity", "--promise", "p99 <= 20 ms", "--load", "2000/s", "--json"];
    let said = place.run(&ask).with_code(&[1]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(answer["contradicted"], true);
    assert!(
        answer["headline"][0].as_str().unwrap().starts_with("Searches contradict each other"),
        "{answer:#}"
    );
    assert!(answer["candidates"].as_array().unwrap().iter().all(|one| one["answer"] == "cannot_tell"));
}

const SERVER: &str = r#"
name = "server"
title = "A server"
question = "What does memory do to it?"
why = "A test."
how_to_read = "As always."
repeats = 1
[target]
kind = "postgres"
[machine]
memory = "160 MiB"
[disk]
size = "1 GiB"
shape = "iops=5000"
readahead = "0 B"
[workload]
kind = "ycsb_reads"
[load]
sessions = 4
timeout = "20 s"
[lab]
recipe = "postgres"
settings = { shared_buffers = "16MB" }
[trial]
interval = "500 ms"
warm_up_least = "2 s"
settle_most = "2 s"
measure_least = "3 s"
measure_operations = 1000
measure_most = "6 s"
[[sweep]]
name = "reads"
question = "In its buffers, and in the page cache."
[[sweep.axis]]
name = "records"
sets = "workload.records"
values = [4000, 40000]
[scale.quick]
"#;

/// Real trials of a server of the laboratory: its cache, its sizes and its processor time are read from their
/// records, and a candidate is such a server again. What the figures say is a matter of the machine.
#[test]
fn a_server_of_the_laboratory_is_planned_from_its_own_counters() {
    if !can_mount("a plan from PostgreSQL") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    place.write("server.toml", SERVER);
    place.write(
        "shop.toml",
        "[[machine]]\nmemory = \"192 MiB\"\ncores = 64\nengine_cache = \"24 MiB\"\n\
         [[disk]]\nname = \"slow\"\nspec = \"iops=2000,latency=1ms\"\n",
    );
    let said = place.run(&["run", "server.toml"]).with_code(&[0, 1]);
    let trials = kept(&place, "server");
    assert_eq!(trials.len(), 2, "{}", said.stdout);
    for trial in trials {
        // A machine that is slow today has figures too.
        let record = trial.folder.join("record.json");
        let mut json: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        assert!(json["measured"].is_object(), "{:?}", trial.record.verdict);
        json["verdict"] = serde_json::json!({ "verdict": "valid" });
        // Nor does it matter here who else used it meanwhile.
        for end in ["first", "last"] {
            json["measured"][end].as_object_mut().unwrap().remove("system");
        }
        fs::write(record, json.to_string()).unwrap();
    }
    let ask = |cores: usize| {
        let shop = place.here().join("shop.toml");
        let text = fs::read_to_string(&shop).unwrap();
        fs::write(&shop, text.replace("cores = 64", &format!("cores = {cores}"))).unwrap();
        let more = ["--catalogue", "shop.toml", "--check=1", "--json"];
        let ask = ["plan", "server", "--promise", "p99 <= 50 ms", "--load", "50/s"];
        place.run(&ask.iter().chain(&more).copied().collect::<Vec<_>>())
    };
    let said = ask(64).with_code(&[2]).stderr;
    assert!(said.contains("it has 64 processors"), "{said}");
    let said = ask(std::thread::available_parallelism().unwrap().get()).with_code(&[0, 1]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    let known = answer["known"].to_string();
    for words in
        ["size of the table, and of the index of its key", "the processor time of the server's group"]
    {
        assert!(known.contains(words), "{words}: {known}");
    }
    let hits = &answer["candidates"][0]["engine_hit"];
    assert!((0.3..1.0).contains(&hits["middle"].as_f64().unwrap()), "24 of 48 MiB: {hits}");
    let check = &answer["carried_out"];
    assert_eq!(check["candidates"].as_array().unwrap().len(), 1, "{check:#}");
    let foretold = check["candidates"][0]["foretold"].as_array().unwrap();
    let measured = |quantity: &str| {
        let one = foretold.iter().find(|one| one["quantity"] == quantity).unwrap();
        one["measured"]["value"].as_f64().unwrap_or_else(|| panic!("{one:#}"))
    };
    assert!(measured("throughput_ops_per_s") > 0.0 && measured("engine_hit_ratio") < 1.0, "{check:#}");
    let plan = fs::read_to_string(place.here().join("results/server-check/plan.toml")).unwrap();
    assert!(plan.contains("shared_buffers = \"24576kB\""), "{plan}");
}

#[test]
fn what_cannot_be_planned_is_refused_in_words() {
    let place = with_results(|_| ());
    let with = |more: &[&str]| {
        place.run(&ASK.iter().chain(more).copied().collect::<Vec<_>>()).with_code(&[2]).stderr
    };
    for (text, wanted) in [
        (
            "[[machine]]\nmemory = \"1 GiB\"\ncores = 2\n[[disk]]\nname = \"x\"\nspec = \"latency=1ns\"\n",
            "faster than physics",
        ),
        ("[[machine]]\nmemmory = \"1 GiB\"\n", "line 2: unknown field `memmory`"),
        ("disk = []\n", "missing field `machine`"),
    ] {
        fs::write(place.here().join("shop.toml"), text).unwrap();
        let said = with(&["--catalogue", "shop.toml"]);
        assert!(said.contains(wanted), "{said}");
    }
    assert!(with(&["--catalogue", "none.toml"]).contains("none.toml"));
    assert!(with(&["--records", "0"]).contains("nothing is read then"));
    assert!(with(&["--growth", "fast"]).contains("is not a growth such as"));
    let missing = ["plan", "workingset", "--promise", "p99 <= 20 ms", "--load", "10/s"];
    assert!(place.run(&missing).with_code(&[2]).stderr.contains("did you mean the results of `working-set`"));
}

/// What the plan says of a server that reads for `url`, watched for ten seconds.
fn planned_at_work(place: &Place, url: &str, more: &[&str], code: &[i32]) -> Ended {
    let ask = ["--json", "plan", url, "--promise", "p99 <= 50 ms", "--load", "800/s", "--watch", "10 s"];
    place.run(&ask.iter().chain(more).copied().collect::<Vec<_>>()).with_code(code)
}

/// A real server under a steady load: what is seen of it, and what contradicts it.
fn a_server_is_watched_at_work(server: &Server, operations: &str) {
    let (place, url) = (Place::new(), server.url());
    let records = ["-p", "recordcount=20000", "-p", "requestdistribution=uniform", "-threads", "4"];
    let ycsb = |phase: &'static str, more: &[&'static str]| {
        ["ycsb", phase, &url].iter().chain(&records).chain(more).map(ToString::to_string).collect::<Vec<_>>()
    };
    let words = |typed: &[String]| place.run(&typed.iter().map(String::as_str).collect::<Vec<_>>());
    words(&ycsb("load", &["-p", "batchsize=100"])).with_code(&[0]);
    // Who does nothing says nothing.
    let idle = planned_at_work(&place, &url, &[], &[2]).stderr;
    assert!(idle.contains("say nothing; watch it longer, or when it works"), "{idle}");
    let load = ycsb("run", &["-target", "500", "-p", "readproportion=1", "-p", "updateproportion=0"]);
    let more = ["-p", "operationcount=1000000", "-p", "maxexecutiontime=120"].map(String::from);
    let load: Vec<String> = load.into_iter().chain(more).collect();
    let _load = place.start(&load.iter().map(String::as_str).collect::<Vec<_>>());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let said = planned_at_work(&place, &url, &["-o", "plan.html"], &[0, 1]);
    // A mongod of the laboratory has none.
    let password = Some(server.password()).filter(|password| !password.is_empty());
    assert!(password.is_none_or(|it| !said.stdout.contains(it) && !said.stderr.contains(it)));
    let answer: Value = serde_json::from_str(&said.stdout).expect("the answer is JSON");
    let headline = answer["headline"].to_string();
    assert!(headline.contains("Nothing shows how far to trust this"), "{headline}");
    let rate = headline.split(&format!(" {operations} per second today")).next().expect("words before it");
    let rate = rate.rsplit(' ').next().expect("a number").replace(',', "");
    let rate: f64 = rate.parse().expect("a number");
    assert!((300.0..700.0).contains(&rate), "{rate} of the 500 that were sent: {headline}");
    let known = answer["known"].to_string();
    for words in ["processor time for an operation", "of memory", "in the engine's cache"] {
        assert!(known.contains(words), "{words}: {known}");
    }
    // All of it is in memory: the slowest disk and half of the memory will do.
    assert_eq!(answer["best"]["answer"], "holds", "{answer:#}");
    let hit = answer["best"]["engine_hit"]["middle"].as_f64().expect("a share");
    assert!(hit > 0.9, "{hit}");
    let page = fs::read_to_string(place.here().join("plan.html")).expect("a page");
    assert!(
        page.contains("only its mean latencies")
            || page.contains("today&#39;s disk")
            || page.contains("today's disk")
    );
    // Who says that it has hardly a processor is contradicted by what it does.
    let wrong = planned_at_work(&place, &url, &["--cores", "0.002"], &[1]);
    let wrong: Value = serde_json::from_str(&wrong.stdout).expect("the answer is JSON");
    assert_eq!((wrong["contradicted"].as_bool(), wrong["best"].is_null()), (Some(true), true));
    assert!(
        wrong["headline"][0].as_str().expect("a sentence").starts_with("The server contradicts"),
        "{wrong}"
    );
    assert!(
        wrong["candidates"].as_array().expect("candidates").iter().all(|one| one["answer"] == "cannot_tell")
    );
}

#[test]
fn a_postgres_at_work_is_planned_from_by_asking_alone() {
    let _alone = alone();
    match Postgres::find(None) {
        Ok(found) => {
            let server = found.start(&ServerOptions::default()).expect("a throw-away server starts");
            a_server_is_watched_at_work(&server, "transactions");
        }
        Err(missing) => skipped(&missing.to_string()),
    }
}

#[test]
fn a_mariadb_at_work_is_planned_from_by_asking_alone() {
    let _alone = alone();
    match Mariadb::find(None) {
        Ok(found) => {
            let server = found.start(&ServerOptions::default()).expect("a throw-away server starts");
            a_server_is_watched_at_work(&server, "statements");
        }
        Err(missing) => skipped(&missing.to_string()),
    }
}

#[test]
fn a_mongod_at_work_is_planned_from_by_asking_alone() {
    let _alone = alone();
    let Some(path) = mongod() else { return };
    let found = Mongod::find(Some(path.as_ref()), None, false, None).expect("it was there");
    let server = found.start(&ServerOptions::default()).expect("a throw-away server starts");
    a_server_is_watched_at_work(&server, "operations");
}

#[test]
fn what_does_not_fit_a_server_at_work_is_refused_before_it_is_asked() {
    let place = with_results(|_| ());
    let promise = ["--promise", "p99 <= 20 ms", "--load", "800/s"];
    let of = |source: &str, more: &[&str]| {
        let typed: Vec<&str> =
            ["plan", source].into_iter().chain(promise).chain(more.iter().copied()).collect();
        place.run(&typed).with_code(&[2]).stderr
    };
    let nobody = "postgres://me@127.0.0.1:1/shop";
    for (source, more, words) in [
        (nobody, &["--check"][..], "`tipover learn` makes a plan of its load"),
        (nobody, &["--records", "5"], "--growth says how they grow"),
        (nobody, &["--only", "disk=x"], "has none"),
        (nobody, &["--watch", "1 s"], "from 10 seconds to a day"),
        (nobody, &["--cores", "2", "--busy", "3"], "cannot keep more busy than there are"),
        (nobody, &["--spec", "iopps=5"], "iopps"),
        ("redis://me@127.0.0.1:1/shop", &[], "is not modelled"),
        (nobody, &["--target", nobody], "--target chooses results, and a server at work has none"),
        ("working-set", &["--target", nobody, "--check"], "a server at an address is not imitated"),
        ("working-set", &["--busy", "1"], "--busy describes a server at work"),
        ("working-set", &["--spec", "iops=600"], "--profile or --spec describes a server at work"),
    ] {
        let said = of(source, more);
        assert!(said.contains(words), "{source} {more:?}: {said}");
    }
}
