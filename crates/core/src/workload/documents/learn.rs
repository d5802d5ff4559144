//! Learning a model from a sample.

use super::text::Texts;
use super::{Documents, Field, Object, Path, Real, Type, Value, Weighted, Whole, date};
use date::DateStyle;
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};

/// Numbers are kept one by one if no more than this many are different,
const CHOICES: usize = 32;
/// else as this many quantiles.
const QUANTILES: usize = 65;
/// An update names its path with 16 bits.
const PATHS: usize = u16::MAX as usize;
/// Levels of objects and arrays in a document, itself included. A level takes seven of the 128 levels of JSON
/// that are read back from a record, in which a model stands five levels deep.
const DEEPEST: usize = 16;

/// Reads documents, one JSON text a line.
#[derive(Debug, Default)]
pub struct Learner {
    lines: u64,
    bytes: u64,
    root: Seen,
}

/// What was seen at a place.
#[derive(Debug, Default)]
struct Seen {
    nulls: u64,
    trues: u64,
    falses: u64,
    integers: Vec<i64>,
    floats: Vec<f64>,
    decimals: u8,
    texts: Vec<String>,
    dates: Vec<i64>,
    ids: u64,
    lengths: Vec<i64>,
    element: Option<Box<Seen>>,
    objects: u64,
    /// In the order of their first appearance.
    fields: Vec<(String, Seen)>,
    numbers: HashMap<String, usize>,
}

impl Learner {
    /// Has seen nothing.
    pub fn new() -> Self {
        Learner::default()
    }

    /// How many documents were read.
    pub fn documents(&self) -> u64 {
        self.root.objects
    }

    /// Reads a line; an empty one is passed over.
    ///
    /// # Errors
    /// What is no JSON object, with its line.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        self.lines += 1;
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() {
            return Ok(());
        }
        let number = self.lines;
        let document: Json = serde_json::from_str(line).map_err(|e| format!("line {number}: {e}"))?;
        if !document.is_object() {
            return Err(format!("line {number}: a document is a JSON object, one a line"));
        }
        if levels(&document) > DEEPEST {
            return Err(format!(
                "line {number}: nested more than {DEEPEST} deep, too deep for its model to be kept in a record"
            ));
        }
        self.bytes += line.len() as u64;
        self.root.see(document);
        Ok(())
    }

    /// The model. `_id` is left out: the key stands there.
    ///
    /// # Errors
    /// If there was no document, or nothing in them.
    pub fn learned(mut self) -> Result<Documents, String> {
        let sampled = self.root.objects;
        if sampled == 0 {
            return Err("there is no document in it".into());
        }
        self.root.fields.retain(|(name, _)| name != "_id");
        let root = object(self.root.fields, sampled);
        if root.fields.is_empty() {
            return Err("its documents have no fields besides _id".into());
        }
        let mut paths = Vec::new();
        collect_paths(&root, "", &[], &mut paths);
        paths.truncate(PATHS);
        Ok(Documents { sampled, bytes: self.bytes, root, paths })
    }
}

impl Documents {
    /// Learns from NDJSON: one document a line.
    ///
    /// # Errors
    /// See [`Learner::line`] and [`Learner::learned`].
    pub fn learn(ndjson: &str) -> Result<Documents, String> {
        let mut learner = Learner::new();
        ndjson.lines().try_for_each(|line| learner.line(line))?;
        learner.learned()
    }
}

impl Seen {
    fn total(&self) -> u64 {
        let many = self.integers.len() + self.floats.len() + self.texts.len() + self.dates.len();
        self.nulls + self.trues + self.falses + self.ids + self.objects + (many + self.lengths.len()) as u64
    }

    fn see(&mut self, value: Json) {
        match value {
            Json::Null => self.nulls += 1,
            Json::Bool(true) => self.trues += 1,
            Json::Bool(false) => self.falses += 1,
            Json::Number(number) => match number.as_i64() {
                Some(integer) => self.integers.push(integer),
                None => self.float(number.as_f64().unwrap_or(0.0)),
            },
            Json::String(text) => self.texts.push(text),
            Json::Array(elements) => {
                self.lengths.push(elements.len() as i64);
                let element = self.element.get_or_insert_default();
                elements.into_iter().for_each(|value| element.see(value));
            }
            Json::Object(fields) => {
                let tagged = match fields.iter().next() {
                    Some((tag, value)) if fields.len() == 1 => extended(tag, value),
                    _ => None,
                };
                match tagged {
                    Some(Extended::Date(ms)) => self.dates.push(ms),
                    Some(Extended::Id) => self.ids += 1,
                    Some(Extended::Integer(integer)) => self.integers.push(integer),
                    Some(Extended::Float(float)) => self.float(float),
                    None => {
                        self.objects += 1;
                        for (name, value) in fields {
                            let next = self.fields.len();
                            let number = *self.numbers.entry(name.clone()).or_insert(next);
                            if number == next {
                                self.fields.push((name, Seen::default()));
                            }
                            self.fields[number].1.see(value);
                        }
                    }
                }
            }
        }
    }

    fn float(&mut self, float: f64) {
        let text = format!("{float}");
        let decimals = text.split_once('.').map_or(0, |(_, digits)| digits.len());
        self.decimals = self.decimals.max(decimals.min(17) as u8);
        self.floats.push(float);
    }

