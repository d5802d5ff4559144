//! A daemon killed at any moment of its mounting leaves nothing that cannot be cleaned.

// The harness is our own, so clippy does not see that these are tests.
#![allow(clippy::unwrap_used)]

mod load;

use load::options;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tipover_disk::{DaemonCommand, Disk, FindError, Mode, clean, leftovers, mounted};

const TESTS: [load::Test; 4] = [
    ("a_kept_disk_outlives_its_client_and_is_found_again", Some(Mode::File), kept),
    ("another_pid_namespace_leaves_a_living_disk_alone", Some(Mode::File), elsewhere),
    ("a_daemon_killed_while_mounting_is_cleaned_up_by_its_client", Some(Mode::Block), client_lives),
    ("daemon_and_client_killed_while_mounting_are_cleaned_up_by_anyone", Some(Mode::Block), both_die),
];
/// Kills are spread evenly over the time that mounting takes, so that every step is hit.
const KILLS: u32 = 24;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("disk-daemon") => tipover_disk::serve(),
        Some("clean") => {
            leftovers().iter().for_each(|left| println!("{left}"));
            clean().iter().for_each(|(left, _)| println!("cleaned {left}"));
            ExitCode::SUCCESS
        }
        Some("keep") => {
            let mut options =
                options(if arguments[2] == "file" { Mode::File } else { Mode::Block }, "latency=3ms");
            options.mountpoint = PathBuf::from(&arguments[1]);
            let mut disk = Disk::mount(options).unwrap();
            std::fs::write(disk.path().join("file"), "kept").unwrap();
            disk.keep().unwrap();
            ExitCode::SUCCESS
        }
        Some("mount") => {
            let mode = if arguments[3] == "file" { Mode::File } else { Mode::Block };
            let _disk = mount(Path::new(&arguments[1]), Path::new(&arguments[2]), mode);
            std::thread::sleep(Duration::from_secs(30));
            ExitCode::SUCCESS
        }
        // Over the ring only by name (`TIPOVER_TRANSPORT=ring`): a daemon killed while it mounted once left a
        // request there that Linux 6.18 never ended, and with it a machine-wide `sync` that never returned.
        _ => load::run_once(&TESTS, &arguments),
    }
}

/// Becomes the daemon after its number is written, in one piece.
const DAEMON: &str = r#"echo $$ > "$TIPOVER_PID.new" && mv "$TIPOVER_PID.new" "$TIPOVER_PID" &&
    exec "$TIPOVER_PROGRAM" disk-daemon"#;

/// Mounts with a daemon that writes its number to `pid` first.
fn mount(mountpoint: &Path, pid: &Path, mode: Mode) -> Result<Disk, tipover_disk::MountError> {
    let mut options = options(mode, "");
    options.mountpoint = mountpoint.into();
    options.daemon = DaemonCommand {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), DAEMON.into()],
        environment: vec![
            ("TIPOVER_PID".into(), pid.into()),
            ("TIPOVER_PROGRAM".into(), std::env::current_exe().unwrap().into()),
        ],
    };
    Disk::mount(options)
}

fn kept() {
    for mode in ["file", "block"] {
        if mode == "block" && load::obstacle(Mode::Block).is_some() {
            continue;
        }
        let mountpoint = load::mountpoint();
        // Its output is a pipe: whoever waits for its end must not wait for the disk's.
        let output = Command::new("/proc/self/exe").arg("keep").arg(&mountpoint).arg(mode).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read(mountpoint.join("file")).unwrap(), b"kept");
        let found = mounted().into_iter().find(|m| m.mountpoint == mountpoint).unwrap();
        assert!(found.kept);
        let own = format!("{}-", found.daemon);
        assert!(!leftovers().iter().any(|l| l.to_string().contains(&own)), "nothing of it is a leftover");
        clean();
        let disk = Disk::at(&mountpoint).unwrap();
        assert_eq!((disk.spec().to_string().as_str(), disk.daemon_pid()), ("latency=3ms", found.daemon));
        disk.set_spec(&"iops=1000".parse().unwrap()).unwrap();
        drop(disk);
        // Neither a dropped guard nor another way to write its name changes anything.
        let other_name = mountpoint.parent().unwrap().join(".").join(mountpoint.file_name().unwrap());
        let disk = Disk::at(&other_name).unwrap();
        assert_eq!(disk.spec().to_string(), "iops=1000");
        disk.unmount().unwrap();
        assert_nothing_left(Pid::from_raw(found.daemon as i32).unwrap(), &mountpoint, "never");
        let error = Disk::at(&mountpoint).unwrap_err();
        assert!(matches!(error, FindError::NotADisk { .. }), "{error}");
    }
}

