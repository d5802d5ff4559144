//! One connection: a socket, its encryption if there is any, and the bytes on their way.
//!
//! The socket stays in blocking mode with time-outs, so that a thread of its own needs two system calls for
//! an operation. Who must not block says so with each call.

use super::tls;
use super::url::{End, Url};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn lost(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "the server did not answer in time".to_string(),
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_string(),
        _ => format!("the connection was lost: {error}"),
    }
}

/// Whether a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until it is done or its time is over, which is the error `TimedOut`.
    Yes,
    /// Not at all.
    No,
}

/// How a call went that might have had to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Done.
    Done,
    /// The socket is not ready.
    Blocked,
}

/// A place whose name was looked up once, so that connecting again asks no name server.
#[derive(Clone)]
pub struct Route {
    hops: Vec<Hop>,
    tls: Option<Arc<ClientConfig>>,
    name: Option<ServerName<'static>>,
}

#[derive(Clone)]
enum Hop {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Route {
    /// Looks `place` up.
    pub fn to(place: &Url) -> Result<Route, String> {
        let hops = match &place.end {
            End::Unix(path) => vec![Hop::Unix(path.clone())],
            End::Tcp(host, port) => (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|error| format!("the host \"{host}\" was not found: {error}"))?
                .map(Hop::Tcp)
                .collect(),
        };
        let tls = tls::configuration(place)?;
        let name = tls.as_ref().map(|_| tls::server_name(place)).transpose()?;
        Ok(Route { hops, tls, name })
    }

    /// The ways to the place, of which one usually answers.
    pub fn ways(&self) -> usize {
        self.hops.len()
    }

    /// Only way number `way`.
    pub fn narrowed(&self, way: usize) -> Route {
        Route { hops: vec![self.hops[way].clone()], ..self.clone() }
    }

    /// Whether encryption may be asked for.
    pub fn may_encrypt(&self) -> bool {
        self.tls.is_some()
    }
}

/// No more than this waits to be understood, whatever lengths a server claims: MongoDB's longest message has
/// 48 MB (`maxMessageSizeBytes`), and no row that is asked for here is longer.
pub const MOST_WAITING: usize = 64 << 20;

/// Bytes that arrived and are not understood yet.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// What has arrived and was not consumed.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// `count` more bytes are understood.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Where the rest begins. Bytes stay where they are until [`Input::forget`].
    #[inline]
    pub fn position(&self) -> usize {
        self.start
    }

    /// Everything from `position` on, consumed or not.
    pub fn from(&self, position: usize) -> &[u8] {
        &self.bytes[position..self.end]
    }

    /// Forgets what was consumed.
    #[inline]
    pub fn forget(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Room for more bytes.
    ///
    /// # Errors
    /// If [`MOST_WAITING`] are there.
    fn room(&mut self) -> io::Result<&mut [u8]> {
        const LEAST: usize = 4 << 10;
        if self.bytes.len() - self.end < LEAST {
            if self.end >= MOST_WAITING {
                let words = format!("the server's answer is longer than {} MiB", MOST_WAITING >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            let length = (self.bytes.len() * 2).clamp(16 << 10, MOST_WAITING + LEAST);
            self.bytes.resize(length, 0);
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// Takes bytes that came by no socket.
    ///
    /// # Errors
    /// If [`MOST_WAITING`] are there.
    pub fn take_in(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.end += count;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

/// Finds the next complete message in what has arrived: its kind or number, and where its body is, counted
/// from
/// [`Input::rest`].
pub type Framing = fn(&Input) -> Option<(u8, std::ops::Range<usize>)>;

/// A connection.
pub struct Channel {
    socket: OwnedFd,
    tls: Option<Box<rustls::ClientConnection>>,
    connecting: bool,
    /// What arrived.
    pub input: Input,
    /// What shall be sent.
    pub output: Vec<u8>,
    sent: usize,
}

impl Channel {
    /// Begins to connect by way number `way`. A single call of the channel waits for at most `timeout`; zero
    /// is for ever.
    pub fn begin(route: &Route, way: usize, timeout: Duration) -> io::Result<Channel> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, address) = match &route.hops[way] {
            Hop::Tcp(address) if address.is_ipv4() => (AddressFamily::INET, Ok(*address)),
            Hop::Tcp(address) => (AddressFamily::INET6, Ok(*address)),
            Hop::Unix(path) => (AddressFamily::UNIX, Err(net::SocketAddrUnix::new(path)?)),
        };
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        let connected = match address {
            Ok(address) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                // A host that vanished without a word is noticed while nothing is sent, too.
                sockopt::set_socket_keepalive(&socket, true)?;
                net::connect(&socket, &address)
            }
            Err(path) => net::connect(&socket, &path),
        };
        let connecting = match connected {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(error) => return Err(error.into()),
        };
        let mut channel =
            Channel { socket, tls: None, connecting, input: Input::default(), output: Vec::new(), sent: 0 };
        channel.set_timeout(timeout)?;
        if !connecting {
            channel.connected()?;
        }
        Ok(channel)
    }

    fn connected(&mut self) -> io::Result<()> {
        self.connecting = false;
        Ok(rustix::io::ioctl_fionbio(&self.socket, false)?)
    }

    /// Changes how long a single call waits at most; zero is for ever.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&self.socket, direction, Some(timeout).filter(|t| !t.is_zero()))?;
        }
        Ok(())
    }

    /// Whether somebody has taken the connection, and it is not encrypted.
    pub fn is_plain(&self) -> bool {
        !self.connecting && self.tls.is_none()
    }

    /// The socket, to wait for.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Goes on with encryption, from the next byte on.
    pub fn encrypt(&mut self, route: &Route) -> io::Result<()> {
        let (Some(configuration), Some(name)) = (&route.tls, &route.name) else {
            return Err(io::Error::other("encryption was not prepared"));
        };
        if !self.input.rest().is_empty() {
            // Whoever sent it wants it to be taken for something that came encrypted.
            return Err(io::Error::other("the server sent more before encryption began"));
        }
        let connection =
            rustls::ClientConnection::new(configuration.clone(), name.clone()).map_err(io::Error::other)?;
        self.tls = Some(Box::new(connection));
        Ok(())
    }

    /// The version and cipher of the encryption.
    pub fn encryption(&self) -> Option<String> {
        let tls = self.tls.as_ref()?;
        let version = tls.protocol_version().and_then(|version| version.as_str().map(str::to_string))?;
        let suite = tls.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str())?;
        Some(format!("{version}, {suite}"))
    }

    /// Whether everything was handed to the system.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty() && self.tls.as_ref().is_none_or(|tls| !tls.wants_write()) && !self.connecting
    }

