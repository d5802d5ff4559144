//! A real shaped network: what passes, how late, and what is left when its laboratory dies.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers in here are tests too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tipover_core::units::{Bytes, Ratio};
use tipover_disk::DaemonCommand;
use tipover_lab::network::{LABORATORY, Link, LinkCounters, Network, NetworkError, NetworkOptions};

fn options(nodes: &[&str]) -> NetworkOptions {
    let mut daemon = DaemonCommand::this_program(&["--exact", "play", "--nocapture"]);
    daemon.environment.push(("TIPOVER_LAB_ROLE".into(), "network daemon".into()));
    NetworkOptions { nodes: nodes.iter().map(|node| node.to_string()).collect(), mtu: 1500, seed: 7, daemon }
}

fn network(nodes: &[&str]) -> Option<Network> {
    match Network::start(&options(nodes)) {
        Ok(network) => Some(network),
        Err(error @ (NetworkError::NotRoot | NetworkError::NoTun(_))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Not a test of its own: the daemon, or a laboratory that is killed.
#[test]
fn play() {
    match std::env::var("TIPOVER_LAB_ROLE").as_deref() {
        Ok("network daemon") => drop(tipover_lab::network::serve()),
        Ok("laboratory") => {
            let network = network(&["a"]).unwrap();
            println!("network {} {}", network.daemon_pid(), network.device());
            std::thread::sleep(Duration::from_secs(1000));
        }
        _ => {}
    }
}

/// Does something in a member's namespace, in a thread of its own.
fn inside<T: Send + 'static>(
    network: &Network,
    member: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let namespace = network.member(member).unwrap().namespace.clone();
    let thread = std::thread::spawn(move || {
        if let Some(namespace) = namespace {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None).unwrap();
        }
        work()
    });
    thread.join().unwrap()
}

/// A server in a member's namespace that sends back every datagram.
fn echo(network: &Network, member: &str) -> SocketAddr {
    let address = network.member(member).unwrap().address;
    let socket = inside(network, member, move || UdpSocket::bind((address, 0)).unwrap());
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        // Ends when the network goes and the datagram that tells it so arrives, or with this process.
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if length == 0 || socket.send_to(&buffer[..length], from).is_err() {
                return;
            }
        }
    });
    address
}

