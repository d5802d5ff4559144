//! Serves the page of a run on loopback, or elsewhere to whoever has the token.
//!
//! HTTP as far as one page and its followers need it: every request has a connection and a thread of its own,
//! so that one who reads slowly holds up nobody else.

use super::state::State;
use super::{metrics, page};
use crate::report;
use anyhow::{Context, Result, anyhow};
use parking_lot::{Condvar, Mutex};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Always the same, so that a page in the browser goes on with the next run.
const PORT: u16 = 8462;
/// A page is no film, and each state of it costs both sides.
const BETWEEN_UPDATES: Duration = Duration::from_secs(1);
/// How long nothing new may happen before that is told, so that whoever went away is noticed.
const STILL_HERE: Duration = Duration::from_secs(10);
/// Connections that are served at once; whoever comes then is sent away.
const MOST: usize = 32;
/// How long the last state of a run waits for those who look.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a reader may say nothing, or take nothing, before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// No request of a browser is longer.
const LONGEST_REQUEST: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// Where a run can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// On loopback, at our own port or, where that is taken, at any.
    Loopback,
    /// There and nowhere else.
    At(SocketAddr),
}

impl Address {
    /// What `--live` without a value means.
    pub const DEFAULT: &'static str = "loopback";
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Address::DEFAULT {
            return Ok(Address::Loopback);
        }
        let port = text.parse().map(|port: u16| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        let address = text.replace("localhost", "127.0.0.1").parse().or(port);
        address.map(Address::At).map_err(|_| format!("{text:?} is neither a port nor ADDRESS:PORT"))
    }
}

/// A run that can be followed while this lives.
pub struct Live {
    shared: Arc<Shared>,
    listener: TcpListener,
    url: String,
}

struct Shared {
    state: Mutex<Versioned>,
    changed: Condvar,
    /// The last update that was made, so that many who look cost as much as one.
    update: Mutex<(u64, Arc<str>)>,
    gate: Gate,
    since: String,
    busy: AtomicUsize,
    closed: AtomicBool,
}

struct Versioned {
    state: State,
    version: u64,
}

/// Who may look.
struct Gate {
    address: SocketAddr,
    /// What a request from elsewhere must know.
    token: Option<String>,
}

impl Live {
    /// Serves the run `name` with this command line.
    ///
    /// # Errors
    /// Nobody can listen there.
    pub fn open(address: Address, name: &str, command: &str) -> Result<Live> {
        let listener = match address {
            Address::At(at) => TcpListener::bind(at).with_context(|| format!("--live={at}"))?,
            Address::Loopback => TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
                .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
                .context("--live: no port on loopback")?,
        };
        let at = listener.local_addr().context("--live")?;
        let token = if at.ip().is_loopback() { None } else { Some(token()?) };
        let query = token.as_ref().map_or(String::new(), |token| format!("?token={token}"));
        let url = format!("http://{at}/{query}");
        let shared = Arc::new(Shared {
            state: Mutex::new(Versioned { state: State::new(name, command), version: 1 }),
            changed: Condvar::new(),
            update: Mutex::new((0, "".into())),
            gate: Gate { address: at, token },
            since: now(),
            busy: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let (its, theirs) = (listener.try_clone().context("--live")?, Arc::clone(&shared));
        std::thread::Builder::new()
            .name("live".into())
            .spawn(move || accept(&its, &theirs))
            .context("--live: a thread")?;
        Ok(Live { shared, listener, url })
    }

    /// What to open in a browser; holds the token, if one is needed.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Something has changed.
    pub fn tell(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state.lock();
        change(&mut state.state);
        state.version += 1;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("address", &self.shared.gate.address).finish()
    }
}

impl Drop for Live {
    /// Whoever looks sees the last state, and that it is the last.
    fn drop(&mut self) {
        self.tell(|state| {
            state.over.get_or_insert_with(|| "The run is over.".into());
        });
        let until = Instant::now() + FAREWELL;
        while self.shared.busy.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.shared.closed.store(true, Ordering::Release);
        // Whoever waits for the next connection wakes up.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    now.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}

/// 128 bits that nobody guesses.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("--live: no random bytes for a token"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is understood of a request.
#[derive(Debug, Default)]
struct Request {
    method: String,
    path: String,
    query: String,
    host: String,
    authorization: String,
}

impl Request {
    /// Reads one; `None` if this is none.
    fn read(stream: &mut TcpStream) -> io::Result<Option<Request>> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut head = httparse::Request::new(&mut headers);
            match head.parse(&bytes) {
                Ok(httparse::Status::Complete(_)) => return Ok(Some(Request::of(&head))),
                Ok(httparse::Status::Partial) if bytes.len() < LONGEST_REQUEST => {}
                _ => return Ok(None),
            }
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => bytes.extend_from_slice(&piece[..n]),
            }
        }
    }

    fn of(head: &httparse::Request<'_, '_>) -> Request {
        let whole = head.path.unwrap_or_default();
        let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
        let field = |name: &str| {
            let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map_or(String::new(), |header| String::from_utf8_lossy(header.value).trim().to_string())
        };
        Request {
            method: head.method.unwrap_or_default().into(),
            path: path.into(),
            query: query.into(),
            host: field("Host"),
            authorization: field("Authorization"),
        }
    }
}

impl Gate {
    /// Why this request is not answered, if it is not.
    fn refuses(&self, request: &Request) -> Option<(&'static str, &'static str)> {
        if request.method != "GET" {
            return Some(("405 Method Not Allowed", "GET is all that there is\n"));
        }
        match &self.token {
            Some(token) => {
                let given = request.query.split('&').find_map(|pair| pair.strip_prefix("token="));
                let bearer = request.authorization.strip_prefix("Bearer ");
                let right = [given, bearer].into_iter().flatten().any(|given| same(given, token));
                let why = "the run printed the address with its token when it began\n";
                (!right).then_some(("403 Forbidden", why))
            }
            // A page from elsewhere must not read this one by a name of its own for this machine.
            None => {
                let host = request.host.as_str();
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                let ours = name == "localhost"
                    || name.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
                (!ours).then_some(("403 Forbidden", "this page is for this machine alone\n"))
            }
        }
    }
}

/// Compares in a time that does not tell how much is right.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Gives everybody a thread, until the run is over.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let stream = listener.accept();
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = stream else {
            // Without descriptors nobody can look for a while; the run goes on.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let looking = Looking(Arc::clone(shared));
        let busy = shared.busy.fetch_add(1, Ordering::AcqRel) >= MOST;
        // Without a thread nobody looks either.
        let _ = std::thread::Builder::new().name("live".into()).spawn(move || {
            // What is measured comes first.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
            // Who went away hears nothing.
            let _ = answer(stream, &looking.0, busy);
        });
    }
}

