//! Mappings: which column of someone's JSON or CSV is which quantity, in which unit.

use super::quantity::{Quantity, unit};
use super::table::{CellName, Claim, Row, Says, Span, Study, Table, Value};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// A mapping file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The study's name.
    pub study: String,
    /// The file that it describes, beside it.
    pub file: String,
    /// Where the source stands in the file, or the source itself.
    #[serde(default)]
    pub source: String,
    /// Tables of the file.
    #[serde(default)]
    pub table: Vec<TableMapping>,
    /// Claims of the text.
    #[serde(default)]
    pub claim: Vec<ClaimMapping>,
}

/// How to find the rows and columns of a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableMapping {
    /// What people call it.
    name: String,
    /// Pointer to an array or object of rows; a single row where it is an object and `single` is set.
    rows: String,
    /// Whether what `rows` points at is itself the one row.
    #[serde(default)]
    single: bool,
    /// Pointer to an object: every row becomes one row for each of its keys, `{key}` in the paths below.
    split: Option<String>,
    /// Name of a row, with `{path}` in it replaced.
    row: String,
    /// Columns by quantity.
    columns: BTreeMap<String, Column>,
    /// Words by name: path, or `=word` for the same in every row.
    #[serde(default)]
    words: BTreeMap<String, String>,
}

/// Where a quantity stands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    /// Paths, of which the first that is there counts: `lat/{key}` from the row, `/disks/S1` from the file.
    #[serde(default)]
    at: Paths,
    /// Paths whose numbers are multiplied.
    #[serde(default)]
    times: Vec<String>,
    /// The number itself, where the text says it and the file does not.
    is: Option<f64>,
    /// Only in rows where a word has a value: `disk=HDD`.
    when: Option<String>,
    /// Its unit.
    #[serde(default)]
    unit: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(untagged)]
enum Paths {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

/// A sentence and its cells: `table | row | quantity`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimMapping {
    text: String,
    of: Option<String>,
    to: Option<String>,
    /// "+30 %", "-8.2 %", "x 2", "more than x 2", "at most x 3", "almost x 3"; `{/pointer}` is replaced by
    /// the file's value.
    ratio: Option<String>,
    /// A number or "200 .. 300", in `unit`.
    is: Option<String>,
    /// A number or "6 .. 7", in units of `along`.
    reaches_at: Option<String>,
    along: Option<String>,
    /// The level that is reached, in `unit`.
    level: Option<f64>,
    #[serde(default)]
    unit: String,
}

impl Mapping {
    /// Reads a mapping.
    ///
    /// # Errors
    /// Says what is wrong and where.
    pub fn parse(text: &str) -> Result<Mapping, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Turns a file into a study.
    ///
    /// # Errors
    /// Names the pointer, quantity or unit that does not fit. A cell that is missing is no error.
    pub fn apply(&self, file: &Json) -> Result<Study, String> {
        let source = file.pointer(&self.source).and_then(Json::as_str).unwrap_or(&self.source);
        let mut study = Study { name: self.study.clone(), source: source.to_string(), ..Study::default() };
        for table in &self.table {
            let read = table.read(file).map_err(|error| format!("table {}: {error}", table.name))?;
            study.tables.push(read);
        }
        for claim in &self.claim {
            let read =
                claim.read(file, &study).map_err(|error| format!("claim {:?}: {error}", claim.text))?;
            study.claims.push(read);
        }
        Ok(study)
    }
}

/// Where paths begin, and what `{key}` stands for.
struct Scope<'a> {
    file: &'a Json,
    row: &'a Json,
    key: &'a str,
}

impl<'a> Scope<'a> {
    fn at(&self, path: &str) -> Option<&'a Json> {
        let path = path.replace("{key}", self.key);
        let found = if path.starts_with('/') {
            self.file.pointer(&path)
        } else {
            self.row.pointer(&format!("/{path}"))
        };
        found.filter(|value| !value.is_null())
    }

    /// `{path}` replaced by what stands there.
    fn fill(&self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let Some((path, after)) = after.split_once('}') else { break };
            match path {
                "key" => filled.push_str(self.key),
                _ => filled.push_str(&self.at(path).map_or_else(|| "?".into(), text_of)),
            }
            rest = after;
        }
        filled.push_str(rest);
        filled
    }
}