    fn value(self) -> Value {
        let mut types: Vec<(Type, u64)> = Vec::new();
        // An object comes first, where an update's path finds it.
        if self.objects > 0 {
            types.push((Type::Object(object(self.fields, self.objects)), self.objects));
        }
        if !self.lengths.is_empty() {
            let count = self.lengths.len() as u64;
            let element = self.element.map(|element| *element).unwrap_or_default();
            // Arrays that were always empty have elements of no type; they are never drawn.
            let element = if element.total() == 0 { Seen { nulls: 1, ..Seen::default() } } else { element };
            types.push((
                Type::Array { lengths: whole(self.lengths), element: Box::new(element.value()) },
                count,
            ));
        }
        if !self.texts.is_empty() {
            types.push((text(&self.texts), self.texts.len() as u64));
        }
        if !self.integers.is_empty() {
            let count = self.integers.len() as u64;
            types.push((Type::Integer(whole(self.integers)), count));
        }
        if !self.floats.is_empty() {
            let count = self.floats.len() as u64;
            types.push((Type::Float(real(self.floats), self.decimals), count));
        }
        if !self.dates.is_empty() {
            let count = self.dates.len() as u64;
            types.push((Type::Date(whole(self.dates)), count));
        }
        let booleans = self.trues + self.falses;
        if booleans > 0 {
            types.push((Type::Boolean(self.trues as f64 / booleans as f64), booleans));
        }
        if self.ids > 0 {
            types.push((Type::ObjectId, self.ids));
        }
        if self.nulls > 0 {
            types.push((Type::Null, self.nulls));
        }
        Value { types: Weighted::new(types) }
    }
}

/// How deep objects and arrays are nested; 0 for anything else.
fn levels(value: &Json) -> usize {
    let below = match value {
        Json::Object(fields) => fields.values().map(levels).max(),
        Json::Array(elements) => elements.iter().map(levels).max(),
        _ => return 0,
    };
    1 + below.unwrap_or(0)
}

enum Extended {
    Date(i64),
    Id,
    Integer(i64),
    Float(f64),
}

/// MongoDB's extended JSON, as mongoexport writes it.
fn extended(tag: &str, value: &Json) -> Option<Extended> {
    match (tag, value) {
        ("$date", Json::String(text)) => date::milliseconds(text).map(Extended::Date),
        ("$date", Json::Number(ms)) => ms.as_i64().map(Extended::Date),
        ("$date", Json::Object(inner)) => {
            inner.get("$numberLong")?.as_str()?.parse().ok().map(Extended::Date)
        }
        ("$oid", Json::String(digits)) => (digits.len() == 24).then_some(Extended::Id),
        ("$numberLong" | "$numberInt", Json::String(text)) => text.parse().ok().map(Extended::Integer),
        ("$numberDouble" | "$numberDecimal", Json::String(text)) => {
            text.parse().ok().filter(|float: &f64| float.is_finite()).map(Extended::Float)
        }
        _ => None,
    }
}

fn object(fields: Vec<(String, Seen)>, objects: u64) -> Object {
    let field = |(name, seen): (String, Seen)| {
        let present = seen.total() as f64 / objects as f64;
        Field { name, present, value: seen.value() }
    };
    Object { fields: fields.into_iter().map(field).collect() }
}

/// Dates if all are, in one style; else texts.
fn text(texts: &[String]) -> Type {
    let mut times = Vec::with_capacity(texts.len());
    let mut style: Option<DateStyle> = None;
    for text in texts {
        match date::read(text) {
            Some((time, of_text)) if style.as_ref().is_none_or(|style| *style == of_text) => {
                times.push(time);
                style = Some(of_text);
            }
            _ => return Type::Text(Texts::learn(texts)),
        }
    }
    match style {
        Some(style) => Type::DateText(whole(times), style),
        None => Type::Text(Texts::learn(texts)),
    }
}

/// The distribution of `numbers`, of which there must be one.
pub(super) fn whole(mut numbers: Vec<i64>) -> Whole {
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for number in &numbers {
        *counts.entry(*number).or_default() += 1;
        if counts.len() > CHOICES {
            break;
        }
    }
    if counts.len() <= CHOICES && numbers.len() >= 2 * counts.len() || numbers.len() == 1 {
        return Whole::Choice(Weighted::new(counts));
    }
    numbers.sort_unstable();
    Whole::Quantiles(quantiles(&numbers))
}

fn real(mut numbers: Vec<f64>) -> Real {
    numbers.sort_by(f64::total_cmp);
    Real(quantiles(&numbers))
}

/// At most [`QUANTILES`] of `sorted`, evenly spaced, with the first and the last.
fn quantiles<T: Copy>(sorted: &[T]) -> Vec<T> {
    if sorted.len() <= QUANTILES {
        return sorted.to_vec();
    }
    (0..QUANTILES).map(|i| sorted[i * (sorted.len() - 1) / (QUANTILES - 1)]).collect()
}

fn collect_paths(object: &Object, before: &str, at: &[u16], paths: &mut Vec<Path>) {
    for (number, field) in object.fields.iter().enumerate().take(PATHS) {
        let at: Vec<u16> = at.iter().copied().chain([number as u16]).collect();
        let text = format!("{before}{}", field.name);
        // A dot or a dollar in a name means something else in an update.
        if field.name.is_empty() || field.name.contains(['.', '$', '\0']) {
            continue;
        }
        match field.value.types.things.as_slice() {
            [Type::Object(inner)] if field.present >= 1.0 => {
                collect_paths(inner, &format!("{text}."), &at, paths);
            }
            types if types.iter().any(|t| matches!(t, Type::Object(_) | Type::Array { .. })) => {}
            _ => paths.push(Path { text, at }),
        }
    }
}
