//! A server that was started from a recipe: the guard of its processes and of its files.

use super::certificate::{self, Certificate};
use super::{Account, Missing};
use crate::{Child, Exit, Group, Launch, LaunchError, LimitError, Limits, Scratch, Signal};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_disk::Mode;

/// How a client must show who it is. The default is a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authentication {
    /// By password: SCRAM-SHA-256 for PostgreSQL, the native method for MariaDB.
    #[default]
    Password,
    /// Not at all: everybody on this machine may do everything.
    Trust,
}

/// Whether connections over TCP are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// No.
    #[default]
    Plain,
    /// If the client wants, with a certificate made for this server; see [`Server::authority`].
    TlsOffered,
    /// Always.
    TlsRequired,
}

/// How to stop in good order, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Ends sessions, writes everything out, ends.
    Fast,
    /// Ends at once and recovers at the next start: PostgreSQL's own "immediate"; for others, a kill.
    Immediate,
}

/// What to start, where, and with which limits. The default is a server of nobody's taste but its maker's, in
/// a throw-away folder.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Where its files go, made if it is not there; what is there already is used as it is, and all of it
    /// stays. `None`: a throw-away folder. The server's user must be able to reach it.
    pub folder: Option<PathBuf>,
    /// The folder of another disk, which is to have its journal alone. `None`: the journal lies with the
    /// data.
    pub journal: Option<PathBuf>,
    /// Settings in the server's own words, as `("shared_buffers", "64MB")`; they win over the recipe's.
    pub settings: Vec<(String, String)>,
    /// Environment of the server.
    pub environment: Vec<(String, String)>,
    /// Memory and CPU. Without limits a group is still made where the machine allows one.
    pub limits: Limits,
    /// Runs in this group, whose limits then count, instead of one of its own.
    pub group: Option<Arc<Group>>,
    /// Runs in this network namespace; the address must be one of its.
    pub network: Option<Arc<File>>,
    /// Where it listens; `None`: 127.0.0.1.
    pub address: Option<IpAddr>,
    /// On which port; `None`: a free one.
    pub port: Option<u16>,
    /// How clients show who they are.
    pub authentication: Authentication,
    /// Whether connections over TCP are encrypted.
    pub transport: Transport,
    /// The password of the user to be made; `None`: a random one, or the one kept with the data.
    pub password: Option<String>,
    /// Makes the new data survive a power cut before the first start returns. This flushes the whole file
    /// system, so it is meant for a shaped disk.
    pub flush_new_data: bool,
    /// How long to wait until it is ready; `None`: a minute.
    pub patience: Option<Duration>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A program is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Its limits could not be set.
    #[error(transparent)]
    Limits(#[from] LimitError),
    /// A step of making it failed.
    #[error("{step}: {ending}")]
    Step {
        /// Which step.
        step: String,
        /// How it ended, with its last words.
        ending: String,
    },
    /// It ended instead of becoming ready.
    #[error("{server} ended before it was ready: {ending}")]
    Ended {
        /// Which server.
        server: String,
        /// How it ended, with its last words.
        ending: String,
    },
    /// It did not become ready in time.
    #[error("{server} was not ready after {waited:.1?}; its last words:\n  {last_words}")]
    NotReady {
        /// Which server.
        server: String,
        /// How long that was.
        waited: Duration,
        /// What it said.
        last_words: String,
    },
    /// A file or folder could not be made or read.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// What was asked for makes no sense for this server.
    #[error("{0}")]
    Senseless(String),
}