/// Counts as long as somebody is served.
struct Looking(Arc<Shared>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What every answer has: nothing is kept, guessed or told to other sites.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
                       Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n";

fn answer(mut stream: TcpStream, shared: &Shared, busy: bool) -> io::Result<()> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = Request::read(&mut stream)?;
    let send = |mut stream: TcpStream, status: &str, kind: &str, text: &str| {
        let length = text.len();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{HEADERS}");
        stream.write_all(head.as_bytes())?;
        stream.write_all(text.as_bytes())
    };
    let Some(request) = request else {
        return send(stream, "400 Bad Request", PLAIN, "this is no request of HTTP/1.1\n");
    };
    if let Some((status, why)) = shared.gate.refuses(&request) {
        return send(stream, status, PLAIN, why);
    }
    if busy {
        return send(stream, "503 Service Unavailable", PLAIN, "too many are looking\n");
    }
    match request.path.as_str() {
        "/" => send(stream, "200 OK", "text/html; charset=utf-8", &report::following(&shared.page().1)),
        "/metrics" => {
            let state = shared.state.lock().state.clone();
            match metrics::text(&state) {
                Ok(text) => send(stream, "200 OK", metrics::CONTENT_TYPE, &text),
                Err(error) => send(stream, "500 Internal Server Error", PLAIN, &error.to_string()),
            }
        }
        "/events" => events(stream, shared),
        _ => send(stream, "404 Not Found", PLAIN, "there are /, /events and /metrics\n"),
    }
}

/// Every state of the page, as server-sent events, until the run is over.
fn events(mut out: TcpStream, shared: &Shared) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}retry: 1000\n\n");
    out.write_all(head.as_bytes())?;
    let mut seen = 0;
    loop {
        let over = {
            let mut state = shared.state.lock();
            if state.version == seen && state.state.over.is_none() {
                shared.changed.wait_for(&mut state, STILL_HERE);
            }
            state.state.over.is_some()
        };
        let (version, update) = shared.update();
        match version == seen {
            true => out.write_all(b": nothing new\n\n")?,
            false => out.write_all(format!("id: {version}\ndata: {update}\n\n").as_bytes())?,
        }
        seen = version;
        if over {
            return Ok(());
        }
        let next = Instant::now() + BETWEEN_UPDATES;
        let mut state = shared.state.lock();
        while state.state.over.is_none() && !shared.changed.wait_until(&mut state, next).timed_out() {}
    }
}

impl Shared {
    fn page(&self) -> (u64, report::Page) {
        let (version, state) = {
            let state = self.state.lock();
            (state.version, state.state.clone())
        };
        (version, page::page(&state, &self.since))
    }

