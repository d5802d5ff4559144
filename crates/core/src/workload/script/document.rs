//! Statements of MongoDB: commands as documents in Extended JSON, with variables at any place of them.

use super::Names;
use super::text::{Cursor, Mistake, Piece, is_name, pieces};
use super::value::Value;
use crate::nearest::did_you_mean;
use crate::workload::documents::{Bson, DocumentSink, milliseconds};

/// What is sent in place of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// `BEGIN`: what follows is one transaction. The server hears of it with the next command.
    Begin,
    /// `COMMIT`.
    Commit,
    /// `ROLLBACK`.
    Rollback,
    /// A command.
    Command(Template),
}

/// A command with the places where variables go.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    nodes: Vec<Node>,
    /// What the command is called: its first key.
    pub name: String,
    /// Whether it may change something.
    pub changes: bool,
    /// Whether it changes one document at a time, so that the server can recognise one that is sent again.
    pub is_repeatable: bool,
    /// Names that the command itself gives, so that none of ours is added.
    pub has: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Begin,
    End,
    BeginArray,
    EndArray,
    Name(Vec<Piece>),
    /// A type, and the bytes of a value.
    Raw(u8, Vec<u8>),
    /// A text with variables in it, or one variable.
    Text(Vec<Piece>, Type),
    Variable(usize, Type),
}

/// As what a value is sent.
#[derive(Debug, Clone, PartialEq)]
enum Type {
    /// As what it is.
    Plain,
    Int32,
    Int64,
    Double,
    ObjectId,
    Date,
    Uuid,
    /// With these options.
    Regex(String),
}

/// MongoDB stores no document that is nested deeper.
const DEEPEST: usize = 100;
/// No command is longer than a document, 16 MB, and no script that a person wrote has one of a megabyte.
const MOST_NODES: usize = 100_000;
/// Commands that only read; an aggregation may have a last stage that writes.
const READS: [&str; 14] = [
    "find",
    "aggregate",
    "count",
    "distinct",
    "getMore",
    "hello",
    "ping",
    "collStats",
    "dbStats",
    "serverStatus",
    "listCollections",
    "listIndexes",
    "buildInfo",
    "explain",
];
/// Commands that change data, which a server recognises by the number of their transaction.
pub(crate) const NUMBERED: [&str; 5] = ["insert", "update", "delete", "findAndModify", "findandmodify"];
const WORDS: [&str; 6] = ["begin", "start transaction", "commit", "end", "rollback", "abort"];
const WRAPPERS: [&str; 12] = [
    "$oid",
    "$date",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$uuid",
    "$binary",
    "$regularExpression",
    "$timestamp",
    "$minKey",
    "$maxKey",
];

