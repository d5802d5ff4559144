//! A long command under watch: its output is passed on and read, it may not be silent for ever, and nothing
//! that it started outlives it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::process::shown;

/// How long a command may take where nothing shows that it works.
#[derive(Clone, Copy)]
pub struct Patience {
    /// How long it may say nothing before what runs in it is killed.
    pub silence: Duration,
    /// How long what it started may take to end after it.
    pub grace: Duration,
}

/// Looking at all processes takes some milliseconds.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// What a command did wrong, each in a sentence; none if all is well.
pub type Failures = Vec<String>;

/// Runs `command` to its end and hands each line of its standard output to `read`.
///
/// A program inside it that is silent for too long is killed, so that the rest can go on. What it leaves
/// running is named and killed. Both are failures, as is any status but success. An error means that the
/// command could not be started or watched.
pub fn watch(mut command: Command, patience: Patience, mut read: impl FnMut(&[u8])) -> Result<Failures> {
    let name = shown(&command);
    // What loses its parent becomes our child, so it can be found, however it hides.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("becoming the parent of orphans")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
    let lines = lines_of(&mut child)?;
    let mut failures = Failures::new();
    let (mut heard, mut reaped) = (Instant::now(), Instant::now());
    let mut ended = None;
    loop {
        if reaped.elapsed() > REAP_EVERY {
            reap_orphans(child.id());
            reaped = Instant::now();
        }
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                heard = Instant::now();
                read(&line);
                pass_on(&line)?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // Whoever inherited the pipe may hold it open: the end of the command is the end.
            Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {
                ended = child.try_wait()?;
                if ended.is_none() && heard.elapsed() > patience.silence {
                    failures.extend(end_the_silent(child.id(), patience.silence));
                    heard = Instant::now();
                }
            }
        }
    }
    let status = match ended {
        Some(status) => status,
        None => child.wait()?,
    };
    if !status.success() {
        failures.push(format!("`{name}` ended with {status}"));
    }
    failures.extend(
        end_what_is_left(patience.grace).into_iter().map(|left| format!("`{name}` left running: {left}")),
    );
    Ok(failures)
}

/// Asks for the status of what lost its parent and ended: until somebody does, it looks as if it were still
/// there, also to a test that waits for its end. The status of `command` is left to whoever started that.
fn reap_orphans(command: u32) {
    let processes = processes();
    for orphan in children(&processes, std::process::id()) {
        if orphan != command && processes[&orphan].ended {
            let _ = pid(orphan).map(|orphan| rustix::process::waitpid(Some(orphan), WaitOptions::NOHANG));
        }
    }
}

/// The lines of its output, read by a thread of their own, since a pipe cannot be waited for with a time
/// limit.
fn lines_of(child: &mut Child) -> Result<Receiver<Vec<u8>>> {
    let output = child.stdout.take().context("the output was piped")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(lines)
}

fn pass_on(line: &[u8]) -> std::io::Result<()> {
    let mut ours = std::io::stdout().lock();
    ours.write_all(line)?;
    ours.write_all(b"\n")
}

/// Kills the programs that the command `parent` started, with all below them, and says which they were.
fn end_the_silent(parent: u32, silence: Duration) -> Failures {
    let processes = processes();
    let programs: Vec<u32> = children(&processes, parent);
    programs
        .into_iter()
        .map(|program| {
            let name = processes[&program].name.clone();
            let below: Vec<&str> =
                descendants(&processes, program).iter().map(|pid| processes[pid].name.as_str()).collect();
            kill(program);
            let below = if below.is_empty() { "nothing".to_string() } else { below.join("; ") };
            format!("said nothing for {} s and was killed: {name} (below it: {below})", silence.as_secs())
        })
        .collect()
}

/// How long what was killed may take to be gone: one in the middle of a request to a disk takes its time.
const DEATH: Duration = Duration::from_secs(10);

/// What is still below us some time after the command's end, by name; it is killed, and gone afterwards.
fn end_what_is_left(grace: Duration) -> Vec<String> {
    let left = below_us_after(grace);
    left.keys().for_each(|pid| kill(*pid));
    below_us_after(if left.is_empty() { Duration::ZERO } else { DEATH });
    left.into_iter().map(|(pid, name)| format!("{name} ({pid})")).collect()
}

