//! One session's way through scripts: what is to be sent next, with the variables that it keeps.

use super::document::Template;
use super::draw::Chance;
use super::expression::Expression;
use super::text::{Action, Amount, Expectation, Piece, Statement, Store};
use super::value::{Quoting, Value};
use super::{Dialect, Names, Random, Script, Scripts, text};
use crate::workload::documents::Bson;
use std::sync::Arc;
use std::time::Duration;

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send the statement of this command, and tell when it was answered.
    Send(usize),
    /// Go on after a pause.
    Sleep(Duration),
    /// Statements are sent without waiting from now on.
    StartPipeline,
    /// Send a point of synchronisation.
    SyncPipeline,
    /// Wait for all that was sent.
    EndPipeline,
    /// The script is over.
    Over,
}

/// What a recorded load sends outside its record, while its sessions warm up.
const WARM_UP: &str = "SELECT 1";

/// Why a session cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// Which command of the script, counted from 0.
    pub command: usize,
    /// One sentence.
    pub reason: String,
}

/// A session's variables and its place in a script.
#[derive(Debug)]
pub struct Run {
    scripts: Arc<Scripts>,
    /// `None` is not set.
    variables: Vec<Option<Value>>,
    /// As they were before the first operation, where every one begins with them.
    presets: Vec<Option<Value>>,
    /// As they were when the operation began, where it may be tried again.
    before: Vec<Option<Value>>,
    chance: Chance,
    script: u32,
    /// Of the operation at hand.
    number: u64,
    at: usize,
    stack: Vec<Value>,
    notes: Vec<Value>,
    /// The variable that holds the number of the operation, where a script asks for it.
    operation: Option<usize>,
    /// Why the operation cannot be begun.
    refused: Option<String>,
}

impl Run {
    /// A session's variables before its first operation; `client` is its number.
    pub fn new(scripts: Arc<Scripts>, client: u32) -> Run {
        let mut variables = scripts.answer.get().cloned().unwrap_or_default();
        variables.resize(scripts.names.names.len(), None);
        for (number, value) in &scripts.presets {
            variables[*number] = Some(value.clone());
        }
        if let Some(number) = scripts.names.known("client_id") {
            variables[number].get_or_insert(Value::Integer(client.into()));
        }
        let chance = Chance::new(Random::new(0, 0));
        let presets = if scripts.forgets { variables.clone() } else { Vec::new() };
        let (stack, notes, before) = (Vec::new(), Vec::new(), Vec::new());
        let is_plan = scripts.names.dialect >= Dialect::Plan;
        let operation = scripts.names.known("operation").filter(|_| is_plan);
        let (script, at, refused) = (0, 0, None);
        Run {
            scripts,
            variables,
            presets,
            before,
            chance,
            script,
            number: 0,
            at,
            stack,
            notes,
            operation,
            refused,
        }
    }

    /// What it runs.
    #[inline]
    pub fn scripts(&self) -> &Arc<Scripts> {
        &self.scripts
    }

    /// The script that it is in.
    #[inline]
    pub fn script(&self) -> &Script {
        &self.scripts.scripts[self.script as usize]
    }

    /// The command that was begun last.
    #[inline]
    pub fn command(&self) -> usize {
        self.at.saturating_sub(1)
    }

    /// Begins operation `number`, a run of `script`.
    #[inline]
    pub fn begin(&mut self, script: u32, number: u64) {
        (self.script, self.number, self.at) = (script, number, 0);
        self.chance.random = Random::new(self.scripts.seed, number);
        if self.scripts.forgets {
            self.variables.clone_from(&self.presets);
        }
        if let Some(operation) = self.operation {
            self.variables[operation] = Some(Value::Integer(number as i64));
        }
        self.refused = None;
        let Run { scripts, variables, chance, stack, .. } = self;
        for number in &scripts.scripts[script as usize].draws {
            if let Err(reason) = scripts.samples[*number].take(&scripts.names, variables, chance, stack) {
                self.refused = Some(reason);
                break;
            }
        }
        if self.scripts.retries {
            self.before.clone_from(&self.variables);
        }
    }

    /// The operation failed and may be tried again: its variables are as they were before.
    pub fn undo(&mut self) {
        if self.scripts.retries {
            self.variables.clone_from(&self.before);
        }
    }

    /// Goes on to the next thing that takes time.
    ///
    /// # Errors
    /// Why the session cannot go on.
    pub fn step(&mut self) -> Result<Step, Abort> {
        loop {
            if let Some(step) = self.command_after()? {
                return Ok(step);
            }
        }
    }

