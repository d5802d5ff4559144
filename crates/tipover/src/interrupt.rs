//! Ctrl-C and its like: asked to stop, the program puts everything away, and does not take long over it.

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set by signals, asked by everything that waits.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// Whether the user asked to stop.
    pub asked: Arc<AtomicBool>,
    /// Whether the next signal ends the program at once.
    at_once: Arc<AtomicBool>,
    /// What was asked for is nobody's any more, and the program goes on.
    pointless: Arc<AtomicBool>,
}

/// While it lives there is something to be put away, and the first signal only asks.
#[derive(Debug)]
#[must_use]
pub struct Holding(Interrupt);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.at_once.store(true, Ordering::Relaxed);
    }
}

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// What the shell gives to a program that Ctrl-C ended.
const CODE: i32 = 130;
/// How long after a signal whatever still waits for a process of ours gets its end instead of its answer.
const GRACE: Duration = Duration::from_millis(700);
/// How long after that what was asked to end is killed.
const POLITE: Duration = Duration::from_millis(400);
/// Putting away takes no longer than this.
const LONGEST: Duration = Duration::from_secs(20);
/// A child, by what may be done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Works for us or serves us: its end is an answer too.
    Worker,
    /// Holds a laboratory; whoever waits for it asks it to end, once.
    Keeper,
    /// Carries a disk or a network. It ends by itself when we do, and takes down what it has put up; while
    /// others still use that, it comes last.
    Carrier,
}

impl Interrupt {
    /// An error when the user asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// Whether the user asked to stop.
    pub fn is_set(&self) -> bool {
        self.is_asked() || self.pointless.load(Ordering::Relaxed)
    }

    /// Whether it was the user who asked.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// This one, for a part of the work that `pointless` ends by itself.
    pub fn or(&self, pointless: &Arc<AtomicBool>) -> Interrupt {
        Interrupt { pointless: pointless.clone(), ..self.clone() }
    }

    /// Listens to signals. While nothing is held ([`hold`](Self::hold)) the first one ends the program at
    /// once. Else it asks everything to stop in good order; the second one ends the program, and what it
    /// mounted is unmounted by the disk's daemon.
    ///
    /// # Errors
    /// What the system said.
    pub fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        interrupt.at_once.store(true, Ordering::Relaxed);
        for signal in [SIGINT, SIGTERM] {
            // In this order: what the signal sets is for the next one.
            signal_hook::flag::register_conditional_shutdown(signal, CODE, interrupt.at_once.clone())?;
            signal_hook::flag::register(signal, interrupt.at_once.clone())?;
            signal_hook::flag::register(signal, interrupt.asked.clone())?;
        }
        let watched = interrupt.clone();
        std::thread::Builder::new().name("interrupt".into()).spawn(move || watched.hasten())?;
        Ok(interrupt)
    }

    /// From now on there is something to be put away, until what is returned is dropped.
    pub fn hold(&self) -> Holding {
        self.at_once.store(self.is_asked(), Ordering::Relaxed);
        Holding(self.clone())
    }

    /// Not every wait asks whether to stop. What waits for another process, to load, to recover, to make a
    /// file system, is let go by the end of that process; then the errors that follow are those of an
    /// interruption.
    fn hasten(&self) {
        while !self.is_asked() {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(GRACE);
        signal(Signal::TERM, Kind::Worker);
        std::thread::sleep(POLITE);
        let began = Instant::now();
        // Putting away may start helpers, and they may hang too.
        while began.elapsed() < LONGEST {
            signal(Signal::KILL, Kind::Worker);
            std::thread::sleep(POLITE);
            signal(Signal::TERM, Kind::Carrier);
        }
        std::process::exit(CODE);
    }
}

fn signal(signal: Signal, wanted: Kind) {
    for (process, _) in children().iter().filter(|(_, kind)| *kind == wanted) {
        // One that ended just now is what was wanted.
        let _ = kill_process(*process, signal);
    }
}

/// Our children that live.
fn children() -> Vec<(Pid, Kind)> {
    let own = std::process::id().to_string();
    let of_ours = |process: &Path| {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let lives = !matches!(fields.next()?, "Z" | "X");
        (lives && fields.next()? == own).then_some(())?;
        let line = std::fs::read_to_string(process.join("cmdline")).ok()?;
        let kind = match line.split('\0').nth(1).unwrap_or_default() {
            crate::LAB_KEEPER_VERB => Kind::Keeper,
            crate::DISK_DAEMON_VERB | crate::NETWORK_DAEMON_VERB => Kind::Carrier,
            _ => Kind::Worker,
        };
        Some((Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?)?, kind))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| of_ours(&entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_are_found_and_the_dead_are_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = || children().into_iter().find(|(process, _)| *process == pid);
        assert_eq!(found(), Some((pid, Kind::Worker)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found(), None);
        assert!(Interrupt::default().check().is_ok());
        let asked = Interrupt::default();
        asked.asked.store(true, Ordering::Relaxed);
        assert!(asked.check().unwrap_err().is::<Interrupted>());
    }
}