/// Sends `count` datagrams, one after another, and returns how long each one's answer took.
fn round_trips(socket: &UdpSocket, server: SocketAddr, count: u32) -> Vec<Option<Duration>> {
    let ask = |n: u32| {
        let began = Instant::now();
        socket.send_to(&n.to_be_bytes(), server).unwrap();
        let mut buffer = [0; 8];
        loop {
            match socket.recv_from(&mut buffer) {
                // Late answers to questions given up are passed over.
                Ok((4, _)) if buffer[..4] == n.to_be_bytes() => return Some(began.elapsed()),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    };
    (0..count).map(ask).collect()
}

fn client(network: &Network, member: &str, patience: Duration) -> UdpSocket {
    let address = network.member(member).unwrap().address;
    let socket = inside(network, member, move || UdpSocket::bind((address, 0)).unwrap());
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort();
    spans[spans.len() / 2]
}

#[test]
fn every_member_reaches_every_other_and_the_laboratory() {
    let Some(network) = network(&["a", "b"]) else { return };
    for server in ["a", "b"] {
        let address = echo(&network, server);
        for from in [LABORATORY, "a", "b"] {
            let socket = client(&network, from, Duration::from_secs(10));
            assert!(round_trips(&socket, address, 3).iter().all(Option::is_some), "{from} to {server}");
        }
    }
    // What a member says to itself needs no network.
    let pair = network.pair("a", "b").unwrap();
    assert_eq!((pair.counters.sent, pair.counters.delivered, pair.counters.touched()), (6, 6, 0));
    let error = network.set("a", "c", Link::cut()).unwrap_err().to_string();
    assert_eq!(error, "\"c\" is no member of this network; it has laboratory, a, b");
}

#[test]
fn a_cut_may_have_one_direction_and_is_counted_only_when_it_hits() {
    let Some(network) = network(&["a", "b"]) else { return };
    let address = echo(&network, "b");
    let socket = client(&network, "a", Duration::from_secs(10));
    assert!(round_trips(&socket, address, 1)[0].is_some());

    network.set("b", "a", Link::cut()).unwrap();
    assert_eq!(network.pair("b", "a").unwrap().counters.cut, 0, "an idle link was cut: no effect yet");
    let before = network.pair("a", "b").unwrap().counters;
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(round_trips(&socket, address, 2), [None, None]);
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let there = network.pair("a", "b").unwrap().counters.since(&before);
    assert_eq!((there.sent, there.delivered), (2, 2), "the other direction passes");
    assert_eq!(network.pair("b", "a").unwrap().counters.cut, 2);
    let lab = client(&network, LABORATORY, Duration::from_secs(10));
    assert!(round_trips(&lab, address, 1)[0].is_some(), "a third member is not touched");

    network.heal().unwrap();
    assert!(round_trips(&socket, address, 1)[0].is_some());
}

#[test]
fn delay_and_loss_are_what_was_asked_for() {
    let Some(network) = network(&["a", "b"]) else { return };
    let address = echo(&network, "b");
    let socket = client(&network, "a", Duration::from_secs(10));
    let plain = median(round_trips(&socket, address, 100).into_iter().flatten().collect());
    for delay in [Duration::from_micros(500), Duration::from_millis(5)] {
        network.set_both("a", "b", Link::delayed(delay)).unwrap();
        let all: Vec<Duration> = round_trips(&socket, address, 50).into_iter().flatten().collect();
        assert_eq!(all.len(), 50);
        assert!(all.iter().all(|trip| *trip >= 2 * delay), "faster than asked for: {all:?}");
        println!("asked for {:?}, took {:?} above {plain:?}", 2 * delay, median(all) - 2 * delay);
    }
    let timing = network.timing().unwrap();
    println!("{timing:?}, mean {} ns", timing.late_ns_sum / timing.count);
    assert_eq!(timing.count, 200);

    let lossy = Link { loss: Ratio(0.2), ..Link::default() };
    network.heal().unwrap();
    network.set("a", "b", lossy).unwrap();
    let before = network.pair("a", "b").unwrap().counters;
    for n in 0..5000_u32 {
        socket.send_to(&n.to_be_bytes(), address).unwrap();
        if n % 50 == 0 {
            // The receiver's own buffer shall not be what loses.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let (began, settled) =
        (Instant::now(), |seen: &LinkCounters| seen.delivered + seen.lost + seen.refused == 5000);
    let seen = loop {
        let seen = network.pair("a", "b").unwrap().counters.since(&before);
        if settled(&seen) || began.elapsed() > Duration::from_secs(60) {
            break seen;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(seen.sent, 5000);
    assert!(settled(&seen), "{seen:?}");
    // Six standard deviations of a binomial.
    assert!((seen.lost as f64 - 1000.0).abs() < 6.0 * (5000.0_f64 * 0.2 * 0.8).sqrt(), "{seen:?}");
}

#[test]
fn bandwidth_is_bounded_and_without_bounds_it_is_fast() {
    let Some(network) = network(&["a"]) else { return };
    let address = network.member("a").unwrap().address;
    let listener = inside(&network, "a", move || TcpListener::bind((address, 0)).unwrap());
    let server = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            stream.write_all(b"!").unwrap();
        }
    });
    let send = |bytes: usize| {
        let mut stream = TcpStream::connect(server).unwrap();
        let began = Instant::now();
        stream.write_all(&vec![7; bytes]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        bytes as f64 / began.elapsed().as_secs_f64()
    };
    let free = send(64 << 20);
    let limit = 4_000_000;
    network.set(LABORATORY, "a", Link { bandwidth: Some(Bytes(limit)), ..Link::default() }).unwrap();
    let bounded = send(4 << 20);
    println!("{:.0} MB/s without bounds, {:.2} MB/s of {:.2}", free / 1e6, bounded / 1e6, limit as f64 / 1e6);
    assert!(bounded <= limit as f64 * 1.01, "{bounded}");
    assert!(free > bounded * 2.0, "{free}");
}

#[test]
fn a_killed_laboratory_leaves_no_network() {
    if network(&["a"]).is_none() {
        return;
    }
    let mut laboratory = Command::new(std::env::current_exe().unwrap());
    laboratory.args(["--exact", "play", "--nocapture"]).env("TIPOVER_LAB_ROLE", "laboratory");
    let mut laboratory = laboratory.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(laboratory.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line =
        lines.filter_map(|line| line.find("network ").map(|at| line[at..].to_string())).next().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let (pid, device) = (words[1], words[2]);
    let is_there = || std::fs::metadata(format!("/sys/class/net/{device}")).is_ok();
    assert!(is_there());
    laboratory.kill().unwrap();
    laboratory.wait().unwrap();
    let began = Instant::now();
    while is_there() || std::fs::metadata(format!("/proc/{pid}")).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(60), "{device} or its daemon {pid} is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    for (nodes, mtu, words) in [
        (vec![], 1500, "1 to 250 nodes"),
        (vec!["a", "a"], 1500, "\"a\""),
        (vec![LABORATORY], 1500, "laboratory"),
        (vec!["a"], 100, "576 to 65000"),
    ] {
        let error = Network::start(&NetworkOptions { mtu, ..options(&nodes) }).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
