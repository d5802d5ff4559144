//! What all sessions know together: the options, which servers there are, and who was the primary last.

use super::options::{Encryption, Host, Options, ReadPreference};
use super::scram::Mechanism;
use crate::connection::{Dialect, Route, Url};
use bson::RawDocument;
use bson::oid::ObjectId;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a server says of itself in its answer to `hello`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// It takes writes.
    pub writable: bool,
    /// It is a secondary that takes reads.
    pub secondary: bool,
    /// It routes to a sharded cluster.
    pub router: bool,
    /// The replica set's name.
    pub set_name: Option<String>,
    /// All data-bearing members, by the names that they have among themselves.
    pub members: Vec<Host>,
    /// Who it thinks is the primary.
    pub primary: Option<Host>,
    /// Version of the set's configuration, and the election that made it primary.
    pub elected: Option<(i64, ObjectId)>,
    /// `maxWireVersion`
    pub wire: i32,
    /// It knows logical sessions, which retryable writes and transactions need.
    pub sessions: bool,
    /// `maxWriteBatchSize`
    pub batch: usize,
    /// `maxBsonObjectSize`
    pub document_bytes: usize,
    /// `saslSupportedMechs`
    pub mechanisms: Vec<String>,
}

/// OP_MSG came with this `maxWireVersion`, in 3.6.
const OLDEST_WIRE: i32 = 6;
/// From here on a newer election beats a newer configuration (6.0).
const ELECTION_FIRST_WIRE: i32 = 17;

/// A whole number in whichever numeric type the server chose.
pub fn integer(document: &RawDocument, key: &str) -> Option<i64> {
    let value = document.get(key).ok()??;
    let number = || value.as_f64().map(|number| number as i64);
    value.as_i64().or_else(|| value.as_i32().map(i64::from)).or_else(number)
}

impl Hello {
    /// Reads the answer to `hello`.
    ///
    /// # Errors
    /// If the server is too old.
    pub fn read(body: &RawDocument) -> Result<Hello, String> {
        let truth = |key| body.get_bool(key).unwrap_or(false);
        let text = |key| body.get_str(key).ok();
        let list = |key| {
            let strings = body.get_array(key).ok().into_iter().flatten().flatten();
            strings.filter_map(|value| value.as_str().map(str::to_string)).collect::<Vec<_>>()
        };
        let wire = integer(body, "maxWireVersion").unwrap_or(0) as i32;
        if wire < OLDEST_WIRE {
            return Err(format!("the server speaks wire version {wire}; 3.6 or newer (version 6) is needed"));
        }
        let hosts = ["hosts", "passives"].into_iter().flat_map(list);
        let election = body.get_object_id("electionId").ok();
        Ok(Hello {
            writable: truth("isWritablePrimary") || truth("ismaster"),
            secondary: truth("secondary"),
            router: text("msg") == Some("isdbgrid"),
            set_name: text("setName").map(str::to_string),
            members: hosts.filter_map(|host| Host::parse(&host).ok()).collect(),
            primary: text("primary").and_then(|host| Host::parse(host).ok()),
            elected: election.map(|election| (integer(body, "setVersion").unwrap_or(0), election)),
            wire,
            sessions: integer(body, "logicalSessionTimeoutMinutes").is_some(),
            batch: integer(body, "maxWriteBatchSize").unwrap_or(100_000).clamp(1, 100_000) as usize,
            document_bytes: integer(body, "maxBsonObjectSize").unwrap_or(16 << 20).max(1 << 10) as usize,
            mechanisms: list("saslSupportedMechs"),
        })
    }

    /// Whether its election is older than `newest`, one that was seen already: a primary that does not know
    /// yet that it is none.
    fn is_older(&self, newest: &(i64, ObjectId)) -> bool {
        self.elected.as_ref().is_some_and(|mine| {
            if self.wire >= ELECTION_FIRST_WIRE {
                (mine.1.bytes(), mine.0) < (newest.1.bytes(), newest.0)
            } else {
                (mine.0, mine.1.bytes()) < (newest.0, newest.1.bytes())
            }
        })
    }
}

/// What sessions did on their own account, counted over all of them.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections made.
    pub connections: AtomicU64,
    /// Writes sent a second time under the same transaction number.
    pub retried_writes: AtomicU64,
    /// Reads sent a second time.
    pub retried_reads: AtomicU64,
    /// Writes that asked for no answer.
    pub unacknowledged_writes: AtomicU64,
    /// Answers that nobody had asked for, and that were thrown away.
    pub unasked_answers: AtomicU64,
    /// Transactions begun anew after a transient error.
    pub retried_transactions: AtomicU64,
    /// Commits sent again because nobody knew what became of the first.
    pub retried_commits: AtomicU64,
}

