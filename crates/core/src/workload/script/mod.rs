//! Scripts of statements: what pgbench calls a transaction type. One run of a script is one operation; which
//! script, and every random number in it, is a function of (seed, n).
//!
//! Written from the documentation of PostgreSQL 15 to 18. What a script does is decided here, without a
//! server: [`Run`] says step by step what to send, and is told what came back.

mod alike;
mod builtin;
mod document;
pub(super) mod draw;
mod expression;
mod function;
mod run;
mod samples;
mod sql;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use builtin::{BUILT_IN, BuiltIn};
pub(crate) use document::NUMBERED;
pub use document::{Order, Template};
pub use draw::put_digits;
pub use run::{Abort, Run, Step};
pub use samples::{SampleSpec, Texts};
pub use text::{Action, Command, Expected, Mistake, Statement};
pub use value::{Quoting, Value};

use super::recorded::Recorded;
use super::sysbench::Sysbench;
use super::{Random, Records, Workload};
use crate::op::{Op, OpKind};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Whose language scripts are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// pgbench's, and what it would refuse is refused.
    #[default]
    Pgbench,
    /// The same, with the functions that only plans have.
    Plan,
    /// The same, and statements are commands of MongoDB.
    Commands,
}

/// Numbers of variables by their names, the same for all scripts of a run.
#[derive(Debug, Clone, Default)]
pub struct Names {
    dialect: Dialect,
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    /// Those that were mentioned since this was emptied.
    mentioned: BTreeSet<usize>,
}

impl Names {
    /// The number of `name`, given now if it has none.
    fn number(&mut self, name: &str) -> usize {
        let number = *self.numbers.entry(name.into()).or_insert(self.names.len());
        if number == self.names.len() {
            self.names.push(name.into());
        }
        self.mentioned.insert(number);
        number
    }

    /// The number of `name`, if a script uses it.
    fn known(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// What variable `number` is called.
    fn name(&self, number: usize) -> &str {
        &self.names[number]
    }
}

/// A script that was read.
#[derive(Debug, Clone)]
pub struct Script {
    /// What it is called: its file, or `<builtin: ...>`.
    pub name: String,
    /// How often it is chosen, compared with the others.
    pub weight: u64,
    /// What it does, in its order.
    pub commands: Vec<Command>,
    text: String,
    figures: Vec<Figures>,
    /// The variables in it.
    mentions: BTreeSet<usize>,
    /// Of which files of samples its runs draw a row, by their numbers.
    draws: Vec<usize>,
}

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// As texts, with the values of variables in them.
    #[default]
    Simple,
    /// With parameters apart from the text.
    Extended,
    /// The same, and each text only once on each connection.
    Prepared,
}

/// What became of one command over all sessions.
#[derive(Debug, Default)]
pub struct Figures {
    /// Times that it was carried out.
    pub runs: AtomicU64,
    /// Nanoseconds that this took in all.
    pub time_ns: AtomicU64,
    /// Runs of the script that failed here and were not tried again.
    pub failures: AtomicU64,
    /// Runs of the script that failed here and were tried again.
    pub retries: AtomicU64,
}

impl Clone for Figures {
    fn clone(&self) -> Self {
        let copied = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::Relaxed));
        Figures {
            runs: copied(&self.runs),
            time_ns: copied(&self.time_ns),
            failures: copied(&self.failures),
            retries: copied(&self.retries),
        }
    }
}

impl Figures {
    /// Counts a run that took so long.
    pub fn took(&self, time: Duration) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.time_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The tables that are made for scripts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tables {
    /// None: the scripts find those of their owner.
    #[default]
    None,
    /// pgbench's, with this many branches.
    Pgbench {
        /// How many.
        scale: u64,
    },
    /// sysbench's.
    Sysbench(Sysbench),
}
/// What the two scripts of a record are called.
pub const RECORDED: [&str; 2] = ["recorded reads", "recorded changes"];

/// A workload of scripts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Scripts {
    scripts: Vec<Script>,
    names: Names,
    /// What classes of statements are called.
    classes: Vec<String>,
    samples: Vec<samples::Samples>,
    /// Set in every session before its first operation.
    presets: Vec<(usize, Value)>,
    /// Of everything random.
    pub seed: u64,
    /// How statements are sent.
    pub protocol: Protocol,
    /// Whether every operation has a connection of its own.
    pub reconnects: bool,
    /// Whether commands are timed one by one.
    pub times_commands: bool,
    /// Whether a failed operation may be tried again, with its variables as they were before.
    pub retries: bool,
    /// Whether a session ends with the first error that no retry can mend, as pgbench's clients do.
    pub ends_on_error: bool,
    /// Whether every statement is timed by itself, as a part of its operation.
    pub times_statements: bool,
    /// The tables that are made for them.
    pub tables: Tables,
    /// Whether every operation begins with the presets, whatever the one before left in variables: then what
    /// operation n sends is a function of (seed, n).
    pub forgets: bool,
    /// The script that is run once before all others, and what it brought: shared by all who run the scripts.
    ask: Option<u32>,
    answer: Arc<OnceLock<Vec<Option<Value>>>>,
    /// What sessions once sent, in place of scripts that somebody wrote.
    recorded: Option<Recorded>,
    total_weight: u64,
}

