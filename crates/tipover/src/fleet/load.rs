//! One load from many machines.
//!
//! ```text
//! queue   a block, and a part of it for each further machine: whoever takes a part waits to be called
//! leader  tipover.part.<block>.call        ──→ all who have a part of it, who say that they are there
//! leader  tipover.part.<block>.<instance>  ←─→ one: its clock, starting, and what its agent is told
//! ```
//!
//! Who asks puts parts into the queue, not the leader, so that a machine only sends what the one who asks may
//! ask for. It starts nothing but cells of that block, by its own secrets, and its agent hears no command but
//! those of sessions. What is said in between is not kept: who is not heard is gone, and with him the trial.

use super::agent::Agent;
use super::message::{Block, Here, Reply, Say, State};
use super::{PARTS, unix_s};
use crate::clock::Clock;
use crate::generator::{self, Command};
use crate::trial::{Fellow, Fellows, GeneratorProcess};
use anyhow::{Context, Result, bail};
use async_nats::jetstream::{AckKind, Message};
use async_nats::{Client, Request, RequestErrorKind};
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tipover_core::experiment::{Cell, Experiment, LoadSpec, Part, SearchSpec, Spec, interventions};
use tipover_core::measure::{ClockOffset, Glimpse};
use tipover_core::search::limit::Resource;
use tipover_core::units::Tick;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// How long those who are called have to answer before they are called again.
const CALL: Duration = Duration::from_millis(300);
/// Looks at other things no less often.
const GLANCE: Duration = Duration::from_millis(200);
/// Whoever takes longer to answer than an operation may take and this, is gone.
const PATIENCE: Duration = Duration::from_secs(20);
/// A clock is asked so often; the best of the answers bounds it.
const GLIMPSES: usize = 20;
/// No command lies further ahead.
const AHEAD: Duration = Duration::from_secs(10);

fn call_subject(block: &Block) -> String {
    format!("{PARTS}.{}.call", block.key())
}

fn part_subject(block: &Block, instance: &str) -> String {
    format!("{PARTS}.{}.{instance}", block.key())
}

/// What this machine's clock shows.
fn monotonic_ns() -> u64 {
    Clock::at(0).now().0
}

/// The machines that have a part of a block, for the one that leads it.
pub(super) struct Together<'a> {
    agent: &'a Agent<'a>,
    block: &'a Block,
    /// Called when there are too few to go on.
    alone: &'a dyn Fn(),
    /// Whether nobody waits for it any more.
    given_up: &'a dyn Fn() -> bool,
    patience: Duration,
}

impl<'a> Together<'a> {
    pub fn new(
        agent: &'a Agent<'a>,
        block: &'a Block,
        alone: &'a dyn Fn(),
        given_up: &'a dyn Fn() -> bool,
        patience: Duration,
    ) -> Together<'a> {
        Together { agent, block, alone, given_up, patience }
    }

    /// Calls until the others are there, each with a part of its own; `None`: there are too few.
    pub fn gather(&self, wanted: usize, mut beside: impl FnMut()) -> Result<Option<Vec<Here>>> {
        let client = &self.agent.link().client;
        let began = Instant::now();
        loop {
            let there = self.agent.link().wait(call(client, self.block))?;
            if there.len() >= wanted {
                return Ok(Some(there.into_values().take(wanted).collect()));
            }
            if (self.given_up)() || began.elapsed() > self.patience {
                return Ok(None);
            }
            beside();
        }
    }
}

/// Who has which part of the block, of those who answer.
async fn call(client: &Client, block: &Block) -> Result<BTreeMap<u32, Here>> {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await?;
    client.publish_with_reply(call_subject(block), inbox, "".into()).await?;
    let until = tokio::time::Instant::now() + CALL;
    let mut there = BTreeMap::new();
    while let Ok(Some(answer)) = tokio::time::timeout_at(until, answers.next()).await {
        // Nobody listens: the server says so with an empty answer.
        if let Ok(here) = serde_json::from_slice::<Here>(&answer.payload) {
            there.entry(here.part).or_insert(here);
        }
    }
    Ok(there)
}

