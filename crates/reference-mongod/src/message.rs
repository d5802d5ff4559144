//! OP_MSG as the server sees it. Written apart from the client's code, so that each checks the other.

use bson::Document;
use std::io::{self, Read, Write};

/// A request, its document sequences put into its document as arrays.
#[derive(Debug, Clone)]
pub struct Request {
    /// By which its answer is known.
    pub id: i32,
    /// Whether an answer is expected.
    pub expects_answer: bool,
    /// The command.
    pub command: Document,
    /// Bytes on the wire.
    pub bytes: u64,
}

const OP_MSG: i32 = 2013;
const MORE_TO_COME: i32 = 2;
const LONGEST: i32 = 48_000_000;

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn number(bytes: &[u8], at: usize) -> io::Result<i32> {
    let four = bytes.get(at..at + 4).ok_or_else(|| invalid("a message ends too early"))?;
    Ok(i32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

/// Reads one request.
pub fn read(stream: &mut impl Read) -> io::Result<Request> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let length = number(&head, 0)?;
    if !(21..=LONGEST).contains(&length) || number(&head, 12)? != OP_MSG {
        return Err(invalid("only OP_MSG is understood"));
    }
    let mut bytes = vec![0; length as usize - 16];
    stream.read_exact(&mut bytes)?;
    let flags = number(&bytes, 0)?;
    let mut at = 4;
    let mut command = Document::new();
    while at < bytes.len() {
        let kind = bytes[at];
        let size = number(&bytes, at + 1)? as usize;
        let end = at + 1 + size;
        let section = bytes.get(at + 1..end).ok_or_else(|| invalid("a section is too long"))?;
        match kind {
            0 => command.extend(Document::from_reader(section).map_err(io::Error::other)?),
            1 => {
                let zero = section[4..].iter().position(|byte| *byte == 0);
                let zero = 4 + zero.ok_or_else(|| invalid("a sequence without a name"))?;
                let name = String::from_utf8_lossy(&section[4..zero]).into_owned();
                let mut rest = &section[zero + 1..];
                let mut documents = Vec::new();
                while !rest.is_empty() {
                    documents.push(Document::from_reader(&mut rest).map_err(io::Error::other)?);
                }
                command.insert(name, documents);
            }
            _ => return Err(invalid("a section of an unknown kind")),
        }
        at = end;
    }
    Ok(Request {
        id: number(&head, 4)?,
        expects_answer: flags & MORE_TO_COME == 0,
        command,
        bytes: length as u64,
    })
}

/// Writes the answer to request `id`; returns its length.
pub fn write(stream: &mut impl Write, id: i32, answer: &Document) -> io::Result<u64> {
    let body = answer.to_vec().map_err(io::Error::other)?;
    let length = 16 + 4 + 1 + body.len();
    let mut bytes = Vec::with_capacity(length);
    for number in [length as i32, 0, id, OP_MSG, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&body);
    stream.write_all(&bytes)?;
    Ok(length as u64)
}
