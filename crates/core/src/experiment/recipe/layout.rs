//! The nodes of a recipe one by one: names, roles, and MongoDB's sets.

use super::{BadRecipe, Recipe, Replication, Role, Values};
use std::collections::BTreeMap;

/// What a set is to a sharded cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// It holds a part of the data.
    Shard,
    /// It holds the cluster's own bookkeeping.
    Config,
}

/// A replica set of MongoDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub members: Vec<String>,
    /// Those of them that vote and hold no data.
    pub arbiters: Vec<String>,
    /// What it is to a sharded cluster, if it belongs to one.
    pub duty: Option<Duty>,
    /// What its configuration says besides, each by its place there: `settings.electionTimeoutMillis`.
    pub configuration: BTreeMap<String, String>,
}

/// What begins the name of a setting of MongoDB's sets rather than of their servers; the rest is its place in
/// the set's configuration.
pub const SET_CONFIGURATION: &str = "replSetConfig.";

/// The setting of a sharded cluster that its clients obey and no server knows: by what they spread the
/// collections that they make, "hashed", "ranged" or "none".
pub const SHARDING: &str = "sharding";

impl ReplicaSet {
    /// The members that hold data.
    pub fn data_nodes(&self) -> impl Iterator<Item = &String> {
        self.members.iter().filter(|name| !self.arbiters.contains(name))
    }

    /// How many members must vote for a primary.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }
}

/// A node with its name and role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedNode {
    /// What faults and addresses call it: a, b, c and so on; routers are called router.
    pub name: String,
    /// What it is.
    pub role: Role,
}

/// Nodes and sets of a recipe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// All nodes; the first one begins as the primary.
    pub nodes: Vec<PlacedNode>,
    /// MongoDB's sets.
    pub sets: Vec<ReplicaSet>,
}

impl Layout {
    /// The names of all nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// The names of the nodes of a role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter(move |node| node.role == role).map(|node| node.name.as_str())
    }

    /// The set that a node is a member of; none for routers and for other databases.
    pub fn set_of(&self, node: &str) -> Option<&ReplicaSet> {
        self.sets.iter().find(|set| set.members.iter().any(|member| member == node))
    }

    /// The set that says who is *the* primary: the only one, or the first shard.
    pub fn first_data_set(&self) -> Option<&ReplicaSet> {
        self.sets.iter().find(|set| set.duty != Some(Duty::Config))
    }

    fn add(&mut self, role: Role, count: u32) -> Vec<String> {
        let first = self.nodes.len();
        self.nodes.extend((0..count as usize).map(|n| PlacedNode {
            name: match role {
                Role::Router if count == 1 => "router".into(),
                Role::Router => format!("router{}", n + 1),
                _ => letters(first + n),
            },
            role,
        }));
        self.nodes[first..].iter().map(|node| node.name.clone()).collect()
    }

    fn add_set(&mut self, recipe: &Recipe, name: String, duty: Option<Duty>) {
        let (role, arbiters) = match duty {
            Some(Duty::Config) => (Role::Config, 0),
            _ => (Role::Member, recipe.count(Role::Arbiter)),
        };
        let mut members = self.add(role, recipe.count(role));
        let arbiters = self.add(Role::Arbiter, arbiters);
        members.extend(arbiters.clone());
        self.sets.push(ReplicaSet {
            name,
            members,
            arbiters,
            duty,
            configuration: recipe.set_configuration(),
        });
    }

    /// Fills every placeholder for every node once.
    pub(super) fn check(&self, recipe: &Recipe) -> Result<(), BadRecipe> {
        let nodes: Vec<(String, String)> =
            self.names().into_iter().map(|name| (name, "10.0.0.1".into())).collect();
        for (number, node) in self.nodes.iter().enumerate() {
            let values = Values { nodes: nodes.clone(), number, ..Values::of(recipe) };
            recipe.settings_of(node.role, &values)?;
            if let Some(text) = recipe.statement_of(node.role) {
                let key = || format!("roles.{}.statement", node.role.name());
                values.fill(text).map_err(|words| BadRecipe::at(key(), words))?;
            }
        }
        Ok(())
    }
}

