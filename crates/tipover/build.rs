//! Packs Plotly.js as the report embeds it, and says which commit this is.

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PLOTLY: &str = "third_party/plotly-7.1.0/plotly.min.js";

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let from = root.join(PLOTLY);
    println!("cargo::rerun-if-changed={}", from.display());
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("plotly.min.js.gz.base64");
    if let Err(e) = fs::read(&from).and_then(|library| fs::write(&to, packed(&library)?)) {
        println!("cargo::error=the chart library {} cannot be read ({e}): run `make setup`", from.display());
    }
    // Its figures are not those of the release, and records say so.
    let level = env::var("OPT_LEVEL").expect("cargo sets it");
    let level = if level == "3" { String::new() } else { format!(", opt-level {level}") };
    println!("cargo::rustc-env=TIPOVER_COMMIT={}{level}", commit(&root));
}

/// As gzip in base64, a third of its size.
fn packed(library: &[u8]) -> std::io::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(library)?;
    Ok(STANDARD.encode(encoder.finish()?))
}

/// The commit, marked when the tree differs from it; "unknown" outside a repository.
fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    // Commits move HEAD's log; edits since then are seen when they make this crate build again.
    println!("cargo::rerun-if-changed={}", root.join(".git/logs/HEAD").display());
    println!("cargo::rerun-if-changed=src");
    match git(&["status", "--porcelain", "--untracked-files=no"]).as_deref() {
        Some("") => commit,
        _ => format!("{commit} + changes"),
    }
}
