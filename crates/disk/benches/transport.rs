//! How exact the shaped disk is, and what its transport carries: ratios against theory and against the plain
//! backing, measured in this one run. `--test` runs it tiny.

#[path = "../tests/load/mod.rs"]
mod load;

use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request,
};
use load::{mount, obstacle, random_reads};
use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use tipover_core::device::{Kind, Spec};
use tipover_core::units::Bytes;
use tipover_disk::Mode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "disk-daemon") {
        return tipover_disk::serve();
    }
    let tiny = arguments.iter().any(|a| a == "--test");
    let time = Duration::from_millis(if tiny { 100 } else { 2000 });
    if obstacle(Mode::File).is_none() {
        floor(time);
    }
    for mode in [Mode::Block, Mode::File] {
        if let Some(obstacle) = obstacle(mode) {
            println!("SKIPPED: {mode:?} mode: {obstacle}");
            continue;
        }
        unshaped(mode, time);
        traced(mode, time / 4, if tiny { 2 } else { 10 });
        accounted(mode, time / 4, if tiny { 2 } else { 10 });
        shaped(mode, time);
    }
    ExitCode::SUCCESS
}

/// The file that is read: block mode's device, or a file on file mode's folder.
fn target(disk: &tipover_disk::Disk) -> std::path::PathBuf {
    disk.block_device().unwrap_or_else(|| {
        let file = disk.path().join("file");
        std::fs::write(&file, vec![1; 64 << 20]).expect("writing the file to be read");
        file
    })
}

/// A file of zeros behind FUSE and nothing else: what the way to a daemon and back costs by itself.
struct Nothing {
    size: u64,
    zeros: Vec<u8>,
}

impl Nothing {
    const FILE: INodeNo = INodeNo(2);

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let file = inode == Nothing::FILE;
        FileAttr {
            ino: inode,
            size: if file { self.size } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Nothing {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it direct reads of one file queue up behind each other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&Duration::from_secs(3600), &self.attributes(Nothing::FILE), Generation(0));
    }
    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(3600), &self.attributes(inode));
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&self.zeros[..(size as usize).min(self.zeros.len())]);
    }
}

/// The floor: a daemon that does nothing, with as many threads as ours has, ordinary priority and ours.
fn floor(time: Duration) {
    println!("a FUSE daemon that does nothing, 4 KiB random direct reads");
    let folder = tempfile::tempdir().expect("making a mount point");
    let mut config = Config::default();
    config.n_threads = Some(2);
    config.clone_fd = true;
    let nothing = Nothing { size: 64 << 20, zeros: vec![0; 1 << 20] };
    let session = std::thread::scope(|scope| {
        let start = || {
            // As the disk's own daemon does, so that the difference is what it does and not when it runs.
            load::run_at(9);
            fuser::spawn_mount(nothing, folder.path(), &config)
        };
        scope.spawn(start).join().expect("it does not panic")
    });
    let session = match session {
        Ok(session) => session,
        Err(e) => return println!("  SKIPPED: {e}"),
    };
    for clients in [1, 32] {
        let carried = random_reads(&folder.path().join("file"), clients, time);
        let median = carried.median.as_secs_f64() * 1e6;
        println!("  depth {clients:>2}: {:>8.0}/s, median {median:>5.1} us", carried.iops);
    }
    if let Err(e) = session.umount_and_join() {
        println!("  unmounting: {e}");
    }
}

fn unshaped(mode: Mode, time: Duration) {
    let disk = mount(mode, "");
    let file = target(&disk);
    let plain = std::path::Path::new("/dev/shm").join(format!("tipover-transport-{}", std::process::id()));
    std::fs::write(&plain, vec![1; 64 << 20]).expect("writing the file to compare with");
    println!("{mode:?} mode, unshaped, 4 KiB random direct reads (ratio: to the same reads of plain memory)");
    for clients in [1, 32] {
        let cpu = disk.daemon_cpu().expect("asking the daemon");
        let carried = random_reads(&file, clients, time);
        let cpu = disk.daemon_cpu().expect("asking the daemon") - cpu;
        let direct = random_reads(&plain, clients, time);
        println!(
            "  depth {clients:>2}: {:>8.0}/s, median {:>5.1} us, daemon {:.2} cores; ratio {:.3}",
            carried.iops,
            carried.median.as_secs_f64() * 1e6,
            cpu.as_secs_f64() / time.as_secs_f64(),
            carried.iops / direct.iops,
        );
    }
    let _ = std::fs::remove_file(plain);
}

/// Everything that the device completed so far.
fn requests(disk: &tipover_disk::Disk) -> u64 {
    let counters = disk.counters().expect("asking the daemon");
    [counters.read, counters.write, counters.flush, counters.discard].iter().map(|t| t.requests).sum()
}

