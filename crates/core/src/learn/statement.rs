//! What a statement does, and what each of its values is for.

use super::token::{Dialect, Kind, Token, tokens};

/// What a statement does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Read,
    /// Changes data, or locks rows, which writes too.
    Change,
    /// Begins a transaction.
    Begin,
    /// Ends it.
    Commit,
    /// Undoes it.
    Rollback,
    /// Anything else, by its first word.
    Utility(String),
}

/// A column as a statement names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnName {
    /// What stands before its dot.
    pub qualifier: Option<String>,
    /// Its own name.
    pub column: String,
}

/// What a value is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The column equals it.
    Equal(ColumnName),
    /// The column is at least it, or more.
    Low(ColumnName),
    /// The column is at most it, or less.
    High(ColumnName),
    /// The column becomes it.
    Set(ColumnName),
    /// It is added to a column.
    Added,
    /// It is what this place of the list of columns gets, counted from 0.
    Inserted(usize),
    /// The most rows that are wanted.
    Limit,
    /// How many rows are passed over.
    Offset,
    /// Something else; the words before it.
    Unknown(String),
}

/// A place where a value stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// Where it begins in the text.
    pub begin: usize,
    /// Where it ends.
    pub end: usize,
    /// Its parameter's name; two places of one name get one value.
    pub parameter: Option<String>,
    /// What it is for.
    pub role: Role,
    /// Whether it stands for a list of values, which the digest folded.
    pub many: bool,
    /// Whether the value itself still stands there.
    pub is_literal: bool,
}

/// A table that a statement names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableUse {
    /// Its name without its schema.
    pub name: String,
    /// As it stands in the statement, with schema and quotes.
    pub written: String,
    /// What the statement calls it.
    pub alias: Option<String>,
}

/// A statement that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// What it does.
    pub verb: Verb,
    /// Its first word.
    pub word: String,
    /// The tables that it names.
    pub tables: Vec<TableUse>,
    /// Columns of the first table that an INSERT names.
    pub inserted: Vec<String>,
    /// Where values stand, in their order.
    pub placeholders: Vec<Placeholder>,
    /// Whether as many rows come as it finds: no group, no total, no limit.
    pub counts_what_it_finds: bool,
    /// The text without comments and without what ends it.
    pub text: String,
    /// With a mark for every value: two statements of one shape do the same.
    pub shape: String,
}

const COMPARISONS: [&str; 9] = ["=", "<", ">", "<=", ">=", "<>", "!=", "<=>", "=="];
/// Words that cannot be a table's alias.
const NO_ALIAS: [&str; 30] = [
    "where",
    "set",
    "join",
    "inner",
    "left",
    "right",
    "full",
    "cross",
    "natural",
    "on",
    "using",
    "order",
    "group",
    "having",
    "limit",
    "offset",
    "union",
    "values",
    "select",
    "for",
    "returning",
    "as",
    "default",
    "force",
    "use",
    "ignore",
    "straight_join",
    "tablesample",
    "window",
    "fetch",
];

impl Statement {
    /// Reads a statement; `None` if its text was cut off or is none.
    pub fn read(text: &str, dialect: Dialect) -> Option<Statement> {
        let mut words = tokens(text, dialect)?;
        while words.last().is_some_and(|word| word.is(";")) {
            words.pop();
        }
        let gap = words.last().is_some_and(|word| word.kind == Kind::Gap);
        if gap || words.is_empty() || words.iter().any(|word| word.is(";")) {
            return None;
        }
        let word = words[0].text.clone();
        let (text, words) = without_comments(text, &words, dialect)?;
        let verb = verb(&words);
        let inserted = inserted(&words);
        let placeholders = placeholders(&words, inserted.len());
        let depth_0 = at_the_top(&words);
        let total = [
            "count",
            "sum",
            "min",
            "max",
            "avg",
            "bool_or",
            "bool_and",
            "string_agg",
            "array_agg",
            "json_agg",
        ];
        let counts_what_it_finds = verb == Verb::Read
            && !words.windows(2).any(|pair| total.contains(&pair[0].text.as_str()) && pair[1].is("("))
            && !depth_0
                .iter()
                .any(|word| word.is_any(&["group", "distinct", "limit", "union", "fetch", "join"]));
        let shape = shape(&words);
        Some(Statement {
            verb,
            word,
            tables: tables(&words, &text),
            inserted,
            placeholders,
            counts_what_it_finds,
            text,
            shape,
        })
    }

