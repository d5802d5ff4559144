//! Documents shaped as the user's own: a model learned from a sample, and documents as a function of (seed,
//! record, version).
//!
//! For targets: `dataset.document(record, version, &mut sink)` shows a whole document to a [`DocumentSink`],
//! and `dataset.leaf(record, field, version, &mut sink)` the one value that an update of `Fields::One(field)`
//! writes; where it goes is `documents.paths()[field]`, with dots between the names. Two sinks are here:
//! [`Bson`] appends the bytes of a BSON document (put the key in as `_id` before), [`JsonText`] appends JSON.
//! Nothing is allocated per document but what the sink's own buffer needs.
//!
//! What is learned: which fields there are and how often, of which types, nested objects and arrays with
//! their lengths, ranges and quantiles of numbers and dates, texts that repeat, words, patterns and alphabets
//! of those that do not. What is not: how fields depend on each other.

mod date;
mod learn;
mod sink;
mod text;

pub(super) use date::milliseconds;
pub use learn::Learner;
pub use sink::{Bson, DocumentSink, JsonText};

use super::random::Random;
use date::DateStyle;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use text::Texts;

/// What a sample of documents looks like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Documents {
    /// How many documents the sample had,
    sampled: u64,
    /// and of how many bytes of JSON.
    bytes: u64,
    root: Object,
    paths: Vec<Path>,
}

/// A value of a document that an update can set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Path {
    text: String,
    /// Field numbers from the root down.
    at: Vec<u16>,
}

impl Path {
    /// Its names with dots between them: `address.city`.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Object {
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Field {
    name: String,
    /// Share of the objects that have it.
    present: f64,
    value: Value,
}

/// What stands at a place, of one or several types.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Value {
    types: Weighted<Type>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Type {
    Null,
    /// With the share of `true`.
    Boolean(f64),
    Integer(Whole),
    /// With the digits behind the point.
    Float(Real, u8),
    Text(Texts),
    /// A text that is a date, in microseconds since 1970.
    DateText(Whole, DateStyle),
    /// Extended JSON's `$date`, in milliseconds since 1970.
    Date(Whole),
    /// Extended JSON's `$oid`.
    ObjectId,
    Array {
        lengths: Whole,
        element: Box<Value>,
    },
    Object(Object),
}

/// Things with weights, to be drawn from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Weighted<T> {
    things: Vec<T>,
    /// The sum of the weights up to each thing.
    ends: Vec<u64>,
}

impl<T> Weighted<T> {
    fn new(weighted: impl IntoIterator<Item = (T, u64)>) -> Self {
        let (mut things, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        for (thing, weight) in weighted {
            end += weight;
            things.push(thing);
            ends.push(end);
        }
        Weighted { things, ends }
    }

    fn draw(&self, random: &mut Random) -> &T {
        match self.things.as_slice() {
            [only] => only,
            several => {
                let at = random.below(*self.ends.last().expect("something to draw from"));
                &several[self.ends.partition_point(|end| *end <= at)]
            }
        }
    }

    fn shares(&self) -> impl Iterator<Item = (&T, f64)> {
        let total = self.ends.last().copied().unwrap_or(1) as f64;
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        self.things.iter().zip(&self.ends).zip(begins).map(move |((t, end), b)| (t, (end - b) as f64 / total))
    }
}

/// A distribution of whole numbers: all that were seen if few, else quantiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Whole {
    Choice(Weighted<i64>),
    Quantiles(Vec<i64>),
}

impl Whole {
    fn draw(&self, random: &mut Random) -> i64 {
        match self {
            Whole::Choice(choice) => *choice.draw(random),
            Whole::Quantiles(quantiles) => {
                let (index, share) = place(quantiles.len(), random);
                let (low, high) = (quantiles[index], quantiles[(index + 1).min(quantiles.len() - 1)]);
                let span = (i128::from(high) - i128::from(low)) as f64;
                (i128::from(low) + (span * share).round() as i128).min(i128::from(high)) as i64
            }
        }
    }

