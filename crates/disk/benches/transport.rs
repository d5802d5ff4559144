//! How exact the shaped disk is, and what its transport carries: ratios against theory and against the plain
//! backing, measured in this one run. `--test` runs it tiny; `unshaped`, `traced`, `accounted` and `shaped`
//! choose parts.

#[path = "../tests/load/mod.rs"]
mod load;

use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request,
};
use load::{Client, obstacle, random_reads, random_reads_by};
use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, UNIX_EPOCH};
use tipover_core::device::{Kind, Spec};
use tipover_core::measure::Threshold;
use tipover_core::units::Bytes;
use tipover_disk::{Disk, Mode, Transport};

/// Rounds of a tiny run.
const FEW: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "disk-daemon") {
        return tipover_disk::serve();
    }
    let tiny = arguments.iter().any(|a| a == "--test");
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    let wanted = |part: &str| named.is_empty() || named.contains(&part);
    let time = Duration::from_millis(if tiny { 100 } else { 2000 });
    let (share, rounds) = (time / 4, if tiny { FEW } else { 10 });
    // Small differences are told by many short turns, not by few long ones.
    let (turn, turns) = (time / 20, if tiny { FEW } else { 24 });
    for mode in [Mode::Block, Mode::File] {
        if let Some(obstacle) = obstacle(mode) {
            println!("SKIPPED: {mode:?} mode: {obstacle}");
            continue;
        }
        if wanted("unshaped") {
            unshaped(mode, share, rounds);
        }
        if wanted("traced") {
            traced(mode, turn, turns);
        }
        if wanted("accounted") {
            accounted(mode, turn, turns);
        }
        if wanted("shaped") {
            shaped(mode, share, rounds);
        }
    }
    ExitCode::SUCCESS
}

/// The file that is read: block mode's device, or a file on file mode's folder.
fn target(disk: &Disk) -> PathBuf {
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

/// A FUSE daemon that does nothing, with threads and priority as ours has, and in block mode a loop device on
/// it: what the kernel's way alone allows on this machine.
struct Floor {
    session: Option<fuser::BackgroundSession>,
    device: Option<(PathBuf, File)>,
    folder: tempfile::TempDir,
}

impl Floor {
    fn up(mode: Mode) -> Result<Floor, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut config = Config::default();
        config.n_threads = Some(2);
        config.clone_fd = true;
        let nothing = Nothing { size: 64 << 20, zeros: vec![0; 1 << 20] };
        let session = std::thread::scope(|scope| {
            let start = || {
                load::run_at(9);
                fuser::spawn_mount(nothing, folder.path(), &config)
            };
            scope.spawn(start).join().expect("it does not panic")
        });
        let session = Some(session.map_err(|e| e.to_string())?);
        let mut floor = Floor { session, device: None, folder };
        if mode == Mode::Block {
            let output = Command::new("losetup")
                .args(["--find", "--show", "--direct-io=on", "--read-only"])
                .arg(floor.folder.path().join("file"))
                .output()
                .map_err(|e| format!("losetup: {e}"))?;
            let device = String::from_utf8_lossy(&output.stdout).trim().to_string();
            if device.is_empty() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
            }
            // Open, and detached already: the kernel lets go of it however this program ends.
            floor.device = Some((device.clone().into(), File::open(&device).map_err(|e| e.to_string())?));
            let _ = Command::new("losetup").args(["--detach", &device]).status();
        }
        Ok(floor)
    }

    fn target(&self) -> PathBuf {
        match &self.device {
            Some((device, _)) => device.clone(),
            None => self.folder.path().join("file"),
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.device = None;
        if let Some(Err(e)) = self.session.take().map(fuser::BackgroundSession::umount_and_join) {
            println!("  unmounting: {e}");
        }
    }
}

