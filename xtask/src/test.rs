//! `make test`: the cheap rules, every bench in miniature, every test; then what was skipped or unsteady,
//! loudly.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{Step, cargo, cargo_program};
use crate::watch::{Failures, Patience, watch};
use crate::workspace::{Workspace, array, text};
use crate::{lint, setup};

/// The longest test takes a few minutes on a quiet machine; a harness says which one ended as it goes. What a
/// test started may need the kernel's help to end, as an unmounting disk does.
const PATIENCE: Patience = Patience { silence: Duration::from_secs(900), grace: Duration::from_secs(20) };

/// Skips that a build machine may have. Every other one fails the run there: a test that never runs
/// protects nothing. A reason is matched by a part of its text.
const ALLOWED_SKIPS: &[(&str, &str)] = &[
    ("go-ycsb", "the peer of the generator's bench needs a Go toolchain, which setup does not install"),
    ("FerretDB is not installed", "it is compiled with Go for two minutes, which setup does only on request"),
    ("PoloDB is not installed", "it is compiled with RocksDB for a quarter of an hour, only on request"),
    ("mongod is not installed", "it is in another distribution's archive, which a machine may not reach"),
    ("PostgreSQL 18 is not installed", "it is fetched with Maven, which setup does not install"),
    ("nats-server is not installed", "it is built with Go, which setup does not install"),
    (
        "the ring: it needs root",
        "a test that runs itself again as an ordinary user says so; as root the ring is tested",
    ),
    (
        "no interval was confirmed",
        "a search beside other programs may end so, and says it; what it must never do is tested",
    ),
    ("not on a block device", "a container's temporary folder may be an overlay, or memory"),
];

/// How many tests may fail at first. They measure real disks, clocks and servers, on machines whose
/// hypervisor takes the processors away as it likes; so each that fails is run once more, by itself. More
/// than these are no accident.
const MOST_UNSTEADY: usize = 3;

/// What the run of a test command showed.
#[derive(Default, Debug, PartialEq)]
struct Tally {
    /// Suites that began, and those that said how they ended.
    begun: u64,
    suites: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    skips: Vec<String>,
    /// The failed tests, by name.
    failing: BTreeSet<String>,
}

impl Tally {
    /// Takes note of one line of output.
    fn read(&mut self, line: &str) {
        let line = line.trim();
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.begun += 1;
        } else if let Some(name) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... FAILED"))
        {
            self.failing.insert(name.0.to_string());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.suites += 1;
            self.passed += number_before(result, " passed");
            self.failed += number_before(result, " failed");
            self.ignored += number_before(result, " ignored");
        } else if line.starts_with("SKIPPED:") && !self.skips.iter().any(|known| known == line) {
            self.skips.push(line.to_string());
        }
    }

    /// The tests to run once more: all that failed, if that is all that went wrong, and not too many.
    fn unsteady(&self, failures: &Failures) -> Option<&BTreeSet<String>> {
        let nothing_else = failures.len() == 1 && self.begun == self.suites;
        (nothing_else && (1..=MOST_UNSTEADY).contains(&self.failing.len())).then_some(&self.failing)
    }
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before
        .rsplit(|letter: char| !letter.is_ascii_digit())
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

fn is_allowed(skip: &str) -> bool {
    ALLOWED_SKIPS.iter().any(|(part, _)| skip.contains(part))
}

/// Runs everything. Nothing stops at the first failure: one run shows all of them.
pub fn test(workspace: &Workspace, filters: &[String]) -> Result<()> {
    setup::set_up(workspace, setup::Purpose::Tests)?;
    let mut failures = Vec::new();
    let mut tally = Tally::default();
    if filters.is_empty()
        && let Err(error) = lint::cheap_rules(workspace)
    {
        failures.push(format!("{error:#}"));
    }

    let step = Step::begin("compile the tests");
    // Apart from running them, since a compiler may be silent for as long as it needs.
    cargo(workspace, &["test", "--workspace", "--release", "--all-targets", "--no-run"])?;
    step.done();
    let before = leftovers(workspace)?;
    if filters.is_empty() {
        failures.extend(benches_in_miniature(workspace, &mut tally)?);
    }
    let step = Step::begin("tests");
    // `--show-output` also shows what passing tests print: a test that skips itself passes.
    let mut arguments = vec!["test", "--workspace", "--release", "--no-fail-fast", "--"];
    arguments.push("--show-output");
    arguments.extend(filters.iter().map(String::as_str));
    let mut failed = watched(workspace, &arguments, &mut tally)?;
    if let Some(unsteady) = tally.unsteady(&failed) {
        failed = once_more(workspace, unsteady)?;
    }
    failures.extend(failed);
    step.done();
    let after = leftovers(workspace)?;
    let left = after.into_iter().filter(|leftover| !before.contains(leftover));
    failures.extend(left.map(|leftover| format!("the tests left behind: {leftover}")));
    conclude(&tally, failures)
}

/// A bench has no harness; `--test` makes it run tiny, so that it cannot rot between two full runs. Each by
/// itself: what failed then has a name, and can be run once more as a test is.
fn benches_in_miniature(workspace: &Workspace, tally: &mut Tally) -> Result<Failures> {
    let step = Step::begin("benches in miniature");
    let mut run = |bench: &str| {
        let arguments = ["test", "--workspace", "--release", "--bench", bench, "--", "--test"];
        watched(workspace, &arguments, tally)
    };
    let mut failed = Vec::new();
    for bench in workspace.benches()? {
        let failures = run(&bench)?;
        if !failures.is_empty() {
            failed.push((bench, failures));
        }
    }
    // As with tests: what was silent or left something running is no accident.
    let unsteady = failed.len() <= MOST_UNSTEADY && failed.iter().all(|(_, failures)| failures.len() == 1);
    let mut left = Failures::new();
    for (bench, failures) in failed {
        let again = if unsteady { run(&bench)? } else { failures };
        if again.is_empty() {
            println!("==> UNSTEADY: the bench {bench} failed, and held when it was run again");
        }
        left.extend(again);
    }
    step.done();
    Ok(left)
}

