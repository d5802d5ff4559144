//! The machine under the laboratory: facts that go into every record, and what a measurement requires of it.
//!
//! [`Facts::read`] looks; [`check`] judges facts against needs and is pure, so that it can be tested on
//! machines that were never built.

mod database;
mod kernel;

pub use database::{Home, check as check_database};
pub use kernel::{BlockDevice, KernelSettings};

use crate::probe::steal_share;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tipover_core::units::{Bytes, Ratio, significant};
use tipover_lab::{Cgroups, Limits, Version, parse_mountinfo};

/// Whether this process can do something here, with the reason if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// Tried or looked at, and it works.
    Yes,
    /// It does not work.
    No {
        /// Why not, in words.
        why: String,
    },
}

impl Ability {
    fn of<T>(tried: Result<T, impl ToString>) -> Ability {
        match tried {
            Ok(_) => Ability::Yes,
            Err(error) => Ability::No { why: error.to_string() },
        }
    }

    /// Whether it works.
    pub fn yes(&self) -> bool {
        *self == Ability::Yes
    }

    fn found(&self) -> String {
        match self {
            Ability::Yes => "usable".into(),
            Ability::No { why } => why.clone(),
        }
    }
}

/// A folder and the filesystem under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// The folder asked about.
    pub path: PathBuf,
    /// `ext4`, `xfs`, `overlay`, ...; "unknown" if the mount table does not say.
    pub filesystem: String,
    /// What this user may still write.
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
    /// The whole filesystem.
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
}

/// Where trials run, as found by looking. What could not be found out is `None`, never guessed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Kernel release, such as "6.18.44".
    pub kernel: String,
    /// Instruction set, such as "x86_64".
    pub architecture: String,
    /// The CPU's own name.
    pub cpu_model: Option<String>,
    /// Cores that this process may use.
    pub cores: u32,
    /// Memory of the machine.
    #[serde(rename = "memory_total_bytes")]
    pub memory_total: Bytes,
    /// What programs can still get without swapping, by the kernel's estimate.
    #[serde(rename = "memory_available_bytes")]
    pub memory_available: Bytes,
    /// Swap space.
    #[serde(rename = "swap_total_bytes")]
    pub swap_total: Bytes,
    /// Swap in use.
    #[serde(rename = "swap_used_bytes")]
    pub swap_used: Bytes,
    /// What the kernel's clock reads: "tsc", "kvm-clock", "hpet", ...
    pub clock_source: Option<String>,
    /// Transparent huge pages: "always", "madvise" or "never".
    pub huge_pages: Option<String>,
    /// CPU frequency governor; `None` = not exposed, as in most virtual machines.
    pub governor: Option<String>,
    /// Mean number of tasks running or waiting for a disk, over 1, 5 and 15 minutes.
    pub load_average: [f64; 3],
    /// Which designs of control groups are mounted.
    pub cgroup_versions: BTreeSet<Version>,
    /// Their controllers, each with the version that holds it.
    pub cgroup_controllers: BTreeMap<String, Version>,
    /// Whether a memory limit can be set, tried with a group that was removed at once.
    pub memory_limit: Ability,
    /// Whether `/dev/fuse` can be opened and this process may mount, itself or through fusermount3.
    pub fuse: Ability,
    /// Whether loop devices can be made.
    pub loop_devices: Ability,
    /// Whether this process is root.
    pub root: bool,
    /// Where results and disks are to lie.
    pub folder: Folder,
    /// What runs under this kernel: "virtual machine (KVM)", "container on ...", or `None` for bare metal.
    pub virtualisation: Option<String>,
    /// Programs that make filesystems, by filesystem; `None` = not installed.
    pub mkfs: BTreeMap<String, Option<PathBuf>>,
    /// Share of CPU time since boot that the hypervisor gave to others.
    pub steal: Option<Ratio>,
    /// What earlier runs of Tipover left behind, by name.
    pub leftovers: Vec<String>,
    /// Settings of the kernel's memory management.
    pub kernel_settings: KernelSettings,
    /// The block device under the folder; `None` where there is none to be seen.
    pub device: Option<BlockDevice>,
}

