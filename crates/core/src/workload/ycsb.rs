//! YCSB's CoreWorkload: which operations, on which records, in which proportions.

use super::distribution::{Distribution, Requests, Span};
use super::lengths::Lengths;
use super::random::{Random, Streams};
use super::{Dataset, Records, Workload};
use crate::op::{Fields, Op};
use serde::{Deserialize, Serialize};

/// How a record number becomes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyHash {
    /// `insertorder=hashed`: neighbours in number are strangers in key order.
    Ycsb,
    /// As go-ycsb hashes, which takes the bytes in the other order: only key 0 is the same.
    GoYcsb,
    /// `insertorder=ordered`.
    Ordered,
}

/// YCSB's `Utils.hash`: FNV-1a over the eight little-endian bytes, made non-negative as Java's `Math.abs`
/// does.
#[inline]
pub fn hash(number: u64) -> u64 {
    const PRIME: u64 = 1_099_511_628_211;
    const PRIME_CUBED: u64 = PRIME.wrapping_mul(PRIME).wrapping_mul(PRIME);
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    for byte in 0..5 {
        hash = (hash ^ (number >> (8 * byte) & 0xff)).wrapping_mul(PRIME);
    }
    // Numbers that fit five bytes, which are all that occur, end with three zero bytes. The products depend
    // on each other, so this is a quarter of the time.
    if number >> 40 == 0 {
        hash = hash.wrapping_mul(PRIME_CUBED);
    } else {
        for byte in 5..8 {
            hash = (hash ^ (number >> (8 * byte) & 0xff)).wrapping_mul(PRIME);
        }
    }
    (hash as i64).unsigned_abs()
}

/// Weights of the kinds of operations; their sum need not be 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Reads of one record.
    pub read: f64,
    /// Updates of one record.
    pub update: f64,
    /// Inserts of a new record.
    pub insert: f64,
    /// Scans.
    pub scan: f64,
    /// A read, then an update of the same record.
    pub read_modify_write: f64,
}

impl Mix {
    /// Nothing but reads.
    pub const READS: Mix = Mix { read: 1.0, update: 0.0, insert: 0.0, scan: 0.0, read_modify_write: 0.0 };

    /// The proportions in YCSB's order.
    pub fn weights(&self) -> [f64; 5] {
        [self.read, self.update, self.insert, self.scan, self.read_modify_write]
    }

    /// Of all operations, the share that inserts.
    pub fn share_of_inserts(&self) -> f64 {
        self.insert / self.weights().iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// Whether it gives records that exist other values.
    pub fn changes_records(&self) -> bool {
        self.update + self.read_modify_write > 0.0
    }

    /// Says what is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), String> {
        let weights = self.weights();
        if weights.iter().any(|w| !w.is_finite() || *w < 0.0) {
            return Err("proportions must be numbers from 0 up".into());
        }
        if weights.iter().sum::<f64>() <= 0.0 {
            return Err("all proportions are 0: there is nothing to do".into());
        }
        Ok(())
    }
}

/// One of the six workloads that come with YCSB (COMPATIBILITY C4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standard {
    /// Its letter.
    pub letter: char,
    /// What it stands for.
    pub about: &'static str,
    /// Its proportions.
    pub mix: Mix,
    /// Which records it asks for.
    pub requests: Requests,
    /// Its longest scan.
    pub longest_scan: u32,
}

const fn mix(read: f64, update: f64, insert: f64, scan: f64, read_modify_write: f64) -> Mix {
    Mix { read, update, insert, scan, read_modify_write }
}

