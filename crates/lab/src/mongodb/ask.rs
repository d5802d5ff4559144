//! One command over a server's Unix socket, which no fault of the network reaches. Written for the
//! laboratory's few questions; load goes through the target `mongodb`.

use super::Hello;
use bson::{Document, RawBsonRef, RawDocument, doc};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const OP_MSG: i32 = 2013;
const COMMAND_NOT_FOUND: i32 = 59;
/// The longest message that any mongod sends.
const LONGEST: i32 = 48_000_000;
/// A primary that waits for its secondaries to catch up before it steps down answers after ten seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a command has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The server could not be asked.
    #[error(transparent)]
    Lost(#[from] io::Error),
    /// It said no.
    #[error("{text} (code {code})")]
    Said {
        /// MongoDB's number for the error.
        code: i32,
        /// Its words.
        text: String,
    },
}

impl Refused {
    /// MongoDB's error code, if the server gave one.
    pub fn code(&self) -> i32 {
        match self {
            Refused::Said { code, .. } => *code,
            Refused::Lost(_) => 0,
        }
    }
}

/// Executes a command in the database `admin` of the server behind `socket`.
pub fn ask(socket: &Path, command: &Document) -> Result<Document, Refused> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    exchange(&mut stream, command)
}

/// What the server behind `socket` says of itself: to `hello`, or to `isMaster`, as that was called before
/// 4.4.2.
pub fn hello(socket: &Path) -> Result<Hello, Refused> {
    let answer = match ask(socket, &doc! { "hello": 1 }) {
        Err(refused) if refused.code() == COMMAND_NOT_FOUND => ask(socket, &doc! { "isMaster": 1 }),
        answer => answer,
    };
    answer.map(|answer| Hello::read(&answer))
}

fn exchange(stream: &mut (impl Read + Write), command: &Document) -> Result<Document, Refused> {
    let mut command = command.clone();
    command.insert("$db", "admin");
    let body = command.to_vec().map_err(io::Error::other)?;
    let mut message = Vec::new();
    // Length, number, answers to none, kind; then flags and a section of kind 0.
    for number in [body.len() as i32 + 21, 1, 0, OP_MSG, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(&body);
    stream.write_all(&message)?;

    let mut head = [0; 21];
    stream.read_exact(&mut head)?;
    let number = |at: usize| i32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if !(26..=LONGEST).contains(&number(0)) || number(12) != OP_MSG || head[20] != 0 {
        let words = "what answers does not speak MongoDB's wire protocol";
        return Err(io::Error::new(io::ErrorKind::InvalidData, words).into());
    }
    // Memory is taken for what comes, not for what is announced.
    let (length, mut body) = (number(0) as usize - head.len(), Vec::new());
    if stream.take(length as u64).read_to_end(&mut body)? < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let answer = RawDocument::from_bytes(&body).map_err(io::Error::other)?;
    if !is_shallow(answer) {
        let words = format!("the answer is nested more than {DEEPEST} deep, as no server's is");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words).into());
    }
    let answer = Document::try_from(answer).map_err(io::Error::other)?;
    match truth(&answer, "ok") {
        true => Ok(answer),
        false => Err(Refused::Said {
            code: whole(&answer, "code").unwrap_or(0) as i32,
            text: answer.get_str("errmsg").unwrap_or("no reason given").to_string(),
        }),
    }
}

/// Reads what a server says, without it.
///
/// # Errors
/// It is no good answer.
pub fn answer(said: &[u8]) -> Result<Document, Refused> {
    /// Whatever is said to it is heard by nobody.
    struct Peer<'a>(&'a [u8]);
    impl Read for Peer<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl Write for Peer<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    exchange(&mut Peer(said), &Document::new())
}

/// How deep documents are nested at most; MongoDB's own limit (`BSONDepth`), and reading a level takes a part
/// of our stack.
const DEEPEST: usize = 200;

