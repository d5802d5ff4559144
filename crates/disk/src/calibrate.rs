//! What the way to the daemon and back costs, measured through the mount itself: it is taken off the
//! configured latency, and a disk faster than it is refused.

use crate::error::DiskError;
use crate::privilege;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use tipover_core::device::Spec;
use tipover_core::units::{Bytes, Rate, span};

const PAGE: usize = 4096;
/// Below the daemon's threads.
const READER_PRIORITY: i32 = 5;

/// Configured against achieved, for reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The shape it is for.
    pub spec: Spec,
    /// The latency asked for.
    #[serde(with = "span", rename = "configured_ns")]
    pub configured: Duration,
    /// What was met with the compensation in force. `None` where this latency was not measured: under load,
    /// the compensation of the nearest one that was is used.
    #[serde(flatten)]
    pub check: Option<Check>,
    /// What the daemon takes off for the transport.
    #[serde(with = "span", rename = "compensation_ns")]
    pub compensation: Duration,
    /// The same read on the unshaped disk: no latency below it can be imitated.
    #[serde(with = "span", rename = "floor_ns")]
    pub floor: Duration,
    /// The most reads per second on the unshaped disk.
    #[serde(rename = "floor_iops")]
    pub floor_iops: Rate,
}

/// What single 4 KiB direct reads met with the compensation applied (beyond 50 ms: what follows from those at
/// 50 ms).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The typical latency.
    #[serde(with = "span", rename = "achieved_ns")]
    pub achieved: Duration,
    /// A tenth of the reads was quicker.
    #[serde(with = "span", rename = "achieved_ns_p10")]
    pub quick: Duration,
    /// A tenth of the reads was slower.
    #[serde(with = "span", rename = "achieved_ns_p90")]
    pub slow: Duration,
    /// Whether the typical latency is the configured one, within 4 % and 2 us.
    pub held: bool,
}

impl Check {
    fn of(reads: &mut [Duration], wanted: Duration) -> Check {
        let achieved = least_median(reads.to_vec());
        reads.sort_unstable();
        let at = |share: usize| reads.get(reads.len() * share / 10).copied().unwrap_or_default();
        let held = achieved.abs_diff(wanted) <= wanted / 25 + Duration::from_micros(2);
        Check { achieved, quick: at(1), slow: at(9), held }
    }

    /// The same of a latency so much longer.
    fn longer(self, by: Duration) -> Check {
        let Check { achieved, quick, slow, held } = self;
        Check { achieved: achieved + by, quick: quick + by, slow: slow + by, held }
    }
}

/// What the way was found to add at one latency.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Overhead {
    /// The typical latency of the shape.
    #[serde(with = "span", rename = "latency_ns")]
    pub latency: Duration,
    /// What is taken off.
    #[serde(with = "span", rename = "compensation_ns")]
    pub compensation: Duration,
    /// What that gave; `None` of the unshaped disk.
    pub check: Option<Check>,
}

/// Finds what to take off at a latency: measures, corrects, and measures again until that is what was wanted.
/// `measure` gives the latencies that a number of reads meets with a compensation applied.
///
/// A machine that is busy for a while makes the way look longer than it is, and its correction a disk that is
/// too fast ever after. Others can only add, so of several measurements, a little apart, the least counts;
/// and the last one is the check, of the very compensation that stays.
pub(crate) fn find<E>(
    wanted: Duration,
    guess: Duration,
    most: Duration,
    mut measure: impl FnMut(Duration, usize) -> Result<Vec<Duration>, E>,
) -> Result<Overhead, E> {
    const MOST_ROUNDS: usize = 8;
    let latency = wanted.min(LONGEST);
    // At long latencies what the way costs hardly counts, and reads take long.
    let rounds = if latency < Duration::from_millis(2) { 4 } else { 2 };
    let mut compensation = guess;
    let mut least = most;
    let mut round = 1;
    loop {
        let check = Check::of(&mut measure(compensation, reads(latency))?, latency);
        let found = (compensation + check.achieved).saturating_sub(latency);
        if (round >= rounds && check.held) || round >= MOST_ROUNDS {
            let check = Some(check.longer(wanted - latency));
            return Ok(Overhead { latency: wanted, compensation, check });
        }
        least = least.min(found);
        compensation = least;
        round += 1;
    }
}

/// The unshaped disk.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// One read at a time.
    #[serde(with = "span", rename = "latency_ns")]
    pub latency: Duration,
    /// Reads per second, several at a time.
    pub iops: Rate,
}

impl Floor {
    /// The most that the way can cost at any latency: more was measured on a machine too busy to tell.
    pub fn most(&self) -> Duration {
        self.latency * 3 + Duration::from_micros(100)
    }

