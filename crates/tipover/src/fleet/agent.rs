//! A machine of a fleet: it takes one block at a time, carries it out as `tipover run` would, and gives back
//! what it measured.

use super::hold::{Held, Hold};
use super::link::Link;
use super::load::{Helper, Together};
use super::message::{
    Allowed, Block, Card, Demands, Given, Said, State, search_name, trial_name, unfit, version,
};
use super::{BLOCKS, RESULTS, fresh, some_of, unix_s};
use crate::foresight;
use crate::interrupt::{Interrupt, Interrupted};
use crate::machine;
use crate::runner::{self, Order};
use crate::store::Store;
use anyhow::{Context, Result, bail};
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{AckKind, Message, kv};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, select_all};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tipover_core::experiment::recipe::{RECIPES, Recipe};
use tipover_core::experiment::{Address, Experiment, SearchSpec, Trial};
use tipover_lab::Binaries;
use tokio::sync::{Mutex as Shared, Notify};

/// Between two words of an agent to the fleet.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a request for a block stands at the servers, at the most.
const PULL: Duration = Duration::from_secs(10);
/// Looks at what the user wants no less often.
const GLANCE: Duration = Duration::from_millis(200);
/// How long an ailing agent waits before it tries again.
const REST: Duration = Duration::from_secs(30);
/// A block that was taken so often and never ended is given up.
const MOST_TAKERS: u32 = 5;

/// What a machine is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name, a token of subjects.
    pub machine: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it carries out for others.
    pub allowed: Allowed,
    /// Where it works, and keeps what it has not given back yet.
    pub folder: PathBuf,
}

/// What the threads of an agent share.
struct Known {
    card: Mutex<Card>,
    lanes: Mutex<BTreeMap<String, Demands>>,
    lanes_changed: Notify,
    is_drained: AtomicBool,
}

impl Known {
    fn card(&self) -> Card {
        self.card.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An agent at work.
pub struct Agent<'a> {
    link: &'a Link,
    options: Options,
    known: Arc<Known>,
    interrupt: &'a Interrupt,
    _alone: File,
}

/// A block that the queue gave to us.
struct Taken {
    message: Message,
    block: Block,
    hold: Arc<Shared<Hold>>,
    /// Set when it is another's.
    is_lost: Arc<AtomicBool>,
    /// Set when too few are left to send its load.
    is_alone: AtomicBool,
}

/// What a machine tells of itself, before it works.
fn card(options: &Options) -> Card {
    let binaries = Binaries::default();
    let installed = |name: &str| {
        Recipe::named(name)
            .is_ok_and(|recipe| tipover_lab::installed(&recipe, None, false, &binaries).is_ok())
    };
    let installed = RECIPES.iter().filter(|(name, _)| installed(name)).map(|(name, _)| name.to_string());
    Card {
        machine: options.machine.clone(),
        instance: fresh(),
        version: version(),
        labels: options.labels.clone(),
        facts: machine::read(&options.folder),
        allowed: options.allowed.clone(),
        installed: installed.collect(),
        state: State::Idle,
        said_unix_s: unix_s(),
    }
}

impl<'a> Agent<'a> {
    /// Joins the fleet.
    ///
    /// # Errors
    /// Another agent works in this folder, or under this name elsewhere.
    pub fn join(link: &'a Link, options: Options, interrupt: &'a Interrupt) -> Result<Agent<'a>> {
        std::fs::create_dir_all(&options.folder)
            .with_context(|| format!("creating {}", options.folder.display()))?;
        let alone = File::create(options.folder.join("agent.lock"))?;
        if alone.try_lock().is_err() {
            bail!(
                "another agent works in {}: two on one machine would be in each other's numbers",
                options.folder.display()
            );
        }
        runner::clear_away(&options.folder.join(".work"))?;
        let card = card(&options);
        let there = link.wait(link.machines.get(options.machine.as_str())).context("asking who is there")?;
        let there: Option<Card> = there.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // One that was killed here is no obstacle: its folder is ours now.
        if let Some(there) = there.filter(|there| there.facts.folder.path != card.facts.folder.path) {
            bail!("a machine called {} is in the fleet already: give this one another --name", there.machine);
        }
        let known = Arc::new(Known {
            card: Mutex::new(card),
            lanes: Mutex::default(),
            lanes_changed: Notify::new(),
            is_drained: AtomicBool::new(false),
        });
        let agent = Agent { link, options, known, interrupt, _alone: alone };
        agent.tell(State::Idle)?;
        link.beside(speak(agent.known.clone(), link.machines.clone(), link.orders.clone()));
        link.beside(follow_lanes(agent.known.clone(), link.lanes.clone()));
        agent.log("joined the fleet");
        Ok(agent)
    }