/// Reads the statement at `place`, up to its semicolon, a meta command or the end; the place goes on behind
/// it.
pub(super) fn order(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Order, Mistake> {
    let begin = cursor.at;
    let order = match cursor.rest().starts_with('{') {
        true => Order::Command(template(cursor, names)?),
        false => word(cursor)?,
    };
    let mut ahead = *cursor;
    ahead.skip_blanks();
    let rest = ahead.rest();
    if rest.starts_with(';') {
        cursor.at = ahead.at + 1;
    } else if !(rest.is_empty() || rest.starts_with('\\') || rest.starts_with("--")) {
        return Err(ahead.mistake(ahead.at, "a semicolon ends a command"));
    }
    debug_assert!(cursor.at > begin, "a statement has at least one character");
    Ok(order)
}

fn word(cursor: &mut Cursor<'_>) -> Result<Order, Mistake> {
    let rest = cursor.rest();
    let length = rest.find([';', '\\', '\n']).unwrap_or(rest.len());
    let said = rest[..length].split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    let order = match said.as_str() {
        "begin" | "start transaction" => Order::Begin,
        "commit" | "end" => Order::Commit,
        "rollback" | "abort" => Order::Rollback,
        other => {
            let near = if other.len() < 30 { did_you_mean(other, WORDS) } else { String::new() };
            let words = format!(
                "a statement for MongoDB is a command, as in {{ \"find\": \"items\" }}, or BEGIN, COMMIT or ROLLBACK{near}"
            );
            return Err(cursor.mistake(cursor.at, words));
        }
    };
    cursor.at += length;
    Ok(order)
}

impl Template {
    /// Reads a command as it was recorded: nothing in it is a variable.
    ///
    /// # Errors
    /// The first mistake.
    pub fn recorded(text: &str) -> Result<Template, Mistake> {
        let mut cursor = Cursor { script: "recorded", text, at: 0, end: text.len() };
        let mut names = Names::default();
        let mut reader =
            Reader { cursor: &mut cursor, names: &mut names, nodes: Vec::new(), is_constant: true };
        reader.blanks();
        let template = reader.command()?;
        match cursor.rest().trim() {
            "" => Ok(template),
            _ => Err(cursor.mistake(cursor.at, "something stands behind the command")),
        }
    }
}

fn template(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Template, Mistake> {
    Reader { cursor, names, nodes: Vec::new(), is_constant: false }.command()
}

struct Reader<'r, 'a, 'n> {
    cursor: &'r mut Cursor<'a>,
    names: &'n mut Names,
    nodes: Vec<Node>,
    /// Whether a colon before a name means nothing.
    is_constant: bool,
}

impl Reader<'_, '_, '_> {
    fn blanks(&mut self) {
        let rest = self.cursor.rest();
        self.cursor.at += rest.len() - rest.trim_ascii_start().len();
    }

    fn wrong<T>(&self, words: impl Into<String>) -> Result<T, Mistake> {
        Err(self.cursor.mistake(self.cursor.at, words))
    }

    /// The next character behind blanks.
    fn next(&mut self) -> Option<char> {
        self.blanks();
        self.cursor.rest().chars().next()
    }

    fn expect(&mut self, expected: char) -> Result<(), Mistake> {
        match self.next() {
            Some(c) if c == expected => {
                self.cursor.at += c.len_utf8();
                Ok(())
            }
            Some(c) => self.wrong(format!("here stands {c:?} where {expected:?} must")),
            None => self.wrong(format!("the document ends where {expected:?} must stand")),
        }
    }

    fn command(mut self) -> Result<Template, Mistake> {
        let begin = self.cursor.at;
        let text = self.cursor.text;
        let mut has = Vec::new();
        self.object(&mut has, 0)?;
        let Some(name) = has.first().cloned() else {
            return Err(self
                .cursor
                .mistake(begin, "an empty document is no command: its first name says which"));
        };
        let written = &text[begin..self.cursor.at];
        let writes = written.contains("\"$out\"") || written.contains("\"$merge\"");
        let changes = !READS.contains(&name.as_str()) || writes;
        // A statement of a delete without a limit of 1, or an update of many, has no one document.
        let many = written.contains("\"multi\"") || (name == "delete" && !is_limited(written));
        let is_repeatable = NUMBERED.contains(&name.as_str()) && !many;
        Ok(Template { nodes: self.nodes, name, changes, is_repeatable, has })
    }

    fn push(&mut self, node: Node) -> Result<(), Mistake> {
        if self.nodes.len() == MOST_NODES {
            return self.wrong(format!("the command has more than {MOST_NODES} parts"));
        }
        self.nodes.push(node);
        Ok(())
    }

    /// A whole object; `keys` gets the names of its first level.
    fn object(&mut self, keys: &mut Vec<String>, depth: usize) -> Result<(), Mistake> {
        if depth == DEEPEST {
            return self.wrong(format!("documents are nested up to {DEEPEST} levels deep"));
        }
        self.expect('{')?;
        self.push(Node::Begin)?;
        if self.next() == Some('}') {
            self.cursor.at += 1;
            return self.push(Node::End);
        }
        loop {
            self.blanks();
            let at = self.cursor.at;
            let name = self.text()?;
            if name.contains('\0') {
                return Err(self.cursor.mistake(at, "a name has no character that is zero"));
            }
            self.key(name, keys, depth)?;
            match self.next() {
                Some(',') => self.cursor.at += 1,
                Some('}') => {
                    self.cursor.at += 1;
                    return self.push(Node::End);
                }
                Some(c) => return self.wrong(format!("here stands {c:?} where ',' or '}}' must")),
                None => return self.wrong("the document is not closed: '}' is missing"),
            }
        }
    }

    fn key(&mut self, name: String, keys: &mut Vec<String>, depth: usize) -> Result<(), Mistake> {
        self.expect(':')?;
        let words = self.words(&name);
        self.push(Node::Name(words))?;
        if depth == 0 {
            keys.push(name);
        }
        self.value(depth)
    }

    fn words(&mut self, text: &str) -> Vec<Piece> {
        match self.is_constant {
            true => vec![Piece::Text(text.into())],
            false => pieces(text, self.names, true),
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), Mistake> {
        let Some(first) = self.next() else {
            return self.wrong("the document ends where a value must stand");
        };
        match first {
            '{' => self.object_or_wrapper(depth),
            '[' => self.array(depth),
            '"' => {
                let text = self.text()?;
                let words = self.words(&text);
                self.push(Node::Text(words, Type::Plain))
            }
            ':' => {
                let number = self.variable()?;
                self.push(Node::Variable(number, Type::Plain))
            }
            _ => {
                let value = self.literal()?;
                let (kind, bytes) = raw(&value);
                self.push(Node::Raw(kind, bytes))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), Mistake> {
        if depth + 1 >= DEEPEST {
            return self.wrong(format!("documents are nested up to {DEEPEST} levels deep"));
        }
        self.expect('[')?;
        self.push(Node::BeginArray)?;
        if self.next() == Some(']') {
            self.cursor.at += 1;
            return self.push(Node::EndArray);
        }
        loop {
            self.value(depth + 1)?;
            match self.next() {
                Some(',') => self.cursor.at += 1,
                Some(']') => {
                    self.cursor.at += 1;
                    return self.push(Node::EndArray);
                }
                Some(c) => return self.wrong(format!("here stands {c:?} where ',' or ']' must")),
                None => return self.wrong("the array is not closed: ']' is missing"),
            }
        }
    }

    /// `:name`.
    fn variable(&mut self) -> Result<usize, Mistake> {
        let rest = &self.cursor.rest()[1..];
        let length = rest.find(|c: char| !super::text::is_letter(c)).unwrap_or(rest.len());
        if self.is_constant || !is_name(&rest[..length]) {
            return self.wrong("behind a colon in the place of a value stands the name of a variable");
        }
        let number = self.names.number(&rest[..length]);
        self.cursor.at += 1 + length;
        Ok(number)
    }

    /// A number, `true`, `false` or `null`.
    fn literal(&mut self) -> Result<Value, Mistake> {
        let rest = self.cursor.rest();
        let ends = |c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c));
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        let value = json_word(word);
        match value {
            Some(value) => {
                self.cursor.at += word.len();
                Ok(value)
            }
            None if word.is_empty() => {
                let c = rest.chars().next().unwrap_or_default();
                self.wrong(format!("{c:?} begins no value"))
            }
            None => {
                let shown: String = word.chars().take(40).collect();
                self.wrong(format!(
                    "{shown} is no value: texts stand between double quotes, variables behind a colon"
                ))
            }
        }
    }

    /// A JSON text at hand, understood.
    fn text(&mut self) -> Result<String, Mistake> {
        self.blanks();
        let begin = self.cursor.at;
        let rest = self.cursor.rest();
        if !rest.starts_with('"') {
            return match rest.chars().next() {
                Some(c) => self.wrong(format!("here stands {c:?} where a name between double quotes must")),
                None => self.wrong("the document ends where a name must stand"),
            };
        }
        let mut end = 1;
        loop {
            match rest.as_bytes().get(end) {
                None => return Err(self.cursor.mistake(begin, "what is opened by \" here is never closed")),
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
            }
        }
        let Some(written) = rest.get(..=end) else {
            return Err(self.cursor.mistake(begin, "what is opened by \" here is never closed"));
        };
        let text = serde_json::from_str(written);
        match text {
            Ok(text) => {
                self.cursor.at += end + 1;
                Ok(text)
            }
            Err(error) => {
                let words = error.to_string();
                let words = words.split(" at line").next().unwrap_or_default();
                Err(self.cursor.mistake(begin, format!("this is no text of JSON: {words}")))
            }
        }
    }

    fn object_or_wrapper(&mut self, depth: usize) -> Result<(), Mistake> {
        let mut ahead = *self.cursor;
        ahead.at += 1;
        ahead.at += ahead.rest().len() - ahead.rest().trim_ascii_start().len();
        let rest = ahead.rest();
        let found = rest.strip_prefix('"').and_then(|rest| {
            WRAPPERS
                .into_iter()
                .find(|name| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('"')))
        });
        let Some(wrapper) = found else { return self.object(&mut Vec::new(), depth + 1) };
        let at = self.cursor.at;
        self.cursor.at = ahead.at + wrapper.len() + 2;
        self.expect(':')?;
        self.wrapped(wrapper, at)?;
        self.expect('}')
    }

    /// What stands behind the name of a wrapper.
    fn wrapped(&mut self, wrapper: &str, at: usize) -> Result<(), Mistake> {
        let kind = match wrapper {
            "$oid" => Type::ObjectId,
            "$date" => Type::Date,
            "$numberInt" => Type::Int32,
            "$numberLong" => Type::Int64,
            "$numberDouble" => Type::Double,
            "$uuid" => Type::Uuid,
            "$numberDecimal" => {
                return Err(self
                    .cursor
                    .mistake(at, "decimal numbers of 128 bits cannot be sent: write $numberDouble"));
            }
            _ => return self.constant(wrapper, at),
        };
        match self.next() {
            Some(':') => {
                let number = self.variable()?;
                self.push(Node::Variable(number, kind))
            }
            Some('"') => {
                let text = self.text()?;
                let words = self.words(&text);
                self.wrapped_text(words, kind, at)
            }
            // {"$date": {"$numberLong": "..."}} is what drivers write of dates long ago.
            Some('{') if kind == Type::Date => {
                self.expect('{')?;
                if self.text()? != "$numberLong" {
                    return Err(self.cursor.mistake(at, "$date holds a text, milliseconds or $numberLong"));
                }
                self.expect(':')?;
                let text = self.text()?;
                self.wrapped_text(vec![Piece::Text(text)], kind, at)?;
                self.expect('}')
            }
            _ => {
                let value = self.literal()?;
                let (tag, bytes) = typed(&value, &kind)
                    .map_err(|words| self.cursor.mistake(at, format!("{wrapper}: {words}")))?;
                self.push(Node::Raw(tag, bytes))
            }
        }
    }

    /// A text without variables is understood now.
    fn wrapped_text(&mut self, words: Vec<Piece>, kind: Type, at: usize) -> Result<(), Mistake> {
        if words.iter().any(|piece| matches!(piece, Piece::Part(_))) {
            return self.push(Node::Text(words, kind));
        }
        let text: String =
            words.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "" }).collect();
        let value = Value::Quoted(text.into());
        let (tag, bytes) = typed(&value, &kind).map_err(|words| self.cursor.mistake(at, words))?;
        self.push(Node::Raw(tag, bytes))
    }

    /// Wrappers with values of their own form.
    fn constant(&mut self, wrapper: &str, at: usize) -> Result<(), Mistake> {
        let wrong = |this: &Self, words: &str| Err(this.cursor.mistake(at, format!("{wrapper}: {words}")));
        match wrapper {
            "$minKey" | "$maxKey" => {
                self.literal()?;
                return self.push(Node::Raw(if wrapper == "$minKey" { 0xFF } else { 0x7F }, Vec::new()));
            }
            _ => {}
        }
        let (first, second) = match wrapper {
            "$binary" => ("base64", "subType"),
            "$regularExpression" => ("pattern", "options"),
            _ => ("t", "i"),
        };
        self.expect('{')?;
        let mut parts: [Option<String>; 2] = [None, None];
        loop {
            let name = self.text()?;
            let part = usize::from(name == second);
            if name != first && name != second {
                return wrong(self, &format!("it has {first} and {second}, not {name}"));
            }
            self.expect(':')?;
            parts[part] = Some(match self.next() {
                Some('"') => self.text()?,
                _ => self.literal()?.to_string(),
            });
            match self.next() {
                Some(',') => self.cursor.at += 1,
                _ => break,
            }
        }
        self.expect('}')?;
        let [Some(one), Some(other)] = parts else {
            return wrong(self, &format!("it has {first} and {second}"));
        };
        match wrapper {
            "$binary" => {
                use base64::Engine as _;
                let bytes = base64::engine::general_purpose::STANDARD.decode(&one);
                let (Ok(bytes), Ok(subtype)) = (bytes, u8::from_str_radix(&other, 16)) else {
                    return wrong(self, "base64 is not well formed, or subType is no two hexadecimal digits");
                };
                let mut raw = (bytes.len() as i32).to_le_bytes().to_vec();
                raw.push(subtype);
                raw.extend(bytes);
                self.push(Node::Raw(0x05, raw))
            }
            "$timestamp" => match (one.parse::<u32>(), other.parse::<u32>()) {
                (Ok(seconds), Ok(increment)) => {
                    let both = u64::from(seconds) << 32 | u64::from(increment);
                    self.push(Node::Raw(0x11, both.to_le_bytes().to_vec()))
                }
                _ => wrong(self, "t and i are whole numbers of 32 bits"),
            },
            _ if one.contains('\0') || other.contains('\0') => wrong(self, "no character of it is zero"),
            _ => {
                let words = self.words(&one);
                self.push(Node::Text(words, Type::Regex(other)))
            }
        }
    }
}

