//! Memory and CPU of one control group, from either cgroup version in the same words.

use super::{Entry, NotAvailable, Probe, Values, acquire, metric};
use std::sync::Arc;
use std::time::Duration;
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;
use tipover_lab::Group;

const METRICS: [Entry; 20] = [
    (
        "cgroup_usage_bytes",
        Kind::Gauge,
        "All memory charged to the group (usage_in_bytes or memory.current).",
    ),
    (
        "cgroup_page_cache_bytes",
        Kind::Gauge,
        "File pages charged to the group, without tmpfs (memory.stat: cache or file, less shmem).",
    ),
    (
        "cgroup_shared_bytes",
        Kind::Gauge,
        "tmpfs and shared memory charged to the group (memory.stat: shmem).",
    ),
    (
        "cgroup_anonymous_bytes",
        Kind::Gauge,
        "Private memory of the group: heap and stacks (memory.stat: rss or anon).",
    ),
    (
        "cgroup_mapped_bytes",
        Kind::Gauge,
        "File pages that are mapped into a process of the group (memory.stat: mapped_file or file_mapped).",
    ),
    (
        "cgroup_dirty_bytes",
        Kind::Gauge,
        "File pages of the group not yet sent to the disk (memory.stat: dirty or file_dirty).",
    ),
    (
        "cgroup_writeback_bytes",
        Kind::Gauge,
        "File pages of the group on their way to the disk (memory.stat: writeback or file_writeback).",
    ),
    (
        "cgroup_kernel_bytes",
        Kind::Gauge,
        "The kernel's own memory on behalf of the group (kmem.usage_in_bytes, or kernel in memory.stat).",
    ),
    (
        "cgroup_swap_bytes",
        Kind::Gauge,
        "Memory of the group in swap; must be 0 (memory.stat: swap, or memory.swap.current).",
    ),
    (
        "cgroup_refault_pages",
        Kind::Counter,
        "File pages read again soon after eviction: the page cache is too small (memory.stat: workingset_refault_file).",
    ),
    (
        "cgroup_faults",
        Kind::Counter,
        "Page faults of any kind by processes of the group (memory.stat: pgfault).",
    ),
    ("cgroup_major_faults", Kind::Counter, "Page faults that read from a disk (memory.stat: pgmajfault)."),
    (
        "cgroup_oom_kills",
        Kind::Counter,
        "Processes killed because the memory limit left no choice (memory.oom_control or memory.events).",
    ),
    (
        "cgroup_cpu_ns",
        Kind::Counter,
        "CPU time of the group, counted by the scheduler (cpu.stat or cpuacct.usage).",
    ),
    (
        "cgroup_cpu_user_ns",
        Kind::Counter,
        "CPU time of the group in user code (cpu.stat or cpuacct.usage_user).",
    ),
    (
        "cgroup_cpu_system_ns",
        Kind::Counter,
        "CPU time of the group in the kernel (cpu.stat or cpuacct.usage_sys).",
    ),
    (
        "cgroup_cpu_throttled_ns",
        Kind::Counter,
        "Time that the CPU quota held the group back, summed over cores (cpu.stat).",
    ),
    (
        "cgroup_device_read_bytes",
        Kind::Counter,
        "Bytes that the group's processes read from its disk (blkio.throttle.io_service_bytes or io.stat).",
    ),
    (
        "cgroup_device_write_bytes",
        Kind::Counter,
        "Bytes that the group's processes wrote to its disk themselves, past the page cache or in a flush; with v2 \
         what the kernel wrote for them too (blkio.throttle.io_service_bytes or io.stat).",
    ),
    ("cgroup_processes", Kind::Gauge, "Processes in the group and in groups below it (cgroup.procs)."),
];

/// Reads one group's use of memory, CPU and its disk.
pub struct GroupUse {
    group: Arc<Group>,
    device: Option<(u32, u32)>,
    has: Vec<Entry>,
    missing: Vec<NotAvailable>,
}

