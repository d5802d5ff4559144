//! Rows that parameters are taken from: a table with a header, of which every operation draws a row.

use super::alike::Alike;
use super::expression::Expression;
use super::text::{Cursor, Mistake, is_name};
use super::value::Value;
use super::{Names, draw::Chance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Where rows are, and which of them are drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSpec {
    /// The path of a file with comma-separated values, whose first line names the columns: each is a
    /// variable.
    pub file: String,
    /// Which row an operation gets, from 1 to `:count`: an expression.
    #[serde(default = "uniform")]
    pub draw: String,
    /// What the names of its variables begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// What becomes of the row's texts.
    #[serde(default, skip_serializing_if = "is_taken")]
    pub texts: Texts,
    /// What stands in the file. Absent: it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What becomes of the texts in a row that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Texts {
    /// They are taken as they stand there.
    #[default]
    Taken,
    /// Others are made in their place, as long as they are, with the letters of their column in its order.
    Alike,
}

fn is_taken(texts: &Texts) -> bool {
    *texts == Texts::Taken
}

fn uniform() -> String {
    "random(1, :count)".into()
}

/// The rows belong to the setting, and stand in every record.
const MOST_BYTES: usize = 1 << 20;

/// Rows that were read.
#[derive(Debug, Clone)]
pub(super) struct Samples {
    pub spec: SampleSpec,
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    draw: Expression,
    /// The variables in it.
    pub wants: BTreeSet<usize>,
}

/// The variable that a column is, and what its texts have taught if others are to be made.
#[derive(Debug, Clone)]
struct Column {
    variable: usize,
    alike: Option<Alike>,
}

impl Samples {
    /// Reads them.
    ///
    /// # Errors
    /// The first mistake in the file or in the draw.
    pub fn read(spec: SampleSpec, names: &mut Names) -> Result<Samples, Mistake> {
        let text = spec.text.as_deref().unwrap_or_default();
        let cursor = Cursor { script: &spec.file, text, at: 0, end: text.len() };
        if text.len() > MOST_BYTES {
            let words =
                format!("it has more than {MOST_BYTES} bytes: rows stand in every record; take a sample");
            return Err(cursor.mistake(0, words));
        }
        let mut lines = cells(cursor)?.into_iter();
        let header = lines.next().ok_or_else(|| cursor.mistake(0, "the first line names the columns"))?;
        let mut columns = Vec::new();
        for Cell { at, text: name, .. } in &header {
            let name = format!("{}{}", spec.prefix, name.trim());
            if !is_name(&name) {
                return Err(cursor.mistake(*at, format!("no variable can be called {name:?}")));
            }
            columns.push(Column { variable: names.number(&name), alike: None });
        }
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for line in lines {
            if line.len() != header.len() {
                let words =
                    format!("the line has {} values, and there are {} columns", line.len(), header.len());
                return Err(cursor.mistake(line[0].at, words));
            }
            rows.push(line);
        }
        if rows.is_empty() {
            return Err(cursor.mistake(text.len(), "there is no row behind the header"));
        }
        let of_draw = Cursor { script: "draw", text: &spec.draw, at: 0, end: spec.draw.len() };
        names.mentioned.clear();
        let draw = Expression::parse(of_draw, names)?;
        let wants = std::mem::take(&mut names.mentioned);
        let rows = typed(rows, columns.len());
        for (number, column) in columns.iter_mut().enumerate().filter(|_| spec.texts == Texts::Alike) {
            let text = |row: &'_ Vec<Value>| match &row[number] {
                Value::Quoted(text) => Some(text.clone()),
                _ => None,
            };
            let texts: Vec<_> = rows.iter().filter_map(text).collect();
            column.alike = (!texts.is_empty()).then(|| Alike::learn(texts.iter().map(|text| &**text)));
        }
        Ok(Samples { columns, rows, draw, wants, spec })
    }

    /// Whether one of these variables is a column.
    pub fn has(&self, variables: &BTreeSet<usize>) -> bool {
        self.columns.iter().any(|column| variables.contains(&column.variable))
    }

    /// Sets the variables of a row that is drawn.
    ///
    /// # Errors
    /// An expression that has no value, or is no row.
    pub fn take(
        &self,
        names: &Names,
        variables: &mut [Option<Value>],
        chance: &mut Chance,
        stack: &mut Vec<Value>,
    ) -> Result<(), String> {
        let count = self.rows.len() as i64;
        let known = |number: usize| match names.name(number) {
            "count" => Ok(Value::Integer(count)),
            _ => super::run::variable(names, variables, number),
        };
        let said = self.draw.value(&known, chance, stack, &mut Vec::new());
        let drawn = said.and_then(|value| value.integer());
        let row = drawn.map_err(|reason| format!("the draw from {}: {reason}", self.spec.file))?;
        if !(1..=count).contains(&row) {
            return Err(format!("the draw from {}: {row} is no row of {count}", self.spec.file));
        }
        for (column, value) in self.columns.iter().zip(&self.rows[row as usize - 1]) {
            variables[column.variable] = Some(match (value, &column.alike) {
                (Value::Quoted(text), Some(alike)) => {
                    Value::Quoted(alike.text(text.chars().count(), &mut chance.random).into())
                }
                _ => value.clone(),
            });
        }
        Ok(())
    }
}

