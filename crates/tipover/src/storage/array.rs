//! Whether the computed number of disks is enough: an array of shaped disks like this one is built, in this
//! program, and measured.
//!
//! A dozen fast disks under a hundred clients take more wake-ups than a small machine has, and what was
//! measured would be the machine. So the disks are built in slow motion, and the clock is read accordingly:
//! a disk that takes ten times as long for everything has the same queues, and latencies ten times as long.

use super::climb::in_flight;
use super::load::Disks;
use super::location::{Access, Location};
use super::measure::{Bench, Window};
use super::surroundings::Surroundings;
use super::{Stop, check as stopped};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;
use tipover_core::device::Spec;
use tipover_core::storage::array::Sizing;
use tipover_core::storage::tipping::Checked;
use tipover_core::storage::{EngineKind, Load};
use tipover_core::units::Bytes;
use tipover_core::workload::file_io::Blocks;
use tipover_disk::{BackingChoice, DaemonCommand, Disk, Filesystem, Mode, MountOptions};

/// Each disk has a daemon; more of them than this are in each other's way on a small machine.
const MOST_BUILT: u32 = 12;
/// What one disk of the array holds.
const SIZE: Bytes = Bytes::mib(32);
/// Requests per second that all disks together carry well on two busy processors.
const CARRIED: f64 = 800.0;
/// A wake-up that is late by a few milliseconds shall be a small share of a latency.
const LONG_ENOUGH: Duration = Duration::from_millis(50);
/// Nobody waits longer for an answer than this many times as long.
const SLOWEST: u32 = 40;

/// How many times as slow the disks are built.
fn slow_motion(sizing: &Sizing) -> u32 {
    let carried = sizing.requests_per_s / CARRIED;
    let long = LONG_ENOUGH.as_secs_f64() / sizing.predicted.as_secs_f64().max(1e-6);
    (carried.max(long).ceil() as u32).clamp(1, SLOWEST)
}

/// What is to be tried, on which disks.
#[derive(Debug, Clone)]
pub struct ArrayCheck {
    /// Clients, each with one request in flight.
    pub clients: u32,
    /// What they are to see at most.
    pub limit: Duration,
    /// The load of a single disk.
    pub load: Load,
    /// The disk to be multiplied.
    pub spec: Spec,
    /// How it is mounted.
    pub mode: Mode,
    /// How a daemon is started.
    pub daemon: DaemonCommand,
    /// How long is measured.
    pub window: Window,
}

/// Builds the array of a sizing, puts the clients on it and measures.
///
/// # Errors
/// It cannot be built here, with the reason.
pub fn check(
    sizing: &Sizing,
    how: &ArrayCheck,
    stop: Stop<'_>,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Checked> {
    let &ArrayCheck { clients, limit, ref load, window, .. } = how;
    let disks = sizing.disks.context("no number of disks was found")?;
    if disks > MOST_BUILT {
        bail!("an array of {disks} shaped disks is more than this machine carries (at most {MOST_BUILT})");
    }
    let Blocks::One(block) = load.io.blocks else {
        bail!("an array is only tried with requests of one size");
    };
    let slowed = slow_motion(sizing);
    let spec = how.spec.slowed(slowed);
    let folder = tipover_lab::Scratch::create()?;
    let mut built = Vec::new();
    let mut files = Vec::new();
    for number in 0..disks {
        stopped(stop)?;
        progress("building the array", f64::from(number) / f64::from(disks));
        let (disk, file) = one(&folder.path().join(number.to_string()), how, &spec, block, stop)?;
        built.push(disk);
        files.push(file);
    }
    let mut load = Load { engine: EngineKind::Uring, ..load.clone() };
    load = in_flight(&load, clients);
    let usable = u64::from(disks / sizing.raid.step()) * SIZE.0 / block.0 * block.0;
    load.io.size = Bytes(usable);
    load.io.flushes = None;
    let array = Disks::array(files, sizing.raid, block);
    // The place is only for messages; what is measured are the files.
    let location = Location::find(folder.path())?;
    let mut surroundings = Surroundings::none();
    let mut bench = Bench { location: &location, surroundings: &mut surroundings, stop, progress };
    let before = completed(&built)?;
    let (measured, _) = bench.measure(&load, &array, window, "measuring the array")?;
    let after = completed(&built)?;
    drop(array);
    let requests = after.0 - before.0;
    let at_the_disks = (requests > 0)
        .then(|| ((after.1 - before.1).as_nanos() / u128::from(requests) / u128::from(slowed)) as u64);
    for disk in built {
        disk.unmount()?;
    }
    let measured = measured.mean_await().context("the array answered nothing")? / slowed;
    Ok(Checked {
        raid: sizing.raid,
        disks,
        clients,
        predicted: sizing.predicted,
        measured,
        at_the_disks,
        slowed,
        limit,
    })
}

/// Reads and writes that all disks have completed, and the time that these took there.
fn completed(disks: &[Disk]) -> Result<(u64, Duration)> {
    let mut sum = (0, Duration::ZERO);
    for disk in disks {
        let counters = disk.counters()?;
        sum.0 += counters.read.requests + counters.write.requests;
        sum.1 += counters.read.residence + counters.write.residence;
    }
    Ok(sum)
}

/// A disk with its data, shaped at the end, so that filling it does not take as long as it would.
fn one(
    at: &Path,
    how: &ArrayCheck,
    spec: &Spec,
    block: Bytes,
    stop: Stop<'_>,
) -> Result<(Disk, std::fs::File)> {
    let disk = Disk::mount(MountOptions {
        mode: how.mode,
        filesystem: Filesystem::Ext4,
        // The file system's own needs, and a stripe that is not whole.
        size: Bytes(SIZE.0 * 2 + 8 * block.0 + Bytes::mib(64).0),
        backing: BackingChoice::Memory,
        mountpoint: at.to_path_buf(),
        spec: Spec::default(),
        readahead: Bytes(0),
        power_cuts: false,
        transport: tipover_disk::Transport::Auto,
        daemon: how.daemon.clone(),
    })?;
    let location = Location::find(at)?;
    // Stripes do not divide the size evenly: the last one may reach a little further on one disk.
    let size = Bytes(SIZE.0 + 4 * 65_536_u64.next_multiple_of(block.0));
    location.prepare(Some(size), true, false, stop, &mut |_| ())?;
    let file = location.open(Access { writes: true, direct: true, dsync: false })?;
    disk.drop_caches()?;
    disk.set_spec(spec)?;
    Ok((disk, file))
}
