//! One limited place: a control group in every hierarchy that serves, under one name.

use crate::cgroups::Files;
use crate::usage::{cpu_v2, device_v1, device_v2, limit_v1, memory_v1, memory_v2, number, pairs};
use crate::{Cgroups, CpuTime, DeviceUse, LimitError, Limits, MemoryUse, Name, Version};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long killing and freezing may take before it is called stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// CPU quotas hold over this period, in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;
/// A limit on a device that nobody reaches, in bytes per second: since Linux 6.10 v1 counts what a group
/// reads and writes only on devices that some group is limited on.
const BOUNDLESS: u64 = 1 << 40;

/// The states of a v1 freezer.
const FROZEN: &str = "FROZEN";
const THAWED: &str = "THAWED";

/// A group's directory in one hierarchy.
#[derive(Debug, Clone)]
struct Directory {
    path: PathBuf,
    version: Version,
    controllers: Vec<String>,
}

/// A control group with limits. Swap is always off in it, because a database that swaps measures the wrong
/// disk.
///
/// Dropping it kills what is inside and removes it. File pages that it still holds stay charged until the
/// kernel drops them, so unmount the disk first.
#[derive(Debug)]
pub struct Group {
    name: Name,
    label: String,
    directories: Vec<Directory>,
    missing: Vec<String>,
    files: Files,
}

impl Group {
    /// Makes a group on this machine; `label` is for messages only.
    ///
    /// # Errors
    /// See [`Cgroups::create`].
    pub fn create(label: &str, limits: &Limits) -> Result<Group, LimitError> {
        Cgroups::look()?.create(label, limits)
    }

    pub(crate) fn make(cgroups: &Cgroups, label: &str, limits: &Limits) -> Result<Group, LimitError> {
        let (directories, missing) = cgroups.directories(limits)?;
        let name = Name::fresh();
        // Filled one by one, so that what was made is removed by Drop if a later step fails.
        let mut group = Group {
            name,
            label: label.into(),
            directories: Vec::new(),
            missing,
            files: cgroups.files.clone(),
        };
        for (parent, version, controllers) in directories {
            let path = parent.join(group.name.to_string());
            group.files.make(&path)?;
            group.directories.push(Directory { path, version, controllers });
        }
        group.set_limits(limits)?;
        Ok(group)
    }

    /// The name under which the group stands in the cgroup filesystems.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// What it was called when made.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What this machine could not offer beside the limits that were asked for, a sentence each.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The group's directory in the v2 hierarchy, where `io.pressure`, `memory.pressure` and `cpu.pressure`
    /// are.
    pub fn unified(&self) -> Option<&Path> {
        self.directories
            .iter()
            .find(|directory| directory.version == Version::V2)
            .map(|directory| directory.path.as_path())
    }

    /// The directory that has `controller`, v1 or v2.
    pub fn directory(&self, controller: &str) -> Option<&Path> {
        self.directory_of(controller).map(|directory| directory.path.as_path())
    }

    fn directory_of(&self, controller: &str) -> Option<&Directory> {
        self.directories.iter().find(|directory| directory.controllers.iter().any(|c| c == controller))
    }

    fn need(&self, controller: &str, what: &'static str) -> Result<&Directory, LimitError> {
        self.directory_of(controller).ok_or_else(|| {
            let why = match self.missing.first() {
                Some(reason) => reason.clone(),
                None => format!("there is no {controller} controller"),
            };
            LimitError::NotOffered { name: self.label.clone(), what, why }
        })
    }

