//! Power cuts and faults on real mounts: what was flushed is there, what was not may be gone, and nothing
//! else ever is.
//!
//! `TIPOVER_CUTS=30` makes the campaigns long; by default each has a few cuts, so that they stay short.

// The harness is our own, so clippy does not see that these are tests.
#![allow(clippy::unwrap_used)]

mod campaign;
mod early;
mod load;

use load::options;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};
use tipover_core::device::{PowerCut, Spec};
use tipover_disk::{Disk, Mode};

const TESTS: [load::Test; 20] = [
    ("file_mode_has_what_databases_need", Some(Mode::File), file_system),
    ("a_cut_at_every_step_of_file_mode_keeps_what_was_flushed", Some(Mode::File), sweep_files),
    ("a_cut_at_every_step_of_block_mode_keeps_what_was_flushed", Some(Mode::Block), sweep_blocks),
    ("names_come_back_in_order", Some(Mode::File), names),
    ("without_power_everything_fails_and_with_it_works_again", Some(Mode::File), dark),
    ("the_end_of_an_old_mount_leaves_the_new_one_alone", Some(Mode::File), outlived),
    ("faults_do_what_they_say_and_are_counted", Some(Mode::File), faults),
    ("a_flush_under_way_at_a_cut_fails_and_keeps_nothing", Some(Mode::File), early::under_way),
    ("what_acknowledges_at_issue_is_convicted_in_every_cut", Some(Mode::File), early::culprit),
    ("a_flush_that_was_overtaken_keeps_what_it_covered", Some(Mode::File), early::overtaken),
    ("zeroing_is_a_write_and_undone", Some(Mode::Block), zeroing),
    ("a_truncation_survives_a_cut_or_not", Some(Mode::File), truncation),
    ("names_that_time_commits_leave_the_attic", Some(Mode::File), attic),
    ("a_stall_ends_when_it_is_cleared", Some(Mode::File), stall),
    ("faults_reach_a_block_device", Some(Mode::Block), block_faults),
    ("sqlite_keeps_what_it_committed", Some(Mode::File), campaign::sqlite_safe),
    ("sqlite_without_flushes_loses_it", Some(Mode::File), campaign::sqlite_unsafe),
    ("lmdb_keeps_what_it_committed_and_without_flushes_loses_it", Some(Mode::File), campaign::lmdb),
    ("postgresql_keeps_what_it_committed", Some(Mode::Block), campaign::postgres_safe),
    ("postgresql_without_flushes_loses_it", Some(Mode::File), campaign::postgres_unsafe),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "disk-daemon") {
        return tipover_disk::serve();
    }
    load::run(&TESTS, &arguments)
}

fn mount(mode: Mode) -> Disk {
    let mut options = options(mode, "");
    options.power_cuts = true;
    Disk::mount(options).unwrap()
}

const PAGE: u64 = 4096;

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Writes, at random, pages that carry their number and a version, and flushes now and then.
struct Writer {
    file: File,
    dice: Dice,
    version: u64,
    /// Of each page: the version flushed last, and the one written last.
    pages: Vec<(u64, u64)>,
}

