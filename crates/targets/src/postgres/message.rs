//! PostgreSQL's messages, version 3.0 of its protocol: a letter, a length that counts itself, a body.

use crate::connection::{Input, MOST_WAITING};

/// Instead of the letter of a message whose length is none: no message has it.
pub const BROKEN: u8 = 0;

/// The next complete message: its letter and where its body is, counted from [`Input::rest`]. One whose
/// length cannot be is [`BROKEN`], without a body, as soon as the length is there: nobody waits for the rest
/// of it.
#[inline]
pub fn next(input: &Input) -> Option<(u8, std::ops::Range<usize>)> {
    let rest = input.rest();
    let (&letter, length) = (rest.first()?, rest.get(1..5)?);
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    // It counts its own four bytes.
    if !(4..MOST_WAITING).contains(&length) {
        return Some((BROKEN, 5..5));
    }
    let end = 1 + length;
    (rest.len() >= end).then_some((letter, 5..end))
}

/// Appends a message whose body `write` appends.
#[inline]
pub fn put(output: &mut Vec<u8>, letter: u8, write: impl FnOnce(&mut Vec<u8>)) {
    output.push(letter);
    put_untagged(output, write);
}

/// The first message of a connection has no letter.
#[inline]
pub fn put_untagged(output: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = output.len();
    output.extend_from_slice(&[0; 4]);
    write(output);
    let length = (output.len() - at) as u32;
    output[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a length and what it counts, as parameters and columns are written.
#[inline]
pub fn put_counted(output: &mut Vec<u8>, bytes: &[u8]) {
    output.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    output.extend_from_slice(bytes);
}

/// Appends a length and what `write` appends.
#[inline]
pub fn put_counting(output: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = output.len();
    output.extend_from_slice(&[0; 4]);
    write(output);
    let length = (output.len() - at - 4) as u32;
    output[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text and the zero that ends it.
#[inline]
pub fn put_text(output: &mut Vec<u8>, text: &str) {
    output.extend_from_slice(text.as_bytes());
    output.push(0);
}

/// The values of a DataRow.
pub fn columns(body: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = body.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_at_checked(4)?;
        let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        if length < 0 {
            rest = after;
            return Some(None);
        }
        let (value, after) = after.split_at_checked(length as usize)?;
        rest = after;
        Some(Some(value))
    })
}

/// The rows that a CommandComplete speaks of: its last word, as in `UPDATE 1` and `INSERT 0 1`.
pub fn rows_of(body: &[u8]) -> u64 {
    let text = body.strip_suffix(b"\0").unwrap_or(body);
    let digits = text.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// What an ErrorResponse or NoticeResponse says. Its texts may be in any language; code and routine are not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// ERROR, FATAL, PANIC, WARNING, ...
    pub severity: String,
    /// The SQLSTATE; empty if it did not come from a server.
    pub code: String,
    /// In the server's words.
    pub message: String,
    /// More of them.
    pub detail: String,
    /// The function of the server that said so.
    pub routine: String,
}

impl Report {
    /// Reads the body of such a message.
    pub fn parse(body: &[u8]) -> Report {
        let mut report = Report::default();
        for field in body.split(|&byte| byte == 0).filter(|field| !field.is_empty()) {
            let text = String::from_utf8_lossy(&field[1..]).into_owned();
            match field[0] {
                b'S' if report.severity.is_empty() => report.severity = text,
                // Since 9.6, and never translated.
                b'V' => report.severity = text,
                b'C' => report.code = text,
                b'M' => report.message = text,
                b'D' => report.detail = text,
                b'R' => report.routine = text,
                _ => {}
            }
        }
        report
    }

    /// Whether it says that a commit stopped waiting for its standbys: it is done here, and nobody knows
    /// whether it is there. It comes as a warning beside a success.
    pub fn stopped_waiting_for_standbys(&self) -> bool {
        self.routine == "SyncRepWaitForLSN"
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.message.is_empty() { "no reason given" } else { &self.message })?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        if !self.code.is_empty() {
            write!(f, " [SQLSTATE {}]", self.code)?;
        }
        Ok(())
    }
}