/// What a trace costs: the same reads with and without one, in turns, because the machine changes as well.
fn traced(mode: Mode, time: Duration, rounds: usize) {
    let disk = mount(mode, "");
    let file = target(&disk);
    let folder = tempfile::tempdir().expect("making a folder for traces");
    println!(
        "{mode:?} mode, unshaped, traced (ratio: to the same reads without a trace, median of {rounds} rounds)"
    );
    for clients in [1, 32] {
        let (mut ratios, mut records, mut dropped, mut bytes) = (Vec::new(), 0, 0, 0);
        for round in 0..rounds {
            let plain = || random_reads(&file, clients, time).iops;
            let with_trace = || {
                let path = folder.path().join(format!("{clients}-{round}"));
                let before = requests(&disk);
                disk.trace_start(&path).expect("starting the trace");
                let load = random_reads(&file, clients, time);
                let summary = disk.trace_stop().expect("stopping the trace");
                let seen = requests(&disk) - before;
                assert_eq!(summary.records + summary.dropped, seen, "every request is written or counted");
                let read = tipover_disk::Trace::open(&path).expect("reading the trace").count() as u64;
                // The file system may have had a request of its own.
                assert!(read == summary.records && seen >= load.reads, "{read}, {seen}, {}", load.reads);
                let _ = std::fs::remove_file(&path);
                (load.iops, summary)
            };
            // Each goes first every other time.
            let ((traced, summary), plain) = if round % 2 == 0 {
                let traced = with_trace();
                (traced, plain())
            } else {
                let plain = plain();
                (with_trace(), plain)
            };
            ratios.push(traced / plain);
            (records, dropped) = (records + summary.records, dropped + summary.dropped);
            bytes += summary.bytes;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        println!(
            "  depth {clients:>2}: ratio {:.3} (from {:.3} to {:.3}), {records} records of {:.1} bytes, {dropped} dropped",
            ratios[rounds / 2],
            ratios[0],
            ratios[rounds - 1],
            bytes as f64 / records.max(1) as f64,
        );
    }
}

/// What keeping account of unflushed blocks costs: the same random direct writes on a disk that does and one
/// that does not, in turns, with a flush every 64 writes.
fn accounted(mode: Mode, time: Duration, rounds: usize) {
    let disks = [false, true].map(|power_cuts| {
        let mut options = load::options(mode, "");
        options.power_cuts = power_cuts;
        let disk = tipover_disk::Disk::mount(options).expect("mounting");
        let file = target(&disk);
        (disk, file)
    });
    for clients in [1, 16] {
        let mut ratios: Vec<f64> = (0..rounds)
            .map(|round| {
                let rate = |which: usize| load::random_writes(&disks[which].1, clients, time);
                let (plain, kept) = if round % 2 == 0 {
                    let plain = rate(0);
                    (plain, rate(1))
                } else {
                    let kept = rate(1);
                    (rate(0), kept)
                };
                kept / plain
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        println!(
            "{mode:?} mode, writes with account of what is flushed, depth {clients:>2}: ratio {:.3} (from {:.3} to {:.3})",
            ratios[rounds / 2],
            ratios[0],
            ratios[rounds - 1]
        );
    }
}

fn shaped(mode: Mode, time: Duration) {
    let disk = mount(mode, "");
    let file = target(&disk);
    println!("{mode:?} mode, shaped (got / theory)");
    for text in [
        "iops=5000",
        "iops=600,latency=7ms",
        "iops=150,latency=7ms",
        "iops=10000,latency=200us",
        "latency=1ms,parallel=4",
    ] {
        let spec: Spec = text.parse().expect("written above");
        let calibration = match disk.calibrate(&spec) {
            Ok(calibration) => calibration,
            Err(e) => {
                println!("  {text}: {e}");
                continue;
            }
        };
        for clients in [1, 16] {
            let theory = spec.ceiling(Kind::Read, Bytes::kib(4), clients).expect("limited").0;
            let before = disk.counters().expect("asking the daemon");
            let load = random_reads(&file, u64::from(clients), time);
            let rates =
                disk.counters().expect("asking the daemon").rates_since(&before).expect("time passed");
            println!(
                "  {text:<26} clients {clients:>2}: {:>8.1}/s = {:.4}, mean {:>7.3} ms, await {:>7.3} ms, queue {:>5.2}, \
                 compensation {:.0} us",
                load.iops,
                load.iops / theory,
                load.mean.as_secs_f64() * 1e3,
                rates.read_await.unwrap_or_default().as_secs_f64() * 1e3,
                rates.queue,
                calibration.compensation.as_secs_f64() * 1e6,
            );
        }
    }
}