impl Writer {
    fn new(path: &Path, seed: u64, pages: usize) -> Writer {
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).unwrap();
        Writer { file, dice: Dice(seed), version: 0, pages: vec![(0, 0); pages] }
    }
    fn image(page: u64, version: u64) -> Vec<u8> {
        let mut image = vec![(version % 251) as u8; PAGE as usize];
        // In every sector, so that a torn one is noticed.
        for sector in image.chunks_mut(512) {
            sector[..8].copy_from_slice(&page.to_le_bytes());
            sector[8..16].copy_from_slice(&version.to_le_bytes());
        }
        image
    }
    fn step(&mut self) {
        let page = self.dice.below(self.pages.len() as u64);
        if self.dice.below(5) == 0 {
            self.file.sync_data().unwrap();
            self.pages.iter_mut().for_each(|(flushed, written)| *flushed = *written);
        } else {
            self.version += 1;
            self.file.write_all_at(&Writer::image(page, self.version), page * PAGE).unwrap();
            self.pages[page as usize].1 = self.version;
        }
    }
    /// What is on the disk now must be what was flushed, or newer and written; sector by sector if torn.
    /// Returns how many pages lost something.
    fn check(&self, path: &Path, whole_pages: bool, when: &str) -> u64 {
        let content = std::fs::read(path).unwrap_or_default();
        let mut lost = 0;
        for (page, (flushed, written)) in self.pages.iter().enumerate() {
            let mut got = vec![0; PAGE as usize];
            let from = (page * PAGE as usize).min(content.len());
            let to = (from + PAGE as usize).min(content.len());
            got[..to - from].copy_from_slice(&content[from..to]);
            let mut versions = Vec::new();
            for sector in got.chunks(512) {
                let version = u64::from_le_bytes(sector[8..16].try_into().unwrap());
                assert!(
                    version >= *flushed && version <= *written,
                    "{when}: page {page} has version {version}, flushed {flushed}, written {written}"
                );
                let empty = version == 0 && sector.iter().all(|byte| *byte == 0);
                assert!(
                    empty || sector == &Writer::image(page as u64, version)[..512],
                    "{when}: page {page} has other bytes"
                );
                versions.push(version);
            }
            versions.dedup();
            assert!(versions.len() == 1 || !whole_pages, "{when}: page {page} is torn: {versions:?}");
            lost += u64::from(versions != [*written]);
        }
        lost
    }
}

fn sweep(mode: Mode, cuts: u64) {
    let mut disk = mount(mode);
    let (mut lost, mut torn) = (0, 0);
    for cut_at in 0..cuts {
        let cut = match cut_at % 3 {
            0 => "survive=0%".to_string(),
            1 => format!("survive=50%,seed={cut_at}"),
            _ => format!("survive=60%,torn=512B,seed={cut_at}"),
        };
        let path = disk.path().join(format!("file-{cut_at}"));
        let mut writer = Writer::new(&path, cut_at, 12);
        // The name itself must be durable, too.
        writer.file.sync_all().unwrap();
        (0..cut_at).for_each(|_| writer.step());
        // Half of the time what is still in the page cache reaches the device, without a flush.
        if cut_at % 2 == 0 {
            write_out(&writer.file);
        }
        let report = disk.power_cut(&cut.parse().unwrap()).unwrap();
        disk.power_on().unwrap();
        lost += writer.check(&path, cut_at % 3 != 2, &format!("cut after {cut_at} steps ({cut})"));
        torn += report.torn_blocks;
    }
    assert!(lost > 0, "some of what was not flushed is lost");
    println!("  {cuts} cuts: {lost} unflushed pages lost, {torn} blocks torn, nothing flushed lost");
}

/// Hands dirty pages to the device, without a flush.
fn write_out(file: &File) {
    // SAFETY: a plain system call on an open descriptor.
    unsafe {
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        libc::sync_file_range(file.as_raw_fd(), 0, 0, all);
    }
}

fn sweep_files() {
    sweep(Mode::File, 10 * campaign::cuts());
}

fn sweep_blocks() {
    sweep(Mode::Block, 4 * campaign::cuts());
}

