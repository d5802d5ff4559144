//! Machines that were never built, each with one thing to complain about.

use super::*;
use proptest::prelude::*;
use tipover_core::machine::{KernelSettings, Version};

/// A machine with nothing to complain about.
fn ideal() -> Facts {
    Facts {
        format: FORMAT,
        simulated: false,
        kernel: "6.18.44".into(),
        architecture: "x86_64".into(),
        cpu_model: Some("A Good One".into()),
        cores: 16,
        memory_total: Bytes::gib(64),
        memory_available: Bytes::gib(60),
        swap_total: Bytes(0),
        swap_used: Bytes(0),
        clock_source: Some("tsc".into()),
        huge_pages: Some("madvise".into()),
        governor: Some("performance".into()),
        load_average: [0.1, 0.2, 0.3],
        cgroup_versions: [Version::V2].into(),
        cgroup_controllers: [("memory".to_string(), Version::V2)].into(),
        memory_limit: Ability::Yes,
        fuse: Ability::Yes,
        loop_devices: Ability::Yes,
        root: true,
        folder: Folder {
            path: "/results".into(),
            filesystem: "ext4".into(),
            free: Bytes::gib(100),
            total: Bytes::gib(200),
        },
        virtualisation: None,
        mkfs: ["ext4", "xfs"]
            .map(|name| (name.to_string(), Some(format!("/sbin/mkfs.{name}").into())))
            .into(),
        steal: Some(Ratio(0.0)),
        leftovers: vec![],
        kernel_settings: KernelSettings {
            swappiness: Some(1),
            dirty_background: Some(Bytes::mib(256)),
            dirty_most: Some(Bytes::gib(1)),
            zone_reclaim: Some(0),
            fuse_ring: Some(true),
        },
        device: Some(BlockDevice {
            name: "nvme0n1".into(),
            scheduler: Some("none".into()),
            readahead: Some(Bytes::kib(128)),
            write_cache: Some("write back".into()),
            mount_options: "rw,noatime".into(),
        }),
    }
}

fn device(facts: &mut Facts) -> &mut BlockDevice {
    facts.device.as_mut().unwrap()
}

fn unmet(facts: &Facts, needs: &Needs) -> Vec<String> {
    check(facts, needs).into_iter().filter(|r| !r.met).map(|r| r.id).collect()
}

#[test]
fn the_ideal_machine_is_acquitted_of_everything() {
    let requirements = check(&ideal(), &Needs::default());
    assert!(requirements.iter().all(|r| r.met), "{requirements:#?}");
    assert!(can_run(&requirements));
    for r in &requirements {
        assert!(r.why.ends_with('.') && r.next.ends_with('.'), "{} is not told in sentences", r.id);
        assert!(!r.wanted.contains('{'), "{} lacks a value: {}", r.id, r.wanted);
        assert!([&r.wanted, &r.found].iter().all(|word| !word.is_empty()), "{}", r.id);
    }
}