/// One more.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[derive(Default)]
struct Known {
    hosts: Vec<Host>,
    primary: Option<Host>,
    newest: Option<(i64, ObjectId)>,
    routes: HashMap<Host, Route>,
    salted: HashMap<(Mechanism, Vec<u8>, NonZeroU32), Vec<u8>>,
    said: HashMap<i32, u64>,
}

/// The servers behind one address.
pub struct Cluster {
    /// What the address says.
    pub options: Options,
    /// How long an operation may take before it is given up; zero is for ever.
    pub timeout: Duration,
    /// What sessions did on their own account.
    pub counts: Counts,
    /// Whether the servers were seen to recognise a write that is sent again.
    pub deduplicates: AtomicBool,
    /// Whether a server was ever reached: from then on, one that is silent has trouble, and is no stranger.
    pub reached: AtomicBool,
    known: Mutex<Known>,
}

impl Cluster {
    /// The servers that `options` name.
    pub fn new(options: Options, timeout: Duration) -> Self {
        let known = Known { hosts: options.hosts.clone(), ..Known::default() };
        Cluster {
            options,
            timeout,
            counts: Counts::default(),
            deduplicates: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            known: Mutex::new(known),
        }
    }

    /// How long to look for a server. Less than an operation's time-out, so that what was never sent is
    /// refused and not unknown.
    pub fn patience(&self) -> Duration {
        let longest = if self.timeout.is_zero() { Duration::from_secs(30) } else { self.timeout * 3 / 4 };
        self.options.selection_timeout.unwrap_or(longest).min(longest)
    }

    /// The members in the order in which they are worth asking.
    pub fn candidates(&self, preference: ReadPreference) -> Vec<Host> {
        let known = self.known.lock();
        let mut hosts = known.hosts.clone();
        if let Some(primary) = &known.primary {
            hosts.retain(|host| host != primary);
            match preference {
                ReadPreference::Secondary | ReadPreference::SecondaryPreferred => hosts.push(primary.clone()),
                _ => hosts.insert(0, primary.clone()),
            }
        }
        hosts
    }

    /// Takes note of what `host` said of itself, and says whether it can take what `preference` allows.
    pub fn learn(&self, host: &Host, hello: &Hello, preference: ReadPreference) -> Result<(), String> {
        self.reached.store(true, Ordering::Relaxed);
        if self.options.direct || hello.router {
            return Ok(());
        }
        if let Some(wanted) = &self.options.replica_set
            && hello.set_name.as_ref() != Some(wanted)
        {
            return Err(match &hello.set_name {
                Some(name) => format!("{host} belongs to the replica set \"{name}\", not \"{wanted}\""),
                None => format!("{host} belongs to no replica set, not to \"{wanted}\""),
            });
        }
        let mut known = self.known.lock();
        if hello.set_name.is_none() {
            known.primary = Some(host.clone());
            return Ok(());
        }
        if hello.writable {
            if known.newest.as_ref().is_some_and(|newest| hello.is_older(newest)) {
                return Err(format!("{host} is a primary of an election that is over"));
            }
            known.newest = hello.elected.or(known.newest);
            known.primary = Some(host.clone());
            // The primary's word on who belongs to the set is the last one.
            known.hosts = hello.members.clone();
            if !known.hosts.contains(host) {
                known.hosts.push(host.clone());
            }
        } else {
            for member in hello.members.iter().chain(&hello.primary) {
                if !known.hosts.contains(member) {
                    known.hosts.push(member.clone());
                }
            }
        }
        let suits = match preference {
            ReadPreference::Primary => hello.writable,
            ReadPreference::Secondary => hello.secondary,
            _ => hello.writable || hello.secondary,
        };
        if suits { Ok(()) } else { Err(format!("{host} is no {}", preference.name())) }
    }

    /// `host` is not the primary any more, or is gone.
    pub fn distrust(&self, host: &Host) {
        let mut known = self.known.lock();
        if known.primary.as_ref() == Some(host) {
            known.primary = None;
        }
    }

    /// All members that were heard of.
    pub fn members(&self) -> Vec<Host> {
        self.known.lock().hosts.clone()
    }

    /// The way to `host`, whose name is looked up only once.
    pub fn route(&self, host: &Host) -> Result<Route, String> {
        if let Some(route) = self.known.lock().routes.get(host) {
            return Ok(route.clone());
        }
        let route = route(host, self.options.encryption.as_ref())?;
        self.known.lock().routes.insert(host.clone(), route.clone());
        Ok(route)
    }

    /// The way to `host` without TLS, whatever the address asks for.
    pub fn plain_route(&self, host: &Host) -> Result<Route, String> {
        route(host, None)
    }

    /// The salted password, computed once and not once per session: it takes milliseconds on purpose.
    pub fn salted(&self, mechanism: Mechanism, salt: &[u8], rounds: NonZeroU32) -> Vec<u8> {
        let key = (mechanism, salt.to_vec(), rounds);
        if let Some(salted) = self.known.lock().salted.get(&key) {
            return salted.clone();
        }
        let (user, password) = self.options.login.as_ref().expect("only a user authenticates");
        let salted = mechanism.salted(user, password, salt, rounds);
        self.known.lock().salted.insert(key, salted.clone());
        salted
    }