    /// Carries out blocks until the user asks to stop.
    ///
    /// # Errors
    /// [`Interrupted`], and nothing else: whatever goes wrong with a block is said to the fleet.
    pub fn serve(&self) -> Result<()> {
        loop {
            // Carrying out a block ends its own hold, and a signal is still to be answered by leaving the
            // fleet.
            let _holding = self.interrupt.hold();
            if self.interrupt.is_asked() {
                let _ = self.link.wait(self.link.machines.delete(self.options.machine.as_str()));
                self.log("left the fleet");
                return Err(Interrupted.into());
            }
            if self.known.is_drained.load(Ordering::Relaxed) {
                self.tell(State::Drained)?;
                self.pause(HEARTBEAT);
                continue;
            }
            let worked = match self.link.wait(self.next_message()) {
                Ok(None) => continue,
                Ok(Some(message)) => self.work(message),
                Err(error) => Err(error),
            };
            let state = match worked {
                Ok(()) => State::Idle,
                Err(_) if self.interrupt.is_asked() => continue,
                Err(error) => {
                    let reason = format!("{error:#}");
                    self.log(&format!("something is wrong here: {reason}"));
                    State::Ailing { reason }
                }
            };
            let is_ailing = matches!(state, State::Ailing { .. });
            let _ = self.tell(state);
            if is_ailing {
                self.pause(REST);
                let _ = self.tell(State::Idle);
            }
        }
    }

    pub(super) fn link(&self) -> &Link {
        self.link
    }

    pub(super) fn name(&self) -> &str {
        &self.options.machine
    }

    pub(super) fn instance(&self) -> String {
        self.known.card().instance
    }