impl Facts {
    /// Looks at this machine, with `folder` (or its nearest existing parent) as the place for results and
    /// disks. Takes a few milliseconds; makes and removes one control group.
    pub fn read(folder: &Path) -> Facts {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let word = |path: &str| Some(text(path).trim().to_string()).filter(|word| !word.is_empty());
        let system = rustix::system::uname();
        let meminfo = text("/proc/meminfo");
        let memory = parse_meminfo(&meminfo);
        let bytes = |key: &str| memory.get(key).copied().unwrap_or_default();
        let cpu = text("/proc/cpuinfo");
        let cgroups = Cgroups::look();
        let has = |path: &str| Path::new(path).exists();
        let maker = ["sys_vendor", "product_name"].map(|name| text(&format!("/sys/class/dmi/id/{name}")));
        let container =
            has("/.dockerenv") || has("/run/.containerenv") || std::env::var_os("container").is_some();
        let root = rustix::process::geteuid().is_root();
        Facts {
            kernel: system.release().to_string_lossy().into_owned(),
            architecture: system.machine().to_string_lossy().into_owned(),
            cpu_model: cpu_model(&cpu),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_total: bytes("MemTotal"),
            memory_available: bytes("MemAvailable"),
            swap_total: bytes("SwapTotal"),
            swap_used: Bytes(bytes("SwapTotal").0.saturating_sub(bytes("SwapFree").0)),
            clock_source: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            huge_pages: chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_average: parse_load(&text("/proc/loadavg")),
            cgroup_versions: cgroups.as_ref().map(Cgroups::versions).unwrap_or_default(),
            cgroup_controllers: cgroups.as_ref().map(Cgroups::controllers).unwrap_or_default(),
            memory_limit: match &cgroups {
                Ok(cgroups) => Ability::of(cgroups.can(&Limits::memory(64 << 20))),
                Err(error) => Ability::No { why: error.to_string() },
            },
            fuse: fuse(root),
            loop_devices: loop_devices(root),
            root,
            folder: look_at(folder),
            virtualisation: virtualisation(&cpu, &maker.join(" "), container),
            mkfs: ["ext4", "xfs"]
                .map(|name| (name.to_string(), find_program(&format!("mkfs.{name}"))))
                .into(),
            steal: steal_share(&text("/proc/stat")).map(Ratio),
            leftovers: cgroups.iter().flat_map(|c| c.leftovers()).map(|leftover| leftover.name).collect(),
            kernel_settings: KernelSettings::read(bytes("MemTotal")),
            device: BlockDevice::under(existing(folder).as_path()),
        }
    }
}

const NO_CAPABILITY: &str =
    "root, but without the capability to mount (CAP_SYS_ADMIN), as in most containers";

/// Whether this process holds CAP_SYS_ADMIN, without which even root may not mount.
fn may_mount() -> bool {
    holds_sys_admin(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn holds_sys_admin(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 21) != 0)
}

fn fuse(root: bool) -> Ability {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    match opened {
        Err(error) => Ability::No { why: format!("/dev/fuse: {error}") },
        // fusermount3 is setuid and mounts for a user; a root without the capability gains nothing by it.
        Ok(_) if may_mount() || (!root && find_program("fusermount3").is_some()) => Ability::Yes,
        Ok(_) if root => Ability::No { why: NO_CAPABILITY.into() },
        Ok(_) => Ability::No { why: "not root, and fusermount3 is not installed".into() },
    }
}

fn loop_devices(root: bool) -> Ability {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/loop-control");
    match opened {
        Err(error) => Ability::No { why: format!("/dev/loop-control: {error}") },
        // The device node may be open to a group, but mounting what is on a loop device is not.
        Ok(_) if !root => Ability::No { why: "mounting a loop device needs root".into() },
        Ok(_) if !may_mount() => Ability::No { why: NO_CAPABILITY.into() },
        Ok(_) => Ability::Yes,
    }
}