    /// The table that a column of it belongs to, if its name says so or there is only one.
    pub fn table_of(&self, column: &ColumnName) -> Option<&TableUse> {
        match &column.qualifier {
            Some(qualifier) => self.tables.iter().find(|table| {
                table.alias.as_ref() == Some(qualifier) || table.alias.is_none() && table.name == *qualifier
            }),
            None if self.tables.len() == 1 => self.tables.first(),
            None => None,
        }
    }
}

/// The text anew, without comments: they may hold whatever the application wrote about its user.
fn without_comments(text: &str, words: &[Token], dialect: Dialect) -> Option<(String, Vec<Token>)> {
    let mut clean = String::new();
    let mut end = words[0].begin;
    let mut is_word = false;
    for word in words {
        // A digest has blanks everywhere, and MySQL takes none between a function and its parenthesis.
        let is_call = dialect == Dialect::Mysql && is_word && word.is("(");
        if end < word.begin && !is_call {
            clean.push(' ');
        }
        is_word = word.is_name();
        clean.push_str(&text[word.begin..word.end]);
        end = word.end;
    }
    let words = tokens(&clean, dialect)?;
    Some((clean, words))
}

/// The words outside parentheses.
fn at_the_top(words: &[Token]) -> Vec<&Token> {
    let mut depth = 0usize;
    let mut top = Vec::new();
    for word in words {
        if word.is("(") {
            depth += 1;
        } else if word.is(")") {
            depth = depth.saturating_sub(1);
        } else if depth == 0 {
            top.push(word);
        }
    }
    top
}

fn verb(words: &[Token]) -> Verb {
    let first = words[0].text.as_str();
    let second = words.get(1).map_or("", |word| word.text.as_str());
    match first {
        "begin" => Verb::Begin,
        "start" if second == "transaction" => Verb::Begin,
        "commit" | "end" if second != "prepared" => Verb::Commit,
        "rollback" | "abort" if !words.iter().any(|word| word.is("to")) && second != "prepared" => {
            Verb::Rollback
        }
        "select" | "with" | "values" | "table" | "(" => {
            let changes = ["insert", "update", "delete", "merge", "into", "lock"];
            let shares =
                words.windows(2).any(|pair| pair[0].is("for") && pair[1].is_any(&["share", "key", "no"]));
            match shares || words.iter().any(|word| word.is_any(&changes)) {
                true => Verb::Change,
                false => Verb::Read,
            }
        }
        "insert" | "update" | "delete" | "merge" | "replace" => Verb::Change,
        other => Verb::Utility(other.to_uppercase()),
    }
}

fn tables(words: &[Token], text: &str) -> Vec<TableUse> {
    let mut found: Vec<TableUse> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let word = &words[at];
        at += 1;
        let introduces = word.is_any(&["from", "join", "into"])
            || word.is("update") && at == 1
            // `FROM a, b`: a comma goes on with the list in which the last table stands.
            || word.is(",") && lists_tables(&words[..at - 1]);
        if !introduces {
            continue;
        }
        while words.get(at).is_some_and(|word| word.is_any(&["only", "low_priority", "ignore", "lateral"])) {
            at += 1;
        }
        let Some(first) = words.get(at).filter(|word| word.is_name() && !word.is("select")) else { continue };
        let (begin, mut last) = (first.begin, first);
        at += 1;
        while words.get(at).is_some_and(|word| word.is(".")) {
            let Some(next) = words.get(at + 1).filter(|word| word.is_name()) else { break };
            last = next;
            at += 2;
        }
        // `FROM generate_series(...)` and `extract(x FROM y)` name no table.
        if words.get(at).is_some_and(|word| word.is("(")) && !word.is("into") {
            continue;
        }
        let table = (last.text.clone(), text[begin..last.end].to_string());
        if words.get(at).is_some_and(|word| word.is("as")) {
            at += 1;
        }
        let alias = words.get(at).filter(|word| word.is_name() && !word.is_any(&NO_ALIAS));
        let alias = alias.map(|word| word.text.clone());
        let table = TableUse { name: table.0, written: table.1, alias };
        if !found.contains(&table) {
            found.push(table);
        }
    }
    found
}

