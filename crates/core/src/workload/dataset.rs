//! The records that exist: their keys and values as functions of their number.

use super::bank::{Bank, BankSpec};
use super::documents::{DocumentSink, Documents};
use super::lengths::Lengths;
use super::random::Random;
use super::script::Scripts;
use super::ycsb::{KeyHash, hash};
use crate::check::payload::PAYLOAD_BYTES;
use crate::op::{Failure, Fields, Outcome};
use crate::target::Session;
use crate::units::Ratio;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How the bytes of a field look, because compressibility decides how much disk a working set needs. In plans
/// `ycsb`, `half`, `integrity` or `compressible 60 %`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// As YCSB's RandomByteIterator: about 5.2 bits of entropy per byte; snappy finds nothing in it.
    Ycsb,
    /// The first half of a field random, the second one repeated byte: snappy saves a little under half.
    Half,
    /// A function of key and field alone, as YCSB's `dataintegrity` writes them, so that every read can be
    /// checked. The version of an update makes no difference.
    Integrity,
    /// Snappy or LZ4 save about this many per cent of fields of 100 bytes and more: the rest is random, 6
    /// bits in each byte, of which zlib and zstd can save a quarter more.
    Compressible(u8),
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Ycsb => f.write_str("ycsb"),
            Values::Half => f.write_str("half"),
            Values::Integrity => f.write_str("integrity"),
            Values::Compressible(percent) => write!(f, "compressible {percent} %"),
        }
    }
}

impl FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, share) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        match (name, share) {
            ("ycsb", "") => Ok(Values::Ycsb),
            ("half", "") => Ok(Values::Half),
            ("integrity", "") => Ok(Values::Integrity),
            ("compressible", share) => {
                let share: Ratio = share.parse().map_err(|e: crate::units::ParseError| e.to_string())?;
                let percent = (share.0 * 100.0).round();
                if (0.0..=95.0).contains(&percent) {
                    Ok(Values::Compressible(percent as u8))
                } else {
                    Err(format!("{share} cannot be saved; values can be compressible by 0 % to 95 %"))
                }
            }
            _ => Err(crate::experiment::unknown(
                "values",
                name,
                &["ycsb", "half", "integrity", "compressible"],
            )),
        }
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a record looks like.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Shape {
    /// YCSB's fields of bytes, see [`Dataset::value`].
    #[default]
    Fields,
    /// Documents like those of a sample, see [`Dataset::document`].
    Documents(Arc<Documents>),
    /// The accounts of a bank, between which operations transfer money.
    Bank(Arc<Bank>),
    /// The tables of all checks: the accounts of a bank, lists, and a ledger of keys, in which record `n` is
    /// key `n`, whose value says which write it is.
    Checks(Arc<Bank>),
    /// Whatever the statements of scripts find; nothing is known of it here.
    Scripts(Arc<Scripts>),
}

/// A shape as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Checked {
    Bank(BankSpec),
    Checks(BankSpec),
    Scripts(Box<Scripts>),
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Shape::Fields => None::<()>.serialize(s),
            Shape::Documents(documents) => documents.as_ref().serialize(s),
            Shape::Checks(bank) => Checked::Checks(*bank.spec()).serialize(s),
            Shape::Bank(bank) => Checked::Bank(*bank.spec()).serialize(s),
            Shape::Scripts(scripts) => Checked::Scripts(Box::new(scripts.as_ref().clone())).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Checked(Box<Checked>),
            Documents(Box<Documents>),
        }
        Ok(match Option::deserialize(d)? {
            None => Shape::Fields,
            Some(Either::Documents(documents)) => Shape::Documents(Arc::from(documents)),
            Some(Either::Checked(checked)) => match *checked {
                Checked::Bank(spec) => {
                    Shape::Bank(Arc::new(Bank::new(spec).map_err(serde::de::Error::custom)?))
                }
                Checked::Checks(spec) => {
                    Shape::Checks(Arc::new(Bank::new(spec).map_err(serde::de::Error::custom)?))
                }
                Checked::Scripts(scripts) => Shape::Scripts(Arc::new(*scripts)),
            },
        })
    }
}

/// How a record number becomes a key: prefix, then the number or its hash, padded with zeros.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    /// "user" in YCSB.
    pub prefix: String,
    /// What happens to the number.
    pub hash: KeyHash,
    /// Least number of digits (`zeropadding`).
    pub digits: u8,
}