/// What lives below us, by number and name, as soon as that is nothing, or when `patience` is over.
fn below_us_after(patience: Duration) -> BTreeMap<u32, String> {
    let until = Instant::now() + patience;
    loop {
        // The command's own status is known by now.
        reap_orphans(0);
        let mut processes = processes();
        let mut left = descendants(&processes, std::process::id());
        left.retain(|pid| !processes[pid].ended);
        if left.is_empty() || Instant::now() > until {
            return left.iter().filter_map(|pid| Some((*pid, processes.remove(pid)?.name))).collect();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn kill(number: u32) {
    // It may have ended by itself since it was seen.
    let _ = pid(number).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
}

/// A process as `/proc` shows it.
struct Process {
    parent: u32,
    ended: bool,
    name: String,
}

/// Every process that can be seen, by its number.
fn processes() -> BTreeMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    numbers
        .filter_map(|number| {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
            let (parent, ended) = parent_of(&stat)?;
            let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line
                .split(|byte| *byte == 0)
                .map(String::from_utf8_lossy)
                .filter(|w| !w.is_empty())
                .collect();
            Some((number, Process { parent, ended, name: words.join(" ") }))
        })
        .collect()
}

/// The parent in a line of `/proc/PID/stat`, and whether the process has ended. The program's name stands in
/// brackets and may hold anything, brackets too.
fn parent_of(stat: &str) -> Option<(u32, bool)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((fields.next()?.parse().ok()?, ended))
}

fn children(processes: &BTreeMap<u32, Process>, parent: u32) -> Vec<u32> {
    processes.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| *pid).collect()
}

fn descendants(processes: &BTreeMap<u32, Process>, ancestor: u32) -> Vec<u32> {
    let mut found = children(processes, ancestor);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(processes, found[next]));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs itself again in a process that has no other children: what a command leaves is found below us.
    fn alone(test: &str, body: impl FnOnce()) {
        if std::env::var_os("XTASK_ALONE").is_some() {
            return body();
        }
        let this = std::env::current_exe().expect("a test knows its program");
        let output = Command::new(this)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("XTASK_ALONE", "1")
            .output()
            .expect("a test can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the test was not found");
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn watched(script: &str, silence: Duration) -> (Failures, String) {
        let mut heard = String::new();
        let patience = Patience { silence, grace: Duration::from_secs(3) };
        let failures = watch(shell(script), patience, |line| {
            heard.push_str(&String::from_utf8_lossy(line));
            heard.push(' ');
        });
        (failures.expect("the command starts"), heard)
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_command_that_ends_well_is_read_whole() {
        alone("watch::tests::a_command_that_ends_well_is_read_whole", || {
            let (failures, heard) = watched("echo one; echo two; printf three", LONG);
            assert_eq!((failures, heard.as_str()), (Vec::new(), "one two three "));
            let (failures, _) = watched("exit 3", LONG);
            assert!(failures.len() == 1 && failures[0].contains("exit status: 3"), "{failures:?}");
        });
    }

    #[test]
    fn what_holds_the_pipe_does_not_hold_up_the_run() {
        alone("watch::tests::what_holds_the_pipe_does_not_hold_up_the_run", || {
            let (failures, heard) = watched("echo said; setsid sleep 1234 & exit 1", LONG);
            assert_eq!(heard, "said ");
            assert_eq!(failures.len(), 2, "{failures:?}");
            assert!(failures[1].contains("left running: sleep 1234"), "{failures:?}");
            assert_eq!(below_us_after(Duration::ZERO), BTreeMap::new(), "it is gone");
        });
    }

    #[test]
    fn what_ends_soon_after_is_not_accused() {
        alone("watch::tests::what_ends_soon_after_is_not_accused", || {
            let (failures, _) = watched("setsid sleep 1 & exit 0", LONG);
            assert_eq!(failures, Vec::<String>::new());
        });
    }

    #[test]
    fn an_orphan_that_ended_is_not_kept_as_a_zombie() {
        alone("watch::tests::an_orphan_that_ended_is_not_kept_as_a_zombie", || {
            let script = "(sleep 0.1 & echo $!) | { read orphan; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; \
                          test -e /proc/$orphan || exit 0; done; exit 1; }";
            let (failures, _) = watched(script, LONG);
            assert_eq!(failures, Vec::<String>::new());
        });
    }

    #[test]
    fn the_silent_one_is_killed_and_the_rest_goes_on() {
        alone("watch::tests::the_silent_one_is_killed_and_the_rest_goes_on", || {
            let (failures, heard) = watched("echo before; sleep 4321; echo after", Duration::from_secs(1));
            assert_eq!(heard, "before after ");
            assert!(failures.len() == 1 && failures[0].contains("sleep 4321"), "{failures:?}");
        });
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        assert_eq!(parent_of("12 (a) b) S 7 12 12 0"), Some((7, false)));
        assert_eq!(parent_of("12 (sleep) Z 1 12 12 0"), Some((1, true)));
        assert_eq!(parent_of("12"), None);
    }
}
