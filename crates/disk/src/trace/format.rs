//! How a trace lies in its file, version 1. All numbers are little-endian; a *varint* has seven bits a byte,
//! the lowest first, the top bit set in all bytes but the last; a *zigzag* is a signed number made a varint
//! as `2n` or `-2n-1`.
//!
//! ```text
//! header   "TIPTRACE"  version: u16  mode: u8 (0 block, 1 file)  zeros: 5 bytes
//!          begin: u64 (monotonic clock, ns)  begin: u64 (since 1970, ns)
//! frame    kind: u8  zeros: 3 bytes  length: u32  checksum: u64 (FNV-1a of the eight bytes before and the
//!          payload)  payload: `length` bytes
//!   kind 1, records   varints: count, base (ns), dropped so far; then `count` records
//!   kind 2, a name    varint: file; then its path relative to the disk, to the end of the payload
//!   kind 3, the end   varints: records, dropped. A trace without it was cut off.
//! record   tag: u8 (bits 0-1 kind: read, write, flush, discard; bit 2: file follows; bit 3: offset follows;
//!          bit 4: size follows; bit 5: offset and size are in units of 512)
//!          zigzag: arrival minus that of the record before (of the first: minus base)
//!          varint: end minus arrival
//!          [varint: file, if not that of the record before (of the first: 0)]
//!          [zigzag: offset minus the end of the record before (of the first: minus 0), if not zero]
//!          [varint: size, if not that of the record before (of the first: 0)]
//! ```
//!
//! Each frame is read by itself, so a damaged one takes no other with it. A random 4 KiB read takes about ten
//! bytes. Arithmetic is modulo 2^64, so that no record is impossible.

use super::Record;
use tipover_core::device::Kind;
use tipover_core::units::{Bytes, Tick};

pub(super) const MAGIC: &[u8; 8] = b"TIPTRACE";
pub(super) const VERSION: u16 = 1;
pub(super) const HEADER: usize = 32;
pub(super) const FRAME_HEADER: usize = 16;
/// No frame is longer; a longer length is damage, and takes no memory.
pub(super) const LONGEST: usize = 1 << 20;
/// Records that fit into a frame whatever they are: each takes at most 51 bytes.
pub(super) const MOST_RECORDS: usize = 16 * 1024;

pub(super) const RECORDS: u8 = 1;
pub(super) const NAME: u8 = 2;
pub(super) const END: u8 = 3;

const SECTOR: u64 = 512;
const FILE: u8 = 1 << 2;
const OFFSET: u8 = 1 << 3;
const SIZE: u8 = 1 << 4;
const SECTORS: u8 = 1 << 5;

pub(super) fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a varint off the front; `None` if it is cut off or longer than 64 bits.
pub(super) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// What a record is told from: the one before it.
struct Previous {
    arrival: u64,
    file: u64,
    /// Where the request before ended.
    next: u64,
    size: u64,
}

impl Previous {
    fn start(base: u64) -> Previous {
        Previous { arrival: base, file: 0, next: 0, size: 0 }
    }
    fn is_now(&mut self, record: &Record) {
        self.arrival = record.arrival.0;
        self.file = record.file;
        self.next = record.offset.wrapping_add(record.size.0);
        self.size = record.size.0;
    }
}

/// The payload of a frame of records; at most [`MOST_RECORDS`].
pub(super) fn encode(records: &[Record], dropped: u64, into: &mut Vec<u8>) {
    let base = records.first().map_or(0, |first| first.arrival.0);
    [records.len() as u64, base, dropped].into_iter().for_each(|number| put(number, into));
    let mut previous = Previous::start(base);
    for record in records {
        let moved = record.offset.wrapping_sub(previous.next);
        let whole = moved.is_multiple_of(SECTOR) && record.size.0.is_multiple_of(SECTOR);
        let flags = [
            (FILE, record.file != previous.file),
            (OFFSET, moved != 0),
            (SIZE, record.size.0 != previous.size),
            (SECTORS, whole),
        ];
        let tag = flags.iter().filter(|(_, set)| *set).fold(number(record.kind), |tag, (bit, _)| tag | bit);
        into.push(tag);
        put(zigzag(record.arrival.0.wrapping_sub(previous.arrival)), into);
        put(record.end.0.wrapping_sub(record.arrival.0), into);
        if tag & FILE != 0 {
            put(record.file, into);
        }
        if tag & OFFSET != 0 {
            // A difference of sectors keeps its sign: it is divided as a signed number.
            put(if whole { zigzag((moved as i64 / SECTOR as i64) as u64) } else { zigzag(moved) }, into);
        }
        if tag & SIZE != 0 {
            put(if whole { record.size.0 / SECTOR } else { record.size.0 }, into);
        }
        previous.is_now(record);
    }
}

