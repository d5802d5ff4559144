//! What servers have in common: addresses, sockets, encryption, making a connection anew, and one session
//! that either blocks its thread or never blocks.

mod channel;
mod course;
mod link;
mod row;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod sql;
mod tls;
pub mod untrusted;
mod url;

pub use channel::{Channel, Flow, Framing, Input, MOST_WAITING, Route, Wait};
pub use course::{Course, text_value};
pub use link::Link;
pub use row::Row;
pub use url::{Dialect, Encryption, Url, decoded};

use std::io;
use std::time::{Duration, Instant};
use tipover_core::check;
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::{Progress, Remarks};

/// The begin of a conversation: from the first byte until operations can be sent.
pub trait Greeting {
    /// Forgets what was before and says the first words, if it is the client that begins.
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>);

    /// Understands what it can of `input`, and answers in `output`. `encrypted` says whether the channel is.
    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step;
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// What is in the output is sent, and more is expected.
    More,
    /// Encryption begins now.
    Encrypt,
    /// Operations can be sent.
    Ready,
    /// The server, or we, will not.
    Refused(Refusal),
}

/// Why there is no connection.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// As an operation's failure.
    pub failure: Failure,
    /// In words, with what to do where that is known. Never has a password in it.
    pub reason: String,
}

impl Refusal {
    /// A server that was not there.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Refusal { failure: Failure::Unavailable, reason: reason.into() }
    }
}

/// One kind of server's way to execute operations, after its [`Greeting`].
pub trait Protocol: Greeting {
    /// Writes the request for `op`; false if there is none.
    fn encode(&mut self, op: &Op, output: &mut Vec<u8>) -> bool;

    /// Understands what it can of the answer; may ask for more in `output`.
    fn answer(&mut self, input: &mut Input, output: &mut Vec<u8>) -> Received;

    /// Goes on with an operation that waits for no answer: one that was encoded to nothing, or after its
    /// pause.
    fn resume(&mut self, output: &mut Vec<u8>) -> Received {
        let _ = output;
        unreachable!("every operation of this protocol is a request and an answer")
    }

    /// See [`tipover_core::target::Session::take_seat`].
    fn take_seat(&mut self, number: u32) {
        let _ = number;
    }

    /// Whether the next operation shall have a connection of its own.
    fn reconnects(&self) -> bool {
        false
    }

    /// The operation at hand is over because of its connection.
    fn lost(&mut self, reason: &str) {
        let _ = reason;
    }

    /// See [`tipover_core::target::Session::remarks`].
    fn remarks(&self) -> Option<&Remarks> {
        None
    }

    /// Whether a write whose connection is lost now may have happened. Not so before a transaction's commit
    /// was sent.
    fn may_have_happened(&self) -> bool {
        true
    }

    /// The value of `field` that the last read brought, which still lies in `input`.
    fn fetched<'a>(&'a self, input: &'a Input, field: u16) -> Option<&'a [u8]>;

    /// How many records the last read or scan brought.
    fn fetched_records(&self) -> u32;

    /// What the last operation was answered with if it read balances or lists, and was done.
    fn brought(&self) -> check::Returned {
        check::Returned::Nothing
    }

    /// Whether the request that was encoded last is answered at all; else it is done once it is sent.
    fn is_answered(&self) -> bool {
        true
    }

    /// What to send on another connection, unencrypted, so that the server stops working on an operation
    /// that was given up.
    fn cancellation(&self) -> Option<Vec<u8>> {
        None
    }
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Not complete.
    More,
    /// Complete.
    Complete(Outcome),
    /// Complete, and the connection is of no more use.
    Last(Outcome),
    /// The client itself wants to wait this long, and then go on ([`Protocol::resume`]).
    Pause(Duration),
}

/// How far a greeting has come.
enum Greeted {
    Ready,
    Waiting(Progress),
    Refused(Refusal),
}

/// No message of a greeting is longer; libpq allows an error 30,000 bytes, and MySQL's key has a few hundred.
const LONGEST_GREETING: usize = 64 << 10;

/// Goes on with a greeting.
fn greet(
    channel: &mut Channel,
    route: &Route,
    greeting: &mut dyn Greeting,
    wait: Wait,
    deadline: Option<Instant>,
) -> io::Result<Greeted> {
    loop {
        if !channel.is_flushed() && channel.flush(wait, &mut false)? == Flow::Blocked {
            return Ok(Greeted::Waiting(Progress::Sending));
        }
        let encrypted = channel.encryption().is_some();
        match greeting.greet(&mut channel.input, &mut channel.output, encrypted) {
            Step::Ready => return Ok(Greeted::Ready),
            Step::Refused(refusal) => return Ok(Greeted::Refused(refusal)),
            Step::Encrypt => {
                // MySQL announces it in a last unencrypted message.
                while channel.flush(Wait::Yes, &mut false)? == Flow::Blocked {}
                channel.encrypt(route)?;
            }
            Step::More if !channel.is_flushed() => {}
            Step::More => {
                channel.input.forget();
                if channel.input.rest().len() > LONGEST_GREETING {
                    return Err(io::Error::other("what answers there has too much to say for a greeting"));
                }
                if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                if channel.fill(wait)? == Flow::Blocked {
                    return Ok(Greeted::Waiting(Progress::Receiving));
                }
            }
        }
    }
}

