//! What is said through the fleet's streams, as JSON: blocks, what they demand, who could carry them out, and
//! what came of them. Nothing here talks to a server.

use crate::foresight::needs;
use crate::generator::{self, Command};
use crate::machine::{self, Needs, Severity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tipover_core::experiment::{Address, Cell, Experiment, Part, SearchSpec, TargetKind, Trial};
use tipover_core::search::limit::Resource;

/// Version and commit of this program. Two that differ may measure differently, so they never share a run.
pub fn version() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), env!("TIPOVER_COMMIT"))
}

/// Trials that stay together on one machine, or a search, which is many trials on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The run that it belongs to.
    pub run: String,
    /// Its number in that run; one that is given out again gets a new number.
    pub number: u64,
    /// 0 leads it; the others send parts of its loads.
    pub part: u32,
    /// The experiment's name and seed.
    pub experiment: String,
    /// Seed of the experiment.
    pub seed: u64,
    /// The command line at which it was asked for.
    pub command: String,
    /// What is demanded of whoever carries it out.
    pub demands: Demands,
    /// The cells of its trials, each once.
    pub cells: Vec<Cell>,
    /// The trials, in their order.
    pub trials: Vec<TrialIndex>,
    /// Instead of trials: what is searched in its only cell.
    pub search: Option<SearchSpec>,
}

/// Where a trial stands among the cells of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialIndex {
    /// Its cell, counted from 0.
    pub cell: usize,
    /// Which repetition.
    pub repeat: u32,
    /// Whether it is the first cell once more.
    pub twin: bool,
}

impl Block {
    /// Of these trials of `experiment`.
    pub fn of(experiment: &Experiment, trials: &[Trial<'_>], command: &str) -> Block {
        let mut cells: Vec<&Cell> = Vec::new();
        let mut places = Vec::new();
        for trial in trials {
            let known = cells.iter().position(|cell| std::ptr::eq(*cell, trial.cell));
            let cell = known.unwrap_or_else(|| {
                cells.push(trial.cell);
                cells.len() - 1
            });
            places.push(TrialIndex { cell, repeat: trial.repeat, twin: trial.twin });
        }
        Block { trials: places, ..Block::of_cells(experiment, cells.into_iter().cloned().collect(), command) }
    }

    /// Of a search in `cell`.
    pub fn of_search(experiment: &Experiment, cell: &Cell, search: &SearchSpec, command: &str) -> Block {
        let block = Block::of_cells(experiment, vec![cell.clone()], command);
        Block { search: Some(search.clone()), ..block }
    }

    fn of_cells(experiment: &Experiment, cells: Vec<Cell>, command: &str) -> Block {
        let alone = Experiment::of_cells(&experiment.name, experiment.seed, 1, cells.clone());
        Block {
            run: String::new(),
            number: 0,
            part: 0,
            experiment: experiment.name.clone(),
            seed: experiment.seed,
            command: command.into(),
            demands: Demands::of(&alone),
            cells,
            trials: vec![],
            search: None,
        }
    }

    /// The experiment as far as carrying out this block needs one.
    pub fn experiment(&self) -> Experiment {
        Experiment::of_cells(&self.experiment, self.seed, 1, self.cells.clone())
    }

    /// Its trials, with the cells of `experiment`, which [`experiment`](Self::experiment) made.
    ///
    /// # Errors
    /// A place is among no cells, or a cell is given twice.
    pub fn trials<'a>(&self, experiment: &'a Experiment) -> Result<Vec<Trial<'a>>, String> {
        let cells: Vec<&Cell> = experiment.sweeps.iter().flat_map(|sweep| &sweep.cells).collect();
        let ids: BTreeSet<String> = self.cells.iter().map(Cell::id).collect();
        if ids.len() != self.cells.len() {
            return Err("a cell stands twice in the block".into());
        }
        let one = |place: &TrialIndex| {
            let wanted = self.cells.get(place.cell).ok_or("a trial of the block has no cell")?;
            let cell = cells.iter().find(|cell| cell.id() == wanted.id()).ok_or("a cell was lost")?;
            Ok(Trial { cell, repeat: place.repeat, twin: place.twin })
        };
        self.trials.iter().map(one).collect()
    }

    /// What is wrong with the search that it asks for, if it does.
    ///
    /// # Errors
    /// It has not one cell, or that cell cannot be searched like this.
    pub fn check_search(&self) -> Result<(), String> {
        let Some(search) = &self.search else { return Ok(()) };
        let ([cell], []) = (self.cells.as_slice(), self.trials.as_slice()) else {
            return Err("a search has one cell and no other trials".into());
        };
        search.goals(self.seed).map_err(|error| error.to_string())?;
        search.check_cell(&cell.spec).map_err(|error| error.to_string())
    }

    /// What is wrong with a block that came as `subject`, if anything; `experiment` is what [`experiment`]
    /// made. What it says of itself is not believed, and its cells are checked before anything is computed
    /// from them.
    ///
    /// # Errors
    /// A sentence for whoever asked.
    ///
    /// [`experiment`]: Self::experiment
    pub fn check(&self, experiment: &Experiment, subject: &str) -> Result<(), String> {
        let safe = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        if !safe(&self.run) || !safe(&self.experiment) {
            return Err("its run and its experiment are no names".into());
        }
        if self.subject() != subject {
            return Err(format!("it came as {subject} and says that it is {}", self.subject()));
        }
        for cell in &self.cells {
            cell.spec.check().map_err(|error| error.to_string())?;
        }
        if Demands::of(experiment) != self.demands {
            return Err("it demands something else than it says".into());
        }
        self.trials(experiment)?;
        self.check_search()
    }

    /// How many machines carry it out together, at the most.
    pub fn machines(&self) -> u32 {
        self.cells.iter().map(|cell| cell.spec.load.machines).max().unwrap_or(1)
    }

    /// All of its parts.
    pub fn parts(&self) -> impl Iterator<Item = Block> + '_ {
        (0..self.machines()).map(|part| Block { part, ..self.clone() })
    }

    /// The subject on which it waits, or a part of it.
    pub fn subject(&self) -> String {
        let block = format!("{}.{}.{}.{}", super::BLOCKS, self.demands.lane(), self.run, self.number);
        if self.part == 0 { block } else { format!("{block}.{}", self.part) }
    }

    /// The key of its hold, and the beginning of the subjects of its results.
    pub fn key(&self) -> String {
        format!("{}.{}", self.run, self.number)
    }
}