    /// The best of two measurements of one disk: a busy machine can only add.
    pub fn best(&self, other: Floor) -> Floor {
        Floor { latency: self.latency.min(other.latency), iops: Rate(self.iops.0.max(other.iops.0)) }
    }

    /// Whether a disk of this shape can be imitated above this floor. What a latency lacks, the arm of a
    /// spindle has: only a read right behind the last one takes less than the floor then.
    pub fn check(&self, spec: &Spec) -> Result<(), DiskError> {
        let arm = arm(spec);
        for (key, latency) in [("latency", Some(spec.latency)), ("write_latency", spec.write_latency)] {
            if let Some(latency) = latency.filter(|l| !l.is_zero() && *l + arm < self.latency) {
                return Err(DiskError::BeyondTransport {
                    asked: format!("{key}={}", span::print(latency)),
                    measured: format!("an unshaped read takes {}", span::rounded(self.latency)),
                });
            }
        }
        let joined = spec.array.map_or_else(String::new, |array| format!(" of {} disks", array.disks));
        for (key, iops) in [
            ("burst_iops", spec.burst.map(|burst| burst.iops)),
            ("iops", spec.iops),
            ("read_iops", spec.read_iops),
            ("write_iops", spec.write_iops),
        ] {
            if let Some(iops) = iops.filter(|iops| iops.0 * f64::from(spec.disks()) > self.iops.0) {
                return Err(DiskError::BeyondTransport {
                    asked: format!("{key}={}{joined}", iops.0),
                    measured: format!("the unshaped disk does {}", self.iops.rounded()),
                });
            }
        }
        Ok(())
    }
}

/// How long a client typically waits for a small read from this disk when it is idle: what the transport adds
/// depends on it.
pub(crate) fn typical(spec: &Spec) -> Duration {
    spec.latency + arm(spec)
}

/// How long a small read at a random place waits for an arm and a platter.
fn arm(spec: &Spec) -> Duration {
    spec.spindle.map_or(Duration::ZERO, |spindle| spindle.mean_service(Bytes::kib(4)))
}

/// Measures the floor of the disk behind `path`, unshaped: some tens of milliseconds.
pub(crate) fn floor(path: &Path) -> io::Result<Floor> {
    latency(path, 50)?;
    let latency = latency(path, 300)?;
    let file = open(path)?;
    // The best of a few: a neighbour on this machine can only take away. Urgent readers are not kept waiting
    // by neighbours, ordinary ones may run where the daemon just did, which is faster.
    let mut iops = Rate(0.0);
    for round in 0..8 {
        iops = Rate(several_at_a_time(&file, round % 2 == 0)?.0.max(iops.0));
    }
    Ok(Floor { latency, iops })
}

/// Reads per second with several readers.
fn several_at_a_time(file: &OwnedFd, urgent: bool) -> io::Result<Rate> {
    let (clients, reads) = (8, 80);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..clients)
            .map(|n| {
                scope.spawn(move || {
                    if urgent {
                        privilege::run_on_time(READER_PRIORITY);
                    }
                    read_pages(file, n * 64, reads)
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| match reader.join() {
            Ok(result) => result.map(|_| ()),
            Err(_) => Err(io::Error::other("a reader panicked")),
        })
    })?;
    Ok(Rate((clients * reads) as f64 / begin.elapsed().as_secs_f64()))
}

/// Overheads depend on how long the machine idles while it waits, but not beyond this; longer latencies are
/// calibrated here, so that nobody waits for minutes.
pub(crate) const LONGEST: Duration = Duration::from_millis(50);

/// How many reads tell an overhead well enough in about 150 ms.
fn reads(latency: Duration) -> usize {
    (0.15 / latency.as_secs_f64().max(1e-6)).clamp(9.0, 400.0) as usize
}

/// Typical latency of `reads` single direct reads: stalls of a busy machine are not the way's. A neighbour
/// can be busy for longer than half of the reads, so of three medians, one after the other, the least counts:
/// others can only add.
fn latency(path: &Path, reads: usize) -> io::Result<Duration> {
    Ok(least_median(latencies(path, reads)?))
}

/// Latencies of `reads` single direct reads, in their order.
pub(crate) fn latencies(path: &Path, reads: usize) -> io::Result<Vec<Duration>> {
    let file = open(path)?;
    // A thread of its own, so that it may be more urgent than the caller's: it is the way that is measured,
    // not how this machine's scheduler treats one more reader.
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            privilege::run_on_time(READER_PRIORITY);
            read_pages(&file, 0, reads)
        });
        reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
    })
}