fn names() {
    let mut disk = mount(Mode::File);
    let at = |name: &str| disk.path().join(name);
    let put = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
    let sync = |name: &str| File::open(at(name)).unwrap().sync_all().unwrap();
    put("old", "old");
    put("doomed", "doomed");
    put("kept", "kept");
    std::fs::create_dir(at("folder")).unwrap();
    std::fs::hard_link(at("kept"), at("kept-too")).unwrap();
    for name in ["old", "doomed", "kept"] {
        sync(name);
    }
    // None of these is flushed.
    put("new", "new");
    std::fs::rename(at("new"), at("old")).unwrap();
    std::fs::remove_file(at("doomed")).unwrap();
    std::fs::rename(at("kept"), at("folder/moved")).unwrap();
    std::fs::create_dir(at("folder/inner")).unwrap();
    std::fs::remove_file(at("kept-too")).unwrap();
    std::os::unix::fs::symlink("old", at("link")).unwrap();
    let report = disk.power_cut(&PowerCut::default()).unwrap();
    disk.power_on().unwrap();
    assert_eq!((report.lost_names, report.kept_names), (7, 0));
    let read = |name: &str| std::fs::read_to_string(disk.path().join(name)).unwrap();
    assert_eq!(
        [read("old"), read("doomed"), read("kept"), read("kept-too")],
        ["old", "doomed", "kept", "kept"]
    );
    let mut left: Vec<_> = std::fs::read_dir(disk.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["doomed", "folder", "kept", "kept-too", "old"]);
    assert_eq!(std::fs::read_dir(disk.path().join("folder")).unwrap().count(), 0);

    // A rename that was flushed stays, and takes with it only what was flushed.
    let at = |name: &str| disk.path().join(name);
    std::fs::write(at("next"), "next").unwrap();
    sync_folder(disk.path());
    std::fs::rename(at("next"), at("old")).unwrap();
    sync_folder(disk.path());
    disk.power_cut(&PowerCut::default()).unwrap();
    disk.power_on().unwrap();
    assert_eq!(std::fs::read_to_string(disk.path().join("old")).unwrap(), "", "its bytes were never flushed");

    // Survivors are the oldest operations.
    for n in 0..40 {
        std::fs::create_dir(disk.path().join(format!("many-{n:02}"))).unwrap();
    }
    let report = disk.power_cut(&"survive=90%,seed=5".parse().unwrap()).unwrap();
    disk.power_on().unwrap();
    let many = (0..40).filter(|n| disk.path().join(format!("many-{n:02}")).exists()).collect::<Vec<_>>();
    assert_eq!(many, (0..report.kept_names as i32).collect::<Vec<_>>());
}

fn sync_folder(folder: &Path) {
    File::open(folder).unwrap().sync_all().unwrap();
}

/// Extended attributes, links, locks, shared mappings, truncation, direct I/O, statfs; whether or not account
/// is kept of what is flushed.
fn file_system() {
    for power_cuts in [false, true] {
        let mut options = options(Mode::File, "");
        options.power_cuts = power_cuts;
        let disk = Disk::mount(options).unwrap();
        let path = disk.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        rustix::fs::setxattr(&path, "user.tipover", b"yes", rustix::fs::XattrFlags::empty()).unwrap();
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&path, "user.tipover", &mut value).unwrap();
        assert_eq!(&value[..length], b"yes");
        let mut names = [0; 64];
        let length = rustix::fs::listxattr(&path, &mut names).unwrap();
        assert!(String::from_utf8_lossy(&names[..length]).contains("user.tipover"));
        rustix::fs::removexattr(&path, "user.tipover").unwrap();
        assert!(rustix::fs::getxattr(&path, "user.tipover", &mut value).is_err());

        let other = disk.path().join("other");
        std::fs::hard_link(&path, &other).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().nlink(), 2);
        let (one, two) = (File::open(&path).unwrap(), File::open(&other).unwrap());
        one.try_lock().unwrap();
        assert!(two.try_lock().is_err(), "one file, one lock");

        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: a fresh mapping of an open file, used within its length and unmapped below.
        unsafe {
            use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap(std::ptr::null_mut(), 8192, protection, MapFlags::SHARED, &file, 0).unwrap();
            map.cast::<u8>().add(5000).write(77);
            msync(map, 8192, MsyncFlags::SYNC).unwrap();
            munmap(map, 8192).unwrap();
        }
        disk.drop_caches().unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 5000).unwrap();
        assert_eq!(byte, [77]);

        file.set_len(3000).unwrap();
        file.set_len(6000).unwrap();
        let content = std::fs::read(&other).unwrap();
        assert!(content[..3000].iter().all(|b| *b == 1) && content[3000..] == [0; 3000]);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 50_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 50_000);
        drop(OpenOptions::new().write(true).truncate(true).open(&other).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        let load = {
            std::fs::write(&path, vec![3; 1 << 20]).unwrap();
            load::random_reads(&path, 2, Duration::from_millis(30))
        };
        assert!(load.reads > 0, "direct reads");
        assert!(rustix::fs::statvfs(disk.path()).unwrap().f_blocks > 0);
        let set_id = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(&path, set_id).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o4755);
        std::fs::remove_file(&path).unwrap();
        assert!(!path.exists() && other.exists());
        // Open and unlinked at once, as temporary files are.
        std::fs::remove_file(&other).unwrap();
        file.write_all_at(b"still here", 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
    }
}

