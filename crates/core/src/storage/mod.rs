//! A disk by itself: what a load of its own asked, what came back, and what follows from it.
//!
//! Whoever measures fills in a [`Measured`]; everything else here is arithmetic on such results: whether a
//! promise held ([`DiskPromise`]), what is suspicious ([`suspicions`]), what limits ([`limit`]), how many
//! such disks it takes ([`array`]), a profile to mount ([`capture`]), where it tips ([`tipping`]), and what a
//! canary saw ([`canary`]).

pub mod array;
pub mod canary;
pub mod capture;
pub mod limit;
mod promise;
mod suspicion;
pub mod tipping;

pub use promise::{DiskPromise, Watched};
pub use suspicion::{Flushing, Medium, Mode, Suspicion, modes, suspicions};

use crate::device::{Counters, Rates};
use crate::measure::{Books, BooksText, Estimate, Histogram, Offered, TooFew, histogram, percentile};
use crate::op::OpKind;
use crate::units::{Bytes, Rate, Ratio, Tick, span};
use crate::workload::{Arrivals, FileIo};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How requests reach the kernel, by fio's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// `pread`, `pwrite`, `fsync`: one request at a time on each thread.
    #[serde(rename = "psync")]
    Psync,
    /// io_uring: many requests in flight on one thread.
    #[serde(rename = "io_uring")]
    Uring,
}

impl EngineKind {
    /// As fio calls it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Psync => "psync",
            EngineKind::Uring => "io_uring",
        }
    }
}

/// A load on a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What is asked.
    pub io: FileIo,
    /// By which system calls.
    pub engine: EngineKind,
    /// Threads; each has its own stream of requests.
    pub threads: u32,
    /// Requests that a thread keeps in flight.
    pub depth: u32,
    /// Open loop: when requests are due. Absent: the next one follows the last answer.
    pub arrivals: Option<Arrivals>,
}

impl Load {
    /// Requests in flight at most.
    pub fn in_flight(&self) -> u32 {
        self.threads * self.depth
    }
}

/// Bytes that were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moved {
    /// Read.
    #[serde(rename = "read_bytes")]
    pub read: Bytes,
    /// Written.
    #[serde(rename = "written_bytes")]
    pub written: Bytes,
}

/// What the device behind the path counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceCounts {
    /// Who counted: "diskstats of vda", "the shaped disk at /mnt/slow".
    pub source: String,
    /// When the load began to be measured.
    pub before: Counters,
    /// When it ended.
    pub after: Counters,
}

impl DeviceCounts {
    /// iostat's columns over the window; `None` if no time passed.
    pub fn rates(&self) -> Option<Rates> {
        self.after.rates_since(&self.before)
    }

    /// Bytes that the device moved.
    pub fn moved(&self) -> Moved {
        let grown = |a: Bytes, b: Bytes| Bytes(a.0.saturating_sub(b.0));
        Moved {
            read: grown(self.after.read.bytes, self.before.read.bytes),
            written: grown(self.after.write.bytes, self.before.write.bytes),
        }
    }
}

/// A stretch of the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// When it ended, since the load began.
    #[serde(rename = "end_ns")]
    pub end: Tick,
    /// Reads and writes per second.
    #[serde(rename = "requests_per_s")]
    pub requests: Rate,
    /// Their mean latency.
    #[serde(with = "span", rename = "await_ns")]
    pub mean: Duration,
}

