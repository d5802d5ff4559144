//! A cluster of our own for a cell, and what is broken on it.

use super::super::PlanError;
use super::super::recipe::{self, Recipe, Role, RoleSpec};
use super::Durability;
use super::{DiskMode, Spec};
use crate::check::recovery::Objective;
use crate::check::{Check, Exposure, Model};
use crate::device::PowerCut;
use crate::schedule::Schedule;
use crate::units::{ParseError, span};
use crate::workload::bank::{Bank, BankError, BankSpec};
use crate::workload::{Dataset, Ledger, ListTransactions, Registers, Split, Transfers, Workload};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A cluster that is made for the cell, each node with the memory and the disk of the plan unless its role
/// has its own. The target's address is then the cluster's, and `target.settings` stay those of the sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabSpec {
    /// One of `tipover lab recipes`, or the path of one's own.
    pub recipe: NamedRecipe,
    /// Major version of the server. Absent: the newest that is installed.
    pub version: Option<u32>,
    /// The user's own mongod, for MongoDB's recipes. Absent: the one in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mongod: Option<String>,
    /// The user's own mongos, for a sharded cluster. Absent: the one in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mongos: Option<String>,
    /// The user's own PoloDB. Absent: a built one, or the one in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polodb: Option<String>,
    /// Processors of each node. Absent: unlimited.
    pub cpus: Option<f64>,
    /// Settings of every server, in its own words; they win over the recipe's.
    #[serde(default, deserialize_with = "recipe::words")]
    pub settings: BTreeMap<String, String>,
    /// In what the nodes of a role differ from what the recipe says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<Role, RoleSpec>,
    /// Whether clients have to encrypt what they send. Absent: as the recipe has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
    /// One-way delay between any two nodes.
    #[serde(default, with = "span")]
    pub delay: Duration,
    /// How long a primary is dead before a replica takes its place. 0: none ever does.
    #[serde(default = "one_second", with = "span")]
    pub failover: Duration,
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}

/// A recipe by its name or by the path of its file. The core reads no files: what stands in one is put in by
/// [`NamedRecipe::read`], and from then on belongs to the setting, so that a changed recipe is another cell.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRecipe {
    /// What it is called, or where it is.
    pub name: String,
    /// What stands in the file.
    pub own: Option<Box<Recipe>>,
}

impl NamedRecipe {
    /// Whether it is a file that was not read yet.
    pub fn is_unread(&self) -> bool {
        self.own.is_none() && Recipe::is_file(&self.name)
    }

    /// Takes the text of the file.
    ///
    /// # Errors
    /// The file, the line and the key that is wrong.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        let own = Recipe::parse(text).map_err(|error| format!("{}: {error}", self.name))?;
        self.own = Some(Box::new(own));
        Ok(())
    }

    fn recipe(&self) -> Result<Recipe, String> {
        match &self.own {
            Some(own) => Ok((**own).clone()),
            None if self.is_unread() => Err(format!("{} was not read", self.name)),
            None => Recipe::named(&self.name).map_err(|error| format!("lab.recipe: {error}")),
        }
    }
}

impl Serialize for NamedRecipe {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.own {
            None => s.serialize_str(&self.name),
            Some(own) => (&self.name, own).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for NamedRecipe {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Name(String),
            Read(String, Box<Recipe>),
        }
        Ok(match Either::deserialize(d)? {
            Either::Name(name) => NamedRecipe { name, own: None },
            Either::Read(name, own) => NamedRecipe { name, own: Some(own) },
        })
    }
}

impl Spec {
    /// The cluster of a cell: its recipe with all that the plan says over it.
    ///
    /// # Errors
    /// There is no such recipe, or the two do not fit together.
    pub fn cluster(&self) -> Result<Recipe, PlanError> {
        let lab = self.lab.as_ref().ok_or_else(|| PlanError("the cell has no [lab] table".into()))?;
        let mut recipe = lab.recipe.recipe().map_err(PlanError)?;
        if self.disk.mode != DiskMode::None {
            recipe.disk = Some(self.disk.clone());
        }
        recipe.memory = self.machine.memory.or(recipe.memory);
        recipe.cpus = lab.cpus.or(recipe.cpus);
        recipe.tls = lab.tls.unwrap_or(recipe.tls);
        recipe.settings.extend(lab.settings.clone());
        // What the plan says to all servers wins over what the recipe says to some.
        for role in recipe.roles.values_mut() {
            role.settings.retain(|name, _| !lab.settings.contains_key(name));
        }
        recipe
            .with_roles(&lab.roles)
            .map_err(|error| PlanError(format!("lab ({}): {error}", lab.recipe.name)))
    }
}

