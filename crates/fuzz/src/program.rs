//! Corpora as folders, as libFuzzer has them, and as files, as git has them; for `cargo xtask fuzz`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tipover_fuzz::{TARGETS, Target, corpus};

const USAGE: &str = "tipover-corpus list | unpack TARGET FOLDER | pack TARGET FOLDER | try TARGET FILE...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match perform(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tipover-corpus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: &[&str]) -> io::Result<()> {
    let known =
        |name: &str| Target::named(name).ok_or_else(|| io::Error::other(format!("no target {name:?}")));
    match arguments {
        ["list"] => TARGETS.iter().for_each(|target| println!("{} {}", target.name, target.about)),
        ["unpack", target, folder] => unpack(known(target)?, Path::new(folder))?,
        ["pack", target, folder] => pack(known(target)?, Path::new(folder))?,
        ["try", target, files @ ..] => {
            let target = known(target)?;
            for file in files {
                println!("{file}: {} bytes of memory", target.try_out(&std::fs::read(file)?));
            }
        }
        _ => return Err(io::Error::other(USAGE)),
    }
    Ok(())
}

/// Where a target's corpus is kept.
fn kept(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

fn unpack(target: Target, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let packed = match std::fs::read(kept(target)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => corpus::pack([]),
        read => read?,
    };
    let inputs = corpus::unpack(&packed).ok_or_else(|| io::Error::other("the corpus is damaged"))?;
    for (number, input) in inputs.iter().enumerate() {
        std::fs::write(folder.join(format!("kept-{number:04}")), input)?;
    }
    Ok(())
}

/// A corpus takes no more of git than this.
const MOST_BYTES: usize = 16 << 10;

/// Smallest inputs first, as many as may be kept.
fn pack(target: Target, folder: &Path) -> io::Result<()> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() != Some(OsStr::new("tmp")) {
            inputs.push(std::fs::read(path)?);
        }
    }
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let mut bytes = 0;
    inputs.retain(|input| {
        bytes += input.len() + 4;
        bytes <= MOST_BYTES
    });
    std::fs::write(kept(target), corpus::pack(inputs.iter().map(Vec::as_slice)))
}
