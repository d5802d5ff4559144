//! Who asks a fleet for trials and searches: blocks go into the queue, and what came of them comes back into
//! the results folder, whenever somebody asks.

use super::agent::consumer_name;
use super::link::{Link, digest_of};
use super::message::{Block, Card, Demands, Given, Said, search_name, trial_name, unfit};
use super::{BLOCKS, RESULTS, Refused, fresh, patiently};
use crate::interrupt::Interrupt;
use crate::store::{Store, replace_file};
use anyhow::{Context, Result, bail};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tipover_core::experiment::{Cell, Experiment, SearchSpec, Trial};
use tipover_core::record::{Record, Verdict};
use tipover_core::search::SearchRecord;

/// What this results folder has asked a fleet for.
const FILE: &str = "fleet.json";
/// Blocks that are on their way into the queue at a time.
const AT_A_TIME: usize = 256;
/// How long nobody may ask a consumer before the servers remove it.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// What is waited for is written down no more often: of many blocks it is a long list.
const KEPT_EVERY: Duration = Duration::from_secs(2);
/// At a server no request waits longer for a result.
const GLANCE: Duration = Duration::from_millis(300);
/// Files that a trial can have; nothing else is taken from others.
const FILES: [&str; 7] = [
    "record.json",
    "series.jsonl",
    "latency.hlog",
    "history.bin",
    "evidence.json",
    "accesses.trace",
    "accesses.trace.map",
];

/// Which run this results folder is to the fleet, and what it waits for. Written before blocks are, so that
/// a run that is killed between the two asks again for the same blocks, which the queue takes once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    run: String,
    /// The number of the next block.
    next: u64,
    /// Blocks whose end was not heard of, each with the names of its trials, or of its search.
    waiting: BTreeMap<u64, Vec<String>>,
}

/// What became of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Fetched {
    /// Trials and searches that came now.
    pub fetched: usize,
    /// Of these, those that cannot be believed.
    pub invalid: usize,
    /// Of these, those that failed.
    pub failed: usize,
    /// Those that are waited for.
    pub waiting: usize,
    /// Blocks that nobody carries out.
    pub refused: usize,
}

/// What a fleet is asked for.
#[derive(Clone)]
enum Piece<'a> {
    Trial(Trial<'a>),
    Search(&'a Cell, &'a SearchSpec),
}

impl Piece<'_> {
    fn name(&self) -> String {
        match self {
            Piece::Trial(trial) => trial_name(trial),
            Piece::Search(cell, search) => search_name(cell, search),
        }
    }
}

/// The trials of an experiment, or the searches in its cells, here and at the fleet.
pub struct Coordinator<'a> {
    link: &'a Link,
    store: &'a Store,
    experiment: &'a Experiment,
    search: Option<&'a SearchSpec>,
    asked: Asked,
}

