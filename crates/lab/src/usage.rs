//! What a group used, read from the statistics of either cgroup version into the same words.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// Memory of a group and all groups below it, in bytes unless said otherwise. `None` = this kernel does not
/// say.
///
/// | field | v1 | v2 |
/// |---|---|---|
/// | `usage` | `memory.usage_in_bytes` | `memory.current` |
/// | `limit` | `memory.limit_in_bytes` | `memory.max` |
/// | `peak` | `memory.max_usage_in_bytes` | `memory.peak` (Linux 5.19) |
/// | `page_cache` | `total_cache` − `total_shmem` | `file` − `shmem` |
/// | `shared` | `total_shmem` | `shmem` |
/// | `anonymous` | `total_rss` | `anon` |
/// | `mapped` | `total_mapped_file` | `file_mapped` |
/// | `dirty`, `writeback` | `total_dirty`, `total_writeback` | `file_dirty`, `file_writeback` |
/// | `kernel` | `memory.kmem.usage_in_bytes` | `kernel` (Linux 5.18), else the sum of its parts |
/// | `swap` | `total_swap` | `memory.swap.current` |
/// | `refaults` | `total_workingset_refault_file` | `workingset_refault_file` |
/// | `faults`, `major_faults` | `total_pgfault`, `total_pgmajfault` | `pgfault`, `pgmajfault` |
///
/// Both versions count tmpfs and shared memory as cache, although it cannot be dropped: hence the
/// subtraction. Statistics may lag behind `usage` by up to 2 s, because the kernel gathers them per core.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryUse {
    /// All memory charged.
    pub usage: u64,
    /// The limit in force, as the kernel rounded it; `None` = no limit.
    pub limit: Option<u64>,
    /// The highest `usage` so far.
    pub peak: Option<u64>,
    /// File pages that can be dropped (after writing the dirty ones).
    pub page_cache: u64,
    /// tmpfs and shared anonymous memory.
    pub shared: u64,
    /// Heap, stack and other private memory.
    pub anonymous: u64,
    /// The part of the page cache that is mapped into some process.
    pub mapped: u64,
    /// Page cache not yet sent to the disk.
    pub dirty: Option<u64>,
    /// Page cache on its way to the disk.
    pub writeback: Option<u64>,
    /// Memory of the kernel itself on behalf of the group: stacks, page tables, slabs.
    pub kernel: Option<u64>,
    /// Bytes in swap; more than 0 means that the limit of swap did not hold.
    pub swap: Option<u64>,
    /// Pages (not bytes) of files read again soon after they had been evicted: the page cache is too small.
    pub refaults: Option<u64>,
    /// Page faults of any kind, a count.
    pub faults: Option<u64>,
    /// Page faults that had to read from a disk, a count.
    pub major_faults: Option<u64>,
}

/// CPU time of a group since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTime {
    /// User and system together, as the scheduler counted them.
    pub total: Duration,
    /// In user code.
    pub user: Option<Duration>,
    /// In the kernel.
    pub system: Option<Duration>,
    /// How long the group was held back by its CPU quota, summed over its cores.
    pub throttled: Option<Duration>,
}

/// What processes of a group read from and wrote to one block device themselves, in bytes. What they only
/// made dirty is written by the kernel later, and with v1 in nobody's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Bytes read.
    pub read: u64,
    /// Bytes written: past the page cache, or while the process waited for a flush; with v2 all of them.
    pub written: u64,
}

/// From a v1 `blkio.throttle.io_service_bytes`: "major:minor Read bytes" lines.
pub(crate) fn device_v1(text: &str, device: &str) -> DeviceUse {
    let of = |kind: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' ')?.strip_prefix(kind));
        line.and_then(number).unwrap_or(0)
    };
    DeviceUse { read: of("Read "), written: of("Write ") }
}

/// From a v2 `io.stat`: "major:minor rbytes=1 wbytes=2 ..." lines.
pub(crate) fn device_v2(text: &str, device: &str) -> DeviceUse {
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' ')).unwrap_or("");
    let of =
        |key: &str| line.split_whitespace().find_map(|word| number(word.strip_prefix(key)?)).unwrap_or(0);
    DeviceUse { read: of("rbytes="), written: of("wbytes=") }
}

/// "key value" lines, as in memory.stat, memory.events and cpu.stat.
pub(crate) fn pairs(text: &str) -> HashMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        })
        .collect()
}

/// A single number, or `None` for "max" and anything else.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// v1 says "no limit" with the largest number of whole pages.
pub(crate) fn limit_v1(text: &str) -> Option<u64> {
    number(text).filter(|&bytes| bytes < (i64::MAX as u64) / 4096 * 4096)
}

