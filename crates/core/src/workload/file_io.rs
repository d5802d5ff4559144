//! What is asked of a file or a block device: where, how large, read or written, and when it is flushed.
//!
//! Streams are deterministic: request `k` of stream `s` under a seed is always the same, so a load can be
//! repeated and split over threads.

use super::random::Random;
use super::{Records, Workload};
use crate::op::Op;
use crate::units::{Bytes, ParseError, bad};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// In which order places are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Anywhere, each place alike.
    Random,
    /// One after the other, each stream from a place of its own, and round again.
    Sequential,
}

/// Which requests are reads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// All.
    Reads,
    /// None.
    Writes,
    /// Reads for one write, by the rule of sysbench's `rndrw`: a thread reads while (its reads + 1) ÷ (its
    /// writes + 1) is below this. Its default is 1.5, which is 60 % reads.
    ReadsPerWrite(f64),
}

impl Turns {
    /// sysbench's `--file-rw-ratio`.
    pub const SYSBENCH: Turns = Turns::ReadsPerWrite(1.5);

    /// Whether request `k` of a thread, counted from 0, is a read.
    ///
    /// sysbench's rule in closed form: with `d = reads + 1 − ratio (writes + 1)` it reads while d < 0. A read
    /// adds 1 to d and a write takes `ratio` away, which keeps d in [−ratio, 1): a rotation by 1 modulo 1 +
    /// ratio. So request k is a read if (k + 1) mod (1 + ratio) < ratio.
    #[inline]
    pub fn reads(self, k: u64) -> bool {
        match self {
            Turns::Reads => true,
            Turns::Writes => false,
            Turns::ReadsPerWrite(ratio) => (k as f64 + 1.0).rem_euclid(1.0 + ratio) < ratio,
        }
    }

    /// The share of requests that are reads.
    pub fn read_share(self) -> f64 {
        match self {
            Turns::Reads => 1.0,
            Turns::Writes => 0.0,
            Turns::ReadsPerWrite(ratio) => ratio / (1.0 + ratio),
        }
    }
}

/// How large requests are: "4 KiB", "4 KiB-64 KiB" (uniform in steps of the least), or parts of a hundred as
/// fio's `bssplit` writes them, "4 KiB/60:16 KiB/40".
#[derive(Debug, Clone, PartialEq)]
pub enum Blocks {
    /// All alike.
    One(Bytes),
    /// From least to most, in steps of the least, each alike.
    Range(Bytes, Bytes),
    /// Sizes with weights.
    Split(Vec<(Bytes, u32)>),
}

const BLOCKS: &str =
    "a block size such as \"4 KiB\", a range \"4 KiB-64 KiB\" or a split \"4 KiB/60:16 KiB/40\"";
/// More than this in one request is refused: buffers are kept for every request in flight.
const MOST_BLOCK: Bytes = Bytes::mib(64);

impl Blocks {
    /// The smallest size; places are multiples of it.
    pub fn least(&self) -> Bytes {
        match self {
            Blocks::One(size) | Blocks::Range(size, _) => *size,
            Blocks::Split(parts) => parts.iter().map(|(size, _)| *size).min().unwrap_or_default(),
        }
    }

    /// The largest size.
    pub fn most(&self) -> Bytes {
        match self {
            Blocks::One(size) | Blocks::Range(_, size) => *size,
            Blocks::Split(parts) => parts.iter().map(|(size, _)| *size).max().unwrap_or_default(),
        }
    }

    /// Mean size in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Blocks::One(size) => size.0 as f64,
            Blocks::Range(least, most) => (least.0 + most.0 / least.0 * least.0) as f64 / 2.0,
            Blocks::Split(parts) => {
                let weights: f64 = parts.iter().map(|(_, weight)| f64::from(*weight)).sum();
                parts.iter().map(|(size, weight)| size.0 as f64 * f64::from(*weight)).sum::<f64>() / weights
            }
        }
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Blocks::One(size) => size.0,
            Blocks::Range(least, most) => (1 + random.below(most.0 / least.0)) * least.0,
            Blocks::Split(parts) => {
                let all: u64 = parts.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut left = random.below(all);
                for (size, weight) in parts {
                    if left < u64::from(*weight) {
                        return size.0;
                    }
                    left -= u64::from(*weight);
                }
                unreachable!("a draw below the sum of the weights falls into one of them")
            }
        }
    }

    fn check(self, text: &str) -> Result<Self, ParseError> {
        let wrong = || bad(text, BLOCKS);
        let usable = |size: &Bytes| size.0 > 0 && *size <= MOST_BLOCK;
        let sizes: Vec<Bytes> = match &self {
            Blocks::One(size) => vec![*size],
            Blocks::Range(least, most) if least < most && most.0.is_multiple_of(least.0) => {
                vec![*least, *most]
            }
            Blocks::Range(..) => return Err(wrong()),
            Blocks::Split(parts) => parts.iter().map(|(size, _)| *size).collect(),
        };
        let granular = sizes.iter().all(|size| size.0.is_multiple_of(self.least().0.max(1)));
        let weighed = match &self {
            Blocks::Split(parts) => parts.iter().any(|(_, weight)| *weight > 0),
            _ => true,
        };
        if sizes.iter().all(usable) && granular && weighed { Ok(self) } else { Err(wrong()) }
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocks::One(size) => write!(f, "{size}"),
            Blocks::Range(least, most) => write!(f, "{least}-{most}"),
            Blocks::Split(parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|(size, weight)| format!("{size}/{weight}")).collect();
                f.write_str(&parts.join(":"))
            }
        }
    }
}