    /// Carries out one command, unless that takes time: then it is told what is to be done.
    ///
    /// # Errors
    /// Why the session cannot go on.
    #[inline]
    pub fn command_after(&mut self) -> Result<Option<Step>, Abort> {
        if let Some(reason) = self.refused.take() {
            return Err(Abort { command: 0, reason });
        }
        let Run { scripts, variables, chance, stack, notes, at, .. } = self;
        let commands = &scripts.scripts[self.script as usize].commands;
        let Some(command) = commands.get(*at) else {
            if scripts.ask == Some(self.script) {
                let mut brought = variables.clone();
                if let Some(number) = scripts.names.known("client_id") {
                    brought[number] = None;
                }
                // Whoever asked first has the word.
                let _ = scripts.answer.set(brought);
            }
            return Ok(Some(Step::Over));
        };
        let here = *at;
        *at += 1;
        let mut value = |expression: &Expression| {
            expression.value(&|number| variable(&scripts.names, variables, number), chance, stack, notes)
        };
        let abort = |reason: String| Abort { command: here, reason };
        match &command.action {
            Action::Sql(_) => return Ok(Some(Step::Send(here))),
            Action::Set(number, expression) => {
                let value = value(expression).map_err(abort)?;
                variables[*number] = Some(value);
            }
            Action::If(condition, branch) => {
                if !value(condition).map_err(abort)?.is_true() {
                    let mut next = branch.next;
                    while let Action::Elif(condition, branch) = &commands[next].action {
                        let value = value(condition).map_err(|reason| Abort { command: next, reason })?;
                        if value.is_true() {
                            break;
                        }
                        next = branch.next;
                    }
                    *at = next + 1;
                }
            }
            // A branch that was taken ends here.
            Action::Elif(_, branch) | Action::Else(branch) => *at = branch.end + 1,
            Action::Endif => {}
            Action::Sleep(amount, unit) => {
                let (amount, unit) = (*amount, *unit);
                return self.sleep(amount, unit).map(|time| Some(Step::Sleep(time))).map_err(abort);
            }
            Action::StartPipeline => return Ok(Some(Step::StartPipeline)),
            Action::SyncPipeline => return Ok(Some(Step::SyncPipeline)),
            Action::EndPipeline => return Ok(Some(Step::EndPipeline)),
        }
        Ok(None)
    }

    fn sleep(&mut self, amount: Amount, unit: Duration) -> Result<Duration, String> {
        let amount = match amount {
            Amount::Constant(amount) => amount,
            Amount::Variable(number) => match variable(&self.scripts.names, &self.variables, number) {
                Ok(Value::Integer(amount)) => amount,
                Ok(value) => {
                    let name = self.scripts.names.name(number);
                    return Err(format!("sleep: variable \"{name}\" is no integer but {value}"));
                }
                Err(reason) => return Err(format!("sleep: {reason}")),
            },
        };
        // Nobody waits for a time before now.
        let times = u32::try_from(amount.max(0)).unwrap_or(u32::MAX);
        Ok(unit.saturating_mul(times))
    }

