//! Throw-away folders that bear their owner's name, so that a killed run's are found and removed.

use crate::Name;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A folder that vanishes with this guard. It usually lies in the system's folder for temporary files
/// (`std::env::temp_dir`), because servers run as users of their own, who must be able to reach it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty one that everyone may enter but only its owner may list or change.
    pub fn create() -> io::Result<Scratch> {
        // Short: a Unix socket's whole path may have only 107 bytes.
        Scratch::create_in(&std::env::temp_dir())
    }

    /// The same in another folder, which must be there.
    pub fn create_in(folder: &Path) -> io::Result<Scratch> {
        let path = folder.join(Name::fresh().to_string());
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

/// Throw-away folders in `folder` whose owner no longer lives.
pub fn leftover_folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let left = |entry: std::fs::DirEntry| {
        let name: Name = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (folder && !name.owner_may_live(Path::new("/"))).then(|| entry.path())
    };
    entries.flatten().filter_map(left).collect()
}

/// Removes them; returns each with what came of it. Touches nothing but folders with a dead owner's name, and
/// of those none on which a disk is still mounted.
pub fn clean_folders(folder: &Path) -> Vec<(PathBuf, io::Result<()>)> {
    leftover_folders(folder)
        .into_iter()
        .map(|path| {
            let removed = match is_mount(&path, folder) {
                Ok(true) => Err(io::Error::other("a disk is mounted there")),
                Ok(false) => std::fs::remove_dir_all(&path),
                Err(error) => Err(error),
            };
            let removed = match removed {
                // Somebody else was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            };
            (path, removed)
        })
        .collect()
}

fn is_mount(path: &Path, parent: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.dev() != std::fs::metadata(parent)?.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_guard_and_a_dead_owners_is_found() {
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("a"), "x").unwrap();
        let folder = std::env::temp_dir();
        assert!(!leftover_folders(&folder).contains(&path), "its owner lives");
        drop(scratch);
        assert!(!path.exists());

        // A name that this process would have had if it had begun a tick later.
        let name = Name { start: Name::fresh().start + 1, ..Name::fresh() };
        let left = std::env::temp_dir().join(name.to_string());
        std::fs::create_dir_all(left.join("below")).unwrap();
        assert!(leftover_folders(&folder).contains(&left));
        let cleaned = clean_folders(&folder);
        // Another test's clean may have been faster, but never leaves it.
        assert!(cleaned.iter().all(|(path, result)| *path != left || result.is_ok()));
        assert!(!left.exists());
    }
}
