//! The records that exist: their keys and values as functions of their number.

use super::random::Random;
use super::ycsb::{KeyHash, hash};
use serde::{Deserialize, Serialize};

/// How the bytes of a field look, because compressibility decides how much disk a working set needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// As YCSB's RandomByteIterator: about 5.2 bits of entropy per byte; snappy finds nothing in it.
    Ycsb,
    /// The first half of a field random, the second one repeated byte: snappy saves a little under half.
    Half,
}

/// Records 0..`records`, each with a key and `fields` fields of `field_length` bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// How many records there are.
    pub records: u64,
    /// Fields per record; named field0, field1, ...
    pub fields: u16,
    /// Bytes per field.
    pub field_length: u32,
    /// How record numbers become keys.
    pub key_hash: KeyHash,
    /// What the field bytes look like.
    pub values: Values,
    /// Changes every value, no key.
    pub seed: u64,
}

impl Dataset {
    /// YCSB's default: hashed keys, ten fields of 100 bytes.
    pub fn ycsb(records: u64) -> Self {
        Dataset {
            records,
            fields: 10,
            field_length: 100,
            key_hash: KeyHash::Ycsb,
            values: Values::Ycsb,
            seed: 1,
        }
    }

    /// Writes the key of `record` into `key`, replacing what it held.
    #[inline]
    pub fn key(&self, record: u64, key: &mut Vec<u8>) {
        let number = match self.key_hash {
            KeyHash::Ycsb => hash(record),
            KeyHash::Ordered => record,
        };
        key.clear();
        key.extend_from_slice(b"user");
        let mut digits = [0u8; 20];
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
        key.extend_from_slice(&digits[at..]);
    }

    /// Writes field `field` of `record` into `value`, replacing what it held.
    pub fn value(&self, record: u64, field: u16, value: &mut Vec<u8>) {
        let length = self.field_length as usize;
        let mut random = Random::new(self.seed, record.wrapping_mul(1 << 16) | u64::from(field));
        value.clear();
        let random_part = match self.values {
            Values::Ycsb => length,
            Values::Half => length / 2,
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

    /// Bytes of all values and keys, before any encoding.
    pub fn logical_bytes(&self) -> u64 {
        self.records * (u64::from(self.fields) * u64::from(self.field_length) + 23)
    }
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
        let ordered = Dataset { key_hash: KeyHash::Ordered, ..Dataset::ycsb(1) };
        ordered.key(0, &mut key);
        assert_eq!(key, b"user0");
        ordered.key(u64::MAX, &mut key);
        assert_eq!(key, b"user18446744073709551615");
    }

    #[test]
    fn values_have_their_length_and_ycsbs_alphabet() {
        let dataset = Dataset { field_length: 101, ..Dataset::ycsb(10) };
        let (mut a, mut b) = (vec![], vec![]);
        dataset.value(3, 4, &mut a);
        assert_eq!(a.len(), 101);
        assert!(a.iter().all(|&c| (b' '..=b' ' + 95).contains(&c)));
        dataset.value(3, 5, &mut b);
        assert_ne!(a, b);
        dataset.value(3, 4, &mut b);
        assert_eq!(a, b, "a value is a function of (seed, record, field)");
    }
}
