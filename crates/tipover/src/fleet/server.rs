//! A nats-server of our own, for trying and for tests.

use super::keys::Keys;
use anyhow::{Context, Result, bail};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tipover_lab::recipe::free_port;
use tipover_lab::{Child, Launch};

/// It answers within milliseconds where nothing is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server; it ends with us.
pub struct Server {
    /// Where it listens.
    pub address: String,
    /// The keys that it knows.
    pub keys: Keys,
    _child: Child,
}

/// The program: what is given, what `make` built, or what PATH has.
///
/// # Errors
/// There is none; how to get it.
pub fn find(given: Option<&Path>) -> Result<PathBuf> {
    let found = given.map(Path::to_path_buf).or_else(|| tipover_lab::find_built("nats-server"));
    found.context(
        "nats-server is not installed: `go install github.com/nats-io/nats-server/v2@latest` makes it (Debian's is \
         too old), or give --nats-server",
    )
}

impl Server {
    /// Starts one at a port of this machine, with keys in `folder`, made if they are not there.
    ///
    /// # Errors
    /// It does not start, or does not listen in time; what it said.
    pub fn start(program: &Path, folder: &Path, port: Option<u16>) -> Result<Server> {
        let kept = Keys::in_folder(folder);
        let keys = match kept.server.exists() {
            true => kept,
            false => {
                let free = || free_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).context("looking for a free port");
                let port = port.map_or_else(free, Ok)?;
                Keys::make(folder, &format!("127.0.0.1:{port}"))?
            }
        };
        let text = std::fs::read_to_string(&keys.server)
            .with_context(|| format!("reading {}", keys.server.display()))?;
        let listen = text.lines().find_map(|line| line.strip_prefix("listen: "));
        let listen = listen.map(|listen| listen.trim_matches('"').to_string());
        let listen =
            listen.with_context(|| format!("{} does not say where to listen", keys.server.display()))?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&keys.server);
        let mut child = Launch::new(command).called("nats-server").start()?;
        let began = Instant::now();
        while std::net::TcpStream::connect(&listen).is_err() {
            if began.elapsed() > PATIENCE || child.try_wait()?.is_some() {
                bail!("nats-server does not listen at {listen}: {}", child.last_words().join("; "));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Server { address: format!("nats://{listen}"), keys, _child: child })
    }
}
