//! Machines made of files: the v2 layouts that the machine running the tests may not have.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers in here are tests too")]

use std::path::Path;
use tempfile::TempDir;
use tipover_lab::{Cgroups, LimitError, Limits, Version};

const MIB: u64 = 1 << 20;
const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

/// A machine from "path: content" pairs; folders appear as needed.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    root
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As systemd lays it out for `systemd-run --user --scope`: the slice above hands memory and cpu down.
fn session() -> TempDir {
    machine(&[
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/cgroup", "0::/user/app/run.scope\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "cpu memory pids\n"),
        ("sys/fs/cgroup/cgroup.procs", ""),
        ("sys/fs/cgroup/user/app/cgroup.controllers", "cpu memory pids\n"),
        ("sys/fs/cgroup/user/app/cgroup.subtree_control", "cpu memory pids\n"),
        ("sys/fs/cgroup/user/app/cgroup.procs", ""),
        ("sys/fs/cgroup/user/app/run.scope/cgroup.controllers", "cpu memory pids\n"),
        ("sys/fs/cgroup/user/app/run.scope/cgroup.subtree_control", "\n"),
        ("sys/fs/cgroup/user/app/run.scope/cgroup.procs", "0\n"),
    ])
}

#[test]
fn v2_limits_are_written_where_the_nearest_parent_hands_them_down() {
    let root = session();
    let cgroups = Cgroups::look_under(root.path()).unwrap();
    assert_eq!(cgroups.versions().into_iter().collect::<Vec<_>>(), [Version::V2]);
    assert_eq!(cgroups.controllers()["memory"], Version::V2);
    let group = cgroups
        .create("engine", &Limits { memory: Some(200 * MIB), cpus: Some(1.5), cpu_set: None })
        .unwrap();
    let path = group.directory("memory").unwrap().to_path_buf();
    assert_eq!(path.parent().unwrap(), root.path().join("sys/fs/cgroup/user/app"));
    assert_eq!(read(&path.join("memory.max")), (200 * MIB).to_string());
    assert_eq!(read(&path.join("memory.swap.max")), "0");
    assert_eq!(read(&path.join("cpu.max")), "150000 100000");

    for (file, text) in [
        ("memory.current", "104857600\n"),
        ("memory.stat", "anon 1000\nfile 9000\nshmem 2000\nkernel 500\nworkingset_refault_file 3\n"),
        ("memory.peak", "204857600\n"),
        ("memory.swap.current", "0\n"),
        ("memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n"),
        ("cpu.stat", "usage_usec 2000000\nuser_usec 1500000\nsystem_usec 500000\nthrottled_usec 10\n"),
        ("cgroup.events", "populated 0\nfrozen 1\n"),
    ] {
        std::fs::write(path.join(file), text).unwrap();
    }
    let memory = group.memory().unwrap();
    assert_eq!((memory.usage, memory.page_cache, memory.anonymous), (104857600, 7000, 1000));
    assert_eq!((memory.limit, memory.refaults, memory.swap), (Some(200 * MIB), Some(3), Some(0)));
    assert_eq!(group.oom_kills().unwrap(), 1);
    assert_eq!(group.cpu_time().unwrap().total.as_secs(), 2);

    group.freeze().unwrap();
    assert_eq!(read(&path.join("cgroup.freeze")), "1");
    group.attach(4242).unwrap();
    assert_eq!(read(&path.join("cgroup.procs")), "4242");
    std::fs::write(path.join("cgroup.procs"), "").unwrap();

    group.set_limits(&Limits::NONE).unwrap();
    assert_eq!(
        (read(&path.join("memory.max")), read(&path.join("cpu.max"))),
        ("max".into(), "max 100000".into())
    );
    assert_eq!(group.memory().unwrap().limit, None);
    group.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_delegated_group_of_our_own_hands_down_what_is_needed() {
    let root = machine(&[
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/cgroup", "0::/ours\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "pids\n"),
        ("sys/fs/cgroup/ours/cgroup.controllers", "memory\n"),
        // A real kernel would answer with what was switched on; here the last write stays, which is "+pids".
        ("sys/fs/cgroup/ours/cgroup.subtree_control", "\n"),
        ("sys/fs/cgroup/ours/cgroup.procs", ""),
    ]);
    let cgroups = Cgroups::look_under(root.path()).unwrap();
    // The made-up kernel does not list memory afterwards, so the limit itself is refused, after the switch
    // was made.
    let _ = cgroups.create("engine", &Limits::memory(64 * MIB));
    assert_eq!(read(&root.path().join("sys/fs/cgroup/ours/cgroup.subtree_control")), "+pids");
}

#[test]
fn a_missing_controller_is_named_with_what_to_do() {
    let none = machine(&[("proc/self/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda rw\n")]);
    let error = Cgroups::look_under(none.path()).unwrap().can(&Limits::memory(64 * MIB)).unwrap_err();
    assert!(error.to_string().contains("no cgroup hierarchy is mounted"), "{error}");
    assert!(error.to_string().contains("mount -t cgroup2"), "{error}");

    let few = machine(&[
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu pids\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "cpu pids\n"),
        ("sys/fs/cgroup/cgroup.procs", ""),
    ]);
    let cgroups = Cgroups::look_under(few.path()).unwrap();
    let error = cgroups.can(&Limits::memory(64 * MIB)).unwrap_err();
    assert!(matches!(error, LimitError::NoController { .. }));
    assert!(error.to_string().contains("\"memory\" controller (found: cpu, pids)"), "{error}");
    cgroups.can(&Limits { cpus: Some(1.0), ..Limits::NONE }).unwrap();
}

