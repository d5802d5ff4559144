//! Starts a command inside its limits and guards the process tree that it becomes.

use crate::limits::LimitError;
use crate::{Group, name};
use rustix::process::{Gid, Pid, Signal, Uid, WaitId, WaitIdOptions};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A longer line on standard error is cut here, so that a program that never ends a line cannot fill our
/// memory.
const LONGEST_LINE: usize = 4096;
/// How long dropping a child may wait for the kernel to let it die.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The group could not be entered.
    #[error("{name}: {source}")]
    Group {
        /// What the child was called.
        name: String,
        /// What is wrong with the group.
        source: LimitError,
    },
    /// The program could not be started.
    #[error("{name}: could not start {program}: {source}")]
    Program {
        /// What the child was called.
        name: String,
        /// The program's path as given.
        program: String,
        /// What the kernel said, to the start itself or to joining the group just before.
        source: io::Error,
    },
}

/// A command about to be started.
///
/// The child leads a session of its own (Ctrl-C in the terminal does not reach it), joins its group before
/// its first instruction (no page is charged elsewhere), and is killed by the kernel when this process dies,
/// however it dies. What it starts in turn does not die by itself then: that is found in its group by
/// [`crate::leftovers`].
#[derive(Debug)]
pub struct Launch {
    command: Command,
    name: String,
    group: Option<Arc<Group>>,
    user: Option<(Uid, Gid)>,
    network: Option<Arc<File>>,
    private_memory: bool,
    input: bool,
    given_input: Option<OwnedFd>,
    output: bool,
    lines: usize,
}

impl Launch {
    /// Prepares `command`. Standard input and output are closed unless [`Launch::pipes`] asks for them;
    /// standard error is kept for the failure's reason.
    pub fn new(command: Command) -> Launch {
        let name = command.get_program().to_string_lossy().into_owned();
        Launch {
            command,
            name,
            group: None,
            user: None,
            network: None,
            private_memory: false,
            input: false,
            given_input: None,
            output: false,
            lines: 40,
        }
    }

    /// What to call it in messages.
    pub fn called(mut self, name: &str) -> Launch {
        self.name = name.into();
        self
    }

    /// Runs it inside `group`. One group holds one tree: when the child is killed or dropped, so is all in
    /// the group.
    pub fn group(mut self, group: &Arc<Group>) -> Launch {
        self.group = Some(group.clone());
        self
    }

    /// Runs it as this user and group of users, without any other group. Only root may.
    ///
    /// Set here and not on the [`Command`]: the limits, the network and the memory above need root's rights,
    /// so the user changes after them; and a change of user cancels the death signal, so that comes last.
    pub fn user(mut self, user: u32, group: u32) -> Launch {
        self.user = Some((Uid::from_raw(user), Gid::from_raw(group)));
        self
    }

    /// Runs it in the network namespace behind this open file. Only root may.
    pub fn network(mut self, namespace: &Arc<File>) -> Launch {
        self.network = Some(namespace.clone());
        self
    }

    /// Gives it shared memory (System V) of its own, which the kernel frees when its last process is gone,
    /// however they ended. Only root may.
    pub fn private_memory(mut self) -> Launch {
        self.private_memory = true;
        self
    }

    /// Opens pipes to its standard input and output, for a control protocol.
    pub fn pipes(mut self) -> Launch {
        (self.input, self.output) = (true, true);
        self
    }

    /// Makes this descriptor its standard input, as one end of a socket.
    pub fn input_from(mut self, descriptor: OwnedFd) -> Launch {
        self.given_input = Some(descriptor);
        self
    }