/// What is checked, and under which faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakSpec {
    /// Which checks; each takes its share of the sessions.
    pub checks: Vec<Check>,
    /// Sessions of the checks, in a closed loop beside the load of the plan. 0: the checks are the load.
    #[serde(skip_serializing_if = "is_zero")]
    pub sessions: u32,
    /// The faults, counted from the beginning of the load. They begin later by up to `jitter`.
    pub faults: Schedule,
    /// From when on faults are counted, and `length` with them: `"measuring"`, or `"loading"`, from the first
    /// record or account that is loaded on, on disks that are shaped already. Then nothing is warmed up. A
    /// search loads so once, warms up when the cluster has come back, and lets each of its trials begin the
    /// faults anew.
    #[serde(skip_serializing_if = "Onset::is_measuring")]
    pub from: Onset,
    /// Each repeat begins its faults later by a part of this, drawn from its seed, so that they do not always
    /// meet the same moment of a periodic flush.
    #[serde(with = "span")]
    pub jitter: Duration,
    /// How long the load lasts, the jitter not included. Faults that are not undone by then are undone then.
    #[serde(with = "span")]
    pub length: Duration,
    /// The bank.
    pub bank: BankSpec,
    /// From one snapshot of all balances to the next; 0: none.
    #[serde(with = "span")]
    pub snapshots: Duration,
    /// After recovery everything is read twice, the second time after this pause.
    #[serde(with = "span")]
    pub read_again: Duration,
    /// The time before a fault whose acknowledgements are at risk.
    #[serde(with = "span")]
    pub window: Duration,
    /// The number of acknowledgements in the window that makes a fault a test.
    pub least_acknowledged: u64,
    /// The isolation that transactions claim, for the check of it. Absent: read committed, the least that is
    /// ever claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Model>,
    /// The loss that the setting documents, to print beside what was found. 0: none is documented.
    #[serde(with = "span")]
    pub documented: Duration,
    /// How long an operation may take.
    #[serde(with = "span")]
    pub latency_limit: Duration,
    /// How long the limit must be kept before the cluster counts as working again.
    #[serde(with = "span")]
    pub hold: Duration,
    /// What power cuts do to what was not flushed, in turns: run after run, and cut after cut.
    pub power: PowerCuts,
}

/// From when on faults are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Onset {
    /// From the beginning of the measured phase.
    #[default]
    Measuring,
    /// From the first record that is loaded.
    Loading,
}

impl Onset {
    fn is_measuring(&self) -> bool {
        *self == Onset::Measuring
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What power cuts do, one after the other and again from the beginning: "survive=0% or
/// survive=50%,torn=512B".
#[derive(Debug, Clone, PartialEq)]
pub struct PowerCuts(Vec<PowerCut>);

impl PowerCuts {
    /// What the `n`-th cut does.
    pub fn of(&self, n: u64) -> PowerCut {
        self.0[(n % self.0.len() as u64) as usize]
    }

    /// The same, drawing from `seed`.
    pub fn seeded(&self, seed: u64) -> PowerCuts {
        PowerCuts(self.0.iter().map(|cut| PowerCut { seed, ..*cut }).collect())
    }
}

impl Default for PowerCuts {
    /// Everything that was not flushed is gone.
    fn default() -> Self {
        PowerCuts(vec![PowerCut::default()])
    }
}

impl fmt::Display for PowerCuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.0.iter().map(PowerCut::to_string).collect();
        f.write_str(&each.join(" or "))
    }
}

impl FromStr for PowerCuts {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        Ok(PowerCuts(text.split(" or ").map(|cut| cut.trim().parse()).collect::<Result<_, _>>()?))
    }
}

impl Serialize for PowerCuts {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PowerCuts {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Default for BreakSpec {
    fn default() -> Self {
        let Exposure { window, least_acknowledged, objective, .. } = Exposure::default();
        BreakSpec {
            checks: vec![Check::Ledger],
            sessions: 0,
            faults: Schedule::default(),
            from: Onset::default(),
            jitter: Duration::from_millis(500),
            length: Duration::from_secs(6),
            bank: BankSpec { accounts: 1_000, ..BankSpec::default() },
            snapshots: Duration::from_millis(500),
            read_again: Duration::from_millis(500),
            window,
            least_acknowledged,
            isolation: None,
            documented: Duration::ZERO,
            latency_limit: objective.residence,
            hold: Duration::from_secs(1),
            power: PowerCuts::default(),
        }
    }
}

impl BreakSpec {
    /// What counts as a test of writes with this durability.
    pub fn exposure(&self, durability: Durability) -> Exposure {
        Exposure {
            window: self.window,
            least_acknowledged: self.least_acknowledged,
            documented: Some(self.documented).filter(|documented| !documented.is_zero()),
            objective: Objective { residence: self.latency_limit, share: 0.99, hold: self.hold },
            unanswered: durability == Durability::Unacknowledged,
        }
    }