fn dark() {
    let mut disk = mount(Mode::File);
    let path = disk.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    assert!(disk.power_on().unwrap_err().to_string().contains("it is on"));
    disk.power_cut(&PowerCut::default()).unwrap();
    assert!(disk.power_cut(&PowerCut::default()).unwrap_err().to_string().contains("off already"));
    file.write_at(b"y", 0).ok();
    assert!(file.sync_all().is_err() && File::create(disk.path().join("other")).is_err());
    disk.power_on().unwrap();
    assert!(!disk.path().join("file").exists(), "it was never flushed");
    std::fs::write(disk.path().join("file"), "z").unwrap();
    assert!(file.sync_all().is_err(), "what was open before stays dead");
    drop(disk);
    let plain = load::mount(Mode::File, "");
    let error = plain.power_cut(&PowerCut::default()).unwrap_err().to_string();
    assert!(error.contains("mount it with power cuts"), "{error}");
}

/// How many FUSE sessions the daemon has.
fn sessions(disk: &Disk) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", disk.daemon_pid())).unwrap();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).filter(|name| name.trim() == "fuser-0").count()
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program in a mount namespace of its own, which holds all mounts there are; ended when dropped.
struct Holder(std::process::Child);

impl Holder {
    fn start() -> std::io::Result<Holder> {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sleep", "1000"]);
        let holder = Holder(unshare.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let own = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let number = holder.0.id().to_string();
        wait_until("a mount namespace", || own(&number).is_some_and(|its| Some(its) != own("self")));
        wait_until("its program", || {
            std::fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.trim() == "sleep")
        });
        Ok(holder)
    }
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a process, as `/proc` calls it, has something mounted there.
fn is_mounted(process: &str, path: &Path) -> bool {
    let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap();
    let path = path.display().to_string();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}

/// A mount that a namespace of its own holds outlives its unmount here, and ends when that does.
fn outlived() {
    let mut disk = mount(Mode::File);
    let mut holder = match Holder::start() {
        Ok(holder) => holder,
        Err(e) => return println!("SKIPPED: unshare does not start: {e}"),
    };
    disk.power_cut(&PowerCut::default()).unwrap();
    disk.power_on().unwrap();
    assert!(is_mounted(&holder.0.id().to_string(), disk.path()), "the old mount is held");
    // A thread has its name, and is seen, a moment after it was started.
    wait_until("a session for each mount", || sessions(&disk) == 2);
    std::fs::write(disk.path().join("new"), "x").unwrap();
    holder.end();
    wait_until("the old session's end", || sessions(&disk) == 1);
    assert!(is_mounted("self", disk.path()), "the new mount is gone");
    assert_eq!(std::fs::read_to_string(disk.path().join("new")).unwrap(), "x");
}

fn faults() {
    let disk = mount(Mode::File);
    let write = |name: &str| {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(disk.path().join(name));
        let file = file.unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        (file.sync_all(), file)
    };
    let fresh = |name: &str| {
        disk.drop_caches().unwrap();
        std::fs::read(disk.path().join(name))
    };
    let arm = |rule: &str| disk.add_fault(&rule.parse().unwrap()).unwrap();
    let fired = || disk.faults().unwrap().iter().map(|armed| armed.fired).collect::<Vec<_>>();
    write("a").0.unwrap();
    arm("eio-sticky,kind=read,path=a,nth=1");
    assert_eq!(fresh("a").unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(fresh("a").unwrap_err().raw_os_error(), Some(libc::EIO), "it stays bad");
    write("b").0.unwrap();
    assert!(fresh("b").is_ok(), "another file is none of its business");
    assert!(fired()[0] >= 2);
    disk.clear_faults(None).unwrap();
    assert_eq!(fresh("a").unwrap(), [7; 8192]);

    arm("enospc,path=c");
    assert_eq!(write("c").0.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    disk.clear_faults(None).unwrap();
    arm("eio,kind=flush");
    assert_eq!(write("d").0.unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.clear_faults(None).unwrap();

    arm("corrupt,path=a,seed=3");
    let got = fresh("a").unwrap();
    let wrong: u32 = got.iter().map(|byte| (byte ^ 7).count_ones()).sum();
    assert_eq!(u64::from(wrong), fired()[0], "one bit in each request");
    disk.clear_faults(None).unwrap();

    arm("lost,path=e");
    write("e").0.unwrap();
    assert_eq!(fired(), [1]);
    disk.clear_faults(None).unwrap();
    assert_ne!(fresh("e").unwrap(), [7; 8192], "acknowledged, and never written");
    arm("torn:512B,path=f,seed=9");
    write("f").0.unwrap();
    disk.clear_faults(None).unwrap();
    let got = fresh("f").unwrap();
    let new = got.iter().take_while(|byte| **byte == 7).count();
    assert!(new < 8192 && new % 512 == 0 && got[new..].iter().all(|byte| *byte == 0), "{new}");

    arm("slow:120ms,kind=flush");
    let begin = Instant::now();
    write("g").0.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(120));
    disk.clear_faults(None).unwrap();

    let slow = Duration::from_millis(500);
    disk.set_spec(&Spec { flush_latency: slow, ..Spec::default() }).unwrap();
    let flush = |name: &str| {
        let begin = Instant::now();
        write(name).0.unwrap();
        begin.elapsed()
    };
    assert!(flush("h") >= slow);
    arm("lying-sync");
    // Once is enough: others may hold the processors for a while.
    assert!((0..10).any(|_| flush("h") < slow / 2), "a cache that lies does not wait for the medium");
}

fn stall() {
    let disk = mount(Mode::File);
    let path = disk.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let number = disk.add_fault(&"stall,kind=flush".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| File::open(&path).unwrap().sync_all());
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waits.is_finished(), "it is stalled");
        assert_eq!(disk.faults().unwrap()[0].fired, 1);
        assert_eq!(disk.clear_faults(Some(number)).unwrap(), 1);
        waits.join().unwrap().unwrap();
    });
    // Writing at close, too.
    let number = disk.add_fault(&"stall,kind=write".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| std::fs::write(disk.path().join("other"), vec![1; 1 << 20]));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(disk.clear_faults(Some(number)).unwrap(), 1);
        waits.join().unwrap().unwrap();
    });
    // A power cut, or an unmount, releases what is stalled as well.
    disk.add_fault(&"stall,kind=flush".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| File::open(&path).unwrap().sync_all());
        std::thread::sleep(Duration::from_millis(100));
        let report = disk.power_cut(&PowerCut::default()).unwrap();
        assert_eq!(report.failed_flushes, 1);
        assert_eq!(waits.join().unwrap().unwrap_err().raw_os_error(), Some(libc::EIO));
    });
}