    /// Says an error's text on stderr the first time that its code appears: an outcome has no room for it.
    pub fn say_once(&self, code: i32, text: &str) {
        let mut known = self.known.lock();
        let times = known.said.entry(code).or_default();
        *times += 1;
        if *times == 1 {
            eprintln!("mongodb: the server answered error {code}: {text} (said once; counted from here on)");
        }
    }

    /// Errors by code: how often each was answered.
    pub fn errors(&self) -> HashMap<i32, u64> {
        self.known.lock().said.clone()
    }
}

fn route(host: &Host, encryption: Option<&Encryption>) -> Result<Route, String> {
    const DIALECT: Dialect = Dialect {
        schemes: &["mongodb"],
        port: 27017,
        encryption: "tls",
        authorities: "tlsCAFile",
        password_variable: "TIPOVER_NO_PASSWORD",
        user: "nobody",
        socket_name: |_| None,
    };
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let end = match host {
        Host::Tcp(..) => format!("mongodb://{host}/?"),
        Host::Unix(path) => format!("mongodb://localhost/?socket={}&", escaped(path)),
    };
    let level = match encryption {
        None => "disable",
        Some(tls) if tls.accepts_any_certificate => "require",
        Some(tls) if tls.accepts_any_name => "verify-ca",
        Some(_) => "verify-full",
    };
    let mut url = format!("{end}tls={level}");
    if let Some(Encryption { authorities: Some(path), accepts_any_certificate: false, .. }) = encryption {
        url.push_str(&format!("&tlsCAFile={}", escaped(path)));
    }
    if encryption.is_some_and(|tls| tls.identity.is_some()) {
        return Err("tlsCertificateKeyFile: client certificates are not supported".into());
    }
    Route::to(&Url::parse(&url.parse()?, &DIALECT, &[])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn hello(host: u16, writable: bool, election: u8, version: i64, wire: i32) -> Hello {
        let mut bytes = [0; 12];
        bytes[11] = election;
        Hello::read(&rawdoc! {
            "isWritablePrimary": writable, "secondary": !writable, "setName": "rs", "maxWireVersion": wire,
            "hosts": ["h:1", "h:2", "h:3"], "setVersion": version, "electionId": ObjectId::from_bytes(bytes),
            "me": format!("h:{host}"), "logicalSessionTimeoutMinutes": 30,
        })
        .unwrap()
    }

    fn host(port: u16) -> Host {
        Host::Tcp("h".into(), port)
    }

    #[test]
    fn the_set_is_discovered_and_the_primary_of_an_old_election_is_not_believed() {
        let cluster = Cluster::new(Options::parse("mongodb://h:2/?replicaSet=rs").unwrap(), Duration::ZERO);
        let primary = ReadPreference::Primary;
        assert!(cluster.learn(&host(2), &hello(2, false, 1, 1, 21), primary).is_err());
        assert_eq!(cluster.candidates(primary).len(), 3);
        cluster.learn(&host(3), &hello(3, true, 5, 1, 21), primary).unwrap();
        assert_eq!(cluster.candidates(primary)[0], host(3));
        assert_eq!(cluster.candidates(ReadPreference::Secondary)[2], host(3));
        let stale = cluster.learn(&host(1), &hello(1, true, 4, 9, 21), primary).unwrap_err();
        assert!(stale.contains("election that is over"), "{stale}");
        assert_eq!(cluster.candidates(primary)[0], host(3));
        cluster.distrust(&host(3));
        cluster.learn(&host(1), &hello(1, true, 6, 1, 21), primary).unwrap();
        assert_eq!(cluster.candidates(primary)[0], host(1));
    }

    #[test]
    fn before_wire_version_17_the_configuration_counts_first() {
        let cluster = Cluster::new(Options::parse("mongodb://h:2").unwrap(), Duration::ZERO);
        cluster.learn(&host(3), &hello(3, true, 5, 1, 13), ReadPreference::Primary).unwrap();
        cluster.learn(&host(1), &hello(1, true, 4, 9, 13), ReadPreference::Primary).unwrap();
        assert!(cluster.learn(&host(3), &hello(3, true, 5, 1, 13), ReadPreference::Primary).is_err());
    }

    #[test]
    fn a_set_of_another_name_and_an_old_server_are_refused_in_words() {
        let cluster =
            Cluster::new(Options::parse("mongodb://h:2/?replicaSet=other").unwrap(), Duration::ZERO);
        let error = cluster.learn(&host(2), &hello(2, true, 1, 1, 21), ReadPreference::Primary).unwrap_err();
        assert!(error.contains("\"rs\", not \"other\""), "{error}");
        assert!(Hello::read(&rawdoc! { "maxWireVersion": 5 }).unwrap_err().contains("3.6"));
    }
}
