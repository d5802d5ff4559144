//! Carries out a schedule of faults on a cluster, and says of each what it hit.
//!
//! Everything is undone: at its time by the schedule, at the end by [`Conductor::finish`], and when this
//! process is killed because processes, disks and networks end with it.

use crate::cluster::{Cluster, ClusterError, LinkFault};
use crate::network::{LABORATORY, Link};
use crate::node::{Node, NodeError, effect};
use rustix::fs::FallocateFlags;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};
use tipover_core::check::{Carried, NewPrimary};
use tipover_core::device::{self, CutReport, PowerCut};
use tipover_core::experiment::PowerCuts;
use tipover_core::experiment::recipe::Replication;
use tipover_core::schedule::{self, Action, Effect, Fault, Injection, Nodes, Outage, Schedule, Timed};
use tipover_core::units::{Bytes, Tick, span};

/// How the schedule is carried out where it leaves something open.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What power cuts do to what was not flushed, in turns; each cut draws from a seed of its own.
    pub power: PowerCuts,
    /// Which of them comes first: the number of the run, so that runs of one fault each differ.
    pub turn: u32,
    /// How long a primary is dead before a replica takes its place; 0: none ever does.
    pub failover: Duration,
}

/// What is to be done at a time.
#[derive(Debug, Clone, PartialEq)]
enum Task {
    Inject(u32, Fault),
    Undo(u32),
    Toggle(u32),
    FailOver(u32),
}

/// A fault that is in force.
#[derive(Debug)]
struct InForce {
    fault: Fault,
    /// Where its entry is.
    entry: usize,
    nodes: Vec<String>,
    links: Vec<LinkFault>,
    /// Packets that its links touched before they were let through in between.
    touched: u64,
    /// Rules of disks: the node, and the rule's number.
    rules: Vec<(String, u64)>,
    ballast: Vec<(String, PathBuf)>,
    /// When it took effect, and how long that took, where this is known better than when it was begun.
    moment: Option<(Tick, Duration)>,
    outages: Vec<Outage>,
    primaries: Vec<NewPrimary>,
}

/// A schedule, as far as it was carried out and with what is still to come. It does not hold the cluster, so
/// that others can between two parts of it.
#[derive(Debug)]
pub struct Agenda {
    policy: Policy,
    rules: Vec<String>,
    due: BinaryHeap<Reverse<(Duration, u64)>>,
    tasks: BTreeMap<u64, Task>,
    in_force: BTreeMap<u32, InForce>,
    carried: Vec<Carried>,
    /// When the database was last asked who takes writes.
    asked: Option<(Instant, Tick)>,
}

impl Agenda {
    /// `timed`, which was expanded from `schedule`, of which nothing was done yet.
    pub fn new(schedule: &Schedule, timed: Vec<Timed>, policy: Policy) -> Agenda {
        let mut agenda = Agenda {
            policy,
            rules: schedule.rules.iter().map(ToString::to_string).collect(),
            due: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            in_force: BTreeMap::new(),
            carried: vec![],
            asked: None,
        };
        for Timed { at, injection, rule, action } in timed {
            let task = match action {
                Action::Inject { fault } => {
                    let words = agenda.rules.get(rule as usize).cloned().unwrap_or_default();
                    // Its entry stands before it happens, so that one that never does is seen.
                    agenda.expect(injection, words);
                    Task::Inject(injection, fault)
                }
                Action::Undo { .. } => Task::Undo(injection),
            };
            agenda.plan(at, task);
        }
        agenda
    }

    fn expect(&mut self, injection: u32, rule: String) {
        let nothing = Effect::Nothing { reason: "the run ended before its time".into() };
        let place = injection as usize;
        let empty = || Carried {
            injection: Injection {
                rule: String::new(),
                at: Tick(0),
                uncertainty: Duration::ZERO,
                undone: None,
                effect: nothing.clone(),
                outages: vec![],
            },
            evidence: vec![],
            primaries: vec![],
        };
        if self.carried.len() <= place {
            self.carried.resize_with(place + 1, empty);
        }
        self.carried[place].injection.rule = rule;
    }