/// Whether these words end in a list of tables.
fn lists_tables(before: &[Token]) -> bool {
    let mut depth = 0i32;
    for word in before.iter().rev() {
        if word.is(")") {
            depth += 1;
        } else if word.is("(") {
            depth -= 1;
            if depth < 0 {
                return false;
            }
        } else if depth == 0 {
            let ends =
                ["select", "where", "set", "on", "by", "values", "having", "limit", "returning", "using"];
            if word.is("from") {
                return true;
            }
            if word.is_any(&ends) || word.is_value() {
                return false;
            }
        }
    }
    false
}

/// The columns that an INSERT names.
fn inserted(words: &[Token]) -> Vec<String> {
    let Some(into) = words.iter().position(|word| word.is("into")) else { return Vec::new() };
    let mut at = into + 1;
    while words.get(at).is_some_and(|word| word.is_name() && !word.is("values") || word.is(".")) {
        at += 1;
    }
    if !words.get(at).is_some_and(|word| word.is("(")) {
        return Vec::new();
    }
    let mut names = Vec::new();
    for word in &words[at + 1..] {
        match word.kind {
            _ if word.is(")") => return names,
            _ if word.is(",") => {}
            Kind::Word | Kind::Name => names.push(word.text.clone()),
            _ => return Vec::new(),
        }
    }
    Vec::new()
}

/// The column whose last word is `words[at]`.
fn column_ending_at(words: &[Token], at: usize) -> Option<ColumnName> {
    let name = words.get(at).filter(|word| word.is_name())?;
    let is_dotted = at >= 2 && words[at - 1].is(".") && words[at - 2].is_name();
    let qualifier = is_dotted.then(|| words[at - 2].text.clone());
    Some(ColumnName { qualifier, column: name.text.clone() })
}

/// The column whose first word is `words[at]`.
fn column_beginning_at(words: &[Token], at: usize) -> Option<ColumnName> {
    let name = words.get(at).filter(|word| word.is_name())?;
    match (words.get(at + 1), words.get(at + 2)) {
        (Some(dot), Some(last)) if dot.is(".") && last.is_name() => {
            Some(ColumnName { qualifier: Some(name.text.clone()), column: last.text.clone() })
        }
        (Some(call), _) if call.is("(") => None,
        _ => Some(ColumnName { qualifier: None, column: name.text.clone() }),
    }
}

fn placeholders(words: &[Token], columns: usize) -> Vec<Placeholder> {
    let mut found: Vec<Placeholder> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let many = word.kind == Kind::Gap;
        // `ORDER BY 2` counts columns, and `varchar(20)` behind a cast is a type.
        let fixed = word.kind == Kind::Number && (is_ordinal(&words[..at]) || is_of_a_type(&words[..at]));
        if !(word.is_value() || many) || fixed {
            continue;
        }
        let parameter = (word.kind == Kind::Parameter && word.text != "?").then(|| word.text.clone());
        let role = role(words, at, columns);
        // `LIMIT ?, ?`: the first of two is what is passed over.
        if role == Role::Limit
            && at >= 2
            && words[at - 1].is(",")
            && let Some(last) = found.last_mut()
        {
            last.role = Role::Offset;
        }
        let is_literal = matches!(word.kind, Kind::Number | Kind::Text);
        found.push(Placeholder { begin: word.begin, end: word.end, parameter, role, many, is_literal });
    }
    found
}

