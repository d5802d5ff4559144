//! The picture of a disk under every combination of read and write load.

use super::check;
use super::climb::in_flight;
use super::load::{self, Disks};
use super::measure::{Bench, Window};
use crate::clock::Clock;
use anyhow::{Context, Result};
use std::time::Duration;
use tipover_core::op::OpKind;
use tipover_core::storage::tipping::{Surface, SurfaceCell};
use tipover_core::storage::{EngineKind, Load};
use tipover_core::units::{Bytes, Rate};
use tipover_core::workload::Arrivals;
use tipover_core::workload::file_io::{Access, Blocks, Turns};

/// Bytes of a sequential write.
const WRITE: Bytes = Bytes::kib(128);
/// Requests in flight of either side at most: what waits beyond is the generator's backlog.
const DEPTH: u32 = 32;

/// Measures `steps` × `steps` cells, each for `time`: random reads on one thread, sequential writes on
/// another, both in open loops. The axes reach to what the disk can do of either alone.
///
/// # Errors
/// A measurement failed.
pub fn surface(
    load: &Load,
    disks: &Disks,
    steps: u32,
    time: Duration,
    bench: &mut Bench<'_>,
) -> Result<Surface> {
    let side = |turns, access, block| {
        let mut side = in_flight(&Load { engine: EngineKind::Uring, ..load.clone() }, DEPTH);
        (side.io.turns, side.io.access, side.io.blocks, side.io.flushes) =
            (turns, access, Blocks::One(block), None);
        side
    };
    let block = load.io.blocks.least();
    let reads = side(Turns::Reads, Access::Random, block);
    let writes = side(Turns::Writes, Access::Sequential, WRITE);
    let window = Window { warm_up: time, time: time * 4 };
    let most_reads = bench.measure(&reads, disks, window, "the most reads")?.0.rate();
    bench.rest()?;
    let most_writes = bench.measure(&writes, disks, window, "the most writes")?.0.rate();
    bench.rest()?;
    let mut cells = Vec::new();
    let share = |step: u32| f64::from(step) / f64::from((steps - 1).max(1));
    for row in 0..steps {
        for column in 0..steps {
            check(bench.stop)?;
            let done = f64::from(row * steps + column) / f64::from(steps * steps);
            (bench.progress)("read and write load", done);
            let of = |side: &Load, most: Rate, share: f64| {
                (share > 0.0).then(|| Load {
                    arrivals: Some(Arrivals::Poisson(Rate((most.0 * share).max(0.1)))),
                    ..side.clone()
                })
            };
            let (r, w) = (of(&reads, most_reads, share(column)), of(&writes, most_writes, share(row)));
            cells.push(cell(r, w, disks, time, (share(column), share(row)), bench)?);
            bench.rest()?;
        }
    }
    Ok(Surface {
        most_reads_per_s: most_reads.0,
        most_written_bytes_per_s: most_writes.0 * WRITE.0 as f64,
        blocks: (block, WRITE),
        steps,
        cells,
    })
}

fn cell(
    reads: Option<Load>,
    writes: Option<Load>,
    disks: &Disks,
    time: Duration,
    (read_share, write_share): (f64, f64),
    bench: &Bench<'_>,
) -> Result<SurfaceCell> {
    let clock = Clock::start();
    let (read, written) = std::thread::scope(|scope| {
        let one = |load: Option<Load>| {
            scope.spawn(move || {
                let load = load?;
                Some(load::run(&load, disks, clock, |threads| {
                    std::thread::sleep(time / 4);
                    threads.cut();
                    std::thread::sleep(time);
                    threads.cut()
                }))
            })
        };
        let (read, written) = (one(reads), one(writes));
        (read.join(), written.join())
    });
    check(bench.stop)?;
    let finished = |joined: std::thread::Result<Option<std::io::Result<(load::Cut, load::Cut)>>>| {
        joined
            .map_err(|_| anyhow::anyhow!("a thread of the load panicked"))?
            .transpose()
            .context("sending requests")
    };
    let (read, written) = (finished(read)?, finished(written)?);
    let mut cell =
        SurfaceCell { reads: read_share, writes: write_share, p50_ns: None, p95_ns: None, achieved: 1.0 };
    let (mut due, mut done) = (0, 0);
    for (cut, drained) in [&read, &written].into_iter().flatten() {
        let offered = cut.offered.as_ref();
        due += offered.map_or(0, |offered| offered.due);
        done += offered.map_or(0, |offered| offered.due.saturating_sub(offered.backlog));
        let mut books = cut.books.clone();
        books.merge(&drained.books);
        if let Some(book) = books.of(OpKind::ReadAt).filter(|book| book.done() >= 10) {
            let residence = book.latencies().residence();
            cell.p50_ns = Some(residence.value_at_quantile(0.5));
            cell.p95_ns = Some(residence.value_at_quantile(0.95));
        }
    }
    if due > 0 {
        cell.achieved = done as f64 / due as f64;
    }
    Ok(cell)
}