impl Scripts {
    /// None yet.
    pub fn new(seed: u64, dialect: Dialect) -> Scripts {
        Scripts {
            scripts: Vec::new(),
            names: Names { dialect, ..Names::default() },
            classes: Vec::new(),
            samples: Vec::new(),
            presets: Vec::new(),
            seed,
            protocol: Protocol::Simple,
            reconnects: false,
            times_commands: false,
            retries: false,
            ends_on_error: false,
            forgets: false,
            times_statements: false,
            tables: Tables::None,
            ask: None,
            answer: Arc::default(),
            recorded: None,
            total_weight: 0,
        }
    }

    /// Reads a script and adds it.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn add(&mut self, name: &str, bytes: &[u8], weight: u64) -> Result<(), Mistake> {
        self.names.mentioned.clear();
        let mut commands = text::parse(name, bytes, &mut self.names)?;
        let mentions = std::mem::take(&mut self.names.mentioned);
        for command in &mut commands {
            let Action::Sql(statement) = &mut command.action else { continue };
            let shared = statement.name.as_ref().and_then(|name| self.classes.iter().position(|c| c == name));
            statement.class = shared.unwrap_or(self.classes.len());
            if shared.is_none() && self.classes.len() < OpKind::STATEMENTS {
                let shown: String = command.shown.chars().take(Self::SHOWN).collect();
                let of_its_place = || format!("{name}:{} {shown}", command.line);
                self.classes.push(statement.name.clone().unwrap_or_else(of_its_place));
            }
        }
        let figures = commands.iter().map(|_| Figures::default()).collect();
        let text = String::from_utf8_lossy(bytes).into_owned();
        let draws = Vec::new();
        self.scripts.push(Script { name: name.into(), weight, commands, text, figures, mentions, draws });
        self.total_weight = self.total_weight.saturating_add(weight);
        self.link_samples();
        Ok(())
    }

    /// A run draws a row of those files whose columns its script mentions, and of those that another draw
    /// needs.
    fn link_samples(&mut self) {
        let wanted: BTreeSet<usize> = self.samples.iter().flat_map(|samples| samples.wants.clone()).collect();
        for script in &mut self.scripts {
            let is_drawn = |samples: &samples::Samples| samples.has(&script.mentions) || samples.has(&wanted);
            let numbered = self.samples.iter().enumerate();
            script.draws =
                numbered.filter(|(_, samples)| is_drawn(samples)).map(|(number, _)| number).collect();
        }
    }

    /// Reads rows of which every operation draws one, and adds them.
    ///
    /// # Errors
    /// The first mistake in them.
    pub fn add_samples(&mut self, spec: SampleSpec) -> Result<(), Mistake> {
        let samples = samples::Samples::read(spec, &mut self.names)?;
        self.samples.push(samples);
        self.link_samples();
        Ok(())
    }

    /// How many characters of a statement stand for one that has no name.
    const SHOWN: usize = 40;

    /// What a class of statements is called: by its name, or by its script, line and first words. The last
    /// class may hold others, too.
    pub fn class(&self, class: usize) -> Option<&str> {
        self.classes.get(class).map(String::as_str)
    }

    /// Reads the script that is run once before all others, and adds it behind them; what it brings are
    /// variables of every session that begins later.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn asks(&mut self, name: &str, bytes: &[u8]) -> Result<(), Mistake> {
        self.ask = Some(self.scripts.len() as u32);
        self.add(name, bytes, 0)
    }

    /// The script that is run once before all others, if there is one.
    #[inline]
    pub fn asked(&self) -> Option<u32> {
        self.ask
    }

    /// Sends what was recorded and nothing else: as two scripts, so that what reads and what may change data
    /// have figures of their own.
    pub fn replays(&mut self, recorded: Recorded) {
        let statement = || Statement {
            pieces: vec![text::Piece::Recorded],
            order: None,
            joined: false,
            store: None,
            name: None,
            class: 0,
            expected: Vec::new(),
        };
        let command =
            || Command { action: Action::Sql(statement()), shown: "as recorded".into(), line: 1, column: 1 };
        self.scripts = RECORDED
            .map(|name| Script {
                name: name.into(),
                weight: 1,
                commands: vec![command()],
                text: String::new(),
                figures: vec![Figures::default()],
                mentions: BTreeSet::new(),
                draws: Vec::new(),
            })
            .into();
        self.recorded = Some(recorded);
    }

    /// Whether an operation may leave its transaction open: the next one of its session goes on with it.
    pub fn keeps_transactions(&self) -> bool {
        self.recorded.is_some()
    }

    /// Whether it was run.
    pub fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }

    /// Presets a variable of every session, unless it has a value already.
    ///
    /// # Errors
    /// If no variable can be called so.
    pub fn preset(&mut self, name: &str, value: Value) -> Result<(), String> {
        if !text::is_name(name) {
            return Err(format!(
                "invalid variable name: \"{name}\"; letters, digits and underscores make one"
            ));
        }
        let number = self.names.number(name);
        if !self.presets.iter().any(|(known, _)| *known == number) {
            self.presets.push((number, value));
        }
        Ok(())
    }

    /// All of them, in the order in which they were added.
    #[inline]
    pub fn scripts(&self) -> &[Script] {
        &self.scripts
    }

    /// The sum of all weights; an operation can only be drawn if it is not zero.
    pub fn total_weight(&self) -> u64 {
        self.total_weight
    }

    /// The texts of statements with their classes, with these words in place of values and of parts of words.
    /// None of those that are several, joined, or that are no texts.
    pub fn texts<'a>(
        &'a self,
        parameter: &'a str,
        part: &'a str,
    ) -> impl Iterator<Item = (usize, String)> + 'a {
        let statement = |command: &'a Command| match &command.action {
            Action::Sql(statement) if statement.order.is_none() && !statement.joined => Some(statement),
            _ => None,
        };
        let word = move |piece: &'a text::Piece| match piece {
            text::Piece::Text(text) => text,
            text::Piece::Variable(_) => parameter,
            text::Piece::Part(_) => part,
            text::Piece::Recorded => "",
        };
        let statements = self.scripts.iter().flat_map(|script| &script.commands).filter_map(statement);
        statements.map(move |statement| (statement.class, statement.pieces.iter().map(word).collect()))
    }

    /// Whether a script sends statements in pipelines.
    pub fn has_pipelines(&self) -> bool {
        let is_pipeline = |command: &Command| matches!(command.action, Action::StartPipeline);
        self.scripts.iter().any(|script| script.commands.iter().any(is_pipeline))
    }

    /// Whether a script begins transactions by a word of its own, not the server's.
    pub fn has_transactions(&self) -> bool {
        let begins = |command: &Command| {
            matches!(&command.action, Action::Sql(Statement { order: Some(Order::Begin), .. }))
        };
        self.scripts.iter().any(|script| script.commands.iter().any(begins))
    }

    /// Whether a script has a statement that does not begin with SELECT, or a command that does not only
    /// read, and so may change something.
    pub fn may_change(&self) -> bool {
        if let Some(recorded) = &self.recorded {
            return recorded.changes();
        }
        let changes = |command: &Command| match &command.action {
            Action::Sql(Statement { order: Some(order), .. }) => {
                matches!(order, Order::Command(command) if command.changes)
            }
            Action::Sql(statement) => !matches!(statement.pieces.first(), Some(text::Piece::Text(text))
                if text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"))),
            _ => false,
        };
        self.scripts.iter().any(|script| script.commands.iter().any(changes))
    }

    /// What is done at a command of operation `number`, on a server that takes no texts. Of a record it is
    /// the command whose number the operation has.
    ///
    /// # Errors
    /// A record that holds something else.
    pub fn order(&self, (script, number): (u32, u64), command: usize) -> Result<Cow<'_, Order>, Abort> {
        /// What a recorded load sends outside its record, while its sessions warm up.
        const WARM_UP: &str = "{\"ping\": 1}";
        let here = self.scripts.get(script as usize).and_then(|script| script.commands.get(command));
        if let Some(Action::Sql(Statement { order: Some(order), .. })) = here.map(|here| &here.action) {
            return Ok(Cow::Borrowed(order));
        }
        let recorded = self.recorded.as_ref().and_then(|all| all.statement(number));
        let text = recorded.map_or(WARM_UP, |statement| &statement.text);
        let read = Template::recorded(text);
        let read = read.map_err(|mistake| Abort { command, reason: mistake.to_string() })?;
        Ok(Cow::Owned(Order::Command(read)))
    }

    /// Which script operation `n` runs.
    #[inline]
    pub fn chosen(&self, n: u64) -> u32 {
        if let Some(recorded) = &self.recorded {
            return u32::from(recorded.statement(n).is_some_and(|statement| statement.changes));
        }
        if self.scripts.len() == 1 {
            return 0;
        }
        /// Apart from the draws of the script itself.
        const CHOICE: u64 = 0x5C41_9705;
        let mut at = Random::new(self.seed ^ CHOICE, n).below(self.total_weight.max(1));
        for (number, script) in self.scripts.iter().enumerate() {
            if at < script.weight {
                return number as u32;
            }
            at -= script.weight;
        }
        0
    }

    /// What became of a command.
    pub fn figures(&self, script: u32, command: usize) -> Option<&Figures> {
        self.scripts.get(script as usize)?.figures.get(command)
    }
}

