//! Commands that we start: shown before they run, timed, and a failure names the command.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

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
pub fn run(command: Command) -> Result<()> {
    start(command)?.succeeded()
}

/// A command that goes on while we look at what it does.
pub struct Running {
    shown: String,
    child: Child,
    status: Option<ExitStatus>,
}

/// Starts a command.
pub fn start(mut command: Command) -> Result<Running> {
    let shown = shown(&command);
    let child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    Ok(Running { shown, child, status: None })
}

impl Running {
    /// Whether it has ended.
    pub fn is_over(&mut self) -> Result<bool> {
        self.status = self.child.try_wait().with_context(|| format!("waiting for `{}`", self.shown))?;
        Ok(self.status.is_some())
    }

    /// Waits for its end; anything but success is an error that names it.
    pub fn succeeded(mut self) -> Result<()> {
        let status = match self.status {
            Some(status) => status,
            None => self.child.wait().with_context(|| format!("waiting for `{}`", self.shown))?,
        };
        if !status.success() {
            bail!("`{}` ended with {status}", self.shown);
        }
        Ok(())
    }
}

/// "after 6 min 12 s".
pub fn minutes(span: Duration) -> String {
    let s = span.as_secs();
    format!("after {} min {} s", s / 60, s % 60)
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