/// Looks through PATH and the folders of system programs, which a user's PATH often lacks.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The folder, or what there is above it: it may be made later, and its parent decides where it will lie.
pub fn existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    existing.canonicalize().unwrap_or_else(|_| existing.to_path_buf())
}

fn look_at(folder: &Path) -> Folder {
    let real = existing(folder);
    let (free, total) = match rustix::fs::statvfs(&real) {
        Ok(about) => {
            (about.f_bavail.saturating_mul(about.f_frsize), about.f_blocks.saturating_mul(about.f_frsize))
        }
        Err(_) => (0, 0),
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let filesystem = filesystem_of(&mounts, &real).unwrap_or_else(|| "unknown".into());
    Folder { path: folder.to_path_buf(), filesystem, free: Bytes(free), total: Bytes(total) }
}

/// The filesystem that holds `path`: the longest mount point above it, and of equal ones the last mounted.
fn filesystem_of(mountinfo: &str, path: &Path) -> Option<String> {
    let mounts = parse_mountinfo(mountinfo);
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count()).map(|mount| mount.filesystem.clone())
}

/// "Key:   123 kB" lines.
fn parse_meminfo(text: &str) -> BTreeMap<&str, Bytes> {
    let line = |line| -> Option<(&str, Bytes)> {
        let (key, value) = str::split_once(line, ':')?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some((key, Bytes(kib.saturating_mul(1024))))
    };
    text.lines().filter_map(line).collect()
}

fn parse_load(text: &str) -> [f64; 3] {
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    std::array::from_fn(|_| numbers.next().unwrap_or(0.0))
}

/// The word in brackets in "always [madvise] never".
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_string())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    // x86 says "model name"; Arm and others have other words or none.
    let value = |key: &str| {
        let line =
            cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        line.split_once(':').map(|(_, value)| value.trim().to_string())
    };
    value("model name")
        .or_else(|| value("Model"))
        .or_else(|| value("cpu model"))
        .filter(|name| !name.is_empty())
}

/// What runs under this kernel, from the CPU's flags, the maker of the "hardware" and signs of a container.
fn virtualisation(cpuinfo: &str, maker: &str, container: bool) -> Option<String> {
    let flagged =
        cpuinfo.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|f| f == "hypervisor"));
    let known = [
        ("qemu", "QEMU/KVM"),
        ("kvm", "KVM"),
        ("amazon ec2", "Amazon EC2"),
        ("google", "Google Compute Engine"),
        ("microsoft", "Hyper-V"),
        ("vmware", "VMware"),
        ("virtualbox", "VirtualBox"),
        ("xen", "Xen"),
        ("openstack", "OpenStack"),
        ("digitalocean", "DigitalOcean"),
        ("hetzner", "Hetzner"),
    ];
    let maker = maker.to_lowercase();
    let name = known.iter().find(|(sign, _)| maker.contains(sign)).map(|(_, name)| *name);
    let machine = match (flagged, name) {
        (true, Some(name)) => Some(format!("virtual machine ({name})")),
        (true, None) => Some("virtual machine".to_string()),
        // Makers of virtual machines also sell iron; without the flag only Arm guests (which have none) are
        // meant.
        (false, Some(name)) if !cpuinfo.contains("flags") => Some(format!("virtual machine ({name})")),
        (false, _) => None,
    };
    match (container, machine) {
        (true, Some(machine)) => Some(format!("container in a {machine}")),
        (true, None) => Some("container".into()),
        (false, machine) => machine,
    }
}

/// How bad it is when a requirement is not met, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// What was planned cannot run.
    CannotRun,
    /// It runs, but a number may be off or a part is left out.
    Degrades,
    /// Good to know beside the numbers.
    Note,
}