impl Recipe {
    /// The nodes one by one.
    pub fn layout(&self) -> Layout {
        let mut layout = Layout::default();
        match self.replication {
            Replication::ReplicaSet => layout.add_set(self, "tipover".into(), None),
            Replication::Sharded => {
                for number in 1..=self.count(Role::Shard) {
                    layout.add_set(self, format!("shard{number}"), Some(Duty::Shard));
                }
                layout.add_set(self, "config".into(), Some(Duty::Config));
                layout.add(Role::Router, self.count(Role::Router));
            }
            _ => {
                for role in [Role::Primary, Role::Replica, Role::Member] {
                    layout.add(role, self.count(role));
                }
            }
        }
        layout
    }

    /// What the configuration of each of MongoDB's sets says besides its members.
    fn set_configuration(&self) -> BTreeMap<String, String> {
        let of_sets = |(name, value): (&String, &String)| {
            Some((name.strip_prefix(SET_CONFIGURATION)?.to_string(), value.clone()))
        };
        self.settings.iter().filter_map(of_sets).collect()
    }

    /// Settings of sets must be such, and those of a MongoDB that has sets.
    pub(super) fn check_set_configuration(&self) -> Result<(), BadRecipe> {
        /// What the laboratory says itself, from the recipe's roles.
        const OURS: [&str; 4] = ["_id", "version", "members", "configsvr"];
        let is_of_set = |name: &&String| name.starts_with(SET_CONFIGURATION);
        for (role, spec) in &self.roles {
            if let Some(name) = spec.settings.keys().find(is_of_set) {
                let words = "a set has one configuration: it stands in [settings]";
                return Err(BadRecipe::at(format!("roles.{}.settings.{name}", role.name()), words));
            }
        }
        if let Some(how) = self.settings.get(SHARDING) {
            let at = |words: &str| Err(BadRecipe::at(format!("settings.{SHARDING}"), words));
            match how.as_str() {
                _ if self.replication != Replication::Sharded => {
                    return at("only a sharded cluster of MongoDB's has shards");
                }
                "hashed" | "ranged" | "none" => {}
                _ => return at("it is hashed, ranged or none"),
            }
        }
        let has_sets = matches!(self.replication, Replication::ReplicaSet | Replication::Sharded);
        for name in self.settings.keys().filter(is_of_set) {
            let at = |words: &str| Err(BadRecipe::at(format!("settings.{name}"), words));
            let place = &name[SET_CONFIGURATION.len()..];
            if !has_sets {
                return at("only MongoDB's replica sets have a configuration");
            }
            if OURS.contains(&place.split('.').next().unwrap_or_default()) {
                return at("follows from the recipe's roles");
            }
            if place.split('.').any(str::is_empty) {
                return at("a place in the configuration is meant, such as settings.chainingAllowed");
            }
        }
        Ok(())
    }

    /// The settings of a node, filled in.
    ///
    /// # Errors
    /// A placeholder that means nothing.
    pub fn settings_of(&self, role: Role, values: &Values<'_>) -> Result<Vec<(String, String)>, BadRecipe> {
        let all = self.settings.iter().filter(|_| role != Role::Router).map(|pair| ("settings".into(), pair));
        let own = self.roles.get(&role).into_iter().flat_map(|spec| &spec.settings);
        let own = own.map(|pair| (format!("roles.{}.settings", role.name()), pair));
        all.chain(own)
            .filter(|(_, (name, _))| !name.starts_with(SET_CONFIGURATION) && *name != SHARDING)
            .map(|(table, (name, text)): (String, _)| {
                let filled = values.fill(text);
                Ok((name.clone(), filled.map_err(|words| BadRecipe::at(format!("{table}.{name}"), words))?))
            })
            .collect()
    }
}

/// a, b, ... z, aa, ab, ...
fn letters(number: usize) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    match number / 26 {
        0 => letter.to_string(),
        before => letters(before - 1) + &letter.to_string(),
    }
}