#[test]
fn a_read_only_mount_is_a_refusal_with_what_to_do() {
    let root = machine(&[
        ("proc/self/mountinfo", &UNIFIED.replace("rw,nosuid", "ro,nosuid")),
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "memory\n"),
        ("sys/fs/cgroup/cgroup.procs", ""),
    ]);
    let error = Cgroups::look_under(root.path()).unwrap().can(&Limits::memory(64 * MIB)).unwrap_err();
    assert!(error.to_string().contains("systemd-run --user --scope -p Delegate=yes"), "{error}");
    assert!(error.to_string().contains("--privileged"), "{error}");
}

#[test]
fn on_a_hybrid_machine_v1_limits_and_v2_freezes() {
    let root = machine(&[
        (
            "proc/self/mountinfo",
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("proc/self/cgroup", "4:memory:/job\n2:cpu,cpuacct:/job\n0::/job\n"),
        ("sys/fs/cgroup/memory/job/cgroup.procs", ""),
        ("sys/fs/cgroup/cpu,cpuacct/job/cgroup.procs", ""),
        ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
        ("sys/fs/cgroup/unified/job/cgroup.procs", ""),
    ]);
    let cgroups = Cgroups::look_under(root.path()).unwrap();
    let group =
        cgroups.create("engine", &Limits { memory: Some(64 * MIB), cpus: Some(0.5), cpu_set: None }).unwrap();
    let job = |hierarchy: &str| {
        root.path().join("sys/fs/cgroup").join(hierarchy).join("job").join(group.name().to_string())
    };
    assert_eq!(read(&job("memory").join("memory.limit_in_bytes")), (64 * MIB).to_string());
    assert_eq!(read(&job("memory").join("memory.memsw.limit_in_bytes")), (64 * MIB).to_string());
    assert_eq!(read(&job("memory").join("memory.swappiness")), "0");
    assert_eq!(read(&job("cpu,cpuacct").join("cpu.cfs_quota_us")), "50000");
    assert_eq!(group.unified(), Some(job("unified").as_path()));
}

#[test]
fn leftovers_are_told_apart_from_the_living_and_from_strangers() {
    let root = session();
    let app = root.path().join("sys/fs/cgroup/user/app");
    let stat = "42 (tipover) S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 777 3133440 359";
    std::fs::create_dir_all(root.path().join("proc/42")).unwrap();
    std::fs::write(root.path().join("proc/42/stat"), stat).unwrap();
    for name in [
        "tipover-42-777-0",
        "tipover-42-778-1",
        "tipover-43-5-0",
        "tipover-43-5-1-ns99",
        "tipover",
        "postgres",
    ] {
        std::fs::create_dir(app.join(name)).unwrap();
    }
    let cgroups = Cgroups::look_under(root.path()).unwrap();
    let names: Vec<String> = cgroups.leftovers().into_iter().map(|leftover| leftover.name).collect();
    assert_eq!(names, ["tipover-42-778-1", "tipover-43-5-0"]);
    let cleaned = cgroups.clean();
    assert_eq!((cleaned.removed.len(), cleaned.failed.len()), (2, 0));
    assert!(cgroups.leftovers().is_empty());
    assert!(
        app.join("tipover-42-777-0").exists()
            && app.join("tipover-43-5-1-ns99").exists()
            && app.join("postgres").exists()
    );
}

/// A server in a container inside a pod, as somebody else started it: the tightest limit counts, wherever it
/// stands.
#[test]
fn what_limits_another_process_is_found_in_its_group_and_above() {
    let stat = "anon 1000\nfile 9000\nshmem 2000\nkernel 500\n";
    let v2 = machine(&[
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/cgroup", "0::/\n"),
        ("proc/77/cgroup", "0::/pod/container\n"),
        ("proc/78/cgroup", "0::/\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ("sys/fs/cgroup/pod/memory.max", "8589934592\n"),
        ("sys/fs/cgroup/pod/memory.current", "3000000\n"),
        ("sys/fs/cgroup/pod/memory.stat", stat),
        ("sys/fs/cgroup/pod/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/pod/container/memory.max", "2147483648\n"),
        ("sys/fs/cgroup/pod/container/memory.current", "2000000\n"),
        ("sys/fs/cgroup/pod/container/memory.stat", stat),
        ("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n"),
    ]);
    let around = Cgroups::around(77, v2.path()).unwrap();
    let memory = around.memory.unwrap();
    assert_eq!((memory.limit, memory.usage, memory.page_cache), (Some(2 << 30), 2_000_000, 7000));
    assert_eq!(around.cpus, Some(1.5));
    let free = Cgroups::around(78, v2.path()).unwrap();
    assert_eq!((free.memory, free.cpus), (None, None));

    let hierarchy = |number: u32, name: &str| {
        format!("{number} 23 0:{number} / /sys/fs/cgroup/{name} rw shared:4 - cgroup cgroup rw,{name}\n")
    };
    let mounts = hierarchy(31, "memory") + &hierarchy(32, "cpu");
    let v1 = machine(&[
        ("proc/self/mountinfo", &mounts),
        ("proc/self/cgroup", "2:memory:/\n1:cpu:/\n"),
        ("proc/77/cgroup", "2:memory:/db\n1:cpu:/db\n"),
        ("sys/fs/cgroup/memory/db/memory.limit_in_bytes", "536870912\n"),
        ("sys/fs/cgroup/memory/db/memory.usage_in_bytes", "400000\n"),
        ("sys/fs/cgroup/memory/db/memory.stat", "total_cache 9000\ntotal_rss 1000\ntotal_shmem 2000\n"),
        ("sys/fs/cgroup/cpu/db/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu/db/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ]);
    let around = Cgroups::around(77, v1.path()).unwrap();
    assert_eq!(around.memory.and_then(|memory| memory.limit), Some(512 * MIB));
    assert_eq!(around.cpus, Some(0.5));
}
