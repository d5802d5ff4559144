//! `make fuzz`: libFuzzer hunts in the readers of foreign bytes, one after the other.
//!
//! The compiler's own instrumentation is enough (`sancov-module` with counters and traced comparisons), so
//! that the toolchain of the product serves, without a sanitizer. Memory is watched by the targets
//! themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Step, cargo, cargo_program, run, shown};
use crate::workspace::Workspace;

const PACKAGE: &str = "tipover-fuzz";
const CORPUS: &str = "tipover-corpus";
/// What the compiler is told about everything that is hunted in; what it builds for itself, scripts and
/// macros, it builds without.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks";
/// For everything that a target has and does: its inputs and libFuzzer's tables of them.
const MEMORY_MIB: u32 = 2048;
/// An input that takes longer is a finding; libFuzzer reads the clock, though the machine may stand still.
const SECONDS_OF_AN_INPUT: u32 = 25;
const LONGEST_INPUT: u32 = 16 << 10;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Hunt {
    /// Names of targets; all if there are none.
    targets: Vec<String>,
    /// Processor time for each of them: a busy machine makes a hunt longer, not shallower.
    seconds: u64,
    /// Whether what was found is minimised and goes into the corpus that git keeps.
    keep: bool,
}

impl Hunt {
    fn from_arguments(arguments: &[String]) -> Result<Hunt> {
        let mut hunt = Hunt { targets: Vec::new(), seconds: 600, keep: false };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--keep" => hunt.keep = true,
                "--seconds" => {
                    let seconds = rest.next().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
                    hunt.seconds = seconds.context("--seconds takes a whole number from 1")?;
                }
                flag if flag.starts_with('-') => bail!("fuzz knows --seconds N and --keep, not `{flag}`"),
                target => hunt.targets.push(target.to_string()),
            }
        }
        Ok(hunt)
    }
}

/// What came of a target.
struct Outcome {
    target: String,
    executions: u64,
    /// Processor time.
    seconds: f64,
    /// The files with inputs that are findings.
    found: Vec<PathBuf>,
}

/// Hunts in every target that was asked for; any finding makes it fail, after all were tried.
pub fn fuzz(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let hunt = Hunt::from_arguments(arguments)?;
    let folder = workspace.target_folder()?;
    let step = Step::begin("build the corpus program");
    cargo(workspace, &["build", "--release", "-p", PACKAGE, "--bin", CORPUS])?;
    let corpus = folder.join("release").join(CORPUS);
    step.done();
    let known = targets(workspace, &corpus)?;
    if let Some(unknown) = hunt.targets.iter().find(|name| !known.contains(name)) {
        bail!("there is no target `{unknown}`; there are: {}", known.join(", "));
    }
    let step = Step::begin("build the fuzzer");
    let fuzzer = build(workspace, &folder.join("fuzz"))?;
    step.done();
    let mut outcomes = Vec::new();
    for target in if hunt.targets.is_empty() { &known } else { &hunt.targets } {
        let step = Step::begin(&format!("fuzz {target} for {} s of processor time", hunt.seconds));
        outcomes.push(hunt_in(workspace, &hunt, target, &corpus, &fuzzer, &folder.join("fuzz"))?);
        step.done();
    }
    println!("\n    {:<14} {:>14} {:>9}  findings", "target", "executions", "CPU s");
    for Outcome { target, executions, seconds, found } in &outcomes {
        println!("    {target:<14} {executions:>14} {seconds:>9.0}  {}", found.len());
        found.iter().for_each(|path| println!("        {}", path.display()));
    }
    match outcomes.iter().map(|outcome| outcome.found.len()).sum::<usize>() {
        0 => Ok(()),
        found => bail!("{found} findings; `{} try TARGET FILE` shows one again", corpus.display()),
    }
}

fn targets(workspace: &Workspace, corpus: &Path) -> Result<Vec<String>> {
    let output = workspace.command(corpus).arg("list").output().context("cannot list the targets")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.split(' ').next()).map(String::from).collect())
}

/// Builds libFuzzer's program in a folder of its own: nothing that it is made of is of use elsewhere.
fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    let mut rustc = workspace.command("rustc");
    let version = rustc.arg("-vV").output().context("cannot start rustc")?.stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut command = workspace.command(cargo_program());
    command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", folder);
    // With a target named, the flags are not for what the compiler runs itself.
    command.args([
        "build",
        "--release",
        "-p",
        PACKAGE,
        "--bin",
        PACKAGE,
        "--features",
        "libfuzzer",
        "--target",
    ]);
    command.arg(host);
    run(command)?;
    Ok(folder.join(host).join("release").join(PACKAGE))
}

