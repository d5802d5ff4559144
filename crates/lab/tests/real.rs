//! Real trees of processes in real control groups. What the machine does not offer is skipped, and says so.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers in here are tests too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_lab::{Cause, Cgroups, Ending, Group, Launch, LimitError, Limits, Signal};

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(60);

/// A group with limits, or `None` after saying why this machine has none.
fn group(limits: &Limits) -> Option<Arc<Group>> {
    match Group::create("test", limits) {
        Ok(group) => Some(Arc::new(group)),
        // Only what the machine lacks is a reason; and a CI machine that has it may not skip.
        Err(error @ (LimitError::NoController { .. } | LimitError::NotPermitted { .. })) => {
            let has_it = rustix::process::geteuid().is_root()
                && Cgroups::look().unwrap().controllers().contains_key("memory");
            assert!(
                !(has_it && std::env::var("CI").is_ok_and(|ci| ci == "true")),
                "may not be skipped here: {error}"
            );
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// This test binary again, playing `role` (see [`play`]).
fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "play", "--nocapture"]).env("TIPOVER_LAB_ROLE", role);
    command
}

/// Not a test of its own: what the re-executed test binary does.
#[test]
fn play() {
    let Ok(role) = std::env::var("TIPOVER_LAB_ROLE") else { return };
    match role.split_once(':').unwrap_or((&role, "")) {
        ("read file", path) => {
            // Twice, so that the second pass can only find what the limit let stay.
            for _ in 0..2 {
                let mut file = std::fs::File::open(path).unwrap();
                std::io::copy(&mut file, &mut std::io::sink()).unwrap();
            }
            println!("read");
            std::io::stdin().read_exact(&mut [0]).ok();
        }
        ("eat memory", _) => {
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            loop {
                eaten.push(vec![eaten.len() as u8 | 1; MIB as usize]);
            }
        }
        ("parent", _) => {
            let group = Group::create("victim", &Limits::NONE).ok().map(Arc::new);
            let mut launch = Launch::new(shell("echo started >&2; sleep 1000"));
            if let Some(group) = &group {
                launch = launch.group(group);
            }
            // Started from a thread that ends at once: the child must not end with it.
            let child = std::thread::spawn(move || launch.start().unwrap()).join().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            // Killed but not yet reaped it would still have its folder.
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let lives = !stat.contains(") Z ");
            println!("child {} {} {lives}", child.id(), group.map_or("-".into(), |g| g.name().to_string()));
            std::thread::sleep(Duration::from_secs(1000));
        }
        ("limits of nobody", _) => match Group::create("nobody's", &Limits::memory(64 * MIB)) {
            Ok(_) => println!("allowed"),
            Err(error) => println!("refused: {error}"),
        },
        other => panic!("no such role: {other:?}"),
    }
}

/// The first line of a child's output that is not the test harness talking.
fn first_line(output: impl Read, begins: &str) -> String {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    // The harness prints "test play ... " without a line's end before the first line of ours.
    let found = lines.filter_map(|line| line.find(begins).map(|at| line[at..].to_string())).next();
    found.unwrap_or_else(|| panic!("the child never said {begins:?}"))
}

#[test]
fn page_cache_is_bounded_by_the_limit() {
    let limit = 32 * MIB;
    let Some(group) = group(&Limits::memory(limit)) else { return };
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for _ in 0..96 {
        file.write_all(&vec![7; MIB as usize]).unwrap();
    }
    file.as_file().sync_all().unwrap();
    // What this process wrote is charged to this process until it is dropped.
    rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();

    let role = format!("read file:{}", file.path().display());
    let mut child = Launch::new(again(&role)).group(&group).pipes().start().unwrap();
    // Kept open: the test harness in the child fails if it cannot print its last line.
    let mut output = child.output().unwrap();
    first_line(&mut output, "read");
    let memory = group.memory().unwrap();
    assert_eq!(memory.limit, Some(limit));
    assert!(memory.usage <= limit, "{memory:?}");
    assert!(memory.page_cache > limit / 2 && memory.page_cache <= limit, "{memory:?}");
    assert_eq!(memory.swap.unwrap_or(0), 0);
    assert!(memory.peak.is_none_or(|peak| peak > limit * 9 / 10), "{memory:?}");
    assert!(group.cpu_time().unwrap().total > Duration::ZERO);
    assert_eq!(group.processes(), [child.id()]);

    drop(child.input());
    assert!(child.wait(SOON).unwrap().unwrap().succeeded());
    assert_eq!(group.oom_kills().unwrap(), 0, "page cache is dropped, nobody dies for it");
}

