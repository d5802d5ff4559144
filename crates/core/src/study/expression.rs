//! The vocabulary of claims: arithmetic over the figures of a study, and conditions on what comes out.
//!
//! ```text
//! (1 - reads[working_set=182 % & disk=5000 IOPS].throughput_ops_per_s
//!      / reads[working_set=92 % & disk=5000 IOPS].throughput_ops_per_s) * 100
//! ```
//!
//! A path names a list of the study, the row whose fields have the given values, and a figure of that row.
//! Within `max` and `min` a path may mean several rows.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Arithmetic over the figures of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Expression {
    /// A number that the text gives, in the unit of what it is combined with.
    Number(f64),
    /// A figure of the study.
    Path(Path),
    /// Two expressions combined.
    Binary(Box<Expression>, Operator, Box<Expression>),
    /// The largest or smallest of several figures.
    Extreme(Extreme, Vec<Expression>),
}

/// How two expressions are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// Which of several figures is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// `max`
    Largest,
    /// `min`
    Smallest,
}

/// A figure's place in a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The list.
    pub list: String,
    /// What the row's fields have to be.
    pub selectors: Vec<Selector>,
    /// The row's field.
    pub field: String,
}

/// What a field of a row has to be, or must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The field.
    pub key: String,
    /// Whether it has the value, or any other.
    pub equal: bool,
    /// The value as text.
    pub value: String,
}

/// What must hold of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Condition {
    /// `< x`
    Below(f64),
    /// `<= x`
    AtMost(f64),
    /// `> x`
    Above(f64),
    /// `>= x`
    AtLeast(f64),
    /// `in a .. b`, both ends included.
    Within(f64, f64),
}

impl Condition {
    /// What becomes of it when the truth lies anywhere in `low..=high`: held by all of the interval, by
    /// none of it, or by a part (`None`).
    pub fn holds_in(self, low: f64, high: f64) -> Option<bool> {
        let (all, none) = match self {
            Condition::Below(x) => (high < x, low >= x),
            Condition::AtMost(x) => (high <= x, low > x),
            Condition::Above(x) => (low > x, high <= x),
            Condition::AtLeast(x) => (low >= x, high < x),
            Condition::Within(a, b) => (low >= a && high <= b, high < a || low > b),
        };
        if all { Some(true) } else { none.then_some(false) }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Below(x) => write!(f, "< {x}"),
            Condition::AtMost(x) => write!(f, "<= {x}"),
            Condition::Above(x) => write!(f, "> {x}"),
            Condition::AtLeast(x) => write!(f, ">= {x}"),
            Condition::Within(a, b) => write!(f, "in {a} .. {b}"),
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<f64>() {
            Ok(x) if x.is_finite() => Ok(x),
            _ => Err(format!("`{}` is not a number", text.trim())),
        };
        let text = text.trim();
        if let Some(range) = text.strip_prefix("in ") {
            let (a, b) = range.split_once("..").ok_or_else(|| format!("`{text}` has no `..`"))?;
            let (a, b) = (number(a)?, number(b)?);
            return if a <= b { Ok(Condition::Within(a, b)) } else { Err(format!("`{text}` is empty")) };
        }
        type Make = fn(f64) -> Condition;
        let signs: [(&str, Make); 4] = [
            ("<=", Condition::AtMost),
            (">=", Condition::AtLeast),
            ("<", Condition::Below),
            (">", Condition::Above),
        ];
        let found = signs.iter().find_map(|(sign, condition)| Some((condition, text.strip_prefix(sign)?)));
        let (condition, rest) = found.ok_or_else(|| format!("`{text}` begins with none of < <= > >= in"))?;
        Ok(condition(number(rest)?))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let selectors: Vec<String> = self
            .selectors
            .iter()
            .map(|s| format!("{}{}{}", s.key, if s.equal { "=" } else { "!=" }, s.value))
            .collect();
        write!(f, "{}[{}].{}", self.list, selectors.join(" & "), self.field)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Number(x) => write!(f, "{x}"),
            Expression::Path(path) => write!(f, "{path}"),
            Expression::Binary(a, operator, b) => {
                let sign = match operator {
                    Operator::Add => '+',
                    Operator::Subtract => '-',
                    Operator::Multiply => '*',
                    Operator::Divide => '/',
                };
                write!(f, "({a} {sign} {b})")
            }
            Expression::Extreme(extreme, of) => {
                let name = if *extreme == Extreme::Largest { "max" } else { "min" };
                let of: Vec<String> = of.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", of.join(", "))
            }
        }
    }
}

