//! `make bench`: every bench in full, one after another, then each threshold with its verdict, kept as a
//! record.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{Step, cargo_program};
use crate::setup;
use crate::watch::{Patience, watch};
use crate::workspace::{Workspace, text};

/// What begins a line with a verdict: `THRESHOLD_LINE` of the core's `measure`.
const THRESHOLD_LINE: &str = "THRESHOLD ";

/// A round of a bench takes seconds; a peer that is compiled first takes minutes.
const PATIENCE: Patience = Patience { silence: Duration::from_secs(1800), grace: Duration::from_secs(20) };

/// Runs the benches that are named, or all. Two at once would measure each other. A threshold that is missed
/// fails the run; one that cannot be told does not, and says how many rounds would.
pub fn bench(workspace: &Workspace, wanted: &[String]) -> Result<()> {
    // The peers and the servers, without which there is nobody to compare with.
    setup::set_up(workspace, setup::Purpose::Tests)?;
    let benches = workspace.benches()?;
    if let Some(unknown) = wanted.iter().find(|name| !benches.contains(name)) {
        bail!("there is no bench `{unknown}`; there are: {}", benches.join(", "));
    }
    let mut failures = Vec::new();
    let mut records = Vec::new();
    for bench in benches.iter().filter(|bench| wanted.is_empty() || wanted.contains(bench)) {
        let step = Step::begin(&format!("bench {bench}"));
        let before = load_average();
        let mut verdicts = Vec::new();
        let mut command = workspace.command(cargo_program());
        // Of the whole workspace, as `make test` compiles it: one package alone has other features, and
        // compiles anew.
        command.args(["bench", "--workspace", "--bench", bench]);
        failures.extend(watch(command, PATIENCE, |line| verdicts.extend(verdict(line)))?);
        records.push(json!({
            "bench": bench,
            "load_average_before": before,
            "load_average_after": load_average(),
            "thresholds": verdicts,
        }));
        step.done();
    }
    let kept = keep(workspace, &records)?;
    println!("\n==> thresholds, medians with 95 % intervals ({kept})");
    let thresholds = || records.iter().flat_map(|record| crate::workspace::array(&record["thresholds"]));
    for threshold in thresholds() {
        println!("    {}", text(&threshold["sentence"]));
    }
    let missed = thresholds().filter(|threshold| threshold["kept"] == "missed").count();
    if missed > 0 {
        failures.push(format!("{missed} thresholds are missed"));
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("\n  - {}", failures.join("\n  - "))
}

/// The verdict in a line of a bench's output, if there is one.
fn verdict(line: &[u8]) -> Option<Value> {
    serde_json::from_slice(line.strip_prefix(THRESHOLD_LINE.as_bytes())?).ok()
}

/// Writes the record of the run beside the results and says where.
fn keep(workspace: &Workspace, records: &[Value]) -> Result<String> {
    let folder = workspace.path("results/bench");
    std::fs::create_dir_all(&folder)?;
    let taken = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let head = workspace.command("git").args(["describe", "--always", "--dirty"]).output();
    let commit = head.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name\t: "));
    let record = json!({
        "taken_unix_s": taken,
        "commit": commit.unwrap_or_default(),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "processor": processor,
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "benches": records,
    });
    let name = format!("results/bench/{taken}.json");
    let staged = folder.join(format!(".{taken}.json"));
    std::fs::write(&staged, serde_json::to_vec_pretty(&record)?).context("writing the record")?;
    std::fs::rename(&staged, workspace.path(&name)).context("keeping the record")?;
    Ok(name)
}

fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_from_its_line() {
        let line = b"THRESHOLD {\"sentence\":\"x: met\",\"kept\":\"met\"}";
        let read = verdict(line).expect("it is JSON");
        assert_eq!((text(&read["sentence"]), text(&read["kept"])), ("x: met".into(), "met".into()));
        assert_eq!(verdict(b"  round 1: THRESHOLD {}"), None);
        assert_eq!(verdict(b"THRESHOLD damaged"), None);
    }

    #[test]
    fn the_words_of_a_verdict_are_the_cores() {
        let source = include_str!("../../crates/core/src/measure/threshold.rs");
        assert!(source.contains(&format!("THRESHOLD_LINE: &str = {THRESHOLD_LINE:?}")));
        for word in ["Missed", "json[\"sentence\"]", "snake_case"] {
            assert!(source.contains(word), "{word}");
        }
    }
}
