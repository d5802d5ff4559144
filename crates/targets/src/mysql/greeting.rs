//! From the server's first packet until commands can be sent: encryption, proof of who we are, settings.

use super::packet::{self, Reader, Report, put, put_counted};
use super::proof;
use crate::connection::sql::Report as _;
use crate::connection::{Encryption, Greeting, Input, Refusal, Step, Url};
use tipover_core::op::Failure;

mod capability {
    pub const LONG_PASSWORD: u64 = 1;
    /// An update counts the rows that it found, not only those that it changed.
    pub const FOUND_ROWS: u64 = 1 << 1;
    pub const LONG_FLAG: u64 = 1 << 2;
    pub const CONNECT_WITH_DATABASE: u64 = 1 << 3;
    pub const PROTOCOL_41: u64 = 1 << 9;
    pub const TLS: u64 = 1 << 11;
    pub const TRANSACTIONS: u64 = 1 << 13;
    pub const SECURE_CONNECTION: u64 = 1 << 15;
    /// A text may be several statements, and then has as many results.
    pub const MULTI_STATEMENTS: u64 = 1 << 16;
    pub const MULTI_RESULTS: u64 = 1 << 17;
    pub const PLUGIN_AUTHENTICATION: u64 = 1 << 19;
    pub const COUNTED_AUTHENTICATION: u64 = 1 << 21;
    /// A result ends with an OK packet, and nothing stands between columns and rows.
    pub const DEPRECATE_EOF: u64 = 1 << 24;
    /// MariaDB, from 10.6 on: a prepared statement's columns are described once, not with every result.
    pub const CACHE_METADATA: u64 = 1 << 36;
}
use capability::*;

/// utf8mb4_general_ci, which every server since 5.5 has.
const CHARACTERS: u8 = 45;
const NO_BACKSLASH_ESCAPES: u64 = 0x0200;

/// The parameter that names a file with the server's RSA key.
pub const PUBLIC_KEY: &str = "server-public-key-path";

/// The side of the client.
pub struct Hello {
    place: Url,
    /// A statement that makes the settings of the session.
    settings: String,
    stage: Stage,
    server: Server,
    /// The server was asked for its key, and has not answered yet.
    awaits_key: bool,
    /// Whether a text may be several statements.
    several: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waiting for the server's first packet.
    Silent,
    /// Encryption has begun; nothing was sent in it.
    Encrypted,
    /// Waiting for the verdict on who we are.
    Proving,
    /// Waiting for the settings to be made.
    Setting,
}

/// What the server said of itself.
#[derive(Debug, Clone, Default)]
struct Server {
    capabilities: u64,
    plugin: Vec<u8>,
    salt: Vec<u8>,
    sequence: u8,
    status: u64,
}

impl Hello {
    /// To `place`, with a statement that makes the settings of the session; empty for none.
    pub fn new(place: &Url, settings: &str) -> Self {
        Hello {
            place: place.clone(),
            settings: settings.to_string(),
            stage: Stage::Silent,
            server: Server::default(),
            awaits_key: false,
            several: false,
        }
    }

    /// For a session that sends several statements in one text.
    pub fn with_several_statements(self) -> Self {
        Hello { several: true, ..self }
    }

    /// Whether results say if their columns are described.
    pub fn caches_metadata(&self) -> bool {
        self.server.capabilities & CACHE_METADATA != 0
    }

    /// Whether a backslash in a quoted text is just that.
    pub fn backslash_is_a_letter(&self) -> bool {
        self.server.status & NO_BACKSLASH_ESCAPES != 0
    }

