//! The house rules, as a program: a rule that nobody runs is a wish. Each rule is a small pure function from
//! text to findings, with a test that convicts and one that acquits.

mod code;
mod dependencies;
mod licences;
mod manifests;
mod markdown;
mod modules;
mod purity;
mod secrets;
mod sizes;
mod style;
mod wrap;

pub use markdown::{SUMMARY, links, resolve};

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// A place where a rule is broken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// A finding about one line.
    fn at(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, message: message.into() }
    }

    /// A finding about a whole file.
    fn about(path: &str, message: impl Into<String>) -> Finding {
        Finding::at(path, 0, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(to, "{}: {}", self.path, self.message),
            line => write!(to, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A file that git tracks or would track, with its text; a binary file has none.
pub struct File {
    path: String,
    size: u64,
    text: Option<String>,
}

impl File {
    fn read(workspace: &Workspace, path: &str) -> Result<File> {
        let bytes = fs::read(workspace.path(path)).with_context(|| format!("cannot read {path}"))?;
        Ok(File { path: path.to_string(), size: bytes.len() as u64, text: String::from_utf8(bytes).ok() })
    }

    #[cfg(test)]
    fn of(path: &str, text: &str) -> File {
        File { path: path.to_string(), size: text.len() as u64, text: Some(text.to_string()) }
    }

    /// The text, or nothing to look at.
    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Prints every finding; any makes it fail.
pub fn tidy(workspace: &Workspace) -> Result<()> {
    let (findings, files) = findings(workspace)?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("    {files} files are tidy");
        return Ok(());
    }
    bail!("tidy found {} things to put right", findings.len());
}

/// Wraps wide comments in every Rust file; the only rule that can be mended without thinking.
pub fn wrap(workspace: &Workspace) -> Result<()> {
    for path in workspace.files()?.iter().filter(|path| path.ends_with(".rs")) {
        let text = fs::read_to_string(workspace.path(path)).with_context(|| format!("cannot read {path}"))?;
        let wrapped = wrap::comments(&text);
        if wrapped != text {
            fs::write(workspace.path(path), wrapped).with_context(|| format!("cannot write {path}"))?;
            println!("wrapped comments in {path}");
        }
    }
    Ok(())
}

/// All findings, and how many files were read.
fn findings(workspace: &Workspace) -> Result<(Vec<Finding>, usize)> {
    let metadata = workspace.metadata()?;
    let paths = workspace.files()?;
    let files: Vec<File> = paths.iter().map(|path| File::read(workspace, path)).collect::<Result<_>>()?;
    let exists = |path: &str| workspace.path(path).exists();

    let mut findings = Vec::new();
    findings.extend(dependencies::direction(&metadata));
    findings.extend(dependencies::purity(&metadata));
    findings.extend(licences::check(&metadata, &files));
    findings.extend(manifests::check(&files));
    findings.extend(markdown::check(&files, exists));
    findings.extend(modules::binary(&files));
    findings.extend(modules::targets(&files));
    findings.extend(modules::rings(&files));
    findings.extend(purity::core(&files));
    findings.extend(purity::unsafe_code(&files));
    findings.extend(secrets::check(&files));
    findings.extend(sizes::check(&files));
    findings.extend(style::check(&files));
    findings.sort();
    Ok((findings, files.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let (findings, _) = findings(&Workspace::locate().unwrap()).unwrap();
        let listing: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "\n{}", listing.join("\n"));
    }
}
