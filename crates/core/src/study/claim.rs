//! The conclusions that a published text prints, as data, and the one function that judges them on a study.
//!
//! Intervals are carried through a claim's arithmetic end by end, so the interval that comes out holds the
//! truth whenever all those that went in do, and narrower ones in never give a wider one out. Judgement
//! follows from it: a claim is confirmed when its condition holds in the whole interval, contradicted when
//! it holds nowhere in it, and otherwise nothing can be told.

use super::expression::{Condition, Expression, Extreme, Operator, Path};
use super::figure::{Figure, Known};
use crate::probability::student_quantile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All claims of one text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The name of its study.
    pub study: String,
    /// Where they stand.
    pub source: String,
    /// What of it is so here by construction, in a sentence; empty where nothing is.
    #[serde(default)]
    pub caveat: String,
    /// Whose cells decide each claim once more, where they were measured.
    #[serde(default, rename = "counterpart")]
    counterparts: Vec<Counterpart>,
    /// In the text's order.
    #[serde(rename = "claim")]
    pub all: Vec<Claim>,
}

/// Cells of an optional sweep that are those of another one on another system.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counterpart {
    /// What figures call the one system, or nothing, and what they call the other.
    names: [String; 2],
    /// What stands in the one's paths, and in the other's.
    replaces: [String; 2],
    /// Claims of which the other's cells say nothing.
    #[serde(default)]
    except: Vec<String>,
}

impl Counterpart {
    /// The same figure of the other system; `None` of one that is not the first's.
    fn of(&self, criterion: &Criterion) -> Option<Criterion> {
        let [ours, theirs] = &self.replaces;
        let text = criterion.is.to_string();
        let is = text.contains(ours.as_str()).then(|| text.replace(ours, theirs).parse().ok())??;
        let what = match self.names.each_ref().map(String::as_str) {
            ["", name] => format!("{name}{}", criterion.what),
            [one, other] if criterion.what.contains(one) => criterion.what.replace(one, other),
            [_, other] => format!("{}, {other}", criterion.what),
        };
        Some(Criterion { what, is, optional: true, ..criterion.clone() })
    }
}

/// A conclusion that a text prints.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// "working-set-08".
    pub id: String,
    /// What it says, in a sentence.
    pub claim: String,
    /// Its figure, as printed.
    pub theirs: String,
    /// What kind of statement it is.
    pub kind: Kind,
    /// What decides it, all together; empty where `not_tested` says why nothing does.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Criterion>,
    /// Why no cell of our plan can decide it.
    pub not_tested: Option<String>,
}

/// What kind of statement a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something is a multiple of something else.
    Ratio,
    /// Things rank in an order.
    Order,
    /// Something is beyond or within a limit.
    Threshold,
    /// Something is the best of its kind.
    Optimum,
    /// Two things are the same.
    Equality,
    /// Something is lost, or is not.
    Loss,
    /// Something happens, or does not.
    Qualitative,
}

/// One figure of a claim and what must hold of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// What the figure is, in a few words.
    pub what: String,
    /// How it is computed from the study.
    pub is: Expression,
    /// Its unit; empty for a pure number.
    #[serde(default)]
    pub unit: String,
    /// What must hold of it, in that unit.
    pub must: Condition,
    /// It is of an optional sweep: where that was not measured, the claim is judged without it.
    #[serde(default)]
    pub optional: bool,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// All its figures are as it says, over their whole intervals.
    Confirmed,
    /// A figure is not as it says, anywhere in its interval.
    Contradicted,
    /// The intervals leave both open.
    CannotTell {
        /// Why.
        why: String,
        /// Trials of every cell, besides those there are, with which it could be told if the values stayed
        /// what they are; `None` where no number of them is known to do.
        more_trials: Option<u32>,
    },
    /// Nothing that was measured speaks of it.
    NotTested {
        /// Why.
        why: String,
    },
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// "working-set-08".
    pub id: String,
    /// What it says.
    pub claim: String,
    /// Where it stands.
    pub source: String,
    /// Its figure, as printed.
    pub theirs: String,
    /// What kind of statement it is.
    pub kind: Kind,
    /// Ours.
    pub figures: Vec<JudgedFigure>,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// One figure of a judged claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedFigure {
    /// What it is.
    pub what: String,
    /// How it was computed from the study.
    pub expression: String,
    /// Its unit; empty for a pure number.
    pub unit: String,
    /// Our value; absent where `missing` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Lower end of its interval; absent where that is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of its interval; absent where that is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// A figure of one trial is in it, so that it has no interval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single: bool,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What must hold of it.
    pub must: Condition,
    /// Whether that holds in the whole interval or nowhere in it; absent where neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

/// How many claims have each verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Confirmed.
    pub confirmed: usize,
    /// Contradicted.
    pub contradicted: usize,
    /// Not to be told.
    pub cannot_tell: usize,
    /// Not tested.
    pub not_tested: usize,
}

