//! Packets of the MySQL protocol: three bytes of length, a sequence number, a payload.

use crate::connection::Input;
use std::ops::Range;

/// No table has more columns, and no answer to what is asked here (MySQL's manual, "Limits on Table Column
/// Count").
pub const MOST_COLUMNS: u64 = 4096;

/// A payload of this length goes on in the next packet.
const WHOLE: usize = 0xff_ffff;

/// The next complete packet: its sequence number and where its payload is, counted from [`Input::rest`].
/// `None` while it is incomplete.
#[inline]
pub fn next(input: &Input) -> Option<(u8, Range<usize>)> {
    let rest = input.rest();
    let head = rest.get(..4)?;
    let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    (rest.len() >= 4 + length).then_some((head[3], 4..4 + length))
}

/// Appends a packet whose payload `write` appends; one that is too long becomes several. Returns the number
/// of the last one.
#[inline]
pub fn put(output: &mut Vec<u8>, sequence: u8, write: impl FnOnce(&mut Vec<u8>)) -> u8 {
    let at = output.len();
    output.extend_from_slice(&[0; 4]);
    write(output);
    let length = output.len() - at - 4;
    if length < WHOLE {
        head(&mut output[at..], length, sequence);
        return sequence;
    }
    let payload = output.split_off(at + 4);
    output.truncate(at);
    let mut number = sequence;
    // One that is exactly full is followed by an empty one.
    let last: Option<&[u8]> = length.is_multiple_of(WHOLE).then_some(&[]);
    for piece in payload.chunks(WHOLE).chain(last) {
        let at = output.len();
        output.extend_from_slice(&[0; 4]);
        head(&mut output[at..], piece.len(), number);
        output.extend_from_slice(piece);
        number = number.wrapping_add(1);
    }
    number.wrapping_sub(1)
}

fn head(bytes: &mut [u8], length: usize, sequence: u8) {
    bytes[..3].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
    bytes[3] = sequence;
}

/// Appends a length in the protocol's compressed form, and what it counts.
#[inline]
pub fn put_counted(output: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ ..=250 => output.push(length as u8),
        length @ ..0x1_0000 => {
            output.push(0xfc);
            output.extend_from_slice(&(length as u16).to_le_bytes());
        }
        length @ ..0x100_0000 => {
            output.push(0xfd);
            output.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        }
        length => {
            output.push(0xfe);
            output.extend_from_slice(&(length as u64).to_le_bytes());
        }
    }
    output.extend_from_slice(bytes);
}

/// Reads from a payload, front to back; `None` once it is too short.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes this number of bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    /// A number of `count` bytes, the lowest first.
    #[inline]
    pub fn number(&mut self, count: usize) -> Option<u64> {
        let bytes = self.take(count)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// A number in compressed form; `None` for NULL, too.
    #[inline]
    pub fn length(&mut self) -> Option<u64> {
        match self.byte()? {
            byte @ ..=250 => Some(byte.into()),
            0xfc => self.number(2),
            0xfd => self.number(3),
            0xfe => self.number(8),
            _ => None,
        }
    }

    /// A length in compressed form and the bytes that it counts.
    #[inline]
    pub fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Up to the next zero, which is consumed.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let text = self.take(end);
        self.0 = &self.0[1..];
        text
    }
}

/// What an ERR packet says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The server's error number; 0 if it is not the server who says so.
    pub code: u16,
    /// In its words.
    pub message: String,
}

impl Report {
    /// Reads the payload, whose first byte is 0xff.
    pub fn parse(payload: &[u8]) -> Report {
        let mut reader = Reader(payload.get(1..).unwrap_or_default());
        let code = reader.number(2).unwrap_or(0) as u16;
        // `#` and five letters of SQLSTATE; not before the handshake.
        let message = match reader.0 {
            [b'#', rest @ ..] => rest.get(5..).unwrap_or_default(),
            rest => rest,
        };
        Report { code, message: String::from_utf8_lossy(message).into_owned() }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = if self.message.is_empty() { "no reason given" } else { &self.message };
        match self.code {
            0 => f.write_str(message),
            code => write!(f, "{message} [error {code}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_they_were_written() {
        for length in [0, 1, 250, 251, 252, 255, 256, 65_535, 65_536, 1 << 24] {
            let bytes = vec![7; length];
            let mut output = Vec::new();
            put_counted(&mut output, &bytes);
            let mut reader = Reader(&output);
            assert_eq!(reader.counted().map(<[u8]>::len), Some(length));
            assert!(reader.0.is_empty());
            assert!(Reader(&output[..output.len() - 1]).counted().is_none(), "{length}");
        }
        assert_eq!(Reader(&[0xfb]).counted(), None, "NULL");
    }

    #[test]
    fn a_long_payload_becomes_several_packets() {
        for (length, packets) in [(10, 1), (WHOLE - 1, 1), (WHOLE, 2), (WHOLE + 1, 2), (2 * WHOLE, 3)] {
            let mut output = Vec::new();
            let last = put(&mut output, 3, |payload| payload.resize(payload.len() + length, 1));
            assert_eq!(last, 3 + packets - 1, "{length}");
            assert_eq!(output.len(), length + 4 * usize::from(packets));
        }
    }
}
