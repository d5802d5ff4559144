//! The machine's canary: a few milliseconds of fixed work before and after a trial.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tipover_core::measure::Canary;

const SPINS: u32 = 12;
const SLEEPS: u32 = 12;
const FLUSHES: u32 = 4;

/// Runs it; flushes go to a nameless file in `folder`. Takes some 40 ms and four flushes.
pub fn canary(folder: &Path) -> Canary {
    let spin: Duration = (0..SPINS).map(|_| timed(spin)).sum();
    let pause = Duration::from_millis(1);
    let woken: Duration = (0..SLEEPS).map(|_| timed(|| std::thread::sleep(pause))).sum();
    let each = |all: Duration, n: u32| all.as_nanos() as f64 / f64::from(n);
    Canary {
        spin_ns: each(spin, SPINS),
        wake_ns: each(woken.saturating_sub(pause * SLEEPS), SLEEPS),
        sync_ns: flushes(folder).ok().map(|all| each(all, FLUSHES)),
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// About a millisecond of integer arithmetic that no compiler can shorten.
fn spin() {
    let mut x = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..400_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x);
}

fn flushes(folder: &Path) -> std::io::Result<Duration> {
    std::fs::create_dir_all(folder)?;
    // Without a name: nothing stays of it, whether the disk is full or the laboratory is killed meanwhile.
    let mut file = tempfile::tempfile_in(folder)?;
    let mut all = Duration::ZERO;
    for _ in 0..FLUSHES {
        let begin = Instant::now();
        file.write_all(&[0x5A; 4096])?;
        file.sync_data()?;
        all += begin.elapsed();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leaves_nothing_behind_and_says_where_it_cannot_flush() {
        let folder = tempfile::tempdir().unwrap();
        let it = canary(folder.path());
        assert!(it.spin_ns > 0.0 && it.sync_ns.is_some_and(|ns| ns > 0.0), "{it:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(canary(Path::new("/proc/none")).sync_ns, None);
    }
}
