//! From the first byte to the first ReadyForQuery: encryption, who we are, and how we prove it.

use super::message::{self, Report, put, put_text, put_untagged};
use crate::connection::sql::Report as _;
use crate::connection::{Encryption, Greeting, Input, Refusal, Step, Url};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use std::collections::BTreeMap;
use tipover_core::op::Failure;

/// The side of the client.
pub struct Hello {
    place: Url,
    settings: BTreeMap<String, String>,
    stage: Stage,
    proof: Proof,
    key: Option<[u8; 8]>,
}

/// How far the server has come with who is who.
enum Proof {
    /// It has asked for nothing, or for a password or a hash, which proves nothing of the server.
    Ours,
    /// It has begun SCRAM, in which it must show that it knows the password too.
    Awaited(Box<ScramSha256>),
    /// It has shown it.
    Seen,
    /// It lets us in.
    Accepted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waiting for one letter, whether the server can encrypt.
    AskedForEncryption,
    /// Nothing was said yet.
    Silent,
    /// Waiting for the server's messages.
    Talking,
}

const VERSION_3: u32 = 196_608;
const ENCRYPTION_REQUEST: u32 = 80_877_103;
const CANCEL_REQUEST: u32 = 80_877_102;

impl Hello {
    /// To `place`, with these settings of the session.
    pub fn new(place: &Url, settings: &BTreeMap<String, String>) -> Self {
        Hello {
            place: place.clone(),
            settings: settings.clone(),
            stage: Stage::Silent,
            proof: Proof::Ours,
            key: None,
        }
    }

    /// The message that cancels what this connection's server process is doing.
    pub fn cancellation(&self) -> Option<Vec<u8>> {
        let mut message = Vec::with_capacity(16);
        put_untagged(&mut message, |body| {
            body.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
            body.extend_from_slice(&self.key.unwrap_or_default());
        });
        self.key.map(|_| message)
    }