    /// Sends what is in `output`. `progress` becomes true as soon as the system took a byte of it.
    pub fn flush(&mut self, wait: Wait, progress: &mut bool) -> io::Result<Flow> {
        if self.connecting {
            if wait == Wait::No && !self.is_writable(Duration::ZERO)? {
                return Ok(Flow::Blocked);
            }
            if wait == Wait::Yes {
                let timeout = sockopt::socket_timeout(&self.socket, sockopt::Timeout::Send)?;
                if !self.is_writable(timeout.unwrap_or(Duration::from_secs(3600)))? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            sockopt::socket_error(&self.socket)??;
            self.connected()?;
        }
        let flags = send_flags(wait);
        let Some(tls) = &mut self.tls else {
            while self.sent < self.output.len() {
                match net::send(&self.socket, &self.output[self.sent..], flags) {
                    Ok(count) => self.sent += count,
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) if wait == Wait::No => return Ok(Flow::Blocked),
                    Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => return Err(error.into()),
                }
                *progress = true;
            }
            self.output.clear();
            self.sent = 0;
            return Ok(Flow::Done);
        };
        loop {
            // rustls keeps at most 64 KiB and takes the rest when that is gone.
            if self.sent < self.output.len() {
                self.sent += tls.writer().write(&self.output[self.sent..])?;
            }
            if self.sent == self.output.len() {
                self.output.clear();
                self.sent = 0;
            }
            if !tls.wants_write() {
                if tls.is_handshaking() || self.output.is_empty() {
                    return Ok(Flow::Done);
                }
                continue;
            }
            match tls.write_tls(&mut Raw { socket: &self.socket, wait }) {
                Ok(_) => *progress = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flow::Blocked),
                Err(error) => return Err(error),
            }
        }
    }

    fn is_writable(&self, timeout: Duration) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        Ok(poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&timeout))? > 0)
    }

    /// Waits for the next complete message: its kind or number, and its body. A reason in words if none
    /// comes.
    pub fn message(&mut self, next: Framing) -> Result<(u8, Vec<u8>), String> {
        loop {
            if let Some((kind, range)) = next(&self.input) {
                let body = self.input.rest()[range.clone()].to_vec();
                self.input.consume(range.end);
                self.input.forget();
                return Ok((kind, body));
            }
            self.fill(Wait::Yes).map_err(lost)?;
            if !self.is_flushed() {
                self.say()?;
            }
        }
    }

    /// Sends what is in `output`, waiting for it; a reason in words if that fails.
    pub fn say(&mut self) -> Result<(), String> {
        self.flush(Wait::Yes, &mut false).map(|_: Flow| ()).map_err(lost)
    }

    /// Receives more. The end of the connection is the error `UnexpectedEof`.
    pub fn fill(&mut self, wait: Wait) -> io::Result<Flow> {
        let Some(tls) = &mut self.tls else {
            let flags = recv_flags(wait);
            loop {
                match net::recv(&self.socket, self.input.room()?, flags) {
                    Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok((count, _)) => {
                        self.input.end += count;
                        return Ok(Flow::Done);
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) if wait == Wait::No => return Ok(Flow::Blocked),
                    Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        loop {
            match tls.reader().read(self.input.room()?) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.input.end += count;
                    return Ok(Flow::Done);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match tls.read_tls(&mut Raw { socket: &self.socket, wait }) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    tls.process_new_packets()
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    if tls.wants_write() {
                        // A step of the handshake, or a new key, must go out before more can come in.
                        return Ok(Flow::Done);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flow::Blocked),
                Err(error) => return Err(error),
            }
        }
    }
}

fn send_flags(wait: Wait) -> SendFlags {
    match wait {
        Wait::Yes => SendFlags::NOSIGNAL,
        Wait::No => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    }
}

fn recv_flags(wait: Wait) -> RecvFlags {
    match wait {
        Wait::Yes => RecvFlags::empty(),
        Wait::No => RecvFlags::DONTWAIT,
    }
}

/// The socket under the encryption.
struct Raw<'a> {
    socket: &'a OwnedFd,
    wait: Wait,
}

impl Raw<'_> {
    fn error(&self, error: Errno) -> io::Error {
        match error {
            Errno::AGAIN if self.wait == Wait::Yes => io::ErrorKind::TimedOut.into(),
            error => error.into(),
        }
    }
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = net::recv(self.socket, buffer, recv_flags(self.wait));
        received.map(|(count, _)| count).map_err(|error| self.error(error))
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        net::send(self.socket, buffer, send_flags(self.wait)).map_err(|error| self.error(error))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
