//! Recipes of clusters, as data: which program serves, in which roles and how many of each, with which
//! settings, limits and disks, and what its maker says that it may lose.
//!
//! A recipe is a TOML text with `{placeholders}` for what is known only when nodes have addresses. Those in
//! `recipes/` come with the program; a user's own is a file that is read in the same way.

mod fill;
mod layout;
mod read;

pub use fill::Values;
pub use layout::{Duty, Layout, PlacedNode, ReplicaSet, SET_CONFIGURATION, SHARDING};

use super::{BackingKind, DiskMode, DiskSpec, TargetKind, unknown};
use crate::check::Model;
use crate::units::{Bytes, span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Which program serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// FerretDB.
    Ferretdb,
    /// PoloDB.
    Polodb,
    /// The embedded WiredTiger, in a process of ours.
    Wiredtiger,
    /// A target of ours that is wrong on purpose, in a process of ours.
    Guilty,
    /// MongoDB, by the user's own mongod and mongos.
    Mongod,
}

impl System {
    /// What speaks with it.
    pub fn target(self) -> TargetKind {
        match self {
            System::Postgres => TargetKind::Postgres,
            System::Mariadb => TargetKind::Mysql,
            System::Ferretdb | System::Mongod | System::Polodb => TargetKind::Mongodb,
            System::Wiredtiger => TargetKind::Wiredtiger,
            System::Guilty => TargetKind::Guilty,
        }
    }

    /// Whether its journal can be kept on a disk of its own.
    pub fn has_journal(self) -> bool {
        matches!(self, System::Postgres | System::Mariadb | System::Mongod | System::Wiredtiger)
    }

    /// Whether it is started with a certificate, and with a password, when a recipe asks for them.
    fn has_tls_and_passwords(self) -> bool {
        matches!(self, System::Postgres | System::Mariadb)
    }
}

/// How writes come to the other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replication {
    /// There is one node.
    #[default]
    None,
    /// PostgreSQL's: replicas begin as copies of the primary's data and stream its log.
    Streaming,
    /// MariaDB's: replicas begin empty and apply the primary's binary log.
    Binlog,
    /// All are equal; whoever joins gets a copy from a member.
    Galera,
    /// MongoDB's: the members elect their primary themselves.
    ReplicaSet,
    /// Several of MongoDB's sets behind routers.
    Sharded,
}

impl Replication {
    /// Whether the database itself decides who takes writes after a primary is gone.
    pub fn elects_by_itself(self) -> bool {
        matches!(self, Replication::ReplicaSet | Replication::Sharded)
    }

    /// The system that replicates like this, and its roles: those that there must be, and those that there
    /// may be.
    fn roles(self) -> (Option<System>, &'static [Role], &'static [Role]) {
        match self {
            Replication::None => (None, &[Role::Primary], &[]),
            Replication::Streaming => (Some(System::Postgres), &[Role::Primary, Role::Replica], &[]),
            Replication::Binlog => (Some(System::Mariadb), &[Role::Primary, Role::Replica], &[]),
            Replication::Galera => (Some(System::Mariadb), &[Role::Member], &[]),
            Replication::ReplicaSet => (Some(System::Mongod), &[Role::Member], &[Role::Arbiter]),
            Replication::Sharded => (
                Some(System::Mongod),
                &[Role::Shard, Role::Member, Role::Config, Role::Router],
                &[Role::Arbiter],
            ),
        }
    }
}

/// What a node is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It takes writes in the beginning. There is one.
    Primary,
    /// It follows the primary.
    Replica,
    /// One of equals: of Galera, of a replica set, or of each shard.
    Member,
    /// It votes in a set, or in the set of each shard, and holds no data.
    Arbiter,
    /// A part of the data: the count says how many sets of members there are. It is no node itself.
    Shard,
    /// A member of the set with a sharded cluster's own bookkeeping.
    Config,
    /// It holds nothing and sends what it is asked on to the sets.
    Router,
}

impl Role {
    const ALL: [Role; 7] =
        [Role::Primary, Role::Replica, Role::Shard, Role::Member, Role::Arbiter, Role::Config, Role::Router];

    /// Its name in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
            Role::Member => "member",
            Role::Arbiter => "arbiter",
            Role::Shard => "shard",
            Role::Config => "config",
            Role::Router => "router",
        }
    }
}

/// The nodes of one role: how many, and in what they differ from the others.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoleSpec {
    /// How many. Absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Memory of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Processors of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// In what the disk of each differs from the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<RoleDisk>,
    /// Settings besides the cluster's, in the server's own words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "words")]
    pub settings: BTreeMap<String, String>,
    /// What to say to each after its start; to a primary when its replicas are attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
}

