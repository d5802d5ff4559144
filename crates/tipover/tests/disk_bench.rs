//! `disk bench` and `disk watch` as users meet them. No speeds are asserted but those that a shaped disk's
//! gate forbids to exceed.

mod program;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use program::{Ended, Place, can_mount, skipped};
use serde_json::Value;

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr))
}

/// Runs a bench in the working folder; `None` where the file system has no direct I/O.
fn bench(place: &Place, more: &[&str]) -> Option<Ended> {
    let arguments = [&["disk", "bench", ".", "--json", "--warm-up", "50 ms"], more].concat();
    let ended = place.run(&arguments);
    if ended.stderr.contains("O_DIRECT") {
        skipped(&format!("no direct I/O here: {}", ended.stderr));
        return None;
    }
    Some(ended)
}

#[test]
fn what_cannot_be_measured_is_refused_in_words_and_untouched() {
    let place = Place::new();
    place.write("theirs", &"x".repeat(100_000));
    for (arguments, words) in [
        (&["nowhere"] as &[&str], "no such file or folder"),
        (&["/dev/null"], "neither a folder"),
        (&["theirs", "--rw", "randwrite"], "--overwrite"),
        (&[".", "--depth", "8"], "--engine io_uring"),
        (&[".", "--fdatasync", "1"], "writes nothing"),
        (&[".", "--block", "100"], "multiples of 512"),
        (&[".", "--size", "9999999 TiB"], "no room"),
        (&[".", "--until", "speed < 5 ms"], "no promise about a disk"),
        (&[".", "--clients", "9"], "--promise"),
        (&[".", "--rw", "sideways"], "randread"),
    ] {
        let ended = place.run(&[&["disk", "bench"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
    let refused = place.run(&["disk", "mount", "x", "--profile", "./no-such.toml"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(place.here().join("theirs")).unwrap(), "x".repeat(100_000));
    assert!(
        !place.here().join("tipover-bench.data").exists(),
        "nothing was made for a load that was refused"
    );
}

#[test]
fn reads_writes_and_flushes_have_a_histogram_each_and_the_data_is_used_again() {
    let place = Place::new();
    let load =
        ["--size", "8 MiB", "--rw", "randrw", "--threads", "2", "--fdatasync", "4", "--time", "500 ms"];
    let Some(ended) = bench(&place, &load) else { return };
    let record = json(&ended.with_code(&[0]));
    let done = |kind: &str| record["measured"]["books"]["operations"][kind]["done"].as_u64().unwrap_or(0);
    let (reads, writes, flushes) = (done("read_at"), done("write_at"), done("flush"));
    assert!(reads > 0 && writes > 0 && flushes > 0, "{reads} {writes} {flushes}");
    // sysbench's rule: three reads to two writes; each thread may be in the middle of its turns.
    assert!((reads as f64 - 1.5 * writes as f64).abs() <= 8.0, "{reads} reads, {writes} writes");
    assert!(writes.abs_diff(4 * flushes) <= 16, "{writes} writes, {flushes} flushes");
    let log = std::fs::read(place.here().join("results/disk-bench/1/latency.hlog")).expect("it is kept");
    let tags: Vec<String> = IntervalLogIterator::new(&log)
        .filter_map(|entry| match entry.expect("any viewer can read it") {
            LogEntry::Interval(interval) => {
                Some(interval.tag().expect("it says of what").as_str().to_string())
            }
            _ => None,
        })
        .collect();
    assert_eq!(tags, ["measure.READ-AT", "measure.WRITE-AT", "measure.FLUSH"]);
    let data = place.here().join("tipover-bench.data");
    let made = std::fs::metadata(&data).unwrap().created().ok();
    let engine = ["--engine", "io_uring", "--depth", "4", "--time", "200 ms", "--rate", "200/s", "--remove"];
    let ended = bench(&place, &engine).unwrap();
    if ended.stderr.contains("io_uring") && ended.code != Some(0) {
        return skipped(&format!("no io_uring here: {}", ended.stderr));
    }
    let second = json(&ended.with_code(&[0]));
    assert_eq!(second["measured"]["load"]["io"]["size_bytes"], 8 << 20, "the same data: {made:?}");
    assert!(second["measured"]["offered"]["due"].as_u64().unwrap() > 0);
    assert!(!data.exists(), "--remove");
    let kept = place.content();
    for file in ["results/disk-bench/1/record.json", "results/disk-bench/2/report.html"] {
        assert!(kept.iter().any(|path| path.ends_with(file)), "{file} is not in {kept:?}");
    }
}

#[test]
fn a_shaped_disk_is_seen_as_it_was_configured() {
    if !can_mount("a bench on a shaped disk") {
        return;
    }
    let _alone = program::alone();
    let place = Place::new();
    let spec = "iops=200,latency=1ms";
    let mount = ["disk", "mount", "slow", "--spec", spec, "--size", "128 MiB"];
    place.run(&mount).with_code(&[0]);
    let _guard = Mounted(&place);
    let load = ["disk", "bench", "slow", "--json", "--size", "16 MiB", "--threads", "8", "--time", "1500 ms"];
    let record = json(&place.run(&load).with_code(&[0]));
    let (device, window) = (&record["measured"]["device"], &record["measured"]["window_ns"]);
    let grown = device["after"]["read"]["requests"].as_u64().unwrap()
        - device["before"]["read"]["requests"].as_u64().unwrap();
    let done = record["measured"]["books"]["operations"]["read_at"]["done"].as_u64().unwrap();
    assert!(grown.abs_diff(done) <= 24, "{grown} at the device, {done} at the client");
    let most = 200.0 * window.as_f64().unwrap() / 1e9;
    assert!(done as f64 <= most + 10.0, "{done} reads, the gate lets {most} through");
    assert_eq!(record["shape"], spec);

    let search = [
        "disk",
        "bench",
        "slow",
        "--json",
        "--until",
        "await < 50 ms",
        "--time",
        "250 ms",
        "--to",
        "32",
        "--no-interventions",
        "--budget",
        "5 s",
        "--clients",
        "20",
        "--no-array",
    ];
    let record = json(&place.run(&search).with_code(&[0, 1]));
    // 200 a second and 50 ms are ten in flight: with more it cannot hold, however fast the machine.
    for trial in record["tipping"]["trials"].as_array().unwrap() {
        let late = trial["late"][0].as_u64().unwrap() > 0;
        assert!(trial["load"].as_f64().unwrap() <= 11.0 || late, "{trial}");
    }
    assert!(
        record["tipping"]["sizings"][0]["disks"].as_u64().unwrap() >= 2,
        "{}",
        record["tipping"]["sizings"]
    );

    let capture = ["disk", "bench", "slow", "--capture", "copy", "--time", "300 ms"];
    place.run(&capture).with_code(&[0]);
    let shown = place.run(&["disk", "set", "slow", "iops=400"]).with_code(&[0]);
    assert!(shown.stderr.is_empty(), "{}", shown.stderr);
    let copy = ["disk", "mount", "copy", "--profile", "copy.toml", "--size", "64 MiB", "--json"];
    let mounted = json(&place.run(&copy).with_code(&[0]));
    assert!(mounted.to_string().contains("read_iops"), "{mounted}");
}

struct Mounted<'a>(&'a Place);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        for folder in ["slow", "copy"] {
            self.0.run(&["disk", "umount", folder]);
        }
    }
}

#[test]
fn a_canary_ends_by_itself_and_goes_on_with_its_log() {
    let place = Place::new();
    let watch =
        ["disk", "watch", ".", "--for", "1 s", "--every", "100 ms", "--log", "canary.jsonl", "--json"];
    let ended = place.run(&watch);
    if ended.stderr.contains("O_DIRECT") {
        return skipped(&ended.stderr);
    }
    let first = json(&ended.with_code(&[0]))["looks"].as_u64().unwrap();
    assert!(first >= 1);
    // The time is counted from the first look: started again, it is over at once.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let again = json(&place.run(&watch).with_code(&[0]))["looks"].as_u64().unwrap();
    assert!(again <= first + 1, "{first} looks, then {again}");
    let shown = place.run(&["disk", "watch", ".", "--log", "canary.jsonl", "--show"]).with_code(&[0]);
    assert!(shown.stdout.contains("half of the reads take"), "{}", shown.stdout);
    let none = place.run(&["disk", "watch", ".", "--log", "none.jsonl", "--show"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
}
