//! Servers that are not what they claim to be. The honest ones are real, in `tests`.

use super::client::Client;
use super::flavour::Flavour;
use super::greeting::Hello;
use super::message::put;
use crate::connection::sql::{Client as _, Sql};
use crate::connection::{Route, Url, testing};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const PASSWORD: &str = "a password that nobody else has";

/// A message of kind `R`, with which the server speaks of who we are.
fn authentication(kind: u32, rest: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    put(&mut message, b'R', |body| {
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(rest);
    });
    message
}

fn scram_is_wanted() -> Vec<u8> {
    authentication(10, b"SCRAM-SHA-256\0\0")
}

const READY: &[u8] = b"Z\0\0\0\x05I";

fn receive(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let count = socket.read(&mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// What a client finds at a server that does what `act` does after the first message, and the last that this
/// server heard.
fn at<T>(
    act: impl FnOnce(&mut TcpStream) + Send,
    ask: impl FnOnce(Result<Client, String>) -> T,
) -> (T, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://anna:{}@127.0.0.1:{port}/x?sslmode=disable", PASSWORD.replace(' ', "%20"));
    let place = Url::parse(&url.parse().unwrap(), Flavour::DIALECT, Flavour::PARAMETERS).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            receive(&mut socket);
            act(&mut socket);
            let mut last = Vec::new();
            // A client that was refused hangs up, perhaps with bytes of ours unread.
            let _ = socket.read_to_end(&mut last);
            last
        });
        let hello = Hello::new(&place, &BTreeMap::new());
        let client = Client::connect(&Route::to(&place).unwrap(), hello, Duration::from_secs(30));
        let answer = ask(client.map(|(client, _)| client).map_err(|refusal| refusal.reason));
        (answer, server.join().unwrap())
    })
}

fn refused(act: impl FnOnce(&mut TcpStream) + Send) -> String {
    let (said, heard) = at(act, |client| client.err().expect("it must be refused"));
    assert_eq!(heard, b"", "nothing is said to it any more: {said}");
    assert!(!said.contains(PASSWORD), "{said}");
    said
}

#[test]
fn nobody_is_believed_before_he_has_proved_that_he_knows_the_password() {
    let ready = || [authentication(0, b""), READY.to_vec()].concat();
    // A server that trusts everybody asks for nothing, and is as good as it was.
    at(|socket| socket.write_all(&ready()).unwrap(), |client| drop(client.unwrap()));
    let unproved = "did not prove that it knows the password";
    let begin = |socket: &mut TcpStream| {
        socket.write_all(&scram_is_wanted()).unwrap();
        let first = receive(socket);
        assert!(first.starts_with(b"p") && first.windows(5).any(|window| window == b"n,,n="), "{first:?}");
        first
    };
    // It lets us in, is ready, or asks for the password or a hash, without having shown anything.
    for instead in
        [ready(), READY.to_vec(), authentication(3, b""), authentication(5, b"salt"), scram_is_wanted()]
    {
        let said = refused(|socket| {
            begin(socket);
            socket.write_all(&instead).unwrap();
        });
        assert!(said.contains(unproved), "{said}");
    }
    // The same after our proof, and with a signature that is none.
    for instead in
        [ready(), READY.to_vec(), authentication(12, b"v=AAAA"), authentication(12, b"e=other-error")]
    {
        let said = refused(|socket| {
            let first = begin(socket);
            let nonce = first.windows(2).position(|window| window == b"r=").unwrap() + 2;
            let challenge = [b"r=", &first[nonce..], b"x,s=c2FsdHNhbHQ=,i=4096"].concat();
            socket.write_all(&authentication(11, &challenge)).unwrap();
            let proof = receive(socket);
            assert!(proof.windows(3).any(|window| window == b",p="), "{proof:?}");
            socket.write_all(&instead).unwrap();
        });
        assert!(said.contains(unproved), "{said}");
    }
    // What belongs to no conversation.
    for strange in [READY.to_vec(), authentication(12, b"v=AAAA"), authentication(11, b"r=x,s=eA==,i=1")] {
        let said = refused(|socket| socket.write_all(&strange).unwrap());
        assert!(said.contains("does not speak PostgreSQL's protocol"), "{said}");
    }
}

#[test]
fn a_stranger_is_named_and_silence_is_silence() {
    for (is_web_server, expected) in
        [(true, "is an HTTP server: it does not speak PostgreSQL's protocol"), (false, "no answer in time")]
    {
        for mode in ["disable", "prefer"] {
            let port = testing::stranger(is_web_server);
            let url = format!("postgres://anna@127.0.0.1:{port}/x?connect_timeout=1&sslmode={mode}");
            let refused = super::Postgres::open(&testing::spec("postgres", &url)).err().unwrap().to_string();
            assert!(refused.contains(expected) && refused.contains("is the port right"), "{refused}");
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_refused_at_once() {
    for length in [0_u32, 3, 1 << 30, u32::MAX] {
        let said = refused(|socket| {
            socket.write_all(&[b"R", &length.to_be_bytes()[..]].concat()).unwrap();
        });
        assert!(said.contains("does not speak PostgreSQL's protocol"), "{said}");
        // After the greeting, too.
        let act = |socket: &mut TcpStream| {
            socket.write_all(&[authentication(0, b""), READY.to_vec()].concat()).unwrap();
            receive(socket);
            socket.write_all(&[b"D", &length.to_be_bytes()[..]].concat()).unwrap();
        };
        let (said, _) = at(act, |client| client.unwrap().query("SELECT 1").unwrap_err().to_string());
        assert!(said.contains("an answer that is none"), "{said}");
    }
    let said = refused(|socket| {
        let mut notice = Vec::new();
        put(&mut notice, b'N', |body| body.resize(100_000, b'x'));
        let _ = socket.write_all(&notice[..90_000]);
    });
    assert!(said.contains("too much to say"), "{said}");
}