/// One thing spoiled on a machine that is otherwise ideal, the requirement that must notice, and its
/// severity.
#[test]
fn each_requirement_convicts_its_culprit_and_nobody_else() {
    use Severity::{CannotRun, Degrades, Note};
    fn no() -> Ability {
        Ability::No { why: "because".into() }
    }
    type Spoil = Box<dyn Fn(&mut Facts)>;
    let spoil: Vec<(&str, Severity, Spoil)> = vec![
        ("fuse", Degrades, Box::new(|f| f.fuse = no())),
        ("root", Degrades, Box::new(|f| f.root = false)),
        ("loop", Degrades, Box::new(|f| f.loop_devices = no())),
        ("mkfs-xfs", Degrades, Box::new(|f| drop(f.mkfs.insert("xfs".into(), None)))),
        ("mkfs-ext4", Degrades, Box::new(|f| drop(f.mkfs.remove("ext4")))),
        ("memory-limit", Degrades, Box::new(|f| f.memory_limit = no())),
        ("memory", CannotRun, Box::new(|f| f.memory_available = Bytes::mib(1023))),
        ("disk-space", CannotRun, Box::new(|f| f.folder.free = Bytes::gib(1))),
        ("cores", Degrades, Box::new(|f| f.cores = 1)),
        ("load", Degrades, Box::new(|f| f.load_average[0] = 8.1)),
        ("steal", Degrades, Box::new(|f| f.steal = Some(Ratio(0.01)))),
        ("huge-pages", Degrades, Box::new(|f| f.huge_pages = Some("always".into()))),
        ("governor", Degrades, Box::new(|f| f.governor = Some("powersave".into()))),
        ("clock", Degrades, Box::new(|f| f.clock_source = Some("hpet".into()))),
        ("swap", Degrades, Box::new(|f| f.swap_used = Bytes::gib(1))),
        ("leftovers", Degrades, Box::new(|f| f.leftovers = vec!["tipover-1-2-3".into()])),
        ("fuse-ring", Note, Box::new(|f| f.kernel_settings.fuse_ring = Some(false))),
        ("dirty-pages", Note, Box::new(|f| f.kernel_settings.dirty_background = Some(Bytes::gib(2)))),
        (
            "swappiness",
            Note,
            Box::new(|f| (f.swap_total, f.kernel_settings.swappiness) = (Bytes::gib(1), Some(60))),
        ),
        ("zone-reclaim", Degrades, Box::new(|f| f.kernel_settings.zone_reclaim = Some(1))),
        ("scheduler", Degrades, Box::new(|f| device(f).scheduler = Some("bfq".into()))),
        ("readahead", Note, Box::new(|f| device(f).readahead = Some(Bytes::mib(4)))),
        ("mount-options", Degrades, Box::new(|f| device(f).mount_options += ",nobarrier")),
        ("bare-metal", Note, Box::new(|f| f.virtualisation = Some("virtual machine".into()))),
    ];
    for (id, severity, spoil) in &spoil {
        let mut facts = ideal();
        spoil(&mut facts);
        let requirements = check(&facts, &Needs::default());
        assert_eq!(unmet(&facts, &Needs::default()), [*id]);
        assert_eq!(
            (requirements[0].id.as_str(), requirements[0].severity),
            (*id, *severity),
            "unmet come first"
        );
        assert_eq!(can_run(&requirements), *severity != CannotRun, "{id}");
    }
    let mut known: Vec<String> = check(&ideal(), &Needs::default()).into_iter().map(|r| r.id).collect();
    let mut tried: Vec<&str> = spoil.iter().map(|(id, ..)| *id).collect();
    known.sort();
    tried.sort();
    assert_eq!(known, tried, "every requirement has its culprit");
}

#[test]
fn what_is_not_needed_is_not_asked() {
    let mut facts = ideal();
    let no = Ability::No { why: "because".into() };
    (facts.fuse, facts.loop_devices, facts.memory_limit, facts.root) = (no.clone(), no.clone(), no, false);
    facts.mkfs.clear();
    let bare = Needs { shaped_disk: None, block_mode: None, memory_limit: None, ..Needs::default() };
    assert!(unmet(&facts, &bare).is_empty());
    let strict = Needs { shaped_disk: Some(Severity::CannotRun), ..bare };
    assert!(!can_run(&check(&facts, &strict)));
}

#[test]
fn what_is_not_exposed_is_not_held_against_the_machine() {
    let mut facts = ideal();
    (facts.governor, facts.steal, facts.clock_source, facts.huge_pages) = (None, None, None, None);
    (facts.kernel_settings, facts.device) = (KernelSettings::default(), None);
    assert!(unmet(&facts, &Needs::default()).is_empty());
}

#[test]
fn worst_comes_first() {
    let mut facts = ideal();
    (facts.virtualisation, facts.root, facts.folder.free) = (Some("container".into()), false, Bytes(0));
    assert_eq!(unmet(&facts, &Needs::default()), ["disk-space", "root", "bare-metal"]);
}

#[test]
fn facts_read_back_from_their_json() {
    let mut facts = ideal();
    facts.fuse = Ability::No { why: "/dev/fuse: Permission denied".into() };
    let text = serde_json::to_string(&facts).unwrap();
    assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), facts);
    assert!(text.contains(r#""memory_total_bytes":68719476736"#), "{text}");
    let requirements = check(&facts, &Needs::default());
    let text = serde_json::to_string(&requirements).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Requirement>>(&text).unwrap(), requirements);
}

