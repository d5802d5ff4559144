//! A connection string, `mongodb://user:password@host1:27017,host2/database?options`, and what of it counts.

use crate::connection::decoded;
use std::fmt;
use std::time::Duration;
use tipover_core::nearest::unknown;
use tipover_core::target::TargetError;

/// A server's place: a name or address with its port, or the path of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// Name or address, and port.
    Tcp(String, u16),
    /// Path of a Unix socket.
    Unix(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Host::Tcp(name, port) => write!(f, "{name}:{port}"),
            Host::Unix(path) => f.write_str(path),
        }
    }
}

impl Host {
    /// Reads `name:port`, `[::1]:port`, `name`, or a percent-encoded path that ends in `.sock`.
    pub fn parse(text: &str) -> Result<Host, String> {
        if text.contains("%2F") || text.contains("%2f") || text.starts_with('/') {
            return Ok(Host::Unix(decoded(text)?));
        }
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, "27017"),
            Some((name, rest)) => (name, rest.strip_prefix(':').ok_or(format!("\"{text}\" is no host"))?),
            None => text.rsplit_once(':').unwrap_or((text, "27017")),
        };
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        let port = port.ok_or(format!("the port in \"{text}\" must be a number from 1 to 65535"))?;
        if name.is_empty() {
            return Err("a host is missing before the port".into());
        }
        Ok(Host::Tcp(decoded(name)?.to_ascii_lowercase(), port))
    }
}

/// Which members of a replica set may answer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPreference {
    /// The primary alone.
    Primary,
    /// The primary, and secondaries while there is none.
    PrimaryPreferred,
    /// Secondaries alone.
    Secondary,
    /// Secondaries, and the primary while there is none.
    SecondaryPreferred,
    /// Whichever answers first.
    Nearest,
}

impl ReadPreference {
    const NAMES: [(&'static str, ReadPreference); 5] = [
        ("primary", ReadPreference::Primary),
        ("primaryPreferred", ReadPreference::PrimaryPreferred),
        ("secondary", ReadPreference::Secondary),
        ("secondaryPreferred", ReadPreference::SecondaryPreferred),
        ("nearest", ReadPreference::Nearest),
    ];

    /// As it is written in connection strings.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("primary", |(name, _)| name)
    }
}

/// By what a collection is split; its shard key is `_id` in any case, by which all operations look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// By the hash of the key: neighbours lie apart, and inserts go everywhere.
    Hashed,
    /// By the key: neighbours lie together. What is loaded is split evenly; keys that grow go to one shard.
    Ranged,
}

impl Sharding {
    /// As settings name them.
    pub const NAMES: [(&'static str, Sharding); 2] =
        [("hashed", Sharding::Hashed), ("ranged", Sharding::Ranged)];
}

/// Who must have a write before it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledgers {
    /// This number of members; 0 asks for no answer at all.
    Members(i32),
    /// `majority`, or a name that the set's configuration defines.
    Named(String),
}

/// A write concern; what is `None` is left to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteConcern {
    /// `w`
    pub members: Option<Acknowledgers>,
    /// `j`
    pub journal: Option<bool>,
    /// `wtimeout`, in milliseconds.
    pub timeout_ms: Option<i64>,
}

impl WriteConcern {
    /// Whether the server is asked not to answer.
    pub fn is_unacknowledged(&self) -> bool {
        self.members == Some(Acknowledgers::Members(0))
    }

    /// Whether nothing is asked for, so that the server's default holds.
    pub fn is_default(&self) -> bool {
        *self == WriteConcern::default()
    }
}

impl fmt::Display for WriteConcern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_default() {
            return f.write_str("the server's default");
        }
        let mut parts = Vec::new();
        match &self.members {
            Some(Acknowledgers::Members(members)) => parts.push(format!("w:{members}")),
            Some(Acknowledgers::Named(name)) => parts.push(format!("w:{name}")),
            None => {}
        }
        parts.extend(self.journal.map(|journal| format!("j:{journal}")));
        parts.extend(self.timeout_ms.map(|timeout| format!("wtimeout:{timeout} ms")));
        f.write_str(&parts.join(", "))
    }
}

/// How a connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encryption {
    /// A file of certificates to trust instead of the system's.
    pub authorities: Option<String>,
    /// A file with the client's own certificate and key.
    pub identity: Option<String>,
    /// Accept any certificate.
    pub accepts_any_certificate: bool,
    /// Accept a certificate of another host.
    pub accepts_any_name: bool,
}