    pub(super) fn interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }

    pub(super) fn log(&self, line: &str) {
        self.link.log(&self.options.machine, &format!("{}: {line}", self.options.machine));
    }

    fn pause(&self, span: Duration) {
        let mut left = span;
        while !left.is_zero() && !self.interrupt.is_asked() {
            std::thread::sleep(GLANCE.min(left));
            left = left.saturating_sub(GLANCE);
        }
    }

    pub(super) fn tell(&self, state: State) -> Result<()> {
        {
            let facts = machine::read(&self.options.folder);
            let mut card = self.known.card.lock().unwrap_or_else(PoisonError::into_inner);
            (card.state, card.facts) = (state, facts);
        }
        let text = serde_json::to_vec(&said_now(&self.known))?;
        self.link.wait(self.link.machines.put(self.options.machine.as_str(), text.into()))?;
        Ok(())
    }

    /// The next block of a lane that we fit, if one comes before something else is to be looked at.
    async fn next_message(&self) -> Result<Option<Message>> {
        let card = {
            let mut card = self.known.card.lock().unwrap_or_else(PoisonError::into_inner);
            card.facts = machine::read(&self.options.folder);
            card.clone()
        };
        let lanes = self.known.lanes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fit: Vec<&String> = lanes
            .iter()
            .filter(|(_, demands)| unfit(&card, demands).is_empty())
            .map(|(lane, _)| lane)
            .collect();
        // Whoever asks all lanes at once is given a block of each.
        for lane in &fit {
            if let Some(message) = self.pull(lane, None).await? {
                return Ok(Some(message));
            }
        }
        let mut waits: Vec<BoxFuture<'_, Result<Option<Message>>>> = Vec::new();
        for lane in fit {
            waits.push(self.pull(lane, Some(PULL)).boxed());
        }
        waits.push(
            async {
                self.known.lanes_changed.notified().await;
                Ok(None)
            }
            .boxed(),
        );
        waits.push(
            async {
                while !self.interrupt.is_asked() && !self.known.is_drained.load(Ordering::Relaxed) {
                    tokio::time::sleep(GLANCE).await;
                }
                Ok(None)
            }
            .boxed(),
        );
        let (first, _, others) = select_all(waits).await;
        if matches!(first, Ok(Some(_))) {
            // What another lane gave in the same moment is for another machine, and at once.
            for other in others {
                if let Ok(Ok(Some(message))) = tokio::time::timeout(GLANCE / 4, other).await {
                    let _ = message.ack_with(AckKind::Nak(None)).await;
                }
            }
        }
        first
    }

    /// One block of a lane, if there is one or comes within `patience`. What comes to a request that was
    /// dropped comes again after the lease.
    async fn pull(&self, lane: &str, patience: Option<Duration>) -> Result<Option<Message>> {
        let consumer: PullConsumer =
            match self.link.blocks.get_consumer::<pull::Config>(&consumer_name(lane)).await {
                Ok(consumer) => consumer,
                Err(_) => {
                    // The lane was ended, or nobody answers.
                    tokio::time::sleep(patience.unwrap_or_default()).await;
                    return Ok(None);
                }
            };
        let asked = match patience {
            Some(patience) => consumer.batch().max_messages(1).expires(patience).messages().await,
            None => consumer.fetch().max_messages(1).messages().await,
        };
        let Ok(mut messages) = asked else {
            tokio::time::sleep(Duration::from_secs(1).min(patience.unwrap_or_default())).await;
            return Ok(None);
        };
        match messages.next().await {
            Some(Err(_)) => {
                // Turned away. Asking again at once would keep the servers busy with nothing.
                tokio::time::sleep(patience.unwrap_or_default()).await;
                Ok(None)
            }
            next => Ok(next.and_then(Result::ok)),
        }
    }

    /// Carries out a block as far as it is ours.
    ///
    /// # Errors
    /// What is wrong with this machine, so that others should try.
    fn work(&self, message: Message) -> Result<()> {
        let refuse = |message: &Message, reason: String| -> Result<()> {
            self.log(&format!("refused a block: {reason}"));
            self.end(&message.subject, Some(reason))?;
            self.acknowledge(message, AckKind::Term);
            Ok(())
        };
        let block: Block = match serde_json::from_slice(&message.payload) {
            Ok(block) => block,
            Err(error) => return refuse(&message, format!("it cannot be read: {error}")),
        };
        let mut experiment = block.experiment();
        if let Err(reason) = self.accept(&block, &experiment, &message.subject) {
            return refuse(&message, reason);
        }
        if self.link.wait(self.was_ended(&block)) {
            // What was asked for again at the moment when it ended.
            self.acknowledge(&message, AckKind::Ack);
            return Ok(());
        }
        self.put_in_secrets(&mut experiment)?;
        let lease = self.link.wait(self.lease(&block));
        if block.part > 0 {
            return Helper::new(self, block, experiment).serve(&message, lease);
        }
        if !self.are_enough(&message, &block, lease)? {
            self.log(&format!("gave back the block {}: too few are there to send its load", block.key()));
            self.acknowledge(&message, AckKind::Nak(Some(some_of(lease))));
            return Ok(());
        }
        let Card { machine, instance, .. } = self.known.card();
        let hold = self.link.wait(Hold::take(&self.link.holders, &block.key(), &machine, &instance))?;
        // Not by what the queue delivered: a block that was handed back unopened was delivered too.
        if hold.takers() > MOST_TAKERS {
            return refuse(&message, format!("it was taken {MOST_TAKERS} times and never ended"));
        }
        let (is_lost, is_alone) = Default::default();
        let taken = Taken { message, block, hold: Arc::new(Shared::new(hold)), is_lost, is_alone };
        let is_shared = !taken.block.demands.servers.is_empty();
        let (is_lost, hold) = (taken.is_lost.clone(), taken.hold.clone());
        let renewing = self.link.beside(renew(taken.message.clone(), hold, is_lost, lease, is_shared));
        let done = self.carry_out(&taken, &experiment, 2 * lease);
        renewing.abort();
        let is_ours = || self.link.wait(async { taken.hold.lock().await.renew().await }) == Held::Ours;
        if taken.is_alone.load(Ordering::Relaxed) && is_ours() {
            self.log(&format!("gave back the block {}: one that sent its load is gone", taken.block.key()));
            self.acknowledge(&taken.message, AckKind::Nak(Some(some_of(lease))));
            return Ok(());
        }
        if taken.is_lost.load(Ordering::Relaxed) {
            self.log(&format!(
                "lost the block {}: another has it, what was under way is dropped",
                taken.block.key()
            ));
            let _ = std::fs::remove_dir_all(self.results(&taken.block));
            return Ok(());
        }
        if let Err(error) = done {
            self.acknowledge(&taken.message, AckKind::Nak(None));
            return Err(error);
        }
        self.end(&taken.message.subject, None)?;
        self.acknowledge(&taken.message, AckKind::Ack);
        self.link.wait(async { taken.hold.lock().await.clone().drop_it().await });
        let _ = std::fs::remove_dir_all(self.results(&taken.block));
        Ok(())
    }

    /// Why this machine does not carry out a block, if so.
    pub(super) fn accept(&self, block: &Block, experiment: &Experiment, subject: &str) -> Result<(), String> {
        block.check(experiment, subject)?;
        let mut card = self.known.card();
        card.facts = machine::read(&self.options.folder);
        let reasons = unfit(&card, &block.demands);
        if !reasons.is_empty() {
            return Err(reasons.join("; "));
        }
        foresight::lacking(experiment, &self.options.folder).map_or(Ok(()), Err)
    }

    /// Gives the addresses of servers the passwords that this machine has for them.
    fn put_in_secrets(&self, experiment: &mut Experiment) -> Result<()> {
        for cell in experiment.sweeps.iter_mut().flat_map(|sweep| &mut sweep.cells) {
            let Some(address) = &mut cell.spec.target.address else { continue };
            let known =
                self.options.allowed.servers.iter().find(|known| known.address.shown() == address.shown());
            let Some(path) = known.and_then(|known| known.secret.as_ref()) else { continue };
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            let whole: Address = text.trim().parse().map_err(|_| {
                // Not what it holds: that is a secret.
                anyhow::anyhow!("{} holds no address of a server", path.display())
            })?;
            if whole.shown() != address.shown() {
                bail!("{} is the secret of another server than {}", path.display(), address.shown());
            }
            *address = whole;
        }
        Ok(())
    }

    async fn lease(&self, block: &Block) -> Duration {
        let name = consumer_name(&block.demands.lane());
        let consumer = self.link.blocks.get_consumer::<pull::Config>(&name).await;
        consumer.map_or(super::LEASE, |consumer: PullConsumer| consumer.cached_info().config.ack_wait)
    }

    /// Whether those are there with whom the loads of the block are sent.
    fn are_enough(&self, message: &Message, block: &Block, lease: Duration) -> Result<bool> {
        let wanted = block.machines() as usize - 1;
        if wanted == 0 {
            return Ok(true);
        }
        let given_up = || self.interrupted();
        let together = Together::new(self, block, &|| (), &given_up, 2 * lease);
        let renew = || drop(self.link.wait(message.ack_with(AckKind::Progress)));
        Ok(together.gather(wanted, renew)?.is_some())
    }

    pub(super) async fn was_ended(&self, block: &Block) -> bool {
        let subject = end_subject(&block.key());
        self.link.results.get_last_raw_message_by_subject(&subject).await.is_ok()
    }

    fn results(&self, block: &Block) -> PathBuf {
        self.options.folder.join("blocks").join(block.key())
    }

    /// Measures what is missing of a block here, and gives back all of it.
    fn carry_out(&self, taken: &Taken, experiment: &Experiment, patience: Duration) -> Result<()> {
        let block = &taken.block;
        let trials = block.trials(experiment).map_err(anyhow::Error::msg)?;
        let interrupt = self.interrupt.or(&taken.is_lost);
        let given_up = || interrupt.is_set();
        let alone = || {
            taken.is_alone.store(true, Ordering::Relaxed);
            taken.is_lost.store(true, Ordering::Relaxed);
        };
        let together = Together::new(self, block, &alone, &given_up, patience);
        let results = self.results(block);
        let note = format!("# Block {} of the experiment {}, for a fleet\n", block.key(), block.experiment);
        let store = Store::open(&results, experiment, &note, true)?;
        let since_unix_s = unix_s();
        let work = self.options.folder.join(".work");
        let order = Order {
            experiment,
            store: &store,
            work: &work,
            command: &block.command,
            interrupt: &interrupt,
            live: None,
            fleet: Some(&together),
            page: None,
        };
        if let Some(search) = &block.search {
            return self.search(taken, order, search);
        }
        let done = std::cell::Cell::new(0);
        let give = |trial: &Trial<'_>| -> Result<()> {
            let place = trials.iter().position(|known| known == trial).context("a trial of another block")?;
            self.give(taken, place, trial_name(trial), store.files(trial)?, &interrupt)?;
            done.set(done.get() + 1);
            let _ = self.tell(State::Working {
                experiment: block.experiment.clone(),
                block: block.key(),
                done: done.get(),
                of: trials.len(),
                since_unix_s,
            });
            Ok(())
        };
        // What another machine gave back before it lost the block is done.
        let is_given = |trial: &&Trial<'_>| {
            let place = trials.iter().position(|known| known == *trial).unwrap_or_default();
            let subject = trial_subject(&block.key(), place);
            self.link.wait(self.link.results.get_last_raw_message_by_subject(&subject)).is_ok()
        };
        let (given, trials_left): (Vec<&Trial<'_>>, Vec<&Trial<'_>>) = trials.iter().partition(is_given);
        done.set(given.len());
        let trials_left: Vec<Trial<'_>> = trials_left.into_iter().cloned().collect();
        let missing = store.missing(trials_left.clone(), false, |damaged| self.log(damaged))?;
        self.log(&format!(
            "took the block {} of {}: {} of {} trials",
            block.key(),
            block.experiment,
            missing.len(),
            trials.len()
        ));
        let _ = self.tell(State::Working {
            experiment: block.experiment.clone(),
            block: block.key(),
            done: done.get(),
            of: trials.len(),
            since_unix_s,
        });
        // Finished here before something went wrong, and perhaps not given back.
        for trial in trials_left.iter().filter(|trial| !missing.contains(trial)) {
            give(trial)?;
        }
        runner::carry_out(order, missing, |trial, _| give(trial)).map(drop)
    }

    /// Searches in the cell of a block, from where we were before if we were, and gives back what was found.
    fn search(&self, taken: &Taken, order: Order<'_>, search: &SearchSpec) -> Result<()> {
        let block = &taken.block;
        let subject = trial_subject(&block.key(), 0);
        if self.link.wait(self.link.results.get_last_raw_message_by_subject(&subject)).is_ok() {
            return Ok(());
        }
        self.log(&format!("took the block {} of {}: a search", block.key(), block.experiment));
        let _ = self.tell(State::Working {
            experiment: block.experiment.clone(),
            block: block.key(),
            done: 0,
            of: 0,
            since_unix_s: unix_s(),
        });
        runner::find(order, search)?;
        let cell = &block.cells[0];
        self.give(taken, 0, search_name(cell, search), order.store.files_of_search(cell), order.interrupt)
    }

    /// Gives back the files of what was carried out, if the block is ours still.
    fn give(
        &self,
        taken: &Taken,
        place: usize,
        what: String,
        from: Vec<(String, PathBuf)>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut files = Vec::new();
        for (name, path) in from {
            let (digest, size_bytes) = self.again_until(interrupt, || self.link.put_file(&path))?;
            files.push(Given { name, digest, size_bytes });
        }
        let is_ours = self.link.wait(async { taken.hold.lock().await.insist(|| interrupt.is_set()).await });
        if !is_ours {
            if !self.interrupt.is_asked() {
                taken.is_lost.store(true, Ordering::Relaxed);
            }
            return Err(Interrupted.into());
        }
        let said = Said::Done { what, machine: self.options.machine.clone(), files };
        let subject = trial_subject(&taken.block.key(), place);
        self.again_until(interrupt, || self.link.say_once(&subject, &said))
    }

    /// Tries until the servers are there again, or the block is nobody's of ours.
    fn again_until<T>(&self, interrupt: &Interrupt, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match work() {
                Ok(done) => return Ok(done),
                Err(error) if interrupt.is_set() => return Err(error),
                Err(error) => {
                    eprintln!("the fleet is out of reach ({error:#}); trying again");
                    self.pause(Duration::from_secs(1));
                }
            }
        }
    }

    fn end(&self, subject: &str, reason: Option<String>) -> Result<()> {
        let mut tokens = subject.strip_prefix(BLOCKS).unwrap_or_default().split('.').skip(2);
        let (run, number) = (tokens.next().unwrap_or("unknown"), tokens.next().unwrap_or("0"));
        let said = Said::End { machine: self.options.machine.clone(), reason };
        let subject = end_subject(&format!("{run}.{number}"));
        self.again_until(self.interrupt, || self.link.say_once(&subject, &said))
    }

    pub(super) fn acknowledge(&self, message: &Message, kind: AckKind) {
        // One that is not heard comes again, and is seen to be ended.
        let _ = self.link.wait(message.double_ack_with(kind));
    }
}

