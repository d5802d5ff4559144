//! The whole machine: CPU time by state with steal and I/O wait (`/proc/stat`), and memory at work
//! (`/proc/vmstat`).

use super::{Entry, NotAvailable, Probe, Values, acquire, metric, readable, tick_ns};
use std::path::Path;
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;

const STAT: &str = "/proc/stat";
const VMSTAT: &str = "/proc/vmstat";

/// The columns of the "cpu" line in their order.
const CPU: [Entry; 8] = [
    (
        "system_cpu_user_ns",
        Kind::Counter,
        "CPU time in user code, all cores together, without niced processes (/proc/stat: user).",
    ),
    (
        "system_cpu_nice_ns",
        Kind::Counter,
        "CPU time of niced processes in user code, all cores together (/proc/stat: nice).",
    ),
    (
        "system_cpu_system_ns",
        Kind::Counter,
        "CPU time in the kernel, all cores together (/proc/stat: system).",
    ),
    (
        "system_cpu_idle_ns",
        Kind::Counter,
        "Time in which cores had nothing to do and nobody waited for a disk (/proc/stat: idle).",
    ),
    (
        "system_cpu_iowait_ns",
        Kind::Counter,
        "Idle time of cores whose last task waits for a disk; a hint only, says the kernel (/proc/stat: iowait).",
    ),
    (
        "system_cpu_irq_ns",
        Kind::Counter,
        "CPU time in hardware interrupts, all cores together (/proc/stat: irq).",
    ),
    (
        "system_cpu_softirq_ns",
        Kind::Counter,
        "CPU time in soft interrupts, all cores together (/proc/stat: softirq).",
    ),
    (
        "system_cpu_steal_ns",
        Kind::Counter,
        "Time in which the hypervisor ran somebody else although we had work (/proc/stat: steal).",
    ),
];

const STAT_LINES: [(&str, Entry); 3] = [
    ("ctxt", ("system_context_switches", Kind::Counter, "Context switches on all cores (/proc/stat: ctxt).")),
    (
        "procs_running",
        (
            "system_running_tasks",
            Kind::Gauge,
            "Tasks that run or could run at this moment (/proc/stat: procs_running).",
        ),
    ),
    (
        "procs_blocked",
        (
            "system_blocked_tasks",
            Kind::Gauge,
            "Tasks that wait for a disk at this moment (/proc/stat: procs_blocked).",
        ),
    ),
];

/// Name in the file, what turns a value into its unit (0 = a page), and the metric.
const VMSTAT_LINES: [(&str, f64, Entry); 9] = [
    (
        "pgpgin",
        1024.0,
        ("system_paged_in_bytes", Kind::Counter, "Bytes read from all block devices (/proc/vmstat: pgpgin)."),
    ),
    (
        "pgpgout",
        1024.0,
        (
            "system_paged_out_bytes",
            Kind::Counter,
            "Bytes written to all block devices (/proc/vmstat: pgpgout).",
        ),
    ),
    (
        "pswpin",
        1.0,
        (
            "system_swapped_in_pages",
            Kind::Counter,
            "Pages read back from swap; any growth spoils a measurement (/proc/vmstat: pswpin).",
        ),
    ),
    (
        "pswpout",
        1.0,
        (
            "system_swapped_out_pages",
            Kind::Counter,
            "Pages written to swap; any growth spoils a measurement (/proc/vmstat: pswpout).",
        ),
    ),
    (
        "pgmajfault",
        1.0,
        (
            "system_major_faults",
            Kind::Counter,
            "Page faults that read from a disk (/proc/vmstat: pgmajfault).",
        ),
    ),
    (
        "workingset_refault_file",
        1.0,
        (
            "system_refault_pages",
            Kind::Counter,
            "File pages read again soon after eviction (/proc/vmstat: workingset_refault_file).",
        ),
    ),
    (
        "pgscan_direct",
        1.0,
        (
            "system_direct_reclaim_pages",
            Kind::Counter,
            "Pages scanned by tasks that had to free memory themselves before they could go on (/proc/vmstat: pgscan_direct).",
        ),
    ),
    (
        "nr_dirty",
        0.0,
        (
            "system_dirty_bytes",
            Kind::Gauge,
            "File pages of the machine not yet sent to a disk (/proc/vmstat: nr_dirty).",
        ),
    ),
    (
        "nr_writeback",
        0.0,
        (
            "system_writeback_bytes",
            Kind::Gauge,
            "File pages of the machine on their way to a disk (/proc/vmstat: nr_writeback).",
        ),
    ),
];

/// Reads the whole machine.
pub struct System {
    has: Vec<Entry>,
    missing: Vec<NotAvailable>,
    units: Units,
}

/// What turns the kernel's units into ours.
#[derive(Clone, Copy)]
struct Units {
    tick_ns: f64,
    page_bytes: f64,
}