/// The records of a frame and what was dropped so far; `None` for what [`encode`] does not write.
pub(super) fn decode(mut payload: &[u8]) -> Option<(Vec<Record>, u64)> {
    let from = &mut payload;
    let (count, base, dropped) = (take(from)?, take(from)?, take(from)?);
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST_RECORDS)?;
    let mut records = Vec::with_capacity(count);
    let mut previous = Previous::start(base);
    for _ in 0..count {
        let (&tag, rest) = from.split_first()?;
        *from = rest;
        if tag >= SECTORS << 1 {
            return None;
        }
        let arrival = previous.arrival.wrapping_add(unzigzag(take(from)?));
        let end = arrival.wrapping_add(take(from)?);
        let file = if tag & FILE != 0 { take(from)? } else { previous.file };
        let unit = if tag & SECTORS != 0 { SECTOR } else { 1 };
        let moved = if tag & OFFSET != 0 { unzigzag(take(from)?).wrapping_mul(unit) } else { 0 };
        let size = if tag & SIZE != 0 { take(from)?.checked_mul(unit)? } else { previous.size };
        let offset = previous.next.wrapping_add(moved);
        let kind = kind(tag & 3);
        let record = Record { arrival: Tick(arrival), end: Tick(end), kind, file, offset, size: Bytes(size) };
        previous.is_now(&record);
        records.push(record);
    }
    from.is_empty().then_some((records, dropped))
}

/// A whole frame around `payload`.
pub(super) fn frame(kind: u8, payload: &[u8], into: &mut Vec<u8>) {
    let length = (payload.len() as u32).to_le_bytes();
    let head = [kind, 0, 0, 0, length[0], length[1], length[2], length[3]];
    into.extend_from_slice(&head);
    into.extend_from_slice(&checksum(&head, payload).to_le_bytes());
    into.extend_from_slice(payload);
}

/// FNV-1a: enough against a torn or zeroed piece, and nothing more is asked of it.
pub(super) fn checksum(head: &[u8], payload: &[u8]) -> u64 {
    head.iter()
        .chain(payload)
        .fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

pub(super) fn number(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Flush => 2,
        Kind::Discard => 3,
    }
}

/// Of the two lowest bits; the others do not matter.
pub(super) fn kind(number: u8) -> Kind {
    match number & 3 {
        0 => Kind::Read,
        1 => Kind::Write,
        2 => Kind::Flush,
        _ => Kind::Discard,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_read_back() {
        for (number, length) in [(0, 1), (127, 1), (128, 2), (1 << 21, 4), (u64::MAX, 10)] {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            assert_eq!(bytes.len(), length);
            assert_eq!(take(&mut &bytes[..]), Some(number));
            assert_eq!(take(&mut &bytes[..length - 1]), None, "cut off");
        }
        assert_eq!(take(&mut &[0xFF; 12][..]), None, "too long");
        for n in [0i64, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(n as u64)) as i64, n);
        }
        assert_eq!(zigzag(-1i64 as u64), 1);
    }

    #[test]
    fn a_random_page_read_takes_about_ten_bytes() {
        let mut x = 1u64;
        let records: Vec<Record> = (0..1000)
            .map(|n| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let arrival = 1_000_000_000_000 + n * 200_000 + (x >> 50);
                let (kind, size) = (Kind::Read, Bytes(4096));
                let offset = (x >> 33) % (1 << 20) * 4096;
                Record { arrival: Tick(arrival), end: Tick(arrival + 7_000_000), kind, file: 0, offset, size }
            })
            .collect();
        let mut bytes = Vec::new();
        encode(&records, 0, &mut bytes);
        assert!(bytes.len() <= 13 * records.len(), "{}", bytes.len());
        assert_eq!(decode(&bytes), Some((records, 0)));
    }
}