/// In what the disk of a role differs from the cluster's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoleDisk {
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The device, as `iops=600,latency=7ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Where it keeps its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing: Option<BackingKind>,
    /// The folder of a real disk that keeps its bytes, with `backing = "disk"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The shape of a second disk, which has the journal alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
}

impl RoleDisk {
    /// Lays what `over` says over this.
    fn under(&mut self, over: &RoleDisk) {
        put(&mut self.size, &over.size);
        put(&mut self.shape, &over.shape);
        put(&mut self.backing, &over.backing);
        put(&mut self.folder, &over.folder);
        put(&mut self.journal, &over.journal);
    }

    /// The whole disk, where the cluster's is `base`.
    fn on(&self, base: &DiskSpec) -> DiskSpec {
        let mut disk = base.clone();
        if disk.mode == DiskMode::None && self.size.is_some() {
            disk.mode = DiskMode::Auto;
        }
        disk.size = self.size.unwrap_or(disk.size);
        disk.shape = self.shape.clone().unwrap_or(disk.shape);
        disk.backing = self.backing.unwrap_or(disk.backing);
        put(&mut disk.folder, &self.folder);
        put(&mut disk.journal, &self.journal);
        disk
    }
}

fn put<T: Clone>(place: &mut Option<T>, over: &Option<T>) {
    if over.is_some() {
        place.clone_from(over);
    }
}

/// What its maker says of a system.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Claims {
    /// The isolation of the transactions that our driver begins. Absent: read committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Model>,
    /// What may be lost, by setting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
}

/// What a manual says may be lost under a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// A setting of the server, or `durability`, which is the plan's.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// The last acknowledgements that may be lost reach back this far.
    #[serde(with = "span")]
    pub window: Duration,
    /// The setting that the window is a multiple of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<Follows>,
    /// Where that is said.
    pub source: String,
}

/// A server's setting that something is a multiple of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follows {
    /// Its name.
    pub setting: String,
    /// What it is unless set, as `200 ms`; a server's bare numbers are in the same unit.
    pub usual: String,
}

impl Loss {
    /// The window under these settings; zero where the setting that it follows cannot be read.
    fn window_under(&self, setting: impl Fn(&str) -> Option<String>) -> Duration {
        let Some(follows) = &self.follows else { return self.window };
        let parameter = || setting(&format!("setParameter.{}", follows.setting));
        let given = setting(&follows.setting).or_else(parameter);
        let Some(given) = given else { return self.window };
        let unit = follows.usual.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim();
        let given = span::parse(&given).or_else(|_| span::parse(&format!("{given} {unit}")));
        let times = given.ok().zip(span::parse(&follows.usual).ok().filter(|usual| !usual.is_zero()));
        let window =
            times.map_or(0.0, |(given, usual)| self.window.as_secs_f64() * given.div_duration_f64(usual));
        Duration::try_from_secs_f64(window).unwrap_or_default()
    }
}

/// A cluster as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What it is, in a sentence.
    pub about: String,
    /// Which program serves.
    pub server: System,
    /// On which all listen, each at its own address.
    pub port: u16,
    /// How writes come to the others.
    #[serde(default)]
    pub replication: Replication,
    /// Whether clients have to encrypt what they send.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// Whether clients have to say a password; false where the laboratory's system asks for none.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub password: bool,
    /// Memory of each node. Absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Processors of each node. Absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// The disk of each node. Absent: a folder on this machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSpec>,
    /// Settings of every server but routers, in its own words; those that begin with [`SET_CONFIGURATION`]
    /// are of the configuration of each of MongoDB's sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "words")]
    pub settings: BTreeMap<String, String>,
    /// The nodes.
    pub roles: BTreeMap<Role, RoleSpec>,
    /// What its maker says of it.
    #[serde(default)]
    pub claims: Claims,
}

fn yes() -> bool {
    true
}

/// `1`, `true` and `"on"` are all settings in a server's own words.
pub(crate) fn words<'de, D: serde::Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Text(String),
        Whole(i64),
        Number(f64),
        Switch(bool),
    }
    let given = BTreeMap::<String, Word>::deserialize(d)?;
    let word = |word| match word {
        Word::Text(text) => text,
        Word::Whole(number) => number.to_string(),
        Word::Number(number) => number.to_string(),
        Word::Switch(on) => on.to_string(),
    };
    Ok(given.into_iter().map(|(name, given)| (name, word(given))).collect())
}

