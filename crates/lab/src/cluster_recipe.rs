//! Recipes of clusters, as data: `recipes/*.toml`, with `{placeholders}` for what is known only when nodes
//! have addresses.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// How writes come to the other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replication {
    /// There is one node.
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
}

/// What a set is to a sharded cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duty {
    /// It holds a part of the data.
    Shard,
    /// It holds the cluster's own bookkeeping.
    Config,
}

/// A replica set of MongoDB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaSet {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub members: Vec<String>,
    /// Those of them that vote and hold no data.
    #[serde(default)]
    pub arbiters: Vec<String>,
    /// What it is to a sharded cluster, if it belongs to one.
    pub duty: Option<Duty>,
    /// The `settings` of its configuration, in mongod's words.
    #[serde(default)]
    pub settings: BTreeMap<String, i64>,
}

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

/// Settings in the server's own words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// For every node.
    pub all: BTreeMap<String, String>,
    /// For those that begin as replicas, besides.
    pub replicas: BTreeMap<String, String>,
    /// For routers, which take none of the others.
    pub routers: BTreeMap<String, String>,
}

/// Statements after the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Statements {
    /// On each replica.
    pub replicas: Option<String>,
    /// On the primary, when the replicas are attached.
    pub primary: Option<String>,
}

/// A cluster as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRecipe {
    /// What it is, in a sentence.
    pub about: String,
    /// Which program serves.
    pub server: System,
    /// Names of the nodes; the first one begins as the primary.
    pub nodes: Vec<String>,
    /// On which all listen, each at its own address.
    pub port: u16,
    /// How writes come to the others.
    pub replication: Replication,
    /// MongoDB's sets.
    #[serde(default)]
    pub sets: Vec<ReplicaSet>,
    /// Nodes that hold nothing and send what they are asked on to the sets.
    #[serde(default)]
    pub routers: Vec<String>,
    /// The servers' settings.
    #[serde(default)]
    pub settings: Settings,
    /// What to say to the servers.
    #[serde(default)]
    pub statements: Statements,
}

/// The recipes that come with tipover, by name.
pub const RECIPES: [(&str, &str); 12] = [
    ("wiredtiger", include_str!("../recipes/wiredtiger.toml")),
    ("postgres", include_str!("../recipes/postgres.toml")),
    ("postgres-sync", include_str!("../recipes/postgres-sync.toml")),
    ("mariadb", include_str!("../recipes/mariadb.toml")),
    ("mariadb-semisync", include_str!("../recipes/mariadb-semisync.toml")),
    ("galera", include_str!("../recipes/galera.toml")),
    ("ferretdb", include_str!("../recipes/ferretdb.toml")),
    ("polodb", include_str!("../recipes/polodb.toml")),
    ("guilty", include_str!("../recipes/guilty.toml")),
    ("mongodb-replica-set", include_str!("../recipes/mongodb-replica-set.toml")),
    ("mongodb-arbiter", include_str!("../recipes/mongodb-arbiter.toml")),
    ("mongodb-sharded", include_str!("../recipes/mongodb-sharded.toml")),
];

/// A recipe that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRecipe(pub String);

/// What stands for the placeholders of one node.
pub(crate) struct Values<'a> {
    /// Names and addresses of all nodes, in order.
    pub nodes: Vec<(String, String)>,
    /// Which one it is.
    pub number: usize,
    /// Which one is the primary.
    pub primary: usize,
    pub port: u16,
    pub user: &'a str,
    pub password: &'a str,
}

