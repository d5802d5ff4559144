//! MongoDB's sets as a cluster: made by commands, led by whom they elect.

use super::{Cluster, ClusterError, PATIENCE};
use crate::mongodb::{
    Applied, Refused, add_shard, ask, hello, initiation, members, set_address, step_down, unfinished,
};
use crate::recipe::{DATABASES, MongodRole, ServerError};
use bson::{Document, doc};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tipover_core::experiment::recipe::{Duty, ReplicaSet, Replication, Role, System};
use tipover_core::schedule::Effect;

/// How long a primary that stepped down does not stand for election; mongod's own default.
const STEPPED_DOWN: i32 = 60;
/// "already initialized", and `addShard` of a shard that is one.
const ALREADY: i32 = 23;

impl Cluster {
    /// `host:port` of a node, as the members of a set know each other.
    fn host(&self, name: &str) -> String {
        let node = self.nodes.iter().find(|node| node.name() == name);
        node.map(|node| format!("{}:{}", node.address(), self.recipe.port)).unwrap_or_default()
    }

    /// What a process of MongoDB's is for; `None` for other databases.
    pub(super) fn role_of(&self, node: usize) -> Option<MongodRole> {
        if self.recipe.server == System::Mongod && self.recipe.replication == Replication::None {
            return Some(MongodRole::Alone);
        }
        let name = self.nodes[node].name();
        if let Some(set) = self.layout.set_of(name) {
            let flag = set.duty.map(|duty| match duty {
                Duty::Shard => "shardsvr",
                Duty::Config => "configsvr",
            });
            return Some(MongodRole::Member { set: set.name.clone(), flag });
        }
        let configuration = self.layout.sets.iter().find(|set| set.duty == Some(Duty::Config))?;
        Some(MongodRole::Router { configuration: set_address(configuration, &|name| self.host(name)) })
    }

    pub(super) fn is_router(&self, node: usize) -> bool {
        self.layout.nodes[node].role == Role::Router
    }