    /// How many of the last lines on its standard error to keep; 40 if not said.
    pub fn keep_lines(mut self, lines: usize) -> Launch {
        self.lines = lines;
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Result<Child, LaunchError> {
        let enter = |source| LaunchError::Group { name: self.name.clone(), source };
        let doors =
            self.group.as_ref().map(|group| group.doors()).transpose().map_err(enter)?.unwrap_or_default();
        let oom_before = self.group.as_ref().map_or(0, |group| group.oom_kills().unwrap_or(0));
        let pipe = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
        let input = self.given_input.take().map_or_else(|| pipe(self.input), Stdio::from);
        self.command.stdin(input).stdout(pipe(self.output)).stderr(Stdio::piped());
        let parent = rustix::process::getpid();
        let (user, network, private_memory) = (self.user, self.network.take(), self.private_memory);
        // Runs in the child between fork and exec. The change of user takes away the rights that the lines
        // before it need, and cancels a death signal set before it.
        let prepare = move || {
            for door in &doors {
                rustix::io::write(door, b"0")?;
            }
            if let Some(namespace) = &network {
                rustix::thread::move_into_link_name_space(
                    namespace.as_fd(),
                    Some(LinkNameSpaceType::Network),
                )?;
            }
            if private_memory {
                // SAFETY: a new IPC namespace closes no descriptor and touches no memory of ours.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWIPC) }?;
            }
            if let Some((user, group)) = user {
                rustix::thread::set_thread_groups(&[])?;
                rustix::thread::set_thread_gid(group)?;
                rustix::thread::set_thread_uid(user)?;
            }
            rustix::process::setsid()?;
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent died before the line above, no signal will ever come.
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes plain
        // system calls on descriptors opened before the fork; it neither allocates, locks nor panics.
        unsafe { self.command.pre_exec(prepare) };
        let program = self.command.get_program().to_string_lossy().into_owned();
        let mut process = start_from_lasting_thread(self.command).map_err(|source| LaunchError::Program {
            name: self.name.clone(),
            program,
            source,
        })?;
        let tail = Tail::follow(process.stderr.take(), self.lines);
        Ok(Child {
            process,
            name: self.name,
            group: self.group,
            tail,
            oom_before,
            killed: false,
            exit: None,
            survivors: false,
        })
    }
}

/// Starts `command` from a thread that lives as long as this process.
///
/// The kernel sends the death signal when the *thread* that forked ends, so a child started from a
/// short-lived worker would die with it.
fn start_from_lasting_thread(command: Command) -> io::Result<std::process::Child> {
    type Job = (Command, Sender<io::Result<std::process::Child>>);
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, queue) = channel::<Job>();
        let serve = move || {
            for (mut command, reply) in queue {
                // Whoever asked waits for the answer; if it is gone the child has no guard and must not live.
                if let Err(unwanted) = reply.send(command.spawn())
                    && let Ok(mut child) = unwanted.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        };
        let thread = std::thread::Builder::new().name("starter of children".into()).spawn(serve);
        // Without the thread the queue is closed, and every start fails with the sentence below.
        drop(thread);
        Mutex::new(jobs)
    });
    let closed = || io::Error::other("the thread that starts children could not be started");
    let (reply, answer) = channel();
    starter.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply)).map_err(|_| closed())?;
    answer.recv().map_err(|_| closed())?
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It ended itself with this code; 0 is success.
    Code(i32),
    /// A signal with this number ended it.
    Signal(i32),
}

/// Who sent the signal, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel, because the memory limit of its group left no choice.
    OutOfMemory,
    /// This program, on purpose.
    Tipover,
}

/// How a child ended and what it said last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Code or signal.
    pub ending: Ending,
    /// Who sent the signal, where that is known.
    pub cause: Option<Cause>,
    /// The last lines on its standard error.
    pub last_words: Vec<String>,
}

impl Exit {
    /// Whether it ended itself with code 0.
    pub fn succeeded(&self) -> bool {
        self.ending == Ending::Code(0)
    }