    fn introduce(&mut self, output: &mut Vec<u8>) {
        self.stage = Stage::Talking;
        let mut parameters = BTreeMap::from([("application_name", "tipover"), ("client_encoding", "UTF8")]);
        let others = self.place.others.iter();
        parameters.extend(others.map(|(name, value)| (name.as_str(), value.as_str())));
        parameters.extend(self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        parameters.insert("user", &self.place.user);
        if !self.place.database.is_empty() {
            parameters.insert("database", &self.place.database);
        }
        put_untagged(output, |body| {
            body.extend_from_slice(&VERSION_3.to_be_bytes());
            for (name, value) in parameters {
                put_text(body, name);
                put_text(body, value);
            }
            body.push(0);
        });
    }

    fn password(&self) -> Result<&str, Refusal> {
        self.place.password.as_deref().ok_or_else(|| Refusal {
            failure: Failure::Unavailable,
            reason: format!(
                "the server wants a password for user \"{}\"; give it in the URL \
                 (postgres://user:password@host/database) or in PGPASSWORD",
                self.place.user
            ),
        })
    }

    fn authenticate(&mut self, body: &[u8], output: &mut Vec<u8>) -> Result<(), Refusal> {
        let (kind, rest) = body.split_at_checked(4).ok_or_else(broken)?;
        let kind = u32::from_be_bytes([kind[0], kind[1], kind[2], kind[3]]);
        // Who has begun SCRAM must end it: whoever only claims to be the server would else leave it, and ask
        // for the password, or let us in and hear what we say.
        match (kind, &mut self.proof) {
            (0, Proof::Ours | Proof::Seen) => self.proof = Proof::Accepted,
            (0 | 3..=10, Proof::Awaited(_)) => return Err(unproved("it broke off SCRAM")),
            (0..=12, Proof::Seen | Proof::Accepted) => return Err(broken()),
            (3, _) => {
                let password = self.password()?.to_string();
                put(output, b'p', |body| put_text(body, &password));
            }
            (5, _) => {
                let salt = rest.try_into().map_err(|_| broken())?;
                let user = self.place.user.as_bytes();
                let hash = md5_hash(user, self.password()?.as_bytes(), salt);
                put(output, b'p', |body| put_text(body, &hash));
            }
            (10, _) => {
                if !rest.split(|&byte| byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) {
                    return Err(unsupported("a SASL mechanism other than SCRAM-SHA-256"));
                }
                let scram = ScramSha256::new(self.password()?.as_bytes(), ChannelBinding::unsupported());
                put(output, b'p', |body| {
                    put_text(body, SCRAM_SHA_256);
                    message::put_counted(body, scram.message());
                });
                self.proof = Proof::Awaited(Box::new(scram));
            }
            (11, Proof::Awaited(scram)) => {
                scram.update(rest).map_err(|error| Refusal::unavailable(format!("SCRAM: {error}")))?;
                put(output, b'p', |body| body.extend_from_slice(scram.message()));
            }
            (12, Proof::Awaited(scram)) => {
                scram.finish(rest).map_err(|error| unproved(&error.to_string()))?;
                self.proof = Proof::Seen;
            }
            (11 | 12, _) => return Err(broken()),
            (7..=9, _) => return Err(unsupported("GSSAPI or SSPI")),
            (kind, _) => return Err(unsupported(&format!("authentication of kind {kind}"))),
        }
        Ok(())
    }

    fn refused(&self, report: &Report) -> Refusal {
        let failure = match report.code.as_str() {
            "" | "53300" | "57P03" | "57P01" | "57P02" => Failure::Unavailable,
            _ => Failure::Other,
        };
        Refusal { failure, reason: format!("{report}{}", report.advice()) }
    }
}

fn broken() -> Refusal {
    Refusal::unavailable("what answers there does not speak PostgreSQL's protocol; is the port right?")
}

fn unproved(how: &str) -> Refusal {
    Refusal::unavailable(format!("the server did not prove that it knows the password: {how}"))
}

fn unsupported(what: &str) -> Refusal {
    Refusal {
        failure: Failure::Unsupported,
        reason: format!("the server wants {what}; here are SCRAM-SHA-256, md5, password and trust"),
    }
}

impl Greeting for Hello {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        (self.proof, self.key) = (Proof::Ours, None);
        if may_encrypt {
            self.stage = Stage::AskedForEncryption;
            put_untagged(output, |body| body.extend_from_slice(&ENCRYPTION_REQUEST.to_be_bytes()));
        } else {
            self.introduce(output);
        }
    }

    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, _: bool) -> Step {
        match self.stage {
            Stage::AskedForEncryption => {
                let Some(&letter) = input.rest().first() else { return Step::More };
                // An old server, or one that is full, answers with an error instead.
                if letter != b'E' {
                    input.consume(1);
                }
                return match letter {
                    b'S' => {
                        self.stage = Stage::Silent;
                        input.forget();
                        Step::Encrypt
                    }
                    b'N' if self.place.encryption >= Encryption::Require => Step::Refused(Refusal {
                        failure: Failure::Unsupported,
                        reason: "the server offers no TLS; set ssl = on there, or sslmode=disable here"
                            .into(),
                    }),
                    b'N' => {
                        self.introduce(output);
                        Step::More
                    }
                    b'E' => {
                        self.stage = Stage::Talking;
                        self.greet(input, output, false)
                    }
                    _ => Step::Refused(broken()),
                };
            }
            Stage::Silent => {
                self.introduce(output);
                return Step::More;
            }
            Stage::Talking => {}
        }
        if input.rest().first().is_some_and(|letter| !b"RESKNZv".contains(letter)) {
            return Step::Refused(broken());
        }
        while let Some((letter, range)) = message::next(input) {
            let body = input.rest()[range.clone()].to_vec();
            input.consume(range.end);
            match letter {
                b'R' => {
                    if let Err(refusal) = self.authenticate(&body, output) {
                        return Step::Refused(refusal);
                    }
                }
                b'E' => return Step::Refused(self.refused(&Report::parse(&body))),
                b'K' => self.key = body.try_into().ok(),
                b'Z' => match self.proof {
                    Proof::Accepted => return Step::Ready,
                    Proof::Awaited(_) => return Step::Refused(unproved("it broke off SCRAM")),
                    Proof::Ours | Proof::Seen => return Step::Refused(broken()),
                },
                // Parameters of the session, and notices.
                b'S' | b'N' | b'v' => {}
                _ => return Step::Refused(broken()),
            }
        }
        Step::More
    }
}
