//! What is beside a load: the device that counts, the pressure that the kernel measures, the page cache.

use super::location::Location;
use crate::clock::Clock;
use crate::probe::{Device, Pressure, Probe};
use anyhow::Result;
use std::fs::File;
use std::path::Path;
use tipover_core::device::{Counters, Spec};
use tipover_core::storage::Medium;
use tipover_core::units::Bytes;
use tipover_disk::Disk;

/// Who counts beneath a path.
enum Counter {
    /// A shaped disk, exactly.
    Shaped(Box<Disk>),
    /// A block device, by the kernel.
    Block(Device),
}

/// What can be read beside a load on a place.
pub struct Surroundings {
    counter: Option<Counter>,
    pressure: Option<Pressure>,
    /// To ask how much of the data is cached.
    data: Option<File>,
    /// What cannot be read here, and why.
    pub missing: Vec<String>,
}

/// A reading of everything.
#[derive(Debug, Clone)]
pub struct Reading {
    pub counters: Option<Counters>,
    pub pressure_us: Option<f64>,
}

impl Surroundings {
    /// Looks beneath `place`: at its file system, its device, and what queues there.
    pub fn of(location: &Location) -> Surroundings {
        let mut missing = Vec::new();
        let counter = match shaped(&location.path) {
            Ok(Some(disk)) => Some(Counter::Shaped(Box::new(disk))),
            Ok(None) | Err(_) => match Device::under(&location.path) {
                Ok(device) => Some(Counter::Block(device)),
                Err(reason) => {
                    missing.push(reason.to_string());
                    None
                }
            },
        };
        let pressure = match Pressure::of_system() {
            Ok(pressure) => Some(pressure),
            Err(reason) => {
                missing.push(reason.to_string());
                None
            }
        };
        Surroundings { counter, pressure, data: File::open(&location.data).ok(), missing }
    }

    /// Of something that nobody counts as a whole: an array of ours.
    pub fn none() -> Surroundings {
        Surroundings { counter: None, pressure: None, data: None, missing: Vec::new() }
    }

    /// The shaped disk, if it is one that stays mounted.
    pub fn shaped(&self) -> Option<&Disk> {
        match &self.counter {
            Some(Counter::Shaped(disk)) => Some(disk),
            _ => None,
        }
    }

    /// Its shape.
    pub fn shape(&self) -> Option<Spec> {
        self.shaped().map(Disk::spec)
    }

    /// Who counts: "diskstats of vda".
    pub fn source(&self) -> Option<String> {
        self.counter.as_ref().map(|counter| match counter {
            Counter::Shaped(disk) => format!("the shaped disk at {}", disk.path().display()),
            Counter::Block(device) => format!("diskstats of {}", device.name()),
        })
    }

    /// The device's name, for people.
    pub fn device(&self) -> Option<String> {
        match self.counter.as_ref()? {
            Counter::Shaped(_) => Some("a shaped disk".into()),
            Counter::Block(device) => Some(device.name().to_string()),
        }
    }

    /// Reads everything now.
    ///
    /// # Errors
    /// The device or the daemon is gone.
    pub fn read(&mut self, clock: &Clock) -> Result<Reading> {
        let counters = match &self.counter {
            Some(Counter::Shaped(disk)) => Some(disk.counters()?),
            Some(Counter::Block(device)) => Some(device.counters(clock.now())?),
            None => None,
        };
        let pressure_us = match &mut self.pressure {
            Some(pressure) => {
                let sample = pressure.sample(&|| clock.now())?;
                sample.values.get("system_pressure_io_some_us").copied()
            }
            None => None,
        };
        Ok(Reading { counters, pressure_us })
    }

    /// Bytes of the data in the page cache now; `None` where the kernel does not tell.
    pub fn cached(&self) -> Option<Bytes> {
        let file = self.data.as_ref()?;
        tipover_targets::file::cached(file).ok().map(|cached| cached.resident)
    }

    /// What is known about the medium.
    pub fn medium(&self, location: &Location, direct: bool, data: Bytes) -> Medium {
        let (mut rotational, mut volatile_cache, mut shaped_flush_ns) = (None, None, None);
        match &self.counter {
            Some(Counter::Shaped(disk)) => {
                shaped_flush_ns = Some(disk.spec().flush_latency.as_nanos() as u64).filter(|ns| *ns > 0);
            }
            Some(Counter::Block(device)) => {
                rotational = device.queue("rotational").map(|word| word == "1");
                volatile_cache = device.queue("write_cache").map(|word| word == "write back");
            }
            None => {}
        }
        Medium {
            memory: location.is_memory(),
            rotational,
            volatile_cache,
            shaped_flush_ns,
            direct,
            data,
            memory_size: Bytes(rustix::system::sysinfo().totalram as u64),
        }
    }
}

/// The shaped disk that `path` lies on, if it is one that anybody may talk to.
fn shaped(path: &Path) -> Result<Option<Disk>> {
    let found =
        tipover_disk::mounted().into_iter().find(|disk| disk.kept && path.starts_with(&disk.mountpoint));
    Ok(found.map(|disk| Disk::at(&disk.mountpoint)).transpose()?)
}