/// Whether every delete of a command has a limit of 1: said without blanks, which JSON may have anywhere.
fn is_limited(written: &str) -> bool {
    let bare: String = written.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let limits = bare.matches("\"limit\":1").count() - bare.matches("\"limit\":1.").count();
    limits > 0 && limits == bare.matches("\"q\":").count()
}

/// A word of JSON that is no text.
fn json_word(word: &str) -> Option<Value> {
    match word {
        "true" => return Some(Value::Boolean(true)),
        "false" => return Some(Value::Boolean(false)),
        "null" => return Some(Value::Null),
        _ => {}
    }
    let digits = word.strip_prefix('-').unwrap_or(word);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Ok(value) = word.parse() {
        return Some(Value::Integer(value));
    }
    word.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Double)
}

/// A value as what it is: whole numbers in 32 bits where they fit, as MongoDB's own clients send them.
fn raw(value: &Value) -> (u8, Vec<u8>) {
    match value {
        Value::Null => (0x0A, Vec::new()),
        Value::Boolean(value) => (0x08, vec![u8::from(*value)]),
        Value::Integer(value) => match i32::try_from(*value) {
            Ok(value) => (0x10, value.to_le_bytes().to_vec()),
            Err(_) => (0x12, value.to_le_bytes().to_vec()),
        },
        Value::Double(value) => (0x01, value.to_le_bytes().to_vec()),
        Value::Text(text) | Value::Quoted(text) => (0x02, text_bytes(text)),
    }
}

