//! `tipover lab`: clusters on this machine that stay until told otherwise.
//!
//! `up` starts a keeper, a process of its own that holds the cluster and listens on a socket; the other verbs
//! talk to it. Everything of the laboratory dies with its keeper.

use super::{BadInput, Ending, pair};
use crate::in_words;
use crate::interrupt::Interrupt;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tipover_core::device;
use tipover_core::experiment::recipe::{RECIPES, Recipe};
use tipover_core::experiment::{DiskMode, DiskSpec};
use tipover_core::units::Bytes;
use tipover_disk::DaemonCommand;
use tipover_lab::network::LinkCounters;
use tipover_lab::{Binaries, Cluster, ClusterOptions};

/// How long a keeper may take to answer; a cluster that comes up has minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Start, look at, use and end clusters of databases on this machine
///
/// Every node is a tree of processes with limits and, as root, a network address of its own; the network
/// between them is one process, which counts every packet. Nothing needs a container, and `down` leaves
/// nothing.
#[derive(Debug, Args)]
pub struct Lab {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, Subcommand)]
enum LabVerb {
    Up(Up),
    Recipes(Recipes),
    /// Show the nodes that are up
    Status {
        /// Which laboratory
        #[arg(long, default_value = "lab")]
        name: String,
    },
    Exec(Exec),
    /// End a laboratory and all that is in it
    Down {
        /// Which laboratory
        #[arg(long, default_value = "lab")]
        name: String,
    },
}

/// List the recipes of clusters, print one, or check one of your own
///
/// A recipe says which program serves, in which roles and how many of each, with which settings, limits and
/// disks. To make your own, print one that is near, edit it, check it, and give its path to `lab up`, to
/// `break`, or to a plan as lab.recipe.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Recipes {
    /// The recipe to print
    recipe: Option<String>,

    #[command(subcommand)]
    verb: Option<RecipesVerb>,
}

#[derive(Debug, Subcommand)]
enum RecipesVerb {
    /// Check a recipe: exit code 2 with line, key and the nearest right word, if it cannot be used
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Start a cluster and leave it running
#[derive(Debug, Args)]
struct Up {
    /// What to start, such as postgres-sync, or the path of your own recipe; `tipover lab recipes` lists all
    recipe: String,

    /// What to call it
    #[arg(long, default_value = "lab")]
    name: String,

    /// Major version of the server; the newest installed one if not said
    #[arg(long)]
    version: Option<u32>,

    /// Memory of each node, such as "512 MiB", unless the recipe gives its role another
    #[arg(long)]
    memory: Option<Bytes>,

    /// Processors of each node, such as 0.5, likewise
    #[arg(long)]
    cpus: Option<f64>,

    /// Each node's own shaped disk: a profile (see `tipover disk profiles`) or a shape such as "latency=1ms"
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,

    /// Its size
    #[arg(long, default_value = "2 GiB", requires = "disk")]
    disk_size: Bytes,

    /// A setting in the server's own words, such as shared_buffers=64MB; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,

    /// No namespaces: nodes on addresses of the loopback, as without root
    #[arg(long)]
    loopback: bool,

    /// Your own mongod, for MongoDB's recipes; the one in PATH if not said
    #[arg(long, value_name = "PATH")]
    mongod: Option<PathBuf>,

    /// Your own mongos, for the sharded cluster; the one in PATH if not said
    #[arg(long, value_name = "PATH")]
    mongos: Option<PathBuf>,

    /// Your own PoloDB; a built one, or the one in PATH, if not said
    #[arg(long, value_name = "PATH")]
    polodb: Option<PathBuf>,
}

/// Run a command in a node's network
///
/// The command finds the node's address in TIPOVER_URL.
#[derive(Debug, Args)]
struct Exec {
    /// The node
    node: String,

    /// Which laboratory
    #[arg(long, default_value = "lab")]
    name: String,