    fn capabilities(&self, encrypted: bool) -> u64 {
        let mut wanted = FOUND_ROWS
            | LONG_FLAG
            | PROTOCOL_41
            | TRANSACTIONS
            | SECURE_CONNECTION
            | PLUGIN_AUTHENTICATION
            | COUNTED_AUTHENTICATION
            | DEPRECATE_EOF
            | CACHE_METADATA
            | LONG_PASSWORD;
        if !self.place.database.is_empty() {
            wanted |= CONNECT_WITH_DATABASE;
        }
        if self.several {
            wanted |= MULTI_STATEMENTS | MULTI_RESULTS;
        }
        wanted &= self.server.capabilities;
        if encrypted { wanted | TLS } else { wanted }
    }

    /// What an encryption request and an introduction begin with.
    fn put_capabilities(&self, payload: &mut Vec<u8>, encrypted: bool) {
        let capabilities = self.capabilities(encrypted);
        payload.extend_from_slice(&(capabilities as u32).to_le_bytes());
        payload.extend_from_slice(&(1u32 << 30).to_le_bytes());
        payload.push(CHARACTERS);
        payload.extend_from_slice(&[0; 19]);
        payload.extend_from_slice(&((capabilities >> 32) as u32).to_le_bytes());
    }

    fn introduce(&mut self, output: &mut Vec<u8>, encrypted: bool) -> Result<(), Refusal> {
        self.stage = Stage::Proving;
        let plugin = self.server.plugin.clone();
        // What is not known to it may still be answered by a method that the server then asks for.
        let proof = self.proof(&plugin, encrypted).unwrap_or_default();
        self.server.sequence = put(output, self.server.sequence.wrapping_add(1), |payload| {
            self.put_capabilities(payload, encrypted);
            payload.extend_from_slice(self.place.user.as_bytes());
            payload.push(0);
            put_counted(payload, &proof);
            if self.capabilities(encrypted) & CONNECT_WITH_DATABASE != 0 {
                payload.extend_from_slice(self.place.database.as_bytes());
                payload.push(0);
            }
            payload.extend_from_slice(&plugin);
            payload.push(0);
        });
        Ok(())
    }

    fn password(&self) -> &[u8] {
        self.place.password.as_deref().unwrap_or_default().as_bytes()
    }

    /// What proves to `plugin` that we know the password.
    fn proof(&self, plugin: &[u8], encrypted: bool) -> Result<Vec<u8>, Refusal> {
        let password = self.password();
        if password.is_empty() && plugin != b"mysql_clear_password" {
            return Ok(Vec::new());
        }
        Ok(match plugin {
            b"mysql_native_password" => proof::native(password, self.salt(20)?),
            b"caching_sha2_password" => proof::caching_sha2(password, self.salt(20)?),
            b"client_ed25519" => proof::ed25519(password, self.salt(32)?),
            b"mysql_clear_password" if encrypted || self.place.is_local_socket() => self.clear_password(),
            b"mysql_clear_password" => {
                return Err(Refusal {
                    failure: Failure::Unsupported,
                    reason: "the server wants the password itself, which is sent over TLS only; use ssl-mode=require"
                        .into(),
                });
            }
            other => {
                return Err(Refusal {
                    failure: Failure::Unsupported,
                    reason: format!(
                        "the server wants \"{}\" for user \"{}\"; here are mysql_native_password, \
                         caching_sha2_password, client_ed25519 and, encrypted, mysql_clear_password; give the user \
                         one of these",
                        String::from_utf8_lossy(other),
                        self.place.user
                    ),
                });
            }
        })
    }

    /// What the server wants to be answered to; behind it a zero may stand that does not count. A shorter one
    /// would make proofs that can be looked up in a table.
    fn salt(&self, length: usize) -> Result<&[u8], Refusal> {
        self.server.salt.get(..length).ok_or_else(broken)
    }

    /// The password as it is, which only an encrypted connection or a local socket may carry.
    fn clear_password(&self) -> Vec<u8> {
        [self.password(), &[0]].concat()
    }

