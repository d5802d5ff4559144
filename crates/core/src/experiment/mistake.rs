//! What is wrong with a plan, told with the setting and the line that it stands on.

use super::PlanError;
use crate::nearest::unknown;
use std::borrow::Cow;
use toml::de::{DeTable, DeValue};

/// Where the settings of a plan come from: its text at a scale, and what the command line says besides.
pub(super) struct Origin<'a> {
    pub text: &'a str,
    pub scale: &'a str,
    pub overrides: &'a [(String, String)],
}

impl Origin<'_> {
    /// A mistake that serde found in the values of the plan, `inside` the setting of that path.
    pub fn told(&self, error: &toml::de::Error) -> PlanError {
        let said = error.to_string();
        let path = said.trim_end().rsplit_once("\nin `").map_or("", |(_, path)| path.trim_end_matches('`'));
        let mut path: Vec<&str> = path.split('.').filter(|key| !key.is_empty()).collect();
        let message = error.message();
        let quoted = message.split('`').nth(1).unwrap_or_default();
        let joined = path.join(".");
        let words = match wrong_kind(message) {
            Some(kind) if !path.is_empty() => format!("{joined} {kind}"),
            _ if message.starts_with("unknown field") => {
                path.push(quoted);
                explain(message)
            }
            _ if message.starts_with("missing field") && path.is_empty() => {
                format!("the plan lacks `{quoted}`")
            }
            _ if message.starts_with("missing field") => format!("`{joined}` lacks `{quoted}`"),
            _ if path.is_empty() => explain(message),
            _ => format!("{joined}: {}", explain(message)),
        };
        PlanError(format!("{}{words}", self.place(&path)))
    }

    /// A setting on the plan's first level that is none.
    pub fn unknown_setting(&self, given: &str, known: &[&str]) -> PlanError {
        PlanError(format!("{}{}", self.place(&[given]), unknown("setting", given, known)))
    }

    /// "line 12: ", or "--set: " where the command line said it; empty where it stands in several places.
    fn place(&self, path: &[&str]) -> String {
        if path.is_empty() {
            return String::new();
        }
        let joined = path.join(".");
        if self.overrides.iter().any(|(set, _)| *set == joined || joined.starts_with(&format!("{set}."))) {
            return "--set: ".into();
        }
        let Ok(table) = DeTable::parse(self.text) else { return String::new() };
        let scaled: Vec<&str> = ["scale", self.scale].into_iter().chain(path.iter().copied()).collect();
        let swept: Vec<&str> = ["sweep", "settings"].into_iter().chain(path.iter().copied()).collect();
        for path in [scaled.as_slice(), path, &swept] {
            let mut places = Vec::new();
            find(table.get_ref(), path, &mut places);
            match places.as_slice() {
                [] => {}
                [at] => return format!("line {}: ", 1 + self.text[..*at].matches('\n').count()),
                _ => return String::new(),
            }
        }
        String::new()
    }
}

/// What serde says, with the nearest right word for a setting or a value that is none.
pub(super) fn explain(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    for (prefix, what) in [("unknown field", "setting"), ("unknown variant", "value")] {
        if message.starts_with(prefix)
            && let Some(given) = quoted.next()
        {
            let known: Vec<&str> = quoted.collect();
            return unknown(what, given, &known);
        }
    }
    wrong_kind(message).map_or_else(|| message.to_string(), |kind| format!("this {kind}"))
}

/// Where `path` stands, through lists of tables too.
fn find(table: &DeTable<'_>, path: &[&str], places: &mut Vec<usize>) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == first) else { return };
    match (value.get_ref(), rest) {
        (_, []) => places.push(key.span().start),
        (DeValue::Table(inner), rest) => find(inner, rest, places),
        (DeValue::Array(values), rest) => {
            for value in values {
                if let DeValue::Table(inner) = value.get_ref() {
                    find(inner, rest, places);
                }
            }
        }
        _ => {}
    }
}

/// "is the text "x", and must be a whole number", from serde's words for a value of the wrong kind.
fn wrong_kind(message: &str) -> Option<String> {
    let (given, expected) = message.strip_prefix("invalid type: ")?.split_once(", expected ")?;
    let given: Cow<'_, str> = match given.split_once(' ') {
        Some(("string", text)) => format!("the text {text}").into(),
        Some(("integer" | "boolean", value)) => value.trim_matches('`').into(),
        Some(("floating", value)) => value.trim_start_matches("point ").trim_matches('`').into(),
        _ if given == "map" => "a table".into(),
        _ if given == "sequence" => "a list".into(),
        _ => given.into(),
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        // Our own words for what can be written there.
        other if !other.starts_with("struct ") => other,
        _ => "a table of settings",
    };
    Some(format!("is {given}, and must be {expected}"))
}
