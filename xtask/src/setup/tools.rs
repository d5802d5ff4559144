//! Programs of others that single verbs need: made or fetched when they are asked for, pinned, and kept in
//! `third_party/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// Makes a book of Markdown files (MPL-2.0; nothing of it is linked into what we make).
const MDBOOK_VERSION: &str = "0.5.4";

/// mdBook, by Cargo: two minutes on two cores, once.
///
/// # Errors
/// It cannot be had, most likely for want of a network.
pub fn mdbook(workspace: &Workspace) -> Result<PathBuf> {
    let folder = format!("mdbook-{MDBOOK_VERSION}");
    placed(workspace, &folder, "mdbook", "mdBook", |staging| {
        let mut build = cargo_install(workspace, staging, "mdbook", MDBOOK_VERSION);
        // It need not serve or watch.
        run_quietly(build.args(["--no-default-features", "--features", "search"]))?;
        Ok(staging.join("bin"))
    })
    .context("mdBook makes the site; it is compiled with Cargo from crates.io")
    .map(|place| place.join("mdbook"))
}

/// `cargo install` into `staging`. The registry's index has the hash of the program, and --locked the hashes
/// of all that it is made of.
pub fn cargo_install(workspace: &Workspace, staging: &Path, name: &str, version: &str) -> Command {
    let mut build = workspace.command(crate::process::cargo_program());
    // Outside of the workspace, whose settings are not meant for it.
    build.current_dir(staging).env("CARGO_TARGET_DIR", staging.join("target"));
    // Who works offline has what the workspace needs, and not this.
    build.env_remove("CARGO_NET_OFFLINE");
    build.args(["install", name, "--version", version, "--locked", "--root"]).arg(staging);
    build
}

/// Makes `third_party/<folder>` by `make`, which returns a whole folder inside the staging folder; that it
/// holds `proof` shows that it is there already. Where it is.
///
/// # Errors
/// It could not be made.
pub fn placed(
    workspace: &Workspace,
    folder: &str,
    proof: &str,
    what: &str,
    make: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<PathBuf> {
    let parent = workspace.path("third_party");
    let place = parent.join(folder);
    if place.join(proof).is_file() {
        println!("    {what}: already in third_party/{folder}");
        return Ok(place);
    }
    let staging = parent.join(format!(".staging-{folder}-{}", std::process::id()));
    let made =
        fs::create_dir_all(&staging).map_err(Into::into).and_then(|()| make(&staging)).and_then(|whole| {
            match fs::rename(whole, &place) {
                // Another setup was faster; what it put there is the same.
                Err(_) if place.join(proof).is_file() => Ok(()),
                renamed => renamed.with_context(|| format!("cannot rename into third_party/{folder}")),
            }
        });
    let _ = fs::remove_dir_all(&staging);
    made?;
    println!("    {what}: now in third_party/{folder}");
    Ok(place)
}

/// Runs a command whose chatter would bury ours; what it said is in the error.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    let shown = crate::process::shown(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        bail!("`{shown}` ended with {}: {}", output.status, last.join(" / "));
    }
    Ok(())
}