/// What differs between kinds of servers.
pub(crate) trait Engine: std::fmt::Debug + Send + Sync {
    /// "PostgreSQL 15.18".
    fn version(&self) -> &str;
    /// As whom to run when we are root.
    fn account(&self) -> &'static str;
    /// Whether the data folder has content. A program that makes its files itself needs none.
    fn is_created(&self, _: &Deployment) -> bool {
        true
    }
    /// Makes the data folder's content; only for a folder that has none.
    fn create(&self, _: &Deployment) -> Result<(), ServerError> {
        Ok(())
    }
    /// Sees to it that the journal is in `place.journal` and nowhere else, before every start: a copy that
    /// was made anew has it with the data.
    fn move_journal(&self, _: &Deployment, _: &Path) -> Result<(), ServerError> {
        Err(ServerError::Senseless(format!("the journal of {} cannot be kept apart", self.version())))
    }
    /// How to start it.
    fn command(&self, deployment: &Deployment) -> Command;
    /// Whether the process `pid` serves its clients.
    fn is_ready(&self, deployment: &Deployment, pid: u32) -> bool;
    /// Its Unix socket.
    fn socket(&self, deployment: &Deployment) -> PathBuf;
    /// What a client takes.
    fn url(&self, deployment: &Deployment) -> String;
    /// The signal for a stop.
    fn stop_signal(&self, stop: Stop) -> Signal {
        match stop {
            Stop::Fast => Signal::TERM,
            Stop::Immediate => Signal::KILL,
        }
    }
    /// A program that executes one statement as [`super::USER`] through the socket, and prints bare rows.
    fn client(&self, deployment: &Deployment, statement: &str) -> Result<Command, Missing>;
    /// Processes that serve one client each; none where a thread serves a client.
    fn backends(&self, _: &Deployment, _: u32) -> Vec<u32> {
        Vec::new()
    }
    /// Where threads serve clients: a question for the number of a client's connection, which the statement
    /// `KILL CONNECTION` then ends.
    fn connection_of_a_client(&self) -> Option<String> {
        None
    }
    /// A statement that makes it write data pages out to a disk of this mode, so that a cut finds them there
    /// and not durable.
    fn write_out(&self, _: Mode) -> Option<&'static str> {
        None
    }
}

/// Where a server lives: what its engine needs for making and starting it.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// The database's own files.
    pub data: PathBuf,
    /// Sockets and certificates: short-lived, and with a short path.
    pub runtime: PathBuf,
    /// Where the journal is, if not with the data.
    pub journal: Option<PathBuf>,
    pub address: SocketAddr,
    pub account: Option<Account>,
    pub settings: Vec<(String, String)>,
    pub authentication: Authentication,
    pub transport: Transport,
    pub password: String,
    pub certificate: Option<Certificate>,
}

impl Deployment {
    /// Runs a program to its end as the server's user, gives it `input`, and returns what it said on standard
    /// error.
    pub(crate) fn step(
        &self,
        step: &str,
        command: Command,
        input: Option<&str>,
    ) -> Result<String, ServerError> {
        const PATIENCE: Duration = Duration::from_secs(120);
        let program = PathBuf::from(command.get_program());
        let failed = |source| ServerError::File { path: program.clone(), source };
        let mut launch = Launch::new(command).called(step);
        if let Some(account) = &self.account {
            launch = launch.user(account.user, account.group);
        }
        if input.is_some() {
            launch = launch.pipes();
        }
        let mut child = launch.start()?;
        if let (Some(text), Some(mut pipe)) = (input, child.input()) {
            // If it ended already, its ending below says more than a broken pipe.
            let _ = pipe.write_all(text.as_bytes());
        }
        if let Some(mut output) = child.output() {
            // Read to the end, so that it never waits for us.
            io::copy(&mut output, &mut io::sink()).map_err(failed)?;
        }
        match child.wait(PATIENCE).map_err(failed)? {
            Some(exit) if exit.succeeded() => Ok(exit.last_words.join("\n")),
            Some(exit) => Err(ServerError::Step { step: step.into(), ending: exit.explained() }),
            None => {
                let ending = format!("did not end in {} s", PATIENCE.as_secs());
                Err(ServerError::Step { step: step.into(), ending })
            }
        }
    }

    /// Writes a file that only the server's user can read.
    pub(crate) fn write_private(&self, path: &Path, text: &str) -> Result<(), ServerError> {
        let failed = |source| ServerError::File { path: path.into(), source };
        let mut options = File::options();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        Account::own(self.account.as_ref(), path).map_err(failed)
    }