    fn range(&self) -> (i64, i64) {
        let numbers = match self {
            Whole::Choice(choice) => &choice.things,
            Whole::Quantiles(quantiles) => quantiles,
        };
        let least = numbers.iter().min().copied().unwrap_or(0);
        (least, numbers.iter().max().copied().unwrap_or(0))
    }
}

/// Quantiles of numbers with a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Real(Vec<f64>);

impl Real {
    fn draw(&self, random: &mut Random) -> f64 {
        let (index, share) = place(self.0.len(), random);
        let (low, high) = (self.0[index], self.0[(index + 1).min(self.0.len() - 1)]);
        low + (high - low) * share
    }
}

/// A place between two of `count` quantiles.
fn place(count: usize, random: &mut Random) -> (usize, f64) {
    let at = random.unit() * (count - 1) as f64;
    (at as usize, at.fract())
}

impl Documents {
    /// What an update can set, in the order in which updates number them: values that are neither array nor
    /// object, not inside an array, and whose parents are objects in every document.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Mean size of the sample's documents as JSON, in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.sampled as f64
    }

    pub(super) fn document(&self, seed: u64, record: u64, version: u64, sink: &mut impl DocumentSink) {
        let mut random = stream(seed, record, version, u64::MAX);
        sink.begin_object();
        self.root.show(&mut random, sink);
        sink.end_object();
    }

    /// The fields of a document alone, for a sink whose object was begun with fields of its own.
    pub fn fields(&self, seed: u64, record: u64, version: u64, sink: &mut impl DocumentSink) {
        self.root.show(&mut stream(seed, record, version, u64::MAX), sink);
    }

    pub(super) fn leaf(&self, seed: u64, record: u64, path: u16, version: u64, sink: &mut impl DocumentSink) {
        let mut random = stream(seed, record, version, u64::from(path));
        let (last, parents) = self.paths[usize::from(path)].at.split_last().expect("a path has a name");
        let mut object = &self.root;
        for number in parents {
            let types = &object.fields[usize::from(*number)].value.types.things;
            let Some(Type::Object(inner)) = types.first() else {
                unreachable!("a path leads through objects")
            };
            object = inner;
        }
        object.fields[usize::from(*last)].value.show(&mut random, sink);
    }

    /// What was learned, a line for every place in a document.
    pub fn summary(&self) -> String {
        let mut out = format!(
            "{} documents of {:.0} bytes of JSON on average; {} values can be updated\n",
            self.sampled,
            self.mean_bytes(),
            self.paths.len()
        );
        self.root.describe("", &mut out);
        out
    }

    /// Every place with its types, without how often they occur: `address.city text`. For comparing shapes.
    pub fn shape(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        self.root.shape("", &mut lines);
        lines.sort();
        lines
    }
}

fn stream(seed: u64, record: u64, version: u64, what: u64) -> Random {
    let seed = seed ^ version.wrapping_mul(0xD605_BBB5_8C8A_BC1B);
    Random::new(seed ^ what.wrapping_mul(0x2545_F491_4F6C_DD1D), record)
}

impl Object {
    fn show(&self, random: &mut Random, sink: &mut impl DocumentSink) {
        for field in &self.fields {
            if field.present >= 1.0 || random.unit() < field.present {
                sink.name(&field.name);
                field.value.show(random, sink);
            }
        }
    }

    fn describe(&self, before: &str, out: &mut String) {
        for field in &self.fields {
            let place = format!("{before}{}", field.name);
            let present = crate::units::Ratio(field.present).rounded();
            let _ = writeln!(out, "  {place:<32} in {present:>7}  {}", field.value.describe());
            field.value.inside(&place, &mut |object, place| object.describe(place, out));
        }
    }

    fn shape(&self, before: &str, lines: &mut Vec<String>) {
        for field in &self.fields {
            field.value.shape(&format!("{before}{}", field.name), lines);
        }
    }
}