    /// The reason with the last words behind it, for a record: "exited with code 1; its last words:\n  no
    /// space".
    pub fn explained(&self) -> String {
        match self.last_words.as_slice() {
            [] => format!("{self}; it said nothing on standard error"),
            lines => format!("{self}; its last words:\n  {}", lines.join("\n  ")),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ending {
            Ending::Code(code) => write!(f, "exited with code {code}")?,
            Ending::Signal(number) => match signal_name(number) {
                Some(name) => write!(f, "killed by {name}")?,
                None => write!(f, "killed by signal {number}")?,
            },
        }
        match self.cause {
            Some(Cause::OutOfMemory) => write!(f, " (out of memory in its cgroup)"),
            Some(Cause::Tipover) => write!(f, " (by Tipover)"),
            None => Ok(()),
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    let known = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    known.into_iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| name)
}

/// Guards a running process tree. Dropping it kills the tree and reaps it.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    name: String,
    group: Option<Arc<Group>>,
    tail: Arc<Tail>,
    oom_before: u64,
    killed: bool,
    exit: Option<Exit>,
    /// Whether its session had other members when it was reaped; only then its session's number is still
    /// taken.
    survivors: bool,
}

impl Child {
    /// Its process id, which is also the id of its session and process group.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The group it runs in.
    pub fn group(&self) -> Option<&Arc<Group>> {
        self.group.as_ref()
    }

    /// The pipe to its standard input, once; dropping it is how many programs are told to end.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// The pipe from its standard output, once.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.process.stdout.take()
    }

    /// The last lines on its standard error so far.
    pub fn last_words(&self) -> Vec<String> {
        self.tail.lines()
    }

    /// Sends a signal to the process itself, not to what it started; without effect if it ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.pid() {
            Some(pid) if self.exit.is_none() => Ok(rustix::process::kill_process(pid, signal)?),
            _ => Ok(()),
        }
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.process.id() as i32)
    }

    /// How it ended, if it has. What it started may live on until the guard is dropped (a daemon is started
    /// that way).
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() && self.ended()? {
            // Looked at before reaping, while the process id still cannot be given to a stranger.
            self.survivors = !self.companions().is_empty();
            let status = self.process.wait()?;
            self.exit = Some(self.describe(status));
        }
        Ok(self.exit.clone())
    }

    /// Waits until it ends; `None` if it still runs after `patience`.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<Exit>> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(exit) = self.try_wait()? {
                return Ok(Some(exit));
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Asks it to end with `signal` (its polite one: TERM for most, INT for PostgreSQL), waits, and kills the
    /// tree when patience ends or some of it stays behind.
    pub fn stop(&mut self, signal: Signal, patience: Duration) -> io::Result<Exit> {
        self.signal(signal)?;
        match self.wait(patience)? {
            Some(exit) => {
                self.kill_tree();
                Ok(exit)
            }
            None => self.kill(),
        }
    }

    /// Kills the whole tree at once, as `kill -9` of every process in it, and reaps.
    ///
    /// # Errors
    /// `TimedOut` if the kernel does not let it die: it waits for a disk that does not answer.
    pub fn kill(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.try_wait()? {
            self.kill_tree();
            return Ok(exit);
        }
        self.killed = true;
        self.kill_tree();
        self.wait(PATIENCE)?.ok_or_else(|| {
            let words = format!(
                "{} (process {}) does not die; it waits for a disk that does not answer, so release that first",
                self.name,
                self.id()
            );
            io::Error::new(io::ErrorKind::TimedOut, words)
        })
    }

    fn kill_tree(&mut self) {
        // Errors mean that nobody is there any more, or that the kernel does not let go: `wait` finds out.
        if let (Some(pid), true) = (self.pid(), self.exit.is_none() || self.survivors) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            for companion in self.companions().into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
                let _ = rustix::process::kill_process(companion, Signal::KILL);
            }
        }
        if let Some(group) = &self.group {
            let _ = group.kill_all();
        }
    }

    /// Whether the process has ended, without reaping it.
    fn ended(&self) -> io::Result<bool> {
        let Some(pid) = self.pid() else { return Ok(true) };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(rustix::process::waitid(WaitId::Pid(pid), look)?.is_some())
    }

    /// The other processes of its session.
    fn companions(&self) -> Vec<u32> {
        name::processes()
            .into_iter()
            .filter(|&pid| pid != self.id() && name::session_of(pid) == Some(self.id()))
            .collect()
    }

    fn describe(&self, status: ExitStatus) -> Exit {
        // The pipe may be held open by what the process started: wait for its end only briefly.
        self.tail.wait_for_end(Duration::from_millis(100));
        let ending = match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Code(code),
            (None, signal) => Ending::Signal(signal.unwrap_or(0)),
        };
        let starved = || self.group.as_ref().is_some_and(|g| g.oom_kills().unwrap_or(0) > self.oom_before);
        let cause = match ending {
            Ending::Signal(number) if number == Signal::KILL.as_raw() => {
                if self.killed {
                    Some(Cause::Tipover)
                } else {
                    starved().then_some(Cause::OutOfMemory)
                }
            }
            _ => None,
        };
        Exit { ending, cause, last_words: self.tail.lines() }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A guard has nobody to report to; what cannot be killed now keeps its group's name for `leftovers`.
        let _ = self.kill();
    }
}