impl Tally {
    /// Counts.
    pub fn of(claims: &[Judged]) -> Tally {
        let mut tally = Tally::default();
        for claim in claims {
            *match claim.verdict {
                Verdict::Confirmed => &mut tally.confirmed,
                Verdict::Contradicted => &mut tally.contradicted,
                Verdict::CannotTell { .. } => &mut tally.cannot_tell,
                Verdict::NotTested { .. } => &mut tally.not_tested,
            } += 1;
        }
        tally
    }
}

impl Claims {
    /// Reads claims; every one of them has either figures or a reason for having none.
    ///
    /// # Errors
    /// A sentence that says which claim is wrong, and how.
    pub fn parse(text: &str) -> Result<Claims, String> {
        let mut claims: Claims = toml::from_str(text).map_err(|error| error.to_string())?;
        for claim in &mut claims.all {
            let counterparts =
                claims.counterparts.iter().filter(|counterpart| !counterpart.except.contains(&claim.id));
            let counterparts =
                counterparts.flat_map(|counterpart| claim.figures.iter().filter_map(|of| counterpart.of(of)));
            let counterparts: Vec<Criterion> = counterparts.collect();
            claim.figures.extend(counterparts);
            if claim.figures.is_empty() != claim.not_tested.is_some() {
                return Err(format!("{} needs either a figure or not_tested", claim.id));
            }
        }
        Ok(claims)
    }

    /// Judges all claims on the JSON of a study.
    pub fn judge(&self, study: &Value) -> Vec<Judged> {
        let judged = |claim: &Claim| {
            let claim = claim.about(study);
            let evaluated: Vec<Evaluated> =
                claim.figures.iter().map(|criterion| Evaluated::of(criterion, study, 0)).collect();
            Judged {
                id: claim.id.clone(),
                claim: claim.claim.clone(),
                source: self.source.clone(),
                theirs: claim.theirs.clone(),
                kind: claim.kind,
                figures: claim.figures.iter().zip(&evaluated).map(|(c, outcome)| outcome.shown(c)).collect(),
                verdict: claim.verdict(&evaluated, study),
            }
        };
        self.all.iter().map(judged).collect()
    }

    /// Paths that lead nowhere in the JSON of a study, each with the claim that it stands in.
    pub fn astray(&self, study: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for claim in &self.all {
            for criterion in &claim.figures {
                let mut paths = Vec::new();
                paths_of(&criterion.is, false, &mut paths);
                for (path, many) in paths {
                    let figures = figures_at(path, study);
                    match figures {
                        Ok(figures) if figures.is_empty() => {
                            found.push(format!("{}: there is no cell `{path}`", claim.id))
                        }
                        Ok(figures) if many || figures.len() == 1 => {}
                        Ok(figures) => {
                            found.push(format!("{}: {path} means {} rows", claim.id, figures.len()))
                        }
                        Err(why) => found.push(format!("{}: {why}", claim.id)),
                    }
                }
            }
        }
        found
    }
}

fn paths_of<'a>(expression: &'a Expression, many: bool, found: &mut Vec<(&'a Path, bool)>) {
    match expression {
        Expression::Number(_) => {}
        Expression::Path(path) => found.push((path, many)),
        Expression::Binary(a, _, b) => [a, b].into_iter().for_each(|e| paths_of(e, false, found)),
        Expression::Extreme(_, of) => of.iter().for_each(|e| paths_of(e, true, found)),
    }
}

impl Claim {
    /// The claim without figures of optional sweeps that were not measured; with all of them if none is left.
    fn about(&self, study: &Value) -> Claim {
        let is_there = |criterion: &&Criterion| {
            !criterion.optional || !matches!(Evaluated::of(criterion, study, 0), Evaluated::Absent(_))
        };
        let figures: Vec<Criterion> = self.figures.iter().filter(is_there).cloned().collect();
        let figures = if figures.is_empty() { self.figures.clone() } else { figures };
        Claim { figures, ..self.clone() }
    }

