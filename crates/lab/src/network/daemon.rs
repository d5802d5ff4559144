//! The daemon's life: build what the first request says, obey further ones, and end when its client is gone.

use super::device::{self, Tun};
use super::link::{Link, Pair};
use super::switch::{Switch, Timing};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use tipover_core::peer;

/// The laboratory itself is the first member; nodes follow.
pub(super) const FIRST: u8 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// First and once: the nodes' names in order.
    Build { nodes: Vec<String>, mtu: u32, seed: u64 },
    /// One direction; members count from the laboratory, which is 0.
    Set { from: usize, to: usize, link: Link },
    /// All links as they are by default.
    Heal,
    /// Rules and counters of every pair.
    Look,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Response {
    Done,
    /// The network's first three bytes, and the daemon's descriptors of the nodes' namespaces in order.
    Built {
        network: [u8; 3],
        device: String,
        namespaces: Vec<i32>,
    },
    Pairs {
        pairs: Vec<Pair>,
        timing: Timing,
    },
    Failed {
        step: String,
        reason: String,
    },
}

/// Reads a line as what the laboratory says; prints it again.
///
/// # Errors
/// It is no request.
pub fn request(line: &str) -> serde_json::Result<String> {
    peer::again::<Request>(line)
}

/// Reads a line as what the daemon answers; prints it again.
///
/// # Errors
/// It is no response.
pub fn response(line: &str) -> serde_json::Result<String> {
    peer::again::<Response>(line)
}

/// Runs the network's daemon; for the hidden verb that [`super::NetworkOptions::daemon`] names. It speaks
/// over its standard input, which must be a Unix socket. All it made goes with it.
pub fn serve() -> ExitCode {
    match tipover_disk::control_socket().and_then(obey) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tipover network daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Built {
    names: Vec<String>,
    switch: Arc<Switch>,
    /// Kept open: a namespace lives as long as somebody refers to it.
    _namespaces: Vec<File>,
}

fn obey(control: UnixStream) -> io::Result<()> {
    // The client guards us by a death signal and by this socket; whichever is first.
    let mut answers = control.try_clone()?;
    let mut built: Option<Built> = None;
    let mut requests = BufReader::new(control);
    while let Some(request) = peer::hear_or_gone(&mut requests)? {
        let response = match (request, &built) {
            (Request::Build { nodes, mtu, seed }, None) => match build(nodes, mtu, seed) {
                Ok((made, response)) => {
                    built = Some(made);
                    response
                }
                Err((step, error)) => Response::Failed { step, reason: error.to_string() },
            },
            (Request::Set { from, to, link }, Some(built)) => {
                if from.max(to) < built.names.len() {
                    built.switch.set(from, to, link);
                    Response::Done
                } else {
                    Response::Failed { step: "setting a link".into(), reason: "no such member".into() }
                }
            }
            (Request::Heal, Some(built)) => {
                each_pair(built.names.len(), |from, to| built.switch.set(from, to, Link::default()));
                Response::Done
            }
            (Request::Look, Some(built)) => {
                let mut pairs = Vec::new();
                each_pair(built.names.len(), |from, to| {
                    let (link, counters) = built.switch.look(from, to);
                    let (from, to) = (built.names[from].clone(), built.names[to].clone());
                    pairs.push(Pair { from, to, link, counters });
                });
                Response::Pairs { pairs, timing: built.switch.timing() }
            }
            (_, _) => Response::Failed { step: "obeying".into(), reason: "not now".into() },
        };
        // A client that does not listen any more is gone.
        if peer::say(&mut answers, &response).is_err() {
            break;
        }
    }
    Ok(())
}

fn each_pair(members: usize, mut visit: impl FnMut(usize, usize)) {
    for from in 0..members {
        for to in (0..members).filter(|to| *to != from) {
            visit(from, to);
        }
    }
}

fn build(nodes: Vec<String>, mtu: u32, seed: u64) -> Result<(Built, Response), (String, io::Error)> {
    let (network, name, own) = own_device(mtu)?;
    let mut tuns = vec![own];
    let mut namespaces = Vec::new();
    for (i, node) in nodes.iter().enumerate() {
        let address = address(network, i + 1);
        let made = device::namespace(address, mtu);
        let (namespace, tun) = made.map_err(|error| (format!("making the network of {node}"), error))?;
        namespaces.push(namespace);
        tuns.push(tun);
    }
    let switch =
        Switch::start(tuns, FIRST, seed).map_err(|error| ("starting the switch".to_string(), error))?;
    let descriptors = namespaces.iter().map(AsRawFd::as_raw_fd).collect();
    let mut names = vec![super::LABORATORY.to_string()];
    names.extend(nodes);
    let response = Response::Built { network, device: name, namespaces: descriptors };
    Ok((Built { names, switch, _namespaces: namespaces }, response))
}

pub(super) fn address(network: [u8; 3], member: usize) -> Ipv4Addr {
    // At most 250 members are let in by the client.
    Ipv4Addr::new(network[0], network[1], network[2], FIRST + member as u8)
}

/// The laboratory's own device: the first `10.78.n.0/24` that nobody on this machine uses. The kernel gives a
/// device's name to one process only, so two laboratories never share a network.
fn own_device(mtu: u32) -> Result<([u8; 3], String, Tun), (String, io::Error)> {
    let step = || "making the laboratory's network device".to_string();
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    // Not always from the first: what was just closed may still be remembered by connections.
    let begin = std::process::id() % 250;
    for n in 0..250 {
        let third = ((begin + n) % 250) as u8;
        let network = [10, 78, third];
        if is_routed(&routes, network) {
            continue;
        }
        let name = format!("tipover{third}");
        match device::tun(&name, address(network, 0), mtu) {
            Ok(tun) => return Ok((network, name, tun)),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err((step(), error)),
        }
    }
    Err((step(), io::Error::other("all networks from 10.78.0.0 to 10.78.249.0 are in use on this machine")))
}

/// Whether `/proc/net/route` has a route, other than the default one, that covers the network.
fn is_routed(routes: &str, network: [u8; 3]) -> bool {
    let wanted = u32::from_be_bytes([network[0], network[1], network[2], 0]);
    routes.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Addresses are written in the machine's own order of bytes.
        let number = |field: usize| {
            let text = fields.get(field).copied().unwrap_or_default();
            u32::from_str_radix(text, 16).ok().map(|raw| u32::from_be_bytes(raw.to_ne_bytes()))
        };
        match (number(1), number(7)) {
            (Some(destination), Some(mask)) if mask != 0 => {
                destination & mask == wanted & mask || destination & 0xFFFF_FF00 == wanted
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn networks_in_use_are_seen_and_the_default_route_is_not_one() {
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    tipover7\t00074E0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(is_routed(text, [10, 78, 7]));
        assert!(!is_routed(text, [10, 78, 8]));
        let wide = "h\nvpn\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        assert!(is_routed(wide, [10, 78, 8]));
    }
}
