//! Processes as the kernel accounts them: what they asked for, what reached a device, CPU and memory
//! (`/proc/PID/io` and `/proc/PID/stat`), summed over a set of them.

use super::{Entry, NotAvailable, Probe, Values, metric, tick_ns};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;
use tipover_lab::Group;

/// Lines of `/proc/PID/io` and their metrics.
const IO: [(&str, Entry); 7] = [
    (
        "rchar",
        (
            "process_asked_read_bytes",
            Kind::Counter,
            "Bytes that read calls returned, from whatever cache or device; mapped files are not in it (/proc/PID/io: rchar).",
        ),
    ),
    (
        "wchar",
        (
            "process_asked_write_bytes",
            Kind::Counter,
            "Bytes given to write calls, whether or not they reached a device; mapped files are not in it (/proc/PID/io: wchar).",
        ),
    ),
    ("syscr", ("process_read_calls", Kind::Counter, "Read calls of any size (/proc/PID/io: syscr).")),
    ("syscw", ("process_write_calls", Kind::Counter, "Write calls of any size (/proc/PID/io: syscw).")),
    (
        "read_bytes",
        (
            "process_device_read_bytes",
            Kind::Counter,
            "Bytes fetched from a block device for the process; 0 over FUSE in file mode (/proc/PID/io: read_bytes).",
        ),
    ),
    (
        "write_bytes",
        (
            "process_device_write_bytes",
            Kind::Counter,
            "Bytes that the process made dirty on a block device, counted before they are written (/proc/PID/io: write_bytes).",
        ),
    ),
    (
        "cancelled_write_bytes",
        (
            "process_cancelled_write_bytes",
            Kind::Counter,
            "Dirty bytes that were never written because the file was cut or removed first (/proc/PID/io: cancelled_write_bytes).",
        ),
    ),
];

/// Fields of `/proc/PID/stat`, numbered as in proc(5), and their metrics.
const STAT: [(usize, Entry); 6] = [
    (
        10,
        (
            "process_minor_faults",
            Kind::Counter,
            "Page faults that needed no device (/proc/PID/stat: minflt).",
        ),
    ),
    (
        12,
        (
            "process_major_faults",
            Kind::Counter,
            "Page faults that read from a device (/proc/PID/stat: majflt).",
        ),
    ),
    (
        14,
        (
            "process_cpu_user_ns",
            Kind::Counter,
            "CPU time in user code, in steps of 10 ms on most kernels (/proc/PID/stat: utime).",
        ),
    ),
    (
        15,
        (
            "process_cpu_system_ns",
            Kind::Counter,
            "CPU time in the kernel, in steps of 10 ms on most kernels (/proc/PID/stat: stime).",
        ),
    ),
    (20, ("process_threads", Kind::Gauge, "Threads at this moment (/proc/PID/stat: num_threads).")),
    (
        24,
        (
            "process_resident_bytes",
            Kind::Gauge,
            "Memory mapped and present, pages shared with other processes included (/proc/PID/stat: rss).",
        ),
    ),
];

/// Field of `/proc/PID/stat` that tells a process from a later one with the same id.
const START: usize = 22;

/// Which processes to read.
enum Which {
    Given(Vec<u32>),
    InGroup(Arc<Group>),
}

/// Reads a set of processes and sums over them. What a process counted before it ended stays in the sum.
pub struct Processes {
    which: Which,
    root: PathBuf,
    has_io: Result<(), NotAvailable>,
    /// The last counters of every process seen, by id and start.
    seen: BTreeMap<(u32, u64), Values>,
}

impl Processes {
    /// The processes with these ids.
    ///
    /// # Errors
    /// None of them lives.
    pub fn given(processes: &[u32]) -> Result<Processes, NotAvailable> {
        Processes::open(Which::Given(processes.to_vec()), Path::new("/proc"))
    }

    /// Whatever runs in `group` at the time of each reading.
    ///
    /// # Errors
    /// The group is empty.
    pub fn in_group(group: &Arc<Group>) -> Result<Processes, NotAvailable> {
        Processes::open(Which::InGroup(group.clone()), Path::new("/proc"))
    }

    fn open(which: Which, root: &Path) -> Result<Processes, NotAvailable> {
        let mut probe = Processes { which, root: root.to_path_buf(), has_io: Ok(()), seen: BTreeMap::new() };
        let Some(first) = probe.pids().into_iter().find(|pid| probe.read(*pid).is_some()) else {
            return Err(NotAvailable::new("processes", "none of those given lives"));
        };
        // Needs the same user, and a kernel with task I/O accounting.
        if let Err(error) = std::fs::read_to_string(probe.root.join(format!("{first}/io"))) {
            probe.has_io = Err(NotAvailable::new(format!("/proc/{first}/io"), error));
        }
        Ok(probe)
    }

    fn pids(&self) -> Vec<u32> {
        match &self.which {
            Which::Given(pids) => pids.clone(),
            Which::InGroup(group) => group.processes(),
        }
    }

    /// Start and values of one process; `None` if it has ended.
    fn read(&self, pid: u32) -> Option<(u64, Values)> {
        let file = |name: &str| std::fs::read_to_string(self.root.join(format!("{pid}/{name}"))).ok();
        let (start, mut values) = parse_stat(&file("stat")?)?;
        if self.has_io.is_ok() {
            // A process that ends between the two reads counts as ended.
            values.extend(parse_io(&file("io")?));
        }
        Some((start, values))
    }
}

