//! Takes a disk's portrait, for `disk mount --profile FILE`.

use super::climb::in_flight;
use super::load::Disks;
use super::location::{Access as Opening, Location};
use super::measure::{Bench, Window, open_files};
use super::surroundings::Surroundings;
use super::{Stop, Unusable};
use anyhow::{Context, Result};
use std::time::Duration;
use tipover_core::device::Spec;
use tipover_core::op::OpKind;
use tipover_core::storage::capture::Captured;
use tipover_core::storage::{EngineKind, Load, Measured};
use tipover_core::units::Bytes;
use tipover_core::workload::file_io::{Access, Blocks, Flushes, Turns};
use tipover_disk::{BackingChoice, DaemonCommand, Disk, Filesystem, Mode, MountOptions};

/// Requests in flight at which ceilings are looked for.
const MANY: u32 = 64;
/// What is written to a copy to be read again. It is memory.
const COPY: Bytes = Bytes::mib(256);

/// A disk's portrait to be taken.
#[derive(Debug, Clone)]
pub struct Sitting<'a> {
    /// How the profile is called.
    pub name: &'a str,
    /// Where and how it is measured.
    pub source: &'a str,
    /// Engine and size; the rest is set for each part.
    pub load: &'a Load,
    /// Writes and flushes belong to it.
    pub writes: bool,
    /// How long each part is measured.
    pub time: Duration,
}

/// Mounts a shaped disk with a profile and takes its portrait in the same way.
///
/// # Errors
/// [`Unusable`] where it cannot be mounted, as for a disk that is faster than the way to a shaped one.
pub fn capture_copy(
    spec: &Spec,
    sitting: &Sitting<'_>,
    daemon: DaemonCommand,
    stop: Stop<'_>,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Captured> {
    let folder = tipover_lab::Scratch::create()?;
    let at = folder.path().join("disk");
    let root = rustix::process::geteuid().is_root();
    let refused = |why: String| Unusable(format!("no copy to compare with: {why}"));
    let disk = Disk::mount(MountOptions {
        mode: if root { Mode::Block } else { Mode::File },
        filesystem: Filesystem::Ext4,
        size: Bytes(2 * COPY.0),
        backing: BackingChoice::Memory,
        mountpoint: at.clone(),
        spec: Spec::default(),
        readahead: Bytes(0),
        power_cuts: false,
        transport: tipover_disk::Transport::Auto,
        daemon,
    })
    .map_err(|e| refused(e.to_string()))?;
    let location = Location::find(&at)?;
    let size = Bytes(COPY.0.min(sitting.load.io.size.0));
    let size = location.prepare(Some(size), true, false, stop, &mut |_| ())?;
    disk.set_spec(spec).map_err(|e| refused(e.to_string()))?;
    let mut load = sitting.load.clone();
    load.io.size = size;
    let disks = open_files(&location, Opening { writes: sitting.writes, direct: true, dsync: false })?;
    let mut surroundings = Surroundings::none();
    let mut bench = Bench { location: &location, surroundings: &mut surroundings, stop, progress };
    let captured = capture(&Sitting { load: &load, ..sitting.clone() }, &disks, &mut bench)?;
    drop(disks);
    disk.unmount()?;
    Ok(captured)
}

/// Measures latencies one at a time and ceilings with many in flight; writes only if the sitting does.
///
/// # Errors
/// A measurement failed, or nothing was answered.
pub fn capture(sitting: &Sitting<'_>, disks: &Disks, bench: &mut Bench<'_>) -> Result<Captured> {
    let &Sitting { name, source, load, writes, time } = sitting;
    let window = Window { warm_up: time / 4, time };
    let mut one = |turns, access, block: Bytes, flights: u32, flushes, what: &str| -> Result<Measured> {
        let engine = if flights == 1 { EngineKind::Psync } else { load.engine };
        let mut load = Load { engine, ..load.clone() };
        load.io.turns = turns;
        load.io.access = access;
        load.io.blocks = Blocks::One(Bytes(block.0.min(load.io.size.0)));
        load.io.flushes = flushes;
        let measured = bench.measure(&in_flight(&load, flights), disks, window, what)?.0;
        bench.rest()?;
        Ok(measured)
    };
    let (small, large) = (Bytes::kib(4), Bytes::mib(1));
    let (random, sequential) = (Access::Random, Access::Sequential);
    let alone = one(Turns::Reads, random, small, 1, None, "reads, one at a time")?;
    let reads = one(Turns::Reads, random, small, MANY, None, "the most reads")?;
    let read_bytes = one(Turns::Reads, sequential, large, 4, None, "the most bytes read")?;
    let mut captured = Captured {
        name: name.into(),
        source: source.into(),
        read: alone.latencies(OpKind::ReadAt).context("no read was answered")?,
        write: None,
        flush: None,
        read_iops: reads.rate(),
        write_iops: None,
        mixed_iops: None,
        read_bandwidth: Bytes(read_bytes.bandwidth().0 as u64),
        write_bandwidth: None,
    };
    if writes {
        let each = Some(Flushes { every_writes: 1, data_only: true });
        let alone = one(Turns::Writes, random, small, 1, None, "writes, one at a time")?;
        let flushed = one(Turns::Writes, random, small, 1, each, "writes with a flush")?;
        let many = one(Turns::Writes, random, small, MANY, None, "the most writes")?;
        let both = one(Turns::ReadsPerWrite(1.0), random, small, MANY, None, "the most of both")?;
        let bytes = one(Turns::Writes, sequential, large, 4, None, "the most bytes written")?;
        captured.write = alone.latencies(OpKind::WriteAt);
        captured.flush = flushed.latencies(OpKind::Flush);
        captured.write_iops = Some(many.rate());
        captured.mixed_iops = Some(both.rate());
        captured.write_bandwidth = Some(Bytes(bytes.bandwidth().0 as u64));
    }
    Ok(captured)
}
