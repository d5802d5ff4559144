//! Where a server is, and the secret that must not be written down.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A server's URL. What is shown, stored, compared and hashed has no password in it.
#[derive(Clone)]
pub struct Address {
    whole: String,
    shown: String,
}

impl Address {
    /// The URL with its secrets, for whoever connects and nobody else.
    pub fn with_secrets(&self) -> &str {
        &self.whole
    }

    /// The URL without its secrets.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// `postgres`, `mysql`, `mongodb`, ...
    pub fn scheme(&self) -> &str {
        self.shown.split("://").next().unwrap_or_default()
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some((_, rest)) if authority_end(rest).1 => Err(
                "the password in this address holds a /, ? or #, which end it there: write %2F, %3F or %23"
                    .into(),
            ),
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => {
                Ok(Address { whole: text.into(), shown: redact(text) })
            }
            _ => Err("write an address as \"postgres://user@host:5432/database\"".into()),
        }
    }
}

/// `text` with the passwords of all URLs in it left out, and the values of all parameters whose names speak
/// of passwords, secrets or tokens. For command lines, plans and messages before they are written down.
pub fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        // The user part ends at the last @ before the path: passwords may hold an @ that nobody escaped.
        let (end, _) = authority_end(after);
        let (authority, path) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                shown.push_str(user.split(':').next().unwrap_or_default());
                shown.push('@');
                shown.push_str(host);
            }
            None => shown.push_str(authority),
        }
        rest = path;
    }
    shown.push_str(rest);
    without_parameters(&shown)
}

/// Where users and hosts end that `text` begins with, and whether that is where a password shows that holds
/// what should end them.
fn authority_end(text: &str) -> (usize, bool) {
    let word = text.find([' ', '"', '\'', '\n']).unwrap_or(text.len());
    let end = text[..word].find(['/', '?', '#']).unwrap_or(word);
    let authority = &text[..end];
    let last = authority.rsplit_once(':').map(|(_, last)| last);
    let is_port = |text: &str| text.ends_with(']') || text.bytes().all(|byte| byte.is_ascii_digit());
    match text[end..word].rfind('@') {
        Some(at) if !authority.contains('@') && last.is_some_and(|last| !is_port(last)) => {
            let host = end + at + 1;
            let path = text[host..word].find(['/', '?', '#']).map_or(word, |path| host + path);
            (path, true)
        }
        _ => (end, false),
    }
}

const SECRET_NAMES: [&str; 5] = ["password", "passwd", "pwd", "secret", "token"];

/// Cuts the value of `...password=value` up to the next separator.
fn without_parameters(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('=') {
        let (before, after) = rest.split_at(at + 1);
        shown.push_str(before);
        rest = after;
        let name =
            before[..at].trim_end().rsplit(['?', '&', ' ', ',', '\n', '.', '"']).next().unwrap_or_default();
        if SECRET_NAMES.iter().any(|secret| name.to_ascii_lowercase().contains(secret)) {
            let blank = rest.len() - rest.trim_start().len();
            let value = &rest[blank..];
            let end = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => value[1..].find(quote).map_or(value.len(), |end| end + 2),
                _ => value.find(['&', ' ', ',', '"', '\'', '\n']).unwrap_or(value.len()),
            };
            shown.push_str(&rest[..blank]);
            shown.push_str("***");
            rest = &value[end..];
        }
    }
    shown.push_str(rest);
    shown
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.shown)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_used_and_never_shown() {
        for (text, shown) in [
            ("postgres://anna:secret@db:5432/bank", "postgres://anna@db:5432/bank"),
            ("postgres://anna:{p@ss:w}@db/bank?sslmode=require", "postgres://anna@db/bank?sslmode=require"),
            ("mysql://db/x?user=a&password=secret&ssl=1", "mysql://db/x?user=a&password=***&ssl=1"),
            ("mongodb://u:secret@a:1,b:2/?replicaSet=r", "mongodb://u@a:1,b:2/?replicaSet=r"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.with_secrets(), text);
            for printed in [
                address.to_string(),
                format!("{address:?}").trim_matches('"').to_string(),
                serde_json::to_string(&address).unwrap().trim_matches('"').to_string(),
            ] {
                assert_eq!(printed, shown);
            }
        }
    }

    #[test]
    fn texts_lose_their_secrets_and_nothing_else() {
        assert_eq!(
            redact(
                "tipover run x --set target.address=mongodb://u:secret@h/d -p jdbc.passwd=secret -p threads=4"
            ),
            "tipover run x --set target.address=mongodb://u@h/d -p jdbc.passwd=*** -p threads=4"
        );
        assert_eq!(redact("password = \"sec ret\"\nrecords = 5"), "password = ***\nrecords = 5");
        for whole in ["postgres://u:{se/cr?et@h:1/d", "postgres://u:{se#cret@h:1/d"] {
            assert_eq!(redact(whole), "postgres://u@h:1/d");
            assert!(whole.parse::<Address>().unwrap_err().contains("%2F"));
        }
        assert_eq!(
            redact("http://[::1]/x@y mongodb://a:1,b:2/?c=d@e"),
            "http://[::1]/x@y mongodb://a:1,b:2/?c=d@e"
        );
        assert_eq!(redact("a = 1, b == c, http://host:80/x@y"), "a = 1, b == c, http://host:80/x@y");
    }

    #[test]
    fn what_is_no_address_is_answered_with_an_example() {
        for wrong in ["", "localhost", "://x", "postgres://"] {
            assert!(wrong.parse::<Address>().unwrap_err().contains("postgres://user@host"));
        }
    }
}
