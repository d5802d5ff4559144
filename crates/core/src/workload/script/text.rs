//! Scripts as pgbench reads them: SQL statements up to their semicolons, meta commands up to the end of the
//! line.

use super::document::{self, Order};
use super::expression::Expression;
use super::{Dialect, Names};
use crate::nearest::did_you_mean;
use std::fmt;
use std::time::Duration;

/// A word with the file, line and column that it is about; both count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistake {
    /// What the script is called.
    pub script: String,
    /// The line, counted from 1.
    pub line: usize,
    /// Where in the line.
    pub column: usize,
    /// One sentence.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mistake { script, line, column, reason } = self;
        write!(f, "{script}:{line}:{column}: {reason}")
    }
}

/// What the script does at one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What.
    pub action: Action,
    /// As a report of statements shows it: its first line.
    pub shown: String,
    /// Where it begins.
    pub line: usize,
    /// Where in the line.
    pub column: usize,
}

/// Kinds of commands.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Sends SQL.
    Sql(Statement),
    /// Sets the variable of this number.
    Set(usize, Expression),
    /// Begins a conditional block.
    If(Expression, Branch),
    /// Another condition of the block.
    Elif(Expression, Branch),
    /// What is done where no condition was true.
    Else(Branch),
    /// Ends the block.
    Endif,
    /// Pauses: how many of these.
    Sleep(Amount, Duration),
    /// From here on statements are sent without waiting for their results.
    StartPipeline,
    /// A point of synchronisation within a pipeline.
    SyncPipeline,
    /// Waits for all results of the pipeline.
    EndPipeline,
}

impl Action {
    /// As pgbench names it.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Sql(statement) => match &statement.store {
                None => "SQL",
                Some(store) if store.all => "aset",
                Some(_) => "gset",
            },
            Action::Set(..) => "set",
            Action::If(..) => "if",
            Action::Elif(..) => "elif",
            Action::Else(_) => "else",
            Action::Endif => "endif",
            Action::Sleep(..) => "sleep",
            Action::StartPipeline => "startpipeline",
            Action::SyncPipeline => "syncpipeline",
            Action::EndPipeline => "endpipeline",
        }
    }
}

/// Where a conditional block goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Branch {
    /// The command of the next condition, of `\else` or of `\endif`.
    pub next: usize,
    /// The command of `\endif`.
    pub end: usize,
}

/// A number, or a variable that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// This one.
    Constant(i64),
    /// That of the variable of this number.
    Variable(usize),
}

/// SQL with the places where variables go.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// In their order.
    pub pieces: Vec<Piece>,
    /// What is sent in their place to a server that does not take texts.
    pub order: Option<Order>,
    /// Whether it is several, joined by `\;` and sent at once.
    pub joined: bool,
    /// Where its results go; nowhere without.
    pub store: Option<Store>,
    /// What `-- name:` calls it.
    pub name: Option<String>,
    /// Under which number of the workload its figures are kept.
    pub class: usize,
    /// What `-- expect:` says of its answer.
    pub expected: Vec<Expected>,
}

/// What must hold of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// As it stands there.
    pub text: String,
    pub(super) what: Expectation,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expectation {
    /// The least and the most rows that may come, or be changed.
    Rows(u64, u64),
    /// The expression is true, with `:rows` and `:value` in it.
    True(Expression),
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands there.
    Text(String),
    /// The value of the variable of this number.
    Variable(usize),
    /// The same where it stands directly behind a letter or digit, as in `sbtest:table`: a part of a word,
    /// which no server takes as a parameter.
    Part(usize),
    /// The recorded statement whose number the operation has.
    Recorded,
}

/// `\gset` and `\aset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// `\aset`: of all statements that were combined, and no row is as good as one.
    pub all: bool,
    /// What variables' names begin with.
    pub prefix: String,
}

impl Statement {
    /// The variables that are its parameters, one for each use.
    #[inline]
    pub fn parameters(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(number) => Some(*number),
            Piece::Text(_) | Piece::Part(_) | Piece::Recorded => None,
        })
    }

    /// The variables that are parts of words, one for each use: with other values it is another statement.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Part(number) => Some(*number),
            Piece::Text(_) | Piece::Variable(_) | Piece::Recorded => None,
        })
    }
}

/// Whether a name may have it: letters of any language, digits, underscores.
pub(super) fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