/// Whoever looks from another pid namespace, with its own `/proc`, does not see the daemon and must not take
/// it for dead; with the ledgers and without.
fn elsewhere() {
    let modes = [Mode::File, Mode::Block];
    for mode in modes.into_iter().filter(|mode| load::obstacle(*mode).is_none()) {
        let disk = load::mount(mode, "");
        std::fs::write(disk.path().join("file"), "kept").unwrap();
        let look = |more: &str| {
            let script = format!("{more} exec \"$0\" clean");
            let mut unshare = Command::new("unshare");
            unshare.args(["--pid", "--fork", "--mount-proc", "sh", "-c", &script]);
            let output =
                unshare.arg(std::env::current_exe().unwrap()).stderr(Stdio::inherit()).output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        };
        let ours = format!("{}", disk.path().display());
        for more in ["", "mount -t tmpfs none /run;"] {
            let found = look(more);
            assert!(!found.contains(&ours) && !found.contains(&format!("{}-", disk.daemon_pid())), "{found}");
        }
        assert_eq!(std::fs::read(disk.path().join("file")).unwrap(), b"kept");
    }
}

fn await_pid(file: &Path) -> Pid {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return Pid::from_raw(text.trim().parse().unwrap()).unwrap();
        }
        assert!(Instant::now() < patience, "the daemon starts");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// How long the daemon takes from its start until everything is mounted.
fn mounting(mode: Mode) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let (mountpoint, pid) = (load::mountpoint(), folder.path().join("pid"));
    std::thread::scope(|scope| {
        let mounted = scope.spawn(|| mount(&mountpoint, &pid, mode));
        await_pid(&pid);
        let begin = Instant::now();
        while !is_mounted(&mountpoint) && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_micros(200));
        }
        let took = begin.elapsed();
        drop(mounted.join().unwrap().unwrap());
        took
    })
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == at.to_str())
}

/// What is still there of the daemon `pid` and its mount point.
fn left(pid: Pid, mountpoint: &Path) -> Vec<String> {
    let number = pid.as_raw_nonzero();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_ours = |line: &&str| {
        line.contains(&format!("tipover-{number}-")) || line.contains(mountpoint.to_str().unwrap())
    };
    let mut left: Vec<String> = mounts.lines().filter(of_ours).map(String::from).collect();
    let list = |folder: &str| -> Vec<PathBuf> {
        std::fs::read_dir(folder).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default()
    };
    let loops = list("/sys/block").into_iter().map(|block| block.join("loop/backing_file"));
    left.extend(loops.flat_map(std::fs::read_to_string).filter(|b| b.contains(&format!("/{number}-"))));
    let notes = list("/run/tipover").into_iter().chain(list("/dev/shm")).map(|p| p.display().to_string());
    left.extend(
        notes.filter(|n| n.contains(&format!("/{number}-")) || n.contains(&format!("/tipover-{number}-"))),
    );
    left.extend(mountpoint.exists().then(|| mountpoint.display().to_string()));
    left
}