impl System {
    /// Looks once at what this kernel tells.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn open() -> Result<System, NotAvailable> {
        let units = Units { tick_ns: tick_ns(), page_bytes: rustix::param::page_size() as f64 };
        let stat = readable(Path::new(STAT))?;
        let values = parse(&stat, &readable(Path::new(VMSTAT)).unwrap_or_default(), units);
        let all =
            CPU.iter().chain(STAT_LINES.iter().map(|(_, e)| e)).chain(VMSTAT_LINES.iter().map(|(.., e)| e));
        let (has, lacks): (Vec<Entry>, Vec<Entry>) = all.partition(|(name, ..)| values.contains_key(*name));
        let missing = lacks
            .iter()
            .map(|(name, ..)| NotAvailable::new(*name, "this kernel does not count it"))
            .collect();
        Ok(System { has, missing, units })
    }
}

impl Probe for System {
    fn metrics(&self) -> Vec<Metric> {
        self.has.iter().map(metric).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        acquire(now, || {
            let stat = std::fs::read_to_string(STAT)?;
            let vmstat = std::fs::read_to_string(VMSTAT).unwrap_or_default();
            Ok(parse(&stat, &vmstat, self.units))
        })
    }

    fn missing(&self) -> Vec<NotAvailable> {
        self.missing.clone()
    }
}

fn parse(stat: &str, vmstat: &str, units: Units) -> Values {
    let mut values = Values::new();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let Some(key) = words.next() else { continue };
        if key == "cpu" {
            let ticks = words.map_while(|word| word.parse::<u64>().ok());
            values.extend(
                CPU.iter().zip(ticks).map(|((name, ..), n)| (name.to_string(), n as f64 * units.tick_ns)),
            );
        } else if let Some((_, (name, ..))) = STAT_LINES.iter().find(|(line, _)| *line == key)
            && let Some(value) = words.next().and_then(|word| word.parse::<u64>().ok())
        {
            values.insert(name.to_string(), value as f64);
        }
    }
    for line in vmstat.lines() {
        let Some((key, value)) = line.split_once(' ') else { continue };
        let known = VMSTAT_LINES.iter().find(|(line, ..)| *line == key);
        if let (Some((_, unit, (name, ..))), Ok(value)) = (known, value.trim().parse::<u64>()) {
            let unit = if *unit == 0.0 { units.page_bytes } else { *unit };
            values.insert(name.to_string(), value as f64 * unit);
        }
    }
    values
}

/// The share of CPU time since boot that the hypervisor gave to somebody else; `None` if the text has none.
pub fn steal_share(stat: &str) -> Option<f64> {
    let values = parse(stat, "", Units { tick_ns: 1.0, page_bytes: 1.0 });
    let all: f64 = CPU.iter().filter_map(|(name, ..)| values.get(*name)).sum();
    let steal = values.get("system_cpu_steal_ns")?;
    (all > 0.0).then(|| steal / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use proptest::prelude::*;

    const UNITS: Units = Units { tick_ns: 1e7, page_bytes: 4096.0 };

    #[test]
    fn the_files_are_read() {
        let stat = "cpu  6648 0 1704 177401 323 0 29 10 0 0\n\
            cpu0 3057 0 694 89289 26 0 4 3 0 0\nctxt 123\nprocs_running 2\nprocs_blocked 1\n";
        let vmstat = "nr_dirty 3\nnr_writeback 1\npgpgin 10\npgpgout 20\npswpin 0\npswpout 0\npgmajfault 5\n";
        let values = parse(stat, vmstat, UNITS);
        assert_eq!(values["system_cpu_user_ns"], 66.48e9);
        assert_eq!(values["system_cpu_iowait_ns"], 3.23e9);
        assert_eq!(values["system_cpu_steal_ns"], 0.1e9);
        assert_eq!(values["system_context_switches"], 123.0);
        assert_eq!(values["system_dirty_bytes"], 12288.0);
        assert_eq!(values["system_paged_in_bytes"], 10240.0);
        let share = steal_share(stat).unwrap();
        assert!((share - 10.0 / 186_115.0).abs() < 1e-12, "{share}");
        assert_eq!(steal_share("cpu 1 2 3"), None);
    }

    #[test]
    fn this_machine_keeps_the_contract() {
        let mut system = System::open().unwrap();
        contract::keeps(&mut system, || std::thread::sleep(std::time::Duration::from_millis(20)));
    }

    proptest! {
        #[test]
        fn no_text_panics(stat in "((cpu|ctxt|procs_running|x)( [0-9a-z-]*)*\n)*", vmstat in "((nr_dirty|pgpgin|x) [0-9a-z-]*\n)*") {
            let _ = parse(&stat, &vmstat, UNITS);
            let _ = steal_share(&stat);
        }
    }
}