#[test]
fn dying_of_hunger_is_told_apart_from_being_killed() {
    let Some(group) = group(&Limits::memory(24 * MIB)) else { return };
    let mut child = Launch::new(again("eat memory")).called("glutton").group(&group).start().unwrap();
    let exit = child.wait(SOON).unwrap().expect("the limit must stop it");
    assert_eq!((exit.ending, exit.cause), (Ending::Signal(9), Some(Cause::OutOfMemory)));
    assert_eq!(exit.to_string(), "killed by SIGKILL (out of memory in its cgroup)");
    assert!(group.oom_kills().unwrap() >= 1);

    let mut child = Launch::new(shell("sleep 1000")).group(&group).start().unwrap();
    let exit = child.kill().unwrap();
    assert_eq!(exit.to_string(), "killed by SIGKILL (by Tipover)");
}

#[test]
fn limits_change_while_the_group_runs() {
    let Some(group) = group(&Limits { memory: Some(64 * MIB), cpus: Some(1.0), cpu_set: None }) else {
        return;
    };
    for bytes in [32 * MIB, 128 * MIB] {
        group.set_limits(&Limits::memory(bytes)).unwrap();
        assert_eq!(group.memory().unwrap().limit, Some(bytes));
    }
    group.set_limits(&Limits::NONE).unwrap();
    assert_eq!(group.memory().unwrap().limit, None);
}

#[test]
fn cpu_time_is_bounded_by_the_quota() {
    let limits = Limits { cpus: Some(0.2), cpu_set: Some(vec![0]), memory: None };
    let Some(group) = group(&limits) else { return };
    let _child = Launch::new(shell("while :; do :; done")).group(&group).start().unwrap();
    // Long enough for many periods; what counts is the ratio, which a busy machine can only lower.
    let (began, before) = (Instant::now(), group.cpu_time().unwrap());
    std::thread::sleep(Duration::from_millis(1500));
    let (wall, after) = (began.elapsed(), group.cpu_time().unwrap());
    let share = (after.total - before.total).as_secs_f64() / wall.as_secs_f64();
    assert!(share < 0.4, "used {share:.2} cores of 0.2");
    assert!(after.throttled.unwrap() > Duration::ZERO, "{after:?}");
}

#[test]
fn a_frozen_tree_does_nothing_and_can_still_be_killed() {
    let Some(group) = group(&Limits::NONE) else { return };
    let mut child = Launch::new(shell("while :; do :; done")).group(&group).start().unwrap();
    group.freeze().unwrap();
    let before = group.cpu_time().unwrap().total;
    std::thread::sleep(Duration::from_millis(300));
    let during = group.cpu_time().unwrap().total - before;
    assert!(during < Duration::from_millis(20), "ran {during:?} while frozen");
    group.thaw().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(group.cpu_time().unwrap().total > before + during, "did not go on after thawing");
    group.freeze().unwrap();
    child.kill().unwrap();
    assert!(group.processes().is_empty());
}