    fn verdict(&self, evaluated: &[Evaluated], study: &Value) -> Verdict {
        if let Some(why) = &self.not_tested {
            return Verdict::NotTested { why: why.clone() };
        }
        if evaluated.iter().any(|outcome| outcome.holds() == Some(false)) {
            return Verdict::Contradicted;
        }
        if evaluated.iter().all(|outcome| outcome.holds() == Some(true)) {
            return Verdict::Confirmed;
        }
        let reasons = |wanted: fn(&Evaluated) -> Option<&String>| {
            let mut reasons: Vec<&str> = evaluated.iter().filter_map(wanted).map(String::as_str).collect();
            reasons.dedup();
            (!reasons.is_empty()).then(|| reasons.join("; "))
        };
        let absent = reasons(|outcome| match outcome {
            Evaluated::Absent(why) => Some(why),
            _ => None,
        });
        let useless = reasons(|outcome| match outcome {
            Evaluated::Useless(why) => Some(why),
            _ => None,
        });
        if let Some(why) = &absent
            && evaluated.iter().all(|outcome| matches!(outcome, Evaluated::Absent(_)))
        {
            return Verdict::NotTested { why: why.clone() };
        }
        if let Some(why) = useless.or(absent) {
            return Verdict::CannotTell { why, more_trials: None };
        }
        let more_trials = self.more_trials(study);
        let single = evaluated.iter().any(|outcome| matches!(outcome, Evaluated::Known { single: true, .. }));
        let why = match more_trials {
            _ if single => "one trial has no interval".into(),
            Some(_) => "the intervals are too wide".into(),
            None => "the value lies at the very edge of what is claimed".into(),
        };
        Verdict::CannotTell { why, more_trials: if single { Some(1) } else { more_trials } }
    }

    /// The fewest further trials of every cell that would decide, if the values stayed and the intervals
    /// shrank as Student's t over more trials does.
    fn more_trials(&self, study: &Value) -> Option<u32> {
        const MOST: u32 = 4096;
        let decides = |more: u32| {
            let holds: Vec<Option<bool>> =
                self.figures.iter().map(|c| Evaluated::of(c, study, more).holds()).collect();
            holds.contains(&Some(false)) || holds.iter().all(|holds| *holds == Some(true))
        };
        let enough =
            (0..).map(|power| 1 << power).take_while(|more| *more <= MOST).find(|more| decides(*more))?;
        // Narrower intervals never decide less, so the border can be halved towards.
        let (mut too_few, mut enough) = (enough / 2, enough);
        while enough - too_few > 1 {
            let middle = u32::midpoint(too_few, enough);
            if decides(middle) { enough = middle } else { too_few = middle }
        }
        Some(enough)
    }
}

/// What one criterion came to.
#[derive(Debug, Clone, PartialEq)]
enum Evaluated {
    Known {
        span: Span,
        holds: Option<bool>,
        /// A figure of one trial is in it.
        single: bool,
    },
    /// Nothing was measured, or there is no such cell.
    Absent(String),
    /// Something was measured that cannot be used.
    Useless(String),
}

impl Evaluated {
    /// With intervals as they would be after `more` trials.
    fn of(criterion: &Criterion, study: &Value, more: u32) -> Evaluated {
        let mut sum = Sum { study, more, single: false };
        match sum.evaluate(&criterion.is) {
            Ok(span) if span.value.is_finite() => Evaluated::Known {
                span,
                holds: criterion.must.holds_in(span.low, span.high),
                single: sum.single,
            },
            Ok(_) => Evaluated::Useless("nothing to divide by".into()),
            Err(outcome) => outcome,
        }
    }

    fn holds(&self) -> Option<bool> {
        match self {
            Evaluated::Known { holds, .. } => *holds,
            Evaluated::Absent(_) | Evaluated::Useless(_) => None,
        }
    }

    fn shown(&self, criterion: &Criterion) -> JudgedFigure {
        let mut shown = JudgedFigure {
            what: criterion.what.clone(),
            expression: criterion.is.to_string(),
            unit: criterion.unit.clone(),
            value: None,
            low: None,
            high: None,
            single: false,
            missing: None,
            must: criterion.must,
            holds: self.holds(),
        };
        match self {
            Evaluated::Known { span, single, .. } => {
                let end = |x: f64| x.is_finite().then_some(x);
                (shown.value, shown.single) = (Some(span.value), *single);
                (shown.low, shown.high) = (end(span.low), end(span.high));
            }
            Evaluated::Absent(why) | Evaluated::Useless(why) => shown.missing = Some(why.clone()),
        }
        shown
    }
}

/// A value and the interval that holds the truth.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    value: f64,
    low: f64,
    high: f64,
}

impl Span {
    fn exact(value: f64) -> Span {
        Span { value, low: value, high: value }
    }

    fn combined(self, operator: Operator, other: Span) -> Span {
        match operator {
            Operator::Add => Span {
                value: self.value + other.value,
                low: self.low + other.low,
                high: self.high + other.high,
            },
            Operator::Subtract => Span {
                value: self.value - other.value,
                low: self.low - other.high,
                high: self.high - other.low,
            },
            Operator::Multiply => self.times(other),
            // What may be divided by zero may be anything, but for what cannot be negative.
            Operator::Divide if other.low < 0.0 && other.high > 0.0 => {
                Span { value: self.value / other.value, low: f64::NEG_INFINITY, high: f64::INFINITY }
            }
            Operator::Divide => {
                let end = |x: f64, zero: f64| if x == 0.0 { zero } else { x.recip() };
                let (a, b) = (end(other.high, f64::NEG_INFINITY), end(other.low, f64::INFINITY));
                let inverse = Span { value: other.value.recip(), low: a, high: b };
                Span { value: self.value / other.value, ..self.times(inverse) }
            }
        }
    }