    fn update(&self) -> (u64, Arc<str>) {
        let mut last = self.update.lock();
        if self.state.lock().version != last.0 {
            let (version, page) = self.page();
            *last = (version, report::update(&page).into());
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::state::tests::interval;
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpStream;

    /// What the server at `at` answers to these lines.
    fn ask(at: SocketAddr, lines: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(lines.replace('\n', "\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(at: SocketAddr, path: &str, host: &str) -> String {
        ask(at, &format!("GET {path} HTTP/1.1\nHost: {host}\nConnection: close\n\n"))
    }

    fn open(address: &str) -> (Live, SocketAddr) {
        let live = Live::open(address.parse().unwrap(), "a run", "tipover run a --live").unwrap();
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), live.shared.gate.address.port());
        (live, at)
    }

    fn status(answer: &str) -> &str {
        answer.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {answer:?}"))
    }

    #[test]
    fn an_address_is_a_port_or_has_one() {
        let at = |text: &str| text.parse::<Address>();
        assert_eq!(at("loopback"), Ok(Address::Loopback));
        assert_eq!(at("9000"), Ok(Address::At("127.0.0.1:9000".parse().unwrap())));
        assert_eq!(at("localhost:9000"), at("9000"));
        assert_eq!(at("[::1]:9000"), Ok(Address::At("[::1]:9000".parse().unwrap())));
        for wrong in ["", "here", "1.2.3.4", "70000", "1.2.3.4:x"] {
            assert!(at(wrong).unwrap_err().contains("neither a port nor"), "{wrong}");
        }
    }

    #[test]
    fn on_loopback_only_this_machine_by_its_own_name_is_answered() {
        let (live, at) = open("0");
        assert_eq!(live.url(), format!("http://{at}/"));
        for ours in [at.to_string(), format!("localhost:{}", at.port()), format!("[::1]:{}", at.port())] {
            assert_eq!(status(&get(at, "/", &ours)), "200", "{ours}");
        }
        for foreign in ["example.org", "127.0.0.1.example.org:80", ""] {
            assert_eq!(status(&get(at, "/", foreign)), "403", "{foreign:?}");
        }
        assert_eq!(status(&get(at, "/etc/passwd", "localhost")), "404");
        let post = format!("POST / HTTP/1.1\nHost: {at}\nContent-Length: 0\nConnection: close\n\n");
        assert_eq!(status(&ask(at, &post)), "405");
        assert_eq!(status(&ask(at, "\u{16}\u{3}\u{1} this is TLS\n\n")), "400");
        let endless = format!("GET / HTTP/1.1\nHost: {at}\n{}\n", "X: y\n".repeat(200));
        assert_eq!(status(&ask(at, &endless)), "400", "more headers than any browser sends");
        let page = get(at, "/", "localhost");
        assert!(page.contains("connect-src 'self'") && page.contains("EventSource"), "it follows");
        assert!(get(at, "/metrics", "localhost").contains("application/openmetrics-text; version=1.0.0"));
    }

    #[test]
    fn elsewhere_a_token_is_asked_for() {
        let (live, at) = open("0.0.0.0:0");
        let (_, token) = live.url().split_once("/?token=").expect("the address has the token");
        assert_eq!(token.len(), 32);
        for path in ["/", "/events", "/metrics", "/?token=", &format!("/?token={}", &token[1..])] {
            assert_eq!(status(&get(at, path, "lab.example")), "403", "{path}");
        }
        assert_eq!(status(&get(at, &format!("/?token={token}"), "lab.example")), "200");
        let scrape = format!(
            "GET /metrics HTTP/1.1\nHost: lab.example\nAuthorization: Bearer {token}\nConnection: close\n\n"
        );
        assert_eq!(status(&ask(at, &scrape)), "200");
        let (other, _) = open("0.0.0.0:0");
        assert_ne!(other.url().split_once('=').unwrap().1, token);
    }

    #[test]
    fn a_taken_address_is_refused_and_our_own_port_gives_way() {
        let (_live, at) = open("0");
        let refused = Live::open(Address::At(at), "b", "b").unwrap_err();
        assert!(format!("{refused:#}").contains("in use"), "{refused:#}");
        let [first, second] = [(); 2].map(|()| Live::open(Address::Loopback, "a", "a").unwrap());
        assert_ne!(first.url(), second.url());
    }

    #[test]
    fn whoever_follows_sees_the_last_state_and_one_who_does_not_read_holds_up_nobody() {
        let (live, at) = open("0");
        let events = |at| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            write!(stream, "GET /events HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
            stream
        };
        let _sleepers: Vec<TcpStream> = (0..5).map(|_| events(at)).collect();
        let mut updates = BufReader::new(events(at))
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("data: ").map(String::from));
        let first = updates.next().expect("the state when it came");
        assert!(first.contains("Nothing is measured yet"), "{first:.300}");
        for n in 0..40 {
            live.tell(|run| run.interval(&interval(n, 10, 0)));
        }
        assert_eq!(status(&get(at, "/metrics", "localhost")), "200");
        drop(live);
        let mut heard = vec![first];
        while !heard[heard.len() - 1].contains("The run is over.") {
            heard.push(updates.next().expect("the last state"));
        }
        assert!(heard.len() < 10, "{} updates for 40 changes within a moment", heard.len());
        let last: serde_json::Value = serde_json::from_str(heard.last().unwrap()).unwrap();
        assert!(last["html"]["answer"].as_str().unwrap().contains("The run is over."));
        let operations = &last["page"]["sections"][0]["blocks"][0]["panels"]["charts"][0]["series"][0];
        assert_eq!(operations["points"].as_array().unwrap().len(), 40);
    }
}
