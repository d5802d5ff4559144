//! The client's side: a [`Disk`] is a mounted shaped disk with its daemon, and dropping it takes both away.

use crate::calibrate::{self, Calibration, Floor, Overhead};
use crate::control::{Control, DiskReader};
use crate::error::DiskError;
use crate::extents::{self, Extent, FileMap};
use crate::leftovers;
use crate::privilege::Privileges;
use crate::process::Process;
use crate::protocol::{BackingChoice, Filesystem, InForce, Mode, Mounted, Request, Response};
use crate::trace::TraceSummary;
use crate::transport::Transport;
use crate::{loopdev, mounts};
use parking_lot::Mutex;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::device::{Counters, Spec};
use tipover_core::units::{Bytes, Rate};

/// How to start the daemon: a program that calls [`crate::serve`] when given these arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonCommand {
    /// The program.
    pub program: PathBuf,
    /// What makes it the daemon, such as `["disk-daemon"]`.
    pub arguments: Vec<OsString>,
    /// Variables set for it.
    pub environment: Vec<(OsString, OsString)>,
}

impl DaemonCommand {
    /// The running program itself, by the kernel's link to it, which survives a rebuild of the file.
    pub fn this_program(arguments: &[&str]) -> DaemonCommand {
        DaemonCommand {
            program: PathBuf::from("/proc/self/exe"),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
        }
    }
}

/// Everything about a disk to be mounted.
#[derive(Debug, Clone, PartialEq)]
pub struct MountOptions {
    /// Block device or folder.
    pub mode: Mode,
    /// Block mode's file system.
    pub filesystem: Filesystem,
    /// Block mode's size; file mode has that of its folder.
    pub size: Bytes,
    /// Where the bytes are.
    pub backing: BackingChoice,
    /// Where to mount: an empty or missing folder. A missing one is made, and removed at unmount.
    pub mountpoint: PathBuf,
    /// The disk's shape to begin with.
    pub spec: Spec,
    /// How far the kernel reads ahead; zero reads page by page.
    pub readahead: Bytes,
    /// Keep account of what is flushed, so that the power can be cut; costs a few percent of writes, and
    /// memory for what is not flushed.
    pub power_cuts: bool,
    /// What carries requests between the kernel and the daemon.
    pub transport: Transport,
    /// How to start the daemon.
    pub daemon: DaemonCommand,
}

/// What makes `/dev/fuse` usable that could not be opened, because of this error.
pub fn open_fuse(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "load the module with `modprobe fuse`, or start the container with `--device /dev/fuse`"
        }
        // A device that is there and that the container may not use is refused with EPERM.
        io::ErrorKind::PermissionDenied if error.raw_os_error() == Some(libc::EPERM) => {
            "start the container with `--device /dev/fuse --cap-add SYS_ADMIN`"
        }
        io::ErrorKind::PermissionDenied => {
            "let this user read and write it: `sudo chmod a+rw /dev/fuse`, or join the group that owns it; or run as root"
        }
        _ => "it should be the device with the numbers 10 and 229: `ls -l /dev/fuse` says what it is",
    }
}