    /// What `debug` was given since it was asked last, with the number of the command from 1.
    #[inline]
    pub fn notes(&mut self) -> impl Iterator<Item = String> + '_ {
        let (script, command) = (self.script, self.at);
        self.notes.drain(..).map(move |value| {
            let kind = value.kind();
            match value {
                Value::Null => format!("debug(script={script},command={command}): null"),
                value => format!("debug(script={script},command={command}): {kind} {value}"),
            }
        })
    }

    /// The statement of a command.
    #[inline]
    pub fn statement(&self, command: usize) -> &Statement {
        match &self.script().commands[command].action {
            Action::Sql(statement) => statement,
            _ => unreachable!("only statements are sent"),
        }
    }

    /// The statement of a command, if it is one.
    #[inline]
    pub fn statement_of(&self, command: usize) -> Option<&Statement> {
        match &self.script().commands.get(command)?.action {
            Action::Sql(statement) => Some(statement),
            _ => None,
        }
    }

    /// Appends the statement of a command with its variables' values; one that is not set stays as it
    /// stands there, and the server will say so.
    pub fn put_text(&self, command: usize, quoting: Quoting, out: &mut Vec<u8>) {
        for piece in &self.statement(command).pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Part(number) => self.put_part(*number, out),
                Piece::Recorded => {
                    let statement = self.scripts.recorded.as_ref().and_then(|all| all.statement(self.number));
                    out.extend_from_slice(statement.map_or(WARM_UP, |statement| &statement.text).as_bytes());
                }
                Piece::Variable(number) => match &self.variables[*number] {
                    Some(value) => value.put_constant(quoting, out),
                    None => self.put_part(*number, out),
                },
            }
        }
    }

    /// The value of a variable as it stands, or its name where it has none.
    fn put_part(&self, number: usize, out: &mut Vec<u8>) {
        match &self.variables[number] {
            Some(value) => value.put(out),
            None => {
                out.push(b':');
                out.extend_from_slice(self.scripts.names.name(number).as_bytes());
            }
        }
    }

    /// The statement of a command with parameters where variables go, as `parameter` writes them from their
    /// number, counted from 1.
    pub fn with_parameters(&self, command: usize, parameter: impl Fn(usize) -> String) -> String {
        let mut text = Vec::new();
        let mut number = 0;
        for piece in &self.statement(command).pieces {
            match piece {
                Piece::Text(piece) => text.extend_from_slice(piece.as_bytes()),
                Piece::Part(number) => self.put_part(*number, &mut text),
                Piece::Recorded => unreachable!("what was recorded is sent as text"),
                Piece::Variable(_) => {
                    number += 1;
                    text.extend_from_slice(parameter(number).as_bytes());
                }
            }
        }
        String::from_utf8(text).expect("all pieces and values are texts")
    }

    /// Writes the document of a command with its variables' values.
    ///
    /// # Errors
    /// A variable that has no value, or none of the type that is asked for.
    pub fn put_document(&self, command: usize, template: &Template, out: &mut Bson) -> Result<(), Abort> {
        let variable = |number: usize| self.variables[number].as_ref();
        let written = template.write(&self.scripts.names, variable, out);
        written.map_err(|reason| Abort { command, reason })
    }

    /// Appends what tells the statement of a command from itself with other words: the values that are parts
    /// of them. Nothing for most.
    #[inline]
    pub fn put_words(&self, command: usize, out: &mut Vec<u8>) {
        for number in self.statement(command).parts() {
            self.put_part(number, out);
            out.push(0);
        }
    }

    /// The value of a variable, if it is an integer.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.variables[self.scripts.names.known(name)?] {
            Some(Value::Integer(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of a parameter; `None` is NULL.
    #[inline]
    pub fn parameter(&self, number: usize) -> Option<&Value> {
        self.variables[number].as_ref().filter(|value| **value != Value::Null)
    }

    /// What the answer to a command's statement does not hold of what the script expects, as a sentence. So
    /// many rows came or were changed; `value` is the first of the first row.
    ///
    /// # Errors
    /// An expression that has no value.
    pub fn check(&mut self, command: usize, rows: u64, value: Option<&str>) -> Result<Option<String>, Abort> {
        let Run { scripts, variables, chance, stack, notes, .. } = self;
        let Action::Sql(statement) = &scripts.scripts[self.script as usize].commands[command].action else {
            return Ok(None);
        };
        for expected in &statement.expected {
            let holds = match &expected.what {
                Expectation::Rows(least, most) => (*least..=*most).contains(&rows),
                Expectation::True(expression) => {
                    let known = |number: usize| match scripts.names.name(number) {
                        "rows" => Ok(Value::Integer(rows as i64)),
                        "value" => Ok(value.map_or(Value::Null, |text| {
                            Value::of_text(text).unwrap_or_else(|| Value::Quoted(text.into()))
                        })),
                        _ => variable(&scripts.names, variables, number),
                    };
                    let said = expression.value(&known, chance, stack, notes);
                    said.map_err(|reason| Abort { command, reason })?.is_true()
                }
            };
            if !holds {
                let value = value.map_or(String::new(), |value| {
                    format!(", the first value is {}", value.chars().take(40).collect::<String>())
                });
                return Ok(Some(format!("expected {}, and there are {rows} rows{value}", expected.text)));
            }
        }
        Ok(None)
    }

    /// Where the results of a command's statement go; a server may answer what is none.
    #[inline]
    pub fn store(&self, command: usize) -> Option<&Store> {
        self.statement_of(command)?.store.as_ref()
    }

    /// Sets the variable that a column of a result goes to.
    ///
    /// # Errors
    /// If no variable can be called so.
    pub fn bring(&mut self, command: usize, column: &str, value: Option<&str>) -> Result<(), Abort> {
        let value = value.map_or(Value::Null, |value| Value::Text(value.into()));
        self.bring_value(command, column, value)
    }

    /// The same with a value whose type is known.
    ///
    /// # Errors
    /// If no variable can be called so.
    pub fn bring_value(&mut self, command: usize, column: &str, value: Value) -> Result<(), Abort> {
        let store = self.store(command).expect("somebody asked for it");
        let (name, word) = (format!("{}{column}", store.prefix), if store.all { "aset" } else { "gset" });
        if !text::is_name(&name) {
            let reason =
                format!("{word}: invalid variable name: \"{name}\"; name the column by AS, or give a prefix");
            return Err(Abort { command, reason });
        }
        // What no script asks for need not be kept.
        if let Some(number) = self.scripts.names.known(&name) {
            self.variables[number] = Some(value);
        }
        Ok(())
    }
}

/// The value of a variable in an expression.
#[inline]
pub(super) fn variable(names: &Names, variables: &[Option<Value>], number: usize) -> Result<Value, String> {
    match &variables[number] {
        Some(Value::Text(text)) => Value::of_text(text)
            .ok_or_else(|| format!("malformed variable \"{}\" value: \"{text}\"", names.name(number))),
        Some(value @ Value::Quoted(text)) => Ok(Value::of_text(text).unwrap_or_else(|| value.clone())),
        Some(value) => Ok(value.clone()),
        None => Err(format!("undefined variable \"{}\"", names.name(number))),
    }
}
