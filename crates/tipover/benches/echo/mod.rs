//! A server on the loopback that sends every request back, and a target that talks to it over wires. For
//! tests and benches of the generator.

use rustix::event::{Timespec, epoll};
use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tipover_core::metric::Metric;
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::{Facts, Progress, Session, Target, TargetError, Wire};
use tipover_core::workload::Dataset;

const SIZE: usize = 64;

/// How the server behaves; all counts are over all connections.
#[derive(Default)]
pub struct Manners {
    /// Requests that came.
    pub seen: AtomicU64,
    /// Every n-th request is never answered; 0 for none.
    pub silent_every: AtomicU64,
    /// Every n-th request is answered by closing its connection; 0 for none.
    pub hangs_up_every: AtomicU64,
    stop: AtomicBool,
}

/// The server; ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub manners: Arc<Manners>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let manners = Arc::new(Manners::default());
        let thread = std::thread::spawn({
            let manners = manners.clone();
            move || serve(&listener, &manners)
        });
        Server { address, manners, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.manners.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, manners: &Manners) {
    listener.set_nonblocking(true).expect("a socket can");
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor is free");
    let add = |descriptor: BorrowedFd<'_>| {
        let data = epoll::EventData::new_u64(descriptor.as_raw_fd() as u64);
        epoll::add(&poll, descriptor, data, epoll::EventFlags::IN).expect("it can be waited for");
    };
    add(listener.as_fd());
    let mut connections: HashMap<u64, TcpStream> = HashMap::new();
    let mut events = Vec::with_capacity(1024);
    let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !manners.stop.load(Ordering::Relaxed) {
        events.clear();
        let _ = epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
        for event in &events {
            let key = event.data.u64();
            if key == listener.as_raw_fd() as u64 {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true).expect("TCP can");
                    stream.set_nonblocking(true).expect("a socket can");
                    add(stream.as_fd());
                    connections.insert(stream.as_raw_fd() as u64, stream);
                }
            } else if !connections.get(&key).is_some_and(|stream| echo(stream, manners)) {
                connections.remove(&key);
            }
        }
    }
}

/// Whether the connection lives on.
fn echo(mut stream: &TcpStream, manners: &Manners) -> bool {
    let (mut request, mut got) = ([0; SIZE], 0);
    while got < SIZE {
        match stream.read(&mut request[got..]) {
            Ok(0) => return false,
            Ok(read) => got += read,
            // An event of the connection that had this descriptor before: nothing has come on this one yet.
            Err(error) if error.kind() == ErrorKind::WouldBlock && got == 0 => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(_) => return false,
        }
    }
    let seen = manners.seen.fetch_add(1, Ordering::Relaxed) + 1;
    let every = |count: &AtomicU64| match count.load(Ordering::Relaxed) {
        0 => false,
        every => seen.is_multiple_of(every),
    };
    if every(&manners.hangs_up_every) {
        let _ = stream.shutdown(Shutdown::Both);
        return false;
    }
    every(&manners.silent_every) || stream.write_all(&request).is_ok()
}

/// The server as a target. Its sessions have wires if `wires`, and block otherwise.
pub struct Echo {
    pub address: SocketAddr,
    pub wires: bool,
}

impl Target for Echo {
    fn facts(&self) -> Result<Facts, TargetError> {
        Ok(Facts::from([("system".into(), "echo".into())]))
    }
    fn accepts(&self, _: OpKind) -> bool {
        true
    }
    fn load(&self, _: &Dataset, _: Range<u64>) -> Result<(), TargetError> {
        Ok(())
    }
    fn settle(&self) -> Result<(), TargetError> {
        Ok(())
    }
    fn open<'a>(&'a self, _: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        let mut session =
            EchoSession { echo: self, stream: None, request: [0; SIZE], moved: 0, writes: false };
        session.connect().map_err(|error| TargetError::new("connecting", error))?;
        Ok(Box::new(session))
    }
    fn metrics(&self) -> Vec<Metric> {
        vec![]
    }
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        Ok(BTreeMap::new())
    }
}

struct EchoSession<'a> {
    echo: &'a Echo,
    stream: Option<TcpStream>,
    request: [u8; SIZE],
    /// Bytes sent, and from [`SIZE`] on bytes sent and received.
    moved: usize,
    writes: bool,
}

impl EchoSession<'_> {
    fn connect(&mut self) -> std::io::Result<()> {
        let stream = TcpStream::connect(self.echo.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(self.echo.wires)?;
        self.stream = Some(stream);
        Ok(())
    }

    fn lost(&mut self) -> Progress {
        self.stream = None;
        Progress::Finished(if self.writes {
            Outcome::Unknown(Failure::Unavailable)
        } else {
            Outcome::Refused(Failure::Unavailable)
        })
    }
}

impl Session for EchoSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let begun = Wire::begin(self, op);
        // Whether a session with a wire is driven by that or by this shows only now.
        if let Some(stream) = self.stream.as_ref().filter(|_| self.echo.wires) {
            stream.set_nonblocking(false).expect("a socket of ours");
        }
        match begun {
            Progress::Finished(outcome) => outcome,
            _ => match Wire::advance(self) {
                Progress::Finished(outcome) => outcome,
                other => panic!("a blocking stream is {other:?}"),
            },
        }
    }

    fn wire(&mut self) -> Option<&mut dyn Wire> {
        if self.echo.wires { Some(self) } else { None }
    }
}

impl Wire for EchoSession<'_> {
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    fn begin(&mut self, op: &Op) -> Progress {
        (self.moved, self.writes) = (0, op.kind().writes());
        if self.stream.is_none() && self.connect().is_err() {
            return self.lost();
        }
        let Some(stream) = &mut self.stream else { return self.lost() };
        match stream.write(&self.request) {
            Ok(SIZE) => {
                self.moved = SIZE;
                Progress::Receiving
            }
            _ => self.lost(),
        }
    }

    fn advance(&mut self) -> Progress {
        let Some(stream) = &mut self.stream else { return self.lost() };
        loop {
            match stream.read(&mut self.request[self.moved - SIZE..]) {
                Ok(0) => return self.lost(),
                Ok(read) if self.moved + read == 2 * SIZE => return Progress::Finished(Outcome::Done),
                Ok(read) => self.moved += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Receiving,
                Err(_) => return self.lost(),
            }
        }
    }

    fn abandon(&mut self) {
        self.stream = None;
    }
}