/// What a load did to a disk in one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The load.
    pub load: Load,
    /// How long it was measured.
    #[serde(with = "span", rename = "window_ns")]
    pub window: Duration,
    /// What became of reads, writes and flushes, each with its own histogram.
    pub books: BooksText,
    /// In an open loop, what was due and what was sent.
    pub offered: Option<Offered>,
    /// Bytes of the requests that were done.
    pub moved: Moved,
    /// What the device saw meanwhile.
    pub device: Option<DeviceCounts>,
    /// Share of the time in which somebody waited for I/O, by the kernel's pressure stall information.
    pub pressure: Option<Ratio>,
    /// Bytes of the data in the page cache at the end; `None` where nobody knows.
    #[serde(rename = "cached_bytes")]
    pub cached: Option<Bytes>,
    /// Processor time of the threads that sent it.
    #[serde(with = "span", rename = "cpu_ns")]
    pub cpu: Duration,
    /// The window in pieces.
    pub stretches: Vec<Stretch>,
}

impl Measured {
    /// The books, read back.
    ///
    /// # Errors
    /// A record that was changed by hand.
    pub fn books(&self) -> Result<Books, String> {
        Books::from_text(&self.books)
    }

    /// Reads and writes that were done.
    pub fn requests(&self) -> u64 {
        [OpKind::ReadAt, OpKind::WriteAt].iter().map(|kind| self.done(*kind)).sum()
    }

    /// Requests of a kind that were done.
    pub fn done(&self, kind: OpKind) -> u64 {
        self.books.operations.get(&kind).map_or(0, |book| book.done)
    }

    /// Reads and writes per second.
    pub fn rate(&self) -> Rate {
        Rate(self.requests() as f64 / self.window.as_secs_f64())
    }

    /// Bytes per second, both ways.
    pub fn bandwidth(&self) -> Rate {
        Rate((self.moved.read.0 + self.moved.written.0) as f64 / self.window.as_secs_f64())
    }

    /// Mean latency of reads and writes from sending to answer, as a client sees it; `None` without any.
    pub fn mean_await(&self) -> Option<Duration> {
        mean(&self.merged(false))
    }

    /// Mean from due to answer; the same in a closed loop.
    pub fn mean_residence(&self) -> Option<Duration> {
        mean(&self.merged(true))
    }

    /// A percentile (0.99) of the residence of reads and writes, in nanoseconds, with its interval.
    ///
    /// # Errors
    /// Too few requests for it.
    pub fn percentile(&self, quantile: f64) -> Result<Estimate, TooFew> {
        percentile(&self.merged(true), quantile)
    }

    /// Latencies of reads and writes that were done, merged.
    pub fn merged(&self, residence: bool) -> Histogram {
        let mut merged = histogram();
        for (kind, book) in self.books().iter().flat_map(|books| books.operations()) {
            if kind != OpKind::Flush {
                let latencies = book.latencies();
                let one = if residence { latencies.residence() } else { latencies.service() };
                merged.add(one).expect("all histograms have the same bounds");
            }
        }
        merged
    }

    /// Latencies of one kind from sending to answer; `None` without any.
    pub fn latencies(&self, kind: OpKind) -> Option<Histogram> {
        let books = self.books().ok()?;
        let book = books.of(kind)?;
        (book.done() > 0).then(|| book.latencies().service().clone())
    }

    /// Mean number of requests in flight at the client, by Little's law.
    pub fn mean_in_flight(&self) -> f64 {
        self.rate().0 * self.mean_await().unwrap_or_default().as_secs_f64()
    }

    /// Processor time per read, write or flush; `None` without any.
    pub fn cpu_per_request(&self) -> Option<Duration> {
        let done = self.books.done();
        (done > 0).then(|| self.cpu.div_f64(done as f64))
    }

    /// Bytes at the device for each byte asked for: (reads, writes); `None` where nothing was asked or nobody
    /// counted.
    pub fn amplification(&self) -> (Option<f64>, Option<f64>) {
        let Some(device) = self.device.as_ref().map(DeviceCounts::moved) else { return (None, None) };
        let ratio = |at: Bytes, asked: Bytes| (asked.0 > 0).then(|| at.0 as f64 / asked.0 as f64);
        (ratio(device.read, self.moved.read), ratio(device.written, self.moved.written))
    }
}