impl Default for Keys {
    fn default() -> Self {
        Keys { prefix: "user".into(), hash: KeyHash::Ycsb, digits: 1 }
    }
}

/// Records 0..`records`, each with a key, and `fields` fields or a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// The table, or collection, that they live in.
    pub table: String,
    /// How many records there are.
    pub records: u64,
    /// Fields per record.
    pub fields: u16,
    /// Fields are named by this and their number: field0, field1, ...
    pub field_prefix: String,
    /// Bytes per field.
    pub field_length: Lengths,
    /// How record numbers become keys.
    pub keys: Keys,
    /// What the field bytes look like.
    pub values: Values,
    /// Changes every value, no key.
    pub seed: u64,
    /// What a record looks like.
    #[serde(default)]
    pub shape: Shape,
}

impl Dataset {
    /// YCSB's default: hashed keys, ten fields of 100 bytes.
    pub fn ycsb(records: u64) -> Self {
        Dataset {
            table: "usertable".into(),
            records,
            fields: 10,
            field_prefix: "field".into(),
            field_length: Lengths::Constant(100),
            keys: Keys::default(),
            values: Values::Ycsb,
            seed: 1,
            shape: Shape::Fields,
        }
    }

    /// The tables of all checks, with the accounts of `bank`; no key exists.
    pub fn checks(bank: Arc<Bank>) -> Self {
        Dataset { shape: Shape::Checks(bank), ..Dataset::ycsb(0) }
    }

    /// The accounts of `bank`.
    pub fn of_bank(bank: Arc<Bank>) -> Self {
        Dataset { shape: Shape::Bank(bank.clone()), ..Dataset::ycsb(bank.spec().accounts) }
    }

    /// What these scripts find.
    pub fn of_scripts(scripts: Arc<Scripts>) -> Self {
        Dataset { shape: Shape::Scripts(scripts), ..Dataset::ycsb(0) }
    }

    /// Writes the key of `record` into `key`, replacing what it held.
    #[inline]
    pub fn key(&self, record: u64, key: &mut Vec<u8>) {
        let number = match self.keys.hash {
            KeyHash::Ycsb => hash(record),
            KeyHash::GoYcsb => hash(record.swap_bytes()),
            KeyHash::Ordered => record,
        };
        key.clear();
        key.extend_from_slice(self.keys.prefix.as_bytes());
        let mut digits = [b'0'; 256];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        at = at.min(digits.len() - usize::from(self.keys.digits));
        key.extend_from_slice(&digits[at..]);
    }

    /// The name of field number `field`.
    pub fn field_name(&self, field: u16) -> String {
        format!("{}{field}", self.field_prefix)
    }

    /// The documents, if records are documents.
    pub fn documents(&self) -> Option<&Documents> {
        match &self.shape {
            Shape::Documents(documents) => Some(documents),
            Shape::Fields | Shape::Checks(_) | Shape::Bank(_) | Shape::Scripts(_) => None,
        }
    }

    /// How many fields, or paths of a document, an update can choose from.
    pub fn updatable(&self) -> u16 {
        match &self.shape {
            Shape::Fields => self.fields,
            Shape::Documents(documents) => documents.paths().len() as u16,
            Shape::Checks(_) | Shape::Bank(_) | Shape::Scripts(_) => 0,
        }
    }

    /// Shows the document `record` under `version` to `sink`, without its key, which stands where the target
    /// keeps keys (`_id`).
    ///
    /// # Panics
    /// If records are not documents.
    pub fn document(&self, record: u64, version: u64, sink: &mut impl DocumentSink) {
        self.documents().expect("records that are documents").document(self.seed, record, version, sink);
    }

    /// Shows to `sink` the value that an update of path number `field` (see [`Documents::paths`]) of document
    /// `record` under `version` writes.
    ///
    /// # Panics
    /// If records are not documents.
    pub fn leaf(&self, record: u64, field: u16, version: u64, sink: &mut impl DocumentSink) {
        self.documents().expect("records that are documents").leaf(self.seed, record, field, version, sink);
    }

