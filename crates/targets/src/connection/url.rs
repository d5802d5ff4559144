//! Where a server is and as whom to ask it, from a URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tipover_core::experiment::Address;
use tipover_core::nearest::unknown;

/// How a URL of one kind of server is read.
pub struct Dialect {
    /// Accepted before `://`.
    pub schemes: &'static [&'static str],
    /// Where the server listens unless the URL says otherwise.
    pub port: u16,
    /// The parameter that says how much encryption is wanted: `sslmode`, `ssl-mode`.
    pub encryption: &'static str,
    /// Parameter that names a file with trusted authorities.
    pub authorities: &'static str,
    /// Environment variable from which a password is taken that the URL lacks.
    pub password_variable: &'static str,
    /// The server's own user, if neither the URL nor the system says who asks.
    pub user: &'static str,
    /// The file name of its socket in a folder, for a port.
    pub socket_name: fn(u16) -> Option<String>,
}

/// How much encryption is wanted, in libpq's words; MySQL's are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encryption {
    /// None.
    Disable,
    /// If the server can.
    Prefer,
    /// Or no connection; whose certificate it is, is not checked.
    Require,
    /// And an authority that is trusted has signed the certificate.
    VerifyAuthority,
    /// And the certificate is for this host.
    VerifyFull,
}

/// The other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A host by name or number.
    Tcp(String, u16),
    /// A socket file.
    Unix(PathBuf),
}

/// Everything that a URL says. Printing it shows no secret.
#[derive(Clone)]
pub struct Url {
    /// The other end.
    pub end: End,
    /// As whom.
    pub user: String,
    /// With which password, if one is known.
    pub password: Option<String>,
    /// Which database; empty is left to the server.
    pub database: String,
    /// How much encryption.
    pub encryption: Encryption,
    /// Authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// Parameters that only this kind of server knows.
    pub others: Vec<(String, String)>,
    shown: String,
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Url {
    /// Reads `address`; `known` are the parameters that this kind of server has beside the shared ones.
    pub fn parse(address: &Address, dialect: &Dialect, known: &[&str]) -> Result<Url, String> {
        let whole = address.with_secrets();
        let (scheme, rest) = whole.split_once("://").ok_or("no :// in it")?;
        if !dialect.schemes.contains(&scheme) {
            return Err(format!("\"{scheme}\" should be \"{}\"", dialect.schemes[0]));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold an @ that nobody escaped: the last one ends it.
        let (credentials, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
            None => (decoded(credentials)?, None),
        };
        let (host, port) = split_port(host)?;
        let mut place = Url {
            end: End::Tcp(String::new(), 0),
            user,
            password,
            database: decoded(database)?,
            encryption: Encryption::Prefer,
            authorities: None,
            connect_timeout: Duration::from_secs(10),
            others: vec![],
            shown: address.shown().to_string(),
        };
        let (mut host, mut port) = (decoded(host)?, port);
        let mut socket = None;
        for (name, value) in query.split('&').filter(|pair| !pair.is_empty()).map(pair) {
            let value = decoded(value)?;
            match name {
                "host" => host = value,
                "port" => port = Some(number(name, &value)?),
                "user" => place.user = value,
                "password" => place.password = Some(value),
                "dbname" | "database" => place.database = value,
                "socket" => socket = Some(PathBuf::from(value)),
                "connect_timeout" => {
                    place.connect_timeout = Duration::from_secs(number::<u64>(name, &value)?.max(1));
                }
                name if name == dialect.encryption => place.encryption = encryption(name, &value)?,
                name if name == dialect.authorities => place.authorities = Some(value.into()),
                name if known.contains(&name) => place.others.push((name.into(), value)),
                unknown => return Err(unknown_parameter(unknown, dialect, known)),
            }
        }
        let port = port.unwrap_or(dialect.port);
        place.end = match socket {
            Some(path) => End::Unix(path),
            None if host.starts_with('/') => match (dialect.socket_name)(port) {
                Some(name) => End::Unix(PathBuf::from(host).join(name)),
                None => End::Unix(host.into()),
            },
            None if host.is_empty() => End::Tcp("localhost".into(), port),
            None => End::Tcp(host, port),
        };
        if place.user.is_empty() {
            place.user = std::env::var("USER").unwrap_or_else(|_| dialect.user.to_string());
        }
        if place.password.is_none() {
            place.password = std::env::var(dialect.password_variable).ok();
        }
        Ok(place)
    }

    /// The host that a certificate must be for.
    pub fn host(&self) -> &str {
        match &self.end {
            End::Tcp(host, _) => host,
            End::Unix(_) => "localhost",
        }
    }

    /// The value of a parameter that only this kind of server knows.
    pub fn other(&self, name: &str) -> Option<&str> {
        self.others.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether nobody else can listen: it is the same machine's kernel that carries the bytes.
    pub fn is_local_socket(&self) -> bool {
        matches!(self.end, End::Unix(_))
    }
}

fn pair(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, ""))
}

/// Host and port; an address of IP version 6 stands in brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("a [ without its ]")?;
        return Ok((host, rest.strip_prefix(':').map(|port| number("port", port)).transpose()?));
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host, Some(number("port", port)?))),
        None => Ok((text, None)),
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} should be a number, not \"{text}\""))
}

