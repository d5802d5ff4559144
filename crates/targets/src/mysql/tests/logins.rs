//! Who we are, proved in each of the ways that servers ask for: to a real MariaDB, and to a server that
//! speaks MySQL 8's part of the protocol, whose RSA is that of the `openssl` program.

use super::*;
use crate::connection::sql::Sql;
use crate::connection::{Route, Url};
use crate::mysql::client::Client;
use crate::mysql::greeting::Hello;
use crate::mysql::packet::{Reader, put};
use ring::digest::{SHA256, digest};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) const PASSWORD: &str = "pä55 w%rd, a long one";
const SALT: &[u8; 20] = b"abcdefghijklmnopqrst";

#[test]
fn mariadb_is_shown_a_hash_or_a_signature() {
    let Some(server) = start(&ServerOptions::default()) else { return };
    let admin = open(&server.url());
    query(&admin, "INSTALL SONAME 'auth_ed25519'");
    let long = "x".repeat(100);
    let as_user = |user: &str, password: &str| {
        let escaped: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let credentials = format!("{user}:{escaped}@");
        server.url().replace(&format!("tipover:{}@", server.password()), &credentials)
    };
    for (plugin, password) in
        [("ed25519", PASSWORD), ("ed25519", &long), ("ed25519", "x"), ("mysql_native_password", PASSWORD)]
    {
        query(&admin, "DROP USER IF EXISTS anna");
        let create = format!("CREATE USER anna IDENTIFIED VIA {plugin} USING PASSWORD('{password}')");
        query(&admin, &create);
        query(&admin, "GRANT ALL ON *.* TO anna");
        let target = open(&as_user("anna", password));
        assert_eq!(query(&target, "SELECT USER() LIKE 'anna@%'"), [[Some("1".to_string())]], "{plugin}");
        let said = refusal(&testing::spec("mysql", &as_user("anna", "wr0ng-secret")));
        assert!(said.contains("check user and password") && !said.contains("wr0ng-secret"), "{said}");
    }
    // What is not known here is named, and nothing is sent.
    query(&admin, "INSTALL SONAME 'auth_pam'");
    query(&admin, "CREATE USER berta IDENTIFIED VIA pam");
    let said = refusal(&testing::spec("mysql", &as_user("berta", PASSWORD)));
    assert!(said.contains("the server wants \"dialog\"") && !said.contains(PASSWORD), "{said}");
}

/// What the server with MySQL 8's manners does.
#[derive(Clone, Copy)]
struct Manners {
    /// It greets with another plugin and asks for this one.
    switches: bool,
    /// The hash of the password is in its cache.
    remembers: bool,
    encrypts: bool,
    /// It hands out its RSA key.
    shows_key: bool,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

pub(super) fn receive(stream: &mut dyn Read) -> (u8, Vec<u8>) {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; usize::from(head[0]) + (usize::from(head[1]) << 8)];
    stream.read_exact(&mut payload).unwrap();
    (head[3], payload)
}

pub(super) fn send(stream: &mut dyn Write, sequence: u8, payload: &[u8]) {
    let mut packet = Vec::new();
    put(&mut packet, sequence, |output| output.extend_from_slice(payload));
    stream.write_all(&packet).unwrap();
    stream.flush().unwrap();
}

pub(super) fn greeting(plugin: &str, encrypts: bool) -> Vec<u8> {
    const ALL_BUT_TLS: u32 = 0x0138_a20f;
    let capabilities = (ALL_BUT_TLS | if encrypts { 1 << 11 } else { 0 }).to_le_bytes();
    let parts: [&[u8]; 12] = [
        b"\x0a8.4.0-scripted\0",
        &[7, 0, 0, 0],
        &SALT[..8],
        &[0],
        &capabilities[..2],
        &[45, 2, 0],
        &capabilities[2..],
        &[21],
        &[0; 10],
        &SALT[8..],
        &[0],
        plugin.as_bytes(),
    ];
    [parts.concat(), vec![0]].concat()
}

/// Whether `proof` is one of somebody who knows [`PASSWORD`], as the server finds out: it keeps only the hash
/// of the password's hash.
fn is_proof(proof: &[u8]) -> bool {
    let sha = |bytes: &[u8]| digest(&SHA256, bytes).as_ref().to_vec();
    let kept = sha(&sha(PASSWORD.as_bytes()));
    let hidden = sha(&[&kept[..], SALT].concat());
    let once: Vec<u8> = proof.iter().zip(&hidden).map(|(a, b)| a ^ b).collect();
    sha(&once) == kept
}

fn openssl(folder: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(arguments).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}");
    output.stdout
}