fn assert_nothing_left(pid: Pid, mountpoint: &Path, when: &str) {
    // The kernel lets go of a loop device a moment after its last user.
    let patience = Instant::now() + Duration::from_secs(60);
    while !left(pid, mountpoint).is_empty() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(left(pid, mountpoint), Vec::<String>::new(), "killed {when}");
}

fn for_every_moment(test: impl Fn(Mode, Duration, &str)) {
    let switch = load::ring_switch();
    for (mode, kills) in [(Mode::Block, KILLS), (Mode::File, KILLS / 3)] {
        // The least of three: a mounting that a busy machine held up would let all kills come too late.
        let took = [mounting(mode), mounting(mode), mounting(mode)].into_iter().min().unwrap();
        for n in 0..kills {
            let delay = took.mul_f64((f64::from(n) + 0.5) / f64::from(kills));
            let when = format!("{delay:?} into {took:?} of {mode:?} mode");
            test(mode, delay, &when);
            assert_eq!(load::ring_switch(), switch, "killed {when}");
        }
    }
}

fn client_lives() {
    for_every_moment(|mode, delay, when| {
        let folder = tempfile::tempdir().unwrap();
        let (mountpoint, file) = (load::mountpoint(), folder.path().join("pid"));
        let pid = std::thread::scope(|scope| {
            let mounted = scope.spawn(|| mount(&mountpoint, &file, mode).map(drop));
            let pid = await_pid(&file);
            std::thread::sleep(delay);
            let _ = kill_process(pid, Signal::KILL);
            // Killed after all, or just too late: both are fine.
            let _ = mounted.join().unwrap();
            pid
        });
        assert_nothing_left(pid, &mountpoint, when);
    });
}

fn both_die() {
    let mut found_after: BTreeMap<usize, u32> = BTreeMap::new();
    let seen = std::cell::RefCell::new(&mut found_after);
    let kill_both = |mode: Mode, delay: Duration, when: &str| {
        let folder = tempfile::tempdir().unwrap();
        let (mountpoint, file) = (load::mountpoint(), folder.path().join("pid"));
        let mut client = Command::new("/proc/self/exe")
            .arg("mount")
            .args([&mountpoint, &file])
            .arg(if mode == Mode::File { "file" } else { "block" })
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = await_pid(&file);
        std::thread::sleep(delay);
        // The client must not get to clean: it stands still from before the daemon's death to its own.
        kill_process(Pid::from_child(&client), Signal::STOP).unwrap();
        let _ = kill_process(pid, Signal::KILL);
        client.kill().unwrap();
        client.wait().unwrap();
        // It may not be able to die before it is cleaned up after: it waits for its own disk.
        let patience = Instant::now() + Duration::from_millis(300);
        while is_running(pid) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ours = format!("{}-", pid.as_raw_nonzero());
        let found = left(pid, &mountpoint).len();
        *seen.borrow_mut().entry(found).or_default() += 1;
        // A tool that the daemon ran (mkfs) may hold the device for a moment more; then clean again.
        let patience = Instant::now() + Duration::from_secs(60);
        while leftovers().iter().any(|l| format!("{l}").contains(&ours)) || !left(pid, &mountpoint).is_empty()
        {
            let results = clean();
            if Instant::now() > patience {
                panic!("killed {when}: {results:?}, left {:?}", left(pid, &mountpoint));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_nothing_left(pid, &mountpoint, when);
    };
    for_every_moment(kill_both);
    // On a machine that has become faster or slower meanwhile all kills may have met one step: earlier and
    // later ones follow then, until different steps were hit.
    for n in 0..40 {
        if seen.borrow().len() > 2 {
            break;
        }
        let delay = Duration::from_micros(200).mul_f64(1.2_f64.powi(n));
        kill_both(Mode::Block, delay, &format!("{delay:?} into mounting"));
    }
    println!("  leftovers found (how many: how often): {found_after:?}");
    assert!(found_after.len() > 2, "the kills hit different steps");
}

/// Neither gone nor a zombie.
fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
