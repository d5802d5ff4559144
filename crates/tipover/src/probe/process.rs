//! Processes as the kernel accounts them: what they asked for, what reached a device, CPU and memory
//! (`/proc/PID/io` and `/proc/PID/stat`), summed over a set of them.

use super::{Entry, NotAvailable, Probe, Values, metric, tick_ns};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;
use tipover_lab::{Group, recipe};

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

/// Fields of `/proc/PID/stat`, numbered as in proc(5), and their metrics. The second field holds the same of
/// children that ended and were waited for; 0: there is none.
const STAT: [(usize, usize, Entry); 6] = [
    (
        10,
        11,
        (
            "process_minor_faults",
            Kind::Counter,
            "Page faults that needed no device (/proc/PID/stat: minflt, cminflt).",
        ),
    ),
    (
        12,
        13,
        (
            "process_major_faults",
            Kind::Counter,
            "Page faults that read from a device (/proc/PID/stat: majflt, cmajflt).",
        ),
    ),
    (
        14,
        16,
        (
            "process_cpu_user_ns",
            Kind::Counter,
            "CPU time in user code, in steps of 10 ms on most kernels (/proc/PID/stat: utime, cutime).",
        ),
    ),
    (
        15,
        17,
        (
            "process_cpu_system_ns",
            Kind::Counter,
            "CPU time in the kernel, in steps of 10 ms on most kernels (/proc/PID/stat: stime, cstime).",
        ),
    ),
    (20, 0, ("process_threads", Kind::Gauge, "Threads at this moment (/proc/PID/stat: num_threads).")),
    (
        24,
        0,
        (
            "process_resident_bytes",
            Kind::Gauge,
            "Memory mapped and present, pages shared with other processes included (/proc/PID/stat: rss).",
        ),
    ),
];

/// Fields of `/proc/PID/stat`: the parent, and what tells a process from a later one with the same id.
const PARENT: usize = 4;
const START: usize = 22;
/// How often processes are read again because one of them was gone at the end.
const TRIES: usize = 5;

/// Which processes to read.
enum Which {
    Given(Vec<u32>),
    Tree(u32),
    InGroup(Arc<Group>),
}

/// A process by its id and start.
type Id = (u32, u64);

/// A process as it was last seen.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    parent: Option<Id>,
    values: Values,
}

/// Reads a set of processes and sums over them. What a process counted before it ended stays in the sum,
/// once: Linux adds the account of a child to its parent's when the parent waits for it, so the child's own
/// is kept only where no parent in the set took it over.
pub struct Processes {
    which: Which,
    root: PathBuf,
    has_io: Result<(), NotAvailable>,
    /// Those that lived, or were not waited for yet, at the last reading.
    living: BTreeMap<Id, Seen>,
    /// What ended processes counted that nobody took over.
    ended: Values,
}

impl Processes {
    /// The processes with these ids.
    ///
    /// # Errors
    /// None of them lives.
    pub fn given(processes: &[u32]) -> Result<Processes, NotAvailable> {
        Processes::open(Which::Given(processes.to_vec()), Path::new("/proc"))
    }

    /// The process with this id and all below it at the time of each reading.
    ///
    /// # Errors
    /// It does not live.
    pub fn of_tree(root: u32) -> Result<Processes, NotAvailable> {
        Processes::open(Which::Tree(root), Path::new("/proc"))
    }

    /// Whatever runs in `group` at the time of each reading.
    ///
    /// # Errors
    /// The group is empty.
    pub fn in_group(group: &Arc<Group>) -> Result<Processes, NotAvailable> {
        Processes::open(Which::InGroup(group.clone()), Path::new("/proc"))
    }

    fn open(which: Which, root: &Path) -> Result<Processes, NotAvailable> {
        let mut probe = Processes {
            which,
            root: root.to_path_buf(),
            has_io: Ok(()),
            living: BTreeMap::new(),
            ended: Values::new(),
        };
        let Some(first) = probe.listed().into_iter().find(|pid| probe.read(*pid).is_some()) else {
            return Err(NotAvailable::new("processes", "none of those given lives"));
        };
        // Needs the same user, and a kernel with task I/O accounting.
        if let Err(error) = std::fs::read_to_string(probe.root.join(format!("{first}/io"))) {
            probe.has_io = Err(NotAvailable::new(format!("/proc/{first}/io"), error));
        }
        Ok(probe)
    }

