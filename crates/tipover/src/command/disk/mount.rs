//! `disk mount`, `umount`, `list` and `set`.

use super::{Shape, absolute, find, quoted, refused};
use crate::DISK_DAEMON_VERB;
use crate::command::{BadInput, Ending};
use crate::trial::{Interrupt, Interrupted};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tipover_core::device::Spec;
use tipover_core::units::{Bytes, span};
use tipover_disk::{
    BackingChoice, DaemonCommand, Disk, Filesystem, Mode, MountError, MountOptions, Transport,
};

/// Mount a shaped disk that stays
///
/// Makes the disk, measures what carries its requests here, takes that off its latency, and prints what was
/// achieved. A disk faster than the transport is refused with the measured limit. It stays when this command
/// ends: take it away with `tipover disk umount DIR`; after a reboot nothing of it is left. In memory its
/// content is gone then, too.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tipover disk mount /mnt/slow --profile hdd-7200 --owner postgres
  tipover disk mount /mnt/slow --spec iops=600,latency=7ms --backing /data --size 20GiB
  tipover disk mount /mnt/slow --profile gp2 --spec burst_start=1000")]
pub struct Mount {
    /// Where to mount: an empty or missing folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    shape: Shape,

    /// A real block device with a file system on it (needs root), or a folder shown through FUSE
    #[arg(long, value_enum, default_value_t = ModeChoice::Auto)]
    mode: ModeChoice,

    /// What is made on the block device
    #[arg(long, value_enum, default_value_t = FilesystemChoice::Ext4)]
    filesystem: FilesystemChoice,

    /// Size of the block device; memory is taken only as it is written
    #[arg(long, default_value = "4 GiB")]
    size: Bytes,

    /// Where the bytes are: "memory" or a folder on a faster disk; in file mode that folder itself is shown
    #[arg(long, default_value = "memory", value_name = "memory|FOLDER")]
    backing: String,

    /// How far the kernel reads ahead
    #[arg(long, default_value = "128 KiB")]
    readahead: Bytes,

    /// What carries requests to the disk's daemon: reads and writes of /dev/fuse, or FUSE over io_uring
    /// (Linux 6.14, root, disks in memory), which is up to about twice as fast. "ring" turns on the machine's
    /// switch
    /// /sys/module/fuse/parameters/enable_uring while mounting, and puts it back
    #[arg(long, value_enum, default_value_t = TransportChoice::Auto)]
    transport: TransportChoice,

    /// Keep no account of what is flushed: writes cost a few percent less, and the power cannot be cut
    #[arg(long)]
    no_power_cuts: bool,