impl FromStr for Blocks {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || bad(text, BLOCKS);
        let size = |text: &str| text.trim().parse::<Bytes>().map_err(|_| wrong());
        let blocks = if text.contains('/') {
            let part = |part: &str| {
                let (bytes, weight) = part.split_once('/').ok_or_else(wrong)?;
                Ok((size(bytes)?, weight.trim().trim_end_matches('%').trim().parse().map_err(|_| wrong())?))
            };
            Blocks::Split(text.split(':').map(part).collect::<Result<_, ParseError>>()?)
        } else if let Some((least, most)) = text.split_once('-') {
            Blocks::Range(size(least)?, size(most)?)
        } else {
            Blocks::One(size(text)?)
        };
        blocks.check(text)
    }
}

impl Serialize for Blocks {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// When a thread makes its writes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushes {
    /// After this number of writes of the thread, as fio counts (sysbench counts requests of all kinds).
    pub every_writes: u32,
    /// `fdatasync` rather than `fsync`.
    pub data_only: bool,
}

/// What is asked of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileIo {
    /// In which order places are visited.
    pub access: Access,
    /// Which requests are reads.
    pub turns: Turns,
    /// How large they are.
    pub blocks: Blocks,
    /// Bytes of the file that are used, from its begin.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    /// When writes are flushed; never without it.
    pub flushes: Option<Flushes>,
    /// How many streams (threads) share it.
    pub streams: u32,
    /// Other seeds, other places.
    pub seed: u64,
}

impl FileIo {
    /// Request `k` of a stream, without flushes: a function of the seed, the stream and k. `place` is where
    /// the stream's last sequential request ended.
    #[inline]
    fn request(&self, stream: u64, k: u64, place: Option<u64>) -> Op {
        let mut random = Random::new(self.seed.wrapping_add(stream.wrapping_mul(0x9E37_79B9)), k);
        let length = self.blocks.draw(&mut random);
        let offset = match (self.access, place) {
            (Access::Random, _) => {
                let step = self.blocks.least().0;
                random.below((self.size.0 - length) / step + 1) * step
            }
            (Access::Sequential, Some(place)) if place + length <= self.size.0 => place,
            (Access::Sequential, Some(_)) => 0,
            (Access::Sequential, None) => {
                // Only for blocks of one size: where the request before it ended is known without it.
                let blocks = self.size.0 / length;
                (self.first_place(stream) / length + k) % blocks * length
            }
        };
        let length = length as u32;
        if self.turns.reads(k) { Op::ReadAt { offset, length } } else { Op::WriteAt { offset, length } }
    }

    /// Where a stream begins: streams begin evenly spread over the file.
    fn first_place(&self, stream: u64) -> u64 {
        let step = self.blocks.least().0.max(1);
        let share = self.size.0 / u64::from(self.streams.max(1));
        (share * (stream % u64::from(self.streams.max(1)))) / step * step
    }

    /// The requests of stream number `number`, flushes included.
    pub fn stream(&self, number: u32) -> FileStream<'_> {
        let number = u64::from(number);
        FileStream { load: self, number, next: 0, place: self.first_place(number), unflushed: 0 }
    }

    /// What makes it impossible, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.blocks.most() > self.size {
            return Err(format!("blocks of {} do not fit into {}", self.blocks.most(), self.size));
        }
        match self.turns {
            Turns::ReadsPerWrite(ratio) if !(ratio.is_finite() && (1e-3..=1e3).contains(&ratio)) => {
                Err(format!("{ratio} reads per write: between 0.001 and 1000 are possible"))
            }
            _ => Ok(()),
        }
    }
}

/// Operation n belongs to stream n mod streams. It makes flushes only where all other requests are writes:
/// elsewhere they depend on what came before.
impl Workload for FileIo {
    fn op(&self, n: u64, _: &Records) -> Op {
        let streams = u64::from(self.streams.max(1));
        let (stream, mut k) = (n % streams, n / streams);
        if let Some(Flushes { every_writes, data_only }) = self.flushes
            && self.turns == Turns::Writes
        {
            let round = u64::from(every_writes) + 1;
            if k % round == round - 1 {
                return Op::Flush { data_only };
            }
            k -= k / round;
        }
        self.request(stream, k, None)
    }
}

/// The requests of one thread.
#[derive(Debug, Clone)]
pub struct FileStream<'a> {
    load: &'a FileIo,
    number: u64,
    next: u64,
    place: u64,
    unflushed: u32,
}

