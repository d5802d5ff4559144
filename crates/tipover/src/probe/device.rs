//! A block device as the kernel counts it: `/sys/class/block/NAME/stat`, the source of iostat.

use super::{Entry, NotAvailable, Probe, Values, acquire, metric, readable};
use anyhow::Context;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::device::{Counters, Totals};
use tipover_core::metric::{Kind, Metric, Sample, name};
use tipover_core::units::{Bytes, Tick};

/// The fields of the file in their order, and what turns each into its unit. Discards and flushes came later
/// (Linux 4.18 and 5.5).
const FIELDS: [(Entry, f64); 17] = [
    (
        (
            "device_read_requests",
            Kind::Counter,
            "Reads that the device completed, counted by the block layer.",
        ),
        1.0,
    ),
    (("device_read_merges", Kind::Counter, "Reads that joined another before reaching the device."), 1.0),
    (
        ("device_read_bytes", Kind::Counter, "Bytes read from the device: the block layer's sectors of 512."),
        512.0,
    ),
    (
        (
            "device_read_time_ms",
            Kind::Counter,
            "Time of all completed reads from queueing to completion, summed.",
        ),
        1.0,
    ),
    (
        (
            name::DEVICE_WRITE_REQUESTS,
            Kind::Counter,
            "Writes that the device completed, counted by the block layer.",
        ),
        1.0,
    ),
    (("device_write_merges", Kind::Counter, "Writes that joined another before reaching the device."), 1.0),
    (
        (
            "device_write_bytes",
            Kind::Counter,
            "Bytes written to the device: the block layer's sectors of 512.",
        ),
        512.0,
    ),
    (
        (
            "device_write_time_ms",
            Kind::Counter,
            "Time of all completed writes from queueing to completion, summed.",
        ),
        1.0,
    ),
    (("device_in_flight_requests", Kind::Gauge, "Requests queued or at the device at this moment."), 1.0),
    (
        (
            "device_busy_time_ms",
            Kind::Counter,
            "Time with at least one request in flight; since Linux 5.0 sampled at the timer, so too low for a device \
             that is rarely busy.",
        ),
        1.0,
    ),
    (
        (
            "device_queue_time_ms",
            Kind::Counter,
            "Time of all requests, summed; its growth per time is the mean number in flight.",
        ),
        1.0,
    ),
    (("device_discard_requests", Kind::Counter, "Discards (TRIM) that the device completed."), 1.0),
    (
        ("device_discard_merges", Kind::Counter, "Discards that joined another before reaching the device."),
        1.0,
    ),
    (("device_discard_bytes", Kind::Counter, "Bytes discarded: the block layer's sectors of 512."), 512.0),
    (("device_discard_time_ms", Kind::Counter, "Time of all completed discards, summed."), 1.0),
    ((name::DEVICE_FLUSH_REQUESTS, Kind::Counter, "Flushes of the device's own cache that completed."), 1.0),
    (("device_flush_time_ms", Kind::Counter, "Time of all completed flushes, summed."), 1.0),
];

const COMMITS: Entry = (
    name::FILESYSTEM_COMMITS,
    Kind::Counter,
    "How often the ext4 on the device committed its own journal (/proc/fs/jbd2/DEVICE-8/info: transactions).",
);

/// Reads one block device.
pub struct Device {
    name: String,
    stat: PathBuf,
    fields: usize,
    /// The file system's account of its own journal, where it is one of ext4 made as usual.
    commits: Option<PathBuf>,
}

impl Device {
    /// The device called `name` under `/sys/class/block`, such as `vda` or `loop0`.
    ///
    /// # Errors
    /// There is no such device, or it keeps no statistics.
    pub fn named(name: &str) -> Result<Device, NotAvailable> {
        let stat = Path::new("/sys/class/block").join(name).join("stat");
        let text = readable(&stat)?;
        let fields = parse(&text).len();
        if fields < 11 {
            return Err(NotAvailable::new(
                format!("device {name}"),
                format!("{text:?} has fewer than 11 numbers"),
            ));
        }
        // 8 is the inode of a journal inside the file system.
        let commits = PathBuf::from(format!("/proc/fs/jbd2/{name}-8/info"));
        let commits = transactions(&commits).map(|_| commits);
        Ok(Device { name: name.to_string(), stat, fields, commits })
    }