fn is_ordinal(before: &[Token]) -> bool {
    let mut rest = before;
    while let Some((last, shorter)) = rest.split_last() {
        if last.is("by") {
            return true;
        }
        if !(last.is_any(&[",", "asc", "desc"]) || last.kind == Kind::Number) {
            return false;
        }
        rest = shorter;
    }
    false
}

fn is_of_a_type(before: &[Token]) -> bool {
    let open = before.iter().rposition(|word| word.is("("));
    open.is_some_and(|open| open >= 2 && before[open - 2].is_any(&["::", "as"]) && before[open - 1].is_name())
}

fn role(words: &[Token], at: usize, columns: usize) -> Role {
    let word = |at: Option<usize>| at.and_then(|at| words.get(at));
    // A sign or parentheses around a value change nothing.
    let mut before = at.checked_sub(1);
    while word(before).is_some_and(|word| word.is("-"))
        && before
            .and_then(|at| at.checked_sub(1))
            .is_some_and(|at| words[at].kind == Kind::Sign || words[at].is("and"))
    {
        before = before.and_then(|at| at.checked_sub(1));
    }
    let unknown = || {
        let from = at.saturating_sub(3);
        let shown = |word: &Token| if word.is_value() { "?".to_string() } else { word.text.clone() };
        Role::Unknown(words[from..at].iter().map(shown).collect::<Vec<_>>().join(" "))
    };
    let Some(last) = word(before) else { return unknown() };
    let place = before.unwrap_or(0);
    if last.is("limit") || last.is(",") && place >= 2 && words[place - 2].is("limit") {
        return Role::Limit;
    }
    if last.is("offset") {
        return Role::Offset;
    }
    if last.is_any(&["first", "next"]) && place >= 1 && words[place - 1].is("fetch") {
        return Role::Limit;
    }
    if last.is("between") {
        return column_ending_at(words, place.wrapping_sub(1)).map_or_else(unknown, Role::Low);
    }
    if last.is("and") && place >= 2 && words[..place].iter().rev().take(5).any(|word| word.is("between")) {
        let between = words[..place].iter().rposition(|word| word.is("between")).unwrap_or(0);
        return column_ending_at(words, between.wrapping_sub(1)).map_or_else(unknown, Role::High);
    }
    if let Some(role) = inserted_at(words, at, columns) {
        return role;
    }
    if let Some(column) = listed(words, at) {
        return Role::Equal(column);
    }
    if last.is_any(&COMPARISONS) && place >= 1 {
        let Some(column) = column_ending_at(words, place - 1) else { return unknown() };
        return match last.text.as_str() {
            "=" | "==" | "<=>" if is_assignment(words, place) => Role::Set(column),
            "=" | "==" | "<=>" => Role::Equal(column),
            ">" | ">=" => Role::Low(column),
            "<" | "<=" => Role::High(column),
            _ => unknown(),
        };
    }
    if last.is_any(&["+", "-"])
        && place >= 2
        && words[place - 1].is_name()
        && is_change_of_itself(words, place)
    {
        return Role::Added;
    }
    if let Some(next) = words.get(at + 1).filter(|next| next.is_any(&COMPARISONS)) {
        let Some(column) = column_beginning_at(words, at + 2) else { return unknown() };
        return match next.text.as_str() {
            "=" | "==" | "<=>" => Role::Equal(column),
            "<" | "<=" => Role::Low(column),
            ">" | ">=" => Role::High(column),
            _ => unknown(),
        };
    }
    unknown()
}