fn encryption(name: &str, value: &str) -> Result<Encryption, String> {
    Ok(match value.to_ascii_lowercase().replace('_', "-").as_str() {
        "disable" | "disabled" | "false" => Encryption::Disable,
        "prefer" | "preferred" | "allow" => Encryption::Prefer,
        "require" | "required" | "true" => Encryption::Require,
        "verify-ca" => Encryption::VerifyAuthority,
        "verify-full" | "verify-identity" => Encryption::VerifyFull,
        _ => {
            return Err(format!(
                "{name} should be disable, prefer, require, verify-ca or verify-full, not \"{value}\""
            ));
        }
    })
}

fn unknown_parameter(name: &str, dialect: &Dialect, known: &[&str]) -> String {
    let shared = ["host", "port", "user", "password", "dbname", "socket", "connect_timeout"];
    let all = || shared.iter().chain(known).copied().chain([dialect.encryption, dialect.authorities]);
    unknown("parameter", name, &all().collect::<Vec<_>>())
}

/// Undoes percent-encoding.
///
/// # Errors
/// A % that is none, or no UTF-8. The text may hold a password, so it is not shown.
pub fn decoded(text: &str) -> Result<String, String> {
    let is_code = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_code) {
        return Err("a % in it is not followed by two hexadecimal digits; write it as %25".into());
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| "it is not UTF-8")?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect {
        schemes: &["postgres", "postgresql"],
        port: 5432,
        encryption: "sslmode",
        authorities: "sslrootcert",
        password_variable: "TIPOVER_NO_SUCH_VARIABLE",
        user: "postgres",
        socket_name: |port| Some(format!(".s.PGSQL.{port}")),
    };

    fn parse(text: &str) -> Result<Url, String> {
        Url::parse(&text.parse().unwrap(), &DIALECT, &["application_name"])
    }

    #[test]
    fn urls_are_read_as_libpq_reads_them() {
        let place =
            parse("postgresql://anna:{p%40ss@db:5433/bank?sslmode=verify-full&connect_timeout=3").unwrap();
        assert_eq!(place.end, End::Tcp("db".into(), 5433));
        assert_eq!((place.user.as_str(), place.password.as_deref()), ("anna", Some("{p@ss")));
        assert_eq!((place.database.as_str(), place.encryption), ("bank", Encryption::VerifyFull));
        assert_eq!(place.connect_timeout, Duration::from_secs(3));
        for text in ["postgres://anna@%2Frun%2Fpg:5433/bank", "postgres://anna@/bank?host=/run/pg&port=5433"]
        {
            assert_eq!(parse(text).unwrap().end, End::Unix("/run/pg/.s.PGSQL.5433".into()), "{text}");
        }
        assert_eq!(parse("postgres://anna@[::1]:7/x").unwrap().end, End::Tcp("::1".into(), 7));
        assert_eq!(parse("postgres://anna@/x").unwrap().end, End::Tcp("localhost".into(), 5432));
    }

    #[test]
    fn no_error_and_no_print_shows_the_password() {
        let good = parse("postgres://anna:secret@db/x").unwrap();
        assert!(!format!("{good:?} {good}").contains("secret"));
        for wrong in [
            "mysql://anna:secret@db/x",
            "postgres://anna:{secret%zz@db/x",
            "postgres://anna:secret@db:port/x",
            "postgres://anna:secret@db/x?sslmod=require",
            "postgres://anna:secret@db/x?sslmode=maybe",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(parse("postgres://a@db/x?sslmod=require").unwrap_err().contains("`sslmode`"));
    }
}