/// A column of integers holds integers, one of numbers doubles, and any other texts, as does one with a value
/// in quotes; nothing is NULL.
fn typed(rows: Vec<Vec<Cell>>, columns: usize) -> Vec<Vec<Value>> {
    let all = |column: usize, is: fn(&str) -> bool| {
        let mut cells = rows.iter().map(|row| &row[column]).filter(|cell| !cell.is_nothing());
        cells.all(|cell| !cell.is_quoted && is(&cell.text))
    };
    let makes: Vec<fn(&str) -> Value> = (0..columns)
        .map(|column| -> fn(&str) -> Value {
            if all(column, |text| text.parse::<i64>().is_ok()) {
                |text| Value::Integer(text.parse().unwrap_or(0))
            } else if all(column, |text| text.parse::<f64>().is_ok_and(f64::is_finite)) {
                |text| Value::Double(text.parse().unwrap_or(0.0))
            } else {
                |text| Value::Quoted(text.into())
            }
        })
        .collect();
    let value = |(cell, make): (&Cell, &fn(&str) -> Value)| match cell.is_nothing() {
        true => Value::Null,
        false => make(&cell.text),
    };
    rows.iter().map(|row| row.iter().zip(&makes).map(value).collect()).collect()
}

/// A value as it stands in the file.
struct Cell {
    /// Where it begins.
    at: usize,
    text: String,
    is_quoted: bool,
}

impl Cell {
    fn is_nothing(&self) -> bool {
        self.text.is_empty() && !self.is_quoted
    }
}

