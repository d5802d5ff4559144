//! The history as bytes: append-only, compact, readable up to a torn tail.
//!
//! ```text
//! file   = "TIPHIST2" record*
//! record = length (varint) body (length bytes) CRC-32 (4 bytes, little-endian)
//! body   = kind, client, sequence, time since the record before (zigzag), then what the kind needs:
//!          of an intent (0) how long ago it was due (zigzag), and the operation;
//!          of a result (1) how often it was tried again, the outcome, and the answer
//! ```
//! Numbers are LEB128 varints, payload hashes are 8 plain bytes. A file that begins with "TIPHIST1" is read
//! too: there nothing was due before it was sent, retries were not kept, and a write carries the hash of its
//! bytes, which follows from its key and version. The checksum covers the record's number in
//! the file as well as its body, so that a block of an older file in the place of a newer one is found. The
//! last record of a history that was finished is an end, a body of one byte; a file without it was cut short.
//! What follows the first unreadable record is given up: with a group flush, nothing behind it was promised.

use super::history::{Completion, Event, Intent, Returned, Version};
use crate::op::{Failure, Fields, Op, Outcome, Step};
use crate::units::Tick;

/// First bytes of every file.
pub const MAGIC: &[u8; 8] = b"TIPHIST2";
/// First bytes of a file of before, which is read and not written.
pub const MAGIC_BEFORE: &[u8; 8] = b"TIPHIST1";
/// Kind of the last record; it has nothing else.
const END: u8 = 2;
/// No record is longer: a length beyond it is damage, and is not waited for.
const LONGEST: u64 = 64 << 20;

/// CRC-32 as in IEEE 802.3, of the record's number and its body.
fn crc(number: u64, body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&number.to_le_bytes());
    sum.update(body);
    sum.finalize()
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, ((n << 1) ^ (n >> 63)) as u64);
}

/// Writes events; holds nothing but the time of the last one and how many there were.
#[derive(Debug, Clone, Default)]
pub struct Encoder {
    records: u64,
    last: u64,
    body: Vec<u8>,
}

impl Encoder {
    /// A writer at the beginning of a file: the first [`Encoder::encode`] starts with [`MAGIC`].
    pub fn new() -> Self {
        Encoder::default()
    }

    /// How many records were written.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Appends `event` to `out`.
    pub fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        self.begin(out);
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        match event {
            Event::Intent(intent) => {
                body.push(0);
                self.head(&mut body, intent.client, intent.sequence, intent.at);
                put_signed(&mut body, intent.at.0.wrapping_sub(intent.due.0) as i64);
                put_op(&mut body, &intent.op);
            }
            Event::Result(result) => {
                body.push(1);
                self.head(&mut body, result.client, result.sequence, result.at);
                put(&mut body, u64::from(result.retries));
                put_outcome(&mut body, result.outcome);
                put_answer(&mut body, &result.answer);
            }
        }
        self.put_record(&body, out);
        self.body = body;
    }

    /// Appends the end to `out`: nothing came after what was written.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        self.put_record(&[END], out);
    }

    fn begin(&self, out: &mut Vec<u8>) {
        if self.records == 0 {
            out.extend_from_slice(MAGIC);
        }
    }

    fn put_record(&mut self, body: &[u8], out: &mut Vec<u8>) {
        put(out, body.len() as u64);
        out.extend_from_slice(body);
        out.extend_from_slice(&crc(self.records, body).to_le_bytes());
        self.records += 1;
    }

    fn head(&mut self, body: &mut Vec<u8>, client: u32, sequence: u64, at: Tick) {
        put(body, u64::from(client));
        put(body, sequence);
        put_signed(body, at.0.wrapping_sub(self.last) as i64);
        self.last = at.0;
    }
}