/// Everything that a connection string says.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Where to begin looking.
    pub hosts: Vec<Host>,
    /// Name and password.
    pub login: Option<(String, String)>,
    /// Where operations go.
    pub database: String,
    /// Where the user is known.
    pub login_database: String,
    /// `SCRAM-SHA-1` or `SCRAM-SHA-256`; otherwise the stronger one that the server offers.
    pub mechanism: Option<String>,
    /// The name that the replica set must have.
    pub replica_set: Option<String>,
    /// Talk to the one host named, whatever its role.
    pub direct: bool,
    /// Encrypt.
    pub encryption: Option<Encryption>,
    /// As the string says; a durability level goes before it.
    pub write_concern: WriteConcern,
    /// `readConcernLevel`
    pub read_concern: Option<String>,
    /// `readPreference`
    pub read_preference: ReadPreference,
    /// How collections that are made are spread over shards; otherwise they stay on one.
    pub sharding: Option<Sharding>,
    /// Try a write once more after a failover, where the server recognises the repetition.
    pub retries_writes: bool,
    /// Try a read once more after a failover.
    pub retries_reads: bool,
    /// Time to establish a connection.
    pub connect_timeout: Duration,
    /// Time to find a server that can take the operation.
    pub selection_timeout: Option<Duration>,
    /// Options that make no difference here, each with the reason.
    pub ignored: Vec<String>,
}

/// Options that are understood and make no difference, with the reason.
const IGNORED: [(&str, &str); 14] = [
    ("compressors", "messages are sent uncompressed"),
    ("zlibCompressionLevel", "messages are sent uncompressed"),
    ("maxPoolSize", "each session has a connection of its own"),
    ("minPoolSize", "each session has a connection of its own"),
    ("maxIdleTimeMS", "each session has a connection of its own"),
    ("maxConnecting", "each session has a connection of its own"),
    ("waitQueueTimeoutMS", "each session has a connection of its own"),
    ("waitQueueMultiple", "each session has a connection of its own"),
    ("socketTimeoutMS", "the load's time-out holds"),
    ("heartbeatFrequencyMS", "servers are looked for when an operation needs one"),
    ("localThresholdMS", "the first suitable server is taken"),
    ("serverSelectionTryOnce", "servers are looked for until the time for it is over"),
    ("uuidRepresentation", "no UUIDs are stored"),
    ("appName", "a name of its own is sent"),
];

const KNOWN: [&str; 23] = [
    "replicaSet",
    "directConnection",
    "tls",
    "ssl",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsInsecure",
    "authSource",
    "authMechanism",
    "w",
    "journal",
    "j",
    "wtimeoutMS",
    "wtimeout",
    "readConcernLevel",
    "readPreference",
    "sharding",
    "retryWrites",
    "retryReads",
    "connectTimeoutMS",
    "serverSelectionTimeoutMS",
];

impl Options {
    /// Reads a connection string.
    ///
    /// # Errors
    /// What is wrong, without the password.
    pub fn parse(url: &str) -> Result<Options, TargetError> {
        read(url).map_err(|reason| TargetError::new("reading the address of MongoDB", reason))
    }

