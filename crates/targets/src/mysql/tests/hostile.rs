//! Servers that are not what they claim to be. The honest ones are in `logins`.

use super::logins::{PASSWORD, greeting, place_at, receive, send};
use super::*;
use crate::connection::Route;
use crate::connection::sql::Client as _;
use crate::mysql::client::Client;
use crate::mysql::greeting::Hello;
use crate::mysql::packet::put;
use base64::Engine as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const NATIVE: &str = "mysql_native_password";
const CACHING: &str = "caching_sha2_password";
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// An RSA public key in PEM whose modulus has that many bytes.
fn key(modulus_bytes: usize) -> Vec<u8> {
    let element = |tag: u8, content: &[u8]| {
        let length = (content.len() as u16).to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    };
    let numbers = [element(2, &vec![0xC1; modulus_bytes]), element(2, &[1, 0, 1])].concat();
    let bits = element(3, &[&[0], &element(0x30, &numbers)[..]].concat());
    let der = element(0x30, &[element(0x30, &[]), bits].concat());
    let base64 = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n").into_bytes()
}

/// What a client with `parameters` finds at a server that does what `act` does after its greeting, and the
/// last that this server heard.
fn at<T: Send>(
    plugin: &str,
    parameters: &str,
    act: impl FnOnce(&mut TcpStream, u8) + Send,
    ask: impl FnOnce(Result<Client, String>) -> T,
) -> (T, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place_at(&listener, PASSWORD, parameters);
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            send(&mut socket, 0, &greeting(plugin, false));
            let (sequence, _) = receive(&mut socket);
            act(&mut socket, sequence);
            let mut last = Vec::new();
            // A client that was refused hangs up, perhaps with bytes of ours unread.
            let _ = socket.read_to_end(&mut last);
            last
        });
        let hello = Hello::new(&place, "");
        let client = Client::connect(&Route::to(&place).unwrap(), hello, Duration::from_secs(30));
        let answer = ask(client.map(|(client, _)| client).map_err(|refusal| refusal.reason));
        (answer, server.join().unwrap())
    })
}

fn refused(plugin: &str, parameters: &str, act: impl FnOnce(&mut TcpStream, u8) + Send) -> (String, Vec<u8>) {
    at(plugin, parameters, act, |client| client.err().expect("it must be refused"))
}

#[test]
fn a_password_is_sealed_only_for_a_key_that_was_asked_for_or_lies_here() {
    let hand_out = |socket: &mut TcpStream, sequence: u8| {
        send(socket, sequence.wrapping_add(1), &[&[1], &key(256)[..]].concat());
    };
    // At once, unasked.
    let (said, heard) = refused(CACHING, "", hand_out);
    assert!(said.contains("nobody asked for") && !said.contains(PASSWORD), "{said}");
    assert_eq!(heard, b"", "nothing was sent");
    // Once more, after the one that was asked for.
    let again = |socket: &mut TcpStream, sequence: u8| {
        send(socket, sequence + 1, &[1, 4]);
        let (sequence, asked) = receive(socket);
        assert_eq!(asked, [2], "it asks for the key");
        hand_out(socket, sequence);
        let (sequence, sealed) = receive(socket);
        assert_eq!(sealed.len(), 256);
        hand_out(socket, sequence);
    };
    let (said, heard) = refused(CACHING, "", again);
    assert!(said.contains("nobody asked for"), "{said}");
    assert_eq!(heard, b"", "nothing was sent for the second");
    // Where a key lies here, none is ever asked for or taken.
    let folder = tempfile::tempdir().unwrap();
    let pinned = folder.path().join("public.pem");
    std::fs::write(&pinned, key(128)).unwrap();
    let parameters = format!("{}={}", crate::mysql::greeting::PUBLIC_KEY, pinned.display());
    let (said, heard) = refused(CACHING, &parameters, hand_out);
    assert!(said.contains("nobody asked for"), "{said}");
    assert_eq!(heard, b"");
    let instead = |socket: &mut TcpStream, sequence: u8| {
        send(socket, sequence + 1, &[1, 4]);
        let (sequence, sealed) = receive(socket);
        assert_eq!(sealed.len(), 128, "for the key that lies here");
        hand_out(socket, sequence);
    };
    let (said, heard) = refused(CACHING, &parameters, instead);
    assert!(said.contains("nobody asked for"), "{said}");
    assert_eq!(heard, b"");
    // A plugin without keys has none to hand out.
    let (said, heard) = refused(NATIVE, "", hand_out);
    assert!(said.contains("does not speak MySQL's protocol"), "{said}");
    assert_eq!(heard, b"");
}