impl Probe for Processes {
    fn metrics(&self) -> Vec<Metric> {
        let io = IO.iter().filter(|_| self.has_io.is_ok()).map(|(_, entry)| entry);
        STAT.iter().map(|(_, entry)| entry).chain(io).map(metric).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        let begin = now();
        let living: BTreeMap<(u32, u64), Values> = self
            .pids()
            .into_iter()
            .filter_map(|pid| self.read(pid).map(|(start, values)| ((pid, start), values)))
            .collect();
        let end = now();
        // The dead keep their counters, else the sum would go backwards, but hold no memory and no threads.
        let gauge = |name: &str| STAT.iter().any(|(_, entry)| entry.0 == name && entry.1 == Kind::Gauge);
        for values in self.seen.values_mut() {
            values.retain(|name, _| !gauge(name));
        }
        self.seen.extend(living);
        let mut sum: Values = self.metrics().into_iter().map(|metric| (metric.name, 0.0)).collect();
        for (name, value) in self.seen.values().flatten() {
            if let Some(total) = sum.get_mut(name) {
                *total += value;
            }
        }
        Ok(Sample { begin, end, values: sum })
    }

    fn missing(&self) -> Vec<NotAvailable> {
        self.has_io.clone().err().into_iter().collect()
    }
}

/// The values of a `/proc/PID/io` under our names.
fn parse_io(text: &str) -> Values {
    let line = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let (_, (name, ..)) = IO.iter().find(|(line, _)| *line == key)?;
        Some((name.to_string(), value.trim().parse::<u64>().ok()? as f64))
    };
    text.lines().filter_map(line).collect()
}

/// Start and values of a `/proc/PID/stat`; `None` if it is cut short or the process is dead.
fn parse_stat(text: &str) -> Option<(u64, Values)> {
    // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    if matches!(field(3)?, "Z" | "X" | "x") {
        return None;
    }
    let unit = |name: &str| match name {
        "process_cpu_user_ns" | "process_cpu_system_ns" => tick_ns(),
        "process_resident_bytes" => rustix::param::page_size() as f64,
        _ => 1.0,
    };
    let value = |(number, (name, ..)): &(usize, Entry)| {
        Some((name.to_string(), field(*number)?.parse::<u64>().ok()? as f64 * unit(name)))
    };
    Some((field(START)?.parse().ok()?, STAT.iter().map(value).collect::<Option<Values>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use proptest::prelude::*;

    const ONE: &str = "6979 (a (b) c) R 1 2 3 0 -1 4194304 98 0 7 0 120 30 0 0 20 0 5 0 93266 3133440 359 18446744073709551615";

    #[test]
    fn the_files_are_read() {
        let io = "rchar: 6976\nwchar: 3\nsyscr: 10\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 512\n";
        let values = parse_io(io);
        assert_eq!(values["process_asked_read_bytes"], 6976.0);
        assert_eq!(values["process_device_read_bytes"], 4096.0);
        assert_eq!(values.len(), IO.len());
        let (start, values) = parse_stat(ONE).unwrap();
        assert_eq!(start, 93266);
        assert_eq!((values["process_minor_faults"], values["process_major_faults"]), (98.0, 7.0));
        assert_eq!(values["process_cpu_user_ns"], 120.0 * tick_ns());
        assert_eq!(values["process_threads"], 5.0);
        assert_eq!(values["process_resident_bytes"], 359.0 * rustix::param::page_size() as f64);
        assert_eq!(parse_stat(&ONE.replace(") R", ") Z")), None);
    }

    /// Processes made of files: one is replaced by another with its id, one ends.
    #[test]
    fn the_sum_never_goes_backwards() {
        let proc = tempfile::tempdir().unwrap();
        let write = |pid: u32, start: u64, faults: u64, read: u64| {
            let folder = proc.path().join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            let stat = ONE.replace(" 93266 ", &format!(" {start} ")).replace(" 98 ", &format!(" {faults} "));
            std::fs::write(folder.join("stat"), stat).unwrap();
            std::fs::write(folder.join("io"), format!("rchar: {read}\n")).unwrap();
        };
        write(1, 10, 100, 1000);
        write(2, 20, 200, 2000);
        let mut probe = Processes::open(Which::Given(vec![1, 2]), proc.path()).unwrap();
        let now = || Tick(0);
        let get = |sample: &Sample, name: &str| sample.get(name).unwrap();
        let first = probe.sample(&now).unwrap();
        assert_eq!(get(&first, "process_asked_read_bytes"), 3000.0);
        assert_eq!(get(&first, "process_threads"), 10.0);
        write(1, 11, 1, 10);
        std::fs::remove_dir_all(proc.path().join("2")).unwrap();
        let second = probe.sample(&now).unwrap();
        assert_eq!(get(&second, "process_asked_read_bytes"), 3010.0);
        assert_eq!(get(&second, "process_minor_faults"), 301.0);
        assert_eq!(get(&second, "process_threads"), 5.0, "the dead have no threads");
    }

    #[test]
    fn this_process_keeps_the_contract() {
        let mut probe = Processes::given(&[std::process::id()]).unwrap();
        let work = || assert!(!std::fs::read("/proc/cpuinfo").unwrap().is_empty());
        let (before, after) = contract::keeps(&mut probe, work);
        assert!(after.growth(&before, "process_asked_read_bytes").unwrap() > 0.0);
        assert!(after.get("process_resident_bytes").unwrap() > 0.0);
    }

    #[test]
    fn nobody_alive_is_said() {
        let error = Processes::given(&[u32::MAX]).err().unwrap();
        assert_eq!(error.to_string(), "processes not available: none of those given lives");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9() a-zRZ:-]|\n)*") {
            let _ = parse_io(&text);
            let _ = parse_stat(&text);
        }
    }
}
