//! What the writes of the ledger carry: bytes that say which write they belong to, and cannot be anyone
//! else's.

use super::Version;
use crate::workload::Random;

/// Bytes of a ledger value: key, number of the write, and 48 bytes that follow from both.
pub const PAYLOAD_BYTES: usize = 64;

/// The bytes of write number `key_sequence` of `key`.
pub fn payload(key: u64, key_sequence: u64) -> [u8; PAYLOAD_BYTES] {
    let mut bytes = [0; PAYLOAD_BYTES];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&key_sequence.to_le_bytes());
    let mut random = Random::new(key, key_sequence);
    for part in bytes[16..].chunks_exact_mut(8) {
        part.copy_from_slice(&random.bits().to_le_bytes());
    }
    bytes
}

impl Version {
    /// What is found when write number `key_sequence` of `key` is whole.
    pub fn of(key: u64, key_sequence: u64) -> Version {
        Version::found(&payload(key, key_sequence))
    }

    /// What `bytes` are, whatever they are: the number of the write as it stands in them, and their hash.
    pub fn found(bytes: &[u8]) -> Version {
        let key_sequence = bytes.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let hash = blake3::hash(bytes);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        Version { key_sequence, payload: u64::from_le_bytes(first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_is_another_version() {
        let whole = Version::of(7, 3);
        assert_eq!(whole.key_sequence, 3);
        let bytes = payload(7, 3);
        for bit in 0..PAYLOAD_BYTES * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Version::found(&torn), whole, "bit {bit}");
        }
        assert_ne!(Version::of(7, 4), whole);
        assert_ne!(Version::of(8, 3).payload, whole.payload);
        assert_ne!(Version::found(&bytes[..20]), whole);
        assert_eq!(Version::found(&[]).key_sequence, 0);
    }
}
