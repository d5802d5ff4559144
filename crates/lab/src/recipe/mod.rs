//! Recipes: how to start a throw-away database server here, use it, break it, and leave nothing of it.
//!
//! ```no_run
//! use tipover_lab::recipe::{Postgres, ServerOptions, Stop};
//! let mut server = Postgres::find(None)?.start(&ServerOptions::default())?;
//! println!("{} at {}, process {}", server.version(), server.url(), server.pid());
//! server.kill()?; // as kill -9 of every process of it
//! server.restart()?; // recovers, and is ready when this returns
//! server.stop(Stop::Fast)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Each listens on a free port of the loopback and on a Unix socket, has a user `tipover` (who may do
//! everything) with a random password, and the databases `tipover` and `ycsb`. Started by root it runs as its
//! package's user. It dies with this process, however that ends.

mod account;
mod certificate;
mod ferret;
mod mariadb;
mod mongod;
mod own;
mod polodb;
mod postgres;
mod server;

pub use account::Account;
pub use ferret::Ferret;
pub use mariadb::Mariadb;
pub use mongod::{Mongod, MongodRole};
pub use own::Own;
pub use polodb::Polodb;
pub use postgres::Postgres;
pub(crate) use server::random_password;
pub use server::{
    Authentication, Server, ServerError, ServerOptions, Stop, Transport, descendants, free_port,
};

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The user that every recipe makes, who may do everything.
pub const USER: &str = "tipover";
/// The databases that every recipe makes; the first one is in [`Server::url`].
pub const DATABASES: [&str; 2] = ["tipover", "ycsb"];

/// A program that a recipe needs is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not installed ({looked}); {advice}")]
pub struct Missing {
    /// The program, with the version if one was asked for.
    pub what: String,
    /// Where it was looked for, or what was found instead.
    pub looked: String,
    /// What to do next.
    pub advice: String,
}

/// A program by name in `PATH`, and in the folders for administrators' programs, which an ordinary user's
/// `PATH` lacks.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|file| is_program(file))
}

pub(crate) fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// A program that `make setup` builds on request: the newest in `third_party/<name>-*/`, else the one in
/// `PATH`.
pub fn find_built(name: &str) -> Option<PathBuf> {
    let folders = third_party(&format!("{name}-"));
    let built = folders.into_iter().rev().map(|folder| folder.join(name)).find(|program| is_program(program));
    built.or_else(|| find_program(name))
}

/// Folders `third_party/<begins>*` beside the current folder or above it: what `make setup` has fetched.
pub(crate) fn third_party(begins: &str) -> Vec<PathBuf> {
    let Ok(here) = std::env::current_dir() else { return Vec::new() };
    let mut found = Vec::new();
    for parent in here.ancestors().map(|folder| folder.join("third_party")) {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let ours = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(begins);
        found.extend(entries.flatten().filter(ours).map(|entry| entry.path()));
    }
    found.sort();
    found
}