/// The subject on which it is said that a trial of a block was carried out.
pub(super) fn trial_subject(key: &str, place: usize) -> String {
    format!("{RESULTS}.{key}.trial.{place}")
}

/// The subject on which the end of a block is said.
pub fn end_subject(key: &str) -> String {
    format!("{RESULTS}.{key}.end")
}

/// The name of the consumer of a lane.
pub fn consumer_name(lane: &str) -> String {
    format!("lane-{lane}")
}

fn said_now(known: &Known) -> Card {
    let mut card = known.card.lock().unwrap_or_else(PoisonError::into_inner);
    card.said_unix_s = unix_s();
    card.clone()
}

/// Says now and then that we are there, and hears what we are told.
async fn speak(known: Arc<Known>, machines: kv::Store, orders: kv::Store) {
    loop {
        // A thousand that joined together do not go on speaking together.
        tokio::time::sleep(HEARTBEAT * 4 / 5 + some_of(HEARTBEAT / 5)).await;
        let card = said_now(&known);
        let text = serde_json::to_vec(&card).expect("a card is plain data");
        // Who cannot be heard is silent.
        let _ = machines.put(card.machine.as_str(), text.into()).await;
        if let Ok(order) = orders.get(card.machine.as_str()).await {
            known.is_drained.store(order.is_some_and(|order| order.as_ref() == b"drain"), Ordering::Relaxed);
        }
    }
}

