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
        assert!(began.elapsed() < Duration::from_secs(60), "left: {left:?}");
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
    let list = place.run(&["lab", "recipes"]).with_code(&[0]).stdout;
    assert!(list.contains("galera") && list.contains("mariadb-semisync"), "{list}");
}

/// What is printed is a recipe; edited, it is checked, and what is wrong is named with its line.
#[test]
fn recipes_are_printed_edited_checked_and_run() {
    let place = Place::new();
    let printed = place.run(&["lab", "recipes", "postgres"]).with_code(&[0]).stdout;
    place.write(
        "mine.toml",
        &printed.replace("[roles.primary]", "[roles.primary]\nsettings = { max_connections = 17 }"),
    );
    let checked = place.run(&["lab", "recipes", "check", "mine.toml"]).with_code(&[0]).stdout;
    assert_eq!(checked, "mine.toml: One PostgreSQL. (a)\n");
    place.write("wrong.toml", &printed.replace("port", "prot"));
    let wrong = place.run(&["lab", "recipes", "check", "wrong.toml"]).with_code(&[2]).stderr;
    assert!(wrong.contains("wrong.toml: line 3: unknown setting `prot`: did you mean `port`?"), "{wrong}");
    let slip = place.run(&["lab", "recipes", "postgers"]).with_code(&[2]).stderr;
    assert!(slip.contains("did you mean `postgres`?"), "{slip}");

    // Nothing is started, and what would be is counted.
    let words = ["break", "mine.toml", "--disk", "none", "--times", "2", "--list"];
    let listed = place.run(&words);
    if listed.stderr.contains("is not installed") {
        println!("SKIPPED: {}", listed.stderr.trim());
        return;
    }
    assert_eq!(listed.with_code(&[0]).stdout.lines().count(), 2);
    let broken = place.run(&[
        "break",
        "mine.toml",
        "--disk",
        "none",
        "--times",
        "1",
        "--length",
        "1 s",
        "--faults",
        "none",
    ]);
    let record = std::fs::read_dir(place.here().join("results")).unwrap().flatten().next().unwrap();
    let plan = std::fs::read_to_string(record.path().join("plan.toml")).unwrap();
    assert!(plan.contains("recipe = \"mine.toml\""), "{plan}{}", broken.stderr);
    // The same name with other content is another cell.
    place.write(
        "mine.toml",
        &printed.replace("[roles.primary]", "[roles.primary]\nsettings = { max_connections = 18 }"),
    );
    let listed = place.run(&words).with_code(&[0]);
    assert!(listed.stderr.contains("2 trials, 2 missing"), "{}", listed.stderr);
}
