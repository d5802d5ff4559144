//! Someone's results: rows of cells, each a span as wide as its printing leaves it.

use super::quantity::{Quantity, printed};
use std::collections::BTreeMap;
use std::ops::{Add, Div, Mul};

/// From `low` to `high`: what a printed number, or a product of such, can have been.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Span {
    /// A number without error.
    pub fn exact(value: f64) -> Self {
        Span { low: value, high: value }
    }
    /// Its middle.
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
    /// Wider by a share of itself at both ends.
    pub fn widened(self, share: f64) -> Self {
        Span { low: self.low - share * self.low.abs(), high: self.high + share * self.high.abs() }
    }
    /// Whether the two have a number in common.
    pub fn meets(self, other: Span) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

impl Mul for Span {
    type Output = Span;
    fn mul(self, other: Span) -> Span {
        Span { low: self.low * other.low, high: self.high * other.high }
    }
}
impl Mul<f64> for Span {
    type Output = Span;
    fn mul(self, factor: f64) -> Span {
        Span { low: self.low * factor, high: self.high * factor }
    }
}
impl Div for Span {
    type Output = Span;
    fn div(self, other: Span) -> Span {
        Span { low: self.low / other.high, high: self.high / other.low }
    }
}
impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span { low: self.low + other.low, high: self.high + other.high }
    }
}

/// A cell: never negative, in base units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// What it can have been before it was rounded for printing.
    pub span: Span,
    /// Significant digits without trailing zeros: how unlikely it is to be met twice by chance.
    pub digits: u32,
}

impl Value {
    /// A number from a program, not rounded.
    pub fn exact(value: f64) -> Option<Value> {
        (value.is_finite() && value >= 0.0).then_some(Value { span: Span::exact(value), digits: 9 })
    }

    /// A printed number: half a unit of its last digit either way. A lone ".0" says nothing: whole numbers
    /// pass through many programs that add it. Conditions are exact.
    pub fn printed(text: &str, unit: f64, quantity: Quantity) -> Option<Value> {
        let text = text.trim();
        let number: f64 = text.parse().ok()?;
        if !number.is_finite() || number < 0.0 {
            return None;
        }
        let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
        let fraction = mantissa.split_once('.').map_or("", |(_, fraction)| fraction);
        let places = if fraction == "0" { 0 } else { fraction.len().min(15) };
        let exponent = text.split_once(['e', 'E']).and_then(|(_, e)| e.parse::<i32>().ok()).unwrap_or(0);
        let half = if quantity.is_condition() {
            0.0
        } else {
            0.5 * 10f64.powi(exponent.saturating_sub(places as i32))
        };
        let span = Span { low: (number - half).max(0.0) * unit, high: (number + half) * unit };
        let figures: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        let digits = figures.trim_start_matches('0').trim_end_matches('0').len() as u32;
        span.high.is_finite().then_some(Value { span, digits })
    }

    /// From the lower to the higher of two, each as fine as the finer one: 0.4 beside 0.44 was 0.40.
    pub fn range(a: Value, b: Value) -> Value {
        let half = ((a.span.high - a.span.low) / 2.0).min((b.span.high - b.span.low) / 2.0);
        let (x, y) = (a.span.middle(), b.span.middle());
        let span = Span { low: (x.min(y) - half).max(0.0), high: x.max(y) + half };
        Value { span, digits: a.digits.max(b.digits) }
    }
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// What people call it: "test 7".
    pub name: String,
    /// Its numbers.
    pub values: BTreeMap<Quantity, Value>,
    /// Its words: which disk, which distribution. Rows with different words are not compared.
    pub words: BTreeMap<String, String>,
}

