//! How a password is proved to a server without showing it to whoever listens, one function for each plugin.

use curve25519_dalek::{EdwardsPoint, Scalar, scalar::clamp_integer};
use num_bigint::BigUint;
use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};

fn hash(algorithm: &'static Algorithm, parts: &[&[u8]]) -> Vec<u8> {
    digest(algorithm, &parts.concat()).as_ref().to_vec()
}

fn exclusive_or(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(a, b)| a ^ b).collect()
}

/// `mysql_native_password`: SHA1(password) xor SHA1(salt, SHA1(SHA1(password))).
pub fn native(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let once = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[password]);
    let twice = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[&once]);
    exclusive_or(&once, &hash(&SHA1_FOR_LEGACY_USE_ONLY, &[salt, &twice]))
}

/// `caching_sha2_password`, to a server that remembers the password: SHA256(password) xor
/// SHA256(SHA256(SHA256(password)), salt).
pub fn caching_sha2(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let once = hash(&SHA256, &[password]);
    let twice = hash(&SHA256, &[&once]);
    exclusive_or(&once, &hash(&SHA256, &[&twice, salt]))
}

/// MariaDB's `client_ed25519`: the signature of `nonce` by RFC 8032 (5.1.6), but that the secret key is the
/// password, of whatever length.
pub fn ed25519(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let secret = digest(&SHA512, password);
    let (key, prefix) = secret.as_ref().split_at(32);
    let reduced = |parts: &[&[u8]]| {
        let mut wide = [0; 64];
        wide.copy_from_slice(&hash(&SHA512, parts));
        Scalar::from_bytes_mod_order_wide(&wide)
    };
    let mut key_bytes = [0; 32];
    key_bytes.copy_from_slice(key);
    let key = Scalar::from_bytes_mod_order(clamp_integer(key_bytes));
    let public = EdwardsPoint::mul_base(&key).compress();
    let once = reduced(&[prefix, nonce]);
    let point = EdwardsPoint::mul_base(&once).compress();
    let challenge = reduced(&[point.as_bytes(), public.as_bytes(), nonce]);
    [*point.as_bytes(), (once + challenge * key).to_bytes()].concat()
}

/// `caching_sha2_password`, to a server that does not remember the password, without TLS: the password and a
/// zero, xor the salt repeated, encrypted for the server's key.
///
/// # Errors
/// If `pem` is no RSA key, or one that is too short for the password.
pub fn sealed(password: &[u8], salt: &[u8], pem: &[u8]) -> Result<Vec<u8>, &'static str> {
    let text = [password, &[0]].concat();
    let salted = exclusive_or(&text, &salt.iter().copied().cycle().take(text.len()).collect::<Vec<_>>());
    RsaKey::from_pem(pem).ok_or("it is no RSA key in PEM")?.encrypt(&salted)
}

/// Of a key that protects a password, up to the longest with which OpenSSL, and so any server, works
/// (`OPENSSL_RSA_MAX_MODULUS_BITS`): time and memory grow with it.
const MODULUS_BITS: std::ops::RangeInclusive<u64> = 1024..=16_384;
/// OpenSSL's limit for a long modulus (`OPENSSL_RSA_MAX_PUBEXP_BITS`).
const MOST_EXPONENT_BITS: u64 = 64;

/// An RSA public key.
struct RsaKey {
    modulus: BigUint,
    exponent: BigUint,
}

impl RsaKey {
    /// Reads the `SubjectPublicKeyInfo` of RFC 5280 in PEM: a sequence of the algorithm, which is known, and
    /// of bits that hold a sequence of modulus and exponent (RFC 8017, A.1.1).
    fn from_pem(pem: &[u8]) -> Option<RsaKey> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
        let mut info = Der(Der(&der).next(SEQUENCE)?);
        info.next(SEQUENCE)?;
        // The first of the bits' bytes says how many bits of the last one do not count: none.
        let mut numbers = Der(Der(info.next(BITS)?.strip_prefix(&[0])?).next(SEQUENCE)?);
        let modulus = BigUint::from_bytes_be(numbers.next(INTEGER)?);
        let exponent = BigUint::from_bytes_be(numbers.next(INTEGER)?);
        let fits = MODULUS_BITS.contains(&modulus.bits()) && exponent.bits() <= MOST_EXPONENT_BITS;
        fits.then_some(RsaKey { modulus, exponent })
    }

    /// RSAES-OAEP with SHA-1 and an empty label (RFC 8017, 7.1.1).
    fn encrypt(&self, message: &[u8]) -> Result<Vec<u8>, &'static str> {
        let length = self.modulus.bits().div_ceil(8) as usize;
        let most = length - 2 * SHA1 - 2;
        if message.len() > most {
            return Err("the password is too long for it");
        }
        let mut block = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[]);
        block.resize(SHA1 + most - message.len(), 0);
        block.push(1);
        block.extend_from_slice(message);
        let mut seed = [0; SHA1];
        SystemRandom::new().fill(&mut seed).map_err(|_| "the system gave no random bytes")?;
        let block = exclusive_or(&block, &mask(&seed, block.len()));
        let seed = exclusive_or(&seed, &mask(&block, SHA1));
        let encoded = BigUint::from_bytes_be(&[seed, block].concat());
        let encrypted = encoded.modpow(&self.exponent, &self.modulus).to_bytes_be();
        Ok([vec![0; length - encrypted.len()], encrypted].concat())
    }
}

/// Bytes of a SHA-1 digest.
const SHA1: usize = 20;

/// MGF1 with SHA-1 (RFC 8017, B.2.1).
fn mask(seed: &[u8], length: usize) -> Vec<u8> {
    let blocks = (0u32..).map(|number| hash(&SHA1_FOR_LEGACY_USE_ONLY, &[seed, &number.to_be_bytes()]));
    blocks.flatten().take(length).collect()
}

const SEQUENCE: u8 = 0x30;
const BITS: u8 = 0x03;
const INTEGER: u8 = 0x02;

/// Elements of DER (X.690), front to back.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// What is in the next element, if it is a `kind`.
    fn next(&mut self, kind: u8) -> Option<&'a [u8]> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0x81 | 0x82 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
            }
            first if first < 0x80 => (usize::from(first), rest),
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (tag == kind).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_seed_as_a_password_signs_as_rfc_8032_does() {
        // Its test 3 (7.1).
        let seed = bytes("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7");
        let signature = bytes(concat!(
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac",
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ));
        assert_eq!(ed25519(&seed, &bytes("af82")), signature);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for pem in ["", "-----BEGIN PUBLIC KEY-----\nMAMCAQE=\n-----END PUBLIC KEY-----\n"] {
            assert!(sealed(b"secret", b"salt", pem.as_bytes()).is_err());
        }
    }
}
