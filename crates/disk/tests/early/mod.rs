//! Flushes that take their time, cut off in the middle: what a program may rely on when a flush is answered,
//! and what it may not rely on before.
//!
//! A record is a page with its number. The culprit acknowledges a record when it has issued its flush, its
//! honest twins when that is answered, or when a write is that is itself a flush (`O_DSYNC`, FUA). Only the
//! time that a flush takes tells them apart.

#![allow(clippy::unwrap_used)]

use crate::load::{self, options};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tipover_core::device::{PowerCut, Rule};
use tipover_disk::{Disk, Mode};

const PAGE: u64 = 4096;

/// What makes a flush last until the power goes: a slow medium, a cache that drains, a rule.
const SLOW: [(&str, Option<&str>); 4] = [
    ("flush_latency=20s", None),
    ("cache=64MiB,cache_drain=1KiB/s", None),
    ("", Some("slow:20s,kind=flush")),
    ("", Some("stall,kind=flush")),
];

fn modes() -> impl Iterator<Item = Mode> {
    [Mode::File, Mode::Block].into_iter().filter(|mode| load::obstacle(*mode).is_none())
}

fn mount(mode: Mode, spec: &str) -> Disk {
    let mut options = options(mode, spec);
    options.power_cuts = true;
    Disk::mount(options).unwrap()
}

/// A file that is there, durable and longer than it will be needed, so that only its pages are at risk.
fn prepared(path: &Path) -> File {
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    file.write_all_at(&vec![0xFF; 64 * PAGE as usize], 0).unwrap();
    file.sync_all().unwrap();
    File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
    file
}

fn page(number: u64) -> Vec<u8> {
    let mut page = vec![number as u8; PAGE as usize];
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

fn write(file: &File, number: u64) -> std::io::Result<()> {
    write_at(file, 0, number)
}

/// Behind `start`, from memory that direct I/O takes.
fn write_at(file: &File, start: u64, number: u64) -> std::io::Result<()> {
    let mut memory = vec![0; 2 * PAGE as usize];
    let aligned = memory.as_ptr().align_offset(PAGE as usize);
    let aligned = &mut memory[aligned..aligned + PAGE as usize];
    aligned.copy_from_slice(&page(number));
    file.write_all_at(aligned, start + number % 64 * PAGE)
}

/// Waits until something is under way and stays so: only a flush does.
fn await_flush(disk: &Disk) {
    let in_flight = || disk.counters().unwrap().in_flight > 0;
    for _ in 0..1000 {
        let before = in_flight();
        std::thread::sleep(Duration::from_millis(30));
        if before && in_flight() {
            return;
        }
    }
    panic!("no flush comes");
}

/// A power cut into an fsync, of each kind of slowness: the fsync fails, and nothing of it is there.
pub fn under_way() {
    for mode in modes() {
        for (spec, rule) in SLOW {
            let mut disk = mount(mode, "");
            let path = disk.path().join("file");
            let file = prepared(&path);
            disk.set_spec(&spec.parse().unwrap()).unwrap();
            if let Some(rule) = rule {
                disk.add_fault(&rule.parse::<Rule>().unwrap()).unwrap();
            }
            let what = format!("{mode:?} mode, {spec}{}", rule.unwrap_or_default());
            (0..8).for_each(|n| write(&file, n).unwrap());
            let report = std::thread::scope(|scope| {
                let waits = scope.spawn(|| file.sync_data());
                await_flush(&disk);
                let report = disk.power_cut(&PowerCut::default()).unwrap();
                let error = waits.join().unwrap().expect_err(&what);
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{what}");
                report
            });
            assert!(report.failed_flushes > 0, "{what}: {report:?}");
            assert!(report.lost_blocks >= 8 && report.kept_blocks == 0, "{what}: {report:?}");
            drop(file);
            // A file system flushes as it is mounted.
            disk.set_spec(&"".parse().unwrap()).unwrap();
            disk.clear_faults(None).unwrap();
            disk.power_on().unwrap();
            let content = std::fs::read(&path).unwrap();
            assert!(content == vec![0xFF; 64 * PAGE as usize], "{what}: nothing of it is there");
        }
    }
}

/// When a record is acknowledged.
#[derive(Clone, Copy, PartialEq)]
enum Acknowledges {
    /// When its flush was issued.
    AtIssue,
    /// When its flush was answered.
    Flushed,
    /// When its write was answered, of a file opened with `O_DSYNC`.
    Written,
    /// When its write was answered, of the bare device past the page cache: the kernel sends each with FUA.
    Forced,
}

impl Acknowledges {
    /// Opens what its records go to.
    fn open(self, path: &Path) -> File {
        let flags = match self {
            Acknowledges::AtIssue | Acknowledges::Flushed => 0,
            Acknowledges::Written => libc::O_DSYNC,
            Acknowledges::Forced => libc::O_DSYNC | libc::O_DIRECT,
        };
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
    }
}

/// Where the bare device is written: no file of a fresh file system of 256 MiB is there, and its journal is
/// not.
const BARE: u64 = 200 << 20;

/// Writes records behind `start`, in order, each with a flush of its own, and acknowledges them until the
/// disk fails; calls `cut` soon after the second. Returns the last record that was acknowledged.
fn keep_books(path: &Path, start: u64, acknowledges: Acknowledges, cut: impl FnOnce()) -> u64 {
    let file = acknowledges.open(path);
    let (acknowledged, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (file, acknowledged, failed) = (&file, &acknowledged, &failed);
        let writer = scope.spawn(move || {
            for number in 1.. {
                if write_at(file, start, number).is_err() {
                    break;
                }
                if matches!(acknowledges, Acknowledges::Written | Acknowledges::Forced) {
                    acknowledged.store(number, SeqCst);
                    continue;
                }
                let flush = scope.spawn(|| file.sync_data().is_ok());
                if acknowledges == Acknowledges::AtIssue {
                    acknowledged.store(number, SeqCst);
                }
                // The culprit goes on when the flush is done, too: each record has one of its own.
                if !flush.join().unwrap() {
                    break;
                }
                acknowledged.store(number, SeqCst);
            }
            failed.store(true, SeqCst);
        });
        while acknowledged.load(SeqCst) < 2 && !failed.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        cut();
        writer.join().unwrap();
        acknowledged.load(SeqCst)
    })
}