fn hunt_in(
    workspace: &Workspace,
    hunt: &Hunt,
    target: &str,
    corpus: &Path,
    fuzzer: &Path,
    folder: &Path,
) -> Result<Outcome> {
    let (inputs, found) = (folder.join("corpus").join(target), folder.join("found").join(target));
    fs::create_dir_all(&found)?;
    let mut unpack = workspace.command(corpus);
    unpack.args(["unpack", target]).arg(&inputs);
    run(unpack)?;
    let mut command = workspace.command(fuzzer);
    command.env("TIPOVER_FUZZ", target).arg(&inputs).args([
        format!("-rss_limit_mb={MEMORY_MIB}"),
        format!("-timeout={SECONDS_OF_AN_INPUT}"),
        format!("-report_slow_units={SECONDS_OF_AN_INPUT}"),
        format!("-max_len={LONGEST_INPUT}"),
        format!("-artifact_prefix={}/", found.display()),
        "-print_final_stats=1".into(),
        "-use_value_profile=1".into(),
    ]);
    let log = found.with_extension("log");
    let stderr = fs::File::create(&log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let mut hunter = command.spawn().with_context(|| format!("cannot start {}", shown(&command)))?;
    let seconds = end_after(&mut hunter, hunt.seconds as f64)?;
    let status = hunter.wait()?;
    let said = fs::read(&log)?;
    let said = String::from_utf8_lossy(&said);
    if !status.success() {
        // The end of what it says: the panic, and where the input is.
        let lines: Vec<&str> = said.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
    }
    if hunt.keep {
        keep(workspace, target, corpus, fuzzer, &inputs)?;
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(&found)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut slow = files.extract_if(.., |path| is_named_slow(path)).collect::<Vec<_>>();
    slow.retain(|path| {
        let mut again = workspace.command(corpus);
        again.args(["try", target]).arg(path).stdin(Stdio::null()).stdout(Stdio::null());
        is_slow(&mut again, f64::from(SECONDS_OF_AN_INPUT)).unwrap_or(true)
    });
    files.extend(slow);
    Ok(Outcome { target: target.to_string(), executions: executions(&said), seconds, found: files })
}

/// Whether libFuzzer calls this input slow.
fn is_named_slow(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["slow-unit-", "timeout-"].iter().any(|kind| name.starts_with(kind))
}

/// Whether `again` takes more than `most` seconds of processor time, or does not succeed: a machine that
/// stood still for half a minute made an input slow by the clock.
fn is_slow(again: &mut Command, most: f64) -> Result<bool> {
    let mut tried = again.spawn().with_context(|| format!("cannot start {}", shown(again)))?;
    end_after(&mut tried, most)?;
    Ok(!tried.wait()?.success())
}

/// Lets `hunter` work for `most` seconds of processor time, then asks it to end; gives what it has used.
fn end_after(hunter: &mut Child, most: f64) -> Result<f64> {
    let (mut used, mut asked) = (0.0, false);
    while hunter.try_wait()?.is_none() {
        used = processor_seconds(hunter.id()).unwrap_or(used);
        if used >= most && !asked {
            let pid = Pid::from_raw(hunter.id() as i32).context("a process has a number")?;
            // libFuzzer finishes its input and says its figures.
            kill_process(pid, Signal::USR1)?;
            asked = true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(used)
}

/// Seconds that a process has spent on processors (proc_pid_stat(5), fields 14 and 15); `None` if it is gone.
fn processor_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; field 3 follows it.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// What libFuzzer counts at its end.
fn executions(said: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Minimises the inputs by the edges that they reach, and packs them where git keeps them.
fn keep(workspace: &Workspace, target: &str, corpus: &Path, fuzzer: &Path, inputs: &Path) -> Result<()> {
    let minimal = inputs.with_extension("minimal");
    if minimal.exists() {
        fs::remove_dir_all(&minimal)?;
    }
    fs::create_dir_all(&minimal)?;
    let mut merge = workspace.command(fuzzer);
    merge.env("TIPOVER_FUZZ", target).args(["-merge=1", "-use_counters=0"]).arg(&minimal).arg(inputs);
    merge.stdin(Stdio::null()).stderr(Stdio::null());
    run(merge)?;
    let mut pack = workspace.command(corpus);
    pack.args(["pack", target]).arg(&minimal);
    run(pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunt(arguments: &[&str]) -> Result<Hunt> {
        Hunt::from_arguments(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_asked_for_is_understood_or_refused() {
        let all = Hunt { targets: vec![], seconds: 600, keep: false };
        assert_eq!(hunt(&[]).unwrap(), all);
        let one = Hunt { targets: vec!["mysql".into()], seconds: 5, keep: true };
        assert_eq!(hunt(&["mysql", "--seconds", "5", "--keep"]).unwrap(), one);
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--second", "5"]] {
            assert!(hunt(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn processor_time_is_counted_and_ends_a_hunt() {
        // Begins to count when it works, not when it waits.
        let mut hunter = Command::new("sh")
            .args(["-c", "trap 'exit 7' USR1; sleep 0.3; while :; do :; done"])
            .spawn()
            .unwrap();
        let used = end_after(&mut hunter, 0.2).unwrap();
        assert!(used >= 0.2, "{used}");
        assert_eq!(hunter.wait().unwrap().code(), Some(7));
        assert_eq!(processor_seconds(u32::MAX), None);
    }

    #[test]
    fn an_input_is_slow_by_its_processor_time() {
        assert!(
            is_named_slow(Path::new("found/x/slow-unit-04a0")) && !is_named_slow(Path::new("x/crash-b8e3"))
        );
        let sh = |script: &str| is_slow(Command::new("sh").args(["-c", script]), 0.3).unwrap();
        assert!(!sh("sleep 0.8") && sh("while :; do :; done") && sh("exit 101"));
    }

    #[test]
    fn executions_are_what_libfuzzer_says() {
        assert_eq!(executions("Done\nstat::number_of_executed_units: 1234\nstat::x: 5\n"), 1234);
        assert_eq!(executions("crashed"), 0);
    }
}
