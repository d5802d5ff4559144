//! Third-party sources: fetched with pinned hashes, staged, and renamed into place when they are whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::packages::python_with_pip;
use crate::process::run;
use crate::workspace::Workspace;

/// Something that we build against or embed, but do not keep in the repository.
pub struct Source {
    /// Its name in the Python package index.
    pub project: &'static str,
    /// Pinned, and part of the folder's name, so that two versions never mix.
    pub version: &'static str,
    /// What it may be used under, as an SPDX expression.
    pub licence: &'static str,
    file_name: &'static str,
    /// Of the archive, as the index has it.
    pub sha256: &'static str,
    /// What of the archive to unpack, in the words of `fetch.py`.
    unpack: &'static [&'static str],
    /// One file that must be there afterwards.
    proof: &'static str,
}

/// Of WiredTiger's source distribution the tests stay behind, but for the library that wtperf, the peer of
/// our bench, is built with. Of Plotly's wheel we want only the browser library and its licence.
pub const SOURCES: &[Source] = &[
    Source {
        project: "wiredtiger",
        version: "11.3.1",
        licence: "GPL-2.0-only OR GPL-3.0-only",
        file_name: "wiredtiger-11.3.1.tar.gz",
        sha256: "95052d1b6fc06921dd617aafa1ba2a773d8dbbbf2eb74f77147290a630e598d0",
        unpack: &["--strip", "1", "--except", "test", "--except", "bench/workgen", "--keep", "test/utility"],
        proof: "src/include/wiredtiger.in",
    },
    Source {
        project: "plotly",
        version: "7.1.0",
        licence: "MIT",
        file_name: "plotly-7.1.0-py3-none-any.whl",
        sha256: "dbb7fa18afce40d0a8e80d1bf162eceb3faa0ce5a77fe741ad09a74cf78f53f3",
        unpack: &["--strip", "2", "--only", "plotly.min.js", "--only", "LICENSE.txt"],
        proof: "plotly.min.js",
    },
];

/// What only tests need, and can do without where it is not to be had.
pub const FOR_TESTS: &[Source] = &[
    Source {
        project: "duckdb-cli",
        version: "1.5.6",
        licence: "MIT",
        file_name: "duckdb_cli-1.5.6-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256: "9797555bd39095d730eb0d0b3bf29e95e148c96a4cdce1e363f01c7bf7003a44",
        unpack: &["--strip", "1", "--only", "duckdb"],
        proof: "duckdb",
    },
    // axe-core (MPL-2.0), which finds what keeps a page from keyboards and screen readers.
    Source {
        project: "axe-playwright-python",
        version: "0.1.8",
        licence: "MIT AND MPL-2.0",
        file_name: "axe_playwright_python-0.1.8-py3-none-any.whl",
        sha256: "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8",
        unpack: &["--strip", "1", "--only", "axe.min.js"],
        proof: "axe.min.js",
    },
    // Of its many schemas those of one Kubernetes, which take no field that they do not know.
    Source {
        project: "kubernetes-validate",
        version: "1.37.0",
        licence: "Apache-2.0",
        file_name: "kubernetes_validate-1.37.0-py3-none-any.whl",
        sha256: "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
        unpack: &["--strip", "2", "--only", "v1.34.0-local-strict/_definitions.json"],
        proof: "v1.34.0-local-strict/_definitions.json",
    },
];

/// What packages are compiled with where they shall run on older systems: a C compiler and linker that brings
/// every version of glibc, and what lets Cargo use it. Of the first, its runtime library and LLVM's libunwind
/// are in what they make; of the second nothing.
pub const FOR_PACKAGES: &[Source] = &[
    Source {
        project: "ziglang",
        version: "0.13.0",
        licence: "MIT AND Apache-2.0 WITH LLVM-exception",
        file_name: "ziglang-0.13.0-py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.musllinux_1_1_x86_64.whl",
        sha256: "3ce0c9f16547e5d61b32e0d226926e9a2552ef4b91fccf7ab5ea1a623a77824b",
        unpack: &["--strip", "1"],
        proof: "zig",
    },
    Source {
        project: "cargo-zigbuild",
        version: "0.24.0",
        licence: "MIT",
        file_name: "cargo_zigbuild-0.24.0-py3-none-manylinux_2_5_x86_64.manylinux1_x86_64.whl",
        sha256: "484412e39e4c6039474535ce97ee75a22bab22d58233056f8ec8a8f9034bb957",
        unpack: &["--strip", "2", "--only", "cargo-zigbuild"],
        proof: "cargo-zigbuild",
    },
];

/// Written last into a staged folder: which archive the folder was made of, and how.
const STAMP: &str = ".fetched";
const ATTEMPTS: u32 = 3;

/// The hash, and the way of unpacking: a change of either makes an old folder stale.
fn stamp_of(source: &Source) -> String {
    format!("sha256:{}\n{}\n", source.sha256, source.unpack.join(" "))
}

