//! The search for a tipping point with the built program, on a target whose capacity is known: four servers
//! that take 4 ms for an operation do 1000 in a second and not one more. And what the study of a disk's
//! tipping point asks of files reaches the disk as it is asked.

mod program;

use program::results::{Kept, kept};
use program::{Place, alone, can_mount};
use rustix::process::Signal;
use tipover_core::metric::{name, probe};

const CAPACITY: f64 = 1000.0;

// The median, because a p99 is decided by 20,000 operations a trial, which take twenty seconds here.

const PLAN: &str = r#"
name = "known"
title = "A known capacity"
question = "What is it?"
why = "It is known."
how_to_read = "As an interval."
repeats = 1
[target]
kind = "guilty"
[target.settings]
service = "4 ms"
[workload]
kind = "ycsb"
mix = "c"
records = 1000
[load]
sessions = 64
[search]
promises = ["p50 <= 20 ms"]
least = 100
most = 8000
short = "400 ms"
long = "800 ms"
duration_sum = "1600 ms"
confirmation = "800 ms"
confirmations = 3
budget = "30 s"
interventions = false
[[sweep]]
name = "servers"
question = ""
[[sweep.axis]]
name = "servers"
sets = "target.settings.servers"
values = ["4"]
[scale.quick]
"#;

/// What was found, in a sentence.
fn headline(place: &Place, results: &str, more: &[&str]) -> String {
    let arguments = [&["--results", results, "--json", "find", "known.toml"], more].concat();
    let ended = place.run(&arguments).with_code(&[0, 1]);
    let page: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a page");
    page["headline"][0].as_str().unwrap_or_default().to_string()
}

/// Lower and upper end, if both were confirmed. A machine that is too busy says so instead.
fn interval(headline: &str) -> Option<(f64, f64)> {
    let (_, rest) = headline.split_once("capacity in [")?;
    let (ends, _) = rest.split_once(']')?;
    let mut ends = ends.split(", ").map(|end| end.replace(',', "").parse::<f64>().expect("a load"));
    Some((ends.next()?, ends.next()?))
}

/// How many runs of two confirm each other depends on what else runs on the machine; what the target can do
/// at most does not.
#[test]
fn a_known_capacity_is_never_exceeded_and_the_page_is_a_function_of_the_records() {
    let _alone = alone();
    let place = Place::new();
    place.write("known.toml", PLAN);
    for results in ["one", "two"] {
        let said = headline(&place, results, &[]);
        println!("{results}: {said}");
        assert_eq!(headline(&place, results, &["--show"]), said, "showing measures nothing");
        let Some((low, high)) = interval(&said) else {
            println!("SKIPPED: no interval was confirmed, as may be on a busy machine");
            continue;
        };
        // A busy machine makes the target slower than it says, never faster; in a short trial a queue that
        // grows slowly passes.
        assert!(low < high && low <= CAPACITY * 1.2, "[{low}, {high}]");
    }
}

#[test]
fn a_search_goes_on_where_it_was_stopped() {
    let _alone = alone();
    let place = Place::new();
    place.write("known.toml", PLAN);
    let mut running = place.start(&["find", "known.toml"]);
    let kept = |place: &Place| {
        let path = place.content().into_iter().find(|path| path.ends_with("search.json"))?;
        let text = std::fs::read_to_string(place.here().join(path)).ok()?;
        let record: serde_json::Value = serde_json::from_str(&text).ok()?;
        record["searches"][0]["trials"].as_array().cloned()
    };
    let first = running.until("the first trials to be kept", |place| kept(place).filter(|t| t.len() >= 2));
    running.signal(Signal::KILL);
    running.wait();
    place.run(&["find", "known.toml"]).with_code(&[0, 1]);
    let all = kept(&place).expect("a search");
    assert!(all.len() > first.len(), "{} trials after {}", all.len(), first.len());
    // Whether the target came to rest is only known after a trial; all else of it never changes.
    let without_rest = |trials: &[serde_json::Value]| -> Vec<serde_json::Value> {
        let strip = |mut trial: serde_json::Value| {
            trial.as_object_mut().map(|fields| fields.remove("rest"));
            trial
        };
        trials.iter().cloned().map(strip).collect()
    };
    let (before, after) = (without_rest(&first), without_rest(&all[..first.len()]));
    assert_eq!(after, before, "what was measured is not measured again");
    // What is finished is only shown.
    place.run(&["find", "known.toml"]).with_code(&[0, 1]);
    assert_eq!(kept(&place), Some(all));
    // `list` and `show` know it by its name.
    let listed = place.run(&["list"]).with_code(&[0]).stdout;
    assert!(listed.contains("(1 search)"), "{listed}");
    let name = listed.lines().last().and_then(|line| line.split_whitespace().next()).expect("a name");
    let shown = place.run(&["show", name]).with_code(&[0]).stdout;
    assert!(shown.contains("tipping points") && shown.contains("With --full"), "{shown}");
    // A search with other settings does not take this one off the page.
    let cell = place.content().into_iter().find(|path| path.ends_with("search.json")).expect("a search");
    let other = place.here().join(cell.parent().expect("a cell").with_file_name("other-12345678"));
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(place.here().join(&cell), other.join("search.json")).unwrap();
    place.run(&["find", "known.toml", "--show"]).with_code(&[0, 1]);
    let page =
        place.content().into_iter().find(|path| path.ends_with("tipping-points.html")).expect("a page");
    let page = std::fs::read_to_string(place.here().join(page)).unwrap();
    assert!(page.contains("id=\"search-0\"") && page.contains("id=\"search-1\""), "both searches");
}

