//! One connection to one server: made, greeted and authenticated without blocking, then messages both ways.

use super::cluster::{Cluster, Hello, count};
use super::message::{self, Incoming, Writer};
use super::options::Host;
use super::scram::{Exchange, Mechanism};
use crate::connection::{Channel, Flow, Route, Wait};
use bson::RawDocument;
use std::io;
use std::time::Duration;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing answers there, or it went away: trying again may help.
    Network(String),
    /// Trying again will not help: not MongoDB, the wrong encryption, the wrong password.
    Hopeless(String),
}

impl Trouble {
    /// The reason, as a user reads it.
    pub fn text(&self) -> &str {
        match self {
            Trouble::Network(text) | Trouble::Hopeless(text) => text,
        }
    }
}

enum Stage {
    /// This greeting was sent, or waits for the socket to connect.
    Greeting(&'static str),
    /// The first SASL message was sent.
    Beginning(Exchange),
    /// The proof was sent.
    Proving(Exchange),
    /// The server wanted one more, empty turn.
    Closing,
    Ready,
}

/// A connection.
pub struct Link {
    /// To whom.
    pub host: Host,
    /// What it said of itself.
    pub hello: Hello,
    channel: Channel,
    route: Route,
    way: usize,
    timeout: Duration,
    stage: Stage,
    /// Length of the message at the front of the input, once it was looked at.
    message: usize,
}

const HANDSHAKE_ID: i32 = 1;
/// What a client says first, and how that was called before 4.4.2.
const GREETINGS: [&str; 2] = ["hello", "isMaster"];
/// `CommandNotFound`
pub const COMMAND_NOT_FOUND: i32 = 59;

impl Link {
    /// Begins to connect to `host`.
    pub fn open(cluster: &Cluster, host: &Host) -> Result<Link, Trouble> {
        let route = cluster.route(host).map_err(Trouble::Hopeless)?;
        let mut way = 0;
        let channel = loop {
            match Channel::begin(&route, way, cluster.timeout) {
                Ok(channel) => break channel,
                Err(_) if way + 1 < route.ways() => way += 1,
                Err(error) => return Err(Trouble::Network(words(host, &error))),
            }
        };
        count(&cluster.counts.connections);
        let mut link = Link {
            host: host.clone(),
            hello: Hello::default(),
            channel,
            route,
            way,
            timeout: cluster.timeout,
            stage: Stage::Greeting(GREETINGS[0]),
            message: 0,
        };
        link.connect(cluster)?;
        Ok(link)
    }

    /// Goes on where the socket is new.
    fn connect(&mut self, cluster: &Cluster) -> Result<(), Trouble> {
        if cluster.options.encryption.is_some() {
            let encrypted = self.channel.encrypt(&self.route);
            encrypted.map_err(|error| Trouble::Hopeless(words(&self.host, &error)))?;
        }
        self.greet(cluster, GREETINGS[0]);
        Ok(())
    }

    fn greet(&mut self, cluster: &Cluster, greeting: &'static str) {
        self.stage = Stage::Greeting(greeting);
        let mut writer = Writer::default();
        writer.begin(HANDSHAKE_ID, 0);
        writer.int32(greeting, 1);
        if let (Some((user, _)), None) = (&cluster.options.login, &cluster.options.mechanism) {
            let name = format!("{}.{user}", cluster.options.login_database);
            writer.string("saslSupportedMechs", name.as_bytes());
        }
        writer.begin_document("client");
        writer.begin_document("application");
        writer.string("name", b"tipover");
        writer.end();
        writer.begin_document("driver");
        writer.string("name", b"tipover");
        writer.string("version", env!("CARGO_PKG_VERSION").as_bytes());
        writer.end();
        writer.begin_document("os");
        writer.string("type", b"Linux");
        writer.end();
        writer.end();
        writer.string("$db", b"admin");
        self.queue(writer.finish());
    }

