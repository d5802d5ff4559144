//! The laboratory's end of the pipe to a generator.

use crate::clock::Clock;
use crate::generator::{Command, Reply, Secret, Servers};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tipover_core::experiment::{HugePages, Part, Spec};
use tipover_core::metric::Sample;
use tipover_core::peer;
use tipover_core::units::Bytes;
use tipover_lab::{Child, Group, Launch, Signal};

/// How long a generator may not answer before it is taken for hung: no command needs a tenth of it, but for
/// one that makes accounts.
const PATIENCE: Duration = Duration::from_secs(120);
/// Accounts that are made in a second at the least.
const ACCOUNTS_PER_S: u64 = 10_000;

/// A running generator; killed when dropped.
pub struct GeneratorProcess {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<std::io::Result<String>>,
}

impl GeneratorProcess {
    /// Starts one, in `group` if there is one.
    pub fn start(group: Option<&Arc<Group>>, huge_pages: Option<HugePages>) -> Result<GeneratorProcess> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg(crate::GENERATOR_VERB);
        // Arenas per thread would take memory from the page cache under measurement, differently each time.
        command.env("MALLOC_ARENA_MAX", "2");
        if huge_pages == Some(HugePages::Always) {
            // glibc then advises the kernel for every large piece; enough where the system says "madvise".
            command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        }
        let mut launch = Launch::new(command).called("generator").pipes();
        if let Some(group) = group {
            launch = launch.group(group);
        }
        let mut child = launch.start().context("starting the generator")?;
        let input = child.input();
        let output = child.output().context("the generator has no output")?;
        let (send, answers) = channel();
        std::thread::Builder::new().name("generator-answers".into()).spawn(move || {
            for line in BufReader::new(output).lines() {
                if send.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(GeneratorProcess { child, input, answers })
    }

    /// How much of its memory is in huge pages now.
    pub fn huge_pages(&self) -> Option<Bytes> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id())).ok()?;
        let kib = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
        Some(Bytes(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command without waiting for its answer.
    pub fn tell(&mut self, command: &Command) -> Result<()> {
        let told = match &mut self.input {
            Some(input) => peer::say(input, command),
            None => bail!("the generator was already told to end"),
        };
        // A broken pipe means that it died; why it died is the better message.
        if told.is_err() {
            return Err(self.obituary());
        }
        Ok(())
    }

    /// Waits for its next answer.
    pub fn hear(&mut self) -> Result<Reply> {
        self.hear_within(PATIENCE)
    }

    fn hear_within(&mut self, patience: Duration) -> Result<Reply> {
        match self.answers.recv_timeout(patience) {
            Ok(line) => match serde_json::from_str(&line?).context("the generator's answer is not one")? {
                Reply::Failed { reason } => bail!("{reason}"),
                answer => Ok(answer),
            },
            Err(RecvTimeoutError::Timeout) => {
                bail!("the generator did not answer for {} s", patience.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.obituary()),
        }
    }

    fn obituary(&mut self) -> anyhow::Error {
        match self.child.wait(Duration::from_secs(5)) {
            Ok(Some(exit)) => anyhow::anyhow!("the generator died: {}", exit.explained()),
            _ => anyhow::anyhow!("the generator closed its output but goes on"),
        }
    }

    /// Sends a command and waits for the answer to it.
    pub fn ask(&mut self, command: &Command) -> Result<Reply> {
        self.tell(command)?;
        self.hear()
    }

    /// Makes the tables of checks, with this number of accounts.
    pub fn prepare(&mut self, accounts: u64) -> Result<Reply> {
        self.tell(&Command::Prepare)?;
        self.hear_within(PATIENCE + Duration::from_secs(accounts / ACCOUNTS_PER_S))
    }

    /// Starts the target of `spec` with its data in `folder`, or on the servers of a cluster, to send this
    /// part of its load.
    pub fn begin(
        &mut self,
        spec: &Spec,
        folder: PathBuf,
        servers: &Servers,
        seed: u64,
        part: Part,
        clock: Clock,
    ) -> Result<Reply> {
        self.ask(&Command::Start {
            spec: Box::new(spec.clone()),
            address: spec.target.address.as_ref().map(|address| Secret(address.with_secrets().into())),
            servers: servers.clone(),
            folder,
            seed,
            part,
            origin_ns: clock.origin_ns(),
        })
    }

    /// The target's statistics, while no sessions run.
    pub fn sample(&mut self) -> Result<Sample> {
        match self.ask(&Command::Sample)? {
            Reply::Sampled(sample) => Ok(sample),
            other => bail!("expected statistics, got {other:?}"),
        }
    }

    /// Loads the data; `progress` hears how many records are written.
    pub fn load(
        &mut self,
        threads: u32,
        mut progress: impl FnMut(u64) -> Result<()>,
    ) -> Result<tipover_core::target::Facts> {
        self.tell(&Command::Load { threads })?;
        loop {
            match self.hear()? {
                Reply::Loading { records } => progress(records)?,
                Reply::Loaded { facts } => return Ok(facts),
                other => bail!("expected to hear of loading, got {other:?}"),
            }
        }
    }

    /// Ends it in good order: the target is closed. Returns how long that took.
    pub fn stop(mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.ask(&Command::Stop)?;
        self.input = None;
        if self.child.wait(PATIENCE)?.is_none() {
            self.child.stop(Signal::TERM, Duration::from_secs(5))?;
        }
        Ok(begin.elapsed())
    }
}