/// Whether a variable may be called so.
pub(super) fn is_name(name: &str) -> bool {
    name.chars().all(is_letter) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

/// A piece of a script, and where in it one is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub script: &'a str,
    pub text: &'a str,
    pub at: usize,
    pub end: usize,
}

impl<'a> Cursor<'a> {
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    /// A mistake at byte `at`.
    pub fn mistake(&self, at: usize, reason: impl Into<String>) -> Mistake {
        let (line, column) = self.position(at);
        Mistake { script: self.script.into(), line, column, reason: reason.into() }
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at];
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let lines = before.bytes().filter(|byte| *byte == b'\n').count();
        (lines + 1, before[begin..].chars().count() + 1)
    }

    /// Goes on behind blanks and continuations of the line.
    pub fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\x0b', '\x0c', '\n']);
            self.at += rest.len() - trimmed.len();
            match continued(trimmed.as_bytes()) {
                0 => return,
                length => self.at += length,
            }
        }
    }

    /// The next word of the line and where it begins.
    fn word(&mut self) -> Option<(&'a str, usize)> {
        self.skip_blanks();
        let (at, rest) = (self.at, self.rest());
        let ends = |(at, c): &(usize, char)| {
            c.is_ascii_whitespace() || (*c == '\\' && continued(&rest.as_bytes()[*at..]) > 0)
        };
        let length = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        self.at += length;
        (length > 0).then(|| (&rest[..length], at))
    }
}

/// How long a backslash with the end of the line is with which `bytes` begin; 0 if they do not.
fn continued(bytes: &[u8]) -> usize {
    match bytes {
        [b'\\', b'\n', ..] => 2,
        [b'\\', b'\r', b'\n', ..] => 3,
        _ => 0,
    }
}

/// Reads a whole script.
///
/// # Errors
/// The first mistake.
pub(super) fn parse(script: &str, bytes: &[u8], names: &mut Names) -> Result<Vec<Command>, Mistake> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = &bytes[..error.valid_up_to()];
            let text = String::from_utf8_lossy(valid);
            let cursor = Cursor { script, text: &text, at: 0, end: text.len() };
            return Err(
                cursor.mistake(text.len(), "this is not UTF-8: is it a script, and how is it encoded?")
            );
        }
    };
    let cursor = Cursor { script, text, at: 0, end: text.len() };
    if let Some(at) = text.find('\0') {
        return Err(cursor.mistake(at, "this byte is zero: is it a script?"));
    }
    let (commands, blocks, pending) = (Vec::new(), Vec::new(), Pending::default());
    let mut reader = Reader { cursor, commands, names, blocks, reached: (0, 1, 1), pending };
    reader.script()?;
    if reader.commands.is_empty() {
        return Err(cursor.mistake(0, format!("empty command list for script \"{script}\"")));
    }
    Ok(reader.commands)
}

struct Reader<'a, 'n> {
    cursor: Cursor<'a>,
    commands: Vec<Command>,
    names: &'n mut Names,
    blocks: Vec<Block>,
    /// Byte, line and column of the last command: the next one is counted from there.
    reached: (usize, usize, usize),
    pending: Pending,
}

/// What remarks said of the statement that follows.
#[derive(Default)]
struct Pending {
    name: Option<String>,
    expected: Vec<Expected>,
    /// Where the first of them is.
    at: Option<usize>,
}

/// A conditional block that is not closed yet.
struct Block {
    /// Its commands so far.
    branches: Vec<usize>,
    has_else: bool,
    /// Where it begins.
    at: usize,
}

const META: [&str; 13] = [
    "set",
    "gset",
    "aset",
    "if",
    "elif",
    "else",
    "endif",
    "sleep",
    "startpipeline",
    "syncpipeline",
    "endpipeline",
    "setshell",
    "shell",
];

