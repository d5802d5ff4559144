//! SCRAM-SHA-1 and SCRAM-SHA-256 as MongoDB uses them (RFC 5802 and 7677): the password never travels, and
//! the server proves that it knows it too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// Which hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// All servers since 3.0.
    Sha1,
    /// Servers since 4.0.
    Sha256,
}

/// A server that asks for more rounds than this wants our processor, not our password.
const MOST_ROUNDS: u32 = 1_000_000;
/// The least that RFC 5802 asks for.
const LEAST_ROUNDS: u32 = 4096;

impl Mechanism {
    /// Its name in `saslStart`.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Sha1 => "SCRAM-SHA-1",
            Mechanism::Sha256 => "SCRAM-SHA-256",
        }
    }

    fn hmac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Mechanism::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Mechanism::Sha256 => hmac::HMAC_SHA256,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), text).as_ref().to_vec()
    }

    fn hash(self, text: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Mechanism::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Mechanism::Sha256 => &digest::SHA256,
        };
        digest::digest(algorithm, text).as_ref().to_vec()
    }

    /// The password as it goes into the hash: MongoDB's SHA-1 users keep the older MD5 of it.
    fn prepared(self, user: &str, password: &str) -> String {
        match self {
            Mechanism::Sha1 => {
                let digest = Md5::digest(format!("{user}:mongo:{password}").as_bytes());
                digest.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            Mechanism::Sha256 => password.to_string(),
        }
    }

    /// The salted password. Computing it is slow on purpose; keep its result.
    pub fn salted(self, user: &str, password: &str, salt: &[u8], rounds: NonZeroU32) -> Vec<u8> {
        let (algorithm, length) = match self {
            Mechanism::Sha1 => (pbkdf2::PBKDF2_HMAC_SHA1, digest::SHA1_OUTPUT_LEN),
            Mechanism::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, digest::SHA256_OUTPUT_LEN),
        };
        let mut salted = vec![0; length];
        pbkdf2::derive(algorithm, rounds, salt, self.prepared(user, password).as_bytes(), &mut salted);
        salted
    }
}

/// One authentication under way.
#[derive(Debug)]
pub struct Exchange {
    mechanism: Mechanism,
    bare: String,
    nonce: String,
    signature: Vec<u8>,
}

impl Exchange {
    /// Begins for `user` with a `nonce` that was never used before.
    pub fn new(mechanism: Mechanism, user: &str, nonce: String) -> Self {
        let name = user.replace('=', "=3D").replace(',', "=2C");
        Exchange { mechanism, bare: format!("n={name},r={nonce}"), nonce, signature: Vec::new() }
    }

    /// The client's first message.
    pub fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// The client's final message, from the server's first. `salted` turns salt and rounds into the salted
    /// password.
    ///
    /// # Errors
    /// If the server does not keep to the protocol.
    pub fn prove(
        &mut self,
        server_first: &str,
        salted: impl FnOnce(&[u8], NonZeroU32) -> Vec<u8>,
    ) -> Result<String, String> {
        let part = |name: &str| {
            let found = server_first.split(',').find_map(|part| part.strip_prefix(name));
            found.ok_or_else(|| format!("the server's SCRAM message lacks \"{name}\""))
        };
        let (nonce, salt, rounds) = (part("r=")?, part("s=")?, part("i=")?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the server's SCRAM message answers somebody else's".into());
        }
        let salt = STANDARD.decode(salt).map_err(|_| "the server's SCRAM salt is not base64")?;
        let rounds = rounds.parse::<NonZeroU32>().ok();
        let rounds = rounds.filter(|rounds| (LEAST_ROUNDS..=MOST_ROUNDS).contains(&rounds.get()));
        let rounds = rounds.ok_or("the server's number of SCRAM rounds is not between 4096 and 1,000,000")?;
        let salted = salted(&salt, rounds);
        let client_key = self.mechanism.hmac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let text = format!("{},{server_first},{without_proof}", self.bare);
        let mut proof = self.mechanism.hmac(&self.mechanism.hash(&client_key), text.as_bytes());
        proof.iter_mut().zip(&client_key).for_each(|(byte, key)| *byte ^= key);
        let server_key = self.mechanism.hmac(&salted, b"Server Key");
        self.signature = self.mechanism.hmac(&server_key, text.as_bytes());
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)))
    }

    /// Whether the server has proved, in its final message, that it knows the password.
    pub fn is_proved(&self, server_final: &str) -> bool {
        let signature = server_final.split(',').find_map(|part| part.strip_prefix("v="));
        let signature = signature.and_then(|signature| STANDARD.decode(signature).ok());
        !self.signature.is_empty() && signature.as_deref() == Some(self.signature.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(mechanism: Mechanism, password: &str, nonce: &str, first: &str, last: &str, server: &str) {
        let mut exchange = Exchange::new(mechanism, "user", nonce.into());
        let salted = |salt: &[u8], rounds| mechanism.salted("user", password, salt, rounds);
        assert_eq!(exchange.prove(first, salted).unwrap(), last);
        assert!(exchange.is_proved(server));
        assert!(!exchange.is_proved("v=AAAA") && !exchange.is_proved(""));
    }

    #[test]
    fn the_published_examples_hold() {
        // MongoDB's specification of authentication for SHA-1, RFC 7677 for SHA-256.
        vector(
            Mechanism::Sha1,
            "pencil",
            "fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,p=MC2T8BvbmWRckDw8oWl5IVghwCY=",
            "v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=",
        );
        vector(
            Mechanism::Sha256,
            "pencil",
            "rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        );
    }

    #[test]
    fn a_server_that_cheats_is_caught() {
        let refuse = |first: &str| {
            let mut exchange = Exchange::new(Mechanism::Sha256, "u", "abc".into());
            exchange.prove(first, |_, _| panic!("nothing is hashed for a cheat")).unwrap_err()
        };
        assert!(refuse("r=abd1,s=W22Z,i=4096").contains("somebody else's"));
        assert!(refuse("r=abc,s=W22Z,i=4096").contains("somebody else's"));
        assert!(refuse("r=abc1,s=W22Z,i=1").contains("between"));
        assert!(refuse("r=abc1,s=W22Z,i=4000000000").contains("between"));
        assert!(refuse("r=abc1,i=4096").contains("lacks"));
        assert!(!Exchange::new(Mechanism::Sha1, "u", "abc".into()).is_proved("v="), "nothing was asked yet");
    }
}
