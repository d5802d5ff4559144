//! OP_MSG, the one message of MongoDB's wire protocol since 3.6: written straight into the bytes that are
//! sent, and read in place.
//!
//! Layout: `length i32, request id i32, response to i32, opcode i32, flags u32`, then sections: kind 0 with
//! the command's document, kind 1 with a named sequence of documents.

use crate::connection::stranger;
use bson::RawDocument;
use bson::spec::ElementType;

/// The number of OP_MSG.
const OP_MSG: i32 = 2013;
/// Bytes before the flags.
pub const HEADER_BYTES: usize = 16;
/// No message is longer than this (`maxMessageSizeBytes` of every server known).
pub const LONGEST_MESSAGE: usize = 48_000_000;
/// In a request: no answer is expected. In an answer: another one follows without being asked for.
pub const MORE_TO_COME: u32 = 1 << 1;
const CHECKSUM_PRESENT: u32 = 1;

/// Writes one message, element by element.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    open: Vec<usize>,
    in_sequence: bool,
}

impl Writer {
    /// Begins a message with its command document, whatever was written before.
    pub fn begin(&mut self, request_id: i32, flags: u32) {
        self.bytes.clear();
        self.open.clear();
        self.in_sequence = false;
        for number in [0, request_id, 0, OP_MSG] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(&flags.to_le_bytes());
        self.bytes.push(0);
        self.open();
    }