fn text_bytes(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as i32 + 1).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes
}

fn hexadecimal(text: &str, length: usize) -> Option<Vec<u8>> {
    let is_whole = text.len() == 2 * length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_whole.then(|| {
        (0..length).filter_map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
    })
}

/// A value as one of another type.
fn typed(value: &Value, kind: &Type) -> Result<(u8, Vec<u8>), String> {
    let text = value.to_string();
    let number = || match value {
        Value::Text(text) | Value::Quoted(text) => {
            json_word(text).ok_or_else(|| format!("{text:?} is no number"))
        }
        value => Ok(value.clone()),
    };
    match kind {
        Type::Plain => Ok(raw(value)),
        Type::Int32 => {
            let whole = number()?.integer()?;
            let whole = i32::try_from(whole).map_err(|_| format!("{whole} does not fit into 32 bits"))?;
            Ok((0x10, whole.to_le_bytes().to_vec()))
        }
        Type::Int64 => Ok((0x12, number()?.integer()?.to_le_bytes().to_vec())),
        Type::Double => Ok((0x01, number()?.double()?.to_le_bytes().to_vec())),
        Type::ObjectId => match hexadecimal(&text, 12) {
            Some(bytes) => Ok((0x07, bytes)),
            None => Err(format!("an ObjectId has 24 hexadecimal digits, not {text:?}")),
        },
        Type::Uuid => match hexadecimal(&text.replace('-', ""), 16) {
            Some(bytes) => {
                let mut raw = 16i32.to_le_bytes().to_vec();
                raw.push(4);
                raw.extend(bytes);
                Ok((0x05, raw))
            }
            None => Err(format!("a UUID has 32 hexadecimal digits, not {text:?}")),
        },
        Type::Date => {
            let whole = || number().and_then(|number| number.integer()).ok();
            let Some(ms) = milliseconds(&text).or_else(whole) else {
                return Err(format!(
                    "a date is such as 2026-11-24T21:55:00Z, or milliseconds since 1970, not {text:?}"
                ));
            };
            Ok((0x09, ms.to_le_bytes().to_vec()))
        }
        Type::Regex(options) => {
            if text.contains('\0') {
                return Err("a pattern has no character that is zero".into());
            }
            let mut raw = text.into_bytes();
            raw.push(0);
            raw.extend_from_slice(options.as_bytes());
            raw.push(0);
            Ok((0x0B, raw))
        }
    }
}