    /// Changes the limits while the group runs; what is `None` becomes unlimited.
    ///
    /// # Errors
    /// The kernel refuses a memory limit below what cannot be reclaimed (v1: at once; v2: kills instead).
    pub fn set_limits(&self, limits: &Limits) -> Result<(), LimitError> {
        limits.check()?;
        match (self.directory_of("memory"), limits.memory) {
            (Some(directory), bytes) => self.set_memory(directory, bytes)?,
            (None, None) => {}
            (None, Some(_)) => return self.need("memory", "limit memory").map(|_| ()),
        }
        match (self.directory_of("cpu"), limits.cpus) {
            (Some(directory), cpus) => self.set_cpus(directory, cpus)?,
            (None, None) => {}
            (None, Some(_)) => return self.need("cpu", "limit CPU time").map(|_| ()),
        }
        if let Some(cores) = &limits.cpu_set {
            let directory = self.need("cpuset", "choose cores")?;
            if directory.version == Version::V1 {
                // v1 refuses processes until both files are filled in; memory nodes are the parent's.
                let parent = directory.path.parent().unwrap_or(&directory.path);
                let nodes = self.files.read(&parent.join("cpuset.mems"))?;
                self.files.write(&directory.path.join("cpuset.mems"), nodes.trim())?;
            }
            let list: Vec<String> = cores.iter().map(u32::to_string).collect();
            self.files.write(&directory.path.join("cpuset.cpus"), &list.join(","))?;
        }
        Ok(())
    }

    fn set_memory(&self, directory: &Directory, bytes: Option<u64>) -> Result<(), LimitError> {
        let at = |file: &str| directory.path.join(file);
        match directory.version {
            Version::V1 => {
                self.files.write_if_there(&at("memory.swappiness"), "0")?;
                let text = bytes.map_or("-1".to_string(), |b| b.to_string());
                // Memory plus swap may never be below memory: lift it out of the way, then bring it down to
                // the same value, which leaves nothing for swap.
                self.files.write_if_there(&at("memory.memsw.limit_in_bytes"), "-1")?;
                self.files.write(&at("memory.limit_in_bytes"), &text)?;
                self.files.write_if_there(&at("memory.memsw.limit_in_bytes"), &text)
            }
            Version::V2 => {
                self.files.write_if_there(&at("memory.swap.max"), "0")?;
                self.files.write_if_there(&at("memory.zswap.max"), "0")?;
                self.files.write(&at("memory.max"), &bytes.map_or("max".to_string(), |b| b.to_string()))
            }
        }
    }