    fn open(&mut self) {
        self.open.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn close(&mut self) {
        let start = self.open.pop().expect("what is closed was opened");
        let length = (self.bytes.len() - start) as i32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn element(&mut self, kind: ElementType, name: &str) {
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
    }

    /// A string; its bytes must be UTF-8, as keys are.
    pub fn string(&mut self, name: &str, value: &[u8]) {
        self.element(ElementType::String, name);
        self.bytes.extend_from_slice(&(value.len() as i32 + 1).to_le_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.push(0);
    }

    /// A 32-bit number.
    pub fn int32(&mut self, name: &str, value: i32) {
        self.element(ElementType::Int32, name);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A 64-bit number.
    pub fn int64(&mut self, name: &str, value: i64) {
        self.element(ElementType::Int64, name);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A truth value.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.element(ElementType::Boolean, name);
        self.bytes.push(u8::from(value));
    }

    /// Bytes of the generic subtype, as YCSB's fields are.
    pub fn binary(&mut self, name: &str, value: &[u8]) {
        self.binary_of(name, 0, value);
    }

    /// The 16 bytes of a UUID, as sessions are named by.
    pub fn uuid(&mut self, name: &str, value: &[u8; 16]) {
        self.binary_of(name, 4, value);
    }

    fn binary_of(&mut self, name: &str, subtype: u8, value: &[u8]) {
        self.element(ElementType::Binary, name);
        self.bytes.extend_from_slice(&(value.len() as i32).to_le_bytes());
        self.bytes.push(subtype);
        self.bytes.extend_from_slice(value);
    }

    /// Begins a document inside the one at hand.
    pub fn begin_document(&mut self, name: &str) {
        self.element(ElementType::EmbeddedDocument, name);
        self.open();
    }

    /// Begins an array inside the document at hand; its elements are named "0", "1", ...
    pub fn begin_array(&mut self, name: &str) {
        self.element(ElementType::Array, name);
        self.open();
    }

    /// Begins a document of a sequence.
    pub fn begin_item(&mut self) {
        debug_assert!(self.in_sequence);
        self.open();
    }

    /// Ends the document or array begun last.
    pub fn end(&mut self) {
        self.bytes.push(0);
        self.close();
    }

    /// Writes every element of `document` into the document at hand.
    pub fn elements(&mut self, document: &RawDocument) {
        let bytes = document.as_bytes();
        self.bytes.extend_from_slice(&bytes[4..bytes.len() - 1]);
    }

    /// Ends the command document, if it is open, and begins the sequence called `name`.
    pub fn begin_sequence(&mut self, name: &str) {
        self.end();
        self.in_sequence = true;
        self.bytes.push(1);
        self.open();
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
    }

    /// Ends the message and returns its bytes, ready to be sent.
    pub fn finish(&mut self) -> &[u8] {
        if self.in_sequence {
            self.close();
        } else {
            self.end();
        }
        debug_assert!(self.open.is_empty(), "everything that was opened is closed");
        let length = self.bytes.len() as i32;
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        &self.bytes
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives a finished message another request id, so that it can be sent again.
    pub fn renumber(&mut self, request_id: i32) {
        self.bytes[4..8].copy_from_slice(&request_id.to_le_bytes());
    }
}

fn number(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The length of the message that begins with `bytes`, once its header is complete.
///
/// # Errors
/// If these are not the first bytes of a message that could be an answer.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, String> {
    if bytes.len() < HEADER_BYTES {
        // What talks HTTP or SSH does not need sixteen bytes to show it.
        if bytes.len() >= 4 && !plausible(number(bytes, 0)) {
            return Err(strange(bytes));
        }
        return Ok(None);
    }
    let (length, opcode) = (number(bytes, 0), number(bytes, 12));
    if !plausible(length) || opcode != OP_MSG {
        return Err(strange(bytes));
    }
    Ok(Some(length as usize))
}

fn plausible(length: i32) -> bool {
    length > HEADER_BYTES as i32 && length as usize <= LONGEST_MESSAGE
}

fn strange(bytes: &[u8]) -> String {
    let shown: String = bytes
        .iter()
        .take(24)
        .map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' })
        .collect();
    let who = stranger(bytes).map_or(String::new(), |name| format!(": {name} answers there"));
    format!("this is not MongoDB's wire protocol (it begins \"{shown}\"){who}; is the port right?")
}

/// An answer, read in place.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    /// The request that it answers.
    pub response_to: i32,
    /// Its command document.
    pub body: &'a RawDocument,
}

/// The answer in `bytes`, which hold one whole message.
///
/// # Errors
/// If it is malformed.
pub fn parse(bytes: &[u8]) -> Result<Incoming<'_>, String> {
    let flags = bytes.get(16..20).map(|flags| number(flags, 0) as u32).ok_or("a message without flags")?;
    let end = bytes.len() - if flags & CHECKSUM_PRESENT != 0 { 4 } else { 0 };
    let mut at = 20;
    while at + 5 <= end {
        let size = number(bytes, at + 1);
        let section = (size >= 5).then(|| bytes.get(at + 1..at + 1 + size as usize)).flatten();
        let section = section.ok_or("a section of the answer is longer than the answer")?;
        if bytes[at] == 0 {
            let body =
                RawDocument::from_bytes(section).map_err(|error| format!("malformed BSON: {error}"))?;
            return Ok(Incoming { response_to: number(bytes, 8), body });
        }
        at += 1 + size as usize;
    }
    Err("an answer without a document".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, doc, rawdoc};

    #[test]
    fn what_is_written_is_what_the_bson_crate_reads() {
        let mut writer = Writer::default();
        writer.begin(7, MORE_TO_COME);
        writer.string("insert", b"usertable");
        writer.int32("a", -1);
        writer.int64("b", i64::MIN);
        writer.boolean("c", true);
        writer.begin_document("lsid");
        writer.uuid("id", &[9; 16]);
        writer.end();
        writer.begin_array("list");
        writer.int32("0", 5);
        writer.end();
        writer.elements(&rawdoc! { "x": 1, "y": "z" });
        writer.begin_sequence("documents");
        writer.begin_item();
        writer.string("_id", b"user1");
        writer.binary("field0", &[0, 255]);
        writer.end();
        writer.begin_item();
        writer.string("_id", b"user2");
        writer.end();
        let bytes = writer.finish().to_vec();
        assert_eq!(length(&bytes).unwrap(), Some(bytes.len()));
        let body = parse(&bytes).unwrap().body.to_owned();
        let body = bson::Document::try_from(body).unwrap();
        let binary = |subtype, bytes: &[u8]| Bson::Binary(bson::Binary { subtype, bytes: bytes.into() });
        assert_eq!(
            body,
            doc! { "insert": "usertable", "a": -1, "b": i64::MIN, "c": true,
            "lsid": { "id": binary(bson::spec::BinarySubtype::Uuid, &[9; 16]) }, "list": [5], "x": 1, "y": "z" }
        );
        let at = bytes.windows(10).position(|w| w == b"documents\0").unwrap() + 10;
        let first = RawDocument::from_bytes(&bytes[at..at + number(&bytes, at) as usize]).unwrap();
        assert_eq!(first.get_str("_id").unwrap(), "user1");
        assert_eq!(first.get_binary("field0").unwrap().bytes, [0, 255]);
        let rest = &bytes[at + first.as_bytes().len()..];
        assert_eq!(RawDocument::from_bytes(rest).unwrap().get_str("_id").unwrap(), "user2");
    }

    #[test]
    fn other_protocols_are_recognised_by_their_first_bytes() {
        for other in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"SSH-", b"J\0\0\0\x0a5.5.5-10.11.19"] {
            let error = length(other).unwrap_err();
            assert!(error.contains("not MongoDB's wire protocol"), "{error}");
        }
        assert_eq!(length(&[200, 0, 0]), Ok(None));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = length(&bytes);
            let _ = parse(&bytes);
        }
    }
}