/// Zeros that a file system asks for by fallocate, in both ways that the loop driver passes on, are undone as
/// any write, and fail as any write; they take no memory where there was nothing.
fn zeroing() {
    const AT: u64 = 64 << 20;
    let range = |disk: &Disk| {
        let options = std::fs::OpenOptions::new().read(true).write(true).open(disk.block_device().unwrap());
        options.unwrap()
    };
    let read = |disk: &Disk| {
        let mut bytes = vec![0xEE; 64 << 10];
        disk.drop_caches().unwrap();
        range(disk).read_exact_at(&mut bytes, AT).unwrap();
        bytes
    };
    use rustix::fs::FallocateFlags as Flags;
    for how in [Flags::PUNCH_HOLE | Flags::KEEP_SIZE, Flags::ZERO_RANGE | Flags::KEEP_SIZE] {
        let mut disk = mount(Mode::Block);
        let device = range(&disk);
        device.write_all_at(&[7; 64 << 10], AT).unwrap();
        device.sync_all().unwrap();
        let zero = || rustix::fs::fallocate(&device, how, AT, 64 << 10);
        disk.add_fault(&"eio,kind=write".parse().unwrap()).unwrap();
        assert_eq!(zero(), Err(rustix::io::Errno::IO), "{how:?}");
        disk.clear_faults(None).unwrap();
        assert_eq!(read(&disk), [7; 64 << 10]);
        zero().unwrap();
        // Without dropping caches, which flushes.
        let mut bytes = vec![0xEE; 64 << 10];
        device.read_exact_at(&mut bytes, AT).unwrap();
        assert_eq!(bytes, [0; 64 << 10], "{how:?}");
        drop(device);
        let report = disk.power_cut(&PowerCut::default()).unwrap();
        disk.power_on().unwrap();
        assert!(report.lost_blocks >= 16, "{how:?}: {report:?}");
        assert_eq!(read(&disk), [7; 64 << 10], "{how:?}: it comes back");
    }
}