/// The last lines of a stream, gathered by a thread of its own so that the writer never blocks.
#[derive(Debug)]
struct Tail {
    state: Mutex<TailState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct TailState {
    lines: VecDeque<String>,
    begun: Vec<u8>,
    limit: usize,
    ended: bool,
}

impl Tail {
    fn follow(stream: Option<ChildStderr>, limit: usize) -> Arc<Tail> {
        let state = TailState { limit, ended: stream.is_none(), ..TailState::default() };
        let tail = Arc::new(Tail { state: Mutex::new(state), ended: Condvar::new() });
        if let Some(mut stream) = stream {
            let shared = tail.clone();
            let read = move || {
                let mut buffer = [0; 4096];
                // Any error ends the reading, as the end of the stream does.
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    shared.lock().push(&buffer[..n]);
                }
                shared.lock().finish();
                shared.ended.notify_all();
            };
            // Without a thread nothing is kept, and the writer gets a broken pipe: better than a blocked one.
            let _ = std::thread::Builder::new().name("last words".into()).spawn(read);
        }
        tail
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> Vec<String> {
        let state = self.lock();
        let begun = (!state.begun.is_empty()).then(|| String::from_utf8_lossy(&state.begun).into_owned());
        state.lines.iter().cloned().chain(begun).collect()
    }

    fn wait_for_end(&self, patience: Duration) {
        let waited = self.ended.wait_timeout_while(self.lock(), patience, |state| !state.ended);
        drop(waited);
    }
}

impl TailState {
    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte != b'\n' {
                self.begun.push(byte);
            }
            if byte == b'\n' || self.begun.len() >= LONGEST_LINE {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).trim_end().to_string();
        self.lines.push_back(line);
        while self.lines.len() > self.limit {
            self.lines.pop_front();
        }
    }

    fn finish(&mut self) {
        if !self.begun.is_empty() {
            self.end_line();
        }
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_line_grows_without_bound() {
        let mut tail = TailState { limit: 2, ..TailState::default() };
        tail.push(b"one\ntwo\nthr");
        tail.push(b"ee\r\nfour");
        tail.finish();
        assert_eq!(tail.lines, ["three", "four"]);
        tail.push(&[b'x'; 3 * LONGEST_LINE]);
        assert!(tail.begun.len() < LONGEST_LINE && tail.lines.iter().all(|line| line.len() <= LONGEST_LINE));
    }

    #[test]
    fn endings_are_told_in_words() {
        let exit = |ending, cause| Exit { ending, cause, last_words: vec![] }.to_string();
        assert_eq!(exit(Ending::Code(3), None), "exited with code 3");
        assert_eq!(exit(Ending::Signal(11), None), "killed by SIGSEGV");
        assert_eq!(exit(Ending::Signal(40), None), "killed by signal 40");
        let starved = exit(Ending::Signal(9), Some(Cause::OutOfMemory));
        assert_eq!(starved, "killed by SIGKILL (out of memory in its cgroup)");
        let words = vec!["no space left".to_string()];
        let exit = Exit { ending: Ending::Code(1), cause: None, last_words: words };
        assert_eq!(exit.explained(), "exited with code 1; its last words:\n  no space left");
    }
}
