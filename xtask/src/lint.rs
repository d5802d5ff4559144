//! What can be judged without running the product.

use anyhow::{Context, Result, bail};

use crate::process::{Step, cargo, cargo_program};
use crate::tidy;
use crate::workspace::Workspace;

/// Everything that `lint` checks: the cheap rules, and cargo deny when the machine has it.
pub fn lint(workspace: &Workspace) -> Result<()> {
    // Clippy compiles, and the build of the WiredTiger binding needs its sources.
    crate::setup::set_up(workspace, crate::setup::Purpose::Sources)?;
    cheap_rules(workspace)?;
    deny(workspace)
}

/// Format, clippy and tidy. All of them run even when one fails, so that one run shows everything.
pub fn cheap_rules(workspace: &Workspace) -> Result<()> {
    let mut failed = Vec::new();
    let step = Step::begin("format");
    let formatted = component(workspace, "fmt").and_then(|()| cargo(workspace, &["fmt", "--all", "--check"]));
    failed.extend(formatted.err());
    step.done();

    let step = Step::begin("clippy");
    let clippy = ["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"];
    failed.extend(component(workspace, "clippy").and_then(|()| cargo(workspace, &clippy)).err());
    step.done();

    let step = Step::begin("tidy");
    failed.extend(tidy::tidy(workspace).err());
    step.done();

    if failed.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = failed.iter().map(|error| format!("{error:#}")).collect();
    bail!("{}", reasons.join("; "));
}

/// A distribution's Rust may come without these two; rustup adds them from `rust-toolchain.toml`.
fn component(workspace: &Workspace, name: &str) -> Result<()> {
    let mut command = workspace.command(cargo_program());
    let output = command.args([name, "--version"]).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!(
            "`cargo {name}` is missing; install it with `rustup component add rustfmt clippy`, \
             or with `apt-get install rustfmt rust-clippy` for Debian's own Rust"
        );
    }
    Ok(())
}

/// Tidy already enforces the licence list, so a machine without cargo deny misses advisories and bans only.
fn deny(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.command(cargo_program());
    if !command.args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        println!(
            "SKIPPED: cargo deny is not installed (advisories and bans unchecked; tidy checked licences)"
        );
        println!("         to have it: cargo install cargo-deny --locked");
        return Ok(());
    }
    let step = Step::begin("cargo deny");
    cargo(workspace, &["deny", "check", "bans", "licenses", "sources"])?;
    advisories(workspace)?;
    step.done();
    Ok(())
}

/// The advisories are a database on the network; a machine that cannot reach it has not found a fault.
fn advisories(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.command(cargo_program());
    let output = command.args(["deny", "check", "advisories"]).output().context("cannot start cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("failed to fetch advisory database") {
        println!("SKIPPED: advisories are unchecked, because their database cannot be reached from here");
        return Ok(());
    }
    print!("{}{said}", String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        bail!("cargo deny found advisories");
    }
    Ok(())
}