impl Fellows for Together<'_> {
    fn machine(&self) -> &str {
        self.agent.name()
    }

    fn start(&self, spec: &Spec, seed: u64, clock: Clock) -> Result<Vec<Box<dyn Fellow>>> {
        let (cell, changed) = self.origin(spec).context("a trial of no cell of the block")?;
        let of = spec.load.machines;
        let Some(there) = self.gather(of as usize - 1, || {})? else {
            (self.alone)();
            bail!("too few of the {of} machines that send this load are there");
        };
        let link = self.agent.link();
        let mut fellows: Vec<Box<dyn Fellow>> = Vec::new();
        for (number, here) in (1..).zip(there) {
            let mut remote = Remote {
                client: link.client.clone(),
                handle: link.handle(),
                subject: part_subject(self.block, &here.instance),
                machine: here.machine,
                processors: here.processors,
                patience: PATIENCE + spec.load.timeout,
                asked: None,
            };
            let origin_ns = remote.shown_at_zero_of(clock)?;
            let started = remote.start(&Say::Start {
                cell: cell.id(),
                changed,
                seed,
                part: Part { number, of },
                origin_ns,
            });
            started.with_context(|| format!("starting the part of the load on {}", remote.machine))?;
            fellows.push(Box::new(remote));
        }
        Ok(fellows)
    }
}

impl<'a> Together<'a> {
    /// The cell of the block that `spec` is of, and what a search changed in it: a secret that was put into
    /// it is no difference.
    fn origin(&self, spec: &Spec) -> Option<(&'a Cell, Option<Resource>)> {
        let wanted = serde_json::to_value(spec).ok()?;
        let is_it = |own: &Spec| serde_json::to_value(own).is_ok_and(|own| own == wanted);
        self.block.cells.iter().find_map(|cell| {
            let changed = changes(&cell.spec, self.block.search.as_ref()).find(|(_, own)| is_it(own))?;
            Some((cell, changed.0))
        })
    }
}

/// The settings with which a block may have the target of a cell started: its own, and what a search changes
/// in them to test what limits.
fn changes(
    spec: &Spec,
    search: Option<&SearchSpec>,
) -> impl Iterator<Item = (Option<Resource>, Spec)> + use<> {
    let search = search.filter(|search| search.interventions);
    let changed = search.map_or_else(Vec::new, |search| interventions(spec, search.scale));
    let changed = changed.into_iter().map(|(intervention, spec)| (Some(intervention.resource), spec));
    std::iter::once((None, spec.clone())).chain(changed)
}

/// An agent on another machine, spoken to through the fleet.
struct Remote {
    client: Client,
    handle: Handle,
    subject: String,
    machine: String,
    processors: u32,
    patience: Duration,
    /// What was asked and is not answered yet.
    asked: Option<JoinHandle<Result<Reply>>>,
}

impl Remote {
    fn say(&mut self, say: &Say) -> Result<()> {
        let (client, subject) = (self.client.clone(), self.subject.clone());
        let request = Request::new().payload(serde_json::to_vec(say)?.into()).timeout(Some(self.patience));
        let patience = self.patience;
        self.asked = Some(self.handle.spawn(async move {
            let answer = client.send_request(subject, request).await.map_err(|error| match error.kind() {
                RequestErrorKind::NoResponders => anyhow::anyhow!("it is gone"),
                RequestErrorKind::TimedOut => {
                    anyhow::anyhow!("it did not answer for {} s", patience.as_secs())
                }
                _ => anyhow::Error::new(error),
            })?;
            serde_json::from_slice(&answer.payload).context("its answer is not one")
        }));
        Ok(())
    }

    fn answer(&mut self) -> Result<Reply> {
        let asked = self.asked.take().context("nothing was asked")?;
        match self.handle.block_on(asked)?? {
            Reply::Refused { reason } => bail!("{reason}"),
            reply => Ok(reply),
        }
    }

    /// What its clock showed when the trial's was at zero.
    fn shown_at_zero_of(&mut self, clock: Clock) -> Result<u64> {
        let origin_ns = clock.origin_ns().checked_add_signed(self.offset()?.ns);
        origin_ns.context("its clock began after the trial did")
    }

    fn start(&mut self, start: &Say) -> Result<()> {
        self.say(start)?;
        match self.answer()? {
            Reply::Did { answer } if matches!(*answer, generator::Reply::Started { .. }) => Ok(()),
            other => bail!("expected to hear of the start, got {other:?}"),
        }
    }
}

impl Fellow for Remote {
    fn machine(&self) -> &str {
        &self.machine
    }

    fn processors(&self) -> u32 {
        self.processors
    }

    fn tell(&mut self, command: &Command) -> Result<()> {
        self.say(&Say::Do { command: command.clone() })
    }

    fn hear(&mut self) -> Result<generator::Reply> {
        match self.answer()? {
            Reply::Did { answer } => Ok(*answer),
            other => bail!("expected an answer of its agent, got {other:?}"),
        }
    }