impl<'a> Coordinator<'a> {
    /// What was asked for from this folder before, or a new run: of searches in all cells, if one is given,
    /// and of trials otherwise.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(
        link: &'a Link,
        store: &'a Store,
        experiment: &'a Experiment,
        search: Option<&'a SearchSpec>,
    ) -> Result<Coordinator<'a>> {
        let path = store.folder().join(FILE);
        let asked = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            read => {
                let read = read.with_context(|| format!("reading {}", path.display()))?;
                let asked = serde_json::from_slice(&read).with_context(|| {
                    format!(
                        "{} is damaged: remove it, and what is missing is asked for anew (`tipover fleet cancel` ends \
                         what was asked for before)",
                        path.display()
                    )
                })?;
                Some(asked)
            }
        };
        let new = || Asked { run: fresh(), next: 0, waiting: BTreeMap::new() };
        Ok(Coordinator { link, store, experiment, search, asked: asked.unwrap_or_else(new) })
    }

    /// The name of the run at the fleet.
    pub fn run(&self) -> &str {
        &self.asked.run
    }

    fn keep(&self) -> Result<()> {
        let path: PathBuf = self.store.folder().join(FILE);
        replace_file(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, &self.asked)?;
            Ok(file.write_all(b"\n")?)
        })
    }

    /// What can be asked for, as it stays together on one machine.
    fn pieces(&self) -> Vec<Vec<Piece<'a>>> {
        let cells = self.experiment.sweeps.iter().flat_map(|sweep| &sweep.cells);
        match self.search {
            Some(search) => cells.map(|cell| vec![Piece::Search(cell, search)]).collect(),
            None => {
                let blocks = self.experiment.blocks().into_iter();
                blocks.map(|trials| trials.into_iter().map(Piece::Trial).collect()).collect()
            }
        }
    }

    fn by_name(&self) -> BTreeMap<String, Piece<'a>> {
        self.pieces().into_iter().flatten().map(|piece| (piece.name(), piece)).collect()
    }

    /// The names of what is not here.
    fn missing(&self, retry: bool) -> Result<BTreeSet<String>> {
        let Some(search) = self.search else {
            let all = self.experiment.trials();
            let missing = self.store.missing(all, retry, |damaged| eprintln!("{damaged}"))?;
            return Ok(missing.iter().map(trial_name).collect());
        };
        let goals = search.goals(self.experiment.seed)?;
        let mut missing = BTreeSet::new();
        for cell in self.experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            let known = self.store.search(cell, |damaged| eprintln!("{damaged}"))?;
            let is_it = |known: &SearchRecord| known.is_of(&search.promises, &goals);
            if !known.is_some_and(|known| is_it(&known) && known.is_complete(search)) {
                missing.insert(search_name(cell, search));
            }
        }
        Ok(missing)
    }

    fn block(&self, number: u64, pieces: &[Piece<'a>], command: &str) -> Block {
        let block = match pieces {
            [Piece::Search(cell, search)] => Block::of_search(self.experiment, cell, search, command),
            pieces => {
                let trial = |piece: &Piece<'a>| match piece {
                    Piece::Trial(trial) => Some(trial.clone()),
                    Piece::Search(..) => None,
                };
                let trials: Vec<Trial<'_>> = pieces.iter().filter_map(trial).collect();
                Block::of(self.experiment, &trials, command)
            }
        };
        Block { run: self.asked.run.clone(), number, ..block }
    }

    /// Asks for what is missing and not asked for already; `retry` also for trials that cannot be believed.
    /// Says for how many trials or searches it asked.
    ///
    /// # Errors
    /// A block that no machine of the fleet can carry out, with what each of them lacks.
    pub fn ask(&mut self, retry: bool, command: &str, lease: Duration) -> Result<usize> {
        refuse_secrets(self.experiment)?;
        let waiting: BTreeSet<String> = self.asked.waiting.values().flatten().cloned().collect();
        let missing = self.missing(retry)?;
        let is_wanted = |name: &String| missing.contains(name) && !waiting.contains(name);
        let mut new: BTreeMap<u64, Vec<Piece<'_>>> = BTreeMap::new();
        let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut lanes: BTreeMap<String, (Demands, u32)> = BTreeMap::new();
        for together in self.pieces() {
            let named = together.into_iter().map(|piece| (piece.name(), piece));
            let (wanted, pieces): (Vec<String>, Vec<Piece<'_>>) =
                named.filter(|(name, _)| is_wanted(name)).unzip();
            if pieces.is_empty() {
                continue;
            }
            let number = self.asked.next + new.len() as u64;
            let block = self.block(number, &pieces, command);
            let machines = block.machines();
            let lane = lanes.entry(block.demands.lane()).or_insert((block.demands, 1));
            lane.1 = lane.1.max(machines);
            new.insert(number, pieces);
            names.insert(number, wanted);
        }
        let cards = machines(self.link)?;
        for (demands, machines) in lanes.values() {
            refuse_what_nobody_can(&cards, demands, *machines)?;
        }
        for (lane, (demands, _)) in &lanes {
            self.link.wait(self.open_lane(lane, demands, lease))?;
        }
        let asked_for = new.values().map(Vec::len).sum();
        // Also those that were asked for before and may never have reached the queue.
        let unheard = self.unheard();
        self.asked.next += new.len() as u64;
        self.asked.waiting.extend(names);
        self.keep()?;
        let all = unheard.iter().chain(&new);
        let blocks = all.map(|(number, pieces)| self.block(*number, pieces, command));
        self.link.wait(self.publish(blocks))?;
        Ok(asked_for)
    }

    /// What was asked for before and has not ended.
    fn unheard(&self) -> BTreeMap<u64, Vec<Piece<'a>>> {
        let by_name = if self.asked.waiting.is_empty() { BTreeMap::new() } else { self.by_name() };
        let mut unheard = BTreeMap::new();
        for (number, names) in &self.asked.waiting {
            let pieces: Vec<Piece<'_>> = names.iter().filter_map(|name| by_name.get(name)).cloned().collect();
            // Cells of another scale, or that --only leaves out, wait for the next time.
            if pieces.len() == names.len() {
                unheard.insert(*number, pieces);
            }
        }
        unheard
    }

    async fn open_lane(&self, lane: &str, demands: &Demands, lease: Duration) -> Result<()> {
        let consumer = pull::Config {
            durable_name: Some(consumer_name(lane)),
            filter_subject: format!("{BLOCKS}.{lane}.>"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: lease,
            max_ack_pending: 100_000,
            // Each idle machine of a fleet is one that waits; by default the 513th is turned away.
            max_waiting: 100_000,
            inactive_threshold: UNUSED,
            ..Default::default()
        };
        self.link.blocks.create_consumer(consumer).await.context("making the queue of a lane")?;
        self.link.lanes.put(lane, serde_json::to_vec(demands)?.into()).await.context("opening a lane")?;
        Ok(())
    }

    /// Puts blocks into the queue as they are made: all of them at once would be more than memory should
    /// hold.
    async fn publish(&self, mut blocks: impl Iterator<Item = Block>) -> Result<()> {
        loop {
            let mut sent = Vec::new();
            for block in blocks.by_ref().take(AT_A_TIME).flat_map(|block| block.parts().collect::<Vec<_>>()) {
                let message = PublishMessage::build()
                    .payload(serde_json::to_vec(&block)?.into())
                    .expected_last_subject_sequence(0);
                sent.push(self.link.context.send_publish(block.subject(), message).await?);
            }
            if sent.is_empty() {
                return Ok(());
            }
            for acknowledged in sent {
                match acknowledged.await {
                    Ok(_) => {}
                    // It is in the queue already.
                    Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {}
                    Err(error) => return Err(error).context("putting a block into the queue"),
                }
            }
        }
    }

    /// How many of the trials or searches are here, and of how many.
    ///
    /// # Errors
    /// The system refuses to read the results.
    pub fn here(&self) -> Result<(usize, usize)> {
        let planned = match self.search {
            Some(_) => self.experiment.sweeps.iter().map(|sweep| sweep.cells.len()).sum(),
            None => self.experiment.trials().len(),
        };
        Ok((planned - self.missing(false)?.len(), planned))
    }

    /// Takes in what has come; with `wait`, until every block has ended. `hear` is told of each trial.
    ///
    /// # Errors
    /// An interrupt: the fleet goes on without us; or something cannot be kept here.
    pub fn fetch(
        &mut self,
        wait: bool,
        interrupt: &Interrupt,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Fetched> {
        let by_name = self.by_name();
        let mut fetched = Fetched::default();
        let mut at_fleet: BTreeMap<u64, AtFleet> = BTreeMap::new();
        let mut from = 0;
        let (mut said, mut kept) = (Instant::now(), Instant::now());
        loop {
            if kept.elapsed() > KEPT_EVERY {
                self.keep()?;
                kept = Instant::now();
            }
            interrupt.check()?;
            match self.link.wait(self.next_result(from)) {
                Ok(Some(result)) => {
                    from = result.sequence + 1;
                    let block = at_fleet.entry(result.block).or_default();
                    self.take_in(&by_name, result, block, &mut fetched, interrupt, hear)?;
                }
                Ok(None) if !wait || self.left(&by_name, &at_fleet).next().is_none() => break,
                Ok(None) => {
                    std::thread::sleep(GLANCE);
                    if said.elapsed() > Duration::from_secs(30) {
                        said = Instant::now();
                        let machines = machines(self.link).map_or(0, |cards| cards.len());
                        hear(&format!(
                            "waiting for {} blocks; machines in the fleet: {machines}",
                            self.left(&by_name, &at_fleet).count()
                        ));
                    }
                }
                Err(error) if wait => {
                    hear(&format!("the fleet is out of reach ({error:#}); trying again"));
                    std::thread::sleep(Duration::from_secs(2));
                }
                Err(error) => return Err(error),
            }
        }
        self.keep()?;
        let came = |number: &u64| at_fleet.get(number).map_or(0, |block| block.trials);
        let left = self.left(&by_name, &at_fleet);
        fetched.waiting = left.map(|(number, names)| names.len().saturating_sub(came(number))).sum();
        Ok(fetched)
    }

    /// The blocks that are waited for: not those of another scale, nor trials where searches are asked for.
    fn left(
        &self,
        by_name: &BTreeMap<String, Piece<'_>>,
        at_fleet: &BTreeMap<u64, AtFleet>,
    ) -> impl Iterator<Item = (&u64, &Vec<String>)> {
        let has_ended = |number: &u64| at_fleet.get(number).is_some_and(|block| block.has_ended);
        let is_ours = |names: &Vec<String>| names.iter().any(|name| by_name.contains_key(name));
        self.asked.waiting.iter().filter(move |(number, names)| is_ours(names) && !has_ended(number))
    }

    /// The first result of this run at or after a place in the stream.
    async fn next_result(&self, from: u64) -> Result<Option<Told>> {
        use async_nats::jetstream::stream::RawMessageErrorKind as Kind;
        let subject = format!("{RESULTS}.{}.>", self.asked.run);
        let builder = self.link.results.raw_message_builder().sequence(from.max(1));
        match builder.next_by_subject(subject).send().await {
            Ok(message) => {
                let block = message.subject.split('.').nth(3).and_then(|number| number.parse().ok());
                let (sequence, payload) = (message.sequence, message.payload.to_vec());
                Ok(Some(Told { sequence, block: block.unwrap_or(u64::MAX), payload }))
            }
            Err(error) if matches!(error.kind(), Kind::NoMessageFound) => Ok(None),
            Err(error) => Err(error).context("asking for results"),
        }
    }

    /// Whether a file of a trial is here with this content.
    fn is_here(&self, trial: &Trial<'_>, wanted: &Given) -> bool {
        let files = self.store.files(trial).unwrap_or_default();
        let path = files.into_iter().find(|(name, _)| *name == wanted.name).map(|(_, path)| path);
        path.is_some_and(|path| digest_of(&path).is_ok_and(|(digest, _)| digest == wanted.digest))
    }

    /// Keeps what was told. It stays at the fleet until its block has ended, so that whoever carries out the
    /// rest of a block that was lost sees what is done.
    fn take_in(
        &mut self,
        by_name: &BTreeMap<String, Piece<'_>>,
        told: Told,
        block: &mut AtFleet,
        fetched: &mut Fetched,
        interrupt: &Interrupt,
        hear: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let bring =
            |file: &Given, path: &Path| patiently(interrupt, || self.link.get_file(&file.digest, path));
        let said: Said = match serde_json::from_slice(&told.payload) {
            Ok(said) => said,
            Err(error) => {
                hear(&format!("a result that cannot be read is left at the fleet: {error}"));
                return Ok(());
            }
        };
        match said {
            Said::End { machine, reason } => {
                block.has_ended = true;
                let waiting = self.asked.waiting.get(&told.block);
                // What is not taken in now stays at the fleet, for whoever asks for it here the next time.
                if waiting.is_some_and(|names| names.iter().any(|name| !by_name.contains_key(name))) {
                    return Ok(());
                }
                let Some(trials) = self.asked.waiting.remove(&told.block) else { return Ok(()) };
                if let Some(reason) = reason {
                    fetched.refused += 1;
                    let what = if self.search.is_some() { "search" } else { "trials" };
                    hear(&format!("{machine} gave up a block of {} {what}: {reason}", trials.len()));
                }
                // All of it is here, on the disk. Its end stays at the fleet, so that nobody begins it again,
                // and so that it is seen to have ended by whoever goes on here after a kill.
                let trials = format!("{RESULTS}.{}.{}.trial.*", self.asked.run, told.block);
                self.link.wait(async {
                    let digests = futures_util::stream::iter(std::mem::take(&mut block.digests));
                    let remove = async |digest: String| drop(self.link.objects.delete(&digest).await);
                    digests.for_each_concurrent(AT_A_TIME, remove).await;
                    let _ = self.link.results.purge().filter(trials).await;
                });
                Ok(())
            }
            Said::Done { what, machine, files } => {
                // One of another scale, or that --only leaves out, waits for the next time.
                let Some(piece) = by_name.get(&what) else { return Ok(()) };
                block.trials += 1;
                block.digests.extend(files.iter().map(|file| file.digest.clone()));
                let trial = match piece {
                    Piece::Trial(trial) => trial,
                    Piece::Search(cell, search) => {
                        let file = files.first().with_context(|| format!("{machine} gave no search"))?;
                        let bring = |path: &Path| bring(file, path);
                        let seed = self.experiment.seed;
                        if let Some(record) = self.store.keep_brought_search(cell, search, seed, bring)? {
                            fetched.fetched += 1;
                            fetched.failed += usize::from(record.failed.is_some());
                            hear(&format!("{} from {machine}: {}", cell.id(), found(&record)));
                        }
                        return Ok(());
                    }
                };
                let record = files.iter().find(|file| file.name == "record.json");
                if record.is_some_and(|record| self.is_here(trial, record)) {
                    return Ok(());
                }
                let brought = self.store.keep_brought(trial, self.experiment.seed, |staged| {
                    for file in &files {
                        if !FILES.contains(&file.name.as_str()) {
                            bail!("{machine} gave a file of a name that no trial has: {:?}", file.name);
                        }
                        bring(file, &staged.join(&file.name))?;
                    }
                    Ok(())
                })?;
                if let Some(record) = brought {
                    fetched.count(&record);
                    hear(&format!("{what} from {machine}: {}", in_a_word(&record)));
                }
                Ok(())
            }
        }
    }
}

/// A message of the stream of results.
struct Told {
    sequence: u64,
    block: u64,
    payload: Vec<u8>,
}

/// What the fleet holds of a block.
#[derive(Default)]
struct AtFleet {
    has_ended: bool,
    trials: usize,
    digests: BTreeSet<String>,
}

impl Fetched {
    /// Both, one after the other.
    pub fn and(self, later: Fetched) -> Fetched {
        Fetched {
            fetched: self.fetched + later.fetched,
            invalid: self.invalid + later.invalid,
            failed: self.failed + later.failed,
            waiting: later.waiting,
            refused: self.refused + later.refused,
        }
    }

    /// Whether something went wrong with what came.
    pub fn is_bad(self) -> bool {
        self.invalid + self.failed + self.refused > 0
    }

    fn count(&mut self, record: &Record) {
        self.fetched += 1;
        match record.verdict {
            Verdict::Valid => {}
            Verdict::Invalid { .. } => self.invalid += 1,
            Verdict::Failed { .. } => self.failed += 1,
        }
    }
}

impl std::fmt::Display for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fetched { fetched, invalid, failed, waiting, refused } = self;
        write!(
            f,
            "{fetched} came from the fleet ({invalid} not valid, {failed} failed), {waiting} are waited for"
        )?;
        match refused {
            0 => Ok(()),
            _ => write!(f, ", {refused} blocks were given up"),
        }
    }
}

