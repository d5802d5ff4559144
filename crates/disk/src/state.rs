//! What a mount has made so far, written down before each step, so that a killed daemon can be cleaned up.

use crate::process::{self, Process, own_namespace};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// One mount's ledger: a file `<id>.json` beside a folder `<id>/`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Unique on this machine.
    pub id: String,
    /// The daemon, with the start time that tells it from a later process of the same number.
    pub daemon: Process,
    /// Where FUSE is mounted.
    pub fuse: Option<PathBuf>,
    /// Loop device on its image.
    pub loop_number: Option<u32>,
    /// Where the file system on the loop device is mounted.
    pub mountpoint: Option<PathBuf>,
    /// Folders that we made and that go away empty, innermost last.
    pub made: Vec<PathBuf>,
    /// A folder of ours that goes away with its content.
    pub scratch: Option<PathBuf>,
    /// Where the daemon listens, if it outlives its client on purpose.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// The machine's switch for FUSE over io_uring was turned on, and not yet off again.
    #[serde(default)]
    pub switched_on: bool,
}

/// Where the ledgers of this user are.
pub(crate) fn directory() -> PathBuf {
    if geteuid().is_root() {
        return PathBuf::from("/run/tipover");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("tipover"),
        None => std::env::temp_dir().join(format!("tipover-{}", geteuid().as_raw())),
    }
}

impl State {
    /// A new ledger with its folder, written.
    pub fn begin() -> io::Result<State> {
        let directory = directory();
        // Only for us: another user could otherwise plant a ledger that names somebody's files.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        own(&directory)?;
        let daemon = Process::this();
        let state = State { id: daemon.mark(crate::clock::monotonic().0), daemon, ..State::default() };
        state.write()?;
        std::fs::create_dir(state.folder())?;
        Ok(state)
    }
    /// This mount's own folder.
    pub fn folder(&self) -> PathBuf {
        directory().join(&self.id)
    }
    /// A file of this mount beside its ledger.
    pub fn beside(&self, extension: &str) -> PathBuf {
        directory().join(format!("{}.{extension}", self.id))
    }
    /// Where the disk's users find it, once it is mounted.
    pub fn place(&self) -> Option<&Path> {
        self.mountpoint.as_deref().or(self.fuse.as_deref())
    }
    fn path(&self) -> PathBuf {
        directory().join(format!("{}.json", self.id))
    }
    fn staged(&self) -> PathBuf {
        directory().join(format!("{}.staged", self.id))
    }
    /// Notes a step about to be made.
    pub fn note(&mut self, change: impl FnOnce(&mut State)) -> io::Result<()> {
        change(self);
        self.write()
    }
    fn write(&self) -> io::Result<()> {
        let staged = self.staged();
        let mut file = std::fs::File::create(&staged)?;
        serde_json::to_writer(&mut file, self)?;
        file.flush()?;
        std::fs::rename(staged, self.path())
    }
    /// Removes what was made, innermost first.
    pub fn remove_made(&self) {
        if let Some(scratch) = &self.scratch {
            let _ = std::fs::remove_dir_all(scratch);
        }
        for folder in self.made.iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }
    /// Everything is undone: forget it.
    pub fn end(&self) {
        let _ = std::fs::remove_dir(self.folder().join("fuse"));
        let _ = std::fs::remove_dir(self.folder());
        for extension in ["socket", "log"] {
            let _ = std::fs::remove_file(self.beside(extension));
        }
        let _ = std::fs::remove_file(self.staged());
        let _ = std::fs::remove_file(self.path());
    }
}

fn own(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(directory)?.uid() == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} belongs to another user; set XDG_RUNTIME_DIR to a folder of yours", directory.display()),
    ))
}

/// All ledgers there are.
pub(crate) fn all() -> Vec<State> {
    let Ok(entries) = std::fs::read_dir(directory()) else { return Vec::new() };
    if own(&directory()).is_err() {
        return Vec::new();
    }
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let with =
        |extension: &'static str| paths.iter().filter(move |p| p.extension() == Some(extension.as_ref()));
    let mut states: Vec<State> =
        with("json").filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).collect();
    // A daemon killed before its very first ledger was in place had not made anything else.
    let begun = with("staged").filter(|path| !path.with_extension("json").exists()).filter_map(|path| {
        let id = path.file_stem()?.to_str()?.to_string();
        let (pid, namespace) = process::of_mark(&id)?;
        // Who cannot be seen may live.
        let dead = Process { pid, ..Process::default() };
        let daemon = match namespace == own_namespace() {
            true => Process::of(pid).unwrap_or(dead),
            false => Process { namespace, ..dead },
        };
        Some(State { id, daemon, ..State::default() })
    });
    states.extend(begun);
    states
}
