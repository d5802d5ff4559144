//! The workspace as cargo and git describe it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// Where the repository is, and the environment its commands run in.
pub struct Workspace {
    /// The folder of the workspace's `Cargo.toml`.
    pub root: PathBuf,
}

impl Workspace {
    /// The workspace this program was compiled in: xtask always runs from its own checkout.
    pub fn locate() -> Result<Workspace> {
        let root = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(manifest) => PathBuf::from(manifest),
            None => PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        };
        let root = root.parent().context("xtask's folder has no parent")?.to_path_buf();
        if !root.join("Cargo.toml").exists() {
            bail!("{} has no Cargo.toml; was the checkout moved? Build xtask again", root.display());
        }
        Ok(Workspace { root })
    }

    /// A command that runs in the root, without what `cargo run` put into our environment: a build script
    /// that reads it would otherwise think it changed, and compile again.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
                || text == "CARGO_BIN_NAME"
            {
                command.env_remove(&name);
            }
        }
        command
    }

    /// `cargo metadata`, locked: a stale `Cargo.lock` is itself untidy.
    pub fn metadata(&self) -> Result<Value> {
        let mut command = self.command(process::cargo_program());
        command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
        let output = command.output().context("cannot start cargo")?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            bail!("cargo metadata --locked failed (is Cargo.lock current?): {}", reason.trim());
        }
        serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")
    }

    /// Where build output goes; it honours CARGO_TARGET_DIR and the user's configuration.
    pub fn target_folder(&self) -> Result<PathBuf> {
        let metadata = self.metadata()?;
        let folder =
            metadata["target_directory"].as_str().context("cargo metadata names no target folder")?;
        Ok(PathBuf::from(folder))
    }

    /// The name of every bench of every member, as `--bench` takes it, in the order of the members.
    pub fn benches(&self) -> Result<Vec<String>> {
        let metadata = self.metadata()?;
        let mut benches = Vec::new();
        for package in members(&metadata) {
            for target in array(&package["targets"]) {
                if array(&target["kind"]).iter().any(|kind| kind == "bench") {
                    benches.push(text(&target["name"]));
                }
            }
        }
        Ok(benches)
    }

    /// Paths, relative to the root, of all files that are tracked or could be: what git does not ignore.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut command = self.command("git");
        command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output = command.output().context("cannot start git")?;
        if !output.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let listing = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let mut files: Vec<String> =
            listing.split('\0').filter(|path| !path.is_empty()).map(String::from).collect();
        files.sort();
        files.dedup();
        // A tracked file that was just deleted is still in the index.
        files.retain(|path| self.root.join(path).is_file());
        Ok(files)
    }

    /// A path inside the workspace.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }
}

/// The packages of `cargo metadata` that live in this workspace.
pub fn members(metadata: &Value) -> Vec<&Value> {
    let ids = array(&metadata["workspace_members"]);
    array(&metadata["packages"]).iter().filter(|package| ids.contains(&package["id"])).collect()
}

/// A JSON array, or nothing when it is something else.
pub fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A JSON string, or the empty one when it is something else.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}