fn put_op(body: &mut Vec<u8>, op: &Op) {
    let mut with = |code: u8, numbers: &[u64]| {
        body.push(code);
        numbers.iter().for_each(|n| put(body, *n));
    };
    match op {
        Op::Update { record, fields, version } => with(0, &[*record, *version, number_of(*fields)]),
        Op::Read { record, fields } => with(1, &[*record, number_of(*fields)]),
        Op::Transfer { id, from, to, amount } => {
            with(2, &[*id, *from, *to]);
            put_signed(body, *amount);
        }
        Op::ReadBalances => with(3, &[]),
        Op::Transaction { steps } => {
            with(4, &[steps.len() as u64]);
            for step in steps.iter() {
                match step {
                    Step::Append { key, value } => {
                        body.push(0);
                        put(body, *key);
                        put(body, *value);
                    }
                    Step::Read { key } => {
                        body.push(1);
                        put(body, *key);
                    }
                }
            }
        }
        Op::Insert { record } => with(5, &[*record]),
        Op::InsertMany { first, count } => with(6, &[*first, u64::from(*count)]),
        Op::Scan { first, count, fields } => with(7, &[*first, u64::from(*count), number_of(*fields)]),
        Op::ReadModifyWrite { record, read, write, version } => {
            with(8, &[*record, number_of(*read), number_of(*write), *version]);
        }
        Op::ReadAt { offset, length } => with(9, &[*offset, u64::from(*length)]),
        Op::WriteAt { offset, length } => with(10, &[*offset, u64::from(*length)]),
        Op::Flush { data_only } => with(11, &[u64::from(*data_only)]),
        Op::Script { script, number } => with(12, &[u64::from(*script), *number]),
    }
}

fn number_of(fields: Fields) -> u64 {
    match fields {
        Fields::All => 0,
        Fields::EachByName => 1,
        Fields::One(field) => 2 + u64::from(field),
    }
}

/// Failures go by name, so that a kind that is added later moves none of the others.
fn put_outcome(body: &mut Vec<u8>, outcome: Outcome) {
    let (kind, failure) = match outcome {
        Outcome::Done => (0, None),
        Outcome::Refused(failure) => (1, Some(failure)),
        Outcome::Unknown(failure) => (2, Some(failure)),
    };
    body.push(kind);
    if let Some(failure) = failure {
        let name = serde_json::to_string(&failure).expect("a failure is a word");
        put(body, name.len() as u64);
        body.extend_from_slice(name.as_bytes());
    }
}

fn put_answer(body: &mut Vec<u8>, answer: &Returned) {
    match answer {
        Returned::Nothing => body.push(0),
        Returned::Value(None) => body.push(1),
        Returned::Value(Some(version)) => {
            body.push(2);
            put(body, version.key_sequence);
            body.extend_from_slice(&version.payload.to_le_bytes());
        }
        Returned::Balances(balances) => {
            body.push(3);
            put(body, balances.len() as u64);
            for (account, balance) in balances {
                put(body, *account);
                body.push(u8::from(balance.is_some()));
                if let Some(balance) = balance {
                    put_signed(body, *balance);
                }
            }
        }
        Returned::Lists(lists) => {
            body.push(4);
            put(body, lists.len() as u64);
            for list in lists {
                body.push(u8::from(list.is_some()));
                if let Some(list) = list {
                    put(body, list.len() as u64);
                    list.iter().for_each(|value| put(body, *value));
                }
            }
        }
    }
}

/// How the bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// As its writer ended it.
    End,
    /// After a whole record, which is not the end.
    Whole,
    /// Everything before `offset` was read; the `bytes` from there on were not.
    Torn {
        /// Where the first unreadable record begins.
        offset: u64,
        /// How many bytes were given up.
        bytes: u64,
    },
}

/// Reads events from bytes that come in pieces of any size; holds at most one record and one piece.
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    waiting: Vec<u8>,
    at: usize,
    offset: u64,
    records: u64,
    last: u64,
    begun: bool,
    /// Whether it is a file of before.
    is_old: bool,
    ended: bool,
    damaged: bool,
}