/// What is planned on the machine. `None` = not needed; else how bad its lack is.
#[derive(Debug, Clone, PartialEq)]
pub struct Needs {
    /// Memory for engine, generator and disk together.
    pub memory: Bytes,
    /// Free space in the folder.
    pub disk: Bytes,
    /// Cores for engine and generator; fewer only degrade.
    pub cores: u32,
    /// A shaped disk in any mode.
    pub shaped_disk: Option<Severity>,
    /// A shaped disk in block mode: root and loop devices.
    pub block_mode: Option<Severity>,
    /// A bounded page cache.
    pub memory_limit: Option<Severity>,
    /// Filesystems to be made in block mode.
    pub filesystems: Vec<String>,
}

impl Default for Needs {
    /// What the smallest study wants; what `doctor` checks when nothing is planned.
    fn default() -> Needs {
        Needs {
            memory: Bytes::gib(1),
            disk: Bytes::gib(2),
            cores: 2,
            shaped_disk: Some(Severity::Degrades),
            block_mode: Some(Severity::Degrades),
            memory_limit: Some(Severity::Degrades),
            filesystems: vec!["ext4".into(), "xfs".into()],
        }
    }
}

/// One thing that a measurement requires, and how this machine stands to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Stable name: "fuse", "memory-limit", ...
    pub id: String,
    /// Whether it is met.
    pub met: bool,
    /// How bad it is if not.
    pub severity: Severity,
    /// What it should be.
    pub wanted: String,
    /// What was found.
    pub found: String,
    /// Why it matters, one sentence.
    pub why: String,
    /// What to do next if it is not met.
    pub next: String,
    /// Whose advice it is; empty where it is ours.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Requirement {
    /// One sentence after the other, for where it is missed.
    pub fn sentences(&self) -> String {
        format!("{}: should be {}, is {}. {} {}", self.id, self.wanted, self.found, self.why, self.next)
    }
}

/// A load average up to this share of the cores counts as quiet.
const QUIET: f64 = 0.5;
/// Steal up to this share is lost in the noise.
const STEAL: f64 = 0.01;
/// What is said where the kernel tells nothing.
const UNKNOWN: &str = "not exposed";
/// Clocks that are read without leaving user code, so that a timestamp costs tens of nanoseconds.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// Judges `facts` against `needs`: every requirement, met ones too, worst unmet first.
pub fn check(facts: &Facts, needs: &Needs) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = abilities(facts, needs)
        .into_iter()
        .chain(room(facts, needs))
        .chain(company(facts))
        .chain(settings(facts))
        .chain(storage(facts))
        .collect();
    all.sort_by_key(|requirement| (requirement.met, requirement.severity));
    all
}

/// Whether everything is met whose lack would stop the plan.
pub fn can_run(requirements: &[Requirement]) -> bool {
    requirements.iter().all(|requirement| requirement.met || requirement.severity != Severity::CannotRun)
}

fn requirement(id: &str, severity: Severity, met: bool, words: [String; 4]) -> Requirement {
    let [wanted, found, why, next] = words;
    Requirement { id: id.into(), met, severity, wanted, found, why, next, source: String::new() }
}