    /// Goes on with connecting, greeting and authenticating; true when the connection is ready for use.
    pub fn establish(&mut self, cluster: &Cluster) -> Result<bool, Trouble> {
        loop {
            if matches!(self.stage, Stage::Ready) {
                return Ok(true);
            }
            let mut sent = false;
            let answered = match self.flush(Wait::No, &mut sent) {
                Ok(Flow::Blocked) => return Ok(false),
                Ok(Flow::Done) => self.receive(Wait::No),
                Err(error) => Err(error),
            };
            match answered {
                Ok(true) => self.answered(cluster)?,
                Ok(false) => return Ok(false),
                Err(error) if !sent && self.way + 1 < self.route.ways() => {
                    // A name with several addresses, of which the first does not answer.
                    self.way += 1;
                    self.channel = Channel::begin(&self.route, self.way, self.timeout)
                        .map_err(|_| Trouble::Network(words(&self.host, &error)))?;
                    self.connect(cluster)?;
                    return Ok(false);
                }
                Err(error) => return Err(self.trouble(&error, cluster)),
            }
        }
    }

    /// Whether the other side has not said who it is.
    pub fn is_greeting(&self) -> bool {
        matches!(self.stage, Stage::Greeting(_))
    }

    fn trouble(&self, error: &io::Error, cluster: &Cluster) -> Trouble {
        let text = words(&self.host, error);
        let encrypted = cluster.options.encryption.is_some();
        match (&self.stage, error.kind()) {
            (Stage::Greeting(_), io::ErrorKind::InvalidData) if encrypted => Trouble::Hopeless(format!(
                "TLS with {text}; leave tls=true out if the server does not speak TLS"
            )),
            (Stage::Greeting(_), io::ErrorKind::InvalidData) => {
                Trouble::Hopeless(format!("{text}; add tls=true if the server wants TLS"))
            }
            (Stage::Greeting(_), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                let guess =
                    if encrypted { "does it speak TLS at all?" } else { "does it want TLS (tls=true)?" };
                Trouble::Network(format!("{} closed the connection on the first message; {guess}", self.host))
            }
            _ => Trouble::Network(text),
        }
    }

    fn answered(&mut self, cluster: &Cluster) -> Result<(), Trouble> {
        let host = self.host.clone();
        let bad = |text: String| Trouble::Hopeless(format!("{host}: {text}"));
        let body = self.incoming().map_err(bad)?.body.to_owned();
        self.consume();
        let ok = super::cluster::integer(&body, "ok") == Some(1);
        match std::mem::replace(&mut self.stage, Stage::Ready) {
            Stage::Greeting(greeting) => {
                let unknown = super::cluster::integer(&body, "code") == Some(COMMAND_NOT_FOUND.into());
                if unknown && greeting == GREETINGS[0] {
                    self.greet(cluster, GREETINGS[1]);
                    return Ok(());
                }
                if !ok {
                    return Err(bad(refusal(greeting, &body)));
                }
                self.hello = Hello::read(&body).map_err(&bad)?;
                if let Some((user, _)) = &cluster.options.login {
                    self.log_in(cluster, user)?;
                }
            }
            Stage::Beginning(mut exchange) => {
                if !ok {
                    return Err(self.denied(cluster, &body));
                }
                let mechanism = exchange_mechanism(cluster, &self.hello);
                let proof =
                    exchange.prove(payload(&body), |salt, rounds| cluster.salted(mechanism, salt, rounds));
                let proof = proof.map_err(&bad)?;
                self.go_on(cluster, &body, proof.as_bytes());
                self.stage = Stage::Proving(exchange);
            }
            Stage::Proving(exchange) => {
                if !ok {
                    return Err(self.denied(cluster, &body));
                }
                if !exchange.is_proved(payload(&body)) {
                    return Err(bad("the server could not prove that it knows the password".into()));
                }
                if !body.get_bool("done").unwrap_or(false) {
                    self.go_on(cluster, &body, b"");
                    self.stage = Stage::Closing;
                }
            }
            Stage::Closing if !ok => return Err(self.denied(cluster, &body)),
            Stage::Closing | Stage::Ready => {}
        }
        Ok(())
    }