impl ClusterRecipe {
    /// The built-in recipe of this name.
    pub fn named(name: &str) -> Result<ClusterRecipe, BadRecipe> {
        match RECIPES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => ClusterRecipe::parse(text),
            None => {
                let known: Vec<&str> = RECIPES.iter().map(|(name, _)| *name).collect();
                Err(BadRecipe(format!("there is no recipe {name:?}; there are {}", known.join(", "))))
            }
        }
    }

    /// Reads one from TOML and checks that it fits together.
    pub fn parse(text: &str) -> Result<ClusterRecipe, BadRecipe> {
        let recipe: ClusterRecipe = toml::from_str(text).map_err(|error| BadRecipe(error.to_string()))?;
        recipe.check()?;
        Ok(recipe)
    }

    fn check(&self) -> Result<(), BadRecipe> {
        let bad = |words: String| Err(BadRecipe(words));
        for (i, name) in self.nodes.iter().enumerate() {
            // It becomes part of settings and of paths.
            if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
            {
                return bad(format!("a node's name is letters, digits and hyphens, not {name:?}"));
            }
            if self.nodes[..i].contains(name) {
                return bad(format!("two nodes are called {name:?}"));
            }
        }
        let fits = match (self.replication, self.server) {
            (Replication::None, _) => self.nodes.len() == 1,
            (Replication::Streaming, System::Postgres) => self.nodes.len() > 1,
            (Replication::Binlog | Replication::Galera, System::Mariadb) => self.nodes.len() > 1,
            (Replication::ReplicaSet, System::Mongod) => {
                self.check_sets()?;
                self.sets.len() == 1 && self.routers.is_empty()
            }
            (Replication::Sharded, System::Mongod) => {
                self.check_sets()?;
                let duties = |duty| self.sets.iter().filter(|set| set.duty == Some(duty)).count();
                duties(Duty::Config) == 1
                    && duties(Duty::Shard) + 1 == self.sets.len()
                    && self.sets.len() > 1
                    && !self.routers.is_empty()
            }
            _ => return bad(format!("{:?} does not replicate by {:?}", self.server, self.replication)),
        };
        if !fits {
            return bad(match self.sets.len() {
                0 => format!("{} nodes do not fit replication {:?}", self.nodes.len(), self.replication),
                sets => format!(
                    "{sets} sets with {} routers do not fit replication {:?}: one set and no router, or one set with \
                     duty \"config\", all others with duty \"shard\", and a router",
                    self.routers.len(),
                    self.replication
                ),
            });
        }
        let nodes: Vec<(String, String)> =
            self.nodes.iter().map(|name| (name.clone(), "10.0.0.1".into())).collect();
        for number in 0..nodes.len() {
            let values = Values {
                nodes: nodes.clone(),
                number,
                primary: 0,
                port: self.port,
                user: "u",
                password: "p",
            };
            self.settings_of(&values)?;
            for text in self.statements.replicas.iter().chain(&self.statements.primary) {
                fill(text, &values)?;
            }
        }
        Ok(())
    }

    /// Every node belongs to exactly one set or is a router, and every set can elect somebody.
    fn check_sets(&self) -> Result<(), BadRecipe> {
        let placed: Vec<&String> =
            self.sets.iter().flat_map(|set| &set.members).chain(&self.routers).collect();
        if let Some(stray) = placed.iter().find(|name| !self.nodes.contains(name)) {
            return Err(BadRecipe(format!("a set or the routers name {stray:?}, which is no node")));
        }
        for name in &self.nodes {
            let times = placed.iter().filter(|placed| **placed == name).count();
            if times != 1 {
                return Err(BadRecipe(format!(
                    "node {name:?} belongs to {times} sets; each node is in one set or a router"
                )));
            }
        }
        for set in &self.sets {
            let name = &set.name;
            if set.data_nodes().count() == 0 || set.arbiters.iter().any(|node| !set.members.contains(node)) {
                return Err(BadRecipe(format!(
                    "the arbiters of set {name:?} must be some of its members, and not all"
                )));
            }
            if set.duty == Some(Duty::Config) && !set.arbiters.is_empty() {
                return Err(BadRecipe(format!("set {name:?}: MongoDB allows a config set no arbiters")));
            }
        }
        Ok(())
    }

    /// The set that a node is a member of; none for routers and for other databases.
    pub fn set_of(&self, node: &str) -> Option<&ReplicaSet> {
        self.sets.iter().find(|set| set.members.iter().any(|member| member == node))
    }

    /// The set that says who is *the* primary: the only one, or the first shard.
    pub fn first_data_set(&self) -> Option<&ReplicaSet> {
        self.sets.iter().find(|set| set.duty != Some(Duty::Config))
    }

    /// The settings of one node, filled in.
    pub(crate) fn settings_of(&self, values: &Values) -> Result<Vec<(String, String)>, BadRecipe> {
        if self.routers.contains(&values.nodes[values.number].0) {
            let routers = self.settings.routers.iter();
            return routers.map(|(name, text)| Ok((name.clone(), fill(text, values)?))).collect();
        }
        let replica = values.number != values.primary;
        let more = self.settings.replicas.iter().filter(|_| replica);
        let both = self.settings.all.iter().chain(more);
        both.map(|(name, text)| Ok((name.clone(), fill(text, values)?))).collect()
    }
}

