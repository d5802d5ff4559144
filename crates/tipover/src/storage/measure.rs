//! One load, measured once.

use super::load::{self, Cut, Disks};
use super::location::{Access, Location};
use super::surroundings::{Reading, Surroundings};
use super::{Stop, Unusable, check};
use crate::clock::Clock;
use anyhow::{Context, Result};
use std::time::Duration;
use tipover_core::measure::{Books, Offered};
use tipover_core::op::OpKind;
use tipover_core::storage::{DeviceCounts, Load, Measured, Moved, Stretch};
use tipover_core::units::{Rate, Ratio, Tick};

/// How long it warms up and is measured.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Thrown away.
    pub warm_up: Duration,
    /// Kept.
    pub time: Duration,
}

/// A place with what is beside it, ready to be measured again and again.
pub struct Bench<'a> {
    pub location: &'a Location,
    pub surroundings: &'a mut Surroundings,
    pub stop: Stop<'a>,
    pub progress: &'a mut dyn FnMut(&str, f64),
}

/// Opens a place for the loads of a command.
///
/// # Errors
/// [`Unusable`].
pub fn open_files(location: &Location, access: Access) -> Result<Disks, Unusable> {
    location.open(access).map(Disks::one)
}

/// Pieces of a window, so that one sees whether it was steady.
const STRETCHES: u32 = 20;

impl Bench<'_> {
    /// Measures a load on `disks`. Says whether the generator was late, which makes an open loop's figures
    /// worthless.
    ///
    /// # Errors
    /// The load could not be started, or the device went away.
    pub fn measure(
        &mut self,
        load: &Load,
        disks: &Disks,
        window: Window,
        what: &str,
    ) -> Result<(Measured, bool)> {
        let clock = Clock::start();
        let mut kept: Vec<Cut> = Vec::new();
        let (readings, drained) =
            load::run(load, disks, clock, |threads| -> Result<(Reading, Reading, Duration)> {
                self.sleep(window.warm_up)?;
                let before = self.surroundings.read(&clock)?;
                let cpu = threads.cut().cpu;
                for n in 0..STRETCHES {
                    self.sleep(window.time / STRETCHES)?;
                    kept.push(threads.cut());
                    (self.progress)(what, f64::from(n + 1) / f64::from(STRETCHES));
                    if threads.failed_early() {
                        break;
                    }
                }
                Ok((before, self.surroundings.read(&clock)?, cpu))
            })
            .with_context(|| format!("sending requests with {}", load.engine.name()))?;
        let (before, after, cpu) = readings?;
        let (begin, end) = match (kept.first(), kept.last()) {
            (Some(first), Some(last)) => (first.begin, last.end),
            _ => (Tick(0), Tick(0)),
        };
        let stretches = kept.iter().map(|cut| stretch(cut, begin)).collect();
        let used = kept.last().map_or(Duration::ZERO, |cut| cut.cpu.saturating_sub(cpu));
        let mut books = Books::new(load.arrivals.is_some());
        let (mut moved, mut offered) = (Moved::default(), None::<Offered>);
        // In an open loop what was due counts, also if its answer came after the end.
        let late = load.arrivals.is_some().then_some(&drained);
        for cut in kept.iter().chain(late) {
            books.merge(&cut.books);
            moved.read.0 += cut.moved.read.0;
            moved.written.0 += cut.moved.written.0;
        }
        for cut in &kept {
            match (&mut offered, &cut.offered) {
                (Some(all), Some(more)) => all.append(more).map_err(anyhow::Error::msg)?,
                (all, more) => all.clone_from(more),
            }
        }
        let lateness = offered.as_ref().map(Offered::lateness).transpose().map_err(anyhow::Error::msg)?;
        let window = end.since(begin);
        let measured = Measured {
            load: load.clone(),
            window,
            moved,
            device: self.device(&before, &after),
            pressure: pressure(&before, &after, window),
            cached: self.surroundings.cached(),
            cpu: used,
            stretches,
            books: books.to_text(),
            offered,
        };
        // A tenth of the service time is what a reader of the latency would notice.
        let noticed = measured.mean_await().unwrap_or_default().as_nanos() as u64 / 10 + 100_000;
        let generator_late = lateness.is_some_and(|l| !l.is_empty() && l.value_at_quantile(0.99) > noticed);
        Ok((measured, generator_late))
    }

    fn device(&self, before: &Reading, after: &Reading) -> Option<DeviceCounts> {
        let source = self.surroundings.source()?;
        Some(DeviceCounts { source, before: before.counters?, after: after.counters? })
    }

    /// Sleeps in pieces, so that nobody waits long when all is to end.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = std::time::Instant::now() + time;
        loop {
            check(self.stop)?;
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Waits until the device has nothing in flight any more, but not for ever: others may use it too.
    pub fn rest(&mut self) -> Result<bool> {
        let clock = Clock::start();
        for _ in 0..100 {
            let reading = self.surroundings.read(&clock)?;
            if reading.counters.is_none_or(|counters| counters.in_flight == 0) {
                return Ok(true);
            }
            self.sleep(Duration::from_millis(50))?;
        }
        Ok(false)
    }
}

fn pressure(before: &Reading, after: &Reading, window: Duration) -> Option<Ratio> {
    let grown = after.pressure_us? - before.pressure_us?;
    (!window.is_zero()).then(|| Ratio((grown / window.as_micros() as f64).clamp(0.0, 1.0)))
}

fn stretch(cut: &Cut, begin: Tick) -> Stretch {
    let seconds = cut.end.since(cut.begin).as_secs_f64().max(1e-9);
    let (mut count, mut sum) = (0u64, 0.0);
    for (kind, book) in cut.books.operations() {
        if kind != OpKind::Flush && book.done() > 0 {
            count += book.done();
            sum += book.latencies().service().mean() * book.done() as f64;
        }
    }
    Stretch {
        end: Tick(cut.end.0 - begin.0),
        requests: Rate(count as f64 / seconds),
        mean: Duration::from_nanos(if count > 0 { (sum / count as f64) as u64 } else { 0 }),
    }
}