    /// Makes `name`, a folder below the data, a link to the journal's own disk, and moves there what is in
    /// it. What an earlier copy of the data left there goes.
    pub(crate) fn link_journal(&self, name: &str, journal: &Path) -> Result<(), ServerError> {
        let link = self.data.join(name);
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| ServerError::File { path, source }
        };
        if std::fs::read_link(&link).is_ok_and(|target| target == journal) {
            return Ok(());
        }
        if journal.exists() {
            std::fs::remove_dir_all(journal).map_err(failed(journal))?;
        }
        if link.is_dir() {
            let mut copy = Command::new("/bin/cp");
            // What it is, and not the link to it that a copy of another node's data has.
            copy.args(["-a", "-T", "-H"]).arg(&link).arg(journal);
            run_to_end("moving the journal", copy).map_err(failed(journal))?;
            let is_link = link.is_symlink();
            let removed = if is_link { std::fs::remove_file(&link) } else { std::fs::remove_dir_all(&link) };
            removed.map_err(failed(&link))?;
        } else {
            self.make_folder(journal, 0o700)?;
        }
        std::os::unix::fs::symlink(journal, &link).map_err(failed(&link))
    }

    pub(crate) fn make_folder(&self, path: &Path, mode: u32) -> Result<(), ServerError> {
        let failed = |source| ServerError::File { path: path.into(), source };
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
        Account::own(self.account.as_ref(), path).map_err(failed)
    }
}

/// A running server, or one that was stopped and can be started again. Dropping it kills it, and removes its
/// files unless their folder was given.
#[derive(Debug)]
pub struct Server {
    engine: Arc<dyn Engine>,
    deployment: Deployment,
    options: ServerOptions,
    // In this order they are dropped: the processes, then their group, then the files.
    child: Option<Child>,
    group: Option<Arc<Group>>,
    _scratch: Scratch,
}

impl Server {
    pub(crate) fn start_new(engine: Arc<dyn Engine>, options: &ServerOptions) -> Result<Server, ServerError> {
        let mut server = Server::prepare(engine, options)?;
        server.start()?;
        server.flush_new_data()?;
        Ok(server)
    }

    /// Makes its files without starting it.
    pub(crate) fn prepare(engine: Arc<dyn Engine>, options: &ServerOptions) -> Result<Server, ServerError> {
        let scratch =
            Scratch::create().map_err(|source| ServerError::File { path: std::env::temp_dir(), source })?;
        let folder = options.folder.clone().unwrap_or_else(|| scratch.path().join("files"));
        let address = options.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = match options.port {
            Some(port) => port,
            // In a namespace of its own every port is free.
            None if options.network.is_some() => 5000,
            None => free_port(address).map_err(|error| {
                ServerError::Senseless(format!(
                    "cannot listen on {address}: {error}; is it one of this machine's?"
                ))
            })?,
        };
        let mut deployment = Deployment {
            data: folder.join("data"),
            runtime: scratch.path().join("run"),
            journal: options.journal.clone(),
            address: SocketAddr::new(address, port),
            account: Account::for_server(engine.account()),
            settings: options.settings.clone(),
            authentication: options.authentication,
            transport: options.transport,
            password: String::new(),
            certificate: None,
        };
        deployment.make_folder(&folder, 0o711)?;
        deployment.make_folder(&deployment.data, 0o700)?;
        deployment.make_folder(&deployment.runtime, 0o755)?;
        deployment.password = kept_password(&folder.join("password"), options.password.as_deref())?;
        if deployment.transport != Transport::Plain {
            let folder = deployment.runtime.join("certificate");
            deployment.certificate =
                Some(certificate::make(&folder, &address.to_string(), deployment.account.as_ref())?);
        }
        if !engine.is_created(&deployment) {
            engine.create(&deployment)?;
        }
        let group = match &options.group {
            Some(group) => Some(group.clone()),
            None => own_group(engine.version(), &options.limits)?,
        };
        let options = options.clone();
        Ok(Server { engine, deployment, options, child: None, group, _scratch: scratch })
    }