/// Runs each of these tests again, with nothing beside it, and says which failed again.
fn once_more(workspace: &Workspace, tests: &BTreeSet<String>) -> Result<Failures> {
    let mut failures = Failures::new();
    for name in tests {
        let step = Step::begin(&format!("{name}, once more"));
        let arguments =
            ["test", "--workspace", "--release", "--no-fail-fast", "--", "--show-output", "--exact", name];
        let mut tally = Tally::default();
        let failed = watched(workspace, &arguments, &mut tally)?;
        if failed.is_empty() && tally.passed > 0 && tally.skips.is_empty() {
            println!("==> UNSTEADY: {name} failed, and held when it was run again");
        } else {
            failures.push(format!("{name} failed twice"));
            failures.extend(failed);
        }
        step.done();
    }
    Ok(failures)
}

/// Runs cargo under watch and takes note of what it says.
fn watched(workspace: &Workspace, arguments: &[&str], tally: &mut Tally) -> Result<Failures> {
    let mut command = workspace.command(cargo_program());
    command.args(arguments);
    watch(command, PATIENCE, |line| tally.read(&String::from_utf8_lossy(line)))
}

/// What `tipover doctor` finds on this machine of runs that are over: mounts, loop devices, groups, folders.
/// What belongs to somebody who still runs is not among it.
fn leftovers(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = workspace.command(workspace.target_folder()?.join("release/tipover"));
    let output = command.args(["doctor", "--json"]).output().context("cannot start tipover doctor")?;
    let said: Value = serde_json::from_slice(&output.stdout).context("tipover doctor said no JSON")?;
    let found = array(&said["requirements"]).iter().filter(|requirement| requirement["id"] == "leftover");
    Ok(found.map(|requirement| text(&requirement["found"])).collect())
}

fn conclude(tally: &Tally, mut failures: Vec<String>) -> Result<()> {
    let Tally { suites, passed, failed, ignored, skips, .. } = tally;
    println!("\n==> {suites} suites: {passed} passed, {failed} failed, {ignored} ignored");
    for skip in skips {
        let why = if is_allowed(skip) {
            "may be skipped on a build machine"
        } else {
            "must run on a build machine"
        };
        println!("    {skip}  [{why}]");
    }
    let forbidden = skips.iter().filter(|skip| !is_allowed(skip)).count();
    if forbidden > 0 && std::env::var("CI").is_ok_and(|value| value == "true" || value == "1") {
        failures.push(format!("{forbidden} tests were skipped that must run on a build machine (CI is set)"));
    }
    if failures.is_empty() {
        println!("==> everything held");
        return Ok(());
    }
    bail!("\n  - {}", failures.join("\n  - "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_skips_collected_once() {
        let mut tally = Tally::default();
        tally.read(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        tally.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.read("SKIPPED: no /dev/fuse");
        tally.read("   SKIPPED: no /dev/fuse");
        tally.read("a test named SKIPPED: not at the start");
        let skips = vec!["SKIPPED: no /dev/fuse".to_string()];
        assert_eq!(tally, Tally { suites: 2, passed: 15, failed: 2, ignored: 1, skips, ..Tally::default() });
    }

    /// One suite, and how it ended; `lines` are between.
    fn tally_of(lines: &[&str], ended: bool) -> Tally {
        let mut tally = Tally::default();
        tally.read("running 9 tests");
        lines.iter().for_each(|line| tally.read(line));
        if ended {
            tally.read("test result: FAILED. 7 passed; 2 failed; 0 ignored");
        }
        tally
    }

    #[test]
    fn only_few_failures_that_explain_everything_are_tried_again() {
        let (bad, status) = ("test a::b ... FAILED", vec!["`cargo test` ended with 101".to_string()]);
        let names = BTreeSet::from(["a::b".to_string(), "c".to_string()]);
        let twice = ["test a::b ... FAILED (1.0 s)", bad, "test c ... FAILED", "test d ... ok"];
        assert_eq!(tally_of(&twice, true).unsteady(&status), Some(&names));
        assert_eq!(tally_of(&[bad], false).unsteady(&status), None, "a suite that fell over");
        let hung = [&status[..], &["said nothing for 900 s".to_string()]].concat();
        assert_eq!(tally_of(&[bad], true).unsteady(&hung), None, "a suite that hung");
        assert_eq!(tally_of(&[], true).unsteady(&status), None, "no test has a name");
        let many: Vec<String> = (0..=MOST_UNSTEADY).map(|n| format!("test t{n} ... FAILED")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(tally_of(&many, true).unsteady(&status), None, "no accident");
    }

    #[test]
    fn only_explained_skips_are_allowed() {
        assert!(is_allowed("SKIPPED: go-ycsb is not installed"));
        assert!(!is_allowed("SKIPPED: no /dev/fuse"));
    }

    #[test]
    fn a_failure_is_never_swallowed() {
        assert!(conclude(&Tally::default(), Vec::new()).is_ok());
        let error = conclude(&Tally::default(), vec!["clippy".to_string()]).unwrap_err();
        assert!(error.to_string().contains("clippy"));
    }
}
