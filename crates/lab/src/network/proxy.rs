//! For a machine without root: a TCP proxy on the loopback that delays, slows down and cuts.
//!
//! What is lost against the [`super::Network`]: TCP hides packets, so there is no loss, no duplicate and no
//! reordering; a cut holds bytes back instead of dropping them, so no retransmission timer ever runs; and
//! only connections that go through it are touched, not those between nodes that know each other's real
//! ports.

use super::link::{Link, LinkCounters, Senseless};
use super::switch::spawn;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How much of one direction of one connection may be held; then its sender is not read, as with a full
/// window.
const WINDOW: usize = 1 << 20;

#[derive(Debug, Default)]
struct Rules {
    links: Mutex<[Link; 2]>,
    counters: Mutex<[LinkCounters; 2]>,
    ended: AtomicBool,
    /// Both ends of each.
    connections: Mutex<Vec<[TcpStream; 2]>>,
}

/// A port of the loopback that leads to a server, through a link each way. Dropping it closes all
/// connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: Arc<Rules>,
}

impl Proxy {
    /// Listens on a free port of the loopback for clients of `server`.
    pub fn start(server: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let rules = Arc::new(Rules::default());
        let shared = rules.clone();
        std::thread::Builder::new().name("proxy".into()).spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Relaxed) {
                    return;
                }
                // A client that is gone already, or a server that refuses: the client sees its connection
                // end.
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect(server) else { continue };
                let _ = connect(client, server, &shared);
            }
        })?;
        Ok(Proxy { address, rules })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to bytes to the server and from it, from now on.
    ///
    /// # Errors
    /// Loss, duplicates and reordering cannot be had without root.
    pub fn set(&self, to_server: Link, from_server: Link) -> Result<(), Senseless> {
        for link in [to_server, from_server] {
            link.check()?;
            if link.loss.0 + link.duplicate.0 + link.reorder.0 > 0.0 {
                let words = "a proxy cannot lose, double or reorder packets, because TCP hides them; run as \
                             root for a shaped network";
                return Err(Senseless(words.into()));
            }
        }
        *self.rules.links.lock() = [to_server, from_server];
        Ok(())
    }

    /// What happened to the server and from it so far; a packet is here what one read gave.
    pub fn counters(&self) -> [LinkCounters; 2] {
        *self.rules.counters.lock()
    }

    /// Ends all connections at once, as a reset in the network does; new ones are let in. Returns how many.
    pub fn reset(&self) -> usize {
        let connections = std::mem::take(&mut *self.rules.connections.lock());
        // One that ended by itself answers with an error, and was not reset by us. As soon as one end is shut
        // down, the thread between them may shut down the other.
        let reset = |ends: &&[TcpStream; 2]| {
            let ended = ends.each_ref().map(|end| end.shutdown(Shutdown::Both));
            ended.iter().any(Result::is_ok)
        };
        connections.iter().filter(reset).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.rules.ended.store(true, Relaxed);
        self.reset();
        // Wakes the thread that waits for clients.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(client: TcpStream, server: TcpStream, rules: &Arc<Rules>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut connections = rules.connections.lock();
    connections.retain(|ends| ends.iter().any(|end| end.peer_addr().is_ok()));
    connections.push([client.try_clone()?, server.try_clone()?]);
    drop(connections);
    pump(0, client.try_clone()?, server.try_clone()?, rules.clone())?;
    pump(1, server, client, rules.clone())
}

#[derive(Default)]
struct Queue {
    held: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    ended: bool,
}