    /// To whom the disk's top folder shall belong, by name or number
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeChoice {
    /// Block as root where there are loop devices, else file
    Auto,
    /// A loop device: diskstats, readahead and journals are the kernel's own
    Block,
    /// A folder: needs no root
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FilesystemChoice {
    Ext4,
    Xfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TransportChoice {
    /// The ring where it can be used and the switch is on, else classic
    Auto,
    /// Reads and writes of /dev/fuse
    Classic,
    /// FUSE over io_uring
    Ring,
}

impl Mount {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let spec = self.shape.read()?;
        if self.shape.profile.is_none() && self.shape.spec.is_none() {
            let next = "name a disk with --profile NAME (see `tipover disk profiles`) or --spec";
            return Err(BadInput(format!("which disk? {next}, such as --spec iops=600,latency=7ms")).into());
        }
        let owner = self.owner.as_deref().map(user).transpose()?;
        let root = rustix::process::geteuid().is_root();
        let mode = match self.mode {
            ModeChoice::Block => Mode::Block,
            ModeChoice::File => Mode::File,
            ModeChoice::Auto if root && Path::new("/dev/loop-control").exists() => Mode::Block,
            ModeChoice::Auto => Mode::File,
        };
        let backing = match self.backing.as_str() {
            "memory" => BackingChoice::Memory,
            folder => BackingChoice::Directory(backing_folder(Path::new(folder))?),
        };
        let filesystem = match self.filesystem {
            FilesystemChoice::Ext4 => Filesystem::Ext4,
            FilesystemChoice::Xfs => Filesystem::Xfs,
        };
        let options = MountOptions {
            mode,
            filesystem,
            size: self.size,
            backing,
            mountpoint: resolved(&self.folder),
            spec,
            readahead: self.readahead,
            power_cuts: !self.no_power_cuts,
            transport: match self.transport {
                TransportChoice::Auto => Transport::Auto,
                TransportChoice::Classic => Transport::Classic,
                TransportChoice::Ring => Transport::Ring,
            },
            daemon: DaemonCommand::this_program(&[DISK_DAEMON_VERB]),
        };
        let mut disk = Disk::mount_unless(options, &|| interrupt.is_set()).map_err(explain)?;
        interrupt.check()?;
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(disk.path(), Some(user), Some(group))
                .with_context(|| format!("giving {} to its owner", disk.path().display()))?;
        }
        disk.keep()?;
        let facts = describe(&disk)?;
        if json {
            println!("{}", serde_json::to_string_pretty(&facts)?);
        } else {
            print_facts(&facts);
            println!("take it away with: tipover disk umount {}", quoted(&disk.path().to_string_lossy()));
        }
        Ok(Ending::Held)
    }
}

/// The mount point with its parents' links resolved, so that it is found again however it is called.
fn resolved(folder: &Path) -> PathBuf {
    let folder = absolute(folder);
    match (folder.parent().map(std::fs::canonicalize), folder.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => folder,
    }
}

fn backing_folder(folder: &Path) -> Result<PathBuf> {
    let found = std::fs::canonicalize(folder)
        .map_err(|e| BadInput(format!("--backing {}: {e}; name a folder, or memory", folder.display())))?;
    if !found.is_dir() {
        return Err(BadInput(format!("--backing {} is not a folder", folder.display())).into());
    }
    Ok(found)
}

/// What the user can put right is their input; the rest is a failure.
fn explain(error: MountError) -> anyhow::Error {
    match error {
        MountError::Disk(error) => refused(error),
        MountError::Start { .. } => error.into(),
        MountError::Interrupted => Interrupted.into(),
        MountError::TooLarge { .. } | MountError::TooSmall { .. } => {
            BadInput(format!("--size: {error}")).into()
        }
        input => BadInput(input.to_string()).into(),
    }
}

/// User and group number of a user, as the system's own tool knows them.
fn user(name: &str) -> Result<(u32, u32)> {
    let ask = |flag: &str| -> Result<u32> {
        let answer = Command::new("id").args([flag, "--", name]).output().context("asking `id`")?;
        let text = String::from_utf8_lossy(&answer.stdout).trim().to_string();
        match (answer.status.success(), text.parse()) {
            (true, Ok(number)) => Ok(number),
            _ => Err(BadInput(format!("--owner {name}: no such user on this machine")).into()),
        }
    };
    Ok((ask("-u")?, ask("-g")?))
}

/// Everything worth knowing about a mounted disk.
fn describe(disk: &Disk) -> Result<Value> {
    let options = disk.options();
    let (floor, floor_iops) = disk.transport_floor();
    Ok(json!({
        "mountpoint": disk.path(),
        "mode": options.mode,
        "filesystem": (options.mode == Mode::Block).then_some(options.filesystem),
        "device": disk.block_device(),
        "size_bytes": (options.mode == Mode::Block).then_some(options.size),
        "backing": options.backing,
        "spec": disk.spec().to_string(),
        "brief": disk.spec().brief(),
        "calibration": disk.calibration(),
        "transport": disk.transport(),
        "transport_latency_ns": floor.as_nanos() as u64,
        "transport_iops": floor_iops,
        "realtime": disk.privileges().realtime,
        "daemon": disk.daemon_pid(),
    }))
}

fn print_facts(facts: &Value) {
    let text = |key: &str| facts[key].as_str().unwrap_or_default().to_string();
    let nanoseconds =
        |value: &Value| span::rounded(std::time::Duration::from_nanos(value.as_u64().unwrap_or(0)));
    let place = match facts["device"].as_str() {
        Some(device) => format!("{} on {device}", text("filesystem")),
        None => "folder through FUSE".into(),
    };
    println!("{}: {} ({place}, daemon {})", text("mountpoint"), text("brief"), facts["daemon"]);
    let calibration = &facts["calibration"];
    if calibration["configured_ns"].as_u64().is_some_and(|ns| ns > 0) {
        let [wanted, achieved, quick, slow, taken_off] =
            ["configured_ns", "achieved_ns", "achieved_ns_p10", "achieved_ns_p90", "compensation_ns"]
                .map(|key| nanoseconds(&calibration[key]));
        let measured = match calibration["held"].as_bool() {
            Some(_) => format!("{achieved} when checked (eight in ten from {quick} to {slow})"),
            None => "not measured under load".into(),
        };
        println!(
            "  latency of single 4 KiB reads: {wanted} wanted, {measured}; {taken_off} taken off for the transport"
        );
        let again = "measure again when the disk and the machine are idle";
        match calibration["held"].as_bool() {
            Some(true) => {}
            held => {
                let why = held.map_or(
                    "the correction is that of the nearest latency that was measured",
                    |_| "this is not the disk that was asked for: the machine was busy while it was measured",
                );
                println!(
                    "  {why}; {again}: tipover disk set {} {}",
                    quoted(&text("mountpoint")),
                    quoted(&text("spec"))
                );
            }
        }
    }
    let way = match facts["transport"].as_str() {
        Some("ring") => "FUSE over io_uring",
        _ => "/dev/fuse",
    };
    println!(
        "  the transport alone ({way}): {} a read, {} at most; nothing faster can be imitated here",
        nanoseconds(&facts["transport_latency_ns"]),
        tipover_core::units::Rate(facts["transport_iops"].as_f64().unwrap_or(0.0)).rounded(),
    );
    if facts["realtime"] == json!(false) {
        println!("  without real-time priority: less exact on a busy machine");
    }
}

/// Take a shaped disk away
///
/// What is on it in memory is gone. A disk that programs still use is not taken away; --force does it
/// nevertheless, and they get I/O errors.
#[derive(Debug, Args)]
pub struct Umount {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Also while programs use it
    #[arg(long)]
    force: bool,
}

impl Umount {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        let disk = find(&self.folder)?;
        let users = if self.force { Vec::new() } else { users(disk.path()) };
        if !users.is_empty() {
            let list: Vec<String> = users.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
            bail!(
                "{} is in use by {}; stop them, or umount with --force (they get I/O errors)",
                disk.path().display(),
                list.join(", ")
            );
        }
        let path = disk.path().to_path_buf();
        disk.unmount()?;
        if json {
            println!("{}", serde_json::to_string_pretty(&json!({"unmounted": path}))?);
        } else {
            println!("{} is taken away", path.display());
        }
        Ok(Ending::Held)
    }
}

