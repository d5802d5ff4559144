//! The machine under the laboratory: facts that go into every record, and what a measurement requires of it.
//!
//! [`read`] looks; [`check`] judges facts against needs and is pure, so that it can be tested on
//! machines that were never built.

mod database;
mod kernel;

pub use database::{Home, check as check_database};
pub use kernel::device_under;
pub use tipover_core::machine::{Ability, BlockDevice, Facts, Folder};

use crate::probe::steal_share;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tipover_core::machine::FORMAT;
use tipover_core::units::{Bytes, Ratio, significant};
use tipover_disk::{Mount, parse_mountinfo};
use tipover_lab::{Cgroups, Limits};

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
        format: FORMAT,
        simulated: false,
        kernel: system.release().to_string_lossy().into_owned(),
        architecture: system.machine().to_string_lossy().into_owned(),
        cpu_model: cpu_model(&cpu),
        cores: crate::processors::count() as u32,
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
            Ok(cgroups) => tried(cgroups.can(&Limits::memory(64 << 20))),
            Err(error) => Ability::No { why: error.to_string() },
        },
        fuse: fuse(root),
        loop_devices: loop_devices(root),
        root,
        folder: look_at(folder),
        virtualisation: virtualisation(&cpu, &maker.join(" "), container),
        mkfs: ["ext4", "xfs"].map(|name| (name.to_string(), find_program(&format!("mkfs.{name}")))).into(),
        steal: steal_share(&text("/proc/stat")).map(Ratio),
        leftovers: cgroups.iter().flat_map(|c| c.leftovers()).map(|leftover| leftover.name).collect(),
        kernel_settings: kernel::settings(bytes("MemTotal")),
        device: device_under(existing(folder).as_path()),
    }
}

fn tried<T>(result: Result<T, impl ToString>) -> Ability {
    match result {
        Ok(_) => Ability::Yes,
        Err(error) => Ability::No { why: error.to_string() },
    }
}

const NO_CAPABILITY: &str =
    "root, but without the capability to mount (CAP_SYS_ADMIN), as in most containers";

const NO_FUSERMOUNT: &str = "not root, and fusermount3 is not installed";

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
        Ok(_) => Ability::No { why: NO_FUSERMOUNT.into() },
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

/// The folder, or the nearest existing one above it: it may be made later, and its parent decides where it
/// will lie.
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
    let filesystem = mount_of(&mounts, &real).map_or("unknown".into(), |mount| mount.filesystem);
    Folder { path: folder.to_path_buf(), filesystem, free: Bytes(free), total: Bytes(total) }
}

/// The mount that holds `path`: the longest mount point above it, and of equal ones the last mounted.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let above =
        parse_mountinfo(mountinfo.as_bytes()).into_iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
        let Requirement { id, wanted, found, why, next, .. } = self;
        match wanted.starts_with("not ") {
            // It is what everybody has who did not look.
            true => format!("{id}: is still the default, {found}. {why} {next}"),
            false => format!("{id}: should be {wanted}, is {found}. {why} {next}"),
        }
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

/// The words of a requirement, as `machine.toml` has them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    id: String,
    wanted: String,
    why: String,
    next: String,
    #[serde(default)]
    source: String,
}

fn words(id: &str) -> Words {
    #[derive(Deserialize)]
    struct File {
        requirement: Vec<Words>,
    }
    static ALL: OnceLock<Vec<Words>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let file: File = toml::from_str(include_str!("machine/machine.toml")).expect("a test reads the file");
        file.requirement
    });
    all.iter().find(|words| words.id == id).expect("a test asks for every one").clone()
}

fn requirement(id: &str, severity: Severity, met: bool, found: impl Into<String>) -> Requirement {
    let Words { id, wanted, why, next, source } = words(id);
    Requirement { id, met, severity, wanted, found: found.into(), why, next, source }
}

impl Requirement {
    /// With a value in its place among the words.
    fn with(mut self, place: &str, value: impl ToString) -> Requirement {
        self.wanted = self.wanted.replace(&format!("{{{place}}}"), &value.to_string());
        self
    }
}

/// What this process may do.
fn abilities(facts: &Facts, needs: &Needs) -> Vec<Requirement> {
    let mut all = Vec::new();
    if let Some(severity) = needs.shaped_disk {
        let fuse = requirement("fuse", severity, facts.fuse.yes(), facts.fuse.found());
        all.push(Requirement { next: fuse_remedy(&facts.fuse).unwrap_or(fuse.next), ..fuse });
        let ring = facts.kernel_settings.fuse_ring;
        let found = ring.map_or(UNKNOWN, |on| if on { "on" } else { "off" });
        all.push(requirement("fuse-ring", Severity::Note, ring != Some(false), found));
    }
    if let Some(severity) = needs.block_mode {
        let found = if facts.root { "root" } else { "not root" };
        all.push(requirement("root", severity, facts.root, found));
        all.push(requirement("loop", severity, facts.loop_devices.yes(), facts.loop_devices.found()));
        for filesystem in &needs.filesystems {
            let program = facts.mkfs.get(filesystem).cloned().flatten();
            let found = program.as_ref().map_or("not found".into(), |path| path.display().to_string());
            all.push(requirement(&format!("mkfs-{filesystem}"), severity, program.is_some(), found));
        }
    }
    if let Some(severity) = needs.memory_limit {
        let (can, found) = (facts.memory_limit.yes(), facts.memory_limit.found());
        all.push(requirement("memory-limit", severity, can, found));
    }
    all
}

