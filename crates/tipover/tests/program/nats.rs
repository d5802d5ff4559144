//! A nats-server, or three, for the tests of fleets.

use super::{Place, Running, skipped};
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What `make` built from Go's registry, or what is installed.
fn nats_server() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../third_party");
    let built = std::fs::read_dir(built).into_iter().flatten().flatten();
    let built = built.filter(|entry| entry.file_name().to_string_lossy().starts_with("nats-server-"));
    let program = built.map(|entry| entry.path().join("nats-server")).find(|program| program.is_file());
    if program.is_none() {
        skipped("nats-server is not installed: `make setup ARGS=--tests` builds it where Go is");
    }
    program
}

/// Servers that can be killed and started again on the same data: one, or a cluster of three.
pub struct Nats {
    program: PathBuf,
    pub servers: Vec<Server>,
    /// All of them, with commas between.
    pub address: String,
}

pub struct Server {
    pub listen: String,
    configuration: PathBuf,
    /// What starts it somewhere else.
    before: Vec<String>,
    child: Option<Child>,
}

/// Where a server runs: an address, and a program that starts others there; none: here.
pub struct Seat {
    pub host: String,
    pub before: Vec<String>,
}

/// A port that nobody listens on; in namespaces of our own nobody else is there.
fn free_port(host: &str) -> u16 {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let address = host.parse().unwrap_or(here);
    tipover_lab::recipe::free_port(address).or_else(|_| tipover_lab::recipe::free_port(here)).expect("a port")
}

impl Nats {
    /// `count` servers, with keys in the folder `keys` of `place`; `None` where there is no such program.
    pub fn start(place: &Place, servers: usize) -> Option<Nats> {
        Nats::start_at(
            place,
            (0..servers).map(|_| Seat { host: "127.0.0.1".into(), before: vec![] }).collect(),
        )
    }

    /// The same, a server on each of these seats.
    pub fn start_at(place: &Place, seats: Vec<Seat>) -> Option<Nats> {
        let servers = seats.len();
        let program = nats_server()?;
        place.run(&["fleet", "keys", "keys", "--listen", "LISTEN"]).with_code(&[0]);
        let text = std::fs::read_to_string(place.here().join("keys/nats-server.conf")).expect("it was made");
        let ports = || -> Vec<String> {
            seats.iter().map(|seat| format!("{}:{}", seat.host, free_port(&seat.host))).collect()
        };
        let (listens, routes) = (ports(), ports());
        let mut all = Vec::new();
        for ((n, listen), seat) in listens.iter().enumerate().zip(seats) {
            let mut own =
                text.replace("LISTEN", listen).replace("/jetstream\"", &format!("/jetstream-{n}\""));
            if servers > 1 {
                let to: Vec<String> = routes.iter().map(|route| format!("nats://{route}")).collect();
                own += &format!(
                    "server_name: s{n}\ncluster {{ name: fleet, listen: \"{}\", routes: [{}] }}\n",
                    routes[n],
                    to.join(", ")
                );
            }
            let name = format!("keys/nats-{n}.conf");
            place.write(&name, &own);
            let configuration = place.here().join(name);
            all.push(Server { listen: listen.clone(), configuration, before: seat.before, child: None });
        }
        let address = listens.iter().map(|listen| format!("nats://{listen}")).collect::<Vec<_>>().join(",");
        let mut nats = Nats { program, servers: all, address };
        (0..servers).for_each(|n| nats.up(n));
        // A cluster elects a leader before it answers.
        let began = Instant::now();
        let status = ["fleet", "status", &nats.address, "--key", "keys/ask.nk", "--plain"];
        while place.run(&status).code != Some(0) {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", place.run(&status).stderr);
        }
        Some(nats)
    }

    /// Another server, which knows nobody and keeps nothing.
    pub fn without_jetstream(&self, place: &Place) -> Nats {
        let listen = format!("127.0.0.1:{}", free_port("127.0.0.1"));
        place.write("keys/plain.conf", &format!("listen: \"{listen}\"\n"));
        let configuration = place.here().join("keys/plain.conf");
        let address = format!("nats://{listen}");
        let server = Server { listen, configuration, before: vec![], child: None };
        let mut plain = Nats { program: self.program.clone(), servers: vec![server], address };
        plain.up(0);
        plain
    }

    pub fn up(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let mut line = server.before.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let mut command = Command::new(line.next().expect("there is a program"));
        command.args(line).arg("-c").arg(&server.configuration).stdout(Stdio::null()).stderr(Stdio::null());
        server.child = Some(command.spawn().expect("nats-server starts"));
        let began = Instant::now();
        while std::net::TcpStream::connect(&server.listen).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill(&mut self, n: usize) {
        if let Some(mut child) = self.servers[n].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// An agent of this name, once it has joined.
    pub fn agent<'a>(&self, place: &'a Place, name: &str, more: &[&str]) -> Running<'a> {
        Nats::agent_at(&self.address, place, name, more)
    }

    /// The same, by another way to the servers.
    pub fn agent_at<'a>(address: &str, place: &'a Place, name: &str, more: &[&str]) -> Running<'a> {
        Nats::agent_by(&[], address, place, name, more)
    }

    /// The same, started by another program.
    pub fn agent_by<'a>(
        before: &[&str],
        address: &str,
        place: &'a Place,
        name: &str,
        more: &[&str],
    ) -> Running<'a> {
        let begin = ["agent", address, "--key", "keys/agent.nk", "--name", name, "--work", name];
        let mut agent = place.start_by(before, &[&begin[..], more].concat());
        let joined = format!("{name}: joined the fleet");
        let began = Instant::now();
        while !agent.said().contains(&joined) {
            assert!(!agent.has_ended() && began.elapsed() < Duration::from_secs(60), "{}", agent.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        agent
    }

    /// The command that asks for the plan.
    pub fn ask<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let begin = ["run", "small.toml", "--fleet", &self.address, "--key", "keys/ask.nk", "--lease", "4 s"];
        [&begin[..], more].concat()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|n| self.kill(n));
    }
}
