//! A small load for measuring disks, and a way to make them; shared by tests and benches.

#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use rustix::fs::{Mode as Permissions, OFlags};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::units::Bytes;
use tipover_disk::{BackingChoice, DaemonCommand, Disk, Filesystem, Mode, MountOptions, Transport};

pub const PAGE: usize = 4096;

/// Name, what must be there for it, and the test.
pub type Test = (&'static str, Option<Mode>, fn());

/// Runs the tests that the arguments name, one after another, as Cargo's own harness would; and once more
/// over the ring, where there is one.
#[allow(dead_code, reason = "those that kill daemons run over one transport only")]
pub fn run(tests: &[Test], arguments: &[String]) -> ExitCode {
    let mut passed = run_once(tests, arguments) == ExitCode::SUCCESS;
    let listed = arguments.iter().any(|a| a == "--list");
    if !listed && std::env::var_os(TRANSPORT).is_none() && transports().contains(&Transport::Ring) {
        println!("over the ring:");
        let again =
            std::process::Command::new("/proc/self/exe").args(arguments).env(TRANSPORT, "ring").status();
        passed &= again.unwrap().success();
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs them over the transport that [`transport`] says.
pub fn run_once(tests: &[Test], arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|a| a == "--list") {
        tests.iter().for_each(|(name, _, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with('-'));
    let (mut passed, mut failed) = (0, 0);
    let chosen = tests.iter().filter(|(name, _, _)| filter.is_none_or(|f| name.contains(f.as_str())));
    println!("running {} tests", chosen.clone().count());
    for (name, mode, test) in chosen {
        if mode.is_none() && transport() == Transport::Ring {
            continue;
        }
        if let Some(obstacle) = mode.and_then(obstacle) {
            println!("SKIPPED: {name}: {obstacle}");
            continue;
        }
        let begin = Instant::now();
        let held = std::panic::catch_unwind(test).is_ok();
        let verdict = if held { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
        passed += u32::from(held);
        failed += u32::from(!held);
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub struct Load {
    pub reads: u64,
    pub iops: f64,
    pub mean: Duration,
    pub median: Duration,
    clients: usize,
    /// When each read was answered, by anybody, since the load began; in order.
    answers: Vec<Duration>,
}

impl Load {
    /// Answers per second from the first to the last. The first comes a latency after the load begins, and in
    /// that time no disk answers anybody: counted in, it would be 1 % of half a second at 7 ms.
    pub fn steady_rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.answers.first(), self.answers.last()) else { return 0.0 };
        (self.answers.len() - 1) as f64 / (*last - *first).as_secs_f64().max(1e-9)
    }

    /// Answers per second as the disk gives them while the machine lets it: the median over rounds in which
    /// every client is answered once. A hypervisor or a neighbour that takes the processors away for a fifth
    /// of the time lowers the mean by a fifth, and hits fewer than half of so short rounds.
    pub fn typical_rate(&self) -> f64 {
        let ends: Vec<&Duration> = self.answers.iter().step_by(self.clients).collect();
        let mut times: Vec<Duration> = ends.windows(2).map(|pair| *pair[1] - *pair[0]).collect();
        times.sort_unstable();
        self.clients as f64 / times[times.len() / 2].as_secs_f64()
    }
}

/// `clients` that read pages of `path` at random, past the page cache, each one read at a time. At real-time
/// priority: so that the disk is measured and not how this busy machine schedules its reader.
pub fn random_reads(path: &Path, clients: u64, time: Duration) -> Load {
    random_reads_by(Client::Urgent, path, clients, time)
}

/// How the scheduler treats a client.
#[derive(Clone, Copy, PartialEq)]
pub enum Client {
    /// As any program: it may be woken where the disk's daemon just ran.
    Ordinary,
    /// Before all ordinary programs. The kernel then wakes it on the other processor than the daemon's, which
    /// is urgent too.
    Urgent,
}

pub fn random_reads_by(who: Client, path: &Path, clients: u64, time: Duration) -> Load {
    let file =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Permissions::empty())
            .unwrap();
    let pages = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).unwrap() / PAGE as u64;
    let begin = Instant::now();
    let (mut latencies, mut answers): (Vec<Duration>, Vec<Duration>) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..clients)
            .map(|client| {
                let file = &file;
                scope.spawn(move || {
                    if who == Client::Urgent {
                        run_on_time();
                    }
                    let mut memory = vec![0; 2 * PAGE];
                    let start = memory.as_ptr().align_offset(PAGE);
                    let page = &mut memory[start..start + PAGE];
                    let mut x = client + 1;
                    let mut latencies = Vec::new();
                    // At least one, also where the machine lets this thread begin late.
                    loop {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let at = Instant::now();
                        let got =
                            rustix::io::pread(file, &mut *page, (x >> 33) % pages * PAGE as u64).unwrap();
                        assert_eq!(got, PAGE);
                        let now = Instant::now();
                        latencies.push((now - at, now - begin));
                        if now - begin >= time {
                            break latencies;
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().flat_map(|r| r.join().unwrap()).collect()
    });
    let elapsed = begin.elapsed();
    latencies.sort_unstable();
    answers.sort_unstable();
    let reads = latencies.len() as u64;
    Load {
        reads,
        iops: reads as f64 / elapsed.as_secs_f64(),
        mean: latencies.iter().sum::<Duration>() / reads.max(1) as u32,
        median: latencies[latencies.len() / 2],
        clients: clients as usize,
        answers,
    }
}

/// `clients` that write pages of `path` at random, past the page cache, and flush every 64; writes per
/// second.
pub fn random_writes(who: Client, path: &Path, clients: u64, time: Duration) -> f64 {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Permissions::empty()).unwrap();
    // Not the beginning: on a block device that is the file system's.
    let pages = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).unwrap() / PAGE as u64;
    let begin = Instant::now();
    let writes: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..clients)
            .map(|client| {
                let file = &file;
                scope.spawn(move || {
                    if who == Client::Urgent {
                        run_on_time();
                    }
                    let mut memory = vec![7; 2 * PAGE];
                    let start = memory.as_ptr().align_offset(PAGE);
                    let page = &mut memory[start..start + PAGE];
                    let (mut x, mut writes) = (client + 1, 0);
                    while begin.elapsed() < time {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let at = pages / 2 + (x >> 33) % (pages / 2);
                        assert_eq!(rustix::io::pwrite(file, &*page, at * PAGE as u64).unwrap(), PAGE);
                        writes += 1;
                        if writes % 64 == 0 {
                            rustix::fs::fdatasync(file).unwrap();
                        }
                    }
                    writes
                })
            })
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    writes as f64 / begin.elapsed().as_secs_f64()
}

fn run_on_time() {
    run_at(5);
}

/// Gives the calling thread, and those that it starts, a real-time priority if that is allowed.
pub fn run_at(priority: i32) {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the struct lives through the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameter) };
}

/// A mount point of its own for every disk.
pub fn mountpoint() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tipover-disk-test-{}-{number}", std::process::id()))
}