/// From a v1 `memory.stat`; sizes that have files of their own are filled in by the caller.
pub(crate) fn memory_v1(stat: &str) -> MemoryUse {
    let stat = pairs(stat);
    let get = |key: &str| stat.get(key).copied();
    let shared = get("total_shmem").unwrap_or(0);
    MemoryUse {
        page_cache: get("total_cache").unwrap_or(0).saturating_sub(shared),
        shared,
        anonymous: get("total_rss").unwrap_or(0),
        mapped: get("total_mapped_file").unwrap_or(0),
        dirty: get("total_dirty"),
        writeback: get("total_writeback"),
        swap: get("total_swap"),
        refaults: get("total_workingset_refault_file").or_else(|| get("total_workingset_refault")),
        faults: get("total_pgfault"),
        major_faults: get("total_pgmajfault"),
        ..MemoryUse::default()
    }
}

/// From a v2 `memory.stat`; sizes that have files of their own are filled in by the caller.
pub(crate) fn memory_v2(stat: &str) -> MemoryUse {
    let stat = pairs(stat);
    let get = |key: &str| stat.get(key).copied();
    let parts = || {
        let names = ["kernel_stack", "pagetables", "percpu", "slab", "sec_pagetables", "vmalloc"];
        names.into_iter().filter_map(get).reduce(u64::saturating_add)
    };
    let shared = get("shmem").unwrap_or(0);
    MemoryUse {
        page_cache: get("file").unwrap_or(0).saturating_sub(shared),
        shared,
        anonymous: get("anon").unwrap_or(0),
        mapped: get("file_mapped").unwrap_or(0),
        dirty: get("file_dirty"),
        writeback: get("file_writeback"),
        kernel: get("kernel").or_else(parts),
        refaults: get("workingset_refault_file").or_else(|| get("workingset_refault")),
        faults: get("pgfault"),
        major_faults: get("pgmajfault"),
        ..MemoryUse::default()
    }
}

/// From a v2 `cpu.stat`, which every group has whether or not the cpu controller is on.
pub(crate) fn cpu_v2(stat: &str) -> Option<CpuTime> {
    let stat = pairs(stat);
    let span = |key: &str| stat.get(key).map(|&microseconds| Duration::from_micros(microseconds));
    Some(CpuTime {
        total: span("usage_usec")?,
        user: span("user_usec"),
        system: span("system_usec"),
        throttled: span("throttled_usec"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V1: &str = "cache 1\nrss 2\ntotal_cache 247955456\ntotal_rss 16412672\ntotal_shmem 9068544\n\
        total_mapped_file 10858496\ntotal_dirty 65536\ntotal_writeback 0\ntotal_workingset_refault_anon 3\n\
        total_workingset_refault_file 190200\ntotal_swap 0\ntotal_pgfault 3729367\ntotal_pgmajfault 1277\n";
    const V2: &str = "anon 16412672\nfile 247955456\nkernel 4096000\nkernel_stack 1\nshmem 9068544\n\
        file_mapped 10858496\nfile_dirty 65536\nfile_writeback 0\nworkingset_refault_file 190200\n\
        pgfault 3729367\npgmajfault 1277\n";

    #[test]
    fn both_versions_say_the_same() {
        let one = memory_v1(V1);
        let two = memory_v2(V2);
        assert_eq!(one.page_cache, 247955456 - 9068544);
        assert_eq!(one.refaults, Some(190200));
        assert_eq!(two.kernel, Some(4096000));
        assert_eq!(MemoryUse { kernel: None, swap: one.swap, ..two }, one);
    }

    #[test]
    fn older_kernels_are_understood() {
        let old = memory_v2("file 10\nworkingset_refault 7\nkernel_stack 1\nslab 20\n");
        assert_eq!((old.refaults, old.kernel), (Some(7), Some(21)));
        assert_eq!(limit_v1("9223372036854771712\n"), None);
        assert_eq!(limit_v1("33554432\n"), Some(33554432));
        assert_eq!(number("max\n"), None);
    }

    #[test]
    fn what_a_group_did_to_one_device_is_read() {
        let v1 = "7:1 Read 11\n7:10 Read 5\n7:10 Write 6\n7:1 Write 12\n7:1 Sync 9\nTotal 34\n";
        let v2 = "7:10 rbytes=5 wbytes=6 rios=1\n7:1 rbytes=11 wbytes=12 rios=1 wios=1 dbytes=0 dios=0\n";
        let expected = DeviceUse { read: 11, written: 12 };
        assert_eq!((device_v1(v1, "7:1"), device_v2(v2, "7:1")), (expected, expected));
        let nothing = DeviceUse::default();
        assert_eq!((device_v1(v1, "7:2"), device_v2(v2, "8:0")), (nothing, nothing));
    }

    #[test]
    fn cpu_time_is_read() {
        let time = cpu_v2(
            "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_throttled 2\nthrottled_usec 7\n",
        )
        .unwrap();
        assert_eq!(time.total, Duration::from_millis(1500));
        assert_eq!(time.throttled, Some(Duration::from_micros(7)));
        assert_eq!(cpu_v2("nothing here"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z_ 0-9\n]*") {
            let _ = (memory_v1(&text), memory_v2(&text), cpu_v2(&text), limit_v1(&text));
            let _ = (device_v1(&text, "7:1"), device_v2(&text, "7:1"));
        }
    }
}