/// Why a disk could not be mounted, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel's door to FUSE is missing or closed.
    #[error("/dev/fuse cannot be opened ({0}); {next}", next = open_fuse(.0))]
    NoFuse(io::Error),
    /// Block mode without root.
    #[error("block mode needs root for its loop device; run as root, or use file mode")]
    NotRoot,
    /// Unprivileged FUSE needs a setuid helper.
    #[error("mounting as an ordinary user needs fusermount3; install the package fuse3, or run as root")]
    NoFusermount,
    /// The ring was asked for, and this disk cannot have it.
    #[error("FUSE over io_uring cannot carry this disk: {0}; use the classic transport")]
    NoRing(String),
    /// No loop devices.
    #[error(
        "/dev/loop-control cannot be opened ({0}); load the module with `modprobe loop`, or use file mode"
    )]
    NoLoop(io::Error),
    /// The file system's maker is not installed.
    #[error("{tool} is not installed; install the package {package}, or choose another file system")]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// Something is there already.
    #[error("{} cannot be the mount point: {reason}; name an empty or missing folder", path.display())]
    MountPoint {
        /// The mount point that was asked for.
        path: PathBuf,
        /// What is in the way.
        reason: String,
    },
    /// No file system fits.
    #[error("a disk of {} is too small for {filesystem}; give it at least {}", size.rounded(), least.rounded())]
    TooSmall {
        /// The size that was asked for.
        size: Bytes,
        /// The file system's name.
        filesystem: &'static str,
        /// What would do.
        least: Bytes,
    },
    /// Making a file system so large would take more than there is.
    #[error(
        "a disk of {} cannot be made here: {filesystem} writes about {} to make it, and there is room for {}; give it at most {}",
        size.rounded(), written.rounded(), room.rounded(), most.rounded()
    )]
    TooLarge {
        /// The size that was asked for.
        size: Bytes,
        /// The file system's name.
        filesystem: &'static str,
        /// What making it writes.
        written: Bytes,
        /// Free memory, or free space in the backing's folder.
        room: Bytes,
        /// What would do.
        most: Bytes,
    },
    /// Whoever asked for it wants it no more; what was made so far was taken away.
    #[error("interrupted")]
    Interrupted,
    /// The daemon could not be started.
    #[error("{} could not be started as the disk's daemon: {reason}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// Mounted, but not usable as asked; it has been unmounted again.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// How often a floor that is too high for the shape is measured again before the shape is refused.
const FLOOR_ROUNDS: u32 = 5;
/// A mounted shaped disk. Dropping it unmounts everything and ends the daemon; should this process be
/// killed, the daemon notices and does the same by itself. One that is kept ([`Disk::keep`]) stays.
#[derive(Debug)]
pub struct Disk {
    pub(crate) control: Arc<Mutex<Control>>,
    /// The daemon, while it is our child.
    pub(crate) daemon: Option<Child>,
    /// Whether the disk ends with us.
    pub(crate) owned: bool,
    pub(crate) options: MountOptions,
    pub(crate) mounted: Mounted,
    pub(crate) floor: Mutex<Floor>,
    /// Transport overhead by configured latency, as far as measured.
    pub(crate) overheads: Mutex<BTreeMap<Duration, Overhead>>,
    pub(crate) in_force: Mutex<InForce>,
    pub(crate) began: Counters,
}

impl Disk {
    /// Starts the daemon, mounts, and calibrates for the given shape: takes about half a second.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted.
    pub fn mount(options: MountOptions) -> Result<Disk, MountError> {
        Disk::mount_unless(options, &|| false)
    }

    /// The same, unless it is `unwanted` meanwhile: making a large file system takes long.
    ///
    /// # Errors
    /// As [`mount`](Self::mount), and [`MountError::Interrupted`].
    pub fn mount_unless(options: MountOptions, unwanted: &dyn Fn() -> bool) -> Result<Disk, MountError> {
        check(&options)?;
        let (control, daemon) = start(&options.daemon)
            .map_err(|reason| MountError::Start { program: options.daemon.program.clone(), reason })?;
        // Whatever fails below, dropping the disk takes down what is up.
        let mut disk = Disk {
            control: Arc::new(Mutex::new(control)),
            daemon: Some(daemon),
            owned: true,
            began: Counters::default(),
            mounted: Mounted::default(),
            floor: Mutex::default(),
            overheads: Mutex::default(),
            in_force: Mutex::default(),
            options,
        };
        let request = Request::Mount(disk.options.request());
        let answer = disk.control.lock().ask_unless(&request, unwanted);
        if answer.is_err() && unwanted() {
            return Err(MountError::Interrupted);
        }
        let Response::Mounted(mounted) = answer? else { return Err(DiskError::out_of_step().into()) };
        disk.mounted = mounted;
        let floor = calibrate::floor(&disk.mounted.calibration_file).map_err(DiskError::Calibration)?;
        *disk.floor.lock() = floor;
        let unshaped = Overhead { latency: Duration::ZERO, compensation: floor.latency, check: None };
        disk.overheads.lock().insert(Duration::ZERO, unshaped);
        let spec = disk.options.spec.clone();
        disk.set_spec(&spec)?;
        Ok(disk)
    }