#[test]
fn dropping_kills_also_what_left_the_session() {
    let Some(group) = group(&Limits::NONE) else { return };
    let script = "setsid sleep 1000 & sleep 1000 & echo both >&2; wait";
    let child = Launch::new(shell(script)).group(&group).start().unwrap();
    let began = Instant::now();
    while group.processes().len() < 3 && began.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(group.processes().len(), 3);
    drop(child);
    assert!(group.processes().is_empty());
    let path = group.directory("memory").or(group.unified()).unwrap().to_path_buf();
    Arc::into_inner(group).unwrap().remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn without_a_group_the_session_is_killed() {
    let mut child = Launch::new(shell("sleep 1000 & echo $! ; wait")).pipes().start().unwrap();
    let mut line = String::new();
    BufReader::new(child.output().unwrap()).read_line(&mut line).unwrap();
    let grandchild = format!("/proc/{}/stat", line.trim());
    assert!(std::fs::metadata(&grandchild).is_ok());
    drop(child);
    assert!(gone(&grandchild), "the grandchild lives on");
}

#[test]
fn a_daemon_lives_until_the_guard_goes() {
    let mut child = Launch::new(shell("sleep 1000 >/dev/null 2>&1 & echo $!")).pipes().start().unwrap();
    let mut line = String::new();
    BufReader::new(child.output().unwrap()).read_line(&mut line).unwrap();
    let daemon = format!("/proc/{}/stat", line.trim());
    assert!(child.wait(SOON).unwrap().unwrap().succeeded());
    assert!(std::fs::metadata(&daemon).is_ok(), "its starter's end must not end it");
    drop(child);
    assert!(gone(&daemon), "the daemon lives on");
}

/// Whether the process with this `/proc/PID/stat` is dead, reaped or not.
fn gone(stat: &str) -> bool {
    let began = Instant::now();
    loop {
        match std::fs::read_to_string(stat) {
            Err(_) => return true,
            Ok(text) if text.contains(") Z ") => return true,
            Ok(_) if began.elapsed() > SOON => return false,
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn ends_are_reported_with_the_last_words() {
    let script = "for i in 1 2 3 4 5; do echo line $i >&2; done; exit 7";
    let mut child = Launch::new(shell(script)).keep_lines(2).start().unwrap();
    let exit = child.wait(SOON).unwrap().unwrap();
    assert_eq!(exit.explained(), "exited with code 7; its last words:\n  line 4\n  line 5");

    let mut child = Launch::new(shell("sleep 1000")).start().unwrap();
    assert_eq!(child.wait(Duration::from_millis(30)).unwrap(), None);
    let exit = child.stop(Signal::TERM, SOON).unwrap();
    assert_eq!(exit.to_string(), "killed by SIGTERM");

    let mut child = Launch::new(shell("trap '' TERM; echo deaf; sleep 1000")).pipes().start().unwrap();
    first_line(child.output().unwrap(), "deaf");
    assert_eq!(child.stop(Signal::TERM, Duration::from_millis(50)).unwrap().cause, Some(Cause::Tipover));

    let error = Launch::new(Command::new("/nowhere/engine")).called("engine").start().unwrap_err();
    assert!(
        error.to_string().starts_with("engine: could not start /nowhere/engine: No such file"),
        "{error}"
    );
}

#[test]
fn a_parent_killed_with_kill_9_leaves_no_child_and_its_group_is_found() {
    // Without a guard of ours around it: it is to be killed as a user would, from outside.
    let mut parent = again("parent").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let line = first_line(parent.stdout.take().unwrap(), "child ");
    let words: Vec<&str> = line.split(' ').collect();
    let (child, name, lives) = (words[1], words[2], words[3]);
    assert_eq!(lives, "true", "the child ended with the thread that started it");
    let cgroups = Cgroups::look().unwrap();
    let is_left = || cgroups.leftovers().iter().any(|leftover| leftover.name == name);
    assert!(!is_left(), "the group of a living owner is no leftover");

    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(gone(&format!("/proc/{child}/stat")), "the child outlived its parent");
    if name == "-" {
        println!("SKIPPED: no control groups here, so nothing could be left over");
        return;
    }
    assert!(is_left(), "{name} was not found");
    let cleaned = cgroups.clean();
    assert!(cleaned.removed.iter().any(|leftover| leftover.name == name), "{cleaned:?}");
    assert!(!is_left());
}

#[test]
fn without_root_the_refusal_says_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: needs root to become nobody");
    }
    let output = again("limits of nobody").uid(65534).gid(65534).output();
    let output = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return println!("SKIPPED: nobody may not run this test binary: {error}"),
    };
    assert!(output.contains("refused: not allowed to make a control group in /sys/fs/cgroup"), "{output}");
    assert!(output.contains("run as root"), "{output}");
}

#[test]
fn what_the_kernel_refuses_is_an_error_with_the_file() {
    let Some(group) = group(&Limits::memory(64 * MIB)) else { return };
    let error = group.attach(u32::MAX / 4).unwrap_err();
    assert!(matches!(&error, LimitError::Write { path, .. } if path.ends_with("cgroup.procs")), "{error}");
}