/// Scripts as they are written down.
#[derive(Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Names, texts, weights.
    scripts: Vec<(String, String, u64)>,
    presets: Vec<(String, Value)>,
    seed: u64,
    #[serde(default)]
    dialect: Dialect,
    protocol: Protocol,
    #[serde(default)]
    reconnects: bool,
    #[serde(default)]
    times_commands: bool,
    #[serde(default)]
    retries: bool,
    #[serde(default)]
    ends_on_error: bool,
    #[serde(default)]
    forgets: bool,
    #[serde(default)]
    times_statements: bool,
    #[serde(default)]
    tables: Tables,
    #[serde(default)]
    ask: Option<u32>,
    #[serde(default)]
    recorded: Option<Recorded>,
    #[serde(default)]
    samples: Vec<SampleSpec>,
}

impl From<Scripts> for Written {
    fn from(scripts: Scripts) -> Written {
        let written = |script: Script| (script.name, script.text, script.weight);
        let name = |(number, value)| (scripts.names.name(number).to_string(), value);
        Written {
            presets: scripts.presets.into_iter().map(name).collect(),
            scripts: scripts.scripts.into_iter().map(written).collect(),
            seed: scripts.seed,
            dialect: scripts.names.dialect,
            protocol: scripts.protocol,
            reconnects: scripts.reconnects,
            times_commands: scripts.times_commands,
            retries: scripts.retries,
            ends_on_error: scripts.ends_on_error,
            forgets: scripts.forgets,
            times_statements: scripts.times_statements,
            tables: scripts.tables,
            ask: scripts.ask,
            recorded: scripts.recorded,
            samples: scripts.samples.into_iter().map(|samples| samples.spec).collect(),
        }
    }
}