    /// Writes field `field` of `record` under `version` into `value`, replacing what it held. Version 0 is
    /// what is loaded or inserted; an update carries the version that its operation names.
    pub fn value(&self, record: u64, field: u16, version: u64, value: &mut Vec<u8>) {
        value.clear();
        if self.values == Values::Integrity {
            return self.checkable(record, field, value);
        }
        let seed = self.seed ^ version.wrapping_mul(0xD605_BBB5_8C8A_BC1B);
        let mut random = Random::new(seed, record.wrapping_mul(1 << 16) | u64::from(field));
        let length = self.field_length.draw(&mut random) as usize;
        let random_part = match self.values {
            Values::Half => length / 2,
            Values::Compressible(percent) => return compressible(percent, length, &mut random, value),
            Values::Ycsb | Values::Integrity => length,
        };
        while value.len() < random_part {
            // The masks are YCSB's: the bits overlap, 31 bits fill six bytes.
            let x = random.bits() as u32;
            for byte in
                [x & 31, (x >> 5) & 63, (x >> 10) & 95, (x >> 15) & 31, (x >> 20) & 63, (x >> 25) & 95]
            {
                value.push(b' ' + byte as u8);
            }
        }
        value.truncate(random_part);
        value.resize(length, b'x');
    }

    /// Whether `session`'s last read of `record` brought what `version` says of each of `fields`: done, or
    /// refused as corrupt.
    pub fn verify(&self, session: &dyn Session, record: u64, fields: Fields, version: u64) -> Outcome {
        let mut right = Vec::new();
        for field in fields.numbers(self.fields) {
            self.value(record, field, version, &mut right);
            if session.fetched(field) != Some(right.as_slice()) {
                return Outcome::Refused(Failure::Corrupt);
            }
        }
        Outcome::Done
    }

    /// YCSB's `buildDeterministicValue`: the key and the field's name, then again and again a colon and
    /// Java's hash of all before it, cut to length.
    fn checkable(&self, record: u64, field: u16, value: &mut Vec<u8>) {
        let length = self.field_length.longest() as usize;
        self.key(record, value);
        value.push(b':');
        value.extend_from_slice(self.field_name(field).as_bytes());
        let (mut hashed, mut java_hash) = (0, 0i32);
        while value.len() < length {
            value.push(b':');
            for byte in &value[hashed..] {
                java_hash = java_hash.wrapping_mul(31).wrapping_add(i32::from(*byte));
            }
            hashed = value.len();
            value.extend_from_slice(java_hash.to_string().as_bytes());
        }
        value.truncate(length);
    }

    /// Bytes of all values and keys, before any encoding.
    pub fn logical_bytes(&self) -> u64 {
        let values = match &self.shape {
            Shape::Fields => f64::from(self.fields) * self.field_length.mean(),
            Shape::Documents(documents) => documents.mean_bytes(),
            Shape::Checks(_) => PAYLOAD_BYTES as f64,
            // A balance of up to seven digits.
            Shape::Bank(_) => 7.0,
            Shape::Scripts(_) => 0.0,
        };
        (self.records as f64 * (values + 23.0)) as u64
    }
}

