//! The layers of a mount, put up one by one and taken down in reverse, whatever the reason: FUSE and its
//! threads, then in block mode loop device and file system.

use crate::backing::{self, Backing};
use crate::block::{Content, IMAGE, Image, Power};
use crate::file::{ATTIC, CALIBRATION, CALIBRATION_NUMBER, Folder};
use crate::journal::Journal;
use crate::nodes::Nodes;
use crate::open::Open;
use crate::privilege::{self, Privileges};
use crate::protocol::{BackingChoice, Filesystem, Mode, MountRequest, Mounted};
use crate::ring::{self, Hot};
use crate::shape::Shape;
use crate::state::State;
use crate::trace::{Names, TraceSummary, Writer};
use crate::transport::Transport;
use crate::volatile::Volatile;
use crate::{loopdev, mounts};
use fuser::{BackgroundSession, Config, InitFlags, MountOption, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fmt::Display;
use std::io::Error;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tipover_core::device::Spec;
use tipover_core::units::Bytes;

/// What was tried, and why it failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub step: String,
    pub reason: String,
}

/// For `map_err`: names the step that failed.
pub(crate) fn failed<E: Display>(step: impl Into<String>) -> impl FnOnce(E) -> Failure {
    let step = step.into();
    move |e| Failure { step, reason: e.to_string() }
}

/// Everything that is up. Dropping takes it down.
pub(crate) struct Stack {
    pub(crate) state: State,
    pub(crate) shape: Arc<Shape>,
    threads: Vec<JoinHandle<()>>,
    /// Every mount's session, also of mounts that a power cut ended. Never dropped: a session that ends
    /// unmounts by path, and one that outlived its mount, held by somebody's mount namespace, would hit the
    /// mount that came after it. Whose mount is whose we know better, by name. Costs a descriptor for each.
    sessions: Vec<ManuallyDrop<BackgroundSession>>,
    /// File mode: how to reach the kernel's cache of each file.
    kernel_cache: Option<(Arc<OwnedFd>, Arc<Nodes>)>,
    trace: Option<(Writer, PathBuf)>,
    pub(crate) request: MountRequest,
    /// Which way requests come.
    transport: Transport,
    /// What a power cut acts on, where it is possible.
    pub(crate) rig: Option<Rig>,
}

/// A backing that may wait needs as many threads as requests shall be under way in it.
const WAITING_THREADS: usize = 32;

/// What loses its power.
pub(crate) enum Rig {
    Device { volatile: Arc<Volatile<Arc<dyn Backing>>>, power: Arc<Power> },
    Folder { folder: PathBuf, attic: PathBuf, journal: Arc<Journal> },
}