impl Decoder {
    /// A reader at the beginning of a file.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Takes more bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.at);
        self.at = 0;
        self.waiting.extend_from_slice(bytes);
    }

    /// How the file ended, once all of it was fed and [`Iterator::next`] gave `None`.
    pub fn tail(&self) -> Tail {
        let bytes = (self.waiting.len() - self.at) as u64;
        match (bytes, self.ended) {
            (0, true) => Tail::End,
            (0, false) => Tail::Whole,
            _ => Tail::Torn { offset: self.offset, bytes },
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    fn record(&mut self) -> Option<Event> {
        let rest = &self.waiting[self.at..];
        let mut cursor = Cursor { bytes: rest };
        let Some(length) = cursor.number() else {
            // Ten bytes hold every number; an eleventh will not help.
            self.damaged |= rest.len() >= 10;
            return None;
        };
        if length > LONGEST {
            self.damaged = true;
            return None;
        }
        let body = cursor.take(length as usize)?;
        let sum = u32::from_le_bytes(cursor.take(4)?.try_into().ok()?);
        let used = rest.len() - cursor.bytes.len();
        if body == [END] && sum == crc(self.records, body) {
            self.ended = true;
            self.advance(used);
            return None;
        }
        let mut inner = Cursor { bytes: body };
        let event = if sum == crc(self.records, body) { inner.event(self.last, self.is_old) } else { None };
        let Some(event) = event.filter(|_| inner.bytes.is_empty()) else {
            self.damaged = true;
            return None;
        };
        self.last = match &event {
            Event::Intent(intent) => intent.at.0,
            Event::Result(result) => result.at.0,
        };
        self.records += 1;
        self.advance(used);
        Some(event)
    }
}

impl Iterator for Decoder {
    type Item = Event;

    /// The next whole record; `None` where more bytes are needed, or the rest cannot be read.
    fn next(&mut self) -> Option<Event> {
        if !self.begun && !self.damaged {
            let head = self.waiting.get(self.at..self.at + MAGIC.len())?;
            self.is_old = head == MAGIC_BEFORE;
            self.damaged = head != MAGIC && !self.is_old;
            if !self.damaged {
                self.begun = true;
                self.advance(MAGIC.len());
            }
        }
        if self.damaged || self.ended { None } else { self.record() }
    }
}

/// All events of a whole file, and how it ended.
pub fn decode(bytes: &[u8]) -> (Vec<Event>, Tail) {
    let mut decoder = Decoder::new();
    decoder.feed(bytes);
    let events = decoder.by_ref().collect();
    (events, decoder.tail())
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let n = self.number()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn hash(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// `n` things. Nothing is reserved beforehand: the count may be damage.
    fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.number()?;
        let mut all = Vec::new();
        for _ in 0..n {
            all.push(one(self)?);
        }
        Some(all)
    }

    fn event(&mut self, last: u64, is_old: bool) -> Option<Event> {
        let kind = self.byte()?;
        let client = u32::try_from(self.number()?).ok()?;
        let sequence = self.number()?;
        let at = Tick(last.wrapping_add(self.signed()? as u64));
        match kind {
            0 if is_old => Some(Event::Intent(Intent { client, sequence, due: at, at, op: self.old_op()? })),
            0 => {
                let due = Tick(at.0.wrapping_sub(self.signed()? as u64));
                Some(Event::Intent(Intent { client, sequence, due, at, op: self.op()? }))
            }
            1 => {
                let retries = if is_old { 0 } else { self.small()? };
                let (outcome, answer) = (self.outcome()?, self.answer()?);
                Some(Event::Result(Completion { client, sequence, at, retries, outcome, answer }))
            }
            _ => None,
        }
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn fields(&mut self) -> Option<Fields> {
        Some(match self.number()? {
            0 => Fields::All,
            1 => Fields::EachByName,
            one => Fields::One(u16::try_from(one - 2).ok()?),
        })
    }

    /// An operation of a file of before.
    fn old_op(&mut self) -> Option<Op> {
        let fields = Fields::All;
        Some(match self.byte()? {
            0 => {
                let (record, version) = (self.number()?, self.number()?);
                self.hash()?;
                if version == 1 { Op::Insert { record } } else { Op::Update { record, fields, version } }
            }
            1 => Op::Read { record: self.number()?, fields },
            code => self.checked_op(code)?,
        })
    }

    fn op(&mut self) -> Option<Op> {
        Some(match self.byte()? {
            0 => {
                let (record, version) = (self.number()?, self.number()?);
                Op::Update { record, version, fields: self.fields()? }
            }
            1 => Op::Read { record: self.number()?, fields: self.fields()? },
            5 => Op::Insert { record: self.number()? },
            6 => Op::InsertMany { first: self.number()?, count: self.small()? },
            7 => Op::Scan { first: self.number()?, count: self.small()?, fields: self.fields()? },
            8 => Op::ReadModifyWrite {
                record: self.number()?,
                read: self.fields()?,
                write: self.fields()?,
                version: self.number()?,
            },
            9 => Op::ReadAt { offset: self.number()?, length: self.small()? },
            10 => Op::WriteAt { offset: self.number()?, length: self.small()? },
            11 => Op::Flush { data_only: self.number()? == 1 },
            12 => Op::Script { script: self.small()?, number: self.number()? },
            code => self.checked_op(code)?,
        })
    }

    /// An operation that is written alike in all files.
    fn checked_op(&mut self, code: u8) -> Option<Op> {
        Some(match code {
            2 => Op::Transfer {
                id: self.number()?,
                from: self.number()?,
                to: self.number()?,
                amount: self.signed()?,
            },
            3 => Op::ReadBalances,
            4 => Op::Transaction { steps: self.several(Self::step)?.into() },
            _ => return None,
        })
    }

    fn step(&mut self) -> Option<Step> {
        Some(match self.byte()? {
            0 => Step::Append { key: self.number()?, value: self.number()? },
            1 => Step::Read { key: self.number()? },
            _ => return None,
        })
    }

    fn outcome(&mut self) -> Option<Outcome> {
        let kind = self.byte()?;
        if kind == 0 {
            return Some(Outcome::Done);
        }
        let length = self.number()?;
        let failure: Failure = serde_json::from_slice(self.take(usize::try_from(length).ok()?)?).ok()?;
        match kind {
            1 => Some(Outcome::Refused(failure)),
            2 => Some(Outcome::Unknown(failure)),
            _ => None,
        }
    }

    fn answer(&mut self) -> Option<Returned> {
        Some(match self.byte()? {
            0 => Returned::Nothing,
            1 => Returned::Value(None),
            2 => Returned::Value(Some(Version { key_sequence: self.number()?, payload: self.hash()? })),
            3 => Returned::Balances(self.several(|cursor| {
                let account = cursor.number()?;
                let balance = if cursor.byte()? == 0 { None } else { Some(cursor.signed()?) };
                Some((account, balance))
            })?),
            4 => Returned::Lists(self.several(|cursor| {
                Some(if cursor.byte()? == 0 { None } else { Some(cursor.several(Self::number)?) })
            })?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::event;
    use super::*;
    use proptest::prelude::*;

    fn encode(events: &[Event]) -> (Vec<u8>, Vec<usize>) {
        let (mut encoder, mut bytes, mut ends) = (Encoder::new(), Vec::new(), Vec::new());
        for event in events {
            encoder.encode(event, &mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    proptest! {
        #[test]
        fn events_read_back_in_pieces_of_any_size(
            events in proptest::collection::vec(event(), 0..30), piece in 1..50usize
        ) {
            let (bytes, _) = encode(&events);
            let (mut decoder, mut read) = (Decoder::new(), Vec::new());
            for piece in bytes.chunks(piece) {
                decoder.feed(piece);
                read.extend(decoder.by_ref());
            }
            prop_assert_eq!(&read, &events);
            prop_assert_eq!(decoder.tail(), Tail::Whole);

            let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
            events.iter().for_each(|event| encoder.encode(event, &mut bytes));
            encoder.finish(&mut bytes);
            prop_assert_eq!(decode(&bytes), (events, Tail::End));
            prop_assert_ne!(decode(&bytes[..bytes.len() - 1]).1, Tail::End);
            bytes.push(0);
            let is_torn = matches!(decode(&bytes).1, Tail::Torn { .. });
            prop_assert!(is_torn);
        }

        #[test]
        fn a_file_torn_at_any_byte_gives_every_whole_record(
            events in proptest::collection::vec(event(), 1..12)
        ) {
            let (bytes, ends) = encode(&events);
            for cut in 0..bytes.len() {
                let whole = ends.iter().filter(|end| **end <= cut).count();
                let (read, tail) = decode(&bytes[..cut]);
                prop_assert_eq!(&read[..], &events[..whole], "cut at {}", cut);
                let head = if cut < MAGIC.len() { 0 } else { MAGIC.len() };
                let start = if whole > 0 { ends[whole - 1] } else { head };
                let left = (cut - start) as u64;
                let expected =
                    if left == 0 { Tail::Whole } else { Tail::Torn { offset: start as u64, bytes: left } };
                prop_assert_eq!(tail, expected, "cut at {}", cut);
            }
        }

        #[test]
        fn a_flipped_bit_is_found_and_nothing_before_it_is_lost(
            events in proptest::collection::vec(event(), 1..12),
            place in any::<prop::sample::Index>(),
            bit in 0..8u32
        ) {
            let (mut bytes, ends) = encode(&events);
            let place = place.index(bytes.len());
            bytes[place] ^= 1u8 << bit;
            let whole = ends.iter().filter(|end| **end <= place).count();
            let before = if place < MAGIC.len() { 0 } else { whole };
            let (read, tail) = decode(&bytes);
            prop_assert_eq!(&read[..], &events[..before]);
            prop_assert_ne!(tail, Tail::Whole);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = MAGIC.to_vec();
            file.extend_from_slice(&bytes);
            let _ = decode(&file);
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_record_in_the_wrong_place_is_not_read() {
        let intent = |sequence| {
            Event::Intent(Intent { client: 1, sequence, due: Tick(0), at: Tick(0), op: Op::ReadBalances })
        };
        let (bytes, ends) = encode(&[intent(1), intent(2), intent(3)]);
        // The second record is replaced by a copy of the first, as a stale block would.
        let first = &bytes[MAGIC.len()..ends[0]];
        let mut swapped = bytes[..ends[0]].to_vec();
        swapped.extend_from_slice(first);
        swapped.extend_from_slice(&bytes[ends[1]..]);
        assert_eq!(decode(&swapped).0, [intent(1)]);
    }

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        // Check value of CRC-32/ISO-HDLC over "123456789", whose first eight digits stand for the number.
        assert_eq!(crc(u64::from_le_bytes(*b"12345678"), b"9"), 0xCBF4_3926);
    }

    #[test]
    fn a_write_takes_few_bytes() {
        let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
        for n in 0..10_000u64 {
            let (client, sequence, at) = ((n % 16) as u32, n / 16, Tick(n * 20_000));
            let op = Op::Insert { record: n };
            encoder.encode(&Event::Intent(Intent { client, sequence, due: at, at, op }), &mut bytes);
            let (retries, outcome, answer) = (0, Outcome::Done, Returned::Nothing);
            let result = Completion { client, sequence, at, retries, outcome, answer };
            encoder.encode(&Event::Result(result), &mut bytes);
        }
        assert!(bytes.len() / 10_000 <= 40, "{} bytes per write", bytes.len() / 10_000);
    }

    #[test]
    fn a_file_of_before_is_read() {
        let mut bytes = MAGIC_BEFORE.to_vec();
        let mut encoder = Encoder::new();
        encoder.last = 0;
        let mut record = |body: &[u8]| encoder.put_record(body, &mut bytes);
        // Intents of client 3 at 1, 2 and 3 ns: a first write of key 9, a second one, a read; and a result.
        let hash = Version::of(9, 1).payload.to_le_bytes();
        record(&[&[0, 3, 1, 2, 0, 9, 1][..], &hash].concat());
        record(&[&[0, 3, 2, 2, 0, 9, 2][..], &hash].concat());
        record(&[0, 3, 3, 2, 1, 9]);
        record(&[1, 3, 3, 2, 0, 1]);
        let (events, tail) = decode(&bytes);
        assert_eq!(tail, Tail::Whole);
        let intent = |sequence, op| {
            let at = Tick(sequence);
            Event::Intent(Intent { client: 3, sequence, due: at, at, op })
        };
        let fields = Fields::All;
        let (outcome, answer) = (Outcome::Done, Returned::Value(None));
        let result = Completion { client: 3, sequence: 3, at: Tick(4), retries: 0, outcome, answer };
        assert_eq!(
            events,
            [
                intent(1, Op::Insert { record: 9 }),
                intent(2, Op::Update { record: 9, fields, version: 2 }),
                intent(3, Op::Read { record: 9, fields }),
                Event::Result(result),
            ]
        );
    }
}