    /// From now on the tree below this process, as after a restart.
    pub fn set_root(&mut self, root: u32) {
        if let Which::Tree(old) = &mut self.which {
            *old = root;
        }
    }

    fn listed(&self) -> Vec<u32> {
        match &self.which {
            Which::Given(pids) => pids.clone(),
            Which::Tree(root) => std::iter::once(*root).chain(recipe::descendants(*root)).collect(),
            Which::InGroup(group) => group.processes(),
        }
    }

    /// One process: its id and parent's number, and its values. `None` if it has ended and was waited for.
    fn read(&self, pid: u32) -> Option<(Id, u32, Values)> {
        let file = |name: &str| std::fs::read_to_string(self.root.join(format!("{pid}/{name}"))).ok();
        let (start, parent, mut values) = parse_stat(&file("stat")?)?;
        if self.has_io.is_ok() {
            // A process that ends between the two reads counts as ended.
            values.extend(parse_io(&file("io")?));
        }
        Some(((pid, start), parent, values))
    }

    /// All processes as of one moment: none of them was waited for while they were read, else its account
    /// would be in its parent's too, or in neither.
    fn read_all(&self) -> BTreeMap<Id, Seen> {
        let mut tries = 0;
        loop {
            tries += 1;
            // Groups do not list those that nobody has waited for yet.
            let pids: BTreeSet<u32> =
                self.listed().into_iter().chain(self.living.keys().map(|(pid, _)| *pid)).collect();
            let known: BTreeSet<Id> = self.living.keys().copied().collect();
            let read: Vec<(Id, u32, Values)> = pids.iter().filter_map(|pid| self.read(*pid)).collect();
            let still = |id: &Id| self.read(id.0).is_some_and(|(now, ..)| now == *id);
            if tries < TRIES && !read.iter().all(|(id, ..)| still(id)) {
                continue;
            }
            let listed: BTreeSet<u32> = self.listed().into_iter().collect();
            let ids: BTreeMap<u32, Id> = read.iter().map(|(id, ..)| (id.0, *id)).collect();
            // A number that was one of ours may be a stranger's by now.
            let ours = |id: &Id| known.contains(id) || listed.contains(&id.0);
            return read
                .into_iter()
                .filter(|(id, ..)| ours(id))
                .map(|(id, parent, values)| {
                    let parent = ids.get(&parent).copied().filter(|parent| *parent != id);
                    (id, Seen { parent, values })
                })
                .collect();
        }
    }

    /// Keeps what ended processes counted, unless their parents have it now.
    fn bury(&mut self, living: &BTreeMap<Id, Seen>) {
        let mut left: BTreeMap<Id, Values> = BTreeMap::new();
        for (parent, now) in living {
            let Some(before) = self.living.get(parent) else { continue };
            let mut growth = now.values.clone();
            for (name, value) in &mut growth {
                *value -= before.values.get(name).copied().unwrap_or(0.0);
            }
            left.insert(*parent, growth);
        }
        let gone: Vec<(Id, Seen)> = self
            .living
            .iter()
            .filter(|(id, _)| !living.contains_key(id))
            .map(|(id, s)| (*id, s.clone()))
            .collect();
        for (_, seen) in gone {
            // The nearest of those above that still lives has the account, if all between waited.
            let mut heir = seen.parent;
            while let Some(id) = heir.filter(|id| !living.contains_key(id)) {
                heir = self.living.get(&id).and_then(|above| above.parent);
            }
            let taken = heir.and_then(|heir| left.get_mut(&heir)).is_some_and(|growth| {
                // Processor time is rounded differently when it is handed over; calls and faults are exact.
                let exact = |name: &str| !name.starts_with("process_cpu_") && !is_gauge(name);
                let has = |(name, value): (&String, &f64)| growth.get(name).is_some_and(|g| g >= value);
                let all = seen.values.iter().filter(|(name, _)| exact(name)).all(has);
                if all {
                    for (name, value) in growth.iter_mut() {
                        *value -= seen.values.get(name).copied().unwrap_or(0.0);
                    }
                }
                all
            });
            if !taken {
                for (name, value) in seen.values.iter().filter(|(name, _)| !is_gauge(name)) {
                    *self.ended.entry(name.clone()).or_default() += value;
                }
            }
        }
    }
}