/// Processes with something open below `folder`, or standing in it.
fn users(folder: &Path) -> Vec<(u32, String)> {
    let below = |link: PathBuf| std::fs::read_link(link).is_ok_and(|target| target.starts_with(folder));
    let maps = |process: &Path| {
        let text = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
        text.lines().filter_map(|l| l.split_whitespace().nth(5)).any(|p| Path::new(p).starts_with(folder))
    };
    let uses = |process: &Path| {
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        ["cwd", "root"].iter().any(|link| below(process.join(link)))
            || open.map(|fd| fd.path()).any(below)
            || maps(process)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())))
        .filter(|(pid, path)| *pid != std::process::id() && uses(path))
        .map(|(pid, path)| {
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            (pid, name.trim().to_string())
        })
        .collect()
}

/// Prints all mounted shaped disks.
pub fn list(json: bool) -> Result<Ending> {
    let mut rows = Vec::new();
    for found in tipover_disk::mounted() {
        let mut row = match Disk::at(&found.mountpoint) {
            Ok(disk) => describe(&disk)?,
            Err(_) => json!({"mountpoint": found.mountpoint, "daemon": found.daemon}),
        };
        row["kept"] = found.kept.into();
        rows.push(row);
    }
    let leftovers = tipover_disk::leftovers();
    if json {
        let left: Vec<String> = leftovers.iter().map(ToString::to_string).collect();
        println!("{}", serde_json::to_string_pretty(&json!({"disks": rows, "leftovers": left}))?);
        return Ok(Ending::Held);
    }
    if rows.is_empty() {
        println!("no shaped disk is mounted");
    }
    for row in &rows {
        match row["kept"] == json!(true) && row["spec"].is_string() {
            true => print_facts(row),
            false => println!(
                "{}: of a running program, or not answering (daemon {})",
                row["mountpoint"].as_str().unwrap_or_default(),
                row["daemon"]
            ),
        }
    }
    for left in &leftovers {
        println!("{left}");
    }
    if !leftovers.is_empty() {
        println!("`tipover doctor --clean` takes away what dead daemons left");
    }
    Ok(Ending::Held)
}