/// What this process may do.
fn abilities(facts: &Facts, needs: &Needs) -> Vec<Requirement> {
    let mut all = Vec::new();
    if let Some(severity) = needs.shaped_disk {
        let words = [
            "/dev/fuse usable".into(),
            facts.fuse.found(),
            "The shaped disk is a FUSE filesystem; without it only the machine's own disk can be measured.".into(),
            "As root: `modprobe fuse`; as a user: install fuse3; in a container: `--device /dev/fuse --cap-add SYS_ADMIN`.".into(),
        ];
        all.push(requirement("fuse", severity, facts.fuse.yes(), words));
        let ring = facts.kernel_settings.fuse_ring;
        let words = [
            "FUSE over io_uring switched on, where the kernel has it".into(),
            ring.map_or(UNKNOWN, |on| if on { "on" } else { "off" }).into(),
            "It carries up to about twice as many requests to a shaped disk in memory, so that faster disks can be imitated.".into(),
            "As root: `echo Y > /sys/module/fuse/parameters/enable_uring`; or for one disk: `tipover disk mount --transport ring`."
                .into(),
        ];
        all.push(requirement("fuse-ring", Severity::Note, ring != Some(false), words));
    }
    if let Some(severity) = needs.block_mode {
        let words = [
            "root".into(),
            if facts.root { "root" } else { "not root" }.into(),
            "Block mode mounts a real filesystem on a shaped disk, so that iostat, pressure and readahead are real; \
             without root the disk is shaped in file mode."
                .into(),
            "Run with sudo, or accept file mode.".into(),
        ];
        all.push(requirement("root", severity, facts.root, words));
        let words = [
            "loop devices usable".into(),
            facts.loop_devices.found(),
            "Block mode puts a loop device between the shaped image and its filesystem.".into(),
            "As root: `modprobe loop`; in a container: `--privileged`; or accept file mode.".into(),
        ];
        all.push(requirement("loop", severity, facts.loop_devices.yes(), words));
        for filesystem in &needs.filesystems {
            let program = facts.mkfs.get(filesystem).cloned().flatten();
            let package = if filesystem == "xfs" { "xfsprogs" } else { "e2fsprogs" };
            let words = [
                format!("mkfs.{filesystem} installed"),
                program.as_ref().map_or("not found".into(), |path| path.display().to_string()),
                format!("Cells on {filesystem} need a fresh filesystem each."),
                format!("`apt install {package}`, or leave these cells out."),
            ];
            all.push(requirement(&format!("mkfs-{filesystem}"), severity, program.is_some(), words));
        }
    }
    if let Some(severity) = needs.memory_limit {
        let words = [
            "a memory limit can be set".into(),
            facts.memory_limit.found(),
            "Without a limit the page cache grows to all memory, and every working set fits.".into(),
            "Run as root, or with `systemd-run --user --scope -p Delegate=yes -- tipover ...` on a machine with cgroup v2.".into(),
        ];
        all.push(requirement("memory-limit", severity, facts.memory_limit.yes(), words));
    }
    all
}

/// Whether the plan fits.
fn room(facts: &Facts, needs: &Needs) -> Vec<Requirement> {
    let memory = [
        format!("at least {} available", needs.memory.rounded()),
        format!("{} of {}", facts.memory_available.rounded(), facts.memory_total.rounded()),
        "What does not fit is swapped or killed, and the numbers are those of another machine.".into(),
        "Stop other programs, or choose a smaller scale.".into(),
    ];
    let disk = [
        format!("at least {} free in {}", needs.disk.rounded(), facts.folder.path.display()),
        format!("{} on {}", facts.folder.free.rounded(), facts.folder.filesystem),
        "A full disk fails the trial half way.".into(),
        "Free some space, choose another folder with --results, or a smaller scale.".into(),
    ];
    let cores = [
        format!("at least {}", needs.cores),
        format!("{}", facts.cores),
        "On too few cores generator and engine take time from each other, and latency is partly ours.".into(),
        "Use a bigger machine, or read in-cache numbers as a lower bound.".into(),
    ];
    vec![
        requirement("memory", Severity::CannotRun, facts.memory_available >= needs.memory, memory),
        requirement("disk-space", Severity::CannotRun, facts.folder.free >= needs.disk, disk),
        requirement("cores", Severity::Degrades, facts.cores >= needs.cores, cores),
    ]
}

/// A requirement told in words that need no building.
fn plain(id: &str, severity: Severity, met: bool, words: [&str; 4]) -> Requirement {
    requirement(id, severity, met, words.map(str::to_string))
}