/// What each transport carries, beside the floor of the classic one and plain memory, in turns.
fn unshaped(mode: Mode, time: Duration, rounds: usize) {
    let floor = match Floor::up(mode) {
        Ok(floor) => floor,
        Err(e) => return println!("SKIPPED: {mode:?} mode: what the kernel's way allows: {e}"),
    };
    let disks: Vec<_> = load::transports()
        .into_iter()
        .map(|transport| {
            let disk = Disk::mount(load::options_over(transport, mode, "")).expect("mounting");
            let file = target(&disk);
            (transport, disk, file)
        })
        .collect();
    let plain = std::path::Path::new("/dev/shm").join(format!("tipover-transport-{}", std::process::id()));
    std::fs::write(&plain, vec![1; 64 << 20]).expect("writing the file to compare with");
    println!(
        "{mode:?} mode, unshaped, 4 KiB random direct reads (share: of a classic daemon that does nothing; \
         medians of {rounds} rounds)"
    );
    for (who, client) in [("ordinary client", Client::Ordinary), ("real-time client", Client::Urgent)] {
        for clients in [1, 32] {
            let mut carried: Vec<Carried> = disks.iter().map(|_| Carried::default()).collect();
            let (mut nothing, mut memory) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let least = random_reads_by(client, &floor.target(), clients, time).iops;
                for ((_, disk, file), carried) in disks.iter().zip(&mut carried) {
                    let before = disk.daemon_cpu().expect("asking the daemon");
                    let load = random_reads_by(client, file, clients, time);
                    carried.cpu += disk.daemon_cpu().expect("asking the daemon") - before;
                    carried.reads += load.reads;
                    carried.latency.push(load.median.as_secs_f64() * 1e6);
                    carried.shares.push(load.iops / least);
                    carried.iops.push(load.iops);
                }
                nothing.push(least);
                memory.push(random_reads_by(client, &plain, clients, time).iops);
            }
            let (nothing, memory) = (median(&mut nothing), median(&mut memory));
            println!("  {who}, depth {clients}: nothing {nothing:.0}/s, plain memory {memory:.0}/s");
            for ((transport, _, _), mut carried) in disks.iter().zip(carried) {
                println!(
                    "    {transport:<8?}{:>8.0}/s, share {}, median {:>5.1} us, daemon {:>4.1} us of processor a read",
                    median(&mut carried.iops),
                    spread(&mut carried.shares),
                    median(&mut carried.latency),
                    carried.cpu.as_secs_f64() * 1e6 / carried.reads.max(1) as f64,
                );
                let name =
                    format!("{mode:?} mode, {transport:?}, depth {clients}, {who}: reads ÷ the floor's");
                if client == Client::Ordinary {
                    judge(Threshold::AtLeast(0.8), &name, &carried.shares);
                }
            }
        }
    }
    let _ = std::fs::remove_file(plain);
}

/// What one disk carried, round by round.
#[derive(Default)]
struct Carried {
    iops: Vec<f64>,
    latency: Vec<f64>,
    shares: Vec<f64>,
    cpu: Duration,
    reads: u64,
}

/// The rate of `one` divided by that of `other`, in rounds of one, other, other, one: a drift of the machine
/// meets both.
fn paired(rounds: usize, mut one: impl FnMut() -> f64, mut other: impl FnMut() -> f64) -> Vec<f64> {
    (0..rounds)
        .map(|_| {
            let first = one();
            let others = other() + other();
            (first + one()) / others
        })
        .collect()
}

/// Prints what the ratios say of a threshold; of a few rounds of a tiny run nothing is said.
fn judge(threshold: Threshold, name: &str, ratios: &[f64]) {
    if ratios.len() > FEW {
        println!("{}", threshold.judge(name, ratios).lines());
    }
}

/// Sorts, and gives the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median, least and greatest.
fn spread(values: &mut [f64]) -> String {
    format!("{:.3} (from {:.3} to {:.3})", median(values), values[0], values[values.len() - 1])
}

/// Everything that the device completed so far.
fn requests(disk: &Disk) -> u64 {
    let counters = disk.counters().expect("asking the daemon");
    [counters.read, counters.write, counters.flush, counters.discard].iter().map(|t| t.requests).sum()
}