impl FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: text };
        let expression = reader.sum()?;
        match reader.peek() {
            None => Ok(expression),
            Some(c) => Err(format!("`{c}` is left over in `{text}`")),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(sign);
        if found {
            self.rest = &self.rest[sign.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("`{sign}` is missing before `{}`", self.rest)) }
    }

    /// The text up to where `ends` is true, which stays.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.rest = &self.rest[1..];
            left = Expression::Binary(Box::new(left), operator, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.factor()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                _ => return Ok(left),
            };
            self.rest = &self.rest[1..];
            left = Expression::Binary(Box::new(left), operator, Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Expression, String> {
        match self.peek() {
            Some('(') => {
                self.expect('(')?;
                let inner = self.sum()?;
                self.expect(')')?;
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() => {
                let text = self.until(|c| !c.is_ascii_digit() && c != '.');
                text.parse().map(Expression::Number).map_err(|_| format!("`{text}` is not a number"))
            }
            Some(c) if c.is_ascii_lowercase() => self.named(),
            Some(_) => Err(format!("neither a number nor a figure: `{}`", self.rest)),
            None => Err("something is missing at the end".into()),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.until(|c| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_') {
            "" => Err(format!("a name is missing before `{}`", self.rest)),
            name => Ok(name.into()),
        }
    }

    fn named(&mut self) -> Result<Expression, String> {
        let name = self.name()?;
        if self.peek() == Some('(') {
            let extreme = match name.as_str() {
                "max" => Extreme::Largest,
                "min" => Extreme::Smallest,
                other => return Err(format!("`{other}` is neither max nor min")),
            };
            self.expect('(')?;
            let mut of = vec![self.sum()?];
            while self.take(',') {
                of.push(self.sum()?);
            }
            self.expect(')')?;
            return Ok(Expression::Extreme(extreme, of));
        }
        self.expect('[')?;
        let selectors = self.until(|c| c == ']');
        self.expect(']')?;
        self.expect('.')?;
        let selectors = selectors.split('&').map(str::trim).filter(|text| !text.is_empty());
        Ok(Expression::Path(Path {
            list: name,
            selectors: selectors.map(selector).collect::<Result<_, _>>()?,
            field: self.name()?,
        }))
    }
}

fn selector(text: &str) -> Result<Selector, String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` has no `=`"))?;
    let (key, equal) = key.strip_suffix('!').map_or((key, true), |key| (key, false));
    Ok(Selector { key: key.trim().into(), equal, value: value.trim().into() })
}

/// Conversions to and from text, as serde wants them.
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}
as_text!(Expression);
as_text!(Condition);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path() -> impl Strategy<Value = Expression> {
        let selector = ("[a-z_]{1,8}", any::<bool>(), "[0-9a-zA-Z+%][0-9a-zA-Z +%]{0,8}[0-9a-zA-Z%]");
        let selectors = prop::collection::vec(selector, 0..3);
        ("[a-z][a-z_0-9]{0,8}", selectors, "[a-z][a-z_0-9]{0,8}").prop_map(|(list, selectors, field)| {
            let selector = |(key, equal, value)| Selector { key, equal, value };
            Expression::Path(Path { list, selectors: selectors.into_iter().map(selector).collect(), field })
        })
    }

    fn expression() -> impl Strategy<Value = Expression> {
        let leaf = prop_oneof![(0u32..100_000).prop_map(|n| Expression::Number(f64::from(n) / 64.0)), path()];
        leaf.prop_recursive(4, 24, 3, |inner| {
            let operator = prop::sample::select(vec![
                Operator::Add,
                Operator::Subtract,
                Operator::Multiply,
                Operator::Divide,
            ]);
            let extreme = prop::sample::select(vec![Extreme::Largest, Extreme::Smallest]);
            prop_oneof![
                (inner.clone(), operator, inner.clone()).prop_map(|(a, operator, b)| Expression::Binary(
                    Box::new(a),
                    operator,
                    Box::new(b)
                )),
                (extreme, prop::collection::vec(inner, 1..3)).prop_map(|(e, of)| Expression::Extreme(e, of)),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed_as_it_was(e in expression()) {
            prop_assert_eq!(e.to_string().parse::<Expression>().unwrap(), e);
        }

        #[test]
        fn a_narrower_interval_never_says_the_opposite(
            x in -9.0..9.0f64, width in 0.0..9.0f64, low in -20.0..20.0f64,
            ends in (0.0..9.0f64, 0.0..9.0f64, 0.0..1.0f64)
        ) {
            let wide = (low, low + ends.0 + ends.1);
            let narrow = (wide.0 + ends.2 * ends.0, wide.1 - ends.2 * ends.1);
            let all = [
                Condition::Below(x), Condition::AtMost(x), Condition::Above(x), Condition::AtLeast(x),
                Condition::Within(x, x + width),
            ];
            for condition in all {
                prop_assert_eq!(condition.to_string().parse::<Condition>().unwrap(), condition);
                let said = condition.holds_in(wide.0, wide.1);
                prop_assert!(said.is_none() || said == condition.holds_in(narrow.0, narrow.1));
            }
        }
    }

    #[test]
    fn products_bind_closer_than_sums_and_left_comes_first() {
        let parsed = |text: &str| text.parse::<Expression>().unwrap().to_string();
        assert_eq!(parsed("1 - 2 / 4 * 3 - 1"), "((1 - ((2 / 4) * 3)) - 1)");
        assert_eq!(parsed("max( a[b = 92 % & c!=x + y].d_s , 2)"), "max(a[b=92 % & c!=x + y].d_s, 2)");
        for (bad, why) in [
            ("", "missing at the end"),
            ("1 +", "missing at the end"),
            ("a[b=c]", "`.` is missing"),
            ("a[b].c", "has no `=`"),
            ("sum(1)", "neither max nor min"),
            ("1 2", "left over"),
            ("(1", "`)` is missing"),
            ("1.2.3", "not a number"),
        ] {
            let said = bad.parse::<Expression>().unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
        for bad in ["", "= 3", "in 3", "in 4 .. 3", "< x", "> NaN"] {
            assert!(bad.parse::<Condition>().is_err(), "{bad}");
        }
    }
}