fn least_median(mut latencies: Vec<Duration>) -> Duration {
    let third = latencies.len().div_ceil(3).max(1);
    let medians = latencies.chunks_mut(third).map(|part| {
        part.sort_unstable();
        part[part.len() / 2]
    });
    medians.min().unwrap_or_default()
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads pages one after another from a small range that begins at page `first`.
fn read_pages(file: &OwnedFd, first: usize, reads: usize) -> io::Result<Vec<Duration>> {
    let mut memory = vec![0; 2 * PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let page = &mut memory[start..start + PAGE];
    let mut latencies = Vec::with_capacity(reads);
    for n in 0..reads {
        let offset = (first + n % 64) * PAGE;
        let begin = Instant::now();
        rustix::io::pread(file, &mut *page, offset as u64)?;
        latencies.push(begin.elapsed());
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_beyond_the_transport_are_refused_with_the_reason() {
        let floor = Floor { latency: Duration::from_micros(60), iops: Rate(50_000.0) };
        let check = |spec: &str| floor.check(&spec.parse().unwrap());
        for fine in ["", "iops=5000", "iops=600,latency=7ms", "latency=60us", "write_latency=0"] {
            assert!(check(fine).is_ok(), "{fine}");
        }
        let error = check("latency=10us").unwrap_err().to_string();
        assert!(error.contains("latency=10 us") && error.contains("60.0 us"), "{error}");
        assert!(check("iops=100000").unwrap_err().to_string().contains("50.0 k/s"));
        assert!(check("latency=1ms,write_latency=1us").is_err());
        assert!(check("iops=100,write_iops=60000").unwrap_err().to_string().contains("write_iops=60000"));
        assert!(check("iops=100,burst_iops=60000,burst_credits=5").is_err());
        // An arm takes milliseconds, whatever its electronics do.
        let slow = Floor { latency: Duration::from_millis(1), ..floor };
        let disk = |name: &str| slow.check(&tipover_core::device::profile(name).unwrap().spec);
        assert!(disk("hdd-7200").is_ok() && disk("nvme").is_err());
    }

    #[test]
    fn a_busy_moment_does_not_count() {
        let way = |n: u64| Duration::from_micros(30 + n % 3);
        let mut latencies: Vec<Duration> = (0..90).map(way).collect();
        latencies[..55].fill(Duration::from_micros(70));
        assert_eq!(least_median(latencies), Duration::from_micros(31));
        assert_eq!(least_median(vec![way(0)]), way(0));
        assert_eq!(least_median(Vec::new()), Duration::ZERO);
    }

    /// A way that takes 45 us, and twice that in the rounds for which `busy` says so, with some jitter.
    fn calibrated(wanted: Duration, busy: impl Fn(usize) -> bool) -> Overhead {
        let mut round = 0;
        let way = |compensation: Duration, reads: usize| {
            round += 1;
            let way = Duration::from_micros(if busy(round) { 90 } else { 45 });
            let jitter = |n| Duration::from_nanos(500 * (n % 5) as u64);
            Ok::<_, ()>((0..reads).map(|n| wanted.min(LONGEST) + way + jitter(n) - compensation).collect())
        };
        find(wanted, Duration::from_micros(60), Duration::from_micros(280), way).unwrap()
    }

    #[test]
    fn what_a_busy_moment_added_is_not_taken_off() {
        let wanted = Duration::from_micros(250);
        for busy_for in 0..4 {
            let overhead = calibrated(wanted, |round| round <= busy_for);
            let check = overhead.check.unwrap();
            assert_eq!(overhead.compensation, Duration::from_micros(46), "busy for {busy_for}");
            assert!(check.held && check.quick <= check.achieved && check.achieved <= check.slow, "{check:?}");
        }
        // Busy again when it is checked: that is said, and nothing more is taken off for it.
        let overhead = calibrated(wanted, |round| round != 2);
        assert_eq!(overhead.compensation, Duration::from_micros(46));
        assert!(!overhead.check.unwrap().held, "{overhead:?}");
    }

    #[test]
    fn beyond_the_longest_only_the_difference_is_added() {
        let wanted = Duration::from_millis(80);
        let overhead = calibrated(wanted, |_| false);
        // So slow a disk is read a few times only, whose median may lie elsewhere within the jitter.
        let jitter = Duration::from_micros(1);
        assert!(overhead.compensation.abs_diff(Duration::from_micros(46)) <= jitter, "{overhead:?}");
        assert!(overhead.check.as_ref().unwrap().achieved.abs_diff(wanted) <= jitter, "{overhead:?}");
    }

    #[test]
    fn calibration_takes_a_fraction_of_a_second() {
        assert_eq!(reads(Duration::from_millis(7)), 21);
        assert_eq!(reads(Duration::from_micros(100)), 400);
        assert_eq!(reads(LONGEST), 9);
    }
}