impl<'a> Reader<'a, '_> {
    fn script(&mut self) -> Result<(), Mistake> {
        loop {
            self.skip_between()?;
            if self.cursor.at == self.cursor.end {
                break;
            }
            if self.commands.len() == MOST_COMMANDS {
                let words = format!("the script has more than {MOST_COMMANDS} commands");
                return Err(self.cursor.mistake(self.cursor.at, words));
            }
            match self.cursor.rest().as_bytes()[0] {
                b'\\' => self.meta()?,
                _ => self.sql()?,
            }
        }
        if let Some(at) = self.pending.at {
            return Err(self.cursor.mistake(at, "no statement follows that this could be about"));
        }
        match self.blocks.pop() {
            None => Ok(()),
            Some(block) => Err(self.cursor.mistake(block.at, "\\if without matching \\endif")),
        }
    }

    /// Goes on behind blanks and comments before a command. What a comment on the line of a statement says is
    /// about that one, else about the next.
    fn skip_between(&mut self) -> Result<(), Mistake> {
        let mut same_line = matches!(self.commands.last(), Some(Command { action: Action::Sql(_), .. }));
        loop {
            let rest = self.cursor.rest();
            let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
            self.cursor.at += rest.len() - trimmed.len();
            same_line &= !rest[..rest.len() - trimmed.len()].contains('\n');
            if !trimmed.starts_with("--") {
                return Ok(());
            }
            let begin = self.cursor.at;
            let end = begin + trimmed.find('\n').unwrap_or(trimmed.len());
            self.cursor.at = end;
            if self.names.dialect >= Dialect::Plan {
                self.remark(Cursor { at: begin + 2, end, ..self.cursor }, same_line)?;
            }
        }
    }

    /// Understands a comment that says something of a statement.
    fn remark(&mut self, mut cursor: Cursor<'a>, about_last: bool) -> Result<(), Mistake> {
        const LONGEST_NAME: usize = 60;
        cursor.skip_blanks();
        let begin = cursor.at;
        let Some((word, rest)) = cursor.rest().split_once(':') else { return Ok(()) };
        if !["name", "expect"].contains(&word) {
            return Ok(());
        }
        cursor.at += word.len() + 1;
        cursor.skip_blanks();
        let text = rest.trim();
        let statement = match self.commands.last_mut() {
            Some(Command { action: Action::Sql(statement), .. }) if about_last => Some(statement),
            _ => None,
        };
        let (name, expected) = match statement {
            Some(statement) => (&mut statement.name, &mut statement.expected),
            None => {
                self.pending.at.get_or_insert(begin);
                (&mut self.pending.name, &mut self.pending.expected)
            }
        };
        if word == "expect" {
            let what = expectation(cursor, text, self.names)?;
            expected.push(Expected { text: text.into(), what });
            return Ok(());
        }
        if text.is_empty() || text.chars().count() > LONGEST_NAME || text.contains(char::is_control) {
            let words = format!("a name has from 1 to {LONGEST_NAME} characters");
            return Err(cursor.mistake(cursor.at, words));
        }
        if name.replace(text.into()).is_some() {
            return Err(cursor.mistake(begin, "the statement has a name already"));
        }
        Ok(())
    }

    fn push(&mut self, action: Action, at: usize, text: &str) {
        let (from, mut line, mut column) = self.reached;
        for c in self.cursor.text[from..at].chars() {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        self.reached = (at, line, column);
        let shown = text.lines().next().unwrap_or_default().trim_end().to_string();
        self.commands.push(Command { action, shown, line, column });
    }

    fn sql(&mut self) -> Result<(), Mistake> {
        let begin = self.cursor.at;
        if self.names.dialect == Dialect::Commands {
            // A semicolon alone is no statement.
            if self.cursor.rest().starts_with(';') {
                self.cursor.at += 1;
                return Ok(());
            }
            let order = document::order(&mut self.cursor, self.names)?;
            let text = &self.cursor.text[begin..self.cursor.at];
            self.statement(begin, text.trim_end(), Vec::new(), Some(order), false);
            return Ok(());
        }
        let mut scan = super::sql::Scan::new(self.cursor);
        let text = scan.statement()?;
        self.cursor.at = scan.at();
        let joined = scan.joins();
        let trimmed = text.trim_end();
        // A semicolon alone is no statement.
        if trimmed.trim_end_matches(';').trim().is_empty() {
            return Ok(());
        }
        let pieces = pieces(trimmed, self.names, false);
        let count = pieces.iter().filter(|piece| matches!(piece, Piece::Variable(_))).count();
        if count > MOST_USES {
            let words =
                format!("the statement uses {count} variables, and {MOST_USES} is the most that can be");
            return Err(self.cursor.mistake(begin, words));
        }
        self.statement(begin, trimmed, pieces, None, joined);
        Ok(())
    }

    fn statement(
        &mut self,
        begin: usize,
        text: &str,
        pieces: Vec<Piece>,
        order: Option<Order>,
        joined: bool,
    ) {
        let Pending { name, expected, .. } = std::mem::take(&mut self.pending);
        let statement = Statement { pieces, order, joined, store: None, name, class: 0, expected };
        self.push(Action::Sql(statement), begin, text);
    }

    /// A meta command, up to the end of its line.
    fn meta(&mut self) -> Result<(), Mistake> {
        let begin = self.cursor.at;
        let text = self.cursor.text;
        let mut end = begin;
        while let Some(newline) = text[end..].find('\n').map(|newline| end + newline) {
            end = newline;
            let line = text[begin..end].trim_end_matches('\r');
            if !line.ends_with('\\') || line.len() < 2 {
                break;
            }
            end += 1;
        }
        if !text[end..].starts_with('\n') {
            end = text.len();
        }
        let mut line = Cursor { at: begin + 1, end, ..self.cursor };
        self.cursor.at = end;
        let Some((word, at)) = line.word().filter(|(_, at)| *at == begin + 1) else {
            return Err(line.mistake(begin, "a backslash needs the name of a command behind it"));
        };
        self.command(word.to_ascii_lowercase().as_str(), (begin, at), &mut line)
    }

    fn command(
        &mut self,
        word: &str,
        (begin, at): (usize, usize),
        line: &mut Cursor<'a>,
    ) -> Result<(), Mistake> {
        let action = match word {
            "set" => {
                let (name, name_at) = self.argument(line, begin, word)?;
                if !is_name(name) {
                    let words = format!(
                        "invalid variable name: \"{name}\"; letters, digits and underscores make one"
                    );
                    return Err(line.mistake(name_at, words));
                }
                Action::Set(self.names.number(name), Expression::parse(*line, self.names)?)
            }
            "gset" | "aset" => return self.store(word == "aset", begin, line),
            "if" => Action::If(Expression::parse(*line, self.names)?, Branch::default()),
            "elif" => Action::Elif(Expression::parse(*line, self.names)?, Branch::default()),
            "sleep" => self.sleep(begin, line)?,
            "else" => Action::Else(Branch::default()),
            "endif" => Action::Endif,
            "startpipeline" => Action::StartPipeline,
            "syncpipeline" => Action::SyncPipeline,
            "endpipeline" => Action::EndPipeline,
            "shell" | "setshell" => {
                let words = format!(
                    "\\{word} is not carried out here: a script must not run programs on this machine"
                );
                return Err(line.mistake(begin, words));
            }
            other => {
                let words = format!("invalid command \\{other}{}", did_you_mean(other, META));
                return Err(line.mistake(at, words));
            }
        };
        if let (false, Some((extra, at))) =
            (matches!(action, Action::Set(..) | Action::If(..) | Action::Elif(..)), line.word())
        {
            let what = if word == "sleep" { "too many arguments" } else { "unexpected argument" };
            return Err(line.mistake(at, format!("{what} in command \"{word}\": {extra}")));
        }
        self.link(&action, begin)?;
        let text = &self.cursor.text[begin..line.end];
        self.push(action, begin, text);
        Ok(())
    }

    fn argument(&self, line: &mut Cursor<'a>, begin: usize, word: &str) -> Result<(&'a str, usize), Mistake> {
        let missing = || line.mistake(begin, format!("missing argument in command \"{word}\""));
        let missing = missing();
        line.word().ok_or(missing)
    }

    fn store(&mut self, all: bool, begin: usize, line: &mut Cursor<'a>) -> Result<(), Mistake> {
        let word = if all { "aset" } else { "gset" };
        let prefix = line.word().map_or("", |(prefix, _)| prefix).to_string();
        if let Some((extra, at)) = line.word() {
            return Err(line.mistake(at, format!("too many arguments in command \"{word}\": {extra}")));
        }
        match self.commands.last_mut().map(|command| &mut command.action) {
            Some(Action::Sql(statement)) if statement.store.is_none() => {
                statement.store = Some(Store { all, prefix });
                Ok(())
            }
            _ => Err(line.mistake(begin, format!("\\{word} must follow an SQL command"))),
        }
    }

    fn sleep(&mut self, begin: usize, line: &mut Cursor<'a>) -> Result<Action, Mistake> {
        let (number, at) = self.argument(line, begin, "sleep")?;
        let (amount, unit) = match number.strip_prefix(':') {
            Some(name) if is_name(name) => (Amount::Variable(self.names.number(name)), ""),
            _ => {
                let digits = number
                    .char_indices()
                    .position(|(at, c)| !(c.is_ascii_digit() || (at == 0 && "+-".contains(c))));
                let (digits, unit) = number.split_at(digits.unwrap_or(number.len()));
                let Ok(constant) = digits.parse() else {
                    let words = format!("\\sleep needs an integer or a :variable, and {number} is neither");
                    return Err(line.mistake(at, words));
                };
                (Amount::Constant(constant), unit)
            }
        };
        let (unit, at) = match unit {
            "" => line.word().unwrap_or(("s", at)),
            unit => (unit, at),
        };
        let unit = match unit.to_ascii_lowercase().as_str() {
            "us" => Duration::from_micros(1),
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            other => {
                let words =
                    format!("unrecognized time unit, must be us, ms or s ({other}) in command \"sleep\"");
                return Err(line.mistake(at, words));
            }
        };
        Ok(Action::Sleep(amount, unit))
    }

    /// Connects the branches of conditional blocks.
    fn link(&mut self, action: &Action, at: usize) -> Result<(), Mistake> {
        let here = self.commands.len();
        let lone = |word: &str| self.cursor.mistake(at, format!("\\{word} without matching \\if"));
        let after = |word: &str| self.cursor.mistake(at, format!("\\{word} after \\else"));
        let word = action.name();
        match action {
            Action::If(..) => {
                self.blocks.push(Block { branches: vec![here], has_else: false, at });
                return Ok(());
            }
            Action::Elif(..) | Action::Else(_) | Action::Endif => {}
            _ => return Ok(()),
        }
        let Some(block) = self.blocks.last_mut() else { return Err(lone(word)) };
        if *action != Action::Endif {
            if block.has_else {
                return Err(after(word));
            }
            block.has_else = matches!(action, Action::Else(_));
            block.branches.push(here);
            return Ok(());
        }
        let block = self.blocks.pop().expect("it is there");
        for (at, branch) in block.branches.iter().enumerate() {
            let next = block.branches.get(at + 1).copied().unwrap_or(here);
            match &mut self.commands[*branch].action {
                Action::If(_, branch) | Action::Elif(_, branch) | Action::Else(branch) => {
                    *branch = Branch { next, end: here };
                }
                _ => unreachable!("only conditions are branches"),
            }
        }
        Ok(())
    }
}

