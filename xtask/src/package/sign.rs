//! Signatures beside what `make package` made, with an SSH key of the person who makes it: no key is kept
//! here, and whoever checks needs nothing but OpenSSH.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::run;

/// What the signature is for, in OpenSSH's words: one that was made for a mail or a commit does not count.
const NAMESPACE: &str = "file";

/// The key that `--sign` names: a private one, or the public one of a key that an agent holds. Asked for
/// before anything is compiled.
pub fn key(given: Option<&String>) -> Result<PathBuf> {
    let path = PathBuf::from(given.context("--sign needs the path of an SSH key")?);
    if !path.is_file() {
        bail!("there is no key {}; ssh-keygen -t ed25519 makes one", path.display());
    }
    Ok(path)
}

/// Writes the signature of a file to `FILE.sig`.
pub fn sign(key: &Path, file: &Path) -> Result<()> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "sign", "-n", NAMESPACE, "-f"]).arg(key).arg(file);
    run(command)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Stdio;

    use super::*;
    use crate::process::find_program;

    /// A new key without a password: its path, and the line by which its owner is known.
    fn throw_away(folder: &Path, name: &str) -> (PathBuf, String) {
        let path = folder.join(name);
        let mut make = Command::new("ssh-keygen");
        run({
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path);
            make
        })
        .unwrap();
        let public = fs::read_to_string(path.with_extension("pub")).unwrap();
        (path, format!("tipover namespaces=\"{NAMESPACE}\" {public}"))
    }

    /// As `docs/package.md` says.
    fn verifies(file: &Path, allowed: &str) -> bool {
        let signers = file.with_extension("allowed");
        fs::write(&signers, allowed).unwrap();
        let mut verify = Command::new("ssh-keygen");
        verify.args(["-Y", "verify", "-I", "tipover", "-n", NAMESPACE, "-f"]).arg(signers).arg("-s");
        verify.arg(file.with_file_name("made.deb.sig")).stdin(fs::File::open(file).unwrap());
        verify.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    #[test]
    fn what_was_signed_verifies_and_what_was_changed_since_does_not() {
        if find_program("ssh-keygen").is_none() {
            println!("SKIPPED: ssh-keygen is not installed");
            return;
        }
        let folder = std::env::temp_dir().join(format!("xtask-sign-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let ((ours, known), (_, stranger)) = (throw_away(&folder, "ours"), throw_away(&folder, "stranger"));
        let file = folder.join("made.deb");
        let mut bytes: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&file, &bytes).unwrap();
        sign(&ours, &file).unwrap();
        assert!(verifies(&file, &known));
        assert!(!verifies(&file, &stranger), "the key of somebody else");
        bytes[5000] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(!verifies(&file, &known), "one bit is another");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_key_that_is_not_there_is_said_at_once() {
        let message = |given: Option<&str>| key(given.map(String::from).as_ref()).unwrap_err().to_string();
        assert_eq!(message(None), "--sign needs the path of an SSH key");
        assert!(message(Some("/nowhere/key")).starts_with("there is no key /nowhere/key"));
    }
}
