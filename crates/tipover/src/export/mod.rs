//! Results as tidy tables for other programs: a row for each thing that was measured, a column for each fact
//! about it, units in the columns' names.

mod csv;
mod parquet;
mod tables;

pub use csv::{csv, dictionary};
pub use parquet::parquet;
pub use tables::{Source, tables};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A whole number.
    Count,
    Number,
    Flag,
}

impl Kind {
    /// As the dictionary calls it.
    fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Count => "whole number",
            Kind::Number => "number",
            Kind::Flag => "true or false",
        }
    }
}

/// What stands in a row's place.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Count(i64),
    Number(f64),
    Flag(bool),
    /// Not known, or of no meaning here.
    Nothing,
}

impl Value {
    fn kind(&self) -> Option<Kind> {
        match self {
            Value::Text(_) => Some(Kind::Text),
            Value::Count(_) => Some(Kind::Count),
            Value::Number(_) => Some(Kind::Number),
            Value::Flag(_) => Some(Kind::Flag),
            Value::Nothing => None,
        }
    }
}

/// What a column can be filled with: the kind is that of the type.
pub trait Typed: Into<Value> {
    const KIND: Kind;
}

impl Typed for String {
    const KIND: Kind = Kind::Text;
}

impl Typed for u64 {
    const KIND: Kind = Kind::Count;
}

impl Typed for f64 {
    const KIND: Kind = Kind::Number;
}

impl Typed for bool {
    const KIND: Kind = Kind::Flag;
}

impl<T: Typed> Typed for Option<T> {
    const KIND: Kind = T::KIND;
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        if number.is_finite() { Value::Number(number) } else { Value::Nothing }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl<T: Typed> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Nothing, Into::into)
    }
}

/// A column, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// With its unit, if it has one: "residence_ms_p99".
    pub name: String,
    pub kind: Kind,
    /// A sentence.
    pub about: String,
}

/// A table whose rows have a value for each column.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub name: &'static str,
    /// What a row is, in a sentence.
    pub about: &'static str,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// Makes sure of what its readers rely on.
    fn assert_whole(&self) {
        for row in &self.rows {
            assert_eq!(row.len(), self.columns.len(), "{}: a value for each column", self.name);
            for (value, column) in row.iter().zip(&self.columns) {
                let kind = value.kind();
                assert!(kind.is_none_or(|kind| kind == column.kind), "{}.{}", self.name, column.name);
            }
        }
    }
}