/// Every `:name` is a variable, in quotes too, and no `::`. Within a text that is a value by itself, all are
/// `parts` of words.
pub(super) fn pieces(text: &str, names: &mut Names, parts: bool) -> Vec<Piece> {
    let (mut pieces, mut kept, mut at) = (Vec::new(), 0, 0);
    while let Some(colon) = text[at..].find(':').map(|colon| at + colon) {
        let rest = &text[colon + 1..];
        let length = rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len());
        if length == 0 || !is_name(&rest[..length]) {
            // A cast, an assignment, a slice: colons that stand together are passed over together.
            at = colon + 1 + (rest.len() - rest.trim_start_matches(':').len());
            continue;
        }
        if colon > kept {
            pieces.push(Piece::Text(text[kept..colon].to_string()));
        }
        let number = names.number(&rest[..length]);
        let is_part = text[..colon].chars().next_back().is_some_and(is_letter) && kept < colon;
        pieces.push(if is_part || parts { Piece::Part(number) } else { Piece::Variable(number) });
        at = colon + 1 + length;
        kept = at;
    }
    if kept < text.len() || pieces.is_empty() {
        pieces.push(Piece::Text(text[kept..].to_string()));
    }
    pieces
}

/// `1 row`, `3 rows`, `1..10 rows`, or an expression.
fn expectation(cursor: Cursor<'_>, text: &str, names: &mut Names) -> Result<Expectation, Mistake> {
    let number = text.strip_suffix("rows").or(text.strip_suffix("row")).map(str::trim_end);
    let bounds = number.filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    let Some(bounds) = bounds else {
        return Expression::parse(cursor, names).map(Expectation::True);
    };
    let (least, most) = bounds.split_once("..").unwrap_or((bounds, bounds));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if least <= most => Ok(Expectation::Rows(least, most)),
        _ => Err(cursor.mistake(cursor.at, "rows are expected as `1 row`, `3 rows` or `1..10 rows`")),
    }
}

/// No script that a person wrote comes near it, and each takes a hundred times its bytes of memory.
const MOST_COMMANDS: usize = 200_000;
/// What pgbench allows, and the protocol would allow more.
const MOST_USES: usize = 255;