fn text_of(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

impl TableMapping {
    fn read(&self, file: &Json) -> Result<Table, String> {
        let found = file.pointer(&self.rows).ok_or_else(|| format!("nothing at {:?}", self.rows))?;
        let rows: Vec<(&str, &Json)> = match found {
            one if self.single => vec![("", one)],
            Json::Array(rows) => rows.iter().map(|row| ("", row)).collect(),
            Json::Object(rows) => rows.iter().map(|(key, row)| (key.as_str(), row)).collect(),
            _ => return Err(format!("{:?} holds no rows", self.rows)),
        };
        let keys: Vec<&str> = match &self.split {
            None => vec![],
            Some(pointer) => {
                let object = file.pointer(pointer).and_then(Json::as_object);
                object
                    .ok_or_else(|| format!("no object at {pointer:?}"))?
                    .keys()
                    .map(String::as_str)
                    .collect()
            }
        };
        let mut table = Table { name: self.name.clone(), rows: vec![] };
        for (own, row) in rows {
            let keys = if self.split.is_some() { keys.clone() } else { vec![own] };
            for key in keys {
                table.rows.push(self.row(&Scope { file, row, key })?);
            }
        }
        Ok(table)
    }

    fn row(&self, scope: &Scope) -> Result<Row, String> {
        let mut row = Row::new(scope.fill(&self.row));
        for (name, path) in &self.words {
            let word = match path.strip_prefix('=') {
                Some(word) => Some(word.to_string()),
                None => scope.at(path).map(text_of),
            };
            row.words.extend(word.map(|word| (name.clone(), word)));
        }
        for (name, column) in &self.columns {
            let quantity = Quantity::parse(name).ok_or_else(|| {
                format!(
                    "no quantity {name:?}: there are p50, p99 and so on, and {}",
                    Quantity::names().join(", ")
                )
            })?;
            let wanted = column.when.as_deref().is_none_or(|when| {
                let (word, value) = when.split_once('=').unwrap_or((when, "true"));
                row.words.get(word).is_some_and(|found| found == value)
            });
            if wanted && let Some(value) = column.value(scope, quantity)? {
                row.values.insert(quantity, value);
            }
        }
        Ok(row)
    }
}

impl Column {
    fn value(&self, scope: &Scope, quantity: Quantity) -> Result<Option<Value>, String> {
        let factor = unit(quantity, &self.unit)?;
        if let Some(is) = self.is {
            return Ok(Value::printed(&is.to_string(), factor, quantity));
        }
        if !self.times.is_empty() {
            let parts: Option<Vec<Value>> =
                self.times.iter().map(|path| number(scope.at(path)?, 1.0, quantity)).collect();
            return Ok(parts.map(|parts| Value {
                span: parts.iter().fold(Span::exact(factor), |product, part| product * part.span),
                digits: parts.iter().map(|part| part.digits).max().unwrap_or(0),
            }));
        }
        let paths = match &self.at {
            Paths::None => return Err(format!("column {quantity}: needs `at`, `times` or `is`")),
            Paths::One(path) => std::slice::from_ref(path),
            Paths::Many(paths) => paths,
        };
        Ok(paths.iter().find_map(|path| number(scope.at(path)?, factor, quantity)))
    }
}

/// A number, a text that is one, or a list of two: from one to the other.
fn number(value: &Json, factor: f64, quantity: Quantity) -> Option<Value> {
    match value {
        Json::Number(_) | Json::String(_) => Value::printed(&text_of(value), factor, quantity),
        Json::Array(ends) => match ends.as_slice() {
            [a, b] => Some(Value::range(number(a, factor, quantity)?, number(b, factor, quantity)?)),
            _ => None,
        },
        _ => None,
    }
}

impl ClaimMapping {
    fn read(&self, file: &Json, study: &Study) -> Result<Claim, String> {
        let place = |text: &Option<String>| text.as_deref().map(|text| place(text, study)).transpose();
        let (of, to) = (place(&self.of)?, place(&self.to)?);
        let scope = Scope { file, row: file, key: "" };
        let quantity = of.as_ref().map_or(Quantity::Clients, |place| place.quantity);
        let says = if let Some(text) = &self.ratio {
            let text = scope.fill(text);
            Says::Ratio(
                ratio(&text).ok_or_else(|| format!("{text:?} is no ratio such as \"+30 %\" or \"x 2\""))?,
            )
        } else if let Some(text) = &self.is {
            let factor = unit(quantity, &self.unit)?;
            Says::Is(range(&scope.fill(text)).ok_or("`is` wants a number or \"200 .. 300\"")? * factor)
        } else if let Some(text) = &self.reaches_at {
            let along = self.along.as_deref().and_then(Quantity::parse).ok_or("`along` wants a condition")?;
            let level = self.level.ok_or("`level` is missing")? * unit(quantity, &self.unit)?;
            let at = range(&scope.fill(text)).ok_or("`reaches_at` wants a number or \"6 .. 7\"")?;
            Says::Reaches { along, level, at }
        } else {
            Says::Unchecked
        };
        Ok(Claim { text: self.text.clone(), of, to, says })
    }
}

fn place(text: &str, study: &Study) -> Result<CellName, String> {
    let parts: Vec<&str> = text.split('|').map(str::trim).collect();
    let [table, row, quantity] = parts.as_slice() else {
        return Err(format!("{text:?} is not \"table | row | quantity\""));
    };
    let quantity = Quantity::parse(quantity).ok_or_else(|| format!("no quantity {quantity:?}"))?;
    let place = CellName { table: (*table).into(), row: (*row).into(), quantity };
    if study.row(&place).is_none() {
        return Err(format!("no row {row:?} in table {table:?}"));
    }
    Ok(place)
}

/// "+30 %" is 1.295 to 1.305; "more than x 2" is 2 and above; "almost x 3" is 2.7 to 3.
fn ratio(text: &str) -> Option<Span> {
    let text = text.trim();
    for (words, bounds) in [
        ("more than ", (1.0, f64::INFINITY)),
        ("at most ", (0.0, 1.0)),
        ("almost ", (0.9, 1.0)),
        ("about ", (0.95, 1.05)),
    ] {
        if let Some(rest) = text.strip_prefix(words) {
            let exact = ratio(rest)?;
            let low = if bounds.0 < 0.5 { 0.0 } else { exact.middle().mul_add(bounds.0, 0.0) };
            return Some(Span { low: low.min(exact.low.max(low)), high: exact.middle() * bounds.1 });
        }
    }
    let half = |digits: &str| {
        0.5 * 10f64.powi(-(digits.trim().split_once('.').map_or(0, |(_, f)| f.len().min(15)) as i32))
    };
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.replace(' ', "");
        let value: f64 = percent.parse().ok().filter(|v: &f64| v.is_finite())?;
        let half = half(&percent) / 100.0;
        return Some(Span { low: 1.0 + value / 100.0 - half, high: 1.0 + value / 100.0 + half });
    }
    let times = text.strip_prefix(['x', '×'])?.trim();
    let value: f64 = times.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0)?;
    Some(Span { low: value - half(times), high: value + half(times) })
}

/// "6 .. 7" or "20".
fn range(text: &str) -> Option<Span> {
    let number = |part: &str| part.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    match text.split_once("..") {
        Some((low, high)) => Some(Span { low: number(low)?, high: number(high)? }),
        None => number(text).map(Span::exact),
    }
}

/// A CSV file with a head as an array of objects, for the same mappings: `rows = ""`. Quotes as in RFC 4180,
/// without line breaks in them.
pub fn rows_of_csv(text: &str) -> Json {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).map(fields);
    let head = lines.next().unwrap_or_default();
    let row = |cells: Vec<String>| {
        Json::Object(head.iter().cloned().zip(cells.into_iter().map(Json::String)).collect())
    };
    Json::Array(lines.map(row).collect())
}

fn fields(line: &str) -> Vec<String> {
    let (mut found, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                field.push('"');
                letters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => found.push(std::mem::take(&mut field).trim().to_string()),
            other => field.push(other),
        }
    }
    found.push(field.trim().to_string());
    found
}
