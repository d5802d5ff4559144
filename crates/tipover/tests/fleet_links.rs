//! Links of a fleet that are cut, flap, are slow and lose packets: three nats-servers, two machines and
//! whoever asks, each in a network namespace of its own, between which is the laboratory's shaped network.

mod program;

use program::fleet::{PLAN, all, machine, to_the_end, until};
use program::nats::{Nats, Seat};
use program::results;
use program::{PROGRAM, Place, alone, skipped};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use tipover_core::units::Ratio;
use tipover_disk::DaemonCommand;
use tipover_lab::network::{Link, LinkCounters, Network, NetworkOptions, possible};

const SERVERS: [&str; 3] = ["s0", "s1", "s2"];

fn network(nodes: &[&str]) -> Option<Network> {
    if let Err(error) = possible() {
        skipped(&format!("links between namespaces: {error}"));
        return None;
    }
    let daemon = DaemonCommand {
        program: PROGRAM.into(),
        arguments: vec!["network-daemon".into()],
        environment: vec![],
    };
    let nodes = nodes.iter().map(ToString::to_string).collect();
    Some(Network::start(&NetworkOptions { nodes, mtu: 1500, seed: 7, daemon }).expect("a shaped network"))
}

/// What starts a program in a member's namespace, and becomes it.
fn inside(network: &Network, member: &str) -> Vec<String> {
    let namespace = network.member(member).expect("a member").namespace.as_ref().expect("a node has one");
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    vec!["nsenter".into(), format!("--net={path}")]
}

/// The links between one and all others of `members`.
fn around(network: &Network, one: &str, members: &[&str], link: Link) {
    for other in members.iter().filter(|other| **other != one) {
        network.set_both(one, other, link).expect("the network is there");
    }
}

/// What the links between one and the servers did, both ways.
fn did(network: &Network, one: &str) -> Vec<LinkCounters> {
    let pairs = network.pairs().expect("the network is there");
    let is_server = |name: &str| SERVERS.contains(&name);
    let between = |from: &str, to: &str| (from == one && is_server(to)) || (to == one && is_server(from));
    pairs.into_iter().filter(|pair| between(&pair.from, &pair.to)).map(|pair| pair.counters).collect()
}

#[test]
fn links_between_namespaces_are_cut_flap_are_slow_and_lose_packets() {
    let _alone = alone();
    let place = Place::new();
    let Some(network) = network(&[&SERVERS[..], &["far", "near", "asker"]].concat()) else { return };
    let address = |name: &str| network.member(name).expect("a member").address.to_string();
    let seats = SERVERS.map(|name| Seat { host: address(name), before: inside(&network, name) });
    let Some(nats) = Nats::start_at(&place, seats.into()) else { return };
    place.write("small.toml", PLAN);
    let agent = |name: &str| {
        let before = inside(&network, name);
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        Nats::agent_by(&before, &nats.address, &place, name, &["--plain"])
    };
    let mut far = agent("far");
    let before = inside(&network, "asker");
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let asking = place.start_by(&before, &nats.ask(&["--plain", "--wait", "--scale", "slow"]));
    until(&mut far, "took the block");
    // One machine is out of reach for longer than the lease, and another is there.
    let near = agent("near");
    around(&network, "far", &SERVERS, Link::cut());
    std::thread::sleep(Duration::from_secs(7));
    network.heal().expect("the network is there");
    // A server that nobody reaches, not the other servers either: whoever was at it finds another.
    around(&network, "s0", &["s1", "s2", "far", "near", "asker"], Link::cut());
    std::thread::sleep(Duration::from_secs(5));
    network.heal().expect("the network is there");
    let sum = |of: &[LinkCounters], what: fn(&LinkCounters) -> u64| of.iter().map(what).sum::<u64>();
    let patience = Instant::now() + Duration::from_secs(60);
    // Until the machine sent something meanwhile: one that has done its share says little.
    for flaps in 0.. {
        let was_cut = sum(&did(&network, "near"), |link| link.cut) > 0;
        if flaps >= 5 && (was_cut || Instant::now() >= patience) {
            break;
        }
        around(&network, "near", &SERVERS, Link::cut());
        std::thread::sleep(Duration::from_millis(300));
        around(&network, "near", &SERVERS, Link::default());
        std::thread::sleep(Duration::from_millis(700));
    }
    let poor = |ms: u64, loss: f64| Link {
        delay: Duration::from_millis(ms),
        jitter: Duration::from_millis(ms / 2),
        loss: Ratio(loss),
        ..Link::default()
    };
    around(&network, "far", &SERVERS, poor(40, 0.03));
    around(&network, "near", &SERVERS, poor(20, 0.01));
    around(&network, "asker", &SERVERS, poor(60, 0.02));
    let ended = to_the_end(asking, &near);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}\n{}", ended.stderr, far.said());
    let before = all(&place);
    let machines: BTreeSet<&str> = before.iter().map(machine).collect();
    assert!(machines.contains("near"), "who was there worked on: {machines:?}");
    // What was to be bad was bad.
    let (of_far, of_near, of_asker) = (did(&network, "far"), did(&network, "near"), did(&network, "asker"));
    assert!(
        sum(&of_far, |link| link.cut) > 0 && sum(&of_near, |link| link.cut) > 0,
        "{of_far:?} {of_near:?}"
    );
    assert!(sum(&of_asker, |link| link.delayed) > 0, "{of_asker:?}");
    let lost =
        sum(&of_far, |link| link.lost) + sum(&of_near, |link| link.lost) + sum(&of_asker, |link| link.lost);
    assert!(lost > 0, "{of_far:?} {of_near:?} {of_asker:?}");
    // Nothing comes twice when all are well again, and nothing of a load is left.
    network.heal().expect("the network is there");
    let before_asked = inside(&network, "asker");
    let before_asked: Vec<&str> = before_asked.iter().map(String::as_str).collect();
    let again = place.start_by(&before_asked, &nats.ask(&["--plain", "--wait", "--scale", "slow"])).wait();
    assert!(!again.stderr.contains("asked the fleet"), "{}", again.stderr);
    let written = |kept: &[results::Kept]| kept.iter().map(|trial| trial.written).collect::<Vec<_>>();
    assert_eq!(written(&before), written(&all(&place)), "nothing was counted twice");
    let device = network.device().to_string();
    drop((far, near, nats, network));
    assert_eq!(place.processes("load-generator"), Vec::<u32>::new());
    let devices = std::fs::read_to_string("/proc/net/dev").expect("the kernel says");
    assert!(!devices.contains(&device), "{device} stays: {devices}");
}