#[test]
fn what_cannot_be_searched_is_said_before_anything_runs() {
    let place = Place::new();
    place.write("known.toml", PLAN);
    for (arguments, words) in [
        (vec!["find", "known.toml", "--promise", "soon"], "p99 <= 20 ms"),
        (vec!["find", "known.toml", "--from", "50", "--to", "10"], "50.0 to 10.0 ops/s are no range"),
        (vec!["find", "known.toml", "--show"], "results"),
        (vec!["find", "working-set", "--no-interventions"], "needs a promise"),
    ] {
        let ended = place.run(&arguments).with_code(&[2]);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn the_page_cache_answers_for_small_files_and_a_log_waits_for_its_flushes() {
    if !can_mount("files through the page cache") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    for sweep in ["sweep=buffered", "sweep=flushes"] {
        place.run(&["run", "tipping-point", "--scale", "tiny", "--only", sweep]).with_code(&[0, 1]);
    }
    let trials = kept(&place, "tipping-point");
    assert_eq!(trials.len(), 5);
    assert!(trials.iter().all(|trial| trial.failure().is_none()), "{:?}", trials.iter().map(Kept::failure));
    let find = |axis: &str, label: &str| trials.iter().find(|t| t.label(axis) == label).expect("a trial");
    let each = |trial: &Kept, counter: &str| {
        let measured = trial.record.measured.as_ref().expect("it was measured");
        measured.growth_in_place(probe::DISK, counter).expect("the disk counts")
            / measured.operations() as f64
    };
    let reads = |file| each(find("file", file), name::DISK_READ_REQUESTS);
    // Warm after two seconds, or not yet quite; the eighth of a file that fits does not hide the others.
    let (small, large) = (reads("half the memory"), reads("eight times the memory"));
    assert!(small < 0.6 && large > 0.7 && small < large, "{small} and {large} reads of the disk for each");
    let (bare, safe) = (find("disk", "SATA, 7200 rpm"), find("disk", "the same with a battery-backed cache"));
    for log in [bare, safe] {
        // A write and its flush are two operations.
        let flushes = each(log, name::DISK_FLUSH_REQUESTS);
        assert!((0.4..0.6).contains(&flushes), "{flushes} flushes of the disk for each");
    }
    assert!(bare.throughput() < 0.3 * safe.throughput(), "{} and {}", bare.throughput(), safe.throughput());
}

#[test]
fn joined_disks_answer_more_and_a_log_takes_its_share_of_the_pages() {
    if !can_mount("several disks joined") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    for sweep in ["sweep=joined", "sweep=jobs"] {
        place.run(&["run", "tipping-point", "--scale", "tiny", "--only", sweep]).with_code(&[0, 1]);
    }
    let trials = kept(&place, "tipping-point");
    assert_eq!(trials.len(), 8);
    assert!(trials.iter().all(|trial| trial.failure().is_none()), "{:?}", trials.iter().map(Kept::failure));
    let find = |axis: &str, label: &str| trials.iter().find(|t| t.label(axis) == label).expect("a trial");
    // Ten readers give 226/s on two and 808/s on sixteen; a trial of a second scatters by a fifth.
    let reads = |disks: u32| find("disk", &format!("{disks} of EBS standard")).throughput();
    assert!(reads(16) > 2.0 * reads(2), "{} and {}", reads(16), reads(2));
    let flushes = |label| {
        let measured = find("jobs", label).record.measured.as_ref().expect("it was measured");
        measured.growth_in_place(probe::DISK, name::DISK_FLUSH_REQUESTS).expect("the disk counts")
    };
    assert!(flushes("pages") < flushes("pages and a log"), "a log is flushed");
}