/// What a trace costs: the same reads with and without one, in turns.
fn traced(mode: Mode, time: Duration, rounds: usize) {
    let folder = tempfile::tempdir().expect("making a folder for traces");
    println!("{mode:?} mode, unshaped, traced reads");
    for transport in load::transports() {
        let disk = Disk::mount(load::options_over(transport, mode, "")).expect("mounting");
        let file = target(&disk);
        for clients in [1, 32] {
            let (mut number, mut records, mut dropped, mut bytes) = (0, 0, 0, 0);
            let plain = || random_reads_by(Client::Ordinary, &file, clients, time).iops;
            let with_trace = || {
                number += 1;
                let path = folder.path().join(format!("{transport:?}-{clients}-{number}"));
                let before = requests(&disk);
                disk.trace_start(&path).expect("starting the trace");
                let load = random_reads_by(Client::Ordinary, &file, clients, time);
                let summary = disk.trace_stop().expect("stopping the trace");
                let seen = requests(&disk) - before;
                assert_eq!(summary.records + summary.dropped, seen, "every request is written or counted");
                let read = tipover_disk::Trace::open(&path).expect("reading the trace").count() as u64;
                // The file system may have had a request of its own.
                assert!(read == summary.records && seen >= load.reads, "{read}, {seen}, {}", load.reads);
                let _ = std::fs::remove_file(&path);
                (records, dropped) = (records + summary.records, dropped + summary.dropped);
                bytes += summary.bytes;
                load.iops
            };
            let ratios = paired(rounds, with_trace, plain);
            println!(
                "  {transport:?}, depth {clients:>2}: {records} records of {:.1} bytes, {dropped} dropped",
                bytes as f64 / records.max(1) as f64,
            );
            let name = format!("{mode:?} mode, {transport:?}, depth {clients}: reads with a trace ÷ without");
            judge(Threshold::AtLeast(0.97), &name, &ratios);
        }
    }
}

/// What keeping account of unflushed blocks costs: the same random direct writes on a disk that does and one
/// that does not, in turns, with a flush every 64 writes.
fn accounted(mode: Mode, time: Duration, rounds: usize) {
    for transport in load::transports() {
        let disks = [false, true].map(|power_cuts| {
            let mut options = load::options_over(transport, mode, "");
            options.power_cuts = power_cuts;
            let disk = Disk::mount(options).expect("mounting");
            let file = target(&disk);
            (disk, file)
        });
        for clients in [1, 16] {
            let run = |which: usize| load::random_writes(Client::Ordinary, &disks[which].1, clients, time);
            let name = format!(
                "{mode:?} mode, {transport:?}, depth {clients}: writes with account of flushes ÷ without"
            );
            judge(Threshold::AtLeast(0.95), &name, &paired(rounds, || run(1), || run(0)));
        }
    }
}

fn shaped(mode: Mode, time: Duration, rounds: usize) {
    load::transports().into_iter().for_each(|transport| shaped_over(transport, mode, time, rounds));
}

fn shaped_over(transport: Transport, mode: Mode, time: Duration, rounds: usize) {
    let disk = Disk::mount(load::options_over(transport, mode, "")).expect("mounting");
    let file = target(&disk);
    println!("{mode:?} mode, {transport:?}, shaped (got / theory)");
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
            let mut ratios = Vec::new();
            for _ in 0..rounds {
                let before = disk.counters().expect("asking the daemon");
                let load = random_reads(&file, u64::from(clients), time);
                let rates =
                    disk.counters().expect("asking the daemon").rates_since(&before).expect("time passed");
                println!(
                    "  {text:<26} clients {clients:>2}: {:>8.1}/s = {:.4}, mean {:>7.3} ms, await {:>7.3} ms, queue {:>5.2}, \
                     compensation {:.0} us",
                    load.steady_rate(),
                    load.steady_rate() / theory,
                    load.mean.as_secs_f64() * 1e3,
                    rates.read_await.unwrap_or_default().as_secs_f64() * 1e3,
                    rates.queue,
                    calibration.compensation.as_secs_f64() * 1e6,
                );
                ratios.push((load.steady_rate() / theory - 1.0).abs());
            }
            let most = if clients == 1 { 0.03 } else { 0.01 };
            let name =
                format!("{mode:?} mode, {transport:?}, {text}, {clients} clients: |got ÷ configured − 1|");
            judge(Threshold::AtMost(most), &name, &ratios);
        }
    }
}
