//! `tipover lab`: clusters on this machine that stay until told otherwise.
//!
//! `up` starts a keeper, a process of its own that holds the cluster and listens on a socket; the other verbs
//! talk to it. Everything of the laboratory dies with its keeper.

use super::{BadInput, Ending, pair, quoted};
use crate::clock::Clock;
use crate::in_words;
use crate::interrupt::Interrupt;
use crate::probe::NodeProbe;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tipover_core::device;
use tipover_core::experiment::recipe::{RECIPES, Recipe};
use tipover_core::experiment::{DiskMode, DiskSpec};
use tipover_core::metric::{Metric, Sample};
use tipover_core::peer;
use tipover_core::units::Bytes;
use tipover_disk::DaemonCommand;
use tipover_lab::keeper::{self, Daemons, KeeperError, Order, Reply, Request, Status};
use tipover_lab::{Binaries, Cluster, Node};

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
    /// Show what every node has used and moved: processor, memory, page cache, disk, network
    ///
    /// Counters only grow, also over restarts and power cuts: read twice, and the difference is what
    /// happened between. With --json the kind of each value and who counts it are told too.
    Counters {
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

    /// Major version of the server; by default the newest that is installed
    #[arg(long)]
    version: Option<u32>,

    /// Memory of each node, such as "512 MiB", unless the recipe gives its role another
    #[arg(long)]
    memory: Option<Bytes>,

    /// Processors of each node, such as 0.5, unless the recipe gives its role others
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

    /// Your own mongod, for MongoDB's recipes; by default the one in PATH
    #[arg(long, value_name = "PATH")]
    mongod: Option<PathBuf>,

    /// Your own mongos, for the sharded cluster; by default the one in PATH
    #[arg(long, value_name = "PATH")]
    mongos: Option<PathBuf>,

    /// Your own PoloDB; by default a built one, or the one in PATH
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

impl Lab {
    /// Starts, shows, uses or ends a laboratory.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        match &self.verb {
            LabVerb::Up(up) => up.execute(json, interrupt),
            LabVerb::Recipes(recipes) => recipes.execute(json),
            LabVerb::Status { name } => {
                show(&status(name)?, json)?;
                Ok(Ending::Held)
            }
            LabVerb::Counters { name } => {
                match ask(name, &Request::Counters)? {
                    Reply::Counters(nodes) => show_counters(&serde_json::from_value::<Vec<_>>(nodes)?, json)?,
                    Reply::Failed(reason) => bail!("{reason}"),
                    _ => bail!("the keeper of {name} answered another question"),
                }
                Ok(Ending::Held)
            }
            LabVerb::Exec(exec) => exec.execute(),
            LabVerb::Down { name } => {
                match ask(name, &Request::Down)? {
                    Reply::Gone => {}
                    Reply::Failed(reason) => bail!("{reason}"),
                    _ => bail!("the keeper of {name} answered another question"),
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
        keeper::check_name(&self.name).map_err(|error| BadInput(error.to_string()))?;
        if keeper::is_up(&self.name) {
            return Err(BadInput(format!(
                "a laboratory called {:?} is up already; `tipover lab down --name {}` ends it, --name starts another",
                self.name,
                quoted(&self.name)
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
        peer::say(&mut input, &order)?;
        let output = keeper.stdout.take().context("the keeper's output was piped")?;
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = said.send(peer::hear(&mut BufReader::new(output)));
        });
        let answer = loop {
            match hears.recv_timeout(Duration::from_millis(50)) {
                Ok(answer) => break answer?,
                Err(_) if interrupt.is_set() => break None,
                Err(_) => {}
            }
        };
        if interrupt.is_set() {
            // It puts away what it has started so far.
            let process = rustix::process::Pid::from_child(&keeper);
            rustix::process::kill_process(process, rustix::process::Signal::TERM)?;
            keeper.wait()?;
            interrupt.check()?;
        }
        match answer {
            None => bail!("the laboratory's keeper ended without a word ({})", keeper.wait()?),
            Some(Reply::Up(status)) => show(&status, json)?,
            Some(Reply::Failed(reason)) => bail!("{reason}"),
            Some(_) => bail!("the keeper answered another question"),
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

/// Asks the keeper of this name.
fn ask(name: &str, request: &Request) -> Result<Reply> {
    keeper::ask(name, request).map_err(|error| match error {
        KeeperError::NotUp { .. } | KeeperError::Name(_) => BadInput(error.to_string()).into(),
        other => anyhow::Error::from(other).context(format!("asking the keeper of {name}")),
    })
}

fn status(name: &str) -> Result<Status> {
    match ask(name, &Request::Status)? {
        Reply::Up(status) => Ok(*status),
        Reply::Failed(reason) => bail!("{reason}"),
        Reply::Gone => bail!("{name} is going down"),
        Reply::Counters(_) => bail!("the keeper of {name} answered another question"),
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

/// What is counted of one node.
#[derive(Debug, Serialize, Deserialize)]
struct NodeCounters {
    node: String,
    /// By probe.
    samples: BTreeMap<String, Sample>,
    /// By probe.
    metrics: BTreeMap<String, Vec<Metric>>,
    missing: Vec<String>,
}

fn show_counters(nodes: &[NodeCounters], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(nodes)?);
        return Ok(());
    }
    for NodeCounters { node, samples, missing, .. } in nodes {
        println!("{node}");
        for (probe, sample) in samples {
            println!("  {probe}");
            for (name, value) in &sample.values {
                println!("    {name:<32} {value:>20}");
            }
        }
        for missing in missing {
            println!("  {missing}");
        }
    }
    Ok(())
}

fn count(cluster: &Cluster, probes: &mut Vec<NodeProbe>, clock: &Clock) -> Result<serde_json::Value> {
    if probes.is_empty() {
        probes.extend(cluster.nodes().iter().map(NodeProbe::of));
    }
    let counted = |(node, probe): (&Node, &mut NodeProbe)| -> Result<NodeCounters> {
        Ok(NodeCounters {
            node: node.name().to_string(),
            samples: probe.sample(Some(node), &|| clock.now())?,
            metrics: probe.metrics(),
            missing: probe.missing().iter().map(ToString::to_string).collect(),
        })
    };
    let nodes: Vec<NodeCounters> = cluster.nodes().iter().zip(probes).map(counted).collect::<Result<_>>()?;
    Ok(serde_json::to_value(nodes)?)
}

/// Runs a keeper; for the hidden verb. It reads its order from standard input, says on standard output how it
/// went, and ends on `down` or on a signal.
pub fn keep() -> Result<()> {
    let order: Option<Order> = peer::hear(&mut std::io::stdin().lock()).unwrap_or_default();
    let order = order.context("this command is started by `tipover lab up`")?;
    let interrupt = Interrupt::listen()?;
    signal_hook::flag::register(signal_hook::consts::SIGHUP, interrupt.asked.clone())?;
    let _holding = interrupt.hold();
    let is_up = end_with_who_waits(&interrupt)?;
    let daemons = Daemons {
        network: DaemonCommand::this_program(&[crate::NETWORK_DAEMON_VERB]),
        disk: DaemonCommand::this_program(&[crate::DISK_DAEMON_VERB]),
    };
    let (mut probes, clock) = (Vec::new(), Clock::start());
    let mut counters =
        |cluster: &Cluster| count(cluster, &mut probes, &clock).map_err(|error| in_words(&error));
    let kept = keeper::keep(&order, &daemons, &interrupt.asked, &mut counters, &mut |answer| {
        is_up.store(true, Ordering::Relaxed);
        peer::say(&mut std::io::stdout(), answer)
    });
    Ok(kept?)
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