/// What was measured, on what, by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRecord {
    /// Version of the format.
    pub format: u32,
    /// The path as given, absolute.
    pub path: String,
    /// What it is, in words: "a folder on ext4 on vda".
    pub place: String,
    /// The shape, if it is a shaped disk.
    pub shape: Option<String>,
    /// What is known about the medium.
    pub medium: Medium,
    /// The load that was asked for, measured; with a promise, the highest load that kept it.
    pub measured: Option<Measured>,
    /// Writes with their flush, and writes with `O_DSYNC`, one at a time.
    #[serde(default)]
    pub durable: Vec<Measured>,
    /// What should make one doubt.
    pub suspicions: Vec<Suspicion>,
    /// The search for a tipping point, if one was asked for.
    pub tipping: Option<tipping::Tipping>,
    /// The picture of read and write load, if one was asked for.
    pub surface: Option<tipping::Surface>,
    /// What could not be read here, and why.
    pub missing: Vec<String>,
    /// What else the machine did meanwhile.
    #[serde(default)]
    pub beside: Beside,
    /// Who made it, with what.
    pub provenance: crate::record::Provenance,
}

/// What may have disturbed a measurement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Beside {
    /// Share of the machine's processors that other programs took; `None` where that cannot be told from a
    /// shaped disk's own.
    pub neighbours: Option<f64>,
    /// Share that the host gave to others.
    pub steal: Option<f64>,
    /// The machine's canaries, half of them before and half after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<crate::measure::Canary>,
}

fn mean(histogram: &Histogram) -> Option<Duration> {
    (!histogram.is_empty()).then(|| Duration::from_nanos(histogram.mean() as u64))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::op::{Outcome, Timing};
    use crate::workload::file_io::{Access, Blocks, Turns};

    /// A measurement with these latencies of reads, writes and flushes, over one second.
    pub fn measured(reads: &[u64], writes: &[u64], flushes: &[u64]) -> Measured {
        let mut books = Books::closed();
        for (kind, latencies) in
            [(OpKind::ReadAt, reads), (OpKind::WriteAt, writes), (OpKind::Flush, flushes)]
        {
            for ns in latencies {
                let timing = Timing { due: Tick(0), began: Tick(0), ended: Tick(*ns) };
                books.record(kind, Outcome::Done, &timing, 0);
            }
        }
        let io = FileIo {
            access: Access::Random,
            turns: Turns::SYSBENCH,
            blocks: Blocks::One(Bytes::kib(4)),
            size: Bytes::mib(64),
            flushes: None,
            streams: 1,
            seed: 1,
        };
        Measured {
            load: Load { io, engine: EngineKind::Psync, threads: 1, depth: 1, arrivals: None },
            window: Duration::from_secs(1),
            books: books.to_text(),
            offered: None,
            moved: Moved {
                read: Bytes(4096 * reads.len() as u64),
                written: Bytes(4096 * writes.len() as u64),
            },
            device: None,
            pressure: None,
            cached: None,
            cpu: Duration::from_millis(10),
            stretches: vec![],
        }
    }

    #[test]
    fn figures_are_of_reads_and_writes_and_flushes_stand_apart() {
        let it = measured(&[1_000_000; 60], &[3_000_000; 40], &[50_000_000; 5]);
        assert_eq!((it.requests(), it.done(OpKind::Flush)), (100, 5));
        assert_eq!(it.rate(), Rate(100.0));
        let mean = it.mean_await().unwrap().as_secs_f64();
        assert!((mean / 1.8e-3 - 1.0).abs() < 2e-3, "{mean}");
        assert!((it.mean_in_flight() - 0.18).abs() < 1e-3);
        assert!(it.percentile(0.99).is_err(), "a hundred requests have no p99");
        assert_eq!(it.latencies(OpKind::Flush).unwrap().len(), 5);
        assert_eq!(it.amplification(), (None, None));
        let text = serde_json::to_string(&it).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&text).unwrap(), it);
    }
}
