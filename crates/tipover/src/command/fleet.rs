//! `tipover fleet`: who is there, what they are told, and a fleet of one machine for trying.

use super::{BadInput, Ending, quoted};
use crate::fleet::agent::every_recipe;
use crate::fleet::keys::{ASKER, Keys};
use crate::fleet::message::Allowed;
use crate::fleet::server::{self, Server};
use crate::fleet::{LOG, Link, Login, coordinator};
use crate::interrupt::{Interrupt, Interrupted};
use anyhow::Result;
use clap::{Args, Subcommand};
use futures_util::StreamExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tipover_core::units::span;
use tipover_lab::Launch;

/// Look after a fleet of machines that carry out trials together
///
/// Machines join with `tipover agent`, and `tipover run PLAN --fleet nats://...` gives them work. What stands
/// between is a nats-server with JetStream, 2.10 or newer.
#[derive(Debug, Args)]
pub struct Fleet {
    #[command(subcommand)]
    verb: FleetVerb,
}

#[derive(Debug, Subcommand)]
enum FleetVerb {
    /// Say who is there, what they do, and what waits
    Status(Login),
    Drain(Drain),
    Logs(Logs),
    Cancel(Cancel),
    Keys(KeysCommand),
    Up(Up),
}

/// Let a machine end its block and take no more
#[derive(Debug, Args)]
struct Drain {
    #[command(flatten)]
    login: Login,

    /// Its name, as `tipover fleet status` has it
    machine: String,

    /// Let it take blocks again
    #[arg(long)]
    undo: bool,
}

/// Print what machines said
#[derive(Debug, Args)]
struct Logs {
    #[command(flatten)]
    login: Login,

    /// Only this machine
    machine: Option<String>,

    /// How many of the last lines to print
    #[arg(long, default_value_t = 100)]
    last: u64,
}

/// Take a run out of the queue and forget its results
#[derive(Debug, Args)]
struct Cancel {
    #[command(flatten)]
    login: Login,

    /// Its name, as `tipover fleet status` has it
    run: String,
}

/// Make the keys of a fleet, and the configuration of a nats-server that knows them
///
/// Writes ask.nk for those who ask for work, agent.nk for the machines, and nats-server.conf, in which a
/// machine may take work and give results, and nothing else.
#[derive(Debug, Args)]
struct KeysCommand {
    /// Where to write them
    folder: PathBuf,

    /// Where the server is to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:4222")]
    listen: String,
}

/// Start a nats-server and an agent on this machine, for trying
///
/// Goes on until it is interrupted. Its agent carries out every recipe that comes with tipover.
#[derive(Debug, Args)]
struct Up {
    /// Where keys, queue and results under way are kept
    #[arg(long, value_name = "DIR", default_value = "tipover-fleet")]
    folder: PathBuf,

    /// The port of the server; by default one that is free
    #[arg(long)]
    port: Option<u16>,

    /// The program, where it is not in PATH
    #[arg(long, value_name = "PROGRAM")]
    nats_server: Option<PathBuf>,
}

impl Fleet {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        match &self.verb {
            FleetVerb::Status(login) => status(&open(login)?, json)?,
            FleetVerb::Drain(drain) => drain.execute()?,
            FleetVerb::Logs(logs) => logs.execute()?,
            FleetVerb::Cancel(cancel) => {
                let removed = coordinator::cancel(&open(&cancel.login)?, &cancel.run)?;
                eprintln!("{removed} blocks of {} are out of the queue", cancel.run);
            }
            FleetVerb::Keys(keys) => {
                let made = Keys::make(&keys.folder, &keys.listen).map_err(|e| BadInput(format!("{e:#}")))?;
                println!("for those who ask for work: {}", made.asker.display());
                println!("for the machines:           {}", made.agent.display());
                println!("start the server with:      nats-server -c {}", made.server.display());
            }
            FleetVerb::Up(up) => up.execute(interrupt)?,
        }
        Ok(Ending::Held)
    }
}

fn open(login: &Login) -> Result<Link> {
    Ok(Link::open(login, ASKER).map_err(|error| BadInput(format!("{error:#}")))?)
}