    /// Where data lives.
    pub fn path(&self) -> &Path {
        &self.options.mountpoint
    }

    /// `/dev/loopN` in block mode, for `/proc/diskstats` and its like.
    pub fn block_device(&self) -> Option<PathBuf> {
        self.mounted.loop_number.map(loopdev::device_path)
    }

    /// How it was mounted; `spec` is the one it was mounted with.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// Which privileges the daemon was granted; without real time, latencies are less exact on a busy
    /// machine.
    pub fn privileges(&self) -> Privileges {
        self.mounted.privileges
    }

    /// What carries its requests; never [`Transport::Auto`].
    pub fn transport(&self) -> Transport {
        self.mounted.transport
    }

    /// The daemon's process number, to put it in a control group of its own.
    pub fn daemon_pid(&self) -> u32 {
        self.control.lock().daemon.pid
    }

    /// CPU time the daemon has used, to be told apart from that of the system under test.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn daemon_cpu(&self) -> Result<Duration, DiskError> {
        Ok(self.control.lock().counters()?.1)
    }

    /// What the device has done so far, exact at `Counters::at` on [`crate::monotonic`]'s clock.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn counters(&self) -> Result<Counters, DiskError> {
        Ok(self.control.lock().counters()?.0)
    }

    /// Whoever reads its counters from now on, whatever is done with the disk meanwhile.
    pub fn reader(&self) -> DiskReader {
        DiskReader::new(&self.control)
    }

    /// Requests at the device now.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn in_flight(&self) -> Result<u64, DiskError> {
        Ok(self.counters()?.in_flight)
    }

    /// The shape in force.
    pub fn spec(&self) -> Spec {
        self.in_force.lock().spec.clone()
    }

    /// Changes the disk's shape. Requests that arrive from now on meet it; those under way keep their times.
    ///
    /// A latency not met before is calibrated first if the disk is idle (under half a second). Under load the
    /// overhead of the nearest known latency is used: call [`calibrate`](Self::calibrate) beforehand.
    ///
    /// # Errors
    /// [`DiskError::BeyondTransport`] for a disk that cannot be imitated here; then nothing changes.
    pub fn set_spec(&self, spec: &Spec) -> Result<(), DiskError> {
        self.within_floor(spec)?;
        let typical = calibrate::typical(spec);
        if !self.overheads.lock().contains_key(&typical) && self.in_flight()? == 0 {
            return self.calibrate(spec).map(|_| ());
        }
        self.put_in_force(spec, self.overhead_near(typical))
    }

    /// Refuses a disk that cannot be imitated here, but not for what a neighbour on this machine did a moment
    /// ago: a floor that is too high is measured again, and the best counts.
    fn within_floor(&self, spec: &Spec) -> Result<(), DiskError> {
        let before = self.in_force.lock().clone();
        let mut verdict = self.floor.lock().check(spec);
        for _ in 0..FLOOR_ROUNDS {
            if verdict.is_ok() || self.in_flight()? > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            self.set_shape(&Spec::default(), Duration::ZERO)?;
            let again = calibrate::floor(&self.mounted.calibration_file);
            self.set_shape(&before.spec, before.compensation)?;
            let mut floor = self.floor.lock();
            *floor = floor.best(again.map_err(DiskError::Calibration)?);
            verdict = floor.check(spec);
        }
        verdict
    }

    fn put_in_force(&self, spec: &Spec, compensation: Duration) -> Result<(), DiskError> {
        self.set_shape(spec, compensation)?;
        *self.in_force.lock() = InForce { spec: spec.clone(), compensation };
        self.remember()
    }

    /// Measures anew what the transport adds to this shape's latency, checks the correction, and leaves the
    /// disk in this shape. The disk should be idle.
    ///
    /// # Errors
    /// As [`set_spec`](Self::set_spec).
    pub fn calibrate(&self, spec: &Spec) -> Result<Calibration, DiskError> {
        self.within_floor(spec)?;
        let typical = calibrate::typical(spec);
        if !typical.is_zero() {
            let latency = typical.min(calibrate::LONGEST);
            let bare = Spec { latency, ..Spec::default() };
            let measure = |compensation, reads| {
                // A busy moment shall not hold up all measurements.
                std::thread::sleep(Duration::from_millis(20));
                self.set_shape(&bare, compensation)?;
                calibrate::latencies(&self.mounted.calibration_file, reads).map_err(DiskError::Calibration)
            };
            let guess = self.overhead_near(typical);
            let overhead = calibrate::find(typical, guess, self.floor.lock().most(), measure)?;
            self.overheads.lock().insert(typical, overhead);
        }
        self.put_in_force(spec, self.overhead_near(typical))?;
        Ok(self.calibration())
    }

    /// The shape in force: configured against achieved.
    pub fn calibration(&self) -> Calibration {
        let InForce { spec, compensation } = self.in_force.lock().clone();
        let configured = calibrate::typical(&spec);
        let measured = self.overheads.lock().get(&configured).copied();
        let floor = *self.floor.lock();
        Calibration {
            spec,
            configured,
            check: measured.filter(|known| known.compensation == compensation).and_then(|known| known.check),
            compensation,
            floor: floor.latency,
            floor_iops: floor.iops,
        }
    }

    /// What carries the requests: one unshaped read, and the most unshaped reads per second.
    pub fn transport_floor(&self) -> (Duration, Rate) {
        let floor = *self.floor.lock();
        (floor.latency, floor.iops)
    }

    fn set_shape(&self, spec: &Spec, compensation: Duration) -> Result<(), DiskError> {
        self.ask(&Request::Set { spec: Box::new(spec.clone()), compensation }).map(|_| ())
    }

    /// The measured overhead at the latency nearest to this one, by ratio.
    fn overhead_near(&self, latency: Duration) -> Duration {
        let distance = |known: &Duration| {
            let log = |span: Duration| (span.as_secs_f64() + 1e-6).ln();
            (log(*known) - log(latency)).abs()
        };
        let overheads = self.overheads.lock();
        let nearest = overheads.iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
        nearest.map_or(self.floor.lock().latency, |(_, overhead)| overhead.compensation)
    }

    /// Writes out and forgets the cached pages of all files on this disk, and of no other.
    ///
    /// # Errors
    /// [`DiskError::Gone`], or what the system said.
    pub fn drop_caches(&self) -> Result<(), DiskError> {
        self.ask(&Request::DropCaches).map(|_| ())
    }

    /// How far the kernel reads ahead, for files opened from now on.
    ///
    /// # Errors
    /// Without root in file mode; or [`DiskError::Gone`].
    pub fn set_readahead(&self, size: Bytes) -> Result<(), DiskError> {
        self.ask(&Request::Readahead(size)).map(|_| ())
    }

    /// Begins to write every request that reaches the device and completes to a new file at `path`; read it
    /// with [`Trace`](crate::Trace). Nothing waits for the writing: what comes too fast for it is left out
    /// and counted. A trace still being written at unmount is finished then.
    ///
    /// # Errors
    /// There is a file at `path`, or it would lie on this disk and so trace itself, or a trace is being
    /// written already.
    pub fn trace_start(&self, path: &Path) -> Result<(), DiskError> {
        let refuse = |reason: String| {
            Err(DiskError::Failed { step: format!("beginning the trace {}", path.display()), reason })
        };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let device = |folder: &Path| std::fs::metadata(folder).map(|m| m.dev());
        match (device(path.parent().unwrap_or(&path)), device(self.path())) {
            (Ok(there), Ok(here)) if there == here => {
                refuse("it would lie on the traced disk itself; name a folder elsewhere".into())
            }
            (Ok(_), Ok(_)) => self.ask(&Request::TraceStart(path)).map(|_| ()),
            (Err(e), _) | (_, Err(e)) => refuse(e.to_string()),
        }
    }

    /// Ends the trace and says how much is in it. Requests under way are not.
    ///
    /// # Errors
    /// None is being written, or writing failed (what was written before can be read).
    pub fn trace_stop(&self) -> Result<TraceSummary, DiskError> {
        match self.ask(&Request::TraceStop)? {
            Response::Traced(summary) => Ok(summary),
            _ => Err(DiskError::out_of_step()),
        }
    }

    /// Where the trace that is being written lies; `None` if there is none.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn trace_path(&self) -> Result<Option<PathBuf>, DiskError> {
        match self.ask(&Request::TracePath)? {
            Response::Path(path) => Ok(path),
            _ => Err(DiskError::out_of_step()),
        }
    }

    /// Block mode: where a file of this disk lies on its device, which is where a trace finds its requests.
    /// Data not yet written out is written first.
    ///
    /// # Errors
    /// Whatever the system says; file mode has no device, and its traces name files.
    pub fn extents(&self, file: &Path) -> io::Result<Vec<Extent>> {
        self.has_a_device()?;
        extents::of(file)
    }

    /// Block mode: where all files of this disk lie on its device now, with paths relative to the disk.
    ///
    /// # Errors
    /// As [`extents`](Self::extents).
    pub fn file_map(&self) -> io::Result<FileMap> {
        self.has_a_device()?;
        FileMap::below(self.path())
    }

    fn has_a_device(&self) -> io::Result<()> {
        match self.options.mode {
            Mode::Block => Ok(()),
            Mode::File => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a disk in file mode has no device; its traces name files by themselves",
            )),
        }
    }

    /// Unmounts and ends the daemon, like dropping, but says what went wrong.
    ///
    /// # Errors
    /// Something stayed; `tipover doctor --clean` may remove it.
    pub fn unmount(mut self) -> Result<(), DiskError> {
        self.take_down()
    }

    pub(crate) fn ask(&self, request: &Request) -> Result<Response, DiskError> {
        self.control.lock().ask(request)
    }

    fn take_down(&mut self) -> Result<(), DiskError> {
        self.owned = false;
        let (told, process) = {
            let mut control = self.control.lock();
            (control.ask(&Request::Unmount), control.daemon)
        };
        await_end(process);
        // The daemon did it all, unless it was dead already. Cleaning may be what lets it finish dying.
        let cleaned = if told.is_err() { leftovers::clean_after(process.pid) } else { Ok(()) };
        if let Some(daemon) = &mut self.daemon {
            reap(daemon);
        }
        cleaned.map_err(DiskError::Gone)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let lives = self.daemon.as_mut().is_some_and(|daemon| matches!(daemon.try_wait(), Ok(None)));
        if lives || leftovers::is_known(self.daemon_pid()) {
            let _ = self.take_down();
        }
    }
}