/// Two threads for one direction: one reads and stamps, one waits until each piece is due and writes it.
fn pump(direction: usize, mut from: TcpStream, mut to: TcpStream, rules: Arc<Rules>) -> io::Result<()> {
    let queue = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
    let (filled, shared) = (queue.clone(), rules.clone());
    spawn("proxy reads", 20, move || {
        let mut buffer = vec![0; 1 << 16];
        let mut free = Instant::now();
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let now = Instant::now();
            let link = shared.links.lock()[direction];
            let mut due = now + link.delay;
            if let Some(speed) = link.bandwidth {
                let sending = Duration::from_secs_f64(length as f64 / speed.0 as f64);
                free = free.max(now) + sending;
                due = free + link.delay;
            }
            let mut counters = shared.counters.lock();
            counters[direction].sent += 1;
            counters[direction].bytes += length as u64;
            counters[direction].delayed += u64::from(due > now);
            counters[direction].cut += u64::from(link.cut);
            drop(counters);
            let (state, changed) = &*filled;
            let mut state = state.lock();
            while state.bytes > WINDOW && !state.ended {
                changed.wait(&mut state);
            }
            state.bytes += length;
            state.held.push_back((due, buffer[..length].to_vec()));
            changed.notify_all();
        }
        filled.0.lock().ended = true;
        filled.1.notify_all();
    })?;
    spawn("proxy writes", 21, move || {
        let (state, changed) = &*queue;
        let mut state = state.lock();
        loop {
            let now = Instant::now();
            let cut = rules.links.lock()[direction].cut;
            match state.held.front().map(|(due, _)| *due) {
                None if state.ended => break,
                None => changed.wait(&mut state),
                // Looked at again soon: changing a rule does not know of every connection.
                Some(_) if cut && !rules.ended.load(Relaxed) => {
                    let _ = changed.wait_until(&mut state, now + Duration::from_millis(1));
                }
                Some(due) if due > now => {
                    let _ = changed.wait_until(&mut state, due);
                }
                Some(_) => {
                    let Some((_, piece)) = state.held.pop_front() else { continue };
                    state.bytes -= piece.len();
                    changed.notify_all();
                    drop(state);
                    let written = to.write_all(&piece);
                    rules.counters.lock()[direction].delivered += u64::from(written.is_ok());
                    state = queue.0.lock();
                    if written.is_err() {
                        state.ended = true;
                        state.held.clear();
                        changed.notify_all();
                    }
                }
            }
        }
        drop(state);
        let _ = to.shutdown(Shutdown::Write);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::units::{Bytes, Ratio};

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                std::thread::spawn(move || io::copy(&mut &stream, &mut &stream));
            }
        });
        address
    }

    fn round_trip(stream: &mut TcpStream) -> Duration {
        let began = Instant::now();
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        began.elapsed()
    }

    #[test]
    fn bytes_are_delayed_cut_and_healed() {
        let proxy = Proxy::start(echo()).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        round_trip(&mut stream);
        let delay = Duration::from_millis(20);
        proxy.set(Link::delayed(delay), Link::delayed(delay)).unwrap();
        for _ in 0..5 {
            assert!(round_trip(&mut stream) >= 2 * delay);
        }
        assert!(proxy.counters().iter().all(|counters| counters.delayed >= 5));

        proxy.set(Link::default(), Link::cut()).unwrap();
        stream.write_all(b"ping").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(stream.read_exact(&mut [0; 4]).is_err(), "an answer came through a cut");
        assert!(proxy.counters()[1].cut > 0, "the cut touched something");
        proxy.set(Link::default(), Link::default()).unwrap();
        stream.set_read_timeout(None).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();

        assert_eq!(proxy.reset(), 1);
        assert!(matches!(stream.read(&mut [0; 4]), Ok(0) | Err(_)), "the connection outlived its reset");
        assert!(round_trip(&mut TcpStream::connect(proxy.address()).unwrap()) > Duration::ZERO);
    }

    #[test]
    fn bandwidth_is_bounded() {
        let proxy = Proxy::start(echo()).unwrap();
        let slow = Link { bandwidth: Some(Bytes(1_000_000)), ..Link::default() };
        proxy.set(slow, Link::default()).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let began = Instant::now();
        let mut reader = stream.try_clone().unwrap();
        let read = std::thread::spawn(move || reader.read_exact(&mut vec![0; 200_000]));
        stream.write_all(&vec![7; 200_000]).unwrap();
        read.join().unwrap().unwrap();
        assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    }

    #[test]
    fn what_tcp_hides_is_refused() {
        let proxy = Proxy::start("127.0.0.1:9".parse().unwrap()).unwrap();
        let lossy = Link { loss: Ratio(0.1), ..Link::default() };
        assert!(proxy.set(lossy, Link::default()).unwrap_err().to_string().contains("run as root"));
    }
}