impl Template {
    /// Writes the command as a document, with the values that `variable` gives.
    ///
    /// # Errors
    /// A variable that has no value, or none of the type that is asked for.
    pub(super) fn write<'v>(
        &self,
        names: &Names,
        variable: impl Fn(usize) -> Option<&'v Value>,
        out: &mut Bson,
    ) -> Result<(), String> {
        out.clear();
        let joined = |pieces: &[Piece]| {
            let mut text = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Text(piece) => text.extend_from_slice(piece.as_bytes()),
                    Piece::Part(number) | Piece::Variable(number) => match variable(*number) {
                        Some(value) => value.put(&mut text),
                        None => {
                            text.push(b':');
                            text.extend_from_slice(names.name(*number).as_bytes());
                        }
                    },
                    Piece::Recorded => {}
                }
            }
            String::from_utf8(text).expect("all pieces and values are texts")
        };
        for node in &self.nodes {
            match node {
                Node::Begin => out.begin_object(),
                Node::End => out.end_object(),
                Node::BeginArray => out.begin_array(),
                Node::EndArray => out.end_array(),
                Node::Name(pieces) => match pieces.as_slice() {
                    [Piece::Text(name)] => out.name(name),
                    pieces => out.name(&joined(pieces).replace('\0', "")),
                },
                Node::Raw(kind, bytes) => out.raw(*kind, bytes),
                Node::Text(pieces, Type::Plain) => match pieces.as_slice() {
                    [Piece::Text(text)] => out.text(text),
                    pieces => out.text(&joined(pieces)),
                },
                Node::Text(pieces, kind) => {
                    let (tag, bytes) = typed(&Value::Quoted(joined(pieces).into()), kind)?;
                    out.raw(tag, &bytes);
                }
                Node::Variable(number, kind) => {
                    let Some(value) = variable(*number) else {
                        return Err(format!("undefined variable \"{}\"", names.name(*number)));
                    };
                    put(value, kind, out)?;
                }
            }
        }
        Ok(())
    }
}