/// Words that are answered by what waits for words, as web servers do, and are of no use to a database.
pub const NUDGE: &[u8] = b"\r\nGET / HTTP/1.0\r\n\r\n";

/// What else it is that begins to speak with `bytes`, where that is easily known.
pub fn stranger(bytes: &[u8]) -> Option<&'static str> {
    let begins =
        |words: &str| bytes.get(..words.len()).is_some_and(|b| b.eq_ignore_ascii_case(words.as_bytes()));
    if begins("HTTP/") || begins("<!DOCTYPE") || begins("<html") {
        return Some("an HTTP server");
    }
    begins("SSH-").then_some("an SSH server")
}

/// A refusal with the stranger's name in it, if there is one in what it said.
fn named(refusal: Refusal, said: &[u8]) -> Refusal {
    let Some(name) = stranger(said) else { return refusal };
    let reason = match refusal.reason.strip_prefix("what answers there ") {
        Some(rest) => format!("what answers there is {name}: it {rest}"),
        None => format!("what answers there is {name}; is the port right?"),
    };
    Refusal { reason, ..refusal }
}

/// Why a server that took the connection says nothing. It may be another one, that waits for words of its own
/// protocol: then its answer to [`NUDGE`] is none of this one's. The connection is given up in any case.
fn silent(channel: &mut Channel, greeting: &mut dyn Greeting, another: io::Result<Channel>) -> Refusal {
    const PATIENCE: Duration = Duration::from_secs(1);
    let provoked = |channel: &mut Channel, words: &[u8]| {
        channel.set_timeout(PATIENCE)?;
        channel.output.extend_from_slice(words);
        channel.flush(Wait::Yes, &mut false)?;
        channel.fill(Wait::Yes)
    };
    if provoked(channel, NUDGE).is_ok()
        && let Step::Refused(refusal) = greeting.greet(&mut channel.input, &mut Vec::new(), false)
    {
        return named(refusal, channel.input.from(0));
    }
    // There are web servers that hang up on whoever does not begin with a request.
    if let Ok(mut another) = another
        && provoked(&mut another, NUDGE.trim_ascii_start()).is_ok()
        && let Some(name) = stranger(another.input.rest())
    {
        return Refusal::unavailable(format!("what answers there is {name}; is the port right?"));
    }
    Refusal::unavailable(
        "the connection is taken, and then no answer in time; is the port right, and does the server not hang?",
    )
}

/// Connects and waits until operations can be sent. Also says which way of `route` it was.
pub fn connect(
    route: &Route,
    greeting: &mut dyn Greeting,
    timeout: Duration,
) -> Result<(Channel, usize), Refusal> {
    let mut last = Refusal::unavailable("the host has no address");
    for way in 0..route.ways() {
        let failed = |error: io::Error| Refusal::unavailable(in_words(&error));
        let mut attempt = || {
            let mut channel = Channel::begin(route, way, timeout).map_err(failed)?;
            greeting.start(route.may_encrypt(), &mut channel.output);
            let deadline = Some(Instant::now() + timeout);
            let greeted = match greet(&mut channel, route, greeting, Wait::Yes, deadline) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && channel.is_plain() => {
                    return Err(silent(&mut channel, greeting, Channel::begin(route, way, timeout)));
                }
                Err(error) => return Err(named(failed(error), channel.input.from(0))),
                Ok(Greeted::Refused(refusal)) => Greeted::Refused(named(refusal, channel.input.from(0))),
                Ok(greeted) => greeted,
            };
            Ok((channel, greeted))
        };
        match attempt() {
            Ok((channel, Greeted::Ready)) => return Ok((channel, way)),
            Ok((_, Greeted::Refused(refusal))) => return Err(refusal),
            Ok((_, Greeted::Waiting(_))) => last = Refusal::unavailable("it did not answer"),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

/// An error of a connection, and what it usually means.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: nothing listens there; is the server running, and is the port right?".into()
        }
        io::ErrorKind::NotFound => "there is no such socket file; is the server running?".into(),
        io::ErrorKind::TimedOut => {
            "no answer in time; is the address right, and does no firewall drop it?".into()
        }
        io::ErrorKind::UnexpectedEof => "the server closed the connection".into(),
        io::ErrorKind::InvalidData if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
            format!(
                "encryption failed: {error}; give the server's authority as a file, or ask for less checking"
            )
        }
        _ => error.to_string(),
    }
}

/// What tests of servers share.
#[cfg(test)]
pub mod testing {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use tipover_core::experiment::Spec;

    /// The port of something that is no database: a web server, which waits for the end of a line before it
    /// says a word, or one that takes connections and never says any. It ends with the test's process, and
    /// holds nothing else.
    pub fn stranger(is_web_server: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut input = BufReader::new(&stream);
                    if is_web_server {
                        let _ = input.read_until(b'\n', &mut Vec::new());
                        let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
                        return;
                    }
                    let _ = input.read_to_end(&mut Vec::new());
                });
            }
        });
        port
    }

    /// The settings of a cell for a server of `kind` at `url`.
    pub fn spec(kind: &str, url: &str) -> Spec {
        let spec = serde_json::json!({
            "target": {"kind": kind, "address": url},
            "disk": {"size": 0},
            "workload": {"records": 600},
            "load": {"sessions": 1},
        });
        serde_json::from_value(spec).unwrap()
    }
}