/// What else runs, here and beside us, and would be in the numbers.
fn company(facts: &Facts) -> Vec<Requirement> {
    let load = facts.load_average[0];
    let busy = QUIET * f64::from(facts.cores);
    let load = plain(
        "load",
        Severity::Degrades,
        load <= busy,
        [
            &format!("load average up to {}", significant(busy, 2)),
            &significant(load, 3),
            "Other programs take CPU and disk from the trial at times that nobody records.",
            "Wait a minute (a build just before counts too), or stop what runs: `top`.",
        ],
    );
    let steal = facts.steal.map_or(0.0, |steal| steal.0);
    let stolen = plain(
        "steal",
        Severity::Degrades,
        steal < STEAL,
        [
            "less than 1 % of CPU time since boot",
            &facts.steal.map_or(UNKNOWN.into(), Ratio::rounded),
            "Stolen time shows up as latency of the database, although a neighbour on the host had it.",
            "Use a machine with dedicated cores, or repeat and trust the interval rather than the mean.",
        ],
    );
    let leftovers = plain(
        "leftovers",
        Severity::Degrades,
        facts.leftovers.is_empty(),
        [
            "none of earlier runs",
            &match facts.leftovers.as_slice() {
                [] => "none".to_string(),
                names => names.join(", "),
            },
            "What a killed run left still holds memory, and may still run.",
            "`tipover doctor --clean`.",
        ],
    );
    let bare_metal = plain(
        "bare-metal",
        Severity::Note,
        facts.virtualisation.is_none(),
        [
            "bare metal",
            facts.virtualisation.as_deref().unwrap_or("bare metal"),
            "Under a hypervisor or in a container, neighbours and quotas that cannot be seen from here are in the numbers.",
            "Nothing, but compare only with runs on the same kind of machine.",
        ],
    );
    vec![load, stolen, leftovers, bare_metal]
}

/// How the machine is set, where its defaults disturb a measurement.
fn settings(facts: &Facts) -> Vec<Requirement> {
    let huge = facts.huge_pages.as_deref();
    let huge_pages = plain(
        "huge-pages",
        Severity::Degrades,
        huge != Some("always"),
        [
            "transparent huge pages madvise or never",
            huge.unwrap_or(UNKNOWN),
            "With `always` the kernel fills memory limits with huge pages that engines did not ask for, and stalls to make them.",
            "As root: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`.",
        ],
    );
    let governor = facts.governor.as_deref();
    let governor = plain(
        "governor",
        Severity::Degrades,
        governor.is_none_or(|name| name == "performance"),
        [
            "performance, or not exposed",
            governor.unwrap_or(UNKNOWN),
            "A core that clocks down while waiting for a disk answers the next request more slowly.",
            "As root: `cpupower frequency-set -g performance`.",
        ],
    );
    let fast = facts.clock_source.as_deref().is_none_or(|name| FAST_CLOCKS.contains(&name));
    let clock = plain(
        "clock",
        Severity::Degrades,
        fast,
        [
            "tsc, kvm-clock or another clock read without a system call",
            facts.clock_source.as_deref().unwrap_or(UNKNOWN),
            "Every operation reads the clock; a slow one costs about a microsecond each time, more than a read in cache.",
            "As root, if tsc is listed in available_clocksource beside it: write tsc to \
         /sys/devices/system/clocksource/clocksource0/current_clocksource.",
        ],
    );
    // A little in swap is what was never needed again; more means that memory is short.
    let swapped = facts.swap_used.0 as f64 > facts.memory_total.0 as f64 * 0.01;
    let swap = plain(
        "swap",
        Severity::Degrades,
        !swapped,
        [
            "less than 1 % of memory in swap",
            &format!("{} of {}", facts.swap_used.rounded(), facts.swap_total.rounded()),
            "Memory that comes back from swap is read from a disk that is not in the study.",
            "As root: `swapoff -a` for the time of the measurement.",
        ],
    );
    vec![huge_pages, governor, clock, swap]
}

