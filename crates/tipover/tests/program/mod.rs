//! The built program as its users meet it: started in a folder of its own, watched, stopped, and looked at
//! from outside.

// Each test binary compiles this folder for itself and uses a part of it.
#![allow(dead_code)]

pub mod fleet;
pub mod nats;
pub mod results;
pub mod traces;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tipover");
/// Nothing here takes a tenth of it on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(600);
/// A variable that everything a [`Place`] starts inherits, so that it is told from other runs on this
/// machine.
const MARK: &str = "TIPOVER_TEST_PLACE";

/// Held by every test that mounts: two at once would be in each other's numbers. A lock on a file, because
/// test binaries may run side by side too.
pub fn alone() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-laboratory-at-a-time");
    let file = File::create(&path).unwrap_or_else(|e| panic!("creating {}: {e}", path.display()));
    file.lock().unwrap_or_else(|e| panic!("locking {}: {e}", path.display()));
    file
}

/// Says loudly why a test does nothing. A build machine (CI=true) may not skip what it could run.
pub fn skipped(reason: &str) {
    // What reads skips takes one line of each.
    eprintln!("SKIPPED: {}", reason.replace("\n", "; "));
}

/// Whether whole studies can run here: root, FUSE and loop devices. If not, says what was skipped.
pub fn can_mount(what: &str) -> bool {
    let open = |path| File::options().read(true).write(true).open(path).is_ok();
    let able = rustix::process::geteuid().is_root() && open("/dev/fuse") && open("/dev/loop-control");
    if !able {
        skipped(&format!("{what}: needs root, /dev/fuse and /dev/loop-control"));
    }
    able
}

/// What keeps a study from a mongod that happens to be in `PATH`, so that it has the same cells everywhere.
pub const NO_MONGOD: [&str; 2] = ["--mongod", "/nowhere/mongod"];

/// Where a mongod is, beside its mongos: the user's, or the last one that a distribution has, which setup
/// fetches for the tests. `None` after saying what is missing.
pub fn mongod() -> Option<String> {
    let fetched = tipover_lab::recipe::find_built("mongod");
    match tipover_lab::recipe::Mongod::find(fetched.as_deref(), None, true, None) {
        Ok(mongod) => Some(mongod.path().display().to_string()),
        Err(missing) => {
            skipped(&missing.to_string());
            None
        }
    }
}

/// A working folder, gone when dropped.
pub struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
    user: Option<(u32, u32)>,
}

impl Place {
    /// On the real file system that holds the build.
    pub fn new() -> Place {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test");
        fs::create_dir(folder.path().join("here")).expect("a folder to work in");
        Place { folder, program: PROGRAM.into(), user: None }
    }

    /// In the system's folder for temporary files, with a copy of the program that `user` can read, for runs
    /// as that user and group.
    pub fn of_user(user: u32, group: u32) -> Place {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = tempfile::tempdir().expect("a folder for the test");
        let here = folder.path().join("here");
        let program = folder.path().join("tipover");
        fs::create_dir(&here).expect("a folder to work in");
        fs::copy(PROGRAM, &program).expect("the program can be copied");
        for path in [folder.path(), &program] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("our own files");
        }
        chown(&here, Some(user), Some(group)).expect("root may give folders away");
        Place { folder, program, user: Some((user, group)) }
    }

    /// The working folder.
    pub fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    /// Everything in the working folder, by relative path.
    pub fn content(&self) -> Vec<PathBuf> {
        results::below(&self.here())
    }

    /// Writes a file into the working folder, and the folders on its way.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.here().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the test's own folder");
        fs::write(path, text).expect("the test's own folder");
    }

    fn command(&self, before: &[&str], arguments: &[&str]) -> Command {
        let line: Vec<&OsStr> = before.iter().map(OsStr::new).chain([self.program.as_os_str()]).collect();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).args(arguments).current_dir(self.here()).env(MARK, self.folder.path());
        // The width of help and tables must not depend on who runs the tests; nobody is at the keyboard.
        command.env_remove("COLUMNS").env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        if let Some((user, group)) = self.user {
            use std::os::unix::process::CommandExt;
            // Cargo's folders may be closed to this user; the helper for mounting is in the system's.
            command
                .uid(user)
                .gid(group)
                .env("HOME", self.here())
                .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        }
        command
    }

    /// Starts the program.
    pub fn start(&self, arguments: &[&str]) -> Running<'_> {
        self.start_by(&[], arguments)
    }

    /// Starts the program by another one, which becomes it.
    pub fn start_by(&self, before: &[&str], arguments: &[&str]) -> Running<'_> {
        // Several may run at a time.
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["stdout", "stderr"].map(|name| self.folder.path().join(format!("{name}-{number}")));
        let file = |path: &Path| File::create(path).expect("the test's own folder");
        let mut command = self.command(before, arguments);
        command.stdout(file(&out)).stderr(file(&err));
        let child = spawn(&mut command);
        let child = child.unwrap_or_else(|e| panic!("{} does not start: {e}", self.program.display()));
        Running { place: self, child, began: Instant::now(), out, err }
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    /// The ids of living processes that the program started here with this verb.
    pub fn processes(&self, verb: &str) -> Vec<u32> {
        traces::processes(MARK, self.folder.path(), verb)
    }
}

/// A copy of the program cannot be started while a process that another test forks still has it open for
/// writing, which lasts until that one has started its own program.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            spawned => return spawned,
        }
    }
}

/// The program at work; killed, by its id, if the test fails meanwhile.
pub struct Running<'a> {
    place: &'a Place,
    child: Child,
    began: Instant,
    out: PathBuf,
    err: PathBuf,
}

/// How the program ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Running<'_> {
    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("our own child can be signalled");
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// Waits for its end after a SIGKILL; says whether that was what ended it.
    pub fn was_killed(&mut self) -> bool {
        self.child.wait().expect("our own child").code().is_none()
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> String {
        text(&self.err)
    }

    /// Waits until `what` is so; fails if the program ends before, or never comes there.
    pub fn until<T>(&mut self, what: &str, mut so: impl FnMut(&Place) -> Option<T>) -> T {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = so(self.place) {
                return found;
            }
            let ended = self.child.try_wait().expect("our own child");
            assert!(ended.is_none(), "{ended:?} before {what}: {}", text(&self.err));
            assert!(Instant::now() < patience, "waited {PATIENCE:?} for {what}: {}", text(&self.err));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                let (stdout, stderr) = (text(&self.out), text(&self.err));
                assert!(!stderr.contains("panicked at"), "it panicked: {stderr}");
                return Ended { code: status.code(), stdout, stderr, took: self.began.elapsed() };
            }
            assert!(Instant::now() < patience, "still running after {PATIENCE:?}: {}", text(&self.err));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Fails, with all it said, unless it ended with one of these codes.
    #[track_caller]
    pub fn with_code(self, codes: &[i32]) -> Ended {
        assert!(
            self.code.is_some_and(|code| codes.contains(&code)),
            "exit code {:?}, not {codes:?}\n{}\n{}",
            self.code,
            self.stderr,
            self.stdout
        );
        self
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