fn is_in_place(folder: &Path, source: &Source) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == stamp_of(source))
        && folder.join(source.proof).is_file()
}

impl Source {
    /// Where its files lie.
    pub fn folder(&self, workspace: &Workspace) -> PathBuf {
        workspace.path("third_party").join(format!("{}-{}", self.project, self.version))
    }
}

/// Brings one source into `third_party/<project>-<version>`, or leaves what is already there.
pub fn fetch(workspace: &Workspace, source: &Source) -> Result<()> {
    let parent = workspace.path("third_party");
    let folder = source.folder(workspace);
    if is_in_place(&folder, source) {
        println!("    already in {}", relative(workspace, &folder));
        return Ok(());
    }
    let python = python_with_pip().context(
        "Python has no pip, which fetches the sources; install it with: sudo apt-get install python3-pip",
    )?;
    let staging = parent.join(format!(".staging-{}-{}", source.project, std::process::id()));
    let outcome = stage_and_rename(&fetcher(workspace, python), source, &staging, &folder);
    // The archive is no longer needed, and half a download must not be mistaken for one.
    let _ = fs::remove_dir_all(&staging);
    outcome?;
    println!("    now in {}", relative(workspace, &folder));
    Ok(())
}

fn stage_and_rename(fetcher: &Fetcher, source: &Source, staging: &Path, folder: &Path) -> Result<()> {
    let unpacked = staging.join("unpacked");
    fs::create_dir_all(&unpacked).with_context(|| format!("cannot create {}", unpacked.display()))?;
    download(fetcher, source, staging)?;

    let mut command = fetcher();
    command.arg("unpack").arg(staging.join(source.file_name)).arg(&unpacked).args(source.unpack);
    run(command).with_context(|| format!("cannot unpack {}", source.file_name))?;
    if !unpacked.join(source.proof).is_file() {
        bail!("{} holds no {}; is its layout another one than expected?", source.file_name, source.proof);
    }
    fs::write(unpacked.join(STAMP), stamp_of(source))?;
    if folder.exists() {
        fs::rename(folder, staging.join("stale")).context("cannot move the stale folder away")?;
    }
    match fs::rename(&unpacked, folder) {
        // Another setup was faster; what it put there is the same.
        Err(_) if is_in_place(folder, source) => Ok(()),
        renamed => renamed.with_context(|| format!("cannot rename into {}", folder.display())),
    }
}

/// A network fails for moments, so we try again; after a wrong hash too: it may be a proxy's error page.
fn download(fetcher: &Fetcher, source: &Source, staging: &Path) -> Result<()> {
    for attempt in 1..=ATTEMPTS {
        let mut command = fetcher();
        command
            .args(["download", source.project, source.version, source.file_name, source.sha256])
            .arg(staging);
        match run(command) {
            Ok(()) => return Ok(()),
            Err(_) if attempt < ATTEMPTS => {
                println!("    attempt {attempt} of {ATTEMPTS} failed; trying again");
                std::thread::sleep(Duration::from_secs(u64::from(attempt) * 2));
            }
            Err(_) => {}
        }
    }
    bail!(
        "could not fetch {} in {ATTEMPTS} attempts; is the package index reachable? \
         `python3 -m pip config list` shows which one this machine uses; PIP_INDEX_URL, PIP_PROXY and \
         PIP_CERT change it",
        source.file_name
    )
}

/// Makes a command that runs `fetch.py`.
type Fetcher<'a> = dyn Fn() -> Command + 'a;

fn fetcher<'a>(workspace: &'a Workspace, python: &'a str) -> impl Fn() -> Command + 'a {
    move || {
        let mut command = workspace.command(python);
        command.arg(workspace.path("xtask/src/setup/fetch.py"));
        command
    }
}

fn relative(workspace: &Workspace, path: &Path) -> String {
    path.strip_prefix(&workspace.root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_counts_only_with_its_stamp_and_its_proof() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        let source = &SOURCES[1];
        fs::create_dir_all(&folder).unwrap();
        assert!(!is_in_place(&folder, source));
        fs::write(folder.join(source.proof), "x").unwrap();
        assert!(!is_in_place(&folder, source), "a file without a stamp may be half of it");
        fs::write(folder.join(STAMP), stamp_of(&SOURCES[0])).unwrap();
        assert!(!is_in_place(&folder, source), "the stamp of another archive");
        fs::write(folder.join(STAMP), stamp_of(source)).unwrap();
        assert!(is_in_place(&folder, source));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_pin_is_a_whole_hash() {
        for source in SOURCES.iter().chain(FOR_TESTS).chain(FOR_PACKAGES) {
            assert_eq!(source.sha256.len(), 64, "{}", source.project);
            assert!(source.file_name.contains(source.version), "{}", source.project);
        }
    }
}