/// Workloads A to F.
pub const STANDARD: [Standard; 6] = [
    Standard {
        letter: 'a',
        about: "update heavy: a session store",
        mix: mix(0.5, 0.5, 0.0, 0.0, 0.0),
        requests: Requests::Zipfian,
        longest_scan: 1000,
    },
    Standard {
        letter: 'b',
        about: "read mostly: photo tagging",
        mix: mix(0.95, 0.05, 0.0, 0.0, 0.0),
        requests: Requests::Zipfian,
        longest_scan: 1000,
    },
    Standard {
        letter: 'c',
        about: "read only: a cache of user profiles",
        mix: mix(1.0, 0.0, 0.0, 0.0, 0.0),
        requests: Requests::Zipfian,
        longest_scan: 1000,
    },
    Standard {
        letter: 'd',
        about: "read latest: status updates",
        mix: mix(0.95, 0.0, 0.05, 0.0, 0.0),
        requests: Requests::Latest,
        longest_scan: 1000,
    },
    Standard {
        letter: 'e',
        about: "short ranges: threaded conversations",
        mix: mix(0.0, 0.0, 0.05, 0.95, 0.0),
        requests: Requests::Zipfian,
        longest_scan: 100,
    },
    Standard {
        letter: 'f',
        about: "read, modify, write: a user database",
        mix: mix(0.5, 0.0, 0.0, 0.0, 0.5),
        requests: Requests::Zipfian,
        longest_scan: 1000,
    },
];

impl Standard {
    /// The one called `letter`, in either case.
    pub fn of(letter: &str) -> Option<Standard> {
        STANDARD.into_iter().find(|standard| letter.eq_ignore_ascii_case(&standard.letter.to_string()))
    }
}

/// Which fields an operation touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldChoice {
    /// The whole record.
    #[default]
    All,
    /// Every field, asked for by its name.
    EachByName,
    /// One field, drawn uniformly.
    One,
}

/// Everything that defines the operations on a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Requested {
    /// The kinds of operations.
    pub mix: Mix,
    /// Which records.
    pub requests: Requests,
    /// First record asked for (`insertstart`).
    pub first: u64,
    /// How many records are asked for (`insertcount`); the data set may have more.
    pub count: u64,
    /// How many operations there will be, 0 if nobody knows: how many inserts `zipfian` leaves room for.
    pub operations: u64,
    /// What reads and scans bring.
    pub read: FieldChoice,
    /// What updates write.
    pub write: FieldChoice,
    /// Records per scan.
    pub scan_lengths: Lengths,
    /// Records per insert.
    pub insert_batch: u32,
}

impl Requested {
    /// `mix` over all of `dataset`, the rest as YCSB's defaults are.
    pub fn new(dataset: &Dataset, mix: Mix, requests: Requests) -> Self {
        Requested {
            mix,
            requests,
            first: 0,
            count: dataset.records,
            operations: 0,
            read: FieldChoice::All,
            write: FieldChoice::One,
            scan_lengths: Lengths::Uniform(1, 1000),
            insert_batch: 1,
        }
    }
}

/// The operations of YCSB's CoreWorkload.
///
/// A record that is drawn and does not exist (one that was not inserted yet, or a hole that a failed insert
/// left) is drawn again, as YCSB does for the former. After a hundred draws in vain the record is drawn
/// uniformly from those that were loaded, so that a guess of inserts that was far too high costs time but
/// does not hang.
#[derive(Debug, Clone)]
pub struct Ycsb {
    distribution: Distribution,
    streams: Streams,
    /// The kinds that occur, with the sum of the shares up to each.
    kinds: Vec<(f64, Kind)>,
    first: u64,
    count: u64,
    loaded: u64,
    fields: u16,
    read: FieldChoice,
    write: FieldChoice,
    scan_lengths: Lengths,
    insert_batch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

impl Ycsb {
    /// The operations that `requested` describes, on `dataset`.
    pub fn new(dataset: &Dataset, requested: &Requested, seed: u64) -> Self {
        requested.mix.check().expect("a checked mix");
        let span = Span {
            first: requested.first,
            count: requested.count,
            total: dataset.records,
            guessed_inserts: (requested.operations as f64 * requested.mix.share_of_inserts() * 2.0) as u64
                * u64::from(requested.insert_batch),
        };
        let sum: f64 = requested.mix.weights().iter().sum();
        let order = [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];
        let mut kinds = Vec::new();
        let mut below = 0.0;
        for (kind, weight) in order.into_iter().zip(requested.mix.weights()).filter(|(_, w)| *w > 0.0) {
            below += weight / sum;
            kinds.push((below, kind));
        }
        // Whatever rounding leaves belongs to the last.
        kinds.last_mut().expect("a checked mix").0 = f64::INFINITY;
        Ycsb {
            distribution: Distribution::new(requested.requests, span),
            streams: Streams::new(seed),
            kinds,
            first: requested.first,
            count: requested.count,
            loaded: dataset.records,
            fields: dataset.updatable(),
            read: requested.read,
            write: requested.write,
            scan_lengths: requested.scan_lengths.clone(),
            insert_batch: requested.insert_batch.max(1),
        }
    }