/// Change a disk's shape while it is mounted
///
/// SPEC is the whole new shape: what it does not name has no limit (to change one value of a profile, name
/// the profile too). File system, size, data, readahead, faults, traces and counters stay. Requests that
/// arrive from now on meet the new shape; those under way keep their times. On an idle disk the new latency
/// is measured anew; under load the nearest known correction is used.
#[derive(Debug, Args)]
pub struct Set {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The new shape, such as "iops=600,latency=7ms", or "unlimited"
    #[arg(value_name = "SPEC", required_unless_present = "profile")]
    spec: Option<String>,

    /// A disk by name; SPEC is then what differs from it
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl Set {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        let spec = super::spec(self.profile.as_deref(), self.spec.as_deref())?;
        let disk = find(&self.folder)?;
        let before = disk.spec();
        if disk.in_flight()? == 0 {
            disk.calibrate(&spec).map_err(refused)?;
        } else {
            disk.set_spec(&spec).map_err(refused)?;
        }
        let mut facts = describe(&disk)?;
        facts["replaced"] = before.to_string().into();
        if json {
            println!("{}", serde_json::to_string_pretty(&facts)?);
        } else {
            print_facts(&facts);
            for line in changes(&before, &spec) {
                println!("  {line}");
            }
            println!("  kept: file system, size, data, readahead, faults, traces and counters");
        }
        Ok(Ending::Held)
    }
}

/// What a new shape replaces, a line for each key.
fn changes(before: &Spec, now: &Spec) -> Vec<String> {
    let keys = |spec: &Spec| -> BTreeMap<String, String> {
        let text = spec.to_string();
        text.split(',').filter_map(|part| part.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    };
    let (before, now) = (keys(before), keys(now));
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let value = |of: &BTreeMap<String, String>, name| of.get(name).cloned().unwrap_or("not set".into());
    let changed = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    let lines: Vec<String> = changed
        .map(|name| format!("replaced: {name}: {}, before {}", value(&now, name), value(&before, name)))
        .collect();
    if lines.is_empty() { vec!["the shape is as it was".into()] } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_is_said_key_by_key() {
        let lines = |before: &str, now: &str| changes(&before.parse().unwrap(), &now.parse().unwrap());
        assert_eq!(
            lines("iops=600,latency=7ms", "latency=1ms"),
            ["replaced: iops: not set, before 600", "replaced: latency: 1ms, before 7ms"]
        );
        assert_eq!(lines("unlimited", "iops=600"), ["replaced: iops: 600, before not set"]);
        assert_eq!(lines("iops=600", "iops=600"), ["the shape is as it was"]);
    }
}