/// Keeps the lanes as they are.
async fn follow_lanes(known: Arc<Known>, lanes: kv::Store) {
    loop {
        let watched = lanes.watch_with_history(">").await;
        if let Err(error) = &watched {
            eprintln!("which work there is cannot be heard: {error}");
        }
        if let Ok(mut changes) = watched {
            while let Some(Ok(entry)) = changes.next().await {
                let demands = match entry.operation {
                    kv::Operation::Put => serde_json::from_slice::<Demands>(&entry.value).ok(),
                    _ => None,
                };
                let mut lanes = known.lanes.lock().unwrap_or_else(PoisonError::into_inner);
                match demands {
                    // Another version may have other demands; they are not ours to meet.
                    Some(demands) => lanes.insert(entry.key, demands),
                    None => lanes.remove(&entry.key),
                };
                known.lanes_changed.notify_one();
            }
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// Keeps the lease and the hold of a block alive, and says when it is lost. A block that asks a server that
/// others may ask too is given up, when nobody was heard for the length of the lease: the next machine may be
/// at work on it.
async fn renew(
    message: Message,
    hold: Arc<Shared<Hold>>,
    is_lost: Arc<AtomicBool>,
    lease: Duration,
    is_shared: bool,
) {
    loop {
        tokio::time::sleep(lease / 4).await;
        let mut hold = hold.lock().await;
        let held = hold.renew().await;
        let is_gone = match held {
            Held::Ours => {
                let _ = message.ack_with(AckKind::Progress).await;
                false
            }
            Held::Lost => true,
            Held::Unknown => is_shared && hold.unheard() > lease,
        };
        if is_gone {
            is_lost.store(true, Ordering::Relaxed);
            return;
        }
    }
}

/// A name as a token of subjects: what is not allowed there becomes a dash.
pub fn name_of(host: &str) -> String {
    let name: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect();
    let name = name.trim_matches('-').to_string();
    if name.is_empty() { "machine".into() } else { name }
}

/// All recipes that come with tipover, for an agent whose user is the one who asks.
pub fn every_recipe() -> BTreeSet<String> {
    RECIPES.iter().map(|(name, _)| name.to_string()).collect()
}
