//! go-ycsb with all its databases, built once; only a full run builds it.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MODULE: &str = "github.com/pingcap/go-ycsb";
const VERSION: &str = "v1.0.1";

/// The program that an earlier run built or, if `build`, a new one.
pub fn program(build: bool) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("go-ycsb-{VERSION}"));
    let program = folder.join("go-ycsb");
    if program.exists() {
        return Ok(program);
    }
    ensure!(build, "only `cargo bench` builds it");
    fs::create_dir_all(&folder)?;
    // Not `go install ...@version`, which also wants the list of all versions from the proxy.
    fs::write(folder.join("go.mod"), format!("module peer\n\ngo 1.21\n\nrequire {MODULE} {VERSION}\n"))?;
    eprintln!("building {MODULE} {VERSION} (once, about 2 minutes)");
    let staged = format!("staged.{}", std::process::id());
    let status = Command::new("go")
        .args(["build", "-mod=mod", "-o", &staged, &format!("{MODULE}/cmd/go-ycsb")])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .status()
        .context("the program `go` cannot be started; Go 1.21 or newer is needed")?;
    ensure!(status.success(), "`go build` in {} ended with {status}", folder.display());
    fs::rename(folder.join(staged), &program)?;
    Ok(program)
}

/// Reads per second by its last line of them, which must count as many as were asked for:
/// `READ   - Takes(s): 2.2, Count: 5000000, OPS: 2261854.5, Avg(us): 0, ...`
pub fn reads_per_s(output: &str, operations: u64) -> Result<f64> {
    let line = output.lines().rfind(|line| line.starts_with("READ ")).context("no READ line")?;
    let number = |word: &str| -> Result<f64> {
        let after = line.split_once(word).with_context(|| format!("no {word} in {line}"))?.1;
        Ok(after.split(',').next().unwrap_or_default().trim().parse()?)
    };
    let count = number("Count:")?;
    ensure!(count == operations as f64, "go-ycsb counts {count} of {operations} operations");
    number("OPS:")
}