    /// 100 % reads of `dataset`.
    pub fn reads(dataset: &Dataset, requests: Requests, seed: u64) -> Self {
        Self::new(dataset, &Requested::new(dataset, Mix::READS, requests), seed)
    }

    #[inline]
    fn record(&self, n: u64, random: &mut Random, records: &Records) -> u64 {
        // What was loaded exists: no look at the records that others insert.
        let record = match &self.distribution {
            followed @ (Distribution::Latest(_) | Distribution::Exponential(_)) => {
                followed.draw(n, random, records.known())
            }
            fixed => fixed.draw(n, random, self.loaded),
        };
        if record < self.loaded { record } else { self.beyond(record, n, random, records) }
    }

    /// For a record beyond those that were loaded.
    #[cold]
    fn beyond(&self, drawn: u64, n: u64, random: &mut Random, records: &Records) -> u64 {
        let mut record = drawn;
        let known = records.known();
        for _ in 0..100 {
            if record < known && !records.is_hole(record) {
                return record;
            }
            record = self.distribution.draw(n, random, known);
        }
        self.first + random.below(self.count)
    }

    #[inline]
    fn choose(&self, choice: FieldChoice, random: &mut Random) -> Fields {
        match choice {
            FieldChoice::All => Fields::All,
            FieldChoice::EachByName => Fields::EachByName,
            FieldChoice::One => Fields::One(random.below(u64::from(self.fields)) as u16),
        }
    }
}

impl Workload for Ycsb {
    #[inline]
    fn op(&self, n: u64, records: &Records) -> Op {
        let mut random = self.streams.number(n);
        let kind = match self.kinds.as_slice() {
            [(_, only)] => *only,
            several => {
                let u = random.unit();
                several.iter().find(|(below, _)| u < *below).map_or(Kind::Read, |(_, kind)| *kind)
            }
        };
        // An update writes what no other operation writes; 0 is what was loaded.
        let version = n.wrapping_add(1);
        match kind {
            Kind::Read => {
                let record = self.record(n, &mut random, records);
                Op::Read { record, fields: self.choose(self.read, &mut random) }
            }
            Kind::Update => {
                let record = self.record(n, &mut random, records);
                Op::Update { record, fields: self.choose(self.write, &mut random), version }
            }
            Kind::Insert if self.insert_batch == 1 => Op::Insert { record: records.claim() },
            Kind::Insert => {
                Op::InsertMany { first: records.claim_many(self.insert_batch), count: self.insert_batch }
            }
            Kind::Scan => {
                let first = self.record(n, &mut random, records);
                let count = self.scan_lengths.draw(&mut random).max(1);
                Op::Scan { first, count, fields: self.choose(self.read, &mut random) }
            }
            Kind::ReadModifyWrite => {
                let record = self.record(n, &mut random, records);
                let read = self.choose(self.read, &mut random);
                Op::ReadModifyWrite { record, read, write: self.choose(self.write, &mut random), version }
            }
        }
    }
}

/// The load of a data set as operations, so that inserts are measured: operation n inserts the n-th batch of
/// the records from `first` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserts {
    /// The first record.
    pub first: u64,
    /// How many records.
    pub count: u64,
    /// Records per operation.
    pub batch: u32,
}

impl Inserts {
    /// How many operations there are.
    pub fn operations(&self) -> u64 {
        self.count.div_ceil(u64::from(self.batch))
    }
}