    /// The tables of the checks, and operations of all of them, shared out in turn among `sessions` sessions.
    ///
    /// # Errors
    /// Accounts of which no bank can be made.
    pub fn load_of(&self, sessions: u32, seed: u64) -> Result<(Dataset, Split), BankError> {
        let bank = Arc::new(Bank::new(self.bank_of(seed))?);
        let count = self.checks.len() as u64;
        let part = |(place, check): (usize, &Check)| -> Box<dyn Workload> {
            match check {
                Check::Ledger => Box::new(Ledger::new(seed)),
                Check::Bank => Box::new(Transfers::new(bank.clone(), seed)),
                Check::Register => {
                    let sessions = u64::from(sessions).saturating_sub(place as u64).div_ceil(count);
                    Box::new(Registers::new(sessions, seed))
                }
                Check::Isolation => Box::new(ListTransactions::new(seed)),
                Check::Tpcb => unreachable!("it has no load of its own, and stands alone"),
            }
        };
        let parts = self.checks.iter().enumerate().map(part).collect();
        // Transfers alone need no more than accounts, which more sessions can do by their wires.
        let dataset = match self.checks[..] {
            [Check::Bank] => Dataset::of_bank(bank),
            _ => Dataset::checks(bank),
        };
        Ok((dataset, Split::in_turn(parts, sessions)))
    }

    /// The bank of the trial with this seed.
    pub fn bank_of(&self, seed: u64) -> BankSpec {
        BankSpec { seed, ..self.bank }
    }