    fn log_in(&mut self, cluster: &Cluster, user: &str) -> Result<(), Trouble> {
        let mechanism = exchange_mechanism(cluster, &self.hello);
        let nonce = bson::Uuid::new().to_string() + &bson::Uuid::new().to_string();
        let exchange = Exchange::new(mechanism, user, nonce);
        let mut writer = Writer::default();
        writer.begin(HANDSHAKE_ID, 0);
        writer.int32("saslStart", 1);
        writer.string("mechanism", mechanism.name().as_bytes());
        writer.binary("payload", exchange.first().as_bytes());
        writer.begin_document("options");
        writer.boolean("skipEmptyExchange", true);
        writer.end();
        writer.string("$db", cluster.options.login_database.as_bytes());
        self.queue(writer.finish());
        self.stage = Stage::Beginning(exchange);
        Ok(())
    }

    fn go_on(&mut self, cluster: &Cluster, answer: &RawDocument, payload: &[u8]) {
        let conversation = super::cluster::integer(answer, "conversationId").unwrap_or(1);
        let mut writer = Writer::default();
        writer.begin(HANDSHAKE_ID, 0);
        writer.int32("saslContinue", 1);
        writer.int32("conversationId", conversation as i32);
        writer.binary("payload", payload);
        writer.string("$db", cluster.options.login_database.as_bytes());
        self.queue(writer.finish());
    }

    fn denied(&self, cluster: &Cluster, body: &RawDocument) -> Trouble {
        let user = cluster.options.login.as_ref().map_or("", |(user, _)| user.as_str());
        Trouble::Hopeless(format!(
            "{} refused the user \"{user}\" of the database \"{}\": {}; check name, password and authSource",
            self.host,
            cluster.options.login_database,
            body.get_str("errmsg").unwrap_or("no reason given")
        ))
    }

    /// Appends a message to what shall be sent.
    pub fn queue(&mut self, message: &[u8]) {
        self.channel.output.extend_from_slice(message);
    }

    /// Sends what is queued.
    pub fn flush(&mut self, wait: Wait, sent: &mut bool) -> io::Result<Flow> {
        self.channel.flush(wait, sent)
    }

    /// Whether something waits for the socket to become writable.
    pub fn wants_to_send(&self) -> bool {
        !self.channel.is_flushed()
    }

    /// Waits for a whole message; false if none is there yet and waiting is not wanted.
    pub fn receive(&mut self, wait: Wait) -> io::Result<bool> {
        loop {
            let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
            if let Some(length) = message::length(self.channel.input.rest()).map_err(invalid)?
                && self.channel.input.rest().len() >= length
            {
                self.message = length;
                return Ok(true);
            }
            if self.wants_to_send() {
                // A step of TLS.
                self.channel.flush(wait, &mut false)?;
            }
            if self.channel.fill(wait)? == Flow::Blocked {
                return Ok(false);
            }
        }
    }

    /// The message at the front.
    pub fn incoming(&self) -> Result<Incoming<'_>, String> {
        message::parse(&self.channel.input.rest()[..self.message])
    }

    /// The message at the front is not needed any more.
    pub fn consume(&mut self) {
        self.channel.input.consume(std::mem::take(&mut self.message));
        self.channel.input.forget();
    }

    /// The socket.
    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// Version and cipher of the encryption, if there is any.
    pub fn encryption(&self) -> Option<String> {
        self.channel.encryption()
    }
}

fn exchange_mechanism(cluster: &Cluster, hello: &Hello) -> Mechanism {
    match cluster.options.mechanism.as_deref() {
        Some("SCRAM-SHA-1") => Mechanism::Sha1,
        Some(_) => Mechanism::Sha256,
        // A server that does not say is older than SHA-256.
        None if hello.mechanisms.iter().any(|name| name == Mechanism::Sha256.name()) => Mechanism::Sha256,
        None => Mechanism::Sha1,
    }
}

fn payload(body: &RawDocument) -> &str {
    let bytes = body.get_binary("payload").map(|binary| binary.bytes).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// What the server said against a command.
pub fn refusal(command: &str, body: &RawDocument) -> String {
    let code =
        super::cluster::integer(body, "code").map(|code| format!(" (code {code})")).unwrap_or_default();
    format!("{command} was refused: {}{code}", body.get_str("errmsg").unwrap_or("no reason given"))
}

fn words(host: &Host, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{host}: nothing listens there (connection refused)"),
        io::ErrorKind::UnexpectedEof => format!("{host} closed the connection"),
        io::ErrorKind::TimedOut => format!("{host} did not answer in time"),
        _ => format!("{host}: {error}"),
    }
}