    /// The command with its arguments, behind --
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What a keeper is to make.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    name: String,
    /// What the recipe is called, and what stands in it.
    recipe: (String, Recipe),
    version: Option<u32>,
    network: bool,
    binaries: Binaries,
    /// Where disks that are backed by a real one keep their bytes, if the recipe names no folder.
    folder: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Status,
    Down,
}

/// A laboratory as its keeper sees it.
#[derive(Debug, Serialize, Deserialize)]
struct Status {
    name: String,
    recipe: String,
    keeper_pid: u32,
    server: String,
    primary: String,
    /// For clients of the whole, where that is more than the primary's address.
    url: Option<String>,
    nodes: Vec<NodeStatus>,
    links: Vec<LinkStatus>,
    lost: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NodeStatus {
    name: String,
    address: String,
    url: String,
    socket: PathBuf,
    pid: u32,
    running: bool,
    memory_bytes: Option<u64>,
    /// A file of the keeper by which another process enters the node's network.
    namespace: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LinkStatus {
    from: String,
    to: String,
    counters: LinkCounters,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Up(Box<Status>),
    Gone,
    Failed(String),
}

impl Lab {
    /// Carries it out.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        match &self.verb {
            LabVerb::Up(up) => up.execute(json, interrupt),
            LabVerb::Recipes(recipes) => recipes.execute(json),
            LabVerb::Status { name } => {
                show(&status(name)?, json)?;
                Ok(Ending::Held)
            }
            LabVerb::Exec(exec) => exec.execute(),
            LabVerb::Down { name } => {
                match ask(name, &Request::Down)? {
                    Answer::Gone => {}
                    Answer::Failed(reason) => bail!("{reason}"),
                    Answer::Up(_) => bail!("the keeper of {name} answered another question"),
                }
                if !json {
                    println!("{name} is down");
                }
                Ok(Ending::Held)
            }
        }
    }
}

impl Up {
    fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        let recipe = self.recipe()?;
        check_name(&self.name)?;
        if UnixStream::connect(socket_of(&self.name)).is_ok() {
            return Err(BadInput(format!(
                "a laboratory called {:?} is up already; `tipover lab down --name {}` ends it, --name starts another",
                self.name, self.name
            ))
            .into());
        }
        let order = Order {
            name: self.name.clone(),
            recipe: (self.recipe.clone(), recipe),
            version: self.version,
            folder: std::env::temp_dir(),
            network: !self.loopback && rustix::process::geteuid().is_root(),
            binaries: Binaries {
                mongod: self.mongod.clone(),
                mongos: self.mongos.clone(),
                polodb: self.polodb.clone(),
            },
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg(crate::LAB_KEEPER_VERB).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Out of the terminal's reach: it shall outlive this command, and Ctrl-C.
        command.stderr(Stdio::null()).process_group(0);
        let mut keeper = command.spawn().context("starting the laboratory's keeper")?;
        let mut input = keeper.stdin.take().context("the keeper's input was piped")?;
        writeln!(input, "{}", serde_json::to_string(&order)?)?;
        let output = keeper.stdout.take().context("the keeper's output was piped")?;
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = said.send(BufReader::new(output).read_line(&mut line).map(|_| line));
        });
        let line = loop {
            match hears.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => break line?,
                Err(_) if interrupt.is_set() => break String::new(),
                Err(_) => {}
            }
        };
        if interrupt.is_set() {
            // It puts away what there is so far.
            let process = rustix::process::Pid::from_child(&keeper);
            rustix::process::kill_process(process, rustix::process::Signal::TERM)?;
            keeper.wait()?;
            interrupt.check()?;
        }
        if line.is_empty() {
            bail!("the laboratory's keeper ended without a word ({})", keeper.wait()?);
        }
        match serde_json::from_str(&line)? {
            Answer::Up(status) => show(&status, json)?,
            Answer::Failed(reason) => bail!("{reason}"),
            Answer::Gone => bail!("the keeper is gone"),
        }
        Ok(Ending::Held)
    }
}

