//! The laboratory's side: a [`Network`] is a running daemon, and dropping it takes all it made away.

use super::daemon::{Request, Response, address};
use super::link::{Link, Pair, Senseless};
use super::switch::Timing;
use crate::{Child, Launch, LaunchError};
use parking_lot::Mutex;
use rustix::thread::LinkNameSpaceType;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::peer;
use tipover_disk::DaemonCommand;

/// The member that is this machine itself: whoever measures, and whoever connects from outside.
pub const LABORATORY: &str = "laboratory";
/// How long an answer of the daemon may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What network to make.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// The nodes' names.
    pub nodes: Vec<String>,
    /// The largest packet in bytes; 1500 is what most networks have.
    pub mtu: u32,
    /// From which chance is drawn.
    pub seed: u64,
    /// How to start the daemon: a program that calls [`super::serve`] when given these arguments.
    pub daemon: DaemonCommand,
}

/// Why there is no network, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Namespaces and devices are root's.
    #[error("a shaped network needs root for its namespaces; without root a proxy can delay TCP connections")]
    NotRoot,
    /// The kernel offers no TUN devices.
    #[error(
        "/dev/net/tun cannot be opened ({0}); load the module with `modprobe tun`, or start the container with `--device /dev/net/tun`"
    )]
    NoTun(io::Error),
    /// The daemon could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The daemon does not answer.
    #[error("the network's daemon is gone: {0}")]
    Gone(String),
    /// A step failed.
    #[error("{step}: {reason}")]
    Step {
        /// Which step.
        step: String,
        /// What the kernel said.
        reason: String,
    },
    /// A rule that no network can have.
    #[error(transparent)]
    Link(#[from] Senseless),
    /// No such name.
    #[error("{given:?} is no member of this network; it has {known}")]
    NoSuchMember {
        /// What was given.
        given: String,
        /// The names there are.
        known: String,
    },
}

/// A node's place in the network.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its address, reachable from the laboratory and from every other member.
    pub address: Ipv4Addr,
    /// Its namespace; `None` for the laboratory, which is in this machine's.
    pub namespace: Option<Arc<File>>,
}

/// A running network.
#[derive(Debug)]
pub struct Network {
    control: Mutex<BufReader<UnixStream>>,
    daemon: Child,
    members: Vec<Member>,
    device: String,
}

impl Network {
    /// Makes one. All links let everything through at once.
    pub fn start(options: &NetworkOptions) -> Result<Network, NetworkError> {
        check(options)?;
        let failed = |step: &str| {
            let step = step.to_string();
            move |error: io::Error| NetworkError::Step { step: step.clone(), reason: error.to_string() }
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed("making a socket"))?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(failed("making a socket"))?;
        let mut command = Command::new(&options.daemon.program);
        command.args(&options.daemon.arguments).envs(options.daemon.environment.iter().cloned());
        let daemon =
            Launch::new(command).called("the network's daemon").input_from(OwnedFd::from(theirs)).start()?;
        let mut network = Network {
            control: Mutex::new(BufReader::new(ours)),
            daemon,
            members: vec![],
            device: String::new(),
        };
        let (nodes, mtu, seed) = (options.nodes.clone(), options.mtu, options.seed);
        let Response::Built { network: prefix, device, namespaces } =
            network.ask(&Request::Build { nodes, mtu, seed })?
        else {
            return Err(NetworkError::Gone("its answer was another question's".into()));
        };
        network.device = device;
        let own = Member { name: LABORATORY.into(), address: address(prefix, 0), namespace: None };
        network.members.push(own);
        for (i, (name, descriptor)) in options.nodes.iter().zip(namespaces).enumerate() {
            let path = format!("/proc/{}/fd/{descriptor}", network.daemon.id());
            let namespace = File::open(path).map_err(failed("opening a namespace"))?;
            let (name, address) = (name.clone(), address(prefix, i + 1));
            network.members.push(Member { name, address, namespace: Some(Arc::new(namespace)) });
        }
        Ok(network)
    }

    /// All members, the laboratory first.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A member by name.
    pub fn member(&self, name: &str) -> Result<&Member, NetworkError> {
        Ok(&self.members[self.index(name)?])
    }