impl Row {
    /// An empty row.
    pub fn new(name: impl Into<String>) -> Self {
        Row { name: name.into(), ..Row::default() }
    }
    /// The span of a cell.
    pub fn span(&self, quantity: Quantity) -> Option<Span> {
        self.values.get(&quantity).map(|value| value.span)
    }
    /// Puts a printed number in, if it is one.
    pub fn print(&mut self, quantity: Quantity, text: &str, unit: f64) {
        if let Some(value) = Value::printed(text, unit, quantity) {
            self.values.insert(quantity, value);
        }
    }
    /// Puts an exact number in, if it is finite and not negative.
    pub fn put(&mut self, quantity: Quantity, value: f64) {
        if let Some(value) = Value::exact(value) {
            self.values.insert(quantity, value);
        }
    }
    /// A cell for people: "mean 47 ms".
    pub fn show(&self, quantity: Quantity) -> String {
        self.span(quantity).map_or_else(
            || format!("{quantity} (missing)"),
            |span| format!("{quantity} {}", printed(quantity, span.middle())),
        )
    }
    /// Completes what follows by definition: requests are reads and writes.
    pub fn complete(&mut self) {
        for (sum, parts) in [
            (Quantity::DeviceRate, [Quantity::ReadRate, Quantity::WriteRate]),
            (Quantity::Bandwidth, [Quantity::ReadBandwidth, Quantity::WriteBandwidth]),
        ] {
            if let (None, [Some(a), Some(b)]) =
                (self.span(sum), parts.map(|part| self.values.get(&part).copied()))
            {
                let digits = a.digits.max(b.digits);
                self.values.insert(sum, Value { span: a.span + b.span, digits });
            }
        }
    }
}

/// A table of results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// What people call it.
    pub name: String,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// A cell, by table, row and quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellName {
    /// Name of the table.
    pub table: String,
    /// Name of the row.
    pub row: String,
    /// The quantity.
    pub quantity: Quantity,
}

/// What a claim says about its first cell relative to its second, or on its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Says {
    /// First ÷ second is in the span (rounding included).
    Ratio(Span),
    /// The first cell is in the span, in base units.
    Is(Span),
    /// Along the condition `along`, the quantity of the first cell's table reaches `level` within the span.
    Reaches {
        /// The condition that is raised.
        along: Quantity,
        /// The level, in base units.
        level: f64,
        /// Where it is said to be reached.
        at: Span,
    },
    /// Nothing that the cells could check.
    Unchecked,
}

/// A sentence of the text and the cells that it speaks of.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// As printed.
    pub text: String,
    /// The cell that it is about.
    pub of: Option<CellName>,
    /// The cell that it is compared with.
    pub to: Option<CellName>,
    /// What it says.
    pub says: Says,
}

/// Everything from one file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Study {
    /// What people call it.
    pub name: String,
    /// Who published it.
    pub source: String,
    /// Its numbers.
    pub tables: Vec<Table>,
    /// Its sentences.
    pub claims: Vec<Claim>,
    /// What is no measurement and was left out, as sentences.
    pub left_out: Vec<String>,
    /// What should have been readable and is not, as sentences.
    pub damaged: Vec<String>,
}

impl Study {
    /// A file of which nothing can be read.
    pub fn damaged(name: &str, why: String) -> Study {
        Study { name: name.into(), damaged: vec![why], ..Study::default() }
    }

    /// Leaves out rows that say themselves that they are made of no operation: their zeros are not measured.
    pub(super) fn without_idle_rows(mut self) -> Study {
        let idle = |row: &Row| row.span(Quantity::Samples).is_some_and(|samples| samples.high < 1.0);
        for table in &mut self.tables {
            let names = table.rows.iter().filter(|row| idle(row)).map(|row| row.name.as_str());
            self.left_out.extend(names.map(|name| format!("{name}: 0 operations, so nothing was measured")));
            table.rows.retain(|row| !idle(row));
        }
        self
    }

    /// The row that a place names.
    pub fn row(&self, place: &CellName) -> Option<&Row> {
        self.tables.iter().find(|t| t.name == place.table)?.rows.iter().find(|r| r.name == place.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_number_is_as_wide_as_its_last_digit() {
        let span = |text: &str| Value::printed(text, 1.0, Quantity::Mean).unwrap().span;
        assert_eq!(span("22"), Span { low: 21.5, high: 22.5 });
        assert_eq!(span("22.0"), span("22"));
        assert_eq!(span("22.00"), Span { low: 21.995, high: 22.005 });
        assert_eq!(Value::printed("16", 1.0, Quantity::Clients).unwrap().span, Span::exact(16.0));
        assert!(
            Value::printed("-1", 1.0, Quantity::Mean).is_none()
                && Value::printed("x", 1.0, Quantity::Mean).is_none()
        );
    }
}