/// Lines of values (RFC 4180); empty lines are none.
fn cells(cursor: Cursor<'_>) -> Result<Vec<Vec<Cell>>, Mistake> {
    let text = cursor.text;
    if let Some(at) = text.find('\0') {
        return Err(cursor.mistake(at, "this byte is zero: is it a table?"));
    }
    let bytes = text.as_bytes();
    let (mut lines, mut line, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        if line.is_empty() && matches!(bytes[at], b'\n' | b'\r') {
            at += 1;
            continue;
        }
        let begin = at;
        let mut value = String::new();
        let is_quoted = bytes[at] == b'"';
        if is_quoted {
            loop {
                let rest = &text[at + 1..];
                let Some(length) = rest.find('"') else {
                    return Err(cursor.mistake(begin, "what is opened by \" here is never closed"));
                };
                value.push_str(&rest[..length]);
                at += length + 2;
                if bytes.get(at) != Some(&b'"') {
                    break;
                }
                value.push('"');
            }
        } else {
            let rest = &text[at..];
            let length = rest.find([',', '\n', '\r']).unwrap_or(rest.len());
            value.push_str(&rest[..length]);
            at += length;
        }
        line.push(Cell { at: begin, text: value, is_quoted });
        match bytes.get(at) {
            Some(b',') => {
                at += 1;
                // A comma at the end of a line stands before an empty value.
                if matches!(bytes.get(at), None | Some(b'\n' | b'\r')) {
                    line.push(Cell { at, text: String::new(), is_quoted: false });
                    lines.push(std::mem::take(&mut line));
                }
            }
            None | Some(b'\n' | b'\r') => lines.push(std::mem::take(&mut line)),
            Some(_) => return Err(cursor.mistake(at, "a comma or the end of the line should be here")),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, Quoting, Run, Scripts, Step};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn spec(text: &str, draw: &str) -> SampleSpec {
        let (file, prefix, texts) = ("items.csv".into(), String::new(), Texts::Taken);
        SampleSpec { file, draw: draw.into(), prefix, texts, text: Some(text.into()) }
    }

    /// What the first operations send.
    fn sent(spec: SampleSpec, script: &str, operations: u64) -> Result<Vec<String>, String> {
        let mut scripts = Scripts::new(3, Dialect::Plan);
        scripts.forgets = true;
        scripts.add("s", script.as_bytes(), 1).unwrap();
        scripts.add_samples(spec).map_err(|mistake| mistake.to_string())?;
        let scripts = Arc::new(scripts);
        let json = serde_json::to_string(scripts.as_ref()).unwrap();
        assert_eq!(serde_json::from_str::<Scripts>(&json).unwrap(), *scripts);
        let mut run = Run::new(scripts, 0);
        let mut texts = Vec::new();
        for number in 0..operations {
            run.begin(0, number);
            match run.step() {
                Ok(Step::Send(command)) => {
                    let mut out = Vec::new();
                    run.put_text(command, Quoting::Standard, &mut out);
                    texts.push(String::from_utf8(out).unwrap());
                }
                Ok(step) => panic!("{step:?}"),
                Err(abort) => return Err(abort.reason),
            }
        }
        Ok(texts)
    }

    #[test]
    fn operations_get_rows_with_values_of_their_kind() {
        let table = "id,price,\"what, then\"\n1,0.5,\"it's \"\"a\"\"\"\r\n\n2,3,\n3,,x\n";
        let draw = "1 + :operation % :count";
        let mut table_spec = spec(&table.replace("\"what, then\"", "name"), draw);
        let script = "select :id, :price, :name;";
        let texts = sent(table_spec.clone(), script, 4).unwrap();
        let first = "select 1, 0.5, 'it''s \"a\"';";
        assert_eq!(texts, [first, "select 2, 3, NULL;", "select 3, NULL, 'x';", first]);
        table_spec.prefix = "item_".into();
        let texts = sent(table_spec, "select :item_id;", 2).unwrap();
        assert_eq!(texts, ["select 1;", "select 2;"]);
        // Texts that are made, and numbers that are not.
        let made = SampleSpec { texts: Texts::Alike, ..spec("id,name\n1,anna\n2,\n3,ninan\n", draw) };
        let texts = sent(made.clone(), "select :id, :name;", 90).unwrap();
        assert_eq!(texts[1], "select 2, NULL;");
        let is_alike = |text: &&String| {
            let name = text.split('\'').nth(1).unwrap_or_default();
            [4, 5].contains(&name.len()) && name.chars().all(|letter| "ain".contains(letter))
        };
        assert_eq!(texts.iter().filter(is_alike).count(), 60, "{texts:?}");
        assert!(
            texts.iter().any(|text| !["'anna'", "'ninan'", "NULL"].iter().any(|name| text.contains(name)))
        );
        assert_eq!(texts, sent(made, "select :id, :name;", 90).unwrap());
        // The row is a function of seed and number.
        let drawn =
            |operations| sent(spec("n\n1\n2\n3\n4\n5\n", &uniform()), "select :n;", operations).unwrap();
        assert_eq!(drawn(20), drawn(20));
        assert!((1..=5).all(|n| drawn(60).contains(&format!("select {n};"))));
        assert!(
            sent(spec(table, draw), script, 1)
                .unwrap_err()
                .contains("items.csv:1:10: no variable can be called")
        );
    }

    #[test]
    fn tables_that_are_none_are_refused_with_line_and_column() {
        for (table, draw, words) in [
            ("", "1", "items.csv:1:1: the first line names the columns"),
            ("a,b\n", "1", "items.csv:2:1: there is no row behind the header"),
            ("a,b\n1\n", "1", "items.csv:2:1: the line has 1 values, and there are 2 columns"),
            ("a\n\"1\n", "1", "items.csv:2:1: what is opened by \" here is never closed"),
            ("a\n\"1\"2\n", "1", "items.csv:2:4: a comma or the end of the line"),
            ("a\n\0\n", "1", "items.csv:2:1: this byte is zero"),
            ("a\n1\n", "sqr(2)", "draw:1:1: unexpected function name (sqr)"),
            ("a\n1\n", "2", "the draw from items.csv: 2 is no row of 1"),
            ("a\n1\n", "1 / 0", "the draw from items.csv: division by zero"),
            ("a\n1\n", ":b", "the draw from items.csv: undefined variable \"b\""),
        ] {
            let said = sent(spec(table, draw), "select :a, :b;", 1).unwrap_err();
            assert!(said.starts_with(words) && !said.contains('\n'), "{table:?}: {said}");
        }
        let huge = format!("a\n{}", "1\n".repeat(MOST_BYTES));
        assert!(sent(spec(&huge, "1"), "select :a;", 1).unwrap_err().contains("take a sample"));
    }

    proptest! {
        #[test]
        fn no_table_panics(table in "[a-c\",\n\r é1.]{0,60}") {
            let _ = sent(spec(&table, "1"), "select 1;", 1);
        }
    }
}