    /// The rest of `caching_sha2_password`, after the proof. The password is sealed only for a key that lies
    /// here, or, if there is none, for the one that we have just asked for: whoever stands between could
    /// otherwise hand out his own at any time.
    fn prove_in_full(&mut self, asked: &[u8], output: &mut Vec<u8>, encrypted: bool) -> Result<(), Refusal> {
        const KNOWN: &[u8] = &[3];
        const SAY_IT: &[u8] = &[4];
        const SEND_YOUR_KEY: &[u8] = &[2];
        if self.server.plugin != b"caching_sha2_password" {
            return Err(broken());
        }
        match asked {
            key if std::mem::take(&mut self.awaits_key) => self.send_sealed(key, output)?,
            // An OK follows.
            KNOWN => {}
            SAY_IT if encrypted || self.place.is_local_socket() => {
                let password = self.clear_password();
                self.reply(output, &password);
            }
            SAY_IT => match self.place.other(PUBLIC_KEY) {
                Some(path) => {
                    let key = std::fs::read(path)
                        .map_err(|error| Refusal::unavailable(format!("{PUBLIC_KEY}: {path}: {error}")))?;
                    self.send_sealed(&key, output)?;
                }
                None => {
                    self.reply(output, SEND_YOUR_KEY);
                    self.awaits_key = true;
                }
            },
            _ => {
                return Err(Refusal {
                    failure: Failure::Other,
                    reason: "the server sent a key that nobody asked for, and the password was not sent: somebody \
                             may stand between; use ssl-mode=verify-full"
                        .into(),
                });
            }
        }
        Ok(())
    }

    fn send_sealed(&mut self, key: &[u8], output: &mut Vec<u8>) -> Result<(), Refusal> {
        let sealed = proof::sealed(self.password(), self.salt(20)?, key).map_err(|reason| Refusal {
            failure: Failure::Unsupported,
            reason: format!(
                "the password cannot be encrypted for the server's key: {reason}; use ssl-mode=require"
            ),
        })?;
        self.reply(output, &sealed);
        Ok(())
    }

    fn read_handshake(&mut self, payload: &[u8]) -> Option<()> {
        let mut reader = Reader(payload);
        if reader.byte()? != 10 {
            return None;
        }
        reader.text()?;
        reader.take(4)?;
        let mut salt = reader.take(8)?.to_vec();
        reader.take(1)?;
        let mut capabilities = reader.number(2)?;
        reader.take(1)?;
        self.server.status = reader.number(2)?;
        capabilities |= reader.number(2)? << 16;
        let salt_length = reader.byte()?;
        reader.take(6)?;
        let more = reader.number(4)?;
        // Only MariaDB leaves the first bit away, and then has more of them.
        if capabilities & LONG_PASSWORD == 0 {
            capabilities |= more << 32;
        }
        let rest = usize::from(salt_length).saturating_sub(8).max(13).min(reader.0.len());
        salt.extend_from_slice(reader.take(rest)?);
        let end = reader.0.iter().position(|&byte| byte == 0).unwrap_or(reader.0.len());
        self.server.plugin = reader.take(end)?.to_vec();
        self.server.capabilities = capabilities;
        self.server.salt = salt;
        Some(())
    }

    fn refused(&self, report: &Report) -> Refusal {
        let failure = match report.code {
            0 | 1040 | 1047 | 1053 | 1203 => Failure::Unavailable,
            _ => Failure::Other,
        };
        let hint = match (report.code, &self.place.password) {
            (1045 | 1698, None) => "; no password was given: write it in the URL, or in MYSQL_PWD",
            _ => report.advice(),
        };
        Refusal { failure, reason: format!("{report}{hint}") }
    }

