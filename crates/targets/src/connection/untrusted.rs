//! A conversation whose other side is bytes that are there already: what a hostile server could say, without
//! a socket.

use super::{Input, Protocol, Received, Step};
use tipover_core::op::{Fields, Op};

/// How a conversation goes, from the first byte of what is said in it.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// How many bytes arrive at once; zero: all of them.
    piece: usize,
    /// Which of two protocols, and whether encryption may be asked for: three bits, for whoever begins.
    pub choice: u8,
}

impl Manner {
    /// Of a conversation with these bytes, and the bytes that the server says.
    pub fn of(bytes: &[u8]) -> (Manner, &[u8]) {
        let (first, rest) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
        (Manner { piece: usize::from(first >> 3), choice: first & 7 }, rest)
    }

    /// What arrives, piece by piece.
    pub fn pieces<'a>(&self, said: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        said.chunks(if self.piece == 0 { said.len().max(1) } else { self.piece })
    }
}

/// Operations of each class, as long as the server answers them.
pub const OPERATIONS: [Op; 10] = [
    Op::Read { record: 3, fields: Fields::All },
    Op::Transfer { id: 7, from: 0, to: 1, amount: 10 },
    Op::Update { record: 4, fields: Fields::One(1), version: 2 },
    Op::Scan { first: 1, count: 3, fields: Fields::All },
    Op::Read { record: 5, fields: Fields::One(1) },
    Op::Insert { record: 8 },
    Op::Transfer { id: 8, from: 1, to: 0, amount: 10 },
    Op::InsertMany { first: 9, count: 2 },
    Op::Read { record: 3, fields: Fields::EachByName },
    Op::Script { script: 0, number: 3 },
];

/// Speaks with a server that says `said`, from its greeting on; everything that is sent goes through `sent`.
pub fn converse(
    protocol: &mut impl Protocol,
    manner: Manner,
    may_encrypt: bool,
    said: &[u8],
    sent: impl Fn(&[u8], bool),
) {
    let (mut input, mut output) = (Input::default(), Vec::new());
    let (mut ready, mut encrypted) = (false, false);
    let mut operations = OPERATIONS.iter().cycle();
    protocol.start(may_encrypt, &mut output);
    for piece in manner.pieces(said) {
        if input.take_in(piece).is_err() {
            return;
        }
        while !ready {
            sent(&output, encrypted);
            output.clear();
            match protocol.greet(&mut input, &mut output, encrypted) {
                // As a channel has it: nothing may have come before encryption begins.
                Step::Encrypt if encrypted || !input.rest().is_empty() => return,
                Step::Encrypt => encrypted = true,
                Step::More if !output.is_empty() => {}
                Step::More => break,
                Step::Refused(refusal) => {
                    assert!(!refusal.reason.is_empty());
                    return;
                }
                Step::Ready => {
                    ready = OPERATIONS.iter().any(|op| begun(&mut *protocol, op, &mut output));
                    if !ready {
                        return;
                    }
                }
            }
        }
        if !ready {
            continue;
        }
        loop {
            sent(&output, encrypted);
            output.clear();
            match protocol.answer(&mut input, &mut output) {
                Received::More => break,
                Received::Last(_) => return,
                Received::Pause(_) if goes_on(&mut *protocol, &mut output) => {}
                Received::Pause(_) => return,
                Received::Complete(_) => {
                    for field in 0..3 {
                        let _ = protocol.fetched(&input, field);
                    }
                    let _ = (protocol.fetched_records(), protocol.cancellation());
                    input.forget();
                    while !operations.next().is_some_and(|op| begun(&mut *protocol, op, &mut output)) {
                        output.clear();
                    }
                }
            }
        }
    }
}

/// Begins an operation, also one whose first request comes only when it goes on.
fn begun(protocol: &mut impl Protocol, op: &Op, output: &mut Vec<u8>) -> bool {
    protocol.encode(op, output) && (!output.is_empty() || goes_on(protocol, output))
}

/// Goes on with what waits for no answer, without its pauses; false if it is over.
fn goes_on(protocol: &mut impl Protocol, output: &mut Vec<u8>) -> bool {
    loop {
        match protocol.resume(output) {
            Received::More => return true,
            Received::Pause(_) => {}
            Received::Complete(_) | Received::Last(_) => return false,
        }
    }
}