/// What makes FUSE usable, where what was found says which of the ways it is.
fn fuse_remedy(fuse: &Ability) -> Option<String> {
    let Ability::No { why } = fuse else { return None };
    let kinds = [libc::ENOENT, libc::EACCES, libc::EPERM].map(std::io::Error::from_raw_os_error);
    let words = |error: &std::io::Error| format!("/dev/fuse: {error}");
    let opened = kinds.iter().find(|error| words(error) == *why).map(tipover_disk::open_fuse);
    let remedy = opened.or(match why.as_str() {
        NO_CAPABILITY => Some("start the container with `--device /dev/fuse --cap-add SYS_ADMIN`"),
        NO_FUSERMOUNT => Some("install the package fuse3, or run as root"),
        _ => None,
    })?;
    let (first, rest) = remedy.split_at(1);
    Some(format!("{}{rest}.", first.to_uppercase()))
}

/// Whether the plan fits.
fn room(facts: &Facts, needs: &Needs) -> Vec<Requirement> {
    let memory = format!("{} of {}", facts.memory_available.rounded(), facts.memory_total.rounded());
    let disk = format!("{} on {}", facts.folder.free.rounded(), facts.folder.filesystem);
    let cannot = Severity::CannotRun;
    vec![
        requirement("memory", cannot, facts.memory_available >= needs.memory, memory)
            .with("needed", needs.memory.rounded()),
        requirement("disk-space", cannot, facts.folder.free >= needs.disk, disk)
            .with("needed", needs.disk.rounded())
            .with("folder", facts.folder.path.display()),
        requirement("cores", Severity::Degrades, facts.cores >= needs.cores, facts.cores.to_string())
            .with("needed", needs.cores),
    ]
}

/// What else runs, here and beside us, and would be in the numbers.
fn company(facts: &Facts) -> Vec<Requirement> {
    let load = facts.load_average[0];
    let busy = QUIET * f64::from(facts.cores);
    let steal = facts.steal.map_or(0.0, |steal| steal.0);
    let stolen = facts.steal.map_or(UNKNOWN.into(), Ratio::rounded);
    let left = if facts.leftovers.is_empty() { "none".into() } else { facts.leftovers.join(", ") };
    let metal = facts.virtualisation.as_deref();
    vec![
        requirement("load", Severity::Degrades, load <= busy, significant(load, 3))
            .with("needed", significant(busy, 2)),
        requirement("steal", Severity::Degrades, steal < STEAL, stolen),
        requirement("leftovers", Severity::Degrades, facts.leftovers.is_empty(), left),
        requirement("bare-metal", Severity::Note, metal.is_none(), metal.unwrap_or("bare metal")),
    ]
}

/// How the machine is set, where its defaults disturb a measurement.
fn settings(facts: &Facts) -> Vec<Requirement> {
    let degrades = Severity::Degrades;
    let huge = facts.huge_pages.as_deref();
    let governor = facts.governor.as_deref();
    let clock = facts.clock_source.as_deref();
    // A little in swap is what was never needed again; more means that memory is short.
    let swapped = facts.swap_used.0 as f64 > facts.memory_total.0 as f64 * 0.01;
    let swap = format!("{} of {}", facts.swap_used.rounded(), facts.swap_total.rounded());
    let fast = clock.is_none_or(|name| FAST_CLOCKS.contains(&name));
    let performs = governor.is_none_or(|name| name == "performance");
    vec![
        requirement("huge-pages", degrades, huge != Some("always"), huge.unwrap_or(UNKNOWN)),
        requirement("governor", degrades, performs, governor.unwrap_or(UNKNOWN)),
        requirement("clock", degrades, fast, clock.unwrap_or(UNKNOWN)),
        requirement("swap", degrades, !swapped, swap),
    ]
}

/// How the kernel writes back, and what lies under the folder. A shaped disk has settings of its own; these
/// are of the machine's disk, which servers, results and disks kept in files live on.
fn storage(facts: &Facts) -> Vec<Requirement> {
    const DIRTY: Bytes = Bytes::gib(1);
    let kernel = &facts.kernel_settings;
    let shown = |value: Option<String>| value.unwrap_or(UNKNOWN.into());
    let background = kernel.dirty_background;
    let swappy = facts.swap_total.0 == 0 || kernel.swappiness.is_none_or(|n| n <= 10);
    let device = facts.device.as_ref();
    let scheduler = device.and_then(|device| device.scheduler.as_deref());
    let fair = ["none", "mq-deadline", "kyber", "noop", "deadline"];
    let readahead = device.and_then(|device| device.readahead);
    let options = device.map(|device| device.mount_options.as_str());
    let has = |word: &str| options.is_some_and(|options| options.split(',').any(|option| option == word));
    let spoilt = ["nobarrier", "barrier=0", "strictatime", "sync"].into_iter().any(has);
    let (note, degrades) = (Severity::Note, Severity::Degrades);
    vec![
        requirement(
            "dirty-pages",
            note,
            background.is_none_or(|bytes| bytes <= DIRTY),
            shown(background.map(Bytes::rounded)),
        ),
        requirement("swappiness", note, swappy, shown(kernel.swappiness.map(|n| n.to_string()))),
        requirement(
            "zone-reclaim",
            degrades,
            kernel.zone_reclaim.is_none_or(|mode| mode == 0),
            shown(kernel.zone_reclaim.map(|mode| mode.to_string())),
        ),
        requirement(
            "scheduler",
            degrades,
            scheduler.is_none_or(|name| fair.contains(&name)),
            scheduler.unwrap_or(UNKNOWN),
        ),
        requirement(
            "readahead",
            note,
            readahead.is_none_or(|bytes| bytes <= Bytes::kib(128)),
            shown(readahead.map(|bytes| bytes.to_string())),
        ),
        requirement("mount-options", degrades, !spoilt, options.unwrap_or(UNKNOWN)),
    ]
}

#[cfg(test)]
mod tests;