/// A variable's value. What came from outside is read as JSON, and is a text if it is none.
fn put(value: &Value, kind: &Type, out: &mut Bson) -> Result<(), String> {
    match (value, kind) {
        (Value::Integer(value), Type::Plain) => out.integer(*value),
        (Value::Quoted(text), Type::Plain) => out.text(text),
        (Value::Text(text), Type::Plain) => match json_word(text) {
            Some(value) => {
                let (tag, bytes) = raw(&value);
                out.raw(tag, &bytes);
            }
            None => match wrapped(text) {
                Some((tag, bytes)) => out.raw(tag, &bytes),
                None => out.text(text),
            },
        },
        (value, kind) => {
            let (tag, bytes) = typed(value, kind)?;
            out.raw(tag, &bytes);
        }
    }
    Ok(())
}

/// A single value of Extended JSON, such as `{"$oid": "..."}`.
fn wrapped(text: &str) -> Option<(u8, Vec<u8>)> {
    if !text.starts_with("{\"$") {
        return None;
    }
    let mut cursor = Cursor { script: "", text, at: 0, end: text.len() };
    let mut names = Names::default();
    let mut reader = Reader { cursor: &mut cursor, names: &mut names, nodes: Vec::new(), is_constant: true };
    reader.object_or_wrapper(0).ok()?;
    match reader.nodes.pop() {
        Some(Node::Raw(kind, bytes)) if reader.nodes.is_empty() && cursor.rest().trim().is_empty() => {
            Some((kind, bytes))
        }
        _ => None,
    }
}