impl FileStream<'_> {
    /// The next request.
    #[inline]
    pub fn next_op(&mut self) -> Op {
        if let Some(flushes) = self.load.flushes
            && self.unflushed >= flushes.every_writes
        {
            self.unflushed = 0;
            return Op::Flush { data_only: flushes.data_only };
        }
        let op = self.load.request(self.number, self.next, Some(self.place));
        self.next += 1;
        match op {
            Op::WriteAt { offset, length } => {
                self.unflushed += 1;
                self.place = offset + u64::from(length);
            }
            Op::ReadAt { offset, length } => self.place = offset + u64::from(length),
            _ => {}
        }
        op
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(turns: Turns) -> FileIo {
        FileIo {
            access: Access::Random,
            turns,
            blocks: Blocks::One(Bytes::kib(16)),
            size: Bytes::mib(4),
            flushes: None,
            streams: 2,
            seed: 7,
        }
    }

    fn kind(op: Op) -> char {
        match op {
            Op::ReadAt { .. } => 'r',
            Op::WriteAt { .. } => 'w',
            _ => 'f',
        }
    }

    #[test]
    fn flushes_come_after_so_many_writes_of_the_thread() {
        let load =
            FileIo { flushes: Some(Flushes { every_writes: 2, data_only: true }), ..load(Turns::SYSBENCH) };
        let mut stream = load.stream(0);
        let said: String = (0..12).map(|_| kind(stream.next_op())).collect();
        assert_eq!(said, "rwrwfrrwrwfr");
        // By its number, an operation is what the thread makes of it.
        for access in [Access::Random, Access::Sequential] {
            let writes = FileIo { turns: Turns::Writes, access, ..load.clone() };
            let mut stream = writes.stream(1);
            let by_number: Vec<Op> = (0..12).map(|k| writes.op(1 + 2 * k, &Records::new(0))).collect();
            assert_eq!(by_number, (0..12).map(|_| stream.next_op()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sequential_streams_begin_apart_and_go_round() {
        let load = FileIo { access: Access::Sequential, size: Bytes::kib(64), ..load(Turns::Writes) };
        let places = |stream| {
            let mut stream = load.stream(stream);
            (0..5)
                .map(|_| match stream.next_op() {
                    Op::WriteAt { offset, .. } => offset / 16384,
                    other => panic!("{other:?} is no write"),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(places(0), [0, 1, 2, 3, 0]);
        assert_eq!(places(1), [2, 3, 0, 1, 2]);
        let by_number: Vec<u64> = (0..6)
            .map(|n| match load.op(n, &Records::new(0)) {
                Op::WriteAt { offset, .. } => offset / 16384,
                other => panic!("{other:?} is no write"),
            })
            .collect();
        assert_eq!(by_number, [0, 2, 1, 3, 2, 0]);
    }

    #[test]
    fn blocks_are_read_as_they_are_printed_and_nonsense_is_refused() {
        for text in ["4 KiB", "4 KiB-64 KiB", "4 KiB/60:16 KiB/40", "512 B"] {
            assert_eq!(text.parse::<Blocks>().unwrap().to_string(), text);
        }
        assert_eq!("4k".parse::<Blocks>().unwrap(), Blocks::One(Bytes::kib(4)));
        for wrong in ["", "0", "4k-3k", "4k-6k", "4k/0:8k/0", "4k/x", "1 GiB", "8k/50:12k/50"] {
            assert!(wrong.parse::<Blocks>().is_err(), "{wrong}");
        }
        assert_eq!("4k-16k".parse::<Blocks>().unwrap().mean(), 10.0 * 1024.0);
        assert_eq!("4k/75:8k/25".parse::<Blocks>().unwrap().mean(), 5.0 * 1024.0);
    }

    #[test]
    fn drawn_sizes_have_the_mean_that_is_said() {
        for text in ["4 KiB-64 KiB", "4 KiB/60:16 KiB/40"] {
            let load = FileIo { blocks: text.parse().unwrap(), ..load(Turns::Reads) };
            let mut stream = load.stream(0);
            let mut sum = 0.0;
            for _ in 0..20_000 {
                let Op::ReadAt { offset, length } = stream.next_op() else { panic!("no read") };
                assert!(offset % 4096 == 0 && offset + u64::from(length) <= load.size.0);
                sum += f64::from(length);
            }
            let mean = sum / 20_000.0;
            assert!((mean / load.blocks.mean() - 1.0).abs() < 0.02, "{text}: {mean}");
        }
    }

    proptest! {
        /// The rule as sysbench writes it (sb_fileio.c), in exact arithmetic: the ratio is a fraction of 8.
        #[test]
        fn the_closed_form_is_sysbenchs_rule(eighths in 1u64..80) {
            let ratio = eighths as f64 / 8.0;
            let turns = Turns::ReadsPerWrite(ratio);
            let (mut reads, mut writes) = (0u64, 0u64);
            for k in 0..500 {
                let is_read = 8 * (reads + 1) < eighths * (writes + 1);
                prop_assert_eq!(turns.reads(k), is_read, "request {}", k);
                if is_read { reads += 1 } else { writes += 1 }
            }
            prop_assert!((reads as f64 / 500.0 - turns.read_share()).abs() < 0.02);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Blocks>();
        }
    }
}