    /// The device on which `path` lies, or which it is; none for tmpfs, FUSE in file mode and btrfs.
    ///
    /// # Errors
    /// There is none, or it keeps no statistics.
    pub fn under(path: &Path) -> Result<Device, NotAvailable> {
        let what = || format!("device under {}", path.display());
        let metadata = std::fs::metadata(path).map_err(|error| NotAvailable::new(what(), error))?;
        let id = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(id), rustix::fs::minor(id));
        let target = std::fs::read_link(&link)
            .map_err(|_| NotAvailable::new(what(), "its filesystem is on no block device of its own"))?;
        Device::named(target.file_name().and_then(|name| name.to_str()).unwrap_or_default())
    }

    /// Its name, such as `vda1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, major and minor.
    pub fn number(&self) -> Option<(u32, u32)> {
        let text = std::fs::read_to_string(self.stat.with_file_name("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// What it has done so far, in the words of the shaped disk.
    ///
    /// # Errors
    /// The device is gone.
    pub fn counters(&self, now: Tick) -> anyhow::Result<Counters> {
        let text = std::fs::read_to_string(&self.stat)
            .with_context(|| format!("device {} is gone: {}", self.name, self.stat.display()))?;
        let values = parse(&text);
        let number = |name: &str| values.get(name).copied().unwrap_or(0.0);
        let time = |name: &str| Duration::from_micros((number(name) * 1e3) as u64);
        let totals = |kind: &str| Totals {
            requests: number(&format!("device_{kind}_requests")) as u64,
            bytes: Bytes(number(&format!("device_{kind}_bytes")) as u64),
            residence: time(&format!("device_{kind}_time_ms")),
        };
        Ok(Counters {
            at: now,
            read: totals("read"),
            write: totals("write"),
            flush: totals("flush"),
            discard: totals("discard"),
            in_flight: number("device_in_flight_requests") as u64,
            busy: time("device_busy_time_ms"),
            queue_time: time("device_queue_time_ms"),
            credits: None,
        })
    }

    /// A property of its queue, such as `rotational`; a partition has its disk's.
    pub fn queue(&self, property: &str) -> Option<String> {
        let device = std::fs::canonicalize(Path::new("/sys/class/block").join(&self.name)).ok()?;
        let read = |device: &Path| std::fs::read_to_string(device.join("queue").join(property)).ok();
        read(&device).or_else(|| read(device.parent()?)).map(|text| text.trim().to_string())
    }
}

impl Probe for Device {
    fn metrics(&self) -> Vec<Metric> {
        let commits = self.commits.as_ref().map(|_| &COMMITS);
        FIELDS.iter().take(self.fields).map(|(entry, _)| entry).chain(commits).map(metric).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        acquire(now, || {
            let text = std::fs::read_to_string(&self.stat)
                .with_context(|| format!("device {} is gone: {}", self.name, self.stat.display()))?;
            let mut values = parse(&text);
            let commits = self.commits.as_deref().and_then(transactions);
            values.extend(commits.map(|commits| (name::FILESYSTEM_COMMITS.to_string(), commits)));
            Ok(values)
        })
    }

    fn missing(&self) -> Vec<NotAvailable> {
        let lacks = FIELDS.iter().skip(self.fields);
        lacks.map(|((name, ..), _)| NotAvailable::new(*name, "this kernel does not count it")).collect()
    }
}

/// The first number of a journal's account: "155 transactions (152 requested), ...".
fn transactions(info: &Path) -> Option<f64> {
    std::fs::read_to_string(info).ok()?.split_whitespace().next()?.parse().ok()
}

/// The numbers of a `stat` file under their names; it ends at the first word that is no number.
fn parse(text: &str) -> Values {
    let numbers = text.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    FIELDS.iter().zip(numbers).map(|(((name, ..), unit), n)| (name.to_string(), n as f64 * unit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use proptest::prelude::*;

    #[test]
    fn a_stat_file_is_read() {
        let values = parse(
            "  30975     6102  3709850    11333     6423    12491  1113584     2595 \
             2     4316    14202     3746       39   174464      259      310       13\n",
        );
        assert_eq!(values["device_read_requests"], 30975.0);
        assert_eq!(values["device_read_bytes"], 3709850.0 * 512.0);
        assert_eq!(values["device_write_time_ms"], 2595.0);
        assert_eq!(values["device_in_flight_requests"], 2.0);
        assert_eq!(values["device_busy_time_ms"], 4316.0);
        assert_eq!(values["device_queue_time_ms"], 14202.0);
        assert_eq!(values["device_flush_time_ms"], 13.0);
        assert_eq!(parse("1 2 3 4 5 6 7 8 9 10 11").len(), 11, "before discards and flushes were counted");
    }

    #[test]
    fn a_real_device_keeps_the_contract() {
        let mut device = match Device::under(&std::env::temp_dir()) {
            Ok(device) => device,
            Err(reason) => return println!("SKIPPED: {reason}"),
        };
        let work = || {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
            file.as_file().sync_all().unwrap();
        };
        let (before, after) = contract::keeps(&mut device, work);
        assert!(after.growth(&before, "device_write_bytes").unwrap() >= (1 << 20) as f64);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let error = Device::named("no-such-disk").err().unwrap();
        assert_eq!(
            error.to_string(),
            "/sys/class/block/no-such-disk/stat not available: No such file or directory (os error 2)"
        );
        assert!(Device::under(Path::new("/proc")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9 a-z\n-]*") {
            let _ = parse(&text);
        }
    }
}
