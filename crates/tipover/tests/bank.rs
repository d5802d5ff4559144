//! Transfers and new keys under load with the built program: honest ones are believed, culprits are not, and
//! what a killed run had written down can be judged.

mod program;

use program::{Place, alone};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Two cells of half a second, at 2 ms an operation.
const SHORT: [&str; 16] = [
    "--scale",
    "tiny",
    "--only",
    "disk=unshaped",
    "--only",
    "accounts=uniform",
    "--set",
    "disk.mode=none",
    "--set",
    "target.kind=guilty",
    "--set",
    "target.settings.service=2 ms",
    "--set",
    "trial.measure_least=300 ms",
    "--set",
    "trial.warm_up_least=200 ms",
];

fn arguments<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--results", "r", verb, "transfers"], &SHORT[..], more].concat()
}

#[test]
fn a_bank_has_a_throughput_only_if_its_books_are_right() {
    let _alone = alone();
    let place = Place::new();
    let honest = ["--set", "target.settings.conflicts=20 %"];
    // A machine that is busy with other things may make a trial that cannot be believed; its books are right.
    let ended = place.run(&arguments("run", &[&honest[..], &["--full"]].concat())).with_code(&[0, 1]);
    for column in ["overdrafts", "retries", "unknown", "snapshots"] {
        assert!(ended.stdout.contains(column), "{column}: {}", ended.stdout);
    }
    let kept = place.content();
    for file in ["history.bin", "evidence.json", "record.json"] {
        assert!(kept.iter().any(|path| path.ends_with(file)), "{file} is not among {kept:?}");
    }
    let judged = place.run(&["--json", "audit", "--checks", "r"]).with_code(&[0]);
    for words in ["\"valid\"", "the total at the end is right"] {
        assert!(judged.stdout.contains(words), "{}", judged.stdout);
    }

    let culprit = ["--set", "target.settings.lost_updates=5 %", "--replace-plan"];
    let ended = place.run(&arguments("run", &culprit)).with_code(&[1]);
    assert!(ended.stdout.contains("cannot be believed"), "{}", ended.stdout);
    let judged = place.run(&["audit", "--checks", "r"]).with_code(&[1]);
    for words in ["CONVICTED", "LOST: transfer", "acknowledged at"] {
        assert!(judged.stdout.contains(words), "{words}: {}", judged.stdout);
    }
    assert!(!judged.stdout.contains("its record says"), "{}", judged.stdout);
    let ended = place.run(&["audit", "--checks", "r/transfers/plan.toml"]).with_code(&[2]);
    assert!(ended.stderr.contains("history.bin"), "{}", ended.stderr);
}

#[test]
fn what_a_killed_run_wrote_down_can_be_read() {
    let _alone = alone();
    let place = Place::new();
    let long = ["--set", "trial.measure_least=60 s", "--set", "trial.measure_most=60 s"];
    let running = place.start(&arguments("run", &long));
    let history = || place.content().into_iter().find(|path| path.ends_with("history.bin"));
    let begin = Instant::now();
    let size = || history().and_then(|path| std::fs::metadata(place.here().join(path)).ok()).map(|m| m.len());
    while size().is_none_or(|size| size < 10_000) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no history is written: {:?}", place.content());
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(Signal::KILL);
    running.wait();
    // Nothing was read back, so nothing is known; what was written is whole but for its end.
    let judged = place.run(&["audit", "--checks", "r"]).with_code(&[1]);
    assert!(judged.stdout.contains("has no end"), "{}", judged.stdout);
    assert!(judged.stdout.contains(".staged-0"), "{}", judged.stdout);
}