    fn times(self, other: Span) -> Span {
        let product = |a: f64, b: f64| if a == 0.0 || b == 0.0 { 0.0 } else { a * b };
        let corners = [
            product(self.low, other.low),
            product(self.low, other.high),
            product(self.high, other.low),
            product(self.high, other.high),
        ];
        Span {
            value: self.value * other.value,
            low: corners.into_iter().fold(f64::INFINITY, f64::min),
            high: corners.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn extreme(self, extreme: Extreme, other: Span) -> Span {
        let pick = match extreme {
            Extreme::Largest => f64::max,
            Extreme::Smallest => f64::min,
        };
        Span {
            value: pick(self.value, other.value),
            low: pick(self.low, other.low),
            high: pick(self.high, other.high),
        }
    }
}

/// The evaluation of one expression.
struct Sum<'a> {
    study: &'a Value,
    more: u32,
    single: bool,
}

impl Sum<'_> {
    fn evaluate(&mut self, expression: &Expression) -> Result<Span, Evaluated> {
        match expression {
            Expression::Number(x) => Ok(Span::exact(*x)),
            Expression::Binary(a, operator, b) => {
                Ok(self.evaluate(a)?.combined(*operator, self.evaluate(b)?))
            }
            Expression::Path(path) => match self.spans(path)?.as_slice() {
                [one] => Ok(*one),
                many => Err(Evaluated::Useless(format!("{path} means {} rows", many.len()))),
            },
            Expression::Extreme(extreme, of) => {
                let mut spans = Vec::new();
                for part in of {
                    match part {
                        Expression::Path(path) => spans.extend(self.spans(path)?),
                        other => spans.push(self.evaluate(other)?),
                    }
                }
                let found = spans.into_iter().reduce(|a, b| a.extreme(*extreme, b));
                found.ok_or_else(|| Evaluated::Absent("there is no such cell".into()))
            }
        }
    }

    fn spans(&mut self, path: &Path) -> Result<Vec<Span>, Evaluated> {
        let rows = figures_at(path, self.study).map_err(Evaluated::Absent)?;
        if rows.is_empty() {
            return Err(Evaluated::Absent("its cells are not part of this run".into()));
        }
        let mut spans = Vec::new();
        for Row { figure, broken_laws } in rows {
            match figure {
                Figure::Missing { missing, trials: 0 } => return Err(Evaluated::Absent(missing)),
                Figure::Missing { missing, .. } => return Err(Evaluated::Useless(missing)),
                Figure::Known(_) if !broken_laws.is_empty() => {
                    let laws = broken_laws.join(", ");
                    return Err(Evaluated::Useless(format!("a figure breaks a law of the audit: {laws}")));
                }
                Figure::Known(known) => {
                    self.single |= known.trials == 1;
                    spans.push(after(&known, self.more));
                }
            }
        }
        Ok(spans)
    }
}

/// The interval of a figure after `more` trials.
fn after(known: &Known, more: u32) -> Span {
    let Known { value, trials, .. } = *known;
    let open = Span { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
    let half = |n: u32| student_quantile(0.05, f64::from(n - 1)) / f64::from(n).sqrt();
    match (trials, known.low, known.high) {
        // Configured, not measured.
        (0, ..) => Span::exact(value),
        (1, ..) | (_, None, _) | (_, _, None) => open,
        (_, Some(low), Some(high)) if more == 0 => Span { value, low, high },
        (n, Some(low), Some(high)) => {
            let share = half(n + more) / half(n);
            Span { value, low: value - share * (value - low), high: value + share * (high - value) }
        }
    }
}

struct Row {
    figure: Figure,
    broken_laws: Vec<String>,
}

/// The figures that a path means; none where its cells were left out.
fn figures_at(path: &Path, study: &Value) -> Result<Vec<Row>, String> {
    let list = study[&path.list].as_array().ok_or_else(|| format!("the study has no `{}`", path.list))?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToString::to_string);
    let fits = |row: &&Value| {
        path.selectors.iter().all(|selector| {
            let field = &row[&selector.key];
            !field.is_null() && (text(field) == selector.value) == selector.equal
        })
    };
    let row = |row: &Value| {
        let figure = serde_json::from_value(row[&path.field].clone());
        let laws = row["broken_laws"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Row {
            figure: figure.map_err(|_| format!("`{}` of `{}` is no figure", path.field, path.list))?,
            broken_laws: laws.iter().map(text).collect(),
        })
    };
    list.iter().filter(fits).map(row).collect()
}

#[cfg(test)]
mod tests;