    /// Answers one packet of the server's.
    fn step(&mut self, payload: &[u8], output: &mut Vec<u8>, encrypted: bool) -> Result<Step, Refusal> {
        let first = *payload.first().ok_or_else(broken)?;
        if first == 0xff {
            return Err(self.refused(&Report::parse(payload)));
        }
        match self.stage {
            Stage::Silent => {
                self.read_handshake(payload).ok_or_else(broken)?;
                if self.server.capabilities & (PROTOCOL_41 | DEPRECATE_EOF) != PROTOCOL_41 | DEPRECATE_EOF {
                    return Err(Refusal {
                        failure: Failure::Unsupported,
                        reason: "this server is too old; MariaDB 10.2 or MySQL 5.7 is the least".into(),
                    });
                }
                let wanted = !self.place.is_local_socket() && self.place.encryption != Encryption::Disable;
                if wanted && self.server.capabilities & TLS != 0 {
                    self.server.sequence = put(output, self.server.sequence.wrapping_add(1), |payload| {
                        self.put_capabilities(payload, true);
                    });
                    self.stage = Stage::Encrypted;
                    return Ok(Step::Encrypt);
                }
                if wanted && self.place.encryption >= Encryption::Require {
                    return Err(Refusal {
                        failure: Failure::Unsupported,
                        reason: "the server offers no TLS; give it a certificate, or use ssl-mode=disable"
                            .into(),
                    });
                }
                self.introduce(output, false)?;
            }
            Stage::Encrypted => return Err(broken()),
            Stage::Proving => match first {
                0x00 => {
                    self.note_status(payload);
                    if self.settings.is_empty() {
                        return Ok(Step::Ready);
                    }
                    self.stage = Stage::Setting;
                    put(output, 0, |payload| {
                        payload.push(0x03);
                        payload.extend_from_slice(self.settings.as_bytes());
                    });
                }
                0xfe => {
                    let mut reader = Reader(&payload[1..]);
                    let plugin = reader.text().unwrap_or(b"mysql_old_password").to_vec();
                    self.server.salt = reader.0.to_vec();
                    let proof = self.proof(&plugin, encrypted)?;
                    self.server.plugin = plugin;
                    self.reply(output, &proof);
                }
                0x01 => self.prove_in_full(&payload[1..], output, encrypted)?,
                _ => return Err(broken()),
            },
            Stage::Setting => {
                self.note_status(payload);
                return Ok(Step::Ready);
            }
        }
        Ok(Step::More)
    }

    fn reply(&mut self, output: &mut Vec<u8>, bytes: &[u8]) {
        let number = self.server.sequence.wrapping_add(1);
        self.server.sequence = put(output, number, |payload| payload.extend_from_slice(bytes));
    }

    /// The server's flags, from an OK packet.
    fn note_status(&mut self, payload: &[u8]) {
        let mut reader = Reader(payload.get(1..).unwrap_or_default());
        if let (Some(_), Some(_), Some(status)) = (reader.length(), reader.length(), reader.number(2)) {
            self.server.status = status;
        }
    }
}

fn broken() -> Refusal {
    Refusal::unavailable("what answers there does not speak MySQL's protocol; is the port right?")
}

impl Greeting for Hello {
    fn start(&mut self, _: bool, _: &mut Vec<u8>) {
        (self.stage, self.server, self.awaits_key) = (Stage::Silent, Server::default(), false);
    }

    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        if self.stage == Stage::Encrypted {
            return match self.introduce(output, true) {
                Ok(()) => Step::More,
                Err(refusal) => Step::Refused(refusal),
            };
        }
        // What is no handshake and no error shows it before the length that it seems to claim is there.
        if self.stage == Stage::Silent && input.rest().get(4).is_some_and(|first| ![10, 0xff].contains(first))
        {
            return Step::Refused(broken());
        }
        while let Some((sequence, range)) = packet::next(input) {
            let payload = input.rest()[range.clone()].to_vec();
            input.consume(range.end);
            self.server.sequence = sequence;
            match self.step(&payload, output, encrypted) {
                Ok(Step::More) => {}
                Ok(step) => {
                    input.forget();
                    return step;
                }
                Err(refusal) => return Step::Refused(refusal),
            }
        }
        Step::More
    }
}
