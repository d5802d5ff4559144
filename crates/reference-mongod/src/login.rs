//! The server's side of SCRAM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use md5::{Digest, Md5};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// How far a connection's authentication has come.
#[derive(Debug, Default)]
pub struct Login {
    passed: bool,
    sha256: bool,
    skips_last_turn: bool,
    first: String,
    answer: String,
    nonce: String,
}

const ROUNDS: u32 = 4096;
const SALT: &[u8] = b"reference salt 1";

impl Login {
    /// Whether a command may be executed.
    pub fn allows(&self, command: &str) -> bool {
        let open = ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "ping", "buildInfo"];
        self.passed || open.contains(&command)
    }

    /// One step of SCRAM.
    pub fn step(&mut self, command: &Document, login: Option<&(String, String)>) -> Document {
        let payload = match command.get("payload") {
            Some(Bson::Binary(binary)) => String::from_utf8_lossy(&binary.bytes).into_owned(),
            _ => String::new(),
        };
        let Some((user, password)) = login else {
            return denied();
        };
        let done = |payload: String, done: bool| {
            let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.into_bytes() };
            doc! { "ok": 1.0, "conversationId": 1, "done": done, "payload": payload }
        };
        if command.contains_key("saslStart") {
            self.sha256 = command.get_str("mechanism").is_ok_and(|name| name == "SCRAM-SHA-256");
            // SHA-1 stands for servers before 4.4, which always want one more, empty turn.
            self.skips_last_turn = self.sha256 && command.get_document("options").is_ok();
            self.first = payload.strip_prefix("n,,").unwrap_or_default().to_string();
            let theirs = self.first.split(",r=").nth(1).unwrap_or_default();
            self.nonce = format!("{theirs}reference");
            self.answer = format!("r={},s={},i={ROUNDS}", self.nonce, STANDARD.encode(SALT));
            if !self.first.starts_with(&format!("n={user},")) {
                return denied();
            }
            return done(self.answer.clone(), false);
        }
        let Some((without_proof, proof)) = payload.split_once(",p=") else {
            // The empty turn at the end.
            return if self.passed { done(String::new(), true) } else { denied() };
        };
        let prepared = if self.sha256 {
            password.clone()
        } else {
            let bytes = Md5::digest(format!("{user}:mongo:{password}").as_bytes());
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let (key, server_key) = self.keys(&prepared);
        let text = format!("{},{},{without_proof}", self.first, self.answer);
        let signature = self.hmac(&self.hash(&key), text.as_bytes());
        let expected: Vec<u8> = signature.iter().zip(&key).map(|(a, b)| a ^ b).collect();
        let is_right = STANDARD.decode(proof).is_ok_and(|proof| proof == expected);
        if !is_right || !without_proof.ends_with(&format!("r={}", self.nonce)) {
            return denied();
        }
        self.passed = true;
        let proof = format!("v={}", STANDARD.encode(self.hmac(&server_key, text.as_bytes())));
        done(proof, self.skips_last_turn)
    }

    fn keys(&self, prepared: &str) -> (Vec<u8>, Vec<u8>) {
        let (algorithm, length) =
            if self.sha256 { (pbkdf2::PBKDF2_HMAC_SHA256, 32) } else { (pbkdf2::PBKDF2_HMAC_SHA1, 20) };
        let mut salted = vec![0; length];
        let rounds = NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(algorithm, rounds, SALT, prepared.as_bytes(), &mut salted);
        (self.hmac(&salted, b"Client Key"), self.hmac(&salted, b"Server Key"))
    }

    fn hmac(&self, key: &[u8], text: &[u8]) -> Vec<u8> {
        let algorithm = if self.sha256 { hmac::HMAC_SHA256 } else { hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY };
        hmac::sign(&hmac::Key::new(algorithm, key), text).as_ref().to_vec()
    }

    fn hash(&self, text: &[u8]) -> Vec<u8> {
        let algorithm = if self.sha256 { &digest::SHA256 } else { &digest::SHA1_FOR_LEGACY_USE_ONLY };
        digest::digest(algorithm, text).as_ref().to_vec()
    }
}

fn denied() -> Document {
    crate::command::failure(18, "AuthenticationFailed", "Authentication failed.")
}