impl Up {
    /// The recipe with what the flags say over it.
    fn recipe(&self) -> Result<Recipe> {
        let mut recipe = recipe(&self.recipe)?;
        recipe.memory = self.memory.or(recipe.memory);
        recipe.cpus = self.cpus.or(recipe.cpus);
        recipe.settings.extend(self.settings.iter().cloned());
        if let Some(disk) = &self.disk {
            let (shape, size) = (shape(disk)?, self.disk_size);
            recipe.disk = Some(DiskSpec { mode: DiskMode::Auto, size, shape, ..DiskSpec::default() });
        }
        recipe.check().map_err(|error| BadInput(format!("{}: {error}", self.recipe)))?;
        Ok(recipe)
    }
}

/// A recipe by its name, or by the path of its file.
///
/// # Errors
/// There is none, or it cannot be used: line, key, the nearest right word.
pub fn recipe(name: &str) -> Result<Recipe> {
    if !Recipe::is_file(name) {
        return Ok(Recipe::named(name).map_err(|error| BadInput(error.to_string()))?);
    }
    let text = std::fs::read_to_string(name).map_err(|error| BadInput(format!("{name}: {error}")))?;
    Ok(Recipe::parse(&text).map_err(|error| BadInput(format!("{name}: {error}")))?)
}

impl Recipes {
    fn execute(&self, json: bool) -> Result<Ending> {
        match (&self.recipe, &self.verb) {
            (_, Some(RecipesVerb::Check { file })) => {
                let name = file.to_string_lossy();
                // A file without a dot is one too.
                let read =
                    recipe(&if Recipe::is_file(&name) { name.into_owned() } else { format!("./{name}") })?;
                let nodes = read.layout().names();
                println!("{}: {} ({})", file.display(), read.about, nodes.join(", "));
            }
            (Some(name), None) => {
                let text = Recipe::text(name).map_err(|error| BadInput(error.to_string()))?;
                match json {
                    true => println!("{}", serde_json::to_string_pretty(&Recipe::parse(text)?)?),
                    false => print!("{text}"),
                }
            }
            (None, None) if json => {
                let all = RECIPES.map(|(name, text)| Ok((name, Recipe::parse(text)?)));
                let all: std::collections::BTreeMap<_, _> = all.into_iter().collect::<Result<_>>()?;
                println!("{}", serde_json::to_string_pretty(&all)?);
            }
            (None, None) => {
                for (name, text) in RECIPES {
                    println!("{name}\n    {}", Recipe::parse(text)?.about);
                }
            }
        }
        Ok(Ending::Held)
    }
}

impl Exec {
    fn execute(&self) -> Result<Ending> {
        let status = status(&self.name)?;
        let known: Vec<&str> = status.nodes.iter().map(|node| node.name.as_str()).collect();
        let node = status.nodes.iter().find(|node| node.name == self.node).ok_or_else(|| {
            BadInput(format!(
                "there is no node {:?} in {}; there are {}",
                self.node,
                self.name,
                known.join(", ")
            ))
        })?;
        let (program, arguments) = self.command.split_first().context("clap requires a command")?;
        let mut command = Command::new(program);
        command.args(arguments).env("TIPOVER_URL", &node.url);
        if let Some(namespace) = &node.namespace {
            tipover_lab::network::enter(namespace).with_context(|| format!("entering {}", self.node))?;
        }
        // Becomes the command, so that its exit code and its signals are its own.
        Err(command.exec()).with_context(|| format!("cannot start {program}"))
    }
}

/// A disk by the name of its profile, or by its abilities; as text that can be read back.
///
/// # Errors
/// It is neither; the nearest profile is named.
pub fn shape(disk: &str) -> Result<String> {
    match (device::profile(disk), disk.parse::<device::Spec>()) {
        (Ok(profile), _) => Ok(profile.spec.to_string()),
        (_, Ok(spec)) => Ok(spec.to_string()),
        (_, Err(error)) if disk.contains('=') => Err(BadInput(format!("--disk: {error}")).into()),
        (Err(error), _) => Err(BadInput(format!("--disk: {error}")).into()),
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
        return Err(
            BadInput(format!("a laboratory's name is letters, digits and hyphens, not {name:?}")).into()
        );
    }
    Ok(())
}