/// Whether `document` is nested no more than [`DEEPEST`]; found out without going deeper.
fn is_shallow(document: &RawDocument) -> bool {
    let mut open = vec![document.iter()];
    while let Some(level) = open.last_mut() {
        match level.next() {
            Some(Ok((_, RawBsonRef::Document(inner)))) => open.push(inner.iter()),
            // An array is a document whose names are numbers.
            Some(Ok((_, RawBsonRef::Array(inner)))) => {
                open.extend(RawDocument::from_bytes(inner.as_bytes()).map(RawDocument::iter));
            }
            Some(Ok((_, RawBsonRef::JavaScriptCodeWithScope(code)))) => open.push(code.scope.iter()),
            Some(Ok(_)) => {}
            None | Some(Err(_)) => drop(open.pop()),
        }
        if open.len() > DEEPEST {
            return false;
        }
    }
    true
}

/// A whole number in whichever type the server chose.
pub fn whole(document: &Document, key: &str) -> Option<i64> {
    let value = document.get(key)?;
    value.as_i64().or(value.as_i32().map(i64::from)).or(value.as_f64().map(|number| number as i64))
}

/// Servers say `true`, `1` and `1.0`.
pub fn truth(document: &Document, key: &str) -> bool {
    document.get_bool(key).unwrap_or_else(|_| whole(document, key) == Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is read from it was written beforehand.
    struct Peer {
        answers: io::Cursor<Vec<u8>>,
        asked: Vec<u8>,
    }

    impl Read for Peer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.answers.read(buffer)
        }
    }

    impl Write for Peer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.asked.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answered(bytes: Vec<u8>) -> (Result<Document, Refused>, Vec<u8>) {
        let mut peer = Peer { answers: io::Cursor::new(bytes), asked: vec![] };
        let answer = exchange(&mut peer, &doc! { "hello": 1 });
        (answer, peer.asked)
    }

    fn message(body: &Document) -> Vec<u8> {
        let body = body.to_vec().unwrap();
        let mut bytes = Vec::new();
        for number in [body.len() as i32 + 21, 7, 1, OP_MSG, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&body);
        bytes
    }

    #[test]
    fn a_command_goes_out_as_op_msg_and_its_answer_comes_back() {
        let (answer, asked) = answered(message(&doc! { "ok": 1.0, "setName": "x" }));
        assert_eq!(answer.unwrap().get_str("setName").unwrap(), "x");
        assert_eq!(asked[12..21], [0xDD, 7, 0, 0, 0, 0, 0, 0, 0], "OP_MSG, no flags, a section of kind 0");
        let sent = Document::from_reader(&asked[21..]).unwrap();
        assert_eq!(sent, doc! { "hello": 1, "$db": "admin" });
        assert_eq!(asked[0] as usize, asked.len());
    }

    #[test]
    fn what_the_server_refuses_is_told_in_its_words() {
        let no = doc! { "ok": 0, "code": 94, "errmsg": "no replset config has been received" };
        let refused = answered(message(&no)).0.unwrap_err();
        assert_eq!(refused.to_string(), "no replset config has been received (code 94)");
        assert_eq!(refused.code(), 94);
        let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec();
        assert!(answered(http).0.unwrap_err().to_string().contains("wire protocol"));
    }

    #[test]
    fn what_is_nested_without_end_is_refused_and_takes_no_stack() {
        let nested = |levels: usize| {
            let mut body: Vec<u8> = Vec::new();
            // From the inside out: each level is a document with one element, `a`, that holds the next.
            let mut length = 5_i32;
            let mut heads = Vec::new();
            for _ in 0..levels {
                length += 8;
                heads.push(length);
            }
            for head in heads.iter().rev() {
                body.extend(head.to_le_bytes());
                body.extend(b"\x03a\0");
            }
            body.extend(5_i32.to_le_bytes());
            body.extend(vec![0; levels + 1]);
            let mut bytes = Vec::new();
            for number in [body.len() as i32 + 21, 7, 1, OP_MSG, 0] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.push(0);
            answered([bytes, body].concat()).0.unwrap_err().to_string()
        };
        for levels in [200, 100_000, 3_000_000] {
            assert!(nested(levels).contains("nested more than 200 deep"), "{}", nested(levels));
        }
        // As deep as a server's may be: read, and no good answer only because it is not ok.
        assert!(nested(199).contains("no reason given"), "{}", nested(199));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = answered(bytes);
        }
    }
}