#[test]
fn a_salt_that_is_too_short_gets_no_proof() {
    for plugin in [NATIVE, CACHING, "client_ed25519"] {
        let ask = |socket: &mut TcpStream, sequence: u8| {
            send(socket, sequence + 1, &[b"\xfe", plugin.as_bytes(), b"\0short\0"].concat());
        };
        let (said, heard) = refused(CACHING, "", ask);
        assert!(said.contains("does not speak MySQL's protocol"), "{said}");
        assert_eq!(heard, b"", "{plugin}");
    }
}

#[test]
fn keys_and_counts_that_cannot_be_are_refused() {
    for (bytes, fits) in [(64, false), (128, true), (256, true), (2048, true), (2049, false), (30_000, false)]
    {
        let sealed = crate::mysql::proof::sealed(b"secret", b"salt", &key(bytes));
        assert_eq!(sealed.map(|sealed| sealed.len()).ok(), fits.then_some(bytes), "{bytes}");
    }
    let claim = |columns: &'static [u8]| {
        let act = move |socket: &mut TcpStream, sequence: u8| {
            send(socket, sequence + 1, OK);
            let (_, command) = receive(socket);
            assert!(command.starts_with(b"\x03SELECT"));
            send(socket, 1, columns);
            // A description, a row, and the end.
            for (sequence, packet) in (2..).zip([&[1, b'd'][..], &[1, b'x'], &[0xfe, 0, 0, 2, 0, 0, 0]]) {
                let mut bytes = Vec::new();
                put(&mut bytes, sequence, |output| output.extend_from_slice(packet));
                // Who has been refused may have hung up.
                let _ = socket.write_all(&bytes);
            }
        };
        at(NATIVE, "", act, |client| client.unwrap().query("SELECT 1").map_err(|report| report.to_string())).0
    };
    assert_eq!(claim(&[1]).unwrap(), [[Some("x".to_string())]]);
    for columns in
        [&[0xfe, 255, 255, 255, 255, 255, 255, 255, 255][..], &[0xfd, 255, 255, 255], &[0xfc, 1, 16]]
    {
        let said = claim(columns).unwrap_err();
        assert!(said.contains("an answer without columns"), "{said}");
    }
}

#[test]
fn an_endless_greeting_and_another_protocol_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place_at(&listener, PASSWORD, "");
    let said = |words: &'static [u8]| {
        std::thread::scope(|scope| {
            let listener = &listener;
            scope.spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                let _ = socket.write_all(words);
                let _ = socket.read_to_end(&mut Vec::new());
            });
            let route = Route::to(&place).unwrap();
            let connected = Client::connect(&route, Hello::new(&place, ""), Duration::from_secs(30));
            connected.err().expect("it must be refused").reason
        })
    };
    // A packet of 16 MiB, of which a part comes.
    static LONG: [u8; 100_000] = {
        let mut bytes = [10; 100_000];
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (0xfe, 0xff, 0xff, 0);
        bytes
    };
    assert!(said(&LONG).contains("too much to say"), "{}", said(&LONG));
    for (is_web_server, expected) in
        [(true, "is an HTTP server: it does not speak MySQL's protocol"), (false, "no answer in time")]
    {
        let port = testing::stranger(is_web_server);
        let url = format!("mysql://anna@127.0.0.1:{port}/?connect_timeout=1");
        let refused = refusal(&testing::spec("mysql", &url));
        assert!(refused.contains(expected) && refused.contains("is the port right"), "{refused}");
    }
    let http = said(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(http.contains("does not speak MySQL's protocol"), "{http}");
}