    fn plan(&mut self, at: Duration, task: Task) {
        let number = self.tasks.keys().next_back().map_or(0, |last| last + 1);
        self.tasks.insert(number, task);
        self.due.push(Reverse((at, number)));
    }
}

/// Carries out a schedule. Who holds it asks [`Conductor::next`] when to call [`Conductor::act`].
#[derive(Debug)]
pub struct Conductor<'c> {
    cluster: &'c mut Cluster,
    agenda: Agenda,
}

impl<'c> Conductor<'c> {
    /// One that will carry out on `cluster` what is left of `agenda`.
    pub fn new(cluster: &'c mut Cluster, agenda: Agenda) -> Conductor<'c> {
        Conductor { cluster, agenda }
    }

    /// Lets the cluster go with all that is in force there.
    pub fn pause(self) -> Agenda {
        self.agenda
    }

    /// When something is to be done next, counted from the beginning.
    pub fn next(&self) -> Option<Duration> {
        self.agenda.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether no fault is in force.
    pub fn is_quiet(&self) -> bool {
        self.agenda.in_force.is_empty()
    }

    /// What became of every injection so far; the time of one that is still to come is 0.
    pub fn carried(&self) -> &[Carried] {
        &self.agenda.carried
    }

    /// The cluster that is broken.
    pub fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// Does what is due at `elapsed`. `clock` is the trial's.
    ///
    /// # Errors
    /// The laboratory could not do it, or a node does not come back.
    pub fn act(&mut self, elapsed: Duration, clock: &dyn Fn() -> Tick) -> Result<(), ClusterError> {
        while let Some(Reverse((at, number))) = self.agenda.due.peek().copied().filter(|r| r.0.0 <= elapsed) {
            self.agenda.due.pop();
            match self.agenda.tasks.remove(&number) {
                Some(Task::Inject(injection, fault)) => self.inject(injection, fault, at, clock)?,
                Some(Task::Undo(injection)) => self.undo(injection, clock)?,
                Some(Task::Toggle(injection)) => self.toggle(injection, at)?,
                Some(Task::FailOver(injection)) => self.fail_over(injection, clock)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Undoes what is still in force, and gives back what was done.
    ///
    /// # Errors
    /// The first that could not be undone; the others are all the same.
    pub fn finish(mut self, clock: &dyn Fn() -> Tick) -> (Vec<Carried>, Result<(), ClusterError>) {
        let open: Vec<u32> = self.agenda.in_force.keys().copied().collect();
        let mut result = Ok(());
        for injection in open {
            result = result.and(self.undo(injection, clock));
        }
        (std::mem::take(&mut self.agenda.carried), result)
    }

    /// Looks whether the database has elected another primary because of what is in force. Only where nodes
    /// are dead and not silent: one that is stopped or cut off would keep whoever asks it waiting.
    pub fn watch_elections(&mut self, clock: &dyn Fn() -> Tick) {
        const PAUSE: Duration = Duration::from_millis(100);
        let dead = |force: &InForce| matches!(force.fault, Fault::Kill { .. } | Fault::PowerCut { .. });
        let answers = !self.agenda.in_force.is_empty() && self.agenda.in_force.values().all(dead);
        let lately = self.agenda.asked.is_some_and(|(when, _)| when.elapsed() < PAUSE);
        if answers && !lately && self.cluster.recipe().replication.elects_by_itself() {
            let last = self.agenda.in_force.keys().next_back().copied();
            let old = self.cluster.primary().to_string();
            last.into_iter().for_each(|injection| self.ask_for_primary(injection, &old, clock));
        }
    }

    /// Asks who takes writes now, and notes one who is not `old`.
    fn ask_for_primary(&mut self, injection: u32, old: &str, clock: &dyn Fn() -> Tick) {
        self.cluster.find_primary();
        let now = clock();
        let entry = &mut self.agenda.carried[injection as usize];
        if self.cluster.primary() != old {
            let begun = entry.injection.at;
            let at = self.agenda.asked.map_or(begun, |(_, asked)| asked.max(begun));
            let node = self.cluster.primary().to_string();
            entry.primaries.push(NewPrimary { node, at, uncertainty: now.since(at) });
        }
        self.agenda.asked = Some((Instant::now(), now));
    }

    fn names(&self, nodes: &Nodes) -> Vec<String> {
        let primary = self.cluster.primary();
        let others = self.cluster.nodes().iter().map(Node::name).filter(|name| *name != primary);
        match nodes {
            Nodes::Named(names) => names.clone(),
            Nodes::Primary => vec![primary.to_string()],
            Nodes::Replica => others.take(1).map(ToString::to_string).collect(),
            // These are drawn when the schedule is expanded.
            Nodes::OneOf(_) | Nodes::Any | Nodes::All | Nodes::Rest => vec![],
        }
    }

    /// Both sides of a link by name; `rest` is everybody who is not on the first side.
    fn ends(&self, link: &schedule::Link) -> Vec<(String, String)> {
        let from = self.names(&link.from);
        let to = match &link.to {
            Nodes::Rest => self.cluster.nodes().iter().map(|node| node.name().to_string()).collect(),
            nodes => self.names(nodes),
        };
        let mut pairs = Vec::new();
        for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (a, b))).filter(|(a, b)| a != b) {
            pairs.push((a.clone(), b.clone()));
            if !link.one_way {
                pairs.push((b.clone(), a.clone()));
            }
        }
        pairs
    }

    fn inject(
        &mut self,
        injection: u32,
        fault: Fault,
        at: Duration,
        clock: &dyn Fn() -> Tick,
    ) -> Result<(), ClusterError> {
        let mut force = InForce {
            entry: injection as usize,
            nodes: vec![],
            links: vec![],
            touched: 0,
            rules: vec![],
            ballast: vec![],
            moment: None,
            outages: vec![],
            primaries: vec![],
            fault: fault.clone(),
        };
        self.cluster.find_primary();
        let (before, began) = (clock(), Instant::now());
        let (effect, evidence) = self.begin(&mut force, at, injection, clock)?;
        let entry = &mut self.agenda.carried[force.entry];
        (entry.injection.at, entry.injection.uncertainty) =
            force.moment.unwrap_or_else(|| (before, began.elapsed()));
        entry.injection.effect = effect;
        entry.injection.outages = std::mem::take(&mut force.outages);
        entry.primaries = std::mem::take(&mut force.primaries);
        entry.evidence = evidence;
        self.agenda.in_force.insert(injection, force);
        Ok(())
    }

    /// Begins a fault. The effect of one that lasts is known at its end.
    fn begin(
        &mut self,
        force: &mut InForce,
        at: Duration,
        injection: u32,
        clock: &dyn Fn() -> Tick,
    ) -> Result<(Effect, Vec<String>), ClusterError> {
        let lasting = || (Effect::Nothing { reason: "it was never undone, so never counted".into() }, vec![]);
        match &force.fault.clone() {
            Fault::Kill { nodes } => {
                force.nodes = self.names(nodes);
                let killed = self.cluster.each(&force.nodes, Node::kill)?;
                self.plan_failover(&force.nodes, at, injection);
                Ok(summed(&killed, "processes killed"))
            }
            Fault::PowerCut { nodes } => {
                force.nodes = self.names(nodes);
                self.cut_power(force, injection, clock).inspect(|_| {
                    self.plan_failover(&force.nodes, at, injection);
                })
            }
            Fault::KillBackend { nodes } => {
                force.nodes = self.names(nodes);
                let killed = self.cluster.each(&force.nodes, Node::kill_one_backend)?;
                Ok(summed(&killed, "processes or threads that served a client killed"))
            }
            Fault::Pause { nodes } => {
                force.nodes = self.names(nodes);
                let paused = self.cluster.each(&force.nodes, Node::pause)?;
                Ok(summed(&paused, "processes stopped where they stood"))
            }
            Fault::StepDown { .. } => {
                let old = self.cluster.primary().to_string();
                let successor = match self.cluster.successor() {
                    Ok(successor) => successor,
                    Err(error) => return Ok((Effect::Nothing { reason: error.to_string() }, vec![])),
                };
                force.nodes = vec![old.clone()];
                let (at, began) = (clock(), Instant::now());
                // The fault is that the primary gives up; an election takes seconds and is what follows.
                let mut given_up = || force.moment = Some((at, began.elapsed()));
                let effect = self.cluster.step_down(&successor, &mut given_up)?;
                if self.cluster.primary() != old {
                    let node = self.cluster.primary().to_string();
                    force.primaries.push(NewPrimary { node, at, uncertainty: began.elapsed() });
                }
                let how = match self.cluster.recipe().replication.elects_by_itself() {
                    true => "stepped down",
                    false => "stopped in good order",
                };
                let new = self.cluster.primary();
                Ok((effect, vec![format!("{old} {how} and {new} took over")]))
            }
            Fault::Cut { link } => self.shape_links(force, link, Link::cut()).map(|()| lasting()),
            Fault::Flap { link, period } => {
                self.shape_links(force, link, Link::cut())?;
                self.agenda.plan(at + *period / 2, Task::Toggle(injection));
                Ok(lasting())
            }
            Fault::Delay { link, by, jitter } => {
                let delayed = Link { jitter: *jitter, ..Link::delayed(*by) };
                self.shape_links(force, link, delayed).map(|()| lasting())
            }
            Fault::Loss { link, share } => {
                let lossy = Link { loss: *share, ..Link::default() };
                self.shape_links(force, link, lossy).map(|()| lasting())
            }
            Fault::SlowDisk { nodes, by } => {
                let rule = device::Rule::new(device::Effect::Slow(*by));
                self.disk_rule(force, nodes, &rule).map(|()| lasting())
            }
            Fault::FailFlush { nodes, count } => {
                let eio = device::Rule::new(device::Effect::Eio { sticky: false });
                let rule =
                    device::Rule { kind: Some(device::Kind::Flush), times: Some(u64::from(*count)), ..eio };
                self.disk_rule(force, nodes, &rule).map(|()| lasting())
            }
            Fault::FillDisk { nodes } => self.fill(force, nodes).map(|()| lasting()),
            Fault::SqueezeCpu { nodes, to } => {
                force.nodes = self.names(nodes);
                self.cluster.each(&force.nodes, |node| node.squeeze(Some(to.0), None))?;
                Ok(lasting())
            }
            Fault::SqueezeMemory { nodes, to } => {
                force.nodes = self.names(nodes);
                match self.cluster.each(&force.nodes, |node| node.squeeze(None, Some(to.0))) {
                    Ok(_) => Ok(lasting()),
                    Err(ClusterError::Node(NodeError::Limits { source, .. })) if source.is_busy() => {
                        // Those that could be squeezed are let go: this fault is over.
                        self.cluster.each(&force.nodes, Node::release)?;
                        force.nodes.clear();
                        let reason = format!("more than {to} is in use there and cannot be taken away");
                        Ok((Effect::Nothing { reason }, vec![]))
                    }
                    Err(error) => Err(error),
                }
            }
            Fault::JumpClock { .. } => Err(ClusterError::Senseless(NO_CLOCK.into())),
        }
    }

    /// Cuts the power of a fault's nodes at the same time. The order is [`Node::power_cut`]'s, and then: the
    /// links are cut before anybody is killed, so that no connection is closed by a machine without power;
    /// packets that had left it arrive, because what was sent before the cut is a promise, read when it may
    /// be. What its kernel still holds then is lost with its memory.
    fn cut_power(
        &mut self,
        force: &mut InForce,
        injection: u32,
        clock: &dyn Fn() -> Tick,
    ) -> Result<(Effect, Vec<String>), ClusterError> {
        let power = self.agenda.policy.power.of(u64::from(self.agenda.policy.turn) + u64::from(injection));
        let cut = PowerCut { seed: power.seed ^ (u64::from(injection) << 32), ..power };
        let clients = match cut.torn {
            Some(_) => self.await_data_pages(&force.nodes),
            None => vec![],
        };
        let (before, began) = (clock(), Instant::now());
        let outages = self.cluster.each(&force.nodes, |node| node.power_cut(&cut))?;
        force.moment = Some((before, began.elapsed()));
        for mut client in clients {
            // Its answer is of no interest, and its server stands still.
            let _ = client.kill();
            let _ = client.wait();
        }
        force.outages = outages.into_iter().map(|(_, outage)| outage).collect();
        self.unplug(force)?;
        if !force.links.is_empty() {
            self.cluster.each(&force.nodes, Node::keep_connections)?;
        }
        let killed = self.cluster.each(&force.nodes, Node::kill)?;
        let (effect, mut evidence) = summed(&killed, "processes killed");
        evidence.extend(force.outages.iter().map(discarded));
        Ok((effect, evidence))
    }

    /// Waits for a moment at which a disk takes in more between two flushes than a commit writes: data pages
    /// are under way then, and only such a moment shows what is made of a torn one. Servers that can are
    /// asked to write them out, by clients that are the caller's to end. Where no such moment comes, the cut
    /// comes without.
    fn await_data_pages(&self, names: &[String]) -> Vec<Child> {
        const PATIENCE: Duration = Duration::from_millis(1500);
        const MORE_THAN_A_COMMIT: u64 = 64 << 10;
        let nodes: Vec<&Node> = names.iter().filter_map(|name| self.cluster.node(name).ok()).collect();
        let ask = |node: &&Node| node.server()?.begin_to_write_out(node.disk()?.options().mode);
        let clients: Vec<Child> = nodes.iter().filter_map(ask).collect();
        let began = Instant::now();
        let look = |node: &&Node| {
            let counters = node.disk().and_then(|disk| disk.counters().ok());
            counters.map_or((0, 0), |counters| (counters.write.bytes.0, counters.flush.requests))
        };
        let mut before: Vec<(u64, u64)> = nodes.iter().map(look).collect();
        while began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
            let now: Vec<(u64, u64)> = nodes.iter().map(look).collect();
            let writes = before.iter().zip(&now).map(|((bytes, flushes), now)| {
                now.0.saturating_sub(*bytes) / (1 + now.1.saturating_sub(*flushes))
            });
            if writes.max() >= Some(MORE_THAN_A_COMMIT) {
                break;
            }
            before = now;
        }
        clients
    }

    /// Cuts every link of a fault's nodes, to each other, to the others and to the laboratory.
    fn unplug(&mut self, force: &mut InForce) -> Result<(), ClusterError> {
        if self.cluster.network().is_err() {
            return Ok(());
        }
        let mut names: Vec<String> =
            self.cluster.nodes().iter().map(|node| node.name().to_string()).collect();
        names.push(LABORATORY.into());
        let dark = |name: &String| force.nodes.contains(name);
        let pairs = names.iter().flat_map(|from| names.iter().map(move |to| (from, to)));
        let cut: Vec<_> = pairs.filter(|(from, to)| from != to && (dark(from) || dark(to))).collect();
        for (from, to) in cut {
            force.links.push(self.cluster.break_link(from, to, Link::cut())?);
        }
        Ok(())
    }

    /// A link as it usually is, with the fault's rule over it.
    fn shape_links(
        &mut self,
        force: &mut InForce,
        link: &schedule::Link,
        rule: Link,
    ) -> Result<(), ClusterError> {
        for (from, to) in self.ends(link) {
            let usual = self.cluster.usual_link(&from, &to);
            let rule = Link { delay: usual.delay + rule.delay, ..rule };
            force.links.push(self.cluster.break_link(&from, &to, rule)?);
        }
        Ok(())
    }

    fn disk_rule(
        &mut self,
        force: &mut InForce,
        nodes: &Nodes,
        rule: &device::Rule,
    ) -> Result<(), ClusterError> {
        force.nodes = self.names(nodes);
        for name in &force.nodes {
            let node = self.cluster.node(name)?;
            let number = disk(node)?.add_fault(rule).map_err(|source| disk_failed(node, source))?;
            force.rules.push((name.clone(), number));
        }
        Ok(())
    }

    /// Takes all space that is left on the nodes' disks.
    fn fill(&mut self, force: &mut InForce, nodes: &Nodes) -> Result<(), ClusterError> {
        force.nodes = self.names(nodes);
        for name in &force.nodes {
            let node = self.cluster.node(name)?;
            let path = disk(node)?.path().join("ballast");
            let kernel = |source| NodeError::Kernel { node: name.clone(), what: "filling its disk", source };
            let file = File::create(&path).map_err(kernel)?;
            let (mut end, mut piece) = (0u64, 1u64 << 30);
            // What a file system keeps for itself is not known beforehand.
            while piece >= 4096 {
                match rustix::fs::fallocate(&file, FallocateFlags::empty(), end, piece) {
                    Ok(()) => end += piece,
                    Err(_) => piece /= 2,
                }
            }
            force.ballast.push((name.clone(), path));
        }
        Ok(())
    }

    fn plan_failover(&mut self, hit: &[String], at: Duration, injection: u32) {
        let replicates =
            matches!(self.cluster.recipe().replication, Replication::Streaming | Replication::Binlog);
        if replicates
            && !self.agenda.policy.failover.is_zero()
            && hit.iter().any(|n| n == self.cluster.primary())
        {
            self.agenda.plan(at + self.agenda.policy.failover, Task::FailOver(injection));
        }
    }

    fn fail_over(&mut self, injection: u32, clock: &dyn Fn() -> Tick) -> Result<(), ClusterError> {
        let old = self.cluster.primary().to_string();
        if self.cluster.node_mut(&old)?.is_running() {
            return Ok(());
        }
        let (at, began) = (clock(), Instant::now());
        let taken = self.cluster.successor().and_then(|name| {
            self.cluster.promote(&name)?;
            Ok(name)
        });
        let after = span::print(self.agenda.policy.failover);
        let entry = &mut self.agenda.carried[injection as usize];
        entry.evidence.push(match &taken {
            Ok(name) => format!("after {after} {name} took over from {old} in {:.0} ms", ms(began)),
            Err(error) => format!("after {after} nobody could take over from {old}: {error}"),
        });
        entry.primaries.extend(taken.ok().map(|node| NewPrimary { node, at, uncertainty: began.elapsed() }));
        Ok(())
    }

    fn toggle(&mut self, injection: u32, at: Duration) -> Result<(), ClusterError> {
        let Some(mut force) = self.agenda.in_force.remove(&injection) else { return Ok(()) };
        if let Fault::Flap { link, period } = force.fault.clone() {
            if force.links.is_empty() {
                self.shape_links(&mut force, &link, Link::cut())?;
            } else {
                force.touched += self.heal(&mut force)?;
            }
            self.agenda.plan(at + period / 2, Task::Toggle(injection));
        }
        self.agenda.in_force.insert(injection, force);
        Ok(())
    }

    /// Lets the links of a fault through again; how many packets it touched.
    fn heal(&mut self, force: &mut InForce) -> Result<u64, ClusterError> {
        let mut touched = 0;
        for link in std::mem::take(&mut force.links) {
            if let Effect::Fired { count } = self.cluster.heal_link(&link)? {
                touched += count;
            }
        }
        Ok(touched)
    }

    /// Before the links of nodes without power are healed: whatever their kernels still hold is lost, and
    /// their peers are told so by resets, the only packets that pass from them until then.
    fn forget(&mut self, force: &InForce) -> Result<(), ClusterError> {
        for LinkFault { from, to, .. } in &force.links {
            let link = match force.nodes.contains(from) {
                true => Link { resets: true, ..Link::cut() },
                false => self.cluster.usual_link(from, to),
            };
            self.cluster.network()?.set(from, to, link)?;
        }
        self.cluster.each(&force.nodes, Node::reset_connections).map(drop)
    }

    fn undo(&mut self, injection: u32, clock: &dyn Fn() -> Tick) -> Result<(), ClusterError> {
        let Some(mut force) = self.agenda.in_force.remove(&injection) else { return Ok(()) };
        let old = self.cluster.primary().to_string();
        let undone = self.end(&mut force);
        let entry = &mut self.agenda.carried[force.entry];
        entry.injection.undone = Some(clock());
        if let Some((effect, evidence)) = undone? {
            entry.injection.effect = effect;
            entry.evidence.extend(evidence);
        }
        if self.cluster.recipe().replication.elects_by_itself() {
            self.ask_for_primary(injection, &old, clock);
        }
        match force.fault {
            // A server that gave up because of its disk is started again, as its supervisor would do.
            Fault::SlowDisk { .. } | Fault::FailFlush { .. } | Fault::FillDisk { .. } => {
                self.cluster.come_back(&force.nodes)
            }
            _ => Ok(()),
        }
    }

    /// Ends a fault; its effect, if that is known only now.
    fn end(&mut self, force: &mut InForce) -> Result<Option<(Effect, Vec<String>)>, ClusterError> {
        match &force.fault {
            Fault::Kill { .. } | Fault::KillBackend { .. } | Fault::PowerCut { .. } => {
                if matches!(force.fault, Fault::PowerCut { .. }) {
                    self.forget(force)?;
                    self.heal(force)?;
                    self.cluster.each(&force.nodes, Node::power_on)?;
                }
                self.cluster.come_back(&force.nodes)?;
                Ok(None)
            }
            Fault::StepDown { .. } => self.cluster.come_back(&force.nodes).map(|()| None),
            Fault::Pause { .. } => self.cluster.each(&force.nodes, Node::resume).map(|_| None),
            Fault::Cut { .. } | Fault::Flap { .. } | Fault::Delay { .. } | Fault::Loss { .. } => {
                let what = if matches!(force.fault, Fault::Delay { .. }) { "held back" } else { "dropped" };
                let ends: Vec<String> = force.links.iter().map(ToString::to_string).collect();
                let touched = force.touched + self.heal(force)?;
                let reason = format!("no packet went {} meanwhile", ends.join(", "));
                Ok(Some((effect(touched as usize, &reason), vec![format!("{touched} packets {what}")])))
            }
            Fault::SlowDisk { .. } | Fault::FailFlush { .. } => self.clear_rules(force).map(Some),
            Fault::FillDisk { .. } => self.empty(force).map(Some),
            Fault::SqueezeCpu { .. } | Fault::SqueezeMemory { .. } if force.nodes.is_empty() => Ok(None),
            Fault::SqueezeCpu { .. } | Fault::SqueezeMemory { .. } => {
                let felt = self.cluster.each(&force.nodes, Node::release)?;
                Ok(Some(summed(&felt, "times or milliseconds at the limit")))
            }
            Fault::JumpClock { .. } => Ok(None),
        }
    }

    fn clear_rules(&mut self, force: &mut InForce) -> Result<(Effect, Vec<String>), ClusterError> {
        let (mut hits, mut evidence) = (0, vec![]);
        for (name, number) in std::mem::take(&mut force.rules) {
            let node = self.cluster.node(&name)?;
            let failed = |source| disk_failed(node, source);
            let armed = disk(node)?.faults().map_err(failed)?;
            let fired = armed.iter().find(|rule| rule.number == number).map_or(0, |rule| rule.fired);
            disk(node)?.clear_faults(Some(number)).map_err(failed)?;
            hits += fired;
            evidence.push(format!("{name}: {fired} requests to its disk"));
            let each = self.cluster.each(std::slice::from_ref(&name), Node::remount_read_only)?;
            if each.iter().any(|(_, anew)| *anew) {
                evidence.push(format!("{name}: its file system had become read-only and was mounted anew"));
            }
        }
        Ok((effect(hits as usize, "no request met the fault"), evidence))
    }

    /// Gives the space back. That nothing was left is no effect; a write that found nothing is one.
    fn empty(&mut self, force: &mut InForce) -> Result<(Effect, Vec<String>), ClusterError> {
        let (mut hits, mut evidence) = (0, vec![]);
        for (name, path) in std::mem::take(&mut force.ballast) {
            let node = self.cluster.node(&name)?;
            let size = std::fs::metadata(&path).map_or(0, |about| about.len());
            let kernel = |source| NodeError::Kernel { node: name.clone(), what: "emptying its disk", source };
            let said = node.server().map(|server| server.last_words()).unwrap_or_default();
            let full = |line: &&String| line.contains("No space left") || line.contains("isk is full");
            let lines = said.iter().filter(full).count();
            std::fs::remove_file(&path).map_err(kernel)?;
            let each = self.cluster.each(std::slice::from_ref(&name), |node| Ok(!node.is_running()))?;
            let ended = each.iter().any(|(_, ended)| *ended);
            hits += lines + usize::from(ended);
            evidence.push(format!(
                "{name}: {} taken, and its server said {lines} times that its disk is full{}",
                Bytes(size).rounded(),
                if ended { ", and ended" } else { "" }
            ));
        }
        Ok((effect(hits, "no server complained about a full disk"), evidence))
    }
}

/// What is said of a clock that cannot be moved.
pub const NO_CLOCK: &str = "the wall clock of one node cannot be moved here: all nodes share this machine's kernel, \
                            and time namespaces have no wall clock";

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn disk(node: &Node) -> Result<&tipover_disk::Disk, NodeError> {
    let words = "it has no disk of its own that could be broken; give it a shaped one";
    node.disk().ok_or_else(|| NodeError::Senseless { node: node.name().into(), words: words.into() })
}

fn disk_failed(node: &Node, source: tipover_disk::DiskError) -> NodeError {
    NodeError::Disk { node: node.name().into(), source }
}

/// What the disk lost, and what never reached it, where the kernel told.
fn discarded(outage: &Outage) -> String {
    let CutReport { lost_blocks, lost_bytes, kept_blocks, torn_blocks, lost_names, failed_flushes, .. } =
        outage.disk;
    let mut words = format!(
        "{}: of {} blocks at risk on its disk {lost_blocks} were lost ({}), {torn_blocks} torn, {kept_blocks} kept",
        outage.node,
        outage.disk.blocks_at_risk(),
        Bytes(lost_bytes).rounded()
    );
    if failed_flushes > 0 {
        words += &format!(", {failed_flushes} flushes failed under way");
    }
    if lost_names > 0 {
        words += &format!(", {lost_names} changes of names were undone");
    }
    if let Some(page_cache) = outage.page_cache {
        words += &format!("; {} in its page cache had not reached the disk", page_cache.rounded());
    }
    words
}

/// The effects on several nodes together, and a sentence for each.
fn summed(effects: &[(String, Effect)], what: &str) -> (Effect, Vec<String>) {
    let (mut count, mut evidence) = (0, vec![]);
    for (name, effect) in effects {
        evidence.push(match effect {
            Effect::Fired { count: hits } => {
                count += hits;
                format!("{name}: {hits} {what}")
            }
            Effect::Nothing { reason } => format!("{name}: {reason}"),
        });
    }
    let reason = if evidence.is_empty() { "there is no such node".into() } else { evidence.join("; ") };
    (effect(count as usize, &reason), evidence)
}