/// Whether the `=` at this place stands in the list of a SET.
fn is_assignment(words: &[Token], at: usize) -> bool {
    let mut depth = 0i32;
    for word in words[..at].iter().rev() {
        if word.is(")") {
            depth += 1;
        } else if word.is("(") {
            depth -= 1;
            if depth < 0 {
                return false;
            }
        } else if depth == 0 && word.is_any(&["where", "and", "or", "on", "having", "when", "select"]) {
            return false;
        } else if depth == 0 && (word.is("set") || word.is("update") && word.begin > 0) {
            return true;
        }
    }
    false
}

/// Whether the sign at this place belongs to `column = column + `.
fn is_change_of_itself(words: &[Token], at: usize) -> bool {
    let equals = words[..at].iter().rposition(|word| word.is("="));
    equals.is_some_and(|equals| at - equals <= 4 && is_assignment(words, equals))
}

/// The column of a list behind `IN` in which this place stands.
fn listed(words: &[Token], at: usize) -> Option<ColumnName> {
    let open = words[..at].iter().rposition(|word| !(word.is_value() || word.is(",") || word.is("-")))?;
    if !words[open].is("(") || open < 2 || !words[open - 1].is("in") {
        return None;
    }
    column_ending_at(words, open - 2)
}

/// Which column of an INSERT's list this place gives a value to.
fn inserted_at(words: &[Token], at: usize, columns: usize) -> Option<Role> {
    let values = words[..at].iter().rposition(|word| word.is_any(&["values", "value"]))?;
    if !words.iter().take(values).any(|word| word.is("into")) {
        return None;
    }
    let (mut depth, mut place) = (0usize, 0usize);
    for word in &words[values + 1..at] {
        if word.is("(") {
            depth += 1;
            place = if depth == 1 { 0 } else { place };
        } else if word.is(")") {
            depth = depth.saturating_sub(1);
        } else if word.is(",") && depth == 1 {
            place += 1;
        } else if depth == 0 && !word.is(",") {
            // ON CONFLICT and what follows are no values any more.
            return None;
        }
    }
    // Within a function's parentheses it is the function's.
    let next = words.get(at + 1).is_some_and(|next| next.is_any(&[",", ")", "::"]));
    (depth == 1 && next && (columns == 0 || place < columns)).then_some(Role::Inserted(place))
}

/// A sign that belongs to a value, and a list of any length, are one with it.
fn mark_value(marks: &mut Vec<&str>) {
    if marks.last() == Some(&"-") && marks.len() > 1 && marks[marks.len() - 2] != "?" {
        marks.pop();
    }
    if marks.ends_with(&["?", ","]) {
        marks.pop();
    } else {
        marks.push("?");
    }
}

/// What plans write for a value that is no number: how each begins.
const MADE: [&[&str]; 3] =
    [&["left", "(", "repeat", "(", "md5", "("], &["to_timestamp", "("], &["from_unixtime", "("]];

/// The words with a mark for each value. A text that a plan makes of a number stands for one value.
fn shape(words: &[Token]) -> String {
    let mut marks: Vec<&str> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let word = &words[at];
        let is_made = |made: &&[&str]| {
            made.iter()
                .enumerate()
                .all(|(n, text)| words.get(at + n).is_some_and(|word| word.text.eq_ignore_ascii_case(text)))
        };
        if MADE.iter().any(is_made) {
            let mut depth = 0i32;
            for word in &words[at..] {
                at += 1;
                depth += i32::from(word.is("(")) - i32::from(word.is(")"));
                if depth == 0 && word.is(")") {
                    break;
                }
            }
            mark_value(&mut marks);
            continue;
        }
        at += 1;
        if word.is_value() || word.kind == Kind::Gap {
            mark_value(&mut marks);
        } else {
            marks.push(&word.text);
        }
    }
    let mut shape = String::new();
    for (place, mark) in marks.iter().enumerate() {
        let tight = |mark: &str| matches!(mark, "(" | ")" | "," | "." | "::");
        let opens = place > 0 && matches!(marks[place - 1], "(" | "." | "::");
        if place > 0 && !tight(mark) && !opens {
            shape.push(' ');
        }
        shape.push_str(mark);
    }
    shape
}