impl TryFrom<Written> for Scripts {
    type Error = String;

    fn try_from(written: Written) -> Result<Scripts, String> {
        let mut scripts = Scripts {
            protocol: written.protocol,
            reconnects: written.reconnects,
            times_commands: written.times_commands,
            retries: written.retries,
            ends_on_error: written.ends_on_error,
            forgets: written.forgets,
            ask: written.ask,
            times_statements: written.times_statements,
            tables: written.tables,
            ..Scripts::new(written.seed, written.dialect)
        };
        if written.recorded.is_some() {
            return Err("a record is read where its plan is, and not handed on".into());
        }
        for (name, text, weight) in written.scripts {
            scripts.add(&name, text.as_bytes(), weight).map_err(|mistake| mistake.to_string())?;
        }
        for spec in written.samples {
            scripts.add_samples(spec).map_err(|mistake| mistake.to_string())?;
        }
        written.presets.into_iter().try_for_each(|(name, value)| scripts.preset(&name, value))?;
        Ok(scripts)
    }
}

impl PartialEq for Scripts {
    fn eq(&self, other: &Self) -> bool {
        Written::from(self.clone()) == Written::from(other.clone())
    }
}

/// Runs scripts; operation n is the run of one of them.
#[derive(Debug, Clone)]
pub struct ScriptRuns(pub Arc<Scripts>);

impl Workload for ScriptRuns {
    #[inline]
    fn op(&self, n: u64, _: &Records) -> Op {
        Op::Script { script: self.0.chosen(n), number: n }
    }

    fn session(&self, n: u64) -> Option<u32> {
        let recorded = self.0.recorded.as_ref()?;
        Some(recorded.statement(n).map_or(0, |statement| statement.session))
    }
}