/// Gives the daemon time to end by itself, then none.
fn await_end(process: Process) {
    let patience = Instant::now() + Duration::from_secs(10);
    while process.is_alive() {
        if Instant::now() > patience {
            if let Some(pid) = i32::try_from(process.pid).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Takes note of the daemon's end; not for ever, should the kernel not let it go.
fn reap(daemon: &mut Child) {
    let patience = Instant::now() + Duration::from_secs(10);
    while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(command: &DaemonCommand) -> io::Result<(Control, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut daemon = Command::new(&command.program);
    daemon
        .args(&command.arguments)
        .envs(command.environment.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null());
    // A session of its own: Ctrl-C is for us, who then take things down in order, and a terminal that is
    // closed must not end a disk that was to stay.
    // SAFETY: `setsid` is a bare system call, safe between fork and exec.
    unsafe {
        daemon.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(io::Error::from));
    }
    let daemon = daemon.spawn()?;
    let process = Process::of(daemon.id()).unwrap_or_default();
    Ok((Control::new(ours, process)?, daemon))
}

/// Refuses what cannot work, before anything is started.
fn check(options: &MountOptions) -> Result<(), MountError> {
    let root = geteuid().is_root();
    let open = |path| std::fs::OpenOptions::new().read(true).write(true).open(path).map(|_| ());
    if options.mode == Mode::Block && !root {
        return Err(MountError::NotRoot);
    }
    // Root may open anything; what is not the device fails only when it is mounted, with EINVAL.
    let is_device = |m: std::fs::Metadata| match m.file_type().is_char_device() {
        true => Ok(()),
        false => Err(io::Error::other("it is no device")),
    };
    let fuse = std::fs::metadata("/dev/fuse").and_then(is_device).and_then(|()| open("/dev/fuse"));
    fuse.map_err(MountError::NoFuse)?;
    if options.mode == Mode::Block {
        open("/dev/loop-control").map_err(MountError::NoLoop)?;
        let filesystem = options.filesystem;
        if filesystem.find_tool().is_none() {
            return Err(MountError::MissingTool { tool: filesystem.tool(), package: filesystem.package() });
        }
        if options.size.0 < filesystem.least() {
            let least = Bytes(filesystem.least());
            return Err(MountError::TooSmall { size: options.size, filesystem: filesystem.kind(), least });
        }
        options.check_size()?;
    } else if !root && !has_fusermount() {
        return Err(MountError::NoFusermount);
    }
    options.transport.resolve(options.backing == BackingChoice::Memory).map_err(MountError::NoRing)?;
    check_mountpoint(&options.mountpoint)
}

impl MountOptions {
    /// Whether there is room for what making the file system writes.
    ///
    /// # Errors
    /// [`MountError::TooLarge`].
    pub fn check_size(&self) -> Result<(), MountError> {
        let room = match &self.backing {
            BackingChoice::Memory => available_memory(),
            BackingChoice::Directory(folder) => free_space(folder),
        };
        // What cannot be found out is no reason to refuse.
        let Some(room) = room.filter(|_| self.mode == Mode::Block) else { return Ok(()) };
        let fits = |size: &Bytes| self.filesystem.written(*size) <= room;
        if fits(&self.size) {
            return Ok(());
        }
        let smaller =
            std::iter::successors(Some(1 << 62), |size: &u64| Some(size / 2).filter(|half| *half > 0));
        Err(MountError::TooLarge {
            size: self.size,
            filesystem: self.filesystem.kind(),
            written: self.filesystem.written(self.size),
            room,
            most: smaller.map(Bytes).find(fits).unwrap_or_default(),
        })
    }
}

/// What programs can still get without swapping, by the kernel's estimate.
fn available_memory() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(Bytes::kib(line.trim().strip_suffix(" kB")?.parse().ok()?))
}

fn free_space(folder: &Path) -> Option<Bytes> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(Bytes(about.f_bavail * about.f_frsize))
}

fn has_fusermount() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join("fusermount3").is_file() || d.join("fusermount").is_file())
}

fn check_mountpoint(path: &Path) -> Result<(), MountError> {
    let refuse = |reason: &str| Err(MountError::MountPoint { path: path.into(), reason: reason.into() });
    if !path.is_absolute() {
        return refuse("the path is not absolute");
    }
    // The mount table first: looking at a dead mount would only say "not connected".
    if let Some(mount) = mounts::at(path) {
        return refuse(&format!("{} ({}) is mounted there", mount.source, mount.filesystem));
    }
    match std::fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => refuse("it is not empty"),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => refuse(&e.to_string()),
    }
}
