//! A canary: every now and then a few small requests, for hours or days, at less than a hundredth of the
//! disk's time.

use super::location::{Access, Location};
use super::{Stop, Unusable};
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tipover_core::measure::median;
use tipover_core::op::{Op, Outcome};
use tipover_core::storage::EngineKind;
use tipover_core::storage::canary::{Look, MOST_BUSY, pause, read_log};
use tipover_core::units::Bytes;
use tipover_core::workload::Random;
use tipover_targets::file::{Engine, Request, engine};

/// How often and how long it is looked.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// From one look to the next.
    pub every: Duration,
    /// In all, from the first look in the log on: a restart does not begin anew.
    pub total: Duration,
    /// Bytes of the data.
    pub size: Bytes,
    /// A small write with its flush belongs to a look.
    pub writes: bool,
}

/// Reads of a look, if they are fast enough.
const READS: u32 = 16;
const BLOCK: u32 = 4096;

/// Looks until it is time to end, and appends to the log; `said` hears of every look.
///
/// # Errors
/// The log cannot be read or written, or the disk not be opened.
pub fn watch(
    location: &Location,
    log: &Path,
    how: Watch,
    stop: Stop<'_>,
    said: &mut dyn FnMut(&Look),
) -> Result<Vec<Look>> {
    let mut looks = match std::fs::read_to_string(log) {
        Ok(text) => {
            read_log(&text).map_err(|e| Unusable(format!("{}: {e}; name another --log", log.display())))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => vec![],
        Err(error) => return Err(Unusable(format!("{}: {error}", log.display())).into()),
    };
    let mut file = reopened(log)?;
    let data = location.open(Access { writes: how.writes, direct: true, dsync: false })?;
    let mut engine = engine(EngineKind::Psync, vec![data].into(), 1, BLOCK as usize, now_unix_s())?;
    let begin = looks.first().map_or_else(now_unix_s, |look| look.at_unix_s);
    loop {
        let begun = Instant::now();
        if stop() || Duration::from_secs(now_unix_s().saturating_sub(begin)) >= how.total {
            return Ok(looks);
        }
        let look = look(engine.as_mut(), how);
        let line = serde_json::to_string(&look)? + "\n";
        file.write_all(line.as_bytes()).with_context(|| format!("writing {}", log.display()))?;
        looks.push(look);
        said(&look);
        let due = begun + pause(how.every, look.busy);
        while Instant::now() < due && !stop() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()).min(Duration::from_millis(200)));
        }
    }
}

/// The log, to append to; a last line that a crash cut short is taken off first.
fn reopened(log: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).read(true).open(log);
    let file = file.map_err(|e| Unusable(format!("{}: {e}; name another --log", log.display())))?;
    let text = std::fs::read(log)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        file.set_len(whole as u64)?;
    }
    Ok(file)
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A few reads at random places, as long as they take no more than their share of the time.
fn look(engine: &mut dyn Engine, how: Watch) -> Look {
    let at_unix_s = now_unix_s();
    let allowed = how.every.mul_f64(MOST_BUSY);
    let mut random = Random::new(at_unix_s, 0);
    let blocks = (how.size.0 / u64::from(BLOCK)).max(1);
    let (mut busy, mut failed) = (Duration::ZERO, 0);
    let mut answers = Vec::new();
    let mut once = |op| {
        let begin = Instant::now();
        answers.clear();
        engine.submit(Request { slot: 0, file: 0, op });
        let answered = engine.reap(1, None, &mut answers).is_ok();
        let time = begin.elapsed();
        busy += time;
        let done = answered && answers.first().is_some_and(|answer| answer.outcome == Outcome::Done);
        failed += u32::from(!done);
        (time, busy)
    };
    let mut location = || random.below(blocks) * u64::from(BLOCK);
    let mut flush = None;
    if how.writes {
        let (write, _) = once(Op::WriteAt { offset: location(), length: BLOCK });
        let (sync, _) = once(Op::Flush { data_only: true });
        flush = Some(write + sync);
    }
    let mut reads = Vec::new();
    for _ in 0..READS {
        let (time, busy) = once(Op::ReadAt { offset: location(), length: BLOCK });
        reads.push(time);
        // The next one may take as long.
        if busy + time > allowed {
            break;
        }
    }
    let nanoseconds: Vec<f64> = reads.iter().map(|time| time.as_nanos() as f64).collect();
    Look {
        at_unix_s,
        reads: reads.len() as u32,
        read: Duration::from_nanos(median(&nanoseconds).unwrap_or(0.0) as u64),
        slowest: reads.iter().copied().max().unwrap_or_default(),
        flush,
        busy,
        failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_canary_that_was_killed_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::find(folder.path()).unwrap();
        let size = location.prepare(Some(Bytes::mib(1)), true, false, &|| false, &mut |_| ()).unwrap();
        let log = folder.path().join("canary.jsonl");
        let how =
            Watch { every: Duration::from_millis(20), total: Duration::from_secs(3600), size, writes: true };
        let so_many = |most: u32| {
            let seen = AtomicU32::new(0);
            let stop = || seen.load(Ordering::Relaxed) >= most;
            let mut said = |_: &Look| {
                seen.fetch_add(1, Ordering::Relaxed);
            };
            watch(&location, &log, how, &stop, &mut said).map_err(|error| error.to_string())
        };
        let first = match so_many(3) {
            Ok(looks) => looks,
            Err(error) if error.contains("O_DIRECT") => return println!("SKIPPED: {error}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(first.len(), 3);
        // As a crash leaves it: the last line is cut short.
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::write(&log, &text[..text.len() - 5]).unwrap();
        let second = so_many(2).unwrap();
        assert_eq!(second.len(), 4, "two whole looks were left, and two more were made");
        assert_eq!(read_log(&std::fs::read_to_string(&log).unwrap()).unwrap(), second);
        assert!(second.iter().all(|look| look.failed == 0 && look.reads >= 1 && look.flush.is_some()));
        // It ends by itself, from the first look in the log on.
        let over = Watch { total: Duration::ZERO, ..how };
        assert_eq!(watch(&location, &log, over, &|| false, &mut |_| ()).unwrap().len(), 4);
    }
}