/// What a block demands of a machine. Blocks that demand the same wait in one lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demands {
    /// The version of this program.
    pub version: String,
    /// Labels, by name.
    pub labels: BTreeMap<String, String>,
    /// Memory, room, privileges.
    pub needs: Needs,
    /// Engines of the machine's own.
    pub targets: BTreeSet<TargetKind>,
    /// Servers that run already, without their passwords.
    pub servers: BTreeSet<String>,
    /// Recipes that come with tipover.
    pub recipes: BTreeSet<String>,
    /// Recipes of the user's own, by name.
    pub own_recipes: BTreeSet<String>,
    /// Programs of the user's own, by path.
    pub programs: BTreeSet<String>,
    /// Folders in which disks keep their bytes.
    pub folders: BTreeSet<String>,
}

impl Demands {
    /// Of all cells of `experiment`.
    pub fn of(experiment: &Experiment) -> Demands {
        let mut demands = Demands {
            version: version(),
            labels: BTreeMap::new(),
            needs: needs(experiment),
            targets: BTreeSet::new(),
            servers: BTreeSet::new(),
            recipes: BTreeSet::new(),
            own_recipes: BTreeSet::new(),
            programs: BTreeSet::new(),
            folders: BTreeSet::new(),
        };
        for cell in experiment.sweeps.iter().flat_map(|sweep| &sweep.cells) {
            let spec = &cell.spec;
            demands.labels.extend(spec.machine.labels.clone());
            demands.folders.extend(spec.disk.folder.clone());
            match (&spec.lab, &spec.target.address) {
                (Some(lab), _) => {
                    let name = lab.recipe.name.clone();
                    match &lab.recipe.own {
                        Some(_) => demands.own_recipes.insert(name),
                        None => demands.recipes.insert(name),
                    };
                    let programs = [&lab.mongod, &lab.mongos, &lab.polodb];
                    demands.programs.extend(programs.into_iter().flatten().cloned());
                    let disks = lab.roles.values().filter_map(|role| role.disk.as_ref());
                    demands.folders.extend(disks.filter_map(|disk| disk.folder.clone()));
                }
                (None, Some(address)) => {
                    demands.servers.insert(address.shown().to_string());
                }
                (None, None) => {
                    demands.targets.insert(spec.target.kind);
                }
            }
        }
        demands
    }