/// The variable that says over which transport to run, `classic` or `ring`; over both without.
const TRANSPORT: &str = "TIPOVER_TRANSPORT";

/// What carries the disks of this run.
pub fn transport() -> Transport {
    match std::env::var(TRANSPORT).as_deref() {
        Ok("ring") => Transport::Ring,
        _ => Transport::Classic,
    }
}

/// The machine's switch for the ring. Others may be mounting just now; who has turned it on for that has it
/// locked.
pub fn ring_switch() -> Option<String> {
    let switch = std::fs::File::open("/sys/module/fuse/parameters/enable_uring").ok()?;
    rustix::fs::flock(&switch, rustix::fs::FlockOperation::LockShared).unwrap();
    Some(std::io::read_to_string(switch).unwrap())
}

/// The transports that can be used here.
pub fn transports() -> Vec<Transport> {
    match tipover_disk::ring_state() {
        (_, None) => vec![Transport::Classic, Transport::Ring],
        (_, Some(obstacle)) => {
            println!("SKIPPED: the ring: {obstacle}");
            vec![Transport::Classic]
        }
    }
}

pub fn options(mode: Mode, spec: &str) -> MountOptions {
    options_over(transport(), mode, spec)
}

pub fn options_over(transport: Transport, mode: Mode, spec: &str) -> MountOptions {
    MountOptions {
        mode,
        filesystem: Filesystem::Ext4,
        size: Bytes::mib(256),
        backing: BackingChoice::Memory,
        mountpoint: mountpoint(),
        spec: spec.parse().unwrap(),
        readahead: Bytes(0),
        power_cuts: false,
        transport,
        daemon: DaemonCommand::this_program(&["disk-daemon"]),
    }
}

pub fn mount(mode: Mode, spec: &str) -> Disk {
    Disk::mount(options(mode, spec)).unwrap()
}

/// Why disks of this mode cannot be mounted here.
pub fn obstacle(mode: Mode) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    let devices: &[&str] =
        if mode == Mode::Block { &["/dev/fuse", "/dev/loop-control"] } else { &["/dev/fuse"] };
    let closed = |device: &&&str| std::fs::OpenOptions::new().read(true).write(true).open(**device).is_err();
    devices.iter().find(closed).map(|device| format!("{device} cannot be opened"))
}