/// The recipes that come with the program, by name.
pub const RECIPES: [(&str, &str); 13] = [
    ("wiredtiger", include_str!("../../../recipes/wiredtiger.toml")),
    ("postgres", include_str!("../../../recipes/postgres.toml")),
    ("postgres-sync", include_str!("../../../recipes/postgres-sync.toml")),
    ("mariadb", include_str!("../../../recipes/mariadb.toml")),
    ("mariadb-semisync", include_str!("../../../recipes/mariadb-semisync.toml")),
    ("galera", include_str!("../../../recipes/galera.toml")),
    ("ferretdb", include_str!("../../../recipes/ferretdb.toml")),
    ("polodb", include_str!("../../../recipes/polodb.toml")),
    ("guilty", include_str!("../../../recipes/guilty.toml")),
    ("mongodb", include_str!("../../../recipes/mongodb.toml")),
    ("mongodb-replica-set", include_str!("../../../recipes/mongodb-replica-set.toml")),
    ("mongodb-arbiter", include_str!("../../../recipes/mongodb-arbiter.toml")),
    ("mongodb-sharded", include_str!("../../../recipes/mongodb-sharded.toml")),
];

/// A recipe that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{words}", self.place())]
pub struct BadRecipe {
    /// The key that is wrong, with the tables that it stands in: `roles.replica.count`.
    pub key: Option<String>,
    /// The line that it stands on.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub words: String,
}

impl BadRecipe {
    /// "line 7: roles.replica: ", as far as it is known.
    fn place(&self) -> String {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let key = self.key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default();
        line + &key
    }

    fn at(key: impl Into<String>, words: impl Into<String>) -> BadRecipe {
        BadRecipe { key: Some(key.into()), line: None, words: words.into() }
    }
}

impl Recipe {
    /// Whether a name is that of a file rather than of a recipe that comes with the program.
    pub fn is_file(name: &str) -> bool {
        name.contains(['/', '.'])
    }

