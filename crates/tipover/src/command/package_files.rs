//! Manual pages and completions of shells, from the definition of the command line: what packages carry
//! beside the program.

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use std::path::Path;

/// Writes `man/tipover*.1` and `completions/` below `folder`.
///
/// # Errors
/// They cannot be written there.
pub fn write(mut command: Command, folder: &Path) -> Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&man, &completions] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "tipover", &completions)
            .with_context(|| format!("writing the completions of {shell}"))?;
    }
    clap_mangen::generate_to(command, &man).with_context(|| format!("writing {}", man.display()))
}