    /// The socket of a server that runs.
    fn socket(&self, node: usize) -> Result<PathBuf, Refused> {
        let server = self.nodes[node].server();
        Ok(server.ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))?.socket())
    }

    fn tell(&self, node: usize, command: &Document) -> Result<Document, Refused> {
        ask(&self.socket(node)?, command)
    }

    fn refused(&self, node: usize, command: &Document, refused: Refused) -> ClusterError {
        let step = command.keys().next().cloned().unwrap_or_default();
        let source = ServerError::Step { step, ending: refused.to_string() };
        ClusterError::Server { node: self.nodes[node].name().into(), source }
    }

    /// Tells it as often as it takes: what a cluster has just elected may still be on its way.
    fn tell_until(&mut self, node: usize, command: &Document) -> Result<(), ClusterError> {
        let began = Instant::now();
        loop {
            match self.tell(node, command) {
                Ok(_) => return Ok(()),
                Err(refused) if refused.code() == ALREADY => return Ok(()),
                Err(refused) if began.elapsed() > PATIENCE || !self.any_runs() => {
                    return Err(self.refused(node, command, refused));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Makes the sets of members that run, then starts the routers and gives them their shards.
    pub(super) fn form_sets(&mut self) -> Result<(), ClusterError> {
        for set in self.layout.sets.clone() {
            let first = self.index(set.data_nodes().next().map_or("", String::as_str))?;
            let command = initiation(&set, &|name| self.host(name));
            match self.tell(first, &command) {
                Err(refused) if refused.code() != ALREADY => {
                    return Err(self.refused(first, &command, refused));
                }
                _ => {}
            }
        }
        self.wait_whole(PATIENCE)?;
        for router in (0..self.nodes.len()).filter(|node| self.is_router(*node)).collect::<Vec<_>>() {
            self.nodes[router].start()?;
            let shards = self.layout.sets.clone().into_iter().filter(|set| set.duty == Some(Duty::Shard));
            for set in shards {
                let command = add_shard(&set, &|name| self.host(name));
                self.tell_until(router, &command)?;
            }
        }
        Ok(())
    }

    /// The running members of a set.
    fn running_members(&mut self, set: &ReplicaSet) -> Vec<usize> {
        let is_member = |name: &str| set.members.iter().any(|member| member == name);
        let members: Vec<usize> =
            (0..self.nodes.len()).filter(|i| is_member(self.nodes[*i].name())).collect();
        members.into_iter().filter(|i| self.nodes[*i].is_running()).collect()
    }

    /// Who of a set says that it takes writes; of two the one of the later election. If nobody does, that in
    /// words, with what those said who would not tell.
    fn leader(&mut self, set: &ReplicaSet) -> Result<usize, String> {
        let (mut leaders, mut words) = (Vec::new(), vec![format!("set {} has no primary", set.name)]);
        for node in self.running_members(set) {
            match self.socket(node).and_then(|socket| hello(&socket)) {
                Ok(said) if said.writable => leaders.push((said.election, node)),
                // It follows, or it is about to start or to end.
                Ok(_) | Err(Refused::Lost(_)) => {}
                Err(said) => words.push(format!("{}: {said}", self.nodes[node].name())),
            }
        }
        leaders.into_iter().max().map(|(_, node)| node).ok_or_else(|| words.join("; "))
    }

    /// Asks who takes writes now, where the database decides that itself; see [`Cluster::primary`].
    pub fn find_primary(&mut self) {
        if let Some(set) = self.layout.first_data_set().cloned()
            && let Ok(leader) = self.leader(&set)
        {
            self.primary = leader;
        }
    }

    /// What keeps the sets from being whole. A set without a majority of its members cannot elect anybody, so
    /// nothing is expected of it. `goals` is what each set's primary had applied when somebody began to wait.
    pub(super) fn missing_in_sets(&mut self, goals: &mut BTreeMap<String, Option<Applied>>) -> Vec<String> {
        let mut missing = Vec::new();
        for set in self.layout.sets.clone() {
            let running = self.running_members(&set);
            if running.len() < set.majority() {
                continue;
            }
            let leader = match self.leader(&set) {
                Ok(leader) => leader,
                Err(words) => {
                    missing.push(words);
                    continue;
                }
            };
            let hosts: Vec<String> = running.iter().map(|i| self.host(self.nodes[*i].name())).collect();
            match self.tell(leader, &doc! { "replSetGetStatus": 1 }) {
                Ok(status) => {
                    let goal = goals.entry(set.name).or_default();
                    missing.extend(unfinished(&members(&status), &hosts, goal));
                }
                Err(refused) => missing.push(format!("{}: {refused}", self.nodes[leader].name())),
            }
        }
        for router in (0..self.nodes.len()).filter(|i| self.is_router(*i)).collect::<Vec<_>>() {
            if self.nodes[router].is_running()
                && let Err(refused) = self.tell(router, &doc! { "ping": 1 })
            {
                missing.push(format!("{}: {refused}", self.nodes[router].name()));
            }
        }
        missing
    }

    /// The running data node that has applied most, other than the primary: whom the set will elect.
    pub(super) fn likely_successor(&mut self) -> Option<usize> {
        let set = self.layout.first_data_set().cloned()?;
        let status = self.tell(self.primary, &doc! { "replSetGetStatus": 1 }).ok()?;
        let applied = members(&status);
        let mut nodes = self.running_members(&set);
        nodes.retain(|i| *i != self.primary && set.data_nodes().any(|name| name == self.nodes[*i].name()));
        // Of equals the first, so from the back: the last greatest is taken.
        nodes.into_iter().rev().max_by_key(|i| {
            let host = self.host(self.nodes[*i].name());
            applied.iter().find(|member| member.host == host).and_then(|member| member.applied)
        })
    }

    /// Lets a node stand for election at once, and waits until it has won.
    pub(super) fn step_up(&mut self, chosen: usize) -> Result<(), ClusterError> {
        let command = doc! { "replSetStepUp": 1 };
        self.tell_until(chosen, &command)?;
        self.until_led(|primary| primary == chosen, "the chosen node is elected")
    }

    /// Asks the primary to step down and waits until another one is elected.
    pub(super) fn step_down_in_set(&mut self, given_up: &mut dyn FnMut()) -> Result<Effect, ClusterError> {
        let old = self.primary;
        match self.tell(old, &step_down(STEPPED_DOWN)) {
            // Older servers close their connections when they step down.
            Ok(_) | Err(Refused::Lost(_)) => {}
            Err(said) => return Ok(Effect::Nothing { reason: format!("replSetStepDown: {said}") }),
        }
        given_up();
        self.until_led(|primary| primary != old, "another node is elected")?;
        Ok(Effect::Fired { count: 1 })
    }

    /// Who has stepped down may stand for election again.
    pub(super) fn unfreeze(&self, node: usize) {
        // A primary refuses it, and so does a server that has never stepped down: both may stand for
        // election.
        let _ = self.tell(node, &doc! { "replSetFreeze": 0 });
    }

    fn until_led(&mut self, done: impl Fn(usize) -> bool, wanted: &str) -> Result<(), ClusterError> {
        let began = Instant::now();
        loop {
            let set = self.layout.first_data_set().cloned();
            let leader = set.ok_or("there is no set".to_string()).and_then(|set| self.leader(&set));
            if let Some(leader) = leader.as_ref().ok().filter(|leader| done(**leader)) {
                self.primary = *leader;
                return Ok(());
            }
            if began.elapsed() > PATIENCE || !self.any_runs() {
                let found = match leader {
                    Ok(leader) => format!("{} is primary", self.nodes[leader].name()),
                    Err(words) => words,
                };
                return Err(ClusterError::NotYet { wanted: wanted.into(), waited: began.elapsed(), found });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a client of the whole cluster takes, where that is more than its primary's address: all members
    /// of the set, or the routers.
    pub fn client_url(&self) -> Option<String> {
        let database = DATABASES[0];
        let set = self.layout.first_data_set()?;
        let routers: Vec<String> = self.layout.of_role(Role::Router).map(|name| self.host(name)).collect();
        let members: Vec<String> = set.data_nodes().map(|name| self.host(name)).collect();
        Some(match routers.as_slice() {
            [] => format!("mongodb://{}/{database}?replicaSet={}", members.join(","), set.name),
            routers => format!("mongodb://{}/{database}", routers.join(",")),
        })
    }
}
