//! Requests and replies between two of our programs: one JSON object a line, each request with one reply.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};

/// What is said, as a line with its end.
///
/// # Errors
/// It cannot be written as JSON.
pub fn line<T: Serialize>(said: &T) -> serde_json::Result<String> {
    let mut line = serde_json::to_string(said)?;
    line.push('\n');
    Ok(line)
}

/// Says a line, in one piece.
///
/// # Errors
/// Nobody listens any more.
pub fn say<T: Serialize>(to: &mut (impl Write + ?Sized), said: &T) -> io::Result<()> {
    to.write_all(line(said)?.as_bytes())?;
    to.flush()
}

/// What the next line says; `None` where the other side has hung up.
///
/// # Errors
/// It cannot be read, or is not what was expected.
pub fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

/// The same for whoever outlives the other side: one that cannot be read any more has hung up too.
///
/// # Errors
/// What it says is not what was expected.
pub fn hear_or_gone<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    match hear(from) {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => Ok(None),
        heard => heard,
    }
}

/// Reads a line as a `T` and writes it again, for whoever feeds strange lines to a program.
///
/// # Errors
/// It is none.
pub fn again<T: Serialize + DeserializeOwned>(said: &str) -> serde_json::Result<String> {
    serde_json::to_string(&serde_json::from_str::<T>(said)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;

    #[test]
    fn what_is_said_is_heard_line_by_line_up_to_the_end() {
        let said = [Op::ReadBalances, Op::Insert { record: 7 }];
        let mut wire = Vec::new();
        said.iter().for_each(|op| say(&mut wire, op).unwrap());
        let mut from = wire.as_slice();
        for op in said {
            assert_eq!(hear::<Op>(&mut from).unwrap(), Some(op));
        }
        assert_eq!(hear::<Op>(&mut from).unwrap(), None, "the other side hung up");
        assert!(hear_or_gone::<Op>(&mut &b"{}\n"[..]).is_err());
        assert_eq!(
            hear_or_gone::<Op>(&mut &b"{\"op\": "[..]).unwrap(),
            None,
            "it died in the middle of a line"
        );
        let line = r#"{"op":"insert","record":7}"#;
        assert_eq!(again::<Op>(line).unwrap(), line);
    }
}
