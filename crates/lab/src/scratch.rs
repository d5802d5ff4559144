//! Throw-away folders that bear their owner's name, so that a killed run's are found and removed.

use crate::Name;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A folder that vanishes with this guard. It lies in the system's folder for temporary files
/// (`std::env::temp_dir`), because servers run as users of their own, who must be able to reach it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty one that everyone may enter but only its owner may list or change.
    pub fn create() -> io::Result<Scratch> {
        // Short: a Unix socket's whole path may have only 107 bytes.
        let path = std::env::temp_dir().join(Name::fresh().to_string());
        std::fs::DirBuilder::new().mode(0o711).create(&path)?;
        let scratch = Scratch { path };
        // The process's mask may have taken away what was asked for.
        std::fs::set_permissions(&scratch.path, std::fs::Permissions::from_mode(0o711))?;
        Ok(scratch)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed now bears our name and is found by `leftover_folders` later.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Throw-away folders whose owner no longer lives.
pub fn leftover_folders() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return Vec::new() };
    let left = |entry: std::fs::DirEntry| {
        let name: Name = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (folder && !name.owner_may_live(Path::new("/"))).then(|| entry.path())
    };
    entries.flatten().filter_map(left).collect()
}

/// Removes them; returns each with what came of it. Touches nothing but folders with a dead owner's name.
pub fn clean_folders() -> Vec<(PathBuf, io::Result<()>)> {
    leftover_folders()
        .into_iter()
        .map(|path| {
            let removed = match std::fs::remove_dir_all(&path) {
                // Somebody else was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            };
            (path, removed)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_guard_and_a_dead_owners_is_found() {
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("a"), "x").unwrap();
        assert!(!leftover_folders().contains(&path), "its owner lives");
        drop(scratch);
        assert!(!path.exists());

        // A name that this process would have had if it had begun a tick later.
        let name = Name { start: Name::fresh().start + 1, ..Name::fresh() };
        let left = std::env::temp_dir().join(name.to_string());
        std::fs::create_dir_all(left.join("below")).unwrap();
        assert!(leftover_folders().contains(&left));
        let cleaned = clean_folders();
        // Another test's clean may have been faster, but never leaves it.
        assert!(cleaned.iter().all(|(path, result)| *path != left || result.is_ok()));
        assert!(!left.exists());
    }
}