#[test]
fn this_machine_can_be_looked_at() {
    let facts = super::read(Path::new("not/yet/made"));
    assert!(facts.memory_total >= facts.memory_available && facts.memory_total > Bytes(0));
    assert!(facts.cores >= 1 && facts.folder.total > Bytes(0) && facts.folder.filesystem != "unknown");
    for requirement in check(&facts, &Needs::default()).iter().filter(|r| !r.met) {
        println!(
            "{:?} {}: wanted {}, found {}",
            requirement.severity, requirement.id, requirement.wanted, requirement.found
        );
    }
    println!("{}", serde_json::to_string_pretty(&facts).unwrap());
}

#[test]
fn the_kernels_words_are_understood() {
    assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
    assert!(holds_sys_admin("Name:\tx\nCapEff:\t000001ffffffffff\n"));
    assert!(!holds_sys_admin("CapEff:\t00000000a80425fb\n"), "a container's default");
    assert_eq!(parse_load("4.98 3.34 1.77 3/110 5723\n"), [4.98, 3.34, 1.77]);
    assert_eq!(
        parse_meminfo("MemTotal:       24684092 kB\nHugePages_Total: 0\n")["MemTotal"],
        Bytes::kib(24684092)
    );
    assert_eq!(
        cpu_model("processor : 0\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R)\n").as_deref(),
        Some("Intel(R) Xeon(R)")
    );
    let mounts =
        "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /data rw - xfs b rw\n3 1 8:3 / /data2 rw - tmpfs c rw\n";
    assert_eq!(mount_of(mounts, Path::new("/data/results")).map(|m| m.filesystem), Some("xfs".into()));
    assert_eq!(mount_of(mounts, Path::new("/home")).map(|m| m.filesystem), Some("ext4".into()));
}

#[test]
fn guests_are_told_from_iron() {
    let guest = "processor\t: 0\nflags\t\t: fpu tsc hypervisor avx\n";
    let iron = "processor\t: 0\nflags\t\t: fpu tsc avx\n";
    let arm = "processor\t: 0\nFeatures\t: fp asimd\n";
    let told = |cpu, maker, container| virtualisation(cpu, maker, container);
    assert_eq!(told(guest, "QEMU Standard PC", false).as_deref(), Some("virtual machine (QEMU/KVM)"));
    assert_eq!(told(guest, "", true).as_deref(), Some("container in a virtual machine"));
    assert_eq!(told(iron, "Microsoft Surface", false), None, "also sells iron");
    assert_eq!(told(iron, "", true).as_deref(), Some("container"));
    assert_eq!(told(arm, "Amazon EC2 m7g.large", false).as_deref(), Some("virtual machine (Amazon EC2)"));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[\\PC\n\\[\\]:]*") {
        let _ = (parse_meminfo(&text), parse_load(&text), chosen(&text), cpu_model(&text));
        let _ = virtualisation(&text, &text, false);
        let _ = (mount_of(&text, Path::new("/")), holds_sys_admin(&text));
    }
    #[test]
    fn any_machine_can_be_judged(load: f64, steal: f64, memory: u64, cores: u32) {
        let mut facts = ideal();
        (facts.load_average[0], facts.steal, facts.cores) = (load, Some(Ratio(steal)), cores);
        (facts.memory_available, facts.swap_used) = (Bytes(memory), Bytes(memory));
        let _ = check(&facts, &Needs::default());
    }
}

#[test]
fn a_closed_fuse_has_the_remedy_for_why_it_is_closed() {
    let next = |why: &str| {
        let facts = Facts { fuse: Ability::No { why: why.into() }, ..ideal() };
        check(&facts, &Needs::default()).into_iter().find(|r| r.id == "fuse").unwrap().next
    };
    let opened = |errno| format!("/dev/fuse: {}", std::io::Error::from_raw_os_error(errno));
    for (why, remedy, wrong) in [
        (opened(libc::EACCES), "chmod a+rw /dev/fuse", "modprobe"),
        (opened(libc::ENOENT), "modprobe fuse", "chmod"),
        (opened(libc::EPERM), "--device /dev/fuse", "modprobe"),
        (NO_FUSERMOUNT.into(), "install the package fuse3", "modprobe"),
        (NO_CAPABILITY.into(), "--cap-add SYS_ADMIN", "modprobe"),
    ] {
        let next = next(&why);
        let next = next.to_lowercase();
        assert!(
            next.contains(&remedy.to_lowercase()) && !next.contains(wrong) && next.ends_with('.'),
            "{why}: {next}"
        );
    }
    assert!(next("because").contains("modprobe fuse"), "the words of the table");
}