/// Where the sockets of this user's keepers are.
fn folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/tipover/lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("tipover/lab"),
        None => std::env::temp_dir().join(format!("tipover-lab-{}", rustix::process::geteuid().as_raw())),
    }
}

fn socket_of(name: &str) -> PathBuf {
    folder().join(format!("{name}.sock"))
}

/// Names of the laboratories that are up; sockets of dead keepers are removed on the way.
fn names() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder()) else { return Vec::new() };
    let mut names = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        match UnixStream::connect(&path) {
            Ok(_) => names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned())),
            Err(_) => drop(std::fs::remove_file(&path)),
        }
    }
    names
}

fn ask(name: &str, request: &Request) -> Result<Answer> {
    check_name(name)?;
    let mut stream = UnixStream::connect(socket_of(name)).map_err(|_| {
        let up = names();
        let others =
            if up.is_empty() { "none is".to_string() } else { format!("there are {}", up.join(", ")) };
        BadInput(format!(
            "no laboratory called {name:?} is up ({others}); `tipover lab up RECIPE` starts one"
        ))
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("the keeper of {name} said {line:?}"))
}

fn status(name: &str) -> Result<Status> {
    match ask(name, &Request::Status)? {
        Answer::Up(status) => Ok(*status),
        Answer::Failed(reason) => bail!("{reason}"),
        Answer::Gone => bail!("{name} is going down"),
    }
}

fn show(status: &Status, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(status)?);
        return Ok(());
    }
    println!("{}: {} ({}), primary {}", status.name, status.recipe, status.server, status.primary);
    if let Some(url) = &status.url {
        println!("  clients: {url}");
    }
    for node in &status.nodes {
        let state = if node.running { "runs" } else { "does not run" };
        let memory = node.memory_bytes.map_or(String::new(), |bytes| format!(", {}", Bytes(bytes).rounded()));
        println!("  {} {state}, process {}{memory}\n    {}", node.name, node.pid, node.url);
    }
    for link in status.links.iter().filter(|link| link.counters.touched() > 0) {
        println!("  {} to {}: {} packets touched by rules", link.from, link.to, link.counters.touched());
    }
    for lost in &status.lost {
        println!("  lost here: {lost}");
    }
    Ok(())
}

/// Runs a keeper; for the hidden verb. It reads its order from standard input, says on standard output how it
/// went, and ends on `down` or on a signal.
pub fn keep() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("this command is started by `tipover lab up`")?;
    let interrupt = Interrupt::listen()?;
    signal_hook::flag::register(signal_hook::consts::SIGHUP, interrupt.asked.clone())?;
    let _holding = interrupt.hold();
    let is_up = end_with_who_waits(&interrupt)?;
    let say = |answer: &Answer| -> Result<()> {
        let mut output = std::io::stdout();
        writeln!(output, "{}", serde_json::to_string(answer)?)?;
        Ok(output.flush()?)
    };
    let path = socket_of(&order.name);
    let up = listen(&path).and_then(|listener| Ok((listener, start(&order)?)));
    let (listener, mut cluster) = match up {
        Ok(up) => up,
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            return say(&Answer::Failed(in_words(&error)));
        }
    };
    let first = describe(&order, &mut cluster);
    is_up.store(true, Ordering::Relaxed);
    say(&Answer::Up(Box::new(first)))?;
    let served = serve(&listener, &order, cluster, &interrupt.asked);
    let _ = std::fs::remove_file(&path);
    served
}

