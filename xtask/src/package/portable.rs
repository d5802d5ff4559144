//! A program that runs on older systems than the one it is compiled on.
//!
//! A linker takes of each function of glibc the newest version that it finds, so what is compiled here runs
//! only where glibc is as new. Zig brings the lists of every version of glibc, compiles C (WiredTiger too)
//! and links against the one that it is told.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{Step, cargo_program, run};
use crate::setup;
use crate::workspace::Workspace;

/// The oldest glibc that packages run on: Debian 11's and Ubuntu 20.04's.
pub const GLIBC: &str = "2.31";

/// A processor that packages are made for.
#[derive(Clone, Copy, PartialEq)]
pub struct Machine {
    /// Debian's word.
    pub debian: &'static str,
    /// The kernel's.
    pub kernel: &'static str,
    /// Rust's and Zig's, with the system and its C library.
    pub triple: &'static str,
}

pub const AMD64: Machine = Machine { debian: "amd64", kernel: "x86_64", triple: "x86_64-unknown-linux-gnu" };
pub const ARM64: Machine =
    Machine { debian: "arm64", kernel: "aarch64", triple: "aarch64-unknown-linux-gnu" };

impl Machine {
    /// The one that this runs on.
    pub fn here() -> Result<Machine> {
        let here = [AMD64, ARM64].into_iter().find(|known| known.kernel == std::env::consts::ARCH);
        here.with_context(|| format!("no package is made for {}", std::env::consts::ARCH))
    }
}

/// Builds the release for [`GLIBC`]: where the program is.
///
/// # Errors
/// Zig or Rust's library for that machine cannot be had here, or it does not compile.
pub fn build(workspace: &Workspace, machine: Machine) -> Result<PathBuf> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("Zig is fetched for x86-64 Linux only");
    }
    let triple = machine.triple;
    let library = sysroot(workspace)?.join("lib/rustlib").join(triple).join("lib");
    if !library.is_dir() {
        bail!("Rust's library for {} is not installed: `rustup target add {triple}`", machine.debian);
    }
    let step = Step::begin(&format!("build tipover for {} and glibc {GLIBC}, with Zig", machine.debian));
    for source in setup::FOR_PACKAGES {
        setup::fetch(workspace, source)?;
    }
    let [zig, zigbuild] = setup::FOR_PACKAGES else { bail!("two programs compile a package") };
    let mut build = workspace.command(zigbuild.folder(workspace).join("cargo-zigbuild"));
    build.env("CARGO", cargo_program()).env("CARGO_ZIGBUILD_ZIG_PATH", zig.folder(workspace).join("zig"));
    build.args(["zigbuild", "--release", "--locked", "-p", "tipover"]);
    run({
        build.args(["--target", &format!("{triple}.{GLIBC}")]);
        build
    })?;
    step.done();
    Ok(workspace.target_folder()?.join(triple).join("release/tipover"))
}

/// Where the compiler lies, with its libraries and its own programs.
fn sysroot(workspace: &Workspace) -> Result<PathBuf> {
    let told =
        workspace.command("rustc").args(["--print", "sysroot"]).output().context("cannot start rustc")?;
    Ok(PathBuf::from(String::from_utf8_lossy(&told.stdout).trim()))
}

/// What copies a program without some of its sections, whichever machine it is for: rustup's compiler brings
/// it. Where that does not, the system's does it for this machine's programs.
pub fn object_copier(workspace: &Workspace) -> Result<Command> {
    let sysroot = sysroot(workspace)?;
    let path = sysroot.join("lib/rustlib").join(Machine::here()?.triple).join("bin/rust-objcopy");
    if !path.is_file() {
        return Ok(workspace.command("objcopy"));
    }
    let mut command = workspace.command(path);
    command.env("LD_LIBRARY_PATH", sysroot.join("lib"));
    Ok(command)
}

/// The newest version of glibc that a program asks for: "2.35".
pub fn glibc(binary: &[u8]) -> Option<String> {
    const SIGN: &[u8] = b"GLIBC_2.";
    let minor = |at: &[u8]| -> Option<u32> {
        let digits: Vec<u8> = at[SIGN.len()..].iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8(digits).ok()?.parse().ok()
    };
    let minors = binary.windows(SIGN.len() + 3).filter(|at| at.starts_with(SIGN)).filter_map(minor);
    minors.max().map(|minor| format!("2.{minor}"))
}

/// Whether a program names a library.
pub fn names(binary: &[u8], library: &str) -> bool {
    binary.windows(library.len()).any(|at| at == library.as_bytes())
}

/// That a program which was built for [`GLIBC`] asks for nothing newer.
///
/// # Errors
/// It does.
pub fn prove(binary: &[u8]) -> Result<()> {
    let asked = glibc(binary).context("the program names no version of glibc")?;
    let minor = |version: &str| version.trim_start_matches("2.").parse::<u32>().unwrap_or(u32::MAX);
    if minor(&asked) > minor(GLIBC) {
        bail!("it was built for glibc {GLIBC} and asks for {asked}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_counts() {
        assert_eq!(glibc(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0"), Some("2.34".into()));
        assert_eq!(glibc(b"nothing at all, and no such word"), None);
        assert!(prove(b"GLIBC_2.2.5\0GLIBC_2.31\0GLIBC_2.9\0 ").is_ok());
        assert!(prove(b"GLIBC_2.2.5\0GLIBC_2.32\0 ").unwrap_err().to_string().contains("asks for 2.32"));
        assert!(
            names(b"\0libm.so.6\0libgcc_s.so.1\0", "libgcc_s.so.1") && !names(b"libgcc", "libgcc_s.so.1")
        );
        assert!(prove(b"nothing at all, and no such word").is_err());
    }
}
