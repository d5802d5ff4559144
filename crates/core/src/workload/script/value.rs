//! Values of expressions and variables, and what may be made of which.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A value: what an expression gives, or what a variable holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Nothing known.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// 64 bits, signed.
    Integer(i64),
    /// IEEE 754, 64 bits.
    Double(f64),
    /// As it came from the command line or from the server; it becomes one of the others where an expression
    /// uses it.
    Text(#[serde(with = "text")] Arc<str>),
    /// A text that was drawn: in a statement it stands as SQL's constants do, between quotes.
    Quoted(#[serde(with = "text")] Arc<str>),
}

/// How a server reads the constants of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// A quote is written twice, and nothing else is special.
    Standard,
    /// A backslash is written twice, too.
    Backslashes,
}

impl Value {
    /// As pgbench calls its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "boolean",
            Value::Integer(_) => "int",
            Value::Double(_) => "double",
            Value::Text(_) | Value::Quoted(_) => "text",
        }
    }

    /// Whether `\if` and CASE take it for true: numbers other than zero are, NULL is not.
    pub fn is_true(&self) -> bool {
        match *self {
            Value::Boolean(value) => value,
            Value::Integer(value) => value != 0,
            Value::Double(value) => value != 0.0,
            Value::Null | Value::Text(_) | Value::Quoted(_) => false,
        }
    }

    /// A number that is rounded to the nearest integer, of two equally near ones the even one.
    #[inline]
    pub fn integer(&self) -> Result<i64, String> {
        match *self {
            Value::Integer(value) => Ok(value),
            Value::Double(value) => {
                let rounded = value.round_ties_even();
                // 2^63 is the first double that does not fit.
                match (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                    true => Ok(rounded as i64),
                    false => Err(format!("double to int overflow for {}", plain(value))),
                }
            }
            _ => Err(format!("cannot coerce {} to int", self.kind())),
        }
    }

    /// A number as a double.
    pub fn double(&self) -> Result<f64, String> {
        match *self {
            Value::Integer(value) => Ok(value as f64),
            Value::Double(value) => Ok(value),
            _ => Err(format!("cannot coerce {} to double", self.kind())),
        }
    }

    /// Only a boolean: `5 or 0` is an error in pgbench, whatever its manual says.
    pub fn boolean(&self) -> Result<bool, String> {
        match *self {
            Value::Boolean(value) => Ok(value),
            _ => Err(format!("cannot coerce {} to boolean", self.kind())),
        }
    }

    /// What a text means in an expression: NULL, an abbreviation of a truth value, an integer, or a double.
    pub fn of_text(text: &str) -> Option<Value> {
        let lower = text.to_ascii_lowercase();
        let begins = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
        if lower == "null" {
            return Some(Value::Null);
        }
        if begins("true", 1) || begins("yes", 1) || lower == "on" {
            return Some(Value::Boolean(true));
        }
        if begins("false", 1) || begins("no", 1) || begins("off", 2) {
            return Some(Value::Boolean(false));
        }
        let number = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        if let Ok(value) = number.parse() {
            return Some(Value::Integer(value));
        }
        // Rust reads what C's strtod reads, hexadecimal digits apart.
        number.parse().ok().map(Value::Double)
    }

    /// Appends it as it stands in the text of a statement.
    pub fn put_constant(&self, quoting: Quoting, out: &mut Vec<u8>) {
        let Value::Quoted(text) = self else { return self.put(out) };
        out.push(b'\'');
        for byte in text.bytes() {
            if byte == b'\'' || (byte == b'\\' && quoting == Quoting::Backslashes) {
                out.push(byte);
            }
            out.push(byte);
        }
        out.push(b'\'');
    }

    /// Appends it without quotes, as a parameter is written. Doubles have 15 significant digits, as C's
    /// `%.15g`.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Value::Integer(value) => put_integer(*value, out),
            Value::Text(text) | Value::Quoted(text) => out.extend_from_slice(text.as_bytes()),
            Value::Null => out.extend_from_slice(b"NULL"),
            Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Double(value) => out.extend_from_slice(shortened(*value).as_bytes()),
        }
    }
}

mod text {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(text: &Arc<str>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(d).map(Arc::from)
    }
}

/// Appends digits: most parameters are integers, and formatting takes longer than all else about them.
fn put_integer(value: i64, out: &mut Vec<u8>) {
    let (mut digits, mut at, mut rest) = ([0u8; 20], 20, value.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.put(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Six digits behind the point: C's `%f`, with PostgreSQL's words for what is no number.
fn plain(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { shortened(value) }
}

/// 15 significant digits without zeros at the end, with an exponent where that is shorter: C's `%.15g`.
fn shortened(value: f64) -> String {
    const DIGITS: i32 = 15;
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-Infinity".into() } else { "Infinity".into() };
    }
    let scientific = format!("{:.*e}", DIGITS as usize - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').expect("that is its form");
    let exponent: i32 = exponent.parse().expect("that is its form");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    trimmed(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_as_c_prints_them() {
        for (value, text) in [
            (std::f64::consts::PI, "3.14159265358979"),
            (2f64.sqrt(), "1.4142135623731"),
            (1e17, "1e+17"),
            (1e-5, "1e-05"),
            (1e-4, "0.0001"),
            (123_456_789.123_456_79, "123456789.123457"),
            (999999999999999.9, "1e+15"),
            (999999999999999.0, "999999999999999"),
            (-0.0, "-0"),
            (1e300, "1e+300"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(Value::Double(value).to_string(), text);
        }
        for value in [0, 7, -7, i64::MIN, i64::MAX, 10, -100] {
            assert_eq!(Value::Integer(value).to_string(), value.to_string());
        }
    }

    #[test]
    fn texts_become_what_they_look_like() {
        for (text, value) in [
            ("null", Some(Value::Null)),
            ("Y", Some(Value::Boolean(true))),
            ("on", Some(Value::Boolean(true))),
            ("of", Some(Value::Boolean(false))),
            ("o", None),
            ("-5", Some(Value::Integer(-5))),
            ("2.50", Some(Value::Double(2.5))),
            ("5x", None),
            ("", None),
        ] {
            assert_eq!(Value::of_text(text), value, "{text:?}");
        }
    }
}