    /// Makes what it has written so far survive a power cut, if its options ask for that.
    pub(crate) fn flush_new_data(&self) -> Result<(), ServerError> {
        let folders = std::iter::once(&self.deployment.data).chain(&self.deployment.journal);
        for path in folders.filter(|_| self.options.flush_new_data) {
            flush_all(path).map_err(|source| ServerError::File { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Starts it, if it does not run, and waits until it is ready.
    ///
    /// # Errors
    /// It ended, or was not ready within the patience of its options; then it does not run.
    pub fn start(&mut self) -> Result<(), ServerError> {
        if self.is_running() {
            return Ok(());
        }
        self.launch()?;
        self.wait_ready(self.options.patience.unwrap_or(Duration::from_secs(60)))
    }

    /// Starts it without waiting, if it does not run.
    pub fn launch(&mut self) -> Result<(), ServerError> {
        if self.is_running() {
            return Ok(());
        }
        // Dropping a child kills its control group, which the new one is about to join.
        drop(self.child.take());
        // A killed server leaves its socket, and not every kind removes it at the next start.
        let _ = std::fs::remove_file(self.socket());
        if let Some(journal) = &self.deployment.journal {
            self.engine.move_journal(&self.deployment, journal)?;
        }
        let mut command = self.engine.command(&self.deployment);
        command.envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        let mut launch = Launch::new(command).called(self.engine.version());
        if let Some(account) = &self.deployment.account {
            launch = launch.user(account.user, account.group).private_memory();
        }
        if let Some(group) = &self.group {
            launch = launch.group(group);
        }
        if let Some(network) = &self.options.network {
            launch = launch.network(network);
        }
        self.child = Some(launch.start()?);
        Ok(())
    }

    /// Runs its program once with more arguments, to its end, and returns what it said on standard error.
    pub(crate) fn run_once(&self, arguments: &[&str]) -> Result<Vec<String>, ServerError> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let mut command = self.engine.command(&self.deployment);
        command.args(arguments);
        let step = format!("{} {}", self.engine.version(), arguments.join(" "));
        let mut launch = Launch::new(command).called(&step).keep_lines(400);
        if let Some(account) = &self.deployment.account {
            launch = launch.user(account.user, account.group);
        }
        if let Some(network) = &self.options.network {
            launch = launch.network(network);
        }
        let path = self.deployment.data.clone();
        match launch.start()?.wait(PATIENCE).map_err(|source| ServerError::File { path, source })? {
            Some(exit) if exit.succeeded() => Ok(exit.last_words),
            Some(exit) => Err(ServerError::Step { step, ending: exit.explained() }),
            None => {
                Err(ServerError::Step { step, ending: format!("did not end in {} s", PATIENCE.as_secs()) })
            }
        }
    }

    /// Waits until it serves clients.
    ///
    /// # Errors
    /// It ended meanwhile, or `patience` did; then it is killed.
    pub fn wait_ready(&mut self, patience: Duration) -> Result<(), ServerError> {
        let server = self.engine.version().to_string();
        let began = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            let Some(child) = &mut self.child else {
                return Err(ServerError::Ended { server, ending: "it was stopped".into() });
            };
            let file = |source| ServerError::File { path: server.clone().into(), source };
            if let Some(exit) = child.try_wait().map_err(file)? {
                self.child = None;
                return Err(ServerError::Ended { server, ending: exit.explained() });
            }
            if self.engine.is_ready(&self.deployment, child.id()) {
                return Ok(());
            }
            if began.elapsed() > patience {
                let last_words = child.last_words().join("\n  ");
                self.child = None;
                return Err(ServerError::NotReady { server, waited: began.elapsed(), last_words });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Stops it; `None` if it did not run.
    pub fn stop(&mut self, stop: Stop) -> io::Result<Option<Exit>> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let signal = self.engine.stop_signal(stop);
        let Some(child) = &mut self.child else { return Ok(None) };
        let tree = descendants(child.id());
        let exit = child.stop(signal, PATIENCE)?;
        kill_each(&tree);
        self.child = None;
        Ok(Some(exit))
    }

    /// Kills every process of it at once, as `kill -9` does; `None` if it did not run.
    pub fn kill(&mut self) -> io::Result<Option<Exit>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        // A PostgreSQL backend leads a session of its own, so without a group it must be found by its parent.
        let tree = descendants(child.id());
        let exit = child.kill()?;
        kill_each(&tree);
        self.child = None;
        Ok(Some(exit))
    }

    /// Stops it in good order if it runs, starts it, and waits until it is ready. After a kill it recovers.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        let path = self.deployment.data.clone();
        self.stop(Stop::Fast).map_err(|source| ServerError::File { path, source })?;
        self.start()
    }

    /// Kills one process that serves a client, as `kill -9` does, or ends one client's connection where
    /// threads serve clients; `None` if nobody is served, or if this kind of server can do neither. Returns
    /// the number of the process or connection.
    pub fn kill_one_backend(&mut self) -> Option<u32> {
        if let Some(question) = self.engine.connection_of_a_client() {
            let connection: u32 = self.query(&question).ok()?.lines().next()?.trim().parse().ok()?;
            return self.query(&format!("KILL CONNECTION {connection}")).ok().map(|_| connection);
        }
        let pid = self.child.as_ref()?.id();
        let victim = self.engine.backends(&self.deployment, pid).into_iter().next()?;
        let process = rustix::process::Pid::from_raw(victim as i32)?;
        rustix::process::kill_process(process, Signal::KILL).ok().map(|()| victim)
    }

    /// Executes a statement with the server's own client, as [`super::USER`] through its socket, and returns
    /// the bare rows. For set-up and for questions, not for load.
    pub fn query(&self, statement: &str) -> Result<String, ServerError> {
        let mut command = self.engine.client(&self.deployment, statement)?;
        let path = PathBuf::from(command.get_program());
        let output = command.stdin(std::process::Stdio::null()).output();
        let output = output.map_err(|source| ServerError::File { path, source })?;
        if !output.status.success() {
            let ending = String::from_utf8_lossy(&output.stderr).trim().to_string();
            return Err(ServerError::Step { step: statement.into(), ending });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    /// Asks it to write its data pages out, without waiting for that; the client that asks, which is the
    /// caller's to end. `None` where it has no such statement.
    pub(crate) fn begin_to_write_out(&self, disk: Mode) -> Option<std::process::Child> {
        use std::process::Stdio;
        let mut client = self.engine.client(&self.deployment, self.engine.write_out(disk)?).ok()?;
        client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    }

    /// Whether its main process lives.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Changes a setting for the next start, in the server's own words.
    pub fn set(&mut self, name: &str, value: &str) {
        self.deployment.settings.retain(|(known, _)| known != name);
        self.deployment.settings.push((name.into(), value.into()));
    }

    /// What it is: "PostgreSQL 15.18".
    pub fn version(&self) -> &str {
        self.engine.version()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.deployment.address
    }

    /// Its Unix socket. PostgreSQL's clients take the folder it is in.
    pub fn socket(&self) -> PathBuf {
        self.engine.socket(&self.deployment)
    }

    /// What a client takes: scheme, user with password, address, database, and for PostgreSQL the mode of
    /// TLS.
    pub fn url(&self) -> String {
        self.engine.url(&self.deployment)
    }

    /// The password of [`super::USER`]; without meaning under [`Authentication::Trust`].
    pub fn password(&self) -> &str {
        &self.deployment.password
    }

    /// The certificate, in PEM, that a client of TLS must trust.
    pub fn authority(&self) -> Option<&Path> {
        self.deployment.certificate.as_ref().map(|certificate| certificate.authority.as_path())
    }

    /// The user of this machine as whom it runs, if that is another than ours.
    pub fn account(&self) -> Option<&Account> {
        self.deployment.account.as_ref()
    }

    /// Every process of it, its main one first.
    pub fn processes(&self) -> Vec<u32> {
        let Some(child) = &self.child else { return Vec::new() };
        std::iter::once(child.id()).chain(descendants(child.id())).collect()
    }

    /// Sends a signal to its main process.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| child.signal(signal))
    }

    /// Its main process; 0 if it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Its own files.
    pub fn data(&self) -> &Path {
        &self.deployment.data
    }

    /// The group it runs in, where this machine has control groups.
    pub fn group(&self) -> Option<&Arc<Group>> {
        self.group.as_ref()
    }

    /// What it said last on standard error.
    pub fn last_words(&self) -> Vec<String> {
        self.child.as_ref().map(Child::last_words).unwrap_or_default()
    }
}

fn run_to_end(step: &str, mut command: Command) -> io::Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("{step}: {}", said.trim()))) }
}

