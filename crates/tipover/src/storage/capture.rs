//! Takes a disk's portrait, for `disk mount --profile FILE`.

use super::climb::in_flight;
use super::load::Disks;
use super::measure::{Bench, Window};
use anyhow::{Context, Result};
use std::time::Duration;
use tipover_core::device::Profile;
use tipover_core::op::OpKind;
use tipover_core::storage::capture::Captured;
use tipover_core::storage::{EngineKind, Load, Measured};
use tipover_core::units::Bytes;
use tipover_core::workload::file_io::{Access, Blocks, Flushes, Turns};

/// Requests in flight at which ceilings are looked for.
const MANY: u32 = 64;

/// Measures latencies one at a time and ceilings with many in flight; writes only if `writes`.
///
/// # Errors
/// A measurement failed, or nothing was answered.
pub fn capture(
    name: &str,
    source: &str,
    load: &Load,
    disks: &Disks,
    writes: bool,
    time: Duration,
    bench: &mut Bench<'_>,
) -> Result<Profile> {
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
    captured.profile().context("no read was answered")
}