    fn offset(&mut self) -> Result<ClockOffset> {
        let mut glimpses = Vec::new();
        for _ in 0..GLIMPSES {
            let sent = monotonic_ns();
            self.say(&Say::Clock)?;
            let Reply::Clock { shown_ns } = self.answer()? else { bail!("expected the time") };
            glimpses.push(Glimpse { sent, shown: shown_ns, back: monotonic_ns() });
        }
        ClockOffset::of(&glimpses).context("its clock contradicts itself: it was set, or is not monotonic")
    }
}

/// A machine that has a part of a block, until the block has ended.
pub(super) struct Helper<'a> {
    agent: &'a Agent<'a>,
    block: Block,
    experiment: Experiment,
    started: Option<Started>,
}

/// An agent of ours at work for the leader.
struct Started {
    child: GeneratorProcess,
    spec: Spec,
    clock: Clock,
}

impl<'a> Helper<'a> {
    /// `experiment` is the block's, with the secrets that this machine has.
    pub fn new(agent: &'a Agent<'a>, block: Block, experiment: Experiment) -> Helper<'a> {
        Helper { agent, block, experiment, started: None }
    }

    /// Does as the leader says until the block has ended. Whose leader is not heard of for twice the lease
    /// gives its part back: another may need this machine.
    ///
    /// # Errors
    /// The servers do not answer.
    pub fn serve(mut self, message: &Message, lease: Duration) -> Result<()> {
        let link = self.agent.link();
        let _ = self.agent.tell(State::Helping {
            experiment: self.block.experiment.clone(),
            block: self.block.key(),
            since_unix_s: unix_s(),
        });
        self.agent.log(&format!("has a part of the block {}", self.block.key()));
        let instance = self.agent.instance();
        let heard = link.wait(async {
            let calls = link.client.subscribe(call_subject(&self.block)).await?;
            let own = link.client.subscribe(part_subject(&self.block, &instance)).await?;
            anyhow::Ok(futures_util::stream::select(calls, own))
        });
        let mut heard = heard.context("listening to the leader of a block")?;
        let (mut renewed, mut spoken, mut holder) = (None::<Instant>, Instant::now(), None);
        loop {
            let next = link.wait(async { tokio::time::timeout(GLANCE, heard.next()).await });
            if self.agent.interrupted() {
                self.started = None;
                self.agent.acknowledge(message, AckKind::Nak(None));
                return Ok(());
            }
            if let Ok(next) = next {
                let said = next.context("the connection was closed")?;
                let shown_ns = monotonic_ns();
                spoken = Instant::now();
                let Some(reply_to) = said.reply.clone() else { continue };
                let payload = if said.subject.ends_with(".call") {
                    // Whoever calls begins anew.
                    self.started = None;
                    serde_json::to_vec(&self.here(&instance))?
                } else {
                    serde_json::to_vec(&self.obey(&said.payload, shown_ns))?
                };
                let _ = link.wait(link.client.publish(reply_to, payload.into()));
            }
            if renewed.is_none_or(|at| at.elapsed() > lease / 4) {
                renewed = Some(Instant::now());
                if link.wait(self.agent.was_ended(&self.block)) {
                    self.agent.acknowledge(message, AckKind::Ack);
                    return Ok(());
                }
                let _ = link.wait(message.ack_with(AckKind::Progress));
                let entry = link.wait(link.holders.entry(self.block.key()));
                let revision = entry.ok().flatten().map(|entry| entry.revision);
                if revision.is_some() && revision != holder {
                    (holder, spoken) = (revision, Instant::now());
                }
            }
            if spoken.elapsed() > 2 * lease {
                self.agent
                    .log(&format!("gave back its part of the block {}: nobody leads it", self.block.key()));
                self.agent.acknowledge(message, AckKind::Nak(Some(super::some_of(lease))));
                return Ok(());
            }
        }
    }

    fn here(&self, instance: &str) -> Here {
        Here {
            machine: self.agent.name().into(),
            instance: instance.into(),
            part: self.block.part,
            processors: crate::processors::count() as u32,
        }
    }

    fn obey(&mut self, payload: &[u8], shown_ns: u64) -> Reply {
        let say: Say = match serde_json::from_slice(payload) {
            Ok(say) => say,
            Err(error) => return Reply::Refused { reason: format!("it cannot be read: {error}") },
        };
        let done = match say {
            Say::Clock => return Reply::Clock { shown_ns },
            Say::Start { cell, changed, seed, part, origin_ns } => {
                self.start(&cell, changed, seed, part, origin_ns)
            }
            Say::Do { command } => self.pass_on(&command),
        };
        match done {
            Ok(answer) => Reply::Did { answer: Box::new(answer) },
            Err(error) => {
                self.started = None;
                Reply::Refused { reason: format!("{error:#}") }
            }
        }
    }

    fn start(
        &mut self,
        cell: &str,
        changed: Option<Resource>,
        seed: u64,
        part: Part,
        origin_ns: u64,
    ) -> Result<generator::Reply> {
        let mut cells = self.experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
        let planned = &cells.find(|own| own.id() == cell).context("no cell of the block")?.spec;
        let mut specs = changes(planned, self.block.search.as_ref());
        let spec = specs.find(|(resource, _)| *resource == changed).map(|(_, spec)| spec);
        let spec = spec.context("no search of the block changes that")?;
        if part.of != spec.load.machines || part.number >= part.of {
            bail!("no part of the load of {} machines", spec.load.machines);
        }
        let mut child = GeneratorProcess::start(None, None)?;
        let (folder, servers) = (Default::default(), Default::default());
        let clock = Clock::at(origin_ns);
        let answer = child.begin(&spec, folder, &servers, seed, part, clock)?;
        self.started = Some(Started { child, spec, clock });
        self.agent.log(&format!("sends its part of the load of the block {}", self.block.key()));
        Ok(answer)
    }

    fn pass_on(&mut self, command: &Command) -> Result<generator::Reply> {
        let Started { child, spec, clock } = self.started.as_mut().context("its agent was not started")?;
        if !may_be_told(command, &spec.load, self.block.search.as_ref(), clock.now()) {
            bail!("an agent of another machine is not told {command:?}");
        }
        let answer = child.ask(command)?;
        if matches!(command, Command::Stop) {
            self.started = None;
        }
        Ok(answer)
    }
}