/// The dead hold no memory and no threads.
fn is_gauge(name: &str) -> bool {
    STAT.iter().any(|(.., entry)| entry.0 == name && entry.1 == Kind::Gauge)
}

impl Probe for Processes {
    fn metrics(&self) -> Vec<Metric> {
        let io = IO.iter().filter(|_| self.has_io.is_ok()).map(|(_, entry)| entry);
        STAT.iter().map(|(.., entry)| entry).chain(io).map(metric).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        let begin = now();
        let living = self.read_all();
        let end = now();
        self.bury(&living);
        let mut sum: Values = self.metrics().into_iter().map(|metric| (metric.name, 0.0)).collect();
        for (name, value) in living.values().flat_map(|seen| &seen.values).chain(&self.ended) {
            if let Some(total) = sum.get_mut(name) {
                *total += value;
            }
        }
        self.living = living;
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

/// Start, parent and values of a `/proc/PID/stat`; `None` if it is cut short or the process is no more. One
/// that has ended and that nobody has waited for still has its account.
fn parse_stat(text: &str) -> Option<(u64, u32, Values)> {
    // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    if matches!(field(3)?, "X" | "x") {
        return None;
    }
    let unit = |name: &str| match name {
        "process_cpu_user_ns" | "process_cpu_system_ns" => tick_ns(),
        "process_resident_bytes" => rustix::param::page_size() as f64,
        _ => 1.0,
    };
    let count = |number: usize| match number {
        0 => Some(0.0),
        _ => Some(field(number)?.parse::<i64>().ok()? as f64),
    };
    let value = |(own, children, (name, ..)): &(usize, usize, Entry)| {
        Some((name.to_string(), (count(*own)? + count(*children)?) * unit(name)))
    };
    let values = STAT.iter().map(value).collect::<Option<Values>>()?;
    Some((field(START)?.parse().ok()?, field(PARENT)?.parse().ok()?, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use proptest::prelude::*;

    const ONE: &str = "6979 (a (b) c) R 1 2 3 0 -1 4194304 98 0 7 0 120 30 5 0 20 0 5 0 93266 3133440 359 18446744073709551615";

    #[test]
    fn the_files_are_read() {
        let io = "rchar: 6976\nwchar: 3\nsyscr: 10\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 512\n";
        let values = parse_io(io);
        assert_eq!(values["process_asked_read_bytes"], 6976.0);
        assert_eq!(values["process_device_read_bytes"], 4096.0);
        assert_eq!(values.len(), IO.len());
        let (start, parent, values) = parse_stat(ONE).unwrap();
        assert_eq!((start, parent), (93266, 1));
        assert_eq!((values["process_minor_faults"], values["process_major_faults"]), (98.0, 7.0));
        assert_eq!(values["process_cpu_user_ns"], 125.0 * tick_ns(), "those of waited-for children included");
        assert_eq!(values["process_threads"], 5.0);
        assert_eq!(values["process_resident_bytes"], 359.0 * rustix::param::page_size() as f64);
        assert!(
            parse_stat(&ONE.replace(") R", ") Z")).is_some(),
            "nobody has waited for it: its account stands"
        );
        assert_eq!(parse_stat(&ONE.replace(") R", ") X")), None);
    }

    /// A made-up /proc, in which processes live and end as a test wants.
    struct Proc(tempfile::TempDir);

    impl Proc {
        fn put(&self, pid: u32, parent: u32, start: u64, faults: u64, read: u64) {
            let folder = self.0.path().join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            let stat = ONE.replace(" 93266 ", &format!(" {start} "));
            let stat = stat.replace(" 98 0 7 0 ", &format!(" {faults} 0 0 0 "));
            let stat = stat.replace(" R 1 ", &format!(" R {parent} "));
            std::fs::write(folder.join("stat"), stat).unwrap();
            std::fs::write(folder.join("io"), format!("rchar: {read}\n")).unwrap();
        }
        fn end(&self, pid: u32) {
            std::fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
        }
        fn probe(&self, pids: &[u32]) -> Processes {
            Processes::open(Which::Given(pids.to_vec()), self.0.path()).unwrap()
        }
    }

    fn asked(probe: &mut Processes) -> f64 {
        probe.sample(&|| Tick(0)).unwrap().get("process_asked_read_bytes").unwrap()
    }

    /// One is replaced by another with its id, one ends; their parent is a stranger.
    #[test]
    fn the_sum_never_goes_backwards() {
        let proc = Proc(tempfile::tempdir().unwrap());
        proc.put(1, 9, 10, 100, 1000);
        proc.put(2, 9, 20, 200, 2000);
        let mut probe = proc.probe(&[1, 2]);
        let get = |sample: &Sample, name: &str| sample.get(name).unwrap();
        let first = probe.sample(&|| Tick(0)).unwrap();
        assert_eq!(get(&first, "process_asked_read_bytes"), 3000.0);
        assert_eq!(get(&first, "process_threads"), 10.0);
        proc.put(1, 9, 11, 1, 10);
        proc.end(2);
        let second = probe.sample(&|| Tick(0)).unwrap();
        assert_eq!(get(&second, "process_asked_read_bytes"), 3010.0);
        assert_eq!(get(&second, "process_minor_faults"), 301.0);
        assert_eq!(get(&second, "process_threads"), 5.0, "the dead have no threads");
        assert_eq!(asked(&mut probe), 3010.0, "and are not counted again");
    }

    #[test]
    fn a_child_that_was_waited_for_is_in_its_parents_account_only() {
        let proc = Proc(tempfile::tempdir().unwrap());
        proc.put(1, 9, 10, 100, 1000);
        proc.put(2, 1, 20, 200, 2000);
        proc.put(3, 2, 30, 5, 500);
        let mut probe = proc.probe(&[1, 2, 3]);
        assert_eq!(asked(&mut probe), 3500.0);
        // 3 reads on and ends, 2 waits for it; both are seen by their parents' accounts.
        proc.end(3);
        proc.put(2, 1, 20, 210, 2600);
        assert_eq!(asked(&mut probe), 3600.0);
        proc.end(2);
        proc.put(1, 9, 10, 320, 3700);
        assert_eq!(asked(&mut probe), 3700.0);
        // The root itself is a stranger's child: nobody in the set takes its account over.
        proc.put(4, 9, 40, 1, 1);
        proc.end(1);
        let mut probe_of_all = proc.probe(&[1, 4]);
        assert_eq!(asked(&mut probe_of_all), 1.0);
        assert_eq!(asked(&mut probe), 3700.0);
    }

    #[test]
    fn a_child_whose_end_was_ignored_is_still_counted() {
        let proc = Proc(tempfile::tempdir().unwrap());
        proc.put(1, 9, 10, 100, 1000);
        proc.put(2, 1, 20, 200, 2000);
        let mut probe = proc.probe(&[1, 2]);
        assert_eq!(asked(&mut probe), 3000.0);
        // With SIGCHLD ignored the kernel hands nothing over.
        proc.end(2);
        proc.put(1, 9, 10, 101, 1100);
        assert_eq!(asked(&mut probe), 3100.0);
    }

    /// What Linux does with the account of a child that read 8 MiB: measured, not believed.
    #[test]
    fn the_kernel_hands_a_waited_for_childs_account_to_its_parent() {
        const READ: f64 = (8 << 20) as f64;
        let script = "dd if=/dev/zero of=/dev/null bs=1M count=8 2>/dev/null & wait; echo done; read line";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let mut tree = Processes::of_tree(shell.id()).unwrap();
        let grown = asked(&mut tree);
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!((READ..READ + 1e6).contains(&grown), "{grown} of a child that is gone");
        assert_eq!(asked(&mut tree), grown, "and of a tree that is gone");
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