fn found(record: &SearchRecord) -> String {
    let answer = record.planned().and_then(|planned| planned.answer());
    let sentence = answer.and_then(|answer| Some(answer.capacities.first()?.sentence()));
    match &record.failed {
        Some(reason) => format!("failed: {reason}"),
        None => sentence.unwrap_or_else(|| "no answer".into()),
    }
}

fn in_a_word(record: &Record) -> String {
    match &record.verdict {
        Verdict::Valid => "valid".into(),
        Verdict::Invalid { reasons } => format!("not valid: {}", reasons.join("; ")),
        Verdict::Failed { reason } => format!("failed: {reason}"),
    }
}

/// Everybody who is there.
///
/// # Errors
/// The servers do not answer.
pub fn machines(link: &Link) -> Result<Vec<Card>> {
    let mut cards: Vec<Card> = link.wait(async {
        let mut cards = Vec::new();
        let mut keys = link.machines.keys().await.context("asking who is there")?;
        while let Some(key) = keys.next().await {
            let key = key.context("asking who is there")?;
            if let Some(text) = link.machines.get(key.as_str()).await.context("asking who is there")?
                && let Ok(card) = serde_json::from_slice(&text)
            {
                cards.push(card);
            }
        }
        anyhow::Ok(cards)
    })?;
    cards.sort_by(|a, b| a.machine.cmp(&b.machine));
    Ok(cards)
}

