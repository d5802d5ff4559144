//! Commands that we start: shown before they run, timed, and a failure names the command.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// A step of a long verb, announced when it begins and timed when it is done.
pub struct Step {
    name: String,
    began: Instant,
}

impl Step {
    /// Announces the step.
    pub fn begin(name: &str) -> Step {
        println!("==> {name}");
        Step { name: name.to_string(), began: Instant::now() }
    }

    /// Says how long it took.
    pub fn done(self) {
        println!("    {}: {:.1} s", self.name, self.began.elapsed().as_secs_f64());
    }
}

/// The cargo that runs us, so that a pinned or unusual toolchain stays the same one.
pub fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs cargo in the workspace, its output going where ours goes.
pub fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    let mut command = workspace.command(cargo_program());
    command.args(arguments);
    run(command)
}

/// Runs a command to its end; anything but success is an error that names it.
pub fn run(mut command: Command) -> Result<()> {
    let shown = shown(&command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// A command as one would type it.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Finds a program on the PATH, or in the system folders that an ordinary user's PATH leaves out.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(name)).find(|found| found.is_file())
}
