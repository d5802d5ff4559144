//! A program that runs on older systems than the one it is compiled on.
//!
//! A linker takes of each function of glibc the newest version that it finds, so what is compiled here runs
//! only where glibc is as new. Zig brings the lists of every version of glibc, compiles C (WiredTiger too)
//! and links against the one that it is told.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::process::{Step, cargo_program, run};
use crate::setup;
use crate::workspace::Workspace;

/// The oldest glibc that packages run on: Debian 11's and Ubuntu 20.04's.
pub const GLIBC: &str = "2.31";
/// The C library of these is called so by Rust and by Zig.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the release for [`GLIBC`]: where the program is.
///
/// # Errors
/// Zig cannot be had here, or does not compile it.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("Zig is fetched for x86-64 Linux only");
    }
    let step = Step::begin(&format!("build tipover for glibc {GLIBC}, with Zig"));
    for source in setup::FOR_PACKAGES {
        setup::fetch(workspace, source)?;
    }
    let [zig, zigbuild] = setup::FOR_PACKAGES else { bail!("two programs compile a package") };
    let mut build = workspace.command(zigbuild.folder(workspace).join("cargo-zigbuild"));
    build.env("CARGO", cargo_program()).env("CARGO_ZIGBUILD_ZIG_PATH", zig.folder(workspace).join("zig"));
    build.args(["zigbuild", "--release", "--locked", "-p", "tipover"]);
    run({
        build.args(["--target", &format!("{TARGET}.{GLIBC}")]);
        build
    })?;
    step.done();
    Ok(workspace.target_folder()?.join(TARGET).join("release/tipover"))
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