    /// The text of the recipe of this name that comes with the program.
    ///
    /// # Errors
    /// There is none; the nearest name is said.
    pub fn text(name: &str) -> Result<&'static str, BadRecipe> {
        let found = RECIPES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        found.ok_or_else(|| {
            let known = RECIPES.map(|(name, _)| name);
            let words = format!("{} (or give the path of a file)", unknown("recipe", name, &known));
            BadRecipe { key: None, line: None, words }
        })
    }

    /// The recipe of this name that comes with the program.
    ///
    /// # Errors
    /// There is none; the nearest name is said.
    pub fn named(name: &str) -> Result<Recipe, BadRecipe> {
        Recipe::parse(Recipe::text(name)?)
    }

    /// Lays what a plan says of the roles over what the recipe says.
    ///
    /// # Errors
    /// A role that such a cluster does not have, or what [`Recipe::check`] finds.
    pub fn with_roles(mut self, roles: &BTreeMap<Role, RoleSpec>) -> Result<Recipe, BadRecipe> {
        for (role, over) in roles {
            let under = self.roles.entry(*role).or_default();
            put(&mut under.count, &over.count);
            put(&mut under.memory, &over.memory);
            put(&mut under.cpus, &over.cpus);
            put(&mut under.statement, &over.statement);
            under.settings.extend(over.settings.clone());
            if let Some(disk) = &over.disk {
                under.disk.get_or_insert_default().under(disk);
            }
        }
        self.check()?;
        Ok(self)
    }

    /// How many nodes of a role there are: in each shard, of those that shards consist of.
    pub fn count(&self, role: Role) -> u32 {
        self.roles.get(&role).map_or(0, |spec| spec.count.unwrap_or(1))
    }

    /// The memory of each node of a role.
    pub fn memory_of(&self, role: Role) -> Option<Bytes> {
        self.roles.get(&role).and_then(|spec| spec.memory).or(self.memory)
    }

    /// The processors of each node of a role.
    pub fn cpus_of(&self, role: Role) -> Option<f64> {
        self.roles.get(&role).and_then(|spec| spec.cpus).or(self.cpus)
    }

    /// The disk of each node of a role; `None`: a folder on this machine's own.
    pub fn disk_of(&self, role: Role) -> Option<DiskSpec> {
        let base = self.disk.clone().unwrap_or_default();
        let disk = match self.roles.get(&role).and_then(|spec| spec.disk.as_ref()) {
            Some(own) => own.on(&base),
            None => base,
        };
        (disk.mode != DiskMode::None).then_some(disk)
    }

    /// What is said to each node of a role, placeholders and all.
    pub fn statement_of(&self, role: Role) -> Option<&str> {
        self.roles.get(&role)?.statement.as_deref()
    }

    /// How far back the last acknowledgements may be lost by what its maker says, under these settings; zero
    /// if nothing is said.
    pub fn documented(&self, settings: &BTreeMap<String, String>, durability: Option<&str>) -> Duration {
        let setting = |name: &str| settings.get(name).or(self.settings.get(name)).cloned();
        let given = |loss: &&Loss| match loss.setting.as_str() {
            "durability" => durability == Some(loss.value.as_str()),
            name => setting(name).as_ref() == Some(&loss.value),
        };
        let losses = self.claims.losses.iter().filter(given);
        losses.map(|loss| loss.window_under(setting)).max().unwrap_or_default()
    }

    /// Whether every role that there is belongs to such a cluster, in a number that makes sense, and every
    /// placeholder means something.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), BadRecipe> {
        /// More than that nobody means to start on a machine.
        const MOST_NODES: u32 = 64;
        let (system, needed, more) = self.replication.roles();
        if system.is_some_and(|system| system != self.server) {
            let words = format!("{:?} does not replicate by {:?}", self.server, self.replication);
            return Err(BadRecipe::at("replication", words));
        }
        if let Some(role) = self.roles.keys().find(|role| !needed.contains(role) && !more.contains(role)) {
            let known: Vec<&str> = needed.iter().chain(more).map(|role| role.name()).collect();
            let words = format!("a cluster of this replication has the roles {}", known.join(", "));
            return Err(BadRecipe::at(format!("roles.{}", role.name()), words));
        }
        let mut nodes = 0u32;
        for role in Role::ALL {
            let (count, key) = (self.count(role), format!("roles.{}", role.name()));
            if needed.contains(&role) && count == 0 {
                return Err(BadRecipe::at(key, "there must be one at least"));
            }
            if role == Role::Primary && count > 1 {
                let words = match self.replication {
                    Replication::None => "a cluster without replication is one node",
                    _ => "there is one primary; the others are replicas",
                };
                return Err(BadRecipe::at(key + ".count", words));
            }
            let times = match role {
                Role::Shard => 0,
                Role::Member | Role::Arbiter => self.count(Role::Shard).max(1),
                _ => 1,
            };
            nodes = nodes.saturating_add(count.saturating_mul(times));
            if nodes > MOST_NODES || (role == Role::Shard && count > MOST_NODES) {
                return Err(BadRecipe::at(key, format!("more than {MOST_NODES} nodes in all")));
            }
            self.check_role(role, &key)?;
        }
        self.check_set_configuration()?;
        if self.tls && !self.server.has_tls_and_passwords() {
            let words = format!("a laboratory's {:?} is started without TLS", self.server);
            return Err(BadRecipe::at("tls", words));
        }
        if self.password && !self.server.has_tls_and_passwords() {
            let words = format!("a laboratory's {:?} asks for none: say password = false", self.server);
            return Err(BadRecipe::at("password", words));
        }
        if self.cpus.is_some_and(|cpus| !is_positive(cpus)) {
            return Err(BadRecipe::at("cpus", "must be more than 0"));
        }
        self.layout().check(self)
    }

    fn check_role(&self, role: Role, key: &str) -> Result<(), BadRecipe> {
        let Some(spec) = self.roles.get(&role) else { return Ok(()) };
        let only_count = RoleSpec { count: spec.count, ..RoleSpec::default() };
        if role == Role::Shard && *spec != only_count {
            return Err(BadRecipe::at(
                key,
                "has a count alone; what its nodes are like stands in roles.member",
            ));
        }
        if spec.cpus.is_some_and(|cpus| !is_positive(cpus)) {
            return Err(BadRecipe::at(format!("{key}.cpus"), "must be more than 0"));
        }
        let Some(disk) = self.disk_of(role) else {
            return match spec.disk {
                Some(_) => Err(BadRecipe::at(format!("{key}.disk"), "say its size, here or in [disk]")),
                None => Ok(()),
            };
        };
        let key = if spec.disk.is_some() { format!("{key}.disk") } else { "disk".into() };
        let shapes = [("shape", Some(&disk.shape)), ("journal", disk.journal.as_ref())];
        for (name, shape) in shapes.into_iter().filter_map(|(name, shape)| Some((name, shape?))) {
            shape
                .parse::<crate::device::Spec>()
                .map_err(|error| BadRecipe::at(format!("{key}.{name}"), error.to_string()))?;
        }
        if disk.size.0 == 0 {
            return Err(BadRecipe::at(format!("{key}.size"), "must be more than 0"));
        }
        if disk.journal.is_some() && !self.server.has_journal() {
            let words = format!("{:?} has no journal that could be kept apart", self.server);
            return Err(BadRecipe::at(format!("{key}.journal"), words));
        }
        if disk.folder.is_some() && disk.backing != BackingKind::Disk {
            return Err(BadRecipe::at(format!("{key}.folder"), "needs backing = \"disk\""));
        }
        Ok(())
    }
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

#[cfg(test)]
mod tests;