    /// Sets one option, by the name it has in connection strings.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some((name, reason)) = IGNORED.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
            self.ignored.push(format!("{name}: {reason}"));
            return Ok(());
        }
        let Some(name) = KNOWN.iter().find(|name| name.eq_ignore_ascii_case(key)) else {
            return Err(match key.to_ascii_lowercase().as_str() {
                "loadbalanced" if value == "false" => return Ok(()),
                "loadbalanced" => {
                    "loadBalanced=true is not supported; name the mongos servers instead".into()
                }
                _ => not_known(key),
            });
        };
        self.set_known(name, value)
    }

    fn set_known(&mut self, name: &str, value: &str) -> Result<(), String> {
        let encryption = |options: &mut Options, change: &dyn Fn(&mut Encryption)| {
            change(options.encryption.get_or_insert_with(Encryption::default));
        };
        match name {
            "replicaSet" => self.replica_set = Some(value.into()),
            "directConnection" => self.direct = truth(name, value)?,
            "tls" | "ssl" => match truth(name, value)? {
                true => encryption(self, &|_| {}),
                false => self.encryption = None,
            },
            "tlsCAFile" => encryption(self, &|tls| tls.authorities = Some(value.into())),
            "tlsCertificateKeyFile" => encryption(self, &|tls| tls.identity = Some(value.into())),
            "tlsAllowInvalidCertificates" | "tlsInsecure" => {
                let any = truth(name, value)?;
                encryption(self, &|tls| (tls.accepts_any_certificate, tls.accepts_any_name) = (any, any));
            }
            "tlsAllowInvalidHostnames" => {
                let any = truth(name, value)?;
                encryption(self, &|tls| tls.accepts_any_name = any);
            }
            "authSource" => self.login_database = value.into(),
            "authMechanism" => match value {
                "SCRAM-SHA-1" | "SCRAM-SHA-256" => self.mechanism = Some(value.into()),
                _ => {
                    return Err(format!(
                        "authMechanism={value}: only SCRAM-SHA-1 and SCRAM-SHA-256 are supported"
                    ));
                }
            },
            "w" => {
                self.write_concern.members = Some(match value.parse::<i32>() {
                    Ok(members) if members >= 0 => Acknowledgers::Members(members),
                    Ok(_) => return Err(format!("w={value}: give a number of members, or majority")),
                    Err(_) => Acknowledgers::Named(value.into()),
                });
            }
            "journal" | "j" => self.write_concern.journal = Some(truth(name, value)?),
            "wtimeoutMS" | "wtimeout" => {
                self.write_concern.timeout_ms = Some(milliseconds(name, value)? as i64)
            }
            "readConcernLevel" => {
                const LEVELS: [&str; 5] = ["local", "available", "majority", "linearizable", "snapshot"];
                if !LEVELS.contains(&value) {
                    return Err(format!("readConcernLevel={value}: it is one of {}", LEVELS.join(", ")));
                }
                self.read_concern = Some(value.into());
            }
            "readPreference" => {
                let known = ReadPreference::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(value));
                let names = ReadPreference::NAMES.map(|(name, _)| name).join(", ");
                self.read_preference =
                    known.ok_or(format!("readPreference={value}: it is one of {names}"))?.1;
            }
            "sharding" => {
                let known = Sharding::NAMES.iter().find(|(known, _)| *known == value);
                self.sharding = match (known, value) {
                    (Some((_, sharding)), _) => Some(*sharding),
                    (None, "none") => None,
                    _ => return Err(format!("sharding={value}: it is hashed, ranged or none")),
                };
            }
            "retryWrites" => self.retries_writes = truth(name, value)?,
            "retryReads" => self.retries_reads = truth(name, value)?,
            "connectTimeoutMS" => self.connect_timeout = Duration::from_millis(milliseconds(name, value)?),
            "serverSelectionTimeoutMS" => {
                self.selection_timeout = Some(Duration::from_millis(milliseconds(name, value)?));
            }
            _ => return Err(not_known(name)),
        }
        Ok(())
    }

    /// What no single option can say.
    pub fn check(&self) -> Result<(), String> {
        if self.direct && self.hosts.len() > 1 {
            return Err("directConnection=true goes with one host; leave the others out".into());
        }
        if self.write_concern.is_unacknowledged() && self.write_concern.journal == Some(true) {
            return Err("w=0 asks for no answer and journal=true for one: leave one of them out".into());
        }
        Ok(())
    }
}

fn read(url: &str) -> Result<Options, String> {
    let example = "write it as mongodb://user@host1:27017,host2:27017/database?replicaSet=name";
    if url.starts_with("mongodb+srv://") {
        return Err("mongodb+srv:// needs DNS records of the type SRV, which are not looked up here; write the \
                    hosts out: mongodb://host1:27017,host2:27017/?replicaSet=name&tls=true (the driver's shell \
                    shows them, or `dig SRV _mongodb._tcp.NAME`)"
            .into());
    }
    let rest = url.strip_prefix("mongodb://").ok_or(example)?;
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A password may hold an @ or a / that nobody escaped; hosts hold neither.
    let (login, place) =
        before.rsplit_once('@').map_or((None, before), |(login, place)| (Some(login), place));
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    if hosts.is_empty() {
        return Err(format!("no host is named; {example}"));
    }
    let login = login.map(|login| {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Ok::<_, String>((decoded(user)?, decoded(password)?))
    });
    let database = decoded(path)?;
    let mut options = Options {
        hosts: hosts.split(',').map(Host::parse).collect::<Result<_, _>>()?,
        login: login.transpose()?,
        login_database: if database.is_empty() { "admin".into() } else { database.clone() },
        database,
        mechanism: None,
        replica_set: None,
        direct: false,
        encryption: None,
        write_concern: WriteConcern::default(),
        read_concern: None,
        read_preference: ReadPreference::Primary,
        sharding: None,
        retries_writes: true,
        retries_reads: true,
        connect_timeout: Duration::from_secs(10),
        selection_timeout: None,
        ignored: Vec::new(),
    };
    // YCSB's own rule for a string that names none.
    if matches!(options.database.as_str(), "" | "admin") {
        options.database = "ycsb".into();
    }
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or(format!("\"{part}\" is no option: write name=value"))?;
        options.set(key, &decoded(value)?)?;
    }
    options.check()?;
    Ok(options)
}