fn status(link: &Link, json: bool) -> Result<()> {
    let machines = coordinator::machines(link)?;
    let runs = coordinator::waiting(link)?;
    if json {
        let run = |(run, (blocks, results)): (&String, &(u64, u64))| serde_json::json!({"run": run, "blocks": blocks, "results": results});
        let runs: Vec<_> = runs.iter().map(run).collect();
        println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({"machines": machines, "runs": runs}))?
        );
        return Ok(());
    }
    if machines.is_empty() {
        println!("no machines: start `tipover agent` on each that shall work");
    }
    for card in &machines {
        let labels: Vec<String> = card.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(", {}", labels.join(",")) };
        println!(
            "{}: {} cores, {}{labels}, tipover {}: {}",
            card.machine,
            card.facts.cores,
            card.facts.memory_total.rounded(),
            card.version,
            card.state.words()
        );
    }
    for (run, (blocks, results)) in &runs {
        println!("run {run}: {blocks} blocks in the queue or under way, {results} results to be fetched");
    }
    Ok(())
}

impl Drain {
    fn execute(&self) -> Result<()> {
        let link = open(&self.login)?;
        let known = coordinator::machines(&link)?;
        if !known.iter().any(|card| card.machine == self.machine) {
            let names: Vec<&str> = known.iter().map(|card| card.machine.as_str()).collect();
            return Err(BadInput(tipover_core::experiment::unknown("machine", &self.machine, &names)).into());
        }
        link.wait(async {
            match self.undo {
                true => link.orders.purge(self.machine.as_str()).await.map_err(anyhow::Error::from),
                false => {
                    let put = link.orders.put(self.machine.as_str(), "drain".into()).await;
                    put.map(drop).map_err(anyhow::Error::from)
                }
            }
        })?;
        eprintln!("{} hears of it within seconds", self.machine);
        Ok(())
    }
}

impl Logs {
    fn execute(&self) -> Result<()> {
        let link = open(&self.login)?;
        link.wait(async {
            let subject = format!("{LOG}.{}", self.machine.as_deref().unwrap_or("*"));
            let log = link.context.get_stream("tipover-log").await?;
            let info = log.get_info().await?;
            let config = async_nats::jetstream::consumer::pull::OrderedConfig {
                filter_subject: subject,
                ..Default::default()
            };
            let consumer = log.create_consumer(config).await?;
            let mut left = consumer.cached_info().num_pending;
            let mut lines = std::collections::VecDeque::new();
            let mut messages = consumer.messages().await?;
            while left > 0
                && let Some(message) = messages.next().await
            {
                let message = message?;
                let at = message.info().map(|info| info.published.unix_timestamp()).unwrap_or_default();
                lines.push_back((at, String::from_utf8_lossy(&message.payload).into_owned()));
                if lines.len() as u64 > self.last {
                    lines.pop_front();
                }
                left -= 1;
            }
            for (at, line) in lines {
                println!("{} {line}", crate::report::when(at as u64));
            }
            drop(info);
            anyhow::Ok(())
        })
    }
}

impl Up {
    fn execute(&self, interrupt: &Interrupt) -> Result<()> {
        let program =
            server::find(self.nats_server.as_deref()).map_err(|error| BadInput(format!("{error:#}")))?;
        let server = Server::start(&program, &self.folder, self.port)?;
        let folder = std::path::absolute(&self.folder)?;
        let allow = folder.join("allow.toml");
        let allowed = Allowed { recipes: every_recipe(), ..Allowed::default() };
        std::fs::write(&allow, toml::to_string(&allowed)?)?;
        // Makes the streams, which the agent may not.
        let login = Login {
            servers: server.address.clone(),
            key: Some(server.keys.asker.clone()),
            authority: None,
            plain: false,
        };
        drop(open(&login)?);
        let mut command = Command::new("/proc/self/exe");
        command.arg("agent").arg(&server.address).arg("--key").arg(&server.keys.agent);
        command.arg("--allow").arg(&allow).arg("--work").arg(folder.join("agent"));
        let mut agent = Launch::new(command).called("agent").start()?;
        println!(
            "A fleet of one machine is up. Give it work with\n  tipover run working-set --scale tiny --wait --fleet {} \
             --key {}\nand end it with Ctrl-C.",
            server.address,
            quoted(&server.keys.asker.display().to_string())
        );
        loop {
            if interrupt.is_asked() {
                let _ = agent.stop(rustix::process::Signal::TERM, Duration::from_secs(20));
                return Err(Interrupted.into());
            }
            if agent.try_wait()?.is_some() {
                anyhow::bail!("the agent ended: {}", agent.last_words().join("; "));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The length of a lease, as people write it.
pub fn lease(text: &str) -> Result<Duration, String> {
    let lease = span::parse(text).map_err(|error| error.to_string())?;
    match lease >= Duration::from_secs(2) {
        true => Ok(lease),
        false => Err("a lease is at least 2 s long: a machine is busy now and then".into()),
    }
}