impl GroupUse {
    /// Looks once at what this kernel tells about `group`, whose disk is the block device of this number.
    ///
    /// # Errors
    /// The group counts neither memory nor CPU.
    pub fn of(group: &Arc<Group>, device: Option<(u32, u32)>) -> Result<GroupUse, NotAvailable> {
        let values = read(group, device);
        let (has, mut lacks): (Vec<Entry>, Vec<Entry>) =
            METRICS.iter().partition(|(name, ..)| values.contains_key(*name));
        // Without a device of its own nothing is missing.
        lacks.retain(|(name, ..)| device.is_some() || !name.starts_with("cgroup_device_"));
        let reason = match (group.memory(), group.cpu_time()) {
            (Err(memory), Err(_)) => return Err(NotAvailable::new("memory and CPU of the group", memory)),
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            _ => "this kernel does not count it for a group".to_string(),
        };
        let missing = lacks.iter().map(|(name, ..)| NotAvailable::new(*name, &reason)).collect();
        Ok(GroupUse { group: group.clone(), device, has, missing })
    }
}

impl Probe for GroupUse {
    fn metrics(&self) -> Vec<Metric> {
        self.has.iter().map(metric).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        acquire(now, || {
            let mut values = read(&self.group, self.device);
            values.retain(|name, _| self.has.iter().any(|(has, ..)| has == name));
            // What could be read at first and cannot be now is a failure, not a hole.
            anyhow::ensure!(
                values.len() == self.has.len(),
                "the statistics of group {} are gone; was it removed?",
                self.group.label()
            );
            Ok(values)
        })
    }

    fn missing(&self) -> Vec<NotAvailable> {
        self.missing.clone()
    }
}

fn read(group: &Group, device: Option<(u32, u32)>) -> Values {
    let mut values = Values::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            values.insert(format!("cgroup_{name}"), value);
        }
    };
    let number = |value: Option<u64>| value.map(|value| value as f64);
    if let Ok(memory) = group.memory() {
        put("usage_bytes", number(Some(memory.usage)));
        put("page_cache_bytes", number(Some(memory.page_cache)));
        put("shared_bytes", number(Some(memory.shared)));
        put("anonymous_bytes", number(Some(memory.anonymous)));
        put("mapped_bytes", number(Some(memory.mapped)));
        put("dirty_bytes", number(memory.dirty));
        put("writeback_bytes", number(memory.writeback));
        put("kernel_bytes", number(memory.kernel));
        put("swap_bytes", number(memory.swap));
        put("refault_pages", number(memory.refaults));
        put("faults", number(memory.faults));
        put("major_faults", number(memory.major_faults));
        put("oom_kills", number(group.oom_kills().ok()));
    }
    if let Ok(cpu) = group.cpu_time() {
        let span = |span: Option<Duration>| span.map(|span| span.as_nanos() as f64);
        put("cpu_ns", span(Some(cpu.total)));
        put("cpu_user_ns", span(cpu.user));
        put("cpu_system_ns", span(cpu.system));
        put("cpu_throttled_ns", span(cpu.throttled));
    }
    let used = device.and_then(|(major, minor)| group.device_use(major, minor).ok());
    put("device_read_bytes", number(used.map(|used| used.read)));
    put("device_write_bytes", number(used.map(|used| used.written)));
    put("processes", Some(group.processes().len() as f64));
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use tipover_lab::{Launch, Limits};

    #[test]
    fn a_real_group_keeps_the_contract() {
        let group = match Group::create("probe", &Limits::memory(64 << 20)) {
            Ok(group) => Arc::new(group),
            Err(reason) => return println!("SKIPPED: {reason}"),
        };
        let mut probe = GroupUse::of(&group, None).unwrap();
        let work = || {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
            let mut child = Launch::new(command).group(&group).start().unwrap();
            assert!(child.wait(Duration::from_secs(20)).unwrap().unwrap().succeeded());
        };
        let (before, after) = contract::keeps(&mut probe, work);
        assert_eq!(before.get("cgroup_cpu_ns"), Some(0.0));
        assert!(after.get("cgroup_cpu_ns").unwrap() > 1e6);
        assert_eq!(after.get("cgroup_swap_bytes").unwrap_or(0.0), 0.0);
        for missing in probe.missing() {
            println!("{missing}");
        }
    }
}