/// Serves one client until its session is set up. Returns what the network saw of the login.
fn serve(listener: &TcpListener, manners: Manners, folder: &Path) -> Vec<u8> {
    let (socket, _) = listener.accept().unwrap();
    let mut seen = Seen { socket, bytes: Vec::new() };
    let plugin = if manners.switches { "mysql_native_password" } else { "caching_sha2_password" };
    send(&mut seen, 0, &greeting(plugin, manners.encrypts));
    if !manners.encrypts {
        log_in(&mut seen, manners, folder);
        return seen.bytes;
    }
    receive(&mut seen);
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).unwrap();
    let tls = rustls::ServerConnection::new(std::sync::Arc::new(config)).unwrap();
    let mut stream = rustls::StreamOwned::new(tls, seen);
    log_in(&mut stream, manners, folder);
    stream.sock.bytes
}

fn log_in(stream: &mut dyn Stream, manners: Manners, folder: &Path) {
    let (mut sequence, hello) = receive(stream);
    let mut reader = Reader(&hello[32..]);
    assert_eq!(reader.text(), Some("anna".as_bytes()));
    let mut proof = reader.counted().unwrap().to_vec();
    if manners.switches {
        let ask = [b"\xfecaching_sha2_password\0", &SALT[..], &[0]].concat();
        send(stream, sequence + 1, &ask);
        (sequence, proof) = receive(stream);
    }
    if manners.remembers {
        assert!(is_proof(&proof));
        send(stream, sequence + 1, &[1, 3]);
        sequence += 1;
    } else {
        send(stream, sequence + 1, &[1, 4]);
        let (number, mut answer) = receive(stream);
        sequence = number;
        if !manners.encrypts {
            if manners.shows_key {
                assert_eq!(answer, [2], "it asks for the key");
                let pem = std::fs::read(folder.join("public.pem")).unwrap();
                send(stream, sequence + 1, &[&[1], &pem[..]].concat());
                (sequence, answer) = receive(stream);
            }
            let oaep = ["-inkey", "key.pem", "-pkeyopt", "rsa_padding_mode:oaep"];
            answer = openssl(folder, &[&["pkeyutl", "-decrypt"], &oaep[..]].concat(), &answer);
            answer.iter_mut().zip(SALT.iter().cycle()).for_each(|(byte, salt)| *byte ^= salt);
        }
        if answer.strip_suffix(&[0]) != Some(PASSWORD.as_bytes()) {
            return send(stream, sequence + 1, b"\xff\x15\x04#28000Access denied for user 'anna'");
        }
    }
    const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
    send(stream, sequence + 1, OK);
    let (_, command) = receive(stream);
    assert!(command.starts_with(b"\x03SET autocommit"));
    send(stream, 1, OK);
}

/// A socket that notes what it brought.
struct Seen {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Read for Seen {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.socket.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.socket.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

/// Where `listener` listens, for a user with `password`.
pub(super) fn place_at(listener: &TcpListener, password: &str, parameters: &str) -> Url {
    let port = listener.local_addr().unwrap().port();
    let url = format!("mysql://anna:{}@127.0.0.1:{port}/?{parameters}", password.replace('%', "%25"));
    Url::parse(&url.parse().unwrap(), Flavour::DIALECT, Flavour::PARAMETERS).unwrap()
}

/// Logs in at a server of these manners with `password` and `parameters`; the answer, and what the network
/// saw.
fn log_in_at(manners: Manners, password: &str, parameters: &str, folder: &Path) -> (Option<String>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place_at(&listener, password, parameters);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, manners, folder));
        let route = Route::to(&place).unwrap();
        let hello = Hello::new(&place, "SET autocommit = 1");
        let error = Client::connect(&route, hello, Duration::from_secs(30)).err();
        (error.map(|refusal| refusal.reason), server.join().unwrap())
    })
}

#[test]
fn mysql_8_is_shown_a_hash_or_the_password_in_an_envelope() {
    if !Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        return println!("SKIPPED: openssl is not in PATH; apt-get install openssl");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let request =
        "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 -subj /CN=localhost";
    openssl(folder, &request.split(' ').collect::<Vec<_>>(), b"");
    openssl(folder, &["rsa", "-in", "key.pem", "-pubout", "-out", "public.pem"], b"");
    for number in 0..8 {
        let [switches, remembers, encrypts] = [1, 2, 4].map(|bit| number & bit != 0);
        let manners = Manners { switches, remembers, encrypts, shows_key: true };
        let (error, seen) = log_in_at(manners, PASSWORD, "", folder);
        assert_eq!(error, None, "{number}");
        let shown = seen.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
        assert!(!shown && !seen.is_empty(), "the password is never on the network: {number}");
    }
    let full = Manners { switches: false, remembers: false, encrypts: false, shows_key: true };
    let (error, _) = log_in_at(full, "wr0ng", "", folder);
    assert!(error.as_ref().is_some_and(|e| e.contains("check user") && !e.contains("wr0ng")), "{error:?}");
    // Whoever stands between could hand out a key of his own; one that lies here is used unasked.
    let known = format!("{}={}", greeting::PUBLIC_KEY, folder.join("public.pem").display());
    let (error, _) = log_in_at(Manners { shows_key: false, ..full }, PASSWORD, &known, folder);
    assert_eq!(error, None);
}