/// A group with these limits. That the machine has none is a failure only if there are limits to hold.
fn own_group(label: &str, limits: &Limits) -> Result<Option<Arc<Group>>, LimitError> {
    match Group::create(label, limits) {
        Ok(group) => Ok(Some(Arc::new(group))),
        Err(_) if *limits == Limits::NONE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Flushes the file system that a folder is on. The kernel passes that on to no FUSE file system, so there
/// each file below the folder is flushed, and the names of its own folders.
fn flush_all(folder: &Path) -> io::Result<()> {
    const FUSE: i64 = 0x6573_5546;
    let file = File::open(folder)?;
    rustix::fs::syncfs(&file)?;
    if rustix::fs::fstatfs(&file)?.f_type as i64 != FUSE {
        return Ok(());
    }
    flush_below(folder)?;
    for parent in folder.ancestors().skip(1).take(2) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn flush_below(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            flush_below(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()
}

/// A port of `address` on which nobody listens now, by chance from below those that the kernel gives to
/// outgoing connections: making a server's files takes a second, and a client of somebody else must not take
/// the port meanwhile. Where the kernel gives out nearly all of them, one of those.
///
/// # Errors
/// The address is none of this machine's.
pub fn free_port(address: IpAddr) -> io::Result<u16> {
    const LEAST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let given_out = range.split_whitespace().next().and_then(|first| first.parse::<u16>().ok());
    let end = given_out.unwrap_or(0).max(LEAST);
    let mut random = [0; 2 * 50];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let below = random.as_chunks().0.iter().filter(|_| end > LEAST + 1_000);
    let mut below = below.map(|bytes| LEAST + u16::from_ne_bytes(*bytes) % (end - LEAST));
    let listener = below.find_map(|port| TcpListener::bind((address, port)).ok());
    let listener = listener.map_or_else(|| TcpListener::bind((address, 0)), Ok)?;
    Ok(listener.local_addr()?.port())
}

/// The password of the data in a folder: the one written there, or a new one, written there.
fn kept_password(path: &Path, given: Option<&str>) -> Result<String, ServerError> {
    let failed = |source| ServerError::File { path: path.into(), source };
    match std::fs::read_to_string(path) {
        Ok(text) => return Ok(text.trim().to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let password = match given {
        // It becomes part of statements and of addresses.
        Some(given) if given.is_empty() || !given.chars().all(|letter| letter.is_ascii_alphanumeric()) => {
            let words = "a password for a laboratory's server is made of letters and digits only";
            return Err(ServerError::Senseless(words.into()));
        }
        Some(given) => given.to_string(),
        None => random_password().map_err(failed)?,
    };
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(password.as_bytes()).map_err(failed)?;
    Ok(password)
}

pub(crate) fn random_password() -> io::Result<String> {
    let mut random = [0; 12];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All processes below one, itself not.
pub fn descendants(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|word| word.parse().ok());
    children.flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

/// Kills what is left of a tree whose root is dead. They were ours a moment ago, and a server's processes end
/// by themselves soon after their root, so a number cannot have come to a stranger yet.
fn kill_each(tree: &[u32]) {
    for process in tree.iter().filter_map(|&pid| rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::kill_process(process, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_not_one_that_outgoing_connections_get() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("Linux");
        let first: u16 =
            range.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a number");
        let ports: Vec<u16> = (0..100).map(|_| free_port(here).expect("ours")).collect();
        assert!(first < 11_000 || ports.iter().all(|port| (10_000..first).contains(port)), "{ports:?}");
        assert!(ports.iter().any(|port| *port != ports[0]), "by chance: {ports:?}");
        TcpListener::bind((here, ports[99])).expect("free");
        // A documentation address (RFC 5737) is no machine's.
        free_port(IpAddr::from([192, 0, 2, 1])).expect_err("not ours");
    }
}