fn not_known(key: &str) -> String {
    let all: Vec<&str> = KNOWN.iter().copied().chain(IGNORED.iter().map(|(name, _)| *name)).collect();
    unknown("option of a MongoDB address", key, &all)
}

fn truth(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{name}={value}: it is true or false")),
    }
}

fn milliseconds(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name}={value}: it is a number of milliseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(url: &str) -> String {
        match Options::parse(url) {
            Ok(_) => panic!("{url} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_full_connection_string_is_understood() {
        let escaped = "se%3Acret";
        let address = format!(
            "mongodb://an%40a:{escaped}@one,two:27018,[::1]:3,%2Ftmp%2Fm.sock/bank?replicaSet=rs0&tls=true\
             &tlsCAFile=ca.pem&authSource=people&w=majority&journal=true&wtimeoutMS=500&readConcernLevel=majority\
             &readPreference=secondaryPreferred&sharding=ranged&retryWrites=false&compressors=zstd&SERVERSELECTIONTIMEOUTMS=70"
        );
        let options = Options::parse(&address).unwrap();
        let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["one:27017", "two:27018", "[::1]:3", "/tmp/m.sock"]);
        assert_eq!(options.login, Some(("an@a".into(), "se:cret".into())));
        assert_eq!((options.database.as_str(), options.login_database.as_str()), ("bank", "people"));
        assert_eq!(options.write_concern.to_string(), "w:majority, j:true, wtimeout:500 ms");
        assert_eq!(options.read_preference, ReadPreference::SecondaryPreferred);
        assert_eq!(options.sharding, Some(Sharding::Ranged));
        assert_eq!(options.encryption.unwrap().authorities.as_deref(), Some("ca.pem"));
        assert!(!options.retries_writes && options.retries_reads);
        assert_eq!(options.ignored, ["compressors: messages are sent uncompressed"]);
        assert_eq!(options.selection_timeout, Some(Duration::from_millis(70)));
    }

    #[test]
    fn what_is_not_said_is_as_in_ycsb_and_the_drivers() {
        let options = Options::parse("mongodb://localhost").unwrap();
        assert_eq!(options.hosts, [Host::Tcp("localhost".into(), 27017)]);
        assert_eq!((options.database.as_str(), options.login_database.as_str()), ("ycsb", "admin"));
        assert!(options.write_concern.is_default() && options.retries_writes && !options.direct);
        assert_eq!(Options::parse("mongodb://u:pass@h/shop").unwrap().login_database, "shop");
    }

    #[test]
    fn wrong_addresses_are_answered_with_what_to_write() {
        for (url, part) in [
            ("mongodb+srv://cluster.example.org/x", "write the hosts out"),
            ("mongodb://h/?replicaset=a&readPreferense=primary", "did you mean `readPreference`?"),
            ("mongodb://h/?w=-1", "or majority"),
            ("mongodb://h/?w=0&journal=true", "leave one of them out"),
            ("mongodb://h:0/", "from 1 to 65535"),
            ("mongodb://a,b/?directConnection=true", "goes with one host"),
            ("mongodb://h/?authMechanism=GSSAPI", "only SCRAM"),
            ("mongodb://h/?readConcernLevel=strong", "linearizable"),
            ("mongodb://h/?sharding=zoned", "hashed, ranged or none"),
            ("mongodb:///x", "no host"),
            ("mongodb://h/?tls=yes", "true or false"),
            ("mongodb://u%zz@h/", "%25"),
        ] {
            let error = wrong(url);
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_address_panics_and_no_error_tells_the_password(rest in "\\PC{0,60}") {
            let password = "hunter2";
            if let Err(error) = Options::parse(&format!("mongodb://user:{password}@{rest}")) {
                assert!(!error.to_string().contains("hunter2"), "{error}");
            }
        }
    }
}