impl Workload for Inserts {
    /// Beyond the last batch nothing is left; the driver must not ask.
    fn op(&self, n: u64, _: &Records) -> Op {
        let before = n * u64::from(self.batch);
        match u64::from(self.batch).min(self.count.saturating_sub(before)) {
            0 => panic!("operation {n} of {} inserts", self.operations()),
            1 if self.batch == 1 => Op::Insert { record: self.first + before },
            // The last batch is smaller: YCSB loses it.
            count => Op::InsertMany { first: self.first + before, count: count as u32 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Failure, OpKind, Outcome};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_short_way_hashes_as_the_long_one() {
        let plain = |number: u64| {
            let hash = number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
            });
            (hash as i64).unsigned_abs()
        };
        let edges = [0, 1, (1 << 40) - 1, 1 << 40, (1 << 40) + 1, 1 << 63, u64::MAX];
        let spread = (0..64_000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 64));
        for number in edges.into_iter().chain(spread) {
            assert_eq!(hash(number), plain(number), "{number}");
        }
    }

    #[test]
    fn operation_n_is_drawn_from_the_stream_of_seed_and_n() {
        let dataset = Dataset::ycsb(1000);
        for requests in [Requests::Uniform, Requests::ZipfianTrue(0.7)] {
            let workload = Ycsb::reads(&dataset, requests, 9);
            let distribution = Distribution::new(requests, Span::all(1000));
            for n in [0, 1, 2, 1_000_000, u64::MAX] {
                let record = distribution.draw(n, &mut Random::new(9, n), 1000);
                assert_eq!(workload.op(n, &Records::new(1000)), Op::Read { record, fields: Fields::All });
            }
        }
    }

    fn kinds(workload: &Ycsb, records: &Records, operations: u64) -> BTreeMap<OpKind, u64> {
        let mut counts = BTreeMap::new();
        for n in 0..operations {
            *counts.entry(workload.op(n, records).kind()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn workloads_a_to_f_have_their_proportions() {
        for standard in STANDARD {
            let dataset = Dataset::ycsb(1000);
            let requested = Requested::new(&dataset, standard.mix, standard.requests);
            let counts = kinds(&Ycsb::new(&dataset, &requested, 3), &Records::new(1000), 100_000);
            let order = [OpKind::Read, OpKind::Update, OpKind::Insert, OpKind::Scan, OpKind::ReadModifyWrite];
            for (kind, weight) in order.into_iter().zip(standard.mix.weights()) {
                let share = *counts.get(&kind).unwrap_or(&0) as f64 / 100_000.0;
                // Five standard deviations.
                let margin = 5.0 * (weight * (1.0 - weight) / 100_000.0).sqrt();
                assert!((share - weight).abs() <= margin, "{}: {kind:?} {share}", standard.letter);
            }
        }
        assert_eq!(Standard::of("E").map(|s| s.longest_scan), Some(100));
        assert_eq!(Standard::of("g"), None);
    }

    #[test]
    fn readers_are_sent_to_what_exists_and_never_into_a_hole() {
        for requests in ["zipfian", "latest", "exponential", "zipfian-true", "uniform"] {
            let dataset = Dataset::ycsb(50);
            let mix = Mix { read: 1.0, insert: 1.0, ..Mix::default() };
            let mut requested = Requested::new(&dataset, mix, requests.parse().unwrap());
            requested.operations = 4000;
            let workload = Ycsb::new(&dataset, &requested, 3);
            let records = Records::new(50);
            let (mut inserted, mut new_read) = (0u64, 0u64);
            for n in 0..4000 {
                match workload.op(n, &records) {
                    Op::Insert { record } => {
                        assert_eq!(record, 50 + inserted);
                        inserted += 1;
                        let lost = record % 3 == 0;
                        let outcome = if lost { Outcome::Refused(Failure::Full) } else { Outcome::Done };
                        records.settle(record, outcome);
                    }
                    Op::Read { record, .. } => {
                        assert!(record < records.known() && !records.is_hole(record), "{requests}: {record}");
                        new_read += u64::from(record >= 50);
                    }
                    other => panic!("{other:?}"),
                }
            }
            let follows = requests != "uniform";
            assert_eq!(new_read > 0, follows, "{requests}: {new_read} reads of new records");
        }
    }

    #[test]
    fn a_guess_of_inserts_that_is_far_too_high_does_not_hang() {
        let dataset = Dataset::ycsb(3);
        let mix = Mix { read: 1.0, insert: 1.0, ..Mix::default() };
        let mut requested = Requested::new(&dataset, mix, Requests::Zipfian);
        requested.operations = 1 << 50;
        let workload = Ycsb::new(&dataset, &requested, 3);
        let records = Records::new(3);
        for n in 0..2000 {
            if let Op::Read { record, .. } = workload.op(n, &records) {
                assert!(record < 3);
            }
        }
    }

    #[test]
    fn fields_and_scan_lengths_are_drawn_as_asked() {
        let dataset = Dataset { fields: 4, ..Dataset::ycsb(100) };
        let mix = Mix { update: 1.0, scan: 1.0, read_modify_write: 1.0, ..Mix::default() };
        let mut requested = Requested::new(&dataset, mix, Requests::Uniform);
        requested.read = FieldChoice::EachByName;
        requested.scan_lengths = Lengths::Uniform(3, 5);
        let workload = Ycsb::new(&dataset, &requested, 1);
        let (mut updated, mut lengths) = ([0u32; 4], BTreeMap::<u32, u32>::new());
        for n in 0..6000 {
            match workload.op(n, &Records::new(100)) {
                Op::Update { fields: Fields::One(field), version, .. } => {
                    updated[usize::from(field)] += 1;
                    assert_eq!(version, n + 1);
                }
                Op::Scan { count, fields, .. } => {
                    *lengths.entry(count).or_default() += 1;
                    assert_eq!(fields, Fields::EachByName);
                }
                Op::ReadModifyWrite { read, write, .. } => {
                    assert!(read == Fields::EachByName && matches!(write, Fields::One(0..4)));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(updated.iter().all(|count| (400..600).contains(count)), "{updated:?}");
        assert_eq!(lengths.keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
        assert!(lengths.values().all(|count| (560..780).contains(count)), "{lengths:?}");
    }

    #[test]
    fn a_load_inserts_every_record_once_also_the_last_batch() {
        for (first, count, batch) in [(0, 10, 1), (7, 10, 3), (5, 9, 3), (0, 2, 100)] {
            let inserts = Inserts { first, count, batch };
            let mut loaded = vec![];
            for n in 0..inserts.operations() {
                match inserts.op(n, &Records::new(0)) {
                    Op::Insert { record } => loaded.push(record),
                    Op::InsertMany { first, count } => loaded.extend(first..first + u64::from(count)),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(loaded, (first..first + count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn numbers_beyond_32_bits_stay_what_they_are() {
        // YCSB casts to int: silent wrong keys from 2^31 records on.
        let dataset = Dataset::ycsb(20_000_000_000);
        for requests in ["uniform", "zipfian", "zipfian-true", "latest", "hotspot", "exponential"] {
            let workload = Ycsb::reads(&dataset, requests.parse().unwrap(), 1);
            let records = Records::new(dataset.records);
            let far = (0..1000)
                .filter(|n| {
                    let Op::Read { record, .. } = workload.op(*n, &records) else { panic!("not a read") };
                    assert!(record < dataset.records);
                    record > 1 << 31
                })
                .count();
            assert!(far > 100, "{requests}: {far}");
        }
    }

    proptest! {
        #[test]
        fn an_operation_depends_on_nothing_but_its_number_and_what_exists(
            n in any::<u64>(), seed in any::<u64>(), letter in "[abcdef]",
        ) {
            let standard = Standard::of(&letter).unwrap();
            let dataset = Dataset::ycsb(5000);
            let requested = Requested::new(&dataset, standard.mix, standard.requests);
            let workload = Ycsb::new(&dataset, &requested, seed);
            let first = workload.op(n, &Records::new(5000));
            (0..20).for_each(|other| { workload.op(other, &Records::new(5000)); });
            prop_assert_eq!(workload.op(n, &Records::new(5000)), first);
        }
    }
}
