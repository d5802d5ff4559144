//! `tipover lab` as its users meet it: up, looked at, used, down, killed, and nothing left.

mod program;

use program::{Place, alone, skipped};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Fails unless the keeper and the network that were started here are gone within ten seconds.
#[track_caller]
fn assert_gone(place: &Place) {
    let began = Instant::now();
    loop {
        let left = [place.processes("lab-keeper"), place.processes("network-daemon")].concat();
        if left.is_empty() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "left: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the laboratory also when the test fails.
struct Down<'a>(&'a Place, &'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&["lab", "down", "--name", self.1]);
    }
}

fn up(place: &Place, name: &str) -> bool {
    let up = place.run(&["lab", "up", "postgres", "--name", name, "--set", "shared_buffers=24MB"]);
    if up.stderr.contains("is not installed") {
        skipped(up.stderr.trim());
        return false;
    }
    let up = up.with_code(&[0]);
    assert!(up.stdout.contains("PostgreSQL") && up.stdout.contains("a runs"), "{}", up.stdout);
    true
}

#[test]
fn a_laboratory_is_used_and_leaves_nothing() {
    let _alone = alone();
    let place = Place::new();
    let name = format!("test-{}-a", std::process::id());
    let down = Down(&place, &name);
    if !up(&place, &name) {
        return;
    }
    let status = place.run(&["--json", "lab", "status", "--name", &name]).with_code(&[0]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!((&status["primary"], &status["nodes"][0]["running"]), (&"a".into(), &true.into()));

    let question = "psql \"$TIPOVER_URL\" -XAtc 'SHOW shared_buffers'";
    let answer =
        place.run(&["lab", "exec", "a", "--name", &name, "--", "sh", "-c", question]).with_code(&[0]);
    assert_eq!(answer.stdout.trim(), "24MB");
    place.run(&["lab", "exec", "a", "--name", &name, "--", "sh", "-c", "exit 7"]).with_code(&[7]);
    let wrong = place.run(&["lab", "exec", "z", "--name", &name, "--", "true"]).with_code(&[2]);
    assert!(wrong.stderr.contains("\"z\"") && wrong.stderr.contains("there are a"), "{}", wrong.stderr);
    let again = place.run(&["lab", "up", "postgres", "--name", &name]).with_code(&[2]);
    assert!(again.stderr.contains("is up already"), "{}", again.stderr);

    place.run(&["lab", "down", "--name", &name]).with_code(&[0]);
    assert_gone(&place);
    let none = place.run(&["lab", "status", "--name", &name]).with_code(&[2]);
    assert!(none.stderr.contains("tipover lab up"), "{}", none.stderr);
    drop(down);
}

#[test]
fn a_killed_keeper_takes_everything_with_it() {
    let _alone = alone();
    let place = Place::new();
    let name = format!("test-{}-k", std::process::id());
    let _down = Down(&place, &name);
    if !up(&place, &name) {
        return;
    }
    let keepers = place.processes("lab-keeper");
    assert_eq!(keepers.len(), 1, "{keepers:?}");
    let keeper = Pid::from_raw(keepers[0] as i32).expect("a process id");
    kill_process(keeper, Signal::KILL).expect("our own process");
    assert_gone(&place);
    place.run(&["lab", "status", "--name", &name]).with_code(&[2]);
}

#[test]
fn mistakes_are_answered_with_what_there_is() {
    let place = Place::new();
    for (words, answer) in [
        (vec!["lab", "up", "oracle"], "postgres-sync"),
        (vec!["lab", "up", "postgres", "--name", "../x"], "letters, digits and hyphens"),
        (vec!["lab", "up", "postgres", "--name", "nobody-has-this", "--set", "x"], "NAME=VALUE"),
        (vec!["lab", "down", "--name", "nobody-has-this"], "no laboratory called"),
    ] {
        let ended = place.run(&words).with_code(&[2]);
        assert!(ended.stderr.contains(answer), "{words:?}: {}", ended.stderr);
    }
    let list = place.run(&["lab", "up"]).with_code(&[0]).stdout;
    assert!(list.contains("galera") && list.contains("mariadb-semisync"), "{list}");
}