    /// The name of the lane, a token of a subject.
    pub fn lane(&self) -> String {
        let text = serde_json::to_vec(self).expect("demands are plain data");
        super::digest(&text)[..16].to_string()
    }
}

/// What a machine carries out for others. The default: engines of its own on disks of its own, and nothing
/// that starts another program or asks a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allowed {
    /// Engines of the machine's own.
    pub targets: BTreeSet<TargetKind>,
    /// Recipes that come with tipover. Their servers take any setting that a plan gives them, which can make
    /// some of them run programs as their user.
    pub recipes: BTreeSet<String>,
    /// Whether plans may bring recipes of their own, which start any program.
    pub own_recipes: bool,
    /// Programs besides, by path.
    pub programs: BTreeSet<String>,
    /// Folders besides the agent's own in which disks may keep their bytes.
    pub folders: BTreeSet<String>,
    /// Servers that may be measured from here.
    #[serde(rename = "server")]
    pub servers: Vec<Server>,
}

impl Default for Allowed {
    fn default() -> Allowed {
        Allowed {
            targets: [TargetKind::Null, TargetKind::File, TargetKind::Wiredtiger, TargetKind::Guilty].into(),
            recipes: BTreeSet::new(),
            own_recipes: false,
            programs: BTreeSet::new(),
            folders: BTreeSet::new(),
            servers: vec![],
        }
    }
}

/// A server that may be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its address as plans name it, without a password.
    pub address: Address,
    /// A file here that holds the whole address, with the password.
    #[serde(default, skip_serializing)]
    pub secret: Option<std::path::PathBuf>,
}

/// What a machine tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Its name in the fleet.
    pub machine: String,
    /// Of this start of its agent, to tell two agents of one name.
    pub instance: String,
    /// What its agent was built from.
    pub version: String,
    /// What it was given.
    pub labels: BTreeMap<String, String>,
    /// What `doctor` finds.
    pub facts: machine::Facts,
    /// What it carries out.
    pub allowed: Allowed,
    /// Recipes whose programs are there.
    pub installed: BTreeSet<String>,
    /// What it is doing.
    pub state: State,
    /// Seconds since 1970 on its own clock.
    pub said_unix_s: u64,
}

/// What a machine is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It waits for a block.
    Idle,
    /// It carries out a block.
    Working {
        /// The experiment.
        experiment: String,
        /// Run and number of the block.
        block: String,
        /// Trials that are done.
        done: usize,
        /// Trials of the block; 0: it is a search, which does not know how many it takes.
        of: usize,
        /// Seconds since 1970 at which it took the block.
        since_unix_s: u64,
    },
    /// It sends parts of the loads of a block that another leads.
    Helping {
        /// The experiment.
        experiment: String,
        /// Run and number of the block.
        block: String,
        /// Seconds since 1970 at which it took its part.
        since_unix_s: u64,
    },
    /// It takes no more blocks, since somebody said so.
    Drained,
    /// It takes none, since something is wrong with it.
    Ailing {
        /// What.
        reason: String,
    },
}

impl State {
    /// In a few words.
    pub fn words(&self) -> String {
        match self {
            State::Idle => "idle".into(),
            State::Working { experiment, of: 0, .. } => format!("{experiment}: a search"),
            State::Working { experiment, done, of, .. } => format!("{experiment}: {done} of {of} trials"),
            State::Helping { experiment, .. } => format!("{experiment}: a part of the load"),
            State::Drained => "drained".into(),
            State::Ailing { reason } => format!("ailing: {reason}"),
        }
    }
}