/// How the kernel writes back, and what lies under the folder. A shaped disk has settings of its own; these
/// are of the machine's disk, which servers, results and disks kept in files live on.
fn storage(facts: &Facts) -> Vec<Requirement> {
    const DIRTY: Bytes = Bytes::gib(1);
    let sourced =
        |requirement: Requirement, source: &str| Requirement { source: source.into(), ..requirement };
    let kernel = &facts.kernel_settings;
    let background = kernel.dirty_background;
    let dirty = plain(
        "dirty-pages",
        Severity::Note,
        background.is_none_or(|bytes| bytes <= DIRTY),
        [
            "background write-back from at most 1 GiB of dirty pages",
            &background.map_or(UNKNOWN.into(), |bytes| bytes.rounded().to_string()),
            "Buffered writes pile up to that much before the kernel begins to write, and then stall those who flush.",
            "As root: `sysctl vm.dirty_background_bytes=268435456`.",
        ],
    );
    let swappiness = plain(
        "swappiness",
        Severity::Note,
        facts.swap_total.0 == 0 || kernel.swappiness.is_none_or(|n| n <= 10),
        [
            "at most 10, or no swap",
            &kernel.swappiness.map_or(UNKNOWN.into(), |n| n.to_string()),
            "The kernel otherwise swaps an engine's cache out while the page cache is still large.",
            "As root: `sysctl vm.swappiness=1`.",
        ],
    );
    let zone_reclaim = plain(
        "zone-reclaim",
        Severity::Degrades,
        kernel.zone_reclaim.is_none_or(|mode| mode == 0),
        [
            "0",
            &kernel.zone_reclaim.map_or(UNKNOWN.into(), |mode| mode.to_string()),
            "The page cache is then thrown away as soon as one memory node is full.",
            "As root: `sysctl vm.zone_reclaim_mode=0`.",
        ],
    );
    let device = facts.device.as_ref();
    let scheduler = device.and_then(|device| device.scheduler.as_deref());
    let scheduler = plain(
        "scheduler",
        Severity::Degrades,
        scheduler.is_none_or(|name| ["none", "mq-deadline", "kyber", "noop", "deadline"].contains(&name)),
        [
            "none, mq-deadline or kyber",
            scheduler.unwrap_or(UNKNOWN),
            "bfq and cfq hold requests back to be fair among processes, which a database's threads are not.",
            "As root: `echo none > /sys/block/DEVICE/queue/scheduler`.",
        ],
    );
    let readahead = device.and_then(|device| device.readahead);
    let readahead = plain(
        "readahead",
        Severity::Note,
        readahead.is_none_or(|bytes| bytes <= Bytes::kib(128)),
        [
            "at most 128 KiB",
            &readahead.map_or(UNKNOWN.into(), |bytes| bytes.to_string()),
            "A random read that misses fetches that much; databases ask for pages of 4 to 16 KiB.",
            "As root: `blockdev --setra 256 DEVICE`, for MongoDB 8 to 32.",
        ],
    );
    let options = device.map(|device| device.mount_options.as_str());
    let has = |word: &str| options.is_some_and(|options| options.split(',').any(|option| option == word));
    let mounted = plain(
        "mount-options",
        Severity::Degrades,
        !(has("nobarrier") || has("barrier=0") || has("strictatime") || has("sync")),
        [
            "neither nobarrier nor strictatime nor sync",
            options.unwrap_or(UNKNOWN),
            "Without barriers flushes are empty promises; with the others every read or write makes one more.",
            "Mount with `noatime`, and with barriers.",
        ],
    );
    vec![
        sourced(dirty, "Linux, Documentation/admin-guide/sysctl/vm.rst: dirty_background_bytes"),
        sourced(swappiness, "MongoDB Manual, Production Notes: Set vm.swappiness"),
        sourced(zone_reclaim, "MongoDB Manual, Production Notes: MongoDB and NUMA Hardware"),
        sourced(scheduler, "Red Hat Enterprise Linux, Setting the disk scheduler"),
        sourced(readahead, "MongoDB Manual, Production Notes: Readahead"),
        sourced(mounted, "Linux, Documentation/admin-guide/ext4.rst: barrier"),
    ]
}

#[cfg(test)]
mod tests;