/// Cut off and not flushed: the old file or the new one, and never zeros of the old length.
fn truncation() {
    let mut disk = mount(Mode::File);
    let path = disk.path().join("file");
    let (mut old, mut new) = (0, 0);
    for seed in 0..16 {
        std::fs::write(&path, [1; 60_000]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        disk.power_cut(&format!("survive=50%,seed={seed}").parse().unwrap()).unwrap();
        disk.power_on().unwrap();
        match std::fs::read(&path).unwrap() {
            content if content == [1; 60_000] => old += 1,
            content if content == [1; 10_000] => new += 1,
            other => panic!("{} bytes, neither old nor new", other.len()),
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// The hidden folder keeps what a cut would bring back, and no more.
fn attic() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(Mode::File, "flush_latency=1ms");
    options.power_cuts = true;
    options.transport = tipover_disk::Transport::Classic;
    options.backing = tipover_disk::BackingChoice::Directory(folder.path().into());
    let disk = Disk::mount(options).unwrap();
    let kept = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let attic = entries.into_iter().find(|path| path.to_string_lossy().contains(".tipover-attic-"));
        std::fs::read_dir(attic.unwrap()).unwrap().count()
    };
    for n in 0..20 {
        std::fs::write(disk.path().join("file"), [1; 10_000]).unwrap();
        std::fs::remove_file(disk.path().join("file")).unwrap();
        assert_eq!(kept(), n + 1);
    }
    sync_folder(disk.path());
    // A flush that had to wait has no time for it; whoever comes next has.
    std::fs::write(disk.path().join("file"), "x").unwrap();
    assert_eq!(kept(), 0);
}

fn block_faults() {
    let disk = mount(Mode::Block);
    let device = disk.block_device().unwrap();
    disk.add_fault(&"eio-sticky,kind=read,range=64MiB-65MiB".parse().unwrap()).unwrap();
    let device = File::open(device).unwrap();
    let mut page = [0; 4096];
    assert!(device.read_at(&mut page, 10 << 20).is_ok());
    assert_eq!(device.read_at(&mut page, 64 << 20).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(disk.faults().unwrap()[0].fired > 0);
}