/// Why this machine cannot carry out what is demanded, as sentences; none: it can.
pub fn unfit(card: &Card, demands: &Demands) -> Vec<String> {
    let mut reasons = Vec::new();
    let Card { machine, version, labels, allowed, .. } = card;
    if *version != demands.version {
        reasons.push(format!(
            "{machine} runs tipover {version}, this is {}: two versions would be compared, so install the same",
            demands.version
        ));
        return reasons;
    }
    for (name, wanted) in &demands.labels {
        match labels.get(name) {
            Some(found) if found == wanted => {}
            Some(found) => reasons.push(format!("{machine} has the label {name}={found}, not {wanted}")),
            None => reasons.push(format!("{machine} has no label {name}={wanted}")),
        }
    }
    let unmet = machine::check(&card.facts, &demands.needs);
    let unmet = unmet.iter().filter(|r| !r.met && r.severity == Severity::CannotRun);
    reasons.extend(unmet.map(|r| format!("{machine}: {}: wanted {}, found {}", r.id, r.wanted, r.found)));
    let mut refuse = |what: &str, wanted: &str, is_allowed: bool| {
        if !is_allowed {
            reasons.push(format!("{machine} does not allow the {what} {wanted}"));
        }
    };
    for kind in &demands.targets {
        let word = serde_json::to_value(kind).unwrap_or_default();
        refuse("target", word.as_str().unwrap_or_default(), allowed.targets.contains(kind));
    }
    for server in &demands.servers {
        refuse("server", server, allowed.servers.iter().any(|known| known.address.shown() == server));
    }
    for recipe in &demands.recipes {
        refuse("recipe", recipe, allowed.recipes.contains(recipe));
    }
    for recipe in &demands.own_recipes {
        refuse("recipe of one's own", recipe, allowed.own_recipes);
    }
    for program in &demands.programs {
        refuse("program", program, allowed.programs.contains(program));
    }
    for folder in &demands.folders {
        refuse("folder", folder, allowed.folders.contains(folder));
    }
    let absent = demands.recipes.difference(&card.installed);
    reasons.extend(absent.map(|recipe| format!("{machine} lacks the program of the recipe {recipe}")));
    reasons
}

/// What is said of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Said {
    /// A trial or a search was carried out, and its files are there.
    Done {
        /// Which, by [`trial_name`] or [`search_name`].
        what: String,
        /// Who carried it out.
        machine: String,
        /// Its files.
        files: Vec<Given>,
    },
    /// Nobody will carry out more of it.
    End {
        /// Who says so.
        machine: String,
        /// Why not all of it was carried out.
        reason: Option<String>,
    },
}

/// A trial's name in its run: `cell/0`, `cell/0-again`.
pub fn trial_name(trial: &Trial<'_>) -> String {
    format!("{}/{}", trial.cell.id(), trial.folder())
}

/// A search's name in its run. Other promises or another range make another search.
pub fn search_name(cell: &Cell, search: &SearchSpec) -> String {
    let text = serde_json::to_vec(search).expect("a search is plain data");
    format!("{}/search-{}", cell.id(), &super::digest(&text)[..8])
}

/// What a machine that has a part of a block answers to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// Its name.
    pub machine: String,
    /// Of that start of its agent: what it is called by from now on.
    pub instance: String,
    /// Which part it has.
    pub part: u32,
    /// Its processors.
    pub processors: u32,
}

/// What the leader of a block says to such a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Say {
    /// What does your clock show?
    Clock,
    /// Start the target of a cell.
    Start {
        /// The cell, by its id.
        cell: String,
        /// What a search changed in it.
        changed: Option<Resource>,
        /// Seed of the operations.
        seed: u64,
        /// Which part of the load.
        part: Part,
        /// Zero of the trial clock, in nanoseconds of the machine's own CLOCK_MONOTONIC.
        origin_ns: u64,
    },
    /// Tell your agent.
    Do {
        /// A command of sessions.
        command: Command,
    },
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The time.
    Clock {
        /// Of CLOCK_MONOTONIC, in nanoseconds.
        shown_ns: u64,
    },
    /// What its agent answered.
    Did {
        /// That.
        answer: Box<generator::Reply>,
    },
    /// It could not, or would not.
    Refused {
        /// A sentence.
        reason: String,
    },
}

/// A file of a trial in the object store, under the digest of its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Its name in the trial's folder.
    pub name: String,
    /// SHA-256, in hexadecimal digits.
    pub digest: String,
    /// Its size.
    pub size_bytes: u64,
}