/// While the cluster comes up, whoever reads our standard output waits for it; gone, it waits no more, and we
/// go too. What is returned is to be set when it is up.
fn end_with_who_waits(interrupt: &Interrupt) -> Result<Arc<AtomicBool>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let is_up = Arc::new(AtomicBool::new(false));
    let (up, interrupt) = (is_up.clone(), interrupt.clone());
    let pause = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    std::thread::Builder::new().name("who waits".into()).spawn(move || {
        let output = std::io::stdout();
        while !up.load(Ordering::Relaxed) {
            let mut looked = [PollFd::new(&output, PollFlags::empty())];
            if poll(&mut looked, Some(&pause)).is_ok_and(|seen| seen > 0) && !up.load(Ordering::Relaxed) {
                interrupt.asked.store(true, Ordering::Relaxed);
                return;
            }
        }
    })?;
    Ok(is_up)
}

fn listen(path: &Path) -> Result<UnixListener> {
    let folder = path.parent().context("a socket has a folder")?;
    // Only for us: whoever can talk to a keeper can end it.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if UnixStream::connect(path).is_ok() {
        bail!("a laboratory of this name is up already");
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn start(order: &Order) -> Result<Cluster> {
    let network = DaemonCommand::this_program(&[crate::NETWORK_DAEMON_VERB]);
    let cluster = Cluster::start(&ClusterOptions {
        recipe: order.recipe.1.clone(),
        version: order.version,
        disk_daemon: Some(DaemonCommand::this_program(&[crate::DISK_DAEMON_VERB])),
        folder: order.folder.clone(),
        network: order.network.then_some(network),
        own: None,
        binaries: order.binaries.clone(),
        seed: 1,
    })?;
    cluster.shape()?;
    Ok(cluster)
}

fn serve(listener: &UnixListener, order: &Order, mut cluster: Cluster, ended: &AtomicBool) -> Result<()> {
    while !ended.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // One client at a time, and none may hold us up: each says one line.
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            continue;
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Request::Status) => Answer::Up(Box::new(describe(order, &mut cluster))),
            Ok(Request::Down) => {
                drop(cluster);
                // A client that is gone already is no reason to stay.
                let _ = writeln!(stream, "{}", serde_json::to_string(&Answer::Gone)?);
                return Ok(());
            }
            // Somebody only looked whether we live.
            Err(_) if line.is_empty() => continue,
            Err(error) => Answer::Failed(error.to_string()),
        };
        let _ = writeln!(stream, "{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

fn describe(order: &Order, cluster: &mut Cluster) -> Status {
    cluster.find_primary();
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name().to_string()).collect();
    let mut nodes = Vec::new();
    let keeper_pid = std::process::id();
    for name in names {
        let url = cluster.url(&name).unwrap_or_default();
        let Ok(node) = cluster.node_mut(&name) else { continue };
        let running = node.is_running();
        let namespace = node.member().and_then(|member| member.namespace.as_ref()).map(|file| {
            use std::os::fd::AsRawFd;
            PathBuf::from(format!("/proc/{keeper_pid}/fd/{}", file.as_raw_fd()))
        });
        nodes.push(NodeStatus {
            address: node.address().to_string(),
            socket: node.server().map(|server| server.socket()).unwrap_or_default(),
            pid: node.server().map_or(0, |server| server.pid()),
            memory_bytes: node.group().and_then(|group| group.memory().ok()).map(|memory| memory.usage),
            name,
            url,
            running,
            namespace,
        });
    }
    let pairs = cluster.network().ok().and_then(|network| network.pairs().ok()).unwrap_or_default();
    let links = pairs.into_iter();
    let links = links.map(|pair| LinkStatus { from: pair.from, to: pair.to, counters: pair.counters });
    let server = cluster.nodes().first().and_then(|node| node.server());
    Status {
        name: order.name.clone(),
        recipe: order.recipe.0.clone(),
        keeper_pid,
        server: server.map(|server| server.version().to_string()).unwrap_or_default(),
        primary: cluster.primary().into(),
        url: cluster.client_url(),
        nodes,
        links: links.collect(),
        lost: cluster.lost().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_folder() {
        assert!(check_name("lab-2").is_ok());
        for wrong in ["", "../x", "a b", "a/b"] {
            assert!(check_name(wrong).unwrap_err().is::<BadInput>(), "{wrong}");
        }
    }
}