/// Whether an agent that sends a part of `load` is told this by another machine: nothing that writes files,
/// loads or reads data, sends another load than a search in that range, or keeps it waiting.
pub(super) fn may_be_told(
    command: &Command,
    load: &LoadSpec,
    search: Option<&SearchSpec>,
    now: Tick,
) -> bool {
    let is_another = |other: &LoadSpec| other != load && !search.is_some_and(|s| s.may_send(other, load));
    match command {
        Command::Run { load: Some(other), .. } if is_another(other) => false,
        Command::Run { history, .. } => history.is_none(),
        Command::At { at, command } => *at < now + AHEAD && command.has_a_moment(),
        _ => command.is_of_sessions(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_of_another_machine_hears_of_sessions_and_of_nothing_else() {
        let plan = include_str!("../../../../experiments/capacity.toml");
        let experiment = Experiment::parse(plan, "tiny", &[]).unwrap();
        let load = &experiment.sweeps[0].cells[0].spec.load;
        let may = |command: Command| may_be_told(&command, load, None, Tick(5));
        let run = |load: Option<LoadSpec>, history: Option<&str>| Command::Run {
            load: load.map(Box::new),
            seed: None,
            history: history.map(Into::into),
        };
        let at = |at: Tick, command: Command| Command::At { at, command: Box::new(command) };
        let soon = Tick(20_000_000);
        let pace = || Command::Pace { think_ns: 0, request_path: false };
        for ours in [
            run(None, None),
            run(Some(load.clone()), None),
            pace(),
            Command::Offer,
            Command::Pause,
            Command::Cut,
            Command::Halt,
            Command::Stop,
            at(soon, Command::Cut),
        ] {
            assert!(may(ours.clone()), "{ours:?}");
        }
        let more = LoadSpec { sessions: load.sessions * 1000, ..load.clone() };
        for other in [
            run(None, Some("/etc/passwd")),
            run(Some(load.clone()), Some("/etc/passwd")),
            run(Some(more), None),
            Command::Load { threads: 1000 },
            Command::Prepare,
            Command::Examine,
            Command::Sample,
            Command::Check { history: "/etc/shadow".into(), evidence: "/etc/passwd".into() },
            Command::Writers { urls: vec![] },
            at(Tick(3_600_000_000_000), Command::Cut),
            at(soon, Command::Stop),
            at(soon, at(soon, Command::Load { threads: 1 })),
        ] {
            assert!(!may(other.clone()), "{other:?}");
        }
        // A search sends the loads of its range, and those only.
        let search = SearchSpec { most: 1_000.0, ..SearchSpec::default() };
        let may =
            |other: &LoadSpec| may_be_told(&run(Some(other.clone()), None), load, Some(&search), Tick(5));
        let at = |rate: f64| load.at(rate, search.scale);
        assert!(may(load) && may(&at(10.0)) && may(&at(1_000.0)));
        assert!(!may(&at(1_001.0)), "beyond its range");
        assert!(!may(&LoadSpec { sessions: 1_000, ..at(10.0) }), "other sessions");
        assert!(!may(&LoadSpec { retries: 1_000, ..at(10.0) }), "other retries");
    }
}
