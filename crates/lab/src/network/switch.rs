//! The switch at work: a thread per member reads its packets, one thread hands over what was held back.

use super::device::Tun;
use super::link::{Direction, Fate, Link, LinkCounters};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Any packet fits.
const LARGEST: usize = 65_536;

/// How late packets that were held back were handed over, beyond what their link said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// How many were held back.
    pub count: u64,
    /// Their lateness summed, in nanoseconds.
    pub late_ns_sum: u64,
    /// The latest.
    pub late_ns_max: u64,
    /// How many were later than 100 µs.
    pub later_than_100us: u64,
}

struct Held {
    due: Instant,
    number: u64,
    from: usize,
    to: usize,
    packet: Box<[u8]>,
}

impl Ord for Held {
    // Reversed: the heap gives its greatest first, and that shall be the earliest.
    fn cmp(&self, other: &Held) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Held {}

pub(crate) struct Switch {
    tuns: Vec<Tun>,
    /// `from * members + to`.
    directions: Vec<Mutex<Direction>>,
    held: Mutex<BinaryHeap<Held>>,
    earlier: Condvar,
    numbers: AtomicU64,
    timing: Mutex<Timing>,
    began: Instant,
}

impl Switch {
    /// Starts the threads. Member `i` has the address whose last byte is `first + i`.
    pub fn start(tuns: Vec<Tun>, first: u8, seed: u64) -> io::Result<Arc<Switch>> {
        let members = tuns.len();
        let seeded =
            |n: usize| Mutex::new(Direction::new(seed ^ (n as u64).wrapping_mul(0xA24B_AED4_963E_E407)));
        let switch = Arc::new(Switch {
            tuns,
            directions: (0..members * members).map(seeded).collect(),
            held: Mutex::default(),
            earlier: Condvar::new(),
            numbers: AtomicU64::new(0),
            timing: Mutex::default(),
            began: Instant::now(),
        });
        let timer = switch.clone();
        spawn("network timer", 21, move || timer.hand_over())?;
        for from in 0..members {
            let reader = switch.clone();
            spawn("network member", 20, move || reader.read(from, first))?;
        }
        Ok(switch)
    }

    fn members(&self) -> usize {
        self.tuns.len()
    }

    pub fn set(&self, from: usize, to: usize, link: Link) {
        self.directions[from * self.members() + to].lock().link = link;
    }

    pub fn look(&self, from: usize, to: usize) -> (Link, LinkCounters) {
        let direction = self.directions[from * self.members() + to].lock();
        (direction.link, direction.counters)
    }

    pub fn timing(&self) -> Timing {
        *self.timing.lock()
    }

    fn read(&self, from: usize, first: u8) {
        let mut buffer = vec![0; LARGEST];
        let mut failures = 0;
        loop {
            let length = match (&self.tuns[from].file).read(&mut buffer) {
                Ok(length) => length,
                // A device that was taken down answers so until it is up again; never spin on it.
                Err(_) if failures > 1000 => return,
                Err(_) => {
                    failures += 1;
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            let packet = &buffer[..length];
            // Only version 4; what the kernel sends of version 6 by itself has no receiver here.
            if length < 20 || packet[0] >> 4 != 4 {
                continue;
            }
            let Some(to) = packet[19].checked_sub(first).map(usize::from).filter(|to| *to < self.members())
            else {
                continue;
            };
            let now = self.began.elapsed().as_nanos() as u64;
            let mut direction = self.directions[from * self.members() + to].lock();
            if direction.link.resets && is_reset(packet) {
                drop(direction);
                self.write(from, to, packet);
                continue;
            }
            let fate = direction.decide(now, length as u64);
            drop(direction);
            if let Fate::Deliver { first, copy } = fate {
                for wait in std::iter::once(first).chain(copy) {
                    if wait.is_zero() {
                        self.write(from, to, packet);
                    } else {
                        self.hold(Instant::now() + wait, from, to, packet);
                    }
                }
            }
        }
    }

    fn write(&self, from: usize, to: usize, packet: &[u8]) {
        let written = (&self.tuns[to].file).write(packet);
        let mut direction = self.directions[from * self.members() + to].lock();
        match written {
            Ok(_) => direction.counters.delivered += 1,
            Err(_) => direction.counters.refused += 1,
        }
    }

    fn hold(&self, due: Instant, from: usize, to: usize, packet: &[u8]) {
        let number = self.numbers.fetch_add(1, Relaxed);
        let mut held = self.held.lock();
        let earlier = held.peek().is_none_or(|head| due < head.due);
        held.push(Held { due, number, from, to, packet: packet.into() });
        drop(held);
        if earlier {
            self.earlier.notify_one();
        }
    }

    fn hand_over(&self) {
        // How long the kernel takes to wake this thread, as a moving mean: it is asked to wake that much
        // earlier, and what is left of the wait is spun away.
        const LONGEST_MARGIN: Duration = Duration::from_micros(80);
        let mut margin = Duration::ZERO;
        let mut held = self.held.lock();
        loop {
            let now = Instant::now();
            match held.peek().map(|head| head.due) {
                None => self.earlier.wait(&mut held),
                Some(due) if due > now + margin => {
                    let asked = due - margin;
                    if self.earlier.wait_until(&mut held, asked).timed_out() {
                        margin = (margin * 7 + asked.elapsed()) / 8;
                        margin = margin.min(LONGEST_MARGIN);
                    }
                }
                Some(due) if due > now => {
                    // The lock is given back, so that a packet due even earlier can come in.
                    parking_lot::MutexGuard::unlocked(&mut held, std::hint::spin_loop);
                }
                Some(due) => {
                    let Some(packet) = held.pop() else { continue };
                    drop(held);
                    self.write(packet.from, packet.to, &packet.packet);
                    let late = due.elapsed().as_nanos() as u64;
                    let mut timing = self.timing.lock();
                    timing.count += 1;
                    timing.late_ns_sum += late;
                    timing.late_ns_max = timing.late_ns_max.max(late);
                    timing.later_than_100us += u64::from(late > 100_000);
                    drop(timing);
                    held = self.held.lock();
                }
            }
        }
    }
}

/// Whether a packet of IP version 4 resets a TCP connection (RFC 9293, section 3.1: the flag RST).
fn is_reset(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    const RST: u8 = 4;
    let flags = usize::from(packet[0] & 15) * 4 + 13;
    packet[9] == TCP && packet.get(flags).is_some_and(|flags| flags & RST != 0)
}

/// Starts a thread that wakes on time, where the machine allows it: real-time priority and no timer slack.
pub(super) fn spawn(
    name: &str,
    priority: i32,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let parameter = libc::sched_param { sched_priority: priority };
        // SAFETY: the struct lives through the call; 0 is the calling thread. Refused, it works less exactly.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameter) };
        work();
    })
}