/// `length` bytes of which a compressor that only looks for repetitions saves about `percent`.
fn compressible(percent: u8, length: usize, random: &mut Random, value: &mut Vec<u8>) {
    // A repeated byte costs three bytes in 64, and two more where it begins.
    let saved = length * usize::from(percent) / 100;
    let repeated = if saved == 0 { 0 } else { (saved * 64 / 61 + 3).min(length) };
    while value.len() < length - repeated {
        let mut bits = random.bits();
        for _ in 0..10 {
            value.push(b'0' + (bits & 63) as u8);
            bits >>= 6;
        }
    }
    value.truncate(length - repeated);
    value.resize(length, b'x');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ycsbs_bit_for_bit() {
        // Vectors from the Java implementation (COMPATIBILITY C2).
        let dataset = Dataset::ycsb(1);
        let mut key = vec![];
        for (record, expected) in [
            (0, "user6284781860667377211"),
            (1, "user8517097267634966620"),
            (2, "user1820151046732198393"),
            (3, "user4052466453699787802"),
            (10, "user2408371864701034737"),
            (999, "user2071219101098386137"),
            (1_000_000, "user1011632231655643464"),
        ] {
            dataset.key(record, &mut key);
            assert_eq!(String::from_utf8_lossy(&key), expected);
        }
        let ordered =
            Dataset { keys: Keys { hash: KeyHash::Ordered, ..Keys::default() }, ..Dataset::ycsb(1) };
        ordered.key(0, &mut key);
        assert_eq!(key, b"user0");
        ordered.key(u64::MAX, &mut key);
        assert_eq!(key, b"user18446744073709551615");
        let padded = Dataset { keys: Keys { digits: 12, ..ordered.keys.clone() }, ..ordered.clone() };
        padded.key(345, &mut key);
        assert_eq!(key, b"user000000000345");
        // go-ycsb hashes the bytes in the other order.
        let go = Dataset { keys: Keys { hash: KeyHash::GoYcsb, ..Keys::default() }, ..Dataset::ycsb(1) };
        for (record, expected) in
            [(0, "user6284781860667377211"), (1, "user6284782960179005422"), (2, "user6284784059690633633")]
        {
            go.key(record, &mut key);
            assert_eq!(String::from_utf8_lossy(&key), expected);
        }
    }

    #[test]
    fn checkable_values_are_javas_letter_by_letter() {
        // "user6284781860667377211:field0" and so on; the hash of the first 31 characters computed by hand
        // from Java's definition s[0]·31^(n−1) + ... + s[n−1].
        let dataset = Dataset { values: Values::Integrity, ..Dataset::ycsb(1) };
        let mut value = vec![];
        dataset.value(0, 0, 7, &mut value);
        let text = String::from_utf8(value).unwrap();
        assert_eq!(text.len(), 100);
        let java_hash = |text: &str| {
            text.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)))
        };
        assert_eq!(java_hash("hello"), 99_162_322, "as every Java programmer knows");
        let mut expected = String::from("user6284781860667377211:field0");
        while expected.len() < 100 {
            expected.push(':');
            expected += &java_hash(&expected).to_string();
        }
        expected.truncate(100);
        assert_eq!(text, expected);
    }

    #[test]
    fn a_compressor_saves_what_was_asked_for() {
        for length in [100u32, 1000, 100_000] {
            for percent in [0u8, 10, 30, 60, 80, 90] {
                let dataset = Dataset {
                    values: Values::Compressible(percent),
                    field_length: Lengths::Constant(length),
                    ..Dataset::ycsb(1)
                };
                let (mut all, mut value) = (vec![], vec![]);
                for record in 0..(200_000 / u64::from(length)).max(1) {
                    dataset.value(record, 3, 0, &mut value);
                    assert_eq!(value.len() as u32, length);
                    all.extend_from_slice(&value);
                }
                assert!(all.is_ascii() && all.iter().all(|byte| !byte.is_ascii_control()));
                // In blocks of 32 KiB, as WiredTiger compresses its pages.
                let compressed: usize = all
                    .chunks(32 << 10)
                    .map(|block| snap::raw::Encoder::new().compress_vec(block).unwrap().len())
                    .sum();
                let saved = 100.0 * (1.0 - compressed as f64 / all.len() as f64);
                assert!((saved - f64::from(percent)).abs() < 3.0, "{length} B, {percent} %: {saved} %");
            }
        }
    }

    #[test]
    fn kinds_of_values_are_read_as_printed() {
        for values in [Values::Ycsb, Values::Half, Values::Integrity, Values::Compressible(60)] {
            assert_eq!(values.to_string().parse(), Ok(values));
        }
        assert_eq!("compressible 0.6".parse(), Ok(Values::Compressible(60)));
        for (text, answer) in [
            ("compresible 60 %", "did you mean `compressible`?"),
            ("compressible 99 %", "0 % to 95 %"),
            ("compressible", "is not a share"),
        ] {
            let error = text.parse::<Values>().unwrap_err();
            assert!(error.contains(answer), "{text:?}: {error}");
        }
    }

    #[test]
    fn shapes_read_back_as_they_were_written() {
        let bank = Arc::new(Bank::new(BankSpec { accounts: 77, ..BankSpec::default() }).unwrap());
        for dataset in [Dataset::ycsb(3), Dataset::checks(bank.clone()), Dataset::of_bank(bank)] {
            let text = serde_json::to_string(&dataset).unwrap();
            assert_eq!(serde_json::from_str::<Dataset>(&text).unwrap(), dataset, "{text}");
        }
    }

    #[test]
    fn values_have_their_length_and_ycsbs_alphabet() {
        let dataset = Dataset { field_length: Lengths::Constant(101), ..Dataset::ycsb(10) };
        let (mut a, mut b) = (vec![], vec![]);
        dataset.value(3, 4, 0, &mut a);
        assert_eq!(a.len(), 101);
        assert!(a.iter().all(|&c| (b' '..=b' ' + 95).contains(&c)));
        dataset.value(3, 5, 0, &mut b);
        assert_ne!(a, b);
        dataset.value(3, 4, 0, &mut b);
        assert_eq!(a, b, "a value is a function of (seed, record, field, version)");
        dataset.value(3, 4, 1, &mut b);
        assert_ne!(a, b, "an update writes something else");
    }
}