impl Stack {
    /// Puts all layers up, unless `unwanted` while a step takes long.
    pub fn build(
        request: MountRequest,
        mut privileges: Privileges,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<(Stack, Mounted), Failure> {
        let transport = request
            .transport
            .resolve(request.backing == BackingChoice::Memory)
            .map_err(failed("choosing the ring as transport"))?;
        let state = State::begin().map_err(failed("writing the state file"))?;
        let shape = Arc::new(Shape::new(Spec::default()));
        // From here on every failure drops the stack, which undoes what the state says was begun.
        shape.set_size(request.size);
        let mut stack = Stack {
            state,
            shape,
            threads: Vec::new(),
            sessions: Vec::new(),
            kernel_cache: None,
            trace: None,
            request: request.clone(),
            transport,
            rig: None,
        };
        privileges.realtime = stack.start_timer()?;
        let calibration_file = match request.mode {
            Mode::Block => stack.build_block(&request, unwanted)?,
            Mode::File => stack.build_file(&request)?,
        };
        let mounted =
            Mounted { loop_number: stack.state.loop_number, calibration_file, privileges, transport };
        Ok((stack, mounted))
    }

    /// Notes where the daemon will listen; returns that and the file for what it has to say.
    pub fn note_socket(&mut self) -> std::io::Result<(PathBuf, PathBuf)> {
        let socket = self.state.beside("socket");
        self.state.note(|state| state.socket = Some(socket.clone()))?;
        Ok((socket, self.state.beside("log")))
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn shared_shape(&self) -> Arc<Shape> {
        self.shape.clone()
    }

    fn start_timer(&mut self) -> Result<bool, Failure> {
        let shape = self.shape.clone();
        let (report, granted) = std::sync::mpsc::channel();
        let run = move || {
            let _ = report.send(privilege::run_on_time(privilege::TIMER_PRIORITY));
            shape.keep_time();
        };
        let thread = std::thread::Builder::new().name("timer".into()).spawn(run);
        self.threads.push(thread.map_err(failed("starting the timer"))?);
        Ok(granted.recv().unwrap_or(false))
    }

    fn build_block(
        &mut self,
        request: &MountRequest,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<PathBuf, Failure> {
        self.shape.answers_end_in_softirqs();
        let backing: Arc<dyn Backing> = match &request.backing {
            BackingChoice::Memory => {
                Arc::new(backing::Memory::new(request.size.0).map_err(failed("taking memory for the disk"))?)
            }
            BackingChoice::Directory(directory) => Arc::new(
                backing::File::nameless(directory, request.size.0)
                    .map_err(failed(format!("making the disk's file in {}", directory.display())))?,
            ),
        };
        let threads =
            if request.backing == BackingChoice::Memory { memory_threads() } else { WAITING_THREADS };
        let power = Arc::new(Power::default());
        let backing = if request.power_cuts {
            let volatile = Arc::new(Volatile::new(backing, power.dead.clone()));
            self.rig = Some(Rig::Device { volatile: volatile.clone(), power: power.clone() });
            volatile
        } else {
            backing
        };
        let content = Content::new(self.shape.clone(), backing, power);
        let content = Arc::new(content.map_err(failed("measuring the disk's size"))?);
        let image = Image::new(content.clone(), self.asked_of_the_kernel());
        let fuse = self.state.folder().join("fuse");
        self.make_folder(&fuse)?;
        self.mount_fuse(&fuse, image, content, threads, SessionACL::Owner)?;
        self.mount_device(Some(unwanted))
    }

    /// Block mode: puts a loop device on the image and mounts what is on it, or what is made anew unless
    /// `unwanted`.
    pub(crate) fn mount_device(&mut self, anew: Option<&dyn Fn() -> bool>) -> Result<PathBuf, Failure> {
        let request = self.request.clone();
        let number = self.attach_loop(&self.state.folder().join("fuse").join(IMAGE))?;
        let device = loopdev::device_path(number);
        // Requests no larger than FUSE carries in one piece, so that the kernel's count is the daemon's.
        let _ = std::fs::write(loopdev::attribute(number, "queue/max_sectors_kb"), "512");
        let _ = std::fs::write(loopdev::attribute(number, "queue/scheduler"), "none");
        let kind = request.filesystem.kind();
        if let Some(unwanted) = anew {
            let made = request.filesystem.make(&device, unwanted);
            made.map_err(failed(format!("making {kind} on it")))?;
        }
        let fresh = anew.is_some();
        self.make_folder(&request.mountpoint)?;
        self.note(|state| state.mountpoint = Some(request.mountpoint.clone()))?;
        // The dead file system of before a power cut may still be in use somewhere, with the same identity.
        let again = (!fresh && request.filesystem == Filesystem::Xfs).then_some(c"nouuid");
        rustix::mount::mount(&device, &request.mountpoint, kind, MountFlags::NOATIME, again)
            .map_err(failed(format!("mounting {kind} at {}", request.mountpoint.display())))?;
        if fresh {
            // Databases refuse a data folder that is not empty.
            let _ = std::fs::remove_dir(request.mountpoint.join("lost+found"));
        }
        self.set_readahead(request.readahead)?;
        Ok(device)
    }

    fn build_file(&mut self, request: &MountRequest) -> Result<PathBuf, Failure> {
        let folder = match &request.backing {
            BackingChoice::Memory => {
                let scratch = PathBuf::from(format!("/dev/shm/tipover-{}", self.state.id));
                self.note(|state| state.scratch = Some(scratch.clone()))?;
                std::fs::create_dir(&scratch).map_err(failed(format!("making {}", scratch.display())))?;
                scratch
            }
            BackingChoice::Directory(folder) => folder.clone(),
        };
        if request.power_cuts {
            let attic = folder.join(format!("{ATTIC}{}", self.state.id));
            if request.backing != BackingChoice::Memory {
                self.note(|state| state.scratch = Some(attic.clone()))?;
            }
            std::fs::create_dir(&attic).map_err(failed(format!("making {}", attic.display())))?;
            let journal = Journal::new(&attic).map_err(failed("opening the folder for removed files"))?;
            self.rig = Some(Rig::Folder { folder: folder.clone(), attic, journal: Arc::new(journal) });
        }
        self.mount_folder(&folder)
    }

    /// File mode: shows the folder.
    pub(crate) fn mount_folder(&mut self, folder: &Path) -> Result<PathBuf, Failure> {
        let request = self.request.clone();
        let threads =
            if request.backing == BackingChoice::Memory { memory_threads() } else { WAITING_THREADS };
        let journal = match &self.rig {
            Some(Rig::Folder { journal, .. }) => Some(journal.clone()),
            _ => None,
        };
        let root = rustix::process::geteuid().is_root();
        let open = Open::new(self.shape.clone(), folder, journal)
            .map_err(failed(format!("opening {}", folder.display())))?;
        let open = Arc::new(open);
        let filesystem = Folder::new(open.clone(), request.readahead, self.asked_of_the_kernel());
        let nodes = open.nodes.clone();
        let its_nodes = nodes.clone();
        self.shape.set_names(Some(Arc::new(move |number| its_nodes.path(number))));
        self.make_folder(&request.mountpoint)?;
        let acl = if root { SessionACL::All } else { SessionACL::Owner };
        let connection = self.mount_fuse(&request.mountpoint, filesystem, open, threads, acl)?;
        self.kernel_cache = Some((connection, nodes));
        if root {
            // FUSE mounts may by default dirty only 1 % of memory; a disk may dirty what the system allows.
            let _ = self.write_bdi("strict_limit", "0");
            let _ = self.write_bdi("max_ratio", "100");
            self.set_readahead(request.readahead)?;
        }
        Ok(request.mountpoint.join(CALIBRATION))
    }

    /// Sets how the kernel caches file mode's mount.
    fn write_bdi(&self, attribute: &str, value: &str) -> std::io::Result<()> {
        let mount = self.state.fuse.as_deref().and_then(mounts::at);
        let minor = mount.ok_or(std::io::ErrorKind::NotFound)?.minor;
        std::fs::write(format!("/sys/class/bdi/0:{minor}/{attribute}"), value)
    }

    pub(crate) fn note(&mut self, change: impl FnOnce(&mut State)) -> Result<(), Failure> {
        self.state.note(change).map_err(failed("writing the state file"))
    }

    /// Makes a folder and remembers to remove it, unless it is there.
    fn make_folder(&mut self, folder: &Path) -> Result<(), Failure> {
        if folder.is_dir() {
            return Ok(());
        }
        self.note(|state| state.made.push(folder.to_path_buf()))?;
        std::fs::create_dir_all(folder).map_err(failed(format!("making the folder {}", folder.display())))
    }

    /// What the transport needs the kernel to agree to.
    fn asked_of_the_kernel(&self) -> InitFlags {
        match self.transport {
            Transport::Ring => InitFlags::from_bits_retain(ring::wire::OVER_IO_URING),
            Transport::Auto | Transport::Classic => InitFlags::empty(),
        }
    }

    /// Mounts and serves a file system whose data requests are also `hot`'s; gives the connection.
    fn mount_fuse(
        &mut self,
        at: &Path,
        filesystem: impl fuser::Filesystem,
        hot: Arc<dyn Hot>,
        threads: usize,
        acl: SessionACL,
    ) -> Result<Arc<OwnedFd>, Failure> {
        let source = format!("tipover-{}", self.state.id);
        self.note(|state| state.fuse = Some(at.to_path_buf()))?;
        let mounting = format!("mounting FUSE at {}", at.display());
        let mut config = Config::default();
        config.acl = acl;
        config.n_threads = Some(threads);
        let (connection, session) = if self.transport == Transport::Ring {
            let note = || self.state.note(|state| state.switched_on = true);
            let switched = ring::SwitchedOn::new(note).map_err(failed("switching FUSE over io_uring on"))?;
            let device = ring::mount(at, &source, acl).map_err(failed(mounting))?;
            let device = Arc::new(device);
            let block_mode = self.request.mode == Mode::Block;
            let session = ring::serve(device.clone(), filesystem, &hot, config, block_mode);
            drop(switched);
            self.note(|state| state.switched_on = false)?;
            (device, session)
        } else {
            // As a plain option, because fuser gives `Subtype` only to the setuid helper.
            let subtype = MountOption::CUSTOM("subtype=tipover".into());
            config.mount_options = vec![MountOption::FSName(source), subtype, MountOption::NoAtime];
            if acl == SessionACL::All {
                config.mount_options.push(MountOption::DefaultPermissions);
            }
            config.clone_fd = true;
            let session = Session::new(filesystem, at, &config).map_err(failed(mounting))?;
            let connection =
                session.as_fd().try_clone_to_owned().map_err(failed("keeping the connection"))?;
            let start = move || {
                // Inherited by the threads that the session starts.
                privilege::run_on_time(privilege::WORKER_PRIORITY);
                session.spawn()
            };
            let starter = std::thread::Builder::new().name("fuse".into()).spawn(start);
            let started =
                starter.map(|thread| thread.join().unwrap_or_else(|_| Err(Error::other("it panicked"))));
            (Arc::new(connection), started.flatten())
        };
        self.sessions.push(ManuallyDrop::new(session.map_err(failed("starting the FUSE threads"))?));
        Ok(connection)
    }

    fn attach_loop(&mut self, image: &Path) -> Result<u32, Failure> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(image)
            .map_err(failed("opening the image"))?;
        // Others take loop devices too; a free number may be gone a moment later.
        let mut attempts = 0;
        loop {
            let number =
                loopdev::find_free().map_err(failed("asking /dev/loop-control for a loop device"))?;
            self.note(|state| state.loop_number = Some(number))?;
            let attach = || loopdev::attach(number, file.as_fd(), &self.state.id);
            match self.shape.at_once(attach) {
                Ok(()) => return Ok(number),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && attempts < 20 => attempts += 1,
                Err(e) => {
                    self.note(|state| state.loop_number = None)?;
                    return Err(failed(format!("attaching /dev/loop{number}"))(e));
                }
            }
        }
    }

    /// How far the kernel reads ahead; for files opened from now on.
    pub fn set_readahead(&self, size: Bytes) -> Result<(), Failure> {
        let kib = (size.0 / 1024).to_string();
        match self.state.loop_number {
            Some(number) => std::fs::write(loopdev::attribute(number, "queue/read_ahead_kb"), kib),
            None => self.write_bdi("read_ahead_kb", &kib),
        }
        .map_err(failed("setting readahead (in file mode this needs root, once mounted)"))
    }

    /// Forgets clean pages of all files on the disk, and the file system's own unused ones.
    pub fn drop_caches(&self) -> Result<(), Failure> {
        if let Some((connection, nodes)) = &self.kernel_cache {
            for number in nodes.numbers() {
                match rustix::io::write(connection, &ring::wire::forget_pages(number)) {
                    // The kernel need not remember a file that we do.
                    Ok(_) | Err(rustix::io::Errno::NOENT) => {}
                    Err(e) => return Err(failed("dropping cached pages")(e)),
                }
            }
            return Ok(());
        }
        let Some(mountpoint) = &self.state.mountpoint else { return Ok(()) };
        drop_pages_below(mountpoint).map_err(failed("dropping cached pages"))?;
        match self.state.loop_number {
            Some(number) => loopdev::drop_buffers(&loopdev::device_path(number))
                .map_err(failed("dropping cached metadata")),
            None => Ok(()),
        }
    }

    /// Begins to record every request that completes.
    pub fn trace_start(&mut self, path: &Path) -> Result<(), Failure> {
        if self.trace.is_some() {
            return Err(failed("starting the trace")("one is being written already; stop it first"));
        }
        let (mode, names): (Mode, Names) = match &self.kernel_cache {
            None => (Mode::Block, Arc::new(|_| None)),
            Some((_, nodes)) => {
                let nodes = nodes.clone();
                let name = move |number| match number {
                    CALIBRATION_NUMBER => Some(CALIBRATION.into()),
                    number => nodes.path(number),
                };
                (Mode::File, Arc::new(name))
            }
        };
        let writer = Writer::start(path, mode, names)
            .map_err(failed(format!("beginning the trace {}", path.display())))?;
        self.shape.record(Some(writer.tap()));
        self.trace = Some((writer, path.to_path_buf()));
        Ok(())
    }

    /// Where the trace is being written.
    pub fn trace_path(&self) -> Option<PathBuf> {
        self.trace.as_ref().map(|(_, path)| path.clone())
    }

    /// Ends the trace and says what is in it.
    pub fn trace_stop(&mut self) -> Result<TraceSummary, Failure> {
        self.shape.record(None);
        let writer = self.trace.take().ok_or("none is being written");
        let (writer, _) = writer.map_err(failed("stopping the trace"))?;
        writer.finish().map_err(failed("writing the trace"))
    }

    fn take_down(&mut self) {
        // Nobody waits on a slow disk that is going away: what is queued is answered, what comes is fast.
        self.shape.clear_faults(None);
        self.shape.set(Spec::default(), Duration::ZERO);
        self.shape.release();
        let state = self.state.clone();
        if let Some(mountpoint) = &state.mountpoint
            && state.loop_number.is_some()
        {
            // Gently first, so that a file system nobody uses is written out; then without asking.
            if rustix::mount::unmount(mountpoint, UnmountFlags::empty()).is_err() {
                let _ = mounts::detach(mountpoint);
            }
        }
        if let Some(number) = state.loop_number {
            detach_patiently(number, &state.id);
        }
        if let Some(fuse) = &state.fuse {
            unmount_fuse(fuse, &format!("tipover-{}", state.id));
        }
        self.shape.close();
        if self.trace.is_some()
            && let Err(failure) = self.trace_stop()
        {
            eprintln!("tipover disk daemon: {}: {}", failure.step, failure.reason);
        }
        state.remove_made();
        state.end();
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.take_down();
        // Worker threads end with the connection; the process ends soon anyway, so nobody waits for long.
        let patience = Instant::now() + Duration::from_millis(500);
        let serves = |stack: &Stack| {
            stack.threads.iter().any(|thread| !thread.is_finished())
                || stack.sessions.iter().any(|session| !session.guard.is_finished())
        };
        while serves(self) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn memory_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 4)
}

/// Takes the FUSE mount away: gently, then by force. In block mode force aborts the connection while a
/// process still holds files on it: it gets errors instead of hanging in a disk without a daemon.
pub(crate) fn unmount_fuse(at: &Path, source: &str) {
    let ours = || mounts::at(at).is_some_and(|m| m.source == source);
    if !ours() || rustix::mount::unmount(at, UnmountFlags::empty()).is_ok() {
        return;
    }
    if let Ok(folder) = std::fs::File::open(at) {
        let _ = rustix::fs::syncfs(&folder);
    }
    let _ = rustix::mount::unmount(at, UnmountFlags::FORCE);
    if ours() {
        let _ = mounts::detach(at);
    }
}

/// The device is busy for a moment after an unmount; wait for that, not for whoever holds it for good.
pub(crate) fn detach_patiently(number: u32, id: &str) {
    for _ in 0..50 {
        if loopdev::owner(number).as_deref() != Some(id) {
            return;
        }
        let _ = loopdev::detach(number);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `fadvise(DONTNEED)` on every file below `folder`, which the caller knows to be a mount of its own.
pub(crate) fn drop_pages_below(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    for entry in std::fs::read_dir(folder)? {
        let Ok(entry) = entry else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            drop_pages_below(&entry.path())?;
        } else if kind.is_file() {
            // A file may be gone by now: databases make and remove files all the time.
            let open =
                std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(entry.path());
            if let Ok(file) = open {
                let _ = file.sync_data();
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
    }
    Ok(())
}