    fn index(&self, name: &str) -> Result<usize, NetworkError> {
        self.members.iter().position(|member| member.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
            NetworkError::NoSuchMember { given: name.into(), known: known.join(", ") }
        })
    }

    /// Changes what happens to packets from one member to another, from now on.
    pub fn set(&self, from: &str, to: &str, link: Link) -> Result<(), NetworkError> {
        link.check()?;
        let (from, to) = (self.index(from)?, self.index(to)?);
        if from == to {
            return Err(Senseless("a member reaches itself without the network".into()).into());
        }
        self.ask(&Request::Set { from, to, link }).map(drop)
    }

    /// The same in both directions.
    pub fn set_both(&self, one: &str, other: &str, link: Link) -> Result<(), NetworkError> {
        self.set(one, other, link)?;
        self.set(other, one, link)
    }

    /// All links let everything through again.
    pub fn heal(&self) -> Result<(), NetworkError> {
        self.ask(&Request::Heal).map(drop)
    }

    /// Every direction with its rule and its counters.
    pub fn pairs(&self) -> Result<Vec<Pair>, NetworkError> {
        Ok(self.look()?.0)
    }

    /// One direction.
    pub fn pair(&self, from: &str, to: &str) -> Result<Pair, NetworkError> {
        self.index(from)?;
        self.index(to)?;
        let pairs = self.pairs()?;
        let found = pairs.into_iter().find(|pair| pair.from == from && pair.to == to);
        found.ok_or_else(|| Senseless("a member reaches itself without the network".into()).into())
    }

    /// How late packets that were held back were handed over.
    pub fn timing(&self) -> Result<Timing, NetworkError> {
        Ok(self.look()?.1)
    }

    fn look(&self) -> Result<(Vec<Pair>, Timing), NetworkError> {
        match self.ask(&Request::Look)? {
            Response::Pairs { pairs, timing } => Ok((pairs, timing)),
            _ => Err(NetworkError::Gone("its answer was another question's".into())),
        }
    }

    /// The daemon's process.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.id()
    }

    /// The laboratory's device, as `ip link` shows it.
    pub fn device(&self) -> &str {
        &self.device
    }

    fn ask(&self, request: &Request) -> Result<Response, NetworkError> {
        let gone = |error: &dyn std::fmt::Display| {
            let said = self.daemon.last_words();
            let words = if said.is_empty() { String::new() } else { format!("; {}", said.join("; ")) };
            NetworkError::Gone(format!("{error}{words}"))
        };
        let heard = {
            let mut control = self.control.lock();
            peer::say(control.get_mut(), request).and_then(|()| peer::hear(&mut *control))
        };
        match heard.map_err(|error| gone(&error))? {
            None => Err(gone(&"it hung up")),
            Some(Response::Failed { step, reason }) => Err(NetworkError::Step { step, reason }),
            Some(response) => Ok(response),
        }
    }
}

/// Moves the calling thread, and what it starts from now on, into the namespace behind this path, as
/// `/proc/PID/fd/N` of whoever holds it open. Only root may.
pub fn enter(namespace: &Path) -> io::Result<()> {
    let namespace = File::open(namespace)?;
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn check(options: &NetworkOptions) -> Result<(), NetworkError> {
    let refuse = |words: String| Err(Senseless(words).into());
    if options.nodes.is_empty() || options.nodes.len() > 250 {
        return refuse(format!("a network has 1 to 250 nodes, not {}", options.nodes.len()));
    }
    for (i, name) in options.nodes.iter().enumerate() {
        if name == LABORATORY || options.nodes[..i].contains(name) {
            return refuse(format!("two members cannot both be called {name:?}"));
        }
    }
    if !(576..=65_000).contains(&options.mtu) {
        return refuse(format!("a packet's size is 576 to 65000 bytes, not {}", options.mtu));
    }
    possible()
}

/// Whether this machine and this user can have a shaped network.
///
/// # Errors
/// What is missing.
pub fn possible() -> Result<(), NetworkError> {
    if !rustix::process::geteuid().is_root() {
        return Err(NetworkError::NotRoot);
    }
    match File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Ok(()),
        Err(error) => Err(NetworkError::NoTun(error)),
    }
}