/// In how many of `cuts` cuts something acknowledged is gone.
fn losses(mode: Mode, acknowledges: Acknowledges, cuts: u64) -> u64 {
    let mut disk = mount(mode, "");
    let mut losses = 0;
    for n in 0..cuts {
        let named = disk.path().join(format!("books-{n}"));
        let bare = acknowledges == Acknowledges::Forced;
        // Each cut has a place of its own there too.
        let start = if bare { BARE + n * 64 * PAGE } else { 0 };
        let path = |disk: &Disk| if bare { disk.block_device().unwrap() } else { named.clone() };
        if bare {
            let mut content = vec![1; 64 * PAGE as usize];
            File::open(path(&disk)).unwrap().read_exact_at(&mut content, start).unwrap();
            assert!(content.iter().all(|byte| *byte == 0), "the file system keeps nothing there");
        } else {
            drop(prepared(&named));
        }
        disk.set_spec(&"flush_latency=400ms".parse().unwrap()).unwrap();
        let before = disk.counters().unwrap();
        let last = keep_books(&path(&disk), start, acknowledges, || {
            std::thread::sleep(Duration::from_millis(n * 37 % 100));
            disk.power_cut(&PowerCut::default()).unwrap();
        });
        assert!(last >= 2);
        let flushes = disk.counters().unwrap().flush.requests - before.flush.requests;
        let honest = acknowledges != Acknowledges::AtIssue;
        assert!(!honest || flushes >= last, "each of {last} acknowledged records had a flush: {flushes}");
        disk.set_spec(&"".parse().unwrap()).unwrap();
        disk.power_on().unwrap();
        let there = |number: u64| {
            let mut content = page(0);
            let file = File::open(path(&disk)).unwrap();
            file.read_exact_at(&mut content, start + number % 64 * PAGE).unwrap();
            content == page(number)
        };
        losses += u64::from(!(1..=last).all(there));
    }
    losses
}

pub fn culprit() {
    for mode in modes() {
        let cuts = crate::campaign::cuts();
        let found = losses(mode, Acknowledges::AtIssue, cuts);
        println!(
            "  acknowledged at issue, {mode:?} mode: {found} of {cuts} cuts lose something acknowledged"
        );
        assert_eq!(found, cuts, "{mode:?} mode: convicted in every cut");
        let honest = |acknowledges| losses(mode, acknowledges, cuts);
        assert_eq!(honest(Acknowledges::Flushed), 0, "{mode:?} mode: its honest twin keeps everything");
        assert_eq!(honest(Acknowledges::Written), 0, "{mode:?} mode: and so does the one with O_DSYNC");
        if mode == Mode::Block {
            assert_eq!(honest(Acknowledges::Forced), 0, "and the one that writes to the device with FUA");
        }
    }
}

/// A block that is written again while a flush is under way: what the flush covered is there once it is
/// answered, and what came later is not. Through a mapping, because a file is locked while it is flushed.
pub fn overtaken() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let mut disk = mount(Mode::File, "");
    let path = disk.path().join("file");
    let file = prepared(&path);
    let (protection, size) = (ProtFlags::READ | ProtFlags::WRITE, PAGE as usize);
    // SAFETY: a fresh mapping of an open file that is longer, unmapped below.
    let map = unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, &file, 0) }.unwrap();
    let put = |number: u64| {
        // SAFETY: within the mapping, which is this thread's alone.
        unsafe { map.cast::<u8>().copy_from_nonoverlapping(page(number).as_ptr(), size) };
        crate::write_out(&file);
    };
    put(1);
    let number = disk.add_fault(&"stall,kind=flush".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| file.sync_data());
        await_flush(&disk);
        let before = disk.counters().unwrap().write.requests;
        put(2);
        assert!(disk.counters().unwrap().write.requests > before, "it reached the disk");
        disk.clear_faults(Some(number)).unwrap();
        flushed.join().unwrap().unwrap();
    });
    let report = disk.power_cut(&PowerCut::default()).unwrap();
    // SAFETY: the mapping from above, which nobody uses any more.
    unsafe { munmap(map, size) }.unwrap();
    drop(file);
    disk.power_on().unwrap();
    assert_eq!((report.blocks_at_risk(), report.lost_blocks), (1, 1));
    assert!(std::fs::read(&path).unwrap()[..size] == page(1), "what the flush covered");
}