    fn set_cpus(&self, directory: &Directory, cpus: Option<f64>) -> Result<(), LimitError> {
        let quota = cpus.map(|cpus| (cpus * PERIOD as f64).round() as u64);
        match directory.version {
            Version::V1 => {
                self.files.write(&directory.path.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
                let text = quota.map_or("-1".to_string(), |q| q.to_string());
                self.files.write(&directory.path.join("cpu.cfs_quota_us"), &text)
            }
            Version::V2 => {
                let text = quota.map_or("max".to_string(), |q| q.to_string());
                self.files.write(&directory.path.join("cpu.max"), &format!("{text} {PERIOD}"))
            }
        }
    }

    /// Moves a process that already runs into the group. Memory that it touched before stays charged
    /// elsewhere; [`crate::Launch::group`] has no such gap.
    pub fn attach(&self, process: u32) -> Result<(), LimitError> {
        self.directories.iter().try_for_each(|directory| {
            self.files.write(&directory.path.join("cgroup.procs"), &process.to_string())
        })
    }

    /// The files into which a process writes "0" to join, opened before the fork.
    pub(crate) fn doors(&self) -> Result<Vec<File>, LimitError> {
        let open = |directory: &Directory| {
            let path = directory.path.join("cgroup.procs");
            let door = File::options().write(true).open(&path);
            door.map_err(|source| LimitError::Write { path, value: "0".into(), source })
        };
        self.directories.iter().map(open).collect()
    }

    /// Processes in the group and in groups below it.
    pub fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.directories.iter().flat_map(|directory| processes_below(&directory.path)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What the group uses now.
    pub fn memory(&self) -> Result<MemoryUse, LimitError> {
        let directory = self.need("memory", "count memory")?;
        memory_in(&self.files, &directory.path, directory.version)
    }

    /// CPU time that the group used since it was made.
    pub fn cpu_time(&self) -> Result<CpuTime, LimitError> {
        let read = |path: &Path, file: &str| self.files.read(&path.join(file)).ok();
        let unified = self.unified().and_then(|path| read(path, "cpu.stat")).and_then(|text| cpu_v2(&text));
        let accounted = || {
            let path = self.directory_of("cpuacct")?;
            let span = |file: &str| Some(Duration::from_nanos(number(&read(&path.path, file)?)?));
            let (user, system) = (span("cpuacct.usage_user"), span("cpuacct.usage_sys"));
            Some(CpuTime { total: span("cpuacct.usage")?, user, system, throttled: None })
        };
        let time = unified.or_else(accounted).ok_or_else(|| LimitError::NotOffered {
            name: self.label.clone(),
            what: "count CPU time",
            why: "neither a v2 hierarchy nor the cpuacct controller is there".into(),
        })?;
        // On a hybrid machine the quota, and so the throttling, is v1's.
        let quota = self.directory_of("cpu").filter(|directory| directory.version == Version::V1);
        let throttled = quota
            .and_then(|directory| read(&directory.path, "cpu.stat"))
            .and_then(|text| pairs(&text).get("throttled_time").copied())
            .map(Duration::from_nanos);
        Ok(CpuTime { throttled: throttled.or(time.throttled), ..time })
    }

    /// What the group's processes read from and wrote to the block device `major:minor`, counted from the
    /// first time that this is asked of the device.
    ///
    /// # Errors
    /// Neither v1's blkio controller nor v2's io is there.
    pub fn device_use(&self, major: u32, minor: u32) -> Result<DeviceUse, LimitError> {
        let device = format!("{major}:{minor}");
        if let Some(directory) = self.directory_of("io") {
            return Ok(device_v2(&self.files.read(&directory.path.join("io.stat"))?, &device));
        }
        let directory = self.need("blkio", "count what it reads from a device")?;
        let text = self.files.read(&directory.path.join("blkio.throttle.io_service_bytes"))?;
        let counted = text.lines().any(|line| line.starts_with(&format!("{device} ")));
        if !counted {
            let limit = format!("{device} {BOUNDLESS}");
            self.files.write(&directory.path.join("blkio.throttle.read_bps_device"), &limit)?;
        }
        Ok(device_v1(&text, &device))
    }

    /// How many processes the kernel killed here because the memory limit left it no choice.
    pub fn oom_kills(&self) -> Result<u64, LimitError> {
        let directory = self.need("memory", "count out-of-memory kills")?;
        let file = match directory.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let path = directory.path.join(file);
        let text = self.files.read(&path)?;
        pairs(&text).get("oom_kill").copied().ok_or(LimitError::Strange { path, text })
    }

    /// Stops every process in the group where it stands, without a signal that it could notice. Returns when
    /// all stand.
    pub fn freeze(&self) -> Result<(), LimitError> {
        self.set_frozen(true)
    }

    /// Lets a frozen group go on.
    pub fn thaw(&self) -> Result<(), LimitError> {
        self.set_frozen(false)
    }

    /// The same without waiting for those that are inside the kernel, because of a disk perhaps: they stand
    /// as soon as they would leave it. When this returns, no process in the group carries out another
    /// instruction of its own.
    pub fn halt(&self) -> Result<(), LimitError> {
        self.ask_frozen(true)
    }

    fn ask_frozen(&self, frozen: bool) -> Result<(), LimitError> {
        if let Some(path) = self.unified() {
            return self.files.write(&path.join("cgroup.freeze"), if frozen { "1" } else { "0" });
        }
        let path = self.need("freezer", "freeze")?.path.join("freezer.state");
        self.files.write(&path, if frozen { FROZEN } else { THAWED })
    }

    fn set_frozen(&self, frozen: bool) -> Result<(), LimitError> {
        self.ask_frozen(frozen)?;
        let what = if frozen { "freezing" } else { "thawing" };
        if let Some(path) = self.unified() {
            let events = path.join("cgroup.events");
            return self.until(what, || {
                Ok(pairs(&self.files.read(&events)?).get("frozen") == Some(&u64::from(frozen)))
            });
        }
        let path = self.need("freezer", "freeze")?.path.join("freezer.state");
        let word = if frozen { FROZEN } else { THAWED };
        self.until(what, || Ok(self.files.read(&path)?.trim() == word))
    }

    /// Kills every process in the group, also those that left its session or are frozen, and waits until they
    /// are gone.
    ///
    /// # Errors
    /// `Stuck` when some process waits for a disk that does not answer.
    pub fn kill_all(&self) -> Result<(), LimitError> {
        self.until("killing", || {
            let processes = self.processes();
            if !processes.is_empty() {
                let paths: Vec<&Path> =
                    self.directories.iter().map(|directory| directory.path.as_path()).collect();
                kill(&self.files, &paths, &processes);
            }
            Ok(processes.is_empty())
        })
    }

    fn until(
        &self,
        what: &'static str,
        mut done: impl FnMut() -> Result<bool, LimitError>,
    ) -> Result<(), LimitError> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(200);
        while !done()? {
            if began.elapsed() > PATIENCE {
                let (name, seconds) = (self.label.clone(), PATIENCE.as_secs());
                return Err(LimitError::Stuck { name, what, seconds, processes: self.processes() });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills what is inside and removes the group, saying so if that fails. Dropping does the same in
    /// silence.
    pub fn remove(mut self) -> Result<(), LimitError> {
        self.kill_all()?;
        self.remove_directories()
    }

    fn remove_directories(&mut self) -> Result<(), LimitError> {
        while let Some(directory) = self.directories.last() {
            remove_below(&self.files, &directory.path)?;
            self.directories.pop();
        }
        Ok(())
    }
}

/// What the group in `directory` uses now, whoever made it.
pub(crate) fn memory_in(files: &Files, directory: &Path, version: Version) -> Result<MemoryUse, LimitError> {
    let read = |file: &str| files.read(&directory.join(file));
    let size = |file: &str| read(file).ok().and_then(|text| number(&text));
    let stat = read("memory.stat")?;
    let usage_file = if version == Version::V1 { "memory.usage_in_bytes" } else { "memory.current" };
    let usage = number(&read(usage_file)?)
        .ok_or_else(|| LimitError::Strange { path: directory.join(usage_file), text: "no number".into() })?;
    Ok(match version {
        Version::V1 => MemoryUse {
            usage,
            limit: read("memory.limit_in_bytes").ok().and_then(|text| limit_v1(&text)),
            peak: size("memory.max_usage_in_bytes"),
            kernel: size("memory.kmem.usage_in_bytes"),
            ..memory_v1(&stat)
        },
        Version::V2 => MemoryUse {
            usage,
            limit: size("memory.max"),
            peak: size("memory.peak"),
            swap: size("memory.swap.current"),
            ..memory_v2(&stat)
        },
    })
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whatever cannot be removed now bears our name and is found by `leftovers` later.
        let _ = self.kill_all();
        let _ = self.remove_directories();
    }
}

/// Sends SIGKILL to all processes of the group that stands at `paths`, and thaws them so that they can die.
pub(crate) fn kill(files: &Files, paths: &[&Path], processes: &[u32]) {
    // Errors mean that a file is not there or a process is gone: the caller looks again anyway.
    for path in paths {
        let _ = files.write_if_there(&path.join("cgroup.kill"), "1");
    }
    // The numbers in a made-up tree belong to strangers.
    let processes = if files.made_up() { &[] } else { processes };
    for pid in processes.iter().filter_map(|&pid| rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    for path in paths {
        let _ = files.write_if_there(&path.join("freezer.state"), THAWED);
        // The dead leave a frozen group frozen, and whoever is started in it then would never begin.
        let _ = files.write_if_there(&path.join("cgroup.freeze"), "0");
    }
}

/// Processes in the group at `path` and below; none if it is gone.
pub(crate) fn processes_below(path: &Path) -> Vec<u32> {
    let own = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let own = own.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != 0);
    own.chain(folders(path).iter().flat_map(|below| processes_below(below))).collect()
}

/// Removes the group at `path` with all groups below, trying again while the kernel still takes the dead out.
pub(crate) fn remove_below(files: &Files, path: &Path) -> Result<(), LimitError> {
    for below in folders(path) {
        remove_below(files, &below)?;
    }
    let began = Instant::now();
    loop {
        match files.remove(path) {
            Ok(()) => return Ok(()),
            Err(source) if began.elapsed() > Duration::from_secs(2) => {
                return Err(LimitError::Write { path: path.into(), value: "(remove)".into(), source });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(crate) fn folders(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let folder =
        |entry: std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| entry.path());
    entries.flatten().filter_map(folder).collect()
}