/// Ends a run: takes its blocks out of the queue and forgets what came of them. Whoever carries one out now
/// ends it in vain.
///
/// # Errors
/// The servers do not answer.
pub fn cancel(link: &Link, run: &str) -> Result<u64> {
    link.wait(async {
        let removed = link.blocks.purge().filter(format!("{BLOCKS}.*.{run}.>")).await?;
        link.results.purge().filter(format!("{RESULTS}.{run}.>")).await?;
        Ok(removed.purged)
    })
}

/// Passwords stay where they are.
fn refuse_secrets(experiment: &Experiment) -> Result<()> {
    for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
        if let Some(address) = cell.spec.target.address.as_ref().filter(|a| a.with_secrets() != a.shown()) {
            return Err(Refused(format!(
                "{}: a password would be in every message to the fleet. Leave it out here, and give it to the agents: \
                 a [[server]] with this address and `secret = \"FILE\"` in their --allow",
                address.shown()
            ))
            .into());
        }
    }
    Ok(())
}

/// # Errors
/// No machine can, or too few; what each of the others lacks, the nearest first.
fn refuse_what_nobody_can(cards: &[Card], demands: &Demands, machines: u32) -> Result<()> {
    let mut all: Vec<Vec<String>> = cards.iter().map(|card| unfit(card, demands)).collect();
    let fit = all.iter().filter(|reasons| reasons.is_empty()).count();
    if fit >= machines as usize {
        return Ok(());
    }
    all.retain(|reasons| !reasons.is_empty());
    let who = match fit {
        0 => "no machine of the fleet can carry this out".to_string(),
        _ => format!("load.machines = {machines}, and only {fit} of the fleet can carry this out"),
    };
    if cards.is_empty() {
        return Err(Refused(
            "the fleet has no machines: start `tipover agent` on each machine that shall work".into(),
        )
        .into());
    }
    all.sort_by_key(Vec::len);
    let most = 5;
    let mut lines: Vec<String> = all.iter().take(most).map(|reasons| reasons.join("; ")).collect();
    if all.len() > most {
        lines.push(format!("and {} machines more", all.len() - most));
    }
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    Err(Refused(format!("{who}{}{lines}", if lines.is_empty() { "" } else { ":" })).into())
}

/// Whether results of `run` wait to be fetched, and how many of its blocks are in the queue.
///
/// # Errors
/// The servers do not answer.
pub fn waiting(link: &Link) -> Result<BTreeMap<String, (u64, u64)>> {
    link.wait(async {
        let mut runs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut blocks = link.blocks.info_with_subjects(format!("{BLOCKS}.>")).await?;
        while let Some(subject) = blocks.next().await {
            let (subject, count) = subject?;
            // Parts that others have of a block are no blocks.
            if let (Some(run), None) = (subject.split('.').nth(3), subject.split('.').nth(5)) {
                runs.entry(run.to_string()).or_default().0 += count as u64;
            }
        }
        let mut results = link.results.info_with_subjects(format!("{RESULTS}.>")).await?;
        while let Some(subject) = results.next().await {
            let (subject, count) = subject?;
            if let (Some(run), false) = (subject.split('.').nth(2), subject.ends_with(".end")) {
                runs.entry(run.to_string()).or_default().1 += count as u64;
            }
        }
        Ok(runs)
    })
}
