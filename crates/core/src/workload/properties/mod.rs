//! YCSB's properties: the files that people have, and what they ask for (COMPATIBILITY C1).

mod core_workload;
mod known;

pub use core_workload::CoreWorkload;
pub use known::notices;

use std::collections::BTreeMap;
use std::str::FromStr;

/// Properties by name, each with where it was given, so that a mistake can be answered with its place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Properties {
    given: BTreeMap<String, (String, String)>,
}

impl Properties {
    /// Reads a property file as `java.util.Properties` does: comments with `#` or `!`, names ended by `=`,
    /// `:` or a blank, lines continued by a backslash, `\t \n \r \f \uXXXX` and escaped separators. Later
    /// lines beat earlier ones; `origin` is the file's name for messages.
    pub fn read(&mut self, text: &str, origin: &str) {
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let line = line.trim_start_matches(BLANKS);
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let mut logical = line.to_string();
            while continues(&logical) {
                logical.pop();
                match lines.next() {
                    Some((_, more)) => logical.push_str(more.trim_start_matches(BLANKS)),
                    None => break,
                }
            }
            let (name, value) = split(&logical);
            self.set(&unescape(name), &unescape(value), &format!("{origin}, line {}", index + 1));
        }
    }

    /// Sets one, as `-p name=value` does.
    pub fn set(&mut self, name: &str, value: &str, origin: &str) {
        self.given.insert(name.to_string(), (value.to_string(), origin.to_string()));
    }

    /// Names with their values, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, (value, _))| (name.as_str(), value.as_str()))
    }

    /// The value of `name`, without blanks around it: Java keeps those behind a value, and then cannot read
    /// the number. A value that is another property in `${}` is that property's, as go-ycsb reads it.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.given.get(name)?.0.trim();
        let other = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        match other.and_then(|other| self.given.get(other)) {
            Some((value, _)) => Some(value.trim()),
            None => Some(value),
        }
    }

    /// The first of `names` that is given.
    pub fn any(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name)).filter(|value| !value.is_empty())
    }

    /// Where `name` was given, with its value: `workloada, line 3: recordcount = "many"`.
    fn place(&self, name: &str) -> String {
        match self.given.get(name) {
            Some((value, origin)) => format!("{origin}: {name} = {value:?}"),
            None => name.to_string(),
        }
    }

    /// A number, or `default` if it is not given.
    ///
    /// # Errors
    /// If it is none, with its place.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.get(name).filter(|value| !value.is_empty()) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                let what = if text.parse::<f64>().is_ok() { "out of range" } else { "not a number" };
                format!("{} is {what}", self.place(name))
            }),
        }
    }

    /// A number from `least` up.
    pub fn at_least(&self, name: &str, default: u64, least: u64) -> Result<u64, String> {
        match self.number(name, default)? {
            number if number < least => Err(format!("{} must be at least {least}", self.place(name))),
            number => Ok(number),
        }
    }

    /// Whether it is `true`, as Java reads it: anything else is false.
    pub fn is_true(&self, name: &str, default: bool) -> bool {
        self.get(name).map_or(default, |value| value.eq_ignore_ascii_case("true"))
    }

    /// One of `choices`, the first if it is not given.
    ///
    /// # Errors
    /// The nearest right word.
    pub fn choice<'a>(&self, name: &str, choices: &[&'a str]) -> Result<&'a str, String> {
        let Some(value) = self.get(name) else { return Ok(choices[0]) };
        choices.iter().find(|choice| **choice == value).copied().ok_or_else(|| {
            let unknown = crate::experiment::unknown(&format!("value of {name}"), value, choices);
            format!("{}: {unknown}", self.given[name].1)
        })
    }
}

const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// An odd number of backslashes at its end.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' => return (&line[..at], line[at + 1..].trim_start_matches(BLANKS)),
            c if BLANKS.contains(&c) => {
                let rest = line[at..].trim_start_matches(BLANKS);
                let value = rest.strip_prefix(['=', ':']).map_or(rest, |v| v.trim_start_matches(BLANKS));
                return (&line[..at], value);
            }
            _ => {}
        }
    }
    (line, "")
}

fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::new();
    let mut letters = text.chars();
    let mut buffer = [0; 2];
    while let Some(c) = letters.next() {
        let c = match c {
            '\\' => match letters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = letters.by_ref().take(4).collect();
                    // Two of these may be the halves of one character.
                    units.push(u16::from_str_radix(&digits, 16).unwrap_or(0xFFFD));
                    continue;
                }
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend_from_slice(c.encode_utf16(&mut buffer));
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests;