    /// What no type can say; `sessions` are the load's.
    pub(super) fn check(&self, sessions: u32) -> Result<(), String> {
        let (sessions, whose) = match self.sessions {
            0 => (sessions, "load.sessions"),
            own => (own, "break.sessions"),
        };
        if self.checks.is_empty() {
            let all = Check::ALL.map(Check::name).join(", ");
            return Err(format!("break.checks names no check; there are {all}"));
        }
        if self.checks.contains(&Check::Tpcb) && (self.checks.len() > 1 || self.sessions > 0) {
            return Err(
                "break.checks = [\"tpcb\"] stands alone and without break.sessions: what it checks is the load of the plan"
                    .into(),
            );
        }
        if (sessions as usize) < self.checks.len() {
            return Err(format!(
                "{whose} = {sessions} is too few for {} checks: each needs one at least",
                self.checks.len()
            ));
        }
        if self.length.is_zero() {
            return Err("break.length must be longer than 0 s".into());
        }
        let bank = Bank::new(self.bank);
        bank.map(drop).map_err(|error| format!("break.bank: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::PowerCuts;
    use crate::experiment::Experiment;
    use std::time::Duration;

    const PLAN: &str = r#"
        name = "b"
        title = "B"
        question = "q"
        why = "w"
        how_to_read = "h"
        repeats = 1
        [target]
        kind = "postgres"
        [disk]
        size = "1 GiB"
        [load]
        sessions = 2
        [lab]
        recipe = "postgres"
        settings = { max_connections = 20, fsync = false, synchronous_commit = "off" }
        [break]
        checks = ["ledger", "bank"]
        faults = "at 1 s: power cut all, restart after 100 ms"
        documented = "600 ms"
        [[sweep]]
        name = "s"
        question = "q"
        axis = []
        [scale.quick]
    "#;

    #[test]
    fn a_lab_is_read_with_settings_in_the_servers_words() {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let spec = &experiment.sweeps[0].cells[0].spec;
        let settings = &spec.lab.as_ref().unwrap().settings;
        assert_eq!(settings["max_connections"], "20");
        assert_eq!((settings["fsync"].as_str(), settings["synchronous_commit"].as_str()), ("false", "off"));
        let breaking = spec.breaking.as_ref().unwrap();
        assert_eq!(
            breaking.exposure(crate::experiment::Durability::Configured).documented,
            Some(Duration::from_millis(600))
        );
        let text = serde_json::to_string(spec).unwrap();
        assert_eq!(&serde_json::from_str::<crate::experiment::Spec>(&text).unwrap(), spec);
    }

    #[test]
    fn counts_of_roles_are_axes_and_a_changed_count_is_a_changed_cell() {
        let axis = r#"[[sweep.axis]]
            name = "replicas"
            sets = "lab.roles.replica.count"
            values = [1, 2, 4]
            "#;
        let text = PLAN
            .replace("recipe = \"postgres\"", "recipe = \"postgres-sync\"")
            .replace("axis = []", "")
            .replace("[scale.quick]", &format!("{axis}[scale.quick]"));
        let experiment = Experiment::parse(&text, "quick", &[]).unwrap();
        let cells = &experiment.sweeps[0].cells;
        let nodes = cells.iter().map(|cell| cell.spec.cluster().unwrap().layout().nodes.len());
        assert_eq!(nodes.collect::<Vec<_>>(), [2, 3, 5]);
        let names: std::collections::BTreeSet<String> =
            cells.iter().map(|cell| cell.spec.fingerprint()).collect();
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn a_recipe_of_ones_own_is_read_once_and_belongs_to_the_cell() {
        let text = PLAN.replace("recipe = \"postgres\"", "recipe = \"mine.toml\"");
        let experiment = Experiment::parse(&text, "quick", &[]).unwrap();
        let read_as = |recipe: &str| {
            let mut spec = experiment.sweeps[0].cells[0].spec.clone();
            let read = spec.attach(&mut |path| {
                assert_eq!(path, "mine.toml");
                Ok(recipe.to_string())
            });
            read.map(|()| spec)
        };
        let recipe = "about = \"Mine.\"\nserver = \"postgres\"\nport = 5432\n[roles.primary]\n";
        let spec = read_as(recipe).unwrap();
        assert_eq!(spec.cluster().unwrap().about, "Mine.");
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<crate::experiment::Spec>(&json).unwrap(), spec);
        assert_ne!(spec.fingerprint(), read_as(&recipe.replace("5432", "5433")).unwrap().fingerprint());
        let error = read_as(&recipe.replace("about", "abuot")).unwrap_err().to_string();
        assert_eq!(error, "mine.toml: line 1: unknown setting `abuot`: did you mean `about`?");
        let other = read_as(&recipe.replace("\"postgres\"", "\"mariadb\"")).unwrap_err().to_string();
        assert!(other.contains("target.kind must be \"mysql\""), "{other}");
    }

    #[test]
    fn power_cuts_take_turns() {
        let turns: PowerCuts = "survive=0% or survive=50%,torn=512B".parse().unwrap();
        assert_eq!(turns.to_string(), "survive=0% or survive=50%,torn=512B");
        let survive: Vec<f64> = (0..4).map(|n| turns.of(n).survive.0).collect();
        assert_eq!(survive, [0.0, 0.5, 0.0, 0.5]);
        assert!((0..4).all(|n| turns.seeded(7).of(n).seed == 7));
        assert_eq!("survive=20%".parse::<PowerCuts>().unwrap().of(9).survive.0, 0.2);
        assert_eq!("".parse::<PowerCuts>().unwrap(), PowerCuts::default());
        assert!("survive=0% or torn=3B".parse::<PowerCuts>().is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (from, to, words) in [
            ("[disk]\n        size = \"1 GiB\"", "", "give a [disk] table"),
            ("power cut all, restart after 100 ms", "jump clock of a back 5 s", "one wall clock"),
            ("sessions = 2", "sessions = 1", "too few for 2 checks"),
            ("[\"ledger\", \"bank\"]", "[]", "names no check"),
            ("[lab]\n        recipe = \"postgres\"", "[machine]\n        memory = \"1 GiB\"\n", "settings"),
            ("kind = \"postgres\"", "kind = \"null\"", "target.kind must be \"postgres\""),
            ("recipe = \"postgres\"", "recipe = \"postgers\"", "did you mean `postgres`?"),
            (
                "recipe = \"postgres\"",
                "recipe = \"postgres\"\n        roles.replica.count = 2",
                "has the roles primary",
            ),
            (
                "recipe = \"postgres\"",
                "recipe = \"postgres\"\n        roles.primary.cout = 1",
                "did you mean `count`?",
            ),
            ("recipe = \"postgres\"", "recipe = \"postgres\"\n        cpus = 0", "cpus: must be more than 0"),
            ("[break]\n", "[break]\n        bank = { accounts = 1 }\n", "at least 2"),
            ("[\"ledger\", \"bank\"]", "[\"ledger\"]\n        from = \"loading\"", "nothing is loaded here"),
            (
                "faults = \"at 1 s: power cut all, restart after 100 ms\"",
                "from = \"loading\"",
                "names no fault",
            ),
        ] {
            let text = PLAN.replacen(from, to, 1);
            assert_ne!(text, PLAN, "{from}");
            let error = Experiment::parse(&text, "quick", &[]).unwrap_err().to_string();
            assert!(error.contains(words), "{to}: {error}");
        }
    }
}