/// Replaces `{name}` and its kind; an unknown one is an error, never left standing.
pub(crate) fn fill(text: &str, values: &Values) -> Result<String, BadRecipe> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (word, after) = after
            .split_once('}')
            .ok_or_else(|| BadRecipe(format!("a placeholder is not closed in {text:?}")))?;
        filled.push_str(before);
        let (name, address) = &values.nodes[values.number];
        let (primary, primary_address) = &values.nodes[values.primary];
        let list = |keep: &dyn Fn(usize) -> bool, field: &dyn Fn(&(String, String)) -> String| {
            let kept = values.nodes.iter().enumerate().filter(|(i, _)| keep(*i));
            kept.map(|(_, node)| field(node)).collect::<Vec<_>>().join(",")
        };
        let value = match word {
            "name" => name.clone(),
            "address" => address.clone(),
            "number" => (values.number + 1).to_string(),
            "port" => values.port.to_string(),
            "user" => values.user.into(),
            "password" => values.password.into(),
            "others" => list(&|i| i != values.number, &|node| node.0.clone()),
            "addresses" => list(&|_| true, &|node| node.1.clone()),
            "primary" => primary.clone(),
            "primary.address" => primary_address.clone(),
            unknown => return Err(BadRecipe(format!("nothing is known as {{{unknown}}} in {text:?}"))),
        };
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(nodes: &[(String, String)], number: usize) -> Values<'static> {
        Values { nodes: nodes.to_vec(), number, primary: 0, port: 5432, user: "u", password: "p" }
    }

    fn three() -> Vec<(String, String)> {
        [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("c", "10.0.0.4")]
            .map(|(name, address)| (name.to_string(), address.to_string()))
            .to_vec()
    }

    #[test]
    fn every_recipe_can_be_read() {
        for (name, _) in RECIPES {
            let recipe = ClusterRecipe::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(recipe.about.ends_with('.'), "{name}: {}", recipe.about);
        }
        let unknown = ClusterRecipe::named("oracle").unwrap_err().to_string();
        assert!(unknown.contains("postgres-sync"), "{unknown}");
    }

    #[test]
    fn a_standby_is_told_its_primary_and_waits_for_the_others_once_promoted() {
        let recipe = ClusterRecipe::named("postgres-sync").unwrap();
        let nodes = three();
        let settings: BTreeMap<String, String> =
            recipe.settings_of(&values(&nodes, 1)).unwrap().into_iter().collect();
        assert_eq!(settings["synchronous_standby_names"], "ANY 1 (a,c)");
        assert!(settings["primary_conninfo"].starts_with("host=10.0.0.2 port=5432 user=u password=p"));
        let primary: BTreeMap<String, String> =
            recipe.settings_of(&values(&nodes, 0)).unwrap().into_iter().collect();
        assert!(!primary.contains_key("primary_conninfo"));
    }

    #[test]
    fn what_does_not_fit_is_refused_in_words() {
        let text = |server: &str, nodes: &str, replication: &str, more: &str| {
            format!(
                "about = \"x.\"\nserver = \"{server}\"\nnodes = {nodes}\nport = 1\nreplication = \"{replication}\"\n{more}"
            )
        };
        for (recipe, words) in [
            (text("postgres", "['a','b']", "galera", ""), "does not replicate"),
            (text("postgres", "['a','b']", "none", ""), "2 nodes do not fit"),
            (text("postgres", "['a','a']", "streaming", ""), "two nodes are called \"a\""),
            (text("postgres", "['a/b']", "none", ""), "letters, digits and hyphens"),
            (text("postgres", "['a']", "none", "[settings.all]\nx = \"{y}\""), "nothing is known as {y}"),
            (text("postgres", "['a']", "none", "[settings.all]\nx = \"{y\""), "not closed"),
            (text("oracle", "['a']", "none", ""), "oracle"),
        ] {
            let error = ClusterRecipe::parse(&recipe).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn sets_that_could_elect_nobody_or_miss_a_node_are_refused_in_words() {
        let text = |replication: &str, more: &str| {
            format!(
                "about = \"x.\"\nserver = \"mongod\"\nnodes = ['a', 'b', 'c']\nport = 1\n\
                 replication = \"{replication}\"\n{more}"
            )
        };
        let set = |rest: &str| format!("[[sets]]\nname = \"s\"\n{rest}");
        let whole = set("members = ['a', 'b', 'c']");
        for (recipe, words) in [
            (text("replica-set", &set("members = ['a', 'b']")), "node \"c\" belongs to 0 sets"),
            (text("replica-set", &set("members = ['a', 'b', 'c', 'd']")), "\"d\", which is no node"),
            (text("replica-set", &format!("{whole}\narbiters = ['d']")), "must be some of its members"),
            (text("replica-set", &format!("{whole}\narbiters = ['a', 'b', 'c']")), "and not all"),
            (text("replica-set", &format!("routers = ['a']\n{}", set("members = ['b', 'c']"))), "1 routers"),
            (text("sharded", &whole), "one set with duty"),
            (text("galera", &whole), "does not replicate"),
        ] {
            let error = ClusterRecipe::parse(&recipe).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(ClusterRecipe::parse(&text("replica-set", &whole)).is_ok());
    }

    proptest! {
        #[test]
        fn text_without_placeholders_stays(text in "[^{]*") {
            let nodes = three();
            prop_assert_eq!(fill(&text, &values(&nodes, 0)).unwrap(), text);
        }
        #[test]
        fn no_text_panics(text in "[{}a-z.]*") {
            let nodes = three();
            let _ = fill(&text, &values(&nodes, 0));
        }
    }
}