impl Value {
    fn show(&self, random: &mut Random, sink: &mut impl DocumentSink) {
        match self.types.draw(random) {
            Type::Null => sink.null(),
            Type::Boolean(share) => sink.boolean(random.unit() < *share),
            Type::Integer(numbers) => sink.integer(numbers.draw(random)),
            Type::Float(numbers, decimals) => {
                let scale = 10f64.powi(i32::from(*decimals));
                let drawn = numbers.draw(random);
                let rounded = (drawn * scale).round() / scale;
                sink.float(if rounded.is_finite() { rounded } else { drawn });
            }
            Type::Text(texts) => texts.draw(random, |text| sink.text(text)),
            Type::DateText(times, style) => style.print(times.draw(random), |text| sink.text(text)),
            Type::Date(times) => sink.date(times.draw(random)),
            Type::ObjectId => {
                let mut id = [0; 12];
                id[..8].copy_from_slice(&random.bits().to_be_bytes());
                id[8..].copy_from_slice(&random.bits().to_be_bytes()[..4]);
                sink.object_id(id);
            }
            Type::Array { lengths, element } => {
                sink.begin_array();
                for _ in 0..lengths.draw(random) {
                    element.show(random, sink);
                }
                sink.end_array();
            }
            Type::Object(object) => {
                sink.begin_object();
                object.show(random, sink);
                sink.end_object();
            }
        }
    }

    fn describe(&self) -> String {
        let one = |(kind, share): (&Type, f64)| {
            let what = kind.describe();
            if share < 1.0 { format!("{} {what}", crate::units::Ratio(share).rounded()) } else { what }
        };
        self.types.shares().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The objects inside, with their places.
    fn inside(&self, place: &str, then: &mut dyn FnMut(&Object, &str)) {
        for kind in &self.types.things {
            match kind {
                Type::Object(object) => then(object, &format!("{place}.")),
                Type::Array { element, .. } => element.inside(&format!("{place}[]"), then),
                _ => {}
            }
        }
    }

    fn shape(&self, place: &str, lines: &mut Vec<String>) {
        for kind in &self.types.things {
            lines.push(format!("{place} {}", kind.name()));
            match kind {
                Type::Object(object) => object.shape(&format!("{place}."), lines),
                Type::Array { element, .. } => element.shape(&format!("{place}[]"), lines),
                _ => {}
            }
        }
    }
}

impl Type {
    fn name(&self) -> &'static str {
        match self {
            Type::Null => "null",
            Type::Boolean(_) => "boolean",
            Type::Integer(_) => "integer",
            Type::Float(..) => "float",
            Type::Text(_) => "text",
            Type::DateText(..) => "date as text",
            Type::Date(_) => "date",
            Type::ObjectId => "object id",
            Type::Array { .. } => "array",
            Type::Object(_) => "object",
        }
    }

    fn describe(&self) -> String {
        let name = self.name();
        match self {
            Type::Boolean(share) => format!("{name}, true in {}", crate::units::Ratio(*share).rounded()),
            Type::Integer(numbers) => match numbers {
                Whole::Choice(choice) => {
                    let (least, most) = numbers.range();
                    format!("{name}, {} values from {least} to {most}", choice.things.len())
                }
                Whole::Quantiles(quantiles) => {
                    let (least, most) = numbers.range();
                    format!(
                        "{name}, {least} to {most}, half of them up to {}",
                        quantiles[quantiles.len() / 2]
                    )
                }
            },
            Type::Float(Real(quantiles), decimals) => format!(
                "{name}, {} to {}, {decimals} decimals",
                quantiles.first().unwrap_or(&0.0),
                quantiles.last().unwrap_or(&0.0)
            ),
            Type::Text(texts) => format!("{name}, {}", texts.describe()),
            Type::DateText(times, style) => {
                let (least, most) = times.range();
                format!("{name}, {} to {}", style.text(least), style.text(most))
            }
            Type::Date(times) => {
                let (least, most) = times.range();
                format!("{name}, {} to {}", date::iso(least), date::iso(most))
            }
            Type::Array { lengths, element } => {
                let (least, most) = lengths.range();
                format!("{name} of {least} to {most}: {}", element.describe())
            }
            Type::Object(object) => format!("{name} of {} fields", object.fields.len()),
            Type::Null | Type::ObjectId => name.into(),
        }
    }
}

#[cfg(test)]
mod tests;
